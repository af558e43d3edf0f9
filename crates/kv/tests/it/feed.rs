//! The change feed, beside writers, checkpoints and compaction.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use kv::{Keys, Options};

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
    let store = options.clone().segment(64 << 10).settle(256 << 10).create(dir.path().join("store")).unwrap();
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
