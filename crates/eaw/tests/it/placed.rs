//! What is placed past the log.

use eaw::mars;
use eaw::records::{RecordTx, Records};
use pmem::{DomainChoice, Stats};

use super::{create, members, options, read};

fn counted(array: &eaw::array::Array, act: impl FnOnce()) -> Stats {
    let before = array.stats();
    act();
    array.stats() - before
}

/// A word in the log says which of two places counts.
#[test]
fn what_is_placed_is_on_media_once() {
    let dir = tempfile::tempdir().unwrap();
    let array = create(dir.path(), &options());
    let pages = array.file("pages").unwrap();
    let cost = counted(&array, || {
        let mut tx = array.begin().unwrap();
        assert!(tx.place(&pages, 4096, &[7; 32 << 10]).unwrap());
        tx.log_write(&pages, 0, &[1; 64]).unwrap();
        tx.commit().unwrap();
    });
    // The data; a line in the log, of metadata, of the table, and in the file.
    assert_eq!((cost.drains, cost.flushed_lines, cost.nt_bytes), (2, 0, (32 << 10) + 4 * 64));
    // On both members, of which one has a part of the log.
    let both = counted(&array, || {
        let mut tx = array.begin().unwrap();
        assert!(tx.place(&pages, 65536 - 4096, &[7; 8192]).unwrap());
        tx.log_write(&pages, 0, &[1; 64]).unwrap();
        tx.commit().unwrap();
    });
    assert_eq!((both.drains, both.flushed_lines, both.nt_bytes), (2 + 1, 0, 8192 + 4 * 64));
    let alone = counted(&array, || {
        let mut tx = array.begin().unwrap();
        assert!(tx.place(&pages, 4096, &[9; 64]).unwrap());
        assert_eq!(tx.commit().unwrap().sequence(), 0);
    });
    assert_eq!((alone.drains, alone.nt_bytes), (1, 64));
    let nothing = counted(&array, || {
        let mut tx = array.begin().unwrap();
        assert!(tx.place(&pages, 8192, &[9; 64]).unwrap());
        tx.abort();
    });
    assert_eq!((nothing.drains, nothing.nt_bytes), (0, 64));
    array.abandon();
    let array = options().open(&members(dir.path())).unwrap();
    assert_eq!((read(&array, 0, 64), read(&array, 4096, 64)), (vec![1; 64], vec![9; 64]));
    assert_eq!((read(&array, 16384, 64), read(&array, 65536, 4096)), (vec![7; 64], vec![7; 4096]));
}

/// Recovery would write over it what a log has for that place.
#[test]
fn nothing_is_placed_where_a_log_has_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let array = create(dir.path(), &options());
    let pages = array.file("pages").unwrap();
    array.atomic_write(&pages, 1000, &[1; 100]).unwrap();
    let places = |at, len: usize| array.begin().unwrap().place(&pages, at, &vec![2; len]).unwrap();
    assert!(!places(1099, 1) && !places(0, 4096) && !places(0, 100_000));
    assert!(places(1100, 100) && places(0, 1000));
    assert_eq!(read(&array, 1000, 100), [1; 100]);
    array.checkpoint().unwrap();
    assert!(places(1000, 100));
    let mut tx = array.begin().unwrap();
    tx.log_write(&pages, 0, &[3; 64]).unwrap();
    assert!(!tx.place(&pages, 63, &[4]).unwrap() && tx.place(&pages, 64, &[4]).unwrap());
    assert!(matches!(tx.place(&pages, 1 << 20, &[4]), Err(eaw::Error::OutOfFile { .. })));
}

/// A sync more would cost more than a copy.
#[test]
fn nothing_is_placed_in_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let array = create(dir.path(), &options().pool(pmem::Options::new().domain(DomainChoice::File)));
    let pages = array.file("pages").unwrap();
    assert!(!array.begin().unwrap().place(&pages, 0, &[1; 4096]).unwrap());
    assert_eq!(read(&array, 0, 4096), [0; 4096]);
}

/// A nested top action drains what was placed, too; so does the outer transaction, which may come to its end later.
#[test]
fn what_is_placed_in_a_nested_action_is_durable_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let array = create(dir.path(), &options());
    let pages = array.file("pages").unwrap();
    let mut tx = array.begin().unwrap();
    let savepoint = tx.savepoint();
    let nested = counted(&array, || {
        assert!(tx.place(&pages, 4096, &[7; 4096]).unwrap());
        tx.log_write(&pages, 0, &[1; 64]).unwrap();
        tx.nested_top(savepoint).unwrap();
    });
    assert_eq!(nested.drains, 2);
    tx.log_write(&pages, 512, &[1; 64]).unwrap();
    assert_eq!(counted(&array, || drop(tx.commit().unwrap())).drains, 2);
}

