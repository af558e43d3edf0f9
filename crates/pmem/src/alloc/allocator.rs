//! Reserve, apply, release; resolve a pointer to the one live block it lies in.

use std::sync::atomic::{
    AtomicU32, AtomicUsize,
    Ordering::{AcqRel, Acquire, Release},
};
use std::sync::{Arc, OnceLock};

use crate::Persist;
use crate::alloc::central::{Central, ChunkId, chunk_id, extent_of, number_of};
use crate::alloc::chunk::{Chunk, Shape, owner};
use crate::alloc::classes::{ALIGN_MAX, Classes, HUGE};
use crate::alloc::media::{Geometry, Word, mask};
use crate::area::{Area, Region};
use crate::error::{Error, Result};
use crate::header::REGIONS_MAX;
use crate::mapping::{FlushSet, Mapping, PAGE};
use crate::pool::{Pool, RegionKind};
use crate::ptr::PPtr;
use crate::stats::{THREADS, thread_id};
use crate::sync::Mutex;

/// Chunks per leaf of the DRAM chunk table: leaves are made at first use.
const LEAF: u32 = 256;
/// Chunks looked at per visit before fresh chunks are preferred to finding old free blocks.
const LOOK: u32 = 64;

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
    offset: u64,
    len: u64,
    chunk: ChunkId,
    index: u32,
    span: u32,
    class: u8,
    back: u16,
    shape: u64,
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
    place: u64,
    class: u16,
    /// How many chunks before the block's own its span begins.
    back: u16,
    span: u32,
}

const ALLOC: u64 = 1 << 63;

impl Intent {
    /// The block becomes live.
    pub fn alloc(block: &Block) -> Self {
        Self { place: block.offset | ALLOC, ..Self::free(block) }
    }

    /// The block becomes free.
    pub fn free(block: &Block) -> Self {
        Self { place: block.offset, class: block.class.into(), back: block.back, span: block.span }
    }

    /// True for [`alloc`](Self::alloc).
    pub fn is_alloc(&self) -> bool {
        self.place & ALLOC != 0
    }

    /// Offset of the block.
    pub fn offset(&self) -> u64 {
        self.place & !ALLOC
    }
}

/// How a heap is laid out, chosen when it is made.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// use pmem::HeapOptions;
/// let small = HeapOptions::chunk_bytes(4096)?;
/// assert_eq!(small.region_bytes(4), 5 * 4096); // four chunks, and a page for table and bitmaps
/// assert!(HeapOptions::chunk_bytes(5000).is_err());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct HeapOptions {
    chunk_log2: u32,
}

impl Default for HeapOptions {
    fn default() -> Self {
        Self { chunk_log2: 16 }
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
        Ok(Self { chunk_log2: bytes.ilog2() })
    }

    /// Smallest region for a heap of `chunks` chunks.
    pub fn region_bytes(self, chunks: u64) -> u64 {
        Geometry::bytes_for(chunks, self.chunk_log2)
    }
}

/// What a heap holds.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
/// # let heap = pmem::Allocator::create(&pool, "heap", 512 << 10, pmem::HeapOptions::default())?;
/// let usage = heap.live_blocks(|_offset, _len| Ok(()))?;
/// assert_eq!((usage.live_blocks, usage.live_bytes), (0, 0));
/// assert_eq!(usage.free_chunk_bytes, usage.chunk_bytes);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapUsage {
    /// Bytes in chunks.
    pub chunk_bytes: u64,
    /// Bytes in live blocks.
    pub live_bytes: u64,
    /// Live blocks.
    pub live_blocks: u64,
    /// Bytes in chunks that hold nothing.
    pub free_chunk_bytes: u64,
}

struct Extent {
    geometry: Geometry,
    chunks: AtomicU32,
    leaves: Box<[OnceLock<Box<[Chunk]>>]>,
}

impl Extent {
    fn new(geometry: Geometry, len: u64) -> Self {
        let leaves = (0..geometry.chunks_max.div_ceil(LEAF)).map(|_| OnceLock::new()).collect();
        Self { geometry, chunks: AtomicU32::new(geometry.chunks_in(len)), leaves }
    }

