//! A transaction: reads what its snapshot sees, and changes copies of its own.

use std::cell::{Cell, RefMut};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use pmem::{Block, Error as PoolError, Found, Intent, PPtr};
use tx::{Doom, Error, Isolation, Range, Result, Transaction};

use crate::core::{Core, Counters, Room, View};
use crate::durable::Commit;
use crate::failpoints::Step;
use crate::header::{NEVER, Owner};
use crate::inbox::Changed;
use crate::procedures::Calling;
use crate::raw::{self, Claim, Owned, Word};
use crate::set::{Set, TxState, Write};
use crate::tx_slot::TxSlot;

/// Bytes that are asked for of an object whose length is not known.
const WHOLE: u64 = 18 * pmem::LINE;
/// Most bytes that are asked for at once: more would wait for the first to come.
const ASKED: u64 = 2048;

/// Largest alignment of a block.
const ALIGN_MAX: u64 = 4096;

/// A transaction on the objects of an [`Mvcc`](crate::Mvcc).
///
/// It reads the state that was committed when it began, whatever others do meanwhile, and stores nothing that others read while it does. What it writes is a copy until the
/// commit. Of two transactions that change one object the second meets [`Error::Conflict`] at once, or when it has begun before the first committed;
/// [`Engine::transact`](tx::Engine::transact) runs it again. At [`Serializable`](Isolation::Serializable) and [`Strict`](Isolation::Strict), which are one here, a commit that changes
/// something meets a conflict, too, if an object that was read has changed since; one that changes nothing never does.
///
/// It is to be short: what it may still look at is neither written back nor given up, so that logs fill behind it. For minutes, use [`Snapshot`](crate::Snapshot).
pub struct Tx<'m> {
    pub(crate) core: &'m Core,
    tx_slot: Option<TxSlot<'m>>,
    /// The slot's, ours until we release it.
    state: &'m TxState,
    isolation: Isolation,
    /// It has looked at something.
    looked: Cell<bool>,
    /// References are the thread's affair.
    stays: PhantomData<*const ()>,
}

impl std::fmt::Debug for Tx<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let set = self.state.set.borrow();
        let snapshot = self.tx_slot.as_ref().map(TxSlot::snapshot);
        write!(f, "Tx(snapshot {snapshot:?}, {} reads, {} writes)", set.reads.len(), set.writes.len())
    }
}

impl<'m> Tx<'m> {
    #[inline]
    pub(crate) fn begin(core: &'m Core, isolation: Isolation) -> Result<Self> {
        let claimed = core.tx_slots.claim()?;
        let slot = claimed.slot();
        if core.counters[slot].room() != Room::There {
            core.make_room(slot)?;
        }
        let tx_slot = claimed.sit();
        // this thread has just claimed the slot, and `Tx`, which is not `Send`, releases it when the reference goes.
        let state = core.states.get(slot);
        Ok(Self { core, tx_slot: Some(tx_slot), state, isolation, looked: Cell::new(false), stays: PhantomData })
    }

