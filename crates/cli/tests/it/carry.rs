//! `cairn import` and `cairn export`, between real Redis servers and ours.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::{Connection, Value, cmd};

use crate::cairn;
use crate::witness::Served;

/// A real Redis, killed at the end.
struct Redis {
    child: Child,
    url: String,
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Redis {
    /// With the file `dump.rdb` of that folder, if there is one.
    fn start(dir: &Path) -> Self {
        let socket = dir.join("redis.sock");
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]).arg(&socket);
        let child = command.arg("--dir").arg(dir).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.expect("redis-server is not installed; run `make setup`");
        let redis = Self { child, url: format!("redis+unix://{}", socket.display()) };
        for _ in 0..3000 {
            if connect(&redis.url).is_some_and(|mut it| cmd("PING").query::<Value>(&mut it).is_ok()) {
                return redis;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("redis-server does not answer");
    }
}

fn connect(url: &str) -> Option<Connection> {
    redis::Client::open(url).ok()?.get_connection_with_timeout(Duration::from_secs(10)).ok()
}

fn serve(dir: &Path, name: &str) -> (Served, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cairn"));
    command.args(["serve", name, "--domain", "emulated", "--redis", "127.0.0.1:0"]).current_dir(dir);
    let served = Served::start(&mut command);
    let url = format!("redis://{}", served.address);
    (served, url)
}

fn say(to: &mut Connection, line: &str) -> Value {
    let mut words = line.split(' ');
    let mut command = cmd(words.next().unwrap());
    command.arg(words.collect::<Vec<_>>());
    command.query(to).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// Each type, small and large, in several databases, with expiries, groups, and a library of functions.
fn fill(to: &mut Connection) {
    for line in [
        "SET text apples",
        "SET number 12345",
        "SET due soon PXAT 99999999999999",
        "RPUSH list c a b a",
        "SADD numbers 1 2 3",
        "SADD names a b c",
        "ZADD scores 1.5 a -inf b inf c 3 d",
        "HSET hash f v g w",
        "PFADD counter a b c d",
        "XADD stream 1-1 f v g w",
        "XADD stream 2-1 f v",
        "XADD stream 3-1 h v",
        "XADD stream 4-1 f v g w",
        "XDEL stream 3-1",
        "XGROUP CREATE stream group 0",
        "XREADGROUP GROUP group alice COUNT 2 STREAMS stream >",
        "XACK stream group 1-1",
        "XGROUP CREATECONSUMER stream group bob",
        "EXPIREAT hash 99999999999",
        "SELECT 3",
        "SET text pears",
        "SELECT 0",
    ] {
        say(to, line);
    }
    let code = "#!lua name=lib\nredis.register_function('f', function() return 7 end)";
    cmd("FUNCTION").arg("LOAD").arg(code).query::<Value>(to).unwrap();
    // More than are asked for at a time, in two databases.
    for db in [3, 0] {
        say(to, &format!("SELECT {db}"));
        (0..345).for_each(|n| drop(say(to, &format!("SET many:{n} {n}"))));
    }
    let long = "x".repeat(70_000);
    cmd("SET").arg("long").arg(&long).query::<Value>(to).unwrap();
    // Of the last one the value has more than 8 MiB: it goes in several commands.
    for (count, bytes) in [(600, 3), (20_000, 500)] {
        let name = |n: usize| format!("{n:0bytes$}");
        for from in (0..count).step_by(500) {
            let mut pipe = redis::pipe();
            for n in from..count.min(from + 500) {
                pipe.cmd("RPUSH").arg(format!("list:{count}")).arg(name(n)).ignore();
                pipe.cmd("SADD").arg(format!("set:{count}")).arg(name(n)).ignore();
                // Behind the others some zeros with a sign, which Redis keeps in large ones.
                let score = if n > 300 && n % 50 == 0 { -0.0 } else { n as f64 / 4.0 };
                pipe.cmd("ZADD").arg(format!("sorted:{count}")).arg(format!("{score}")).arg(name(n)).ignore();
                pipe.cmd("HSET").arg(format!("hash:{count}")).arg(name(n)).arg(n).ignore();
                pipe.cmd("XADD").arg(format!("stream:{count}")).arg(format!("{}-1", n + 1)).arg("f").arg(n).ignore();
            }
            pipe.query::<()>(to).unwrap();
        }
    }
}

/// All keys of a server, as it tells of them.
fn all_keys(url: &str) -> BTreeMap<(u64, Vec<u8>), String> {
    let mut from = connect(url).unwrap();
    let mut found = BTreeMap::new();
    for db in [0, 3] {
        cmd("SELECT").arg(db).query::<Value>(&mut from).unwrap();
        let keys: Vec<Vec<u8>> = cmd("KEYS").arg("*").query(&mut from).unwrap();
        for key in keys {
            let kind: String = cmd("TYPE").arg(&key).query(&mut from).unwrap();
            let (command, rest): (&str, &[&str]) = match kind.as_str() {
                "string" => ("GET", &[]),
                "list" => ("LRANGE", &["0", "-1"]),
                "set" => ("SMEMBERS", &[]),
                "zset" => ("ZRANGE", &["0", "-1", "WITHSCORES"]),
                "hash" => ("HGETALL", &[]),
                _ => ("XRANGE", &["-", "+"]),
            };
            let mut value: Value = cmd(command).arg(&key).arg(rest).query(&mut from).unwrap();
            if let Value::Array(elements) = &mut value {
                if kind == "hash" {
                    let mut pairs: Vec<String> = elements.chunks(2).map(|pair| format!("{pair:?}")).collect();
                    pairs.sort();
                    *elements = vec![Value::SimpleString(pairs.concat())];
                } else if kind == "set" {
                    elements.sort_by_cached_key(|element| format!("{element:?}"));
                }
            }
            let expires: i64 = cmd("PEXPIRETIME").arg(&key).query(&mut from).unwrap();
            found.insert((db, key), format!("{kind} {value:?} {}", expires / 10_000));
        }
    }
    found
}

/// The same, with groups and functions.
fn all(url: &str) -> BTreeMap<(u64, Vec<u8>), String> {
    let (mut found, mut from) = (all_keys(url), connect(url).unwrap());
    let group: String =
        format!("{:?}", say(&mut from, "XPENDING stream group - + 10 alice")).replace(char::is_numeric, "");
    let groups = format!("{:?}", say(&mut from, "XINFO GROUPS stream"));
    let called: i64 = cmd("FCALL").arg("f").arg(0).query(&mut from).unwrap();
    found.insert((99, Vec::new()), format!("{group} {groups} {called}"));
    found
}

#[track_caller]
fn assert_same(theirs: &BTreeMap<(u64, Vec<u8>), String>, ours: &BTreeMap<(u64, Vec<u8>), String>) {
    assert_eq!(theirs.keys().collect::<Vec<_>>(), ours.keys().collect::<Vec<_>>());
    for (key, value) in theirs {
        let short = |text: &str| text.chars().take(300).collect::<String>();
        assert!(value == &ours[key], "{key:?}: {} is not {}", short(value), short(&ours[key]));
    }
}

#[test]
fn all_that_redis_has_is_taken_over_and_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let redis = Redis::start(dir.path());
    fill(&mut connect(&redis.url).unwrap());
    let expected = all(&redis.url);
    say(&mut connect(&redis.url).unwrap(), "SAVE");

    // From a file; the second time all is there.
    let (_first, first) = serve(dir.path(), "first.cairn");
    let run = cairn(dir.path(), &format!("import --rdb dump.rdb --to {first}"));
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.out.contains("; 1 library of functions"), "{run:?}");
    assert_same(&expected, &all(&first));
    let run = cairn(dir.path(), &format!("import --rdb dump.rdb --to {first}"));
    assert!(run.code == 0 && run.out.contains("0 keys") && run.out.contains("keys that were there already"), "{run:?}");
    assert!(run.out.contains("1 library that was there already"), "{run:?}");
    let run = cairn(dir.path(), &format!("import --rdb dump.rdb --replace --to {first}"));
    assert!(run.code == 0 && !run.out.contains("already"), "{run:?}");
    assert_same(&expected, &all(&first));

