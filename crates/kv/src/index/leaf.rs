//! Leaves: up to 64 versions, in no order, read without a lock.
//!
//! A leaf is a few words that change under a sequence lock: a reader that met a change looks again. Leaves are used anew but never freed, so a reader with an old
//! idea of the tree meets a leaf, if not the right one; the layout number tells.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};

use pmem::sync::{switch_point, wait_point};

use crate::word::Word;

/// Versions in a leaf.
pub(crate) const SLOTS: usize = 64;

#[repr(align(64))]
pub(crate) struct Leaf {
    /// Odd while somebody changes it.
    version: AtomicU64,
    /// Slots in use.
    used: AtomicU64,
    /// Writers that may be about to commit to keys of this leaf: their number is a bit.
    pub(crate) pending: AtomicU64,
    /// Raised whenever the leaf stands for other keys than before.
    layout: AtomicU32,
    /// Its node on media, for the checkpoint.
    pub(crate) node: AtomicU32,
    _to_line: [u64; 4],
    /// Eight bits of each key's hash.
    fingerprints: [AtomicU64; SLOTS / 8],
    words: [AtomicU64; SLOTS],
}

const _: () = assert!(size_of::<Leaf>() == 640);

/// What a search found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Here(u8, Word),
    Absent,
    /// The leaf stands for other keys by now.
    Moved,
}

impl Default for Leaf {
    fn default() -> Self {
        Self {
            version: 0.into(),
            used: 0.into(),
            pending: 0.into(),
            layout: 0.into(),
            node: NO_NODE.into(),
            _to_line: [0; 4],
            fingerprints: std::array::from_fn(|_| 0.into()),
            words: std::array::from_fn(|_| 0.into()),
        }
    }
}

impl Leaf {
    pub(crate) fn layout(&self) -> u32 {
        self.layout.load(Acquire)
    }

    #[inline]
    fn word(&self, slot: u8) -> Word {
        Word(self.words[slot as usize % SLOTS].load(Relaxed))
    }

    /// Whether the slot holds this word, and the leaf still has this layout.
    #[inline]
    pub(crate) fn holds(&self, layout: u32, slot: u8, word: Word) -> bool {
        self.layout.load(Acquire) == layout && self.words[slot as usize % SLOTS].load(Acquire) == word.0
    }

    /// Runs `read` until nobody has changed the leaf meanwhile.
    #[inline]
    fn consistent<R>(&self, layout: u32, mut read: impl FnMut(&Self) -> R) -> Option<R> {
        loop {
            let before = self.version.load(Acquire);
            if before.is_multiple_of(2) {
                if self.layout.load(Relaxed) != layout {
                    return None;
                }
                let result = read(self);
                fence(Acquire);
                if self.version.load(Relaxed) == before {
                    return Some(result);
                }
            }
            if !wait_point() {
                std::hint::spin_loop();
            }
        }
    }

    /// The slot whose word has the key's tag and of which `is_it` says so.
    #[inline]
    pub(crate) fn find<E>(
        &self,
        layout: u32,
        hash: u64,
        mut is_it: impl FnMut(Word) -> Result<bool, E>,
    ) -> Result<Found, E> {
        let found = self.consistent(layout, |leaf| leaf.search(hash, &mut is_it)).unwrap_or(Ok(Found::Moved));
        match found {
            // What is no record any more may give an error: then the leaf has changed.
            Err(_) if self.layout() != layout => Ok(Found::Moved),
            found => found,
        }
    }

    #[inline]
    fn search<E>(&self, hash: u64, is_it: &mut impl FnMut(Word) -> Result<bool, E>) -> Result<Found, E> {
        let used = self.used.load(Relaxed);
        let wanted = u64::from(crate::word::fingerprint(hash)) * LOW;
        for (eight, fingerprints) in self.fingerprints.iter().enumerate() {
            let mut hits = zero_bytes(fingerprints.load(Relaxed) ^ wanted);
            while hits != 0 {
                let slot = (eight * 8 + hits.trailing_zeros() as usize / 8) as u8;
                hits &= hits - 1;
                let word = self.word(slot);
                if used >> slot & 1 == 1 && word.tag() == crate::word::tag(hash) && is_it(word)? {
                    return Ok(Found::Here(slot, word));
                }
            }
        }
        Ok(Found::Absent)
    }

    /// All versions.
    pub(crate) fn words(&self, layout: u32, into: &mut Vec<Word>) -> bool {
        let all = self.consistent(layout, |leaf| {
            into.clear();
            leaf.collect(into);
        });
        all.is_some()
    }

    fn collect(&self, into: &mut Vec<Word>) {
        let mut used = self.used.load(Relaxed);
        while used != 0 {
            into.push(self.word(used.trailing_zeros() as u8));
            used &= used - 1;
        }
    }

