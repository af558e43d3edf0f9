//! Long strings lie in chunks: whatever is done to them, clients see plain bytes, each change writes what it touches and no more, and a chunk that is lost is an error.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use pmem::DomainChoice;
use server::engine::Engine;
use server::{Chunks, Config, Server, Settings, Step};

use crate::kill;
use crate::support::{Client, Reply, Store, start, until, usual};
use crate::witness::Served;

/// First bytes of what is no client's key in the store: docs/format.md.
const ELEMENTS: u8 = 0xf0;
const GARBAGE: u8 = 0xf2;

/// So that strings of some bytes cross all borders.
pub const TINY: Chunks = Chunks { whole: 48, chunk: 16 };

fn config(chunks: Chunks) -> Config {
    Config {
        memcached: vec!["127.0.0.1:0".parse().unwrap()],
        settings: Settings { chunks, item: 64 << 20, ..Settings::default() },
        ..usual()
    }
}

fn serve(store: Store, path: &Path, chunks: Chunks) -> Server {
    serve_without(None, store, path, chunks)
}

fn serve_without(step: Option<Step>, store: Store, path: &Path, chunks: Chunks) -> Server {
    start(step, config(chunks), store.open(path, pmem::Options::new().domain(DomainChoice::Emulated)))
}

fn stop(server: Server) {
    server.stop();
    server.join().unwrap();
}

fn count(path: &Path, first: u8) -> usize {
    let store = kv::Store::open(path).unwrap();
    let found = store.snapshot().unwrap().scan(kv::Keys::prefix(&[first])).count();
    store.close().unwrap();
    found
}

/// A request of any bytes.
fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend_from_slice(word);
        bytes.extend(b"\r\n");
    }
    bytes
}

fn ask(client: &mut Client, words: &[&[u8]]) -> Reply {
    client.send(&request(words));
    client.reply()
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    /// A number near a border of chunks, or any.
    fn near(&mut self, chunks: Chunks, most: usize) -> usize {
        let border = match self.below(4) {
            0 => chunks.whole,
            1 | 2 => chunks.chunk * self.below(most / chunks.chunk + 1),
            _ => self.below(most),
        };
        (border + self.below(5)).saturating_sub(2).min(most)
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let (mut bytes, start) = (Vec::with_capacity(len), self.below(256));
        // All zero now and then.
        let step = if self.below(8) == 0 { 0 } else { 1 + self.below(250) };
        bytes.extend((0..len).map(|at| ((start * usize::from(step > 0)) + at * step) as u8));
        bytes
    }
}

// ---- against plain bytes ----------------------------------------------------------------------------------------

struct Model {
    client: Client,
    memcached: std::net::TcpStream,
    keys: BTreeMap<Vec<u8>, Vec<u8>>,
    /// What memcached keeps with some of them.
    flags: BTreeMap<Vec<u8>, u32>,
    random: Random,
    chunks: Chunks,
    most: usize,
}

fn slice(bytes: &[u8], from: i64, to: i64) -> &[u8] {
    let len = bytes.len() as i64;
    let place = |at: i64| if at < 0 { (at + len).max(0) } else { at };
    let (from, to) = (place(from), place(to).min(len - 1));
    if from <= to { &bytes[from as usize..=to as usize] } else { &[] }
}

impl Model {
    fn expect(&mut self, words: &[&[u8]], expected: &Reply, what: &str) {
        let found = ask(&mut self.client, words);
        let shown = |reply: &Reply| match reply {
            Reply::Bulk(bytes) => format!("{} bytes", bytes.len()),
            other => format!("{other:?}"),
        };
        assert!(
            found == *expected,
            "{what}: {}: {}, expected {}",
            String::from_utf8_lossy(words[0]),
            shown(&found),
            shown(expected)
        );
    }

    /// What a line of memcached's is answered with, up to its end.
    fn memcached(&mut self, line: &str, data: Option<&[u8]>) -> Vec<u8> {
        use std::io::Read as _;
        let data = data.map_or_else(Vec::new, |data| [data, b"\r\n"].concat());
        self.memcached.write_all(&[line.as_bytes(), b"\r\n", &data, b"mn\r\n"].concat()).unwrap();
        let (mut answer, mut some) = (Vec::new(), vec![0; 64 << 10]);
        while !answer.ends_with(b"MN\r\n") {
            let read = self.memcached.read(&mut some).unwrap();
            assert!(read > 0, "{line}: the connection ended");
            answer.extend_from_slice(&some[..read]);
        }
        answer.truncate(answer.len() - 4);
        answer
    }

