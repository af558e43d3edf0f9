//! What can go wrong, grouped by what the caller can do about it.

use std::path::PathBuf;
use std::time::Duration;

use pmem::ErrorKind;

/// Every error of this crate. The message says what happened, where, and what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // ---- try again later -------------------------------------------------------------------------------------
    /// As many transactions are open as the array has TIDs.
    #[error("{max} transactions are open, as many as this array takes at once: commit or abort one, then begin again")]
    TooManyTransactions {
        /// As many as there can be.
        max: u32,
    },
    /// The log has no room for this transaction.
    #[error(
        "the log of a member ({bytes} bytes, at most {max}) has no room for this transaction: commit or abort others, write less at once, or open the array with a larger `log_max`"
    )]
    LogFull {
        /// Bytes of that log.
        bytes: u64,
        /// As many as it may have.
        max: u64,
    },

    /// Transactions wait for each other's records in a circle, and this one closed it.
    #[error("a record is locked by a transaction that waits for this one: abort it, and run it again")]
    Deadlock,
    /// A record stayed locked.
    #[error(
        "a record was locked by another transaction for {waited:?}: abort this one, and run it again; keep transactions short"
    )]
    LockWait {
        /// How long this one waited.
        waited: Duration,
    },

    // ---- repair, or open with something else ------------------------------------------------------------------
    /// A member is not there.
    #[error("member {member} of {members} is not among the pools that were named: name all of them")]
    MissingMember {
        /// The first one that is missing, from 0.
        member: u32,
        /// Members of the array.
        members: u32,
    },
    /// A pool is no member of this array, or is named twice.
    #[error("{path}: {why}: name each member of one array, once", path = path.display())]
    NotAMember {
        /// The pool.
        path: PathBuf,
        /// What it is instead.
        why: &'static str,
    },
    /// The array was written by a newer version.
    #[error("{path}: the array has format {found}, this build knows {known}: use a newer one", path = path.display())]
    NewerVersion {
        /// The pool.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest one known here.
        known: u32,
    },
    /// Bytes on media contradict each other.
    #[error("{path}: damaged {what}: restore the array from a copy", path = path.display())]
    Damaged {
        /// The pool.
        path: PathBuf,
        /// What is damaged.
        what: &'static str,
    },
    /// A record is not what was stored.
    #[error("record {id} of table {table:?} is damaged: delete it, write it anew, or restore the store from a copy")]
    RecordDamaged {
        /// Its table.
        table: String,
        /// Its number.
        id: u64,
    },
    /// Two records have one number.
    #[error(
        "two records have the number {id} of table {table:?}: bytes of the store went back to an earlier state: restore it from a copy"
    )]
    RecordTwice {
        /// Their table.
        table: String,
        /// Their number.
        id: u64,
    },
    /// An earlier commit could not be made durable: whether it happened shows when the array is opened again.
    #[error(
        "a barrier failed, and what was committed with it is in doubt: check the device, then open the array again"
    )]
    Stopped,

    // ---- change the call --------------------------------------------------------------------------------------
    /// There is no such file.
    #[error("the array has no file {name:?}: create it, or see `cairn array status` for those it has")]
    NoFile {
        /// Its name.
        name: String,
    },
    /// There is one.
    #[error("the array already has a file {name:?}: open it, or choose another name")]
    FileExists {
        /// Its name.
        name: String,
    },
    /// A file cannot be called that.
    #[error("a file cannot be called {name:?}: use 1 to {max} bytes, none of them `/` or `:`")]
    BadName {
        /// What was asked for.
        name: String,
        /// Bytes of a name at most.
        max: usize,
    },
    /// A range is not in the file.
    #[error("bytes {offset} to {end} are not in file {name:?} of {len} bytes: stay below its end")]
    OutOfFile {
        /// The file.
        name: String,
        /// First byte asked for.
        offset: u64,
        /// End of what was asked for.
        end: u64,
        /// Bytes of the file.
        len: u64,
    },
    /// The array holds no store of records.
    #[error("the array holds no store of records: create one in it")]
    NoStore,
    /// It holds one.
    #[error("the array holds a store of records already: open that")]
    StoreExists,
    /// There is no such table.
    #[error("the store has no table {name:?}: create it first")]
    NoTable {
        /// Its name, or its number.
        name: String,
    },
    /// There is one.
    #[error("the store already has a table {name:?}: use that, or choose another name")]
    TableExists {
        /// Its name.
        name: String,
    },
    /// A table cannot be called that.
    #[error("a table cannot be called {name:?}: use 1 to {max} bytes without a zero byte")]
    BadTableName {
        /// What was asked for.
        name: String,
        /// Bytes of a name at most.
        max: usize,
    },
    /// There is no such record.
    #[error("table {table:?} has no record {id}{}: it was deleted, or never there", if *.damaged > 0 { format!(" ({damaged} records of the store are damaged)") } else { String::new() })]
    NoRecord {
        /// The table.
        table: String,
        /// Its number.
        id: u64,
        /// Records of the store that are damaged, and may be this one.
        damaged: usize,
    },
    /// A record does not fit.
    #[error(
        "a record of {len} bytes is too long for this store, which takes {max}: split it, or make a store with larger blocks"
    )]
    RecordTooLong {
        /// Its bytes.
        len: usize,
        /// As many as there can be.
        max: usize,
    },
    /// A nested top action panicked, or the transaction was exchanged in it.
    #[error("a nested top action of this transaction did not come to its end: the transaction can only be aborted")]
    Unwound,
    /// A nested top action writes a record that the outer transaction has written.
    #[error(
        "a nested top action cannot write record {id} of table {table:?}, which the outer transaction has written: commit that first, or write another one"
    )]
    OuterRecord {
        /// The table.
        table: String,
        /// Its number.
        id: u64,
    },
    /// A range is not in the entry.
    #[error("bytes {at} to {end} are not in an entry of {len} bytes: stay below its end, or make another entry")]
    OutOfEntry {
        /// First byte asked for.
        at: u64,
        /// End of what was asked for.
        end: u64,
        /// Bytes of the entry.
        len: u64,
    },
    /// An entry or a savepoint is of another transaction, was rolled back, or was committed by a nested top action; or a file is of another array.
    #[error("this {what} is another one's, or is gone by now: use one of this transaction, and files of this array")]
    Foreign {
        /// What it is.
        what: &'static str,
    },
    /// A nested top action writes what the outer transaction has written.
    #[error(
        "a nested top action cannot write bytes {offset} to {end} of {name:?}: what was logged before its savepoint writes there; commit that first, or write elsewhere"
    )]
    OuterWrite {
        /// The file.
        name: String,
        /// First byte that both write.
        offset: u64,
        /// The end of what both write.
        end: u64,
    },
    /// A number is out of bounds.
    #[error("{what}: {found} is not within {min} to {max}")]
    Limit {
        /// Of what.
        what: &'static str,
        /// Asked for.
        found: u64,
        /// Least.
        min: u64,
        /// Most.
        max: u64,
    },
    /// From the log below.
    #[cfg(feature = "aries")]
    #[error(transparent)]
    Log(#[from] log::Error),
    /// From the pool below.
    #[error(transparent)]
    Pool(#[from] pmem::Error),
}

/// What functions of this crate return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::TooManyTransactions { .. } => ErrorKind::InUse,
            Self::LogFull { .. } => ErrorKind::Full,
            Self::Deadlock | Self::LockWait { .. } => ErrorKind::Retry,
            Self::Stopped => ErrorKind::Reopen,
            Self::Damaged { .. } | Self::RecordDamaged { .. } | Self::RecordTwice { .. } => ErrorKind::Damaged,
            Self::MissingMember { .. } | Self::NotAMember { .. } | Self::NewerVersion { .. } => ErrorKind::Other,
            Self::NoFile { .. }
            | Self::FileExists { .. }
            | Self::BadName { .. }
            | Self::OutOfFile { .. }
            | Self::OutOfEntry { .. }
            | Self::Foreign { .. }
            | Self::NoStore
            | Self::StoreExists
            | Self::NoTable { .. }
            | Self::TableExists { .. }
            | Self::BadTableName { .. }
            | Self::NoRecord { .. }
            | Self::RecordTooLong { .. }
            | Self::OuterRecord { .. }
            | Self::Unwound
            | Self::OuterWrite { .. }
            | Self::Limit { .. } => ErrorKind::Misuse,
            #[cfg(feature = "aries")]
            Self::Log(error) => error.kind(),
            Self::Pool(error) => error.kind(),
        }
    }
}
