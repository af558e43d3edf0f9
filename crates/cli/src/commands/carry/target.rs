//! The server that keys go to.

use redis::{Pipeline, RedisError, RedisResult};
use server::rdb;

use super::collection::Collection;
use super::peer::{Peer, for_all, said};
use super::source::{Item, Key, now, shown};
use super::unfinished;
use crate::failure::Failure;

/// What is sent before an answer is waited for: commands, and bytes.
const COMMANDS: usize = 200;
const BYTES: usize = 4 << 20;
/// Bytes of a value that is not looked into before it is sent: it cannot have many elements.
const SMALL: usize = 16 << 10;
/// Bytes of a request that servers take.
const REQUEST: usize = 512 << 20;
/// Times that a collection is begun which another import has removed before it was whole.
const TIMES: usize = 3;

/// What was done.
#[derive(Debug, Default)]
pub struct Counts {
    pub keys: u64,
    pub bytes: u64,
    pub there: u64,
    pub expired: u64,
    pub gone: u64,
    pub functions: u64,
    pub functions_there: u64,
    pub unfinished: u64,
    pub refused: u64,
}

/// What was sent, and is not answered.
enum Sent {
    /// A value with so many bytes, of this form, and when it expires.
    Value { bytes: usize, form: u8, expires: Option<u64> },
    /// The old value goes, as the new one has expired.
    Expired,
    /// The old value goes, as the source has none any more.
    Gone,
}

pub struct Target {
    peer: Peer,
    replace: bool,
    /// Commands about keys of one database, and what they are.
    waiting: Pipeline,
    sent: Vec<(Vec<u8>, Sent)>,
    bytes: usize,
    db: u64,
    /// Under which long collections are built.
    unfinished: Vec<u8>,
    pub counts: Counts,
    /// Lines about what was refused since they were taken from here.
    pub refused: Vec<String>,
}

impl Target {
    #[expect(clippy::disallowed_methods, reason = "two imports must never have one number")]
    pub fn new(mut peer: Peer, replace: bool) -> Result<Self, Failure> {
        unfinished::remove_all(&mut peer)?;
        let random = getrandom::u64().map_err(|error| {
            Failure::new(format!("the system gives no random number: {error}"), "check whether /dev/urandom is there")
        })?;
        Ok(Self {
            peer,
            replace,
            waiting: redis::pipe(),
            sent: Vec::new(),
            bytes: 0,
            db: 0,
            unfinished: unfinished::name(random),
            counts: Counts::default(),
            refused: Vec::new(),
        })
    }

    /// The server's.
    pub fn name(&self) -> &str {
        &self.peer.name
    }

    /// Takes what comes next; it is there after [`flush`](Self::flush).
    pub fn put(&mut self, item: Item) -> Result<(), Failure> {
        match item {
            Item::Function(code) => self.load(&code),
            Item::Key(key) => self.put_key(key),
            Item::Gone { db, key } if self.replace => self.delete(db, key, Sent::Gone),
            Item::Gone { .. } => {
                self.counts.gone += 1;
                Ok(())
            }
            Item::Refused { what, why } => {
                self.note(&what, &why);
                Ok(())
            }
            Item::Unfinished => {
                self.counts.unfinished += 1;
                Ok(())
            }
        }
    }

    fn put_key(&mut self, key: Key) -> Result<(), Failure> {
        if key.expires.is_some_and(|at| at <= now()) {
            if self.replace {
                return self.delete(key.db, key.key, Sent::Expired);
            }
            self.counts.expired += 1;
            return Ok(());
        }
        if key.body.len() > SMALL {
            match Collection::of(&key.body) {
                Ok(Some(collection)) => return self.put_long(&key, &collection),
                Ok(None) => {}
                // The server says what is wrong with it, if it gets it.
                Err(_) if key.body.len() < REQUEST => {}
                Err(error) => {
                    self.note(&shown(key.db, &key.key), &error.to_string());
                    return Ok(());
                }
            }
        }
        let Key { db, key, expires, idle, frequency, body, version } = key;
        if !self.prepare(db, &key, body.len())? {
            return Ok(());
        }
        let (bytes, form) = (body.len(), body.first().copied().unwrap_or_default());
        let mut payload = body;
        rdb::close(&mut payload, version);
        let restore = self.waiting.cmd("RESTORE").arg(&key).arg(expires.unwrap_or(0)).arg(payload).arg("ABSTTL");
        if self.replace {
            restore.arg("REPLACE");
        }
        if let Some(idle) = idle {
            restore.arg("IDLETIME").arg(idle);
        } else if let Some(frequency) = frequency {
            restore.arg("FREQ").arg(frequency);
        }
        self.bytes += bytes;
        self.sent.push((key, Sent::Value { bytes, form, expires }));
        Ok(())
    }