    fn key(&mut self) -> Vec<u8> {
        format!("k{}", self.random.below(3)).into_bytes()
    }

    /// It has no flags of memcached's.
    fn set(&mut self, key: &[u8], value: Vec<u8>) {
        self.flags.remove(key);
        self.keys.insert(key.to_vec(), value);
    }

    fn step(&mut self, what: &str) {
        let key = self.key();
        let has = self.keys.get(&key).cloned();
        let old = has.clone().unwrap_or_default();
        let maybe = |has: &Option<Vec<u8>>| has.clone().map_or(Reply::Null, Reply::Bulk);
        let len = self.random.near(self.chunks, self.most);
        let value = self.random.bytes(len);
        let at = self.random.near(self.chunks, self.most);
        let short = self.random.below(self.chunks.chunk + 9);
        let part = self.random.bytes(short);
        let number = |number: usize| Reply::Int(number as i64);
        let text = |number: usize| number.to_string().into_bytes();
        match self.random.below(27) {
            0 => {
                self.expect(&[b"SET", &key, &value], &Reply::ok(), what);
                self.set(&key, value);
            }
            1 => {
                self.expect(&[b"SET", &key, &value, b"GET", b"KEEPTTL"], &maybe(&has), what);
                self.set(&key, value);
            }
            2 => {
                self.expect(&[b"GETSET", &key, &value], &maybe(&has), what);
                self.set(&key, value);
            }
            3 => {
                self.expect(&[b"GETDEL", &key], &maybe(&has), what);
                self.flags.remove(&key);
                self.keys.remove(&key);
            }
            4 => self.expect(&[b"GETEX", &key, b"PERSIST"], &maybe(&has), what),
            5 => self.expect(&[b"GETEX", &key, b"EX", b"1000"], &maybe(&has), what),
            6..=8 if old.len() + part.len() <= self.most => {
                let all = [old, part.clone()].concat();
                self.expect(&[b"APPEND", &key, &part], &number(all.len()), what);
                self.keys.insert(key.clone(), all);
            }
            9..=12 => {
                let mut all = old;
                if !part.is_empty() {
                    all.resize(all.len().max(at + part.len()), 0);
                    all[at..at + part.len()].copy_from_slice(&part);
                    self.keys.insert(key.clone(), all.clone());
                }
                self.expect(&[b"SETRANGE", &key, &text(at), &part], &number(all.len()), what);
            }
            13 | 14 => {
                let (bit, on) = (8 * at + self.random.below(8), self.random.below(2));
                let mut all = old;
                all.resize(all.len().max(at + 1), 0);
                let mask = 0x80 >> (bit % 8);
                let was = usize::from(all[at] & mask != 0);
                all[at] = if on == 1 { all[at] | mask } else { all[at] & !mask };
                self.expect(&[b"SETBIT", &key, &text(bit), &text(on)], &number(was), what);
                self.expect(&[b"GETBIT", &key, &text(bit)], &number(on), what);
                self.keys.insert(key.clone(), all);
            }
            15 | 16 => {
                let mut all = old;
                all.resize(all.len().max(at + 4), 0);
                let was = u32::from_be_bytes(all[at..at + 4].try_into().unwrap());
                let wanted = self.random.below(1 << 30) as u32;
                all[at..at + 4].copy_from_slice(&wanted.to_be_bytes());
                let (bits, wanted) = (text(8 * at), text(wanted as usize));
                let found = ask(
                    &mut self.client,
                    &[b"BITFIELD", &key, b"GET", b"u32", &bits, b"SET", b"u32", &bits, &wanted, b"GET", b"u32", &bits],
                );
                let wanted = String::from_utf8_lossy(&wanted).parse().unwrap();
                assert_eq!(
                    found,
                    Reply::Array(vec![Reply::Int(was.into()), Reply::Int(was.into()), Reply::Int(wanted)]),
                    "{what}"
                );
                self.keys.insert(key.clone(), all);
            }
            17 => {
                let other = self.key();
                if has.is_some() {
                    self.expect(&[b"RENAME", &key, &other], &Reply::ok(), what);
                    self.keys.remove(&key);
                    let flags = self.flags.remove(&key);
                    self.set(&other, old);
                    self.flags.extend(flags.map(|flags| (other, flags)));
                }
            }
            18 => {
                let other = self.key();
                if other != key {
                    self.expect(&[b"COPY", &key, &other, b"REPLACE"], &number(usize::from(has.is_some())), what);
                    if has.is_some() {
                        let flags = self.flags.get(&key).copied();
                        self.set(&other, old);
                        self.flags.extend(flags.map(|flags| (other, flags)));
                    }
                }
            }
            19 => {
                let there = number(usize::from(has.is_some()));
                self.expect(&[b"EXPIRE", &key, b"1000"], &there, what);
                if has.is_some() {
                    self.expect(&[b"TTL", &key], &number(1000), what);
                }
                self.expect(&[b"PERSIST", &key], &there, what);
            }
            20 => {
                let other = self.key();
                let mut all = self.keys.get(&other).cloned().unwrap_or_default();
                all.resize(all.len().max(old.len()), 0);
                all.iter_mut().zip(&old).for_each(|(byte, other)| *byte ^= other);
                self.expect(&[b"BITOP", b"XOR", &key, &key, &other], &number(all.len()), what);
                self.set(&key, all.clone());
                if all.is_empty() {
                    self.keys.remove(&key);
                }
            }
            21 => {
                let Reply::Bulk(payload) = ask(&mut self.client, &[b"DUMP", &key]) else {
                    assert_eq!(has, None, "{what}: DUMP");
                    return;
                };
                let other = self.key();
                self.expect(&[b"RESTORE", &other, b"0", &payload, b"REPLACE"], &Reply::ok(), what);
                self.set(&other, old);
            }
            22 => {
                let other = self.key();
                self.expect(&[b"MSET", &key, &value, &other, &part], &Reply::ok(), what);
                self.set(&key, value);
                self.set(&other, part);
            }
            23 => {
                let name = String::from_utf8(key.clone()).unwrap();
                let answer = self.memcached(&format!("set {name} 77 0 {}", value.len()), Some(&value));
                assert_eq!(answer, b"STORED\r\n", "{what}: set");
                self.set(&key, value);
                self.flags.insert(key.clone(), 77);
            }
            24 => {
                let name = String::from_utf8(key.clone()).unwrap();
                let (verb, all) = match self.random.below(2) {
                    0 => ("append", [old, part.clone()].concat()),
                    _ => ("prepend", [part.clone(), old].concat()),
                };
                let answer = self.memcached(&format!("{verb} {name} 0 0 {}", part.len()), Some(&part));
                assert_eq!(
                    answer,
                    if has.is_some() { &b"STORED\r\n"[..] } else { b"NOT_STORED\r\n" },
                    "{what}: {verb}"
                );
                if has.is_some() {
                    self.keys.insert(key.clone(), all);
                }
            }
            25 => {
                let name = String::from_utf8(key.clone()).unwrap();
                let answer = self.memcached(&format!("touch {name} 1000"), None);
                assert_eq!(answer.starts_with(b"TOUCHED"), has.is_some(), "{what}: touch");
                let answer = self.memcached(&format!("mg {name} s v T0"), None);
                let wanted = has.map_or(b"EN\r\n".to_vec(), |bytes| {
                    [format!("VA {0} s{0}\r\n", bytes.len()).as_bytes(), &bytes, b"\r\n"].concat()
                });
                assert!(answer == wanted, "{what}: mg of {} bytes", wanted.len());
            }
            _ => {
                self.expect(&[b"DEL", &key], &number(usize::from(has.is_some())), what);
                self.flags.remove(&key);
                self.keys.remove(&key);
            }
        }
        self.look(&key, what);
    }

