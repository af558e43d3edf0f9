//! One thread against a `BTreeMap`, with reopening, checkpoints, and all kinds of lengths.

use std::collections::BTreeMap;
use std::ops::Bound;

use kv::{Isolation, Keys, Options, Store};
use proptest::prelude::*;

fn small() -> Options {
    Options::new().segment_bytes(64 << 10).checkpoint_bytes(256 << 10).background(false)
}

#[derive(Clone, Debug)]
enum Op {
    Put(u16, usize),
    Delete(u16),
    Get(u16),
    Scan(u16, u16, bool),
    Commit,
    Abort,
    Checkpoint,
    Reopen(bool),
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0..400u16;
    prop_oneof![
        12 => (key.clone(), prop_oneof![10 => 0..200usize, 2 => 200..3000usize, 1 => 60_000..200_000usize]).prop_map(|(k, l)| Op::Put(k, l)),
        4 => key.clone().prop_map(Op::Delete),
        4 => key.clone().prop_map(Op::Get),
        2 => (key.clone(), key, any::<bool>()).prop_map(|(a, b, r)| Op::Scan(a, b, r)),
        3 => Just(Op::Commit),
        1 => Just(Op::Abort),
        1 => Just(Op::Checkpoint),
        1 => any::<bool>().prop_map(Op::Reopen),
    ]
}

fn key(n: u16) -> Vec<u8> {
    // Some long, some the beginning of others.
    match n % 7 {
        0 => format!("{n}").into_bytes(),
        1 => [b"a".repeat(100), format!("{n:05}").into_bytes()].concat(),
        _ => format!("user{n:020}").into_bytes(),
    }
}

fn value(n: u16, len: usize, step: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + step * 7 + n as usize) as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn it_is_a_map(ops in proptest::collection::vec(op(), 1..400)) {
        let dir = crate::memory();
        let path = dir.path().join("store");
        let mut store = small().create(&path).unwrap();
        let mut committed: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut step = 0;
        let mut ops = ops.into_iter().peekable();
        while ops.peek().is_some() {
            let mut reopen = None;
            let mut model = committed.clone();
            {
                let mut tx = store.begin(Isolation::Serializable).unwrap();
                let mut commit = false;
                for op in ops.by_ref() {
                    step += 1;
                    match op {
                        Op::Put(n, len) => {
                            let had = tx.put(&key(n), &value(n, len, step)).unwrap();
                            prop_assert_eq!(had, model.insert(key(n), value(n, len, step)).is_some());
                        }
                        Op::Delete(n) => prop_assert_eq!(tx.delete(&key(n)).unwrap(), model.remove(&key(n)).is_some()),
                        Op::Get(n) => prop_assert_eq!(tx.get(&key(n)).unwrap(), model.get(&key(n)).map(Vec::as_slice)),
                        Op::Scan(a, b, reverse) => {
                            let (a, b) = (key(a).min(key(b)), key(a).max(key(b)));
                            let keys = Keys { from: Bound::Included(a.clone()), to: Bound::Excluded(b.clone()), reverse };
                            let found: Vec<_> = tx.scan(keys).map(|p| p.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect();
                            let mut right: Vec<_> = model.range(a..b).map(|(k, v)| (k.clone(), v.clone())).collect();
                            if reverse { right.reverse(); }
                            prop_assert_eq!(found, right);
                        }
                        Op::Commit => { commit = true; break; }
                        Op::Abort => break,
                        Op::Checkpoint => { commit = true; reopen = Some(None); break; }
                        Op::Reopen(clean) => { commit = true; reopen = Some(Some(clean)); break; }
                    }
                }
                if commit {
                    tx.commit().unwrap();
                    committed = model;
                }
            }
            match reopen {
                None => {}
                Some(None) => store.checkpoint().unwrap(),
                Some(Some(clean)) => {
                    if clean { store.close().unwrap(); } else { store.abandon(); }
                    store = small().open(&path).unwrap();
                }
            }
        }
        store.abandon();
        let store = small().open(&path).unwrap();
        let all: BTreeMap<_, _> = store.snapshot().unwrap().scan(Keys::all()).map(|p| p.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect();
        prop_assert_eq!(all, committed);
    }
}

#[test]
fn many_keys_survive_closing_and_killing() {
    let dir = crate::memory();
    let path = dir.path().join("store");
    let mut store = Options::new().create(&path).unwrap();
    for round in 0..4u64 {
        for n in (0..20_000u64).filter(|n| n % 4 <= round) {
            store
                .put(
                    format!("user{:020}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).as_bytes(),
                    &(n + round).to_le_bytes(),
                )
                .unwrap();
        }
        if round % 2 == 0 {
            store.close().unwrap()
        } else {
            store.abandon()
        }
        store = Store::open(&path).unwrap();
        for n in 0..20_000u64 {
            let found = store.get(format!("user{:020}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).as_bytes()).unwrap();
            let right = (n % 4 <= round).then(|| (n + round).to_le_bytes().to_vec());
            assert_eq!(found, right, "{n} in round {round}");
        }
    }
    assert_eq!(store.snapshot().unwrap().scan(Keys::all()).count(), 20_000);
    for n in 0..20_000u64 {
        assert!(store.delete(format!("user{:020}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).as_bytes()).unwrap());
    }
    assert_eq!(store.snapshot().unwrap().scan(Keys::all()).count(), 0);
    for _ in 0..3 {
        store.checkpoint().unwrap();
    }
    let stats = store.stats();
    assert_eq!((stats.entries, stats.live_bytes), (0, 0), "{stats:?}");
}

#[test]
fn overwriting_takes_no_more_space() {
    let dir = crate::memory();
    let store =
        Options::new().segment_bytes(64 << 10).checkpoint_bytes(1 << 20).create(dir.path().join("store")).unwrap();
    let mut most = 0;
    for round in 0..200u64 {
        for n in 0..1000u64 {
            // Most are hot, some stay for long.
            let n = if n % 10 == 0 { n } else { n % 97 + round % 3 };
            store.put(format!("key{n}").as_bytes(), &[round as u8; 500]).unwrap();
        }
        most = most.max(store.stats().file_bytes);
    }
    let stats = store.stats();
    assert!(most < 24 << 20, "{most} bytes for {}: {stats:?}", stats.live_bytes);
}
