//! A command that panics is a bug: its own answer is an error, and nothing of it is stored; no other client notices.

use std::io::{BufRead, Write};

use pmem::DomainChoice;
use server::{Config, Step};

use crate::support::{Client, Reply, Store, request, start, usual, watched};

const SAYS: &str = "ERR internal error: see the server's log";

#[test]
fn a_command_that_panics_ends_nothing_but_itself() {
    for (store, domain) in [
        (Store::Kv, DomainChoice::Emulated),
        (Store::Kv, DomainChoice::File),
        (Store::Slow, DomainChoice::File),
        (Store::Tree, DomainChoice::Emulated),
        (Store::Tree, DomainChoice::File),
    ] {
        ends_nothing_else(None, store, domain);
    }
}

/// Whatever sets or removes the key `bug` panics.
pub fn ends_nothing_else(step: Option<Step>, store: Store, domain: DomainChoice) {
    let dir = tempfile::tempdir().unwrap();
    let engine = store.open(dir.path().join("store"), pmem::Options::new().domain(domain));
    let bug = Box::new(|key: &[u8]| assert!(!key.ends_with(b"bug"), "a bug that this test has planted"));
    let config = Config { memcached: vec!["127.0.0.1:0".parse().unwrap()], ..usual() };
    let server = start(step, config, watched(engine, bug));
    let (mut client, mut other) = (Client::to(server.redis()[0]), Client::to(server.redis()[0]));
    assert_eq!(other.say("SET other 1"), Reply::ok());

    // Those before it and behind it in a batch.
    client
        .send(&["SET a 1", "SET bug 1", "SET b 1"].map(|line| request(&line.split(' ').collect::<Vec<_>>())).concat());
    for said in [Reply::ok(), Reply::Error(SAYS.to_owned()), Reply::ok()] {
        assert_eq!(client.reply(), said, "each is answered as if it were alone");
    }
    // What it did before goes, too: of a command, and of a transaction.
    assert_eq!(client.say("MSET half 1 bug 1").error(), SAYS);
    assert_eq!(client.say("RENAME a bug").error(), SAYS);
    assert_eq!(client.say("MULTI"), Reply::ok());
    for line in ["SET half 1", "RPUSH list 1", "SET bug 1", "SET half 2"] {
        assert_eq!(client.say(line), Reply::Simple("QUEUED".to_owned()));
    }
    assert_eq!(client.say("EXEC").error(), SAYS);
    assert_eq!(client.say("EXISTS half list bug"), Reply::Int(0));
    assert_eq!(client.say("MGET a b"), Reply::Array(vec![Reply::text("1"), Reply::text("1")]));
    // In memcached's words.
    let mut memcached = Client::to(server.memcached()[0]);
    memcached.0.get_mut().write_all(b"set bug 0 0 1\r\n1\r\nset c 0 0 1\r\n1\r\n").unwrap();
    let mut line = || {
        let mut line = String::new();
        memcached.0.read_line(&mut line).unwrap();
        line
    };
    assert_eq!(line(), "SERVER_ERROR internal error: see the server's log\r\n");
    assert_eq!(line(), "STORED\r\n");
    assert_eq!(other.say("GET other"), Reply::text("1"));
    assert_eq!(other.say("INCR other"), Reply::Int(2));
    drop((client, other, memcached));
    server.stop();
    server.join().unwrap();

    let server = start(None, usual(), store.open(dir.path().join("store"), pmem::Options::new().domain(domain)));
    let mut client = Client::to(server.redis()[0]);
    let all = ["a", "b", "c", "other"].map(|key| Reply::text(if key == "other" { "2" } else { "1" }));
    assert_eq!(client.say("MGET a b c other"), Reply::Array(all.to_vec()));
    assert_eq!(client.say("DBSIZE"), Reply::Int(4));
    drop(client);
    server.stop();
    server.join().unwrap();
}
