//! What the index keeps of a version: eight bytes.

use crate::media::header::{EXPIRES, GRAIN, Header, TOMBSTONE};

/// Where a version is (40 bits, in grains: 16 TiB), how long (8 bits, rounded up), whether it is a tombstone, whether it expires, and 14 bits of its key's hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u64);

const PLACE_BITS: u32 = 40;
const TOMBSTONE_AT: u32 = 48;
const EXPIRES_AT: u32 = 49;
const TAG_AT: u32 = 50;
/// Bytes that can be named.
pub(crate) const REACH: u64 = GRAIN << PLACE_BITS;

impl Word {
    pub(crate) const NONE: Self = Self(0);

    /// Of a record with this header.
    #[inline]
    pub(crate) fn new(offset: u64, space: u64, hash: u64, header: &Header) -> Self {
        let tombstone = u64::from(header.has(TOMBSTONE)) << TOMBSTONE_AT;
        let expires = u64::from(header.has(EXPIRES)) << EXPIRES_AT;
        Self((offset / GRAIN) | (u64::from(class(space)) << PLACE_BITS) | tombstone | expires | (tag(hash) << TAG_AT))
    }

    #[inline]
    pub(crate) fn is_none(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub(crate) fn offset(self) -> u64 {
        (self.0 & ((1 << PLACE_BITS) - 1)) * GRAIN
    }

    /// Bytes it takes, rounded as `class` does: what is counted when it comes is counted when it goes.
    #[inline]
    pub(crate) fn space(self) -> u64 {
        of_class((self.0 >> PLACE_BITS) as u8)
    }

    /// Bytes it takes, rounded down.
    pub(crate) fn space_at_least(self) -> u64 {
        match (self.0 >> PLACE_BITS) as u8 {
            exact if exact < 32 => self.space(),
            class => of_class(class - 1) + GRAIN,
        }
    }

    /// Eight bits of the key's hash, for [`Leaf`](crate::index::Leaf).
    #[inline]
    pub(crate) fn fingerprint(self) -> u8 {
        fingerprint(self.0)
    }

    /// The part of it that names the key.
    #[inline]
    pub(crate) fn tag(self) -> u64 {
        self.0 >> TAG_AT
    }

    /// Whether it says that there is none.
    pub(crate) fn is_tombstone(self) -> bool {
        self.0 >> TOMBSTONE_AT & 1 == 1
    }

    /// Whether its record says when it expires.
    #[inline]
    pub(crate) fn expires(self) -> bool {
        self.0 >> EXPIRES_AT & 1 == 1
    }
}

/// What a word keeps of a hash.
#[inline]
pub(crate) fn tag(hash: u64) -> u64 {
    hash >> TAG_AT
}

#[inline]
pub(crate) fn fingerprint(hash: u64) -> u8 {
    (hash >> 56) as u8
}

/// A length as a floating-point number of grains: four bits of mantissa, four of exponent. At most a sixteenth too much.
#[inline]
fn class(space: u64) -> u8 {
    let grains = space.div_ceil(GRAIN);
    if grains < 32 {
        return grains as u8; // exact
    }
    let shift = 59 - grains.leading_zeros(); // five bits remain
    let mantissa = grains.div_ceil(1 << shift);
    // 32 carries into the exponent by itself.
    (u64::from(shift + 1) * 16 + (mantissa - 16)).min(255) as u8
}

#[inline]
fn of_class(class: u8) -> u64 {
    let class = u64::from(class);
    if class < 32 { class * GRAIN } else { ((class % 16 + 16) << (class / 16 - 1)) * GRAIN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_rounded_up_and_not_by_much() {
        let mut last = 0;
        for grains in (1..2000).chain([4095, 4096, 4097, 65536, 100_000]) {
            let rounded = of_class(class(grains * GRAIN)) / GRAIN;
            assert!(rounded >= grains && rounded <= grains + grains / 16, "{grains} became {rounded}");
            assert!(rounded >= last);
            let word = Word::new(0, grains * GRAIN, 0, &Header::new(b"key", b"", 0));
            assert!(word.space() == rounded * GRAIN && word.space_at_least() <= grains * GRAIN);
            assert!(word.space_at_least() + word.space() / 16 >= grains * GRAIN);
            last = rounded;
        }
    }

    #[test]
    fn a_word_keeps_its_parts() {
        for flags in [0, TOMBSTONE, EXPIRES] {
            let header = Header::new(b"key", b"", flags);
            let word = Word::new(REACH - GRAIN, 1088, 0xabcd_ef01_2345_6789, &header);
            assert_eq!((word.offset(), word.space(), word.fingerprint()), (REACH - GRAIN, 1088, 0xab));
            assert_eq!((word.is_tombstone(), word.expires()), (flags == TOMBSTONE, flags == EXPIRES));
            assert_eq!(word.tag(), 0xabcd >> 2);
        }
    }
}
