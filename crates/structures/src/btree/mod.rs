//! A B+tree of slotted nodes.
//!
//! Every node is one block. Its top node never moves, so a handle knows where it is. Records lie at a node's end in the order they came,
//! sorted slots at its front point to them: an insert writes a record, the slots behind its own and eight bytes of the header, not the
//! node. Nodes split from the leaf upwards, so that inner nodes, which all transactions read, are written only when a node below has been
//! full. There are no links between leaves: a scan keeps its way from the top, which its transaction has read anyway.
//!
//! | file | what it does |
//! |---|---|
//! | `layout`, `node`, `image` | bytes; read with suspicion; changed in DRAM first, then only what is new is written |
//! | `patch` | the common case: one record more or less, nothing copied |
//! | `path` | from the top to a leaf |
//! | `insert`, `delete` | put with splits, delete with merges |
//! | `scan` | both ways |
//! | `load` | a new tree from sorted pairs |
//! | `walk` | all pairs, all blocks; the checks of `verify` |

mod delete;
mod image;
mod insert;
mod layout;
mod load;
mod node;
mod patch;
mod path;
mod scan;
#[cfg(test)]
mod tests;
mod walk;

use std::ops::ControlFlow;

use pmem::PPtr;
use tx::{Error, Keys, Range, Result, Transaction, Typed, Visit};

use image::Image;
pub use layout::BTreeRoot;
use layout::{CHILD, HEADER, KIND, NODE_BYTES_MAX, NODE_BYTES_MIN, SLOT, VALUE_LEN};
use node::Shape;

use crate::map::{Map, Report};
use crate::media::{change, damaged, held};

/// How a [`BTree`] is made.
///
/// ```
/// let options = structures::BTreeOptions::new().key_max(8).inline_max(32);
/// # let _ = options;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct BTreeOptions {
    leaf_bytes: u32,
    inner_bytes: u32,
    inline_max: u32,
    key_max: u32,
}

impl Default for BTreeOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl BTreeOptions {
    /// Keys up to 1 KiB; values up to 16 bytes are kept in leaves. Leaves are small, if keys let them: all lines of one come at once, and their beginnings are spread
    /// over all sets of a cache.
    pub fn new() -> Self {
        Self { leaf_bytes: 1280, inner_bytes: 4096, inline_max: 16, key_max: 1024 }
    }

    /// Longest key, at most 15 KiB. Nodes are made as large as that takes.
    #[must_use]
    pub fn key_max(self, bytes: u32) -> Self {
        Self { key_max: bytes, ..self }
    }

    /// Longest value that is kept in its leaf; longer ones get blocks of their own, so that changing them leaves the leaf alone.
    #[must_use]
    pub fn inline_max(self, bytes: u32) -> Self {
        Self { inline_max: bytes, ..self }
    }

    /// Sizes of leaves and of the nodes above, 256 bytes to 32 KiB; raised if keys need it.
    #[must_use]
    pub fn node_bytes(self, leaf: u32, inner: u32) -> Self {
        Self { leaf_bytes: leaf, inner_bytes: inner, ..self }
    }

    /// What a root says for these options.
    fn root(&self) -> Result<BTreeRoot> {
        let size = |chosen: u32, record: usize| {
            let least = u32::try_from(HEADER + 2 * record).unwrap_or(u32::MAX);
            chosen.max(least).max(NODE_BYTES_MIN).checked_next_multiple_of(pmem::LINE as u32).unwrap_or(u32::MAX)
        };
        let leaf_bytes = size(self.leaf_bytes, leaf_record(self.key_max, self.inline_max));
        let inner_bytes = size(self.inner_bytes, inner_record(self.key_max));
        let found = leaf_bytes.max(inner_bytes);
        if found > NODE_BYTES_MAX {
            return Err(Error::Limit { what: "bytes of a node", found: found.into(), max: NODE_BYTES_MAX.into() });
        }
        let (inline_max, key_max) = (self.inline_max, self.key_max);
        Ok(BTreeRoot { kind: KIND, leaf_bytes, inner_bytes, inline_max, key_max, top: PPtr::NULL })
    }
}

