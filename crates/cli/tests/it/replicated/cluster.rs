//! Processes around one log: copies, leaders, and what leaders were told.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use testnet::Net;

use crate::{Run, eventually, temp};

/// A process, killed when it is dropped.
pub struct Proc(pub Child);

impl Proc {
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    pub fn wait(&mut self) -> i32 {
        eventually("a process ends", || self.0.try_wait().unwrap().is_some());
        self.0.wait().unwrap().code().unwrap_or(-1)
    }

    pub fn is_over(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for Proc {
    fn drop(&mut self) {
        drop(self.0.kill()); // it may have ended
        drop(self.0.wait());
    }
}

/// Copies, each served by a process; on hosts of their own if there is a network, copy `i` on host `first + i`.
pub struct Cluster {
    pub dir: TempDir,
    pub net: Option<Arc<Net>>,
    pub first: usize,
    /// Further words for the processes that serve and lead.
    pub more: String,
    pub addresses: Vec<String>,
    replicas: Vec<Option<Proc>>,
}

impl Cluster {
    pub fn new(count: usize, net: Option<Arc<Net>>, first: usize, more: &str) -> Self {
        let dir = temp();
        secret(&dir.path().join("secret"), 0o600);
        let (more, replicas) = (more.to_owned(), (0..count).map(|_| None).collect());
        let mut this = Self { dir, net, first, more, addresses: Vec::new(), replicas };
        for at in 0..count {
            let place = match &this.net {
                Some(net) => format!("{}:7400", net.host(first + at).addr()),
                None => "127.0.0.1:0".to_owned(),
            };
            this.addresses.push(place);
            this.start(at);
        }
        this
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A command of ours, not started.
    pub fn command(&self, line: &str) -> Command {
        // What is on this machine goes when the thread of the test does, however that ends.
        let mut command = match &self.net {
            Some(_) => Command::new(env!("CARGO_BIN_EXE_cairn")),
            None => Command::new("setpriv"),
        };
        if self.net.is_none() {
            command.args(["--pdeathsig", "KILL", env!("CARGO_BIN_EXE_cairn")]);
        }
        command.args(line.split_whitespace()).current_dir(self.dir.path()).env_remove("RUST_LOG");
        command
    }

    /// Starts it on this host.
    fn spawn(&self, host: usize, command: &mut Command) -> Child {
        match &self.net {
            Some(net) => net.host(host).inside(|| command.spawn()).unwrap().unwrap(),
            None => command.spawn().unwrap(),
        }
    }

    /// Serves a copy, where it was served before if it was.
    pub fn start(&mut self, at: usize) {
        let line = format!(
            "log-replica copy{at} --listen {} --secret-file secret --domain emulated {}",
            self.addresses[at], self.more
        );
        let said = File::options().create(true).append(true).open(self.path(&format!("copy{at}.said"))).unwrap();
        let mut child = self.spawn(self.first + at, self.command(&line).stdout(Stdio::piped()).stderr(said));
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let said = || std::fs::read_to_string(self.path(&format!("copy{at}.said"))).unwrap();
        assert!(first.contains(':'), "copy {at} does not serve: {}", said());
        self.addresses[at] = first.trim_end().to_owned();
        self.replicas[at] = Some(Proc(child));
    }

    pub fn replica(&mut self, at: usize) -> &mut Proc {
        self.replicas[at].as_mut().unwrap()
    }

    /// The words that name the copies, and whom to trust.
    pub fn copies(&self) -> String {
        let named: String = self.addresses.iter().map(|address| format!("--replica {address} ")).collect();
        format!("{named} --secret-file secret --connect-within 1000 --give-up-after 500")
    }

    /// Runs a command to its end.
    pub fn run(&self, host: usize, line: &str) -> Run {
        let piped = |command: &mut Command| {
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        };
        let mut command = self.command(line);
        piped(&mut command);
        let output = self.spawn(host, &mut command).wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Run { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Runs a command that must do what it is told.
    #[track_caller]
    pub fn done(&self, host: usize, line: &str) -> Run {
        let run = self.run(host, line);
        assert_eq!(run.code, 0, "{line}: {run:?}");
        run
    }

    /// Leads the log on this host, and appends one line after the other.
    pub fn append(&self, host: usize, name: &str, words: &str) -> Appender {
        let said = self.path(&format!("{name}.said"));
        let mut command = self.command(&format!("log append --print-lsn {words}"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&said).unwrap());
        let mut child = self.spawn(host, &mut command);
        let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let told: Arc<Mutex<Vec<u64>>> = Arc::default();
        let (line, heard) = (format!("{name} "), Arc::clone(&told));
        let mut threads = Vec::new();
        threads.push(spawn(move || {
            // Ends when it is no longer read.
            for number in 0.. {
                if writeln!(input, "{line}{number}").is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }));
        threads.push(spawn(move || {
            for lsn in BufReader::new(output).lines() {
                heard.lock().unwrap().push(lsn.unwrap().parse().unwrap());
            }
        }));
        Appender { proc: Proc(child), name: name.to_owned(), said, told, threads }
    }

    /// Holds what the log has against what was told.
    pub fn check(&self, host: usize, words: &str, ended: &[Told]) {
        let run = self.done(host, &format!("log cat --json {words}"));
        let records: Vec<(u64, String)> = run
            .out
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
            .map(|record| (record["lsn"].as_u64().unwrap(), record["text"].as_str().unwrap().to_owned()))
            .collect();
        assert!(records.windows(2).all(|two| two[0].0 < two[1].0), "in order");
        let mut all = 0;
        for told in ended {
            assert!(told.lsns.windows(2).all(|two| two[0] < two[1]), "{}: told in order", told.name);
            for (number, lsn) in told.lsns.iter().enumerate() {
                let wanted = format!("{} {number}", told.name);
                let found = records.binary_search_by_key(lsn, |record| record.0).map(|at| &records[at].1);
                assert_eq!(found, Ok(&wanted), "record {lsn} was acknowledged");
                all += 1;
            }
            // What was not acknowledged may be there: once, in order, behind what was.
            let own = records.iter().filter_map(|(_, text)| text.strip_prefix(&format!("{} ", told.name)));
            let own: Vec<usize> = own.map(|number| number.parse().unwrap()).collect();
            assert!(
                own.len() >= told.lsns.len() && own.iter().copied().eq(0..own.len()),
                "{}: exactly once",
                told.name
            );
        }
        println!("{all} records acknowledged, {} there, nothing lost", records.len());
        assert!(all > 0, "nothing was acknowledged");
    }
}

/// What a leader had acknowledged when it ended.
pub struct Told {
    pub name: String,
    pub lsns: Vec<u64>,
    pub code: i32,
    pub said: String,
}

/// A leader that appends.
pub struct Appender {
    pub proc: Proc,
    name: String,
    said: PathBuf,
    told: Arc<Mutex<Vec<u64>>>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Appender {
    pub fn told(&self) -> usize {
        self.told.lock().unwrap().len()
    }

    /// Waits until it has told so many more.
    #[track_caller]
    pub fn await_more(&mut self, more: usize) {
        let wanted = self.told() + more;
        eventually("a leader goes on", || {
            let over = self.proc.is_over();
            assert!(!over || self.told() >= wanted, "{} has ended: {}", self.name, read(&self.said));
            self.told() >= wanted
        });
    }

    /// Ends it as a loss of power would.
    pub fn kill(mut self) -> Told {
        self.proc.kill();
        self.end()
    }

    /// Waits until it has ended by itself.
    pub fn end(mut self) -> Told {
        let code = self.proc.wait();
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
        let lsns = std::mem::take(&mut *self.told.lock().unwrap());
        Told { name: self.name, lsns, code, said: read(&self.said) }
    }
}

impl Told {
    /// It ended by itself, said why, and acknowledged nothing that its successor, whose first record was `next`, does not have.
    #[track_caller]
    pub fn was_shut_out(self, next: u64, why: &[&str]) -> Self {
        assert_eq!(self.code, 2, "{}: {}", self.name, self.said);
        let says = |why: &&str| self.said.contains(*why);
        assert!(self.said.contains("error: ") && why.iter().any(says), "{}: {}", self.name, self.said);
        assert!(
            self.lsns.last().is_none_or(|last| *last < next),
            "{} went on beyond {next}: {:?}",
            self.name,
            self.lsns
        );
        self
    }
}

pub fn secret(path: &Path, mode: u32) {
    let mut file = File::options().create(true).truncate(true).write(true).mode(mode).open(path).unwrap();
    file.write_all(b"what all of them know").unwrap();
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[expect(clippy::disallowed_methods, reason = "ends with the process that it speaks to, which is waited for")]
fn spawn(what: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
    std::thread::spawn(what)
}
