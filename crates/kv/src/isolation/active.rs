//! The clock, and which transactions are active: which versions and nodes may still be read.
//!
//! Everything a reader can reach is freed only when all who were pinned at the moment it was unlinked are gone. That moment is a reading of the clock,
//! and a pin has one from its beginning: so the clock is the epoch of the store's reclamation, too.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64, compiler_fence};

use pmem::sync::{CachePadded, barrier_everywhere, switch_point};

use crate::error::{Error, Result};
use crate::threads::wait::Parked;

/// The clock, and a slot for each running transaction.
pub(crate) struct Active {
    /// The last commit timestamp given out.
    clock: CachePadded<AtomicU64>,
    /// Everything up to here is published, or never will be: what readers see. Behind the clock while commits are under way. Used if `ordered`.
    stable: CachePadded<AtomicU64>,
    /// Commits become visible in the order of their timestamps: see `order`.
    ordered: bool,
    /// Slots of threads: each is taken by the thread of its number only. Behind them those that every thread may take, and [`UPKEEP`] for the store's own work.
    tx_slots: Box<[CachePadded<TxSlot>]>,
    /// How many there are of the first kind.
    threads: usize,
}

/// Slots of threads. A store for fewer transactions than that has none: there it is a limit.
const THREADS: usize = 64;
/// Slots for the store's own work: it never waits for transactions to end, and takes none of theirs.
const UPKEEP: usize = 2;
/// The slot of the thread that makes a checkpoint, one at a time; the slot of the thread that sweeps.
const CHECKPOINTING: usize = 0;
const SWEEPING: usize = 1;

/// What others see of a transaction.
pub(crate) struct TxSlot {
    /// 0: free. Else a reading of the clock from before its snapshot, plus one.
    began: AtomicU64,
    /// When it was first tried, as a number; 0: it cannot be told to give way.
    pub(crate) age: AtomicU64,
    /// It must give way: see `locks`.
    pub(crate) wounded: std::sync::atomic::AtomicBool,
    /// Where its thread waits for a lock.
    parked: Parked,
    /// The store's own work: its locks are no reason for a conflict, and it waits for no transaction's.
    upkeep: std::sync::atomic::AtomicBool,
    /// The holder of this transaction slot is too old if it began up to here: see `Options::max_snapshot_age`. 0: no holder was told so since it was taken.
    expired: AtomicU64,
    /// Changes with each leaf that is scanned from here: see [`Pin::looks`].
    chance: AtomicU32,
}

impl Active {
    pub(super) fn new(clock: u64, tx_slots: usize, ordered: bool) -> Self {
        let tx_slot = || TxSlot {
            began: 0.into(),
            age: 0.into(),
            wounded: false.into(),
            parked: Parked::default(),
            upkeep: false.into(),
            expired: 0.into(),
            chance: 0.into(),
        };
        let (clock, stable) = (CachePadded(clock.into()), CachePadded(clock.into()));
        // A thread that takes one without a barrier relies on the thread that looks for the oldest to make one for all.
        let threads = if tx_slots >= THREADS && barrier_everywhere() { THREADS } else { 0 };
        let tx_slots = (0..threads + tx_slots + UPKEEP).map(|_| CachePadded(tx_slot())).collect();
        Self { clock, stable, ordered, tx_slots, threads }
    }

