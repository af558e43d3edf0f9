//! What is malformed, too large, too slow or too much gets an answer, and no other client notices.

use std::io::Write;
use std::net::Shutdown;
use std::time::Duration;

use pmem::DomainChoice;
use proptest::prelude::*;
use server::{Config, Settings};

use crate::support::{Client, Reply, Running, request, until};

fn guarded(config: Config) -> Config {
    Config { password: Some("secret".to_owned()), ..config }
}

#[test]
fn strangers_may_say_who_they_are_and_nothing_else() {
    let running = Running::with(DomainChoice::Emulated, guarded, |options| options);
    let mut client = running.client();
    for line in ["GET a", "PING", "CONFIG GET *", "INFO", "nonsense", "MULTI", "HELLO 3"] {
        assert!(client.say(line).error().starts_with("NOAUTH"), "{line}");
    }
    assert!(client.say("AUTH wrong").error().starts_with("WRONGPASS"));
    assert!(client.say("AUTH nobody secret").error().starts_with("WRONGPASS"));
    assert_eq!(client.say("AUTH secret"), Reply::ok());
    assert_eq!(client.say("SET a 1"), Reply::ok());
    assert!(matches!(running.client().say("HELLO 3 AUTH default secret"), Reply::Array(_)));
    // One that says so with what it wants, in one go.
    let mut quick = running.client();
    quick.send(&[request(&["AUTH", "secret"]), request(&["SET", "b", &"x".repeat(100_000)])].concat());
    assert_eq!((quick.reply(), quick.reply()), (Reply::ok(), Reply::ok()));
}

/// Memory of this process, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn strangers_take_little_memory() {
    let running = Running::with(DomainChoice::Emulated, guarded, |options| options);
    for announced in ["*11\r\n", "*2\r\n$16385\r\n", "*1\r\n$536870912\r\n", "*1000000\r\n"] {
        let mut client = running.client();
        client.send(announced.as_bytes());
        assert!(client.reply().error().contains("unauthenticated"), "{announced}");
        assert!(client.has_ended());
    }
    // Many clients that begin what they may, and do not end it.
    let before = resident();
    let some = [&b"*2\r\n$4\r\nAUTH\r\n$16384\r\n"[..], &[b'x'; 16_000]].concat();
    let clients: Vec<Client> = (0..500)
        .map(|_| {
            let mut client = running.client();
            client.send(&some);
            client
        })
        .collect();
    let mut known = running.client();
    assert_eq!(known.say("AUTH secret"), Reply::ok());
    std::thread::sleep(Duration::from_millis(200));
    let each = resident().saturating_sub(before) / clients.len() as u64;
    assert!(each < 64, "{each} KiB each");
}

#[test]
fn what_is_too_large_is_refused_and_the_rest_goes_on() {
    let settings = Settings { argument: 1 << 20, request: 2 << 20, ..Settings::default() };
    let running = Running::with(DomainChoice::Emulated, |config| Config { settings, ..config }, |options| options);
    let mut other = running.client();
    for (bytes, says) in [
        (&b"*2\r\n$2000000\r\n"[..], "invalid bulk length"),
        (b"*3000000\r\n", "invalid multibulk length"),
        (b"*1\r\n!5\r\n", "expected '$', got '!'"),
        (b"*x\r\n", "invalid multibulk length"),
        (b"GET 'a\r\n", "unbalanced quotes"),
    ] {
        let mut client = running.client();
        client.send(bytes);
        assert!(client.reply().error().contains(says), "{}", bytes.escape_ascii());
        assert!(client.has_ended());
        assert_eq!(other.say("PING"), Reply::Simple("PONG".to_owned()));
    }
    let mut client = running.client();
    let part = "x".repeat(900_000);
    // The connection ends while the rest is on its way: the system may drop the error then, or refuse the rest.
    let _ = client.0.get_mut().write_all(&request(&["MSET", "a", &part, "b", &part, "c", &part]));
    assert!(client.try_reply().is_none_or(|reply| reply.error().contains("too large")));
    assert_eq!(other.say("EXISTS a"), Reply::Int(0));
    // A key that the store does not take is the request's own error.
    assert!(other.ask(&["SET", &"k".repeat(70_000), "1"]).error().starts_with("ERR"));
    assert_eq!(other.say("SET k 1"), Reply::ok());
}

