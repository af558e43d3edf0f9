//! A singly linked list, sorted.
//!
//! A node is one block: the link to the next, key, value. A change of keys changes one word, in the node before. A look-up of a key
//! reads all nodes before it, so a list is for few keys, or as the yardstick that it is in papers.
//!
//! Keys rise along the list. Every step checks it: damage that leads back, or past a key, is an error at once, and no walk is endless.

#[cfg(test)]
mod tests;

use std::ops::{Bound, ControlFlow};

use pmem::{PPtr, Persist};
use tx::{Keys, Result, Transaction, Typed, Visit, field};

use crate::entry::{ENTRY_KEY_MAX, Node, follow, new_entry, overwrite};
use crate::map::{Map, Report};
use crate::media::{VALUE_MAX, change, damaged, held, limit};

/// `"CairnSL1"`.
const KIND: u64 = u64::from_le_bytes(*b"CairnSL1");
const NODE: &str = "list node";

/// The block that a list is opened by.
#[derive(Clone, Copy, Persist)]
#[repr(C)]
pub struct ListRoot {
    kind: u64,
    first: u64,
}

const _: () = assert!(size_of::<ListRoot>() == 16);

/// A sorted list: keys up to 64 KiB, values up to 1 GiB.
///
/// A scan in reverse notes all pairs of its range before it shows the last: links go one way.
///
/// ```
/// use structures::{Map, SortedList};
/// use tx::{Engine, Isolation, Reference, Typed};
///
/// let engine = Reference::new();
/// engine.transact(Isolation::Strict, |tx| -> tx::Result<()> {
///     let list = SortedList::create(tx)?;
///     for year in [1922u16, 1605, 1851] {
///         list.put(tx, &year.to_be_bytes(), b"a book")?; // big-endian numbers sort like numbers
///     }
///     tx.set_root(list.root())
/// })?;
/// engine.transact(Isolation::Strict, |tx| -> tx::Result<()> {
///     let list = SortedList::open(tx, tx.root()?)?;
///     assert!(list.delete(tx, &1605u16.to_be_bytes())?);
///     assert_eq!(list.len(tx)?, 2);
///     Ok(())
/// })?;
/// # Ok::<(), tx::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SortedList {
    root: PPtr<ListRoot>,
}

/// Where a key is or would be.
struct Spot<'t> {
    /// The word that leads to it or would.
    slot: PPtr<u64>,
    /// The first node that is not before it; null behind the last.
    at: PPtr<u8>,
    /// That node.
    node: Option<Node<'t, 1>>,
    /// It has the key.
    found: bool,
}

impl SortedList {
    /// A new, empty list.
    ///
    /// # Errors
    /// As [`Transaction::alloc_bytes`].
    pub fn create<X: Transaction + ?Sized>(tx: &mut X) -> Result<Self> {
        Ok(Self { root: tx.alloc(&ListRoot { kind: KIND, first: 0 })? })
    }

    /// The list whose root block is at `root`.
    ///
    /// # Errors
    /// [`tx::Error::Damaged`] if there is none.
    pub fn open<X: Transaction + ?Sized>(tx: &X, root: PPtr<ListRoot>) -> Result<Self> {
        let found = held("list", root, tx.read(root))?;
        if found.kind != KIND {
            return Err(damaged("list", root, "no root of a list"));
        }
        Ok(Self { root })
    }

    /// Pointer to the block that the list is opened by.
    pub fn root(&self) -> PPtr<ListRoot> {
        self.root
    }

    fn first(&self) -> PPtr<u64> {
        field!(ListRoot, first).of(self.root)
    }

