//! In order, both ways. Nodes that are still to come wait on a stack in DRAM: damage cannot make it longer than the tree, for no key is met twice.

use std::ops::Bound;

use pmem::PPtr;
use tx::{Keys, Result, Transaction, Visit};

use super::find::Between;
use super::{LEFT, NODE, Node, RIGHT, SearchTree};
use crate::entry::{ENTRY_KEY_MAX, follow};
use crate::map::Report;
use crate::media::{VALUE_MAX, damaged, held};

/// A node that waits for those before it.
struct Step<'t> {
    at: PPtr<u8>,
    node: Node<'t>,
    between: Between<'t>,
    /// Nodes from the top to it.
    depth: u32,
}

/// Goes from key to key.
struct Walk<'t, 'k, X: ?Sized> {
    tx: &'t X,
    tree: SearchTree,
    /// Keys before this one are passed over.
    from: &'k Bound<Vec<u8>>,
    /// The side that comes first.
    first: usize,
    /// Priorities are checked.
    strict: bool,
    steps: Vec<Step<'t>>,
}

impl<'t, X: Transaction + ?Sized> Walk<'t, '_, X> {
    /// Puts what is at `at` on the stack, and what comes before it, as far as it is in the range.
    fn descend(&mut self, mut at: PPtr<u8>, mut between: Between<'t>, above: Option<&Step<'t>>) -> Result<()> {
        let (mut above, mut depth) = above.map_or((None, 1), |step| (Some(step.node), step.depth + 1));
        while !at.is_null() {
            let node = between.node(self.tx, at)?;
            let priority = |node: Node<'t>| self.tree.priority(node.entry.key);
            if self.strict && above.is_some_and(|above| priority(above) < priority(node)) {
                return Err(damaged(NODE, at, "below a node of lower priority"));
            }
            let passed = match (self.from, self.first) {
                (Bound::Unbounded, _) => false,
                (Bound::Included(from), LEFT) => node.entry.key < &from[..],
                (Bound::Excluded(from), LEFT) => node.entry.key <= &from[..],
                (Bound::Included(from), _) => node.entry.key > &from[..],
                (Bound::Excluded(from), _) => node.entry.key >= &from[..],
            };
            let side = if passed { 1 - self.first } else { self.first };
            if !passed {
                self.steps.push(Step { at, node, between, depth });
            }
            between = between.beside(&node, side);
            at = node.next(side, self.tree.tag());
            (above, depth) = (Some(node), depth.saturating_add(1));
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Step<'t>>> {
        let Some(step) = self.steps.pop() else { return Ok(None) };
        let side = 1 - self.first;
        self.descend(step.node.next(side, self.tree.tag()), step.between.beside(&step.node, side), Some(&step))?;
        Ok(Some(step))
    }
}

impl SearchTree {
    fn walk<'t, 'k, X: Transaction + ?Sized>(
        &self,
        tx: &'t X,
        keys: &'k Keys,
        strict: bool,
    ) -> Result<Walk<'t, 'k, X>> {
        let (from, first) = if keys.reverse { (&keys.to, RIGHT) } else { (&keys.from, LEFT) };
        let mut walk = Walk { tx, tree: *self, from, first, strict, steps: Vec::new() };
        walk.descend(follow(tx, "search tree", self.top())?, Between::default(), None)?;
        Ok(walk)
    }

    pub(super) fn visit_range<X: Transaction + ?Sized>(&self, tx: &X, keys: &Keys, visit: Visit<'_>) -> Result<()> {
        let mut walk = self.walk(tx, keys, false)?;
        while let Some(Step { node: Node { entry, .. }, .. }) = walk.next()? {
            if !keys.contains(entry.key) || visit(entry.key, entry.value).is_break() {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn all_blocks<X: Transaction + ?Sized>(&self, tx: &X) -> Result<Vec<PPtr<u8>>> {
        let mut blocks = vec![self.root.cast()];
        let keys = Keys::all();
        let mut walk = self.walk(tx, &keys, false)?;
        while let Some(step) = walk.next()? {
            blocks.push(step.at);
        }
        Ok(blocks)
    }

    pub(super) fn check<X: Transaction + ?Sized>(&self, tx: &X) -> Result<Report> {
        let root = Self::open(tx, self.root)?;
        if (root.seed, root.balanced) != (self.seed, self.balanced) {
            return Err(damaged("search tree", self.root, "its root is not what it was when the tree was opened"));
        }
        let block_bytes = held("search tree", self.root, tx.room(self.root.cast()))?;
        let mut report = Report { blocks: 1, block_bytes, depth: 1, ..Report::default() };
        let keys = Keys::all();
        let mut walk = self.walk(tx, &keys, self.balanced)?;
        while let Some(Step { at, node: Node { entry, .. }, depth, .. }) = walk.next()? {
            if entry.key.len() as u64 > ENTRY_KEY_MAX || entry.value.len() as u64 > VALUE_MAX {
                return Err(damaged(NODE, at, "a key or value that is too long"));
            }
            report.entry(entry.key, entry.value, tx.room(at)?);
            report.depth = report.depth.max(depth.saturating_add(1));
        }
        Ok(report)
    }
}
