//! Stores of keys and values, each with transactions, behind two traits.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::Result;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// LMDB, which writes pages and syncs them.
    Lmdb,
    /// LMDB with `MDB_WRITEMAP`: stores into the mapped file, then `msync`.
    LmdbWritemap,
    /// RocksDB; single operations alone.
    RocksDb,
    /// RocksDB's `OptimisticTransactionDB`.
    RocksDbOptimistic,
    /// RocksDB's `TransactionDB`: locks, with detection of deadlocks.
    RocksDbLocking,
    /// Berkeley DB: B-tree, page locks.
    BerkeleyDb,
    /// SQLite with its write-ahead log.
    Sqlite,
    /// redb.
    Redb,
    /// fjall, with optimistic transactions.
    Fjall,
}

/// What transactions are spared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// Reads see one state; of two that change the same key one fails.
    Snapshot,
    /// As if one after the other.
    Serializable,
}

impl Peer {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Lmdb,
        Self::LmdbWritemap,
        Self::RocksDb,
        Self::RocksDbOptimistic,
        Self::RocksDbLocking,
        Self::BerkeleyDb,
        Self::Sqlite,
        Self::Redb,
        Self::Fjall,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lmdb => "lmdb",
            Self::LmdbWritemap => "lmdb-writemap",
            Self::RocksDb => "rocksdb",
            Self::RocksDbOptimistic => "rocksdb-optimistic",
            Self::RocksDbLocking => "rocksdb-locking",
            Self::BerkeleyDb => "bdb",
            Self::Sqlite => "sqlite",
            Self::Redb => "redb",
            Self::Fjall => "fjall",
        }
    }

    /// Levels at which it runs transactions of several operations; none if it has no such transactions.
    #[must_use]
    pub fn levels(self) -> &'static [Level] {
        match self {
            Self::RocksDb => &[],
            Self::RocksDbOptimistic | Self::RocksDbLocking => &[Level::Serializable, Level::Snapshot],
            _ => &[Level::Serializable],
        }
    }

    /// Whether those that write wait for each other from their beginning on.
    #[must_use]
    pub fn has_one_writer(self) -> bool {
        matches!(self, Self::Lmdb | Self::LmdbWritemap | Self::Sqlite | Self::Redb)
    }

    /// Whether it is in this build.
    #[must_use]
    pub fn is_compiled(self) -> bool {
        match self {
            Self::Lmdb | Self::LmdbWritemap => cfg!(feature = "lmdb"),
            Self::RocksDb | Self::RocksDbOptimistic | Self::RocksDbLocking => cfg!(feature = "rocksdb"),
            Self::BerkeleyDb => cfg!(feature = "bdb"),
            Self::Sqlite => cfg!(feature = "sqlite"),
            Self::Redb => cfg!(feature = "redb"),
            Self::Fjall => cfg!(feature = "fjall"),
        }
    }

    /// Opens the store in the directory `dir`, or makes one, with what each commit of it needs to be durable; `None` if it is not in this build.
    ///
    /// # Errors
    /// The library's.
    pub fn open(self, dir: &Path, room: Room) -> Result<Option<Box<dyn Store>>> {
        let _ = (dir, room);
        match self {
            #[cfg(feature = "lmdb")]
            Self::Lmdb | Self::LmdbWritemap => {
                boxed(crate::raw::lmdb::Lmdb::open(dir, room, self == Self::LmdbWritemap)?)
            }
            #[cfg(feature = "rocksdb")]
            Self::RocksDb => boxed(crate::raw::rocksdb::open(dir, room, crate::raw::rocksdb::Kind::Plain)?),
            #[cfg(feature = "rocksdb")]
            Self::RocksDbOptimistic => {
                boxed(crate::raw::rocksdb::open(dir, room, crate::raw::rocksdb::Kind::Optimistic)?)
            }
            #[cfg(feature = "rocksdb")]
            Self::RocksDbLocking => boxed(crate::raw::rocksdb::open(dir, room, crate::raw::rocksdb::Kind::Locking)?),
            #[cfg(feature = "bdb")]
            Self::BerkeleyDb => boxed(crate::raw::bdb::open(dir, room)?),
            #[cfg(feature = "sqlite")]
            Self::Sqlite => boxed(crate::on_sqlite::OnSqlite::open(dir, room)?),
            #[cfg(feature = "redb")]
            Self::Redb => boxed(crate::on_redb::OnRedb::open(dir, room)?),
            #[cfg(feature = "fjall")]
            Self::Fjall => boxed(crate::on_fjall::OnFjall::open(dir, room)?),
            #[allow(unreachable_patterns)] // with every feature
            _ => Ok(None),
        }
    }
}

