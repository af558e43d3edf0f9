//! `CLIENT PAUSE`: what is held back, until when, and what goes on.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use pmem::DomainChoice;
use server::Step;

use crate::support::{Client, Reply, Running, Store, crowded, looked_at, start, told, until, usual, watched};

const STORES: [Store; 3] = [Store::Kv, Store::Tree, Store::Slow];

fn count(client: &mut Client, key: &str) -> i64 {
    match client.ask(&["GET", key]) {
        Reply::Bulk(text) => String::from_utf8(text).unwrap().parse().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// From the answer on no write takes effect, whichever thread it is on and whatever it was when the pause began.
#[test]
fn no_write_takes_effect_behind_the_answer() {
    for store in STORES {
        let running = Running::on(store, DomainChoice::Emulated);
        let mut admin = running.client();
        admin.ask(&["SET", "n", "0"]);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for kind in 0..6 {
                let (running, over) = (&running, &over);
                scope.spawn(move || {
                    let mut client = running.client();
                    while !over.load(SeqCst) {
                        match kind {
                            0 | 1 => drop(client.ask(&["INCR", "n"])),
                            2 => drop(client.ask(&["EVAL", "return redis.call('incr', KEYS[1])", "1", "n"])),
                            3 => {
                                client.ask(&["MULTI"]);
                                client.ask(&["INCR", "n"]);
                                client.ask(&["EXEC"]);
                            }
                            4 => {
                                (0..20).for_each(|_| client.send(b"INCR n\r\n"));
                                (0..20).for_each(|_| drop(client.reply()));
                            }
                            _ => {
                                // Those that wait are served by writes of others.
                                client.ask(&["RPUSH", "l", "x"]);
                                client.ask(&["BLPOP", "l", "0"]);
                                client.ask(&["INCR", "n"]);
                            }
                        }
                    }
                });
            }
            for round in 0..20 {
                let before = count(&mut admin, "n");
                until("writes go on", || count(&mut admin, "n") > before);
                let all = round % 4 == 3;
                let words =
                    if all { vec!["CLIENT", "PAUSE", "100"] } else { vec!["CLIENT", "PAUSE", "60000", "WRITE"] };
                assert_eq!(admin.ask(&words), Reply::ok());
                if all {
                    continue; // nothing can be asked, and it ends by itself
                }
                let held = count(&mut admin, "n");
                for _ in 0..100 {
                    assert_eq!(count(&mut admin, "n"), held, "{store:?}, round {round}");
                }
                assert_eq!(admin.ask(&["CLIENT", "UNPAUSE"]), Reply::ok());
            }
            over.store(true, SeqCst);
        });
    }
}

#[test]
fn the_answer_comes_behind_writes_that_began_before() {
    write_under_way(None);
}

