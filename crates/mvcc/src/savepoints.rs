//! Parts of a transaction that are undone alone (MARS, SOSP 2013, §3.1).
//!
//! All that a transaction has written is in copies and blocks of its own. From a savepoint on, what was there is kept before it is written over; to go back is to put that into
//! place again, and to give up the locks and blocks that came since.

use tx::{Error, Result, Savepoint, Savepoints};

use crate::failpoints::Step;
use crate::raw::{self, Claim};
use crate::set::{Saved, Undo, Write};
use crate::transaction::Tx;

impl Tx<'_> {
    /// An error that was gone back from does not doom any longer: but for a failed drain, and conflicts if there were too many.
    fn lift(&self) -> Result<()> {
        self.core.pool.check_usable()?;
        let Some(doom) = self.take_doom() else { return Ok(()) };
        let mut set = self.set();
        set.lifted += u32::from(doom.conflict.is_some());
        match doom.conflict {
            Some(offset) if set.lifted > Self::LIFTED => {
                drop(set);
                self.doom_by(doom);
                Err(Error::Conflict { offset })
            }
            _ => Ok(()),
        }
    }

    fn go_back(&self, level: usize) -> Result<()> {
        let set = &mut *self.set();
        let Saved { writes, ranges, undo, .. } = set.saved[level];
        set.saved.truncate(level + 1);
        for undo in set.undo.drain(undo..).rev() {
            match undo {
                Undo::Freed(at) => set.writes[at as usize].freed = false,
                Undo::Bytes(at, offset, old) => match &mut set.writes[at as usize] {
                    Write { copy: Some(copy), block, .. } => {
                        let from = (offset - block.offset()) as usize;
                        copy.bytes_mut()[from..from + old.len()].copy_from_slice(&old);
                    }
                    _ => raw::bytes_mut(Claim::Fresh, self, &self.core.pool, offset, old.len() as u64)?
                        .copy_from_slice(&old),
                },
            }
        }
        set.ranges.truncate(ranges);
        set.kept.clear();
        for write in set.split_off(writes) {
            // Others may change it from now on.
            if !write.is_new() && self.validates() && !self.core.failpoints.skips(Step::SeenStays) {
                set.reads.push((write.word, write.block.offset()));
            }
            self.core.take_back_one(write);
        }
        Ok(())
    }
}

impl Savepoints for Tx<'_> {
    fn savepoint(&mut self) -> Result<Savepoint> {
        self.check()?;
        let mut set = self.set();
        set.call = None; // it does more than the call tells
        let saved = Saved {
            savepoint: Savepoint::new(),
            writes: set.writes.len(),
            ranges: set.ranges.len(),
            undo: set.undo.len(),
        };
        set.saved.push(saved);
        set.kept.clear();
        Ok(saved.savepoint)
    }

    /// Objects that were used since are unlocked, and new ones given up.
    fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        let level = self.set().saved.iter().position(|saved| saved.savepoint == savepoint);
        let level = self.dooming(level.ok_or(Error::NoSavepoint))?;
        self.lift()?;
        let back = self.go_back(level);
        self.dooming(back)
    }
}

#[cfg(test)]
mod tests {
    use pmem::PPtr;
    use tx::{Engine, Isolation, Transaction};

    use super::*;

    #[test]
    fn what_is_kept_of_an_object_is_no_more_than_twice_of_it() {
        const LEN: u64 = 4096;
        let dir = tempfile::tempdir().unwrap();
        let store = crate::Mvcc::create(dir.path().join("s"), &crate::Options::new().bytes(1 << 20)).unwrap();
        let object = store.transact(Isolation::Strict, |tx| tx.alloc_bytes(LEN, 8)).unwrap();
        let mut tx = store.begin(Isolation::Strict).unwrap();
        tx.bytes_mut(object, LEN).unwrap().fill(1);
        for round in 2..6u8 {
            let savepoint = tx.savepoint().unwrap();
            for at in 0..20 * LEN {
                tx.bytes_mut(PPtr::new(object.tag(), object.offset() + at * 64 % LEN), 8).unwrap().fill(round);
            }
            let bytes = |undo: &Undo| if let Undo::Bytes(_, _, old) = undo { old.len() } else { 0 };
            let kept: usize = tx.set().undo.iter().map(bytes).sum();
            assert!(kept as u64 <= 2 * LEN, "{kept}");
            tx.rollback_to(savepoint).unwrap();
            assert!(tx.bytes(object, LEN).unwrap().iter().all(|byte| *byte == 1));
        }
    }
}
