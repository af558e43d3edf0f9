//! Elements of collections that are gone go, too, and no others.

use std::path::Path;
use std::time::Duration;

use pmem::DomainChoice;
use server::{Server, Step};

use crate::support::{Client, Reply, Store, request, start, usual};

/// First bytes of what is no client's key in the store, and how many there are: docs/format.md.
const ELEMENTS: u8 = 0xf0;
const DUE: u8 = 0xf1;
const GARBAGE: u8 = 0xf2;

fn serve(path: &Path, step: Option<Step>) -> (Server, Client) {
    let engine = Store::Kv.open(path, pmem::Options::new().domain(DomainChoice::Emulated));
    let server = start(step, usual(), engine);
    let client = Client::to(server.redis()[0]);
    (server, client)
}

fn count(path: &Path, first: u8) -> usize {
    let store = kv::Store::open(path).unwrap();
    let found = store.snapshot().unwrap().scan(kv::Keys::prefix(&[first])).count();
    store.close().unwrap();
    found
}

fn stop(server: Server) {
    server.stop();
    server.join().unwrap();
}

/// A hash, list, set and sorted set of `count` elements each, all under names with this beginning.
fn fill(client: &mut Client, name: &str, count: usize) {
    for number in 0..count {
        let element = format!("e{number}");
        client.send(&request(&["HSET", &format!("{name}:h"), &element, "1"]));
        client.send(&request(&["RPUSH", &format!("{name}:l"), &element]));
        client.send(&request(&["SADD", &format!("{name}:s"), &element]));
        client.send(&request(&["ZADD", &format!("{name}:z"), "1", &element]));
    }
    (0..4 * count).for_each(|_| assert!(!matches!(client.reply(), Reply::Error(_))));
}

#[test]
fn what_nobody_owns_goes_and_what_somebody_does_stays() {
    what_nobody_owns_goes(None, 60);
}

/// Without a step, if one is named; the reaper has so many times half a second.
pub fn what_nobody_owns_goes(step: Option<Step>, times: usize) {
    let serve = |path: &Path| serve(path, step);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let (server, mut client) = serve(&path);
    for (name, count) in [
        ("stays", 5),
        ("moved", 100),
        ("short", 5),
        ("long", 100),
        ("set", 100),
        ("over", 100),
        ("due", 100),
        ("kept", 5),
    ] {
        fill(&mut client, name, count);
    }
    for kind in ["h", "l", "s", "z"] {
        for line in [
            format!("DEL short:{kind}"),
            format!("UNLINK long:{kind}"),
            format!("SET set:{kind} x"),
            format!("RENAME moved:{kind} over:{kind}"),
            format!("PEXPIRE due:{kind} 1"),
        ] {
            assert!(!matches!(client.say(&line), Reply::Error(_) | Reply::Int(0)), "{line}");
        }
        // At one moment: what is kept must not expire before it is.
        client.say("MULTI");
        client.say(&format!("PEXPIRE kept:{kind} 400"));
        client.say(&format!("RENAME kept:{kind} kept2:{kind}"));
        client.say(&format!("PERSIST kept2:{kind}"));
        assert_eq!(client.say("EXEC"), Reply::Array(vec![Reply::Int(1), Reply::ok(), Reply::Int(1)]), "{kind}");
    }
    drop(client);
    stop(server);
    // Three of a hash, list or set, two of a sorted set for each element: what stays has 5, 5 and 100.
    let wanted = (5 + 5 + 100) * 5;
    let swept = (0..times).any(|_| {
        let (server, _client) = serve(&path);
        std::thread::sleep(Duration::from_millis(600));
        stop(server);
        (count(&path, GARBAGE), count(&path, DUE), count(&path, ELEMENTS)) == (0, 0, wanted)
    });
    assert!(
        swept,
        "{} notes, {} due, {} elements, {wanted} wanted",
        count(&path, GARBAGE),
        count(&path, DUE),
        count(&path, ELEMENTS)
    );
    let (server, mut client) = serve(&path);
    for (name, len) in [("stays", 5), ("over", 100), ("kept2", 5)] {
        for (ask, kind) in [("HLEN", "h"), ("LLEN", "l"), ("SCARD", "s"), ("ZCARD", "z")] {
            assert_eq!(client.say(&format!("{ask} {name}:{kind}")), Reply::Int(len), "{name}:{kind}");
        }
        let Reply::Array(all) = client.say(&format!("HGETALL {name}:h")) else { panic!("no array") };
        assert_eq!(all.len(), 2 * len as usize);
    }
    // All of it at once, and nothing is left.
    assert_eq!(client.say("FLUSHALL"), Reply::ok());
    std::thread::sleep(Duration::from_millis(600));
    stop(server);
    let swept = (0..times).any(|_| {
        let (server, _client) = serve(&path);
        std::thread::sleep(Duration::from_millis(600));
        stop(server);
        (count(&path, GARBAGE), count(&path, ELEMENTS)) == (0, 0)
    });
    assert!(swept, "{} notes, {} elements", count(&path, GARBAGE), count(&path, ELEMENTS));
}
