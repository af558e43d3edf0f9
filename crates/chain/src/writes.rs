//! What a transaction has written: ranges of the image, and the bytes that are in them afterwards.
//!
//! Carried out any number of times, in the order of records, it leaves the same. The bytes are a record's, in the queue and on the wire (`docs/format.md`).

use std::ops::Range;

use crate::{Error, Result};

const HEADER: usize = 16;
const ZERO: u32 = 1;

/// One range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write<'a> {
    Bytes { at: u64, bytes: &'a [u8] },
    Zeros { at: u64, len: u32 },
}

impl Write<'_> {
    pub(crate) fn range(&self) -> Range<u64> {
        match *self {
            Self::Bytes { at, bytes } => at..at.saturating_add(bytes.len() as u64),
            Self::Zeros { at, len } => at..at.saturating_add(u64::from(len)),
        }
    }
}

/// Builds the bytes of a record.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    bytes: Vec<u8>,
}

impl Writes {
    pub(crate) fn put(&mut self, mut at: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (part, rest) = bytes.split_at(bytes.len().min(u32::MAX as usize));
            self.header(at, part.len() as u32, 0);
            self.bytes.extend_from_slice(part);
            (at, bytes) = (at.saturating_add(part.len() as u64), rest);
        }
    }

    pub(crate) fn zero(&mut self, mut at: u64, mut len: u64) {
        while len > 0 {
            let part = len.min(u64::from(u32::MAX));
            self.header(at, part as u32, ZERO);
            (at, len) = (at.saturating_add(part), len - part);
        }
    }

    /// No bytes at an offset: says how large a heap is.
    pub(crate) fn mark(&mut self, at: u64) {
        self.header(at, 0, 0);
    }

    pub(crate) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn header(&mut self, at: u64, len: u32, kind: u32) {
        self.bytes.extend_from_slice(&at.to_le_bytes());
        self.bytes.extend_from_slice(&len.to_le_bytes());
        self.bytes.extend_from_slice(&kind.to_le_bytes());
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// The ranges of a record, in order. An error ends it.
pub(crate) fn writes(mut bytes: &[u8]) -> impl Iterator<Item = Result<Write<'_>>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let write = split(&mut bytes).ok_or(Error::Record { why: "it ends in the middle of a range" });
        if write.is_err() {
            bytes = &[];
        }
        Some(write)
    })
}

fn split<'a>(bytes: &mut &'a [u8]) -> Option<Write<'a>> {
    let (header, rest) = bytes.split_at_checked(HEADER)?;
    let at = u64::from_le_bytes(*header.first_chunk()?);
    let len = u32::from_le_bytes(*header[8..].first_chunk()?);
    let kind = u32::from_le_bytes(*header[12..].first_chunk()?);
    let (write, rest) = match kind {
        0 => {
            let (data, rest) = rest.split_at_checked(len as usize)?;
            (Write::Bytes { at, bytes: data }, rest)
        }
        ZERO => (Write::Zeros { at, len }, rest),
        _ => return None,
    };
    *bytes = rest;
    Some(write)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_found_in_order() {
        let mut built = Writes::default();
        built.put(4096, b"seventeen");
        built.zero(64, 5_000_000_000);
        built.mark(8);
        let bytes = built.into_bytes();
        let found: Vec<_> = writes(&bytes).map(Result::unwrap).collect();
        let expected = [
            Write::Bytes { at: 4096, bytes: b"seventeen" },
            Write::Zeros { at: 64, len: u32::MAX },
            Write::Zeros { at: 64 + u64::from(u32::MAX), len: (5_000_000_000 - u64::from(u32::MAX)) as u32 },
            Write::Bytes { at: 8, bytes: b"" },
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn bytes_from_outside_end_in_an_error() {
        let mut built = Writes::default();
        built.put(4096, b"seventeen");
        let whole = built.into_bytes();
        for len in 1..whole.len() {
            assert!(writes(&whole[..len]).any(|write| write.is_err()), "{len}");
        }
        let mut kind = whole.clone();
        kind[12] = 7;
        assert_eq!(writes(&kind).filter(Result::is_err).count(), 1);
    }
}
