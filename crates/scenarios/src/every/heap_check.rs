//! Holds a recovered heap against its history: the blocks that there are, with all of their bytes. So a block too many is a leak.

use crash::{Error, History, Violation, Witness};
use heap::Heap;
use pmem::{PPtr, Pool};
use tx::{Engine, Isolation, Transaction, Typed};

use crate::contents::{Effect, Objects, PROBE, difference, held};

/// Of the heap.
pub(super) const SLOTS: usize = 4;
/// Begins one that it makes, and frees.
const MADE: u64 = 0x4D61_6465_2121_2121;
const MADE_WORDS: usize = 30;

/// What is in a heap.
struct Found {
    cell: u64,
    /// The program's.
    objects: Objects,
    counters: (u64, [u64; SLOTS]),
    /// Of a check that was cut short.
    made: Option<u64>,
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes)).collect()
}

fn look(heap: &Heap) -> Result<Found, Violation> {
    let mut live = Vec::new();
    heap.live_blocks(|at, len| live.push((at, len))).map_err(Violation::detected)?;
    let tx = heap.begin(Isolation::Strict).map_err(Violation::detected)?;
    let cell = tx.root_cell().offset();
    let mut found = Found { cell, objects: Objects::new(), counters: (0, [0; SLOTS]), made: None };
    let mut end = 0;
    live.sort_unstable();
    for (at, len) in live {
        if at < end {
            return Err(Violation::new(format!("the object at {at} begins within the one before")));
        }
        end = at + len;
        let len = if at == cell { 16 } else { len };
        let bytes = tx.bytes(PPtr::new(heap.pool().tag(), at), len).map_err(Violation::detected)?;
        match words(bytes)[..] {
            [PROBE, ref counts @ ..] if counts.len() >= SLOTS => {
                found.counters.0 = at;
                found.counters.1.copy_from_slice(&counts[..SLOTS]);
            }
            [MADE, ref rest @ ..] => {
                let right = rest[..MADE_WORDS - 1].iter().all(|word| *word == MADE);
                if !right || found.made.replace(at).is_some() {
                    return Err(Violation::new(format!("what a check made at {at} is torn, or there twice")));
                }
            }
            _ => drop(found.objects.insert(at, bytes.to_vec())),
        }
    }
    Ok(found)
}

/// Every slot goes on: it commits, what it changes in the program's objects it takes back, and what it makes it frees.
fn go_on(heap: &Heap, found: &Found) -> tx::Result<[u64; SLOTS]> {
    let ptr = |at| PPtr::<u8>::new(heap.pool().tag(), at);
    let mut taken = Vec::new();
    let mut counts = [0; SLOTS];
    let mut objects = found.objects.iter();
    for (slot, count) in (1..).zip(&mut counts) {
        if let Some((&at, bytes)) = objects.next() {
            let mut tx = heap.begin(Isolation::Strict)?;
            tx.bytes_mut(ptr(at), bytes.len() as u64)?.fill(0xEE);
            tx.abort()?;
        }
        let mut tx = heap.begin(Isolation::Strict)?;
        let value = tx.write(ptr(found.counters.0 + 8 * slot).cast::<u64>())?;
        *value += 1;
        *count = *value;
        tx.commit()?;
        taken.push(heap.begin(Isolation::Strict)?); // the same slot: the next transaction gets another one
    }
    drop(taken);
    if let Some(at) = found.made {
        heap.transact(Isolation::Strict, |tx| -> tx::Result<()> { tx.free(ptr(at)) })?;
    }
    let made = heap.transact(Isolation::Strict, |tx| tx.alloc(&[MADE; MADE_WORDS]))?;
    heap.transact(Isolation::Strict, |tx| -> tx::Result<()> { tx.free(made) })?;
    Ok(counts)
}

pub(super) fn check(
    open: impl Fn() -> Result<(Heap, Pool), Error>,
    history: &History<Effect>,
) -> Result<Objects, Violation> {
    let open = || open().map_err(|e| Violation::detected(e.to_string()));
    let (heap, pool) = open()?;
    let found = look(&heap)?;
    held(&found.objects, Objects::from([(found.cell, vec![0; 16])]), history)?;
    let bytes = found.objects.iter().flat_map(|(at, bytes)| at.to_le_bytes().into_iter().chain(bytes.iter().copied()));
    let seen = bytes.fold(7u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x1_0000_01b3));
    let _witness = Witness::of(seen >> 1)?;
    let counts = go_on(&heap, &found).map_err(Violation::detected)?;
    drop(pool);
    heap.abandon();

    let (heap, pool) = open()?;
    let again = look(&heap)?;
    if again.counters.1 != counts || again.made.is_some() {
        return Err(Violation::new(format!("after recovery {counts:?} were committed, found {:?}", again.counters.1)));
    }
    if let Some(wrong) = difference(&again.objects, &found.objects) {
        return Err(Violation::new(format!("after recovery {wrong}")));
    }
    drop(pool);
    heap.abandon();
    Ok(found.objects)
}
