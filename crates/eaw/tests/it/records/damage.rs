//! Bytes that were not stored so: the record is named, all others are there.

use std::fs;
use std::path::Path;

use eaw::Error;
use eaw::mars::Mars;
use eaw::records::{RecordTx, Records};

use super::super::{members, options};
use super::Kind;

const COUNT: u8 = 40;

fn text(n: u8) -> Vec<u8> {
    format!("this is record {n:03}, of some length").repeat(3).into_bytes()
}

/// A closed store of `COUNT` records.
fn made(dir: &Path) {
    let store = <Mars as Kind>::create(dir);
    let table = store.create_table("records").unwrap();
    let mut tx = store.begin().unwrap();
    (0..COUNT).for_each(|n| _ = tx.insert(table, &text(n)).unwrap());
    tx.commit().unwrap();
    store.close().unwrap();
}

/// Where in which member a record's bytes begin, its last copy: logs have some, too, which count no more.
fn find(dir: &Path, n: u8) -> Vec<(std::path::PathBuf, usize)> {
    let mut found = Vec::new();
    for path in members(dir) {
        let bytes = fs::read(&path).unwrap();
        let text = text(n);
        found.extend(
            bytes.windows(text.len()).enumerate().filter(|(_, at)| *at == text).map(|(at, _)| (path.clone(), at)),
        );
    }
    assert!(!found.is_empty());
    found
}

fn flip(dir: &Path, n: u8, back: usize) {
    for (path, at) in find(dir, n) {
        let mut bytes = fs::read(&path).unwrap();
        bytes[at - back] ^= 4;
        fs::write(&path, bytes).unwrap();
    }
}

#[test]
fn a_record_that_is_damaged_is_named() {
    let dir = tempfile::tempdir().unwrap();
    made(dir.path());
    flip(dir.path(), 17, 0);
    let store = <Mars as Kind>::open(dir.path());
    let table = store.table("records").unwrap();
    let mut lost = Vec::new();
    for id in 1..=u64::from(COUNT) {
        let (mut tx, mut bytes) = (store.begin().unwrap(), Vec::new());
        match tx.read(table, eaw::records::RecordId::from_number(id), &mut bytes) {
            Ok(()) => assert_eq!(bytes, text(id as u8 - 1)),
            Err(Error::RecordDamaged { table, id }) => lost.push((table, id)),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(lost, [("records".to_owned(), 18)]);
    // As the message says.
    let id = eaw::records::RecordId::from_number(18);
    let mut tx = store.begin().unwrap();
    tx.update(table, id, b"anew").unwrap();
    tx.commit().unwrap();
    let mut bytes = Vec::new();
    store.begin().unwrap().read(table, id, &mut bytes).unwrap();
    assert_eq!(bytes, b"anew");
}

/// Any byte of a header.
#[test]
fn a_header_that_is_damaged_is_told_when_the_store_is_opened() {
    for back in 1..=32 {
        let dir = tempfile::tempdir().unwrap();
        made(dir.path());
        flip(dir.path(), 17, back);
        let store = Mars::open(options().open(&members(dir.path())).unwrap()).unwrap();
        assert_eq!((store.damaged().len(), store.damaged()[0].what), (1, "a record"), "{back}");
        assert_eq!(store.len(), u64::from(COUNT) - 1);
        let table = store.table("records").unwrap();
        let mut tx = store.begin().unwrap();
        let mut found = Vec::new();
        tx.scan(table, &mut |_, bytes| found.push(bytes.to_vec())).unwrap();
        assert_eq!(found, (0..COUNT).filter(|n| *n != 17).map(text).collect::<Vec<_>>());
        let missing = tx.read(table, eaw::records::RecordId::from_number(18), &mut Vec::new());
        assert!(missing.unwrap_err().to_string().contains("1 records of the store are damaged"));
        // Its slot is nobody's.
        for n in 0..COUNT {
            tx.insert(table, &text(n)).unwrap();
        }
        tx.commit().unwrap();
        store.close().unwrap();
        let store = Mars::open(options().open(&members(dir.path())).unwrap()).unwrap();
        assert_eq!((store.damaged().len(), store.len()), (1, 2 * u64::from(COUNT) - 1));
    }
}

/// Nothing that stands there makes it panic.
#[test]
fn any_bytes_are_an_error_or_records() {
    let dir = tempfile::tempdir().unwrap();
    made(dir.path());
    let originals: Vec<_> =
        members(dir.path()).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    let spots: Vec<usize> = find(dir.path(), 17).into_iter().chain(find(dir.path(), 3)).map(|(_, at)| at).collect();
    let mut random = 1_u64;
    for _ in 0..60 {
        for (path, bytes) in &originals {
            let mut bytes = bytes.clone();
            for _ in 0..8 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let near = spots[(random >> 40) as usize % spots.len()] & !4095;
                let at = near + (random >> 20) as usize % 8192;
                let end = bytes.len();
                bytes[at.min(end - 1)] = (random >> 50) as u8;
            }
            fs::write(path, bytes).unwrap();
        }
        let Ok(store) = options().open(&members(dir.path())).and_then(Mars::open) else { continue };
        let mut found = 0;
        for table in (0..3).map(eaw::records::Table::from_number) {
            let Ok(mut tx) = store.begin() else { continue };
            let _ = tx.scan(table, &mut |_, bytes| {
                assert!((0..COUNT).any(|n| bytes == text(n)));
                found += 1;
            });
        }
        assert!(found <= u64::from(COUNT));
    }
}
