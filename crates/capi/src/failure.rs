//! What went wrong: a code, a message, and the system's own number.

use std::io;

use pmem::ErrorKind;

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
            // A program in C names no offsets: they are from media.
            E::BadPointer { .. } | E::DoubleFree { .. } | E::OutOfBounds { .. } | E::Unaligned { .. } => CAIRN_DAMAGED,
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
            // `cairn_replicas_accept_doubt` opens it all the same.
            E::Lost { .. } | E::InDoubt { .. } | E::Unrecoverable { .. } => CAIRN_LOST,
            E::Fabric(error) => match error.kind() {
                ErrorKind::Misuse => CAIRN_INVALID,
                ErrorKind::System => CAIRN_IO,
                _ => CAIRN_NO_QUORUM,
            },
            E::QuorumUnavailable { .. } => CAIRN_NO_QUORUM,
            E::QuorumLost { .. } => CAIRN_QUORUM_LOST,
            E::Fenced { .. } => CAIRN_FENCED,
            E::NotALog { .. } | E::IsReplica { .. } => CAIRN_FOREIGN,
            E::NewerVersion { .. } => CAIRN_NEWER,
            E::BadSuperline { .. } => CAIRN_DAMAGED,
            E::Overtaken { .. }
            | E::Limit { .. }
            | E::ReplicaTwice { .. }
            | E::Replicated { .. }
            | E::NotReplicated { .. } => CAIRN_INVALID,
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
            E::Limit { .. } | E::TransactionTooLong { .. } => CAIRN_TOO_LONG,
            E::Option { .. } | E::TableName { .. } | E::Type { .. } | E::TypeMismatch { .. } | E::NoSuchCopy { .. } => {
                CAIRN_INVALID
            }
            E::InDoubt { source } => return Self { code: CAIRN_IN_DOUBT, message, ..source.into() },
            E::LogInDoubt { .. } => CAIRN_IN_DOUBT,
            E::IndexMemory { .. } | E::Full { .. } | E::LogFull { .. } => CAIRN_FULL,
            E::NotAStore { .. }
            | E::IsReplicated { .. }
            | E::NotReplicated
            | E::OtherLog { .. }
            | E::Behind { .. }
            | E::NotACommit { .. } => CAIRN_FOREIGN,
            E::Follows => CAIRN_FENCED,
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

impl From<eaw::Error> for Failure {
    fn from(error: eaw::Error) -> Self {
        use eaw::Error as E;
        let message = error.to_string();
        let code = match error {
            E::TooManyTransactions { .. } => CAIRN_BUSY,
            E::LogFull { .. } => CAIRN_FULL,
            E::Stopped => CAIRN_SYNC,
            E::MissingMember { .. } | E::NotAMember { .. } => CAIRN_FOREIGN,
            E::NewerVersion { .. } => CAIRN_NEWER,
            E::Damaged { .. } => CAIRN_DAMAGED,
            E::NoFile { .. } => CAIRN_MISSING,
            E::FileExists { .. } => CAIRN_EXISTS,
            E::BadName { .. }
            | E::OutOfFile { .. }
            | E::OutOfEntry { .. }
            | E::Foreign { .. }
            | E::OuterWrite { .. }
            | E::Limit { .. } => CAIRN_INVALID,
            E::Pool(error) => return error.into(),
            _ => CAIRN_FAILED,
        };
        Self::new(code, message)
    }
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use super::*;
    use crate::code::{cairn_group, group};
    use cairn_group::*;

    /// What a C program does about the group is what a Rust program does about the kind.
    fn agrees(kind: ErrorKind, code: cairn_code) -> bool {
        let expected = match kind {
            ErrorKind::Retry | ErrorKind::InUse | ErrorKind::Unavailable => CAIRN_AGAIN,
            ErrorKind::Full => CAIRN_MAKE_ROOM,
            ErrorKind::Damaged | ErrorKind::Other => CAIRN_REPAIR,
            ErrorKind::Reopen | ErrorKind::Fenced | ErrorKind::Aborted | ErrorKind::System => CAIRN_CLOSE,
            ErrorKind::Misuse => CAIRN_CHANGE_CALL,
            _ => return false,
        };
        group(code as i32) == expected
    }

