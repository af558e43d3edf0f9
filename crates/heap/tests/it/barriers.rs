//! What a transaction costs, counted over the whole process with applying included.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use heap::{Heap, Intents, Policy};
use pmem::{DomainChoice, PPtr};
use tx::{Engine, Isolation, NestedTop, Savepoints, ToRange, Transaction, Typed};

use crate::support::{Object, Rng, Zipfian, bump, bump_word, counted, memory, quiet, with_objects};

/// Transactions of a run, each on one object of a line.
const RUN: u64 = 10_000;
const OBJECTS: usize = 1000;
const SEED: u64 = 1;
/// Of what the last ones left: what is copied is stable, and retired.
const APPLYING: u64 = 2;

/// Of a whole run, and of applying what it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cost {
    barriers: u64,
    flushed_lines: u64,
    media_bytes: u64,
}

impl From<pmem::Stats> for Cost {
    fn from(stats: pmem::Stats) -> Self {
        Self { barriers: stats.drains, flushed_lines: stats.flushed_lines, media_bytes: stats.media_bytes() }
    }
}

/// What a run costs: the one place with these numbers. First objects written whole, then a word of each, which the record carries.
mod expected {
    use super::{Cost, Pattern};

    pub const NONE: [Cost; 2] = [cost(10_000, 10_000, 640_000); 2];
    pub const UNDO: [Cost; 2] = [cost(30_002, 10_063, 2_565_056), cost(30_002, 10_042, 1_922_752)];

    pub const fn in_place(pattern: Pattern) -> [Cost; 2] {
        let word = cost(10_002, 20_022, 1_921_984);
        match pattern {
            Pattern::InTurn => [cost(10_002, 10_022, 1_921_984), word],
            Pattern::Uniform => [cost(10_083, 10_021, 1_921_920), word],
            Pattern::Zipfian => [cost(11_542, 10_021, 1_921_920), word],
            Pattern::Single => [cost(20_001, 10_021, 1_921_920), word],
        }
    }

    pub const fn eaw(pattern: Pattern) -> [Cost; 2] {
        match pattern {
            Pattern::InTurn => [cost(10_002, 10_050, 1_923_264), cost(10_002, 10_029, 1_281_920)],
            Pattern::Uniform => [cost(10_002, 9_997, 1_919_872), cost(10_002, 9_976, 1_278_528)],
            Pattern::Zipfian => [cost(10_002, 8_590, 1_829_824), cost(10_002, 8_569, 1_188_480)],
            Pattern::Single => [cost(10_002, 676, 1_323_328), cost(10_002, 655, 681_984)],
        }
    }

    /// Beside three barriers for each when threads take turns with one object: the last one's applying, but the first one's.
    pub const TURNS_MORE: u64 = 4;

    const fn cost(barriers: u64, flushed_lines: u64, media_bytes: u64) -> Cost {
        Cost { barriers, flushed_lines, media_bytes }
    }
}

/// Which object is written.
#[derive(Clone, Copy, Debug)]
enum Pattern {
    /// One after the other.
    InTurn,
    /// Any.
    Uniform,
    /// A few more often than the others.
    Zipfian,
    /// Always the same.
    Single,
}

impl Pattern {
    const ALL: [Self; 4] = [Self::InTurn, Self::Uniform, Self::Zipfian, Self::Single];
}

fn heap(policy: Policy, objects: usize) -> (tempfile::TempDir, Heap, Vec<PPtr<Object>>) {
    heap_of(8, policy, objects)
}

fn heap_of(slots: usize, policy: Policy, objects: usize) -> (tempfile::TempDir, Heap, Vec<PPtr<Object>>) {
    let dir = memory();
    let options = quiet(policy, DomainChoice::Emulated).bytes(4 << 20).slots(slots);
    let (heap, objects) = with_objects(&dir, &options, objects);
    objects.iter().for_each(|&o| bump(&heap, o)); // zones marked, pipeline full
    (dir, heap, objects)
}

