//! Damaged and hostile bytes: an error that names them, a doubt at the very end, or nothing lost. Never a wrong record.

use log::{Error, Options, Tail};
use proptest::prelude::*;

use crate::basics::records;

/// LSN and payload of each record.
type Records = Vec<(u64, Vec<u8>)>;

fn options() -> Options {
    Options::new().bytes(4096).segment_bytes(512).idle(None)
}

/// A pool with a log that has wrapped around: the file, and the records.
fn made(closed: bool) -> (Vec<u8>, Records) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("l");
    let log = options().create(&path).unwrap();
    for n in 0..60u8 {
        let lsn = log.append(&vec![n; 20 + usize::from(n % 9) * 11]).unwrap();
        if n >= 9 {
            log.truncate_to(log::Lsn::new(lsn.get() - 9)).unwrap();
        }
    }
    log.reclaim().unwrap();
    let mut last = log::Lsn::default();
    for n in 0..3u8 {
        let mut record = log.reserve(17).unwrap();
        record.fill(n);
        last = record.complete().unwrap();
    }
    log.force(last).unwrap();
    let all = records(&log);
    if closed {
        log.close().unwrap()
    } else {
        log.abandon()
    }
    (std::fs::read(path).unwrap(), all)
}

/// Opens these bytes and reads all: the records that are there, or the error.
fn read(path: &std::path::Path, bytes: &[u8]) -> Result<(Tail, Records), Error> {
    std::fs::write(path, bytes).unwrap();
    let (log, found) = options().open(path)?;
    let mut iter = log.iter();
    let mut all = Vec::new();
    while let Some(record) = iter.next()? {
        all.push((record.lsn.get(), record.payload.to_vec()));
    }
    Ok((found.tail, all))
}

#[test]
fn any_bit_of_any_byte() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("l");
    for closed in [true, false] {
        let (bytes, expected) = made(closed);
        let (mut same, mut doubted, mut named) = (0, 0, 0);
        for at in 0..bytes.len() {
            // Every bit of what matters: header, superline, records.
            let bits = if bytes[at] != 0 || at % 8 == 0 { 0..8 } else { at % 8..at % 8 + 1 };
            for bit in bits {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                match read(&path, &flipped) {
                    Ok((_, found)) if found == expected => same += 1,
                    Ok((Tail::InDoubt { lsn, .. }, found)) => {
                        assert!(!closed, "byte {at} bit {bit}: a closed log has no doubt");
                        assert!(expected.starts_with(&found), "byte {at} bit {bit}");
                        assert_eq!(found.last().unwrap().0 + 1, lsn.get());
                        assert!(found.len() + 4 >= expected.len(), "byte {at} bit {bit}: only what was forced last");
                        doubted += 1;
                    }
                    Ok((tail, found)) => panic!("byte {at} bit {bit}: {tail:?}, {} of {}", found.len(), expected.len()),
                    Err(error) => {
                        assert!(error.to_string().len() > 20, "{error}");
                        named += 1;
                    }
                }
            }
        }
        println!("closed {closed}: {same} harmless, {doubted} in doubt, {named} named");
        assert!(same > 0 && named > 1000 && (doubted > 0) != closed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Several bytes changed anywhere, half of the time in the log itself: no panic, and no record that was never there.
    #[test]
    fn several_bytes(closed in any::<bool>(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..20)) {
        thread_local! {
            static MADE: [(Vec<u8>, Records); 2] = [made(false), made(true)];
            static DIR: tempfile::TempDir = tempfile::tempdir_in("/dev/shm").unwrap();
        }
        let (mut bytes, expected) = MADE.with(|made| made[usize::from(closed)].clone());
        for (at, value, inside) in changes {
            let from = if inside { 8192 } else { 0 };
            let at = from + at.index(bytes.len() - from);
            bytes[at] = value;
        }
        if let Ok((_, found)) = DIR.with(|dir| read(&dir.path().join("l"), &bytes)) {
            for record in found {
                prop_assert!(expected.contains(&record), "{record:?}");
            }
        }
    }
}
