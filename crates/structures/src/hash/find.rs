//! From a hash to its entry.

use pmem::PPtr;
use tx::{Result, Transaction, Typed};

use super::layout::{Bucket, HASH_BITS, NODE_LOG2_MAX, SLOTS, bits, prefix, tag_of};
use super::{HashMap, ahead};
use crate::entry::Entry;
use crate::media::{Circle, Link, behind, damaged, held};

/// Where a hash leads in the directory.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    /// The directory word that names the bucket.
    pub(super) word: PPtr<u64>,
    /// The node it is in, if it is not in a page.
    pub(super) node: Option<NodeAt>,
    /// First hash bit of the node, or behind the page's.
    pub(super) base: u32,
    /// The bucket, null if there is none yet.
    pub(super) bucket: PPtr<Bucket>,
}

#[derive(Clone, Copy)]
pub(super) struct NodeAt {
    pub(super) at: PPtr<u8>,
    /// Words, logarithm.
    pub(super) log2: u32,
    /// The directory word that names the node.
    pub(super) parent: PPtr<u64>,
}

impl Spot {
    /// Most bits a bucket here can have of its node.
    pub(super) fn depth_max(&self) -> u32 {
        self.node.map_or(0, |node| node.log2)
    }
}

/// What a bucket, and those chained to it, have for a key.
pub(super) enum Found<'t> {
    /// Its entry, and the slot that leads there.
    Entry { slot: PPtr<u64>, at: PPtr<u8>, entry: Entry<'t> },
    /// A slot to put it in.
    Free(PPtr<u64>),
    /// Neither.
    Full,
}

impl HashMap {
    #[inline]
    pub(super) fn find<'t, X: Transaction + ?Sized>(&self, tx: &'t X, key: &[u8]) -> Result<Option<&'t [u8]>> {
        let hash = self.hash(key);
        let spot = self.descend(tx, hash)?;
        if spot.bucket.is_null() {
            return Ok(None);
        }
        Ok(match self.search_for(tx, &spot, hash, key, true)? {
            Found::Entry { entry, .. } => Some(entry.value),
            Found::Free(_) | Found::Full => None,
        })
    }

    /// A key's entry: the word that leads there, and its place. A graph's nodes are entries that others point to.
    #[inline]
    pub(crate) fn locate<X: Transaction + ?Sized>(&self, tx: &X, key: &[u8]) -> Result<Option<(PPtr<u64>, PPtr<u8>)>> {
        let hash = self.hash(key);
        let spot = self.descend(tx, hash)?;
        if spot.bucket.is_null() {
            return Ok(None);
        }
        Ok(match self.search(tx, &spot, hash, key)? {
            Found::Entry { slot, at, .. } => Some((slot, at)),
            Found::Free(_) | Found::Full => None,
        })
    }

    #[inline]
    pub(super) fn descend<X: Transaction + ?Sized>(&self, tx: &X, hash: u64) -> Result<Spot> {
        if self.first_bucket != 0 {
            let guess = ahead::expected(self.first_bucket, bits(hash, 0, self.page_end()));
            tx.prefetch_bytes(PPtr::new(self.tag(), guess), size_of::<Bucket>() as u64);
        }
        let page = PPtr::<u64>::new(self.tag(), self.pages[bits(hash, 0, self.page_bits) as usize]);
        let mut word = behind(page, 8 * bits(hash, self.page_bits, self.slot_bits));
        let mut base = self.page_end();
        let mut node: Option<NodeAt> = None;
        loop {
            let link = Link(*held("directory word", word, tx.read(word))?);
            if link.bits() == 0 {
                if link.is_null() && node.is_some() {
                    return Err(damaged("directory word", word, "leads nowhere"));
                }
                let bucket = if link.is_null() { PPtr::NULL } else { link.ptr(self.tag()) };
                return Ok(Spot { word, node, base, bucket });
            }
            if node.is_some() {
                base += NODE_LOG2_MAX;
            }
            let (log2, at) = (u32::from(link.bits()), link.ptr(self.tag()));
            if log2 > NODE_LOG2_MAX || base + NODE_LOG2_MAX > HASH_BITS {
                return Err(damaged("directory word", word, format!("no node has 2^{log2} words at bit {base}")));
            }
            node = Some(NodeAt { at, log2, parent: word });
            word = behind(at, 8 * bits(hash, base, log2));
        }
    }

    /// The bucket at `at`, which `spot` or a chain from there leads to.
    #[inline]
    pub(super) fn bucket<'t, X: Transaction + ?Sized>(
        &self,
        tx: &'t X,
        spot: &Spot,
        hash: u64,
        at: PPtr<Bucket>,
    ) -> Result<&'t Bucket> {
        let bucket = held("bucket", at, tx.read(at))?;
        match bucket.depth() {
            Some(depth) if depth <= spot.depth_max() && bucket.path == prefix(hash, spot.base + depth) => Ok(bucket),
            _ => Err(misplaced(at)),
        }
    }

    #[inline]
    pub(super) fn search<'t, X: Transaction + ?Sized>(
        &self,
        tx: &'t X,
        spot: &Spot,
        hash: u64,
        key: &[u8],
    ) -> Result<Found<'t>> {
        self.search_for(tx, spot, hash, key, false)
    }

    /// `value` says that the entry's value will be read: then all of the entry is asked for when its tag fits. A value that is overwritten is not.
    #[inline]
    fn search_for<'t, X: Transaction + ?Sized>(
        &self,
        tx: &'t X,
        spot: &Spot,
        hash: u64,
        key: &[u8],
        value: bool,
    ) -> Result<Found<'t>> {
        let tag = tag_of(hash, spot.base);
        let mut free = None;
        let mut circle = Circle::new();
        let mut at = spot.bucket;
        while !at.is_null() {
            if circle.closes(at.raw()) {
                return Err(damaged("bucket", at, "its chain is a circle"));
            }
            let bucket = self.bucket(tx, spot, hash, at)?;
            for (index, &slot) in bucket.slots.iter().enumerate() {
                let link = Link(slot);
                if link.is_null() {
                    free = free.or(Some(slot_at(at, index)));
                } else if link.bits() == tag {
                    let entry_at = link.ptr(self.tag());
                    if value {
                        tx.prefetch(entry_at);
                    }
                    let entry = self.entry(tx, entry_at)?;
                    if entry.key == key {
                        return Ok(Found::Entry { slot: slot_at(at, index), at: entry_at, entry });
                    }
                }
            }
            at = bucket.next(self.tag());
        }
        Ok(free.map_or(Found::Full, Found::Free))
    }

    #[inline]
    pub(super) fn entry<'t, X: Transaction + ?Sized>(&self, tx: &'t X, at: PPtr<u8>) -> Result<Entry<'t>> {
        let block = held("entry", at, tx.rest(at))?;
        Entry::parse(block, 0).ok_or_else(|| damaged("entry", at, "its lengths contradict each other or its block"))
    }
}

/// Slot `index` of the bucket at `at`.
#[inline]
pub(super) fn slot_at(at: PPtr<Bucket>, index: usize) -> PPtr<u64> {
    debug_assert!(index < SLOTS);
    behind(at, (std::mem::offset_of!(Bucket, slots) + 8 * index) as u64)
}

#[cold]
pub(super) fn misplaced(at: PPtr<Bucket>) -> tx::Error {
    damaged("bucket", at, "no bucket, or one of another place")
}
