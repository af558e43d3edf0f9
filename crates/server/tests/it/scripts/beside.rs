//! Beside scripts that run long others are served, whatever these have written or read; and those that others would have to wait for end.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use pmem::DomainChoice;

use super::DOMAINS;
use crate::support::{Client, Ends, Reply, Store, request, start, until, usual};

/// Longer than any client here waits.
const LIMIT: &str = "CONFIG SET lua-time-limit 600000";

fn pong() -> Reply {
    Reply::Simple("PONG".to_owned())
}

fn run_long(client: &mut Client, count: usize) -> bool {
    let Reply::Bulk(info) = client.say("INFO memory") else { panic!("no text") };
    String::from_utf8_lossy(&info).contains(&format!("scripts_running_long:{count}\r\n"))
}

/// One thread, so that a client that keeps it waiting keeps all.
fn running(store: Store, domain: DomainChoice) -> (tempfile::TempDir, server::Server) {
    let dir = tempfile::tempdir().unwrap();
    let engine = store.open(dir.path().join("store"), pmem::Options::new().domain(domain));
    (dir, start(None, server::Config { threads: 1, ..usual() }, engine))
}

const WRITES: &str = "redis.call('set', 'k', '1') while true do redis.call('get', 'r') end";
const READS: &str = "redis.call('get', 'k') while true do redis.call('get', 'r') end";

#[test]
fn who_meets_a_long_script_waits_alone() {
    for (store, domain) in DOMAINS.into_iter().flat_map(|domain| Store::ALL.map(|store| (store, domain))) {
        for (command, script) in [("EVAL", WRITES), ("EVAL", READS), ("EVAL_RO", READS)] {
            let (_dir, server) = running(store, domain);
            let address = server.redis()[0];
            let [mut long, mut other] = [0; 2].map(|_| Client::to(address));
            assert_eq!(other.say(LIMIT), Reply::ok());
            other.say("SET r 1");
            long.send(&request(&[command, script, "0"]));
            until("it runs long", || run_long(&mut other, 1));
            let mut waits = [
                vec!["SET", "k", "2"],
                vec!["EVAL", "return redis.call('incr', 'k')", "0"],
                vec!["GET", "k"],
                vec!["SET", "elsewhere", "1"],
                vec!["WATCH", "k"],
            ]
            .map(|words| {
                let mut client = Client::to(address);
                client.send(&request(&words));
                client
            });
            for _ in 0..20 {
                assert_eq!(other.say("PING"), pong(), "{store:?} {domain:?} {script}");
            }
            if store == Store::Kv {
                assert_eq!(other.say("SET free 1"), Reply::ok());
                assert_eq!(other.say("GET free"), Reply::text("1"));
            }
            assert_eq!(other.say("SCRIPT KILL"), Reply::ok());
            assert!(long.reply().error().contains("SCRIPT KILL"));
            assert_eq!(waits[0].reply(), Reply::ok());
            assert!(matches!(waits[1].reply(), Reply::Int(1..=3)), "{store:?} {domain:?} {script}");
            waits[2].reply();
            assert_eq!(waits[3].reply(), Reply::ok());
            assert_eq!(waits[4].reply(), Reply::ok());
            drop((long, other, waits));
            server.stop();
            server.join().unwrap();
        }
    }
}

