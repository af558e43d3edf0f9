//! Which key comes next.

use super::Random;

/// All alike.
#[derive(Clone, Copy, Debug)]
pub struct Uniform;

impl Uniform {
    /// One of `items`, at least 1.
    pub fn next(self, random: &mut Random, items: u64) -> u64 {
        random.below(items)
    }
}

/// Ranks from 0 on, each less likely than the one before: rank `r` as `1 / (r + 1)^theta`.
///
/// The inverse of the distribution in closed form, close for all ranks and exact for the first two (Gray et al., *Quickly Generating
/// Billion-Record Synthetic Databases*, 1994), as YCSB does.
#[derive(Clone, Debug)]
pub struct Zipfian {
    items: u64,
    theta: f64,
    zeta: f64,
    eta: f64,
}

impl Zipfian {
    /// YCSB's exponent.
    pub const THETA: f64 = 0.99;

    /// Over this many ranks, at least 1. Takes time in proportion.
    #[must_use]
    pub fn new(items: u64) -> Self {
        Self::with_zeta(items, zeta(0.0, 1, items, Self::THETA))
    }

    fn with_zeta(items: u64, zeta: f64) -> Self {
        let mut zipfian = Self { items, theta: Self::THETA, zeta, eta: 0.0 };
        zipfian.set_eta();
        zipfian
    }

    /// Of one or two ranks it is not used.
    fn set_eta(&mut self) {
        let zeta2 = 1.0 + 0.5_f64.powf(self.theta);
        self.eta = (1.0 - (2.0 / self.items as f64).powf(1.0 - self.theta)) / (1.0 - zeta2 / self.zeta);
    }

    /// More ranks, if `items` is more than there are.
    pub fn grow(&mut self, items: u64) {
        if items > self.items {
            self.zeta = zeta(self.zeta, self.items + 1, items, self.theta);
            self.items = items;
            self.set_eta();
        }
    }

    /// The next rank.
    pub fn next(&self, random: &mut Random) -> u64 {
        let unit = random.unit();
        let share = unit * self.zeta;
        if share < 1.0 {
            return 0;
        }
        if share < 1.0 + 0.5_f64.powf(self.theta) {
            return 1.min(self.items - 1);
        }
        let rank = self.items as f64 * (self.eta * unit - self.eta + 1.0).powf(1.0 / (1.0 - self.theta));
        (rank as u64).min(self.items - 1)
    }
}

/// The sum of `1 / i^theta` over `from..=to`, added to `sum`.
fn zeta(sum: f64, from: u64, to: u64, theta: f64) -> f64 {
    (from..=to).fold(sum, |sum, i| sum + (i as f64).powf(-theta))
}

/// Zipfian, but popular keys lie anywhere: ranks of ten billion items, hashed to the keys there are. Which key is popular does not change
/// when keys are added.
#[derive(Clone, Debug)]
pub struct Scrambled(Zipfian);

/// YCSB's number of items, and what they add up to.
const SCRAMBLED_ITEMS: u64 = 10_000_000_000;
const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;

impl Default for Scrambled {
    fn default() -> Self {
        Self(Zipfian::with_zeta(SCRAMBLED_ITEMS, SCRAMBLED_ZETA))
    }
}

impl Scrambled {
    /// One of `items`, at least 1.
    pub fn next(&self, random: &mut Random, items: u64) -> u64 {
        fnv1a(self.0.next(random)) % items
    }
}

