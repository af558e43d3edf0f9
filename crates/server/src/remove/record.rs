//! What a transaction would do, without doing it.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow};

use tx::Keys;

use super::{RECORD, garbage, head};
use crate::data::{DATABASES, ELEMENTS, GARBAGE, PARTS};
use crate::engine::{Engine, Error, Result, Tx, Visit};

pub(super) type Put = (Vec<u8>, Option<u64>);

/// What a transaction has set, and deleted.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes(pub(super) BTreeMap<Vec<u8>, Option<Put>>);

/// A transaction that sees what it changes, and leaves the store as it is: one that is full has no room for an attempt.
pub(super) struct Recording<'t> {
    tx: &'t dyn Tx,
    pub(super) changes: Changes,
    now: u64,
}

impl<'t> Recording<'t> {
    pub(super) fn new(tx: &'t dyn Tx, now: u64) -> Self {
        Self { tx, changes: Changes::default(), now }
    }

    /// A pair of its own that has not expired.
    fn live<'p>(&self, put: &'p Option<Put>) -> Option<&'p Put> {
        put.as_ref().filter(|(_, expires)| expires.is_none_or(|at| at > self.now))
    }
}

impl Tx for Recording<'_> {
    fn prefetch(&self, keys: &[&[u8]]) {
        self.tx.prefetch(keys);
    }

    fn get(&self, key: &[u8]) -> Result<Option<&[u8]>> {
        match self.changes.0.get(key) {
            Some(own) => Ok(self.live(own).map(|(value, _)| &value[..])),
            None => self.tx.get(key),
        }
    }

    fn put(&mut self, key: &[u8], value: &[u8], expires: Option<u64>) -> Result<()> {
        self.changes.0.insert(key.to_vec(), Some((value.to_vec(), expires)));
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool> {
        let there = self.get(key)?.is_some();
        self.changes.0.insert(key.to_vec(), None);
        Ok(there)
    }

    fn expires(&self, key: &[u8]) -> Result<Option<u64>> {
        match self.changes.0.get(key) {
            Some(own) => Ok(self.live(own).and_then(|(_, expires)| *expires)),
            None => self.tx.expires(key),
        }
    }

    fn version(&self, key: &[u8]) -> Result<Option<u64>> {
        if self.changes.0.contains_key(key) { Ok(None) } else { self.tx.version(key) }
    }

    fn scan(&self, keys: Keys, visit: Visit<'_>) -> Result<()> {
        let own = self.changes.range(&keys);
        let mut own: Vec<_> = own.map(|(key, put)| (&key[..], self.live(put))).collect();
        if !keys.reverse {
            own.reverse(); // the next one is the last
        }
        let is_before = |a: &[u8], b: &[u8]| if keys.reverse { a > b } else { a < b };
        let stopped = Cell::new(false);
        let mut visit = |key: &[u8], value: &[u8]| {
            let flow = visit(key, value);
            stopped.set(flow.is_break());
            flow
        };
        self.tx.scan(keys.clone(), &mut |key, value| {
            while let Some((next, put)) = own.pop_if(|(next, _)| is_before(next, key)) {
                if let Some((value, _)) = put {
                    visit(next, value)?;
                }
            }
            match own.pop_if(|(next, _)| *next == key) {
                Some((_, Some((value, _)))) => visit(key, value),
                Some((_, None)) => ControlFlow::Continue(()),
                None => visit(key, value),
            }
        })?;
        while !stopped.get()
            && let Some((key, put)) = own.pop()
        {
            if let Some((value, _)) = put
                && visit(key, value).is_break()
            {
                break;
            }
        }
        Ok(())
    }
}

/// Runs `attempt`, and changes nothing. The caller sees to it that no other thread does meanwhile.
pub(super) fn record(
    engine: &dyn Engine,
    now: u64,
    attempt: &mut dyn FnMut(&mut dyn Tx) -> Result<()>,
) -> Result<Changes> {
    let mut changes = Changes::default();
    engine.read(&mut |tx| {
        let mut recording = Recording::new(tx, now);
        attempt(&mut recording)?;
        changes = recording.changes;
        Ok(())
    })?;
    Ok(changes)
}

impl Changes {
    pub(super) fn deleted(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter(|(_, put)| put.is_none()).map(|(key, _)| &key[..])
    }

