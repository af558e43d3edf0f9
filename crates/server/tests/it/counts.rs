//! `INFO keyspace` tells how many keys there are, however many.

use pmem::DomainChoice;

use crate::support::{Client, Reply, Running};

fn load(client: &mut Client, keys: std::ops::Range<usize>) {
    for from in keys.clone().step_by(1000) {
        let names: Vec<String> = (from..keys.end.min(from + 1000)).map(|n| format!("key{n:07}")).collect();
        let words: Vec<&str> = std::iter::once("MSET").chain(names.iter().flat_map(|name| [&name[..], "v"])).collect();
        assert_eq!(client.ask(&words), Reply::ok());
    }
}

/// The count of a database.
fn keys(text: &Reply, db: u8) -> usize {
    let Reply::Bulk(text) = text else { panic!("{text:?}") };
    let text = String::from_utf8(text.clone()).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("db{db}:keys=")));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

#[test]
fn keys_are_counted_when_a_client_asks() {
    for running in [Running::start(DomainChoice::Emulated), Running::start(DomainChoice::File)] {
        let mut client = running.client();
        let mut had = 0;
        for count in [20_000, 36_000, 36_001] {
            load(&mut client, had..count);
            had = count;
            for line in ["INFO keyspace", "INFO"] {
                assert_eq!(keys(&client.say(line), 0), count, "{line}");
            }
        }
        // Between `MULTI` and `EXEC`, and in a script, as it was counted last.
        client.say("MULTI");
        client.say("INFO keyspace");
        let Reply::Array(all) = client.say("EXEC") else { panic!("no transaction") };
        assert_eq!(keys(&all[0], 0), 36_001);
        let told = client.ask(&["EVAL", "return redis.call('INFO', 'keyspace')", "0"]);
        assert_eq!(keys(&told, 0), 36_001);
        client.say("FLUSHALL");
        assert_eq!(keys(&client.say("INFO keyspace"), 0), 0);
        load(&mut client, 0..9_000);
        client.say("SWAPDB 0 5");
        assert_eq!(keys(&client.say("INFO everything"), 5), 9_000);
    }
}

/// A transaction that asks first.
#[test]
fn keys_are_counted_at_once_if_they_were_not_before() {
    let running = Running::start(DomainChoice::Emulated);
    let mut client = running.client();
    load(&mut client, 0..20_000);
    client.say("MULTI");
    client.say("INFO keyspace");
    let Reply::Array(all) = client.say("EXEC") else { panic!("no transaction") };
    assert_eq!(keys(&all[0], 0), 20_000);
}
