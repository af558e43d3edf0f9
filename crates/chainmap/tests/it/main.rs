//! A map on a chain of one, and clients that others have written.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

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

    fn tail(&self) -> Option<(u32, Option<String>)> {
        self.leader()
    }
}

fn serve(dir: &TempDir, capacity: u64) -> Service<Alone> {
    serve_with(dir, capacity, Settings::default())
}

fn serve_with(dir: &TempDir, capacity: u64, settings: Settings) -> Service<Alone> {
    let path = dir.path().join("bank");
    if !path.exists() {
        let id = ReplicaId { machine: 1, incarnation: 0 };
        Medium::create(&path, id, true, Sizes { capacity, queue: 4 << 20 }).unwrap();
    }
    let (medium, found) = Medium::open(&path).unwrap();
    let node = Node::alone(medium, found).unwrap();
    Service::start(Alone(node), TcpListener::bind("127.0.0.1:0").unwrap(), settings).unwrap()
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

/// Bytes of the longest reply: more than the system keeps for a client that does not read.
const LONG: usize = 127 * 64_000;

/// A client that asks for all that a reply may have, and takes a little now and then; how much it has taken when the connection has ended.
fn trickle(address: SocketAddr, hurry: &AtomicBool, taken: &AtomicUsize) -> usize {
    let mut stream = TcpStream::connect(address).unwrap();
    let keys = "big ".repeat(127);
    writeln!(stream, "MGET {}\r", keys.trim_end()).unwrap();
    let mut piece = vec![0; 1 << 10];
    loop {
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return taken.load(SeqCst),
            Ok(read) => drop(taken.fetch_add(read, SeqCst)),
        }
        if !hurry.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Does it while such a client takes its reply; how much that has taken when its connection has ended.
fn beside_a_slow_reader(meanwhile: impl FnOnce(Service<Alone>, &AtomicUsize) -> Option<Service<Alone>>) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let service = serve(&dir, 4 << 20);
    ask::<()>(&mut connect(&service), &format!("SET big {}", "v".repeat(64_000))).unwrap();
    let (hurry, taken) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|threads| {
        let address = service.address();
        let (hurried, takes) = (&hurry, &taken);
        let reader = threads.spawn(move || trickle(address, hurried, takes));
        while taken.load(SeqCst) == 0 {
            assert!(!reader.is_finished(), "it has got nothing");
            std::thread::yield_now();
        }
        let service = meanwhile(service, &taken);
        hurry.store(true, SeqCst);
        let taken = reader.join().unwrap();
        drop(service);
        taken
    })
}

/// A client that takes a little of its reply again and again does not keep the machine from ending.
#[test]
fn a_slow_reader_does_not_hold_the_end_up() {
    let taken = beside_a_slow_reader(|service, _| {
        drop(service);
        None
    });
    assert!(taken < LONG, "it has waited until all {taken} bytes were taken");
}

#[test]
fn a_reply_has_a_deadline() {
    let taken = beside_a_slow_reader(|service, taken| {
        let mut client = connect(&service);
        let clients = |client: &mut Connection| -> usize {
            let info: String = ask(client, "INFO").unwrap();
            info.lines().find_map(|line| line.strip_prefix("connected_clients:")).unwrap().parse().unwrap()
        };
        while clients(&mut client) > 1 && taken.load(SeqCst) < LONG {
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(service)
    });
    assert!(taken < LONG, "it was waited until all {taken} bytes were taken");
}

/// A client that never says the password does not keep a place.
#[test]
fn strangers_do_not_keep_their_places() {
    let dir = tempfile::tempdir().unwrap();
    let service = serve_with(&dir, 1 << 20, Settings { password: Some("tree".to_owned()), ..Settings::default() });
    let connect = || TcpStream::connect(service.address()).unwrap();
    let mut known = connect();
    known.write_all(b"AUTH tree\r\n").unwrap();
    let mut piece = [0; 64];
    assert_eq!(known.read(&mut piece).unwrap(), 5);
    for begun in [&b""[..], b"GET a\r\n", b"*2\r\n$4\r\nAUTH\r\n$1000\r\nx"] {
        let mut stranger = connect();
        // So long that without an end of its own the test fails.
        stranger.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stranger.write_all(begun).unwrap();
        let mut said = String::new();
        stranger.read_to_string(&mut said).unwrap();
        assert!(said.ends_with("-NOAUTH no password in 5 s\r\n"), "{said}");
    }
    known.write_all(b"GET a\r\n").unwrap();
    assert_eq!(known.read(&mut piece).unwrap(), 5, "who has said it stays");
}