    #[track_caller]
    fn check<E: Into<Failure> + std::fmt::Display>(kind: ErrorKind, error: E) {
        let text = error.to_string();
        let Failure { code, .. } = error.into();
        assert!(agrees(kind, code), "{text}: {kind:?} is no {code:?}");
    }

    #[test]
    fn codes_of_pools_agree_with_kinds() {
        use pmem::Error as E;
        let io = |kind: io::ErrorKind| E::Io { op: "open", path: "p".into(), source: kind.into() };
        let limit = E::Limit { what: "x", found: 1, min: 2, max: 3 };
        let domain = E::Domain { path: "p".into(), wanted: "dax", why: "none".into() };
        let all = [
            E::Busy { path: "p".into(), pid: 1 },
            E::AlreadyOpen { path: "p".into() },
            E::InUse { what: "x".into() },
            E::NoSpace { path: "p".into(), wanted: 1, what: pmem::SpaceFor::Growth },
            E::Reserve { wanted: 2, reserved: 1 },
            E::HeapFull { bytes: 1 },
            E::NotAPool { path: "p".into(), found: [0; 8], expected: [1; 8] },
            E::NewerVersion { path: "p".into(), found: 9, supported: 1 },
            E::NoRegion { name: "r".into() },
            E::Damaged { what: "x", offset: 1, found: 1, expected: 2 },
            E::Truncated { path: "p".into(), found: 1, expected: 2 },
            E::Poisoned,
            E::Sync { source: io::ErrorKind::Other.into() },
            E::ReadOnly,
            E::RegionExists { name: "r".into() },
            E::BadName { name: "r".into(), max: 1 },
            limit,
            domain,
            io(io::ErrorKind::NotFound),
            io(io::ErrorKind::AlreadyExists),
            io(io::ErrorKind::StorageFull),
            io(io::ErrorKind::PermissionDenied),
        ];
        for error in all {
            check(error.kind(), error);
        }
    }

    /// Where a program in C has another way out than one in Rust: each with its reason.
    #[test]
    fn exceptions_are_these() {
        let code = |error: pmem::Error| Failure::from(error).code;
        // Its code is documented; only another process can go on.
        assert_eq!(code(pmem::Error::Forked), CAIRN_FORKED);
        // There is a code for what to do: open it for writing.
        assert_eq!(code(pmem::Error::NeedsRecovery { path: "p".into() }), CAIRN_UNRECOVERED);
        // A program in C names no offsets.
        assert_eq!(code(pmem::Error::DoubleFree { ptr: 1 }), CAIRN_DAMAGED);
        // `cairn_replicas_accept_doubt` is the next call.
        let doubt = log::Error::InDoubt { lsn: log::Lsn::new(1), missing: vec![] };
        assert_eq!(Failure::from(doubt).code, CAIRN_LOST);
    }

    #[test]
    fn codes_of_logs_agree_with_kinds() {
        use log::Error as E;
        let lsn = log::Lsn::new(1);
        let all = [
            E::Stalled { lsn, waited: Duration::ZERO },
            E::Unfinished { lsn },
            E::NotForced { lsn, forced: lsn },
            E::Overtaken { wanted: lsn, head: lsn },
            E::QuorumUnavailable { why: "x", found: 1, missing: vec![], away: vec![] },
            E::QuorumLost { live: 1, needed: 2 },
            E::Fenced { epoch: 1, owner: 1 },
            E::Full { head: lsn, live: 1, capacity: 1 },
            E::TooLong { len: 2, max: 1 },
            E::GrownTooOften { max: 1 },
            E::Lost { lsn, offset: 1, through: lsn },
            E::Unrecoverable { lsn, through: lsn },
            E::IsReplica { region: "r".into() },
            E::NotALog { region: "r".into(), offset: 1, why: "x" },
            E::NewerVersion { found: 9, supported: 1 },
            E::BadSuperline { offset: 1, what: "x", found: 1 },
            E::Replica { replica: "x".into(), why: "x".into() },
            E::Limit { what: "x", found: 1, min: 2, max: 3 },
            E::ReplicaTwice { id: 1 },
            E::Replicated { what: "x", next: "y" },
            E::NotReplicated { what: "x", next: "y" },
            E::Fabric(log::fabric::Error::Unreachable { peer: "p".into(), what: "x".into() }),
            E::Fabric(log::fabric::Error::NotTrusted { peer: "p".into(), what: "x".into() }),
            E::Fabric(log::fabric::Error::NoTrust),
            E::Fabric(log::fabric::Error::Io(io::ErrorKind::Other.into())),
            E::Pool(pmem::Error::Poisoned),
        ];
        for error in all {
            check(error.kind(), error);
        }
    }

