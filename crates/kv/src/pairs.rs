//! Pairs of a snapshot that the iterator has for itself.

use std::collections::VecDeque;
use std::ops::Bound;

use tx::Keys;

use crate::error::{Error, Result};
use crate::store::{Snapshot, Store};

/// Pairs read ahead at once, at either end.
const AHEAD: usize = 64;

/// A key and its value, copied.
type Owned = (Vec<u8>, Vec<u8>);

/// Pairs in order of their keys, as they were when it was made: see [`Store::prefix`]. It ends after an error.
pub struct Pairs<'s> {
    snapshot: Snapshot<'s>,
    /// What is not read yet, smallest first; none if all is.
    rest: Option<Keys>,
    /// Largest first.
    reverse: bool,
    /// Read ahead: smaller than the rest, in order; and larger.
    smaller: VecDeque<Owned>,
    larger: VecDeque<Owned>,
    failed: Option<Error>,
}

impl Store {
    /// The pairs whose keys begin with `prefix`, as they are now: of a snapshot of its own, which ends with the iterator.
    ///
    /// ```
    /// # fn main() -> kv::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = kv::Store::open(dir.path().join("s"))?;
    /// store.put("apples", "17")?;
    /// store.put("apricots", "5")?;
    /// store.put("pears", "3")?;
    /// let mut keys = Vec::new();
    /// for entry in store.prefix("ap")? {
    ///     let (key, _value) = entry?;
    ///     store.delete(&key)?; // it is in the snapshot all the same
    ///     keys.push(key);
    /// }
    /// assert_eq!(keys, [&b"apples"[..], b"apricots"]);
    /// assert!(store.prefix("ap")?.next().is_none());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::TooMany`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Pairs<'_>> {
        self.scan(Keys::prefix(prefix.as_ref()))
    }

    /// The pairs of a range of keys, as they are now: of a snapshot of its own, which ends with the iterator.
    ///
    /// # Errors
    /// [`Error::TooMany`].
    pub fn scan(&self, keys: Keys) -> Result<Pairs<'_>> {
        let (reverse, rest) = (keys.reverse, Some(Keys { reverse: false, ..keys }));
        let (smaller, larger) = Default::default();
        Ok(Pairs { snapshot: self.snapshot()?, rest, reverse, smaller, larger, failed: None })
    }
}

impl Pairs<'_> {
    /// Reads on at one end of the rest.
    fn read_ahead(&mut self, from_largest: bool) {
        let Some(mut keys) = self.rest.take() else { return };
        let range = if from_largest { keys.clone().reverse() } else { keys.clone() };
        let ahead = if from_largest { &mut self.larger } else { &mut self.smaller };
        for pair in self.snapshot.scan(range).take(AHEAD) {
            match pair {
                Ok((key, value)) if from_largest => ahead.push_front((key.to_vec(), value.to_vec())),
                Ok((key, value)) => ahead.push_back((key.to_vec(), value.to_vec())),
                Err(error) => {
                    self.failed = Some(error);
                    return;
                }
            }
        }
        if ahead.len() < AHEAD {
            return; // that was all
        }
        if from_largest {
            keys.to = ahead.front().map_or(keys.to, |(key, _)| Bound::Excluded(key.clone()));
        } else {
            keys.from = ahead.back().map_or(keys.from, |(key, _)| Bound::Excluded(key.clone()));
        }
        self.rest = Some(keys);
    }

    fn smallest(&mut self) -> Option<Result<Owned>> {
        if self.smaller.is_empty() {
            self.read_ahead(false);
        }
        self.smaller.pop_front().map(Ok).or_else(|| self.end()).or_else(|| self.larger.pop_front().map(Ok))
    }

    fn largest(&mut self) -> Option<Result<Owned>> {
        if self.larger.is_empty() {
            self.read_ahead(true);
        }
        self.larger.pop_back().map(Ok).or_else(|| self.end()).or_else(|| self.smaller.pop_back().map(Ok))
    }

    /// The error that reading met, behind what it had read before; and nothing after it.
    fn end(&mut self) -> Option<Result<Owned>> {
        let error = self.failed.take()?;
        self.smaller.clear();
        self.larger.clear();
        Some(Err(error))
    }
}

impl Iterator for Pairs<'_> {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reverse { self.largest() } else { self.smallest() }
    }
}

impl DoubleEndedIterator for Pairs<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.reverse { self.smallest() } else { self.largest() }
    }
}

impl std::iter::FusedIterator for Pairs<'_> {}

impl std::fmt::Debug for Pairs<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pairs of {:?}, {:?} to come", self.snapshot.timestamp(), self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(count: u32) -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("s")).unwrap();
        store.load((0..count).map(|n| (format!("k{n:04}"), n.to_string()))).unwrap();
        store.put("other", "x").unwrap();
        (dir, store)
    }

    /// Every pair once, whatever is taken from which end, and however many are read ahead.
    #[test]
    fn both_ends_meet() {
        for count in [0, 1, 63, 64, 65, 127, 128, 129, 300] {
            let (_dir, store) = store(count);
            let all: Vec<String> = (0..count).map(|n| format!("k{n:04}")).collect();
            let text = |pair: Option<Result<Owned>>| pair.map(|pair| String::from_utf8(pair.unwrap().0).unwrap());
            for step in [1, 2, 3, 64, 65, 1000] {
                let mut pairs = store.prefix("k").unwrap();
                let (mut front, mut back) = (Vec::new(), Vec::new());
                for turn in 0.. {
                    let from_back = turn % (step + 1) == step;
                    let Some(key) = text(if from_back { pairs.next_back() } else { pairs.next() }) else { break };
                    if from_back { back.push(key) } else { front.push(key) }
                }
                assert!(pairs.next().is_none() && pairs.next_back().is_none());
                back.reverse();
                assert_eq!([front, back].concat(), all, "{count} pairs, a step back after {step}");
            }
            let turned: Vec<_> = store.scan(Keys::prefix(b"k").reverse()).unwrap().rev().collect();
            assert_eq!(turned.into_iter().map(|pair| text(Some(pair)).unwrap()).collect::<Vec<_>>(), all);
        }
    }

    /// An error comes behind what was read before it, once.
    #[test]
    fn an_error_ends_it() {
        let (_dir, store) = store(100);
        let mut pairs = store.prefix("k").unwrap();
        assert!(pairs.next().unwrap().is_ok());
        store.put("k0099", "later").unwrap();
        store.expire_before(store.stats().now);
        assert_eq!(pairs.by_ref().take(AHEAD - 1).filter(Result::is_ok).count(), AHEAD - 1);
        assert!(matches!(pairs.next(), Some(Err(Error::Expired { .. }))));
        assert!(pairs.next().is_none() && pairs.next_back().is_none());
    }
}