    /// All ways to read a key.
    fn look(&mut self, key: &[u8], what: &str) {
        let has = self.keys.get(key).cloned();
        let bytes = has.clone().unwrap_or_default();
        let kind = if has.is_some() { "string" } else { "none" };
        self.expect(&[b"TYPE", key], &Reply::Simple(kind.to_owned()), what);
        self.expect(&[b"STRLEN", key], &Reply::Int(bytes.len() as i64), what);
        let whole = has.clone().map_or(Reply::Null, Reply::Bulk);
        self.expect(&[b"GET", key], &whole, what);
        self.expect(
            &[b"MGET", key, b"none", key],
            &Reply::Array(vec![whole.clone(), Reply::Null, whole.clone()]),
            what,
        );
        let script = b"local v = redis.call('GET', KEYS[1]); redis.call('PING'); return v";
        self.expect(&[b"EVAL", script, b"1", key], &whole, what);
        for _ in 0..4 {
            let [from, to] = [0; 2].map(|_| {
                self.random.near(self.chunks, self.most) as i64 - self.random.below(2) as i64 * bytes.len() as i64
            });
            let part = slice(&bytes, from, to);
            let [low, high] = [from, to].map(|at| at.to_string().into_bytes());
            if !(from < 0 && to < 0 && from > to) {
                self.expect(&[b"GETRANGE", key, &low, &high], &Reply::Bulk(part.to_vec()), what);
                let ones: u32 = part.iter().map(|byte| byte.count_ones()).sum();
                self.expect(&[b"BITCOUNT", key, &low, &high], &Reply::Int(ones.into()), what);
            }
            let start = if from < 0 { (from + bytes.len() as i64).max(0) } else { from };
            for (bit, skipped) in [(b"1", 0), (b"0", 0xff_u8)] {
                let found = part.iter().position(|byte| *byte != skipped);
                let expected =
                    found.map(|at| 8 * (start + at as i64) + i64::from((part[at] ^ skipped).leading_zeros()));
                let none = if has.is_none() && bit == b"0" { 0 } else { -1 };
                self.expect(&[b"BITPOS", key, bit, &low, &high], &Reply::Int(expected.unwrap_or(none)), what);
            }
        }
        let name = String::from_utf8(key.to_vec()).unwrap();
        let answer = self.memcached(&format!("get {name}"), None);
        match has {
            None => assert_eq!(answer, b"END\r\n", "{what}: get"),
            Some(bytes) => {
                let flags = self.flags.get(key).copied().unwrap_or(0);
                let first = format!("VALUE {name} {flags} {}\r\n", bytes.len());
                let whole = [first.as_bytes(), &bytes, b"\r\nEND\r\n"].concat();
                let line = || answer.split(|byte| *byte == b'\r').next().unwrap_or_default().escape_ascii().to_string();
                assert!(answer == whole, "{what}: get: {}, expected {first}", line());
            }
        }
    }
}

