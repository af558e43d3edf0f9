//! Binary search trees: as keys come, or balanced.
//!
//! A node is one block: links to both sides, key, value. Keys left of a node are smaller, those right of it larger. Every step down narrows
//! the keys there may be, and checks it: damage that leads back, or elsewhere, is an error at once, and no walk is endless.
//!
//! Balanced means a treap (Aragon, Seidel 1989): each key has a *priority*, a hash of it, and no node has a higher one than the node above it.
//! So the keys alone decide the tree, whatever order they came in, and it is as deep as one made of them in random order: 1.4 log2 n on
//! average to a node. AVL and red-black trees keep heights or colours in nodes and write them all along the way; here nothing is kept, what an insert
//! or delete writes is the word above and on average less than one more, and `verify` knows the only shape there may be.
//!
//! | file | what it does |
//! |---|---|
//! | `find` | the way down |
//! | `change` | put, delete |
//! | `walk` | in order, both ways; the checks of `verify` |

mod change;
mod find;
#[cfg(test)]
mod tests;
mod walk;

use std::ops::ControlFlow;

use pmem::{PPtr, Persist};
use tx::{Keys, Result, Transaction, Typed, Visit, field};

use crate::map::{Map, Report};
use crate::media::{change, damaged, held};

/// `"CairnST1"`.
const KIND: u64 = u64::from_le_bytes(*b"CairnST1");
const NODE: &str = "search tree node";

/// A node's links.
const LEFT: usize = 0;
const RIGHT: usize = 1;

type Node<'t> = crate::entry::Node<'t, 2>;

/// The block that a search tree is opened by.
#[derive(Clone, Copy, Persist)]
#[repr(C)]
pub struct TreeRoot {
    kind: u64,
    seed: u64,
    balanced: u64,
    top: u64,
}

const _: () = assert!(size_of::<TreeRoot>() == 32);

/// How a [`SearchTree`] is made.
///
/// ```
/// let options = structures::SearchTreeOptions::new().seed(7);
/// # let _ = options;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SearchTreeOptions {
    seed: u64,
    balanced: bool,
}

impl Default for SearchTreeOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl SearchTreeOptions {
    /// Balanced.
    pub fn new() -> Self {
        Self { seed: 0, balanced: true }
    }

    /// Leaves nodes where their keys came: keys in order make a list of it.
    #[must_use]
    pub fn unbalanced(self) -> Self {
        Self { balanced: false, ..self }
    }

    /// Seed of the priorities. Keys that a stranger chooses need one that is unknown to the stranger.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }
}

/// A binary search tree: keys up to 64 KiB, values up to 1 GiB.
///
/// ```
/// use structures::{Map, SearchTree, SearchTreeOptions};
/// use tx::{Engine, Isolation, Reference, Typed};
///
/// let engine = Reference::new();
/// engine.transact(Isolation::Strict, |tx| -> tx::Result<()> {
///     let tree = SearchTree::create(tx, &SearchTreeOptions::new())?;
///     for n in 0..1000u32 {
///         tree.put(tx, &n.to_be_bytes(), b"in order")?;
///     }
///     assert!(tree.verify(tx)?.depth < 50);
///     tx.set_root(tree.root())
/// })?;
/// engine.transact(Isolation::Strict, |tx| -> tx::Result<()> {
///     let tree = SearchTree::open(tx, tx.root()?)?;
///     assert_eq!(tree.get(tx, &7u32.to_be_bytes())?, Some(&b"in order"[..]));
///     Ok(())
/// })?;
/// # Ok::<(), tx::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SearchTree {
    root: PPtr<TreeRoot>,
    seed: u64,
    balanced: bool,
}

impl SearchTree {
    /// A new, empty tree.
    ///
    /// # Errors
    /// As [`Transaction::alloc_bytes`].
    pub fn create<X: Transaction + ?Sized>(tx: &mut X, options: &SearchTreeOptions) -> Result<Self> {
        let SearchTreeOptions { seed, balanced } = *options;
        let root = tx.alloc(&TreeRoot { kind: KIND, seed, balanced: balanced.into(), top: 0 })?;
        Ok(Self { root, seed, balanced })
    }

    /// The tree whose root block is at `root`.
    ///
    /// # Errors
    /// [`tx::Error::Damaged`] if there is none.
    pub fn open<X: Transaction + ?Sized>(tx: &X, root: PPtr<TreeRoot>) -> Result<Self> {
        let found = held("search tree", root, tx.read(root))?;
        if found.kind != KIND || found.balanced > 1 {
            return Err(damaged("search tree", root, "no root of a search tree"));
        }
        Ok(Self { root, seed: found.seed, balanced: found.balanced == 1 })
    }

    /// Pointer to the block that the tree is opened by.
    pub fn root(&self) -> PPtr<TreeRoot> {
        self.root
    }

    fn top(&self) -> PPtr<u64> {
        field!(TreeRoot, top).of(self.root)
    }

    /// The higher one is further up. No two keys have the same.
    fn priority<'k>(&self, key: &'k [u8]) -> (u64, &'k [u8]) {
        (xxhash_rust::xxh3::xxh3_64_with_seed(key, self.seed), key)
    }

    fn tag(&self) -> u16 {
        self.root.tag()
    }
}

impl Map for SearchTree {
    #[inline]
    fn get<'t, X: Transaction + ?Sized>(&self, tx: &'t X, key: &[u8]) -> Result<Option<&'t [u8]>> {
        Ok(self.find(tx, key, |_| false)?.found().map(|node| node.entry.value))
    }

    fn put<X: Transaction + ?Sized>(&self, tx: &mut X, key: &[u8], value: &[u8]) -> Result<bool> {
        change(tx, |tx| self.put_pair(tx, key, value))
    }

    fn delete<X: Transaction + ?Sized>(&self, tx: &mut X, key: &[u8]) -> Result<bool> {
        change(tx, |tx| self.delete_key(tx, key))
    }

    fn scan<X: Transaction + ?Sized>(&self, tx: &X, keys: &Keys, visit: Visit<'_>) -> Result<()> {
        self.visit_range(tx, keys, visit)
    }

    fn for_each<X: Transaction + ?Sized>(
        &self,
        tx: &X,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.visit_range(tx, &Keys::all(), &mut visit)
    }

    fn len<X: Transaction + ?Sized>(&self, tx: &X) -> Result<u64> {
        Ok(self.all_blocks(tx)?.len() as u64 - 1)
    }

    fn verify<X: Transaction + ?Sized>(&self, tx: &X) -> Result<Report> {
        self.check(tx)
    }

    fn blocks<X: Transaction + ?Sized>(&self, tx: &X) -> Result<Vec<PPtr<u8>>> {
        self.all_blocks(tx)
    }

    fn destroy<X: Transaction + ?Sized>(self, tx: &mut X) -> Result<()> {
        change(tx, |tx| self.all_blocks(tx)?.into_iter().try_for_each(|block| tx.free_bytes(block)))
    }
}
