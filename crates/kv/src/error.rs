//! What can go wrong, grouped by what the caller can do about it.

use std::borrow::Cow;
use std::path::PathBuf;

use pmem::ErrorKind;

use crate::Timestamp;

/// Every error of a store. The message says what happened, where, and what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // ---- run the transaction again ------------------------------------------------------------------------------
    /// Another transaction writes the key, or has written it since this one began.
    #[error("conflict about key {key} with {with}; run the transaction again, or use `transact`, which does")]
    Conflict {
        /// The key.
        key: Key,
        /// Whom with.
        with: ConflictWith,
    },
    /// All transaction slots are in use.
    #[error("all {max} transactions are in use; finish some, or open with more (`Options::transactions`)")]
    TooMany {
        /// Slots there are.
        max: usize,
    },

    // ---- give up ------------------------------------------------------------------------------------------------
    /// Conflicts went on until the caller's timeout.
    #[error(
        "gave up after {attempts} attempts that met conflicts, the last about key {key}; does this thread hold it in another transaction?"
    )]
    GaveUp {
        /// How often it was tried.
        attempts: u32,
        /// Key of the last conflict.
        key: Key,
    },
    /// The snapshot was held for longer than [`Options::max_snapshot_age`](crate::Options::max_snapshot_age), or
    /// [`Store::expire_before`](crate::Store::expire_before) was told so. What it has shown stays until it is dropped.
    #[error("the transaction began at {snapshot} and has expired; begin a new one, and finish it sooner")]
    Expired {
        /// What it saw.
        snapshot: Timestamp,
    },
    /// An earlier error of this transaction was ignored.
    #[error("the transaction can only be aborted: an earlier error was ignored ({first})")]
    Doomed {
        /// That error's message.
        first: String,
    },
    /// A limit of the store.
    #[error("{what}: {found} is more than {max}")]
    Limit {
        /// Of what.
        what: &'static str,
        /// What was asked for.
        found: u64,
        /// The most there can be.
        max: u64,
    },
    /// A transaction of a replicated store is one record of its log, and a segment of the log holds a record.
    #[error(
        "a transaction of {found} bytes is more than the {max} that a record of the store's log may have, a segment of it; write less in one transaction, or make the log anew, larger (`cairn serve --log-size`, `log::Options::segment_bytes`)"
    )]
    TransactionTooLong {
        /// Its bytes in the log.
        found: u64,
        /// The most there can be.
        max: u64,
    },
    /// What an option must be.
    #[error("{what} is {found}; it must be {wanted}")]
    Option {
        /// Which.
        what: &'static str,
        /// What was asked for.
        found: u64,
        /// What it must be.
        wanted: &'static str,
    },
    /// What is stored in a table is not of its types.
    #[error("table {table:?}, key {key}: {why}; use the types that the table was written with")]
    Type {
        /// The table.
        table: String,
        /// The key's bytes in it.
        key: Key,
        /// What is wrong.
        why: DecodeError,
    },
    /// A table has other types than it was made with.
    #[error(
        "table {table:?} holds {stored}, not {wanted}; use the types that it was made with, or a table of another name"
    )]
    TypeMismatch {
        /// The table.
        table: String,
        /// Its types, of keys and of values.
        stored: String,
        /// Those that it was opened with.
        wanted: String,
    },
    /// What a table cannot be called.
    #[error("the name {name:?} of a table {why}; choose another one")]
    TableName {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The commit's barrier failed: whether it is durable shows when the store is opened again.
    #[error("in doubt: the transaction may be durable or not, because {source}; open the store again to see")]
    InDoubt {
        /// The barrier's error.
        source: pmem::Error,
    },

    /// The commit's record in the log failed: whether it is durable shows when the store is opened again, or on the machine that leads it now.
    #[cfg(feature = "replication")]
    #[error(
        "in doubt: the transaction may be durable or not, because {source}; open the store again to see, or ask the machine that leads it now"
    )]
    LogInDoubt {
        /// The log's error.
        source: Box<log::Error>,
    },

    // ---- replicated stores --------------------------------------------------------------------------------------
    /// It is replicated, and another one leads.
    #[error("this store follows another one, and is only read; write there, or promote this one")]
    Follows,
    /// The store is made of a log, which has commits that the store may not have.
    #[error(
        "the store is made of the log {log:x}, which may have commits that are not here; open it with the log's copies (`Options::replicated`), or follow it; with `Options::salvage` it opens as it is"
    )]
    IsReplicated {
        /// Its id; 0 if it was not known yet.
        log: u64,
    },
    /// The store has keys that are in no log.
    #[error("the store was not made of a log; make a new one with copies, and load its keys there")]
    NotReplicated,
    /// The store is made of another log.
    #[error("the store is made of the log {store:x}, and this is the log {log:x}; give the copies of the right one")]
    OtherLog {
        /// The store's.
        store: u64,
        /// The one at hand.
        log: u64,
    },
    /// The log does not go back to where the store ends.
    #[error(
        "the store ends with commit {has}, and the log begins with commit {first}; make the store anew of a copy (`Store::seed`) of one that has more"
    )]
    Behind {
        /// Its last commit.
        has: u64,
        /// The first in the log that it has not.
        first: u64,
    },
    /// A record of the log is no commit of a store.
    #[cfg(feature = "replication")]
    #[error("record {at} of the log is no commit of a store; give the copies of a store's log")]
    NotACommit {
        /// Its number.
        at: log::Lsn,
    },
    /// The log has no room until the store is durable further.
    #[error(
        "the log is full ({live} of {capacity} bytes): a replica or a follower does not keep up; next: look at `Store::copies`, or make a larger log"
    )]
    LogFull {
        /// Bytes that are needed.
        live: u64,
        /// Bytes it has.
        capacity: u64,
    },
    /// The log has no copy with this id.
    #[cfg(feature = "replication")]
    #[error("{id:x} is none of the log's copies; they are {}", hex(copies))]
    NoSuchCopy {
        /// The id.
        id: u64,
        /// Those that it has.
        copies: Vec<u64>,
    },
    /// The log's own error: nothing was committed.
    #[cfg(feature = "replication")]
    #[error(transparent)]
    Log(Box<log::Error>),

    // ---- make room ----------------------------------------------------------------------------------------------
    /// The index would need more memory than it was given.
    #[error(
        "the index of {keys} keys takes {bytes} bytes of memory, the limit is {max}; delete keys, or raise `Options::index_memory`"
    )]
    IndexMemory {
        /// Keys in it.
        keys: u64,
        /// Bytes it takes.
        bytes: u64,
        /// Bytes it may take.
        max: u64,
    },
    /// There is no room for the records of the transaction.
    #[error(
        "the store is full: {path} has no {wanted} bytes for another segment, {free} of {size} are free, and {}{}, free disk space, or raise `max_size` of the pool's options",
        if *.deletes { "kept for checkpoints; take out less at once, end old snapshots and transactions" } else { "kept for deletions and checkpoints; delete something" },
        .snapshot.map_or(String::new(), |at| format!(", end the snapshot or transaction of timestamp {at}, which keeps what was superseded since"))
    )]
    Full {
        /// The store.
        path: PathBuf,
        /// Bytes asked for.
        wanted: u64,
        /// Bytes free in it, in pieces that may be too small.
        free: u64,
        /// Its size.
        size: u64,
        /// The transaction takes out more than it puts in, and yet there was no room for its records.
        deletes: bool,
        /// The same of one that puts in no more than it takes out: what it overwrites is not free at once.
        overwrites: bool,
        /// The oldest snapshot, if what was superseded since would make room.
        snapshot: Option<crate::Timestamp>,
    },

    // ---- repair -------------------------------------------------------------------------------------------------
    /// The pool holds no store.
    #[error("region {region:?} is no key-value store ({why}); open it with what made it, see `cairn info`")]
    NotAStore {
        /// Its name.
        region: String,
        /// What is not as it should be.
        why: &'static str,
    },
    /// The store was made by a newer build.
    #[error("the store has format {found}, this build reads {max}; use a newer build")]
    NewerFormat {
        /// Its format.
        found: u32,
        /// The newest this build knows.
        max: u32,
    },
    /// A part of the store is damaged.
    #[error(
        "damaged {what} at byte {offset}: {why}; `cairn kv check --dry-run` says what a repair would leave, `--repair` does it; or make the store anew of a backup, `cairn kv restore`"
    )]
    Damaged {
        /// Which part.
        what: &'static str,
        /// Where in the pool.
        offset: u64,
        /// What is wrong.
        why: String,
    },
    /// Transactions that were durable cannot be read back.
    #[error(
        "committed transactions are lost: the record at byte {offset} of writer {writer} is damaged or missing, and what stands at byte {proof} was written behind it; restore from a backup, or `cairn kv check --repair` to go on without what follows {offset}"
    )]
    Lost {
        /// The writer's number.
        writer: usize,
        /// Where the damaged record is, or would be.
        offset: u64,
        /// Where the proof is: a later record, or the log's watermark.
        proof: u64,
    },

    /// Commits that were durable, by what later ones say, cannot be read back.
    #[error(
        "committed transactions are lost: commit {missing} is missing, and all through {durable} were durable; restore from a backup, or `cairn kv check --repair` to go on without them"
    )]
    LostCommits {
        /// The first that is missing.
        missing: u64,
        /// The last that was durable.
        durable: u64,
    },

    // ---- see there ----------------------------------------------------------------------------------------------
    /// The pool's own error.
    #[error(transparent)]
    Pool(#[from] pmem::Error),
}

