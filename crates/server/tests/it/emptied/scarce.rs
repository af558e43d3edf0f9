//! Steps that find no room: at the first one nothing is done, and at a later one what has yet to go is hidden until it goes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use server::engine::{Engine, Kv};
use server::tree::{self, Tree};
use server::{Config, Server};

use super::{ask, int, memory, stop, with};
use crate::support::{Client, Reply, WAIT_LIMIT, scarce, start, usual};

const KEYS: u64 = 5000;

/// What the store has room for.
#[derive(Default)]
struct Room {
    /// Deletions of one transaction; 0 for any number.
    together: AtomicU64,
    /// Those of database 0, in all.
    left: AtomicU64,
    /// No notes.
    notes: AtomicBool,
    /// Notes of garbage that are cleared.
    reaped: AtomicU64,
    /// No notes of garbage.
    garbage: AtomicBool,
}

fn room(together: u64, left: u64) -> Arc<Room> {
    let room = Room::default();
    room.together.store(together, SeqCst);
    room.left.store(left, SeqCst);
    Arc::new(room)
}

fn serve(path: &Path, room: &Arc<Room>) -> (Server, Client) {
    let store = kv::Options::new().pool(pmem::Options::new().domain(pmem::DomainChoice::Emulated));
    serve_on(Box::new(Kv::new(store.open_or_create(path).unwrap())), room, usual())
}

fn serve_on(engine: Box<dyn Engine>, room: &Arc<Room>, config: Config) -> (Server, Client) {
    let room = room.clone();
    let full = move |key: &[u8], sets: bool, before: usize| {
        let together = room.together.load(SeqCst);
        match key.first() {
            Some(0xf2) if sets => room.garbage.load(SeqCst),
            Some(0xf3)
                if sets && [&b"flush"[..], b"remove", b"spare"].iter().any(|name| key[1..].starts_with(name)) =>
            {
                room.notes.load(SeqCst)
            }
            _ if sets => false,
            Some(0xf2) => {
                room.reaped.fetch_add(1, SeqCst);
                false
            }
            _ if together > 0 && before as u64 >= together => true,
            Some(0) => room.left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_err(),
            _ => false,
        }
    };
    let server = start(None, config, scarce(engine, Box::new(full)));
    let client = Client::to(server.redis()[0]);
    (server, client)
}

fn fill(client: &mut Client) {
    for from in (0..KEYS).step_by(500) {
        assert_eq!(
            ask(client, &with("MSET", from..from + 500, |n| vec![format!("key{n}"), n.to_string()])),
            Reply::ok()
        );
    }
}

fn misconf(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(text) if text.starts_with("MISCONF"))
}

/// All of them, or those that others stand between.
fn del(client: &mut Client, each: usize) -> Reply {
    ask(client, &with("DEL", (0..KEYS).step_by(each), |n| vec![format!("key{n}")]))
}

#[test]
fn a_step_is_halved_down_to_one_key() {
    for together in [1, 100] {
        let dir = memory();
        let room = room(together, u64::MAX);
        let (server, mut client) = serve(&dir.path().join("store"), &room);
        fill(&mut client);
        if together > 1 {
            assert_eq!((int(del(&mut client, 1)), int(client.say("DBSIZE"))), (KEYS, 0));
            fill(&mut client);
        }
        assert_eq!(client.say("FLUSHALL"), Reply::ok(), "{together} at once");
        assert_eq!(int(client.say("DBSIZE")), 0);
        stop(server);
    }
}

/// Elements of collections that go before their heads do, where there is no room to note them.
#[test]
fn collections_go_without_a_note_of_their_elements() {
    let dir = memory();
    let path = dir.path().join("store");
    let room = room(50, u64::MAX);
    let (server, mut client) = serve(&path, &room);
    fill(&mut client);
    for name in 0..6 {
        let words = with(&format!("HSET hash{name}"), 0..300, |n| vec![n.to_string(), "value".to_owned()]);
        assert_eq!(int(ask(&mut client, &words)), 300);
    }
    room.garbage.store(true, SeqCst);
    assert_eq!(int(client.say("DEL hash1 hash2")), 2);
    assert_eq!((int(client.say("DBSIZE")), int(client.say("HLEN hash3"))), (KEYS + 4, 300));
    assert_eq!((client.say("FLUSHALL"), int(client.say("DBSIZE"))), (Reply::ok(), 0));
    // Elements that were noted go by themselves, a few at a time.
    room.garbage.store(false, SeqCst);
    assert_eq!(int(ask(&mut client, &with("SADD set", 0..500, |n| vec![n.to_string()]))), 500);
    assert_eq!(client.say("DEL set"), Reply::Int(1));
    soon("elements stay", || room.reaped.load(SeqCst) > 0);
    stop(server);
    let store = kv::Options::new().open(&path).unwrap();
    let left = store.begin(kv::Isolation::Snapshot).unwrap().scan(server::engine::Keys::prefix(b"\xf0")).count();
    assert_eq!(left, 0, "elements are left");
}

