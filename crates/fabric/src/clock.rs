//! The real time, for backends that have to do with real peers.

use std::time::{Duration, Instant};

#[expect(clippy::disallowed_methods, reason = "time-outs of sockets are of real time; a simulated network has its own")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// What is left until then.
pub(crate) fn until(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(now())
}

/// A deadline `wait` from now, if that can be told.
pub(crate) fn after(wait: Duration) -> Option<Instant> {
    now().checked_add(wait)
}
