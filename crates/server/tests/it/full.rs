//! A full store: whatever fits in can be taken out, by any command, after any restart. And names that were chosen to stand at one place.

use std::time::Duration;

use pmem::DomainChoice;
use server::Server;
use server::engine::Kv;

use crate::support::{Client, Reply, request, start, until, usual};

mod kills;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % n.max(1)
    }
}

fn serve(path: &std::path::Path, bytes: u64) -> (Server, Client) {
    let pool = pmem::Options::new().domain(DomainChoice::Emulated).max_size(bytes);
    let store = kv::Options::new().segment_bytes(256 << 10).pool(pool).open_or_create(path).unwrap();
    let server = start(None, usual(), Box::new(Kv::new(store)));
    let client = Client::to(server.redis()[0]);
    (server, client)
}

fn again(server: Server, path: &std::path::Path, bytes: u64) -> (Server, Client) {
    server.stop();
    server.join().unwrap();
    serve(path, bytes)
}

pub fn memory() -> tempfile::TempDir {
    let memory = std::path::Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// Many requests in one write; their replies.
pub fn pipeline(client: &mut Client, requests: &[Vec<String>]) -> Vec<Reply> {
    let bytes: Vec<u8> =
        requests.iter().flat_map(|words| request(&words.iter().map(String::as_str).collect::<Vec<_>>())).collect();
    client.send(&bytes);
    requests.iter().map(|_| client.reply()).collect()
}

/// What fills a store, with so many collections of a kind: its length, and what kind it is of.
fn put(random: &mut Random, n: u64, collections: u64) -> Vec<String> {
    let value = "v".repeat((1 << random.below(12)) + random.below(32) as usize);
    let words = match random.below(6) {
        0 => vec!["RPUSH".into(), format!("list{}", n % collections), value.clone(), value],
        1 => vec!["HSET".into(), format!("hash{}", n % collections), format!("field{n}"), value],
        2 => vec![
            "SADD".into(),
            format!("set{}", n % collections),
            format!("member{n}{}", &value[..value.len().min(60)]),
        ],
        3 => vec!["ZADD".into(), format!("sorted{}", n % collections), n.to_string(), format!("member{n}")],
        _ => vec!["SET".into(), format!("string{n}"), value],
    };
    words.into_iter().collect()
}

fn is_full(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(text) if text.starts_with("MISCONF") || text.starts_with("OOM"))
}

/// Fills it, and returns how many strings may be there.
fn fill(client: &mut Client, random: &mut Random, collections: u64) -> u64 {
    let (mut n, mut refused) = (0, 0);
    while refused < 6 {
        let requests: Vec<_> = (0..1 + random.below(50)).map(|at| put(random, n + at, collections)).collect();
        n += requests.len() as u64;
        let replies = pipeline(client, &requests);
        for reply in &replies {
            assert!(!matches!(reply, Reply::Error(_)) || is_full(reply), "{reply:?}");
        }
        refused = if replies.iter().any(is_full) { refused + 1 } else { 0 };
    }
    n
}

/// A request that takes something out, if it is there.
fn take(random: &mut Random, n: u64) -> Vec<String> {
    let which = random.below(40);
    if random.below(400) == 0 {
        // Nearly all at once.
        let words = |first: &str, each: &str, count: u64| {
            let first = first.split(' ').map(str::to_owned);
            first.chain((0..count).map(|at| format!("{each}{}", (n + 3 * at) % 20_000))).collect()
        };
        return match random.below(4) {
            0 => words("DEL", "string", [1500, 6000][random.below(2) as usize]),
            1 => words(&format!("HDEL hash{which}"), "field", 1500),
            2 => format!("LTRIM list{which} 1 1").split(' ').map(str::to_owned).collect(),
            _ => format!("SPOP set{which} 1000000").split(' ').map(str::to_owned).collect(),
        };
    }
    let count = (1 + random.below(20)).to_string();
    let line = match random.below(12) {
        0 => format!("LPOP list{which} {count}"),
        1 => format!("RPOP list{which}"),
        2 => format!("LTRIM list{which} {count} -2"),
        3 => format!("SPOP set{which} {count}"),
        4 => format!("ZPOPMIN sorted{which} {count}"),
        5 => format!("ZREMRANGEBYRANK sorted{which} 0 {count}"),
        6 => format!("HDEL hash{which} field{n} field{}", n + 1),
        7 => format!("UNLINK list{which} hash{which}"),
        8 => format!("DEL set{which} sorted{}", random.below(40)),
        _ => format!("DEL string{n} string{}", n + 1),
    };
    line.split(' ').map(str::to_owned).collect()
}

