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
        let block = match self.alloc.reserve(bytes, pmem::LINE) {
            Err(PoolError::HeapFull { .. }) => {
                self.grow_for(bytes, self.main.len())?;
                self.alloc.reserve(bytes, pmem::LINE)?
            }
            other => other?,
        };
        if self.sabotage.skips(Step::OwnLocked) || lock::try_write(Word::of(&self.alloc, &block)?.get(), slot).is_ok() {
            return Ok(block);
        }
        // Somebody with such a pointer looks at it just now.
        self.alloc.cancel(block)?;
        Err(Error::Conflict { offset: block.offset() })
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
