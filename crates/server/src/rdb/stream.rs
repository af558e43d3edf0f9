//! Streams: their entries in nodes of listpacks, then what is known of them, then their groups.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use super::bytes::{ELEMENT, Error, Input, Result, Room, put_length, put_string};
use super::packed::{self, Listpack, number};
pub use crate::data::streams::Id;

/// Entries of a node, and bytes of one, at most: as Redis has them.
const NODE_ENTRIES: usize = 100;
const NODE_BYTES: usize = 4096;

/// An entry that was deleted.
const DELETED: i64 = 1;
/// One whose fields are those that its node begins with.
const SAME_FIELDS: i64 = 2;

const BAD: Error = Error::Bad("a stream that is not whole");

/// A stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    /// In order: fields and values in turn.
    pub entries: Vec<(Id, Vec<Vec<u8>>)>,
    /// The highest id there has been.
    pub last: Id,
    /// The highest id that was deleted by itself.
    pub deleted: Id,
    /// Entries there have been.
    pub added: u64,
    /// In order of their names.
    pub groups: Vec<Group>,
}

/// A group of consumers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: Vec<u8>,
    /// What was sent last.
    pub last: Id,
    /// Entries up to there, since the stream began; -1 if that is not known.
    pub read: i64,
    /// In order of their names.
    pub consumers: Vec<Consumer>,
}

/// One of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consumer {
    /// Its name.
    pub name: Vec<u8>,
    /// When it asked for something last, in milliseconds of Unix time.
    pub seen: u64,
    /// What was sent to it, and is not acknowledged, in order.
    pub pending: Vec<Pending>,
}

/// What was sent, and is not acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// The entry, which may be gone.
    pub id: Id,
    /// When it was sent last, in milliseconds of Unix time.
    pub delivered: u64,
    /// How often.
    pub deliveries: u64,
}

fn id_of<R: Read>(input: &mut Input<R>) -> Result<Id> {
    Ok(Id { ms: input.length()?, seq: input.length()? })
}

fn put_id(bytes: &mut Vec<u8>, id: Id) {
    put_length(bytes, id.ms);
    put_length(bytes, id.seq);
}

fn raw_id<R: Read>(input: &mut Input<R>) -> Result<Id> {
    Id::last_of(&input.array::<16>()?).ok_or(BAD)
}

impl Stream {
    /// `form` is 1 for Redis 5 and 6, 2 for 7.0, 3 for later ones.
    pub(super) fn read<R: Read>(input: &mut Input<R>, form: u8) -> Result<Self> {
        let mut stream = Self::default();
        for _ in 0..input.length()? {
            let first = Id::last_of(&input.string()?).ok_or(BAD)?;
            let node = input.element()?;
            let elements = packed::listpack(&node, &mut input.room)?;
            input.room.give(elements.len() as u64 * ELEMENT); // what of them stays counts with the entries
            stream.read_node(first, elements, &mut input.room)?;
        }
        let count = input.length()?;
        if count != stream.entries.len() as u64 || stream.entries.windows(2).any(|two| two[0].0 >= two[1].0) {
            return Err(BAD);
        }
        stream.last = id_of(input)?;
        if stream.entries.last().is_some_and(|(id, _)| *id > stream.last) {
            return Err(BAD);
        }
        stream.added = count;
        if form >= 2 {
            id_of(input)?; // of the first entry
            stream.deleted = id_of(input)?;
            stream.added = input.length()?;
            if stream.added < count || stream.deleted > stream.last {
                return Err(BAD);
            }
        }
        for _ in 0..input.length()? {
            stream.groups.push(Group::read(input, form)?);
        }
        stream.groups.sort_by(|a, b| a.name.cmp(&b.name));
        if stream.groups.windows(2).any(|two| two[0].name == two[1].name) {
            return Err(BAD);
        }
        Ok(stream)
    }

    /// The entries of a node, whose ids are said as differences to `first`.
    fn read_node(&mut self, first: Id, elements: Vec<Vec<u8>>, room: &mut Room) -> Result<()> {
        let mut elements = elements.into_iter();
        let mut next = || elements.next().ok_or(BAD);
        let (live, dead) = (number(&next()?)?, number(&next()?)?);
        let mut strings = |count: i64| -> Result<Vec<Vec<u8>>> { (0..count).map(|_| next()).collect() };
        let fields = number(&strings(1)?[0])?;
        let fields = strings(fields)?;
        let fields_bytes: usize = fields.iter().map(Vec::len).sum();
        if strings(1)?[0] != b"0" {
            return Err(BAD);
        }
        let (mut found, mut gone) = (0, 0);
        for _ in 0..live.checked_add(dead).ok_or(BAD)? {
            let head = strings(3)?;
            let (flags, ms, seq) = (number(&head[0])?, number(&head[1])?, number(&head[2])?);
            let id = Id { ms: first.ms.wrapping_add_signed(ms), seq: first.seq.wrapping_add_signed(seq) };
            let entry = if flags & SAME_FIELDS != 0 {
                let values = strings(fields.len() as i64)?;
                room.hold(fields_bytes as u64)?;
                fields.iter().cloned().zip(values).flat_map(|(field, value)| [field, value]).collect()
            } else {
                let count = number(&strings(1)?[0])?;
                strings(count.checked_mul(2).ok_or(BAD)?)?
            };
            strings(1)?; // how many elements this was: for readers from the end
            room.hold((1 + entry.len() as u64) * ELEMENT)?;
            if flags & DELETED != 0 {
                gone += 1;
            } else if entry.is_empty() {
                return Err(BAD);
            } else {
                found += 1;
                self.entries.push((id, entry));
            }
        }
        let whole = found == live && gone == dead && elements.next().is_none();
        if whole { Ok(()) } else { Err(BAD) }
    }

