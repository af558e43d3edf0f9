//! As long as there are no collections, a request that overwrites a key does not look what it has. The first one may be made just then.

use std::collections::BTreeSet;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Barrier, Mutex};

use pmem::DomainChoice;
use server::engine::Keys;
use server::{Config, Step};

use crate::support::{Client, Reply, Store, request, start, usual, watched};

/// First bytes of what is no client's key in the store: docs/format.md.
const ELEMENTS: u8 = 0xf0;
const DUE: u8 = 0xf1;
const GARBAGE: u8 = 0xf2;

/// Ids of elements that no collection owns, and that will not be swept.
fn orphans(store: Store, path: &Path) -> usize {
    let engine = store.open(path, pmem::Options::new().domain(DomainChoice::Emulated));
    let (mut elements, mut known) = (BTreeSet::new(), BTreeSet::new());
    engine
        .read(&mut |tx| {
            tx.scan(Keys::all(), &mut |key, value| {
                match (key[0], value) {
                    (0..16, [b'h' | b'l' | b'e' | b'z', ..]) => drop(known.insert(value[1..9].to_vec())),
                    (GARBAGE, _) => drop(known.insert(key[1..9].to_vec())),
                    (DUE, _) => drop(known.insert(key[9..17].to_vec())),
                    (ELEMENTS, _) => drop(elements.insert(key[1..9].to_vec())),
                    _ => {}
                }
                ControlFlow::Continue(())
            })
        })
        .unwrap();
    engine.close().unwrap();
    elements.difference(&known).count()
}

/// Requests that touch nothing before, which in a tree would keep the other one waiting.
pub const BLIND: [&str; 4] = ["SET k 1", "SETEX k 100 1", "DEL k", "memcached"];

#[test]
fn the_first_collection_may_be_made_under_who_overwrites_it() {
    for store in Store::ALL {
        for what in BLIND {
            let left = made_in_between(None, store, what);
            assert_eq!(left, 0, "{store:?}, {what}");
        }
    }
}

/// Just before `what` changes `k` another client makes a hash of it: how many ids have no owner afterwards.
pub fn made_in_between(step: Option<Step>, store: Store, what: &str) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let engine = store.open(&path, pmem::Options::new().domain(DomainChoice::Emulated));
    let other: Arc<Mutex<Option<Client>>> = Arc::default();
    let waiting = other.clone();
    let before = Box::new(move |key: &[u8]| {
        // Its own request comes this way, too.
        let other = if key == b"\0k" { waiting.lock().unwrap().take() } else { None };
        if let Some(mut other) = other {
            assert_eq!(other.say("HSET k field value"), Reply::Int(1));
        }
    });
    let config = Config { memcached: vec!["127.0.0.1:0".parse().unwrap()], ..usual() };
    let server = start(step, config, watched(engine, before));
    // Connections go to the threads in turn: these have one each.
    let (address, plain) = match what {
        "memcached" => (server.memcached()[0], &b"set k 0 0 1\r\n1\r\n"[..]),
        _ => (server.redis()[0], &[][..]),
    };
    let mut client = Client::to(address);
    client.send(if plain.is_empty() { b"PING\r\n" } else { b"version\r\n" });
    let mut line = || std::io::BufRead::read_line(&mut client.0, &mut String::new()).unwrap();
    assert!(line() > 0);
    let mut second = Client::to(server.redis()[0]);
    assert_eq!(second.say("PING"), Reply::Simple("PONG".to_owned()));
    *other.lock().unwrap() = Some(second);
    if plain.is_empty() {
        let reply = client.say(what);
        assert!(!matches!(reply, Reply::Error(_)), "{what}: {reply:?}");
    } else {
        client.0.get_mut().write_all(plain).unwrap();
        let mut answer = String::new();
        std::io::BufRead::read_line(&mut client.0, &mut answer).unwrap();
        assert_eq!(answer, "STORED\r\n");
    }
    assert!(other.lock().unwrap().is_none(), "{what}: the hash was not made");
    let mut third = Client::to(server.redis()[0]);
    let there = if what.starts_with("DEL") { "none" } else { "string" };
    assert_eq!(third.say("TYPE k"), Reply::Simple(there.to_owned()), "{what}");
    drop((client, third));
    server.stop();
    server.join().unwrap();
    orphans(store, &path)
}

/// The same without a script: all at once, on servers that have never had a collection.
#[test]
fn first_collections_and_who_overwrites_them_leave_nothing() {
    const LINES: [&str; 4] = ["SET k 1", "HSET k f 1 g 2", "DEL k", "HSET k f 1"];
    for store in Store::ALL {
        for domain in [DomainChoice::Emulated, DomainChoice::File] {
            for round in 0..15 {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("store");
                let server = start(None, usual(), store.open(&path, pmem::Options::new().domain(domain)));
                let (go, made) = (Barrier::new(LINES.len()), AtomicBool::new(false));
                std::thread::scope(|scope| {
                    for line in LINES {
                        let (address, go, made) = (server.redis()[0], &go, &made);
                        scope.spawn(move || {
                            let mut client = Client::to(address);
                            client.say("PING");
                            go.wait();
                            client.send(&request(&line.split(' ').collect::<Vec<_>>()).repeat(1 + round % 3));
                            (0..1 + round % 3).for_each(|_| match client.reply() {
                                Reply::Error(text) => assert!(text.starts_with("WRONGTYPE"), "{line}: {text}"),
                                reply => drop(made.fetch_or(reply == Reply::Int(2), SeqCst)),
                            });
                        });
                    }
                });
                server.stop();
                server.join().unwrap();
                assert_eq!(orphans(store, &path), 0, "{store:?}, {domain:?}, round {round}, made: {made:?}");
            }
        }
    }
}
