//! The structures, so small that everything happens within a few operations.

use std::fmt::Debug;
use std::ops::ControlFlow::Continue;

use structures::{BTree, BTreeOptions, HashMap, HashMapOptions, Map, SearchTree, SearchTreeOptions, SortedList};
use tx::{Result, Transaction, Typed};
use xxhash_rust::xxh3::xxh3_64;

use super::{KEYS, MANY, START};

/// Of all keys of a tree.
const BEGINNING: &str = "beginning that all of the keys have and";

/// A structure, and how it is made.
pub trait Kind: Copy + Debug + Send + Sync + 'static {
    /// Its handle.
    type Map: Map;

    /// It scans.
    const ORDERED: bool;

    /// Bytes for the copies of a partial backup: so few that they are given up, and enough for nearly every transaction.
    const COPIES: u64;

    /// [`KEYS`] keys.
    fn keys(self) -> Vec<Vec<u8>>;

    /// [`MANY`] keys, as they come: in no order.
    fn many() -> Vec<Vec<u8>> {
        (0..MANY).map(|n| format!("{:03}", n * 77 % MANY).into_bytes()).collect()
    }

    /// Makes an empty one, the engine's root.
    ///
    /// # Errors
    /// Those of the structure.
    fn create<X: Transaction>(self, tx: &mut X) -> Result<()>;

    /// The one at the engine's root.
    ///
    /// # Errors
    /// Those of the structure.
    fn open<X: Transaction>(self, tx: &X) -> Result<Self::Map>;

    /// Destroys the one at the engine's root, and makes another one that holds the same.
    ///
    /// # Errors
    /// Those of the structure.
    fn remake<X: Transaction>(self, tx: &mut X) -> Result<()> {
        let old = self.open(tx)?;
        let mut pairs = Vec::new();
        old.for_each(tx, |key, value| {
            pairs.push((key.to_vec(), value.to_vec()));
            Continue(())
        })?;
        old.destroy(tx)?;
        self.fill(tx, &pairs)
    }

    /// Makes one that holds these pairs, the engine's root.
    ///
    /// # Errors
    /// Those of the structure.
    fn fill<X: Transaction>(self, tx: &mut X, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        self.create(tx)?;
        let map = self.open(tx)?;
        pairs.iter().try_for_each(|(key, value)| map.put(tx, key, value).map(drop))
    }
}

/// A B+tree of three levels: three records to a leaf, five children to an inner node.
#[derive(Clone, Copy, Debug)]
pub struct Tree;

/// A hash map whose keys all begin in one bucket. One that grows splits it and doubles its directory; one that does not chains.
#[derive(Clone, Copy, Debug)]
pub struct Hash {
    /// It grows.
    pub grows: bool,
}

/// A sorted list.
#[derive(Clone, Copy, Debug)]
pub struct List;

/// A binary search tree. One that is balanced takes apart and joins trees; one that is not has nodes with two sides to delete.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// It is a treap.
    pub balanced: bool,
}

impl Kind for Tree {
    type Map = BTree;
    const ORDERED: bool = true;
    const COPIES: u64 = 3700;

    /// Long and alike but for their ends, so that separators are long, too. Those that come later all come between the same two.
    fn keys(self) -> Vec<Vec<u8>> {
        let first = (0..START).map(|n| format!("{BEGINNING}{:02}", n * 5 % START));
        let later = ('a'..).map(|letter| format!("{BEGINNING}05{letter}"));
        first.chain(later).take(KEYS).map(String::into_bytes).collect()
    }

    fn create<X: Transaction>(self, tx: &mut X) -> Result<()> {
        let root = BTree::create(tx, &tree_options())?.root();
        tx.set_root(root)
    }

    /// In ascending order, as they were read.
    fn fill<X: Transaction>(self, tx: &mut X, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let pairs = pairs.iter().map(|(key, value)| (key, value));
        let root = BTree::load(tx, &tree_options(), pairs)?.root();
        tx.set_root(root)
    }

    fn open<X: Transaction>(self, tx: &X) -> Result<BTree> {
        BTree::open(tx, tx.root()?)
    }
}

fn tree_options() -> BTreeOptions {
    BTreeOptions::new().key_max(48).inline_max(16).node_bytes(256, 256)
}

impl Kind for Hash {
    type Map = HashMap;
    const ORDERED: bool = false;
    const COPIES: u64 = 2200;

    /// All share the bits of a page; those that are there at first, and some more, those of a small node too.
    fn keys(self) -> Vec<Vec<u8>> {
        let bits = |n: u64, count: u32| xxh3_64(key(n).as_slice()) >> (64 - count);
        let close = (0..).filter(|&n| bits(n, 6) == bits(0, 6)).take(START + 5);
        let others = (0..).filter(|&n| bits(n, 3) == bits(0, 3) && bits(n, 6) != bits(0, 6));
        close.chain(others).take(KEYS).map(key).collect()
    }

    fn create<X: Transaction>(self, tx: &mut X) -> Result<()> {
        let options = HashMapOptions::new().capacity(1);
        let options = if self.grows { options } else { options.fixed() };
        let root = HashMap::create(tx, &options)?.root();
        tx.set_root(root)
    }

    fn open<X: Transaction>(self, tx: &X) -> Result<HashMap> {
        HashMap::open(tx, tx.root()?)
    }
}

impl Kind for List {
    type Map = SortedList;
    const ORDERED: bool = true;
    const COPIES: u64 = 3500;

    fn keys(self) -> Vec<Vec<u8>> {
        scattered()
    }

    fn create<X: Transaction>(self, tx: &mut X) -> Result<()> {
        let root = SortedList::create(tx)?.root();
        tx.set_root(root)
    }

    fn open<X: Transaction>(self, tx: &X) -> Result<SortedList> {
        SortedList::open(tx, tx.root()?)
    }
}

impl Kind for Search {
    type Map = SearchTree;
    const ORDERED: bool = true;
    const COPIES: u64 = 4200;

    fn keys(self) -> Vec<Vec<u8>> {
        scattered()
    }

    fn create<X: Transaction>(self, tx: &mut X) -> Result<()> {
        let options = SearchTreeOptions::new();
        let options = if self.balanced { options } else { options.unbalanced() };
        let root = SearchTree::create(tx, &options)?.root();
        tx.set_root(root)
    }

    fn open<X: Transaction>(self, tx: &X) -> Result<SearchTree> {
        SearchTree::open(tx, tx.root()?)
    }
}

/// Neither in order nor against it.
fn scattered() -> Vec<Vec<u8>> {
    (0..KEYS as u64).map(|n| key(n * 7 % KEYS as u64 + 10)).collect()
}

fn key(n: u64) -> Vec<u8> {
    format!("key {n}").into_bytes()
}
