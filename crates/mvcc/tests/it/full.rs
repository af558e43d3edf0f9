//! Full stores and logs, transactions that are in their own way, and what is gone that was durable.

use std::path::Path;
use std::process::Command;

use mvcc::{Mvcc, Options};
use pmem::{DomainChoice, ErrorKind, PPtr};
use tx::{Engine, Error, Isolation, Transaction, Typed};

fn options(bytes: u64) -> Options {
    let pool = pmem::Options::new().domain(DomainChoice::Emulated);
    Options::new().bytes(bytes).slots(3).log_bytes(4096).background(false).pool(pool)
}

fn store(dir: &tempfile::TempDir, options: &Options) -> Mvcc {
    Mvcc::create(dir.path().join("s"), options).unwrap()
}

fn memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

/// Records that go to blocks, in a store that has to grow for them.
#[test]
fn a_long_record_makes_the_store_grow() {
    for background in [false, true] {
        let dir = memory();
        let store = store(&dir, &options(1 << 20).background(background));
        let long = store.transact(Isolation::Strict, |tx| tx.alloc_bytes(32 << 10, 8)).unwrap();
        for round in 0..60u8 {
            let fill = |tx: &mut mvcc::Tx<'_>| -> tx::Result<()> {
                tx.bytes_mut(long, 32 << 10)?.fill(round);
                tx.alloc_bytes(100 << 10, 8).map(drop)
            };
            store.transact(Isolation::Strict, fill).unwrap();
        }
        assert!(store.stats().bytes > 6 << 20);
        store.close().unwrap();
    }
}

/// A store without room for another object can be emptied, by one transaction too, and filled again.
#[test]
fn a_full_store_can_be_emptied() {
    let dir = memory();
    let store = store(&dir, &options(1 << 20).max_bytes(1 << 20).log_bytes(64 << 10));
    for _ in 0..3 {
        let mut made: Vec<PPtr<u8>> = Vec::new();
        let full = loop {
            match store.transact(Isolation::Snapshot, |tx| tx.alloc_bytes(1000, 8)) {
                Ok(ptr) => made.push(ptr),
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), ErrorKind::Full, "{full}");
        assert!(made.len() > 800, "{}", made.len());
        // What is changed needs no block: its record waits for room in the log.
        for &ptr in &made[..20] {
            let fill = |tx: &mut mvcc::Tx<'_>| tx.bytes_mut(ptr, 1000).map(|bytes| bytes.fill(1));
            store.transact(Isolation::Snapshot, fill).unwrap();
        }
        // One goes, and another one comes at once.
        for ptr in made.drain(..50).collect::<Vec<_>>() {
            store.transact(Isolation::Snapshot, |tx| tx.free_bytes(ptr)).unwrap();
            made.push(store.transact(Isolation::Snapshot, |tx| tx.alloc_bytes(1000, 8)).unwrap());
        }
        let free = |tx: &mut mvcc::Tx<'_>| made.iter().try_for_each(|&ptr| tx.free_bytes(ptr));
        store.transact(Isolation::Snapshot, free).unwrap();
        store.write_back().unwrap();
    }
    store.close().unwrap();
}

/// A reader of the same thread is in the way of its writes: told, and not waited for.
#[test]
fn a_log_that_an_own_reader_keeps_full_is_an_error() {
    let dir = memory();
    let store = store(&dir, &options(1 << 20));
    let object = store.transact(Isolation::Snapshot, |tx| tx.alloc(&[0u64; 8])).unwrap();
    let bump = |tx: &mut mvcc::Tx<'_>| -> tx::Result<()> {
        tx.write(object)?[0] += 1;
        Ok(())
    };
    let reader = store.begin(Isolation::Snapshot).unwrap();
    let full = (0..1000).find_map(|_| store.transact(Isolation::Snapshot, bump).err());
    assert!(matches!(full, Some(Error::LogFull)), "{full:?}");
    assert_eq!(reader.read(object).unwrap()[0], 0);
    let other = store.begin(Isolation::Serializable).unwrap(); // a transaction that only reads needs no room
    assert!(other.read(object).unwrap()[0] > 10);
    other.commit().unwrap();
    reader.commit().unwrap();
    store.transact(Isolation::Snapshot, bump).unwrap();
    store.close().unwrap();
}

