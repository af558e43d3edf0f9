//! All the unsafe code of the log: bytes of the pool by offset, and why nothing else uses them.

#[cfg(feature = "replication")]
use fabric::Address;
#[cfg(feature = "replication")]
use pmem::Domain;
use pmem::{ChecksumKey, Pool, Sum};

use crate::error::Result;

/// Why nothing else uses the bytes asked for meanwhile, or nothing changes them. The contract of this module.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Claim {
    /// Of a record that was reserved by the caller and is not complete: `reserve` gives each range to one.
    Reserved,
    /// Of a segment that holds records through the forced one and cannot be reclaimed: it is pinned, or the tail is locked.
    Kept,
    /// The log is being opened: no other thread has it.
    Opening,
    /// Of the watermark: one record at a time is to write it ([`Space::reserve`](crate::space::Space::reserve)), and there is no reference to it.
    Watermark,
    /// Of a replica's segments: its leader's device may write there at any time, as another process could, so that from the making of the replica to its end no
    /// reference to them is made. What was torn no checksum fits.
    Shared,
}

/// Bytes of the pool.
/// By `_claim` nothing changes them while `by` is borrowed.
#[inline]
pub(crate) fn bytes<'a>(_claim: Claim, by: &'a impl ?Sized, pool: &'a Pool, offset: u64, len: u64) -> Result<&'a [u8]> {
    // SAFETY: what the claim promises.
    Ok(unsafe { pool.slice(by, offset, len)? })
}

/// Bytes of the pool, to be changed.
/// By `_claim` nothing else uses them while `by` is borrowed.
#[inline]
#[expect(clippy::mut_from_ref, reason = "the claim says that they are nobody else's")]
pub(crate) fn bytes_mut<'a>(
    _claim: Claim,
    by: &'a impl ?Sized,
    pool: &'a Pool,
    offset: u64,
    len: u64,
) -> Result<&'a mut [u8]> {
    // SAFETY: what the claim promises.
    Ok(unsafe { pool.slice_mut(by, offset, len)? })
}

/// Stores a record whose last line is its own, past the cache where that is faster; persistent after this thread's next drain.
/// By `_claim` nothing else uses the range.
#[inline]
#[track_caller]
pub(crate) fn store(_claim: Claim, pool: &Pool, offset: u64, header: &[u8], payload: &[u8]) -> Result<()> {
    // SAFETY: the range is the caller's alone, to the end of its last line.
    unsafe { pool.store_joined(offset, header, payload)? };
    Ok(())
}

/// As [`store`], of a header that is made of the payload's sum.
#[inline]
pub(crate) fn store_checksummed<const HEADER: usize>(
    _claim: Claim,
    pool: &Pool,
    offset: u64,
    key: &ChecksumKey,
    payload: &[u8],
    header: impl FnOnce(Sum) -> [u8; HEADER],
) -> Result<()> {
    // SAFETY: as in `store`.
    unsafe { pool.store_checksummed(offset, key, payload, header)? };
    Ok(())
}

/// Copies bytes out of the pool. They may change meanwhile.
#[inline]
#[expect(clippy::disallowed_methods, reason = "a device may write here: there can be no slice to copy from")]
pub(crate) fn copy_out(_claim: Claim, pool: &Pool, offset: u64, into: &mut [u8]) -> Result<()> {
    let from = pool.address(offset, into.len() as u64, false)?;
    // SAFETY: in bounds; `into` is no part of the pool, of whose bytes no reference is given out but by the claims above.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into.as_mut_ptr(), into.len()) }
    Ok(())
}

/// Copies bytes into the pool.
/// By `_claim` nothing else uses the range, but for devices and threads that copy out.
#[inline]
#[expect(clippy::disallowed_methods, reason = "a device may write here: there can be no slice to copy into")]
pub(crate) fn copy_in(_claim: Claim, pool: &Pool, offset: u64, bytes: &[u8]) -> Result<()> {
    let to = pool.address(offset, bytes.len() as u64, true)?;
    // SAFETY: in bounds; the rest is what the claim promises, and `bytes` is no part of the range by that.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) }
    Ok(())
}

/// Where a device finds the bytes, of a window that holds the pool: none where what it writes would not become persistent as a store does. Of a file it would not: the
/// kernel does not know that such pages have changed.
/// By `_claim` no reference to them is made.
#[cfg(feature = "replication")]
pub(crate) fn for_device(_claim: Claim, pool: &Pool, offset: u64, len: u64) -> Option<Address> {
    if !matches!(pool.domain(), Domain::Pmem | Domain::PmemEadr | Domain::Emulated) {
        return None;
    }
    let first = pool.address(offset, len, true).ok()?;
    // SAFETY: in bounds, and mapped there as long as the window has the pool, since no log cuts a pool's end off; the rest is what the claim promises.
    Some(unsafe { Address::new(first) })
}