#[test]
fn so_many_random_elements_that_no_reply_has_room_are_refused() {
    let running = Running::start(DomainChoice::Emulated);
    let mut client = running.client();
    for line in ["SADD s a b", "HSET h a 1 b 2", "ZADD z 1 a 2 b"] {
        client.say(line);
    }
    for line in [
        "SRANDMEMBER s -100000000",
        "HRANDFIELD h -100000000",
        "HRANDFIELD h -40000000 WITHVALUES",
        "ZRANDMEMBER z -1000000000",
        "ZRANDMEMBER z -9223372036854775807",
    ] {
        assert_eq!(client.say(line).error(), "ERR value is out of range", "{line}");
    }
    let Reply::Array(some) = client.say("SRANDMEMBER s -1000") else { panic!("no array") };
    assert_eq!(some.len(), 1000);
    assert_eq!(client.say("SRANDMEMBER none -100000000"), Reply::Array(vec![]));
}

#[test]
fn a_wrong_shutdown_does_not_shut_down() {
    let running = Running::start(DomainChoice::Emulated);
    let mut client = running.client();
    for line in [
        "SHUTDOWN BADARG",
        "SHUTDOWN NOSAVE NOW BADARG",
        "SHUTDOWN SAVE NOSAVE",
        "SHUTDOWN ABORT NOW",
        "SHUTDOWN NOSAVE ABORT",
    ] {
        assert_eq!(client.say(line).error(), "ERR syntax error", "{line}");
    }
    assert_eq!(client.say("SHUTDOWN ABORT").error(), "ERR No shutdown in progress.");
    for count in ["0", "-1", "4294967296"] {
        let said = client.ask(&["CONFIG", "SET", "maxclients", count]);
        assert!(said.error().contains("must be between 1 and 4294967295"), "{count}: {said:?}");
    }
    assert_eq!(client.say("CONFIG SET maxclients 70"), Reply::ok());
    assert_eq!(running.client().say("SET a 1"), Reply::ok());
    client.send(&request(&["SHUTDOWN", "nosave", "now", "force"]));
    assert!(client.has_ended());
}

#[test]
fn slow_and_half_closed_connections_get_their_replies() {
    let running = Running::start(DomainChoice::File);
    let mut slow = running.client();
    for byte in request(&["SET", "slow", "1"]) {
        slow.send(&[byte]);
    }
    assert_eq!(slow.reply(), Reply::ok());
    let mut half = running.client();
    half.send(&[request(&["SET", "half", "1"]), request(&["GET", "half"])].concat());
    half.0.get_ref().shutdown(Shutdown::Write).unwrap();
    assert_eq!((half.reply(), half.reply()), (Reply::ok(), Reply::text("1")));
    assert!(half.has_ended());
    // One that does not take what it asks for keeps no other waiting, and is ended after a while.
    let settings = Settings { wait_limit: Duration::from_secs(1), ..Settings::default() };
    let running = Running::with(DomainChoice::Emulated, |config| Config { settings, ..config }, |options| options);
    let mut greedy = running.client();
    greedy.ask(&["SET", "large", &"x".repeat(1 << 20)]);
    greedy.0.get_ref().set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    while greedy.0.get_mut().write_all(&request(&["GET", "large"]).repeat(100)).is_ok() {}
    let mut other = running.client();
    assert_eq!(other.say("PING"), Reply::Simple("PONG".to_owned()));
    until("it is ended", || {
        let Reply::Bulk(list) = other.say("CLIENT LIST") else { panic!("no text") };
        String::from_utf8_lossy(&list).lines().count() == 1
    });
}

#[test]
fn silent_connections_end_if_they_are_told_to() {
    let settings = Settings { idle: Duration::from_secs(1), ..Settings::default() };
    let running = Running::with(DomainChoice::Emulated, |config| Config { settings, ..config }, |options| options);
    let mut client = running.client();
    assert_eq!(client.say("PING"), Reply::Simple("PONG".to_owned()));
    assert!(client.has_ended());
}

#[test]
fn too_many_connections_are_told_so() {
    let settings = Settings { connections: 3, ..Settings::default() };
    let running = Running::with(DomainChoice::Emulated, |config| Config { settings, ..config }, |options| options);
    let mut clients: Vec<Client> = (0..3).map(|_| running.client()).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.say("PING"), Reply::Simple("PONG".to_owned())));
    let mut refused = running.client();
    assert_eq!(refused.reply().error(), "ERR max number of clients reached");
    assert!(refused.has_ended());
    clients.pop();
    until("there is room for another", || {
        let mut client = running.client();
        let _ = client.0.get_mut().write_all(&request(&["PING"])); // it may be refused by now
        matches!(client.try_reply(), Some(Reply::Simple(_)))
    });
}

