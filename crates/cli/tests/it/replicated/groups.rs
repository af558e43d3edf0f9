//! Machines of which each is started with `cairn serve --etcd` and nothing else.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

use rustix::process::Signal;

use super::cluster::{Cluster, Proc};
use crate::etcd::Etcd;
use crate::witness::Connection;
use crate::{Run, eventually};

pub const MACHINES: usize = 3;

pub struct Group {
    pub cluster: Cluster,
    etcd: Etcd,
    /// Ports of Redis' protocol, and of the copies of the log.
    pub ports: Vec<(u16, u16)>,
    running: Vec<Option<Proc>>,
    /// By what the machines know each other, and etcd knows them.
    trust: String,
    /// Short, so that it is full now and then.
    pub log_size: &'static str,
    /// Seconds. Short where a test waits for its end; where one must not lose its leader to a busy machine, longer.
    pub lease: u32,
}

impl Group {
    pub fn new() -> Self {
        Self::with(Etcd::start(1), "--secret-file secret")
    }

    pub fn with(etcd: Etcd, trust: &str) -> Self {
        let taken: Vec<_> = (0..2 * MACHINES).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let port = |at: usize| taken[at].local_addr().unwrap().port();
        let ports = (0..MACHINES).map(|at| (port(2 * at), port(2 * at + 1))).collect();
        drop(taken);
        let running = (0..MACHINES).map(|_| None).collect();
        Self {
            cluster: Cluster::new(0, None, 0, ""),
            etcd,
            ports,
            running,
            trust: trust.to_owned(),
            log_size: "256K",
            lease: 1,
        }
    }

    fn line(&self, files: &str, group: &str, name: &str, (redis, copy): (u16, u16)) -> String {
        format!(
            "serve store{files} --log log{files} --etcd {} --prefix /cairn/{group} --name {name} --redis 127.0.0.1:{redis} --listen 127.0.0.1:{copy} --domain emulated --lease {} --log-size {} {}",
            self.etcd.endpoints()[0],
            self.lease,
            self.log_size,
            self.trust
        )
    }

    /// What a machine says that ends by itself.
    fn refused(&self, line: &str) -> String {
        let out = self.cluster.command(line).output().unwrap();
        assert_eq!(out.status.code(), Some(2), "{out:?}");
        String::from_utf8(out.stderr).unwrap()
    }

    pub fn start(&mut self, at: usize) {
        self.start_with(at, "");
    }

    /// With more words.
    pub fn start_with(&mut self, at: usize, more: &str) {
        let line = self.line(&at.to_string(), "shop", &format!("m{at}"), self.ports[at]) + " " + more;
        let path = self.cluster.path(&format!("out{at}"));
        let out = std::fs::File::options().create(true).append(true).open(path).unwrap();
        self.running[at] = Some(Proc(self.cluster.command(&line).stderr(out).spawn().unwrap()));
    }

    /// What a machine has said.
    pub fn said(&self, at: usize) -> String {
        std::fs::read_to_string(self.cluster.path(&format!("out{at}"))).unwrap()
    }

    /// Ends a machine as an operator does.
    pub fn end(&mut self, at: usize) -> i32 {
        let mut proc = self.running[at].take().unwrap();
        proc.signal(Signal::TERM);
        proc.wait()
    }

    pub fn start_all(&mut self) {
        (0..MACHINES).for_each(|at| self.start(at));
    }

    pub fn kill(&mut self, at: usize) {
        self.running[at].take().unwrap().kill();
    }

    pub fn signal(&self, at: usize, signal: Signal) {
        self.running[at].as_ref().unwrap().signal(signal);
    }

    /// Stops a machine (SIGSTOP), and waits until none of its threads goes on: a signal takes a moment.
    pub fn halt(&self, at: usize) {
        self.signal(at, Signal::STOP);
        let tasks = format!("/proc/{}/task", self.running[at].as_ref().unwrap().0.id());
        eventually("all its threads have stopped", || {
            let state = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            let is_stopped = |stat: String| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'));
            std::fs::read_dir(&tasks).unwrap().all(|task| is_stopped(state(task.unwrap())))
        });
    }

    /// The words that name it.
    pub fn words(&self) -> String {
        format!("--etcd {} --prefix /cairn/shop {}", self.etcd.endpoints()[0], self.trust)
    }

