//! What a store counts of itself.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Counts that change rarely enough to be shared.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) conflicts: AtomicU64,
    pub(crate) expired: AtomicU64,
    pub(crate) swept: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Relaxed);
}

/// Counts of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Keys; those that were deleted and are still remembered count, too.
    pub entries: u64,
    /// Commits since it was opened, of transactions that wrote something.
    pub commits: u64,
    /// Attempts that met a conflict, since it was opened.
    pub conflicts: u64,
    /// Transactions that are running now.
    pub active: usize,
    /// The oldest of these reads what was committed up to here.
    pub oldest_snapshot: Option<crate::Timestamp>,
    /// The last commit timestamp given out.
    pub now: crate::Timestamp,
    /// Bytes of memory that the index takes.
    pub index_bytes: u64,
    /// The same without what the next keys get: what is held against [`Options::index_memory`](crate::Options::index_memory).
    pub index_bytes_in_use: u64,
    /// What that may be; [`u64::MAX`] for no limit.
    pub index_bytes_max: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// What these may become ([`pmem::Options::max_size`]).
    pub max_bytes: u64,
    /// Bytes of versions that are needed.
    pub live_bytes: u64,
    /// Bytes of a segment, and how many there are, are free, and hold the index.
    pub segment_bytes: u64,
    /// Segments of the store.
    pub segments: u64,
    /// Segments that nothing is in.
    pub free_segments: u64,
    /// Segments with nodes of the index.
    pub index_segments: u64,
    /// Checkpoints since it was opened.
    pub checkpoints: u64,
    /// Versions moved to free segments, since it was opened.
    pub moved: u64,
    /// Transactions told that they are too old, since it was opened.
    pub expired: u64,
    /// Keys removed because they had expired, since it was opened.
    pub swept: u64,
    /// What the pool counts: barriers, lines, bytes.
    pub pool: pmem::Stats,
}
