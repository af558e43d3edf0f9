//! Holds a recovered structure against what was promised.

use std::ops::ControlFlow::Continue;
use std::sync::Arc;

use crash::{History, Sim, Violation, Witness};
use heap::{Heap, Tx};
use structures::Map;
use tx::{Engine, Isolation, Keys, Transaction};

use super::values::{Effect, Seen, at_first, parse, value};
use super::{Kind, Pairs};
use crate::heap::no_leaks;

/// The key that checks themselves put; in a tree it is in the midst of the others.
const PROBE: &[u8] = b"beginning that all of the keys have and05 too";
/// Lengths of its values: what it needs changes each time.
const PROBE_LENS: [usize; 3] = [8, 40, 600];

/// Blocks: where, and their bytes at least.
type Blocks = Vec<(u64, u64)>;

/// All pairs but the probe, and all blocks; or what contradicts itself.
pub(super) fn look<K: Kind>(pairs: &Pairs<K>, tx: &Tx<'_>) -> tx::Result<Result<(Seen, Blocks), Violation>> {
    let map = pairs.kind.open(tx)?;
    let report = map.verify(tx)?;
    let (mut all, mut seen) = (Vec::new(), Seen::new());
    map.for_each(tx, |key, value| {
        all.push((key.to_vec(), value.to_vec()));
        Continue(())
    })?;
    let wrong = |what: String| Ok(Err(Violation::new(what)));
    if (all.len() as u64, all.len() as u64) != (report.entries, map.len(tx)?) {
        return wrong(format!(
            "{} pairs where {} were verified and {} counted",
            all.len(),
            report.entries,
            map.len(tx)?
        ));
    }
    for (key, bytes) in &all {
        if map.get(tx, key)? != Some(bytes) {
            return wrong(format!("{:?} is met on the way, and not found", String::from_utf8_lossy(key)));
        }
        let Some(found) = parse(bytes) else {
            return wrong(format!("{:?} has bytes that nobody wrote", String::from_utf8_lossy(key)));
        };
        match pairs.keys.iter().position(|k| k == key) {
            Some(at) => _ = seen.insert(at, found),
            None if key == PROBE => {}
            None => return wrong(format!("{key:?} was never put")),
        }
    }
    if K::ORDERED {
        let mut backwards = Vec::new();
        map.scan(tx, &Keys::all().reverse(), &mut |key, _| {
            backwards.push(key.to_vec());
            Continue(())
        })?;
        if !backwards.iter().rev().eq(all.iter().map(|(key, _)| key)) || !backwards.is_sorted_by(|a, b| a > b) {
            return wrong("forwards and backwards are not the same".to_owned());
        }
    }
    let mut blocks = vec![(tx.root_cell().offset(), 16)];
    for block in map.blocks(tx)? {
        blocks.push((block.offset(), tx.room(block)?));
    }
    if blocks.len() as u64 != report.blocks + 1 {
        return wrong(format!("{} blocks where {} were verified", blocks.len() - 1, report.blocks));
    }
    Ok(Ok((seen, blocks)))
}

fn expected<'a>(start: usize, effects: impl Iterator<Item = &'a Effect>) -> Seen {
    let mut effects: Vec<_> = effects.collect();
    effects.sort_by_key(|e| e.number);
    let mut pairs = at_first(start);
    for effect in effects {
        for &(key, len) in &effect.keys {
            match len {
                Some(len) => _ = pairs.insert(key, (effect.number, len)),
                None => _ = pairs.remove(&key),
            }
        }
    }
    pairs
}

/// All acknowledged transactions and some of those in doubt, each whole.
pub(super) fn as_promised(seen: &Seen, start: usize, history: &History<Effect>) -> Result<(), Violation> {
    let doubt = &history.in_doubt;
    for chosen in 0..1u32 << doubt.len().min(8) {
        let some = doubt.iter().enumerate().filter(|(at, _)| chosen >> at & 1 != 0).map(|(_, e)| e);
        if *seen == expected(start, history.acknowledged.iter().chain(some)) {
            return Ok(());
        }
    }
    let sure = expected(start, history.acknowledged.iter());
    let keys = seen.keys().chain(sure.keys());
    let wrong = keys.filter(|key| seen.get(key) != sure.get(key)).min();
    let (found, wanted) = wrong.map_or((None, None), |key| (seen.get(key), sure.get(key)));
    let numbers: Vec<u64> = doubt.iter().map(|e| e.number).collect();
    let key = wrong.copied().unwrap_or_default();
    Err(Violation::new(format!("key {key}: found {found:?}, acknowledged {wanted:?}; in doubt {numbers:?}")))
}

