//! A client that waits for an element gets it once, and one that is gone does not.

use std::time::Duration;

use pmem::DomainChoice;

use crate::support::{Client, Reply, Running, until};

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

/// A client that waits for a source is not told of what comes to its destination: it would take the word of it from those that wait there.
#[test]
fn what_comes_to_a_destination_is_for_who_waits_there() {
    let running = Running::start(DomainChoice::Emulated);
    let mut client = running.client();
    for first in ["BRPOPLPUSH src q 0", "BLMOVE src q LEFT LEFT 0"] {
        for second in
            ["BLPOP q 0", "BRPOP other q 0", "BLMPOP 0 2 other q LEFT", "BLMOVE q to LEFT LEFT 0", "BRPOPLPUSH q to 0"]
        {
            let (mut moves, mut takes) = (running.client(), running.client());
            moves.send(format!("{first}\r\n").as_bytes());
            blocked(&mut client, 1);
            takes.send(format!("{second}\r\n").as_bytes());
            blocked(&mut client, 2);
            client.say("RPUSH q x");
            assert_ne!(takes.reply(), Reply::Null, "{first}, {second}");
            client.say("RPUSH src y");
            assert_eq!(moves.reply(), Reply::text("y"), "{first}, {second}");
            client.say("DEL q to");
        }
    }
}

#[test]
fn nothing_goes_to_who_has_left() {
    let running = Running::start(DomainChoice::Emulated);
    let (mut gone, mut client) = (running.client(), running.client());
    gone.send(b"BLPOP list 0\r\n");
    blocked(&mut client, 1);
    drop(gone);
    blocked(&mut client, 0);
    client.say("RPUSH list a");
    assert_eq!(client.say("LLEN list"), Reply::Int(1));
}

/// Waits until so many clients wait for an element.
fn blocked(client: &mut Client, count: usize) {
    let line = format!("blocked_clients:{count}");
    until(
        &line,
        || matches!(client.say("INFO clients"), Reply::Bulk(text) if String::from_utf8_lossy(&text).lines().any(|l| l == line)),
    );
}

#[test]
fn a_key_that_becomes_of_another_type_is_no_error_for_who_waits() {
    for domain in [DomainChoice::Emulated, DomainChoice::File] {
        let running = Running::start(domain);
        let (mut client, mut other) = (running.client(), running.client());
        for (wait, wrong, right, got) in [
            ("BLPOP a b 0", "ZADD a 1 m", "RPUSH b x", &["b", "x"][..]),
            ("BRPOP a 0", "ZADD a 1 m", "RPUSH a x", &["a", "x"]),
            ("BLMPOP 0 2 a b LEFT", "ZADD a 1 m", "RPUSH b x", &["b", "x"]),
            ("BZPOPMIN a b 0", "RPUSH a m", "ZADD b 1 x", &["b", "x", "1"]),
            ("BZPOPMAX a 0", "RPUSH a m", "ZADD a 1 x", &["a", "x", "1"]),
            ("BZMPOP 0 2 a b MIN", "RPUSH a m", "ZADD b 1 x", &["b", "x", "1"]),
            ("BLMOVE a to LEFT LEFT 0", "ZADD a 1 m", "RPUSH a x", &["x"]),
            ("BRPOPLPUSH a to 0", "ZADD a 1 m", "RPUSH a x", &["x"]),
        ] {
            other.say("DEL a b");
            client.send(&[wait.as_bytes(), b"\r\n"].concat());
            blocked(&mut other, 1);
            other.say(wrong);
            if !got.contains(&"b") {
                other.say("DEL a");
            }
            other.say(right);
            let mut words = Vec::new();
            flat(client.reply(), &mut words);
            assert_eq!(words, got, "{wait}");
        }
        // Where it is to go to must be a list when it goes there.
        other.say("DEL a");
        client.send(b"BLMOVE a to LEFT LEFT 0\r\n");
        blocked(&mut other, 1);
        other.say("SET to text");
        other.say("RPUSH a x");
        assert!(client.reply().error().starts_with("WRONGTYPE"));
        assert_eq!(other.say("LLEN a"), Reply::Int(1));
    }
}

