//! memcached's protocols: the same bytes to memcached itself and to us, and a client that others wrote.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kv::Options;
use pmem::DomainChoice;
use server::engine::Kv;
use server::{Chunks, Config, Server, Settings};

/// What others must do in.
const WAIT_LIMIT: Duration = Duration::from_secs(20);

struct Ours {
    server: Option<Server>,
    dir: tempfile::TempDir,
}

fn config() -> Config {
    Config {
        redis: vec!["127.0.0.1:0".parse().unwrap()],
        memcached: vec!["127.0.0.1:0".parse().unwrap()],
        threads: 2,
        // Most items lie in chunks.
        settings: Settings { chunks: Chunks { whole: 4, chunk: 16 }, ..Settings::default() },
        ..Config::default()
    }
}

impl Ours {
    fn start(domain: DomainChoice) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pool = pmem::Options::new().domain(domain);
        let store = Options::new().pool(pool).create(dir.path().join("store")).unwrap();
        Self { server: Some(Server::start(config(), Box::new(Kv::new(store))).unwrap()), dir }
    }

    fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    fn connect(&self) -> Peer {
        Peer::connect(self.server().memcached()[0])
    }

    fn redis(&self) -> Peer {
        Peer::connect(self.server().redis()[0])
    }
}

impl Ours {
    /// Stops, and starts anew with what was stored.
    fn restart(&mut self) {
        let server = self.server.take().unwrap();
        server.stop();
        server.join().unwrap();
        let store = kv::Store::open(self.dir.path().join("store")).unwrap();
        self.server = Some(Server::start(config(), Box::new(Kv::new(store))).unwrap());
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
            let joined = server.join();
            assert!(std::thread::panicking() || joined.is_ok(), "{joined:?}");
        }
    }
}

/// memcached itself.
struct Theirs(Child, SocketAddr);

