//! Any value. Its first byte says in which form it follows; what is written has the plainest one that every Redis since 5 reads.

use std::collections::BTreeSet;
use std::io::Read;

use super::bytes::{Error, Input, Result, Room, put_length, put_string};
use super::packed::{intset, listpack, ziplist};
use super::stream::Stream;

const STRING: u8 = 0;
const LIST: u8 = 1;
const SET: u8 = 2;
const SORTED_TEXT: u8 = 3;
const HASH: u8 = 4;
const SORTED: u8 = 5;
const LIST_ZIPLIST: u8 = 10;
const SET_INTSET: u8 = 11;
const SORTED_ZIPLIST: u8 = 12;
const HASH_ZIPLIST: u8 = 13;
const LIST_OF_ZIPLISTS: u8 = 14;
const STREAM: u8 = 15;
const HASH_LISTPACK: u8 = 16;
const SORTED_LISTPACK: u8 = 17;
const LIST_OF_LISTPACKS: u8 = 18;
const STREAM_2: u8 = 19;
const SET_LISTPACK: u8 = 20;
const STREAM_3: u8 = 21;

/// What a key has.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Bytes.
    String(Vec<u8>),
    /// Elements in their order.
    List(Vec<Vec<u8>>),
    /// Members, each once.
    Set(Vec<Vec<u8>>),
    /// Members, each once, and scores, none of which is not a number.
    Sorted(Vec<(Vec<u8>, f64)>),
    /// Fields, each once, and values.
    Hash(Vec<(Vec<u8>, Vec<u8>)>),
    /// Entries and groups.
    Stream(Stream),
}

fn score(text: &[u8]) -> Result<f64> {
    let score = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    score.filter(|score: &f64| !score.is_nan()).ok_or(Error::Bad("a score that is no number"))
}

/// Two by two.
fn pairs(elements: Vec<Vec<u8>>) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut elements = elements.into_iter();
    let mut pairs = Vec::new();
    while let Some(first) = elements.next() {
        pairs.push((first, elements.next().ok_or(Error::Bad("a field without a value"))?));
    }
    Ok(pairs)
}

fn scored(elements: Vec<Vec<u8>>) -> Result<Vec<(Vec<u8>, f64)>> {
    pairs(elements)?.into_iter().map(|(member, text)| Ok((member, score(&text)?))).collect()
}

fn strings<R: Read>(input: &mut Input<R>, count: u64) -> Result<Vec<Vec<u8>>> {
    (0..count).map(|_| input.element()).collect()
}

/// The elements that stand in one string.
fn packed<R: Read>(
    input: &mut Input<R>,
    read: impl FnOnce(&[u8], &mut Room) -> Result<Vec<Vec<u8>>>,
) -> Result<Vec<Vec<u8>>> {
    let bytes = input.element()?;
    read(&bytes, &mut input.room)
}

