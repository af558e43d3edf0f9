//! How Redis' data lie in the store.
//!
//! ```text
//!   key in the store                              value
//!   database (0..16), key                         's', bytes                                   a string
//!                                                 'f', flags (4), bytes                        a string with memcached's flags
//!                                                 'm', marks (1), flags (4), bytes             the same, which is stale, or which somebody recaches
//!                                                 'h' 'l' 'e' 'z', Head (32)                   a hash, list, set, sorted set
//!                                                 'x', Head (32), Marks (56)                   a stream
//!                                                 'c', Head (32), ...                          a long string: see [`chunks`]
//!   ELEMENTS, id (8), hash of field (8), field    value                                        of a hash
//!   ELEMENTS, id (8), place (8)                   value                                        of a list: Head::first is the place of the first one
//!   ELEMENTS, id (8), hash of member (8), member                                               of a set
//!   ELEMENTS, id (8), 0, hash of member (8), member   score (8, order-preserving)              of a sorted set
//!   ELEMENTS, id (8), 1, score (8), member            '-' of a negative zero, else nothing     the same, in order of scores
//!   ELEMENTS, id (8), 0 to 3, ...                 see [`streams`]                              of a stream
//!   ELEMENTS, id (8), number (8)                  bytes                                        of a long string: a chunk
//!   DUE, moment (8), id (8), 1                    db, key                                      a collection that expires then: see [`notes`]
//!   DUE, moment (8), id (8)                       db, key                                      the same, of a version that left it when that changed
//!   GARBAGE, id (8)                                                                            elements nobody owns any more
//!   PARTS, id (8), bytes                                                                       those whose keys go on with these bytes
//!   META, name                                                                                 what the server keeps for itself
//! ```
//!
//! Which number of a client a database has, [`databases`](crate::databases) says. Numbers are big-endian, so that their order is that of keys. An id is never used again: elements belong to the key that has it in its head, so a
//! collection is renamed, or removed, by one record, and those of a removed one are swept later ([`reaper`](crate::reaper)). Every change of a collection
//! writes its head, whose version is therefore the collection's: that is what `WATCH` compares.

pub(crate) mod chunks;
pub(crate) mod notes;
pub(crate) mod streams;

use std::ops::ControlFlow;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use tx::Keys;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::engine::{self, Error, Result, Tx};
use crate::failpoints::{Failpoints, Step};
use crate::headed::Headed;

use self::streams::Marks;

/// Databases: the first byte of a key in the store.
pub const DATABASES: u8 = 16;
/// First bytes of what is not a key of a client.
pub(crate) const ELEMENTS: u8 = 0xf0;
pub(crate) const DUE: u8 = 0xf1;
pub(crate) const GARBAGE: u8 = 0xf2;
pub(crate) const META: u8 = 0xf3;
pub(crate) const PARTS: u8 = 0xf4;

/// First bytes of strings.
pub(crate) const STRING: u8 = b's';
const FLAGGED: u8 = b'f';
const MARKED: u8 = b'm';
const FLAGS: usize = 4;

/// Marks of memcached's: a client has said that it is out of date; a client was told to make it anew.
pub(crate) const STALE: u8 = 1;
pub(crate) const WON: u8 = 2;

/// Bytes of a string: Redis' own limit.
pub(crate) const STRING_MAX: usize = 512 << 20;
/// Bytes of the longest beginning of an element's key.
pub(crate) const ELEMENT_HEAD: usize = 1 + 8 + 1 + 8;

/// What a key has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    String,
    Hash,
    List,
    Set,
    Sorted,
    Stream,
}

impl Kind {
    #[cfg(test)]
    const ALL: [Self; 6] = [Self::String, Self::Hash, Self::List, Self::Set, Self::Sorted, Self::Stream];

