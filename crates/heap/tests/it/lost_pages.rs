//! Pages that are lost, or go back to what they held, and heaps of earlier builds, which have more on one page.

use std::fs;

use heap::{Heap, Options, Policy};
use pmem::DomainChoice;
use tx::{Engine, Isolation, Transaction, Typed};

use crate::support::{ATOMIC, memory, quiet};

fn region(heap: &Heap, name: &str) -> std::ops::Range<usize> {
    let region = heap.pool().info().regions.into_iter().find(|region| region.name == name).unwrap();
    region.offset as usize..(region.offset + region.len) as usize
}

fn small(earlier: bool) -> Options {
    let blocks = pmem::HeapOptions::chunk_bytes(4096).unwrap();
    let blocks = if earlier { blocks.earlier_layout() } else { blocks };
    let options = quiet(Policy::InPlace, DomainChoice::Emulated).blocks(blocks);
    options.bytes(256 << 10).zone_bytes(8192).slots(2).log_bytes(8192)
}

/// A lost write: a page of zone marks is as it was before the zone was written to. What an open transaction has written there goes, all the same.
#[test]
fn a_page_of_marks_that_goes_back_does_not_show_what_was_not_committed() {
    for (earlier, found) in [(false, [7; 8]), (true, [9; 8])] {
        for marks in ["heap.zones", "heap.marks"] {
            let dir = memory();
            let path = dir.path().join("p");
            let heap = Heap::create(&path, &small(earlier)).unwrap();
            let object = heap.transact(Isolation::Strict, |tx| tx.alloc(&[7u64; 8])).unwrap();
            heap.close().unwrap();
            let before = fs::read(&path).unwrap();
            let heap = Heap::open(&path, &small(earlier)).unwrap();
            if earlier && marks == "heap.marks" {
                assert!(heap.pool().info().regions.iter().all(|region| region.name != marks));
                continue;
            }
            let page = region(&heap, marks);
            let mut tx = heap.begin(Isolation::Strict).unwrap();
            *tx.write(object).unwrap() = [9; 8];
            let mut killed = fs::read(&path).unwrap();
            assert_ne!(killed[page.clone()], before[page.clone()]);
            killed[page.clone()].copy_from_slice(&before[page]);
            let copy = dir.path().join("killed");
            fs::write(&copy, killed).unwrap();
            let again = Heap::open(&copy, &small(earlier)).unwrap();
            let read = again.transact(Isolation::Strict, |tx| tx.read(object).copied()).unwrap();
            assert_eq!(read, found, "{marks}, earlier layout: {earlier}");
        }
    }
}

/// Either page of a cell or of a log's mark may be lost, closed or killed.
#[test]
fn a_heap_survives_the_loss_of_either_page_of_what_it_keeps_twice() {
    for policy in ATOMIC {
        for closed in [true, false] {
            let dir = memory();
            let path = dir.path().join("p");
            let options = small(false).policy(policy);
            let heap = Heap::create(&path, &options).unwrap();
            let object = heap.transact(Isolation::Strict, |tx| tx.alloc(&[0u64; 8])).unwrap();
            for number in 1..=200 {
                heap.transact(Isolation::Strict, |tx| tx.write(object).map(|object| object[0] = number)).unwrap();
            }
            heap.apply_pending().unwrap();
            let mut cells = vec![region(&heap, "heap.state")];
            if policy == Policy::InPlacePartial {
                cells.push(region(&heap, "heap.copies.state"));
            }
            if closed {
                heap.close().unwrap();
            } else {
                heap.abandon();
            }
            let bytes = fs::read(&path).unwrap();
            for page in cells.iter().flat_map(|cell| [cell.start, cell.start + 4096]) {
                assert!(bytes[page..page + 4096].iter().any(|byte| *byte != 0));
                let mut lost = bytes.clone();
                lost[page..page + 4096].fill(0);
                let copy = dir.path().join("lost");
                fs::write(&copy, &lost).unwrap();
                let heap = Heap::open(&copy, &options).unwrap_or_else(|e| panic!("{policy}, closed {closed}: {e}"));
                let read = heap.transact(Isolation::Strict, |tx| tx.read(object).copied()).unwrap();
                assert_eq!(read[0], 200, "{policy}, closed {closed}");
                heap.close().unwrap();
            }
        }
    }
}

