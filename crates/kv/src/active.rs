//! The clock, and who is active: which versions and nodes somebody may still be reading.
//!
//! Everything a reader can reach is freed only when all who were pinned at the moment it was unlinked are gone. That moment is a reading of the clock,
//! and a pin has one from its beginning: so the clock is the epoch of the store's reclamation, too.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64, compiler_fence};

use pmem::sync::{barrier_everywhere, switch_point};

use crate::error::{Error, Result};
use crate::wait::Parked;

/// Alone on its line (two, for processors that fetch pairs).
#[repr(align(128))]
pub(crate) struct OwnLine<T>(pub(crate) T);

impl<T> std::ops::Deref for OwnLine<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// The clock and the seats of transactions.
pub(crate) struct Active {
    /// The last commit timestamp given out.
    clock: OwnLine<AtomicU64>,
    /// Everything up to here is published, or never will be: what readers see. Behind the clock while commits are under way. Used if `ordered`.
    stable: OwnLine<AtomicU64>,
    /// Commits become visible in the order of their timestamps: see `order`.
    ordered: bool,
    /// Seats of threads: each is taken by the thread of its number only. Behind them those that everybody may take, and [`UPKEEP`] for the store's own work.
    seats: Box<[OwnLine<Seat>]>,
    /// How many there are of the first kind.
    threads: usize,
}

/// Seats of threads. A store for fewer transactions than that has none: there it is a limit.
const THREADS: usize = 64;
/// Seats for the store's own work: it never waits for transactions to end, and takes none of theirs.
const UPKEEP: usize = 2;
/// The one of whoever settles, one at a time; the one of whoever sweeps.
const SETTLING: usize = 0;
const SWEEPING: usize = 1;

/// What others see of a transaction.
pub(crate) struct Seat {
    /// 0: free. Else a reading of the clock from before its snapshot, plus one.
    began: AtomicU64,
    /// When it was first tried, as a number; 0: it cannot be told to give way.
    pub(crate) age: AtomicU64,
    /// It must give way: see `locks`.
    pub(crate) wounded: std::sync::atomic::AtomicBool,
    /// Where its thread waits for a lock.
    parked: Parked,
    /// The store's own work: its locks are no reason for a conflict, and it waits for nobody's.
    upkeep: std::sync::atomic::AtomicBool,
    /// Who has this seat and began up to here is too old: see `Options::max_snapshot_age`. 0: nobody was told so since it was taken.
    expired: AtomicU64,
    /// Changes with each leaf that is scanned from here: see [`Pin::looks`].
    chance: AtomicU32,
}

impl Active {
    pub(crate) fn new(clock: u64, seats: usize, ordered: bool) -> Self {
        let seat = || Seat {
            began: 0.into(),
            age: 0.into(),
            wounded: false.into(),
            parked: Parked::default(),
            upkeep: false.into(),
            expired: 0.into(),
            chance: 0.into(),
        };
        let (clock, stable) = (OwnLine(clock.into()), OwnLine(clock.into()));
        // Who takes one without a barrier relies on whoever looks for the oldest to make one for all.
        let threads = if seats >= THREADS && barrier_everywhere() { THREADS } else { 0 };
        let seats = (0..threads + seats + UPKEEP).map(|_| OwnLine(seat())).collect();
        Self { clock, stable, ordered, seats, threads }
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

    /// The state that a reader sees who begins now. Whatever was acknowledged is in it.
    #[inline]
    pub(crate) fn stable(&self) -> u64 {
        if self.ordered { self.stable.load(SeqCst) } else { self.now() }
    }

    /// Who reads as of up to here waits for nobody.
    #[inline]
    pub(crate) fn settled(&self) -> u64 {
        if self.ordered { self.stable.load(SeqCst) } else { 0 }
    }

    /// Everything up to here is published. One at a time: see `order`.
    pub(crate) fn set_stable(&self, stable: u64) {
        self.stable.fetch_max(stable, SeqCst);
    }

    /// Seats of transactions: at least as many as there may be at once.
    #[inline]
    fn transactions(&self) -> usize {
        self.seats.len() - UPKEEP
    }

    /// Takes a seat: from now on nothing that can be reached is freed.
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

    /// On one of the seats that everybody may take.
    fn pin_anywhere(&self, thread: usize) -> Result<Pin<'_>> {
        let max = self.transactions() - self.threads;
        let home = thread % max;
        let all = (home..max).chain(0..home);
        all.map(|seat| self.threads + seat).find_map(|seat| self.take(seat)).ok_or(Error::TooMany { max })
    }

