//! The time, which nothing that is explored depends on.

use std::time::Instant;

#[expect(clippy::disallowed_methods, reason = "times are reported, and bound shrinking; they decide nothing else")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
