//! How values would be kept: what `OBJECT` says of those that are set at once.

use super::*;

#[test]
fn objects_are_encoded_as_redis_would() {
    let many =
        |count: usize, each: &str| (0..count).map(|n| each.replace('#', &n.to_string())).collect::<Vec<_>>().join(" ");
    let (short, long) = ("e".repeat(64), "e".repeat(65));
    let mut sets = vec!["XADD k * a b".to_owned(), "RPUSH k a".to_owned(), format!("RPUSH k {}", many(1000, "#"))];
    for value in ["1", "-1", "01", "-0", "+1", "9223372036854775807", "9223372036854775808", "1.5"] {
        sets.push(format!("SET k {value}"));
    }
    sets.extend([44, 45].map(|len| format!("SET k {}", "s".repeat(len))));
    for count in [1, 128, 129, 512, 513] {
        sets.extend([format!("HSET k {}", many(count, "# v")), format!("ZADD k {}", many(count, "# #"))]);
    }
    for name in [&short, &long] {
        sets.extend([format!("HSET k {name} v"), format!("HSET k f {name}"), format!("ZADD k 1 {name}")]);
    }
    sets.extend([512, 513].map(|count| format!("SADD k {}", many(count, "#"))));
    sets.extend(["SADD k 1 a".to_owned(), "SADD k -5 07".to_owned()]);
    with_both(|both| {
        for set in sets {
            for line in [
                &set[..],
                "OBJECT ENCODING k",
                "OBJECT ENCODING",
                "OBJECT x k",
                "OBJECT FREQ k",
                "OBJECT HELP",
                "DEL k",
                "OBJECT ENCODING k",
            ] {
                let [theirs, ours] = both.each_mut().map(|client| client.ask(line));
                assert!(theirs == ours || line.starts_with("XADD"), "{set}: {line}: {theirs:?}, here {ours:?}");
            }
        }
    });
}

/// What `RESTORE` says of how a key was used is what the policies of eviction go by.
#[test]
fn restored_keys_were_used_as_is_said() {
    with_both(|both| {
        for client in both {
            client.ask("SET k v");
            let Value::Bulk(payload) = client.ask("DUMP k") else { panic!("no payload") };
            let number = |value: Value| match value {
                Value::Line(':', text) => text.parse::<i64>().unwrap(),
                other => panic!("{other:?}"),
            };
            for (policy, more, told, expected) in [
                ("allkeys-lru", "IDLETIME 100000", "OBJECT IDLETIME k", 100_000..100_060),
                ("allkeys-lru", "FREQ 7", "OBJECT IDLETIME k", 0..60),
                ("allkeys-lfu", "FREQ 77", "OBJECT FREQ k", 76..78),
            ] {
                client.send(&request(&format!("CONFIG SET maxmemory-policy {policy}")));
                assert_eq!(client.receive(), Value::Line('+', "OK".to_owned()));
                client.send(
                    &[request("RESTORE k 0"), vec![payload.clone()], request(&format!("REPLACE {more}"))].concat(),
                );
                assert_eq!(client.receive(), Value::Line('+', "OK".to_owned()));
                let found = number(client.ask(told));
                assert!(expected.contains(&found), "{policy} {more}: {found}");
            }
        }
    });
}