/// Others write what it has written in the moment in which it becomes long: they wait, and neither their threads nor who has written with them.
#[test]
fn who_is_in_the_way_of_one_that_becomes_long_waits_alone() {
    const WRITERS: usize = 6;
    for (store, domain) in DOMAINS.into_iter().flat_map(|domain| Store::ALL.map(|store| (store, domain))) {
        for writer in [&["INCR", "k"][..], &["EVAL", "return redis.call('incr', 'k')", "0"]] {
            let dir = tempfile::tempdir().unwrap();
            let engine = store.open(dir.path().join("store"), pmem::Options::new().domain(domain));
            let server = start(None, usual(), engine);
            let address = server.redis()[0];
            let stops = AtomicBool::new(false);
            let [mut long, mut other] = [0; 2].map(|_| Client::to(address));
            assert_eq!(other.say(LIMIT), Reply::ok());
            std::thread::scope(|scope| {
                let ends = Ends(&stops);
                let stops = &stops;
                for _ in 0..WRITERS {
                    scope.spawn(move || {
                        let mut client = Client::to(address);
                        while !stops.load(Relaxed) {
                            client.ask(writer);
                        }
                    });
                }
                for round in 0..4 {
                    let said = || format!("{store:?} {domain:?} {writer:?}, round {round}");
                    // Of each thread some, which write what no script has written.
                    let mut free: Vec<Client> = (0..4).map(|_| Client::to(address)).collect();
                    long.send(&request(&["EVAL", "redis.call('incr', 'k') while true do end", "0"]));
                    let is_long = |client: &mut Client| run_long(client, 1);
                    // All the while, as it becomes long.
                    let mut became = false;
                    for look in 0.. {
                        for (at, client) in free.iter_mut().enumerate() {
                            assert_eq!(client.say("PING"), pong(), "{}", said());
                            if store == Store::Kv && !became {
                                assert_eq!(client.ask(&["SET", &format!("free{at}"), "1"]), Reply::ok(), "{}", said());
                            }
                        }
                        if became {
                            break;
                        }
                        became = is_long(&mut other);
                        assert!(look < 10_000, "{}: it does not become long", said());
                    }
                    for client in &mut free {
                        assert_eq!(client.say("PING"), pong(), "{}", said());
                        if store == Store::Kv {
                            assert_eq!(client.say("SET free 1"), Reply::ok(), "{}", said());
                        }
                    }
                    assert_eq!(other.say("SCRIPT KILL"), Reply::ok());
                    assert!(long.reply().error().contains("SCRIPT KILL"));
                }
                drop(ends);
            });
            drop((long, other));
            server.stop();
            server.join().unwrap();
        }
    }
}

#[test]
fn several_run_long_and_end_with_the_server() {
    for domain in DOMAINS {
        let (_dir, server) = running(Store::Kv, domain);
        let mut other = Client::to(server.redis()[0]);
        assert_eq!(other.say(LIMIT), Reply::ok());
        let mut long: Vec<Client> = (0..3).map(|_| Client::to(server.redis()[0])).collect();
        for (at, one) in long.iter_mut().enumerate() {
            let script = format!("redis.call('set', 'own{at}', 1) while true do end");
            // The second of each begins, if at all, when the first was ended.
            one.send(&[request(&["EVAL", &script, "0"]), request(&["EVAL", &script, "0"])].concat());
        }
        until("all run at one time", || run_long(&mut other, 3));
        assert_eq!(other.say("SET free 1"), Reply::ok());
        server.stop();
        for one in &mut long {
            assert!(one.reply().error().contains("SCRIPT KILL"));
        }
        drop((long, other));
        server.join().unwrap();
    }
}

#[test]
fn what_is_removed_in_steps_ends_long_scripts() {
    for domain in DOMAINS {
        for script in [READS, WRITES] {
            let (_dir, server) = running(Store::Kv, domain);
            let [mut long, mut other, mut third] = [0; 3].map(|_| Client::to(server.redis()[0]));
            assert_eq!(other.say(LIMIT), Reply::ok());
            let keys: Vec<String> = (0..6000).map(|n| format!("many{n}")).collect();
            for some in keys.chunks(1000) {
                let words: Vec<&str> =
                    ["MSET"].into_iter().chain(some.iter().flat_map(|key| [key.as_str(), "v"])).collect();
                assert_eq!(other.ask(&words), Reply::ok());
            }
            long.send(&request(&["EVAL", script, "0"]));
            until("it runs long", || run_long(&mut other, 1));
            third.send(b"FLUSHALL\r\n");
            assert_eq!(other.say("PING"), pong());
            assert_eq!(third.reply(), Reply::ok());
            let said = long.reply();
            assert!(said.error().contains("others removed very many keys"), "{said:?}");
            assert_eq!(other.say("DBSIZE"), Reply::Int(0));
            drop((long, other, third));
            server.stop();
            server.join().unwrap();
        }
    }
}

#[test]
fn a_long_script_ends_when_the_store_is_full() {
    for domain in DOMAINS {
        let dir = tempfile::tempdir().unwrap();
        let pool = pmem::Options::new().domain(domain);
        let engine = crate::support::scarce(
            Store::Kv.open(dir.path().join("store"), pool),
            Box::new(|key, sets, _| sets && key.ends_with(b"full")),
        );
        let server = start(None, usual(), engine);
        let [mut long, mut other] = [0; 2].map(|_| Client::to(server.redis()[0]));
        assert_eq!(other.say(LIMIT), Reply::ok());
        long.send(&request(&["EVAL_RO", READS, "0"]));
        until("it runs long", || run_long(&mut other, 1));
        assert!(other.say("SET full 1").error().starts_with("MISCONF"));
        let said = long.reply();
        assert!(said.error().contains("while the store was full"), "{said:?}");
        drop((long, other));
        server.stop();
        server.join().unwrap();
    }
}

