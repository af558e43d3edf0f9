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
