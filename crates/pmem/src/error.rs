//! What can go wrong, grouped by what the caller can do about it.

use std::io;
use std::path::PathBuf;

/// What a pool asks its file system for space for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpaceFor {
    /// A pool that is made.
    NewPool,
    /// A file that is opened for writing, some of whose bytes have no blocks: a sparse copy.
    SparseFile,
    /// More of a pool that is open.
    Growth,
    /// A copy of a pool.
    CopyOfPool,
}

impl SpaceFor {
    fn no_space(self, wanted: u64) -> String {
        match self {
            Self::NewPool => format!(
                "no space for a new pool of {wanted} bytes: the file system is full, or a quota or `ulimit -f` does not allow it; free space there, or make a \
                 smaller pool"
            ),
            Self::SparseFile => format!(
                "no space for {wanted} bytes of the file that have no blocks yet: it is sparse, as some copies are, and the file system is full; free space \
                 there, or copy it to where there is enough, and open it again"
            ),
            Self::Growth => {
                format!("no space for {wanted} more bytes; free space on the file system, or free objects in the pool")
            }
            Self::CopyOfPool => {
                format!(
                    "no space for {wanted} more bytes of the copy; free space on the file system, or choose another place"
                )
            }
        }
    }
}

/// Every error of this crate. The message says what happened, where, and what to do next.
///
/// ```
/// use pmem::{Error, Options};
/// match Options::new().open("/nonexistent/pool") {
///     Err(Error::Busy { pid, .. }) => println!("wait for process {pid}"),
///     Err(e) => println!("{e}"), // what, where, what next
///     Ok(_) => unreachable!(),
/// }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // ---- try again later -------------------------------------------------------------------------------------
    /// Another process has the pool open.
    #[error("{path}: the pool is open in process {pid}; close it there, or wait", path = path.display())]
    Busy {
        /// The pool file.
        path: PathBuf,
        /// The holder, 0 if the kernel does not tell.
        pid: u32,
    },
    /// This process has the pool open already.
    #[error("{path}: the pool is already open in this process; share that `Pool` (it is `Clone`)", path = path.display())]
    AlreadyOpen {
        /// The pool file.
        path: PathBuf,
    },
    /// Another backup of the pool is being made; one at a time can be.
    #[error("{path}: another backup of it is being made; wait until that one is done, then make this one", path = path.display())]
    BackupRunning {
        /// The pool file.
        path: PathBuf,
    },
    /// Something of the pool is still in use, so it cannot be closed cleanly, or opened a second time.
    #[error("{what} is still in use; drop or finish it, then try again")]
    InUse {
        /// What is in use.
        what: String,
    },

    // ---- make space ------------------------------------------------------------------------------------------
    /// The file system is full, or a quota or the largest file that this process may write (`ulimit -f`) is reached. A pool that is open stays usable for reading and
    /// freeing. At that limit the kernel also sends SIGXFSZ, which ends the process unless it is ignored: see [`Options`](crate::Options).
    #[error("{path}: {}", what.no_space(*wanted), path = path.display())]
    NoSpace {
        /// The pool file.
        path: PathBuf,
        /// Bytes asked for.
        wanted: u64,
        /// What they are for.
        what: SpaceFor,
    },
    /// The pool would outgrow the address range reserved at open.
    #[error(
        "the pool cannot grow to {wanted} bytes: {reserved} are reserved; open it with a larger `Options::max_size`"
    )]
    Reserve {
        /// Size asked for.
        wanted: u64,
        /// Size the mapping can grow to.
        reserved: u64,
    },
    /// No free block of this size; the pool may be grown.
    #[error("no free block of {bytes} bytes; free objects or grow the pool")]
    HeapFull {
        /// Bytes asked for.
        bytes: u64,
    },
    /// The ring has no room before its oldest unretired record.
    #[error("the ring holds {unretired} unretired bytes of {capacity}, {wanted} more do not fit; retire records first")]
    RingFull {
        /// Bytes in unretired records.
        unretired: u64,
        /// Bytes in the ring.
        capacity: u64,
        /// Bytes asked for, header included.
        wanted: u64,
    },
    /// The region directory is full.
    #[error(
        "the pool already has {max} regions and extents, the most a header can name; use fewer, larger regions, and grow them in larger steps"
    )]
    DirectoryFull {
        /// Entries in the directory.
        max: usize,
    },

    // ---- repair, or open with something else ------------------------------------------------------------------
    /// The file is not a pool.
    #[error("{path}: not a pool (at byte 0: found {found:02x?}, expected {expected:02x?}); check the path", path = path.display())]
    NotAPool {
        /// The file.
        path: PathBuf,
        /// First bytes found.
        found: [u8; 8],
        /// First bytes of every pool.
        expected: [u8; 8],
    },
    /// Bytes on media contradict their checksum or each other.
    #[error(
        "damaged {what} at byte {offset}: found {found:#x}, expected {expected:#x}; run `cairn check` and restore from a copy"
    )]
    Damaged {
        /// What is damaged.
        what: &'static str,
        /// Where, from the start of the pool.
        offset: u64,
        /// What stands there.
        found: u64,
        /// What should.
        expected: u64,
    },
    /// The medium does not return these bytes.
    #[error("unreadable {what} at byte {offset} ({len} bytes): {source}; restore from a copy")]
    Unreadable {
        /// What could not be read.
        what: &'static str,
        /// Where, from the start of the pool.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// The system's reason.
        source: io::Error,
    },
    /// The file is shorter than its header says.
    #[error("{path}: truncated: {found} bytes of {expected}; restore the rest from a copy", path = path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Bytes there are.
        found: u64,
        /// Bytes there should be.
        expected: u64,
    },
    /// A newer version of the format.
    #[error("{path}: format version {found}, this build reads up to {supported}; upgrade cairn", path = path.display())]
    NewerVersion {
        /// The file.
        path: PathBuf,
        /// Version found.
        found: u32,
        /// Newest version understood.
        supported: u32,
    },
    /// The pool holds something else than the caller expects.
    #[error("the pool's {what} is {found:?}, asked for was {expected:?}; open it with the program that made it")]
    WrongLayout {
        /// Which name differs: layout, engine, root type.
        what: &'static str,
        /// What the pool says.
        found: String,
        /// What the caller asked for.
        expected: String,
    },
    /// A read-only open needs a pool that was closed cleanly.
    #[error("{path}: not closed cleanly; open it for writing once, which recovers it", path = path.display())]
    NeedsRecovery {
        /// The file.
        path: PathBuf,
    },
    /// The persistence domain asked for is not there.
    #[error("{path}: no {wanted} here: {why}; choose another domain or path", path = path.display())]
    Domain {
        /// The file.
        path: PathBuf,
        /// Domain asked for.
        wanted: &'static str,
        /// The reason.
        why: String,
    },

    // ---- give up on this handle -------------------------------------------------------------------------------
    /// A sync failed earlier: what was stored since the last good one may be lost, and no later success may hide it.
    #[error(
        "an earlier sync of the pool failed, so later ones prove nothing; close the pool and open it again to see what is there"
    )]
    Poisoned,
    /// A sync failed now.
    #[error(
        "sync failed: {source}; what was not yet acknowledged may be lost: close the pool, check the device, open again"
    )]
    Sync {
        /// The system's reason.
        source: io::Error,
    },
    /// The pool was opened before a fork and is used in the child.
    #[error("the pool was opened before fork() and cannot be used in the child; open it in one process only")]
    Forked,
    /// The pool is open read-only.
    #[error("the pool is open read-only; open it with `Options::open` to change it")]
    ReadOnly,
    /// A system call failed.
    #[error("{path}: {op} failed: {source}", path = path.display())]
    Io {
        /// The call.
        op: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },

    // ---- the caller's mistake ---------------------------------------------------------------------------------
    /// A pointer that is not one live block of this pool.
    #[error("{ptr:#x} is not a live object of this pool: {why}")]
    BadPointer {
        /// The pointer as stored.
        ptr: u64,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The object is free already, or another thread is freeing it.
    #[error("{ptr:#x} is freed twice; free it once")]
    DoubleFree {
        /// The pointer as stored.
        ptr: u64,
    },
    /// A range outside of what the handle covers.
    #[error("bytes {at}..{end} of a range of {len}: out of bounds")]
    OutOfBounds {
        /// First byte.
        at: u64,
        /// One past the last byte.
        end: u64,
        /// Bytes there are.
        len: u64,
    },
    /// An offset that does not fit the alignment of what is to be read there.
    #[error("byte {offset} is not aligned to {align}; read there only what is")]
    Unaligned {
        /// From the start of the pool.
        offset: u64,
        /// Needed alignment.
        align: u64,
    },
    /// An argument outside its limits.
    #[error("{what}: {found} is outside {min}..={max}")]
    Limit {
        /// Which argument.
        what: &'static str,
        /// What was given.
        found: u64,
        /// Smallest allowed.
        min: u64,
        /// Largest allowed.
        max: u64,
    },
    /// A region of that name exists.
    #[error("the pool already has a region {name:?}; choose another name")]
    RegionExists {
        /// Its name.
        name: String,
    },
    /// No region of that name.
    #[error("the pool has no region {name:?}; `cairn info` lists them")]
    NoRegion {
        /// Its name.
        name: String,
    },
    /// A name that is empty, too long or contains a zero byte.
    #[error("{name:?} is no name: 1 to {max} bytes without NUL")]
    BadName {
        /// The name.
        name: String,
        /// Longest allowed, in bytes.
        max: usize,
    },
}

