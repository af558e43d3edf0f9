//! Objects come, change and go beside snapshots; what the store costs stays: DRAM and pool are bounded by logs and what lives. `CAIRN_CHURN_SECONDS` says how long (`make churn-long`). A binary of its own,
//! since its allocator counts.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test, in helpers too")]

#[path = "../../../heap/tests/memory/raw.rs"]
mod raw;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mvcc::{Mvcc, Options};
use pmem::{DomainChoice, PPtr};
use tx::{Engine, Error, Isolation, Result, Transaction, Typed};

const THREADS: usize = 3;
/// Objects a thread has at most.
const OBJECTS: usize = 48;
/// Room for a span of every size in every thread's cache: it need not grow.
const BYTES: u64 = 32 << 20;
/// Transactions of a thread between two looks.
const EACH: u64 = 4_000;
/// Rounds until every place has been used.
const WARM: u64 = 3;
/// What may come of a block's first use of its place in a chunk, and of vectors that double.
const DRAM_MORE: u64 = 256 << 10;

type Object = Option<(PPtr<u8>, u64)>;

/// SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Every size from 1 byte to 8 KiB, each doubling as likely as the others.
fn size(rng: &mut u64) -> u64 {
    let log2 = random(rng) % 13;
    (1 << log2) + random(rng) % (1 << log2)
}

/// Makes, changes or frees one of the objects.
fn change(tx: &mut mvcc::Tx<'_>, object: Object, rng: &mut u64) -> Result<Object> {
    Ok(match object {
        None => {
            let len = size(rng);
            let object = tx.alloc_bytes(len, 8)?;
            tx.bytes_mut(object, len)?.fill(len as u8);
            Some((object, len))
        }
        Some((object, len)) if !random(rng).is_multiple_of(4) => {
            let from = random(rng) % len;
            tx.bytes_mut(PPtr::new(object.tag(), object.offset() + from), (len - from).min(256))?.fill(7);
            Some((object, len))
        }
        Some((object, _)) => {
            tx.free_bytes(object)?;
            None
        }
    })
}

/// One transaction on up to three objects; one in eight is rolled back.
fn one(store: &Mvcc, objects: &mut [Object], rng: &mut u64) {
    let draws = [random(rng), random(rng), random(rng), random(rng)];
    let changed = store.transact(Isolation::Serializable, |tx| {
        let mut rng = draws[0]; // an attempt does what the one before it did
        let mut changed = Vec::new();
        for draw in &draws[1..2 + draws[0] as usize % 3] {
            let at = *draw as usize % objects.len();
            if changed.iter().all(|(other, _)| *other != at) {
                changed.push((at, change(tx, objects[at], &mut rng)?));
            }
        }
        if draws[0].is_multiple_of(8) { Err(tx.refuse("a change of mind")) } else { Ok(changed) }
    });
    match changed {
        Ok(changed) => changed.into_iter().for_each(|(at, object)| objects[at] = object),
        Err(Error::Aborted { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

/// A round of a thread: at its end nothing of it is left.
fn round(store: &Mvcc, rng: &mut u64) {
    let mut objects = [None; OBJECTS];
    let mut seen = None;
    for n in 0..EACH {
        if n % 500 == 0 {
            // Held for a while, and by each thread another one.
            seen = Some(store.snapshot());
        }
        one(store, &mut objects, rng);
    }
    drop(seen);
    let live: Vec<_> = objects.into_iter().flatten().collect();
    store.transact(Isolation::Strict, |tx| live.iter().try_for_each(|(object, _)| tx.free_bytes(*object))).unwrap();
}

/// What must not grow.
#[derive(Clone, Copy, Debug)]
struct Held {
    dram: u64,
    pool: u64,
    live_blocks: u64,
}

impl Held {
    fn now(store: &Mvcc) -> Self {
        let live_blocks = store.live_blocks(|_, _| {}).unwrap().live_blocks;
        Self { dram: raw::allocated(), pool: store.pool().size(), live_blocks }
    }
}

/// Tells the threads that it is over, behind a failure, too.
struct Over<'b>(&'b Barrier, &'b AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.1.store(true, Relaxed);
        self.0.wait();
    }
}

/// Rounds, until `go_on` says no; by the same threads all the time: the allocator keeps something for each that it ever met.
fn churn(store: &Mvcc, mut go_on: impl FnMut(u64) -> bool) {
    let (start, end, over) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (start, end, over) = (&start, &end, &over);
            scope.spawn(move || {
                let mut rng = thread as u64;
                loop {
                    start.wait();
                    if over.load(Relaxed) {
                        return;
                    }
                    let done = catch_unwind(AssertUnwindSafe(|| round(store, &mut rng)));
                    end.wait();
                    done.unwrap_or_else(|failed| {
                        start.wait();
                        resume_unwind(failed)
                    });
                }
            });
        }
        let _over = Over(&start, &over);
        for round in 1.. {
            start.wait();
            end.wait();
            if !go_on(round) {
                break;
            }
        }
    });
}

/// One measurement at a time. `is_warm` says when every place has been used, and `is_over` when it is enough.
fn stays_as_it_is(is_warm: impl Fn(u64) -> bool, is_over: impl Fn(u64) -> bool) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let pool = pmem::Options::new().domain(DomainChoice::Emulated);
    let options = Options::new().bytes(BYTES).slots(8).log_bytes(64 << 10).pool(pool);
    let store = Mvcc::create(dir.path().join("p"), &options).unwrap();
    let mut warm: Option<Held> = None;
    churn(&store, |round| {
        store.write_back().unwrap();
        let (now, stats) = (Held::now(&store), store.stats());
        assert_eq!((stats.headers, stats.versions), (0, 0), "round {round}: {stats:?}");
        assert_eq!(now.live_blocks, 1, "round {round}: more than the root's, {now:?}, {stats:?}");
        match &warm {
            Some(then) => {
                assert_eq!(now.pool, then.pool, "round {round}: bytes of the pool");
                assert!(now.dram <= then.dram + DRAM_MORE, "round {round}: {now:?}, {then:?} before");
            }
            None if is_warm(round) => warm = Some(now),
            None => {}
        }
        warm.is_none() || !is_over(round)
    });
    let stats = store.stats();
    println!("{stats:?}, {} bytes of DRAM", raw::allocated());
    assert!(stats.published > stats.objects_back && stats.objects_back > 0, "many versions are written back once");
    store.close().unwrap();
}

#[test]
fn churning_leaves_nothing_behind() {
    stays_as_it_is(|round| round >= WARM, |round| round >= 2 * WARM);
}

/// For `make churn-long`; warm from a minute on, or a fifth of the time.
#[test]
#[expect(clippy::disallowed_methods, reason = "runs as long as it is told to")]
fn churning_for_long_leaves_nothing_behind() {
    let seconds = std::env::var("CAIRN_CHURN_SECONDS").ok().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    if seconds > 0 {
        let (started, total) = (Instant::now(), Duration::from_secs(seconds));
        let warm = Duration::from_secs(60).min(total / 5);
        stays_as_it_is(|round| round >= WARM && started.elapsed() >= warm, |_| started.elapsed() >= total);
    }
}
