//! What leaders and replicas say to one another. Records are not in it: those are written into the replica's window, as they stand in the log, with their length in words as
//! the immediate. Nor are acknowledgements: a replica writes nothing, nowhere, with the low 32 bits of the number of the last record that is persistent there, none missing.
//!
//! These are the messages of all versions that [`wire`](super::wire) has, those of a later one behind the others. A message that is there keeps its bytes: a test here has those of version 4.

use serde::{Deserialize, Serialize};

use super::at::{At, Span};
use super::members::{Config, Layout, Origin};

/// Names the key of digests: these are of bytes that hold checksums.
pub(super) const DIGESTS: u64 = u64::from_le_bytes(*b"digests\0");
/// Most digests in a message.
pub(super) const DIGESTS_MAX: u64 = 4096;

/// From a leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// What are you? The first question; with the oldest version that the leader speaks, while the number of the call says the newest ([`Versions::of_look`](super::wire::Versions::of_look)).
    Look { oldest: u32 },
    /// Become an empty replica of this log.
    Format { layout: Layout, me: u64 },
    /// Hear no leader with a lower epoch any more, and answer this one alone.
    Promise { epoch: u32, owner: u64 },
    /// How far do your records go from here, of this epoch at most, and before record `until`?
    Walk { from: At, until: u64, epoch: u32 },
    /// What is in these pieces?
    Digest { span: Span },
    /// The log is from here to here, and is of my epoch; these are its replicas, and it came from there.
    Install { head: At, end: At, config: Config, origin: Origin },
    /// Records before this are not needed.
    Head { head: At },
}

/// From a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// To [`Request::Look`], [`Request::Format`] and [`Request::Promise`].
    State(State),
    /// To whom is heard no more, or never was.
    Refused {
        promised: u32,
        owner: u64,
    },
    Walked(Walked),
    Digests(Vec<u64>),
    Installed,
    HeadMoved,
    /// It cannot; the connection is closed behind it.
    Failed {
        why: String,
    },
    /// To [`Request::Look`] of a leader that speaks version 5: what the replica speaks, and as [`Reply::State`].
    Speaks {
        oldest: u32,
        newest: u32,
        state: State,
    },
}

/// A replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// None before [`Request::Format`].
    pub(crate) formed: Option<Formed>,
}

/// A replica of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Formed {
    pub(crate) layout: Layout,
    pub(crate) me: u64,
    pub(crate) promised: u32,
    pub(crate) owner: u64,
    /// 0 for one that is new, or was never repaired to the end: it counts for nothing.
    pub(crate) log_epoch: u32,
    pub(crate) config: Option<Config>,
    pub(crate) origin: Origin,
    pub(crate) head: At,
    /// Records before this one are persistent here, as far as it knows without reading.
    pub(crate) next: u64,
    /// A leader has told it where the log ends since it was opened.
    pub(crate) knows: bool,
}

/// To [`Request::Walk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Walked {
    /// Behind the last record that is whole, with all before it.
    pub(crate) end: At,
    /// The next one may have been whole here, and acknowledged: it was begun, or others stand behind it, or this replica knows that it had it.
    pub(crate) doubt: bool,
    /// Records through this one had been on a write quorum: a record that stands behind says so.
    pub(crate) through: u64,
}

/// What travels to a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ToReplica {
    pub(crate) call: u32,
    pub(crate) request: Request,
}

/// What travels from a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FromReplica {
    Answer {
        call: u32,
        reply: Reply,
    },
    /// Another leader has this replica's promise; the connection is closed behind it.
    Fenced {
        epoch: u32,
        owner: u64,
    },
}

/// A message, of which an end knows those that a version which it speaks has.
pub(crate) trait Message: Serialize + for<'a> Deserialize<'a> {
    /// The version that brought it; 0 if every version that a build speaks has it.
    fn since(&self) -> u32;
}

impl Message for ToReplica {
    fn since(&self) -> u32 {
        0
    }
}

impl Message for FromReplica {
    fn since(&self) -> u32 {
        match self {
            Self::Answer { reply: Reply::Speaks { .. }, .. } => 5,
            _ => 0,
        }
    }
}

pub(crate) fn encode<T: Message>(message: &T) -> Vec<u8> {
    // Only maps and sequences of unknown length can fail, and there are none.
    postcard::to_allocvec(message).unwrap_or_default()
}

