//! Typed tables, by name: a thin layer over byte keys.
//!
//! All tables of a store share its one space of keys. A key of the table `users` is `users`, a zero byte, and the encoding of the typed key; names have no zero
//! byte, so no two tables meet. Raw keys remain possible beside them, and `cairn kv scan --prefix 'users\x00'` shows a table as it is.

mod entries;
mod key;
mod name;
mod range;
pub(crate) mod types;
mod value;

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use tx::Keys;

pub use self::entries::Entries;
pub use self::key::{KeyCode, KeyOf};
pub use self::range::{KeyRange, PrefixOf};
#[cfg(feature = "serde")]
pub use self::value::Json;
pub use self::value::{Plain, ValueCode};
use crate::error::{DecodeError, Error, Key, Result};
use crate::store::{Snapshot, Store};
use crate::txn::scan::Scan;
use crate::txn::transaction::Transaction;

/// Longest name of a table, in bytes.
pub const TABLE_NAME_MAX: usize = 255;

thread_local! {
    /// Room for the next key and value of this thread.
    static SPARE: Cell<(Vec<u8>, Vec<u8>)> = const { Cell::new((Vec::new(), Vec::new())) };
}

/// Keys of type `K` with values of type `V`, under a name: made by [`Store::table`], and good for every store.
///
/// ```
/// # fn main() -> kv::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = kv::Store::open(dir.path().join("s"))?;
/// let ages = store.table::<str, u32>("ages")?;
/// store.transact(|tx| {
///     ages.put(tx, "Ada", &36)?;
///     ages.put(tx, "Alan", &41)?;
///     assert_eq!(ages.get(tx, "Ada")?, Some(36)); // in a transaction
///     Ok(())
/// })?;
/// assert_eq!(ages.on(&store).get("Alan")?, Some(41)); // a transaction of its own
/// let names: kv::Result<Vec<String>> = ages.scan(&store.snapshot()?).map(|entry| Ok(entry?.0)).collect();
/// assert_eq!(names?, ["Ada", "Alan"]);
/// # Ok(()) }
/// ```
///
/// The names of its types are stored with the first entry, under a key of the store's own that raw scans show: a table with other types for the same name is [`Error::TypeMismatch`].
/// Keep the handle, or clone it: it compares them once, a new one anew. In a store that was written before types were stored nothing is compared until something is put.
pub struct Table<K: ?Sized, V: ?Sized> {
    shared: Arc<types::Shared>,
    types: PhantomData<fn() -> (*const K, *const V)>,
}

impl Store {
    /// The table of that name. Nothing is written: a table is there when something is put in it.
    ///
    /// # Errors
    /// [`Error::TableName`]; [`Error::TypeMismatch`] if the table has other types; as [`get`](Self::get).
    pub fn table<K: KeyCode + ?Sized, V: ValueCode + ?Sized>(&self, name: &str) -> Result<Table<K, V>> {
        let table = Table::new(name)?;
        table.agree_with(self)?;
        Ok(table)
    }
}

impl<K: KeyCode + ?Sized, V: ValueCode + ?Sized> Table<K, V> {
    /// The table of that name, of whatever store: its types are compared when it is first used there.
    ///
    /// # Errors
    /// [`Error::TableName`].
    pub fn new(name: &str) -> Result<Self> {
        let why = match name.len() {
            0 => Some("is empty"),
            len if len > TABLE_NAME_MAX => Some("is longer than 255 bytes"),
            _ => name.contains('\0').then_some("has a zero byte"),
        };
        if let Some(why) = why {
            return Err(Error::TableName { name: name.to_owned(), why });
        }
        Ok(Self { shared: Arc::new(types::Shared::new(name)), types: PhantomData })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        std::str::from_utf8(&self.shared.prefix[..self.shared.prefix.len() - 1]).unwrap_or_default()
    }

    /// The bytes of a key, as it is in the store.
    pub fn raw_key(&self, key: &K) -> Vec<u8> {
        let mut bytes = self.shared.prefix.to_vec();
        key.encode_last(&mut bytes);
        bytes
    }

    // ---- read -------------------------------------------------------------------------------------------------

