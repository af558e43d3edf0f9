//! What clients that track are told of the same commands, of their own and of another client.

use super::*;

/// What is asked of the client that tracks.
const SAID: &str = "\
CLIENT TRACKINGINFO; CLIENT GETREDIR; CLIENT CACHING YES; CLIENT TRACKING x; CLIENT TRACKING on x; CLIENT TRACKING on PREFIX a; CLIENT TRACKING on BCAST OPTIN; CLIENT TRACKING on OPTIN OPTOUT
CLIENT TRACKING on REDIRECT 99999; CLIENT TRACKING on REDIRECT x; CLIENT TRACKING on REDIRECT -1; CLIENT TRACKING on REDIRECT; CLIENT TRACKING; CLIENT CACHING; CLIENT TRACKING ON; CLIENT TRACKINGINFO
CLIENT GETREDIR; CLIENT CACHING x; CLIENT CACHING yes; CLIENT CACHING no; CLIENT TRACKING ON BCAST; CLIENT TRACKING ON OPTIN; CLIENT TRACKING ON OPTOUT; CLIENT CACHING YES; CLIENT TRACKINGINFO; PING
CLIENT TRACKINGINFO; CLIENT TRACKING OFF; CLIENT TRACKING OFF; CLIENT TRACKING ON OPTOUT NOLOOP; CLIENT CACHING YES; CLIENT CACHING NO; CLIENT TRACKINGINFO; CLIENT TRACKING off
CLIENT TRACKING ON BCAST PREFIX a PREFIX ab; CLIENT TRACKING ON BCAST PREFIX a PREFIX b NOLOOP; CLIENT TRACKING ON BCAST PREFIX ax; CLIENT TRACKING ON BCAST PREFIX a; CLIENT TRACKING ON BCAST PREFIX c
CLIENT TRACKINGINFO; CLIENT TRACKING OFF x; CLIENT TRACKING OFF; CLIENT TRACKINGINFO; CLIENT TRACKING ON BCAST; CLIENT TRACKINGINFO; RESET; HELLO 3; CLIENT TRACKINGINFO; CONFIG GET tracking-table-max-keys";

/// By one that tracks or another one, of few keys: changes of all kinds, those that change nothing, and reads.
const PLAIN: &str = "\
SET %t %v; SET %t %v [NX|XX]; SET %t %v; GET %t; GET %t; GET %t; MGET %t %t %t; STRLEN %t; EXISTS %t %t; TTL %t; TYPE %k; DEL %k; DEL %t %t %k; UNLINK %k; MSET %t %v %t %v; MSETNX %t %v %t %v; SETNX %t %v
APPEND %t x; INCR %t; GETSET %t %v; GETDEL %t; EXPIRE %k 1000; PERSIST %k; RENAME %t %t; RENAMENX %t %t; COPY %t %t [REPLACE]; HSET %h %f %v; HGET %h %f; HGETALL %h; HDEL %h %f
RPUSH %l %v; LRANGE %l 0 -1; LPOP %l; LLEN %l; SADD %s %f; SMEMBERS %s; SREM %s %f; ZADD %z 1 %f; ZRANGE %z 0 -1; ZREM %z %f; SUNION %s %s; SUNIONSTORE %s %s %s; FLUSHALL; LMOVE %l %l LEFT RIGHT
LSET %l 0|-1 %v; HINCRBY %h n 1; HSET %h %f %v %f %v; ZINCRBY %z 1 %f; ZADD %z NX 1 %f; SETBIT %t 5 1; GETBIT %t 5; LTRIM %l 0 1; LINSERT %l BEFORE %v %v; SMOVE %s %s %f; ZPOPMIN %z; HSETNX %h %f %v; HINCRBYFLOAT %h n 0.5; RPUSHX %l %v";

/// What has come in front of an answer that only this asks for.
pub(super) fn pushed(client: &mut Client) -> Vec<Value> {
    client.send(&request("ECHO the-end"));
    let mut all = Vec::new();
    loop {
        match client.receive() {
            Value::Bulk(text) if text == b"the-end" => break,
            push @ Value::Many('>', _) => all.push(push),
            other => panic!("{other:?} behind {all:?}"),
        }
    }
    // Of one command they may come in any order; and as few messages as there may be.
    all.sort();
    all
}

