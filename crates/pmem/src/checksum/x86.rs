//! `pclmulqdq` and, on 512 bits, `vpclmulqdq`.

use std::arch::x86_64::*;

use super::ops::{BLOCK, Ops, last_lane};

pub(super) struct Wide128;
pub(super) struct Wide512;

impl Ops for Wide128 {
    type Wide = __m128i;

    #[inline(always)]
    unsafe fn wide(bits: u128) -> __m128i {
        // SAFETY: as the trait says, here and below.
        unsafe { _mm_set_epi64x((bits >> 64) as i64, bits as i64) }
    }

    #[inline(always)]
    unsafe fn bits(wide: __m128i) -> u128 {
        // SAFETY: two plain types of 16 bytes.
        unsafe { std::mem::transmute(wide) }
    }

    #[inline(always)]
    unsafe fn xor(a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: as above.
        unsafe { _mm_xor_si128(a, b) }
    }

    #[inline(always)]
    unsafe fn mul(a: u64, b: u64) -> __m128i {
        // SAFETY: as above.
        unsafe { _mm_clmulepi64_si128::<0>(_mm_cvtsi64_si128(a as i64), _mm_cvtsi64_si128(b as i64)) }
    }

    #[inline(always)]
    unsafe fn window(a: __m128i, by: &[u64; 3]) -> u64 {
        // SAFETY: as above; both loads are of two of the three words.
        unsafe {
            let (first, last) = (_mm_loadu_si128(by.as_ptr().cast()), _mm_loadu_si128(by[1..].as_ptr().cast()));
            let low = _mm_xor_si128(_mm_clmulepi64_si128::<0x10>(a, last), _mm_clmulepi64_si128::<0x01>(a, last));
            let high = _mm_xor_si128(_mm_clmulepi64_si128::<0x10>(a, first), _mm_clmulepi64_si128::<0x01>(a, first));
            _mm_cvtsi128_si64(_mm_xor_si128(low, _mm_srli_si128::<8>(high))) as u64
        }
    }

    #[inline(always)]
    unsafe fn reduce(a: __m128i) -> u64 {
        // SAFETY: as above.
        unsafe {
            let by = _mm_set_epi64x(0, 0x1b); // x^64
            let once = _mm_clmulepi64_si128::<0x01>(a, by); // up to 68 bits
            let twice = _mm_clmulepi64_si128::<0x01>(once, by);
            _mm_cvtsi128_si64(_mm_xor_si128(a, _mm_xor_si128(once, twice))) as u64
        }
    }

    #[inline(always)]
    unsafe fn lanes(words: &[u64; BLOCK / 8], block: &[u8]) -> __m128i {
        let (mut at, len) = (0, block.len().min(BLOCK));
        let (text, key) = (block.as_ptr(), words.as_ptr().cast::<u8>());
        // SAFETY: each load ends at or before `len`, or where the words do; for the rest as above.
        unsafe {
            let product = |at: usize| {
                let m = _mm_xor_si128(_mm_loadu_si128(text.add(at).cast()), _mm_load_si128(key.add(at).cast()));
                _mm_clmulepi64_si128::<0x10>(m, m)
            };
            let mut sums = [_mm_setzero_si128(); 4];
            while at + 64 <= len {
                for (i, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm_xor_si128(*sum, product(at + 16 * i));
                }
                at += 64;
            }
            while at + 16 <= len {
                sums[0] = _mm_xor_si128(sums[0], product(at));
                at += 16;
            }
            if at < len {
                let [low, high] = last_lane(&block[..len]);
                let m = _mm_set_epi64x(high as i64, low as i64);
                let m = _mm_xor_si128(m, _mm_load_si128(key.add(at).cast()));
                sums[1] = _mm_xor_si128(sums[1], _mm_clmulepi64_si128::<0x10>(m, m));
            }
            _mm_xor_si128(_mm_xor_si128(sums[0], sums[1]), _mm_xor_si128(sums[2], sums[3]))
        }
    }
}

