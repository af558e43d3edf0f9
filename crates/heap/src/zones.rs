//! Which parts of main may differ from the backup.
//!
//! ```text
//! region "heap.zones", per zone:  | mark u64 | a u32 checksum for each 4096 bytes of the backup |
//! ```
//!
//! A zone is *dirty* from before the first write into it until, quiet and applied, it is cleaned: recovery compares dirty zones only. The mark
//! is a word that proves itself: anything but "clean, of this zone of this pool" is dirty, so a damaged mark costs time, never data. A second word, in a region of its
//! own ("heap.marks") and written with every mark, says the same: a zone is clean if both say so. So a page of marks that goes back to what it held earlier costs time,
//! too. (A heap of an earlier build has one word.) Checksums are
//! of the backup's pages at the moment of cleaning, but for pages whose copies differ then (`scrub::sums`); they tell scrubbing which of two copies is wrong.
//!
//! How a writer and a cleaner meet (both sequentially consistent, so one of them sees the other):
//!
//! ```text
//! writer: active[zone] = yes;  state == Dirty ? go on : mark        cleaner: state = Cleaning;  active[zone] in any slot ? back to Dirty : clean
//! ```

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

use pmem::sync::{Mutex, switch_point};
use pmem::{ChecksumKey, Pool};
use tx::{Error, Result};

use crate::counted::steps;
use crate::failpoints::{Failpoints, Step};
use crate::options::Intents;
use crate::raw::{self, Claim};
use crate::regions::PAGE;
use crate::space::Space;

const LEAF: usize = 4096;
const LEAVES: usize = 4096;

const CLEAN: u8 = 0;
const DIRTY: u8 = 1;
const CLEANING: u8 = 2;

/// What a zone's mark says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Main and backup are equal, and the checksums are the backup's.
    Summed,
    /// Main and backup are equal.
    Clean,
    /// They may differ.
    Dirty,
}

pub(crate) struct Zones {
    pool: Pool,
    key: ChecksumKey,
    zone_bytes: u64,
    /// The table on media.
    pub(crate) table: Space,
    /// The second words, eight bytes for each zone; nothing in a heap of an earlier build.
    pub(crate) seconds: Space,
    states: Box<[OnceLock<Box<[AtomicU8]>>]>,
    /// Dirty zones, the one marked first in front. Its lock orders all changes of state.
    dirty: Mutex<VecDeque<u32>>,
    count: AtomicUsize,
    /// When all dirty zones were in use: slots such that one of these was in each of them, and how often each had left.
    busy: Mutex<Vec<(usize, u64)>>,
    max: usize,
    intents: Intents,
    failpoints: Failpoints,
}

/// The zones that a slot's transaction has entered.
#[repr(align(128))]
#[derive(Default)]
pub(crate) struct Active {
    zones: [AtomicU32; 8],
    len: AtomicUsize,
    all: AtomicBool,
    /// How often it has left what it was in.
    left: AtomicU64,
}

impl Active {
    #[inline]
    fn enter(&self, zone: u32) -> bool {
        let len = self.len.load(Relaxed); // ours alone
        if self.zones[..len].iter().any(|z| z.load(Relaxed) == zone) || self.all.load(Relaxed) {
            return false;
        }
        match self.zones.get(len) {
            Some(cell) => {
                cell.store(zone, Relaxed);
                self.len.store(len + 1, SeqCst);
            }
            None => self.all.store(true, SeqCst),
        }
        true
    }

    fn is_in_any(&self) -> bool {
        self.len.load(SeqCst) != 0 || self.all.load(SeqCst)
    }

    fn contains(&self, zone: u32) -> bool {
        let len = self.len.load(SeqCst);
        self.all.load(SeqCst) || self.zones[..len].iter().any(|z| z.load(Relaxed) == zone)
    }

    #[inline]
    pub(crate) fn leave_all(&self) {
        if self.len.load(Relaxed) != 0 {
            self.len.store(0, Release);
            if self.all.load(Relaxed) {
                self.all.store(false, Release);
            }
            self.left.store(self.left.load(Relaxed) + 1, Release); // ours alone
        }
    }
}

