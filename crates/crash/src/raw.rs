//! The simulated memory itself. The rest of this crate's unsafe code is the promises of [`Sim`](crate::Sim) and [`Module`](crate::Module) that each is one, in
//! their own modules of this name.
//!
//! The program under test stores into this memory through references that `pmem` hands out; the model reads and writes it
//! through raw pointers alone, and only inside a call from that program (or while no pool is open).

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Bytes of a page: how the memory is aligned, and what a sync that failed gives up as a whole.
pub(crate) const PAGE: usize = 4096;
/// Words of one block of the model's bookkeeping. Small, for recovery stores to few lines; a few lines, for they are never split.
pub(crate) const BLOCK_WORDS: usize = 32;
/// Bytes of one block.
pub(crate) const BLOCK: usize = BLOCK_WORDS * 8;

/// Page-aligned zeroed memory, read and written word by word.
pub(crate) struct Memory {
    base: NonNull<u64>,
    words: usize,
}

// SAFETY: `Memory` owns its allocation. What calls its methods while a pool is open on it is the one thread that runs
// (recovery is single threaded, a workload runs under the cooperative scheduler), so accesses are ordered.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub(crate) fn new(pages: usize) -> Self {
        assert!(pages > 0, "a simulated memory has at least one page");
        let words = pages * (PAGE / 8);
        let layout = Self::layout(words);
        // SAFETY: the layout is not empty, asserted above.
        let raw = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(raw.cast::<u64>()) else { handle_alloc_error(layout) };
        Self { base, words }
    }

    fn layout(words: usize) -> Layout {
        Layout::from_size_align(words * 8, PAGE).unwrap_or_else(|_| panic!("{words} words are no layout"))
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base.cast()
    }

    #[inline]
    pub(crate) fn load(&self, word: usize) -> u64 {
        assert!(word < self.words);
        // SAFETY: in bounds (asserted), aligned and initialised (allocated as zeroed words).
        unsafe { self.base.add(word).read_volatile() }
    }

    #[inline]
    pub(crate) fn store(&self, word: usize, value: u64) {
        assert!(word < self.words);
        // SAFETY: as in `load`.
        unsafe { self.base.add(word).write_volatile(value) }
    }

    pub(crate) fn read_block(&self, block: usize, out: &mut [u64; BLOCK_WORDS]) {
        assert!((block + 1) * BLOCK_WORDS <= self.words);
        // SAFETY: in bounds (asserted); `out` is a distinct borrowed array of the same size.
        unsafe { self.base.add(block * BLOCK_WORDS).as_ptr().copy_to_nonoverlapping(out.as_mut_ptr(), BLOCK_WORDS) }
    }

    /// Whether the block has other words than these.
    #[inline]
    pub(crate) fn differs(&self, block: usize, from: &[u64]) -> bool {
        assert!((block + 1) * BLOCK_WORDS <= self.words && from.len() == BLOCK_WORDS);
        let first = block * BLOCK_WORDS;
        // SAFETY: in bounds (asserted), aligned and initialised (allocated as zeroed words).
        let word = |at| unsafe { self.base.add(first + at).read() };
        from.iter().enumerate().fold(0, |sum, (at, &value)| sum | (word(at) ^ value)) != 0
    }

    pub(crate) fn write_block(&self, block: usize, from: &[u64]) {
        assert!((block + 1) * BLOCK_WORDS <= self.words && from.len() == BLOCK_WORDS);
        // SAFETY: in bounds on both sides (asserted); `from` is a borrowed slice elsewhere.
        unsafe { self.base.add(block * BLOCK_WORDS).as_ptr().copy_from_nonoverlapping(from.as_ptr(), BLOCK_WORDS) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this very layout; it is no longer used, for it is dropped.
        unsafe { dealloc(self.base.as_ptr().cast(), Self::layout(self.words)) }
    }
}
