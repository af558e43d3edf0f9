//! What clients hold: a block, and the intent that makes it live or free.

use crate::Persist;
use crate::alloc::central::ChunkId;
use crate::pool::Pool;
use crate::ptr::PPtr;

/// A block of the heap.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
/// # let heap = pmem::Allocator::create(&pool, "heap", 512 << 10, pmem::HeapOptions::default())?;
/// let block = heap.reserve(100, 8)?;
/// assert_eq!(block.len(), 112); // the smallest size class that fits
/// assert_eq!(heap.resolve(block.ptr::<[u8; 100]>(&pool), 100)?, block);
/// heap.cancel(block)?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) chunk: ChunkId,
    pub(super) index: u32,
    pub(super) span: u32,
    pub(super) class: u8,
    pub(super) back: u16,
    pub(super) shape: u64,
}

impl Block {
    /// First byte, from the start of the pool.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes in the block, at least as many as were asked for.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Never: a block has bytes.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The pointer to it.
    pub fn ptr<T: ?Sized>(&self, pool: &Pool) -> PPtr<T> {
        PPtr::new(pool.tag(), self.offset)
    }
}

/// A persistent note, for a commit record, that a block becomes live or free. 16 bytes.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
/// # let heap = pmem::Allocator::create(&pool, "heap", 512 << 10, pmem::HeapOptions::default())?;
/// use pmem::{FlushSet, Intent};
/// let block = heap.reserve(100, 8)?;
/// let intent = Intent::alloc(&block); // goes into a commit record; when that is durable:
/// let mut lines = FlushSet::default();
/// heap.apply(&intent, &mut lines)?;
/// heap.apply(&intent, &mut lines)?; // as recovery does: harmless
/// assert!(heap.is_published(&block)?);
/// # Ok(()) }
/// ```
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Persist)]
pub struct Intent {
    /// Offset of the block; the top bit says that it becomes live.
    #[persist(name = "place")]
    tagged_offset: u64,
    pub(super) class: u16,
    /// How many chunks before the block's own its span begins.
    pub(super) back: u16,
    pub(super) span: u32,
}

const ALLOC: u64 = 1 << 63;

impl Intent {
    /// The block becomes live.
    pub fn alloc(block: &Block) -> Self {
        Self { tagged_offset: block.offset | ALLOC, ..Self::free(block) }
    }

    /// The block becomes free.
    pub fn free(block: &Block) -> Self {
        Self { tagged_offset: block.offset, class: block.class.into(), back: block.back, span: block.span }
    }

    /// True for [`alloc`](Self::alloc).
    pub fn is_alloc(&self) -> bool {
        self.tagged_offset & ALLOC != 0
    }

    /// Offset of the block.
    pub fn offset(&self) -> u64 {
        self.tagged_offset & !ALLOC
    }
}
