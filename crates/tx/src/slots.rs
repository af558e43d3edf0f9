//! Numbered slots, claimed for the length of a transaction.

use std::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// Which of a fixed number of slots are taken, and by which thread. Where there are many, the first half are homes: only the thread of that
/// number claims it, by a plain store, since an atomic read-modify-write would wait for the lines that the thread's last transaction flushed. The
/// others are any thread's: of threads with higher numbers, and for a second transaction of one thread. A thread finds the slot it had last
/// free, so that a slot's memory stays in one cache.
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
pub struct Slots {
    slots: Box<[Slot]>,
    /// The first so many are homes.
    homes: usize,
}

/// With fewer slots than this, a thread could miss one that stands empty.
const MANY: usize = 32;

/// 0, or the holder's number + 1; alone on its lines.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Slot(AtomicU32);

impl Slots {
    /// `count` free slots.
    pub fn new(count: usize) -> Self {
        let homes = if count < MANY { 0 } else { count / 2 };
        Self { slots: (0..count).map(|_| Slot::default()).collect(), homes }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Takes a free slot for the calling thread, whose number this is: no other thread alive has the same.
    #[inline]
    pub fn claim(&self, thread: usize) -> Option<usize> {
        if thread < self.homes {
            let home = &self.slots[thread].0;
            // Acquire: what a thread that had this number before left behind.
            if home.load(Acquire) == 0 {
                home.store(thread as u32 + 1, Relaxed); // no other thread stores here
                return Some(thread);
            }
        }
        self.claim_shared(thread)
    }

    fn claim_shared(&self, thread: usize) -> Option<usize> {
        let shared = &self.slots[self.homes..];
        let first = thread % shared.len().max(1);
        let mut indexes = (first..shared.len()).chain(0..first);
        let claim = |slot: &Slot| {
            slot.0.load(Acquire) == 0 && slot.0.compare_exchange(0, thread as u32 + 1, AcqRel, Acquire).is_ok()
        };
        indexes.find(|&at| claim(&shared[at])).map(|at| self.homes + at)
    }

    /// Gives a slot back.
    #[inline]
    pub fn release(&self, slot: usize) {
        self.slots[slot].0.store(0, Release);
    }

    /// The thread that has the slot.
    pub fn holder(&self, slot: usize) -> Option<usize> {
        self.slots.get(slot)?.0.load(Acquire).checked_sub(1).map(|t| t as usize)
    }
}
