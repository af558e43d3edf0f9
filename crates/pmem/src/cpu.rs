//! Write-back instructions: which the processor has, and how they are used.
//!
//! *flush* starts the write-back of a line, *drain* waits for the lines this thread flushed. On x86-64 these are
//! `clwb` (or its older forms) and `sfence`; on aarch64 `dc cvap` (or `cvac`) and `dsb ish`.

use std::sync::OnceLock;

/// Bytes in a cache line, the unit of flush.
pub const LINE: u64 = 64;

/// Bytes in a word, the only unit the media writes atomically.
pub const WORD: u64 = 8;

/// How lines are written back on this processor.
///
/// ```
/// // On x86-64: clwb, clflushopt or clflush, whichever is the first this processor has.
/// println!("lines are written back with {}", pmem::flush_with());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushWith {
    /// `clwb`: write back, keep in the cache. Ordered by `sfence` only.
    Clwb,
    /// `clflushopt`: write back and evict. Ordered by `sfence` only.
    ClflushOpt,
    /// `clflush`: write back and evict, serialised.
    Clflush,
    /// aarch64 `dc cvap`: clean to the point of persistence.
    Cvap,
    /// aarch64 `dc cvac`: clean to the point of coherency.
    Cvac,
}

impl std::fmt::Display for FlushWith {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Clwb => "clwb",
            Self::ClflushOpt => "clflushopt",
            Self::Clflush => "clflush",
            Self::Cvap => "dc cvap",
            Self::Cvac => "dc cvac",
        })
    }
}

/// The best instruction this processor has, found once.
pub fn flush_with() -> FlushWith {
    static FOUND: OnceLock<FlushWith> = OnceLock::new();
    *FOUND.get_or_init(detect)
}

#[cfg(target_arch = "x86_64")]
fn detect() -> FlushWith {
    let highest = std::arch::x86_64::__cpuid(0).eax;
    if highest >= 7 {
        let ebx = std::arch::x86_64::__cpuid_count(7, 0).ebx;
        if ebx & 1 << 24 != 0 {
            return FlushWith::Clwb;
        }
        if ebx & 1 << 23 != 0 {
            return FlushWith::ClflushOpt;
        }
    }
    FlushWith::Clflush
}

#[cfg(target_arch = "aarch64")]
fn detect() -> FlushWith {
    if std::arch::is_aarch64_feature_detected!("dpb") { FlushWith::Cvap } else { FlushWith::Cvac }
}

/// Number of lines that `[addr, addr + len)` touches.
///
/// ```
/// assert_eq!(pmem::lines(60, 8), 2);
/// ```
#[inline]
pub fn lines(addr: u64, len: u64) -> u64 {
    if len == 0 { 0 } else { (addr + len - 1) / LINE - addr / LINE + 1 }
}

/// Starts the write-back of every line of the range.
///
/// # Safety
/// `[ptr, ptr + len)` is mapped.
#[inline]
pub(crate) unsafe fn flush(with: FlushWith, ptr: *const u8, len: u64) {
    let mut line = (ptr as u64) & !(LINE - 1);
    let end = ptr as u64 + len;
    while line < end {
        // SAFETY: every line of the range contains a mapped byte, says the caller; write-back changes no byte.
        unsafe { flush_line(with, line) };
        line += LINE;
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn flush_line(with: FlushWith, line: u64) {
    use std::arch::asm;
    // The asm blocks may read all memory (no `nomem`): stores before them are not moved behind them.
    match with {
        // SAFETY: the instruction was found by cpuid and the address is mapped, says the caller.
        FlushWith::Clwb => unsafe { asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)) },
        // SAFETY: as above.
        FlushWith::ClflushOpt => unsafe { asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags)) },
        // SAFETY: as above; every x86-64 has clflush.
        _ => unsafe { asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags)) },
    }
}

#[cfg(target_arch = "aarch64")]
#[inline]
unsafe fn flush_line(with: FlushWith, line: u64) {
    use std::arch::asm;
    match with {
        // `dc cvap`, by encoding: assemblers know the name only with the extension switched on.
        // SAFETY: the feature was detected and the address is mapped, says the caller.
        FlushWith::Cvap => unsafe { asm!("sys #3, c7, c12, #1, {}", in(reg) line, options(nostack, preserves_flags)) },
        // SAFETY: as above; every aarch64 has `dc cvac`.
        _ => unsafe { asm!("dc cvac, {}", in(reg) line, options(nostack, preserves_flags)) },
    }
}