/// A write that is under way is waited for.
pub fn write_under_way(step: Option<Step>) {
    let dir = tempfile::tempdir().unwrap();
    let (stands, goes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
    let (at, may) = (stands.clone(), goes.clone());
    let at_commit = Box::new(move || {
        if !may.load(SeqCst) {
            at.store(true, SeqCst);
            until("it may go on", || may.load(SeqCst));
        }
    });
    let engine = told(Store::Kv.open(dir.path().join("store"), pmem::Options::new()), at_commit);
    let server = start(step, usual(), engine);
    let [mut writer, mut admin] = [0; 2].map(|_| Client::to(server.redis()[0]));
    assert_eq!(writer.ask(&["SET", "a", "1"]), Reply::ok());
    goes.store(false, SeqCst);
    writer.send(b"SET a 2\r\n");
    until("it stands before its commit", || stands.load(SeqCst));
    admin.send(b"CLIENT PAUSE 60000 WRITE\r\n");
    admin.0.get_ref().set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let early = admin.try_reply();
    admin.0.get_ref().set_read_timeout(Some(crate::support::WAIT_LIMIT)).unwrap();
    goes.store(true, SeqCst);
    assert_eq!(early, None, "it was answered beside a write that was under way");
    assert_eq!([admin.reply(), writer.reply()], [Reply::ok(), Reply::ok()]);
    assert_eq!(count(&mut admin, "a"), 2);
    writer.send(b"SET a 3\r\n");
    assert_eq!(count(&mut admin, "a"), 2);
    drop((writer, admin));
    server.stop();
    server.join().unwrap();
}

#[test]
fn reads_and_transactions_that_read_go_on() {
    for store in STORES {
        let running = Running::on(store, DomainChoice::Emulated);
        let (mut admin, mut client, mut held) = (running.client(), running.client(), running.client());
        client.ask(&["SET", "a", "1"]);
        client.ask(&["MULTI"]);
        client.ask(&["GET", "a"]);
        assert_eq!(admin.ask(&["CLIENT", "PAUSE", "60000", "WRITE"]), Reply::ok());
        assert_eq!(client.ask(&["EXEC"]), Reply::Array(vec![Reply::text("1")]));
        for words in [
            &["GET", "a"][..],
            &["PING"],
            &["EVAL_RO", "return 1", "0"],
            &["MULTI"],
            &["GET", "a"],
            &["EXEC"],
            &["INFO"],
        ] {
            assert!(!matches!(client.ask(words), Reply::Error(_)), "{words:?}");
        }
        // What is refused is refused at once, and what comes in front of a write is answered.
        client.ask(&["SET", "a"]).error();
        held.send(b"PING\r\nGET a\r\nSET a 2\r\nGET a\r\n");
        assert_eq!([held.reply(), held.reply()], [Reply::Simple("PONG".to_owned()), Reply::text("1")]);
        assert_eq!(client.ask(&["GET", "a"]), Reply::text("1"));
        assert_eq!(admin.ask(&["CLIENT", "UNPAUSE"]), Reply::ok());
        assert_eq!([held.reply(), held.reply()], [Reply::ok(), Reply::text("2")]);
        // Within a transaction it holds others back.
        for words in [&["MULTI"][..], &["CLIENT", "PAUSE", "60000", "WRITE"], &["SET", "a", "3"]] {
            client.ask(words);
        }
        assert_eq!(client.ask(&["EXEC"]), Reply::Array(vec![Reply::ok(), Reply::ok()]));
        held.send(b"INCR a\r\n");
        assert_eq!(count(&mut client, "a"), 3);
        client.ask(&["CLIENT", "UNPAUSE"]);
        assert_eq!(held.reply(), Reply::Int(4));
    }
}

/// What the server removes by itself is a write like those of clients: elements of a collection that is gone.
#[test]
fn the_answer_comes_behind_what_the_server_removes() {
    let dir = tempfile::tempdir().unwrap();
    let (removed, goes) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (count, may) = (removed.clone(), goes.clone());
    let before = Box::new(move |key: &[u8]| {
        // No client removes these: the collection is long.
        if key.first() == Some(&0xf0) && count.fetch_add(1, SeqCst) == ELEMENTS {
            until("it may go on", || may.load(SeqCst));
        }
    });
    let engine = watched(Store::Kv.open(dir.path().join("store"), pmem::Options::new()), before);
    let server = start(None, usual(), engine);
    let [mut client, mut admin] = [0; 2].map(|_| Client::to(server.redis()[0]));
    for _ in 0..ELEMENTS / 500 {
        let words: Vec<String> = (0..500).map(|n| n.to_string()).collect();
        let words: Vec<&str> = ["RPUSH", "l"].into_iter().chain(words.iter().map(String::as_str)).collect();
        client.ask(&words);
    }
    assert_eq!(client.ask(&["DEL", "l"]), Reply::Int(1));
    until("elements are removed", || removed.load(SeqCst) > ELEMENTS);
    admin.send(b"CLIENT PAUSE 60000 WRITE\r\n");
    let waits = is_waited_for(&admin, &mut client);
    goes.store(true, SeqCst);
    assert!(waits, "it was answered while elements were removed");
    assert_eq!(admin.reply(), Reply::ok());
    let gone = removed.load(SeqCst);
    // Twice as long as it rests when there is nothing to do.
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(removed.load(SeqCst), gone, "it goes on in the pause");
    assert!(gone < 2 * ELEMENTS, "there was nothing left to remove");
    admin.ask(&["CLIENT", "UNPAUSE"]);
    until("the rest is removed", || removed.load(SeqCst) >= 2 * ELEMENTS);
    drop((client, admin));
    server.stop();
    server.join().unwrap();
}

/// Of a collection; more than one transaction of the server removes.
const ELEMENTS: usize = 2000;

/// Whether a client waits for the answer to a pause, as another one sees it again and again; false when it has the answer.
fn is_waited_for(admin: &Client, other: &mut Client) -> bool {
    let stream = admin.0.get_ref();
    (0..10).all(|_| {
        let mut waits = false;
        until("it waits, or is answered", || {
            stream.set_nonblocking(true).unwrap();
            let is_answered = stream.peek(&mut [0]).is_ok();
            stream.set_nonblocking(false).unwrap();
            let Reply::Bulk(list) = other.say("CLIENT LIST") else { panic!("no list") };
            waits = !is_answered && String::from_utf8(list).unwrap().contains(" flags=b ");
            waits || is_answered
        });
        waits
    })
}

/// Keys that are evicted go like elements of what a client has removed.
#[test]
fn the_answer_comes_behind_what_is_evicted() {
    let dir = tempfile::tempdir().unwrap();
    let (evicted, goes) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(true)));
    let (count, may) = (evicted.clone(), goes.clone());
    let before = Box::new(move |key: &[u8]| {
        if key.starts_with(b"\0evicted") {
            count.fetch_add(1, SeqCst);
            until("it may go on", || may.load(SeqCst));
        }
    });
    let engine = watched(Store::Kv.open(dir.path().join("store"), pmem::Options::new()), before);
    let server = start(None, usual(), crowded(engine, 10));
    let [mut client, mut admin] = [0; 2].map(|_| Client::to(server.redis()[0]));
    for n in 0..EVICTED {
        assert_eq!(client.say(&format!("SET evicted{n} v")), Reply::ok());
    }
    evicted.store(0, SeqCst);
    goes.store(false, SeqCst);
    assert_eq!(client.say("CONFIG SET maxmemory-policy allkeys-random"), Reply::ok());
    until("a key is evicted", || evicted.load(SeqCst) > 0);
    admin.send(b"CLIENT PAUSE 60000 WRITE\r\n");
    let waits = is_waited_for(&admin, &mut client);
    goes.store(true, SeqCst);
    assert!(waits, "it was answered while a key was evicted");
    assert_eq!(admin.reply(), Reply::ok());
    let gone = evicted.load(SeqCst);
    // Twice as long as it rests in a pause.
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(evicted.load(SeqCst), gone, "it goes on in the pause");
    assert!(gone < EVICTED, "there was nothing left to evict");
    admin.ask(&["CLIENT", "UNPAUSE"]);
    until("the rest is evicted", || client.ask(&["DBSIZE"]) == Reply::Int(0));
    drop((client, admin));
    server.stop();
    server.join().unwrap();
}

