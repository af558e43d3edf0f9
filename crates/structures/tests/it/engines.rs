//! The same structures on the engines that are made for persistent memory.

use std::collections::BTreeSet;

use heap::{Heap, Options, Policy};
use pmem::DomainChoice;
use structures::{BTree, BTreeOptions, HashMap, HashMapOptions, KvMap, Map, SearchTree, SortedList};
use structures_testing::{Features, Random, against_model, concurrently, damage, ops};
use tx::{Engine, Error, Isolation, Keys, Kv, KvTx, Transaction, Typed};

use crate::growth::up_and_down;
use crate::support::{bst, list, small_map, treap};

pub fn heap(policy: Policy) -> (tempfile::TempDir, Heap) {
    create(Options::new().policy(policy))
}

/// With so few bytes for the copies of a partial backup that they are given up.
pub fn short(policy: Policy, copies: u64) -> (tempfile::TempDir, Heap) {
    create(Options::new().policy(policy).alpha(copies as f64 / BYTES as f64))
}

const BYTES: u64 = 16 << 20;

fn create(options: Options) -> (tempfile::TempDir, Heap) {
    let dir = tempfile::tempdir().unwrap();
    let options = options.bytes(BYTES).slots(16).coordinator(false);
    let options = options.pool(pmem::Options::new().domain(DomainChoice::Emulated));
    let heap = Heap::create(dir.path().join("p"), &options).unwrap();
    (dir, heap)
}

/// It was short of copies, if it has any.
pub fn was_short(heap: &Heap, policy: Policy) {
    assert_eq!(heap.stats().evictions > 0, policy == Policy::InPlacePartial, "{policy}");
}

fn map(heap: &Heap, options: &HashMapOptions) -> HashMap {
    heap.transact(Isolation::Strict, |tx| HashMap::create(tx, options)).unwrap()
}

fn tree(heap: &Heap, options: &BTreeOptions) -> BTree {
    heap.transact(Isolation::Strict, |tx| BTree::create(tx, options)).unwrap()
}

fn small_tree(heap: &Heap) -> BTree {
    tree(heap, &BTreeOptions::new().key_max(300).node_bytes(256, 256))
}

pub fn live(heap: &Heap) -> BTreeSet<u64> {
    heap.apply_pending().unwrap();
    let mut live = BTreeSet::new();
    heap.live_blocks(|offset, _| _ = live.insert(offset)).unwrap();
    live
}

/// Runs a check, then: the heap has not one block more or less than the structure says.
fn holds<M: Map>(heap: &Heap, make: impl FnOnce(&Heap) -> M, check: impl FnOnce(M)) {
    let before = live(heap);
    let map = make(heap);
    check(map);
    let blocks = heap.transact(Isolation::Strict, |tx| map.blocks(tx)).unwrap();
    let now: BTreeSet<u64> = live(heap).difference(&before).copied().collect();
    assert_eq!(now, blocks.into_iter().map(|block| block.offset()).collect());
}

#[test]
fn models_hold_on_every_policy() {
    for policy in Policy::ALL {
        let (_dir, heap) = short(policy, 64 << 10);
        for seed in 0..3 {
            let ops = ops(seed, 600);
            let aborts = policy != Policy::None;
            let (tree, hash) = (Features { ordered: true, aborts }, Features { ordered: false, aborts });
            holds(&heap, small_tree, |map| against_model(&heap, map, &ops, tree).unwrap());
            holds(&heap, |heap| map(heap, &small_map()), |map| against_model(&heap, map, &ops, hash).unwrap());
            let fixed = small_map().fixed();
            holds(&heap, |heap| map(heap, &fixed), |map| against_model(&heap, map, &ops, hash).unwrap());
            holds(&heap, list, |map| against_model(&heap, map, &ops, tree).unwrap());
            holds(&heap, treap, |map| against_model(&heap, map, &ops, tree).unwrap());
            holds(&heap, bst, |map| against_model(&heap, map, &ops, tree).unwrap());
        }
        was_short(&heap, policy);
        heap.close().unwrap();
    }
}

#[test]
fn growing_and_shrinking_leaves_nothing_behind() {
    let (_dir, heap) = heap(Policy::Undo);
    let nodes = BTreeOptions::new().key_max(16).node_bytes(256, 256);
    holds(&heap, |heap| tree(heap, &nodes), |map| _ = up_and_down(&heap, map, 3000));
    holds(&heap, |heap| map(heap, &small_map()), |map| _ = up_and_down(&heap, map, 3000));
    holds(&heap, treap, |map| _ = up_and_down(&heap, map, 2000));
    holds(&heap, bst, |map| _ = up_and_down(&heap, map, 2000));
    holds(&heap, list, |map| _ = up_and_down(&heap, map, 300));
}

