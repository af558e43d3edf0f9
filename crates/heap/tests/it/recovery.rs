//! Recovery of a heap with many dirty zones, and the budget that keeps them few. `CAIRN_RECOVERY_BYTES` has the times of a heap of that
//! size printed (`make recovery-long`).

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use heap::{Heap, Options, Policy};
use pmem::{DomainChoice, PPtr};
use tempfile::TempDir;
use tx::{Engine, Isolation, Transaction, Typed};

use crate::support::{disk, memory, quiet};

const ZONE: u64 = 1 << 20;
/// A chunk: sixteen to a zone.
type Object = [u64; WORDS];
const WORDS: usize = 8192;

/// Transactions pending at the kill.
const PENDING: usize = 5;

fn options(bytes: u64, domain: DomainChoice) -> Options {
    quiet(Policy::InPlace, domain).bytes(bytes).zone_bytes(ZONE)
}

/// Fills a heap with objects, nothing of it pending.
fn full(path: &Path, options: &Options) -> (Heap, Vec<PPtr<Object>>) {
    let heap = Heap::create(path, options).unwrap();
    let mut objects = Vec::new();
    while heap.stats().bytes > ((objects.len() + 24) * size_of::<Object>()) as u64 {
        let more = heap.transact(Isolation::Strict, |tx| -> tx::Result<Vec<_>> {
            let mut made = Vec::new();
            for n in 0..8 {
                let object = tx.alloc_bytes(size_of::<Object>() as u64, 8)?.cast::<Object>();
                *tx.write(object)? = [(objects.len() + n) as u64; WORDS];
                made.push(object);
            }
            Ok(made)
        });
        objects.extend(more.unwrap());
    }
    heap.apply_pending().unwrap();
    (heap, objects)
}

/// Opens the heap at `path`; how long that took.
#[expect(clippy::disallowed_methods, reason = "tells how long recovery takes")]
fn reopen(path: &Path, options: &Options) -> (Heap, Duration) {
    let started = Instant::now();
    let heap = Heap::open(path, options).unwrap();
    (heap, started.elapsed())
}

/// How long it takes to read all of main and backup once.
#[expect(clippy::disallowed_methods, reason = "what recovery is held against")]
fn read_once(path: &Path, domain: DomainChoice) -> Duration {
    // Not closed cleanly: this drops what the page cache holds of a file.
    let pool = pmem::Options::new().layout("heap").domain(domain).open(path).unwrap();
    let add = |sum: u64, bytes: &[u8]| {
        bytes.as_chunks().0.iter().fold(sum, |sum, word| sum.wrapping_add(u64::from_ne_bytes(*word)))
    };
    let (started, mut sum) = (Instant::now(), 0);
    if domain == DomainChoice::File {
        // A pool's pages are read one by one, a file far ahead.
        drop(pool);
        let (mut file, mut buffer) = (File::open(path).unwrap(), vec![0; 1 << 20]);
        while let n @ 1.. = file.read(&mut buffer).unwrap() {
            sum = add(sum, &buffer[..n]);
        }
    } else {
        for name in ["heap", "heap.backup"] {
            let region = pool.region(name).unwrap();
            region.areas().iter().for_each(|area| sum = add(sum, area.bytes(0, area.len() as usize).unwrap()));
        }
    }
    assert_ne!(sum, 0);
    started.elapsed()
}

/// How a heap was left, and what is to be printed about its recovery.
#[derive(Clone, Copy)]
struct Left<'a> {
    bytes: u64,
    domain: DomainChoice,
    /// Objects that the open transaction has changed.
    open: usize,
    /// Its name, if times are to be printed.
    long: Option<&'a str>,
}

/// Leaves a heap with every zone dirty, something pending and a transaction open, and recovers it.
fn recover(dir: &TempDir, left: Left<'_>) {
    let path = dir.path().join("p");
    let options = options(left.bytes, left.domain).recovery_budget(2 * left.bytes).batch(8);
    let (heap, objects) = full(&path, &options);
    let (dirty, zones) = (heap.stats().dirty_zones, heap.stats().bytes.div_ceil(ZONE));
    assert!((zones - 1..=zones).contains(&dirty), "{dirty} of {zones}");
    let pending: Vec<_> = objects.iter().step_by(objects.len() / PENDING).copied().take(PENDING).collect();
    for &object in &pending {
        heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
            // Too much for a checksum, and all of them too little to be applied.
            let part = PPtr::<u8>::new(object.tag(), object.offset() + 8);
            tx.bytes_mut(part, 2400)?[..8].copy_from_slice(&(1u64 << 40).to_le_bytes());
            Ok(())
        })
        .unwrap();
    }
    let mut tx = heap.begin(Isolation::Strict).unwrap();
    let free = objects.iter().filter(|o| !pending.contains(o));
    free.step_by((objects.len() - PENDING) / left.open).take(left.open).for_each(|&o| {
        tx.write(o).unwrap()[..WORDS / 2].fill(1 << 41);
    });
    std::mem::forget(tx);
    assert_eq!((heap.stats().pending, heap.stats().dirty_zones), (PENDING as u64, dirty));
    heap.abandon(); // as a kill leaves it

    let once = left.long.map(|_| read_once(&path, left.domain));
    let (heap, taken) = reopen(&path, &options);
    let recovery = heap.recovery();
    assert_eq!((recovery.finished, recovery.zones), (PENDING as u64, dirty), "{recovery:?}");
    assert_eq!(recovery.restored_bytes, (left.open * WORDS / 2 * 8) as u64);
    if let (Some(name), Some(once)) = (left.long, once) {
        let mib = (recovery.zones * ZONE) >> 20;
        println!("{name}: {mib} MiB dirty, {} MiB restored: {taken:.2?}", recovery.restored_bytes >> 20);
        println!(
            "    main and backup read once: {once:.2?}; {:.2} times that",
            taken.as_secs_f64() / once.as_secs_f64()
        );
    }
    let tx = heap.begin(Isolation::Strict).unwrap();
    for (n, &object) in objects.iter().enumerate() {
        let found = tx.read(object).unwrap();
        assert_eq!(found[1], if pending.contains(&object) { 1 << 40 } else { n as u64 }, "object {n}");
        assert!([0, 2, WORDS / 2 - 1, WORDS / 2, WORDS - 1].iter().all(|&at| found[at] == n as u64), "object {n}");
    }
}

