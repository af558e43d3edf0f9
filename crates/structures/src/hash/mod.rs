//! A hash map whose directory only grows where it is full.
//!
//! The top bits of a key's hash choose a *page* and a word of it. Pages never change their size, so a handle knows where they are,
//! and no transaction reads a block that all others read too. The word leads to a *bucket* of 14 links to entries, or to a *node*: a small
//! directory (extendible hashing, Fagin et al. 1979, of bounded size) for the next bits, whose words lead to buckets or further nodes. A bucket
//! that is full is split by the insert that finds it so; a node doubles up to 256 words; then its buckets get nodes of their own. No insert
//! moves more than a bucket or a node. A map that does not grow chains buckets.
//!
//! | file | what it does |
//! |---|---|
//! | `layout` | bytes |
//! | `ahead` | buckets side by side, made with the map |
//! | `find` | hash → directory word → bucket → entry |
//! | `change` | put, delete |
//! | `grow` | a full bucket gets room |
//! | `walk` | all pairs, all blocks; the checks of `verify` |

mod ahead;
mod change;
mod find;
mod grow;
mod layout;
#[cfg(test)]
mod tests;
mod walk;

use std::ops::ControlFlow;

use pmem::PPtr;
use tx::{Error, Keys, Result, Transaction, Typed, Visit};

pub use layout::HashRoot;
use layout::{HASH_BITS, KIND, NODE_LOG2_MAX, PAGE_LOG2_MAX, PAGES_MAX};

use crate::map::{Map, Report};
use crate::media::{damaged, held};

/// Longest key of a [`HashMap`].
pub const HASH_KEY_MAX: u64 = 1 << 16;

/// How a [`HashMap`] is made.
///
/// ```
/// let options = structures::HashMapOptions::new().capacity(100_000).seed(7);
/// # let _ = options;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct HashMapOptions {
    capacity: u64,
    seed: u64,
    grows: bool,
}

impl Default for HashMapOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl HashMapOptions {
    /// Room for a thousand pairs; grows.
    pub fn new() -> Self {
        Self { capacity: 1000, seed: 0, grows: true }
    }

    /// Pairs to make room for at once. Up to there a pair is reached over three blocks: page, bucket, entry; each factor of 256 beyond
    /// adds one. From about 5 thousand to 1.2 million pairs the buckets are made with the map: 12 to 23 bytes for each pair, and look-ups that are a tenth faster.
    #[must_use]
    pub fn capacity(self, pairs: u64) -> Self {
        Self { capacity: pairs, ..self }
    }

    /// Keeps the number of buckets that `capacity` asks for: more pairs make chains longer.
    #[must_use]
    pub fn fixed(self) -> Self {
        Self { grows: false, ..self }
    }

    /// Seed of the hash. Keys that a stranger chooses need one that is unknown to the stranger.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }
}

/// Pairs that a bucket is meant to hold at first, of the 14 it can.
const PAIRS_PER_BUCKET: u64 = 9;
/// A page has a line of words at least.
const PAGE_LOG2_MIN: u32 = 3;

/// A hash map: keys up to 64 KiB, values up to 1 GiB, no order.
///
/// ```
/// use structures::{HashMap, HashMapOptions, Map};
/// use tx::{Engine, Isolation, Reference, Typed};
///
/// let engine = Reference::new();
/// engine.transact(Isolation::Strict, |tx| -> tx::Result<()> {
///     let map = HashMap::create(tx, &HashMapOptions::new())?;
///     map.put(tx, b"answer", b"42")?;
///     tx.set_root(map.root())
/// })?;
/// engine.transact(Isolation::Strict, |tx| -> tx::Result<()> {
///     let map = HashMap::open(tx, tx.root()?)?;
///     assert_eq!(map.get(tx, b"answer")?, Some(&b"42"[..]));
///     Ok(())
/// })?;
/// # Ok::<(), tx::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct HashMap {
    root: PPtr<HashRoot>,
    seed: u64,
    page_bits: u32,
    slot_bits: u32,
    grows: bool,
    /// Where the buckets begin that were made with the map, as far as that is known (`ahead`).
    first_bucket: u64,
    pages: [u64; PAGES_MAX],
}

impl std::fmt::Debug for HashMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HashMap").field("root", &self.root).field("grows", &self.grows).finish_non_exhaustive()
    }
}

