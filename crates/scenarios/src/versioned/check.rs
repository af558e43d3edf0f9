//! Holds a recovered store against its history: the blocks that there are, with all of their bytes. So a block too many is a leak.

use std::sync::Arc;

use crash::{History, Sim, Violation, Witness};
use mvcc::{Mvcc, Options};
use pmem::PPtr;
use tx::{Engine, Isolation, Transaction, Typed};

use super::SLOTS;
use crate::contents::{Effect, Objects, PROBE, difference, held};

struct Found {
    /// The program's.
    objects: Objects,
    /// Where the counters are, and what they say.
    probe: (u64, Vec<u64>),
}

fn look(store: &Mvcc) -> Result<Found, Violation> {
    let mut live = Vec::new();
    store.live_blocks(|at, len| live.push((at, len))).map_err(Violation::detected)?;
    live.sort_unstable();
    if live.windows(2).any(|w| w[0].0 + w[0].1 > w[1].0) {
        return Err(Violation::new(format!("blocks overlap: {live:?}")));
    }
    let tx = store.begin(Isolation::Snapshot).map_err(Violation::detected)?;
    let cell = tx.root_cell().offset();
    let mut found = Found { objects: Objects::new(), probe: (0, Vec::new()) };
    for (at, len) in live {
        let bytes = tx.bytes(PPtr::new(store.pool().tag(), at), len).map_err(Violation::detected)?;
        let words: Vec<u64> = bytes.chunks_exact(8).map(|w| w.try_into().map_or(0, u64::from_le_bytes)).collect();
        match words[..] {
            [PROBE, ref counts @ ..] => found.probe = (at, counts[..SLOTS].to_vec()),
            _ if at == cell => {}
            _ => drop(found.objects.insert(at, bytes.to_vec())),
        }
    }
    Ok(found)
}

/// Every slot goes on: it commits, and what it changes in the program's objects it takes back.
fn go_on(store: &Mvcc, found: &Found) -> tx::Result<Vec<u64>> {
    let ptr = |at| PPtr::<u8>::new(store.pool().tag(), at);
    let mut taken = Vec::new();
    let mut counts = Vec::new();
    let mut objects = found.objects.iter();
    for slot in 1..=SLOTS as u64 {
        if let Some((&at, bytes)) = objects.next() {
            let mut tx = store.begin(Isolation::Strict)?;
            tx.bytes_mut(ptr(at), bytes.len() as u64)?.fill(0xEE);
            tx.abort()?;
        }
        let mut tx = store.begin(Isolation::Strict)?;
        let value = tx.write(ptr(found.probe.0 + 8 * slot).cast::<u64>())?;
        *value += 1;
        counts.push(*value);
        tx.commit()?;
        taken.push(store.begin(Isolation::Strict)?); // the same slot: the next transaction gets another one
    }
    Ok(counts)
}

pub(super) fn check(options: &Options, sim: &Arc<Sim>, history: &History<Effect>) -> Result<Objects, Violation> {
    let open = || super::open(sim, options).map_err(|e| Violation::detected(e.to_string()));
    let (store, pool) = open()?;
    let found = look(&store)?;
    held(&found.objects, Objects::new(), history)?;
    let bytes = found.objects.iter().flat_map(|(at, bytes)| at.to_le_bytes().into_iter().chain(bytes.iter().copied()));
    let seen = bytes.fold(7u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x1_0000_01b3));
    let _witness = Witness::of(seen >> 1)?;
    let counts = go_on(&store, &found).map_err(Violation::detected)?;
    drop(pool);
    store.abandon();

    let (store, pool) = open()?;
    let again = look(&store)?;
    if again.probe.1 != counts {
        return Err(Violation::new(format!("after recovery {counts:?} were committed, found {:?}", again.probe.1)));
    }
    if let Some(wrong) = difference(&again.objects, &found.objects) {
        return Err(Violation::new(format!("after recovery {wrong}")));
    }
    drop(pool);
    store.abandon();
    Ok(found.objects)
}
