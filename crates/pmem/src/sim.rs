//! The seam through which a crash explorer becomes a persistence domain.
//!
//! A [`Medium`] is the memory of a simulated pool together with what the model knows about it: every
//! checked access, flush, drain and change of length of a pool opened with
//! [`Options::create_on`](crate::Options::create_on) or [`Options::open_on`](crate::Options::open_on)
//! is reported to it, with the source line that asked for it. The crate `crash` implements it; nothing
//! in this crate knows the model behind it.

use std::io;
use std::panic::Location;
use std::ptr::NonNull;

/// The source line that asked for a flush, a drain or a change of length.
pub type Site = &'static Location<'static>;

/// The source line this is written on.
#[inline]
#[track_caller]
pub(crate) fn here() -> Site {
    Location::caller()
}

/// Simulated persistent memory.
///
/// # Safety
///
/// An implementor promises that [`base`](Medium::base) returns the same address for its whole life, aligned to
/// 4096 bytes, and that [`capacity`](Medium::capacity) bytes from there are allocated, initialised and never
/// borrowed by anything but the one pool that is open on it (the model itself reads and writes them only inside
/// the methods below, through raw pointers).
pub unsafe trait Medium: Send + Sync {
    /// First byte of the working memory.
    fn base(&self) -> NonNull<u8>;

    /// Bytes reserved for the working memory; the length can grow up to this.
    fn capacity(&self) -> u64;

    /// Present length of the simulated file in bytes.
    fn len(&self) -> u64;

    /// True when the simulated file has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Grows (new bytes are zero) or shrinks the simulated file. In a file model the new length is itself not
    /// persistent before the next drain.
    ///
    /// # Errors
    /// `StorageFull` when the model plays a full disk.
    fn set_len(&self, len: u64, site: Site) -> io::Result<()>;

    /// Called before every checked access of `len` bytes at `offset`; `write` says that the caller may also store there.
    ///
    /// # Errors
    /// Any error stands for a poisoned line: the access fails, and no reference is handed out.
    fn access(&self, offset: u64, len: u64, write: bool) -> io::Result<()>;

    /// The lines of this range, with their present content, are on their way to the media.
    fn flush(&self, offset: u64, len: u64, site: Site);

    /// What this thread flushed is persistent when this returns `Ok` (in a file model: what any thread stored).
    ///
    /// # Errors
    /// A failed sync: what was not yet persistent may never be.
    fn drain(&self, site: Site) -> io::Result<()>;

    /// These bytes replace those at `offset`, durably, and all at once: a crash shows all of them or none. False if this medium does not do that with them; nothing has changed
    /// then. The default never does.
    ///
    /// # Errors
    /// The device failed: all of them may be there, or none.
    fn write_whole(&self, _offset: u64, _data: &[u8], _site: Site) -> io::Result<bool> {
        Ok(false)
    }

    /// Whole lines of zeros replace these bytes, which could not be read: after this they can, as after a `write` to the file. The
    /// default leaves them unreadable.
    ///
    /// # Errors
    /// They stay unreadable.
    fn replace(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    /// A pool that was not closed is about to be opened. A file is synced then, and its page cache dropped: what recovery reads is what the
    /// medium has. The default does nothing, as memory has no such cache.
    ///
    /// # Errors
    /// A failed sync; the pool is not opened.
    fn reopened(&self) -> io::Result<()> {
        Ok(())
    }

    /// The words of this range have values that a crash may show, though nothing was flushed: lets a test name a
    /// moment between two events. The default does nothing.
    fn observe(&self, _offset: u64, _len: u64, _site: Site) {}
}
