//! What can go wrong in a measurement.

use std::path::PathBuf;

/// Each message says what happened and where.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The pool under test.
    #[error(transparent)]
    Pool(#[from] pmem::Error),
    /// The engine under test.
    #[error(transparent)]
    Tx(#[from] tx::Error),
    /// The log under test.
    #[error(transparent)]
    Log(#[from] log::Error),
    /// The store under test.
    #[error(transparent)]
    Kv(#[from] kv::Error),
    /// The array under test.
    #[error(transparent)]
    Array(#[from] eaw::Error),
    /// A peer.
    #[error(transparent)]
    Peer(#[from] peers::Error),
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
    /// A line of a trace.
    #[error("{path}:{line}: {why}", path = path.display())]
    Trace {
        /// The trace.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// Parameters that do not go together.
    #[error("{0}")]
    Parameter(String),
    /// A store that does not do what it was asked to.
    #[error("{who}: {what}")]
    Wrong {
        /// Engine or peer.
        who: String,
        /// What it did not do.
        what: String,
    },
    /// A plot.
    #[error("{path}: drawing failed: {why}", path = path.display())]
    Plot {
        /// The file.
        path: PathBuf,
        /// The library's reason.
        why: String,
    },
    /// A worker panicked, or there were too few threads.
    #[error("a worker of the benchmark did not come back")]
    Worker,
}

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
