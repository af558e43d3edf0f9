//! A client of memcached's text protocol: connections that each send some requests and wait for their answers, as `redis-benchmark` does.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Barrier;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use super::failed;
use crate::clock::{Stopwatch, span};
use crate::workload::Random;
use crate::{Error, Result};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Test {
    Set,
    Get,
    /// One `set` in ten requests, the others `get`.
    Mix,
    /// One in two.
    Half,
}

impl Test {
    pub(crate) fn named(name: &str) -> Result<Self> {
        match name {
            "set" => Ok(Self::Set),
            "get" => Ok(Self::Get),
            "mix" => Ok(Self::Mix),
            "half" => Ok(Self::Half),
            other => Err(Error::Parameter(format!(
                "{other}: no test of memcached's protocol; choose from: set, get, mix, half"
            ))),
        }
    }

    fn is_set(self, random: &mut Random) -> bool {
        match self {
            Self::Set => true,
            Self::Get => false,
            Self::Mix => random.below(10) == 0,
            Self::Half => random.below(2) == 0,
        }
    }
}

/// How it is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) connections: usize,
    /// Requests that a connection sends before it waits.
    pub(crate) pipeline: usize,
    pub(crate) requests: u64,
    pub(crate) keys: u64,
    pub(crate) value_bytes: usize,
    pub(crate) threads: usize,
    pub(crate) seed: u64,
}

/// How many requests were answered, in what time; and how long each connection waited, each time, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answered {
    pub(crate) requests: u64,
    pub(crate) time: Duration,
    pub(crate) waits: Vec<u64>,
}

fn wrong(what: impl Into<String>) -> Error {
    Error::Wrong { who: "memcached's protocol".into(), what: what.into() }
}

/// Sets every key once.
pub(crate) fn fill(port: u16, load: &Load) -> Result<()> {
    let mut connection = Connection::to(port)?;
    let value = vec![b'x'; load.value_bytes];
    for from in (0..load.keys).step_by(64) {
        let keys = from..load.keys.min(from + 64);
        keys.clone().for_each(|key| connection.ask(key, Some(&value)));
        while !connection.turn(load.value_bytes)? {
            wait(std::slice::from_ref(&connection))?;
        }
    }
    Ok(())
}

/// Asks until so many requests are answered.
pub(crate) fn run(port: u16, test: Test, load: &Load) -> Result<Answered> {
    let threads = load.threads.clamp(1, load.connections);
    let go = Barrier::new(threads);
    let runs: Vec<_> = std::thread::scope(|scope| {
        let start = |thread: usize| {
            let (share, go) = (|all: usize| all / threads + usize::from(thread < all % threads), &go);
            let own = Load {
                connections: share(load.connections),
                requests: share(load.requests as usize) as u64,
                seed: load.seed * 64 + thread as u64,
                ..*load
            };
            scope.spawn(move || one(port, test, &own, go))
        };
        let started: Vec<_> = (0..threads).map(start).collect();
        started.into_iter().map(|run| run.join().unwrap_or(Err(Error::Worker))).collect()
    });
    let (mut all, mut moments) = (Answered::default(), Vec::new());
    for run in runs {
        let (requests, waits, moment) = run?;
        all.requests += requests;
        all.waits.extend(waits);
        moments.push(moment);
    }
    let (began, ended) = (moments.iter().map(|one| one.0).min(), moments.iter().map(|one| one.1).max());
    all.time = began.zip(ended).map_or(Duration::ZERO, |(began, ended)| ended - began);
    Ok(all)
}

type Run = (u64, Vec<u64>, (std::time::Instant, std::time::Instant));

/// The connections of one thread.
fn one(port: u16, test: Test, load: &Load, go: &Barrier) -> Result<Run> {
    let connections: Result<Vec<_>> = (0..load.connections).map(|_| Connection::to(port)).collect();
    // A thread that cannot begin keeps no other one waiting.
    go.wait();
    let mut connections = connections?;
    let (mut random, value) = (Random::new(load.seed), vec![b'x'; load.value_bytes]);
    let (mut asked, mut answered, mut waits) = (0, 0, Vec::new());
    let moment = span(|| {
        let mut next = |connection: &mut Connection| {
            let some = (load.pipeline as u64).min(load.requests - asked);
            for _ in 0..some {
                let key = random.below(load.keys);
                connection.ask(key, test.is_set(&mut random).then_some(&value[..]));
            }
            asked += some;
            connection.sent = Stopwatch::start();
            some
        };
        for connection in &mut connections {
            connection.waiting = next(connection);
            connection.send()?;
        }
        while answered < load.requests {
            for at in wait(&connections)? {
                let connection = &mut connections[at];
                if connection.turn(load.value_bytes)? {
                    waits.push(u64::try_from(connection.sent.lap().as_nanos()).unwrap_or(u64::MAX));
                    answered += connection.waiting;
                    connection.waiting = next(connection);
                    connection.send()?;
                }
            }
        }
        Ok(())
    })?;
    Ok((answered, waits, moment))
}

