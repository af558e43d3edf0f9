//! Maps against a sorted map of the standard library.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use pmem::PPtr;
use structures::Map;
use tx::{Engine, Error, Isolation, Keys, Result, Transaction};

use crate::failure::{Failure, same};
use crate::random::Random;

/// One step of a model test.
#[derive(Clone, Debug)]
pub enum Op {
    /// Sets a key.
    Put(Vec<u8>, Vec<u8>),
    /// Removes a key.
    Delete(Vec<u8>),
    /// Looks a key up.
    Get(Vec<u8>),
    /// Scans, up to so many pairs.
    Scan(Keys, usize),
    /// Ends the transaction with a commit.
    Commit,
    /// Ends the transaction with an abort.
    Abort,
}

/// What the structure and the engine can do.
#[derive(Clone, Copy, Debug)]
pub struct Features {
    /// Keys have an order.
    pub ordered: bool,
    /// The engine can abort.
    pub aborts: bool,
}

/// `count` steps from a seed.
pub fn ops(seed: u64, count: usize) -> Vec<Op> {
    let mut random = Random(seed);
    let mut op = || match random.below(100) {
        0..45 => {
            let most = [8, 40, 300, 3000][random.below(4) as usize];
            Op::Put(random.key(), random.bytes(most))
        }
        45..70 => Op::Delete(random.key()),
        70..85 => Op::Get(random.key()),
        85..90 => {
            let mut bound = || match random.below(3) {
                0 => Bound::Unbounded,
                1 => Bound::Included(random.key()),
                _ => Bound::Excluded(random.key()),
            };
            let (from, to) = (bound(), bound());
            let reverse = random.below(2) == 0;
            Op::Scan(Keys { from, to, reverse }, random.below(50) as usize)
        }
        90..97 => Op::Commit,
        _ => Op::Abort,
    };
    (0..count).map(|_| op()).collect()
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Runs the steps on the structure and on a plain map, and compares.
///
/// # Errors
/// The first difference.
pub fn against_model<E: Engine, M: Map>(engine: &E, map: M, ops: &[Op], features: Features) -> Result<(), Failure> {
    let mut committed = Model::new();
    for group in ops.split_inclusive(|op| matches!(op, Op::Commit | Op::Abort)) {
        let mut model = committed.clone();
        let mut tx = engine.begin(Isolation::Strict)?;
        for (step, op) in group.iter().enumerate() {
            same_step(&mut tx, map, &mut model, op, features).map_err(|e| format!("{e}\nstep {step}: {op:?}"))?;
        }
        same_all(&tx, map, &model)?;
        if matches!(group.last(), Some(Op::Abort)) && features.aborts {
            tx.abort()?;
        } else {
            tx.commit()?;
            committed = model;
        }
        let tx = engine.begin(Isolation::Strict)?;
        same_all(&tx, map, &committed)?;
        tx.commit()?;
    }
    Ok(())
}

fn same_step<X: Transaction, M: Map>(
    tx: &mut X,
    map: M,
    model: &mut Model,
    op: &Op,
    features: Features,
) -> Result<(), Failure> {
    match op {
        Op::Put(key, value) => {
            let had = model.insert(key.clone(), value.clone()).is_some();
            same("put", map.put(tx, key, value)?, had)?;
            same("its value", map.get(tx, key)?, Some(&value[..]))
        }
        Op::Delete(key) => {
            same("delete", map.delete(tx, key)?, model.remove(key).is_some())?;
            same("what was deleted", map.contains(tx, key)?, false)
        }
        Op::Get(key) => same("get", map.get(tx, key)?, model.get(key).map(Vec::as_slice)),
        Op::Scan(keys, most) if features.ordered => {
            let mut found = Vec::new();
            map.scan(tx, keys, &mut |key, value| {
                found.push((key.to_vec(), value.to_vec()));
                if found.len() < *most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            let mut expected: Vec<_> = model.iter().filter(|(key, _)| keys.contains(key)).collect();
            if keys.reverse {
                expected.reverse();
            }
            expected.truncate((*most).max(1));
            same("scan", found.iter().map(|(key, value)| (key, value)).collect(), expected)
        }
        Op::Scan(keys, _) => {
            let refused = map.scan(tx, keys, &mut |_, _| ControlFlow::Continue(()));
            same("scan without order", matches!(refused, Err(Error::Unordered)), true)
        }
        Op::Commit | Op::Abort => Ok(()),
    }
}

fn same_all<X: Transaction, M: Map>(tx: &X, map: M, model: &Model) -> Result<(), Failure> {
    let report = map.verify(tx)?;
    let (key_bytes, value_bytes) =
        model.iter().fold((0, 0), |(k, v), (key, value)| (k + key.len() as u64, v + value.len() as u64));
    same("pairs", report.entries, model.len() as u64)?;
    same("length", map.len(tx)?, model.len() as u64)?;
    same("bytes of keys", report.key_bytes, key_bytes)?;
    same("bytes of values", report.value_bytes, value_bytes)?;
    let mut found = Model::new();
    map.for_each(tx, |key, value| {
        found.insert(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    })?;
    same("all pairs", &found, model)
}

/// Threads that move amounts between keys, and put and delete keys of their own: the sum stays the same in every transaction.
///
/// # Errors
/// The first thing that is wrong.
pub fn concurrently<E, M>(engine: &E, map: M, threads: u64, rounds: u64) -> Result<(), Failure>
where
    E: Engine + Sync,
    M: Map + Sync,
{
    const ACCOUNTS: u64 = 20;
    const EACH: u64 = 1000;
    let account = |n: u64| format!("account {n}").into_bytes();
    let amount = |value: Option<&[u8]>| value.and_then(|v| Some(u64::from_le_bytes(v.try_into().ok()?)));
    engine.transact(Isolation::Strict, |tx| -> Result<()> {
        (0..ACCOUNTS).try_for_each(|n| map.put(tx, &account(n), &EACH.to_le_bytes()).map(drop))
    })?;

    let sum = |tx: &E::Tx<'_>| -> Result<u64> {
        (0..ACCOUNTS).try_fold(0, |sum, n| Ok(sum + amount(map.get(tx, &account(n))?).unwrap_or(0)))
    };
    let run = |thread: u64| -> Result<(), Error> {
        let mut random = Random(thread);
        for round in 0..rounds {
            let (from, to, moved) = (random.below(ACCOUNTS), random.below(ACCOUNTS), random.below(100));
            engine.transact(Isolation::Strict, |tx| -> Result<()> {
                let left = amount(map.get(tx, &account(from))?).unwrap_or(0);
                if from == to || left < moved {
                    return Ok(());
                }
                let right = amount(map.get(tx, &account(to))?).unwrap_or(0);
                map.put(tx, &account(from), &(left - moved).to_le_bytes())?;
                map.put(tx, &account(to), &(right + moved).to_le_bytes())?;
                Ok(())
            })?;
            let own = |n: u64| format!("{thread}/{n}").into_bytes();
            engine.transact(Isolation::Strict, |tx| -> Result<()> {
                map.put(tx, &own(round), &own(round))?;
                if round >= 10 && !map.delete(tx, &own(round - 10))? {
                    return Err(tx::Typed::refuse(tx, format!("{thread}/{} is gone", round - 10)));
                }
                Ok(())
            })?;
            if round % 16 == 0 {
                let found = engine.transact(Isolation::Strict, |tx| sum(tx))?;
                if found != ACCOUNTS * EACH {
                    return Err(Error::Aborted { reason: format!("the sum is {found}") });
                }
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let run = &run;
        let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        handles
            .into_iter()
            .try_for_each(|handle| handle.join().unwrap_or(Err(Error::Aborted { reason: "a panic".into() })))
    })?;
    let (report, total) = engine.transact(Isolation::Strict, |tx| -> Result<_> { Ok((map.verify(tx)?, sum(tx)?)) })?;
    same("the sum", total, ACCOUNTS * EACH)?;
    same("pairs", report.entries, ACCOUNTS + threads * rounds.min(10))
}

/// Damages a byte or a word of some block, then does everything with the structure: each operation succeeds or fails, and if `verify`
/// finds nothing, all pairs it counts can be found. Each damage is undone. Returns how many `verify` found.
///
/// # Errors
/// The first thing that is wrong.
pub fn damage<E: Engine, M: Map>(engine: &E, map: M, seed: u64, rounds: usize) -> Result<usize, Failure> {
    let mut random = Random(seed);
    let blocks = engine.transact(Isolation::Strict, |tx| map.blocks(tx))?;
    let mut noticed = 0;
    for round in 0..rounds {
        let block = blocks[random.below(blocks.len() as u64) as usize];
        let other = blocks[random.below(blocks.len() as u64) as usize];
        let (kind, bit, value) = (random.below(4), random.below(64), random.number());
        let (at, before) = engine.transact(Isolation::Strict, |tx| -> Result<_> {
            let words = tx.room(block)? / 8;
            // The first words say most.
            let index = if random.below(2) == 0 { random.below(words.min(8)) } else { random.below(words) };
            let at = PPtr::new(block.tag(), block.offset() + 8 * index);
            let word: &mut u64 = tx::Typed::write(tx, at)?;
            let before = *word;
            *word = match kind {
                0 | 1 => before ^ 1 << bit,
                2 => before & !pmem::OFFSET_MAX | other.offset(),
                _ => value,
            };
            Ok((at, before))
        })?;
        let place = format!("round {round}, seed {seed}, {at:?}");
        noticed += usize::from(!consistent(engine, map, &mut random).map_err(|e| format!("{place}: {e}"))?);
        engine.transact(Isolation::Strict, |tx| -> Result<()> {
            *tx::Typed::write(tx, at)? = before;
            Ok(())
        })?;
    }
    engine.transact(Isolation::Strict, |tx| map.verify(tx))?;
    Ok(noticed)
}

/// True if `verify` finds nothing.
fn consistent<E: Engine, M: Map>(engine: &E, map: M, random: &mut Random) -> Result<bool, Failure> {
    let tx = engine.begin(Isolation::Strict)?;
    let verified = map.verify(&tx);
    tx.abort()?;
    let mut pairs = Vec::new();
    let tx = engine.begin(Isolation::Strict)?;
    let walked = map.for_each(&tx, |key, value| {
        pairs.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    });
    tx.abort()?;
    let tx = engine.begin(Isolation::Strict)?;
    let counted = map.len(&tx);
    tx.abort()?;
    if let Ok(report) = &verified {
        walked?;
        same("length", counted?, report.entries)?;
        same("pairs", pairs.len() as u64, report.entries)?;
        let tx = engine.begin(Isolation::Strict)?;
        for (key, value) in &pairs {
            same("value", map.get(&tx, key)?, Some(&value[..]))?;
        }
        tx.abort()?;
    }
    for _ in 0..4 {
        let (key, value) = (random.key(), random.bytes(100));
        let mut tx = engine.begin(Isolation::Strict)?;
        // Whatever these say: they come back.
        let _ = map.get(&tx, &key).map(drop);
        let _ = map.scan(&tx, &Keys::from(&key).reverse(), &mut |_, _| ControlFlow::Continue(()));
        tx.abort()?;
        tx = engine.begin(Isolation::Strict)?;
        let _ = map.put(&mut tx, &key, &value);
        tx.abort()?;
        tx = engine.begin(Isolation::Strict)?;
        let _ = map.delete(&mut tx, &key);
        tx.abort()?;
    }
    Ok(verified.is_ok())
}
