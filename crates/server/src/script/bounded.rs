//! The transaction of a script, which holds a bounded number of bytes: short commands may write much, a copy of a large set as well as a long string.

use super::state::State;
use crate::clock::Watch;
use crate::engine::{Error, Keys, Result, Tx, Visit};

/// Bytes that a pair takes besides its own.
const PAIR: usize = 128;

pub(super) struct Bounded<'t> {
    pub(super) tx: &'t mut dyn Tx,
    pub(super) state: &'t State,
    /// Whether what it waits for others is to be noted.
    pub(super) waits: bool,
}

/// Shorter than that it has not waited, in nanoseconds.
const SHORT: u64 = 1_000_000;

impl Bounded<'_> {
    /// Notes how long it waits in `f`.
    fn waiting<R>(waits: bool, state: &State, f: impl FnOnce() -> R) -> R {
        if !waits {
            return f();
        }
        let (began, found) = (Watch::start(), f());
        let took = began.nanos();
        if took > SHORT {
            state.waited.set(state.waited.get() + took);
        }
        found
    }
}

impl Tx for Bounded<'_> {
    fn prefetch(&self, keys: &[&[u8]]) {
        self.tx.prefetch(keys);
    }

    fn get(&self, key: &[u8]) -> Result<Option<&[u8]>> {
        Self::waiting(self.waits, self.state, || self.tx.get(key))
    }

    fn put(&mut self, key: &[u8], value: &[u8], expires: Option<u64>) -> Result<()> {
        self.state.pass(key.len() + value.len() + PAIR).map_err(|text| Error::Limit(text.to_owned()))?;
        Self::waiting(self.waits, self.state, || self.tx.put(key, value, expires))
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool> {
        self.state.pass(key.len() + PAIR).map_err(|text| Error::Limit(text.to_owned()))?;
        Self::waiting(self.waits, self.state, || self.tx.delete(key))
    }

    fn expires(&self, key: &[u8]) -> Result<Option<u64>> {
        Self::waiting(self.waits, self.state, || self.tx.expires(key))
    }

    fn version(&self, key: &[u8]) -> Result<Option<u64>> {
        Self::waiting(self.waits, self.state, || self.tx.version(key))
    }

    fn scan(&self, keys: Keys, visit: Visit<'_>) -> Result<()> {
        self.tx.scan(keys, visit)
    }
}