impl Zones {
    pub(crate) fn new(
        pool: &Pool,
        zone_bytes: u64,
        recovery_bytes: u64,
        intents: Intents,
        failpoints: Failpoints,
    ) -> Self {
        Self {
            pool: pool.clone(),
            key: pool.checksum_key(zone_bytes),
            zone_bytes,
            table: Space::new(),
            seconds: Space::new(),
            states: (0..LEAVES).map(|_| OnceLock::new()).collect(),
            dirty: Mutex::new(VecDeque::new()),
            count: AtomicUsize::new(0),
            busy: Mutex::new(Vec::new()),
            max: match intents {
                Intents::Zones => (recovery_bytes / zone_bytes).max(1) as usize,
                Intents::Objects => usize::MAX, // recovery does not compare them
            },
            intents,
            failpoints,
        }
    }

    /// Bytes of the table for a heap of `bytes` bytes.
    pub(crate) fn table_bytes(zone_bytes: u64, bytes: u64) -> u64 {
        bytes.div_ceil(zone_bytes) * Self::stride(zone_bytes)
    }

    pub(crate) fn stride(zone_bytes: u64) -> u64 {
        8 + (zone_bytes / PAGE * 4).next_multiple_of(8)
    }

    /// Zones that the table has room for.
    pub(crate) fn capacity(&self) -> u64 {
        self.table.entries(Self::stride(self.zone_bytes))
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.zone_bytes
    }