/// The message in these bytes, whatever they are, for an end that speaks no version later than `newest`.
pub(crate) fn decode<T: Message>(bytes: &[u8], newest: u32) -> Option<T> {
    match postcard::take_from_bytes::<T>(bytes) {
        Ok((message, [])) if message.since() <= newest => Some(message),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::members::Quorum;
    use super::super::wire::{NEWEST, OLDEST, Versions};
    use super::*;

    const AT: At = At { lsn: 300, position: 70_000, epoch: 9 };

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn formed() -> Formed {
        let before = Some(Quorum { ids: vec![1, 2], write_quorum: 2 });
        Formed {
            layout: Layout { log: 7, key: 1 << 40, segment_bytes: 4096, segments: 4, checksums: 2 },
            me: 200,
            promised: 5,
            owner: 6,
            log_epoch: 4,
            config: Some(Config { ids: vec![1, 2, 300], write_quorum: 2, generation: 3, before }),
            origin: Origin { base: 3, taken: 299 },
            head: AT,
            next: 301,
            knows: true,
        }
    }

    fn requests() -> Vec<Request> {
        let Formed { layout, config, origin, .. } = formed();
        vec![
            Request::Look { oldest: 4 },
            Request::Format { layout, me: 200 },
            Request::Promise { epoch: 5, owner: 6 },
            Request::Walk { from: AT, until: u64::MAX, epoch: 9 },
            Request::Digest { span: Span { from: 128, to: 256 } },
            Request::Install { head: AT, end: AT, config: config.expect("there"), origin },
            Request::Head { head: AT },
        ]
    }

    fn replies() -> Vec<Reply> {
        vec![
            Reply::State(State { formed: None }),
            Reply::State(State { formed: Some(formed()) }),
            Reply::Refused { promised: 5, owner: 6 },
            Reply::Walked(Walked { end: AT, doubt: true, through: 299 }),
            Reply::Digests(vec![1, u64::MAX]),
            Reply::Installed,
            Reply::HeadMoved,
            Reply::Failed { why: "no".into() },
        ]
    }

    /// As the last build before this one encodes them.
    #[test]
    fn messages_of_version_4_keep_their_bytes() {
        let to_replica = requests().into_iter().map(|request| ToReplica { call: 1, request });
        let said: Vec<String> = to_replica.map(|message| hex(&encode(&message))).collect();
        assert_eq!(said, REQUESTS_4);
        let from_replica = replies().into_iter().map(|reply| FromReplica::Answer { call: 1, reply });
        let fenced = FromReplica::Fenced { epoch: 5, owner: 6 };
        let said: Vec<String> = from_replica.chain([fenced]).map(|message| hex(&encode(&message))).collect();
        assert_eq!(said, REPLIES_4);
    }

    #[test]
    fn a_message_is_read_as_it_was_sent_by_an_end_that_speaks_its_version() {
        let read = |message: &FromReplica, newest| decode::<FromReplica>(&encode(message), newest);
        for reply in replies() {
            let message = FromReplica::Answer { call: 1, reply };
            assert_eq!(read(&message, OLDEST).as_ref(), Some(&message));
            assert_eq!(read(&message, NEWEST).as_ref(), Some(&message));
        }
        let Versions { oldest, newest } = Versions::default();
        let reply = Reply::Speaks { oldest, newest, state: State { formed: Some(formed()) } };
        let message = FromReplica::Answer { call: 1, reply };
        assert_eq!((read(&message, OLDEST), read(&message, NEWEST).as_ref()), (None, Some(&message)));
        for request in requests() {
            let message = ToReplica { call: u32::MAX, request };
            assert_eq!(decode(&encode(&message), OLDEST).as_ref(), Some(&message));
        }
        let more = [encode(&message), vec![0]].concat();
        assert_eq!(decode::<FromReplica>(&more, NEWEST), None, "with more behind it");
    }

    const REQUESTS_4: [&str; 7] = [
        "010004",
        "01010780808080802080200402c801",
        "01020506",
        "0103ac02f0a20409ffffffffffffffffff0109",
        "010480018002",
        "0105ac02f0a20409ac02f0a20409030102ac020203010201020203ab02",
        "0106ac02f0a20409",
    ];
    const REPLIES_4: [&str; 9] = [
        "00010000",
        "000100010780808080802080200402c80105060401030102ac020203010201020203ab02ac02f0a20409ad0201",
        "0001010506",
        "000102ac02f0a2040901ab02",
        "0001030201ffffffffffffffffff01",
        "000104",
        "000105",
        "000106026e6f",
        "010506",
    ];
}
