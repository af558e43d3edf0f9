//! Open, change, roll back, open again.

use std::sync::Arc;

use heap::{Heap, Options, Policy};
use pmem::{DomainChoice, PPtr};
use tx::{Engine, Isolation, Transaction, Typed};

use crate::support::ATOMIC;

fn options(policy: Policy) -> Options {
    Options::new().policy(policy).bytes(1 << 20).slots(4).pool(pmem::Options::new().domain(DomainChoice::Emulated))
}

fn reopen() -> Options {
    Options::new().pool(pmem::Options::new().domain(DomainChoice::Emulated))
}

#[test]
fn what_was_committed_is_there_after_a_close() {
    for policy in Policy::ALL {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        let heap = Heap::create(&path, &options(policy)).unwrap();
        heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
            let object = tx.alloc(&[1u64; 8])?;
            tx.set_root(object)
        })
        .unwrap();
        for i in 0..100 {
            heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
                let object = tx.root::<[u64; 8]>()?;
                tx.write(object)?[3] = i;
                Ok(())
            })
            .unwrap();
        }
        heap.close().unwrap();
        let heap = Heap::open(&path, &reopen()).unwrap();
        assert_eq!(heap.policy(), policy);
        assert!(heap.recovery().was_clean(), "{policy}: {:?}", heap.recovery());
        let found =
            heap.transact(Isolation::Strict, |tx| -> tx::Result<_> { Ok(*tx.read(tx.root::<[u64; 8]>()?)?) }).unwrap();
        assert_eq!(found, [1, 1, 1, 99, 1, 1, 1, 1]);
        heap.close().unwrap();
    }
}

#[test]
fn a_dropped_heap_recovers() {
    for policy in ATOMIC {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        let heap = Heap::create(&path, &options(policy)).unwrap();
        let mut objects: Vec<PPtr<[u64; 16]>> = Vec::new();
        for i in 0..50u64 {
            let made = heap
                .transact(Isolation::Strict, |tx| -> tx::Result<_> {
                    let object = tx.alloc(&[i; 16])?;
                    tx.set_root(object)?;
                    if let Some(&old) = objects.get(i as usize / 2) {
                        tx.write(old)?[0] += 1;
                    }
                    Ok(object)
                })
                .unwrap();
            objects.push(made);
        }
        let state: Vec<[u64; 16]> = {
            let tx = heap.begin(Isolation::Strict).unwrap();
            objects.iter().map(|&o| *tx.read(o).unwrap()).collect()
        };
        // Begun, never committed.
        let mut tx = heap.begin(Isolation::Strict).unwrap();
        tx.write(objects[49]).unwrap()[5] = 77;
        tx.free(objects[10]).unwrap();
        tx.alloc(&[0u8; 3000]).unwrap();
        std::mem::forget(tx);
        heap.abandon();
        let heap = Heap::open(&path, &reopen()).unwrap();
        assert!(!heap.recovery().was_clean());
        let tx = heap.begin(Isolation::Strict).unwrap();
        let found: Vec<[u64; 16]> = objects.iter().map(|&o| *tx.read(o).unwrap()).collect();
        assert_eq!(found, state, "{policy}");
        drop(tx);
        let usage = heap.live_blocks(|_, _| {}).unwrap();
        assert_eq!(usage.live_blocks, 51, "{policy}: objects and root");
        heap.close().unwrap();
    }
}

#[test]
fn an_abort_leaves_no_trace() {
    for policy in ATOMIC {
        let dir = tempfile::tempdir().unwrap();
        let heap = Heap::create(dir.path().join("p"), &options(policy)).unwrap();
        let (a, b) = heap
            .transact(Isolation::Strict, |tx| -> tx::Result<_> { Ok((tx.alloc(&[1u64; 100])?, tx.alloc(&2u64)?)) })
            .unwrap();
        for _ in 0..3 {
            let mut tx = heap.begin(Isolation::Strict).unwrap();
            tx.write(a).unwrap()[50] = 9;
            tx.write(a).unwrap()[0] = 9;
            tx.free(b).unwrap();
            tx.alloc(&3u64).unwrap();
            tx.abort().unwrap();
            let tx = heap.begin(Isolation::Strict).unwrap();
            assert_eq!((*tx.read(a).unwrap(), *tx.read(b).unwrap()), ([1; 100], 2), "{policy}");
        }
        assert_eq!(heap.live_blocks(|_, _| {}).unwrap().live_blocks, 3);
        heap.close().unwrap();
    }
}

#[test]
fn transactions_of_any_size() {
    for policy in Policy::ALL {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        let heap = Heap::create(&path, &options(policy).alpha(1.0)).unwrap();
        let objects = heap
            .transact(Isolation::Strict, |tx| -> tx::Result<_> {
                (0..20_000u64).map(|i| tx.alloc(&[i; 8])).collect::<tx::Result<Vec<_>>>()
            })
            .unwrap();
        for round in 1..4u64 {
            // One by one, without declaring them: more old bytes than the ring holds.
            heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
                for &o in &objects {
                    tx.write(o)?[1] += round;
                }
                Ok(())
            })
            .unwrap();
        }
        if policy != Policy::None {
            let mut tx = heap.begin(Isolation::Strict).unwrap();
            for &o in &objects {
                tx.write(o).unwrap()[1] = 0;
            }
            tx.abort().unwrap();
        }
        heap.abandon();
        let heap = Heap::open(&path, &reopen()).unwrap();
        let tx = heap.begin(Isolation::Strict).unwrap();
        for (i, &o) in objects.iter().enumerate() {
            assert_eq!(tx.read(o).unwrap()[..2], [i as u64, i as u64 + 6], "{policy}");
        }
        drop(tx);
        heap.close().unwrap();
    }
}