#[test]
fn sums_hold_on_every_policy() {
    for policy in Policy::ALL {
        let (_dir, heap) = short(policy, 64 << 10);
        // Without rollback a conflict leaves half of a transaction behind.
        let threads = if policy == Policy::None { 1 } else { 4 };
        concurrently(&heap, small_tree(&heap), threads, 200).unwrap();
        concurrently(&heap, tree(&heap, &BTreeOptions::new()), threads, 200).unwrap();
        concurrently(&heap, map(&heap, &small_map()), threads, 200).unwrap();
        concurrently(&heap, map(&heap, &HashMapOptions::new()), threads, 200).unwrap();
        concurrently(&heap, list(&heap), threads, 60).unwrap();
        concurrently(&heap, treap(&heap), threads, 200).unwrap();
        concurrently(&heap, bst(&heap), threads, 200).unwrap();
        was_short(&heap, policy);
    }
}

#[test]
fn damage_on_media_is_an_error() {
    for policy in Policy::ALL.into_iter().filter(|&policy| policy != Policy::None) {
        let (_dir, heap) = heap(policy);
        let (tree, map) = (small_tree(&heap), map(&heap, &small_map()));
        let (list, treap) = (list(&heap), treap(&heap));
        heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
            for n in 0..200u32 {
                tree.put(tx, format!("user:{n}").as_bytes(), b"12345678")?;
                map.put(tx, format!("user:{n}").as_bytes(), b"12345678")?;
                list.put(tx, format!("user:{n}").as_bytes(), b"12345678")?;
                treap.put(tx, format!("user:{n}").as_bytes(), b"12345678")?;
            }
            Ok(())
        })
        .unwrap();
        assert!(damage(&heap, tree, 5, 150).unwrap() > 50);
        assert!(damage(&heap, map, 5, 150).unwrap() > 30);
        assert!(damage(&heap, list, 5, 150).unwrap() > 50);
        assert!(damage(&heap, treap, 5, 150).unwrap() > 50);
    }
}

#[test]
fn what_was_put_is_there_after_a_reopen() {
    for policy in Policy::ALL {
        let (dir, heap) = short(policy, 64 << 10);
        let (tree, map) = (small_tree(&heap), map(&heap, &small_map()));
        let (list, treap) = (list(&heap), treap(&heap));
        heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
            let roots = [tree.root().raw(), map.root().raw(), list.root().raw(), treap.root().raw()];
            let roots = tx.alloc(&roots)?;
            tx.set_root(roots)
        })
        .unwrap();
        for n in 0..500u32 {
            heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
                tree.put(tx, &n.to_be_bytes(), &vec![n as u8; n as usize])?;
                map.put(tx, &n.to_be_bytes(), &vec![n as u8; n as usize])?;
                list.put(tx, &n.to_be_bytes(), &vec![n as u8; n as usize])?;
                treap.put(tx, &n.to_be_bytes(), &vec![n as u8; n as usize])?;
                Ok(())
            })
            .unwrap();
        }
        was_short(&heap, policy);
        heap.close().unwrap();
        let options = Options::new().pool(pmem::Options::new().domain(DomainChoice::Emulated));
        let heap = Heap::open(dir.path().join("p"), &options).unwrap();
        heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
            let [tree, map, list, treap] = *tx.read(tx.root::<[u64; 4]>()?)?;
            let tree = BTree::open(tx, pmem::PPtr::from_raw(tree))?;
            let map = HashMap::open(tx, pmem::PPtr::from_raw(map))?;
            let list = SortedList::open(tx, pmem::PPtr::from_raw(list))?;
            let treap = SearchTree::open(tx, pmem::PPtr::from_raw(treap))?;
            assert_eq!((tree.verify(tx)?.entries, map.verify(tx)?.entries), (500, 500));
            assert_eq!((list.verify(tx)?.entries, treap.verify(tx)?.entries), (500, 500));
            assert_eq!(list.get(tx, &77u32.to_be_bytes())?, Some(&[77; 77][..]));
            assert_eq!(treap.get(tx, &77u32.to_be_bytes())?, Some(&[77; 77][..]));
            assert_eq!(map.get(tx, &77u32.to_be_bytes())?, Some(&[77; 77][..]));
            assert_eq!(tree.get(tx, &77u32.to_be_bytes())?, Some(&[77; 77][..]));
            Ok(())
        })
        .unwrap();
    }
}

/// Barriers so far, but for those of copies that a partial backup did not have.
fn counts(heap: &Heap) -> u64 {
    heap.pool().stats().drains - heap.stats().misses
}

