//! Scans that go on while leaves under them split and merge; each way, from and to anywhere.

use std::collections::BTreeMap;
use std::ops::Bound;

use kv::{Keys, Options, Store};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(n: u64) -> Vec<u8> {
    format!("{n:06}").into_bytes()
}

/// Checkpoints come when they are asked for.
fn store(dir: &tempfile::TempDir) -> Store {
    Options::new().segment_bytes(64 << 10).background(false).create(dir.path().join("store")).unwrap()
}

fn checkpoint(store: &Store) {
    (0..4).for_each(|_| store.checkpoint().unwrap());
}

/// Reads `range`, and runs `meanwhile` when it has read `after` pairs.
fn read(store: &Store, range: Keys, after: usize, meanwhile: impl FnOnce()) -> Vec<(Vec<u8>, Vec<u8>)> {
    let snapshot = store.snapshot().unwrap();
    let mut scan = snapshot.scan(range);
    let mut next = || scan.next().map(|pair| pair.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap());
    let mut found: Vec<_> = std::iter::from_fn(&mut next).take(after).collect();
    meanwhile();
    found.extend(std::iter::from_fn(next));
    found
}

fn expected(model: &Model, range: &Keys) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all: Vec<_> =
        model.iter().filter(|(key, _)| range.contains(key)).map(|(k, v)| (k.clone(), v.clone())).collect();
    if range.reverse {
        all.reverse();
    }
    all
}

#[test]
fn a_leaf_that_takes_in_others_is_not_read_twice() {
    for (reverse, after) in [(false, 3), (false, 40), (true, 3), (true, 40)] {
        let dir = crate::memory();
        let store = store(&dir);
        let mut model = Model::new();
        for n in 0..3000 {
            store.put(&key(n), b"").unwrap();
        }
        for n in (0..3000).filter(|n| n % 16 != 0) {
            store.delete(&key(n)).unwrap();
        }
        (0..3000).step_by(16).for_each(|n| drop(model.insert(key(n), vec![])));
        let range = Keys { reverse, ..Keys::all() };
        let found = read(&store, range.clone(), after, || checkpoint(&store));
        assert_eq!(found, expected(&model, &range), "{reverse} {after}");
    }
}

#[test]
fn a_leaf_that_splits_is_read_to_its_end() {
    for (reverse, after) in [(false, 3), (false, 40), (true, 3), (true, 40)] {
        let dir = crate::memory();
        let store = store(&dir);
        let mut model = Model::new();
        for n in (0..3000).step_by(16) {
            store.put(&key(n), b"").unwrap();
            model.insert(key(n), vec![]);
        }
        let range = Keys { reverse, ..Keys::all() };
        let found = read(&store, range.clone(), after, || {
            for n in 0..3000 {
                store.put(&key(n), b"later").unwrap();
            }
        });
        assert_eq!(found, expected(&model, &range), "{reverse} {after}");
    }
}

#[test]
fn ranges_end_where_they_should_whatever_came_and_went() {
    let dir = crate::memory();
    let store = store(&dir);
    let (mut model, mut random) = (Model::new(), 3_u64);
    let mut below = move |n: u64| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (random >> 33) % n
    };
    for round in 0..3000 {
        for _ in 0..below(20) {
            let key = key(below(1000));
            if below(5) < 2 {
                assert_eq!(store.delete(&key).unwrap(), model.remove(&key).is_some());
            } else {
                let value = below(1000).to_le_bytes().to_vec();
                assert_eq!(store.put(&key, &value).unwrap(), model.insert(key, value).is_some());
            }
        }
        let mut bound = || match below(5) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Included(key(below(1000))),
            _ => Bound::Excluded(key(below(1000))),
        };
        let range = Keys { from: bound(), to: bound(), reverse: round % 2 == 0 };
        assert_eq!(read(&store, range.clone(), 0, || ()), expected(&model, &range), "{range:?}");
        if below(50) == 0 {
            store.checkpoint().unwrap();
        }
    }
}

