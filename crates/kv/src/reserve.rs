//! Room that is kept for checkpoints: without one nothing is ever freed.
//!
//! A checkpoint writes each leaf that has changed to a new node before the old one is free. So the nodes that there are, and those that fit in what is kept back, are
//! enough for all leaves twice, as long as data are accepted; and enough for those that have changed, as long as data may still be deleted.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::core::Core;
use crate::nodes::per_segment;
use crate::settle::Settler;
use crate::space::Need;

/// Segments kept back from data, beside those for nodes, in a store of `count`: keys that are deleted here and there leave segments full that have little room
/// each, so it takes some deleting, and room to move things to, before one is empty.
fn kept_from_data(count: u32) -> u64 {
    4 + u64::from(count) / 16
}

/// What the last look saw. New leaves since are few: who has written some tens of KiB looks.
#[derive(Default)]
pub(crate) struct Reserve {
    /// Leaves, and how many of them have changed since the last checkpoint.
    leaves: AtomicU64,
    changed: AtomicU64,
    /// Nodes that there are segments for, and those of them that are free.
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
        // Lists of leaves, and what comes before the next look.
        let lists = leaves / 32 + 4;
        let more = self.more.load(Relaxed);
        let owed = |leaves_written: u64, there: &AtomicU64| {
            let nodes = leaves_written + leaves_written * more / leaves.max(1) + lists;
            nodes.saturating_sub(there.load(Relaxed)).div_ceil(per)
        };
        let records = u64::from(wanted) * segment_bytes / 64;
        let changed = self.changed.load(Relaxed).saturating_add(records).min(leaves);
        let quarters = |of_four: u64| (kept_from_data(all) * of_four).div_ceil(4);
        let kept = match need {
            Need::Data => kept_from_data(all) + owed(2 * leaves + lists, &self.nodes),
            Need::Replace => quarters(3) + owed(changed, &self.free),
            // Each leaf may lead to something that is moved.
            Need::Move => quarters(3) + owed(leaves, &self.free),
            Need::Urgent => quarters(2) + owed(changed, &self.free),
            // One segment is enough to empty others into, one after the other. What somebody had locked stays behind in them, and goes to one more.
            Need::Rescue => 1 + owed(changed, &self.free),
            Need::Last => owed(changed, &self.free),
            Need::Settle => 0,
        };
        kept as usize
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
        reserve.changed.store(self.index.leaves.changed(), Relaxed);
    }
}