#[test]
fn a_full_store_refuses_writes_and_recovers() {
    let small = |options: kv::Options| {
        let pool = pmem::Options::new().domain(DomainChoice::File).max_size(4 << 20);
        options.pool(pool).segment_bytes(64 << 10)
    };
    let running = Running::with(DomainChoice::File, |config| config, small);
    let mut client = running.client();
    let value = "x".repeat(10_000);
    let full = (0..2000).find(|number| client.ask(&["SET", &format!("key{number}"), &value]) != Reply::ok());
    let full = full.expect("it is never full");
    let refused = client.ask(&["SET", "one-more", &value]);
    assert_eq!(refused.error(), "MISCONF Errors writing to the AOF file: No space left on device");
    assert_eq!(client.ask(&["STRLEN", "key0"]), Reply::Int(10_000));
    for number in 0..full {
        assert_eq!(client.ask(&["DEL", &format!("key{number}")]), Reply::Int(1));
    }
    until("there is room again", || client.ask(&["SET", "again", &value]) == Reply::ok());
}

#[test]
fn a_full_index_refuses_new_keys_and_recovers() {
    let running = Running::with(DomainChoice::Emulated, |config| config, |options| options.index_memory(100_000));
    let mut client = running.client();
    let full = (0..100_000).find(|number| client.ask(&["SET", &format!("key{number}"), "1"]) != Reply::ok());
    let full = full.expect("it is never full");
    let refused = client.ask(&["SET", "one-more", "1"]);
    assert_eq!(refused.error(), "OOM command not allowed when used memory > 'maxmemory'.");
    assert_eq!(client.say("SET key0 2"), Reply::ok());
    (0..full).for_each(|number| drop(client.ask(&["DEL", &format!("key{number}")])));
    until("there is room again", || client.say("SET again 1") == Reply::ok());
}

#[test]
fn users_do_what_they_may() {
    let running = Running::with(DomainChoice::Emulated, guarded, |options| options);
    let mut admin = running.client();
    admin.say("AUTH secret");
    assert_eq!(admin.say("ACL SETUSER ada on >lovelace ~app:* +@read +set +multi +exec +ping"), Reply::ok());
    let mut ada = running.client();
    assert_eq!(ada.say("AUTH ada lovelace"), Reply::ok());
    assert_eq!(ada.say("SET app:1 x"), Reply::ok());
    assert!(ada.say("SET other x").error().starts_with("NOPERM") && ada.say("GET other").error().starts_with("NOPERM"));
    assert!(ada.say("MGET app:1 other").error().starts_with("NOPERM"));
    for line in ["DEL app:1", "FLUSHALL", "CONFIG GET *", "ACL LIST", "SHUTDOWN", "CLIENT LIST", "KEYS *"] {
        let may = line == "KEYS *"; // it reads
        assert!(may || ada.say(line).error().starts_with("NOPERM"), "{line}");
    }
    ada.say("MULTI");
    assert!(ada.say("DEL app:1").error().starts_with("NOPERM"));
    assert!(ada.say("EXEC").error().starts_with("EXECABORT"));
    assert_eq!(admin.say("ACL DELUSER ada"), Reply::Int(1));
    assert!(ada.has_ended(), "who was removed is still in");
    assert!(running.client().say("AUTH ada lovelace").error().starts_with("WRONGPASS"));
}

#[test]
fn rights_are_no_wider_than_they_say() {
    let running = Running::start(DomainChoice::Emulated);
    let mut admin = running.client();
    assert!(admin.say("ACL SETUSER bob on >p +acl|whoami").error().contains("subcommand"));
    assert_eq!(admin.say("ACL SETUSER bob on >p +@all -@dangerous %W~drop:* %R~look:*"), Reply::ok());
    admin.say("SET drop:1 secret");
    let mut bob = running.client();
    bob.say("AUTH bob p");
    assert_eq!(bob.say("SET drop:2 x"), Reply::ok());
    for line in [
        "GET drop:1",
        "GETEX drop:1",
        "SET drop:1 x GET",
        "GETDEL drop:1",
        "RENAME drop:1 drop:3",
        "APPEND drop:1 x",
        "SET look:1 x",
    ] {
        assert!(bob.say(line).error().starts_with("NOPERM"), "{line}");
    }
    assert_eq!(bob.say("GET look:1"), Reply::Null);
    // A timeout is no key, and a key is one.
    admin.say("ACL SETUSER eve on >p +@all ~list:*");
    let mut eve = running.client();
    eve.say("AUTH eve p");
    assert_eq!(eve.say("BLMPOP 0.01 1 list:a LEFT"), Reply::Null);
    assert!(eve.say("ZUNIONSTORE other 1 list:a").error().starts_with("NOPERM"));
    // A user that takes rights away from itself has not got them any more.
    eve.say("ACL SETUSER eve -get");
    assert!(eve.say("GET list:a").error().starts_with("NOPERM"));
}

