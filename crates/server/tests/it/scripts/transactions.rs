//! A script is one transaction: of two that meet one runs again, and nothing of it is seen before it is durable.

use std::io::Write;
use std::process::{Command, Stdio};

use pmem::DomainChoice;

use super::DOMAINS;
use crate::support::{Client, Reply, Running, Store, request, scarce, start, until, usual, watched};
use crate::witness::Served;

/// Adds one to the counters that it is given, by what it has read. One of its commands is refused.
const ADD: &str = "redis.pcall('nope') local n = 0 for _, key in ipairs(KEYS) do n = tonumber(redis.call('get', key) or 0) + 1 redis.call('set', key, n) end redis.call('publish', 'news', n) return n";

fn number(reply: Reply) -> i64 {
    match reply {
        Reply::Int(number) => number,
        Reply::Bulk(text) => String::from_utf8_lossy(&text).parse().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn counters_lose_nothing_and_nothing_is_counted_twice() {
    const CLIENTS: i64 = 4;
    const EACH: i64 = 100;
    for running in [Running::start(DOMAINS[0]), Running::start(DOMAINS[1]), Running::tree()] {
        let mut hears = running.client();
        hears.say("HELLO 3");
        hears.say("SUBSCRIBE news");
        let mut seen: Vec<i64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..CLIENTS)
                .map(|at| {
                    let mut client = running.client();
                    scope.spawn(move || {
                        // Some in the order in which others have them not, and some between MULTI and EXEC.
                        let keys = if at % 2 == 0 { ["a", "b"] } else { ["b", "a"] };
                        let mut seen = Vec::new();
                        for n in 0..EACH {
                            let eval = ["EVAL", ADD, "2", keys[0], keys[1]];
                            if n % 4 == 0 {
                                client.send(&[request(&["MULTI"]), request(&eval), request(&["EXEC"])].concat());
                                (0..2).for_each(|_| drop(client.reply()));
                                let Reply::Array(mut all) = client.reply() else { panic!("no array") };
                                seen.push(number(all.remove(0)));
                            } else {
                                seen.push(number(client.ask(&eval)));
                            }
                        }
                        seen
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        seen.sort_unstable();
        assert!(seen.into_iter().eq(1..=CLIENTS * EACH), "each value is returned once");
        let mut client = running.client();
        for key in ["a", "b"] {
            assert_eq!(number(client.say(&format!("GET {key}"))), CLIENTS * EACH);
        }
        // Those of attempts in vain do not count.
        let errors = format!("\r\ntotal_error_replies:{}\r\n", CLIENTS * EACH);
        until("each refusal counts once, behind its answer", || {
            let Reply::Bulk(stats) = client.say("INFO stats") else { panic!("no text") };
            String::from_utf8_lossy(&stats).contains(&errors)
        });
        // Published once each.
        let mut heard: Vec<i64> = (0..CLIENTS * EACH)
            .map(|_| match hears.reply() {
                Reply::Array(mut words) => number(words.remove(2)),
                other => panic!("{other:?}"),
            })
            .collect();
        heard.sort_unstable();
        assert!(heard.into_iter().eq(1..=CLIENTS * EACH));
        assert_eq!(hears.say("PING"), Reply::Simple("PONG".to_owned()), "nothing more is told");
    }
}

#[test]
fn an_element_that_a_script_puts_wakes_who_waits() {
    for domain in DOMAINS {
        let running = Running::start(domain);
        let (mut waits, mut client) = (running.client(), running.client());
        for line in [
            "EVAL return(redis.call('rpush','list','x')) 0",
            "MULTI;EVAL return(redis.call('rpush',KEYS[1],'x')) 1 list;EXEC",
        ] {
            waits.send(b"BLPOP list 0\r\n");
            until(
                "it waits",
                || matches!(client.say("INFO clients"), Reply::Bulk(text) if String::from_utf8_lossy(&text).contains("blocked_clients:1")),
            );
            line.split(';').for_each(|one| drop(client.say(one)));
            assert_eq!(waits.reply(), Reply::Array(vec![Reply::text("list"), Reply::text("x")]));
        }
    }
}

#[test]
fn users_may_do_in_scripts_what_they_may_do() {
    for domain in DOMAINS {
        let running = Running::start(domain);
        let mut admin = running.client();
        let reads = "local r = redis.pcall('get', ARGV[1]) return type(r) == 'table' and r.err or r";
        admin.say("SET own:a 1");
        admin.say("SET other 2");
        assert_eq!(
            admin.say("ACL SETUSER ada on >pw ~own:* %R~seen:* &news +@scripting +@read +set +publish"),
            Reply::ok()
        );
        let mut ada = running.client();
        assert_eq!(ada.say("AUTH ada pw"), Reply::ok());
        assert_eq!(ada.ask(&["EVAL", reads, "0", "own:a"]), Reply::text("1"));
        let text = |reply: Reply| match reply {
            Reply::Bulk(text) => String::from_utf8_lossy(&text).into_owned(),
            Reply::Error(text) => text,
            other => panic!("{other:?}"),
        };
        for (reply, has) in [
            (ada.ask(&["EVAL", reads, "0", "other"]), "can't access at least one of the keys"),
            (ada.ask(&["EVAL", "return redis.call('del', 'own:a')", "0"]), "can't run this command"),
            (ada.ask(&["EVAL", "return redis.call('publish', 'x', 'y')", "0"]), "can't publish to the channel"),
            (
                ada.ask(&["EVAL", "return redis.call('set', 'seen:a', 'y')", "0"]),
                "can't access at least one of the keys",
            ),
            (ada.ask(&["EVAL", "return 1", "1", "other"]), "NOPERM"),
            // A key that a script is given may be written.
            (ada.ask(&["EVAL", "return 1", "1", "seen:a"]), "NOPERM"),
            (ada.ask(&["FLUSHALL"]), "NOPERM"),
        ] {
            let said = text(reply);
            assert!(said.contains(has), "{said}, not {has}");
        }
        assert_eq!(ada.ask(&["EVAL_RO", "return redis.call('get', KEYS[1])", "1", "seen:a"]), Reply::Null);
        assert_eq!(ada.ask(&["EVAL", "return redis.acl_check_cmd('del', 'own:a')", "0"]), Reply::Null);
        assert_eq!(ada.ask(&["EVAL", "return redis.acl_check_cmd('get', 'own:a')", "0"]), Reply::Int(1));
        admin.say("ACL SETUSER ada -@scripting");
        let mut ada = running.client();
        ada.say("AUTH ada pw");
        assert!(ada.ask(&["EVAL", "return 1", "0"]).error().starts_with("NOPERM"));
    }
}

#[test]
fn a_script_keeps_what_it_wrote_before_its_error_and_nothing_before_an_end() {
    for domain in DOMAINS {
        let running = Running::start(domain);
        let (mut client, mut other) = (running.client(), running.client());
        assert!(
            client.ask(&["EVAL", "redis.call('set', 'a', 1) error('x')", "0"]).error().contains("user_script:1: x")
        );
        assert_eq!(client.say("GET a"), Reply::text("1"));
        client.say("CONFIG SET lua-time-limit 60000");
        client.send(&request(&["EVAL", "redis.call('set', 'a', 2) while true do end", "0"]));
        until("it is killed", || other.say("SCRIPT KILL") == Reply::ok());
        assert!(client.reply().error().contains("SCRIPT KILL"));
        assert_eq!(client.say("GET a"), Reply::text("1"));
        assert!(other.say("SCRIPT KILL").error().starts_with("NOTBUSY"));
        // Between MULTI and EXEC all of it.
        client.send(b"MULTI\r\nSET a 3\r\n");
        client.send(&request(&["EVAL", "while true do pcall(redis.call, 'get', 'a') end", "0"]));
        client.send(b"EXEC\r\n");
        until("it is killed", || other.say("SCRIPT KILL") == Reply::ok());
        (0..3).for_each(|_| drop(client.reply()));
        assert!(client.reply().error().contains("SCRIPT KILL"));
        assert_eq!(client.say("GET a"), Reply::text("1"));
    }
}

/// What ends the transaction is nothing that a script can catch, and leaves nothing of it.
#[test]
fn scripts_whose_commands_panic_or_find_no_room_leave_nothing() {
    for (store, domain) in [
        (Store::Kv, DomainChoice::Emulated),
        (Store::Kv, DomainChoice::File),
        (Store::Slow, DomainChoice::File),
        (Store::Tree, DomainChoice::Emulated),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let engine = store.open(dir.path().join("store"), pmem::Options::new().domain(domain));
        let engine = scarce(engine, Box::new(|key, sets, _| sets && key.ends_with(b"full")));
        let bug = Box::new(|key: &[u8]| assert!(!key.ends_with(b"bug"), "a bug that this test has planted"));
        let server = start(None, usual(), watched(engine, bug));
        let mut client = Client::to(server.redis()[0]);
        for (key, says) in [("bug", "ERR internal error"), ("full", "MISCONF"), ("bug", "ERR internal error")] {
            for call in [
                "redis.call('set', KEYS[1], 1)",
                "pcall(redis.call, 'set', KEYS[1], 1)",
                "redis.pcall('set', KEYS[1], 1)",
            ] {
                let script = format!("redis.call('set', 'half', 1) {call} redis.call('publish', 'news', 1) return 1");
                let said = client.ask(&["EVAL", &script, "1", key]);
                assert!(said.error().starts_with(says), "{store:?} {domain:?} {key}: {said:?}");
                client.say("MULTI");
                client.say("SET half 1");
                client.ask(&["EVAL", &script, "1", key]);
                assert!(client.say("EXEC").error().starts_with(says));
                assert_eq!(client.ask(&["EVAL", "return redis.call('exists', 'half')", "0"]), Reply::Int(0));
            }
        }
        drop(client);
        server.stop();
        server.join().unwrap();
    }
}

// ---- kills ----------------------------------------------------------------------------------------------------

const PLACE: &str = "CAIRN_SERVER_SCRIPTS";

/// Not a test of its own: the process that the test below starts and kills.
#[test]
fn worker() {
    let Ok(place) = std::env::var(PLACE) else { return };
    let (domain, path) = place.split_once(' ').unwrap();
    let domain = if domain == "file" { DomainChoice::File } else { DomainChoice::Emulated };
    let config = server::Config { http: Some("127.0.0.1:0".parse().unwrap()), ..usual() };
    let server = start(None, config, Store::Kv.open(path, pmem::Options::new().domain(domain)));
    eprintln!("cairn: redis at {}", server.redis()[0]);
    eprintln!("cairn: status at http://{}/", server.http().unwrap());
    eprintln!("cairn: serving");
    loop {
        std::thread::park();
    }
}

/// Two keys that scripts set together are the same after any kill, and not behind what was acknowledged.
#[test]
fn kills_leave_all_of_a_script_or_nothing() {
    let program = std::env::current_exe().unwrap();
    for domain in ["emulated", "file"] {
        let dir = tempfile::tempdir().unwrap();
        let mut acknowledged = 0;
        for round in 0..4 {
            let mut command = Command::new(&program);
            command.args(["scripts::transactions::worker", "--exact", "--nocapture", "--test-threads", "1"]);
            command.env(PLACE, format!("{domain} {}", dir.path().join("store").display())).stdout(Stdio::null());
            let mut served = Served::start(&mut command);
            let mut client = Client::to(served.address.parse().unwrap());
            let [a, b] = ["GET a", "GET b"].map(|line| client.say(line));
            assert_eq!(a, b, "{domain} {round}");
            let now = if a == Reply::Null { 0 } else { number(a) };
            assert!(now >= acknowledged, "{domain} {round}: {now}, and {acknowledged} was acknowledged");
            // Others go on meanwhile; this one is answered so often before the kill.
            let clients = (0..2).map(|_| Client::to(served.address.parse().unwrap())).collect::<Vec<_>>();
            std::thread::scope(|scope| {
                for mut other in clients {
                    scope.spawn(move || {
                        while other.0.get_mut().write_all(&request(&["EVAL", ADD, "2", "a", "b"])).is_ok()
                            && other.try_reply().is_some()
                        {}
                    });
                }
                for _ in 0..20 + 10 * round {
                    acknowledged = number(client.ask(&["EVAL", ADD, "2", "a", "b"]));
                }
                served.child.kill().unwrap();
            });
        }
    }
}
