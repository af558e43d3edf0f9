//! A server that speaks Redis' protocol.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::{Client, Cmd, Connection, ErrorKind, FromRedisValue, Pipeline, RedisError, RedisResult, Value};

use crate::failure::Failure;

/// How long it may take to connect; and for an answer, which may be a large value that is made durable first.
const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(120);

/// A connection.
pub struct Peer {
    connection: Connection,
    /// As it was given, without the password.
    pub name: String,
    db: u64,
}

impl Peer {
    pub fn connect(url: &str) -> Result<Self, Failure> {
        let whole = if url.contains("://") { url.to_owned() } else { format!("redis://{url}") };
        let name = without_password(&whole);
        let next = "write it as redis://[USER:PASSWORD@]HOST[:PORT], or as redis+unix:///PATH";
        if names_database(&whole) {
            return Err(Failure::new(format!("{name}: the address names a database, and all are copied"), next));
        }
        let client = Client::open(whole).map_err(|error| Failure::new(format!("{name}: {error}"), next))?;
        let failed = |error: RedisError| {
            let next = match (error.kind(), error.code()) {
                (ErrorKind::AuthenticationFailed, _) | (_, Some("NOAUTH" | "WRONGPASS" | "NOPERM")) => {
                    "give the user and the password in the address, of a user that may read and write all keys: redis://USER:PASSWORD@HOST"
                }
                (_, None) => "start the server, or check the address",
                (_, Some(_)) => "look at what the server says, and try again",
            };
            Failure::new(format!("{name}: {error}"), next)
        };
        let mut connection = client.get_connection_with_timeout(CONNECT).map_err(failed)?;
        connection.set_read_timeout(Some(ANSWER)).map_err(failed)?;
        connection.set_write_timeout(Some(ANSWER)).map_err(failed)?;
        redis::cmd("PING").query::<Value>(&mut connection).map_err(failed)?;
        redis::cmd("SELECT").arg(0).query::<()>(&mut connection).map_err(failed)?;
        Ok(Self { connection, name, db: 0 })
    }

    /// From now on commands are about this database, unless the server refuses that.
    pub fn select(&mut self, db: u64) -> Result<RedisResult<()>, Failure> {
        if self.db != db {
            if let Err(error) = self.try_ask::<()>(redis::cmd("SELECT").arg(db))? {
                return Ok(Err(error));
            }
            self.db = db;
        }
        Ok(Ok(()))
    }

    /// The databases that there may be, in order.
    pub fn databases(&mut self) -> Result<Vec<u64>, Failure> {
        let info = self.try_ask::<String>(redis::cmd("INFO").arg("keyspace"))?.unwrap_or_default();
        let number = |line: &str| line.strip_prefix("db")?.split(':').next()?.parse().ok();
        // What `INFO` counts may be some seconds old.
        let named: BTreeSet<u64> = info.lines().filter_map(number).chain(0..16).collect();
        let mut databases = Vec::new();
        for db in named {
            if self.select(db)?.is_ok() {
                databases.push(db);
            }
        }
        Ok(databases)
    }

    /// One command; an error ends it all.
    pub fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, Failure> {
        command.query(&mut self.connection).map_err(|error| self.failure(&error))
    }

    /// One command, whose refusal is an answer.
    pub fn try_ask<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<RedisResult<T>, Failure> {
        match command.query(&mut self.connection) {
            Err(error) if error.code().is_none() => Err(self.failure(&error)),
            answer => Ok(answer),
        }
    }

    /// Many commands, each with its answer.
    pub fn ask_all<T: FromRedisValue>(&mut self, mut commands: Pipeline) -> Result<Vec<RedisResult<T>>, Failure> {
        commands.ignore_errors();
        commands.query(&mut self.connection).map_err(|error| self.failure(&error))
    }

    pub fn failure(&self, error: &RedisError) -> Failure {
        let next = for_all(error).unwrap_or("check the server, and run it again: what was copied stays");
        Failure::new(format!("{}: {}", self.name, said(error)), next)
    }
}

/// An error in the server's own words.
pub fn said(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}

/// What to do where an error would meet every other key, too; none if it is about one.
pub fn for_all(error: &RedisError) -> Option<&'static str> {
    let text = error.detail().unwrap_or_default();
    match error.code()? {
        "OOM" | "MISCONF" => Some(
            "make room in the server (delete keys, or raise --max-size or --max-memory), and run it again: what was copied stays",
        ),
        "READONLY" | "MASTERDOWN" | "CLUSTERDOWN" | "MOVED" | "ASK" | "NOREPLICAS" => {
            Some("give the address of the server that takes writes, and run it again: what was copied stays")
        }
        "LOADING" | "BUSY" | "UNKILLABLE" | "TRYAGAIN" => {
            Some("wait until the server is ready, and run it again: what was copied stays")
        }
        "NOAUTH" | "WRONGPASS" => {
            Some("give the user and the password in the address, and run it again: what was copied stays")
        }
        "NOPERM" if text.contains(" command") => {
            Some("give a user that may run this command, and run it again: what was copied stays")
        }
        "ERR" if text.contains("unknown command") => Some("this needs Redis 5 or later"),
        _ => None,
    }
}

/// Whether there is a database behind the host.
fn names_database(url: &str) -> bool {
    match url.split_once("://") {
        Some((scheme, rest)) if !scheme.contains("unix") => {
            let rest = rest.split(['?', '#']).next().unwrap_or_default();
            rest.rsplit_once('@').map_or(rest, |(_, host)| host).split_once('/').is_some_and(|(_, db)| !db.is_empty())
        }
        Some((_, rest)) => rest.split(['?', '&']).any(|part| part.starts_with("db=")),
        None => false,
    }
}

/// What an error may show.
fn without_password(url: &str) -> String {
    let url = url.split('?').next().unwrap_or_default();
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        assert_eq!(without_password("redis://me:a@b@host:1"), "redis://host:1");
        assert_eq!(without_password("redis://host:1"), "redis://host:1");
        assert_eq!(without_password("redis+unix:///a/b"), "redis+unix:///a/b");
        assert_eq!(without_password("redis+unix:///a/b?pass=secret@x"), "redis+unix:///a/b");
    }

    #[test]
    fn databases_are_not_part_of_an_address() {
        for (url, names) in [
            ("redis://host:1", false),
            ("redis://host/", false),
            ("redis://me:a/b@host", false),
            ("redis://host/3", true),
            ("redis+unix:///a/b", false),
            ("redis+unix:///a/b?db=3", true),
        ] {
            assert_eq!(names_database(url), names, "{url}");
        }
    }
}