    // From a server, and from ours to ours.
    let (_second, second) = serve(dir.path(), "second.cairn");
    let run = cairn(dir.path(), &format!("import --from {} --to {second}", redis.url));
    assert_eq!(run.code, 0, "{run:?}");
    assert_same(&expected, &all(&second));

    // To a file, which a real Redis loads.
    let back = dir.path().join("back");
    std::fs::create_dir(&back).unwrap();
    let run = cairn(dir.path(), &format!("export back/dump.rdb --from {second}"));
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(std::fs::read_dir(&back).unwrap().count(), 1, "nothing else stays");
    let loaded = Redis::start(&back);
    assert_same(&expected, &all(&loaded.url));
    let run = cairn(dir.path(), &format!("export back/dump.rdb --from {second}"));
    assert_eq!((run.code, run.failure().0), (2, "back/dump.rdb: there is a file already"), "{run:?}");
}

#[test]
fn what_cannot_be_taken_over_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let (mut served, url) = serve(dir.path(), "data.cairn");
    let none = cairn(dir.path(), &format!("import --rdb nothing.rdb --to {url}"));
    assert!(none.code == 2 && none.failure().0.contains("No such file"), "{none:?}");
    std::fs::write(dir.path().join("text"), "this is not a file of Redis").unwrap();
    let text = cairn(dir.path(), &format!("import --rdb text --to {url}"));
    assert!(text.code == 2 && text.failure().0.contains("begins with REDIS"), "{text:?}");

    // One key, then the end is missing: what was read before it is there.
    let whole = b"REDIS0010\xfe\x00\x00\x01k\x01v\xff";
    std::fs::write(dir.path().join("cut.rdb"), whole).unwrap();
    let cut = cairn(dir.path(), &format!("import --rdb cut.rdb --to {url}"));
    assert!(cut.code == 2 && cut.failure().0.contains("ends in the middle"), "{cut:?}");
    assert!(cut.failure().0.contains("(1 key copied before)"), "{cut:?}");
    assert_eq!(say(&mut connect(&url).unwrap(), "GETDEL k"), Value::BulkString(b"v".to_vec()));

    // What is no file of this kind, and what has more than one.
    std::fs::create_dir(dir.path().join("folder")).unwrap();
    std::fs::write(dir.path().join("log.aof"), "*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n").unwrap();
    std::fs::write(dir.path().join("mixed.aof"), [&whole[..], &[0; 8], b"*1\r\n$4\r\nPING\r\n"].concat()).unwrap();
    for (file, what, next) in [
        ("folder", "folder: it is a directory", "folder/dump.rdb"),
        ("log.aof", "it is an append-only file", "BGSAVE"),
        ("mixed.aof", "goes on behind its end", "BGSAVE"),
    ] {
        let run = cairn(dir.path(), &format!("import --rdb {file} --to {url}"));
        assert!(run.code == 2 && run.failure().0.contains(what) && run.failure().1.contains(next), "{run:?}");
    }
    say(&mut connect(&url).unwrap(), "DEL k");

    // A checksum of zero is none.
    std::fs::write(dir.path().join("whole.rdb"), [&whole[..], &[0; 8]].concat()).unwrap();
    let good = cairn(dir.path(), &format!("import --rdb whole.rdb --to {url}"));
    assert!(good.code == 0 && good.out.contains(": 1 key, "), "{good:?}");
    let both = cairn(dir.path(), &format!("import --rdb whole.rdb --from {url}"));
    assert_eq!(both.code, 2, "{both:?}");

    served.child.kill().unwrap();
    served.child.wait().unwrap();
    for line in [format!("import --rdb whole.rdb --to {url}"), format!("export out.rdb --from {url}")] {
        let away = cairn(dir.path(), &line);
        assert!(away.code == 2 && away.failure().1.contains("start the server"), "{away:?}");
    }
    assert!(!dir.path().join("out.rdb").exists());
}

