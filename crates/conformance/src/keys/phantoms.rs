//! Threads insert and delete; scans agree with a model.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use tx::{Isolation, Keys, Kv, KvTx, Result};

use super::basics::{Model, expected, scanned};
use super::script::must;
use super::{Subject, key_checks};
use crate::check::Check;
use crate::rng::Rng;

pub(super) fn phantoms<S: Subject>(group: &'static str) -> Vec<Check<S>> {
    key_checks!(group, scans_agree_with_a_model, no_more_than, one_of_two)
}

const THREADS: u64 = 4;
const REGIONS: u64 = 3;
const KEYS: u64 = 400;

/// Runs it on threads, and gives what they return.
fn threads<R: Send>(count: u64, f: impl Fn(u64) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let f = &f;
        let threads: Vec<_> = (0..count).map(|thread| scope.spawn(move || f(thread))).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// Retried for as long as it takes.
fn patiently<'s, K: Kv, R>(store: &'s K, level: Isolation, mut f: impl FnMut(&mut K::Tx<'s>) -> Result<R>) -> R {
    for _ in 0..1000 {
        match store.transact(level, &mut f) {
            Ok(value) => return value,
            Err(tx::Error::GaveUp { .. }) => {}
            Err(e) => panic!("at {level}: {e}"),
        }
    }
    panic!("at {level}: no end of conflicts");
}

type Changes = Vec<(Vec<u8>, Option<Vec<u8>>)>;
type Scans = Vec<(Keys, Vec<(Vec<u8>, Vec<u8>)>)>;

/// What one transaction did to a region, or saw of it.
struct Step {
    /// The region's counter: how many changed it before.
    after: u64,
    region: u64,
    changes: Changes,
    scans: Scans,
}

fn counter(region: u64) -> Vec<u8> {
    format!("count/{region}").into_bytes()
}

fn in_region(region: u64, key: u64) -> Vec<u8> {
    format!("r{region}/{key:04}").into_bytes()
}

fn count<X: KvTx>(tx: &X, region: u64) -> Result<u64> {
    let value = tx.get(&counter(region))?.and_then(|value| value.try_into().ok());
    Ok(value.map_or(0, u64::from_le_bytes))
}

fn keys_of(region: u64, rng: &mut Rng) -> Keys {
    let from = rng.below(KEYS);
    let to = if rng.below(3) == 0 { KEYS } else { (from + rng.below(40)).min(KEYS) };
    let keys = Keys::from(&in_region(region, from)).until(&in_region(region, to));
    let keys = if rng.below(4) == 0 { Keys::prefix(format!("r{region}/").as_bytes()) } else { keys };
    if rng.below(2) == 0 { keys.reverse() } else { keys }
}

/// Writers count in their region, which puts them in a row; each scan knows by the counter which state it must find.
fn scans_agree_with_a_model<S: Subject>(s: &Arc<S>) {
    for &level in s.levels() {
        let store = &s.fresh();
        let mut steps: Vec<Step> = threads(THREADS, |thread| {
            let mut rng = Rng::seeded(thread);
            let some = |round: u64| {
                if thread == 0 || round.is_multiple_of(4) {
                    look(store, level, &mut rng)
                } else {
                    change(store, level, &mut rng)
                }
            };
            (0..250).map(some).collect::<Vec<_>>()
        })
        .into_iter()
        .flatten()
        .collect();
        steps.push(look(store, level, &mut Rng::seeded(99)));
        steps.sort_by_key(|step| (step.region, step.after, !step.changes.is_empty()));
        let mut models: BTreeMap<u64, (u64, Model)> = BTreeMap::new();
        for Step { after, region, changes, scans } in steps {
            let (count, model) = models.entry(region).or_default();
            assert_eq!(after, *count, "at {level}: a counter of region {region} is lost or seen too early");
            for (keys, found) in scans {
                let wanted = expected(model, &keys);
                let names = |pairs: &[(Vec<u8>, Vec<u8>)]| -> Vec<String> {
                    pairs.iter().map(|(key, _)| String::from_utf8_lossy(key).into_owned()).collect()
                };
                let (seen, there) = (names(&found), names(&wanted));
                assert!(found == wanted, "at {level}, after {after}: {keys:?} has\n{there:?}, seen\n{seen:?}");
            }
            *count += u64::from(!changes.is_empty());
            for (key, value) in changes {
                match value {
                    Some(value) => _ = model.insert(key, value),
                    None => _ = model.remove(&key),
                }
            }
        }
    }
}

fn scans<X: KvTx>(tx: &X, region: u64, rng: &mut Rng) -> Result<Scans> {
    let some = (0..1 + rng.below(2)).map(|_| keys_of(region, rng));
    some.map(|keys| scanned(tx, &keys).map(|found| (keys, found))).collect()
}

fn look<K: Kv>(store: &K, level: Isolation, rng: &mut Rng) -> Step {
    let region = rng.below(REGIONS);
    let random = rng.clone();
    rng.draw();
    patiently(store, level, |tx| {
        let mut rng = random.clone();
        // The counter first or last.
        let last = rng.below(2) == 0;
        let mut after = if last { 0 } else { count(tx, region)? };
        let scans = scans(tx, region, &mut rng)?;
        if last {
            after = count(tx, region)?;
        }
        Ok(Step { after, region, changes: Vec::new(), scans })
    })
}

/// Scans, then inserts and deletes, more of the one in turn, so that leaves split and merge.
fn change<K: Kv>(store: &K, level: Isolation, rng: &mut Rng) -> Step {
    let region = rng.below(REGIONS);
    let random = rng.clone();
    rng.draw();
    patiently(store, level, |tx| {
        let mut rng = random.clone();
        let after = count(tx, region)?;
        let scans = scans(tx, region, &mut rng)?;
        let start = rng.below(KEYS);
        let mut changes = Changes::new();
        for n in 0..1 + rng.below(12) {
            let key = in_region(region, (start + n * (1 + after % 3)) % KEYS);
            if rng.below(10) < if after / 40 % 2 == 0 { 8 } else { 2 } {
                let value = vec![rng.draw() as u8; rng.below(60) as usize];
                tx.put(&key, &value)?;
                changes.push((key, Some(value)));
            } else {
                tx.delete(&key)?;
                changes.push((key, None));
            }
        }
        tx.put(&counter(region), &(after + 1).to_le_bytes())?;
        Ok(Step { after, region, changes, scans })
    })
}

/// The levels above snapshot.
fn serializable<S: Subject>(s: &S) -> impl Iterator<Item = Isolation> + '_ {
    s.levels().iter().copied().filter(|level| s.kept(*level) >= Isolation::Serializable)
}

