//! Checksums of records and nodes, bound to their locations.

use pmem::ChecksumKey;

/// The checksum of the record `bytes`. The location binds it to where it stands and to what the segment was used for then.
#[inline]
pub(crate) fn checksum(key: &ChecksumKey, bytes: &[u8], location: u64) -> u64 {
    bound(key.checksum(checksummed(bytes)), location)
}

/// The same of a record in two parts, the first one at least as long as the header.
#[inline]
pub(crate) fn checksum_parts(key: &ChecksumKey, head: &[u8], rest: &[u8], location: u64) -> u64 {
    bound(key.checksum_parts([checksummed(head), rest].into_iter()), location)
}

/// What of the first part of a record its checksum covers.
#[inline]
pub(crate) fn checksummed(head: &[u8]) -> &[u8] {
    head.get(8..).unwrap_or_default()
}

/// The checksum of a record in this location, from what its key says of its bytes.
#[inline]
pub(crate) fn bound(checksum: u64, location: u64) -> u64 {
    (checksum ^ location).max(1) // zeros are no record
}

/// What the next transaction keeps of the checksum of this one's first record.
pub(crate) fn link(checksum: u64) -> u16 {
    (checksum >> 48) as u16
}

/// Names a location in one use of a segment.
#[inline]
pub(crate) fn location(offset: u64, writer: usize, sequence: u32) -> u64 {
    // Odd multipliers: each input changes the result, and XOR with a keyed hash does the rest.
    offset.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ (u64::from(sequence) << 8 | writer as u64).wrapping_mul(0xd6e8_feb8_6659_fd93).rotate_left(32)
}
