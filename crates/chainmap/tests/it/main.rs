//! A map on a chain of one, and clients that others have written.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::net::TcpListener;

use chain::{Medium, Node, ReplicaId, Sizes};
use chainmap::{Member, Service, Settings};
use redis::{Connection, RedisResult};
use tempfile::TempDir;

struct Alone(Node);

impl Member for Alone {
    fn node(&self) -> &Node {
        &self.0
    }

    fn machine(&self) -> u32 {
        1
    }

    fn leader(&self) -> Option<(u32, Option<String>)> {
        Some((1, None))
    }
}

fn serve(dir: &TempDir, capacity: u64) -> Service<Alone> {
    let path = dir.path().join("bank");
    if !path.exists() {
        let id = ReplicaId { machine: 1, incarnation: 0 };
        Medium::create(&path, id, true, Sizes { capacity, queue: 4 << 20 }).unwrap();
    }
    let (medium, found) = Medium::open(&path).unwrap();
    let node = Node::alone(medium, found).unwrap();
    Service::start(Alone(node), TcpListener::bind("127.0.0.1:0").unwrap(), Settings::default()).unwrap()
}

fn connect(service: &Service<Alone>) -> Connection {
    redis::Client::open(format!("redis://{}/", service.address())).unwrap().get_connection().unwrap()
}

fn ask<T: redis::FromRedisValue>(connection: &mut Connection, line: &str) -> RedisResult<T> {
    let mut words = line.split(' ');
    let mut command = redis::cmd(words.next().unwrap());
    command.arg(words.collect::<Vec<_>>());
    command.query(connection)
}

fn refused(connection: &mut Connection, line: &str) -> String {
    ask::<redis::Value>(connection, line).unwrap_err().code().unwrap().to_owned()
}

#[test]
fn a_request_is_carried_out_once_also_when_the_process_starts_again() {
    let dir = tempfile::tempdir().unwrap();
    let service = serve(&dir, 4 << 20);
    let mut client = connect(&service);
    let number = |client: &mut Connection, line: &str| ask::<i64>(client, line).unwrap();
    assert_eq!(number(&mut client, "INCRBY a 10"), 10);
    for _ in 0..3 {
        assert_eq!(number(&mut client, "ONCE 1 1 INCRBY a 5"), 15);
        assert_eq!(number(&mut client, "ONCE 2 1 TRANSFER a b 4"), 11);
        assert_eq!(refused(&mut client, "ONCE 2 2 TRANSFER b c 5"), "INSUFFICIENT");
    }
    // What is refused once is refused for good, though it could be done now.
    number(&mut client, "INCRBY b 100");
    assert_eq!(refused(&mut client, "ONCE 2 2 TRANSFER b c 5"), "INSUFFICIENT");
    drop((client, service));
    let service = serve(&dir, 4 << 20);
    let mut client = connect(&service);
    assert_eq!(number(&mut client, "ONCE 1 1 INCRBY a 5"), 15);
    assert_eq!(ask::<Vec<Option<i64>>>(&mut client, "MGET a b c").unwrap(), [Some(11), Some(104), None]);
    // Sixteen requests of a client are kept, each in its cell.
    (1..=32).for_each(|at| assert_eq!(number(&mut client, &format!("ONCE 3 {at} INCRBY n 1")), at));
    (17..=32).for_each(|at| assert_eq!(number(&mut client, &format!("ONCE 3 {at} INCRBY n 1")), at));
    assert_eq!(refused(&mut client, "ONCE 3 16 INCRBY n 1"), "STALE");
    assert_eq!(number(&mut client, "FORGET 3"), 16);
    assert_eq!(number(&mut client, "ONCE 3 1 INCRBY n 1"), 33);
}

#[test]
fn numbers_have_bounds() {
    let dir = tempfile::tempdir().unwrap();
    let service = serve(&dir, 4 << 20);
    let mut client = connect(&service);
    assert_eq!(ask::<i64>(&mut client, "INCRBY a 9223372036854775807").unwrap(), i64::MAX);
    assert_eq!(refused(&mut client, "INCRBY a 1"), "ERR");
    assert_eq!(ask::<i64>(&mut client, "INCRBY b 1").unwrap(), 1);
    assert_eq!(refused(&mut client, "TRANSFER b a 1"), "ERR");
    assert_eq!(ask::<i64>(&mut client, "TRANSFER a a 5").unwrap(), i64::MAX, "to itself");
    assert_eq!(ask::<Vec<i64>>(&mut client, "MGET a b").unwrap(), [i64::MAX, 1], "nothing has changed");
}

/// What fits in can be taken out again, and then something else fits in.
#[test]
fn a_full_heap_says_so_and_has_room_again() {
    let dir = tempfile::tempdir().unwrap();
    let service = serve(&dir, 2 << 20);
    let mut client = connect(&service);
    let value = "v".repeat(60_000);
    let set = |client: &mut Connection, at: usize| ask::<()>(client, &format!("SET k{at} {value}"));
    let full = (0..100).find_map(|at| set(&mut client, at).err().map(|error| (at, error)));
    let (at, error) = full.unwrap();
    assert!(at > 5 && error.code() == Some("FULL"), "{at}: {error}");
    for gone in 0..at {
        assert_eq!(ask::<i64>(&mut client, &format!("DEL k{gone}")).unwrap(), 1);
    }
    (0..at).for_each(|at| set(&mut client, at).unwrap());
}

#[test]
fn clients_at_once_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let service = serve(&dir, 4 << 20);
    ask::<i64>(&mut connect(&service), "INCRBY a 1000").unwrap();
    std::thread::scope(|threads| {
        for client in 1..=4 {
            let service = &service;
            threads.spawn(move || {
                let mut connection = connect(service);
                for number in 1..=25 {
                    let line = format!("ONCE {client} {number} TRANSFER a b 1");
                    ask::<i64>(&mut connection, &line).unwrap();
                }
            });
        }
    });
    assert_eq!(ask::<Vec<i64>>(&mut connect(&service), "MGET a b").unwrap(), [900, 100]);
    assert!(service.counts().requests > 100 && service.counts().unknown == 0);
}