/// Asks the processor for the line of an address, while something else is still to be done before it is used. A hint: any address will do.
///
/// ```
/// let table = vec![0_u64; 1 << 20];
/// pmem::prefetch((&raw const table[12_345]).cast());
/// ```
#[inline]
pub fn prefetch(at: *const u8) {
    #[cfg(miri)]
    let _ = at;
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint, which never faults.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) at, options(nostack, readonly, preserves_flags));
    }
}

/// As [`prefetch`], of a line that is about to be changed: other processors give it up now instead of then.
///
/// ```
/// let counters = vec![0_u64; 1 << 20];
/// pmem::prefetch_to_write((&raw const counters[12_345]).cast());
/// ```
#[inline]
pub fn prefetch_to_write(at: *const u8) {
    #[cfg(miri)]
    let _ = at;
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint, which never faults; a processor without it takes it for no operation.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, readonly, preserves_flags));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a hint, which never faults.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) at, options(nostack, readonly, preserves_flags));
    }
}

/// Waits until what this thread flushed, or stored without the cache, has left the processor.
#[inline]
pub(crate) fn drain() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: sfence has no operand.
    unsafe {
        std::arch::asm!("sfence", options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier has no operand.
    unsafe {
        std::arch::asm!("dsb ish", options(nostack, preserves_flags));
    }
}

/// Copies past the cache; returns how many bytes went that way. The rest, at most one partial line at each end, was stored
/// ordinarily and flushed `with`. Persistent after the next [`drain`].
///
/// # Safety
/// `src` is readable and `dst` writable for `len` bytes, they do not overlap, and nothing else accesses `dst`.
#[inline]
pub(crate) unsafe fn copy_nt(with: FlushWith, dst: *mut u8, src: *const u8, len: usize) -> usize {
    let head = (dst as usize).wrapping_neg() % LINE as usize;
    if len < head + LINE as usize {
        // SAFETY: the caller's promise, for the whole range.
        unsafe {
            dst.copy_from_nonoverlapping(src, len);
            flush(with, dst, len as u64);
        }
        return 0;
    }
    let body = (len - head) & !(LINE as usize - 1);
    let tail = len - head - body;
    // SAFETY: head + body + tail = len, so each part lies within the caller's ranges; body starts on a line.
    unsafe {
        if head > 0 {
            dst.copy_from_nonoverlapping(src, head);
            flush(with, dst, head as u64);
        }
        stream_lines(with, dst.add(head), src.add(head), body);
        if tail > 0 {
            dst.add(head + body).copy_from_nonoverlapping(src.add(head + body), tail);
            flush(with, dst.add(head + body), tail as u64);
        }
    }
    body
}

/// Stores `head` and `body`, one behind the other, and zeros up to the end of the last line, past the cache; returns how many bytes went that way. The
/// rest, at most one partial line at the beginning, was stored ordinarily and flushed `with`. Persistent after the next [`drain`].
///
/// # Safety
/// `dst` is writable up to the end of that line, overlaps neither, and nothing else accesses those bytes.
#[inline]
pub(crate) unsafe fn join_nt(with: FlushWith, dst: *mut u8, head: &[u8], body: &[u8]) -> usize {
    const LINE_BYTES: usize = LINE as usize;
    let (lead, total) = ((dst as usize).wrapping_neg() % LINE_BYTES, head.len() + body.len());
    let mut line = [0u8; LINE_BYTES];
    let mut at = 0;
    if lead > 0 {
        gather(&mut line[..lead], head, body, 0);
        // SAFETY: `lead` bytes end with the line that dst is in.
        unsafe {
            dst.copy_from_nonoverlapping(line.as_ptr(), lead);
            flush(with, dst, lead as u64);
        }
        at = lead;
    }
    let streamed_from = at;
    while at < total {
        // Lines that lie wholly in one of them leave from where they are.
        let from = if at < head.len() { &head[at..] } else { &body[at - head.len()..] };
        let whole = from.len() & !(LINE_BYTES - 1);
        if whole > 0 {
            // SAFETY: at + whole <= total, and `from` has as many; dst + at starts a line.
            unsafe { stream_lines(with, dst.add(at), from.as_ptr(), whole) };
            at += whole;
        } else {
            gather(&mut line, head, body, at);
            // SAFETY: the last of these lines ends where the caller's promise does.
            unsafe { stream_lines(with, dst.add(at), line.as_ptr(), LINE_BYTES) };
            at += LINE_BYTES;
        }
    }
    at - streamed_from
}

/// The bytes of `head` and `body`, joined, from `at` on, and zeros behind them.
#[inline]
fn gather(to: &mut [u8], head: &[u8], body: &[u8], at: usize) {
    to.fill(0);
    let from_head = head.len().saturating_sub(at).min(to.len());
    if from_head > 0 {
        to[..from_head].copy_from_slice(&head[at..at + from_head]);
    }
    let body_at = (at + from_head).saturating_sub(head.len()).min(body.len());
    let from_body = (to.len() - from_head).min(body.len() - body_at);
    to[from_head..from_head + from_body].copy_from_slice(&body[body_at..body_at + from_body]);
}

/// Whole lines, `dst` aligned to one.
///
/// # Safety
/// As [`copy_nt`].
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) unsafe fn stream_lines(_with: FlushWith, dst: *mut u8, src: *const u8, len: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    // The stores of a line leave together through one write-combining buffer: what wider ones save is instructions, a quarter of those
    // of a transaction that overwrites 1 KiB.
    if cfg!(not(miri)) && len > LINE as usize && std::arch::is_x86_feature_detected!("avx512f") {
        // SAFETY: the caller's promise, and the processor has the instructions.
        return unsafe { stream_wide(dst, src, len) };
    }
    let mut at = 0;
    while at < len {
        // SAFETY: at + 16 <= len, a multiple of 64; dst is aligned to 64, says the caller.
        unsafe { _mm_stream_si128(dst.add(at).cast::<__m128i>(), _mm_loadu_si128(src.add(at).cast())) };
        at += 16;
    }
}

