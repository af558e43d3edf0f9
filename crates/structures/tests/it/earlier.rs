//! Structures in the format of 2026-11, on heaps of every policy and on a store with versions, left without closing them, are used as they are; and each structure as the root of a pool.
//! Names of structs and fields are part of the format: what fails here is a pool that cannot be opened any more.
//!
//! With `CAIRN_MAKE_FIXTURES=dir` the tests make such pools by this build, and write `earlier-*.txt` into that folder.

use heap::{Heap, Policy};
use mvcc::Mvcc;
use pmem::{DomainChoice, HeapOptions, PPtr, Persist};
use structures::{
    BTree, BTreeOptions, BTreeRoot, Direction, Graph, GraphOptions, GraphRoot, HashMap, HashRoot, ListRoot, Map,
    SearchTree, SearchTreeOptions, SortedList, Structure, TreeRoot,
};
use tx::{Engine, Result, Transaction, Typed};

use crate::fixture::earlier;
use crate::support::{small_map, with};

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Roots {
    rounds: u64,
    tree: PPtr<BTreeRoot>,
    map: PPtr<HashRoot>,
    list: PPtr<ListRoot>,
    treap: PPtr<TreeRoot>,
    graph: PPtr<GraphRoot>,
}

/// Pairs of each map, before any round; more than a node or a bucket has room for.
const PAIRS: u64 = 24;
/// Nodes of the graph, to each of which an edge leads from the first; more than a page has room for.
const NODES: u64 = 36;

fn blocks() -> HeapOptions {
    HeapOptions::chunk_bytes(4096).unwrap()
}

fn pool() -> pmem::Options {
    pmem::Options::new().domain(DomainChoice::Emulated)
}

fn heap_options(policy: Policy) -> heap::Options {
    let options = heap::Options::new().policy(policy).bytes(128 << 10).slots(2).log_bytes(16 << 10).zone_bytes(4096);
    options.coordinator(false).blocks(blocks()).pool(pool())
}

fn mvcc_options() -> mvcc::Options {
    let options = mvcc::Options::new().bytes(128 << 10).slots(2).log_bytes(8192).copy_bytes(4096);
    options.background(false).blocks(blocks()).pool(pool())
}

// ---- all of them ----------------------------------------------------------------------------------------------------

fn key(n: u64) -> Vec<u8> {
    format!("key {n:04}").into_bytes()
}

fn value(n: u64) -> Vec<u8> {
    vec![n as u8; n as usize]
}

/// What every fifth is, soon after it was put.
fn is_deleted(n: u64) -> bool {
    n % 5 == 4
}

fn put(map: impl Map, tx: &mut impl Transaction, n: u64) -> Result<()> {
    assert!(!map.put(tx, &key(n), &value(n))?);
    if is_deleted(n) {
        assert!(map.delete(tx, &key(n))?);
    }
    Ok(())
}

fn put_everywhere(tx: &mut impl Transaction, roots: &Roots, n: u64) -> Result<()> {
    put(BTree::open(tx, roots.tree)?, tx, n)?;
    put(HashMap::open(tx, roots.map)?, tx, n)?;
    put(SortedList::open(tx, roots.list)?, tx, n)?;
    put(SearchTree::open(tx, roots.treap)?, tx, n)
}

fn add_node(tx: &mut impl Transaction, graph: PPtr<GraphRoot>, n: u64) -> Result<()> {
    let graph = Graph::open(tx, graph)?;
    assert!(graph.add_node(tx, n)? && graph.add_edge(tx, 0, n)?);
    if is_deleted(n) {
        assert!(graph.remove_node(tx, n)?);
    }
    Ok(())
}

fn small_tree() -> BTreeOptions {
    BTreeOptions::new().key_max(16).node_bytes(256, 256)
}

/// Ends with transactions of which the logs still know, where there are any.
fn make(engine: &impl Engine) {
    let roots = with(engine, |tx| {
        let roots = Roots {
            rounds: 0,
            tree: BTree::create(tx, &small_tree())?.root(),
            map: HashMap::create(tx, &small_map())?.root(),
            list: SortedList::create(tx)?.root(),
            treap: SearchTree::create(tx, &SearchTreeOptions::new())?.root(),
            graph: Graph::create(tx, &GraphOptions::new().capacity(1))?.root(),
        };
        let at = tx.alloc(&roots)?;
        tx.set_root(at)?;
        Ok(roots)
    });
    (0..NODES).for_each(|n| with(engine, |tx| add_node(tx, roots.graph, n)));
    (0..PAIRS).for_each(|n| with(engine, |tx| put_everywhere(tx, &roots, n)));
}

fn check_map(map: impl Map, tx: &impl Transaction, pairs: u64) -> Result<()> {
    let all = (0..pairs).filter(|&n| !is_deleted(n));
    assert_eq!(map.verify(tx)?.entries, all.count() as u64);
    for n in 0..pairs {
        assert_eq!(map.get(tx, &key(n))?, (!is_deleted(n)).then_some(&value(n)[..]));
    }
    Ok(())
}

