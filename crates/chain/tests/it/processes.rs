//! Three machines with a bank, as processes that are killed in the middle of its work, and an etcd.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use chain::Sizes;
use chain::process::{Options, Process};

use crate::accounts::{ACCOUNTS, CLIENTS, START, sums, transfer};
use crate::etcd::Etcd;

/// In the environment: machine, file, etcd. Then this process is the replica.
const REPLICA: &str = "CAIRN_CHAIN_REPLICA";
/// Before each line of it.
const SAYS: &str = "replica: ";
/// Much longer than anything takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Not a test of its own: the process that the others start.
#[test]
fn worker() {
    let Ok(replica) = std::env::var(REPLICA) else { return };
    let words: Vec<&str> = replica.split(' ').collect();
    let options = Options::new(words[0].parse().unwrap(), "127.0.0.1:0", &[words[2]], "/cairn/bank")
        .secret(fabric::Secret::new(b"0123456789abcdef").unwrap())
        .first_members(&[1, 2, 3])
        .ttl(Duration::from_secs(1))
        .tick(Duration::from_millis(20))
        .timeout(Duration::from_secs(3))
        .sizes(Sizes { capacity: 9 << 20, queue: 1 << 20 });
    let process = Process::start(words[1], &options).unwrap();
    println!("\n{SAYS}up");
    std::thread::scope(|threads| {
        for line in std::io::stdin().lines() {
            let (line, process) = (line.unwrap(), &process);
            threads.spawn(move || println!("\n{SAYS}{}", answer(process, &line)));
        }
    });
}

/// The number of the question comes first, then what it is.
fn answer(process: &Process, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |at: usize| words[at].parse::<u64>().unwrap();
    let node = process.node();
    let said = match words[1] {
        "transfer" => {
            let [client, from, to] = [2, 4, 5].map(|at| number(at) as usize);
            transfer(node, client, number(3), from, to).map(|left| format!("{left:?}"))
        }
        "sums" => sums(node).map(|(sum, last)| format!("{sum} {last:?}")),
        "status" => {
            let status = node.status();
            let members = status.view.as_ref().map_or(0, |view| view.members.len());
            Ok(format!("{} {members} {} {:?}", status.is_head(), status.progress.executed, status.stopped))
        }
        "heap" => Ok(format!("{:x}", xxh(&node.heap().unwrap()))),
        other => panic!("{other}"),
    };
    format!("{} {}", words[0], said.unwrap_or_else(|error| format!("error {error}")))
}

