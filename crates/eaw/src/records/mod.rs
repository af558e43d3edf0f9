//! Transactional record stores: tables of records of any length, behind one trait for programs that compare ways of keeping them.
//!
//! [`mars`](crate::mars) keeps them by editable atomic writes.
//!
//! Transactions are serializable as far as records go: each record that is read is locked against writers, each that is written against all others, until the end (strict two-phase
//! locking). [`RecordTx::scan`] locks the records that are there; one that is inserted meanwhile it may miss. A transaction that waits in a circle gets
//! [`Error::Deadlock`]: it aborts, or rolls back to a savepoint before the locks that others wait for, and tries again.

pub(crate) mod locks;
pub(crate) mod session;
pub(crate) mod space;

use crate::error::{Error, Result};

/// A table of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Table(pub(crate) u32);

/// A record of a table. When it is deleted, another one may get its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId(pub(crate) u64);

impl Table {
    /// Its number.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The table of this number: an error shows when it is used, if there is none.
    pub fn from_number(number: u32) -> Self {
        Self(number)
    }
}

impl RecordId {
    /// As a number, for records of other tables that refer to it.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The record of this number: an error shows when it is used, if there is none.
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }
}

/// A moment of a transaction to which it can return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint {
    pub(crate) index: usize,
    pub(crate) stamp: u64,
}

/// A store of records.
pub trait Records: Sync + Sized {
    /// One of its transactions.
    type Tx<'a>: RecordTx
    where
        Self: 'a;

    /// Begins a transaction.
    ///
    /// # Errors
    /// [`TooManyTransactions`](crate::Error::TooManyTransactions), [`Stopped`](crate::Error::Stopped).
    fn begin(&self) -> Result<Self::Tx<'_>>;

    /// Makes a table. It is there when this returns.
    ///
    /// # Errors
    /// [`TableExists`](crate::Error::TableExists), [`BadTableName`](crate::Error::BadTableName); [`Limit`](crate::Error::Limit) where there are too many; those of a transaction.
    fn create_table(&self, name: &str) -> Result<Table>;

    /// The table of this name.
    ///
    /// # Errors
    /// [`NoTable`](crate::Error::NoTable).
    fn table(&self, name: &str) -> Result<Table>;

    /// Bytes of a record at most.
    fn record_max(&self) -> usize;

    /// After this there is little to do for a restart.
    ///
    /// # Errors
    /// Those of a barrier.
    fn checkpoint(&self) -> Result<()>;

    /// Closes it: nothing is left to recover.
    ///
    /// # Errors
    /// Those of a barrier.
    fn close(self) -> Result<()>;
}

/// A transaction on records. Dropped, it is aborted.
pub trait RecordTx: Sized {
    /// Adds a record to a table.
    ///
    /// # Errors
    /// [`RecordTooLong`](crate::Error::RecordTooLong), [`NoTable`](crate::Error::NoTable); where there is no room, the medium's, [`LogFull`](crate::Error::LogFull), and
    /// [`TooManyTransactions`](crate::Error::TooManyTransactions) where making room takes a transaction. The transaction can go on.
    fn insert(&mut self, table: Table, bytes: &[u8]) -> Result<RecordId>;

    /// Reads a record; `into` is what it holds then, and nothing else.
    ///
    /// # Errors
    /// [`NoRecord`](crate::Error::NoRecord), [`RecordDamaged`](crate::Error::RecordDamaged), [`RecordTwice`](crate::Error::RecordTwice); [`Deadlock`](crate::Error::Deadlock), [`LockWait`](crate::Error::LockWait).
    fn read(&mut self, table: Table, id: RecordId, into: &mut Vec<u8>) -> Result<()>;

    /// As [`read`](Self::read), and no other transaction reads it until this one ends: for what is to be written next. Two that read first and write then wait for each other.
    ///
    /// # Errors
    /// As there.
    fn read_for_update(&mut self, table: Table, id: RecordId, into: &mut Vec<u8>) -> Result<()>;

    /// Replaces a record; its length may change.
    ///
    /// # Errors
    /// Those of [`read`](Self::read) and of [`insert`](Self::insert); [`OuterRecord`](crate::Error::OuterRecord) in a nested top action, of a record that the outer transaction has written.
    fn update(&mut self, table: Table, id: RecordId, bytes: &[u8]) -> Result<()>;

    /// Removes a record.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    fn delete(&mut self, table: Table, id: RecordId) -> Result<()>;

    /// Shows all records of a table, in the order of their numbers; all that can be read.
    ///
    /// # Errors
    /// As [`read`](Self::read); of a record that is damaged when all others were shown.
    fn scan(&mut self, table: Table, each: &mut dyn FnMut(RecordId, &[u8])) -> Result<()>;

    /// A moment to return to.
    fn savepoint(&mut self) -> Savepoint;

    /// Takes back all that was done behind a savepoint, which stays; those behind it are gone. Locks that came behind it are given up.
    ///
    /// # Errors
    /// [`Foreign`](crate::Error::Foreign).
    fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()>;

    /// What `act` does lasts from its end on, whatever becomes of this transaction. An error takes it back. Its locks stay to the end of this transaction.
    /// If it panics, the transaction can only be aborted.
    ///
    /// # Errors
    /// Those of `act`, of [`begin`](Records::begin), and of a commit.
    fn nested_top<R>(&mut self, act: impl FnOnce(&mut Self) -> Result<R>) -> Result<R>;

    /// All of it lasts from now on.
    ///
    /// # Errors
    /// [`LogFull`](crate::Error::LogFull), [`Unwound`](crate::Error::Unwound): nothing has changed. Those of a barrier: whether it happened shows when the store is opened again.
    fn commit(self) -> Result<()>;

    /// Nothing of it happens.
    ///
    /// # Errors
    /// Those of the medium, where taking it back means writing.
    fn abort(self) -> Result<()>;
}

/// Shows the records whose numbers `numbers` tells, from one on, some at a time.
pub(crate) fn scan<T: RecordTx>(
    tx: &mut T,
    table: Table,
    numbers: impl Fn(&T, u64) -> Vec<u64>,
    each: &mut dyn FnMut(RecordId, &[u8]),
) -> Result<()> {
    let (mut from, mut record, mut damage) = (1, Vec::new(), None);
    loop {
        let some = numbers(tx, from);
        let Some(last) = some.last() else { return damage.map_or(Ok(()), Err) };
        from = last + 1;
        for id in some.into_iter().map(RecordId) {
            match tx.read(table, id, &mut record) {
                Ok(()) => each(id, &record),
                Err(Error::NoRecord { .. }) => {} // it was deleted meanwhile
                Err(error @ (Error::RecordDamaged { .. } | Error::RecordTwice { .. })) => {
                    damage = damage.or(Some(error))
                }
                Err(error) => return Err(error),
            }
        }
    }
}
