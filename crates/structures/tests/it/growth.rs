//! Many pairs: levels come and go, blocks are given back.

use std::ops::ControlFlow;

use structures::{BTree, BTreeOptions, HashMapOptions, Map};
use structures_testing::Random;
use tx::{Engine, Error, Isolation, Keys, Reference, Typed};

use crate::support::{bst, list, map, small_map, small_tree, treap, tree, with};

/// Puts and deletes `count` keys, some hundred to a transaction.
pub fn up_and_down<E: Engine>(engine: &E, map: impl Map, count: u64) -> (structures::Report, structures::Report) {
    let key = |n: u64| Random(n).number().to_be_bytes();
    let numbers: Vec<u64> = (0..count).collect();
    for part in numbers.chunks(500) {
        with(engine, |tx| part.iter().try_for_each(|&n| map.put(tx, &key(n), &n.to_le_bytes()).map(drop)));
    }
    let full = with(engine, |tx| map.verify(tx));
    assert_eq!(full.entries, count);
    for part in numbers.chunks(500) {
        with(engine, |tx| {
            part.iter().try_for_each(|&n| {
                assert_eq!(map.get(tx, &key(n))?, Some(&n.to_le_bytes()[..]));
                assert!(map.delete(tx, &key(n))?);
                Ok(())
            })
        });
        with(engine, |tx| map.verify(tx));
    }
    (full, with(engine, |tx| map.verify(tx)))
}

#[test]
fn a_tree_grows_and_shrinks_to_one_leaf() {
    let engine = Reference::new();
    let (full, empty) =
        up_and_down(&engine, tree(&engine, &BTreeOptions::new().key_max(16).node_bytes(256, 256)), 5000);
    assert!(full.depth >= 4, "{full:?}");
    assert_eq!((empty.entries, empty.blocks, empty.depth), (0, 2, 1), "{empty:?}");
}

#[test]
fn a_map_grows_in_small_steps() {
    let engine = Reference::new();
    let (full, empty) = up_and_down(&engine, map(&engine, &small_map()), 5000);
    assert_eq!(full.depth, 4, "page, node, bucket, entry");
    assert_eq!(empty.entries, 0);
    // Three words of directory and bucket for a pair, and the entry's header.
    assert!(full.overhead() < 48.0, "{}", full.overhead());
    let (again, _) = up_and_down(&engine, map(&engine, &small_map()), 5000);
    assert_eq!(again.blocks, full.blocks);
}

#[test]
fn search_trees_grow_and_shrink_to_nothing() {
    let engine = Reference::new();
    for (tree, depth) in [(treap(&engine), 40), (bst(&engine), 40)] {
        let (full, empty) = up_and_down(&engine, tree, 3000);
        assert!(full.depth < depth && full.blocks == 3001, "{full:?}");
        assert_eq!((empty.entries, empty.blocks, empty.depth), (0, 1, 1), "{empty:?}");
        // Two links and the entry's header.
        assert!(full.overhead() <= 33.0, "{}", full.overhead());
    }
}

#[test]
fn a_list_grows_and_shrinks_to_nothing() {
    let engine = Reference::new();
    let (full, empty) = up_and_down(&engine, list(&engine), 600);
    assert_eq!((full.blocks, full.depth), (601, 601));
    assert_eq!((empty.entries, empty.blocks, empty.depth), (0, 1, 1), "{empty:?}");
}

#[test]
fn a_map_with_the_right_capacity_has_no_nodes() {
    let engine = Reference::new();
    let (full, _) = up_and_down(&engine, map(&engine, &HashMapOptions::new().capacity(5000)), 5000);
    assert!(full.depth <= 4, "{full:?}");
    let (fixed, _) = up_and_down(&engine, map(&engine, &HashMapOptions::new().capacity(5000).fixed()), 5000);
    assert!(fixed.depth <= 4 && fixed.entries == full.entries, "{fixed:?}");
}

#[test]
fn keys_in_order_fill_their_leaves() {
    let engine = Reference::new();
    let tree = tree(&engine, &BTreeOptions::new().key_max(8));
    with(&engine, |tx| (0..3000u64).try_for_each(|n| tree.put(tx, &n.to_be_bytes(), b"12345678").map(drop)));
    let report = with(&engine, |tx| tree.verify(tx));
    // 28 bytes for each record and a thirtieth of a node's header: hardly any leaf has room.
    assert!(report.block_bytes < 3000 * 31, "{report:?}");
}