#[test]
fn messages_name_what_is_wrong_and_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let redis = Redis::start(dir.path());
    let mut to = connect(&redis.url).unwrap();
    say(&mut to, "SET k v");
    say(&mut to, "SAVE");
    // A server that is full ends it: the next key would meet the same.
    let (_served, url) = serve(dir.path(), "data.cairn");
    say(&mut to, "CONFIG SET maxmemory 1");
    say(&mut connect(&url).unwrap(), "SET k v");
    let full = cairn(dir.path(), &format!("import --from {url} --to {} --replace", redis.url));
    assert!(
        full.code == 2 && full.failure().0.contains("k is refused: ") && full.failure().0.contains("OOM"),
        "{full:?}"
    );
    assert!(full.failure().1.starts_with("make room in the server"), "{full:?}");
    say(&mut to, "CONFIG SET maxmemory 0");
    // A wrong password, and none.
    say(&mut to, "CONFIG SET requirepass secret");
    for password in ["?pass=wrong", ""] {
        for line in [
            format!("export out.rdb --from {}{password}", redis.url),
            format!("import --rdb dump.rdb --to {}{password}", redis.url),
        ] {
            let run = cairn(dir.path(), &line);
            assert!(run.code == 2 && run.failure().1.contains("password in the address"), "{line}: {run:?}");
            assert!(!run.err.contains("wrong@") && !run.err.contains("pass=wrong"), "{run:?}");
        }
    }
    let run = cairn(dir.path(), &format!("import --rdb dump.rdb --to {url}/3"));
    assert!(run.code == 2 && run.failure().0.contains("names a database"), "{run:?}");
    // The file's own name, not the one that it has until it is whole.
    for (path, what) in [
        ("nowhere/out.rdb", "nowhere/out.rdb: create failed"),
        ("/dev/full/out.rdb", "/dev/full/out.rdb: create failed"),
    ] {
        let run = cairn(dir.path(), &format!("export {path} --from {url}"));
        assert!(run.code == 2 && run.failure().0.starts_with(what), "{run:?}");
    }
}

