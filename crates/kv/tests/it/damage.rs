//! Bytes go bad: nothing is lost in silence, and what can be saved is.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::Path;

use kv::{Error, Keys, Options, Store};

fn options() -> Options {
    Options::new().segment_bytes(64 << 10).background(false)
}

fn key(n: u64) -> Vec<u8> {
    format!("key{n:04}").into_bytes()
}

fn value(n: u64) -> Vec<u8> {
    format!("the value of {n}, which is found in the file by its text; {}", "x".repeat(n as usize % 300)).into_bytes()
}

/// Changes one byte of the value of each of these keys.
fn damage(path: &Path, keys: &[u64]) {
    let bytes = std::fs::read(path).unwrap();
    let file = std::fs::File::options().write(true).open(path).unwrap();
    for n in keys {
        let text = value(*n);
        let text = &text[..text.len().min(40)];
        let at = bytes.windows(text.len()).position(|w| w == text).unwrap();
        file.write_all_at(&[bytes[at + 5] ^ 1], at as u64 + 5).unwrap();
    }
}

fn all(store: &Store) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let snapshot = store.snapshot().unwrap();
    snapshot.scan(Keys::all()).map(|p| p.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect()
}

#[test]
fn corrupt_values_behind_a_checkpoint_are_named_and_can_be_dropped() {
    let dir = crate::memory();
    let path = dir.path().join("store");
    let store = options().create(&path).unwrap();
    for n in 0..300 {
        store.put(&key(n), &value(n)).unwrap();
    }
    assert!(store.check(|_| ()).unwrap().is_sound());
    store.close().unwrap();
    damage(&path, &[3, 250]);
    let store = options().open(&path).unwrap();
    let checked = store.check(|_| ()).unwrap();
    assert_eq!((checked.keys, checked.count), (298, 2), "{checked:?}");
    assert!(store.backup(dir.path().join("backup")).is_err());
    assert_eq!(store.drop_damaged().unwrap().len(), 2);
    assert!(store.check(|_| ()).unwrap().is_sound());
    store.close().unwrap();
    let store = options().open(&path).unwrap();
    let right: BTreeMap<_, _> = (0..300).filter(|n| ![3, 250].contains(n)).map(|n| (key(n), value(n))).collect();
    assert_eq!(all(&store), right);
}

#[test]
fn who_verifies_is_never_given_what_went_bad() {
    let dir = crate::memory();
    let path = dir.path().join("store");
    let store = options().create(&path).unwrap();
    (0..300).for_each(|n| assert!(!store.put(&key(n), &value(n)).unwrap()));
    store.close().unwrap();
    damage(&path, &[3, 250]);
    for verify in [false, true] {
        let store = options().verify(verify).open(&path).unwrap();
        for n in 0..300 {
            let (bad, read) = ([3, 250].contains(&n), store.get(&key(n)));
            match (bad, verify) {
                (true, true) => {
                    assert!(matches!(read, Err(Error::Damaged { .. })), "{n}: {read:?}");
                    let swapped = store.compare_and_set(&key(n), Some(b"other"), Some(b"new"));
                    assert!(matches!(swapped, Err(Error::Damaged { .. })), "{n}: {swapped:?}");
                }
                (true, false) => assert_ne!(read.unwrap(), Some(value(n))),
                (false, _) => assert_eq!(read.unwrap(), Some(value(n))),
            }
        }
        let snapshot = store.snapshot().unwrap();
        assert_eq!(snapshot.scan(Keys::all()).any(|pair| pair.is_err()), verify);
        // A new value repairs it.
        if verify {
            assert!(store.put(&key(3), &value(3)).unwrap());
            assert_eq!(store.get(&key(3)).unwrap(), Some(value(3)));
        }
        // Long ones, and what is moved, are told apart from what went bad.
        store.put(b"long", &vec![7; 200_000]).unwrap();
        (0..4).for_each(|_| store.checkpoint().unwrap());
        assert_eq!(store.get(b"long").unwrap().map(|value| value.len()), Some(200_000));
        drop(snapshot);
        store.close().unwrap();
    }
}

