//! What a store has to hold, and what an open transaction sees of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use kv::{Isolation, Keys, Timestamp, Transaction};

/// Draws.
pub(super) struct Seed(pub(super) u64);

impl Seed {
    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let mixed = (self.0 ^ self.0 >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed >> 32) as usize * limit) >> 32
    }
}

pub(super) type Key = Vec<u8>;

/// A key's newest record, if that is no tombstone.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Value {
    pub(super) bytes: Vec<u8>,
    pub(super) expires: Option<u64>,
    /// By which commit.
    pub(super) by: u64,
}

impl Value {
    pub(super) fn is_live(&self) -> bool {
        self.expires != Some(PAST)
    }
}

pub(super) const PAST: u64 = 1;
pub(super) const FUTURE: u64 = u64::MAX >> 2;

pub(super) type State = BTreeMap<Key, Value>;
/// What a commit has done, for the feed.
pub(super) type Change = BTreeMap<Key, Option<(Vec<u8>, Option<u64>)>>;

#[derive(Default)]
pub(super) struct Model {
    pub(super) state: State,
    pub(super) commits: u64,
    /// Which commit wrote a key last.
    pub(super) touched: BTreeMap<Key, u64>,
    /// What the feed has not told yet.
    pub(super) untold: VecDeque<Change>,
}

impl Model {
    pub(super) fn commit(&mut self, writes: &Change) {
        if writes.is_empty() {
            return;
        }
        self.commits += 1;
        for (key, value) in writes {
            self.touched.insert(key.clone(), self.commits);
            match value {
                Some((bytes, expires)) => {
                    let value = Value { bytes: bytes.clone(), expires: *expires, by: self.commits };
                    self.state.insert(key.clone(), value);
                }
                None => drop(self.state.remove(key)),
            }
        }
        self.untold.push_back(writes.clone());
    }

    pub(super) fn live(&self, key: &[u8]) -> Option<&Value> {
        self.state.get(key).filter(|value| value.is_live())
    }

    pub(super) fn touched(&self, key: &[u8]) -> u64 {
        self.touched.get(key).copied().unwrap_or(0)
    }
}

pub(super) type Range = (Key, Key);

pub(super) fn keys(range: &Range, reverse: bool) -> Keys {
    Keys { from: Bound::Included(range.0.clone()), to: Bound::Excluded(range.1.clone()), reverse }
}

pub(super) fn live_in(state: &State, range: &Range) -> Vec<(Key, u64)> {
    let all = state.range(range.0.clone()..range.1.clone());
    all.filter(|(_, value)| value.is_live()).map(|(key, value)| (key.clone(), value.by)).collect()
}

/// An open transaction, and what is known of it.
pub(super) struct Open<'s> {
    /// None: it is a snapshot.
    pub(super) tx: Option<Transaction<'s>>,
    pub(super) snapshot: Option<kv::Snapshot<'s>>,
    pub(super) actor: u64,
    pub(super) level: Isolation,
    pub(super) began: Timestamp,
    pub(super) state: State,
    pub(super) since: u64,
    pub(super) own: Change,
    pub(super) reads: BTreeSet<Key>,
    pub(super) scans: Vec<Range>,
    pub(super) locked: BTreeSet<Key>,
    /// It failed, or has expired: all it is still good for is to end.
    pub(super) over: bool,
}

impl Open<'_> {
    pub(super) fn sees(&self, key: &[u8]) -> Option<(Vec<u8>, Option<u64>)> {
        let seen = match self.own.get(key) {
            Some(own) => own.clone(),
            None => self.state.get(key).map(|value| (value.bytes.clone(), value.expires)),
        };
        seen.filter(|(_, expires)| *expires != Some(PAST))
    }

    pub(super) fn sees_in(&self, range: &Range) -> Vec<(Key, Vec<u8>)> {
        let all: BTreeSet<&Key> = self.state.keys().chain(self.own.keys()).collect();
        let all = all.into_iter().filter(|key| **key >= range.0 && **key < range.1);
        all.filter_map(|key| Some((key.clone(), self.sees(key)?.0))).collect()
    }

    pub(super) fn reads(&mut self, key: &[u8]) {
        if !self.own.contains_key(key) && self.level > Isolation::Snapshot {
            self.reads.insert(key.to_vec());
        }
    }

    /// Whether what it saw is still so.
    pub(super) fn is_valid(&self, model: &Model) -> bool {
        self.level == Isolation::Snapshot
            || self.reads.iter().all(|key| model.touched(key) <= self.since)
                && self.scans.iter().all(|range| live_in(&self.state, range) == live_in(&model.state, range))
    }

    /// What a write of the key finds: whether it had a value, or none, if that is a conflict.
    pub(super) fn writes(
        &mut self,
        key: &[u8],
        value: Option<(Vec<u8>, Option<u64>)>,
        model: &Model,
        others: &BTreeSet<Key>,
    ) -> Option<bool> {
        let had = self.sees(key).is_some();
        if !self.own.contains_key(key) {
            if others.contains(key) {
                return None;
            }
            self.locked.insert(key.to_vec());
            if model.touched(key) > self.since {
                return None;
            }
            if value.is_none() && !self.state.contains_key(key) {
                self.reads(key);
                return Some(false);
            }
        }
        self.own.insert(key.to_vec(), value);
        Some(had)
    }
}
