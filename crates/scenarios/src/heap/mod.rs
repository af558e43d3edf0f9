//! Transactions of a heap: every acknowledged one is there, every other one whole or not at all; the allocator's blocks are exactly what is
//! reachable; a second recovery finds nothing to do; and every slot can go on.

mod check;
pub mod damage;
mod op;
mod work;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crash::{Ack, Error, History, Rng, Scenario, Sim, Violation};
use heap::{Heap, Intents, Options, Policy};
use pmem::{HeapOptions, PPtr, Persist, Pool};
use tx::{Engine, Isolation, Typed};

use crate::opened::Opened;

pub(crate) use check::no_leaks;
pub use op::{CELLS, Edit, End, NODE, Op, Then};
pub use work::Effect;

/// Slots of the heap.
const SLOTS: usize = 3;
const ZONE: u64 = 4096;
/// Chunks of a page at first.
const CHUNKS: u64 = 8;

/// Transactions over a few cells and their nodes.
#[derive(Clone, Debug)]
pub struct Cells {
    name: &'static str,
    policy: Policy,
    threads: usize,
    batch: usize,
    checksum_max: u64,
    dirty_zones: u64,
    copies: u64,
    intents: Intents,
    script: Option<Vec<(usize, Op)>>,
    adjust: fn(Options) -> Options,
}

/// The root object: where the cells are.
#[derive(Clone, Copy, Persist)]
#[repr(C)]
pub(crate) struct Root {
    cells: [PPtr<u64>; CELLS.len()],
    /// A word for each slot, which the check itself changes after it has looked.
    probes: PPtr<[u64; SLOTS]>,
}

impl Cells {
    /// A random workload for this many threads.
    pub fn new(name: &'static str, policy: Policy, threads: usize) -> Self {
        Self {
            name,
            policy,
            threads,
            batch: 2,
            checksum_max: 256,
            dirty_zones: 3,
            copies: 1000,
            intents: Intents::Zones,
            script: None,
            adjust: |options| options,
        }
    }

    /// Exactly these operations, each on its thread.
    pub fn script(policy: Policy, ops: Vec<(usize, Op)>) -> Self {
        Self { script: Some(ops), ..Self::new("heap-script", policy, 1) }
    }

    /// Changes how the heap is opened, in the program and at recovery.
    #[must_use]
    pub fn adjust(self, adjust: fn(Options) -> Options) -> Self {
        Self { adjust, ..self }
    }

    /// Transactions applied together.
    #[must_use]
    pub fn batch(self, batch: usize) -> Self {
        Self { batch, ..self }
    }

    /// Most bytes under a checksum.
    #[must_use]
    pub fn checksum_max(self, checksum_max: u64) -> Self {
        Self { checksum_max, ..self }
    }

    /// Zones that may be dirty before some are cleaned.
    #[must_use]
    pub fn dirty_zones(self, dirty_zones: u64) -> Self {
        Self { dirty_zones, ..self }
    }

    /// Bytes for the copies of a partial backup.
    #[must_use]
    pub fn copies(self, copies: u64) -> Self {
        Self { copies, ..self }
    }

    /// With intents of objects.
    #[must_use]
    pub fn intents(self) -> Self {
        Self { intents: Intents::Objects, ..self }
    }

    fn options(&self) -> Result<Options, Error> {
        let blocks = HeapOptions::chunk_bytes(4096)?;
        let options = Options::new()
            .blocks(blocks)
            .bytes(blocks.region_bytes(CHUNKS))
            .slots(SLOTS)
            .log_bytes(2048)
            .zone_bytes(ZONE)
            .alpha(self.copies as f64 / (CHUNKS * 4096) as f64)
            .intents(self.intents)
            .recovery_budget(self.dirty_zones * ZONE)
            .batch(self.batch)
            .checksum_max(self.checksum_max)
            .coordinator(false);
        Ok((self.adjust)(options))
    }

    fn open(&self, sim: &Arc<Sim>, policy: Option<Policy>) -> Result<(Heap, Pool), Error> {
        let pool = pmem::Options::new().open_on(sim.clone())?;
        let options = self.options()?;
        let heap = Heap::open_in(&pool, &policy.map_or(options.clone(), |p| options.policy(p)))?;
        Ok((heap, pool))
    }
}

/// The open heap and what its threads share.
pub struct Live {
    sim: Arc<Sim>,
    open: Opened<Heap>,
    root: Root,
    next: AtomicU64,
}

pub(crate) fn root_of(heap: &Heap) -> tx::Result<Root> {
    heap.transact(Isolation::Strict, |tx| -> tx::Result<Root> { Ok(*tx.read(tx.root::<Root>()?)?) })
}

fn make(heap: &Heap) -> tx::Result<()> {
    heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
        let mut cells = [PPtr::NULL; CELLS.len()];
        for (cell, words) in cells.iter_mut().zip(CELLS) {
            *cell = tx.alloc_slice(&vec![0; 8 * (1 + words)])?.cast();
        }
        let probes = tx.alloc(&[0; SLOTS])?;
        let root = tx.alloc(&Root { cells, probes })?;
        tx.set_root(root)
    })
}

impl Scenario for Cells {
    type Op = Op;
    type Effect = Effect;
    type State = Vec<u64>;
    type Live = Live;

    fn name(&self) -> &str {
        self.name
    }

    fn capacity(&self) -> u64 {
        512 << 10
    }

    fn setup(&self, sim: &Arc<Sim>) -> Result<(), Error> {
        let pool = pmem::Options::new().size(16 << 10).create_on(sim.clone())?;
        let heap = Heap::create_in(&pool, &self.options()?.policy(self.policy))?;
        drop(pool);
        make(&heap)?;
        heap.close()?;
        Ok(())
    }

    fn start(&self, sim: &Arc<Sim>) -> Result<Live, Error> {
        let (heap, pool) = self.open(sim, None)?;
        let root = root_of(&heap)?;
        Ok(Live { sim: sim.clone(), open: Opened::new((heap, pool)), root, next: 100.into() })
    }

    fn ops(&self, rng: &mut Rng) -> Vec<(usize, Op)> {
        self.script.clone().unwrap_or_else(|| op::random(rng, self.policy, self.threads))
    }

    fn step(&self, live: &Live, _: usize, op: &Op, ack: &Ack<Effect>) -> Result<(), Error> {
        let restart = match *op {
            Op::Restart(policy) => Some((policy, false)),
            Op::Close(policy) => Some((policy, true)),
            _ => None,
        };
        if let Some((policy, clean)) = restart {
            let end = |heap: Heap, pool| {
                drop(pool);
                if clean {
                    heap.close()?;
                } else {
                    drop(heap);
                }
                Ok(())
            };
            return live.open.again(end, || self.open(&live.sim, policy));
        }
        let heap = live.open.get()?;
        work::run(live, &heap, op, ack)?;
        Ok(())
    }

    fn finish(&self, live: Live) -> Result<(), Error> {
        live.open.close(Heap::close)
    }

    fn check(&self, sim: &Arc<Sim>, history: &History<Effect>) -> Result<Vec<u64>, Violation> {
        check::check(self, sim, history)
    }
}
