//! What each of them is behind: a store, its sessions, and their transactions.

use crate::Result;

/// What transactions are spared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// Reads see one state; of two that change the same key one fails.
    Snapshot,
    /// As if one after the other.
    Serializable,
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
    /// At least this; one that its [`Peer::levels`](crate::Peer::levels) has.
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
#[allow(dead_code)] // without features no store has anything
#[inline]
pub(crate) fn copy(value: &[u8], out: &mut [u8]) -> usize {
    let bytes = value.len().min(out.len());
    out[..bytes].copy_from_slice(&value[..bytes]);
    value.len()
}
