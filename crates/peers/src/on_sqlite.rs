//! SQLite with its write-ahead log: one table, a connection for each session.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use crate::store::{How, Room, Session, Store, Txn, Work, copy};
use crate::{Error, Result};

const LIBRARY: &str = "sqlite";
/// A transaction that waits longer for another writer has met a conflict.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Pages of the log after which it is copied to the file: 64 MiB.
const LOG_PAGES: u32 = 16 << 10;

/// An open database.
pub(crate) struct OnSqlite {
    path: PathBuf,
    cache_kib: u64,
}

impl OnSqlite {
    pub(crate) fn open(dir: &Path, room: Room) -> Result<Self> {
        let made = Self { path: dir.join("data.sqlite"), cache_kib: (room.bytes * 2 + (64 << 20)) >> 10 };
        let one = made.connect()?;
        let table = "CREATE TABLE IF NOT EXISTS data (key BLOB PRIMARY KEY, value BLOB NOT NULL)";
        one.0.execute(table, []).map_err(|error| refused(error).at(dir))?;
        Ok(made)
    }

    /// What each connection has to be told. `FULL`: each commit syncs the log.
    fn connect(&self) -> Result<One> {
        let connect = || {
            let connection = Connection::open(&self.path)?;
            connection.busy_timeout(TIMEOUT)?;
            connection.pragma_update(None, "journal_mode", "wal")?;
            connection.pragma_update(None, "synchronous", "full")?;
            connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES)?;
            connection.pragma_update(None, "cache_size", -(self.cache_kib as i64))?;
            Ok(One(connection))
        };
        connect().map_err(|error| refused(error).at(&self.path))
    }
}

impl Store for OnSqlite {
    fn session(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(self.connect()?))
    }
}

struct One(Connection);

impl One {
    fn statement(&self, text: &str) -> Result<CachedStatement<'_>> {
        self.0.prepare_cached(text).map_err(refused)
    }

    fn run(&self, text: &str) -> Result<()> {
        self.statement(text)?.execute([]).map(drop).map_err(refused)
    }
}

/// Each is a transaction of its own, outside of one.
impl Txn for One {
    fn get(&mut self, key: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        let mut found = self.statement("SELECT value FROM data WHERE key = ?1")?;
        let value = found.query_row([key], |row| Ok(copy(row.get_ref(0)?.as_blob()?, out)));
        value.optional().map_err(refused)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        const PUT: &str = "INSERT INTO data VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
        self.statement(PUT)?.execute(params![key, value]).map(drop).map_err(refused)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.statement("DELETE FROM data WHERE key = ?1")?.execute([key]).map(drop).map_err(refused)
    }

    fn scan(&mut self, from: &[u8], count: usize, out: &mut [u8]) -> Result<usize> {
        let mut found = self.statement("SELECT value FROM data WHERE key >= ?1 ORDER BY key LIMIT ?2")?;
        let mut rows = found.query(params![from, count as i64]).map_err(refused)?;
        let mut count = 0;
        while let Some(row) = rows.next().map_err(refused)? {
            copy(row.get_ref(0).map_err(refused)?.as_blob().map_err(|error| refused(error.into()))?, out);
            count += 1;
        }
        Ok(count)
    }
}

impl Session for One {
    fn get(&mut self, key: &[u8], out: &mut [u8]) -> Result<Option<usize>> {
        Txn::get(self, key, out)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Txn::put(self, key, value)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        Txn::delete(self, key)
    }

    fn scan(&mut self, from: &[u8], count: usize, out: &mut [u8]) -> Result<usize> {
        Txn::scan(self, from, count, out)
    }

    /// One writer at a time: every level is serializable. It waits for the one before it when it begins, not when it first writes, which could be too late.
    fn transact(&mut self, how: How, work: Work<'_>) -> Result<()> {
        self.run(if how.read_only { "BEGIN" } else { "BEGIN IMMEDIATE" })?;
        let done = work(self).and_then(|()| self.run("COMMIT"));
        if done.is_err() && !self.0.is_autocommit() {
            self.run("ROLLBACK")?;
        }
        done
    }
}

#[cold]
fn refused(error: rusqlite::Error) -> Error {
    use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked};
    match error.sqlite_error_code() {
        Some(DatabaseBusy | DatabaseLocked) => Error::conflict(LIBRARY, error.to_string()),
        _ => Error::of(LIBRARY, 0, error.to_string()),
    }
}
