//! `MULTI`, `EXEC` and `WATCH` under concurrency: what clients saw is a history, and must be strictly serializable.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use conformance::history::{Event, History, Record};
use pmem::DomainChoice;
use tx::Isolation;

use crate::support::{Client, Reply, Running, Store};

const KEYS: u64 = 4;
const CLIENTS: u64 = 6;

/// Moments and values, each once.
struct Clock(AtomicU64);

impl Clock {
    fn tick(&self) -> u64 {
        self.0.fetch_add(1, SeqCst)
    }
}

fn value(reply: &Reply) -> u64 {
    match reply {
        Reply::Null => 0,
        Reply::Bulk(text) => std::str::from_utf8(text).unwrap().parse().unwrap(),
        other => panic!("{other:?}"),
    }
}

fn key(number: u64) -> String {
    format!("key{number}")
}

/// SplitMix64.
fn draw(seed: &mut u64, below: u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) % below
}

/// One transaction of a client, of some shape.
fn one(client: &mut Client, clock: &Clock, seed: &mut u64, watches: bool) -> Record {
    let begin = clock.tick();
    let (a, b) = (draw(seed, KEYS), draw(seed, KEYS));
    let mut events = Vec::new();
    let mut committed = true;
    let read = |key, reply: &Reply| Event::Read { key, value: value(reply) };
    match draw(seed, 5) {
        0 => events.push(read(a, &client.ask(&["GET", &key(a)]))),
        1 => {
            let new = clock.tick();
            let old = client.ask(&["SET", &key(a), &new.to_string(), "GET"]);
            events.push(Event::Write { key: a, old: Some(value(&old)), new });
        }
        2 => {
            let Reply::Array(all) = client.ask(&["MGET", &key(0), &key(1), &key(2), &key(3)]) else {
                panic!("no array")
            };
            events.extend(all.iter().zip(0..).map(|(reply, key)| read(key, reply)));
        }
        3 => {
            // Both at once, without a look before.
            let new = [clock.tick(), clock.tick()];
            for (words, expected) in [
                (vec!["MULTI".to_owned()], "OK"),
                (vec!["GET".to_owned(), key(a)], "QUEUED"),
                (vec!["SET".to_owned(), key(b), new[0].to_string(), "GET".to_owned()], "QUEUED"),
            ] {
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                assert_eq!(client.ask(&words), Reply::Simple(expected.to_owned()));
            }
            let Reply::Array(all) = client.ask(&["EXEC"]) else { panic!("no array") };
            events.push(read(a, &all[0]));
            events.push(Event::Write { key: b, old: Some(value(&all[1])), new: new[0] });
        }
        _ => {
            // A look, and then a change if what was seen still holds.
            if watches {
                assert_eq!(client.ask(&["WATCH", &key(a), &key(b)]), Reply::ok());
            }
            events.push(read(a, &client.ask(&["GET", &key(a)])));
            events.push(read(b, &client.ask(&["GET", &key(b)])));
            let new = clock.tick();
            client.ask(&["MULTI"]);
            client.ask(&["SET", &key(b), &new.to_string(), "GET"]);
            match client.ask(&["EXEC"]) {
                Reply::Null => committed = false,
                Reply::Array(all) => events.push(Event::Write { key: b, old: Some(value(&all[0])), new }),
                other => panic!("{other:?}"),
            }
        }
    }
    if !committed {
        events.clear(); // it looked at different moments, as nothing has forbidden
    }
    Record { name: format!("t{begin}"), begin, end: clock.tick(), committed, events }
}

pub fn history(running: &Running, seed: u64, rounds: usize, watches: bool) -> History {
    let clock = Clock(1.into());
    let mut all = History::default();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let clock = &clock;
                scope.spawn(move || {
                    let (mut client, mut seed) = (running.client(), seed << 8 | number);
                    (0..rounds).map(|_| one(&mut client, clock, &mut seed, watches)).collect::<Vec<_>>()
                })
            })
            .collect();
        clients.into_iter().for_each(|client| all.transactions.extend(client.join().unwrap()));
    });
    all
}

#[test]
fn what_clients_see_is_strictly_serializable() {
    strictly_serializable(Store::Kv);
}

#[test]
fn what_clients_see_of_a_tree_is_strictly_serializable() {
    strictly_serializable(Store::Tree);
}

#[test]
fn what_clients_see_is_strictly_serializable_where_a_sync_takes_long() {
    strictly_serializable(Store::Slow);
}

fn strictly_serializable(store: Store) {
    let both = [(DomainChoice::Emulated, 1500), (DomainChoice::File, 400)];
    for (domain, rounds) in both.into_iter().skip(usize::from(store == Store::Slow)) {
        for seed in 1..=3 {
            let all = history(&Running::on(store, domain), seed, rounds, true);
            let aborted = all.transactions.iter().filter(|one| !one.committed).count();
            assert!(aborted > 0, "nobody met anybody");
            let found = all.check(Isolation::Strict);
            found.unwrap_or_else(|anomaly| panic!("{store:?}, {domain:?}, seed {seed}: {anomaly}"));
        }
    }
}

