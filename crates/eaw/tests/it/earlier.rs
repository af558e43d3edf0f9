//! Arrays in the format of 2026-11, on memory and on files, left without closing them and closed, are used as they are. Names of structs and fields are part of the format: what fails here
//! is an array that cannot be opened any more.
//!
//! With `CAIRN_MAKE_FIXTURES=dir` the tests make such arrays by this build, and write `earlier-*.txt` into that folder.

use std::path::PathBuf;

use eaw::array::{Array, Options};
use pmem::DomainChoice;

use crate::fixture::earlier;

/// Bytes of each of two files that are written.
const BYTES: usize = 10_000;
const FILES: [&str; 2] = ["pages", "other"];

fn options(domain: DomainChoice) -> Options {
    let options = Options::new().log_bytes(32 << 10).transactions(10).stripe_bytes(4096);
    options.pool(pmem::Options::new().domain(domain))
}

/// What the rounds through `round` have written, each at a place of its own, across members; round 0 all of it.
fn expected(rounds: u64) -> Vec<u8> {
    let mut bytes = vec![1; BYTES];
    (1..=rounds).for_each(|round| bytes[offset(round)..][..200].fill(round as u8));
    bytes
}

fn offset(round: u64) -> usize {
    round as usize * 998 % (BYTES - 200)
}

/// To both files at once.
fn write(array: &Array, at: usize, bytes: &[u8]) {
    let mut tx = array.begin().unwrap();
    for file in FILES {
        let file = array.file(file).unwrap();
        let entry = tx.log_write(&file, at as u64, &vec![9; bytes.len()]).unwrap();
        tx.edit(&entry, 0, bytes).unwrap();
    }
    tx.commit().unwrap();
}

fn make(paths: &[PathBuf], domain: DomainChoice) -> Array {
    let array = options(domain).create(paths).unwrap();
    FILES.iter().for_each(|file| drop(array.create_file(file, 16 << 10).unwrap()));
    write(&array, 0, &[1; BYTES]);
    // More than are applied at a time, and more than the table has room for.
    (1..=12).for_each(|round| write(&array, offset(round), &[round as u8; 200]));
    array
}

fn used_as_it_is(paths: &[PathBuf], domain: DomainChoice) {
    for round in 13..17 {
        let array = options(domain).open(paths).unwrap();
        let recovered = array.recovered();
        assert!(recovered.lost.is_empty() && recovered.in_doubt == 0, "round {round}: {recovered:?}");
        for file in FILES {
            let mut bytes = vec![0; BYTES];
            array.read(&array.file(file).unwrap(), 0, &mut bytes).unwrap();
            assert!(bytes == expected(round - 1), "round {round}, {file}");
        }
        write(&array, offset(round), &[round as u8; 200]);
        if round % 2 == 0 { array.close().unwrap() } else { array.abandon() }
    }
}

#[test]
fn arrays_that_were_left_are_recovered_read_and_written() {
    for (domain, names) in [
        (DomainChoice::Emulated, ["array-left-one", "array-left-other"]),
        (DomainChoice::File, ["array-on-files-left-one", "array-on-files-left-other"]),
    ] {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let paths = earlier(dir.path(), names, |paths| {
            let array = make(paths, domain);
            let mut tx = array.begin().unwrap();
            tx.log_write(&array.file(FILES[0]).unwrap(), 0, &[77; BYTES]).unwrap();
            std::mem::forget(tx);
            array.abandon();
        });
        used_as_it_is(&paths, domain);
    }
}

#[test]
fn an_array_that_was_closed_is_read_and_written() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let domain = DomainChoice::Emulated;
    let names = ["array-closed-one", "array-closed-other"];
    let paths = earlier(dir.path(), names, |paths| make(paths, domain).close().unwrap());
    used_as_it_is(&paths, domain);
}
