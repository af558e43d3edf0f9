//! Numbered slots, claimed for the length of a transaction.

use std::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Release},
};

/// Which of a fixed number of slots are taken, and by which thread. A thread finds the slot it had last free, so that a slot's
/// memory stays in one cache.
///
/// ```
/// use tx::Slots;
/// let slots = Slots::new(2);
/// let a = slots.claim(7).unwrap();
/// let b = slots.claim(7).unwrap();
/// assert_ne!(a, b);
/// assert_eq!(slots.claim(7), None);
/// assert_eq!(slots.holder(a), Some(7));
/// slots.release(a);
/// assert_eq!(slots.claim(8), Some(a));
/// ```
#[derive(Debug)]
pub struct Slots(Box<[Slot]>);

/// 0, or the holder's number + 1; alone on its lines.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Slot(AtomicU32);

impl Slots {
    /// `count` free slots.
    pub fn new(count: usize) -> Self {
        Self((0..count).map(|_| Slot::default()).collect())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes a free slot for the thread of that number.
    #[inline]
    pub fn claim(&self, thread: usize) -> Option<usize> {
        // Threads have small numbers: the first guess is right, and costs no division.
        let first = if thread < self.0.len() { thread } else { thread % self.0.len().max(1) };
        if self.try_claim(first, thread) {
            return Some(first);
        }
        (first + 1..self.0.len()).chain(0..first).find(|&at| self.try_claim(at, thread))
    }

    #[inline]
    fn try_claim(&self, at: usize, thread: usize) -> bool {
        self.0.get(at).is_some_and(|slot| {
            slot.0.load(Acquire) == 0 && slot.0.compare_exchange(0, thread as u32 + 1, AcqRel, Acquire).is_ok()
        })
    }

    /// Gives a slot back.
    #[inline]
    pub fn release(&self, slot: usize) {
        self.0[slot].0.store(0, Release);
    }

    /// The thread that has the slot.
    pub fn holder(&self, slot: usize) -> Option<usize> {
        self.0.get(slot)?.0.load(Acquire).checked_sub(1).map(|t| t as usize)
    }
}
