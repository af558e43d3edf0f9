//! The lock word of a block.
//!
//! ```text
//! | writer 1 | pending 1 | slot 14 | readers 16 |
//! ```
//!
//! Free, n readers, or one writer, who is a transaction in a slot. *Pending* says that a committed transaction of that slot is not settled
//! yet: readers may enter, a writer settles the slot first. Nobody waits for an active lock: who meets one aborts and comes back.

use std::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Release},
};

use pmem::sync::switch_point;

const WRITER: u32 = 1 << 31;
const PENDING: u32 = 1 << 30;
const SLOT_SHIFT: u32 = 16;
const READERS: u32 = (1 << SLOT_SHIFT) - 1;
/// Slots a word can name.
pub(crate) const SLOTS_MAX: usize = 1 << 14;

/// What a lock word said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nobody writes, nothing is pending; that many readers.
    Shared(u32),
    /// A transaction in this slot writes.
    Writer(usize),
    /// A transaction of this slot has committed and is not settled; that many readers.
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

/// What stands in the way, or nothing.
pub(crate) type Attempt = Result<(), State>;

#[inline]
pub(crate) fn load(word: &AtomicU32) -> State {
    state(word.load(Acquire))
}

/// A free word becomes the writer's.
#[inline]
pub(crate) fn try_write(word: &AtomicU32, slot: usize) -> Attempt {
    switch_point();
    word.compare_exchange(0, writer(slot), AcqRel, Acquire).map(|_| ()).map_err(state)
}

/// The only reader becomes the writer.
#[inline]
pub(crate) fn try_upgrade(word: &AtomicU32, slot: usize) -> Attempt {
    switch_point();
    word.compare_exchange(1, writer(slot), AcqRel, Acquire).map(|_| ()).map_err(state)
}

/// What this slot itself has pending, and nobody reads but `readers` of the same transaction, becomes its to write again.
#[inline]
pub(crate) fn try_rewrite(word: &AtomicU32, slot: usize, readers: u32) -> Attempt {
    switch_point();
    let pending = PENDING | (slot as u32) << SLOT_SHIFT | readers;
    word.compare_exchange(pending, writer(slot), AcqRel, Acquire).map(|_| ()).map_err(state)
}

/// One more reader.
#[inline]
pub(crate) fn try_read(word: &AtomicU32) -> Attempt {
    switch_point();
    let mut seen = word.load(Acquire);
    loop {
        if seen & WRITER != 0 || seen & READERS == READERS {
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
    word.fetch_sub(1, Release);
}

/// The writer goes, and leaves nothing behind.
#[inline]
pub(crate) fn end_write(word: &AtomicU32) {
    word.store(0, Release);
}

/// The writer has committed.
#[inline]
pub(crate) fn set_pending(word: &AtomicU32, slot: usize) {
    word.store(PENDING | (slot as u32) << SLOT_SHIFT, Release);
}

/// What was pending is settled; readers stay.
#[inline]
pub(crate) fn end_pending(word: &AtomicU32) {
    word.fetch_and(READERS, Release);
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
        assert_eq!(try_rewrite(&word, 3, 0), Err(State::Pending(3, 1)));
        assert_eq!(try_rewrite(&word, 3, 1), Ok(()));
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
    fn readers_never_spill_into_the_slot() {
        let word = AtomicU32::new(READERS);
        assert_eq!(try_read(&word), Err(State::Shared(READERS)));
    }
}
