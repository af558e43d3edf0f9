//! What stands in a slot's log.
//!
//! ```text
//! payload:  | kind u8, ranges u56 | ranges: (offset u64, length u64) ... | rest |
//!
//! kind        ranges                     rest                          with a checksum over
//! COMMIT      written                    what the short ones hold,     what the long ones hold, unless
//!                                        then intents, 16 bytes each   that is much
//! SPILLED     one: the block that holds  checksum of that payload, u64     as the payload's kind has
//!             a longer payload
//! UNDO        about to be changed        their old bytes
//! EXTENT      one: a block that holds    its number; bytes of records
//!             further UNDO records       in the extent before; u64 each
//! INTENT      about to be changed        none
//! REDO        written                    with a checksum: a count and ranges of    what the ranges of the rest hold
//!                                        new objects; then what the ranges
//!                                        hold, then intents
//! END         none                       intents
//! RETIRED     none                       none: its header tells what is durable and what is retired
//! ```

//!
//! A range is *short* up to 32 bytes. Its record carries its bytes: they need no flush of their own, and the slot may write the object again before
//! the earlier bytes have reached the backup.

use pmem::{Intent, bytes_of, from_bytes};

pub(crate) const COMMIT: u8 = 1;
pub(crate) const SPILLED: u8 = 2;
pub(crate) const UNDO: u8 = 3;
pub(crate) const EXTENT: u8 = 4;
pub(crate) const END: u8 = 5;
pub(crate) const RETIRED: u8 = 6;
pub(crate) const INTENT: u8 = 7;
pub(crate) const REDO: u8 = 8;

/// Bytes of the pool: offset and length.
pub(crate) type Bytes = (u64, u64);

/// Longest range whose bytes are in its record.
pub(crate) const SHORT: u64 = 32;

#[inline]
pub(crate) fn is_short(range: &Bytes) -> bool {
    range.1 <= SHORT
}

/// Whether the first range holds all of another.
#[inline]
pub(crate) fn covers((at, bytes): Bytes, offset: u64, len: u64) -> bool {
    at <= offset && offset + len <= at + bytes
}

pub(crate) fn overlap(a: Bytes, b: Bytes) -> bool {
    a.0 < b.0 + b.1 && b.0 < a.0 + a.1
}

/// What the short ranges of a COMMIT hold, one behind the other, and the intents.
pub(crate) fn split_carried<'a>(ranges: &[Bytes], rest: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let carried: u64 = ranges.iter().filter(|r| is_short(r)).map(|r| r.1).sum();
    rest.split_at_checked(carried as usize)
}

/// Replaces `out` by a payload without its rest.
pub(crate) fn begin(out: &mut Vec<u8>, kind: u8, ranges: &[Bytes]) {
    out.clear();
    out.extend_from_slice(&(u64::from(kind) | (ranges.len() as u64) << 8).to_le_bytes());
    for (offset, len) in ranges {
        out.extend_from_slice(&offset.to_le_bytes());
        out.extend_from_slice(&len.to_le_bytes());
    }
}

pub(crate) fn add_intents(out: &mut Vec<u8>, intents: impl Iterator<Item = Intent>) {
    for intent in intents {
        out.extend_from_slice(bytes_of(&intent));
    }
}

/// A list of ranges, with its length.
pub(crate) fn add_ranges(out: &mut Vec<u8>, ranges: &[Bytes]) {
    out.extend_from_slice(&(ranges.len() as u64).to_le_bytes());
    for (offset, len) in ranges {
        out.extend_from_slice(&offset.to_le_bytes());
        out.extend_from_slice(&len.to_le_bytes());
    }
}

/// The list at the start of a rest, and what is behind it.
pub(crate) fn split_ranges(rest: &[u8]) -> Option<(Vec<Bytes>, &[u8])> {
    let (count, tail) = rest.split_first_chunk::<8>()?;
    let count = usize::try_from(u64::from_le_bytes(*count)).ok()?;
    let (list, rest) = tail.split_at_checked(count.checked_mul(16)?)?;
    Some((pairs(list), rest))
}

fn pairs(list: &[u8]) -> Vec<Bytes> {
    list.chunks_exact(16).filter_map(from_bytes::<[u64; 2]>).map(|[offset, len]| (offset, len)).collect()
}

/// A payload taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Payload<'a> {
    pub(crate) kind: u8,
    pub(crate) ranges: Vec<Bytes>,
    pub(crate) rest: &'a [u8],
}

/// `None` if the bytes are no payload: not written by this crate.
pub(crate) fn decode(bytes: &[u8]) -> Option<Payload<'_>> {
    let (head, tail) = bytes.split_first_chunk::<8>()?;
    let head = u64::from_le_bytes(*head);
    let count = usize::try_from(head >> 8).ok()?;
    let (list, rest) = tail.split_at_checked(count.checked_mul(16)?)?;
    let ranges = pairs(list);
    let kind = head as u8;
    (COMMIT..=REDO).contains(&kind).then_some(Payload { kind, ranges, rest })
}

/// The intents in a rest.
pub(crate) fn intents(rest: &[u8]) -> Option<Vec<Intent>> {
    rest.len().is_multiple_of(16).then(|| rest.chunks_exact(16).filter_map(from_bytes::<Intent>).collect())
}

/// Sorts ranges and joins those that touch or overlap. A few are the rule, in order more often than not.
pub(crate) fn coalesce(ranges: &mut Vec<Bytes>) {
    if ranges.len() < 2 {
        return;
    }
    ranges.sort_unstable();
    let mut last = 0;
    for at in 1..ranges.len() {
        let (offset, len) = ranges[at];
        let end = ranges[last].0 + ranges[last].1;
        if offset <= end {
            ranges[last].1 = end.max(offset + len) - ranges[last].0;
        } else {
            last += 1;
            ranges[last] = (offset, len);
        }
    }
    ranges.truncate(last + 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_come_back() {
        let mut out = Vec::new();
        begin(&mut out, UNDO, &[(64, 8), (128, 16)]);
        out.extend_from_slice(b"old bytes");
        let found = decode(&out).expect("whole");
        assert_eq!(found, Payload { kind: UNDO, ranges: vec![(64, 8), (128, 16)], rest: b"old bytes" });
        for len in 0..40 {
            assert_eq!(decode(&out[..len]), None);
        }
        out[0] = 99;
        assert_eq!(decode(&out), None);
        out[1..8].fill(0xff); // more ranges than memory
        assert_eq!(decode(&out), None);
    }

    #[test]
    fn ranges_are_joined() {
        let mut ranges = vec![(100, 10), (0, 4), (110, 5), (102, 2), (4, 4), (9, 1)];
        coalesce(&mut ranges);
        assert_eq!(ranges, [(0, 8), (9, 1), (100, 15)]);
    }
}