/// What a run costs on a heap of its own, with objects written whole, and with a word of each.
fn run(policy: Policy, pattern: Pattern) -> [Cost; 2] {
    [bump, bump_word].map(|write| {
        let (_dir, heap, objects) = heap(policy, OBJECTS);
        let (mut rng, ranks) = (Rng(SEED), Zipfian::new(OBJECTS));
        let next = |n| match pattern {
            Pattern::InTurn => n as usize % OBJECTS,
            Pattern::Uniform => rng.below(OBJECTS as u64) as usize,
            Pattern::Zipfian => ranks.next(&mut rng),
            Pattern::Single => 0,
        };
        counted(&heap, || (0..RUN).map(next).for_each(|at| write(&heap, objects[at]))).into()
    })
}

#[test]
fn in_place_costs_one_barrier_or_two_and_no_more() {
    for pattern in Pattern::ALL {
        let [whole, word] = run(Policy::InPlace, pattern);
        let most = match pattern {
            Pattern::InTurn | Pattern::Uniform => RUN + RUN / 4,
            Pattern::Zipfian | Pattern::Single => 2 * RUN + 8,
        };
        assert!(whole.barriers <= most && word.barriers <= RUN + RUN / 4, "{pattern:?}: {whole:?}, {word:?}");
        assert_eq!([whole, word], expected::in_place(pattern), "{pattern:?}");
    }
}

#[test]
fn none_and_undo_cost_the_same_whatever_is_written() {
    for pattern in Pattern::ALL {
        assert_eq!(run(Policy::None, pattern), expected::NONE, "{pattern:?}");
        assert_eq!(run(Policy::Undo, pattern), expected::UNDO, "{pattern:?}");
    }
}

/// Whatever is written, and however often: lines of main go with those of fifteen other transactions, each once.
#[test]
fn eaw_costs_one_barrier() {
    for pattern in Pattern::ALL {
        assert_eq!(run(Policy::Eaw, pattern), expected::eaw(pattern), "{pattern:?}");
    }
}

#[test]
fn undo_costs_three_for_four_objects_declared_together() {
    let (_dir, undo, objects) = heap(Policy::Undo, 100);
    let before = undo.pool().stats();
    for n in 0..100 {
        undo.transact(Isolation::Strict, |tx| -> tx::Result<()> {
            let some: Vec<_> = (0..4).map(|k| objects[(n + k * 20) % 100]).collect();
            tx.intend(&some.iter().map(|o| o.range()).collect::<Vec<_>>())?;
            some.iter().try_for_each(|&o| {
                let _: () = tx.write(o)?[0] += 1;
                Ok(())
            })
        })
        .unwrap();
    }
    assert_eq!((undo.pool().stats() - before).drains, 300);
}

/// What is declared together is found again, however much it is, if it is changed in about that order.
#[test]
fn undo_costs_three_for_a_hundred_objects_declared_together() {
    let (_dir, undo, objects) = heap(Policy::Undo, 100);
    let before = undo.pool().stats();
    undo.transact(Isolation::Strict, |tx| -> tx::Result<()> {
        tx.intend(&objects.iter().map(|o| o.range()).collect::<Vec<_>>())?;
        for pair in objects.chunks(2) {
            for &object in pair.iter().rev() {
                tx.write(object)?[0] += 1;
            }
        }
        Ok(())
    })
    .unwrap();
    assert_eq!((undo.pool().stats() - before).drains, 3);
}

/// Transactions and barriers of a run in place on one object by several threads; `wait` is called before the n-th, `done` behind it.
fn several(threads: u64, wait: impl Fn(u64) + Sync, done: impl Fn() + Sync) -> (u64, u64) {
    // A slot for each number that a thread may have: two that came to one slot would not have to wait for each other's applying.
    let (_dir, heap, made) = heap_of(64, Policy::InPlace, 1);
    let (start, each) = (Barrier::new(threads as usize), RUN / threads);
    let cost: Cost = counted(&heap, || {
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (heap, start, wait, done, object) = (&heap, &start, &wait, &done, made[0]);
                scope.spawn(move || {
                    start.wait();
                    for n in 0..each {
                        wait(n * threads + thread);
                        bump(heap, object);
                        done();
                    }
                });
            }
        });
    })
    .into();
    let tx = heap.begin(Isolation::Strict).unwrap();
    assert_eq!(tx.read(made[0]).unwrap()[0], 1 + each * threads, "none was lost");
    (each * threads, cost.barriers)
}

