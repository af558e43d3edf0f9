//! Several threads at once.

use structures::{BTreeOptions, HashMapOptions};
use structures_testing::concurrently;
use tx::Reference;

use crate::support::{bst, list, map, small_map, small_tree, treap, tree};

#[test]
fn sums_hold_in_maps() {
    let engine = Reference::new();
    concurrently(&engine, map(&engine, &small_map()), 4, 150).unwrap();
    concurrently(&engine, map(&engine, &HashMapOptions::new()), 4, 150).unwrap();
    concurrently(&engine, map(&engine, &small_map().fixed()), 4, 150).unwrap();
}

#[test]
fn sums_hold_in_trees() {
    let engine = Reference::new();
    concurrently(&engine, small_tree(&engine), 4, 150).unwrap();
    concurrently(&engine, tree(&engine, &BTreeOptions::new()), 4, 150).unwrap();
}

#[test]
fn sums_hold_in_lists_and_search_trees() {
    let engine = Reference::new();
    concurrently(&engine, list(&engine), 4, 40).unwrap();
    concurrently(&engine, treap(&engine), 4, 150).unwrap();
    concurrently(&engine, bst(&engine), 4, 150).unwrap();
}
