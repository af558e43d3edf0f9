//! The one place that reads a clock.

use std::time::{Duration, Instant};

use crate::Result;

/// How long `work` takes.
///
/// # Errors
/// Those of `work`.
#[expect(clippy::disallowed_methods, reason = "measuring time is what this crate is for; everything in it comes here")]
pub fn time(work: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}

/// When `work` began and ended.
///
/// # Errors
/// Those of `work`.
#[expect(clippy::disallowed_methods, reason = "as above")]
pub fn span(work: impl FnOnce() -> Result<()>) -> Result<(Instant, Instant)> {
    let start = Instant::now();
    work()?;
    Ok((start, Instant::now()))
}

/// How long `work` takes, beside its result.
#[expect(clippy::disallowed_methods, reason = "as above")]
#[inline]
pub fn timed<R>(work: impl FnOnce() -> R) -> (R, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}

/// Tells the times between laps.
#[derive(Debug)]
pub struct Stopwatch(Instant);

#[expect(clippy::disallowed_methods, reason = "as above")]
impl Stopwatch {
    /// Runs from now on.
    #[must_use]
    #[inline]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// How long ago the last lap ended.
    #[inline]
    pub fn lap(&mut self) -> Duration {
        let now = Instant::now();
        now - std::mem::replace(&mut self.0, now)
    }

    /// What one lap of nothing takes here, on average.
    #[must_use]
    pub fn cost() -> Duration {
        const LAPS: u32 = 20_000;
        let mut watch = Self::start();
        (0..LAPS).map(|_| watch.lap()).sum::<Duration>() / LAPS
    }
}