impl Wide512 {
    /// Product of the lanes of a line, or of its first ones, whose bytes are in `mask`.
    #[inline(always)]
    unsafe fn last_line(words: *const u8, text: *const u8, len: usize) -> __m512i {
        // SAFETY: masked loads touch the `len` bytes of text alone; the words go on to the line's end.
        unsafe {
            let m = _mm512_maskz_loadu_epi8(_bzhi_u64(!0, len as u32), text.cast());
            let lanes = _bzhi_u32(!0, 2 * len.div_ceil(16) as u32) as u8;
            let m = _mm512_maskz_xor_epi64(lanes, m, _mm512_load_si512(words.cast()));
            _mm512_clmulepi64_epi128::<0x10>(m, m)
        }
    }

    #[inline(always)]
    unsafe fn fold(a: __m512i) -> __m128i {
        // SAFETY: as above.
        unsafe {
            let half = _mm256_xor_si256(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64::<1>(a));
            _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256::<1>(half))
        }
    }

    #[inline(always)]
    unsafe fn lanes_of(words: &[u64; BLOCK / 8], block: &[u8], to: *mut u8, from: *const u8, lines: usize) -> __m128i {
        let len = block.len().min(BLOCK);
        if len <= 64 && lines == 0 {
            // SAFETY: as above; no line is stored.
            return unsafe { Wide128::lanes(words, block) };
        }
        let (text, key) = (block.as_ptr(), words.as_ptr().cast::<u8>());
        // SAFETY: each load ends at or before `len`, or where the words do; `from` and `to` are good for `lines`.
        unsafe {
            let product = |at: usize| {
                let m =
                    _mm512_xor_si512(_mm512_loadu_si512(text.add(at).cast()), _mm512_load_si512(key.add(at).cast()));
                _mm512_clmulepi64_epi128::<0x10>(m, m)
            };
            let (mut sum, mut other) = (_mm512_setzero_si512(), _mm512_setzero_si512());
            let mut at = 0;
            while at + 64 <= 64 * lines {
                _mm512_stream_si512(to.add(at).cast(), _mm512_loadu_si512(from.add(at).cast()));
                sum = _mm512_xor_si512(sum, product(at));
                at += 64;
            }
            while at + 128 <= len {
                sum = _mm512_xor_si512(sum, product(at));
                other = _mm512_xor_si512(other, product(at + 64));
                at += 128;
            }
            if at + 64 <= len {
                sum = _mm512_xor_si512(sum, product(at));
                at += 64;
            }
            if at < len {
                other = _mm512_xor_si512(other, Self::last_line(key.add(at), text.add(at), len - at));
            }
            Self::fold(_mm512_xor_si512(sum, other))
        }
    }
}

impl Ops for Wide512 {
    type Wide = __m128i;

    #[inline(always)]
    unsafe fn wide(bits: u128) -> __m128i {
        // SAFETY: the same instructions, and as above.
        unsafe { Wide128::wide(bits) }
    }

    #[inline(always)]
    unsafe fn bits(wide: __m128i) -> u128 {
        // SAFETY: as above.
        unsafe { Wide128::bits(wide) }
    }

    #[inline(always)]
    unsafe fn xor(a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: as above.
        unsafe { Wide128::xor(a, b) }
    }

    #[inline(always)]
    unsafe fn mul(a: u64, b: u64) -> __m128i {
        // SAFETY: as above.
        unsafe { Wide128::mul(a, b) }
    }

    #[inline(always)]
    unsafe fn window(a: __m128i, by: &[u64; 3]) -> u64 {
        // SAFETY: as above.
        unsafe { Wide128::window(a, by) }
    }

    #[inline(always)]
    unsafe fn reduce(a: __m128i) -> u64 {
        // SAFETY: as above.
        unsafe { Wide128::reduce(a) }
    }

    #[inline(always)]
    unsafe fn lanes(words: &[u64; BLOCK / 8], block: &[u8]) -> __m128i {
        // SAFETY: no line is stored; as above.
        unsafe { Self::lanes_of(words, block, std::ptr::null_mut(), std::ptr::null(), 0) }
    }

    #[inline(always)]
    unsafe fn lanes_storing(
        words: &[u64; BLOCK / 8],
        block: &[u8],
        to: *mut u8,
        from: *const u8,
        lines: usize,
    ) -> __m128i {
        // SAFETY: the caller's promises.
        unsafe { Self::lanes_of(words, block, to, from, lines) }
    }
}