fn load(to: &mut Connection, library: &str, functions: &[&str]) {
    let code =
        functions.iter().map(|name| format!("redis.register_function('{name}', function() return '{library}' end)"));
    let code = format!("#!lua name={library}\n{}", code.collect::<Vec<_>>().join("\n"));
    cmd("FUNCTION").arg("LOAD").arg(code).query::<Value>(to).unwrap();
}

/// A library that is there does not keep the others away, and one that cannot be loaded is named.
#[test]
fn libraries_come_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let redis = Redis::start(dir.path());
    let mut from = connect(&redis.url).unwrap();
    load(&mut from, "one", &["f1"]);
    load(&mut from, "two", &["f2"]);
    load(&mut from, "three", &["f3"]);
    say(&mut from, "SET k v");
    say(&mut from, "SAVE");
    let (_served, url) = serve(dir.path(), "data.cairn");
    let mut to = connect(&url).unwrap();
    load(&mut to, "one", &["f1"]);
    load(&mut to, "other", &["f3"]);
    for source in ["--rdb dump.rdb".to_owned(), format!("--from {}", redis.url)] {
        for replace in ["", " --replace"] {
            say(&mut to, "DEL k");
            let _ = cmd("FUNCTION").arg("DELETE").arg("two").query::<Value>(&mut to);
            let run = cairn(dir.path(), &format!("import {source} --to {url}{replace}"));
            let counts = if replace.is_empty() {
                "; 1 library of functions; 1 library that was there already, and stays; 1 refused"
            } else {
                "; 2 libraries of functions; 1 refused"
            };
            assert!(run.code == 1 && run.out.contains(": 1 key, ") && run.out.contains(counts), "{run:?}");
            assert!(run.err.starts_with("refused: the library of functions #!lua name=three"), "{run:?}");
            assert!(run.err.contains("Function f3 already exists"), "{run:?}");
            for (function, library) in [("f1", "one"), ("f2", "two"), ("f3", "other")] {
                let called: String = cmd("FCALL").arg(function).arg(0).query(&mut to).unwrap();
                assert_eq!(called, library);
            }
        }
    }
}

