//! A store in DRAM that is obviously right, and can be wrong in any one of many ways: the suite is developed against it.
//!
//! One lock guards everything. A key is a list of versions with the time of their commits. A transaction sees what was newest when it began and
//! keeps its changes to itself. When it commits, what it changed must still be the newest version, and above snapshot isolation
//! also what it read: keys, keys that were not there, and ranges. A commit is one step, so serializable is strict.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use elsa::FrozenVec;
use pmem::sync::{Mutex, MutexGuard, switch_point};
use tx::{Doom, Error, Isolation, Keys, Kv, KvTx, Result, Visit};

use super::fault::Fault;

type Value = Option<Arc<[u8]>>;

/// A volatile store: see the module's description.
#[derive(Debug, Default)]
pub struct Memory {
    state: Mutex<State>,
    fault: Option<Fault>,
}

#[derive(Debug, Default)]
struct State {
    now: u64,
    /// Oldest first.
    keys: BTreeMap<Vec<u8>, Vec<Version>>,
    /// Transactions that run, by number: what they see.
    active: BTreeMap<u64, u64>,
    started: u64,
    /// For [`Fault::DirtyRead`].
    pending: BTreeMap<Vec<u8>, Value>,
}

#[derive(Debug)]
struct Version {
    at: u64,
    value: Value,
}

/// A transaction of [`Memory`].
pub struct MemoryTx<'s> {
    store: &'s Memory,
    number: u64,
    begin: u64,
    isolation: Isolation,
    writes: BTreeMap<Vec<u8>, Value>,
    reads: RefCell<BTreeSet<Vec<u8>>>,
    ranges: RefCell<Vec<Keys>>,
    /// What was handed out.
    kept: FrozenVec<Arc<[u8]>>,
    doom: RefCell<Option<Doom>>,
}

impl Memory {
    /// Without keys.
    pub fn new() -> Self {
        Self::default()
    }

    /// Wrong on purpose.
    pub fn with_fault(fault: Fault) -> Self {
        Self { fault: Some(fault), ..Self::default() }
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// Others run.
    fn interrupted(&self) -> MutexGuard<'_, State> {
        if !pmem::sync::wait_point() {
            std::thread::yield_now();
        }
        self.state.lock()
    }
}

impl Kv for Memory {
    type Tx<'a> = MemoryTx<'a>;

    fn begin(&self, isolation: Isolation) -> Result<MemoryTx<'_>> {
        let mut state = self.state.lock();
        state.started += 1;
        let number = state.started;
        let begin = state.now - u64::from(self.has(Fault::Stale) && state.now > 0 && number.is_multiple_of(3));
        state.active.insert(number, begin);
        drop(state);
        Ok(MemoryTx {
            store: self,
            number,
            begin,
            isolation,
            writes: BTreeMap::new(),
            reads: RefCell::default(),
            ranges: RefCell::default(),
            kept: FrozenVec::new(),
            doom: RefCell::new(None),
        })
    }
}

/// The part of a map that `keys` says; nothing if it begins behind its end.
pub(super) fn range<'m, V>(
    map: &'m BTreeMap<Vec<u8>, V>,
    keys: &Keys,
) -> impl DoubleEndedIterator<Item = (&'m Vec<u8>, &'m V)> {
    let (from, to) = (keys.from.as_ref().map(Vec::as_slice), keys.to.as_ref().map(Vec::as_slice));
    let empty = match (from, to) {
        (Bound::Included(a), Bound::Included(b)) => a > b,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a >= b,
        _ => false,
    };
    (!empty).then(|| map.range::<[u8], _>((from, to))).into_iter().flatten()
}

impl State {
    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    fn newest(&self, key: &[u8]) -> Option<&Version> {
        self.keys.get(key)?.last()
    }

    fn install(&mut self, at: u64, key: Vec<u8>, value: Value) {
        let oldest = self.active.values().min().copied().unwrap_or(self.now);
        let versions = self.keys.entry(key).or_default();
        // A transaction that runs sees the newest one that is old enough, or a newer one.
        let needed = versions.iter().rposition(|version| version.at <= oldest.saturating_sub(2)).unwrap_or(0);
        versions.drain(..needed);
        versions.push(Version { at, value });
    }

    /// Whether the key has changed since.
    fn changed(&self, key: &[u8], since: u64) -> bool {
        self.newest(key).is_some_and(|version| version.at > since)
    }
}