#[test]
fn another_policy_can_take_a_heap_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let heap = Heap::create(&path, &options(Policy::InPlace)).unwrap();
    let object = heap.transact(Isolation::Strict, |tx| tx.alloc(&1u64)).unwrap();
    heap.abandon(); // as a crash leaves it
    for (n, policy) in [
        Policy::Undo,
        Policy::InPlace,
        Policy::InPlacePartial,
        Policy::None,
        Policy::InPlace,
        Policy::Undo,
        Policy::InPlacePartial,
        Policy::Eaw,
        Policy::Eaw,
        Policy::InPlacePartial,
        Policy::Eaw,
        Policy::Undo,
        Policy::Eaw,
        Policy::InPlace,
        Policy::InPlacePartial,
    ]
    .into_iter()
    .enumerate()
    {
        let heap = Heap::open(&path, &reopen().policy(policy)).unwrap();
        assert_eq!(heap.policy(), policy);
        heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
            *tx.write(object)? += 1;
            Ok(())
        })
        .unwrap();
        if policy != Policy::None {
            let mut tx = heap.begin(Isolation::Strict).unwrap();
            *tx.write(object).unwrap() = 0;
            tx.abort().unwrap();
        }
        let found = heap.transact(Isolation::Strict, |tx| tx.read(object).copied()).unwrap();
        assert_eq!(found, n as u64 + 2);
        heap.abandon();
    }
}

/// Nothing was begun that could stay half done: the error is the pool's.
#[test]
fn a_heap_open_for_reading_says_so_whatever_its_policy() {
    for policy in Policy::ALL {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        let heap = Heap::create(&path, &options(policy)).unwrap();
        let object = heap.transact(Isolation::Strict, |tx| tx.alloc(&7u64)).unwrap();
        heap.close().unwrap();
        let pool = pmem::Options::new().domain(DomainChoice::Emulated).open_read_only(&path).unwrap();
        let heap = Heap::open_in(&pool, &Options::new()).unwrap();
        let mut tx = heap.begin(Isolation::Strict).unwrap();
        assert_eq!(*tx.read(object).unwrap(), 7);
        let error = tx.write(object).unwrap_err();
        assert!(matches!(error, tx::Error::Pool(pmem::Error::ReadOnly)), "{policy}: {error}");
        tx.abort().unwrap();
        assert_eq!(*heap.begin(Isolation::Strict).unwrap().read(object).unwrap(), 7);
    }
}

/// Behind a barrier that failed nothing is committed, and nothing that was refused comes up when the heap is opened, though it wrote nothing that the first one had.
#[test]
fn what_is_refused_behind_a_failed_barrier_is_not_there_later() {
    for policy in Policy::ALL {
        let memory = crate::raw::Memory::new(4 << 20);
        let pool = pmem::Options::new().size(64 << 10).create_on(Arc::clone(&memory) as Arc<_>).unwrap();
        let heap =
            Heap::create_in(&pool, &Options::new().policy(policy).bytes(1 << 20).slots(4).coordinator(false)).unwrap();
        drop(pool);
        let objects = heap
            .transact(Isolation::Strict, |tx| -> tx::Result<_> {
                let objects = [tx.alloc(&[0u64; 8])?, tx.alloc(&[0u64; 8])?];
                let root = tx.alloc(&objects.map(|object| object.raw()))?;
                tx.set_root(root)?;
                Ok(objects)
            })
            .unwrap();
        // Nothing of it is pending: a writer would apply it first, and be refused by that.
        heap.apply_pending().unwrap();
        let put = |object: PPtr<[u64; 8]>| {
            heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
                tx.read(tx.root::<[u64; 2]>()?)?;
                *tx.write(object)? = [1; 8];
                Ok(())
            })
        };
        memory.fail_after(0);
        assert!(put(objects[0]).is_err(), "{policy}");
        for _ in 0..2 {
            let refused = put(objects[1]).unwrap_err();
            assert!(refused.to_string().contains("sync"), "{policy}: {refused}");
        }
        drop(heap);
        memory.fail_after(u64::MAX);
        let pool = pmem::Options::new().open_on(Arc::clone(&memory) as Arc<_>).unwrap();
        let heap = Heap::open_in(&pool, &Options::new().coordinator(false)).unwrap();
        let found = heap.transact(Isolation::Strict, |tx| -> tx::Result<_> { Ok(*tx.read(objects[1])?) }).unwrap();
        // Without rollback a change is there when it is made.
        assert!(policy == Policy::None || found == [0; 8], "{policy}: {found:?}");
    }
}

/// A heap has its name when it is whole: nothing is left of one whose making ends early, by an error or a kill.
#[test]
fn a_heap_that_is_not_finished_has_no_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("heap");
    for policy in Policy::ALL {
        let tight = options(policy).pool(pmem::Options::new().max_size(2 << 20)).bytes(64 << 20);
        Heap::create(&path, &tight).unwrap_err();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{policy}");
    }
    Heap::create(&path, &options(Policy::InPlace)).unwrap().close().unwrap();
    Heap::open(&path, &reopen()).unwrap().close().unwrap();
}
