//! Nodes and edges come and go. What is to change is read first, then declared and written together.

use pmem::PPtr;
use tx::{Result, Transaction, Typed};

use super::layout::{EDGES, NODE, Node, Page, PageAt, Pages, edge_of, pages_of};
use super::{Graph, IN, OUT};
use crate::map::Map;
use crate::media::{change, damaged, set_words};

/// What a change writes and frees.
#[derive(Default)]
struct Plan {
    words: Vec<(PPtr<u64>, u64)>,
    /// Pages to be made, and the words that will lead there.
    pages: Vec<(PPtr<u64>, Page)>,
    free: Vec<PPtr<u8>>,
}

impl Plan {
    fn run<X: Transaction + ?Sized>(mut self, tx: &mut X) -> Result<()> {
        for (slot, page) in &self.pages {
            let at: PPtr<Page> = tx.alloc_bytes(size_of::<Page>() as u64, pmem::LINE)?.cast();
            *tx.write(at)? = *page;
            self.words.push((*slot, at.offset()));
        }
        set_words(tx, &self.words)?;
        self.free.into_iter().try_for_each(|block| tx.free_bytes(block))
    }
}

impl Graph {
    /// Adds a node without edges; false if there is one with this id.
    ///
    /// # Errors
    /// Those of the transaction; no space; [`tx::Error::Damaged`].
    pub fn add_node<X: Transaction + ?Sized>(&self, tx: &mut X, id: u64) -> Result<bool> {
        if self.has_node(tx, id)? {
            return Ok(false);
        }
        self.index.put(tx, &id.to_be_bytes(), &Node::EMPTY).map(|had| !had)
    }

    /// Removes a node and all its edges; false if there is none. It looks for each edge at its other end.
    ///
    /// # Errors
    /// As [`add_node`](Self::add_node).
    pub fn remove_node<X: Transaction + ?Sized>(&self, tx: &mut X, id: u64) -> Result<bool> {
        change(tx, |tx| {
            let Some((slot, at)) = self.index.locate(tx, &id.to_be_bytes())? else { return Ok(false) };
            let at = at.cast();
            let mut plan = Plan { words: vec![(slot, 0)], ..Plan::default() };
            for side in [OUT, IN] {
                let mut pages = Pages::new(tx, at, Node::read(tx, at)?, side);
                while let Some(page) = pages.next()? {
                    plan.free.push(page.at.cast());
                    for end in page.edges().iter().map(|&edge| PPtr::new(at.tag(), edge)).filter(|&end| end != at) {
                        self.unlink(tx, &mut plan, end, 1 - side, at)?;
                    }
                }
            }
            plan.free.push(at.cast());
            plan.run(tx)?;
            Ok(true)
        })
    }

    /// Adds an edge; false if there is one.
    ///
    /// # Errors
    /// [`tx::Error::Aborted`] if there is no such node; as [`add_node`](Self::add_node).
    pub fn add_edge<X: Transaction + ?Sized>(&self, tx: &mut X, from: u64, to: u64) -> Result<bool> {
        change(tx, |tx| {
            let ends = [from, to].map(|id| (id, self.find(tx, id)));
            let mut nodes = [PPtr::NULL; 2];
            for (node, (id, found)) in nodes.iter_mut().zip(ends) {
                *node = match found? {
                    Some(at) => at,
                    None => return Err(tx.refuse(format!("an edge needs node {id}, which is not there"))),
                };
            }
            let [from, to] = nodes;
            if self.leads(tx, from, to)? {
                return Ok(false);
            }
            let mut plan = Plan::default();
            self.link(tx, &mut plan, from, OUT, to)?;
            self.link(tx, &mut plan, to, IN, from)?;
            plan.run(tx)?;
            Ok(true)
        })
    }

    /// Removes an edge; false if there is none.
    ///
    /// # Errors
    /// As [`add_node`](Self::add_node).
    pub fn remove_edge<X: Transaction + ?Sized>(&self, tx: &mut X, from: u64, to: u64) -> Result<bool> {
        change(tx, |tx| {
            let (Some(from), Some(to)) = (self.find(tx, from)?, self.find(tx, to)?) else { return Ok(false) };
            if !self.leads(tx, from, to)? {
                return Ok(false);
            }
            let mut plan = Plan::default();
            self.unlink(tx, &mut plan, from, OUT, to)?;
            self.unlink(tx, &mut plan, to, IN, from)?;
            plan.run(tx)?;
            Ok(true)
        })
    }

    /// One end of a new edge: behind the last of the first page, or in a new first page.
    fn link<X: Transaction + ?Sized>(
        &self,
        tx: &X,
        plan: &mut Plan,
        at: PPtr<Node>,
        side: usize,
        end: PPtr<Node>,
    ) -> Result<()> {
        let node = Node::read(tx, at)?;
        match Pages::new(tx, at, node, side).next()? {
            Some(first) if first.count < EDGES => plan.words.push((edge_of(first.at, first.count), end.offset())),
            _ => plan.pages.push((pages_of(at, side), Page::new(at, side, node.pages[side], end.offset()))),
        }
        Ok(())
    }

    /// One end of an edge that goes: the last of the first page takes its place. No plan does this twice to one node and direction.
    fn unlink<X: Transaction + ?Sized>(
        &self,
        tx: &X,
        plan: &mut Plan,
        at: PPtr<Node>,
        side: usize,
        end: PPtr<Node>,
    ) -> Result<()> {
        let mut pages = Pages::new(tx, at, Node::read(tx, at)?, side);
        let mut first: Option<PageAt<'_>> = None;
        while let Some(page) = pages.next()? {
            let first = *first.get_or_insert(page);
            let Some(index) = page.edges().iter().position(|&edge| edge == end.offset()) else { continue };
            let last = first.count - 1;
            if (page.at, index) != (first.at, last) {
                plan.words.push((edge_of(page.at, index), first.page.edges[last]));
            }
            if last > 0 {
                plan.words.push((edge_of(first.at, last), 0));
            } else {
                plan.words.push((pages_of(at, side), first.page.next()));
                plan.free.push(first.at.cast());
            }
            return Ok(());
        }
        Err(damaged(NODE, at, format!("has no edge that node {:#x} has", end.offset())))
    }
}
