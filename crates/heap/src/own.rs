//! Blocks that a transaction takes for its log: undo extents, and records too long for the ring.
//!
//! A transaction that has a pointer into one, left from an object that was there before, finds a live block. So it is locked like a new object, by the
//! transaction's slot, until it does not resolve any more.

use pmem::{Block, Error as PoolError};
use tx::{Error, Result};

use crate::failpoints::Step;
use crate::ground::Ground;
use crate::lock;
use crate::raw::Word;

/// Blocks that an allocation passes over before it meets a conflict.
const PASSED: usize = 8;

impl Ground {
    /// A block of the slot's own, out of a larger heap if it must. Called with the slot's log locked, so nothing is applied for it.
    #[cold]
    pub(crate) fn reserve_own(&self, slot: usize, bytes: u64) -> Result<Block> {
        let reserve = || match self.alloc.reserve_hidden(bytes, pmem::LINE) {
            Err(PoolError::HeapFull { .. }) => {
                self.grow_for(bytes, self.main.len())?;
                Ok(self.alloc.reserve_hidden(bytes, pmem::LINE)?)
            }
            other => Ok(other?),
        };
        if self.failpoints.skips(Step::OwnLocked) {
            let block = reserve()?;
            self.alloc.show(&block)?;
            return Ok(block);
        }
        self.reserve_locked(slot, reserve).map(|(block, _)| block)
    }

    /// A block that the slot's transaction has locked before it resolves.
    ///
    /// A transaction that has a pointer to what was there before may hold its lock until it sees that this does not resolve, or be about to queue for it: the
    /// block is passed over, so that an allocation behind a first change does not end a transaction that cannot roll back.
    #[inline]
    pub(crate) fn reserve_locked(&self, slot: usize, reserve: impl Fn() -> Result<Block>) -> Result<(Block, Word)> {
        let block = reserve()?;
        match self.lock_reserved(slot, &block)? {
            Some(word) => Ok((block, word)),
            None => self.reserve_another(slot, block, reserve),
        }
    }

    #[cold]
    fn reserve_another(&self, slot: usize, first: Block, reserve: impl Fn() -> Result<Block>) -> Result<(Block, Word)> {
        let mut passed = vec![first];
        let found = loop {
            if passed.len() == PASSED {
                break None;
            }
            let Ok(block) = reserve() else { break None };
            match self.lock_reserved(slot, &block)? {
                Some(word) => break Some((block, word)),
                None => passed.push(block),
            }
        };
        for block in passed {
            self.alloc.release(block)?;
        }
        found.ok_or(Error::Conflict { offset: first.offset() })
    }

    /// Locks a block that was reserved for the slot's transaction, and lets it resolve: only now, so that no transaction locks it first by a pointer to what
    /// was there before. Nothing if one has: it does not resolve then.
    #[inline]
    fn lock_reserved(&self, slot: usize, block: &Block) -> Result<Option<Word>> {
        let word = Word::of(&self.alloc, block)?;
        let early = self.failpoints.skips(Step::LockedFirst);
        if early {
            self.alloc.show(block)?;
        }
        // A mark is of a thread that queues for the object that was there before, and finds it gone.
        let taken = lock::try_write(word.get(), slot).or_else(|_| lock::try_take(word.get(), slot, 0, true));
        if taken.is_err() {
            if early {
                self.alloc.begin_free(block)?;
            }
            return Ok(None);
        }
        self.alloc.show(block)?;
        Ok(Some(word))
    }

    /// The block is not needed any more: it does not resolve, but is not handed out yet either. Then
    /// [`release`](pmem::Allocator::release) it.
    pub(crate) fn retire_own(&self, block: &Block) -> Result<()> {
        self.alloc.begin_free(block)?;
        // Only now: a transaction that locks it behind this sees that it is not current.
        lock::end_write(Word::of(&self.alloc, block)?.get());
        Ok(())
    }

    /// The block was never named in a record that may count.
    pub(crate) fn cancel_own(&self, block: Block) -> Result<()> {
        self.retire_own(&block)?;
        Ok(self.alloc.release(block)?)
    }
}

#[cfg(test)]
mod tests {
    use tx::{Engine, Isolation, Transaction};

    use crate::raw::Word;
    use crate::{Heap, Options, Policy, lock};

    /// A reader that came by a pointer to what was there before, and has not seen yet that it is gone.
    #[test]
    fn an_allocation_passes_over_a_block_whose_lock_is_held() {
        for policy in [Policy::None, Policy::Undo, Policy::InPlace, Policy::InPlacePartial] {
            let dir = tempfile::tempdir_in("/dev/shm").unwrap();
            let options = Options::new().policy(policy).bytes(2 << 20).slots(2).coordinator(false);
            let heap = Heap::create(dir.path().join("h"), &options).unwrap();
            let core = heap.core();
            let next = core.alloc.reserve_hidden(64, 8).unwrap();
            core.alloc.release(next).unwrap();
            let word = Word::of(&core.alloc, &next).unwrap();
            lock::try_read(word.get()).unwrap();
            let mut tx = heap.begin(Isolation::Strict).unwrap();
            let other = tx.alloc_bytes(64, 8).unwrap();
            assert_ne!(other.offset(), next.offset(), "{policy}");
            lock::end_read(word.get());
            let now = tx.alloc_bytes(64, 8).unwrap();
            assert_eq!(now.offset(), next.offset(), "{policy}: it was given back");
            tx.commit().unwrap();
            heap.close().unwrap();
        }
    }
}
