//! What allocation adds to the transactions that carry it.
//!
//! One operation is a pair of transactions, each a sealed record and its barrier: the first fills 128 bytes, the second does not. In the
//! other side they also allocate and free a block: reserve, intent in the record, and the bits in batches of 16 pairs, as engines
//! settle. The difference is the price of an allocation and a free; neither has a barrier of its own.

use std::sync::Arc;

use pmem::{Allocator, Area, Block, FlushSet, HeapOptions, Intent, Pool, Position, Ring, bytes_of};

use super::processor::in_parallel;
use super::row;
use crate::{Result, Side};

/// Pairs between two settlings.
const SETTLE: usize = 16;
const BLOCK_BYTES: u64 = 128;
const RING_BYTES: u64 = 1 << 20;
/// Blocks that live at any time, per thread.
const LIVE: usize = 1000;

/// The pair with and without allocation, by one, two and four threads.
///
/// # Errors
/// Those of the pool.
pub fn sides(pool: &Pool, dir: &std::path::Path) -> Result<Vec<Side<'static>>> {
    let heap = Arc::new(Allocator::create(pool, "alloc-pair", 16 << 20, HeapOptions::default())?);
    let mut sides = Vec::new();
    for threads in [1, 2, 4] {
        for (op, with) in [("commit pair", None), ("commit pair with alloc+free", Some(&heap))] {
            let mut carriers = Vec::new();
            for thread in 0..threads {
                let name = format!("{}{threads}-{thread}", if with.is_some() { "a" } else { "b" });
                carriers.push(Carrier::new(pool, &name, with.cloned())?);
            }
            let work = move |batch: u64| {
                let share = batch.div_ceil(threads as u64);
                in_parallel(carriers.iter_mut().map(|c| move || (0..share).try_for_each(|_| c.pair())).collect())
            };
            let row = row(op).param("dir", dir.display().to_string()).param("bytes", BLOCK_BYTES).threads(threads);
            sides.push(Side::new(row, work).op_bytes(BLOCK_BYTES).counted(pool));
        }
    }
    Ok(sides)
}

/// One thread's transactions.
struct Carrier {
    pool: Pool,
    ring: Ring,
    data: Area,
    at: u64,
    heap: Option<Arc<Allocator>>,
    live: Vec<Block>,
    oldest: usize,
    unsettled: Vec<Intent>,
    freed: Vec<Block>,
    /// Settled, not yet behind a barrier: records through here, and blocks that can be handed out again then.
    settled: Option<Position>,
    released: Vec<Block>,
    lines: FlushSet,
}

impl Carrier {
    fn new(pool: &Pool, name: &str, heap: Option<Arc<Allocator>>) -> Result<Self> {
        let ring = Ring::create(pool.add_region(&format!("ring-{name}"), RING_BYTES)?.into_area()?)?;
        let mut data = pool.add_region(&format!("data-{name}"), RING_BYTES)?.into_area()?;
        let _ = data.clear()?;
        let (live, freed, unsettled) = (Vec::new(), Vec::new(), Vec::new());
        let mut carrier = Self {
            pool: pool.clone(),
            ring,
            data,
            at: 0,
            heap,
            live,
            oldest: 0,
            unsettled,
            freed,
            settled: None,
            released: Vec::new(),
            lines: FlushSet::default(),
        };
        if let Some(heap) = carrier.heap.clone() {
            for _ in 0..LIVE {
                let block = heap.reserve(BLOCK_BYTES, 8)?;
                carrier.unsettled.push(Intent::alloc(&block));
                carrier.live.push(block);
            }
        }
        carrier.settle()?;
        Ok(carrier)
    }

    fn reserve(&self) -> Result<Block> {
        match &self.heap {
            Some(heap) => Ok(heap.reserve(BLOCK_BYTES, 8)?),
            None => Err(pmem::Error::HeapFull { bytes: BLOCK_BYTES }.into()),
        }
    }

    fn pair(&mut self) -> Result<()> {
        self.at = (self.at + BLOCK_BYTES) % RING_BYTES;
        self.data.bytes_mut(self.at, BLOCK_BYTES as usize)?.fill(self.at as u8);
        if self.heap.is_none() {
            let _ = self.data.flush(self.at, BLOCK_BYTES)?;
            self.commit(&[0; 16])?;
            self.commit(&[0; 16])?;
            self.settled = Some(self.ring.durable());
            return Ok(());
        }
        let block = self.reserve()?;
        let intent = Intent::alloc(&block);
        let _ = self.data.flush(self.at, BLOCK_BYTES)?;
        self.commit(bytes_of(&intent))?;
        self.unsettled.push(intent);
        // Not the oldest block every time: its neighbours would go with it.
        self.oldest = (self.oldest + 617) % LIVE;
        let old = std::mem::replace(&mut self.live[self.oldest], block);
        if let Some(heap) = &self.heap {
            heap.begin_free(&old)?;
        }
        let intent = Intent::free(&old);
        self.commit(bytes_of(&intent))?;
        self.unsettled.push(intent);
        self.freed.push(old);
        if self.freed.len() == SETTLE { self.settle() } else { Ok(()) }
    }

    /// Carries the intents of the last pairs out; their lines go with the next commit's barrier.
    fn settle(&mut self) -> Result<()> {
        let Some(heap) = &self.heap else { return Ok(()) };
        for intent in self.unsettled.drain(..) {
            heap.apply(&intent, &mut self.lines)?;
        }
        self.settled = Some(self.ring.durable());
        self.released.append(&mut self.freed);
        Ok(())
    }

    /// A transaction's record and its barrier; behind it what was settled before may be forgotten.
    fn commit(&mut self, intent: &[u8]) -> Result<()> {
        self.ring.append(&[intent, &[7; 16]])?;
        self.pool.flush_set(&mut self.lines)?;
        self.ring.force()?;
        if let Some(settled) = self.settled.take() {
            self.ring.retire(settled);
            if let Some(heap) = &self.heap {
                self.released.drain(..).try_for_each(|block| heap.release(block))?;
            }
        }
        Ok(())
    }
}
