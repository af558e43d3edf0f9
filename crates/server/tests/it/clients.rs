//! Clients that others have written, as they are.

use std::path::{Path, PathBuf};
use std::process::Command;

use pmem::DomainChoice;
use redis::Commands;

use crate::support::{Running, run};

const DOMAINS: [DomainChoice; 2] = [DomainChoice::Emulated, DomainChoice::File];

#[test]
fn redis_cli_is_content() {
    for domain in DOMAINS {
        let running = Running::start(domain);
        let cli = |words: &str| {
            let out = run(Command::new("redis-cli").args(["-p", &running.port()]).args(words.split(' ')));
            out.trim_end().to_owned()
        };
        assert_eq!(cli("set apples 17"), "OK");
        assert_eq!(cli("incrby apples 3"), "20");
        assert!(cli("-3 hello").contains("proto 3"));
        assert_eq!(cli("rpush list a b c"), "3");
        assert_eq!(cli("lrange list 0 -1"), "a\nb\nc");
        assert_eq!(cli("--scan --pattern ap*"), "apples");
        assert!(cli("info server").contains("redis_version:7."));
        assert!(cli("--bigkeys").contains("Biggest   list found '\"list\"' has 3 items"));
        assert!(cli("nonsense").contains("ERR unknown command 'nonsense'"));
    }
}

#[test]
fn redis_benchmark_runs_through() {
    for domain in DOMAINS {
        let running = Running::start(domain);
        for pipeline in ["1", "16"] {
            let tests = "ping,set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,lrange_100,mset";
            let mut command = Command::new("redis-benchmark");
            command.args([
                "-p",
                &running.port(),
                "-q",
                "-n",
                "500",
                "-c",
                "20",
                "-r",
                "100",
                "-P",
                pipeline,
                "-t",
                tests,
            ]);
            let out = run(&mut command);
            assert!(!out.contains("Error") && out.contains("ZPOPMIN"), "{out}");
        }
    }
}

