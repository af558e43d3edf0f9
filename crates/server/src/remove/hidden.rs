//! A removal that waits for room: what it has yet to remove is not seen any more.

use tx::Keys;

use super::run::Run;
use crate::data::{GARBAGE, Head, PARTS};
use crate::engine::{Error, Result, Tx, Visit};

/// Keys that a removal has yet to remove.
#[derive(Debug)]
pub(crate) struct Hidden {
    /// In order, and apart.
    pub(super) runs: Vec<Run>,
}

impl Hidden {
    pub(super) fn has(&self, key: &[u8]) -> bool {
        let behind = self.runs.partition_point(|run| run.from[..] <= *key);
        behind.checked_sub(1).and_then(|at| self.runs.get(at)).is_some_and(|run| run.has(key))
    }
}

/// A transaction that sees none of them, and of others takes out only: what it puts in would take the room that is waited for.
pub(crate) struct Hiding<'t> {
    tx: &'t mut dyn Tx,
    hidden: &'t Hidden,
}

impl<'t> Hiding<'t> {
    pub(crate) fn new(tx: &'t mut dyn Tx, hidden: &'t Hidden) -> Self {
        Self { tx, hidden }
    }

    /// What removals of keys and of elements write.
    fn takes_out(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        if matches!(key.first(), Some(&(GARBAGE | PARTS))) {
            return Ok(true);
        }
        let before = self.get(key)?.and_then(Head::read);
        Ok(before.zip(Head::read(value)).is_some_and(|(old, new)| old.id == new.id && new.count < old.count))
    }
}

impl Tx for Hiding<'_> {
    fn prefetch(&self, keys: &[&[u8]]) {
        self.tx.prefetch(keys);
    }
    fn get(&self, key: &[u8]) -> Result<Option<&[u8]>> {
        if self.hidden.has(key) { Ok(None) } else { self.tx.get(key) }
    }
    fn put(&mut self, key: &[u8], value: &[u8], expires: Option<u64>) -> Result<()> {
        if !self.takes_out(key, value)? {
            let why = "a removal in steps waits for room, and until it has come to its end nothing else is written; delete something";
            return Err(Error::Full(why.to_owned()));
        }
        self.tx.put(key, value, expires)
    }
    fn delete(&mut self, key: &[u8]) -> Result<bool> {
        if self.hidden.has(key) { Ok(false) } else { self.tx.delete(key) }
    }
    fn expires(&self, key: &[u8]) -> Result<Option<u64>> {
        if self.hidden.has(key) { Ok(None) } else { self.tx.expires(key) }
    }
    fn version(&self, key: &[u8]) -> Result<Option<u64>> {
        if self.hidden.has(key) { Ok(None) } else { self.tx.version(key) }
    }
    fn scan(&self, keys: Keys, visit: Visit<'_>) -> Result<()> {
        self.tx.scan(keys, &mut |key, value| match self.hidden.has(key) {
            true => std::ops::ControlFlow::Continue(()),
            false => visit(key, value),
        })
    }
}
