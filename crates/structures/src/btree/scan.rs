//! Scans in both directions, over the nodes between the top and the current leaf.

use std::ops::{Bound, ControlFlow};

use tx::{Keys, Result, Transaction, Visit};

use super::BTree;
use super::node::{Node, Value};
use super::path::{Path, Step, bad};

/// Records between one that is visited and the one whose value is asked for.
const AHEAD: usize = 3;

impl BTree {
    pub(super) fn visit_range<X: Transaction + ?Sized>(&self, tx: &X, keys: &Keys, visit: Visit<'_>) -> Result<()> {
        let (mut path, mut index) = self.start(tx, keys)?;
        let mut last: Option<&[u8]> = None;
        while let Some(leaf) = path.pop() {
            let node = self.again(tx, &leaf)?;
            let why = bad(leaf.at);
            if node.count() == 0 && leaf.at != self.top {
                return Err(why("an empty leaf"));
            }
            let mut left = if keys.reverse { index } else { node.count() - index.min(node.count()) };
            while left > 0 {
                let at = if keys.reverse { left - 1 } else { node.count() - left };
                let key = node.key(at).map_err(&why)?;
                // Keys go one way: a leaf that damage leads to again is noticed.
                if last.is_some_and(|last| (key > last) == keys.reverse || key == last) {
                    return Err(why("its keys are out of order"));
                }
                if beyond(key, keys) {
                    return Ok(());
                }
                self.ask_for(tx, &node, if keys.reverse { at.wrapping_sub(AHEAD) } else { at + AHEAD });
                let value = self.value(tx, node.value(at).map_err(&why)?)?;
                if visit(key, value) == ControlFlow::Break(()) {
                    return Ok(());
                }
                last = Some(key);
                left -= 1;
            }
            index = self.next_leaf(tx, &mut path, keys.reverse)?;
        }
        Ok(())
    }

    /// Asks for the value of a record that will soon be visited, if it has a block.
    #[inline]
    fn ask_for<X: Transaction + ?Sized>(&self, tx: &X, leaf: &Node<'_>, index: usize) {
        if index < leaf.count()
            && let Ok(Value::Block { at, len }) = leaf.value(index)
        {
            tx.prefetch_bytes(at, len);
        }
    }

    /// The way to the first leaf, and the records before (`reverse`) or from which on it is scanned.
    fn start<X: Transaction + ?Sized>(&self, tx: &X, keys: &Keys) -> Result<(Path, usize)> {
        let bound = if keys.reverse { &keys.to } else { &keys.from };
        let (key, included) = match bound {
            Bound::Included(key) => (key, true),
            Bound::Excluded(key) => (key, false),
            Bound::Unbounded => {
                let mut path = Path::new();
                let index = self.edge(tx, &mut path, self.top_node(tx)?, self.top, keys.reverse)?;
                return Ok((path, index));
            }
        };
        let leaf = self.path(tx, key)?;
        // The record of the bound itself is skipped forwards if excluded, taken backwards if included.
        Ok((leaf.path, leaf.step.index + usize::from(leaf.found && included == keys.reverse)))
    }

    /// Goes down to the outermost leaf below `node`.
    fn edge<'t, X: Transaction + ?Sized>(
        &self,
        tx: &'t X,
        path: &mut Path,
        mut node: Node<'t>,
        mut at: pmem::PPtr<u8>,
        reverse: bool,
    ) -> Result<usize> {
        loop {
            let (level, index) = (node.header.level, if reverse { node.count() } else { 0 });
            path.push(Step { at, index, level });
            if level == 0 {
                return Ok(index);
            }
            at = node.child(index).map_err(bad(at))?;
            node = self.node(tx, at, level - 1)?;
        }
    }

    /// Goes up until there is a next child, and down from there; leaves the path empty at the end.
    fn next_leaf<X: Transaction + ?Sized>(&self, tx: &X, path: &mut Path, reverse: bool) -> Result<usize> {
        while let Some(step) = path.pop() {
            let node = self.again(tx, &step)?;
            let next = if reverse { step.index.checked_sub(1) } else { Some(step.index + 1) };
            let Some(index) = next.filter(|&index| index <= node.count()) else { continue };
            path.push(Step { index, ..step });
            let at = node.child(index).map_err(bad(step.at))?;
            let child = self.node(tx, at, step.level - 1)?;
            return self.edge(tx, path, child, at, reverse);
        }
        Ok(0)
    }
}

/// True if `key` is behind the end of the scan.
fn beyond(key: &[u8], keys: &Keys) -> bool {
    match (&keys.to, &keys.from, keys.reverse) {
        (Bound::Included(to), _, false) => key > &to[..],
        (Bound::Excluded(to), _, false) => key >= &to[..],
        (_, Bound::Included(from), true) => key < &from[..],
        (_, Bound::Excluded(from), true) => key <= &from[..],
        _ => false,
    }
}
