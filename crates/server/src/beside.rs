//! Whether one connection's part of a transaction sees what those of others have written in it, which is not committed yet.

use std::cell::Cell;
use std::collections::BTreeSet;

use crate::engine::{Keys, Result, Tx, Visit};

/// Keys that parts of a transaction have written.
pub(crate) type Written = BTreeSet<Vec<u8>>;

/// The transaction, for a part behind others.
pub(crate) struct Beside<'t> {
    tx: &'t mut dyn Tx,
    before: &'t Written,
    own: Written,
    saw: Cell<bool>,
}

impl<'t> Beside<'t> {
    pub(crate) fn new(tx: &'t mut dyn Tx, before: &'t Written) -> Self {
        Self { tx, before, own: Written::new(), saw: Cell::new(false) }
    }

    /// What it has written, and whether it may have seen something of the others.
    pub(crate) fn end(self) -> (Written, bool) {
        (self.own, self.saw.get())
    }

    fn looks(&self, key: &[u8]) {
        if self.before.contains(key) {
            self.saw.set(true);
        }
    }
}

impl Tx for Beside<'_> {
    fn prefetch(&self, keys: &[&[u8]]) {
        self.tx.prefetch(keys);
    }

    fn get(&self, key: &[u8]) -> Result<Option<&[u8]>> {
        self.looks(key);
        self.tx.get(key)
    }

    fn put(&mut self, key: &[u8], value: &[u8], expires: Option<u64>) -> Result<()> {
        self.own.insert(key.to_vec());
        self.tx.put(key, value, expires)
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool> {
        self.looks(key);
        self.own.insert(key.to_vec());
        self.tx.delete(key)
    }

    fn expires(&self, key: &[u8]) -> Result<Option<u64>> {
        self.looks(key);
        self.tx.expires(key)
    }

    fn version(&self, key: &[u8]) -> Result<Option<u64>> {
        self.looks(key);
        self.tx.version(key)
    }

    fn scan(&self, keys: Keys, visit: Visit<'_>) -> Result<()> {
        // Where they are is not looked at: what goes through ranges is seldom behind a write of the same moment.
        if !self.before.is_empty() {
            self.saw.set(true);
        }
        self.tx.scan(keys, visit)
    }
}
