//! Hashes of what a memory holds: of words, sums that change with each of them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A word's share in the hash of an image: zero words have none, so that growth costs nothing.
#[inline]
pub(crate) fn mix(word: usize, value: u64) -> u64 {
    if value == 0 { 0 } else { mix_pair(word as u64 + 1, value) }
}

/// A hash of an ordered pair.
#[inline]
pub(crate) fn mix_pair(a: u64, b: u64) -> u64 {
    let fold = |x: u64, y: u64| {
        let product = u128::from(x) * u128::from(y);
        (product as u64) ^ ((product >> 64) as u64)
    };
    let first = fold(a ^ 0x9E37_79B9_7F4A_7C15, b ^ 0xD1B5_4A32_D192_ED03);
    fold(first ^ a.rotate_left(32), 0xA076_1D64_78BD_642F ^ b)
}

/// Sets and maps of hashes need no second hash, and their order never shows.
#[derive(Default)]
pub(crate) struct Plain(u64);

impl Hasher for Plain {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = mix_pair(self.0, u64::from(byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

pub(crate) type PlainMap<V> = HashMap<u64, V, BuildHasherDefault<Plain>>;
