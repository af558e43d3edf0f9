//! A store without room gives up keys, as its policy says, and nothing else.

use std::path::Path;
use std::time::Duration;

use pmem::DomainChoice;
use server::engine::Kv;
use server::{Config, Eviction, Server, Settings, Step};

use crate::full::{memory, pipeline};
use crate::support::{Client, Reply, Store, start, until, usual};

const ROOM: u64 = 8 << 20;

/// What is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Short {
    File(Store),
    /// Memory for kv's index.
    Memory,
}

struct Cache {
    server: Option<Server>,
    path: std::path::PathBuf,
    short: Short,
    _dir: tempfile::TempDir,
}

impl Cache {
    fn start(short: Short, policy: &str, step: Option<Step>) -> Self {
        let dir = memory();
        let path = dir.path().join("store");
        Self { server: Some(serve(&path, short, policy, step)), path, short, _dir: dir }
    }

    fn stopped(mut self) -> Self {
        let server = self.server.take().unwrap();
        server.stop();
        server.join().unwrap();
        self
    }

    fn started(self, policy: &str) -> Self {
        Self { server: Some(serve(&self.path, self.short, policy, None)), ..self }
    }

    fn client(&self) -> Client {
        Client::to(self.server.as_ref().unwrap().redis()[0])
    }
}