fn against_plain_bytes(store: Store, chunks: Chunks, most: usize, seeds: std::ops::Range<u64>, steps: usize) {
    without_plain_bytes(None, store, chunks, most, seeds, steps);
}

/// Short strings without a step.
pub fn small_ones(step: Option<Step>) {
    without_plain_bytes(step, Store::Kv, TINY, 300, 0..3, 200);
}

fn without_plain_bytes(
    step: Option<Step>,
    store: Store,
    chunks: Chunks,
    most: usize,
    seeds: std::ops::Range<u64>,
    steps: usize,
) {
    for seed in seeds {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let (mut keys, mut flags) = (BTreeMap::new(), BTreeMap::new());
        let mut random = Random(seed);
        // Behind a start all is as it was, also with other sizes of chunks.
        for run in 0..3 {
            let sizes = match run {
                1 => Chunks { whole: chunks.whole * 3, chunk: chunks.chunk * 4 },
                _ => chunks,
            };
            let server = serve_without(step, store, &path, sizes);
            let client = Client::to(server.redis()[0]);
            let memcached = std::net::TcpStream::connect(server.memcached()[0]).unwrap();
            let mut model = Model { client, memcached, keys, flags, random, chunks, most };
            for key in ["k0", "k1", "k2"] {
                model.look(key.as_bytes(), &format!("{store:?}, seed {seed}, start {run}"));
            }
            for step in 0..steps {
                model.step(&format!("{store:?}, {sizes:?}, seed {seed}, start {run}, step {step}"));
            }
            (keys, flags, random) = (model.keys, model.flags, model.random);
            drop((model.client, model.memcached));
            stop(server);
        }
    }
}

