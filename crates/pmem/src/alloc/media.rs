//! What the allocator keeps on media, per extent of its region:
//!
//! ```text
//! | chunk table: a word per chunk | bits | to a page | codes of the bits | table again | to a page | chunks |
//! ```
//!
//! Nothing that proves a word stands on the word's own page: a page that a medium lost, or that went back to what it held earlier, fits no longer
//! what stands on the other. (An extent of an older heap has one table, and each code beside its bits: [`Layout::Together`].)
//!
//! How many chunks the table and the bitmaps have room for stands in the pool's directory: a zeroed extent is an empty one, and there is no
//! header that a crash could tear.
//!
//! A *chunk* is free, the head of a span of blocks of one size, or a later part of such a span. Its table word says which and carries
//! a check of its own; it only means something while the span has live blocks. The *bitmap* of a head has a bit per
//! block, and for each word of it there is a [`code`](Geometry::code), which belongs to the index: a block is live if its bit is set, and a
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
use crate::file::PAGE;
use crate::flush::FlushSet;
use crate::hash::splitmix;
use crate::mapping::Mapping;

/// How the extents of a heap are laid out, as the options of its region say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// One table, each code beside its bits. Heaps of earlier builds.
    Together,
    /// Codes and a second table on pages of their own.
    Apart,
}

impl Layout {
    const APART: u64 = 1 << 8;

    /// Options of the region: how large chunks are, and the layout.
    pub(super) fn options(self, chunk_log2: u32) -> u64 {
        u64::from(chunk_log2) | if self == Self::Apart { Self::APART } else { 0 }
    }

    /// What the options of a region say, if they are a heap's.
    pub(super) fn from_options(options: u64) -> Option<(Self, u32)> {
        let layout = if options & Self::APART != 0 { Self::Apart } else { Self::Together };
        let chunk_log2 = options & !Self::APART;
        (12..=20).contains(&chunk_log2).then_some((layout, chunk_log2 as u32))
    }
}

/// Where an extent has what. All offsets are from the start of the pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    offset: u64,
    layout: Layout,
    chunk_log2: u32,
    pub(crate) chunks_max: u32,
    pub(crate) chunks_at: u64,
    table_at: u64,
    /// The same words again.
    twin_at: Option<u64>,
    bits_at: u64,
    codes_at: u64,
    salt: u64,
}

