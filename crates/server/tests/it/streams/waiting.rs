//! A client that waits for entries gets them in turn, and hears when there is nothing to wait for any more.

use std::io::BufRead;

use pmem::DomainChoice;
use server::Config;

use crate::support::{Client, Reply, Running, Store, start, until, usual};

const DOMAINS: [DomainChoice; 2] = [DomainChoice::Emulated, DomainChoice::File];

fn blocked(client: &mut Client, count: usize) {
    let line = format!("blocked_clients:{count}");
    until(
        &line,
        || matches!(client.say("INFO clients"), Reply::Bulk(text) if String::from_utf8_lossy(&text).lines().any(|l| l == line)),
    );
}

/// What was read: of each stream its key, and of each entry its id.
fn read(reply: Reply) -> Vec<String> {
    let Reply::Array(streams) = reply else { panic!("{reply:?}") };
    let mut found = Vec::new();
    for stream in streams {
        let Reply::Array(pair) = stream else { panic!("{stream:?}") };
        let [Reply::Bulk(key), Reply::Array(entries)] = &pair[..] else { panic!("{pair:?}") };
        found.push(String::from_utf8_lossy(key).into_owned());
        for entry in entries {
            let Reply::Array(parts) = entry else { panic!("{entry:?}") };
            let Reply::Bulk(id) = &parts[0] else { panic!("{parts:?}") };
            found.push(String::from_utf8_lossy(id).into_owned());
        }
    }
    found
}

#[test]
fn of_a_group_who_came_first_is_served_first() {
    for domain in DOMAINS {
        let running = Running::start(domain);
        let mut client = running.client();
        client.say("XGROUP CREATE s g $ MKSTREAM");
        client.say("XGROUP CREATE s h $");
        // Among them two of another group, one that reads by itself, and one that waits for a list.
        let asks = |at: usize| match at {
            2 | 5 => format!("XREADGROUP GROUP h c{at} COUNT 1 BLOCK 0 STREAMS s >\r\n"),
            3 => "XREAD COUNT 1 BLOCK 0 STREAMS s $\r\n".to_owned(),
            4 => "BLPOP s2 0\r\n".to_owned(),
            _ => format!("XREADGROUP GROUP g c{at} COUNT 1 BLOCK 0 STREAMS other s > >\r\n"),
        };
        client.say("XGROUP CREATE other g $ MKSTREAM");
        let mut row: Vec<Client> = (0..8).map(|_| running.client()).collect();
        for (at, waiting) in row.iter_mut().enumerate() {
            waiting.send(asks(at).as_bytes());
            blocked(&mut client, at + 1);
        }
        for id in 1..=5 {
            assert_eq!(client.say(&format!("XADD s {id}-0 a b")), Reply::text(&format!("{id}-0")));
        }
        client.say("RPUSH s2 x");
        for (at, id) in [(0, 1), (1, 2), (2, 1), (3, 1), (5, 2), (6, 3), (7, 4)] {
            assert_eq!(read(row[at].reply()), ["s".to_owned(), format!("{id}-0")], "{at}");
        }
        blocked(&mut client, 0);
        // What no client waited for is there for the next.
        assert_eq!(read(client.say("XREADGROUP GROUP g c STREAMS s >")), ["s", "5-0"]);
        assert_eq!(read(client.say("XREADGROUP GROUP h c STREAMS s >")), ["s", "3-0", "4-0", "5-0"]);
    }
}

