//! Every engine on memory that is nothing but memory, with real threads: what Miri and ThreadSanitizer can watch (`make miri`, `make tsan`). The explorer's own
//! media read whole lines beside the program that stores to them, one thread at a time; here only the program touches a byte.

#![allow(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test, in helpers too")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use heap::{Heap, Policy};
use kv::{Keys, Store};
use log::Log;
use pmem::sim::{Medium, Site};
use pmem::{PPtr, Pool};
use structures::{
    BTree, BTreeOptions, Graph, GraphOptions, HashMap, HashMapOptions, Map, SearchTree, SearchTreeOptions, SortedList,
};
use structures_testing as testing;
use tx::{Engine, Isolation, Typed};

const PAGE: usize = 4096;

/// Threads, and what each of them does: Miri runs a thousandth as fast as the machine.
const THREADS: u64 = 2;
const ROUNDS: u64 = if cfg!(miri) { 6 } else { 2000 };

/// Zeroed memory as a persistence domain in which every store is persistent at once.
struct Plain {
    base: NonNull<u8>,
    layout: Layout,
    len: AtomicU64,
    /// From now on no drain succeeds.
    broken: AtomicBool,
}

// SAFETY: it owns its memory and touches it never; every access goes through one pool, which orders its threads.
unsafe impl Send for Plain {}
// SAFETY: as above.
unsafe impl Sync for Plain {}

impl Plain {
    fn new(bytes: usize) -> Arc<Self> {
        let layout = Layout::from_size_align(bytes.next_multiple_of(PAGE), PAGE).unwrap();
        // SAFETY: the layout is not empty.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap();
        Arc::new(Self { base, layout, len: AtomicU64::new(0), broken: AtomicBool::new(false) })
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout; the last pool is gone, since it holds an `Arc` of this.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

// SAFETY: aligned to a page, initialised, never moved or borrowed, as long as `self`.
unsafe impl Medium for Plain {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn capacity(&self) -> u64 {
        self.layout.size() as u64
    }

    fn len(&self) -> u64 {
        self.len.load(Relaxed)
    }

    fn set_len(&self, len: u64, _: Site) -> io::Result<()> {
        if len > self.capacity() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.len.store(len, Relaxed);
        Ok(())
    }

    fn access(&self, _: u64, _: u64, _: bool) -> io::Result<()> {
        Ok(())
    }

    fn flush(&self, _: u64, _: u64, _: Site) {}

    fn drain(&self, _: Site) -> io::Result<()> {
        if self.broken.load(Relaxed) { Err(io::Error::other("the device is gone")) } else { Ok(()) }
    }
}

// ---- heap ------------------------------------------------------------------------------------------------------------

fn heap_options() -> heap::Options {
    let blocks = pmem::HeapOptions::chunk_bytes(4096).unwrap();
    heap::Options::new()
        .blocks(blocks)
        .bytes(blocks.region_bytes(24))
        .slots(4)
        .log_bytes(2048)
        .zone_bytes(4096)
        .alpha(0.5)
        .batch(4)
        .coordinator(false)
}

fn heap(medium: &Arc<Plain>, policy: Policy) -> Heap {
    let pool = pmem::Options::new().size(16 << 10).create_on(medium.clone()).unwrap();
    Heap::create_in(&pool, &heap_options().policy(policy)).unwrap()
}

fn reopened(medium: &Arc<Plain>) -> Heap {
    let pool = pmem::Options::new().open_on(medium.clone()).unwrap();
    Heap::open_in(&pool, &heap_options()).unwrap()
}

const POLICIES: [Policy; 4] = [Policy::Undo, Policy::InPlace, Policy::InPlacePartial, Policy::Eaw];

type Cell = [u64; 9];

/// Cells that threads change, some by a word and some whole, free and make again, or give up: what all add up to is what was committed.
fn cells(heap: &Heap) {
    let root: [PPtr<Cell>; 4] = heap
        .transact(Isolation::Strict, |tx| -> tx::Result<_> {
            let mut cells = [PPtr::NULL; 4];
            for cell in &mut cells {
                *cell = tx.alloc(&[0; 9])?;
            }
            let root = tx.alloc(&cells)?;
            tx.set_root(root)?;
            Ok(cells)
        })
        .unwrap();
    assert!(root.iter().all(|cell| !cell.is_null()));
    let added = AtomicU64::new(0);
    let one = |seed: u64| {
        let mut random = testing::Random(seed);
        for _ in 0..ROUNDS {
            let (what, which) = (random.below(6), random.below(4) as usize);
            let done = heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
                let root = tx.root::<[PPtr<Cell>; 4]>()?;
                let cell = tx.read(root)?[which];
                match what {
                    0 => {
                        let mut now = *tx.read(cell)?;
                        now[0] += 1;
                        tx.free(cell)?;
                        let fresh = tx.alloc(&now)?;
                        tx.write(root)?[which] = fresh;
                    }
                    1 => {
                        tx.write(cell)?[0] += 1000;
                        return Err(tx.refuse("given up"));
                    }
                    2 => tx.write(cell)?[0] += 1,
                    _ => *tx.write(cell.cast::<u64>())? += 1,
                }
                Ok(())
            });
            match (what, done) {
                (1, Err(_)) => {}
                (_, Ok(())) => _ = added.fetch_add(1, Relaxed),
                (_, Err(error)) => panic!("{error}"),
            }
        }
    };
    thread::scope(|scope| {
        for seed in 0..THREADS {
            scope.spawn(move || one(seed));
        }
    });
    assert_eq!(sum(heap), added.into_inner());
}