    /// Runs `cairn group`.
    pub fn run(&self, words: &str) -> Run {
        self.cluster.run(0, &format!("group {words} {}", self.words()))
    }

    pub fn ask(&self, at: usize, line: &str) -> std::io::Result<String> {
        Connection::to(&format!("127.0.0.1:{}", self.ports[at].0))?.ask(line)
    }

    /// The machines that say that they lead.
    fn leaders(&self, of: &[usize]) -> Vec<usize> {
        of.iter().copied().filter(|at| self.ask(*at, "ROLE").is_ok_and(|role| role == "*3")).collect()
    }

    /// Waits until one of these leads.
    pub fn leader(&self, of: &[usize]) -> usize {
        let mut found = Vec::new();
        eventually("one leads", || {
            found = self.leaders(of);
            found.len() == 1
        });
        found[0]
    }

    /// What INFO of a machine says under this name.
    pub fn info(&self, at: usize, name: &str) -> Option<String> {
        let out = Command::new("redis-cli")
            .args(["-p", &self.ports[at].0.to_string(), "info", "replication"])
            .output()
            .unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        text.lines().find_map(|line| line.trim_end().strip_prefix(&format!("{name}:")).map(str::to_owned))
    }

    /// Waits until all machines take part.
    pub fn await_all_join(&self, leader: usize) {
        eventually("all machines take part", || self.info(leader, "connected_slaves").as_deref() == Some("2"));
    }

    /// Waits until all machines have everything.
    pub fn await_all(&self, leader: usize) {
        self.await_all_join(leader);
        let followers = (0..MACHINES).filter(|at| *at != leader);
        let commits = || self.info(leader, "master_repl_offset");
        followers.for_each(|at| eventually("a follower has all", || self.info(at, "slave_repl_offset") == commits()));
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for at in 0..MACHINES {
                let said = std::fs::read_to_string(self.cluster.path(&format!("out{at}"))).unwrap_or_default();
                eprintln!("m{at} has said:\n{said}");
            }
        }
    }
}

/// A client that counts in a key of its own, and asks one machine after the other until it hears that its write is done.
struct Counter<'p> {
    ports: &'p [u16],
    key: String,
    /// What was acknowledged last; and what was sent.
    told: u64,
    sent: u64,
    at: usize,
    connection: Option<Connection>,
}

impl<'p> Counter<'p> {
    fn new(ports: &'p [u16], key: &str) -> Self {
        Self { ports, key: key.to_owned(), told: 0, sent: 0, at: 0, connection: None }
    }

    fn once(&mut self, line: &str) -> Option<String> {
        let port = self.ports[self.at];
        let connection = match self.connection.take() {
            Some(connection) => Some(connection),
            None => Connection::within(&format!("127.0.0.1:{port}"), Duration::from_secs(2)).ok(),
        };
        let answer = connection.and_then(|mut connection| {
            let answer = connection.ask(line).ok().filter(|answer| !answer.starts_with('-'))?;
            self.connection = Some(connection);
            Some(answer)
        });
        if answer.is_none() {
            self.at = (self.at + 1) % MACHINES;
        }
        answer
    }