/// The check is worth something: without `WATCH` the same clients lose updates.
#[test]
fn what_was_not_watched_is_found_out() {
    for store in Store::ALL {
        let history = |seed| history(&Running::on(store, DomainChoice::Emulated), seed, 500, false);
        assert!((1..=20).any(|seed| history(seed).check(Isolation::Strict).is_err()), "{store:?}");
    }
}

#[test]
fn pipelines_keep_their_order() {
    let domains = [DomainChoice::Emulated, DomainChoice::File];
    let all = Store::ALL.into_iter().flat_map(|store| domains.map(|domain| (store, domain)));
    for (store, domain) in all.chain([(Store::Slow, DomainChoice::File)]) {
        in_order(&Running::on(store, domain));
    }
}

pub fn in_order(running: &Running) {
    std::thread::scope(|scope| {
        let clients = [0, 1, 2, 3, 4, 5, 6, 7].map(|number| {
            scope.spawn(move || {
                let mut client = running.client();
                let own = format!("own{number}");
                for round in 0..20 {
                    let mut bytes = Vec::new();
                    for _ in 0..50 {
                        bytes.extend(crate::support::request(&["INCR", &own]));
                        bytes.extend(crate::support::request(&["INCR", "all"]));
                        bytes.extend(crate::support::request(&["GET", &own]));
                    }
                    client.send(&bytes);
                    for at in 1..=50 {
                        let now = round * 50 + at;
                        assert_eq!(client.reply(), Reply::Int(now), "out of order");
                        assert!(matches!(client.reply(), Reply::Int(_)), "out of order");
                        assert_eq!(client.reply(), Reply::text(&now.to_string()), "out of order");
                    }
                }
            })
        });
        for client in clients {
            client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)); // with its text
        }
    });
    assert_eq!(running.client().say("GET all"), Reply::text("8000"));
}

#[test]
fn what_is_watched_is_the_whole_value() {
    watched_as_a_whole(&Running::start(DomainChoice::Emulated));
    watched_as_a_whole(&Running::tree());
}

pub fn watched_as_a_whole(running: &Running) {
    let (mut one, mut other) = (running.client(), running.client());
    for (make, change) in [
        ("SET k 1", "SET k 1"),
        ("SET k 1", "EXPIRE k 100"),
        ("SET k 1", "DEL k"),
        ("SET other 1", "SET k 1"),
        ("HSET k f 1", "HSET k f 2"),
        ("HSET k f 1", "HDEL k f"),
        ("RPUSH k a b", "LSET k 0 c"),
        ("SADD k a", "SADD k b"),
        ("ZADD k 1 a", "ZADD k 2 a"),
        ("ZADD k 1 a", "RENAME k l"),
    ] {
        one.say("FLUSHALL");
        one.say(make);
        assert_eq!(one.say("WATCH k"), Reply::ok());
        other.say(change);
        one.say("MULTI");
        one.say("SET won 1");
        assert_eq!(one.say("EXEC"), Reply::Null, "{make}, {change}");
        // What was not changed does not stand in the way.
        one.say("WATCH k");
        other.say("GET k");
        one.say("MULTI");
        one.say("SET won 1");
        assert_eq!(one.say("EXEC"), Reply::Array(vec![Reply::ok()]), "{make}");
    }
    // An error on the way to EXEC is no reason to do half of it.
    one.say("MULTI");
    one.say("SET won 2");
    assert!(one.say("SET won").error().starts_with("ERR wrong number"));
    assert!(one.say("EXEC").error().starts_with("EXECABORT"));
    // As with Redis: refused itself, it ends the transaction.
    for (line, why) in [
        ("MULTI", "wrong number of arguments for 'exec' command"),
        (
            "SUBSCRIBE c",
            "Can't execute 'exec': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
        ),
    ] {
        one.say(line);
        let exec = if line == "MULTI" { "EXEC x" } else { "EXEC" };
        let told = format!("EXECABORT Transaction discarded because of: {why}");
        assert_eq!(one.say(exec), Reply::Error(told));
        if line == "MULTI" {
            assert_eq!(one.say("EXEC").error(), "ERR EXEC without MULTI");
        }
    }
    one.say("RESET");
    assert_eq!(one.say("GET won"), Reply::text("1"));
    // One within it is one answer among the others.
    one.say("MULTI");
    one.say("LPUSH won 1");
    one.say("SET won 3");
    let Reply::Array(all) = one.say("EXEC") else { panic!("no array") };
    assert!(all[0].error().starts_with("WRONGTYPE") && all[1] == Reply::ok());
}
