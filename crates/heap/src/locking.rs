//! A transaction, and the locks that it holds: as it goes, and to its end (strict two-phase locking).

use std::marker::PhantomData;

use pmem::{Block, Found, PPtr};
use tx::{Doom, Error, Isolation, Result};

use crate::core::{Core, Counters};
use crate::failpoints::Step;
use crate::lock::{self, State};
use crate::options::Policy;
use crate::queue::Queue;
use crate::raw::Word;
use crate::state::{Held, Set, TxState};

/// A transaction on the objects of a [`Heap`](crate::Heap). It is strict at every level that was asked for, since it holds its locks to the end.
///
/// Readers share an object, a writer has it alone; a transaction that meets a lock gets [`Error::Conflict`] at once, so there is no deadlock.
/// [`Engine::transact`](tx::Engine::transact) runs it again. After 16 conflicts its thread queues for each object at which it meets one: the transactions that hold
/// the object then, and the threads that queue with smaller numbers, come first; every other one gets the conflict, readers too, until the thread has
/// committed or given up. So no transaction starves while no object is held for longer than a second.
///
/// ```
/// # fn main() -> tx::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// use heap::{Heap, Options};
/// use tx::{Engine, Isolation, Transaction, Typed};
///
/// let heap = Heap::create(dir.path().join("p"), &Options::new().bytes(1 << 20))?;
/// let mut tx = heap.begin(Isolation::Serializable)?;
/// let object = tx.alloc(&7u64)?;
/// *tx.write(object)? += 1;
/// tx.set_root(object)?;
/// tx.commit()?; // one barrier
/// assert_eq!(*heap.begin(Isolation::Snapshot)?.read(object)?, 8);
/// # Ok(()) }
/// ```
pub struct Tx<'h> {
    pub(crate) core: &'h Core,
    pub(crate) slot: usize,
    /// The slot's, ours until we release it.
    pub(crate) state: &'h TxState,
    pub(crate) isolation: Isolation,
    pub(crate) finished: bool,
    /// Locks are the thread's affair: conflicts with itself are found by it.
    stays: PhantomData<*const ()>,
}

impl std::fmt::Debug for Tx<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let set = self.state.set.borrow();
        write!(f, "Tx(slot {}, {} locks, {} writes)", self.slot, set.held.len(), set.writes.len())
    }
}

impl<'h> Tx<'h> {
    #[inline]
    pub(crate) fn begin(core: &'h Core, isolation: Isolation) -> Result<Self> {
        let slot = core.slots.claim(pmem::thread_number()).ok_or(Error::NoSlot { slots: core.slots.len() })?;
        // this thread has just claimed the slot, and `Tx`, which is not `Send`, releases it when the reference goes.
        let state = core.states.get(slot);
        Ok(Self { core, slot, state, isolation, finished: false, stays: PhantomData })
    }

