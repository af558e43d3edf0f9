//! Exact counts.

use pmem::{DomainChoice, Stats};

use super::{create, options};

fn counted(array: &eaw::array::Array, act: impl FnOnce()) -> Stats {
    let before = array.stats();
    act();
    array.stats() - before
}

/// A barrier for each pool that has a part; nothing for what is given up.
#[test]
fn a_commit_costs_a_barrier_for_each_pool_with_a_part() {
    let dir = tempfile::tempdir().unwrap();
    let array = create(dir.path(), &options());
    let pages = array.file("pages").unwrap();
    let one = counted(&array, || array.atomic_write(&pages, 0, &[1; 512]).unwrap());
    // 8 lines of data, one of metadata, one of the table.
    assert_eq!((one.drains, one.flushed_lines, one.nt_bytes), (1, 10, 0));
    let both = counted(&array, || array.atomic_write(&pages, (64 << 10) - 64, &[1; 128]).unwrap());
    assert_eq!((both.drains, both.flushed_lines), (2, 6));
    let large = counted(&array, || array.atomic_write(&pages, 0, &[1; 8192]).unwrap());
    assert_eq!((large.drains, large.flushed_lines, large.nt_bytes), (2, 2, 8192));
    let none = counted(&array, || {
        let mut tx = array.begin().unwrap();
        let entry = tx.log_write(&pages, 0, &[1; 512]).unwrap();
        let savepoint = tx.savepoint();
        tx.log_write(&pages, 100_000, &[1; 512]).unwrap();
        tx.rollback_to(savepoint).unwrap();
        tx.edit(&entry, 0, &[2; 100]).unwrap();
        tx.abort();
    });
    assert_eq!((none.drains, none.flushed_lines), (0, 0));
    let nested = counted(&array, || {
        let mut tx = array.begin().unwrap();
        tx.log_write(&pages, 0, &[1; 64]).unwrap();
        let savepoint = tx.savepoint();
        tx.log_write(&pages, 4096, &[1; 64]).unwrap();
        tx.nested_top(savepoint).unwrap();
        tx.abort();
    });
    assert_eq!(nested.drains, 1);
}

/// What the files get, and the mark, travel with the barriers of later commits: a line that was written often, once.
#[test]
fn files_and_marks_cost_no_barrier_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let array = create(dir.path(), &options());
    let pages = array.file("pages").unwrap();
    let write = || array.atomic_write(&pages, 0, &[1; 512]).unwrap();
    (0..64).for_each(|_| write());
    let steady = counted(&array, || (0..800).for_each(|_| write()));
    // Every eighth one flushes the 8 lines of the file, and the mark.
    assert_eq!((steady.drains, steady.flushed_lines), (800, 800 * 10 + 100 * 9));
    assert_eq!(array.status().free, 40); // three batches wait
}

/// On a file each barrier is a sync.
#[test]
fn on_a_file_a_large_commit_costs_one_sync_too() {
    let dir = tempfile::tempdir().unwrap();
    let array = create(dir.path(), &options().pool(pmem::Options::new().domain(DomainChoice::File)));
    let pages = array.file("pages").unwrap();
    let large = counted(&array, || array.atomic_write(&pages, 0, &[1; 60_000]).unwrap());
    assert_eq!((large.drains, large.syncs), (1, 1));
    let settle = counted(&array, || array.settle().unwrap());
    assert_eq!(settle.syncs, 3 + 2); // files, and both slots of each mark
}
