//! One request takes out more than a full store has room to say at once: it is done in steps that no client sees, not even after a kill and a new start.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use pmem::DomainChoice;
use server::engine::Kv;
use server::{Config, Server};

mod heap;
mod scarce;
mod streams;

use crate::support::{Before, Client, Reply, request, start, usual, watched};

const BYTES: u64 = 16 << 20;
const MANY: u64 = 16_000;

fn options() -> kv::Options {
    let pool = pmem::Options::new().domain(DomainChoice::Emulated).max_size(BYTES);
    kv::Options::new().segment_bytes(64 << 10).pool(pool)
}

fn open(path: &Path) -> kv::Store {
    options().open_or_create(path).unwrap()
}

fn serve(path: &Path) -> (Server, Client) {
    counted(path, Arc::default())
}

/// Counts how often something was begun or ended in steps.
fn counted(path: &Path, steps: Arc<AtomicU64>) -> (Server, Client) {
    let config = Config { memcached: vec!["127.0.0.1:0".parse().unwrap()], ..usual() };
    let before: Before = Box::new(move |key| {
        steps.fetch_add(u64::from(key == b"\xf3remove"), SeqCst);
    });
    let server = start(None, config, watched(Box::new(Kv::new(open(path))), before));
    let client = Client::to(server.redis()[0]);
    (server, client)
}

fn stop(server: Server) {
    server.stop();
    server.join().unwrap();
}

fn memory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// A request with many arguments.
fn with(words: &str, numbers: impl Iterator<Item = u64>, each: impl Fn(u64) -> Vec<String>) -> Vec<String> {
    words.split(' ').map(str::to_owned).chain(numbers.flat_map(each)).collect()
}

