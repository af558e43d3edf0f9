//! What becomes of a heap whose handle is dropped.

use std::path::Path;

use heap::{Heap, Options, Policy};
use tx::{Engine, Isolation, Typed};

fn made(path: &Path, policy: Policy) -> Heap {
    let heap = Heap::create(path, &Options::new().policy(policy).bytes(1 << 20).slots(4)).unwrap();
    heap.transact(Isolation::Strict, |tx| tx.alloc(&[7_u64; 8])).unwrap();
    heap
}

/// Whether it was closed; it is, from now on.
fn was_closed(path: &Path) -> bool {
    let was_clean = pmem::Options::new().open_read_only(path).is_ok();
    let heap = Heap::open(path, &Options::new()).unwrap();
    assert!(heap.recovery().was_clean() || !was_clean);
    heap.close().unwrap();
    was_clean
}

#[test]
fn it_is_closed() {
    for policy in Policy::ALL {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("h");
        drop(made(&path, policy));
        assert!(was_closed(&path), "{policy}");
        Heap::open(&path, &Options::new()).unwrap().abandon();
        assert!(!was_closed(&path), "{policy}");
    }
}

#[test]
fn it_is_left_as_by_a_crash_when_its_thread_panics_or_a_transaction_was_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("h");
    let panicked = std::panic::catch_unwind(|| {
        let _heap = made(&path, Policy::InPlace);
        std::panic::resume_unwind(Box::new("without a message"));
    });
    assert!(panicked.is_err() && !was_closed(&path));
    let heap = Heap::open(&path, &Options::new()).unwrap();
    std::mem::forget(heap.begin(Isolation::Strict).unwrap());
    drop(heap);
    assert!(!was_closed(&path));
}
