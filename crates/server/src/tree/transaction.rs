//! A transaction: values with headers, of which commands see none.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering::Relaxed;

use structures::{BTree, MapTx};
use tx::{Keys, KvTx};

use super::{Tree, VALUE_MAX};
use crate::engine::{Error, Result, Tx, Visit};

/// Bytes in front of each value.
pub(super) const HEADER: usize = 16;

/// A value as the tree has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stored<'v> {
    /// 0 if it stays.
    pub(super) expires: u64,
    pub(super) version: u64,
    pub(super) value: &'v [u8],
}

impl<'v> Stored<'v> {
    pub(super) fn read(bytes: &'v [u8]) -> Result<Self> {
        let parts = bytes.split_first_chunk().and_then(|(expires, rest)| Some((expires, rest.split_first_chunk()?)));
        let Some((expires, (version, value))) = parts else {
            let why =
                format!("a value of {} bytes has no header; run `cairn check`, then restore from a copy", bytes.len());
            return Err(Error::Damaged(why));
        };
        Ok(Self { expires: u64::from_le_bytes(*expires), version: u64::from_le_bytes(*version), value })
    }

    fn write(&self, into: &mut Vec<u8>) {
        into.clear();
        into.extend_from_slice(&self.expires.to_le_bytes());
        into.extend_from_slice(&self.version.to_le_bytes());
        into.extend_from_slice(self.value);
    }

    /// It is there as long as its moment has not come.
    pub(super) fn is_live(&self, now: u64) -> bool {
        self.expires == 0 || self.expires > now
    }
}

/// What a transaction is on the way to its end.
type Objects<'t> = MapTx<heap::Tx<'t>, BTree>;

/// One attempt of a transaction.
pub(super) struct Attempt<'t> {
    tree: &'t Tree,
    objects: Objects<'t>,
    /// The moment all of it sees.
    now: u64,
    writes: bool,
    /// Of what it writes; drawn when it does. So a version tells what is its own.
    version: Cell<Option<u64>>,
    /// Pairs it has added, less those it has removed.
    added: i64,
    /// The first error: whatever became of it, nothing is committed.
    failed: RefCell<Option<Error>>,
    bytes: Vec<u8>,
}

impl<'t> Attempt<'t> {
    pub(super) fn new(tree: &'t Tree, objects: Objects<'t>, now: u64, writes: bool) -> Self {
        let (version, failed) = (Cell::new(None), RefCell::new(None));
        Self { tree, objects, now, writes, version, added: 0, failed, bytes: Vec::new() }
    }

    /// The transaction, how many pairs it has added, and the error that stands in its way.
    pub(super) fn end(self) -> (Objects<'t>, i64, Option<Error>) {
        (self.objects, self.added, self.failed.into_inner())
    }

    fn failing<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| {
            self.failed.borrow_mut().get_or_insert_with(|| error.clone());
        })
    }

    /// The pair, even if it has expired.
    pub(super) fn stored(&self, key: &[u8]) -> Result<Option<Stored<'_>>> {
        let read = || self.objects.get(key)?.map(Stored::read).transpose();
        self.failing(read())
    }

    fn live(&self, key: &[u8]) -> Result<Option<Stored<'_>>> {
        Ok(self.stored(key)?.filter(|stored| stored.is_live(self.now)))
    }

    /// Calls `visit` with pairs, those too that have expired.
    pub(super) fn scan_stored(
        &self,
        keys: &Keys,
        visit: &mut dyn FnMut(&[u8], Stored<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut bad = Ok(());
        let scanned = self.objects.scan(keys, &mut |key, bytes| match Stored::read(bytes) {
            Ok(stored) => visit(key, stored),
            Err(error) => {
                bad = Err(error);
                ControlFlow::Break(())
            }
        });
        self.failing(scanned.map_err(Error::from).and(bad))
    }

    /// Removes the pair, even if it has expired.
    pub(super) fn remove(&mut self, key: &[u8]) -> Result<bool> {
        let removed = self.may_write().and_then(|()| Ok(self.objects.delete(key)?));
        let removed = self.failing(removed)?;
        self.added -= i64::from(removed);
        Ok(removed)
    }

    fn may_write(&self) -> Result<()> {
        if self.writes { Ok(()) } else { Err(Error::Other("a transaction that reads cannot write".to_owned())) }
    }

    fn fits(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let (len, max) = (key.len(), self.tree.key_max);
        if len > max {
            return Err(Error::Limit(format!(
                "bytes of a key: {len} is more than {max}, which is less than Redis has; shorten it, or use a store of engine kv"
            )));
        }
        if value.len() > VALUE_MAX {
            return Err(Error::Limit(format!("bytes of a value: {} is more than {VALUE_MAX}", value.len())));
        }
        Ok(())
    }

    fn own_version(&self) -> u64 {
        let version = self.version.get().unwrap_or_else(|| self.tree.versions.fetch_add(1, Relaxed) + 1);
        self.version.set(Some(version));
        version
    }

    fn set(&mut self, key: &[u8], value: &[u8], expires: u64) -> Result<bool> {
        self.may_write()?;
        self.fits(key, value)?;
        if expires != 0 {
            self.tree.expiring.store(true, Relaxed);
        }
        let version = self.own_version();
        Stored { expires, version, value }.write(&mut self.bytes);
        Ok(self.objects.put(key, &self.bytes)?)
    }
}

impl Tx for Attempt<'_> {
    #[inline]
    fn get(&self, key: &[u8]) -> Result<Option<&[u8]>> {
        Ok(self.live(key)?.map(|stored| stored.value))
    }

    fn put(&mut self, key: &[u8], value: &[u8], expires: Option<u64>) -> Result<()> {
        // The first moment of all has passed as well as the second.
        let set = self.set(key, value, expires.map_or(0, |at| at.max(1)));
        let had = self.failing(set)?;
        self.added += i64::from(!had);
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool> {
        let live = self.live(key)?.is_some();
        self.remove(key)?;
        Ok(live)
    }

    fn expires(&self, key: &[u8]) -> Result<Option<u64>> {
        Ok(self.live(key)?.map(|stored| stored.expires).filter(|at| *at != 0))
    }

    fn version(&self, key: &[u8]) -> Result<Option<u64>> {
        Ok(self.live(key)?.map(|stored| stored.version).filter(|version| Some(*version) != self.version.get()))
    }

    fn scan(&self, keys: Keys, visit: Visit<'_>) -> Result<()> {
        self.scan_stored(&keys, &mut |key, stored| match stored.is_live(self.now) {
            true => visit(key, stored.value),
            false => ControlFlow::Continue(()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_they_were_written() {
        let mut bytes = vec![1, 2, 3];
        for value in [&b""[..], b"value"] {
            let stored = Stored { expires: 5, version: u64::MAX, value };
            stored.write(&mut bytes);
            assert_eq!(Stored::read(&bytes), Ok(stored));
        }
        assert!((0..HEADER).all(|len| matches!(Stored::read(&vec![0; len]), Err(Error::Damaged(_)))));
        let at = |expires| Stored { expires, version: 0, value: b"" };
        assert!(at(0).is_live(u64::MAX) && at(6).is_live(5) && !at(5).is_live(5));
    }
}