    /// Writes the next number, again and again until it is acknowledged: to write a number twice does no harm.
    fn count(&mut self, over: &AtomicBool) {
        self.sent = self.told + 1;
        let line = format!("SET {} {}", self.key, self.sent);
        while !over.load(Acquire) {
            if self.once(&line).as_deref() == Some("+OK") {
                self.told = self.sent;
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What is there.
    fn read(&mut self) -> u64 {
        let line = format!("GET {}", self.key);
        let mut found = None;
        eventually("it is read", || {
            found = self.once(&line);
            found.is_some()
        });
        found.filter(|found| found != "nil").map_or(0, |found| found.parse().unwrap())
    }

    /// What is there must be what was acknowledged, or what was sent and has no answer.
    fn check(&mut self) {
        let found = self.read();
        assert!((self.told..=self.sent).contains(&found), "{}: {found}, not {} or {}", self.key, self.told, self.sent);
    }
}

/// Counts with several clients while `act` does something, and checks all that they were told behind it.
pub fn under_load<R>(group: &mut Group, act: impl FnOnce(&mut Group, &dyn Fn()) -> R) -> R {
    let (over, told) = (AtomicBool::new(false), Mutex::new(0_u64));
    // They stay, whatever becomes of the machines.
    let ports: Vec<u16> = group.ports.iter().map(|(redis, _)| *redis).collect();
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (ports, over, told) = (&ports, &over, &told);
            scope.spawn(move || {
                let mut counter = Counter::new(ports, &format!("c{number}"));
                // Behind what an earlier load has written.
                counter.told = counter.read();
                counter.sent = counter.told;
                while !over.load(Acquire) {
                    counter.count(over);
                    *told.lock().unwrap() += 1;
                    if counter.told.is_multiple_of(20) {
                        counter.check();
                    }
                }
                counter.check();
            });
        }
        let more = || {
            let before = *told.lock().unwrap();
            eventually("writes are acknowledged", || *told.lock().unwrap() > before + 40);
        };
        more();
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let done = act(group, &more);
            more();
            done
        }));
        over.store(true, Release);
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[test]
fn a_group_leads_itself_whatever_becomes_of_its_machines() {
    let mut group = Group::new();
    group.start_all();
    let all: Vec<usize> = (0..MACHINES).collect();
    let first = group.leader(&all);
    let others = |of: usize| all.iter().copied().filter(|at| *at != of).collect::<Vec<_>>();

    // Clients are told where to go.
    let follower = others(first)[0];
    eventually("followers know the leader", || group.info(follower, "master_link_status").as_deref() == Some("up"));
    for line in ["SET a 1", "GET a", "BLPOP a 1", "WATCH a", "PUBLISH a b"] {
        let told = group.ask(follower, line).unwrap();
        assert!(
            told.starts_with("-READONLY ") && told.ends_with(&format!("127.0.0.1:{}", group.ports[first].0)),
            "{told}"
        );
    }
    assert_eq!(group.info(follower, "master_port").unwrap(), group.ports[first].0.to_string());
    assert_eq!(group.ask(follower, "ROLE").unwrap(), "*5");

    under_load(&mut group, |group, more| {
        // Killed: another one leads, and it comes back by itself.
        group.kill(first);
        let second = group.leader(&others(first));
        more();
        group.start(first);
        group.await_all_join(second);
        // Stopped where it is, until another one leads: it answers nothing that is stale.
        group.running[second].as_ref().unwrap().signal(Signal::STOP);
        let third = group.leader(&others(second));
        more();
        group.running[second].as_ref().unwrap().signal(Signal::CONT);
        eventually("it knows that it leads no more", || group.leaders(&all) == [third]);
        group.await_all_join(third);
    });

    // All at once.
    (0..MACHINES).for_each(|at| group.kill(at));
    group.start_all();
    let leader = under_load(&mut group, |group, _| group.leader(&all));
    group.await_all(leader);
    // One ends well: the next one need not wait for its lease, and no machine has taken anything over by then.
    std::fs::write(group.cluster.path(&format!("out{leader}")), "").unwrap();
    assert_eq!(group.end(leader), 0);
    let said = group.said(leader);
    assert!(
        said.contains("not leading any more: it is to stop") && said.contains("the store is left as it is"),
        "{said}"
    );
    assert!(!said.contains("another leader") && said.ends_with("cairn: stopped\n"), "{said}");
    group.leader(&others(leader));
}

#[test]
fn a_machine_that_is_further_behind_than_the_log_gets_the_store() {
    let mut group = Group::new();
    group.start_all();
    let all: Vec<usize> = (0..MACHINES).collect();
    let leader = group.leader(&all);
    group.await_all(leader);
    let away = (leader + 1) % MACHINES;
    group.kill(away);
    // Four times as much as the log holds.
    let mut client = Connection::to(&format!("127.0.0.1:{}", group.ports[leader].0)).unwrap();
    for n in 0..1000 {
        assert_eq!(client.ask(&format!("SET k{n} {}", "x".repeat(1000))).unwrap(), "+OK");
    }
    group.start(away);
    let said = || std::fs::read_to_string(group.cluster.path(&format!("out{away}"))).unwrap();
    eventually("it has the store", || said().contains("has the store anew"));
    let mode = std::fs::metadata(group.cluster.path(&format!("store{away}"))).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "for nobody else");
    let number = |text: Option<String>| text.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    eventually("it has all", || number(group.info(away, "slave_repl_offset")) > 1000);
    group.await_all_join(leader);
    // It has all of it, also when the others have not.
    group.kill(leader);
    let other = 3 - leader - away;
    group.running[other].as_ref().unwrap().signal(Signal::TERM);
    assert_eq!(group.running[other].as_mut().unwrap().wait(), 0);
    group.start(other);
    let next = group.leader(&[away, other]);
    assert_eq!(group.ask(next, "GET k999").unwrap().len(), 1000);
    assert_eq!(group.ask(next, "GET k0").unwrap().len(), 1000);
}

