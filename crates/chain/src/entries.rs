//! Entries of the queue on the medium: what is in a record of its ring (`docs/format.md`).

use crate::{Entry, Number, Object, Record, ViewId};

const RECORD: u32 = 1;
const TRUNCATE: u32 = 2;
const HEADER: usize = 32;

/// What the queue was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// This record is in it, in place of an earlier one of the number.
    Record(Record),
    /// Nothing behind this number is.
    Truncated(u64),
}

/// Bytes before a record's own ones.
pub(crate) fn record_header(incarnation: u32, entry: &Entry) -> Vec<u8> {
    let mut bytes = header(RECORD, incarnation, entry.number.n, entry.number.view.0, entry.objects.len() as u64);
    entry.objects.iter().for_each(|object| bytes.extend_from_slice(&object.0.to_le_bytes()));
    bytes
}

pub(crate) fn truncation(incarnation: u32, after: u64) -> Vec<u8> {
    header(TRUNCATE, incarnation, after, 0, 0)
}

fn header(kind: u32, incarnation: u32, n: u64, view: u64, objects: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + 8 * objects as usize);
    bytes.extend_from_slice(&kind.to_le_bytes());
    bytes.extend_from_slice(&incarnation.to_le_bytes());
    [n, view, objects].iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
    bytes
}

/// What it says, and in which incarnation of the copy; none if it says nothing.
pub(crate) fn read(bytes: &[u8]) -> Option<(u32, Told)> {
    let (header, rest) = bytes.split_at_checked(HEADER)?;
    let word = |at: usize| header[at..].first_chunk().map(|word| u64::from_le_bytes(*word));
    let half = |at: usize| header[at..].first_chunk().map(|half| u32::from_le_bytes(*half));
    let (kind, incarnation) = (half(0)?, half(4)?);
    let (n, view, count) = (word(8)?, word(16)?, word(24)?);
    match kind {
        RECORD => {
            let (objects, bytes) = rest.split_at_checked(usize::try_from(count.checked_mul(8)?).ok()?)?;
            let objects = objects.as_chunks().0.iter().map(|object| Object(u64::from_le_bytes(*object))).collect();
            let entry = Entry { number: Number { view: ViewId(view), n }, objects };
            Some((incarnation, Told::Record(Record { entry, bytes: bytes.to_vec() })))
        }
        TRUNCATE if count == 0 && rest.is_empty() => Some((incarnation, Told::Truncated(n))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let entry = Entry { number: Number { view: ViewId(3), n: 17 }, objects: vec![Object(64), Object(4096)] };
        let mut bytes = record_header(5, &entry);
        bytes.extend_from_slice(b"values");
        assert_eq!(read(&bytes), Some((5, Told::Record(Record { entry, bytes: b"values".to_vec() }))));
        assert_eq!(read(&truncation(5, 9)), Some((5, Told::Truncated(9))));
        for len in 0..HEADER + 16 {
            assert_eq!(read(&bytes[..len]), None, "{len}");
        }
        bytes[24..32].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(read(&bytes), None);
        bytes[0] = 3;
        assert_eq!(read(&bytes), None);
    }
}
