//! The ordered index, in memory: two levels of immutable nodes over leaves.
//!
//! ```text
//!   root        fences | chunks        replaced when a chunk splits
//!     chunk     fences | leaves        replaced when a leaf splits
//!       leaf    up to 64 versions      changed in place
//! ```
//!
//! Readers take no lock; a scan that has put a leaf in order writes that down if no thread has changed the leaf meanwhile. A thread that splits holds the one
//! lock of the tree, about once in thirty inserts; what it replaces may still be read, and is freed when no reader can be reading it any more. A reader with an
//! old node finds out at the leaf, whose layout number its node has, or at the chunk, which knows where it ends.

mod arena;
mod chunk;
pub(crate) mod fences;
pub(crate) mod leaf;
mod merge;
mod split;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pmem::Pool;
use pmem::sync::wait_point;

use crate::error::{Error, Result};
use crate::isolation::active::Pin;
use crate::media::record::Record;
use crate::media::word::Word;
use crate::raw::{Claim, Published, Retired};
pub(crate) use arena::Arena;
pub(crate) use chunk::{CHUNK_MAX, Chunk, Root};
pub(crate) use leaf::{Found, Leaf, Listed, NO_NODE, SHORT, SLOTS};

/// The index.
pub(crate) struct Index {
    pool: Pool,
    root: Published<Root>,
    pub(crate) leaves: Arena,
    /// Held to change root and chunks.
    tree: pmem::sync::Mutex<Tree>,
    /// Entries, tombstones included.
    entries: AtomicU64,
    /// Bytes of memory above the leaves.
    memory: AtomicU64,
    /// Leaves in the tree.
    standing: AtomicU64,
}

/// Lines of a record that are asked for ahead of its use; of longer ones the processor fetches what follows by itself.
const AHEAD_LINES: u64 = 4;
/// The same of one that is about to be read, which is at hand sooner the more is on its way.
const WHOLE_LINES: u64 = 20;
/// Lines in which a short key stands, wherever the record begins.
const KEY_LINES: u64 = 2;

/// What changes under the lock of the tree.
#[derive(Default)]
struct Tree {
    /// Leaves that stand for nothing.
    free: Vec<u32>,
    /// Nodes on media of leaves that are gone, for the next checkpoint.
    left: Vec<u32>,
    /// Replaced, waiting until they are no longer read.
    retired: Vec<Old>,
}

#[expect(dead_code, reason = "they are kept, and then dropped")]
enum Old {
    Chunk(Retired<Chunk>),
    Root(Retired<Root>),
}

/// The leaf for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) leaf: u32,
    pub(crate) layout: u32,
}

/// The leaf for a range of keys, and where that begins and ends.
#[derive(Clone, Copy)]
pub(crate) struct Stretch<'p> {
    pub(crate) spot: Spot,
    /// Nothing smaller is in it, unless this is empty.
    pub(crate) from: &'p [u8],
    /// Nothing that is not smaller is in it.
    pub(crate) to: Option<&'p [u8]>,
    chunk: &'p Chunk,
    at: usize,
}

impl<'p> Stretch<'p> {
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        key >= self.from && self.to.is_none_or(|to| key < to)
    }

    /// The next leaf of its chunk, or the one before. As with any spot, the leaf tells if it stands for other keys by now.
    pub(crate) fn neighbour(&self, before: bool) -> Option<Stretch<'p>> {
        let at = if before { self.at.checked_sub(1)? } else { self.at + 1 };
        (at < self.chunk.spots.len()).then(|| self.chunk.stretch(at))
    }
}

impl Index {
    /// An empty one.
    pub(crate) fn new(pool: &Pool) -> Self {
        let leaves = Arena::new();
        let first = leaves.add();
        let root = Root::new(vec![Arc::new(Published::new(Chunk::first(first)))], [&[][..]].into_iter());
        Self {
            pool: pool.clone(),
            root: Published::new(root),
            leaves,
            tree: pmem::sync::Mutex::default(),
            entries: 0.into(),
            memory: 0.into(),
            standing: 1.into(),
        }
    }

