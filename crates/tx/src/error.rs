//! What can go wrong in a transaction, grouped by what the caller can do about it.

use pmem::ErrorKind;

use crate::Isolation;

/// Every error of a transaction. The message says what happened, where, and what to do next.
///
/// ```
/// use pmem::ErrorKind;
/// use tx::Error;
/// assert_eq!(Error::Conflict { offset: 4096 }.kind(), ErrorKind::Retry);
/// assert_eq!(Error::OwnConflict { offset: 4096 }.kind(), ErrorKind::Misuse);
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // ---- run the transaction again ------------------------------------------------------------------------------
    /// Another transaction uses the object, or has changed it.
    #[error("conflict with another transaction about the object at byte {offset}; run the transaction again")]
    Conflict {
        /// The object's offset in the pool, 0 if the conflict is about no single one.
        offset: u64,
    },
    /// All slots are taken by other transactions.
    #[error("all {slots} transaction slots are in use; finish some transactions, or open with more slots")]
    NoSlot {
        /// Slots there are.
        slots: usize,
    },

    // ---- give up -------------------------------------------------------------------------------------------------
    /// Conflicts went on until the caller's timeout.
    #[error(
        "gave up after {attempts} attempts that met conflicts (last at byte {offset}); use shorter transactions or a longer timeout"
    )]
    GaveUp {
        /// How often it was tried.
        attempts: u32,
        /// Offset of the last conflict.
        offset: u64,
    },
    /// The other transaction is one of the same thread: waiting for it would be for ever.
    #[error(
        "the object at byte {offset} is in use by another transaction of this thread; finish that one first, or use `nested`"
    )]
    OwnConflict {
        /// The object's offset in the pool.
        offset: u64,
    },
    /// An earlier error of this transaction was ignored.
    #[error("the transaction can only be aborted: an earlier error was ignored ({first})")]
    Doomed {
        /// That error's message.
        first: String,
    },
    /// The caller wanted it so.
    #[error("aborted: {reason}")]
    Aborted {
        /// The caller's reason.
        reason: String,
    },
    /// The engine cannot give that level.
    #[error("this engine gives no {wanted} transactions; the strongest is {offered}")]
    Isolation {
        /// Asked for.
        wanted: Isolation,
        /// Strongest there is.
        offered: Isolation,
    },
    /// The engine cannot roll back.
    #[error(
        "engine `none` has no atomicity: changes that were begun cannot be undone; the pool may hold half of this transaction"
    )]
    NoRollback,
    /// Ranges that are to be changed together lie in one object.
    #[error("two of the ranges lie in the object at byte {offset}; take one range over both")]
    Overlap {
        /// The object's offset in the pool.
        offset: u64,
    },
    /// The object was freed earlier in this transaction.
    #[error("the object at byte {offset} was freed by this transaction; free it after its last use")]
    Freed {
        /// The object's offset in the pool.
        offset: u64,
    },
    /// A savepoint was set by another transaction, or behind one that was gone back to.
    #[error(
        "the savepoint is gone, or another transaction's; set one in this transaction, and go back to it alone or to earlier ones"
    )]
    NoSavepoint,
    /// A nested top action wants an object that the outer transaction has written.
    #[error(
        "the outer transaction has written the object at byte {offset}, and may still roll back; change it there, not in the nested top action"
    )]
    OuterWrites {
        /// The object's offset in the pool.
        offset: u64,
    },
    /// The engine cannot do it.
    #[error("engine `{engine}` has no {what}; open the heap with policy `eaw`")]
    Unsupported {
        /// Its name.
        engine: &'static str,
        /// What was asked for.
        what: &'static str,
    },
    /// A scan of a store that keeps its keys in no order.
    #[error("this store keeps keys in no order and cannot scan; use a B+tree")]
    Unordered,
    /// A limit of the engine.
    #[error("{what}: {found} is not possible, {max} is the most")]
    Limit {
        /// Of what.
        what: &'static str,
        /// What was asked for.
        found: u64,
        /// The most there can be.
        max: u64,
    },
    /// A structure's own bytes contradict each other.
    #[error("damaged {what} at byte {offset}: {why}; run `cairn check`, then restore from a copy")]
    Damaged {
        /// Which part.
        what: &'static str,
        /// Its offset in the pool.
        offset: u64,
        /// What is wrong.
        why: String,
    },

    /// A call that is logged cannot be run again.
    #[error(
        "the logged call of procedure `{name}`, version {version}, cannot be run again: {why}; open the pool with the program that made the call, or register that procedure"
    )]
    Replay {
        /// The procedure's name.
        name: String,
        /// ... and version.
        version: u32,
        /// What is wrong.
        why: String,
    },

    /// A transaction changes more objects than a partial backup has room for.
    #[error(
        "{bytes} bytes of copies do not fit into the heap's partial backup of {room} bytes; use smaller transactions, or open it with a larger alpha"
    )]
    BackupFull {
        /// Bytes that are needed for copies at once.
        bytes: u64,
        /// Bytes there are.
        room: u64,
    },

    /// What is committed cannot be written back while a transaction of this thread runs that began before it.
    #[error(
        "the log is full, and a transaction of this thread keeps it so; end that one first, use a snapshot for what takes long, or make logs larger"
    )]
    LogFull,

    // ---- see there -------------------------------------------------------------------------------------------------
    /// An error of the store's own.
    #[error("{source}")]
    Engine {
        /// What the caller can do about it.
        kind: ErrorKind,
        /// The store's error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The pool's own error.
    #[error(transparent)]
    Pool(#[from] pmem::Error),
}

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Conflict { .. } | Self::NoSlot { .. } => ErrorKind::Retry,
            Self::BackupFull { .. } | Self::LogFull => ErrorKind::Full,
            Self::Damaged { .. } => ErrorKind::Damaged,
            Self::GaveUp { .. } | Self::Doomed { .. } | Self::Aborted { .. } => ErrorKind::Aborted,
            Self::OwnConflict { .. }
            | Self::Isolation { .. }
            | Self::NoRollback
            | Self::Overlap { .. }
            | Self::Freed { .. }
            | Self::NoSavepoint
            | Self::OuterWrites { .. }
            | Self::Unsupported { .. }
            | Self::Replay { .. }
            | Self::Unordered
            | Self::Limit { .. } => ErrorKind::Misuse,
            Self::Engine { kind, .. } => *kind,
            Self::Pool(error) => error.kind(),
        }
    }

    /// What to do next: [`ErrorKind::advice`] of its kind.
    pub fn advice(&self) -> &'static str {
        self.kind().advice()
    }
}
