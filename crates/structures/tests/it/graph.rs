//! Graphs: against a model, on every engine, damaged, and what a change costs.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use heap::{Heap, Policy};
use pmem::PPtr;
use proptest::prelude::*;
use structures::{Direction, Graph, GraphOptions};
use structures_testing::graph::{NODES, Step, against_model, concurrently, damage, read, steps};
use tx::{Engine, Error, Isolation, Reference, Transaction, Typed};

use crate::engines::{heap, live, short, was_short};
use crate::support::with;

fn graph<E: Engine>(engine: &E) -> Graph {
    with(engine, |tx| Graph::create(tx, &GraphOptions::new().capacity(1)))
}

fn step() -> impl Strategy<Value = Step> {
    let id = || 0..12u64;
    prop_oneof![
        6 => id().prop_map(Step::AddNode),
        2 => id().prop_map(Step::RemoveNode),
        12 => (id(), id()).prop_map(|(from, to)| Step::AddEdge(from, to)),
        4 => (id(), id()).prop_map(|(from, to)| Step::RemoveEdge(from, to)),
        2 => (id(), 0..4u32).prop_map(|(from, depth)| Step::Reach(from, depth)),
        2 => (id(), id(), 0..7u32).prop_map(|(from, to, edges)| Step::Path(from, to, edges)),
        2 => Just(Step::Commit),
        1 => Just(Step::Abort),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_graph_is_a_set_of_edges(steps in prop::collection::vec(step(), 1..200)) {
        let engine = Reference::new();
        against_model(&engine, graph(&engine), &steps, true).unwrap();
    }
}

#[test]
fn long_runs_from_seeds() {
    for seed in 0..6 {
        let engine = Reference::new();
        let graph = graph(&engine);
        against_model(&engine, graph, &steps(seed, 3000), true).unwrap();
        let report = with(&engine, |tx| graph.verify(tx));
        // Hubs have more than a page.
        assert!(report.nodes > 40 && report.degree_max > Graph::PAGE_EDGES as u64, "{report:?}");
    }
}

/// The checker must be able to fail: a graph with an edge that the model does not know.
#[test]
fn a_graph_that_keeps_an_edge_is_caught() {
    let engine = Reference::new();
    let graph = graph(&engine);
    against_model(&engine, graph, &[Step::AddNode(1), Step::AddEdge(1, 1), Step::Commit], true).unwrap();
    let failure = against_model(&engine, graph, &[Step::AddNode(1)], true).unwrap_err();
    assert!(failure.to_string().contains("changed: found false"), "{failure}");
}

/// Runs a check on every policy, then: the heap has not one block more or less than the graph says.
fn on_every_policy(check: impl Fn(&Heap, Graph, Policy)) {
    for policy in Policy::ALL {
        let (_dir, heap) = short(policy, 8 << 10);
        let before = live(&heap);
        let graph = graph(&heap);
        check(&heap, graph, policy);
        was_short(&heap, policy);
        let blocks = with(&heap, |tx| graph.blocks(tx));
        let now: BTreeSet<u64> = live(&heap).difference(&before).copied().collect();
        assert_eq!(now, blocks.into_iter().map(|block| block.offset()).collect(), "{policy}");
        with(&heap, |tx| graph.destroy(tx));
        assert_eq!(live(&heap), before, "{policy}");
    }
}

#[test]
fn models_hold_on_every_policy() {
    on_every_policy(|heap, graph, policy| {
        against_model(heap, graph, &steps(11, 1500), policy != Policy::None).unwrap();
    });
}

#[test]
fn edges_of_threads_hold_on_every_policy() {
    on_every_policy(|heap, graph, policy| {
        // Without rollback a conflict leaves half of a transaction behind.
        concurrently(heap, graph, if policy == Policy::None { 1 } else { 4 }, 60).unwrap();
    });
    let engine = Reference::new();
    concurrently(&engine, graph(&engine), 4, 60).unwrap();
}

#[test]
fn a_damaged_graph_is_an_error() {
    let engine = Reference::new();
    let reference = graph(&engine);
    against_model(&engine, reference, &steps(5, 2000), true).unwrap();
    let noticed = damage(&engine, reference, 3, 300).unwrap();
    assert!(noticed > 200, "{noticed}");
    for policy in Policy::ALL.into_iter().filter(|&policy| policy != Policy::None) {
        let (_dir, heap) = heap(policy);
        let graph = graph(&heap);
        against_model(&heap, graph, &steps(5, 1000), true).unwrap();
        assert!(damage(&heap, graph, 5, 60).unwrap() > 30, "{policy}");
    }
}

#[test]
fn a_damaged_root_does_not_open() {
    let engine = Reference::new();
    let graph = graph(&engine);
    for word in [0, 8] {
        let at = PPtr::<u64>::new(graph.root().tag(), graph.root().offset() + word);
        let before = with(&engine, |tx| Ok(std::mem::replace(tx.write(at)?, 4096)));
        let opened = Graph::open(&engine.begin(Isolation::Strict).unwrap(), graph.root());
        assert!(matches!(opened, Err(Error::Damaged { .. })), "{opened:?}");
        with(&engine, |tx| Ok(std::mem::replace(tx.write(at)?, before)));
    }
}

#[test]
fn an_edge_needs_its_nodes() {
    let engine = Reference::new();
    let graph = graph(&engine);
    with(&engine, |tx| graph.add_node(tx, 1));
    let mut tx = engine.begin(Isolation::Strict).unwrap();
    let refused = graph.add_edge(&mut tx, 1, 2);
    assert!(matches!(&refused, Err(Error::Aborted { reason }) if reason.contains("node 2")), "{refused:?}");
    assert!(matches!(tx.commit(), Err(Error::Doomed { .. })));
    assert_eq!(with(&engine, |tx| graph.degree(tx, 1, Direction::Out)), Some(0));
    assert_eq!(with(&engine, |tx| graph.degree(tx, 2, Direction::Out)), None);
}

#[test]
fn a_graph_is_there_after_a_reopen() {
    for policy in Policy::ALL {
        let (dir, heap) = short(policy, 8 << 10);
        let graph = graph(&heap);
        against_model(&heap, graph, &steps(4, 600), policy != Policy::None).unwrap();
        let before = with(&heap, |tx| {
            tx.set_root(graph.root())?;
            read(tx, graph)
        });
        was_short(&heap, policy);
        heap.close().unwrap();
        let options = heap::Options::new().pool(pmem::Options::new().domain(pmem::DomainChoice::Emulated));
        let heap = Heap::open(dir.path().join("p"), &options).unwrap();
        let after = with(&heap, |tx| read(tx, Graph::open(tx, tx.root()?)?));
        assert_eq!(before, after, "{policy}");
    }
}

/// Barriers of one transaction.
fn barriers(heap: &Heap, f: impl FnMut(&mut heap::Tx<'_>) -> tx::Result<bool>) -> u64 {
    let before = counts(heap);
    assert!(with(heap, f));
    counts(heap) - before
}

/// Barriers so far, but for those of copies that a partial backup did not have.
fn counts(heap: &Heap) -> u64 {
    heap.pool().stats().drains - heap.stats().misses
}

/// An edge's both ends, with pages that come and go; a node with its edges.
#[test]
fn every_change_declares_once() {
    let (_dir, undo) = heap(Policy::Undo);
    let graph = graph(&undo);
    let edges = 2 * Graph::PAGE_EDGES as u64 + 3;
    with(&undo, |tx| (0..=edges).try_for_each(|id| graph.add_node(tx, id).map(drop)));
    for id in 1..=edges {
        assert_eq!(barriers(&undo, |tx| graph.add_edge(tx, 0, id)), 3, "{id}");
        assert_eq!(barriers(&undo, |tx| graph.add_edge(tx, id, 0)), 3, "{id}");
    }
    assert_eq!(barriers(&undo, |tx| graph.add_edge(tx, 0, 0)), 3);
    for id in (1..=edges).step_by(2) {
        assert_eq!(barriers(&undo, |tx| graph.remove_edge(tx, 0, id)), 3, "{id}");
    }
    // A word for each of 95 edges at its other end, for those that leave and those that come, and the index's.
    assert_eq!(barriers(&undo, |tx| graph.remove_node(tx, 0)), 3);
    let report = with(&undo, |tx| graph.verify(tx));
    assert_eq!((report.edges, report.pages), (0, 0));
    assert_eq!(barriers(&undo, |tx| graph.add_node(tx, 0)), 3);
}

#[test]
fn a_change_costs_what_the_policy_costs() {
    for policy in Policy::ALL {
        let (_dir, heap) = heap(policy);
        let graph = graph(&heap);
        with(&heap, |tx| (0..NODES).try_for_each(|id| graph.add_node(tx, id).map(drop)));
        with(&heap, |tx| (1..NODES).try_for_each(|id| graph.add_edge(tx, id - 1, id).map(drop)));
        let round = |at: u64| {
            let [from, to] = [at, at + 40];
            barriers(&heap, |tx| graph.add_edge(tx, from, to)) + barriers(&heap, |tx| graph.remove_edge(tx, from, to))
        };
        // Until zones are marked and the pipeline is full.
        (0..40).for_each(|at| _ = round(at));
        heap.apply_pending().unwrap();
        (0..40).for_each(|at| _ = round(at));
        let sum: u64 = (0..40).map(round).sum();
        let expected = if policy == Policy::Undo { 240 } else { 80 };
        assert_eq!(sum, expected, "{policy}");
    }
}

#[test]
fn reads_cost_no_barrier() {
    let (_dir, heap) = heap(Policy::InPlace);
    let graph = graph(&heap);
    against_model(&heap, graph, &steps(4, 600), true).unwrap();
    heap.apply_pending().unwrap();
    let before = heap.pool().stats();
    with(&heap, |tx| {
        graph.breadth_first(tx, 0, 6, |_, _| ControlFlow::Continue(()))?;
        graph.path(tx, 0, 50, 6)?;
        graph.verify(tx)
    });
    assert_eq!((heap.pool().stats() - before).drains, 0);
}
