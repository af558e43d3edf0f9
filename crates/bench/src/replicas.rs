//! Copies of a replicated log in processes of their own: they share no lock and no allocator with the process that leads the log.
//!
//! The program starts itself again with [`WORKER`], which is told on its standard input what to serve, says where, and serves until the input ends: it does not
//! outlive the process that started it.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use log::fabric::{Options, Secret};
use log::{Replica, Replicas};
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The hidden command that calls [`serve`].
pub const WORKER: &str = "bench-replica";

/// Said before the address.
const SAID: &str = "replica at ";

/// How leader and backups reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// As [`log::fabric::Transport`] reads it.
    pub transport: &'static str,
    /// How long both ends of a connection look for what comes before they sleep.
    pub spin: Duration,
}

impl Default for Reach {
    fn default() -> Self {
        Self { transport: "tcp", spin: Duration::ZERO }
    }
}

/// A loaded machine is slow; a copy that is given up would end the measurement.
const TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Serialize, Deserialize)]
struct Job {
    path: PathBuf,
    secret: [u8; 32],
    transport: String,
    spin_us: u64,
}

fn trust(secret: &[u8; 32], transport: &str, spin: Duration) -> Result<Options> {
    let secret = Secret::new(secret).map_err(log::Error::from)?;
    let transport = transport.parse().map_err(Error::Parameter)?;
    Ok(Options { secret: Some(secret), transport, spin, send_timeout: TIMEOUT, ..Options::default() })
}

fn failed(op: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |source| Error::Io { op, path: WORKER.into(), source }
}

fn wrong(what: impl Into<String>) -> Error {
    Error::Wrong { who: WORKER.into(), what: what.into() }
}

/// Serves what standard input says, until that ends.
///
/// # Errors
/// It says nothing that makes sense; those of the copy.
pub fn serve() -> Result<()> {
    let mut input = BufReader::new(std::io::stdin());
    let mut line = String::new();
    input.read_line(&mut line).map_err(failed("read standard input"))?;
    let job: Job = serde_json::from_str(&line).map_err(|error| wrong(format!("no job: {error}")))?;
    let trust = trust(&job.secret, &job.transport, Duration::from_micros(job.spin_us))?;
    let replica = Replica::serve(&job.path, "127.0.0.1:0", trust)?;
    let said = format!("{SAID}{}\n", replica.address()?);
    std::io::stdout().write_all(said.as_bytes()).map_err(failed("write standard output"))?;
    std::io::copy(&mut input, &mut std::io::sink()).map_err(failed("read standard input"))?;
    Ok(replica.stop()?)
}

/// Copies that are served.
pub struct Backups {
    trust: Options,
    secret: [u8; 32],
    processes: Vec<Process>,
}

struct Process {
    child: Child,
    address: String,
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Backups {
    /// Starts so many, with their pools in `dir`, under names that begin with `name`.
    ///
    /// # Errors
    /// One does not start.
    pub fn start(dir: &Path, name: &str, count: usize, reach: Reach) -> Result<Self> {
        let Reach { transport, spin } = reach;
        let mut secret = [0; 32];
        let random = std::fs::File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut secret));
        random.map_err(|source| Error::Io { op: "read", path: "/dev/urandom".into(), source })?;
        let trust = trust(&secret, transport, spin)?; // before any process is started
        let start = |number| {
            let path = dir.join(format!("{name}-backup-{number}"));
            Process::start(&Job { path, secret, transport: transport.into(), spin_us: spin.as_micros() as u64 })
        };
        let processes = (1..=count).map(start).collect::<Result<_>>()?;
        Ok(Self { trust, secret, processes })
    }

    /// How many they are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.processes.len()
    }

    /// Where they are, and by what they know the leader.
    #[must_use]
    pub fn named(&self) -> (Vec<String>, &[u8]) {
        (self.processes.iter().map(|process| process.address.clone()).collect(), &self.secret)
    }

    /// All of them.
    #[must_use]
    pub fn replicas(&self) -> Replicas {
        let none = Replicas::new().trust(self.trust.clone()).timeout(TIMEOUT);
        self.processes.iter().fold(none, |replicas, process| replicas.at(&process.address))
    }
}

impl Process {
    fn start(job: &Job) -> Result<Self> {
        let mut child = command().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed("start"))?;
        let (to, from) = (child.stdin.as_mut().map(|to| tell(to, job)), child.stdout.take());
        // Dropped, and thereby ended, if anything fails from here on.
        let mut this = Self { child, address: String::new() };
        to.unwrap_or_else(|| Err(wrong("it has no standard input")))?;
        let from = from.ok_or_else(|| wrong("it has no standard output"))?;
        for line in BufReader::new(from).lines() {
            if let Some((_, address)) = line.map_err(failed("hear"))?.split_once(SAID) {
                this.address = address.to_owned();
                return Ok(this);
            }
        }
        Err(wrong("it ended before it served; what it failed with is above"))
    }
}

fn tell(to: &mut impl Write, job: &Job) -> Result<()> {
    let job = serde_json::to_string(job).map_err(|error| wrong(error.to_string()))?;
    writeln!(to, "{job}").and_then(|()| to.flush()).map_err(failed("tell"))
}

/// This program, whatever has become of its file since.
fn program() -> Command {
    let own = std::env::current_exe().ok().filter(|path| path.exists());
    Command::new(own.unwrap_or_else(|| "/proc/self/exe".into()))
}

#[cfg(not(test))]
fn command() -> Command {
    use std::os::unix::process::CommandExt as _;
    let mut command = program();
    command.arg0("cairn").arg(WORKER);
    command
}

#[cfg(test)]
fn command() -> Command {
    let mut command = program();
    command.args(["--exact", "replicas::tests::worker", "--nocapture", "--test-threads", "1"]);
    command.env("CAIRN_BENCH_REPLICA", "1");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What [`command`] starts.
    #[test]
    fn worker() {
        if std::env::var_os("CAIRN_BENCH_REPLICA").is_some() {
            serve().unwrap();
        }
    }

    #[test]
    fn they_have_what_was_appended_and_end_with_who_started_them() {
        let dir = tempfile::tempdir().unwrap();
        let backups = Backups::start(dir.path(), "log", 2, Reach::default()).unwrap();
        let log = log::Options::new().bytes(1 << 20).create_replicated(&backups.replicas()).unwrap();
        log.append(b"on both").unwrap();
        assert!(log.replicas().iter().all(|(_, _, lsn)| lsn.get() == 1), "{:?}", log.replicas());
        drop(log);
        let there = |process: &Process| Path::new("/proc").join(process.child.id().to_string());
        let ids: Vec<_> = backups.processes.iter().map(there).collect();
        assert!(ids.iter().all(|id| id.exists()));
        drop(backups);
        assert!(ids.iter().all(|id| !id.exists()));
    }
}