    fn chunk(&self, number: u32) -> &Chunk {
        let leaf = self.leaves[(number / LEAF) as usize].get_or_init(|| {
            let first = number / LEAF * LEAF;
            (first..(first + LEAF).min(self.geometry.chunks_max)).map(|_| Chunk::default()).collect()
        });
        &leaf[(number % LEAF) as usize]
    }

    fn end(&self) -> u64 {
        self.geometry.chunk_at(self.chunks.load(Acquire))
    }
}

/// Where a thread takes blocks of one class from: bits of one word of a span, all its own.
#[derive(Clone, Copy, Default)]
struct Bin {
    chunk: ChunkId,
    span: u32,
    word: u32,
    bits: u64,
    shape: u64,
}

/// A thread's bins. The lock is the thread's own, so never waited for, unless more threads live than there are caches; taking
/// it costs less than the two atomic operations it saves per block.
#[repr(align(128))]
struct Cache(Mutex<Vec<Bin>>);

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
    pool: Pool,
    name: String,
    classes: Classes,
    chunk_log2: u32,
    salt: u64,
    extents: Box<[OnceLock<Extent>]>,
    extents_len: AtomicUsize,
    caches: Box<[Cache]>,
    central: Mutex<Central>,
    /// Keeps the region claimed; its bytes are reached through the mapping, by offset.
    areas: Mutex<Vec<Area>>,
}

impl std::fmt::Debug for Allocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Allocator({:?} of {:?})", self.name, self.pool)
    }
}

impl Allocator {
    // ---- open -------------------------------------------------------------------------------------------------

