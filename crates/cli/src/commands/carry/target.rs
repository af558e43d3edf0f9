//! The server that keys go to.

use redis::{Pipeline, RedisError};
use server::rdb::{self, Input, Value};

use super::peer::Peer;
use super::source::{Item, Key, now};
use crate::failure::Failure;

/// What is sent before an answer is waited for: commands, and bytes.
const COMMANDS: usize = 200;
const BYTES: usize = 4 << 20;
/// Bytes of a collection that is sent whole: of a longer one elements go in several commands.
const WHOLE: usize = 8 << 20;
/// Elements of a command, and bytes of them.
const ELEMENTS: usize = 1000;
const ELEMENT_BYTES: usize = 1 << 20;

/// What was done.
#[derive(Debug, Default)]
pub struct Counts {
    pub keys: u64,
    pub bytes: u64,
    pub there: u64,
    pub expired: u64,
    pub functions: u64,
}

pub struct Target {
    peer: Peer,
    replace: bool,
    /// `RESTORE`s of keys of one database, with these and the bytes of their values.
    waiting: Pipeline,
    names: Vec<(Vec<u8>, usize)>,
    bytes: usize,
    db: u64,
    pub counts: Counts,
}

impl Target {
    pub fn new(peer: Peer, replace: bool) -> Self {
        let counts = Counts::default();
        Self { peer, replace, waiting: redis::pipe(), names: Vec::new(), bytes: 0, db: 0, counts }
    }

    /// The server's.
    pub fn name(&self) -> &str {
        &self.peer.name
    }

    /// Takes what comes next; it is there after [`flush`](Self::flush).
    pub fn put(&mut self, item: Item) -> Result<(), Failure> {
        let Key { db, key, expires, body, version, value } = match item {
            Item::Function(code) => return self.load(&code),
            Item::Functions(mut body) => {
                rdb::close(&mut body, rdb::VERSION);
                let policy = if self.replace { "REPLACE" } else { "APPEND" };
                let answer = self.peer.try_ask::<()>(redis::cmd("FUNCTION").arg("RESTORE").arg(body).arg(policy))?;
                return self.loaded(answer);
            }
            Item::Key(key) => key,
        };
        if expires.is_some_and(|at| at <= now()) {
            self.counts.expired += 1;
            return Ok(());
        }
        if db != self.db || self.names.len() >= COMMANDS || self.bytes + body.len() > BYTES {
            self.flush()?;
        }
        self.peer.select(db)?;
        self.db = db;
        if body.len() > WHOLE && !matches!(body.first(), Some(0 | 15 | 19 | 21)) {
            return self.put_long(&key, expires, &body, value);
        }
        let len = body.len();
        let mut payload = body;
        rdb::close(&mut payload, version);
        let restore = self.waiting.cmd("RESTORE").arg(&key).arg(expires.unwrap_or(0)).arg(payload).arg("ABSTTL");
        if self.replace {
            restore.arg("REPLACE");
        }
        self.names.push((key, len));
        self.bytes += len;
        Ok(())
    }

    /// Afterwards all that was put is there.
    pub fn flush(&mut self) -> Result<(), Failure> {
        let names = std::mem::take(&mut self.names);
        let commands = std::mem::replace(&mut self.waiting, redis::pipe());
        self.bytes = 0;
        if names.is_empty() {
            return Ok(());
        }
        let answers = self.peer.ask_all::<redis::Value>(commands)?;
        for ((key, bytes), answer) in names.into_iter().zip(answers) {
            match answer {
                Ok(_) => self.is_there(bytes),
                Err(error) if error.code() == Some("BUSYKEY") => self.counts.there += 1,
                Err(error) => return Err(self.refused(&key, &error)),
            }
        }
        Ok(())
    }

    fn is_there(&mut self, bytes: usize) {
        self.counts.keys += 1;
        self.counts.bytes += bytes as u64;
    }

    fn load(&mut self, code: &[u8]) -> Result<(), Failure> {
        let mut command = redis::cmd("FUNCTION");
        command.arg("LOAD");
        if self.replace {
            command.arg("REPLACE");
        }
        let answer = self.peer.try_ask::<redis::Value>(command.arg(code))?.map(|_| ());
        self.loaded(answer)
    }

    fn loaded(&mut self, answer: Result<(), RedisError>) -> Result<(), Failure> {
        match answer {
            Ok(()) => self.counts.functions += 1,
            Err(error) if error.to_string().contains("already exists") => {}
            Err(error) => return Err(self.refused(b"a library of functions", &error)),
        }
        Ok(())
    }

    /// A long collection: under a name of its own until it is whole, so that an interrupted import leaves nothing that looks like it.
    fn put_long(&mut self, key: &[u8], expires: Option<u64>, body: &[u8], value: Option<Value>) -> Result<(), Failure> {
        self.flush()?;
        if !self.replace && self.peer.ask::<bool>(redis::cmd("EXISTS").arg(key))? {
            self.counts.there += 1;
            return Ok(());
        }
        let value = match value {
            Some(value) => value,
            None => {
                let (form, mut rest) = (body[0], Input::new(&body[1..]));
                Value::read(form, &mut rest).map_err(|error| {
                    Failure::new(format!("{}: {error}", key.escape_ascii()), "see to the server that it comes from")
                })?
            }
        };
        let (command, elements): (_, Vec<Vec<u8>>) = match value {
            Value::List(elements) => ("RPUSH", elements),
            Value::Set(members) => ("SADD", members),
            Value::Hash(fields) => ("HSET", fields.into_iter().flat_map(|(field, value)| [field, value]).collect()),
            Value::Sorted(members) => {
                let text = |score: f64| format!("{score}").into_bytes();
                ("ZADD", members.into_iter().flat_map(|(member, score)| [text(score), member]).collect())
            }
            Value::String(_) | Value::Stream(_) => return Ok(()),
        };
        let unfinished = [b"cairn:import:unfinished:", key].concat();
        self.peer.ask::<redis::Value>(redis::cmd("DEL").arg(&unfinished))?;
        let mut rest = &elements[..];
        while !rest.is_empty() {
            let (mut count, mut bytes) = (0, 0);
            while count < rest.len() && (count % 2 == 1 || count < ELEMENTS && bytes < ELEMENT_BYTES) {
                bytes += rest[count].len();
                count += 1;
            }
            let answer = self.peer.try_ask::<redis::Value>(redis::cmd(command).arg(&unfinished).arg(&rest[..count]))?;
            answer.map_err(|error| self.refused(key, &error))?;
            rest = &rest[count..];
        }
        if let Some(at) = expires {
            self.peer.ask::<redis::Value>(redis::cmd("PEXPIREAT").arg(&unfinished).arg(at))?;
        }
        let answer = self.peer.try_ask::<redis::Value>(redis::cmd("RENAME").arg(&unfinished).arg(key))?;
        answer.map_err(|error| self.refused(key, &error))?;
        self.is_there(body.len());
        Ok(())
    }

    fn refused(&self, key: &[u8], error: &RedisError) -> Failure {
        Failure::new(
            format!("{}: {} is refused: {error}", self.peer.name, key.escape_ascii()),
            "see to what it says, and run it again: what was taken over stays, and it goes on",
        )
    }
}
