//! What leaders and replicas say to one another. Records are not in it: those are written into the replica's window, as they stand in the log, with their length in words as
//! the immediate. Nor are acknowledgements: a replica writes nothing, nowhere, with the low 32 bits of the number of the last record that is persistent there, none missing.

use serde::{Deserialize, Serialize};

use super::at::{At, Span};
use super::members::{Config, Layout, Origin};

/// Raised when messages change.
pub(crate) const WIRE_VERSION: u32 = 4;
/// Names the key of digests: these are of bytes that hold checksums.
pub(super) const DIGESTS: u64 = u64::from_le_bytes(*b"digests\0");
/// Most digests in a message.
pub(super) const DIGESTS_MAX: u64 = 4096;

/// From a leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// What are you?
    Look { version: u32 },
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

pub(crate) fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    // Only maps and sequences of unknown length can fail, and there are none.
    postcard::to_allocvec(message).unwrap_or_default()
}

/// The message in these bytes, whatever they are.
pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Some(message),
        _ => None,
    }
}
