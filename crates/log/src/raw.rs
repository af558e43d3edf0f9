//! All the unsafe code of the log: bytes of the pool by offset, and why nobody else uses them.

use pmem::Pool;

use crate::error::Result;

/// Why the bytes asked for are used by nobody else meanwhile, or changed by nobody. The contract of this module.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Claim {
    /// Of a record that was reserved by the caller and is not complete: `reserve` gives each place to one.
    Reserved,
    /// Of a segment that holds records through the forced one and cannot be reclaimed: it is pinned, or the tail is locked.
    Kept,
    /// The log is being opened: nobody else has it.
    Opening,
}

/// Bytes of the pool.
/// By `_claim` nobody changes them while `'a` lasts.
#[inline]
pub(crate) fn bytes<'a>(_claim: Claim, pool: &Pool, offset: u64, len: u64) -> Result<&'a [u8]> {
    let base = pool.address(offset, len, false)?;
    // SAFETY: in bounds; the rest is what the claim promises.
    Ok(unsafe { std::slice::from_raw_parts(base.as_ptr(), len as usize) })
}

/// Bytes of the pool, to be changed.
/// By `_claim` nobody else uses them while `'a` lasts.
#[inline]
pub(crate) fn bytes_mut<'a>(_claim: Claim, pool: &Pool, offset: u64, len: u64) -> Result<&'a mut [u8]> {
    let base = pool.address(offset, len, true)?;
    // SAFETY: in bounds; the rest is what the claim promises.
    Ok(unsafe { std::slice::from_raw_parts_mut(base.as_ptr(), len as usize) })
}

/// Stores a record whose last line is its own, past the cache where that is faster; persistent after this thread's next drain.
/// By `_claim` nobody else uses the place.
#[inline]
#[track_caller]
pub(crate) fn store(_claim: Claim, pool: &Pool, offset: u64, header: &[u8], payload: &[u8]) -> Result<()> {
    // SAFETY: the place is the caller's alone, to the end of its last line.
    unsafe { pool.store_joined(offset, header, payload)? };
    Ok(())
}
