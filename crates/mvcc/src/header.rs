//! Control headers: what DRAM knows of an object that was changed lately. Found through the allocator's word of its block: 0, or the header's number.
//!
//! Without a header the master is what every snapshot sees. A header is made by the transaction that first locks the object, and given up (`upkeep`) when the
//! master is that again.
//!
//! ```text
//! word -> header { lock, base, chain: newest -> .. -> oldest }     and the master, as it was committed at `base`
//! ```
//!
//! A snapshot `s` sees the newest version at or below `s`, unless the master is newer than that, and at or below `s` itself. With neither the object is not there yet.

use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use pmem::sync::{Mutex, switch_point};

use crate::raw::Chain;

/// It is not locked.
const FREE: u64 = 0;
/// It is being given up, for good.
const DEAD: u64 = u64::MAX;

/// The master was never committed.
pub(crate) const NEVER: u64 = u64::MAX;

#[repr(align(64))]
#[derive(Default)]
pub(crate) struct Header {
    /// `FREE`, 1 + the slot of the transaction that writes the object, or `DEAD`.
    lock: AtomicU64,
    /// When that was committed which the master holds; 0: before every snapshot there is.
    base: AtomicU64,
    pub(crate) chain: Chain,
    /// It is on a list for the upkeep, once: the thread that sets this adds it, and only the upkeep clears it, taking it from there. It is not given up
    /// meanwhile.
    pub(crate) is_listed: AtomicBool,
    /// It is on the list of objects which snapshots see. For the upkeep.
    pub(crate) is_pinned: AtomicBool,
    /// How often it was given back: one on that list may be another object's by now. For the upkeep.
    pub(crate) uses: AtomicU32,
}

/// The holder of an object's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    None,
    Slot(usize),
    /// Its header is being given up: look for another.
    Dead,
}

impl Header {
    #[inline]
    pub(crate) fn owner(&self) -> Owner {
        owner(self.lock.load(Acquire))
    }

    #[inline]
    pub(crate) fn try_lock(&self, slot: usize) -> Result<(), Owner> {
        switch_point();
        self.lock.compare_exchange(FREE, slot as u64 + 1, AcqRel, Acquire).map(|_| ()).map_err(owner)
    }

    pub(crate) fn unlock(&self) {
        self.lock.store(FREE, Release);
        switch_point();
    }

    /// For the upkeep: no transaction locks it any more.
    pub(crate) fn try_kill(&self) -> bool {
        self.lock.compare_exchange(FREE, DEAD, AcqRel, Acquire).is_ok()
    }

    #[inline]
    pub(crate) fn base(&self) -> u64 {
        self.base.load(Acquire)
    }

    pub(crate) fn set_base(&self, stamp: u64) {
        self.base.store(stamp, Release);
    }

    /// When it was changed last, and whether that freed it. For the holder of the lock, and for validation.
    #[inline]
    pub(crate) fn newest(&self) -> (u64, bool) {
        // A version that is kept for a snapshot may be older than the master.
        let base = self.base();
        self.chain.newest().filter(|newest| base == NEVER || newest.0 >= base).unwrap_or((base, false))
    }
}

#[inline]
fn owner(lock: u64) -> Owner {
    match lock {
        FREE => Owner::None,
        DEAD => Owner::Dead,
        slot => Owner::Slot((slot - 1) as usize),
    }
}

/// All headers. They never move; their numbers are used again.
pub(crate) struct Headers {
    /// Each twice as many as the one before.
    levels: [OnceLock<Box<[Header]>>; LEVELS],
    made: AtomicU32,
    free: Mutex<Vec<u32>>,
}

/// Headers of the first level.
const FIRST: u32 = 1024;
const LEVELS: usize = 22;
/// As many as the levels hold, 0 among them.
const NUMBERS_MAX: u32 = ((1 << LEVELS) - 1) * FIRST;

impl Default for Headers {
    fn default() -> Self {
        // 0 says that there is none.
        Self { levels: [const { OnceLock::new() }; LEVELS], made: AtomicU32::new(1), free: Mutex::default() }
    }
}

impl Headers {
    #[inline]
    pub(crate) fn get(&self, number: u32) -> &Header {
        let level = (number / FIRST + 1).ilog2();
        let first = ((1 << level) - 1) * FIRST;
        let size = FIRST << level;
        let headers = &self.levels[level as usize];
        &headers.get_or_init(|| (0..size).map(|_| Header::default()).collect())[(number - first) as usize]
    }

    /// A header that slot `slot` has locked, and no thread can find. `None` when there are as many as numbers.
    pub(crate) fn take(&self, slot: usize, base: u64) -> Option<u32> {
        let number = match self.free.lock().pop() {
            Some(number) => number,
            None => self.made.fetch_update(Relaxed, Relaxed, |made| (made < NUMBERS_MAX).then_some(made + 1)).ok()?,
        };
        let header = self.get(number);
        header.set_base(base);
        header.lock.store(slot as u64 + 1, Release);
        Some(number)
    }

    /// Gives a header back that no thread can find any more.
    pub(crate) fn give_back(&self, number: u32) {
        let header = self.get(number);
        debug_assert!(header.chain.is_empty());
        debug_assert!(!header.is_listed.load(Acquire));
        header.is_pinned.store(false, Relaxed);
        header.uses.fetch_add(1, Relaxed);
        self.free.lock().push(number);
    }

    /// Versions in all chains, and in the longest. For the upkeep.
    pub(crate) fn versions(&self) -> (u64, u64) {
        let lengths = (1..self.made.load(Relaxed)).map(|number| self.get(number).chain.len());
        lengths.fold((0, 0), |(all, longest), len| (all + len, longest.max(len)))
    }

    /// How many are in use.
    pub(crate) fn used(&self) -> u64 {
        u64::from(self.made.load(Relaxed) - 1) - self.free.lock().len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_stay_where_they_are() {
        let headers = Headers::default();
        let all: Vec<u32> = (0..5000).map(|n| headers.take(n, n as u64).unwrap()).collect();
        for (n, &number) in all.iter().enumerate() {
            let header = headers.get(number);
            assert_eq!((header.owner(), header.base()), (Owner::Slot(n), n as u64));
        }
        assert_eq!(headers.used(), 5000);
        headers.give_back(all[7]);
        assert_eq!((headers.take(1, 0), headers.used()), (Some(all[7]), 5000));
    }

    #[test]
    fn a_dead_header_is_nobodys() {
        let headers = Headers::default();
        let header = headers.get(headers.take(3, 0).unwrap());
        assert_eq!(header.try_lock(4), Err(Owner::Slot(3)));
        assert!(!header.try_kill());
        header.unlock();
        assert!(header.try_kill());
        assert_eq!(header.try_lock(4), Err(Owner::Dead));
    }
}