#[allow(dead_code)] // without features there is nothing to open
fn boxed(store: impl Store + 'static) -> Result<Option<Box<dyn Store>>> {
    Ok(Some(Box::new(store)))
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(Self::name).join(", ");
        Self::ALL.into_iter().find(|peer| peer.name() == name).ok_or_else(|| format!("{name:?} is none of {}", names()))
    }
}

/// What will be in a store: caches and maps are sized by it.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Bytes of keys and values together.
    pub bytes: u64,
    /// Sessions at one time.
    pub sessions: usize,
}

/// An open store, closed when it and its sessions are dropped.
pub trait Store: Send + Sync {
    /// What one thread uses it with.
    ///
    /// # Errors
    /// Too many sessions.
    fn session(&self) -> Result<Box<dyn Session>>;
}

/// One thread's way into a store. What changes something is durable when it returns.
pub trait Session: Send {
    /// Copies the key's value to `out`, cut to its length, and returns its own.
    ///
    /// # Errors
    /// The library's, here and below; some of them are [conflicts](crate::Error::is_conflict), after which all is as it was.
    fn get(&mut self, key: &[u8], out: &mut [u8]) -> Result<Option<usize>>;

    /// Sets the key's value.
    ///
    /// # Errors
    /// As `get`.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Removes the key, whether it is there or not.
    ///
    /// # Errors
    /// As `get`.
    fn delete(&mut self, key: &[u8]) -> Result<()>;

    /// Copies the values of up to `count` keys from `from` on to `out`, one over the other; returns how many there were.
    ///
    /// # Errors
    /// As `get`.
    fn scan(&mut self, from: &[u8], count: usize, out: &mut [u8]) -> Result<usize>;

    /// Begins a transaction, lets `work` use it, and commits it; aborts it if `work` fails. Not tried again.
    ///
    /// # Errors
    /// Those of `work`; the library's.
    fn transact(&mut self, how: How, work: Work<'_>) -> Result<()>;
}

/// What is known of a transaction beforehand.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// At least this; one that its [`Peer::levels`] has.
    pub level: Level,
    /// It changes nothing.
    pub read_only: bool,
}

/// What is done in a transaction.
pub type Work<'a> = &'a mut dyn FnMut(&mut dyn Txn) -> Result<()>;

/// A transaction under way; it sees its own changes.
pub trait Txn {
    /// As [`Session::get`].
    ///
    /// # Errors
    /// As there, here and below.
    fn get(&mut self, key: &[u8], out: &mut [u8]) -> Result<Option<usize>>;

    /// As [`Session::put`].
    ///
    /// # Errors
    /// As there; the transaction is read-only.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// As [`Session::delete`].
    ///
    /// # Errors
    /// As `put`.
    fn delete(&mut self, key: &[u8]) -> Result<()>;

    /// As [`Session::scan`].
    ///
    /// # Errors
    /// As there.
    fn scan(&mut self, from: &[u8], count: usize, out: &mut [u8]) -> Result<usize>;
}

/// Copies what there is room for.
#[allow(dead_code)] // without features nobody has anything
#[inline]
pub(crate) fn copy(value: &[u8], out: &mut [u8]) -> usize {
    let bytes = value.len().min(out.len());
    out[..bytes].copy_from_slice(&value[..bytes]);
    value.len()
}

#[cfg(test)]
mod tests;