    /// Dirty zones.
    pub(crate) fn dirty(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// True if recovery would take longer than its budget.
    #[inline]
    pub(crate) fn over_budget(&self) -> bool {
        self.count.load(Relaxed) > self.max
    }

    #[inline]
    fn state(&self, zone: u32) -> Result<&AtomicU8> {
        let leaf = self.states.get(zone as usize / LEAF).ok_or_else(|| self.too_many(zone))?;
        let leaf = leaf.get_or_init(|| (0..LEAF).map(|_| AtomicU8::new(CLEAN)).collect());
        Ok(&leaf[zone as usize % LEAF])
    }

    #[cold]
    fn too_many(&self, zone: u32) -> Error {
        Error::Limit { what: "zones of a heap", found: zone.into(), max: (LEAF * LEAVES) as u64 }
    }

    // ---- marks on media -------------------------------------------------------------------------------------------

    /// Where the zone's mark is.
    pub(crate) fn at(&self, zone: u32) -> Result<u64> {
        self.table.entry(zone.into(), Self::stride(self.zone_bytes)).ok_or_else(|| Error::Limit {
            what: "zones of this heap",
            found: zone.into(),
            max: self.capacity(),
        })
    }

    /// Where the second word is, if there is one.
    fn second(&self, zone: u32) -> Result<Option<u64>> {
        if self.seconds.len() == 0 {
            return Ok(None);
        }
        let missing = || Error::Limit { what: "second marks", found: zone.into(), max: self.seconds.entries(8) };
        self.seconds.entry(zone.into(), 8).ok_or_else(missing).map(Some)
    }

    fn word(&self, zone: u32, mark: Mark) -> u64 {
        match mark {
            Mark::Dirty => 0,
            Mark::Clean => self.checksummed(zone, 1),
            Mark::Summed => self.checksummed(zone, 2),
        }
    }

    fn second_word(&self, zone: u32, mark: Mark) -> u64 {
        if mark == Mark::Dirty { 0 } else { self.checksummed(zone, 3) }
    }

    fn checksummed(&self, zone: u32, kind: u64) -> u64 {
        self.key.checksum(&[u64::from(zone).to_le_bytes(), kind.to_le_bytes()].concat()) | 1
    }

    /// What the media say.
    pub(crate) fn mark(&self, zone: u32) -> Result<Mark> {
        let stored = self.stored(self.at(zone)?)?;
        if let Some(second) = self.second(zone)?
            && self.stored(second)? != self.second_word(zone, Mark::Clean)
        {
            return Ok(Mark::Dirty);
        }
        let is = |mark| stored == self.word(zone, mark);
        Ok(if is(Mark::Summed) {
            Mark::Summed
        } else if is(Mark::Clean) {
            Mark::Clean
        } else {
            Mark::Dirty
        })
    }

    /// Whether the first word of its mark says that its checksums are those of the backup as it is.
    pub(crate) fn has_sums(&self, zone: u32) -> Result<bool> {
        Ok(self.stored(self.at(zone)?)? == self.word(zone, Mark::Summed))
    }

    fn stored(&self, at: u64) -> Result<u64> {
        // marks change under the lock of `dirty` only, which callers hold, or before another thread has the heap.
        let stored = raw::bytes(Claim::Marks, self, &self.pool, at, 8)?;
        Ok(stored.try_into().map_or(0, u64::from_le_bytes))
    }

    /// Writes a mark, both words of it, and flushes it. A crash between the two leaves a dirty zone.
    #[track_caller]
    pub(crate) fn set_mark(&self, zone: u32, mark: Mark) -> Result<()> {
        let first = Some((self.at(zone)?, self.word(zone, mark)));
        let second = self.second(zone)?.map(|at| (at, self.second_word(zone, mark)));
        for (at, word) in first.into_iter().chain(second) {
            // as in `mark`.
            raw::bytes_mut(Claim::Marks, self, &self.pool, at, 8)?.copy_from_slice(&word.to_le_bytes());
            self.pool.flush(at, 8)?;
        }
        Ok(())
    }

    /// The checksum kept for a page of the zone.
    pub(crate) fn sum(&self, zone: u32, page: u64) -> Result<u32> {
        let at = self.at(zone)? + 8 + page * 4;
        // as in `mark`.
        let stored = raw::bytes(Claim::Marks, self, &self.pool, at, 4)?;
        Ok(stored.try_into().map_or(0, u32::from_le_bytes))
    }

    /// The checksum of a page with these bytes.
    pub(crate) fn sum_of(&self, bytes: &[u8]) -> u32 {
        self.key.checksum(bytes) as u32
    }

    /// Keeps the checksums of a zone, and flushes them.
    #[track_caller]
    pub(crate) fn set_sums(&self, zone: u32, sums: &[u32]) -> Result<()> {
        let (at, len) = (self.at(zone)? + 8, sums.len() as u64 * 4);
        // as in `mark`.
        let stored = raw::bytes_mut(Claim::Marks, self, &self.pool, at, len)?;
        for (to, sum) in stored.chunks_exact_mut(4).zip(sums) {
            to.copy_from_slice(&sum.to_le_bytes());
        }
        self.pool.flush(at, len)?;
        Ok(())
    }

    // ---- writers ----------------------------------------------------------------------------------------------------

    /// Notes that the slot's transaction writes into these bytes of the line; the zones are dirty, persistently, when this returns. One barrier
    /// if any was not. With intents of objects they are so for others in this process alone, and on media not summed: one barrier if they were.
    #[inline]
    pub(crate) fn enter(&self, active: &Active, at: u64, len: u64) -> Result<()> {
        let (first, last) = (at / self.zone_bytes, (at + len.max(1) - 1) / self.zone_bytes);
        if first == last {
            return self.enter_zone(active, first as u32);
        }
        self.enter_many(active, first as u32..=last as u32)
    }

    #[inline]
    fn enter_zone(&self, active: &Active, zone: u32) -> Result<()> {
        if active.enter(zone) || active.all.load(Relaxed) {
            switch_point();
            if self.state(zone)?.load(SeqCst) != DIRTY {
                self.make_dirty(zone..=zone)?;
            }
        }
        Ok(())
    }

    #[cold]
    fn enter_many(&self, active: &Active, zones: std::ops::RangeInclusive<u32>) -> Result<()> {
        for zone in zones.clone() {
            active.enter(zone);
        }
        for zone in zones.clone() {
            if self.state(zone)?.load(SeqCst) != DIRTY {
                return self.make_dirty(zones);
            }
        }
        Ok(())
    }

    #[cold]
    fn make_dirty(&self, zones: std::ops::RangeInclusive<u32>) -> Result<()> {
        let mut dirty = self.dirty.lock(); // a cleaner, if any, is done when we have it
        let before = dirty.len();
        let mut summed = false;
        for zone in zones {
            if self.state(zone)?.load(SeqCst) != DIRTY {
                match self.intents {
                    Intents::Zones => self.set_mark(zone, Mark::Dirty)?,
                    Intents::Objects if self.mark(zone)? == Mark::Summed => {
                        self.set_mark(zone, Mark::Clean)?;
                        summed = true;
                    }
                    Intents::Objects => {}
                }
                dirty.push_back(zone);
            }
        }
        if dirty.len() == before {
            return Ok(());
        }
        if self.intents == Intents::Objects {
            if summed && let Err(e) = self.pool.drain() {
                dirty.truncate(before); // else another thread could apply there before the sums are void on media
                return Err(e.into());
            }
            for &zone in dirty.range(before..) {
                self.state(zone)?.store(DIRTY, SeqCst);
            }
            self.count.store(dirty.len(), Relaxed);
            return Ok(());
        }
        if self.failpoints.skips(Step::ZoneSeenLate) || self.failpoints.skips(Step::ZoneBarrier) {
            for &zone in dirty.range(before..) {
                self.state(zone)?.store(DIRTY, SeqCst);
            }
        }
        if self.failpoints.skips(Step::ZoneBarrier) {
            return Ok(());
        }
        if let Err(e) = self.pool.drain() {
            dirty.truncate(before);
            return Err(e.into());
        }
        for &zone in dirty.range(before..) {
            self.state(zone)?.store(DIRTY, SeqCst); // only now: seen set before its barrier, another's write could outrun the mark
        }
        self.count.store(dirty.len(), Relaxed);
        Ok(())
    }

    /// Marks zones dirty on media, for recovery to compare them, though intents of objects are the rule. The caller drains.
    #[cold]
    pub(crate) fn mark_anyway(&self, at: u64, len: u64) -> Result<()> {
        let _dirty = self.dirty.lock();
        for zone in at / self.zone_bytes..=(at + len.max(1) - 1) / self.zone_bytes {
            self.set_mark(zone as u32, Mark::Dirty)?;
        }
        Ok(())
    }

    /// Keeps every mark as it is while it is held; `None` if another thread does.
    pub(crate) fn try_hold(&self) -> Option<impl Drop + '_> {
        self.dirty.try_lock()
    }

