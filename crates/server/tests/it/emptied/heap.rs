//! The same on a tree in a heap, which changes its values in place: when it is full there is room for nothing new.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use pmem::DomainChoice;
use server::Server;
use server::tree::{Options, Tree};

use super::{ask, int, memory, stop, with};
use crate::support::{Before, Client, Reply, request, start, usual, watched};
use crate::witness::Served;

const BYTES: u64 = 6 << 20;

fn open(path: &Path) -> Tree {
    let pool = pmem::Options::new().domain(DomainChoice::Emulated).max_size(BYTES);
    Tree::open_or_create(path, &Options::new().bytes(2 << 20).slots(8).pool(pool)).unwrap()
}

fn serve(path: &Path) -> (Server, Client) {
    let server = start(None, usual(), Box::new(open(path)));
    let client = Client::to(server.redis()[0]);
    (server, client)
}

/// Names in no order, as many as go in.
fn fill(client: &mut Client, keys: &mut Vec<String>, value: &str) {
    for together in [200, 40, 8, 1] {
        let mut refused = 0;
        while refused < 3 {
            let from = keys.len() as u64;
            let name = |n: u64| format!("{:08x}-{n}", (n as u32).wrapping_mul(2_654_435_761));
            let words = with("MSET", from..from + together, |n| vec![name(n), value.to_owned()]);
            match ask(client, &words) {
                Reply::Error(_) => refused += 1,
                _ => {
                    refused = 0;
                    keys.extend((from..from + together).map(name));
                }
            }
        }
    }
}

fn del(client: &mut Client, keys: &[&String]) {
    let words: Vec<String> = std::iter::once("DEL".to_owned()).chain(keys.iter().map(|key| (*key).clone())).collect();
    assert_eq!(ask(client, &words), Reply::Int(keys.len() as i64), "of {} keys", keys.len());
}

#[test]
fn a_full_heap_is_emptied_by_any_request() {
    for len in [10, 300, 3000] {
        let dir = memory();
        let path = dir.path().join("store");
        let value = "v".repeat(len);
        let (server, mut client) = serve(&path);
        let mut keys = Vec::new();
        fill(&mut client, &mut keys, &value);
        stop(server);
        let (server, mut client) = serve(&path);
        let there = keys.len();
        // The names are in no order: each of these stands alone.
        let (some, rest) = keys.split_at((there / 2).min(400));
        del(&mut client, &some.iter().collect::<Vec<_>>());
        let (half, rest) = rest.split_at(rest.len() / 2);
        del(&mut client, &half.iter().collect::<Vec<_>>());
        assert_eq!(int(client.say("DBSIZE")) as usize, rest.len(), "values of {len}");
        stop(server);
        let (server, mut client) = serve(&path);
        assert_eq!(int(client.say("DBSIZE")) as usize, rest.len(), "values of {len}");
        let mut more = keys.clone();
        fill(&mut client, &mut more, &value);
        if len == 300 {
            assert_eq!(
                (client.say("MULTI"), client.say("FLUSHALL")),
                (Reply::ok(), Reply::Simple("QUEUED".to_owned()))
            );
            assert_eq!(client.say("EXEC"), Reply::Array(vec![Reply::ok()]));
        } else {
            assert_eq!(client.say("FLUSHALL"), Reply::ok(), "values of {len}");
        }
        assert_eq!(int(client.say("DBSIZE")), 0);
        let mut again = Vec::new();
        fill(&mut client, &mut again, &value);
        assert!(again.len() > there / 2, "{} of {there} keys go in again", again.len());
        stop(server);
        let (server, mut client) = serve(&path);
        assert_eq!((client.say("FLUSHALL"), int(client.say("DBSIZE"))), (Reply::ok(), 0));
        stop(server);
    }
}

