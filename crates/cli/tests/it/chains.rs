//! `cairn chain`, with real processes and a real etcd.

mod demo;
mod serve;
mod tail;

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;

use rustix::process::Signal;
use tempfile::TempDir;
use testnet::Net;

use super::replicated::cluster::{Proc, secret};
use super::{Run, eventually};
use crate::etcd::Etcd;
use crate::witness::Connection;

/// Machines that have a place; the first three are those that the chain begins with.
const PLACES: usize = 5;
/// Hosts of a network: etcd is on the first one, machine N on host N, and clients and operators are on this one.
const CLIENTS: usize = 4;

/// Machines of one chain, numbered from 1.
pub struct Chains {
    dir: TempDir,
    pub etcd: Etcd,
    /// For other machines, and for clients.
    ports: Vec<(u16, u16)>,
    running: Vec<Option<Proc>>,
    net: Option<Arc<Net>>,
}

impl Chains {
    pub fn new() -> Self {
        Self::with(None)
    }

    /// Three machines at most, if there is a network.
    fn with(net: Option<Arc<Net>>) -> Self {
        let taken: Vec<_> = (0..2 * PLACES).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let port = |at: usize| taken[at].local_addr().unwrap().port();
        let ports = (0..PLACES).map(|at| (port(2 * at), port(2 * at + 1))).collect();
        drop(taken);
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        secret(&dir.path().join("secret"), 0o600);
        let etcd = net.as_ref().map_or_else(|| Etcd::start(1), |net| Etcd::start_on(net, 1));
        Self { dir, etcd, ports, running: (0..PLACES).map(|_| None).collect(), net }
    }

    /// The first three, at work.
    fn started() -> Self {
        Self::started_with(None)
    }

    fn started_with(net: Option<Arc<Net>>) -> Self {
        let mut chains = Self::with(net);
        (1..=3).for_each(|machine| chains.start(machine, "--first-members 1,2,3"));
        chains.await_well();
        chains
    }

    pub fn words(&self) -> String {
        format!(
            "--etcd {} --prefix /cairn/bank --secret-file {}",
            self.etcd.endpoints()[0],
            self.path("secret").display()
        )
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn line(&self, machine: usize, more: &str) -> String {
        let (listen, clients) = self.ports[machine - 1];
        let usual = |name: &str, usual| if more.contains(name) { "" } else { usual };
        let (size, ttl) = (usual("--size", "--size 9M"), usual("--ttl", "--ttl 1"));
        let (host, open) = (self.host(machine), if self.net.is_some() { "--open" } else { "" });
        format!(
            "chain serve bank-{machine} --machine {machine} --listen {host}:{listen} --clients {host}:{clients} {ttl} {size} --queue 1M {open} {} {more}",
            self.words()
        )
    }

    fn host(&self, machine: usize) -> String {
        self.net.as_ref().map_or_else(|| "127.0.0.1".to_owned(), |net| net.host(machine).addr().to_string())
    }

    fn command(&self, line: &str) -> Command {
        let mut command = match self.net {
            // It would end with the thread that starts it.
            Some(_) => Command::new(env!("CARGO_BIN_EXE_cairn")),
            None => {
                let mut command = Command::new("setpriv");
                command.args(["--pdeathsig", "KILL", env!("CARGO_BIN_EXE_cairn")]);
                command
            }
        };
        command.args(line.split_whitespace());
        command.current_dir(self.dir.path()).env_remove("RUST_LOG");
        command
    }

    pub fn start(&mut self, machine: usize, more: &str) {
        let said = File::options().create(true).append(true).open(self.path(&format!("said-{machine}"))).unwrap();
        let mut command = self.command(&self.line(machine, more));
        let child = inside(self.net.as_deref(), machine, || command.stderr(said).spawn()).unwrap();
        self.running[machine - 1] = Some(Proc(child));
    }

    fn said(&self, machine: usize) -> String {
        fs::read_to_string(self.path(&format!("said-{machine}"))).unwrap()
    }

    fn kill(&mut self, machine: usize) {
        self.running[machine - 1].take().unwrap().kill();
    }

    /// As an operator does.
    fn end(&mut self, machine: usize) {
        let mut process = self.running[machine - 1].take().unwrap();
        process.signal(Signal::TERM);
        assert_eq!(process.wait(), 0, "{}", self.said(machine));
    }

    pub fn run(&self, line: &str) -> Run {
        let mut command = self.command(line);
        run(inside(self.net.as_deref(), CLIENTS, || command.output()).unwrap())
    }

    fn chain(&self, words: &str) -> Run {
        self.run(&format!("chain {words} {}", self.words()))
    }

    /// What a command says that is refused.
    #[track_caller]
    fn refused(&self, line: &str) -> String {
        let run = self.run(line);
        assert_eq!(run.code, 2, "{line}: {run:?}");
        let (what, next) = run.failure();
        assert!(!next.is_empty(), "{line}: {run:?}");
        what.to_owned()
    }

    pub fn await_well(&self) {
        eventually("the chain is well", || self.chain("status").code == 0);
    }

    /// Members in their order, as the status has them.
    fn members(&self) -> Vec<usize> {
        let mut members = Vec::new();
        // Etcd may be busy for a moment.
        eventually("a status", || {
            let run = self.chain("status --json");
            let status: Option<serde_json::Value> = serde_json::from_str(&run.out).ok();
            let listed = status.as_ref().and_then(|status| status["members"].as_array());
            let machine = |one: &serde_json::Value| one["machine"].as_u64().map(|machine| machine as usize);
            members = listed.into_iter().flatten().filter_map(machine).collect();
            // Exit code 1 says that not all is well.
            !members.is_empty()
        });
        members
    }

    fn address(&self, machine: usize) -> String {
        format!("{}:{}", self.host(machine), self.ports[machine - 1].1)
    }

    fn ask(&self, machine: usize, line: &str) -> std::io::Result<String> {
        self.connect(machine)?.ask(line)
    }

    fn connect(&self, machine: usize) -> std::io::Result<Connection> {
        inside(self.net.as_deref(), CLIENTS, || Connection::to(&self.address(machine)))
    }

    /// Asks these machines until one of them, which leads, answers.
    fn ask_until(&self, of: &[usize], line: &str) -> String {
        let mut said = String::new();
        eventually(line, || {
            let answered = |machine: &usize| {
                let said = self.ask(*machine, line).ok()?;
                let later = ["-MOVED", "-TRYAGAIN", "-UNKNOWN"].iter().any(|code| said.starts_with(code));
                (!later).then_some(said)
            };
            said = of.iter().find_map(answered).unwrap_or_default();
            !said.is_empty()
        });
        said
    }
}

/// On this host, if there is a network.
fn inside<T: Send>(net: Option<&Net>, host: usize, what: impl FnOnce() -> T + Send) -> T {
    match net {
        Some(net) => net.host(host).inside(what).unwrap(),
        None => what(),
    }
}

fn run(output: Output) -> Run {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Run { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}
