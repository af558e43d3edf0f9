//! What engines that lock or version blocks need of the allocator.

use std::ops::Range;
use std::sync::atomic::AtomicU32;

use crate::alloc::allocator::Allocator;
use crate::alloc::block::Block;
use crate::alloc::central::{extent_of, number_of};
use crate::error::Result;

impl Allocator {
    /// A word of DRAM that belongs to the block: a lock or a version for its engine. Zero when the heap is opened; the allocator never
    /// touches it, so an engine leaves it zero when it releases the block.
    ///
    /// Found with two loads through the chunk that also resolved the pointer: no hashing, no collisions. Costs 4 bytes per block that
    /// its chunk has room for, rounded up to a power of two, once any of them was asked for.
    ///
    /// ```
    /// # fn main() -> pmem::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
    /// # let heap = pmem::Allocator::create(&pool, "heap", 512 << 10, pmem::HeapOptions::default())?;
    /// use std::sync::atomic::Ordering::Relaxed;
    /// let (a, b) = (heap.reserve(64, 8)?, heap.reserve(64, 8)?);
    /// heap.engine_word(&a)?.store(7, Relaxed);
    /// let same = heap.resolve(a.ptr::<u8>(&pool), 64)?;
    /// assert_eq!(heap.engine_word(&same)?.load(Relaxed), 7);
    /// assert_eq!(heap.engine_word(&b)?.load(Relaxed), 0);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoRegion`](crate::Error::NoRegion) for a block of another heap.
    #[inline]
    pub fn engine_word(&self, block: &Block) -> Result<&AtomicU32> {
        let chunk = self.extent(extent_of(block.chunk))?.chunk(number_of(block.chunk));
        Ok(chunk.engine_word(block.index))
    }

    /// Where blocks can lie: the chunks of each extent, as bytes from the start of the pool. Extents are only added; the last one grows and shrinks.
    pub fn spaces(&self) -> Vec<Range<u64>> {
        self.extents().map(|(_, e)| e.geometry.chunks_at..e.end()).collect()
    }

    /// Bytes per chunk.
    pub fn chunk_size(&self) -> u64 {
        1 << self.chunk_log2
    }
}
