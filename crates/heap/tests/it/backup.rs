//! Backups beside running transactions: each copy is a moment of the heap.

use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use conformance::bank::{self, Account, CLERKS, OBJECTS, Stops, the_bank, wait_for, while_busy};
use heap::{Heap, Intents, Options, Policy};
use pmem::{DomainChoice, Error as PoolError, PPtr};
use tempfile::TempDir;
use tx::{Engine, Error, Isolation, ToRange, Transaction, Typed, field};

use crate::support::{ATOMIC, disk, memory, quiet};

fn bank(dir: &TempDir, options: &Options) -> Heap {
    let heap = Heap::create(dir.path().join("p"), options).unwrap();
    bank::make(&heap);
    heap
}

/// The last number of each clerk; or what is wrong.
fn audit(path: &Path) -> Result<[u64; CLERKS], String> {
    let heap = Heap::open(path, &Options::new().coordinator(false)).map_err(|e| e.to_string())?;
    // What is in doubt at a log's end is none: a word of an old payload there can be the number that a next record would have.
    let found = heap.recovery();
    if (found.records, found.zones, found.copies) != (0, 0, 0) {
        return Err(format!("not closed cleanly: {found:?}"));
    }
    let live = heap.live_blocks(|_, _| {}).map_err(|e| e.to_string())?.live_blocks;
    if live != OBJECTS + 1 {
        return Err(format!("{live} objects of {OBJECTS} and the root's cell"));
    }
    bank::audit(&heap)
}

fn options(policy: Policy, domain: DomainChoice) -> Options {
    let options = quiet(policy, domain).bytes(1 << 20).slots(4).log_bytes(8192).zone_bytes(16 << 10).batch(3);
    options.recovery_budget(256 << 10).alpha(0.2).checksum_max(1000).coordinator(true)
}

fn busy(dir: &TempDir, options: &Options, backups: usize) {
    let heap = bank(dir, options);
    let (cut, restored) = (Cell::new(0), Cell::new(0));
    while_busy(&heap, |acknowledged| {
        // A transaction is between two barriers at one of them, sooner or later.
        for round in (0..backups * 50).take_while(|round| *round < backups || cut.get() == 0) {
            while acknowledged.iter().any(|n| n.load(SeqCst) < 20 * (round as u64 + 1)) {
                std::thread::yield_now();
            }
            let before: Vec<u64> = acknowledged.iter().map(|n| n.load(SeqCst)).collect();
            let path = dir.path().join("copy");
            let backup = heap.backup(&path, |_, _| ()).unwrap();
            let found = audit(&path).unwrap_or_else(|why| panic!("{} {round}: {why}; {backup:?}", heap.policy()));
            for (found, before) in found.iter().zip(&before) {
                assert!(found >= before, "{found} in the copy, {before} acknowledged before it");
            }
            cut.set(cut.get() + backup.cut_bytes);
            restored.set(restored.get() + backup.recovery.restored_bytes);
            std::fs::remove_file(&path).unwrap();
        }
    });
    println!("{}: {} bytes at cuts, {} taken back", heap.policy(), cut.get(), restored.get());
    assert!(cut.get() > 0, "nobody was busy");
    assert_eq!(dir.path().read_dir().unwrap().count(), 1, "nothing is left beside the pool");
    heap.close().unwrap();
}

#[test]
fn a_backup_beside_transfers_in_memory() {
    for policy in ATOMIC {
        busy(&memory(), &options(policy, DomainChoice::Emulated), 12);
    }
    busy(&memory(), &options(Policy::InPlace, DomainChoice::Emulated).intents(Intents::Objects), 12);
}

#[test]
fn a_backup_beside_transfers_on_a_disk() {
    for policy in ATOMIC {
        busy(&disk(), &options(policy, DomainChoice::File), 4);
    }
}

/// Without what is held at the cut, some copy is no moment of the heap.
#[cfg(feature = "failpoints")]
#[test]
fn a_cut_that_holds_nothing_is_found() {
    for policy in ATOMIC {
        let dir = memory();
        let heap = bank(&dir, &options(policy, DomainChoice::Emulated).leave_out(heap::Step::CutHolds));
        let found = while_busy(&heap, |acknowledged| {
            (0..3000).find_map(|round| {
                let path = dir.path().join("copy");
                wait_for(acknowledged, 20);
                let wrong = match heap.backup(&path, |_, _| ()) {
                    Ok(_) => audit(&path).err(),
                    // The machine's fault, not the copy's.
                    Err(Error::Pool(
                        e @ (pmem::Error::NoSpace { .. } | pmem::Error::BackupRunning { .. } | pmem::Error::Io { .. }),
                    )) => {
                        panic!("{e}")
                    }
                    Err(e) => Some(e.to_string()),
                };
                let _ = std::fs::remove_file(&path);
                wrong.map(|why| (round, why))
            })
        });
        println!("{policy}: {found:?}");
        assert!(found.is_some(), "{policy}");
    }
}