/// The answer to one request, without what is told before it; that is kept.
pub(super) fn answer(client: &mut Client, command: &[Vec<u8>], told: &mut Vec<Value>) -> Value {
    client.send(command);
    loop {
        match client.receive() {
            push @ Value::Many('>', _) => told.push(push),
            other => return other,
        }
    }
}

/// Clients of one server: of each version one that tracks, and one that is told in its place; and another one.
struct Clients {
    tracks: [Client; 2],
    hears: [(Client, String); 2],
    other: Client,
}

const VERSIONS: [u8; 2] = [2, 3];

impl Clients {
    fn to(socket: &Path) -> Self {
        let hears = VERSIONS.map(|version| {
            let mut client = Client::new(socket, version);
            let Value::Line(':', id) = client.ask("CLIENT ID") else { panic!("no id") };
            client.send(&request("SUBSCRIBE __redis__:invalidate the-end"));
            (0..2).for_each(|_| drop(client.receive()));
            (client, id)
        });
        Self { tracks: VERSIONS.map(|version| Client::new(socket, version)), hears, other: Client::new(socket, 2) }
    }

    /// All that was told by now, to the client that is told of what one of these versions reads.
    fn told(&mut self, version: usize, redirected: bool) -> Vec<Value> {
        if !redirected {
            return pushed(&mut self.tracks[version]);
        }
        self.other.ask("PUBLISH the-end x");
        let (end, mut all) = (Value::Bulk(b"the-end".to_vec()), Vec::new());
        loop {
            match self.hears[version].0.receive() {
                Value::Many(_, parts) if parts.get(1) == Some(&end) => break,
                told => all.push(told),
            }
        }
        all.sort();
        all
    }
}

/// What is asked for: with version 2 another client is told.
const MODES: [&str; 11] = [
    "ON",
    "ON BCAST",
    "ON NOLOOP",
    "ON OPTIN",
    "ON BCAST PREFIX t",
    "ON OPTOUT",
    "ON BCAST NOLOOP",
    "ON OPTIN NOLOOP",
    "ON BCAST PREFIX t0 PREFIX h PREFIX l NOLOOP PREFIX t1",
    "ON OPTOUT NOLOOP",
    "ON NOLOOP BCAST PREFIX z PREFIX s1",
];

#[test]
fn clients_that_track_are_told_what_redis_tells() {
    for (store, seed) in [(Store::Kv, 1), (Store::Slow, 2), (Store::Tree, 3)] {
        with_sockets(store, settings(seed), |sockets| {
            let mut both = sockets.map(|at| Client::new(at, 3));
            for line in SAID.split([';', '\n']).map(str::trim).filter(|line| !line.starts_with("HELLO")) {
                let [theirs, ours] = both.each_mut().map(|tracks| match line {
                    "RESET" => {
                        let said = tracks.ask(line);
                        tracks.ask("HELLO 3");
                        said
                    }
                    line => tracks.ask(line),
                });
                assert_eq!(ours, theirs, "{store:?}: {line}");
            }
            drop(both);
            let mut both = sockets.map(Clients::to);
            // `touches` says which commands touch what is not touched by Redis, or the other way round.
            let known = |p: &str| {
                !(p.starts_with("LTRIM")
                    || p.contains("FAIL")
                    || p.contains("BLOCK")
                    || p.contains("LEX") && p.contains("%z %x"))
            };
            let all = [COMMANDS, super::streams::COMMANDS].join("\n");
            let filling = [FILLING, super::streams::FILLING].join("|");
            let mut makers =
                [Maker::of("SET %t %v|GET %t", PLAIN, known, 4, seed), Maker::of(&filling, &all, known, 8, seed + 10)];
            for round in 0..rounds() as usize {
                modes_round(&mut both, &mut makers[round % 2], round, &format!("{store:?}, seed {seed}"));
            }
        });
    }
}