impl HashMap {
    /// A new, empty map.
    ///
    /// # Errors
    /// As [`Transaction::alloc_bytes`].
    pub fn create<X: Transaction + ?Sized>(tx: &mut X, options: &HashMapOptions) -> Result<Self> {
        let buckets = options.capacity.div_ceil(PAIRS_PER_BUCKET).max(1);
        let most = PAGES_MAX.ilog2() + PAGE_LOG2_MAX;
        let total = (u64::BITS - (buckets - 1).leading_zeros()).clamp(PAGE_LOG2_MIN, most);
        let page_bits = (total - PAGE_LOG2_MIN).min(PAGES_MAX.ilog2());
        let slot_bits = total - page_bits;
        let mut root = HashRoot {
            kind: KIND,
            seed: options.seed,
            page_bits: page_bits as u8,
            slot_bits: slot_bits as u8,
            grows: options.grows.into(),
            first_bucket: [0; 5],
            pages: [0; PAGES_MAX],
        };
        for page in &mut root.pages[..1 << page_bits] {
            *page = tx.alloc_bytes(8 << slot_bits, pmem::LINE)?.offset();
        }
        ahead::make(tx, &mut root)?;
        let ptr = tx.alloc(&root)?;
        Ok(Self::handle(ptr, &root))
    }

    /// The map whose root block is at `root`.
    ///
    /// # Errors
    /// [`Error::Damaged`] if there is none.
    pub fn open<X: Transaction + ?Sized>(tx: &X, root: PPtr<HashRoot>) -> Result<Self> {
        let found = held("hash map", root, tx.read(root))?;
        let (page_bits, slot_bits) = (u32::from(found.page_bits), u32::from(found.slot_bits));
        let fits = page_bits <= PAGES_MAX.ilog2() && slot_bits <= PAGE_LOG2_MAX;
        if found.kind != KIND || !fits || found.grows > 1 {
            return Err(damaged("hash map", root, "no root of a hash map"));
        }
        if found.pages[..1 << page_bits].contains(&0) || found.pages[1 << page_bits..].iter().any(|&p| p != 0) {
            return Err(damaged("hash map", root, format!("not {} pages", 1 << page_bits)));
        }
        Ok(Self::handle(root, found))
    }

    /// Pointer to the block that the map is opened by.
    pub fn root(&self) -> PPtr<HashRoot> {
        self.root
    }

    fn handle(ptr: PPtr<HashRoot>, root: &HashRoot) -> Self {
        Self {
            root: ptr,
            seed: root.seed,
            page_bits: root.page_bits.into(),
            slot_bits: root.slot_bits.into(),
            grows: root.grows != 0,
            first_bucket: ahead::first(root),
            pages: root.pages,
        }
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        #[cfg(test)]
        if self.seed == CHOSEN {
            return u64::from_be_bytes(*key.first_chunk().unwrap_or(&[0; 8]));
        }
        xxhash_rust::xxh3::xxh3_64_with_seed(key, self.seed)
    }

    /// Hash bits that pages decide.
    #[inline]
    fn page_end(&self) -> u32 {
        self.page_bits + self.slot_bits
    }

    #[inline]
    fn tag(&self) -> u16 {
        self.root.tag()
    }
}

/// With this seed unit tests choose hashes: the first bytes of the key.
#[cfg(test)]
const CHOSEN: u64 = u64::MAX;

// A first node has bits of its own behind those of the largest pages.
const _: () = assert!(PAGES_MAX.ilog2() + PAGE_LOG2_MAX + NODE_LOG2_MAX <= HASH_BITS);

impl Map for HashMap {
    #[inline]
    fn get<'t, X: Transaction + ?Sized>(&self, tx: &'t X, key: &[u8]) -> Result<Option<&'t [u8]>> {
        self.find(tx, key)
    }

    fn put<X: Transaction + ?Sized>(&self, tx: &mut X, key: &[u8], value: &[u8]) -> Result<bool> {
        crate::media::change(tx, |tx| self.put_pair(tx, key, value))
    }

    fn delete<X: Transaction + ?Sized>(&self, tx: &mut X, key: &[u8]) -> Result<bool> {
        crate::media::change(tx, |tx| self.delete_key(tx, key))
    }

    fn scan<X: Transaction + ?Sized>(&self, _tx: &X, _keys: &Keys, _visit: Visit<'_>) -> Result<()> {
        Err(Error::Unordered)
    }

    fn for_each<X: Transaction + ?Sized>(
        &self,
        tx: &X,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.visit_pairs(tx, visit)
    }

    fn len<X: Transaction + ?Sized>(&self, tx: &X) -> Result<u64> {
        self.count(tx)
    }

    fn verify<X: Transaction + ?Sized>(&self, tx: &X) -> Result<Report> {
        self.check(tx)
    }

    fn blocks<X: Transaction + ?Sized>(&self, tx: &X) -> Result<Vec<PPtr<u8>>> {
        self.all_blocks(tx)
    }

    fn destroy<X: Transaction + ?Sized>(self, tx: &mut X) -> Result<()> {
        crate::media::change(tx, |tx| self.free_all(tx))
    }
}
