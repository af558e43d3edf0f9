//! `pmull` and `pmull2`.

use std::arch::aarch64::*;

use super::ops::{BLOCK, Ops, last_lane};

pub(super) struct Wide128;

impl Ops for Wide128 {
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
        // SAFETY: as the trait says, here and below.
        unsafe { vmull_p64(a, b) }
    }

    #[inline(always)]
    unsafe fn window(a: u128, by: &[u64; 3]) -> u64 {
        let (low, high) = (a as u64, (a >> 64) as u64);
        // SAFETY: as above.
        unsafe {
            let of_low = vmull_p64(low, by[2]) ^ vmull_p64(high, by[1]);
            let of_high = vmull_p64(low, by[1]) ^ vmull_p64(high, by[0]);
            of_low as u64 ^ (of_high >> 64) as u64
        }
    }

    #[inline(always)]
    unsafe fn reduce(a: u128) -> u64 {
        // SAFETY: as above.
        unsafe {
            let once = vmull_p64((a >> 64) as u64, 0x1b); // x^64; up to 68 bits
            let twice = vmull_p64((once >> 64) as u64, 0x1b);
            (a ^ once ^ twice) as u64
        }
    }

    #[inline(always)]
    unsafe fn lanes(words: &[u64; BLOCK / 8], block: &[u8]) -> u128 {
        let (lanes, rest) = block.as_chunks::<16>();
        let (keys, _) = words.as_chunks::<2>();
        // SAFETY: as above; each load is of 16 bytes.
        unsafe {
            let mut sums = [vdupq_n_u64(0); 2];
            for (i, (lane, key)) in lanes.iter().zip(keys).enumerate() {
                let m = veorq_u64(vreinterpretq_u64_u8(vld1q_u8(lane.as_ptr())), vld1q_u64(key.as_ptr()));
                let product = vmull_p64(vgetq_lane_u64::<0>(m), vgetq_lane_u64::<1>(m));
                sums[i % 2] = veorq_u64(sums[i % 2], vreinterpretq_u64_p128(product));
            }
            let mut sum: u128 = vreinterpretq_p128_u64(veorq_u64(sums[0], sums[1]));
            if !rest.is_empty() {
                let (lane, key) = (last_lane(block), &keys[lanes.len()]);
                sum ^= vmull_p64(lane[0] ^ key[0], lane[1] ^ key[1]);
            }
            sum
        }
    }
}
