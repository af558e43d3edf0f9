//! Bytes for keys and values.

use super::Random;
use crate::{Error, Result};

/// Longest key.
pub const KEY_BYTES_MAX: usize = 64;

/// A key's bytes.
pub trait Names: Sync {
    /// The bytes of the key with that number; `buffer` is from [`buffer`](Self::buffer).
    fn name<'a>(&'a self, key: u64, buffer: &'a mut [u8; KEY_BYTES_MAX]) -> &'a [u8];

    /// Something to write in.
    fn buffer(&self) -> [u8; KEY_BYTES_MAX] {
        [b'0'; KEY_BYTES_MAX]
    }
}

/// `user`, zeros, and the number mixed up in 16 hexadecimal digits: different numbers have different names, and neighbours lie far apart.
#[derive(Clone, Copy, Debug)]
pub struct Hashed {
    bytes: usize,
}

impl Hashed {
    /// Shortest name.
    pub const BYTES_MIN: usize = 20;

    /// Names of that length, from [`BYTES_MIN`](Self::BYTES_MIN) to [`KEY_BYTES_MAX`].
    ///
    /// # Errors
    /// It is shorter or longer.
    pub fn new(bytes: usize) -> Result<Self> {
        if (Self::BYTES_MIN..=KEY_BYTES_MAX).contains(&bytes) {
            return Ok(Self { bytes });
        }
        let why = format!("keys of {bytes} bytes: from {} to {KEY_BYTES_MAX} are possible", Self::BYTES_MIN);
        Err(Error::Parameter(why))
    }

    /// Length of the names.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Names for Hashed {
    #[inline]
    fn name<'a>(&'a self, key: u64, buffer: &'a mut [u8; KEY_BYTES_MAX]) -> &'a [u8] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let name = &mut buffer[..self.bytes];
        let mixed = mix(key);
        for (i, digit) in name[self.bytes - 16..].iter_mut().enumerate() {
            *digit = DIGITS[(mixed >> (60 - 4 * i)) as usize & 15];
        }
        name[..4].copy_from_slice(b"user");
        name
    }
}

/// A permutation of all numbers (the finaliser of splitmix64).
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Values that cannot be compressed and differ from each other.
#[derive(Clone, Debug)]
pub struct Values {
    noise: Vec<u8>,
    longest: usize,
}

/// Different values of one length.
const VARIANTS: usize = 1024;

impl Values {
    /// Values up to that length; the same seed gives the same ones.
    #[must_use]
    pub fn new(longest: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let noise = (0..longest + VARIANTS).map(|_| random.any() as u8).collect();
        Self { noise, longest }
    }

    /// The value of that number and length; cut if it is longer than the longest.
    #[inline]
    #[must_use]
    pub fn get(&self, number: u64, bytes: u32) -> &[u8] {
        let from = number as usize % VARIANTS;
        &self.noise[from..from + self.longest.min(bytes as usize)]
    }

    /// Length of the longest.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.longest
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_have_their_length_and_are_distinct() {
        for bytes in [20, 24, 64] {
            let names = Hashed::new(bytes).unwrap();
            let mut buffer = names.buffer();
            let all: BTreeSet<Vec<u8>> = (0..10_000).map(|key| names.name(key, &mut buffer).to_vec()).collect();
            assert_eq!(all.len(), 10_000);
            assert!(all.iter().all(|name| name.len() == bytes && name.starts_with(b"user") && name.is_ascii()));
        }
        assert!(Hashed::new(19).is_err() && Hashed::new(65).is_err());
    }

    #[test]
    fn values_have_their_length_and_differ() {
        let values = Values::new(100, 1);
        assert_eq!(values.get(5, 100).len(), 100);
        assert_eq!(values.get(u64::MAX, 7).len(), 7);
        assert_eq!(values.get(5, 1000).len(), 100);
        assert_ne!(values.get(5, 100), values.get(6, 100));
    }
}