#[test]
fn every_zone_is_compared_and_what_was_open_is_restored() {
    for (domain, dir) in [(DomainChoice::Emulated, memory()), (DomainChoice::File, disk())] {
        recover(&dir, Left { bytes: 64 << 20, domain, open: 10, long: None });
    }
}

/// Only prints, when asked to.
#[test]
fn how_long_recovery_takes() {
    let Some(bytes) = std::env::var("CAIRN_RECOVERY_BYTES").ok().and_then(|n| n.parse().ok()) else { return };
    let half = (bytes / size_of::<Object>() as u64 / 2) as usize;
    for (name, domain, open) in [("memory", DomainChoice::Emulated, 10), ("memory", DomainChoice::Emulated, half)] {
        recover(&memory(), Left { bytes, domain, open, long: Some(name) });
    }
    recover(&disk(), Left { bytes, domain: DomainChoice::File, open: 10, long: Some("disk") });
    // Twice as large, so that the default budget has something to do.
    let (dir, options) = (memory(), options(2 * bytes, DomainChoice::Emulated));
    let path = dir.path().join("p");
    drop(wander(&path, &options, 10_000));
    let (heap, taken) = reopen(&path, &options);
    println!(
        "memory, default budget: {} of {} MiB dirty: {taken:.2?}",
        heap.recovery().zones,
        heap.stats().bytes >> 20
    );
}

/// Writes here and there in a full heap, a third in vain; returns it, and the most zones that were ever dirty behind a transaction.
fn wander(path: &Path, options: &Options, transactions: usize) -> (Heap, u64) {
    let (heap, objects) = full(path, options);
    let mut most = 0;
    for n in 0..transactions {
        let mut tx = heap.begin(Isolation::Strict).unwrap();
        tx.write(objects[n * 7919 % objects.len()]).unwrap()[n % WORDS] += 1;
        if n % 3 == 0 { tx.abort() } else { tx.commit() }.unwrap();
        most = most.max(heap.stats().dirty_zones);
    }
    (heap, most)
}

#[test]
fn the_budget_bounds_what_recovery_compares() {
    for budget in [1, 8, 20] {
        let dir = memory();
        let path = dir.path().join("p");
        let options = options(64 << 20, DomainChoice::Emulated).recovery_budget(budget * ZONE);
        let (heap, most) = wander(&path, &options, 1000);
        assert_eq!(most, budget, "zones dirty behind a transaction");
        let dirty = heap.stats().dirty_zones;
        heap.abandon();
        let (heap, _) = reopen(&path, &options);
        assert_eq!(heap.recovery().zones, dirty);
        assert!((1..=budget).contains(&dirty), "{dirty}");
    }
}

/// A transaction that gives up has made its zones dirty all the same.
#[test]
fn the_budget_holds_for_transactions_that_abort() {
    let dir = memory();
    let (heap, objects) =
        full(&dir.path().join("p"), &options(64 << 20, DomainChoice::Emulated).recovery_budget(8 * ZONE));
    for &object in &objects {
        let mut tx = heap.begin(Isolation::Strict).unwrap();
        tx.write(object).unwrap()[0] = 1 << 40;
        tx.abort().unwrap();
        let dirty = heap.stats().dirty_zones;
        assert!(dirty <= 8, "{dirty} zones dirty");
    }
}

/// More zones than the budget allows are in use, by one that does not end: no other transaction can do anything about that, nor should try again and again.
#[test]
fn a_long_transaction_does_not_make_others_pay_for_its_zones() {
    let dir = memory();
    let (heap, objects) =
        full(&dir.path().join("p"), &options(64 << 20, DomainChoice::Emulated).recovery_budget(4 * ZONE));
    let commits = || {
        let before = heap.pool().stats();
        for _ in 0..1000 {
            heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
                tx.write(objects[0].cast::<[u64; 8]>())?[0] += 1;
                Ok(())
            })
            .unwrap();
        }
        (heap.pool().stats() - before).drains
    };
    commits();
    let alone = commits();
    let mut long = heap.begin(Isolation::Strict).unwrap();
    objects[16..].chunks(16).take(40).for_each(|zone| long.write(zone[0]).unwrap()[0] = 0);
    let beside = commits();
    assert!((alone - 10..=alone + 10).contains(&beside), "{alone} barriers alone, {beside} beside it");
    // It goes, and with it what stood in the way: an eighth at a time.
    long.abort().unwrap();
    commits();
    assert!(heap.stats().dirty_zones <= 4, "{}", heap.stats().dirty_zones);
}
