//! Holds a recovered graph against what was promised.

use std::sync::Arc;

use crash::{History, Sim, Violation, Witness};
use heap::{Heap, Tx};
use structures::{Direction, Graph};
use structures_testing::graph::{Model, Step, read, run};
use tx::{Engine, Isolation, Transaction, Typed};

use super::work::{Effect, model};
use super::{Edges, NODES, PROBE};
use crate::heap::no_leaks;

fn open(tx: &Tx<'_>) -> tx::Result<Graph> {
    Graph::open(tx, tx.root()?)
}

fn expected<'a>(effects: impl Iterator<Item = &'a Effect>) -> Model {
    let mut effects: Vec<_> = effects.collect();
    effects.sort_by_key(|e| e.number);
    let mut model = model();
    effects.iter().flat_map(|e| &e.steps).for_each(|&step| _ = model.apply(step));
    model
}

/// All acknowledged transactions and some of those in doubt, each whole.
fn as_promised(seen: &Model, history: &History<Effect>) -> Result<(), Violation> {
    let doubt = &history.in_doubt;
    for chosen in 0..1u32 << doubt.len().min(8) {
        let some = doubt.iter().enumerate().filter(|(at, _)| chosen >> at & 1 != 0).map(|(_, e)| e);
        if *seen == expected(history.acknowledged.iter().chain(some)) {
            return Ok(());
        }
    }
    let sure = expected(history.acknowledged.iter());
    let ids = seen.0.keys().chain(sure.0.keys());
    let wrong = ids.copied().find(|id| seen.0.get(id) != sure.0.get(id)).unwrap_or_default();
    let (found, wanted) = (seen.0.get(&wrong), sure.0.get(&wrong));
    let numbers: Vec<u64> = doubt.iter().map(|e| e.number).collect();
    Err(Violation::new(format!("node {wrong}: found {found:?}, acknowledged {wanted:?}; in doubt {numbers:?}")))
}

/// What is there but for the probe, once nothing is lost or shared.
fn see(heap: &Heap) -> Result<Model, Violation> {
    let tx = heap.begin(Isolation::Strict).map_err(Violation::detected)?;
    let look = || {
        let graph = open(&tx)?;
        let mut blocks = vec![(tx.root_cell().offset(), 16)];
        for block in graph.blocks(&tx)? {
            blocks.push((block.offset(), tx.room(block)?));
        }
        let seen = read(&tx, graph)?;
        agree(&tx, graph, &seen)?;
        Ok((seen, blocks))
    };
    let (mut seen, blocks) = look().map_err(|e: tx::Error| Violation::detected(e))?;
    drop(tx);
    no_leaks(heap, blocks)?;
    PROBE.into_iter().for_each(|id| _ = seen.0.remove(&id));
    Ok(seen)
}

/// Degrees, and paths of two edges from the hub, say the same as the edges.
fn agree(tx: &Tx<'_>, graph: Graph, seen: &Model) -> tx::Result<()> {
    let wrong = |what: String| Err(tx::Error::Aborted { reason: what });
    for (&id, ends) in &seen.0 {
        let degree = |direction| graph.degree(tx, id, direction);
        let (out, into) = (degree(Direction::Out)?, degree(Direction::In)?);
        let sources = seen.0.values().filter(|ends| ends.contains(&id)).count();
        if (out, into) != (Some(ends.len() as u64), Some(sources as u64)) {
            return wrong(format!("node {id} has degrees {out:?} and {into:?}, and edges to {ends:?}, from {sources}"));
        }
    }
    let leads = |from: u64, to: u64| seen.0.get(&from).is_some_and(|ends| ends.contains(&to));
    for to in [1, 2, NODES - 1, NODES] {
        let through = || seen.0.keys().any(|&id| leads(0, id) && leads(id, to));
        let edges = if leads(0, to) { Some(1) } else { through().then_some(2) };
        let path = graph.path(tx, 0, to, 2)?;
        let is_one = path.iter().flat_map(|path| path.windows(2)).all(|edge| leads(edge[0], edge[1]));
        if !is_one || path.as_ref().map(|path| path.len() - 1) != edges {
            return wrong(format!("the path from 0 to {to} is {path:?}, over {edges:?} edges there is one"));
        }
    }
    Ok(())
}

/// Adds the probe's edge, or removes it; true if it is there now.
fn probe(heap: &Heap) -> tx::Result<bool> {
    let [from, to] = PROBE;
    let mut tx = heap.begin(Isolation::Strict)?;
    let graph = open(&tx)?;
    let there = graph.has_edge(&tx, from, to)?;
    run(&mut tx, graph, if there { Step::RemoveEdge(from, to) } else { Step::AddEdge(from, to) })?;
    tx.commit()?;
    Ok(!there)
}

fn probed(heap: &Heap) -> tx::Result<bool> {
    let tx = heap.begin(Isolation::Strict)?;
    open(&tx)?.has_edge(&tx, PROBE[0], PROBE[1])
}

pub(super) fn whole(edges: &Edges, sim: &Arc<Sim>, history: &History<Effect>) -> Result<Vec<u64>, Violation> {
    let open = || edges.open(sim).map_err(|e| Violation::detected(e.to_string()));
    let (heap, pool) = open()?;
    let seen = see(&heap)?;
    as_promised(&seen, history)?;
    let state: Vec<u64> = seen.0.iter().flat_map(|(id, ends)| [1000 + id].into_iter().chain(ends.clone())).collect();
    let digest = state.iter().fold(7u64, |h, n| h.wrapping_mul(0x1_0000_01b3) ^ n) >> 1;
    let _witness = Witness::of(digest)?;
    let made = probe(&heap).map_err(Violation::detected)?;
    drop((heap, pool));

    let (heap, pool) = open()?;
    if probed(&heap).map_err(Violation::detected)? != made {
        return Err(Violation::new(format!("after recovery an edge was changed, and that it is there: not {made}")));
    }
    if see(&heap)? != seen {
        return Err(Violation::new("what recovery showed is not there any more"));
    }
    drop((heap, pool));
    Ok(state)
}

/// Without rollback. What is in doubt may go at any time, so no state is compared.
pub(super) fn half(edges: &Edges, sim: &Arc<Sim>, history: &History<Effect>) -> Result<Vec<u64>, Violation> {
    let (heap, pool) = edges.open(sim).map_err(|e| Violation::detected(e.to_string()))?;
    if history.in_doubt.is_empty() {
        as_promised(&see(&heap)?, history)?;
        return Ok(Vec::new());
    }
    let tx = heap.begin(Isolation::Strict).map_err(Violation::detected)?;
    if let Ok(graph) = open(&tx)
        && graph.verify(&tx).is_ok()
    {
        // What `verify` passes can be read from both ends.
        read(&tx, graph).map_err(Violation::detected)?;
    }
    drop(tx);
    // Whatever these say: they come back.
    let _ = probe(&heap);
    for step in [Step::AddEdge(0, 1), Step::RemoveEdge(0, 2), Step::RemoveNode(1)] {
        if let Ok(mut tx) = heap.begin(Isolation::Strict)
            && let Ok(graph) = open(&tx)
        {
            let _ = run(&mut tx, graph, step);
            let _ = tx.commit();
        }
    }
    let _ = heap.live_blocks(|_, _| {});
    drop((heap, pool));
    Ok(Vec::new())
}
