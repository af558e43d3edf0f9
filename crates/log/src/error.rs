//! What can go wrong, grouped by what the caller can do about it.

use std::time::Duration;

use pmem::ErrorKind;

use crate::Lsn;

/// Every error of this crate. The message says what happened, where, and what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // ---- try again later -------------------------------------------------------------------------------------
    /// An earlier record was reserved and is not complete. The record asked for may become durable all the same, once that one is.
    #[error(
        "record {lsn} was reserved and is not complete after {waited:?}: complete or drop that reservation, then force again"
    )]
    Stalled {
        /// The record waited for.
        lsn: Lsn,
        /// How long.
        waited: Duration,
    },
    /// A reservation was forgotten or is still held, so the log cannot be closed cleanly.
    #[error("record {lsn} was reserved and never completed: complete or drop that reservation, then close again")]
    Unfinished {
        /// The first such record.
        lsn: Lsn,
    },
    /// A record is not durable yet, so it cannot be discarded.
    #[error("record {lsn} is not durable yet (durable through {forced}): force it, then discard it")]
    NotForced {
        /// The record.
        lsn: Lsn,
        /// Durable through here.
        forced: Lsn,
    },
    /// The writer discarded records that this reader had not read.
    #[error("records {wanted} to {} were discarded before they were read: read on from {head}", Lsn(head.0 - 1))]
    Overtaken {
        /// The next record the reader wanted.
        wanted: Lsn,
        /// The oldest there is.
        head: Lsn,
    },

    /// Too few replicas of a replicated log could be reached, or read, to know what was acknowledged.
    #[error(
        "the log's replicas do not make a quorum: {why} ({found} reached{}{}); {}",
        missing_ids(missing),
        reasons(away),
        quorum_advice(away)
    )]
    QuorumUnavailable {
        /// What was missing.
        why: &'static str,
        /// Replicas that were reached.
        found: usize,
        /// The ids of replicas that would help.
        missing: Vec<u64>,
        /// Replicas that were named and took no part, and why.
        away: Vec<Away>,
    },
    /// A record is on no replica that was read, though it may have been acknowledged: replicas that were not read would tell.
    #[error(
        "record {lsn} was begun, is whole on no replica that was read, and may have been acknowledged{}; bring those up and try again, or accept that it may be lost",
        missing_ids(missing)
    )]
    InDoubt {
        /// The record.
        lsn: Lsn,
        /// The ids of replicas that were not read.
        missing: Vec<u64>,
    },
    /// Too few replicas are left: nothing more becomes durable through this handle. What was acknowledged is safe.
    #[error(
        "{live} replicas are left and {needed} must have each record: nothing more becomes durable here; bring replicas up, then open the log again"
    )]
    QuorumLost {
        /// Replicas left, the leader's own included.
        live: usize,
        /// Write quorum.
        needed: usize,
    },
    /// Another leader has taken the log over.
    #[error(
        "another leader ({owner:x}) has taken the log over (epoch {epoch}): this one is out; open it again if it is to be taken back"
    )]
    Fenced {
        /// What the replicas have promised.
        epoch: u32,
        /// To whom.
        owner: u64,
    },

    // ---- make space ------------------------------------------------------------------------------------------
    /// Records that are not discarded leave no room.
    #[error("the log is full: {live} bytes of {capacity} hold records from {head} on; discard some, or grow the log")]
    Full {
        /// The oldest record not discarded.
        head: Lsn,
        /// Bytes from it to the end.
        live: u64,
        /// Bytes for records.
        capacity: u64,
    },
    /// A record does not fit into a segment.
    #[error("a record of {len} bytes is longer than this log takes ({max}); make the log with larger segments")]
    TooLong {
        /// Bytes asked for.
        len: u64,
        /// Most a record may have.
        max: u64,
    },
    /// The log has been grown as often as its superline can tell.
    #[error("the log has been grown {max} times, as often as it can be; copy it into a larger one")]
    GrownTooOften {
        /// Most times.
        max: usize,
    },

    // ---- repair, or open with something else ------------------------------------------------------------------
    /// A record that was durable cannot be read back.
    #[error(
        "record {lsn} at byte {offset} was durable and cannot be read back (records through {through} were durable): \
         restore the log from a backup, or take what is left of it with `cairn log cat --salvage`"
    )]
    Lost {
        /// The first record that is lost.
        lsn: Lsn,
        /// Where it stands or stood, from the start of the pool.
        offset: u64,
        /// Everything through here had been durable, at least.
        through: Lsn,
    },
    /// A record that was durable is damaged on every replica.
    #[error(
        "record {lsn} was durable and is whole on none of the replicas (records through {through} were durable): restore one of them from a backup, or take \
         what is left of each with `cairn log cat --salvage`"
    )]
    Unrecoverable {
        /// The first record that is lost.
        lsn: Lsn,
        /// Everything through here had been durable, at least.
        through: Lsn,
    },
    /// The region is a replica of a log.
    #[error(
        "region {region:?} is a replica of a log: open the log with its replicas, or serve this replica with `cairn log-replica`"
    )]
    IsReplica {
        /// The region.
        region: String,
    },
    /// The region holds no log.
    #[error("region {region:?} at byte {offset} holds no log ({why}); check the name")]
    NotALog {
        /// The region.
        region: String,
        /// Its first byte, from the start of the pool.
        offset: u64,
        /// What was found instead.
        why: &'static str,
    },
    /// A newer version wrote it.
    #[error("the log has format version {found}, this program reads up to {supported}; use a newer one")]
    NewerVersion {
        /// Found in the superline.
        found: u32,
        /// Newest known.
        supported: u32,
    },
    /// The superline verifies and makes no sense.
    #[error("the superline at byte {offset} says {what} = {found}, which cannot be; restore the log from a backup")]
    BadSuperline {
        /// Its first byte, from the start of the pool.
        offset: u64,
        /// The field.
        what: &'static str,
        /// Its value.
        found: u64,
    },

    /// A replica says that it cannot do what it was asked.
    #[error("the replica at {replica} failed: {why}")]
    Replica {
        /// Which one.
        replica: String,
        /// What it says.
        why: String,
    },

    // ---- change the call -------------------------------------------------------------------------------------
    /// An option is out of range.
    #[error("{what} is {found}, and must be from {min} to {max}")]
    Limit {
        /// The option.
        what: &'static str,
        /// What was asked for.
        found: u64,
        /// Least.
        min: u64,
        /// Most.
        max: u64,
    },
    /// The same replica twice.
    #[error("replica {id:x} is named twice; name each replica of the log once")]
    ReplicaTwice {
        /// Its id.
        id: u64,
    },
    /// What a replicated log cannot do.
    #[error("a replicated log cannot {what}; {next}")]
    Replicated {
        /// What was asked for.
        what: &'static str,
        /// What to do instead.
        next: &'static str,
    },
    /// What only a replicated log can do.
    #[error("a log of its own cannot {what}; {next}")]
    NotReplicated {
        /// What was asked for.
        what: &'static str,
        /// What to do instead.
        next: &'static str,
    },
    /// The network.
    #[cfg(feature = "replication")]
    #[error(transparent)]
    Fabric(#[from] fabric::Error),
    /// The pool, or the medium below it.
    #[error(transparent)]
    Pool(#[from] pmem::Error),
}

impl Error {
    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Stalled { .. } | Self::Unfinished { .. } | Self::NotForced { .. } => ErrorKind::InUse,
            Self::QuorumUnavailable { .. } | Self::InDoubt { .. } => ErrorKind::Unavailable,
            Self::QuorumLost { .. } => ErrorKind::Reopen,
            Self::Fenced { .. } => ErrorKind::Fenced,
            Self::Full { .. } | Self::GrownTooOften { .. } => ErrorKind::Full,
            Self::Lost { .. } | Self::Unrecoverable { .. } | Self::BadSuperline { .. } => ErrorKind::Damaged,
            Self::IsReplica { .. } | Self::NotALog { .. } | Self::NewerVersion { .. } => ErrorKind::Other,
            Self::Replica { .. } => ErrorKind::System,
            Self::Overtaken { .. }
            | Self::TooLong { .. }
            | Self::Limit { .. }
            | Self::ReplicaTwice { .. }
            | Self::Replicated { .. }
            | Self::NotReplicated { .. } => ErrorKind::Misuse,
            #[cfg(feature = "replication")]
            Self::Fabric(error) => error.kind(),
            Self::Pool(error) => error.kind(),
        }
    }

    /// What to do next: [`ErrorKind::advice`] of its kind.
    pub fn advice(&self) -> &'static str {
        self.kind().advice()
    }
}

/// A replica that took no part when a replicated log was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Away {
    /// Where it is.
    pub replica: String,
    /// What happened, or what it said.
    pub why: String,
    /// It answered, and may be one of those that are missing: nothing else is to take its place.
    pub answered: bool,
}

fn reasons(away: &[Away]) -> String {
    away.iter().map(|away| format!("; {}: {}", away.replica, away.why)).collect()
}

fn quorum_advice(away: &[Away]) -> &'static str {
    if away.iter().any(|away| away.answered) {
        "do what those that answered ask for, and try again"
    } else {
        "bring more of them up and try again, or let new ones take the places of those that are lost for good"
    }
}

fn missing_ids(missing: &[u64]) -> String {
    if missing.is_empty() {
        return String::new();
    }
    let ids: Vec<String> = missing.iter().map(|id| format!("{id:x}")).collect();
    format!(", not read: {}", ids.join(", "))
}

/// What this crate returns.
pub type Result<T> = std::result::Result<T, Error>;
