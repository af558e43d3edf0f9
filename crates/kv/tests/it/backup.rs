//! Bulk load, backup beside writers, restore.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use kv::{Error, Keys, Options, Store};

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn pairs(snapshot: &kv::Snapshot<'_>) -> Pairs {
    snapshot.scan(Keys::all()).map(|pair| pair.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect()
}

fn content(path: &Path) -> Pairs {
    let store = Options::new().open_read_only(path).unwrap();
    let snapshot = store.snapshot().unwrap();
    pairs(&snapshot)
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        dir.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

const FAR: u64 = 1 << 45;

#[test]
fn pairs_are_loaded_in_any_order() {
    let dir = crate::memory();
    let store = Store::open(dir.path().join("store")).unwrap();
    store.put(b"00007", b"old").unwrap();
    store.put(b"other", b"stays").unwrap();
    let mut steps = 0;
    let mut loader = store.loader();
    // Each key twice, far apart and next to each other; a value is longer than a transaction usually is.
    for n in (0..30_000u32).map(|n| n * 7919 % 30_000).chain(0..30_000) {
        let value = if n == 17 { vec![1; 3 << 20] } else { format!("{n:0100}").into_bytes() };
        if loader.put(format!("{n:05}").as_bytes(), b"first", None).unwrap() {
            steps += 1;
            assert!(loader.loaded().pairs > 0);
        }
        loader.put(format!("{n:05}").as_bytes(), &value, (n % 1000 == 0).then_some(FAR)).unwrap();
    }
    let loaded = loader.finish().unwrap();
    assert_eq!(loaded.pairs, 120_000);
    assert!(steps >= 8, "{steps} steps");
    // Two values of 3 MiB are transactions of their own, the rest is in as few as can be.
    let commits = store.stats().commits;
    assert!(commits <= loaded.bytes / (512 << 10) + 8, "{commits} commits for {} bytes", loaded.bytes);
    let snapshot = store.snapshot().unwrap();
    for n in [0, 7, 29_999] {
        assert_eq!(snapshot.get(format!("{n:05}").as_bytes()).unwrap(), Some(format!("{n:0100}").as_bytes()));
    }
    assert_eq!(snapshot.get(b"00017").unwrap().map(<[u8]>::len), Some(3 << 20));
    assert_eq!((snapshot.expires(b"02000").unwrap(), snapshot.expires(b"02001").unwrap()), (Some(FAR), None));
    assert_eq!(snapshot.scan(Keys::all()).count(), 30_001);
    assert!(store.loader().put(&[0; kv::KEY_MAX + 1], b"", None).is_err());
    assert_eq!(store.loader().finish().unwrap().pairs, 0);
}

#[test]
fn a_backup_beside_writers_is_its_snapshot() {
    const ACCOUNTS: u64 = 500;
    let dir = crate::memory();
    let store =
        Options::new().segment_bytes(64 << 10).checkpoint_bytes(1 << 20).create(dir.path().join("store")).unwrap();
    let key = |n: u64| format!("account{n:04}").into_bytes();
    let read = |value: &[u8]| u64::from_le_bytes(value[..8].try_into().unwrap());
    let value = |sum: u64| [&sum.to_le_bytes()[..], &[sum as u8; 400]].concat();
    store.load((0..ACCOUNTS).map(|n| (key(n), value(100)))).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for thread in 0..3u64 {
            let (store, stop) = (&store, &stop);
            threads.spawn(move || {
                let mut state = thread + 1;
                while !stop.load(Relaxed) {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let (from, to) = (key((state >> 33) % ACCOUNTS), key((state >> 45) % ACCOUNTS));
                    let moved = store.transact(|tx| {
                        let sum = read(tx.get(&from)?.unwrap_or_default());
                        if sum > 0 && from != to {
                            let other = read(tx.get(&to)?.unwrap_or_default());
                            tx.put(&from, &value(sum - 1))?;
                            tx.put(&to, &value(other + 1))?;
                        }
                        Ok(())
                    });
                    moved.unwrap();
                }
            });
        }
        let mut last = None;
        for round in 0..4 {
            let path = dir.path().join(format!("backup{round}"));
            let snapshot = store.snapshot().unwrap();
            let mut commits = vec![store.stats().commits];
            let backup = snapshot
                .backup(&path, |_| {
                    // No writer is stopped: others commit between this step and the next.
                    let before = store.stats().commits;
                    while store.stats().commits == before {
                        std::thread::yield_now();
                    }
                    commits.push(store.stats().commits);
                })
                .unwrap();
            assert!(commits.is_sorted_by(|a, b| a < b), "{commits:?}");
            assert_eq!(backup.timestamp, snapshot.timestamp());
            let right = pairs(&snapshot);
            drop(snapshot);
            let found = content(&path);
            assert_eq!(found.len() as u64, backup.pairs);
            assert!(found == right, "the backup of round {round} is not its snapshot");
            assert_eq!(found.iter().map(|(_, value)| read(value)).sum::<u64>(), 100 * ACCOUNTS);
            assert!(last.is_none_or(|last| last != found), "it is not the last one again");
            last = Some(found);
        }
        stop.store(true, Relaxed);
    });
    // It is a store like any other.
    let path = dir.path().join("backup0");
    let backup = Store::open(&path).unwrap();
    assert!(backup.pool().was_clean());
    backup.put(b"new", b"1").unwrap();
    backup.close().unwrap();
    assert_eq!(content(&path).len() as u64, ACCOUNTS + 1);
}

