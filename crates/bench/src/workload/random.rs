//! Numbers that the same seed gives again.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

/// A generator of random numbers (xoshiro256++).
#[derive(Clone, Debug)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// The same seed gives the same numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Any number.
    #[inline]
    pub fn any(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `end`, which is not 0. Its bias is less than `end / 2^64`.
    #[inline]
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.any()) * u128::from(end)) >> 64) as u64
    }

    /// A number from 0 to just below 1.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.any() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }
}
