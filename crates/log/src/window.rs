//! The records between the last durable one and the next to be reserved: how far each record is, and which thread flushes what (Arcadia §4.3).
//!
//! ```text
//!  ... durable | persistent  complete  reserved  complete  complete | to come ...
//!              forced                                          tail
//! ```
//!
//! A slot for each record in the window holds where the record stands and its state. States only go up: *reserved*; *complete*, in the cache; *persistent*,
//! behind a drain. `forced` follows the persistent ones without a gap: a force through `n` is over once `forced >= n`. Complete records are
//! claimed by the thread that flushes them, range by range, under a lock that is held for the claim alone: several forces are in flight at once.
//!
//! A record that goes past the cache is flushed by its own thread alone, so its slot is not written before it is persistent: until then it has no state, and
//! counts as reserved. Its mark is a plain store behind its drain, which orders it: a thread that sees the mark finds the record on media, and whatever that
//! thread stores afterwards to acknowledge it comes later.
//!
//! What stands in `forced` itself is a hint: never more than is durable, and less by what its last writers did not tell, or by a store of an older value that came late. The marks
//! say the rest, and are followed from there. They can be, however old the hint is: a slot is given to a later record when the one it had is durable, so that the
//! later one proves it.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use pmem::sync::{CachePadded, OwnMutex, switch_point};

/// Records reserved and not yet durable, at most.
pub(crate) const SLOTS: u64 = 1024;
/// What is durable is told to all threads once in so many records, by appends that need not tell.
const TELL: u64 = 32;

/// How far a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum State {
    Reserved = 1,
    Complete = 2,
    Persistent = 3,
}

/// Half a line; neighbours in the log are not neighbours here.
#[repr(align(32))]
#[derive(Default)]
struct Slot {
    /// The LSN, and the state in the low bits.
    word: AtomicU64,
    /// Where the record stands, from the start of the pool.
    offset: AtomicU64,
    /// Bytes it takes.
    space: AtomicU64,
    /// What the watermark is to say in front of the barrier that makes this record persistent; 0: it is not written.
    mark: AtomicU64,
}

pub(crate) struct Window {
    slots: Box<[Slot]>,
    forced: CachePadded<AtomicU64>,
    /// Through which record a thread flushes, or has flushed.
    claimed: CachePadded<OwnMutex<u64>>,
}

/// Records that one thread flushes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claimed {
    from: u64,
    to: u64,
}

impl Claimed {
    #[cfg(test)]
    pub(crate) fn new(from: u64, to: u64) -> Self {
        Self { from, to }
    }

    /// The last of them.
    pub(crate) fn to(&self) -> u64 {
        self.to
    }

    /// These, and those behind through the last of `other`.
    pub(crate) fn through(&self, other: Option<&Self>) -> Self {
        Self { from: self.from, to: other.map_or(self.to, |other| other.to.max(self.to)) }
    }

    /// True if all of `other` are among these.
    pub(crate) fn contains(&self, other: &Self) -> bool {
        self.from <= other.from && other.to <= self.to
    }
}

impl Window {
    /// Behind `forced` nothing is reserved.
    pub(crate) fn new(forced: u64) -> Self {
        let window = Self {
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
            forced: CachePadded(AtomicU64::new(forced)),
            claimed: CachePadded(OwnMutex::new(forced)),
        };
        // Every slot is of a record within a lap of those to come, so that the numbers tell which of two is the later one.
        for back in 0..SLOTS {
            let lsn = forced.wrapping_sub(back);
            window.slot(lsn).word.store(word(lsn, State::Persistent), Relaxed);
        }
        window
    }

    #[inline]
    fn slot(&self, lsn: u64) -> &Slot {
        // Two slots share a line: those of records half a window apart.
        let at = lsn % SLOTS;
        &self.slots[(at % (SLOTS / 2) * 2 + at / (SLOTS / 2)) as usize]
    }

    /// Everything through here is durable.
    #[inline]
    pub(crate) fn forced(&self) -> u64 {
        self.follow(self.told())
    }

    /// Everything through here is durable, and more may be.
    #[inline]
    pub(crate) fn told(&self) -> u64 {
        self.forced.0.load(Acquire)
    }

    /// From what is known to be durable, through where everything is.
    #[inline]
    pub(crate) fn follow(&self, known: u64) -> u64 {
        let mut forced = known;
        while self.state(forced + 1) == Some(State::Persistent) {
            forced += 1;
        }
        forced
    }

