//! What clients that track are told of the same commands, of their own and of another client.

use super::*;

/// What is asked of the client that tracks.
const SAID: &str = "\
CLIENT TRACKINGINFO; CLIENT GETREDIR; CLIENT CACHING YES; CLIENT TRACKING x; CLIENT TRACKING on x; CLIENT TRACKING on PREFIX a; CLIENT TRACKING on BCAST OPTIN; CLIENT TRACKING on OPTIN OPTOUT
CLIENT TRACKING on REDIRECT 99999; CLIENT TRACKING on REDIRECT x; CLIENT TRACKING on REDIRECT -1; CLIENT TRACKING on REDIRECT; CLIENT TRACKING; CLIENT CACHING; CLIENT TRACKING ON; CLIENT TRACKINGINFO
CLIENT GETREDIR; CLIENT CACHING x; CLIENT CACHING yes; CLIENT CACHING no; CLIENT TRACKING ON BCAST; CLIENT TRACKING ON OPTIN; CLIENT TRACKING ON OPTOUT; CLIENT CACHING YES; CLIENT TRACKINGINFO; PING
CLIENT TRACKINGINFO; CLIENT TRACKING OFF; CLIENT TRACKING OFF; CLIENT TRACKING ON OPTOUT NOLOOP; CLIENT CACHING YES; CLIENT CACHING NO; CLIENT TRACKINGINFO; CLIENT TRACKING off
CLIENT TRACKING ON BCAST PREFIX a PREFIX ab; CLIENT TRACKING ON BCAST PREFIX a PREFIX b NOLOOP; CLIENT TRACKING ON BCAST PREFIX ax; CLIENT TRACKING ON BCAST PREFIX a; CLIENT TRACKING ON BCAST PREFIX c
CLIENT TRACKINGINFO; CLIENT TRACKING OFF x; CLIENT TRACKING OFF; CLIENT TRACKINGINFO; CLIENT TRACKING ON BCAST; CLIENT TRACKINGINFO; RESET; HELLO 3; CLIENT TRACKINGINFO; CONFIG GET tracking-table-max-keys";

/// By one that tracks or another one, of few keys: changes of all kinds, those that change nothing, and reads.
const PLAIN: &str = "\
SET %t %v; SET %t %v [NX|XX]; SET %t %v; GET %t; GET %t; GET %t; MGET %t %t %t; STRLEN %t; EXISTS %t %t; TTL %t; TYPE %k; DEL %k; DEL %t %t %k; UNLINK %k; MSET %t %v %t %v; MSETNX %t %v %t %v; SETNX %t %v
APPEND %t x; INCR %t; GETSET %t %v; GETDEL %t; EXPIRE %k 1000; PERSIST %k; RENAME %t %t; RENAMENX %t %t; COPY %t %t [REPLACE]; HSET %h %f %v; HGET %h %f; HGETALL %h; HDEL %h %f
RPUSH %l %v; LRANGE %l 0 -1; LPOP %l; LLEN %l; SADD %s %f; SMEMBERS %s; SREM %s %f; ZADD %z 1 %f; ZRANGE %z 0 -1; ZREM %z %f; SUNION %s %s; SUNIONSTORE %s %s %s; FLUSHALL; LMOVE %l %l LEFT RIGHT
LSET %l 0|-1 %v; HINCRBY %h n 1; HSET %h %f %v %f %v; ZINCRBY %z 1 %f; ZADD %z NX 1 %f; SETBIT %t 5 1; GETBIT %t 5; LTRIM %l 0 1; LINSERT %l BEFORE %v %v; SMOVE %s %s %f; ZPOPMIN %z; HSETNX %h %f %v; HINCRBYFLOAT %h n 0.5; RPUSHX %l %v";

/// What has come in front of an answer that only this asks for.
fn pushed(client: &mut Client) -> Vec<Value> {
    client.send(&request("ECHO the-end"));
    let mut all = Vec::new();
    loop {
        match client.receive() {
            Value::Bulk(text) if text == b"the-end" => break,
            push @ Value::Many('>', _) => all.push(push),
            other => panic!("{other:?} behind {all:?}"),
        }
    }
    // Of one command they may come in any order; and as few messages as there may be.
    all.sort();
    all
}

/// The answer to one request, without what is told before it; that is kept.
fn answer(client: &mut Client, command: &[Vec<u8>], told: &mut Vec<Value>) -> Value {
    client.send(command);
    loop {
        match client.receive() {
            push @ Value::Many('>', _) => told.push(push),
            other => return other,
        }
    }
}