    #[inline]
    fn tx_slot(&self) -> Result<&TxSlot<'m>> {
        if self.state.doomed.get() {
            self.refuse_doomed()?;
        }
        self.tx_slot.as_ref().ok_or_else(|| Error::Doomed { first: "it is over".into() })
    }

    pub(crate) fn check(&self) -> Result<()> {
        let checked = self.tx_slot().map(drop);
        self.dooming(checked)
    }

    /// What it has read is looked at again when it commits.
    pub(crate) fn validates(&self) -> bool {
        self.isolation != Isolation::Snapshot
    }

    pub(crate) fn set(&self) -> RefMut<'_, Set> {
        self.state.set.borrow_mut()
    }

    fn has_changes(&self) -> bool {
        !self.state.set.borrow().writes.is_empty()
    }

    fn slot(&self) -> usize {
        self.tx_slot.as_ref().map_or(0, TxSlot::slot)
    }

    #[cold]
    fn refuse_doomed(&self) -> Result<()> {
        let first = self.state.doom.borrow().as_ref().map_or(String::new(), |d| d.first.clone());
        Err(Error::Doomed { first })
    }

    /// Every error that is handed out dooms the transaction.
    #[inline]
    pub(crate) fn dooming<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(e) = &result {
            self.doom_by(Doom::from(e));
        }
        result
    }

    /// It is not doomed any longer.
    pub(crate) fn take_doom(&self) -> Option<Doom> {
        self.state.doomed.set(false);
        self.state.doom.borrow_mut().take()
    }

    #[cold]
    pub(crate) fn doom_by(&self, doom: Doom) {
        self.state.doomed.set(true);
        if doom.conflict.is_some() {
            Counters::add(&self.core.counters[self.slot()].conflicts, 1);
        }
        self.state.doom.borrow_mut().get_or_insert(doom);
    }

    // ---- read -------------------------------------------------------------------------------------------------------

    /// What is asked for, of an object that no transaction has changed lately; otherwise ask [`read`](Self::read).
    #[inline]
    fn read_at_once(&self, ptr: PPtr<u8>, len: Option<u64>) -> Option<&[u8]> {
        if self.state.doomed.get() {
            return None;
        }
        self.looked.set(true);
        let found = self.core.alloc.find_known(ptr, len.unwrap_or(0))?;
        // A freed object's header goes behind the object.
        if found.word().load(Acquire) != 0 || !found.is_current() {
            return None;
        }
        self.note_read(&found);
        let len = len.unwrap_or_else(|| found.block().offset() + found.block().len() - ptr.offset());
        raw::bytes(Claim::Seated, self, &self.core.pool, ptr.offset(), len).ok()
    }

    /// `len` bytes at `ptr`, or all to the end of the block.
    #[cold]
    #[inline(never)]
    fn read(&self, ptr: PPtr<u8>, len: Option<u64>) -> Result<&[u8]> {
        let tx_slot = self.tx_slot()?;
        self.looked.set(true);
        let found = self.core.alloc.find(ptr, len.unwrap_or(0))?;
        let block = found.block();
        let at = ptr.offset() - block.offset();
        let len = len.unwrap_or(block.len() - at);
        match self.core.look(tx_slot, &found).map_err(|e| at_object(e, &block))? {
            View::Own(header) => self.read_own(header, ptr, len),
            View::Bytes(bytes) => {
                self.note_read(&found);
                bytes.get(at as usize..(at + len) as usize).ok_or_else(|| into_free(ptr))
            }
            View::Master => {
                self.note_read(&found);
                raw::bytes(Claim::Seated, self, &self.core.pool, ptr.offset(), len)
            }
            View::Gone => Err(into_free(ptr)),
            View::Later => Err(Error::Conflict { offset: block.offset() }),
        }
    }

    #[inline]
    fn note_read(&self, found: &Found<'_>) {
        if self.validates() {
            self.state.set.borrow_mut().note_read(Word::at(found), found.block().offset());
        }
    }

    fn read_own(&self, header: u32, ptr: PPtr<u8>, len: u64) -> Result<&[u8]> {
        let set = self.state.set.borrow();
        let write = set.find(header).map(|at| &set.writes[at]).ok_or_else(|| into_free(ptr))?;
        if write.freed {
            return Err(Error::Freed { offset: write.block.offset() });
        }
        match &write.copy {
            Some(copy) => raw::own(self, copy, ptr.offset() - write.block.offset(), len).ok_or_else(|| into_free(ptr)),
            None => raw::bytes(Claim::Fresh, self, &self.core.pool, ptr.offset(), len),
        }
    }

    // ---- write ------------------------------------------------------------------------------------------------------

    /// Locks the object, makes a copy of what it holds if there is none, and notes the range.
    fn open(&self, ptr: PPtr<u8>, len: u64) -> Result<(Block, usize)> {
        self.look_up(ptr, len, |found, number| self.copy_of(found, number))
    }

    /// The same, with what is to be published of it unless it is locked already.
    fn look_up(
        &self,
        ptr: PPtr<u8>,
        len: u64,
        copy: impl Fn(&Found<'_>, u32) -> Result<Owned>,
    ) -> Result<(Block, usize)> {
        self.looked.set(true);
        self.core.pool.prefetch(ptr.offset(), 1); // of the master, which comes last
        let found = self.core.alloc.find(ptr, len)?;
        let mut set = self.state.set.borrow_mut();
        let at = self.lock(&mut set, &found, copy)?;
        if set.writes[at].freed {
            return Err(Error::Freed { offset: found.block().offset() });
        }
        Ok((found.block(), at))
    }

    fn write(&self, ptr: PPtr<u8>, len: u64) -> Result<&mut [u8]> {
        self.tx_slot()?;
        let (block, at) = self.open(ptr, len)?;
        let mut set = self.state.set.borrow_mut();
        set.keep_bytes(&self.core.pool, at, ptr.offset(), len)?;
        if !set.writes[at].is_new() {
            set.note_write(at, ptr.offset(), len);
        }
        match &mut set.writes[at].copy {
            Some(copy) => raw::own_mut(self, copy, ptr.offset() - block.offset(), len).ok_or_else(|| into_free(ptr)),
            None => raw::bytes_mut(Claim::Fresh, self, &self.core.pool, ptr.offset(), len),
        }
    }

    /// The place of the object in the set of writes.
    fn lock(&self, set: &mut Set, found: &Found<'_>, copy: impl Fn(&Found<'_>, u32) -> Result<Owned>) -> Result<usize> {
        let (tx_slot, block, word) = (self.tx_slot()?, found.block(), Word::at(found));
        let number = loop {
            let number = word.get().load(Acquire);
            if number == 0 {
                match self.add_header(found, word)? {
                    Some(number) => break number,
                    None => continue,
                }
            }
            match self.core.headers.get(number).try_lock(tx_slot.slot()) {
                Ok(()) => break number,
                Err(Owner::Slot(owner)) if owner == tx_slot.slot() => {
                    return set.find(number).ok_or_else(|| into_free(block.ptr(&self.core.pool)));
                }
                Err(Owner::Slot(owner)) => return Err(self.held_by(owner, &block)),
                // Its word is about to tell of no header.
                Err(_) => {
                    if !pmem::sync::wait_point() {
                        std::hint::spin_loop();
                    }
                }
            }
        };
        let header = self.core.headers.get(number);
        match copy(found, number) {
            Ok(copy) => Ok(set.push(Write { header: number, word, block, copy: Some(copy), freed: false })),
            Err(error) => {
                self.core.list_unchanged(Changed { header: number, word, block });
                header.unlock();
                Err(error)
            }
        }
    }

    /// A header for an object that has none, locked.
    fn add_header(&self, found: &Found<'_>, word: Word) -> Result<Option<u32>> {
        let number = self.core.headers.take(self.slot(), 0).ok_or_else(no_header)?;
        pmem::sync::switch_point();
        if word.get().compare_exchange(0, number, AcqRel, Acquire).is_err() {
            self.core.headers.get(number).unlock();
            self.core.headers.give_back(number);
            return Ok(None);
        }
        if !found.is_current() {
            // It was freed before its header went.
            word.get().store(0, Release);
            self.core.give_up_header(number);
            return Err(into_free(found.block().ptr(&self.core.pool)));
        }
        Ok(Some(number))
    }

    /// When the object was changed last, which has just been locked.
    fn check_newest(&self, block: &Block, number: u32) -> Result<u64> {
        let (tx_slot, header) = (self.tx_slot()?, self.core.headers.get(number));
        let (stamp, gone) = header.newest();
        if stamp > tx_slot.snapshot() && !self.core.failpoints.skips(Step::FirstCommitter) {
            return Err(Error::Conflict { offset: block.offset() });
        }
        if gone {
            return Err(into_free(block.ptr(&self.core.pool)));
        }
        Ok(stamp)
    }

    /// What it holds.
    fn copy_of(&self, found: &Found<'_>, number: u32) -> Result<Owned> {
        let block = found.block();
        let stamp = self.check_newest(&block, number)?;
        let (tx_slot, header) = (self.tx_slot()?, self.core.headers.get(number));
        let mut copy = Owned::new(block.offset(), block.len());
        match header.chain.at(tx_slot, stamp).filter(|_| stamp > header.base()) {
            Some(version) => copy.bytes_mut().copy_from_slice(version.bytes),
            None => {
                let master = raw::bytes(Claim::Seated, self, &self.core.pool, block.offset(), block.len())?;
                copy.bytes_mut().copy_from_slice(master);
            }
        }
        Ok(copy)
    }

    #[cold]
    fn held_by(&self, owner: usize, block: &Block) -> Error {
        let offset = block.offset();
        if self.core.tx_slots.is_own(owner) { Error::OwnConflict { offset } } else { Error::Conflict { offset } }
    }

    // ---- allocate and free ------------------------------------------------------------------------------------------

    fn allocate(&mut self, len: u64, align: u64) -> Result<PPtr<u8>> {
        self.tx_slot()?;
        if !align.is_power_of_two() || align > ALIGN_MAX {
            let what = "alignment of a block (a power of two)";
            return Err(PoolError::Limit { what, found: align, min: 1, max: ALIGN_MAX }.into());
        }
        if self.state.set.borrow().again.is_some() {
            return self.take_again(len);
        }
        let (core, slot, is_blank) = (self.core, self.slot(), !self.looked.get() && !self.has_changes());
        let block = match (core.reserve(slot, len, align), &mut self.tx_slot) {
            // What others have freed since it began is free for a newer snapshot.
            (Err(Error::Conflict { .. }), Some(tx_slot)) if is_blank => {
                tx_slot.refresh(|| core.upkeep())?;
                core.reserve(slot, len, align)?
            }
            (reserved, _) => reserved?,
        };
        let made = self.prepare(&block).and_then(|()| Ok(self.core.alloc.show(&block)?));
        if made.is_err() {
            self.core.alloc.release(block)?; // no other transaction has seen it
        }
        made?;
        Ok(block.ptr(&self.core.pool))
    }

    /// Makes a block an object that only this transaction sees.
    fn prepare(&self, block: &Block) -> Result<()> {
        // reserved just now, and it does not resolve.
        raw::bytes_mut(Claim::Fresh, self, &self.core.pool, block.offset(), block.len())?.fill(0);
        let word = Word::of(self.core.alloc.engine_word(block)?);
        let number = self.core.headers.take(self.slot(), NEVER).ok_or_else(no_header)?;
        word.get().store(number, Release);
        let write = Write { header: number, word, block: *block, copy: None, freed: false };
        self.state.set.borrow_mut().push(write);
        Ok(())
    }

    fn free(&self, ptr: PPtr<u8>) -> Result<()> {
        self.tx_slot()?;
        let found = self.core.alloc.find(ptr, 0)?;
        let block = found.block();
        if block.offset() != ptr.offset() {
            return Err(PoolError::BadPointer { ptr: ptr.raw(), why: "not the start of its block" }.into());
        }
        if block.offset() == self.core.root {
            return Err(PoolError::BadPointer { ptr: ptr.raw(), why: "the root's own cell" }.into());
        }
        let gone = |found: &Found<'_>, number| self.check_newest(&found.block(), number).map(|_| Owned::gone());
        let (_, at) = self.look_up(ptr, 0, gone)?;
        let mut set = self.state.set.borrow_mut();
        set.keep_free(at);
        set.writes[at].freed = true;
        Ok(())
    }

    // ---- again ------------------------------------------------------------------------------------------------------

    /// All that it does is this call.
    pub(crate) fn log_as(&self, calling: &Calling) {
        self.state.set.borrow_mut().call = Some(calling.clone());
    }

    /// Allocations get these blocks, which resolve already.
    pub(crate) fn allocate_again(&self, blocks: VecDeque<Intent>) {
        self.state.set.borrow_mut().again = Some(blocks);
    }

    #[cold]
    fn take_again(&self, len: u64) -> Result<PPtr<u8>> {
        let next = self.state.set.borrow_mut().again.as_mut().and_then(VecDeque::pop_front);
        let other = |why: &str| Error::Aborted { reason: why.into() };
        let intent = next.ok_or_else(|| other("it allocates more than it did"))?;
        let block = self.core.alloc.resolve(PPtr::<u8>::new(self.core.pool.tag(), intent.offset()), 1)?;
        if block.offset() != intent.offset() || block.len() < len {
            return Err(other("it allocates another size than it did"));
        }
        self.prepare(&block)?;
        Ok(block.ptr(&self.core.pool))
    }

    /// Ends a transaction that is durable: `check` is given the digest of what a call wrote.
    pub(crate) fn end_again(
        mut self,
        commit: &Commit,
        intents: &[Intent],
        check: impl FnOnce(Option<u32>) -> Result<()>,
    ) -> Result<()> {
        self.tx_slot()?;
        let mut set = self.state.set.borrow_mut();
        let is_whole = set.again.as_ref().is_none_or(VecDeque::is_empty);
        let digest = self.core.digest(commit.slot, &mut set)?;
        check(is_whole.then_some(digest))?;
        self.core.publish_again(&mut set, commit, intents);
        set.reset();
        drop(set);
        self.tx_slot = None;
        Ok(())
    }

    // ---- the end ----------------------------------------------------------------------------------------------------

    /// Commits, or takes everything back.
    fn end(&mut self, commit: bool) -> Result<()> {
        let Some(tx_slot) = self.tx_slot.take() else { return Ok(()) };
        let mut set = self.state.set.borrow_mut();
        let outcome = match commit {
            true => self.core.commit(&tx_slot, &mut set, self.isolation),
            false => Ok(()),
        };
        let slot = tx_slot.slot();
        if let Err(Error::Conflict { .. }) = outcome {
            Counters::add(&self.core.counters[slot].conflicts, 1);
        }
        if !commit || outcome.is_err() {
            self.core.take_back(&tx_slot, &mut set);
            Counters::add(&self.core.counters[slot].aborts, 1);
        }
        set.reset();
        drop(set);
        self.take_doom();
        drop(tx_slot);
        self.core.upkeep_if_due(slot);
        outcome
    }
}

