//! What can go wrong in a measurement.

use std::path::PathBuf;

/// Each message says what happened and where.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The pool under test.
    #[error(transparent)]
    Pool(#[from] pmem::Error),
    /// A file or directory of the benchmark itself.
    #[error("{path}: {op} failed: {source}", path = path.display())]
    Io {
        /// The operation.
        op: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
