//! One very large object. `CAIRN_OBJECT_BYTES` says how large (`make object-long`).

use heap::{Heap, Policy};
use pmem::{DomainChoice, PPtr};
use tx::{Engine, Isolation, Transaction};

use crate::support::{memory, quiet};

/// Every page tells which it is, and which fill wrote it.
fn fill(bytes: &mut [u8], by: u8) {
    bytes.chunks_mut(4096).enumerate().for_each(|(n, page)| page.fill((n % 251) as u8 ^ by));
}

#[track_caller]
fn assert_filled(heap: &Heap, object: PPtr<u8>, len: u64, by: u8) {
    let tx = heap.begin(Isolation::Strict).unwrap();
    let pages = tx.bytes(object, len).unwrap().chunks(4096).enumerate();
    let mut page = [0; 4096];
    for (n, found) in pages {
        page.fill((n % 251) as u8 ^ by);
        assert!(*found == page[..found.len()], "page {n}");
    }
}

#[test]
fn an_object_larger_than_the_heap_was() {
    let len = std::env::var("CAIRN_OBJECT_BYTES").ok().and_then(|n| n.parse::<u64>().ok()).unwrap_or(64 << 20);
    for policy in [Policy::Undo, Policy::InPlace, Policy::Eaw] {
        let dir = memory();
        let path = dir.path().join("p");
        let heap = Heap::create(&path, &quiet(policy, DomainChoice::Emulated).bytes(1 << 20)).unwrap();
        let write = |tx: &mut heap::Tx<'_>, object, by| tx.bytes_mut(object, len).map(|bytes| fill(bytes, by));
        let object = heap.transact(Isolation::Strict, |tx| -> tx::Result<_> {
            let object = tx.alloc_bytes(len, 64)?;
            write(tx, object, 1)?;
            Ok(object)
        });
        let object = object.unwrap();
        assert_filled(&heap, object, len, 1);

        let mut tx = heap.begin(Isolation::Strict).unwrap();
        write(&mut tx, object, 2).unwrap();
        tx.abort().unwrap();
        assert_filled(&heap, object, len, 1);

        heap.transact(Isolation::Strict, |tx| write(tx, object, 3)).unwrap();
        assert_filled(&heap, object, len, 3);

        let mut tx = heap.begin(Isolation::Strict).unwrap();
        write(&mut tx, object, 4).unwrap();
        std::mem::forget(tx);
        heap.abandon(); // as a crash leaves it

        let heap = Heap::open(&path, &quiet(policy, DomainChoice::Emulated)).unwrap();
        assert!(!heap.recovery().was_clean());
        assert_filled(&heap, object, len, 3);
        heap.transact(Isolation::Strict, |tx| tx.free_bytes(object)).unwrap();
        assert_eq!(heap.live_blocks(|_, _| {}).unwrap().live_blocks, 1, "{policy}: the root's");
        println!("{policy}: {len} bytes in a pool of {}", heap.pool().size());
        heap.close().unwrap();
    }
}
