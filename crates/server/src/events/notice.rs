//! A transaction that keeps a note of the keys that a command changes, and of those that it does not find.

use std::cell::RefCell;
use std::collections::BTreeMap;

use tx::Keys;

use super::Expiry;
use crate::data::{DATABASES, ELEMENTS, Head};
use crate::engine::{Result, Tx, Visit};

/// What a key was before a command, or is behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Was {
    /// Elements, if it is a collection.
    pub(super) count: u64,
    pub(super) expires: bool,
}

/// What has become of a key.
#[derive(Debug)]
pub(super) struct Change {
    /// As it is in the store.
    pub(super) key: Vec<u8>,
    pub(super) was: Option<Was>,
    pub(super) is: Option<Was>,
    /// How often it was set.
    pub(super) puts: usize,
}

impl Change {
    /// It is there, and was not.
    pub(super) fn is_new(&self) -> bool {
        self.was.is_none() && self.is.is_some()
    }

    pub(super) fn is_gone(&self) -> bool {
        self.was.is_some() && self.is.is_none()
    }
}

pub(crate) struct Noticing<'t> {
    tx: &'t mut dyn Tx,
    reads: bool,
    /// In the order in which they were changed first.
    pub(super) changes: Vec<Change>,
    positions: BTreeMap<Vec<u8>, usize>,
    pub(super) missed: RefCell<Vec<Vec<u8>>>,
    /// Ids of streams that consumers were made of.
    consumers: Vec<u64>,
    /// A consumer was removed.
    pub(super) dropped_consumer: bool,
}

/// The id of a stream, if this is the key of a group's consumer, by its name.
fn of_a_consumer(key: &[u8]) -> Option<u64> {
    let (id, rest) = key.strip_prefix(&[ELEMENTS])?.split_first_chunk::<8>()?;
    (rest.first() == Some(&2) && rest.get(9) == Some(&1)).then(|| u64::from_be_bytes(*id))
}

impl<'t> Noticing<'t> {
    /// Of a command that `reads`, what it does not find.
    pub(crate) fn new(tx: &'t mut dyn Tx, reads: bool) -> Self {
        let (changes, positions, missed) = (Vec::new(), BTreeMap::new(), RefCell::default());
        Self { tx, reads, changes, positions, missed, consumers: Vec::new(), dropped_consumer: false }
    }

    /// When each key that was changed expires.
    pub(super) fn due(&self) -> Result<Vec<Expiry>> {
        let of = |change: &Change| {
            let moment = self.tx.expires(&change.key)?;
            Ok(Expiry { key: change.key.clone(), was_there: change.was.is_some(), moment })
        };
        self.changes.iter().map(of).collect()
    }

    /// Which of these keys are streams of which a consumer was made.
    pub(super) fn consumed<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Result<Vec<&'k [u8]>> {
        let mut found = Vec::new();
        for key in keys.filter(|_| !self.consumers.is_empty()) {
            let head = self.tx.get(key)?.and_then(Head::read);
            if head.is_some_and(|head| self.consumers.contains(&head.id)) {
                found.push(key);
            }
        }
        Ok(found)
    }

    /// Whether a key, as it is in the store, was there before.
    pub(super) fn was_there(&self, key: &[u8]) -> Result<bool> {
        match self.positions.get(key) {
            Some(at) => Ok(self.changes[*at].was.is_some()),
            None => Ok(self.tx.get(key)?.is_some()),
        }
    }

    fn was(&self, key: &[u8]) -> Result<Option<Was>> {
        let Some(value) = self.tx.get(key)? else { return Ok(None) };
        let count = Head::read(value).map_or(0, |head| head.count);
        Ok(Some(Was { count, expires: self.tx.expires(key)?.is_some() }))
    }

    /// Where the note about a key is: what it was is read before it is changed.
    fn position(&mut self, key: &[u8]) -> Result<usize> {
        if let Some(at) = self.positions.get(key) {
            return Ok(*at);
        }
        let was = self.was(key)?;
        self.positions.insert(key.to_vec(), self.changes.len());
        self.changes.push(Change { key: key.to_vec(), was, is: was, puts: 0 });
        Ok(self.changes.len() - 1)
    }

    fn is_a_key(key: &[u8]) -> bool {
        key.first().is_some_and(|first| *first < DATABASES)
    }
}

impl Tx for Noticing<'_> {
    fn prefetch(&self, keys: &[&[u8]]) {
        self.tx.prefetch(keys);
    }

    fn get(&self, key: &[u8]) -> Result<Option<&[u8]>> {
        let found = self.tx.get(key)?;
        if found.is_none() && self.reads && Self::is_a_key(key) {
            self.missed.borrow_mut().push(key.to_vec());
        }
        Ok(found)
    }

    fn put(&mut self, key: &[u8], value: &[u8], expires: Option<u64>) -> Result<()> {
        if Self::is_a_key(key) {
            let at = self.position(key)?;
            let count = Head::read(value).map_or(0, |head| head.count);
            let change = &mut self.changes[at];
            change.is = Some(Was { count, expires: expires.is_some() });
            change.puts += 1;
        } else if let Some(id) = of_a_consumer(key) {
            self.consumers.push(id);
        }
        self.tx.put(key, value, expires)
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool> {
        if Self::is_a_key(key) {
            let at = self.position(key)?;
            self.changes[at].is = None;
        } else if of_a_consumer(key).is_some() {
            self.dropped_consumer = true;
        }
        self.tx.delete(key)
    }

    fn expires(&self, key: &[u8]) -> Result<Option<u64>> {
        self.tx.expires(key)
    }

    fn version(&self, key: &[u8]) -> Result<Option<u64>> {
        self.tx.version(key)
    }

    fn scan(&self, keys: Keys, visit: Visit<'_>) -> Result<()> {
        self.tx.scan(keys, visit)
    }
}
