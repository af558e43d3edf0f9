//! Timestamps: the order in which transactions happened.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// A moment in the order of commits. Later commits have larger ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Before every commit.
    pub const ZERO: Self = Self(0);

    /// As a number.
    pub fn get(self) -> u64 {
        self.0
    }
}

/// Where timestamps come from.
pub trait Clock: Send + Sync {
    /// Later than every timestamp given out before, on any thread.
    fn tick(&self) -> Timestamp;

    /// At least as late as every tick that returned before this call.
    fn now(&self) -> Timestamp;
}

/// A shared counter: exact, and a cache line that every commit writes.
///
/// ```
/// use tx::{Clock, CounterClock};
/// let clock = CounterClock::default();
/// let first = clock.tick();
/// assert_eq!(clock.now(), first);
/// assert!(clock.tick() > first);
/// ```
#[derive(Debug, Default)]
pub struct CounterClock(AtomicU64);

impl CounterClock {
    /// Timestamps from now on are later than `last`, as those of a store that is opened again have to be.
    ///
    /// ```
    /// use tx::{Clock, CounterClock};
    /// let clock = CounterClock::default();
    /// clock.skip(41);
    /// assert_eq!(clock.tick().get(), 42);
    /// ```
    pub fn skip(&self, last: u64) {
        self.0.fetch_max(last, SeqCst);
    }
}

impl Clock for CounterClock {
    fn tick(&self) -> Timestamp {
        Timestamp(self.0.fetch_add(1, SeqCst) + 1)
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(SeqCst))
    }
}
