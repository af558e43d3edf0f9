//! The lock word of a block.
//!
//! ```text
//! | writer 1 | pending 1 | slot 14 | marked 1 | readers 15 |
//! ```
//!
//! Free, n readers, or one writer, which is a transaction in a slot. *Pending* says that a committed transaction of that slot is not applied
//! yet: readers may enter, a writer applies the slot first. No transaction waits for a lock: it aborts, and comes back. *Marked* says that threads which came
//! back queue for it: the lock is to be had in the order of the [`queue`](crate::queue) only.

use std::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use pmem::sync::{switch_point, unpark};

use crate::counted::behind;
use crate::raw::Word;

#[cfg(feature = "failpoints")]
thread_local! {
    static LOST: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    static CHANGED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// For tests: times that this thread has changed a lock word, or tried to, which takes its line from other threads as well.
#[cfg(feature = "failpoints")]
pub fn lock_words_changed() -> u64 {
    CHANGED.get()
}

/// In front of each change of a lock word.
#[inline(always)]
fn changes() {
    #[cfg(feature = "failpoints")]
    CHANGED.set(CHANGED.get() + 1);
}

/// For tests: marks that this thread's writers have lost, as they gave their locks up.
#[cfg(feature = "failpoints")]
pub fn marks_lost() -> u64 {
    LOST.get()
}

const WRITER: u32 = 1 << 31;
const PENDING: u32 = 1 << 30;
const SLOT_SHIFT: u32 = 16;
const MARKED: u32 = 1 << 15;
/// As many as there are slots, and some that scrub.
const READERS: u32 = MARKED - 1;
/// Slots a word can name.
pub(crate) const SLOTS_MAX: usize = 1 << 14;

/// What a lock word said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No writer, nothing pending; that many readers.
    Shared(u32),
    /// A transaction in this slot writes.
    Writer(usize),
    /// A transaction of this slot has committed and is not applied; that many readers.
    Pending(usize, u32),
}

fn state(word: u32) -> State {
    let slot = (word >> SLOT_SHIFT & (SLOTS_MAX as u32 - 1)) as usize;
    match (word & WRITER != 0, word & PENDING != 0) {
        (true, _) => State::Writer(slot),
        (false, true) => State::Pending(slot, word & READERS),
        (false, false) => State::Shared(word & READERS),
    }
}

fn writer(slot: usize) -> u32 {
    WRITER | (slot as u32) << SLOT_SHIFT
}

fn marked(is_marked: bool) -> u32 {
    if is_marked { MARKED } else { 0 }
}

/// What stands in the way, or nothing.
pub(crate) type Attempt = Result<(), State>;

#[inline]
pub(crate) fn load(word: &AtomicU32) -> State {
    state(word.load(Acquire))
}

impl std::fmt::Debug for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", load(self.get()))
    }
}

/// Whether threads queue for it.
#[inline]
pub(crate) fn is_marked(word: &AtomicU32) -> bool {
    word.load(Acquire) & MARKED != 0
}

/// Called under the queue's lock.
pub(crate) fn mark(word: &AtomicU32) {
    behind::modifies();
    changes();
    switch_point();
    word.fetch_or(MARKED, AcqRel);
}

/// Called under the queue's lock.
pub(crate) fn unmark(word: &AtomicU32) {
    behind::modifies();
    changes();
    switch_point();
    word.fetch_and(!MARKED, AcqRel);
}

/// A free word becomes the writer's.
#[inline]
pub(crate) fn try_write(word: &AtomicU32, slot: usize) -> Attempt {
    behind::modifies();
    changes();
    switch_point();
    word.compare_exchange(0, writer(slot), AcqRel, Acquire).map(|_| ()).map_err(state)
}

/// The only reader becomes the writer.
#[inline]
pub(crate) fn try_upgrade(word: &AtomicU32, slot: usize) -> Attempt {
    behind::modifies();
    changes();
    switch_point();
    word.compare_exchange(1, writer(slot), AcqRel, Acquire).map(|_| ()).map_err(state)
}

/// A word that has no readers but `readers` of the same transaction, and which is marked or not as it says, becomes the writer's. The mark stays.
pub(crate) fn try_take(word: &AtomicU32, slot: usize, readers: u32, is_marked: bool) -> Attempt {
    behind::modifies();
    changes();
    switch_point();
    let mark = marked(is_marked);
    word.compare_exchange(readers | mark, writer(slot) | mark, AcqRel, Acquire).map(|_| ()).map_err(state)
}

/// What this slot itself has pending, and has no readers but `readers` of the same transaction, becomes its to write again.
#[inline]
pub(crate) fn try_rewrite(word: &AtomicU32, slot: usize, readers: u32, is_marked: bool) -> Attempt {
    behind::modifies();
    changes();
    switch_point();
    let mark = marked(is_marked);
    let pending = PENDING | (slot as u32) << SLOT_SHIFT | readers | mark;
    word.compare_exchange(pending, writer(slot) | mark, AcqRel, Acquire).map(|_| ()).map_err(state)
}

/// One more reader of a word that is not marked.
#[inline]
pub(crate) fn try_read(word: &AtomicU32) -> Attempt {
    read_past(word, WRITER | MARKED)
}

/// One more reader, whose turn it is.
#[cold]
pub(crate) fn try_read_marked(word: &AtomicU32) -> Attempt {
    read_past(word, WRITER)
}

#[inline(always)]
fn read_past(word: &AtomicU32, bars: u32) -> Attempt {
    behind::modifies();
    changes();
    switch_point();
    let mut seen = word.load(Acquire);
    loop {
        if seen & bars != 0 || seen & READERS == READERS {
            return Err(state(seen));
        }
        match word.compare_exchange_weak(seen, seen + 1, AcqRel, Acquire) {
            Ok(_) => return Ok(()),
            Err(now) => seen = now,
        }
    }
}

