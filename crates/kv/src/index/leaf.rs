//! Leaves: up to 64 versions, each in any slot, read without a lock.
//!
//! Beside the slots stands a list of them in order of keys, for scans. An insert does not extend it, which would cost the reading of other keys; the next scan
//! does. Replacing a version by one of the same key leaves it right.
//!
//! A leaf is a few words that change under a sequence lock: a reader that met a change looks again. Leaves are used anew but never freed, so a reader with an old
//! idea of the tree meets a leaf, if not the right one; the layout number tells.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};

use pmem::sync::{switch_point, wait_point};

use crate::media::word::Word;

/// Versions in a leaf.
pub(crate) const SLOTS: usize = 64;

#[repr(align(64))]
pub(crate) struct Leaf {
    /// Odd while a thread changes it.
    version: AtomicU64,
    /// Slots in use.
    used: AtomicU64,
    /// Writers that may be about to commit to keys of this leaf: their number is a bit.
    pub(crate) pending: AtomicU64,
    /// Raised whenever the leaf stands for other keys than before.
    layout: AtomicU32,
    /// Its node on media, for the checkpoint: what is missing to [`NO_NODE`].
    node: AtomicU32,
    /// Slots whose place in `order` counts.
    ordered: AtomicU64,
    /// Entries of `order`.
    listed: AtomicU32,
    _gap: u32,
    /// The checksum of its node, for the checkpoint.
    pub(crate) checksum: AtomicU64,
    _to_line: u64,
    /// Slots in order of keys, a byte each. Those that `ordered` has not, were given back since.
    order: [AtomicU64; SLOTS / 8],
    /// Eight bits of each key's hash.
    fingerprints: [AtomicU64; SLOTS / 8],
    words: [AtomicU64; SLOTS],
}

crate::raw::zeros_are!(Leaf {
    version,
    used,
    pending,
    layout,
    node,
    ordered,
    listed,
    _gap,
    checksum,
    _to_line,
    order,
    fingerprints,
    words
});
const _: () = assert!(size_of::<Leaf>() == 704);

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
            node: 0.into(),
            ordered: 0.into(),
            listed: 0.into(),
            _gap: 0,
            checksum: 0.into(),
            _to_line: 0,
            order: std::array::from_fn(|_| 0.into()),
            fingerprints: std::array::from_fn(|_| 0.into()),
            words: std::array::from_fn(|_| 0.into()),
        }
    }
}

impl Leaf {
    pub(crate) fn layout(&self) -> u32 {
        self.layout.load(Acquire)
    }

    /// Its node on media, or [`NO_NODE`]. For the checkpoint.
    pub(crate) fn node(&self) -> u32 {
        NO_NODE - self.node.load(Relaxed)
    }

    /// The same; it has none from now on.
    pub(super) fn take_node(&self) -> u32 {
        NO_NODE - self.node.swap(0, SeqCst)
    }

    pub(crate) fn set_node(&self, node: u32) {
        self.node.store(NO_NODE - node, Relaxed);
    }

    /// Behind an announcement: if this is not yet the layout of a split, the split sees the announcement.
    #[inline]
    pub(crate) fn layout_now(&self) -> u32 {
        self.layout.load(SeqCst)
    }

    /// The writer whose bit this is has nothing to publish here any more.
    #[inline]
    pub(crate) fn retreat(&self, bit: u64) {
        if self.pending.load(Relaxed) & bit != 0 {
            self.pending.fetch_and(!bit, SeqCst);
        }
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

    /// Runs `read` until no thread has changed the leaf meanwhile.
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
        let wanted = u64::from(crate::media::word::fingerprint(hash)) * LOW;
        for (eight, fingerprints) in self.fingerprints.iter().enumerate() {
            let mut hits = zero_bytes(fingerprints.load(Relaxed) ^ wanted);
            while hits != 0 {
                let slot = (eight * 8 + hits.trailing_zeros() as usize / 8) as u8;
                hits &= hits - 1;
                let word = self.word(slot);
                if used >> slot & 1 == 1 && word.tag() == crate::media::word::tag(hash) && is_it(word)? {
                    return Ok(Found::Here(slot, word));
                }
            }
        }
        Ok(Found::Absent)
    }