    /// Entries, tombstones included.
    pub(crate) fn entries(&self) -> u64 {
        self.entries.load(Relaxed)
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> u64 {
        // Of what was loaded the part above the leaves is an estimate.
        self.memory.load(Relaxed).cast_signed().max(0).cast_unsigned() + self.leaves.bytes()
    }

    /// The same without leaves that stand for nothing, which the next keys get.
    pub(crate) fn memory_in_use(&self) -> u64 {
        self.memory() - self.leaves.bytes() + self.leaf_count() * size_of::<Leaf>() as u64
    }

    /// A new key needs memory: an error if more than `max` bytes are in use.
    pub(crate) fn check_memory(&self, max: u64) -> Result<()> {
        let bytes = self.memory_in_use();
        if bytes <= max { Ok(()) } else { Err(Error::IndexMemory { keys: self.entries(), bytes, max }) }
    }

    /// Leaves in the tree.
    pub(crate) fn leaf_count(&self) -> u64 {
        self.standing.load(Relaxed)
    }

    fn count_memory(&self, by: i64) {
        self.memory.fetch_add(by as u64, Relaxed);
    }

    // ---- where ------------------------------------------------------------------------------------------------

    /// The leaf for `key`.
    #[inline]
    pub(crate) fn spot(&self, pin: &Pin<'_>, key: &[u8]) -> Spot {
        let chunk = self.chunk(pin, key);
        chunk.spots[chunk.fences.find(key)]
    }

    /// The leaf for `key`, and what else is for it.
    #[inline]
    pub(crate) fn locate<'p>(&'p self, pin: &'p Pin<'_>, key: &[u8]) -> Stretch<'p> {
        let chunk = self.chunk(pin, key);
        chunk.stretch(chunk.fences.find(key))
    }

    /// The leaf with the last keys before `key`; before the end of all keys without one.
    pub(crate) fn locate_before<'p>(&'p self, pin: &'p Pin<'_>, key: Option<&[u8]>) -> Stretch<'p> {
        loop {
            let root = self.root.get(pin);
            let at = key.map_or(root.chunks.len() - 1, |key| root.fences.find_before(key));
            let chunk = root.chunks[at].get(pin);
            let fits = match (key, chunk.end.as_deref()) {
                (_, None) => true,
                (Some(key), Some(end)) => key <= end,
                (None, Some(_)) => false,
            };
            if fits {
                return chunk.stretch(key.map_or(chunk.fences.len() - 1, |key| chunk.fences.find_before(key)));
            }
            pause();
        }
    }

    #[inline]
    pub(crate) fn leaf(&self, spot: Spot) -> &Leaf {
        self.leaves.get(spot.leaf)
    }

    // ---- what -------------------------------------------------------------------------------------------------

    /// Whether `word` is a version of `key`.
    #[inline]
    fn is_of(&self, pin: &Pin<'_>, word: Word, key: &[u8]) -> Result<bool> {
        Ok(Record::at(Claim::Pinned, pin, &self.pool, word.offset())?.key() == key)
    }

    /// The newest version of `key` in the leaf at `spot`.
    #[inline]
    pub(crate) fn find_in(&self, spot: Spot, key: &[u8], hash: u64, pin: &Pin<'_>) -> Result<Found> {
        self.leaf(spot).find(spot.layout, hash, |word| self.is_of(pin, word, key))
    }

    /// The same to read its value, whose lines are asked for together with the key's: the processor by itself would begin only behind the second miss.
    #[inline]
    pub(crate) fn find_whole(&self, spot: Spot, key: &[u8], hash: u64, pin: &Pin<'_>) -> Result<Found> {
        self.leaf(spot).find(spot.layout, hash, |word| {
            self.pool.prefetch(word.offset(), (word.space() / 64 + 1).min(WHOLE_LINES));
            self.is_of(pin, word, key)
        })
    }

    /// The newest version of `key`, and its leaf.
    #[inline]
    pub(crate) fn find(&self, pin: &Pin<'_>, key: &[u8], hash: u64) -> Result<(Spot, Option<(u8, Word)>)> {
        loop {
            let spot = self.spot(pin, key);
            match self.find_in(spot, key, hash, pin)? {
                Found::Here(slot, word) => return Ok((spot, Some((slot, word)))),
                Found::Absent => return Ok((spot, None)),
                Found::Moved => {} // a thread that moves leaves has them locked until the tree leads to where they are
            }
        }
    }

    /// The key that `word` is a version of.
    #[inline]
    pub(crate) fn key<'p>(&'p self, pin: &'p Pin<'_>, word: Word) -> Result<&'p [u8]> {
        Ok(Record::at(Claim::Pinned, pin, &self.pool, word.offset())?.key())
    }

    /// Has a leaf read from memory, ahead of a scan.
    #[inline]
    pub(crate) fn prefetch_leaf(&self, spot: Spot) {
        self.leaf(spot).prefetch();
    }

    /// Has the record of a version read from memory, ahead of its use.
    #[inline]
    pub(crate) fn prefetch(&self, word: Word) {
        self.pool.prefetch(word.offset(), (word.space() / 64 + 1).min(AHEAD_LINES));
    }

    /// The same of its beginning, with the key.
    #[inline]
    pub(crate) fn prefetch_key(&self, word: Word) {
        self.pool.prefetch(word.offset(), KEY_LINES);
    }

    /// All versions of the leaf at `spot` in order of keys; false if it stands for other keys by now. What came since the last scan takes its place in the leaf's list.
    pub(crate) fn in_order<'p>(&'p self, pin: &'p Pin<'_>, spot: Spot, into: &mut Listed) -> Result<bool> {
        let leaf = self.leaf(spot);
        if !leaf.listed(spot.layout, into) {
            return Ok(false);
        }
        if into.known == into.slots.len() {
            return Ok(true);
        }
        into.slots[into.known..].iter().for_each(|(word, _)| self.prefetch(*word));
        while into.known < into.slots.len() {
            let (word, slot) = into.slots[into.known];
            let key = self.key(pin, word)?;
            let at = lower(&into.slots[..into.known], |(word, _)| Ok(self.key(pin, *word)? < key))?;
            into.slots.copy_within(at..into.known, at + 1);
            into.slots[at] = (word, slot);
            into.known += 1;
        }
        leaf.remember(into);
        Ok(true)
    }

    // ---- changes ----------------------------------------------------------------------------------------------

    /// Makes `word` the version of `key` in place of `old`, if that is one; `at` is where its leaf was. Only the holder of the key's lock does this, and has
    /// seen `old` since: no key needs to be compared.
    #[inline]
    pub(crate) fn set(&self, pin: &Pin<'_>, key: &[u8], hash: u64, old: Word, word: Word, at: Spot) -> Result<()> {
        let mut spot = at;
        loop {
            if let Some(mut leaf) = self.leaf(spot).lock(spot.layout) {
                let found = if old.is_none() {
                    Found::Absent
                } else {
                    leaf.find(hash, |found| Ok::<_, crate::Error>(found == old))?
                };
                match found {
                    Found::Here(slot, _) => {
                        leaf.replace(slot, word);
                        self.leaves.mark_dirty(spot.leaf);
                        return Ok(());
                    }
                    _ if leaf.insert(word) => {
                        self.leaves.mark_dirty(spot.leaf);
                        self.entries.fetch_add(1, Relaxed);
                        return Ok(());
                    }
                    _ => {}
                }
                drop(leaf);
                self.split(pin, key)?;
            }
            spot = self.spot(pin, key);
        }
    }

    /// Whether the version at `offset` is the newest of `key`, and its word. Only words are looked at.
    pub(crate) fn find_at(&self, pin: &Pin<'_>, key: &[u8], hash: u64, offset: u64) -> Option<Word> {
        loop {
            let spot = self.spot(pin, key);
            let found = self.leaf(spot).find(spot.layout, hash, |word| Ok::<_, crate::Error>(word.offset() == offset));
            match found {
                Ok(Found::Here(_, word)) => return Some(word),
                Ok(Found::Moved) => pause(),
                _ => return None,
            }
        }
    }

    /// Puts `to` in place of `from`, if that is still the version of `key`.
    pub(crate) fn swap(&self, pin: &Pin<'_>, key: &[u8], hash: u64, from: Word, to: Word) -> Result<bool> {
        self.change(pin, key, hash, from, |leaf, slot| leaf.replace(slot, to))
    }

    /// Takes the version `word` of `key` away, if that is still it.
    pub(crate) fn remove(&self, pin: &Pin<'_>, key: &[u8], hash: u64, word: Word) -> Result<bool> {
        let gone = self.change(pin, key, hash, word, |leaf, slot| leaf.remove(slot))?;
        if gone {
            self.entries.fetch_sub(1, Relaxed);
        }
        Ok(gone)
    }

    /// Takes the version at `offset`, whose key cannot be read, out of the leaf for `key`.
    pub(crate) fn forget(&self, pin: &Pin<'_>, key: &[u8], offset: u64) -> Option<Word> {
        let spot = self.spot(pin, key);
        let mut leaf = self.leaf(spot).lock(spot.layout)?;
        let word = leaf.words().into_iter().find(|word| word.offset() == offset)?;
        leaf.forget(word);
        self.leaves.mark_dirty(spot.leaf);
        self.entries.fetch_sub(1, Relaxed);
        Some(word)
    }

    fn change(
        &self,
        pin: &Pin<'_>,
        key: &[u8],
        hash: u64,
        from: Word,
        change: impl Fn(&mut leaf::Locked<'_>, u8),
    ) -> Result<bool> {
        loop {
            let spot = self.spot(pin, key);
            let Some(mut leaf) = self.leaf(spot).lock(spot.layout) else {
                pause();
                continue;
            };
            let found = leaf.find(hash, |found| Ok::<_, crate::Error>(found == from))?;
            if let Found::Here(slot, _) = found {
                change(&mut leaf, slot);
                self.leaves.mark_dirty(spot.leaf);
                return Ok(true);
            }
            return Ok(false);
        }
    }

    // ---- all of it, for the checkpoint ------------------------------------------------------------------------

    /// The chunk for `key`.
    #[inline]
    pub(crate) fn chunk<'p>(&'p self, pin: &'p Pin<'_>, key: &[u8]) -> &'p Chunk {
        loop {
            let root = self.root.get(pin);
            let chunk = root.chunks[root.fences.find(key)].get(pin);
            if chunk.end.as_deref().is_none_or(|end| key < end) {
                return chunk;
            }
            pause(); // it was split after we read the root
        }
    }

    /// Puts a whole tree in place, before anybody uses it. `chunks` are leaves with the fences before them.
    pub(crate) fn load(&mut self, chunks: Vec<Vec<(Vec<u8>, u32)>>, entries: u64) {
        let mut fences = Vec::new();
        let mut made = Vec::new();
        for (at, chunk) in chunks.iter().enumerate() {
            fences.push(chunk[0].0.clone());
            let end = chunks.get(at + 1).map(|next| next[0].0.clone().into_boxed_slice());
            let spots = chunk.iter().map(|(_, leaf)| Spot { leaf: *leaf, layout: self.leaves.get(*leaf).layout() });
            made.push(Arc::new(Published::new(Chunk::new(chunk.iter().map(|(f, _)| &f[..]), spots, end))));
        }
        self.root = Published::new(Root::new(made, fences.iter().map(Vec::as_slice)));
        *self.entries.get_mut() = entries;
        let leaves: usize = chunks.iter().map(Vec::len).sum();
        let fences: usize = chunks.iter().flatten().map(|(fence, _)| fence.len() + 20).sum();
        *self.standing.get_mut() = leaves as u64;
        *self.memory.get_mut() = fences as u64;
    }

    /// Nodes on media that no leaf has any more.
    pub(crate) fn take_left(&self) -> Vec<u32> {
        std::mem::take(&mut self.tree.lock().left)
    }

    /// Nodes that were replaced since the last call, to be dropped when no reader that was pinned then is pinned any more.
    pub(crate) fn take_retired(&self) -> Vec<impl Send + use<>> {
        std::mem::take(&mut self.tree.lock().retired)
    }
}

/// How many of `all` come first of which `before` is true: all that are come before all that are not.
pub(crate) fn lower<T>(all: &[T], mut before: impl FnMut(&T) -> Result<bool>) -> Result<usize> {
    let (mut low, mut high) = (0, all.len());
    while low < high {
        let middle = low.midpoint(high);
        if before(&all[middle])? { low = middle + 1 } else { high = middle }
    }
    Ok(low)
}

fn pause() {
    if !wait_point() {
        std::hint::spin_loop();
    }
}