#[test]
fn connections_end_only_if_they_are_meant() {
    let running = Running::start(DomainChoice::Emulated);
    let (mut one, mut other) = (running.client(), running.client());
    assert_eq!(other.say("PING"), Reply::Simple("PONG".to_owned()));
    assert!(one.say("CLIENT KILL").error().starts_with("ERR"));
    assert_eq!(other.say("PING"), Reply::Simple("PONG".to_owned()));
    one.say("MULTI");
    assert_eq!(one.say("RESET"), Reply::Simple("RESET".to_owned()));
    assert_eq!(one.say("SET a 1"), Reply::ok());
    // A page in a browser is no client.
    let mut page = running.client();
    page.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 14\r\n\r\nSET pwned 1\r\n");
    assert!(page.has_ended());
    assert_eq!(one.say("EXISTS pwned"), Reply::Int(0));
}

#[test]
fn nobodys_file_becomes_a_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("precious");
    std::fs::write(&path, "data").unwrap();
    let start = |name: &str| {
        let store = kv::Store::open(dir.path().join(name)).unwrap();
        let config = Config { redis: Vec::new(), unix: Some(path.clone()), ..Config::default() };
        server::Server::start(config, Box::new(server::engine::Kv::new(store)))
    };
    assert!(matches!(start("a"), Err(server::Error::Listen { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), b"data");
    std::fs::remove_file(&path).unwrap();
    let first = start("b").unwrap();
    assert!(start("c").is_err(), "it took the socket of one that runs");
    first.stop();
    first.join().unwrap();
    // One that is left over has no owner.
    let again = start("d").unwrap();
    again.stop();
    again.join().unwrap();
}

fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just("GET"),
        Just("SET"),
        Just("MULTI"),
        Just("EXEC"),
        Just("WATCH"),
        Just("HSET"),
        Just("LPUSH"),
        Just("SELECT"),
        Just("HELLO"),
        Just("3"),
        Just("ZADD"),
        Just("CLIENT"),
        Just("REPLY"),
        Just("OFF"),
        Just("COMMAND"),
        Just("GETKEYS"),
        Just("ACL"),
        Just("SETUSER"),
        Just("a"),
        Just("1"),
        Just("-1"),
        Just("COPY"),
        Just("SCAN"),
        Just("COUNT"),
        Just("99999999999999999999"),
        Just("LRANGE"),
        Just("SETRANGE"),
        Just("BLPOP"),
        Just("0.01"),
        Just("*"),
        Just("EXPIRE"),
        Just("ZRANGE"),
        Just("INFO"),
        Just("CONFIG"),
        Just("OBJECT"),
        Just("DEBUG"),
        Just("RESET"),
        Just("XADD"),
        Just("SINTER"),
        Just("LMPOP"),
        Just("HRANDFIELD"),
        Just("-9223372036854775808"),
    ];
    let sane = prop::collection::vec(word, 1..6).prop_map(|words| request(&words));
    prop_oneof![6 => sane, 1 => prop::collection::vec(any::<u8>(), 0..30)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever comes, the server goes on, and others are served.
    #[test]
    fn anything_may_come(all in prop::collection::vec(pieces(), 1..20)) {
        static RUNNING: std::sync::LazyLock<Running> = std::sync::LazyLock::new(|| Running::start(DomainChoice::Emulated));
        let mut client = RUNNING.client();
        let _ = client.0.get_mut().write_all(&all.concat());
        client.0.get_ref().shutdown(Shutdown::Write).unwrap();
        while client.try_reply().is_some() {}
        let mut other = RUNNING.client();
        other.say("ACL SETUSER default on nopass allkeys allcommands");
        prop_assert_eq!(other.say("PING"), Reply::Simple("PONG".to_owned()));
    }
}