    // ---- errors -----------------------------------------------------------------------------------------------------

    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.state.doomed.get() { self.refuse_doomed() } else { Ok(()) }
    }

    #[cold]
    pub(crate) fn refuse_doomed(&self) -> Result<()> {
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

    #[cold]
    pub(crate) fn doom_by(&self, doom: Doom) {
        self.state.doomed.set(true);
        if doom.conflict.is_some() {
            Counters::add(&self.core.counters[self.slot].conflicts);
        }
        self.state.doom.borrow_mut().get_or_insert(doom);
    }

    // ---- locks ------------------------------------------------------------------------------------------------------

    pub(crate) fn lock_read(&self, set: &mut Set, found: &Found<'h>) -> Result<()> {
        let (block, word) = (found.block(), Word::at(found));
        if let Some(at) = set.find(word) {
            return if set.held[at].freed { Err(Error::Freed { offset: block.offset() }) } else { self.seen(set, at) };
        }
        if let Err(state) = lock::try_read(word.get()) {
            self.lock_read_cold(set, word, &block, state)?;
        }
        set.push(Held::new(word, block, false));
        check_current(found)
    }

    /// An object that is held is read: main has to hold all of it.
    #[inline]
    pub(crate) fn seen(&self, set: &mut Set, at: usize) -> Result<()> {
        if set.held[at].staged && self.core.policy != Policy::Eaw && !self.core.failpoints.skips(Step::StagedSeen) {
            self.core.unstage(set, at)?;
        }
        Ok(())
    }

    /// In use, or a thread queues for it.
    #[cold]
    fn lock_read_cold(&self, set: &Set, word: Word, block: &Block, seen: State) -> Result<()> {
        read_outside(set, word, block)?;
        if !lock::is_marked(word.get()) || self.is_barred(word) {
            return Err(self.conflict(word, block, seen, false));
        }
        lock::try_read_marked(word.get()).map_err(|state| self.conflict(word, block, state, false))?;
        self.core.queue.entered(word);
        Ok(())
    }

    /// Whether a marked object, which this transaction does not hold, is another thread's first. Not for a thread with another transaction: the queue may wait for that one.
    #[cold]
    fn is_barred(&self, word: Word) -> bool {
        let mine = |slot: usize| slot != self.slot && self.core.slots.holder(slot) == Some(pmem::thread_number());
        !self.core.queue.may_enter(word) && !(0..self.core.slots.len()).any(mine)
    }

    /// Makes this transaction the writer of the block in which the bytes lie, and returns its place among the locks held, if there is nothing
    /// to say.
    #[inline]
    pub(crate) fn claim_at_once(&self, set: &mut Set, ptr: PPtr<u8>, len: u64) -> Option<usize> {
        let found = self.core.alloc.find_known(ptr, len)?;
        let (block, word) = (found.block(), Word::at(&found));
        match set.find(word) {
            Some(at) if set.held[at].freed => None,
            Some(at) => {
                if !set.held[at].write {
                    lock::try_upgrade(word.get(), self.slot).ok()?;
                    set.held[at].write = true;
                }
                Some(at)
            }
            None => {
                lock::try_write(word.get(), self.slot).ok()?;
                if !found.is_current() {
                    lock::end_write(word.get());
                    return None;
                }
                set.push(Held::new(word, block, true));
                Some(set.held.len() - 1)
            }
        }
    }

    /// The same, whatever is in the way.
    pub(crate) fn lock_write(&self, set: &mut Set, found: &Found<'h>, to_free: bool) -> Result<usize> {
        let (block, word) = (found.block(), Word::at(found));
        match set.find(word) {
            None => match lock::try_write(word.get(), self.slot) {
                Ok(()) => {
                    set.push(Held::new(word, block, true));
                    check_current(found)?;
                    Ok(set.held.len() - 1)
                }
                Err(state) => self.lock_write_cold(set, found, state, to_free),
            },
            Some(at) if set.held[at].freed => Err(Error::Freed { offset: block.offset() }),
            Some(at) if set.held[at].write => Ok(at),
            Some(_) => self.lock_write_cold(set, found, lock::load(word.get()), to_free),
        }
    }

    /// Not simply free: read by us, or pending, or in use.
    #[cold]
    fn lock_write_cold(&self, set: &mut Set, found: &Found<'h>, mut seen: State, to_free: bool) -> Result<usize> {
        let (block, word) = (found.block(), Word::at(found));
        let (read, outer) = (set.find(word), read_outside(set, word, &block)?);
        let ours = u32::from(read.is_some()) + u32::from(outer);
        loop {
            let mut rewrite = false;
            let marked = lock::is_marked(word.get());
            if marked && ours == 0 && self.is_barred(word) {
                return Err(self.conflict(word, &block, seen, true));
            }
            let taken = match seen {
                State::Shared(n) if n == ours => lock::try_take(word.get(), self.slot, ours, marked),
                State::Pending(slot, n) if n == ours => {
                    let taken = if slot == self.slot {
                        let of_it = (word, ours, marked);
                        self.core.logs[slot].lock().rewrite(self.core, slot, of_it, to_free)?
                    } else {
                        self.core.apply_slot(slot, &mut |_| {})?;
                        Err(lock::load(word.get()))
                    };
                    rewrite = taken.is_ok();
                    match taken {
                        // A reader came in between; or its slot has just committed once more: that one is first.
                        Err(now @ State::Pending(..)) => return Err(self.conflict(word, &block, now, true)),
                        other => other,
                    }
                }
                other => return Err(self.conflict(word, &block, other, true)),
            };
            match taken {
                Ok(()) => {
                    set.rewrites |= rewrite;
                    if let Some(at) = read {
                        let held = &mut set.held[at];
                        (held.write, held.outer, held.rewritten) = (true, outer, rewrite);
                        return Ok(at);
                    }
                    set.push(Held { outer, rewritten: rewrite, ..Held::new(word, block, true) });
                    check_current(found)?;
                    return Ok(set.held.len() - 1);
                }
                Err(now) => seen = now,
            }
        }
    }

    /// The error for a lock in use, found out slowly: is it one of this very thread?
    #[cold]
    fn conflict(&self, word: Word, block: &Block, seen: State, write: bool) -> Error {
        Queue::met(word, write);
        // After a failed sync the holder never lets go: a caller that asks again and again is told at once.
        if let Err(unusable) = self.core.pool.check_usable() {
            return unusable.into();
        }
        let offset = block.offset();
        let mine = |slot: &usize| *slot != self.slot && self.core.slots.holder(*slot) == Some(pmem::thread_number());
        let own = match seen {
            State::Writer(slot) => mine(&slot),
            State::Shared(_) | State::Pending(..) => (0..self.core.slots.len()).filter(mine).any(|slot| {
                // this thread holds the slot, by another transaction, which it is not just running a method of.
                let state = self.core.states.get(slot);
                state.set.try_borrow().is_ok_and(|set| set.holds(word))
            }),
        };
        if own { Error::OwnConflict { offset } } else { Error::Conflict { offset } }
    }

    /// Whether what an object holds for this transaction is in entries, in part at least.
    #[inline]
    pub(crate) fn is_elsewhere(&self, held: &Held) -> bool {
        held.staged && self.core.policy == Policy::Eaw
    }
}

/// How many of the outer transactions of this nested top action read the block; an error if one writes it.
#[cold]
fn read_outside(set: &Set, word: Word, block: &Block) -> Result<u8> {
    let mut readers = 0;
    let mut around = &set.outer;
    while let Some(outer) = around {
        match outer.find(word).map(|at| outer.held[at].write) {
            Some(true) => return Err(Error::OuterWrites { offset: block.offset() }),
            Some(false) => readers += 1,
            None => {}
        }
        around = &outer.outer;
    }
    Ok(readers)
}

/// The transaction that had the block before us may have freed it between our looking and our locking.
#[inline]
fn check_current(found: &Found<'_>) -> Result<()> {
    if found.is_current() { Ok(()) } else { Err(Error::Conflict { offset: found.block().offset() }) }
}
