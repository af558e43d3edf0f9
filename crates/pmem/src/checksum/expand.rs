//! ChaCha12 as a pseudorandom function: what makes the words of every keyed checksum out of a pool's key.
//!
//! D. J. Bernstein, "ChaCha, a variant of Salsa20", 2008, with 12 rounds, the 64-bit counter and the
//! 64-bit nonce of that paper. Written out because the words are part of the format, and because a
//! crate of its own would be built unoptimised for the explorer, which opens pools by the million.

/// A block of the stream: eight words.
pub(super) type Block = [u64; 8];

const ROUNDS: usize = 12;
const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// Block `counter` of the stream named `nonce`, under a key of 256 bits.
pub(super) fn block(key: &[u64; 4], counter: u64, nonce: u64) -> Block {
    let halves = |word: u64| [word as u32, (word >> 32) as u32];
    let mut start = [0; 16];
    start[..4].copy_from_slice(&CONSTANTS);
    let words = key.iter().chain([&counter, &nonce]);
    for (to, word) in start[4..].chunks_exact_mut(2).zip(words) {
        to.copy_from_slice(&halves(*word));
    }
    let mut state = start;
    for _ in 0..ROUNDS / 2 {
        for column in 0..4 {
            quarter(&mut state, column, column + 4, column + 8, column + 12);
        }
        for diagonal in 0..4 {
            let turned = |by: usize| by * 4 + (diagonal + by) % 4;
            quarter(&mut state, diagonal, turned(1), turned(2), turned(3));
        }
    }
    std::array::from_fn(|i| {
        let word = |at: usize| u64::from(state[at].wrapping_add(start[at]));
        word(2 * i) | word(2 * i + 1) << 32
    })
}

#[inline(always)]
fn quarter(x: &mut [u32; 16], a: usize, b: usize, c: usize, d: usize) {
    x[a] = x[a].wrapping_add(x[b]);
    x[d] = (x[d] ^ x[a]).rotate_left(16);
    x[c] = x[c].wrapping_add(x[d]);
    x[b] = (x[b] ^ x[c]).rotate_left(12);
    x[a] = x[a].wrapping_add(x[b]);
    x[d] = (x[d] ^ x[a]).rotate_left(8);
    x[c] = x[c].wrapping_add(x[d]);
    x[b] = (x[b] ^ x[c]).rotate_left(7);
}

#[cfg(test)]
mod tests {
    use super::block;

    /// J. Strömbergson, draft-strombergson-chacha-test-vectors-01, TC1: 12 rounds, 256 bits of key.
    #[test]
    fn the_first_block_is_that_of_the_published_test_vectors() {
        let bytes = b"\x9b\xf4\x9a\x6a\x07\x55\xf9\x53\x81\x1f\xce\x12\x5f\x26\x83\xd5\
                      \x04\x29\xc3\xbb\x49\xe0\x74\x14\x7e\x00\x89\xa5\x2e\xae\x15\x5f";
        let found = block(&[0; 4], 0, 0);
        for (word, bytes) in found.iter().zip(bytes.chunks_exact(8)) {
            assert_eq!(word.to_le_bytes(), bytes);
        }
    }

    /// As the crate `rand_chacha` 0.3 has it: where key, counter and nonce stand.
    #[test]
    fn counter_and_nonce_are_64_bits_each() {
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908, 0x1716_1514_1312_1110, 0x1f1e_1d1c_1b1a_1918];
        let found = block(&key, 0x1122_3344_5566_7788, 0xfedc_ba98_7654_3210);
        assert_eq!(found, EXPECTED);
    }
    const EXPECTED: [u64; 8] = [
        0xab40_03ca_d30a_6f2c,
        0x5a0f_073f_320a_2965,
        0xd2a2_3f06_1313_0f93,
        0x00c8_c8f8_2ffb_4496,
        0x95f4_0270_a8ed_65a0,
        0x24ba_b4d1_7981_bf26,
        0x3b8d_012e_c393_5150,
        0xeafd_bcca_cc3a_32d2,
    ];
}