#[test]
fn clients_that_track_are_told_what_redis_tells() {
    for (store, seed) in [(Store::Kv, 1), (Store::Slow, 2), (Store::Tree, 3)] {
        let dir = tempfile::tempdir().unwrap();
        let _redis = Redis::start(dir.path()).expect("redis-server is not installed; run `make setup`");
        let socket = dir.path().join("ours.sock");
        let config = Config { redis: Vec::new(), unix: Some(socket.clone()), threads: 1, ..Config::default() };
        let server = Server::start(config, store.open(dir.path().join("store"), pmem::Options::new())).unwrap();
        let sockets = [dir.path().join("redis.sock"), socket];
        let mut both = sockets.each_ref().map(|at| (Client::new(at, 3), Client::new(at, 2)));
        for line in SAID.split([';', '\n']).map(str::trim).filter(|line| !line.starts_with("HELLO")) {
            let [theirs, ours] = both.each_mut().map(|(tracks, _)| match line {
                "RESET" => {
                    let said = tracks.ask(line);
                    tracks.ask("HELLO 3");
                    said
                }
                line => tracks.ask(line),
            });
            assert_eq!(ours, theirs, "{store:?}: {line}");
        }
        let patterns: Vec<&str> = PLAIN.split([';', '\n']).map(str::trim).collect();
        let (filling, random, last, next) = ("SET %t %v|GET %t", Random(seed), BTreeMap::new(), VecDeque::new());
        let mut maker = Maker { filling, patterns, random, added: 0, names: 4, again: 0, last, next };
        let modes = ["ON", "ON NOLOOP", "ON OPTIN", "ON OPTOUT"];
        // Not more: `SETBIT` of a bit that is set, and its like, are told here, and not by Redis.
        for round in 0..4_u64 {
            let mode = modes[round as usize % modes.len()];
            for (tracks, other) in &mut both {
                let ok = Value::Line('+', "OK".to_owned());
                assert_eq!(tracks.ask("CLIENT TRACKING OFF"), ok);
                // Redis keeps notes of a client that is not told any more, until these keys change, or all do.
                assert_eq!(other.ask("FLUSHALL"), ok);
                assert_eq!(tracks.ask(&format!("CLIENT TRACKING {mode}")), ok, "{mode}");
            }
            let mut log = format!("{store:?}, round {round}, {mode}:\n");
            for _ in 0..40 {
                let (command, own) = (maker.command(), maker.random.below(2) == 0);
                let caching = match mode {
                    "ON OPTIN" => Some("CLIENT CACHING YES"),
                    "ON OPTOUT" => Some("CLIENT CACHING NO"),
                    _ => None,
                };
                let caching = caching.filter(|_| own && maker.random.below(2) == 0);
                log += &format!("{}{}\n", if own { "" } else { "> " }, shown(&command));
                let [theirs, ours] = both.each_mut().map(|(tracks, other)| {
                    let mut told = Vec::new();
                    if let Some(caching) = caching {
                        answer(tracks, &request(caching), &mut told);
                    }
                    let reply = match own {
                        true => answer(tracks, &command, &mut told),
                        false => answer(other, &command, &mut told),
                    };
                    told.extend(pushed(tracks));
                    (normal(&command, reply), told)
                });
                assert_eq!(ours, theirs, "{log}");
            }
        }
        drop(both);
        server.stop();
        server.join().unwrap();
    }
}

#[test]
fn invalidations_go_where_redis_sends_them() {
    with_both_sockets(|sockets| {
        let told = sockets.map(|at| {
            let [mut data, mut hears, mut other] = [2, 2, 2].map(|version| Client::new(at, version));
            let Value::Line(':', id) = hears.ask("CLIENT ID") else { panic!("no id") };
            let mut all = vec![hears.ask("SUBSCRIBE __redis__:invalidate")];
            all.push(data.ask(&format!("CLIENT TRACKING ON REDIRECT {id}")));
            assert_eq!(data.ask("CLIENT GETREDIR"), Value::Line(':', id.clone()));
            for (one, line) in [
                ("data", "GET k"),
                ("other", "SET k 1"),
                ("hears", ""),
                ("data", "MGET a b"),
                ("data", "SET b 1"),
                ("hears", ""),
                ("other", "FLUSHALL"),
                ("hears", ""),
            ] {
                all.push(match one {
                    "data" => data.ask(line),
                    "other" => other.ask(line),
                    _ => hears.receive(),
                });
            }
            drop(hears);
            // The server learns in its own time that the connection has ended.
            crate::support::until("the redirection is broken", || {
                data.ask("GET k");
                other.ask("SET k 3");
                let Value::Many(_, info) = data.ask("CLIENT TRACKINGINFO") else { panic!("no info") };
                let flags = ["on", "broken_redirect"].map(|flag| Value::Bulk(flag.as_bytes().to_vec()));
                info[1] == Value::Many('*', flags.to_vec())
            });
            all
        });
        let [theirs, ours] = told;
        assert_eq!(ours, theirs);
    });
}

/// The sockets of a real Redis, and of a server of ours.
fn with_both_sockets(run: impl FnOnce([&Path; 2])) {
    let dir = tempfile::tempdir().unwrap();
    let _redis = Redis::start(dir.path()).expect("redis-server is not installed; run `make setup`");
    let socket = dir.path().join("ours.sock");
    let config = Config { redis: Vec::new(), unix: Some(socket.clone()), threads: 2, ..Config::default() };
    let server = Server::start(config, Store::Kv.open(dir.path().join("store"), pmem::Options::new())).unwrap();
    run([&dir.path().join("redis.sock"), &socket]);
    server.stop();
    server.join().unwrap();
}
