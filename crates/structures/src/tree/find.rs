//! The way down: every node on it has a key between those of the nodes above it.

use std::cmp::Ordering;

use pmem::PPtr;
use tx::{Result, Transaction};

use super::{LEFT, NODE, Node, RIGHT, SearchTree};
use crate::entry::follow;
use crate::media::{behind, damaged};

/// Keys there may be at some place: behind the first, before the second.
#[derive(Clone, Copy, Default)]
pub(super) struct Between<'t> {
    from: Option<&'t [u8]>,
    to: Option<&'t [u8]>,
}

impl<'t> Between<'t> {
    /// The node at `at`, if its key may be here.
    #[inline]
    pub(super) fn node<X: Transaction + ?Sized>(&self, tx: &'t X, at: PPtr<u8>) -> Result<Node<'t>> {
        let node = Node::read(tx, NODE, at)?;
        let key = node.entry.key;
        if self.from.is_some_and(|from| key <= from) || self.to.is_some_and(|to| key >= to) {
            return Err(damaged(NODE, at, "its key does not belong below the nodes above it"));
        }
        Ok(node)
    }

    /// On this side of a node that is here.
    #[inline]
    pub(super) fn beside(self, node: &Node<'t>, side: usize) -> Self {
        match side {
            LEFT => Self { to: Some(node.entry.key), ..self },
            _ => Self { from: Some(node.entry.key), ..self },
        }
    }
}

/// Where a way ends.
pub(super) struct Spot<'t> {
    /// The word that leads there.
    pub(super) slot: PPtr<u64>,
    /// The node there, or null.
    pub(super) at: PPtr<u8>,
    node: Option<Node<'t>>,
    pub(super) between: Between<'t>,
    found: bool,
}

impl<'t> Spot<'t> {
    /// The node, if it has the key that was looked for.
    #[inline]
    pub(super) fn found(&self) -> Option<Node<'t>> {
        self.node.filter(|_| self.found)
    }
}

impl SearchTree {
    /// Goes down to the node with this key, or to the first whose key `stop` names, or to where the key would be.
    #[inline]
    pub(super) fn find<'t, X: Transaction + ?Sized>(
        &self,
        tx: &'t X,
        key: &[u8],
        stop: impl Fn(&[u8]) -> bool,
    ) -> Result<Spot<'t>> {
        let mut slot = self.top();
        let mut at = follow(tx, "search tree", slot)?;
        let mut between = Between::default();
        while !at.is_null() {
            let node = between.node(tx, at)?;
            let side = match key.cmp(node.entry.key) {
                Ordering::Equal => return Ok(Spot { slot, at, node: Some(node), between, found: true }),
                _ if stop(node.entry.key) => return Ok(Spot { slot, at, node: Some(node), between, found: false }),
                Ordering::Less => LEFT,
                Ordering::Greater => RIGHT,
            };
            between = between.beside(&node, side);
            (slot, at) = (link_of(at, side), node.next(side, self.tag()));
        }
        Ok(Spot { slot, at, node: None, between, found: false })
    }
}

/// The word of a node that leads to this side.
#[inline]
pub(super) fn link_of(node: PPtr<u8>, side: usize) -> PPtr<u64> {
    behind(node, 8 * side as u64)
}
