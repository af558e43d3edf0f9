//! A slot's log: what it has committed and the upkeep has not seen to.

use std::collections::VecDeque;

use pmem::{Block, Intent, Position, Ring};

use crate::inbox::Changed;

/// Kept free in every ring: for a record whose body is in a block, with the end of the ring that it may skip, and for one that makes another void.
pub(crate) const SPARE: u64 = 4 * pmem::LINE;

/// Bytes of versions that a slot publishes before the upkeep is to come by.
pub(crate) const VERSION_BYTES: u64 = 4 << 20;
/// ... and before it publishes no more until that has happened.
pub(crate) const VERSION_BYTES_MAX: u64 = 32 << 20;

/// What a slot has committed and the upkeep has not seen to. Held by the slot's transaction while it commits.
pub(crate) struct Log {
    pub(crate) ring: Ring,
    /// Where each record ends, and its timestamp; bytes of objects that it changes and does not hold.
    pub(crate) records: VecDeque<(Position, u64, u64)>,
    /// New objects that calls have filled, and when.
    pub(crate) filled: Vec<(u64, Block)>,
    /// Blocks with records, and their timestamps.
    pub(crate) spills: VecDeque<(Block, u64)>,
    pub(crate) intents: Vec<(u64, Intent)>,
    /// Objects that have changed, each once (`Header::is_listed`).
    pub(crate) changed: Vec<Changed>,
    /// Bytes of versions published since the last pass was through.
    pub(crate) version_bytes: u64,
    /// Versions that were published, since the store was opened.
    pub(crate) published: u64,
    /// Where the ring ended then.
    pub(crate) begun: Position,
}

impl Log {
    pub(crate) fn new(ring: Ring) -> Self {
        Self {
            begun: ring.head(),
            published: 0,
            ring,
            records: VecDeque::new(),
            spills: VecDeque::new(),
            filled: Vec::new(),
            intents: Vec::new(),
            changed: Vec::new(),
            version_bytes: 0,
        }
    }

    /// Bytes of the ring that records may take.
    pub(crate) fn room(&self) -> u64 {
        self.ring.capacity() - self.ring.unretired()
    }
}
