//! `SWAPDB`: clients keep their numbers, all keys of two databases change theirs, at once and for all.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use pmem::DomainChoice;
use server::engine::Engine;
use server::{Server, Step};

use crate::kill;
use crate::support::{Client, Reply, Running, Store, start, until, usual};
use crate::witness::{Connection, Served};

fn say_all(client: &mut Client, lines: &[&str]) {
    for line in lines {
        let reply = client.say(line);
        assert!(!matches!(reply, Reply::Error(_)), "{line}: {reply:?}");
    }
}

fn array(texts: &[&str]) -> Reply {
    Reply::Array(texts.iter().map(|text| Reply::text(text)).collect())
}

#[test]
fn keys_change_their_number_and_clients_do_not() {
    numbers_change(None);
}

pub fn numbers_change(step: Option<Step>) {
    for running in Store::ALL.map(|store| Running::without(step, store, DomainChoice::Emulated)) {
        let (mut zero, mut one) = (running.client(), running.client());
        say_all(&mut zero, &["SET k zero", "RPUSH l a b", "SET only zero EX 1000", "SADD s 1 2 3"]);
        say_all(&mut one, &["SELECT 1", "SET k one", "HSET h f v"]);
        assert_eq!(zero.say("SWAPDB 0 1"), Reply::ok());
        assert_eq!((zero.say("GET k"), one.say("GET k")), (Reply::text("one"), Reply::text("zero")));
        assert_eq!((zero.say("DBSIZE"), one.say("DBSIZE")), (Reply::Int(2), Reply::Int(4)));
        assert_eq!(one.say("LRANGE l 0 -1"), array(&["a", "b"]));
        assert!(matches!(one.say("TTL only"), Reply::Int(990..)));
        let Reply::Bulk(keyspace) = zero.say("INFO keyspace") else { panic!("no text") };
        let keyspace = String::from_utf8(keyspace).unwrap();
        assert!(keyspace.contains("db0:keys=2") && keyspace.contains("db1:keys=4"), "{keyspace}");
        // Commands that name databases go by the numbers of now.
        assert_eq!(zero.say("MOVE h 1"), Reply::Int(1));
        assert_eq!(one.say("HGET h f"), Reply::text("v"));
        assert_eq!(one.say("COPY only only DB 0"), Reply::Int(1));
        assert_eq!(zero.say("GET only"), Reply::text("zero"));
        assert_eq!(zero.say("MOVE k 0").error(), "ERR source and destination objects are the same");
        assert_eq!(zero.say("FLUSHDB"), Reply::ok());
        assert_eq!((zero.say("DBSIZE"), one.say("DBSIZE")), (Reply::Int(0), Reply::Int(5)));
        // Within a transaction, behind it.
        say_all(&mut zero, &["MULTI", "SET m 1", "SWAPDB 1 0", "GET m", "GET k", "SWAPDB 0 5"]);
        let replies = [Reply::ok(), Reply::ok(), Reply::Null, Reply::text("zero"), Reply::ok()];
        assert_eq!(zero.say("EXEC"), Reply::Array(replies.to_vec()));
        assert_eq!((zero.say("DBSIZE"), one.say("GET m")), (Reply::Int(0), Reply::text("1")));
        let script = "redis.call('SWAPDB', 0, 5); return redis.call('GET', 'k')";
        assert_eq!(zero.ask(&["EVAL", script, "0"]), Reply::text("zero"));
        let read_only = zero.ask(&["EVAL_RO", script, "0"]);
        assert!(read_only.error().contains("Write commands are not allowed"), "{read_only:?}");
        for (line, text) in [
            ("SWAPDB x 1", "ERR invalid first DB index"),
            ("SWAPDB 1 3000000000", "ERR invalid second DB index"),
            ("SWAPDB 1 16", "ERR DB index is out of range"),
            ("SWAPDB 1", "ERR wrong number of arguments for 'swapdb' command"),
        ] {
            assert_eq!(zero.say(line).error(), text);
        }
        // Sent at once with others.
        zero.send(b"SET p 1\r\nSWAPDB 0 7\r\nGET p\r\nSET p 2\r\nSWAPDB 7 0\r\nGET p\r\n");
        let replies = (0..6).map(|_| zero.reply()).collect::<Vec<_>>();
        assert_eq!(replies, [Reply::ok(), Reply::ok(), Reply::Null, Reply::ok(), Reply::ok(), Reply::text("1")]);
    }
}