/// One value, and what stands between `MULTI` and `EXEC`, may have an eighth of the log.
#[test]
fn what_is_nearly_as_long_as_a_segment_is_on_every_machine() {
    let mut group = Group::new();
    group.log_size = "16M";
    // It is written to all the while.
    group.lease = 5;
    group.start_all();
    let all: Vec<usize> = (0..MACHINES).collect();
    let leader = group.leader(&all);
    group.await_all(leader);
    let mut client = Connection::to(&format!("127.0.0.1:{}", group.ports[leader].0)).unwrap();
    let value = |n: usize, len: usize| char::from(b'a' + n as u8 % 26).to_string().repeat(len);
    let set = |client: &mut Connection, n: usize| {
        let line = format!("SET k{n} {}", value(n, 2_000_000));
        // The log is short, and holds what a machine that joins has not got yet.
        eventually(&format!("{n} is set"), || client.ask(&line).unwrap() == "+OK");
    };
    (0..20).for_each(|n| set(&mut client, n));
    let refused = client.ask(&format!("SET long {}", value(0, 2_100_000))).unwrap();
    assert!(refused.contains("a segment of it") && refused.contains("--log-size"), "{refused}");
    // Two between MULTI and EXEC fit, and three do not: nothing is there of these.
    let half = |name: &str| format!("SET {name} {}", value(0, 1_000_000));
    for (names, fits) in [(&["a", "b"][..], true), (&["c", "d", "e"], false)] {
        assert_eq!(client.ask("MULTI").unwrap(), "+OK");
        names.iter().for_each(|name| assert_eq!(client.ask(&half(name)).unwrap(), "+QUEUED"));
        let answer = client.ask("EXEC").unwrap();
        if fits {
            assert_eq!(answer, "*2");
            names.iter().for_each(|_| assert_eq!(client.reply().unwrap(), "+OK"));
        } else {
            assert!(answer.contains("a segment of it"), "{answer}");
        }
    }
    // One that was away gets them from the log, or the store anew.
    let away = (leader + 1) % MACHINES;
    group.kill(away);
    (20..22).for_each(|n| set(&mut client, n));
    group.start(away);
    group.await_all(leader);
    (22..40).for_each(|n| set(&mut client, n));
    group.await_all(leader);
    group.kill(leader);
    let next = group.leader(&[away, 3 - leader - away]);
    (0..40).for_each(|n| assert!(group.ask(next, &format!("GET k{n}")).unwrap() == value(n, 2_000_000), "{n}"));
    assert_eq!(group.ask(next, "EXISTS long a b c d e").unwrap(), ":2");
}

/// A leader that is full evicts, and a follower has room for all that it writes, and for what a next leader does.
#[test]
fn a_group_is_a_cache() {
    let mut group = Group::new();
    let start = |group: &mut Group, at| group.start_with(at, "--max-size 16M --max-memory-policy allkeys-lru");
    (0..MACHINES).for_each(|at| start(&mut group, at));
    let mut all: Vec<usize> = (0..MACHINES).collect();
    let leader = group.leader(&all);
    group.await_all(leader);
    // Three times what the store holds.
    let fill = |group: &Group, leader: usize, round: u32| {
        let mut client = Connection::to(&format!("127.0.0.1:{}", group.ports[leader].0)).unwrap();
        for n in 0..5000_u32 {
            let line = format!("SET k{round}:{n} {}", "x".repeat(1000 + (n * 7919 % 13_000) as usize));
            // The log is short, and a machine that joins holds its space for a moment: a busy one for longer than a write waits.
            eventually(&format!("{n} of round {round}"), || client.ask(&line).unwrap() == "+OK");
        }
    };
    fill(&group, leader, 1);
    group.await_all(leader);
    group.kill(leader);
    all.retain(|at| *at != leader);
    let next = group.leader(&all);
    start(&mut group, leader);
    fill(&group, next, 2);
    group.await_all(next);
    let keys = group.ask(next, "DBSIZE").unwrap();
    assert!((500..3000).contains(&keys.trim_start_matches(':').parse::<u32>().unwrap()), "{keys}");
    for at in 0..MACHINES {
        assert_eq!(group.end(at), 0, "{}", group.said(at));
        assert!(!group.said(at).contains("no room"), "{}", group.said(at));
    }
}

