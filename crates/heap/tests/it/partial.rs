//! A partial backup: what a copy costs, which copies stay, how much memory it takes, and what becomes of it over openings.

use heap::{Heap, Options, Policy};
use pmem::{DomainChoice, PPtr};
use tx::{Engine, Error, Isolation, ToRange, Transaction, Typed};

use crate::support::{Object, Rng, Zipfian, bump, counted, memory, quiet, with_objects};

/// Bytes of the backup that the copy of an object takes.
const COPY: u64 = 96;
const MAIN: u64 = 4 << 20;

/// Room for so many copies of objects.
fn options(copies: u64) -> Options {
    quiet(Policy::InPlacePartial, DomainChoice::Emulated)
        .bytes(MAIN)
        .slots(8)
        .alpha((copies * COPY) as f64 / MAIN as f64)
}

/// Of this one call.
fn drains(heap: &Heap, work: impl FnOnce()) -> u64 {
    let before = heap.pool().stats();
    work();
    (heap.pool().stats() - before).drains
}

fn word(heap: &Heap, object: PPtr<Object>) -> u64 {
    heap.transact(Isolation::Strict, |tx| -> tx::Result<u64> { Ok(tx.read(object)?[0]) }).unwrap()
}

// ---- barriers -------------------------------------------------------------------------------------------------------

#[test]
fn with_a_copy_one_barrier_without_two() {
    let dir = memory();
    let (heap, objects) = with_objects(&dir, &options(1000), 100);
    for &object in &objects {
        assert_eq!(drains(&heap, || bump(&heap, object)), 2, "the copy, and the commit");
    }
    assert_eq!(heap.stats().misses, 100);
    heap.apply_pending().unwrap();
    for &object in &objects {
        assert_eq!(drains(&heap, || bump(&heap, object)), 1);
    }
    assert_eq!((heap.stats().misses, heap.stats().evictions), (100, 0));
}

#[test]
fn copies_that_are_declared_together_share_a_barrier() {
    let dir = memory();
    let (heap, objects) = with_objects(&dir, &options(1000), 10);
    let all: Vec<_> = objects.iter().map(|o| o.range()).collect();
    let one_by_one = |tx: &mut heap::Tx<'_>| objects.iter().try_for_each(|&o| tx.write(o).map(|words| words[0] += 1));
    let declared = drains(&heap, || {
        heap.transact(Isolation::Strict, |tx| {
            tx.intend(&all)?;
            one_by_one(tx)
        })
        .unwrap();
    });
    assert_eq!(declared, 2);
    let (heap, objects) = with_objects(&memory(), &options(1000), 10);
    let each = |tx: &mut heap::Tx<'_>| objects.iter().try_for_each(|&o| tx.write(o).map(|words| words[0] += 1));
    assert_eq!(drains(&heap, || heap.transact(Isolation::Strict, each).unwrap()), 11);
}

#[test]
fn new_objects_need_no_copy() {
    let dir = memory();
    let heap = Heap::create(dir.path().join("p"), &options(10)).unwrap();
    let cost = drains(&heap, || {
        heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
            let object = tx.alloc(&[1u64; 8])?;
            tx.write(object)?[3] = 2;
            Ok(())
        })
        .unwrap();
    });
    assert_eq!((cost, heap.stats().misses), (1, 0));
}

/// A transaction that makes a copy and writes nothing pays for it, so that the next writer need not.
#[test]
fn what_is_declared_and_not_written_costs_two() {
    let dir = memory();
    let (heap, objects) = with_objects(&dir, &options(1000), 1);
    let declare = || {
        heap.transact(Isolation::Strict, |tx| tx.intend(&[objects[0].range()])).unwrap();
    };
    assert_eq!(drains(&heap, declare), 2, "the copy; that it is sure");
    assert_eq!(drains(&heap, declare), 0);
    assert_eq!(drains(&heap, || bump(&heap, objects[0])), 1);
}

