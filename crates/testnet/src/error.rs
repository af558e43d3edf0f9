//! What can go wrong.

use std::io;

/// Every error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A command could not be started.
    #[error("{program} cannot be run ({why}): install it (tools/setup.sh)")]
    NoProgram {
        /// Its name.
        program: &'static str,
        /// What the system says.
        #[source]
        why: io::Error,
    },
    /// A command failed.
    #[error("{command:?} failed ({said}): networks of processes need root and a kernel with network namespaces")]
    Failed {
        /// With its arguments, or what it was given to read.
        command: String,
        /// What it wrote to standard error.
        said: String,
    },
    /// The system refused.
    #[error("{doing} {what}: {why}")]
    System {
        /// What was being done.
        doing: &'static str,
        /// To what.
        what: String,
        /// What the system says.
        #[source]
        why: io::Error,
    },
}

/// What this crate returns.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn system(doing: &'static str, what: impl Into<String>, why: impl Into<io::Error>) -> Self {
        Self::System { doing, what: what.into(), why: why.into() }
    }
}