/// Some commands of which clients are told in one of the ways there are.
fn modes_round(both: &mut [Clients; 2], maker: &mut Maker<'_>, round: usize, what: &str) {
    let (mode, version) = (MODES[round % MODES.len()], round / 2 % 2);
    let redirected = version == 0 || round.is_multiple_of(5);
    let ok = Value::Line('+', "OK".to_owned());
    for clients in both.iter_mut() {
        clients.tracks.iter_mut().for_each(|tracks| assert_eq!(tracks.ask("CLIENT TRACKING OFF"), ok));
        // Redis keeps notes of a client that is not told any more, until these keys change, or all do.
        assert_eq!(clients.other.ask("FLUSHALL"), ok);
        let redirect = if redirected { format!(" REDIRECT {}", clients.hears[version].1) } else { String::new() };
        assert_eq!(clients.tracks[version].ask(&format!("CLIENT TRACKING {mode}{redirect}")), ok, "{mode}");
    }
    let mut log = format!("{what}, round {round}, {mode}, version {}, redirected: {redirected}\n", VERSIONS[version]);
    for _ in 0..40 {
        let own = maker.random.below(2) == 0;
        // Those of another client may be a transaction; its own, of what it has written before in the same one, are noted here in front of that.
        let count = if own || maker.random.below(6) > 0 { 1 } else { 3 };
        let mut commands: Vec<_> = (0..count).map(|_| maker.command()).collect();
        let flushes = |command: &Vec<Vec<u8>>| command[0].to_ascii_lowercase().starts_with(b"flush");
        if count > 1 && !commands.iter().any(flushes) {
            commands.insert(0, request("MULTI"));
            commands.push(request("EXEC"));
        }
        let caching = match mode.split(' ').nth(1) {
            Some("OPTIN") => Some("CLIENT CACHING YES"),
            Some("OPTOUT") => Some("CLIENT CACHING NO"),
            _ => None,
        };
        let caching = caching.filter(|_| own && maker.random.below(2) == 0);
        for command in &commands {
            log +=
                &format!("{}{}{}\n", if own { "" } else { "> " }, caching.map_or("", |_| "(CACHING) "), shown(command));
        }
        let popped = commands
            .iter()
            .filter(|command| command[0].eq_ignore_ascii_case(b"spop"))
            .filter_map(|pop| pop.get(1).cloned());
        let popped: Vec<Vec<u8>> = popped.collect();
        let [theirs, ours] = both.each_mut().map(|clients| {
            let mut told = Vec::new();
            if let Some(caching) = caching {
                answer(&mut clients.tracks[version], &request(caching), &mut told);
            }
            let mut replies = Vec::new();
            for command in &commands {
                let client = if own { &mut clients.tracks[version] } else { &mut clients.other };
                replies.push(normal(command, answer(client, command, &mut told)));
            }
            // What is drawn at random by a transaction is no part of this.
            if commands.len() > 1 {
                replies.clear();
            }
            told.extend(clients.told(version, redirected));
            // They have taken out different ones.
            for key in &popped {
                answer(&mut clients.other, &[b"DEL".to_vec(), key.clone()], &mut Vec::new());
            }
            if !popped.is_empty() {
                clients.told(version, redirected);
            }
            (replies, told)
        });
        assert_eq!(ours, theirs, "{log}");
    }
}

#[test]
fn invalidations_go_where_redis_sends_them() {
    with_sockets(Store::Kv, Settings::default(), |sockets| {
        let told = sockets.map(|at| {
            let [mut data, mut hears, mut other] = [2, 2, 2].map(|version| Client::new(at, version));
            let Value::Line(':', id) = hears.ask("CLIENT ID") else { panic!("no id") };
            let mut all = vec![hears.ask("SUBSCRIBE __redis__:invalidate")];
            all.push(data.ask(&format!("CLIENT TRACKING ON REDIRECT {id}")));
            assert_eq!(data.ask("CLIENT GETREDIR"), Value::Line(':', id.clone()));
            for (one, line) in [
                ("data", "GET k"),
                ("other", "SET k 1"),
                ("hears", ""),
                ("data", "MGET a b"),
                ("data", "SET b 1"),
                ("hears", ""),
                ("other", "FLUSHALL"),
                ("hears", ""),
            ] {
                all.push(match one {
                    "data" => data.ask(line),
                    "other" => other.ask(line),
                    _ => hears.receive(),
                });
            }
            drop(hears);
            // The server learns in its own time that the connection has ended.
            crate::support::until("the redirection is broken", || {
                data.ask("GET k");
                other.ask("SET k 3");
                let Value::Many(_, info) = data.ask("CLIENT TRACKINGINFO") else { panic!("no info") };
                let flags = ["on", "broken_redirect"].map(|flag| Value::Bulk(flag.as_bytes().to_vec()));
                info[1] == Value::Many('*', flags.to_vec())
            });
            all
        });
        let [theirs, ours] = told;
        assert_eq!(ours, theirs);
    });
}
