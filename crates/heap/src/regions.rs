//! The regions of a heap in its pool.

use pmem::Region;

/// Names of the regions.
pub(crate) const MAIN: &str = "heap";
pub(crate) const BACKUP: &str = "heap.backup";
pub(crate) const ZONES: &str = "heap.zones";
pub(crate) const MARKS: &str = "heap.marks";
pub(crate) const LOGS: &str = "heap.logs";
pub(crate) const STATE: &str = "heap.state";
pub(crate) const COPIES: &str = "heap.copies";
pub(crate) const COPIES_STATE: &str = "heap.copies.state";

/// Bytes that media lose together, and that share a checksum in the backup.
pub(crate) const PAGE: u64 = 4096;

/// The extents of a region.
pub(crate) fn areas(region: &Region) -> impl Iterator<Item = std::ops::Range<u64>> {
    region.areas().iter().map(|a| a.offset()..a.offset() + a.len())
}
