//! What the allocator knows of a chunk in DRAM.

use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicU8, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Release},
};

use crate::alloc::media::mask;

/// What a chunk is used for. Packed in one word, so that a reader sees one moment; the version makes two uses of a chunk differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Not looked at since the pool was opened.
    Unknown,
    /// Holds nothing.
    Free,
    /// Start of a span.
    Head { class: u8, span: u32 },
    /// Inside a span that starts `back` chunks before.
    Tail { back: u32 },
    /// Its words on media contradict each other: never allocated from, never resolved.
    Damaged,
}

/// Who serves allocations from a span.
pub(crate) mod owner {
    /// A thread's cache.
    pub(crate) const CACHE: u8 = 1;
    /// Nobody: it has no free block.
    pub(crate) const FULL: u8 = 2;
    /// The list of spans with free blocks.
    pub(crate) const PARTIAL: u8 = 3;
}

pub(crate) struct Chunk {
    shape: AtomicU64,
    /// Blocks of the span that are not available: cached, reserved, live or about to be freed.
    pub(crate) used: AtomicU32,
    pub(crate) owner: AtomicU8,
    /// Two bits per block, interleaved by word: *available* and *live*. (1,0) free, (0,0) in a cache or being freed,
    /// (0,1) reserved or live. Made at first use for the most blocks a chunk can have, then kept.
    bits: OnceLock<Box<[AtomicU64]>>,
}

impl Default for Chunk {
    fn default() -> Self {
        Self { shape: AtomicU64::new(0), used: AtomicU32::new(0), owner: AtomicU8::new(0), bits: OnceLock::new() }
    }
}

impl Chunk {
    #[inline]
    pub(crate) fn shape(&self) -> Shape {
        Self::decode(self.shape.load(Acquire))
    }

    /// The shape word itself: equal words mean the same use of the chunk.
    #[inline]
    pub(crate) fn shape_word(&self) -> u64 {
        self.shape.load(Acquire)
    }

    #[inline]
    pub(crate) fn decode(word: u64) -> Shape {
        let (class, value) = ((word >> 4) as u8, (word >> 12) as u32);
        match word & 15 {
            0 => Shape::Unknown,
            1 => Shape::Free,
            2 => Shape::Head { class, span: value },
            3 => Shape::Tail { back: value },
            _ => Shape::Damaged,
        }
    }

    /// Called with the allocator's central lock held.
    pub(crate) fn set_shape(&self, shape: Shape) {
        let low = match shape {
            Shape::Unknown => 0,
            Shape::Free => 1,
            Shape::Head { class, span } => 2 | u64::from(class) << 4 | u64::from(span) << 12,
            Shape::Tail { back } => 3 | u64::from(back) << 12,
            Shape::Damaged => 4,
        };
        let version = (self.shape.load(Acquire) >> 44).wrapping_add(1);
        self.shape.store(low | version << 44, Release);
    }

    /// Bit words for spans of up to `blocks_max` blocks.
    pub(crate) fn make_bits(&self, blocks_max: u32) -> &[AtomicU64] {
        self.bits.get_or_init(|| (0..blocks_max.div_ceil(64) * 2).map(|_| AtomicU64::new(0)).collect())
    }

    /// The words, empty if none were made.
    #[inline]
    fn words(&self) -> &[AtomicU64] {
        self.bits.get().map_or(&[], |b| b)
    }

    /// Sets up the bits of a span of which `live(word)` blocks are live.
    pub(crate) fn reset_bits(&self, blocks: u32, mut live: impl FnMut(u32) -> u64) -> u32 {
        let mut used = 0;
        for (i, pair) in self.words().chunks_exact(2).enumerate() {
            let first = i as u32 * 64;
            let (bits, all) = if first < blocks { (live(first), mask(blocks - first)) } else { (0, 0) };
            pair[0].store(all & !bits, Release);
            pair[1].store(bits, Release);
            used += bits.count_ones();
        }
        self.used.store(used, Release);
        used
    }

    /// Takes all available blocks of one word, the first that has any at or behind `word`, wrapping around once.
    #[inline]
    pub(crate) fn take_word(&self, word: u32, blocks: u32) -> Option<(u32, u64)> {
        let words = blocks.div_ceil(64);
        let pairs = self.words();
        for i in 0..words {
            let at = (word + i) % words;
            let available = pairs.get(at as usize * 2)?;
            if available.load(Acquire) != 0 {
                let bits = available.swap(0, AcqRel);
                if bits != 0 {
                    self.used.fetch_add(bits.count_ones(), AcqRel);
                    return Some((at, bits));
                }
            }
        }
        None
    }

    pub(crate) fn has_available(&self, blocks: u32) -> bool {
        self.words().chunks_exact(2).take(blocks.div_ceil(64) as usize).any(|p| p[0].load(Acquire) != 0)
    }

    /// Makes blocks of a word available again; returns how many are still used.
    #[inline]
    pub(crate) fn give_back(&self, word: u32, bits: u64) -> u32 {
        if let Some(available) = self.words().get(word as usize * 2) {
            available.fetch_or(bits, AcqRel);
        }
        self.used.fetch_sub(bits.count_ones(), AcqRel) - bits.count_ones()
    }

    #[inline]
    pub(crate) fn is_live(&self, index: u32) -> bool {
        self.words().get(index as usize / 64 * 2 + 1).is_some_and(|w| w.load(Acquire) & 1 << (index % 64) != 0)
    }

    /// Sets or clears the live bit; returns what it was.
    #[inline]
    pub(crate) fn set_live(&self, index: u32, live: bool) -> bool {
        let Some(word) = self.words().get(index as usize / 64 * 2 + 1) else { return false };
        let bit = 1 << (index % 64);
        let before = if live { word.fetch_or(bit, AcqRel) } else { word.fetch_and(!bit, AcqRel) };
        before & bit != 0
    }
}
