//! Objects go from one engine to another in their pool: every structure is there with all that it holds, no block is lost, and it goes on.

use std::collections::{BTreeMap, BTreeSet};

use heap::{Heap, Policy};
use mvcc::Mvcc;
use pmem::{DomainChoice, Error as PoolError, HeapOptions, PPtr};
use structures::{BTree, Graph, GraphOptions, HashMap, Map, SearchTree, SortedList};
use tx::{Engine, Error, Result, Transaction, Typed};

use crate::support::{bst, list, map, small_map, small_tree, treap, with};

fn pool() -> pmem::Options {
    pmem::Options::new().domain(DomainChoice::Emulated)
}

fn of_heap(policy: Policy) -> heap::Options {
    heap::Options::new().policy(policy).bytes(1 << 20).slots(4).log_bytes(8192).coordinator(false).pool(pool())
}

fn of_store() -> mvcc::Options {
    mvcc::Options::new().bytes(1 << 20).slots(4).log_bytes(8192).copy_bytes(8192).background(false).pool(pool())
}

/// One of every structure.
struct All {
    tree: BTree,
    list: SortedList,
    treap: SearchTree,
    bst: SearchTree,
    map: HashMap,
    fixed: HashMap,
    graph: Graph,
}

macro_rules! each_map {
    ($all:expr, $map:ident => $do:expr) => {{
        {
            let $map = $all.tree;
            $do
        }
        {
            let $map = $all.list;
            $do
        }
        {
            let $map = $all.treap;
            $do
        }
        {
            let $map = $all.bst;
            $do
        }
        {
            let $map = $all.map;
            $do
        }
        {
            let $map = $all.fixed;
            $do
        }
    }};
}

/// What they hold, and how often they were changed.
#[derive(Default)]
struct Model {
    pairs: BTreeMap<Vec<u8>, Vec<u8>>,
    edges: BTreeSet<(u64, u64)>,
    round: u8,
}

impl All {
    fn make<E: Engine>(engine: &E) {
        let graph = with(engine, |tx| Graph::create(tx, &GraphOptions::new().capacity(1)));
        let (first, second) = (small_tree(engine).root().raw(), list(engine).root().raw());
        let (third, fourth) = (treap(engine).root().raw(), bst(engine).root().raw());
        let maps = [map(engine, &small_map()).root().raw(), map(engine, &small_map().fixed()).root().raw()];
        with(engine, |tx| {
            let roots = tx.alloc(&[first, second, third, fourth, maps[0], maps[1], graph.root().raw()])?;
            tx.set_root(roots)
        });
    }

    fn open<X: Transaction>(tx: &X) -> Result<Self> {
        let [tree, list, treap, bst, map, fixed, graph] = *tx.read(tx.root::<[u64; 7]>()?)?;
        Ok(Self {
            tree: BTree::open(tx, PPtr::from_raw(tree))?,
            list: SortedList::open(tx, PPtr::from_raw(list))?,
            treap: SearchTree::open(tx, PPtr::from_raw(treap))?,
            bst: SearchTree::open(tx, PPtr::from_raw(bst))?,
            map: HashMap::open(tx, PPtr::from_raw(map))?,
            fixed: HashMap::open(tx, PPtr::from_raw(fixed))?,
            graph: Graph::open(tx, PPtr::from_raw(graph))?,
        })
    }
}

impl Model {
    /// Puts, overwrites and deletes, of each structure the same; values up to some hundred bytes.
    fn change<E: Engine>(&mut self, engine: &E) {
        self.round += 1;
        for n in 0..40u8 {
            let key = vec![b'k', n.wrapping_mul(7), self.round & n];
            let value = vec![n ^ self.round; usize::from(n) * 5 + 1];
            let edge = (u64::from(n % 11), u64::from(n.wrapping_mul(self.round) % 13));
            with(engine, |tx| {
                let all = All::open(tx)?;
                if n % 3 == 2 {
                    each_map!(all, map => map.delete(tx, &key).map(drop)?);
                    return all.graph.remove_node(tx, edge.0).map(drop);
                }
                each_map!(all, map => map.put(tx, &key, &value).map(drop)?);
                all.graph.add_node(tx, edge.0)?;
                all.graph.add_node(tx, edge.1)?;
                all.graph.add_edge(tx, edge.0, edge.1).map(drop)
            });
            if n % 3 == 2 {
                self.pairs.remove(&key);
                self.edges.retain(|(from, to)| *from != edge.0 && *to != edge.0);
            } else {
                self.pairs.insert(key, value);
                self.edges.insert(edge);
            }
        }
    }

