//! `cairn serve` as an operator meets it: it starts, is killed, stopped, refused.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use crate::cairn;

/// A server in a process of its own, killed when it is dropped.
struct Served {
    child: Child,
    address: String,
    /// What it says later is little, and must have somewhere to go.
    _said: BufReader<ChildStderr>,
}

impl Served {
    fn start(dir: &Path, more: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_cairn"))
            .args(["serve", "data.cairn", "--redis", "127.0.0.1:0"])
            .args(more)
            .current_dir(dir)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        let mut address = String::new();
        while !line.contains("serving") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "it ended before it served");
            if let Some(at) = line.trim_end().strip_prefix("cairn: redis at ") {
                address = at.to_owned();
            }
        }
        Self { child, address, _said: said }
    }

    fn connect(&self) -> Connection {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_nodelay(true).unwrap();
        Connection(BufReader::new(stream))
    }

    fn signal(&mut self, name: &str) -> Option<i32> {
        let kill = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(kill.success());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

struct Connection(BufReader<TcpStream>);

impl Connection {
    /// The first line of the reply, and what stands in the second if there is one.
    fn ask(&mut self, line: &str) -> std::io::Result<String> {
        self.0.get_mut().write_all(format!("{line}\r\n").as_bytes())?;
        self.reply()
    }

    fn reply(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end().to_owned();
        match line.as_bytes() {
            [b'$', b'-', ..] => Ok("nil".to_owned()),
            [b'$', ..] => {
                let mut text = String::new();
                self.0.read_line(&mut text)?;
                Ok(text.trim_end().to_owned())
            }
            _ => Ok(line),
        }
    }
}

/// What one client was told: of each key the last number that was acknowledged, and the one that was on its way.
#[derive(Default)]
struct Told {
    done: BTreeMap<String, u64>,
    on_its_way: Option<(String, u64)>,
}

/// Writes until the server is gone: single commands, transactions, pipelines.
fn write(served: &Served, client: u64, told: &mut Told, next: &mut u64) {
    let Ok(stream) = TcpStream::connect(&served.address) else { return };
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut connection = Connection(BufReader::new(stream));
    loop {
        *next += 1;
        let number = *next;
        let key = format!("c{client}:k{}", number % 17);
        told.on_its_way = Some((key.clone(), number));
        let said = match number % 4 {
            0 => {
                let twin = format!("{key}:twin");
                let bytes = format!("MULTI\r\nSET {key} {number}\r\nSET {twin} {number}\r\nEXEC\r\n");
                let sent = connection.0.get_mut().write_all(bytes.as_bytes());
                sent.and_then(|()| (0..6).try_fold(String::new(), |_, _| connection.reply()))
            }
            1 => connection
                .ask(&format!("HSET h{key} at {number}"))
                .and_then(|_| connection.ask(&format!("SET {key} {number}"))),
            _ => connection.ask(&format!("SET {key} {number}")),
        };
        match said {
            Ok(said) => assert_eq!(said, "+OK"),
            Err(_) => return,
        }
        told.done.insert(key, number);
        told.on_its_way = None;
    }
}

fn check(served: &Served, all: &[Told]) {
    let mut connection = served.connect();
    for told in all {
        for (key, number) in &told.done {
            let found = connection.ask(&format!("GET {key}")).unwrap();
            let possible =
                [Some(*number), told.on_its_way.as_ref().filter(|(on, _)| on == key).map(|(_, number)| *number)];
            assert!(
                possible.iter().flatten().any(|number| found == number.to_string()),
                "{key}: {number} was acknowledged, {found} is there"
            );
        }
        // Transactions are there as a whole, or not at all: a twin is never newer than its key.
        for key in told.done.keys() {
            let twin = connection.ask(&format!("GET {key}:twin")).unwrap();
            let there = connection.ask(&format!("GET {key}")).unwrap();
            let number = |text: &str| text.parse::<u64>().unwrap_or(0);
            assert!(number(&twin) <= number(&there), "{key}: {there}, and its twin {twin}");
        }
    }
}

fn killed(engine: &str, domain: &str, rounds: u64) {
    let dir = tempfile::tempdir().unwrap();
    let (mut all, mut next): (Vec<Told>, Vec<u64>) = ((0..4).map(|_| Told::default()).collect(), vec![0; 4]);
    let mut acknowledged = 0;
    for round in 0..rounds {
        let mut served = Served::start(dir.path(), &["--engine", engine, "--domain", domain]);
        check(&served, &all);
        // What was on its way is settled by now.
        let mut connection = served.connect();
        for told in &mut all {
            if let Some((key, _)) = told.on_its_way.take() {
                let found = connection.ask(&format!("GET {key}")).unwrap();
                if let Ok(found) = found.parse() {
                    told.done.insert(key, found);
                }
            }
        }
        std::thread::scope(|scope| {
            for ((told, next), client) in all.iter_mut().zip(&mut next).zip(0..) {
                let served = &served;
                scope.spawn(move || write(served, client, told, next));
            }
            std::thread::sleep(Duration::from_millis(20 + round * 37 % 150));
            let id = served.child.id().to_string();
            assert!(Command::new("kill").args(["-9", &id]).status().unwrap().success());
        });
        served.child.wait().unwrap();
        acknowledged = next.iter().sum();
    }
    let served = Served::start(dir.path(), &["--engine", engine, "--domain", domain]);
    check(&served, &all);
    println!("{engine}, {domain}: {rounds} kills, {acknowledged} writes, nothing lost");
}

/// `CAIRN_KILLS` sets how often.
#[test]
fn nothing_acknowledged_is_lost_by_kills() {
    let rounds = std::env::var("CAIRN_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(8);
    for engine in ["kv", "heap"] {
        killed(engine, "emulated", rounds);
        killed(engine, "file", rounds);
    }
}

#[test]
fn it_stops_without_losing_anything() {
    let dir = tempfile::tempdir().unwrap();
    for signal in ["-TERM", "-INT"] {
        let mut served = Served::start(dir.path(), &[]);
        let mut connection = served.connect();
        assert_eq!(connection.ask("SET a 1").unwrap(), "+OK");
        assert_eq!(served.signal(signal), Some(0));
        assert!(connection.ask("GET a").is_err());
        let info = cairn(dir.path(), "info data.cairn --json");
        assert_eq!(info.code, 0, "not closed cleanly: {info:?}");
    }
    let mut served = Served::start(dir.path(), &[]);
    let mut connection = served.connect();
    assert_eq!(connection.ask("GET a").unwrap(), "1");
    assert!(connection.ask("SHUTDOWN").is_err());
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
}

#[test]
fn what_cannot_be_served_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |line: &str, code: i32, what: &str, next: &str| {
        let run = cairn(dir.path(), line);
        assert_eq!(run.code, code, "{line}: {run:?}");
        let (said, advice) = run.failure();
        assert!(said.contains(what) && advice.contains(next), "{line}: {run:?}");
    };
    refused("serve", 2, "no store", "cairn serve data.cairn");
    refused("serve data.cairn --redis 0.0.0.0:0", 2, "needs no password", "--password-file");
    refused("serve data.cairn --redis-tls 127.0.0.1:0", 2, "no certificate", "--tls-key");
    refused("serve data.cairn --config none.toml", 2, "none.toml", "");
    std::fs::write(dir.path().join("bad.toml"), "stor = 'x'").unwrap();
    refused("serve data.cairn --config bad.toml", 2, "stor", "cairn help serve");

    let held = Served::start(dir.path(), &[]);
    refused("serve data.cairn --redis 127.0.0.1:0", 2, "open in process", "");
    refused(&format!("serve other.cairn --redis {}", held.address), 2, &held.address, "choose another one");
    drop(held);

    // Damaged: all of its header; and a store that is cut short.
    let path = dir.path().join("data.cairn");
    let sound = std::fs::read(&path).unwrap();
    std::fs::write(&path, &sound[..sound.len() / 2]).unwrap();
    refused("serve data.cairn --redis 127.0.0.1:0", 1, "data.cairn", "");
    // All that says where things are.
    let mut bytes = sound.clone();
    let len = bytes.len().min(1 << 20);
    bytes[..len].fill(0xa5);
    std::fs::write(&path, &bytes).unwrap();
    refused("serve data.cairn --redis 127.0.0.1:0", 2, "not a pool", "");
    std::fs::write(&path, &sound).unwrap();
    drop(Served::start(dir.path(), &[]));
}

#[test]
fn a_store_says_itself_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(dir.path(), &["--engine", "heap"]);
    assert_eq!(served.connect().ask("SET a 1").unwrap(), "+OK");
    drop(served);
    let mut served = Served::start(dir.path(), &[]);
    assert_eq!(served.connect().ask("GET a").unwrap(), "1");
    assert_eq!(served.signal("-TERM"), Some(0));
    let info = cairn(dir.path(), "info data.cairn --json");
    assert_eq!((info.code, info.json()["engine"].as_str()), (0, Some("heap")));
    assert_eq!(cairn(dir.path(), "check data.cairn").code, 0);
    assert_eq!(cairn(dir.path(), "kv create other.cairn").code, 0);
    assert_eq!(cairn(dir.path(), "create pool.cairn --size 1M").code, 0);
    for (line, what, next) in [
        (
            "serve data.cairn --engine kv",
            "is a store of engine heap, and --engine kv was asked for",
            "leave --engine out",
        ),
        ("serve data.cairn --max-memory 1G", "--max-memory", "leave it out"),
        ("kv get data.cairn a", "\"heap\"", ""),
        (
            "serve other.cairn --engine heap",
            "is a store of engine kv, and --engine heap was asked for",
            "leave --engine out",
        ),
        ("serve pool.cairn", "holds no store", "name another file"),
    ] {
        let run = cairn(dir.path(), line);
        assert_eq!(run.code, 2, "{line}: {run:?}");
        let (said, advice) = run.failure();
        assert!(said.contains(what) && advice.contains(next), "{line}: {run:?}");
    }
}

#[test]
fn a_file_and_the_environment_say_what_flags_do_not() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("c.toml"), "max-connections = 77\nidle = 5\nmax-memory = '1G'\n").unwrap();
    std::fs::write(dir.path().join("secret"), "open sesame\n").unwrap();
    let served = Served::start(dir.path(), &["--config", "c.toml", "--idle", "9", "--password-file", "secret"]);
    let mut connection = served.connect();
    assert!(connection.ask("PING").unwrap().starts_with("-NOAUTH"));
    assert_eq!(connection.ask("AUTH 'open sesame'").unwrap(), "+OK");
    for (name, value) in [("maxclients", "77"), ("timeout", "9"), ("maxmemory", "1073741824")] {
        assert_eq!(connection.ask(&format!("CONFIG GET {name}")).unwrap(), "*2");
        assert_eq!((connection.reply().unwrap(), connection.reply().unwrap()), (name.to_owned(), value.to_owned()));
    }
}