    /// The key's value.
    ///
    /// # Errors
    /// As [`Transaction::get`]; [`Error::Type`], [`Error::TypeMismatch`]: as all operations of a table.
    pub fn get<'t>(&self, tx: &'t impl Reader, key: &K) -> Result<Option<V::Value<'t>>> {
        self.agree(tx)?;
        self.with(key, None, |key, _| tx.read(key)?.map(|value| self.value(key, value)).transpose())
    }

    /// All entries, in order of their keys.
    pub fn scan<'t, R: Reader>(&self, tx: &'t R) -> Entries<'t, R, K, V> {
        Entries::new(self.clone(), tx, Keys::prefix(&self.shared.prefix))
    }

    /// The entries of a range of keys, in order.
    ///
    /// ```
    /// # fn main() -> kv::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = kv::Store::open(dir.path().join("s"))?;
    /// let squares = store.table::<i32, i32>("squares")?;
    /// for n in -3..=3 {
    ///     squares.on(&store).put(&n, &(n * n))?;
    /// }
    /// let tx = store.snapshot()?;
    /// let found: kv::Result<Vec<(i32, i32)>> = squares.range(&tx, -2..1).reverse().collect();
    /// assert_eq!(found?, [(0, 0), (-1, 1), (-2, 4)]);
    /// # Ok(()) }
    /// ```
    pub fn range<'t, R: Reader>(&self, tx: &'t R, range: impl KeyRange<K>) -> Entries<'t, R, K, V> {
        Entries::new(self.clone(), tx, range.keys(&self.shared.prefix))
    }

    /// The entries whose keys begin so: text with a text, tuples with their first elements as a tuple.
    ///
    /// ```
    /// # fn main() -> kv::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = kv::Store::open(dir.path().join("s"))?;
    /// let people = store.table::<(String, u32), str>("people by city")?;
    /// people.on(&store).put(&("London".into(), 1), "Ada")?;
    /// people.on(&store).put(&("London".into(), 2), "Alan")?;
    /// people.on(&store).put(&("New York".into(), 3), "Grace")?;
    /// assert_eq!(people.prefix(&store.snapshot()?, &("London",)).count(), 2);
    /// # Ok(()) }
    /// ```
    pub fn prefix<'t, R: Reader, P: PrefixOf<K> + ?Sized>(&self, tx: &'t R, prefix: &P) -> Entries<'t, R, K, V> {
        let mut bytes = self.shared.prefix.to_vec();
        prefix.encode_prefix(&mut bytes);
        Entries::new(self.clone(), tx, Keys::prefix(&bytes))
    }

    // ---- write ------------------------------------------------------------------------------------------------

    /// Sets the key's value; true if it had one.
    ///
    /// # Errors
    /// As [`Transaction::put`]; [`Error::Type`] if the value has no encoding.
    pub fn put(&self, tx: &mut Transaction<'_>, key: &K, value: &V::Put) -> Result<bool> {
        self.agree_to_put(tx)?;
        self.with(key, Some(value), |key, value| tx.put(key, value))
    }

    /// Sets the key's value, to be gone at a moment given in milliseconds of Unix time; true if it had one.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_until(&self, tx: &mut Transaction<'_>, key: &K, value: &V::Put, expires: u64) -> Result<bool> {
        self.agree_to_put(tx)?;
        self.with(key, Some(value), |key, value| tx.put_until(key, value, expires))
    }

    /// Sets the key's value, to be gone after this time, counted from now; true if it had one.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_for(&self, tx: &mut Transaction<'_>, key: &K, value: &V::Put, time: Duration) -> Result<bool> {
        self.put_until(tx, key, value, crate::time::after(time))
    }

    /// Removes the key; true if it had a value.
    ///
    /// # Errors
    /// As [`Transaction::delete`].
    pub fn delete(&self, tx: &mut Transaction<'_>, key: &K) -> Result<bool> {
        self.agree(tx)?;
        self.with(key, None, |key, _| tx.delete(key))
    }

    /// Removes the keys of a range, `..` for all; returns how many had a value.
    ///
    /// # Errors
    /// As [`Transaction::delete_range`].
    pub fn delete_range(&self, tx: &mut Transaction<'_>, range: impl KeyRange<K>) -> Result<u64> {
        self.agree(tx)?;
        tx.delete_range(range.keys(&self.shared.prefix))
    }

    /// The same table, for single operations on this store, each a transaction of its own.
    pub fn on<'s>(&self, store: &'s Store) -> TableOn<'s, K, V> {
        TableOn { table: self.clone(), store }
    }

    // ---- bytes ------------------------------------------------------------------------------------------------

    /// Calls `f` with the key's bytes, and the value's if there is one.
    fn with<T>(&self, key: &K, value: Option<&V::Put>, f: impl FnOnce(&[u8], &[u8]) -> Result<T>) -> Result<T> {
        // A call that comes here while `f` runs finds nothing spare, and allocates.
        let (mut key_bytes, mut buffer) = SPARE.try_with(Cell::take).unwrap_or_default();
        key_bytes.clear();
        buffer.clear();
        key_bytes.extend_from_slice(&self.shared.prefix);
        key.encode_last(&mut key_bytes);
        let result = match value.map(|value| V::bytes(value, &mut buffer)).transpose() {
            Ok(value) => f(&key_bytes, value.unwrap_or_default()),
            Err(why) => Err(self.unfit(&key_bytes, why)),
        };
        if key_bytes.capacity().max(buffer.capacity()) <= 64 << 10 {
            let _ = SPARE.try_with(|spare| spare.set((key_bytes, buffer)));
        }
        result
    }

    fn value<'t>(&self, key: &[u8], value: &'t [u8]) -> Result<V::Value<'t>> {
        V::decode(value).map_err(|why| self.unfit(key, why))
    }

    fn key(&self, key: &[u8]) -> Result<K::Owned> {
        let mut rest = key.get(self.shared.prefix.len()..).unwrap_or_default();
        let decoded = K::decode_last(&mut rest);
        let all = decoded.and_then(|owned| if rest.is_empty() { Ok(owned) } else { Err("the key is too long".into()) });
        all.map_err(|why| self.unfit(key, why))
    }

    #[cold]
    fn unfit(&self, key: &[u8], why: DecodeError) -> Error {
        Error::Type {
            table: self.name().to_owned(),
            key: Key(key[self.shared.prefix.len().min(key.len())..].to_vec()),
            why,
        }
    }
}