#[test]
fn a_large_record_is_on_media_once() {
    let dir = tempfile::tempdir().unwrap();
    let array = options().stripe_bytes(1 << 20).log_bytes(4 << 20).create(&members(dir.path())).unwrap();
    let store = mars::Options::new().block_bytes(256 << 10).segment_bytes(1 << 20).create(array).unwrap();
    let table = store.create_table("records").unwrap();
    let mut tx = store.begin().unwrap();
    let id = tx.insert(table, &[0; 60_000]).unwrap();
    tx.commit().unwrap();
    let update = |byte| {
        let mut tx = store.begin().unwrap();
        tx.update(table, id, &[byte; 60_000]).unwrap();
        tx.commit().unwrap();
    };
    let cost = counted(store.array(), || update(1));
    // All but its first line, and to the end of its last. Logged and then written: that line, and the header of the slot that it leaves, which goes through the cache.
    let placed = (60_000_u64 + 32).next_multiple_of(64) - 64;
    assert_eq!((cost.drains, cost.flushed_lines, cost.nt_bytes), (2, 0, placed + (2 + 1 + 1) * 64 + 64));
    let mut files = 0;
    for byte in 2..99 {
        update(byte);
        files = store.array().files().len();
    }
    let mut record = Vec::new();
    store.begin().unwrap().read(table, id, &mut record).unwrap();
    assert_eq!((record, files), (vec![98; 60_000], 2), "slots are used again");
}

/// A store whose slots are all taken does not grow for the sake of it: such a record is logged whole, and stays.
#[test]
fn a_large_record_stays_where_nothing_is_free() {
    let dir = tempfile::tempdir().unwrap();
    let array = options().log_bytes(4 << 20).create(&members(dir.path())).unwrap();
    let store = mars::Options::new().block_bytes(128 << 10).segment_bytes(128 << 10).create(array).unwrap();
    let table = store.create_table("records").unwrap();
    let len = (128 << 10) - 64 - 32;
    let mut tx = store.begin().unwrap();
    let id = tx.insert(table, &vec![1; len]).unwrap();
    tx.commit().unwrap();
    for byte in 2..9 {
        let mut tx = store.begin().unwrap();
        tx.update(table, id, &vec![byte; len]).unwrap();
        tx.commit().unwrap();
        let mut record = Vec::new();
        store.begin().unwrap().read(table, id, &mut record).unwrap();
        assert_eq!((record, store.array().files().len()), (vec![byte; len], 2));
    }
}

/// No thread's update makes the store longer, whichever takes the last slot that is free; nor do many updates of one record in a transaction.
#[test]
fn updates_that_fit_never_make_a_store_longer() {
    let dir = tempfile::tempdir().unwrap();
    let array = options().log_bytes(4 << 20).create(&members(dir.path())).unwrap();
    let store = mars::Options::new().block_bytes(64 << 10).segment_bytes(256 << 10).create(array).unwrap();
    let table = store.create_table("records").unwrap();
    let mut tx = store.begin().unwrap();
    let ids: Vec<_> = (0..11).map(|_| tx.insert(table, &[0; 20_000]).unwrap()).collect();
    tx.commit().unwrap();
    std::thread::scope(|threads| {
        for (thread, ids) in ids.chunks(3).enumerate() {
            let store = &store;
            threads.spawn(move || {
                for n in 0..500 {
                    let mut tx = store.begin().unwrap();
                    tx.update(table, ids[n % ids.len()], &[thread as u8; 20_000]).unwrap();
                    tx.commit().unwrap();
                }
            });
        }
    });
    let mut tx = store.begin().unwrap();
    for byte in 0..200 {
        tx.update(table, ids[0], &[byte; 20_000]).unwrap();
    }
    tx.commit().unwrap();
    let mut tx = store.begin().unwrap();
    tx.insert(table, &[0; 20_000]).unwrap();
    tx.commit().unwrap();
    assert_eq!(store.array().files().len(), 2);
    let mut record = Vec::new();
    store.begin().unwrap().read(table, ids[0], &mut record).unwrap();
    assert_eq!(record, [199; 20_000]);
}
