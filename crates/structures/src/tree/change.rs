//! Put and delete: words are read first, then set together.

use std::cmp::Ordering;

use pmem::PPtr;
use tx::{Result, Transaction, Typed};

use super::find::{Between, Spot, link_of};
use super::{LEFT, NODE, Node, RIGHT, SearchTree};
use crate::entry::{ENTRY_KEY_MAX, new_entry, overwrite};
use crate::media::{VALUE_MAX, damaged, limit, set_words};

/// A word that is to lead elsewhere, and what it says.
#[derive(Clone, Copy)]
struct Hole {
    slot: PPtr<u64>,
    word: u64,
}

/// Words to be set, and to what: those that change.
type Words = Vec<(PPtr<u64>, u64)>;

fn fill(words: &mut Words, hole: Hole, to: u64) {
    if hole.word != to {
        words.push((hole.slot, to));
    }
}

impl SearchTree {
    pub(super) fn put_pair<X: Transaction + ?Sized>(&self, tx: &mut X, key: &[u8], value: &[u8]) -> Result<bool> {
        limit("bytes of a key", key.len(), ENTRY_KEY_MAX)?;
        limit("bytes of a value", value.len(), VALUE_MAX)?;
        let own = self.priority(key);
        let spot = self.find(tx, key, |other| self.balanced && self.priority(other) < own)?;
        let Spot { slot, at, between, .. } = spot;
        if let Some(node) = spot.found() {
            let (layout, links) = (node.entry.layout(), node.links);
            overwrite(tx, slot, at, layout, &links, key, value)?;
            return Ok(true);
        }
        let (links, mut words) = self.split(tx, at, between, key)?;
        let new = new_entry(tx, &links, key, value)?;
        words.push((slot, new.offset()));
        set_words(tx, &words)?;
        Ok(false)
    }

    /// Takes the tree at `at` apart: what is smaller than a key, and what is larger.
    pub(super) fn split<'t, X: Transaction + ?Sized>(
        &self,
        tx: &'t X,
        mut at: PPtr<u8>,
        mut between: Between<'t>,
        key: &[u8],
    ) -> Result<([u64; 2], Words)> {
        let (mut parts, mut words) = ([0; 2], Words::new());
        // Where the next of each part goes; at first that is the new node, which is not written yet.
        let mut holes: [Option<Hole>; 2] = [None; 2];
        while !at.is_null() {
            let node = between.node(tx, at)?;
            let side = match node.entry.key.cmp(key) {
                Ordering::Less => LEFT,
                Ordering::Greater => RIGHT,
                Ordering::Equal => return Err(damaged(NODE, at, "below a node of lower priority")),
            };
            match holes[side] {
                Some(hole) => fill(&mut words, hole, at.offset()),
                None => parts[side] = at.offset(),
            }
            let inner = 1 - side;
            holes[side] = Some(Hole { slot: link_of(at, inner), word: node.links[inner] });
            between = between.beside(&node, inner);
            at = node.next(inner, self.tag());
        }
        holes.into_iter().flatten().for_each(|hole| fill(&mut words, hole, 0));
        Ok((parts, words))
    }

    pub(super) fn delete_key<X: Transaction + ?Sized>(&self, tx: &mut X, key: &[u8]) -> Result<bool> {
        let Some((at, words)) = self.words_of_delete(tx, key)? else { return Ok(false) };
        set_words(tx, &words)?;
        tx.free(at)?;
        Ok(true)
    }

    /// The key's node, and the words to be set so that nothing leads there; the first is the one that does now.
    pub(super) fn words_of_delete<X: Transaction + ?Sized>(
        &self,
        tx: &X,
        key: &[u8],
    ) -> Result<Option<(PPtr<u8>, Words)>> {
        let spot = self.find(tx, key, |_| false)?;
        let Some(node) = spot.found() else { return Ok(None) };
        let hole = Hole { slot: spot.slot, word: spot.at.offset() };
        let words = match node.links {
            [only, 0] | [0, only] => {
                let mut words = Words::new();
                fill(&mut words, hole, only);
                words
            }
            _ if self.balanced => self.merge(tx, hole, &node, spot.between)?,
            _ => self.succeed(tx, hole, &node, spot.between)?,
        };
        Ok(Some((spot.at, words)))
    }

    /// Makes one tree of both sides of a node: the higher priority is further up.
    fn merge<'t, X: Transaction + ?Sized>(
        &self,
        tx: &'t X,
        mut hole: Hole,
        gone: &Node<'t>,
        between: Between<'t>,
    ) -> Result<Words> {
        let mut words = Words::new();
        let mut at = [gone.next(LEFT, self.tag()), gone.next(RIGHT, self.tag())];
        let mut between = [between.beside(gone, LEFT), between.beside(gone, RIGHT)];
        loop {
            let [left, right] = at;
            if left.is_null() || right.is_null() {
                fill(&mut words, hole, left.offset() | right.offset());
                return Ok(words);
            }
            let nodes = [between[LEFT].node(tx, left)?, between[RIGHT].node(tx, right)?];
            let higher = self.priority(nodes[LEFT].entry.key) > self.priority(nodes[RIGHT].entry.key);
            let side = if higher { LEFT } else { RIGHT };
            let (node, inner) = (nodes[side], 1 - side);
            fill(&mut words, hole, at[side].offset());
            hole = Hole { slot: link_of(at[side], inner), word: node.links[inner] };
            between[side] = between[side].beside(&node, inner);
            at[side] = node.next(inner, self.tag());
        }
    }

    /// Puts the next larger key's node in the place of one with two sides (Hibbard 1962).
    fn succeed<'t, X: Transaction + ?Sized>(
        &self,
        tx: &'t X,
        hole: Hole,
        gone: &Node<'t>,
        between: Between<'t>,
    ) -> Result<Words> {
        let mut words = Words::new();
        let (mut above, mut at) = (None, gone.next(RIGHT, self.tag()));
        let mut between = between.beside(gone, RIGHT);
        let mut node = between.node(tx, at)?;
        while node.links[LEFT] != 0 {
            above = Some(Hole { slot: link_of(at, LEFT), word: node.links[LEFT] });
            between = between.beside(&node, LEFT);
            at = node.next(LEFT, self.tag());
            node = between.node(tx, at)?;
        }
        fill(&mut words, hole, at.offset());
        fill(&mut words, Hole { slot: link_of(at, LEFT), word: 0 }, gone.links[LEFT]);
        if let Some(above) = above {
            fill(&mut words, above, node.links[RIGHT]);
            fill(&mut words, Hole { slot: link_of(at, RIGHT), word: node.links[RIGHT] }, gone.links[RIGHT]);
        }
        Ok(words)
    }
}
