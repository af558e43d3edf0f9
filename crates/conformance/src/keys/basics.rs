//! One transaction at a time: a sorted map, of which aborts leave nothing.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use tx::{Isolation, Keys, Kv, KvTx};

use super::memory::range;
use super::script::must;
use super::{Subject, key_checks};
use crate::check::Check;
use crate::rng::Rng;

pub(super) fn basics<S: Subject>(group: &'static str) -> Vec<Check<S>> {
    key_checks!(group, model, bounds, stopped_scans, aborted)
}

pub(super) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// All pairs, as a transaction finds them.
pub(super) fn scanned<X: KvTx>(tx: &X, keys: &Keys) -> tx::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut found = Vec::new();
    tx.scan(keys, &mut |key, value| {
        found.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// What a scan must find.
pub(super) fn expected(model: &Model, keys: &Keys) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all: Vec<_> = range(model, keys).map(|(key, value)| (key.clone(), value.clone())).collect();
    if keys.reverse {
        all.reverse();
    }
    all
}

fn key(rng: &mut Rng) -> Vec<u8> {
    let long = rng.below(8) == 0;
    let mut key = format!("{}{:02}", ["a", "b", "user:", "z"][rng.below(4) as usize], rng.below(40)).into_bytes();
    if long {
        key.extend(vec![b'.'; 60]);
    }
    key
}

fn bound(rng: &mut Rng) -> Bound<Vec<u8>> {
    match rng.below(5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Included(key(rng)),
        _ => Bound::Excluded(key(rng)),
    }
}

/// Random steps, compared with a map: every result, own changes included, over commits, aborts and drops.
fn model<S: Subject>(s: &Arc<S>) {
    for (seed, &level) in s.levels().iter().enumerate() {
        let (store, mut rng) = (s.fresh(), Rng::seeded(seed as u64));
        let mut model = Model::new();
        for round in 0..400u32 {
            let mut own = model.clone();
            let mut tx = store.begin(level).expect("a transaction");
            for step in 0..rng.below(12) {
                let at = format!("at {level}, transaction {round}, step {step}");
                let key = key(&mut rng);
                match rng.below(8) {
                    0..3 => {
                        let value = vec![rng.draw() as u8; [0, 3, 20, 300, 3000][rng.below(5) as usize]];
                        let there = tx.put(&key, &value).expect(&at);
                        assert_eq!(there, own.insert(key, value).is_some(), "{at}: put says wrongly what was there");
                    }
                    3 | 4 => {
                        let there = tx.delete(&key).expect(&at);
                        assert_eq!(there, own.remove(&key).is_some(), "{at}: delete says wrongly what was there");
                    }
                    5 => assert_eq!(tx.get(&key).expect(&at), own.get(&key).map(Vec::as_slice), "{at}: get"),
                    _ => {
                        let mut keys = Keys { from: bound(&mut rng), to: bound(&mut rng), reverse: rng.below(2) == 0 };
                        if rng.below(4) == 0 {
                            keys = Keys { reverse: keys.reverse, ..Keys::prefix(&key[..1]) };
                        }
                        let found = scanned(&tx, &keys).expect(&at);
                        assert_eq!(found, expected(&own, &keys), "{at}: {keys:?}");
                    }
                }
            }
            match rng.below(6) {
                0 => tx.abort().expect("an abort"),
                1 => drop(tx),
                _ => {
                    tx.commit().expect("a commit");
                    model = own;
                }
            }
        }
        let found = must(&store, |tx| scanned(tx, &Keys::all()));
        assert_eq!(found, expected(&model, &Keys::all()), "at {level}: the end");
    }
}

/// All ranges over five keys, ends that are there and ends that are not, empty ones and such that are the wrong way round.
fn bounds<S: Subject>(s: &Arc<S>) {
    let store = s.fresh();
    let model: Model = ["b", "d", "f", "h", "j"].map(|key| (key.into(), b"1".to_vec())).into();
    must(&store, |tx| model.iter().try_for_each(|(key, value)| tx.put(key, value).map(drop)));
    let ends: Vec<_> = ["a", "b", "c", "e", "f", "j", "k"].map(|key| key.as_bytes().to_vec()).into();
    let mut bounds = vec![Bound::Unbounded];
    bounds.extend(ends.iter().cloned().map(Bound::Included));
    bounds.extend(ends.into_iter().map(Bound::Excluded));
    must(&store, |tx| {
        for from in &bounds {
            for to in &bounds {
                for reverse in [false, true] {
                    let keys = Keys { from: from.clone(), to: to.clone(), reverse };
                    assert_eq!(scanned(tx, &keys)?, expected(&model, &keys), "{keys:?}");
                }
            }
        }
        Ok(())
    });
}

fn stopped_scans<S: Subject>(s: &Arc<S>) {
    let store = s.fresh();
    let model: Model = (0..100u8).map(|n| (vec![n], vec![n; 20])).collect();
    must(&store, |tx| model.iter().try_for_each(|(key, value)| tx.put(key, value).map(drop)));
    must(&store, |tx| {
        for (count, reverse) in [(1, false), (7, true), (50, false), (99, true)] {
            let keys = Keys { reverse, ..Keys::all() };
            let mut found = Vec::new();
            tx.scan(&keys, &mut |key, value| {
                found.push((key.to_vec(), value.to_vec()));
                if found.len() < count { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            assert_eq!(found, expected(&model, &keys)[..count], "{count} pairs of {keys:?}");
        }
        Ok(())
    });
}

/// Inserts, overwrites and deletes that are taken back, by abort and by drop.
fn aborted<S: Subject>(s: &Arc<S>) {
    for &level in s.levels() {
        let store = s.fresh();
        let model: Model = ["a", "b", "c"].map(|key| (key.into(), b"old".to_vec())).into();
        must(&store, |tx| model.iter().try_for_each(|(key, value)| tx.put(key, value).map(drop)));
        for (keys, dropped) in [(["a", "b", "x"], false), (["c", "b", "y"], true), (["x", "a", "b"], false)] {
            let mut tx = store.begin(level).expect("a transaction");
            tx.put(keys[0].as_bytes(), b"new").expect("a put");
            tx.delete(keys[1].as_bytes()).expect("a delete");
            tx.put(keys[2].as_bytes(), b"new").expect("a put");
            if dropped {
                drop(tx)
            } else {
                tx.abort().expect("an abort")
            }
            let found = store.transact(Isolation::Strict, |tx| scanned(tx, &Keys::all())).expect("a scan");
            assert_eq!(found, expected(&model, &Keys::all()), "at {level}: {keys:?} was taken back");
        }
    }
}