fn check_graph(graph: Graph, tx: &impl Transaction, nodes: u64) -> Result<()> {
    let all = (0..nodes).filter(|&n| !is_deleted(n)).count() as u64;
    assert_eq!(graph.verify(tx)?.nodes, all);
    assert_eq!(graph.degree(tx, 0, Direction::Out)?, Some(all));
    for n in 0..nodes {
        assert_eq!((graph.has_node(tx, n)?, graph.has_edge(tx, 0, n)?), (!is_deleted(n), !is_deleted(n)));
    }
    Ok(())
}

/// Holds what `make` has made, and what so many rounds have added.
fn check(engine: &impl Engine, rounds: u64) {
    with(engine, |tx| {
        let roots = *tx.read(tx.root::<Roots>()?)?;
        assert_eq!(roots.rounds, rounds);
        check_map(BTree::open(tx, roots.tree)?, tx, PAIRS + rounds)?;
        check_map(HashMap::open(tx, roots.map)?, tx, PAIRS + rounds)?;
        check_map(SortedList::open(tx, roots.list)?, tx, PAIRS + rounds)?;
        check_map(SearchTree::open(tx, roots.treap)?, tx, PAIRS + rounds)?;
        check_graph(Graph::open(tx, roots.graph)?, tx, NODES + rounds)
    });
}

fn used_as_it_is<E: Engine>(open: impl Fn() -> E, end: impl Fn(E, bool)) {
    for round in 0..4 {
        let engine = open();
        check(&engine, round);
        with(&engine, |tx| {
            let at = tx.root::<Roots>()?;
            tx.write(at)?.rounds += 1;
            let roots = *tx.read(at)?;
            put_everywhere(tx, &roots, PAIRS + round)?;
            add_node(tx, roots.graph, NODES + round)
        });
        check(&engine, round + 1);
        end(engine, round % 2 == 1);
    }
}

fn end_heap(heap: Heap, closed: bool) {
    if closed { heap.close().unwrap() } else { heap.abandon() }
}

#[test]
fn structures_on_a_heap_that_was_left() {
    for policy in Policy::ALL {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let [path] = earlier(dir.path(), [&format!("all-{policy}")], |[path]| {
            let heap = Heap::create(path, &heap_options(policy)).unwrap();
            make(&heap);
            heap.abandon();
        });
        used_as_it_is(|| Heap::open(&path, &heap_options(policy)).unwrap(), end_heap);
    }
}

#[test]
fn structures_on_a_store_with_versions_that_was_left() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let [path] = earlier(dir.path(), ["all-mvcc"], |[path]| {
        let store = Mvcc::create(path, &mvcc_options()).unwrap();
        make(&store);
        store.abandon();
    });
    let end = |store: Mvcc, closed| if closed { store.close().unwrap() } else { store.abandon() };
    used_as_it_is(|| Mvcc::open(&path, &mvcc_options()).unwrap(), end);
}

// ---- each as the root -----------------------------------------------------------------------------------------------

const KINDS: [&str; 5] = ["B+tree", "hash map", "sorted list", "search tree", "graph"];

fn make_root(tx: &mut impl Transaction, kind: &str) -> Result<()> {
    match kind {
        "B+tree" => BTree::create(tx, &small_tree()).and_then(|tree| tx.set_root(tree.root())),
        "hash map" => HashMap::create(tx, &small_map()).and_then(|map| tx.set_root(map.root())),
        "sorted list" => SortedList::create(tx).and_then(|list| tx.set_root(list.root())),
        "search tree" => SearchTree::create(tx, &SearchTreeOptions::new()).and_then(|tree| tx.set_root(tree.root())),
        _ => Graph::create(tx, &GraphOptions::new().capacity(1)).and_then(|graph| tx.set_root(graph.root())),
    }
}

/// Checks that it holds `0..n`, and adds `n`.
fn one_more(tx: &mut impl Transaction, kind: &str, n: u64) -> Result<()> {
    let found = Structure::at_root(tx)?.expect("the root is of a structure's type");
    assert_eq!(found.name(), kind);
    macro_rules! map {
        ($map:ident) => {{
            check_map($map, tx, n)?;
            put($map, tx, n)
        }};
    }
    match found {
        Structure::BTree(map) => map!(map),
        Structure::HashMap(map) => map!(map),
        Structure::SortedList(map) => map!(map),
        Structure::SearchTree(map) => map!(map),
        Structure::Graph(graph) if n == 0 => graph.add_node(tx, 0).and_then(|_| graph.add_edge(tx, 0, 0)).map(drop),
        Structure::Graph(graph) => {
            check_graph(graph, tx, n)?;
            add_node(tx, graph.root(), n)
        }
        _ => panic!("a kind of structure that is not in the list"),
    }
}

#[test]
fn each_structure_as_the_root_of_a_pool_that_was_closed() {
    let options = heap_options(Policy::Undo);
    for kind in KINDS {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let name = format!("root-{}", kind.replace(['+', ' '], "-"));
        let [path] = earlier(dir.path(), [&name], |[path]| {
            let heap = Heap::create(path, &options).unwrap();
            with(&heap, |tx| make_root(tx, kind));
            (0..6).for_each(|n| with(&heap, |tx| one_more(tx, kind, n)));
            heap.close().unwrap();
        });
        for n in 6..10 {
            let heap = Heap::open(&path, &options).unwrap();
            with(&heap, |tx| one_more(tx, kind, n));
            end_heap(heap, n % 2 == 1);
        }
    }
}