#[test]
fn strings_are_plain_bytes_whatever_is_done_to_them() {
    against_plain_bytes(Store::Kv, TINY, 300, 0..3, 200);
    against_plain_bytes(Store::Kv, Chunks { whole: 0, chunk: 16 }, 100, 6..8, 200);
}

#[test]
fn strings_in_a_tree_are_plain_bytes_whatever_is_done_to_them() {
    against_plain_bytes(Store::Tree, TINY, 300, 0..3, 200);
}

#[test]
fn strings_are_plain_bytes_at_the_sizes_that_are_used() {
    against_plain_bytes(Store::Kv, Chunks::default(), 600 << 10, 0..1, 40);
    against_plain_bytes(Store::Tree, Chunks::default(), 600 << 10, 1..2, 30);
}

// ---- what is written --------------------------------------------------------------------------------------------

/// Barriers, and bytes flushed.
fn costs(client: &mut Client) -> (u64, u64) {
    let Reply::Bulk(text) = client.say("INFO persistence") else { panic!("no text") };
    let text = String::from_utf8(text).unwrap();
    let of = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse::<u64>().unwrap();
    (of("cairn_barriers:"), of("cairn_flushed_bytes:"))
}

#[test]
fn a_change_writes_what_it_touches() {
    let dir = tempfile::tempdir().unwrap();
    let pool = pmem::Options::new().domain(DomainChoice::Emulated);
    let store = kv::Options::new().pool(pool).background(false).create(dir.path().join("store")).unwrap();
    let server = start(None, usual(), Box::new(server::engine::Kv::new(store)));
    let mut client = Client::to(server.redis()[0]);
    let value = vec![b'x'; 8 << 20];
    assert_eq!(ask(&mut client, &[b"SET", b"k", &value]), Reply::ok());
    let chunk = Chunks::default().chunk as u64;
    for (line, most) in [
        ("SETRANGE k 5000000 y", 2 * chunk),
        ("SETBIT k 40000000 1", 2 * chunk),
        ("APPEND k z", 2 * chunk),
        ("BITFIELD k SET u8 #7000000 1", 2 * chunk),
        // Between two chunks, and far behind the end.
        ("SETRANGE k 65535 ab", 3 * chunk),
        ("SETRANGE sparse 500000000 y", 2 * chunk),
        ("SETRANGE sparse 20 y", 2 * chunk),
        ("SETBIT sparse 3999999999 1", 3 * chunk),
        ("EXPIRE k 1000", 8192),
        ("PERSIST k", 8192),
        ("RENAME k l", 8192),
        ("GETEX l EX 1000", 8192),
        ("PEXPIRE l 1000000", 8192),
    ] {
        let before = costs(&mut client);
        if line.starts_with("GETEX") {
            assert!(matches!(client.say(line), Reply::Bulk(bytes) if bytes.len() == value.len() + 1));
        } else {
            assert!(!matches!(client.say(line), Reply::Error(_)), "{line}");
        }
        let after = costs(&mut client);
        let (barriers, bytes) = (after.0 - before.0, after.1 - before.1);
        // It reads all, on a thread that may be new to the store and has to get a segment.
        let most_barriers = if line.starts_with("GETEX") { 3 } else { 1 };
        assert!((1..=most_barriers).contains(&barriers), "{line} has {barriers}");
        assert!(bytes <= most, "{line} has flushed {bytes} bytes, and {most} would do");
    }
    // What is read writes nothing, and what changes no bit neither.
    let before = costs(&mut client);
    assert_eq!(client.say("GETRANGE l 65534 65537"), Reply::text("xabx"));
    assert_eq!(client.say("SETBIT sparse 3999999999 1"), Reply::Int(1));
    assert_eq!(client.say("GETRANGE sparse 499999998 500000001"), Reply::Bulk(b"\0\x01y".to_vec()));
    assert_eq!(costs(&mut client), before);
    assert_eq!(client.say("DEL sparse"), Reply::Int(1));
    drop(client);
    stop(server);
}

