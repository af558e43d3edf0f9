//! A server that is one of a group: what it tells, and that it answers nothing once it may not lead any more. `cairn serve`'s tests have real groups.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use pmem::DomainChoice;
use server::engine::{Commit, Engine, Error, Kv, Result, Run};
use server::group::{Group, Machine, View};
use server::{Config, Server};

use crate::witness::Connection;

struct Led {
    running: Server,
    held: Arc<AtomicBool>,
    group: Arc<Group>,
    _dir: tempfile::TempDir,
}

/// Leads for as long as it is said to hold its lease.
fn led(domain: DomainChoice) -> Led {
    let dir = tempfile::tempdir().unwrap();
    let pool = pmem::Options::new().domain(domain);
    let store = kv::Options::new().pool(pool).create(dir.path().join("store")).unwrap();
    let held = Arc::new(AtomicBool::new(true));
    let lease = Arc::clone(&held);
    let engine = Kv::elected(Arc::new(store), move || lease.load(Acquire));
    let mut view = View::new("shop", "10.0.0.1:6379");
    view.leader = Some("10.0.0.1:6379".to_owned());
    view.others =
        vec![Machine::new("10.0.0.2:6379", true, 3).speaking(Some(4)), Machine::new("10.0.0.3:6379", false, 9)];
    let full = Some("full: no space left on /data\r\nrole:slave".to_owned());
    view.others.push(Machine::new("10.0.0.4:6379", true, 3).in_trouble(full));
    (view.term, view.commits, view.write_quorum, view.wire) = (7, 20, 2, Some(5));
    let group = Arc::new(Group::new(false, view));
    let config = Config {
        redis: vec!["127.0.0.1:0".parse().unwrap()],
        group: Some(Arc::clone(&group)),
        threads: 1,
        ..Config::default()
    };
    Led { running: Server::start(config, Box::new(engine)).unwrap(), held, group, _dir: dir }
}

impl Led {
    fn connect(&self) -> Connection {
        Connection::to(&self.running.redis()[0].to_string()).unwrap()
    }

    /// All of a reply, as redis-cli prints it.
    fn cli(&self, words: &str) -> String {
        let port = self.running.redis()[0].port().to_string();
        crate::support::run(std::process::Command::new("redis-cli").args(["-p", &port]).args(words.split(' ')))
    }
}

#[test]
fn nothing_is_answered_behind_the_end_of_a_lease() {
    for domain in [DomainChoice::Emulated, DomainChoice::File] {
        let led = led(domain);
        let mut client = led.connect();
        assert_eq!(client.ask("SET a 1").unwrap(), "+OK");
        assert_eq!(client.ask("GET a").unwrap(), "1");
        led.held.store(false, Release);
        // A successor may have written by now.
        let read = client.ask("GET a").unwrap();
        assert!(read.starts_with("-READONLY "), "{read}");
        // It wrote nothing, but it has read.
        for line in ["SETNX a 2", "SET a 2"] {
            let told = client.ask(line).unwrap();
            assert!(told.contains("in doubt"), "{line}: {told}");
        }
        for script in ["return(redis.call('GET','a'))", "return(redis.call('SET','a','2'))"] {
            let told = led.cli(&format!("eval {script} 0"));
            assert!(told.contains("in doubt"), "{script}: {told}");
        }
        let told = led.cli("eval_ro return(redis.call('GET','a')) 0");
        assert!(told.starts_with("READONLY "), "{told}");
        assert_eq!(client.ask("MULTI").unwrap(), "+OK");
        assert_eq!(client.ask("GET a").unwrap(), "+QUEUED");
        let told = client.ask("EXEC").unwrap();
        assert!(told.starts_with('-'), "{told}");
        led.held.store(true, Release);
        assert_eq!(client.ask("GET a").unwrap(), "2");
    }
}

