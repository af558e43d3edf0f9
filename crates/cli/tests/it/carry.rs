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
                pipe.cmd("ZADD").arg(format!("sorted:{count}")).arg(n as f64 / 4.0).arg(name(n)).ignore();
                pipe.cmd("HSET").arg(format!("hash:{count}")).arg(name(n)).arg(n).ignore();
                pipe.cmd("XADD").arg(format!("stream:{count}")).arg(format!("{}-1", n + 1)).arg("f").arg(n).ignore();
            }
            pipe.query::<()>(to).unwrap();
        }
    }
}

/// All that a server has, as it tells of it.
fn all(url: &str) -> BTreeMap<(u64, Vec<u8>), String> {
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
    cmd("SELECT").arg(0).query::<Value>(&mut from).unwrap();
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
    assert!(run.out.contains("1 libraries of functions"), "{run:?}");
    assert_same(&expected, &all(&first));
    let run = cairn(dir.path(), &format!("import --rdb dump.rdb --to {first}"));
    assert!(run.code == 0 && run.out.contains("0 keys") && run.out.contains("were there already"), "{run:?}");
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

    // A checksum of zero is none.
    std::fs::write(dir.path().join("whole.rdb"), [&whole[..], &[0; 8]].concat()).unwrap();
    let good = cairn(dir.path(), &format!("import --rdb whole.rdb --to {url}"));
    assert!(good.code == 0 && good.out.contains("1 keys"), "{good:?}");
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
