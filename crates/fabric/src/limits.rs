//! What one operation takes.

use crate::{Error, Result};

pub(crate) fn limit(operation: &'static str, len: usize, max: usize) -> Result<()> {
    if len > max { Err(Error::TooLong { operation, len: len as u64, max: max as u64 }) } else { Ok(()) }
}
