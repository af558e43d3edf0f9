//! What the allocator keeps on media, per extent of its region:
//!
//! ```text
//! | chunk table: a word per chunk | bitmaps: chunk/64 bytes per chunk | to a page | chunks |
//! ```
//!
//! How many chunks the table and the bitmaps have room for stands in the pool's directory: a zeroed extent is an empty one, and there is no
//! header that a crash could tear.
//!
//! A *chunk* is free, the head of a span of blocks of one size, or a later part of such a span. Its table word says which and carries
//! a check of its own; it only means something while the span has live blocks. The *bitmap* of a head has a bit per
//! block, each word of it beside its [`code`](Geometry::code), which belongs to the place: a block is live if its bit is set, and a
//! pair that does not fit is damage (a crash may leave one too, but only for a block named in an unretired intent, which recovery
//! applies again). This is the only persistent state.

use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Release},
};

use crate::alloc::classes::{Classes, HUGE};
use crate::area::Area;
use crate::error::{Error, Result};
use crate::hash::splitmix;
use crate::mapping::{FlushSet, Mapping, PAGE};

/// Where an extent has what. All offsets are from the start of the pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    pub(crate) offset: u64,
    pub(crate) chunk_log2: u32,
    pub(crate) chunks_max: u32,
    pub(crate) chunks_at: u64,
    table_at: u64,
    bitmaps_at: u64,
    salt: u64,
}

/// What a table word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// Never used.
    Unused,
    /// First chunk of a span of `span` chunks cut into blocks of a class.
    Head { class: u8, span: u32 },
    /// A later chunk of the span that begins `back` chunks before.
    Tail { back: u32 },
    /// Not written by us.
    Damaged(u64),
}

impl Geometry {
    #[inline]
    pub(crate) fn bitmap_bytes(chunk_log2: u32) -> u64 {
        1 << (chunk_log2 - 6)
    }

    /// The geometry of an extent of `len` bytes at `offset`, with as many chunks as fit.
    pub(crate) fn fit(offset: u64, len: u64, chunk_log2: u32, salt: u64) -> Result<Self> {
        let per_chunk = (1u64 << chunk_log2) + 8 + Self::bitmap_bytes(chunk_log2);
        let mut chunks = (len / per_chunk).min(1 << 31);
        while chunks > 0 {
            let geometry = Self::with(offset, chunks as u32, chunk_log2, salt);
            if geometry.chunks_at + (chunks << chunk_log2) <= offset + len {
                return Ok(geometry);
            }
            chunks -= 1;
        }
        Err(Error::Limit {
            what: "bytes of a heap extent",
            found: len,
            min: Self::bytes_for(1, chunk_log2),
            max: 1 << 47,
        })
    }

    /// Bytes of an extent of `chunks` chunks.
    pub(crate) fn bytes_for(chunks: u64, chunk_log2: u32) -> u64 {
        let geometry = Self::with(0, chunks.min(u64::from(u32::MAX)) as u32, chunk_log2, 0);
        geometry.chunks_at + (chunks << chunk_log2)
    }

    fn with(offset: u64, chunks_max: u32, chunk_log2: u32, salt: u64) -> Self {
        let table_at = offset;
        let bitmaps_at = table_at + (u64::from(chunks_max) * 8).next_multiple_of(64);
        let chunks_at = (bitmaps_at + u64::from(chunks_max) * Self::bitmap_bytes(chunk_log2)).next_multiple_of(PAGE);
        Self { offset, chunk_log2, chunks_max, chunks_at, table_at, bitmaps_at, salt }
    }

    /// The geometry of an extent made for `chunks_max` chunks, as the directory says.
    pub(crate) fn read(area: &Area, chunk_log2: u32, chunks_max: u64, salt: u64) -> Result<Self> {
        let damaged = |found, expected| {
            Err(Error::Damaged { what: "heap extent geometry", offset: area.offset(), found, expected })
        };
        if chunks_max == 0 || chunks_max > 1 << 31 {
            return damaged(chunks_max, 1);
        }
        let geometry = Self::with(area.offset(), chunks_max as u32, chunk_log2, salt);
        let end = area.offset() + area.len();
        if geometry.chunks_at > end {
            return damaged(area.len(), geometry.chunks_at - area.offset());
        }
        Ok(geometry)
    }

    /// Chunks that an extent of `len` bytes has.
    pub(crate) fn chunks_in(&self, len: u64) -> u32 {
        (((self.offset + len).saturating_sub(self.chunks_at) >> self.chunk_log2) as u32).min(self.chunks_max)
    }

    #[inline]
    pub(crate) fn chunk_at(&self, chunk: u32) -> u64 {
        self.chunks_at + (u64::from(chunk) << self.chunk_log2)
    }

    // ---- table ------------------------------------------------------------------------------------------------

    fn encode(&self, chunk: u32, low: u64) -> u64 {
        let mut state = self.salt ^ self.table_at ^ u64::from(chunk) << 40 ^ low;
        low | splitmix(&mut state) << 40
    }