#[test]
fn in_place_costs_three_at_most_where_threads_fight_for_an_object() {
    for threads in 2..=4 {
        let (transactions, barriers) = several(threads, |_| {}, || {});
        println!("{threads} threads fighting for one object: {barriers} barriers for {transactions} transactions");
        assert!((transactions..=3 * transactions + 2 * threads).contains(&barriers), "{barriers} for {transactions}");
    }
}

/// The worst case of fighting.
#[test]
fn in_place_costs_three_where_each_time_another_thread_writes_the_object() {
    for threads in 2..=4 {
        let turn = AtomicU64::new(0);
        let wait = |n| {
            while turn.load(SeqCst) != n {
                std::thread::yield_now();
            }
        };
        let next = || {
            turn.fetch_add(1, SeqCst);
        };
        let (transactions, barriers) = several(threads, wait, next);
        assert_eq!(barriers, 3 * transactions + expected::TURNS_MORE, "{threads} threads");
    }
}

#[test]
fn reading_costs_none() {
    for policy in Policy::ALL {
        let (_dir, heap, objects) = heap(policy, 10);
        heap.apply_pending().unwrap();
        let read = counted(&heap, || {
            for n in 0..100 {
                heap.transact(Isolation::Strict, |tx| tx.read(objects[n % 10]).copied()).unwrap();
            }
        });
        assert_eq!(Cost::from(read), Cost { barriers: 0, flushed_lines: 0, media_bytes: 0 });
    }
}

// ---- rarer ways -----------------------------------------------------------------------------------------------------

/// Of this one call.
fn drains(heap: &Heap, work: impl FnOnce()) -> u64 {
    let before = heap.pool().stats();
    work();
    (heap.pool().stats() - before).drains
}

/// Past it the data have a barrier of their own.
#[test]
fn in_place_costs_two_past_the_break_even_of_the_checksum() {
    const LONGEST: u64 = 2048;
    let dir = memory();
    let options = quiet(Policy::InPlace, DomainChoice::Emulated).bytes(4 << 20).slots(8).checksum_max(LONGEST);
    let heap = Heap::create(dir.path().join("p"), &options).unwrap();
    let objects: Vec<PPtr<u8>> =
        heap.transact(Isolation::Strict, |tx| (0..100).map(|_| tx.alloc_bytes(4096, 64)).collect()).unwrap();
    for (len, each) in [(LONGEST, 1), (LONGEST + 64, 2), (4096, 2)] {
        heap.apply_pending().unwrap();
        let cost = counted(&heap, || {
            for &object in &objects {
                let fill = |tx: &mut heap::Tx<'_>| tx.bytes_mut(object, len).map(|bytes| bytes.fill(len as u8));
                heap.transact(Isolation::Strict, fill).unwrap();
            }
        });
        assert_eq!(cost.drains, each * 100 + APPLYING, "{len} bytes");
    }
}

#[test]
fn in_place_costs_one_more_for_the_first_change_in_a_clean_zone() {
    const ZONE: u64 = 4096;
    let dir = memory();
    let options = quiet(Policy::InPlace, DomainChoice::Emulated).bytes(4 << 20).slots(8).zone_bytes(ZONE);
    let (heap, mut objects) = with_objects(&dir, &options, 4096);
    heap.close().unwrap(); // cleans all
    let heap = Heap::open(dir.path().join("p"), &quiet(Policy::InPlace, DomainChoice::Emulated)).unwrap();
    objects.sort_by_key(|o| o.offset());
    let mut next = 0;
    objects.retain(|o| {
        let apart = o.offset() >= next;
        next = if apart { o.offset() + ZONE } else { next };
        apart
    });
    assert!((50..=64).contains(&objects.len()), "{} objects, each in a zone of its own", objects.len());
    for each in [2, 1] {
        let costs: Vec<u64> = objects.iter().map(|&o| drains(&heap, || bump(&heap, o))).collect();
        assert!(costs.iter().all(|cost| *cost == each), "{each} for each: {costs:?}");
        heap.apply_pending().unwrap();
    }
}