    /// Takes the seat of the calling thread, whose number this is: nobody else stores there while it is free, so it takes no read-modify-write, and no barrier: who looks for the
    /// [`oldest`](Self::oldest) has every thread pass one, behind which he sees this seat taken, or this thread reads what he unlinked before.
    #[inline]
    fn take_own(&self, thread: usize) -> Option<Pin<'_>> {
        let seat = &self.seats[thread];
        // Whoever gave it back, on any thread, has left the rest of it as it was.
        if seat.began.load(Acquire) != 0 {
            return None;
        }
        seat.forget_limit();
        seat.began.store(self.stable() + 1, Release);
        compiler_fence(SeqCst);
        switch_point();
        Some(Pin { active: self, seat: thread, snapshot: self.stable() })
    }

    #[inline]
    fn take(&self, seat: usize) -> Option<Pin<'_>> {
        let taken = &self.seats[seat];
        if taken.began.load(Relaxed) != 0 {
            return None;
        }
        // Announced before the snapshot is taken, and not later than it: who looks for the oldest sees this one, or it begins after that look.
        let announced = self.stable() + 1;
        taken.began.compare_exchange(0, announced, SeqCst, Relaxed).ok()?;
        // Not before: it could be another's seat.
        taken.forget_limit();
        switch_point();
        Some(Pin { active: self, seat, snapshot: self.stable() })
    }

    /// The same, for whoever settles, on a seat of its own.
    pub(crate) fn pin_for_upkeep(&self) -> Result<Pin<'_>> {
        switch_point();
        let pin = self.take(self.transactions() + SETTLING).map_or_else(|| self.pin(), Ok)?;
        pin.seat().upkeep.store(true, Release);
        Ok(pin)
    }

    /// The same, for whoever sweeps; the second one at a time takes a transaction's.
    pub(crate) fn pin_for_sweep(&self) -> Result<Pin<'_>> {
        switch_point();
        self.take(self.transactions() + SWEEPING).map_or_else(|| self.pin(), Ok)
    }

    /// Whatever was unlinked before this reading of the clock is out of everybody's reach.
    pub(crate) fn oldest(&self) -> u64 {
        let now = self.stable();
        // For those on seats of their own: see `take_own`.
        if self.threads > 0 && !barrier_everywhere() {
            return 0;
        }
        let began = self.seats.iter().map(|seat| seat.began.load(SeqCst)).filter(|began| *began != 0);
        began.map(|began| began - 1).fold(now, u64::min)
    }

    /// The same, for who would be gone.
    pub(crate) fn oldest_but(&self, own: Option<&Pin<'_>>) -> u64 {
        let now = self.stable();
        let others = self.seats.iter().enumerate().filter(|(seat, _)| own.is_none_or(|own| own.seat != *seat));
        let began = others.map(|(_, seat)| seat.began.load(SeqCst)).filter(|began| *began != 0);
        began.map(|began| began - 1).fold(now, u64::min)
    }

    /// How many transactions are active, and the oldest snapshot.
    pub(crate) fn census(&self) -> (usize, Option<u64>) {
        let began = || self.seats.iter().map(|seat| seat.began.load(Relaxed));
        let active = began().take(self.transactions()).filter(|began| *began != 0).count();
        (active, began().filter(|began| *began != 0).min().map(|began| began - 1))
    }

    /// The oldest snapshot of a transaction.
    pub(crate) fn oldest_snapshot(&self) -> Option<u64> {
        let began = self.seats.iter().take(self.transactions()).map(|seat| seat.began.load(SeqCst));
        began.filter(|began| *began != 0).min().map(|began| began - 1)
    }

    #[inline]
    pub(crate) fn seat(&self, seat: usize) -> &Seat {
        &self.seats[seat]
    }

    /// Tells all that began before `limit` that they are too old; says how many were not told before.
    ///
    /// Never one that begins when this has returned: who takes a seat forgets what was told there, whatever the limit was. The clock is ahead of what a later one
    /// begins at while commits are under way, so that its beginning alone does not tell. Whoever takes a seat meanwhile is told if he began before the limit, or not:
    /// as if he had begun before this, or after.
    pub(crate) fn expire(&self, limit: u64) -> usize {
        let began = |seat: &Seat| seat.began.load(Acquire);
        let old = self.seats.iter().map(|seat| (seat, began(seat))).filter(|(_, began)| (1..=limit).contains(began));
        old.filter(|(seat, began)| {
            switch_point();
            seat.expired.fetch_max(limit, AcqRel) < *began
        })
        .count()
    }
}

