//! What the allocator knows of a chunk in DRAM.

use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicU8, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Release, SeqCst},
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

/// What serves allocations from a span.
pub(crate) mod owner {
    /// A thread, from its cache.
    pub(crate) const CACHE: u8 = 1;
    /// Nothing: it has no free block.
    pub(crate) const FULL: u8 = 2;
    /// The list of spans with free blocks.
    pub(crate) const PARTIAL: u8 = 3;
}

pub(crate) struct Chunk {
    shape: AtomicU64,
    /// The span that the chunk table is known to describe here, on media or by an unretired record; 0 if unknown.
    described: AtomicU64,
    pub(crate) owner: AtomicU8,
    /// Two bits per block, 32 blocks to a word: *available* in the lower half, *live* in the upper. (1,0) free, (0,0) being freed, (0,1)
    /// reserved or live. Made at first use for the most blocks a chunk can have, then kept.
    bits: OnceLock<Box<[AtomicU64]>>,
    /// The engine's words: the first, and then, each made at first use, as many again as are before. A chunk that is cut anew keeps the words
    /// it had: a thread that still looks at them does not lose the memory.
    engine: [OnceLock<Box<[AtomicU32]>>; ENGINE_LEVELS],
}

/// Spans have up to 2^16 blocks: 1 MiB chunks of 16-byte blocks.
const ENGINE_LEVELS: usize = 17;

/// Blocks to a word of DRAM bits.
const PER_WORD: u32 = 32;

impl Default for Chunk {
    fn default() -> Self {
        Self {
            shape: AtomicU64::new(0),
            described: AtomicU64::new(0),
            owner: AtomicU8::new(0),
            bits: OnceLock::new(),
            engine: Default::default(),
        }
    }
}

impl Chunk {
    #[inline]
    pub(super) fn shape(&self) -> Shape {
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
        self.bits.get_or_init(|| (0..blocks_max.div_ceil(PER_WORD)).map(|_| AtomicU64::new(0)).collect())
    }

    /// The words, empty if none were made.
    #[inline]
    fn words(&self) -> &[AtomicU64] {
        self.bits.get().map_or(&[], |b| b)
    }

    /// Sets up the bits of a span of which `live(word)` blocks are live.
    pub(crate) fn reset_bits(&self, blocks: u32, mut live: impl FnMut(u32) -> u64) -> u32 {
        let mut used = 0;
        let mut bits = 0;
        for (word, first) in self.words().iter().zip((0..).step_by(PER_WORD as usize)) {
            bits = match first % 64 {
                0 if first < blocks => live(first),
                _ => bits >> PER_WORD,
            };
            let here = bits & mask(PER_WORD);
            word.store(all(blocks, first) & !here | here << PER_WORD, Release);
            used += here.count_ones();
        }
        used
    }

    /// Takes an available block of this word, and makes it live, or not yet. Only for the owner of the span: the two bits of a block that is available
    /// are changed by nothing else.
    #[inline]
    pub(super) fn take(&self, word: u32, live: bool) -> Option<u32> {
        let bits = self.words().get(word as usize)?;
        let available = bits.load(Acquire) as u32;
        if available == 0 {
            return None;
        }
        let bit = available.trailing_zeros();
        bits.fetch_xor((1 | u64::from(live) << PER_WORD) << bit, AcqRel);
        Some(word * PER_WORD + bit)
    }

    /// The first word at or behind `word`, wrapping around once, that has available blocks.
    #[inline]
    pub(super) fn find(&self, word: u32, blocks: u32) -> Option<u32> {
        let words = self.words().get(..blocks.div_ceil(PER_WORD) as usize)?;
        let (before, behind) = words.split_at_checked(word as usize)?;
        let found = behind.iter().chain(before).position(|w| w.load(Acquire) as u32 != 0)?;
        Some((word + found as u32) % words.len() as u32)
    }

    pub(crate) fn has_available(&self, blocks: u32) -> bool {
        self.find(0, blocks).is_some()
    }

    /// Makes a block available again; true if all blocks of the span are.
    ///
    /// `SeqCst` here and in [`is_empty`](Self::is_empty): of two threads that give the last blocks of two words back, one sees both.
    #[inline]
    pub(super) fn give_back(&self, index: u32, blocks: u32) -> bool {
        let Some(word) = self.words().get((index / PER_WORD) as usize) else { return false };
        word.fetch_or(1 << (index % PER_WORD), SeqCst);
        word.load(SeqCst) == all(blocks, index / PER_WORD * PER_WORD) && self.is_empty(blocks)
    }

