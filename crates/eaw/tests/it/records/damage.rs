//! Bytes that were not stored so: the record is named, all others are there.

use std::fs;
use std::path::Path;

use eaw::Error;
use eaw::aries::Aries;
use eaw::mars::{Mars, Options};
use eaw::records::{RecordId, RecordTx, Records, Table};

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
        match tx.read(table, RecordId::from_number(id), &mut bytes) {
            Ok(()) => assert_eq!(bytes, text(id as u8 - 1)),
            Err(Error::RecordDamaged { table, id }) => lost.push((table, id)),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(lost, [("records".to_owned(), 18)]);
    // As the message says.
    let id = RecordId::from_number(18);
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
        let missing = tx.read(table, RecordId::from_number(18), &mut Vec::new());
        assert!(missing.unwrap_err().to_string().contains("1 records of the store are damaged"));
        // Its slot is given to no record.
        for n in 0..COUNT {
            tx.insert(table, &text(n)).unwrap();
        }
        tx.commit().unwrap();
        store.close().unwrap();
        let store = Mars::open(options().open(&members(dir.path())).unwrap()).unwrap();
        assert_eq!((store.damaged().len(), store.len()), (1, 2 * u64::from(COUNT) - 1));
    }
}

/// Puts zeros where the bytes in front of a record are.
fn zero(dir: &Path, n: u8, back: usize, len: usize) {
    for (path, at) in find(dir, n) {
        let mut bytes = fs::read(&path).unwrap();
        bytes[at - back..at - back + len].fill(0);
        fs::write(&path, bytes).unwrap();
    }
}

/// What is used is never zero: that nothing is there is not believed.
#[test]
fn zeros_are_damage() {
    let open = |dir: &Path| options().open(&members(dir)).and_then(Mars::open);
    // A record's header; all slots of a block, its header too.
    for (back, len, lost) in [(32, 32, 1), (32, 110, 1)] {
        let dir = tempfile::tempdir().unwrap();
        made(dir.path());
        zero(dir.path(), 17, back, len);
        let store = open(dir.path()).unwrap();
        assert_eq!((store.damaged().len(), store.len()), (lost, u64::from(COUNT) - lost as u64));
    }
    // The page where the first record is, with its block's header.
    let dir = tempfile::tempdir().unwrap();
    made(dir.path());
    for (path, at) in find(dir.path(), 0) {
        let mut bytes = fs::read(&path).unwrap();
        let page = at & !4095;
        bytes[page..page + 4096].fill(0);
        fs::write(&path, bytes).unwrap();
    }
    let store = open(dir.path()).unwrap();
    assert_eq!(store.damaged()[0].what, "a block");
    let table = store.table("records").unwrap();
    let mut tx = store.begin().unwrap();
    let id = tx.insert(table, b"behind it").unwrap();
    tx.commit().unwrap();
    store.close().unwrap();
    let store = open(dir.path()).unwrap();
    let mut bytes = Vec::new();
    store.begin().unwrap().read(table, id, &mut bytes).unwrap();
    assert_eq!((&bytes[..], store.len()), (&b"behind it"[..], 1));
}