/// A string that becomes shorter in its place has, at once, the chunks that it needs and no others.
pub fn shorter_in_its_place(step: Option<Step>) {
    for store in Store::ALL {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let server = serve_without(step, store, &path, TINY);
        let mut client = Client::to(server.redis()[0]);
        for chunks in [50, 10, 30, 4] {
            assert_eq!(ask(&mut client, &[b"SET", b"k", &vec![b'x'; 16 * chunks]]), Reply::ok());
        }
        assert_eq!(client.say("APPEND k y"), Reply::Int(65));
        drop(client);
        stop(server);
        let engine = store.open(&path, pmem::Options::new().domain(DomainChoice::Emulated));
        let mut chunks = 0;
        let count = engine.read(&mut |tx| {
            chunks = 0;
            tx.scan(kv::Keys::prefix(&[ELEMENTS]), &mut |_, _| {
                chunks += 1;
                std::ops::ControlFlow::Continue(())
            })
        });
        count.unwrap();
        assert_eq!(chunks, 5, "chunks without an owner: {store:?}");
        engine.close().unwrap();
    }
}

#[test]
fn a_shorter_string_leaves_no_chunks() {
    shorter_in_its_place(None);
}

#[test]
fn chunks_without_an_owner_go() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let server = serve(Store::Kv, &path, TINY);
    let mut client = Client::to(server.redis()[0]);
    let (long, longer) = (vec![b'x'; 16 * 20], vec![b'y'; 16 * 200]);
    for key in ["stays", "del", "set", "over", "getdel", "due", "hash", "bitop", "restore", "long", "short"] {
        let value = if matches!(key, "del" | "over" | "due" | "long") { &longer } else { &long };
        assert_eq!(ask(&mut client, &[b"SET", key.as_bytes(), value]), Reply::ok());
    }
    for line in [
        "DEL del",
        "SET set x",
        "RENAME stays over",
        "GETDEL getdel",
        "PEXPIRE due 1",
        "BITOP AND bitop none none",
        "COPY over copy",
        "DEL hash",
        "HSET hash f v",
        "MSET short 1 long 2",
        "RENAME hash restore",
    ] {
        assert!(!matches!(client.say(line), Reply::Error(_) | Reply::Null), "{line}");
    }
    // A shorter one that comes to the place of a longer one has its id.
    for len in [3000, 400, 2000, 60] {
        assert_eq!(ask(&mut client, &[b"SET", b"grows", &vec![b'z'; len]]), Reply::ok());
    }
    let reaped = |client: &mut Client| matches!(client.say("GET due"), Reply::Null);
    until("the key expires", || reaped(&mut client));
    drop(client);
    stop(server);
    // `over` and `copy` with 20 each, `grows` with 4, and a hash with 1.
    let mut found = (0, 0);
    until("chunks without an owner are swept", || {
        found = (count(&path, GARBAGE), count(&path, ELEMENTS));
        if found == (0, 45) {
            return true;
        }
        let server = serve(Store::Kv, &path, TINY);
        std::thread::sleep(std::time::Duration::from_millis(300));
        stop(server);
        false
    });
    let server = serve(Store::Kv, &path, TINY);
    let mut client = Client::to(server.redis()[0]);
    assert_eq!(client.say("GET over"), Reply::Bulk(long.clone()));
    assert_eq!(client.say("GET copy"), Reply::Bulk(long));
    drop(client);
    stop(server);
}

// ---- damage, and servers that do not know chunks -----------------------------------------------------------------

