//! Who waits for an element gets it once, and nobody who is gone does.

use std::time::Duration;

use pmem::DomainChoice;

use crate::support::{Reply, Running, until};

#[test]
fn each_element_goes_to_one_who_waits() {
    for domain in [DomainChoice::Emulated, DomainChoice::File] {
        let running = Running::start(domain);
        let mut got: Vec<i64> = std::thread::scope(|scope| {
            let waiting: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let (mut client, mut got) = (running.client(), Vec::new());
                        loop {
                            match client.say("BLPOP queue other 0") {
                                Reply::Array(pair) => match &pair[1] {
                                    Reply::Bulk(text) if text == b"end" => return got,
                                    Reply::Bulk(text) => {
                                        got.push(String::from_utf8_lossy(text).parse::<i64>().unwrap())
                                    }
                                    other => panic!("{other:?}"),
                                },
                                other => panic!("{other:?}"),
                            }
                        }
                    })
                })
                .collect();
            let mut client = running.client();
            for number in 0..200 {
                let list = if number % 3 == 0 { "other" } else { "queue" };
                client.say(&format!("RPUSH {list} {number}"));
            }
            // An end would be taken before what is left in the other list.
            until("all is taken", || {
                ["queue", "other"].iter().all(|list| client.say(&format!("LLEN {list}")) == Reply::Int(0))
            });
            (0..4).for_each(|_| drop(client.say("RPUSH queue end")));
            waiting.into_iter().flat_map(|waiting| waiting.join().unwrap()).collect()
        });
        got.sort_unstable();
        assert_eq!(got, (0..200).collect::<Vec<_>>());
    }
}

#[test]
fn nothing_goes_to_who_has_left() {
    let running = Running::start(DomainChoice::Emulated);
    let (mut gone, mut client) = (running.client(), running.client());
    let mut waiting = |count| {
        let line = format!("blocked_clients:{count}");
        until(
            &line,
            || matches!(client.say("INFO clients"), Reply::Bulk(text) if String::from_utf8_lossy(&text).lines().any(|l| l == line)),
        );
    };
    gone.send(b"BLPOP list 0\r\n");
    waiting(1);
    drop(gone);
    waiting(0);
    client.say("RPUSH list a");
    assert_eq!(client.say("LLEN list"), Reply::Int(1));
}

#[test]
fn waiting_ends_in_time_and_errors_come_at_once() {
    let running = Running::start(DomainChoice::Emulated);
    let mut client = running.client();
    assert_eq!(client.say("BLPOP none 0.05"), Reply::Null);
    assert_eq!(client.say("BZPOPMIN none 0.05"), Reply::Null);
    assert_eq!(client.say("BLMOVE none to LEFT RIGHT 0.05"), Reply::Null);
    assert!(client.say("BLPOP none -1").error().starts_with("ERR timeout is negative"));
    assert!(client.say("BLPOP none x").error().starts_with("ERR timeout is not a float"));
    client.say("SET text 1");
    assert!(client.say("BLPOP text 0").error().starts_with("WRONGTYPE"));
    client.say("ZADD z 1 a");
    assert_eq!(client.say("BZPOPMAX none z 0"), Reply::Array(["z", "a", "1"].map(Reply::text).to_vec()));
    // Within a transaction nobody waits.
    client.say("MULTI");
    client.say("BLPOP none 0");
    assert_eq!(client.say("EXEC"), Reply::Array(vec![Reply::Null]));
    // Requests behind one that waits are answered behind it.
    client.send(b"BLPOP later 0\r\nPING\r\n");
    std::thread::sleep(Duration::from_millis(20));
    running.client().say("LPUSH later x");
    assert_eq!(client.reply(), Reply::Array(["later", "x"].map(Reply::text).to_vec()));
    assert_eq!(client.reply(), Reply::Simple("PONG".to_owned()));
}

#[test]
fn requests_that_come_meanwhile_are_answered_afterwards() {
    let running = Running::start(DomainChoice::Emulated);
    let (mut client, mut other) = (running.client(), running.client());
    client.send(b"BLPOP list 0\r\n");
    std::thread::sleep(Duration::from_millis(50));
    client.send(b"PING\r\n");
    std::thread::sleep(Duration::from_millis(50));
    other.say("LPUSH list x");
    assert_eq!(client.reply(), Reply::Array(["list", "x"].map(Reply::text).to_vec()));
    assert_eq!(client.reply(), Reply::Simple("PONG".to_owned()));
    // What is not to be answered is not, and what was said before is whole.
    client.send(b"GET none\r\nCLIENT REPLY SKIP\r\nBLPOP list 0\r\n");
    std::thread::sleep(Duration::from_millis(50));
    other.say("LPUSH list y");
    assert_eq!(client.reply(), Reply::Null);
    assert_eq!(client.say("PING"), Reply::Simple("PONG".to_owned()));
}

#[test]
fn whatever_puts_an_element_there_wakes() {
    let running = Running::start(DomainChoice::Emulated);
    let (mut client, mut other) = (running.client(), running.client());
    client.say("SELECT 1");
    for lines in [
        &["MULTI", "SELECT 1", "LPUSH list x", "EXEC", "SELECT 0"][..],
        &["LPUSH list x", "MOVE list 1"],
        &["LPUSH from x", "COPY from list DB 1 REPLACE"],
        &["SELECT 1", "LPUSH from x", "RENAME from list", "SELECT 0"],
        &["SELECT 1", "LPUSH from x", "LMOVE from list LEFT LEFT", "SELECT 0"],
    ] {
        client.send(b"BLPOP list 20\r\n");
        std::thread::sleep(Duration::from_millis(30));
        for line in lines {
            assert!(!matches!(other.say(line), Reply::Error(_)), "{line}");
        }
        assert_eq!(client.reply(), Reply::Array(["list", "x"].map(Reply::text).to_vec()), "{lines:?}");
    }
}