/// A key that is refused is named, and all others come.
#[test]
fn one_refused_key_does_not_end_an_import() {
    let dir = tempfile::tempdir().unwrap();
    let mut file = server::rdb::FileWriter::new(Vec::new()).unwrap();
    let long = vec![b'x'; 70_000];
    let string = |text: &str| [&[text.len() as u8][..], text.as_bytes()].concat();
    let expiring = [&[24_u8][..], &[0; 8], &[1, 7], &string("field"), &string("value")].concat();
    let module = [&[7_u8, 0x81][..], &0x1234_5678_9abc_def0_u64.to_be_bytes(), &[1, 7, 0]].concat();
    let text = [&[0][..], &string("v")].concat();
    let twice = [&[2, 2][..], &string("a"), &string("a")].concat();
    file.key(0, b"first", None, &text).unwrap();
    file.key(0, &long, None, &text).unwrap();
    file.key(0, b"expiring", None, &expiring).unwrap();
    file.key(0, b"module", None, &module).unwrap();
    file.key(0, b"twice", None, &twice).unwrap();
    file.key(2, b"middle", None, &text).unwrap();
    file.key(99, b"nowhere", None, &text).unwrap();
    for n in 0..150 {
        file.key(99, format!("more:{n}").as_bytes(), None, &text).unwrap();
    }
    file.key(3, b"last", None, &text).unwrap();
    std::fs::write(dir.path().join("dump.rdb"), file.end().unwrap()).unwrap();
    let (_served, url) = serve(dir.path(), "data.cairn");
    let run = cairn(dir.path(), &format!("import --rdb dump.rdb --to {url}"));
    assert!(run.code == 1 && run.out.contains(": 3 keys, ") && run.out.contains("; 155 refused"), "{run:?}");
    for line in [
        "(69900 bytes more): ",
        "refused: expiring: a hash whose fields expire",
        "refused: module: a value of a module",
        "refused: twice: ",
        "refused: nowhere (database 99): ",
        "refused: 55 more",
    ] {
        assert!(run.err.contains(line), "{line}: {run:?}");
    }
    assert_eq!(run.err.lines().count(), 101, "{run:?}");
    let mut to = connect(&url).unwrap();
    for (db, key) in [(0, "first"), (2, "middle"), (3, "last")] {
        cmd("SELECT").arg(db).query::<Value>(&mut to).unwrap();
        assert_eq!(say(&mut to, &format!("GET {key}")), Value::BulkString(b"v".to_vec()));
        assert_eq!(say(&mut to, "DBSIZE"), Value::Int(1));
    }

    // Rights to some keys; and from a server, whose keys are as long as they like.
    let other = tempfile::tempdir().unwrap();
    let redis = Redis::start(other.path());
    let mut from = connect(&redis.url).unwrap();
    say(&mut from, "MSET a:1 v b:1 v a:2 v");
    cmd("SET").arg(&long).arg("v").query::<Value>(&mut from).unwrap();
    say(&mut to, "ACL SETUSER some on >secret ~a:* +@all");
    let to_some = url.replace("redis://", "redis://some:secret@");
    let run = cairn(dir.path(), &format!("import --from {} --to {to_some}", redis.url));
    assert!(run.code == 1 && run.out.contains(": 2 keys, ") && run.out.contains("; 2 refused"), "{run:?}");
    assert!(run.err.contains("refused: b:1: NOPERM "), "{run:?}");
    // The other way round: what cannot be read is not in the file.
    let from_some = to_some;
    say(&mut connect(&url).unwrap(), "SET b:2 v");
    let run = cairn(dir.path(), &format!("export some.rdb --from {from_some}"));
    assert!(run.code == 1 && run.out.contains(": 2 keys, "), "{run:?}");
    assert!(run.err.contains("refused: b:2: "), "{run:?}");
}

/// A name as an import makes it for what is not whole.
fn unfinished(number: u64) -> Vec<u8> {
    let name = format!("cairn:import:unfinished:{number:016x}").into_bytes();
    let sum = server::rdb::checksum(0, &name);
    [name, format!("{sum:016x}").into_bytes()].concat()
}

