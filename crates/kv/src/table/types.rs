//! What a table's name stands for, kept in the store: its types, under a key that no table has.
//!
//! The first transaction that puts something in a table records its types with it, in the same commit. Every handle compares them once for each store, and
//! notes that they agree; until there is a record it looks each time. Nothing here changes a record. A transaction that writes its raw key, or removes it with
//! a range of keys, raises a number that all handles compare, and so has them look again.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tx::Keys;

use super::{KeyCode, Reader, Table, ValueCode};
use crate::error::{Error, Result};
use crate::media::key::RECORDS;
use crate::store::Store;
use crate::txn::transaction::Transaction;

/// Entries that a table loses in one transaction.
const TOGETHER: usize = 256;

/// What all clones of a handle share.
pub(super) struct Shared {
    /// The name and a zero byte.
    pub(super) prefix: Box<[u8]>,
    /// The store in which they were found to agree last, and its number of changes then.
    agrees: AtomicU64,
}

impl Shared {
    pub(super) fn new(name: &str) -> Self {
        Self { prefix: [name.as_bytes(), &[0]].concat().into(), agrees: AtomicU64::new(0) }
    }
}

impl Store {
    /// The tables that something was put in, and their types as text, in order of their names.
    ///
    /// ```
    /// # fn main() -> kv::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = kv::Store::open(dir.path().join("s"))?;
    /// store.table::<str, u32>("ages")?.on(&store).put("Ada", &36)?;
    /// assert_eq!(store.tables()?, [("ages".to_owned(), "text -> u32".to_owned())]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Store::snapshot`] and [`Snapshot::get`](crate::Snapshot::get).
    pub fn tables(&self) -> Result<Vec<(String, String)>> {
        let snapshot = self.snapshot()?;
        let records = snapshot.scan(Keys::prefix(RECORDS));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        records.map(|pair| pair.map(|(key, types)| (text(&key[RECORDS.len()..]), text(types)))).collect()
    }

    /// Removes the table of that name, with all its entries and its types; returns how many entries it had. Some entries are removed in each transaction, the types in the last one:
    /// after a crash in between call it again.
    ///
    /// ```
    /// # fn main() -> kv::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = kv::Store::open(dir.path().join("s"))?;
    /// store.table::<str, u32>("ages")?.on(&store).put("Ada", &36)?;
    /// assert_eq!(store.drop_table("ages")?, 1);
    /// assert!(store.tables()?.is_empty());
    /// store.table::<str, str>("ages")?; // of other types now
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Store::transact`].
    pub fn drop_table(&self, name: &str) -> Result<u64> {
        let (prefix, record) = ([name.as_bytes(), &[0]].concat(), [RECORDS, name.as_bytes()].concat());
        let mut all = 0;
        loop {
            let removed = self.transact(|tx| {
                let some = tx.scan(Keys::prefix(&prefix)).take(TOGETHER).map(|pair| Ok(pair?.0.to_vec()));
                let keys = some.collect::<Result<Vec<_>>>()?;
                for key in &keys {
                    tx.delete(key)?;
                }
                if keys.len() < TOGETHER {
                    tx.delete(&record)?;
                }
                Ok(keys.len())
            })?;
            all += removed as u64;
            if removed < TOGETHER {
                return Ok(all);
            }
        }
    }
}

impl<K: KeyCode + ?Sized, V: ValueCode + ?Sized> Table<K, V> {
    fn types() -> String {
        format!("{} -> {}", K::type_name(), V::type_name())
    }

    fn record(&self) -> Vec<u8> {
        [RECORDS, self.name().as_bytes()].concat()
    }

    /// Whether this was found to agree with the store before.
    #[inline]
    fn agreed(&self, store: u64) -> bool {
        self.shared.agrees.load(Relaxed) == store
    }

    /// An error if the store holds other types under this name; false if it holds none.
    #[inline]
    pub(super) fn agree(&self, tx: &impl Reader) -> Result<bool> {
        if self.agreed(tx.store()) { Ok(true) } else { self.compare(tx) }
    }

    #[cold]
    fn compare(&self, tx: &impl Reader) -> Result<bool> {
        let (record, store) = (self.record(), tx.store());
        let found = tx.read(&record)?;
        self.judge(found)?;
        // What this very transaction has put may come to nothing.
        if found.is_some() && !tx.wrote(&record) {
            self.shared.agrees.store(store, Relaxed);
        }
        Ok(found.is_some())
    }

    /// The same, for what is no transaction.
    #[inline]
    pub(super) fn agree_with(&self, store: &Store) -> Result<bool> {
        if self.agreed(store.core.types()) { Ok(true) } else { self.compare_with(store) }
    }

    #[cold]
    fn compare_with(&self, store: &Store) -> Result<bool> {
        let types = store.core.types();
        let found = store.view(self.record(), |found| self.judge(found).map(|()| found.is_some()))??;
        if found {
            self.shared.agrees.store(types, Relaxed);
        }
        Ok(found)
    }

    fn judge(&self, found: Option<&[u8]>) -> Result<()> {
        match (found, Self::types()) {
            (Some(stored), wanted) if stored != wanted.as_bytes() => Err(Error::TypeMismatch {
                table: self.name().to_owned(),
                stored: String::from_utf8_lossy(stored).into_owned(),
                wanted,
            }),
            _ => Ok(()),
        }
    }

    /// In front of a put. What is there already, from before types were stored, must be of these.
    #[inline]
    pub(super) fn agree_to_put(&self, tx: &mut Transaction<'_>) -> Result<()> {
        if self.agree(tx)? { Ok(()) } else { self.note(tx) }
    }

    #[cold]
    fn note(&self, tx: &mut Transaction<'_>) -> Result<()> {
        if let Some(first) = tx.scan(Keys::prefix(&self.shared.prefix)).next() {
            let (key, value) = first?;
            self.key(key)?;
            self.value(key, value)?;
        }
        tx.put(self.record(), Self::types())?;
        Ok(())
    }
}
