//! What a graph looks like on media; `docs/format.md` describes it.

use pmem::{PPtr, Persist};
use tx::{Result, Transaction, Typed};

use crate::hash::HashRoot;
use crate::media::{Circle, Link, behind, damaged, held};

/// `"CairnGR1"`.
pub(super) const KIND: u64 = u64::from_le_bytes(*b"CairnGR1");
/// Edges of a page.
pub(super) const EDGES: usize = 30;
/// Beside a page's `next`; the direction is added.
const PAGE_KIND: u16 = 0xad00;

pub(super) const NODE: &str = "graph node";
pub(super) const PAGE: &str = "page of edges";

/// The block that a graph is opened by.
#[derive(Clone, Copy, Persist)]
#[repr(C)]
pub struct GraphRoot {
    pub(super) kind: u64,
    pub(super) index: PPtr<HashRoot>,
}

/// A node: the index's entry for its id, whose value is where its edges are.
#[derive(Clone, Copy, Persist)]
#[repr(C)]
pub(super) struct Node {
    lens: u64,
    value_len: u64,
    id: [u8; 8],
    /// Links to the first pages of edges, by direction.
    pub(super) pages: [u64; 2],
}

/// Four lines: one page of edges of one direction.
#[derive(Clone, Copy, Persist)]
#[repr(C)]
pub(super) struct Page {
    /// Link to the next; beside it the kind and the direction.
    next: u64,
    /// Link to the node.
    owner: u64,
    /// Links to nodes at the other ends; zero behind the last. Only the first page of a node has fewer than there is room for.
    pub(super) edges: [u64; EDGES],
}

const _: () = assert!(size_of::<GraphRoot>() == 16 && size_of::<Node>() == 40 && size_of::<Page>() == 256);

impl Node {
    /// The value that an entry of a node without edges has.
    pub(super) const EMPTY: [u8; 16] = [0; 16];

    /// The node at `at`.
    #[inline]
    pub(super) fn read<X: Transaction + ?Sized>(tx: &X, at: PPtr<Node>) -> Result<&Node> {
        let node = held(NODE, at, tx.read(at))?;
        if node.lens != 8 | 24 << 32 || node.value_len != 16 {
            return Err(damaged(NODE, at, "no node"));
        }
        Ok(node)
    }

    #[inline]
    pub(super) fn id(&self) -> u64 {
        u64::from_be_bytes(self.id)
    }
}

/// The word of a node that leads to its edges of this direction.
pub(super) fn pages_of(node: PPtr<Node>, side: usize) -> PPtr<u64> {
    behind(node, (std::mem::offset_of!(Node, pages) + 8 * side) as u64)
}

/// The word of a page for this edge.
pub(super) fn edge_of(page: PPtr<Page>, index: usize) -> PPtr<u64> {
    behind(page, (std::mem::offset_of!(Page, edges) + 8 * index) as u64)
}

impl Page {
    /// A page with one edge, before those that were first until now.
    pub(super) fn new(owner: PPtr<Node>, side: usize, next: u64, edge: u64) -> Self {
        let mut edges = [0; EDGES];
        edges[0] = edge;
        let next = Link::new(PPtr::<Page>::new(0, next), PAGE_KIND | side as u16).0;
        Self { next, owner: owner.offset(), edges }
    }

    /// Edges in use.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.edges.iter().position(|&edge| edge == 0).unwrap_or(EDGES)
    }

    /// Where the next page is, 0 for nowhere.
    pub(super) fn next(&self) -> u64 {
        Link(self.next).ptr::<Page>(0).offset()
    }
}

/// The pages of one node and one direction, one after the other.
pub(super) struct Pages<'t, X: ?Sized> {
    tx: &'t X,
    node: PPtr<Node>,
    side: usize,
    at: u64,
    first: bool,
    circle: Circle,
}

/// One of them.
#[derive(Clone, Copy)]
pub(super) struct PageAt<'t> {
    pub(super) at: PPtr<Page>,
    pub(super) page: &'t Page,
    pub(super) count: usize,
}

impl<'t> PageAt<'t> {
    pub(super) fn edges(&self) -> &'t [u64] {
        &self.page.edges[..self.count]
    }
}

impl<'t, X: Transaction + ?Sized> Pages<'t, X> {
    pub(super) fn new(tx: &'t X, at: PPtr<Node>, node: &Node, side: usize) -> Self {
        Self { tx, node: at, side, at: node.pages[side], first: true, circle: Circle::new() }
    }

    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<PageAt<'t>>> {
        if self.at == 0 {
            return Ok(None);
        }
        let at = PPtr::<Page>::new(self.node.tag(), self.at);
        if Link(self.at).bits() != 0 || self.circle.closes(at.raw()) {
            return Err(damaged(NODE, self.node, "its pages of edges are a circle, or none"));
        }
        let page = held(PAGE, at, self.tx.read(at))?;
        if Link(page.next).bits() != PAGE_KIND | self.side as u16 || page.owner != self.node.offset() {
            return Err(damaged(PAGE, at, "no page, or one of another node"));
        }
        let count = page.count();
        if count == 0 || count < EDGES && !self.first {
            return Err(damaged(PAGE, at, format!("{count} edges")));
        }
        (self.first, self.at) = (false, page.next());
        Ok(Some(PageAt { at, page, count }))
    }
}