/// Many entries, many consumers, two producers: each entry to one of a group.
#[test]
fn each_entry_goes_to_one_of_a_group_and_to_each_reader() {
    for domain in DOMAINS {
        let running = Running::start(domain);
        let mut client = running.client();
        client.say("XGROUP CREATE s g $ MKSTREAM");
        let (all, entries) = (4, 300);
        let (mut got, seen) = std::thread::scope(|scope| {
            let consume = |at: usize| {
                let (mut client, mut got) = (running.client(), Vec::new());
                loop {
                    let read = read(client.say(&format!("XREADGROUP GROUP g c{at} COUNT 1 BLOCK 0 STREAMS s >")));
                    got.extend_from_slice(&read[1..]);
                    // An end for each of them.
                    if let Some(last) = read.last().filter(|last| last.starts_with("9999")) {
                        let ends = got.iter().filter(|id| id.starts_with("9999")).count();
                        assert_eq!(ends, 1, "{last}");
                        return got;
                    }
                }
            };
            let consumers: Vec<_> = (0..all).map(|at| scope.spawn(move || consume(at))).collect();
            let reader = scope.spawn(|| {
                let (mut client, mut last, mut seen) = (running.client(), "0".to_owned(), 0);
                while seen < entries {
                    let read = read(client.say(&format!("XREAD BLOCK 0 STREAMS s {last}")));
                    assert!(read.len() > 1);
                    seen += read.len() - 1;
                    last = read[read.len() - 1].clone();
                }
                seen
            });
            let ids: Vec<String> = (0..entries).map(|_| super::bulk(client.say("XADD s * a b"))).collect();
            let mut ended: Vec<Vec<String>> = Vec::new();
            let taken = || {
                let Reply::Array(groups) = running.client().say("XINFO GROUPS s") else { panic!("no groups") };
                let Reply::Array(group) = &groups[0] else { panic!("{groups:?}") };
                group[7] == Reply::text(&ids[entries - 1])
            };
            until("all is sent", taken);
            // One that waits gets one end, and comes no more.
            for at in 0..all {
                until("they wait", || blocked_now(&mut client) >= all - at);
                client.say(&format!("XADD s 9999999999999-{at} a b"));
            }
            let seen = reader.join().unwrap();
            ended.extend(consumers.into_iter().map(|one| one.join().unwrap()));
            (ended.concat(), seen)
        });
        got.sort_unstable();
        let sent = got.len();
        got.dedup();
        assert_eq!((sent, got.len()), (entries + all, entries + all), "each once");
        assert!(seen >= entries);
        let Reply::Array(pending) = client.say("XPENDING s g") else { panic!("no summary") };
        assert_eq!(pending[0], Reply::Int((entries + all) as i64));
    }
}

fn blocked_now(client: &mut Client) -> usize {
    let Reply::Bulk(text) = client.say("INFO clients") else { panic!("no text") };
    let text = String::from_utf8_lossy(&text).into_owned();
    text.lines().find_map(|line| line.strip_prefix("blocked_clients:")).unwrap().parse().unwrap()
}

const GONE: &str = "UNBLOCKED the stream key no longer exists";
const NO_GROUP: &str = "NOGROUP the consumer group this client was blocked on no longer exists";