#[test]
fn a_lost_chunk_is_an_error_and_no_zeros() {
    for store in Store::ALL {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let server = serve(store, &path, TINY);
        let mut client = Client::to(server.redis()[0]);
        let value = vec![b'x'; 160];
        assert_eq!(ask(&mut client, &[b"SET", b"k", &value]), Reply::ok());
        assert_eq!(client.say("SET other 1"), Reply::ok());
        drop(client);
        stop(server);
        let engine: Box<dyn Engine> = store.open(&path, pmem::Options::new().domain(DomainChoice::Emulated));
        engine
            .write(&mut |tx| {
                let mut chunks = Vec::new();
                tx.scan(kv::Keys::prefix(&[ELEMENTS]), &mut |key, _| {
                    chunks.push(key.to_vec());
                    std::ops::ControlFlow::Continue(())
                })?;
                assert_eq!(chunks.len(), 10);
                tx.delete(&chunks[4]).map(drop)
            })
            .unwrap();
        engine.close().unwrap();
        let server = serve(store, &path, TINY);
        let mut client = Client::to(server.redis()[0]);
        for line in [
            "GET k",
            "MGET other k",
            "GETRANGE k 64 64",
            "GETRANGE k 0 -1",
            "BITCOUNT k",
            "BITPOS k 0 64",
            "GETBIT k 520",
            "SETRANGE k 70 y",
            "SETBIT k 520 1",
            "BITFIELD k GET u8 #64",
            "BITOP NOT to k",
            "COPY k to",
            "DUMP k",
            "APPEND other x", // not of this one
        ] {
            let reply = client.say(line);
            match line {
                "APPEND other x" => assert_eq!(reply, Reply::Int(2)),
                _ => assert!(reply.error().contains("chunk 4 of the long string"), "{store:?}: {line}: {reply:?}"),
            }
        }
        assert_eq!(client.say("GETRANGE k 0 63"), Reply::Bulk(vec![b'x'; 64]), "the others are there");
        assert_eq!(client.say("STRLEN k"), Reply::Int(160));
        assert_eq!(client.say("APPEND k y"), Reply::Int(161));
        // What writes all of the chunk needs nothing of it; and what sets all of the string.
        assert_eq!(client.say("SETRANGE k 64 yyyyyyyyyyyyyyyy"), Reply::Int(161));
        assert!(matches!(client.say("GET k"), Reply::Bulk(bytes) if bytes.len() == 161));
        assert_eq!(ask(&mut client, &[b"SET", b"k", &value]), Reply::ok());
        assert_eq!(client.say("GET k"), Reply::Bulk(value.clone()));
        drop(client);
        stop(server);
    }
}

/// `seed` in the store, which is 8 bytes long for a server that does not know long strings.
fn seed(path: &Path) -> Vec<u8> {
    let store = kv::Store::open(path).unwrap();
    let seed = store.get(b"\xf3seed").unwrap().unwrap();
    store.close().unwrap();
    seed
}

#[test]
fn older_servers_refuse_a_store_with_long_strings_and_this_one_what_is_newer() {
    refused_by_others(None);
}

pub fn refused_by_others(step: Option<Step>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let run = |lines: &[&str]| {
        let server = serve_without(step, Store::Kv, &path, TINY);
        let mut client = Client::to(server.redis()[0]);
        for line in lines {
            assert!(!matches!(client.say(line), Reply::Error(_) | Reply::Null), "{line}");
        }
        drop(client);
        stop(server);
    };
    run(&["SET short x", "HSET h f v", "SADD s a b c"]);
    let before = seed(&path);
    assert_eq!(before.len(), 8);
    run(&["APPEND short 0123456789012345678901234567890123456789012345678901234567890123456789", "APPEND short x"]);
    let after = seed(&path);
    assert_eq!((&after[..8], &after[8..]), (&before[..], &[1][..]), "older servers take it for theirs");
    // Of which members and fields are found by.
    run(&["HGET h f", "GET short"]);
    assert_eq!(seed(&path), after);
    for newer in [&[&before[..], &[2]].concat(), &[&after[..], &[0]].concat()] {
        let store = kv::Store::open(&path).unwrap();
        store.put(b"\xf3seed", newer).unwrap();
        store.close().unwrap();
        let engine = Store::Kv.open(&path, pmem::Options::new().domain(DomainChoice::Emulated));
        let Err(refused) = Server::start(usual(), engine) else { panic!("it serves what it does not know") };
        assert!(refused.to_string().contains("newer server") && refused.to_string().contains("next: "), "{refused}");
    }
}

// ---- kills ------------------------------------------------------------------------------------------------------

/// Of one client: what its key has, in a database that nobody swaps, and a change that was sent and is not acknowledged.
pub struct Writer {
    key: String,
    value: Vec<u8>,
    on_its_way: Option<Vec<u8>>,
    random: Random,
    pub acknowledged: u64,
}

/// The number of the database of a [`Writer`].
const DATABASE: &str = "SELECT 5";

impl Writer {
    pub fn new(number: u64) -> Self {
        let (key, value) = (format!("k{number}"), Vec::new());
        Self { key, value, on_its_way: None, random: Random(number), acknowledged: 0 }
    }