#[test]
fn loaded_is_as_put() {
    for count in [0u32, 1, 2, 9, 10, 100, 5000] {
        let engine = Reference::new();
        let options = BTreeOptions::new().key_max(100).node_bytes(256, 256);
        let pairs = |count| (0..count).map(|n: u32| (n.to_be_bytes(), vec![n as u8; n as usize % 50]));
        let (loaded, put) = with(&engine, |tx| {
            let put = BTree::create(tx, &options)?;
            pairs(count).try_for_each(|(key, value)| put.put(tx, &key, &value).map(drop))?;
            Ok((BTree::load(tx, &options, pairs(count))?, put))
        });
        let all = |tree: BTree, keys: Keys| {
            let mut all = Vec::new();
            with(&engine, |tx| {
                tree.scan(tx, &keys, &mut |key, value| {
                    all.push((key.to_vec(), value.to_vec()));
                    ControlFlow::Continue(())
                })
            });
            all
        };
        let (report, other) = with(&engine, |tx| Ok((loaded.verify(tx)?, put.verify(tx)?)));
        assert_eq!((report.entries, report.value_bytes), (other.entries, other.value_bytes));
        assert_eq!(all(loaded, Keys::all()), all(put, Keys::all()));
        assert_eq!(all(loaded, Keys::all().reverse()), all(put, Keys::all().reverse()));
        // It can be changed like any other.
        with(&engine, |tx| (0..count).try_for_each(|n| loaded.delete(tx, &n.to_be_bytes()).map(drop)));
        assert_eq!(with(&engine, |tx| loaded.verify(tx)).blocks, 2);
    }
}

#[test]
fn loading_keys_out_of_order_is_refused() {
    let engine = Reference::new();
    for keys in [[b"b", b"a"], [b"a", b"a"]] {
        let mut tx = engine.begin(Isolation::Strict).unwrap();
        let result = BTree::load(&mut tx, &BTreeOptions::new(), keys.map(|key| (key, b"")));
        assert!(matches!(result, Err(Error::Aborted { .. })), "{result:?}");
    }
}

#[test]
fn destroy_gives_everything_back() {
    let engine = Reference::new();
    let (tree, map) = (small_tree(&engine), map(&engine, &small_map()));
    let (list, treap) = (list(&engine), treap(&engine));
    let blocks = with(&engine, |tx| {
        for n in 0..1000u32 {
            tree.put(tx, &n.to_be_bytes(), &[0; 50])?;
            map.put(tx, &n.to_be_bytes(), &[0; 50])?;
            treap.put(tx, &n.to_be_bytes(), &[0; 50])?;
        }
        (0..200u32).rev().try_for_each(|n| list.put(tx, &n.to_be_bytes(), &[0; 50]).map(drop))?;
        Ok([tree.blocks(tx)?, map.blocks(tx)?, list.blocks(tx)?, treap.blocks(tx)?].concat())
    });
    with(&engine, |tx| {
        list.destroy(tx)?;
        treap.destroy(tx)?;
        tree.destroy(tx)?;
        map.destroy(tx)
    });
    for block in blocks {
        let tx = engine.begin(Isolation::Strict).unwrap();
        assert!(tx::Transaction::bytes(&tx, block, 8).is_err(), "{block:?} is still live");
    }
}

/// An overwrite that fits stays where it is; one that does not gives its block back.
#[test]
fn values_stay_in_place_while_they_fit() {
    let engine = Reference::new();
    let (tree, map) = (small_tree(&engine), map(&engine, &small_map()));
    fn check(engine: &Reference, map: impl Map) {
        let place = |len: usize| {
            with(engine, |tx| {
                map.put(tx, b"key", &vec![7; len])?;
                Ok(map.get(tx, b"key")?.map_or(0, |value| value.len()))
            })
        };
        for len in [1000, 1000, 900, 1000, 1, 0, 5000, 17, 16, 2000] {
            assert_eq!(place(len), len);
            let report = with(engine, |tx| map.verify(tx));
            assert!(report.block_bytes < 2500 + 2 * len as u64, "{report:?}");
        }
    }
    check(&engine, tree);
    check(&engine, map);
    check(&engine, list(&engine));
    check(&engine, treap(&engine));
    check(&engine, bst(&engine));
}

#[test]
fn roots_lead_back() {
    let engine = Reference::new();
    let tree = small_tree(&engine);
    with(&engine, |tx| {
        tree.put(tx, b"k", b"v")?;
        tx.set_root(tree.root())
    });
    with(&engine, |tx| {
        let tree = BTree::open(tx, tx.root()?)?;
        assert_eq!(tree.get(tx, b"k")?, Some(&b"v"[..]));
        Ok(())
    });
}