    fn delete(&mut self, db: u64, key: Vec<u8>, why: Sent) -> Result<(), Failure> {
        if self.prepare(db, &key, 0)? {
            self.waiting.cmd("DEL").arg(&key);
            self.sent.push((key, why));
        }
        Ok(())
    }

    /// Makes room for one more command about a key of that database; false if there is no such database.
    fn prepare(&mut self, db: u64, key: &[u8], bytes: usize) -> Result<bool, Failure> {
        if db != self.db || self.sent.len() >= COMMANDS || self.bytes + bytes > BYTES {
            self.flush()?;
        }
        if let Err(error) = self.peer.select(db)? {
            self.refuse(&shown(db, key), &error)?;
            return Ok(false);
        }
        self.db = db;
        Ok(true)
    }

    /// Afterwards all that was put is there, or refused.
    pub fn flush(&mut self) -> Result<(), Failure> {
        let sent = std::mem::take(&mut self.sent);
        let commands = std::mem::replace(&mut self.waiting, redis::pipe());
        self.bytes = 0;
        if sent.is_empty() {
            return Ok(());
        }
        let (answers, now) = (self.peer.ask_all::<redis::Value>(commands)?, now());
        // What was done is counted before an error ends it.
        let mut ended = Ok(());
        for ((key, what), answer) in sent.into_iter().zip(answers) {
            match (answer, what) {
                (Ok(_), Sent::Value { expires: Some(at), .. }) if at <= now => self.counts.expired += 1,
                (Ok(_), Sent::Value { bytes, .. }) => self.is_there(bytes),
                (Ok(_), Sent::Expired) => self.counts.expired += 1,
                (Ok(_), Sent::Gone) => self.counts.gone += 1,
                (Err(error), _) if error.code() == Some("BUSYKEY") => self.counts.there += 1,
                (Err(error), what) => {
                    let name = shown(self.db, &key);
                    let known = match what {
                        Sent::Value { form, .. } => {
                            of_form(form).filter(|_| error.to_string().contains("Bad data format"))
                        }
                        _ => None,
                    };
                    match known {
                        Some(known) => self.note(&name, known),
                        None => ended = ended.and(self.refuse(&name, &error)),
                    }
                }
            }
        }
        ended
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
        let Err(error) = self.peer.try_ask::<redis::Value>(command.arg(code))? else {
            self.counts.functions += 1;
            return Ok(());
        };
        let text = error.detail().unwrap_or_default();
        if text.starts_with("Library '") && text.ends_with("' already exists") {
            self.counts.functions_there += 1;
            return Ok(());
        }
        let name = code.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let name = format!("the library of functions {}", shown(0, name));
        // One that knows no functions, or does not let them be loaded, may take the keys.
        if matches!(error.code(), Some("ERR" | "NOPERM")) {
            self.note(&name, &said(&error));
            return Ok(());
        }
        self.refuse(&name, &error)
    }

    /// A long collection: under another name until it is whole, so that an interrupted import leaves nothing that looks like it.
    fn put_long(&mut self, key: &Key, collection: &Collection) -> Result<(), Failure> {
        if !self.prepare(key.db, &key.key, BYTES)? {
            return Ok(());
        }
        self.flush()?;
        let name = shown(key.db, &key.key);
        if !self.replace {
            match self.peer.try_ask::<bool>(redis::cmd("EXISTS").arg(&key.key))? {
                Ok(false) => {}
                Ok(true) => {
                    self.counts.there += 1;
                    return Ok(());
                }
                Err(error) => return self.refuse(&name, &error),
            }
        }
        for _ in 0..TIMES {
            let built = collection.build(&mut self.peer, &self.unfinished)?;
            let done = match built {
                Ok(()) => self.rename(key, collection)?,
                Err(error) => Err(error),
            };
            match done {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => {
                    let _ = self.peer.try_ask::<redis::Value>(redis::cmd("DEL").arg(&self.unfinished))?;
                    return self.refuse(&name, &error);
                }
            }
        }
        self.note(&name, "other imports into this server have removed it each time before it was whole");
        Ok(())
    }

