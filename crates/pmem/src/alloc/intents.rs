//! From reserved to live to free: what the owner of a commit record does with its blocks.

use std::sync::atomic::Ordering::Acquire;

use crate::alloc::allocator::Allocator;
use crate::alloc::block::{Block, Intent};
use crate::alloc::central::{extent_of, number_of};
use crate::error::{Error, Result};
use crate::flush::FlushSet;

impl Allocator {
    /// Does what the intent says, and adds the lines to `lines`, to be flushed before a drain. Doing it again is harmless; doing it
    /// without a durable record that would repeat it is not.
    ///
    /// At recovery the intents of all unretired records are applied, before anything is reserved or resolved.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the intent (from media) does not fit the heap.
    #[inline]
    pub fn apply(&self, intent: &Intent, lines: &mut FlushSet) -> Result<()> {
        let offset = intent.offset();
        let damaged = || Error::Damaged { what: "allocation intent", offset, found: intent.class.into(), expected: 0 };
        let (_, extent, number) = self.locate(offset).ok_or_else(damaged)?;
        let class = u8::try_from(intent.class).map_err(|_| damaged())?;
        let info = self.classes.get(class, intent.span).ok_or_else(damaged)?;
        let head = number.checked_sub(intent.back.into()).ok_or_else(damaged)?;
        let within = offset - extent.geometry.chunk_at(head);
        let index = info.block_at(within);
        if index * info.size != within || index >= u64::from(info.blocks) {
            return Err(damaged());
        }
        let chunk = extent.chunk(head);
        if !chunk.is_described(class, intent.span) {
            let end = u64::from(head) + u64::from(intent.span);
            if info.chunks != intent.span || end > u64::from(extent.chunks.load(Acquire)) {
                return Err(damaged());
            }
            if intent.is_alloc() {
                extent.geometry.write_span(self.mapping(), head, class, intent.span, info.blocks, lines)?;
                chunk.describe(class, intent.span);
            }
        } else if intent.is_alloc() {
            // The thread that stored them may not have flushed them.
            extent.geometry.add_span(self.mapping(), head, intent.span, lines);
        }
        extent.geometry.write_bit(self.mapping(), head, index as u32, intent.is_alloc(), lines)
    }

    /// Gives a reserved block back that was not, and will not be, committed.
    ///
    /// # Errors
    /// [`Error::DoubleFree`] if it is not reserved.
    pub fn cancel(&self, block: Block) -> Result<()> {
        self.begin_free(&block)?;
        self.release(block)
    }

    /// Takes a live block out of use: it no longer resolves. Then either its free intent is committed, applied and, when its record
    /// cannot come back, the block is [`release`](Self::release)d; or [`cancel_free`](Self::cancel_free).
    ///
    /// # Errors
    /// [`Error::DoubleFree`] if it is not live.
    #[inline]
    pub fn begin_free(&self, block: &Block) -> Result<()> {
        let double = || Error::DoubleFree { ptr: block.offset };
        let extent = self.extent(extent_of(block.chunk)).map_err(|_| double())?;
        let chunk = extent.chunk(number_of(block.chunk));
        if chunk.shape_word() != block.shape || !chunk.set_live(block.index, false) {
            return Err(double());
        }
        Ok(())
    }

    /// Lets a block resolve that was [`reserve_hidden`](Self::reserve_hidden).
    ///
    /// # Errors
    /// [`Error::NoRegion`] for a block of another heap.
    #[inline]
    pub fn show(&self, block: &Block) -> Result<()> {
        self.extent(extent_of(block.chunk))?.chunk(number_of(block.chunk)).set_live(block.index, true);
        Ok(())
    }

    /// Puts a block back into use after [`begin_free`](Self::begin_free).
    ///
    /// # Errors
    /// [`Error::NoRegion`] for a block of another heap.
    #[inline]
    pub fn cancel_free(&self, block: &Block) -> Result<()> {
        self.extent(extent_of(block.chunk))?.chunk(number_of(block.chunk)).set_live(block.index, true);
        Ok(())
    }

    /// Makes a block available again, after [`begin_free`](Self::begin_free).
    ///
    /// # Errors
    /// [`Error::DoubleFree`] if it is live; [`Error::NoRegion`] for a block of another heap.
    #[inline]
    pub fn release(&self, block: Block) -> Result<()> {
        let chunk = self.extent(extent_of(block.chunk))?.chunk(number_of(block.chunk));
        if chunk.shape_word() != block.shape || chunk.is_live(block.index) {
            return Err(Error::DoubleFree { ptr: block.offset });
        }
        let blocks = self.classes.get(block.class, block.span).map_or(1, |c| c.blocks);
        let empty = chunk.give_back(block.index, blocks);
        self.after_give_back(chunk, block.chunk, block.class, empty);
        Ok(())
    }
}