#[test]
fn what_was_backed_up_is_restored_with_expiry_times() {
    let dir = crate::memory();
    let path = |name: &str| dir.path().join(name);
    let store = Store::open(path("store")).unwrap();
    for n in 0..5000u32 {
        store.put(&n.to_be_bytes(), &vec![n as u8; n as usize % 700]).unwrap();
    }
    store.put_until(b"gone", b"x", 1).unwrap();
    store.put_until(b"later", b"x", FAR).unwrap();
    store.put(b"long", &vec![9; 5 << 20]).unwrap();
    store.delete(&7u32.to_be_bytes()).unwrap();
    let right = pairs(&store.snapshot().unwrap());
    let backup = store.backup(path("backup")).unwrap();
    assert_eq!(backup.pairs, 5001);
    store.put(b"after", b"x").unwrap();
    let mut told = 0;
    let restored = kv::restore(path("backup"), path("restored"), |loaded| told = loaded.pairs).unwrap();
    assert_eq!((restored.pairs, restored.bytes, told), (backup.pairs, backup.bytes, backup.pairs));
    let restored = Store::open(path("restored")).unwrap();
    let snapshot = restored.snapshot().unwrap();
    assert!(pairs(&snapshot) == right);
    assert_eq!(snapshot.expires(b"later").unwrap(), Some(FAR));
    assert_eq!(snapshot.get(b"gone").unwrap(), None);
    assert_eq!(names(dir.path()), ["backup", "restored", "store"], "nothing temporary is left");
}

#[test]
fn nothing_is_overwritten_and_nothing_half_made_is_left() {
    let dir = crate::memory();
    let path = |name: &str| dir.path().join(name);
    let store = Store::open(path("store")).unwrap();
    store.put(b"a", b"1").unwrap();
    std::fs::write(path("taken"), b"precious").unwrap();
    let exists = |error: Error| match error {
        Error::Pool(pmem::Error::Io { source, .. }) => source.kind() == std::io::ErrorKind::AlreadyExists,
        _ => false,
    };
    assert!(exists(store.backup(path("taken")).unwrap_err()));
    assert!(exists(store.backup(path("store")).unwrap_err()));
    store.backup(path("backup")).unwrap();
    assert!(exists(kv::restore(path("backup"), path("taken"), |_| ()).unwrap_err()));
    // It appears while the backup is being made.
    let raced = store.snapshot().unwrap().backup(path("raced"), |_| std::fs::write(path("raced"), b"mine").unwrap());
    assert!(exists(raced.unwrap_err()));
    assert_eq!(std::fs::read(path("taken")).unwrap(), b"precious");
    assert_eq!(std::fs::read(path("raced")).unwrap(), b"mine");
    assert!(store.backup(path("no/such/directory")).is_err());
    assert!(kv::restore(path("nothing"), path("x"), |_| ()).is_err());
    assert!(kv::restore(path("taken"), path("x"), |_| ()).is_err(), "not a store");
    assert_eq!(names(dir.path()), ["backup", "raced", "store", "taken"]);
}

