//! What engines build on that hand out references to objects themselves: addresses, flushes and copies by offset.
//!
//! Which thread may touch which bytes is then the engine's affair, in its one module with unsafe code; bounds, fork, read-only and the
//! explorer are seen to here.

use std::panic::Location;
use std::ptr::NonNull;

use crate::error::Result;
use crate::pool::Pool;
use crate::{ChecksumKey, FlushSet, Moment, Sum};

/// A small number that no other live thread of this process has. (A thread that is [played](crate::sync::as_thread_number) has a large one, which others may
/// play, too.)
///
/// ```
/// let here = pmem::thread_number();
/// let there = std::thread::scope(|s| s.spawn(pmem::thread_number).join().unwrap());
/// assert_ne!(here, there);
/// ```
#[inline]
pub fn thread_number() -> usize {
    crate::threads::thread_id()
}

impl Pool {
    /// The address of `len` bytes at `offset`. They stay mapped there as long as the pool is open and its end is not cut off.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`](crate::Error::OutOfBounds), [`Error::Forked`](crate::Error::Forked); to write,
    /// [`Error::ReadOnly`](crate::Error::ReadOnly).
    #[inline]
    pub fn address(&self, offset: u64, len: u64, write: bool) -> Result<NonNull<u8>> {
        self.inner.mapping.access(offset, len, write)
    }

    /// Asks the processor for this many lines from `offset` on, while something else is still to be done before they are used. A hint: any
    /// offset will do.
    #[inline]
    pub fn prefetch(&self, offset: u64, lines: u64) {
        self.inner.mapping.prefetch(offset, lines);
    }

    /// Starts the write-back of `len` bytes at `offset`: persistent after this thread's next drain.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`](crate::Error::OutOfBounds).
    #[inline]
    #[track_caller]
    pub fn flush(&self, offset: u64, len: u64) -> Result<Moment> {
        self.inner.mapping.flush(offset, len, Location::caller())?;
        Ok(self.inner.mapping.moment())
    }

    /// Where this thread stands between its drains.
    #[inline]
    pub fn moment(&self) -> Moment {
        self.inner.mapping.moment()
    }

    /// Adds the lines of a range to a set that is flushed later.
    #[inline]
    pub fn add_lines(&self, set: &mut FlushSet, offset: u64, len: u64) {
        set.add(&self.inner.mapping, offset, len);
    }

    /// Bytes of the pool, while `by` is borrowed: what its holder knows by having it is why nothing changes them.
    ///
    /// # Errors
    /// As [`address`](Self::address).
    ///
    /// # Safety
    /// Nothing changes them while `'a` lasts.
    #[inline]
    pub unsafe fn slice<'a>(&'a self, _by: &'a impl ?Sized, offset: u64, len: u64) -> Result<&'a [u8]> {
        let base = self.inner.mapping.access(offset, len, false)?;
        // SAFETY: in bounds, and mapped while the pool is borrowed; the rest is the caller's promise.
        Ok(unsafe { std::slice::from_raw_parts(base.as_ptr(), len as usize) })
    }

    /// Bytes of the pool, to be changed, while `by` is borrowed: what its holder knows by having it is why nothing else uses them.
    ///
    /// # Errors
    /// As [`address`](Self::address).
    ///
    /// # Safety
    /// Nothing else uses them while `'a` lasts.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "that they are nobody else's is the caller's promise")]
    pub unsafe fn slice_mut<'a>(&'a self, _by: &'a impl ?Sized, offset: u64, len: u64) -> Result<&'a mut [u8]> {
        let base = self.inner.mapping.access(offset, len, true)?;
        // SAFETY: in bounds, and mapped while the pool is borrowed; the rest is the caller's promise.
        Ok(unsafe { std::slice::from_raw_parts_mut(base.as_ptr(), len as usize) })
    }

    /// Copies `len` bytes from `from` to `to`, past the cache where that is faster, and flushes the rest: persistent after this thread's next
    /// drain.
    ///
    /// # Errors
    /// As [`address`](Self::address).
    ///
    /// # Safety
    /// The ranges do not overlap. No other code writes the bytes at `from`, and none reads or writes those at `to`, while this runs.
    #[inline]
    #[track_caller]
    pub unsafe fn copy(&self, from: u64, to: u64, len: u64) -> Result<()> {
        let source = self.inner.mapping.access(from, len, false)?;
        // SAFETY: in bounds, as just checked; unchanged meanwhile, says the caller.
        let source = unsafe { std::slice::from_raw_parts(source.as_ptr(), len as usize) };
        self.inner.mapping.copy_nt(to, source, Location::caller())
    }

    /// Stores `data` at `to`, past the cache where that is faster, and flushes the rest: persistent after this thread's next drain.
    ///
    /// # Errors
    /// As [`address`](Self::address).
    ///
    /// # Safety
    /// No other code reads or writes the bytes at `to` while this runs; `data` is none of them.
    #[inline]
    #[track_caller]
    pub unsafe fn store(&self, to: u64, data: &[u8]) -> Result<()> {
        self.inner.mapping.copy_nt(to, data, Location::caller())
    }

    /// Stores `head` and `body` at `to`, one behind the other, and zeros up to the end of the last line, past the cache where that is faster, and flushes
    /// the rest: persistent after this thread's next drain.
    ///
    /// # Errors
    /// As [`address`](Self::address).
    ///
    /// # Safety
    /// No other code reads or writes the bytes at `to`, up to the end of the last line, while this runs; `head` and `body` are none of them.
    #[inline]
    #[track_caller]
    pub unsafe fn store_joined(&self, to: u64, head: &[u8], body: &[u8]) -> Result<()> {
        self.inner.mapping.join_nt(to, head, body, Location::caller())
    }

    /// As [`store_joined`](Self::store_joined), of a head that holds a checksum over the body: `head` makes it of the body's [sum](ChecksumKey::sum), which is
    /// taken while the body's lines leave, from the bytes that leave. The line with the head is stored last. No order between the lines is
    /// promised until this thread's next drain: a crash before it leaves any of their words, as always. Where the two cannot be done
    /// in one pass (the range does not start on a line, the checksums are those of format version 1, a medium that is simulated or synced), one
    /// comes behind the other.
    ///
    /// # Errors
    /// As [`address`](Self::address), before anything is stored.
    ///
    /// # Safety
    /// As [`store_joined`](Self::store_joined).
    #[inline]
    #[track_caller]
    pub unsafe fn store_checksummed<const HEAD: usize>(
        &self,
        to: u64,
        key: &ChecksumKey,
        body: &[u8],
        head: impl FnOnce(Sum) -> [u8; HEAD],
    ) -> Result<()> {
        self.inner.mapping.checksum_nt(to, key, body, head, Location::caller())
    }

    /// Stores `body` at `to`, and zeros up to the end of its last line, as [`store_joined`](Self::store_joined); returns the [checksum](ChecksumKey::checksum_parts) of `before` and
    /// `body`, taken in the same pass where that can be done, as by [`store_checksummed`](Self::store_checksummed).
    ///
    /// # Errors
    /// As [`address`](Self::address), before anything is stored.
    ///
    /// # Safety
    /// As [`store_joined`](Self::store_joined).
    #[inline]
    #[track_caller]
    pub unsafe fn store_checksumming(&self, to: u64, key: &ChecksumKey, before: &[u8], body: &[u8]) -> Result<u64> {
        self.inner.mapping.store_checksumming(to, key, before, body, Location::caller())
    }
}
