//! Collections larger than what is copied at once, and what a real Redis has no limit for.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use server::{Config, Server};

use crate::support::Store;

struct Running {
    server: Option<Server>,
    stream: BufReader<UnixStream>,
    /// Of the store.
    key_max: usize,
    _dir: tempfile::TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
            let _ = server.join();
        }
    }
}

impl Running {
    fn new(store: Store) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("it.sock");
        let config = Config { redis: Vec::new(), unix: Some(socket.clone()), threads: 1, ..Config::default() };
        let engine = store.open(dir.path().join("data.cairn"), pmem::Options::new());
        let key_max = engine.key_max();
        let server = Server::start(config, engine).unwrap();
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
        Self { server: Some(server), stream: BufReader::new(stream), key_max, _dir: dir }
    }

    /// All that is in the reply, one after another.
    fn ask(&mut self, words: &[&str]) -> Vec<String> {
        let mut bytes = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| bytes += &format!("${}\r\n{word}\r\n", word.len()));
        self.stream.get_mut().write_all(bytes.as_bytes()).unwrap();
        let mut found = Vec::new();
        self.receive(&mut found);
        found
    }

    fn line(&mut self, text: &str) -> Vec<String> {
        self.ask(&text.split(' ').collect::<Vec<_>>())
    }

    fn receive(&mut self, found: &mut Vec<String>) {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        let text = line.trim_end();
        match (&text[..1], text[1..].parse::<usize>()) {
            ("*", Ok(len)) => (0..len).for_each(|_| self.receive(found)),
            ("$", Ok(len)) => {
                let mut bytes = vec![0; len + 2];
                self.stream.read_exact(&mut bytes).unwrap();
                bytes.truncate(len);
                found.push(String::from_utf8(bytes).unwrap());
            }
            _ => found.push(text.to_owned()),
        }
    }

    fn fill(&mut self, command: &str, key: &str, count: usize, pair: bool) {
        let names: Vec<String> = (0..count).map(|n| format!("m{n}")).collect();
        let scores: Vec<String> = (0..count).map(|n| n.to_string()).collect();
        let mut words = vec![command, key];
        for (name, score) in names.iter().zip(&scores) {
            words.extend(pair.then_some(score.as_str()));
            words.push(name);
        }
        assert_eq!(self.ask(&words), [format!(":{count}")]);
    }
}

/// Each test runs on each engine.
fn each(test: impl Fn(&mut Running)) {
    for store in Store::ALL {
        eprintln!("{store:?}");
        test(&mut Running::new(store));
    }
}

#[test]
fn names_that_the_store_has_no_room_for_are_refused() {
    each(|c| {
        let long = "x".repeat(c.key_max);
        let refused = ["-ERR field or member is too long"];
        for words in
            [&["HSET", "h", "a", "1", &long, "1"][..], &["HSETNX", "h", &long, "1"], &["HINCRBY", "h", &long, "1"]]
        {
            assert_eq!(c.ask(words), refused);
        }
        assert_eq!(c.ask(&["SADD", "s", "a", &long]), refused);
        assert_eq!(c.ask(&["ZADD", "z", "1", "a", "1", &long]), refused);
        assert_eq!(c.line("EXISTS h s z"), [":0"]);
        assert_eq!(c.line("SADD s a"), [":1"]);
        assert_eq!(c.ask(&["SISMEMBER", "s", &long]), [":0"]);
        assert_eq!(c.ask(&["SREM", "s", &long]), [":0"]);
        assert_eq!(c.ask(&["SMOVE", "s", "t", &long]), [":0"]);
        // What fits, fits everywhere.
        let longest = "x".repeat(c.key_max - 18);
        assert_eq!(c.ask(&["SADD", "s", &longest]), [":1"]);
        assert_eq!(c.line("ZUNIONSTORE z 1 s"), [":2"]);
        assert_eq!(c.ask(&["ZSCORE", "z", &longest]), ["1"]);
    });
}

