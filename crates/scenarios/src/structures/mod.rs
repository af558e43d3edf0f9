//! Maps in a heap: every acknowledged transaction on their keys is there, every other one whole or not at all; the structure verifies; the
//! allocator's blocks are exactly what it reaches; and it can go on. Under [`Policy::None`] less is promised, see [`Pairs`].
//!
//! Faults of the medium are not planted: objects carry no checksum at rest, so a value may be wrong without being noticed.

mod check;
mod kind;
mod values;
mod work;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use crash::{Ack, Error, History, Rng, Scenario, Sim, Violation};
use heap::{Heap, Options, Policy};
use pmem::{HeapOptions, Pool};
use tx::{Engine, Isolation};

use crate::opened::Opened;

pub use kind::{Hash, Kind, List, Search, Tree};
pub use values::{Effect, LENS};
pub(crate) use work::too_large;
pub use work::{Edit, Op};

/// Keys a workload knows.
pub const KEYS: usize = 24;
/// Of these, the ones that are there at first: they fill a bucket, and a tree of two levels.
pub const START: usize = 14;
/// Keys of a workload with many.
pub const MANY: usize = 200;
/// Of these, the ones that are there at first.
const MANY_START: usize = 170;
/// Number of the first transaction; below are those of the pairs that are there at first.
const FIRST: u64 = 1000;

/// Bugs for tests of the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Each key in a transaction of its own, where all were promised together.
    Piecewise,
    /// A put over a key deletes it in a transaction of its own, first.
    DeleteThenPut,
    /// It is acknowledged before the commit.
    EarlyAck,
    /// A delete leaves a block behind.
    Leak,
}

/// Transactions on the keys of one structure.
///
/// With [`Policy::None`], where a crash leaves half a transaction: while none is in doubt, everything acknowledged is there and intact;
/// otherwise every operation comes back, with an error or without, and what `verify` passes can be walked and found.
#[derive(Clone, Debug)]
pub struct Pairs<K> {
    name: &'static str,
    kind: K,
    policy: Policy,
    threads: usize,
    keys: Vec<Vec<u8>>,
    /// Of these, the ones that are there at first.
    start: usize,
    script: Option<Vec<(usize, Op)>>,
    bug: Option<Bug>,
}

impl<K: Kind> Pairs<K> {
    /// A random workload for this many threads.
    pub fn new(name: &'static str, kind: K, policy: Policy, threads: usize) -> Self {
        Self { name, kind, policy, threads, keys: kind.keys(), start: START, script: None, bug: None }
    }

    /// With [`MANY`] keys, most of which are there at first: nodes and levels that a few dozen do not make.
    #[must_use]
    pub fn many(self) -> Self {
        Self { keys: K::many(), start: MANY_START, ..self }
    }

    /// Exactly these operations, each on its thread.
    #[must_use]
    pub fn script(self, ops: Vec<(usize, Op)>) -> Self {
        Self { script: Some(ops), ..self }
    }

    /// With a bug.
    #[must_use]
    pub fn with(self, bug: Bug) -> Self {
        Self { bug: Some(bug), ..self }
    }

    fn open(&self, sim: &Arc<Sim>) -> Result<(Heap, Pool), Error> {
        open(sim, &options(self.policy, K::COPIES)?)
    }
}

/// A heap for a structure of a few dozen keys or nodes, with so many bytes for the copies of a partial backup.
pub(crate) fn options(policy: Policy, copies: u64) -> Result<Options, Error> {
    let blocks = HeapOptions::chunk_bytes(4096)?;
    let bytes = blocks.region_bytes(16);
    Ok(Options::new()
        .policy(policy)
        .blocks(blocks)
        .bytes(bytes)
        .alpha(copies as f64 / bytes as f64)
        .slots(3)
        .log_bytes(4096)
        .zone_bytes(4096)
        .recovery_budget(16 << 10)
        .batch(2)
        .coordinator(false))
}

