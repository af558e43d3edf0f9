//! CLNH and Horner's rule: a keyed checksum with a proven bound. `docs/checksums.md` has the definition,
//! the theorem and its proof.
//!
//! One definition, written once over [`Ops`]; processors differ in how they multiply. All of them
//! give the same bits.

use super::expand;
use super::ops::{BLOCK, Ops};

/// What the checksums of all places of a pool have in common.
#[repr(C, align(64))]
pub(super) struct Shared {
    /// Of CLNH: two for each lane of a block.
    words: [u64; BLOCK / 8],
    /// Where the polynomial over the blocks is evaluated.
    point: u64,
    /// The key that everything here is expanded from, and every place's own words are.
    key: [u64; 4],
    level: Level,
}

/// What is a place's own.
#[derive(Clone)]
#[repr(C)]
pub(super) struct Own {
    /// Makes 64 bits of 128.
    finish: [u64; 3],
    pad: u64,
    /// Where the polynomial over a list of checksums is evaluated.
    list: u64,
    /// Of the words that are bound to a text.
    bind: [u64; 3],
}

/// Which instructions a processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Portable,
    /// `pclmulqdq`; `pmull` on aarch64.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    Wide128,
    /// `vpclmulqdq` on 512 bits.
    #[cfg(target_arch = "x86_64")]
    Wide512,
}

impl Level {
    /// The best there is. Miri knows no such instructions.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn found() -> Self {
        use std::arch::is_x86_feature_detected as has;
        let narrow = has!("pclmulqdq") && has!("sse4.1") && has!("sse2");
        let wide = has!("avx512f") && has!("avx512bw") && has!("avx512vl") && has!("avx512dq");
        match narrow {
            true if wide && has!("vpclmulqdq") && has!("bmi2") => Self::Wide512,
            true => Self::Wide128,
            false => Self::Portable,
        }
    }

    #[cfg(all(target_arch = "aarch64", not(miri)))]
    fn found() -> Self {
        use std::arch::is_aarch64_feature_detected as has;
        if has!("aes") && has!("neon") { Self::Wide128 } else { Self::Portable }
    }

    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    fn found() -> Self {
        Self::Portable
    }
}

impl Shared {
    pub(super) fn new(key: [u64; 4]) -> Self {
        let mut words = [0; BLOCK / 8];
        for (counter, to) in (0..).zip(words.chunks_exact_mut(8)) {
            to.copy_from_slice(&expand::block(&key, counter, 0));
        }
        let point = expand::block(&key, words.len() as u64 / 8, 0)[0];
        Self { words, point, key, level: Level::found() }
    }

    /// The words of the place called `place`, for things of kind `of`, which is not 0.
    pub(super) fn own(&self, place: u64, of: u64) -> Own {
        let [a, b, c, pad, list, bind @ ..] = expand::block(&self.key, place, of);
        Own { finish: [a, b, c], pad, list, bind }
    }

    /// A key of its own for whatever is at `place`.
    pub(super) fn derived(&self, place: u64, of: u64) -> [u64; 4] {
        let [a, b, c, d, ..] = expand::block(&self.key, place, of);
        [a, b, c, d]
    }

    /// For tests: the same with other instructions.
    #[cfg(test)]
    pub(super) fn at_level(&self, level: Level) -> Self {
        Self { level, ..*self }
    }

    /// For tests: the same with another key for the lanes.
    #[cfg(test)]
    pub(super) fn with_words(&self, words: [u64; BLOCK / 8]) -> Self {
        Self { words, ..*self }
    }

    #[cfg(test)]
    pub(super) fn levels(&self) -> Vec<Level> {
        match self.level {
            Level::Portable => vec![Level::Portable],
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            Level::Wide128 => vec![Level::Portable, Level::Wide128],
            #[cfg(target_arch = "x86_64")]
            Level::Wide512 => vec![Level::Portable, Level::Wide128, Level::Wide512],
        }
    }
}

