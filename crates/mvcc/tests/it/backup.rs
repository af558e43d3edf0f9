//! Backups beside running transactions: each copy is a moment of the store.

use std::io::ErrorKind::AlreadyExists;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use conformance::bank::{self, CLERKS, OBJECTS, Stops, Transfer, the_bank, wait_for, while_busy};
use mvcc::{Mvcc, Options, Step};
use pmem::{DomainChoice, Error as PoolError, PPtr};
use tempfile::TempDir;
use tx::{Engine, Error, Isolation, Transaction, Typed};

fn options(domain: DomainChoice) -> Options {
    let pool = pmem::Options::new().domain(domain);
    Options::new().bytes(2 << 20).slots(4).log_bytes(16 << 10).pool(pool).procedure::<Transfer>()
}

fn memory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

fn bank(dir: &TempDir, options: &Options) -> Mvcc {
    let store = Mvcc::create(dir.path().join("p"), options).unwrap();
    bank::make(&store);
    store
}

/// The last number of each clerk; or what is wrong.
fn audit(path: &Path) -> std::result::Result<[u64; CLERKS], String> {
    let store = Mvcc::open(path, &options(DomainChoice::Emulated).background(false)).map_err(|e| e.to_string())?;
    if !store.recovery().was_clean() {
        return Err("not closed cleanly".into());
    }
    let live = store.live_blocks(|_, _| {}).map_err(|e| e.to_string())?.live_blocks;
    if live != OBJECTS + 1 {
        return Err(format!("{live} objects of {OBJECTS} and the root's cell"));
    }
    bank::audit(&store)
}

fn busy(dir: &TempDir, options: &Options, backups: u64) {
    let store = bank(dir, options);
    let (cut, replayed) = while_busy(&store, |acknowledged| {
        let (mut cut, mut replayed) = (0, 0);
        // A writer commits meanwhile, sooner or later.
        for round in 0..backups * 50 {
            if round >= backups && cut > 0 {
                break;
            }
            wait_for(acknowledged, 40);
            let before: Vec<u64> = acknowledged.iter().map(|n| n.load(SeqCst)).collect();
            let path = dir.path().join("copy");
            let backup = store.backup(&path, |_, _| ()).unwrap();
            let found = audit(&path).unwrap_or_else(|why| panic!("{round}: {why}; {backup:?}"));
            for (found, before) in found.iter().zip(&before) {
                assert!(found >= before, "{found} in the copy, {before} acknowledged before it");
            }
            (cut, replayed) = (cut + backup.cut_bytes, replayed + backup.recovery.replayed);
            std::fs::remove_file(&path).unwrap();
        }
        (cut, replayed)
    });
    println!("{cut} bytes at cuts, {replayed} commits found in logs");
    assert!(cut > 0, "nobody was busy");
    assert_eq!(dir.path().read_dir().unwrap().count(), 1, "nothing is left beside the pool");
    store.close().unwrap();
}

#[test]
fn a_backup_beside_transfers_in_memory() {
    busy(&memory(), &options(DomainChoice::Emulated), 30);
}

#[test]
fn a_backup_beside_transfers_on_a_disk() {
    busy(&tempfile::tempdir_in("/tmp").unwrap(), &options(DomainChoice::File), 4);
}

/// Without what is held at the cut, some copy is no moment of the store.
#[test]
fn a_cut_that_holds_nothing_is_found() {
    let dir = memory();
    let store = bank(&dir, &options(DomainChoice::Emulated).without(Step::CutHolds));
    let found = while_busy(&store, |acknowledged| {
        (0..2000).find_map(|round| {
            let path = dir.path().join("copy");
            wait_for(acknowledged, 20);
            let wrong = match store.backup(&path, |_, _| ()) {
                Ok(_) => audit(&path).err(),
                // The machine's fault, not the copy's.
                Err(Error::Pool(
                    e @ (PoolError::NoSpace { .. } | PoolError::BackupRunning { .. } | PoolError::Io { .. }),
                )) => panic!("{e}"),
                Err(e) => Some(e.to_string()),
            };
            let _ = std::fs::remove_file(&path);
            wrong.map(|why| (round, why))
        })
    });
    println!("{found:?}");
    assert!(found.is_some());
}

/// Writers change every page of the store all the time, and another thread writes it back.
#[test]
fn writers_faster_than_the_copier_wait_for_it() {
    let dir = memory();
    let options = options(DomainChoice::Emulated).bytes(10 << 20).log_bytes(256 << 10);
    let store = Mvcc::create(dir.path().join("p"), &options).unwrap();
    let make = |tx: &mut mvcc::Tx<'_>| tx.alloc(&[0u64; 256]);
    let objects: Vec<PPtr<[u64; 256]>> = (0..2048).map(|_| store.transact(Isolation::Strict, make).unwrap()).collect();
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _stops = Stops(&stop);
        for half in objects.chunks(1024) {
            let (store, stop, rounds) = (&store, &stop, &rounds);
            scope.spawn(move || {
                for objects in half.chunks(8).cycle().take_while(|_| !stop.load(Relaxed)) {
                    let raise = |tx: &mut mvcc::Tx<'_>| {
                        objects
                            .iter()
                            .try_for_each(|&at| tx.write(at).map(|words| words.iter_mut().for_each(|w| *w += 1)))
                    };
                    store.transact(Isolation::Strict, raise).unwrap();
                    rounds.fetch_add(1, Relaxed);
                }
            });
        }
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                store.write_back().unwrap();
            }
        });
        for _ in 0..3 {
            let before = rounds.load(Relaxed);
            while rounds.load(Relaxed) < before + 100 {
                std::thread::yield_now();
            }
            let path = dir.path().join("copy");
            let backup = store.backup(&path, |_, _| ()).unwrap();
            println!("{} bytes at the cut, {} passes", backup.cut_bytes, backup.passes);
            let copy = Mvcc::open(&path, &options).unwrap();
            let snapshot = copy.snapshot();
            for &object in &objects {
                let words = snapshot.read(object).unwrap();
                assert_eq!(words, [words[0]; 256]);
            }
            drop(snapshot);
            copy.close().unwrap();
            std::fs::remove_file(&path).unwrap();
        }
    });
    store.close().unwrap();
}

