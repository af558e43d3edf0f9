//! A heap while it is open, as its parts share it.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use pmem::sync::{OwnMutex, OwnMutexGuard};
use pmem::{Allocator, Block, Door, Error as PoolError, PPtr, Pool};
use tx::{Result, Slots, Waited};

use crate::ground::Ground;
use crate::log::Log;
use crate::queue::Queue;
use crate::raw::{PerSlot, Word};
use crate::state::TxState;
use crate::zones::Active;

pub(crate) struct Core {
    /// What they stand on.
    pub(crate) ground: Ground,
    pub(crate) slots: Slots,
    pub(crate) queue: Queue,
    pub(crate) logs: Box<[OwnMutex<Log>]>,
    pub(crate) active: Box<[Active]>,
    pub(crate) states: PerSlot<TxState>,
    pub(crate) counters: Box<[Counters]>,
    pub(crate) checksum_max: u64,
    pub(crate) root: u64,
    pub(crate) cleaned: AtomicU64,
    /// Closed while a backup takes what its cut needs.
    pub(crate) door: Door,
}

impl Deref for Core {
    type Target = Ground;

    #[inline]
    fn deref(&self) -> &Ground {
        &self.ground
    }
}

/// Counted per slot by its holder.
#[repr(align(128))]
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) read_only: AtomicU64,
    pub(crate) aborts: AtomicU64,
    pub(crate) conflicts: AtomicU64,
    /// Times that copies had to be made.
    pub(crate) misses: AtomicU64,
    /// Entries in the log's queue, for the coordinator.
    pub(crate) pending: AtomicU64,
}

impl Counters {
    /// One more; only the slot's holder counts.
    #[inline]
    pub(crate) fn add(cell: &AtomicU64) {
        cell.store(cell.load(Relaxed) + 1, Relaxed);
    }
}

/// How often a block is looked for in a heap that others fill as it grows.
const GROWTHS: usize = 8;

impl Core {
    // ---- space ------------------------------------------------------------------------------------------------------

    /// Takes a block, which does not resolve yet, out of a larger heap if it must.
    #[inline]
    pub(crate) fn reserve(&self, len: u64, align: u64) -> Result<Block> {
        match self.alloc.reserve_hidden(len, align) {
            Err(PoolError::HeapFull { .. }) => self.reserve_cold(len, align),
            other => Ok(other?),
        }
    }

    #[cold]
    fn reserve_cold(&self, len: u64, align: u64) -> Result<Block> {
        if len > pmem::OFFSET_MAX / 4 {
            return Err(PoolError::HeapFull { bytes: len }.into()); // larger than any pool
        }
        self.apply_all(&mut |_| {})?; // what was freed may be handed out then
        for _ in 0..GROWTHS {
            let before = self.main.len();
            match self.alloc.reserve_hidden(len, align) {
                Err(PoolError::HeapFull { .. }) => self.grow_for(len, before)?,
                other => return Ok(other?),
            }
        }
        Ok(self.alloc.reserve_hidden(len, align)?)
    }

    // ---- before a write ---------------------------------------------------------------------------------------------

    /// The slot's log, for what has to be in it before its transaction writes; not while a backup takes what its cut needs.
    #[inline]
    pub(crate) fn open_log(&self, slot: usize) -> OwnMutexGuard<'_, Log> {
        self.door.pass();
        self.logs[slot].lock()
    }

    // ---- applying ---------------------------------------------------------------------------------------------------

    /// Applies one slot, whichever thread has it.
    pub(crate) fn apply_slot(&self, slot: usize, seen: &mut dyn FnMut(&Active)) -> Result<()> {
        let mut log = self.logs[slot].lock();
        log.apply(self)?;
        self.counters[slot].pending.store(0, Relaxed);
        seen(&self.active[slot]);
        Ok(())
    }

    /// Applies all slots; shows what each is in while it cannot commit.
    pub(crate) fn apply_all(&self, seen: &mut dyn FnMut(&Active)) -> Result<()> {
        (0..self.slots.len()).try_for_each(|slot| self.apply_slot(slot, seen))
    }

    /// Cleans zones until recovery keeps its budget again. Called without locks.
    #[cold]
    pub(crate) fn clean_some(&self) -> Result<()> {
        // An eighth at a time: applying every slot is shared by that many.
        let most = (self.zones.dirty() / 8).max(1);
        let cleaned = self.zones.clean_idle(most, &self.active, |seen| self.apply_all(seen))?;
        self.cleaned.fetch_add(cleaned as u64, Relaxed);
        Ok(())
    }

    // ---- the end --------------------------------------------------------------------------------------------------------

    /// What is closed last, everything else being dropped.
    pub(crate) fn into_last(self) -> (Pool, Allocator) {
        (self.ground.pool, self.ground.alloc)
    }

    pub(crate) fn commits(&self) -> u64 {
        self.counters.iter().map(|c| c.commits.load(Relaxed)).sum()
    }
}

impl tx::Queue for Core {
    fn wait(&self, offset: u64, most: Duration) -> Waited {
        // One that does not resolve has been freed; a transaction without a slot waits for no object.
        match self.alloc.find(PPtr::<u8>::new(self.pool.tag(), offset), 0) {
            Ok(found) => self.queue.wait(Word::at(&found), most),
            Err(_) => Waited::ForNobody,
        }
    }

    fn leave(&self) {
        self.queue.leave();
    }
}