#[cfg(feature = "replication")]
fn hex(ids: &[u64]) -> String {
    ids.iter().map(|id| format!("{id:x}")).collect::<Vec<_>>().join(", ")
}

#[cfg(feature = "replication")]
impl From<log::Error> for Error {
    fn from(error: log::Error) -> Self {
        Self::Log(Box::new(error))
    }
}

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A key, as error messages show it: text if it is some, cut if it is long.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(pub Vec<u8>);

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN: usize = 64;
        let shown = &self.0[..self.0.len().min(SHOWN)];
        write!(f, "\"{}\"", shown.escape_ascii())?;
        if self.0.len() > SHOWN { write!(f, "... ({} bytes)", self.0.len()) } else { Ok(()) }
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// Whom a transaction is in conflict with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConflictWith {
    /// A transaction that is still running and has written the key.
    Running,
    /// One that has committed since.
    Committed(Timestamp),
    /// One that has waited for longer, and was given the key.
    Older,
    /// One that has held the key for more than ten seconds; perhaps of the same thread.
    Holder,
}

impl std::fmt::Display for ConflictWith {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Running => f.write_str("a transaction that is still running"),
            Self::Committed(at) => write!(f, "one committed at {at}"),
            Self::Older => f.write_str("one that has waited for longer"),
            Self::Holder => f.write_str("one that has held it for more than ten seconds"),
        }
    }
}