#[test]
fn who_does_not_belong_to_the_group_is_told() {
    let mut group = Group::new();
    group.start_all();
    let leader = group.leader(&[0, 1, 2]);
    group.await_all_join(leader);
    // A second machine of a name, which would be one with the first for the others.
    let said = group.refused(&group.line("-twice", "shop", "m0", (0, 0)));
    assert!(said.contains("has the name m0, too") && said.contains("--name of its own"), "{said}");
    // One of another group, which has a log.
    let others = ["p", "q"].map(|name| {
        let line = group.line(name, "other", name, (0, 0)) + " --machines 2";
        let errors = std::fs::File::create(group.cluster.path(&format!("out{name}"))).unwrap();
        Proc(group.cluster.command(&line).stderr(errors).spawn().unwrap())
    });
    let out = |name: &str| std::fs::read_to_string(group.cluster.path(&format!("out{name}"))).unwrap();
    eventually("one of them leads", || ["p", "q"].iter().any(|name| out(name).contains("leading with term")));
    others.into_iter().for_each(|mut other| other.kill());
    let said = group.refused(&group.line("p", "shop", "p", (0, 0)));
    assert!(said.contains("and the group shop has log") && said.contains("--prefix of its own group"), "{said}");
    // No machine has noticed.
    assert_eq!(group.leaders(&[0, 1, 2]), [leader]);
    assert_eq!(group.ask(leader, "SET a 1").unwrap(), "+OK");
}

/// redis-py's client of Sentinel, unchanged, which knows nothing but where the machines are.
const SENTINEL: &str = r#"
import sys, time, redis
from redis.sentinel import Sentinel
from redis.backoff import ConstantBackoff
from redis.retry import Retry
ports = [int(port) for port in sys.argv[1:]]
sentinel = Sentinel([("127.0.0.1", port) for port in ports], socket_timeout=2)
retry = Retry(ConstantBackoff(0.1), 300)
errors = [redis.ConnectionError, redis.TimeoutError]
leader = sentinel.master_for("shop", socket_timeout=2, retry=retry, retry_on_error=errors)
assert len(sentinel.discover_slaves("shop")) == 2
print("begin", flush=True)
n = 0
for line in sys.stdin:
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        n += 1
        assert leader.set("n", n)
        assert int(leader.get("n")) == n
    host, port = sentinel.discover_master("shop")
    print(port, flush=True)
"#;

#[test]
fn clients_of_sentinel_find_the_leader() {
    use std::io::{BufRead, BufReader, Write};
    use std::process::Stdio;
    let mut group = Group::new();
    group.start_all();
    let all: Vec<usize> = (0..MACHINES).collect();
    let first = group.leader(&all);
    group.await_all(first);
    let ports: Vec<String> = group.ports.iter().map(|(redis, _)| redis.to_string()).collect();
    let mut python = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "/usr/bin/python3", "-c", SENTINEL])
        .args(&ports)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut to, mut from) = (python.stdin.take().unwrap(), BufReader::new(python.stdout.take().unwrap()).lines());
    let mut next = || from.next().expect("it goes on").unwrap();
    assert_eq!(next(), "begin");
    to.write_all(b"\n").unwrap();
    assert_eq!(next(), ports[first]);
    group.kill(first);
    to.write_all(b"\n").unwrap();
    assert!(next() != ports[first]);
    drop(to);
    assert!(python.wait().unwrap().success());
}
