//! What a hash map looks like on media; `docs/format.md` describes it.

use pmem::{PPtr, Persist};

use crate::media::Link;

/// Directory pages of a map: as many as a handle keeps the pointers of.
pub(super) const PAGES_MAX: usize = 64;
/// Directory words of a page, logarithm.
pub(super) const PAGE_LOG2_MAX: u32 = 26;
/// Hash bits that a node decides, and its most words, logarithm.
pub(super) const NODE_LOG2_MAX: u32 = 8;
/// Words of a new node, logarithm: one line.
pub(super) const NODE_LOG2_MIN: u32 = 3;
/// Entries of a bucket.
pub(super) const SLOTS: usize = 14;
/// Bits of the hash beside a pointer to an entry.
pub(super) const TAG_BITS: u32 = 16;
/// Where the directory's bits end at the latest.
pub(super) const HASH_BITS: u32 = 64;

/// `"CairnHM1"`.
pub(super) const KIND: u64 = u64::from_le_bytes(*b"CairnHM1");
/// In the upper half of the bits beside a bucket's `next`.
const BUCKET_KIND: u16 = 0xb7;

/// The block that a hash map is opened by.
#[derive(Clone, Copy, Persist)]
#[repr(C)]
pub struct HashRoot {
    pub(super) kind: u64,
    pub(super) seed: u64,
    pub(super) page_bits: u8,
    pub(super) slot_bits: u8,
    pub(super) grows: u8,
    /// In lines, where the buckets begin that were made with the map (`ahead`); 0 if that is not known.
    pub(super) first_bucket: [u8; 5],
    pub(super) pages: [u64; PAGES_MAX],
}

/// Two lines: one bucket.
#[derive(Clone, Copy, Persist)]
#[repr(C)]
pub(super) struct Bucket {
    /// Link to the next of a chain; beside it the kind and the hash bits that the bucket's node decided for it.
    pub(super) next: u64,
    /// Those hash bits that lead here; the rest is zero.
    pub(super) path: u64,
    /// Links to entries with their tags; zero is free.
    pub(super) slots: [u64; SLOTS],
}

const _: () = assert!(size_of::<HashRoot>() == 536 && size_of::<Bucket>() == 128);

impl Bucket {
    pub(super) fn new(path: u64, depth: u32) -> Self {
        Self { next: Self::head(Link::NULL, depth), path, slots: [0; SLOTS] }
    }

    /// The first word: the next bucket of the chain, and how many bits of its node lead here.
    pub(super) fn head(next: Link, depth: u32) -> u64 {
        Link::new(next.ptr::<u8>(0), BUCKET_KIND << 8 | depth as u16).0
    }

    /// Bits of its node; `None` if this is no bucket.
    #[inline]
    pub(super) fn depth(&self) -> Option<u32> {
        let bits = Link(self.next).bits();
        (bits >> 8 == BUCKET_KIND).then_some(u32::from(bits & 0xff))
    }

    #[inline]
    pub(super) fn next(&self, tag: u16) -> PPtr<Bucket> {
        match Link(self.next).ptr::<Bucket>(0) {
            none if none.is_null() => none,
            next => PPtr::new(tag, next.offset()),
        }
    }
}

/// `count` bits of a hash, from the top, behind the first `from`.
#[inline]
pub(super) fn bits(hash: u64, from: u32, count: u32) -> u64 {
    if count == 0 { 0 } else { (hash << from) >> (HASH_BITS - count) }
}

/// The first `count` bits of a hash, the others zero.
#[inline]
pub(super) fn prefix(hash: u64, count: u32) -> u64 {
    if count == 0 { 0 } else { hash & u64::MAX << (HASH_BITS - count) }
}

/// First bit of the tags in buckets under a directory whose own bits begin at `base`: those and as many after them as there is room.
#[inline]
pub(super) fn window(base: u32) -> u32 {
    base.min(HASH_BITS - TAG_BITS)
}

/// True if a bucket with `depth` bits of a directory at bit `base` can get no further bits.
pub(super) fn is_last(base: u32, depth: u32) -> bool {
    depth == NODE_LOG2_MAX && base + 2 * NODE_LOG2_MAX > HASH_BITS
}

#[inline]
pub(super) fn tag_of(hash: u64, base: u32) -> u16 {
    bits(hash, window(base), TAG_BITS) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_and_prefixes_of_a_hash() {
        let hash = 0xfedc_ba98_7654_3210;
        assert_eq!((bits(hash, 0, 8), bits(hash, 8, 8), bits(hash, 56, 8), bits(hash, 60, 0)), (0xfe, 0xdc, 0x10, 0));
        assert_eq!((bits(hash, 0, 64), prefix(hash, 64), prefix(hash, 0)), (hash, hash, 0));
        assert_eq!(prefix(hash, 12), 0xfed0_0000_0000_0000);
        assert_eq!((tag_of(hash, 4), tag_of(hash, 48), tag_of(hash, 56)), (0xedcb, 0x3210, 0x3210));
    }
}
