//! The same structures with several versions of each object: models, sums beside threads, no block too many, and a map that is looked at while it changes.

use std::collections::BTreeSet;

use mvcc::{Mvcc, Options};
use pmem::DomainChoice;
use structures::{Graph, GraphOptions, HashMapOptions, Map};
use structures_testing::{Features, against_model, concurrently, graph, ops};
use tx::{Engine, Isolation};

use crate::support::{bst, list, map, small_map, small_tree, treap, tree};

fn store() -> (tempfile::TempDir, Mvcc) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let pool = pmem::Options::new().domain(DomainChoice::Emulated);
    let store =
        Mvcc::create(dir.path().join("p"), &Options::new().bytes(16 << 20).slots(16).background(false).pool(pool));
    (dir, store.unwrap())
}

fn live(store: &Mvcc) -> BTreeSet<u64> {
    let mut live = BTreeSet::new();
    store.live_blocks(|offset, _| _ = live.insert(offset)).unwrap();
    live
}

/// Runs a check, then: the store has not one block more or less than the structure says.
fn holds<M: Map>(store: &Mvcc, map: M, before: &BTreeSet<u64>, check: impl FnOnce(M)) {
    check(map);
    let blocks = store.transact(Isolation::Strict, |tx| map.blocks(tx)).unwrap();
    let now: BTreeSet<u64> = live(store).difference(before).copied().collect();
    assert_eq!(now, blocks.into_iter().map(|block| block.offset()).collect());
}

#[test]
fn models_hold() {
    let (_dir, store) = store();
    for seed in 0..3 {
        let ops = ops(seed, 600);
        let (ordered, hashed) = (Features { ordered: true, aborts: true }, Features { ordered: false, aborts: true });
        let before = live(&store);
        holds(&store, small_tree(&store), &before, |map| against_model(&store, map, &ops, ordered).unwrap());
        let before = live(&store);
        holds(&store, map(&store, &small_map()), &before, |map| against_model(&store, map, &ops, hashed).unwrap());
        let before = live(&store);
        holds(&store, list(&store), &before, |map| against_model(&store, map, &ops, ordered).unwrap());
        let before = live(&store);
        holds(&store, treap(&store), &before, |map| against_model(&store, map, &ops, ordered).unwrap());
        let before = live(&store);
        holds(&store, bst(&store), &before, |map| against_model(&store, map, &ops, ordered).unwrap());
        let made = store.transact(Isolation::Strict, |tx| Graph::create(tx, &GraphOptions::new().capacity(1))).unwrap();
        graph::against_model(&store, made, &graph::steps(seed, 400), true).unwrap();
    }
    store.close().unwrap();
}

#[test]
fn sums_hold() {
    let (_dir, store) = store();
    concurrently(&store, small_tree(&store), 4, 200).unwrap();
    concurrently(&store, tree(&store, &Default::default()), 4, 200).unwrap();
    concurrently(&store, map(&store, &small_map()), 4, 200).unwrap();
    concurrently(&store, map(&store, &HashMapOptions::new()), 4, 200).unwrap();
    concurrently(&store, list(&store), 4, 60).unwrap();
    concurrently(&store, treap(&store), 4, 200).unwrap();
    concurrently(&store, bst(&store), 4, 200).unwrap();
    store.close().unwrap();
}