    // ---- cleaning ---------------------------------------------------------------------------------------------------

    /// Cleans zones that no transaction is in, oldest first, at most `most`. `apply` applies every slot, and while it keeps a slot from
    /// committing shows what that slot is in. `sums` gives the checksums to keep, if any. One barrier beyond those of `apply` for checksums, none
    /// if nothing was dirty.
    pub(crate) fn clean(
        &self,
        most: usize,
        apply: impl FnOnce(&mut dyn FnMut(&Active)) -> Result<()>,
        sums: impl FnMut(u32) -> Result<Option<Vec<u32>>>,
    ) -> Result<usize> {
        let mut dirty = self.dirty.lock();
        let candidates: Vec<u32> = dirty.iter().copied().take(most).collect();
        self.clean_these(&mut dirty, &candidates, apply, sums)
    }

    /// As [`clean`](Self::clean), of zones that none of `active` seems to be in. If there is none, nothing is applied, nor looked for again
    /// before one of those that stood in the way has left.
    pub(crate) fn clean_idle(
        &self,
        most: usize,
        active: &[Active],
        apply: impl FnOnce(&mut dyn FnMut(&Active)) -> Result<()>,
    ) -> Result<usize> {
        let still_in = |&(slot, left): &(usize, u64)| active[slot].left.load(Acquire) == left;
        let wait = {
            let busy = self.busy.lock();
            !busy.is_empty() && busy.iter().all(still_in)
        };
        if wait {
            return Ok(0);
        }
        let mut dirty = self.dirty.lock();
        // How often they had left is read first: a transaction that leaves while we look has left more often.
        let left: Vec<u64> = active.iter().map(|a| a.left.load(Acquire)).collect();
        let (mut idle, mut inside) = (Vec::new(), Vec::<usize>::new());
        for &zone in dirty.iter() {
            let is_in = |slot: &usize| active[*slot].contains(zone) && !self.failpoints.skips(Step::ZoneActive);
            match inside.iter().copied().find(is_in).or_else(|| (0..active.len()).find(is_in)) {
                Some(slot) if inside.contains(&slot) => {}
                Some(slot) => inside.push(slot),
                None => idle.push(zone),
            }
            if idle.len() == most {
                break;
            }
        }
        if idle.is_empty() {
            *self.busy.lock() = inside.into_iter().map(|slot| (slot, left[slot])).collect();
            return Ok(0);
        }
        self.clean_these(&mut dirty, &idle, apply, |_| Ok(None))
    }