/// The text's sum: what is left to do with it needs none of its bytes.
///
/// # Safety
/// As [`Ops`].
#[inline(always)]
unsafe fn sum<O: Ops>(shared: &Shared, text: &[u8]) -> O::Wide {
    let (mut block, mut rest) = text.split_at(text.len().min(BLOCK));
    let mut before = text.len() as u64;
    loop {
        // SAFETY: the caller's promise; `split_at` bounds the block.
        unsafe {
            let sum = O::xor(O::lanes(&shared.words, block), O::mul(before, shared.point));
            if rest.is_empty() {
                return sum;
            }
            before = O::reduce(sum);
        }
        (block, rest) = rest.split_at(rest.len().min(BLOCK));
    }
}

/// # Safety
/// As [`Ops`].
#[inline(always)]
unsafe fn finish<O: Ops>(own: &Own, sum: O::Wide) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { O::window(sum, &own.finish) ^ own.pad }
}

/// # Safety
/// As [`Ops`].
#[inline(always)]
unsafe fn bound<O: Ops>(own: &Own, sum: O::Wide, [a, b, c]: [u64; 3]) -> u64 {
    let [of_a, of_b, of_c] = own.bind;
    // SAFETY: the caller's promise.
    unsafe {
        let words = O::xor(O::mul(a ^ of_a, b ^ of_b), O::mul(c, of_c));
        finish::<O>(own, O::xor(sum, words))
    }
}