impl Theirs {
    /// None if it is not installed.
    fn start() -> Option<Self> {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let port = free.port().to_string();
        let child = Command::new("/usr/bin/memcached")
            .args(["-u", "root", "-U", "0", "-l", "127.0.0.1", "-m", "64", "-p", &port])
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let this = Self(child, free);
        for _ in 0..6000 {
            if TcpStream::connect(free).is_ok() {
                return Some(this);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("memcached does not listen");
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

struct Peer(TcpStream);

impl Peer {
    fn connect(to: SocketAddr) -> Self {
        let stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    /// What is answered to `bytes`, which are whole requests. Whatever comes behind them is seen by its `MN`.
    fn ask(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.0.write_all(&[bytes, b"mn\r\n"].concat()).unwrap();
        let mut answer = Vec::new();
        let mut some = vec![0; 64 << 10];
        while !answer.ends_with(b"MN\r\n") {
            match self.0.read(&mut some) {
                Ok(0) => return answer,
                Ok(count) => answer.extend_from_slice(&some[..count]),
                Err(error) => panic!("{error} after {} to {}", answer.escape_ascii(), bytes.escape_ascii()),
            }
        }
        answer.truncate(answer.len() - 4);
        answer
    }

    fn says(&mut self, bytes: &str, answer: &str) {
        let bytes = bytes.replace('|', "\r\n");
        let found = self.ask(format!("{bytes}\r\n").as_bytes());
        let found = String::from_utf8_lossy(&found).replace("\r\n", "|");
        assert_eq!(found, format!("{answer}|"), "{bytes}");
    }

    /// The version that is answered: the last number of the first line.
    fn number(&mut self, bytes: &str) -> u64 {
        let found = self.ask(format!("{bytes}\r\n").as_bytes());
        let line = String::from_utf8_lossy(&found).lines().next().unwrap_or_default().to_owned();
        let numbers = line.split(' ').rev().filter_map(|word| word.trim_start_matches('c').parse().ok());
        numbers.into_iter().next().unwrap_or_else(|| panic!("{bytes}: {line}"))
    }
}

/// The same order of random numbers for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

/// Versions differ, and numbers that became shorter are padded: `v<n>` and no spaces at the end of the data instead.
#[derive(Default)]
struct Versions(std::collections::BTreeMap<(String, u64), usize>);

impl Versions {
    /// Of the same key, versions differ; of two that were set together they do not.
    fn name(&mut self, key: &str, version: &str) -> String {
        let Ok(version) = version.parse::<u64>() else { return version.to_owned() };
        let next = self.0.len();
        if version == 0 {
            "v-none".to_owned()
        } else {
            format!("v{}", self.0.entry((key.to_owned(), version)).or_insert(next))
        }
    }

    fn normal(&mut self, answer: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        let mut rest = answer;
        while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
            let mut words: Vec<String> = String::from_utf8_lossy(&rest[..end]).split(' ').map(str::to_owned).collect();
            rest = &rest[end + 2..];
            let len_at = match &words[0][..] {
                "VALUE" => 3,
                "VA" => 1,
                _ => 0,
            };
            let data = if len_at > 0 {
                let len: usize = words[len_at].parse().unwrap();
                let data = &rest[..len];
                assert_eq!(&rest[len..len + 2], b"\r\n");
                rest = &rest[len + 2..];
                let data = data.trim_ascii_end();
                words[len_at] = data.len().to_string();
                Some(data.escape_ascii().to_string())
            } else {
                None
            };
            if words[0] == "VALUE" && words.len() == 5 {
                words[4] = self.name(&words[1], &words[4]);
            }
            if words[0].len() == 2 {
                let key = words[1..].iter().find_map(|word| word.strip_prefix('k')).unwrap_or_default().to_owned();
                for word in &mut words[1..] {
                    if let Some(version) = word.strip_prefix('c') {
                        *word = format!("c{}", self.name(&key, version));
                    }
                    if let Some(ttl) = word.strip_prefix('t').and_then(|ttl| ttl.parse::<i64>().ok()) {
                        // Seconds pass while this runs.
                        *word = if ttl > 1_000_000 {
                            "t-far".to_owned()
                        } else {
                            format!("t{}", (ttl + 50).div_euclid(100) * 100)
                        };
                    }
                }
            }
            lines.push(words.join(" "));
            lines.extend(data);
        }
        assert!(rest.is_empty(), "{}", rest.escape_ascii());
        lines
    }
}

/// Words that are seldom wrong.
fn request(random: &mut Random) -> String {
    let key = random.one(&["a", "b", "c", "long-key-with-a-name", "n", "m"]).to_owned();
    // memcached pads numbers that become shorter, and forgets marks and moments of those that become longer.
    let number = random.one(&["n", "m"]);
    let marked = random.one(&["a", "b", "long-key-with-a-name"]);
    let text = random.one(&["a", "b", "c", "long-key-with-a-name"]);
    // None above 2^63: memcached looks for a minus sign behind it, as far as there are bytes in its memory.
    let noreply = random.one(&["", "", "", "", " noreply"]);
    let exptime = random.one(&["0", "0", "0", "1000", "100000", "-1", "2000000000"]);
    let flags = random.one(&["0", "0", "1", "65535", "4294967295"]);
    let data = random.one(&["x", "", "hello world", "a\r\nb", "\0\u{1}", "17", "1000", "100000000000000", "-5", "0"]);
    let value = random.one(&["5", "17", "1000", "100000000000000", "0", "999"]);
    let opaque = random.one(&["", "", " O123", " k", " Oabc k", " k O1"]);
    let quiet = random.one(&["", "", "", " q"]);
    let delta = random.one(&["1", "5", "100000000000000", "0", "x", "-1"]);
    match random.below(30) {
        0..3 => format!("get {key}\r\n"),
        3 => format!("get {key} {text} {number} {key}\r\n"),
        4 => format!("gat {exptime} {text} {key}\r\n"),
        5..8 => format!("set {text} {flags} {exptime} {}{noreply}\r\n{data}\r\n", data.len()),
        8 => format!("set {number} {flags} {exptime} {}\r\n{value}\r\n", value.len()),
        9 => format!(
            "{} {text} {flags} {exptime} {}{noreply}\r\n{data}\r\n",
            random.one(&["add", "replace"]),
            data.len()
        ),
        10 => format!(
            "{} {text} {flags} {exptime} {}{noreply}\r\n{data}\r\n",
            random.one(&["append", "prepend"]),
            data.len()
        ),
        11 | 12 => format!("{} {number} {delta}{noreply}\r\n", random.one(&["incr", "decr"])),
        13 => format!(
            "set {number} 0 0 {}\r\n{data}\r\n{} {number} {delta}\r\n",
            data.len(),
            random.one(&["incr", "decr"])
        ),
        14 => format!("delete {key}{noreply}\r\n"),
        15 => format!("touch {key} {exptime}{noreply}\r\n"),
        16 => format!("cas {key} {flags} {exptime} {} 1{noreply}\r\n{value}\r\n", value.len()),
        17 | 18 => format!("mg {key} v f t{opaque}{quiet}\r\n"),
        19 => format!("mg {marked} s f{opaque} N1000 t v{quiet}\r\n"),
        20 => format!("mg {marked} R{} t v k\r\n", random.one(&["30", "3000", "0", "-1"])),
        21 => format!("mg {key} T{exptime} v{opaque}\r\n"),
        22 => {
            let mode = random.one(&["", " ME", " MA", " MP", " MR", " MS", " MX"]);
            format!("ms {text} {} T{exptime} F{flags}{mode}{opaque}{quiet}\r\n{data}\r\n", data.len())
        }
        23 => match random.below(2) {
            0 => format!("ms {number} {} C1{opaque}{quiet}{}\r\n{value}\r\n", value.len(), random.one(&["", " c"])),
            _ => format!("ms {marked} {} C1 I{opaque}{quiet}\r\n{value}\r\n", value.len()),
        },
        24 => match random.below(2) {
            0 => format!("md {key}{opaque}{quiet}{}\r\n", random.one(&["", " C1", " C0"])),
            _ => format!("md {marked}{opaque}{quiet} I{}\r\n", random.one(&["", " T2000"])),
        },
        25 | 26 => {
            let mode = random.one(&["", " MD", " MI", " M+", " M-", " MX"]);
            let create = random.one(&["", " N0", " N1000 J13"]);
            format!("ma {number} v t D{delta}{mode}{create}{opaque}{quiet}\r\n")
        }
        27 => format!("ms AQI= {} b k\r\n{data}\r\nmg AQI= b k v\r\n", data.len()),
        28 => random
            .one(&[
                "get\r\n",
                "set a 0 0\r\n",
                "set a x 0 1\r\n1\r\n",
                "incr a\r\n",
                "delete a 1\r\n",
                "bogus\r\n",
                "\r\n",
                "mg\r\n",
                "mg a v v\r\n",
                "mg a !\r\n",
                "ms a 2 !\r\nhi\r\n",
                "ms a x\r\n",
                "mg a b\r\n",
                "md a b\r\n",
                "ma n Dx\r\n",
                "touch a x\r\n",
                "set a 0 0 2\r\nhello\r\n",
                "ms a 2\r\nhello\r\n",
                "verbosity 1\r\n",
                "flush_all x\r\n",
                "gat x a\r\n",
                "verbosity\r\n",
                "cas a 0 0 1 x\r\n1\r\n",
                "mx a\r\n",
                "me\r\n",
                "me absent\r\n",
                "stats bogus\r\n",
                "delete a 0\r\n",
                "mg a O1234567890123456789012345678901234567890\r\n",
                "mg a Tx\r\n",
                "ms a 2 MXX\r\nhi\r\n",
                "ma n Jx N0\r\n",
            ])
            .to_owned(),
        _ => format!("get {}\r\n", "k".repeat(250 + random.below(2))),
    }
}

fn compare(seed: u64, count: usize, domain: DomainChoice) {
    let theirs = Theirs::start().expect("memcached is not installed; run `make setup`");
    let ours = Ours::start(domain);
    let (mut our, mut their) = (ours.connect(), Peer::connect(theirs.1));
    let (mut our_versions, mut their_versions) = (Versions::default(), Versions::default());
    // Its first version is 1, which requests ask for that are to fail.
    their.says("set first 0 0 1|x|delete first", "STORED|DELETED");
    let mut random = Random(seed);
    let mut said = Vec::new();
    let mut done = 0;
    while done < count {
        let together = 1 + random.below(12);
        let mut requests: Vec<String> = (0..together).map(|_| request(&mut random)).collect();
        // To a `get` of too long a key memcached answers instead of to all that was sent before.
        if let Some(at) = requests.iter().position(|one| one.len() > 250 && one.starts_with("get")) {
            requests.swap(0, at);
            requests.truncate(1);
        }
        let bytes = requests.concat();
        let answers =
            (our_versions.normal(&our.ask(bytes.as_bytes())), their_versions.normal(&their.ask(bytes.as_bytes())));
        said.push(bytes);
        assert_eq!(
            answers.0,
            answers.1,
            "ours, theirs; seed {seed}; after\n{}",
            said[said.len().saturating_sub(30)..].concat()
        );
        done += requests.len();
    }
}

#[test]
fn answers_are_those_of_memcached() {
    for seed in 0..40 {
        compare(seed, 4000, DomainChoice::Emulated);
    }
}

#[test]
fn answers_are_those_of_memcached_where_a_commit_takes_long() {
    compare(17, 600, DomainChoice::File);
}

/// Whether requests come together or one by one, they are answered the same: what runs in one transaction, and in which, does not matter.
#[test]
fn what_is_sent_together_is_answered_as_what_is_not() {
    for (seed, domain) in (100..110).map(|seed| (seed, DomainChoice::Emulated)).chain([(7, DomainChoice::File)]) {
        let (one, other) = (Ours::start(domain), Ours::start(domain));
        let (mut together, mut single) = (one.connect(), other.connect());
        let (mut their, mut other_versions) = (Versions::default(), Versions::default());
        let mut random = Random(seed);
        for _ in 0..if domain == DomainChoice::File { 5 } else { 60 } {
            let requests: Vec<String> = (0..40).map(|_| versioned(&mut random)).collect();
            let answers = their.normal(&together.ask(requests.concat().as_bytes()));
            let singly: Vec<u8> = requests.iter().flat_map(|request| single.ask(request.as_bytes())).collect();
            assert_eq!(answers, other_versions.normal(&singly), "together, singly; seed {seed}; {}", requests.concat());
        }
    }
}

/// A request, whose version is often asked for.
fn versioned(random: &mut Random) -> String {
    let key = random.one(&["a", "b", "n"]);
    match random.below(16) {
        0 | 1 => format!("gets {key} a\r\n"),
        2 => format!("gats {} {key} b\r\n", random.one(&["0", "1000", "-1"])),
        3 => format!("mg {key} k c v t\r\n"),
        4 => format!("mg {key} k c v T1000\r\n"),
        5 => format!("mg {key} k c N1000{}\r\n", random.one(&["", " R3000", " v"])),
        6 => format!("ms {key} 1 k c{}\r\n5\r\n", random.one(&["", " q", " MA", " C1", " C1 I", " ME"])),
        7 => format!("ma {key} k c{}\r\n", random.one(&["", " N0", " v", " q"])),
        8 => format!("md {key} k I\r\n"),
        _ => request(random),
    }
}

/// What a client does with versions: they are read, compared, and told.
#[test]
fn versions_are_as_memcached_has_them() {
    let ours = Ours::start(DomainChoice::Emulated);
    let theirs = Theirs::start();
    let peers = [Some(ours.connect()), theirs.as_ref().map(|theirs| Peer::connect(theirs.1))];
    for mut peer in peers.into_iter().flatten() {
        peer.says("set a 0 0 1|x", "STORED");
        let first = peer.number("mg a c");
        assert_eq!(first, peer.number("gets a"));
        peer.says(&format!("cas a 0 0 1 {}|y", first + 1_000_000), "EXISTS");
        peer.says(&format!("cas b 0 0 1 {first}|y"), "NOT_FOUND");
        peer.says(&format!("cas a 0 0 1 {first}|y"), "STORED");
        peer.says(&format!("cas a 0 0 1 {first}|y"), "EXISTS");
        // Versions that a writer is told are those that readers see.
        let set = peer.number("ms a 1 c\r\nz");
        assert_eq!(set, peer.number("gets a"));
        peer.says(&format!("ms a 2 C{set} MA|zz"), "HD");
        peer.says(&format!("ms a 2 C{set}|zz"), "EX");
        peer.says("get a", "VALUE a 0 3|zzz|END");
        let made = peer.number("ma n N0 J5 c");
        peer.says(&format!("ma n C{made} v"), "VA 1|6");
        peer.says(&format!("ma n C{made} v"), "EX");
        peer.says(&format!("md n C{made}"), "EX");
        let vivified = peer.number("mg v N100 c k");
        assert_ne!(vivified, 0);
        peer.says(&format!("ms v 1 C{vivified}|r"), "HD");
        let touched = peer.number("gats 100 a");
        peer.says(&format!("cas a 0 0 1 {touched}|t"), "STORED");
        let (a, v) = (peer.number("gets a"), peer.number("gets v"));
        peer.says("gats -1 a v", &format!("VALUE a 0 1 {a}|t|VALUE v 0 1 {v}|r|END"));
        peer.says("get a v", "END");
        // A write and a look at its version, sent together.
        let both = peer.ask(b"set p 0 0 1\r\nx\r\ngets p\r\nset p 0 0 1\r\ny\r\ngets p\r\n");
        let told: Vec<&[u8]> = both.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"VALUE")).collect();
        assert!(told.len() == 2 && told[0] != told[1] && !told[0].ends_with(b" 0\r"), "{}", both.escape_ascii());
    }
}

/// Stale items, and the client that is told to make them anew.
#[test]
fn one_wins_to_recache() {
    let ours = Ours::start(DomainChoice::Emulated);
    let theirs = Theirs::start();
    let peers = [Some(ours.connect()), theirs.as_ref().map(|theirs| Peer::connect(theirs.1))];
    for mut peer in peers.into_iter().flatten() {
        peer.says("mg a N30 v t|mg a N30 v|mg a s", "VA 0 t30 W||VA 0 Z||HD s0 Z");
        peer.says(
            "ms s 2 T100 F7|hi|md s I T30|mg s v t f|mg s v|get s",
            "HD|HD|VA 2 t30 f7 X W|hi|VA 2 Z X|hi|VALUE s 7 2|hi|END",
        );
        peer.says("get s|mg s|get a|md s I q|mg s|mg s", "VALUE s 7 2|hi|END|HD Z X|VALUE a 0 0||END|HD X W|HD Z X");
        peer.says("ms s 1|x|mg s v", "HD|VA 1|x");
        peer.says("ms r 1 T10|x|mg r R5|mg r R30|mg r R30|mg r R5", "HD|HD|HD W|HD Z|HD Z");
        peer.says("ms s 1 C1 I|y|mg s v|mg s v", "HD|VA 1 X W|y|VA 1 Z X|y");
        peer.says("touch s 100|mg s", "TOUCHED|HD Z X");
        // Reads only, but one of them wins.
        peer.says("md s I", "HD");
        peer.says("get x|mg r s|mg s|mg s v|get x", "END|HD s1 Z|HD X W|VA 1 Z X|y|END");
        peer.says("md s I", "HD");
        let (won, seen) = (peer.number("mg s c"), peer.number("mg s c"));
        assert_eq!(won, seen);
        peer.says(&format!("ms s 1 C{won}|z|mg s v"), "HD|VA 1|z");
    }
}

#[test]
fn large_items_are_refused_and_their_data_skipped() {
    let ours = Ours::start(DomainChoice::Emulated);
    let mut peer = ours.connect();
    let item = |command: &str, len: usize| {
        [command.as_bytes(), b" ", len.to_string().as_bytes(), b"\r\n", &vec![b'x'; len], b"\r\n"].concat()
    };
    assert_eq!(peer.ask(&item("set a 0 0", 1 << 20)), b"STORED\r\n");
    assert_eq!(peer.ask(b"get a\r\n").len(), (1 << 20) + b"VALUE a 0 1048576\r\n\r\nEND\r\n".len());
    assert_eq!(peer.ask(&item("append a 0 0", 1)), b"NOT_STORED\r\n");
    assert_eq!(peer.ask(&item("set a 0 0", (1 << 20) + 1)), b"SERVER_ERROR object too large for cache\r\n");
    peer.says("get a", "END");
    peer.says("set a 0 0 1|x", "STORED");
    assert_eq!(peer.ask(&item("ms a", 50 << 20)), b"SERVER_ERROR object too large for cache\r\n");
    peer.says("get a", "END");
    let line = ours.connect().ask(&vec![b'x'; 4000]);
    assert_eq!(line, b"CLIENT_ERROR line too long\r\n");
    assert_eq!(ours.connect().ask(b"set a 0 0 1\r\nx\r\nquit\r\nget a\r\n"), b"STORED\r\n");
}

/// Both protocols see the same strings.
#[test]
fn redis_shares_its_strings() {
    let ours = Ours::start(DomainChoice::Emulated);
    let (mut peer, mut redis) = (ours.connect(), ours.redis());
    let mut redis = |bytes: &str, answer: &str| {
        redis.0.write_all(format!("{bytes}\r\n").as_bytes()).unwrap();
        let mut found = vec![0; answer.len()];
        redis.0.read_exact(&mut found).unwrap();
        assert_eq!(String::from_utf8_lossy(&found), answer, "{bytes}");
    };
    peer.says("set a 7 0 2|10", "STORED");
    redis("GET a", "$2\r\n10\r\n");
    redis("INCR a", ":11\r\n");
    redis("APPEND a 5", ":3\r\n");
    peer.says("get a|decr a 100|get a", "VALUE a 7 3|115|END|15|VALUE a 7 2|15|END");
    redis("INCR a", ":16\r\n");
    peer.says("md a I|mg a v f", "HD|VA 2 f7 X W|16");
    redis("GET a", "$2\r\n16\r\n");
    redis("TYPE a", "+string\r\n");
    redis("EXPIRE a 100", ":1\r\n");
    peer.says("mg a t", "HD t100 Z X");
    redis("INCR a", ":17\r\n");
    peer.says("mg a v f", "VA 2 f7|17");

    redis("LPUSH l 1 2 3", ":3\r\n");
    let refused = "SERVER_ERROR the key holds a collection of Redis";
    peer.says("get l|mg l v|touch l 5|gat 5 l|me l", "END|EN|NOT_FOUND|END|EN");
    for line in [
        "add l 0 0 1|x",
        "replace l 0 0 1|x",
        "append l 0 0 1|x",
        "incr l 1",
        "ma l N0",
        "mg l N5",
        "md l I",
        "cas l 0 0 1 1|x",
    ] {
        peer.says(line, refused);
    }
    peer.says("flush_all|get a", "OK|END");
    redis("LLEN l", ":3\r\n");
    peer.says("set l 0 0 1|x|get l", "STORED|VALUE l 0 1|x|END");
    redis("GET l", "$1\r\nx\r\n");
    redis("SADD e 1 2", ":2\r\n");
    peer.says("delete e|add e 0 0 1|x", "DELETED|STORED");
}

#[test]
fn items_outlive_the_server() {
    let mut ours = Ours::start(DomainChoice::File);
    let mut peer = ours.connect();
    peer.says("set a 7 0 1|x|set b 0 1000 1|y|set c 0 -1 1|z", "STORED|STORED|STORED");
    peer.says("ms d 1 F9|d|md d I|mg d", "HD|HD|HD X W");
    let cas = peer.number("gets a");
    drop(peer);
    ours.restart();
    let mut peer = ours.connect();
    peer.says("get a b c|mg b t|mg d f v", "VALUE a 7 1|x|VALUE b 0 1|y|END|HD t1000|VA 1 f9 Z X|d");
    peer.says(&format!("cas a 0 0 1 {cas}|y|cas a 0 0 1 {cas}|z"), "STORED|EXISTS");
}

#[test]
fn stats_are_told() {
    let ours = Ours::start(DomainChoice::Emulated);
    let mut peer = ours.connect();
    peer.says("set a 0 0 1|x|get a b", "STORED|VALUE a 0 1|x|END");
    let stats = String::from_utf8(peer.ask(b"stats\r\n")).unwrap();
    for line in ["STAT get_hits 1\r\n", "STAT get_misses 1\r\n", "STAT curr_connections 1\r\n", "STAT version 1.6.18"] {
        assert!(stats.contains(line), "{line} in {stats}");
    }
    assert!(stats.ends_with("END\r\n"));
    peer.says("stats items", "END");
    peer.says("flush_all 100", "SERVER_ERROR flush_all with a delay is not supported");
    assert!(String::from_utf8(peer.ask(b"stats settings\r\n")).unwrap().contains("STAT item_size_max 1048576\r\n"));
    peer.says("get a|flush_all 0|get a", "VALUE a 0 1|x|END|OK|END");
}

/// Many clients count in one item, by `cas`, `incr` and `ma`; none is lost.
#[test]
fn nothing_is_lost_between_clients() {
    for domain in [DomainChoice::Emulated, DomainChoice::File] {
        let ours = Ours::start(domain);
        ours.connect().says("set a 0 0 1|0|set b 0 0 1|0", "STORED|STORED");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let mut peer = ours.connect();
                scope.spawn(move || {
                    let mut done = 0;
                    let mut known: Option<(u64, u64)> = None;
                    while done < 30 {
                        let (number, cas) = known.take().unwrap_or_else(|| {
                            let found = String::from_utf8(peer.ask(b"gets a\r\n")).unwrap();
                            let words: Vec<&str> = found.split_ascii_whitespace().collect();
                            (words[5].parse().unwrap(), words[4].parse().unwrap())
                        });
                        let new = (number + 1).to_string();
                        let told = peer.ask(format!("ms a {} C{cas} c\r\n{new}\r\n", new.len()).as_bytes());
                        let told = String::from_utf8(told).unwrap();
                        if let Some(cas) = told.strip_prefix("HD c") {
                            done += 1;
                            // What it has just written may be changed again without being read, if no other client was faster.
                            known = cas.trim().parse().ok().filter(|cas| *cas != 0).map(|cas| (number + 1, cas));
                        }
                        peer.ask(b"incr b 1 noreply\r\nma b q\r\n");
                    }
                });
            }
        });
        let mut peer = ours.connect();
        assert_eq!(String::from_utf8(peer.ask(b"get a\r\n")).unwrap(), "VALUE a 0 3\r\n120\r\nEND\r\n");
        let counted = String::from_utf8(peer.ask(b"get b\r\n")).unwrap();
        let counted: u64 = counted.lines().nth(1).unwrap().parse().unwrap();
        assert!(counted >= 240 && counted.is_multiple_of(2), "{counted}");
    }
}