/// A page of a log of a closed heap that went back: its records are refused, whether the heap is opened for reading, for writing, or in a pool whose regions were
/// looked at before, as `cairn check --recover` does. A heap of an earlier build has what says that they are done on the same page.
#[test]
fn records_of_an_earlier_time_are_refused_whoever_has_looked_at_the_pool() {
    let quiet = || Options::new().coordinator(false);
    for (policy, earlier) in
        [(Policy::InPlace, true), (Policy::InPlacePartial, true), (Policy::Undo, true), (Policy::InPlace, false)]
    {
        let dir = memory();
        let (path, copy) = (dir.path().join("p"), dir.path().join("copy"));
        let heap = Heap::create(&path, &small(earlier).policy(policy)).unwrap();
        let object = heap.transact(Isolation::Strict, |tx| tx.alloc(&[0u64; 8])).unwrap();
        let logs = region(&heap, "heap.logs");
        let mut looks = Vec::new();
        for number in 1..=8 {
            let mut tx = heap.begin(Isolation::Strict).unwrap();
            tx.write(object).unwrap()[0] = number;
            looks.push(fs::read(&path).unwrap());
            tx.commit().unwrap();
            looks.push(fs::read(&path).unwrap());
        }
        heap.close().unwrap();
        let bytes = fs::read(&path).unwrap();
        let mut refused = 0;
        for (look, was) in looks.iter().enumerate() {
            for page in logs.clone().step_by(4096).filter(|page| was[*page..page + 4096] != bytes[*page..page + 4096]) {
                let what = format!("{policy}, earlier layout: {earlier}, page {page:#x} as at look {look}");
                let mut lost = bytes.clone();
                lost[page..page + 4096].copy_from_slice(&was[page..page + 4096]);
                fs::write(&copy, &lost).unwrap();
                let pool = pmem::Options::new().open_read_only(&copy).unwrap();
                let read = Heap::open_in(&pool, &quiet()).map(drop).map_err(|e| e.to_string());
                drop(pool);
                let pool = pmem::Options::new().open(&copy).unwrap();
                for region in pool.info().regions {
                    drop(pool.region(&region.name).unwrap());
                }
                let written = Heap::open_in(&pool, &quiet()).map(drop).map_err(|e| e.to_string());
                assert_eq!(written, read, "{what}");
                drop(pool);
                if read.is_err() {
                    refused += 1;
                    // What is refused stays closed: it is not recovered the next time.
                    fs::write(&copy, &lost).unwrap();
                    for time in 0..3 {
                        let opened = Heap::open(&copy, &quiet()).map(drop).map_err(|e| e.to_string());
                        assert_eq!(opened, read, "{what}, opened {time} times");
                    }
                }
            }
        }
        println!("{policy}, earlier layout: {earlier}: {refused} refused");
        assert!(refused > 0 || !earlier, "{policy}: no page told of an earlier time");
    }
}

/// A heap that an earlier build has made: cells and marks on one page, proofs beside what they prove, one word for each zone.
#[test]
fn a_heap_of_an_earlier_build_opens_and_stays_as_it_is() {
    for policy in Policy::ALL {
        for closed in [true, false] {
            let dir = memory();
            let path = dir.path().join("p");
            let options = small(true).policy(policy);
            let heap = Heap::create(&path, &options).unwrap();
            let object = heap.transact(Isolation::Strict, |tx| tx.alloc(&[5u64; 8])).unwrap();
            let state = region(&heap, "heap.state");
            assert_eq!(state.len(), 4096);
            if closed {
                heap.close().unwrap();
            } else {
                heap.abandon();
            }
            // Opened with options of today, used, grown, brought to another policy and back.
            let today = small(false);
            for (round, next) in Policy::ALL.into_iter().chain([policy]).enumerate() {
                let heap = Heap::open(&path, &today.clone().policy(next)).unwrap();
                let number = heap
                    .transact(Isolation::Strict, |tx| -> tx::Result<u64> {
                        let object = tx.write(object)?;
                        object[0] += 1;
                        Ok(object[0])
                    })
                    .unwrap();
                assert_eq!(number, 6 + round as u64, "{policy}, closed {closed}");
                heap.grow(64 << 10).unwrap();
                heap.close().unwrap();
            }
            let heap = Heap::open(&path, &today).unwrap();
            let info = heap.pool().info();
            assert_eq!(region(&heap, "heap.state").len(), 4096);
            assert_eq!(region(&heap, "heap.copies.state").len(), 4096);
            assert!(info.regions.iter().all(|region| region.name != "heap.marks"));
            assert_eq!(heap.live_blocks(|_, _| ()).unwrap().live_blocks, 2);
        }
    }
}
