//! The heap itself: how it is made and opened, and where its extents are.

use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicU32, AtomicUsize,
    Ordering::{Acquire, Release},
};

use crate::alloc::cache::Cache;
use crate::alloc::central::Central;
use crate::alloc::chunk::Chunk;
use crate::alloc::classes::Classes;
use crate::alloc::media::{Geometry, Layout};
use crate::area::{Area, Region};
use crate::error::{Error, Result};
use crate::header::{REGIONS_MAX, RegionKind};
use crate::mapping::Mapping;
use crate::pool::Pool;
use crate::stats::THREADS;
use crate::sync::Mutex;

/// Chunks per leaf of the DRAM chunk table: leaves are made at first use.
pub(super) const LEAF: u32 = 256;

/// How a heap is laid out, chosen when it is made.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// use pmem::HeapOptions;
/// let small = HeapOptions::chunk_bytes(4096)?;
/// assert_eq!(small.region_bytes(4), 6 * 4096); // four chunks, and a page each for bitmaps and what proves them
/// assert!(HeapOptions::chunk_bytes(5000).is_err());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct HeapOptions {
    chunk_log2: u32,
    layout: Layout,
}

impl Default for HeapOptions {
    fn default() -> Self {
        Self { chunk_log2: 16, layout: Layout::Apart }
    }
}

impl HeapOptions {
    /// Bytes per chunk, a power of two from 4 KiB to 1 MiB; 64 KiB by default. Small pools want small chunks.
    ///
    /// # Errors
    /// [`Error::Limit`].
    pub fn chunk_bytes(bytes: u64) -> Result<Self> {
        if !bytes.is_power_of_two() || !(1 << 12..=1 << 20).contains(&bytes) {
            return Err(Error::Limit {
                what: "bytes per chunk (a power of two)",
                found: bytes,
                min: 1 << 12,
                max: 1 << 20,
            });
        }
        Ok(Self { chunk_log2: bytes.ilog2(), layout: Layout::Apart })
    }

    /// Smallest region for a heap of `chunks` chunks.
    pub fn region_bytes(self, chunks: u64) -> u64 {
        Geometry::bytes_for(chunks, self.layout, self.chunk_log2)
    }

    /// For tests: as earlier builds laid a heap out, with what proves a word on the word's own page. What else has an earlier layout follows.
    #[doc(hidden)]
    #[must_use]
    pub fn earlier_layout(self) -> Self {
        Self { layout: Layout::Together, ..self }
    }

    #[doc(hidden)]
    pub fn is_earlier_layout(self) -> bool {
        self.layout == Layout::Together
    }
}

pub(super) struct Extent {
    pub(super) geometry: Geometry,
    pub(super) chunks: AtomicU32,
    pub(super) leaves: Box<[OnceLock<Box<[Chunk]>>]>,
}

impl Extent {
    fn new(geometry: Geometry, len: u64) -> Self {
        let leaves = (0..geometry.chunks_max.div_ceil(LEAF)).map(|_| OnceLock::new()).collect();
        Self { geometry, chunks: AtomicU32::new(geometry.chunks_in(len)), leaves }
    }

    #[inline]
    pub(super) fn chunk(&self, number: u32) -> &Chunk {
        let chunks = match self.leaves[(number / LEAF) as usize].get() {
            Some(chunks) => chunks,
            None => self.make_leaf(number / LEAF),
        };
        &chunks[(number % LEAF) as usize]
    }

    #[cold]
    fn make_leaf(&self, leaf: u32) -> &[Chunk] {
        let chunks = leaf * LEAF..((leaf + 1) * LEAF).min(self.geometry.chunks_max);
        self.leaves[leaf as usize].get_or_init(|| chunks.map(|_| Chunk::default()).collect())
    }

    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.geometry.chunk_at(self.chunks.load(Acquire))
    }
}

/// The allocator of a heap region.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
/// use pmem::{Allocator, FlushSet, HeapOptions, Intent};
/// let heap = Allocator::create(&pool, "heap", 512 << 10, HeapOptions::default())?;
/// let block = heap.reserve(100, 8)?;        // DRAM only: gone after a crash
/// let mut lines = FlushSet::default();
/// heap.apply(&Intent::alloc(&block), &mut lines)?; // what a commit does, and recovery repeats
/// pool.flush_set(&mut lines)?;
/// pool.drain()?;
/// assert!(heap.resolve(block.ptr::<u8>(&pool), 100).is_ok());
/// # Ok(()) }
/// ```
pub struct Allocator {
    pub(super) pool: Pool,
    pub(super) name: String,
    pub(super) classes: Classes,
    pub(super) layout: Layout,
    pub(super) chunk_log2: u32,
    salt: u64,
    pub(super) extents: Box<[OnceLock<Extent>]>,
    extents_len: AtomicUsize,
    pub(super) caches: Box<[Cache]>,
    pub(super) central: Mutex<Central>,
    /// Keeps the region claimed; its bytes are reached through the mapping, by offset.
    pub(super) areas: Mutex<Vec<Area>>,
}