/// What a caller can do about an error: the same few answers for all of Cairn's crates, whose errors each have a `kind()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A conflict with another transaction.
    Retry,
    /// There is no room.
    Full,
    /// It is open elsewhere, or a part of it is in use.
    InUse,
    /// Too few replicas answer.
    Unavailable,
    /// Another machine leads, or this one may only read.
    Fenced,
    /// The outcome is unknown: opening it again shows whether it happened.
    Reopen,
    /// Bytes on media are not what was stored, or cannot be read.
    Damaged,
    /// The file is something else, or of a newer version.
    Other,
    /// The call cannot succeed as it is.
    Misuse,
    /// The transaction was ended by its caller, by an earlier error, or by its age.
    Aborted,
    /// The operating system or the network refused.
    System,
}

impl ErrorKind {
    /// What to do next, one sentence.
    ///
    /// ```
    /// assert_eq!(pmem::ErrorKind::Full.advice(), "free or add space, then run it again");
    /// ```
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Retry => "run the transaction again, after a pause",
            Self::Full => "free or add space, then run it again",
            Self::InUse => "close or finish what uses it, then run it again",
            Self::Unavailable => "bring more replicas up, then run it again",
            Self::Fenced => "write to the machine that leads now",
            Self::Reopen => "check the device and the replicas, then open it again to see what is there",
            Self::Damaged => "run `cairn check`, then repair it or restore a backup",
            Self::Other => "check the path, or use the version that wrote it",
            Self::Misuse => "change the call: running it again does not help",
            Self::Aborted => "begin a new transaction, if it is still wanted",
            Self::System => "fix what the system reports, then run it again",
        }
    }
}

