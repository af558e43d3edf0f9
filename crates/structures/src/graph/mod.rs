//! A directed graph: adjacency lists in pages (as in the six-degrees graph of MARS, §5.3).
//!
//! A node is an entry of a hash map from ids, which never moves, so that edges lead to it without a look at the map. Each node has two chains of
//! pages, of edges that leave it and of edges that come in; a page has 30 edges, and only the first page of a chain has fewer. So a new edge
//! is one word at each end, a removed one at most two: the last edge of the first page takes its place. A page that is
//! empty is freed.
//!
//! | file | what it does |
//! |---|---|
//! | `layout` | bytes; pages, one after the other |
//! | `change` | nodes and edges come and go |
//! | `search` | breadth first, and paths between two nodes |
//! | `walk` | all blocks; the checks of `verify` |

mod change;
mod layout;
mod search;
#[cfg(test)]
mod tests;
mod walk;

use std::ops::ControlFlow;

use pmem::PPtr;
use tx::{Result, Transaction, Typed};

pub use layout::GraphRoot;
use layout::{EDGES, KIND, Node, Pages};
pub use walk::GraphReport;

use crate::hash::{HashMap, HashMapOptions};
use crate::media::{change, damaged, held};

/// Which edges of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Those that leave it.
    Out,
    /// Those that lead to it.
    In,
}

impl Direction {
    fn side(self) -> usize {
        match self {
            Self::Out => OUT,
            Self::In => IN,
        }
    }
}

const OUT: usize = 0;
const IN: usize = 1;

/// How a [`Graph`] is made.
///
/// ```
/// let options = structures::GraphOptions::new().capacity(1_000_000);
/// # let _ = options;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct GraphOptions {
    index: HashMapOptions,
}

impl Default for GraphOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl GraphOptions {
    /// Room for a thousand nodes; grows.
    pub fn new() -> Self {
        Self { index: HashMapOptions::new() }
    }

    /// Nodes to make room for at once.
    #[must_use]
    pub fn capacity(self, nodes: u64) -> Self {
        Self { index: self.index.capacity(nodes) }
    }

    /// Seed of the index's hash. Ids that a stranger chooses need one that is unknown to the stranger.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { index: self.index.seed(seed) }
    }
}

/// A directed graph. Nodes have ids, of any 64 bits; between two nodes there is one edge in each direction at most, and one from a node to itself.
/// What else there is to say about a node or an edge is kept in a map by these ids.
///
/// ```
/// use structures::{Direction, Graph, GraphOptions};
/// use tx::{Engine, Isolation, Reference, Typed};
///
/// let engine = Reference::new();
/// engine.transact(Isolation::Strict, |tx| -> tx::Result<()> {
///     let graph = Graph::create(tx, &GraphOptions::new())?;
///     for person in 1..=5 {
///         graph.add_node(tx, person)?;
///     }
///     for (who, knows) in [(1, 2), (2, 3), (3, 4), (1, 4), (4, 5)] {
///         graph.add_edge(tx, who, knows)?;
///     }
///     tx.set_root(graph.root())
/// })?;
/// engine.transact(Isolation::Strict, |tx| -> tx::Result<()> {
///     let graph = Graph::open(tx, tx.root()?)?;
///     assert_eq!(graph.degree(tx, 4, Direction::In)?, Some(2));
///     assert_eq!(graph.path(tx, 1, 5, 6)?, Some(vec![1, 4, 5]));
///     graph.remove_node(tx, 4)?;
///     assert_eq!(graph.path(tx, 1, 5, 6)?, None);
///     Ok(())
/// })?;
/// # Ok::<(), tx::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Graph {
    root: PPtr<GraphRoot>,
    index: HashMap,
}

impl Graph {
    /// Edges of one direction that a page has room for: 256 bytes.
    pub const PAGE_EDGES: usize = EDGES;

    /// A new, empty graph.
    ///
    /// # Errors
    /// As [`Transaction::alloc_bytes`].
    pub fn create<X: Transaction + ?Sized>(tx: &mut X, options: &GraphOptions) -> Result<Self> {
        change(tx, |tx| {
            let index = HashMap::create(tx, &options.index)?;
            let root = tx.alloc(&GraphRoot { kind: KIND, index: index.root() })?;
            Ok(Self { root, index })
        })
    }