    fn word_for(&self, chunk: u32, word: Word) -> u64 {
        let low = match word {
            Word::Unused | Word::Damaged(_) => return 0,
            Word::Head { class, span } => u64::from(span) << 8 | u64::from(class),
            Word::Tail { back } => u64::from(back) << 8 | u64::from(TAIL),
        };
        self.encode(chunk, low)
    }

    pub(crate) fn table_word(&self, mapping: &Mapping, chunk: u32) -> Result<Word> {
        let stored = atomic(mapping, self.table_at + u64::from(chunk) * 8, false)?.load(Acquire);
        if stored == 0 {
            return Ok(Word::Unused);
        }
        let low = stored & ((1 << 40) - 1);
        let (tag, value) = (low as u8, (low >> 8) as u32);
        if self.encode(chunk, low) != stored || value == 0 {
            return Ok(Word::Damaged(stored));
        }
        Ok(if tag == TAIL { Word::Tail { back: value } } else { Word::Head { class: tag, span: value } })
    }

    pub(crate) fn table_offset(&self, chunk: u32) -> u64 {
        self.table_at + u64::from(chunk) * 8
    }

    /// Makes the table describe this span, and its bitmap one that was used; stores only what differs. The caller flushes.
    pub(crate) fn write_span(
        &self,
        mapping: &Mapping,
        head: u32,
        class: u8,
        span: u32,
        blocks: u32,
        lines: &mut FlushSet,
    ) -> Result<()> {
        for back in 0..span {
            let word = if back == 0 { Word::Head { class, span } } else { Word::Tail { back } };
            let (offset, value) = (self.table_at + u64::from(head + back) * 8, self.word_for(head + back, word));
            let stored = atomic(mapping, offset, true)?;
            if stored.load(Acquire) != value {
                stored.store(value, Release);
            }
        }
        for index in (0..blocks).step_by(64) {
            let at = self.pair_at(head, index);
            // Fails if somebody was first.
            let _ = self.pair(mapping, head, index, true)?[1].compare_exchange(0, self.code(at, 0), AcqRel, Acquire);
        }
        // Even what was equal: the thread that stored it may not have flushed it.
        self.add_span(mapping, head, span, lines);
        lines.add(mapping, self.pair_at(head, 0), u64::from(blocks.div_ceil(64)) * 16);
        Ok(())
    }

    /// The table words of a span are among the lines to be flushed.
    #[inline]
    pub(crate) fn add_span(&self, mapping: &Mapping, head: u32, span: u32, lines: &mut FlushSet) {
        lines.add(mapping, self.table_at + u64::from(head) * 8, u64::from(span) * 8);
    }

    // ---- bitmaps ----------------------------------------------------------------------------------------------

    #[inline]
    fn pair_at(&self, head: u32, index: u32) -> u64 {
        self.bitmaps_at + u64::from(head) * Self::bitmap_bytes(self.chunk_log2) + u64::from(index / 64) * 16
    }

