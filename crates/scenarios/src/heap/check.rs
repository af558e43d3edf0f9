//! Holds a recovered heap against what was promised.

use std::collections::BTreeMap;
use std::sync::Arc;

use crash::{History, Sim, Violation, Witness};
use heap::{Heap, Policy};
use pmem::PPtr;
use tx::{Engine, Isolation, Transaction, Typed};

use super::op::{CELLS, NODE};
use super::work::{BARE_SHIFT, CHANGED, Effect, NODE_HEADER, fill, place};
use super::{Cells, Root, SLOTS, root_of};

/// By cell and word. A node's number stands for the pointer.
pub(super) type Words = BTreeMap<(usize, usize), u64>;

pub(super) struct Seen {
    pub(super) words: Words,
    /// Blocks in use: where, and their bytes at least.
    pub(super) reachable: Vec<(u64, u64)>,
}

pub(super) fn look(heap: &Heap, root: &Root) -> tx::Result<Result<Seen, Violation>> {
    let tx = heap.begin(Isolation::Strict)?;
    let mut seen = Seen { words: Words::new(), reachable: vec![(tx.root_cell().offset(), 16)] };
    seen.reachable.push((tx.root::<Root>()?.offset(), size_of::<Root>() as u64));
    seen.reachable.push((root.probes.offset(), 8 * SLOTS as u64));
    for (cell, count) in CELLS.into_iter().enumerate() {
        seen.reachable.push((root.cells[cell].offset(), 8 * (1 + count as u64)));
        let word = |word| -> tx::Result<u64> {
            Ok(tx.bytes(place(root, cell, word), 8)?.try_into().map_or(0, u64::from_le_bytes))
        };
        for at in 0..count {
            seen.words.insert((cell, at), word(at)?);
        }
        let node = PPtr::<u8>::from_raw(word(NODE)?);
        let mut number = 0;
        if !node.is_null() {
            let header: [u64; 2] = *tx.read(node.cast())?;
            let (len, bare) = (header[1] & ((1 << BARE_SHIFT) - 1), header[1] >> BARE_SHIFT != 0);
            number = header[0];
            let bytes = tx.bytes(node, len)?;
            let mut pattern = vec![0; bytes.len().saturating_sub(NODE_HEADER as usize)];
            if !bare {
                fill(&mut pattern, number);
            }
            if len < NODE_HEADER || bytes[NODE_HEADER as usize..] != pattern[..] {
                return Ok(Err(Violation::new(format!("node {number} of cell {cell} has wrong contents"))));
            }
            seen.reachable.push((node.offset(), len));
        }
        seen.words.insert((cell, NODE), number);
    }
    Ok(Ok(seen))
}

/// What the words hold after these transactions, in the order of their numbers.
fn expected<'a>(effects: impl Iterator<Item = &'a Effect>) -> Words {
    let mut effects: Vec<_> = effects.collect();
    effects.sort_by_key(|e| e.number);
    let mut words = Words::new();
    for effect in effects {
        for &(cell, word, value) in &effect.words {
            words.insert((cell, word), value);
        }
    }
    words
}

fn difference(seen: &Words, expected: &Words) -> Option<String> {
    let wrong = seen.iter().find(|(at, value)| expected.get(at).copied().unwrap_or(0) != **value);
    wrong.map(|(at, value)| {
        let wanted = expected.get(at).copied().unwrap_or(0);
        let at = if at.1 == NODE { format!("node of cell {}", at.0) } else { format!("cell {} word {}", at.0, at.1) };
        format!("{at} holds {value}, expected {wanted}")
    })
}

/// All acknowledged transactions and some of those in doubt, each whole.
fn whole(seen: &Words, history: &History<Effect>) -> Result<(), Violation> {
    let doubt = &history.in_doubt;
    let mut first = None;
    for chosen in 0..1u32 << doubt.len().min(8) {
        let some = doubt.iter().enumerate().filter(|(at, _)| chosen >> at & 1 != 0).map(|(_, e)| e);
        let left_out = |number| doubt.iter().enumerate().any(|(at, e)| chosen >> at & 1 == 0 && e.number == number);
        if history.acknowledged.iter().chain(some.clone()).flat_map(|e| &e.saw).any(|&number| left_out(number)) {
            first = first.or_else(|| Some("what a transaction saw is not there, and it is".into()));
            continue;
        }
        match difference(seen, &expected(history.acknowledged.iter().chain(some))) {
            None => return Ok(()),
            Some(wrong) => first = first.or(Some(wrong)),
        }
    }
    let numbers: Vec<u64> = doubt.iter().map(|e| e.number).collect();
    Err(Violation::new(format!("{}; in doubt {numbers:?}", first.unwrap_or_default())))
}

