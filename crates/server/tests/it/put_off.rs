//! Requests that are put off, because they take long or have to wait: they are run elsewhere, once, and the attempt that was given up has left nothing.

use std::io::{BufRead, Read, Write};
use std::net::TcpStream;

use crate::held::Held;
use crate::support::{Client, Reply, Store, request, until};
use crate::tracking::news;

/// Bytes of a value that takes too long to write, or, three times, to read.
const LONG: usize = 900_000;

fn text(reply: Reply) -> String {
    let Reply::Bulk(text) = reply else { panic!("no text: {reply:?}") };
    String::from_utf8(text).unwrap()
}

/// So many keys, of which the first is `k0`.
fn fill(client: &mut Client, keys: usize) {
    for from in (0..keys).step_by(500) {
        let names: Vec<String> = (from..from + 500).map(|n| format!("k{n}")).collect();
        let words: Vec<&str> = std::iter::once("MSET").chain(names.iter().flat_map(|name| [&name[..], "v"])).collect();
        assert_eq!(client.ask(&words), Reply::ok());
    }
}

/// The answers to all that was queued.
fn exec(client: &mut Client, lines: &[&str]) -> Vec<Reply> {
    assert_eq!(client.say("MULTI"), Reply::ok());
    lines.iter().for_each(|line| assert_eq!(client.say(line), Reply::Simple("QUEUED".to_owned()), "{line}"));
    match client.say("EXEC") {
        Reply::Array(all) => all,
        other => panic!("{lines:?}: {other:?}"),
    }
}

/// Forty scripts come to a closed gate: that they wait there says nothing about how long they take.
#[test]
fn scripts_that_wait_are_none_that_run_long() {
    let held = Held::start(Store::Kv);
    let mut other = held.client();
    let mut clients: Vec<Client> = (0..40).map(|_| held.client()).collect();
    held.closed(|| {
        // One that ran long could do so no longer than that.
        assert_eq!(other.say("CONFIG SET lua-time-limit 1"), Reply::ok());
        let script = request(&["EVAL", "return redis.call('INCR', 'n')", "0"]);
        clients.iter_mut().for_each(|client| client.send(&script));
        held.looked();
        assert!(text(other.say("INFO memory")).contains("scripts_running_long:0\r\n"));
        assert_eq!(other.say("CONFIG SET lua-time-limit 5000"), Reply::ok());
    });
    let mut answers: Vec<i64> = Vec::new();
    for client in &mut clients {
        match client.reply() {
            Reply::Int(n) => answers.push(n),
            other => panic!("{other:?}"),
        }
    }
    answers.sort_unstable();
    assert_eq!(answers, (1..=40).collect::<Vec<_>>());
}

/// No client is told that something has changed by a request that has not been run yet, nor twice by one that has.
#[test]
fn changes_are_told_when_they_are_made() {
    let held = Held::start(Store::Kv);
    let (mut reader, mut broad, mut writer) = (held.client(), held.client(), held.client());
    for client in [&mut reader, &mut broad] {
        client.say("HELLO 3");
    }
    assert_eq!(reader.say("CLIENT TRACKING ON"), Reply::ok());
    assert_eq!(broad.say("CLIENT TRACKING ON BCAST PREFIX k0"), Reply::ok());
    reader.say("GET k0");
    held.closed(|| {
        writer.send(b"SET other 1\r\n");
        held.looked();
        assert_eq!(news(&mut reader), []);
    });
    assert_eq!(writer.reply(), Reply::ok());
    news(&mut reader);
    news(&mut broad);
    // Known keys of an attempt that was given up.
    let before = writer.runs_apart();
    let names: Vec<String> = (0..12_000).map(|n| format!("k{n}")).collect();
    let words: Vec<&str> = std::iter::once("MSET").chain(names.iter().flat_map(|name| [&name[..], "v"])).collect();
    assert_eq!(writer.ask(&words), Reply::ok());
    assert_eq!(writer.runs_apart(), before + 1);
    assert_eq!(news(&mut broad), [Reply::Array(vec![Reply::text("k0")])]);
}

