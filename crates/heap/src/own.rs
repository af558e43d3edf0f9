//! Blocks that a transaction takes for its log: undo extents, and records too long for the ring.
//!
//! Whoever has a pointer into one, left from an object that was there before, finds a live block. So it is locked like a new object, by the
//! transaction's slot, until it does not resolve any more.

use pmem::{Block, Error as PoolError};
use tx::{Error, Result};

use crate::core::Core;
use crate::lock;
use crate::raw::Word;
use crate::sabotage::Step;

impl Core {
    /// A block of the slot's own, out of a larger heap if it must. Called with the slot's log locked, so nothing is settled for it.
    #[cold]
    pub(crate) fn reserve_own(&self, slot: usize, bytes: u64) -> Result<Block> {
        let block = match self.alloc.reserve_hidden(bytes, pmem::LINE) {
            Err(PoolError::HeapFull { .. }) => {
                self.grow_for(bytes, self.main.len())?;
                self.alloc.reserve_hidden(bytes, pmem::LINE)?
            }
            other => other?,
        };
        if self.sabotage.skips(Step::OwnLocked) {
            self.alloc.show(&block)?;
            return Ok(block);
        }
        self.lock_reserved(slot, &block).map(|_| block)
    }

    /// Locks a block that was reserved for the slot's transaction, and lets it resolve: only now, so that nobody locks it first who has a pointer to what was
    /// there before.
    #[inline]
    pub(crate) fn lock_reserved(&self, slot: usize, block: &Block) -> Result<Word> {
        let word = Word::of(&self.alloc, block)?;
        let early = self.sabotage.skips(Step::LockedFirst);
        if early {
            self.alloc.show(block)?;
        }
        // A mark is of a thread that queues for the object that was there before, and finds it gone.
        let taken = lock::try_write(word.get(), slot).or_else(|_| lock::try_take(word.get(), slot, 0, true));
        if taken.is_err() {
            // Somebody is about to see that it does not resolve.
            if early {
                self.alloc.begin_free(block)?;
            }
            self.alloc.release(*block)?;
            return Err(Error::Conflict { offset: block.offset() });
        }
        self.alloc.show(block)?;
        Ok(word)
    }

    /// The block is not needed any more: it does not resolve, but is not handed out yet either. Then
    /// [`release`](pmem::Allocator::release) it.
    pub(crate) fn retire_own(&self, block: &Block) -> Result<()> {
        self.alloc.begin_free(block)?;
        // Only now: who locks it behind this sees that it is not current.
        lock::end_write(Word::of(&self.alloc, block)?.get());
        Ok(())
    }

    /// The block was never named in a record that may count.
    pub(crate) fn cancel_own(&self, block: Block) -> Result<()> {
        self.retire_own(&block)?;
        Ok(self.alloc.release(block)?)
    }
}