/// Versions are bounded while an open transaction keeps them.
#[test]
fn versions_are_bounded() {
    let dir = memory();
    let store = store(&dir, &options(8 << 20).log_bytes(256 << 10));
    let object = store.transact(Isolation::Snapshot, |tx| tx.alloc_bytes(1 << 20, 8)).unwrap();
    let reader = store.begin(Isolation::Snapshot).unwrap();
    let one = |tx: &mut mvcc::Tx<'_>| -> tx::Result<()> {
        tx.bytes_mut(object, 8)?[0] += 1;
        Ok(())
    };
    let commits = (0..1000).take_while(|_| store.transact(Isolation::Snapshot, one).is_ok()).count();
    assert!((30..40).contains(&commits), "{commits} of a mebibyte each");
    reader.commit().unwrap();
    store.transact(Isolation::Snapshot, one).unwrap();
    store.close().unwrap();
}

#[test]
fn a_panic_in_a_look_leaves_its_slot() {
    let dir = memory();
    let store = store(&dir, &options(1 << 20));
    let object = store.transact(Isolation::Snapshot, |tx| tx.alloc(&[0u64; 8])).unwrap();
    let snapshot = store.snapshot();
    for _ in 0..10 {
        let look = || snapshot.with(object.cast(), 8, |_| panic!("of the test"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(look)).is_err());
    }
    assert_eq!(snapshot.read(object).unwrap(), [0; 8]);
    drop(snapshot);
    store.close().unwrap();
}

/// Many snapshots, many versions: each pass looks at each of them once.
#[test]
fn hundreds_of_snapshots_are_kept() {
    let dir = memory();
    let store = store(&dir, &options(1 << 20).log_bytes(1 << 20));
    let make = || store.transact(Isolation::Snapshot, |tx| tx.alloc(&[0u64; 8])).unwrap();
    let objects: Vec<_> = (0..50).map(|_| make()).collect();
    let mut snapshots = Vec::new();
    for round in 1..=300u64 {
        snapshots.push(store.snapshot());
        let bump = |tx: &mut mvcc::Tx<'_>| -> tx::Result<()> {
            objects.iter().try_for_each(|&object| {
                tx.write(object)?[0] = round;
                Ok(())
            })
        };
        store.transact(Isolation::Snapshot, bump).unwrap();
    }
    store.write_back().unwrap();
    assert_eq!(store.stats().versions, 50 * 300);
    for (before, snapshot) in snapshots.iter().enumerate() {
        assert_eq!(snapshot.read(objects[7]).unwrap()[0], before as u64);
    }
    for gone in (0..300).rev().step_by(2) {
        snapshots.swap_remove(gone);
    }
    store.write_back().unwrap();
    assert_eq!(store.stats().versions, 50 * 150);
    drop(snapshots);
    store.write_back().unwrap();
    assert_eq!(store.stats().versions, 0);
    store.close().unwrap();
}

/// The file as a crash in the middle of a pass leaves it: what is committed is known to be durable, and not written back.
fn in_the_middle(dir: &Path) -> (Vec<u8>, Vec<PPtr<[u64; 8]>>) {
    let store = Mvcc::create(dir.join("s"), &options(1 << 20)).unwrap();
    let make = |tx: &mut mvcc::Tx<'_>| (0..8).map(|_| tx.alloc(&[0u64; 8])).collect::<tx::Result<Vec<_>>>();
    let objects = store.transact(Isolation::Snapshot, make).unwrap();
    store.write_back().unwrap();
    let reader = store.begin(Isolation::Snapshot).unwrap();
    for round in 1..=3 {
        let all = |tx: &mut mvcc::Tx<'_>| -> tx::Result<()> {
            objects.iter().try_for_each(|&object| {
                *tx.write(object)? = [round; 8];
                Ok(())
            })
        };
        store.transact(Isolation::Snapshot, all).unwrap();
    }
    assert!(!store.write_back().unwrap(), "the reader is in its way");
    let file = std::fs::read(dir.join("s")).unwrap();
    drop(reader);
    store.abandon();
    (file, objects)
}

