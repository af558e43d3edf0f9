//! All blocks of a graph, and everything that must be so.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use pmem::PPtr;
use tx::{Result, Transaction, Typed};

use super::layout::{KIND, NODE, Node, PAGE, Pages};
use super::{Graph, IN, OUT};
use crate::map::Map;
use crate::media::{change, damaged, held};

/// What a walk over all of a [`Graph`] found; nothing was wrong with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphReport {
    /// Nodes.
    pub nodes: u64,
    /// Edges.
    pub edges: u64,
    /// Pages of edges.
    pub pages: u64,
    /// Most edges of one node in one direction.
    pub degree_max: u64,
    /// Blocks the graph holds.
    pub blocks: u64,
    /// Bytes of these blocks.
    pub block_bytes: u64,
}

impl Graph {
    /// Walks and checks everything; both ends of every edge are noted in DRAM.
    ///
    /// # Errors
    /// [`tx::Error::Damaged`] names the first thing that is wrong.
    pub fn verify<X: Transaction + ?Sized>(&self, tx: &X) -> Result<GraphReport> {
        let root = held("graph", self.root, tx.read(self.root))?;
        if root.kind != KIND || root.index != self.index.root() {
            return Err(damaged("graph", self.root, "its root is not what it was when the graph was opened"));
        }
        let index = self.index.verify(tx)?;
        let mut report = GraphReport {
            nodes: index.entries,
            blocks: index.blocks + 1,
            block_bytes: index.block_bytes + held("graph", self.root, tx.room(self.root.cast()))?,
            ..GraphReport::default()
        };
        let mut edges = [BTreeSet::new(), BTreeSet::new()];
        for at in self.node_offsets(tx)? {
            let node = Node::read(tx, at)?;
            for side in [OUT, IN] {
                let (mut pages, mut degree) = (Pages::new(tx, at, node, side), 0);
                while let Some(page) = pages.next()? {
                    if page.page.edges[page.count..].iter().any(|&edge| edge != 0) {
                        return Err(damaged(PAGE, page.at, "an edge behind the last"));
                    }
                    for &end in page.edges() {
                        let edge = if side == OUT { (at.offset(), end) } else { (end, at.offset()) };
                        if !edges[side].insert(edge) {
                            return Err(damaged(PAGE, page.at, "an edge that is there twice"));
                        }
                    }
                    degree += page.count as u64;
                    report.pages += 1;
                    report.blocks += 1;
                    report.block_bytes += held(PAGE, page.at, tx.room(page.at.cast()))?;
                }
                report.degree_max = report.degree_max.max(degree);
            }
        }
        let [out, into] = edges;
        if let Some(&(from, to)) = out.symmetric_difference(&into).next() {
            let at = PPtr::<Node>::new(self.root.tag(), from);
            return Err(damaged(NODE, at, format!("an edge to {to:#x} is known at one end only")));
        }
        report.edges = out.len() as u64;
        Ok(report)
    }

    /// Its blocks, each once, the one it is opened by among them.
    ///
    /// # Errors
    /// As [`verify`](Self::verify).
    pub fn blocks<X: Transaction + ?Sized>(&self, tx: &X) -> Result<Vec<PPtr<u8>>> {
        let mut blocks = self.index.blocks(tx)?;
        blocks.push(self.root.cast());
        for at in self.node_offsets(tx)? {
            for side in [OUT, IN] {
                let mut pages = Pages::new(tx, at, Node::read(tx, at)?, side);
                while let Some(page) = pages.next()? {
                    blocks.push(page.at.cast());
                }
            }
        }
        Ok(blocks)
    }

    /// Frees all blocks. Handles lead nowhere afterwards.
    ///
    /// # Errors
    /// As [`verify`](Self::verify).
    pub fn destroy<X: Transaction + ?Sized>(self, tx: &mut X) -> Result<()> {
        change(tx, |tx| self.blocks(tx)?.into_iter().try_for_each(|block| tx.free_bytes(block)))
    }

    /// All nodes.
    fn node_offsets<X: Transaction + ?Sized>(&self, tx: &X) -> Result<Vec<PPtr<Node>>> {
        let mut found = Vec::new();
        self.index.each_offset(tx, |at| {
            found.push(at.cast());
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }
}
