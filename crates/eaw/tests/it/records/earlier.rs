//! Stores of records in the format of 2026-11, left with a transaction under way and closed, are used as they are. Names of structs and fields are part of the format: what fails here is
//! a store that cannot be opened any more.
//!
//! With `CAIRN_MAKE_FIXTURES=dir` the tests make such stores by this build, and write `earlier-*.txt` into that folder.

use std::path::Path;

use eaw::aries::Aries;
use eaw::mars::{Mars, Options};
use eaw::records::{RecordId, RecordTx, Records};

use super::{Kind, members, options, small};
use crate::fixture::earlier;

const TABLES: [&str; 2] = ["books", "notes"];

fn record(n: usize) -> Vec<u8> {
    format!("record {n}.").into_bytes().repeat(1 + 3 * n)
}

/// As small as they can be with such records.
fn mars(dir: &Path) -> Mars {
    let array = options().log_bytes(64 << 10).transactions(16).stripe_bytes(4096).create(&members(dir)).unwrap();
    Options::new().block_bytes(2048).segment_bytes(4096).create(array).unwrap()
}

fn aries(dir: &Path) -> Aries {
    small().page_bytes(1024).segment_bytes(8192).log_bytes(64 << 10).create(dir.join("aries")).unwrap()
}

fn end<S: Kind>(store: S, closed: bool) {
    if closed { store.close().unwrap() } else { store.abandon() }
}

/// In each table: records 0 to 11, of which every fourth was made longer, and 5 is gone.
fn make<S: Kind>(store: S, closed: bool) {
    let tables = TABLES.map(|name| store.create_table(name).unwrap());
    let mut ids = Vec::new();
    for n in 0..12 {
        let mut tx = store.begin().unwrap();
        let text = if n % 4 == 0 { b"short".to_vec() } else { record(n) };
        ids.push(tables.map(|table| tx.insert(table, &text).unwrap()));
        tx.commit().unwrap();
        if n == 6 {
            store.checkpoint().unwrap();
        }
    }
    for n in [0, 4, 8] {
        let mut tx = store.begin().unwrap();
        tables.iter().zip(ids[n]).for_each(|(&table, id)| tx.update(table, id, &record(n)).unwrap());
        tx.commit().unwrap();
    }
    let mut tx = store.begin().unwrap();
    tables.iter().zip(ids[5]).for_each(|(&table, id)| tx.delete(table, id).unwrap());
    tx.commit().unwrap();
    if !closed {
        let mut tx = store.begin().unwrap();
        tx.insert(tables[0], b"not committed").unwrap();
        tx.update(tables[0], ids[0][0], b"not committed").unwrap();
        std::mem::forget(tx);
    }
    end(store, closed);
}

/// Records and their numbers, sorted by what they hold.
fn held<S: Records>(store: &S, table: &str) -> Vec<(Vec<u8>, RecordId)> {
    let (mut tx, mut found) = (store.begin().unwrap(), Vec::new());
    tx.scan(store.table(table).unwrap(), &mut |id, bytes| found.push((bytes.to_vec(), id))).unwrap();
    found.sort();
    found
}

/// These files are where the store's `Kind` opens them.
fn used_as_it_is<S: Kind, const N: usize>(create: fn(&Path) -> S, files: [&str; N], names: [&str; N], closed: bool) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (dir, files) = (dir.path(), files.map(|file| dir.path().join(file)));
    let found = earlier(dir, names, |made| {
        make(create(dir), closed);
        files.iter().zip(made).for_each(|(from, to)| std::fs::rename(from, to).unwrap());
    });
    found.iter().zip(&files).for_each(|(from, to)| std::fs::rename(from, to).unwrap());
    for round in 0..4 {
        let store = S::open(dir);
        for name in TABLES {
            let found = held(&store, name);
            let mut expected: Vec<_> = (0..12 + round).filter(|&n| n != 5).map(record).collect();
            expected.sort();
            assert!(found.iter().map(|(bytes, _)| bytes).eq(&expected), "{name}, round {round}");
            let table = store.table(name).unwrap();
            let mut tx = store.begin().unwrap();
            for (bytes, id) in &found {
                let mut read = Vec::new();
                tx.read(table, *id, &mut read).unwrap();
                assert!(&read == bytes);
                tx.update(table, *id, bytes).unwrap();
            }
            tx.insert(table, &record(12 + round)).unwrap();
            tx.commit().unwrap();
            assert_eq!(held(&store, name).len(), found.len() + 1);
        }
        end(store, round % 2 == 1);
    }
}

#[test]
fn records_in_an_array() {
    let files = ["one", "other"];
    used_as_it_is(mars, files, ["mars-left-one", "mars-left-other"], false);
    used_as_it_is(mars, files, ["mars-closed-one", "mars-closed-other"], true);
}

#[test]
fn records_with_a_log() {
    used_as_it_is(aries, ["aries"], ["aries-left"], false);
    used_as_it_is(aries, ["aries"], ["aries-closed"], true);
}