/// What a table word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
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
    fn bitmap_bytes(chunk_log2: u32) -> u64 {
        1 << (chunk_log2 - 6)
    }

    /// The geometry of an extent of `len` bytes at `offset`, with as many chunks as fit.
    pub(crate) fn fit(offset: u64, len: u64, layout: Layout, chunk_log2: u32, salt: u64) -> Result<Self> {
        let per_chunk = (1u64 << chunk_log2) + 8 + Self::bitmap_bytes(chunk_log2);
        let mut chunks = (len / per_chunk).min(CHUNKS_MAX);
        while chunks > 0 {
            let geometry = Self::with(offset, chunks as u32, layout, chunk_log2, salt);
            if geometry.chunks_at + (chunks << chunk_log2) <= offset + len {
                return Ok(geometry);
            }
            chunks -= 1;
        }
        let min = Self::bytes_for(1, layout, chunk_log2);
        Err(Error::Limit { what: "bytes of a heap extent", found: len, min, max: 1 << 47 })
    }

    /// Bytes of an extent of `chunks` chunks; more than any pool has if there is no such number.
    pub(crate) fn bytes_for(chunks: u64, layout: Layout, chunk_log2: u32) -> u64 {
        let geometry = Self::with(0, chunks.min(CHUNKS_MAX) as u32, layout, chunk_log2, 0);
        chunks.checked_mul(1 << chunk_log2).and_then(|bytes| bytes.checked_add(geometry.chunks_at)).unwrap_or(u64::MAX)
    }

    fn with(offset: u64, chunks_max: u32, layout: Layout, chunk_log2: u32, salt: u64) -> Self {
        let table = (u64::from(chunks_max) * 8).next_multiple_of(64);
        let bitmaps = u64::from(chunks_max) * Self::bitmap_bytes(chunk_log2);
        let (table_at, bits_at) = (offset, offset + table);
        let (codes_at, twin_at, end) = match layout {
            Layout::Together => (bits_at + 8, None, bits_at + bitmaps),
            Layout::Apart => {
                let codes_at = (bits_at + bitmaps / 2).next_multiple_of(PAGE);
                let twin_at = (codes_at + bitmaps / 2).next_multiple_of(64);
                (codes_at, Some(twin_at), twin_at + table)
            }
        };
        let chunks_at = end.next_multiple_of(PAGE);
        Self { offset, layout, chunk_log2, chunks_max, chunks_at, table_at, twin_at, bits_at, codes_at, salt }
    }

    /// The geometry of an extent made for `chunks_max` chunks, as the directory says.
    pub(super) fn read(area: &Area, layout: Layout, chunk_log2: u32, chunks_max: u64, salt: u64) -> Result<Self> {
        let damaged = |found, expected| {
            Err(Error::Damaged { what: "heap extent geometry", offset: area.offset(), found, expected })
        };
        if chunks_max == 0 || chunks_max > CHUNKS_MAX {
            return damaged(chunks_max, 1);
        }
        let geometry = Self::with(area.offset(), chunks_max as u32, layout, chunk_log2, salt);
        let end = area.offset() + area.len();
        if geometry.chunks_at > end {
            return damaged(area.len(), geometry.chunks_at - area.offset());
        }
        Ok(geometry)
    }

    /// Chunks that an extent of `len` bytes has.
    pub(super) fn chunks_in(&self, len: u64) -> u32 {
        (((self.offset + len).saturating_sub(self.chunks_at) >> self.chunk_log2) as u32).min(self.chunks_max)
    }

    #[inline]
    pub(super) fn chunk_at(&self, chunk: u32) -> u64 {
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
        let stored = atomic(mapping, self.table_offset(chunk), false)?.load(Acquire);
        if let Some(twin_at) = self.twin_at {
            let twin = atomic(mapping, twin_at + u64::from(chunk) * 8, false)?.load(Acquire);
            if stored != twin {
                return Ok(Word::Damaged(if stored == 0 { twin } else { stored }));
            }
        }
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
    pub(super) fn write_span(
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
            let value = self.word_for(head + back, word);
            for table in self.tables() {
                let stored = atomic(mapping, table + u64::from(head + back) * 8, true)?;
                if stored.load(Acquire) != value {
                    stored.store(value, Release);
                }
            }
        }
        for index in (0..blocks).step_by(64) {
            let at = self.bits_at(head, index);
            // Fails if another thread was first.
            let _ = self.pair(mapping, head, index, true)?[1].compare_exchange(0, self.code(at, 0), AcqRel, Acquire);
        }
        // Even what was equal: the thread that stored it may not have flushed it.
        self.add_span(mapping, head, span, lines);
        let words = u64::from(blocks.div_ceil(64));
        match self.layout {
            Layout::Together => lines.add(mapping, self.bits_at(head, 0), words * 16),
            Layout::Apart => {
                lines.add(mapping, self.bits_at(head, 0), words * 8);
                lines.add(mapping, self.code_at(head, 0), words * 8);
            }
        }
        Ok(())
    }

    /// The table words of a span are among the lines to be flushed.
    #[inline]
    pub(super) fn add_span(&self, mapping: &Mapping, head: u32, span: u32, lines: &mut FlushSet) {
        for table in self.tables() {
            lines.add(mapping, table + u64::from(head) * 8, u64::from(span) * 8);
        }
    }

    fn tables(&self) -> impl Iterator<Item = u64> {
        [Some(self.table_at), self.twin_at].into_iter().flatten()
    }

    // ---- bitmaps ----------------------------------------------------------------------------------------------

    /// Offset, from the first of an extent's bits or codes, of the word for block `index`.
    #[inline]
    fn word_at(&self, head: u32, index: u32) -> u64 {
        let (bytes, word) = (u64::from(head) * Self::bitmap_bytes(self.chunk_log2), u64::from(index / 64) * 8);
        match self.layout {
            Layout::Together => bytes + word * 2,
            Layout::Apart => bytes / 2 + word,
        }
    }

    #[inline]
    fn bits_at(&self, head: u32, index: u32) -> u64 {
        self.bits_at + self.word_at(head, index)
    }

    #[inline]
    fn code_at(&self, head: u32, index: u32) -> u64 {
        self.codes_at + self.word_at(head, index)
    }

    /// Bits and their code.
    #[inline]
    fn pair<'m>(&self, mapping: &'m Mapping, head: u32, index: u32, write: bool) -> Result<[&'m AtomicU64; 2]> {
        let bits = atomic(mapping, self.bits_at(head, index), write)?;
        Ok([bits, atomic(mapping, self.code_at(head, index), write)?])
    }

    /// What goes with `bits` at `at`. One to one, so that a bit can be changed in either word whatever the other
    /// holds: recovery relies on it. Zero goes with the zero of a pair that was never used.
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
    pub(super) fn write_bit(
        &self,
        mapping: &Mapping,
        head: u32,
        index: u32,
        live: bool,
        lines: &mut FlushSet,
    ) -> Result<()> {
        let at = self.bits_at(head, index);
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
        lines.add(mapping, at, 8);
        lines.add(mapping, self.code_at(head, index), 8);
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
        Ok(atomic(mapping, self.bits_at(head, index), false)?.load(Acquire) & 1 << (index % 64) != 0)
    }

    /// The 64 bits from block `index` on, a multiple of 64, of a chunk that no thread changes meanwhile.
    ///
    /// # Errors
    /// `Damaged` if the two words do not fit, a bit behind the last block is set, or the pair is not `used` that should be.
    pub(crate) fn bits(&self, mapping: &Mapping, head: u32, index: u32, blocks: u32, used: bool) -> Result<u64> {
        let at = self.bits_at(head, index);
        let [bits, code] = self.pair(mapping, head, index, false)?;
        let (bits, code) = (bits.load(Acquire), code.load(Acquire));
        let never = !used && bits == 0 && code == 0;
        if (!never && code != self.code(at, bits)) || bits & !mask(blocks.saturating_sub(index)) != 0 {
            return Err(Error::Damaged { what: "allocation bitmap", offset: at, found: bits, expected: code });
        }
        Ok(bits)
    }

    /// True if any block of the span is live, which was in use at some time.
    pub(super) fn has_live(&self, mapping: &Mapping, head: u32, blocks: u32) -> Result<bool> {
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

/// Most chunks of an extent.
const CHUNKS_MAX: u64 = 1 << 31;

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
    if !offset.is_multiple_of(8) {
        return Err(Error::Unaligned { offset, align: 8 });
    }
    let word: NonNull<AtomicU64> = mapping.access(offset, 8, write)?.cast();
    // SAFETY: `access` checked the bounds, the alignment was just checked, and the allocator's metadata, which alone is read
    // and written through here, is never handed out as a plain reference.
    Ok(unsafe { word.as_ref() })
}

#[cfg(test)]
mod tests;