/// Versions that a snapshot still shows go bad while the store is open: of none of them is something else shown.
#[test]
fn an_old_version_that_went_bad_is_told() {
    for verify in [false, true] {
        let dir = crate::memory();
        let path = dir.path().join("store");
        let store = options().verify(verify).create(&path).unwrap();
        (0..3).for_each(|n| assert!(!store.put(&key(n), &value(n)).unwrap()));
        // Each is doomed by its first error.
        let [first, snapshot] = [(); 2].map(|()| store.snapshot().unwrap());
        (0..3).for_each(|n| assert!(store.put(&key(n), b"newer").unwrap()));
        damage_key(&path, 1, 6, 1); // another key stands there now
        if verify {
            damage(&path, &[2]);
        }
        assert_eq!(snapshot.get(&key(0)).unwrap(), Some(&value(0)[..]));
        assert!(matches!(first.get(&key(1)), Err(Error::Damaged { .. })));
        assert_eq!(snapshot.get(&key(2)).is_err(), verify);
    }
}

/// A reader that has put a leaf in order, and then finds one of it bad, does not trust that order.
#[test]
fn what_stood_in_order_beside_what_went_bad_is_found() {
    let dir = crate::memory();
    let path = dir.path().join("store");
    let store = options().create(&path).unwrap();
    (0..40).for_each(|n| assert!(!store.put(&key(2 * n), &value(2 * n)).unwrap()));
    assert_eq!(all(&store).len(), 40);
    damage_key(&path, 40, 3, 0x08); // greater than all others, in the middle
    // These are put in order by what they are compared with. Their leaf is not yet full: a split would find it.
    (10..30).for_each(|n| assert!(!store.put(&key(2 * n + 1), b"new").unwrap()));
    let _ = store.snapshot().unwrap().scan(Keys::all()).count();
    assert_eq!(store.drop_damaged().unwrap().len(), 1);
    let found: Vec<_> = all(&store).into_keys().collect();
    let right: Vec<_> = (0..80).filter(|n| *n != 40 && (n % 2 == 0 || (20..60).contains(n))).map(key).collect();
    assert_eq!(found, right);
    let snapshot = store.snapshot().unwrap();
    assert!(snapshot.scan(Keys::all()).map(|pair| pair.unwrap().0.to_vec()).is_sorted());
    for n in (0..80).filter(|n| *n != 40) {
        let range = Keys::from(&key(n));
        assert_eq!(snapshot.scan(range).count(), right.iter().filter(|k| **k >= key(n)).count(), "{n}");
    }
}

/// A key that is corrupt cannot be put on one side or the other when its leaf is split, which reading the log does: salvaging leaves it out, and nothing else.
#[test]
fn a_killed_store_with_a_corrupt_key_is_salvaged() {
    let dir = crate::memory();
    let path = dir.path().join("store");
    let store = options().create(&path).unwrap();
    (0..60).for_each(|n| assert!(!store.put(&key(2 * n), &value(2 * n)).unwrap()));
    store.checkpoint().unwrap();
    (0..60).for_each(|n| assert!(!store.put(&key(2 * n + 1), b"new").unwrap()));
    store.abandon();
    damage_key(&path, 60, 3, 0x08);
    for _ in 0..2 {
        assert!(matches!(options().open(&path).unwrap_err(), Error::Damaged { .. }));
    }
    let store = options().salvage(true).open(&path).unwrap();
    assert!(store.salvaged().index.as_ref().is_some_and(|what| what.starts_with("1 ")), "{:?}", store.salvaged());
    let right: Vec<_> = (0..120).filter(|n| *n != 60).map(key).collect();
    assert_eq!(all(&store).into_keys().collect::<Vec<_>>(), right);
    store.close().unwrap();
    let store = options().open(&path).unwrap();
    assert_eq!(all(&store).into_keys().collect::<Vec<_>>(), right);
    assert!(store.check(|_| ()).unwrap().is_sound());
}

/// Changes one byte of the key of record `n`: of the word in it that is `key(n)`, wherever a value follows.
fn damage_key(path: &Path, n: u64, at: usize, xor: u8) {
    let bytes = std::fs::read(path).unwrap();
    let text = [key(n), value(n)[..20].to_vec()].concat();
    let place = bytes.windows(text.len()).position(|w| w == text).unwrap() + at;
    std::fs::File::options().write(true).open(path).unwrap().write_all_at(&[bytes[place] ^ xor], place as u64).unwrap();
}