    /// True if all blocks are available.
    pub(crate) fn is_empty(&self, blocks: u32) -> bool {
        let words = self.words().iter().take(blocks.div_ceil(PER_WORD) as usize);
        words.zip((0..).step_by(PER_WORD as usize)).all(|(word, first)| word.load(SeqCst) == all(blocks, first))
    }

    /// True if the table describes this span: [`Geometry::write_span`](crate::alloc::media::Geometry::write_span) was done.
    #[inline]
    pub(super) fn is_described(&self, class: u8, span: u32) -> bool {
        self.described.load(Acquire) == Self::description(class, span)
    }

    pub(crate) fn describe(&self, class: u8, span: u32) {
        self.described.store(Self::description(class, span), Release);
    }

    pub(super) fn forget_description(&self) {
        self.described.store(0, Release);
    }

    #[inline]
    fn description(class: u8, span: u32) -> u64 {
        1 << 63 | u64::from(span) << 8 | u64::from(class)
    }

    #[inline]
    pub(super) fn is_live(&self, index: u32) -> bool {
        let word = self.words().get((index / PER_WORD) as usize);
        word.is_some_and(|w| w.load(Acquire) & live_bit(index) != 0)
    }

    /// The engine's word for a block.
    #[inline]
    pub(super) fn engine_word(&self, index: u32) -> &AtomicU32 {
        // 0 | 1 | 2 3 | 4 to 7 | ...
        let level = (u32::BITS - index.leading_zeros()) as usize % ENGINE_LEVELS;
        let first = 1 << level >> 1;
        let words = self.engine[level].get_or_init(|| (0..first.max(1)).map(|_| AtomicU32::new(0)).collect());
        &words[index as usize - first]
    }

    /// Sets or clears the live bit; returns what it was.
    #[inline]
    pub(crate) fn set_live(&self, index: u32, live: bool) -> bool {
        let Some(word) = self.words().get((index / PER_WORD) as usize) else { return false };
        let bit = live_bit(index);
        let before = if live { word.fetch_or(bit, AcqRel) } else { word.fetch_and(!bit, AcqRel) };
        before & bit != 0
    }
}

#[inline]
fn live_bit(index: u32) -> u64 {
    1 << (PER_WORD + index % PER_WORD)
}

/// The bits of the word that begins with block `first`, of a span of `blocks` blocks that are all available.
#[inline]
fn all(blocks: u32, first: u32) -> u64 {
    mask(blocks.saturating_sub(first).min(PER_WORD))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(blocks: u32) -> Chunk {
        let chunk = Chunk::default();
        chunk.make_bits(4096);
        chunk.reset_bits(blocks, |_| 0);
        chunk
    }

    #[test]
    fn every_block_is_taken_once_and_comes_back() {
        for blocks in [1, 31, 32, 33, 64, 100, 4096] {
            let chunk = chunk(blocks);
            let (mut word, mut taken) = (0, Vec::new());
            while let Some(found) = chunk.find(word, blocks) {
                word = found;
                taken.extend(chunk.take(word, true));
            }
            assert_eq!(taken, (0..blocks).collect::<Vec<_>>());
            assert!(taken.iter().all(|&index| chunk.is_live(index)));
            for index in 0..blocks {
                assert!(chunk.set_live(index, false) && !chunk.set_live(index, false));
                assert_eq!(chunk.give_back(index, blocks), index + 1 == blocks);
            }
        }
    }

    #[test]
    fn live_bits_of_the_media_are_taken_over() {
        let chunk = chunk(0);
        let live = |first: u32| if first == 0 { 1 << 40 | 1 } else { 1 << 3 };
        assert_eq!(chunk.reset_bits(70, live), 3);
        let found: Vec<u32> = (0..128).filter(|&index| chunk.is_live(index)).collect();
        assert_eq!(found, [0, 40, 67]);
        assert_eq!((chunk.find(0, 70), chunk.take(0, true), chunk.take(2, true)), (Some(0), Some(1), Some(64)));
        assert!(!chunk.is_empty(70));
    }

    /// Or the span would stay cut for blocks that are not wanted.
    #[test]
    fn of_two_last_blocks_one_leaves_the_span_empty() {
        for _ in 0..300 {
            let chunk = chunk(64);
            let blocks: Vec<u32> = (0..2).filter_map(|word| chunk.take(word, true)).collect();
            let start = std::sync::Barrier::new(2);
            let seen: u32 = std::thread::scope(|scope| {
                let (chunk, start) = (&chunk, &start);
                let give = move |index| {
                    chunk.set_live(index, false);
                    start.wait();
                    u32::from(chunk.give_back(index, 64))
                };
                let threads: Vec<_> = blocks.into_iter().map(|index| scope.spawn(move || give(index))).collect();
                threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
            });
            assert!(seen >= 1);
        }
    }
}
