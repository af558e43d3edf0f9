//! One transaction of a history, from inside: what it has found and written so far, and whether these agree.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use tx::{Keys, KvTx, Result};

use super::history::{Log, Version};
use crate::history::Phenomenon;
use crate::rng::Rng;

/// As the store knows it.
pub(super) fn name(key: u16, keys: u16) -> Vec<u8> {
    match key.checked_sub(keys) {
        None => format!("k{key:03}").into_bytes(),
        Some(key) => format!("marker/{key:03}").into_bytes(),
    }
}

pub(super) fn encode(version: Version) -> Vec<u8> {
    let raw = version.raw();
    let mut filler = Rng::seeded(raw);
    let len = [0, filler.below(20), filler.below(100), filler.below(700)][filler.below(4) as usize];
    let mut value = raw.to_le_bytes().to_vec();
    value.resize(8 + len as usize, filler.draw() as u8);
    value
}

fn decode(value: &[u8]) -> Option<Version> {
    let version = Version::from_raw(u64::from_le_bytes(*value.first_chunk()?));
    (encode(version) == value).then_some(version)
}

fn shown(found: Option<Version>) -> String {
    found.map_or_else(|| "nothing".to_owned(), |version| version.to_string())
}

/// One attempt, as seen from inside.
pub(super) struct Trial<'l> {
    log: &'l mut Log,
    keys: u16,
    /// What was found first, before own writes.
    seen: BTreeMap<u16, Option<Version>>,
    own: BTreeMap<u16, Option<Version>>,
}

impl<'l> Trial<'l> {
    pub(super) fn new(log: &'l mut Log, keys: u16) -> Self {
        Self { log, keys, seen: BTreeMap::new(), own: BTreeMap::new() }
    }

    /// Own writes are found again, and everything else is what it was.
    fn note(&mut self, key: u16, found: Option<Version>) {
        if let Some(own) = self.own.get(&key) {
            if *own != found {
                self.log.complain(
                    Phenomenon::Internal,
                    format!("key {key}: wrote {} and found {}", shown(*own), shown(found)),
                );
            }
            return;
        }
        let first = *self.seen.entry(key).or_insert(found);
        if first != found {
            self.log
                .complain(Phenomenon::GSingle, format!("key {key}: found {} and then {}", shown(first), shown(found)));
        }
    }

    /// What stands there, as far as is known.
    fn known(&self, key: u16) -> Option<Option<Version>> {
        self.own.get(&key).or_else(|| self.seen.get(&key)).copied()
    }

    fn found(&mut self, key: u16, value: Option<&[u8]>) -> Option<Version> {
        let version = value.and_then(decode);
        if version.is_none() && value.is_some() {
            self.log.complain(Phenomenon::UnknownValue, format!("key {key}: {value:?}"));
        }
        version
    }

    fn get<X: KvTx>(&mut self, tx: &X, key: u16) -> Result<Option<Version>> {
        let value = tx.get(&name(key, self.keys))?;
        let found = self.found(key, value);
        self.note(key, found);
        Ok(found)
    }

    /// Gets it, and its marker too if it is not there.
    pub(super) fn look<X: KvTx>(&mut self, tx: &X, key: u16, marker: bool) -> Result<()> {
        if self.get(tx, key)?.is_none() && marker {
            self.get(tx, self.keys + key)?;
        }
        Ok(())
    }

    /// What a write of the key overwrites.
    fn over(&self, key: u16) -> Option<Version> {
        match self.known(key)? {
            Some(version) => Some(version),
            None if key < self.keys => self.seen.get(&(self.keys + key)).copied().flatten().map(Version::previous),
            None => None,
        }
    }

    /// Puts it, over what is known.
    pub(super) fn put<X: KvTx>(&mut self, tx: &mut X, key: u16) -> Result<()> {
        let known = self.known(key);
        let version = self.log.write(key, self.over(key));
        let there = tx.put(&name(key, self.keys), &encode(version))?;
        self.told(key, there, known);
        self.own.insert(key, Some(version));
        Ok(())
    }

