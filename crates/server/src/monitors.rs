//! `MONITOR`: clients that are told of every command that runs. While there is none this is one look at a number.
//!
//! A line is put into the inbox of each of them when its command has run, so behind its commit. Those of one connection come in its order; those of several threads
//! may come in another order than their transactions.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

use parking_lot::Mutex;

use crate::client::{Client, Item, Put, listens};
use crate::config::SubscriberLimit;
use crate::form::{Form, is};
use crate::request::Arguments;
use crate::secrets::Secrets;

/// Commands that are not told: those of Redis that only administrators run.
const UNTOLD: [&str; 11] = [
    "bgrewriteaof",
    "bgsave",
    "config",
    "debug",
    "latency",
    "monitor",
    "replicaof",
    "save",
    "sentinel",
    "shutdown",
    "slowlog",
];

/// Clients that monitor.
#[derive(Debug, Default)]
pub(crate) struct Monitors {
    count: AtomicUsize,
    all: Mutex<BTreeMap<u64, Arc<Client>>>,
}

/// Who runs a command.
#[derive(Clone, Copy)]
pub(crate) enum By<'c> {
    Client(&'c Client),
    Script,
}

/// Whether a command is told.
pub(crate) fn is_told(command: &Form, args: &Arguments<'_>) -> bool {
    let second = |words: &[&str]| words.iter().any(|word| is(args.get(1), word));
    match command.name {
        "acl" => second(&["cat", "genpass", "help", "whoami"]),
        "client" => !second(&["kill", "list", "no-evict", "pause", "unpause"]),
        name => !UNTOLD.contains(&name),
    }
}

/// A line, with its end. Passwords are left out.
pub(crate) fn line(micros: u64, db: u8, by: By<'_>, args: &Arguments<'_>) -> Vec<u8> {
    let who = match by {
        By::Script => "lua".to_owned(),
        By::Client(client) if client.addr.parse::<SocketAddr>().is_ok() => client.addr.clone(),
        By::Client(client) => format!("unix:{}", client.addr.strip_suffix(":0").unwrap_or(&client.addr)),
    };
    let mut line = format!("+{}.{:06} [{db} {who}]", micros / 1_000_000, micros % 1_000_000);
    let secrets = Secrets::of(args);
    for (at, arg) in args.from(0).enumerate() {
        if secrets.has(at) {
            line.push_str(" \"(redacted)\"");
            continue;
        }
        line.push_str(" \"");
        for byte in arg {
            match byte {
                b'\\' | b'"' => line.extend(['\\', *byte as char]),
                b'\n' => line.push_str("\\n"),
                b'\r' => line.push_str("\\r"),
                b'\t' => line.push_str("\\t"),
                7 => line.push_str("\\a"),
                8 => line.push_str("\\b"),
                b' '..=b'~' => line.push(*byte as char),
                other => write!(line, "\\x{other:02x}").unwrap_or(()),
            }
        }
        line.push('"');
    }
    line.push_str("\r\n");
    line.into_bytes()
}

impl Monitors {
    /// Whether there is any.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.count.load(SeqCst) > 0
    }

    /// Tells all of them; returns those that have not read too much before, and are to end.
    pub(crate) fn tell(&self, line: Vec<u8>, limit: SubscriberLimit, now: u64) -> Vec<Arc<Client>> {
        let line: Arc<[u8]> = line.into();
        let mut ends = Vec::new();
        // Held while it is told, so that all are told in one order.
        for client in self.all.lock().values() {
            match client.inbox.put(Item::Line(line.clone()), limit, now) {
                Put::First => client.wake(),
                Put::Behind => {}
                Put::TooMuch => ends.push(client.clone()),
            }
        }
        ends
    }
}

/// Of a connection: whether it monitors. Dropping it ends that.
pub(crate) struct Monitoring {
    all: Arc<Monitors>,
    client: Arc<Client>,
    on: bool,
}

impl Monitoring {
    pub(crate) fn new(all: Arc<Monitors>, client: Arc<Client>) -> Self {
        Self { all, client, on: false }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    pub(crate) fn begin(&mut self) {
        self.client.inbox.open(listens::MONITORS);
        if !std::mem::replace(&mut self.on, true) {
            self.all.all.lock().insert(self.client.id, self.client.clone());
            self.all.count.fetch_add(1, SeqCst);
        }
    }

    pub(crate) fn end(&mut self) {
        if std::mem::replace(&mut self.on, false) {
            self.all.all.lock().remove(&self.client.id);
            self.all.count.fetch_sub(1, SeqCst);
            self.client.inbox.close(listens::MONITORS);
        }
    }
}

impl Drop for Monitoring {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Batch;

    fn shown(words: &[&[u8]], addr: &str) -> String {
        let mut batch = Batch::default();
        batch.push_words(words.iter().copied());
        let client = Client::new(1, addr.to_owned(), String::new(), 0);
        String::from_utf8(line(1_000_002, 3, By::Client(&client), &batch.arguments(0, &[]))).unwrap()
    }

    #[test]
    fn lines_are_those_of_redis() {
        let words: [&[u8]; 3] = [b"SET", b"a\x07", b"x\"\r\n\t\\\x00\xff~ "];
        let expected = r#"+1.000002 [3 10.0.0.1:7] "SET" "a\a" "x\"\r\n\t\\\x00\xff~ ""#;
        assert_eq!(shown(&words, "10.0.0.1:7"), format!("{expected}\r\n"));
        assert_eq!(shown(&[b"ping"], "/tmp/s.sock:0"), "+1.000002 [3 unix:/tmp/s.sock] \"ping\"\r\n");
        assert_eq!(shown(&[b"PING"], "[::1]:9"), "+1.000002 [3 [::1]:9] \"PING\"\r\n");
    }

    #[test]
    fn passwords_are_left_out() {
        for words in
            [&[&b"auth"[..], b"p4ss"][..], &[b"AUTH", b"p4ss", b"p4ss"], &[b"hello", b"3", b"auth", b"p4ss", b"p4ss"]]
        {
            assert!(!shown(words, "").contains("p4ss"), "{}", shown(words, ""));
        }
        // The version was forgotten; and a request as an argument of another one.
        for line in [
            "HELLO AUTH default p4ss",
            "COMMAND GETKEYS AUTH p4ss",
            "command getkeysandflags hello 3 auth default p4ss",
            "COMMAND GETKEYS COMMAND GETKEYS AUTH p4ss",
            "COMMAND GETKEYS CONFIG SET requirepass p4ss",
            "COMMAND GETKEYS ACL SETUSER u >p4ss",
            "COMMAND GETKEYS MIGRATE h 1 k 0 9 AUTH2 u p4ss",
        ] {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            assert!(!shown(&words, "").contains("p4ss"), "{}", shown(&words, ""));
        }
        assert!(shown(&[b"COMMAND", b"GETKEYS", b"GET", b"apples"], "").contains("\"apples\""));
        assert!(shown(&[b"HELLO", b"2", b"AUTH", b"a", b"b", b"SETNAME", b"me"], "").contains("\"SETNAME\" \"me\""));
    }
}
