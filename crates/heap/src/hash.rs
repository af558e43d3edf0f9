//! How maps with addresses as keys spread them.

use std::hash::Hasher;

/// Spreads addresses (Fibonacci hashing).
#[derive(Default)]
pub(crate) struct PointerHash(u64);

impl Hasher for PointerHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_usize(usize::from(*b)));
    }

    fn write_usize(&mut self, n: usize) {
        self.0 = (self.0.rotate_left(5) ^ n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