#[test]
fn a_key_that_went_bad_does_not_end_a_scan() {
    let dir = crate::memory();
    // The byte, what is changed in it, and the way of the scan that would meet the end of its range.
    for (n, at, xor, reverse) in [(30, 0, 0x10, false), (290, 0, 0x08, true), (0, 0, 0x10, false)] {
        for verify in [false, true] {
            let path = dir.path().join(format!("store{n}{verify}"));
            let store = options().create(&path).unwrap();
            (0..300).for_each(|n| assert!(!store.put(&key(n), &value(n)).unwrap()));
            store.close().unwrap();
            damage_key(&path, n, at, xor);
            let store = options().verify(verify).open(&path).unwrap();
            let snapshot = store.snapshot().unwrap();
            let range = Keys { reverse, ..Keys::prefix(b"key") };
            let found: Vec<_> = snapshot.scan(range).collect();
            assert!(found.iter().any(Result::is_err), "{n} {verify}: {} pairs and no error", found.len());
            let read = store.get(&key(n));
            let made = store.compare_and_set(&key(n), None, Some(b"new"));
            if verify {
                assert!(matches!(made, Err(Error::Damaged { .. })), "{n}: {made:?}");
            } else {
                assert!(made.unwrap() && store.delete(&key(n)).unwrap());
            }
            assert!(if verify { read.is_err() } else { read.unwrap().is_none() }, "{n} {verify}");
            drop(snapshot);
            assert_eq!(store.drop_damaged().unwrap().len(), 1);
            assert_eq!(all(&store).len(), 299);
            // What is put where it stood takes its place in the order.
            store.put(&key(n), b"again").unwrap();
            assert_eq!(all(&store).len(), 300);
            let snapshot = store.snapshot().unwrap();
            assert!(snapshot.scan(Keys::all()).map(|pair| pair.unwrap().0.to_vec()).is_sorted());
        }
    }
}

#[test]
fn a_damaged_record_in_a_log_that_goes_on_is_a_loss() {
    let dir = crate::memory();
    let path = dir.path().join("store");
    let store = options().create(&path).unwrap();
    for n in 0..50 {
        store.put(&key(n), &value(n)).unwrap();
    }
    store.abandon(); // not checkpointed
    let whole = std::fs::read(&path).unwrap();
    for (n, lost) in [(0, true), (20, true), (48, true), (49, false)] {
        std::fs::write(&path, &whole).unwrap();
        damage(&path, &[n]);
        match options().open(&path) {
            // The last one cannot be told from one that was on its way.
            Ok(store) => assert!(!lost && all(&store).len() == 49, "{n}"),
            Err(Error::Lost { .. }) => assert!(lost, "{n}"),
            Err(error) => panic!("{n}: {error}"),
        }
        if lost {
            std::fs::write(&path, &whole).unwrap();
            damage(&path, &[n]);
            let store = options().salvage(true).open(&path).unwrap();
            let right: BTreeMap<_, _> = (0..n).map(|n| (key(n), value(n))).collect();
            assert_eq!(all(&store), right, "what comes before the damage");
            // From then on it is a store like any other.
            store.put(b"new", b"1").unwrap();
            store.abandon();
            let store = options().open(&path).unwrap();
            assert_eq!(all(&store).len(), right.len() + 1);
            store.close().unwrap();
            assert_eq!(all(&options().open(&path).unwrap()).len(), right.len() + 1);
        }
    }
}

