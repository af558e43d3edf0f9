//! What a subscriber does not read is no other client's loss, and what is published is told once and in order.

use std::time::Duration;

use pmem::DomainChoice;
use server::{Config, Settings};

use crate::support::{Client, Reply, Running, request, until};

const DOMAINS: [DomainChoice; 2] = [DomainChoice::Emulated, DomainChoice::File];
const MESSAGE: usize = 1_000_000;

/// No client is ended because it does not read, while a test runs.
fn patient(domain: DomainChoice) -> Running {
    let wait_limit = Duration::from_secs(3600);
    let with = |config: Config| Config { settings: Settings { wait_limit, ..config.settings.clone() }, ..config };
    Running::with(domain, with, |options| options)
}

fn line_of(client: &mut Client, command: &str, has: &str) -> String {
    let Reply::Bulk(text) = client.say(command) else { panic!("no text: {command}") };
    let text = String::from_utf8_lossy(&text).into_owned();
    text.lines().find(|line| line.contains(has)).unwrap_or_else(|| panic!("no {has}: {text}")).to_owned()
}

fn blocked(client: &mut Client, count: usize) {
    let line = format!("blocked_clients:{count}");
    until(&line, || line_of(client, "INFO", "blocked_clients:") == line);
}

/// Bytes that are kept for the connection of that name.
fn kept(client: &mut Client, name: &str) -> usize {
    let line = line_of(client, "CLIENT LIST", &format!(" name={name} "));
    line.split(' ').find_map(|word| word.strip_prefix("omem=")).unwrap().parse().unwrap()
}

fn subscriber(running: &Running, name: &str) -> Client {
    let mut client = running.client();
    client.say("HELLO 3");
    client.say(&format!("CLIENT SETNAME {name}"));
    assert!(matches!(client.say(&format!("SUBSCRIBE {name}")), Reply::Array(_)));
    client
}

/// Publishes until the subscriber of that name is stuck in a write; returns how many messages it took.
fn stuff(client: &mut Client, name: &str) -> usize {
    let publish = request(&["PUBLISH", name, &"x".repeat(MESSAGE)]);
    let mut sent = 0;
    while kept(client, name) < 3 * MESSAGE {
        client.send(&publish);
        assert_eq!(client.reply(), Reply::Int(1));
        sent += 1;
        assert!(sent < 1000);
    }
    sent
}

#[test]
fn one_that_does_not_read_lets_others_have_the_element() {
    for domain in DOMAINS {
        let running = patient(domain);
        let mut other = running.client();
        let mut stuck = subscriber(&running, "stuck");
        stuck.send(b"BLPOP list 0\r\n");
        blocked(&mut other, 1);
        let mut waits = running.client();
        waits.send(b"BLPOP list 0\r\n");
        blocked(&mut other, 2);
        let sent = stuff(&mut other, "stuck");
        assert_eq!(other.say("RPUSH list a"), Reply::Int(1));
        // By the one behind it, if it was stuck by then.
        until("it is taken", || other.say("LLEN list") == Reply::Int(0));
        other.say("RPUSH list b");
        let element = |reply| match reply {
            Reply::Array(words) if words[0] == Reply::text("list") => Some(words[1].clone()),
            _ => None,
        };
        let mut got: Vec<Reply> = element(waits.reply()).into_iter().collect();
        // It reads at last, and has its turn.
        got.extend((0..=sent).filter_map(|_| element(stuck.reply())));
        assert!(got == ["a", "b"].map(Reply::text) || got == ["b", "a"].map(Reply::text), "{got:?}");
    }
}

#[test]
fn one_that_does_not_read_waits_no_longer_than_it_has_asked_for() {
    for domain in DOMAINS {
        let running = patient(domain);
        let mut other = running.client();
        let mut stuck = subscriber(&running, "stuck");
        stuck.send(b"BLPOP list 2\r\nPING behind\r\n");
        blocked(&mut other, 1);
        let sent = stuff(&mut other, "stuck");
        blocked(&mut other, 0);
        assert_eq!(other.say("RPUSH list a"), Reply::Int(1));
        // All of it comes, whole and in order; that the time is over may come in between.
        let mut rest = Vec::new();
        for _ in 0..sent + 2 {
            match stuck.reply() {
                Reply::Array(words) => assert!(matches!(&words[2], Reply::Bulk(text) if text.len() == MESSAGE)),
                other => rest.push(other),
            }
        }
        assert_eq!(rest, [Reply::Null, Reply::text("behind")]);
        assert_eq!(other.say("LLEN list"), Reply::Int(1));
    }
}

