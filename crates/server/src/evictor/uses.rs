//! How lately, or how often, keys were used: a number for each place of a table, which several keys may share. A key that shares its place with one in use stays longer than it should.
//!
//! The table doubles as keys come. A key of place `p` of `n` then has place `p` or `p + n`, and both get what `p` had: so nothing moves, and no key need be known.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicUsize};

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Places at first, and how often they may double: 64 Mi places are 256 MiB.
const FIRST: usize = 1 << 14;
const DOUBLINGS: usize = 12;

/// How often keys are used is counted in 8 bits, as Redis does: a new key begins with so much.
const NEW: u32 = 5;
const MOST: u32 = 255;
/// Beside a count: it is known. And: of one read that may have found no key, so the command that writes it next makes it.
const KNOWN: u32 = 1 << 8;
const READ_ONCE: u32 = 1 << 9;

/// How counts grow and fall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frequency {
    /// The greater, the more uses a count stands for (`lfu-log-factor`).
    pub(super) log_factor: u32,
    /// Minutes in which a count falls by one; it never does if it is 0 (`lfu-decay-time`).
    pub(super) decay_minutes: u32,
}

#[derive(Debug)]
pub(super) struct Uses {
    seed: u64,
    capacity: AtomicUsize,
    /// The first has [`FIRST`] places, each other one as many as all before it.
    parts: [OnceLock<Box<[AtomicU32]>>; DOUBLINGS + 1],
}

impl Uses {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, capacity: 0.into(), parts: [const { OnceLock::new() }; DOUBLINGS + 1] }
    }

    fn cell(&self, key: &[u8]) -> Option<&AtomicU32> {
        let capacity = self.capacity.load(Acquire);
        self.at(xxh3_64_with_seed(key, self.seed) as usize & capacity.checked_sub(1)?)
    }

    fn at(&self, index: usize) -> Option<&AtomicU32> {
        let part = (index / FIRST).checked_ilog2().map_or(0, |log| log as usize + 1);
        let before = if part == 0 { 0 } else { FIRST << (part - 1) };
        self.parts.get(part)?.get()?.get(index - before)
    }

    /// Has at least as many places as there are keys, if it may. One thread at a time calls this.
    pub(super) fn grow(&self, keys: u64) {
        loop {
            let capacity = self.capacity.load(Relaxed);
            let part = (capacity / FIRST).checked_ilog2().map_or(0, |log| log as usize + 1);
            let Some(next) = self.parts.get(part).filter(|_| (capacity as u64) < keys.max(1)) else { return };
            let copied = |index| AtomicU32::new(self.at(index).map_or(0, |used| used.load(Relaxed)));
            let count = capacity.max(FIRST);
            let _ = next.set((0..count).map(copied).collect());
            self.capacity.store(capacity + count, Release);
        }
    }

    // ---- lately -----------------------------------------------------------------------------------------------

    /// A key was used at a moment.
    pub(super) fn note_moment(&self, key: &[u8], moment: u32) {
        if let Some(cell) = self.cell(key).filter(|cell| cell.load(Relaxed) != moment) {
            cell.store(moment, Relaxed);
        }
    }

    /// When it was used last; 0 if not since this began.
    pub(super) fn moment(&self, key: &[u8]) -> u32 {
        self.cell(key).map_or(0, |cell| cell.load(Relaxed))
    }

    // ---- often ------------------------------------------------------------------------------------------------

    /// A key was read or written; `random` decides whether that is counted. The count is kept with the minute at which it was true.
    pub(super) fn note_use(&self, key: &[u8], writes: bool, minute: u32, random: u64, by: Frequency) {
        let Some(cell) = self.cell(key) else { return };
        let was = cell.load(Relaxed);
        let count = decayed(was, minute, by);
        let base = u64::from(count.saturating_sub(NEW)) * u64::from(by.log_factor) + 1;
        let (count, flags) = match was {
            0 if !writes => (NEW, KNOWN | READ_ONCE),
            0 => (NEW, KNOWN),
            was if writes && was & READ_ONCE != 0 => (NEW, KNOWN),
            _ => ((count + u32::from(random.is_multiple_of(base))).min(MOST), KNOWN),
        };
        let is = (minute & 0xffff) << 16 | flags | count;
        if is != was {
            cell.store(is, Relaxed);
        }
    }

    /// A key is used so often, whatever was known of it.
    pub(super) fn set_count(&self, key: &[u8], count: u8, minute: u32) {
        if let Some(cell) = self.cell(key) {
            cell.store((minute & 0xffff) << 16 | KNOWN | u32::from(count), Relaxed);
        }
    }

    /// How often it was used, up to 255; 0 if not since this began.
    pub(super) fn count(&self, key: &[u8], minute: u32, by: Frequency) -> u32 {
        self.cell(key).map_or(0, |cell| decayed(cell.load(Relaxed), minute, by))
    }

    /// A key is gone.
    pub(super) fn forget(&self, key: &[u8]) {
        if let Some(cell) = self.cell(key) {
            cell.store(0, Relaxed);
        }
    }

    /// Numbers of one kind are none of the other.
    pub(super) fn clear(&self) {
        self.parts.iter().filter_map(OnceLock::get).flatten().for_each(|cell| cell.store(0, Relaxed));
    }
}

