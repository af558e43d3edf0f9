//! Functions: what is answered is what Redis answers; they are data, and each call is one transaction.

use std::collections::BTreeSet;

use pmem::DomainChoice;

use super::{DOMAINS, same};
use crate::kill::whole;
use crate::support::{Client, Reply, Running, Store, request, start, until, usual};

/// Commands, with words that are separated by `~`.
const COMMANDS: &str = include_str!("functions.txt");

/// What is loaded, each into a server without libraries, and then the one that there is is listed.
const LIBRARIES: &str = include_str!("libraries.txt");

fn words(line: &str) -> Vec<u8> {
    let line = line.replace("\\n", "\n").replace("\\r", "\r");
    request(&line.split('~').collect::<Vec<_>>())
}

fn lines(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with("# "))
}

#[test]
fn commands_are_those_of_redis() {
    for (domain, hello) in [(DomainChoice::Emulated, "3"), (DomainChoice::File, "2")] {
        same(domain, hello, &mut lines(COMMANDS).map(|line| line.split(';').flat_map(words).collect()));
    }
}

#[test]
fn libraries_are_taken_and_refused_as_by_redis() {
    let load = |line: &str| {
        [words("FUNCTION~FLUSH"), words(&format!("FUNCTION~LOAD~{line}")), words("FUNCTION~LIST~WITHCODE")].concat()
    };
    same(DomainChoice::Emulated, "2", &mut lines(LIBRARIES).map(load));
}

const ADD: &str = "#!lua name=sums\nredis.register_function('add', function(keys) local n = 0 for _, key in ipairs(keys) do n = tonumber(redis.call('get', key) or 0) + 1 redis.call('set', key, n) end return n end)";
const OTHER: &str = "#!lua name=sums\nredis.register_function('add', function(keys) return 'other' end)";

