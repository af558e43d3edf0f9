//! Leaves that have become nearly empty go.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;

use crate::error::Result;
use crate::index::{Chunk, Index, NO_NODE, Old, Root, SLOTS, Spot};
use crate::isolation::active::Pin;
use crate::raw::Published;

/// Two leaves with no more than this together become one.
const ENOUGH: usize = SLOTS / 2;

impl Index {
    /// Merges the leaf for `key` with the next one of its chunk, or the one before, if they have become small; true if it did.
    pub(crate) fn merge(&self, pin: &Pin<'_>, key: &[u8]) -> Result<bool> {
        let mut tree = self.tree.lock();
        let root = self.root.get(pin);
        let chunk_at = root.fences.find(key);
        let chunk = root.chunks[chunk_at].get(pin);
        let found = chunk.fences.find(key);
        let Some(at) = [Some(found), found.checked_sub(1)].into_iter().flatten().find(|at| {
            let size = |at: usize| chunk.spots.get(at).map_or(SLOTS, |spot| self.size(*spot));
            size(*at) + size(at + 1) <= ENOUGH
        }) else {
            return Ok(false);
        };
        let (left_spot, right_spot) = (chunk.spots[at], chunk.spots[at + 1]);
        let Some(mut left) = self.leaf(left_spot).lock(left_spot.layout) else { return Ok(false) };
        let Some(mut right) = self.leaf(right_spot).lock(right_spot.layout) else { return Ok(false) };
        if left.len() + right.len() > SLOTS {
            return Ok(false);
        }
        let words = [left.words(), right.words()].concat();
        left.fill(words.into_iter());
        right.fill([].into_iter());
        // As in a split: a writer that was about to commit to the right one means keys that are now in the left one.
        fence(SeqCst);
        let pending = self.leaf(right_spot).pending.load(SeqCst);
        self.leaf(left_spot).pending.fetch_or(pending, SeqCst);
        let node = self.leaf(right_spot).take_node();
        if node != NO_NODE {
            tree.left.push(node);
        }
        self.leaves.mark_dirty(left_spot.leaf);

        let others = |i: &usize| *i != at + 1;
        let fences: Vec<&[u8]> = (0..chunk.spots.len()).filter(others).map(|i| chunk.fences.get(i)).collect();
        let mut spots: Vec<Spot> = (0..chunk.spots.len()).filter(others).map(|i| chunk.spots[i]).collect();
        spots[at].layout = left.layout();
        let new = Chunk::new(fences.into_iter(), spots.into_iter(), chunk.end.clone());
        self.standing.fetch_sub(1, Relaxed);
        self.count_memory(new.memory() - chunk.memory());
        tree.retired.push(Old::Chunk(root.chunks[chunk_at].replace(new)));
        tree.free.push(right_spot.leaf);
        Ok(true)
    }

    fn size(&self, spot: Spot) -> usize {
        let mut words = Vec::new();
        if self.leaf(spot).words(spot.layout, &mut words) { words.len() } else { SLOTS }
    }

    /// Joins neighbouring chunks that have become small.
    pub(crate) fn merge_chunks(&self, pin: &Pin<'_>) {
        let mut tree = self.tree.lock();
        let root = self.root.get(pin);
        let (mut chunks, mut fences): (Vec<Arc<Published<Chunk>>>, Vec<&[u8]>) = (Vec::new(), Vec::new());
        for (at, chunk) in root.chunks.iter().enumerate() {
            let right = chunk.get(pin);
            if let Some(last) = chunks.last() {
                let left = last.get(pin);
                if left.spots.len() + right.spots.len() <= super::CHUNK_MAX / 2 {
                    let fences = left.fences.iter().chain([root.fences.get(at)]).chain(right.fences.iter().skip(1));
                    let spots = left.spots.iter().chain(&right.spots).copied();
                    let joined = Chunk::new(fences, spots, right.end.clone());
                    self.count_memory(joined.memory() - left.memory() - right.memory());
                    // A reader that comes to the right one by the old root still finds its leaves, as long as they are what they were.
                    tree.retired.push(Old::Chunk(last.replace(joined)));
                    continue;
                }
            }
            chunks.push(Arc::clone(chunk));
            fences.push(root.fences.get(at));
        }
        if chunks.len() < root.chunks.len() {
            let new = Root::new(chunks, fences.into_iter());
            tree.retired.push(Old::Root(self.root.replace(new)));
        }
    }
}