    /// A write says whether the key was there.
    fn told(&mut self, key: u16, there: bool, known: Option<Option<Version>>) {
        match known {
            Some(known) if known.is_some() != there => {
                self.log
                    .complain(Phenomenon::Internal, format!("key {key}: {}, but a write says {there}", shown(known)));
            }
            None if !there => self.note(key, None),
            _ => {}
        }
    }

    /// Inserts it if it is not there, deletes it otherwise.
    pub(super) fn toggle<X: KvTx>(&mut self, tx: &mut X, key: u16) -> Result<()> {
        let known = self.get(tx, key)?;
        self.get(tx, self.keys + key)?;
        if known.is_none() { self.put(tx, key) } else { self.delete(tx, key) }
    }

    /// Deletes it, whether it is there or not.
    pub(super) fn delete<X: KvTx>(&mut self, tx: &mut X, key: u16) -> Result<()> {
        let known = self.known(key);
        let there = tx.delete(&name(key, self.keys))?;
        self.told(key, there, known);
        if there {
            let marker = self.get(tx, self.keys + key)?;
            self.log.write(key, self.over(key));
            self.own.insert(key, None);
            // The version of the marker is the one after the delete's.
            let version = self.log.write(self.keys + key, marker);
            tx.put(&name(self.keys + key, self.keys), &encode(version))?;
            self.own.insert(self.keys + key, Some(version));
        }
        let again = tx.delete(&name(key, self.keys))?;
        self.told(key, again, Some(None));
        Ok(())
    }

    /// Scans a range that begins there, in some way; sometimes the markers too.
    pub(super) fn scan_some<X: KvTx>(&mut self, tx: &X, from: u16, rng: &mut Rng) -> Result<()> {
        let to = (from + 1 + rng.below(16) as u16).min(self.keys);
        let most = if rng.below(4) == 0 { 1 + rng.below(4) as usize } else { usize::MAX };
        let shape = rng.below(12);
        self.scan(tx, from, to, shape, most)?;
        if rng.below(3) == 0 {
            self.scan(tx, self.keys + from, self.keys + to, shape, usize::MAX)?;
        }
        Ok(())
    }

    /// From one key up to before another one; stops after so many pairs.
    fn scan<X: KvTx>(&mut self, tx: &X, from: u16, to: u16, shape: u64, most: usize) -> Result<()> {
        let at = |key| name(key, self.keys);
        let keys = Keys {
            from: match shape % 3 {
                0 if from == 0 => Bound::Unbounded,
                1 if !from.is_multiple_of(self.keys) => Bound::Excluded(at(from - 1)),
                _ => Bound::Included(at(from)),
            },
            to: if shape.is_multiple_of(2) { Bound::Excluded(at(to)) } else { Bound::Included(at(to - 1)) },
            reverse: shape >= 6,
        };
        let mut pairs: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        tx.scan(&keys, &mut |key, value| {
            pairs.push((key.to_vec(), value.to_vec()));
            if pairs.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        let stopped = pairs.len() >= most;
        let mut pairs = pairs.into_iter().peekable();
        let mut all: Vec<u16> = (from..to).collect();
        if keys.reverse {
            all.reverse();
        }
        for key in all {
            if stopped && pairs.peek().is_none() {
                return Ok(());
            }
            let found = pairs.next_if(|(at, _)| *at == name(key, self.keys));
            let found = self.found(key, found.as_ref().map(|(_, value)| &value[..]));
            self.note(key, found);
        }
        if let Some((key, _)) = pairs.next() {
            let key = String::from_utf8_lossy(&key).into_owned();
            self.log.complain(Phenomenon::Malformed, format!("{key} is out of order in a scan of {keys:?}"));
        }
        Ok(())
    }

    /// Notes what was read of others, now that all is known about it.
    pub(super) fn finish(self) {
        for (&key, &found) in &self.seen {
            let marker = || self.seen.get(&(self.keys + key)).copied().flatten();
            match found {
                Some(version) => self.log.read(key, version),
                None if key >= self.keys => {
                    self.log
                        .complain(Phenomenon::UnknownValue, format!("marker {key} is never deleted, but not there"));
                }
                None => marker().into_iter().for_each(|marker| self.log.read(key, marker.previous())),
            }
        }
    }
}