fn sum(heap: &Heap) -> u64 {
    heap.transact(Isolation::Strict, |tx| -> tx::Result<u64> {
        let cells = *tx.read(tx.root::<[PPtr<Cell>; 4]>()?)?;
        let mut sum = 0;
        for cell in cells {
            sum += tx.read(cell)?[0];
        }
        Ok(sum)
    })
    .unwrap()
}

#[test]
fn objects() {
    for policy in POLICIES {
        let medium = Plain::new(1 << 20);
        let heap = heap(&medium, policy);
        cells(&heap);
        let before = sum(&heap);
        heap.close().unwrap();
        let heap = reopened(&medium);
        assert_eq!(sum(&heap), before, "{policy:?}");
        heap.close().unwrap();
    }
}

/// A process that ended without closing: recovery reads what another wrote.
#[test]
fn objects_of_a_killed_process() {
    for policy in POLICIES {
        let medium = Plain::new(1 << 20);
        let before = {
            let heap = heap(&medium, policy);
            cells(&heap);
            let before = sum(&heap);
            drop(heap);
            before
        };
        let heap = reopened(&medium);
        assert_eq!(sum(&heap), before, "{policy:?}");
    }
}

/// A transaction that comes after a failed sync does not try again and again for what its holder never gives back.
#[test]
fn a_failed_sync_is_told_at_once() {
    use tx::{Error, RetryPolicy};
    for policy in POLICIES {
        let medium = Plain::new(1 << 20);
        let heap = heap(&medium, policy);
        let cell = heap.transact(Isolation::Strict, |tx| tx.alloc::<Cell>(&[0; 9])).unwrap();
        heap.apply_pending().unwrap();
        let mut tx = heap.begin(Isolation::Strict).unwrap();
        tx.write(cell).unwrap()[0] = 1;
        medium.broken.store(true, Relaxed);
        let failed = tx::Transaction::commit(tx);
        assert!(matches!(failed, Err(Error::Pool(pmem::Error::Sync { .. }))), "{policy:?}: {failed:?}");
        let mut attempts = 0;
        let read = heap.transact_with(Isolation::Strict, RetryPolicy::default(), |tx| {
            attempts += 1;
            tx.read(cell).map(|cell| cell[0])
        });
        assert!(matches!(read, Err(Error::Pool(pmem::Error::Poisoned))), "{policy:?}: {read:?}");
        assert_eq!(attempts, 1, "{policy:?}");
        let closed = heap.close();
        assert!(matches!(closed, Err(Error::Pool(pmem::Error::Poisoned))), "{policy:?}: {closed:?}");
    }
}

// ---- structures ------------------------------------------------------------------------------------------------------

fn modelled<M: Map>(heap: &Heap, ordered: bool, make: impl FnMut(&mut <Heap as Engine>::Tx<'_>) -> tx::Result<M>) {
    let map = heap.transact(Isolation::Strict, make).unwrap();
    let ops = testing::ops(7, if cfg!(miri) { 12 } else { 400 });
    testing::against_model(heap, map, &ops, testing::Features { ordered, aborts: true }).unwrap();
}

#[test]
fn maps() {
    for policy in POLICIES {
        let medium = Plain::new(2 << 20);
        let heap = heap(&medium, policy);
        modelled(&heap, true, |tx| BTree::create(tx, &BTreeOptions::new().key_max(300).node_bytes(256, 256)));
        modelled(&heap, false, |tx| HashMap::create(tx, &HashMapOptions::new().capacity(1)));
        modelled(&heap, true, |tx| SortedList::create(tx));
        modelled(&heap, true, |tx| SearchTree::create(tx, &SearchTreeOptions::new()));
        heap.close().unwrap();
    }
}

/// Two threads at one tree and one map.
#[test]
fn maps_of_several_threads() {
    let medium = Plain::new(2 << 20);
    let heap = heap(&medium, Policy::InPlace);
    let map = heap.transact(Isolation::Strict, |tx| HashMap::create(tx, &HashMapOptions::new().capacity(1))).unwrap();
    testing::concurrently(&heap, map, THREADS, ROUNDS.min(200)).unwrap();
    let tree = heap.transact(Isolation::Strict, |tx| BTree::create(tx, &BTreeOptions::new())).unwrap();
    testing::concurrently(&heap, tree, THREADS, ROUNDS.min(200)).unwrap();
    heap.close().unwrap();
}

// ---- log -------------------------------------------------------------------------------------------------------------

fn log_options() -> log::Options {
    log::Options::new().bytes(64 << 10).segment_bytes(4096).threads(8)
}

/// Records of several threads, read while they are appended and after opening again.
#[test]
fn records() {
    let medium = Plain::new(1 << 20);
    let pool = pmem::Options::new().size(16 << 10).create_on(medium.clone()).unwrap();
    let log = log_options().create_in(&pool, "log").unwrap();
    let rounds = ROUNDS.min(100);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let log = &log;
            scope.spawn(move || {
                for round in 0..rounds {
                    log.append(&[thread as u8; 40][..(round % 40) as usize]).unwrap();
                    if round % 5 == 0 {
                        let mut slot = log.reserve(3).unwrap();
                        slot.copy(0, &[thread as u8; 3]);
                        log.force(slot.complete().unwrap()).unwrap();
                        assert!(count(log) > 0);
                    }
                }
            });
        }
    });
    let all = THREADS * (rounds + rounds.div_ceil(5));
    assert_eq!(count(&log), all);
    log.close().unwrap();
    drop(pool);
    let pool: Pool = pmem::Options::new().open_on(medium).unwrap();
    let (log, _) = log_options().open_in(&pool, "log").unwrap();
    assert_eq!(count(&log), all);
}

