//! What can go wrong with a replica.

use pmem::ErrorKind;

use crate::Refusal;

/// Every error of a replica that is driven. The message says what happened, where, and what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This replica does not run the transaction now.
    #[error(
        "this replica does not run the transaction now: it is not the head, nor a tail that only reads, or has no lease; run it at the head, or, if it only reads, at the tail"
    )]
    NotHead,
    /// No replica said in time that the transaction is on every member.
    #[error(
        "transaction {n} is committed here, and it is not known whether every member has it; look at the head, later, whether it happened"
    )]
    Unknown {
        /// Its number.
        n: u64,
    },
    /// The replica has stopped, and carries out nothing more.
    #[error("the replica has stopped: {why}; start the process again")]
    Stopped {
        /// The first error.
        why: String,
    },
    /// A transaction has written too much.
    #[error("a transaction has written {bytes} bytes, and a queue takes {max}; use smaller ones, or a larger queue")]
    TooLarge {
        /// With what belongs to it.
        bytes: u64,
        /// The most.
        max: u64,
    },
    /// A record that cannot be of a head.
    #[error(
        "a record is not one of this heap: {why}; check that all members run the same version on copies of one size"
    )]
    Record {
        /// What is wrong.
        why: &'static str,
    },
    /// The file is not a replica, or not of this size.
    #[error("{path}: {why}")]
    File {
        /// Which.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// The pool's own error.
    #[error(transparent)]
    Pool(#[from] pmem::Error),
}

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// What the caller can do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotHead => ErrorKind::Fenced,
            Self::Unknown { .. } | Self::Stopped { .. } => ErrorKind::Reopen,
            Self::TooLarge { .. } => ErrorKind::Misuse,
            Self::Record { .. } => ErrorKind::Damaged,
            Self::File { .. } => ErrorKind::Other,
            Self::Pool(error) => error.kind(),
        }
    }
}

impl From<Error> for tx::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Pool(error) => Self::Pool(error),
            error => Self::Engine { kind: error.kind(), source: Box::new(error) },
        }
    }
}

/// Why the head did not let a transaction have an object.
pub(crate) fn refused(refusal: Refusal, offset: u64) -> tx::Error {
    match refusal {
        Refusal::Pending | Refusal::Full => tx::Error::Conflict { offset },
        Refusal::NotHere => Error::NotHead.into(),
    }
}
