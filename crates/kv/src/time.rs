//! Time: the clock's readings, and the time of day for what expires.

use std::cell::Cell;
use std::time::{Duration, SystemTime};

/// When a transaction committed, among all of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// As a number.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

impl From<u64> for Timestamp {
    fn from(ts: u64) -> Self {
        Self(ts)
    }
}

impl std::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "t{}", self.0)
    }
}

/// The time of day for one transaction: asked for when the first thing that expires is met, and then the same to the end.
#[derive(Debug, Default)]
pub(crate) struct Now(Cell<u64>);

impl Now {
    /// Milliseconds of Unix time.
    #[inline]
    pub(crate) fn millis(&self) -> u64 {
        if self.0.get() == 0 {
            self.0.set(millis());
        }
        self.0.get()
    }
}

/// The moment after this time from now, in milliseconds of Unix time.
pub(crate) fn after(time: Duration) -> u64 {
    millis().saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Milliseconds of Unix time.
#[expect(clippy::disallowed_methods, reason = "what expires does so by the time of day")]
pub(crate) fn millis() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_millis() as u64
}