fn xxh(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

struct Replica {
    child: Child,
    stdin: Mutex<ChildStdin>,
    answers: Mutex<Lines<BufReader<ChildStdout>>>,
    heard: Mutex<std::collections::BTreeMap<u64, String>>,
}

struct Machines {
    etcd: Etcd,
    dir: tempfile::TempDir,
    replicas: [Mutex<Option<std::sync::Arc<Replica>>>; 3],
    next: AtomicU64,
}

impl Replica {
    fn start(etcd: &Etcd, machine: usize, file: &Path) -> Self {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(std::env::current_exe().unwrap());
        command.args(["processes::worker", "--exact", "--nocapture", "--test-threads", "1"]);
        command.env(REPLICA, format!("{machine} {} {}", file.display(), etcd.endpoint()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (stdin, answers) = (Mutex::new(stdin), Mutex::new(BufReader::new(stdout).lines()));
        Self { child, stdin, answers, heard: Mutex::default() }
    }

    /// None: it is dead.
    fn ask(&self, number: u64, what: &str) -> Option<String> {
        writeln!(self.stdin.lock().unwrap(), "{number} {what}").ok()?;
        loop {
            if let Some(answer) = self.heard.lock().unwrap().remove(&number) {
                return Some(answer);
            }
            let Ok(mut lines) = self.answers.try_lock() else {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            let line = lines.next()?.ok()?;
            let Some(answer) = line.strip_prefix(SAYS) else { continue };
            if let Some((of, answer)) = answer.split_once(' ') {
                self.heard.lock().unwrap().insert(of.parse().unwrap(), answer.to_owned());
            }
        }
    }
}

impl Machines {
    fn start() -> Self {
        let (etcd, dir) = (Etcd::start(), tempfile::tempdir_in("/dev/shm").unwrap());
        let machines = Self { etcd, dir, replicas: Default::default(), next: AtomicU64::new(1) };
        (0..3).for_each(|at| machines.run(at));
        machines
    }

    fn file(&self, at: usize) -> PathBuf {
        self.dir.path().join(format!("r{at}"))
    }

    fn run(&self, at: usize) {
        let replica = Replica::start(&self.etcd, at + 1, &self.file(at));
        *self.replicas[at].lock().unwrap() = Some(std::sync::Arc::new(replica));
    }

    fn kill(&self, at: usize) {
        let Some(replica) = self.replicas[at].lock().unwrap().take() else { return };
        let pid = rustix::process::Pid::from_child(&replica.child);
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).unwrap();
    }

    fn signal(&self, at: usize, signal: rustix::process::Signal) {
        let replica = self.replicas[at].lock().unwrap().clone().unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_child(&replica.child), signal).unwrap();
    }

    fn ask(&self, at: usize, what: &str) -> Option<String> {
        let replica = self.replicas[at].lock().unwrap().clone()?;
        replica.ask(self.next.fetch_add(1, SeqCst), what).filter(|answer| !answer.starts_with("error"))
    }

    /// Asks the head until it answers.
    fn ask_head(&self, what: &str) -> String {
        let mut said = None;
        eventually(what, || {
            said = (0..3).find_map(|at| {
                let is_head = self.ask(at, "status")?.starts_with("true");
                is_head.then(|| self.ask(at, what)).flatten()
            });
            said.is_some()
        });
        said.unwrap()
    }

    /// Through which request of each client the bank has all; it has lost no money.
    fn check(&self) -> Vec<u64> {
        last_requests(&self.ask_head("sums"))
    }

    /// All three are members, and have the same heap.
    fn agree(&self) {
        eventually("all are members and idle", || {
            let status = |at| self.ask(at, "status");
            let statuses: Vec<String> = (0..3).filter_map(status).collect();
            let fields = |status: &String| -> Vec<String> { status.split(' ').map(str::to_owned).collect() };
            let fields: Vec<Vec<String>> = statuses.iter().map(fields).collect();
            fields.len() == 3 && fields.iter().all(|of| of[1] == "3" && of[2] == fields[0][2])
        });
        let heaps: Vec<_> = (0..3).map(|at| self.ask(at, "heap").unwrap()).collect();
        assert!(heaps.iter().all(|heap| *heap == heaps[0]), "{heaps:?}");
        eventually("head and tail answer readers, and the middle one does not", || {
            let said: Vec<String> = (0..3).filter_map(|at| self.ask(at, "sums")).collect();
            said.len() == 2 && said[0] == said[1]
        });
    }
}

/// Of each client, in a reply to `sums`, which has all the money.
fn last_requests(said: &str) -> Vec<u64> {
    let (sum, last) = said.split_once(' ').unwrap();
    assert_eq!(sum.parse::<u64>().unwrap(), START * ACCOUNTS as u64, "{said}");
    last.trim_matches(['[', ']']).split(", ").map(|last| last.parse().unwrap()).collect()
}

impl Drop for Machines {
    fn drop(&mut self) {
        (0..3).for_each(|at| self.kill(at));
    }
}

#[expect(clippy::disallowed_methods, reason = "a test that waits for other processes")]
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < end, "not in {TIMEOUT:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Clients ask until they are answered, each request by its number, while `disturb` does what it does, and a reader asks each machine. Then no money is lost, and what was acknowledged is there, and nothing more;
/// replies to one request are the same; and whichever machine answers the reader, it has what was acknowledged before.
fn under_load(machines: &Machines, disturb: impl FnOnce(&dyn Fn(u64))) {
    let (stop, done) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; CLIENTS]);
    std::thread::scope(|threads| {
        for client in 0..CLIENTS {
            let (stop, done) = (&stop, &done[client]);
            threads.spawn(move || {
                let mut sequence = 1;
                while !stop.load(SeqCst) {
                    let (from, to) = (client * 2, (client * 2 + sequence as usize % 7 + 1) % ACCOUNTS);
                    let request = format!("transfer {client} {sequence} {from} {to}");
                    let reply = machines.ask_head(&request);
                    assert!(reply.starts_with("Some"), "{request}: {reply}");
                    if sequence % 5 == 0 {
                        assert_eq!(machines.ask_head(&request), reply, "{request}");
                    }
                    done.store(sequence, SeqCst);
                    sequence += 1;
                }
            });
        }
        let (stops, acknowledged) = (&stop, &done);
        threads.spawn(move || {
            for at in (0..3).cycle() {
                if stops.load(SeqCst) {
                    return;
                }
                let before: Vec<u64> = acknowledged.iter().map(|done| done.load(SeqCst)).collect();
                let Some(said) = machines.ask(at, "sums") else { continue };
                let last = last_requests(&said);
                let is_new = last.iter().zip(&before).all(|(last, before)| last >= before);
                assert!(is_new, "machine {at} is stale: {last:?}, and {before:?} was acknowledged");
            }
        });
        let more = |count: u64| {
            let before: Vec<u64> = done.iter().map(|done| done.load(SeqCst)).collect();
            let goes_on = || done.iter().zip(&before).all(|(done, before)| done.load(SeqCst) >= before + count);
            eventually("the bank goes on", goes_on);
        };
        // Also when an assertion fails.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| disturb(&more)));
        stop.store(true, SeqCst);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    let last = machines.check();
    let done: Vec<u64> = done.iter().map(|done| done.load(SeqCst)).collect();
    assert!(done.iter().zip(&last).all(|(done, last)| done == last), "acknowledged {done:?}, there {last:?}");
}

#[test]
fn members_are_killed_and_come_back_under_load() {
    let machines = Machines::start();
    under_load(&machines, |more| {
        more(5);
        // The tail, the middle one, the head: each is taken out, and joins again behind the tail, so that each comes to every position.
        for at in [2, 1, 0] {
            machines.kill(at);
            more(3);
            machines.run(at);
            eventually("it is a member again", || {
                machines.ask(at, "status").is_some_and(|status| status.split(' ').nth(1) == Some("3"))
            });
            more(3);
        }
    });
    machines.agree();
}

#[test]
fn all_are_killed_at_once_and_start_again() {
    let machines = Machines::start();
    under_load(&machines, |more| {
        more(5);
        for _ in 0..2 {
            (0..3).for_each(|at| machines.kill(at));
            (0..3).for_each(|at| machines.run(at));
            more(3);
        }
    });
    machines.agree();
}

/// A head that is stopped until others go on without it wakes in an old view: it says nothing, and joins again.
#[test]
fn a_head_that_sleeps_is_replaced() {
    use rustix::process::Signal;

    let machines = Machines::start();
    let before = machines.ask_head("transfer 0 1 0 1");
    machines.signal(0, Signal::STOP);
    let others = || (1..3).find(|&at| machines.ask(at, "status").is_some_and(|status| status.starts_with("true")));
    eventually("another one leads", || others().is_some());
    let new = others().unwrap();
    eventually("it goes on", || machines.ask(new, "transfer 0 2 1 0").is_some());
    let sums = machines.ask(new, "sums");
    machines.signal(0, Signal::CONT);
    // Whatever it says from now on, it is not what was before.
    for _ in 0..20 {
        let said = machines.ask(0, "sums");
        assert!(said.is_none() || said == sums, "{said:?}, not {sums:?}; first {before}");
    }
    machines.agree();
    assert_eq!(machines.check()[0], 2);
}
