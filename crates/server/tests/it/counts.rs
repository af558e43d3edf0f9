//! `INFO keyspace` tells how many keys there are, however many.

use pmem::DomainChoice;

use crate::support::{Client, Reply, Running, until};

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

/// A transaction, or a script, that asks first: others do not wait for the count.
#[test]
fn keys_that_were_not_counted_before_are_counted_on_another_thread() {
    let in_transaction = |client: &mut Client| {
        client.say("MULTI");
        client.say("SET key0000001 w");
        client.say("INFO keyspace");
        let Reply::Array(all) = client.say("EXEC") else { panic!("no transaction") };
        keys(&all[1], 0)
    };
    let in_script = |client: &mut Client| {
        let script = "redis.call('SET', 'key0000001', 'w') return redis.call('INFO', 'keyspace')";
        keys(&client.ask(&["EVAL", script, "0"]), 0)
    };
    let asks: [fn(&mut Client) -> usize; 2] = [in_transaction, in_script];
    for (at, ask) in asks.into_iter().enumerate() {
        let running = Running::start(DomainChoice::Emulated);
        let mut client = running.client();
        load(&mut client, 0..20_000);
        let before = client.runs_apart();
        assert_eq!(ask(&mut client), 20_000, "{at}");
        assert_eq!(client.runs_apart(), before + 1, "{at}");
        // It is known now, and told at once.
        assert_eq!((ask(&mut client), client.runs_apart()), (20_000, before + 1), "{at}");
        // A heap's transactions hold locks that the count may wait for: they are told what is known, and soon that is all.
        let running = Running::tree();
        let mut client = running.client();
        load(&mut client, 0..20_000);
        until("the keys are counted", || ask(&mut client) == 20_000);
    }
}
