//! The arithmetic that CLNH is written over, which processors do in different ways.

/// Bytes of text under one use of the words.
pub(super) const BLOCK: usize = 1024;
const LANE: usize = 16;

/// Carry-less arithmetic: polynomials over GF(2), of degree below 128 in a `Wide`.
///
/// # Safety
/// Of all functions: the processor has the instructions.
pub(super) trait Ops {
    type Wide: Copy;
    unsafe fn wide(bits: u128) -> Self::Wide;
    unsafe fn bits(wide: Self::Wide) -> u128;
    unsafe fn xor(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    /// The product of two words.
    unsafe fn mul(a: u64, b: u64) -> Self::Wide;
    /// Bits 128 to 191 of the product with three words, the lowest first.
    unsafe fn window(a: Self::Wide, by: &[u64; 3]) -> u64;
    /// Modulo x^64 + x^4 + x^3 + x + 1.
    unsafe fn reduce(a: Self::Wide) -> u64;
    /// The products of a block's lanes, each word with its word of the key added, summed up. At most
    /// [`BLOCK`] bytes; zeros up to the lane's end.
    unsafe fn lanes(words: &[u64; BLOCK / 8], block: &[u8]) -> Self::Wide;

    /// As `lanes`, and the `lines` lines at `from` are stored at `to`, which starts on a line.
    ///
    /// # Safety
    /// `from` is readable, `to` writable for so many lines, and nothing else uses these.
    #[inline(always)]
    unsafe fn lanes_storing(
        words: &[u64; BLOCK / 8],
        block: &[u8],
        to: *mut u8,
        from: *const u8,
        lines: usize,
    ) -> Self::Wide {
        // SAFETY: the caller's promises.
        unsafe {
            let sum = Self::lanes(words, block);
            crate::cpu::stream_lines(crate::cpu::flush_with(), to, from, lines * 64);
            sum
        }
    }
}

/// The last lane of a block, of 1 to 15 bytes, as two words.
#[inline(always)]
pub(super) fn last_lane(block: &[u8]) -> [u64; 2] {
    let len = block.len() % LANE;
    let bits = if let Some(last) = block.last_chunk::<16>() {
        u128::from_le_bytes(*last) >> (8 * (16 - len))
    } else if let (Some(first), Some(last)) = (block.first_chunk::<8>(), block.last_chunk::<8>()) {
        let high = u64::from_le_bytes(*last).checked_shr(8 * (16 - len as u32)).unwrap_or(0);
        u128::from(u64::from_le_bytes(*first)) | u128::from(high) << 64
    } else {
        u128::from(block.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
    };
    [bits as u64, (bits >> 64) as u64]
}
