//! All blocks of a tree, and everything that must be so.

use std::collections::BTreeSet;

use pmem::PPtr;
use tx::{Result, Transaction, Typed};

use super::BTree;
use super::layout::{HEADER, SLOT, VALUE_LEN, head_of};
use super::node::{Bad, Node, Value};
use super::path::bad;
use crate::map::Report;
use crate::media::{damaged, held};

/// Keys a node may have: from the first on, before the second.
#[derive(Clone, Copy)]
struct Bounds<'k> {
    from: Option<&'k [u8]>,
    to: Option<&'k [u8]>,
}

/// A walk over all blocks: none twice.
struct Walk {
    report: Report,
    seen: BTreeSet<u64>,
}

impl Walk {
    fn block<X: Transaction + ?Sized>(&mut self, tx: &X, what: &'static str, at: PPtr<u8>, depth: u32) -> Result<()> {
        if !self.seen.insert(at.raw()) {
            return Err(damaged(what, at, "in use twice"));
        }
        self.report.blocks += 1;
        self.report.block_bytes += held(what, at, tx.room(at))?;
        self.report.depth = self.report.depth.max(depth);
        Ok(())
    }
}

impl BTree {
    pub(super) fn count<X: Transaction + ?Sized>(&self, tx: &X) -> Result<u64> {
        self.count_below(tx, self.top, self.top_node(tx)?, &mut BTreeSet::new())
    }

    fn count_below<X: Transaction + ?Sized>(
        &self,
        tx: &X,
        at: PPtr<u8>,
        node: Node<'_>,
        seen: &mut BTreeSet<u64>,
    ) -> Result<u64> {
        if !seen.insert(at.raw()) {
            return Err(bad(at)("in use twice"));
        }
        if node.header.level == 0 {
            return Ok(node.count() as u64);
        }
        (0..=node.count()).try_fold(0, |sum, index| {
            let child = node.child(index).map_err(bad(at))?;
            Ok(sum + self.count_below(tx, child, self.node(tx, child, node.header.level - 1)?, seen)?)
        })
    }

    pub(super) fn check<X: Transaction + ?Sized>(&self, tx: &X) -> Result<Report> {
        self.walk(tx).map(|walk| walk.report)
    }

    pub(super) fn free_all<X: Transaction + ?Sized>(&self, tx: &mut X) -> Result<()> {
        self.all_blocks(tx)?.into_iter().try_for_each(|block| tx.free_bytes(block))
    }

    pub(super) fn all_blocks<X: Transaction + ?Sized>(&self, tx: &X) -> Result<Vec<PPtr<u8>>> {
        Ok(self.walk(tx)?.seen.into_iter().map(PPtr::from_raw).collect())
    }

    fn walk<X: Transaction + ?Sized>(&self, tx: &X) -> Result<Walk> {
        let root = held("B+tree", self.root, tx.read(self.root))?;
        if root.top != self.top || root.key_max != self.key_max {
            return Err(damaged("B+tree", self.root, "its root is not what it was when the tree was opened"));
        }
        let mut walk = Walk { report: Report::default(), seen: BTreeSet::new() };
        walk.block(tx, "B+tree", self.root.cast(), 0)?;
        let node = self.top_node(tx)?;
        self.walk_node(tx, &mut walk, self.top, node, Bounds { from: None, to: None }, 1)?;
        Ok(walk)
    }

    fn walk_node<X: Transaction + ?Sized>(
        &self,
        tx: &X,
        walk: &mut Walk,
        at: PPtr<u8>,
        node: Node<'_>,
        bounds: Bounds<'_>,
        depth: u32,
    ) -> Result<()> {
        let why = bad(at);
        walk.block(tx, "B+tree node", at, depth)?;
        check_node(&node, bounds, self.key_max as usize).map_err(&why)?;
        if node.count() == 0 && node.header.level == 0 && at != self.top {
            return Err(why("an empty leaf"));
        }
        if node.header.level == 0 {
            return (0..node.count()).try_for_each(|index| {
                let value = node.value(index).map_err(&why)?;
                if let Value::Block { at, .. } = value {
                    walk.block(tx, "value", at, depth + 1)?;
                }
                walk.report.entries += 1;
                walk.report.key_bytes += node.key(index).map_err(&why)?.len() as u64;
                walk.report.value_bytes += self.value(tx, value)?.len() as u64;
                Ok(())
            });
        }
        (0..=node.count()).try_for_each(|index| {
            let from = index.checked_sub(1).map(|before| node.key(before)).transpose().map_err(&why)?;
            let to = (index < node.count()).then(|| node.key(index)).transpose().map_err(&why)?;
            let bounds = Bounds { from: from.or(bounds.from), to: to.or(bounds.to) };
            let child = node.child(index).map_err(&why)?;
            let below = self.node(tx, child, node.header.level - 1)?;
            self.walk_node(tx, walk, child, below, bounds, depth + 1)
        })
    }
}

/// What one node must be by itself.
fn check_node(node: &Node<'_>, bounds: Bounds<'_>, key_max: usize) -> Result<(), Bad> {
    let prefix = usize::from(node.header.prefix);
    let mut used: Vec<(usize, usize)> = Vec::with_capacity(node.count());
    let mut last: Option<&[u8]> = None;
    for index in 0..node.count() {
        let (slot, (key, tail)) = (node.slot(index)?, node.record(index)?);
        if last.is_some_and(|last| key <= last) {
            return Err("its keys are out of order");
        }
        if bounds.from.is_some_and(|from| key < from) || bounds.to.is_some_and(|to| key >= to) {
            return Err("a key belongs to another node");
        }
        if key.len() > key_max {
            return Err("a key is too long");
        }
        if key.len() < prefix || last.is_some_and(|last| last[..prefix] != key[..prefix]) {
            return Err("its keys do not share the prefix");
        }
        if slot.head != head_of(key, prefix) {
            return Err("a slot does not go with its key");
        }
        used.push((slot.at.into(), key.len() + tail.len()));
        last = Some(key);
    }
    used.sort_unstable();
    if used.windows(2).any(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
        return Err("records overlap");
    }
    let records: usize = used.iter().map(|record| record.1).sum();
    if usize::from(node.header.heap) + records + usize::from(node.header.garbage) != node.bytes.len() {
        return Err("its count of unused bytes is wrong");
    }
    Ok(())
}

const _: () = assert!(HEADER + SLOT + VALUE_LEN < super::NODE_BYTES_MIN as usize);
