//! What `COMMAND`, `MEMORY` and `DEBUG` say of other commands and of keys.

use super::*;

/// Full requests, to be asked about.
const REQUESTS: &[&str] = &[
    "get a",
    "set a b",
    "set a b get",
    "set a b x",
    "set a",
    "SET a b c d e f",
    "setnx a b",
    "mset a 1 b 2",
    "msetnx a 1",
    "getex a ex 1",
    "getdel a",
    "append a b",
    "incr a",
    "strlen a",
    "lcs a b",
    "setrange a 1 b",
    "bitop and a b c",
    "bitop not a b",
    "bitcount a",
    "pfadd a b",
    "pfcount a b",
    "pfmerge a b",
    "bitfield a get u8 0",
    "bitfield a set u8 0 1",
    "bitfield a get u8 0 overflow sat",
    "bitfield a x",
    "bitfield_ro a get u8 0",
    "del a b",
    "unlink a",
    "exists a b",
    "touch a",
    "type a",
    "expire a 1",
    "persist a",
    "ttl a",
    "rename a b",
    "renamenx a b",
    "copy a b",
    "move a 1",
    "dump a",
    "restore a 0 b",
    "object freq a",
    "object encoding a",
    "object help",
    "memory usage a",
    "memory stats",
    "sort a",
    "sort a store b",
    "sort a get x by y store b store c",
    "sort_ro a by b",
    "hset a b c",
    "hget a b",
    "hdel a b",
    "hlen a",
    "hincrby a b 1",
    "hsetnx a b c",
    "hmset a b c",
    "lpush a b",
    "lpop a",
    "lrange a 0 1",
    "llen a",
    "lset a 0 b",
    "lrem a 0 b",
    "lmove a b left left",
    "rpoplpush a b",
    "lmpop 1 a left",
    "blpop a b 0",
    "blmove a b left left 0",
    "blmpop 1 2 a b left",
    "bzpopmin a b 0",
    "sadd a b",
    "srem a b",
    "spop a",
    "smove a b c",
    "sinter a b",
    "sinterstore a b c",
    "sunionstore a b c",
    "sdiffstore a b c",
    "sintercard 1 a",
    "scard a",
    "zadd a 1 b",
    "zrem a b",
    "zincrby a 1 b",
    "zpopmin a",
    "zcard a",
    "zscore a b",
    "zrangestore a b 0 1",
    "zunionstore a 2 b c",
    "zinter 2 a b",
    "zmpop 1 a min",
    "geoadd a 1 1 b",
    "geosearchstore a b fromlonlat 1 1 byradius 1 km",
    "georadius a 1 1 1 km",
    "georadius a 1 1 1 km store b",
    "georadius_ro a 1 1 1 km",
    "xadd a * b c",
    "xread streams a b 0 0",
    "xreadgroup group g c streams a >",
    "xack a b 1-1",
    "xdel a 1-1",
    "xtrim a maxlen 1",
    "xlen a",
    "xclaim a b c 0 1-1",
    "xautoclaim a b c 0 0",
    "xsetid a 1-1",
    "xinfo stream a",
    "xinfo groups a",
    "xinfo consumers a b",
    "xinfo help",
    "xgroup create a g 0",
    "xgroup destroy a g",
    "xgroup setid a b 0",
    "xgroup createconsumer a b c",
    "xgroup delconsumer a b c",
    "xgroup help",
    "eval x 1 a",
    "evalsha x 2 a b",
    "eval_ro x 1 a",
    "fcall f 1 a",
    "fcall_ro f 1 a",
    "eval x 0",
    "watch a b",
    "swapdb 0 1",
    "publish a b",
    "config get a",
    "randomkey x",
    "nosuch a",
    "get",
    "ping",
];

#[test]
fn keys_of_requests_are_used_as_redis_says() {
    with_both(|both| {
        for version in ["2", "3"] {
            both.iter_mut().for_each(|client| drop(client.ask(&format!("HELLO {version}"))));
            for request in REQUESTS {
                for word in ["GETKEYS", "GETKEYSANDFLAGS"] {
                    let line = format!("COMMAND {word} {request}");
                    let [theirs, ours] = both.each_mut().map(|client| client.ask(&line));
                    assert_eq!(ours, theirs, "{line}");
                }
            }
        }
    });
}

