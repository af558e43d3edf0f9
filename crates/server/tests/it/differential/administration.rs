//! What is said of clients, settings, users and commands, right and wrong: the same as by Redis.

use super::*;

/// A real Redis, and a server of ours: where they listen.
fn with_sockets_of(run: impl FnOnce([&Path; 2])) {
    let dir = tempfile::tempdir().unwrap();
    let _redis = Redis::start(dir.path()).expect("redis-server is not installed; run `make setup`");
    let socket = dir.path().join("ours.sock");
    let config = Config { redis: Vec::new(), unix: Some(socket.clone()), threads: 2, ..Config::default() };
    let server = Server::start(config, Store::Kv.open(dir.path().join("store"), pmem::Options::new())).unwrap();
    run([&dir.path().join("redis.sock"), &socket]);
    server.stop();
    server.join().unwrap();
}

/// Words that must not be taken for others: who says `SKIPME x` does not say that all are to end.
const SAID: &str = "\
CLIENT KILL SKIPME x; CLIENT KILL SKIPME maybe ID 99999; CLIENT KILL TYPE normal SKIPME x; CLIENT KILL TYPE normal SKIPME; CLIENT KILL LADDR 1:2; CLIENT KILL LADDR 1:2 SKIPME yes
CLIENT KILL USER nosuch; CLIENT KILL USER default ADDR 1:2; CLIENT KILL ID 0; CLIENT KILL ID -1; CLIENT KILL ID x; CLIENT KILL ID 99999; CLIENT KILL ID 1 ID; CLIENT KILL ADDR
CLIENT KILL ADDR 1:2 SKIPME no; CLIENT KILL TYPE x; CLIENT KILL TYPE pubsub; CLIENT KILL TYPE slave; CLIENT KILL MAXAGE 1; CLIENT KILL 1:2; CLIENT KILL x y z; CLIENT KILL
CLIENT LIST x; CLIENT LIST TYPE; CLIENT LIST TYPE x; CLIENT LIST TYPE master; CLIENT LIST TYPE normal x; CLIENT LIST ID; CLIENT LIST ID x; CLIENT LIST ID 0; CLIENT LIST ID -1; CLIENT LIST ID 99999 x
CLIENT NO-EVICT x; CLIENT NO-EVICT on; CLIENT NO-EVICT OFF; CLIENT NO-EVICT; CLIENT REPLY x; CLIENT UNBLOCK; CLIENT UNBLOCK x; CLIENT UNBLOCK 99999; CLIENT UNBLOCK 99999 x
CLIENT UNBLOCK 99999 timeout; CLIENT UNBLOCK 99999 ERROR; CLIENT UNBLOCK -1; CLIENT TRACKING OFF REDIRECT 99999; CLIENT TRACKING OFF x; CLIENT GETREDIR x; CLIENT HELP x; CLIENT ID x
CONFIG SET; CONFIG SET a; CONFIG SET a b; CONFIG SET a b c; CONFIG SET timeout x; CONFIG SET timeout -1; CONFIG SET timeout 99999999999; CONFIG SET timeout 1kb; CONFIG SET timeout 0 timeout 0
CONFIG SET timeout 0 nosuch 1; CONFIG SET slowlog-max-len -1x; CONFIG SET slowlog-log-slower-than x; CONFIG SET slowlog-log-slower-than -2; CONFIG SET slowlog-max-len x
CONFIG SET proto-max-bulk-len 1; CONFIG SET proto-max-bulk-len 1048575; CONFIG SET proto-max-bulk-len x; CONFIG SET client-query-buffer-limit 1; CONFIG SET client-query-buffer-limit 1023kb
CONFIG SET client-query-buffer-limit 1mb; CONFIG GET client-query-buffer-limit; CONFIG SET client-query-buffer-limit 1gb; CONFIG SET latency-tracking x; CONFIG SET lfu-log-factor x
CONFIG SET lfu-decay-time -1; CONFIG SET lua-time-limit x; CONFIG HELP x; CONFIG REWRITE x; CONFIG RESETSTAT x; CONFIG x; CONFIG GET; CONFIG
OBJECT; OBJECT x; OBJECT ENCODING nosuch; OBJECT REFCOUNT nosuch x; OBJECT HELP x; MEMORY x; MEMORY USAGE nosuch x; MEMORY USAGE nosuch SAMPLES; MEMORY USAGE nosuch SAMPLES x; MEMORY PURGE x
LATENCY x; LATENCY HELP x; LATENCY GRAPH x; LATENCY HISTORY x y; LATENCY RESET nosuch; SLOWLOG x; SLOWLOG HELP x; SLOWLOG GET x; SLOWLOG GET -2; SLOWLOG GET 1 2; SLOWLOG LEN x
DEBUG; DEBUG SLEEP 0; ACL; ACL x; ACL HELP x; ACL CAT x; ACL CAT read x; ACL DELUSER; ACL GENPASS x; ACL LOG x; ACL SETUSER u x; ACL SETUSER u +x; ACL SETUSER u +@x; ACL SETUSER u -@x; ACL WHOAMI x
COMMAND x; COMMAND HELP x; COMMAND COUNT x; COMMAND LIST x; COMMAND LIST FILTERBY; COMMAND LIST FILTERBY x y; COMMAND LIST FILTERBY ACLCAT x; BGSAVE x; BGSAVE x y
COMMAND GETKEYS GET; COMMAND GETKEYS GET a b; COMMAND GETKEYS PING; COMMAND GETKEYS EVAL x 0; COMMAND GETKEYS EVAL x 1 a; COMMAND GETKEYS EVAL x 2 a; COMMAND GETKEYS EVAL x -1 a; COMMAND GETKEYS EVAL x y a
COMMAND GETKEYS FCALL x 2 a; COMMAND GETKEYS FCALL x 0 a; COMMAND GETKEYS EVAL_RO x 3 a; COMMAND GETKEYS EVALSHA x 99999999999999999999 a; COMMAND GETKEYS EVAL x 2147483648 a
COMMAND GETKEYS ZUNION 2 a; COMMAND GETKEYS ZUNION 0 a; COMMAND GETKEYS ZUNION x a; COMMAND GETKEYS ZUNION 2 a b; COMMAND GETKEYS ZUNIONSTORE d 2 a; COMMAND GETKEYS ZUNIONSTORE d 0 a
COMMAND GETKEYS ZUNIONSTORE d x a; COMMAND GETKEYS ZUNIONSTORE d -1 a; COMMAND GETKEYS ZUNIONSTORE d 1 a; COMMAND GETKEYS SINTERCARD 5 a; COMMAND GETKEYS LMPOP 2 a LEFT; COMMAND GETKEYS LMPOP 0 a LEFT
COMMAND GETKEYS LMPOP 9 a LEFT; COMMAND GETKEYS BLMPOP 0 1 a LEFT; COMMAND GETKEYS BLMPOP 0 9 a LEFT; COMMAND GETKEYS BZMPOP 0 0 a MIN; COMMAND GETKEYS XREAD STREAMS a 0; COMMAND GETKEYS XREAD COUNT 1 a 0
COMMAND GETKEYSANDFLAGS EVAL x 2 a; COMMAND GETKEYSANDFLAGS ZUNION 5 a; COMMAND GETKEYS SORT a STORE b; COMMAND GETKEYS MSET a b c d; COMMAND GETKEYS XGROUP HELP
HELLO 4; HELLO 2 x; HELLO 2 AUTH; HELLO 2 AUTH a b; HELLO AUTH default x; HELLO x; AUTH a b c; AUTH a b
MULTI; HELLO 2 SETNAME; HELLO x; CLIENT UNBLOCK 99999; HELLO; EXEC; MULTI; HELLO 9; PING; EXEC; MULTI; CLIENT NO-EVICT x; EXEC; MULTI; SET a 1; HELLO 3; HGETALL h; HELLO 2; HGETALL h; GET a; EXEC";