#[test]
fn who_leads_and_who_follows_is_told_as_redis_does() {
    let led = led(DomainChoice::Emulated);
    assert_eq!(led.cli("role"), "master\n20\n10.0.0.2\n6379\n17\n10.0.0.4\n6379\n17\n");
    let info = led.cli("info replication");
    for line in [
        "role:master",
        "connected_slaves:2",
        "slave0:ip=10.0.0.2,port=6379,state=online",
        "slave1:ip=10.0.0.3,port=6379,state=wait_bgsave",
        "slave2:ip=10.0.0.4,port=6379,state=full",
        "cairn_slave0_wire:4",
        "cairn_wire:5",
        "cairn_slave2_trouble:full: no space left on /data  role:slave",
        "cairn_term:7",
        "master_failover_state:no-failover",
    ] {
        assert!(info.contains(line), "{line}: {info}");
    }
    assert!(!info.contains("cairn_slave1_wire"), "that is not known: {info}");
    assert_eq!(led.cli("sentinel get-master-addr-by-name shop"), "10.0.0.1\n6379\n");
    assert_eq!(led.cli("sentinel get-master-addr-by-name other").trim(), "");
    assert_eq!(led.cli("sentinel replicas shop").matches("slave\n").count(), 6);
    assert_eq!(led.cli("sentinel sentinels shop").matches("10.0.0.3:6379").count(), 1);
    assert!(led.cli("-3 sentinel master shop").contains("num-other-sentinels 3"));
    assert!(led.cli("sentinel failover shop").starts_with("ERR Unknown sentinel subcommand"));
    assert!(led.cli("sentinel master").starts_with("ERR wrong number"));

    for (words, answer) in [
        ("failover abort", "ERR No failover in progress."),
        ("failover to 10.0.0.9 6379", "ERR FAILOVER target HOST and PORT is not a replica."),
        ("failover to 10.0.0.3 6379", "ERR FAILOVER target replica is not online."),
        ("failover to 10.0.0.4 6379", "ERR FAILOVER target replica cannot lead: full: no space"),
        ("failover to 10.0.0.2 6379 force timeout 100", "ERR FAILOVER FORCE is not there"),
        ("failover timeout 0", "ERR FAILOVER timeout must be greater than 0"),
        ("failover to 10.0.0.2", "ERR syntax error"),
        ("failover abort timeout 5", "ERR syntax error"),
    ] {
        let told = led.cli(words);
        assert!(told.starts_with(answer), "{words}: {told}");
    }
    assert_eq!(led.group.take_failover(), None);
    assert_eq!(led.cli("failover to 10.0.0.2 6379 timeout 700").trim(), "OK");
    assert!(led.cli("info replication").contains("master_failover_state:waiting-for-sync"));
    assert!(led.cli("failover").starts_with("ERR FAILOVER already in progress."));
    let asked = led.group.take_failover().unwrap();
    assert_eq!((asked.to.as_deref(), asked.within), (Some("10.0.0.2:6379"), Some(Duration::from_millis(700))));
    assert!(led.group.is_failing_over() && led.group.take_failover().is_none());
    assert_eq!(led.cli("failover abort").trim(), "OK");
    assert!(!led.group.is_failing_over() && !led.group.commit_failover());
    assert_eq!(led.cli("failover").trim(), "OK");
    assert!(led.group.take_failover().is_some() && led.group.commit_failover());
    assert!(led.cli("failover abort").starts_with("ERR it is too late for FAILOVER ABORT"));
    assert!(led.cli("failover").starts_with("ERR FAILOVER already in progress."));

    led.group.step_down();
    led.group.tell({
        let mut view = led.group.view();
        view.leader = Some("10.0.0.2:6379".to_owned());
        view
    });
    assert_eq!(led.cli("role"), "slave\n10.0.0.2\n6379\nconnected\n20\n");
    assert!(led.cli("info replication").contains("master_host:10.0.0.2"));
    assert!(led.cli("eval return(1) 0").starts_with("READONLY "));
    assert!(led.cli("get a").starts_with("READONLY ") && led.cli("hello").contains("replica"));
    assert!(led.cli("ping").contains("PONG"));
}

/// A store of which the test says how far it is, and how far others are.
struct Copied {
    kv: Kv,
    position: Arc<AtomicU64>,
    others: Arc<[AtomicU64; 2]>,
}

impl Engine for Copied {
    fn read(&self, run: Run<'_>) -> Result<()> {
        self.kv.read(run)
    }
    fn write(&self, run: Run<'_>) -> Result<()> {
        self.kv.write(run)
    }
    fn write_once(&self, run: Run<'_>, here: bool) -> Result<Commit> {
        self.kv.write_once(run, here)
    }
    crate::support::left_to!(kv);
    fn healthy(&self) -> Result<()> {
        self.kv.healthy()
    }
    fn position(&self) -> Option<u64> {
        Some(self.position.load(Acquire))
    }
    fn others_with(&self, position: u64) -> usize {
        self.others.iter().filter(|other| other.load(Acquire) >= position).count()
    }
    fn close(self: Box<Self>) -> Result<()> {
        Box::new(self.kv).close()
    }
}