impl MemoryTx<'_> {
    fn has(&self, fault: Fault) -> bool {
        self.store.has(fault)
    }

    fn seen(&self, key: &[u8], versions: &[Version], state: &State, scan: bool) -> Value {
        if self.has(Fault::DirtyRead)
            && let Some(value) = state.pending.get(key)
        {
            return value.clone();
        }
        let now = self.has(Fault::ReadCommitted) || self.has(Fault::InPlace) || self.has(Fault::ScanNow) && scan;
        let begin = if now { u64::MAX } else { self.begin };
        let version = versions.iter().rev().find(|version| version.at <= begin)?;
        if self.has(Fault::InsertUnseen) && scan && version.at == state.now && versions.len() < 3 {
            return None;
        }
        version.value.clone()
    }

    fn conflict<T>(&self) -> Result<T> {
        let e = Error::Conflict { offset: 0 };
        *self.doom.borrow_mut() = Some(Doom::from(&e));
        Err(e)
    }

    fn change(&mut self, key: &[u8], value: Value) -> Result<bool> {
        if let Some(doom) = self.doom() {
            return Err(Error::Doomed { first: doom.first });
        }
        // Whether the key was there is not a read: a writer needs no more.
        let there = match self.writes.get(key) {
            Some(own) => own.is_some(),
            None => {
                let mut state = self.store.state.lock();
                let (fresh, in_place) = (state.newest(key).is_none_or(|v| v.value.is_none()), self.has(Fault::InPlace));
                let ignored = self.has(Fault::LostUpdate) || in_place || self.has(Fault::LostInsert) && fresh;
                if state.changed(key, self.begin) && !ignored && self.number.is_multiple_of(3) {
                    drop(state);
                    return self.conflict(); // two thirds find it out when they commit
                }
                let there = state.keys.get(key).and_then(|versions| self.seen(key, versions, &state, false)).is_some();
                if self.has(Fault::DirtyRead) {
                    state.pending.insert(key.to_vec(), value.clone());
                }
                there
            }
        };
        if self.has(Fault::InPlace) {
            let mut state = self.store.state.lock();
            let at = state.tick();
            state.install(at, key.to_vec(), value.clone());
        } else {
            self.writes.insert(key.to_vec(), value);
        }
        Ok(there || self.has(Fault::AlwaysThere))
    }

    /// Whether what was read is still so.
    fn valid(&self, state: &State) -> bool {
        if self.isolation < Isolation::Serializable && !self.has(Fault::TooStrict)
            || self.writes.is_empty()
            || self.has(Fault::Unvalidated)
            || self.has(Fault::InPlace)
            || self.has(Fault::ReadCommitted)
        {
            return true;
        }
        let since = self.begin;
        let changed = |key: &[u8]| {
            let deleted = self.has(Fault::DeleteUnvalidated) && state.newest(key).is_some_and(|v| v.value.is_none());
            let waived = self.has(Fault::LostUpdate) && self.writes.contains_key(key);
            state.changed(key, since) && !deleted && !waived
        };
        let absent = |key: &[u8]| {
            let versions = state.keys.get(key).map_or(&[][..], Vec::as_slice);
            versions.iter().rev().find(|v| v.at <= since).is_none_or(|v| v.value.is_none())
        };
        let waived = |key: &[u8]| {
            (self.has(Fault::AbsentUnvalidated) || self.has(Fault::LostInsert) && self.writes.contains_key(key))
                && absent(key)
        };
        let (reads, ranges) = (self.reads.borrow(), self.ranges.borrow());
        let in_ranges = || {
            ranges.iter().any(|keys| {
                let found: Vec<_> = range(&state.keys, keys).map(|(key, _)| key).collect();
                let mut first = 0;
                let mut last = found.len();
                if self.has(Fault::EdgesUnvalidated) {
                    first = found.iter().position(|key| !absent(key)).unwrap_or(0);
                    last = found.iter().rposition(|key| !absent(key)).map_or(0, |at| at + 1).max(first);
                }
                !(self.has(Fault::ReverseUnvalidated) && keys.reverse)
                    && found[first..last].iter().any(|key| {
                        changed(key)
                            && !(self.has(Fault::RangeUnvalidated) && absent(key))
                            && !(self.has(Fault::LostInsert) && absent(key) && self.writes.contains_key(*key))
                    })
            })
        };
        !reads.iter().any(|key| changed(key) && !waived(key)) && !in_ranges()
    }

    fn writable(&self, state: &State) -> bool {
        let ignored = |key: &[u8]| {
            let absent = state.keys.get(key).and_then(|v| self.seen(key, v, state, false)).is_none();
            self.has(Fault::LostUpdate) || self.has(Fault::LostInsert) && absent
        };
        self.writes.keys().all(|key| !state.changed(key, self.begin) || ignored(key))
    }

    fn finish(&mut self) -> Result<u64> {
        if let Some(Doom { first, .. }) = self.doom.get_mut().take() {
            return Err(Error::Doomed { first });
        }
        let store = self.store;
        let mut state = store.state.lock();
        if !self.writable(&state) || !self.valid(&state) {
            return Err(Error::Conflict { offset: 0 });
        }
        if self.writes.is_empty() {
            return Ok(self.begin);
        }
        let half = if self.has(Fault::TornCommit) { self.writes.len() / 2 } else { 0 };
        if self.has(Fault::ValidatedEarly) {
            drop(state);
            state = store.interrupted();
        }
        let mut at = state.tick();
        if self.has(Fault::InstalledLate) {
            drop(state);
            state = store.interrupted();
        }
        for (n, (key, value)) in std::mem::take(&mut self.writes).into_iter().enumerate() {
            if n > 0 && n == half {
                drop(state);
                state = store.interrupted();
                at = state.tick();
            }
            if value.is_none() && self.has(Fault::DeleteLost) && at.is_multiple_of(4) {
                continue;
            }
            state.pending.remove(&key);
            state.install(at, key, value);
        }
        Ok(at)
    }

    /// As `commit`, and tells its time.
    ///
    /// # Errors
    /// As there.
    pub fn commit_at(mut self) -> Result<u64> {
        switch_point();
        self.finish()
    }
}

