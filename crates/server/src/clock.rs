//! The time of day, and how long things take.

use std::time::{Duration, Instant, SystemTime};

/// Milliseconds of Unix time.
#[expect(clippy::disallowed_methods, reason = "the server's clock: commands get what it says as an argument")]
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    since.as_millis() as u64
}

/// The same in microseconds: for people to read.
#[expect(clippy::disallowed_methods, reason = "the server's clock: it decides nothing about data")]
pub(crate) fn micros() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    since.as_micros() as u64
}

/// Says how long ago it began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch(Instant);

impl Watch {
    #[expect(clippy::disallowed_methods, reason = "measures how long things take, and decides nothing about data")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn nanos(self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}
