//! A new tree from sorted pairs, from the leaves upwards: each node is written once.

use pmem::PPtr;
use tx::{Result, Transaction, Typed};

use super::image::Image;
use super::layout::separator;
use super::path::bad;
use super::{BTree, BTreeOptions};
use crate::media::{VALUE_MAX, change, damaged, limit};

/// One eighth of each node stays free for later.
const FREE: usize = 8;

/// The node of a level that is being filled, and the lower bound of its keys.
struct Open {
    node: Image,
    from: Vec<u8>,
}

impl BTree {
    /// A tree with these pairs, whose keys ascend. Much less is written than by putting one pair after the other.
    ///
    /// ```
    /// use structures::{BTree, BTreeOptions, Map};
    /// use tx::{Engine, Isolation, Reference};
    ///
    /// let engine = Reference::new();
    /// engine.transact(Isolation::Strict, |tx| -> tx::Result<()> {
    ///     let pairs = (0..1000u32).map(|n| (n.to_be_bytes(), b"value"));
    ///     let tree = BTree::load(tx, &BTreeOptions::new(), pairs)?;
    ///     assert_eq!(tree.len(tx)?, 1000);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), tx::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`tx::Error::Aborted`] if keys do not ascend; as [`create`](Self::create) and [`put`](crate::Map::put).
    pub fn load<X, K, V>(tx: &mut X, options: &BTreeOptions, pairs: impl IntoIterator<Item = (K, V)>) -> Result<Self>
    where
        X: Transaction + ?Sized,
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let tree = Self::create(tx, options)?;
        change(tx, |tx| {
            let mut levels = vec![Open { node: Image::new(tree.shape, 0, PPtr::NULL), from: Vec::new() }];
            let mut last: Option<Vec<u8>> = None;
            for (key, value) in pairs {
                let (key, value) = (key.as_ref(), value.as_ref());
                limit("bytes of a key", key.len(), tree.key_max.into())?;
                limit("bytes of a value", value.len(), VALUE_MAX)?;
                if last.as_ref().is_some_and(|last| key <= &last[..]) {
                    return Err(tx.refuse("keys to load do not ascend"));
                }
                let tail = tree.tail(tx, value)?;
                let from = last.as_ref().map_or(key, |last| separator(last, key));
                tree.append(tx, &mut levels, 0, from, Some(key), &tail)?;
                last = Some(key.to_vec());
            }
            tree.finish(tx, levels)
        })?;
        Ok(tree)
    }

    /// Adds a record to the open node of a level. A node that is full is written and passed upwards; the next one has keys from `from` on.
    ///
    /// `key` is `None` above the leaves: there a node begins with a child, without a key.
    fn append<X: Transaction + ?Sized>(
        &self,
        tx: &mut X,
        levels: &mut Vec<Open>,
        level: usize,
        from: &[u8],
        key: Option<&[u8]>,
        tail: &[u8],
    ) -> Result<()> {
        let open = &mut levels[level];
        let room = open.node.bytes().len() - open.node.bytes().len() / FREE;
        let record = key.unwrap_or(from);
        let fits = open.node.count() == 0 || open.node.used() + super::image::cost((record, tail)) <= room;
        if fits && open.node.insert(open.node.count(), record, tail).map_err(bad(PPtr::NULL))? {
            return Ok(());
        }
        let first = if key.is_some() { PPtr::NULL } else { pointer(tail) };
        let mut next = Open { node: Image::new(self.shape, level as u16, first), from: from.to_vec() };
        if let Some(key) = key {
            next.node.insert(0, key, tail).map_err(bad(PPtr::NULL))?;
        }
        let full = std::mem::replace(&mut levels[level], next);
        self.pass_up(tx, levels, level, &full)
    }

    /// Writes a node and makes it a child of the open one above.
    fn pass_up<X: Transaction + ?Sized>(
        &self,
        tx: &mut X,
        levels: &mut Vec<Open>,
        level: usize,
        full: &Open,
    ) -> Result<()> {
        let at = self.alloc(tx, &full.node)?;
        if levels.len() > level + 1 {
            return self.append(tx, levels, level + 1, &full.from, None, &at.raw().to_le_bytes());
        }
        if self.shape.capacity(level as u16 + 1) == 0 {
            return Err(damaged("B+tree", self.root, "the tree is too high"));
        }
        levels.push(Open { node: Image::new(self.shape, level as u16 + 1, at), from: full.from.clone() });
        Ok(())
    }

    /// The open nodes that are left: each goes up, the highest becomes the top.
    fn finish<X: Transaction + ?Sized>(&self, tx: &mut X, mut levels: Vec<Open>) -> Result<()> {
        let mut level = 0;
        while level + 1 < levels.len() {
            let next = Open { node: Image::new(self.shape, level as u16, PPtr::NULL), from: Vec::new() };
            let open = std::mem::replace(&mut levels[level], next);
            self.pass_up(tx, &mut levels, level, &open)?;
            level += 1;
        }
        self.store(tx, &[(self.top, &levels[level].node)])
    }
}

fn pointer(tail: &[u8]) -> PPtr<u8> {
    PPtr::from_raw(crate::media::word(tail, 0).unwrap_or(0))
}
