//! Streams: which client waits for what, what is one with what, and what is left of what goes.
//! That answers are Redis' is what [`differential`](crate::differential) shows.

mod kills;
mod waiting;

use std::path::Path;
use std::time::Duration;

use pmem::DomainChoice;
use server::{Config, Server};

use crate::differential::{Client as Other, Redis};
use crate::support::{Client, Reply, Running, Store, WAIT_LIMIT, start, until, usual};

/// First bytes of elements, and of notes about those that are no longer owned: docs/format.md.
const ELEMENTS: u8 = 0xf0;
const GARBAGE: u8 = 0xf2;
const PARTS: u8 = 0xf4;

fn bulk(reply: Reply) -> String {
    match reply {
        Reply::Bulk(text) => String::from_utf8(text).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn texts(words: &[&str]) -> Reply {
    Reply::Array(words.iter().map(|word| Reply::text(word)).collect())
}

#[test]
fn ids_that_the_server_chooses_go_up_whatever_the_clock_does() {
    for store in Store::ALL {
        let running = Running::on(store, DomainChoice::Emulated);
        let mut clients = [running.client(), running.client()];
        let mut last = (0, 0);
        for round in 0..200 {
            let id = bulk(clients[round % 2].say("XADD s * a b"));
            let (ms, seq) = id.split_once('-').unwrap();
            let id = (ms.parse::<u64>().unwrap(), seq.parse::<u64>().unwrap());
            assert!(id > last, "{id:?} behind {last:?}");
            last = id;
        }
        // The clock is behind: ids count on from the last.
        clients[0].say("XADD s 99999999999999-18446744073709551615 a b");
        assert_eq!(bulk(clients[1].say("XADD s * a b")), "100000000000000-0");
        assert_eq!(bulk(clients[0].say("XADD s 100000000000000-* a b")), "100000000000000-1");
        assert_eq!(clients[0].say("XLEN s"), Reply::Int(203));
    }
}

/// Of a claim: what is gone is no longer pending, whichever consumer claims it, and however the command goes on.
#[test]
fn what_is_claimed_and_gone_is_not_counted_as_pending() {
    for store in Store::ALL {
        let running = Running::on(store, DomainChoice::Emulated);
        let mut client = running.client();
        let long = "x".repeat(70_000);
        for claim in
            ["XAUTOCLAIM s g a 0 0", "XCLAIM s g a 0 1-1 2-1", "XAUTOCLAIM s g LONG 0 0", "XCLAIM s g LONG 0 1-1 2-1"]
        {
            for line in [
                "DEL s",
                "XADD s 1-1 f v",
                "XADD s 2-1 f v",
                "XGROUP CREATE s g 0",
                "XREADGROUP GROUP g a STREAMS s >",
                "XDEL s 1-1",
            ] {
                assert!(!matches!(client.say(line), Reply::Error(_)), "{line}");
            }
            client.say(&claim.replace("LONG", &long));
            // A name that is too long claims nothing.
            let left = if claim.contains("LONG") { 2 } else { 1 };
            let Reply::Array(pending) = client.say("XPENDING s g") else { panic!("{claim}: no array") };
            assert_eq!(pending[0], Reply::Int(left), "{store:?} {claim}: {pending:?}");
            let Reply::Array(listed) = client.say("XPENDING s g - + 10") else { panic!("{claim}: no array") };
            assert_eq!(listed.len() as i64, left, "{store:?} {claim}: {listed:?}");
        }
    }
}

/// Whole nodes go, and these are hundreds.
#[test]
fn about_so_many_is_what_redis_makes_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let _redis = Redis::with(dir.path(), &[]).expect("redis-server is not installed; run `make setup`");
    let socket = dir.path().join("ours.sock");
    let config = Config { redis: Vec::new(), unix: Some(socket.clone()), ..Config::default() };
    let server = Server::start(config, Store::Kv.open(dir.path().join("store"), pmem::Options::new())).unwrap();
    let mut both = [dir.path().join("redis.sock"), socket].map(|socket| Other::new(&socket, 2));
    let mut id = 0;
    let mut same = |line: &str| {
        let [theirs, ours] = both.each_mut().map(|client| client.ask(line));
        assert_eq!(ours, theirs, "{line}");
    };
    for trim in ["MAXLEN ~ 150", "MAXLEN ~ 0", "MAXLEN ~ 250 LIMIT 150", "MINID ~ 420", "MINID ~ 99999 LIMIT 250"] {
        for line in ["XTRIM s", "XADD s"] {
            same("DEL s");
            for _ in 0..437 {
                id += 1;
                same(&format!("XADD s {id} f v"));
            }
            let trim = trim.replace("420", &(id - 17).to_string());
            id += 1;
            same(&if line == "XTRIM s" { format!("XTRIM s {trim}") } else { format!("XADD s {trim} {id} f v") });
            same("XLEN s");
            same("XRANGE s - + COUNT 1");
        }
    }
    same("DEL s");
    for _ in 0..1000 {
        id += 1;
        same(&format!("XADD s MAXLEN ~ 120 {id} f v"));
        same("XLEN s");
    }
    drop(both);
    server.stop();
    server.join().unwrap();
}

/// Entries, `MULTI`, `WATCH`, scripts: what of a stream is a change is what it is with Redis.
#[test]
fn a_stream_is_one_with_the_rest_of_its_transaction() {
    let running = Running::start(DomainChoice::Emulated);
    let (mut client, mut other) = (running.client(), running.client());
    client.say("XGROUP CREATE s g $ MKSTREAM");
    for (change, is_change) in [
        ("XADD s 1-1 a b", true),
        ("XADD s 1-2 a b", true),
        ("XREADGROUP GROUP g c STREAMS s >", false),
        ("XACK s g 1-1", false),
        ("XCLAIM s g d 0 1-2", false),
        ("XGROUP CREATE s h 0", false),
        ("XTRIM s MAXLEN 1", true),
        ("XDEL s 1-2", true),
        ("XDEL s 1-2", false),
        ("EXPIRE s 1000", true),
    ] {
        client.say("WATCH s");
        assert!(!matches!(other.say(change), Reply::Error(_)), "{change}");
        client.say("MULTI");
        client.say("PING");
        assert_eq!(client.say("EXEC") == Reply::Null, is_change, "{change}");
    }
    // A script: all of it, or nothing.
    let script = "redis.call('XADD', 't', '1-1', 'a', 'b') redis.call('SET', 'n', '1') return redis.call('XLEN', 't')";
    assert_eq!(client.ask(&["EVAL", script, "0"]), Reply::Int(1));
    assert_eq!((client.say("GET n"), client.say("XLEN t")), (Reply::text("1"), Reply::Int(1)));
    let endless = "redis.call('XADD', 't', '2-2', 'a', 'b') while true do end";
    client.say("CONFIG SET lua-time-limit 50");
    assert!(matches!(client.ask(&["EVAL", endless, "0"]), Reply::Error(_)));
    assert_eq!(client.say("XLEN t"), Reply::Int(1));
    let blocks = client.ask(&["EVAL", "return redis.call('xread', 'BLOCK', 0, 'STREAMS', 't', '$')", "0"]);
    assert!(blocks.error().starts_with("ERR xread command is not allowed with BLOCK option from scripts"));
    // No command waits between MULTI and EXEC.
    client.say("MULTI");
    client.say("XREAD BLOCK 0 STREAMS t $");
    client.say("XADD t 3-3 a b");
    assert_eq!(client.say("EXEC"), Reply::Array(vec![Reply::Null, Reply::text("3-3")]));
}

#[test]
fn streams_are_known_as_what_they_are() {
    for store in Store::ALL {
        let running = Running::on(store, DomainChoice::Emulated);
        let mut client = running.client();
        client.say("XADD s 1-1 a b");
        client.say("SET t 1");
        assert_eq!(client.say("TYPE s"), Reply::Simple("stream".to_owned()));
        assert_eq!(client.say("SCAN 0 TYPE stream"), Reply::Array(vec![Reply::text("0"), texts(&["s"])]));
        for (line, wrong) in
            [("LPUSH s x", true), ("GET s", true), ("XADD t * a b", true), ("XLEN t", true), ("XLEN s", false)]
        {
            assert_eq!(
                matches!(client.say(line), Reply::Error(text) if text.starts_with("WRONGTYPE")),
                wrong,
                "{line}"
            );
        }
        // A name that no key of the store has room for.
        let long = "x".repeat(65_530);
        assert!(client.ask(&["XGROUP", "CREATE", "s", &long, "0"]).error().contains("too long"));
        assert_eq!(client.ask(&["XACK", "s", &long, "1-1"]), Reply::Int(0));
        client.say("XGROUP CREATE s g 0");
        let read = client.ask(&["XREADGROUP", "GROUP", "g", &long, "STREAMS", "s", ">"]);
        assert!(read.error().contains("too long"), "{read:?}");
        client.say("ACL SETUSER reader on nopass ~s +@stream -@write");
        client.say("AUTH reader x");
        assert_eq!(client.say("XLEN s"), Reply::Int(1));
        assert!(client.say("XADD s * a b").error().starts_with("NOPERM"));
        assert!(client.say("XREAD STREAMS s t 0 0").error().starts_with("NOPERM"), "each stream is a key");
        assert!(matches!(client.say("XREAD COUNT 1 STREAMS s 0"), Reply::Array(_)));
    }
}

// ---- what is left of what goes ----------------------------------------------------------------------------------

fn serve(path: &Path) -> (Server, Client) {
    let server = start(None, usual(), Store::Kv.open(path, pmem::Options::new().domain(DomainChoice::Emulated)));
    let client = Client::to(server.redis()[0]);
    (server, client)
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

/// A stream with so many entries, all of them sent to a consumer of a group.
fn fill(client: &mut Client, key: &str, entries: usize) {
    client.say(&format!("XGROUP CREATE {key} g 0 MKSTREAM"));
    (1..=entries).for_each(|id| client.send(format!("XADD {key} {id} a b\r\n").as_bytes()));
    (1..=entries).for_each(|_| drop(bulk(client.reply())));
    assert!(matches!(client.say(&format!("XREADGROUP GROUP g c STREAMS {key} >")), Reply::Array(_)));
}

/// A group of 1000 has 2004 elements: for each entry what is pending and with which consumer, two for the consumer, one for itself,
/// and its stream has the count of groups.
#[test]
fn of_what_goes_nothing_is_left_and_of_what_stays_all_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let (server, mut client) = serve(&path);
    for key in ["gone", "over", "moved", "few", "flat", "stays"] {
        fill(&mut client, key, if key == "few" { 5 } else { 1000 });
    }
    // At one moment: the reaper may not have come to it when it is copied.
    client.send(b"MULTI\r\nXGROUP DESTROY flat g\r\nCOPY flat copy\r\nEXEC\r\n");
    (0..3).for_each(|_| drop(client.reply()));
    assert_eq!(client.reply(), Reply::Array(vec![Reply::Int(1), Reply::Int(1)]));
    for line in ["DEL gone few", "SET over x", "RENAME moved gone"] {
        assert!(!matches!(client.say(line), Reply::Error(_)), "{line}");
    }
    // Of an empty stream, too: it is not its entries alone.
    assert_eq!(client.say("XTRIM gone MAXLEN 0"), Reply::Int(1000));
    assert_eq!(client.say("XLEN gone"), Reply::Int(0));
    assert_eq!(client.say("DEL gone"), Reply::Int(1));
    let before = client.say("XINFO STREAM stays FULL COUNT 0");
    drop(client);
    stop(server);
    // Two streams without a group, whose counts are left, and a whole one.
    let wanted = 2 * 1001 + 1000 + 2004;
    let swept = (0..60).any(|_| {
        let (server, _client) = serve(&path);
        std::thread::sleep(Duration::from_millis(600));
        stop(server);
        (count(&path, GARBAGE), count(&path, PARTS), count(&path, ELEMENTS)) == (0, 0, wanted)
    });
    let found = (count(&path, GARBAGE), count(&path, PARTS), count(&path, ELEMENTS));
    assert!(swept, "notes, parts, elements: {found:?}, {wanted} elements wanted");
    let (server, mut client) = serve(&path);
    assert_eq!(client.say("XINFO STREAM stays FULL COUNT 0"), before, "a restart changes nothing");
    for key in ["flat", "copy"] {
        assert_eq!(client.say(&format!("XLEN {key}")), Reply::Int(1000));
        assert_eq!(client.say(&format!("XINFO GROUPS {key}")), Reply::Array(Vec::new()));
        // A group of the same name has nothing of the old one.
        client.say(&format!("XGROUP CREATE {key} g $"));
        assert_eq!(client.say(&format!("XPENDING {key} g - + 10")), Reply::Array(Vec::new()));
    }
    stop(server);
}

/// It expires while its entries are many.
#[test]
fn a_stream_that_expires_is_swept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let (server, mut client) = serve(&path);
    fill(&mut client, "s", 300);
    client.say("PEXPIRE s 1");
    until("it is gone", || client.say("EXISTS s") == Reply::Int(0));
    drop(client);
    stop(server);
    let tries = WAIT_LIMIT.as_millis() / 600;
    let swept = (0..tries).any(|_| {
        let (server, _client) = serve(&path);
        std::thread::sleep(Duration::from_millis(600));
        stop(server);
        count(&path, ELEMENTS) == 0
    });
    assert!(swept, "{} elements", count(&path, ELEMENTS));
}