#[test]
fn a_first_step_without_room_leaves_nothing_to_do() {
    let dir = memory();
    let path = dir.path().join("store");
    let room = room(100, u64::MAX);
    let (mut server, mut client) = serve(&path, &room);
    fill(&mut client);
    room.notes.store(true, SeqCst);
    for again in [false, true] {
        for each in [1, 3] {
            assert!(misconf(&del(&mut client, each)));
        }
        for line in ["FLUSHALL", "FLUSHDB"] {
            assert!(misconf(&client.say(line)), "{line}");
            assert_eq!((int(client.say("DBSIZE")), client.say("GET key77")), (KEYS, Reply::text("77")), "{line}");
        }
        assert_eq!((client.say("SET new 1"), client.say("DEL new")), (Reply::ok(), Reply::Int(1)));
        if !again {
            stop(server);
            (server, client) = serve(&path, &room);
        }
    }
    room.notes.store(false, SeqCst);
    assert_eq!((client.say("FLUSHALL"), int(client.say("DBSIZE"))), (Reply::ok(), 0));
    stop(server);
}

/// Until it is so, for as long as nothing takes.
#[expect(clippy::disallowed_methods, reason = "what never comes is a failure")]
fn soon(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + WAIT_LIMIT;
    while !is() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// No client sees what waits to be removed, whatever else is asked; and it goes when it can.
fn waits(begin: impl Fn(&mut Client) -> Reply, expected: &Reply, gone: impl Fn(u64) -> bool) {
    let dir = memory();
    let path = dir.path().join("store");
    let room = room(100, u64::MAX);
    let config = || Config { memcached: vec!["127.0.0.1:0".parse().unwrap()], ..usual() };
    let (mut server, mut client) = serve(&path, &room);
    fill(&mut client);
    assert_eq!(client.say("HSET hash a 1 b 2 c 3"), Reply::Int(3));
    client.say("SELECT 1");
    assert_eq!(client.say("MSET other 1 another 2 third 3"), Reply::ok());
    assert_eq!(int(client.say("RPUSH list a b c d")), 4);
    client.say("SELECT 0");
    let stays = (0..KEYS).filter(|n| !gone(*n)).count() as u64 + u64::from(!gone(KEYS));
    room.left.store(700, SeqCst);
    assert_eq!(begin(&mut client), *expected);
    for again in [false, true] {
        assert_eq!(int(client.say("DBSIZE")), stays, "again: {again}");
        let Reply::Array(keys) = client.say("KEYS *") else { panic!("no keys") };
        assert_eq!(keys.len() as u64, stays);
        for n in [0, 1, 1500, KEYS - 2, KEYS - 1] {
            let there = if gone(n) { Reply::Null } else { Reply::text(&n.to_string()) };
            assert_eq!(client.say(&format!("GET key{n}")), there, "{n}");
            assert_eq!(client.say(&format!("EXISTS key{n}")), Reply::Int(i64::from(!gone(n))), "{n}");
        }
        let Reply::Bulk(told) = client.say("INFO keyspace") else { panic!("no text") };
        let told = String::from_utf8(told).unwrap();
        assert_eq!(told.contains(&format!("db0:keys={stays},")), stays > 0, "{told}");
        // What would come to the place of what has gone, and all else that is new, waits too.
        let last = KEYS - 2;
        for line in ["SET new 1", &format!("SET key{last} 1"), "HSET hash d 4", "LPUSH list x"] {
            assert!(misconf(&client.say(line)), "{line}");
        }
        assert_eq!(client.say(&format!("DEL key{last}")), Reply::Int(i64::from(!gone(last) && !again)));
        assert_eq!(client.say(&format!("WATCH key{last}")), Reply::ok());
        assert_eq!((client.say("MULTI"), client.say("PING")), (Reply::ok(), Reply::Simple("QUEUED".to_owned())));
        assert_eq!(client.say("EXEC"), Reply::Array(vec![Reply::Simple("PONG".to_owned())]));
        client.say("SELECT 1");
        let (gone, left, list) = [("other", 3, "a"), ("another", 2, "b")][usize::from(again)];
        assert_eq!((client.say(&format!("DEL {gone}")), int(client.say("DBSIZE"))), (Reply::Int(1), left));
        assert_eq!((client.say("LPOP list"), client.say("GET third")), (Reply::text(list), Reply::text("3")));
        client.say("SELECT 0");
        if !again {
            stop(server);
            let store = kv::Options::new().pool(pmem::Options::new().domain(pmem::DomainChoice::Emulated));
            (server, client) = serve_on(Box::new(Kv::new(store.open(&path).unwrap())), &room, config());
        }
    }
    room.left.store(u64::MAX, SeqCst);
    soon("it does not go on", || client.say("SET new 1") == Reply::ok());
    let now = (0..KEYS - 2).chain([KEYS - 1]).filter(|n| !gone(*n)).count() as u64 + u64::from(!gone(KEYS)) + 1;
    assert_eq!(int(client.say("DBSIZE")), now);
    stop(server);
    let (server, mut client) = serve(&path, &room);
    assert_eq!(
        (int(client.say("DBSIZE")), client.say("GET key1500")),
        (now, if gone(1500) { Reply::Null } else { Reply::text("1500") })
    );
    stop(server);
}

#[test]
fn what_is_flushed_waits_for_room() {
    waits(|client| client.say("FLUSHDB"), &Reply::ok(), |_| true);
}

#[test]
fn what_is_deleted_waits_for_room() {
    let count = KEYS.div_ceil(2);
    waits(|client| del(client, 2), &Reply::Int(count as i64), |n| n < KEYS && n % 2 == 0);
}

// ---- at random ------------------------------------------------------------------------------------------------------

/// Strings, which are numbers, and hashes, by database and name.
type Model = BTreeMap<(u8, String), u64>;

/// Fields of a hash.
const FIELDS: u64 = 70;
/// In the model, a hash: more than a string is. Its fields are added.
const HASH: u64 = 1 << 40;

fn name(n: u64) -> String {
    format!("string{n}")
}

/// Overwrites some keys, collections among them.
fn overwrite(client: &mut Client, model: &mut Model, db: u8, random: &mut Random, when: &str) {
    let from = random.below(300);
    let names: Vec<_> = (0..6).filter(|_| random.below(2) == 0).map(|n| format!("hash{n}")).collect();
    let moved = model.iter().filter(|(key, _)| key.0 == db).nth(random.below(300) as usize);
    let (reply, put): (Reply, Vec<(String, u64)>) = match (random.below(3), moved) {
        (0, Some(((_, old), value))) => {
            let (old, new, value) = (old.clone(), format!("hash{}", random.below(6)), *value);
            let reply = client.say(&format!("RENAME {old} {new}"));
            if reply == Reply::ok() {
                model.remove(&(db, old));
            }
            (reply, vec![(new, value)])
        }
        (1, _) => {
            let new = format!("hash{}", random.below(6));
            (client.say(&format!("SET {new} 5")), vec![(new, 5)])
        }
        _ => {
            let put: Vec<_> = (from..from + 3).map(name).chain(names).map(|name| (name, from)).collect();
            let mut words = vec!["MSET".to_owned()];
            words.extend(put.iter().flat_map(|(name, value)| [name.clone(), value.to_string()]));
            (ask(client, &words), put)
        }
    };
    match reply {
        reply if reply == Reply::ok() => model.extend(put.into_iter().map(|(name, value)| ((db, name), value))),
        reply => assert!(misconf(&reply), "{when}: {reply:?}"),
    }
}

/// Some fields of a hash that stand apart.
fn delete_fields(client: &mut Client, model: &mut Model, db: u8, random: &mut Random, when: &str) {
    let hash = format!("hash{}", random.below(6));
    let Some(value) = model.get_mut(&(db, hash.clone())).filter(|value| **value > HASH) else { return };
    let words = with(&format!("HDEL {hash}"), (0..FIELDS).step_by(2), |n| vec![n.to_string()]);
    match ask(client, &words) {
        Reply::Int(gone) => *value -= gone as u64,
        reply => assert!(misconf(&reply), "{when}: {reply:?}"),
    }
}

fn check(client: &mut Client, model: &Model, when: &str) {
    for db in 0..2 {
        client.say(&format!("SELECT {db}"));
        let Reply::Array(mut keys) = client.say("KEYS *") else { panic!("{when}: no keys") };
        keys.sort_by_key(|key| format!("{key:?}"));
        let mut expected: Vec<_> = model.keys().filter(|key| key.0 == db).map(|key| Reply::text(&key.1)).collect();
        expected.sort_by_key(|key| format!("{key:?}"));
        assert_eq!(keys, expected, "{when}, database {db}");
    }
    for ((db, name), value) in model.iter().step_by(7) {
        client.say(&format!("SELECT {db}"));
        match value.checked_sub(HASH) {
            Some(fields) => assert_eq!(int(client.say(&format!("HLEN {name}"))), fields, "{when}: {name}"),
            None => assert_eq!(client.say(&format!("GET {name}")), Reply::text(&value.to_string()), "{when}: {name}"),
        }
    }
}

/// A store of either engine.
fn serve_any(seed: u64, path: &Path, room: &Arc<Room>) -> (Server, Client) {
    if seed.is_multiple_of(2) {
        return serve(path, room);
    }
    let pool = pmem::Options::new().domain(pmem::DomainChoice::Emulated);
    let options = tree::Options::new().bytes(1 << 20).slots(8).pool(pool);
    serve_on(Box::new(Tree::open_or_create(path, &options).unwrap()), room, usual())
}

/// Whatever finds no room, and whenever: a request is done, or it is not, and the same after a restart.
fn at_random(seed: u64) {
    let mut random = Random(seed);
    let dir = memory();
    let path = dir.path().join("store");
    let room = room(0, u64::MAX);
    let (mut server, mut client) = serve_any(seed, &path, &room);
    let mut model = Model::new();
    for step in 0..60 {
        let when = format!("seed {seed}, step {step}");
        match random.below(8) {
            0 => room.together.store([0, 1, 3, 20][random.below(4) as usize], SeqCst),
            1 => room.left.store([0, 10, 100, u64::MAX][random.below(4) as usize], SeqCst),
            2 => room.notes.store(random.below(2) == 0, SeqCst),
            3 => room.garbage.store(random.below(2) == 0, SeqCst),
            4 if random.below(3) == 0 => {
                room.notes.store(false, SeqCst);
                room.garbage.store(false, SeqCst);
                room.left.store(u64::MAX, SeqCst);
                room.together.store(0, SeqCst);
                client.say("SELECT 0");
                soon(&when, || client.say("SET string0 0") == Reply::ok());
                model.insert((0, "string0".to_owned()), 0);
            }
            4 => {
                stop(server);
                (server, client) = serve_any(seed, &path, &room);
            }
            _ => {}
        }
        let db = random.below(2) as u8;
        client.say(&format!("SELECT {db}"));
        match random.below(10) {
            8 => overwrite(&mut client, &mut model, db, &mut random, &when),
            9 => delete_fields(&mut client, &mut model, db, &mut random, &when),
            0..3 => {
                let from = random.below(300);
                let words = with("MSET", from..from + 80, |n| vec![name(n), (n + seed).to_string()]);
                match ask(&mut client, &words) {
                    reply if reply == Reply::ok() => {
                        model.extend((from..from + 80).map(|n| ((db, name(n)), n + seed)));
                    }
                    reply => assert!(misconf(&reply), "{when}: {reply:?}"),
                }
            }
            3 => {
                let hash = format!("hash{}", random.below(6));
                let words = with(&format!("HSET {hash}"), 0..FIELDS, |n| vec![n.to_string(), "v".to_owned()]);
                match ask(&mut client, &words) {
                    Reply::Int(_) => drop(model.insert((db, hash), HASH + FIELDS)),
                    Reply::Error(text) if text.starts_with("WRONGTYPE") => {
                        assert!(model.get(&(db, hash)).is_some_and(|value| *value < HASH), "{when}: {text}");
                    }
                    reply => assert!(misconf(&reply), "{when}: {reply:?}"),
                }
            }
            4..=6 => {
                let (each, hashes) = (1 + random.below(3), random.below(2) * 6);
                let mut words = with("DEL", (0..400).filter(|n| n % each == 0), |n| vec![name(n)]);
                words.extend((0..hashes).map(|n| format!("hash{n}")));
                let gone: Vec<_> = words[1..].iter().map(|key| (db, key.clone())).collect();
                let there = gone.iter().filter(|key| model.contains_key(key)).count();
                match ask(&mut client, &words) {
                    Reply::Int(count) => {
                        assert_eq!(count as usize, there, "{when}");
                        model.retain(|key, _| !gone.contains(key));
                    }
                    reply => assert!(misconf(&reply), "{when}: {reply:?}"),
                }
            }
            _ => {
                let all = random.below(2) == 0;
                match client.say(if all { "FLUSHALL" } else { "FLUSHDB" }) {
                    reply if reply == Reply::ok() => model.retain(|key, _| !all && key.0 != db),
                    reply => assert!(misconf(&reply), "{when}: {reply:?}"),
                }
            }
        }
        check(&mut client, &model, &when);
    }
    stop(server);
}

#[test]
fn whatever_finds_no_room_a_request_is_done_or_it_is_not() {
    let seeds = std::env::var("CAIRN_SPACE_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    for seed in 0..6 * seeds {
        println!("seed {seed}");
        at_random(seed);
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % n
    }
}
