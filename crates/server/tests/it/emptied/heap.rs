//! The same on a tree in a heap, which changes its values in place: when it is full there is room for nothing new.

use std::path::Path;

use pmem::DomainChoice;
use server::Server;
use server::tree::{Options, Tree};

use super::{ask, int, memory, stop, with};
use crate::support::{Client, Reply, start, usual};

const BYTES: u64 = 6 << 20;

fn serve(path: &Path) -> (Server, Client) {
    let pool = pmem::Options::new().domain(DomainChoice::Emulated).max_size(BYTES);
    let tree = Tree::open_or_create(path, &Options::new().bytes(1 << 20).slots(8).pool(pool)).unwrap();
    let server = start(None, usual(), Box::new(tree));
    let client = Client::to(server.redis()[0]);
    (server, client)
}

/// Names in no order, as many as go in.
fn fill(client: &mut Client, keys: &mut Vec<String>, value: &str) {
    for together in [200, 40, 8, 1] {
        let mut refused = 0;
        while refused < 3 {
            let from = keys.len() as u64;
            let name = |n: u64| format!("{:08x}-{n}", (n as u32).wrapping_mul(2_654_435_761));
            let words = with("MSET", from..from + together, |n| vec![name(n), value.to_owned()]);
            match ask(client, &words) {
                Reply::Error(_) => refused += 1,
                _ => {
                    refused = 0;
                    keys.extend((from..from + together).map(name));
                }
            }
        }
    }
}

fn del(client: &mut Client, keys: &[&String]) {
    let words: Vec<String> = std::iter::once("DEL".to_owned()).chain(keys.iter().map(|key| (*key).clone())).collect();
    assert_eq!(ask(client, &words), Reply::Int(keys.len() as i64), "of {} keys", keys.len());
}

#[test]
fn a_full_heap_is_emptied_by_any_request() {
    for len in [10, 300, 3000] {
        let dir = memory();
        let path = dir.path().join("store");
        let value = "v".repeat(len);
        let (server, mut client) = serve(&path);
        let mut keys = Vec::new();
        fill(&mut client, &mut keys, &value);
        stop(server);
        let (server, mut client) = serve(&path);
        let there = keys.len();
        // The names are in no order: each of these stands alone.
        let (some, rest) = keys.split_at((there / 2).min(400));
        del(&mut client, &some.iter().collect::<Vec<_>>());
        let (half, rest) = rest.split_at(rest.len() / 2);
        del(&mut client, &half.iter().collect::<Vec<_>>());
        assert_eq!(int(client.say("DBSIZE")) as usize, rest.len(), "values of {len}");
        stop(server);
        let (server, mut client) = serve(&path);
        assert_eq!(int(client.say("DBSIZE")) as usize, rest.len(), "values of {len}");
        let mut more = keys.clone();
        fill(&mut client, &mut more, &value);
        if len == 300 {
            assert_eq!(
                (client.say("MULTI"), client.say("FLUSHALL")),
                (Reply::ok(), Reply::Simple("QUEUED".to_owned()))
            );
            assert_eq!(client.say("EXEC"), Reply::Array(vec![Reply::ok()]));
        } else {
            assert_eq!(client.say("FLUSHALL"), Reply::ok(), "values of {len}");
        }
        assert_eq!(int(client.say("DBSIZE")), 0);
        let mut again = Vec::new();
        fill(&mut client, &mut again, &value);
        assert!(again.len() > there / 2, "{} of {there} keys go in again", again.len());
        stop(server);
        let (server, mut client) = serve(&path);
        assert_eq!((client.say("FLUSHALL"), int(client.say("DBSIZE"))), (Reply::ok(), 0));
        stop(server);
    }
}

/// Collections whose elements are noted to be nobody's when there is room for that.
#[test]
fn a_full_heap_of_collections_is_emptied() {
    let dir = memory();
    let path = dir.path().join("store");
    let (server, mut client) = serve(&path);
    let (mut names, mut keys) = (Vec::new(), Vec::new());
    for n in 0.. {
        let name = format!("hash{n}");
        let words = with(&format!("HSET {name}"), 0..80, |n| vec![format!("field{n}"), "value".to_owned()]);
        names.push(name);
        if matches!(ask(&mut client, &words), Reply::Error(_)) {
            break;
        }
    }
    names.pop();
    fill(&mut client, &mut keys, "v");
    stop(server);
    let (server, mut client) = serve(&path);
    let (some, rest) = names.split_at(names.len() / 2);
    del(&mut client, &[&some[0]]);
    del(&mut client, &some[1..].iter().collect::<Vec<_>>());
    assert_eq!(int(client.say("DBSIZE")) as usize, rest.len() + keys.len());
    assert_eq!(int(client.say(&format!("HLEN {}", rest[0]))), 80);
    assert_eq!((client.say("FLUSHALL"), int(client.say("DBSIZE"))), (Reply::ok(), 0));
    stop(server);
}