/// What is waited for is what there was when the command began, however much comes behind it.
#[test]
fn wait_is_for_what_was_there_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let pool = pmem::Options::new().domain(DomainChoice::Emulated);
    let kv = Kv::new(kv::Options::new().pool(pool).create(dir.path().join("store")).unwrap());
    let (position, others) = (Arc::new(AtomicU64::new(10)), Arc::new([10, 9].map(AtomicU64::new)));
    let engine = Copied { kv, position: Arc::clone(&position), others: Arc::clone(&others) };
    let config = Config { redis: vec!["127.0.0.1:0".parse().unwrap()], threads: 1, ..Config::default() };
    let running = Server::start(config, Box::new(engine)).unwrap();
    let mut client = Connection::to(&running.redis()[0].to_string()).unwrap();
    assert_eq!(client.ask("WAIT 1 0").unwrap(), ":1");
    assert_eq!(client.ask("WAIT 2 20").unwrap(), ":1", "one lacks the last record");
    assert_eq!(all(&mut client, "WAITAOF 1 2 20"), "*2 :1 :1");
    let mut waits = std::net::TcpStream::connect(running.redis()[0]).unwrap();
    waits.write_all(b"WAIT 2 0\r\n").unwrap();
    let port = running.redis()[0].port().to_string();
    blocked(&port, 1);
    position.store(100, Release);
    others[1].store(10, Release);
    let mut reply = [0; 4];
    waits.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b":2\r\n");
    assert_eq!(client.ask("WAIT 1 20").unwrap(), ":0", "that is of later");
    running.stop();
    running.join().unwrap();
}

/// A transaction that takes long begins twice, and asks for a failover once.
#[test]
fn a_failover_of_a_transaction_that_is_put_off_is_asked_for_once() {
    let led = led(DomainChoice::Emulated);
    let mut client = crate::support::Client::to(led.running.redis()[0]);
    assert_eq!(client.ask(&["SET", "long", &"x".repeat(2 << 20)]), crate::support::Reply::ok());
    for line in ["MULTI", "FAILOVER", "STRLEN long", "GET long"] {
        client.say(line);
    }
    let crate::support::Reply::Array(answers) = client.say("EXEC") else { panic!("no answers") };
    assert_eq!(answers[0], crate::support::Reply::ok());
    assert!(led.group.take_failover().is_some());
    led.running.stop();
    led.running.join().unwrap();
}

/// A store that stops to take transactions, before they begin: all writes, and reads behind so many.
struct Lost {
    kv: Kv,
    writes: Arc<AtomicBool>,
    reads: Arc<AtomicU64>,
}

fn lost() -> Result<()> {
    Err(Error::Elsewhere("the leader is another server".to_owned()))
}

impl Engine for Lost {
    fn read(&self, run: Run<'_>) -> Result<()> {
        let left = self.reads.fetch_update(AcqRel, Acquire, |left| left.checked_sub(1));
        if left.is_err() { lost() } else { self.kv.read(run) }
    }
    fn write(&self, run: Run<'_>) -> Result<()> {
        if self.writes.load(Acquire) { self.kv.write(run) } else { lost() }
    }
    fn write_once(&self, run: Run<'_>, here: bool) -> Result<Commit> {
        self.kv.write_once(run, here)
    }
    crate::support::left_to!(kv);
    fn healthy(&self) -> Result<()> {
        self.kv.healthy()
    }
    fn close(self: Box<Self>) -> Result<()> {
        Box::new(self.kv).close()
    }
}

/// What is known to take long is run elsewhere, and fails there before it has begun: that has an answer, too.
#[test]
fn what_cannot_begin_where_it_was_put_off_to_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let pool = pmem::Options::new().domain(DomainChoice::Emulated);
    let kv = Kv::new(kv::Options::new().pool(pool).create(dir.path().join("store")).unwrap());
    let (writes, reads) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(u64::MAX)));
    let engine = Lost { kv, writes: Arc::clone(&writes), reads: Arc::clone(&reads) };
    let config = Config { redis: vec!["127.0.0.1:0".parse().unwrap()], threads: 1, ..Config::default() };
    let running = Server::start(config, Box::new(engine)).unwrap();
    let mut client = crate::support::Client::to(running.redis()[0]);
    assert_eq!(client.ask(&["SET", "long", &"x".repeat(2 << 20)]), crate::support::Reply::ok());
    writes.store(false, Release);
    // Very many requests are not tried on the thread of their connection at all.
    assert_eq!(client.say("MULTI"), crate::support::Reply::ok());
    (0..5000).for_each(|_| client.send(b"PING\r\n"));
    (0..5000).for_each(|_| drop(client.reply()));
    assert!(client.say("EXEC").error().starts_with("READONLY "));
    assert_eq!(client.say("PING"), crate::support::Reply::Simple("PONG".to_owned()));
    writes.store(true, Release);
    // A read that is given up there, and then in a batch.
    let mut was_apart = false;
    for (requests, before) in [("GET long\r\n", 0), ("GET none\r\nGET long\r\nGET none\r\n", 1)] {
        // As many attempts begin as there are until it is put off.
        let apart = client.runs_apart();
        reads.store(1 + before, Release);
        client.send(requests.as_bytes());
        let replies: Vec<_> = (0..requests.lines().count()).map(|_| client.reply()).collect();
        assert!(replies.last().unwrap().error().starts_with("READONLY "), "{requests}: {replies:?}");
        reads.store(u64::MAX, Release);
        assert_eq!(client.say("PING"), crate::support::Reply::Simple("PONG".to_owned()));
        was_apart |= client.runs_apart() > apart;
    }
    // The server reads by itself now and then, and may have taken an attempt from one of them.
    assert!(was_apart, "neither was put off");
    running.stop();
    running.join().unwrap();
}

