//! Redis' and memcached's protocols over a store in which every write is durable when its reply is sent.
//!
//! # The way of a request
//!
//! | module | what it does |
//! |---|---|
//! | `config`, `server` | what the server is to do; listens, and hands connections to its threads |
//! | `thread` | a thread that serves, and the connections it has |
//! | `reactor`, `line` | where a commit is cheap: reads all connections that sent something, and has their requests run together |
//! | `connection` | reads requests, has them run, writes replies, in their order |
//! | `request`, `reply` | Redis' protocol, versions 2 and 3 |
//! | `session`, `users` | who is connected, and what he may do |
//! | `commands` | the commands, by what they are about |
//! | `job`, `executor` | requests become a transaction: at once, or together with those of other connections |
//! | `elsewhere` | threads for what waits or runs long |
//! | `data` | how Redis' data lie in the store |
//! | `engine`, `tree` | what is needed of a store; [`kv`] is one, a B+tree in a [`heap`] another |
//! | `flush`, `remove` | what is too much for one transaction goes in steps, which nobody sees |
//! | `reaper`, `waiters`, `readers`, `cursors` | what was removed as a whole; who waits for an element, or for an entry of a stream; where scans go on |
//! | `pubsub` | who subscribes to what, and what is yet to be sent to them |
//! | `events` | keyspace notifications |
//! | `script` | scripts in Lua, each in one transaction |
//! | `functions` | libraries of functions in Lua, which are data |
//! | `metrics`, `info`, `slowlog`, `http` | what it counts, and who is told |
//!
//! # Example
//!
//! ```
//! use std::io::{Read, Write};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let store = kv::Store::open(dir.path().join("data.cairn"))?;
//! let config = server::Config { redis: vec!["127.0.0.1:0".parse()?], ..server::Config::default() };
//! let server = server::Server::start(config, Box::new(server::engine::Kv::new(store)))?;
//!
//! let mut client = std::net::TcpStream::connect(server.redis()[0])?;
//! client.write_all(b"SET apples 17\r\n")?;
//! let mut reply = [0; 5];
//! client.read_exact(&mut reply)?;
//! assert_eq!(&reply, b"+OK\r\n"); // durable now
//!
//! server.stop();
//! server.join()?;
//! # Ok(()) }
//! ```
//!
//! # One request to the server
//!
//! `SET apples 17`, pipelined with others
//!
//! 1. `thread` was given the connection by `server`, and keeps it. In memory `reactor` `take_in`
//!    reads each connection that has sent something, on a file and under TLS `connection` `read`,
//!    in a task; `request` finds the requests that are complete.
//! 2. `together` asks how many of them can be one transaction: on data, allowed to the `user`, not
//!    queued by `MULTI`. They become a `job`, which borrows the connection's parts.
//! 3. `executor` runs it. In memory: at once, with those of the thread's other connections
//!    (`run_together`), by `Engine::write`, which is `kv`'s `transact`. On a file: its `Combiner`
//!    gathers jobs of the thread while the transaction before is synced, and commits them as one
//!    (`Engine::write_once`).
//! 4. `attempt` has the keys fetched from memory, then runs the `commands` one after the other;
//!    they see a transaction of `engine`, and `data` says where things lie. After a conflict all
//!    of it runs again, from an empty reply.
//! 5. Durable. `answer` sends the replies, in a task `write`.

#![forbid(unsafe_code)]

mod attempt;
mod blocking;
mod client;
mod clock;
mod command;
mod commands;
mod config;
mod connection;
mod context;
mod cursors;
mod data;
mod dispatch;
mod elsewhere;
pub mod engine;
mod events;
mod evict;
mod evictor;
mod executor;
mod expired;
mod failpoints;
mod form;
mod functions;
mod glob;
pub mod group;
mod headed;
mod http;
mod info;
mod job;
mod line;
mod memcached;
mod metrics;
mod numbers;
mod outcome;
mod pubsub;
mod random;
mod reactor;
mod readers;
mod reaper;
mod remove;
pub mod reply;
pub mod request;
mod script;
mod scripts;
mod server;
mod session;
mod sha;
mod shared;
mod slowlog;
mod thread;
mod tls;
mod topic;
pub mod tree;
mod users;
mod waiters;
mod work;

/// What `make fuzz` calls.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    use crate::request::{Batch, Limits, Malformed, Parser};

    /// Finds requests in `bytes`, which come `piece` by piece and all at once, and holds one against the other.
    ///
    /// # Panics
    /// If they are not the same.
    pub fn requests(bytes: &[u8], piece: usize) {
        for limits in [Limits::STRANGER, Limits { arguments: 1 << 20, argument: 1 << 20, request: 4 << 20 }] {
            assert_eq!(all(bytes, piece, &limits), all(bytes, bytes.len().max(1), &limits));
        }
    }

    fn all(bytes: &[u8], piece: usize, limits: &Limits) -> (Vec<Vec<Vec<u8>>>, Option<Malformed>) {
        let (mut parser, mut buffer, mut found) = (Parser::default(), Vec::new(), Vec::new());
        for some in bytes.chunks(piece) {
            buffer.extend_from_slice(some);
            let mut batch = Batch::default();
            let end = loop {
                match parser.advance(&buffer, limits, &mut batch) {
                    Ok(true) => {}
                    Ok(false) => break None,
                    Err(error) => break Some(error),
                }
            };
            found.extend((0..batch.len()).map(|at| batch.arguments(at, &buffer).from(0).map(<[u8]>::to_vec).collect()));
            if end.is_some() {
                return (found, end);
            }
            buffer.drain(..parser.discard());
        }
        (found, None)
    }
}

pub use config::{By, Config, Eviction, Notify, Settings, SubscriberLimit, Tls};
pub use data::DATABASES;
#[cfg(feature = "failpoints")]
pub use failpoints::Step;
pub use server::{Error, Server};
