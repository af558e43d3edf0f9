//! A full leaf becomes two.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::error::Result;
use crate::index::fences::common;
use crate::index::{CHUNK_MAX, Chunk, Index, Old, Root, SLOTS, Spot, Stretch, Tree};
use crate::isolation::active::Pin;
use crate::media::key::hash;
use crate::media::record::Record;
use crate::media::word::{Word, tag};
use crate::raw::{Claim, Published};

impl Index {
    /// Makes room in the leaf for `key`.
    #[cold]
    pub(super) fn split(&self, pin: &Pin<'_>, key: &[u8]) -> Result<()> {
        let mut tree = self.tree.lock();
        let root = self.root.get(pin);
        let chunk_at = root.fences.find(key);
        let chunk = root.chunks[chunk_at].get(pin);
        let at = chunk.fences.find(key);
        let spot = chunk.spots[at];
        let Some(mut left) = self.leaf(spot).lock(spot.layout) else { return Ok(()) };
        if left.len() < SLOTS {
            return Ok(()); // another thread has made room
        }
        let mut sorted = self.sorted(pin, left.words(), chunk.stretch(at))?;
        // Keys that come in order leave full leaves behind.
        let wanted = if sorted.last().is_some_and(|(last, _)| *last < key) { SLOTS - 4 } else { SLOTS / 2 };
        let differ = |at: &usize| sorted[at - 1].0 < sorted[*at].0;
        // There are no two equal ones, unless some are corrupt.
        let middle = (wanted..SLOTS).chain(1..wanted).find(differ);
        let Some(middle) = middle else {
            return Err(crate::media::record::damaged(
                sorted[0].1.offset(),
                "it and others have keys that are not in their leaf",
            ));
        };
        let (low, high) = (sorted[middle - 1].0, sorted[middle].0);
        let fence = &high[..=common(low, high)];
        let upper = sorted.split_off(middle);

        let right = tree.free.pop().unwrap_or_else(|| self.leaves.add());
        let right_leaf = self.leaves.get(right);
        let layout = right_leaf.layout();
        // Writers that are about to commit to the left one may mean keys that are now here. Their bits are read behind the layout that sends them here.
        let mut right_locked = right_leaf.lock(layout).unwrap_or_else(|| unreachable!("a free leaf is nobody's"));
        right_locked.fill_in_order(upper.iter().map(|(_, word)| *word));
        left.fill_in_order(sorted.iter().map(|(_, word)| *word));
        // The layout is out before the bits are read: a writer that has not seen it has set its bit.
        std::sync::atomic::fence(SeqCst);
        right_leaf.pending.store(self.leaf(spot).pending.load(SeqCst), SeqCst);
        let spots = [Spot { layout: left.layout(), ..spot }, Spot { leaf: right, layout: right_locked.layout() }];
        for spot in spots {
            self.leaves.mark_dirty(spot.leaf);
        }
        self.insert_leaf(&mut tree, pin, (chunk_at, at), fence, spots);
        Ok(())
    }

    /// With their keys, in order. Their leaf is locked. A key that is corrupt would go to the wrong side, where no search looks for what it was: it stops the
    /// split.
    fn sorted<'k>(&'k self, pin: &'k Pin<'_>, words: Vec<Word>, of: Stretch<'k>) -> Result<Vec<(&'k [u8], Word)>> {
        let key = |word: Word| {
            let key = Record::at(Claim::Pinned, pin, &self.pool, word.offset())?.key();
            let fits = key >= of.from && of.to.is_none_or(|to| key < to) && tag(hash(key)) == word.tag();
            if fits {
                Ok((key, word))
            } else {
                Err(crate::media::record::damaged(word.offset(), "its key is not the one that the index has it for"))
            }
        };
        let mut sorted = words.into_iter().map(key).collect::<Result<Vec<_>>>()?;
        sorted.sort_unstable_by(|a, b| a.0.cmp(b.0));
        Ok(sorted)
    }

    /// Publishes a chunk in which the leaf at `at` is replaced by two.
    fn insert_leaf(
        &self,
        tree: &mut Tree,
        pin: &Pin<'_>,
        (chunk_at, at): (usize, usize),
        fence: &[u8],
        [left, right]: [Spot; 2],
    ) {
        let root = self.root.get(pin);
        let chunk = root.chunks[chunk_at].get(pin);
        let mut fences: Vec<&[u8]> = chunk.fences.iter().collect();
        let mut spots = chunk.spots.to_vec();
        fences.insert(at + 1, fence);
        spots[at] = left;
        spots.insert(at + 1, right);
        self.standing.fetch_add(1, Relaxed);
        self.count_memory(-chunk.memory());
        if spots.len() <= CHUNK_MAX {
            let new = Chunk::new(fences.into_iter(), spots.into_iter(), chunk.end.clone());
            self.count_memory(new.memory());
            tree.retired.push(Old::Chunk(root.chunks[chunk_at].replace(new)));
            return;
        }
        let middle = if at + 2 == spots.len() { spots.len() - 8 } else { spots.len() / 2 };
        let border = fences[middle];
        let upper = Chunk::new(fences[middle..].iter().copied(), spots[middle..].iter().copied(), chunk.end.clone());
        let lower = Chunk::new(fences[..middle].iter().copied(), spots[..middle].iter().copied(), Some(border.into()));
        self.count_memory(upper.memory() + lower.memory());
        let mut chunks = root.chunks.clone();
        chunks.insert(chunk_at + 1, Arc::new(Published::new(upper)));
        let mut borders: Vec<&[u8]> = root.fences.iter().collect();
        borders.insert(chunk_at + 1, border);
        // The root first: a reader that comes by the old one and finds the old chunk sees at the leaf, or at the chunk's new end, that it must look again.
        let new_root = Root::new(chunks, borders.into_iter());
        tree.retired.push(Old::Root(self.root.replace(new_root)));
        tree.retired.push(Old::Chunk(root.chunks[chunk_at].replace(lower)));
        debug_assert!(self.entries.load(Relaxed) > 0);
    }
}
