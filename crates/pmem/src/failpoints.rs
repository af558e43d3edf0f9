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

/// `Failpoints`: which `Step`, of those in scope, is left out. Nothing is, and at no cost, but where this is compiled in.
#[doc(hidden)]
#[macro_export]
macro_rules! failpoints {
    ($compiled_in:meta) => {
        /// What is left out: nothing, and at no cost, where that is not compiled in.
        #[derive(Clone, Copy, Debug, Default)]
        pub(crate) struct Failpoints(#[cfg($compiled_in)] pub(crate) Option<Step>);

        impl Failpoints {
            #[cfg($compiled_in)]
            #[inline]
            pub(crate) fn skips(self, step: Step) -> bool {
                self.0 == Some(step)
            }

            #[cfg(not($compiled_in))]
            #[inline(always)]
            pub(crate) const fn skips(self, _: Step) -> bool {
                false
            }
        }
    };
}