    /// The last commit timestamp given out.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.clock.load(SeqCst)
    }

    /// The next commit timestamp.
    #[inline]
    pub(crate) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, SeqCst) + 1
    }

    /// Goes on above whatever was used before.
    pub(crate) fn raise(&self, clock: u64) {
        self.clock.fetch_max(clock, SeqCst);
        self.stable.fetch_max(clock, SeqCst);
    }

    #[inline]
    pub(crate) fn is_ordered(&self) -> bool {
        self.ordered
    }

    /// The state that a reader sees if it begins now. Whatever was acknowledged is in it.
    #[inline]
    pub(crate) fn stable(&self) -> u64 {
        if self.ordered { self.stable.load(SeqCst) } else { self.now() }
    }

    /// A reader as of a timestamp up to here waits for no writer.
    #[inline]
    pub(crate) fn published(&self) -> u64 {
        if self.ordered { self.stable.load(SeqCst) } else { 0 }
    }

    /// Everything up to here is published. One at a time: see `order`.
    pub(super) fn set_stable(&self, stable: u64) {
        self.stable.fetch_max(stable, SeqCst);
    }

    /// Slots of transactions: at least as many as there may be at once.
    #[inline]
    fn transactions(&self) -> usize {
        self.tx_slots.len() - UPKEEP
    }

    /// Takes a transaction slot: from now on nothing that can be reached is freed.
    #[inline]
    pub(crate) fn pin(&self) -> Result<Pin<'_>> {
        let thread = pmem::thread_number();
        switch_point();
        if thread < self.threads
            && let Some(pin) = self.take_own(thread)
        {
            return Ok(pin);
        }
        self.pin_anywhere(thread)
    }

    /// On one of the transaction slots that every thread may take.
    fn pin_anywhere(&self, thread: usize) -> Result<Pin<'_>> {
        let max = self.transactions() - self.threads;
        let home = thread % max;
        let all = (home..max).chain(0..home);
        all.map(|tx_slot| self.threads + tx_slot).find_map(|tx_slot| self.take(tx_slot)).ok_or(Error::TooMany { max })
    }

    /// Takes the transaction slot of the calling thread, whose number this is: no other thread stores there while it is free, so it takes no read-modify-write,
    /// and no barrier: a thread that looks for the [`oldest`](Self::oldest) has every thread pass one, behind which it sees this transaction slot taken, or
    /// this thread reads what the other unlinked before.
    #[inline]
    fn take_own(&self, thread: usize) -> Option<Pin<'_>> {
        let tx_slot = &self.tx_slots[thread];
        // The pin that gave it back, on any thread, has left the rest of it as it was.
        if tx_slot.began.load(Acquire) != 0 {
            return None;
        }
        tx_slot.forget_limit();
        tx_slot.began.store(self.stable() + 1, Release);
        compiler_fence(SeqCst);
        switch_point();
        Some(Pin { active: self, tx_slot: thread, snapshot: self.stable() })
    }

    #[inline]
    fn take(&self, tx_slot: usize) -> Option<Pin<'_>> {
        let taken = &self.tx_slots[tx_slot];
        if taken.began.load(Relaxed) != 0 {
            return None;
        }
        // Announced before the snapshot is taken, and not later than it: a thread that looks for the oldest sees this one, or it begins after that look.
        let announced = self.stable() + 1;
        taken.began.compare_exchange(0, announced, SeqCst, Relaxed).ok()?;
        // Not before: it could be another's transaction slot.
        taken.forget_limit();
        switch_point();
        Some(Pin { active: self, tx_slot, snapshot: self.stable() })
    }

    /// The same, for the thread that makes a checkpoint, on a transaction slot of its own.
    pub(crate) fn pin_for_upkeep(&self) -> Result<Pin<'_>> {
        switch_point();
        let pin = self.take(self.transactions() + CHECKPOINTING).map_or_else(|| self.pin(), Ok)?;
        pin.tx_slot().upkeep.store(true, Release);
        Ok(pin)
    }

    /// The same, for a thread that sweeps; the second one at a time takes a transaction's.
    pub(crate) fn pin_for_sweep(&self) -> Result<Pin<'_>> {
        switch_point();
        self.take(self.transactions() + SWEEPING).map_or_else(|| self.pin(), Ok)
    }

    /// Whatever was unlinked before this reading of the clock is out of every reader's reach.
    pub(crate) fn oldest(&self) -> u64 {
        let now = self.stable();
        // For those on transaction slots of their own: see `take_own`.
        if self.threads > 0 && !barrier_everywhere() {
            return 0;
        }
        let began = self.tx_slots.iter().map(|tx_slot| tx_slot.began.load(SeqCst)).filter(|began| *began != 0);
        began.map(|began| began - 1).fold(now, u64::min)
    }

    /// The same, as if `own` were gone.
    pub(crate) fn oldest_but(&self, own: Option<&Pin<'_>>) -> u64 {
        let now = self.stable();
        let others =
            self.tx_slots.iter().enumerate().filter(|(tx_slot, _)| own.is_none_or(|own| own.tx_slot != *tx_slot));
        let began = others.map(|(_, tx_slot)| tx_slot.began.load(SeqCst)).filter(|began| *began != 0);
        began.map(|began| began - 1).fold(now, u64::min)
    }

    /// How many transactions are active, and the oldest snapshot.
    pub(crate) fn census(&self) -> (usize, Option<u64>) {
        let began = || self.tx_slots.iter().map(|tx_slot| tx_slot.began.load(Relaxed));
        let active = began().take(self.transactions()).filter(|began| *began != 0).count();
        (active, began().filter(|began| *began != 0).min().map(|began| began - 1))
    }

    /// The oldest snapshot of a transaction.
    pub(crate) fn oldest_snapshot(&self) -> Option<u64> {
        let began = self.tx_slots.iter().take(self.transactions()).map(|tx_slot| tx_slot.began.load(SeqCst));
        began.filter(|began| *began != 0).min().map(|began| began - 1)
    }

    #[inline]
    pub(crate) fn tx_slot(&self, tx_slot: usize) -> &TxSlot {
        &self.tx_slots[tx_slot]
    }

    /// Tells all that began before `limit` that they are too old; says how many were not told before.
    ///
    /// Never one that begins when this has returned: a transaction that takes a transaction slot forgets what was told there, whatever the limit was. The clock
    /// is ahead of what a later one begins at while commits are under way, so that its beginning alone does not tell. A transaction that takes one meanwhile is
    /// told if it began before the limit, or not: as if it had begun before this, or after.
    pub(crate) fn expire(&self, limit: u64) -> usize {
        let began = |tx_slot: &TxSlot| tx_slot.began.load(Acquire);
        let old = self
            .tx_slots
            .iter()
            .map(|tx_slot| (tx_slot, began(tx_slot)))
            .filter(|(_, began)| (1..=limit).contains(began));
        old.filter(|(tx_slot, began)| {
            switch_point();
            tx_slot.expired.fetch_max(limit, AcqRel) < *began
        })
        .count()
    }
}