/// The caller's own transaction is not in the copy, and goes on; a snapshot stays what it was.
#[test]
fn an_open_transaction_is_not_in_it() {
    let dir = memory();
    let store = bank(&dir, &options(DomainChoice::Emulated));
    let clerk = the_bank(&store).clerks[0];
    let snapshot = store.snapshot();
    let raise = |tx: &mut mvcc::Tx<'_>| tx.write(clerk).map(|words| words[0] += 1);
    store.transact(Isolation::Strict, raise).unwrap();
    let mut tx = store.begin(Isolation::Strict).unwrap();
    tx.write(clerk).unwrap()[0] = 7;
    tx.alloc(&[1u64; 100]).unwrap();
    store.backup(dir.path().join("copy"), |_, _| ()).unwrap();
    assert_eq!(audit(&dir.path().join("copy")), Ok([1, 0]));
    tx.commit().unwrap();
    assert_eq!(snapshot.read(clerk).unwrap()[0], 0);
    store.backup(dir.path().join("later"), |_, _| ()).unwrap();
    let later = Mvcc::open(dir.path().join("later"), &options(DomainChoice::Emulated)).unwrap();
    assert_eq!(later.snapshot().read(clerk).unwrap()[0], 7);
}

#[test]
fn the_store_may_grow_meanwhile() {
    let dir = memory();
    let store = bank(&dir, &options(DomainChoice::Emulated));
    let mut made = Vec::new();
    let backup = store.backup(dir.path().join("copy"), |copied, all| {
        assert!(copied <= all);
        if made.len() < 3 {
            made.push(store.transact(Isolation::Strict, |tx| tx.alloc_bytes(1 << 20, 8)).unwrap());
        }
    });
    let backup = backup.unwrap();
    assert_eq!(backup.bytes, store.pool().size());
    assert_eq!(backup.objects, OBJECTS + 1 + 3);
    assert_eq!(made.len(), 3);
}

#[test]
fn what_is_there_is_not_overwritten() {
    let dir = memory();
    let store = bank(&dir, &options(DomainChoice::Emulated));
    let kind = |error: Error| match error {
        Error::Pool(PoolError::Io { source, .. }) => source.kind(),
        other => panic!("{other}"),
    };
    let there = dir.path().join("there");
    std::fs::write(&there, b"mine").unwrap();
    assert_eq!(kind(store.backup(&there, |_, _| ()).unwrap_err()), AlreadyExists);
    // The name is taken meanwhile.
    let taken = dir.path().join("taken");
    let refused = store.backup(&taken, |_, _| std::fs::write(&taken, b"mine").unwrap()).unwrap_err();
    assert_eq!(kind(refused), AlreadyExists);
    assert_eq!([there, taken].map(|path| std::fs::read(path).unwrap()), [b"mine", b"mine"]);
    assert_eq!(dir.path().read_dir().unwrap().count(), 3, "and nothing is left beside it");
    // One after the other, not one inside the other.
    let mut inner = None;
    let outer = store.backup(dir.path().join("outer"), |_, _| {
        inner.get_or_insert_with(|| store.backup(dir.path().join("inner"), |_, _| ()).map(drop));
    });
    outer.unwrap();
    assert!(matches!(inner, Some(Err(Error::Pool(PoolError::BackupRunning { .. })))), "{inner:?}");
    store.backup(dir.path().join("again"), |_, _| ()).unwrap();
}

/// Nothing that is counted changes while a backup is being made.
#[test]
fn transactions_cost_the_same_meanwhile() {
    let dir = memory();
    let store = bank(&dir, &options(DomainChoice::Emulated).background(false));
    let clerk = the_bank(&store).clerks[0];
    let cost = || {
        let before = store.pool().stats();
        let raise = |tx: &mut mvcc::Tx<'_>| tx.write(clerk).map(|words| words[0] += 1);
        store.transact(Isolation::Strict, raise).unwrap();
        store.write_back().unwrap();
        let cost = store.pool().stats() - before;
        (cost.drains, cost.flushed_lines, cost.nt_bytes)
    };
    cost(); // and what was made
    let (alone, mut beside) = (cost(), None);
    let backup = store.backup(dir.path().join("copy"), |_, _| {
        beside.get_or_insert_with(cost);
    });
    backup.unwrap();
    assert_eq!(beside, Some(alone));
}
