//! Limits of age and of memory: what is refused, and what ends it.

use std::time::Duration;

use kv::{Error, Keys, Options};

fn key(n: u64) -> Vec<u8> {
    format!("{n:08}").into_bytes()
}

/// A reader of it still holds what it was shown: that is not freed, however old.
#[test]
fn a_snapshot_that_is_too_old_is_told_and_loses_nothing_it_was_shown() {
    let dir = crate::memory();
    let options = Options::new()
        .segment_bytes(64 << 10)
        .checkpoint_bytes(64 << 10)
        .max_snapshot_age(Some(Duration::from_secs(2)));
    let store = options.create(dir.path().join("store")).unwrap();
    let first = vec![1; 1000];
    (0..100).for_each(|n| assert!(!store.put(&key(n), &first).unwrap()));
    let snapshot = store.snapshot().unwrap();
    let shown: Vec<(&[u8], &[u8])> = snapshot.scan(Keys::all()).map(Result::unwrap).collect();
    for round in 0.. {
        (0..100).for_each(|n| assert!(store.put(&key(n), &[round as u8; 1000]).unwrap()));
        match snapshot.get(&key(0)) {
            Ok(value) => assert_eq!(value, Some(&first[..])),
            Err(Error::Expired { .. }) => break,
            Err(other) => panic!("{other}"),
        }
        assert!(round < 6000, "it is not told");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(matches!(snapshot.scan(Keys::all()).next(), Some(Err(Error::Expired { .. }))));
    // All segments that are free are written again.
    for round in 0..20 {
        (0..100).for_each(|n| assert!(store.put(&key(n), &[round; 1000]).unwrap()));
        store.checkpoint().unwrap();
    }
    assert!(shown.iter().enumerate().all(|(n, (k, v))| **k == key(n as u64) && **v == first));
    assert!(store.stats().expired > 0);
    drop(snapshot);
    let again = store.snapshot().unwrap();
    assert_eq!(again.get(&key(0)).unwrap(), Some(&[19; 1000][..]));
}

#[test]
fn an_index_as_large_as_it_may_be_takes_no_new_keys_until_others_go() {
    let dir = crate::memory();
    let options = Options::new().segment_bytes(64 << 10).background(false).index_memory(64 << 10);
    let store = options.create(dir.path().join("store")).unwrap();
    let full = |n: u64| match store.put(&key(n), b"new") {
        Ok(_) => false,
        Err(Error::IndexMemory { bytes, max, .. }) => bytes > max,
        Err(other) => panic!("{other}"),
    };
    let most = (0..).find(|n| full(*n)).unwrap();
    assert!((3000..8000).contains(&most), "{most} keys in 64 KiB");
    // What is there changes and goes as ever.
    assert!(store.put(&key(0), b"other").unwrap() && !store.delete(&key(most)).unwrap() && full(most));
    (1..most).filter(|n| n % 8 != 0).for_each(|n| assert!(store.delete(&key(n)).unwrap()));
    (0..4).for_each(|_| store.checkpoint().unwrap());
    assert!(!full(most), "{} bytes", store.stats().index_bytes);
    assert_eq!(store.snapshot().unwrap().scan(Keys::all()).count() as u64, most.div_ceil(8) + 1);
}

#[test]
fn upkeep_takes_nobodys_seat() {
    let dir = crate::memory();
    let options = Options::new().segment_bytes(64 << 10).background(false).transactions(2);
    let store = options.create(dir.path().join("store")).unwrap();
    (0..2000).for_each(|n| assert!(!store.put(&key(n), &[1; 100]).unwrap()));
    (0..2000).filter(|n| n % 8 > 0).for_each(|n| assert!(store.delete(&key(n)).unwrap()));
    assert!(!store.put_until(&key(5000), b"", 1).unwrap());
    let all = [store.snapshot().unwrap(), store.snapshot().unwrap()];
    assert!(matches!(store.snapshot(), Err(Error::TooMany { max: 2 })));
    store.checkpoint().unwrap();
    assert_eq!(store.sweep().unwrap(), 1);
    assert_eq!(store.stats().active, 2);
    drop(all);
    assert_eq!(store.stats().active, 0);
}
