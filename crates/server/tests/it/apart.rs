//! What takes long runs on a thread that serves no connections, and is answered as anything else.

use pmem::DomainChoice;

use crate::support::{Client, Reply, Running, Store};

const MANY: usize = 30_000;

fn fill(client: &mut Client) {
    for from in (0..MANY).step_by(1000) {
        let members: Vec<String> = (from..from + 1000).map(|n| n.to_string()).collect();
        for (command, key) in [("SADD", "set"), ("RPUSH", "list")] {
            let mut words = vec![command, key];
            words.extend(members.iter().map(String::as_str));
            assert!(matches!(client.ask(&words), Reply::Int(_)));
        }
        let pairs: Vec<String> = members.iter().flat_map(|n| [n.clone(), format!("m{n}")]).collect();
        let mut words = vec!["ZADD", "sorted"];
        words.extend(pairs.iter().map(String::as_str));
        assert_eq!(client.ask(&words), Reply::Int(1000));
    }
    for key in ["one", "other"] {
        assert_eq!(client.ask(&["SET", key, &"abcdefgh".repeat(150)]), Reply::ok());
    }
}

fn len(reply: &Reply) -> usize {
    match reply {
        Reply::Array(all) => all.len(),
        other => panic!("no array: {other:?}"),
    }
}

/// Alone, behind others, within transactions and scripts; each once, in order, on every engine.
#[test]
fn what_takes_long_is_answered_in_its_place() {
    for running in
        [Running::start(DomainChoice::Emulated), Running::tree(), Running::on(Store::Slow, DomainChoice::File)]
    {
        let mut client = running.client();
        fill(&mut client);
        client.send(
            b"SET a 1\r\nSMEMBERS set\r\nINCR a\r\nLCS one other LEN\r\nINCR a\r\nZRANGE sorted 0 -1\r\nINCR a\r\nSORT list DESC LIMIT 0 2\r\nGET a\r\n",
        );
        let replies: Vec<Reply> = (0..9).map(|_| client.reply()).collect();
        assert_eq!((&replies[0], len(&replies[1]), &replies[2]), (&Reply::ok(), MANY, &Reply::Int(2)));
        assert_eq!((&replies[3], &replies[4], len(&replies[5])), (&Reply::Int(1200), &Reply::Int(3), MANY));
        assert_eq!((&replies[6], &replies[8]), (&Reply::Int(4), &Reply::text("4")));
        assert_eq!(replies[7], Reply::Array(vec![Reply::text("29999"), Reply::text("29998")]));
        // What it writes is written once.
        assert_eq!(client.say("ZUNIONSTORE union 1 sorted"), Reply::Int(MANY as i64));
        client.send(b"MULTI\r\nINCR a\r\nLRANGE list 0 -1\r\nINCR a\r\nSELECT 1\r\nDBSIZE\r\nSELECT 0\r\nEXEC\r\n");
        let Some(Reply::Array(all)) = (0..8).map(|_| client.reply()).last() else { panic!("no array") };
        assert_eq!((&all[0], len(&all[1]), &all[2], &all[4]), (&Reply::Int(5), MANY, &Reply::Int(6), &Reply::Int(0)));
        let script = "redis.call('INCR', 'a') return #redis.call('SMEMBERS', 'set') + #redis.call('KEYS', '*')";
        assert_eq!(client.ask(&["EVAL", script, "0"]), Reply::Int(MANY as i64 + 7));
        assert_eq!(client.say("GET a"), Reply::text("7"));
        assert_eq!(client.say("SORT list ALPHA BY nosuch STORE"), Reply::Error("ERR syntax error".to_owned()));
        assert_eq!(client.say("GET a"), Reply::text("7"));
    }
}

/// While others ask for much, writes of many clients on the same threads go on, and nothing of either is lost.
#[test]
fn writes_go_on_beside_what_takes_long() {
    for running in [Running::start(DomainChoice::Emulated), Running::on(Store::Slow, DomainChoice::File)] {
        fill(&mut running.client());
        std::thread::scope(|scope| {
            for at in 0..4 {
                let mut client = running.client();
                scope.spawn(move || {
                    for n in 1..=20 {
                        if at % 2 == 0 {
                            assert_eq!(client.say(&format!("INCR n{at}")), Reply::Int(n));
                        }
                        assert_eq!(len(&client.say("SMEMBERS set")), MANY);
                    }
                });
            }
            for at in 4..8 {
                let mut client = running.client();
                scope.spawn(move || {
                    (1..=100).for_each(|n| assert_eq!(client.say(&format!("INCR n{at}")), Reply::Int(n)));
                });
            }
        });
    }
}