fn how_many<X: KvTx>(tx: &X, keys: &Keys) -> Result<usize> {
    let mut count = 0;
    tx.scan(keys, &mut |_, _| {
        count += 1;
        ControlFlow::Continue(())
    })?;
    Ok(count)
}

/// A transaction that finds less than three of a kind adds one, under a name of its own: there are never four.
fn no_more_than<S: Subject>(s: &Arc<S>) {
    const KINDS: u64 = 4;
    for level in serializable(&**s) {
        let store = &s.fresh();
        threads(THREADS, |thread| {
            let mut rng = Rng::seeded(thread);
            for round in 0..150 {
                let kind = format!("kind{}/", rng.below(KINDS));
                let (keys, deletes) = (Keys::prefix(kind.as_bytes()), rng.below(3) == 0);
                let keys = if rng.below(2) == 0 { keys.reverse() } else { keys };
                let most = patiently(store, level, |tx| {
                    let count = how_many(tx, &keys)?;
                    std::thread::yield_now();
                    if count < 3 {
                        tx.put(format!("{kind}{:03}.{thread}", round % 20).as_bytes(), b"1")?;
                    } else if deletes {
                        for (key, _) in scanned(tx, &keys)?.iter().take(2) {
                            tx.delete(key)?;
                        }
                    }
                    Ok(count)
                });
                assert!(most <= 3, "at {level}: {most} where at most 3 may be");
            }
        });
        for kind in 0..KINDS {
            let count = must(store, |tx| how_many(tx, &Keys::prefix(format!("kind{kind}/").as_bytes())));
            assert!(count <= 3, "at {level}: {count} where at most 3 may be");
        }
    }
}

/// A key is inserted if its twin is not there, and the other way round: there are never both.
fn one_of_two<S: Subject>(s: &Arc<S>) {
    for level in serializable(&**s) {
        let store = &s.fresh();
        threads(THREADS, |thread| {
            let mut rng = Rng::seeded(thread);
            for _ in 0..250 {
                let number = rng.below(4);
                let mut pair = [format!("a{number}"), format!("b{number}")];
                pair.rotate_left(thread as usize % 2);
                let deletes = rng.below(3) == 0;
                let both = patiently(store, level, |tx| {
                    let twin = tx.get(pair[1].as_bytes())?.is_some();
                    std::thread::yield_now();
                    if deletes {
                        tx.delete(pair[0].as_bytes())?;
                    } else if !twin {
                        tx.put(pair[0].as_bytes(), b"1")?;
                    }
                    Ok(twin && tx.get(pair[0].as_bytes())?.is_some())
                });
                assert!(!both, "at {level}: both of {pair:?}");
            }
        });
    }
}