pub(crate) fn open(sim: &Arc<Sim>, options: &Options) -> Result<(Heap, Pool), Error> {
    let pool = pmem::Options::new().open_on(sim.clone())?;
    Ok((Heap::open_in(&pool, options)?, pool))
}

/// The open heap and what its threads share.
pub struct Live {
    sim: Arc<Sim>,
    open: Opened<Heap>,
    /// What scans are held against.
    book: Mutex<History<Effect>>,
    next: AtomicU64,
}

impl<K: Kind> Scenario for Pairs<K> {
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
        let heap = Heap::create_in(&pool, &options(self.policy, K::COPIES)?)?;
        drop(pool);
        heap.transact(Isolation::Strict, |tx| self.kind.create(tx))?;
        for keys in values::at_first(self.start).into_iter().collect::<Vec<_>>().chunks(START) {
            heap.transact(Isolation::Strict, |tx| work::fill_up(tx, self, keys))?;
        }
        heap.close()?;
        Ok(())
    }

    fn start(&self, sim: &Arc<Sim>) -> Result<Live, Error> {
        let open = Opened::new(self.open(sim)?);
        let book = Mutex::new(History { acknowledged: Vec::new(), in_doubt: Vec::new() });
        Ok(Live { sim: sim.clone(), open, book, next: FIRST.into() })
    }

    fn ops(&self, rng: &mut Rng) -> Vec<(usize, Op)> {
        self.script.clone().unwrap_or_else(|| work::random(rng, self.policy, self.threads, self.keys.len()))
    }

    fn step(&self, live: &Live, _: usize, op: &Op, ack: &Ack<Effect>) -> Result<(), Error> {
        if let Op::Restart = op {
            let end = |heap, pool| {
                drop((heap, pool));
                Ok(())
            };
            return live.open.again(end, || self.open(&live.sim));
        }
        let heap = live.open.get()?;
        work::run(self, live, &heap, op, ack)
    }

    fn finish(&self, live: Live) -> Result<(), Error> {
        live.open.close(Heap::close)
    }

    fn check(&self, sim: &Arc<Sim>, history: &History<Effect>) -> Result<Vec<u64>, Violation> {
        match self.policy {
            Policy::None => check::half(self, sim, history),
            _ => check::whole(self, sim, history),
        }
    }
}

#[cfg(test)]
mod tests {
    use crash::Model;

    use super::*;

    fn evictions<S: Scenario>(scenario: &S, of: impl Fn(&S::Live) -> u64) -> u64 {
        (1..200)
            .map(|seed| {
                let sim = Sim::new(scenario.capacity(), Model::Words);
                scenario.setup(&sim).expect("set up");
                let live = scenario.start(&sim).expect("started");
                let mut most = 0;
                for (thread, op) in scenario.ops(&mut Rng::seeded(seed)) {
                    scenario.step(&live, thread, &op, &Ack::default()).expect("done");
                    most = most.max(of(&live)); // a restart counts from nothing
                }
                most
            })
            .sum()
    }

    /// What is explored of a partial backup is one that is short.
    #[test]
    fn copies_are_given_up() {
        let policy = Policy::InPlacePartial;
        let of = |live: &Live| live.open.get().map_or(0, |heap| heap.stats().evictions);
        assert!(evictions(&Pairs::new("tree", Tree, policy, 1), of) > 0, "B+tree");
        assert!(evictions(&Pairs::new("hash", Hash { grows: true }, policy, 1), of) > 0, "hash map");
        assert!(evictions(&Pairs::new("fixed", Hash { grows: false }, policy, 1), of) > 0, "hash map of chains");
        assert!(evictions(&Pairs::new("list", List, policy, 1), of) > 0, "list");
        assert!(evictions(&Pairs::new("bst", Search { balanced: false }, policy, 1), of) > 0, "search tree");
        assert!(evictions(&Pairs::new("treap", Search { balanced: true }, policy, 1), of) > 0, "treap");
        let of = |live: &crate::graph::Live| live.evictions();
        assert!(evictions(&crate::graph::Edges::new("graph", policy, 1), of) > 0, "graph");
    }
}
