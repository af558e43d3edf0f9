//! Size classes: up to 64 bytes in steps of 8, then four to each doubling, so that a block is at most 25 % (or 7 bytes)
//! larger than what was asked for.

/// Class of blocks that are a whole number of chunks.
pub(crate) const HUGE: u8 = 255;
/// Smallest block.
const BLOCK_MIN: u64 = 16;
/// Largest alignment a block can have.
pub(super) const ALIGN_MAX: u64 = 4096;

/// Blocks of one size, cut from a span of chunks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Class {
    pub(crate) size: u64,
    /// 2^64 / `size`, rounded up; 0 where the only block begins the span.
    reciprocal: u64,
    /// Chunks in a span.
    pub(crate) chunks: u32,
    /// Blocks in a span.
    pub(super) blocks: u32,
}

impl Class {
    /// Which block of a span holds its byte `within`.
    ///
    /// Multiplies where it would divide. Spans are at most 2^24 bytes and blocks 2^22: the rounding adds less than `within` / 2^64 < 2^-40
    /// to the quotient, which is an integer or at least 1 / `size` below the next.
    #[inline]
    pub(crate) fn block_at(&self, within: u64) -> u64 {
        ((u128::from(within) * u128::from(self.reciprocal)) >> 64) as u64
    }
}

/// The classes for one chunk size.
#[derive(Debug)]
pub(crate) struct Classes {
    table: Vec<Class>,
    chunk_bytes: u64,
}

impl Classes {
    pub(super) fn new(chunk_log2: u32) -> Self {
        let chunk_bytes = 1u64 << chunk_log2;
        let small = (2..=8).map(|n| n * 8);
        let larger = (6..chunk_log2 + 2).flat_map(|lg| (1..=4).map(move |k| (1 << lg) + (k << (lg - 2))));
        let table = small.chain(larger).map(|size| Self::span(size, chunk_bytes)).collect();
        Self { table, chunk_bytes }
    }

    /// The shortest span whose rest behind the last block is at most an eighth.
    fn span(size: u64, chunk_bytes: u64) -> Class {
        let fits = |k: &u64| k * chunk_bytes >= size && (k * chunk_bytes) % size <= k * chunk_bytes / 8;
        let chunks = (1..=16).find(fits).unwrap_or(16);
        let reciprocal = u64::MAX / size + 1;
        Class { size, reciprocal, chunks: chunks as u32, blocks: (chunks * chunk_bytes / size) as u32 }
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// The smallest class for `bytes` bytes at a multiple of `align`; `None` if that takes whole chunks.
    #[inline]
    pub(super) fn index(&self, bytes: u64, align: u64) -> Option<u8> {
        let bytes = bytes.max(BLOCK_MIN);
        let mut class = if bytes <= 64 {
            (bytes.div_ceil(8) - 2) as usize
        } else {
            let s = bytes - 1;
            let lg = s.ilog2();
            7 + (lg as usize - 6) * 4 + (s >> (lg - 2) & 3) as usize
        };
        while class < self.table.len() {
            if align <= 8 || self.table[class].size.is_multiple_of(align) {
                return Some(class as u8);
            }
            class += 1;
        }
        None
    }

    /// The class with this number; `span` gives the size of a huge one. `None` for a number that was never given out.
    #[inline]
    pub(crate) fn get(&self, class: u8, span: u32) -> Option<Class> {
        if class == HUGE {
            let size = u64::from(span) * self.chunk_bytes;
            return (span > 0).then_some(Class { size, reciprocal: 0, chunks: span, blocks: 1 });
        }
        self.table.get(class as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_gets_a_block_that_fits_and_wastes_little() {
        for chunk_log2 in [12, 14, 16, 18] {
            let classes = Classes::new(chunk_log2);
            let largest = 4u64 << chunk_log2;
            for bytes in 1..=largest {
                let class = classes.index(bytes, 8).expect("fits");
                let c = classes.get(class, 0).expect("exists");
                assert!(c.size >= bytes, "{bytes} in {}", c.size);
                let waste = c.size - bytes;
                assert!(waste * 4 <= c.size || waste <= 7 || bytes < 16, "{bytes} in {}: {waste} wasted", c.size);
                if class > 0 {
                    assert!(classes.get(class - 1, 0).expect("exists").size < bytes, "{bytes}: class too large");
                }
            }
            assert_eq!(classes.index(largest + 1, 8), None);
            for class in 0..classes.len() {
                let c = classes.get(class as u8, 0).expect("exists");
                let span = u64::from(c.chunks) << chunk_log2;
                assert!(c.blocks >= 1 && u64::from(c.blocks) * c.size <= span);
                assert!((span - u64::from(c.blocks) * c.size) * 8 <= span, "{c:?}");
            }
        }
    }

    #[test]
    fn alignment_is_a_divisor_of_the_block_size() {
        let classes = Classes::new(16);
        for align in [8, 16, 32, 64, 128, 4096] {
            for bytes in [1, 24, 40, 100, 1000, 5000] {
                let c = classes.get(classes.index(bytes, align).expect("fits"), 0).expect("exists");
                assert!(c.size.is_multiple_of(align) && c.size >= bytes);
            }
        }
    }
}
