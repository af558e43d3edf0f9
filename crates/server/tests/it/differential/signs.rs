//! The sign of a zero: Redis keeps it once a sorted set has left its first form, of up to 128 members of up to 64 bytes.

use super::*;

#[test]
fn a_zero_has_its_sign_where_redis_keeps_it() {
    let long = "m".repeat(65);
    let numbered = |count: usize| (0..count).map(|n| format!("-0 m{n:03}")).collect::<Vec<_>>().join(" ");
    let mut lines = vec![
        // Small: it is lost, but for what an increment answers.
        "ZADD s -0 a 0 b".to_owned(),
        "ZADD s INCR -0 c".to_owned(),
        "ZINCRBY s -0 a".to_owned(),
        "ZRANGE s 0 -1 WITHSCORES".to_owned(),
        // From a long member on it stays, also when that is gone; another zero is no change.
        format!("ZADD l -0 a 1 {long} -0 b 0 c"),
        "ZADD l CH 0 b -0 c".to_owned(),
        "ZRANGE l 0 -1 WITHSCORES".to_owned(),
        format!("ZREM l {long}"),
        "ZADD l -0 d".to_owned(),
        "ZINCRBY l -0 d".to_owned(),
        "ZINCRBY l 0 b".to_owned(),
        "ZADD l 5 c".to_owned(),
        "ZADD l -0 c".to_owned(),
        "ZADD l GT 0 d".to_owned(),
        // From the 129th on.
        format!("ZADD n {}", numbered(130)),
        "ZREMRANGEBYRANK n 3 126".to_owned(),
        "ZADD n -0 more".to_owned(),
    ];
    let reads = |key: &str| {
        [
            format!("ZRANGE {key} 0 -1 WITHSCORES"),
            format!("ZRANGEBYSCORE {key} (-1 0 WITHSCORES"),
            format!("ZRANGEBYSCORE {key} -0 (0 WITHSCORES"),
            format!("ZMSCORE {key} a b c d m000 m127 m128 m129 more"),
            format!("ZSCORE {key} d"),
            format!("ZRANK {key} d"),
            format!("ZUNION 1 {key} WITHSCORES"),
            format!("ZUNION 1 {key} WEIGHTS -1 WITHSCORES"),
            format!("ZUNION 2 {key} {key} AGGREGATE MIN WITHSCORES"),
            format!("ZINTER 2 {key} {key} AGGREGATE MAX WITHSCORES"),
        ]
    };
    for key in ["s", "l", "n"] {
        lines.extend(reads(key));
        for store in [
            "ZRANGESTORE to {} 0 -1",
            "ZRANGESTORE to {} -inf inf BYSCORE",
            "ZUNIONSTORE to 1 {}",
            "COPY {} to REPLACE",
        ] {
            lines.push(store.replace("{}", key));
            lines.extend(reads("to"));
        }
        lines
            .extend([format!("ZADD {key} {}", numbered(300).replace('m', "o")), format!("ZADD {key} XX INCR -0 o200")]);
        lines.push(format!("ZSCORE {key} o000"));
        for store in ["ZRANGESTORE to {} 0 -1", "ZRANGESTORE to {} -inf inf BYSCORE", "ZDIFFSTORE to 1 {}"] {
            lines.push(store.replace("{}", key));
            lines.extend(reads("to"));
        }
        lines.extend([
            format!("ZPOPMIN {key} 3"),
            format!("ZPOPMAX {key} 3"),
            format!("RENAME {key} to"),
            format!("ZADD {key} -0 x"),
        ]);
        lines.extend(reads("to"));
    }
    with_both(|both| {
        for line in &lines {
            let [theirs, ours] = both.each_mut().map(|client| client.ask(line));
            assert_eq!(theirs, ours, "{line}");
        }
        // Large ones as values, in both directions.
        let payloads = both.each_mut().map(|client| client.ask("DUMP to"));
        for client in &mut *both {
            for payload in &payloads {
                let Value::Bulk(payload) = payload else { panic!("no payload") };
                client.send(&[request("RESTORE back 0"), vec![payload.clone()], request("REPLACE")].concat());
                assert_eq!(client.receive(), Value::Line('+', "OK".to_owned()));
                let all = ["to", "back"].map(|key| client.ask(&format!("ZRANGE {key} 0 -1 WITHSCORES")));
                assert_eq!(all[0], all[1]);
            }
        }
        let [theirs, ours] = both.each_mut().map(|client| client.ask("ZRANGE back 0 -1 WITHSCORES"));
        assert_eq!(theirs, ours);
    });
}

/// Sums of three depend on their order, which is that of the sets' sizes.
#[test]
fn sets_are_added_from_the_smallest_on() {
    with_both(|both| {
        for line in [
            "ZADD a 0.1 x 9 y 9 z",
            "ZADD b 0.2 x",
            "ZADD c 0.3 x 9 u",
            "ZUNIONSTORE d 3 a b c",
            "ZADD e 0.6 x",
            "ZUNION 2 d e WEIGHTS 1 -1 WITHSCORES",
        ] {
            let [theirs, ours] = both.each_mut().map(|client| client.ask(line));
            assert_eq!(numbers(theirs), numbers(ours), "{line}");
        }
    });
}