/// Each word as acknowledged, or as a transaction in doubt left it, or had it on the way: what it changes before a `put_bytes` has the last word.
fn pieces(seen: &Words, history: &History<Effect>) -> Result<(), Violation> {
    let sure = expected(history.acknowledged.iter());
    for (at, value) in seen {
        let left = |w: &(usize, usize, u64)| (w.0, w.1) == *at && w.2 % CHANGED == *value % CHANGED;
        let doubt = history.in_doubt.iter().flat_map(|e| &e.words).any(left);
        if sure.get(at).copied().unwrap_or(0) != *value && !doubt {
            return Err(Violation::new(format!("{at:?} holds {value}, acknowledged {:?}", sure.get(at))));
        }
    }
    Ok(())
}

pub(crate) fn no_leaks(heap: &Heap, mut reachable: Vec<(u64, u64)>) -> Result<(), Violation> {
    let mut live = Vec::new();
    heap.live_blocks(|offset, len| live.push((offset, len))).map_err(Violation::detected)?;
    live.sort_unstable();
    reachable.sort_unstable();
    if live.windows(2).any(|w| w[0].0 + w[0].1 > w[1].0) {
        return Err(Violation::new(format!("blocks overlap: {live:?}")));
    }
    let same = live.len() == reachable.len() && live.iter().zip(&reachable).all(|(b, o)| b.0 == o.0 && b.1 >= o.1);
    if same { Ok(()) } else { Err(Violation::new(format!("allocated {live:?}, reachable {reachable:?}"))) }
}

/// One transaction in each slot.
pub(super) fn probe(heap: &Heap, root: &Root) -> tx::Result<[u64; SLOTS]> {
    let mut taken = Vec::new();
    let mut found = [0; SLOTS];
    for (at, found) in (0..).zip(&mut found) {
        let mut tx = heap.begin(Isolation::Strict)?;
        let word = PPtr::<u64>::new(root.probes.tag(), root.probes.offset() + 8 * at);
        let value = tx.write(word)?;
        *value += 1;
        *found = *value;
        tx.commit()?;
        taken.push(heap.begin(Isolation::Strict)?); // the same slot: the next transaction gets another one
    }
    Ok(found)
}

fn probes(heap: &Heap, root: &Root) -> tx::Result<[u64; SLOTS]> {
    Ok(*heap.begin(Isolation::Strict)?.read(root.probes)?)
}

pub(super) fn check(cells: &Cells, sim: &Arc<Sim>, history: &History<Effect>) -> Result<Vec<u64>, Violation> {
    let open = || cells.open(sim, None).map_err(|e| Violation::detected(e.to_string()));
    let see = |heap: &Heap, root: &Root| look(heap, root).map_err(Violation::detected)?;
    let (heap, pool) = open()?;
    let root = root_of(&heap).map_err(Violation::detected)?;
    let seen = see(&heap, &root)?;
    let policy = heap.policy();
    if policy == Policy::None {
        pieces(&seen.words, history)?;
    } else {
        whole(&seen.words, history)?;
        no_leaks(&heap, seen.reachable)?;
    }
    // What is in doubt may go at any time where nothing is rolled back.
    let state: Vec<u64> = seen.words.values().copied().filter(|_| policy != Policy::None).collect();
    let digest = state.iter().fold(7u64, |h, n| h.wrapping_mul(0x1_0000_01b3) ^ n) >> 1;
    let _witness = Witness::of(digest)?;
    drop((heap, pool));

    let (heap, pool) = open()?;
    let again = heap.recovery();
    if again.records + again.zones + again.copies + again.undone > 0 {
        return Err(Violation::new(format!("a second recovery found something to do: {again:?}")));
    }
    let made = probe(&heap, &root).map_err(Violation::detected)?;
    drop((heap, pool));

    let (heap, pool) = open()?;
    let found = probes(&heap, &root).map_err(Violation::detected)?;
    if found != made {
        return Err(Violation::new(format!("after recovery {made:?} were committed, found {found:?}")));
    }
    let after = see(&heap, &root)?;
    if policy != Policy::None && after.words != seen.words {
        return Err(Violation::new("what recovery showed is not there any more"));
    }
    drop((heap, pool));
    Ok(state)
}
