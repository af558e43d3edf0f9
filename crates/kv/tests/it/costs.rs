//! What a commit costs, counted: barriers, and bytes written to the media. Checkpoints included.

use kv::{Batch, Keys, Options, Store};

/// What is on media of a record of a 24-byte key: 40 bytes before it.
fn record(value: u64) -> u64 {
    (40 + 24 + value).next_multiple_of(16)
}

fn key(n: u64) -> Vec<u8> {
    format!("user{n:020}").into_bytes()
}

fn store(dir: &tempfile::TempDir) -> Store {
    // Checkpoints are made by the thread that commits, so that all is counted in one place.
    Options::new().background(false).checkpoint_bytes(4 << 20).create(dir.path().join("store")).unwrap()
}

fn batch(writes: u64, round: u64, value: &[u8]) -> Batch {
    let mut batch = Batch::new();
    for n in 0..writes {
        batch.put(&key((round * writes + n) % 1000), value);
    }
    batch
}

/// Barriers and media bytes of this.
fn cost(store: &Store, f: impl FnOnce()) -> (u64, u64) {
    let before = store.stats().pool;
    f();
    let after = store.stats().pool;
    (after.drains - before.drains, after.media_bytes() - before.media_bytes())
}

#[test]
fn a_commit_is_one_barrier_and_its_records() {
    let dir = crate::memory();
    let store = store(&dir);
    for n in 0..1000 {
        store.put(&key(n), b"").unwrap();
    }
    for (writes, len) in [(1, 100), (1, 1024), (10, 100), (10, 1024), (100, 100), (100, 1024)] {
        let value = vec![7; len as usize];
        store.write(&batch(writes, 0, &value)).unwrap(); // begins a segment, perhaps
        let rounds = 3;
        let (barriers, bytes) = cost(&store, || {
            for round in 0..rounds {
                store.write(&batch(writes, round, &value)).unwrap();
            }
        });
        assert_eq!(barriers, rounds, "{writes} of {len}");
        let line = (writes * record(len)).next_multiple_of(64);
        // A segment that begins costs a line of the table, and a transaction that goes on there ends its lines in both.
        let slack = 2 * 64 + 64;
        assert!(
            (rounds * line..=rounds * line + slack).contains(&bytes),
            "{writes} of {len}: {bytes} bytes for {rounds} times {line}"
        );
    }
}

#[test]
fn a_checkpoint_is_three_barriers_for_thousands_of_commits() {
    let dir = crate::memory();
    let store = store(&dir);
    let value = [7; 1024];
    for n in 0..1000 {
        store.put(&key(n), &value).unwrap();
    }
    // Twice, so that the file has its length.
    for round in 0..40_000 {
        store.put(&key(round * 7 % 1000), &value).unwrap();
    }
    store.checkpoint().unwrap();
    let checkpoints = store.stats().checkpoints;
    let commits = 20_000;
    let (barriers, bytes) = cost(&store, || {
        for round in 0..commits {
            store.put(&key(round * 7 % 1000), &value).unwrap();
        }
    });
    let made = store.stats().checkpoints - checkpoints;
    let moved = store.stats().moved;
    assert_eq!(moved, 0, "nothing is sparse where all is overwritten in turn");
    assert_eq!(barriers, commits + 3 * made, "{made} checkpoints");
    assert!((4..=6).contains(&made), "{made} checkpoints of 4 MiB");
    // Records, and the leaves of 1000 keys a few times.
    let records = commits * record(1024).next_multiple_of(64);
    assert!(bytes >= records && bytes < records + records / 50, "{bytes} for {records}");
}

#[test]
fn reading_costs_none() {
    let dir = crate::memory();
    let store = store(&dir);
    for n in 0..1000 {
        store.put(&key(n), b"value").unwrap();
    }
    let cost = cost(&store, || {
        assert_eq!(store.transact(|tx| Ok(tx.scan(Keys::all()).count())).unwrap(), 1000);
        let snapshot = store.snapshot().unwrap();
        assert!((0..1000).all(|n| snapshot.get(&key(n)).unwrap().is_some()));
        assert!(!store.delete(b"nothing").unwrap());
    });
    assert_eq!(cost, (0, 0));
}
