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
}

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    #[cold]
    pub(crate) fn of(library: &'static str, errno: i32, message: String) -> Self {
        Self { library, errno, message, path: None }
    }

    pub(crate) fn at(self, path: &Path) -> Self {
        Self { path: Some(path.to_owned()), ..self }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{}: ", path.display())?;
        }
        write!(f, "{}: {}", self.library, std::io::Error::from_raw_os_error(self.errno))?;
        if self.message.is_empty() { Ok(()) } else { write!(f, " ({})", self.message) }
    }
}

impl std::error::Error for Error {}
