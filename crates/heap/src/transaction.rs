//! What a transaction does: it hands references out, changes main in place, and commits as its heap's policy says.

use pmem::{Error as PoolError, PPtr};
use tx::{Doom, Error, Isolation, Range, Result, Transaction};

use crate::core::Counters;
use crate::failpoints::Step;
use crate::lock;
use crate::locking::Tx;
use crate::options::{Intents, Policy};
use crate::raw::{self, Claim, Word};
use crate::record::Bytes;
use crate::state::{Held, Set};

/// Lines of an object that are asked for ahead of its lock.
const AHEAD: u64 = 2;

/// Bytes that are asked for of an entry whose length is not known.
const WHOLE: u64 = 18 * pmem::LINE;
/// Most bytes that are asked for at once: more would wait for the first to come.
const ASKED: u64 = 2048;
/// Ranges that are declared together and asked for before they are locked.
const TOGETHER: usize = 32;

/// Largest alignment of a block.
const ALIGN_MAX: u64 = 4096;

impl Tx<'_> {
    /// Makes this transaction a reader of the block in which the bytes lie, and returns where that ends, if there is nothing to say.
    ///
    /// This, and [`claim_at_once`](Self::claim_at_once), are the hot path. No error stands in the way of registers (`Allocator::find_known`).
    #[inline]
    fn share_at_once(&self, ptr: PPtr<u8>, len: u64) -> Option<u64> {
        // The bytes come while their lock is looked for, and taken: no load passes that.
        self.core.pool.prefetch(ptr.offset(), AHEAD);
        let found = self.core.alloc.find_known(ptr, len)?;
        let (block, word) = (found.block(), Word::at(&found));
        let set = &mut *self.state.set.borrow_mut();
        match set.find(word) {
            Some(at) if set.held[at].freed || self.is_elsewhere(&set.held[at]) => return None,
            Some(at) => self.seen(set, at).ok()?,
            None => {
                lock::try_read(word.get()).ok()?;
                if !found.is_current() {
                    lock::end_read(word.get());
                    return None;
                }
                set.push(Held::new(word, block, false));
            }
        }
        Some(block.offset() + block.len())
    }

    fn share(&self, ptr: PPtr<u8>, len: u64) -> Result<u64> {
        if let Some(end) = self.share_at_once(ptr, len) {
            return Ok(end);
        }
        let found = self.core.alloc.find(ptr, len)?;
        self.lock_read(&mut self.state.set.borrow_mut(), &found)?;
        Ok(found.block().offset() + found.block().len())
    }

    /// The bytes, those behind them in the block too if all are asked for; if there is nothing to say.
    #[inline]
    fn look_at_once(&self, ptr: PPtr<u8>, len: u64, all: bool) -> Option<&[u8]> {
        if self.state.doomed.get() {
            return None;
        }
        let end = self.share_at_once(ptr, len)?;
        let len = if all { end - ptr.offset() } else { len };
        // the bytes lie in one live block, whose lock this transaction holds to its end; it writes them through
        // `&mut self` only, which the reference excludes.
        raw::bytes(Claim::Reader, self, &self.core.pool, ptr.offset(), len).ok()
    }

    #[cold]
    #[inline(never)]
    fn look(&self, ptr: PPtr<u8>, len: u64, all: bool) -> Result<&[u8]> {
        self.check()?;
        let end = self.dooming(self.share(ptr, len))?;
        let len = if all { end - ptr.offset() } else { len };
        if let Some(bytes) = self.dooming(self.look_in_entries(ptr, len))? {
            return Ok(bytes);
        }
        // as in `look_at_once`.
        self.dooming(raw::bytes(Claim::Reader, self, &self.core.pool, ptr.offset(), len))
    }

    // ---- changes ----------------------------------------------------------------------------------------------------

    /// Locks the range and prepares for its change, all but old bytes and copies, which ranges get together.
    #[inline]
    fn prepare(&self, set: &mut Set, ptr: PPtr<u8>, len: u64) -> Result<usize> {
        let at = self.claim(set, ptr, len)?;
        if set.held[at].staged && self.core.policy != Policy::Eaw && !self.core.failpoints.skips(Step::StagedFirst) {
            self.core.unstage(set, at)?;
        }
        Ok(at)
    }

    /// The same, whatever of the object is staged.
    #[inline]
    fn claim(&self, set: &mut Set, ptr: PPtr<u8>, len: u64) -> Result<usize> {
        let at = match self.claim_at_once(set, ptr, len) {
            Some(at) => at,
            None => self.lock_write(set, &self.core.alloc.find(ptr, len)?, false)?,
        };
        if self.core.policy == Policy::InPlace {
            let linear = self.core.linear(ptr.offset())?;
            self.core.zones.enter(&self.core.active[self.slot], linear, len)?;
        }
        Ok(at)
    }

    #[inline]
    fn write(&self, ptr: PPtr<u8>, len: u64) -> Result<()> {
        self.core.pool.prefetch(ptr.offset(), AHEAD); // as in `share_at_once`
        let mut set = self.state.set.borrow_mut();
        let set = &mut *set;
        let at = self.prepare(set, ptr, len)?;
        self.tell(set, at, (ptr.offset(), len))
    }

    /// What has to be persistent before the range changes.
    #[inline]
    fn tell(&self, set: &mut Set, at: usize, (offset, len): Bytes) -> Result<()> {
        if set.held[at].fresh || len == 0 || set.held[at].covered {
            return Ok(());
        }
        match self.core.policy {
            Policy::Undo | Policy::InPlace if !self.must_tell(set, at, (offset, len)) => return Ok(()),
            Policy::Undo => {
                set.undo.keep(self.core, self.slot, &mut self.core.open_log(self.slot), &[(offset, len)])?
            }
            Policy::InPlace => self.core.declare(self.slot, &[(offset, len)])?,
            Policy::InPlacePartial => return self.core.cover(self.slot, set, &[(at, (offset, len))]),
            Policy::None | Policy::Eaw => return Ok(()),
        }
        set.held[at].keep(offset, len);
        Ok(())
    }

    /// Whether old bytes are to be kept, or an intent to be told, and they are not yet. New objects need neither. Of the ranges of one object the last few
    /// are known: one too many costs a barrier.
    #[inline]
    fn must_tell(&self, set: &mut Set, at: usize, (offset, len): Bytes) -> bool {
        let held = &set.held[at];
        let wanted = match self.core.policy {
            Policy::Undo => !set.undo.has(offset, len),
            Policy::InPlace => self.core.intents == Intents::Objects,
            Policy::None | Policy::InPlacePartial | Policy::Eaw => false,
        };
        wanted && !held.fresh && len > 0 && !held.has_kept(offset, len)
    }

    // ---- eaw --------------------------------------------------------------------------------------------------------

    /// What this transaction has written of a range, or to a part of it.
    fn look_in_entries(&self, ptr: PPtr<u8>, len: u64) -> Result<Option<&[u8]>> {
        if self.core.policy != Policy::Eaw {
            return Ok(None);
        }
        let (offset, set) = (ptr.offset(), &mut *self.state.set.borrow_mut());
        // the lock is held to the end of the transaction.
        let main = || raw::bytes(Claim::Reader, self, &self.core.pool, offset, len);
        let bytes = set.entries.look((offset, len), main)?;
        Ok(bytes.map(|bytes| raw::entry(self, bytes, len)))
    }

    /// The bytes to be changed, and no others until the next change.
    #[inline]
    fn edit_one(&self, ptr: PPtr<u8>, len: u64, whole: bool) -> Result<&mut [u8]> {
        self.state.set.borrow_mut().entries.tidy();
        self.edit(ptr, len, whole)
    }

    /// The bytes to be changed: of an entry, or of a new object. If `whole`, all of them are overwritten.
    #[inline]
    fn edit(&self, ptr: PPtr<u8>, len: u64, whole: bool) -> Result<&mut [u8]> {
        let (offset, core) = (ptr.offset(), self.core);
        // What is overwritten unseen is stored behind the barrier: its lines come meanwhile.
        core.pool.prefetch(offset, if whole { pmem::lines(offset, len.min(ASKED)) } else { AHEAD });
        let set = &mut *self.state.set.borrow_mut();
        let at = self.claim(set, ptr, len)?;
        let held = &mut set.held[at];
        let in_main = held.fresh && !held.staged && set.saved.last().is_none_or(|saved| at >= saved.held);
        if in_main || len == 0 || core.pool.is_read_only() {
            // as in `written`.
            return raw::bytes_mut(Claim::Writer, self, &core.pool, offset, len);
        }
        let any = std::mem::replace(&mut held.staged, true);
        // this transaction is the writer of the block, to its end.
        let main = || raw::bytes(Claim::Writer, self, &core.pool, offset, len);
        let bytes = set.entries.edit((offset, len), (any, whole), main)?;
        Ok(raw::entry_mut(self, bytes, len))
    }

    /// Bytes of a block that this transaction is the writer of, noted as changed.
    #[inline]
    fn written(&self, ptr: PPtr<u8>, len: u64) -> Result<&mut [u8]> {
        // the bytes lie in one live block, of which this transaction is the writer to its end; its callers' `&mut self`
        // excludes every other reference of its own.
        let bytes = raw::bytes_mut(Claim::Writer, self, &self.core.pool, ptr.offset(), len)?;
        self.state.set.borrow_mut().note_write(ptr.offset(), len);
        Ok(bytes)
    }

    /// Keeps what a range holds from now on beside it until the commit; false if that is not to be.
    #[inline]
    fn stage(&self, ptr: PPtr<u8>, data: &[u8]) -> Result<bool> {
        let (offset, len) = (ptr.offset(), data.len() as u64);
        let mut set = self.state.set.borrow_mut();
        let set = &mut *set;
        // Whole lines are not asked for: they are stored past the cache.
        let end = offset + len;
        [offset, end].iter().filter(|at| !at.is_multiple_of(pmem::LINE)).for_each(|&at| self.core.pool.prefetch(at, 1));
        let at = self.claim(set, ptr, len)?;
        self.tell(set, at, (offset, len))?;
        let again = set.held[at].staged;
        if again && set.stage.is_barred((offset, len)) {
            self.core.unstage(set, at)?;
        }
        let held = &set.held[at];
        if held.fresh || !set.stage.put(offset, data, again) {
            return Ok(false);
        }
        set.held[at].staged = true;
        set.note_write(offset, len);
        Ok(true)
    }

    /// Asks for the lock word of a range, and for its bytes, unless it may be overwritten unseen.
    #[inline]
    fn expect(&self, range: &Range) {
        if !self.core.stages((range.at.offset(), range.len)) {
            self.core.pool.prefetch(range.at.offset(), AHEAD);
        }
        if let Some(found) = self.core.alloc.find_known(range.at, range.len) {
            pmem::prefetch(std::ptr::from_ref(found.word()).cast());
        }
    }

    fn intend_all(&self, ranges: &[Range]) -> Result<()> {
        let mut set = self.state.set.borrow_mut();
        let set = &mut *set;
        let (mut tell, mut cover) = (Vec::new(), Vec::new());
        for some in ranges.chunks(TOGETHER) {
            // All misses at once, before the first lock waits for its own.
            some.iter().for_each(|range| self.expect(range));
            for range in some {
                let at = self.prepare(set, range.at, range.len)?;
                let bytes = (range.at.offset(), range.len);
                if self.core.policy == Policy::InPlacePartial && !set.held[at].covered {
                    cover.push((at, bytes));
                } else if self.must_tell(set, at, bytes) {
                    tell.push((at, bytes));
                }
            }
        }
        if !cover.is_empty() {
            self.core.cover(self.slot, set, &cover)?;
        }
        if tell.is_empty() {
            return Ok(());
        }
        let all: Vec<Bytes> = tell.iter().map(|t| t.1).collect();
        match self.core.policy {
            Policy::Undo => set.undo.keep(self.core, self.slot, &mut self.core.open_log(self.slot), &all)?,
            _ => self.core.declare(self.slot, &all)?,
        }
        for (at, (offset, len)) in tell {
            set.held[at].keep(offset, len);
        }
        Ok(())
    }

    fn allocate(&self, len: u64, align: u64) -> Result<PPtr<u8>> {
        let mut set = self.state.set.borrow_mut();
        let set = &mut *set;
        if !align.is_power_of_two() || align > ALIGN_MAX {
            let what = "alignment of a block (a power of two)";
            return Err(PoolError::Limit { what, found: align, min: 1, max: ALIGN_MAX }.into());
        }
        let (block, word) = self.core.reserve_locked(self.slot, || self.core.reserve(len, align))?;
        let (offset, bytes) = (block.offset(), block.len());
        set.push(Held { fresh: true, ..Held::new(word, block, true) });
        set.allocs += 1;
        if self.core.policy == Policy::InPlace {
            self.core.zones.enter(&self.core.active[self.slot], self.core.linear(offset)?, bytes)?;
        }
        // reserved, and locked, by this transaction; no reference into it was handed out yet.
        raw::bytes_mut(Claim::Writer, self, &self.core.pool, offset, bytes)?.fill(0);
        // All of it is written, padding too: the backup gets what main has.
        if self.core.policy != Policy::Eaw && !self.core.failpoints.skips(Step::WholeBlock) {
            set.writes.push((offset, bytes));
        }
        Ok(block.ptr(&self.core.pool))
    }

    fn free(&self, ptr: PPtr<u8>) -> Result<()> {
        let mut set = self.state.set.borrow_mut();
        let set = &mut *set;
        let found = self.core.alloc.find(ptr, 0)?;
        let block = found.block();
        if block.offset() != ptr.offset() {
            return Err(PoolError::BadPointer { ptr: ptr.raw(), why: "not the start of its block" }.into());
        }
        if block.offset() == self.core.root {
            return Err(PoolError::BadPointer { ptr: ptr.raw(), why: "the root's own cell" }.into());
        }
        let at = self.lock_write(set, &found, true)?;
        if self.is_elsewhere(&set.held[at]) {
            set.entries.forget((block.offset(), block.len()));
            set.held[at].staged = false;
        }
        if set.held[at].staged {
            self.core.unstage(set, at)?; // its range is one of the record, which checksums what main holds
        }
        set.held[at].freed = true;
        if !set.saved.is_empty() {
            set.freed_since.push(at);
        }
        if set.held[at].fresh {
            set.allocs -= 1;
        }
        set.frees += 1;
        Ok(())
    }

    // ---- the end ----------------------------------------------------------------------------------------------------

    /// Gives everything up that the end of a transaction gives up; the locks are gone already.
    #[inline]
    fn finish(&mut self) {
        self.finished = true;
        self.core.active[self.slot].leave_all();
        self.state.set.borrow_mut().reset();
        if self.state.doomed.replace(false) {
            *self.state.doom.borrow_mut() = None;
        }
        self.core.slots.release(self.slot);
        if self.core.zones.over_budget() {
            self.core.after_durable(self.core.clean_some());
        }
    }

    fn end(&mut self) -> Result<()> {
        let outcome = {
            let mut set = self.state.set.borrow_mut();
            self.core.commit(self.slot, &mut set)
        };
        match outcome {
            Ok(()) => {
                self.finish();
                Ok(())
            }
            // After a failed drain nothing is known: the locks stay, and the pool refuses everything from now on.
            Err(e @ Error::Pool(PoolError::Sync { .. } | PoolError::Poisoned)) => {
                self.finished = true;
                Err(e)
            }
            Err(e) => {
                self.roll_back()?;
                Err(e)
            }
        }
    }

    #[cold]
    fn roll_back(&mut self) -> Result<()> {
        let outcome = {
            let mut set = self.state.set.borrow_mut();
            self.core.abort(self.slot, &mut set)
        };
        Counters::add(&self.core.counters[self.slot].aborts);
        match outcome {
            Ok(()) | Err(Error::NoRollback) => self.finish(),
            Err(_) => self.finished = true, // main may hold half of it: no transaction gets at it
        }
        outcome
    }
}

