//! Redis' and memcached's protocols over a store in which every write is durable when its reply is sent.
//!
//! # The way of a request
//!
//! From the top to the bottom; each takes from those below it only.
//!
//! | module | what it does |
//! |---|---|
//! | `server`, `serve` | listens, and hands connections to its threads; a thread that serves, and the connections it has |
//! | `reactor` | where a commit is cheap: reads all connections that sent something, and has their requests run together |
//! | `connection` | Redis' protocol: finds requests in what was read, has them run, and has replies written, in their order |
//! | `memcached` | memcached's protocols |
//! | `io`, `line`, `thread` | reads and writes; a socket of the reactor; what the connections of a thread share |
//! | `executor`, `elsewhere`, `attempt`, `beside` | requests become a transaction: at once, or together with those of other connections; threads for what waits or runs long; whether a part of it sees another one's |
//! | `job` | requests of one connection that are one transaction |
//! | `commands` | the commands, by what they are about |
//! | `script`, `functions` | scripts in Lua, each in one transaction; libraries of functions, which are data |
//! | `dispatch`, `command` | runs a command, whichever way it is run; what a command is |
//! | `session`, `context` | a connection, and what it has queued; what a command on data has |
//! | `reaper`, `evict`, `expired`, `tracked`, `info`, `http`, `refusals` | what goes on beside requests: elements without an owner, keys that go or have gone, and what people are told |
//! | `shared` | what all connections have in common: all that follows |
//! | `work` | what the executor runs, and how much of it at one time |
//! | `events`, `evictor` | keyspace notifications; what is known of keys to choose those that go |
//! | `remove` | what is too much for one transaction goes in steps, which no client sees |
//! | `tracking`, `touching` | which clients are told of which keys that change; a transaction that notes what it changes |
//! | `monitors`, `secrets`, `pauses`, `latency`, `acl_log` | clients that are told of every command; which arguments are not shown; until when commands are held back; what took long; what users were refused |
//! | `users`, `scripts`, `waiters`, `readers`, `cursors`, `slowlog`, `metrics` | what users may do; scripts that are known, or run long; clients that wait for an element, or for an entry of a stream; where scans go on; what was slow; what is counted |
//! | `pubsub`, `client`, `topic` | which clients subscribe to what; what others may know of a connection, and what is yet to be sent to it |
//! | `config`, `durability` | what the server is to do; what an answer to a write means |
//! | `form` | what commands are called, and which of their arguments are keys |
//! | `databases` | which database of the store a client's number leads to: what `SWAPDB` changes |
//! | `data` | how Redis' data lie in the store |
//! | `engine`, `tree` | what is needed of a store; [`kv`] is one, a B+tree in a [`heap`] another |
//! | `request`, `reply` | Redis' protocol, versions 2 and 3 |
//! | `outcome`, `numbers`, `glob`, `sha`, `clock`, `random` | how a command ends; what is small |
//! | `rdb` | Redis' format of values and of files: `DUMP`, `RESTORE`, import, export |
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
//! 1. `serve` was given the connection by `server`, and keeps it. In memory `reactor` `take_in`
//!    reads each connection that has sent something, on a file and under TLS `io` `hear`, in a
//!    task.
//! 2. `connection::batch` finds the requests that are complete (`find`), and says how many of them
//!    can be one transaction (`together`): on data, allowed to the `user`, not queued by `MULTI`.
//!    They become a `job`, which borrows the connection's parts.
//! 3. `executor` runs it. In memory: at once, with those of the thread's other connections
//!    (`run_together`), by `Engine::try_write`, which waits for no other. On a file: its `Combiner`
//!    gathers jobs of the thread while the transaction before is synced, and commits them as one
//!    (`Engine::write_once`).
//! 4. The job's `attempt` has the keys fetched from memory, then `dispatch` runs the `commands` one
//!    after the other; their `context` reads and changes a transaction of `engine`, and `data`
//!    says where things lie. After a conflict all of it runs again, from an empty reply.
//!    `meter` counts what each command asks of the transaction: one that takes long is run again on
//!    a thread that serves no connections (`elsewhere`).
//! 5. Durable. `connection::ended` notes what was slow; the replies are written, in a task by `io`
//!    `write`.

#![forbid(unsafe_code)]

mod acl_log;
mod apart;
mod attempt;
mod beside;
mod buffer;
mod client;
mod clock;
mod command;
mod commands;
mod config;
mod connection;
mod context;
mod cursors;
mod data;
mod databases;
mod dispatch;
mod durability;
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
mod io;
mod job;
mod latency;
mod line;
mod memcached;
mod meter;
mod metrics;
mod monitors;
mod numbers;
mod outcome;
mod pauses;
mod pubsub;
mod random;
pub mod rdb;
mod reactor;
mod readers;
mod reaper;
mod refusals;
mod remove;
pub mod reply;
pub mod request;
mod script;
mod scripts;
mod secrets;
mod serve;
mod server;
mod session;
mod sha;
mod shared;
mod slowlog;
mod thread;
mod tls;
mod topic;
mod touching;
mod tracked;
mod tracking;
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

pub use config::{By, Chunks, Config, Eviction, Notify, Settings, SubscriberLimit, Tls};
pub use data::DATABASES;
pub use durability::Durability;
#[cfg(feature = "failpoints")]
pub use failpoints::Step;
pub use server::{Error, Server};
