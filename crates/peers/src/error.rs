//! What a library refused.

use std::fmt;
use std::path::{Path, PathBuf};

/// What a library refused.
#[derive(Debug)]
pub struct Error {
    library: &'static str,
    errno: i32,
    message: String,
    path: Option<PathBuf>,
    conflict: bool,
}

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

#[allow(dead_code)] // without features nothing fails
impl Error {
    /// `errno` 0: the library has words of its own.
    #[cold]
    pub(crate) fn of(library: &'static str, errno: i32, message: String) -> Self {
        Self { library, errno, message, path: None, conflict: false }
    }

    #[cold]
    pub(crate) fn conflict(library: &'static str, message: String) -> Self {
        Self { conflict: true, ..Self::of(library, 0, message) }
    }

    pub(crate) fn at(self, path: &Path) -> Self {
        Self { path: Some(path.to_owned()), ..self }
    }

    /// The transaction was given up for another one: it may succeed if it is tried again.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.conflict
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{}: ", path.display())?;
        }
        if self.errno == 0 {
            return write!(f, "{}: {}", self.library, self.message);
        }
        write!(f, "{}: {}", self.library, std::io::Error::from_raw_os_error(self.errno))?;
        if self.message.is_empty() { Ok(()) } else { write!(f, " ({})", self.message) }
    }
}

impl std::error::Error for Error {}