impl Error {
    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Conflict { .. } | Self::TooMany { .. } => ErrorKind::Retry,
            Self::GaveUp { .. } | Self::Expired { .. } | Self::Doomed { .. } => ErrorKind::Aborted,
            Self::Limit { .. }
            | Self::TransactionTooLong { .. }
            | Self::Option { .. }
            | Self::TableName { .. }
            | Self::Type { .. }
            | Self::TypeMismatch { .. } => ErrorKind::Misuse,
            Self::InDoubt { .. } => ErrorKind::Reopen,
            Self::Follows => ErrorKind::Fenced,
            Self::IsReplicated { .. }
            | Self::NotReplicated
            | Self::OtherLog { .. }
            | Self::Behind { .. }
            | Self::NotAStore { .. }
            | Self::NewerFormat { .. } => ErrorKind::Other,
            Self::LogFull { .. } | Self::IndexMemory { .. } | Self::Full { .. } => ErrorKind::Full,
            Self::Damaged { .. } | Self::Lost { .. } | Self::LostCommits { .. } => ErrorKind::Damaged,
            #[cfg(feature = "replication")]
            Self::LogInDoubt { .. } => ErrorKind::Reopen,
            #[cfg(feature = "replication")]
            Self::NotACommit { .. } => ErrorKind::Other,
            #[cfg(feature = "replication")]
            Self::NoSuchCopy { .. } => ErrorKind::Misuse,
            #[cfg(feature = "replication")]
            Self::Log(error) => error.kind(),
            Self::Pool(error) => error.kind(),
        }
    }

    /// What to do next: [`ErrorKind::advice`] of its kind.
    pub fn advice(&self) -> &'static str {
        self.kind().advice()
    }

    /// Whether running the transaction again may succeed.
    pub fn is_conflict(&self) -> bool {
        self.kind() == ErrorKind::Retry
    }
}

/// Why bytes are not what was expected, or a value has no bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError(Cow<'static, str>);

impl From<&'static str> for DecodeError {
    fn from(why: &'static str) -> Self {
        Self(why.into())
    }
}

impl From<String> for DecodeError {
    fn from(why: String) -> Self {
        Self(why.into())
    }
}

impl std::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Error> for tx::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Conflict { .. } => Self::Conflict { offset: 0 },
            Error::TooMany { max } => Self::NoSlot { slots: max },
            Error::GaveUp { attempts, .. } => Self::GaveUp { attempts, offset: 0 },
            Error::Doomed { first } => Self::Doomed { first },
            Error::Limit { what, found, max } => Self::Limit { what, found, max },
            Error::TransactionTooLong { found, max } => Self::Limit { what: "bytes of a transaction", found, max },
            Error::Damaged { what, offset, why } => Self::Damaged { what, offset, why },
            Error::Full { path, wanted, .. } => {
                Self::Pool(pmem::Error::NoSpace { path, wanted, what: pmem::SpaceFor::Growth })
            }
            Error::Pool(error) | Error::InDoubt { source: error } => Self::Pool(error),
            other => Self::Engine { kind: other.kind(), source: Box::new(other) },
        }
    }
}
