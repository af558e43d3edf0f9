//! The records between the last durable one and the next to be reserved: who is how far, and who flushes what (Arcadia §4.3).
//!
//! ```text
//!  ... durable | persistent  complete  reserved  complete  complete | to come ...
//!              forced                                          tail
//! ```
//!
//! A slot for each record in the window holds where the record stands and its state. States only go up: *reserved*; *complete*, in the cache; *persistent*,
//! behind a drain. `forced` follows the persistent ones without a gap: a force through `n` is over once `forced >= n`. Complete records are
//! claimed by the thread that flushes them, range by range, under a lock that is held for the claim alone: several forces are in flight at once.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use pmem::sync::{OwnMutex, switch_point};

/// Records reserved and not yet durable, at most.
pub(crate) const SLOTS: u64 = 1024;

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
}

/// Alone on its lines: what is beside it does not wait for its changes.
#[repr(align(128))]
pub(crate) struct OwnLine<T>(pub(crate) T);

pub(crate) struct Window {
    slots: Box<[Slot]>,
    forced: OwnLine<AtomicU64>,
    /// Through which record somebody flushes, or has flushed.
    claimed: OwnLine<OwnMutex<u64>>,
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
        Self {
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
            forced: OwnLine(AtomicU64::new(forced)),
            claimed: OwnLine(OwnMutex::new(forced)),
        }
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
        self.forced.0.load(Acquire)
    }

    /// The same, in one order with who goes to sleep over it.
    pub(crate) fn forced_by_now(&self) -> u64 {
        self.forced.0.load(SeqCst)
    }

    /// The record has this place. `lsn <= forced + SLOTS`, so that nobody needs what the slot held.
    #[inline]
    pub(crate) fn reserve(&self, lsn: u64, offset: u64, space: u64) {
        let slot = self.slot(lsn);
        slot.offset.store(offset, Relaxed);
        slot.space.store(space, Relaxed);
        slot.word.store(word(lsn, State::Reserved), Release);
    }

    /// The record is so far: by the thread that reserved it, or that claimed it.
    #[inline]
    pub(crate) fn set(&self, lsn: u64, state: State) {
        switch_point();
        self.slot(lsn).word.store(word(lsn, state), Release);
    }

    /// How far the record is, if it is in the window.
    #[inline]
    pub(crate) fn state(&self, lsn: u64) -> Option<State> {
        match self.slot(lsn).word.load(Acquire).wrapping_sub(lsn << 2) {
            1 => Some(State::Reserved),
            2 => Some(State::Complete),
            3 => Some(State::Persistent),
            _ => None,
        }
    }

    /// Takes note of what has become persistent; returns through where everything is durable.
    #[inline]
    pub(crate) fn advance(&self, skip_gaps: Option<u64>) -> u64 {
        switch_point();
        let before = self.forced();
        let mut forced = before;
        while self.state(forced + 1) == Some(State::Persistent) {
            forced += 1;
        }
        if let Some(lsn) = skip_gaps {
            forced = forced.max(lsn);
        }
        if forced > before {
            self.forced.0.fetch_max(forced, SeqCst); // before the look at who sleeps
        }
        forced
    }

    /// Takes on the complete records that nobody flushes yet, up to the first that is not complete.
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
        lsns.for_each(|lsn| window.reserve(lsn, lsn * 100, 100));
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
