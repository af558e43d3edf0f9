//! What requests cost, counted.

use std::io::Write;

use pmem::DomainChoice;

use crate::support::{Client, Reply, Running, request};

/// Barriers so far.
fn barriers(client: &mut Client) -> u64 {
    let Reply::Bulk(text) = client.say("INFO persistence") else { panic!("no text") };
    let text = String::from_utf8(text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("cairn_barriers:")).unwrap();
    line.parse().unwrap()
}

/// Sends all at once, and takes as many replies.
fn together(client: &mut Client, requests: &[Vec<&str>]) {
    let bytes: Vec<u8> = requests.iter().flat_map(|words| request(words)).collect();
    client.0.get_mut().write_all(&bytes).unwrap();
    requests.iter().for_each(|_| assert!(!matches!(client.reply(), Reply::Error(_))));
}

#[test]
fn a_batch_has_one_barrier_and_a_look_has_none() {
    for domain in [DomainChoice::Emulated, DomainChoice::File] {
        let running = Running::with(domain, |config| config, |options| options.background(false));
        let mut client = running.client();
        client.say("HSET hash f 1");
        let set = |n: usize| vec!["SET", ["a", "b", "c", "d"][n % 4], "1"];
        for (requests, cost) in [
            (vec![set(0)], 1),
            ((0..16).map(set).collect(), 1),
            (vec![vec!["GET", "a"], vec!["MGET", "a", "b"], vec!["HGETALL", "hash"], vec!["TTL", "a"]], 0),
            (vec![vec!["GET", "a"], set(0), vec!["GET", "a"]], 1),
            (vec![vec!["MSET", "a", "1", "b", "2", "c", "3"]], 1),
            (
                vec![
                    vec!["HSET", "hash", "f", "2", "g", "3"],
                    vec!["RPUSH", "list", "x", "y"],
                    vec!["ZADD", "z", "1", "m"],
                ],
                1,
            ),
            (vec![vec!["MULTI"], set(0), set(1), vec!["INCR", "n"], vec!["EXEC"]], 1),
            (vec![vec!["MULTI"], vec!["GET", "a"], vec!["EXEC"]], 0),
            (vec![vec!["SET", "a", "2", "NX"], vec!["DEL", "none"], vec!["EXPIRE", "none", "1"]], 0),
        ] {
            let before = barriers(&mut client);
            together(&mut client, &requests);
            assert_eq!(barriers(&mut client) - before, cost, "{domain:?}: {requests:?}");
        }
    }
}