#[cold]
fn into_free(ptr: PPtr<u8>) -> Error {
    PoolError::BadPointer { ptr: ptr.raw(), why: "into a free block" }.into()
}

#[cold]
fn no_header() -> Error {
    Error::Limit { what: "objects changed lately", found: u64::from(u32::MAX), max: u64::from(u32::MAX) }
}

/// A conflict about this object.
#[cold]
fn at_object(error: Error, block: &Block) -> Error {
    match error {
        Error::Conflict { .. } => Error::Conflict { offset: block.offset() },
        other => other,
    }
}

impl Transaction for Tx<'_> {
    fn isolation(&self) -> Isolation {
        self.isolation
    }

    #[inline]
    fn bytes(&self, ptr: PPtr<u8>, len: u64) -> Result<&[u8]> {
        match self.read_at_once(ptr, Some(len)) {
            Some(bytes) => Ok(bytes),
            None => self.dooming(self.read(ptr, Some(len))),
        }
    }

    fn bytes_mut(&mut self, ptr: PPtr<u8>, len: u64) -> Result<&mut [u8]> {
        self.dooming(self.write(ptr, len))
    }

    fn bytes_mut_many(&mut self, ranges: &[Range]) -> Result<Vec<&mut [u8]>> {
        self.dooming(self.distinct(ranges))?;
        let this = &*self;
        ranges.iter().map(|range| this.dooming(this.write(range.at, range.len))).collect() // in different blocks, as just checked
    }

    fn intend(&mut self, ranges: &[Range]) -> Result<()> {
        self.dooming(self.tx_slot().and_then(|_| ranges.iter().try_for_each(|r| self.open(r.at, r.len).map(drop))))
    }

    fn alloc_bytes(&mut self, len: u64, align: u64) -> Result<PPtr<u8>> {
        let made = self.allocate(len, align);
        self.dooming(made)
    }

    fn free_bytes(&mut self, ptr: PPtr<u8>) -> Result<()> {
        self.dooming(self.free(ptr))
    }

    fn room(&self, ptr: PPtr<u8>) -> Result<u64> {
        Ok(self.dooming(self.read(ptr, None))?.len() as u64)
    }

    #[inline]
    fn rest(&self, ptr: PPtr<u8>) -> Result<&[u8]> {
        match self.read_at_once(ptr, None) {
            Some(bytes) => Ok(bytes),
            None => self.dooming(self.read(ptr, None)),
        }
    }

    #[inline]
    fn prefetch(&self, ptr: PPtr<u8>) {
        if let Some(found) = self.core.alloc.find_known(ptr, 0) {
            self.prefetch_bytes(ptr, (found.block().offset() + found.block().len() - ptr.offset()).min(WHOLE));
        }
    }

    /// Of the master, which is where most objects are.
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

    fn commit(mut self) -> Result<()> {
        if self.state.doomed.get() {
            let refused = self.refuse_doomed();
            self.end(false)?;
            return refused;
        }
        self.end(true)
    }

    fn abort(mut self) -> Result<()> {
        self.end(false)
    }
}

impl Tx<'_> {
    /// An error if two ranges lie in one block.
    fn distinct(&self, ranges: &[Range]) -> Result<()> {
        self.tx_slot()?;
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
        let _ = self.end(false); // taking back tells of nothing
    }
}
