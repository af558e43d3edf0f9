//! The change feed, beside writers, checkpoints and compaction.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use kv::{Changed, Error, Keys, Options, Store};

#[test]
fn who_follows_has_the_same_store_in_the_end_and_each_transaction_as_a_whole() {
    follow(&Options::new());
}

#[test]
fn who_follows_groups_sees_them_in_order_too() {
    follow(&Options::new().group_commit(true));
}

fn follow(options: &Options) {
    let dir = crate::memory();
    let store =
        options.clone().segment_bytes(64 << 10).checkpoint_bytes(256 << 10).create(dir.path().join("store")).unwrap();
    let mut changes = store.changes().unwrap();
    let done = AtomicBool::new(false);
    let mut copy: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    std::thread::scope(|threads| {
        let writers: Vec<_> = (0..3u64)
            .map(|thread| {
                let store = &store;
                threads.spawn(move || {
                    for n in 0..3000u64 {
                        let key = |which: u64| format!("{}", (n * 7 + thread + which) % 50).into_bytes();
                        store
                            .transact(|tx| {
                                tx.put(&key(0), &[n as u8; 300])?;
                                if n % 3 == 0 { tx.delete(&key(1)) } else { tx.put(&key(1), &n.to_le_bytes()) }
                            })
                            .unwrap();
                    }
                })
            })
            .collect();
        threads.spawn(|| {
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            done.store(true, Relaxed);
        });
        let mut last = None;
        loop {
            let finished = done.load(Relaxed);
            while let Some(change) = changes.next().unwrap() {
                assert!(last.is_none_or(|last| change.at >= last), "{last:?}, then {change:?}");
                last = Some(change.at);
                match change.value {
                    Some(value) => copy.insert(change.key, value),
                    None => copy.remove(&change.key),
                };
            }
            if finished {
                break;
            }
        }
    });
    let snapshot = store.snapshot().unwrap();
    let right: BTreeMap<_, _> =
        snapshot.scan(Keys::all()).map(|p| p.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect();
    assert!(!right.is_empty() && copy == right);
}

fn all(changes: &mut kv::Changes<'_>) -> Vec<Changed> {
    std::iter::from_fn(|| changes.next().unwrap()).collect()
}

fn made(dir: &tempfile::TempDir) -> Store {
    Options::new().segment_bytes(64 << 10).background(false).create(dir.path().join("store")).unwrap()
}

#[test]
fn long_values_and_all_of_a_transaction_are_told_at_once() {
    let dir = crate::memory();
    let store = made(&dir);
    let mut changes = store.changes().unwrap();
    let long = vec![7; 200_000];
    store.put(b"before", b"1").unwrap();
    store.put(b"long", &long).unwrap();
    store.put_until(b"soon", b"2", u64::MAX / 2).unwrap();
    let at = {
        let mut tx = store.begin(kv::Isolation::Serializable).unwrap();
        tx.put(b"one", b"3").unwrap();
        tx.put(b"other", &long).unwrap();
        tx.delete(b"before").unwrap();
        tx.commit().unwrap()
    };
    let told = all(&mut changes);
    let keys: Vec<&[u8]> = told.iter().map(|change| &change.key[..]).collect();
    assert_eq!(keys, [&b"before"[..], b"long", b"soon", b"one", b"other", b"before"]);
    assert!(told[1].value.as_ref() == Some(&long) && told[4].value.as_ref() == Some(&long));
    assert_eq!((told[2].expires, told[5].value.as_ref()), (Some(u64::MAX / 2), None));
    assert!(told[3..].iter().all(|change| change.at == at) && told[2].at < at);
}

/// Once it was told, nothing is kept for the feed; until then everything is.
#[test]
fn a_feed_keeps_what_it_has_not_told_and_no_more() {
    let dir = crate::memory();
    let store = made(&dir);
    let mut changes = store.changes().unwrap();
    let overwrite = |store: &Store| {
        for n in 0..50 {
            store.put(b"key", &[n; 10_000]).unwrap();
        }
        (0..4).for_each(|_| store.checkpoint().unwrap());
        store.stats().live_bytes
    };
    assert!(overwrite(&store) > 500_000);
    assert_eq!(all(&mut changes).len(), 50);
    (0..4).for_each(|_| store.checkpoint().unwrap());
    assert!(store.stats().live_bytes < 30_000, "{}", store.stats().live_bytes);
    overwrite(&store);
    assert_eq!(store.expire_before(store.stats().now), 1);
    assert!(matches!(changes.next(), Err(Error::Expired { .. })));
}
