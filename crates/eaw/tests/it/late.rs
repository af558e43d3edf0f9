//! As on files: what is durable stays in the log for some commits, and small logs are in one place.

use std::path::Path;

use eaw::array::{Array, Options};
use pmem::DomainChoice;

use super::{create, members, options, read};

/// As many as are written to the files together.
const TOGETHER: u64 = 64 / 4;

fn on_files() -> Options {
    options().pool(pmem::Options::new().domain(DomainChoice::File))
}

/// Where a region of the first member begins, and its bytes.
fn region(dir: &Path, name: &str) -> (usize, usize) {
    let pool = pmem::Options::new().engine("array", [0; 64]).open(&members(dir)[0]).expect("works");
    let info = pool.info();
    let found = info.regions.iter().find(|region| region.name == name).expect("works");
    (found.offset as usize, found.len as usize)
}

fn write(array: &Array, offset: u64, bytes: &[u8]) {
    array.atomic_write(&array.file("pages").expect("works"), offset, bytes).expect("works");
}

/// What the first member's file has.
fn file(dir: &Path) -> Vec<u8> {
    std::fs::read(&members(dir)[0]).expect("works")
}

#[test]
fn what_is_durable_is_in_one_place_of_the_log_until_some_go_to_the_files_together() {
    let dir = tempfile::tempdir().unwrap();
    create(dir.path(), &on_files()).close().unwrap();
    let (pages, table) = (region(dir.path(), "0/pages").0, region(dir.path(), "0:table"));
    let array = on_files().open(&members(dir.path())).unwrap();
    let before = array.stats().syncs;
    let pattern: Vec<u8> = (0..64).map(|n| n * 3 + 1).collect();
    write(&array, 0, &pattern);
    assert_eq!(read(&array, 0, 64), pattern);
    let bytes = file(dir.path());
    let offsets: Vec<usize> = (0..bytes.len() - 64).filter(|at| bytes[*at..][..64] == pattern[..]).collect();
    // Behind its line and its metadata, which is what the sync writes.
    assert_eq!(offsets.len(), 1);
    assert!((table.0 + 4096..table.0 + table.1).contains(&offsets[0]), "{offsets:?} is not in {table:?}");
    let line = &bytes[offsets[0] - 128..offsets[0] - 64];
    assert!(line.iter().any(|byte| *byte != 0), "its line is elsewhere");
    for n in 1..=TOGETHER {
        assert_eq!(file(dir.path())[pages..][..64], [0; 64], "after {n} commits");
        write(&array, 4096, &[n as u8; 64]);
    }
    assert_eq!(file(dir.path())[pages..][..64], pattern[..]);
    assert_eq!(array.stats().syncs - before, TOGETHER + 1); // no more than commits
    for n in 0..100 {
        write(&array, 4096, &[n; 64]);
    }
    let status = array.status();
    assert!(status.free as u64 + 2 * TOGETHER >= 64, "two commits behind a batch its log is free: {status:?}");
}

#[test]
fn a_read_has_the_newest_of_what_is_in_the_log_over_what_is_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let array = create(dir.path(), &on_files());
    let mut there = [0; 200];
    for (from, to, byte) in [(0, 100, 1), (50, 150, 2), (40, 60, 3), (0, 10, 4), (150, 151, 5), (55, 58, 6)] {
        write(&array, from as u64, &vec![byte; to - from]);
        there[from..to].fill(byte);
        for (from, to) in [(0, 200), (45, 57), (99, 101), (151, 200)] {
            assert_eq!(read(&array, from as u64, to - from), there[from..to], "{from}..{to} after {byte}");
        }
    }
    array.abandon();
    let array = on_files().open(&members(dir.path())).unwrap();
    assert_eq!((array.recovered().applied, read(&array, 0, 200)), (6, there.to_vec()));
}

/// Each read would look through all of it.
#[test]
fn a_transaction_of_many_pieces_goes_to_the_files_at_once() {
    let dir = tempfile::tempdir().unwrap();
    create(dir.path(), &on_files()).close().unwrap();
    let pages = region(dir.path(), "0/pages").0;
    let array = on_files().open(&members(dir.path())).unwrap();
    let mut tx = array.begin().unwrap();
    let of = array.file("pages").unwrap();
    for n in 0..257 {
        tx.log_write(&of, n * 8, &[9; 4]).unwrap();
    }
    drop(tx.commit().unwrap());
    assert_eq!(file(dir.path())[pages + 256 * 8..][..4], [9; 4]);
}

/// Neither a sync more nor a larger log.
#[test]
fn a_log_that_needs_room_has_its_commits_written_to_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let array = create(dir.path(), &on_files().log_bytes(512 << 10));
    let before = (array.stats().syncs, array.status().log_bytes);
    // Three chunks each; half of the log is six of them, and three commits more come before those are free.
    (0..60_u8).for_each(|n| write(&array, 0, &[n; 40_000]));
    assert_eq!((array.stats().syncs - before.0, array.status().log_bytes), (60, before.1));
    assert_eq!(read(&array, 0, 40_000), [59; 40_000]);
}

/// What was made before slots had room is opened and used as it is.
#[test]
fn an_array_without_room_in_its_slots_is_used_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    create(dir.path(), &on_files().slot_bytes(0)).close().unwrap();
    let (at, len) = region(dir.path(), "0:table");
    assert_eq!(len, 4096 + 64 * 64 + 2 * 4096);
    let array = on_files().open(&members(dir.path())).unwrap();
    (0..40).for_each(|n| write(&array, n * 10, &[n as u8 + 1; 20]));
    array.abandon();
    let lines = &file(dir.path())[at + 4096..][..64 * 64];
    let said = |line: &[u8], at: usize| u32::from_le_bytes(line[at..at + 4].try_into().unwrap());
    let used = lines.chunks(64).filter(|line| said(line, 40 + 8) > 0); // entries
    assert!(
        used.clone().count() > 0 && used.clone().all(|line| said(line, 60) == 0),
        "behind no line there is metadata"
    );
    let array = on_files().open(&members(dir.path())).unwrap();
    let bytes = read(&array, 0, 410);
    assert!((0..40).all(|n| bytes[n * 10..][..10] == [n as u8 + 1; 10]));
    assert!(array.recovered().applied > 0 && array.recovered().lost.is_empty());
}

/// What goes beyond the slot is in chunks, and all of it is found again.
#[test]
fn logs_that_are_larger_than_a_slot_are_recovered() {
    for (memory, slot) in [(0, 4096), (1 << 20, 4096), (1 << 20, 128), (6000, 8192)] {
        let dir = tempfile::tempdir().unwrap();
        let options = on_files().draft_max(memory).slot_bytes(slot).entries(4);
        let array = create(dir.path(), &options);
        let pages = array.file("pages").unwrap();
        let mut there = vec![0; 200_000];
        for n in 1..9_u8 {
            let mut tx = array.begin().unwrap();
            for piece in 0..u64::from(n) {
                let (at, len) = (piece * 20_011 + u64::from(n), 1000 * usize::from(n));
                tx.log_write(&pages, at, &vec![n; len]).unwrap();
                there[at as usize..][..len].fill(n);
            }
            tx.commit().unwrap();
        }
        array.abandon();
        let array = options.open(&members(dir.path())).unwrap();
        assert_eq!(array.recovered().applied, 8, "{memory}, {slot}: {:?}", array.recovered());
        assert!(read(&array, 0, there.len()) == there, "{memory}, {slot}");
    }
}