/// What is looked up for a client that is told of changes, so that it is told when keys expire, counts.
#[test]
fn moments_of_expiry_take_time_to_be_looked_up() {
    let held = Held::start(Store::Kv);
    let (mut client, mut other) = (held.client(), held.client());
    fill(&mut client, 3000);
    let names: Vec<String> = (0..3000).map(|n| format!("k{n}")).collect();
    let words: Vec<&str> = std::iter::once("MGET").chain(names.iter().map(String::as_str)).collect();
    let runs = |client: &mut Client, other: &mut Client| {
        let before = other.runs_apart();
        assert_eq!(client.ask(&words), Reply::Array(vec![Reply::text("v"); 3000]));
        other.runs_apart() - before
    };
    assert_eq!(runs(&mut client, &mut other), 0);
    client.say("HELLO 3");
    assert_eq!(client.say("CLIENT TRACKING ON"), Reply::ok());
    assert_eq!(runs(&mut client, &mut other), 1);
}

/// What was watched is looked up in the transaction, which takes time as everything else; each database once, however often it was swapped.
#[test]
fn what_was_watched_takes_time_to_be_looked_up() {
    let held = Held::start(Store::Kv);
    let (mut client, mut other) = (held.client(), held.client());
    let mut runs = |watched: usize, swaps: usize| {
        let names: Vec<String> = (0..watched).map(|n| format!("w{n}")).collect();
        let words: Vec<&str> = std::iter::once("WATCH").chain(names.iter().map(String::as_str)).collect();
        assert_eq!(client.ask(&words), Reply::ok());
        (0..swaps).for_each(|_| assert_eq!(other.say("SWAPDB 0 1"), Reply::ok()));
        let before = other.runs_apart();
        assert_eq!(exec(&mut client, &["PING"]), [Reply::Simple("PONG".to_owned())]);
        other.runs_apart() - before
    };
    assert_eq!([runs(3000, 0), runs(6000, 0), runs(1000, 20), runs(3000, 20)], [0, 1, 0, 1]);
}

/// What a transaction does to other clients it does once, however often it begins.
#[test]
fn what_acts_at_once_is_not_done_again() {
    for store in [Store::Kv, Store::Slow] {
        let held = Held::start(store);
        let (mut client, mut waits, mut killed) = (held.client(), held.client(), held.client());
        fill(&mut client, 12_000);
        let [waits_id, killed_id] = [&mut waits, &mut killed].map(|client| match client.say("CLIENT ID") {
            Reply::Int(id) => id,
            other => panic!("{other:?}"),
        });
        waits.send(b"BLPOP list 0\r\n");
        until("it waits", || text(client.say("INFO clients")).contains("blocked_clients:1\r\n"));
        let before = client.runs_apart();
        let lines =
            [format!("CLIENT UNBLOCK {waits_id}"), format!("CLIENT KILL ID {killed_id}"), "CLIENT UNBLOCK x".into()];
        let lines: Vec<&str> = lines.iter().map(String::as_str).chain(["DBSIZE", "KEYS *"]).collect();
        let answers = exec(&mut client, &lines);
        assert!(client.runs_apart() > before, "{store:?}");
        assert_eq!(answers[..2], [Reply::Int(1), Reply::Int(1)], "{store:?}");
        assert_eq!(
            (answers[2].error(), &answers[3]),
            ("ERR value is not an integer or out of range", &Reply::Int(12_000))
        );
        assert_eq!(waits.reply(), Reply::Null);
        assert!(killed.has_ended());
    }
}

/// What `SELECT` and `HELLO` have set in a transaction that fails is as it was before.
#[test]
fn what_a_failed_transaction_has_set_is_undone() {
    for store in [Store::Kv, Store::Slow] {
        let held = Held::start(store);
        let mut client = held.client();
        assert_eq!(client.say("MULTI"), Reply::ok());
        for line in ["HELLO 3", "SELECT 3", "SET full x"] {
            client.say(line);
        }
        assert!(client.say("EXEC").error().starts_with("MISCONF "), "{store:?}");
        let info = text(client.say("CLIENT INFO"));
        assert!(info.contains(" db=0 ") && info.contains(" resp=2 "), "{store:?}: {info}");
        client.send(b"GET none\r\n");
        let mut line = String::new();
        client.0.read_line(&mut line).unwrap();
        assert_eq!(line, "$-1\r\n", "{store:?}");
    }
}