#[test]
fn calls_that_meet_lose_nothing() {
    for running in [Running::start(DOMAINS[0]), Running::start(DOMAINS[1]), Running::tree()] {
        assert_eq!(running.client().ask(&["FUNCTION", "LOAD", ADD]), Reply::text("sums"));
        let seen: Vec<i64> = std::thread::scope(|scope| {
            let threads = [["a", "b"], ["b", "a"], ["a", "b"]].map(|[one, other]| {
                let mut client = running.client();
                scope.spawn(move || {
                    let mut ask = || match client.ask(&["FCALL", "add", "2", one, other]) {
                        Reply::Int(n) => n,
                        reply => panic!("{reply:?}"),
                    };
                    (0..60).map(|_| ask()).collect::<Vec<_>>()
                })
            });
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(seen.iter().copied().collect::<BTreeSet<_>>(), (1..=180).collect(), "each value is returned once");
    }
}

#[test]
fn libraries_are_there_again_after_a_start() {
    for store in Store::ALL {
        let dir = tempfile::tempdir().unwrap();
        let open = || start(None, usual(), store.open(dir.path().join("store"), pmem::Options::new()));
        let server = open();
        let mut client = Client::to(server.redis()[0]);
        assert_eq!(client.ask(&["FUNCTION", "LOAD", ADD]), Reply::text("sums"));
        let dump = client.say("FUNCTION DUMP");
        assert_eq!(client.say("FLUSHALL"), Reply::ok());
        server.stop();
        server.join().unwrap();
        let server = open();
        let mut client = Client::to(server.redis()[0]);
        assert_eq!(client.say("FCALL add 1 a"), Reply::Int(1), "{store:?}");
        assert_eq!(client.say("FUNCTION DUMP"), dump);
        assert_eq!(client.say("DBSIZE"), Reply::Int(1));
        assert_eq!(client.say("FUNCTION FLUSH"), Reply::ok());
        server.stop();
        server.join().unwrap();
        let server = open();
        assert_eq!(Client::to(server.redis()[0]).say("FCALL add 1 a").error(), "ERR Function not found");
        server.stop();
        server.join().unwrap();
    }
}

#[test]
fn a_killed_server_has_what_it_has_acknowledged() {
    for domain in ["emulated", "file"] {
        let dir = tempfile::tempdir().unwrap();
        for round in 0..3 {
            let served = whole(domain, &dir.path().join("store"));
            let mut client = Client::to(served.address.parse().unwrap());
            let called = client.say("FCALL add 1 a");
            if round == 0 {
                assert_eq!(called.error(), "ERR Function not found");
            } else {
                assert_eq!(called, Reply::Int(round), "{domain}");
            }
            assert_eq!(client.ask(&["FUNCTION", "LOAD", "REPLACE", OTHER]), Reply::text("sums"));
            assert_eq!(client.say("FCALL add 1 a"), Reply::text("other"));
            assert_eq!(client.ask(&["FUNCTION", "LOAD", "REPLACE", ADD]), Reply::text("sums"));
            if round == 0 {
                assert_eq!(client.say("SET a 0"), Reply::ok());
            }
            drop(served); // killed
        }
    }
}

/// A library that is changed between `MULTI` and `EXEC` is changed with all else there, or not at all.
#[test]
fn libraries_change_with_their_transaction() {
    let running = Running::start(DOMAINS[0]);
    let mut client = running.client();
    client.say("SET k 1");
    client.say("WATCH k");
    running.client().say("SET k 2");
    client.say("MULTI");
    client.ask(&["FUNCTION", "LOAD", ADD]);
    client.say("FCALL add 1 a");
    assert_eq!(client.say("EXEC"), Reply::Null);
    assert_eq!(client.say("FUNCTION LIST"), Reply::Array(Vec::new()));
    client.say("MULTI");
    client.ask(&["FUNCTION", "LOAD", ADD]);
    client.say("FCALL add 1 a");
    client.ask(&["FUNCTION", "LOAD", "REPLACE", OTHER]);
    client.say("FCALL add 1 a");
    let all = [Reply::text("sums"), Reply::Int(1), Reply::text("sums"), Reply::text("other")];
    assert_eq!(client.say("EXEC"), Reply::Array(all.to_vec()));
    // What cannot be all restored is not restored at all.
    let dump = client.say("FUNCTION DUMP");
    let Reply::Bulk(dump) = dump else { panic!("no bytes") };
    let code = "#!lua name=later\nredis.register_function('later', function() return 1 end)";
    client.ask(&["FUNCTION", "LOAD", code]);
    client.ask(&["FUNCTION", "DELETE", "sums"]);
    client.ask(&["FUNCTION", "LOAD", &code.replace("later", "add")]);
    let mut restore = b"*4\r\n$8\r\nFUNCTION\r\n$7\r\nRESTORE\r\n".to_vec();
    restore.extend(format!("${}\r\n", dump.len()).bytes().chain(dump).chain(*b"\r\n$7\r\nREPLACE\r\n"));
    client.send(&restore);
    assert_eq!(client.reply().error(), "ERR Function add already exists");
    assert_eq!(client.say("FCALL later 0"), Reply::Int(1));
    assert_eq!(client.say("FCALL add 0"), Reply::Int(1));
}

#[test]
fn one_that_runs_long_is_told_of_and_ended_by_its_own_command() {
    let running = Running::start(DOMAINS[0]);
    let [mut long, mut other] = [0; 2].map(|_| running.client());
    assert_eq!(other.say("CONFIG SET lua-time-limit 600000"), Reply::ok());
    let code = "#!lua name=l\nredis.register_function('ever', function(keys) redis.call('set', keys[1], 1) while true do end end)";
    other.ask(&["FUNCTION", "LOAD", code]);
    long.send(&request(&["FCALL", "ever", "1", "k"]));
    let stats = |client: &mut Client| match client.say("FUNCTION STATS") {
        Reply::Array(all) => all[1].clone(),
        other => panic!("{other:?}"),
    };
    until("it runs long", || stats(&mut other) != Reply::Null);
    let Reply::Array(told) = stats(&mut other) else { panic!("no map") };
    assert_eq!(told[1], Reply::text("ever"));
    assert_eq!(told[3], Reply::Array(["FCALL", "ever", "1", "k"].map(Reply::text).to_vec()));
    assert!(other.say("SCRIPT KILL").error().starts_with("BUSY "));
    assert_eq!(other.say("FUNCTION KILL"), Reply::ok());
    assert!(long.reply().error().contains("killed"));
    assert_eq!(other.say("EXISTS k"), Reply::Int(0));
    // The same of a script.
    long.send(&request(&["EVAL", "while true do end", "0"]));
    until("it runs long", || other.say("FUNCTION KILL").error().starts_with("BUSY "));
    assert_eq!(other.say("SCRIPT KILL"), Reply::ok());
    assert!(long.reply().error().contains("killed"));
    // A library that never ends loading.
    assert_eq!(other.say("CONFIG SET lua-time-limit 50"), Reply::ok());
    let refused = other.ask(&["FUNCTION", "LOAD", "#!lua name=x\nwhile true do end"]);
    assert!(refused.error().contains("lua-time-limit"), "{refused:?}");
    assert_eq!(other.say("PING"), Reply::Simple("PONG".to_owned()));
}

/// What is told of `FCALL` is what its user may do.
#[test]
fn who_may_not_write_changes_no_library() {
    let running = Running::start(DOMAINS[0]);
    let mut client = running.client();
    client.ask(&["FUNCTION", "LOAD", ADD]);
    client.say("ACL SETUSER reader on nopass ~a +@all -@write");
    client.say("ACL SETUSER caller on nopass ~a +fcall +get +set");
    client.say("AUTH reader x");
    assert!(client.ask(&["FUNCTION", "LOAD", "REPLACE", OTHER]).error().starts_with("NOPERM"));
    assert!(client.say("FCALL add 1 a").error().contains("can't run this command"));
    client.say("AUTH caller x");
    assert_eq!(client.say("FCALL add 1 a"), Reply::Int(1));
    assert!(client.say("FCALL add 1 b").error().starts_with("NOPERM"));
    assert!(client.say("FUNCTION FLUSH").error().starts_with("NOPERM"));
}

/// What a library keeps in its own variables is of one call: also where a call is run again.
#[test]
fn each_call_begins_with_the_library_as_it_is_written() {
    let running = Running::start(DOMAINS[0]);
    let mut client = running.client();
    let code = "#!lua name=c\nlocal n = 0\nredis.register_function('count', function() n = n + 1 return n end)";
    client.ask(&["FUNCTION", "LOAD", code]);
    assert_eq!([client.say("FCALL count 0"), client.say("FCALL count 0")], [Reply::Int(1), Reply::Int(1)]);
    // Nothing of functions is left for scripts.
    assert_eq!(client.ask(&["EVAL", "return type(redis.register_function)", "0"]), Reply::text("nil"));
    assert_eq!(client.ask(&["EVAL", "return type(redis.breakpoint)", "0"]), Reply::text("function"));
    let stash = "#!lua name=s\nlocal register = redis.register_function\nredis.register_function('s', function() return register('x', function() end) end)";
    client.ask(&["FUNCTION", "LOAD", stash]);
    assert!(client.say("FCALL s 0").error().contains("can only be called on FUNCTION LOAD command"));
}

/// As many as an interpreter's own stack has no room for.
#[test]
fn a_library_may_have_thousands_of_functions() {
    let running = Running::start(DOMAINS[0]);
    let mut client = running.client();
    let code = |count: usize| {
        format!("#!lua name=many\nfor n = 1, {count} do redis.register_function('f' .. n, function() return n end) end")
    };
    assert_eq!(client.ask(&["FUNCTION", "LOAD", &code(10_000)]), Reply::text("many"));
    assert_eq!([client.say("FCALL f1 0"), client.say("FCALL F10000 0")], [Reply::Int(1), Reply::Int(10_000)]);
    let refused = client.ask(&["FUNCTION", "LOAD", "REPLACE", &code(10_001)]);
    assert!(refused.error().contains("10000 functions at most"), "{refused:?}");
    assert_eq!(client.say("FCALL f10000 0"), Reply::Int(10_000));
}
