//! All maps against the standard library's maps.

use proptest::prelude::*;
use std::ops::Bound;
use structures::{BTreeOptions, HashMapOptions, Map, SearchTree, SearchTreeOptions};
use structures_testing::{Features, Op, against_model, ops};
use tx::{Keys, Reference};

use crate::support::{bst, list, map, small_map, small_tree, treap, tree, with};

const TREE: Features = Features { ordered: true, aborts: true };
const MAP: Features = Features { ordered: false, aborts: true };

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => (0..60u8).prop_map(|n| vec![n]),
        4 => (0..60u16).prop_map(|n| format!("user:{n}").into_bytes()),
        1 => (0..300usize).prop_map(|n| vec![b'k'; n]),
        1 => prop::collection::vec(0..3u8, 0..8),
    ]
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![Just(Bound::Unbounded), key().prop_map(Bound::Included), key().prop_map(Bound::Excluded)]
}

fn op() -> impl Strategy<Value = Op> {
    let value =
        prop_oneof![4 => prop::collection::vec(any::<u8>(), 0..40), 1 => prop::collection::vec(any::<u8>(), 0..2000)];
    let keys = (bound(), bound(), any::<bool>()).prop_map(|(from, to, reverse)| Keys { from, to, reverse });
    prop_oneof![
        40 => (key(), value).prop_map(|(key, value)| Op::Put(key, value)),
        20 => key().prop_map(Op::Delete),
        10 => key().prop_map(Op::Get),
        10 => (keys, 0..30usize).prop_map(|(keys, most)| Op::Scan(keys, most)),
        5 => Just(Op::Commit),
        2 => Just(Op::Abort),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn tree_is_a_btreemap(ops in prop::collection::vec(op(), 1..200)) {
        let engine = Reference::new();
        against_model(&engine, small_tree(&engine), &ops, TREE).unwrap();
    }

    #[test]
    fn list_is_a_btreemap(ops in prop::collection::vec(op(), 1..200)) {
        let engine = Reference::new();
        against_model(&engine, list(&engine), &ops, TREE).unwrap();
    }

    #[test]
    fn treap_is_a_btreemap(ops in prop::collection::vec(op(), 1..200), seed: u64) {
        let engine = Reference::new();
        let treap = with(&engine, |tx| SearchTree::create(tx, &SearchTreeOptions::new().seed(seed)));
        against_model(&engine, treap, &ops, TREE).unwrap();
    }

    #[test]
    fn unbalanced_tree_is_a_btreemap(ops in prop::collection::vec(op(), 1..200)) {
        let engine = Reference::new();
        against_model(&engine, bst(&engine), &ops, TREE).unwrap();
    }

    #[test]
    fn growing_map_is_a_map(ops in prop::collection::vec(op(), 1..200), seed: u64) {
        let engine = Reference::new();
        against_model(&engine, map(&engine, &small_map().seed(seed)), &ops, MAP).unwrap();
    }

    #[test]
    fn fixed_map_is_a_map(ops in prop::collection::vec(op(), 1..200), seed: u64) {
        let engine = Reference::new();
        against_model(&engine, map(&engine, &small_map().fixed().seed(seed)), &ops, MAP).unwrap();
    }
}

#[test]
fn long_runs_from_seeds() {
    for seed in 0..4 {
        let engine = Reference::new();
        against_model(&engine, small_tree(&engine), &ops(seed, 1500), TREE).unwrap();
        against_model(&engine, tree(&engine, &BTreeOptions::new()), &ops(seed, 1500), TREE).unwrap();
        against_model(&engine, map(&engine, &small_map()), &ops(seed, 1500), MAP).unwrap();
        against_model(&engine, map(&engine, &HashMapOptions::new()), &ops(seed, 1500), MAP).unwrap();
        against_model(&engine, map(&engine, &small_map().fixed()), &ops(seed, 1500), MAP).unwrap();
        against_model(&engine, list(&engine), &ops(seed, 1500), TREE).unwrap();
        against_model(&engine, treap(&engine), &ops(seed, 1500), TREE).unwrap();
        against_model(&engine, bst(&engine), &ops(seed, 1500), TREE).unwrap();
    }
}

/// The checker must be able to fail: a structure that forgets one deletion.
#[test]
fn a_map_that_forgets_is_caught() {
    let engine = Reference::new();
    let tree = small_tree(&engine);
    let ops = [Op::Put(b"a".to_vec(), b"1".to_vec()), Op::Commit];
    against_model(&engine, tree, &ops, TREE).unwrap();
    // The tree still holds `a`; the next model does not.
    let failure = against_model(&engine, tree, &[Op::Get(b"a".to_vec())], TREE).unwrap_err();
    assert!(failure.to_string().contains("get: found Some"), "{failure}");
}

#[test]
fn limits_are_refused_before_anything_changes() {
    let engine = Reference::new();
    let (tree, map) = (small_tree(&engine), map(&engine, &small_map()));
    let refuses = |result: tx::Result<bool>| assert!(matches!(result, Err(tx::Error::Limit { .. })), "{result:?}");
    let begin = || tx::Engine::begin(&engine, tx::Isolation::Strict).unwrap();
    refuses(tree.put(&mut begin(), &[0; 301], b""));
    refuses(map.put(&mut begin(), &vec![0; (1 << 16) + 1], b""));
    let long = vec![0; (1 << 16) + 1];
    refuses(list(&engine).put(&mut begin(), &long, b""));
    refuses(treap(&engine).put(&mut begin(), &long, b""));
    let mut tx = begin();
    assert!(!tree.put(&mut tx, &[0; 300], b"").unwrap());
    assert!(!map.put(&mut tx, &vec![0; 1 << 16], &vec![1; 1 << 20]).unwrap());
    assert_eq!(map.get(&tx, &vec![0; 1 << 16]).unwrap(), Some(&vec![1; 1 << 20][..]));
}