    /// The record is at this offset. `lsn <= forced + SLOTS`, so that no thread needs what the slot held.
    #[inline]
    pub(crate) fn reserve(&self, lsn: u64, offset: u64, space: u64, mark: u64) {
        let slot = self.slot(lsn);
        slot.offset.store(offset, Relaxed);
        slot.space.store(space, Relaxed);
        slot.mark.store(mark, Relaxed);
        slot.word.store(word(lsn, State::Reserved), Release);
    }

    /// The record's mark will be set soon.
    #[inline]
    pub(crate) fn prepare(&self, lsn: u64) {
        pmem::prefetch_to_write(std::ptr::from_ref(self.slot(lsn)).cast());
    }

    /// This thread has drained the record. Returns through where everything is durable, from what the thread knew to be; tells the others now and then.
    #[inline]
    pub(crate) fn persist(&self, lsn: u64, known: u64) -> u64 {
        self.set(lsn, State::Persistent);
        switch_point();
        let forced = self.follow(known);
        if forced / TELL != known / TELL {
            self.tell(forced);
        }
        forced
    }

    /// A plain store, since a locked instruction would wait for what this thread drains: another's older value may come after it. That tells less.
    #[inline]
    fn tell(&self, forced: u64) {
        if self.forced.0.load(Relaxed) < forced {
            self.forced.0.store(forced, Release);
        }
    }

    /// The record is so far: by the thread that reserved it, or that claimed it.
    #[inline]
    pub(crate) fn set(&self, lsn: u64, state: State) {
        switch_point();
        self.slot(lsn).word.store(word(lsn, state), Release);
    }

    /// How far the record is; none if it is not reserved, or on its way past the cache.
    #[inline]
    pub(crate) fn state(&self, lsn: u64) -> Option<State> {
        match self.slot(lsn).word.load(Acquire).wrapping_sub(lsn << 2).cast_signed() {
            1 => Some(State::Reserved),
            2 => Some(State::Complete),
            // Or its slot is a later record's: then this one was durable before.
            3.. => Some(State::Persistent),
            _ => None,
        }
    }

    /// True if the record, which is reserved, is in the hands of the thread that reserved it: no other thread can do anything about it.
    pub(crate) fn is_held(&self, lsn: u64) -> bool {
        matches!(self.state(lsn), None | Some(State::Reserved))
    }

    /// Takes note of what has become persistent; returns through where everything is durable.
    #[inline]
    pub(crate) fn advance(&self, skip_gaps: Option<u64>) -> u64 {
        switch_point();
        let mut forced = self.forced();
        if let Some(lsn) = skip_gaps {
            forced = forced.max(lsn);
        }
        self.tell(forced);
        forced
    }

    /// Takes on the complete records that no thread flushes yet, up to the first that is not complete.
    pub(crate) fn claim(&self) -> Option<Claimed> {
        let mut claimed = self.claimed.0.lock();
        let from = (*claimed).max(self.forced()) + 1;
        let mut next = from;
        while matches!(self.state(next), Some(State::Complete | State::Persistent)) {
            next += 1;
        }
        *claimed = next - 1;
        (next > from).then_some(Claimed { from, to: next - 1 })
    }

    /// The byte ranges of what was claimed, as long as can be, without what is persistent already.
    pub(crate) fn ranges(&self, claimed: &Claimed) -> impl Iterator<Item = (u64, u64)> {
        let mut lsn = claimed.from;
        let to = claimed.to;
        std::iter::from_fn(move || {
            let mut range: Option<(u64, u64)> = None;
            while lsn <= to {
                let slot = self.slot(lsn);
                if self.state(lsn) == Some(State::Complete) {
                    let (offset, space) = (slot.offset.load(Relaxed), slot.space.load(Relaxed));
                    match &mut range {
                        None => range = Some((offset, space)),
                        Some((start, len)) if *start + *len == offset => *len += space,
                        Some(_) => break,
                    }
                } else if range.is_some() {
                    break;
                }
                lsn += 1;
            }
            range
        })
    }

    /// What the watermark is to say in front of the barrier for what was claimed, if anything. A record among these that is persistent already had its own.
    #[inline]
    pub(crate) fn mark(&self, claimed: &Claimed) -> Option<u64> {
        let mark = |lsn| (self.state(lsn) == Some(State::Complete)).then(|| self.slot(lsn).mark.load(Relaxed));
        (claimed.from..=claimed.to).filter_map(mark).max().filter(|&mark| mark > 0)
    }