/// What differs between any two servers.
fn without_ids(value: Value) -> Value {
    let is_id = |value: &Value| *value == Value::Bulk(b"id".to_vec());
    let Value::Many(kind, parts) = value else { return value };
    let behind: Vec<bool> = std::iter::once(false).chain(parts.iter().map(is_id)).collect();
    let parts = parts.into_iter().zip(behind);
    Value::Many(kind, parts.map(|(part, id)| if id { Value::Any } else { without_ids(part) }).collect())
}

#[test]
fn options_are_those_of_redis() {
    with_sockets_of(|sockets| {
        let mut others = sockets.map(|at| Client::new(at, 2));
        let mut both = sockets.map(|at| Client::new(at, 2));
        let mut wrong = Vec::new();
        for line in SAID.split([';', '\n']).map(str::trim) {
            let [theirs, ours] = both.each_mut().map(|client| without_ids(client.ask(line)));
            if ours != theirs {
                wrong.push(format!("{line}: {ours:?}, and Redis: {theirs:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        // None of them was ended.
        let alive = others.each_mut().map(|client| client.ask("PING"));
        assert_eq!(alive[1], alive[0]);
        // These may be more here.
        for (line, part) in [
            ("CONFIG SET slowlog-max-len 12345", "argument must be between 0 and 10000 inclusive"),
            ("CONFIG SET acllog-max-len 12345", "argument must be between 0 and 10000 inclusive"),
            ("CLIENT NO-TOUCH x", "syntax error"),
            ("MULTI", "OK"),
            ("HELLO 3 AUTH default x", "QUEUED"),
            ("EXEC", "HELLO with AUTH is not allowed inside a transaction; next: HELLO before MULTI"),
        ] {
            let said = format!("{:?}", both[1].ask(line));
            assert!(said.contains(part), "{line}: {said}");
        }
    });
}

#[test]
fn help_names_what_that_of_redis_does() {
    with_both(|both| {
        let names =
            ["ACL", "CLIENT", "COMMAND", "CONFIG", "SLOWLOG", "LATENCY", "MEMORY", "OBJECT", "PUBSUB", "SCRIPT"];
        for name in names.into_iter().chain(["FUNCTION", "XGROUP", "XINFO"]) {
            let [theirs, ours] = both.each_mut().map(|client| {
                let Value::Many('*', lines) = client.ask(&format!("{name} HELP")) else { panic!("{name}") };
                let shown = |line: Value| match line {
                    Value::Line('+', text) if !text.starts_with("   ") => Some(text),
                    Value::Line('+', _) => None,
                    other => panic!("{other:?}"),
                };
                lines.into_iter().filter_map(shown).collect::<BTreeSet<String>>()
            });
            let missing: Vec<_> = theirs.difference(&ours).collect();
            assert!(missing.is_empty(), "{name}: {missing:?}");
        }
    });
}

/// Commands with second names: of Redis each of these is in categories, and the command itself in `slow` alone. Here the command is in those of most of its parts.
const WITH_PARTS: [&str; 13] = [
    "acl", "client", "command", "config", "function", "latency", "memory", "object", "pubsub", "script", "slowlog",
    "xgroup", "xinfo",
];

#[test]
fn categories_are_those_of_redis() {
    with_both(|both| {
        let names = |value: Value| {
            let Value::Many(_, names) = value else { panic!("{value:?}") };
            let name = |name: Value| match name {
                Value::Bulk(name) => String::from_utf8(name).unwrap(),
                Value::Line('+', name) => name,
                other => panic!("{other:?}"),
            };
            names.into_iter().map(name).collect::<Vec<String>>()
        };
        let known: BTreeSet<String> = names(both[1].ask("COMMAND LIST")).into_iter().collect();
        let only_here: BTreeSet<String> = {
            let theirs: BTreeSet<String> = names(both[0].ask("COMMAND LIST")).into_iter().collect();
            known.difference(&theirs).cloned().collect()
        };
        let categories = names(both[0].ask("ACL CAT"));
        let mut all: [BTreeMap<String, BTreeSet<String>>; 2] = Default::default();
        for category in &categories {
            for (client, of) in both.iter_mut().zip(&mut all) {
                for name in names(client.ask(&format!("ACL CAT {category}"))) {
                    of.entry(name).or_default().insert(format!("@{category}"));
                }
            }
        }
        let [theirs, ours] = &all;
        for (name, of) in ours.iter().filter(|(name, _)| !only_here.contains(*name)) {
            let parts: BTreeSet<String> = theirs
                .iter()
                .filter(|(other, _)| other.starts_with(&format!("{name}|")))
                .flat_map(|(_, of)| of.clone())
                .collect();
            assert_eq!(WITH_PARTS.contains(&&name[..]), !parts.is_empty(), "{name}");
            if parts.is_empty() {
                assert_eq!(Some(of), theirs.get(name), "{name}");
            } else {
                assert!(of.is_subset(&parts), "{name}: {of:?}, and of its parts {parts:?}");
            }
            // Each once; and the same as `COMMAND INFO` says, which of commands with second names says what Redis does.
            let Value::Many(_, mut info) = both[1].ask(&format!("COMMAND INFO {name}")) else { panic!("{name}") };
            let Value::Many(_, mut fields) = info.remove(0) else { panic!("{name}") };
            let told = names(fields.remove(6));
            let wanted = if parts.is_empty() { of } else { theirs.get(name).unwrap_or(of) };
            assert_eq!(
                (told.len(), told.into_iter().collect::<BTreeSet<_>>()),
                (wanted.len(), wanted.clone()),
                "{name}"
            );
        }
        // A right to read is none to run scripts.
        let lines = ["ACL SETUSER r on nopass ~* +@read", "ACL DRYRUN r EVAL_RO x 0", "ACL DRYRUN r FCALL_RO x 0"];
        for line in lines.into_iter().chain(["ACL DRYRUN r EVALSHA_RO x 0", "ACL DRYRUN r GET a"]) {
            let [theirs, ours] = both.each_mut().map(|client| client.ask(line));
            assert_eq!(ours, theirs, "{line}");
        }
    });
}

/// Requests that wait.
const WAITING: [&str; 9] = [
    "BLPOP l 0",
    "BRPOP l m 0",
    "BLMOVE l m LEFT LEFT 0",
    "BRPOPLPUSH l m 0",
    "BLMPOP 0 2 l m LEFT",
    "BZPOPMIN z 0",
    "BZMPOP 0 1 z MAX",
    "XREAD BLOCK 0 STREAMS x $",
    "XREADGROUP GROUP g c BLOCK 0 STREAMS x >",
];

#[test]
fn clients_that_wait_are_unblocked() {
    with_sockets_of(|sockets| {
        let mut both = sockets.map(|at| [Client::new(at, 2), Client::new(at, 2)]);
        both.iter_mut().for_each(|[asks, _]| drop(asks.ask("XGROUP CREATE x g 0 MKSTREAM")));
        for (version, line) in [2, 3].into_iter().flat_map(|version| WAITING.map(|line| (version, line))) {
            for how in ["", " TIMEOUT", " error"] {
                let said = both.each_mut().map(|[asks, waits]| {
                    waits.ask(&format!("HELLO {version}"));
                    let Value::Line(':', id) = waits.ask("CLIENT ID") else { panic!("no id") };
                    waits.send(&request(line));
                    let unblock = format!("CLIENT UNBLOCK {id}{how}");
                    let one = Value::Line(':', "1".to_owned());
                    crate::support::until("it waits", || asks.ask(&unblock) == one);
                    let answer = waits.receive();
                    // It is not told again, takes nothing that comes, and serves its client as before.
                    let again = asks.ask(&unblock);
                    asks.ask("RPUSH l a");
                    asks.ask("ZADD z 1 a");
                    let rest = ["LLEN l", "ZCARD z", "XLEN x", "PING"].map(|line| waits.ask(line));
                    asks.ask("DEL l m z");
                    (answer, again, rest)
                });
                assert_eq!(said[1], said[0], "{line}{how}, version {version}");
            }
        }
    });
}

/// What a client that is not told of its own changes, `NOLOOP`, reads in the transaction that changes it; and what changes that later is told.
const OWN: &[&str] = &[
    "PFADD k a|PFCOUNT k",
    "SET k 1 & GET k",
    "SET k 1 & PING & GET k",
    "MULTI & SET k 1 & GET k & EXEC",
    "SET k 1 & SET j 1 & MGET j k",
    "INCR k & MGET k j",
    "EVAL redis.call('SET',KEYS[1],'5')return(redis.call('GET',KEYS[1])) 1 k",
    "EVAL redis.call('SET',KEYS[1],'5') 1 k & GET k",
    "SET k 1|GET k",
    "GET k|SET k 1",
];

#[test]
fn what_is_read_with_an_own_change_is_told_when_it_changes() {
    with_sockets_of(|sockets| {
        // By a script Redis tells even these of their own changes.
        let wide = OWN.iter().filter(|line| !line.contains("EVAL")).map(|own| ("ON NOLOOP BCAST", own));
        for (mode, line) in OWN.iter().map(|own| ("ON NOLOOP", own)).chain(wide) {
            let told = sockets.map(|at| {
                let (mut tracks, mut other) = (Client::new(at, 3), Client::new(at, 2));
                other.ask("FLUSHALL");
                tracks.ask(&format!("CLIENT TRACKING {mode}"));
                for batch in line.split('|') {
                    let requests: Vec<Vec<Vec<u8>>> = batch.split(" & ").map(request).collect();
                    let bytes: Vec<u8> = requests.iter().flat_map(|request| encoded(request)).collect();
                    tracks.0.get_mut().write_all(&bytes).unwrap();
                    requests.iter().for_each(|_| drop(tracks.receive()));
                }
                let own = super::tracking::pushed(&mut tracks);
                other.ask("SET k other");
                (own, super::tracking::pushed(&mut tracks))
            });
            assert_eq!(told[1], told[0], "{mode}: {line}");
        }
    });
}

/// Keys that go with their database, and are made again in the same transaction.
const FLUSHED: &[&str] = &[
    "MULTI|SET l 2 EX 1000|FLUSHALL|SET l s|EXEC",
    "MULTI|SET l 2 EX 1000|FLUSHDB|RPUSH l s|EXPIRE l 500|EXEC",
    "SET l 1 EX 1000|MULTI|FLUSHALL|SET l s|FLUSHDB|SET l t EX 50|EXEC",
    "EVAL redis.call('SET','l','2','EX',1000)redis.call('FLUSHALL')redis.call('SET','l','s') 0",
    "MULTI|SELECT 1|SET l 2 EX 1000|SELECT 0|FLUSHDB|SELECT 1|SET l s|SELECT 0|EXEC",
    "SET l 2 EX 1000|FLUSHALL|SET l s",
];

#[test]
fn keys_that_go_with_their_database_do_not_expire() {
    with_sockets_of(|sockets| {
        let mut both = sockets.map(|at| [Client::new(at, 3), Client::new(at, 2)]);
        for [hears, asks] in &mut both {
            asks.ask("CONFIG SET notify-keyspace-events KEA");
            asks.ask("FLUSHALL");
            hears.ask("PSUBSCRIBE __key*");
        }
        for line in FLUSHED {
            let told = both.each_mut().map(|[hears, asks]| {
                line.split('|').for_each(|line| drop(asks.ask(line)));
                asks.ask("PUBLISH __key-the-end x");
                let mut all = Vec::new();
                loop {
                    match hears.receive() {
                        Value::Many('>', parts) if parts[2] == Value::Bulk(b"__key-the-end".to_vec()) => break all,
                        told => all.push(told),
                    }
                }
            });
            assert_eq!(told[1], told[0], "{line}");
        }
    });
}