/// Whatever becomes of a stream that a client waits at is told, as Redis tells it.
#[test]
fn who_waits_hears_what_becomes_of_the_stream() {
    for store in Store::ALL {
        let running = Running::on(store, DomainChoice::Emulated);
        let (mut waiting, mut client) = (running.client(), running.client());
        for (lines, expected) in [
            (&["DEL s"][..], Err(GONE)),
            (&["SET s x"], Err(GONE)),
            (&["SADD x 1", "SUNIONSTORE s x"], Err(GONE)),
            (&["FLUSHALL"], Err(GONE)),
            (&["FLUSHDB"], Err(GONE)),
            (&["RENAME s t"], Err(GONE)),
            (&["MOVE s 1"], Err(GONE)),
            (&["PEXPIRE s 20"], Err(GONE)),
            (&["MULTI", "DEL s", "EXEC"], Err(GONE)),
            (&["XGROUP DESTROY s g"], Err(NO_GROUP)),
            (&["XADD t 1-1 a b", "RENAME t s"], Err(NO_GROUP)),
            (&["XADD t 1-1 a b", "XGROUP CREATE t g 0", "RENAME t s"], Ok("1-1")),
            (&["XADD t 1-1 a b", "XGROUP CREATE t g 0", "COPY t s REPLACE"], Ok("1-1")),
            (&["MULTI", "DEL s", "XADD s 1-1 a b", "XGROUP CREATE s g 0", "EXEC"], Ok("1-1")),
            (&["SADD s x", "XGROUP CREATECONSUMER s g d", "XGROUP SETID s g 0", "XADD s 5-5 a b"], Ok("5-5")),
        ] {
            client.say("FLUSHALL");
            client.say("XGROUP CREATE s g $ MKSTREAM");
            waiting.send(b"XREADGROUP GROUP g c BLOCK 0 STREAMS s >\r\n");
            blocked(&mut client, 1);
            lines.iter().for_each(|line| drop(client.say(line)));
            match (waiting.reply(), expected) {
                (Reply::Error(text), Err(expected)) => assert_eq!(text, expected, "{lines:?}"),
                (reply, Ok(id)) => assert_eq!(read(reply), ["s", id], "{lines:?}"),
                (reply, _) => panic!("{lines:?}: {reply:?}"),
            }
            client.say("SELECT 1");
            client.say("DEL s");
            client.say("SELECT 0");
        }
        for (script, expected) in [
            ("redis.call('DEL', 's')", Err(GONE)),
            ("redis.call('SET', 's', 'x')", Err(GONE)),
            ("redis.call('FLUSHALL')", Err(GONE)),
            ("redis.call('XGROUP', 'DESTROY', 's', 'g')", Err(NO_GROUP)),
            ("redis.call('XADD', 's', '5-5', 'a', 'b')", Ok("5-5")),
        ] {
            client.say("FLUSHALL");
            client.say("XGROUP CREATE s g $ MKSTREAM");
            waiting.send(b"XREADGROUP GROUP g c BLOCK 0 STREAMS s >\r\n");
            blocked(&mut client, 1);
            client.ask(&["EVAL", script, "0"]);
            match (waiting.reply(), expected) {
                (Reply::Error(text), Err(expected)) => assert_eq!(text, expected, "{script}"),
                (reply, Ok(id)) => assert_eq!(read(reply), ["s", id], "{script}"),
                (reply, _) => panic!("{script}: {reply:?}"),
            }
        }
    }
}

/// A client that has waited, and does not any more, is not held back by one that waits longer.
#[test]
fn who_does_not_wait_takes_what_there_is() {
    let running = Running::start(DomainChoice::Emulated);
    let (mut longer, mut waiting, mut client) = (running.client(), running.client(), running.client());
    client.say("XGROUP CREATE s g $ MKSTREAM");
    client.say("XGROUP CREATE t g $ MKSTREAM");
    longer.send(b"XREADGROUP GROUP g a BLOCK 0 STREAMS s >\r\n");
    blocked(&mut client, 1);
    waiting.send(b"XREADGROUP GROUP g b BLOCK 0 STREAMS t s > >\r\n");
    blocked(&mut client, 2);
    client.say("XADD t 1-1 a b");
    assert_eq!(read(waiting.reply()), ["t", "1-1"]);
    for line in ["MULTI", "XADD s 1-1 a b", "XREADGROUP GROUP g b STREAMS s >"] {
        assert!(matches!(waiting.say(line), Reply::Simple(_)));
    }
    let Reply::Array(both) = waiting.say("EXEC") else { panic!("no array") };
    assert_eq!(read(both[1].clone()), ["s", "1-1"]);
    client.say("XADD s 2-2 a b");
    assert_eq!(read(longer.reply()), ["s", "2-2"]);
}

