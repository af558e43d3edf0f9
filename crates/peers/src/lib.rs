//! Systems that Cairn is measured against, each doing the same work in the same process and directory.
//!
//! | peer | feature | Debian package | what it is here |
//! |---|---|---|---|
//! | `Pmemobj` | `pmemobj` | libpmemobj-dev | undo transactions; a hash map with bucket locks and a B+tree with one lock, in C, as its manual recommends |
//! | `Pmemlog` | `pmemlog` | libpmemlog-dev | a log of bytes, one lock, each append synced |
//! | `Peer::Lmdb`, `LmdbWritemap` | `lmdb` | liblmdb-dev | B+tree, one writer, readers never wait; syncs by default |
//! | `Peer::RocksDb`, `RocksDbOptimistic`, `RocksDbLocking` | `rocksdb` | librocksdb-dev | LSM tree; the log is synced at each commit, nothing compressed, memtables of 256 MiB |
//! | `Peer::BerkeleyDb` | `bdb` | libdb-dev | B-tree with page locks, serializable; the log is synced at each commit |
//! | `Peer::Sqlite` | `sqlite` | (a crate, with its C) | B-tree and write-ahead log, one writer, `synchronous=FULL` |
//! | `Peer::Redb` | `redb` | (a crate) | copy-on-write B-tree, one writer, `Durability::Immediate` |
//! | `Peer::Fjall` | `fjall` | (a crate) | LSM tree, optimistic transactions, `PersistMode::SyncAll` |
//!
//! `RocksdbWal`, of feature `rocksdb` too, is RocksDB with its own write-ahead log or with ours, as `integrations/rocksdb` has it.
//!
//! Without a feature nothing of it is compiled or needed; [`compiled`] tells which are in this build. `make setup-peers` installs the
//! packages.
//!
//! Stores of keys and values are behind [`kv::Store`] and [`kv::Session`]. [`syncs`] counts the system calls with which any of them waits for
//! the device.

#![deny(unsafe_code)]

mod error;
pub mod kv;
#[cfg(feature = "fjall")]
mod on_fjall;
#[cfg(feature = "redb")]
mod on_redb;
#[cfg(feature = "sqlite")]
mod on_sqlite;
#[cfg(feature = "pmemlog")]
mod pmemlog;
#[cfg(feature = "pmemobj")]
mod pmemobj;
#[cfg(feature = "syncs")]
#[allow(unsafe_code)]
mod raw;
#[cfg(feature = "rocksdb")]
mod rocksdb_wal;
mod store;

pub use error::{Error, Result};
pub use kv::Peer;
#[cfg(feature = "pmemlog")]
pub use pmemlog::Pmemlog;
#[cfg(feature = "pmemobj")]
pub use pmemobj::{KEY_MAX, LISTS_MAX, Pmemobj};
#[cfg(feature = "pmemobj")]
pub use raw::pmemobj::{List, Map, Objects};
#[cfg(feature = "rocksdb")]
pub use rocksdb_wal::{RocksdbWal, Wal, WalCosts, WalRoom};

/// All peers there can be, by the name of their package.
pub const ALL: [&str; 8] = ["pmemobj", "pmemlog", "lmdb", "rocksdb", "bdb", "sqlite", "redb", "fjall"];

/// On memory that is no DAX file system both libraries of PMDK call `msync` unless this is in the environment when the process first opens a
/// pool. With it, they flush cache lines, as Cairn's emulated domain does.
pub const FORCE: (&str, &str) = ("PMEM_IS_PMEM_FORCE", "1");

/// The peers in this build.
#[must_use]
pub fn compiled() -> Vec<&'static str> {
    let in_build = [
        cfg!(feature = "pmemobj"),
        cfg!(feature = "pmemlog"),
        cfg!(feature = "lmdb"),
        cfg!(feature = "rocksdb"),
        cfg!(feature = "bdb"),
        cfg!(feature = "sqlite"),
        cfg!(feature = "redb"),
        cfg!(feature = "fjall"),
    ];
    ALL.iter().zip(in_build).filter(|(_, there)| *there).map(|(name, _)| *name).collect()
}

/// How often this process has waited for the device so far: `fsync`, `fdatasync`, `msync`, `sync_file_range`, `syncfs`, and writes to files that were
/// opened to be synchronous, by libraries and Rust alike (not raw system calls, as our own pools make, which count by themselves). `None` in a
/// build without peers.
#[must_use]
#[inline]
pub fn syncs() -> Option<u64> {
    #[cfg(feature = "syncs")]
    return Some(raw::sync::syncs());
    #[cfg(not(feature = "syncs"))]
    None
}
