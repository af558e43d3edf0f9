//! What went wrong: a code, a message, and the system's own number.

use std::io;

use crate::code::cairn_code::{self, *};

/// An error on its way to C.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: cairn_code,
    pub(crate) message: String,
    /// 0 if it was no system call.
    pub(crate) errno: i32,
}

impl Failure {
    pub(crate) fn new(code: cairn_code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), errno: 0 }
    }

    pub(crate) fn null(what: &str) -> Self {
        Self::new(CAIRN_NULL, format!("{what} is null"))
    }

    pub(crate) fn poisoned() -> Self {
        Self::new(CAIRN_POISONED, "an earlier call on this handle met a bug of the library; close it and open it again")
    }
}

impl From<pmem::Error> for Failure {
    fn from(error: pmem::Error) -> Self {
        use pmem::Error as E;
        let errno = match &error {
            E::Unreadable { source, .. } | E::Sync { source } | E::Io { source, .. } => source.raw_os_error(),
            _ => None,
        };
        let code = match &error {
            E::Busy { .. } | E::AlreadyOpen { .. } | E::BackupRunning { .. } | E::InUse { .. } => CAIRN_BUSY,
            E::NoSpace { .. }
            | E::Reserve { .. }
            | E::HeapFull { .. }
            | E::RingFull { .. }
            | E::DirectoryFull { .. } => CAIRN_FULL,
            E::NotAPool { .. } | E::WrongLayout { .. } | E::NoRegion { .. } => CAIRN_FOREIGN,
            E::Damaged { .. } | E::Unreadable { .. } | E::Truncated { .. } => CAIRN_DAMAGED,
            E::NewerVersion { .. } => CAIRN_NEWER,
            E::NeedsRecovery { .. } => CAIRN_UNRECOVERED,
            E::Poisoned | E::Sync { .. } => CAIRN_SYNC,
            E::Forked => CAIRN_FORKED,
            E::ReadOnly => CAIRN_READ_ONLY,
            E::RegionExists { .. } => CAIRN_EXISTS,
            E::Io { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => CAIRN_MISSING,
                io::ErrorKind::AlreadyExists => CAIRN_EXISTS,
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => CAIRN_FULL,
                _ => CAIRN_IO,
            },
            E::Domain { .. } | E::Limit { .. } | E::BadName { .. } => CAIRN_INVALID,
            _ => CAIRN_FAILED,
        };
        Self { code, message: error.to_string(), errno: errno.unwrap_or(0) }
    }
}

impl From<log::Error> for Failure {
    fn from(error: log::Error) -> Self {
        use log::Error as E;
        let code = match &error {
            E::Stalled { .. } | E::Unfinished { .. } => CAIRN_STALLED,
            E::NotForced { .. } => CAIRN_NOT_FORCED,
            E::Full { .. } | E::GrownTooOften { .. } => CAIRN_FULL,
            E::TooLong { .. } => CAIRN_TOO_LONG,
            E::Lost { .. } | E::InDoubt { .. } | E::Unrecoverable { .. } => CAIRN_LOST,
            E::Fabric(log::fabric::Error::WeakSecret { .. } | log::fabric::Error::Tls { .. }) => CAIRN_INVALID,
            // A copy that is not reached, or does not let this program in.
            E::QuorumUnavailable { .. } | E::Fabric(_) => CAIRN_NO_QUORUM,
            E::QuorumLost { .. } => CAIRN_QUORUM_LOST,
            E::Fenced { .. } => CAIRN_FENCED,
            E::NotALog { .. } | E::IsACopy { .. } => CAIRN_FOREIGN,
            E::NewerVersion { .. } => CAIRN_NEWER,
            E::BadSuperline { .. } => CAIRN_DAMAGED,
            E::Limit { .. } | E::TwiceACopy { .. } | E::Replicated { .. } | E::NotReplicated { .. } => CAIRN_INVALID,
            E::Pool(_) => {
                let E::Pool(error) = error else { unreachable!("matched just now") };
                return error.into();
            }
            _ => CAIRN_FAILED,
        };
        Self::new(code, error.to_string())
    }
}

impl From<kv::Error> for Failure {
    fn from(error: kv::Error) -> Self {
        use kv::Error as E;
        let message = error.to_string();
        let code = match error {
            E::Conflict { .. } => CAIRN_CONFLICT,
            E::TooMany { .. } => CAIRN_BUSY,
            E::GaveUp { .. } => CAIRN_GAVE_UP,
            E::Expired { .. } | E::Doomed { .. } => CAIRN_DOOMED,
            E::Limit { .. } => CAIRN_TOO_LONG,
            E::Option { .. } => CAIRN_INVALID,
            E::InDoubt { source } => return Self { code: CAIRN_IN_DOUBT, message, ..source.into() },
            E::LogInDoubt { .. } => CAIRN_IN_DOUBT,
            E::IndexMemory { .. } | E::Full { .. } | E::LogFull { .. } => CAIRN_FULL,
            E::NotAStore { .. } | E::IsReplicated { .. } | E::NotReplicated | E::OtherLog { .. } => CAIRN_FOREIGN,
            E::NewerFormat { .. } => CAIRN_NEWER,
            E::Damaged { .. } => CAIRN_DAMAGED,
            E::Lost { .. } | E::LostCommits { .. } => CAIRN_LOST,
            E::Pool(error) => return error.into(),
            E::Log(error) => return (*error).into(),
            _ => CAIRN_FAILED,
        };
        Self::new(code, message)
    }
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;
