//! `MONITOR`: who is told what, and what becomes of one that does not read.

use pmem::DomainChoice;

use crate::support::{Client, Reply, Running, Store, until};

fn line(client: &mut Client) -> String {
    match client.reply() {
        Reply::Simple(line) => line,
        other => panic!("no line: {other:?}"),
    }
}

fn flags(client: &mut Client, id: i64) -> String {
    let Reply::Bulk(text) = client.ask(&["CLIENT", "LIST", "ID", &id.to_string()]) else { panic!("no list") };
    let text = String::from_utf8(text).unwrap();
    text.split(' ').find_map(|word| word.strip_prefix("flags=")).unwrap_or("gone").to_owned()
}

fn id(client: &mut Client) -> i64 {
    let Reply::Int(id) = client.ask(&["CLIENT", "ID"]) else { panic!("no id") };
    id
}

/// Every command of every client, on all threads, once; those of one client in its order.
#[test]
fn every_command_is_told_once() {
    for store in [Store::Kv, Store::Tree, Store::Slow] {
        let running = Running::on(store, DomainChoice::Emulated);
        let mut monitors = [running.client(), running.client(), running.client()];
        monitors.iter_mut().for_each(|one| assert_eq!(one.ask(&["MONITOR"]), Reply::ok()));
        const CLIENTS: usize = 6;
        std::thread::scope(|scope| {
            for n in 0..CLIENTS {
                let running = &running;
                scope.spawn(move || {
                    let mut client = running.client();
                    for at in 0..100 {
                        client.ask(&["SET", &format!("k{n}"), &at.to_string()]);
                    }
                    (0..50).for_each(|at| client.send(format!("SET k{n} {}\r\n", 100 + at).as_bytes()));
                    (0..50).for_each(|_| drop(client.reply()));
                    client.ask(&["EVAL", "redis.call('set', KEYS[1], 150)", "1", &format!("k{n}")]);
                });
            }
        });
        running.client().ask(&["ECHO", "the end"]);
        for monitor in &mut monitors {
            let (mut next, mut scripts) = ([0; CLIENTS], 0);
            loop {
                let line = line(monitor);
                if line.ends_with("\"ECHO\" \"the end\"") {
                    break;
                }
                if line.contains("\"EVAL\"") {
                    scripts += 1;
                    continue;
                }
                let rest = line.split(" \"").skip(2).map(|word| word.trim_end_matches('"')).collect::<Vec<_>>();
                let n: usize = rest[0][1..].parse().unwrap();
                assert_eq!(rest[1].parse(), Ok(next[n]), "{store:?}: {line}");
                assert_eq!(line.contains("[0 lua] \"set\""), next[n] == 150, "{line}");
                next[n] += 1;
            }
            assert_eq!((next, scripts), ([151; CLIENTS], CLIENTS), "{store:?}");
        }
    }
}

#[test]
fn reset_ends_it_and_nothing_secret_is_told() {
    let running = Running::start(DomainChoice::Emulated);
    let (mut monitor, mut other) = (running.client(), running.client());
    let id = id(&mut monitor);
    assert_eq!(flags(&mut other, id), "N");
    assert_eq!(monitor.ask(&["MONITOR"]), Reply::ok());
    assert_eq!(flags(&mut other, id), "O");
    other.ask(&["ACL", "SETUSER", "u", "on", ">s3cret", "+@all", "~*"]);
    other.ask(&["AUTH", "u", "s3cret"]);
    other.ask(&["HELLO", "3", "AUTH", "u", "s3cret"]);
    other.ask(&["CONFIG", "SET", "requirepass", "s3cret"]);
    other.ask(&["GET", "a"]);
    let told = [line(&mut monitor), line(&mut monitor), line(&mut monitor)];
    assert!(told[0].ends_with(r#""AUTH" "(redacted)" "(redacted)""#), "{told:?}");
    assert!(told[1].ends_with(r#""HELLO" "3" "AUTH" "(redacted)" "(redacted)""#), "{told:?}");
    assert!(told[2].ends_with(r#""GET" "a""#), "{told:?}");
    // It may ask for something itself, and is told of that behind the answer.
    monitor.send(b"PING\r\nRESET\r\n");
    assert_eq!(monitor.reply(), Reply::Simple("PONG".to_owned()));
    assert!(line(&mut monitor).ends_with("\"PING\""));
    assert_eq!(monitor.reply(), Reply::Simple("RESET".to_owned()));
    other.ask(&["GET", "b"]);
    assert!(flags(&mut other, id) == "N" && matches!(monitor.ask(&["PING"]), Reply::Error(_)));
}

#[test]
fn one_that_does_not_read_is_cut_off() {
    for store in [Store::Kv, Store::Slow] {
        let running = Running::on(store, DomainChoice::Emulated);
        let (mut monitor, mut other) = (running.client(), running.client());
        let id = id(&mut monitor);
        other.ask(&["CONFIG", "SET", "client-output-buffer-limit", "pubsub 1mb 0 0"]);
        monitor.ask(&["MONITOR"]);
        let value = "x".repeat(100_000);
        until("it is cut off", || {
            other.ask(&["SET", "a", &value]);
            flags(&mut other, id) == "gone"
        });
        assert_eq!(other.ask(&["STRLEN", "a"]), Reply::Int(100_000));
    }
}
