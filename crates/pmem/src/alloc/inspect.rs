//! What the heap holds.

use std::sync::atomic::Ordering::Acquire;

use crate::alloc::allocator::{Allocator, LEAF};
use crate::alloc::chunk::Shape;
use crate::error::{Error, Result};

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

impl Allocator {
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
                            let mut bits = extent.geometry.bits(self.mapping(), number, first, info.1, true)?;
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
    pub fn outstanding(&self) -> u64 {
        let mut sum = 0;
        for (_, extent) in self.extents() {
            for number in 0..extent.chunks.load(Acquire) {
                let Some(leaf) = extent.leaves[(number / LEAF) as usize].get() else { continue };
                let chunk = &leaf[(number % LEAF) as usize];
                let Shape::Head { class, span } = chunk.shape() else { continue };
                let blocks = self.classes.get(class, span).map_or(0, |c| c.blocks);
                for index in 0..blocks {
                    let bit = extent.geometry.bit(self.mapping(), number, index).unwrap_or(false);
                    sum += u64::from(bit != chunk.is_live(index));
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
        match self.outstanding() {
            0 => Ok(()),
            n => Err(Error::InUse { what: format!("{n} reserved blocks of heap {:?}", self.name) }),
        }
    }
}
