//! Where keys come from: a file, or a server that is asked for one after the other.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::io::Read;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use redis::Value;
use server::rdb::{self, Entry, FileReader};

use super::bad;
use super::peer::Peer;
use crate::failure::Failure;

/// Keys that are asked for at a time.
const AT_A_TIME: usize = 100;

/// What there is.
pub enum Item {
    /// The code of a library of functions.
    Function(Vec<u8>),
    /// Several, as in a file.
    Functions(Vec<u8>),
    /// A key.
    Key(Key),
}

/// A key, with its value as it stands in a file of this version.
pub struct Key {
    pub db: u64,
    pub key: Vec<u8>,
    /// In milliseconds of Unix time.
    pub expires: Option<u64>,
    pub body: Vec<u8>,
    pub version: u16,
    /// The same as `body`, if it was read.
    pub value: Option<rdb::Value>,
}

pub enum Source {
    File(PathBuf, FileReader<Box<dyn Read>>),
    Server(Box<Scan>),
}

/// Goes through a server, database by database.
pub struct Scan {
    peer: Peer,
    databases: VecDeque<u64>,
    cursor: u64,
    /// A server may name a key twice.
    seen: HashSet<Vec<u8>>,
    named: VecDeque<Vec<u8>>,
    found: VecDeque<Item>,
    begun: bool,
    /// All keys of the database have been named.
    named_all: bool,
    /// It tells when a key expires; Redis before 7 tells how long that takes.
    tells_moments: bool,
}

impl Source {
    pub fn scan(mut peer: Peer) -> Result<Self, Failure> {
        let info: String = peer.ask(redis::cmd("INFO").arg("keyspace"))?;
        let number = |line: &str| line.strip_prefix("db")?.split(':').next()?.parse().ok();
        let tells_moments = peer.try_ask::<Value>(redis::cmd("PEXPIRETIME").arg(""))?.is_ok();
        // What `INFO` counts may be some seconds old.
        let mut databases: BTreeSet<u64> = info.lines().filter_map(number).chain(0..16).collect();
        for db in databases.clone() {
            if peer.try_ask::<Value>(redis::cmd("SELECT").arg(db))?.is_err() {
                databases.remove(&db);
            }
        }
        peer.ask::<Value>(redis::cmd("SELECT").arg(0))?;
        let databases = databases.into_iter().collect();
        Ok(Self::Server(Box::new(Scan {
            peer,
            databases,
            cursor: 0,
            seen: HashSet::new(),
            named: VecDeque::new(),
            found: VecDeque::new(),
            begun: false,
            named_all: false,
            tells_moments,
        })))
    }

    pub fn next(&mut self) -> Result<Option<Item>, Failure> {
        match self {
            Self::File(path, reader) => {
                let version = reader.version();
                let entry = reader.next_entry().map_err(|error| bad(path, &error))?;
                Ok(entry.map(|entry| match entry {
                    Entry::Function(code) => Item::Function(code),
                    Entry::Key { db, key, expires, value, body } => {
                        Item::Key(Key { db, key, expires, body, version, value: Some(value) })
                    }
                }))
            }
            Self::Server(scan) => scan.next(),
        }
    }
}

/// Milliseconds of Unix time.
#[expect(clippy::disallowed_methods, reason = "what expires does so by the time of day")]
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

impl Scan {
    fn next(&mut self) -> Result<Option<Item>, Failure> {
        if !self.begun {
            self.begun = true;
            // Redis before 7 has none.
            if let Ok(payload) = self.peer.try_ask::<Vec<u8>>(redis::cmd("FUNCTION").arg("DUMP"))?
                && let Some((body, _)) = rdb::opened(&payload).filter(|(body, _)| !body.is_empty())
            {
                return Ok(Some(Item::Functions(body.to_vec())));
            }
        }
        loop {
            if let Some(item) = self.found.pop_front() {
                return Ok(Some(item));
            }
            let Some(&db) = self.databases.front() else { return Ok(None) };
            if self.named.is_empty() && self.named_all {
                self.databases.pop_front();
                self.seen.clear();
                self.named_all = false;
                continue;
            }
            if self.named.is_empty() {
                self.named_all = !self.name_more(db)?;
            }
            self.fetch(db)?;
        }
    }

    /// Asks for names; false when the database is through.
    fn name_more(&mut self, db: u64) -> Result<bool, Failure> {
        self.peer.select(db)?;
        let (cursor, keys): (String, Vec<Vec<u8>>) =
            self.peer.ask(redis::cmd("SCAN").arg(self.cursor).arg("COUNT").arg(1000))?;
        self.cursor = cursor.parse().map_err(|_| {
            Failure::new(format!("{}: SCAN answers without a cursor", self.peer.name), "see what server that is")
        })?;
        for key in keys {
            if self.seen.insert(key.clone()) {
                self.named.push_back(key);
            }
        }
        Ok(self.cursor != 0)
    }

    /// Asks for the values of those that were named.
    fn fetch(&mut self, db: u64) -> Result<(), Failure> {
        let keys: Vec<Vec<u8>> = self.named.drain(..self.named.len().min(AT_A_TIME)).collect();
        if keys.is_empty() {
            return Ok(());
        }
        self.peer.select(db)?;
        let mut commands = redis::pipe();
        let expiry = if self.tells_moments { "PEXPIRETIME" } else { "PTTL" };
        for key in &keys {
            commands.cmd("DUMP").arg(key).cmd(expiry).arg(key);
        }
        let answers: Vec<Value> = self
            .peer
            .ask_all(commands)?
            .into_iter()
            .collect::<Result<_, _>>()
            .map_err(|error| self.peer.failure(&error))?;
        let from = if self.tells_moments { 0 } else { now() };
        for (key, answer) in keys.into_iter().zip(answers.chunks_exact(2)) {
            let (Value::BulkString(payload), Value::Int(expires @ -1..)) = (&answer[0], &answer[1]) else { continue }; // gone since
            let Some((body, version)) = rdb::opened(payload) else {
                return Err(Failure::new(
                    format!(
                        "{}: the value of {} has no checksum, or is of a later version",
                        self.peer.name,
                        key.escape_ascii()
                    ),
                    "see what server that is; up to Redis 8 is known",
                ));
            };
            let expires = u64::try_from(*expires).ok().map(|expires| from + expires);
            self.found.push_back(Item::Key(Key { db, key, expires, body: body.to_vec(), version, value: None }));
        }
        Ok(())
    }
}