    /// Locks it for a change, if it has this layout.
    #[inline]
    pub(crate) fn lock(&self, layout: u32) -> Option<Locked<'_>> {
        switch_point();
        loop {
            let version = self.version.load(Relaxed);
            if version.is_multiple_of(2)
                && self.version.compare_exchange_weak(version, version + 1, Acquire, Relaxed).is_ok()
            {
                // Nothing changed below is seen before the odd version is.
                fence(Release);
                let locked = Locked { leaf: self, version };
                return (self.layout.load(Relaxed) == layout).then_some(locked);
            }
            if !wait_point() {
                std::hint::spin_loop();
            }
        }
    }
}

/// No node on media yet.
pub(crate) const NO_NODE: u32 = u32::MAX;

const LOW: u64 = 0x0101_0101_0101_0101;

/// The high bit of each zero byte; of some behind one, too, which is harmless.
#[inline]
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(LOW) & !word & (LOW << 7)
}

/// A leaf that nobody else changes.
pub(crate) struct Locked<'a> {
    leaf: &'a Leaf,
    version: u64,
}

impl Locked<'_> {
    #[inline]
    pub(crate) fn find<E>(&self, hash: u64, mut is_it: impl FnMut(Word) -> Result<bool, E>) -> Result<Found, E> {
        self.leaf.search(hash, &mut is_it)
    }

    #[inline]
    pub(crate) fn replace(&mut self, slot: u8, word: Word) {
        self.leaf.words[slot as usize % SLOTS].store(word.0, Release);
    }

    /// False if the leaf is full.
    pub(crate) fn insert(&mut self, word: Word) -> bool {
        let used = self.leaf.used.load(Relaxed);
        let slot = used.trailing_ones();
        if slot as usize == SLOTS {
            return false;
        }
        self.fingerprint(slot as u8, word.fingerprint());
        self.replace(slot as u8, word);
        self.leaf.used.store(used | 1 << slot, Relaxed);
        true
    }

    pub(crate) fn remove(&mut self, slot: u8) {
        let used = self.leaf.used.load(Relaxed);
        self.leaf.used.store(used & !(1 << slot), Relaxed);
        self.replace(slot, Word::NONE);
    }

    fn fingerprint(&mut self, slot: u8, fingerprint: u8) {
        let place = &self.leaf.fingerprints[slot as usize / 8];
        let shift = slot % 8 * 8;
        let others = place.load(Relaxed) & !(0xff << shift);
        place.store(others | u64::from(fingerprint) << shift, Relaxed);
    }

    pub(crate) fn words(&self) -> Vec<Word> {
        let mut words = Vec::with_capacity(SLOTS);
        self.leaf.collect(&mut words);
        words
    }

    /// Takes a version away by its word.
    pub(crate) fn forget(&mut self, word: Word) {
        let used = self.leaf.used.load(Relaxed);
        let slot = (0..SLOTS as u8).find(|slot| used >> slot & 1 == 1 && self.leaf.word(*slot) == word);
        slot.into_iter().for_each(|slot| self.remove(slot));
    }

    /// Replaces all there is, for other keys than before.
    pub(crate) fn fill(&mut self, words: impl Iterator<Item = Word>) {
        self.leaf.used.store(0, Relaxed);
        for word in words {
            self.insert(word);
        }
        let used = self.leaf.used.load(Relaxed);
        for slot in (0..SLOTS as u8).filter(|slot| used >> slot & 1 == 0) {
            self.replace(slot, Word::NONE);
        }
        self.leaf.layout.store(self.leaf.layout.load(Relaxed).wrapping_add(1), Release);
    }

    pub(crate) fn layout(&self) -> u32 {
        self.leaf.layout.load(Relaxed)
    }

    pub(crate) fn len(&self) -> usize {
        self.leaf.used.load(Relaxed).count_ones() as usize
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        self.leaf.version.store(self.version + 2, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Header;

    fn word(n: u64) -> Word {
        Word::new(n * 64, 64, n.wrapping_mul(0x9e37_79b9_7f4a_7c15), &Header::new(b"", b"", 0))
    }

    fn find(leaf: &Leaf, n: u64) -> Found {
        let hash = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        leaf.find(leaf.layout(), hash, |found| Ok::<_, ()>(found.offset() == n * 64)).unwrap()
    }

    #[test]
    fn what_is_inserted_is_found_until_removed() {
        let leaf = Leaf::default();
        let mut locked = leaf.lock(0).unwrap();
        assert!((1..=64).all(|n| locked.insert(word(n))));
        assert!(!locked.insert(word(65)));
        locked.remove(7);
        drop(locked);
        assert_eq!(find(&leaf, 8), Found::Absent);
        for n in (1..=64).filter(|n| *n != 8) {
            assert_eq!(find(&leaf, n), Found::Here(n as u8 - 1, word(n)));
        }
        leaf.lock(0).unwrap().fill((1..3).map(word));
        assert_eq!(find(&leaf, 2), Found::Here(1, word(2)));
        assert_eq!(find(&leaf, 3), Found::Absent);
        assert_eq!(leaf.find(0, 0, |_| Ok::<_, ()>(true)), Ok(Found::Moved));
        assert!(leaf.lock(0).is_none());
    }
}