    /// Whether it takes much out: many keys, or one that many elements belong to.
    pub(super) fn is_worth_steps(&self, bytes: u64) -> bool {
        let gone = self.deleted().map(|key| RECORD.1 + key.len() as u64).sum::<u64>();
        gone >= bytes || !self.abandons().is_empty() || !self.parts().is_empty()
    }

    /// Collections whose elements have no owner from then on.
    pub(super) fn abandons(&self) -> BTreeSet<u64> {
        let keys = Keys::prefix(&[GARBAGE]);
        let noted = self.range(&keys).filter(|(_, put)| put.is_some());
        noted.filter_map(|(key, _)| Some(u64::from_be_bytes(key.get(1..)?.try_into().ok()?))).collect()
    }

    /// What keys of elements begin with, without their first byte, that have no owner from then on, though others of their collection are not.
    fn parts(&self) -> Vec<Vec<u8>> {
        let keys = Keys::prefix(&[PARTS]);
        let noted = self.range(&keys).filter(|(_, put)| put.is_some());
        noted.filter_map(|(key, _)| Some(key.get(1..)?.to_vec())).collect()
    }

    /// All elements that begin so go with all else.
    fn take_in(&mut self, tx: &dyn Tx, begin: &[u8]) -> Result<()> {
        let elements = Keys::prefix(&[&[ELEMENTS], begin].concat());
        let mut gone: Vec<_> = self.range(&elements).map(|(key, _)| key.clone()).collect();
        tx.scan(elements, &mut |key, _| {
            gone.push(key.to_vec());
            ControlFlow::Continue(())
        })?;
        self.0.extend(gone.into_iter().map(|key| (key, None)));
        Ok(())
    }

    /// Has the elements of collections that are overwritten go with all else, in place of a note that they have no owner: they make up for what comes. Those of collections that are
    /// deleted only if it says so: few heads may belong to most of the store.
    pub(super) fn take_in_elements(&mut self, tx: &dyn Tx, deleted: bool) -> Result<()> {
        let mut ids = self.abandons();
        for key in self.deleted().take_while(|key| key.first().is_some_and(|first| *first < DATABASES)) {
            if ids.is_empty() || deleted {
                break;
            }
            if let Some(head) = tx.get(key)?.and_then(|value| head(key, value)) {
                ids.remove(&head.id);
            }
        }
        for id in ids {
            self.take_in(tx, &id.to_be_bytes())?;
            self.0.remove(&garbage(id));
        }
        for part in self.parts() {
            self.take_in(tx, &part)?;
            self.0.remove(&[&[PARTS], &part[..]].concat());
        }
        Ok(())
    }

    fn range(&self, keys: &Keys) -> impl DoubleEndedIterator<Item = (&Vec<u8>, &Option<Put>)> {
        use Bound::{Excluded, Included, Unbounded};
        let is_none = match (&keys.from, &keys.to) {
            (Excluded(from), Excluded(to)) => from >= to,
            (Included(from) | Excluded(from), Included(to) | Excluded(to)) => from > to,
            (Unbounded, _) | (_, Unbounded) => false,
        };
        let range = (keys.from.clone(), keys.to.clone());
        (!is_none).then(|| self.0.range::<Vec<u8>, _>(range)).into_iter().flatten()
    }
}

/// A transaction that ends when it has taken so much out: it is to be done in steps, at once.
pub(crate) struct Brief<'t> {
    tx: &'t mut dyn Tx,
    left: u64,
    ended: &'t Cell<bool>,
}

impl<'t> Brief<'t> {
    pub(crate) fn new(tx: &'t mut dyn Tx, most: u64, ended: &'t Cell<bool>) -> Self {
        Self { tx, left: most, ended }
    }
}

impl Tx for Brief<'_> {
    fn prefetch(&self, keys: &[&[u8]]) {
        self.tx.prefetch(keys);
    }
    fn get(&self, key: &[u8]) -> Result<Option<&[u8]>> {
        self.tx.get(key)
    }
    fn put(&mut self, key: &[u8], value: &[u8], expires: Option<u64>) -> Result<()> {
        self.tx.put(key, value, expires)
    }
    fn delete(&mut self, key: &[u8]) -> Result<bool> {
        let Some(left) = self.left.checked_sub(RECORD.1 + key.len() as u64) else {
            self.ended.set(true);
            return Err(Error::Again);
        };
        self.left = left;
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