    /// As `TYPE` says.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Hash => "hash",
            Self::List => "list",
            Self::Set => "set",
            Self::Sorted => "zset",
            Self::Stream => "stream",
        }
    }

    fn tag(self) -> u8 {
        match self {
            Self::String => STRING,
            Self::Hash => b'h',
            Self::List => b'l',
            Self::Set => b'e',
            Self::Sorted => b'z',
            Self::Stream => b'x',
        }
    }

    /// Of a value in the store.
    pub(crate) fn of(value: &[u8]) -> Self {
        match value {
            [b'h', ..] => Self::Hash,
            [b'l', ..] => Self::List,
            [b'e', ..] => Self::Set,
            [b'z', ..] => Self::Sorted,
            [b'x', ..] => Self::Stream,
            _ => Self::String,
        }
    }
}

/// The head of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    pub(crate) id: u64,
    /// Elements.
    pub(crate) count: u64,
    /// The place of a list's first element; of a sorted set whether it [keeps signs](Self::keeps_signs).
    pub(crate) first: u64,
    /// When it expires, 0 if it stays: the same as the store has for its key.
    expires: u64,
    /// Of a stream.
    pub(crate) marks: Marks,
}

/// The place where a list begins: in the middle, so it grows at both ends.
const MIDDLE: u64 = 1 << 63;
/// In the same place, for sorted sets.
const KEEPS_SIGNS: u64 = MIDDLE + 1;
/// Members, and bytes of each, of a sorted set that Redis keeps in one piece.
pub(crate) const SMALL_SORTED: (u64, usize) = (128, 64);

impl Head {
    const BYTES: usize = 33;

    pub(crate) fn new(kind: Kind, id: u64) -> Self {
        Self { kind, id, count: 0, first: MIDDLE, expires: 0, marks: Marks::default() }
    }

    /// None if the value is a string that is one pair, or nothing this version knows.
    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        let kind = Kind::of(value);
        let (head, marks) = value.split_at_checked(Self::BYTES)?;
        let marks = match kind {
            // What follows is for `Long`.
            Kind::String if value[0] == chunks::CHUNKED => Marks::default(),
            Kind::String => return None,
            Kind::Stream => Marks::read(marks)?,
            _ => marks.is_empty().then(Marks::default)?,
        };
        let number = |at: usize| head.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes);
        Some(Self { kind, id: number(1)?, count: number(9)?, first: number(17)?, expires: number(25)?, marks })
    }

    pub(crate) fn write(&self) -> Headed<128> {
        let mut bytes = [0; Self::BYTES - 1 + Marks::BYTES];
        for (at, number) in [self.id, self.count, self.first, self.expires].into_iter().enumerate() {
            bytes[8 * at..][..8].copy_from_slice(&number.to_be_bytes());
        }
        bytes[Self::BYTES - 1..].copy_from_slice(&self.marks.write());
        let len = if self.kind == Kind::Stream { bytes.len() } else { Self::BYTES - 1 };
        Headed::new(self.kind.tag(), &bytes[..len])
    }

    /// Writes it into the value that it was read of, or one of its kind: what follows it there stays. A value that has no room for it stays as it is.
    pub(crate) fn write_over(&self, value: &mut [u8]) {
        let numbers = [self.id, self.count, self.first, self.expires];
        if let Some(bytes) = value.get_mut(1..Self::BYTES) {
            bytes.chunks_exact_mut(8).zip(numbers).for_each(|(to, number)| to.copy_from_slice(&number.to_be_bytes()));
        }
    }

    /// Whether a zero in this sorted set may have a sign: Redis drops it while the set has its first form, which is up to so many members, of so many bytes each.
    pub(crate) fn keeps_signs(&self) -> bool {
        self.first == KEEPS_SIGNS || self.count > SMALL_SORTED.0
    }

    /// From now on this sorted set does, as in Redis also when it is small again.
    pub(crate) fn keep_signs(&mut self) {
        self.first = KEEPS_SIGNS;
    }

    /// When it expires; none if it stays.
    pub(crate) fn expires(&self) -> Option<u64> {
        Some(self.expires).filter(|at| *at != 0)
    }

    /// The same, which expires then, or stays.
    pub(crate) fn expiring(self, at: Option<u64>) -> Self {
        Self { expires: at.unwrap_or(0), ..self }
    }

    /// The key in the store of what is in this collection under `parts`.
    pub(crate) fn element(&self, parts: &[&[u8]]) -> Vec<u8> {
        let mut key = Vec::with_capacity(ELEMENT_HEAD + parts.iter().map(|part| part.len()).sum::<usize>());
        key.push(ELEMENTS);
        key.extend_from_slice(&self.id.to_be_bytes());
        parts.iter().for_each(|part| key.extend_from_slice(part));
        key
    }

    /// All its elements whose keys go on with `parts`.
    pub(crate) fn elements(&self, parts: &[&[u8]]) -> Keys {
        Keys::prefix(&self.element(parts))
    }
}

