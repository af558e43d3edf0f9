//! How pages fill and empty, and damage that single pages cannot show.

use pmem::PPtr;
use tx::{Engine, Error, Isolation, Reference, Result, Typed};

use super::layout::{EDGES, Node, Pages, edge_of, pages_of};
use super::{Direction, Graph, GraphOptions, IN, OUT};

fn with<R>(engine: &Reference, f: impl FnMut(&mut <Reference as Engine>::Tx<'_>) -> Result<R>) -> R {
    engine.transact(Isolation::Strict, f).unwrap()
}

/// A hub with edges to `count` others.
fn hub(engine: &Reference, count: u64) -> Graph {
    let graph = with(engine, |tx| Graph::create(tx, &GraphOptions::new()));
    with(engine, |tx| (0..=count).try_for_each(|id| graph.add_node(tx, id).map(drop)));
    with(engine, |tx| (1..=count).try_for_each(|id| graph.add_edge(tx, 0, id).map(drop)));
    graph
}

/// Edges of the hub's pages, first page first.
fn counts(engine: &Reference, graph: Graph) -> Vec<usize> {
    with(engine, |tx| {
        let at = graph.find(tx, 0)?.unwrap();
        let mut pages = Pages::new(tx, at, Node::read(tx, at)?, OUT);
        let mut counts = Vec::new();
        while let Some(page) = pages.next()? {
            counts.push(page.count);
        }
        Ok(counts)
    })
}

#[test]
fn only_the_first_page_has_room() {
    let engine = Reference::new();
    let most = 3 * EDGES as u64 + 5;
    let graph = hub(&engine, most);
    assert_eq!(counts(&engine, graph), [5, EDGES, EDGES, EDGES]);
    // From the last page, whose edges came first: those of the first fill the holes.
    for gone in 1..=5 {
        assert!(with(&engine, |tx| graph.remove_edge(tx, 0, gone)));
        with(&engine, |tx| graph.verify(tx));
    }
    assert_eq!(counts(&engine, graph), [EDGES, EDGES, EDGES]);
    assert_eq!(with(&engine, |tx| graph.degree(tx, 0, Direction::Out)), Some(most - 5));
    with(&engine, |tx| (6..=most).try_for_each(|id| graph.remove_edge(tx, 0, id).map(|was| assert!(was))));
    let report = with(&engine, |tx| graph.verify(tx));
    assert_eq!((report.pages, report.edges, report.nodes), (0, 0, most + 1));
}

#[test]
fn a_path_leads_the_short_way() {
    let engine = Reference::new();
    let graph = with(&engine, |tx| Graph::create(tx, &GraphOptions::new()));
    with(&engine, |tx| (0..20).try_for_each(|id| graph.add_node(tx, id).map(drop)));
    with(&engine, |tx| (0..19).try_for_each(|id| graph.add_edge(tx, id, id + 1).map(drop)));
    let path = |from, to, edges| with(&engine, |tx| graph.path(tx, from, to, edges));
    assert_eq!(path(0, 6, 6), Some((0..=6).collect()));
    assert_eq!((path(0, 7, 6), path(1, 0, 19), path(3, 3, 0)), (None, None, Some(vec![3])));
    assert_eq!((path(0, 99, 6), path(99, 99, 6)), (None, None));
    with(&engine, |tx| graph.add_edge(tx, 1, 18));
    assert_eq!(path(0, 19, 6), Some(vec![0, 1, 18, 19]));
}

/// Every word of the hub and of a page of its edges, set to every node and page: noticed, or nothing is lost.
#[test]
fn links_that_lead_elsewhere_are_errors() {
    let engine = Reference::new();
    let graph = hub(&engine, EDGES as u64 + 3);
    with(&engine, |tx| graph.add_edge(tx, 7, 0));
    let at = with(&engine, |tx| Ok(graph.find(tx, 0)?.unwrap()));
    let first = with(&engine, |tx| Ok(PPtr::<super::layout::Page>::new(at.tag(), *tx.read(pages_of(at, OUT))?)));
    let words =
        [pages_of(at, OUT), pages_of(at, IN), first.cast(), edge_of(first, 0), edge_of(first, 2), edge_of(first, 3)];
    let blocks = with(&engine, |tx| graph.blocks(tx));
    for slot in words {
        for other in &blocks {
            let before = with(&engine, |tx| {
                let word: &mut u64 = tx.write(slot)?;
                // The bits beside a page's next say that it is one.
                Ok(std::mem::replace(word, other.offset() | *word & !pmem::OFFSET_MAX))
            });
            let begin = || engine.begin(Isolation::Strict).unwrap();
            if before & pmem::OFFSET_MAX != other.offset() {
                let verified = graph.verify(&begin());
                assert!(matches!(verified, Err(Error::Damaged { .. })), "{slot:?} {other:?}: {verified:?}");
                let _ = graph.path(&begin(), 0, 7, 6);
                let _ = graph.add_edge(&mut begin(), 0, 0);
                let _ = graph.remove_edge(&mut begin(), 0, 1);
                let _ = graph.remove_node(&mut begin(), 0);
            }
            with(&engine, |tx| Ok(std::mem::replace(tx.write(slot)?, before)));
        }
    }
    with(&engine, |tx| graph.verify(tx));
}