const PYTHON: &str = r#"
import sys, redis
for protocol in (2,):
    r = redis.Redis(port=int(sys.argv[1]), decode_responses=True)
    r.flushall()
    assert r.ping() and r.set("a", 1) and r.incr("a") == 2 and r.get("a") == "2"
    assert r.set("a", 5, nx=True) is None and r.set("b", "x", ex=100) and 0 < r.ttl("b") <= 100
    assert r.hset("h", mapping={"x": 1, "y": 2}) == 2 and r.hgetall("h") == {"x": "1", "y": "2"}
    assert r.rpush("l", 1, 2, 3) == 3 and r.lrange("l", 0, -1) == ["1", "2", "3"] and r.blpop("l", 1) == ("l", "1")
    assert r.sadd("s", 1, 2) == 2 and r.smembers("s") == {"1", "2"}
    assert r.zadd("z", {"p": 1.5, "q": 2}) == 2 and r.zrange("z", 0, -1, withscores=True) == [("p", 1.5), ("q", 2.0)]
    with r.pipeline(transaction=True) as p:
        p.set("t", 1).incr("t").hlen("h")
        assert p.execute() == [True, 2, 2]
    def double(p):
        value = int(p.get("t"))
        p.multi()
        p.set("t", value * 2)
    assert r.transaction(double, "t") == [True] and r.get("t") == "4"
    with r.pipeline() as p:
        p.watch("t")
        r.set("t", 9)
        p.multi()
        p.set("t", 0)
        try:
            p.execute()
            raise SystemExit("WATCH was not heeded")
        except redis.WatchError:
            pass
    assert sorted(r.scan_iter(count=2)) == ["a", "b", "h", "l", "s", "t", "z"]
    assert r.info()["redis_version"].startswith("7.") and r.config_get("appendfsync") == {"appendfsync": "always"}
    assert r.dbsize() == 7 and r.type("z") == "zset" and r.client_id() > 0
    first = r.xadd("x", {"n": 1})
    second = r.xadd("x", {"n": 2}, maxlen=10, approximate=False)
    assert r.xlen("x") == 2 and r.xrange("x", min=second) == [(second, {"n": "2"})] and r.xrevrange("x", count=1)[0][0] == second
    assert r.xread({"x": first}, count=5, block=10) == [["x", [(second, {"n": "2"})]]]
    assert r.xgroup_create("x", "g", id="0") and r.xgroup_create("x2", "g", mkstream=True)
    assert r.xreadgroup("g", "me", {"x": ">", "x2": ">"}, count=1) == [["x", [(first, {"n": "1"})]]]
    assert r.xreadgroup("g", "you", {"x": ">"}, block=10) == [["x", [(second, {"n": "2"})]]]
    assert r.xreadgroup("g", "you", {"x": ">"}, block=10) == []
    assert r.xpending("x", "g") == {"pending": 2, "min": first, "max": second, "consumers": [{"name": "me", "pending": 1}, {"name": "you", "pending": 1}]}
    assert [(p["message_id"], p["consumer"], p["times_delivered"]) for p in r.xpending_range("x", "g", "-", "+", 9)] == [(first, "me", 1), (second, "you", 1)]
    assert r.xclaim("x", "g", "you", 0, [first], justid=True) == [first] and r.xautoclaim("x", "g", "me", 0, count=1)[1] == [(first, {"n": "1"})]
    assert r.xack("x", "g", first, second) == 2 and r.xinfo_groups("x")[0]["lag"] == 0 and r.xinfo_stream("x")["length"] == 2
    assert {c["name"]: c["pending"] for c in r.xinfo_consumers("x", "g")} == {"me": 0, "you": 0}
    assert r.xinfo_stream("x", full=True)["groups"][0]["pel-count"] == 0 and r.xgroup_delconsumer("x", "g", "me") == 0
    assert r.xdel("x", first) == 1 and r.xtrim("x", maxlen=0, approximate=False) == 1 and r.xgroup_destroy("x", "g") == 1
    assert r.type("x") == "stream" and r.delete("x", "x2") == 2
    other = redis.Redis(port=int(sys.argv[1]), decode_responses=True)
    news = r.pubsub()
    news.subscribe("news", **{"sport": lambda message: heard.append(message["data"])})
    news.psubscribe("n*")
    heard = []
    for wanted in [("subscribe", "news", 1), ("subscribe", "sport", 2), ("psubscribe", "n*", 3)]:
        said = news.get_message(timeout=20)
        assert (said["type"], said["channel"], said["data"]) == wanted, said
    assert other.publish("news", "a") == 2 and other.publish("sport", "b") == 1 and other.publish("other", "c") == 0
    assert news.get_message(timeout=20) == {"type": "message", "pattern": None, "channel": "news", "data": "a"}
    assert news.get_message(timeout=20) == {"type": "pmessage", "pattern": "n*", "channel": "news", "data": "a"}
    assert news.get_message(timeout=20) is None and heard == ["b"]
    assert other.pubsub_channels("s*") == ["sport"] and other.pubsub_numpat() == 1
    assert other.pubsub_numsub("news", "none") == [("news", 1), ("none", 0)]
    news.ping("still there")
    assert news.get_message(timeout=20)["data"] == "still there"
    with other.pipeline(transaction=True) as p:
        p.set("t", 1).publish("news", "committed")
        assert p.execute() == [True, 2]
    assert news.get_message(timeout=20)["data"] == "committed"
    news.unsubscribe()
    news.punsubscribe()
    listened = [said["type"] for said in news.listen()]
    assert listened == ["pmessage", "unsubscribe", "unsubscribe", "punsubscribe"], listened
    news.close()
    lock = r.lock("lock", timeout=100)
    assert lock.acquire() and lock.locked() and lock.owned()
    assert not other.lock("lock", timeout=100).acquire(blocking=False)
    assert lock.extend(50) and 100 < r.ttl("lock") <= 150 and lock.reacquire() and r.ttl("lock") <= 100
    lock.release()
    assert not r.exists("lock")
    lock.acquire()
    r.set("lock", "another's")
    try:
        lock.release()
        raise SystemExit("somebody else's lock was released")
    except redis.exceptions.LockError:
        pass
    add = r.register_script("return redis.call('incrby', KEYS[1], ARGV[1])")
    assert add(keys=["sum"], args=[5]) == 5
    r.script_flush()
    assert add(keys=["sum"], args=[2]) == 7 and r.script_exists(add.sha) == [True]
    with r.pipeline(transaction=True) as p:
        add(keys=["sum"], args=[1], client=p)
        p.get("sum")
        assert p.execute() == [8, "8"]
