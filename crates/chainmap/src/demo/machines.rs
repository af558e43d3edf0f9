//! An etcd, and three machines: processes that end with this one.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{Demo, Error};
use crate::now_ns;

pub(super) const MACHINES: usize = 3;
/// Ordinary memory with a file system on it.
const MEMORY: &str = "/dev/shm";
/// How long a process has to begin, and to end when it is told to.
const BEGIN: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);
/// Bytes of a machine's last words that are told.
const WORDS_MAX: usize = 500;

pub(super) struct Machines {
    cairn: PathBuf,
    dir: TempDir,
    etcd: Child,
    endpoint: String,
    ttl: u64,
    early: bool,
    /// Ports for members, and for clients.
    ports: Vec<(u16, u16)>,
    running: Vec<Option<Child>>,
}

impl Machines {
    pub(super) fn new(demo: &Demo) -> Result<Self, Error> {
        let parent = demo.dir.clone().unwrap_or_else(|| {
            let memory = PathBuf::from(MEMORY);
            if memory.is_dir() { memory } else { std::env::temp_dir() }
        });
        let made = tempfile::Builder::new().prefix("cairn-chain-").tempdir_in(&parent);
        let dir =
            made.map_err(|error| Error::Io { what: format!("make a directory in {}", parent.display()), error })?;
        secret(&dir).map_err(|error| Error::Io { what: "write a secret".into(), error })?;
        let (etcd, endpoint) = etcd(&dir)?;
        let taken: Vec<u16> = free_ports(2 * MACHINES)?;
        let ports = taken.chunks(2).map(|two| (two[0], two[1])).collect();
        let running = (0..MACHINES).map(|_| None).collect();
        let (cairn, ttl, early) = (demo.cairn.clone(), demo.ttl, demo.early);
        Ok(Self { cairn, dir, etcd, endpoint, ttl, early, ports, running })
    }

    /// Where clients reach each.
    pub(super) fn addresses(&self) -> Vec<String> {
        self.ports.iter().map(|(_, clients)| format!("127.0.0.1:{clients}")).collect()
    }

    pub(super) fn start(&mut self, at: usize) -> Result<(), Error> {
        let machine = (at + 1).to_string();
        let (members, clients) = self.ports[at];
        let mut command = with_this_process();
        command.arg(&self.cairn).args(["chain", "serve"]).arg(self.dir.path().join(format!("bank-{machine}")));
        command.args(["--machine", &machine, "--etcd", &self.endpoint, "--prefix", "/cairn/demo"]);
        command.args(["--listen", &format!("127.0.0.1:{members}"), "--clients", &format!("127.0.0.1:{clients}")]);
        command.arg("--secret-file").arg(self.dir.path().join("secret"));
        command.args(["--first-members", "1,2,3", "--ttl", &self.ttl.to_string(), "--size", "4M", "--queue", "2M"]);
        if self.early {
            command.arg("--plant-early");
        }
        let io = |error| Error::Io { what: format!("write what machine {machine} says"), error };
        let said = File::options().create(true).append(true).open(self.words(at)).map_err(io)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        let child = command.spawn().map_err(|error| missing(&command, &error))?;
        self.running[at] = Some(child);
        Ok(())
    }

    fn words(&self, at: usize) -> PathBuf {
        self.dir.path().join(format!("said-{}", at + 1))
    }

    /// As a loss of power would, but for what the system has not written.
    pub(super) fn kill(&mut self, at: usize) {
        if let Some(mut child) = self.running[at].take() {
            end(&mut child);
        }
    }

    /// As an operator would: it must end well.
    pub(super) fn end(&mut self, at: usize) -> Result<(), Error> {
        let Some(mut child) = self.running[at].take() else { return Ok(()) };
        let told = kill_process(Pid::from_child(&child), Signal::TERM);
        let late = now_ns() + BEGIN.as_nanos() as u64;
        while told.is_ok() && now_ns() < late {
            match child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(None) => std::thread::sleep(LOOK),
                Ok(Some(_)) | Err(_) => break,
            }
        }
        end(&mut child);
        Err(Error::Ended { machine: at + 1, said: format!("not well when it was told to: {}", self.last_words(at)) })
    }

    /// No machine has ended that was not killed.
    pub(super) fn check_running(&mut self) -> Result<(), Error> {
        for at in 0..MACHINES {
            let ended = self.running[at].as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)));
            if ended {
                return Err(Error::Ended { machine: at + 1, said: self.last_words(at) });
            }
        }
        Ok(())
    }

    pub(super) fn not_up(&self, what: &str) -> Error {
        let said: Vec<String> = (0..MACHINES).map(|at| format!("{}: {}", at + 1, self.last_words(at))).collect();
        Error::Program {
            program: "a chain of three machines".into(),
            why: format!("not in time: {what} ({})", said.join("; ")),
        }
    }

    fn last_words(&self, at: usize) -> String {
        let said = std::fs::read(self.words(at)).unwrap_or_default();
        let said = String::from_utf8_lossy(&said[said.len().saturating_sub(WORDS_MAX)..]).trim().replace('\n', " / ");
        if said.is_empty() { "nothing".to_owned() } else { said }
    }

    /// Files of a run in which something was found are kept to look for the reason.
    pub(super) fn keep_if(&mut self, keep: bool) {
        self.dir.disable_cleanup(keep);
    }

    pub(super) fn path(&self) -> &std::path::Path {
        self.dir.path()
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        (0..MACHINES).for_each(|at| self.kill(at));
        end(&mut self.etcd);
    }
}

fn end(child: &mut Child) {
    // A process that has ended already cannot be killed.
    drop(child.kill());
    drop(child.wait());
}

/// A command whose process is killed when this one ends, however it does.
fn with_this_process() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    command
}

fn missing(command: &Command, error: &std::io::Error) -> Error {
    Error::Program { program: command.get_program().to_string_lossy().into_owned(), why: error.to_string() }
}

fn secret(dir: &TempDir) -> std::io::Result<()> {
    let mut random = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    let mut file = File::options().create_new(true).write(true).mode(0o600).open(dir.path().join("secret"))?;
    file.write_all(&random)
}

fn free_ports(count: usize) -> Result<Vec<u16>, Error> {
    let io = |error| Error::Io { what: "look for a free port".into(), error };
    let taken: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>().map_err(io)?;
    taken
        .iter()
        .map(|listener| listener.local_addr().map(|address| address.port()))
        .collect::<Result<_, _>>()
        .map_err(io)
}

/// One whose leases end as soon as they may. What is synced here survives nothing that the demonstration does.
fn etcd(dir: &TempDir) -> Result<(Child, String), Error> {
    let ports = free_ports(2)?;
    let [client, peer] = [ports[0], ports[1]].map(|port| format!("http://127.0.0.1:{port}"));
    let mut command = with_this_process();
    command.args(["etcd", "--unsafe-no-fsync", "--name", "n", "--heartbeat-interval", "50"]);
    command.args(["--election-timeout", "500", "--data-dir"]).arg(dir.path().join("etcd"));
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args(["--initial-cluster", &format!("n={peer}")]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| missing(&command, &error))?;
    let late = now_ns() + BEGIN.as_nanos() as u64;
    while TcpStream::connect(("127.0.0.1", ports[0])).is_err() {
        let status = child.try_wait().ok().flatten();
        if status.is_some() || now_ns() > late {
            end(&mut child);
            let why = status.map_or("it does not answer".to_owned(), |status| status.to_string());
            return Err(Error::Program { program: "etcd".into(), why });
        }
        std::thread::sleep(LOOK);
    }
    Ok((child, client))
}
