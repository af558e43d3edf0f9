//! What is told of keys is told in the order of commits, and of nothing else; what Redis tells of each command is compared in [`crate::differential`].

use std::time::Duration;

use pmem::DomainChoice;

use crate::support::{Client, Reply, Running, Store, WAIT_LIMIT, start, usual};

fn subscriber(running: &Running, pattern: &str) -> Client {
    let mut client = running.client();
    client.ask(&["PSUBSCRIBE", pattern]);
    client
}

/// Channel and payload of the next message.
fn heard(client: &mut Client) -> (String, String) {
    let Reply::Array(parts) = client.reply() else { panic!("no message") };
    let [.., Reply::Bulk(channel), Reply::Bulk(payload)] = &parts[..] else { panic!("{parts:?}") };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(channel), text(payload))
}

fn turn_on(running: &Running, classes: &str) {
    assert_eq!(running.client().ask(&["CONFIG", "SET", "notify-keyspace-events", classes]), Reply::ok());
}

/// A key that comes and goes: what is told of it does so by turns, whichever of several clients on two threads did it. `SET` comes more often, and need not know what was there.
#[test]
fn events_of_a_key_come_in_the_order_of_commits() {
    const EACH: usize = 60;
    let slow = Running::on(Store::Slow, DomainChoice::File);
    for running in [Running::start(DomainChoice::Emulated), Running::start(DomainChoice::File), slow, Running::tree()] {
        turn_on(&running, "KA");
        for sets in ["SETNX k 1", "SET k 1"] {
            running.client().say("DEL k");
            let mut hears = subscriber(&running, "__keyspace@0__:k");
            // As many connections as come to both threads.
            let done: usize = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4)
                    .map(|at| {
                        let mut client = running.client();
                        scope.spawn(move || {
                            let lines = [sets, "DEL k"];
                            let ask = |n: usize| client.say(lines[(at + n) % 2]) != Reply::Int(0);
                            (0..EACH).map(ask).filter(|done| *done).count()
                        })
                    })
                    .collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            let mut is_there = false;
            for n in 0..done {
                let event = heard(&mut hears).1;
                let sound = match &event[..] {
                    "set" => !is_there || sets == "SET k 1",
                    "del" => is_there,
                    _ => false,
                };
                assert!(sound, "{sets}: {event} is {n} of {done}");
                is_there = event == "set";
            }
            running.client().say("PUBLISH __keyspace@0__:k end");
            assert_eq!(heard(&mut hears).1, "end");
        }
    }
}

#[test]
fn transactions_and_scripts_tell_what_they_have_committed() {
    let running = Running::start(DomainChoice::Emulated);
    let mut client = running.client();
    let mut hears = subscriber(&running, "__keyevent*");
    client.say("SET before 1");
    turn_on(&running, "EA");
    for line in ["MULTI", "SET a 1", "INCR a", "SELECT 3", "LPUSH l 1", "NOSUCH", "DISCARD"] {
        client.say(line);
    }
    for line in ["MULTI", "SET a 1", "INCR a", "SELECT 3", "LPUSH l 1", "SELECT 0", "EXEC"] {
        client.say(line);
    }
    client.say("WATCH a");
    running.client().say("APPEND a 1");
    for line in ["MULTI", "DEL a", "EXEC"] {
        client.say(line);
    }
    client.ask(&["EVAL", "redis.call('hset', KEYS[1], 'f', 1) redis.call('hdel', KEYS[1], 'f') error('x')", "1", "h"]);
    // Pipelined, and one that fails.
    client.send(b"SADD s a\r\nSADD s a\r\nINCR s\r\nSREM s a\r\n");
    (0..4).for_each(|_| drop(client.reply()));
    turn_on(&running, "");
    client.say("SET off 1");
    turn_on(&running, "E$");
    client.say("LPUSH l 1");
    client.say("SET on 1");
    let expected = [
        "0 set a",
        "0 incrby a",
        "3 lpush l",
        "0 append a",
        "0 hset h",
        "0 hdel h",
        "0 del h",
        "0 sadd s",
        "0 srem s",
        "0 del s",
        "0 set on",
    ];
    for one in expected {
        let (channel, key) = heard(&mut hears);
        let [db, event, key_of] = one.split(' ').collect::<Vec<_>>()[..] else { panic!("{one}") };
        assert_eq!((channel, &key[..]), (format!("__keyevent@{db}__:{event}"), key_of));
    }
}

