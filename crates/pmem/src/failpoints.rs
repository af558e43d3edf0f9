//! Ways to break persistence on purpose, for tests that must be seen to fail. Compiled in by the feature `failpoints` alone.

#[cfg(feature = "failpoints")]
static IGNORE_DRAINS: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// From now on drains of the file domain return at once, without a sync.
#[cfg(feature = "failpoints")]
pub fn ignore_drains(on: bool) {
    IGNORE_DRAINS.store(on, std::sync::atomic::Ordering::Relaxed);
}

#[cfg(feature = "failpoints")]
pub(crate) fn drains_ignored() -> bool {
    IGNORE_DRAINS.load(std::sync::atomic::Ordering::Relaxed)
}

#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub(crate) const fn drains_ignored() -> bool {
    false
}