    /// All of it is there, and there is no other block: neither lost, nor of a log.
    fn holds<E: Engine>(&self, engine: &E, live: &BTreeSet<u64>) {
        let blocks = with(engine, |tx| {
            let all = All::open(tx)?;
            let mut blocks: Vec<PPtr<u8>> = all.graph.blocks(tx)?;
            each_map!(all, map => {
                assert_eq!(map.verify(tx)?.entries, self.pairs.len() as u64);
                for (key, value) in &self.pairs {
                    assert_eq!(map.get(tx, key)?, Some(&value[..]));
                }
                blocks.extend(map.blocks(tx)?);
            });
            assert_eq!(all.graph.verify(tx)?.edges, self.edges.len() as u64);
            for (from, to) in &self.edges {
                assert!(all.graph.has_edge(tx, *from, *to)?);
            }
            blocks.push(tx.root::<[u64; 7]>()?.cast());
            Ok(blocks)
        });
        // And the block of the root's pointer.
        assert_eq!(live.len(), blocks.len() + 1);
        assert!(blocks.iter().all(|block| live.contains(&block.offset())));
    }

    fn holds_in_heap(&self, heap: &Heap) {
        let mut live = BTreeSet::new();
        heap.live_blocks(|offset, _| _ = live.insert(offset)).unwrap();
        self.holds(heap, &live);
    }

    fn holds_in_store(&self, store: &Mvcc) {
        let mut live = BTreeSet::new();
        store.live_blocks(|offset, _| _ = live.insert(offset)).unwrap();
        self.holds(store, &live);
    }
}

/// From a heap of each policy to a store and on to a heap of each other one, closed or killed on the way, twice.
#[test]
fn every_structure_goes_from_engine_to_engine() {
    for (from, to) in Policy::ALL.into_iter().flat_map(|from| Policy::ALL.map(|to| (from, to))) {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("p");
        let mut model = Model::default();
        let mut heap = Heap::create(&path, &of_heap(from)).unwrap();
        All::make(&heap);
        for policy in [to, from] {
            model.change(&heap);
            let mut store = Mvcc::take_over(heap.hand_over().unwrap(), &of_store()).unwrap();
            model.holds_in_store(&store);
            model.change(&store);
            if policy == to {
                store.close().unwrap();
            } else {
                store.abandon();
            }
            store = Mvcc::open(&path, &of_store()).unwrap();
            assert_eq!(store.recovery().was_clean(), policy == to);
            model.holds_in_store(&store);
            assert!(matches!(
                Heap::open(&path, &of_heap(policy)),
                Err(Error::Pool(PoolError::Busy { .. } | PoolError::AlreadyOpen { .. }))
            ));
            heap = Heap::take_over(store.hand_over().unwrap(), &of_heap(policy)).unwrap();
            assert_eq!(heap.policy(), policy);
            model.holds_in_heap(&heap);
            model.change(&heap);
            if policy == to || policy == Policy::None {
                heap.close().unwrap();
            } else {
                heap.abandon();
            }
            heap = Heap::open(&path, &of_heap(policy)).unwrap();
            model.holds_in_heap(&heap);
            heap.compare().unwrap();
        }
        heap.close().unwrap();
        // What a store has left there is in no heap's way.
        assert!(Heap::open_in(&pool().open_read_only(&path).unwrap(), &of_heap(from)).is_ok());
    }
}

/// Pools of format 1, and heaps of builds whose tables have another layout.
#[test]
fn earlier_formats_go_over_as_well() {
    let blocks = HeapOptions::chunk_bytes(16 << 10).unwrap();
    for (pool, blocks) in [(pool().format_1(), blocks), (pool(), blocks.earlier_layout())] {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("p");
        let mut model = Model::default();
        let heap = Heap::create(&path, &of_heap(Policy::InPlace).blocks(blocks).pool(pool)).unwrap();
        All::make(&heap);
        model.change(&heap);
        let store = Mvcc::take_over(heap.hand_over().unwrap(), &of_store()).unwrap();
        model.change(&store);
        store.abandon();
        let store = Mvcc::open(&path, &of_store()).unwrap();
        model.holds_in_store(&store);
        let heap = Heap::take_over(store.hand_over().unwrap(), &of_heap(Policy::InPlace)).unwrap();
        model.change(&heap);
        heap.abandon();
        let heap = Heap::open(&path, &of_heap(Policy::InPlace)).unwrap();
        model.holds_in_heap(&heap);
        heap.compare().unwrap();
    }
}