impl<K: ?Sized, V: ?Sized> Clone for Table<K, V> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), types: PhantomData }
    }
}

impl<K: ?Sized, V: ?Sized> std::fmt::Debug for Table<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table({})", self.shared.prefix.escape_ascii())
    }
}

/// A table, and the store for its single operations: see [`Table::on`].
#[derive(Debug)]
pub struct TableOn<'s, K: ?Sized, V: ?Sized> {
    table: Table<K, V>,
    store: &'s Store,
}

impl<K: KeyCode + ?Sized, V: ValueCode + ?Sized> TableOn<'_, K, V> {
    /// The key's value, copied.
    ///
    /// # Errors
    /// As [`Store::get`]; [`Error::Type`].
    pub fn get(&self, key: &K) -> Result<Option<V::Owned>> {
        self.view(key, |value| value.map(V::owned))
    }

    /// Shows the key's value to `look`, where it is.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn view<T>(&self, key: &K, look: impl FnOnce(Option<V::Value<'_>>) -> T) -> Result<T> {
        self.table.agree_with(self.store)?;
        self.table.with(key, None, |key, _| {
            self.store.view(key, |value| Ok(look(value.map(|value| self.table.value(key, value)).transpose()?)))?
        })
    }

    /// Sets the key's value; true if it had one. One barrier.
    ///
    /// # Errors
    /// As [`Store::put`]; [`Error::Type`] if the value has no encoding.
    pub fn put(&self, key: &K, value: &V::Put) -> Result<bool> {
        if !self.table.agree_with(self.store)? {
            return self.store.transact(|tx| self.table.put(tx, key, value)); // the first one
        }
        self.table.with(key, Some(value), |key, value| self.store.put(key, value))
    }

    /// Sets the key's value, to be gone at a moment given in milliseconds of Unix time; true if it had one.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_until(&self, key: &K, value: &V::Put, expires: u64) -> Result<bool> {
        if !self.table.agree_with(self.store)? {
            return self.store.transact(|tx| self.table.put_until(tx, key, value, expires));
        }
        self.table.with(key, Some(value), |key, value| self.store.put_until(key, value, expires))
    }

    /// Sets the key's value, to be gone after this time; true if it had one.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_for(&self, key: &K, value: &V::Put, time: Duration) -> Result<bool> {
        self.put_until(key, value, crate::time::after(time))
    }

    /// Removes the key; true if it had a value. One barrier, if it had.
    ///
    /// # Errors
    /// As [`Store::delete`].
    pub fn delete(&self, key: &K) -> Result<bool> {
        self.table.agree_with(self.store)?;
        self.table.with(key, None, |key, _| self.store.delete(key))
    }
}

/// What a table is read through: a [`Transaction`] or a [`Snapshot`].
pub trait Reader: sealed::Sealed {
    /// The key's value.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    fn read(&self, key: &[u8]) -> Result<Option<&[u8]>>;

    /// Pairs of a range of keys, in order.
    fn pairs(&self, keys: Keys) -> Scan<'_>;

    #[doc(hidden)]
    fn store(&self) -> u64;

    #[doc(hidden)]
    fn wrote(&self, key: &[u8]) -> bool;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for crate::txn::transaction::Transaction<'_> {}
    impl Sealed for crate::store::Snapshot<'_> {}
}

impl Reader for Transaction<'_> {
    fn read(&self, key: &[u8]) -> Result<Option<&[u8]>> {
        self.get(key)
    }

    fn pairs(&self, keys: Keys) -> Scan<'_> {
        self.scan(keys)
    }

    fn store(&self) -> u64 {
        self.core().types()
    }

    fn wrote(&self, key: &[u8]) -> bool {
        self.has_written(key)
    }
}

impl Reader for Snapshot<'_> {
    fn read(&self, key: &[u8]) -> Result<Option<&[u8]>> {
        self.get(key)
    }

    fn pairs(&self, keys: Keys) -> Scan<'_> {
        self.scan(keys)
    }

    fn store(&self) -> u64 {
        self.0.core().types()
    }

    fn wrote(&self, _: &[u8]) -> bool {
        false
    }
}