/// Barriers of `count` transactions, each with one `put` of a value of `len` bytes.
fn barriers(heap: &Heap, map: impl Map, keys: std::ops::Range<u32>, len: usize) -> f64 {
    let before = counts(heap);
    let count = keys.len() as f64;
    for n in keys {
        heap.transact(Isolation::Strict, |tx| map.put(tx, &n.to_be_bytes(), &vec![1; len])).unwrap();
    }
    (counts(heap) - before) as f64 / count
}

#[test]
fn an_overwrite_costs_what_the_policy_costs() {
    for policy in Policy::ALL {
        let expected = if policy == Policy::Undo { 3.0 } else { 1.0 };
        let (_dir, heap) = heap(policy);
        let (tree, map) = (tree(&heap, &BTreeOptions::new()), map(&heap, &HashMapOptions::new()));
        for len in [100, 1000] {
            barriers(&heap, tree, 0..500, len);
            barriers(&heap, map, 0..500, len);
            heap.apply_pending().unwrap();
            // Twice, so that zones are marked and the pipeline is full.
            barriers(&heap, tree, 0..500, len);
            assert_eq!(barriers(&heap, tree, 0..500, len), expected, "tree on {policy}, {len} bytes");
            barriers(&heap, map, 0..500, len);
            assert_eq!(barriers(&heap, map, 0..500, len), expected, "map on {policy}, {len} bytes");
        }
    }
}

/// A new pair changes one block in place: `undo` copies its old bytes once.
#[test]
fn an_insert_declares_its_changes_together() {
    let (_dir, heap) = heap(Policy::Undo);
    let (tree, map) = (tree(&heap, &BTreeOptions::new()), map(&heap, &HashMapOptions::new()));
    barriers(&heap, tree, 0..100, 100);
    barriers(&heap, map, 0..100, 100);
    // A little more than three: splits.
    let inserts = barriers(&heap, tree, 100..600, 100);
    assert!((3.0..3.1).contains(&inserts), "{inserts}");
    let inserts = barriers(&heap, map, 100..600, 100);
    assert!((3.0..3.2).contains(&inserts), "{inserts}");
}

/// Barriers of each of `count` transactions, by how many there were: puts of new keys, of as many bytes, of more, of fewer in the
/// same place, deletes.
fn barriers_of_each(heap: &Heap, map: impl Map, count: u32) -> [BTreeSet<u64>; 5] {
    let key = |n: u32| Random(n.into()).number().to_be_bytes();
    let run = |f: &dyn Fn(&mut heap::Tx<'_>, u32) -> tx::Result<bool>| {
        let each = |n| {
            let before = heap.pool().stats();
            heap.transact(Isolation::Strict, |tx| f(tx, n)).unwrap();
            (heap.pool().stats() - before).drains
        };
        (0..count).map(each).collect()
    };
    let put = |len: usize| move |tx: &mut heap::Tx<'_>, n| map.put(tx, &key(n), &vec![1; len]);
    [run(&put(100)), run(&put(100)), run(&put(300)), run(&put(250)), run(&|tx, n| map.delete(tx, &key(n)))]
}

/// Barriers of 60 transactions: each deletes one of 30 pairs, or puts it again.
fn barriers_of_coming_and_going(heap: &Heap, map: impl Map) -> u64 {
    let before = counts(heap);
    let keys = || (0..60u32).step_by(2);
    for n in keys() {
        assert!(heap.transact(Isolation::Strict, |tx| map.delete(tx, &n.to_be_bytes())).unwrap());
    }
    for n in keys() {
        assert!(!heap.transact(Isolation::Strict, |tx| map.put(tx, &n.to_be_bytes(), &[1; 100])).unwrap());
    }
    counts(heap) - before
}

/// Whatever a change of a list or a search tree takes apart, its words are declared together.
#[test]
fn every_change_of_linked_nodes_declares_once() {
    let (_dir, undo) = heap(Policy::Undo);
    let three = BTreeSet::from([3]);
    let exactly = [&three; 5];
    for tree in [treap(&undo), bst(&undo)] {
        assert_eq!(barriers_of_each(&undo, tree, 300).each_ref(), exactly);
    }
    assert_eq!(barriers_of_each(&undo, list(&undo), 100).each_ref(), exactly);
}

