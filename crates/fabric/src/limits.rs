//! What one operation takes.

use crate::{Error, Result};

/// Most bytes of a message.
pub const MESSAGE_MAX: usize = 64 << 10;
/// Most bytes of one write.
pub const WRITE_MAX: usize = 1 << 30;
/// Most bytes of one read.
pub const READ_MAX: u32 = 4 << 20;
/// Most reads of one end that are not answered yet.
pub const READS_MAX: usize = 16;

pub(crate) fn limit(operation: &'static str, len: usize, max: usize) -> Result<()> {
    if len > max { Err(Error::TooLong { operation, len: len as u64, max: max as u64 }) } else { Ok(()) }
}
