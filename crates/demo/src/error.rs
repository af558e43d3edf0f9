//! What can end a demonstration early. What it finds is no error: see [`Finding`](crate::Finding).

use std::io;
use std::path::{Path, PathBuf};

/// Each message says what happened and where; what to do next stands behind the last semicolon.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or directory.
    #[error("{path}: {op} failed: {source}", path = path.display())]
    Io {
        /// The operation.
        op: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The workload or its trace.
    #[error(transparent)]
    Bench(#[from] bench::Error),
    /// A pool that was not killed.
    #[error(transparent)]
    Tx(#[from] tx::Error),
    /// Options that do not go together.
    #[error("{0}")]
    Option(String),
    /// A worker that ends, or says what it should not.
    #[error("worker process on {kind}: {what}")]
    Worker {
        /// Engine of its pool.
        kind: String,
        /// What it did.
        what: String,
    },
    /// Nothing was shown.
    #[error("no update was acknowledged before the worker was killed; give it longer, with --seconds")]
    Nothing,
    /// Ctrl-C.
    #[error("interrupted, its pools are removed; run it again")]
    Interrupted,
}

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn io(op: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { op, path: path.to_owned(), source }
    }
}

impl From<pmem::Error> for Error {
    fn from(error: pmem::Error) -> Self {
        Self::Tx(error.into())
    }
}