#[test]
fn keys_that_expire_are_told_of() {
    for store in Store::ALL {
        let dir = tempfile::tempdir().unwrap();
        let open = || start(None, usual(), store.open(dir.path().join("store"), pmem::Options::new()));
        let server = open();
        let mut client = Client::to(server.redis()[0]);
        client.say("SET deleted 1 EX 10000");
        let mut hears = Client::to(server.redis()[0]);
        hears.ask(&["SUBSCRIBE", "__keyevent@0__:expired", "__keyevent@1__:expired"]);
        hears.reply();
        // Set before any client wants to know; on a busy machine it may have gone by then.
        let knows = [300, 3000, 30_000].into_iter().any(|ms| {
            client.ask(&["CONFIG", "SET", "notify-keyspace-events", ""]);
            client.ask(&["SET", "early", "1", "PX", &ms.to_string()]);
            client.ask(&["CONFIG", "SET", "notify-keyspace-events", "Ex"]);
            hears.0.get_ref().set_read_timeout(Some(Duration::from_millis(ms + 1000))).unwrap();
            let heard = hears.try_reply();
            hears.0.get_ref().set_read_timeout(Some(WAIT_LIMIT)).unwrap();
            let expected = ["message", "__keyevent@0__:expired", "early"].map(Reply::text);
            heard == Some(Reply::Array(expected.to_vec()))
        });
        assert!(knows, "{store:?}");
        client.send(
            b"MULTI\r\nSET gone 1 PX 20\r\nDEL gone\r\nSET kept 1 PX 20\r\nPERSIST kept\r\nDEL deleted\r\nEXEC\r\n",
        );
        (0..7).for_each(|_| drop(client.reply()));
        client.send(b"SELECT 1\r\nHSET h f 1\r\nPEXPIRE h 30\r\nSELECT 0\r\n");
        (0..4).for_each(|_| drop(client.reply()));
        assert_eq!(heard(&mut hears), ("__keyevent@1__:expired".to_owned(), "h".to_owned()), "{store:?}");
        assert_eq!([client.say("EXISTS early"), client.say("EXISTS kept")], [Reply::Int(0), Reply::Int(1)]);
        server.stop();
        server.join().unwrap();
    }
}

/// A client that mirrors a key by what it is told knows at each moment whether it is there:
/// also if it is made anew just when it has expired, and before any client has looked for it.
#[test]
fn a_key_that_is_made_anew_was_told_to_have_expired() {
    for running in [Running::start(DomainChoice::Emulated), Running::start(DomainChoice::File), Running::tree()] {
        turn_on(&running, "KAn");
        let mut hears = subscriber(&running, "__keyspace@0__:k*");
        let keys = 4;
        std::thread::scope(|scope| {
            for key in 0..keys {
                let mut client = running.client();
                scope.spawn(move || {
                    for n in 0..60 {
                        client.say(&format!("SET k{key} v PX {}", 10 + n % 3));
                        // It is about to expire, or has, and was told of or not.
                        std::thread::sleep(Duration::from_millis([8, 10, 11, 12, 14, 30, 61, 63][n % 8]));
                        let line = ["SET k v", "SET k v", "DEL k", "SETNX k v", "APPEND k v"][n % 5]
                            .replace('k', &format!("k{key}"));
                        client.say(&line);
                        client.say(&format!("DEL k{key}"));
                    }
                    client.say(&format!("PUBLISH __keyspace@0__:k{key} end"));
                });
            }
        });
        let (mut there, mut ended) = ([false; 4], 0);
        while ended < keys {
            let (channel, event) = heard(&mut hears);
            let key: usize = channel.rsplit('k').next().unwrap().parse().unwrap();
            let (sound, is_there) = match &event[..] {
                "end" => {
                    ended += 1;
                    (true, there[key])
                }
                "new" => (!there[key], true),
                "expired" | "del" => (there[key], false),
                _ => (there[key], true),
            };
            assert!(sound, "{channel}: {event}");
            there[key] = is_there;
        }
    }
}
