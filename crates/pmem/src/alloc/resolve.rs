//! From a pointer to the one live block it lies in.

use std::sync::atomic::AtomicU32;

use crate::alloc::allocator::{Allocator, Extent};
use crate::alloc::block::Block;
use crate::alloc::central::{chunk_id, extent_of, number_of};
use crate::alloc::chunk::{Chunk, Shape};
use crate::error::{Error, Result};
use crate::ptr::PPtr;

impl Allocator {
    /// The live block in which `len` bytes at `ptr` lie. A block that is reserved counts as live.
    ///
    /// # Errors
    /// [`Error::BadPointer`] for a pointer of another pool, outside of the heap, into a free block, or over the end of one;
    /// [`Error::Damaged`] if the heap's own words about it are.
    #[inline]
    pub fn resolve<T: ?Sized>(&self, ptr: PPtr<T>, len: u64) -> Result<Block> {
        Ok(self.resolve_in_chunk(ptr, len)?.0)
    }

    /// The block, as by [`resolve`](Self::resolve), and its [`engine_word`](Self::engine_word), on one way.
    ///
    /// # Errors
    /// Those of [`resolve`](Self::resolve).
    #[inline]
    pub fn resolve_word<T: ?Sized>(&self, ptr: PPtr<T>, len: u64) -> Result<(Block, &AtomicU32)> {
        let (block, chunk) = self.resolve_in_chunk(ptr, len)?;
        Ok((block, chunk.engine_word(block.index)))
    }

    /// With its chunk.
    #[inline]
    fn resolve_in_chunk<T: ?Sized>(&self, ptr: PPtr<T>, len: u64) -> Result<(Block, &Chunk)> {
        let bad = |why| Error::BadPointer { ptr: ptr.raw(), why };
        if ptr.tag() != self.pool.tag() {
            return Err(bad(if ptr.is_null() { "null" } else { "of another pool" }));
        }
        let offset = ptr.offset();
        let (index, extent, mut number) = self.locate(offset).ok_or_else(|| bad("outside of the heap"))?;
        loop {
            let chunk = extent.chunk(number);
            let word = chunk.shape_word();
            match Chunk::decode(word) {
                Shape::Unknown => {
                    let mut central = self.central.lock();
                    self.look_at(&mut central, index, extent, number)?;
                    if chunk.shape() == Shape::Unknown {
                        return Err(bad("into a free chunk"));
                    }
                }
                Shape::Free => return Err(bad("into a free chunk")),
                Shape::Damaged => return Err(self.explain_damage(extent, number)),
                Shape::Tail { back } => number -= back,
                Shape::Head { class, span } => {
                    let class_info = self.classes.get(class, span).ok_or_else(|| bad("of an unknown class"))?;
                    let start = extent.geometry.chunk_at(number);
                    let at = class_info.block_at(offset - start);
                    if at >= u64::from(class_info.blocks) {
                        return Err(bad("behind the last block of a chunk"));
                    }
                    let block = Block {
                        offset: start + at * class_info.size,
                        len: class_info.size,
                        chunk: chunk_id(index, number),
                        index: at as u32,
                        span,
                        class,
                        back: ((at * class_info.size) >> self.chunk_log2) as u16,
                        shape: word,
                    };
                    if !chunk.is_live(block.index) {
                        return Err(bad("into a free block"));
                    }
                    if len > block.offset + block.len - offset {
                        return Err(bad("over the end of its block"));
                    }
                    if chunk.shape_word() == word {
                        return Ok((block, chunk));
                    }
                }
            }
        }
    }

    /// True while `block`, resolved or reserved earlier, is still live and the same use of its chunk.
    #[inline]
    pub fn is_current(&self, block: &Block) -> bool {
        self.extent(extent_of(block.chunk)).is_ok_and(|e| {
            let chunk = e.chunk(number_of(block.chunk));
            chunk.shape_word() == block.shape && chunk.is_live(block.index)
        })
    }

    /// True if the block is live on media: its allocation was applied and no free was.
    ///
    /// # Errors
    /// [`Error::NoRegion`] for a block of another heap; [`Error::Unreadable`].
    #[inline]
    pub fn is_published(&self, block: &Block) -> Result<bool> {
        let extent = self.extent(extent_of(block.chunk))?;
        extent.geometry.bit(self.mapping(), number_of(block.chunk), block.index)
    }

    #[cold]
    fn explain_damage(&self, extent: &Extent, number: u32) -> Error {
        let offset = extent.geometry.table_offset(number);
        let generic = Error::Damaged { what: "chunk", offset, found: 0, expected: 0 };
        self.read_shape(extent, number).err().unwrap_or(generic)
    }
}