/// What is there, once nothing is lost or shared.
fn see<K: Kind>(pairs: &Pairs<K>, heap: &Heap) -> Result<Seen, Violation> {
    let tx = heap.begin(Isolation::Strict).map_err(Violation::detected)?;
    let (seen, blocks) = look(pairs, &tx).map_err(Violation::detected)??;
    drop(tx);
    no_leaks(heap, blocks)?;
    Ok(seen)
}

/// Puts a value of the next number and another length, and finds it.
fn probe<K: Kind>(pairs: &Pairs<K>, heap: &Heap) -> tx::Result<u64> {
    let mut tx = heap.begin(Isolation::Strict)?;
    let map = pairs.kind.open(&tx)?;
    let number = 1 + map.get(&tx, PROBE)?.and_then(parse).map_or(0, |(number, _)| number);
    map.put(&mut tx, PROBE, &value(number, PROBE_LENS[number as usize % PROBE_LENS.len()]))?;
    let found = map.get(&tx, PROBE)?.and_then(parse).map_or(0, |(number, _)| number);
    tx.commit()?;
    Ok(found)
}

fn probed<K: Kind>(pairs: &Pairs<K>, heap: &Heap) -> tx::Result<u64> {
    let tx = heap.begin(Isolation::Strict)?;
    let found = pairs.kind.open(&tx)?.get(&tx, PROBE)?.and_then(parse);
    Ok(found.map_or(0, |(number, _)| number))
}

pub(super) fn whole<K: Kind>(
    pairs: &Pairs<K>,
    sim: &Arc<Sim>,
    history: &History<Effect>,
) -> Result<Vec<u64>, Violation> {
    let open = || pairs.open(sim).map_err(|e| Violation::detected(e.to_string()));
    let (heap, pool) = open()?;
    let seen = see(pairs, &heap)?;
    as_promised(&seen, pairs.start, history)?;
    let state: Vec<u64> = seen.iter().flat_map(|(&key, &(number, _))| [key as u64, number]).collect();
    let digest = state.iter().fold(7u64, |h, n| h.wrapping_mul(0x1_0000_01b3) ^ n) >> 1;
    let _witness = Witness::of(digest)?;
    let made = probe(pairs, &heap).map_err(Violation::detected)?;
    drop((heap, pool));

    let (heap, pool) = open()?;
    let found = probed(pairs, &heap).map_err(Violation::detected)?;
    if found != made {
        return Err(Violation::new(format!("after recovery {made} was put, found {found}")));
    }
    if see(pairs, &heap)? != seen {
        return Err(Violation::new("what recovery showed is not there any more"));
    }
    drop((heap, pool));
    Ok(state)
}

/// Without rollback. What is in doubt may go at any time, so no state is compared, and nothing is put that a later check would have to know.
pub(super) fn half<K: Kind>(
    pairs: &Pairs<K>,
    sim: &Arc<Sim>,
    history: &History<Effect>,
) -> Result<Vec<u64>, Violation> {
    let (heap, pool) = pairs.open(sim).map_err(|e| Violation::detected(e.to_string()))?;
    if history.in_doubt.is_empty() {
        as_promised(&see(pairs, &heap)?, pairs.start, history)?;
        return Ok(Vec::new());
    }
    sane(pairs, &heap)?;
    for key in [PROBE, &pairs.keys[0]] {
        // Whatever these say: they come back.
        let _ = probe(pairs, &heap);
        if let Ok(mut tx) = heap.begin(Isolation::Strict)
            && let Ok(map) = pairs.kind.open(&tx)
        {
            let _ = map.delete(&mut tx, key);
            let _ = tx.commit();
        }
    }
    let _ = heap.live_blocks(|_, _| {});
    drop((heap, pool));
    Ok(Vec::new())
}

/// What `verify` passes is walked, counted and found alike.
fn sane<K: Kind>(pairs: &Pairs<K>, heap: &Heap) -> Result<(), Violation> {
    let tx = heap.begin(Isolation::Strict).map_err(Violation::detected)?;
    let Ok(map) = pairs.kind.open(&tx) else { return Ok(()) };
    let verified = map.verify(&tx);
    let mut all = Vec::new();
    let walked = map.for_each(&tx, |key, value| {
        all.push((key.to_vec(), value.to_vec()));
        Continue(())
    });
    let Ok(report) = verified else { return Ok(()) };
    walked.map_err(Violation::detected)?;
    let found = all.iter().filter(|(key, value)| map.get(&tx, key).is_ok_and(|found| found == Some(value))).count();
    let counts = [all.len() as u64, found as u64, map.len(&tx).map_err(Violation::detected)?];
    if counts == [report.entries; 3] {
        return Ok(());
    }
    Err(Violation::new(format!("{} pairs verified; walked, found and counted {counts:?}", report.entries)))
}
