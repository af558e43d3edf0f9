//! What the workload does, and how it runs against an open heap.

use std::ops::ControlFlow::Continue;
use std::sync::atomic::Ordering::Relaxed;

use crash::{Ack, Error, Rng};
use heap::{Heap, Policy, Tx};
use structures::{Direction, Graph};
use structures_testing::graph::{Model, Step};
use tx::{Engine, Isolation, Transaction, Typed};

use super::{Bug, Edges, Live, NODES};
use crate::heap::End;
use crate::structures::too_large;

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// A transaction.
    Change(Vec<Step>, End),
    /// Applies everything.
    Apply,
    /// Drops everything and opens again; with one thread only.
    Restart,
}

/// What a transaction promises.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// Grows in the order in which transactions lock what they share.
    pub number: u64,
    /// What it changed.
    pub steps: Vec<Step>,
}

/// What makes the graph that is there at first.
pub(super) fn at_first() -> impl Iterator<Item = Step> {
    let full = (1..=Graph::PAGE_EDGES as u64).map(|to| Step::AddEdge(0, to));
    (0..NODES).map(Step::AddNode).chain(full).chain([Step::AddEdge(1, 2), Step::AddEdge(NODES - 1, NODES - 1)])
}

pub(super) fn model() -> Model {
    let mut model = Model::default();
    at_first().for_each(|step| _ = model.apply(step));
    model
}

/// Does steps whose nodes are there.
pub(super) fn run_all(tx: &mut Tx<'_>, graph: Graph, steps: &[Step]) -> tx::Result<()> {
    steps.iter().try_for_each(|&step| structures_testing::graph::run(tx, graph, step).map(drop))
}

/// Mostly about a few nodes: the hub, two of its ends, two without edges, and one that is new.
pub(super) fn random(rng: &mut Rng, policy: Policy, threads: usize) -> Vec<(usize, Op)> {
    let aborts = policy != Policy::None;
    let node = |rng: &mut Rng| [0, 0, 1, 2, NODES - 2, NODES - 1, NODES][rng.index(7)];
    let step = |rng: &mut Rng| match rng.below(10) {
        0..=4 => Step::AddEdge(node(rng), node(rng)),
        5..=7 => Step::RemoveEdge(node(rng), node(rng)),
        8 => Step::AddNode(node(rng)),
        // The hub's edges would be most of the workload.
        _ => Step::RemoveNode(node(rng).max(1)),
    };
    let op = |rng: &mut Rng| match rng.below(12) {
        0..=9 => {
            let steps = (0..=rng.index(4)).map(|_| step(rng)).collect();
            Op::Change(steps, if aborts && rng.below(6) == 0 { End::Abort } else { End::Commit })
        }
        10 if threads == 1 => Op::Restart,
        _ => Op::Apply,
    };
    (0..14).map(|_| (rng.index(threads), op(rng))).collect()
}

pub(super) fn run(edges: &Edges, live: &Live, heap: &Heap, op: &Op, ack: &Ack<Effect>) -> Result<(), Error> {
    match op {
        Op::Change(steps, end) => {
            for _ in 0..6 {
                match change(edges, live, heap, (steps, *end), ack) {
                    Err(e) if e.downcast_ref::<tx::Error>().is_some_and(conflict) => pmem::sync::switch_point(),
                    Err(e) if e.downcast_ref::<tx::Error>().is_some_and(too_large) => return Ok(()),
                    other => return other,
                }
            }
            Ok(()) // it did not come to it
        }
        Op::Apply => Ok(heap.apply_pending()?),
        Op::Restart => Ok(()),
    }
}

fn conflict(error: &tx::Error) -> bool {
    matches!(error, tx::Error::Conflict { .. } | tx::Error::NoSlot { .. })
}

