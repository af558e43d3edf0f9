//! Many pairs at once: big transactions, one barrier for each.

use tx::Isolation;

use crate::error::Result;
use crate::store::Store;
use crate::txn::retry;
use crate::txn::transaction::check_len;

/// Bytes of a transaction, about: beyond that a barrier more or less is not seen.
const BATCH: usize = 1 << 20;
/// What a pair takes besides its key and value.
const EACH: usize = 56;

/// What is loaded and durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loaded {
    /// Pairs.
    pub pairs: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

impl Store {
    /// Loads pairs, in any order; those in order of their keys are loaded fastest. Of several with one key the last one stays.
    ///
    /// It is not one transaction but one for each mebibyte: if it fails, what was loaded before is there.
    ///
    /// ```
    /// # fn main() -> kv::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = kv::Store::open(dir.path().join("s"))?;
    /// let loaded = store.load((0..1000).map(|n| (format!("user{n:05}"), "new")))?;
    /// assert_eq!(loaded.pairs, 1000);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn load<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, pairs: impl IntoIterator<Item = (K, V)>) -> Result<Loaded> {
        let mut loader = self.loader();
        for (key, value) in pairs {
            loader.put(key.as_ref(), value.as_ref(), None)?;
        }
        loader.finish()
    }

    /// The same, pair by pair, with expiry times and progress.
    pub fn loader(&self) -> Loader<'_> {
        Loader { store: self, bytes: Vec::new(), pairs: Vec::new(), sorted: true, loaded: Loaded::default() }
    }
}

/// Takes pairs and writes them in big transactions: see [`Store::loader`]. Pairs of the last one are lost without [`finish`](Self::finish).
///
/// ```
/// # fn main() -> kv::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = kv::Store::open(dir.path().join("s"))?;
/// let mut loader = store.loader();
/// for n in 0..1000_u32 {
///     if loader.put(&n.to_be_bytes(), b"new", None)? {
///         println!("{} pairs are durable", loader.loaded().pairs);
///     }
/// }
/// assert_eq!(loader.finish()?.pairs, 1000);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Loader<'s> {
    store: &'s Store,
    /// Keys and values of the next transaction.
    bytes: Vec<u8>,
    pairs: Vec<Pair>,
    sorted: bool,
    loaded: Loaded,
}

/// Where a pair is.
#[derive(Clone, Copy, Debug)]
struct Pair {
    key: usize,
    value: usize,
    end: usize,
    expires: Option<u64>,
}

impl Pair {
    fn key<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        &bytes[self.key..self.value]
    }
}

impl Loader<'_> {
    /// Takes a pair, and when it expires, in milliseconds of Unix time. True if pairs became durable by this call.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn put(&mut self, key: &[u8], value: &[u8], expires: Option<u64>) -> Result<bool> {
        check_len(key, Some(value))?;
        let size = self.bytes.len() + key.len() + value.len() + (self.pairs.len() + 1) * EACH;
        let full = size > BATCH && !self.pairs.is_empty();
        if full {
            self.write()?;
        }
        let at = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.sorted &= self.pairs.last().is_none_or(|last| last.key(&self.bytes) < key);
        self.pairs.push(Pair { key: at, value: at + key.len(), end: self.bytes.len(), expires });
        Ok(full)
    }

    /// What is durable by now.
    #[must_use]
    pub fn loaded(&self) -> Loaded {
        self.loaded
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn finish(mut self) -> Result<Loaded> {
        self.write()?;
        Ok(self.loaded)
    }

    fn write(&mut self) -> Result<()> {
        let bytes = &self.bytes;
        if !self.sorted {
            // Stable: of equal keys the last one is written last.
            self.pairs.sort_by(|a, b| a.key(bytes).cmp(b.key(bytes)));
        }
        let pairs = &self.pairs;
        // It waits for others who write these keys, instead of meeting conflicts with them.
        retry::retry(&self.store.core, Isolation::Serializable, true, |tx| {
            for pair in pairs {
                let (key, value) = (pair.key(bytes), &bytes[pair.value..pair.end]);
                match pair.expires {
                    Some(at) => tx.put_until(key, value, at)?,
                    None => tx.put(key, value)?,
                };
            }
            Ok::<_, crate::Error>(())
        })?;
        self.loaded.pairs += pairs.len() as u64;
        self.loaded.bytes += bytes.len() as u64;
        self.bytes.clear();
        self.pairs.clear();
        self.sorted = true;
        Ok(())
    }
}