/// A client that others wrote.
#[test]
fn pymemcache_finds_what_it_expects() {
    let ours = Ours::start(DomainChoice::Emulated);
    let script = r#"
import sys
from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheClientError, MemcacheServerError
from pymemcache import serde
c = Client(("127.0.0.1", int(sys.argv[1])), timeout=10, connect_timeout=10, serde=serde.pickle_serde)
assert c.set("a", "one", noreply=False) is True
assert c.get("a") == "one"
assert c.set("o", {"x": [1, 2]}) is True and c.get("o") == {"x": [1, 2]}
assert c.get("absent") is None and c.get("absent", 5) == 5
assert c.set_many({"m%d" % n: n for n in range(100)}) == []
assert c.get_many(["m%d" % n for n in range(100)] + ["absent"]) == {"m%d" % n: n for n in range(100)}
assert c.add("a", "two", noreply=False) is False
assert c.replace("absent", "two", noreply=False) is False
assert c.replace("a", "two", noreply=False) is True
value, cas = c.gets("a")
assert value == "two"
assert c.cas("a", "three", cas, noreply=False) is True
assert c.cas("a", "four", cas, noreply=False) is False
assert c.cas("absent", "four", cas, noreply=False) is None
assert set(c.gets_many(["a", "o"])) == {"a", "o"}
assert c.append("a", "!", noreply=False) and c.prepend("a", "?", noreply=False)
assert c.get("a") == "?three!"
assert c.incr("m5", 10) == 15 and c.decr("m5", 100) == 0 and c.incr("absent", 1) is None
assert c.touch("a", 100, noreply=False) is True and c.touch("absent", noreply=False) is False
value, cas = c.gets("a")
assert value == "?three!" and c.cas("a", "five", cas, noreply=False) is True
assert c.delete("a", noreply=False) is True and c.delete("a", noreply=False) is False
assert c.delete_many(["m1", "m2"], noreply=False) and c.get_many(["m1", "m2"]) == {}
assert c.set("gone", "x", expire=-1) is True and c.get("gone") is None
try:
    c.incr("o", 1)
    raise AssertionError("an object is no number")
except MemcacheClientError:
    pass
try:
    c.set("large", b"x" * (2 << 20), noreply=False)
    raise AssertionError("it is too large")
except MemcacheServerError:
    pass
assert c.version().startswith(b"1.6.18")
assert int(c.stats()[b"get_hits"]) > 100
assert c.set("big", b"y" * (1 << 20), noreply=False) and len(c.get("big")) == 1 << 20
assert c.flush_all(noreply=False) is True and c.get("o") is None
c.quit()
print("as expected")
"#;
    let python = Command::new("timeout")
        .args(["60", "/usr/bin/python3", "-c", script, &ours.server().memcached()[0].port().to_string()])
        .output()
        .unwrap();
    let (out, error) = (String::from_utf8_lossy(&python.stdout), String::from_utf8_lossy(&python.stderr));
    assert!(out.contains("as expected"), "{out}{error}");
}

#[test]
fn a_page_in_a_browser_is_nobody() {
    let ours = Ours::start(DomainChoice::Emulated);
    let mut page = ours.connect();
    page.0.write_all(b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\nset pwned 0 0 1\r\n1\r\n").unwrap();
    let mut said = Vec::new();
    page.0.read_to_end(&mut said).unwrap();
    assert!(said.is_empty(), "{}", said.escape_ascii());
    ours.connect().says("get pwned", "END");
}
