//! Stores of keys and values, each with transactions, behind two traits.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::Result;
pub use crate::store::{How, Level, Room, Session, Store, Txn, Work};

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

#[cfg(test)]
mod tests;
