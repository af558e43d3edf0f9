//! A commit as a record of a log with copies.

use crate::media::header::TOMBSTONE;
use crate::media::key::{KEY_MAX, VALUE_MAX};
use crate::writers::work::Work;

/// What stands before the changes of a commit: its number; how many changes; this layout.
pub(crate) const HEAD: usize = 16;
const LAYOUT: u32 = 1;
/// What stands before each change: lengths of key and value; when it expires, 0 for never; with the highest bit of the key's length, it is deleted.
pub(crate) const CHANGE: usize = 16;
const DELETED: u32 = 1 << 31;

/// Bytes of a transaction's record.
pub(super) fn len(work: &Work) -> usize {
    let change = |write| CHANGE + work.key(write).len() + work.image_of(write).0.value_len as usize;
    HEAD + work.writes.iter().map(change).sum::<usize>()
}

/// Writes it, in just as many bytes.
pub(crate) fn encode(work: &Work, number: u64, mut to: &mut [u8]) {
    let mut put = |bytes: &[u8]| {
        let (here, behind) = std::mem::take(&mut to).split_at_mut(bytes.len());
        here.copy_from_slice(bytes);
        to = behind;
    };
    put(&number.to_le_bytes());
    put(&(work.writes.len() as u32).to_le_bytes());
    put(&LAYOUT.to_le_bytes());
    for write in &work.writes {
        let (header, key, value) = work.image_of(write);
        let deleted = if header.has(TOMBSTONE) { DELETED } else { 0 };
        put(&(key.len() as u32 | deleted).to_le_bytes());
        put(&header.value_len.to_le_bytes());
        put(&work.expires(write).unwrap_or(0).to_le_bytes());
        put(key);
        put(value);
    }
}

/// A commit, as its record in the log says.
pub(crate) struct Commit<'r> {
    pub(crate) number: u64,
    pub(crate) changes: Vec<Change<'r>>,
}

pub(crate) struct Change<'r> {
    pub(crate) key: &'r [u8],
    /// And when it expires; none if the key is deleted.
    pub(crate) value: Option<(&'r [u8], Option<u64>)>,
}

impl<'r> Commit<'r> {
    /// Reads a record. None if it is no commit of a store.
    pub(crate) fn decode(record: &'r [u8]) -> Option<Self> {
        let (head, mut rest) = record.split_at_checked(HEAD)?;
        let (number, count) = (word(head, 0)?, half(head, 8)?);
        if half(head, 12)? != LAYOUT || count == 0 || number == 0 {
            return None;
        }
        // No more room than there are bytes for.
        let mut changes = Vec::with_capacity((count as usize).min(rest.len() / CHANGE));
        for _ in 0..count {
            let (change, behind) = rest.split_at_checked(CHANGE)?;
            let (key_len, value_len, expires) = (half(change, 0)?, half(change, 4)? as usize, word(change, 8)?);
            let deleted = key_len & DELETED != 0;
            let (key, behind) = behind.split_at_checked((key_len & !DELETED) as usize)?;
            let (value, behind) = behind.split_at_checked(value_len)?;
            if key.len() > KEY_MAX || value.len() > VALUE_MAX || deleted && value_len > 0 {
                return None;
            }
            changes.push(Change { key, value: (!deleted).then_some((value, (expires > 0).then_some(expires))) });
            rest = behind;
        }
        rest.is_empty().then_some(Self { number, changes })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_commit_is_refused() {
        let mut record = Vec::new();
        record.extend_from_slice(&7_u64.to_le_bytes());
        record.extend_from_slice(&1_u32.to_le_bytes());
        record.extend_from_slice(&LAYOUT.to_le_bytes());
        record.extend_from_slice(&3_u32.to_le_bytes());
        record.extend_from_slice(&5_u32.to_le_bytes());
        record.extend_from_slice(&9_u64.to_le_bytes());
        record.extend_from_slice(b"keyvalue");
        let commit = Commit::decode(&record).unwrap();
        assert_eq!((commit.number, commit.changes.len()), (7, 1));
        assert_eq!((commit.changes[0].key, commit.changes[0].value), (&b"key"[..], Some((&b"value"[..], Some(9)))));
        for len in 0..record.len() {
            assert!(Commit::decode(&record[..len]).is_none(), "cut off at {len}");
        }
        for bit in 0..record.len() * 8 {
            let mut other = record.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            let _ = Commit::decode(&other); // whatever it is, it is decided without a panic
        }
        for (at, value) in [(8, 0_u32), (8, u32::MAX), (12, 2), (16, u32::MAX), (20, u32::MAX)] {
            let mut other = record.clone();
            other[at..at + 4].copy_from_slice(&value.to_le_bytes());
            assert!(Commit::decode(&other).is_none(), "{value} at {at}");
        }
    }
}