    /// Adds a heap region of at least `bytes` bytes to the pool.
    ///
    /// # Errors
    /// Those of [`Pool::add_region`].
    pub fn create(pool: &Pool, name: &str, bytes: u64, options: HeapOptions) -> Result<Self> {
        let bytes = bytes.max(options.region_bytes(1));
        let chunk_log2 = options.chunk_log2;
        let chunks_max = |offset, len| Ok(Geometry::fit(offset, len, chunk_log2, 0)?.chunks_max.into());
        let region = pool.add_region_with(name, bytes, RegionKind::Heap, chunk_log2.into(), chunks_max)?;
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
        let chunk_log2 = region.options() as u32;
        if region.kind() != RegionKind::Heap.code() || !(12..=20).contains(&chunk_log2) {
            return Err(Error::WrongLayout {
                what: "region kind",
                found: format!("{:?}, chunks of 2^{chunk_log2}", RegionKind::from_code(region.kind())),
                expected: "Heap".into(),
            });
        }
        let classes = Classes::new(chunk_log2);
        let heap = Self {
            pool: pool.clone(),
            name: region.name().to_owned(),
            chunk_log2,
            salt: pool.id(),
            extents: (0..REGIONS_MAX).map(|_| OnceLock::new()).collect(),
            extents_len: AtomicUsize::new(0),
            caches: (0..THREADS).map(|_| Cache(Mutex::new(Vec::new()))).collect(),
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
    fn add_area(&self, area: Area, chunks_max: u64) -> Result<()> {
        let geometry = Geometry::read(&area, self.chunk_log2, chunks_max, self.salt)?;
        let mut areas = self.areas.lock();
        let at = areas.len();
        let slot = self.extents.get(at).ok_or(Error::DirectoryFull { max: REGIONS_MAX })?;
        slot.get_or_init(|| Extent::new(geometry, area.len()));
        areas.push(area);
        self.extents_len.store(at + 1, Release);
        Ok(())
    }

    #[inline]
    fn mapping(&self) -> &Mapping {
        &self.pool.inner.mapping
    }

    /// The pool the heap is in.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    fn extents(&self) -> impl Iterator<Item = (usize, &Extent)> {
        let len = self.extents_len.load(Acquire);
        self.extents[..len].iter().enumerate().filter_map(|(i, e)| Some((i, e.get()?)))
    }

    fn extent(&self, index: usize) -> Result<&Extent> {
        self.extents.get(index).and_then(OnceLock::get).ok_or_else(|| Error::NoRegion { name: self.name.clone() })
    }

    /// The chunk that holds this byte.
    #[inline]
    fn locate(&self, offset: u64) -> Option<(usize, &Extent, u32)> {
        self.extents().find_map(|(i, e)| {
            let inside = offset >= e.geometry.chunks_at && offset < e.end();
            inside.then(|| (i, e, ((offset - e.geometry.chunks_at) >> self.chunk_log2) as u32))
        })
    }

    /// True if these bytes lie in chunks of the heap, not in its tables or outside.
    pub(crate) fn contains(&self, offset: u64, len: u64) -> bool {
        self.locate(offset).is_some_and(|(_, e, _)| len <= e.end() - offset)
    }

    // ---- reserve ----------------------------------------------------------------------------------------------

    /// Takes a free block of at least `bytes` bytes at a multiple of `align`, in DRAM only: nothing persistent changes before its
    /// intent is applied. Its bytes hold whatever was there.
    ///
    /// # Errors
    /// [`Error::HeapFull`]; [`Error::Limit`] for an alignment over 4096.
    #[inline]
    pub fn reserve(&self, bytes: u64, align: u64) -> Result<Block> {
        match self.classes.index(bytes, align) {
            Some(class) if align <= ALIGN_MAX => self.reserve_class(class),
            _ => self.reserve_huge(bytes, align),
        }
    }

    #[inline]
    fn reserve_class(&self, class: u8) -> Result<Block> {
        match self.take_block(class) {
            Err(Error::HeapFull { .. }) => {
                // What is left may sit in the caches, of other threads or of other classes.
                self.flush_caches();
                self.take_block(class)
            }
            taken => taken,
        }
    }

    #[inline]
    fn take_block(&self, class: u8) -> Result<Block> {
        let mut bins = self.caches[thread_id() % THREADS].0.lock();
        if bins.is_empty() {
            bins.resize(self.classes.len(), Bin::default());
        }
        let bin = &mut bins[class as usize];
        if bin.bits == 0 {
            self.refill(class, bin)?;
        }
        let bit = bin.bits.trailing_zeros();
        bin.bits &= bin.bits - 1;
        let index = bin.word * 64 + bit;
        let extent = self.extent(extent_of(bin.chunk))?;
        let number = number_of(bin.chunk);
        extent.chunk(number).set_live(index, true);
        let size = self.classes.get(class, bin.span).map_or(0, |c| c.size);
        let within = u64::from(index) * size;
        Ok(Block {
            offset: extent.geometry.chunk_at(number) + within,
            len: size,
            chunk: bin.chunk,
            index,
            span: bin.span,
            class,
            back: (within >> self.chunk_log2) as u16,
            shape: bin.shape,
        })
    }

    /// Gives the bin at least one block: more of its span, another span with free blocks, or a new span.
    #[cold]
    fn refill(&self, class: u8, bin: &mut Bin) -> Result<()> {
        if bin.span != 0 {
            let chunk = self.extent(extent_of(bin.chunk))?.chunk(number_of(bin.chunk));
            let blocks = self.classes.get(class, bin.span).map_or(0, |c| c.blocks);
            if self.take_from(chunk, bin, blocks) {
                return Ok(());
            }
            chunk.owner.store(owner::FULL, Release);
            // A block released since the last look would else be lost to everybody.
            if chunk.has_available(blocks)
                && chunk.owner.compare_exchange(owner::FULL, owner::CACHE, AcqRel, Acquire).is_ok()
                && self.take_from(chunk, bin, blocks)
            {
                return Ok(());
            }
            *bin = Bin::default();
        }
        let Some((id, span)) = self.find_span(class)? else {
            return Err(Error::HeapFull { bytes: self.classes.get(class, 0).map_or(0, |c| c.size) });
        };
        let chunk = self.extent(extent_of(id))?.chunk(number_of(id));
        *bin = Bin { chunk: id, span, word: 0, bits: 0, shape: chunk.shape_word() };
        let blocks = self.classes.get(class, span).map_or(0, |c| c.blocks);
        if !self.take_from(chunk, bin, blocks) {
            return Err(Error::HeapFull { bytes: blocks.into() });
        }
        Ok(())
    }

    fn take_from(&self, chunk: &Chunk, bin: &mut Bin, blocks: u32) -> bool {
        match chunk.take_word(bin.word, blocks) {
            Some((word, bits)) => {
                (bin.word, bin.bits) = (word, bits);
                true
            }
            None => false,
        }
    }

    /// A span of this class with free blocks, now owned by the caller's cache.
    fn find_span(&self, class: u8) -> Result<Option<(ChunkId, u32)>> {
        let Some(wanted) = self.classes.get(class, 0) else { return Ok(None) };
        let mut central = self.central.lock();
        let mut patience = LOOK;
        loop {
            while let Some(id) = central.partial[class as usize].pop() {
                let chunk = self.extent(extent_of(id))?.chunk(number_of(id));
                if let Shape::Head { class: c, span } = chunk.shape()
                    && c == class
                    && chunk.owner.compare_exchange(owner::PARTIAL, owner::CACHE, AcqRel, Acquire).is_ok()
                {
                    if chunk.has_available(wanted.blocks) {
                        return Ok(Some((id, span)));
                    }
                    chunk.owner.store(owner::FULL, Release);
                }
            }
            if patience == 0 || !self.look_at_next(&mut central)? {
                if let Some(id) = central.free_runs().take(wanted.chunks) {
                    self.make_span(id, class, wanted.chunks, wanted.blocks)?;
                    return Ok(Some((id, wanted.chunks)));
                }
                if !self.look_at_next(&mut central)? {
                    return Ok(None);
                }
            }
            patience = patience.saturating_sub(1);
        }
    }

    /// Cuts free chunks into blocks. The central lock is held.
    fn make_span(&self, id: ChunkId, class: u8, span: u32, blocks: u32) -> Result<()> {
        let extent = self.extent(extent_of(id))?;
        let head = number_of(id);
        let chunk = extent.chunk(head);
        chunk.make_bits(self.blocks_max());
        chunk.reset_bits(blocks, |_| 0);
        chunk.owner.store(owner::CACHE, Release);
        for back in 1..span {
            extent.chunk(head + back).set_shape(Shape::Tail { back });
        }
        chunk.set_shape(Shape::Head { class, span });
        Ok(())
    }

    fn blocks_max(&self) -> u32 {
        (1u32 << self.chunk_log2) / 16
    }

    #[cold]
    fn reserve_huge(&self, bytes: u64, align: u64) -> Result<Block> {
        if align > ALIGN_MAX {
            return Err(Error::Limit { what: "alignment of a block", found: align, min: 1, max: ALIGN_MAX });
        }
        let chunks = bytes.div_ceil(1 << self.chunk_log2);
        let full = || Error::HeapFull { bytes };
        let span = u32::try_from(chunks).map_err(|_| full())?.max(1);
        let mut flushed = false;
        let mut central = self.central.lock();
        let id = loop {
            if let Some(id) = central.free_runs().take(span) {
                break id;
            }
            if self.look_at_next(&mut central)? {
                continue;
            }
            if flushed {
                return Err(full());
            }
            flushed = true;
            drop(central);
            self.flush_caches();
            central = self.central.lock();
        };
        self.make_span(id, HUGE, span, 1)?;
        let extent = self.extent(extent_of(id))?;
        let chunk = extent.chunk(number_of(id));
        chunk.take_word(0, 1);
        chunk.owner.store(owner::FULL, Release);
        chunk.set_live(0, true);
        Ok(Block {
            offset: extent.geometry.chunk_at(number_of(id)),
            len: u64::from(span) << self.chunk_log2,
            chunk: id,
            index: 0,
            span,
            class: HUGE,
            back: 0,
            shape: chunk.shape_word(),
        })
    }

    // ---- looking at the media, chunk by chunk -----------------------------------------------------------------

    /// Looks at the next chunk nobody has looked at; false if there is none. The central lock is held.
    fn look_at_next(&self, central: &mut Central) -> Result<bool> {
        loop {
            let (index, number) = central.cursor;
            let Some(extent) = self.extents.get(index).and_then(OnceLock::get) else { return Ok(false) };
            if number >= extent.chunks.load(Acquire) {
                if self.extents.get(index + 1).and_then(OnceLock::get).is_none() {
                    return Ok(false);
                }
                central.cursor = (index + 1, 0);
                continue;
            }
            central.cursor = (index, number + 1);
            if extent.chunk(number).shape() == Shape::Unknown {
                self.look_at(central, index, extent, number)?;
                return Ok(true);
            }
        }
    }

    /// Finds out what a chunk is. The central lock is held; damage is remembered, and an error only for who needs the chunk.
    fn look_at(&self, central: &mut Central, index: usize, extent: &Extent, number: u32) -> Result<()> {
        let chunk = extent.chunk(number);
        if chunk.shape() != Shape::Unknown {
            return Ok(());
        }
        let found = match self.read_shape(extent, number) {
            Err(Error::Damaged { .. } | Error::Unreadable { .. }) => Shape::Damaged,
            other => other?,
        };
        if let Shape::Tail { back } = found {
            // The head decides; looking at it sets this chunk's shape too.
            return self.look_at(central, index, extent, number - back);
        }
        if let Shape::Head { class, span } = found {
            let blocks = self.classes.get(class, span).map_or(0, |c| c.blocks);
            chunk.make_bits(self.blocks_max());
            let mut damaged = false;
            let used = chunk.reset_bits(blocks, |first| {
                let bits = extent.geometry.bits(self.mapping(), number, first, blocks);
                damaged |= bits.is_err();
                bits.unwrap_or(mask(blocks - first))
            });
            for back in 1..span {
                extent.chunk(number + back).set_shape(Shape::Tail { back });
            }
            if damaged {
                chunk.set_shape(Shape::Damaged);
                return self.condemn(extent, number);
            }
            chunk.set_shape(found);
            if used == blocks {
                chunk.owner.store(owner::FULL, Release);
            } else {
                chunk.owner.store(owner::PARTIAL, Release);
                if class != HUGE {
                    central.partial[class as usize].push(chunk_id(index, number));
                }
            }
            return Ok(());
        }
        if found == Shape::Free {
            if number + 1 != central.cursor.1 || index != central.cursor.0 {
                return Ok(()); // unknown still: a damaged head before it may turn out to own it
            }
            central.free_runs().add(chunk_id(index, number), 1);
        }
        chunk.set_shape(found);
        if found == Shape::Damaged {
            self.condemn(extent, number)?;
        }
        Ok(())
    }

    /// What a damaged chunk may be the head of is not given out either: the span it says, or all up to the next head.
    fn condemn(&self, extent: &Extent, head: u32) -> Result<()> {
        let word = |number| extent.geometry.table_word(self.mapping(), number);
        let span = match word(head)? {
            Word::Tail { .. } => return Ok(()), // its head is damaged, and was condemned
            Word::Head { span, .. } => Some(span),
            Word::Unused | Word::Damaged(_) => None,
        };
        let end = head.saturating_add(span.unwrap_or(u32::MAX)).min(extent.chunks.load(Acquire));
        for number in head + 1..end {
            if span.is_none() && matches!(word(number)?, Word::Head { .. }) {
                break;
            }
            if matches!(extent.chunk(number).shape(), Shape::Unknown | Shape::Tail { .. }) {
                extent.chunk(number).set_shape(Shape::Damaged);
            }
        }
        Ok(())
    }

    /// What the media say of a chunk.
    ///
    /// | table word | | shape |
    /// |---|---|---|
    /// | unused | no bit set | free |
    /// | head | no live block | free |
    /// | head | live blocks, span proper | head |
    /// | tail | of a head with live blocks whose span covers it | tail |
    /// | tail | otherwise | free: left from an earlier use |
    /// | fails its check, or a live span that is not proper, or unused with a bit set, or a tail of such a head | | damaged |
    fn read_shape(&self, extent: &Extent, number: u32) -> Result<Shape> {
        let (geometry, mapping) = (&extent.geometry, self.mapping());
        let damaged = |number, found| {
            let offset = geometry.table_offset(number);
            Error::Damaged { what: "chunk table word", offset, found, expected: 0 }
        };
        let live_head = |head: u32| -> Result<Option<(u8, u32)>> {
            let (class, span) = match geometry.table_word(mapping, head)? {
                Word::Head { class, span } => (class, span),
                Word::Damaged(found) => return Err(damaged(head, found)),
                Word::Unused if geometry.has_live(mapping, head, self.blocks_max())? => return Err(damaged(head, 0)),
                Word::Unused | Word::Tail { .. } => return Ok(None),
            };
            let blocks = self.classes.get(class, span).map_or(1, |c| c.blocks);
            Ok(geometry.has_live(mapping, head, blocks)?.then_some((class, span)))
        };
        match geometry.table_word(mapping, number)? {
            Word::Unused => live_head(number).map(|_| Shape::Free),
            Word::Damaged(found) => Err(damaged(number, found)),
            Word::Head { .. } => match live_head(number)? {
                None => Ok(Shape::Free),
                Some((class, span)) => {
                    geometry.check_span(mapping, number, class, span, extent.chunks.load(Acquire), &self.classes)?;
                    Ok(Shape::Head { class, span })
                }
            },
            Word::Tail { back } if back <= number => match live_head(number - back)? {
                Some((class, span)) if span > back => {
                    let head = number - back;
                    geometry.check_span(mapping, head, class, span, extent.chunks.load(Acquire), &self.classes)?;
                    Ok(Shape::Tail { back })
                }
                _ => Ok(Shape::Free),
            },
            Word::Tail { .. } => Ok(Shape::Free),
        }
    }

    // ---- resolve ----------------------------------------------------------------------------------------------

    /// The live block in which `len` bytes at `ptr` lie. A block that is reserved counts as live.
    ///
    /// # Errors
    /// [`Error::BadPointer`] for a pointer of another pool, outside of the heap, into a free block, or over the end of one;
    /// [`Error::Damaged`] if the heap's own words about it are.
    #[inline]
    pub fn resolve<T: ?Sized>(&self, ptr: PPtr<T>, len: u64) -> Result<Block> {
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
                    let at = (offset - start) / class_info.size;
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
                        return Ok(block);
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
    /// [`Error::Damaged`] if the bitmap is.
    #[inline]
    pub fn is_published(&self, block: &Block) -> Result<bool> {
        let extent = self.extent(extent_of(block.chunk))?;
        let blocks = self.classes.get(block.class, block.span).map_or(1, |c| c.blocks);
        let bits = extent.geometry.bits(self.mapping(), number_of(block.chunk), block.index / 64 * 64, blocks)?;
        Ok(bits & 1 << (block.index % 64) != 0)
    }

    #[cold]
    fn explain_damage(&self, extent: &Extent, number: u32) -> Error {
        let offset = extent.geometry.table_offset(number);
        let generic = Error::Damaged { what: "chunk", offset, found: 0, expected: 0 };
        self.read_shape(extent, number).err().unwrap_or(generic)
    }

    // ---- intents ----------------------------------------------------------------------------------------------

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
        let index = within / info.size;
        if !within.is_multiple_of(info.size)
            || index >= u64::from(info.blocks)
            || info.chunks != intent.span
            || u64::from(head) + u64::from(intent.span) > u64::from(extent.chunks.load(Acquire))
        {
            return Err(damaged());
        }
        if intent.is_alloc() {
            extent.geometry.write_span(self.mapping(), head, class, intent.span, lines)?;
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
    /// [`Error::NoRegion`] for a block of another heap.
    #[inline]
    pub fn release(&self, block: Block) -> Result<()> {
        let chunk = self.extent(extent_of(block.chunk))?.chunk(number_of(block.chunk));
        let used = chunk.give_back(block.index / 64, 1 << (block.index % 64));
        self.after_give_back(chunk, block.chunk, block.class, used);
        Ok(())
    }

    /// A span that was full goes to the list of those with free blocks; one that is empty and nobody's goes back to free chunks.
    #[inline]
    fn after_give_back(&self, chunk: &Chunk, id: ChunkId, class: u8, used: u32) {
        loop {
            match chunk.owner.load(Acquire) {
                owner::FULL => {
                    if chunk.owner.compare_exchange(owner::FULL, owner::PARTIAL, AcqRel, Acquire).is_ok() {
                        if class != HUGE {
                            self.central.lock().partial[class as usize].push(id);
                        }
                    } else {
                        continue;
                    }
                }
                owner::PARTIAL => {}
                _ => return,
            }
            if used == 0 {
                self.dissolve(chunk, id);
            }
            return;
        }
    }

    #[cold]
    fn dissolve(&self, chunk: &Chunk, id: ChunkId) {
        let mut central = self.central.lock();
        // Only a cache takes blocks, and a span becomes a cache's under this lock: empty and nobody's stays so.
        let Shape::Head { span, .. } = chunk.shape() else { return };
        if chunk.used.load(Acquire) != 0 || chunk.owner.compare_exchange(owner::PARTIAL, 0, AcqRel, Acquire).is_err() {
            return;
        }
        let Ok(extent) = self.extent(extent_of(id)) else { return };
        for back in 0..span {
            extent.chunk(number_of(id) + back).set_shape(Shape::Free);
        }
        central.free_runs().add(id, span);
    }

    /// Empties the caches of all threads that are not just using them.
    fn flush_caches(&self) {
        for cache in &self.caches {
            if let Some(mut bins) = cache.0.try_lock() {
                self.flush_bins(&mut bins);
            }
        }
    }

    fn flush_bins(&self, bins: &mut [Bin]) {
        for (class, bin) in bins.iter_mut().enumerate().filter(|(_, b)| b.span != 0) {
            let Ok(extent) = self.extent(extent_of(bin.chunk)) else { continue };
            let chunk = extent.chunk(number_of(bin.chunk));
            let used = if bin.bits == 0 { chunk.used.load(Acquire) } else { chunk.give_back(bin.word, bin.bits) };
            let id = bin.chunk;
            *bin = Bin::default();
            chunk.owner.store(owner::FULL, Release);
            let blocks = self.classes.get(class as u8, 0).map_or(0, |c| c.blocks);
            if chunk.has_available(blocks) {
                self.after_give_back(chunk, id, class as u8, used);
            }
        }
    }

    // ---- size -------------------------------------------------------------------------------------------------

    /// Makes the heap at least `bytes` bytes larger while it is in use: in place if it is the last in the pool and was larger
    /// before, else by a further extent. Two barriers for the directory, one for the file's length.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Reserve`], [`Error::DirectoryFull`]: the heap is then as before.
    pub fn grow(&self, bytes: u64) -> Result<()> {
        let chunks = bytes.div_ceil(1 << self.chunk_log2).max(1);
        let claim = {
            let mut areas = self.areas.lock();
            let last = areas.len() - 1;
            let extent = self.extent(last)?;
            let area = &mut areas[last];
            let old = extent.chunks.load(Acquire);
            if u64::from(old) + chunks <= u64::from(extent.geometry.chunks_max) {
                let new = old + chunks as u32;
                let len = (extent.geometry.chunk_at(new) - area.offset()).next_multiple_of(PAGE);
                if self.pool.inner.extend_extent(area.offset(), area.len(), len)? {
                    area.resize(len);
                    let _central = self.central.lock();
                    for number in old..new {
                        extent.chunk(number).set_shape(Shape::Unknown);
                    }
                    // The cursor, at most at the old end, comes to them.
                    extent.chunks.store(new, Release);
                    return Ok(());
                }
            }
            Arc::clone(areas[last].claim())
        };
        let bytes = Geometry::bytes_for(chunks, self.chunk_log2);
        let chunks_max = |offset, len| Ok(Geometry::fit(offset, len, self.chunk_log2, 0)?.chunks_max.into());
        let (area, chunks_max) = self.pool.add_extent(&self.name, &claim, bytes, chunks_max)?;
        self.add_area(area, chunks_max)
    }

    /// Gives free chunks at the end of the pool back to the file system; returns how many bytes. Nothing moves. Looks at every chunk
    /// of the heap once.
    ///
    /// # Errors
    /// Those of a drain.
    pub fn trim(&self) -> Result<u64> {
        self.flush_caches();
        let mut areas = self.areas.lock();
        let mut central = self.central.lock();
        while self.look_at_next(&mut central)? {}
        let last = areas.len() - 1;
        let extent = self.extent(last)?;
        let area = &mut areas[last];
        let old = extent.chunks.load(Acquire);
        let mut free = central.free_runs().cut_before(chunk_id(last, old));
        if free == old && old > 0 {
            central.free_runs().add(chunk_id(last, 0), 1); // an extent keeps one chunk
            free -= 1;
        }
        if free == 0 {
            return Ok(0);
        }
        let new = old - free;
        let (old_len, len) = (area.len(), (extent.geometry.chunk_at(new) - area.offset()).next_multiple_of(PAGE));
        // DRAM first: nobody finds the chunks while they go. The frees that emptied them are persistent: their blocks were released.
        extent.chunks.store(new, Release);
        match self.pool.inner.cut_extent(area.offset(), len) {
            Ok(true) => {
                area.resize(len);
                if central.cursor.0 == last {
                    central.cursor.1 = central.cursor.1.min(new);
                }
                Ok(old_len - len)
            }
            other => {
                extent.chunks.store(old, Release);
                central.free_runs().add(chunk_id(last, new), free);
                other.map(|_| 0)
            }
        }
    }

    // ---- inspection -------------------------------------------------------------------------------------------

    /// Calls `f` with the offset and size of every block that is live *on media*. Reserved blocks are not; call it when no commit
    /// is being applied.
    ///
    /// # Errors
    /// [`Error::Damaged`] for the first chunk whose words contradict each other; what `f` returns.
    pub fn live_blocks(&self, mut f: impl FnMut(u64, u64) -> Result<()>) -> Result<HeapUsage> {
        let mut usage = HeapUsage::default();
        let chunk_bytes = 1u64 << self.chunk_log2;
        for (_, extent) in self.extents() {
            let chunks = extent.chunks.load(Acquire);
            usage.chunk_bytes += u64::from(chunks) * chunk_bytes;
            let mut number = 0;
            while number < chunks {
                match self.read_shape(extent, number)? {
                    Shape::Head { class, span } => {
                        let info = self.classes.get(class, span).map_or((0, 0), |c| (c.size, c.blocks));
                        for first in (0..info.1).step_by(64) {
                            let mut bits = extent.geometry.bits(self.mapping(), number, first, info.1)?;
                            while bits != 0 {
                                let index = first + bits.trailing_zeros();
                                bits &= bits - 1;
                                usage.live_blocks += 1;
                                usage.live_bytes += info.0;
                                f(extent.geometry.chunk_at(number) + u64::from(index) * info.0, info.0)?;
                            }
                        }
                        number += span;
                    }
                    _ => {
                        usage.free_chunk_bytes += chunk_bytes;
                        number += 1;
                    }
                }
            }
        }
        Ok(usage)
    }

    /// Blocks that are reserved, or live and not yet applied, or being freed: what a clean close has to wait for.
    pub fn unsettled(&self) -> u64 {
        let mut sum = 0;
        for (_, extent) in self.extents() {
            for number in 0..extent.chunks.load(Acquire) {
                let Some(leaf) = extent.leaves[(number / LEAF) as usize].get() else { continue };
                let chunk = &leaf[(number % LEAF) as usize];
                let Shape::Head { class, span } = chunk.shape() else { continue };
                let blocks = self.classes.get(class, span).map_or(0, |c| c.blocks);
                for index in 0..blocks {
                    let bits = extent.geometry.bits(self.mapping(), number, index / 64 * 64, blocks).unwrap_or(0);
                    sum += u64::from((bits & 1 << (index % 64) != 0) != chunk.is_live(index));
                }
            }
        }
        sum
    }

    /// Gives up the claim on the region.
    ///
    /// # Errors
    /// [`Error::InUse`] while blocks are reserved or being freed, say by a transaction that was forgotten.
    pub fn close(self) -> Result<()> {
        match self.unsettled() {
            0 => Ok(()),
            n => Err(Error::InUse { what: format!("{n} reserved blocks of heap {:?}", self.name) }),
        }
    }
}