/// Each object in the last record goes bad in turn: what was durable is there, or an error says that it is not.
#[test]
fn a_durable_record_that_goes_bad_is_told() {
    let dir = memory();
    let (file, objects) = in_the_middle(dir.path());
    let path = dir.path().join("damaged");
    let look = || -> tx::Result<Vec<[u64; 8]>> {
        let store = Mvcc::open(&path, &options(1 << 20))?;
        let tx = store.begin(Isolation::Snapshot)?;
        objects.iter().map(|&object| tx.read(object).copied()).collect()
    };
    std::fs::write(&path, &file).unwrap();
    assert_eq!(look().unwrap(), [[3; 8]; 8]);
    let record: Vec<u8> = 3u64.to_le_bytes().repeat(8);
    let places: Vec<usize> = (0..file.len() - 64).step_by(8).filter(|&at| file[at..at + 64] == record[..]).collect();
    assert!(places.len() >= 8, "the last record holds all of them");
    let mut told = 0;
    for at in places {
        let mut damaged = file.clone();
        damaged[at + 5] ^= 16;
        std::fs::write(&path, &damaged).unwrap();
        match look() {
            Ok(seen) => assert_eq!(seen, [[3; 8]; 8], "byte {at}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
                told += 1;
            }
        }
    }
    assert!(told >= 8, "{told}");
}

/// What comes and goes beside a snapshot that never saw it takes no room.
#[test]
fn what_a_snapshot_never_saw_goes() {
    let dir = memory();
    let store = store(&dir, &options(1 << 20).max_bytes(1 << 20));
    let held = store.snapshot();
    for _ in 0..5000 {
        let made = store.transact(Isolation::Serializable, |tx| tx.alloc(&[7u64; 250])).unwrap();
        store.transact(Isolation::Serializable, |tx| tx.free(made)).unwrap();
    }
    drop(held);
    store.close().unwrap();
}

/// Not a test of its own: a program that fills its store, on what counts as a disk of as many bytes as it may write.
#[test]
fn fill() {
    let Ok(path) = std::env::var("CAIRN_MVCC_FILL") else { return };
    let store = Mvcc::open(&path, &options(1 << 20)).unwrap();
    let full = loop {
        match store.transact(Isolation::Strict, |tx| tx.alloc_bytes(20_000, 8)) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(full.kind(), ErrorKind::Full, "{full}");
    store.close().unwrap();
}

/// A pool can grow so often only: on a disk that has a little room, again and again, the store does not use that up.
#[test]
fn a_disk_that_is_nearly_full_for_long_leaves_a_store_that_grows() {
    let dir = memory();
    let path = dir.path().join("s");
    store(&dir, &options(4 << 20)).close().unwrap();
    let first = path.metadata().unwrap().len();
    for more in 1..=60 {
        let blocks = (first + more * (128 << 10)) / 512;
        let out = Command::new("sh")
            .args(["-c", "trap '' XFSZ; ulimit -f $0; exec \"$@\"", &blocks.to_string()])
            .arg(std::env::current_exe().unwrap())
            .args(["full::fill", "--exact", "--nocapture", "--test-threads", "1"])
            .env("CAIRN_MVCC_FILL", &path)
            .output()
            .unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
    let store = Mvcc::open(&path, &options(1 << 20)).unwrap();
    assert!(store.stats().bytes > 6 << 20, "what room there was, it used: {}", store.stats().bytes);
    for _ in 0..4 {
        store.transact(Isolation::Strict, |tx| tx.alloc_bytes(4 << 20, 8)).unwrap();
    }
}
