//! What a transaction knows of itself. Kept in its slot, so that its memory is used again by the next one.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};

use pmem::{Block, Intent, Pool};
use tx::{Doom, Error, Result, Savepoint};

use crate::procedures::Calling;
use crate::raw::{self, Claim, Owned, Word};

#[derive(Default)]
pub(crate) struct TxState {
    /// Cheap to ask; the reason is in `doom`.
    pub(crate) doomed: Cell<bool>,
    pub(crate) doom: RefCell<Option<Doom>>,
    pub(crate) set: RefCell<Set>,
}

/// What is read, and what is to be committed.
#[derive(Default)]
pub(crate) struct Set {
    pub(crate) writes: Vec<Write>,
    /// From header to place in `writes`, once there are many.
    index: HashMap<u32, u32>,
    /// Which write; where and how many bytes.
    pub(crate) ranges: Vec<(u32, u64, u64)>,
    /// Objects, and where they are.
    pub(crate) reads: Vec<(Word, u64)>,
    /// Memory for a record.
    pub(crate) record: Vec<u8>,
    /// The transaction is this call.
    pub(crate) call: Option<Calling>,
    /// Blocks that the call had when it ran first.
    pub(crate) again: Option<VecDeque<Intent>>,
    /// Savepoints, and what was before that is written over since.
    pub(crate) saved: Vec<Saved>,
    pub(crate) undo: Vec<Undo>,
    /// Bytes of each write that are kept since the last savepoint.
    pub(crate) kept: HashMap<u32, u64>,
    /// Conflicts from which it went back.
    pub(crate) lifted: u32,
}

/// An object that is locked.
pub(crate) struct Write {
    pub(crate) header: u32,
    pub(crate) word: Word,
    pub(crate) block: Block,
    /// What it will hold; `None` for a new object, which is written where it is.
    pub(crate) copy: Option<Owned>,
    pub(crate) freed: bool,
}

impl Write {
    pub(crate) fn is_new(&self) -> bool {
        self.copy.is_none()
    }

    /// What it holds so far.
    fn written<'a>(&'a self, pool: &'a Pool, offset: u64, len: u64) -> Result<&'a [u8]> {
        match &self.copy {
            Some(copy) => raw::own(self, copy, offset - self.block.offset(), len).ok_or(Error::NoSavepoint),
            None => raw::bytes(Claim::Fresh, self, pool, offset, len),
        }
    }
}

/// More objects than this are looked up by hash.
const FEW: usize = 12;
/// Reads, ranges, or kept bytes, that are looked through for the same object.
const RECENT: usize = 4;
/// Entries whose memory is kept for the next transaction.
const KEEP: usize = 1 << 12;
const RECORD_KEEP: usize = 64 << 10;

impl Set {
    pub(crate) fn find(&self, header: u32) -> Option<usize> {
        match self.writes.len() <= FEW {
            true => self.writes.iter().rposition(|write| write.header == header),
            false => self.index.get(&header).map(|&at| at as usize),
        }
    }

    pub(crate) fn push(&mut self, write: Write) -> usize {
        self.writes.push(write);
        let len = self.writes.len();
        if len > FEW {
            let from = if len == FEW + 1 { 0 } else { len - 1 };
            let new = self.writes[from..].iter().zip(from as u32..).map(|(write, at)| (write.header, at));
            self.index.extend(new);
        }
        len - 1
    }

    /// Those from `len` on.
    pub(crate) fn split_off(&mut self, len: usize) -> Vec<Write> {
        let gone = self.writes.split_off(len);
        if len <= FEW {
            self.index.clear();
        }
        for write in &gone {
            self.index.remove(&write.header);
        }
        gone
    }

    #[inline]
    pub(crate) fn note_read(&mut self, word: Word, offset: u64) {
        if !self.reads.iter().rev().take(RECENT).any(|read| read.0 == word) {
            self.reads.push((word, offset));
        }
    }

    #[inline]
    pub(crate) fn note_write(&mut self, at: usize, offset: u64, len: u64) {
        let at = at as u32;
        let is_in = |range: &&(u32, u64, u64)| range.0 == at && range.1 <= offset && offset + len <= range.1 + range.2;
        if len > 0 && self.ranges.iter().rev().take(RECENT).find(is_in).is_none() {
            self.ranges.push((at, offset, len));
        }
    }

    /// Of which the last savepoint knows.
    fn is_saved(&self, at: usize) -> bool {
        self.saved.last().is_some_and(|saved| at < saved.writes)
    }

    /// Before `len` bytes at `offset` of the write are handed out to be changed.
    #[inline]
    pub(crate) fn keep_bytes(&mut self, pool: &Pool, at: usize, offset: u64, len: u64) -> Result<()> {
        if self.is_saved(at) { self.keep_saved(pool, at, offset, len) } else { Ok(()) }
    }

    #[cold]
    fn keep_saved(&mut self, pool: &Pool, at: usize, offset: u64, len: u64) -> Result<()> {
        let since = self.saved.last().map_or(0, |saved| saved.undo);
        let is_kept = |undo: &Undo| match undo {
            Undo::Bytes(of, from, old) => {
                *of as usize == at && *from <= offset && offset + len <= from + old.len() as u64
            }
            Undo::Freed(_) => false,
        };
        let write = &self.writes[at];
        let whole = write.block.len();
        let kept = self.kept.entry(at as u32).or_default();
        if *kept > whole || self.undo[since..].iter().rev().take(RECENT).any(is_kept) {
            return Ok(());
        }
        // In pieces until they are as much as all of it, which is kept then, so that no more ever is: earlier pieces are put back behind it.
        *kept += len;
        let (offset, len) = if *kept > whole { (write.block.offset(), whole) } else { (offset, len) };
        let old = write.written(pool, offset, len)?.into();
        self.undo.push(Undo::Bytes(at as u32, offset, old));
        Ok(())
    }

    /// Before the write is freed.
    pub(crate) fn keep_free(&mut self, at: usize) {
        if self.is_saved(at) {
            self.undo.push(Undo::Freed(at as u32));
        }
    }

    /// Keeps the memory of a record, if it is little.
    pub(crate) fn keep_record(&mut self, record: Vec<u8>) {
        if record.capacity() <= RECORD_KEEP {
            self.record = record;
        }
    }

    /// Ready for the next transaction.
    pub(crate) fn reset(&mut self) {
        self.writes.clear();
        self.index.clear();
        self.ranges.clear();
        self.reads.clear();
        (self.call, self.again) = (None, None);
        self.saved.clear();
        self.undo.clear();
        self.kept.clear();
        self.lifted = 0;
        if self.writes.capacity().max(self.ranges.capacity()).max(self.reads.capacity()) > KEEP {
            *self = Self::default();
        }
    }
}

/// What there was when a savepoint was set.
#[derive(Clone, Copy)]
pub(crate) struct Saved {
    pub(crate) savepoint: Savepoint,
    pub(crate) writes: usize,
    pub(crate) ranges: usize,
    pub(crate) undo: usize,
}

/// What a write that there was at the last savepoint was before.
pub(crate) enum Undo {
    /// The bytes at an offset.
    Bytes(u32, u64, Box<[u8]>),
    /// Not freed.
    Freed(u32),
}
