//! A server is killed while databases are swapped, long strings are written, money goes from one account to another, and clients keep what they have read until they are told that it has changed.

use std::io::Write as _;
use std::process::Command;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use crate::chunks::Writer;
use crate::kill;
use crate::support::{Client, Reply, request, until};
use crate::swapdb::{Written, check, mark_both};
use crate::witness::{Connection, Served};

const ACCOUNTS: u64 = 5;
const EACH: i64 = 100;

fn number(reply: &Reply) -> u64 {
    match reply {
        Reply::Null => 0,
        Reply::Bulk(text) => std::str::from_utf8(text).unwrap().parse().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// An answer, and keys that have changed by then; none if the connection has ended.
fn answer(client: &mut Client, changed: &mut bool) -> Option<Reply> {
    loop {
        match client.try_reply()? {
            Reply::Array(parts) if parts.first() == Some(&Reply::text("invalidate")) => *changed = true,
            other => return Some(other),
        }
    }
}

/// Whether it could be sent: the server may be gone.
fn sends(client: &mut Client, words: &[&str]) -> bool {
    client.0.get_mut().write_all(&request(words)).is_ok()
}

/// Counts in one key, and says which number is acknowledged.
fn count(client: &mut Client, acknowledged: &AtomicU64) {
    loop {
        let next = acknowledged.load(SeqCst) + 1;
        if !sends(client, &["SET", "count", &next.to_string()]) {
            return;
        }
        match client.try_reply() {
            Some(reply) if reply == Reply::ok() => acknowledged.store(next, SeqCst),
            Some(other) => panic!("{other:?}"),
            None => return,
        }
    }
}

/// Keeps the number until it is told that it has changed: what it keeps is never older than what was acknowledged before its last request.
fn keep(client: &mut Client, acknowledged: &AtomicU64, kept_often: &AtomicU64) {
    let (mut kept, mut changed) = (None, false);
    loop {
        let least = acknowledged.load(SeqCst);
        if !sends(client, &["PING"]) || answer(client, &mut changed).is_none() {
            return;
        }
        if std::mem::take(&mut changed) {
            kept = None;
        }
        if let Some(kept) = kept {
            assert!(kept >= least, "it keeps {kept}, was told nothing, and {least} was acknowledged");
            kept_often.fetch_add(1, SeqCst);
            continue;
        }
        if !sends(client, &["GET", "count"]) {
            return;
        }
        let Some(reply) = answer(client, &mut changed) else { return };
        assert!(number(&reply) >= least, "{reply:?} was read, and {least} was acknowledged");
        // What came in front of the answer may be about an older value.
        kept = Some(number(&reply)).filter(|_| !std::mem::take(&mut changed));
    }
}

/// Moves money between accounts, in transactions that others see as a whole.
fn pay(connection: &mut Connection, seed: u64) -> std::io::Result<()> {
    connection.ask("SELECT 7")?;
    for n in seed.. {
        let (from, to) = (n * 7 % ACCOUNTS, (n * 13 + 1) % ACCOUNTS);
        for line in ["MULTI".to_owned(), format!("DECRBY a{from} {}", n % 9), format!("INCRBY a{to} {}", n % 9)] {
            connection.ask(&line)?;
        }
        assert_eq!(connection.ask("EXEC")?, "*2");
        connection.reply()?;
        connection.reply()?;
    }
    Ok(())
}

/// Nothing of it is lost, and nothing made of nothing.
fn check_money(served: &Served) {
    let mut connection = served.connect();
    connection.ask("SELECT 7").unwrap();
    let of = |connection: &mut Connection, at: u64| connection.ask(&format!("GET a{at}")).unwrap();
    let all: i64 = (0..ACCOUNTS).map(|at| of(&mut connection, at).parse::<i64>().unwrap()).sum();
    assert_eq!(all, EACH * ACCOUNTS as i64);
}

fn begin(served: &Served) {
    mark_both(served);
    let mut connection = served.connect();
    connection.ask("SELECT 7").unwrap();
    (0..ACCOUNTS).for_each(|at| assert_eq!(connection.ask(&format!("SET a{at} {EACH}")).unwrap(), "+OK"));
}

#[test]
fn what_is_acknowledged_of_all_that_is_new_is_there_after_kills() {
    for (domain, rounds) in [("emulated", 4), ("file", 3)] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let mut long = [1_u64, 2].map(Writer::new);
        let mut written: Vec<Written> = (0..2).map(|_| Written::default()).collect();
        let (counted, kept, swapped) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        for round in 0..rounds {
            let mut served = kill::whole(domain, &path);
            if round == 0 {
                begin(&served);
            }
            check(&served, &mut written);
            check_money(&served);
            long.iter_mut().for_each(|long| long.check(&served));
            let mut counter = Client::to(served.address.parse().unwrap());
            counter.ask(&["SELECT", "6"]);
            let found = number(&counter.ask(&["GET", "count"]));
            let least = counted.load(SeqCst);
            assert!((least..=least + 1).contains(&found), "{found}, and {least} was acknowledged");
            counted.store(found, SeqCst);
            let before = [&counted, &kept, &swapped].map(|count| count.load(SeqCst));
            std::thread::scope(|scope| {
                let served = &served;
                let connect = || Connection::to(&served.address).unwrap();
                let (counted, kept, swapped) = (&counted, &kept, &swapped);
                scope.spawn(move || count(&mut counter, counted));
                for _ in 0..2 {
                    let mut client = Client::to(served.address.parse().unwrap());
                    client.ask(&["HELLO", "3"]);
                    client.ask(&["SELECT", "6"]);
                    assert_eq!(client.ask(&["CLIENT", "TRACKING", "ON"]), Reply::ok());
                    scope.spawn(move || keep(&mut client, counted, kept));
                }
                for (client, written) in written.iter_mut().enumerate() {
                    let mut connection = connect();
                    scope.spawn(move || while written.write(&mut connection, &format!("c{client}")).is_ok() {});
                }
                for long in &mut long {
                    let client = Writer::connect(served);
                    scope.spawn(move || long.write(client));
                }
                for seed in [round, round + 100] {
                    let mut connection = connect();
                    scope.spawn(move || drop(pay(&mut connection, seed)));
                }
                let mut swaps = connect();
                scope.spawn(move || {
                    while swaps.ask("SWAPDB 0 1").is_ok_and(|said| said == "+OK") {
                        swapped.fetch_add(1, SeqCst);
                    }
                });
                let goes_on = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    until("all go on", || {
                        let now = [counted, kept, swapped].map(|count| count.load(SeqCst));
                        now.iter().zip(before).all(|(now, before)| *now > before + 5 + 3 * round)
                    });
                }));
                let id = served.child.id().to_string();
                assert!(Command::new("kill").args(["-9", &id]).status().unwrap().success());
                goes_on.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            });
            served.child.wait().unwrap();
        }
        let served = kill::whole(domain, &path);
        check(&served, &mut written);
        check_money(&served);
        long.iter_mut().for_each(|long| long.check(&served));
        assert!(long.iter().any(|long| long.acknowledged > 0), "{domain}: nothing was written into long strings");
    }
}