    /// Asks for what a search looks at first.
    #[inline]
    pub(crate) fn prefetch_head(&self) {
        pmem::prefetch((&raw const self.version).cast());
        pmem::prefetch((&raw const self.fingerprints).cast());
    }

    /// Asks for the first word that a search may look at.
    #[inline]
    pub(crate) fn prefetch_slot(&self, hash: u64) {
        if let Some(slot) = self.first_hit(hash) {
            pmem::prefetch((&raw const self.words[slot % SLOTS]).cast());
        }
    }

    /// The word that is probably the key's: no caller may rely on it.
    #[inline]
    pub(crate) fn likely(&self, hash: u64) -> Option<Word> {
        let word = self.word(self.first_hit(hash)? as u8);
        (!word.is_none() && word.tag() == crate::media::word::tag(hash)).then_some(word)
    }

    /// The one version that may be of a key with this hash, if there is any; `None` if there are several, or the leaf stands for other keys by now.
    #[inline]
    pub(crate) fn only(&self, layout: u32, hash: u64) -> Option<Word> {
        self.consistent(layout, |leaf| {
            let (mut found, mut count) = (Word::NONE, 0);
            let mut note = |word| {
                (found, count) = (word, count + 1);
                Ok::<_, std::convert::Infallible>(false)
            };
            let _ = leaf.search(hash, &mut note);
            (count < 2).then_some(found)
        })?
    }