/// Which of them have something to read, or can be written to and want to. Some have.
fn wait(connections: &[Connection]) -> Result<Vec<usize>> {
    let mut polled: Vec<_> = connections
        .iter()
        .map(|one| {
            let write = if one.written < one.out.len() { PollFlags::OUT } else { PollFlags::empty() };
            PollFd::new(&one.stream, PollFlags::IN | write)
        })
        .collect();
    let there = poll(&mut polled, None).map_err(|error| failed("poll")(error.into()))?;
    let ready = polled.iter().enumerate().filter(|(_, one)| !one.revents().is_empty()).map(|(at, _)| at).collect();
    if there == 0 { Err(wrong("nobody answers")) } else { Ok(ready) }
}

struct Connection {
    stream: TcpStream,
    out: Vec<u8>,
    written: usize,
    input: Vec<u8>,
    /// Whether each request that is not answered yet sets a key, the last one first.
    open: Vec<bool>,
    /// Requests that were sent together.
    waiting: u64,
    sent: Stopwatch,
}

impl Connection {
    fn to(port: u16) -> Result<Self> {
        let open = || -> std::io::Result<TcpStream> {
            let stream = TcpStream::connect(("127.0.0.1", port))?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            Ok(stream)
        };
        let stream = open().map_err(failed("a connection"))?;
        let (out, input, open) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { stream, out, written: 0, input, open, waiting: 0, sent: Stopwatch::start() })
    }

    /// Has a request ready to be sent: a `set` if there is a value.
    fn ask(&mut self, key: u64, value: Option<&[u8]>) {
        self.open.insert(0, value.is_some());
        match value {
            Some(value) => {
                self.out.extend_from_slice(format!("set key:{key:012} 0 0 {}\r\n", value.len()).as_bytes());
                self.out.extend_from_slice(value);
                self.out.extend_from_slice(b"\r\n");
            }
            None => self.out.extend_from_slice(format!("get key:{key:012}\r\n").as_bytes()),
        }
    }

    /// Sends what can be.
    fn send(&mut self) -> Result<()> {
        while self.written < self.out.len() {
            match self.stream.write(&self.out[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(failed("write")(error)),
            }
        }
        if self.written == self.out.len() {
            self.out.clear();
            self.written = 0;
        }
        Ok(())
    }

    /// The same, and reads what is there; true if all is answered.
    fn turn(&mut self, value_bytes: usize) -> Result<bool> {
        self.send()?;
        let mut some = [0; 16 << 10];
        loop {
            match self.stream.read(&mut some) {
                Ok(0) => return Err(wrong("the connection ended")),
                Ok(count) => self.input.extend_from_slice(&some[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(failed("read")(error)),
            }
        }
        let mut from = 0;
        while let Some(set) = self.open.last() {
            let Some(len) = answer(&self.input[from..], *set, value_bytes)? else { break };
            from += len;
            self.open.pop();
        }
        self.input.drain(..from);
        Ok(self.open.is_empty())
    }
}

/// Bytes of the first answer, if it is whole. Everything else than success, and a value of the length that all have, is an error.
fn answer(bytes: &[u8], set: bool, value_bytes: usize) -> Result<Option<usize>> {
    let Some(line) = bytes.windows(2).position(|two| two == b"\r\n") else { return Ok(None) };
    let (text, rest) = bytes.split_at(line + 2);
    if set && text == b"STORED\r\n" {
        return Ok(Some(text.len()));
    }
    let announced = text.starts_with(b"VALUE ").then(|| text[..line].rsplit(|byte| *byte == b' ').next()).flatten();
    let len = announced.and_then(|len| std::str::from_utf8(len).ok()?.parse::<usize>().ok());
    if set || len != Some(value_bytes) {
        return Err(wrong(format!("a request was answered with {:?}", String::from_utf8_lossy(text))));
    }
    const END: &[u8] = b"\r\nEND\r\n";
    match rest.get(value_bytes..value_bytes + END.len()) {
        None => Ok(None),
        Some(END) => Ok(Some(text.len() + value_bytes + END.len())),
        Some(other) => Err(wrong(format!("a value ended with {:?}", String::from_utf8_lossy(other)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_when_they_are_whole() {
        let value = b"VALUE key:000000000001 0 3\r\nxxx\r\nEND\r\nSTORED\r\n";
        for len in 0..value.len() {
            let expected = if len < value.len() - 8 { None } else { Some(value.len() - 8) };
            assert_eq!(answer(&value[..len], false, 3).unwrap(), expected, "{len}");
        }
        assert_eq!(answer(&value[value.len() - 8..], true, 3).unwrap(), Some(8));
        assert_eq!(answer(b"STORE", true, 3).unwrap(), None);
        for (bytes, set) in [
            (&b"END\r\n"[..], false),
            (b"STORED\r\n", false),
            (b"VALUE k 0 4\r\n", false),
            (b"VALUE k 0 3\r\nxxxxEND\r\n\r\n", false),
            (b"NOT_STORED\r\n", true),
            (b"SERVER_ERROR out of memory storing object\r\n", true),
        ] {
            assert!(answer(bytes, set, 3).is_err(), "{}", bytes.escape_ascii());
        }
    }
}
