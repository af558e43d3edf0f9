//! Numbers from a seed.

/// A generator of numbers (SplitMix64): the same for the same seed.
///
/// ```
/// let mut random = structures_testing::Random(7);
/// assert!(random.below(10) < 10);
/// ```
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `end`, 0 if that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number().checked_rem(end).unwrap_or(0)
    }

    /// Up to `end` bytes.
    pub fn bytes(&mut self, end: u64) -> Vec<u8> {
        (0..self.below(end + 1)).map(|_| self.number() as u8).collect()
    }

    /// One of a few hundred keys, of very different lengths; short ones come often.
    pub fn key(&mut self) -> Vec<u8> {
        let number = self.below(300);
        match number % 4 {
            0 => number.to_be_bytes().to_vec(),
            1 => format!("user:{number}").into_bytes(),
            2 => vec![b'k'; number as usize],
            _ => vec![number as u8],
        }
    }
}