/// Waits until so many clients wait.
fn blocked(port: &str, number: u32) {
    let wanted = format!("blocked_clients:{number}\r");
    let info = || crate::support::run(std::process::Command::new("redis-cli").args(["-p", port, "info", "clients"]));
    crate::support::until("so many clients wait", || info().contains(&wanted));
}

/// An array, and what is in it.
fn all(client: &mut Connection, line: &str) -> String {
    let mut told = client.ask(line).unwrap();
    for _ in 0..told[1..].parse().unwrap() {
        told += &format!(" {}", client.reply().unwrap());
    }
    told
}

/// Replies to `WAIT` are of what the copies of a real log have.
#[test]
fn wait_tells_how_many_machines_have_what_was_written() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let trust = log::fabric::Options {
        secret: Some(log::fabric::Secret::new(b"what all of them know").unwrap()),
        ..Default::default()
    };
    let copy = |name: &str| log::Replica::serve(dir.path().join(name), "127.0.0.1:0", trust.clone()).unwrap();
    let (one, two) = (copy("one"), copy("two"));
    let at = |copy: &log::Replica| copy.address().unwrap().to_string();
    let copies = log::Replicas::new().local(dir.path().join("own")).write_quorum(2).trust(trust.clone());
    let copies = copies.at(&at(&one)).at(&at(&two));
    let options = kv::Options::new().replicated(&copies, &log::Options::new().bytes(1 << 20));
    let store = Arc::new(options.create(dir.path().join("store")).unwrap());
    let held = Arc::new(AtomicBool::new(true));
    let lease = Arc::clone(&held);
    let engine = Kv::elected(store, move || lease.load(Acquire));
    engine.write(&mut |tx| tx.put(b"k", b"v", None)).unwrap();
    let position = engine.position().unwrap();
    crate::support::until("both have it", || engine.others_with(position) == 2);
    assert_eq!(engine.others_with(position + 1), 0, "nobody has what is not there");
    let config = Config { redis: vec!["127.0.0.1:0".parse().unwrap()], threads: 1, ..Config::default() };
    let running = Server::start(config, Box::new(engine)).unwrap();
    let connect = || Connection::to(&running.redis()[0].to_string()).unwrap();
    let mut client = connect();
    for number in 0..20 {
        assert_eq!(client.ask(&format!("SET a {number}")).unwrap(), "+OK");
        assert_eq!(client.ask("WAIT 2 0").unwrap(), ":2");
    }
    assert_eq!(client.ask("WAIT -1 0").unwrap(), ":2");
    assert_eq!(all(&mut client, "WAITAOF 1 2 0"), "*2 :1 :2");
    assert_eq!(client.ask("MULTI").unwrap(), "+OK");
    assert_eq!(client.ask("WAIT 9 0").unwrap(), "+QUEUED");
    assert_eq!(all(&mut client, "EXEC"), "*1 :2");

    two.stop().unwrap();
    assert_eq!(client.ask("SET a 20").unwrap(), "+OK");
    assert_eq!(client.ask("WAIT 2 20").unwrap(), ":1");
    assert_eq!(client.ask("WAIT 1 0").unwrap(), ":1");
    assert_eq!(all(&mut client, "WAITAOF 0 2 20"), "*2 :1 :1");
    // One that waits for ever keeps no other up, and goes with its client.
    let port = running.redis()[0].port().to_string();
    let mut forever = std::net::TcpStream::connect(running.redis()[0]).unwrap();
    forever.write_all(b"WAIT 3 0\r\n").unwrap();
    blocked(&port, 1);
    assert_eq!(client.ask("SET a 21").unwrap(), "+OK");
    drop(forever);
    blocked(&port, 0);

    for (line, told) in [
        ("WAIT x 0", "value is not an integer or out of range"),
        ("WAIT 1 x", "timeout is not an integer or out of range"),
        ("WAIT 1 -1", "timeout is negative"),
        ("WAIT 1 9223372036854775807", "timeout is out of range"),
        ("WAITAOF 2 0 0", "value is out of range, value must between 0 and 1"),
        ("WAITAOF 0 -1 0", "value is out of range, must be positive"),
    ] {
        assert_eq!(client.ask(line).unwrap(), format!("-ERR {told}"), "{line}");
    }
    held.store(false, Release);
    let told = client.ask("WAIT 1 0").unwrap();
    assert!(told.starts_with("-READONLY "), "{told}");
    running.stop();
    running.join().unwrap();
    drop(one);
}