/// In the steady state what is given up for the next copy rides on the barrier of this one.
#[test]
fn giving_copies_up_costs_no_barrier() {
    const RUN: u64 = 1000;
    let dir = memory();
    let (heap, objects) = with_objects(&dir, &options(64), 256);
    objects.iter().for_each(|&o| bump(&heap, o));
    heap.apply_pending().unwrap();
    let before = heap.stats();
    // In turn, over four times as many as there is room for: each is a miss.
    let cost = counted(&heap, || (0..RUN).for_each(|n| bump(&heap, objects[n as usize % 256])));
    let after = heap.stats();
    assert_eq!(after.misses - before.misses, RUN);
    assert_eq!(after.evictions - before.evictions, RUN);
    assert_eq!(cost.drains, 2 * RUN + 2, "and applying the last ones");
}

// ---- which copies stay ----------------------------------------------------------------------------------------------

#[test]
fn copies_of_what_is_written_or_pending_stay() {
    let dir = memory();
    // Nothing is applied unless it must be.
    let (heap, objects) = with_objects(&dir, &options(8).batch(1000), 32);
    let mut open = heap.begin(Isolation::Strict).unwrap();
    open.write(objects[0]).unwrap()[0] = 7;
    let mut rng = Rng(1);
    for _ in 0..2000 {
        bump(&heap, objects[1 + rng.below(31) as usize]);
    }
    assert!(heap.stats().evictions > 1000, "{:?}", heap.stats());
    open.abort().unwrap();
    assert_eq!(word(&heap, objects[0]), 0, "its copy is still there");
    let sum: u64 = objects.iter().map(|&o| word(&heap, o)).sum();
    assert_eq!(sum, 2000);
}

#[test]
fn the_hand_spares_what_was_written_since() {
    let dir = memory();
    let (heap, objects) = with_objects(&dir, &options(64), 1000);
    bump(&heap, objects[0]);
    for n in 1..1000 {
        bump(&heap, objects[n]);
        bump(&heap, objects[0]);
    }
    assert_eq!(heap.stats().misses, 1000, "the hot one was copied once");
}

#[test]
fn a_transaction_that_changes_more_than_fits_is_refused_and_taken_back() {
    let dir = memory();
    let (heap, objects) = with_objects(&dir, &options(10), 100);
    let mut tx = heap.begin(Isolation::Strict).unwrap();
    let mut written = 0;
    let error = loop {
        match tx.write(objects[written]) {
            Ok(words) => words[0] = 9,
            Err(e) => break e,
        }
        written += 1;
    };
    assert!(matches!(error, Error::BackupFull { bytes: COPY, .. }), "{error}");
    assert!(error.to_string().contains("larger alpha"), "{error}");
    assert_eq!(error.kind(), tx::ErrorKind::Full);
    assert!((9..=10).contains(&written), "{written}");
    drop(tx);
    assert!(objects.iter().all(|&o| word(&heap, o) == 0));
    objects.iter().for_each(|&o| bump(&heap, o));
    assert!(objects.iter().all(|&o| word(&heap, o) == 1));
    // Large objects are copied piece by piece, as they are written.
    let large = heap.transact(Isolation::Strict, |tx| tx.alloc_bytes(1 << 20, 64)).unwrap();
    let piece = |tx: &mut heap::Tx<'_>| tx.bytes_mut(large, 4096).map(|bytes| bytes.fill(1));
    let error = heap.transact(Isolation::Strict, piece).unwrap_err();
    assert!(matches!(error, Error::BackupFull { .. }), "{error}");
    heap.close().unwrap();
    let heap = Heap::open(dir.path().join("p"), &options(100)).unwrap();
    heap.transact(Isolation::Strict, piece).unwrap();
}

/// What stands in the way is another transaction's: that is a conflict, which goes away.
#[test]
fn room_that_others_use_is_a_conflict() {
    let dir = memory();
    let (heap, objects) = with_objects(&dir, &options(10), 100);
    let mut first = heap.begin(Isolation::Strict).unwrap();
    for &object in &objects[..8] {
        first.write(object).unwrap()[0] = 1;
    }
    let mut second = heap.begin(Isolation::Strict).unwrap();
    let error = objects[8..].iter().find_map(|&o| second.write(o).err()).unwrap();
    assert!(matches!(error, Error::Conflict { .. }), "{error}");
    drop(second);
    first.commit().unwrap();
    objects[8..16].iter().for_each(|&o| bump(&heap, o));
}