/// One attempt. Everything that the steps depend on is read before the number is drawn: from then on no other transaction changes it. What changes nothing
/// is no part of the effect: others may change what that depended on, with a smaller number, once this has ended.
fn change(
    edges: &Edges,
    live: &Live,
    heap: &Heap,
    (steps, end): (&[Step], End),
    ack: &Ack<Effect>,
) -> Result<(), Error> {
    let mut tx = heap.begin(Isolation::Strict)?;
    let graph = Graph::open(&tx, tx.root()?)?;
    let foreseen = foresee(&tx, graph, steps)?;
    let number = live.next.fetch_add(1, Relaxed);
    let changes = steps.iter().zip(&foreseen).filter(|(_, changes)| **changes).map(|(step, _)| *step);
    let effect = Effect { number, steps: changes.collect() };
    let begin = || ack.begin(effect.clone());
    // In doubt from the commit on; but where nothing is rolled back, or pieces are committed, from the first store on.
    let early = (edges.bug.is_some() || heap.policy() == Policy::None).then(begin);
    if let (Some(Bug::EarlyAck), Some(ticket)) = (edges.bug, early) {
        ack.commit(ticket);
    }
    for (at, step) in steps.iter().enumerate() {
        match edges.bug {
            Some(Bug::Leak) => drop(tx.alloc_bytes(64, 8)?),
            Some(Bug::Piecewise) if at > 0 => {
                tx.commit()?;
                tx = heap.begin(Isolation::Strict)?;
            }
            Some(Bug::EdgesFirst) => {
                if let Step::RemoveNode(id) = *step {
                    remove_edges(&mut tx, graph, id)?;
                    tx.commit()?;
                    tx = heap.begin(Isolation::Strict)?;
                }
            }
            _ => {}
        }
        match structures_testing::graph::run(&mut tx, graph, *step) {
            Ok(changed) if changed == foreseen[at] || edges.bug.is_some() => {}
            Ok(changed) => return Err(format!("{step:?} says {changed}, which was not to be foreseen").into()),
            Err(e) => {
                live.sim.observe(); // what is taken back right away may have reached the media
                tx.abort()?;
                early.into_iter().for_each(|ticket| ack.abort(ticket));
                return Err(e.into());
            }
        }
    }
    live.sim.observe();
    match end {
        End::Commit => {
            let ticket = early.unwrap_or_else(begin);
            match tx.commit() {
                Ok(()) => ack.commit(ticket),
                Err(e) => {
                    if conflict(&e) {
                        ack.abort(ticket);
                    }
                    return Err(e.into());
                }
            }
        }
        End::Abort => {
            tx.abort()?;
            early.into_iter().for_each(|ticket| ack.abort(ticket));
        }
    }
    Ok(())
}

/// What each step will change, from what there is of the nodes and edges they name; of a node that goes every edge is read.
fn foresee(tx: &Tx<'_>, graph: Graph, steps: &[Step]) -> tx::Result<Vec<bool>> {
    let mut near = Model::default();
    let add_node = |near: &mut Model, id| -> tx::Result<()> {
        if graph.has_node(tx, id)? {
            near.apply(Step::AddNode(id));
        }
        Ok(())
    };
    for step in steps {
        match *step {
            Step::AddEdge(from, to) | Step::RemoveEdge(from, to) => {
                add_node(&mut near, from)?;
                add_node(&mut near, to)?;
                if graph.has_edge(tx, from, to)? {
                    near.apply(Step::AddEdge(from, to));
                }
            }
            Step::RemoveNode(id) => {
                add_node(&mut near, id)?;
                for direction in [Direction::Out, Direction::In] {
                    graph.neighbours(tx, id, direction, |_| Continue(()))?;
                }
            }
            Step::AddNode(id) => add_node(&mut near, id)?,
            _ => {}
        }
    }
    Ok(steps.iter().map(|&step| near.apply(step)).collect())
}

fn remove_edges(tx: &mut Tx<'_>, graph: Graph, id: u64) -> tx::Result<()> {
    let mut edges = Vec::new();
    graph.neighbours(tx, id, Direction::Out, |to| {
        edges.push((id, to));
        Continue(())
    })?;
    graph.neighbours(tx, id, Direction::In, |from| {
        edges.push((from, id));
        Continue(())
    })?;
    edges.into_iter().try_for_each(|(from, to)| graph.remove_edge(tx, from, to).map(drop))
}
