//! Holds a recovered store against its history, and what it takes of its space against what its contents need.

use crash::{History, Sim, Violation, Witness};
use kv::{Keys, Store};
use pmem::Pool;

use super::kv_values::{Effect, KEYS, Pairs, Values, WATERMARK, bytes, is_live, key, pairs};
use crate::faults::{gone_unnoticed, unnoticed};
use crate::store::is_sound;

/// Segments that are in use beside those of the index and those that the versions fill: where writers go on, as many as had transactions at once, and what is
/// half full.
const BESIDE: u64 = 6;

/// Keys of the check itself begin with it.
const PROBE: u8 = 0xFE;

fn read(store: &Store, reverse: bool) -> kv::Result<Pairs> {
    let snapshot = store.snapshot()?;
    let keys = if reverse { Keys::all().reverse() } else { Keys::all() };
    let mut all = pairs(snapshot.scan(keys))?;
    if reverse {
        all.reverse();
    }
    Ok(all)
}

/// All that was acknowledged, and of what is in doubt the first ones, each whole. But so many of the last that were acknowledged may be missing, with all behind them: how many are?
fn held(found: &Pairs, history: &History<Effect>, unnoticed: usize) -> Result<usize, Violation> {
    let mut values = Values::new();
    let mut before = vec![values.clone()];
    for effect in &history.acknowledged {
        effect.apply(&mut values);
        before.push(values.clone());
    }
    let mut allowed = vec![values.clone()];
    for effect in &history.in_doubt {
        effect.apply(&mut values);
        allowed.push(values.clone());
    }
    let shown = |values: &Values| -> kv::Result<Pairs> {
        values.iter().filter(|(_, v)| is_live(v)).map(|(n, v)| Ok((key(*n)?, bytes(*v)))).collect()
    };
    let mut right = Vec::new();
    for values in &allowed {
        if shown(values).map_err(Violation::detected)? == *found {
            return Ok(0);
        }
        right.push(values);
    }
    for (lost, values) in before.iter().rev().enumerate().skip(1).take(unnoticed) {
        if shown(values).map_err(Violation::detected)? == *found {
            return Ok(lost);
        }
    }
    let show: Vec<_> =
        found.iter().map(|(k, v)| (k, v.len(), v.first_chunk().map(|n| u64::from_le_bytes(*n)))).collect();
    Err(Violation::new(format!("the store holds {show:?}, and should hold one of {right:?}")))
}

/// Behind some checkpoints nothing is in use but the versions that are needed, the index, and where writers go on: whatever a crash, or any sequence of operations, left
/// half done, its space comes back.
fn space(store: &Store) -> Result<(), Violation> {
    let stats = store.stats();
    let (used, full) = (stats.segments - stats.free_segments, stats.live_bytes.div_ceil(stats.segment_bytes));
    if used > stats.index_segments + full + BESIDE {
        return Err(Violation::new(format!("{used} segments are in use, for versions of {full}: {stats:?}")));
    }
    Ok(())
}

/// It takes what comes next, checkpoints, and is sound.
fn go_on(store: &Store, all: &Pairs) -> Result<(), Violation> {
    let mut right = all.clone();
    let round = all.iter().find(|(key, _)| key[0] == PROBE).map_or(0, |(_, value)| value[0].wrapping_add(1));
    let (mine, value) = (vec![PROBE], vec![round; 700]);
    store.put(&mine, &value).map_err(Violation::detected)?;
    store.put(&[PROBE, 1], &value).map_err(Violation::detected)?;
    if !store.delete(&[PROBE, 1]).map_err(Violation::detected)? {
        return Err(Violation::new("what was just written cannot be deleted"));
    }
    right.retain(|(key, _)| key[0] != PROBE);
    right.push((mine, value));
    right.sort();
    for _ in 0..3 {
        store.checkpoint().map_err(Violation::detected)?;
    }
    if read(store, false).map_err(Violation::detected)? != right {
        return Err(Violation::new("after recovery the store does not keep what it is given"));
    }
    let checked = store.check(|_| ()).map_err(Violation::detected)?;
    if !checked.is_sound() {
        return Err(Violation::new(format!("after recovery the store is not sound: {checked:?}")));
    }
    space(store)
}

pub(super) fn check(
    open: impl FnOnce() -> kv::Result<(Store, Pool)>,
    bound: u32,
    sim: &Sim,
    history: &History<Effect>,
) -> Result<Pairs, Violation> {
    let (store, pool) = open().map_err(Violation::detected)?;
    let unnoticed = match unnoticed(sim.planted(), WATERMARK as usize) {
        0 => 0,
        _ if pool.was_clean() => 0,
        // Those since the last barrier but one, too; recovery is none.
        most => most.max(2 * bound as usize),
    };
    if sim.planted().is_some() {
        is_sound(&store)?;
    }
    let all = read(&store, false).map_err(Violation::detected)?;
    if read(&store, true).map_err(Violation::detected)? != all {
        return Err(Violation::new("backwards the store shows something else"));
    }
    let shown: Pairs = all.iter().filter(|(key, _)| key[0] != PROBE).cloned().collect();
    for n in 0..KEYS {
        let name = key(n).map_err(Violation::detected)?;
        let there = shown.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone());
        if store.get(&name).map_err(Violation::detected)? != there {
            return Err(Violation::new(format!("key {n} is found by a scan and not by a look-up, or the other way")));
        }
    }
    let lost = held(&shown, history, unnoticed)?;
    let seen = shown.iter().flat_map(|(k, v)| k.iter().chain(v));
    let seen = seen.fold(7u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x1_0000_01b3));
    let _witness = Witness::of(seen)?;
    go_on(&store, &all)?;
    gone_unnoticed(lost, "transactions")?;
    Ok(shown)
}