#[test]
fn what_is_watched_has_changed_if_it_was_in_either_database() {
    watched_in_either(None);
}

pub fn watched_in_either(step: Option<Step>) {
    let running = Running::without(step, Store::Kv, DomainChoice::Emulated);
    let mut client = running.client();
    // Both set by one transaction: they have the same version.
    say_all(&mut client, &["MULTI", "SET k 1", "SELECT 1", "SET k 2", "SET there 2", "SELECT 0", "EXEC"]);
    for (key, swap, holds) in [
        ("k", "SWAPDB 0 1", false),
        ("there", "SWAPDB 0 1", false),
        ("never", "SWAPDB 0 1", true),
        ("k", "SWAPDB 2 3", true),
    ] {
        say_all(&mut client, &[&format!("WATCH {key}"), swap, "MULTI", "PING"]);
        let answer = client.say("EXEC");
        assert_eq!(answer != Reply::Null, holds, "{key}, {swap}: {answer:?}");
    }
}

#[test]
fn clients_that_wait_are_served_from_what_comes_to_their_number() {
    for running in [Running::start(DomainChoice::Emulated), Running::start(DomainChoice::File)] {
        let mut client = running.client();
        say_all(&mut client, &["SELECT 1", "RPUSH l a b", "ZADD z 1 m", "XADD x 5-1 f v", "XGROUP CREATE x g 0"]);
        say_all(&mut client, &["SELECT 0", "XGROUP CREATE x g 0 MKSTREAM", "SELECT 3"]);
        let lines = [
            "BLPOP l 0",
            "BLMPOP 0 1 l RIGHT",
            "BZPOPMIN z 0",
            "XREAD BLOCK 0 STREAMS x 0",
            "XREADGROUP GROUP g me BLOCK 0 STREAMS x >",
        ];
        let mut waiting = lines.map(|line| {
            let mut client = running.client();
            client.send(format!("{line}\r\n").as_bytes());
            client
        });
        until("all wait", || {
            let Reply::Bulk(text) = client.say("INFO clients") else { panic!("no text") };
            String::from_utf8(text).unwrap().contains("blocked_clients:5\r\n")
        });
        assert_eq!(client.say("SWAPDB 1 0"), Reply::ok());
        let replies = waiting.each_mut().map(Client::reply);
        let taken = [&replies[0], &replies[1]].map(|reply| format!("{reply:?}"));
        assert_ne!(taken[0], taken[1]);
        assert!(replies.iter().all(|reply| matches!(reply, Reply::Array(_))), "{replies:?}");
        // One whose stream is gone with the database is told so.
        let mut reader = running.client();
        reader.send(b"XREADGROUP GROUP g me BLOCK 0 STREAMS x >\r\n");
        until("it waits", || {
            let Reply::Bulk(text) = client.say("INFO clients") else { panic!("no text") };
            String::from_utf8(text).unwrap().contains("blocked_clients:1\r\n")
        });
        assert_eq!(client.say("SWAPDB 0 9"), Reply::ok());
        let gone = reader.reply();
        assert!(gone.error().starts_with("UNBLOCKED"), "{gone:?}");
    }
}