/// Requests that put something in, and take more out.
fn take_and_put(client: &mut Client, random: &mut Random, when: &str) {
    for _ in 0..3 {
        let name = format!("{}{}", ["list", "hash", "set", "sorted"][random.below(4) as usize], random.below(4));
        if client.ask(&["EXISTS", &name]) != Reply::Int(1) {
            continue;
        }
        let lines = match random.below(3) {
            0 => vec![format!("SET {name} v")],
            1 => vec!["MULTI".to_owned(), format!("DEL {name}"), format!("SET {name} v"), "EXEC".to_owned()],
            _ => vec!["SET small v".to_owned(), format!("RENAME small {name}")],
        };
        // Where not even a small record fits in, and nothing is swept, the first step is refused; what only takes out never is.
        if !(0..500).any(|look| {
            std::thread::sleep(Duration::from_millis(10 * u64::from(look > 0)));
            all_done(client, &lines, when)
        }) {
            assert_eq!(client.say(&format!("DEL {name}")), Reply::Int(1), "{when}: {lines:?}");
            until(&format!("{when}: {lines:?}"), || all_done(client, &lines, when));
        }
    }
}

/// Says these; false if the store has no room just now, as one has that sweeps what was removed before.
fn all_done(client: &mut Client, lines: &[String], when: &str) -> bool {
    for line in lines {
        let reply = client.say(line);
        if matches!(reply, Reply::Error(_)) {
            assert!(is_full(&reply), "{when}: {line}: {reply:?}");
            // The small one is new, or not: that may find no room at all.
            return line == "SET small v";
        }
    }
    true
}

/// No collection: a server that was started in a full store has no number for a new one until something is gone.
fn flush_and_put(client: &mut Client, when: &str) {
    for line in ["MULTI", "SET new 1", "FLUSHALL", "SET newer 2", "SET newest 3"] {
        assert!(matches!(client.say(line), Reply::Simple(_)), "{when}: {line}");
    }
    let expected = Reply::Array(vec![Reply::ok(); 4]);
    assert_eq!((client.say("EXEC"), client.say("DBSIZE")), (expected, Reply::Int(2)), "{when}");
}

fn fill_and_empty(seed: u64, bytes: u64) {
    let mut random = Random(seed);
    let dir = memory();
    let path = dir.path().join("store");
    let (mut server, mut client) = serve(&path, bytes);
    for round in 0..5 {
        let when = format!("seed {seed}, round {round}, {bytes} bytes");
        let most = fill(&mut client, &mut random, [40, 1, 4][(round + seed) as usize % 3]);
        (server, client) = again(server, &path, bytes);
        if round > 1 {
            take_and_put(&mut client, &mut random, &when);
            flush_and_put(&mut client, &when);
            continue;
        }
        let mut at = 0;
        let stop = random.below(most);
        while at < most {
            let some = 1 + random.below(200);
            let requests: Vec<_> = (at..at + some).map(|_| take(&mut random, random_of(seed, at, most))).collect();
            for (request, reply) in requests.iter().zip(pipeline(&mut client, &requests)) {
                assert!(!matches!(reply, Reply::Error(_)), "{when}: {at} of {most}: {request:?}: {reply:?}");
            }
            if (at..at + some).contains(&stop) {
                (server, client) = again(server, &path, bytes);
            }
            at += some;
        }
        assert_eq!(client.say("FLUSHALL"), Reply::ok(), "{when}");
        assert_eq!(client.say("DBSIZE"), Reply::Int(0), "{when}");
        // There is room again, once what was removed is collected.
        let value = "x".repeat(1000);
        until(&format!("{when}: room behind FLUSHALL"), || {
            let requests: Vec<_> = (0..64).map(|n| vec!["SET".to_owned(), format!("new{n}"), value.clone()]).collect();
            pipeline(&mut client, &requests).iter().all(|reply| *reply == Reply::ok())
        });
        assert_eq!(client.say("FLUSHALL"), Reply::ok(), "{when}");
    }
    server.stop();
    server.join().unwrap();
}

fn random_of(seed: u64, at: u64, most: u64) -> u64 {
    Random(seed ^ at.wrapping_mul(31)).below(most)
}

/// Seeds, and mebibytes of the largest store, from the environment: `make space-long` has more.
fn budget() -> (u64, u64) {
    let number =
        |name: &str, otherwise: u64| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(otherwise);
    (number("CAIRN_SPACE_SEEDS", 1), number("CAIRN_SPACE_MIB", 16))
}

#[test]
fn whatever_fits_in_can_be_taken_out_by_any_command() {
    let (seeds, largest) = budget();
    for seed in 0..seeds {
        let bytes = (16 << (seed % (u64::from((largest / 16).ilog2()) + 1))) << 20;
        println!("seed {seed}, {bytes} bytes");
        fill_and_empty(seed, bytes);
    }
}

#[test]
fn a_store_full_of_small_values_starts_again_and_is_flushed() {
    let dir = memory();
    let path = dir.path().join("store");
    let bytes = 16 << 20;
    let (server, mut client) = serve(&path, bytes);
    let mut full = 0;
    for n in 0..10_000u64 {
        let requests: Vec<_> =
            (0..500).map(|at| vec!["SET".to_owned(), format!("key{}", n * 500 + at), "v".to_owned()]).collect();
        full += pipeline(&mut client, &requests).iter().filter(|reply| is_full(reply)).count();
        if full > 1000 {
            break;
        }
    }
    assert!(full > 1000, "it is never full");
    // Every start writes a record.
    let (server, mut client) = again(server, &path, bytes);
    let (server, mut client) = (0..3).fold(
        (server, {
            drop(client.say("PING"));
            client
        }),
        |(server, _), _| again(server, &path, bytes),
    );
    let Reply::Int(keys) = client.say("DBSIZE") else { panic!("no number") };
    assert!(keys > 50_000, "{keys}");
    // No client sees a part of it.
    let mut other = Client::to(server.redis()[0]);
    client.send(&request(&["FLUSHALL"]));
    loop {
        match other.say("DBSIZE") {
            Reply::Int(0) => break,
            seen => assert_eq!(seen, Reply::Int(keys)),
        }
    }
    assert_eq!(client.reply(), Reply::ok());
    server.stop();
    server.join().unwrap();
}