#[test]
fn a_record_that_does_not_fit_a_quarter_of_the_ring_costs_one_more() {
    let (_dir, heap, objects) = heap(Policy::InPlace, OBJECTS);
    // Of 64 KiB: a range's place and length, and the word it carries, are 24 bytes.
    for (words, each) in [(600, 1), (750, 2), (1000, 2)] {
        let some = &objects[..words];
        let bump_all = |tx: &mut heap::Tx<'_>| {
            some.iter().try_for_each(|o| {
                *tx.write(o.cast::<u64>())? += 1;
                Ok(())
            })
        };
        let costs: Vec<u64> = (0..10)
            .map(|_| {
                heap.apply_pending().unwrap(); // else the ring is full now and then
                drains(&heap, || heap.transact(Isolation::Strict, |tx| -> tx::Result<()> { bump_all(tx) }).unwrap())
            })
            .collect();
        // The first one's block may lie in a clean zone.
        assert!(costs[1..].iter().all(|cost| *cost == each), "{words} words, {each} for each: {costs:?}");
    }
}

/// Of policy `eaw`, in `docs/barriers.md`.
#[test]
fn what_eaw_costs_in_rarer_ways() {
    const ROUNDS: u64 = 20;
    let (_dir, heap, objects) = heap(Policy::Eaw, 100);
    let each = |what: &str, expected: u64, mut work: Box<dyn FnMut(u64) + '_>| {
        (0..4).for_each(&mut work); // what the ring carries finds its way
        let cost = drains(&heap, || (0..ROUNDS).for_each(&mut work));
        assert_eq!(cost, expected * ROUNDS, "{what}");
    };
    let run = |f: &dyn Fn(&mut heap::Tx<'_>) -> tx::Result<()>| heap.transact(Isolation::Strict, |tx| f(tx)).unwrap();
    each("its own pending object", 1, Box::new(|_| bump(&heap, objects[0])));
    each("a small new object", 1, Box::new(|n| run(&|tx| tx.alloc(&n).map(drop))));
    each("a new object", 1, Box::new(|n| run(&|tx| tx.alloc(&[n; 100]).map(drop))));
    each("a new object that is long", 2, Box::new(|n| run(&|tx| tx.alloc(&[n; 1000]).map(drop))));
    let kept = heap.transact(Isolation::Strict, |tx| tx.alloc(&[1u64; 100])).unwrap();
    each("a new object, written again", 1, Box::new(|n| run(&|tx| tx.write(kept).map(|all| all.fill(n)))));
    let freed = Box::new(|n| {
        let new = heap.transact(Isolation::Strict, |tx| tx.alloc(&n)).unwrap();
        run(&|tx| tx.free(new));
    });
    each("one freed behind another that made it", 2, freed);
    let abort = Box::new(|n: u64| {
        let mut tx = heap.begin(Isolation::Strict).unwrap();
        tx.write(objects[50 + n as usize]).unwrap()[0] = n;
        tx.alloc(&[n; 100]).unwrap();
        tx.abort().unwrap();
    });
    each("an abort", 0, abort);
    bump(&heap, objects[0]);
    let abort = Box::new(|_| {
        let mut tx = heap.begin(Isolation::Strict).unwrap();
        tx.write(objects[0]).unwrap()[0] = 7;
        tx.abort().unwrap();
    });
    each("an abort of a transaction that had its own pending object", 0, abort);
    let declared = |tx: &mut heap::Tx<'_>| tx.intend(&[objects[0].range()]);
    each("its own pending object, declared and not changed", 0, Box::new(|_| run(&declared)));
    each("its own pending object, behind that", 1, Box::new(|_| bump(&heap, objects[0])));
    let back = |tx: &mut heap::Tx<'_>| {
        tx.write(objects[1])?[0] += 1;
        let savepoint = tx.savepoint()?;
        tx.write(objects[2])?[0] += 1;
        tx.rollback_to(savepoint)
    };
    each("a way back", 1, Box::new(|_| run(&back)));
    let nested = |tx: &mut heap::Tx<'_>| {
        tx.write(objects[1])?[0] += 1;
        tx.nested_top(|tx| tx.write(objects[3]).map(|all| all[0] += 1))
    };
    each("a nested top action", 2, Box::new(|_| run(&nested)));
    let many = |tx: &mut heap::Tx<'_>| (10..90).try_for_each(|at| tx.write(objects[at]).map(|all| all.fill(7)));
    each("a record that is short enough for the ring", 1, Box::new(|_| run(&many)));
    let large = heap.transact(Isolation::Strict, |tx| tx.alloc(&[1u64; 4000])).unwrap();
    each("a record that is not", 2, Box::new(|n| run(&|tx| tx.write(large).map(|all| all.fill(n)))));
    heap.apply_pending().unwrap();
    bump(&heap, objects[0]);
    let other = std::thread::scope(|scope| scope.spawn(|| drains(&heap, || bump(&heap, objects[0]))).join().unwrap());
    assert_eq!(other, 4, "another slot's pending object, which this thread applies for the first time");
}

