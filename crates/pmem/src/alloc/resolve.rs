//! From a pointer to the one live block it lies in.

use std::sync::atomic::AtomicU32;

use crate::alloc::allocator::{Allocator, Extent};
use crate::alloc::block::Block;
use crate::alloc::central::{chunk_id, extent_of, number_of};
use crate::alloc::chunk::{Chunk, Shape};
use crate::error::{Error, Result};
use crate::ptr::PPtr;

/// A live block that a pointer leads into, and what the allocator keeps of it in DRAM. A block that is reserved counts as live.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
/// # let heap = pmem::Allocator::create(&pool, "heap", 512 << 10, pmem::HeapOptions::default())?;
/// let block = heap.reserve(64, 8)?;
/// let found = heap.find(block.ptr::<u8>(&pool), 64)?;
/// assert_eq!((found.block(), found.is_current()), (block, true));
/// heap.cancel(block)?;
/// assert!(!found.is_current());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy)]
pub struct Found<'a> {
    block: Block,
    chunk: &'a Chunk,
}

impl<'a> Found<'a> {
    /// The block.
    #[inline]
    pub fn block(&self) -> Block {
        self.block
    }

    /// Its [`engine_word`](Allocator::engine_word).
    #[inline]
    pub fn word(&self) -> &'a AtomicU32 {
        self.chunk.engine_word(self.block.index)
    }

    /// True while the block is still live, and the same use of its chunk.
    #[inline]
    pub fn is_current(&self) -> bool {
        self.chunk.shape_word() == self.block.shape && self.chunk.is_live(self.block.index)
    }
}

impl std::fmt::Debug for Found<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.block.fmt(f)
    }
}

impl Allocator {
    /// The live block in which `len` bytes at `ptr` lie. A block that is reserved counts as live.
    ///
    /// # Errors
    /// [`Error::BadPointer`] for a pointer of another pool, outside of the heap, into a free block, or over the end of one;
    /// [`Error::Damaged`] if the heap's own words about it are.
    #[inline]
    pub fn resolve<T: ?Sized>(&self, ptr: PPtr<T>, len: u64) -> Result<Block> {
        Ok(self.find(ptr, len)?.block)
    }

    /// The block, as by [`resolve`](Self::resolve), with its word.
    ///
    /// # Errors
    /// Those of [`resolve`](Self::resolve).
    #[inline]
    pub fn find<T: ?Sized>(&self, ptr: PPtr<T>, len: u64) -> Result<Found<'_>> {
        match self.find_known(ptr, len) {
            Some(found) => Ok(found),
            None => self.find_cold(ptr.cast(), len),
        }
    }

    /// What [`find`](Self::find) finds, if nothing is to be looked at for the first time and nothing is wrong; else ask that.
    ///
    /// Always inlined, and without an error: carried inside of one, what is found would go through memory more than once, in pieces that
    /// no processor forwards from store to load. That took longer than the rest.
    #[inline(always)]
    pub fn find_known<T: ?Sized>(&self, ptr: PPtr<T>, len: u64) -> Option<Found<'_>> {
        let offset = ptr.offset();
        if ptr.tag() != self.pool.tag() {
            return None;
        }
        let (index, extent, mut number) = self.locate(offset)?;
        let mut chunk = extent.chunk(number);
        let mut shape = chunk.shape_word();
        while let Shape::Tail { back } = Chunk::decode(shape) {
            number = number.checked_sub(back)?;
            chunk = extent.chunk(number);
            shape = chunk.shape_word();
        }
        let Shape::Head { class, span } = Chunk::decode(shape) else { return None };
        let info = self.classes.get(class, span)?;
        let start = extent.geometry.chunk_at(number);
        let at = info.block_at(offset - start);
        if at >= u64::from(info.blocks) {
            return None;
        }
        let block = Block {
            offset: start + at * info.size,
            len: info.size,
            chunk: chunk_id(index, number),
            index: at as u32,
            span,
            class,
            back: ((at * info.size) >> self.chunk_log2) as u16,
            shape,
        };
        let found = Found { block, chunk };
        (chunk.is_live(block.index) && len <= block.offset + block.len - offset && chunk.shape_word() == shape)
            .then_some(found)
    }

    /// Looks at chunks for the first time, or says what is wrong.
    #[cold]
    #[inline(never)]
    fn find_cold(&self, ptr: PPtr<u8>, len: u64) -> Result<Found<'_>> {
        let bad = |why| Error::BadPointer { ptr: ptr.raw(), why };
        if ptr.tag() != self.pool.tag() {
            return Err(bad(if ptr.is_null() { "null" } else { "of another pool" }));
        }
        let offset = ptr.offset();
        let (index, extent, mut number) = self.locate(offset).ok_or_else(|| bad("outside of the heap"))?;
        loop {
            let chunk = extent.chunk(number);
            match chunk.shape() {
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
                    let info = self.classes.get(class, span).ok_or_else(|| bad("of an unknown class"))?;
                    let start = extent.geometry.chunk_at(number);
                    let at = info.block_at(offset - start);
                    if at >= u64::from(info.blocks) {
                        return Err(bad("behind the last block of a chunk"));
                    }
                    if !chunk.is_live(at as u32) {
                        return Err(bad("into a free block"));
                    }
                    if len > start + (at + 1) * info.size - offset {
                        return Err(bad("over the end of its block"));
                    }
                    // Nothing is wrong now that all is looked at; or the chunk is being cut anew.
                    if let Some(found) = self.find_known(ptr, len) {
                        return Ok(found);
                    }
                    number = self.locate(offset).ok_or_else(|| bad("outside of the heap"))?.2;
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
