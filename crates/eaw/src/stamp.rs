//! Stamps of entries and savepoints: none of another transaction, array or store has the same, so that none is taken for another.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// So many a thread takes at once: what all threads write to is written seldom.
const BLOCK: u64 = 1 << 16;

static BLOCKS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// The last one that the thread gave out; a multiple of [`BLOCK`] if there is none left.
    static LAST: Cell<u64> = const { Cell::new(0) };
}

pub(crate) fn stamp() -> u64 {
    let last = LAST.get();
    let first = if last.is_multiple_of(BLOCK) { BLOCKS.fetch_add(1, Relaxed) * BLOCK } else { last };
    LAST.set(first + 1);
    first + 1
}