    /// Goes to the first node of which `before` does not say that it is before what is looked for.
    #[inline]
    fn seek<'t, X: Transaction + ?Sized>(&self, tx: &'t X, before: impl Fn(&[u8]) -> bool) -> Result<Spot<'t>> {
        let mut slot = self.first();
        let mut at = follow(tx, "list", slot)?;
        let mut last = None;
        while !at.is_null() {
            let node = rising(tx, at, &mut last)?;
            if !before(node.entry.key) {
                return Ok(Spot { slot, at, node: Some(node), found: false });
            }
            (slot, at) = (at.cast(), node.next(0, self.root.tag()));
        }
        Ok(Spot { slot, at, node: None, found: false })
    }

    #[inline]
    fn find<'t, X: Transaction + ?Sized>(&self, tx: &'t X, key: &[u8]) -> Result<Spot<'t>> {
        let spot = self.seek(tx, |other| other < key)?;
        Ok(Spot { found: spot.node.is_some_and(|node| node.entry.key == key), ..spot })
    }

    fn put_pair<X: Transaction + ?Sized>(&self, tx: &mut X, key: &[u8], value: &[u8]) -> Result<bool> {
        limit("bytes of a key", key.len(), ENTRY_KEY_MAX)?;
        limit("bytes of a value", value.len(), VALUE_MAX)?;
        let Spot { slot, at, node, found } = self.find(tx, key)?;
        if let Some(node) = node.filter(|_| found) {
            let (layout, links) = (node.entry.layout(), node.links);
            overwrite(tx, slot, at, layout, &links, key, value)?;
        } else {
            let new = new_entry(tx, &[at.offset()], key, value)?;
            *tx.write(slot)? = new.offset();
        }
        Ok(found)
    }

    fn delete_key<X: Transaction + ?Sized>(&self, tx: &mut X, key: &[u8]) -> Result<bool> {
        let Spot { slot, at, node: Some(node), found: true } = self.find(tx, key)? else { return Ok(false) };
        let next = node.links[0];
        *tx.write(slot)? = next;
        tx.free(at)?;
        Ok(true)
    }

    /// Calls `visit` with all nodes from a spot on.
    fn walk<'t, X: Transaction + ?Sized>(
        &self,
        tx: &'t X,
        from: Spot<'t>,
        mut visit: impl FnMut(PPtr<u8>, Node<'t, 1>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let (mut at, mut last) = (from.at, None);
        while !at.is_null() {
            let node = rising(tx, at, &mut last)?;
            if visit(at, node)?.is_break() {
                break;
            }
            at = node.next(0, self.root.tag());
        }
        Ok(())
    }

    fn walk_all<'t, X: Transaction + ?Sized>(
        &self,
        tx: &'t X,
        visit: impl FnMut(PPtr<u8>, Node<'t, 1>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.walk(tx, self.seek(tx, |_| false)?, visit)
    }

    fn all_blocks<X: Transaction + ?Sized>(&self, tx: &X) -> Result<Vec<PPtr<u8>>> {
        let mut blocks = vec![self.root.cast()];
        self.walk_all(tx, |at, _| {
            blocks.push(at);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(blocks)
    }
}

/// The node at `at`, whose key is behind the last one.
#[inline]
fn rising<'t, X: Transaction + ?Sized>(tx: &'t X, at: PPtr<u8>, last: &mut Option<&'t [u8]>) -> Result<Node<'t, 1>> {
    let node = Node::read(tx, NODE, at)?;
    if last.is_some_and(|last| node.entry.key <= last) {
        return Err(damaged(NODE, at, "its key is not behind the one before"));
    }
    *last = Some(node.entry.key);
    Ok(node)
}

impl Map for SortedList {
    #[inline]
    fn get<'t, X: Transaction + ?Sized>(&self, tx: &'t X, key: &[u8]) -> Result<Option<&'t [u8]>> {
        let spot = self.find(tx, key)?;
        Ok(spot.node.filter(|_| spot.found).map(|node| node.entry.value))
    }

    fn put<X: Transaction + ?Sized>(&self, tx: &mut X, key: &[u8], value: &[u8]) -> Result<bool> {
        change(tx, |tx| self.put_pair(tx, key, value))
    }

    fn delete<X: Transaction + ?Sized>(&self, tx: &mut X, key: &[u8]) -> Result<bool> {
        change(tx, |tx| self.delete_key(tx, key))
    }

    fn scan<X: Transaction + ?Sized>(&self, tx: &X, keys: &Keys, visit: Visit<'_>) -> Result<()> {
        let from = self.seek(tx, |key| match &keys.from {
            Bound::Included(from) => key < &from[..],
            Bound::Excluded(from) => key <= &from[..],
            Bound::Unbounded => false,
        })?;
        let mut pairs = Vec::new();
        self.walk(tx, from, |_, Node { entry, .. }| {
            Ok(if !keys.contains(entry.key) {
                ControlFlow::Break(())
            } else if keys.reverse {
                pairs.push((entry.key, entry.value));
                ControlFlow::Continue(())
            } else {
                visit(entry.key, entry.value)
            })
        })?;
        let _ = pairs.into_iter().rev().try_for_each(|(key, value)| visit(key, value));
        Ok(())
    }

    fn for_each<X: Transaction + ?Sized>(
        &self,
        tx: &X,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.walk_all(tx, |_, node| Ok(visit(node.entry.key, node.entry.value)))
    }

    fn len<X: Transaction + ?Sized>(&self, tx: &X) -> Result<u64> {
        Ok(self.all_blocks(tx)?.len() as u64 - 1)
    }

    fn verify<X: Transaction + ?Sized>(&self, tx: &X) -> Result<Report> {
        Self::open(tx, self.root)?;
        let block_bytes = held("list", self.root, tx.room(self.root.cast()))?;
        let mut report = Report { blocks: 1, block_bytes, ..Report::default() };
        self.walk_all(tx, |at, Node { entry, .. }| {
            if entry.key.len() as u64 > ENTRY_KEY_MAX || entry.value.len() as u64 > VALUE_MAX {
                return Err(damaged(NODE, at, "a key or value that is too long"));
            }
            report.entry(entry.key, entry.value, tx.room(at)?);
            Ok(ControlFlow::Continue(()))
        })?;
        report.depth = u32::try_from(report.blocks).unwrap_or(u32::MAX);
        Ok(report)
    }

    fn blocks<X: Transaction + ?Sized>(&self, tx: &X) -> Result<Vec<PPtr<u8>>> {
        self.all_blocks(tx)
    }

    fn destroy<X: Transaction + ?Sized>(self, tx: &mut X) -> Result<()> {
        change(tx, |tx| self.all_blocks(tx)?.into_iter().try_for_each(|block| tx.free_bytes(block)))
    }
}
