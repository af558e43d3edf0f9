//! Scripts that several connections have sent meanwhile are one transaction, and each has its own answer and its own end.

use crate::held::Held;
use crate::support::{Client, Reply, Store, request, until};

/// Connections of which the thread knows.
fn clients(held: &Held, count: usize) -> Vec<Client> {
    let known = |mut client: Client| {
        assert_eq!(client.say("PING"), Reply::Simple("PONG".to_owned()));
        client
    };
    (0..count).map(|_| known(held.client())).collect()
}

/// Each of these sends its script, and the thread finds them all at one time.
fn at_once(held: &Held, clients: &mut [Client], script: impl Fn(usize) -> Vec<String>) {
    held.during(b"SET held 1\r\n", || {
        for (at, client) in clients.iter_mut().enumerate() {
            let words = script(at);
            client.send(&request(&words.iter().map(String::as_str).collect::<Vec<_>>()));
        }
    });
}

fn words(command: &str, script: &str, at: usize) -> Vec<String> {
    [command, script, "0", &at.to_string()].map(str::to_owned).to_vec()
}

const COUNTS: &str = "local n = redis.call('INCR', 'n') redis.call('PUBLISH', 'news', ARGV[1]) return {n, ARGV[1]}";
const FAILS: &str = "redis.call('INCR', 'n') return redis.call('LPUSH', 'list')";
const SELECTS: &str = "redis.call('INCR', 'n') redis.call('SELECT', 3) return redis.call('INCR', 'in3')";
const READS: &str = "return redis.call('GET', 'fixed')";

fn mixed(at: usize) -> Vec<String> {
    match at % 4 {
        0 => words("EVAL", COUNTS, at),
        1 => words("EVAL", FAILS, at),
        2 => words("EVAL", SELECTS, at),
        _ => words("EVAL_RO", READS, at),
    }
}

/// What each is told, of 16.
fn answered(clients: &mut [Client]) {
    let (mut counts, mut in_three) = (Vec::new(), Vec::new());
    for (at, client) in clients.iter_mut().enumerate() {
        match (at % 4, client.reply()) {
            (0, Reply::Array(parts)) => {
                let [Reply::Int(n), own] = &parts[..] else { panic!("{parts:?}") };
                assert_eq!(*own, Reply::text(&at.to_string()));
                counts.push(*n);
            }
            (1, reply) => assert!(reply.error().contains("Wrong number of args"), "{reply:?}"),
            (2, Reply::Int(n)) => in_three.push(n),
            (3, reply) => assert_eq!(reply, Reply::text("1")),
            (_, reply) => panic!("{at}: {reply:?}"),
        }
        // A script's database is not its connection's.
        assert!(shown(&client.say("CLIENT INFO")).contains(" db=0 "));
        assert_eq!(client.say("EXISTS in3"), Reply::Int(0));
    }
    in_three.sort_unstable();
    assert_eq!(in_three, [1, 2, 3, 4]);
    counts.sort_unstable();
    counts.dedup();
    assert_eq!(counts.len(), 4);
}

fn shown(reply: &Reply) -> String {
    if let Reply::Bulk(text) = reply { String::from_utf8_lossy(text).into_owned() } else { panic!("{reply:?}") }
}

fn heard(subscriber: &mut Client, expected: &[usize]) {
    let mut all: Vec<usize> = expected
        .iter()
        .map(|_| match subscriber.reply() {
            Reply::Array(parts) => match &parts[2] {
                Reply::Bulk(text) => std::str::from_utf8(text).unwrap().parse().unwrap(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        })
        .collect();
    all.sort_unstable();
    assert_eq!(all, expected);
}

#[test]
fn those_that_have_come_meanwhile_are_one_transaction() {
    let held = Held::start(Store::Kv);
    let (mut other, mut subscriber) = (held.client(), held.client());
    other.say("SET fixed 1");
    subscriber.say("SUBSCRIBE news");
    let mut clients = clients(&held, 16);
    let is_shared = |_| {
        let before = held.changed();
        at_once(&held, &mut clients, mixed);
        answered(&mut clients);
        heard(&mut subscriber, &[0, 4, 8, 12]);
        assert_eq!(other.say("GET n"), Reply::text("12"));
        other.say("PUBLISH news 99");
        heard(&mut subscriber, &[99]);
        other.say("DEL n");
        other.say("SELECT 3");
        other.say("DEL in3");
        other.say("SELECT 0");
        // Besides that of the client that held the thread, and these three.
        held.changed() - before - 3 < 12
    };
    // Where their thread does not run for some milliseconds each is one of its own: on a busy machine now and then.
    assert!((0..100).any(is_shared), "each of 12 is always one of its own");
}

/// One of them takes long: the others are run without it, once.
#[test]
fn one_that_takes_long_leaves_the_others() {
    let held = Held::start(Store::Kv);
    let (mut other, mut subscriber) = (held.client(), held.client());
    other.say("SET fixed 1");
    other.say("CONFIG SET lua-time-limit 600000");
    subscriber.say("SUBSCRIBE news");
    let mut clients = clients(&held, 17);
    at_once(&held, &mut clients, |at| match at {
        16 => words("EVAL", "redis.call('PUBLISH', 'news', 77) while true do end", at),
        _ => mixed(at),
    });
    answered(&mut clients[..16]);
    heard(&mut subscriber, &[0, 4, 8, 12]);
    assert_eq!(other.say("GET n"), Reply::text("12"));
    until("it can be killed", || other.say("SCRIPT KILL") == Reply::ok());
    assert!(clients[16].reply().error().contains("SCRIPT KILL"));
    other.say("PUBLISH news 99");
    heard(&mut subscriber, &[99]);
}

/// Where each is run alone, as one of them takes long, none waits for the answer of those behind it.
#[test]
fn those_that_are_run_alone_are_answered_one_by_one() {
    let held = Held::start(Store::Kv);
    let mut other = held.client();
    other.say("CONFIG SET lua-time-limit 600000");
    let mut clients = clients(&held, 3);
    let scripts = ["while true do end", "return 1", "return redis.call('INCR', 'n')"];
    held.during(b"SET held 1\r\n", || {
        for (client, script) in clients.iter_mut().zip(scripts) {
            client.send(&request(&["EVAL", script, "0"]));
        }
        held.hold_next();
    });
    let [long, first, second] = &mut clients[..] else { panic!("three") };
    held.held(|| assert_eq!(first.reply(), Reply::Int(1)));
    assert_eq!(second.reply(), Reply::Int(1));
    until("it can be killed", || other.say("SCRIPT KILL") == Reply::ok());
    assert!(long.reply().error().contains("SCRIPT KILL"));
}
