//! What a log says of itself in numbers.

use crate::Lsn;

/// What the log may lose in a crash just now, see [`Options::frequency`](crate::Options::frequency).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VulnerabilityWindow {
    /// Records, at most, ever.
    pub bound: u64,
    /// Records reserved and not durable at this moment.
    pub now: u64,
}

/// Counts of one log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// The oldest record not discarded, or the one to come.
    pub head: Lsn,
    /// The record to come.
    pub next: Lsn,
    /// Everything through here is durable.
    pub forced: Lsn,
    /// Bytes from the persistent head to the end, headers and gaps included.
    pub live_bytes: u64,
    /// Bytes in all segments.
    pub capacity: u64,
    /// Bytes in a segment.
    pub segment_bytes: u64,
    /// How often the log was grown.
    pub growths: u64,
    /// How often space was reclaimed since it was opened: two barriers each.
    pub reclaims: u64,
    /// Raised by every open.
    pub epoch: u32,
}
