//! What allocation adds to the transactions that carry it.
//!
//! One operation is a pair of transactions, each a checksummed record and its barrier: the first fills 128 bytes and puts a block into a table of
//! 1000, the second takes another one out. Without allocation the block is the one that was taken out before; with it, it is reserved, and
//! the other freed: intents are kept until 16 pairs are applied together, as engines do, bits are stored and flushed, blocks released.
//! The difference is the price of an allocation and a free; neither has a barrier of its own.

use std::sync::Arc;

use pmem::{Allocator, Area, Block, FlushSet, HeapOptions, Intent, Pool, Position, Ring, bytes_of};

use super::processor::in_parallel;
use super::row;
use crate::{Result, Side};

/// Pairs between two applications.
const APPLY: usize = 16;
const BLOCK_BYTES: u64 = 128;
const RING_BYTES: u64 = 1 << 20;
const HEAP_BYTES: u64 = 2 << 20;
/// Blocks that live at any time, per thread.
const LIVE: usize = 1000;

/// The pair with and without allocation, by one, two and four threads.
///
/// # Errors
/// Those of the pool.
pub fn sides(pool: &Pool, dir: &std::path::Path) -> Result<Vec<Side<'static>>> {
    let mut sides = Vec::new();
    for threads in [1, 2, 4] {
        for (op, allocates) in [("commit pair", false), ("commit pair with alloc+free", true)] {
            let side = format!("{}{threads}", if allocates { "a" } else { "b" });
            // Of its own, so that the sides do not scatter each other's blocks.
            let heap = Allocator::create(pool, &format!("heap-{side}"), HEAP_BYTES, HeapOptions::default())?;
            let heap = Arc::new(heap);
            let mut carriers = Vec::new();
            for thread in 0..threads {
                carriers.push(Carrier::new(pool, &format!("{side}-{thread}"), &heap, allocates)?);
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
    heap: Arc<Allocator>,
    allocates: bool,
    live: Vec<Block>,
    /// Taken out last: the next to be put in, where nothing is allocated.
    spare: Block,
    random: u64,
    pending: Vec<Intent>,
    freed: Vec<Block>,
    /// Applied, not yet behind a barrier: records through here, and blocks that can be handed out again then.
    applied: Option<Position>,
    released: Vec<Block>,
    lines: FlushSet,
}

impl Carrier {
    fn new(pool: &Pool, name: &str, heap: &Arc<Allocator>, allocates: bool) -> Result<Self> {
        let ring = Ring::create(pool.add_region(&format!("ring-{name}"), RING_BYTES)?.into_area()?)?;
        let mut data = pool.add_region(&format!("data-{name}"), RING_BYTES)?.into_area()?;
        let _ = data.clear()?;
        let mut carrier = Self {
            pool: pool.clone(),
            ring,
            data,
            at: 0,
            heap: Arc::clone(heap),
            allocates,
            live: Vec::new(),
            spare: heap.reserve(BLOCK_BYTES, 8)?,
            random: 1,
            pending: Vec::new(),
            freed: Vec::new(),
            applied: None,
            released: Vec::new(),
            lines: FlushSet::default(),
        };
        for _ in 0..LIVE {
            let block = heap.reserve(BLOCK_BYTES, 8)?;
            carrier.pending.push(Intent::alloc(&block));
            carrier.live.push(block);
        }
        carrier.apply()?;
        Ok(carrier)
    }

    fn pair(&mut self) -> Result<()> {
        let block = if self.allocates { self.heap.reserve(BLOCK_BYTES, 8)? } else { self.spare };
        self.at = (self.at + BLOCK_BYTES) % RING_BYTES;
        self.data.bytes_mut(self.at, BLOCK_BYTES as usize)?.fill(self.at as u8);
        let _ = self.data.flush(self.at, BLOCK_BYTES)?;
        let intent = Intent::alloc(&block);
        self.commit(&intent)?;
        if self.allocates {
            self.pending.push(intent);
        }
        // By chance: neighbours, taken together, are not freed together.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let victim = (self.random % LIVE as u64) as usize;
        let old = std::mem::replace(&mut self.live[victim], block);
        if self.allocates {
            self.heap.begin_free(&old)?;
        }
        let intent = Intent::free(&old);
        self.commit(&intent)?;
        if !self.allocates {
            self.spare = old;
            self.applied = Some(self.ring.durable());
            return Ok(());
        }
        self.pending.push(intent);
        self.freed.push(old);
        if self.freed.len() == APPLY { self.apply() } else { Ok(()) }
    }

    /// Carries the intents of the last pairs out; their lines go with the next commit's barrier.
    fn apply(&mut self) -> Result<()> {
        for intent in self.pending.drain(..) {
            self.heap.apply(&intent, &mut self.lines)?;
        }
        self.applied = Some(self.ring.durable());
        self.released.append(&mut self.freed);
        Ok(())
    }

    /// A transaction's record and its barrier; behind it what was applied before may be forgotten.
    fn commit(&mut self, intent: &Intent) -> Result<()> {
        self.ring.append(&[bytes_of(intent), &[7; 16]])?;
        self.pool.flush_set(&mut self.lines)?;
        self.ring.force()?;
        if let Some(applied) = self.applied.take() {
            self.ring.retire(applied);
            self.released.drain(..).try_for_each(|block| self.heap.release(block))?;
        }
        Ok(())
    }
}