#[test]
fn damage_is_told_and_not_copied() {
    let dir = crate::memory();
    let path = |name: &str| dir.path().join(name);
    let store = Store::open(path("store")).unwrap();
    for n in 0..100u32 {
        store.put(&n.to_be_bytes(), format!("the value of number {n}, which is like no other").as_bytes()).unwrap();
    }
    store.backup(path("backup")).unwrap();
    store.close().unwrap();
    for name in ["store", "backup"] {
        let mut bytes = std::fs::read(path(name)).unwrap();
        let wanted = b"the value of number 42,";
        let places: Vec<usize> =
            (0..bytes.len() - wanted.len()).filter(|at| bytes[*at..].starts_with(wanted)).collect();
        places.iter().for_each(|at| bytes[at + 4] ^= 1);
        std::fs::write(path(name), bytes).unwrap();
    }
    let error = Store::open(path("store")).unwrap().backup(path("other")).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    let error = kv::restore(path("backup"), path("other"), |_| ()).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    assert_eq!(names(dir.path()), ["backup", "store"]);
}

#[test]
fn a_snapshot_that_is_too_old_is_no_backup() {
    let dir = crate::memory();
    let store = Store::open(dir.path().join("store")).unwrap();
    store.load((0..5000u32).map(|n| (n.to_be_bytes(), [1; 500]))).unwrap();
    let snapshot = store.snapshot().unwrap();
    let failed = snapshot.backup(dir.path().join("backup"), |loaded| {
        if loaded.pairs < 5000 {
            store.put(b"newer", b"").unwrap();
            assert_eq!(store.expire_before(store.stats().now), 1);
        }
    });
    assert!(matches!(failed, Err(Error::Expired { .. })), "{failed:?}");
    assert_eq!(names(dir.path()), ["store"]);
}

#[test]
fn what_several_openings_wrote_is_whole() {
    let dir = crate::memory();
    let path = |name: &str| dir.path().join(name);
    let store = Store::open(path("store")).unwrap();
    store.put(b"0", b"first").unwrap();
    store.close().unwrap();
    for n in 1..5u32 {
        let store = Store::open(path("store")).unwrap();
        store.put(n.to_string().as_bytes(), &[n as u8; 100]).unwrap();
        if n % 2 == 0 { store.close().unwrap() } else { store.abandon() }
    }
    let store = Store::open(path("store")).unwrap();
    store.load((0..40_000u32).map(|n| (format!("many{n}"), [n as u8; 50]))).unwrap();
    assert_eq!(store.backup(path("one")).unwrap().pairs, 40_005);
    store.close().unwrap();
    let store = Store::open(path("store")).unwrap();
    assert_eq!(store.backup(path("two")).unwrap().pairs, 40_005);
    store.close().unwrap();
    let store = Options::new().open_read_only(path("store")).unwrap();
    assert_eq!(store.backup(path("three")).unwrap().pairs, 40_005);
}

/// The end of one record is the end of a segment, and the next segment is the one behind it.
#[test]
fn a_transaction_fills_segments_to_the_last_byte() {
    let dir = crate::memory();
    let path = |name: &str| dir.path().join(name);
    let options = Options::new().segment_bytes(4096).background(false);
    let store = options.create(path("store")).unwrap();
    store
        .transact(|tx| {
            // 40 bytes of header and 24 of its own: 64 of them in a segment.
            (0..200u64).try_for_each(|n| tx.put(&n.to_be_bytes(), &[n as u8; 16]).map(drop))
        })
        .unwrap();
    assert_eq!(store.backup(path("backup")).unwrap().pairs, 200);
    store.abandon();
    let store = options.open(path("store")).unwrap();
    assert_eq!(pairs(&store.snapshot().unwrap()).len(), 200, "after a crash");
}

#[test]
fn loaders_of_the_same_keys_wait_for_each_other() {
    const KEYS: u32 = 20_000;
    let dir = crate::memory();
    let store = Store::open(dir.path().join("store")).unwrap();
    std::thread::scope(|threads| {
        for thread in 0..3u32 {
            let store = &store;
            threads.spawn(move || {
                // Each in another order, so that they have locks that the others want.
                let order = (0..KEYS).map(|n| n.wrapping_mul([1, 7919, 12_347][thread as usize]) % KEYS);
                let loaded = store.load(order.map(|n| (n.to_be_bytes(), vec![thread as u8; 200]))).unwrap();
                assert_eq!(loaded.pairs, u64::from(KEYS));
            });
        }
        for n in 0..1000u32 {
            store.put(&(n * 20).to_be_bytes(), b"\x07").unwrap();
        }
    });
    let found = pairs(&store.snapshot().unwrap());
    assert_eq!(found.len(), KEYS as usize);
    assert!(found.iter().all(|(_, value)| value.iter().all(|byte| *byte == value[0])));
}
