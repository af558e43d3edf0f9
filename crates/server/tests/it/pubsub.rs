//! Messages go to those that subscribe, in order, and no client waits for a subscriber that does not read.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use pmem::DomainChoice;
use server::Step;

use crate::differential::Redis;
use crate::support::{AtCommit, Client, Reply, Running, Store, WAIT_LIMIT, request, start, told, until, usual};

const DOMAINS: [DomainChoice; 2] = [DomainChoice::Emulated, DomainChoice::File];

fn texts(words: &[&str]) -> Reply {
    let number = |word: &str| word.strip_prefix(':').map(|number| Reply::Int(number.parse().unwrap()));
    Reply::Array(words.iter().map(|word| number(word).unwrap_or_else(|| Reply::text(word))).collect())
}

/// `INFO` has that line.
fn is_told(client: &mut Client, line: &str) -> bool {
    matches!(client.say("INFO"), Reply::Bulk(text) if String::from_utf8_lossy(&text).lines().any(|l| l == line))
}

// ---- as Redis -------------------------------------------------------------------------------------------------

/// What comes back for commands, and for a `PING` behind them, which is how its end is known.
fn said(stream: &mut (impl Read + Write + ?Sized), line: &str) -> String {
    const END: &str = "the-end\r\n";
    let requests = line.split(';').flat_map(|one| request(&one.split(' ').collect::<Vec<_>>()));
    stream.write_all(&requests.chain(request(&["PING", END.trim_end()])).collect::<Vec<_>>()).unwrap();
    let (mut said, mut some) = (Vec::new(), [0; 4096]);
    while !said.ends_with(END.as_bytes()) {
        let count = stream.read(&mut some).unwrap();
        assert!(count > 0, "{line}: the connection ended behind {}", said.escape_ascii());
        said.extend_from_slice(&some[..count]);
    }
    String::from_utf8(said).unwrap()
}

/// What is published in a transaction, to oneself: where in its answer the message stands differs, but it is told once, and before all that comes behind.
#[test]
fn a_transaction_tells_its_own_connection_before_it_subscribes_to_nothing() {
    const MESSAGE: &str = ">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n";
    let dir = tempfile::tempdir().unwrap();
    let _redis = Redis::start(dir.path()).expect("redis-server is not installed; run `make setup`");
    for domain in DOMAINS {
        let running = Running::start(domain);
        let mut ours = TcpStream::connect(running.address()).unwrap();
        let mut theirs = UnixStream::connect(dir.path().join("redis.sock")).unwrap();
        for last in ["PING", "UNSUBSCRIBE", "RESET", "CLIENT REPLY SKIP;RESET"] {
            let line = format!("HELLO 3;SUBSCRIBE a;MULTI;PUBLISH a x;SET k v;EXEC;{last}");
            let hear = |stream: &mut dyn ReadWrite| {
                let said = said(stream, &line);
                let (before, behind) = said.split_once(MESSAGE).unwrap_or_else(|| panic!("{line}: {said}"));
                assert!(!behind.contains(MESSAGE), "{line}: {said}");
                // `HELLO` tells which server answers.
                let before = before.split_once("subscribe\r\n").unwrap().1;
                format!("{before}{behind}")
            };
            assert_eq!(hear(&mut ours), hear(&mut theirs), "{domain:?}: {line}");
        }
    }
}

trait ReadWrite: Read + Write {}
impl<S: Read + Write> ReadWrite for S {}