impl Seat {
    /// What its last holder was told does not concern the next one.
    #[inline]
    fn forget_limit(&self) {
        if self.expired.load(Relaxed) != 0 {
            self.expired.store(0, Relaxed);
        }
    }

    /// Tells it to give way, wherever it waits.
    pub(crate) fn wound(&self) {
        self.wounded.store(true, Release);
        self.parked.wake();
    }

    pub(crate) fn is_upkeep(&self) -> bool {
        self.upkeep.load(Acquire)
    }

    pub(crate) fn parked(&self) -> &Parked {
        &self.parked
    }
}

/// A seat, taken. Its holder reads what was committed up to `snapshot`.
pub(crate) struct Pin<'a> {
    active: &'a Active,
    pub(crate) seat: usize,
    pub(crate) snapshot: u64,
}

impl Pin<'_> {
    #[inline]
    pub(crate) fn seat(&self) -> &Seat {
        &self.active.seats[self.seat]
    }

    /// Whether it was told that it is too old.
    #[inline]
    pub(crate) fn is_expired(&self) -> bool {
        let limit = self.seat().expired.load(Relaxed);
        limit != 0 && self.seat().began.load(Relaxed) <= limit
    }

    /// True of one leaf in 16 that its holder scans, of the seat's first one among them: in no pattern that a row of scans could have, too.
    pub(crate) fn looks(&self) -> bool {
        let chance = &self.seat().chance;
        let now = chance.load(Relaxed);
        chance.store(now.wrapping_mul(0x915f_77f5).wrapping_add(0x6b79_31b5), Relaxed);
        now >> 28 == 0
    }

    /// Stands at an earlier reading of the clock than now. Nothing that was reached before may be used any more.
    pub(crate) fn renew_at(&mut self, snapshot: u64) {
        self.seat().began.store(snapshot + 1, SeqCst);
        self.snapshot = snapshot;
    }

    /// Sees what is committed by now. Nothing that was reached before may be used any more, hence `&mut`.
    pub(crate) fn renew(&mut self) {
        self.seat().began.store(self.active.stable() + 1, SeqCst);
        self.snapshot = self.active.stable();
    }
}

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        let seat = self.seat();
        if seat.age.load(Relaxed) != 0 {
            seat.age.store(0, Relaxed);
        }
        if seat.wounded.load(Relaxed) {
            seat.wounded.store(false, Relaxed);
        }
        if seat.upkeep.load(Relaxed) {
            seat.upkeep.store(false, Relaxed);
        }
        seat.began.store(0, Release);
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
        assert_eq!(own.seat == mine, has_own);
        // Nobody else takes it, and the others are for all.
        let others: Vec<_> = (usize::from(!has_own)..THREADS).map(|_| active.pin().unwrap()).collect();
        assert!(others.iter().all(|pin| pin.seat >= active.threads));
        assert!(matches!(active.pin(), Err(Error::TooMany { max: THREADS })));
        std::thread::scope(|threads| {
            let there = threads.spawn(|| active.pin().map(|pin| (pin.seat, pmem::thread_number())));
            assert!(there.join().unwrap().is_ok_and(|(seat, thread)| seat == thread) || active.threads == 0);
            threads.spawn(|| drop(own)).join().unwrap();
        });
        assert_eq!(active.census().0, others.len());
        assert_eq!(active.pin().unwrap().seat == mine, has_own);
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
        for seats in [2, THREADS] {
            let active = Active::new(5, seats, true);
            active.tick(); // a commit under way: the clock is ahead of what the next one sees
            for limit in [active.now(), active.now() + 1, u64::MAX] {
                let open = active.pin().unwrap();
                let elsewhere: Vec<_> = (1..seats).map(|_| active.pin().unwrap()).collect();
                assert_eq!((active.expire(limit), active.expire(limit)), (seats, 0), "each is told once");
                assert!(elsewhere.iter().chain([&open]).all(Pin::is_expired));
                drop((open, elsewhere));
                let later: Vec<_> = (0..seats).map(|_| active.pin().unwrap()).collect();
                assert!(!later.iter().any(Pin::is_expired), "of {seats}, limit {limit}");
                assert_eq!(active.expire(5), 0, "they see that, and did not begin before it");
                drop(later);
            }
        }
    }

    /// Real threads: one tells all that began before, while another gives its seat back and takes one, again and again.
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
        // The store's own work has seats of its own, and leaves theirs alone.
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
