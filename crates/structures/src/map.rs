//! What the maps have in common.

use std::ops::ControlFlow;

use pmem::PPtr;
use tx::{Keys, Result, Transaction, Visit};

/// What a walk over all of a structure found; nothing was wrong with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Pairs.
    pub entries: u64,
    /// Bytes of all keys together.
    pub key_bytes: u64,
    /// Bytes of all values together.
    pub value_bytes: u64,
    /// Blocks the structure holds.
    pub blocks: u64,
    /// Bytes of these blocks.
    pub block_bytes: u64,
    /// Blocks a handle reads on the longest way to a pair.
    pub depth: u32,
}

impl Report {
    /// Bytes of blocks per pair that are neither key nor value.
    ///
    /// ```
    /// let report = structures::Report { entries: 2, key_bytes: 10, value_bytes: 90, block_bytes: 160, ..Default::default() };
    /// assert_eq!(report.overhead(), 30.0);
    /// ```
    pub fn overhead(&self) -> f64 {
        (self.block_bytes - self.key_bytes - self.value_bytes) as f64 / self.entries.max(1) as f64
    }

    /// Counts a pair that has a block of its own.
    pub(crate) fn entry(&mut self, key: &[u8], value: &[u8], room: u64) {
        self.entries += 1;
        self.key_bytes += key.len() as u64;
        self.value_bytes += value.len() as u64;
        self.blocks += 1;
        self.block_bytes += room;
    }
}

/// A map from byte strings to byte strings, in whatever transaction it is handed.
///
/// A handle is `Copy` and holds what never changes. One that comes from a transaction that was aborted leads nowhere.
///
/// ```
/// use structures::{BTree, BTreeOptions, HashMap, HashMapOptions, Map};
/// use tx::{Engine, Isolation, Reference};
///
/// fn rename(map: &impl Map, tx: &mut impl tx::Transaction, from: &[u8], to: &[u8]) -> tx::Result<bool> {
///     let Some(value) = map.get(tx, from)?.map(<[u8]>::to_vec) else { return Ok(false) };
///     map.put(tx, to, &value)?;
///     map.delete(tx, from)
/// }
///
/// let engine = Reference::new();
/// engine.transact(Isolation::Strict, |tx| -> tx::Result<()> {
///     let map = HashMap::create(tx, &HashMapOptions::new())?;
///     map.put(tx, b"a", b"1")?;
///     assert!(rename(&map, tx, b"a", b"b")?);
///     let tree = BTree::create(tx, &BTreeOptions::new())?;
///     assert!(!rename(&tree, tx, b"a", b"b")?);
///     Ok(())
/// })?;
/// # Ok::<(), tx::Error>(())
/// ```
pub trait Map: Copy {
    /// The key's value.
    ///
    /// # Errors
    /// Those of the transaction; [`tx::Error::Damaged`].
    fn get<'t, X: Transaction + ?Sized>(&self, tx: &'t X, key: &[u8]) -> Result<Option<&'t [u8]>>;

    /// Sets the key's value; true if it had one. A value that fits where the old one is goes there.
    ///
    /// # Errors
    /// [`tx::Error::Limit`] for a key or value that is too long; as [`get`](Self::get); no space.
    fn put<X: Transaction + ?Sized>(&self, tx: &mut X, key: &[u8], value: &[u8]) -> Result<bool>;

    /// Removes the key; true if it was there.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn delete<X: Transaction + ?Sized>(&self, tx: &mut X, key: &[u8]) -> Result<bool>;

    /// True if the key has a value.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn contains<X: Transaction + ?Sized>(&self, tx: &X, key: &[u8]) -> Result<bool> {
        Ok(self.get(tx, key)?.is_some())
    }

    /// Calls `visit` with the pairs of `keys` in order.
    ///
    /// # Errors
    /// [`tx::Error::Unordered`] if there is no order; as [`get`](Self::get).
    fn scan<X: Transaction + ?Sized>(&self, tx: &X, keys: &Keys, visit: Visit<'_>) -> Result<()>;

    /// Calls `visit` with all pairs, in whatever order is cheapest.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn for_each<X: Transaction + ?Sized>(
        &self,
        tx: &X,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()>;

    /// How many pairs there are. It counts them: a number kept in one place would be written by every insert.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn len<X: Transaction + ?Sized>(&self, tx: &X) -> Result<u64>;

    /// Walks and checks everything.
    ///
    /// # Errors
    /// [`tx::Error::Damaged`] names the first thing that is wrong.
    fn verify<X: Transaction + ?Sized>(&self, tx: &X) -> Result<Report>;

    /// Its blocks, each once, the one it is opened by among them. Those of all structures together, and what else the program keeps,
    /// are what the engine has allocated: whatever there is more is lost.
    ///
    /// ```
    /// use structures::{HashMap, HashMapOptions, Map};
    /// use tx::{Engine, Isolation, Reference};
    ///
    /// let engine = Reference::new();
    /// engine.transact(Isolation::Strict, |tx| -> tx::Result<()> {
    ///     let map = HashMap::create(tx, &HashMapOptions::new())?;
    ///     assert!(map.blocks(tx)?.contains(&map.root().cast()));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), tx::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`verify`](Self::verify).
    fn blocks<X: Transaction + ?Sized>(&self, tx: &X) -> Result<Vec<PPtr<u8>>>;

    /// Frees all blocks. Handles lead nowhere afterwards.
    ///
    /// # Errors
    /// As [`verify`](Self::verify).
    fn destroy<X: Transaction + ?Sized>(self, tx: &mut X) -> Result<()>;
}
