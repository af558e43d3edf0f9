//! Random histories, and the races that have a name, under threads and under schedules that are drawn.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tx::{Isolation, Keys, Kv, KvTx, Result};

use super::script::{is_conflict, must};
use super::{Plan, Subject, key_checks, record};
use crate::check::Check;
use crate::shuttle::{explore, together};

pub(super) fn histories<S: Subject>(group: &'static str) -> Vec<Check<S>> {
    key_checks!(group, snapshot, serializable, strict, mixed)
}

pub(super) fn schedules<S: Subject>(group: &'static str) -> Vec<Check<S>> {
    key_checks!(group, random, two_validators, two_phantoms, two_inserters)
}

fn levels<S: Subject>(s: &S) -> Vec<(Isolation, Isolation)> {
    s.levels().iter().map(|&level| (level, s.kept(level))).collect()
}

fn at<S: Subject>(s: &S, levels: Vec<(Isolation, Isolation)>) {
    if levels.is_empty() {
        return;
    }
    let transactions = s.transactions() / 4;
    let (threads, keys, scheduled) = (8, 20, false);
    let plan = Plan { threads, transactions, keys, levels, real_time: s.real_time(), scheduled, seed: 1 };
    let (history, tally) = record::<S>(&s.fresh(), &plan);
    println!("{tally:?}");
    if let Err(anomaly) = history.check() {
        panic!("at {:?}: {anomaly}", plan.levels);
    }
    assert!(tally.committed >= plan.transactions, "too few commits: {tally:?}");
    assert!(tally.conflicts * 100 >= tally.attempts * s.conflicts_percent(), "too few conflicts: {tally:?}");
}

fn one<S: Subject>(s: &S, level: Isolation) {
    at(s, levels(s).into_iter().filter(|(asked, _)| *asked == level).collect());
}

fn snapshot<S: Subject>(s: &Arc<S>) {
    one(&**s, Isolation::Snapshot);
}

fn serializable<S: Subject>(s: &Arc<S>) {
    one(&**s, Isolation::Serializable);
}

fn strict<S: Subject>(s: &Arc<S>) {
    one(&**s, Isolation::Strict);
}

/// Each transaction at a level of its own.
fn mixed<S: Subject>(s: &Arc<S>) {
    at(&**s, levels(&**s));
}

fn scheduled<S: Subject>(s: &Arc<S>, scenario: fn(&S, u64)) {
    let (subject, round) = (s.clone(), AtomicU64::new(0));
    explore(1, s.schedules(), move || scenario(&subject, round.fetch_add(1, Relaxed)));
}

/// A few transactions on few keys.
fn random<S: Subject>(s: &Arc<S>) {
    scheduled(s, |s, round| {
        let levels = levels(s);
        let levels = match levels.get(round as usize % (levels.len() + 1)) {
            Some(&level) => vec![level],
            None => levels,
        };
        let (threads, transactions, keys, scheduled) = (3, 9, 3, true);
        let plan = Plan { threads, transactions, keys, levels, real_time: s.real_time(), scheduled, seed: round };
        let (history, _) = record::<S>(&s.fresh_scheduled(), &plan);
        if let Err(anomaly) = history.check() {
            panic!("at {:?}: {anomaly}", plan.levels);
        }
    });
}

type Thread<'a> = Box<dyn FnOnce() -> bool + Send + 'a>;

/// Whether it commits.
fn once<'s, K: Kv>(store: &'s K, level: Isolation, f: impl FnOnce(&mut K::Tx<'s>) -> Result<()>) -> bool {
    let result = store.begin(level).and_then(|mut tx| {
        f(&mut tx)?;
        tx.commit()
    });
    if let Err(e) = &result {
        assert!(is_conflict(e), "at {level}: not a conflict: {e}");
    }
    result.is_ok()
}

/// Each looks whether the other's key is there, in one of these ways, and puts its own.
fn pass_each_other<S: Subject>(
    s: &S,
    round: u64,
    looks: impl Fn(&<S::Store as Kv>::Tx<'_>, &str) -> Result<bool> + Sync,
) {
    let Some(&level) =
        s.levels().iter().filter(|level| s.kept(**level) >= Isolation::Serializable).nth(round as usize % 2)
    else {
        return;
    };
    let store = &s.fresh_scheduled();
    must(store, |tx| tx.put(b"m", b"1").map(drop));
    let looks = &looks;
    let thread = |own: &'static str, other: &'static str| -> Thread<'_> {
        Box::new(move || {
            once(store, level, |tx| {
                if !looks(tx, other)? {
                    tx.put(own.as_bytes(), b"1")?;
                }
                Ok(())
            })
        })
    };
    together(vec![thread("a", "z"), thread("z", "a")]);
    let there = must(store, |tx| Ok(tx.get(b"a")?.is_some() && tx.get(b"z")?.is_some()));
    assert!(!there, "at {level}: both have validated before the other's commit");
}

fn two_validators<S: Subject>(s: &Arc<S>) {
    scheduled(s, |s, round| pass_each_other(s, round, |tx, key| Ok(tx.get(key.as_bytes())?.is_some())));
}

fn two_phantoms<S: Subject>(s: &Arc<S>) {
    scheduled(s, |s, round| {
        pass_each_other(s, round, |tx, key| {
            let mut found = false;
            let keys = Keys::from(key.as_bytes()).until(format!("{key}~").as_bytes());
            tx.scan(&keys, &mut |_, _| {
                found = true;
                std::ops::ControlFlow::Continue(())
            })?;
            Ok(found)
        });
    });
}

/// Several insert the same key: only one is told that it was not there.
fn two_inserters<S: Subject>(s: &Arc<S>) {
    scheduled(s, |s, round| {
        let level = s.levels()[round as usize % s.levels().len()];
        let store = &s.fresh_scheduled();
        let thread = |n: u8| -> Thread<'_> {
            Box::new(move || {
                let mut there = false;
                let committed = once(store, level, |tx| {
                    there = tx.put(b"key", &[n])?;
                    Ok(())
                });
                committed && !there
            })
        };
        let inserted = together((1..=3).map(thread).collect());
        let count = inserted.into_iter().filter(|new| *new).count();
        assert!(count <= 1, "at {level}: {count} inserted the key");
    });
}
