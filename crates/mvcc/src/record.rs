//! What stands in a slot's log.
//!
//! ```text
//! WRITES   | timestamp u64 | body |
//! SPILLED  | timestamp u64 | kind u64 | offset u64 | length u64 |            the body is in that block, under the record's checksum
//! VOID     | timestamp u64 | kind u64 |                                      the record of this timestamp never arrived
//! CALL     | timestamp u64 | kind 4, procedure 8, intents 20, digest 32 bits | intents | arguments |
//!
//! body     | kind 4, ranges 20, new 20, intents 20 bits |
//!          | ranges, new objects: offset u48, length u16 (65535: in the next word) .. | intents, 16 bytes each .. | what the ranges hold |
//! ```
//!
//! Ranges are what the transaction has changed, joined within each object. What new objects hold stands in them alone, under the record's checksum.

use pmem::{Intent, bytes_of, from_bytes};
use tx::{Error, Result};

/// Bytes of the pool: offset and length.
pub(crate) type Bytes = (u64, u64);

const WRITES: u64 = 1;
const SPILLED: u64 = 2;
const VOID: u64 = 3;
const CALL: u64 = 4;

/// Procedures with a number.
pub(crate) const PROCEDURES_MAX: u64 = 1 << 8;

/// Bytes that a range takes besides what it holds, at most.
pub(crate) const RANGE_MAX: u64 = 16;

/// Of ranges, of new objects and of intents in one record.
pub(crate) const COUNT_MAX: u64 = (1 << 20) - 1;
/// Lengths from here on have a word of their own.
const LONG: u64 = 0xffff;
const OFFSET_BITS: u32 = 48;

/// A body taken apart.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Body {
    pub(crate) ranges: Vec<Bytes>,
    pub(crate) new: Vec<Bytes>,
    pub(crate) intents: Vec<Intent>,
    /// What the ranges hold, one behind the other.
    pub(crate) data: Vec<u8>,
}

/// A procedure's call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) procedure: usize,
    /// Of what it wrote.
    pub(crate) digest: u32,
    /// Allocations in their order, then frees.
    pub(crate) intents: Vec<Intent>,
    pub(crate) args: Vec<u8>,
}

/// A record taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Writes(Body),
    Call(Call),
    Spilled(Bytes),
    Void,
}

/// Replaces `out` by a record without its data, to be added in the order of the ranges. The timestamp is still to come ([`stamp`]).
pub(crate) fn begin(
    out: &mut Vec<u8>,
    ranges: impl ExactSizeIterator<Item = Bytes>,
    new: &[Bytes],
    intents: &[Intent],
) -> Result<()> {
    let counts = [ranges.len() as u64, new.len() as u64, intents.len() as u64];
    if let Some(&found) = counts.iter().find(|&&count| count > COUNT_MAX) {
        return Err(Error::Limit { what: "objects changed by one transaction", found, max: COUNT_MAX });
    }
    out.clear();
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&(WRITES | counts[0] << 4 | counts[1] << 24 | counts[2] << 44).to_le_bytes());
    ranges.chain(new.iter().copied()).for_each(|range| add_range(out, range));
    intents.iter().for_each(|intent| out.extend_from_slice(bytes_of(intent)));
    Ok(())
}

fn add_range(out: &mut Vec<u8>, (offset, len): Bytes) {
    out.extend_from_slice(&(offset | len.min(LONG) << OFFSET_BITS).to_le_bytes());
    if len >= LONG {
        out.extend_from_slice(&len.to_le_bytes());
    }
}

/// Bytes of a call's record.
pub(crate) fn call_len(intents: usize, args: usize) -> usize {
    16 + intents * size_of::<Intent>() + args
}

/// Replaces `out` by the record of a call.
pub(crate) fn call(out: &mut Vec<u8>, procedure: usize, digest: u32, intents: &[Intent], args: &[u8]) {
    out.clear();
    let head = CALL | (procedure as u64) << 4 | (intents.len() as u64) << 12 | u64::from(digest) << 32;
    [0, head].iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
    intents.iter().for_each(|intent| out.extend_from_slice(bytes_of(intent)));
    out.extend_from_slice(args);
}

fn read_call(mut bytes: &[u8]) -> Option<Call> {
    let head = word(&mut bytes)?;
    let (intents, args) = bytes.split_at_checked((head >> 12 & COUNT_MAX) as usize * size_of::<Intent>())?;
    let intents = intents.chunks_exact(size_of::<Intent>()).filter_map(from_bytes::<Intent>).collect();
    let procedure = (head >> 4 & (PROCEDURES_MAX - 1)) as usize;
    Some(Call { procedure, digest: (head >> 32) as u32, intents, args: args.to_vec() })
}

/// Puts the timestamp into a record.
pub(crate) fn stamp(record: &mut [u8], stamp: u64) {
    record[..8].copy_from_slice(&stamp.to_le_bytes());
}