// ---- memory ---------------------------------------------------------------------------------------------------------

#[test]
fn the_backup_is_a_share_of_the_heap_and_follows_its_growth() {
    let dir = memory();
    for alpha in [0.1, 0.5, 1.0] {
        let path = dir.path().join(format!("{alpha}"));
        let options = quiet(Policy::InPlacePartial, DomainChoice::Emulated).bytes(MAIN).slots(8).alpha(alpha);
        let heap = Heap::create(&path, &options).unwrap();
        let promised = |heap: &Heap| (heap.stats().bytes as f64 * alpha) as u64;
        let is_as_promised = |heap: &Heap| {
            let (found, promised) = (heap.stats().backup_bytes, promised(heap));
            assert!(found <= promised && found + 64 > promised, "{alpha}: {found} of {promised}");
            let regions = heap.pool().info().regions;
            let of = |name| regions.iter().filter(|r| r.name == name).map(|r| r.len).sum::<u64>();
            assert!(of("heap.copies") <= promised.next_multiple_of(4096) + 4096, "{alpha}: {}", of("heap.copies"));
            assert_eq!(of("heap.backup") + of("heap.zones"), 0);
        };
        is_as_promised(&heap);
        let before = heap.stats().bytes;
        let objects: Vec<PPtr<Object>> = heap
            .transact(Isolation::Strict, |tx| (0..200_000).map(|_| tx.alloc(&[0; 8])).collect::<tx::Result<_>>())
            .unwrap();
        assert!(heap.stats().bytes > 2 * before);
        is_as_promised(&heap);
        // What was added is used.
        let room = heap.stats().backup_bytes / COPY;
        let some = (room as usize * 15 / 16).min(objects.len());
        objects[..some].iter().for_each(|&o| bump(&heap, o));
        assert_eq!(heap.stats().evictions, 0, "{alpha}");
        assert!(heap.stats().misses == some as u64 && objects[..some].iter().all(|&o| word(&heap, o) == 1));
    }
}

#[test]
fn alpha_may_change_at_every_open() {
    let dir = memory();
    let (heap, objects) = with_objects(&dir, &options(1000), 1000);
    objects.iter().for_each(|&o| bump(&heap, o));
    heap.close().unwrap();
    let path = dir.path().join("p");
    let mut rounds = 1;
    for copies in [10, 2000, 500, 4000, 20] {
        for crash in [false, true] {
            let heap = Heap::open(&path, &options(copies)).unwrap();
            let room = heap.stats().backup_bytes;
            let promised = (heap.stats().bytes as f64 * (copies * COPY) as f64 / MAIN as f64) as u64;
            assert!(room.abs_diff(promised) < 64, "{room} of {promised}");
            objects.iter().for_each(|&o| bump(&heap, o));
            rounds += 1;
            assert!(objects.iter().all(|&o| word(&heap, o) == rounds));
            match crash {
                true => heap.abandon(),
                false => heap.close().unwrap(),
            }
        }
    }
    // Nothing told: as it was.
    let heap = Heap::open(&path, &quiet(Policy::InPlacePartial, DomainChoice::Emulated)).unwrap();
    assert!(heap.stats().backup_bytes.abs_diff(20 * COPY) < 100);
    assert!(objects.iter().all(|&o| word(&heap, o) == rounds));
}

#[test]
fn no_alpha_out_of_bounds() {
    let dir = memory();
    for alpha in [0.0, -1.0, 1.5, f64::NAN, f64::INFINITY] {
        let error = Heap::create(dir.path().join("p"), &options(1).alpha(alpha)).unwrap_err();
        assert!(matches!(error, Error::Limit { .. }), "{alpha}: {error}");
    }
}