#[test]
fn parts_of_interrupted_imports_go_and_names_of_users_stay() {
    let dir = tempfile::tempdir().unwrap();
    let redis = Redis::start(dir.path());
    let mut from = connect(&redis.url).unwrap();
    // Of a user, however it begins; and a key so long that nothing can stand before it.
    let own = ["cairn:import:unfinished:", "cairn:import:unfinished:0123456789abcdef0123456789abcdef"];
    let longest = "k".repeat(65_512);
    for key in own {
        cmd("RPUSH").arg(key).arg("a").query::<Value>(&mut from).unwrap();
    }
    for key in [&longest[..], "big"] {
        let mut pipe = redis::pipe();
        for n in 0..40 {
            pipe.cmd("RPUSH").arg(key).arg(vec![b'0' + n; 250_000]).ignore();
        }
        pipe.query::<()>(&mut from).unwrap();
    }
    cmd("RPUSH").arg(unfinished(1)).arg("a").query::<Value>(&mut from).unwrap();
    let (_served, url) = serve(dir.path(), "data.cairn");
    let mut to = connect(&url).unwrap();
    for db in [3, 0] {
        say(&mut to, &format!("SELECT {db}"));
        cmd("RPUSH").arg(unfinished(2)).arg("a").query::<Value>(&mut to).unwrap();
        cmd("RPUSH").arg("cairn:import:unfinished:mine").arg("a").query::<Value>(&mut to).unwrap();
    }
    let run = cairn(dir.path(), &format!("import --from {} --to {url}", redis.url));
    assert!(run.code == 0 && run.out.contains(": 4 keys, "), "{run:?}");
    assert!(run.out.contains("1 part of an interrupted import, left out"), "{run:?}");
    let mut expected: Vec<Vec<u8>> = own.iter().map(|key| key.as_bytes().to_vec()).collect();
    expected.extend([b"big".to_vec(), longest.clone().into_bytes(), b"cairn:import:unfinished:mine".to_vec()]);
    expected.sort();
    let mut found: Vec<Vec<u8>> = cmd("KEYS").arg("*").query(&mut to).unwrap();
    found.sort();
    assert!(found == expected, "{} keys", found.len());
    for key in [&longest[..], "big"] {
        let [theirs, ours] =
            [&mut from, &mut to].map(|it| cmd("LRANGE").arg(key).arg(0).arg(-1).query::<Value>(it).unwrap());
        assert!(theirs == ours);
        assert_eq!(cmd("PTTL").arg(key).query::<i64>(&mut to).unwrap(), -1);
    }
    say(&mut to, "SELECT 3");
    let found: Vec<Vec<u8>> = cmd("KEYS").arg("*").query(&mut to).unwrap();
    assert_eq!(found, [b"cairn:import:unfinished:mine".to_vec()]);
    // Nor are they in a file.
    cmd("RPUSH").arg(unfinished(3)).arg("a").query::<Value>(&mut to).unwrap();
    let run = cairn(dir.path(), &format!("export out.rdb --from {url}"));
    assert!(run.code == 0 && run.out.contains(": 6 keys, ") && run.out.contains("left out"), "{run:?}");
}