/// Each growth on its own engine's time, and the pool's directory has room for it.
#[test]
fn what_has_grown_goes_over_and_grows_on() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("p");
    let (small, mut values) = (of_heap(Policy::InPlace).bytes(64 << 10), Vec::new());
    let fill = |engine: &dyn Fn(u64) -> PPtr<[u64; 512]>, values: &mut Vec<(PPtr<[u64; 512]>, u64)>| {
        let first = values.len() as u64;
        values.extend((first..first + 60).map(|n| (engine(n), n)));
    };
    let mut heap = Heap::create(&path, &small).unwrap();
    for _ in 0..3 {
        fill(&|n| with(&heap, |tx| tx.alloc(&[n; 512])), &mut values);
        let store = Mvcc::take_over(heap.hand_over().unwrap(), &of_store()).unwrap();
        fill(&|n| with(&store, |tx| tx.alloc(&[n; 512])), &mut values);
        heap = Heap::take_over(store.hand_over().unwrap(), &small).unwrap();
        heap.compare().unwrap();
    }
    heap.close().unwrap();
    let heap = Heap::open(&path, &small).unwrap();
    for (ptr, n) in values {
        assert_eq!(with(&heap, |tx| tx.read(ptr).copied()), [n; 512]);
    }
    heap.compare().unwrap();
}

#[test]
fn each_engine_refuses_what_is_the_others() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("p");
    let heap = Heap::create(&path, &of_heap(Policy::Eaw)).unwrap();
    Mvcc::take_over(heap.hand_over().unwrap(), &of_store()).unwrap().close().unwrap();
    let refused = Heap::open(&path, &of_heap(Policy::Eaw)).unwrap_err();
    assert!(matches!(refused, Error::Pool(PoolError::WrongLayout { .. })), "{refused}");
    let open = pool().open(&path).unwrap();
    assert!(matches!(Heap::open_in(&open, &of_heap(Policy::Eaw)), Err(Error::Pool(PoolError::NoRegion { .. }))));
    open.close().unwrap();
    let store = Mvcc::open(&path, &of_store()).unwrap();
    assert!(store.recovery().was_clean(), "it was left as it was");
    store.close().unwrap();
    // A pool with objects of either: neither takes the other's.
    let store = Mvcc::create(dir.path().join("both"), &of_store()).unwrap();
    let heap = Heap::create_in(store.pool(), &of_heap(Policy::Eaw)).unwrap();
    let refused = Heap::take_over(store.hand_over().unwrap(), &of_heap(Policy::Eaw)).unwrap_err();
    assert!(matches!(refused, Error::Pool(PoolError::RegionExists { .. })), "{refused}");
    drop(heap);
}

/// Takes all that the pool has room for as far as it may grow: address space is taken in pieces of 2 MiB.
fn fill_up(pool: &pmem::Pool, name: &str, but: u64) {
    pool.shrink_to_fit().unwrap();
    let room = (2 << 20) - (pool.size() + but) % (2 << 20);
    drop(pool.add_region(name, room).unwrap());
}

/// A heap whose pool cannot grow stays what it is, closed, with all that it holds; and so does a store.
#[test]
fn without_room_the_objects_stay_where_they_are() {
    for but in [4 << 10, 16 << 10, 64 << 10, 96 << 10] {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("p");
        let mut model = Model::default();
        let heap = Heap::create(&path, &of_heap(Policy::Eaw)).unwrap();
        All::make(&heap);
        model.change(&heap);
        fill_up(heap.pool(), "filler", but);
        heap.close().unwrap();
        let full = pool().max_size(1);
        let heap = Heap::open(&path, &of_heap(Policy::Eaw).pool(full.clone())).unwrap();
        let refused = Mvcc::take_over(heap.hand_over().unwrap(), &of_store().slots(16)).unwrap_err();
        assert!(matches!(refused, Error::Pool(PoolError::Reserve { .. })), "{refused}");
        let heap = Heap::open(&path, &of_heap(Policy::Eaw)).unwrap();
        assert!(heap.recovery().was_clean());
        model.holds_in_heap(&heap);
        model.change(&heap);
        // It goes on where it had to stop.
        let store = Mvcc::take_over(heap.hand_over().unwrap(), &of_store()).unwrap();
        model.holds_in_store(&store);
        fill_up(store.pool(), "more", but);
        store.close().unwrap();
        let store = Mvcc::open(&path, &of_store().pool(full)).unwrap();
        let refused = Heap::take_over(store.hand_over().unwrap(), &of_heap(Policy::InPlace)).unwrap_err();
        assert!(matches!(refused, Error::Pool(PoolError::Reserve { .. })), "{refused}");
        let store = Mvcc::open(&path, &of_store()).unwrap();
        assert!(store.recovery().was_clean());
        model.holds_in_store(&store);
    }
}