/// Memcached's clients see the same keys.
#[test]
fn who_waits_hears_what_memcached_does() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { memcached: vec!["127.0.0.1:0".parse().unwrap()], ..usual() };
    let server = start(None, config, Store::Kv.open(dir.path().join("store"), pmem::Options::new()));
    let (mut waiting, mut client) = (Client::to(server.redis()[0]), Client::to(server.redis()[0]));
    let mut other = Client::to(server.memcached()[0]);
    for (line, answer) in [("set s 0 0 1\r\nx", "STORED\r\n"), ("ms cw== 1 b\r\nx", "HD\r\n")] {
        client.say("DEL s");
        client.say("XGROUP CREATE s g $ MKSTREAM");
        waiting.send(b"XREADGROUP GROUP g c BLOCK 0 STREAMS s >\r\n");
        blocked(&mut client, 1);
        other.send(format!("{line}\r\n").as_bytes());
        let mut said = String::new();
        other.0.read_line(&mut said).unwrap();
        assert_eq!(said, answer, "{line}");
        assert_eq!(waiting.reply().error(), GONE, "{line}");
    }
    server.stop();
    server.join().unwrap();
}

/// A reader by itself waits on whatever becomes of the key, from where it began.
#[test]
fn who_reads_for_himself_waits_for_what_is_new() {
    for domain in DOMAINS {
        let running = Running::start(domain);
        let (mut waiting, mut client) = (running.client(), running.client());
        client.say("XADD s 1-1 a b");
        waiting.send(b"XREAD BLOCK 0 STREAMS s none $ $\r\n");
        blocked(&mut client, 1);
        for line in ["DEL s", "SET s x", "DEL s", "XADD s 1-1 a b", "XGROUP CREATE none g $ MKSTREAM", "XADD s 2-2 a b"]
        {
            assert!(!matches!(client.say(line), Reply::Error(_)), "{line}");
        }
        assert_eq!(read(waiting.reply()), ["s", "2-2"]);
        // Nothing is forgotten of what came while no client read, and what waited is not more than a thousand.
        waiting.send(b"XREAD BLOCK 0 STREAMS s $\r\n");
        blocked(&mut client, 1);
        client.say("MULTI");
        (0..1200).for_each(|n| drop(client.say(&format!("XADD s 3-{n} a b"))));
        client.say("EXEC");
        assert_eq!(read(waiting.reply()).len(), 1001);
        assert_eq!(read(client.say("XREAD STREAMS s 2-2")).len(), 1201);
        // In time, and not for a request that is wrong.
        assert_eq!(client.say("XREAD BLOCK 20 STREAMS s $"), Reply::Null);
        assert_eq!(client.say("XREADGROUP GROUP g c BLOCK 20 STREAMS none >"), Reply::Null);
        for (ask, error) in [
            ("XREAD BLOCK -1 STREAMS s $", "ERR timeout is negative"),
            ("XREAD BLOCK 1.5 STREAMS s $", "ERR timeout is not an integer or out of range"),
            ("XREAD BLOCK 0 STREAMS s >", "ERR The > ID can be specified only"),
            ("XREADGROUP GROUP h c BLOCK 0 STREAMS s >", "NOGROUP No such key 's' or consumer group 'h'"),
        ] {
            assert!(client.say(ask).error().starts_with(error), "{ask}");
        }
        // A client that has left gets nothing.
        waiting.send(b"XREADGROUP GROUP g gone BLOCK 0 STREAMS none >\r\n");
        blocked(&mut client, 1);
        drop(waiting);
        blocked(&mut client, 0);
        client.say("XADD none 1-1 a b");
        assert_eq!(read(client.say("XREADGROUP GROUP g c STREAMS none >")), ["none", "1-1"]);
        waiting = running.client();
        // What is sent meanwhile is answered behind it.
        waiting.send(b"XREAD BLOCK 0 STREAMS s $\r\nPING\r\n");
        blocked(&mut client, 1);
        client.say("XADD s 9-9 a b");
        assert_eq!(read(waiting.reply()), ["s", "9-9"]);
        assert_eq!(waiting.reply(), Reply::Simple("PONG".to_owned()));
    }
}
