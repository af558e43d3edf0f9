//! Long strings, which lie in the store in chunks, so that a command reads and writes only those that it touches.
//!
//! ```text
//!   key in the store                value
//!   db, key                         'c', Head (32), stamp (8), flags (4), marks (1), shift (1), map       Head::count chunks are there, Head::first is the length
//!   ELEMENTS, id (8), number (8)    the bytes of a chunk: 1 << shift of them, fewer of the last one
//! ```
//!
//! The map has one bit for each chunk, the lowest of the first byte for the first chunk, which is set if the chunk is there; it is empty if all are. A chunk that is not there by the map is zero. One
//! that is there by the map and not in the store, or has another length there, is damage: it is an error, and never zeros. The stamp is drawn for each change of the bytes, so two heads are the same
//! only if their strings are.

use std::borrow::Cow;
use std::ops::{ControlFlow, Range};

use super::{ELEMENTS, Head, Kind, STRING_MAX, flags, string};
use crate::engine::{Error, Result, Tx};

/// The first byte of the head of a long string.
pub(crate) const CHUNKED: u8 = b'c';

/// Zero bytes that are shown at a time.
static ZEROS: [u8; 16 << 10] = [0; 16 << 10];

/// Which strings are kept in chunks from their next write on, and how long these are. What is in the store keeps what it was written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// Bytes of the longest string that is kept as one pair.
    pub whole: usize,
    /// Bytes of a chunk: a power of two is made of it, 16 at least.
    pub chunk: usize,
}

impl Default for Chunks {
    fn default() -> Self {
        Self { whole: 256 << 10, chunk: 64 << 10 }
    }
}

impl Chunks {
    pub(crate) fn shift(self) -> u8 {
        self.chunk.clamp(16, 64 << 20).next_power_of_two().trailing_zeros() as u8
    }
}

/// The head of a long string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Long {
    /// Its count is that of the chunks that are there, its first the length of the string.
    pub(crate) head: Head,
    pub(crate) stamp: u64,
    pub(crate) flags: u32,
    pub(crate) marks: u8,
    shift: u8,
    map: Vec<u8>,
}

impl Long {
    /// One that is empty.
    pub(crate) fn new(id: u64, shift: u8) -> Self {
        let head = Head { first: 0, ..Head::new(Kind::String, id) };
        Self { head, stamp: 0, flags: 0, marks: 0, shift, map: Vec::new() }
    }

    /// None if the value is something else.
    pub(crate) fn read(value: &[u8]) -> Result<Option<Self>> {
        if value.first() != Some(&CHUNKED) {
            return Ok(None);
        }
        let damaged = || {
            let why = format!(
                "the head of a long string, of {} bytes, contradicts itself; next: run `cairn check`, then restore the key from a copy",
                value.len()
            );
            Error::Damaged(why)
        };
        Self::parse(value).filter(Self::is_sound).map(Some).ok_or_else(damaged)
    }

    fn parse(value: &[u8]) -> Option<Self> {
        let head = Head::read(value)?;
        let (stamp, rest) = value.get(Head::BYTES..)?.split_first_chunk()?;
        let (flags, rest) = rest.split_first_chunk()?;
        let [marks, shift, map @ ..] = rest else { return None };
        let (stamp, flags) = (u64::from_be_bytes(*stamp), u32::from_be_bytes(*flags));
        Some(Self { head, stamp, flags, marks: *marks, shift: *shift, map: map.to_vec() })
    }

    fn is_sound(&self) -> bool {
        if !(4..=26).contains(&self.shift) || self.head.first > STRING_MAX as u64 {
            return false;
        }
        let chunks = self.chunks();
        if self.map.is_empty() {
            return self.head.count == chunks as u64;
        }
        let set: u64 = self.map.iter().map(|byte| u64::from(byte.count_ones())).sum();
        let spare = 8 * self.map.len() - chunks.min(8 * self.map.len());
        let is_within =
            spare < 8 && self.map.last().is_none_or(|last| u32::from(*last).leading_zeros() >= 24 + spare as u32);
        self.map.len() == chunks.div_ceil(8) && is_within && self.head.count == set
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let mut value = vec![CHUNKED; Head::BYTES];
        self.head.write_over(&mut value);
        value.extend_from_slice(&self.stamp.to_be_bytes());
        value.extend_from_slice(&self.flags.to_be_bytes());
        value.extend_from_slice(&[self.marks, self.shift]);
        value.extend_from_slice(&self.map);
        value
    }

