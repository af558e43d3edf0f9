//! Carry-less products by ordinary ones: for processors without an instruction for them, and for Miri.

use super::ops::{BLOCK, Ops, last_lane};

pub(super) struct Portable;

impl Ops for Portable {
    type Wide = u128;

    #[inline(always)]
    unsafe fn wide(bits: u128) -> u128 {
        bits
    }

    #[inline(always)]
    unsafe fn bits(wide: u128) -> u128 {
        wide
    }

    #[inline(always)]
    unsafe fn xor(a: u128, b: u128) -> u128 {
        a ^ b
    }

    #[inline(always)]
    unsafe fn mul(a: u64, b: u64) -> u128 {
        product(a, b)
    }

    #[inline(always)]
    unsafe fn window(a: u128, by: &[u64; 3]) -> u64 {
        let (low, high) = (a as u64, (a >> 64) as u64);
        low_half(low, by[2]) ^ low_half(high, by[1]) ^ high_half(low, by[1]) ^ high_half(high, by[0])
    }

    #[inline(always)]
    unsafe fn reduce(a: u128) -> u64 {
        // x^64 = x^4 + x^3 + x + 1: the upper half comes down, and then the four bits that it is too long by.
        let down = |high: u64| {
            let high = u128::from(high);
            high ^ high << 1 ^ high << 3 ^ high << 4
        };
        let once = down((a >> 64) as u64);
        (a ^ once ^ down((once >> 64) as u64)) as u64
    }

    #[inline(always)]
    unsafe fn lanes(words: &[u64; BLOCK / 8], block: &[u8]) -> u128 {
        let (lanes, rest) = block.as_chunks::<16>();
        let (keys, _) = words.as_chunks::<2>();
        let mut sum = 0;
        for (lane, key) in lanes.iter().zip(keys) {
            let lane = u128::from_le_bytes(*lane);
            sum ^= product(lane as u64 ^ key[0], (lane >> 64) as u64 ^ key[1]);
        }
        if !rest.is_empty() {
            let (lane, key) = (last_lane(block), &keys[lanes.len()]);
            sum ^= product(lane[0] ^ key[0], lane[1] ^ key[1]);
        }
        sum
    }
}

/// The product of two polynomials.
#[inline]
fn product(a: u64, b: u64) -> u128 {
    u128::from(high_half(a, b)) << 64 | u128::from(low_half(a, b))
}

/// The low half of the product of what is mirrored, mirrored.
#[inline]
fn high_half(a: u64, b: u64) -> u64 {
    low_half(a.reverse_bits(), b.reverse_bits()).reverse_bits() >> 1
}

/// T. Pornin's, of BearSSL (`ghash_ctmul64.c`): with three zeros between any two bits, what a sum of sixteen carries does
/// not reach the next bit that counts, in 64 bits.
#[inline]
fn low_half(a: u64, b: u64) -> u64 {
    const EVERY_FOURTH: u64 = 0x1111_1111_1111_1111;
    let spread = |word: u64| [0, 1, 2, 3].map(|i| word & EVERY_FOURTH << i);
    let (a, b) = (spread(a), spread(b));
    (0..4).fold(0, |product, i| {
        let terms = (0..4).fold(0, |sum, j| sum ^ a[j].wrapping_mul(b[(i + 4 - j) % 4]));
        product | terms & EVERY_FOURTH << i
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_carry_less() {
        let plain = |a: u64, b: u64| (0..64).filter(|i| b >> i & 1 == 1).fold(0, |sum, i| sum ^ u128::from(a) << i);
        let mut state = 1;
        for round in 0..2000 {
            let mut word = || match crate::hash::splitmix(&mut state) {
                word if round % 3 == 0 => word | word.rotate_left(21) | word.rotate_left(42),
                word => word,
            };
            let (a, b) = (word(), word());
            assert_eq!(product(a, b), plain(a, b), "{a:#x} {b:#x}");
        }
        assert_eq!(product(!0, !0), plain(!0, !0));
    }

    #[test]
    fn a_product_is_reduced_by_long_division() {
        let mut state = 2;
        for _ in 0..2000 {
            let word = u128::from(crate::hash::splitmix(&mut state));
            let wide = word << 64 | u128::from(crate::hash::splitmix(&mut state));
            let mut left = wide;
            for i in (64..128).rev().filter(|i| wide != 0 || *i > 0) {
                if left >> i & 1 == 1 {
                    left ^= (1 << 64 | 0x1b) << (i - 64);
                }
            }
            // SAFETY: the portable one needs nothing.
            assert_eq!(u128::from(unsafe { Portable::reduce(wide) }), left, "{wide:#x}");
        }
    }
}