impl Error {
    /// What the caller can do about it; [`advice`](Self::advice) says it in words.
    ///
    /// ```
    /// let error = pmem::Options::new().open("/nonexistent/pool").unwrap_err();
    /// assert_eq!(error.kind(), pmem::ErrorKind::Misuse);
    /// assert_eq!(error.advice(), "change the call: running it again does not help");
    /// ```
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Busy { .. } | Self::AlreadyOpen { .. } | Self::BackupRunning { .. } | Self::InUse { .. } => {
                ErrorKind::InUse
            }
            Self::NoSpace { .. }
            | Self::Reserve { .. }
            | Self::HeapFull { .. }
            | Self::RingFull { .. }
            | Self::DirectoryFull { .. } => ErrorKind::Full,
            Self::NotAPool { .. } | Self::NewerVersion { .. } | Self::WrongLayout { .. } | Self::NoRegion { .. } => {
                ErrorKind::Other
            }
            Self::Damaged { .. } | Self::Unreadable { .. } | Self::Truncated { .. } => ErrorKind::Damaged,
            Self::NeedsRecovery { .. } | Self::Poisoned | Self::Sync { .. } => ErrorKind::Reopen,
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::Full,
                io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists => ErrorKind::Misuse,
                _ => ErrorKind::System,
            },
            Self::Domain { .. }
            | Self::Forked
            | Self::ReadOnly
            | Self::BadPointer { .. }
            | Self::DoubleFree { .. }
            | Self::OutOfBounds { .. }
            | Self::Unaligned { .. }
            | Self::Limit { .. }
            | Self::RegionExists { .. }
            | Self::BadName { .. } => ErrorKind::Misuse,
        }
    }

    /// What to do next: [`ErrorKind::advice`] of its kind.
    pub fn advice(&self) -> &'static str {
        self.kind().advice()
    }
}

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