#[test]
fn commands_are_listed_as_redis_does() {
    let names = |value: &Value| {
        let Value::Many(kind, names) = value else { panic!("{value:?}") };
        (*kind, names.iter().cloned().collect::<BTreeSet<_>>())
    };
    with_both(|both| {
        let Value::Many(_, known) = both[1].ask("COMMAND LIST") else { panic!("no list") };
        let known: BTreeSet<_> = known.into_iter().collect();
        for version in ["2", "3"] {
            both.iter_mut().for_each(|client| drop(client.ask(&format!("HELLO {version}"))));
            for filter in [
                "PATTERN zr*",
                "PATTERN ZR*",
                "pattern x*",
                "PATTERN *|help",
                "PATTERN",
                "PATTERN [",
                "MODULE x",
                "ACLCAT bitmap",
                "ACLCAT HyperLogLog",
                "aclcat geo",
                "ACLCAT hash",
                "ACLCAT nosuch",
                "ACLCAT all",
                "NOSUCH x",
                "PATTERN a b",
                "PATTERN xread*",
            ] {
                let line = format!("COMMAND LIST FILTERBY {filter}");
                let [theirs, ours] = both.each_mut().map(|client| client.ask(&line));
                let Value::Many(kind, _) = theirs else {
                    assert_eq!(ours, theirs, "{line}");
                    continue;
                };
                let (theirs, ours) = (names(&theirs), names(&ours));
                let common: BTreeSet<_> = theirs.1.intersection(&known).cloned().collect();
                assert_eq!((kind, &ours.1), (ours.0, &common), "{line}");
            }
        }
    });
}

/// Nothing of `DEBUG` is there, and Redis' own does not let anybody in unless it is configured to.
#[test]
fn what_looks_into_the_server_is_refused_or_answered_as_by_redis() {
    with_both(|both| {
        for line in [
            "DEBUG SLEEP 0",
            "DEBUG",
            "DEBUG OBJECT a",
            "MULTI",
            "DEBUG JMAP",
            "EXEC",
            "EVAL return{redis.pcall('DEBUG','SLEEP','0').err} 0",
            "MEMORY",
            "MEMORY x",
            "MEMORY USAGE",
            "MEMORY USAGE none",
            "MEMORY USAGE none SAMPLES 5",
            "MEMORY USAGE none SAMPLES",
            "MEMORY USAGE none SAMPLES x",
            "MEMORY USAGE none SAMPLES -1",
            "MEMORY USAGE none x",
            "MEMORY USAGE none SAMPLES 1 SAMPLES 0",
            "MEMORY STATS x",
            "MEMORY PURGE",
            "MEMORY PURGE x",
            "MEMORY HELP",
            "MEMORY DOCTOR x",
            "SWAPDB",
            "SWAPDB 0 x",
            "COMMAND GETKEYSANDFLAGS",
            "COMMAND LIST FILTERBY",
            "COMMAND LIST x",
        ] {
            let [theirs, ours] = both.each_mut().map(|client| client.ask(line));
            assert_eq!(ours, theirs, "{line}");
        }
    });
}

/// Texts for people, which are this server's own.
const OWN_WORDS: [&[u8]; 4] = [b"summary", b"complexity", b"history", b"notes"];
/// These take an option that Redis 7.0 has not.
const LONGER: [&str; 2] = ["zrank", "zrevrank"];

/// What is told of commands, without texts for people and second names that are not `known`, and in one order where none is meant.
fn facts(value: &Value, known: &BTreeSet<Value>) -> Value {
    let is_known = |name: &Value| match name {
        Value::Bulk(text) => !text.contains(&b'|') || known.contains(name),
        _ => true,
    };
    match value {
        Value::Many('%', items) => {
            let pairs = items.chunks(2).filter(|pair| {
                let is_text = matches!(&pair[0], Value::Bulk(name) if OWN_WORDS.contains(&name.as_slice()));
                !is_text && is_known(&pair[0])
            });
            let mut pairs: Vec<Vec<Value>> = pairs.map(|pair| vec![pair[0].clone(), facts(&pair[1], known)]).collect();
            pairs.sort();
            Value::Many('%', pairs.concat())
        }
        Value::Many(kind, items) => {
            let first = |item: &Value| if let Value::Many(_, fields) = item { fields.first().cloned() } else { None };
            let is_named = |item: &Value| matches!(first(item), Some(Value::Bulk(name)) if name.contains(&b'|'));
            let no_order = *kind == '~' || items.iter().any(is_named);
            let items = items.iter().filter(|item| first(item).is_none_or(|name| is_known(&name)));
            let mut items: Vec<Value> = items.map(|item| facts(item, known)).collect();
            if no_order {
                items.sort();
            }
            Value::Many(*kind, items)
        }
        other => other.clone(),
    }
}

