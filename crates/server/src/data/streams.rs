//! How streams lie in the store. Their elements' keys go on, behind the id of the head, with
//!
//! ```text
//!   0, entry (16)                        fields and values, each behind its length (seven bits a byte, lowest first)    an entry
//!   1, name                              number (8), last (16), read (8), consumers (8)                                 a group
//!   2, group (8), 0, entry (16)          consumer (8), delivered (8), deliveries (8)                                    what a group was sent, and has not acknowledged
//!   2, group (8), 1, name                consumer (8)                                                                   the number of a consumer
//!   2, group (8), 2, consumer (8)        seen (8), pending (8), name                                                    a consumer
//!   2, group (8), 3, consumer (8), entry (16)                                                                           what of it is with a consumer
//!   3                                    groups (8)                                                                     how many groups there have been
//! ```
//!
//! Numbers of groups and consumers are never given twice. So an entry is one record, and an acknowledgement touches what was sent and its consumer: consumers of one
//! group do not meet there, nor does a client that adds.

use std::fmt;

use super::Head;
use crate::engine::Error;
use crate::outcome::Stop;

/// What an entry is known by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// Milliseconds of Unix time, most often.
    pub ms: u64,
    /// Among those of one millisecond.
    pub seq: u64,
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

impl Id {
    pub(crate) const MIN: Self = Self { ms: 0, seq: 0 };
    pub(crate) const MAX: Self = Self { ms: u64::MAX, seq: u64::MAX };
    const BYTES: usize = 16;

    pub(crate) fn next(self) -> Option<Self> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => Some(Self { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    pub(crate) fn previous(self) -> Option<Self> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => Some(Self { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }

    /// In the order of ids.
    pub(crate) fn bytes(self) -> [u8; Self::BYTES] {
        (u128::from(self.ms) << 64 | u128::from(self.seq)).to_be_bytes()
    }

    /// What a key or a value ends with.
    pub(crate) fn last_of(bytes: &[u8]) -> Option<Self> {
        let (_, id) = bytes.split_last_chunk()?;
        let id = u128::from_be_bytes(*id);
        Some(Self { ms: (id >> 64) as u64, seq: id as u64 })
    }
}

/// What the head of a stream has besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// The highest id there has been.
    pub(crate) last: Id,
    /// Entries there have been.
    pub(crate) added: u64,
    /// The highest id that was deleted by itself.
    pub(crate) deleted: Id,
    /// The first entry; the lowest id if there is none. What is in front of it is not looked through: it has been deleted, some of it a moment ago.
    pub(crate) first: Id,
}

impl Marks {
    pub(super) const BYTES: usize = 3 * Id::BYTES + 8;

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let number = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes);
        let id = |at| Some(Id { ms: number(at)?, seq: number(at + 8)? });
        Some(Self { last: id(0)?, added: number(16)?, deleted: id(24)?, first: id(40)? })
    }

    pub(super) fn write(&self) -> [u8; Self::BYTES] {
        let Self { last, added, deleted, first } = *self;
        let numbers = [last.ms, last.seq, added, deleted.ms, deleted.seq, first.ms, first.seq];
        let mut bytes = [0; Self::BYTES];
        for (at, number) in numbers.into_iter().enumerate() {
            bytes[8 * at..][..8].copy_from_slice(&number.to_be_bytes());
        }
        bytes
    }
}

/// What keys of elements go on with.
pub(super) const ENTRY: u8 = 0;
pub(crate) const GROUP: u8 = 1;
pub(super) const OF_GROUP: u8 = 2;
pub(crate) const GROUPS: u8 = 3;
const PENDING: u8 = 0;
const NAME: u8 = 1;
const CONSUMER: u8 = 2;
const WITH: u8 = 3;

/// Bytes of the longest beginning of a key that ends with a name, the database's or the head's included.
pub(crate) const NAME_AT: usize = 9 + 1 + 8 + 1;

impl Head {
    pub(crate) fn entry(&self, id: Id) -> Vec<u8> {
        self.element(&[&[ENTRY], &id.bytes()])
    }

    pub(crate) fn group(&self, name: &[u8]) -> Vec<u8> {
        self.element(&[&[GROUP], name])
    }
}

/// A group of consumers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) number: u64,
    /// What was sent last.
    pub(crate) last: Id,
    /// Entries up to there, since the stream began; -1 if that is not known.
    pub(crate) read: i64,
    /// Consumers there have been.
    pub(crate) consumers: u64,
}

impl Group {
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 40] = bytes.try_into().ok()?;
        let number = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes);
        let last = Id { ms: number(8)?, seq: number(16)? };
        Some(Self { number: number(0)?, last, read: number(24)? as i64, consumers: number(32)? })
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let Self { number, last, read, consumers } = *self;
        [number, last.ms, last.seq, read as u64, consumers].into_iter().flat_map(u64::to_be_bytes).collect()
    }

    /// What begins all keys of what belongs to it.
    pub(crate) fn part(&self) -> Vec<u8> {
        [&[OF_GROUP], &self.number.to_be_bytes()[..]].concat()
    }

    pub(crate) fn pending(&self, head: &Head, id: Id) -> Vec<u8> {
        head.element(&[&self.part(), &[PENDING], &id.bytes()])
    }

    /// Begins the keys of consumers' numbers, which go on with their names.
    pub(crate) fn names(&self, head: &Head) -> Vec<u8> {
        head.element(&[&self.part(), &[NAME]])
    }

    pub(crate) fn consumer(&self, head: &Head, number: u64) -> Vec<u8> {
        head.element(&[&self.part(), &[CONSUMER], &number.to_be_bytes()])
    }

    pub(crate) fn with(&self, head: &Head, consumer: u64, id: Id) -> Vec<u8> {
        head.element(&[&self.part(), &[WITH], &consumer.to_be_bytes(), &id.bytes()])
    }
}