    #[inline]
    fn first_hit(&self, hash: u64) -> Option<usize> {
        let wanted = u64::from(crate::media::word::fingerprint(hash)) * LOW;
        self.fingerprints.iter().enumerate().find_map(|(eight, fingerprints)| {
            let hits = zero_bytes(fingerprints.load(Relaxed) ^ wanted);
            (hits != 0).then(|| eight * 8 + hits.trailing_zeros() as usize / 8)
        })
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

    /// Shows up to so many versions that are probably the first ones, or the last ones, in order of keys: no caller may rely on it.
    #[inline]
    pub(crate) fn first_words(&self, last: bool, count: usize, mut show: impl FnMut(Word)) {
        let entries = (self.listed.load(Relaxed) as usize).min(SLOTS);
        let first = if last { entries.saturating_sub(count) } else { 0 };
        for at in first..entries.min(first + count) {
            let slot = (self.order[at / 8].load(Relaxed) >> (at % 8 * 8)) as u8;
            show(self.word(slot));
        }
    }

    /// Asks for what `listed` reads.
    pub(crate) fn prefetch(&self) {
        let line = |at: *const u8| pmem::prefetch(at);
        line((&raw const self.version).cast());
        line((&raw const self.order).cast());
        self.words
            .iter()
            .step_by(pmem::LINE as usize / size_of::<Word>())
            .for_each(|word| line((&raw const *word).cast()));
    }

    /// All versions, those that are listed first, and which state of the leaf that was.
    pub(super) fn listed(&self, layout: u32, into: &mut Listed) -> bool {
        let all = self.consistent(layout, |leaf| {
            into.slots.clear();
            let (used, ordered) = (leaf.used.load(Relaxed), leaf.ordered.load(Relaxed));
            let entries = (leaf.listed.load(Relaxed) as usize).min(SLOTS);
            for eight in 0..entries.div_ceil(8) {
                let slots = leaf.order[eight].load(Relaxed).to_le_bytes();
                let standing =
                    slots.into_iter().take(entries - eight * 8).filter(|slot| ordered >> (slot % 64) & 1 == 1);
                into.slots.extend(standing.map(|slot| (leaf.word(slot), slot)));
            }
            into.known = into.slots.len();
            let mut rest = used & !ordered;
            while rest != 0 {
                let slot = rest.trailing_zeros() as u8;
                into.slots.push((leaf.word(slot), slot));
                rest &= rest - 1;
            }
            into.version = leaf.version.load(Relaxed);
        });
        all.is_some()
    }

    /// Keeps the order that `listed` was brought to, unless the leaf has changed since.
    pub(super) fn remember(&self, listed: &Listed) {
        let version = listed.version;
        if self.version.compare_exchange(version, version + 1, Acquire, Relaxed).is_err() {
            return;
        }
        fence(Release); // as in `lock`
        let locked = Locked { leaf: self, version };
        locked.list(listed.slots.iter().map(|(_, slot)| *slot));
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

/// What [`Leaf::listed`] finds.
pub(crate) struct Listed {
    pub(crate) slots: Vec<(Word, u8)>,
    /// Those up to here are in order of keys.
    pub(super) known: usize,
    version: u64,
}

impl Listed {
    pub(crate) fn new() -> Self {
        Self { slots: Vec::with_capacity(SLOTS), known: 0, version: 0 }
    }

    /// Whether half of its versions, or more, are short ones that do not stand right behind a short one before: so much is worth writing all of them together.
    pub(crate) fn is_scattered(&self) -> bool {
        let follows = |a: Word, b: Word| b.offset().wrapping_sub(a.offset()) <= a.space() + pmem::LINE;
        let pairs = self.slots.windows(2).map(|pair| (pair[0].0, pair[1].0));
        // Behind a long one, which may have segments of its own, none can come to stand.
        let short = |(a, b): &(Word, Word)| a.space() <= SHORT && b.space() <= SHORT;
        let apart = pairs.filter(short).filter(|(a, b)| !follows(*a, *b)).count();
        apart * 2 >= self.slots.len() && apart > 0
    }
}

/// A version of so many bytes is read as fast from anywhere.
pub(crate) const SHORT: u64 = 512;

/// No node on media yet.
pub(crate) const NO_NODE: u32 = u32::MAX;

const LOW: u64 = 0x0101_0101_0101_0101;

/// The high bit of each zero byte; of some behind one, too, which is harmless.
#[inline]
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(LOW) & !word & (LOW << 7)
}

/// A leaf that no other thread changes.
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
    pub(super) fn replace(&mut self, slot: u8, word: Word) {
        self.leaf.words[slot as usize % SLOTS].store(word.0, Release);
    }

    /// False if the leaf is full.
    pub(super) fn insert(&mut self, word: Word) -> bool {
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

    pub(super) fn remove(&mut self, slot: u8) {
        let used = self.leaf.used.load(Relaxed);
        self.leaf.used.store(used & !(1 << slot), Relaxed);
        // The version that gets the slot next belongs elsewhere.
        self.leaf.ordered.store(self.leaf.ordered.load(Relaxed) & !(1 << slot), Relaxed);
        self.replace(slot, Word::NONE);
    }

    fn fingerprint(&mut self, slot: u8, fingerprint: u8) {
        let word = &self.leaf.fingerprints[slot as usize / 8];
        let shift = slot % 8 * 8;
        let others = word.load(Relaxed) & !(0xff << shift);
        word.store(others | u64::from(fingerprint) << shift, Relaxed);
    }

    pub(crate) fn words(&self) -> Vec<Word> {
        let mut words = Vec::with_capacity(SLOTS);
        self.leaf.collect(&mut words);
        words
    }

    /// Takes a version away by its word.
    pub(super) fn forget(&mut self, word: Word) {
        let used = self.leaf.used.load(Relaxed);
        let slot = (0..SLOTS as u8).find(|slot| used >> slot & 1 == 1 && self.leaf.word(*slot) == word);
        slot.into_iter().for_each(|slot| self.remove(slot));
        // It is corrupt, and what was put in order beside it may stand wrong.
        self.list([].into_iter());
    }

    /// Writes down which slots there are, in order of keys.
    fn list(&self, slots: impl Iterator<Item = u8>) {
        let (mut order, mut ordered, mut listed) = ([0; SLOTS], 0, 0);
        for slot in slots {
            order[listed] = slot;
            ordered |= 1 << (slot % 64);
            listed += 1;
        }
        for (to, eight) in self.leaf.order.iter().zip(order.chunks_exact(8)) {
            to.store(eight.iter().rev().fold(0, |all, slot| all << 8 | u64::from(*slot)), Relaxed);
        }
        self.leaf.ordered.store(ordered, Relaxed);
        self.leaf.listed.store(listed as u32, Relaxed);
    }

    /// As `fill`, with words in order of their keys.
    pub(super) fn fill_in_order(&mut self, words: impl ExactSizeIterator<Item = Word>) {
        let len = words.len();
        self.fill(words);
        self.list(0..len as u8);
    }

    /// Replaces all there is, for other keys than before.
    pub(crate) fn fill(&mut self, words: impl Iterator<Item = Word>) {
        self.leaf.used.store(0, Relaxed);
        self.list([].into_iter());
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
    use crate::media::header::Header;

    fn word(n: u64) -> Word {
        Word::new(n * 64, 64, n.wrapping_mul(0x9e37_79b9_7f4a_7c15), &Header::new(b"", b"", 0))
    }

    fn find(leaf: &Leaf, n: u64) -> Found {
        let hash = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        leaf.find(leaf.layout(), hash, |found| Ok::<_, ()>(found.offset() == n * 64)).unwrap()
    }

    /// Rows of leaves begin as zeros.
    #[test]
    fn zeros_are_an_empty_leaf() {
        let leaves = crate::raw::zeros::<Leaf>(3);
        assert!(leaves.iter().all(|leaf| leaf.node() == NO_NODE && leaf.lock(0).is_some_and(|leaf| leaf.len() == 0)));
        leaves[1].set_node(7);
        assert_eq!((leaves[1].node(), leaves[1].take_node(), leaves[1].node()), (7, 7, NO_NODE));
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

    /// What a scan would do: what is not listed comes where it belongs.
    fn in_order(leaf: &Leaf) -> Vec<u64> {
        let mut listed = Listed::new();
        assert!(leaf.listed(leaf.layout(), &mut listed));
        let known: Vec<u64> = listed.slots[..listed.known].iter().map(|(word, _)| word.offset() / 64).collect();
        assert!(known.is_sorted(), "{known:?}");
        listed.slots.sort_by_key(|(word, _)| word.offset());
        let len = listed.slots.len();
        leaf.remember(&listed);
        // The next one need not do it again.
        assert!(leaf.listed(leaf.layout(), &mut listed) && listed.known == len, "{} of {len}", listed.known);
        listed.slots.iter().map(|(word, _)| word.offset() / 64).collect()
    }

    #[test]
    fn the_order_holds_whatever_comes_and_goes() {
        let (leaf, mut model, mut random) = (Leaf::default(), std::collections::BTreeSet::new(), 7_u64);
        for round in 0..20_000 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let n = 1 + (random >> 40) % 1000;
            let mut locked = leaf.lock(leaf.layout()).unwrap();
            if random >> 33 & 1 == 0 && model.len() < SLOTS {
                assert!(!model.insert(n) || locked.insert(word(n)));
            } else if let Some(last) = model.range(..n).next_back().copied() {
                model.remove(&last);
                locked.forget(word(last));
            }
            if round % 500 == 0 {
                model = model.into_iter().skip(20).collect();
                locked.fill_in_order(model.iter().map(|n| word(*n)).collect::<Vec<_>>().into_iter());
            }
            drop(locked);
            if random >> 50 & 3 == 0 {
                assert!(in_order(&leaf).iter().eq(&model), "{round}");
            }
        }
    }

    #[test]
    fn an_order_of_what_has_changed_since_is_not_kept() {
        let leaf = Leaf::default();
        assert!((1..=3).all(|n| leaf.lock(0).unwrap().insert(word(n))));
        let mut listed = Listed::new();
        assert!(leaf.listed(0, &mut listed));
        leaf.lock(0).unwrap().remove(1);
        assert!(leaf.lock(0).unwrap().insert(word(9)));
        leaf.remember(&listed);
        assert!(leaf.listed(0, &mut listed));
        assert_eq!(listed.known, 0);
        assert_eq!(in_order(&leaf), [1, 3, 9]);
    }
}
