//! The smallest logs, and transactions of any size: a log's end is skipped when a record does not fit there, and none of that may refuse a transaction.
//! `CAIRN_RING_TRANSACTIONS` says how many of each kind.

use heap::{Heap, Intents, Policy};
use pmem::{DomainChoice, PPtr};
use tx::{Engine, Error, Isolation, Range, Transaction, Typed};

use crate::support::{Rng, memory, quiet};

/// An object, its length, what it is filled with.
type Object = (PPtr<u8>, u64, u8);

/// One transaction: up to `changes` of few objects, now and then of many.
fn step(heap: &Heap, rng: &mut Rng, objects: &mut Vec<Object>, big: u64) -> tx::Result<()> {
    let mut tx = heap.begin(Isolation::Strict)?;
    let changes = 1 + if rng.below(5) == 0 { rng.below(60) } else { rng.below(8) };
    if rng.below(3) == 0 && !objects.is_empty() {
        let mut chosen: Vec<usize> = (0..changes).map(|_| rng.below(objects.len() as u64) as usize).collect();
        chosen.sort_unstable();
        chosen.dedup();
        let ranges: Vec<Range> = chosen.iter().map(|&at| Range::new(objects[at].0, objects[at].1)).collect();
        tx.intend(&ranges)?;
    }
    for _ in 0..changes {
        let fill = rng.word() as u8;
        match rng.below(6) {
            0 if objects.len() < 200 => {
                let len = if rng.below(3) == 0 { 1 + rng.below(big) } else { 8 + rng.below(200) };
                let made = tx.alloc_bytes(len, 8)?;
                tx.bytes_mut(made, len)?.fill(fill);
                objects.push((made, len, fill));
            }
            1 if !objects.is_empty() => {
                let (gone, ..) = objects.swap_remove(rng.below(objects.len() as u64) as usize);
                tx.free(gone)?;
            }
            _ if !objects.is_empty() => {
                let at = rng.below(objects.len() as u64) as usize;
                tx.bytes_mut(objects[at].0, objects[at].1)?.fill(fill);
                objects[at].2 = fill;
            }
            _ => {}
        }
    }
    if rng.below(4) == 0 {
        Err(tx.abort().err().unwrap_or(Error::Aborted { reason: "said so".into() }))
    } else {
        tx.commit()
    }
}

#[track_caller]
fn assert_holds(heap: &Heap, objects: &[Object]) {
    let tx = heap.begin(Isolation::Strict).unwrap();
    for (object, len, fill) in objects {
        assert!(tx.bytes(*object, *len).unwrap().iter().all(|byte| byte == fill), "object of {len} bytes");
    }
}

fn run(policy: Policy, intents: Intents, log_bytes: u64, big: u64, seed: u64) {
    let count = std::env::var("CAIRN_RING_TRANSACTIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(1500);
    let dir = memory();
    let path = dir.path().join("p");
    let options = quiet(policy, DomainChoice::Emulated).bytes(32 << 20).log_bytes(log_bytes).intents(intents);
    let heap = Heap::create(&path, &options).unwrap();
    let mut rng = Rng(seed);
    let mut objects = Vec::new();
    for n in 0..count {
        let mut after = objects.clone();
        match step(&heap, &mut rng, &mut after, big) {
            Ok(()) => objects = after,
            Err(Error::Aborted { .. }) => {}
            Err(error) => panic!("{policy:?}, {intents:?}, log of {log_bytes}, seed {seed}, transaction {n}: {error}"),
        }
        if n % 50 == 0 {
            assert_holds(&heap, &objects);
        }
    }
    assert_holds(&heap, &objects);
    heap.close().unwrap();
    assert_holds(&Heap::open(&path, &quiet(policy, DomainChoice::Emulated)).unwrap(), &objects);
}

#[test]
fn undo_refuses_nothing_however_small_its_log() {
    for (log, big, seed) in [(2048, 700, 1), (2048, 3000, 2), (4096, 2000, 3), (4096, 2000, 4), (16 << 10, 6000, 5)] {
        run(Policy::Undo, Intents::Zones, log, big, seed);
    }
}

#[test]
fn in_place_refuses_nothing_however_small_its_log() {
    for intents in [Intents::Zones, Intents::Objects] {
        for (log, seed) in [(2048, 1), (2048, 2), (4096, 3)] {
            run(Policy::InPlace, intents, log, 1500, seed);
        }
    }
}

/// Old bytes of nearly half a log, a word, and what an end has to tell of hundreds of objects.
#[test]
fn one_record_of_half_a_log() {
    let log = 4096;
    let half = (log - 128) / 2;
    for len in (half - 400..half - 80).step_by(24) {
        let dir = memory();
        let options = quiet(Policy::Undo, DomainChoice::Emulated).bytes(4 << 20).log_bytes(log);
        let heap = Heap::create(dir.path().join("p"), &options).unwrap();
        let mut rng = Rng(len);
        let objects = heap
            .transact(Isolation::Strict, |tx| -> tx::Result<_> { Ok([tx.alloc_bytes(len, 8)?, tx.alloc_bytes(8, 8)?]) })
            .unwrap();
        let mut made: Vec<PPtr<u8>> = Vec::new();
        for n in 0..60_u8 {
            for _ in 0..rng.below(40) {
                heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
                    tx.bytes_mut(objects[1], 8)?.fill(n);
                    Ok(())
                })
                .unwrap();
            }
            let changed = heap.transact(Isolation::Strict, |tx| -> tx::Result<_> {
                tx.bytes_mut(objects[0], len)?.fill(n);
                tx.bytes_mut(objects[1], 8)?.fill(n);
                made.iter().try_for_each(|gone| tx.free(*gone))?;
                (0..rng.below(80)).map(|_| tx.alloc_bytes(8, 8)).collect::<tx::Result<Vec<_>>>()
            });
            made = changed.unwrap_or_else(|error| panic!("object of {len}, transaction {n}: {error}"));
        }
        heap.close().unwrap();
    }
}