impl Transaction for Tx<'_> {
    fn isolation(&self) -> Isolation {
        self.isolation.max(Isolation::Strict)
    }

    #[inline]
    fn bytes(&self, ptr: PPtr<u8>, len: u64) -> Result<&[u8]> {
        match self.look_at_once(ptr, len, false) {
            Some(bytes) => Ok(bytes),
            None => self.look(ptr, len, false),
        }
    }

    #[inline]
    fn bytes_mut(&mut self, ptr: PPtr<u8>, len: u64) -> Result<&mut [u8]> {
        self.check()?;
        if self.core.policy == Policy::Eaw {
            return self.dooming(self.edit_one(ptr, len, false));
        }
        self.dooming(self.write(ptr, len))?;
        self.dooming(self.written(ptr, len))
    }

    #[inline]
    fn put_bytes(&mut self, ptr: PPtr<u8>, data: &[u8]) -> Result<()> {
        self.check()?;
        let len = data.len() as u64;
        if self.core.policy == Policy::Eaw {
            self.dooming(self.edit_one(ptr, len, true))?.copy_from_slice(data);
            return Ok(());
        }
        if self.core.stages((ptr.offset(), len)) && self.dooming(self.stage(ptr, data))? {
            return Ok(());
        }
        self.bytes_mut(ptr, len)?.copy_from_slice(data);
        Ok(())
    }

    fn bytes_mut_many(&mut self, ranges: &[Range]) -> Result<Vec<&mut [u8]>> {
        self.check()?;
        self.dooming(self.distinct(ranges))?;
        self.dooming(self.intend_all(ranges))?;
        let mut out = Vec::with_capacity(ranges.len());
        if self.core.policy == Policy::Eaw {
            for range in ranges {
                self.dooming(self.edit(range.at, range.len, false))?; // all entries first: a new one moves the others
            }
            for range in ranges {
                out.push(self.dooming(self.edit(range.at, range.len, false))?); // in different blocks, as just checked
            }
            return Ok(out);
        }
        for range in ranges {
            out.push(self.dooming(self.written(range.at, range.len))?); // in different blocks, as just checked
        }
        Ok(out)
    }

    fn intend(&mut self, ranges: &[Range]) -> Result<()> {
        self.check()?;
        self.dooming(self.intend_all(ranges))
    }

    fn alloc_bytes(&mut self, len: u64, align: u64) -> Result<PPtr<u8>> {
        self.check()?;
        self.dooming(self.allocate(len, align))
    }

    fn free_bytes(&mut self, ptr: PPtr<u8>) -> Result<()> {
        self.check()?;
        self.dooming(self.free(ptr))
    }

    fn room(&self, ptr: PPtr<u8>) -> Result<u64> {
        self.check()?;
        Ok(self.dooming(self.share(ptr, 0))? - ptr.offset())
    }

    #[inline]
    fn rest(&self, ptr: PPtr<u8>) -> Result<&[u8]> {
        match self.look_at_once(ptr, 0, true) {
            Some(bytes) => Ok(bytes),
            None => self.look(ptr, 0, true),
        }
    }

    #[inline]
    fn prefetch(&self, ptr: PPtr<u8>) {
        if let Some(found) = self.core.alloc.find_known(ptr, 0) {
            self.prefetch_bytes(ptr, (found.block().offset() + found.block().len() - ptr.offset()).min(WHOLE));
        }
    }

    #[inline]
    fn prefetch_bytes(&self, ptr: PPtr<u8>, len: u64) {
        let lines = (ptr.offset() % pmem::LINE + len.min(ASKED)).div_ceil(pmem::LINE);
        self.core.pool.prefetch(ptr.offset(), lines);
    }

    fn root_cell(&self) -> PPtr<[u64; 2]> {
        PPtr::new(self.core.pool.tag(), self.core.root)
    }

    fn doom(&self) -> Option<Doom> {
        if self.state.doomed.get() { self.state.doom.borrow().clone() } else { None }
    }

    fn set_doom(&self, doom: Doom) {
        self.doom_by(doom);
    }

    #[inline]
    fn commit(mut self) -> Result<()> {
        if self.state.doomed.get() {
            let refused = self.refuse_doomed();
            self.roll_back()?;
            return refused;
        }
        self.end()
    }

    fn abort(mut self) -> Result<()> {
        self.roll_back()
    }
}

impl Tx<'_> {
    /// An error if two ranges lie in one block.
    fn distinct(&self, ranges: &[Range]) -> Result<()> {
        let mut starts = Vec::with_capacity(ranges.len());
        for range in ranges {
            starts.push(self.core.alloc.resolve(range.at, range.len)?.offset());
        }
        starts.sort_unstable();
        match starts.windows(2).find(|w| w[0] == w[1]) {
            Some(same) => Err(Error::Overlap { offset: same[0] }),
            None => Ok(()),
        }
    }
}

impl Drop for Tx<'_> {
    fn drop(&mut self) {
        if !self.finished {
            // No caller to tell; what could not be undone stays locked, or is undone at the next open.
            let _ = self.roll_back();
        }
    }
}
