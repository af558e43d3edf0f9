//! Nodes from and to media, and the way from the top to a leaf.

use pmem::PPtr;
use tx::{Range, Result, Transaction};

use super::BTree;
use super::image::Image;
use super::node::{Bad, Node, Value};
use crate::media::{behind, damaged, held};

/// A node on the way, and the child or record taken there.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) at: PPtr<u8>,
    pub(super) index: usize,
    pub(super) level: u16,
}

/// Levels of a usual tree.
const NEAR: usize = 6;

/// From the top to a leaf.
pub(super) struct Path {
    near: [Step; NEAR],
    /// Behind those.
    far: Vec<Step>,
    len: usize,
    /// No key of the tree is larger than the one looked for.
    pub(super) at_the_end: bool,
}

impl Path {
    pub(super) fn new() -> Self {
        let near = [Step { at: PPtr::NULL, index: 0, level: 0 }; NEAR];
        Self { near, far: Vec::new(), len: 0, at_the_end: true }
    }

    /// Levels go down by one at each step, so there are never more steps than levels.
    #[inline]
    pub(super) fn push(&mut self, step: Step) {
        match self.near.get_mut(self.len) {
            Some(free) => *free = step,
            None => self.far.push(step),
        }
        self.len += 1;
    }

    pub(super) fn pop(&mut self) -> Option<Step> {
        self.len = self.len.checked_sub(1)?;
        if self.len < NEAR { Some(self.near[self.len]) } else { self.far.pop() }
    }
}

/// Where a key is, or would be.
pub(super) struct Leaf<'t> {
    pub(super) path: Path,
    /// Its last step.
    pub(super) step: Step,
    pub(super) node: Node<'t>,
    pub(super) found: bool,
}

/// The error for what a node at `at` says.
pub(super) fn bad(at: PPtr<u8>) -> impl Fn(Bad) -> tx::Error {
    move |why| damaged("B+tree node", at, why)
}

impl BTree {
    #[inline]
    pub(super) fn find<'t, X: Transaction + ?Sized>(&self, tx: &'t X, key: &[u8]) -> Result<Option<&'t [u8]>> {
        let (mut at, mut node) = (self.top, self.top_node(tx)?);
        while node.header.level > 0 {
            let child = node.child_index(key).and_then(|index| node.child(index)).map_err(bad(at))?;
            (at, node) = (child, self.node(tx, child, node.header.level - 1)?);
        }
        match node.search(key).map_err(bad(at))? {
            Ok(index) => self.value(tx, node.value(index).map_err(bad(at))?).map(Some),
            Err(_) => Ok(None),
        }
    }

    #[inline]
    pub(super) fn value<'t, X: Transaction + ?Sized>(&self, tx: &'t X, value: Value<'t>) -> Result<&'t [u8]> {
        match value {
            Value::Inline(bytes) => Ok(bytes),
            Value::Block { at, len } => {
                tx.prefetch_bytes(at, len);
                held("value", at, tx.bytes(at, len))
            }
        }
    }

    #[inline]
    pub(super) fn top_node<'t, X: Transaction + ?Sized>(&self, tx: &'t X) -> Result<Node<'t>> {
        let block = held("B+tree node", self.top, tx.bytes(self.top, self.top_bytes()))?;
        Node::parse(block, self.shape).map_err(bad(self.top))
    }

    /// The node at `at`, which is of this level.
    #[inline]
    pub(super) fn node<'t, X: Transaction + ?Sized>(&self, tx: &'t X, at: PPtr<u8>, level: u16) -> Result<Node<'t>> {
        // All lines of the search at once, while the lock is taken: its steps depend on each other.
        tx.prefetch_bytes(at, self.shape.searched(level));
        let block = held("B+tree node", at, tx.bytes(at, self.shape.capacity(level) as u64))?;
        let node = Node::parse(block, self.shape).map_err(bad(at))?;
        if node.header.level == level { Ok(node) } else { Err(bad(at)("of another level")) }
    }

    /// The node that a path went through.
    pub(super) fn again<'t, X: Transaction + ?Sized>(&self, tx: &'t X, step: &Step) -> Result<Node<'t>> {
        if step.at == self.top { self.top_node(tx) } else { self.node(tx, step.at, step.level) }
    }

    /// The way to the leaf for `key`, and the leaf; true if it has the key, at the last step's index.
    #[inline]
    pub(super) fn path<'t, X: Transaction + ?Sized>(&self, tx: &'t X, key: &[u8]) -> Result<Leaf<'t>> {
        let mut path = Path::new();
        let (mut at, mut node) = (self.top, self.top_node(tx)?);
        loop {
            let level = node.header.level;
            if level == 0 {
                let found = node.search(key).map_err(bad(at))?;
                let (Ok(index) | Err(index)) = found;
                path.at_the_end &= found == Err(node.count());
                let step = Step { at, index, level };
                path.push(step);
                return Ok(Leaf { path, step, node, found: found.is_ok() });
            }
            let index = node.child_index(key).map_err(bad(at))?;
            path.at_the_end &= index == node.count();
            path.push(Step { at, index, level });
            at = node.child(index).map_err(bad(at))?;
            node = self.node(tx, at, level - 1)?;
        }
    }

    /// Writes a new node.
    pub(super) fn store_new<X: Transaction + ?Sized>(&self, tx: &mut X, at: PPtr<u8>, image: &Image) -> Result<()> {
        let bytes = image.bytes();
        tx.bytes_mut(at, bytes.len() as u64)?.copy_from_slice(bytes);
        Ok(())
    }

    /// A block for a new node, and the node in it.
    pub(super) fn alloc<X: Transaction + ?Sized>(&self, tx: &mut X, image: &Image) -> Result<PPtr<u8>> {
        let at = tx.alloc_bytes(image.bytes().len() as u64, pmem::LINE)?;
        self.store_new(tx, at, image)?;
        Ok(at)
    }

    /// Writes what has changed of these nodes, declared at once.
    pub(super) fn store<X: Transaction + ?Sized>(&self, tx: &mut X, images: &[(PPtr<u8>, &Image)]) -> Result<()> {
        let ranges: Vec<_> = images.iter().map(|(at, image)| (*at, *image, image.dirty())).collect();
        let all: Vec<Range> = ranges.iter().flat_map(|(at, _, dirty)| dirty.iter().map(|d| part(*at, d))).collect();
        tx.intend(&all)?;
        for (at, image, dirty) in ranges {
            for range in dirty {
                let Range { at, len } = part(at, &range);
                tx.bytes_mut(at, len)?.copy_from_slice(&image.bytes()[range]);
            }
        }
        Ok(())
    }
}

fn part(at: PPtr<u8>, range: &std::ops::Range<usize>) -> Range {
    Range::new(behind(at, range.start as u64), range.len() as u64)
}
