//! Where leaves are: they never move and are never freed, so that a number always leads to a leaf.

use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::index::leaf::Leaf;
use crate::rows::Rows;

pub(crate) struct Arena {
    leaves: Rows<Leaf>,
    /// A bit for each leaf that has changed since the last checkpoint.
    dirty: Rows<AtomicU64>,
    count: AtomicU32,
}

impl Arena {
    pub(crate) fn new() -> Self {
        Self { leaves: Rows::new(), dirty: Rows::new(), count: 0.into() }
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
        let (word, bit) = (self.dirty.get(leaf / 64), 1 << (leaf % 64));
        word.load(Relaxed) & bit != 0 && word.fetch_and(!bit, AcqRel) & bit != 0
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.leaves.bytes() + self.dirty.bytes()
    }
}