/// Every line of the index's segment, one after the other.
#[test]
fn a_damaged_index_is_told_and_made_anew() {
    let dir = crate::memory();
    let path = dir.path().join("store");
    let store = options().create(&path).unwrap();
    for n in 0..300 {
        store.put(&key(n), &value(n)).unwrap();
    }
    store.close().unwrap();
    let whole = std::fs::read(&path).unwrap();
    let right: BTreeMap<_, _> = (0..300).map(|n| (key(n), value(n))).collect();
    let (mut told, mut harmless) = (0, 0);
    for at in (0..whole.len().min(168 << 10)).step_by(64 * 3 + 8) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        match options().open(&path) {
            Ok(store) => {
                let checked = store.check(|_| ()).unwrap();
                assert!(!checked.is_sound() || all(&store) == right, "byte {at}");
                harmless += 1;
            }
            Err(Error::Damaged { what: "node of the index", .. }) => {
                told += 1;
                let store = options().salvage(true).open(&path).unwrap();
                assert_eq!(all(&store), right, "byte {at}");
            }
            Err(_) => told += 1,
        }
    }
    assert!(told > 3 && harmless > 3, "{told} told, {harmless} harmless");
}

fn region(store: &Store, name: &str) -> (u64, u64) {
    let regions = store.pool().info().regions;
    let found = regions.iter().find(|region| region.name == name && region.part == 0).unwrap();
    (found.offset, found.len)
}

/// The checkpoint is there twice: else the one before would be taken, with what was deleted since.
#[test]
fn a_damaged_copy_of_the_checkpoint_is_no_loss() {
    let dir = crate::memory();
    let path = dir.path().join("store");
    let store = options().create(&path).unwrap();
    let (cell, _) = region(&store, "kv.table");
    for n in 0..300 {
        store.put(&key(n), &value(n)).unwrap();
    }
    store.checkpoint().unwrap();
    for n in 0..100 {
        store.delete(&key(n)).unwrap();
    }
    (0..3).for_each(|_| store.checkpoint().unwrap());
    store.close().unwrap();
    let whole = std::fs::read(&path).unwrap();
    // Value and sequence number of each: opening alone would not tell, as long as the logs still have what came since the older one.
    let copy = |slot: u64| &whole[(cell + slot * 4096) as usize..][..704];
    assert_eq!(copy(0), copy(1));
    for at in (cell..cell + 800).step_by(8).chain((cell + 4096..cell + 4896).step_by(8)) {
        let mut bytes = whole.clone();
        bytes[at as usize] ^= 4;
        std::fs::write(&path, &bytes).unwrap();
        let store = options().open(&path).unwrap();
        assert_eq!(all(&store).len(), 200, "byte {at}");
        store.close().unwrap();
        // The damaged copy is whole again.
        assert_eq!(all(&options().open(&path).unwrap()).len(), 200, "byte {at}");
    }
}

#[test]
fn a_damaged_word_of_the_table_is_told() {
    let dir = crate::memory();
    let path = dir.path().join("store");
    let store = options().create(&path).unwrap();
    let table = region(&store, "kv.table").0 + 3 * 4096;
    for n in 0..300 {
        store.put(&key(n), &value(n)).unwrap();
    }
    store.abandon();
    let whole = std::fs::read(&path).unwrap();
    let words = whole[table as usize..][..64].chunks_exact(8);
    let used = words.filter(|word| **word != [0; 8]).count();
    assert!(used > 1);
    for bit in 0..used * 64 {
        let mut bytes = whole.clone();
        bytes[table as usize + bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, &bytes).unwrap();
        let error = options().open(&path).unwrap_err();
        assert!(matches!(error, Error::Damaged { what: "table of segments", .. }), "bit {bit}: {error}");
    }
}

/// What is moved for scans gets a new checksum: what is corrupt must not get one.
#[test]
fn what_went_bad_is_not_moved_for_scans() {
    for step in [None, Some(kv::Step::VerifyMoved)] {
        let dir = crate::memory();
        let path = dir.path().join("store");
        let store = options().create(&path).unwrap();
        (0..300).for_each(|n| assert!(!store.put(&key(n * 7 % 300), &value(n * 7 % 300)).unwrap()));
        store.close().unwrap();
        damage(&path, &[3, 250]);
        let store = step.into_iter().fold(options(), Options::without).open(&path).unwrap();
        (0..200).for_each(|_| drop(all(&store)));
        store.checkpoint().unwrap();
        assert!(store.stats().moved >= 298, "{:?}", store.stats());
        let checked = store.check(|_| ()).unwrap();
        assert_eq!((checked.keys, checked.count), if step.is_none() { (298, 2) } else { (300, 0) }, "{step:?}");
    }
}