/// Of several names in no order there is one at most, so that all of it is the same.
const SCRIPT: &[&str] = &[
    "UNSUBSCRIBE",
    "PUNSUBSCRIBE a b",
    "SUBSCRIBE a b a",
    "GET k",
    "PUBLISH a x",
    "CLIENT REPLY OFF;SUBSCRIBE q;PUBLISH q silent;GET k;CLIENT REPLY ON",
    "CLIENT REPLY SKIP;UNSUBSCRIBE b",
    "CLIENT REPLY SKIP;PUBLISH a skipped",
    "PUBSUB HELP",
    "CLIENT KILL TYPE other",
    "CLIENT KILL TYPE master",
    "PSUBSCRIBE a* q?",
    "PUBLISH a y",
    "PUBLISH none y",
    "SSUBSCRIBE s",
    "SPUBLISH s z",
    "SPUBLISH a z",
    "PUBSUB NUMSUB a b c s",
    "PUBSUB NUMPAT",
    "PUBSUB SHARDNUMSUB s a",
    "PUBSUB CHANNELS q*",
    "PUBSUB SHARDCHANNELS",
    "PUBSUB NUMSUB",
    "PUBSUB",
    "SUBSCRIBE",
    "PUBLISH a",
    "HELLO 3",
    "PING a b",
    "UNSUBSCRIBE none a",
    "PUNSUBSCRIBE q?",
    "SUNSUBSCRIBE",
    "SET k v",
    "PUNSUBSCRIBE",
    "UNSUBSCRIBE",
    "UNSUBSCRIBE",
    "GET k",
    "SUBSCRIBE a",
    "PUBLISH a x;CLIENT REPLY SKIP;RESET",
    "GET k",
    "PUBSUB NUMSUB a",
    "PUBLISH a x",
];

#[test]
fn replies_are_those_of_redis() {
    let dir = tempfile::tempdir().unwrap();
    let _redis = Redis::start(dir.path()).expect("redis-server is not installed; run `make setup`");
    for domain in DOMAINS {
        for hello in ["HELLO 2", "HELLO 3"] {
            let running = Running::start(domain);
            let mut ours = TcpStream::connect(running.address()).unwrap();
            let mut theirs = UnixStream::connect(dir.path().join("redis.sock")).unwrap();
            ours.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
            theirs.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
            said(&mut ours, hello);
            said(&mut theirs, hello);
            said(&mut theirs, "DEL k");
            for line in SCRIPT.iter().filter(|line| !line.starts_with("HELLO") || hello.ends_with('2')) {
                assert_eq!(said(&mut ours, line), said(&mut theirs, line), "{domain:?}, {hello}: {line}");
            }
        }
    }
}

// ---- several clients ------------------------------------------------------------------------------------------

#[test]
fn messages_come_in_the_order_of_their_publishers() {
    const PUBLISHERS: usize = 3;
    const EACH: usize = 300;
    for domain in DOMAINS {
        let running = Running::start(domain);
        let mut hearing: Vec<Client> = (0..6).map(|_| running.client()).collect();
        for (at, client) in hearing.iter_mut().enumerate() {
            if at % 2 == 0 {
                client.say("HELLO 3");
            }
            let (line, word) = if at < 4 { ("SUBSCRIBE news", "subscribe") } else { ("PSUBSCRIBE n*", "psubscribe") };
            assert_eq!(client.say(line), texts(&[word, line.split(' ').nth(1).unwrap(), ":1"]));
        }
        std::thread::scope(|scope| {
            for publisher in 0..PUBLISHERS {
                let mut client = running.client();
                scope.spawn(move || {
                    for from in (0..EACH).step_by(20) {
                        let some =
                            (from..from + 20).flat_map(|n| request(&["PUBLISH", "news", &format!("{publisher} {n}")]));
                        client.send(&some.collect::<Vec<_>>());
                        (0..20).for_each(|_| assert_eq!(client.reply(), Reply::Int(6)));
                    }
                });
            }
        });
        let heard: Vec<Vec<String>> = hearing.iter_mut().map(|client| payloads(client, PUBLISHERS * EACH)).collect();
        for heard in &heard {
            for publisher in 0..PUBLISHERS {
                let own = heard.iter().filter_map(|text| text.strip_prefix(&format!("{publisher} ")));
                assert!(own.map(|n| n.parse::<usize>().unwrap()).eq(0..EACH), "{heard:?}");
            }
        }
        assert!(heard.windows(2).all(|pair| pair[0] == pair[1]), "all of them see the same order");
    }
}

