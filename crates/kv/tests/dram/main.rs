//! What the index costs in DRAM. A binary of its own, since its allocator counts.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test, in helpers too")]

#[path = "../../../heap/tests/memory/raw.rs"]
mod raw;

use kv::{Options, Store};

/// In order this is 16 667 leaves, a few more than a power of two: tables that double show here what they waste.
const KEYS: u64 = 1_000_000;
/// Bytes of the index per key, at most.
const KEY: u64 = 24;

/// Numbers in no order, each once.
fn scattered(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn load(store: &Store, place: impl Fn(u64) -> u64) {
    let pairs = (0..KEYS).map(|n| (format!("user{:020}", place(n)), [n as u8; 100]));
    assert_eq!(store.load(pairs).unwrap().pairs, KEYS);
    // What the first remembers of the load is freed with the second.
    (0..2).for_each(|_| store.checkpoint().unwrap());
}

/// What the index takes, since `before` was allocated, by the allocator and by its own count.
fn check(store: &Store, before: u64, what: &str) {
    let (spent, stated) = (raw::allocated() - before, store.stats().index_bytes);
    println!("{what}: {KEYS} keys, {spent} bytes are allocated, the index says {stated}");
    assert_eq!(store.stats().entries, KEYS);
    assert!(spent <= KEY * KEYS, "{what}: {spent} bytes for {KEYS} keys");
    assert!(stated.abs_diff(spent) <= spent / 10, "{what}: {spent} bytes are allocated, the index says {stated}");
}

#[test]
fn the_index_takes_what_it_says_and_little_per_key() {
    for (what, place) in [("in order", (|n| n) as fn(u64) -> u64), ("in no order", scattered)] {
        let memory = std::path::Path::new("/dev/shm");
        let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let path = dir.path().join("store");
        let options = Options::new().background(false);
        let store = options.create(&path).unwrap();
        let before = raw::allocated();
        load(&store, place);
        check(&store, before, what);
        store.close().unwrap();
        let before = raw::allocated();
        let store = options.open(&path).unwrap();
        check(&store, before, &format!("{what}, opened again"));
    }
}