    /// Bytes of the string.
    pub(crate) fn len(&self) -> usize {
        self.head.first as usize
    }

    pub(crate) fn shift(&self) -> u8 {
        self.shift
    }

    pub(crate) fn chunk_bytes(&self) -> usize {
        1 << self.shift
    }

    /// How many there are, with those that are zero.
    pub(crate) fn chunks(&self) -> usize {
        self.len().div_ceil(self.chunk_bytes())
    }

    /// The numbers of chunks that a range of bytes touches.
    pub(crate) fn touched(&self, bytes: &Range<usize>) -> Range<usize> {
        if bytes.is_empty() { 0..0 } else { bytes.start >> self.shift..bytes.end.div_ceil(self.chunk_bytes()) }
    }

    /// Whether a chunk is in the store; otherwise it is zero.
    pub(crate) fn has(&self, number: usize) -> bool {
        number < self.chunks()
            && self.map.get(number / 8).map_or(self.map.is_empty(), |byte| byte >> (number % 8) & 1 != 0)
    }

    /// Those that are in the store.
    pub(crate) fn there(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.chunks()).filter(|number| self.has(*number))
    }

    /// Bytes of a chunk.
    pub(crate) fn bytes_of(&self, number: usize) -> usize {
        self.len().saturating_sub(number << self.shift).min(self.chunk_bytes())
    }

    /// The key in the store of a chunk.
    pub(crate) fn key(&self, number: usize) -> [u8; 17] {
        let mut key = [ELEMENTS; 17];
        key[1..9].copy_from_slice(&self.head.id.to_be_bytes());
        key[9..].copy_from_slice(&(number as u64).to_be_bytes());
        key
    }

    /// The string has this length from now on; it was shorter. What is new is zero. The caller makes the chunk longer that was the last.
    pub(crate) fn grow(&mut self, len: usize) {
        let before = self.chunks();
        self.head.first = len as u64;
        if self.chunks() > before {
            if self.map.is_empty() {
                self.map = vec![0xff; before.div_ceil(8)];
                if !before.is_multiple_of(8)
                    && let Some(last) = self.map.last_mut()
                {
                    *last = 0xff >> (8 - before % 8);
                }
            }
            self.map.resize(self.chunks().div_ceil(8), 0);
        }
        self.shorten();
    }

    /// The string has this length, and all its chunks are there.
    pub(crate) fn fill(&mut self, len: usize) {
        self.head.first = len as u64;
        self.head.count = self.chunks() as u64;
        self.map = Vec::new();
    }

    /// A chunk is in the store from now on.
    pub(crate) fn add(&mut self, number: usize) {
        if self.has(number) {
            return;
        }
        if let Some(byte) = self.map.get_mut(number / 8) {
            *byte |= 1 << (number % 8);
            self.head.count += 1;
        }
        self.shorten();
    }

    /// Where all are there no map is needed.
    fn shorten(&mut self) {
        if self.head.count == self.chunks() as u64 {
            self.map = Vec::new();
        }
    }

    // ---- reading ------------------------------------------------------------------------------------------------

    /// A chunk; none if it is zero.
    pub(crate) fn chunk<'t>(&self, tx: &'t dyn Tx, number: usize) -> Result<Option<&'t [u8]>> {
        if !self.has(number) {
            return Ok(None);
        }
        let (found, wanted) = (tx.get(&self.key(number))?, self.bytes_of(number));
        match found {
            Some(bytes) if bytes.len() == wanted => Ok(Some(bytes)),
            found => Err(self.lost(number, wanted, found.map(<[u8]>::len))),
        }
    }

    #[cold]
    fn lost(&self, number: usize, wanted: usize, found: Option<usize>) -> Error {
        let found =
            found.map_or_else(|| "is not there".to_owned(), |len| format!("has {len} bytes instead of {wanted}"));
        Error::Damaged(format!(
            "chunk {number} of the long string with id {:016x} {found}; next: run `cairn check`, then set the key again or restore it from a copy",
            self.head.id
        ))
    }

    /// Shows the bytes of a range, piece by piece.
    pub(crate) fn each(
        &self,
        tx: &dyn Tx,
        range: Range<usize>,
        visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        for number in self.touched(&range) {
            let start = number << self.shift;
            let part = range.start.saturating_sub(start)..(range.end - start).min(self.bytes_of(number));
            let Some(bytes) = self.chunk(tx, number)? else {
                let mut left = part.len();
                while left > 0 {
                    let zeros = &ZEROS[..left.min(ZEROS.len())];
                    left -= zeros.len();
                    if visit(zeros).is_break() {
                        return Ok(());
                    }
                }
                continue;
            };
            if visit(bytes.get(part).unwrap_or_default()).is_break() {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// A string as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Text<'v> {
    Whole(&'v [u8]),
    Chunked(Long),
}

impl<'v> Text<'v> {
    /// None if the value is something else.
    #[inline]
    pub(crate) fn read(value: &'v [u8]) -> Result<Option<Self>> {
        match string(value) {
            Some(bytes) => Ok(Some(Self::Whole(bytes))),
            None => Ok(Long::read(value)?.map(Self::Chunked)),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Whole(bytes) => bytes.len(),
            Self::Chunked(long) => long.len(),
        }
    }

    /// Its bytes if it is one pair.
    pub(crate) fn whole(&self) -> Option<&'v [u8]> {
        match self {
            Self::Whole(bytes) => Some(bytes),
            Self::Chunked(_) => None,
        }
    }

    /// A range of its bytes, as far as there are any.
    pub(crate) fn part<'t>(&self, tx: &'t dyn Tx, range: Range<usize>) -> Result<Cow<'t, [u8]>>
    where
        'v: 't,
    {
        let end = range.end.min(self.len());
        let range = range.start.min(end)..end;
        let long = match self {
            Self::Whole(bytes) => return Ok(Cow::Borrowed(bytes.get(range).unwrap_or_default())),
            Self::Chunked(long) => long,
        };
        let touched = long.touched(&range);
        if touched.len() == 1
            && let Some(bytes) = long.chunk(tx, touched.start)?
        {
            let start = touched.start << long.shift;
            return Ok(Cow::Borrowed(bytes.get(range.start - start..range.end - start).unwrap_or_default()));
        }
        let mut all = Vec::with_capacity(range.len());
        long.each(tx, range, &mut |piece| {
            all.extend_from_slice(piece);
            ControlFlow::Continue(())
        })?;
        Ok(Cow::Owned(all))
    }

    /// All its bytes.
    pub(crate) fn bytes<'t>(&self, tx: &'t dyn Tx) -> Result<Cow<'t, [u8]>>
    where
        'v: 't,
    {
        self.part(tx, 0..self.len())
    }

    /// Appends its bytes.
    pub(crate) fn append_to(&self, tx: &dyn Tx, all: &mut Vec<u8>) -> Result<()> {
        self.each(tx, &mut |piece| {
            all.extend_from_slice(piece);
            ControlFlow::Continue(())
        })
    }

    /// Shows all its bytes, piece by piece.
    pub(crate) fn each(&self, tx: &dyn Tx, visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> Result<()> {
        match self {
            Self::Whole(bytes) => {
                let _ = visit(bytes);
                Ok(())
            }
            Self::Chunked(long) => long.each(tx, 0..long.len(), visit),
        }
    }
}

/// A string as memcached's clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found<'v> {
    pub(crate) flags: u32,
    pub(crate) marks: u8,
    pub(crate) text: Text<'v>,
}