impl KvTx for MemoryTx<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<&[u8]>> {
        if let Some(own) = self.writes.get(key) {
            return Ok(own.as_deref());
        }
        let state = self.store.state.lock();
        if !(self.has(Fault::PassedOver) && state.changed(key, self.begin)) {
            self.reads.borrow_mut().insert(key.to_vec());
        }
        if self.has(Fault::Undoomed) && state.changed(key, self.begin) {
            return Err(Error::Conflict { offset: 0 });
        }
        let value = state.keys.get(key).and_then(|versions| self.seen(key, versions, &state, false));
        drop(state);
        Ok(value.map(|value| {
            let len = value.len();
            let value = self.kept.push_get(value);
            if self.has(Fault::Cut) { &value[..len - len / 9] } else { value }
        }))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.change(key, Some(value.into()))
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool> {
        self.change(key, None)
    }

    fn scan(&self, keys: &Keys, visit: Visit<'_>) -> Result<()> {
        let mut keys = keys.clone();
        if let (true, Bound::Excluded(to)) = (self.has(Fault::EndIncluded), &keys.to) {
            keys.to = Bound::Included(to.clone());
        }
        self.ranges.borrow_mut().push(keys.clone());
        let state = self.store.state.lock();
        let mut found: BTreeMap<&[u8], Value> = BTreeMap::new();
        for (key, versions) in range(&state.keys, &keys) {
            found.insert(key, self.seen(key, versions, &state, true));
        }
        for (key, own) in range(&self.writes, &keys) {
            let hidden = if own.is_some() { Fault::OwnUnseen } else { Fault::OwnDeletedSeen };
            if !self.has(hidden) {
                found.insert(key, own.clone());
            }
        }
        let mut found: Vec<(Vec<u8>, Arc<[u8]>)> =
            found.into_iter().filter_map(|(key, value)| Some((key.to_vec(), value?))).collect();
        drop(state);
        if keys.reverse && !self.has(Fault::NeverReverse) {
            found.reverse();
        }
        let _ = found.iter().try_for_each(|(key, value)| match visit(key, value) {
            ControlFlow::Continue(()) => ControlFlow::Continue(()),
            ControlFlow::Break(()) => ControlFlow::Break(()),
        });
        Ok(())
    }

    fn doom(&self) -> Option<Doom> {
        self.doom.borrow().clone()
    }

    fn commit(self) -> Result<()> {
        self.commit_at().map(drop)
    }

    fn abort(self) -> Result<()> {
        Ok(())
    }
}

impl Drop for MemoryTx<'_> {
    fn drop(&mut self) {
        let mut state = self.store.state.lock();
        state.active.remove(&self.number);
        let writes = std::mem::take(&mut self.writes);
        if self.has(Fault::DirtyRead) {
            writes.keys().for_each(|key| _ = state.pending.remove(key));
        }
        if let (true, Some((key, value))) = (self.has(Fault::AbortKeeps), writes.into_iter().next()) {
            let at = state.tick();
            state.install(at, key, value);
        }
    }
}