    /// In the form of Redis 7.0.
    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        let nodes = self.nodes();
        put_length(bytes, nodes.len() as u64);
        for (first, node) in nodes {
            put_string(bytes, &first.bytes());
            put_string(bytes, &node);
        }
        put_length(bytes, self.entries.len() as u64);
        put_id(bytes, self.last);
        put_id(bytes, self.entries.first().map_or(Id::MIN, |(id, _)| *id));
        put_id(bytes, self.deleted);
        put_length(bytes, self.added);
        put_length(bytes, self.groups.len() as u64);
        self.groups.iter().for_each(|group| group.write(bytes));
    }

    fn nodes(&self) -> Vec<(Id, Vec<u8>)> {
        let mut nodes = Vec::new();
        let mut rest = &self.entries[..];
        while let Some((first, _)) = rest.first() {
            let (mut body, mut count) = (Listpack::new(), 0);
            while let Some((id, entry)) = rest.get(count).filter(|_| count < NODE_ENTRIES && body.len() < NODE_BYTES) {
                body.int(0);
                body.int(id.ms.wrapping_sub(first.ms) as i64);
                body.int(id.seq.wrapping_sub(first.seq) as i64);
                body.int(entry.len() as i64 / 2);
                entry.iter().for_each(|word| body.string(word));
                body.int(entry.len() as i64 + 4);
                count += 1;
            }
            // How many there are, deleted ones, fields that they share, and the end of those.
            let mut node = Listpack::new();
            [count as i64, 0, 0, 0].into_iter().for_each(|number| node.int(number));
            nodes.push((*first, node.followed_by(body).finish()));
            rest = &rest[count..];
        }
        nodes
    }
}

impl Group {
    fn read<R: Read>(input: &mut Input<R>, form: u8) -> Result<Self> {
        let mut group = Self { name: input.element()?, last: id_of(input)?, read: -1, consumers: Vec::new() };
        if form >= 2 {
            group.read = input.length()? as i64;
        }
        let mut sent = BTreeMap::new();
        for _ in 0..input.length()? {
            let id = raw_id(input)?;
            let delivered = u64::from_le_bytes(input.array()?);
            let pending = Pending { id, delivered, deliveries: input.length()? };
            if sent.insert(id, pending).is_some() {
                return Err(BAD);
            }
        }
        let mut names = BTreeSet::new();
        for _ in 0..input.length()? {
            let name = input.element()?;
            let mut seen = u64::from_le_bytes(input.array()?);
            if form >= 3 {
                // When it was given something last: never, or not before it asked.
                let active = u64::from_le_bytes(input.array()?);
                seen = if active == u64::MAX { seen } else { seen.max(active) };
            }
            let mut pending = Vec::new();
            for _ in 0..input.length()? {
                pending.push(sent.remove(&raw_id(input)?).ok_or(BAD)?);
            }
            pending.sort_by_key(|pending| pending.id);
            if !names.insert(name.clone()) {
                return Err(BAD);
            }
            group.consumers.push(Consumer { name, seen, pending });
        }
        group.consumers.sort_by(|a, b| a.name.cmp(&b.name));
        // Each is with a consumer.
        if sent.is_empty() { Ok(group) } else { Err(BAD) }
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        put_string(bytes, &self.name);
        put_id(bytes, self.last);
        put_length(bytes, self.read as u64);
        let mut sent: Vec<&Pending> = self.consumers.iter().flat_map(|consumer| &consumer.pending).collect();
        sent.sort_by_key(|pending| pending.id);
        put_length(bytes, sent.len() as u64);
        for pending in sent {
            bytes.extend_from_slice(&pending.id.bytes());
            bytes.extend_from_slice(&pending.delivered.to_le_bytes());
            put_length(bytes, pending.deliveries);
        }
        put_length(bytes, self.consumers.len() as u64);
        for consumer in &self.consumers {
            put_string(bytes, &consumer.name);
            bytes.extend_from_slice(&consumer.seen.to_le_bytes());
            put_length(bytes, consumer.pending.len() as u64);
            consumer.pending.iter().for_each(|pending| bytes.extend_from_slice(&pending.id.bytes()));
        }
    }
}
