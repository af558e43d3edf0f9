//! Blocks for new objects and long records, out of a larger store if it must.

use std::sync::atomic::Ordering::Relaxed;

use pmem::{Block, Error as PoolError};
use tx::{Error, Result};

use crate::core::{Core, Room};
use crate::pass::Progress;

/// Growths by which a store becomes as large as it may, at most.
const GROWTHS_MAX: u64 = 16;

impl Core {
    /// A block that does not resolve yet, out of a larger store if it must. For the transaction in the slot; no log is locked.
    pub(crate) fn reserve(&self, slot: usize, len: u64, align: u64) -> Result<Block> {
        match self.alloc.reserve_hidden(len, align) {
            Err(PoolError::HeapFull { .. }) => self.reserve_cold(slot, len, align),
            other => Ok(other?),
        }
    }

    #[cold]
    fn reserve_cold(&self, slot: usize, len: u64, align: u64) -> Result<Block> {
        if len > pmem::OFFSET_MAX / 4 {
            return Err(PoolError::HeapFull { bytes: len }.into()); // larger than any pool
        }
        // What was freed may be handed out then; but not what was freed since this transaction began. For that it is run again, once.
        let progress = self.upkeep()?;
        let counters = &self.counters[slot];
        let is_freed = self.freed.load(Relaxed) > 0;
        if progress == Progress::Blocked && is_freed && counters.was_short.load(Relaxed) == 0 {
            return match self.alloc.reserve_hidden(len, align) {
                Err(PoolError::HeapFull { .. }) => {
                    counters.was_short.store(1, Relaxed);
                    counters.set_room(Room::Wanted);
                    Err(Error::Conflict { offset: 0 })
                }
                other => Ok(other?),
            };
        }
        for _ in 0..GROWTHS_MAX {
            match self.alloc.reserve_hidden(len, align) {
                Err(PoolError::HeapFull { .. }) => self.grow_for(len)?,
                other => return Ok(other?),
            }
        }
        Ok(self.alloc.reserve_hidden(len, align)?)
    }

    fn bytes(&self) -> u64 {
        self.alloc.spaces().iter().map(|space| space.end - space.start).sum()
    }

    /// Twice as large, less where that is more than it may become or the disk has no room, and by as much as the block needs. Never by much less than an eighth: a pool can grow so often only,
    /// and a disk that is full for a while is not to use that up.
    fn grow_for(&self, len: u64) -> Result<()> {
        let _growing = self.growing.lock();
        let bytes = self.bytes();
        let room = self.bytes_max.saturating_sub(bytes);
        let least = (len + len / 8).next_multiple_of(self.alloc.chunk_size()) + self.alloc.chunk_size();
        let mut more = bytes.max(least).min(room);
        if more < len {
            return Err(PoolError::HeapFull { bytes: len }.into());
        }
        let least = least.max(bytes / 8);
        loop {
            match self.alloc.grow(more) {
                Err(PoolError::NoSpace { .. } | PoolError::Reserve { .. }) if more > least => {
                    more = (more / 2).next_multiple_of(self.alloc.chunk_size()).max(least);
                }
                other => return Ok(other?),
            }
        }
    }
}