/// One of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Consumer {
    pub(crate) number: u64,
    /// Milliseconds of Unix time.
    pub(crate) seen: u64,
    /// How much was sent to it that it has not acknowledged.
    pub(crate) pending: u64,
    pub(crate) name: Vec<u8>,
}

impl Consumer {
    pub(crate) fn read(number: u64, bytes: &[u8]) -> Option<Self> {
        let (seen, rest) = bytes.split_first_chunk()?;
        let (pending, name) = rest.split_first_chunk()?;
        Some(Self {
            number,
            seen: u64::from_be_bytes(*seen),
            pending: u64::from_be_bytes(*pending),
            name: name.to_vec(),
        })
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        [&self.seen.to_be_bytes()[..], &self.pending.to_be_bytes(), &self.name].concat()
    }
}

/// What was sent to a consumer, and is not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    pub(crate) consumer: u64,
    /// Milliseconds of Unix time.
    pub(crate) delivered: u64,
    pub(crate) deliveries: u64,
}

impl Pending {
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 24] = bytes.try_into().ok()?;
        let number = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes);
        Some(Self { consumer: number(0)?, delivered: number(8)?, deliveries: number(16)? })
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        [self.consumer, self.delivered, self.deliveries].into_iter().flat_map(u64::to_be_bytes).collect()
    }
}

// ---- entries ----------------------------------------------------------------------------------------------------

/// The fields and values of an entry as its value has them.
pub(crate) fn encode<'b>(words: impl Iterator<Item = &'b [u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in words {
        let mut len = word.len();
        while len >= 0x80 {
            bytes.push(len as u8 | 0x80);
            len >>= 7;
        }
        bytes.push(len as u8);
        bytes.extend_from_slice(word);
    }
    bytes
}

/// The same again; none if they are not whole.
pub(crate) fn decode(mut bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut words = Vec::new();
    while !bytes.is_empty() {
        let (mut len, mut shift) = (0_u64, 0);
        loop {
            let (byte, rest) = bytes.split_first()?;
            bytes = rest;
            len |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
            shift += 7;
            if shift > 28 {
                return None;
            }
        }
        let (word, rest) = bytes.split_at_checked(usize::try_from(len).ok()?)?;
        words.push(word);
        bytes = rest;
    }
    words.len().is_multiple_of(2).then_some(words)
}

/// What stands in the store is not what a stream has.
pub(crate) fn damaged(what: &str) -> Stop {
    Stop::Engine(Error::Damaged(format!("{what} of a stream is damaged: check the store, or restore it from a copy")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_in_order_and_have_neighbours() {
        let id = |ms, seq| Id { ms, seq };
        let ids = [Id::MIN, id(0, 1), id(0, u64::MAX), id(1, 0), id(256, 3), Id::MAX];
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1] && pair[0].bytes() < pair[1].bytes()));
        assert!(ids.iter().all(|id| Id::last_of(&id.bytes()) == Some(*id)));
        assert_eq!((id(0, u64::MAX).next(), Id::MAX.next()), (Some(id(1, 0)), None));
        assert_eq!((id(1, 0).previous(), Id::MIN.previous()), (Some(id(0, u64::MAX)), None));
        assert_eq!(id(u64::MAX, 7).to_string(), "18446744073709551615-7");
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let last = Id { ms: 5, seq: 6 };
        let marks = Marks { last, added: 7, deleted: Id::MAX, first: Id { ms: 1, seq: 2 } };
        assert_eq!(Marks::read(&marks.write()), Some(marks));
        let group = Group { number: 1, last, read: -1, consumers: 9 };
        assert_eq!(Group::read(&group.write()), Some(group));
        let one = Consumer { number: 3, seen: 4, pending: 5, name: b"name".to_vec() };
        assert_eq!(Consumer::read(3, &one.write()), Some(one));
        let pending = Pending { consumer: 1, delivered: 2, deliveries: u64::MAX };
        assert_eq!(Pending::read(&pending.write()), Some(pending));
        for len in (0..100).filter(|len| ![24, 40, 56].contains(len)) {
            let bytes = vec![0; len];
            assert!(Marks::read(&bytes).is_none() && Group::read(&bytes).is_none() && Pending::read(&bytes).is_none());
            assert_eq!(Consumer::read(1, &bytes).is_some(), len >= 16);
        }
    }

    #[test]
    fn entries_are_read_as_they_were_written() {
        let long = vec![7; 70_000];
        let words = [&b"field"[..], b"", b"", &long, &long[..128], &long[..127]];
        let bytes = encode(words.iter().copied());
        assert_eq!(decode(&bytes).unwrap(), words);
        assert_eq!(decode(b"").unwrap().len(), 0);
        // Whatever is cut off, it is whole words or nothing.
        assert!((0..bytes.len()).all(|len| decode(&bytes[..len]).is_none_or(|some| words.starts_with(&some))));
        assert!(
            decode(&[0x80; 9]).is_none()
                && decode(&[1, 0]).is_none()
                && decode(&[0xff, 0xff, 0xff, 0xff, 0x7f]).is_none()
        );
    }
}
