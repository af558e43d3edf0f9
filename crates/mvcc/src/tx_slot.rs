//! Which transactions run, and which are about to commit: two words of each slot, on lines of their own, which other threads read and do not write.
//!
//! **Running.** A transaction slot says "this transaction may have found anything that could be found at timestamp `a` or later". It is taken *before* the snapshot is read off the clock: a
//! thread that scans the transaction slots and misses one knows that its snapshot is no older than the clock at the scan (both are sequentially consistent). So a master is
//! overwritten, and a version given up, only once every transaction slot is at or above a timestamp that was drawn after they had gone out of reach.
//!
//! **Preparing.** A commit is announced before its timestamp is drawn, and taken back when its versions can be found, or never will be. A thread that has a snapshot at or
//! above that timestamp, and meets an object that the commit has locked, waits: it has to see the commit, or to know that it failed (TimeStone §3.5). Transactions
//! that wait for each other do so for smaller timestamps only, and no transaction waits for anything else while preparing.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Release, SeqCst},
};
use std::time::Duration;

use pmem::sync::{park_while, switch_point, wait_point};
use tx::{Clock, CounterClock, Error, Result, Slots};

use crate::failpoints::{Failpoints, Step};

/// A commit is announced; its timestamp is about to be drawn.
const UNDRAWN: u64 = u64::MAX;

#[repr(align(128))]
#[derive(Default)]
struct Words {
    /// 0, or 1 + the timestamp.
    running: AtomicU64,
    /// 0, `UNDRAWN`, or the timestamp.
    preparing: AtomicU64,
}

/// The clock, and what the slots say.
pub(crate) struct TxSlots {
    clock: CounterClock,
    slots: Slots,
    words: Box<[Words]>,
    failpoints: Failpoints,
}

/// Looks that only pause, then such that give the processor away; behind them a waiting thread sleeps for a moment.
const SPINS: u32 = 100;
const YIELDS: u32 = 300;
const POLL_INTERVAL: Duration = Duration::from_micros(50);
/// A commit that takes longer stands still: a thread that waits for it gets a conflict.
const NAPS_MAX: u32 = 200_000;

impl TxSlots {
    /// All of them empty.
    pub(crate) fn new(slots: usize, failpoints: Failpoints) -> Self {
        let words = (0..slots).map(|_| Words::default()).collect();
        Self { clock: CounterClock::default(), slots: Slots::new(slots), words, failpoints }
    }

    /// Timestamps from now on are later.
    pub(crate) fn skip(&self, last: u64) {
        self.clock.skip(last);
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn now(&self) -> u64 {
        self.clock.now().get()
    }

    pub(crate) fn tick(&self) -> u64 {
        self.clock.tick().get()
    }

    pub(crate) fn holder(&self, slot: usize) -> Option<usize> {
        self.slots.holder(slot)
    }

    /// A slot for the calling thread. Nothing is held up by it yet.
    #[inline]
    pub(crate) fn claim(&self) -> Result<Claimed<'_>> {
        let slot = self.slots.claim(pmem::thread_number()).ok_or(Error::NoSlot { slots: self.len() })?;
        Ok(Claimed { tx_slots: self, slot })
    }

    /// Whether the slot's transaction is one of the calling thread.
    pub(crate) fn is_own(&self, slot: usize) -> bool {
        self.holder(slot) == Some(pmem::thread_number())
    }

    /// The oldest snapshot that a thread may have, and its slot.
    pub(crate) fn oldest(&self) -> Option<(u64, usize)> {
        let seated = self.words.iter().map(|w| w.running.load(SeqCst)).enumerate().filter(|(_, r)| *r != 0);
        seated.map(|(slot, running)| (running - 1, slot)).min()
    }

    /// Waits until every commit at or below `stamp` is decided that the slot has announced.
    #[inline]
    pub(crate) fn wait_for(&self, slot: usize, stamp: u64) -> Result<()> {
        let word = &self.words[slot].preparing;
        if self.is_undecided(word, stamp) { self.wait_long(word, stamp) } else { Ok(()) }
    }

    #[inline]
    fn is_undecided(&self, word: &AtomicU64, stamp: u64) -> bool {
        let preparing = word.load(SeqCst);
        preparing == UNDRAWN || preparing != 0 && preparing <= stamp
    }

    #[cold]
    fn wait_long(&self, word: &AtomicU64, stamp: u64) -> Result<()> {
        if self.failpoints.skips(Step::WaitPreparing) {
            return Ok(());
        }
        for look in 0..NAPS_MAX {
            if !self.is_undecided(word, stamp) {
                return Ok(());
            }
            match look {
                _ if wait_point() => {}
                0..SPINS => std::hint::spin_loop(),
                SPINS..YIELDS => std::thread::yield_now(),
                _ => {
                    let _ =
                        park_while(std::ptr::from_ref(word).addr(), POLL_INTERVAL, || self.is_undecided(word, stamp));
                }
            }
        }
        Err(Error::Conflict { offset: 0 })
    }

