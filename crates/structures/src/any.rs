//! Whatever structure a pool's root leads to.

use pmem::Persist;
use tx::{Result, Transaction, Typed};

use crate::{BTree, BTreeRoot, Graph, GraphRoot, HashMap, HashRoot, ListRoot, Map, SearchTree, SortedList, TreeRoot};

/// A structure of one of the kinds of this crate.
///
/// ```
/// use structures::{BTree, BTreeOptions, Map, Structure};
/// use tx::{Engine, Isolation, Reference, Typed};
///
/// let engine = Reference::new();
/// engine.transact(Isolation::Strict, |tx| -> tx::Result<()> {
///     assert!(Structure::at_root(tx)?.is_none());
///     let tree = BTree::create(tx, &BTreeOptions::new())?;
///     tree.put(tx, b"1605", b"Don Quijote")?;
///     tx.set_root(tree.root())?;
///     let found = Structure::at_root(tx)?.expect("a tree");
///     assert_eq!((found.name(), found.verify(tx)?), ("B+tree", 1));
///     Ok(())
/// })?;
/// # Ok::<(), tx::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Structure {
    /// A B+tree.
    BTree(BTree),
    /// A hash map.
    HashMap(HashMap),
    /// A sorted list.
    SortedList(SortedList),
    /// A binary search tree.
    SearchTree(SearchTree),
    /// A graph.
    Graph(Graph),
}

impl Structure {
    /// The structure that the root leads to; `None` if there is no root, or one of another type.
    ///
    /// # Errors
    /// [`tx::Error::Damaged`] if the root is of a structure's type, and what it leads to is none; as [`Transaction::bytes`].
    pub fn at_root<X: Transaction + ?Sized>(tx: &X) -> Result<Option<Self>> {
        let Some(layout) = tx.root_layout()? else { return Ok(None) };
        let is = |hash| layout == hash;
        Ok(Some(if is(BTreeRoot::LAYOUT.hash) {
            Self::BTree(BTree::open(tx, tx.root()?)?)
        } else if is(HashRoot::LAYOUT.hash) {
            Self::HashMap(HashMap::open(tx, tx.root()?)?)
        } else if is(ListRoot::LAYOUT.hash) {
            Self::SortedList(SortedList::open(tx, tx.root()?)?)
        } else if is(TreeRoot::LAYOUT.hash) {
            Self::SearchTree(SearchTree::open(tx, tx.root()?)?)
        } else if is(GraphRoot::LAYOUT.hash) {
            Self::Graph(Graph::open(tx, tx.root()?)?)
        } else {
            return Ok(None);
        }))
    }

    /// What it is, in words.
    pub fn name(&self) -> &'static str {
        match self {
            Self::BTree(_) => "B+tree",
            Self::HashMap(_) => "hash map",
            Self::SortedList(_) => "sorted list",
            Self::SearchTree(_) => "search tree",
            Self::Graph(_) => "graph",
        }
    }

    /// Walks and checks everything; how many pairs, or nodes, there are. Whatever the bytes are, it ends, and needs memory for each block at most once.
    ///
    /// # Errors
    /// [`tx::Error::Damaged`] names the first thing that is wrong.
    pub fn verify<X: Transaction + ?Sized>(&self, tx: &X) -> Result<u64> {
        Ok(match self {
            Self::BTree(tree) => tree.verify(tx)?.entries,
            Self::HashMap(map) => map.verify(tx)?.entries,
            Self::SortedList(list) => list.verify(tx)?.entries,
            Self::SearchTree(tree) => tree.verify(tx)?.entries,
            Self::Graph(graph) => graph.verify(tx)?.nodes,
        })
    }
}