/// Behind a full store what changes something has the room of the thread that serves; what only reads has no business there, whatever it stands in.
#[test]
fn in_a_full_store_only_what_writes_stays() {
    let held = Held::start(Store::Kv);
    let (mut client, mut memcached) = (held.client(), held.memcached());
    let mut set =
        || memcached_says(&mut memcached, &format!("set long 0 0 {LONG}\r\n{}\r\n", "x".repeat(LONG)), "STORED\r\n");
    fill(&mut client, 12_000);
    let mut runs = |run: &mut dyn FnMut(&mut Client)| {
        let before = client.runs_apart();
        run(&mut client);
        client.runs_apart() - before
    };
    let reads = &mut |client: &mut Client| assert!(matches!(&exec(client, &["KEYS *"])[0], Reply::Array(_)));
    let writes = &mut |client: &mut Client| assert_eq!(exec(client, &["KEYS *", "SET a 1"])[1], Reply::ok());
    assert_eq!([runs(reads), runs(writes), runs(&mut |_| set())], [1, 1, 1]);
    assert_eq!(runs(&mut |client| assert!(client.say("SET full x").error().starts_with("MISCONF "))), 0);
    assert_eq!([runs(reads), runs(writes), runs(&mut |_| set())], [1, 0, 0]);
}

fn memcached_says(stream: &mut TcpStream, bytes: &str, answer: &str) {
    stream.write_all(bytes.as_bytes()).unwrap();
    let mut found = vec![0; answer.len()];
    stream.read_exact(&mut found).unwrap();
    assert!(found == answer.as_bytes(), "{}", String::from_utf8_lossy(&found[..found.len().min(200)]));
}

/// Alone, and between others; each once, in order.
#[test]
fn what_takes_long_of_memcached_is_answered_in_its_place() {
    for store in [Store::Kv, Store::Slow, Store::Tree] {
        let held = Held::start(store);
        let (mut client, mut memcached) = (held.client(), held.memcached());
        // A heap has shorter values.
        let long = if store == Store::Tree { LONG / 3 } else { LONG };
        let (value, reads) = ("x".repeat(long), if store == Store::Tree { 9 } else { 3 });
        let set = format!("set long 0 0 {long}\r\n{value}\r\n");
        memcached_says(&mut memcached, &set, "STORED\r\n");
        memcached_says(&mut memcached, "set n 0 0 1\r\n0\r\n", "STORED\r\n");
        let before = client.runs_apart();
        let names = " long".repeat(reads);
        let values = format!("VALUE long 0 {long}\r\n{value}\r\n").repeat(reads);
        memcached_says(
            &mut memcached,
            &format!("incr n 1\r\nget{names}\r\nincr n 1\r\nget n\r\nincr n 1\r\n"),
            &format!("1\r\n{values}END\r\n2\r\nVALUE n 0 1\r\n2\r\nEND\r\n3\r\n"),
        );
        assert!(client.runs_apart() > before, "{store:?}");
        let before = client.runs_apart();
        let sets = set.repeat(3);
        memcached_says(
            &mut memcached,
            &format!("incr n 1\r\n{sets}incr n 1\r\nincr n 1\r\n"),
            "4\r\nSTORED\r\nSTORED\r\nSTORED\r\n5\r\n6\r\n",
        );
        assert!(store == Store::Tree || client.runs_apart() > before, "{store:?}");
    }
}

/// What comes to a closed gate waits elsewhere, and the thread answers all that needs no data.
#[test]
fn what_waits_for_the_gate_is_done_once() {
    for store in [Store::Kv, Store::Slow, Store::Tree] {
        let held = Held::start(store);
        let (mut client, mut other, mut memcached) = (held.client(), held.client(), held.memcached());
        memcached_says(&mut memcached, "set m 0 0 1\r\n0\r\n", "STORED\r\n");
        held.closed(|| {
            client.send(b"INCR n\r\nINCR n\r\nMULTI\r\nINCR n\r\nEXEC\r\nGET n\r\n");
            other.send(&request(&["EVAL", "return redis.call('INCR', 'o')", "0"]));
            other.send(b"INCR o\r\n");
            memcached.write_all(b"incr m 1\r\nincr m 1\r\nget m\r\n").unwrap();
            held.looked();
        });
        let answers: Vec<Reply> = (0..6).map(|_| client.reply()).collect();
        let queued = Reply::Simple("QUEUED".to_owned());
        let third = Reply::Array(vec![Reply::Int(3)]);
        assert_eq!(answers, [Reply::Int(1), Reply::Int(2), Reply::ok(), queued, third, Reply::text("3")], "{store:?}");
        assert_eq!([other.reply(), other.reply()], [Reply::Int(1), Reply::Int(2)], "{store:?}");
        memcached_says(&mut memcached, "", "1\r\n2\r\nVALUE m 0 1\r\n2\r\nEND\r\n");
    }
}
