//! `CLIENT TRACKING`: clients that keep what they have read, on several threads, never disagree with the server for good.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};

use pmem::DomainChoice;
use server::Step;
use server::engine::Engine;

use crate::support::{Client, Reply, Running, Store, looked_at, read_slowly, start, told, until, usual};

const STORES: [Store; 3] = [Store::Kv, Store::Tree, Store::Slow];

/// A client that keeps values until it is told that they have changed.
struct Cache {
    client: Client,
    kept: BTreeMap<String, Reply>,
    told: usize,
}

impl Cache {
    fn new(running: &Running, mode: &str) -> Self {
        let mut client = running.client();
        client.ask(&["HELLO", "3"]);
        assert_eq!(client.say(&format!("CLIENT TRACKING ON {mode}").trim_end().replace("  ", " ")), Reply::ok());
        Self { client, kept: BTreeMap::new(), told: 0 }
    }

    /// The next answer; what comes in front of it is heeded.
    fn answer(&mut self) -> Reply {
        loop {
            let reply = self.client.reply();
            let Reply::Array(parts) = &reply else { return reply };
            if parts.first() != Some(&Reply::text("invalidate")) {
                return reply;
            }
            self.told += 1;
            match &parts[1] {
                Reply::Null => self.kept.clear(),
                Reply::Array(keys) => {
                    for key in keys {
                        let Reply::Bulk(key) = key else { panic!("{reply:?}") };
                        self.kept.remove(std::str::from_utf8(key).unwrap());
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn ask(&mut self, words: &[&str]) -> Reply {
        self.client.send(&crate::support::request(words));
        self.answer()
    }

    /// Reads those that it has not kept, all at once.
    fn read(&mut self, keys: &[String]) {
        let missing: Vec<&String> = keys.iter().filter(|key| !self.kept.contains_key(*key)).collect();
        for key in &missing {
            self.client.send(&crate::support::request(&["GET", key]));
        }
        for key in missing {
            let value = self.answer();
            self.kept.insert(key.clone(), value);
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

const KEYS: usize = 12;
const WRITERS: usize = 3;
const CACHES: usize = 4;
const WRITES: usize = 1500;

fn write(client: &mut Client, random: &mut Random, value: usize) {
    let key = |random: &mut Random| format!("k{}", random.below(KEYS));
    let (one, other, value) = (key(random), key(random), value.to_string());
    match random.below(24) {
        0 => drop(client.ask(&["DEL", &one, &other])),
        1 => drop(client.ask(&["SET", &one, &value, "PX", "5"])),
        2 => drop(client.ask(&["RENAME", &one, &other])),
        3 => drop(client.ask(&[
            "EVAL",
            "redis.call('set', KEYS[1], ARGV[1]) redis.call('append', KEYS[2], 'x')",
            "2",
            &one,
            &other,
            &value,
        ])),
        4 => {
            client.ask(&["MULTI"]);
            client.ask(&["SET", &one, &value]);
            client.ask(&["GETDEL", &other]);
            client.ask(&["EXEC"]);
        }
        5 if random.below(10) == 0 => drop(client.ask(&["FLUSHALL"])),
        6 => drop(client.ask(&["PEXPIRE", &one, "3"])),
        7 => drop(client.ask(&["MSET", &one, &value, &other, &value])),
        8 => {
            for _ in 0..10 {
                client.send(&crate::support::request(&["SET", &key(random), &value]));
            }
            (0..10).for_each(|_| drop(client.reply()));
        }
        _ => drop(client.ask(&["SET", &one, &value])),
    }
}

/// The race that matters: reads, and writes of what they read, at the same time on two threads. When all is quiet, what is kept is what is there.
#[test]
fn what_is_kept_is_what_is_there() {
    for (store, mode) in STORES.into_iter().flat_map(|store| [(store, ""), (store, "BCAST"), (store, "OPTOUT")]) {
        let running = Running::on(store, DomainChoice::Emulated);
        let left = AtomicUsize::new(WRITERS);
        let kept = std::thread::scope(|scope| {
            for n in 0..WRITERS {
                let (running, left) = (&running, &left);
                scope.spawn(move || {
                    let (mut client, mut random) = (running.client(), Random(n as u64 + 1));
                    for value in 0..WRITES / if store == Store::Kv { 1 } else { 3 } {
                        write(&mut client, &mut random, value * WRITERS + n);
                    }
                    left.fetch_sub(1, SeqCst);
                });
            }
            let caches: Vec<_> = (0..CACHES)
                .map(|n| {
                    let (running, left) = (&running, &left);
                    scope.spawn(move || {
                        let (mut cache, mut random) = (Cache::new(running, mode), Random(n as u64 + 100));
                        while left.load(SeqCst) > 0 {
                            let some: Vec<String> =
                                (0..1 + random.below(6)).map(|_| format!("k{}", random.below(KEYS))).collect();
                            cache.read(&some);
                            // So that what is told is heard although all was kept.
                            cache.ask(&["ECHO", "x"]);
                        }
                        // Every write was answered, so what it is to tell is on its way in front of this.
                        cache.ask(&["PING"]);
                        cache
                    })
                })
                .collect();
            caches.into_iter().map(|cache| cache.join().unwrap()).collect::<Vec<_>>()
        });
        let mut plain = running.client();
        plain.ask(&["HELLO", "3"]);
        for mut cache in kept {
            assert!(cache.told > 50, "{store:?} {mode}: told {} times", cache.told);
            // Keys that expired are told of within a moment.
            until("what is kept is what is there", || {
                cache.ask(&["PING"]);
                let is_there = |(key, value): (&String, &Reply)| plain.ask(&["GET", key]) == *value;
                let all = cache.kept.iter().all(is_there);
                let expires = (0..KEYS).any(|n| !matches!(plain.ask(&["PTTL", &format!("k{n}")]), Reply::Int(-1 | -2)));
                assert!(
                    all || expires || cache.kept.values().any(|value| *value != Reply::Null),
                    "{store:?} {mode}: {:?}",
                    cache.kept
                );
                all && !expires
            });
        }
    }
}

/// Invalidations up to the answer to a request that asks for nothing.
pub fn news(client: &mut Client) -> Vec<Reply> {
    client.send(b"ECHO the-end\r\n");
    let mut all = Vec::new();
    loop {
        match client.reply() {
            end if end == Reply::text("the-end") => return all,
            Reply::Array(parts) if parts.first() == Some(&Reply::text("invalidate")) => {
                all.extend(parts.into_iter().nth(1))
            }
            other => panic!("{other:?} behind {all:?}"),
        }
    }
}

/// Something that is done once, when it is there.
type Once = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

fn once() -> (Once, Box<dyn Fn() + Send + Sync>) {
    let what = Once::default();
    let then = what.clone();
    let run = move || {
        let then = then.lock().unwrap().take();
        then.into_iter().for_each(|then| then());
    };
    (what, Box::new(run))
}

/// A server on this engine, without a step, with clients that are served by different threads: the first speaks version 3.
fn with_clients(step: Option<Step>, engine: Box<dyn Engine>, run: impl FnOnce(Client, Client)) {
    let server = start(step, usual(), engine);
    let [mut one, other] = [0; 2].map(|_| Client::to(server.redis()[0]));
    one.ask(&["HELLO", "3"]);
    run(one, other);
    server.stop();
    server.join().unwrap();
}

/// A write is committed, and answered, between the beginning of a read and what it reads: the client gets the old value, and then the news.
pub fn change_beside_a_read(step: Option<Step>, domain: DomainChoice) {
    let dir = tempfile::tempdir().unwrap();
    let (beside, at_read) = once();
    let engine = read_slowly(Store::Kv.open(dir.path().join("store"), pmem::Options::new().domain(domain)), at_read);
    with_clients(step, engine, |mut reader, mut writer| {
        assert_eq!(reader.ask(&["CLIENT", "TRACKING", "ON"]), Reply::ok());
        assert_eq!(writer.ask(&["SET", "k", "old"]), Reply::ok());
        // By a client of the other thread.
        let write = move || assert_eq!(writer.ask(&["SET", "k", "new"]), Reply::ok());
        *beside.lock().unwrap() = Some(Box::new(write));
        assert_eq!(reader.ask(&["GET", "k"]), Reply::text("old"), "the value comes first");
        assert_eq!(news(&mut reader), [Reply::Array(vec![Reply::text("k")])], "the news comes behind it");
        assert_eq!(reader.ask(&["GET", "k"]), Reply::text("new"));
    });
}

#[test]
fn a_change_beside_a_read_is_told_behind_its_answer() {
    [DomainChoice::Emulated, DomainChoice::File].into_iter().for_each(|domain| change_beside_a_read(None, domain));
}

/// A long string is read elsewhere, after an attempt that is given up; it changes during that attempt. The client has asked to be told of what it reads next.
#[test]
fn what_is_read_elsewhere_is_noted_again() {
    [Store::Kv, Store::Slow].into_iter().for_each(change_beside_an_attempt_to_read);
}

fn change_beside_an_attempt_to_read(store: Store) {
    let dir = tempfile::tempdir().unwrap();
    let (beside, at_read) = once();
    // The server reads now and then by itself, but not this.
    let at_get = Box::new(move |key: &[u8]| {
        if key.ends_with(b"long") {
            at_read()
        }
    });
    let engine = looked_at(store.open(dir.path().join("store"), pmem::Options::new()), at_get);
    let value = |byte: &str| byte.repeat(2 << 20);
    with_clients(None, engine, |mut reader, writer| {
        assert_eq!(reader.say("CLIENT TRACKING ON OPTIN"), Reply::ok());
        let writer = Arc::new(Mutex::new(writer));
        let set = |byte: &str| {
            let (writer, value) = (writer.clone(), value(byte));
            move || assert_eq!(writer.lock().unwrap().ask(&["SET", "long", &value]), Reply::ok())
        };
        set("a")();
        assert_eq!(reader.say("CLIENT CACHING YES"), Reply::ok());
        // Its note is taken.
        *beside.lock().unwrap() = Some(Box::new(set("b")));
        reader.send(b"GET long\r\n");
        let news_of_long = Reply::Array(vec![Reply::text("long")]);
        let read = loop {
            match reader.reply() {
                Reply::Array(parts) => assert_eq!(parts, [Reply::text("invalidate"), news_of_long.clone()]),
                other => break other,
            }
        };
        assert!(read == Reply::text(&value("b")), "an old value");
        // Either the change was told behind the answer, and the client keeps nothing; or before it, what was put off was noted again, and the next change is told. Which one, the
        // machine's load decides.
        let mut heard = news(&mut reader);
        set("c")();
        heard.extend(news(&mut reader));
        assert!(!heard.is_empty() && heard.iter().all(|one| *one == news_of_long), "{heard:?}");
        // Only what was read next.
        reader.say("STRLEN long");
        set("d")();
        assert_eq!(news(&mut reader), []);
    });
}

/// A client begins to track, and reads, while a write is under way that does not know which keys it changes.
pub fn write_that_knows_no_keys(step: Option<Step>) {
    let dir = tempfile::tempdir().unwrap();
    let (beside, at_commit) = once();
    let engine = told(Store::Kv.open(dir.path().join("store"), pmem::Options::new()), at_commit);
    with_clients(step, engine, |reader, mut writer| {
        assert_eq!(writer.ask(&["SET", "k", "old"]), Reply::ok());
        let reader = Arc::new(Mutex::new(reader));
        let reads = reader.clone();
        let read = move || {
            let mut reader = reads.lock().unwrap();
            assert_eq!(reader.ask(&["CLIENT", "TRACKING", "ON"]), Reply::ok());
            assert_eq!(reader.ask(&["GET", "k"]), Reply::text("old"));
        };
        *beside.lock().unwrap() = Some(Box::new(read));
        assert_eq!(writer.ask(&["SET", "k", "new"]), Reply::ok());
        let told = news(&mut reader.lock().unwrap());
        assert_eq!(told, [Reply::Null], "it is told to forget everything");
    });
}

#[test]
fn a_write_that_began_before_any_client_tracked_tells_all_of_everything() {
    write_that_knows_no_keys(None);
}

/// A swap of databases makes all that was read something else; one that fails, or changes nothing, does not.
pub fn swaps_are_told(step: Option<Step>) {
    for store in [Store::Kv, Store::Tree] {
        let running = Running::without(step, store, DomainChoice::Emulated);
        let (mut reader, mut other) = (running.client(), running.client());
        reader.ask(&["HELLO", "3"]);
        assert_eq!(reader.ask(&["CLIENT", "TRACKING", "ON"]), Reply::ok());
        for swap in ["SWAPDB 0 1", "EVAL redis.call('SWAPDB','0','1') 0", "FLUSHALL", "FLUSHDB ASYNC"] {
            reader.ask(&["GET", "none"]);
            for nothing in ["SWAPDB 3 3", "SWAPDB 0 99", "SWAPDB 0", "FLUSHALL x", "FLUSHDB x"] {
                other.say(nothing);
            }
            assert_eq!(news(&mut reader), [], "nothing has changed: {store:?}");
            other.say(swap);
            assert_eq!(news(&mut reader), [Reply::Null], "it is told to forget everything: {store:?}, {swap}");
        }
    }
}

#[test]
fn a_swap_of_databases_is_told_to_all_and_what_fails_to_none() {
    swaps_are_told(None);
}

/// A key expires that a client has read, and nobody else touches it; it waits for the news so many times 10 ms.
pub fn expiry_is_told(step: Option<Step>, looks: usize) {
    let running = Running::without(step, Store::Kv, DomainChoice::Emulated);
    let (mut reader, mut other) = (running.client(), running.client());
    reader.ask(&["HELLO", "3"]);
    assert_eq!(reader.ask(&["CLIENT", "TRACKING", "ON"]), Reply::ok());
    // Read before it expires, however slow the machine is.
    until("it is read in time", || {
        other.ask(&["SET", "k", "1", "PX", "300"]);
        news(&mut reader);
        reader.ask(&["GET", "k"]) == Reply::text("1")
    });
    until("it expires", || other.ask(&["EXISTS", "k"]) == Reply::Int(0));
    let told = (0..looks).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        !news(&mut reader).is_empty()
    });
    assert!(told, "it expired, and the client was not told");
}

/// The same, behind everything else that may change a key: memcached, eviction, steps of a `FLUSHALL`.
#[test]
fn other_ways_of_change_are_told() {
    for store in STORES {
        let running = Running::on(store, DomainChoice::Emulated);
        let (mut cache, mut other) = (Cache::new(&running, ""), running.client());
        let keys = ["k".to_owned(), "none".to_owned()];
        // What goes in steps is more than one transaction takes out.
        for from in 0..50 {
            let words: Vec<String> = (0..100).flat_map(|n| [format!("x{}", from * 100 + n), "1".to_owned()]).collect();
            let words: Vec<&str> = ["MSET"].into_iter().chain(words.iter().map(String::as_str)).collect();
            other.ask(&words);
        }
        cache.read(&keys);
        other.ask(&["FLUSHALL"]);
        cache.ask(&["PING"]);
        assert!(cache.kept.is_empty(), "{store:?}: {:?}", cache.kept);
        // In another database, and of a key that is not there.
        cache.read(&keys);
        other.ask(&["SELECT", "5"]);
        other.ask(&["SET", "none", "1"]);
        cache.ask(&["PING"]);
        assert_eq!(cache.kept.keys().collect::<Vec<_>>(), ["k"], "{store:?}");
        other.ask(&["SELECT", "0"]);
        // What does not change anything is not told.
        cache.read(&keys);
        let told = cache.told;
        other.ask(&["DEL", "none"]);
        other.ask(&["SET", "k", "1", "XX"]);
        other.ask(&["GET", "k"]);
        cache.ask(&["PING"]);
        assert_eq!((cache.told, cache.kept.len()), (told, 2), "{store:?}");
        // One that waits is told meanwhile.
        cache.client.send(&crate::support::request(&["BLPOP", "list", "0"]));
        until("it waits", || match other.ask(&["INFO", "clients"]) {
            Reply::Bulk(text) => String::from_utf8_lossy(&text).contains("blocked_clients:1"),
            other => panic!("{other:?}"),
        });
        other.ask(&["SET", "k", "2"]);
        assert_eq!(
            cache.client.reply(),
            Reply::Array(vec![Reply::text("invalidate"), Reply::Array(vec![Reply::text("k")])])
        );
        other.ask(&["RPUSH", "list", "x"]);
        assert_eq!(cache.answer(), Reply::Array(vec![Reply::text("list"), Reply::text("x")]));
    }
}

#[test]
fn keys_that_expire_are_told() {
    expiry_is_told(None, 6000);
    for (store, mode) in STORES.into_iter().flat_map(|store| [(store, ""), (store, "BCAST PREFIX k")]) {
        let running = Running::on(store, DomainChoice::Emulated);
        let (mut cache, mut other) = (Cache::new(&running, mode), running.client());
        other.ask(&["SET", "k", "1", "PX", "60"]);
        other.ask(&["HSET", "khash", "f", "1"]);
        other.ask(&["PEXPIRE", "khash", "60"]);
        cache.ask(&["PING"]);
        let value = cache.ask(&["GET", "k"]);
        cache.kept.insert("k".to_owned(), value);
        let value = cache.ask(&["HGET", "khash", "f"]);
        cache.kept.insert("khash".to_owned(), value);
        until("it is told", || {
            cache.ask(&["PING"]);
            cache.kept.is_empty() || cache.kept.values().all(|value| *value == Reply::Null)
        });
    }
}

/// Of a table that is full keys are given up, and their readers told.
#[test]
fn the_table_has_a_most() {
    let running = Running::start(DomainChoice::Emulated);
    let (mut cache, mut other) = (Cache::new(&running, ""), running.client());
    assert_eq!(other.ask(&["CONFIG", "SET", "tracking-table-max-keys", "10"]), Reply::ok());
    let keys: Vec<String> = (0..100).map(|n| format!("k{n}")).collect();
    for key in &keys {
        cache.read(std::slice::from_ref(key));
    }
    cache.ask(&["PING"]);
    assert!(cache.kept.len() <= 10, "{}", cache.kept.len());
    let Reply::Bulk(text) = other.ask(&["INFO", "stats"]) else { panic!("no text") };
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("tracking_total_keys:10\r\n") && text.contains("tracking_total_items:10\r\n"), "{text}");
    assert!(other.ask(&["CONFIG", "SET", "tracking-table-max-keys", "0"]).error().contains("between 1 and"));
}