#[test]
fn a_flush_that_was_cut_short_is_ended_by_the_next_start() {
    let dir = memory();
    let path = dir.path().join("store");
    let store = kv::Options::new().create(&path).unwrap();
    for n in 0..3000u32 {
        store.put(&[&[(n % 2) as u8], &n.to_be_bytes()[..]].concat(), b"s").unwrap();
    }
    // What the first step leaves, of database 0.
    store.put(b"\xf3flush", &[0]).unwrap();
    store.close().unwrap();
    let (server, mut client) = serve(&path, 64 << 20);
    assert_eq!(client.say("DBSIZE"), Reply::Int(0));
    client.say("SELECT 1");
    assert_eq!(client.say("DBSIZE"), Reply::Int(1500));
    let (server, mut client) = again(server, &path, 64 << 20);
    assert_eq!((client.say("SET new 1"), client.say("DBSIZE")), (Reply::ok(), Reply::Int(1)));
    let (server, mut client) = again(server, &path, 64 << 20);
    assert_eq!(client.say("DBSIZE"), Reply::Int(1));
    server.stop();
    server.join().unwrap();
}

// ---- hashes ---------------------------------------------------------------------------------------------------

/// Names of 256 bytes with one XXH3-64, unseeded, `lead` bytes behind the start of what is hashed: the lower halves of two lanes are the secret's, so that their products
/// are 0, and the sums of the upper halves are the same.
fn colliding(lead: usize, count: u32) -> Vec<String> {
    let name = |n: u32| {
        let mut bytes = [b'x'; 256];
        bytes[8 - lead..12 - lead].copy_from_slice(&[0x7c, 0x01, 0x81, 0x2c]);
        bytes[12 - lead..16 - lead].copy_from_slice(&n.to_le_bytes());
        bytes[72 - lead..76 - lead].copy_from_slice(&[0xde, 0xd4, 0x6d, 0xe9]);
        bytes[76 - lead..80 - lead].copy_from_slice(&0u32.wrapping_sub(n).to_le_bytes());
        bytes
    };
    // As requests are bytes: each byte a character here.
    (0..count).map(|n| name(n).iter().map(|byte| char::from(*byte)).collect()).collect()
}

/// A request whose words have a byte for each character.
fn bytes_of(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word: Vec<u8> = word.chars().map(|c| c as u8).collect();
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend(word);
        bytes.extend(b"\r\n");
    }
    bytes
}

#[test]
fn names_with_one_hash_do_not_keep_a_thread() {
    let names = colliding(0, 2000);
    let hash = |name: &str| xxhash_rust::xxh3::xxh3_64(&name.chars().map(|c| c as u8).collect::<Vec<_>>());
    assert!(names.iter().all(|name| hash(name) == hash(&names[0])), "they do not collide");
    let dir = memory();
    let (server, mut client) = serve(&dir.path().join("store"), 1 << 30);
    let words: Vec<_> = ["SADD", "s"].into_iter().chain(names.iter().map(String::as_str)).collect();
    client.send(&bytes_of(&words));
    assert_eq!(client.reply(), Reply::Int(2000));
    let Reply::Array(drawn) = client.say("SRANDMEMBER s 100") else { panic!("no members") };
    assert_eq!(drawn.len(), 100);
    let Reply::Array(scanned) = client.say("SSCAN s 0 COUNT 10") else { panic!("no members") };
    let Reply::Array(some) = &scanned[1] else { panic!("no members") };
    assert!(some.len() < 100, "{} members have one place", some.len());
    server.stop();
    server.join().unwrap();
}

#[test]
fn keys_with_one_hash_do_not_slow_a_transaction_down() {
    let count = 32_000;
    // The store's keys have the number of the database before them.
    let names = colliding(1, count);
    let stored = |name: &str| [0].into_iter().chain(name.chars().map(|c| c as u8)).collect::<Vec<_>>();
    let hash = |name: &str| xxhash_rust::xxh3::xxh3_64(&stored(name));
    assert!(names.iter().all(|name| hash(name) == hash(&names[0])), "they do not collide");
    let dir = memory();
    let (server, mut client) = serve(&dir.path().join("store"), 1 << 30);
    let words: Vec<_> = std::iter::once("MSET").chain(names.iter().flat_map(|name| [name.as_str(), "v"])).collect();
    // Quadratic, this takes minutes: longer than the client waits for a reply.
    client.send(&bytes_of(&words));
    assert_eq!(client.reply(), Reply::ok());
    server.stop();
    server.join().unwrap();
}
