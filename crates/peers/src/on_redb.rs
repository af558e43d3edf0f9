//! redb: one table.

use std::path::Path;
use std::sync::Arc;

use redb::{Database, Durability, ReadableDatabase, ReadableTable, Table, TableDefinition};

use crate::store::{How, Room, Session, Store, Txn, Work, copy};
use crate::{Error, Result};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("data");

/// An open database.
pub(crate) struct OnRedb(Arc<Database>);

impl OnRedb {
    pub(crate) fn open(dir: &Path, room: Room) -> Result<Self> {
        let cache_bytes = room.bytes as usize * 2 + (64 << 20);
        let made = Database::builder().set_cache_size(cache_bytes).create(dir.join("data.redb"));
        let db = made.map_err(|error| refused(error).at(dir))?;
        let made = Self(Arc::new(db));
        // Readers want the table to be there.
        One(made.0.clone()).write(|_| Ok(()))?;
        Ok(made)
    }
}

impl Store for OnRedb {
    fn session(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(One(self.0.clone())))
    }
}

struct One(Arc<Database>);

impl One {
    fn read<R>(&self, work: impl FnOnce(&mut Reading) -> Result<R>) -> Result<R> {
        let tx = self.0.begin_read().map_err(refused)?;
        work(&mut Reading(tx.open_table(TABLE).map_err(refused)?))
    }

    fn write(&self, work: impl FnOnce(&mut Writing<'_>) -> Result<()>) -> Result<()> {
        let mut tx = self.0.begin_write().map_err(refused)?;
        tx.set_durability(Durability::Immediate).map_err(refused)?;
        let done = work(&mut Writing(tx.open_table(TABLE).map_err(refused)?));
        match done {
            Ok(()) => tx.commit().map_err(refused),
            Err(error) => {
                tx.abort().map_err(refused)?;
                Err(error)
            }
        }
    }
}

impl Session for One {
    fn get(&mut self, key: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        self.read(|tx| tx.get(key, out))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(|tx| tx.put(key, value))
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.write(|tx| tx.delete(key))
    }

    fn scan(&mut self, from: &[u8], count: usize, out: &mut [u8]) -> Result<usize> {
        self.read(|tx| tx.scan(from, count, out))
    }

    /// One writer at a time: every level is serializable.
    fn transact(&mut self, how: How, work: Work<'_>) -> Result<()> {
        if how.read_only { self.read(|tx| work(tx)) } else { self.write(|tx| work(tx)) }
    }
}

struct Reading(redb::ReadOnlyTable<&'static [u8], &'static [u8]>);

impl Txn for Reading {
    fn get(&mut self, key: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        get(&self.0, key, out)
    }

    fn put(&mut self, _: &[u8], _: &[u8]) -> Result<()> {
        Err(Error::of(LIBRARY, 0, "read-only".into()))
    }

    fn delete(&mut self, _: &[u8]) -> Result<()> {
        Err(Error::of(LIBRARY, 0, "read-only".into()))
    }

    fn scan(&mut self, from: &[u8], count: usize, out: &mut [u8]) -> Result<usize> {
        scan(&self.0, from, count, out)
    }
}

struct Writing<'t>(Table<'t, &'static [u8], &'static [u8]>);

impl Txn for Writing<'_> {
    fn get(&mut self, key: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        get(&self.0, key, out)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.insert(key, value).map(|_| ()).map_err(refused)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.0.remove(key).map(|_| ()).map_err(refused)
    }

    fn scan(&mut self, from: &[u8], count: usize, out: &mut [u8]) -> Result<usize> {
        scan(&self.0, from, count, out)
    }
}

type Bytes = &'static [u8];

fn get(table: &impl ReadableTable<Bytes, Bytes>, key: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
    Ok(table.get(key).map_err(refused)?.map(|value| copy(value.value(), out)))
}

fn scan(table: &impl ReadableTable<Bytes, Bytes>, from: &[u8], count: usize, out: &mut [u8]) -> Result<usize> {
    let mut found = 0;
    for pair in table.range(from..).map_err(refused)?.take(count) {
        copy(pair.map_err(refused)?.1.value(), out);
        found += 1;
    }
    Ok(found)
}

const LIBRARY: &str = "redb";

#[cold]
fn refused(error: impl Into<redb::Error>) -> Error {
    Error::of(LIBRARY, 0, error.into().to_string())
}
