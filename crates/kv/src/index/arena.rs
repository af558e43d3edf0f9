//! Where leaves are: they never move and are never freed, so that a number always leads to a leaf.

use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::index::leaf::Leaf;
use crate::rows::Rows;

pub(crate) struct Arena {
    leaves: Rows<Leaf>,
    /// A bit for each leaf that has changed since the last checkpoint.
    dirty: Rows<AtomicU64>,
    /// A bit for each leaf whose versions a scan found far from each other; and how many there are.
    scattered: Rows<AtomicU64>,
    scattered_count: AtomicU64,
    count: AtomicU32,
}

impl Arena {
    pub(crate) fn new() -> Self {
        Self {
            leaves: Rows::new(),
            dirty: Rows::new(),
            scattered: Rows::new(),
            scattered_count: 0.into(),
            count: 0.into(),
        }
    }

    #[inline]
    pub(crate) fn get(&self, leaf: u32) -> &Leaf {
        self.leaves.get(leaf)
    }

    /// One more leaf. One at a time: the caller has the lock of the tree.
    pub(crate) fn add(&self) -> u32 {
        self.count.fetch_add(1, Relaxed)
    }

    #[inline]
    pub(crate) fn mark_dirty(&self, leaf: u32) {
        let (word, bit) = (self.dirty.get(leaf / 64), 1 << (leaf % 64));
        if word.load(Relaxed) & bit == 0 {
            word.fetch_or(bit, AcqRel);
        }
    }

    /// Whether it has changed since the last call.
    pub(crate) fn take_dirty(&self, leaf: u32) -> bool {
        take(&self.dirty, leaf)
    }

    /// Asks for its versions to be written together; how many leaves wait for that by now, or none if this one did already.
    pub(crate) fn mark_scattered(&self, leaf: u32) -> Option<u64> {
        let (word, bit) = (self.scattered.get(leaf / 64), 1 << (leaf % 64));
        let is_new = word.load(Relaxed) & bit == 0 && word.fetch_or(bit, AcqRel) & bit == 0;
        is_new.then(|| self.scattered_count.fetch_add(1, Relaxed) + 1)
    }

    /// Whether that was asked for since the last call.
    pub(crate) fn take_scattered(&self, leaf: u32) -> bool {
        let taken = take(&self.scattered, leaf);
        if taken {
            self.scattered_count.fetch_sub(1, Relaxed);
        }
        taken
    }

    /// For how many it is.
    pub(crate) fn scattered(&self) -> u64 {
        self.scattered_count.load(Relaxed)
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        self.leaves.bytes() + self.dirty.bytes() + self.scattered.bytes()
    }
}

fn take(bits: &Rows<AtomicU64>, leaf: u32) -> bool {
    let (word, bit) = (bits.get(leaf / 64), 1 << (leaf % 64));
    word.load(Relaxed) & bit != 0 && word.fetch_and(!bit, AcqRel) & bit != 0
}
