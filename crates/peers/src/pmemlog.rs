//! libpmemlog: one log in a file. It keeps bytes, not records, has no checksums, and syncs every append.

use std::path::Path;

use crate::Result;
use crate::raw::pmemlog::Handle;

/// An open log, closed when dropped. All threads may use it at once: the library has a lock in it.
///
/// Whether it flushes cache lines or calls `msync`: see [`FORCE`](crate::FORCE).
pub struct Pmemlog(Handle);

impl Pmemlog {
    /// Smallest file the library makes a log in.
    pub const BYTES_MIN: usize = 2 << 20;

    /// A new log in a file of that size.
    ///
    /// # Errors
    /// The library's: no space, a file that is there, one that is too small.
    pub fn create(path: &Path, bytes: usize) -> Result<Self> {
        Handle::create(path, bytes).map(Self)
    }

    /// An existing log.
    ///
    /// # Errors
    /// The library's: no such file, not a log, in use.
    pub fn open(path: &Path) -> Result<Self> {
        Handle::open(path).map(Self)
    }

    /// Bytes that fit in all.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Bytes in it.
    #[must_use]
    pub fn tell(&self) -> u64 {
        self.0.tell()
    }

    /// Appends `data`; it is durable when this returns.
    ///
    /// # Errors
    /// The log is full.
    #[inline]
    pub fn append(&self, data: &[u8]) -> Result<()> {
        self.0.append(data)
    }

    /// Calls `each` with `chunk_bytes` after `chunk_bytes` of what is in it, the last ones maybe fewer, until it says false; 0 is all at once. No thread
    /// appends meanwhile: `each` that tries waits for ever.
    pub fn walk(&self, chunk_bytes: usize, mut each: impl FnMut(&[u8]) -> bool) {
        self.0.walk(chunk_bytes, &mut each);
    }

    /// Empties it.
    pub fn rewind(&self) {
        self.0.rewind();
    }

    /// True if the library flushes cache lines here; else it calls `msync`.
    #[must_use]
    pub fn flushes(&self) -> bool {
        self.0.flushes()
    }

    /// What dropping it does too.
    pub fn close(self) {}
}

#[cfg(test)]
mod tests;
