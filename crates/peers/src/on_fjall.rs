//! fjall: one keyspace, optimistic transactions.

use std::path::Path;

use fjall::{
    KeyspaceCreateOptions, OptimisticTxDatabase, OptimisticTxKeyspace, OptimisticWriteTx, PersistMode, Readable,
    Snapshot,
};

use crate::store::{How, Room, Session, Store, Txn, Work, copy};
use crate::{Error, Result};

/// As RocksDB's here.
const MEMTABLE_BYTES: u64 = 256 << 20;
/// A few memtables' worth.
const JOURNAL_BYTES: u64 = 1 << 30;

/// An open database.
#[derive(Clone)]
pub(crate) struct OnFjall {
    db: OptimisticTxDatabase,
    keys: OptimisticTxKeyspace,
}

impl OnFjall {
    pub(crate) fn open(dir: &Path, room: Room) -> Result<Self> {
        let builder = OptimisticTxDatabase::builder(dir).cache_size(room.bytes * 2 + (64 << 20));
        let db = builder.max_journaling_size(JOURNAL_BYTES).open().map_err(|error| refused(error).at(dir))?;
        let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES);
        let keys = db.keyspace("data", options).map_err(refused)?;
        Ok(Self { db, keys })
    }

    fn read(&self) -> Reading<'_> {
        Reading { of: self, tx: self.db.read_tx() }
    }

    fn write(&self, work: impl FnOnce(&mut Writing<'_>) -> Result<()>) -> Result<()> {
        let tx = self.db.write_tx().map_err(refused)?.durability(Some(PersistMode::SyncAll));
        let mut writing = Writing { of: self, tx };
        match work(&mut writing) {
            Ok(()) => {
                let committed = writing.tx.commit().map_err(refused)?;
                committed.map_err(|conflict| Error::conflict(LIBRARY, conflict.to_string()))
            }
            Err(error) => {
                writing.tx.rollback();
                Err(error)
            }
        }
    }
}

impl Store for OnFjall {
    fn session(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(self.clone()))
    }
}

impl Session for OnFjall {
    fn get(&mut self, key: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        Ok(self.keys.get(key).map_err(refused)?.map(|value| copy(&value, out)))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(|tx| tx.put(key, value))
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.write(|tx| tx.delete(key))
    }

    fn scan(&mut self, from: &[u8], count: usize, out: &mut [u8]) -> Result<usize> {
        self.read().scan(from, count, out)
    }

    /// Its own level is the only one: what was read is checked at commit.
    fn transact(&mut self, how: How, work: Work<'_>) -> Result<()> {
        if how.read_only { work(&mut self.read()) } else { self.write(|tx| work(tx)) }
    }
}

struct Reading<'s> {
    of: &'s OnFjall,
    tx: Snapshot,
}

impl Txn for Reading<'_> {
    fn get(&mut self, key: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        get(&self.tx, self.of, key, out)
    }

    fn put(&mut self, _: &[u8], _: &[u8]) -> Result<()> {
        Err(Error::of(LIBRARY, 0, "read-only".into()))
    }

    fn delete(&mut self, _: &[u8]) -> Result<()> {
        Err(Error::of(LIBRARY, 0, "read-only".into()))
    }

    fn scan(&mut self, from: &[u8], count: usize, out: &mut [u8]) -> Result<usize> {
        scan(&self.tx, self.of, from, count, out)
    }
}

struct Writing<'s> {
    of: &'s OnFjall,
    tx: OptimisticWriteTx,
}

impl Txn for Writing<'_> {
    fn get(&mut self, key: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        get(&self.tx, self.of, key, out)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.tx.insert(&self.of.keys, key, value);
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.tx.remove(&self.of.keys, key);
        Ok(())
    }

    fn scan(&mut self, from: &[u8], count: usize, out: &mut [u8]) -> Result<usize> {
        scan(&self.tx, self.of, from, count, out)
    }
}

fn get(tx: &impl Readable, of: &OnFjall, key: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
    Ok(tx.get(&of.keys, key).map_err(refused)?.map(|value| copy(&value, out)))
}

fn scan(tx: &impl Readable, of: &OnFjall, from: &[u8], count: usize, out: &mut [u8]) -> Result<usize> {
    let mut found = 0;
    for pair in tx.range(&of.keys, from..).take(count) {
        copy(&pair.value().map_err(refused)?, out);
        found += 1;
    }
    Ok(found)
}

const LIBRARY: &str = "fjall";

#[cold]
fn refused(error: fjall::Error) -> Error {
    Error::of(LIBRARY, 0, error.to_string())
}