// ---- in the background ----------------------------------------------------------------------------------------------

#[test]
fn what_has_gone_idle_is_applied_by_the_coordinator() {
    for (policy, commit) in [(Policy::InPlace, 1), (Policy::Undo, 3), (Policy::Eaw, 1)] {
        let dir = memory();
        let options = quiet(policy, DomainChoice::Emulated).bytes(1 << 20).slots(8).coordinator(true);
        let (heap, objects) = with_objects(&dir, &options, 10);
        // The mark in the log was last written by this thread: whose drain is it behind?
        for other_thread in [1, 0, 0] {
            let before = (heap.pool().stats(), heap.stats());
            bump(&heap, objects[0]);
            let applied = (0..3000).any(|_| {
                std::thread::sleep(Duration::from_millis(10));
                heap.stats().pending == 0
            });
            assert!(applied, "{policy}: {:?}", heap.stats());
            assert_eq!(heap.stats().applied - before.1.applied, 1, "{policy}");
            assert_eq!((heap.pool().stats() - before.0).drains, commit + APPLYING + other_thread, "{policy}");
        }
        heap.close().unwrap();
    }
}

#[test]
fn intents_of_objects_cost_one_more_for_all_that_are_declared_together() {
    let dir = memory();
    let options = quiet(Policy::InPlace, DomainChoice::Emulated).bytes(4 << 20).slots(8).intents(Intents::Objects);
    let (heap, objects) = with_objects(&dir, &options, 100);
    let each = |tx: &mut heap::Tx<'_>| objects[..10].iter().try_for_each(|&o| tx.write(o).map(|words| words[0] += 1));
    for _ in 0..3 {
        heap.apply_pending().unwrap();
        assert_eq!(drains(&heap, || bump(&heap, objects[50])), 2, "the intent, and the commit");
        heap.apply_pending().unwrap();
        assert_eq!(drains(&heap, || heap.transact(Isolation::Strict, each).unwrap()), 11);
        heap.apply_pending().unwrap();
        let all: Vec<_> = objects[..10].iter().map(|o| o.range()).collect();
        let declared = |tx: &mut heap::Tx<'_>| {
            tx.intend(&all)?;
            each(tx)
        };
        assert_eq!(drains(&heap, || heap.transact(Isolation::Strict, declared).unwrap()), 2);
        let new = |tx: &mut heap::Tx<'_>| tx.alloc(&[1u64; 8]).map(drop);
        assert_eq!(drains(&heap, || heap.transact(Isolation::Strict, new).unwrap()), 1, "a new object needs none");
    }
    heap.apply_pending().unwrap();
    let cost = counted(&heap, || (0..1000).for_each(|n| bump(&heap, objects[n % 100])));
    assert_eq!(cost.drains, 2 * 1000 + APPLYING);
}