fn count(log: &Log) -> u64 {
    let mut records = log.iter();
    let mut n = 0;
    while let Some(record) = records.next().unwrap() {
        assert!(record.payload.windows(2).all(|pair| pair[0] == pair[1]), "one thread's bytes");
        n += 1;
    }
    n
}

// ---- kv --------------------------------------------------------------------------------------------------------------

fn store_options() -> kv::Options {
    kv::Options::new().segment_bytes(4096).checkpoint_bytes(8192).transactions(4).background(false)
}

/// Transfers between keys, scans, deletions, a checkpoint; then the same store again.
#[test]
fn keys_and_values() {
    let medium = Plain::new(8 << 20);
    let pool = pmem::Options::new().size(64 << 10).engine(kv::NAME, [0; 64]).create_on(medium.clone()).unwrap();
    let store = store_options().create_in(&pool).unwrap();
    for key in 0..4u8 {
        store.put(&[key], &100u64.to_le_bytes()).unwrap();
    }
    thread::scope(|scope| {
        for seed in 0..THREADS {
            let store = &store;
            scope.spawn(move || transfers(store, seed));
        }
    });
    store.checkpoint().unwrap();
    assert_eq!(total(&store), 400);
    store.close().unwrap();
    drop(pool);
    let pool = pmem::Options::new().open_on(medium).unwrap();
    let store = store_options().open_in(&pool).unwrap();
    assert_eq!(total(&store), 400);
}

fn transfers(store: &Store, seed: u64) {
    let mut random = testing::Random(seed);
    for round in 0..ROUNDS.min(100) {
        let (from, to) = (random.below(4) as u8, random.below(4) as u8);
        let extra = [b'x', seed as u8, round as u8];
        store
            .transact(|tx| {
                let read = |value: Option<&[u8]>| u64::from_le_bytes(value.unwrap().try_into().unwrap());
                let a = read(tx.get(&[from])?);
                tx.put(&[from], &(a.wrapping_sub(1)).to_le_bytes())?;
                let b = read(tx.get(&[to])?);
                tx.put(&[to], &(b.wrapping_add(1)).to_le_bytes())?;
                tx.put(&extra, b"more")?;
                Ok(())
            })
            .unwrap();
        assert_eq!(total(store), 400);
        store.delete(&extra).unwrap();
    }
}

fn total(store: &Store) -> u64 {
    let snapshot = store.snapshot().unwrap();
    let sum = snapshot.scan(Keys::all()).filter_map(|pair| {
        let (key, value) = pair.unwrap();
        (key.len() == 1).then(|| u64::from_le_bytes(value.try_into().unwrap()))
    });
    sum.fold(0, u64::wrapping_add)
}

/// Nodes and edges of a small graph.
#[test]
fn graphs() {
    let medium = Plain::new(2 << 20);
    let heap = heap(&medium, Policy::InPlace);
    let reached = heap.transact(Isolation::Strict, |tx| -> tx::Result<_> {
        let graph = Graph::create(tx, &GraphOptions::new())?;
        for id in 0..4 {
            graph.add_node(tx, id)?;
        }
        for id in 0..3 {
            graph.add_edge(tx, id, id + 1)?;
        }
        graph.remove_edge(tx, 0, 1)?;
        graph.add_edge(tx, 0, 2)?;
        graph.remove_node(tx, 1)?;
        graph.path(tx, 0, 3, 4)
    });
    assert_eq!(reached.unwrap(), Some(vec![0, 2, 3]));
    heap.close().unwrap();
}
