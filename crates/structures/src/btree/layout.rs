//! What a B+tree looks like on media; `docs/format.md` describes it.

use pmem::{PPtr, Persist};

/// `"CairnBT1"`.
pub(super) const KIND: u64 = u64::from_le_bytes(*b"CairnBT1");
/// `"Node"`.
pub(super) const NODE_KIND: u32 = u32::from_le_bytes(*b"Node");
/// A tree this high has met damage.
pub(super) const LEVELS_MAX: usize = 40;
/// Largest node: offsets inside of it have 16 bits.
pub(super) const NODE_BYTES_MAX: u32 = 32 << 10;
/// Smallest.
pub(super) const NODE_BYTES_MIN: u32 = 256;

/// The block that a tree is opened by.
#[derive(Clone, Copy, Persist)]
#[repr(C)]
pub struct BTreeRoot {
    pub(super) kind: u64,
    pub(super) leaf_bytes: u32,
    pub(super) inner_bytes: u32,
    pub(super) inline_max: u32,
    pub(super) key_max: u32,
    pub(super) top: PPtr<u8>,
}

/// First bytes of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Persist)]
#[repr(C)]
pub(super) struct NodeHeader {
    pub(super) kind: u32,
    /// 0 for a leaf.
    pub(super) level: u16,
    /// First bytes of keys that all keys of the node share, at least.
    pub(super) prefix: u16,
    /// Records.
    pub(super) count: u16,
    /// First byte in use by records, at the end of the node.
    pub(super) heap: u16,
    /// Bytes from there on that are in use no more.
    pub(super) garbage: u16,
    pub(super) reserved: u16,
    /// Leftmost child of an inner node, else null.
    pub(super) first: PPtr<u8>,
}

/// Where a record is. Slots follow the header, in order of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Persist)]
#[repr(C)]
pub(super) struct Slot {
    /// The first four bytes of the key behind the prefix, as a number that sorts like them; bytes that are not there are zero.
    pub(super) head: u32,
    /// First byte of the record: the key, then what belongs to it.
    pub(super) at: u16,
    pub(super) key_len: u16,
}

pub(super) const HEADER: usize = size_of::<NodeHeader>();
pub(super) const SLOT: usize = size_of::<Slot>();
/// Bytes of the header that inserts and deletes change: `count`, `heap`, `garbage`, `reserved`.
pub(super) const COUNTS: std::ops::Range<usize> = 8..16;

const _: () = assert!(HEADER == 24 && SLOT == 8 && size_of::<BTreeRoot>() == 32);
const _: () = assert!(std::mem::offset_of!(NodeHeader, count) == COUNTS.start);
const _: () = assert!(std::mem::offset_of!(NodeHeader, first) == COUNTS.end);

/// Behind a leaf's key: the value's length, then the value or a pointer to it.
pub(super) const VALUE_LEN: usize = 4;
/// Behind an inner node's key: the child for keys from there on.
pub(super) const CHILD: usize = 8;

/// A slot's `head`.
#[inline]
pub(super) fn head_of(key: &[u8], prefix: usize) -> u32 {
    let rest = key.get(prefix..).unwrap_or_default();
    match rest.first_chunk::<4>() {
        Some(four) => u32::from_be_bytes(*four),
        None => rest.iter().enumerate().fold(0, |head, (i, &byte)| head | u32::from(byte) << (24 - 8 * i)),
    }
}

/// Bytes that both begin with.
pub(super) fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The shortest key that is larger than `left` and not larger than `right`.
pub(super) fn separator<'k>(left: &[u8], right: &'k [u8]) -> &'k [u8] {
    right.get(..=common(left, right)).unwrap_or(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_sort_like_keys() {
        let keys = [&b""[..], b"\0", b"\0\0\0\0\x01", b"a", b"a\0", b"abcd", b"abcde", b"b", b"\xff\xff\xff\xff\xff"];
        assert!(keys.windows(2).all(|pair| pair[0] < pair[1] && head_of(pair[0], 0) <= head_of(pair[1], 0)));
        assert_eq!((head_of(b"xab", 1), head_of(b"x", 1), head_of(b"x", 3)), (0x6162_0000, 0, 0));
    }

    #[test]
    fn separators_are_short_and_between() {
        for (left, right, between) in
            [("apple", "banana", "b"), ("abc", "abd", "abd"), ("ab", "abcd", "abc"), ("", "x", "x")]
        {
            assert_eq!(separator(left.as_bytes(), right.as_bytes()), between.as_bytes());
        }
    }
}