impl std::fmt::Debug for Allocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Allocator({:?} of {:?})", self.name, self.pool)
    }
}

impl Allocator {
    /// Adds a heap region of at least `bytes` bytes to the pool.
    ///
    /// # Errors
    /// Those of [`Pool::add_region`].
    pub fn create(pool: &Pool, name: &str, bytes: u64, options: HeapOptions) -> Result<Self> {
        let bytes = bytes.max(options.region_bytes(1));
        let HeapOptions { chunk_log2, layout } = options;
        let chunks_max = |offset, len| Ok(Geometry::fit(offset, len, layout, chunk_log2, 0)?.chunks_max.into());
        let region = pool.add_region_with(name, bytes, RegionKind::Heap, layout.options(chunk_log2), chunks_max)?;
        Self::with(pool, region)
    }

    /// Opens the heap region of that name. Reads nothing of it; blocks are looked up at first use. Unretired intents must be
    /// applied before anything is reserved.
    ///
    /// # Errors
    /// [`Error::NoRegion`], [`Error::Damaged`].
    pub fn open(pool: &Pool, name: &str) -> Result<Self> {
        Self::with(pool, pool.region(name)?)
    }

    fn with(pool: &Pool, region: Region) -> Result<Self> {
        let known = Layout::from_options(region.options()).filter(|_| region.kind() == RegionKind::Heap.code());
        let Some((layout, chunk_log2)) = known else {
            return Err(Error::WrongLayout {
                what: "region kind",
                found: format!("{:?}, options {:#x}", RegionKind::from_code(region.kind()), region.options()),
                expected: "Heap".into(),
            });
        };
        let classes = Classes::new(chunk_log2);
        let heap = Self {
            pool: pool.clone(),
            name: region.name().to_owned(),
            layout,
            chunk_log2,
            salt: pool.id(),
            extents: (0..REGIONS_MAX).map(|_| OnceLock::new()).collect(),
            extents_len: AtomicUsize::new(0),
            caches: (0..THREADS).map(|_| Cache::default()).collect(),
            central: Mutex::new(Central::new(classes.len())),
            areas: Mutex::new(Vec::new()),
            classes,
        };
        for (area, chunks_max) in region.areas.into_iter().zip(region.details) {
            heap.add_area(area, chunks_max)?;
        }
        Ok(heap)
    }

    /// Takes an extent of the region over.
    pub(super) fn add_area(&self, area: Area, chunks_max: u64) -> Result<()> {
        let geometry = Geometry::read(&area, self.layout, self.chunk_log2, chunks_max, self.salt)?;
        let mut areas = self.areas.lock();
        let at = areas.len();
        let slot = self.extents.get(at).ok_or(Error::DirectoryFull { max: REGIONS_MAX })?;
        slot.get_or_init(|| Extent::new(geometry, area.len()));
        areas.push(area);
        self.extents_len.store(at + 1, Release);
        Ok(())
    }

    #[inline]
    pub(super) fn mapping(&self) -> &Mapping {
        &self.pool.inner.mapping
    }

    /// The pool the heap is in.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    #[inline]
    pub(super) fn extents(&self) -> impl Iterator<Item = (usize, &Extent)> {
        let len = self.extents_len.load(Acquire);
        self.extents[..len].iter().enumerate().filter_map(|(i, e)| Some((i, e.get()?)))
    }

    #[inline]
    pub(super) fn extent(&self, index: usize) -> Result<&Extent> {
        self.extents.get(index).and_then(OnceLock::get).ok_or_else(|| self.no_region())
    }

    #[cold]
    fn no_region(&self) -> Error {
        Error::NoRegion { name: self.name.clone() }
    }

    /// The chunk that holds this byte.
    #[inline]
    pub(super) fn locate(&self, offset: u64) -> Option<(usize, &Extent, u32)> {
        self.extents().find_map(|(i, e)| {
            let inside = offset >= e.geometry.chunks_at && offset < e.end();
            inside.then(|| (i, e, ((offset - e.geometry.chunks_at) >> self.chunk_log2) as u32))
        })
    }

    /// True if these bytes lie in chunks of the heap, not in its tables or outside.
    pub(crate) fn contains(&self, offset: u64, len: u64) -> bool {
        self.locate(offset).is_some_and(|(_, e, _)| len <= e.end() - offset)
    }
}