    #[inline]
    fn pair<'m>(&self, mapping: &'m Mapping, head: u32, index: u32, write: bool) -> Result<&'m [AtomicU64; 2]> {
        words(mapping, self.pair_at(head, index), write)
    }

    /// What stands beside `bits` in the pair at `at`. One to one, so that a bit can be changed in either word whatever the other
    /// holds: recovery relies on it. Zero stands beside the zero of a pair that was never used.
    #[inline]
    fn code(&self, at: u64, bits: u64) -> u64 {
        (bits ^ self.salt ^ at).wrapping_mul(ODD).rotate_left(32)
    }

    /// The bits that `code` stands for.
    fn decode(&self, at: u64, code: u64) -> u64 {
        if code == 0 { 0 } else { code.rotate_left(32).wrapping_mul(ODD_INVERSE) ^ self.salt ^ at }
    }

    /// Sets or clears a block's bit, in both words. The caller flushes; doing it twice is harmless.
    #[inline]
    pub(crate) fn write_bit(
        &self,
        mapping: &Mapping,
        head: u32,
        index: u32,
        live: bool,
        lines: &mut FlushSet,
    ) -> Result<()> {
        let at = self.pair_at(head, index);
        let [bits, code] = self.pair(mapping, head, index, true)?;
        let bit = 1 << (index % 64);
        let change = |bits| if live { bits | bit } else { bits & !bit };
        // A guess at what the code says; with the value that the change returns, it would be a loop.
        let before = bits.load(Acquire);
        // Atomic, because threads set bits of one word for blocks of their own.
        if live {
            bits.fetch_or(bit, AcqRel);
        } else {
            bits.fetch_and(!bit, AcqRel);
        }
        // Each thread changes its bit alone, here too: a code that fell behind the flushed bits of others would be damage after a crash.
        if code.compare_exchange(self.code(at, before), self.code(at, change(before)), AcqRel, Acquire).is_err() {
            self.write_code(at, code, change);
        }
        lines.add(mapping, at, 16);
        Ok(())
    }

    /// Another thread is between its two words, the pair was never used, or a crash came between the two.
    #[cold]
    fn write_code(&self, at: u64, code: &AtomicU64, change: impl Fn(u64) -> u64) {
        let mut old = code.load(Acquire);
        while let Err(now) = code.compare_exchange(old, self.code(at, change(self.decode(at, old))), AcqRel, Acquire) {
            old = now;
        }
    }

    /// True if the bit of block `index` is set. Reads one word: the pair was checked when the chunk was looked at, and another thread may
    /// be between its two words.
    #[inline]
    pub(crate) fn bit(&self, mapping: &Mapping, head: u32, index: u32) -> Result<bool> {
        Ok(self.pair(mapping, head, index, false)?[0].load(Acquire) & 1 << (index % 64) != 0)
    }

    /// The 64 bits from block `index` on, a multiple of 64, of a chunk that nobody changes meanwhile.
    ///
    /// # Errors
    /// `Damaged` if the two words do not fit, a bit behind the last block is set, or the pair is not `used` that should be.
    pub(crate) fn bits(&self, mapping: &Mapping, head: u32, index: u32, blocks: u32, used: bool) -> Result<u64> {
        let at = self.pair_at(head, index);
        let [bits, code] = self.pair(mapping, head, index, false)?;
        let (bits, code) = (bits.load(Acquire), code.load(Acquire));
        let never = !used && bits == 0 && code == 0;
        if (!never && code != self.code(at, bits)) || bits & !mask(blocks.saturating_sub(index)) != 0 {
            return Err(Error::Damaged { what: "allocation bitmap", offset: at, found: bits, expected: code });
        }
        Ok(bits)
    }

    /// True if any block of the span is live, which was in use at some time.
    pub(crate) fn has_live(&self, mapping: &Mapping, head: u32, blocks: u32) -> Result<bool> {
        for index in (0..blocks).step_by(64) {
            if self.bits(mapping, head, index, blocks, true)? != 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// An error if any bit of a chunk that holds nothing is set, or looks damaged.
    pub(crate) fn check_clear(&self, mapping: &Mapping, number: u32) -> Result<()> {
        for index in (0..self.blocks_max()).step_by(64) {
            self.bits(mapping, number, index, 0, false)?;
        }
        Ok(())
    }

    /// Most blocks that a chunk's bitmap has bits for.
    pub(crate) fn blocks_max(&self) -> u32 {
        (1u32 << self.chunk_log2) / 16
    }

    /// Checks that a span found in the table lies inside the extent and its tail words agree.
    pub(crate) fn check_span(
        &self,
        mapping: &Mapping,
        head: u32,
        class: u8,
        span: u32,
        chunks: u32,
        classes: &Classes,
    ) -> Result<()> {
        let offset = self.table_offset(head);
        let proper = classes.get(class, span).is_some_and(|c| c.chunks == span);
        if !proper || u64::from(head) + u64::from(span) > u64::from(chunks) {
            return Err(Error::Damaged { what: "span in the chunk table", offset, found: span.into(), expected: 1 });
        }
        for back in 1..span {
            if self.table_word(mapping, head + back)? != (Word::Tail { back }) {
                let offset = self.table_offset(head + back);
                return Err(Error::Damaged { what: "chunk table word", offset, found: 0, expected: back.into() });
            }
        }
        Ok(())
    }
}

/// Spreads every bit, and its inverse.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
const ODD_INVERSE: u64 = 0xf1de_83e1_9937_733d;
const _: () = assert!(ODD.wrapping_mul(ODD_INVERSE) == 1);

/// Tag of a tail's word: no class has it.
const TAIL: u8 = 254;
const _: () = assert!(TAIL != HUGE);

/// The low `n` bits.
#[inline]
pub(crate) fn mask(n: u32) -> u64 {
    if n >= 64 { u64::MAX } else { (1 << n) - 1 }
}

/// A word of the mapping that several threads may change.
#[inline]
pub(crate) fn atomic(mapping: &Mapping, offset: u64, write: bool) -> Result<&AtomicU64> {
    words::<1>(mapping, offset, write).map(|[word]| word)
}

/// Words of the mapping, one behind the other.
#[inline]
fn words<const N: usize>(mapping: &Mapping, offset: u64, write: bool) -> Result<&[AtomicU64; N]> {
    if !offset.is_multiple_of(8) {
        return Err(Error::Unaligned { offset, align: 8 });
    }
    let words: NonNull<[AtomicU64; N]> = mapping.access(offset, 8 * N as u64, write)?.cast();
    // SAFETY: `access` checked the bounds, the alignment was just checked, and the allocator's metadata, which alone is read
    // and written through here, is never handed out as a plain reference.
    Ok(unsafe { words.as_ref() })
}

#[cfg(test)]
mod tests;