#[test]
fn each_element_is_drawn_about_as_often() {
    each(|c| {
        c.fill("SADD", "small", 10, false);
        let mut drawn = BTreeMap::new();
        for member in c.line("SRANDMEMBER small -10000") {
            *drawn.entry(member).or_insert(0) += 1;
        }
        assert!(drawn.len() == 10 && drawn.values().all(|count| (800..1200).contains(count)), "{drawn:?}");

        c.fill("SADD", "large", 3000, false);
        let mut drawn = BTreeMap::new();
        for _ in 0..9000 {
            *drawn.entry(c.line("SRANDMEMBER large").concat()).or_insert(0) += 1;
        }
        // Of 3000, each drawn three times on average, one in twenty is left out by chance.
        assert!(drawn.len() > 2600 && drawn.values().all(|count| *count < 20), "{}", drawn.len());
    });
}

#[test]
fn what_is_drawn_together_differs_and_what_is_popped_is_gone() {
    each(|c| {
        c.fill("SADD", "s", 3000, false);
        c.fill("ZADD", "z", 3000, true);
        let different = |members: Vec<String>| members.into_iter().collect::<BTreeSet<_>>();
        for count in [1, 5, 100, 700, 800, 2999, 3000, 4000] {
            assert_eq!(different(c.line(&format!("SRANDMEMBER s {count}"))).len(), count.min(3000));
            assert_eq!(different(c.line(&format!("ZRANDMEMBER z {count}"))).len(), count.min(3000));
        }
        let mut left: BTreeSet<String> = different(c.line("SMEMBERS s"));
        for count in [5, 500, 2000, 1000] {
            for member in c.line(&format!("SPOP s {count}")) {
                assert!(left.remove(&member));
            }
            assert_eq!(c.line("SCARD s"), [format!(":{}", left.len())]);
            assert_eq!(different(c.line("SMEMBERS s")), left);
        }
        assert_eq!(c.line("EXISTS s"), [":0"]);
    });
}

#[test]
fn a_scan_finds_all_that_stays() {
    each(|c| {
        c.fill("SADD", "s", 2000, false);
        let (mut found, mut cursor, mut round) = (BTreeSet::new(), "0".to_owned(), 0);
        loop {
            let mut reply = c.line(&format!("SSCAN s {cursor} COUNT 7"));
            cursor = reply.remove(0);
            assert!(reply.len() >= 7 || cursor == "0");
            for member in reply {
                assert!(found.insert(member.clone()), "{member} came twice");
            }
            if cursor == "0" {
                break;
            }
            // Others come and go meanwhile.
            round += 1;
            c.line(&format!("SADD s other{round}"));
            c.line(&format!("SREM s other{} m{}", round / 2, round + 1000));
        }
        assert!((0..1000).all(|n| found.contains(&format!("m{n}"))));
    });
}

#[test]
fn large_collections_are_read_from_the_nearer_end_copied_and_removed() {
    each(|c| {
        c.fill("ZADD", "z", 2000, true);
        c.fill("RPUSH", "l", 2000, false);
        let names = |range: std::ops::Range<usize>| range.map(|n| format!("m{n}")).collect::<Vec<_>>();
        assert_eq!(c.line("ZRANGE z 1990 1994"), names(1990..1995));
        assert_eq!(c.line("ZRANGE z 1 3"), names(1..4));
        assert_eq!(c.line("ZRANGE z 1 3 REV"), ["m1998", "m1997", "m1996"]);
        assert_eq!(c.line("ZRANGE z -3 -2 REV"), ["m2", "m1"]);
        assert_eq!(c.line("ZRANGE z (5 (1000 BYSCORE LIMIT 3 2"), names(9..11));
        assert_eq!(c.line("COPY z y"), [":1"]);
        assert_eq!(c.line("ZREMRANGEBYRANK z 0 -1"), [":2000"]);
        assert_eq!(c.line("ZCARD y"), [":2000"]);
        assert_eq!(c.line("ZINTERSTORE y 2 y y WEIGHTS 1 0"), [":2000"]);
        assert_eq!(c.line("ZSCORE y m17"), ["17"]);
        for (command, expected) in
            [("LREM l 0 m5", ":1"), ("LREM l 0 m1995", ":1"), ("LINSERT l BEFORE m6 m5", ":1999")]
        {
            assert_eq!(c.line(command), [expected]);
        }
        assert_eq!(c.line("LINSERT l AFTER m1994 m1995"), [":2000"]);
        assert_eq!(c.line("LRANGE l 0 -1"), names(0..2000));
        assert_eq!(c.line("LTRIM l 100 199"), ["+OK"]);
        assert_eq!(c.line("LRANGE l 0 -1"), names(100..200));
    });
}