/// What the next messages say.
fn payloads(client: &mut Client, count: usize) -> Vec<String> {
    let payload = |reply| match reply {
        Reply::Array(words) => match words.last() {
            Some(Reply::Bulk(text)) => String::from_utf8_lossy(text).into_owned(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    (0..count).map(|_| payload(client.reply())).collect()
}

#[test]
fn who_subscribes_does_all_else_with_version_three() {
    for domain in DOMAINS {
        let running = Running::start(domain);
        let mut other = running.client();
        let mut client = running.client();
        client.say("HELLO 3");
        assert_eq!(client.say("SUBSCRIBE news"), texts(&["subscribe", "news", ":1"]));
        assert_eq!(client.say("SET k v"), Reply::ok());
        // Messages come while it waits for an element, too.
        client.send(b"BLPOP list 0\r\n");
        until("it waits", || is_told(&mut other, "blocked_clients:1"));
        for n in ["1", "2"] {
            assert_eq!(other.say(&format!("PUBLISH news {n}")), Reply::Int(1));
            assert_eq!(client.reply(), texts(&["message", "news", n]));
        }
        other.say("RPUSH list x");
        assert_eq!(client.reply(), texts(&["list", "x"]));
        // And behind the answer to what they were published with.
        client.send(b"MULTI\r\nSET k w\r\nPUBLISH news 3\r\nPUBLISH none 3\r\nEXEC\r\n");
        let queued = Reply::Simple("QUEUED".to_owned());
        let said: Vec<Reply> = (0..5).map(|_| client.reply()).collect();
        assert_eq!(said[..4], [Reply::ok(), queued.clone(), queued.clone(), queued]);
        assert_eq!(said[4], Reply::Array(vec![Reply::ok(), Reply::Int(1), Reply::Int(0)]));
        assert_eq!(client.reply(), texts(&["message", "news", "3"]));
        assert_eq!(client.say("UNSUBSCRIBE"), texts(&["unsubscribe", "news", ":0"]));
        assert_eq!(other.say("PUBLISH news 4"), Reply::Int(0));
        // From now on it is a connection as others are.
        for n in 0..3 {
            assert_eq!(client.say(&format!("SET k {n}")), Reply::ok());
            assert_eq!(client.say("GET k"), Reply::text(&n.to_string()));
        }
        client.send(b"MULTI\r\nSUBSCRIBE news\r\nEXEC\r\n");
        assert_eq!(client.reply(), Reply::ok());
        assert!(client.reply().error().contains("not allowed inside a transaction"));
        assert!(client.reply().error().starts_with("EXECABORT"));
    }
}

#[test]
fn who_leaves_subscribes_to_nothing() {
    for domain in DOMAINS {
        let running = Running::start(domain);
        let mut other = running.client();
        let mut client = running.client();
        client.say("SUBSCRIBE a");
        client.say("PSUBSCRIBE b*");
        client.say("SSUBSCRIBE c");
        for line in ["pubsub_channels:1", "pubsub_patterns:1", "pubsubshard_channels:1"] {
            assert!(is_told(&mut other, line), "{line}");
        }
        let Reply::Bulk(list) = other.say("CLIENT LIST TYPE pubsub") else { panic!("no list") };
        let list = String::from_utf8_lossy(&list).into_owned();
        assert!(list.lines().count() == 1 && list.contains(" flags=P db=0 sub=1 psub=1 ssub=1 "), "{list}");
        drop(client);
        until("it is gone", || is_told(&mut other, "pubsub_channels:0"));
        for line in ["PUBLISH a x", "PUBLISH bb x", "SPUBLISH c x", "PUBSUB NUMPAT"] {
            assert_eq!(other.say(line), Reply::Int(0), "{line}");
        }
    }
}

/// No client hears of a transaction that is not durable, or that has not been.
#[test]
fn messages_of_a_transaction_wait_until_it_is_durable() {
    DOMAINS.into_iter().for_each(|domain| heard_behind_the_commit(None, domain));
}

pub fn heard_behind_the_commit(step: Option<Step>, domain: DomainChoice) {
    let dir = tempfile::tempdir().unwrap();
    let engine = Store::Kv.open(dir.path().join("store"), pmem::Options::new().domain(domain));
    let ((enter, entered), (release, released)) = (channel(), channel::<()>());
    let (held, holds) = (Mutex::new((enter, released)), Arc::new(AtomicBool::new(false)));
    let once = holds.clone();
    let at_commit: AtCommit = Box::new(move || {
        if once.swap(false, SeqCst) {
            let (enter, released) = &*held.lock().unwrap();
            enter.send(()).unwrap();
            released.recv_timeout(WAIT_LIMIT).unwrap_or(()); // a test that has failed is gone
        }
    });
    let server = start(step, usual(), told(engine, at_commit));
    // One after the other: they have a thread each.
    let (mut hearing, mut client) = (Client::to(server.redis()[0]), Client::to(server.redis()[0]));
    hearing.say("HELLO 3");
    client.say("PING");
    assert_eq!(hearing.say("SUBSCRIBE news"), texts(&["subscribe", "news", ":1"]));
    holds.store(true, SeqCst);
    client.send(b"MULTI\r\nSET k v\r\nPUBLISH news told\r\nEXEC\r\n");
    entered.recv_timeout(WAIT_LIMIT).unwrap();
    for word in ["a", "b"] {
        assert_eq!(hearing.ask(&["PING", word]), Reply::text(word), "heard before the commit");
    }
    release.send(()).unwrap();
    assert_eq!(hearing.reply(), texts(&["message", "news", "told"]));
    (0..4).for_each(|_| drop(client.reply()));
    // What was watched has changed; what was discarded.
    client.say("WATCH k");
    client.say("SET k w");
    for line in ["MULTI", "PUBLISH news a", "EXEC", "MULTI", "PUBLISH news b", "DISCARD", "MULTI", "GET", "EXEC"] {
        client.say(line);
    }
    assert_eq!(client.say("PUBLISH news last"), Reply::Int(1));
    assert_eq!(hearing.reply(), texts(&["message", "news", "last"]));
    drop((hearing, client));
    server.stop();
    server.join().unwrap();
}

// ---- limits ---------------------------------------------------------------------------------------------------

/// Bytes that are kept for subscribers, as `CLIENT LIST` tells.
fn kept(client: &mut Client) -> usize {
    let Reply::Bulk(list) = client.say("CLIENT LIST TYPE pubsub") else { panic!("no list") };
    let list = String::from_utf8_lossy(&list).into_owned();
    list.split(' ').filter_map(|word| word.strip_prefix("omem=")).map(|bytes| bytes.parse::<usize>().unwrap()).sum()
}

#[test]
fn a_subscriber_who_does_not_read_is_cut_off() {
    const MOST: usize = 1 << 20;
    for domain in DOMAINS {
        let running = Running::start(domain);
        let (mut other, mut reads, mut slow) = (running.client(), running.client(), running.client());
        assert_eq!(other.ask(&["CONFIG", "SET", "client-output-buffer-limit", "pubsub 1mb 0 0"]), Reply::ok());
        for client in [&mut reads, &mut slow] {
            assert_eq!(client.say("SUBSCRIBE news"), texts(&["subscribe", "news", ":1"]));
        }
        let text = "x".repeat(100_000);
        let publish = request(&["PUBLISH", "news", &text]);
        // The system keeps some megabytes itself.
        let mut sent = 0;
        loop {
            other.send(&publish);
            let heard = other.reply();
            assert_eq!(reads.reply(), texts(&["message", "news", &text]), "{sent}");
            sent += 1;
            assert!(sent < 1000 && kept(&mut other) <= 2 * MOST, "{sent}");
            if heard == Reply::Int(1) {
                break;
            }
        }
        assert!(sent > 10 && is_told(&mut other, "client_output_buffer_limit_disconnections:1"));
        until(
            "it is gone",
            || !matches!(other.say("PUBSUB NUMSUB news"), Reply::Array(two) if two[1] == Reply::Int(2)),
        );
        // What it reads then is whole as far as it goes.
        let mut rest = Vec::new();
        drop(slow.0.get_mut().read_to_end(&mut rest));
        assert!(rest.len() < sent * 100_100);
    }
}

#[test]
fn a_subscriber_who_is_too_slow_for_too_long_is_cut_off() {
    let running = Running::start(DomainChoice::Emulated);
    let (mut other, mut slow) = (running.client(), running.client());
    assert_eq!(other.ask(&["CONFIG", "SET", "client-output-buffer-limit", "pubsub 0 100kb 1"]), Reply::ok());
    slow.say("SUBSCRIBE news");
    let publish = request(&["PUBLISH", "news", &"x".repeat(100_000)]);
    until("it is cut off", || {
        // What the system takes is not enough; nor what is about to be sent. Then nothing more is published.
        while kept(&mut other) < 200_000 && !is_told(&mut other, "client_output_buffer_limit_disconnections:1") {
            other.send(&publish);
            other.reply();
        }
        is_told(&mut other, "client_output_buffer_limit_disconnections:1")
    });
    until("it is gone", || other.say("PUBSUB NUMSUB news") == texts(&["news", ":0"]));
}

#[test]
fn limits_are_read_as_redis_reads_them() {
    let running = Running::start(DomainChoice::Emulated);
    let mut client = running.client();
    let mut set = |value: &str| client.ask(&["CONFIG", "SET", "client-output-buffer-limit", value]);
    assert!(set("pubsub 1mb 1kb").error().contains("Wrong number of arguments in buffer limit"));
    assert!(set("").error().contains("Wrong number of arguments in buffer limit"));
    assert!(set("other 1mb 1kb 1").error().contains("Invalid client class"));
    assert!(set("pubsub x 1kb 1").error().contains("Error in hard, soft or soft_seconds"));
    assert!(set("pubsub 1 1kb -1").error().contains("Error in hard, soft or soft_seconds"));
    assert!(set("normal 1mb 1kb 1").error().contains("only the class pubsub"));
    assert_eq!(set("normal 0 0 0 replica 256mb 64mb 60 pubsub 2mb 1kb 5"), Reply::ok());
    let now = "normal 0 0 0 slave 0 0 0 pubsub 2097152 1024 5";
    assert_eq!(client.say("CONFIG GET client-output-buffer-limit"), texts(&["client-output-buffer-limit", now]));
    // No client fills the memory with names.
    let names: Vec<String> = (0..100_001).map(|n| n.to_string()).collect();
    let words: Vec<&str> = std::iter::once("SUBSCRIBE").chain(names.iter().map(String::as_str)).collect();
    assert!(client.ask(&words).error().contains("too many subscriptions"));
    let long = "x".repeat((16 << 20) + 1);
    assert!(client.ask(&["SSUBSCRIBE", &long]).error().contains("too many subscriptions"));
    assert!(
        client.ask(&["PSUBSCRIBE", "short", &"x*".repeat(513)]).error().contains("a pattern has at most 1024 bytes")
    );
    assert_eq!(client.say("PUBSUB NUMPAT"), Reply::Int(0));
    // The same name many times is one.
    let same: Vec<&str> = std::iter::once("SUBSCRIBE").chain(std::iter::repeat_n("a", 100_001)).collect();
    client.send(&request(&same));
    (0..100_001).for_each(|_| assert_eq!(client.reply(), texts(&["subscribe", "a", ":1"])));
}

/// Patterns are compared by every publisher: what those of one connection cost is bounded.
#[test]
fn patterns_that_take_long_to_compare_are_refused() {
    let running = Running::start(DomainChoice::Emulated);
    let (mut client, mut other) = (running.client(), running.client());
    let patterns: Vec<String> = (0..3000).map(|n| format!("{}{n}", "*a".repeat(300))).collect();
    let words: Vec<&str> = std::iter::once("PSUBSCRIBE").chain(patterns.iter().map(String::as_str)).collect();
    client.send(&request(&words));
    (0..3000).for_each(|_| assert!(matches!(client.reply(), Reply::Array(_)), "many short pieces cost little"));
    let long = format!("*{}", "a".repeat(1000));
    let words: Vec<String> = (0..300).map(|n| format!("{long}{n}")).collect();
    let words: Vec<&str> = std::iter::once("PSUBSCRIBE").chain(words.iter().map(String::as_str)).collect();
    assert!(client.ask(&words).error().contains("too long to compare"));
    assert_eq!(client.say("PUNSUBSCRIBE none"), texts(&["punsubscribe", "none", ":3000"]));
    // What is no longer subscribed to costs nothing.
    client.send(&request(&["PUNSUBSCRIBE"]));
    (0..3000).for_each(|_| drop(client.reply()));
    client.send(&request(&words[..120]));
    (1..120).for_each(|_| assert!(matches!(client.reply(), Reply::Array(_))));
    // A channel of more than 1 KiB is heard by its own name only.
    other.send(&request(&["PSUBSCRIBE", "*"]));
    other.reply();
    assert_eq!(running.client().ask(&["PUBLISH", &"b".repeat(1024), "x"]), Reply::Int(1));
    assert_eq!(running.client().ask(&["PUBLISH", &"b".repeat(1025), "x"]), Reply::Int(0));
}

// ---- rights ---------------------------------------------------------------------------------------------------

#[test]
fn who_may_not_hear_a_channel_does_not() {
    for domain in DOMAINS {
        let running = Running::start(domain);
        let mut admin = running.client();
        assert_eq!(admin.say("ACL SETUSER ada on >pw ~* +@all"), Reply::ok());
        let enter = || {
            let mut ada = running.client();
            assert_eq!(ada.say("AUTH ada pw"), Reply::ok());
            ada
        };
        let mut ada = enter();
        for line in ["SUBSCRIBE a", "PSUBSCRIBE a", "SSUBSCRIBE a", "PUBLISH a x", "SPUBLISH a x"] {
            assert!(ada.say(line).error().contains("one of the channels"), "{line}");
        }
        assert_eq!(ada.say("PUBSUB CHANNELS"), Reply::Array(Vec::new()));
        admin.say("ACL SETUSER ada &news:* &sport");
        assert!(ada.has_ended());
        let mut ada = enter();
        assert_eq!(ada.say("PUBLISH news:1 x"), Reply::Int(0));
        assert!(ada.say("PSUBSCRIBE news:1").error().contains("one of the channels"), "patterns are compared as text");
        assert!(ada.say("SUBSCRIBE news:1 other").error().contains("one of the channels"));
        ada.say("MULTI");
        assert!(ada.say("PUBLISH other x").error().contains("one of the channels"));
        assert!(ada.say("EXEC").error().starts_with("EXECABORT"));
        assert_eq!(ada.say("PSUBSCRIBE news:*"), texts(&["psubscribe", "news:*", ":1"]));
        assert_eq!(ada.say("SUBSCRIBE sport"), texts(&["subscribe", "sport", ":2"]));
        admin.say("PUBLISH news:2 y");
        assert_eq!(ada.reply(), texts(&["pmessage", "news:*", "news:2", "y"]));
        // A subscriber whose right is gone is ended, and one that takes it from itself.
        admin.say("ACL SETUSER ada resetchannels");
        assert!(ada.has_ended());
        admin.say("HELLO 3");
        admin.say("SUBSCRIBE own");
        assert_eq!(admin.say("ACL SETUSER default resetchannels &other"), Reply::ok());
        assert!(admin.has_ended());
        let mut admin = running.client();
        let Reply::Array(rules) = admin.say("ACL GETUSER default") else { panic!("no rules") };
        assert!(rules.contains(&Reply::text("&other")), "{rules:?}");
        assert!(admin.say("ACL SETUSER default &* &x").error().contains("after the * pattern"));
    }
}

/// Rights are in the store.
#[test]
fn channels_of_a_user_outlive_the_server() {
    let dir = tempfile::tempdir().unwrap();
    for (round, expected) in [(0, Reply::ok()), (1, Reply::ok())] {
        let engine = Store::Kv.open(dir.path().join("store"), pmem::Options::new().domain(DomainChoice::Emulated));
        let server = start(None, usual(), engine);
        let mut client = Client::to(server.redis()[0]);
        if round == 0 {
            client.say("ACL SETUSER ada on >pw +@all &news:*");
            client.say("ACL SETUSER bob on >pw +@all allchannels");
        }
        for (name, other) in [("ada", false), ("bob", true)] {
            assert_eq!(client.say(&format!("AUTH {name} pw")), expected, "{round}");
            assert_eq!(client.say("PUBLISH news:1 x"), Reply::Int(0));
            assert_eq!(!matches!(client.say("PUBLISH other x"), Reply::Error(_)), other, "{round} {name}");
        }
        drop(client);
        server.stop();
        server.join().unwrap();
    }
}