    /// A request, and what the key has behind it.
    fn next(&mut self) -> (Vec<u8>, Vec<u8>) {
        let key = self.key.clone().into_bytes();
        let mut after = self.value.clone();
        let chunk = Chunks::default().chunk;
        let len = 1 + self.random.below(3 * chunk);
        let part = self.random.bytes(len);
        let request = match self.random.below(6) {
            _ if after.is_empty() => {
                after = vec![b'a'; 600 << 10];
                request(&[b"SET", &key, &after])
            }
            0 | 1 if after.len() < 900 << 10 => {
                after.extend_from_slice(&part);
                request(&[b"APPEND", &key, &part])
            }
            2 => {
                // As one: the last byte and the first, far apart.
                let (last, byte) = ((after.len() - 1).to_string(), [self.random.below(256) as u8]);
                *after.last_mut().unwrap() = byte[0];
                after[0] = byte[0];
                let script = b"redis.call('SETRANGE', KEYS[1], ARGV[1], ARGV[2]) redis.call('SETRANGE', KEYS[1], 0, ARGV[2]) return 1";
                request(&[b"EVAL", script, b"1", &key, last.as_bytes(), &byte])
            }
            3 if self.random.below(4) == 0 => {
                after = self.random.bytes(500 << 10);
                request(&[b"SET", &key, &after])
            }
            _ => {
                let at = self.random.below(after.len());
                after.resize(after.len().max(at + part.len()), 0);
                after[at..at + part.len()].copy_from_slice(&part);
                request(&[b"SETRANGE", &key, at.to_string().as_bytes(), &part])
            }
        };
        (request, after)
    }

    /// For [`write`](Self::write).
    pub fn connect(served: &Served) -> Client {
        let mut client = Client::to(served.address.parse().unwrap());
        assert_eq!(client.say(DATABASE), Reply::ok());
        client
    }

    /// Until the server is gone.
    pub fn write(&mut self, mut client: Client) {
        loop {
            let (request, after) = self.next();
            self.on_its_way = Some(after);
            if client.0.get_mut().write_all(&request).is_err() {
                return;
            }
            match client.try_reply() {
                None => return,
                Some(Reply::Error(text)) => panic!("{text}"),
                Some(_) => {}
            }
            self.value = self.on_its_way.take().unwrap_or_default();
            self.acknowledged += 1;
        }
    }

    pub fn check(&mut self, served: &Served) {
        let mut client = Self::connect(served);
        let found = match client.say(&format!("GET {}", self.key)) {
            Reply::Bulk(bytes) => bytes,
            Reply::Null => Vec::new(),
            other => panic!("{other:?}"),
        };
        let way = self.on_its_way.take();
        let differs = found.iter().zip(&self.value).position(|(a, b)| a != b);
        assert!(
            found == self.value || Some(&found) == way.as_ref(),
            "{}: {} bytes, acknowledged {}, on its way {:?}: the first difference at {differs:?}",
            self.key,
            found.len(),
            self.value.len(),
            way.map(|way| way.len())
        );
        self.value = found;
    }
}

#[test]
fn what_was_written_into_long_strings_is_there_after_kills_and_nothing_by_halves() {
    for (domain, rounds) in [("emulated", 5), ("file", 4)] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let mut clients = [0_u64, 1, 2].map(Writer::new);
        for round in 0..rounds {
            let mut served = kill::whole(domain, &path);
            clients.iter_mut().for_each(|client| client.check(&served));
            std::thread::scope(|scope| {
                for client in &mut clients {
                    let connection = Writer::connect(&served);
                    scope.spawn(move || client.write(connection));
                }
                std::thread::sleep(std::time::Duration::from_millis(60 + round * 47 % 150));
                let id = served.child.id().to_string();
                assert!(Command::new("kill").args(["-9", &id]).status().unwrap().success());
            });
            served.child.wait().unwrap();
        }
        let served = kill::whole(domain, &path);
        clients.iter_mut().for_each(|client| client.check(&served));
        let acknowledged: u64 = clients.iter().map(|client| client.acknowledged).sum();
        assert!(acknowledged > 0, "{domain}: nothing was acknowledged");
    }
}