/// Behind an answer that has gone, a waiter whose client sends too much ends, and what was published to it meanwhile goes nowhere.
#[test]
fn one_that_sends_on_and_on_while_it_waits_ends_alone() {
    for domain in DOMAINS {
        let running = patient(domain);
        let mut other = running.client();
        let mut client = subscriber(&running, "many");
        let mut all = request(&["PING", "before"]);
        all.extend(request(&["BLPOP", "list", "0"]));
        client.send(&all);
        assert_eq!(client.reply(), Reply::text("before"));
        blocked(&mut other, 1);
        std::thread::scope(|scope| {
            // What is more than it takes meets a closed connection.
            let mut writer = client.0.get_ref().try_clone().unwrap();
            scope.spawn(move || std::io::Write::write_all(&mut writer, &vec![b'x'; 4 << 20]));
            until("it is gone", || {
                other.say("PUBLISH many x");
                other.say("PUBSUB NUMSUB many") == Reply::Array(vec![Reply::text("many"), Reply::Int(0)])
            });
        });
        blocked(&mut other, 0);
    }
}

/// A message for a waiter is not a reason to look for an element.
#[test]
fn messages_cost_a_waiter_no_transaction() {
    for domain in DOMAINS {
        let running = Running::start(domain);
        let mut other = running.client();
        let mut client = subscriber(&running, "waits");
        client.send(b"BLPOP list 0\r\n");
        blocked(&mut other, 1);
        let transactions = |other: &mut Client| -> u64 {
            let line = line_of(other, "INFO", "cairn_transactions:");
            line.split(':').nth(1).unwrap().parse().unwrap()
        };
        let before = transactions(&mut other);
        for _ in 0..100 {
            other.say("PUBLISH waits x");
            assert!(matches!(client.reply(), Reply::Array(_)));
        }
        assert!(transactions(&mut other) < before + 50, "{before}");
    }
}

/// What was published before a request was sent is told before its answer, and nothing behind the last answer.
#[test]
fn messages_come_before_later_answers() {
    for domain in DOMAINS {
        let running = Running::start(domain);
        let mut other = running.client();
        for round in 0..20 {
            for (line, answer) in [
                ("PING", Reply::Simple("PONG".to_owned())),
                ("GET none", Reply::Null),
                ("RESET", Reply::Simple("RESET".to_owned())),
                ("QUIT", Reply::ok()),
            ] {
                // The one before may not be gone yet.
                let channel = format!("{line}-{round}").replace(' ', "-");
                let mut client = subscriber(&running, &channel);
                assert_eq!(other.say(&format!("PUBLISH {channel} x")), Reply::Int(1));
                let message = Reply::Array(["message", &channel, "x"].map(Reply::text).to_vec());
                assert_eq!([client.say(line), client.reply()], [message, answer], "{round} {line}");
                if line == "QUIT" {
                    assert!(client.has_ended());
                }
            }
        }
    }
}

#[test]
fn nothing_is_kept_for_one_that_subscribes_no_longer() {
    for domain in DOMAINS {
        let running = Running::start(domain);
        let mut other = running.client();
        let mut client = subscriber(&running, "news");
        client.send(&[request(&["PUBLISH", "news", &"x".repeat(50_000)]), request(&["UNSUBSCRIBE"])].concat());
        (0..3).for_each(|_| drop(client.reply()));
        client.say("PING");
        assert_eq!(kept(&mut other, "news"), 0);
    }
}

#[test]
fn a_user_that_deletes_itself_hears_nothing_more() {
    for domain in DOMAINS {
        let running = Running::start(domain);
        let mut admin = running.client();
        admin.say("ACL SETUSER ada on >pw ~* &* +@all");
        let mut ada = running.client();
        assert!(matches!(ada.say("HELLO 3 AUTH ada pw"), Reply::Array(_)));
        ada.say("SUBSCRIBE news");
        assert_eq!(ada.say("ACL DELUSER ada"), Reply::Int(1));
        assert!(ada.has_ended());
        until("it is gone", || admin.say("PUBLISH news x") == Reply::Int(0));
    }
}

#[test]
fn subscribers_are_ended_by_their_kind() {
    for domain in DOMAINS {
        let running = Running::start(domain);
        let (mut admin, mut usual, mut hears) = (running.client(), running.client(), subscriber(&running, "news"));
        usual.say("PING");
        assert_eq!(admin.say("CLIENT KILL TYPE pubsub"), Reply::Int(1));
        assert!(hears.has_ended());
        assert_eq!(usual.say("PING"), Reply::Simple("PONG".to_owned()));
        assert_eq!(admin.say("CLIENT KILL TYPE normal"), Reply::Int(1));
        assert!(usual.has_ended());
    }
}

/// A transaction that is run again after conflicts publishes once.
#[test]
fn what_conflicts_is_published_once() {
    const EACH: usize = 50;
    for domain in DOMAINS {
        let running = Running::start(domain);
        let mut hears = subscriber(&running, "news");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let mut client = running.client();
                scope.spawn(move || {
                    for _ in 0..EACH {
                        client.send(b"MULTI\r\nINCR counter\r\nINCR other\r\nPUBLISH news x\r\nEXEC\r\n");
                        (0..4).for_each(|_| drop(client.reply()));
                        assert!(matches!(client.reply(), Reply::Array(said) if said.len() == 3));
                    }
                });
            }
        });
        (0..4 * EACH).for_each(|_| assert!(matches!(hears.reply(), Reply::Array(words) if words.len() == 3)));
        assert_eq!(hears.say("GET counter"), Reply::text(&(4 * EACH).to_string()), "nothing more is told");
    }
}