/// What a change of policy leaves that is cut short between a region and what stands in it.
#[test]
fn a_state_that_was_never_written_is_made_anew() {
    let dir = memory();
    let path = dir.path().join("p");
    let (heap, objects) = with_objects(&dir, &quiet(Policy::InPlace, DomainChoice::Emulated).bytes(MAIN), 10);
    heap.pool().add_region("heap.copies.state", 4096).unwrap();
    heap.close().unwrap();
    let heap = Heap::open(&path, &options(100)).unwrap();
    assert_eq!(heap.policy(), Policy::InPlacePartial);
    objects.iter().for_each(|&o| bump(&heap, o));
    heap.abandon(); // as a crash leaves it
    let heap = Heap::open(&path, &options(100)).unwrap();
    assert!(heap.recovery().copies > 0 && objects.iter().all(|&o| word(&heap, o) == 1));
}

// ---- openings -------------------------------------------------------------------------------------------------------

#[test]
fn recovery_puts_back_what_was_open_and_finds_nothing_behind_a_close() {
    let dir = memory();
    let path = dir.path().join("p");
    let (heap, objects) = with_objects(&dir, &options(1000), 100);
    objects.iter().for_each(|&o| bump(&heap, o));
    let mut tx = heap.begin(Isolation::Strict).unwrap();
    objects.iter().for_each(|&o| tx.write(o).unwrap().fill(99));
    std::mem::forget(tx);
    heap.abandon(); // as a crash leaves it
    let heap = Heap::open(&path, &options(1000)).unwrap();
    assert_eq!((heap.recovery().copies, heap.recovery().restored_bytes), (100, 6400));
    assert!(objects.iter().all(|&o| word(&heap, o) == 1));
    heap.close().unwrap();
    let heap = Heap::open(&path, &options(1000)).unwrap();
    assert!(heap.recovery().was_clean());
    assert_eq!(drains(&heap, || bump(&heap, objects[0])), 2, "an opening begins without copies");
}

#[test]
fn a_crashed_heap_is_not_opened_for_reading() {
    let dir = memory();
    let path = dir.path().join("p");
    let (heap, objects) = with_objects(&dir, &options(1000), 1);
    bump(&heap, objects[0]);
    heap.apply_pending().unwrap();
    heap.abandon();
    let read_only = || pmem::Options::new().domain(DomainChoice::Emulated).open_read_only(&path);
    let error = read_only().map(drop).unwrap_err();
    assert!(matches!(error, pmem::Error::NeedsRecovery { .. }), "{error}");
    Heap::open(&path, &options(1000)).unwrap().close().unwrap();
    let heap = Heap::open_in(&read_only().unwrap(), &Options::new()).unwrap();
    assert_eq!(word(&heap, objects[0]), 1);
}

/// Zipfian over twenty thousand objects: the copies are those of the hot ones.
#[test]
fn a_share_of_the_copies_serves_a_larger_share_of_the_writes() {
    const OBJECTS: usize = 20_000;
    let ranks = Zipfian::new(OBJECTS);
    for (share, at_most) in [(0.1, 0.40), (0.5, 0.15)] {
        let dir = memory();
        let (heap, objects) = with_objects(&dir, &options((OBJECTS as f64 * share) as u64), OBJECTS);
        let mut rng = Rng(7);
        let mut write = |times: usize| {
            let before = heap.stats().misses;
            (0..times).for_each(|_| bump(&heap, objects[ranks.next(&mut rng)]));
            (heap.stats().misses - before) as f64 / times as f64
        };
        write(100_000);
        let missed = write(50_000);
        println!("{share} of the copies: {missed:.3} of the writes miss");
        assert!(missed < at_most, "{share}: {missed}");
    }
}

