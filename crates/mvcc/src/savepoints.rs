//! Parts of a transaction that are undone alone (MARS, SOSP 2013, §3.1).
//!
//! All that a transaction has written is in copies and blocks of its own. From a savepoint on, what was there is kept before it is written over; to go back is to put that into
//! place again, and to give up the locks and blocks that came since.

use tx::{Error, Result, Savepoint, Savepoints};

use crate::failpoints::Step;
use crate::raw::{self, Claim};
use crate::transaction::{Set, Tx, Write};

/// What there was when a savepoint was set.
#[derive(Clone, Copy)]
pub(crate) struct Saved {
    savepoint: Savepoint,
    writes: usize,
    ranges: usize,
    undo: usize,
}

/// What a write that there was at the last savepoint was before.
pub(crate) enum Undo {
    /// The bytes at an offset.
    Bytes(u32, u64, Box<[u8]>),
    /// Not freed.
    Freed(u32),
}

/// Of which the last savepoint knows.
fn is_saved(set: &Set, at: usize) -> bool {
    set.saved.last().is_some_and(|saved| at < saved.writes)
}

/// Kept bytes that are looked through for the same ones.
const RECENT: usize = 4;

impl Tx<'_> {
    /// Before `len` bytes at `offset` of the write are handed out to be changed.
    #[inline]
    pub(crate) fn keep_bytes(&self, set: &mut Set, at: usize, offset: u64, len: u64) -> Result<()> {
        if is_saved(set, at) { self.keep_saved(set, at, offset, len) } else { Ok(()) }
    }

    #[cold]
    fn keep_saved(&self, set: &mut Set, at: usize, offset: u64, len: u64) -> Result<()> {
        let since = set.saved.last().map_or(0, |saved| saved.undo);
        let is_kept = |undo: &Undo| match undo {
            Undo::Bytes(of, from, old) => {
                *of as usize == at && *from <= offset && offset + len <= from + old.len() as u64
            }
            Undo::Freed(_) => false,
        };
        let write = &set.writes[at];
        let whole = write.block.len();
        let kept = set.kept.entry(at as u32).or_default();
        if *kept > whole || set.undo[since..].iter().rev().take(RECENT).any(is_kept) {
            return Ok(());
        }
        // In pieces until they are as much as all of it, which is kept then, so that no more ever is: earlier pieces are put back behind it.
        *kept += len;
        let (offset, len) = if *kept > whole { (write.block.offset(), whole) } else { (offset, len) };
        let old = self.written(write, offset, len)?.into();
        set.undo.push(Undo::Bytes(at as u32, offset, old));
        Ok(())
    }

    /// Before the write is freed.
    pub(crate) fn keep_free(set: &mut Set, at: usize) {
        if is_saved(set, at) {
            set.undo.push(Undo::Freed(at as u32));
        }
    }

    /// What it holds so far.
    fn written(&self, write: &Write, offset: u64, len: u64) -> Result<&[u8]> {
        match &write.copy {
            Some(copy) => raw::own(self, copy, offset - write.block.offset(), len).ok_or(Error::NoSavepoint),
            None => raw::bytes(Claim::Fresh, self, &self.core.pool, offset, len),
        }
    }

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
