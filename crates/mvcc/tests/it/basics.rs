//! Opening and closing.

use mvcc::{Mvcc, Options};
use pmem::{DomainChoice, ErrorKind};
use tx::{Engine, Isolation, Transaction, Typed};

fn options() -> Options {
    Options::new().bytes(1 << 20).slots(4).pool(pmem::Options::new().domain(DomainChoice::Emulated))
}

#[test]
fn a_closed_store_can_be_read_by_who_may_not_write() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("s");
    let store = Mvcc::create(&path, &options()).unwrap();
    let object = store.transact(Isolation::Strict, |tx| tx.alloc(&[7u64; 8])).unwrap();
    store.close().unwrap();
    let read_only = || pmem::Options::new().domain(DomainChoice::Emulated).open_read_only(&path).unwrap();
    let store = Mvcc::open_in(&read_only(), &options()).unwrap();
    assert!(store.recovery().was_clean());
    assert_eq!(store.snapshot().read(object).unwrap(), [7; 8]);
    let mut tx = store.begin(Isolation::Snapshot).unwrap();
    assert_eq!(*tx.read(object).unwrap(), [7; 8]);
    tx.write(object).unwrap()[0] = 1;
    assert!(tx.commit().is_err(), "nobody may write");
    assert!(store.transact(Isolation::Snapshot, |tx| tx.alloc(&1u64)).is_err());
    assert_eq!(store.snapshot().read(object).unwrap(), [7; 8]);
    drop(store);

    let store = Mvcc::open(&path, &options()).unwrap();
    assert!(store.recovery().was_clean(), "reading has left nothing");
    store.transact(Isolation::Strict, |tx| tx.write(object).map(|object| object[0] = 1)).unwrap();
    store.abandon();
    assert!(pmem::Options::new().domain(DomainChoice::Emulated).open_read_only(&path).is_err(), "it was not closed");
    let store = Mvcc::open(&path, &options()).unwrap();
    assert_eq!(store.snapshot().read(object).unwrap()[0], 1);
    store.close().unwrap();
}

#[test]
fn a_forgotten_transaction_is_told_by_the_close_and_taken_back_by_the_next_open() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("s");
    let store = Mvcc::create(&path, &options()).unwrap();
    let object = store.transact(Isolation::Strict, |tx| tx.alloc(&[7u64; 8])).unwrap();
    let mut tx = store.begin(Isolation::Strict).unwrap();
    tx.write(object).unwrap()[0] = 1;
    tx.alloc(&1u64).unwrap();
    std::mem::forget(tx);
    assert_eq!(store.close().unwrap_err().kind(), ErrorKind::InUse);
    let store = Mvcc::open(&path, &options()).unwrap();
    assert_eq!(store.snapshot().read(object).unwrap(), [7; 8]);
    store.close().unwrap();
}

/// A snapshot that can no longer be dropped keeps nothing from being closed.
#[test]
fn a_forgotten_snapshot_is_forgotten() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("s");
    let store = Mvcc::create(&path, &options()).unwrap();
    let object = store.transact(Isolation::Strict, |tx| tx.alloc(&[7u64; 8])).unwrap();
    std::mem::forget(store.snapshot());
    store.transact(Isolation::Strict, |tx| tx.free(object)).unwrap();
    store.write_back().unwrap();
    store.close().unwrap();
    assert!(Mvcc::open(&path, &options()).unwrap().recovery().was_clean());
}
