//! What has been told to expire, to stay, to go later, and got other names in between, is there, whole, when everything has been swept that is gone; as in Redis.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use conformance::Rng;
use pmem::DomainChoice;
use server::{Config, Step};

use crate::differential::{Client, Redis, Value};
use crate::support::{Store, scarce, start, until, usual};

/// Keys, each with two other names, and what each kind is made by.
const KEYS: usize = 400;
const MADE: [&str; 6] =
    ["HSET K f v g w", "RPUSH K a b c", "SADD K m n", "ZADD K 1 m 2 n", "XADD K 1-1 f v", "SETRANGE K 262200 text"];
const SHORT: &str = "100";
/// Milliseconds, longer than that.
const LONGER: &str = "150";
/// First byte of the keys of elements: docs/format.md.
const ELEMENTS: u8 = 0xf0;

fn pick(rng: &mut Rng, end: usize) -> usize {
    rng.below(end as u64) as usize
}

/// One change of a key: all of a round's are made at one moment.
fn change(rng: &mut Rng, name: &dyn Fn(usize) -> String) -> String {
    let (key, other) = (name(pick(rng, 3)), name(pick(rng, 3)));
    match pick(rng, 16) {
        0..=2 => format!("PEXPIRE {key} {SHORT}"),
        3 | 4 => format!("PEXPIRE {key} 100000000"),
        5 | 6 => format!("PERSIST {key}"),
        7..=9 => format!("RENAME {key} {other}"),
        10 => format!("COPY {key} {other} REPLACE"),
        11 => format!("MOVE {key} 1"),
        12 => format!("BITOP NOT {key} {key}"),
        13 => format!("APPEND {key} more"),
        14 => format!("GETEX {key} PX {SHORT}"),
        _ => MADE[pick(rng, MADE.len())].replace('K', &key),
    }
}

fn all_of(client: &mut Client, key: &str) -> Vec<Value> {
    let asks = [
        "TYPE K",
        "STRLEN K",
        "GETRANGE K 262100 262300",
        "HGETALL K",
        "LRANGE K 0 -1",
        "SMEMBERS K",
        "ZRANGE K 0 -1 WITHSCORES",
        "XRANGE K - +",
    ];
    let mut all: Vec<_> = asks.iter().map(|ask| client.ask(&ask.replace('K', key))).collect();
    for value in &mut all {
        if let Value::Many(_, values) = value {
            values.sort();
        }
    }
    all
}

/// Fields of hashes that are the last to expire. What the reaper removes before them, or with the first of them, is removed for good when the second one goes: that is another transaction.
const LAST: [&str; 2] = ["last:1", "last:2"];

/// What differs when all has been swept that has expired; without a step, if one is named.
pub fn differ(step: Option<Step>, store: Store, seed: u64) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let _redis = Redis::start(dir.path()).expect("redis-server is not installed; run `make setup`");
    let socket = dir.path().join("ours.sock");
    let config = Config { unix: Some(socket.clone()), ..usual() };
    let engine = store.open(dir.path().join("store"), pmem::Options::new().domain(DomainChoice::Emulated));
    let swept: Arc<[AtomicBool; 2]> = Arc::default();
    let sees = swept.clone();
    // There is room for all; the test only sees what goes.
    let engine = scarce(
        engine,
        Box::new(move |key, sets, _| {
            for (last, swept) in LAST.iter().zip(&*sees) {
                if !sets && key.first() == Some(&ELEMENTS) && key.ends_with(last.as_bytes()) {
                    swept.store(true, SeqCst);
                }
            }
            false
        }),
    );
    let server = start(step, config, engine);
    let mut both = [Client::new(&dir.path().join("redis.sock"), 2), Client::new(&socket, 2)];
    let mut rng = Rng::seeded(seed);
    let mut rounds = Vec::new();
    for n in 0..KEYS {
        let name = |at: usize| format!("k{n}:{at}");
        let first = MADE[pick(&mut rng, MADE.len())].replace('K', &name(0));
        let changes = (0..3 + pick(&mut rng, 6)).map(|_| change(&mut rng, &name));
        let round: Vec<_> = std::iter::once(first).chain(changes).collect();
        let [theirs, ours] = both.each_mut().map(|client| {
            client.ask("MULTI");
            round.iter().for_each(|line| drop(client.ask(line)));
            client.ask("EXEC")
        });
        assert_eq!(theirs, ours, "seed {seed}: {round:?}");
        rounds.push(round);
    }
    // Notes are served in the order of their moments.
    for (last, swept) in LAST.iter().zip(&*swept) {
        let [_, ours] = &mut both;
        ours.ask("MULTI");
        ours.ask(&format!("HSET {last} {last} v"));
        ours.ask(&format!("PEXPIRE {last} {LONGER}"));
        ours.ask("EXEC");
        until("what expires last is swept", || swept.load(SeqCst));
    }
    let mut found = Vec::new();
    for db in ["SELECT 0", "SELECT 1"] {
        both.iter_mut().for_each(|client| drop(client.ask(db)));
        for (n, round) in rounds.iter().enumerate() {
            for key in (0..3).map(|at| format!("k{n}:{at}")) {
                let [theirs, ours] = both.each_mut().map(|client| all_of(client, &key));
                if theirs != ours {
                    found.push(format!("{db}, {key} behind {round:?}:\n  {ours:?}, not {theirs:?}"));
                }
            }
        }
    }
    drop(both);
    server.stop();
    server.join().unwrap();
    found
}

#[test]
fn what_stays_is_whole_behind_the_reaper() {
    for (store, seed) in [(Store::Kv, 1), (Store::Tree, 2)] {
        let found = differ(None, store, seed);
        assert!(found.is_empty(), "{store:?}, {} keys differ:\n{}", found.len(), found.join("\n"));
    }
}