#[test]
fn events_name_the_number_of_the_moment() {
    let running = Running::start(DomainChoice::Emulated);
    let mut client = running.client();
    client.say("CONFIG SET notify-keyspace-events EA");
    let mut hears = running.client();
    hears.ask(&["PSUBSCRIBE", "__keyevent*"]);
    say_all(&mut client, &["SET k 1 PX 400", "MULTI", "SET m 1", "SWAPDB 0 4", "SET n 1", "EXEC"]);
    let mut channels = Vec::new();
    while channels.last().is_none_or(|last: &String| !last.ends_with("expired")) {
        let Reply::Array(parts) = hears.reply() else { panic!("no message") };
        let Reply::Bulk(channel) = &parts[2] else { panic!("{parts:?}") };
        channels.push(String::from_utf8(channel.clone()).unwrap());
    }
    let expected = ["0__:set", "0__:expire", "0__:set", "0__:set", "4__:expired"];
    assert_eq!(channels, expected.map(|rest| format!("__keyevent@{rest}")));
}

/// What stands behind the seed of the store, which servers from before `SWAPDB` take for damage: they must not serve databases under the wrong numbers.
fn seed_bytes(engine: &dyn Engine) -> usize {
    let mut bytes = 0;
    let read = engine.read(&mut |tx| {
        bytes = tx.get(b"\xf3seed")?.map_or(0, <[u8]>::len);
        Ok(())
    });
    read.unwrap();
    bytes
}

#[test]
fn the_map_is_there_after_a_start_and_gone_when_it_says_nothing() {
    map_is_kept(None);
}

pub fn map_is_kept(step: Option<Step>) {
    for store in Store::ALL {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let open = || store.open(&path, pmem::Options::new());
        let with = |run: &dyn Fn(&mut Client)| {
            let server: Server = start(step, usual(), open());
            run(&mut Client::to(server.redis()[0]));
            server.stop();
            server.join().unwrap();
            let engine = open();
            let bytes = seed_bytes(&*engine);
            engine.close().unwrap();
            bytes
        };
        assert_eq!(with(&|client| say_all(client, &["SADD s a b", "SWAPDB 3 3"])), 8, "{store:?}");
        assert_eq!(
            with(&|client| say_all(client, &["SWAPDB 0 3", "SWAPDB 3 15"])),
            24,
            "the map is in the store: {store:?}"
        );
        let found = |client: &mut Client| {
            say_all(client, &["SELECT 15"]);
            assert_eq!(client.say("SISMEMBER s a"), Reply::Int(1), "{store:?}");
            say_all(client, &["SWAPDB 15 3", "SWAPDB 0 3"]);
        };
        assert_eq!(with(&found), 8, "{store:?}");
        // One that is no map is not served.
        let engine = open();
        engine.write(&mut |tx| tx.put(b"\xf3seed", &[0; 24], None)).unwrap();
        let error = Server::start(usual(), engine).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("no permutation of 0 to 15"), "{store:?}: {error}");
    }
}

/// By the text that stands in a database the last number that was acknowledged there; and what was on its way.
#[derive(Default)]
pub struct Written {
    done: [u64; 2],
    last: u64,
    on_its_way: bool,
}

const MARKS: [&str; 2] = ["one", "two"];

fn mark(text: &str) -> usize {
    MARKS.iter().position(|mark| *mark == text).unwrap_or_else(|| panic!("no mark: {text}"))
}

impl Written {
    /// Sets a key in what number 0 leads to, with a look at what that is.
    pub fn write(&mut self, connection: &mut Connection, key: &str) -> std::io::Result<()> {
        (self.last, self.on_its_way) = (self.last + 1, true);
        for line in ["MULTI", "GET mark", &format!("SET {key} {}", self.last)] {
            connection.ask(line)?;
        }
        assert_eq!(connection.ask("EXEC")?, "*2");
        let found = mark(&connection.reply()?);
        assert_eq!(connection.reply()?, "+OK");
        self.done[found] = self.last;
        self.on_its_way = false;
        Ok(())
    }
}

/// A store that has nothing yet.
pub fn mark_both(served: &Served) {
    let mut connection = served.connect();
    for line in ["SET mark one", "SELECT 1", "SET mark two"] {
        assert_eq!(connection.ask(line).unwrap(), "+OK");
    }
}