fn decayed(used: u32, minute: u32, by: Frequency) -> u32 {
    let passed = minute.wrapping_sub(used >> 16) & 0xffff;
    (used & MOST).saturating_sub(passed.checked_div(by.decay_minutes).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Frequency = Frequency { log_factor: 10, decay_minutes: 1 };

    #[test]
    fn what_was_noted_is_there_when_the_table_has_grown() {
        let uses = Uses::new(7);
        uses.note_moment(b"a", 1); // there is no cell yet
        assert_eq!(uses.moment(b"a"), 0);
        uses.grow(0);
        let keys: Vec<[u8; 4]> = (0..1000_u32).map(u32::to_be_bytes).collect();
        keys.iter().zip(1..).for_each(|(key, moment)| uses.note_moment(key, moment));
        let moments = || keys.iter().map(|key| uses.moment(key)).collect::<Vec<_>>();
        let before = moments();
        for (wanted, capacity) in [(FIRST, FIRST), (FIRST + 1, 2 * FIRST), (FIRST << 5, FIRST << 5)] {
            uses.grow(wanted as u64);
            assert_eq!((uses.capacity.load(Relaxed), moments()), (capacity, before.clone()));
        }
        assert!((0..FIRST << 5).all(|index| uses.at(index).is_some()) && uses.at(FIRST << 5).is_none());
    }

    #[test]
    fn counts_grow_slowly_and_fall_with_time() {
        let uses = Uses::new(7);
        uses.grow(1);
        let count = |minute| uses.count(b"a", minute, USUAL);
        assert_eq!(count(0), 0);
        uses.note_use(b"a", false, 0, 0, USUAL);
        assert_eq!(count(0), NEW, "also in the first minute");
        uses.note_use(b"a", true, 0, 0, USUAL);
        assert_eq!(count(0), NEW, "it was not there, and is new");
        uses.note_use(b"a", true, 0, 0, USUAL);
        assert_eq!(count(0), NEW + 1);
        uses.forget(b"a");
        uses.note_use(b"a", false, 0, 0, USUAL);
        uses.note_use(b"a", false, 0, 0, USUAL);
        assert_eq!(count(0), NEW + 1, "it was there when this began");
        uses.forget(b"a");
        uses.note_use(b"a", true, 0, 0, USUAL);
        // With 10 for a factor one of 11 uses counts at 6, one of 21 at 7.
        (0..1000_u64).for_each(|n| uses.note_use(b"a", false, 0, n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20, USUAL));
        let often = count(0);
        assert!((8..40).contains(&often), "{often}");
        assert_eq!([count(3), count(200)], [often - 3, 0]);
        assert_eq!(uses.count(b"a", 200, Frequency { decay_minutes: 0, ..USUAL }), often);
        (0..10_000).for_each(|_| uses.note_use(b"a", false, 0, 0, USUAL));
        assert_eq!(count(0), MOST);
        uses.clear();
        assert_eq!(count(0), 0);
    }
}
