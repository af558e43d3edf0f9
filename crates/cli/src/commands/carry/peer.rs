//! A server that speaks Redis' protocol.

use std::time::Duration;

use redis::{Client, Cmd, Connection, FromRedisValue, Pipeline, RedisError, RedisResult, Value};

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
        let next = "say it as redis://[USER:PASSWORD@]HOST[:PORT], or as redis+unix:///PATH";
        let client = Client::open(whole).map_err(|error| Failure::new(format!("{name}: {error}"), next))?;
        let failed = |error: RedisError| {
            let next = match error.code() {
                Some("NOAUTH" | "WRONGPASS" | "NOPERM") => "give a user and a password who may read and write all keys",
                _ => "start the server, or check the address",
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

    /// From now on commands are about this database.
    pub fn select(&mut self, db: u64) -> Result<(), Failure> {
        if self.db != db {
            self.ask::<()>(redis::cmd("SELECT").arg(db))?;
            self.db = db;
        }
        Ok(())
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
        let next = "see to the server, and run it again: what was taken over stays, and it goes on";
        Failure::new(format!("{}: {error}", self.name), next)
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
}