/// The record whose body, all behind the first eight bytes, is in a block.
pub(crate) fn spilled((offset, len): Bytes) -> [u8; 32] {
    words([0, SPILLED, offset, len])
}

/// The record that makes another one void.
pub(crate) fn void(stamp: u64) -> [u8; 16] {
    words([stamp, VOID])
}

fn words<const WORDS: usize, const BYTES: usize>(from: [u64; WORDS]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes.chunks_exact_mut(8).zip(from).for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
    bytes
}

fn word(bytes: &mut &[u8]) -> Option<u64> {
    let (word, rest) = bytes.split_first_chunk::<8>()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*word))
}

/// The timestamp of a record, and what it says; `None` if this crate has not written it.
pub(crate) fn decode(mut bytes: &[u8]) -> Option<(u64, Record)> {
    let stamp = word(&mut bytes)?;
    let record = match *bytes.first_chunk::<8>().map(|kind| u64::from_le_bytes(*kind)).as_ref()? {
        SPILLED => {
            word(&mut bytes)?;
            Record::Spilled((word(&mut bytes)?, word(&mut bytes)?))
        }
        VOID => Record::Void,
        head if head & 15 == CALL => Record::Call(read_call(bytes)?),
        _ => Record::Writes(body(bytes)?),
    };
    Some((stamp, record))
}

/// A body; `None` if this crate has not written it.
pub(crate) fn body(mut bytes: &[u8]) -> Option<Body> {
    let head = word(&mut bytes)?;
    if head & 15 != WRITES {
        return None;
    }
    let count = |shift: u32| (head >> shift & COUNT_MAX) as usize;
    let mut range = || {
        let word_of = word(&mut bytes)?;
        let (offset, short) = (word_of & ((1 << OFFSET_BITS) - 1), word_of >> OFFSET_BITS);
        let len = if short == LONG { word(&mut bytes)? } else { short };
        Some((offset, len))
    };
    let ranges = (0..count(4)).map(|_| range()).collect::<Option<Vec<_>>>()?;
    let new = (0..count(24)).map(|_| range()).collect::<Option<Vec<_>>>()?;
    let (intents, data) = bytes.split_at_checked(count(44) * size_of::<Intent>())?;
    let intents = intents.chunks_exact(size_of::<Intent>()).filter_map(from_bytes::<Intent>).collect();
    let len = ranges.iter().try_fold(0u64, |sum, range| sum.checked_add(range.1))?;
    (len == data.len() as u64).then(|| Body { ranges, new, intents, data: data.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back() {
        let ranges = [(64, 3), (1 << 40, LONG), (4096, LONG - 1)];
        let new = [(128, 64), (1 << 44, 1 << 20)];
        let mut record = Vec::new();
        begin(&mut record, ranges.iter().copied(), &new, &[]).unwrap();
        record.resize(record.len() + 3 + 2 * LONG as usize - 1, 7);
        stamp(&mut record, 42);
        let (at, found) = decode(&record).expect("whole");
        let Record::Writes(body) = found else { panic!("{found:?}") };
        assert_eq!((at, &body.ranges[..], &body.new[..]), (42, &ranges[..], &new[..]));
        assert!(body.data.iter().all(|&byte| byte == 7));
        for len in (0..100).chain([record.len() - 1]) {
            assert_eq!(decode(&record[..len]), None, "{len}");
        }
        record[8] = 9;
        assert_eq!(decode(&record), None);
    }

    #[test]
    fn the_others_come_back_too() {
        let mut record = spilled((4096, 1 << 20));
        stamp(&mut record, 8);
        assert_eq!(decode(&record), Some((8, Record::Spilled((4096, 1 << 20)))));
        assert_eq!(decode(&record[..24]), None);
        assert_eq!(decode(&void(9)), Some((9, Record::Void)));
    }

    #[test]
    fn calls_come_back() {
        let mut record = Vec::new();
        call(&mut record, 255, u32::MAX - 1, &[], b"arguments");
        stamp(&mut record, 11);
        assert_eq!(record.len(), call_len(0, 9));
        let wanted = Call { procedure: 255, digest: u32::MAX - 1, intents: Vec::new(), args: b"arguments".to_vec() };
        assert_eq!(decode(&record), Some((11, Record::Call(wanted))));
        (0..16).for_each(|len| assert_eq!(decode(&record[..len]), None, "{len}"));
        record[10] = 9; // more intents than bytes
        assert_eq!(decode(&record), None);
    }

    #[test]
    fn a_small_update_is_one_line() {
        let mut record = Vec::new();
        begin(&mut record, [(64, 8)].into_iter(), &[], &[]).unwrap();
        assert_eq!(pmem::RECORD_HEADER as usize + record.len() + 8, 64);
    }
}
