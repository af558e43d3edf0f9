//! RocksDB with one write-ahead log or another, and everything else the same.

use std::path::Path;

use crate::Result;
use crate::raw::rocksdb_wal::Handle;

/// Which log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wal {
    /// Its own: a file that grows, and is deleted.
    Own,
    /// Its own, in files that are used again (`recycle_log_file_num`).
    Recycled,
    /// A Cairn log: `integrations/rocksdb`.
    Cairn,
}

/// How much goes through the log before anything is measured, and how much it has room for.
#[derive(Clone, Copy, Debug)]
pub struct WalRoom {
    /// Bytes of a Cairn log.
    pub log_bytes: u64,
    /// Three times so many bytes are written and flushed to tables: a log that uses space again has used it.
    pub warm_bytes: usize,
}

/// What a Cairn log has cost since it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalCosts {
    /// Barriers.
    pub barriers: u64,
    /// Calls of `fdatasync`, which [`syncs`](crate::syncs) does not see.
    pub syncs: u64,
    /// What makes data durable: the number of `enum cairn_domain`.
    pub domain: u64,
}

/// An open database, closed when dropped. All threads may use it at once.
pub struct RocksdbWal(Handle);

impl RocksdbWal {
    /// Opens the database in the directory `dir`, or makes one; nothing is compressed, memtables have 256 MiB.
    ///
    /// # Errors
    /// The library's.
    pub fn open(dir: &Path, wal: Wal, room: WalRoom) -> Result<Self> {
        Handle::open(dir, wal as std::ffi::c_int, (&[], &[]), room.log_bytes, room.warm_bytes).map(Self)
    }

    /// The same with a Cairn log, of which each of these machines has a copy: a put returns when all have it.
    ///
    /// # Errors
    /// The library's.
    pub fn with_copies(dir: &Path, addresses: &[String], secret: &[u8], room: WalRoom) -> Result<Self> {
        let wal = Wal::Cairn as std::ffi::c_int;
        Handle::open(dir, wal, (addresses, secret), room.log_bytes, room.warm_bytes).map(Self)
    }

    /// Sets the key's value; durable when it returns.
    ///
    /// # Errors
    /// The library's.
    #[inline]
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.put(key, value)
    }

    /// Copies the key's value to `out`, cut to its length, and returns its own.
    ///
    /// # Errors
    /// The library's.
    pub fn get(&self, key: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        self.0.get(key, out)
    }

    /// `None` if its log is RocksDB's own.
    #[must_use]
    pub fn costs(&self) -> Option<WalCosts> {
        self.0.costs().map(|[barriers, syncs, domain]| WalCosts { barriers, syncs, domain })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_log_keeps_what_was_put() {
        let dir = tempfile::tempdir().unwrap();
        for wal in [Wal::Own, Wal::Recycled, Wal::Cairn] {
            let dir = dir.path().join(format!("{wal:?}"));
            let room = WalRoom { log_bytes: 8 << 20, warm_bytes: 4 << 20 };
            let there = RocksdbWal::open(&dir, wal, room).unwrap();
            let (before, synced) = (there.costs(), crate::syncs());
            for n in 0..10u8 {
                there.put(&[n], &[n; 100]).unwrap();
            }
            if let (Some(before), Some(after)) = (before, there.costs()) {
                assert!(wal == Wal::Cairn && after.barriers >= before.barriers + 10);
            } else {
                assert!(wal != Wal::Cairn && crate::syncs() >= synced.map(|synced| synced + 10));
            }
            drop(there);
            let room = WalRoom { warm_bytes: 0, ..room };
            let there = RocksdbWal::open(&dir, wal, room).unwrap();
            let mut out = [0; 8];
            assert_eq!((there.get(&[7], &mut out).unwrap(), out), (Some(100), [7; 8]));
            assert_eq!(there.get(b"none", &mut out).unwrap(), None);
            assert_eq!(dir.join("wal.cairn").exists(), wal == Wal::Cairn);
        }
        std::fs::write(dir.path().join("file"), "").unwrap();
        let room = WalRoom { log_bytes: 8 << 20, warm_bytes: 0 };
        let refused = RocksdbWal::open(&dir.path().join("file"), Wal::Own, room).err().unwrap().to_string();
        assert!(refused.contains("file: rocksdb: "), "{refused}");
    }
}
