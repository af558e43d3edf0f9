//! What a heap costs in DRAM, as the crate's documentation states it. A binary of its own, since its allocator counts.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test, in helpers too")]

mod churn;
mod raw;

use std::sync::{Mutex, MutexGuard, PoisonError};

use heap::{Heap, Options, Policy};
use pmem::DomainChoice;
use tx::{Engine, Isolation, Transaction, Typed};

/// Of a heap with 64 slots that holds nothing, or was opened and nothing was looked at.
const IDLE: u64 = 416 << 10;
/// Of one in use, beside what follows.
const POOL: u64 = 768 << 10;
/// Per MiB of main.
const MIB: u64 = 8 << 10;
/// Per object of 64 bytes.
const OBJECT: u64 = 5;

/// One measurement at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn options(policy: Policy, bytes: u64) -> Options {
    Options::new().policy(policy).bytes(bytes).pool(pmem::Options::new().domain(DomainChoice::Emulated))
}

#[test]
fn dram_is_as_stated() {
    let _alone = alone();
    for policy in Policy::ALL {
        for (mib, objects) in [(1, 0), (64, 0), (64, 100_000), (64, 1_000_000), (256, 1_000_000)] {
            let dir = tempfile::tempdir_in("/dev/shm").unwrap();
            let (path, options) = (dir.path().join("p"), options(policy, mib << 20));
            let before = raw::allocated();
            // What the harness frees of its own meanwhile is no gain.
            let spent = || raw::allocated().saturating_sub(before);
            let heap = Heap::create(&path, &options).unwrap();
            let idle = spent();
            assert!(idle <= IDLE, "{policy}, {mib} MiB: {idle} bytes, empty");
            for _ in 0..objects / 1000 {
                let made =
                    heap.transact(Isolation::Strict, |tx| (0..1000).try_for_each(|n| tx.alloc(&[n; 8]).map(drop)));
                made.unwrap();
            }
            heap.apply_pending().unwrap();
            let used = spent();
            let stated = POOL + (heap.stats().bytes >> 20) * MIB + objects * OBJECT;
            println!("{policy}, {mib} MiB, {objects} objects: {idle} bytes when empty, {used} in use, {stated} stated");
            assert!(used <= stated, "{policy}, {mib} MiB, {objects} objects: {used} bytes");
            assert!(objects == 0 || used >= idle + objects * 4, "the allocator has not seen the locks");
            heap.abandon();
            let heap = Heap::open(&path, &options).unwrap();
            assert!(spent() <= IDLE, "{policy}, {mib} MiB, {objects} objects: {} bytes once opened", spent());
            heap.close().unwrap();
            // The first heap of the process leaves what the process needs once.
            assert!(spent() <= 4096, "{policy}: {} bytes stay when it is closed", spent());
        }
    }
}

/// Of a copy in a partial backup, at most.
const COPY: u64 = 48;

#[test]
fn copies_cost_as_stated() {
    const OBJECTS: u64 = 100_000;
    let _alone = alone();
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let heap = Heap::create(dir.path().join("p"), &options(Policy::InPlacePartial, 64 << 20)).unwrap();
    let mut objects = Vec::new();
    for _ in 0..OBJECTS / 1000 {
        let made =
            heap.transact(Isolation::Strict, |tx| (0..1000).map(|n| tx.alloc(&[n; 8])).collect::<tx::Result<Vec<_>>>());
        objects.extend(made.unwrap());
    }
    heap.apply_pending().unwrap();
    let before = raw::allocated();
    for some in objects.chunks(100) {
        heap.transact(Isolation::Strict, |tx| some.iter().try_for_each(|&o| tx.write(o).map(|words| words[0] += 1)))
            .unwrap();
    }
    heap.apply_pending().unwrap();
    let used = raw::allocated().saturating_sub(before);
    println!("{OBJECTS} copies: {used} bytes");
    assert_eq!((heap.stats().misses, heap.stats().evictions), (OBJECTS, 0));
    assert!(used <= OBJECTS * COPY + POOL, "{used} bytes");
    assert!(used >= OBJECTS * 16, "{used} bytes: the allocator has not seen the map");
}

/// Fills the heap's first `bytes` bytes with objects of `len` bytes, and frees them all.
fn fill_and_free(heap: &Heap, bytes: u64, len: u64) {
    let mut objects = Vec::new();
    while objects.len() as u64 * len < bytes {
        let more = heap.transact(Isolation::Strict, |tx| (0..100).map(|_| tx.alloc_bytes(len, 8)).collect());
        let more: tx::Result<Vec<_>> = more;
        objects.extend(more.unwrap());
    }
    for some in objects.chunks(100) {
        heap.transact(Isolation::Strict, |tx| some.iter().try_for_each(|&object| tx.free_bytes(object))).unwrap();
    }
    heap.apply_pending().unwrap();
}

/// The locks of a place are there for whatever comes to lie in it.
#[test]
fn places_used_for_other_sizes_cost_no_more() {
    let _alone = alone();
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let heap = Heap::create(dir.path().join("p"), &options(Policy::InPlace, 8 << 20)).unwrap();
    fill_and_free(&heap, 6 << 20, 16);
    let first = raw::allocated();
    for len in (5..=14).map(|log2| 1 << log2) {
        fill_and_free(&heap, 6 << 20, len);
    }
    let then = raw::allocated();
    assert!(then <= first + first / 16, "{then} bytes, {first} after the smallest blocks");
}