/// A transaction or a snapshot borrows its engine; one that was forgotten is told.
#[test]
fn a_transaction_that_was_forgotten_is_in_the_way() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let heap = Heap::create(dir.path().join("heap"), &of_heap(Policy::Eaw)).unwrap();
    std::mem::forget(heap.begin(tx::Isolation::Strict).unwrap());
    assert!(matches!(heap.hand_over(), Err(Error::Pool(PoolError::InUse { .. }))));
    let store = Mvcc::create(dir.path().join("store"), &of_store()).unwrap();
    std::mem::forget(store.begin(tx::Isolation::Strict).unwrap());
    assert!(matches!(store.hand_over(), Err(Error::Pool(PoolError::InUse { .. }))));
}

const OBJECTS: usize = 6;
type Objects = [PPtr<[u64; 8]>; OBJECTS];

/// Gives the objects these values, by turns.
fn fill<E: Engine>(engine: &E, objects: &Objects, values: std::ops::Range<u64>) {
    for n in values {
        with(engine, |tx| tx.write(objects[n as usize % OBJECTS]).map(|words| *words = [n; 8]));
    }
}

/// A page of a log, or of another region that an engine had earlier, goes back to what it held then: nothing of that time is carried out again, in objects that have been another engine's since.
#[test]
fn nothing_of_an_earlier_time_comes_back() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("p");
    for policy in [Policy::InPlace, Policy::Undo, Policy::Eaw] {
        drop(std::fs::remove_file(&path));
        let heap = Heap::create(&path, &of_heap(policy)).unwrap();
        let objects: Objects = with(&heap, |tx| {
            let mut objects = [PPtr::NULL; OBJECTS];
            objects.iter_mut().try_for_each(|object| tx.alloc(&[0; 8]).map(|made| *object = made))?;
            Ok(objects)
        });
        // Of either engine's first time, with all in its logs.
        fill(&heap, &objects, 100..140);
        let old_heap = std::fs::read(&path).unwrap();
        let store = Mvcc::take_over(heap.hand_over().unwrap(), &of_store()).unwrap();
        fill(&store, &objects, 200..240);
        let old_store = std::fs::read(&path).unwrap();
        Heap::take_over(store.hand_over().unwrap(), &of_heap(policy)).unwrap().close().unwrap();
        // Now again, and killed.
        let heap = Heap::open(&path, &of_heap(policy)).unwrap();
        fill(&heap, &objects, 1000..1012);
        heap.apply_pending().unwrap();
        fill(&heap, &objects, 1012..1024);
        let killed_heap = std::fs::read(&path).unwrap();
        let store = Mvcc::take_over(heap.hand_over().unwrap(), &of_store()).unwrap();
        store.close().unwrap();
        let store = Mvcc::open(&path, &of_store()).unwrap();
        fill(&store, &objects, 2000..2012);
        store.write_back().unwrap();
        fill(&store, &objects, 2012..2024);
        let regions = store.pool().info().regions;
        store.abandon();
        let killed_store = std::fs::read(&path).unwrap();
        let mut opened = 0;
        for (now, then, at_least) in [(&killed_heap, &old_heap, 1000), (&killed_store, &old_store, 2000)] {
            for region in
                regions.iter().filter(|region| !["heap", "mvcc", "heap.backup"].contains(&region.name.as_str()))
            {
                let pages = (region.offset as usize..(region.offset + region.len) as usize).step_by(4096);
                for page in pages.filter(|page| page + 4096 <= then.len().min(now.len())) {
                    let mut bytes = now.clone();
                    bytes[page..page + 4096].copy_from_slice(&then[page..page + 4096]);
                    std::fs::write(&path, &bytes).unwrap();
                    let values = match now == &killed_heap {
                        true => Heap::open(&path, &of_heap(policy))
                            .ok()
                            .map(|heap| objects.map(|object| with(&heap, |tx| tx.read(object).map(|words| words[7])))),
                        false => Mvcc::open(&path, &of_store())
                            .ok()
                            .map(|store| objects.map(|object| store.snapshot().read(object).unwrap()[7])),
                    };
                    let Some(values) = values else { continue }; // it is noticed
                    opened += 1;
                    let what = format!("{policy}, page {page:#x} of {}: {values:?}", region.name);
                    assert!(values.iter().all(|value| *value >= at_least), "{what}");
                }
            }
        }
        assert!(opened > 20, "{opened}");
    }
}