/// FNV-1a over the eight bytes, smallest first.
fn fnv1a(value: u64) -> u64 {
    value
        .to_le_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Zipfian by age: what came last is read most.
#[derive(Clone, Debug)]
pub struct Latest(Zipfian);

impl Latest {
    /// Over this many items at first, at least 1.
    #[must_use]
    pub fn new(items: u64) -> Self {
        Self(Zipfian::new(items))
    }

    /// How many came after the one that is next: 0 is the newest of `items`.
    pub fn next(&mut self, random: &mut Random, items: u64) -> u64 {
        self.0.grow(items);
        self.0.next(random).min(items - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 400_000;

    fn shares(items: usize, mut draw: impl FnMut(&mut Random) -> u64) -> Vec<f64> {
        let mut random = Random::new(42);
        let mut counts = vec![0.0; items];
        for _ in 0..DRAWS {
            counts[draw(&mut random) as usize] += 1.0 / DRAWS as f64;
        }
        counts
    }

    /// The share of all draws up to a rank is what the definition says, to two percentage points: the closed form is that close.
    #[test]
    fn zipfian_shares_follow_the_definition() {
        for items in [1, 2, 3, 10, 1000, 20_000] {
            let zipfian = Zipfian::new(items);
            let shares = shares(items as usize, |random| zipfian.next(random));
            let total = zeta(0.0, 1, items, Zipfian::THETA);
            let (mut drawn, mut defined) = (0.0, 0.0);
            for (rank, share) in shares.iter().enumerate() {
                drawn += share;
                defined += ((rank + 1) as f64).powf(-Zipfian::THETA) / total;
                assert!((drawn - defined).abs() < 0.02, "{items} items, up to rank {rank}: {drawn} for {defined}");
            }
            assert!((drawn - 1.0).abs() < 1e-9);
            let first = 1.0 / total;
            assert!((shares[0] - first).abs() < 0.004, "the most popular of {items}: {} for {first}", shares[0]);
        }
    }

    #[test]
    fn growing_is_the_same_as_being_made_larger() {
        let mut grown = Zipfian::new(10);
        grown.grow(500);
        grown.grow(400);
        let made = Zipfian::new(500);
        assert!((grown.zeta - made.zeta).abs() < 1e-9 && (grown.eta - made.eta).abs() < 1e-9);
    }

    /// The sum that YCSB has as a constant, by the integral of the tail (Euler and Maclaurin).
    #[test]
    fn the_constant_is_right() {
        let head = 1_000_000_u64;
        let power = 1.0 - Zipfian::THETA;
        let (from, to) = (head as f64, SCRAMBLED_ITEMS as f64);
        let tail = (to.powf(power) - from.powf(power)) / power;
        let ends = (to.powf(-Zipfian::THETA) - from.powf(-Zipfian::THETA)) / 2.0;
        let sum = zeta(0.0, 1, head, Zipfian::THETA) + tail + ends;
        assert!((sum - SCRAMBLED_ZETA).abs() < 1e-6, "{sum}");
    }

    /// The most popular key has the share of rank 0, and is not the first; the others are spread.
    #[test]
    fn scrambled_popularity_lies_anywhere() {
        let scrambled = Scrambled::default();
        let shares = shares(1000, |random| scrambled.next(random, 1000));
        let top = shares.iter().copied().fold(0.0, f64::max);
        assert!((top - 1.0 / SCRAMBLED_ZETA).abs() < 0.005, "{top}");
        assert!(shares[0] < 0.03);
        let popular: Vec<usize> = (0..1000).filter(|i| shares[*i] > 0.004).collect();
        assert!(popular.len() > 5 && popular.windows(2).any(|pair| pair[1] - pair[0] > 50), "{popular:?}");
        assert!(shares.iter().all(|share| *share > 0.0), "every key comes up");
    }

    #[test]
    fn latest_is_the_newest() {
        let mut latest = Latest::new(10);
        let shares = shares(1000, |random| latest.next(random, 1000));
        assert!(shares[0] > shares[1] && shares[1] > shares[9] && shares[9] > shares[99]);
        assert_eq!(latest.next(&mut Random::new(1), 1), 0, "fewer than before");
    }

    #[test]
    fn uniform_is_even_and_bounded() {
        let shares = shares(50, |random| Uniform.next(random, 50));
        assert!(shares.iter().all(|share| (share - 0.02).abs() < 0.002));
        assert_eq!(Random::new(1).below(1), 0);
    }

    #[test]
    fn a_seed_gives_the_same_again() {
        let draw = |seed| {
            let (mut random, scrambled) = (Random::new(seed), Scrambled::default());
            (0..50).map(|_| scrambled.next(&mut random, 1 << 20)).collect::<Vec<_>>()
        };
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
    }

    /// Published test vector of FNV-1a for eight zero bytes, and its two steps by hand for one.
    #[test]
    fn fnv() {
        assert_eq!(fnv1a(0), 0xa8c7_f832_281a_39c5);
        assert_ne!(fnv1a(1) % 1000, fnv1a(2) % 1000);
    }
}