/// With `--replace` what has expired at the source is not left at the target with an older value.
#[test]
fn what_has_expired_replaces_what_was_there() {
    let dir = tempfile::tempdir().unwrap();
    let mut file = server::rdb::FileWriter::new(Vec::new()).unwrap();
    let text = [0, 1, b'v'];
    let mut big = vec![1, 40];
    (0..40).for_each(|_| big.extend([&[0x80, 0, 4, 0, 0][..], &vec![b'x'; 262_144]].concat()));
    file.key(0, b"small", Some(1_000_000_000_000), &text).unwrap();
    file.key(0, b"big", Some(1_000_000_000_000), &big).unwrap();
    file.key(0, b"stays", Some(99_999_999_999_999), &text).unwrap();
    file.key(0, b"long", Some(99_999_999_999_999), &big).unwrap();
    std::fs::write(dir.path().join("dump.rdb"), file.end().unwrap()).unwrap();
    let (_served, url) = serve(dir.path(), "data.cairn");
    let mut to = connect(&url).unwrap();
    say(&mut to, "MSET small old big old other old");
    let run = cairn(dir.path(), &format!("import --rdb dump.rdb --to {url}"));
    assert!(run.code == 0 && run.out.contains(": 2 keys, ") && run.out.contains("2 keys that have expired"), "{run:?}");
    assert_eq!(say(&mut to, "EXISTS small big other"), Value::Int(3));
    let run = cairn(dir.path(), &format!("import --rdb dump.rdb --to {url} --replace"));
    assert!(run.code == 0 && run.out.contains(": 2 keys, ") && run.out.contains("2 keys that have expired"), "{run:?}");
    assert_eq!(say(&mut to, "EXISTS small big other"), Value::Int(1));
    for key in ["stays", "long"] {
        assert_eq!(say(&mut to, &format!("PEXPIRETIME {key}")), Value::Int(99_999_999_999_999));
    }
}

// ---- kills ------------------------------------------------------------------------------------------------------

/// What is killed in the middle.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Import,
    Source,
    Target,
}

/// `CAIRN_ROUNDS` rounds of each; `CAIRN_SEED` is where they begin.
#[test]
fn kills_lose_nothing() {
    let number = |name: &str, usual: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual);
    let (rounds, mut seed) = (number("CAIRN_ROUNDS", 1), number("CAIRN_SEED", 1));
    let dir = tempfile::tempdir().unwrap();
    let mut redis = Redis::start(dir.path());
    fill(&mut connect(&redis.url).unwrap());
    let expected = all(&redis.url);
    let keys: BTreeMap<_, _> = all_keys(&redis.url);
    assert!(keys.len() > 700);
    say(&mut connect(&redis.url).unwrap(), "SAVE");
    for victim in [Victim::Import, Victim::Source, Victim::Target] {
        for round in 0..rounds {
            // SplitMix64.
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (seed ^ seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let when = (mixed ^ mixed >> 27) % (keys.len() as u64 + 2);
            let name = format!("{victim:?}-{round}.cairn");
            let (mut served, mut url) = serve(dir.path(), &name);
            let mut import = Command::new(env!("CARGO_BIN_EXE_cairn"));
            import.args(["import", "--from", &redis.url, "--to", &url]).stdout(Stdio::null()).stderr(Stdio::null());
            let mut import = import.spawn().unwrap();
            // So many keys are there, or it has ended.
            let mut to = connect(&url).unwrap();
            let there = |to: &mut Connection| {
                let count = |to: &mut Connection, db: u64| {
                    cmd("SELECT").arg(db).query::<Value>(to).unwrap();
                    cmd("DBSIZE").query::<u64>(to).unwrap()
                };
                count(to, 0) + count(to, 3)
            };
            while there(&mut to) < when && import.try_wait().unwrap().is_none() {}
            match victim {
                Victim::Import => import.kill().unwrap(),
                Victim::Source => {
                    drop(redis);
                    redis = Redis::start(dir.path());
                }
                Victim::Target => {
                    served.child.kill().unwrap();
                    served.child.wait().unwrap();
                    (served, url) = serve(dir.path(), &name);
                }
            }
            let ended = import.wait().unwrap();
            // What is there is whole.
            let found = all_keys(&url);
            let at = format!(
                "{victim:?}, round {round}, seed {seed}, killed at {when} keys, {} there, {ended}",
                found.len()
            );
            for (key, value) in &found {
                let own = key.1.starts_with(b"cairn:import:unfinished:");
                assert!(own || keys.get(key) == Some(value), "{at}: {key:?} is not whole");
            }
            let run = cairn(dir.path(), &format!("import --from {} --to {url}", redis.url));
            assert_eq!(run.code, 0, "{at}: {run:?}");
            assert_same(&expected, &all(&url));
            drop(served);
            std::fs::remove_file(dir.path().join(&name)).unwrap();
        }
    }
}
