//! What the system draws.

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
