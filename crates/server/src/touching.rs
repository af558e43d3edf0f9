//! A transaction that keeps a note of the keys that it changes, while clients are [told](crate::tracking) of changes.

use tx::Keys;

use crate::data::DATABASES;
use crate::engine::{Result, Tx, Visit};

/// Keys that are noted, at most: of more all are said to have changed.
const MOST: usize = 1 << 16;

/// What the last attempt of a transaction has changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Touched {
    /// No client was told of changes when it began.
    #[default]
    Unknown,
    /// These keys, as they are in the store.
    Keys(Vec<Vec<u8>>),
    All,
    /// That was told.
    Told,
}

pub(crate) struct Touching<'t> {
    tx: &'t mut dyn Tx,
    touched: Touched,
}

impl<'t> Touching<'t> {
    pub(crate) fn new(tx: &'t mut dyn Tx) -> Self {
        Self { tx, touched: Touched::Keys(Vec::new()) }
    }

    pub(crate) fn touched(self) -> Touched {
        self.touched
    }

    fn note(&mut self, key: &[u8]) {
        let is_a_key = key.first().is_some_and(|first| *first < DATABASES);
        if let Touched::Keys(keys) = &mut self.touched
            && is_a_key
            && keys.last().is_none_or(|last| last != key)
        {
            keys.push(key.to_vec());
            if keys.len() > MOST {
                self.touched = Touched::All;
            }
        }
    }
}

impl Tx for Touching<'_> {
    fn prefetch(&self, keys: &[&[u8]]) {
        self.tx.prefetch(keys);
    }

    fn get(&self, key: &[u8]) -> Result<Option<&[u8]>> {
        self.tx.get(key)
    }

    fn put(&mut self, key: &[u8], value: &[u8], expires: Option<u64>) -> Result<()> {
        self.note(key);
        self.tx.put(key, value, expires)
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool> {
        let was_there = self.tx.delete(key)?;
        if was_there {
            self.note(key);
        }
        Ok(was_there)
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