/// Most bytes of a leaf's record.
fn leaf_record(key_max: u32, inline_max: u32) -> usize {
    SLOT + key_max as usize + VALUE_LEN + (inline_max as usize).max(size_of::<PPtr<u8>>())
}

/// Most bytes of another node's.
fn inner_record(key_max: u32) -> usize {
    SLOT + key_max as usize + CHILD
}

/// A sorted map: keys up to the limit of its options, values up to 1 GiB.
///
/// ```
/// use std::ops::ControlFlow;
/// use structures::{BTree, BTreeOptions, Map};
/// use tx::{Engine, Isolation, Keys, Reference, Typed};
///
/// let engine = Reference::new();
/// engine.transact(Isolation::Strict, |tx| -> tx::Result<()> {
///     let tree = BTree::create(tx, &BTreeOptions::new())?;
///     for year in [1605u16, 1851, 1922] {
///         tree.put(tx, &year.to_be_bytes(), b"a book")?; // big-endian numbers sort like numbers
///     }
///     tx.set_root(tree.root())
/// })?;
/// engine.transact(Isolation::Strict, |tx| -> tx::Result<()> {
///     let tree = BTree::open(tx, tx.root()?)?;
///     let mut years = Vec::new();
///     tree.scan(tx, &Keys::all().reverse(), &mut |key, _| {
///         years.push(key.to_vec());
///         ControlFlow::Continue(())
///     })?;
///     assert_eq!(years.first(), Some(&1922u16.to_be_bytes().to_vec()));
///     Ok(())
/// })?;
/// # Ok::<(), tx::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct BTree {
    root: PPtr<BTreeRoot>,
    top: PPtr<u8>,
    shape: Shape,
    key_max: u32,
}

impl BTree {
    /// A new, empty tree.
    ///
    /// # Errors
    /// [`Error::Limit`] for keys or nodes too large; as [`Transaction::alloc_bytes`].
    pub fn create<X: Transaction + ?Sized>(tx: &mut X, options: &BTreeOptions) -> Result<Self> {
        change(tx, |tx| {
            let mut root = options.root()?;
            let tree = Self::handle(PPtr::NULL, &root);
            let top_bytes = root.leaf_bytes.max(root.inner_bytes);
            root.top = tx.alloc_bytes(top_bytes.into(), pmem::LINE)?;
            tree.store_new(tx, root.top, &Image::new(tree.shape, 0, PPtr::NULL))?;
            let ptr = tx.alloc(&root)?;
            Ok(Self::handle(ptr, &root))
        })
    }

    /// The tree whose root block is at `root`.
    ///
    /// # Errors
    /// [`Error::Damaged`] if there is none.
    pub fn open<X: Transaction + ?Sized>(tx: &X, root: PPtr<BTreeRoot>) -> Result<Self> {
        let found = held("B+tree", root, tx.read(root))?;
        let fits = |bytes: u32, record: usize| bytes <= NODE_BYTES_MAX && HEADER + 2 * record <= bytes as usize;
        let (key_max, inline_max) = (found.key_max.min(NODE_BYTES_MAX), found.inline_max.min(NODE_BYTES_MAX));
        let right = fits(found.leaf_bytes, leaf_record(key_max, inline_max))
            && fits(found.inner_bytes, inner_record(key_max))
            && (key_max, inline_max) == (found.key_max, found.inline_max);
        if found.kind != KIND || !right {
            return Err(damaged("B+tree", root, "no root of a B+tree"));
        }
        Ok(Self::handle(root, found))
    }

    /// Pointer to the block that the tree is opened by.
    pub fn root(&self) -> PPtr<BTreeRoot> {
        self.root
    }

