//! Which of a range of keys go, in some bits for each key that is there.
//!
//! Where few keys stand beside others that go as well, a note of ranges has some bytes for each. A sieve has no keys at all: each of those that were there when it was made leads to
//! three cells, and these, taken together bit by bit, say what becomes of it (a static function, Majewski, Wormald, Havas, Czech: "A Family of Perfect Hashing Methods", 1996; the three
//! parts are those of Graf and Lemire's xor filter). Of any other key it says anything: so no new key comes to the range as long as it is used.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bits of what it says of a key.
const GOES: u8 = 1;
const ABANDONS: u8 = 2;
/// Attempts, each of which nearly always succeeds.
const ATTEMPTS: u64 = 40;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sieve {
    /// Of the keys' hashes, and which cells these lead to.
    pub(super) seed: u64,
    pub(super) attempt: u64,
    /// Bits of a cell: one if nothing abandons.
    pub(super) width: usize,
    /// In three parts of so many cells.
    pub(super) part: usize,
    pub(super) bytes: Vec<u8>,
}

/// What becomes of keys, by their hashes.
#[derive(Debug)]
pub(super) struct Known {
    seed: u64,
    width: usize,
    keys: Vec<(u64, u8)>,
}

fn hash(seed: u64, key: &[u8]) -> u64 {
    xxh3_64_with_seed(key, seed)
}

/// The cells of a hash.
fn cells(hash: u64, attempt: u64, part: usize) -> [usize; 3] {
    let mut z = (hash ^ attempt).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    let below = |bits: u64| (((bits & 0xffff_ffff) * part as u64) >> 32) as usize;
    [below(z), part + below(z.rotate_left(21)), 2 * part + below(z.rotate_left(42))]
}

/// Cells of a part, for so many keys.
fn part_of(keys: usize) -> usize {
    (keys.saturating_mul(123) / 100 + 32).div_ceil(3)
}

pub(super) fn bytes_of(part: usize, width: usize) -> usize {
    part.saturating_mul(3 * width).div_ceil(8)
}

impl Known {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, width: 1, keys: Vec::new() }
    }

    /// None if the key stays; otherwise whether the elements of what it leads to have no owner from then on.
    pub(super) fn add(&mut self, key: &[u8], goes: Option<bool>) {
        let says = goes.map_or(0, |abandons| GOES | if abandons { ABANDONS } else { 0 });
        if says & ABANDONS != 0 {
            self.width = 2;
        }
        self.keys.push((hash(self.seed, key), says));
    }

    /// Bytes of the cells.
    pub(super) fn bytes(&self) -> usize {
        bytes_of(part_of(self.keys.len()), self.width)
    }

    /// None if two keys of which not the same is to be said have the same hash: the seed is any, so that is hardly ever.
    pub(super) fn sieve(mut self) -> Option<Sieve> {
        self.keys.sort_unstable();
        self.keys.dedup();
        if self.keys.windows(2).any(|two| two[0].0 == two[1].0) {
            return None;
        }
        (0..ATTEMPTS).find_map(|attempt| self.build(attempt))
    }

    /// Takes keys away that have a cell to themselves, until none is left; in the opposite order, that cell makes up for what the other two say.
    fn build(&self, attempt: u64) -> Option<Sieve> {
        let part = part_of(self.keys.len());
        // Of each cell: how many keys lead to it, and these, one over the other.
        let (mut counts, mut over) = (vec![0_u32; 3 * part], vec![0_usize; 3 * part]);
        for (number, (hash, _)) in self.keys.iter().enumerate() {
            for cell in cells(*hash, attempt, part) {
                counts[cell] += 1;
                over[cell] ^= number;
            }
        }
        let mut alone: Vec<usize> = (0..3 * part).filter(|cell| counts[*cell] == 1).collect();
        let mut order = Vec::with_capacity(self.keys.len());
        while let Some(cell) = alone.pop() {
            if counts[cell] != 1 {
                continue;
            }
            let number = over[cell];
            order.push((number, cell));
            for other in cells(self.keys[number].0, attempt, part) {
                counts[other] -= 1;
                over[other] ^= number;
                if counts[other] == 1 {
                    alone.push(other);
                }
            }
        }
        if order.len() < self.keys.len() {
            return None;
        }
        let bytes = vec![0; bytes_of(part, self.width)];
        let mut sieve = Sieve { seed: self.seed, attempt, width: self.width, part, bytes };
        for (number, cell) in order.into_iter().rev() {
            let (hash, says) = self.keys[number];
            sieve.add(cell, says ^ sieve.look_up(hash));
        }
        Some(sieve)
    }
}

impl Sieve {
    fn look_up(&self, hash: u64) -> u8 {
        let bit = |cell: usize, at: usize| {
            let bit = cell * self.width + at;
            self.bytes.get(bit / 8).map_or(0, |byte| byte >> (bit % 8) & 1)
        };
        let cell = |cell: usize| (0..self.width).fold(0, |says, at| says | bit(cell, at) << at);
        cells(hash, self.attempt, self.part).into_iter().fold(0, |says, at| says ^ cell(at))
    }

    fn add(&mut self, cell: usize, says: u8) {
        for at in 0..self.width {
            let bit = cell * self.width + at;
            self.bytes[bit / 8] ^= (says >> at & 1) << (bit % 8);
        }
    }

    /// None if the key stays; otherwise whether the elements of what it leads to have no owner from then on.
    pub(super) fn goes(&self, key: &[u8]) -> Option<bool> {
        let says = self.look_up(hash(self.seed, key));
        (says & GOES != 0).then_some(says & ABANDONS != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_of_each_key_what_becomes_of_it() {
        for (keys, abandons) in [(0, false), (1, true), (2, false), (70, true), (5000, false), (20_000, true)] {
            let name = |n: u32| n.wrapping_mul(2_654_435_761).to_be_bytes();
            let becomes = |n: u32| (!n.is_multiple_of(3)).then_some(abandons && n.is_multiple_of(5));
            for seed in 0..20 {
                let mut known = Known::new(seed);
                (0..keys).for_each(|n| known.add(&name(n), becomes(n)));
                // Twice the same changes nothing.
                (0..keys.min(3)).for_each(|n| known.add(&name(n), becomes(n)));
                let bytes = known.bytes();
                let sieve = known.sieve().unwrap();
                assert!(sieve.bytes.len() <= bytes && bytes <= 21 + keys as usize * 32 / 100, "{keys} keys: {bytes}");
                assert!((0..keys).all(|n| sieve.goes(&name(n)) == becomes(n)), "{keys} keys, seed {seed}");
            }
        }
    }

    #[test]
    fn there_is_none_for_keys_that_cannot_be_told_apart() {
        let mut known = Known::new(1);
        known.add(b"key", None);
        known.add(b"key", Some(false));
        assert_eq!(known.sieve(), None);
    }
}