/// Where a field or member stands among the others: any order, the same for ever. Never 0, which is where a scan begins and what it ends with. The seed is the
/// store's, so that no client can choose names that stand at one place.
pub(crate) fn name_hash(seed: u64, name: &[u8]) -> [u8; 8] {
    xxh3_64_with_seed(name, seed).max(1).to_be_bytes()
}

/// A key as it is in the store.
pub(crate) fn stored(db: u8, key: &[u8]) -> Vec<u8> {
    let mut stored = Vec::with_capacity(1 + key.len());
    stored.push(db);
    stored.extend_from_slice(key);
    stored
}

/// A key as it is in the store, as short as most are.
pub(crate) type Key = Headed<64>;

/// All keys of a database that begin with `prefix`.
pub(crate) fn all(db: u8, prefix: &[u8]) -> Keys {
    Keys::prefix(&stored(db, prefix))
}

/// The bytes of a string that is one pair; none if the value is something else.
pub(crate) fn string(value: &[u8]) -> Option<&[u8]> {
    match value {
        [STRING, bytes @ ..] => Some(bytes),
        [FLAGGED, rest @ ..] => rest.get(FLAGS..),
        [MARKED, rest @ ..] => rest.get(1 + FLAGS..),
        _ => None,
    }
}

/// Whether a value is a string, wherever its bytes lie.
pub(crate) fn is_string(value: &[u8]) -> bool {
    string(value).is_some() || value.first() == Some(&chunks::CHUNKED)
}

/// Memcached's flags of a string that is one pair.
pub(crate) fn flags(value: &[u8]) -> u32 {
    match value {
        [FLAGGED, a, b, c, d, ..] | [MARKED, _, a, b, c, d, ..] => u32::from_be_bytes([*a, *b, *c, *d]),
        _ => 0,
    }
}

/// Memcached's marks of such a string.
pub(crate) fn marks(value: &[u8]) -> u8 {
    if let [MARKED, marks, ..] = value { *marks } else { 0 }
}

/// Whether there is any collection, or what is left of one.
pub(crate) fn any_collection(engine: &dyn engine::Engine) -> Result<bool> {
    let mut any = false;
    engine.read(&mut |tx| {
        tx.scan(Keys::prefix(&[ELEMENTS]), &mut |_, _| {
            any = true;
            ControlFlow::Break(())
        })
    })?;
    Ok(any)
}

/// A string as memcached's clients write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item<'v> {
    pub(crate) flags: u32,
    pub(crate) marks: u8,
    pub(crate) bytes: &'v [u8],
}

impl Item<'_> {
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(2 + FLAGS + self.bytes.len());
        match (self.marks, self.flags) {
            (0, 0) => value.push(STRING),
            (0, _) => value.push(FLAGGED),
            (marks, _) => value.extend_from_slice(&[MARKED, marks]),
        }
        if value[0] != STRING {
            value.extend_from_slice(&self.flags.to_be_bytes());
        }
        value.extend_from_slice(self.bytes);
        value
    }
}

/// Ids of collections: a number that is drawn at each start from the store, and a count.
#[derive(Debug)]
pub(crate) struct Ids(AtomicU64);

/// Collections that one start may make.
const IDS: u64 = 1 << 40;

