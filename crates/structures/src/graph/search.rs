//! Breadth first. What was seen is kept in DRAM.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::ControlFlow;

use pmem::PPtr;
use tx::{Result, Transaction};

use super::layout::Node;
use super::{Graph, IN, OUT};

/// What one end of a search has reached.
struct Half {
    side: usize,
    /// Each node, and the one it was reached from; the first from itself.
    reached: BTreeMap<u64, u64>,
    /// Those that were reached last.
    edge: Vec<u64>,
}

impl Half {
    fn new(at: PPtr<Node>, side: usize) -> Self {
        Self { side, reached: BTreeMap::from([(at.offset(), at.offset())]), edge: vec![at.offset()] }
    }

    /// From a node back to where the search began.
    fn way(&self, from: u64) -> Vec<u64> {
        let mut way = vec![from];
        while let Some(&before) =
            way.last().and_then(|last| self.reached.get(last)).filter(|before| way.last() != Some(before))
        {
            way.push(before);
        }
        way
    }
}

impl Graph {
    /// Calls `visit` with all nodes that can be reached over at most `depth` edges, nearest first, and over how many; the first is `from` itself,
    /// if it is there.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// use structures::{Graph, GraphOptions};
    /// use tx::{Engine, Isolation, Reference};
    ///
    /// let engine = Reference::new();
    /// let near = engine.transact(Isolation::Strict, |tx| -> tx::Result<_> {
    ///     let graph = Graph::create(tx, &GraphOptions::new())?;
    ///     (0..5).try_for_each(|id| graph.add_node(tx, id).map(drop))?;
    ///     (0..4).try_for_each(|id| graph.add_edge(tx, id, id + 1).map(drop))?;
    ///     let mut near = Vec::new();
    ///     graph.breadth_first(tx, 1, 2, |id, distance| {
    ///         near.push((id, distance));
    ///         ControlFlow::Continue(())
    ///     })?;
    ///     Ok(near)
    /// })?;
    /// assert_eq!(near, [(1, 0), (2, 1), (3, 2)]);
    /// # Ok::<(), tx::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`has_node`](Self::has_node).
    pub fn breadth_first<X: Transaction + ?Sized>(
        &self,
        tx: &X,
        from: u64,
        depth: u32,
        mut visit: impl FnMut(u64, u32) -> ControlFlow<()>,
    ) -> Result<()> {
        let Some(first) = self.find(tx, from)? else { return Ok(()) };
        let mut reached = BTreeSet::from([first.offset()]);
        let mut edge = vec![first];
        for distance in 0..=depth {
            let mut next = Vec::new();
            for at in edge {
                if visit(Node::read(tx, at)?.id(), distance).is_break() {
                    return Ok(());
                }
                if distance < depth {
                    self.ends(tx, at, OUT, |end| {
                        if reached.insert(end.offset()) {
                            next.push(end);
                        }
                        Ok(ControlFlow::Continue(()))
                    })?;
                }
            }
            if next.is_empty() {
                break;
            }
            edge = next;
        }
        Ok(())
    }

    /// A shortest path of at most `edges` edges: the ids along it, both ends among them. It searches from both ends, always where fewer nodes are
    /// waiting.
    ///
    /// # Errors
    /// As [`has_node`](Self::has_node).
    pub fn path<X: Transaction + ?Sized>(&self, tx: &X, from: u64, to: u64, edges: u32) -> Result<Option<Vec<u64>>> {
        let (Some(from), Some(to)) = (self.find(tx, from)?, self.find(tx, to)?) else { return Ok(None) };
        let mut halves = [Half::new(from, OUT), Half::new(to, IN)];
        let mut met = (from == to).then_some(from.offset());
        for _ in 0..edges {
            if met.is_some() || halves.iter().any(|half| half.edge.is_empty()) {
                break;
            }
            let shorter = usize::from(halves[IN].edge.len() < halves[OUT].edge.len());
            let [out, into] = &mut halves;
            let (half, other) = if shorter == OUT { (out, into) } else { (into, out) };
            met = self.widen(tx, half, other, from.tag())?;
        }
        let Some(met) = met else { return Ok(None) };
        let mut path = halves[OUT].way(met);
        path.reverse();
        path.extend(halves[IN].way(met).into_iter().skip(1));
        path.into_iter().map(|at| Ok(Node::read(tx, PPtr::new(from.tag(), at))?.id())).collect::<Result<_>>().map(Some)
    }

    /// Goes one edge further; the first node that the other half has reached, too. All of those are equally far: if one of them were nearer to
    /// the other half's beginning, the node before it would have been met.
    fn widen<X: Transaction + ?Sized>(&self, tx: &X, half: &mut Half, other: &Half, tag: u16) -> Result<Option<u64>> {
        let (mut met, mut next) = (None, Vec::new());
        for at in mem::take(&mut half.edge) {
            self.ends(tx, PPtr::new(tag, at), half.side, |end| {
                if let std::collections::btree_map::Entry::Vacant(new) = half.reached.entry(end.offset()) {
                    new.insert(at);
                    next.push(end.offset());
                    if other.reached.contains_key(&end.offset()) {
                        met = Some(end.offset());
                        return Ok(ControlFlow::Break(()));
                    }
                }
                Ok(ControlFlow::Continue(()))
            })?;
            if met.is_some() {
                break;
            }
        }
        half.edge = next;
        Ok(met)
    }
}