    /// Gives what was built the name of its key; false if it is not whole, as another import has removed it.
    fn rename(&mut self, key: &Key, collection: &Collection) -> Result<RedisResult<bool>, Failure> {
        let unfinished = &self.unfinished;
        let mut begin = redis::pipe();
        begin.cmd("WATCH").arg(unfinished).cmd(collection.counted_by()).arg(unfinished);
        match self.peer.ask_all::<redis::Value>(begin)?.into_iter().collect::<RedisResult<Vec<_>>>() {
            Err(error) => return Ok(Err(error)),
            Ok(answers) if answers.last() != Some(&redis::Value::Int(collection.count() as i64)) => {
                return self.peer.try_ask::<redis::Value>(&redis::cmd("UNWATCH")).map(|answer| answer.map(|_| false));
            }
            Ok(_) => {}
        }
        let mut end = redis::pipe();
        end.cmd("MULTI");
        match key.expires {
            Some(at) => end.cmd("PEXPIREAT").arg(unfinished).arg(at),
            None => end.cmd("PERSIST").arg(unfinished),
        };
        end.cmd(if self.replace { "RENAME" } else { "RENAMENX" }).arg(unfinished).arg(&key.key).cmd("EXEC");
        let mut answers = self.peer.ask_all::<redis::Value>(end)?;
        let done = match answers.pop() {
            Some(Ok(redis::Value::Array(mut all))) => all.pop().unwrap_or(redis::Value::Nil).extract_error(),
            Some(Ok(_)) | None => return Ok(Ok(false)), // it has changed, or is gone
            // What was wrong with one of its commands says more than that all are refused.
            Some(Err(error)) => Err(answers.into_iter().find_map(Result::err).unwrap_or(error)),
        };
        Ok(match done {
            Ok(redis::Value::Int(0)) => {
                let _ = self.peer.try_ask::<redis::Value>(redis::cmd("DEL").arg(&self.unfinished))?;
                self.counts.there += 1;
                Ok(true)
            }
            Ok(_) => {
                self.is_there(key.body.len());
                Ok(true)
            }
            // It was there when all of this began: its time was over.
            Err(error) if key.expires.is_some() && error.to_string().contains("no such key") => {
                if self.replace {
                    return Ok(self.peer.try_ask::<redis::Value>(redis::cmd("DEL").arg(&key.key))?.map(|_| {
                        self.counts.expired += 1;
                        true
                    }));
                }
                self.counts.expired += 1;
                Ok(true)
            }
            Err(error) => Err(error),
        })
    }

    /// Notes a refusal; an error if it would meet every other key, too.
    fn refuse(&mut self, what: &str, error: &RedisError) -> Result<(), Failure> {
        match for_all(error) {
            Some(next) => Err(Failure::new(format!("{}: {what} is refused: {}", self.peer.name, said(error)), next)),
            None => {
                self.note(what, &said(error));
                Ok(())
            }
        }
    }

    fn note(&mut self, what: &str, why: &str) {
        self.counts.refused += 1;
        self.refused.push(format!("{what}: {why}"));
    }
}

/// What a value is that not every server takes.
fn of_form(form: u8) -> Option<&'static str> {
    match form {
        6 | 7 => Some("a value of a module, which this server does not take"),
        9 => {
            Some("a hash of Redis before 2.6, which this server does not take; load it with Redis 7, and save it there")
        }
        22..=25 => {
            Some("a hash whose fields expire, which this server does not take; HPERSIST its fields, and run it again")
        }
        26.. => Some("a value of a later version than this server knows"),
        _ => None,
    }
}
