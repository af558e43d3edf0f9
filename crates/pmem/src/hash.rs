//! CRC-32C, which tells damaged records from whole ones. What decides whether something was committed is
//! a [`ChecksumKey`](crate::ChecksumKey)'s.

/// CRC-32C of the parts, one behind the other.
///
/// ```
/// assert_eq!(pmem::crc32c(&[b"123456789"]), 0xe306_9283);
/// assert_eq!(pmem::crc32c(&[b"1234", b"56789"]), 0xe306_9283);
/// ```
pub fn crc32c(parts: &[&[u8]]) -> u32 {
    !parts.iter().fold(!0, |state, part| crate::crc::update(state, part))
}

/// One step of SplitMix64 (Steele, Lea, Flood 2014): a bijection with good avalanche.
pub(crate) fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_is_the_castagnoli_one() {
        assert_eq!(crc32c(&[b"123456789"]), 0xe306_9283);
        assert_eq!(crc32c(&[b"1234", b"", b"56789"]), 0xe306_9283);
        // RFC 3720, B.4.
        assert_eq!(crc32c(&[&[0; 32]]), 0x8a91_36aa);
        assert_eq!(crc32c(&[&[0xff; 32]]), 0x62a8_ab43);
    }
}
