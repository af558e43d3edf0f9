//! A graph in a heap: every acknowledged transaction on its nodes and edges is there, every other one whole or not at all; both ends of every edge
//! agree; the allocator's blocks are exactly what it reaches; and it can go on. Under [`Policy::None`] less is promised, as for
//! [`Pairs`](crate::Pairs).

mod check;
mod work;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crash::{Ack, Error, History, Rng, Scenario, Sim, Violation};
use heap::{Heap, Policy};
use pmem::Pool;
use structures::{Graph, GraphOptions};
use structures_testing::graph::Step;
use tx::{Engine, Isolation, Typed};

use crate::opened::Opened;
use crate::structures::{open, options};

pub use work::{Effect, Op};

/// Nodes that are there at first. The first one has an edge to the next [`Graph::PAGE_EDGES`]: one more needs a page.
pub const NODES: u64 = Graph::PAGE_EDGES as u64 + 3;
/// Nodes of an edge that checks themselves add and remove.
const PROBE: [u64; 2] = [900, 901];

/// Bugs for tests of the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Each step in a transaction of its own, where all were promised together.
    Piecewise,
    /// A node's edges go in a transaction of their own, before the node.
    EdgesFirst,
    /// It is acknowledged before the commit.
    EarlyAck,
    /// A step leaves a block behind.
    Leak,
}

/// Transactions on one graph.
#[derive(Clone, Debug)]
pub struct Edges {
    name: &'static str,
    policy: Policy,
    threads: usize,
    script: Option<Vec<(usize, Op)>>,
    bug: Option<Bug>,
}

impl Edges {
    /// A random workload for this many threads.
    pub fn new(name: &'static str, policy: Policy, threads: usize) -> Self {
        Self { name, policy, threads, script: None, bug: None }
    }

    /// Exactly these operations.
    #[must_use]
    pub fn script(self, ops: Vec<Op>) -> Self {
        Self { script: Some(ops.into_iter().map(|op| (0, op)).collect()), ..self }
    }

    /// With a bug.
    #[must_use]
    pub fn with(self, bug: Bug) -> Self {
        Self { bug: Some(bug), ..self }
    }

    fn open(&self, sim: &Arc<Sim>) -> Result<(Heap, Pool), Error> {
        open(sim, &options(self.policy, COPIES)?)
    }
}

/// Bytes for the copies of a partial backup, as for the other structures.
const COPIES: u64 = 3000;

/// The open heap and what its threads share.
pub struct Live {
    sim: Arc<Sim>,
    open: Opened<Heap>,
    next: AtomicU64,
}

#[cfg(test)]
impl Live {
    pub(crate) fn evictions(&self) -> u64 {
        self.open.get().map_or(0, |heap| heap.stats().evictions)
    }
}

impl Scenario for Edges {
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
        let heap = Heap::create_in(&pool, &options(self.policy, COPIES)?)?;
        drop(pool);
        let graph = heap.transact(Isolation::Strict, |tx| {
            let graph = Graph::create(tx, &GraphOptions::new().capacity(1))?;
            tx.set_root(graph.root()).map(|()| graph)
        })?;
        let steps: Vec<Step> = work::at_first().chain(PROBE.map(Step::AddNode)).collect();
        for steps in steps.chunks(8) {
            heap.transact(Isolation::Strict, |tx| work::run_all(tx, graph, steps))?;
        }
        heap.close()?;
        Ok(())
    }

    fn start(&self, sim: &Arc<Sim>) -> Result<Live, Error> {
        Ok(Live { sim: sim.clone(), open: Opened::new(self.open(sim)?), next: 1.into() })
    }

    fn ops(&self, rng: &mut Rng) -> Vec<(usize, Op)> {
        self.script.clone().unwrap_or_else(|| work::random(rng, self.policy, self.threads))
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
