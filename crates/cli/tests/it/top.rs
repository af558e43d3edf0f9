//! `cairn top`: of a server that runs, of none, in a terminal and without.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::{cairn, temp};

/// `cairn serve`, killed at the end.
struct Served {
    child: Child,
    address: String,
}

impl Served {
    fn start(dir: &Path, redis: &str, more: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_cairn"))
            .args(["serve", "data.cairn", "--redis", redis, "--threads", "1"])
            .args(more)
            .current_dir(dir)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut this = Self { child, address: String::new() };
        let found = lines.find_map(|line| Some(line.unwrap().strip_prefix("cairn: redis at ")?.to_owned()));
        this.address = found.unwrap();
        // What it says from now on is read and dropped: it may say it.
        std::thread::Builder::new().spawn(move || lines.for_each(drop)).unwrap();
        this
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_look_at_a_server() {
    let dir = temp();
    let served = Served::start(dir.path(), "127.0.0.1:0", &[]);
    let mut client = TcpStream::connect(&served.address).unwrap();
    client.write_all(&b"SET apples 17\r\n".repeat(20)).unwrap();
    client.read_exact(&mut [0; 5 * 20]).unwrap();

    let run = cairn(dir.path(), &format!("top --json --interval 0.3 --redis {}", served.address));
    assert_eq!(run.code, 0, "{run:?}");
    let look = run.json();
    assert_eq!(look["address"], served.address.as_str());
    assert_eq!((&look["engine"], &look["connections"]["now"]), (&"kv".into(), &2.into()), "{look}");
    assert!(look["seconds"].as_f64().is_some_and(|seconds| (0.3..5.0).contains(&seconds)), "{look}");
    let commands = look["commands"].as_array().unwrap();
    let set = commands.iter().find(|one| one["name"] == "set").unwrap();
    assert_eq!((&set["calls"], &set["per_second"]), (&20.into(), &0.0.into()));
    // It is asked itself between its two looks.
    assert!(look["per_second"]["commands"].as_f64().is_some_and(|rate| rate > 0.0), "{look}");
    assert!(look["reply"]["p50_us"].is_f64() && look["commit"]["p99_us"].is_null(), "{look}");

    let run = cairn(dir.path(), &format!("top --once --interval 0.1 --redis {}", served.address));
    assert_eq!(run.code, 0, "{run:?}");
    for part in [&served.address[..], "acknowledged writes survive", "engine kv", "  set "] {
        assert!(run.out.contains(part), "{part}: {run:?}");
    }
}

#[test]
fn a_server_that_asks_for_a_password() {
    let dir = temp();
    std::fs::write(dir.path().join("secret"), "mellon\n").unwrap();
    std::fs::write(dir.path().join("wrong"), "sesame\n").unwrap();
    let served = Served::start(dir.path(), "127.0.0.1:0", &["--password-file", "secret"]);
    let top = |more: &str| cairn(dir.path(), &format!("top --json --interval 0.1 --redis {} {more}", served.address));
    for more in ["", "--password-file wrong", "--password-file secret --user nobody"] {
        let run = top(more);
        assert_eq!((run.code, run.failure().1), (2, "give its password (--password-file)"), "{run:?}");
    }
    assert_eq!(top("--password-file secret").code, 0);
}

#[test]
fn no_server() {
    let dir = temp();
    let run = cairn(dir.path(), "top --once --redis 127.0.0.1:1");
    assert_eq!(run.code, 2);
    let (what, next) = run.failure();
    assert!(what.starts_with("127.0.0.1:1: ") && next.contains("--redis"), "{run:?}");
    let run = cairn(dir.path(), "top --redis 127.0.0.1:1");
    assert_eq!((run.code, run.failure()), (2, ("standard output is no terminal", "use --once or --json")));
    assert_eq!(cairn(dir.path(), "top --interval 0").code, 2);
}

/// A program in a terminal of its own, which `script` makes; killed at the end.
struct Terminal {
    child: Child,
    out: mpsc::Receiver<Vec<u8>>,
    seen: String,
}

impl Terminal {
    fn start(command: &str) -> Option<Self> {
        let mut child = Command::new("script")
            .args(["-qec", &format!("stty rows 30 cols 100; {command}"), "/dev/null"])
            .env("TERM", "xterm-256color")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let mut stdout = child.stdout.take()?;
        let (send, out) = mpsc::channel();
        std::thread::Builder::new()
            .spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = stdout.read(&mut bytes) {
                    if send.send(bytes[..count].to_vec()).is_err() {
                        return;
                    }
                }
            })
            .ok()?;
        Some(Self { child, out, seen: String::new() })
    }

    fn wait_for(&mut self, text: &str) {
        while !self.seen.contains(text) {
            let more = self.out.recv_timeout(Duration::from_secs(60));
            let more = more.unwrap_or_else(|error| panic!("{text}: {error}: {:?}", self.seen));
            self.seen += &String::from_utf8_lossy(&more);
        }
    }

    fn press(&mut self, key: &[u8]) {
        self.child.stdin.as_mut().unwrap().write_all(key).unwrap();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_terminal_is_left_as_it_was() {
    let dir = temp();
    for key in [&b"q"[..], b"\x03"] {
        let served = Served::start(dir.path(), "127.0.0.1:0", &[]);
        let address = served.address.clone();
        let command = format!(
            "{} top --interval 0.2 --redis {address}; code=$?; stty -a; echo code $code",
            env!("CARGO_BIN_EXE_cairn")
        );
        let Some(mut terminal) = Terminal::start(&command) else {
            eprintln!("skipped: no script(1)");
            return;
        };
        terminal.wait_for("live");
        terminal.wait_for("acknowledged writes survive");
        drop(served);
        terminal.wait_for("away");
        terminal.wait_for("asked again");
        // It comes back at the same place.
        terminal.seen.clear();
        let _served = Served::start(dir.path(), &address, &[]);
        terminal.wait_for("live");
        terminal.press(key);
        terminal.wait_for("code 0");
        // The alternate screen is left, the cursor is back, lines are edited and echoed.
        let end = terminal.seen.rsplit("live").next().unwrap();
        for part in ["\x1b[?1049l", "\x1b[?25h", " icanon", " echo "] {
            assert!(end.contains(part), "{part:?}: {end:?}");
        }
    }
}