impl<'v> Found<'v> {
    /// None if the value is something else.
    pub(crate) fn read(value: &'v [u8]) -> Result<Option<Self>> {
        let found = Text::read(value)?.map(|text| match text {
            Text::Whole(_) => Self { flags: flags(value), marks: super::marks(value), text },
            Text::Chunked(ref long) => Self { flags: long.flags, marks: long.marks, text },
        });
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::FLAGS;
    use super::*;
    use crate::remove::tests::Pairs;

    /// Bytes of a head before its map.
    const FIXED: usize = Head::BYTES + 8 + FLAGS + 1 + 1;

    fn all(long: &Long, tx: &dyn Tx) -> Result<Vec<u8>> {
        Ok(Text::Chunked(long.clone()).bytes(tx)?.into_owned())
    }

    /// Whatever becomes longer in whatever order, the map says what is there, and the head is read as it was written.
    #[test]
    fn maps_say_what_is_there() {
        for order in 0..720_usize {
            let (mut long, mut model, mut left) = (Long::new(7, 4), std::collections::BTreeSet::new(), order);
            for step in 0..6 {
                let number = left % (23 - 2 * step);
                left = left / 3 + step;
                if number >= long.chunks() {
                    long.grow(16 * number + 1 + order % 16);
                }
                long.add(number);
                model.insert(number);
                assert_eq!(long.there().collect::<Vec<_>>(), model.iter().copied().collect::<Vec<_>>(), "{order}");
                assert_eq!(long.head.count, model.len() as u64);
                assert_eq!(long.map.is_empty(), model.len() == long.chunks());
                assert_eq!(Long::read(&long.write()).unwrap().as_ref(), Some(&long));
            }
        }
    }

    #[test]
    fn heads_that_contradict_themselves_are_refused() {
        let mut long = Long::new(7, 4);
        long.grow(16 * 11 + 3);
        (0..9).for_each(|number| long.add(number));
        let good = long.write();
        assert!(Long::read(&good).unwrap().is_some());
        assert_eq!(Head::read(&good), Some(long.head));
        assert_eq!(Kind::of(&good), Kind::String);
        // Count, length, shift, map.
        for at in [16, 23, FIXED - 1, FIXED, FIXED + 1] {
            let mut bad = good.clone();
            bad[at] ^= 0x20;
            assert!(matches!(Long::read(&bad), Err(Error::Damaged(_))), "byte {at}");
        }
        for len in 1..good.len() {
            assert!(Long::read(&good[..len]).is_err(), "{len} bytes");
        }
        assert!(Long::read(&[&good[..], &[0]].concat()).is_err());
        assert_eq!((Long::read(b"sx"), Long::read(b"")), (Ok(None), Ok(None)));
    }

    #[test]
    fn a_chunk_that_is_lost_is_an_error_and_one_that_never_was_is_zero() {
        let mut pairs = Pairs::default();
        let mut long = Long::new(7, 4);
        long.grow(40);
        long.add(1);
        long.add(2);
        pairs.put(&long.key(1), &[1; 16], None).unwrap();
        pairs.put(&long.key(2), &[2; 8], None).unwrap();
        assert_eq!(all(&long, &pairs).unwrap(), [vec![0; 16], vec![1; 16], vec![2; 8]].concat());
        let text = Text::Chunked(long.clone());
        assert_eq!(&*text.part(&pairs, 14..19).unwrap(), [0, 0, 1, 1, 1]);
        assert_eq!(&*text.part(&pairs, 33..99).unwrap(), [2; 7]);
        assert!(text.part(&pairs, 40..99).unwrap().is_empty() && text.part(&pairs, 50..60).unwrap().is_empty());
        let is_damaged = |found: Result<Cow<'_, [u8]>>, what: &str| match found {
            Err(Error::Damaged(why)) => why.contains(what) && why.contains("next: "),
            _ => false,
        };
        pairs.put(&long.key(2), &[2; 7], None).unwrap();
        assert!(is_damaged(
            text.part(&pairs, 33..34),
            "chunk 2 of the long string with id 0000000000000007 has 7 bytes"
        ));
        pairs.delete(&long.key(1)).unwrap();
        assert!(is_damaged(
            text.part(&pairs, 16..17),
            "chunk 1 of the long string with id 0000000000000007 is not there"
        ));
        assert!(is_damaged(text.bytes(&pairs), "chunk 1"));
        assert_eq!(&*text.part(&pairs, 0..16).unwrap(), [0; 16], "what is asked for is there");
    }
}
