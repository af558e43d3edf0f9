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
    // Past the cache: 8 lines of data, one of metadata, one of the table; and 8 to the file, which travel with a later barrier.
    assert_eq!((one.drains, one.flushed_lines, one.nt_bytes), (1, 0, (10 + 8) * 64));
    let both = counted(&array, || array.atomic_write(&pages, (64 << 10) - 64, &[1; 128]).unwrap());
    assert_eq!((both.drains, both.flushed_lines, both.nt_bytes), (2, 0, 2 * (3 + 1) * 64));
    let part_of_a_line = counted(&array, || array.atomic_write(&pages, 8, &[1; 40]).unwrap());
    assert_eq!((part_of_a_line.drains, part_of_a_line.flushed_lines, part_of_a_line.nt_bytes), (1, 0, 3 * 64));
    // Checksummed while it is stored; what is more than that is drained first.
    let page = counted(&array, || array.atomic_write(&pages, 0, &[1; 65536]).unwrap());
    assert_eq!((page.drains, page.flushed_lines, page.nt_bytes), (1, 0, 2 * 65536 + 3 * 64)); // 4 entries
    let large = counted(&array, || array.atomic_write(&pages, 0, &[1; 66560]).unwrap());
    assert_eq!((large.drains, large.flushed_lines, large.nt_bytes), (2 * 2, 0, 2 * 66560 + (3 + 2) * 64)); // in two pools
    let none = counted(&array, || {
        let mut tx = array.begin().unwrap();
        let entry = tx.log_write(&pages, 0, &[1; 512]).unwrap();
        let savepoint = tx.savepoint();
        tx.log_write(&pages, 100_000, &[1; 512]).unwrap();
        tx.rollback_to(savepoint).unwrap();
        tx.edit(&entry, 0, &[2; 100]).unwrap();
        tx.abort();
    });
    assert_eq!((none.drains, none.flushed_lines, none.nt_bytes), (0, 0, 0));
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
    let write = |at, len| array.atomic_write(&pages, at, &[1; 512][..len]).unwrap();
    (0..64).for_each(|_| write(8, 500));
    let steady = counted(&array, || (0..800).for_each(|_| write(8, 500)));
    // Every eighth one flushes the 8 lines of the file, and the mark.
    assert_eq!((steady.drains, steady.flushed_lines, steady.nt_bytes), (800, 100 * 9, 800 * 10 * 64));
    // Whole lines are not read for it, and leave at once.
    (0..64).for_each(|_| write(0, 512));
    let steady = counted(&array, || (0..800).for_each(|_| write(0, 512)));
    assert_eq!((steady.drains, steady.flushed_lines, steady.nt_bytes), (800, 100, 800 * 18 * 64));
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
    let checkpoint = counted(&array, || array.checkpoint().unwrap());
    assert_eq!(checkpoint.syncs, 3 + 2); // files, and both slots of each mark
}