    /// A timestamp through which every commit is decided.
    pub(crate) fn decided(&self) -> u64 {
        let mut decided = self.now();
        for words in &self.words {
            while words.preparing.load(SeqCst) == UNDRAWN {
                if !wait_point() {
                    std::thread::yield_now(); // it is about to be drawn: no thread waits in between
                }
            }
            if let Some(before) = words.preparing.load(SeqCst).checked_sub(1) {
                decided = decided.min(before);
            }
        }
        decided
    }
}

/// A slot, for as long as this is there.
pub(crate) struct Claimed<'s> {
    tx_slots: &'s TxSlots,
    slot: usize,
}

impl<'s> Claimed<'s> {
    #[inline]
    pub(crate) fn slot(&self) -> usize {
        self.slot
    }

    /// Takes the slot's transaction slot. Its snapshot is everything that is committed, or about to be.
    #[inline]
    pub(crate) fn sit(self) -> TxSlot<'s> {
        let snapshot = self.take();
        TxSlot { claimed: self, snapshot }
    }

    #[inline]
    fn take(&self) -> u64 {
        let running = &self.tx_slots.words[self.slot].running;
        if !self.tx_slots.failpoints.skips(Step::SeatFirst) {
            running.store(self.tx_slots.now() + 1, SeqCst);
        }
        switch_point();
        let snapshot = self.tx_slots.now();
        switch_point();
        running.store(snapshot + 1, Release);
        snapshot
    }
}

impl Drop for Claimed<'_> {
    #[inline]
    fn drop(&mut self) {
        self.tx_slots.slots.release(self.slot);
    }
}

/// A running transaction, or one look of a snapshot.
pub(crate) struct TxSlot<'s> {
    /// Given back behind the transaction slot.
    claimed: Claimed<'s>,
    /// What is committed at or below is seen.
    snapshot: u64,
}

impl TxSlot<'_> {
    #[inline]
    pub(crate) fn snapshot(&self) -> u64 {
        self.snapshot
    }

    #[inline]
    pub(crate) fn slot(&self) -> usize {
        self.claimed.slot
    }

    /// Leaves the transaction slot meanwhile, and takes a newer snapshot afterwards. For a transaction that has looked at nothing.
    pub(crate) fn refresh<R>(&mut self, meanwhile: impl FnOnce() -> R) -> R {
        let running = &self.claimed.tx_slots.words[self.claimed.slot].running;
        running.store(0, Release);
        let done = meanwhile();
        self.snapshot = self.claimed.take();
        done
    }

    /// Looks at an older snapshot, which is kept (`snapshot`).
    pub(crate) fn look_at(mut self, snapshot: u64) -> Self {
        self.snapshot = snapshot;
        self
    }

    /// Announces a commit, and draws its timestamp.
    pub(crate) fn announce(&self) -> u64 {
        let tx_slots = self.claimed.tx_slots;
        let word = &tx_slots.words[self.claimed.slot].preparing;
        if !tx_slots.failpoints.skips(Step::AnnounceFirst) {
            word.store(UNDRAWN, SeqCst);
            switch_point();
        }
        let stamp = tx_slots.tick();
        switch_point();
        word.store(stamp, SeqCst);
        stamp
    }

    /// The commit is decided: what it wrote can be found, or never will be.
    pub(crate) fn decide(&self) {
        self.claimed.tx_slots.words[self.claimed.slot].preparing.store(0, Release);
        switch_point();
    }
}

impl Drop for TxSlot<'_> {
    #[inline]
    fn drop(&mut self) {
        self.claimed.tx_slots.words[self.claimed.slot].running.store(0, Release);
        switch_point();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_say_who_runs_and_who_commits() {
        let tx_slots = TxSlots::new(2, Failpoints::default());
        tx_slots.skip(7);
        assert_eq!((tx_slots.oldest(), tx_slots.decided()), (None, 7));
        let first = tx_slots.claim().unwrap().sit();
        assert_eq!(first.snapshot(), 7);
        assert_eq!(first.announce(), 8);
        let second = tx_slots.claim().unwrap().sit();
        assert_eq!(second.snapshot(), 8, "it sees what is about to be committed, and waits for it");
        assert_eq!((tx_slots.oldest(), tx_slots.decided()), (Some((7, first.slot())), 7));
        assert!(tx_slots.wait_for(first.slot(), 7).is_ok());
        first.decide();
        assert_eq!(tx_slots.decided(), 8);
        assert!(tx_slots.wait_for(first.slot(), 8).is_ok());
        drop(first);
        assert_eq!(tx_slots.oldest().map(|o| o.0), Some(8));
    }
}
