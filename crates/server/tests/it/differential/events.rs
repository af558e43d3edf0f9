//! What is told of keys (`notify-keyspace-events`) by the same random commands: the same messages, in the same order.

use super::*;

/// Messages up to one that a client has published.
fn heard(client: &mut Client) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    loop {
        let Value::Many(_, parts) = client.receive() else { panic!("no message") };
        let [.., Value::Bulk(channel), Value::Bulk(payload)] = &parts[..] else { panic!("{parts:?}") };
        if channel == b"__key-end" {
            return all;
        }
        all.push((channel.clone(), payload.clone()));
    }
}

fn shown_all(all: &[(Vec<u8>, Vec<u8>)]) -> String {
    all.iter().map(|(channel, payload)| format!("  {} {}\n", channel.escape_ascii(), payload.escape_ascii())).collect()
}

/// More, which are about keys and not about what is in them.
pub(super) const MORE: &str = "\
MOVE %k 1|2; SELECT 0; SETEX %t 1000 %v; PSETEX %t 100000 %v; SET %t %v EX|PX 100000; GETEX %t EX|PX 100000; GETEX %t PERSIST; EXPIRE %k -1|0|1000
GETDEL %t; DEL {%k}; UNLINK {%k}; RENAME %k %k; COPY %k %k REPLACE; SPOP %s 100; LPOP %l 100; RPOP %l 100; ZPOPMIN %z 100; ZPOPMAX %z 100
BLPOP %l 0.001|x; BRPOP %l 0.001; EVAL return{redis.pcall('BLMPOP',ARGV[1],1,KEYS[1],'LEFT').err} 1 %l x|-1|nan|0; BLMOVE %l %l LEFT|RIGHT LEFT|RIGHT 0.001; BRPOPLPUSH %l %l 0.001; BZPOPMIN %z 0.001; BZPOPMAX %z 0.001; GETSET %t %v";

#[test]
fn what_is_told_of_keys_is_what_redis_tells() {
    let sketches = super::places::SKETCHES.replace("%p", "%t");
    let commands = [COMMANDS, super::streams::COMMANDS, super::places::PLACES, &sketches, MORE, MORE].join("\n");
    let filling = [FILLING, super::streams::FILLING, "GEOADD %w {%j %b %f}"].join("|");
    for (store, seed) in [(Store::Kv, 1), (Store::Slow, 2), (Store::Tree, 5)] {
        let dir = tempfile::tempdir().unwrap();
        let _redis = Redis::start(dir.path()).expect("redis-server is not installed; run `make setup`");
        let socket = dir.path().join("ours.sock");
        let settings = settings(seed);
        let config =
            Config { redis: Vec::new(), unix: Some(socket.clone()), threads: 1, settings, ..Config::default() };
        let server = Server::start(config, store.open(dir.path().join("data.cairn"), pmem::Options::new())).unwrap();
        let sockets = [dir.path().join("redis.sock"), socket];
        let [mut theirs, mut ours] = sockets.map(|socket| {
            let [mut asks, mut hears] = [0; 2].map(|_| Client::new(&socket, 2));
            asks.ask("CONFIG SET notify-keyspace-events KEAmn");
            hears.ask("PSUBSCRIBE __key*");
            (asks, hears)
        });
        let patterns = commands.split([';', '\n']).map(str::trim);
        // Sorted sets are sorted: see `run_with`. What fails to change bits makes their string longer, of which Redis tells no client.
        let known = |p: &&str| !(p.is_empty() || p.contains("FAIL") || p.contains("LEX") && p.contains("%z %x"));
        let patterns = patterns.filter(known).collect();
        let (filling, random, last, next) = (&filling[..], Random(seed), BTreeMap::new(), VecDeque::new());
        let mut maker = Maker { filling, patterns, random, added: 0, names: 8, again: 4, last, next, exact: false };
        for round in 0..rounds() * 20 {
            let command = maker.command();
            let end = request("PUBLISH __key-end x");
            let mut fails = false;
            for (asks, _) in [&mut theirs, &mut ours] {
                asks.send(&command);
                fails |= matches!(asks.receive(), Value::Line('-', _));
                asks.send(&end);
                asks.receive();
            }
            let (mut expected, mut found) = (heard(&mut theirs.1), heard(&mut ours.1));
            // How often one looks for what is not there, and whether before or behind what is wrong with a request, does not matter.
            // Nor those that a pattern of `SORT` leads to.
            let name = command[0].to_ascii_lowercase();
            if fails || name.starts_with(b"xread") || name.starts_with(b"sort") {
                let is_other =
                    |(channel, payload): &(Vec<u8>, Vec<u8>)| !channel.ends_with(b":keymiss") && payload != b"keymiss";
                expected.retain(is_other);
                found.retain(is_other);
            }
            let (one, other) = (shown_all(&expected), shown_all(&found));
            assert!(
                expected == found,
                "{store:?}, seed {seed}, {round}: {}\nRedis:\n{one}ours:\n{other}",
                shown(&command)
            );
            // They have taken out different ones.
            if command[0].eq_ignore_ascii_case(b"spop") && command.len() > 1 {
                let del = vec![b"DEL".to_vec(), command[1].clone()];
                for (asks, hears) in [&mut theirs, &mut ours] {
                    for request in [&del, &end] {
                        asks.send(request);
                        asks.receive();
                    }
                    heard(hears);
                }
            }
        }
        drop((theirs, ours));
        server.stop();
        server.join().unwrap();
    }
}
