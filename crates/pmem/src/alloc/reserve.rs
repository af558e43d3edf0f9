//! Blocks are taken from the bins of the calling thread, these are filled from spans, and spans from free chunks; and back.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use crate::alloc::allocator::Allocator;
use crate::alloc::block::Block;
use crate::alloc::cache::Bin;
use crate::alloc::central::{Central, ChunkId, extent_of, number_of};
use crate::alloc::chunk::{Chunk, Shape, owner};
use crate::alloc::classes::{ALIGN_MAX, Class, HUGE};
use crate::error::{Error, Result};
use crate::stats::THREADS;
use crate::threads::thread_id;

/// Chunks looked at per visit before fresh chunks are preferred to finding old free blocks.
const LOOK: u32 = 64;

impl Allocator {
    /// Takes a free block of at least `bytes` bytes at a multiple of `align`, in DRAM only: nothing persistent changes before its
    /// intent is applied. Its bytes hold whatever was there.
    ///
    /// # Errors
    /// [`Error::HeapFull`]; [`Error::Limit`] for an alignment over 4096.
    #[inline]
    pub fn reserve(&self, bytes: u64, align: u64) -> Result<Block> {
        self.take_one(bytes, align, true)
    }

    /// As [`reserve`](Self::reserve), but the block does not resolve before [`show`](Self::show): until its engine has locked it, a pointer to what was there before
    /// finds nothing. A hidden block is given back by [`release`](Self::release).
    ///
    /// ```
    /// # fn main() -> pmem::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
    /// # let heap = pmem::Allocator::create(&pool, "heap", 512 << 10, pmem::HeapOptions::default())?;
    /// let block = heap.reserve_hidden(64, 8)?;
    /// assert!(heap.resolve(block.ptr::<u8>(&pool), 64).is_err());
    /// heap.show(&block)?;
    /// assert_eq!(heap.resolve(block.ptr::<u8>(&pool), 64)?, block);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    #[inline]
    pub fn reserve_hidden(&self, bytes: u64, align: u64) -> Result<Block> {
        self.take_one(bytes, align, false)
    }

    #[inline]
    fn take_one(&self, bytes: u64, align: u64, live: bool) -> Result<Block> {
        match self.classes.index(bytes, align) {
            Some(class) if align <= ALIGN_MAX => self.take_block(class, live, false),
            _ => self.reserve_huge(bytes, align, live),
        }
    }

    #[inline]
    fn take_block(&self, class: u8, live: bool, flushed: bool) -> Result<Block> {
        let mut bins = self.caches[thread_id() % THREADS].0.lock();
        if bins.is_empty() {
            bins.resize(self.classes.len(), Bin::default());
        }
        let bin = &mut bins[class as usize];
        loop {
            if bin.span != 0 {
                let chunk = self.chunk_of(bin.chunk)?;
                if let Some(index) = chunk.take(bin.word, live) {
                    let within = u64::from(index) * bin.size;
                    return Ok(Block {
                        offset: bin.start + within,
                        len: bin.size,
                        chunk: bin.chunk,
                        index,
                        span: bin.span,
                        class,
                        back: (within >> self.chunk_log2) as u16,
                        shape: bin.shape,
                    });
                }
                if let Some(word) = chunk.find(bin.word, bin.blocks) {
                    bin.word = word;
                    continue;
                }
            }
            match self.refill(class, bin) {
                Err(Error::HeapFull { .. }) if !flushed => {
                    drop(bins);
                    return self.take_last(class, live);
                }
                refilled => refilled?,
            }
        }
    }

    /// What is left may belong to the caches, of other threads or of other classes.
    #[cold]
    fn take_last(&self, class: u8, live: bool) -> Result<Block> {
        self.flush_caches();
        self.take_block(class, live, true)
    }

    /// Gives the bin a span with free blocks.
    #[cold]
    fn refill(&self, class: u8, bin: &mut Bin) -> Result<()> {
        if bin.span != 0 {
            let chunk = self.chunk_of(bin.chunk)?;
            chunk.owner.store(owner::FULL, Release);
            // A block released since the last look would else be lost to all threads.
            if chunk.has_available(bin.blocks)
                && chunk.owner.compare_exchange(owner::FULL, owner::CACHE, AcqRel, Acquire).is_ok()
            {
                return Ok(());
            }
            bin.span = 0;
        }
        let size = self.classes.get(class, 0).map_or(0, |c| c.size);
        let Some((id, span)) = self.find_span(class)? else { return Err(Error::HeapFull { bytes: size }) };
        let blocks = self.classes.get(class, span).map_or(0, |c| c.blocks);
        let extent = self.extent(extent_of(id))?;
        let (start, shape) = (extent.geometry.chunk_at(number_of(id)), self.chunk_of(id)?.shape_word());
        *bin = Bin { chunk: id, span, word: 0, blocks, start, size, shape };
        Ok(())
    }