impl Ids {
    /// Draws the number of this start. A store that is full may have no room for it: then no collection is made before it has.
    pub(crate) fn draw(engine: &dyn engine::Engine, failpoints: Failpoints) -> Result<Self> {
        let this = Self(AtomicU64::new(0));
        match this.draw_again(engine, failpoints) {
            Ok(()) => Ok(this),
            Err(Error::Full(why) | Error::Memory(why) | Error::LogFull(why)) => {
                tracing::warn!("no collection can be made until there is room: {why}");
                Ok(this)
            }
            Err(error) => Err(error),
        }
    }

    /// Of a server that makes no collections.
    pub(crate) fn none() -> Self {
        Self(AtomicU64::new(0))
    }

    pub(crate) fn draw_again(&self, engine: &dyn engine::Engine, failpoints: Failpoints) -> Result<()> {
        let key = [&[META], &b"start"[..]].concat();
        let mut number = 0;
        engine.write(&mut |tx| {
            number = tx.get(&key)?.and_then(|value| value.try_into().ok()).map_or(0, u64::from_be_bytes) + 1;
            tx.put(&key, &number.to_be_bytes(), None)
        })?;
        let number = if failpoints.skips(Step::FreshIds) { 1 } else { number };
        self.0.store(number.wrapping_mul(IDS), SeqCst);
        Ok(())
    }

    pub(crate) fn are_drawn(&self) -> bool {
        self.0.load(Relaxed) != 0
    }

    pub(crate) fn next(&self) -> Result<u64> {
        if !self.are_drawn() {
            return Err(Error::Full("the store was full when the server started; delete something first".to_owned()));
        }
        Ok(self.0.fetch_add(1, Relaxed))
    }
}

/// What the store says of itself in one record: its seed, and behind it what servers from before do not know. They say that the seed is not 8 bytes long, and do not start.
///
/// | behind the seed | |
/// |---|---|
/// | a byte, [`FORM`] | there are strings in [chunks]: such a server would take one for a value of another type, copy its head, and leave its chunks without an owner |
/// | 16 bytes | the map of the [databases](crate::databases), where it changes a number |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoreRecord {
    /// That of [`place`]; 0 in a store that has had collections before there were seeds.
    pub(crate) seed: u64,
    pub(crate) has_long: bool,
    pub(crate) map: Option<[u8; DATABASES as usize]>,
}

const FORM: u8 = 1;

impl StoreRecord {
    const SEED: usize = 8;
    const MAP: usize = DATABASES as usize;

    /// The store's; none if it has none.
    pub(crate) fn of(tx: &dyn Tx) -> Result<Option<Self>> {
        tx.get(&Self::key())?.map(Self::read).transpose()
    }

    pub(crate) fn put(&self, tx: &mut dyn Tx) -> Result<()> {
        tx.put(&Self::key(), &self.write(), None)
    }

    fn key() -> Vec<u8> {
        [&[META], &b"seed"[..]].concat()
    }

    fn read(value: &[u8]) -> Result<Self> {
        let (seed, rest) = value
            .split_first_chunk::<{ Self::SEED }>()
            .ok_or_else(|| Error::Damaged(format!("the seed of the store is {} bytes long, not 8", value.len())))?;
        let (form, map) = rest.split_at(usize::from(matches!(rest.len(), 1) || rest.len() == 1 + Self::MAP));
        let map = <[u8; Self::MAP]>::try_from(map).ok();
        if !matches!(rest.len() - form.len(), 0 | Self::MAP) || !matches!(form, [] | [FORM]) {
            let why = format!(
                "{} bytes stand behind the seed of the store, which a newer server has written; next: serve it with that version or a later one",
                rest.len()
            );
            return Err(Error::Other(why));
        }
        Ok(Self { seed: u64::from_be_bytes(*seed), has_long: !form.is_empty(), map })
    }

    fn write(&self) -> Vec<u8> {
        let form: &[u8] = if self.has_long { &[FORM] } else { &[] };
        [&self.seed.to_be_bytes()[..], form, self.map.as_ref().map_or(&[], |map| &map[..])].concat()
    }
}

