//! What the system draws, and numbers that follow from it.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::clock::now;

/// Sixteen bytes of the system's.
pub(crate) struct RandomSeed(pub(crate) u64, pub(crate) u64);

impl RandomSeed {
    #[expect(
        clippy::disallowed_methods,
        reason = "a server's names and passwords must differ from those of other runs"
    )]
    pub(crate) fn draw() -> Self {
        let draw = || getrandom::u64().unwrap_or_else(|_| now());
        Self(draw(), draw())
    }
}

/// Any numbers: for commands that take a random element, not for secrets.
pub(crate) struct Random(AtomicU64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.into())
    }

    pub(crate) fn next(&self) -> u64 {
        // SplitMix64.
        let mut z = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
