//! A server whose store is on three machines: the one that leads is killed, and another one takes over.

use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rustix::process::Signal;

use super::cluster::{Cluster, Proc};
use crate::witness::{self, Served};

const MACHINES: usize = 3;

struct Machines {
    cluster: Cluster,
    /// The followers, and where they are; none where the server is.
    followers: RefCell<Vec<Option<(Proc, String)>>>,
    leader: Cell<Option<usize>>,
}

impl Machines {
    fn new() -> Self {
        let followers = RefCell::new((0..MACHINES).map(|_| None).collect());
        let this = Self { cluster: Cluster::new(0, None, 0, ""), followers, leader: Cell::new(None) };
        (1..MACHINES).for_each(|machine| this.follow(machine));
        this
    }

    fn follow(&self, machine: usize) {
        let line = format!(
            "kv follow store{machine} --log log{machine} --listen 127.0.0.1:0 --secret-file secret --domain emulated"
        );
        let said = File::create(self.cluster.path(&format!("said{machine}"))).unwrap();
        let mut child = self.cluster.command(&line).stdout(Stdio::piped()).stderr(said).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert!(first.contains(':'), "machine {machine} does not follow: {}", self.said(machine));
        self.followers.borrow_mut()[machine] = Some((Proc(child), first.trim_end().to_owned()));
    }

    /// What the follower there has said since it was started last.
    fn said(&self, machine: usize) -> String {
        fs::read_to_string(self.cluster.path(&format!("said{machine}"))).unwrap()
    }

    /// Ends the follower there.
    fn end(&self, machine: usize) {
        if let Some((mut follower, _)) = self.followers.borrow_mut()[machine].take() {
            follower.signal(Signal::TERM);
            assert_eq!(follower.wait(), 0, "{}", self.said(machine));
        }
    }

    /// The words that name the replicas of all followers.
    fn others(&self) -> String {
        self.followers.borrow().iter().flatten().map(|(_, address)| format!("--replica {address} ")).collect()
    }

    /// Serves on another machine than the last time; the one that served then follows from now on.
    fn serve(&self) -> Served {
        let machine = match self.leader.get() {
            None => 0,
            Some(last) => {
                self.follow(last);
                (last + 1) % MACHINES
            }
        };
        self.leader.set(Some(machine));
        self.end(machine);
        let others = self.others();
        let line = format!(
            "serve store{machine} --redis 127.0.0.1:0 --http 127.0.0.1:0 --domain emulated --log log{machine} {others} --write-quorum 2 --log-size 256K --secret-file secret"
        );
        Served::start(&mut self.cluster.command(&line))
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_another_machine_takes_over() {
    let machines = Machines::new();
    let rounds = 6;
    let acknowledged = witness::killed(&|| machines.serve(), rounds);
    println!("{rounds} times another machine has taken over, {acknowledged} writes, nothing lost");
    assert!(acknowledged >= rounds, "the servers were killed before they did anything");
}

#[test]
fn a_store_is_promoted_and_seeded() {
    let machines = Machines::new();
    drop(machines.serve());
    let others: Vec<String> = machines.followers.borrow().iter().flatten().map(|other| other.1.clone()).collect();
    let cluster = &machines.cluster;
    let named = |addresses: &[String]| {
        let replicas: String = addresses.iter().map(|address| format!("--replica {address} ")).collect();
        format!("{replicas} --secret-file secret")
    };
    let seeded = cluster.done(0, &format!("kv seed store0 seed --log log0 {}", named(&others)));
    assert!(seeded.out.starts_with("seed: "), "{seeded:?}");
    let refused = cluster.run(0, "kv put store0 apples 17");
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.failure().0.contains("is made of the log"), "{refused:?}");

    // Another one takes over, with the copy of the third.
    machines.end(1);
    let promoted = cluster.done(0, &format!("kv promote store1 --log log1 {}", named(&others[1..])));
    assert!(promoted.out.contains("leads, with") && promoted.out.contains("1 other replicas"), "{promoted:?}");
    let alone = cluster.run(0, "kv promote store1 --log log1 --replica 127.0.0.1:1 --secret-file secret");
    assert_eq!(alone.code, 2, "{alone:?}");
    assert!(alone.failure().0.contains("quorum"), "{alone:?}");
}

/// It ends, and what it says to do leads back.
#[test]
fn a_follower_that_needs_what_the_log_has_no_more_says_what_to_do() {
    let machines = Machines::new();
    let cluster = &machines.cluster;
    let served = machines.serve();
    let mut client = served.connect();
    // More than the log holds.
    for n in 0..600 {
        assert_eq!(client.ask(&format!("SET k{n} {}", "x".repeat(1000))).unwrap(), "+OK");
    }
    drop((client, served));
    machines.end(2);
    fs::remove_file(cluster.path("store2")).unwrap();
    machines.follow(2);
    // It is told by the leader what is committed.
    let serve_again = || {
        machines.leader.set(None);
        machines.serve()
    };
    let served = serve_again();
    let (mut follower, _) = machines.followers.borrow_mut()[2].take().unwrap();
    assert_eq!(follower.wait(), 2, "{}", machines.said(2));
    let said = machines.said(2);
    assert!(said.contains("error: store2: the store ends with commit 0, and the log begins with commit "), "{said}");
    let next = said.lines().find_map(|line| line.strip_prefix("next: ")).unwrap_or_else(|| panic!("{said}"));
    assert!(next.contains("stop the server and copy its store with `cairn kv seed`"), "{said}");

    drop(served);
    fs::remove_file(cluster.path("store2")).unwrap();
    cluster.done(0, &format!("kv seed store0 store2 --log log0 {} --secret-file secret", machines.others()));
    machines.follow(2);
    drop(serve_again());
    machines.end(2);
    let promoted = cluster.done(0, &format!("kv promote store2 --log log2 {} --secret-file secret", machines.others()));
    assert!(promoted.out.contains("leads, with"), "{promoted:?}");
}