/// The same by one store for each line.
///
/// # Safety
/// As [`copy_nt`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn stream_wide(dst: *mut u8, src: *const u8, len: usize) {
    use std::arch::x86_64::{_mm512_loadu_si512, _mm512_stream_si512};
    let mut at = 0;
    while at < len {
        // SAFETY: at + 64 <= len, a multiple of 64; dst is aligned to 64, says the caller.
        unsafe { _mm512_stream_si512(dst.add(at).cast(), _mm512_loadu_si512(src.add(at).cast())) };
        at += LINE as usize;
    }
}

#[cfg(target_arch = "aarch64")]
#[inline]
pub(crate) unsafe fn stream_lines(with: FlushWith, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        dst.copy_from_nonoverlapping(src, len);
        flush(with, dst, len as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_range() {
        assert_eq!(lines(0, 0), 0);
        assert_eq!(lines(0, 1), 1);
        assert_eq!(lines(0, 64), 1);
        assert_eq!(lines(63, 2), 2);
        assert_eq!(lines(65, 128), 3);
    }

    #[test]
    fn join_nt_joins_every_alignment_and_length() {
        let src: Vec<u8> = (0..400u32).map(|i| i as u8 | 1).collect();
        for at in (0..64).step_by(8) {
            for (head, body) in [
                (24, 0),
                (24, 1),
                (24, 39),
                (24, 40),
                (24, 41),
                (24, 300),
                (0, 64),
                (64, 64),
                (100, 7),
                (333, 0),
                (200, 150),
            ] {
                let mut memory = vec![0xaau8; 1024];
                let start = memory.as_ptr().align_offset(64) + at;
                let end = (at + head + body).next_multiple_of(64) - at + start;
                let (head, body) = (&src[..head], &src[head..head + body]);
                // SAFETY: up to `end`, and the vectors are distinct.
                let streamed = unsafe { join_nt(flush_with(), memory.as_mut_ptr().add(start), head, body) };
                drain();
                assert!(memory[..start].iter().chain(&memory[end..]).all(|&b| b == 0xaa));
                let len = head.len() + body.len();
                assert_eq!(memory[start..start + len], src[..len], "{at} {len}");
                assert!(memory[start + len..end].iter().all(|&b| b == 0));
                assert_eq!(streamed, end - start - at.wrapping_neg() % 64);
            }
        }
    }

    #[test]
    fn copy_nt_copies_every_alignment_and_length() {
        let src: Vec<u8> = (0..400u32).map(|i| i as u8 ^ 0x5a).collect();
        for at in 0..66 {
            for len in [0, 1, 7, 8, 63, 64, 65, 127, 128, 129, 300] {
                let mut dst = vec![0u8; 512];
                // SAFETY: at + len < 512, and the vectors are distinct.
                unsafe { copy_nt(flush_with(), dst.as_mut_ptr().add(at), src.as_ptr(), len) };
                drain();
                assert!(dst[..at].iter().all(|&b| b == 0));
                assert_eq!(dst[at..at + len], src[..len]);
                assert!(dst[at + len..].iter().all(|&b| b == 0));
            }
        }
    }
}