/// Each database has its mark, and what was acknowledged in it.
pub fn check(served: &Served, written: &mut [Written]) {
    let mut connection = served.connect();
    let mut marks = Vec::new();
    for number in 0..2 {
        connection.ask(&format!("SELECT {number}")).unwrap();
        marks.push(mark(&connection.ask("GET mark").unwrap()));
        for (client, written) in written.iter_mut().enumerate() {
            let found = connection.ask(&format!("GET c{client}")).unwrap();
            let found = if found == "nil" { 0 } else { found.parse().unwrap() };
            let done = &mut written.done[marks[number]];
            assert!(found == *done || written.on_its_way && found == written.last, "c{client}: {found}, not {done}");
            if found != *done {
                (*done, written.on_its_way) = (found, false);
            }
        }
    }
    assert_ne!(marks[0], marks[1]);
    written.iter_mut().for_each(|written| written.on_its_way = false);
}

/// A server is killed while one client swaps and others write. Both databases are swapped or not, with all that was acknowledged.
#[test]
fn a_kill_leaves_all_of_a_swap_or_nothing() {
    for domain in ["emulated", "file"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let mut written: Vec<Written> = (0..3).map(|_| Written::default()).collect();
        let swapped = AtomicU64::new(0);
        for round in 0..5 {
            let served = kill::whole(domain, &path);
            if round == 0 {
                mark_both(&served);
            }
            check(&served, &mut written);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let Ok(mut connection) = Connection::to(&served.address) else { return };
                    while connection.ask("SWAPDB 0 1").is_ok_and(|said| said == "+OK") {
                        swapped.fetch_add(1, SeqCst);
                    }
                });
                for (client, written) in written.iter_mut().enumerate() {
                    let (served, swapped) = (&served, &swapped);
                    scope.spawn(move || {
                        let Ok(mut connection) = Connection::to(&served.address) else { return };
                        let mut count = 0;
                        while written.write(&mut connection, &format!("c{client}")).is_ok() {
                            count += 1;
                            // Where swaps and writes are on their way, in another place each time.
                            if client == 0 && count > 10 + 7 * round && swapped.load(SeqCst) > round {
                                let id = served.child.id().to_string();
                                assert!(
                                    std::process::Command::new("kill").args(["-9", &id]).status().unwrap().success()
                                );
                            }
                        }
                    });
                }
            });
        }
        check(&kill::whole(domain, &path), &mut written);
        assert!(swapped.load(SeqCst) >= 5, "{domain}: nothing was swapped");
    }
}

/// Readers and writers beside swaps: each sees one map for all of its transaction, and every count is there in the end.
#[test]
fn no_transaction_sees_half_of_a_swap() {
    const EACH: usize = 150;
    for running in
        [Running::start(DomainChoice::Emulated), Running::tree(), Running::on(Store::Slow, DomainChoice::File)]
    {
        let mut client = running.client();
        say_all(&mut client, &["SET mark one", "SELECT 1", "SET mark two", "SELECT 0"]);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut client = running.client();
                (0..EACH).for_each(|_| assert_eq!(client.say("SWAPDB 0 1"), Reply::ok()));
            });
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut client = running.client();
                    for _ in 0..EACH {
                        client.send(b"MULTI\r\nGET mark\r\nINCR n\r\nSELECT 1\r\nGET mark\r\nSELECT 0\r\nEXEC\r\n");
                        let Some(Reply::Array(replies)) = (0..7).map(|_| client.reply()).last() else {
                            panic!("no array")
                        };
                        assert_ne!(replies[0], replies[3]);
                        assert!([&replies[0], &replies[3]].iter().all(|reply| **reply != Reply::Null));
                    }
                });
            }
        });
        let mut sum = 0;
        for line in ["GET n", "SELECT 1", "GET n"] {
            if let Reply::Bulk(text) = client.say(line) {
                sum += String::from_utf8(text).unwrap().parse::<usize>().unwrap();
            }
        }
        assert_eq!(sum, 3 * EACH);
    }
}