/// Collections whose elements are noted as unreferenced when there is room for that.
#[test]
fn a_full_heap_of_collections_is_emptied() {
    let dir = memory();
    let path = dir.path().join("store");
    let (server, mut client) = serve(&path);
    let (mut names, mut keys) = (Vec::new(), Vec::new());
    for n in 0.. {
        let name = format!("hash{n}");
        let words = with(&format!("HSET {name}"), 0..80, |n| vec![format!("field{n}"), "value".to_owned()]);
        names.push(name);
        if matches!(ask(&mut client, &words), Reply::Error(_)) {
            break;
        }
    }
    names.pop();
    fill(&mut client, &mut keys, "v");
    stop(server);
    let (server, mut client) = serve(&path);
    let (some, rest) = names.split_at(names.len() / 2);
    del(&mut client, &[&some[0]]);
    del(&mut client, &some[1..].iter().collect::<Vec<_>>());
    assert_eq!(int(client.say("DBSIZE")) as usize, rest.len() + keys.len());
    assert_eq!(int(client.say(&format!("HLEN {}", rest[0]))), 80);
    assert_eq!((client.say("FLUSHALL"), int(client.say("DBSIZE"))), (Reply::ok(), 0));
    stop(server);
}

/// In the environment: behind how many deletions that follow its note the server ends, and where its store is. Then this process is the server.
const PLACE: &str = "CAIRN_SERVER_EMPTIED";
/// In place of a count: when it makes the note, and when it clears it.
const NOTED: u64 = 0;
const CLEARED: u64 = u64::MAX;

/// Not a test of its own: the process that the other starts, and that ends at some step.
#[test]
fn worker() {
    let Ok(place) = std::env::var(PLACE) else { return };
    let (at, path) = place.split_once(' ').unwrap();
    let at: u64 = at.parse().unwrap();
    let (notes, deleted) = (AtomicU64::new(0), AtomicU64::new(0));
    let before: Before = Box::new(move |key| {
        let end = match key.first() {
            Some(0xf3) if key == b"\xf3spare" => [NOTED, CLEARED][notes.fetch_add(1, SeqCst) as usize] == at,
            Some(0) if notes.load(SeqCst) == 1 => deleted.fetch_add(1, SeqCst) + 1 == at,
            _ => false,
        };
        if end {
            std::process::abort();
        }
    });
    let server = start(None, usual(), watched(Box::new(open(Path::new(path))), before));
    eprintln!("cairn: redis at {}", server.redis()[0]);
    eprintln!("cairn: serving");
    loop {
        std::thread::park();
    }
}

/// At any step, the next start shows all of it or nothing.
#[test]
fn who_is_killed_between_steps_of_a_heap_ends_them_when_it_starts() {
    let dir = memory();
    let path = dir.path().join("store");
    let (server, mut client) = serve(&path);
    let mut keys = Vec::new();
    fill(&mut client, &mut keys, "v");
    stop(server);
    let half: Vec<&str> = std::iter::once("DEL").chain(keys.iter().step_by(2).map(String::as_str)).collect();
    let (there, left) = (keys.len() as u64, (keys.len() - half.len() + 1) as u64);
    for (words, left) in [(half, left), (vec!["FLUSHALL"], 0)] {
        for at in [NOTED, 1, 3000, 7000, CLEARED] {
            let copy = path.with_extension("copy");
            std::fs::copy(&path, &copy).unwrap();
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["emptied::heap::worker", "--exact", "--nocapture", "--test-threads", "1"]);
            command.env(PLACE, format!("{at} {}", copy.display())).stdout(Stdio::null());
            let mut served = Served::start(&mut command);
            let mut client = Client::to(served.address.parse().unwrap());
            assert_eq!(int(client.say("DBSIZE")), there);
            client.send(&request(&words));
            assert!(client.try_reply().is_none(), "{}, {at}: it does not end there", words[0]);
            served.child.wait().unwrap();
            let (server, mut client) = serve(&copy);
            assert_eq!(int(client.say("DBSIZE")), if at == NOTED { there } else { left }, "{}, {at}", words[0]);
            if at > NOTED {
                assert_eq!(client.say("SET new 1"), Reply::ok(), "{}, {at}", words[0]);
            }
            stop(server);
        }
    }
}
