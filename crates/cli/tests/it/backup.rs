//! `cairn backup`.

use std::fs;
use std::path::Path;

use heap::{Heap, Policy};
use pmem::PPtr;
use tx::{Engine, Isolation, Typed};

use super::{cairn, temp};

type Object = [u64; 64];

/// A heap with one object of sevens.
fn heap(dir: &Path, policy: Policy) -> (Heap, PPtr<Object>) {
    let options = heap::Options::new().policy(policy).bytes(1 << 20).slots(2).coordinator(false);
    let heap = Heap::create(dir.join("p"), &options).unwrap();
    let object = heap.transact(Isolation::Strict, |tx| tx.alloc(&[7; 64])).unwrap();
    (heap, object)
}

fn holds(path: &Path, object: PPtr<Object>) {
    let heap = Heap::open(path, &heap::Options::new()).unwrap();
    assert!(heap.recovery().was_clean());
    assert_eq!(*heap.begin(Isolation::Strict).unwrap().read(object).unwrap(), [7; 64]);
}

#[test]
fn a_heap_is_copied_and_verified() {
    for policy in Policy::ALL {
        let dir = temp();
        let (heap, object) = heap(dir.path(), policy);
        let busy = cairn(dir.path(), "backup p copy");
        assert!(busy.code == 2 && busy.failure().0.contains("the pool is open in process"), "{busy:?}");
        heap.close().unwrap();
        let before = fs::read(dir.path().join("p")).unwrap();
        let run = cairn(dir.path(), "backup p copy");
        assert!(run.code == 0 && run.out.starts_with("copy: ") && run.out.contains(", 2 objects, checked"), "{run:?}");
        assert!(before == fs::read(dir.path().join("p")).unwrap(), "it only reads");
        assert_eq!(cairn(dir.path(), "check copy").code, 0);
        holds(&dir.path().join("copy"), object);
        let again = cairn(dir.path(), "backup p copy");
        assert!(again.code == 2 && again.failure().1.contains("choose another path"), "{again:?}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}

#[test]
fn a_heap_that_was_not_closed_is_recovered_on_demand_only() {
    let dir = temp();
    let (heap, object) = heap(dir.path(), Policy::InPlace);
    let mut tx = heap.begin(Isolation::Strict).unwrap();
    *tx.write(object).unwrap() = [8; 64];
    std::mem::forget(tx);
    heap.abandon();
    let run = cairn(dir.path(), "backup p copy");
    assert!(run.code == 2 && run.failure().1 == "cairn backup --recover p copy", "{run:?}");
    let run = cairn(dir.path(), "backup --recover p copy");
    assert_eq!(run.code, 0, "{run:?}");
    holds(&dir.path().join("copy"), object);
    holds(&dir.path().join("p"), object);
}

#[test]
fn damage_is_not_copied() {
    let dir = temp();
    let (heap, object) = heap(dir.path(), Policy::InPlace);
    heap.close().unwrap();
    let path = dir.path().join("p");
    let mut bytes = fs::read(&path).unwrap();
    bytes[object.offset() as usize] ^= 1;
    fs::write(&path, bytes).unwrap();
    let run = cairn(dir.path(), "backup p copy");
    assert!(run.code == 1 && run.failure().0.contains("went bad at rest"), "{run:?}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left");
}

#[test]
fn other_pools_are_copied_as_they_are() {
    let dir = temp();
    assert_eq!(cairn(dir.path(), "log create p").code, 0);
    let run = cairn(dir.path(), "backup p copy");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(fs::read(dir.path().join("p")).unwrap() == fs::read(dir.path().join("copy")).unwrap());
    kv::Options::new().background(false).create(dir.path().join("s")).unwrap().close().unwrap();
    let run = cairn(dir.path(), "backup s t");
    assert!(run.code == 2 && run.failure().1 == "cairn kv backup s t", "{run:?}");
    assert_eq!(cairn(dir.path(), "backup nothing t").code, 2);
    // What is refused is as it was: closed.
    for pool in ["p", "s"] {
        assert_eq!(cairn(dir.path(), &format!("backup --recover {pool} t")).code, 2);
        assert_eq!(cairn(dir.path(), &format!("check {pool}")).code, 0);
    }
}

/// A log's records, a ring's and the records of a store: each has its own check.
#[test]
fn no_damaged_pool_of_any_kind_is_copied() {
    let dir = temp();
    let (path, payload) = (dir.path().join("p"), [b'x'; 40]);
    let log = || {
        let log = ::log::Options::new().bytes(16 << 10).segment_bytes(2048).idle(None).create(&path).unwrap();
        for _ in 0..9 {
            log.append(&payload).unwrap();
        }
        log.close().unwrap();
    };
    let ring = || {
        let pool = pmem::Options::new().size(1 << 18).create(&path).unwrap();
        let area = pool.add_region_as("ring", 8192, pmem::RegionKind::Ring, 0).unwrap().into_area().unwrap();
        let mut ring = pmem::Ring::create(area).unwrap();
        for _ in 0..9 {
            ring.append(&[&payload]).unwrap();
            ring.force().unwrap();
        }
        drop(ring);
        pool.close().unwrap();
    };
    let store = || {
        let store = kv::Options::new().background(false).create(&path).unwrap();
        for number in 0..9_u8 {
            store.put(&[number], &payload).unwrap();
        }
        store.close().unwrap();
    };
    let kinds: [(&str, &dyn Fn()); 3] = [("backup", &log), ("backup", &ring), ("kv backup", &store)];
    for (command, make) in kinds {
        make();
        let mut bytes = fs::read(&path).unwrap();
        // Not the last one, which might be in doubt.
        let at = bytes.windows(payload.len()).position(|window| window == payload).unwrap();
        bytes[at + 3] ^= 1;
        fs::write(&path, bytes).unwrap();
        let run = cairn(dir.path(), &format!("{command} p copy"));
        assert!(run.code == 1 && run.failure().0.contains('p'), "{command}: {run:?}");
        assert_eq!(cairn(dir.path(), "check p").code, 1);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "{command}: nothing is left");
        fs::remove_file(&path).unwrap();
    }
}
