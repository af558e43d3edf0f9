//! A collection that is too long for one command: its elements go in several.

use redis::RedisResult;
use server::rdb::{self, Value};

use super::peer::Peer;
use super::unfinished::LEASE;
use crate::failure::Failure;

/// Bytes and elements of a collection that goes as a whole.
const WHOLE: usize = 8 << 20;
const WHOLE_ELEMENTS: usize = 200_000;
/// Elements of a command, and bytes of them.
const ELEMENTS: usize = 1000;
const ELEMENT_BYTES: usize = 1 << 20;
/// Bytes of memory that one may take here.
const ROOM: u64 = 16 << 30;

pub struct Collection {
    command: &'static str,
    counted_by: &'static str,
    count: usize,
    words: Vec<Vec<u8>>,
}

impl Collection {
    /// The collection of this body; none if it goes as a whole.
    pub fn of(body: &[u8]) -> Result<Option<Self>, rdb::Error> {
        if !Value::is_collection(body.first().copied().unwrap_or_default()) {
            return Ok(None);
        }
        let value = Value::of(body, ROOM)?;
        let bytes = |all: &mut dyn Iterator<Item = usize>| all.sum::<usize>();
        let (count, bytes) = match &value {
            Value::List(all) | Value::Set(all) => (all.len(), bytes(&mut all.iter().map(Vec::len))),
            Value::Hash(all) => (all.len(), bytes(&mut all.iter().map(|(field, value)| field.len() + value.len()))),
            Value::Sorted(all) => (all.len(), bytes(&mut all.iter().map(|(member, _)| member.len() + 8))),
            Value::String(_) | Value::Stream(_) => return Ok(None),
        };
        if count <= WHOLE_ELEMENTS && bytes <= WHOLE && body.len() <= WHOLE {
            return Ok(None);
        }
        let (command, counted_by, words) = match value {
            Value::List(elements) => ("RPUSH", "LLEN", elements),
            Value::Set(members) => ("SADD", "SCARD", members),
            Value::Hash(fields) => {
                ("HSET", "HLEN", fields.into_iter().flat_map(|(field, value)| [field, value]).collect())
            }
            Value::Sorted(members) => ("ZADD", "ZCARD", scores_and_members(members)),
            Value::String(_) | Value::Stream(_) => return Ok(None),
        };
        Ok(Some(Self { command, counted_by, count, words }))
    }

    /// How many elements it has when it is whole, and which command says so.
    pub fn count(&self) -> usize {
        self.count
    }

    pub fn counted_by(&self) -> &'static str {
        self.counted_by
    }

    /// Makes it under that name; an inner error is a refusal.
    pub fn build(&self, peer: &mut Peer, name: &[u8]) -> Result<RedisResult<()>, Failure> {
        if let Err(error) = peer.try_ask::<redis::Value>(redis::cmd("DEL").arg(name))? {
            return Ok(Err(error));
        }
        let mut rest = &self.words[..];
        while !rest.is_empty() {
            let (mut count, mut bytes) = (0, 0);
            while count < rest.len() && (count % 2 == 1 || count < ELEMENTS && bytes < ELEMENT_BYTES) {
                bytes += rest[count].len();
                count += 1;
            }
            let mut commands = redis::pipe();
            commands.cmd(self.command).arg(name).arg(&rest[..count]);
            commands.cmd("PEXPIRE").arg(name).arg(LEASE.as_millis() as u64);
            if let Some(error) = peer.ask_all::<redis::Value>(commands)?.into_iter().find_map(Result::err) {
                return Ok(Err(error));
            }
            rest = &rest[count..];
        }
        Ok(Ok(()))
    }
}

/// As `ZADD` takes them. Servers drop the sign of a zero while a set is small, and do not take it for a change: so these have another score first.
fn scores_and_members(members: Vec<(Vec<u8>, f64)>) -> Vec<Vec<u8>> {
    let (mut words, mut negative) = (Vec::new(), Vec::new());
    for (member, score) in members {
        if score == 0.0 && score.is_sign_negative() {
            negative.extend([b"-0".to_vec(), member.clone()]);
            words.extend([b"1".to_vec(), member]);
        } else {
            words.extend([format!("{score}").into_bytes(), member]);
        }
    }
    words.extend(negative);
    words
}