print("fine")
"#;

#[test]
fn redis_py_is_content() {
    for domain in DOMAINS {
        let running = Running::start(domain);
        let out = run(Command::new("/usr/bin/python3").args(["-c", PYTHON, &running.port()]));
        assert_eq!(out.trim(), "fine");
    }
}

#[test]
fn redis_rs_is_content() {
    for protocol in ["", "?protocol=resp3"] {
        let running = Running::start(DomainChoice::Emulated);
        let client = redis::Client::open(format!("redis://{}/1{protocol}", running.address())).unwrap();
        let mut c = client.get_connection().unwrap();
        let () = c.set("a", 41).unwrap();
        let (a, missing): (i64, Option<i64>) = redis::pipe().incr("a", 1).get("missing").query(&mut c).unwrap();
        assert_eq!((a, missing), (42, None));
        let () = c.hset_multiple("h", &[("x", 1), ("y", 2)]).unwrap();
        let all: std::collections::BTreeMap<String, i64> = c.hgetall("h").unwrap();
        assert_eq!(all.into_iter().collect::<Vec<_>>(), [("x".to_owned(), 1), ("y".to_owned(), 2)]);
        let () = c.zadd("z", "m", 1.5).unwrap();
        assert_eq!(c.zscore::<_, _, Option<f64>>("z", "m").unwrap(), Some(1.5));
        let both: (i64, i64) = redis::transaction(&mut c, &["a"], |c, pipe| {
            let a: i64 = c.get("a")?;
            pipe.set("a", a * 2).ignore().get("a").llen("none").query(c)
        })
        .unwrap();
        assert_eq!(both, (84, 0));
        let id: String = c.xadd("x", "*", &[("n", 1)]).unwrap();
        let () = c.xgroup_create("x", "g", "0").unwrap();
        let options = redis::streams::StreamReadOptions::default().group("g", "me").count(3).block(10);
        let read: redis::streams::StreamReadReply = c.xread_options(&["x"], &[">"], &options).unwrap();
        assert_eq!((read.keys.len(), &read.keys[0].ids[0].id), (1, &id));
        assert_eq!(read.keys[0].ids[0].get::<i64>("n"), Some(1));
        let pending: redis::streams::StreamPendingReply = c.xpending("x", "g").unwrap();
        assert_eq!(pending.count(), 1);
        let (acked, info): (i64, redis::streams::StreamInfoStreamReply) =
            (c.xack("x", "g", &[&id]).unwrap(), c.xinfo_stream("x").unwrap());
        assert_eq!((acked, info.length, info.last_generated_id), (1, 1, id));
        let () = c.del("x").unwrap();
        let mut subscribing = client.get_connection().unwrap();
        let mut news = subscribing.as_pubsub();
        news.subscribe("news").unwrap();
        news.psubscribe("n*").unwrap();
        assert_eq!(c.publish::<_, _, i64>("news", "a").unwrap(), 2);
        let said = [news.get_message().unwrap(), news.get_message().unwrap()];
        let patterns = said.each_ref().map(|said| said.get_pattern::<Option<String>>().unwrap());
        assert_eq!(patterns, [None, Some("n*".to_owned())]);
        assert!(said.iter().all(|said| said.get_channel_name() == "news" && said.get_payload_bytes() == b"a"));
        let mut keys: Vec<String> = c.scan().unwrap().map(|key| key.unwrap()).collect();
        keys.sort();
        assert_eq!(keys, ["a", "h", "z"]);
    }
}

