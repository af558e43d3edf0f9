//! What a transaction knows of itself. Kept in its slot, so that its memory is used again by the next one.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use pmem::{Block, Intent};
use tx::{Doom, Savepoint};

use crate::copies::Copied;
use crate::entries::Entries;
use crate::hash::PointerHash;
use crate::raw::Word;
use crate::record::{Bytes, covers};
use crate::stage::Stage;
use crate::undo::UndoLog;

#[derive(Default)]
pub(crate) struct TxState {
    /// Cheap to ask; the reason is in `doom`.
    pub(crate) doomed: Cell<bool>,
    pub(crate) doom: RefCell<Option<Doom>>,
    pub(crate) set: RefCell<Set>,
}

/// Locks held, and what is to be committed.
#[derive(Default)]
pub(crate) struct Set {
    pub(crate) held: Vec<Held>,
    /// From word to place in `held`, once there are many.
    index: HashMap<usize, u32, BuildHasherDefault<PointerHash>>,
    /// What was handed out to be changed.
    pub(crate) writes: Vec<Bytes>,
    /// Of these, what main does not hold yet.
    pub(crate) stage: Stage,
    /// What is written under policy `eaw`.
    pub(crate) entries: Entries,
    /// The commit has ended what is only read.
    pub(crate) reads_over: bool,
    /// Blocks allocated and not freed again.
    pub(crate) allocs: usize,
    pub(crate) frees: usize,
    /// Some object was pending in this very slot: see `Log::rewrite`.
    pub(crate) rewrites: bool,
    pub(crate) undo: UndoLog,
    /// Copies of what is to be written (`copies`).
    pub(crate) copies: Vec<Copied>,
    /// A copy was made, or brought back, and this thread has had no barrier since it is sure.
    pub(crate) unsure: bool,
    /// Savepoints, oldest first.
    pub(crate) saved: Vec<Saved>,
    /// Of what is held, what was freed since the first of them, in order.
    pub(crate) freed_since: Vec<usize>,
    /// Conflicts that were gone back from.
    pub(crate) lifted: u32,
    /// What the outer transaction of this nested top action has.
    pub(crate) outer: Option<Box<Set>>,
    // For the commit, empty between commits.
    pub(crate) words: Vec<(Word, bool)>,
    pub(crate) intents: Vec<Intent>,
    pub(crate) freed: Vec<Block>,
}

/// A savepoint: how much there was then.
pub(crate) struct Saved {
    pub(crate) savepoint: Savepoint,
    pub(crate) held: usize,
    pub(crate) freed: usize,
}

/// A lock held.
#[derive(Clone, Copy)]
pub(crate) struct Held {
    pub(crate) word: Word,
    pub(crate) block: Block,
    pub(crate) write: bool,
    /// Allocated by this transaction.
    pub(crate) fresh: bool,
    /// Freed by this transaction.
    pub(crate) freed: bool,
    /// All of it has a copy, which `Set::copies` names.
    pub(crate) covered: bool,
    /// Main does not hold all that was written to it (`staged`, `entries`).
    pub(crate) staged: bool,
    /// The slot had it pending.
    pub(crate) rewritten: bool,
    /// ... and has again: the lock is given up.
    pub(crate) given_back: bool,
    /// Locks of outer transactions that it was taken from, which only read it: to be given back.
    pub(crate) outer: u8,
    /// Bytes of it whose old ones are kept, or of which an intent tells: those named last, and what touches them.
    pub(crate) kept: Bytes,
}

impl Held {
    /// A lock taken just now.
    #[inline]
    pub(crate) fn new(word: Word, block: Block, write: bool) -> Self {
        let (fresh, freed, covered, staged) = (false, false, false, false);
        let (rewritten, given_back) = (false, false);
        Self { word, block, write, fresh, freed, covered, staged, rewritten, given_back, outer: 0, kept: (0, 0) }
    }
}

impl Held {
    #[inline]
    pub(crate) fn has_kept(&self, offset: u64, len: u64) -> bool {
        covers(self.kept, offset, len)
    }

    /// Notes that a range is kept.
    #[inline]
    pub(crate) fn keep(&mut self, offset: u64, len: u64) {
        let (start, end) = (self.kept.0, self.kept.0 + self.kept.1);
        self.kept = match offset <= end && start <= offset + len && start < end {
            true => (start.min(offset), end.max(offset + len) - start.min(offset)),
            false => (offset, len),
        };
    }
}

/// More locks than this are looked up by hash.
const FEW: usize = 12;

impl Set {
    #[inline]
    pub(crate) fn find(&self, word: Word) -> Option<usize> {
        if self.held.len() <= FEW {
            return self.held.iter().rposition(|h| h.word == word);
        }
        self.index.get(&word.id()).map(|&at| at as usize)
    }

    /// Whether it is held here, or by an outer transaction.
    #[cold]
    pub(crate) fn holds(&self, word: Word) -> bool {
        self.find(word).is_some() || self.outer.as_ref().is_some_and(|outer| outer.holds(word))
    }

    #[inline]
    pub(crate) fn push(&mut self, held: Held) {
        self.held.push(held);
        if self.held.len() > FEW {
            self.index_last();
        }
    }

    #[cold]
    #[inline(never)]
    fn index_last(&mut self) {
        let from = if self.held.len() == FEW + 1 { 0 } else { self.held.len() - 1 };
        for at in from..self.held.len() {
            self.index.insert(self.held[at].word.id(), at as u32);
        }
    }

    /// Notes a range that is about to be changed. Repetitions among the last few are found here, the rest when it commits.
    #[inline]
    pub(crate) fn note_write(&mut self, offset: u64, len: u64) {
        if len > 0 && !self.writes.iter().rev().take(4).any(|w| covers(*w, offset, len)) {
            self.writes.push((offset, len));
        }
    }

    /// Notes that a lock which was taken from what the slot had pending is given back. How many readers of outer transactions stay; nothing if it is none.
    pub(crate) fn give_back(&mut self, word: Word) -> Option<u8> {
        let at = self.find(word).filter(|&at| self.held[at].rewritten)?;
        let held = &mut self.held[at];
        held.rewritten = false;
        held.given_back = true;
        Some(held.outer)
    }

    /// Copies in the order of main, each once.
    #[inline]
    pub(crate) fn order_copies(&mut self) {
        if self.copies.len() > 1 {
            self.copies.sort_unstable_by_key(|copy| copy.offset);
            self.copies.dedup();
        }
    }

    /// Ready for the next transaction.
    #[inline]
    pub(crate) fn reset(&mut self) {
        if self.held.len() > FEW {
            self.index.clear();
        }
        self.held.clear();
        self.writes.clear();
        self.stage.clear();
        self.entries.clear();
        self.copies.clear();
        self.saved.clear();
        self.freed_since.clear();
        self.lifted = 0;
        (self.allocs, self.frees, self.rewrites, self.unsure, self.reads_over) = (0, 0, false, false, false);
        let largest = self.writes.capacity().max(self.held.capacity()).max(self.copies.capacity());
        if largest.max(self.index.capacity()) > KEEP {
            *self = Self::default(); // a huge transaction is no reason to keep its memory
        }
    }
}

/// Elements whose memory is kept between transactions.
const KEEP: usize = 4096;