/// Everything that takes the locks of a cut, at once: cleaning and scrubbing, growth, intents that do not fit into their log, applying.
#[test]
fn backups_wait_for_nobody_for_ever() {
    for policy in ATOMIC {
        let dir = memory();
        let options = options(policy, DomainChoice::Emulated).log_bytes(2048).recovery_budget(32 << 10).bytes(2 << 20);
        let heap = bank(&dir, &options.intents(Intents::Objects));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _stops = Stops(&stop); // a failed assertion, too
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    heap.scrub().unwrap();
                    heap.apply_pending().unwrap();
                }
            });
            scope.spawn(|| {
                let accounts = the_bank(&heap).accounts;
                let many: Vec<_> = accounts.iter().step_by(10).map(|account| account.range()).collect();
                while !stop.load(Relaxed) {
                    let Ok(mut tx) = heap.begin(Isolation::Strict) else { continue };
                    match tx.intend(&many) {
                        Ok(()) | Err(Error::Conflict { .. } | Error::BackupFull { .. }) => tx.abort().unwrap(),
                        Err(e) => panic!("{e}"),
                    }
                }
            });
            while_busy(&heap, |acknowledged| {
                for round in 0..10 {
                    if round % 3 == 0 {
                        heap.grow(64 << 10).unwrap();
                    }
                    let before = acknowledged[0].load(SeqCst);
                    let path = dir.path().join("copy");
                    heap.backup(&path, |_, _| ()).unwrap();
                    let found = audit(&path).unwrap_or_else(|why| panic!("{policy} {round}: {why}"));
                    assert!(found[0] >= before, "{policy}");
                    std::fs::remove_file(&path).unwrap();
                    while acknowledged[0].load(SeqCst) < before + 50 {
                        std::thread::yield_now();
                    }
                }
            });
        });
        heap.close().unwrap();
    }
}

/// Writers change every page of the heap all the time, faster than it is copied.
#[test]
fn little_is_copied_while_nobody_may_commit() {
    const OBJECTS: usize = 2048;
    for policy in [Policy::InPlace, Policy::InPlacePartial, Policy::Undo, Policy::None] {
        let dir = memory();
        // What one commit writes, with the copies of the four before it, is far less than the bound.
        let options = quiet(policy, DomainChoice::Emulated).bytes(10 << 20).slots(4).alpha(0.5).batch(4);
        let heap = Heap::create(dir.path().join("p"), &options).unwrap();
        let objects: Vec<PPtr<[u64; 256]>> =
            (0..OBJECTS).map(|_| heap.transact(Isolation::Strict, |tx| tx.alloc(&[0; 256])).unwrap()).collect();
        let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let _stops = Stops(&stop);
            for half in objects.chunks(OBJECTS / 2) {
                let (heap, stop, rounds) = (&heap, &stop, &rounds);
                scope.spawn(move || {
                    for objects in half.chunks(8).cycle() {
                        if stop.load(Relaxed) {
                            return;
                        }
                        heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
                            for &object in objects {
                                tx.write(object)?[0] += 1;
                            }
                            Ok(())
                        })
                        .unwrap();
                        rounds.fetch_add(1, Relaxed);
                    }
                });
            }
            let path = dir.path().join("copy");
            for round in 0..2 {
                let before = rounds.load(Relaxed);
                while rounds.load(Relaxed) < before + 100 {
                    std::thread::yield_now();
                }
                // Where the thread that copies does not run behind its last pass, much is left for the cut: on a busy machine now and then.
                let is_little = |_| {
                    let backup = heap.backup(&path, |_, _| ()).unwrap();
                    std::fs::remove_file(&path).unwrap();
                    println!("{policy}: {backup:?}");
                    backup.cut_bytes <= 1 << 20
                };
                assert!((0..50).any(is_little), "{policy}, {round}: never little at a cut");
            }
        });
        heap.close().unwrap();
    }
}

// ---- what else there is to a backup ---------------------------------------------------------------------------------

#[test]
fn policy_none_is_copied_as_a_crash_leaves_it() {
    let dir = memory();
    let heap = bank(&dir, &options(Policy::None, DomainChoice::Emulated));
    let backup = heap.backup(dir.path().join("copy"), |_, _| ()).unwrap();
    assert_eq!(audit(&dir.path().join("copy")), Ok([0, 0]));
    assert_eq!((backup.cut_bytes, backup.recovery.restored_bytes), (0, 0));
}

/// The caller's own open transaction is taken back in the copy, and goes on.
#[test]
fn an_open_transaction_is_not_in_it() {
    for policy in ATOMIC {
        let dir = memory();
        let heap = bank(&dir, &options(policy, DomainChoice::Emulated));
        let bank = the_bank(&heap);
        let mut tx = heap.begin(Isolation::Strict).unwrap();
        *tx.write(field!(Account, balance).of(bank.accounts[3])).unwrap() = 7;
        tx.alloc(&[1u64; 100]).unwrap();
        heap.backup(dir.path().join("copy"), |_, _| ()).unwrap();
        assert_eq!(audit(&dir.path().join("copy")), Ok([0, 0]), "{policy}");
        assert_eq!(tx.read(bank.accounts[3]).unwrap().balance, 7);
        tx.commit().unwrap();
        heap.backup(dir.path().join("later"), |_, _| ()).unwrap();
        let later = Heap::open(dir.path().join("later"), &Options::new()).unwrap();
        assert_eq!(later.begin(Isolation::Strict).unwrap().read(bank.accounts[3]).unwrap().balance, 7, "{policy}");
    }
}

