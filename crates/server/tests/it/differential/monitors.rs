//! What `MONITOR` tells of the same commands: the same lines, but for when, and from where.

use super::*;

/// What is asked, in an order that matters.
const ASKED: &str = "\
PING; get a; NOSUCH; GET; AUTH x; AUTH default pw; HELLO 2 AUTH default pw; HELLO 2 SETNAME me; CONFIG GET save; ACL WHOAMI; ACL LIST; CLIENT LIST; CLIENT ID; SELECT 3; SELECT 99; INFO x
MULTI & SET a 1 & SELECT 4 & GET a & EXEC; MULTI & SET a & EXEC; MULTI & DISCARD; WATCH a; UNWATCH; EVALSHA x 0; SCRIPT EXISTS x; BLPOP l 0.01; COMMAND COUNT; RESET; TIME; FLUSHALL
EVAL redis.call('set','q',1)return(redis.call('get','q')) 0; EVAL redis.call('config','get','save') 0; MULTI & EVAL redis.call('select',2)return(redis.call('get','q')) 0 & GET q & EXEC; EXEC
DISCARD; MONITOR x; PUBLISH a b; SAVE; LASTSAVE; FUNCTION LIST; FCALL f 0; ACL LOG; LATENCY LATEST; SLOWLOG GET; SORT_RO z; MULTI & MONITOR & EXEC; XREAD BLOCK 5 STREAMS x 0; CLIENT NO-EVICT on
CLIENT TRACKING off; CLIENT UNPAUSE; XREAD STREAMS x 0; OBJECT ENCODING a; WAIT 0 1
SWAPDB 1 2; SWAPDB 1 x; SWAPDB 1 99; SWAPDB 1; MULTI & SWAPDB 0 1 & GET a & SWAPDB 1 0 & EXEC; EVAL redis.call('swapdb',0,1)return(redis.call('swapdb','1','0')) 0; SELECT 3 & SWAPDB 3 4 & GET a & SELECT 0
CLIENT PAUSE x; CLIENT PAUSE 0; CLIENT PAUSE 1 WRITE & SET a 1; MULTI & CLIENT PAUSE 0 & SET a 2 & EXEC; CLIENT PAUSE -1; CLIENT CACHING yes; CLIENT TRACKINGINFO; CLIENT TRACKING on x; CLIENT GETREDIR
MULTI & CLIENT CACHING yes & EXEC; CLIENT TRACKING on optin & CLIENT CACHING yes & GET a & CLIENT TRACKING off; CLIENT REPLY on; CONFIG REWRITE; CONFIG SET timeout 0; MEMORY USAGE a; MEMORY DOCTOR x; SETRANGE a 5 q\"";

/// Lines up to the one about `ECHO the-end`.
fn lines(client: &mut Client) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let Value::Line('+', line) = client.receive() else { panic!("no line, behind {all:?}") };
        let (time, rest) = line.split_once(" [").unwrap_or_else(|| panic!("{line}"));
        let (seconds, micros) = time.split_once('.').unwrap_or_else(|| panic!("{line}"));
        assert!(seconds.parse::<u64>().unwrap() > 1_700_000_000 && micros.len() == 6, "{line}");
        let (from, command) = rest.split_once("] ").unwrap_or_else(|| panic!("{line}"));
        let (db, who) = from.split_once(' ').unwrap_or_else(|| panic!("{line}"));
        if command == "\"ECHO\" \"the-end\"" {
            return all;
        }
        let who = if who == "lua" { who } else { who.split(':').next().unwrap() };
        all.push(format!("{db} {who} {command}"));
    }
}

#[test]
fn monitors_are_told_what_redis_tells() {
    for (store, seed) in [(Store::Kv, 1), (Store::Tree, 2), (Store::Slow, 3)] {
        let dir = tempfile::tempdir().unwrap();
        let _redis = Redis::start(dir.path()).expect("redis-server is not installed; run `make setup`");
        let socket = dir.path().join("ours.sock");
        let config = Config { redis: Vec::new(), unix: Some(socket.clone()), threads: 1, ..Config::default() };
        let server = Server::start(config, store.open(dir.path().join("store"), pmem::Options::new())).unwrap();
        let mut both = [dir.path().join("redis.sock"), socket].map(|at| {
            let mut hears = Client::new(&at, 2);
            assert_eq!(hears.ask("MONITOR"), Value::Line('+', "OK".to_owned()));
            (Client::new(&at, 2), hears)
        });
        // What `HELLO` of the other client says of itself.
        let mut told = |commands: &[Vec<Vec<u8>>], what: &str| {
            let [theirs, ours] = both.each_mut().map(|(asks, hears)| {
                for command in commands.iter().chain([&request("ECHO the-end")]) {
                    asks.send(command);
                    asks.receive();
                }
                lines(hears)
            });
            assert_eq!(ours, theirs, "{store:?}: {what}");
        };
        told(&[], "nothing");
        for line in ASKED.split([';', '\n']).map(str::trim) {
            told(&line.split(" & ").map(request).collect::<Vec<_>>(), line);
        }
        let patterns = [COMMANDS, super::streams::COMMANDS].join("\n");
        let patterns = patterns.split([';', '\n']).map(str::trim).filter(|pattern| !pattern.is_empty()).collect();
        let (filling, random, last, next) = (FILLING, Random(seed), BTreeMap::new(), VecDeque::new());
        let mut maker = Maker { filling, patterns, random, added: 0, names: 8, again: 4, last, next, exact: false };
        for round in 0..rounds() {
            let some: Vec<_> = (0..20).map(|_| maker.command()).collect();
            told(&some, &format!("round {round} of seed {seed}"));
        }
        drop(both);
        server.stop();
        server.join().unwrap();
    }
}