#[test]
fn commands_are_described_as_redis_does() {
    with_both(|both| {
        let lists = both.each_mut().map(|client| {
            client.ask("HELLO 3");
            let Value::Many(_, names) = client.ask("COMMAND LIST") else { panic!("no list") };
            names.into_iter().collect::<BTreeSet<Value>>()
        });
        let known: BTreeSet<Value> = lists[0].intersection(&lists[1]).cloned().collect();
        assert!(known.len() > 280, "{}", known.len());
        for name in &known {
            let Value::Bulk(name) = name else { panic!("{name:?}") };
            let name = String::from_utf8(name.clone()).unwrap();
            for line in [format!("COMMAND DOCS {name}"), format!("COMMAND INFO {}", name.to_uppercase())] {
                let answers = both.each_mut().map(|client| client.ask(&line));
                let [theirs, mut ours] = answers.map(|answer| facts(&answer, &known));
                if LONGER.contains(&&*name)
                    && let Value::Many(_, all) = &mut ours
                    && let Some(Value::Many(_, fields)) = all.first_mut()
                    && let Some(arity) = fields.get_mut(1)
                {
                    *arity = Value::Line(':', "3".to_owned());
                }
                assert_eq!(ours, theirs, "{line}");
            }
        }
        // All at once, names that are not there, and with version 2.
        let count = |value: &Value| if let Value::Many(_, all) = value { all.len() } else { 0 };
        let all = both.each_mut().map(|client| count(&client.ask("COMMAND DOCS")));
        assert!(all[1] > 440 && all[0] >= all[1], "{all:?}");
        for version in ["HELLO 3", "HELLO 2"] {
            for line in [
                version,
                "COMMAND DOCS nosuch get|set",
                "COMMAND INFO nosuch get|set config|nosuch |",
                "COMMAND INFO append",
                "COMMAND INFO get",
                "COMMAND INFO config|get config|get",
            ] {
                let [theirs, ours] = both.each_mut().map(|client| client.ask(line));
                if !line.starts_with("HELLO") {
                    assert_eq!(ours, theirs, "{line}");
                }
            }
        }
        let [theirs, ours] = both.each_mut().map(|client| count(&client.ask("COMMAND DOCS get nosuch get")));
        assert_eq!(ours, theirs);
    });
}

#[test]
fn keys_that_expire_are_counted() {
    with_both(|both| {
        for line in ["SET a 1", "SET b 1 EX 1000", "HSET c f v", "PEXPIRE c 3000000", "SELECT 3", "SETEX d 2000 1"] {
            both.iter_mut().for_each(|client| drop(client.ask(line)));
        }
        let [theirs, ours] = both.each_mut().map(|client| {
            let Value::Bulk(text) = client.ask("INFO keyspace") else { panic!("no text") };
            let text = String::from_utf8(text).unwrap();
            let lines = text.lines().filter_map(|line| line.rsplit_once(",avg_ttl="));
            lines.map(|(counts, ttl)| (counts.to_owned(), ttl.parse::<u64>().unwrap())).collect::<Vec<_>>()
        });
        let counts = |all: &[(String, u64)]| all.iter().map(|(counts, _)| counts.clone()).collect::<Vec<_>>();
        assert_eq!(counts(&ours), counts(&theirs));
        // Redis guesses it from some keys, later.
        assert!(matches!(ours[..], [(_, 1_900_000..=2_000_000), (_, 1_900_000..=2_000_000)]), "{ours:?}");
    });
}