/// Intents of transactions that were taken back do not fill the log.
#[test]
fn intents_that_are_taken_back_make_room() {
    let dir = memory();
    let options = quiet(Policy::InPlace, DomainChoice::Emulated).bytes(4 << 20).slots(8).intents(Intents::Objects);
    let (heap, objects) = with_objects(&dir, &options.log_bytes(2048), 100);
    for n in 0..1000 {
        let mut tx = heap.begin(Isolation::Strict).unwrap();
        tx.write(objects[n % 100]).unwrap()[0] = 9;
        assert_eq!(drains(&heap, || tx.abort().unwrap()), 1);
    }
    // More intents than half of the log: marks of zones tell the rest.
    let all: Vec<_> = objects.iter().map(|o| o.range()).collect();
    let mut tx = heap.begin(Isolation::Strict).unwrap();
    tx.intend(&all).unwrap();
    objects.iter().for_each(|&o| tx.write(o).unwrap().fill(7));
    std::mem::forget(tx);
    heap.abandon(); // as a crash leaves it
    let heap = Heap::open(dir.path().join("p"), &quiet(Policy::InPlace, DomainChoice::Emulated)).unwrap();
    assert!(heap.recovery().restored_bytes >= 6400, "{:?}", heap.recovery());
    for &object in &objects {
        assert_eq!(heap.transact(Isolation::Strict, |tx| tx.read(object).copied()).unwrap(), [0; 8]);
    }
}

#[test]
fn intents_of_what_was_never_written_do_not_outlive_a_close() {
    let dir = memory();
    let options = quiet(Policy::InPlace, DomainChoice::Emulated).bytes(4 << 20).slots(8).intents(Intents::Objects);
    let (heap, objects) = with_objects(&dir, &options.clone().log_bytes(2048), 100);
    for n in 0..1000 {
        let mut tx = heap.begin(Isolation::Strict).unwrap();
        assert_eq!(drains(&heap, || tx.intend(&[objects[n % 100].range()]).unwrap()), 1, "in the log, not by zones");
        if n % 2 == 0 { tx.abort() } else { tx.commit() }.unwrap();
    }
    heap.close().unwrap();
    let pool = pmem::Options::new().domain(DomainChoice::Emulated).open_read_only(dir.path().join("p")).unwrap();
    assert!(Heap::open_in(&pool, &options).unwrap().recovery().was_clean());
}

/// Several threads meet the end of the heap at the same time: it grows for one of them.
#[test]
fn a_heap_that_many_find_full_grows_once() {
    for policy in Policy::ALL {
        let dir = memory();
        let heap = Heap::create(dir.path().join("p"), &quiet(policy, DomainChoice::Emulated).bytes(1 << 20)).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        heap.transact(Isolation::Strict, |tx| tx.alloc_bytes(2000, 16)).unwrap();
                    }
                });
            }
        });
        let bytes = heap.stats().bytes;
        assert!(bytes <= 24 << 20, "{policy}: {bytes} for 8 MiB");
    }
}

/// However long they are, and however many: their checksum is computed beside them. Written another way, those above the break-even of the checksum cost two.
#[test]
fn bytes_that_are_overwritten_unseen_cost_one_barrier() {
    const MANY: usize = 400;
    for policy in [Policy::InPlace, Policy::InPlacePartial] {
        let dir = memory();
        let options = quiet(policy, DomainChoice::Emulated).bytes(4 << 20).slots(8).alpha(0.9);
        let heap = Heap::create(dir.path().join("p"), &options).unwrap();
        for (len, together, otherwise) in [(64, 1, 1), (1024, 1, 1), (1000, 2, 1), (1024, 4, 2), (4096, 1, 2)] {
            let objects = heap.transact(Isolation::Strict, |tx| -> tx::Result<Vec<_>> {
                (0..100).map(|_| tx.alloc_bytes(len, 64)).collect()
            });
            let objects = objects.unwrap();
            let data = vec![7; len as usize];
            let write = |n: usize, unseen: bool| {
                // Apart: neighbours are one range of the record, and that is in main before it is checksummed.
                let some = (0..together).map(|k| objects[(n * 7 + k * 20) % 100]);
                heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
                    some.clone().try_for_each(|at| match unseen {
                        true => tx.put_bytes(at, &data),
                        false => tx.bytes_mut(at, len).map(|bytes| bytes.copy_from_slice(&data)),
                    })
                })
                .unwrap();
            };
            (0..100).for_each(|n| write(n, true)); // zones marked, copies made
            let of = |unseen| counted(&heap, || (0..MANY).for_each(|n| write(n, unseen))).drains;
            assert_eq!(of(true), MANY as u64 + APPLYING, "{policy}: {together} of {len} bytes");
            assert_eq!(of(false), (otherwise * MANY) as u64 + APPLYING, "{policy}: {together} of {len} bytes");
        }
    }
}