/// Keys; more than go at one time.
const EVICTED: usize = 500;

/// That a key has expired is told like what a write has done: not behind the answer to a pause.
#[test]
fn the_answer_comes_behind_news_of_what_has_expired() {
    let dir = tempfile::tempdir().unwrap();
    let (stands, goes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (at, may) = (stands.clone(), goes.clone());
    // No client reads it.
    let at_get = Box::new(move |key: &[u8]| {
        if key == b"\0expires" && !may.load(SeqCst) {
            at.store(true, SeqCst);
            until("it may go on", || may.load(SeqCst));
        }
    });
    let engine = looked_at(Store::Kv.open(dir.path().join("store"), pmem::Options::new()), at_get);
    let server = start(None, usual(), engine);
    let [mut client, mut admin, mut hears] = [0; 3].map(|_| Client::to(server.redis()[0]));
    assert_eq!(client.say("CONFIG SET notify-keyspace-events Ex"), Reply::ok());
    hears.say("SUBSCRIBE __keyevent@0__:expired");
    assert_eq!(client.say("SET expires v PX 1"), Reply::ok());
    until("it is looked whether it has expired", || stands.load(SeqCst));
    admin.send(b"CLIENT PAUSE 60000 WRITE\r\n");
    let waits = is_waited_for(&admin, &mut client);
    goes.store(true, SeqCst);
    assert!(waits, "it was answered while news were told");
    assert_eq!(admin.reply(), Reply::ok());
    assert_eq!(admin.say("CLIENT UNPAUSE"), Reply::ok());
    let Reply::Array(news) = hears.reply() else { panic!("no news") };
    assert_eq!(news.last(), Some(&Reply::text("expires")));
    drop((client, admin, hears));
    server.stop();
    server.join().unwrap();
}

#[test]
fn a_pause_of_all_ends_by_itself_or_when_it_is_told() {
    let running = Running::start(DomainChoice::Emulated);
    let (mut admin, mut client) = (running.client(), running.client());
    assert_eq!(admin.ask(&["CLIENT", "PAUSE", "60000"]), Reply::ok());
    client.0.get_ref().set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    client.send(b"PING\r\n");
    assert!(client.try_reply().is_none(), "it is held back");
    client.0.get_ref().set_read_timeout(Some(crate::support::WAIT_LIMIT)).unwrap();
    assert_eq!(admin.ask(&["CLIENT", "UNPAUSE"]), Reply::ok());
    assert_eq!(client.reply(), Reply::Simple("PONG".to_owned()));
    assert_eq!(admin.ask(&["CLIENT", "PAUSE", "100"]), Reply::ok());
    assert_eq!(client.ask(&["SET", "a", "1"]), Reply::ok());
    assert!(admin.ask(&["CLIENT", "PAUSE", "86400001"]).error().contains("the longest pause"));
}

/// A client that is held back is found to have gone, and its request is not run; one that sends much does not fill the memory; and none of them keeps the server from ending.
#[test]
fn who_is_held_back_can_go() {
    for store in STORES {
        let running = Running::on(store, DomainChoice::Emulated);
        let mut admin = running.client();
        let clients = |admin: &mut Client| match admin.ask(&["CLIENT", "LIST"]) {
            Reply::Bulk(text) => String::from_utf8(text).unwrap().lines().count(),
            other => panic!("{other:?}"),
        };
        assert_eq!(admin.ask(&["CLIENT", "PAUSE", "3600000", "WRITE"]), Reply::ok());
        let mut goes = TcpStream::connect(running.address()).unwrap();
        goes.write_all(b"PING\r\nSET gone 1\r\n").unwrap();
        goes.read_exact(&mut [0; 7]).unwrap();
        assert_eq!(clients(&mut admin), 2);
        drop(goes);
        until("it has gone", || clients(&mut admin) == 1);
        let mut much = TcpStream::connect(running.address()).unwrap();
        much.set_nonblocking(true).unwrap();
        let (some, mut sent) = (b"SET much 1\r\n".repeat(10_000), 0);
        // Until the sockets are full: the server reads no more.
        until("it takes no more", || {
            while let Ok(count) = much.write(&some) {
                sent += count;
            }
            sent > 1 << 20
        });
        assert!(sent < 64 << 20, "{sent}");
        assert_eq!(admin.ask(&["EXISTS", "gone", "much"]), Reply::Int(0));
        drop(running);
    }
}