/// A transaction that scans again and again sees its own writes, also those that came since, and changed since.
#[test]
fn a_transaction_that_writes_and_scans_sees_each_of_its_writes_in_order() {
    let dir = crate::memory();
    let store = store(&dir);
    let (mut model, mut random) = (Model::new(), 5_u64);
    let mut below = move |n: u64| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (random >> 33) % n
    };
    (0..1000).step_by(3).for_each(|n| drop(model.insert(key(n), vec![7])));
    model.iter().for_each(|(key, value)| assert!(!store.put(key, value).unwrap()));
    for _ in 0..2 {
        let mut tx = store.begin(kv::Isolation::Serializable).unwrap();
        for round in 0..600 {
            for _ in 0..below(3) {
                let key = key(below(1000));
                if below(5) < 2 {
                    assert_eq!(tx.delete(&key).unwrap(), model.remove(&key).is_some());
                } else {
                    let value = vec![1; below(40) as usize];
                    assert_eq!(tx.put(&key, &value).unwrap(), model.insert(key, value).is_some());
                }
            }
            let mut bound = || match below(5) {
                0 => Bound::Unbounded,
                1 | 2 => Bound::Included(key(below(1000))),
                _ => Bound::Excluded(key(below(1000))),
            };
            let range = Keys { from: bound(), to: bound(), reverse: round % 2 == 0 };
            let pair = |pair: kv::Result<(&[u8], &[u8])>| pair.map(|(key, value)| (key.to_vec(), value.to_vec()));
            let found: Vec<_> = tx.scan(range.clone()).map(|next| pair(next).unwrap()).collect();
            assert_eq!(found, expected(&model, &range), "{range:?}");
        }
        tx.commit().unwrap();
    }
}

/// Keys put in no order of theirs.
fn scattered(store: &Store, keys: u64) {
    (0..keys).for_each(|n| assert!(!store.put(&key(n * 1009 % keys), b"a short value").unwrap()));
}

/// So often that no leaf is left out.
fn scan_often(store: &Store) {
    let snapshot = store.snapshot().unwrap();
    (0..200).for_each(|_| assert!(snapshot.scan(Keys::all()).all(|pair| pair.is_ok())));
}

#[test]
fn what_is_scanned_is_written_together_once() {
    const KEYS: u64 = 3000;
    let dir = crate::memory();
    let store = store(&dir);
    scattered(&store, KEYS);
    checkpoint(&store);
    assert_eq!(store.stats().moved, 0, "nobody has scanned");
    scan_often(&store);
    let before = store.stats();
    store.checkpoint().unwrap();
    let after = store.stats();
    assert_eq!(after.moved, KEYS);
    // Those of a checkpoint, one for each 256 versions, and two of the pool's directory where the file gets longer.
    let longer = 2 * u64::from(after.segments > before.segments);
    assert_eq!(after.pool.drains - before.pool.drains, 3 + KEYS.div_ceil(256) + longer);
    checkpoint(&store);
    scan_often(&store);
    checkpoint(&store);
    assert_eq!(store.stats().moved, KEYS, "they are neighbours by now");
    let model: Model = (0..KEYS).map(|n| (key(n), b"a short value".to_vec())).collect();
    assert_eq!(read(&store, Keys::all(), 0, || ()), expected(&model, &Keys::all()));
    assert!(store.check(|_| ()).unwrap().is_sound());
}

#[test]
fn whole_scans_of_long_values_and_checks_move_nothing() {
    let dir = crate::memory();
    let store = store(&dir);
    (0..1000).for_each(|n| assert!(!store.put(&key(n * 1009 % 1000), &[7; 600]).unwrap()));
    checkpoint(&store);
    scan_often(&store);
    checkpoint(&store);
    assert_eq!(store.stats().moved, 0);
}

/// Short values between long ones, which have segments of their own, cannot stand one behind the other: scans do not ask for it again and again.
#[test]
fn scans_of_short_values_between_long_ones_move_nothing() {
    let dir = crate::memory();
    let store = store(&dir);
    for n in 0..120 {
        let key = key(n * 7 % 120);
        store.put(&key, &[7; 40]).unwrap();
        store.put(&[&key[..], b"+"].concat(), &[7; 70_000]).unwrap();
    }
    checkpoint(&store);
    scan_often(&store);
    checkpoint(&store);
    assert_eq!(store.stats().moved, 0);
}
