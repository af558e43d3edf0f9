//! CRC-32C (Castagnoli): with the processor's instruction where it has one, by tables elsewhere.

/// Reflected polynomial.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// `TABLES[k][b]`: what the byte `b` makes of the sum when `k` zero bytes follow it.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = (sum >> 1) ^ (POLYNOMIAL & (sum & 1).wrapping_neg());
            bit += 1;
        }
        tables[0][byte] = sum;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// The state behind `bytes`, from the state before them; neither is inverted.
pub(crate) fn update(state: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instruction.
        return unsafe { by_instruction(state, bytes) };
    }
    by_tables(state, bytes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn by_instruction(state: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(u64::from(state), |sum, word| _mm_crc32_u64(sum, u64::from_le_bytes(*word)));
    rest.iter().fold(sum as u32, |sum, byte| _mm_crc32_u8(sum, *byte))
}

fn by_tables(state: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    let of_word = |sum: u32, word: &[u8; 8]| {
        let word = u64::from_le_bytes(*word) ^ u64::from(sum);
        (0..8).fold(0, |sum, at| sum ^ TABLES[7 - at][(word >> (8 * at) & 0xff) as usize])
    };
    let sum = words.iter().fold(state, of_word);
    rest.iter().fold(sum, |sum, byte| (sum >> 8) ^ TABLES[0][((sum ^ u32::from(*byte)) & 0xff) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One bit at a time.
    fn plainly(state: u32, bytes: &[u8]) -> u32 {
        bytes.iter().fold(state, |sum, byte| {
            (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (POLYNOMIAL & (sum & 1).wrapping_neg()))
        })
    }

    #[test]
    fn all_ways_are_one_function() {
        let bytes: Vec<u8> = (0..600_u32).map(|i| (i * i % 251) as u8).collect();
        for from in 0..9 {
            for len in (0..70).chain([255, 256, 257, 591]) {
                let (state, part) = (!(from as u32 * 77), &bytes[from..from + len]);
                let expected = plainly(state, part);
                assert_eq!(by_tables(state, part), expected, "{from} {len}");
                assert_eq!(update(state, part), expected, "{from} {len}");
            }
        }
    }
}
