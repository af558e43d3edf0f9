//! The structures under test, small enough that everything happens.

use structures::{BTree, BTreeOptions, HashMap, HashMapOptions, SearchTree, SearchTreeOptions, SortedList};
use tx::{Engine, Isolation, Result};

pub fn with<E: Engine, R>(engine: &E, f: impl FnMut(&mut E::Tx<'_>) -> Result<R>) -> R {
    engine.transact(Isolation::Strict, f).unwrap()
}

/// Keys up to 300 bytes, four to eight records to a node.
pub fn small_tree<E: Engine>(engine: &E) -> BTree {
    tree(engine, &BTreeOptions::new().key_max(300).node_bytes(256, 256))
}

pub fn tree<E: Engine>(engine: &E, options: &BTreeOptions) -> BTree {
    with(engine, |tx| BTree::create(tx, options))
}

pub fn map<E: Engine>(engine: &E, options: &HashMapOptions) -> HashMap {
    with(engine, |tx| HashMap::create(tx, options))
}

pub fn list<E: Engine>(engine: &E) -> SortedList {
    with(engine, |tx| SortedList::create(tx))
}

/// Balanced.
pub fn treap<E: Engine>(engine: &E) -> SearchTree {
    with(engine, |tx| SearchTree::create(tx, &SearchTreeOptions::new()))
}

/// As keys come.
pub fn bst<E: Engine>(engine: &E) -> SearchTree {
    with(engine, |tx| SearchTree::create(tx, &SearchTreeOptions::new().unbalanced()))
}

/// A map with a single directory page.
pub fn small_map() -> HashMapOptions {
    HashMapOptions::new().capacity(1)
}