    /// What was claimed is persistent. What was so before may have left the window meanwhile, and its slot may be another record's.
    pub(crate) fn persisted(&self, claimed: &Claimed) {
        for lsn in claimed.from..=claimed.to {
            if self.state(lsn) == Some(State::Complete) {
                self.set(lsn, State::Persistent);
            }
        }
    }
}

#[inline]
fn word(lsn: u64, state: State) -> u64 {
    lsn << 2 | state as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reserved(window: &Window, lsns: std::ops::RangeInclusive<u64>) {
        lsns.for_each(|lsn| window.reserve(lsn, lsn * 100, 100, 0));
    }

    #[test]
    fn forced_stops_at_the_first_gap() {
        let window = Window::new(4);
        reserved(&window, 5..=8);
        window.set(6, State::Persistent);
        assert_eq!(window.advance(None), 4);
        window.set(5, State::Complete);
        assert_eq!(window.advance(None), 4);
        window.set(5, State::Persistent);
        assert_eq!(window.advance(None), 6);
    }

    #[test]
    fn claims_are_disjoint_and_end_at_what_is_not_complete() {
        let window = Window::new(0);
        reserved(&window, 1..=6);
        [1, 2, 4].into_iter().for_each(|lsn| window.set(lsn, State::Complete));
        let first = window.claim().expect("two complete");
        assert_eq!(window.ranges(&first).collect::<Vec<_>>(), [(100, 200)]);
        assert!(window.claim().is_none());
        window.set(3, State::Persistent);
        let second = window.claim().expect("the fourth");
        assert_eq!(window.ranges(&second).collect::<Vec<_>>(), [(400, 100)]);
        window.persisted(&second);
        assert_eq!(window.advance(None), 0);
        window.persisted(&first);
        assert_eq!(window.advance(None), 4);
    }

    /// A thread that asks for the record with a number that no thread has told for long finds a later one in its place.
    #[test]
    fn a_later_record_in_its_slot_proves_that_one_durable() {
        for first in [0, 3 * SLOTS + 5, 1 << 40] {
            let window = Window::new(first);
            assert_eq!((window.state(first), window.state(first + 1)), (Some(State::Persistent), None));
            for lsn in first + 1..=first + TELL + 8 {
                assert_eq!(window.persist(lsn, lsn - 1), lsn);
            }
            let (told, forced) = (window.forced.0.load(Relaxed), first + TELL + 8);
            assert!(told < forced && told + TELL > forced, "{told} of {forced}");
            // As many as there may be: the slots of those behind what was told are theirs.
            reserved(&window, forced + 1..=forced + SLOTS);
            assert_eq!(window.forced(), forced);
            assert_eq!(window.advance(None), forced);
            assert!(window.claim().is_none());
            (forced + 1..=forced + SLOTS).for_each(|lsn| window.set(lsn, State::Complete));
            let claimed = window.claim().expect("all of them");
            assert_eq!(claimed, Claimed::new(forced + 1, forced + SLOTS));
            window.persisted(&claimed);
            // An older value comes late.
            window.forced.0.store(told, Relaxed);
            assert_eq!(window.forced(), forced + SLOTS);
        }
    }

    /// A record on its way past the cache has no state, like one that was only reserved: it is waited for.
    #[test]
    fn a_record_without_a_state_is_held() {
        let window = Window::new(7);
        assert!(window.is_held(8));
        reserved(&window, 9..=9);
        assert!(window.is_held(9));
        window.set(9, State::Complete);
        assert!(!window.is_held(9));
        assert!(window.claim().is_none(), "record 8 is before it");
        assert_eq!(window.persist(8, 7), 8);
        assert_eq!(window.claim(), Some(Claimed::new(9, 9)));
    }

    #[test]
    fn a_slot_of_an_earlier_lap_is_nobodys() {
        let window = Window::new(0);
        reserved(&window, 1..=1);
        window.set(1, State::Persistent);
        assert_eq!(window.state(1 + SLOTS), None);
        let mut seen = std::collections::BTreeSet::new();
        assert!((1..=SLOTS).all(|lsn| seen.insert(std::ptr::from_ref(window.slot(lsn)) as usize)));
    }
}
