//! Stores in the format of 2026-11, left without closing them and closed, and one of a replicated log with its follower, are used as they are. Names of structs and fields are part of the
//! format: what fails here is a store that can no longer be opened.
//!
//! With `CAIRN_MAKE_FIXTURES=dir` the tests make such stores by this build, and write `earlier-*.txt` into that folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kv::{Follower, Isolation, Options, Plain, Store, Table};
use log::Replicas;
use pmem::{DomainChoice, Persist};

use crate::fixture::earlier;
use crate::replicated::{all, await_that, log_of, trust};

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// In a table, whose type has the names of the fields in it.
#[derive(Clone, Copy, Debug, PartialEq, Persist)]
#[repr(C)]
struct Item {
    price: u64,
    stock: u64,
}

const APPLES: Item = Item { price: 3, stock: 17 };
/// Pairs of the table, its type among them.
const OF_TABLE: usize = 2;

fn options() -> Options {
    let pool = pmem::Options::new().domain(DomainChoice::Emulated);
    Options::new().segment_bytes(4096).background(false).pool(pool)
}

fn key(n: u64) -> Vec<u8> {
    format!("key {n:03}").into_bytes()
}

fn put(store: &Store, n: u64, len: usize) {
    store.put(key(n), vec![n as u8; len]).unwrap();
}

fn delete(store: &Store, n: u64) {
    assert!(store.delete(key(n)).unwrap());
}

/// Keys that only a checkpoint has, that were overwritten or deleted before and behind one, that expire, and that are new.
fn fill(store: &Store) {
    (0..40).for_each(|n| put(store, n, n as usize));
    (0..40).step_by(5).for_each(|n| delete(store, n));
    store.checkpoint().unwrap();
    (0..40).step_by(7).for_each(|n| put(store, n, 100));
    store.checkpoint().unwrap();
    (1..40).step_by(5).for_each(|n| delete(store, n));
    (40..45).for_each(|n| put(store, n, 300));
    store.put_until(b"expires", b"in a long time", u64::MAX >> 2).unwrap();
    let put = store.transact(|tx| {
        tx.put(b"apples", b"17")?;
        tx.put(b"long", &[3; 3000])?;
        Ok(())
    });
    put.unwrap();
    let items: Table<str, Plain<Item>> = store.table("items").unwrap();
    items.on(store).put("apples", &APPLES).unwrap();
}

/// What `fill` leaves, and so many rounds.
fn expected(rounds: u64) -> Pairs {
    let mut pairs: Pairs = (0..40).filter(|n| n % 5 != 0).map(|n| (key(n), vec![n as u8; n as usize])).collect();
    pairs.extend((0..40).step_by(7).map(|n| (key(n), vec![n as u8; 100])));
    (1..40).step_by(5).for_each(|n| drop(pairs.remove(&key(n))));
    pairs.extend((40..45).map(|n| (key(n), vec![n as u8; 300])));
    pairs.extend((100..100 + rounds).map(|n| (key(n), vec![n as u8; 500])));
    let others = [("expires", b"in a long time".to_vec()), ("apples", b"17".to_vec()), ("long", vec![3; 3000])];
    pairs.extend(others.map(|(key, value)| (key.into(), value)));
    pairs
}

/// Each key by itself, and all of them as they are scanned.
fn check(store: &Store, rounds: u64) {
    let expected = expected(rounds);
    for (key, value) in &expected {
        assert!(store.get(key).unwrap().as_ref() == Some(value), "{key:?}, {rounds}");
    }
    let mut found = all(store);
    assert_eq!(found.len(), expected.len() + OF_TABLE);
    found.retain(|key, _| expected.contains_key(key));
    assert!(found == expected);
    let items: Table<str, Plain<Item>> = store.table("items").unwrap();
    assert_eq!(items.on(store).get("apples").unwrap(), Some(APPLES));
    assert_eq!(store.snapshot().unwrap().expires(b"expires").unwrap(), Some(u64::MAX >> 2));
}

fn end(store: Store, closed: bool) {
    if closed { store.close().unwrap() } else { store.abandon() }
}

fn used_as_it_is(path: &Path) {
    for round in 0..4 {
        let store = options().open(path).unwrap();
        check(&store, round);
        put(&store, 100 + round, 500);
        if round == 2 {
            store.checkpoint().unwrap();
        }
        check(&store, round + 1);
        end(store, round % 2 == 1);
    }
}

#[test]
fn a_store_that_was_left_is_recovered_read_and_written() {
    let dir = crate::memory();
    let [path] = earlier(dir.path(), ["kv-left"], |[path]| {
        let store = options().create(path).unwrap();
        fill(&store);
        let mut tx = store.begin(Isolation::Serializable).unwrap();
        tx.put(b"not committed", b"17").unwrap();
        drop(tx);
        store.abandon();
    });
    used_as_it_is(&path);
}

#[test]
fn a_store_that_was_closed_is_read_and_written() {
    let dir = crate::memory();
    let [path] = earlier(dir.path(), ["kv-closed"], |[path]| {
        let store = options().create(path).unwrap();
        fill(&store);
        store.close().unwrap();
    });
    used_as_it_is(&path);
}

// ---- of a replicated log --------------------------------------------------------------------------------------------

fn follow(store: &Path, log: &Path) -> Follower {
    Follower::serve_with(&options(), store, log, "127.0.0.1:0", &trust()).unwrap()
}

/// Options of the leader, with this copy of the log and the follower's.
fn leading(log: &Path, follower: &Follower) -> Options {
    let copies = Replicas::new().local(log).at(&follower.address()).write_quorum(2).trust(trust());
    options().replicated(&copies, &log_of(64 << 10).segment_bytes(16 << 10))
}

/// The follower has all that the leader has.
fn await_the_same(follower: &Follower, leader: &Store) {
    let leaders = all(leader);
    await_that(follower, || all(follower.store()) == leaders);
}

/// The leader is left, and so is its follower, whose files are copied while it waits.
fn make_replicated([store, log, follower_store, follower_log]: &[PathBuf; 4]) {
    let running = [follower_store, follower_log].map(|path| path.with_extension("running"));
    let follower = follow(&running[0], &running[1]);
    let leader = leading(log, &follower).create(store).unwrap();
    fill(&leader);
    await_the_same(&follower, &leader);
    leader.abandon();
    std::fs::copy(&running[0], follower_store).unwrap();
    std::fs::copy(&running[1], follower_log).unwrap();
    follower.stop().unwrap();
}

#[test]
fn a_replicated_store_and_its_follower_go_on() {
    let dir = crate::memory();
    let names = ["kv-leader", "kv-leader-log", "kv-follower", "kv-follower-log"];
    let [store, log, follower_store, follower_log] = earlier(dir.path(), names, make_replicated);
    for round in 0..4 {
        let follower = follow(&follower_store, &follower_log);
        let leader = leading(&log, &follower).open(&store).unwrap();
        check(&leader, round);
        put(&leader, 100 + round, 500);
        await_the_same(&follower, &leader);
        check(follower.store(), round + 1);
        end(leader, round % 2 == 1);
        follower.stop().unwrap();
    }
}