fn ask(client: &mut Client, words: &[String]) -> Reply {
    client.ask(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

fn put(client: &mut Client, words: &str, each: impl Fn(u64) -> Vec<String>) {
    for from in (0..MANY).step_by(500) {
        let reply = ask(client, &with(words, from..from + 500, &each));
        assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
    }
}

/// Many small things, and whatever else fits in. Returns how many keys there are.
fn fill(client: &mut Client) -> u64 {
    many(client);
    let mut more = 0;
    top_up(client, &mut more);
    3 + MANY + more
}

fn many(client: &mut Client) {
    put(client, "RPUSH list", |n| vec![n.to_string()]);
    put(client, "SADD set", |n| vec![format!("member{n}")]);
    put(client, "HSET hash", |n| vec![format!("field{n}"), n.to_string()]);
    put(client, "MSET", |n| vec![format!("string{n}"), n.to_string()]);
}

/// Until nothing more goes in.
fn top_up(client: &mut Client, more: &mut u64) {
    let value = "x".repeat(3000);
    for len in [3000, 300, 30, 1] {
        loop {
            let words = with("MSET", 0..8, |n| vec![format!("more{}", *more + n), value[..len].to_owned()]);
            match ask(client, &words) {
                Reply::Error(_) => break,
                _ => *more += 8,
            }
        }
    }
}

fn int(reply: Reply) -> u64 {
    let Reply::Int(n) = reply else { panic!("{reply:?}") };
    n as u64
}

#[test]
fn one_request_takes_out_whatever_there_is() {
    let dir = memory();
    let path = dir.path().join("store");
    let steps = Arc::new(AtomicU64::new(0));
    let (server, mut client) = counted(&path, steps.clone());
    many(&mut client);
    let mut more = 0;
    top_up(&mut client, &mut more);
    assert_eq!(client.say("LTRIM list 3 8"), Reply::ok());
    let Reply::Array(left) = client.say("LRANGE list 0 -1") else { panic!("no elements") };
    assert_eq!(left, (3..9).map(|n| Reply::text(&n.to_string())).collect::<Vec<_>>());
    top_up(&mut client, &mut more);
    let Reply::Array(drawn) = client.say(&format!("SPOP set {}", MANY - 1000)) else { panic!("no members") };
    assert_eq!((drawn.len() as u64, int(client.say("SCARD set"))), (MANY - 1000, 1000));
    let Reply::Bulk(first) = &drawn[0] else { panic!("no member") };
    assert_eq!(client.ask(&["SISMEMBER", "set", std::str::from_utf8(first).unwrap()]), Reply::Int(0));
    top_up(&mut client, &mut more);
    // Not neighbours.
    let some = || (0..MANY).filter(|n| n % 5 > 0);
    let gone = some().count() as u64;
    assert_eq!(int(ask(&mut client, &with("HDEL hash", some(), |n| vec![format!("field{n}")]))), gone);
    assert_eq!((client.say("HGET hash field3"), client.say("HGET hash field5")), (Reply::Null, Reply::text("5")));
    top_up(&mut client, &mut more);
    assert_eq!(int(ask(&mut client, &with("DEL", some(), |n| vec![format!("string{n}")]))), gone);
    top_up(&mut client, &mut more);
    assert!(steps.load(SeqCst) >= 2 * 3, "{steps:?}: there was room for all of it at once");
    stop(server);
    let (server, mut client) = serve(&path);
    assert_eq!(int(client.say("DBSIZE")), 3 + MANY + more - gone);
    assert_eq!((client.say("GET string3"), client.say("GET string5")), (Reply::Null, Reply::text("5")));
    let lens = ["HLEN hash", "SCARD set", "LLEN list"].map(|line| int(client.say(line)));
    assert_eq!(lens, [MANY - gone, 1000, 6]);
    for line in ["MULTI", "SET new 1", "FLUSHALL", "SET newer 2"] {
        assert!(matches!(client.say(line), Reply::Simple(_)));
    }
    assert_eq!(client.say("EXEC"), Reply::Array(vec![Reply::ok(); 3]));
    assert_eq!((int(client.say("DBSIZE")), client.say("GET newer")), (1, Reply::text("2")));
    stop(server);
}

/// Small values and nothing else, in a store of so many bytes: as many as go in.
fn fill_with_small_ones(path: &Path, bytes: u64) -> (Server, Client, u64) {
    let pool = pmem::Options::new().domain(DomainChoice::Emulated).max_size(bytes);
    let store = kv::Options::new().segment_bytes(64 << 10).pool(pool).open_or_create(path).unwrap();
    let server = start(None, usual(), Box::new(Kv::new(store)));
    let mut client = Client::to(server.redis()[0]);
    let mut there = 0;
    for some in [400, 20, 1] {
        let put = |from: u64| with("MSET", from..from + some, |n| vec![format!("string{n:05}"), "v".to_owned()]);
        while ask(&mut client, &put(there)) == Reply::ok() {
            there += some;
        }
    }
    (server, client, there)
}

/// Each of them stands beside one that stays. The more there are, the more there is to note: no number is too large.
#[test]
fn every_other_key_of_a_full_store_is_deleted_by_one_request() {
    let dir = memory();
    let path = dir.path().join("store");
    let (server, mut client, there) = fill_with_small_ones(&path, 4 << 20);
    let odd = || (1..there).step_by(2);
    let del = with("DEL", odd(), |n| vec![format!("string{n:05}")]);
    assert_eq!(int(ask(&mut client, &del)) as usize, odd().count(), "of {there} keys");
    stop(server);
    let (server, mut client) = serve(&path);
    assert_eq!(int(client.say("DBSIZE")) as usize, there as usize - odd().count());
    for n in (0..there).step_by(997) {
        let expected = if n % 2 == 1 { Reply::Null } else { Reply::text("v") };
        assert_eq!(client.say(&format!("GET string{n:05}")), expected, "{n}");
    }
    stop(server);
}

/// It is removed with what comes to its place, and makes up for it.
#[test]
fn a_large_collection_is_overwritten_in_a_full_store() {
    let dir = memory();
    let path = dir.path().join("store");
    let (server, mut client) = serve(&path);
    many(&mut client);
    put(&mut client, "SADD other", |n| vec![format!("member{n}")]);
    let mut more = 0;
    let long = "x".repeat(2000);
    for (line, keys) in [
        (format!("SET set {long}"), 0),
        ("RENAME string1 hash".to_owned(), 1),
        (format!("MSET list {long} another {long}"), 0),
        ("RENAME string2 other".to_owned(), 1),
    ] {
        top_up(&mut client, &mut more);
        let before = int(client.say("DBSIZE"));
        let words: Vec<_> = line.split(' ').collect();
        let reply = client.ask(&words);
        assert!(!matches!(reply, Reply::Error(_)), "{}: {reply:?}", &line[..20]);
        let new = u64::from(words[0] == "MSET");
        assert_eq!(int(client.say("DBSIZE")), before - keys + new, "{}", &line[..20]);
    }
    stop(server);
    let (server, mut client) = serve(&path);
    assert_eq!((client.say("GET set"), client.say("GET list")), (Reply::text(&long), Reply::text(&long)));
    assert_eq!((client.say("GET hash"), client.say("GET string1")), (Reply::text("1"), Reply::Null));
    assert_eq!((client.say("GET other"), client.say("GET string2")), (Reply::text("2"), Reply::Null));
    stop(server);
}

/// Most of the store belongs to few keys, and what comes to their place is longer than they are.
#[test]
fn few_collections_make_room_for_what_comes_with_their_removal() {
    for lists in [1, 4] {
        let dir = memory();
        let (server, mut client, _) = fill_with_small_ones(&dir.path().join("store"), 4 << 20);
        assert_eq!(client.say("FLUSHALL"), Reply::ok());
        client.say("SET small x");
        for some in [200, 20, 1] {
            let mut refused = 0;
            let mut n = 0;
            while refused < 3 * lists {
                n += 1;
                let words = with(&format!("RPUSH list{}", n % lists), 0..some, |_| vec!["v".repeat(60)]);
                refused = if matches!(ask(&mut client, &words), Reply::Error(_)) { refused + 1 } else { 0 };
            }
        }
        let transaction = |client: &mut Client, lines: &[&str]| {
            [&["MULTI"], lines].concat().iter().for_each(|line| drop(client.say(line)));
            client.say("EXEC")
        };
        let lines = ["SET a 1", "FLUSHALL", "SET b 1", "RPUSH newer a b", "SET c 2"];
        let replies = vec![Reply::ok(), Reply::ok(), Reply::ok(), Reply::Int(2), Reply::ok()];
        if lists > 1 {
            let reply = transaction(&mut client, &["DEL list0", "SET b 1"]);
            assert_eq!(reply, Reply::Array(vec![Reply::Int(1), Reply::ok()]), "{lists}");
        }
        assert_eq!(transaction(&mut client, &lines), Reply::Array(replies), "{lists}");
        assert_eq!((int(client.say("DBSIZE")), client.say("GET b")), (3, Reply::text("1")));
        stop(server);
    }
}

/// Not before it was tried to take out all at once, in vain and more than once.
#[test]
fn a_store_that_was_full_takes_much_out_in_steps_at_once() {
    let dir = memory();
    let path = dir.path().join("store");
    let deleted = Arc::new(AtomicU64::new(0));
    let (counts, config) = (deleted.clone(), usual());
    let before: Before = Box::new(move |key| {
        counts.fetch_add(u64::from(key.first() == Some(&0)), SeqCst);
    });
    let server = start(None, config, watched(Box::new(Kv::new(open(&path))), before));
    let mut client = Client::to(server.redis()[0]);
    let keys = fill(&mut client);
    let Reply::Array(names) = client.say("KEYS *") else { panic!("no keys") };
    let mut words = vec!["DEL".to_owned()];
    words.extend(names.iter().map(|name| match name {
        Reply::Bulk(name) => String::from_utf8(name.clone()).unwrap(),
        other => panic!("{other:?}"),
    }));
    deleted.store(0, SeqCst);
    assert_eq!((int(ask(&mut client, &words)), int(client.say("DBSIZE"))), (keys, 0));
    let deleted = deleted.load(SeqCst);
    assert!(deleted < keys + keys / 2, "{deleted} deletions of {keys} keys");
    stop(server);
}

#[test]
fn memcached_takes_out_all_at_once() {
    let dir = memory();
    let path = dir.path().join("store");
    let (server, mut client) = serve(&path);
    put(&mut client, "MSET", |n| vec![format!("string{n}"), n.to_string()]);
    let keys = fill(&mut client);
    let mut other = Client::to(server.memcached()[0]);
    other.send(b"flush_all\r\n");
    let mut line = String::new();
    std::io::BufRead::read_line(&mut other.0, &mut line).unwrap();
    assert_eq!(line, "OK\r\n", "of {keys} keys");
    assert_eq!(int(client.say("DBSIZE")), 3, "of {keys} keys");
    stop(server);
}

/// Killed at any step, the next start shows all of it or nothing, and then does not come back to it.
#[test]
fn who_is_killed_between_steps_ends_them_when_it_starts() {
    let dir = memory();
    let path = dir.path().join("store");
    let (server, mut client) = serve(&path);
    fill(&mut client);
    stop(server);
    // Copies of the file, as a killed process leaves it: before the note of what goes, behind it, and before it is removed.
    const AT: [u64; 3] = [1, MANY / 3, MANY / 2];
    let (noted, touched, from) = (AtomicU64::new(0), AtomicU64::new(0), path.clone());
    let before: Before = Box::new(move |key| {
        let copy = |name: &str| assert!(std::fs::copy(&from, from.with_extension(name)).unwrap() > 0);
        if key == b"\xf3remove" {
            copy(if noted.fetch_add(1, SeqCst) == 0 { "first" } else { "last" });
        } else if key.first() == Some(&0xf0) && noted.load(SeqCst) > 0 {
            let at = touched.fetch_add(1, SeqCst) + 1;
            if AT.contains(&at) {
                copy(&at.to_string());
            }
        }
    });
    // Nothing else writes while it is copied.
    let store = options().background(false).open(&path).unwrap();
    let server = start(None, usual(), watched(Box::new(Kv::new(store)), before));
    let mut client = Client::to(server.redis()[0]);
    top_up(&mut client, &mut 0);
    client.send(&request(&["LTRIM", "list", "5", "9"]));
    assert_eq!(client.reply(), Reply::ok());
    stop(server);
    let mut outcomes = BTreeMap::new();
    for at in AT.map(|at| at.to_string()).into_iter().chain(["first", "last"].map(str::to_owned)) {
        let image = path.with_extension(&at);
        assert!(image.exists(), "{at}: it was not done in steps");
        for again in 0..2 {
            let (server, mut client) = serve(&image);
            let len = int(client.say("LLEN list"));
            let Reply::Array(all) = client.say("LRANGE list 0 -1") else { panic!("no elements") };
            assert!(len == 5 || len == MANY, "{at}, {again}: {len} elements");
            let first = if len == 5 { 5 } else { 0 };
            assert_eq!((all.len() as u64, &all[0]), (len, &Reply::text(&first.to_string())), "{at}, {again}");
            *outcomes.entry(len).or_insert(0) += 1;
            // What comes to the places of what has gone stays.
            if len == 5 && again == 0 {
                assert_eq!(
                    (client.say("RPUSH list new"), client.say("RPOP list")),
                    (Reply::Int(6), Reply::text("new"))
                );
            }
            stop(server);
        }
    }
    assert_eq!(outcomes.len(), 2, "{outcomes:?}");
}