    #[test]
    fn codes_of_arrays_agree_with_kinds() {
        use eaw::Error as E;
        let name = || "f".to_owned();
        let all = [
            E::TooManyTransactions { max: 1 },
            E::LogFull { bytes: 1, max: 1 },
            E::MissingMember { member: 1, members: 2 },
            E::NotAMember { path: "p".into(), why: "x" },
            E::NewerVersion { path: "p".into(), found: 9, known: 1 },
            E::Damaged { path: "p".into(), what: "x" },
            E::Stopped,
            E::NoFile { name: name() },
            E::FileExists { name: name() },
            E::BadName { name: name(), max: 1 },
            E::OutOfFile { name: name(), offset: 1, end: 2, len: 1 },
            E::OutOfEntry { at: 1, end: 2, len: 1 },
            E::Foreign { what: "x" },
            E::OuterWrite { name: name(), offset: 1, end: 2 },
            E::Limit { what: "x", found: 1, min: 2, max: 3 },
            E::Pool(pmem::Error::Poisoned),
        ];
        for error in all {
            check(error.kind(), error);
        }
    }

    #[test]
    fn codes_of_stores_agree_with_kinds() {
        use kv::Error as E;
        let key = kv::Key(b"k".to_vec());
        let full = |deletes| E::Full {
            path: "p".into(),
            wanted: 1,
            free: 0,
            size: 1,
            deletes,
            overwrites: false,
            snapshot: None,
        };
        let all = [
            E::Conflict { key: key.clone(), with: kv::ConflictWith::Running },
            E::TooMany { max: 1 },
            E::GaveUp { attempts: 1, key },
            E::Doomed { first: "x".into() },
            E::Limit { what: "x", found: 2, max: 1 },
            E::Option { what: "x", found: 1, wanted: "y" },
            E::TableName { name: "t".into(), why: "x" },
            E::InDoubt { source: pmem::Error::Poisoned },
            E::LogInDoubt { source: Box::new(log::Error::QuorumLost { live: 1, needed: 2 }) },
            E::Follows,
            E::IsReplicated { log: 1 },
            E::NotReplicated,
            E::OtherLog { store: 1, log: 2 },
            E::Behind { has: 1, first: 3 },
            E::NotACommit { at: log::Lsn::new(1) },
            E::NoSuchCopy { id: 1, copies: vec![2, 3] },
            E::LogFull { live: 1, capacity: 1 },
            E::IndexMemory { keys: 1, bytes: 2, max: 1 },
            full(true),
            full(false),
            E::NotAStore { region: "r".into(), why: "x" },
            E::NewerFormat { found: 9, max: 1 },
            E::Damaged { what: "x", offset: 1, why: "y".into() },
            E::Lost { writer: 1, offset: 1, proof: 2 },
            E::LostCommits { missing: 1, durable: 2 },
            E::Log(Box::new(log::Error::Fenced { epoch: 1, owner: 1 })),
            E::Pool(pmem::Error::ReadOnly),
        ];
        for error in all {
            check(error.kind(), error);
        }
    }
}