#[inline]
pub(crate) fn end_read(word: &AtomicU32) {
    behind::modifies();
    changes();
    if word.fetch_sub(1, Release) & (READERS | MARKED) == MARKED | 1 {
        wake(word);
    }
}

/// The writer goes, and leaves nothing behind.
#[inline]
pub(crate) fn end_write(word: &AtomicU32) {
    leave(word, 0);
}

/// The same, but for so many of its own transaction's readers, which it has taken the word from.
#[inline]
pub(crate) fn end_write_but(word: &AtomicU32, readers: u8) {
    leave(word, readers.into());
}

/// The writer has committed.
#[inline]
pub(crate) fn set_pending(word: &AtomicU32, slot: usize) {
    leave(word, PENDING | (slot as u32) << SLOT_SHIFT);
}

/// The same, but for readers as in [`end_write_but`].
#[inline]
pub(crate) fn set_pending_but(word: &AtomicU32, slot: usize, readers: u8) {
    leave(word, PENDING | (slot as u32) << SLOT_SHIFT | u32::from(readers));
}

/// Plain stores: a read-modify-write would wait for what was flushed before. A mark that is made between them is lost.
#[inline]
fn leave(word: &AtomicU32, left: u32) {
    changes();
    let mark = word.load(Relaxed) & MARKED;
    #[cfg(feature = "failpoints")]
    {
        switch_point(); // under a scheduler it is lost
        let is_lost = mark == 0 && is_marked(word);
        LOST.set(LOST.get() + u64::from(is_lost));
    }
    word.store(left | mark, Release);
    if mark != 0 {
        wake(word);
    }
}

/// What was pending is applied; readers stay.
#[inline]
pub(crate) fn end_pending(word: &AtomicU32) {
    behind::modifies();
    changes();
    word.fetch_and(READERS | MARKED, Release);
}

#[cold]
fn wake(word: &AtomicU32) {
    unpark(std::ptr::from_ref(word) as usize);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_allows_readers_or_one_writer() {
        let word = AtomicU32::new(0);
        assert_eq!(try_read(&word), Ok(()));
        assert_eq!(try_read(&word), Ok(()));
        assert_eq!(try_write(&word, 3), Err(State::Shared(2)));
        assert_eq!(try_upgrade(&word, 3), Err(State::Shared(2)));
        end_read(&word);
        assert_eq!(try_upgrade(&word, 3), Ok(()));
        assert_eq!(load(&word), State::Writer(3));
        assert_eq!(try_read(&word), Err(State::Writer(3)));
        assert_eq!(try_write(&word, 4), Err(State::Writer(3)));

        set_pending(&word, 3);
        assert_eq!(try_read(&word), Ok(()));
        assert_eq!(try_write(&word, 4), Err(State::Pending(3, 1)));
        assert_eq!(try_rewrite(&word, 3, 0, false), Err(State::Pending(3, 1)));
        assert_eq!(try_rewrite(&word, 3, 1, false), Ok(()));
        set_pending(&word, 3);
        assert_eq!(try_read(&word), Ok(()));
        end_pending(&word);
        assert_eq!(load(&word), State::Shared(1));
        end_read(&word);
        assert_eq!(try_write(&word, SLOTS_MAX - 1), Ok(()));
        assert_eq!(load(&word), State::Writer(SLOTS_MAX - 1));
        end_write(&word);
        assert_eq!(load(&word), State::Shared(0));
    }

    #[test]
    fn readers_never_spill_into_the_mark() {
        let word = AtomicU32::new(READERS);
        assert_eq!(try_read(&word), Err(State::Shared(READERS)));
        assert_eq!(try_read_marked(&word), Err(State::Shared(READERS)));
    }

    /// It bars threads that do not ask for their turn, and stays through every change of the lock.
    #[test]
    fn the_mark_stays() {
        let word = AtomicU32::new(0);
        assert_eq!(try_read(&word), Ok(()));
        mark(&word);
        assert_eq!(try_read(&word), Err(State::Shared(1)));
        assert_eq!(try_upgrade(&word, 3), Err(State::Shared(1)));
        assert_eq!(try_take(&word, 3, 1, false), Err(State::Shared(1)));
        assert_eq!(try_read_marked(&word), Ok(()));
        end_read(&word);
        end_read(&word);
        assert_eq!(try_write(&word, 3), Err(State::Shared(0)));
        assert_eq!(try_take(&word, 3, 0, true), Ok(()));
        assert_eq!((load(&word), is_marked(&word)), (State::Writer(3), true));
        assert_eq!(try_read_marked(&word), Err(State::Writer(3)));
        set_pending(&word, 3);
        assert_eq!((load(&word), is_marked(&word)), (State::Pending(3, 0), true));
        assert_eq!(try_rewrite(&word, 3, 0, false), Err(State::Pending(3, 0)));
        assert_eq!(try_rewrite(&word, 3, 0, true), Ok(()));
        set_pending(&word, 3);
        end_pending(&word);
        assert_eq!((load(&word), is_marked(&word)), (State::Shared(0), true));
        assert_eq!(try_take(&word, SLOTS_MAX - 1, 0, true), Ok(()));
        assert_eq!(load(&word), State::Writer(SLOTS_MAX - 1));
        end_write(&word);
        unmark(&word);
        assert_eq!(try_write(&word, 3), Ok(()));
        unmark(&word);
        assert_eq!(load(&word), State::Writer(3));
    }
}