impl Value {
    /// The value whose form and bytes these are, and nothing behind them. It may take so many bytes of memory beside a multiple of theirs: [`ROOM`](super::ROOM) for what
    /// comes from outside.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn of(body: &[u8], room: u64) -> Result<Self> {
        let (form, rest) = body.split_first().ok_or(Error::Ends)?;
        let mut input = Input::new(rest).with_room(room);
        let value = Self::read(*form, &mut input)?;
        if input.is_at_end() { Ok(value) } else { Err(Error::Bad("it goes on behind its end")) }
    }

    /// Whether a file of the version that is written here may have this form, for a Redis without modules.
    pub fn is_of_version(form: u8) -> bool {
        matches!(form, STRING..=SORTED | LIST_ZIPLIST..=STREAM_2)
    }

    /// Whether this is a form of a list, a set, a sorted set or a hash.
    pub fn is_collection(form: u8) -> bool {
        matches!(form, LIST..=SORTED | LIST_ZIPLIST..=LIST_OF_ZIPLISTS | HASH_LISTPACK..=LIST_OF_LISTPACKS | SET_LISTPACK)
    }

    /// The value whose first byte is `form`.
    ///
    /// # Errors
    /// What is read is no value, or one that is not known here.
    pub fn read<R: Read>(form: u8, input: &mut Input<R>) -> Result<Self> {
        let value = match form {
            STRING => Self::String(input.string()?),
            LIST | SET => {
                let count = input.length()?;
                let elements = strings(input, count)?;
                if form == LIST { Self::List(elements) } else { Self::Set(elements) }
            }
            SORTED_TEXT | SORTED => {
                let count = input.length()?;
                let member = |_| {
                    let member = input.element()?;
                    let score = if form == SORTED { f64::from_le_bytes(input.array()?) } else { old_score(input)? };
                    Ok((member, score))
                };
                Self::Sorted((0..count).map(member).collect::<Result<_>>()?)
            }
            HASH => {
                let count = input.length()?;
                Self::Hash((0..count).map(|_| Ok((input.element()?, input.element()?))).collect::<Result<_>>()?)
            }
            LIST_ZIPLIST => Self::List(packed(input, ziplist)?),
            SET_INTSET => Self::Set(packed(input, intset)?),
            SET_LISTPACK => Self::Set(packed(input, listpack)?),
            SORTED_ZIPLIST => Self::Sorted(scored(packed(input, ziplist)?)?),
            SORTED_LISTPACK => Self::Sorted(scored(packed(input, listpack)?)?),
            HASH_ZIPLIST => Self::Hash(pairs(packed(input, ziplist)?)?),
            HASH_LISTPACK => Self::Hash(pairs(packed(input, listpack)?)?),
            LIST_OF_ZIPLISTS | LIST_OF_LISTPACKS => {
                let mut elements = Vec::new();
                for _ in 0..input.length()? {
                    let plain = form == LIST_OF_LISTPACKS && input.length()? == 1;
                    match form {
                        _ if plain => elements.push(input.element()?),
                        LIST_OF_ZIPLISTS => elements.extend(packed(input, ziplist)?),
                        _ => elements.extend(packed(input, listpack)?),
                    }
                }
                Self::List(elements)
            }
            STREAM => Self::Stream(Stream::read(input, 1)?),
            STREAM_2 => Self::Stream(Stream::read(input, 2)?),
            STREAM_3 => Self::Stream(Stream::read(input, 3)?),
            6 | 7 => return Err(Error::Unsupported("values of modules".to_owned())),
            9 => return Err(Error::Unsupported("hashes of Redis before 2.6".to_owned())),
            22..=25 => return Err(Error::Unsupported("hashes whose fields expire".to_owned())),
            other => return Err(Error::Unsupported(format!("values of form {other}"))),
        };
        value.check()?;
        Ok(value)
    }

    /// No collection is empty, none has a name twice, no score is none.
    fn check(&self) -> Result<()> {
        fn once<'v>(count: usize, names: impl Iterator<Item = &'v Vec<u8>>) -> bool {
            count > 0 && names.collect::<BTreeSet<_>>().len() == count
        }
        let good = match self {
            Self::String(_) | Self::Stream(_) => true,
            Self::List(elements) => !elements.is_empty(),
            Self::Set(members) => once(members.len(), members.iter()),
            Self::Sorted(members) => {
                once(members.len(), members.iter().map(|(member, _)| member))
                    && members.iter().all(|(_, score)| !score.is_nan())
            }
            Self::Hash(fields) => once(fields.len(), fields.iter().map(|(field, _)| field)),
        };
        if good { Ok(()) } else { Err(Error::Bad("a collection that is empty, or has an element twice")) }
    }

    /// Appends the value, its form first.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::String(string) => {
                bytes.push(STRING);
                put_string(bytes, string);
            }
            Self::List(elements) | Self::Set(elements) => {
                bytes.push(if matches!(self, Self::List(_)) { LIST } else { SET });
                put_length(bytes, elements.len() as u64);
                elements.iter().for_each(|element| put_string(bytes, element));
            }
            Self::Sorted(members) => {
                bytes.push(SORTED);
                put_length(bytes, members.len() as u64);
                for (member, score) in members {
                    put_string(bytes, member);
                    bytes.extend_from_slice(&score.to_le_bytes());
                }
            }
            Self::Hash(fields) => {
                bytes.push(HASH);
                put_length(bytes, fields.len() as u64);
                for (field, value) in fields {
                    put_string(bytes, field);
                    put_string(bytes, value);
                }
            }
            Self::Stream(stream) => {
                bytes.push(STREAM_2);
                stream.write(bytes);
            }
        }
    }
}

/// A score as text behind its length, of which three stand for what is no text.
fn old_score<R: Read>(input: &mut Input<R>) -> Result<f64> {
    match input.byte()? {
        253 => Err(Error::Bad("a score that is no number")),
        254 => Ok(f64::INFINITY),
        255 => Ok(f64::NEG_INFINITY),
        length => score(&input.take(length.into())?),
    }
}
