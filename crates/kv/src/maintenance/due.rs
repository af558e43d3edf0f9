//! When a checkpoint is due: by how much was written since the last one.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use pmem::sync::CachePadded;

/// Bytes of new records that are worth a checkpoint.
const LEAST: u64 = 4 << 20;

/// So many times what is worth a checkpoint without one: the background thread cannot keep up, or makes none.
const LATE: u64 = 3;
const TOO_LATE: u64 = 6;

pub(super) struct Due {
    /// Bytes of records written since the store was opened, but for the last few of each log; and at the last checkpoint.
    written: CachePadded<AtomicU64>,
    checkpointed: AtomicU64,
    /// How many more are enough for the next one; and always are.
    enough: AtomicU64,
    most: u64,
}

/// How long a checkpoint has been due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lag {
    NotDue,
    Due,
    /// The background thread cannot keep up.
    Late,
    /// It makes none.
    TooLate,
}

impl Due {
    /// After `most` bytes at the latest.
    pub(super) fn new(most: u64) -> Self {
        Self { written: CachePadded(0.into()), checkpointed: 0.into(), enough: most.min(LEAST).into(), most }
    }

    /// So many more were written.
    pub(super) fn add(&self, bytes: u64) -> Lag {
        let written = self.written.fetch_add(bytes, Relaxed) + bytes;
        let behind = written - self.checkpointed.load(Acquire).min(written);
        let enough = self.enough();
        match behind {
            behind if behind < enough => Lag::NotDue,
            behind if behind < LATE * enough => Lag::Due,
            behind if behind < TOO_LATE * enough => Lag::Late,
            _ => Lag::TooLate,
        }
    }

    /// Bytes written by now: what a checkpoint that begins now has, at least.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Acquire)
    }

    /// A durable checkpoint has these.
    pub(super) fn is_checkpointed(&self, written: u64) {
        self.checkpointed.store(written, Release);
    }

    /// So many bytes are live. A small store has checkpoints often: that costs it little, and what waits would be most of its file.
    pub(super) fn adapt(&self, live: u64) {
        self.enough.store((2 * live).max(LEAST).min(self.most), Relaxed);
    }

    /// Bytes that make the next one due.
    pub(super) fn enough(&self) -> u64 {
        self.enough.load(Relaxed)
    }

    /// As much as that can be.
    pub(super) fn most(&self) -> u64 {
        self.most
    }

    #[cfg(test)]
    pub(super) fn behind(&self) -> u64 {
        self.written.load(Acquire) - self.checkpointed.load(Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_due_by_what_was_written_since_the_last_one() {
        let due = Due::new(1000);
        assert_eq!(
            [999, 1, 1999, 1, 3000].map(|bytes| due.add(bytes)),
            [Lag::NotDue, Lag::Due, Lag::Due, Lag::Late, Lag::TooLate]
        );
        due.is_checkpointed(due.written());
        assert_eq!((due.add(10), due.behind()), (Lag::NotDue, 10));
        due.adapt(400); // twice that is less than is ever worth one, and that is more than was asked for
        assert_eq!(due.enough(), 1000);
        let due = Due::new(u64::MAX);
        due.adapt(LEAST);
        assert_eq!(due.enough(), 2 * LEAST);
    }
}
