//! Who writes which key: first updater wins.
//!
//! A table of words, one for many keys: two keys that share a word are taken for one, which costs a needless conflict in 65,536 (in smaller ones for stores
//! with few transactions). A lock is held from the
//! first write of a key to the end of the transaction.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use pmem::sync::switch_point;

use crate::active::{Active, Pin};
use crate::wait::Wait;

/// Words, at most, and for each transaction there can be.
const STRIPES: usize = 1 << 16;
const EACH: usize = 64;

/// Seat of the writer plus one, or 0.
pub(crate) struct Locks(Box<[AtomicU32]>);

/// Why somebody does not wait any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Somebody older wants something that he has.
    Wounded,
    /// It took too long.
    Patience,
}

/// What came of trying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tried {
    /// It was free.
    Taken,
    /// It was ours already.
    Own,
    /// Somebody else has it.
    Busy,
}

/// Number of a lock; the table takes the lower bits.
#[inline]
pub(crate) fn stripe(hash: u64) -> u32 {
    hash as u32 % STRIPES as u32
}

impl Locks {
    /// Asks for a lock that is about to be taken.
    #[inline]
    pub(crate) fn prefetch(&self, stripe: u32) {
        pmem::prefetch((&raw const self.0[stripe as usize & (self.0.len() - 1)]).cast());
    }

    pub(crate) fn new(transactions: usize) -> Self {
        let count = (transactions * EACH).next_power_of_two().min(STRIPES);
        Self((0..count).map(|_| AtomicU32::new(0)).collect())
    }

    #[inline]
    fn word(&self, stripe: u32) -> &AtomicU32 {
        &self.0[stripe as usize & (self.0.len() - 1)]
    }

    /// The seat of who has it.
    #[inline]
    pub(crate) fn owner(&self, stripe: u32) -> Option<usize> {
        (self.word(stripe).load(Acquire) as usize).checked_sub(1)
    }

    #[inline]
    pub(crate) fn try_lock(&self, stripe: u32, pin: &Pin<'_>) -> Tried {
        switch_point();
        let own = pin.seat as u32 + 1;
        match self.word(stripe).compare_exchange(0, own, AcqRel, Acquire) {
            Ok(_) => Tried::Taken,
            Err(other) if other == own => Tried::Own,
            Err(_) => Tried::Busy,
        }
    }

    /// Waits for the lock until somebody older wants us out of the way, or patience ends.
    ///
    /// Wound-wait (Rosenkrantz, Stearns, Lewis 1978): who is older tells the holder to give way, who is younger waits. So waiting goes from younger to
    /// older only, and there is no circle; the oldest transaction always gets through.
    pub(crate) fn lock(&self, stripe: u32, pin: &Pin<'_>, active: &Active) -> Result<Tried, Stop> {
        let age = pin.seat().age.load(Relaxed);
        let mut wait = Wait::new();
        loop {
            match self.try_lock(stripe, pin) {
                Tried::Busy => {}
                got => return Ok(got),
            }
            if age != 0 && pin.seat().wounded.load(Acquire) {
                return Err(Stop::Wounded);
            }
            if let Some(holder) = self.owner(stripe) {
                let seat = active.seat(holder);
                let other = seat.age.load(Relaxed);
                // A holder that ends just now may hand its wound to the next on its seat, who loses one attempt by it.
                if age != 0 && other > age {
                    seat.wounded.store(true, Release);
                }
            }
            if !wait.again() {
                return Err(Stop::Patience);
            }
        }
    }

    #[inline]
    pub(crate) fn unlock(&self, stripe: u32) {
        self.word(stripe).store(0, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_one_gets_the_lock() {
        let (locks, active) = (Locks::new(4), Active::new(1, 4));
        let (old, young) = (active.pin().unwrap(), active.pin().unwrap());
        old.seat().age.store(1, Relaxed);
        young.seat().age.store(2, Relaxed);
        assert_eq!(locks.try_lock(7, &young), Tried::Taken);
        assert_eq!(locks.try_lock(7, &young), Tried::Own);
        assert_eq!(locks.try_lock(7, &old), Tried::Busy);
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| locks.lock(7, &old, &active));
            while !young.seat().wounded.load(Acquire) {
                std::thread::yield_now();
            }
            locks.unlock(7);
            assert_eq!(waiting.join().unwrap(), Ok(Tried::Taken));
        });
        // And the young one, wounded, does not wait.
        assert_eq!(locks.lock(7, &young, &active), Err(Stop::Wounded));
    }
}