/// The functions below, for the instructions of one level.
macro_rules! entries {
    ($ops:ty, $($feature:meta)?) => {
        $(#[target_feature($feature)])?
        pub(super) fn checksum(shared: &Shared, own: &Own, text: &[u8]) -> u64 {
            // SAFETY: `checksum` is called where these instructions are.
            unsafe { super::finish::<$ops>(own, super::sum::<$ops>(shared, text)) }
        }

        $(#[target_feature($feature)])?
        pub(super) fn sum(shared: &Shared, text: &[u8]) -> u128 {
            // SAFETY: as above.
            unsafe { <$ops>::bits(super::sum::<$ops>(shared, text)) }
        }

        $(#[target_feature($feature)])?
        pub(super) fn finish(own: &Own, sum: u128) -> u64 {
            // SAFETY: as above.
            unsafe { super::finish::<$ops>(own, <$ops>::wide(sum)) }
        }

        $(#[target_feature($feature)])?
        pub(super) fn bound(own: &Own, sum: u128, words: [u64; 3]) -> u64 {
            // SAFETY: as above.
            unsafe { super::bound::<$ops>(own, <$ops>::wide(sum), words) }
        }

        $(#[target_feature($feature)])?
        pub(super) fn list(own: &Own, before: u64, next: u64) -> u64 {
            // SAFETY: as above.
            unsafe { <$ops>::reduce(<$ops>::mul(before, own.list)) ^ next }
        }

        $(#[target_feature($feature)])?
        pub(super) fn block(shared: &Shared, before: u64, block: &[u8]) -> u128 {
            // SAFETY: as above; not more than a block, says the caller.
            unsafe {
                let lanes = <$ops>::lanes(&shared.words, block);
                <$ops>::bits(<$ops>::xor(lanes, <$ops>::mul(before, shared.point)))
            }
        }

        $(#[target_feature($feature)])?
        pub(super) fn reduce(sum: u128) -> u64 {
            // SAFETY: as above.
            unsafe { <$ops>::reduce(<$ops>::wide(sum)) }
        }

        /// # Safety
        /// As [`super::sum_storing`].
        $(#[target_feature($feature)])?
        pub(super) unsafe fn sum_storing(shared: &Shared, text: &[u8], to: *mut u8, skip: usize) -> u128 {
            // SAFETY: the caller's promise, and as above.
            unsafe { <$ops>::bits(super::storing::<$ops>(shared, text, to, skip)) }
        }

        /// # Safety
        /// As [`super::sum_storing_behind`].
        $(#[target_feature($feature)])?
        pub(super) unsafe fn behind(
            shared: &Shared,
            first: (u64, &[u8; super::BLOCK]),
            body: &[u8],
            to: *mut u8,
            in_first: usize,
        ) -> u128 {
            // SAFETY: the caller's promise, and as above.
            unsafe { <$ops>::bits(super::behind::<$ops>(shared, first, body, to, in_first)) }
        }
    };
}

mod portable {
    use super::{Ops, Own, Shared};
    entries!(crate::checksum::portable::Portable,);
}
#[cfg(target_arch = "x86_64")]
mod wide_128 {
    use super::{Ops, Own, Shared};
    entries!(crate::checksum::x86::Wide128, enable = "pclmulqdq,sse4.1");
}
#[cfg(target_arch = "x86_64")]
mod wide_512 {
    use super::{Ops, Own, Shared};
    entries!(
        crate::checksum::x86::Wide512,
        enable = "avx512f,avx512bw,avx512dq,avx512vl,vpclmulqdq,pclmulqdq,sse4.1,bmi2"
    );
}
#[cfg(target_arch = "aarch64")]
mod wide_128 {
    use super::{Ops, Own, Shared};
    entries!(crate::checksum::arm::Wide128, enable = "neon,aes");
}

/// Calls the function of the level.
macro_rules! of_level {
    ($level:expr, $name:ident($($argument:expr),*)) => {
        match $level {
            #[allow(unused_unsafe, reason = "of one function")]
            // SAFETY: needs nothing.
            Level::Portable => unsafe { portable::$name($($argument),*) },
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            // SAFETY: `Level::found` saw that the processor has what it needs.
            Level::Wide128 => unsafe { wide_128::$name($($argument),*) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Level::Wide512 => unsafe { wide_512::$name($($argument),*) },
        }
    };
}

impl Shared {
    #[inline]
    pub(super) fn checksum(&self, own: &Own, text: &[u8]) -> u64 {
        of_level!(self.level, checksum(self, own, text))
    }

    #[inline]
    pub(super) fn sum(&self, text: &[u8]) -> u128 {
        of_level!(self.level, sum(self, text))
    }

    #[inline]
    pub(super) fn finish(&self, own: &Own, sum: u128) -> u64 {
        of_level!(self.level, finish(own, sum))
    }

    #[inline]
    pub(super) fn bound(&self, own: &Own, sum: u128, words: [u64; 3]) -> u64 {
        of_level!(self.level, bound(own, sum, words))
    }

    /// The value of a list, from that of the list before its last one on.
    #[inline]
    pub(super) fn list(&self, own: &Own, before: u64, next: u64) -> u64 {
        of_level!(self.level, list(own, before, next))
    }

    /// The sum of a text in parts, `len` bytes together.
    pub(super) fn sum_parts<'a>(&self, len: usize, parts: impl Iterator<Item = &'a [u8]>) -> u128 {
        let (mut joined, mut filled) = ([0; BLOCK], 0);
        let (mut before, mut left) = (len as u64, len);
        let mut last = 0;
        let mut take = |block: &[u8]| {
            last = of_level!(self.level, block(self, before, block));
            left -= block.len();
            if left > 0 {
                before = of_level!(self.level, reduce(last));
            }
        };
        for mut part in parts {
            if filled > 0 || part.len() < BLOCK {
                let (first, rest) = part.split_at(part.len().min(BLOCK - filled));
                joined[filled..filled + first.len()].copy_from_slice(first);
                (filled, part) = (filled + first.len(), rest);
                if filled == BLOCK {
                    take(&joined);
                    filled = 0;
                }
            }
            while part.len() >= BLOCK {
                let (block, rest) = part.split_at(BLOCK);
                take(block);
                part = rest;
            }
            if !part.is_empty() {
                // Nothing is before it: the loop above would not have ended with this one otherwise.
                joined[..part.len()].copy_from_slice(part);
                filled = part.len();
            }
        }
        if filled > 0 {
            take(&joined[..filled]);
        }
        last
    }

    /// The sum of `text`; and its bytes from `skip` on, whole lines of them, have been stored past the
    /// cache from `to` on, which starts on a line. Returns how many bytes that are, too.
    ///
    /// # Safety
    /// `to` is writable for that many bytes, is no part of `text`, and nothing else uses these bytes.
    #[inline]
    pub(crate) unsafe fn sum_storing(&self, text: &[u8], to: *mut u8, skip: usize) -> (u128, usize) {
        let sum = of_level!(self.level, sum_storing(self, text, to, skip));
        (sum, text.len().saturating_sub(skip) & !63)
    }

    /// The sum of `before` and `body`, one behind the other; and the whole lines that `body` begins with have been stored past the cache from `to` on, which starts
    /// on a line. Of a `before` as long as a block, or a body that ends in the first one, none: then nothing has happened.
    ///
    /// # Safety
    /// `to` is writable for that many bytes, is no part of either text, and nothing else uses these bytes.
    pub(crate) unsafe fn sum_storing_behind(&self, before: &[u8], body: &[u8], to: *mut u8) -> Option<(u128, usize)> {
        let in_first = BLOCK.checked_sub(before.len()).filter(|bytes| *bytes < body.len())?;
        let mut first = [0; BLOCK];
        first[..before.len()].copy_from_slice(before);
        first[before.len()..].copy_from_slice(&body[..in_first]);
        let total = (before.len() + body.len()) as u64;
        Some((of_level!(self.level, behind(self, (total, &first), body, to, in_first)), body.len() & !63))
    }
}

/// See [`Shared::sum_storing_behind`]: the first block of a text of so many bytes, and what `body` has behind its first `in_first` bytes, which are in that block.
///
/// # Safety
/// As there, and as [`Ops`].
#[inline(always)]
unsafe fn behind<O: Ops>(
    shared: &Shared,
    (total, first): (u64, &[u8; BLOCK]),
    body: &[u8],
    to: *mut u8,
    in_first: usize,
) -> O::Wide {
    let (mut stored, lines) = (0, body.len() / 64);
    let (mut block, mut at, mut before) = (&first[..], in_first, total);
    // Lines of the body that begin in this block leave with it, as far as they are whole: at least as many as end there.
    let mut now = lines.min(in_first / 64);
    loop {
        // SAFETY: lines from `stored` to `stored + now` are among the whole ones of the body, and of the bytes at `to`; the rest as in `sum`.
        unsafe {
            let from = body.as_ptr().wrapping_add(64 * stored);
            let lanes = O::lanes_storing(&shared.words, block, to.wrapping_add(64 * stored), from, now);
            let sum = O::xor(lanes, O::mul(before, shared.point));
            stored += now;
            if at == body.len() {
                // What is left of them began in the last block but one.
                let (from, to) = (body.as_ptr().wrapping_add(64 * stored), to.wrapping_add(64 * stored));
                crate::cpu::stream_lines(crate::cpu::flush_with(), to, from, 64 * (lines - stored));
                return sum;
            }
            before = O::reduce(sum);
        }
        let end = body.len().min(at + BLOCK);
        (block, at, now) = (&body[at..end], end, (lines - stored).min((end - at) / 64));
    }
}

/// See [`Shared::sum_storing`].
///
/// # Safety
/// As there, and as [`Ops`].
#[inline(always)]
unsafe fn storing<O: Ops>(shared: &Shared, text: &[u8], to: *mut u8, skip: usize) -> O::Wide {
    let mut lines = text.len().saturating_sub(skip) / 64;
    let mut before = text.len() as u64;
    let mut at = 0;
    loop {
        let end = text.len().min(at + BLOCK);
        // Line i of the media begins `skip` bytes behind line i of the text: the lines of a block that are whole.
        let now = lines.min((end - at) / 64);
        // SAFETY: the `now` lines from `skip + at` on end at or before the text does, and are among the
        // bytes at `to` that the caller speaks of; the rest as in `sum`.
        unsafe {
            let from = text.as_ptr().wrapping_add(skip + at);
            let lanes = O::lanes_storing(&shared.words, &text[at..end], to.wrapping_add(at), from, now);
            let sum = O::xor(lanes, O::mul(before, shared.point));
            if end == text.len() {
                return sum;
            }
            before = O::reduce(sum);
        }
        (at, lines) = (end, lines - now);
    }
}