    /// The graph whose root block is at `root`.
    ///
    /// # Errors
    /// [`tx::Error::Damaged`] if there is none.
    pub fn open<X: Transaction + ?Sized>(tx: &X, root: PPtr<GraphRoot>) -> Result<Self> {
        let found = held("graph", root, tx.read(root))?;
        if found.kind != KIND {
            return Err(damaged("graph", root, "no root of a graph"));
        }
        Ok(Self { root, index: HashMap::open(tx, found.index)? })
    }

    /// Pointer to the block that the graph is opened by.
    pub fn root(&self) -> PPtr<GraphRoot> {
        self.root
    }

    /// True if there is such a node.
    ///
    /// # Errors
    /// Those of the transaction; [`tx::Error::Damaged`].
    pub fn has_node<X: Transaction + ?Sized>(&self, tx: &X, id: u64) -> Result<bool> {
        Ok(self.find(tx, id)?.is_some())
    }

    /// True if there is an edge from the one to the other. The shorter of the two lists decides.
    ///
    /// # Errors
    /// As [`has_node`](Self::has_node).
    pub fn has_edge<X: Transaction + ?Sized>(&self, tx: &X, from: u64, to: u64) -> Result<bool> {
        match (self.find(tx, from)?, self.find(tx, to)?) {
            (Some(from), Some(to)) => self.leads(tx, from, to),
            _ => Ok(false),
        }
    }

    /// How many edges a node has; `None` if there is no such node. It goes through their pages.
    ///
    /// # Errors
    /// As [`has_node`](Self::has_node).
    pub fn degree<X: Transaction + ?Sized>(&self, tx: &X, id: u64, direction: Direction) -> Result<Option<u64>> {
        let Some(at) = self.find(tx, id)? else { return Ok(None) };
        let mut pages = Pages::new(tx, at, Node::read(tx, at)?, direction.side());
        let mut sum = 0;
        while let Some(page) = pages.next()? {
            sum += page.count as u64;
        }
        Ok(Some(sum))
    }

    /// Calls `visit` with the nodes at the other ends of a node's edges, in no order; false if there is no such node.
    ///
    /// # Errors
    /// As [`has_node`](Self::has_node).
    pub fn neighbours<X: Transaction + ?Sized>(
        &self,
        tx: &X,
        id: u64,
        direction: Direction,
        mut visit: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<bool> {
        let Some(at) = self.find(tx, id)? else { return Ok(false) };
        self.ends(tx, at, direction.side(), |end| Ok(visit(Node::read(tx, end)?.id())))?;
        Ok(true)
    }

    /// Calls `visit` with the ids of all nodes, in no order.
    ///
    /// # Errors
    /// As [`has_node`](Self::has_node).
    pub fn nodes<X: Transaction + ?Sized>(&self, tx: &X, mut visit: impl FnMut(u64) -> ControlFlow<()>) -> Result<()> {
        self.index.each_offset(tx, |at| Ok(visit(Node::read(tx, at.cast())?.id())))
    }

    /// The node of this id.
    #[inline]
    fn find<X: Transaction + ?Sized>(&self, tx: &X, id: u64) -> Result<Option<PPtr<Node>>> {
        Ok(self.index.locate(tx, &id.to_be_bytes())?.map(|(_, at)| at.cast()))
    }

    /// Calls `visit` with the nodes at the other ends, until it says so.
    #[inline]
    fn ends<X: Transaction + ?Sized>(
        &self,
        tx: &X,
        at: PPtr<Node>,
        side: usize,
        mut visit: impl FnMut(PPtr<Node>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut pages = Pages::new(tx, at, Node::read(tx, at)?, side);
        while let Some(page) = pages.next()? {
            for &edge in page.edges() {
                if visit(PPtr::new(at.tag(), edge))?.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// True if an edge leads from one node to the other.
    fn leads<X: Transaction + ?Sized>(&self, tx: &X, from: PPtr<Node>, to: PPtr<Node>) -> Result<bool> {
        let mut out = Pages::new(tx, from, Node::read(tx, from)?, OUT);
        let mut into = Pages::new(tx, to, Node::read(tx, to)?, IN);
        loop {
            for (pages, end) in [(&mut out, to), (&mut into, from)] {
                match pages.next()? {
                    Some(page) if page.edges().contains(&end.offset()) => return Ok(true),
                    Some(_) => {}
                    None => return Ok(false),
                }
            }
        }
    }
}