#[test]
fn a_change_of_linked_nodes_costs_what_the_policy_costs() {
    for policy in Policy::ALL {
        let expected = if policy == Policy::Undo { 3.0 } else { 1.0 };
        let (_dir, heap) = heap(policy);
        let (list, treap, bst) = (list(&heap), treap(&heap), bst(&heap));
        for _ in 0..2 {
            // Overwrites, so that zones are marked and the pipeline is full.
            barriers(&heap, list, 0..60, 100);
            barriers(&heap, treap, 0..500, 100);
            barriers(&heap, bst, 0..100, 100);
        }
        assert_eq!(barriers(&heap, list, 0..60, 100), expected, "list on {policy}");
        assert_eq!(barriers(&heap, treap, 0..500, 100), expected, "treap on {policy}");
        assert_eq!(barriers(&heap, bst, 0..100, 100), expected, "unbalanced on {policy}");
        for _ in 0..2 {
            barriers_of_coming_and_going(&heap, list);
            barriers_of_coming_and_going(&heap, treap);
            barriers_of_coming_and_going(&heap, bst);
        }
        let all = if policy == Policy::Undo { 180 } else { 60 };
        assert_eq!(barriers_of_coming_and_going(&heap, list), all, "list on {policy}");
        assert_eq!(barriers_of_coming_and_going(&heap, bst), all, "unbalanced on {policy}");
        // In place, 18 times a node changes that came a few transactions ago, and is to be in the backup first.
        let more = if matches!(policy, Policy::InPlace | Policy::InPlacePartial) { 18 } else { 0 };
        assert_eq!(barriers_of_coming_and_going(&heap, treap), all + more, "treap on {policy}");
    }
}

#[test]
fn reads_cost_no_barrier() {
    let (_dir, heap) = heap(Policy::InPlace);
    let store = KvMap::new(&heap, tree(&heap, &BTreeOptions::new()));
    store.transact(Isolation::Strict, |tx| tx.put(b"key", b"value")).unwrap();
    heap.apply_pending().unwrap();
    let before = heap.pool().stats();
    store
        .transact(Isolation::Strict, |tx| -> tx::Result<()> {
            assert_eq!(tx.get(b"key")?, Some(&b"value"[..]));
            assert_eq!(tx.get(b"none")?, None);
            tx.scan(&Keys::all(), &mut |_, _| std::ops::ControlFlow::Continue(()))
        })
        .unwrap();
    assert_eq!((heap.pool().stats() - before).drains, 0);
}

#[test]
fn an_error_of_the_structure_dooms_the_transaction() {
    let (_dir, heap) = heap(Policy::InPlace);
    let store = KvMap::new(&heap, map(&heap, &HashMapOptions::new()));
    let mut tx = store.begin(Isolation::Strict).unwrap();
    tx.put(b"key", b"value").unwrap();
    let scan = tx.scan(&Keys::all(), &mut |_, _| std::ops::ControlFlow::Continue(()));
    assert!(matches!(scan, Err(Error::Unordered)), "{scan:?}");
    assert!(tx.doom().is_some());
    assert!(matches!(tx.commit(), Err(Error::Doomed { .. })));
    assert!(!store.transact(Isolation::Strict, |tx| Ok::<_, Error>(tx.get(b"key")?.is_some())).unwrap());
}

/// Changes of two trees that are declared together cost undo what one costs.
#[test]
fn changes_of_trees_are_declared_together() {
    let (_dir, heap) = heap(Policy::Undo);
    let [from, to] = [tree(&heap, &BTreeOptions::new()), tree(&heap, &BTreeOptions::new())];
    let fill = |tx: &mut heap::Tx<'_>| -> tx::Result<()> {
        to.put(tx, b"z", b"")?;
        (0..100u8).try_for_each(|key| from.put(tx, &[key], b"a value").map(drop))
    };
    heap.transact(Isolation::Strict, fill).unwrap();
    let moved = |key: u8, declare: bool| {
        heap.apply_pending().unwrap();
        let before = heap.pool().stats();
        heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
            let mut ranges = Vec::new();
            if declare {
                from.declare_delete(tx, &[key], &mut ranges)?;
                to.declare_put(tx, &[key], 7, &mut ranges)?;
                assert_eq!(ranges.len(), 2 + 3);
            }
            tx.intend(&ranges)?;
            assert!(from.delete(tx, &[key])?);
            assert!(!to.put(tx, &[key], b"a value")?);
            Ok(())
        })
        .unwrap();
        (heap.pool().stats() - before).drains
    };
    assert_eq!((moved(3, false), moved(4, true)), (4, 3));
    heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
        // What there is no change of in one leaf is left out: a key that is there, one that is not.
        let mut ranges = Vec::new();
        to.declare_put(tx, &[4], 7, &mut ranges)?;
        from.declare_delete(tx, &[4], &mut ranges)?;
        assert!(ranges.is_empty());
        assert_eq!((from.verify(tx)?.entries, to.verify(tx)?.entries), (98, 3));
        Ok(())
    })
    .unwrap();
}