fn flat(reply: Reply, words: &mut Vec<String>) {
    match reply {
        Reply::Array(all) => all.into_iter().for_each(|one| flat(one, words)),
        Reply::Bulk(text) => words.push(String::from_utf8_lossy(&text).into_owned()),
        other => panic!("{other:?}"),
    }
}

/// A push wakes the first in the row, for which it may be nothing.
#[test]
fn what_is_of_another_type_goes_to_who_waits_behind() {
    for domain in [DomainChoice::Emulated, DomainChoice::File] {
        let running = Running::start(domain);
        let mut other = running.client();
        let mut row: Vec<Client> = (0..5).map(|_| running.client()).collect();
        for (at, client) in row.iter_mut().enumerate() {
            client.send(if at % 2 == 1 { b"BLPOP a 0\r\n" } else { b"BZPOPMIN a 0\r\n" });
            blocked(&mut other, at + 1);
        }
        for (at, value) in [(1, "x"), (3, "y")] {
            other.say(&format!("RPUSH a {value}"));
            assert_eq!(row[at].reply(), texts(&["a", value]));
        }
        // Of several that wait for the same any may come first: one that was woken before may not have looked.
        other.say("ZADD a 1 m 2 n 3 o");
        let mut got: Vec<Reply> = [0, 2, 4].map(|at| row[at].reply()).into();
        got.sort_by_key(|reply| format!("{reply:?}"));
        assert_eq!(got, [["a", "m", "1"], ["a", "n", "2"], ["a", "o", "3"]].map(|words| texts(&words)));
    }
}

fn texts(words: &[&str]) -> Reply {
    Reply::Array(words.iter().map(|word| Reply::text(word)).collect())
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
    // Which one comes first is as with Redis.
    assert_eq!(client.say("BLMOVE none to LEFT MIDDLE x").error(), "ERR syntax error");
    assert!(client.say("BLMOVE none to left right x").error().starts_with("ERR timeout is not a float"));
    assert!(client.say("BLMPOP x 1 none MIDDLE").error().starts_with("ERR timeout is not a float"));
    assert!(client.say("BLPOP none 1e16").error().starts_with("ERR timeout is"));
    client.say("RPUSH there x");
    assert_eq!(client.say("BLPOP there 9e15"), texts(&["there", "x"]));
    client.say("SET text 1");
    assert!(client.say("BLPOP text 0").error().starts_with("WRONGTYPE"));
    client.say("ZADD z 1 a");
    assert_eq!(client.say("BZPOPMAX none z 0"), Reply::Array(["z", "a", "1"].map(Reply::text).to_vec()));
    // Within a transaction no command waits.
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

/// A command that names a key twice, or in a database that it may not have written, wakes the client that waits longest, and no other beside it.
#[test]
fn the_first_that_waits_is_served_whatever_brings_it() {
    let running = Running::start(DomainChoice::Emulated);
    let mut client = running.client();
    for lines in [
        &["COPY l l DB 0"][..],
        &["MOVE l 0"],
        &["MULTI", "COPY l l DB 0", "SELECT 0", "EXPIRE l 100", "EXEC"],
        &["SELECT 0", "MULTI", "RPUSH l x", "EXPIRE l 100", "PERSIST l", "EXEC"],
    ] {
        let mut waiting: Vec<Client> = Vec::new();
        for blocked in 1..=6 {
            let mut one = running.client();
            one.send(b"BLPOP l 0\r\n");
            until("it waits", || {
                let Reply::Bulk(text) = client.say("INFO clients") else { panic!("no text") };
                String::from_utf8(text).unwrap().contains(&format!("blocked_clients:{blocked}\r\n"))
            });
            waiting.push(one);
        }
        client.say("SELECT 1");
        client.say("RPUSH l a");
        lines.iter().for_each(|line| drop(client.say(line)));
        assert!(matches!(waiting[0].reply(), Reply::Array(_)), "{lines:?}");
        // What comes for the others is for each of them once.
        client.say("SELECT 0");
        client.say("RPUSH l b b b b b");
        let element = Reply::Array(vec![Reply::text("l"), Reply::text("b")]);
        waiting[1..].iter_mut().for_each(|one| assert_eq!(one.reply(), element, "{lines:?}"));
        client.say("FLUSHALL");
    }
}