#[test]
fn go_ycsb_runs_through() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let ycsb = std::env::var_os("CAIRN_YCSB").map_or_else(|| root.join("target/tools/ycsb"), Into::into);
    let running = Running::start(DomainChoice::File);
    let address = format!("redis.addr={}", running.address());
    for datatype in ["hash", "string", "json"].iter().take(2) {
        for phase in ["load", "run"] {
            let mut command = Command::new(&ycsb);
            command.args([phase, &address, &format!("redis.datatype={datatype}"), &format!("table={datatype}")]);
            command.args(
                "recordcount=500 operationcount=2000 threadcount=8 readproportion=0.5 updateproportion=0.5".split(' '),
            );
            let out = run(&mut command);
            assert!(out.contains("TOTAL") && !out.contains("ERROR"), "{out}");
        }
    }
}

/// A certificate, signed by another one or its own root, and its key.
fn certificate(dir: &Path, name: &str, root: Option<&(PathBuf, PathBuf)>) -> (PathBuf, PathBuf) {
    let (certificate, key) = (dir.join(format!("{name}.pem")), dir.join(format!("{name}.key")));
    let mut openssl = Command::new("openssl");
    openssl.args(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost".split(' '),
    );
    if let Some((root, root_key)) = root {
        openssl
            .arg("-CA")
            .arg(root)
            .arg("-CAkey")
            .arg(root_key)
            .args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    }
    openssl
        .args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&certificate);
    run(&mut openssl);
    (certificate, key)
}

#[test]
fn tls_is_spoken_to_who_may() {
    let dir = tempfile::tempdir().unwrap();
    let roots = ["root", "other-root"].map(|name| self::certificate(dir.path(), name, None));
    let (certificate, key) = self::certificate(dir.path(), "own", Some(&roots[0]));
    let (others, others_key) = self::certificate(dir.path(), "other", Some(&roots[1]));
    for clients in [None, Some(roots[0].0.clone())] {
        let tls = server::Tls { certificate: certificate.clone(), key: key.clone(), clients: clients.clone() };
        let secret = |config: server::Config| server::Config {
            redis: Vec::new(),
            redis_tls: vec!["127.0.0.1:0".parse().unwrap()],
            tls: Some(tls),
            ..config
        };
        let running = Running::with(DomainChoice::Emulated, secret, |options| options);
        let cli = |with: &[&Path], tls: bool| {
            let mut command = Command::new("redis-cli");
            command.args(["-h", "127.0.0.1", "-p", &running.port()]);
            if tls {
                command.arg("--tls").arg("--cacert").arg(&roots[0].0);
            }
            if let [certificate, key] = with {
                command.arg("--cert").arg(certificate).arg("--key").arg(key);
            }
            let output = command.args(["set", "apples", "17"]).output().unwrap();
            String::from_utf8_lossy(&output.stdout).trim() == "OK"
        };
        assert!(cli(&[&certificate, &key], true));
        assert_eq!(cli(&[], true), clients.is_none(), "without a certificate");
        assert_eq!(cli(&[&others, &others_key], true), clients.is_none(), "with one that nobody knows");
        assert!(!cli(&[], false), "in plain text");
    }
    let wrong = server::Tls { certificate: others, key, clients: None };
    let store = kv::Store::open(dir.path().join("store")).unwrap();
    let config = server::Config {
        redis_tls: vec!["127.0.0.1:0".parse().unwrap()],
        tls: Some(wrong),
        ..server::Config::default()
    };
    let refused = server::Server::start(config, Box::new(server::engine::Kv::new(store)));
    assert!(matches!(refused, Err(server::Error::Tls(_))), "a key that does not fit");
}