    /// Runs `f` while the zone is clean and kept so, if it can be: not while a transaction is in it. Then `None`.
    pub(crate) fn while_clean<R>(
        &self,
        zone: u32,
        active: &[Active],
        apply: impl FnOnce(&mut dyn FnMut(&Active)) -> Result<()>,
        f: impl FnOnce() -> Result<R>,
    ) -> Result<Option<R>> {
        let mut dirty = self.dirty.lock();
        if self.state(zone)?.load(Acquire) != CLEAN {
            if active.iter().any(|a| a.contains(zone)) {
                return Ok(None);
            }
            self.clean_these(&mut dirty, &[zone], apply, |_| Ok(None))?;
        }
        match self.state(zone)?.load(Acquire) {
            CLEAN => f().map(Some),
            _ => Ok(None),
        }
    }

    /// Cleans those of the candidates, which are dirty, that no transaction is in.
    fn clean_these(
        &self,
        dirty: &mut VecDeque<u32>,
        candidates: &[u32],
        apply: impl FnOnce(&mut dyn FnMut(&Active)) -> Result<()>,
        mut sums: impl FnMut(u32) -> Result<Option<Vec<u32>>>,
    ) -> Result<usize> {
        if candidates.is_empty() {
            return Ok(0);
        }
        for &zone in candidates {
            self.state(zone)?.store(CLEANING, SeqCst);
        }
        let mut quiet = candidates.to_vec();
        // A transaction that is in a candidate when its slot has just been applied entered it before it was Cleaning; one that comes later waits for
        // our lock.
        let applied = apply(&mut |active| {
            if active.is_in_any() && !self.failpoints.skips(Step::ZoneActive) {
                quiet.retain(|&zone| {
                    steps::count();
                    !active.contains(zone)
                });
            }
        });
        if applied.is_err() {
            quiet.clear();
        }
        let outcome = applied.and_then(|()| self.clean_marks(&quiet, &mut sums));
        // Should that fail, some marks may be changed: then, too, a transaction that writes there marks anew.
        let mut clean = quiet.iter().peekable(); // in the order of the candidates
        for &zone in candidates {
            steps::count();
            let state = if clean.next_if_eq(&&zone).is_some() { CLEAN } else { DIRTY };
            self.state(zone)?.store(state, SeqCst);
        }
        // Every other one in the list is dirty: states change under its lock.
        dirty.retain(|&zone| {
            steps::count();
            self.state(zone).is_ok_and(|state| state.load(Relaxed) != CLEAN)
        });
        self.count.store(dirty.len(), Relaxed);
        outcome.map(|()| quiet.len())
    }

    fn clean_marks(&self, quiet: &[u32], sums: &mut impl FnMut(u32) -> Result<Option<Vec<u32>>>) -> Result<()> {
        let mut marks = Vec::with_capacity(quiet.len());
        for &zone in quiet {
            let mark = match sums(zone)? {
                Some(sums) => {
                    self.set_sums(zone, &sums)?;
                    Mark::Summed
                }
                None => Mark::Clean,
            };
            marks.push((zone, mark));
        }
        if marks.iter().any(|(_, mark)| *mark == Mark::Summed) {
            self.pool.drain()?; // the checksums, before a mark vouches for them
        }
        for &(zone, mark) in &marks {
            self.set_mark(zone, mark)?; // with this thread's next barrier: until then it costs time at most
        }
        Ok(())
    }

    /// Marks the first zones clean, with these checksums, and all others without. One barrier, and the one of the caller, which says then that the backup can
    /// be used.
    pub(crate) fn clean_all(&self, first: u64, mut sums: impl FnMut(u32) -> Result<Vec<u32>>) -> Result<()> {
        for zone in 0..first {
            let zone = u32::try_from(zone).map_err(|_| self.too_many(u32::MAX))?;
            let sums = sums(zone)?;
            self.set_sums(zone, &sums)?;
            self.set_mark(zone, Mark::Summed)?;
        }
        self.clean_new(first)
    }

    /// Marks the zones from `first` on clean: nothing is in them yet. One barrier.
    pub(crate) fn clean_new(&self, first: u64) -> Result<()> {
        for zone in first..self.capacity() {
            let zone = u32::try_from(zone).map_err(|_| self.too_many(u32::MAX))?;
            self.set_mark(zone, Mark::Clean)?;
        }
        self.pool.drain()?; // marks and copies, before the state says that there is a backup
        Ok(())
    }
}