/// Lines, and pages, of all that the store has in the array: whatever is zero, nothing is lost without a word.
#[test]
fn no_zeros_lose_a_record_silently() {
    let dir = tempfile::tempdir().unwrap();
    made(dir.path());
    let originals: Vec<_> =
        members(dir.path()).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    let mut slots = Vec::new();
    for (member, (path, _)) in originals.iter().enumerate() {
        let observer = pmem::Observer::open(path).unwrap();
        for region in observer.regions().into_iter().filter(|region| region.name.contains("/mars")) {
            // Of the data what is used, and a little more.
            let len = region.len.min(12 << 10);
            for (step, count) in [(64, len / 64), (4096, len / 4096)] {
                slots.extend((0..count).map(|n| (member, (region.offset + n * step) as usize, step as usize)));
            }
        }
    }
    let (mut told, mut whole) = (0, 0);
    for (member, at, len) in slots.into_iter().step_by(3) {
        for (other, (path, bytes)) in originals.iter().enumerate() {
            let mut bytes = bytes.clone();
            if other == member {
                bytes[at..at + len].fill(0);
            }
            fs::write(path, bytes).unwrap();
        }
        let store = match options().open(&members(dir.path())).and_then(Mars::open) {
            Ok(store) => store,
            Err(Error::Damaged { .. } | Error::Pool(_)) => {
                told += 1;
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let (mut found, mut tx) = (0, store.begin().unwrap());
        let scanned = tx.scan(store.table("records").unwrap(), &mut |_, bytes| {
            assert!((0..COUNT).any(|n| bytes == text(n)));
            found += 1;
        });
        let is_told = scanned.is_err() || !store.damaged().is_empty();
        assert!(found == COUNT || is_told, "{found} records, and not a word: {len} zeros at {at} of member {member}");
        if is_told { told += 1 } else { whole += 1 }
    }
    assert!(told > 20 && whole > 0, "{told} told, {whole} whole");
}

/// Header and catalog stand at the beginning of their file.
#[test]
fn zeros_in_the_catalog_are_damage() {
    for line in 0..4_usize {
        let dir = tempfile::tempdir().unwrap();
        let store = <Mars as Kind>::create(dir.path());
        for name in ["alpha table", "bravo table", "charlie table"] {
            store.create_table(name).unwrap();
        }
        let table = store.table("alpha table").unwrap();
        let mut tx = store.begin().unwrap();
        tx.insert(table, b"x").unwrap();
        tx.commit().unwrap();
        store.close().unwrap();
        for path in members(dir.path()) {
            let mut bytes = fs::read(&path).unwrap();
            let name = b"alpha table";
            let found: Vec<usize> =
                (0..bytes.len() - 64).step_by(64).filter(|at| bytes[*at..].starts_with(name)).collect();
            for at in found {
                let start = at - 64 + 64 * line;
                bytes[start..start + 64].fill(0);
            }
            fs::write(&path, bytes).unwrap();
        }
        let array = || options().open(&members(dir.path())).unwrap();
        let refused = Mars::open(array());
        assert!(matches!(refused, Err(Error::Damaged { .. })), "{line}: {refused:?}");
        if line == 0 {
            let refused = Options::new().block_bytes(16 << 10).segment_bytes(64 << 10).create(array());
            assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
        }
    }
}

/// A page that went back: a record is there as it was, and as it is.
#[test]
fn a_record_that_is_there_twice_is_told_and_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    made(dir.path());
    let before = find(dir.path(), 17).pop().unwrap();
    let page = before.1 & !4095;
    let old = fs::read(&before.0).unwrap()[page..page + 4096].to_vec();
    let store = <Mars as Kind>::open(dir.path());
    let table = store.table("records").unwrap();
    let mut tx = store.begin().unwrap();
    tx.update(table, RecordId::from_number(18), &[8; 3000]).unwrap();
    tx.commit().unwrap();
    store.close().unwrap();
    let mut bytes = fs::read(&before.0).unwrap();
    bytes[page..page + 4096].copy_from_slice(&old);
    fs::write(&before.0, bytes).unwrap();
    let store = Mars::open(options().open(&members(dir.path())).unwrap()).unwrap();
    assert_eq!(store.damaged()[0].what, "a record that is there twice");
    let mut tx = store.begin().unwrap();
    let (id, mut bytes) = (RecordId::from_number(18), Vec::new());
    assert!(matches!(tx.read(table, id, &mut bytes), Err(Error::RecordTwice { id: 18, .. })));
    assert!(matches!(tx.delete(table, id), Err(Error::RecordTwice { .. })));
    let new = tx.insert(table, b"new").unwrap();
    assert_ne!(new, id);
    let mut shown = 0;
    let told = tx.scan(table, &mut |_, _| shown += 1);
    assert!(matches!(told, Err(Error::RecordTwice { .. })), "{told:?}");
    assert_eq!(shown, COUNT);
}

/// A page of a store by a write-ahead log is checksummed whole.
#[test]
fn a_page_that_is_damaged_is_told() {
    for zeros in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = <Aries as Kind>::create(dir.path());
        let table = store.create_table("records").unwrap();
        let mut tx = store.begin().unwrap();
        // The second page has those that are long.
        let ids: Vec<_> =
            (0..20).map(|n| tx.insert(table, &text(n % 2).repeat(1 + usize::from(n % 2) * 20)).unwrap()).collect();
        tx.commit().unwrap();
        store.close().unwrap();
        let path = dir.path().join("aries");
        let mut bytes = fs::read(&path).unwrap();
        let long = text(1).repeat(21);
        // In its place, and in the buffer that it would be repaired from.
        for region in ["aries.pages.0", "aries.double"] {
            let region = pmem::Observer::open(&path).unwrap().region(region).unwrap()[0].clone();
            let (start, end) = (region.offset as usize, (region.offset + region.len) as usize);
            for at in (start..end - long.len()).filter(|at| bytes[*at..].starts_with(&long)).collect::<Vec<_>>() {
                if zeros {
                    let page = start + (at - start) / (16 << 10) * (16 << 10);
                    bytes[page..page + (16 << 10)].fill(0);
                } else {
                    bytes[at] ^= 1;
                }
            }
        }
        fs::write(&path, bytes).unwrap();
        let store = super::small().open(&path).unwrap();
        assert_eq!(store.restarted().damaged.len(), 2); // seven are on a page
        let mut tx = store.begin().unwrap();
        let mut found = Vec::new();
        tx.scan(table, &mut |id, _| found.push(id)).unwrap();
        let short: Vec<_> = ids.iter().copied().step_by(2).collect();
        assert_eq!(found, short);
        let missing = tx.read(table, ids[1], &mut Vec::new()).unwrap_err().to_string();
        assert!(missing.contains("records of the store are damaged"), "{missing}");
        tx.insert(table, &long).unwrap();
        tx.commit().unwrap();
    }
}