/// Objects of all lengths, transactions of one to many of them that commit, abort or do not fit, a hand that goes round again and again: every object is as
/// the model says, also over crashes, and the room stays what it was.
#[test]
fn copies_of_all_lengths_in_little_room() {
    const OBJECTS: usize = 60;
    for seed in 0..12 {
        let dir = memory();
        let path = dir.path().join("p");
        let options = quiet(Policy::InPlacePartial, DomainChoice::Emulated)
            .bytes(1 << 20)
            .slots(8)
            .log_bytes(8192)
            .batch(1 + seed as usize % 5)
            .alpha([6000.0, 20_000.0, 9000.0][seed as usize % 3] / (1 << 20) as f64);
        let mut heap = Heap::create(&path, &options).unwrap();
        let mut rng = Rng(seed);
        let lens: Vec<u64> =
            (0..OBJECTS).map(|_| [16, 48, 100, 300, 700, 1500, 2040, 5000][rng.below(8) as usize]).collect();
        let make =
            |tx: &mut heap::Tx<'_>| lens.iter().map(|&len| tx.alloc_bytes(len, 16)).collect::<tx::Result<Vec<_>>>();
        let objects = heap.transact(Isolation::Strict, make).unwrap();
        let mut model: Vec<Vec<u8>> = lens.iter().map(|&len| vec![0; len as usize]).collect();
        let (mut full, mut done, mut evicted) = (0, 0, 0);
        for step in 0..3000u64 {
            let mut tx = heap.begin(Isolation::Strict).unwrap();
            let mut after = model.clone();
            let mut outcome = Ok(());
            for _ in 0..1 + rng.below(1 + step % 7) {
                let at = rng.below(OBJECTS as u64) as usize;
                let from = rng.below(lens[at]);
                let len = 1 + rng.below(lens[at] - from);
                let value = rng.word() as u8;
                match tx.bytes_mut(PPtr::new(objects[at].tag(), objects[at].offset() + from), len) {
                    Ok(bytes) => bytes.fill(value),
                    Err(e) => {
                        outcome = Err(e);
                        break;
                    }
                }
                after[at][from as usize..(from + len) as usize].fill(value);
            }
            match outcome {
                Ok(()) if rng.below(4) > 0 => {
                    tx.commit().unwrap();
                    model = after;
                    done += 1;
                }
                Ok(()) => tx.abort().unwrap(),
                Err(Error::BackupFull { room, .. }) => {
                    drop(tx);
                    assert!(step % 7 > 0 || room < 8000, "{seed}, {step}: one object alone");
                    full += 1;
                }
                Err(e) => panic!("{seed}, {step}: {e}"),
            }
            if step % 500 == 499 {
                if step % 1000 == 999 {
                    let mut open = heap.begin(Isolation::Strict).unwrap();
                    let _ = open.bytes_mut(objects[0], lens[0]).map(|bytes| bytes.fill(255));
                    std::mem::forget(open);
                }
                evicted += heap.stats().evictions;
                heap.abandon(); // as a crash leaves it
                heap = Heap::open(&path, &options).unwrap();
            }
            if step % 100 == 99 {
                let tx = heap.begin(Isolation::Strict).unwrap();
                for (at, &object) in objects.iter().enumerate() {
                    assert!(tx.bytes(object, lens[at]).unwrap() == model[at], "seed {seed}, step {step}, object {at}");
                }
            }
        }
        assert!(done > 1000 && evicted > 50, "{done} committed, {full} did not fit, {evicted} given up");
        // Each object by itself still fits, however often others did not.
        for (at, &object) in objects.iter().enumerate().filter(|(at, _)| lens[*at] <= 2040) {
            heap.transact(Isolation::Strict, |tx| tx.bytes_mut(object, lens[at]).map(|bytes| bytes.fill(1))).unwrap();
        }
    }
}

#[test]
fn a_heap_that_was_open_for_reading_closes() {
    for policy in Policy::ALL {
        let dir = memory();
        let path = dir.path().join("p");
        Heap::create(&path, &quiet(policy, DomainChoice::Emulated).bytes(1 << 20)).unwrap().close().unwrap();
        let pool = pmem::Options::new().domain(DomainChoice::Emulated).open_read_only(&path).unwrap();
        let heap = Heap::open_in(&pool, &Options::new()).unwrap();
        drop(pool);
        heap.close().unwrap_or_else(|e| panic!("{policy}: {e}"));
    }
}