impl TxSlot {
    /// What its last holder was told does not concern the next one.
    #[inline]
    fn forget_limit(&self) {
        if self.expired.load(Relaxed) != 0 {
            self.expired.store(0, Relaxed);
        }
    }

    /// Tells it to give way, wherever it waits.
    pub(super) fn wound(&self) {
        self.wounded.store(true, Release);
        self.parked.wake();
    }

    pub(crate) fn is_upkeep(&self) -> bool {
        self.upkeep.load(Acquire)
    }

    pub(super) fn parked(&self) -> &Parked {
        &self.parked
    }
}

/// A transaction slot, taken. Its holder reads what was committed up to `snapshot`.
pub(crate) struct Pin<'a> {
    active: &'a Active,
    pub(crate) tx_slot: usize,
    pub(crate) snapshot: u64,
}

impl Pin<'_> {
    #[inline]
    pub(crate) fn tx_slot(&self) -> &TxSlot {
        &self.active.tx_slots[self.tx_slot]
    }

    /// Whether it has expired.
    #[inline]
    pub(crate) fn is_expired(&self) -> bool {
        let limit = self.tx_slot().expired.load(Relaxed);
        limit != 0 && self.tx_slot().began.load(Relaxed) <= limit
    }

    /// True of one leaf in 16 that its holder scans, of the transaction slot's first one among them: in no pattern that a row of scans could have, too.
    pub(crate) fn looks(&self) -> bool {
        let chance = &self.tx_slot().chance;
        let now = chance.load(Relaxed);
        chance.store(now.wrapping_mul(0x915f_77f5).wrapping_add(0x6b79_31b5), Relaxed);
        now >> 28 == 0
    }

    /// Stands at an earlier reading of the clock than now. Nothing that was reached before may be used any more.
    pub(crate) fn renew_at(&mut self, snapshot: u64) {
        self.tx_slot().began.store(snapshot + 1, SeqCst);
        self.snapshot = snapshot;
    }

    /// Sees what is committed by now. Nothing that was reached before may be used any more, hence `&mut`.
    pub(crate) fn renew(&mut self) {
        self.tx_slot().began.store(self.active.stable() + 1, SeqCst);
        self.snapshot = self.active.stable();
    }
}

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        let tx_slot = self.tx_slot();
        if tx_slot.age.load(Relaxed) != 0 {
            tx_slot.age.store(0, Relaxed);
        }
        if tx_slot.wounded.load(Relaxed) {
            tx_slot.wounded.store(false, Relaxed);
        }
        if tx_slot.upkeep.load(Relaxed) {
            tx_slot.upkeep.store(false, Relaxed);
        }
        tx_slot.began.store(0, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_not_younger_than_any_pin() {
        let active = Active::new(5, 4, false);
        let first = active.pin().unwrap();
        assert_eq!((first.snapshot, active.oldest()), (5, 5));
        active.tick();
        let second = active.pin().unwrap();
        assert_eq!((second.snapshot, active.oldest()), (6, 5));
        drop(first);
        assert_eq!(active.oldest(), 6);
        active.tick();
        drop(second);
        assert_eq!(active.oldest(), 7);
    }

    #[test]
    fn a_thread_has_a_seat_of_its_own_and_everybodys() {
        let active = Active::new(1, THREADS, false);
        assert_eq!(active.threads, if barrier_everywhere() { THREADS } else { 0 });
        let mine = pmem::thread_number();
        let has_own = mine < active.threads;
        let own = active.pin().unwrap();
        assert_eq!(own.tx_slot == mine, has_own);
        // No other thread takes it, and the others are for all.
        let others: Vec<_> = (usize::from(!has_own)..THREADS).map(|_| active.pin().unwrap()).collect();
        assert!(others.iter().all(|pin| pin.tx_slot >= active.threads));
        assert!(matches!(active.pin(), Err(Error::TooMany { max: THREADS })));
        std::thread::scope(|threads| {
            let there = threads.spawn(|| active.pin().map(|pin| (pin.tx_slot, pmem::thread_number())));
            assert!(there.join().unwrap().is_ok_and(|(tx_slot, thread)| tx_slot == thread) || active.threads == 0);
            threads.spawn(|| drop(own)).join().unwrap();
        });
        assert_eq!(active.census().0, others.len());
        assert_eq!(active.pin().unwrap().tx_slot == mine, has_own);
    }

    /// What is unlinked, and then not reached by any pin, is not reached by anybody. Real threads: that there is a barrier where it is needed shows on processors only.
    #[test]
    fn nobody_reaches_what_the_oldest_is_behind() {
        use std::sync::atomic::{AtomicBool, AtomicUsize};
        const OBJECTS: usize = 40_000;
        let active = Active::new(1, THREADS, false);
        let freed: Vec<AtomicBool> = (0..OBJECTS).map(|_| false.into()).collect();
        let (linked, done) = (AtomicUsize::new(0), AtomicBool::new(false));
        std::thread::scope(|threads| {
            let readers: Vec<_> = (0..3)
                .map(|_| {
                    threads.spawn(|| {
                        let mut met = 0;
                        while !done.load(Relaxed) {
                            let _pin = active.pin().unwrap();
                            let object = linked.load(Acquire);
                            met += usize::from(freed[object].load(Relaxed));
                        }
                        met
                    })
                })
                .collect();
            let mut unlinked = std::collections::VecDeque::new();
            for object in 1..OBJECTS {
                let old = linked.swap(object, SeqCst);
                unlinked.push_back((old, active.now()));
                active.tick();
                let oldest = active.oldest();
                while let Some((old, _)) = unlinked.pop_front_if(|(_, at)| *at < oldest) {
                    freed[old].store(true, Relaxed);
                }
            }
            done.store(true, Relaxed);
            assert!(readers.into_iter().all(|reader| reader.join().unwrap() == 0));
        });
        assert!(freed.iter().any(|freed| freed.load(Relaxed)));
    }

    #[test]
    fn who_begins_later_is_never_too_old() {
        for tx_slots in [2, THREADS] {
            let active = Active::new(5, tx_slots, true);
            active.tick(); // a commit under way: the clock is ahead of what the next one sees
            for limit in [active.now(), active.now() + 1, u64::MAX] {
                let open = active.pin().unwrap();
                let elsewhere: Vec<_> = (1..tx_slots).map(|_| active.pin().unwrap()).collect();
                assert_eq!((active.expire(limit), active.expire(limit)), (tx_slots, 0), "each is told once");
                assert!(elsewhere.iter().chain([&open]).all(Pin::is_expired));
                drop((open, elsewhere));
                let later: Vec<_> = (0..tx_slots).map(|_| active.pin().unwrap()).collect();
                assert!(!later.iter().any(Pin::is_expired), "of {tx_slots}, limit {limit}");
                assert_eq!(active.expire(5), 0, "they see that, and did not begin before it");
                drop(later);
            }
        }
    }

    /// Real threads: one tells all that began before, while another gives its transaction slot back and takes one, again and again.
    #[test]
    fn who_is_told_while_seats_change_hands_has_begun_before() {
        use std::sync::atomic::AtomicBool;
        for round in 0..200 {
            let active = Active::new(5, 2, true);
            active.tick();
            let (told, go) = (AtomicBool::new(false), std::sync::Barrier::new(2));
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    go.wait();
                    let newly = (0..50).map(|_| active.expire(u64::MAX)).sum::<usize>();
                    assert!(newly <= 50);
                    told.store(true, SeqCst);
                });
                go.wait();
                while !told.load(SeqCst) {
                    let _ = active.pin().unwrap().is_expired();
                }
                assert!(!active.pin().unwrap().is_expired(), "round {round}");
            });
        }
    }

    #[test]
    fn seats_are_limited() {
        let active = Active::new(1, 2, false);
        let pins = [active.pin().unwrap(), active.pin().unwrap()];
        assert!(matches!(active.pin(), Err(Error::TooMany { max: 2 })));
        // The store's own work has transaction slots of its own, and leaves theirs alone.
        let own = [active.pin_for_upkeep().unwrap(), active.pin_for_sweep().unwrap()];
        assert_eq!(active.census(), (2, Some(1)));
        drop(pins);
        let pins = [active.pin().unwrap(), active.pin().unwrap()];
        drop(own);
        assert!(matches!(active.pin(), Err(Error::TooMany { max: 2 })));
        drop(pins);
        assert!(active.pin().is_ok());
    }
}
