//! The clock that leases are counted by.

use std::ops::Add;
use std::time::Duration;

/// A point of a clock that never goes back and goes on while the machine sleeps: a lease does not wait either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    pub(crate) fn now() -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Self((now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64))
    }

    pub(crate) fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    pub(crate) fn ns(self) -> u64 {
        self.0
    }

    /// How long it is until then; nothing if that is past.
    pub(crate) fn until(self, later: Self) -> Duration {
        Duration::from_nanos(later.0.saturating_sub(self.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)))
    }
}