    /// A span of this class with free blocks, now owned by the caller's cache.
    fn find_span(&self, class: u8) -> Result<Option<(ChunkId, u32)>> {
        let Some(wanted) = self.classes.get(class, 0) else { return Ok(None) };
        let mut central = self.central.lock();
        let mut timeout = LOOK;
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
            if timeout == 0 || !self.look_at_next(&mut central)? {
                if let Some(id) = self.make_span(&mut central, class, wanted)? {
                    return Ok(Some((id, wanted.chunks)));
                }
                if !self.look_at_next(&mut central)? {
                    return Ok(None);
                }
            }
            timeout = timeout.saturating_sub(1);
        }
    }

    /// Cuts free chunks into blocks. The central lock is held.
    fn make_span(&self, central: &mut Central, class: u8, wanted: Class) -> Result<Option<ChunkId>> {
        loop {
            let Some(id) = central.free_runs().take(wanted.chunks) else { return Ok(None) };
            let extent = self.extent(extent_of(id))?;
            let head = number_of(id);
            let chunk = extent.chunk(head);
            // It may have been a tail, whose bitmap was not looked at.
            match extent.geometry.check_clear(self.mapping(), head) {
                Err(Error::Damaged { .. } | Error::Unreadable { .. }) => {
                    chunk.set_shape(Shape::Damaged);
                    if wanted.chunks > 1 {
                        central.free_runs().add(id + 1, wanted.chunks - 1);
                    }
                    continue;
                }
                checked => checked?,
            }
            chunk.make_bits(extent.geometry.blocks_max());
            chunk.reset_bits(wanted.blocks, |_| 0);
            chunk.forget_description();
            chunk.owner.store(owner::CACHE, Release);
            for back in 1..wanted.chunks {
                extent.chunk(head + back).set_shape(Shape::Tail { back });
            }
            chunk.set_shape(Shape::Head { class, span: wanted.chunks });
            return Ok(Some(id));
        }
    }

    #[cold]
    fn reserve_huge(&self, bytes: u64, align: u64, live: bool) -> Result<Block> {
        if align > ALIGN_MAX {
            return Err(Error::Limit { what: "alignment of a block", found: align, min: 1, max: ALIGN_MAX });
        }
        let chunks = bytes.div_ceil(1 << self.chunk_log2);
        let full = || Error::HeapFull { bytes };
        let span = u32::try_from(chunks).map_err(|_| full())?.max(1);
        let mut flushed = false;
        let mut central = self.central.lock();
        let huge = self.classes.get(HUGE, span).ok_or_else(full)?;
        let id = loop {
            if let Some(id) = self.make_span(&mut central, HUGE, huge)? {
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
        let extent = self.extent(extent_of(id))?;
        let chunk = extent.chunk(number_of(id));
        chunk.take(0, live);
        chunk.owner.store(owner::FULL, Release);
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

    /// A span that was full goes to the list of those with free blocks; one that is empty and no cache's goes back to free chunks.
    #[inline]
    pub(super) fn after_give_back(&self, chunk: &Chunk, id: ChunkId, class: u8, empty: bool) {
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
            if empty {
                self.dissolve(chunk, id);
            }
            return;
        }
    }

    #[cold]
    fn dissolve(&self, chunk: &Chunk, id: ChunkId) {
        let mut central = self.central.lock();
        // Only a cache takes blocks, and a span becomes a cache's under this lock: empty and no cache's stays so.
        let Shape::Head { class, span } = chunk.shape() else { return };
        let blocks = self.classes.get(class, span).map_or(1, |c| c.blocks);
        if !chunk.is_empty(blocks) || chunk.owner.compare_exchange(owner::PARTIAL, 0, AcqRel, Acquire).is_err() {
            return;
        }
        let Ok(extent) = self.extent(extent_of(id)) else { return };
        for back in 0..span {
            extent.chunk(number_of(id) + back).set_shape(Shape::Free);
        }
        central.free_runs().add(id, span);
    }

    /// Empties the caches of all threads that are not just using them.
    pub(super) fn flush_caches(&self) {
        for cache in &self.caches {
            if let Some(mut bins) = cache.0.try_lock() {
                self.flush_bins(&mut bins);
            }
        }
    }

    fn flush_bins(&self, bins: &mut [Bin]) {
        for (class, bin) in bins.iter_mut().enumerate().filter(|(_, b)| b.span != 0) {
            let bin = std::mem::take(bin);
            let Ok(chunk) = self.chunk_of(bin.chunk) else { continue };
            chunk.owner.store(owner::FULL, Release);
            if chunk.has_available(bin.blocks) {
                self.after_give_back(chunk, bin.chunk, class as u8, chunk.is_empty(bin.blocks));
            }
        }
    }

    #[inline]
    fn chunk_of(&self, id: ChunkId) -> Result<&Chunk> {
        Ok(self.extent(extent_of(id))?.chunk(number_of(id)))
    }
}
