//! Room that is kept for checkpoints, and for those who take data out: without it nothing is ever freed.
//!
//! A checkpoint writes each leaf that has changed to a new node before the old one is free. **At any time the nodes that are free, and those that fit in free segments,
//! are enough for all leaves, and for the lists that lead there**: so a checkpoint always has its nodes. Not only for leaves that have changed by now: other writers have begun segments whose
//! records will change more and split some, and so will tombstones that go. What a checkpoint has taken comes back when it is done, so until then the nodes count that were free when it
//! began.
//!
//! Behind these, each [`Need`] leaves free what those above it may have ([`kept`]). That holds of what is in segments, too: **a segment is filled by those who could have had it**. A writer
//! remembers for which need its segment was taken; a greater need goes on in it only while as much is free as it would leave, as if it took it then. Else new
//! data would go where a deletion was given room, the next deletion would take the next segment, and in the end all would be full of data, with nothing to be
//! moved and no room to move it to. A follower repeats what its leader has found room for, down to what moves take: the leader of a store leaves a
//! thirty-second more for that. After a restart it is not known for which need a segment was taken, and all ask.
//!
//! So a deletion finds room, whatever fills the store and however: new data stop while `kept(Data)` segments are free, or filled by others only. Those who
//! overwrite have what is between that and `kept(Replace)`, in a small store perhaps nothing, and take out as much as they put in. Those who delete have the
//! next ones, one at least, and their records go by themselves with two checkpoints. Both leave other segments
//! sparser by what they hold, and the rest is for moving: into one free segment the sparsest are emptied, one after the other, each free behind the next checkpoint but one. What is
//! moved takes no more than it did, so that ends with as many free as there were, as long as what is live and the reserve are less than the store. Nothing moves out of a segment that a writer is in: when
//! room is short, one that is full, and that no thread writes to, is left ([`Log::is_filled`](crate::writers::writer::Log::is_filled)), and the rest of others
//! is for all who have the need.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::media::node::per_segment;
use crate::options::Durability;
use crate::space::need::Need;

/// Segments that this need leaves, beside those for nodes, in a store of `count`.
pub(crate) fn kept(need: Need, count: u32) -> u64 {
    let of = |part: u64| u64::from(count) / part;
    // To move things to, for deletions: each begins with segments that are as full as can be.
    let moving = 2 + of(32);
    // One transaction that takes out as much as it can say with a thirty-second of the store.
    let deletions = moving + of(32).max(1);
    match need {
        Need::Checkpoint | Need::Last => 0,
        // One segment is enough to empty others into, one after the other. What a transaction had locked stays behind in them, and goes to one more.
        Need::Rescue => 1,
        // What is moved makes room for them.
        Need::Urgent | Need::Repeat | Need::Move => moving,
        Need::Replace => deletions,
        // Keys that are overwritten, or deleted, here and there leave segments full that have little room each, so it takes some, and room to move things to, before one is empty.
        Need::Data => deletions + of(64),
    }
}

/// What the last look saw. A thread that takes a segment looks.
#[derive(Debug, Default)]
pub(crate) struct Reserve {
    /// Leaves.
    leaves: AtomicU64,
    /// Segments that writers have begun, and may go on in with new data.
    begun: AtomicU64,
    /// Nodes that there are segments for, and those of them that were free behind the last checkpoint.
    nodes: AtomicU64,
    free: AtomicU64,
    /// Nodes that leaves take beside one each, for long fences.
    more: AtomicU64,
    /// Others have to find room for the same data.
    has_followers: bool,
}

impl Reserve {
    pub(crate) fn of(durability: Durability) -> Self {
        Self { has_followers: durability == Durability::Replicated, ..Self::default() }
    }

    /// Segments that this need must leave free, of `all`. `wanted` are those that are asked for.
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
        // A leaf is split once in so many new records. What comes of it is written, and once more before the first is free.
        let new = |segments: u64| segments * segment_bytes / (64 * 32);
        let begun = self.begun.load(Relaxed);
        let to_rewrite = owed(leaves + 2 * new(begun), &self.free);
        let owed = match need {
            Need::Checkpoint => 0,
            Need::Data | Need::Repeat => {
                owed(2 * (leaves + new(begun + u64::from(wanted))) + lists, &self.nodes).max(to_rewrite)
            }
            _ => to_rewrite,
        };
        // Records lie elsewhere in a follower, and may leave more at the ends of segments.
        let followers = if self.has_followers && need == Need::Data { u64::from(all / 32).max(1) } else { 0 };
        (kept(need, all) + followers + owed) as usize
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

    /// There are segments for so many nodes, `free` of them are, and leaves take `more` beside one each.
    pub(crate) fn note_nodes(&self, (all, free): (u64, u64), more: u64) {
        self.more.store(more, Relaxed);
        self.nodes.store(all, Relaxed);
        self.free.store(free, Relaxed);
    }

    /// There are so many leaves.
    pub(crate) fn note_leaves(&self, leaves: u64) {
        self.leaves.store(leaves, Relaxed);
    }
}
