//! The heap grows and is trimmed while it is in use.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use crate::alloc::allocator::Allocator;
use crate::alloc::central::chunk_id;
use crate::alloc::chunk::Shape;
use crate::alloc::media::Geometry;
use crate::error::Result;
use crate::file::PAGE;

impl Allocator {
    /// Makes the heap at least `bytes` bytes larger while it is in use: in place if it is the last in the pool and was larger
    /// before, else by a further extent. Two barriers for the directory, one for the file's length.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace), [`Error::Reserve`](crate::Error::Reserve),
    /// [`Error::DirectoryFull`](crate::Error::DirectoryFull): the heap is then as before.
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
        let bytes = Geometry::bytes_for(chunks, self.layout, self.chunk_log2);
        let chunks_max =
            |offset, len| Ok(Geometry::fit(offset, len, self.layout, self.chunk_log2, 0)?.chunks_max.into());
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
        // DRAM first: no thread finds the chunks while they go. The frees that emptied them are persistent: their blocks were released.
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
}