fn serve(path: &Path, short: Short, policy: &str, step: Option<Step>) -> Server {
    let pool = pmem::Options::new().domain(DomainChoice::Emulated);
    let engine = match short {
        Short::File(Store::Kv) => {
            let options = kv::Options::new().segment_bytes(64 << 10).pool(pool.max_size(ROOM));
            Box::new(Kv::new(options.open_or_create(path).unwrap()))
        }
        Short::File(store) => store.open(path, pool.max_size(4 * ROOM)),
        Short::Memory => {
            Box::new(Kv::new(kv::Options::new().pool(pool).index_memory(1 << 20).open_or_create(path).unwrap()))
        }
    };
    let settings = Settings { eviction: Eviction::named(policy).unwrap(), ..Settings::default() };
    start(step, Config { settings, ..usual() }, engine)
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn evicted(client: &mut Client) -> u64 {
    let Reply::Bulk(info) = client.say("INFO stats") else { panic!("no info") };
    let info = String::from_utf8(info).unwrap();
    info.lines().find_map(|line| line.strip_prefix("evicted_keys:")).unwrap().trim().parse().unwrap()
}

/// How many of these keys are there.
fn there(client: &mut Client, prefix: &str, count: usize) -> usize {
    let requests: Vec<_> = (0..count).map(|n| words(&format!("EXISTS {prefix}{n}"))).collect();
    pipeline(client, &requests).iter().filter(|reply| **reply == Reply::Int(1)).count()
}

/// Sets keys `prefix0`, `prefix1`, ... until something has been evicted so often, or was refused; how many were set.
fn set_until(client: &mut Client, prefix: &str, tail: &str, wanted: u64, mut beside: impl FnMut(&mut Client)) -> usize {
    let value = "v".repeat(400);
    let mut set = 0;
    while evicted(client) < wanted {
        beside(client);
        let requests: Vec<_> = (set..set + 40).map(|n| words(&format!("SET {prefix}{n} {value}{tail}"))).collect();
        for reply in pipeline(client, &requests) {
            if reply != Reply::ok() {
                assert!(
                    matches!(&reply, Reply::Error(text) if text.starts_with("MISCONF") || text.starts_with("OOM")),
                    "{reply:?}"
                );
                return set;
            }
            set += 1;
        }
        assert!(set < 1_000_000, "it has room for ever");
    }
    set
}

const KINDS: [Short; 3] = [Short::File(Store::Kv), Short::File(Store::Tree), Short::Memory];

/// Moments are tenths of a second.
fn a_moment_later() {
    std::thread::sleep(Duration::from_millis(300));
}

#[test]
fn what_was_not_used_for_longest_goes() {
    for short in KINDS {
        for (policy, uses) in [("allkeys-lru", 1), ("allkeys-lfu", 200)] {
            let cache = Cache::start(short, policy, None);
            let mut client = cache.client();
            // Until it is full; some of what is there then is in use.
            let cold = set_until(&mut client, "cold", "", 1, |_| ());
            a_moment_later();
            let used: Vec<String> = (0..50).map(|n| format!("cold{}", n * (cold / 50))).collect();
            let exists = |client: &mut Client, key: &String| client.say(&format!("EXISTS {key}")) == Reply::Int(1);
            let used: Vec<String> = used.into_iter().filter(|key| exists(&mut client, key)).collect();
            assert!(used.len() > 10, "{short:?} {policy}: {} are there", used.len());
            let gets: Vec<_> = used.iter().map(|key| words(&format!("GET {key}"))).collect();
            let use_them = |client: &mut Client| drop(pipeline(client, &gets));
            (0..uses).for_each(|_| use_them(&mut client));
            set_until(&mut client, "new", "", cold as u64 / 3, use_them);
            let left = used.iter().filter(|key| exists(&mut client, key)).count();
            assert!(left + 4 > used.len(), "{short:?} {policy}: of {} keys in use {left} are left", used.len());
            // By how often they were used new keys are as good as those.
            let left = there(&mut client, "cold", cold);
            assert!(policy == "allkeys-lfu" || left < cold * 3 / 4, "{short:?} {policy}: of {cold} {left} are left");
            // Nothing goes from now on, nor with a restart.
            client.say("CONFIG SET maxmemory-policy noeviction");
            let mut counts = Vec::new();
            until("nothing goes any more", || {
                a_moment_later();
                counts.push(client.say("DBSIZE"));
                counts.ends_with(&[(); 4].map(|()| counts[counts.len() - 1].clone()))
            });
            let count = client.say("DBSIZE");
            drop(client);
            let cache = cache.stopped().started("noeviction");
            assert_eq!(cache.client().say("DBSIZE"), count);
        }
    }
}

#[test]
fn what_does_not_expire_stays() {
    what_does_not_expire_is_left(None);
}

pub fn what_does_not_expire_is_left(step: Option<Step>) {
    for short in KINDS {
        let policies = ["volatile-lru", "volatile-ttl", "volatile-lfu", "volatile-random"];
        for policy in &policies[..if short == Short::File(Store::Kv) { 4 } else { 1 }] {
            let cache = Cache::start(short, policy, step);
            let mut client = cache.client();
            let lasting: Vec<_> = (0..500).map(|n| words(&format!("SET lasting{n} {n}"))).collect();
            pipeline(&mut client, &lasting);
            set_until(&mut client, "volatile", " EX 1000", 2000, |_| ());
            let left = there(&mut client, "lasting", 500);
            assert_eq!(left, 500, "{short:?} {policy}: keys that do not expire");
            // Few of many: they are found all the same, and when all are gone it refuses.
            let set = set_until(&mut client, "more", "", u64::MAX, |_| ());
            assert_eq!(there(&mut client, "more", set), set, "{short:?} {policy}: keys that do not expire");
            assert_eq!(there(&mut client, "lasting", 500), 500, "{short:?} {policy}: keys that do not expire");
        }
    }
}

#[test]
fn what_expires_first_goes_first() {
    for short in KINDS {
        let cache = Cache::start(short, "volatile-ttl", None);
        let mut client = cache.client();
        // Later ones expire sooner.
        let value = "v".repeat(400);
        let mut set = 0;
        while evicted(&mut client) < 1000 {
            let requests: Vec<_> =
                (set..set + 40).map(|n| words(&format!("SET k{n} {value} EX {}", 1_000_000 - n))).collect();
            assert!(pipeline(&mut client, &requests).iter().all(|reply| *reply == Reply::ok()));
            set += 40;
        }
        let first = there(&mut client, "k", set / 4);
        assert!(first > set / 4 * 9 / 10, "{short:?}: of the {} that expire last {first} are there", set / 4);
    }
}

/// A few beside a large group, whatever they are called, are as likely to go as those.
#[test]
fn every_key_has_its_turn() {
    let cache = Cache::start(Short::File(Store::Kv), "allkeys-random", None);
    let mut client = cache.client();
    let value = "v".repeat(400);
    let group: Vec<_> = (0..4000).map(|n| words(&format!("SET group/of/many/{n} {value}"))).collect();
    pipeline(&mut client, &group);
    let few: Vec<String> =
        (0..100).map(|n| if n % 2 == 0 { format!("SELECT {}", 1 + n % 15) } else { format!("SET few{n} 1") }).collect();
    few.iter().for_each(|line| assert_eq!(client.say(line), Reply::ok()));
    client.say("SELECT 0");
    (0..100).for_each(|n| {
        drop(client.ask(&["SET", &char::from(b'h' + n % 19).to_string().repeat(1 + usize::from(n) / 19), "1"]))
    });
    set_until(&mut client, "group/of/more/", "", 3000, |_| ());
    let of = |client: &mut Client| match client.say("DBSIZE") {
        Reply::Int(count) => count,
        other => panic!("{other:?}"),
    };
    let group = there(&mut client, "group/of/many/", 4000) as f64 / 4000.0;
    let letters = (0..100)
        .filter(|n| {
            client.ask(&["EXISTS", &char::from(b'h' + n % 19).to_string().repeat(1 + usize::from(*n) / 19)])
                == Reply::Int(1)
        })
        .count() as f64
        / 100.0;
    let others: i64 = (1..16)
        .map(|db| {
            client.say(&format!("SELECT {db}"));
            of(&mut client)
        })
        .sum();
    let others = others as f64 / 50.0;
    for left in [letters, others] {
        assert!(
            (left - group).abs() < 0.3,
            "of the group {group} are left, of few others {letters}, of other databases {others}"
        );
    }
}

/// What is removed of a long collection behind the eviction gives its room before others go for it.
#[test]
fn long_collections_give_their_room_before_anything_is_refused() {
    for store in Store::ALL {
        let cache = Cache::start(Short::File(store), "allkeys-random", None);
        let mut client = cache.client();
        let fields: Vec<String> = (0..100).map(|n| format!("f{n} {}", "w".repeat(100))).collect();
        for round in 0..800 {
            let requests = [
                words(&format!("HSET h{} {}", round % 10, fields.join(" ").replace('f', &format!("f{round}.")))),
                words(&format!("SET s{round} {}", "y".repeat(500))),
            ];
            for reply in pipeline(&mut client, &requests) {
                assert!(!matches!(reply, Reply::Error(_)), "{store:?}: {round}: {reply:?}");
            }
        }
        assert!(evicted(&mut client) > 0, "{store:?}");
    }
}

/// What may never fit costs no key.
#[test]
fn for_what_is_too_large_nothing_goes() {
    let cache = Cache::start(Short::File(Store::Kv), "allkeys-lru", None);
    let mut client = cache.client();
    let set: Vec<_> = (0..100).map(|n| words(&format!("SET k{n} {n}"))).collect();
    pipeline(&mut client, &set);
    let large = "v".repeat(ROOM as usize);
    assert!(client.ask(&["SET", "large", &large]).error().starts_with("MISCONF"));
    assert_eq!((evicted(&mut client), there(&mut client, "k", 100)), (0, 100));
    // A smaller one has some go.
    set_until(&mut client, "fill", "", 1, |_| ());
    for part in [8, 6] {
        assert_eq!(client.ask(&["SET", "large", &large[..ROOM as usize / part]]), Reply::ok(), "{part}");
    }
}

/// With all that belongs to it, also what is more than goes at once; subscribers are told.
#[test]
fn a_collection_goes_as_a_whole() {
    for store in Store::ALL {
        let cache = Cache::start(Short::File(store), "allkeys-random", None);
        let (mut client, mut hears) = (cache.client(), cache.client());
        client.say("CONFIG SET notify-keyspace-events Ee");
        hears.say("SUBSCRIBE __keyevent@0__:evicted");
        let mut keys = 0;
        while evicted(&mut client) < 300 {
            let mut requests = Vec::new();
            for key in keys..keys + 4 {
                for element in 0..[1, 30, 200][key % 3] {
                    let put = ["RPUSH k{} {e}", "HSET k{} {e} 1", "SADD k{} {e}", "ZADD k{} 1 {e}", "XADD k{} * e {e}"]
                        [key % 5];
                    requests
                        .push(words(&put.replace("{}", &key.to_string()).replace("{e}", &format!("{element:0100}"))));
                }
            }
            keys += 4;
            for reply in pipeline(&mut client, &requests) {
                assert!(!matches!(reply, Reply::Error(_)), "{store:?}: {reply:?}");
            }
        }
        // Nothing is evicted from now on.
        client.say("CONFIG SET maxmemory-policy noeviction");
        let is_told = |client: &mut Client| there(client, "k", keys) as u64 + evicted(client) >= keys as u64;
        until("each key is there, or was evicted", || is_told(&mut client));
        let gone = evicted(&mut client);
        let names: Vec<String> = (0..gone)
            .map(|_| match hears.reply() {
                Reply::Array(parts) => match &parts[2] {
                    Reply::Bulk(key) => String::from_utf8(key.clone()).unwrap(),
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(names.iter().all(|name| name.starts_with('k')));
        client.say("FLUSHALL");
        if store == Store::Kv {
            no_element_is_left((client, hears), cache);
        }
    }
}

/// The reaper has some time for it, again and again.
fn no_element_is_left(clients: (Client, Client), cache: Cache) {
    drop(clients);
    let mut cache = Some(cache);
    until("elements of what was evicted are swept", || {
        a_moment_later();
        let at = cache.take().unwrap().stopped();
        let store = kv::Store::open(&at.path).unwrap();
        let left = store.snapshot().unwrap().scan(kv::Keys::prefix(&[0xf0])).count();
        store.close().unwrap();
        cache = Some(at.started("noeviction"));
        left == 0
    });
}
