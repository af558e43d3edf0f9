//! What a store says about itself, and its regions in the pool.

use pmem::Persist;

/// Names of the regions.
pub(crate) const MAIN: &str = "mvcc";
pub(crate) const LOGS: &str = "mvcc.logs";
pub(crate) const STATE: &str = "mvcc.state";
pub(crate) const NAMES: &str = "mvcc.procedures";
pub(crate) const COPIES: &str = "mvcc.copies";

/// Slots of the cell lie on two pages: the loss of one leaves the other.
pub(crate) const PAGE: u64 = 4096;

/// Slots that a store can have.
pub(crate) const SLOTS_MAX: u64 = 1 << 14;
/// Smallest log: a few records and their mark.
const LOG_MIN: u64 = 4096;
pub(crate) const LOG_MAX: u64 = 1 << 30;

/// What the store says about itself, in a cell of the pool. Written last when a store is made: without it there is none.
#[repr(C)]
#[derive(Clone, Copy, Debug, Persist)]
pub(crate) struct State {
    pub(crate) slots: u64,
    pub(crate) log_bytes: u64,
    /// Offset of the block that holds the root pointer.
    pub(crate) root: u64,
    /// K: every commit at or below it is known to be durable. No master holds anything newer.
    pub(crate) durable: u64,
    /// W: masters and bitmaps are exact through it. W <= K.
    pub(crate) written: u64,
    /// Records above W, at or below K: as many have to be there.
    pub(crate) between: u64,
    /// Bytes of the log of copies.
    pub(crate) copy_bytes: u64,
    /// The timestamp of the copies that stand for the calls at or below K, if it is above W.
    pub(crate) copied: u64,
}

impl State {
    /// Whether a store can be so.
    pub(crate) fn is_sound(&self) -> bool {
        let are_bytes = are_log_bytes(self.log_bytes) && are_log_bytes(self.copy_bytes);
        are_slots(self.slots) && are_bytes && self.written <= self.durable && self.copied <= self.durable
    }
}

/// Whether logs can be that long.
pub(crate) fn are_log_bytes(bytes: u64) -> bool {
    (LOG_MIN..=LOG_MAX).contains(&bytes) && bytes.is_multiple_of(pmem::LINE)
}

/// Whether there can be so many slots.
fn are_slots(slots: u64) -> bool {
    (1..=SLOTS_MAX).contains(&slots)
}