/// A store by a write-ahead log, of one page with so many records, all of them written.
fn twenty(dir: &Path) -> (Aries, Table, Vec<RecordId>) {
    let store = super::small().cleaner(false).segment_bytes(64 << 10).create(dir.join("aries")).unwrap();
    let table = store.create_table("records").unwrap();
    let mut tx = store.begin().unwrap();
    let ids = (0..20).map(|n| tx.insert(table, &text(n)).unwrap()).collect();
    tx.commit().unwrap();
    store.checkpoint().unwrap();
    (store, table, ids)
}

/// Changes a bit of these bytes wherever they stand in a region; how often that is.
fn flip_all(path: &Path, region: &str, wanted: &[u8]) -> usize {
    let mut bytes = fs::read(path).unwrap();
    let region = pmem::Observer::open(path).unwrap().region(region).unwrap()[0].clone();
    let within = region.offset as usize..(region.offset + region.len) as usize;
    let found: Vec<_> = within.filter(|at| bytes[*at..].starts_with(wanted)).collect();
    found.iter().for_each(|at| bytes[*at] ^= 1);
    fs::write(path, bytes).unwrap();
    found.len()
}

/// A page that is damaged, and lacks changes that the log has: those do not make it whole.
#[test]
fn a_restart_does_not_checksum_what_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let (store, table, ids) = twenty(dir.path());
    let mut tx = store.begin().unwrap();
    tx.update(table, ids[0], &text(30)).unwrap();
    tx.commit().unwrap();
    let mut open = store.begin().unwrap();
    open.update(table, ids[1], &text(31)).unwrap();
    std::mem::forget(open); // to be undone
    store.abandon();
    let path = dir.path().join("aries");
    for region in ["aries.pages.0", "aries.double"] {
        assert!(flip_all(&path, region, &text(7)[..37]) > 0);
    }
    let store = super::small().open(&path).unwrap();
    assert_eq!(store.restarted().damaged.len(), 1, "{:?}", store.restarted());
    store.close().unwrap();
    let store = super::small().open(&path).unwrap();
    assert_eq!(store.restarted().damaged.len(), 1);
    for id in ids {
        let read = store.begin().unwrap().read(table, id, &mut Vec::new());
        assert!(matches!(read, Err(Error::NoRecord { damaged: 1.., .. })), "{read:?}");
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

/// A page with changes that the log has lost.
#[test]
fn a_log_that_ends_too_early_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (store, table, ids) = twenty(dir.path());
    let mut long = store.begin().unwrap(); // keeps the log
    long.update(table, ids[0], &text(90)).unwrap();
    let mut tx = store.begin().unwrap();
    tx.update(table, ids[7], &text(91).repeat(2)).unwrap();
    tx.commit().unwrap();
    store.tidy(0).unwrap(); // the page is written
    std::mem::forget(long);
    store.abandon();
    let path = dir.path().join("aries");
    assert!(flip_all(&path, "aries.log", &text(91)[15..60]) > 0);
    let store = super::small().open(&path).unwrap();
    assert!(!store.restarted().damaged.is_empty());
    let (mut tx, mut bytes) = (store.begin().unwrap(), Vec::new());
    for (n, id) in (0..).zip(ids) {
        match tx.read(table, id, &mut bytes) {
            Ok(()) => assert_eq!(bytes, text(n)),
            Err(Error::NoRecord { damaged, .. }) => assert!(damaged > 0),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Whatever is lost of the catalog of a store by a write-ahead log, no table is taken for another.
#[test]
fn a_catalog_that_is_damaged_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let store = <Aries as Kind>::create(dir.path());
    let table = store.create_table("alpha table").unwrap();
    let mut tx = store.begin().unwrap();
    tx.insert(table, &[1; 3000]).unwrap(); // on another page
    tx.commit().unwrap();
    store.close().unwrap();
    let path = dir.path().join("aries");
    for region in ["aries.pages.0", "aries.double"] {
        assert!(flip_all(&path, region, b"alpha table") > 0);
    }
    let refused = super::small().open(&path);
    assert!(matches!(refused, Err(Error::Damaged { what: "catalog of a store of records", .. })), "{refused:?}");
}

/// While the store is open, too: what a page has lost is not written over.
#[test]
fn a_page_that_is_lost_under_way_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let store = super::small().cleaner(false).segment_bytes(256 << 10).create(dir.path().join("aries")).unwrap();
    let table = store.create_table("records").unwrap();
    let mut tx = store.begin().unwrap();
    let ids: Vec<_> = (0..12).map(|n| tx.insert(table, &[n; 12_000]).unwrap()).collect();
    tx.commit().unwrap();
    store.checkpoint().unwrap(); // more pages than there are frames
    let path = dir.path().join("aries");
    let region = pmem::Observer::open(&path).unwrap().region("aries.pages.0").unwrap()[0].clone();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &vec![0; region.len as usize], region.offset).unwrap();
    let (mut tx, mut bytes) = (store.begin().unwrap(), Vec::new());
    let mut lost = Vec::new();
    for id in ids {
        match tx.read(table, id, &mut bytes) {
            Ok(()) => {}
            Err(Error::RecordDamaged { .. }) => lost.push(id),
            Err(error) => panic!("{error}"),
        }
    }
    assert!(lost.len() >= 5);
    assert!(matches!(tx.update(table, lost[0], &[1; 12_000]), Err(Error::Damaged { .. })));
    tx.commit().unwrap();
}
