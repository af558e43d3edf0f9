//! Where keys come from: a file, or a server that is asked for one after the other.

use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use redis::{RedisError, RedisResult, Value};
use server::rdb::{self, Entry, FileReader};

use super::peer::{Peer, for_all, said};
use super::unfinished;
use crate::failure::Failure;

/// Keys that are asked for at a time.
const AT_A_TIME: usize = 100;

/// What there is.
pub enum Item {
    /// The code of a library of functions.
    Function(Vec<u8>),
    /// A key.
    Key(Key),
    /// A key that was named, and was gone when its value was asked for: it has expired, or was deleted.
    Gone { db: u64, key: Vec<u8> },
    /// Something that the source has and cannot give.
    Refused { what: String, why: String },
    /// What an interrupted import into the source has left there.
    Unfinished,
}

/// A key, with its value as it stands in a file of this version.
pub struct Key {
    pub db: u64,
    pub key: Vec<u8>,
    /// In milliseconds of Unix time.
    pub expires: Option<u64>,
    /// How it was used, if the source has said so.
    pub idle: Option<u64>,
    pub frequency: Option<u8>,
    pub body: Vec<u8>,
    pub version: u16,
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
    /// A file; `-` is standard input.
    pub fn file(path: &Path) -> Result<Self, Failure> {
        let from: Box<dyn Read> = if path == Path::new("-") {
            Box::new(BufReader::new(io::stdin()))
        } else {
            if path.is_dir() {
                let next = format!("give a file in it, such as {}", path.join("dump.rdb").display());
                return Err(Failure::new(format!("{}: it is a directory", path.display()), next));
            }
            let file = File::open(path).map_err(|error| Failure::file("open", path, &error))?;
            Box::new(BufReader::with_capacity(1 << 20, file))
        };
        Ok(Self::File(path.to_owned(), FileReader::new(from).map_err(|error| bad(path, &error))?))
    }

    /// All that a server has.
    pub fn scan(mut peer: Peer) -> Result<Self, Failure> {
        let tells_moments = peer.try_ask::<Value>(redis::cmd("PEXPIRETIME").arg(""))?.is_ok();
        let databases = peer.databases()?.into();
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
        let item = match self {
            Self::File(path, reader) => {
                let version = reader.version();
                let entry = reader.next_entry().map_err(|error| bad(path, &error))?;
                entry.map(|entry| match entry {
                    Entry::Function(code) => Item::Function(code),
                    Entry::Key { db, key, expires, idle, frequency, body } => {
                        Item::Key(Key { db, key, expires, idle, frequency, body, version })
                    }
                    Entry::Unsupported(what) => Item::Refused { what, why: "this is not read".to_owned() },
                })
            }
            Self::Server(scan) => scan.next()?,
        };
        Ok(item.map(|item| match item {
            Item::Key(Key { key, .. }) if unfinished::is_one(&key) => Item::Unfinished,
            item => item,
        }))
    }
}

/// Milliseconds of Unix time.
#[expect(clippy::disallowed_methods, reason = "what expires does so by the time of day")]
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

/// A key as messages show it.
pub fn shown(db: u64, key: &[u8]) -> String {
    const MOST: usize = 100;
    let (text, more) = (key[..key.len().min(MOST)].escape_ascii(), key.len().saturating_sub(MOST));
    let more = if more > 0 { format!("... ({more} bytes more)") } else { String::new() };
    if db == 0 { format!("{text}{more}") } else { format!("{text}{more} (database {db})") }
}

/// A file that cannot be read, or not to its end.
fn bad(path: &Path, error: &rdb::Error) -> Failure {
    if let rdb::Error::Io(error) = error {
        return Failure::new(
            format!("{}: read failed: {error}", path.display()),
            "check the file and its file system, and run it again",
        );
    }
    let message = error.to_string();
    let (what, next) = message.rsplit_once("; ").unwrap_or((&message, "see `cairn help import`"));
    Failure::new(format!("{}: {what}", path.display()), next)
}

impl Scan {
    fn next(&mut self) -> Result<Option<Item>, Failure> {
        if !self.begun {
            self.begun = true;
            self.functions()?;
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

    /// Asks for the libraries of functions; Redis before 7 has none.
    fn functions(&mut self) -> Result<(), Failure> {
        let codes = match self.peer.try_ask::<Vec<u8>>(redis::cmd("FUNCTION").arg("DUMP"))? {
            Ok(payload) => match rdb::opened(&payload) {
                Some((body, _)) => rdb::libraries(body).map_err(|error| error.to_string()),
                None => Err("their checksum is another one, or their version a later one".to_owned()),
            },
            Err(error) if error.detail().is_some_and(|text| text.contains("unknown command")) => Ok(Vec::new()),
            Err(error) => Err(said(&error)),
        };
        match codes {
            Ok(codes) => self.found.extend(codes.into_iter().map(Item::Function)),
            Err(why) => self.found.push_back(Item::Refused { what: "the libraries of functions".to_owned(), why }),
        }
        Ok(())
    }

    fn select(&mut self, db: u64) -> Result<(), Failure> {
        self.peer.select(db)?.map_err(|error| self.peer.failure(&error))
    }

    /// Asks for names; false when the database is through.
    fn name_more(&mut self, db: u64) -> Result<bool, Failure> {
        self.select(db)?;
        let (cursor, keys): (String, Vec<Vec<u8>>) =
            self.peer.ask(redis::cmd("SCAN").arg(self.cursor).arg("COUNT").arg(1000))?;
        self.cursor = cursor.parse().map_err(|_| {
            let what = format!("{}: SCAN answers without a cursor", self.peer.name);
            Failure::new(what, "check that a Redis or Cairn server is at this address")
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
        self.select(db)?;
        let mut commands = redis::pipe();
        let expiry = if self.tells_moments { "PEXPIRETIME" } else { "PTTL" };
        for key in &keys {
            commands.cmd("DUMP").arg(key).cmd(expiry).arg(key);
        }
        let answers: Vec<RedisResult<Value>> = self.peer.ask_all(commands)?;
        let from = if self.tells_moments { 0 } else { now() };
        let mut answers = answers.into_iter();
        for key in keys {
            let (Some(payload), Some(expires)) = (answers.next(), answers.next()) else { break };
            let item = match (payload, expires) {
                (Ok(Value::BulkString(payload)), Ok(Value::Int(expires @ -1..))) => {
                    let Some((body, version)) = rdb::opened(&payload) else {
                        let key = shown(db, &key);
                        let what =
                            format!("{}: the value of {key} has no checksum, or is of a later version", self.peer.name);
                        return Err(Failure::new(what, "check which server that is; Redis up to version 8 is known"));
                    };
                    let expires = u64::try_from(expires).ok().map(|expires| from + expires);
                    let body = body.to_vec();
                    Item::Key(Key { db, key, expires, idle: None, frequency: None, body, version })
                }
                (Err(error), _) | (_, Err(error)) => self.refused(db, &key, &error)?,
                _ => Item::Gone { db, key },
            };
            self.found.push_back(item);
        }
        Ok(())
    }

    fn refused(&self, db: u64, key: &[u8], error: &RedisError) -> Result<Item, Failure> {
        match for_all(error) {
            Some(_) => Err(self.peer.failure(error)),
            None => Ok(Item::Refused { what: shown(db, key), why: format!("{}: {}", self.peer.name, said(error)) }),
        }
    }
}
