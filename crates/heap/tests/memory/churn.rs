//! Objects come, change and go; what the heap costs stays. `CAIRN_CHURN_SECONDS` says how long (`make churn-long`).

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use heap::{Heap, Policy};
use pmem::PPtr;
use tx::{Engine, Isolation, Transaction};

use crate::{alone, options, raw};

const THREADS: usize = 4;
/// Objects a thread has at most.
const OBJECTS: usize = 48;
/// Room for a span of every size in every thread's cache: it need not grow.
const MAIN: u64 = 32 << 20;
/// Transactions of a thread between two looks.
const EACH: u64 = 12_500;
/// Rounds until every place has been used.
const WARM: u64 = 2;
/// What may come of a block's first use of its place in a chunk.
const DRAM_MORE: u64 = 16 << 10;

type Object = Option<(PPtr<u8>, u64)>;

/// SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Every size from 1 byte to 32 KiB, each doubling as likely as the others.
fn size(rng: &mut u64) -> u64 {
    let log2 = random(rng) % 15;
    (1 << log2) + random(rng) % (1 << log2)
}

/// One transaction on up to three objects; one in eight is aborted.
fn one(heap: &Heap, objects: &mut [Object], rng: &mut u64) -> tx::Result<()> {
    let mut tx = heap.begin(Isolation::Strict)?;
    let mut changed: [Option<(usize, Object)>; 3] = [None; 3];
    for change in changed.iter_mut().take(1 + random(rng) as usize % 3) {
        let at = random(rng) as usize % objects.len();
        let before = objects[at];
        objects[at] = match before {
            None => {
                let len = size(rng);
                let object = tx.alloc_bytes(len, 8)?;
                tx.bytes_mut(object, len)?.fill(len as u8);
                Some((object, len))
            }
            Some((object, len)) if random(rng).is_multiple_of(2) => {
                let from = random(rng) % len;
                tx.bytes_mut(PPtr::new(object.tag(), object.offset() + from), (len - from).min(256))?.fill(7);
                before
            }
            Some((object, _)) => {
                tx.free_bytes(object)?;
                None
            }
        };
        *change = Some((at, before));
    }
    if random(rng).is_multiple_of(8) {
        changed.iter().rev().flatten().for_each(|&(at, before)| objects[at] = before);
        return tx.abort();
    }
    tx.commit()
}

/// Lets threads churn in rounds; behind each everything is freed again, and `go_on` is asked. They are the same threads all the time: the allocator keeps
/// something for each that it ever met, up to 64.
fn churn(heap: &Heap, mut go_on: impl FnMut(u64) -> bool) {
    let (start, end, over) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (start, end, over) = (&start, &end, &over);
            scope.spawn(move || {
                let (mut rng, mut objects) = (thread as u64, [None; OBJECTS]);
                loop {
                    start.wait();
                    if over.load(Relaxed) {
                        return;
                    }
                    (0..EACH).for_each(|_| one(heap, &mut objects, &mut rng).unwrap());
                    let mut tx = heap.begin(Isolation::Strict).unwrap();
                    objects.iter_mut().filter_map(Option::take).for_each(|(object, _)| tx.free_bytes(object).unwrap());
                    tx.commit().unwrap();
                    end.wait();
                }
            });
        }
        for round in 1.. {
            start.wait();
            end.wait();
            if !go_on(round) {
                break;
            }
        }
        over.store(true, Relaxed);
        start.wait();
    });
}

/// What must not grow.
#[derive(Clone, Copy, Debug)]
struct Held {
    dram: u64,
    pool: u64,
    live_blocks: u64,
}

impl Held {
    fn now(heap: &Heap) -> Self {
        let live_blocks = heap.live_blocks(|_, _| {}).unwrap().live_blocks;
        Self { dram: raw::allocated(), pool: heap.pool().size(), live_blocks }
    }

    fn check(&self, warm: &Self) {
        assert_eq!(self.live_blocks, 1, "the root's alone");
        assert_eq!(self.pool, warm.pool, "bytes of the pool");
        assert!(self.dram <= warm.dram + DRAM_MORE, "{} bytes of DRAM, {} before", self.dram, warm.dram);
    }
}

fn heap(policy: Policy) -> (tempfile::TempDir, Heap) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let heap = Heap::create(dir.path().join("p"), &options(policy, MAIN)).unwrap();
    (dir, heap)
}

#[test]
fn churning_leaves_everything_where_it_was() {
    let _alone = alone();
    for policy in [Policy::InPlace, Policy::InPlacePartial, Policy::Undo, Policy::Eaw] {
        let (_dir, heap) = heap(policy);
        let mut warm = Held::now(&heap);
        churn(&heap, |round| match round {
            ..WARM => true,
            WARM => {
                warm = Held::now(&heap);
                true
            }
            _ => {
                Held::now(&heap).check(&warm);
                round < 2 * WARM
            }
        });
        heap.close().unwrap();
    }
}

/// So long with each policy; from a minute on, or a fifth of the time.
#[test]
#[expect(clippy::disallowed_methods, reason = "runs as long as it is told to")]
fn churning_for_long_leaves_everything_where_it_was() {
    let _alone = alone();
    let seconds = std::env::var("CAIRN_CHURN_SECONDS").ok().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    let total = Duration::from_secs(seconds);
    for policy in
        [Policy::InPlace, Policy::InPlacePartial, Policy::Undo, Policy::Eaw].into_iter().filter(|_| seconds > 0)
    {
        let (_dir, heap) = heap(policy);
        let (started, mut warm) = (Instant::now(), None);
        churn(&heap, |rounds| {
            let (spent, held) = (started.elapsed(), Held::now(&heap));
            match &warm {
                Some(warm) => held.check(warm),
                None if spent >= Duration::from_secs(60).min(total / 5) => {
                    println!("{policy}, {} transactions: {held:?}", rounds * EACH * THREADS as u64);
                    warm = Some(held);
                }
                None => {}
            }
            let go_on = spent < total || warm.is_none();
            if !go_on {
                println!("{policy}, {} transactions: {held:?}", rounds * EACH * THREADS as u64);
            }
            go_on
        });
        heap.close().unwrap();
    }
}