    /// Adds to `ranges` what a [`put`](Map::put) of a new key, with a value of that length, would change now: to be declared together with
    /// other changes ([`Transaction::intend`]), so that an engine prepares for all of them at once. A leaf that has to be split is left out, and
    /// prepared for by `put` itself.
    ///
    /// ```
    /// use structures::{BTree, BTreeOptions, Map};
    /// use tx::{Engine, Isolation, Reference, ToRange, Transaction, Typed};
    ///
    /// let engine = Reference::new();
    /// engine.transact(Isolation::Strict, |tx| -> tx::Result<()> {
    ///     let orders = BTree::create(tx, &BTreeOptions::new())?;
    ///     orders.put(tx, b"1", b"")?;
    ///     let next = tx.alloc(&2u64)?;
    ///
    ///     let mut ranges = vec![next.range()];
    ///     orders.declare_put(tx, b"2", 0, &mut ranges)?;
    ///     tx.intend(&ranges)?;
    ///     *tx.write(next)? += 1;
    ///     orders.put(tx, b"2", b"")?;
    ///     Ok(())
    /// })?;
    /// # Ok::<(), tx::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Map::get`].
    pub fn declare_put<X: Transaction + ?Sized>(
        &self,
        tx: &X,
        key: &[u8],
        value_len: usize,
        ranges: &mut Vec<Range>,
    ) -> Result<()> {
        self.declare_insertion(tx, key, value_len, ranges)
    }

    /// The same for a [`delete`](Map::delete).
    ///
    /// ```
    /// use structures::{BTree, BTreeOptions, Map};
    /// use tx::{Engine, Isolation, Reference, Transaction};
    ///
    /// let engine = Reference::new();
    /// engine.transact(Isolation::Strict, |tx| -> tx::Result<()> {
    ///     let [new, old] = [BTree::create(tx, &BTreeOptions::new())?, BTree::create(tx, &BTreeOptions::new())?];
    ///     (0..9u8).try_for_each(|key| new.put(tx, &[key], b"").map(drop))?;
    ///     old.put(tx, &[9], b"")?;
    ///
    ///     let mut ranges = Vec::new();
    ///     new.declare_delete(tx, &[3], &mut ranges)?;
    ///     old.declare_put(tx, &[3], 0, &mut ranges)?;
    ///     tx.intend(&ranges)?;
    ///     assert!(new.delete(tx, &[3])?);
    ///     old.put(tx, &[3], b"")?;
    ///     Ok(())
    /// })?;
    /// # Ok::<(), tx::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Map::get`].
    pub fn declare_delete<X: Transaction + ?Sized>(&self, tx: &X, key: &[u8], ranges: &mut Vec<Range>) -> Result<()> {
        self.declare_deletion(tx, key, ranges)
    }

    fn handle(ptr: PPtr<BTreeRoot>, root: &BTreeRoot) -> Self {
        let shape = Shape { leaf: root.leaf_bytes, inner: root.inner_bytes, inline_max: root.inline_max };
        Self { root: ptr, top: root.top, shape, key_max: root.key_max }
    }

    /// Bytes of the top node's block.
    fn top_bytes(&self) -> u64 {
        self.shape.leaf.max(self.shape.inner).into()
    }
}

impl Map for BTree {
    #[inline]
    fn get<'t, X: Transaction + ?Sized>(&self, tx: &'t X, key: &[u8]) -> Result<Option<&'t [u8]>> {
        self.find(tx, key)
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
        self.count(tx)
    }

    fn verify<X: Transaction + ?Sized>(&self, tx: &X) -> Result<Report> {
        self.check(tx)
    }

    fn blocks<X: Transaction + ?Sized>(&self, tx: &X) -> Result<Vec<PPtr<u8>>> {
        self.all_blocks(tx)
    }

    fn destroy<X: Transaction + ?Sized>(self, tx: &mut X) -> Result<()> {
        change(tx, |tx| self.free_all(tx))
    }
}
