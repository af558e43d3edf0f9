//! Room that is kept for checkpoints: without one nothing is ever freed.
//!
//! A checkpoint writes each leaf that has changed to a new node before the old one is free. **At any time the nodes that are free, and those that fit in free segments,
//! are enough for all leaves, and for the lists that lead there**: so a checkpoint always has its nodes. Not only for leaves that have changed by now: other writers have begun segments whose
//! records will change more, and so will tombstones that go. [`Space::take`](crate::space::Space::take) keeps it so: nobody but a checkpoint gets a segment of these. What a checkpoint has taken
//! comes back when it is done, so until then the nodes count that were free when it began. As long as data are accepted there is room for all leaves twice, however they come to be
//! written, and for those that will be split.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::core::Core;
use crate::nodes::per_segment;
use crate::settle::Settler;
use crate::space::Need;

/// Segments kept back from data, beside those for nodes, in a store of `count`: keys that are deleted here and there leave segments full that have little room
/// each, so it takes some deleting, and room to move things to, before one is empty.
pub(crate) fn kept_from_data(count: u32) -> u64 {
    4 + u64::from(count) / 16
}

/// What the last look saw. Whoever takes a segment looks.
#[derive(Debug, Default)]
pub(crate) struct Reserve {
    /// Leaves.
    leaves: AtomicU64,
    /// Segments that writers have begun, and may go on in.
    begun: AtomicU64,
    /// Nodes that there are segments for, and those of them that were free behind the last checkpoint.
    nodes: AtomicU64,
    free: AtomicU64,
    /// Nodes that leaves take beside one each, for long fences.
    more: AtomicU64,
}

impl Reserve {
    /// Segments that whoever has this need must leave free, of `all`. `wanted` are those that are asked for.
    pub(crate) fn kept(&self, need: Need, wanted: u32, all: u32, segment_bytes: u64) -> usize {
        let per = u64::from(per_segment(segment_bytes));
        let leaves = self.leaves.load(Relaxed);
        // Lists of leaves, and those of leaves that came since.
        let lists = leaves / 32 + 4;
        let more = self.more.load(Relaxed);
        let owed = |leaves_written: u64, there: &AtomicU64| {
            let nodes = leaves_written + leaves_written * more / leaves.max(1) + lists;
            nodes.saturating_sub(there.load(Relaxed)).div_ceil(per)
        };
        // A leaf is split once in so many new records.
        let new = (self.begun.load(Relaxed) + u64::from(wanted)) * segment_bytes / (64 * 32);
        let quarters = |of_four: u64| (kept_from_data(all) * of_four).div_ceil(4);
        let kept = match need {
            Need::Data => kept_from_data(all) + owed(2 * leaves + lists + new, &self.nodes),
            Need::Replace => quarters(3) + owed(leaves, &self.free),
            Need::Move => quarters(3) + owed(leaves, &self.free),
            Need::Urgent => quarters(2) + owed(leaves, &self.free),
            // One segment is enough to empty others into, one after the other. What somebody had locked stays behind in them, and goes to one more.
            Need::Rescue => 1 + owed(leaves, &self.free),
            Need::Last => owed(leaves, &self.free),
            Need::Settle => 0,
        };
        kept as usize
    }

    /// A writer has one more segment that it may go on in, or one less.
    pub(crate) fn note_begun(&self, more: bool) {
        if more {
            self.begun.fetch_add(1, Relaxed)
        } else {
            self.begun.fetch_sub(1, Relaxed)
        };
    }

    /// So many free nodes are about to become a free segment.
    pub(crate) fn note_gone(&self, nodes: u32) {
        // There is one who changes it.
        for count in [&self.nodes, &self.free] {
            count.store(count.load(Relaxed).saturating_sub(nodes.into()), Relaxed);
        }
    }

    pub(crate) fn note_nodes(&self, settler: &Settler, segment_bytes: u64) {
        let (all, free) = settler.nodes.room(segment_bytes);
        let more = settler.long.values().map(|span| u64::from(span - 1)).sum();
        self.more.store(more, Relaxed);
        self.nodes.store(all, Relaxed);
        self.free.store(free, Relaxed);
    }
}

impl Core {
    pub(crate) fn note_leaves(&self) {
        let reserve = &self.space.reserve;
        reserve.leaves.store(self.index.leaf_count(), Relaxed);
    }
}