/// The seed of [`place`] in this store: drawn while it has no collection, 0 for one that has some without a seed, and while there is no room.
pub(crate) fn seed(engine: &dyn engine::Engine, any_collection: bool, drawn: u64) -> Result<u64> {
    let mut seed = 0;
    let found = engine.write(&mut |tx| {
        seed = match StoreRecord::of(tx)? {
            Some(record) => record.seed,
            None if any_collection => 0,
            None => {
                StoreRecord { seed: drawn.max(1), has_long: false, map: None }.put(tx)?;
                drawn.max(1)
            }
        };
        Ok(())
    });
    match found {
        Err(Error::Full(_) | Error::Memory(_) | Error::LogFull(_)) => Ok(0),
        found => found.map(|()| seed),
    }
}

/// Notes in the store that it has long strings: from then on servers that do not know them refuse it. True if that has been committed before.
pub(crate) fn note_form(tx: &mut dyn Tx, seed: u64) -> Result<bool> {
    let record = StoreRecord::of(tx)?.unwrap_or(StoreRecord { seed, has_long: false, map: None });
    if record.has_long {
        return Ok(tx.version(&StoreRecord::key())?.is_some());
    }
    StoreRecord { has_long: true, ..record }.put(tx)?;
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::chunks::Found;
    use super::*;

    #[test]
    fn heads_are_read_as_they_were_written() {
        for kind in Kind::ALL.into_iter().skip(1) {
            let last = streams::Id { ms: 7, seq: 8 };
            let marks = if kind == Kind::Stream {
                Marks { last, added: 9, deleted: last, first: last }
            } else {
                Marks::default()
            };
            let head = Head { count: 3, first: 7, expires: u64::MAX, marks, ..Head::new(kind, 5) };
            let written = head.write();
            assert_eq!(Head::read(&written), Some(head));
            assert_eq!(Kind::of(&written), kind);
            for other in [&written[..written.len() - 1], &[&written[..], &[0]].concat()] {
                assert_eq!(Head::read(other), None, "{kind:?}: {} bytes", other.len());
            }
        }
        assert!(Head::read(b"h").is_none() && Head::read(&[b's'; Head::BYTES]).is_none() && Head::read(&[]).is_none());
    }

    #[test]
    fn the_record_of_the_store_is_read_as_it_was_written() {
        for has_long in [false, true] {
            for map in [None, Some([7; 16])] {
                let record = StoreRecord { seed: 1 << 40 | 5, has_long, map };
                let written = record.write();
                assert_eq!(written.len(), 8 + usize::from(has_long) + map.map_or(0, |map| map.len()));
                assert_eq!(StoreRecord::read(&written), Ok(record));
            }
        }
        let newer = [&[0; 8][..], &[FORM + 1]].concat();
        assert!(
            [&newer[..], &[0; 7], &[0; 10], &[0; 8 + 18], &[]].iter().all(|bytes| StoreRecord::read(bytes).is_err())
        );
    }

    #[test]
    fn strings_have_flags_or_none() {
        assert_eq!((string(b"sab"), flags(b"sab")), (Some(&b"ab"[..]), 0));
        assert_eq!((string(b"f\0\0\x01\x02ab"), flags(b"f\0\0\x01\x02ab")), (Some(&b"ab"[..]), 258));
        assert_eq!((string(b"f\0"), string(b"h"), string(b"")), (None, None, None));
        for (flags, marks) in [(0, 0), (7, 0), (0, STALE), (u32::MAX, STALE | WON)] {
            let item = Item { flags, marks, bytes: b"ab" };
            let text = chunks::Text::Whole(&b"ab"[..]);
            assert_eq!(Found::read(&item.write()), Ok(Some(Found { flags, marks, text })));
            assert_eq!(Kind::of(&item.write()), Kind::String);
        }
        assert_eq!((Found::read(b"m\0\0\0\0"), Found::read(b"h")), (Ok(None), Ok(None)));
    }
}