#[test]
fn the_heap_may_grow_meanwhile() {
    for policy in Policy::ALL {
        let dir = memory();
        let heap = bank(&dir, &options(policy, DomainChoice::Emulated));
        let before = heap.pool().size();
        let mut grown = 0;
        let backup = heap
            .backup(dir.path().join("copy"), |copied, all| {
                assert!(copied <= all);
                if grown < 3 {
                    grown += 1;
                    heap.grow(1 << 20).unwrap();
                    bump(&heap);
                }
            })
            .unwrap();
        assert!(backup.bytes == heap.pool().size() && backup.bytes >= before + (3 << 20), "{policy}: {backup:?}");
        assert_eq!(audit(&dir.path().join("copy")), Ok([3, 0]), "{policy}");
        bump(&heap);
    }
}

fn bump(heap: &Heap) {
    let clerk = the_bank(heap).clerks[0];
    heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
        tx.write(clerk)?[0] += 1;
        Ok(())
    })
    .unwrap();
}

#[test]
fn what_is_there_is_not_overwritten() {
    let dir = memory();
    let heap = bank(&dir, &options(Policy::InPlace, DomainChoice::Emulated));
    let there = dir.path().join("there");
    std::fs::write(&there, b"mine").unwrap();
    let refused = heap.backup(&there, |_, _| ()).unwrap_err();
    let kind = |e: &Error| match e {
        Error::Pool(PoolError::Io { source, .. }) => source.kind(),
        other => panic!("{other}"),
    };
    assert_eq!(kind(&refused), std::io::ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read(&there).unwrap(), b"mine");
    // The name is taken meanwhile.
    let taken = dir.path().join("taken");
    let refused = heap.backup(&taken, |_, _| std::fs::write(&taken, b"mine").unwrap()).unwrap_err();
    assert_eq!(kind(&refused), std::io::ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read(&taken).unwrap(), b"mine");
    assert_eq!(dir.path().read_dir().unwrap().count(), 3, "and nothing is left beside it");
    // One after the other, not one inside the other.
    let mut inner = None;
    heap.backup(dir.path().join("outer"), |_, _| {
        inner.get_or_insert_with(|| heap.backup(dir.path().join("inner"), |_, _| ()).map(drop));
    })
    .unwrap();
    let Some(Err(error @ Error::Pool(PoolError::BackupRunning { .. }))) = inner else { panic!("{inner:?}") };
    let error = error.to_string();
    assert!(error.contains("another backup") && !error.contains("close"), "{error}");
    heap.backup(dir.path().join("again"), |_, _| ()).unwrap();
}

/// Bytes that went bad are told, not handed on.
#[test]
fn damage_is_not_copied() {
    use std::os::unix::fs::FileExt;
    let dir = memory();
    // All zones are cleaned at the close, which keeps checksums.
    let heap = bank(&dir, &options(Policy::InPlace, DomainChoice::Emulated).recovery_budget(1 << 30));
    let account = the_bank(&heap).accounts[5];
    heap.close().unwrap();
    let file = std::fs::File::options().write(true).open(dir.path().join("p")).unwrap();
    file.write_all_at(&[0xee; 8], account.offset() + 64).unwrap();
    let heap = Heap::open(dir.path().join("p"), &Options::new()).unwrap();
    let refused = heap.backup(dir.path().join("copy"), |_, _| ()).unwrap_err();
    assert!(refused.to_string().contains("went bad at rest"), "{refused}");
    assert!(!dir.path().join("copy").exists());
    heap.scrub().unwrap();
    heap.backup(dir.path().join("copy"), |_, _| ()).unwrap();
    assert_eq!(audit(&dir.path().join("copy")), Ok([0, 0]));
}

/// Nothing that is counted changes while a backup is being made.
#[test]
fn transactions_cost_the_same_meanwhile() {
    for policy in Policy::ALL {
        let dir = memory();
        let heap = bank(&dir, &options(policy, DomainChoice::Emulated).coordinator(false));
        let cost = || {
            let before = heap.pool().stats();
            bump(&heap);
            heap.apply_pending().unwrap();
            let cost = heap.pool().stats() - before;
            (cost.drains, cost.flushed_lines, cost.nt_bytes)
        };
        cost(); // makes copies, marks zones
        let (alone, mut beside) = (cost(), None);
        heap.backup(dir.path().join("copy"), |_, _| {
            beside.get_or_insert_with(cost);
        })
        .unwrap();
        assert_eq!(beside, Some(alone), "{policy}");
    }
}