/// Scripts that take long for a thread that serves, and then wait for what a script holds that runs long, are as many as there are places of any kind, and more. One that takes as long, and has
/// nothing to wait for, has a place all the same.
#[test]
fn who_takes_long_and_waits_keeps_none_that_only_takes_long() {
    const WAIT: usize = 40;
    let (_dir, server) = running(Store::Kv, DomainChoice::Emulated);
    let connect = || Client::to(server.redis()[0]);
    let (mut long, mut other) = (connect(), connect());
    assert_eq!(other.say(LIMIT), Reply::ok());
    long.send(&request(&["EVAL", WRITES, "0"]));
    until("it runs long", || run_long(&mut other, 1));
    let takes_long = |then: &str| request(&["EVAL", &format!("for i = 1, 2000000 do end return {then}"), "0"]);
    let apart = other.runs_apart();
    let mut waits: Vec<Client> = (0..WAIT).map(|_| connect()).collect();
    waits.iter_mut().for_each(|one| one.send(&takes_long("redis.call('incr', 'k')")));
    // Each of them has had a thread: those that wait for the script have it still, or have left it to the others.
    until("they have begun", || other.runs_apart() >= apart + WAIT as u64);
    other.send(&takes_long("redis.call('get', 'none')"));
    assert_eq!(other.reply(), Reply::Null);
    assert_eq!(other.say("SCRIPT KILL"), Reply::ok());
    assert!(long.reply().error().contains("Script killed"));
    let mut counts = Vec::new();
    for one in &mut waits {
        match one.reply() {
            Reply::Int(count) => counts.push(count),
            // Of those that run long as well, on a slow machine; and there waiting has a bound.
            other => {
                let told = other.error();
                assert!(["Script killed", "gave up after"].iter().any(|why| told.contains(why)), "{told}");
            }
        }
    }
    counts.sort_unstable();
    assert!((1..).zip(&counts).all(|(expected, count)| expected == *count), "{counts:?}");
    server.stop();
    server.join().unwrap();
}

/// However many wait for what a long script holds, they take few threads, and the memory of few interpreters; and it can be ended.
#[test]
fn many_who_wait_take_few_threads() {
    const WAIT: usize = 300;
    let dir = tempfile::tempdir().unwrap();
    let program = std::process::Command::new(std::env::current_exe().unwrap());
    let served = crate::kill::serve(program, None, "emulated", &dir.path().join("store"));
    let connect = || Client::to(served.address.parse().unwrap());
    let (mut long, mut other) = (connect(), connect());
    assert_eq!(other.say(LIMIT), Reply::ok());
    let many = "for i = 1, 5000 do redis.call('set', 'many' .. i, i) end redis.call('set', 'r', '1')";
    assert_eq!(other.ask(&["EVAL", many, "0"]), Reply::Null);
    long.send(&request(&["EVAL", WRITES, "0"]));
    until("it runs long", || run_long(&mut other, 1));
    let mut waits: Vec<Client> = (0..WAIT).map(|_| connect()).collect();
    for one in &mut waits {
        one.send(&request(&["EVAL", "local s = string.rep('x', 1000000) return redis.call('incr', 'k') + #s", "0"]));
    }
    let tasks = format!("/proc/{}/task", served.child.id());
    for _ in 0..20 {
        assert_eq!(other.say("PING"), pong());
        assert!(std::fs::read_dir(&tasks).unwrap().count() < WAIT / 2);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    // One that begins now, and is long for a thread that serves, has a place; and what ends those that run long has.
    assert_eq!(other.ask(&["EVAL", "for i = 1, 3000000 do end return redis.call('get', 'r')", "0"]), Reply::text("1"));
    assert_eq!(other.say("FLUSHALL"), Reply::ok());
    assert!(long.reply().error().contains("others removed very many keys"));
    for one in &mut waits {
        match one.reply() {
            Reply::Int(_) => {}
            // Of those that had a thread, on a slow machine: waiting has a bound.
            other => {
                let told = other.error();
                assert!(
                    ["others removed very many keys", "gave up after"].iter().any(|why| told.contains(why)),
                    "{told}"
                );
            }
        }
    }
}
