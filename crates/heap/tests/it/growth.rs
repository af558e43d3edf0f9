//! Growing: what is asked for, what the heap does by itself, and where it ends.

use heap::{Heap, Options, Policy};
use pmem::{DomainChoice, Error as PoolError, HeapOptions};
use tx::{Engine, Error, Isolation, Transaction};

use crate::support::{memory, quiet};

fn small(policy: Policy) -> Options {
    let blocks = HeapOptions::chunk_bytes(4096).unwrap();
    quiet(policy, DomainChoice::Emulated).bytes(64 << 10).zone_bytes(4096).slots(2).log_bytes(4096).blocks(blocks)
}

#[test]
fn growing_by_more_than_there_is_is_an_error() {
    for policy in Policy::ALL {
        let dir = memory();
        let heap = Heap::create(dir.path().join("p"), &small(policy)).unwrap();
        let before = heap.live_blocks(|_, _| ()).unwrap();
        for bytes in [u64::MAX, u64::MAX - 4095, 1 << 63, pmem::OFFSET_MAX + 1, pmem::OFFSET_MAX, 1 << 46] {
            let grown = heap.grow(bytes);
            assert!(matches!(grown, Err(Error::Pool(_))), "{policy}, {bytes:#x}: {grown:?}");
        }
        assert_eq!(heap.live_blocks(|_, _| ()).unwrap(), before);
        for len in [u64::MAX, u64::MAX - 7, 1 << 63, 1 << 48, pmem::OFFSET_MAX] {
            let mut tx = heap.begin(Isolation::Strict).unwrap();
            assert!(tx.alloc_bytes(len, 8).is_err(), "{policy}, {len:#x}");
        }
        heap.grow(1).unwrap();
        heap.close().unwrap();
    }
}

/// Two or three entries of the directory each would be 48 after 16 to 21 growths.
#[test]
fn small_growths_do_not_use_the_directory_up() {
    for policy in Policy::ALL {
        let dir = memory();
        let path = dir.path().join("p");
        let heap = Heap::create(&path, &small(policy)).unwrap();
        let bytes = |heap: &Heap| heap.live_blocks(|_, _| ()).unwrap().chunk_bytes;
        let mut grown = 0;
        while bytes(&heap) < 48 << 20 {
            let before = bytes(&heap);
            heap.grow(64 << 10).unwrap_or_else(|e| panic!("{policy}, growth {grown}, at {before}: {e}"));
            assert!(bytes(&heap) >= before + (64 << 10));
            grown += 1;
        }
        println!("{policy}: {grown} growths, {} entries", heap.pool().info().regions.len());
        heap.close().unwrap();
        drop(Heap::open(&path, &small(policy)).unwrap());
    }
}

#[test]
fn a_heap_that_there_is_no_room_for_is_not_made() {
    let dir = memory();
    let bytes = 1 << 39;
    let space = rustix::fs::statvfs(dir.path()).unwrap();
    if space.f_blocks * space.f_frsize >= bytes {
        println!("skipped: there is room for {bytes} bytes");
        return;
    }
    for policy in Policy::ALL {
        let path = dir.path().join("heap");
        let error = Heap::create(&path, &small(policy).bytes(bytes)).unwrap_err();
        let Error::Pool(PoolError::NoSpace { wanted, .. }) = &error else { panic!("{policy}: {error:?}") };
        let said = error.to_string();
        assert!(*wanted >= bytes && said.contains(&wanted.to_string()), "{policy}: {said}");
        assert!(said.contains(path.to_str().unwrap()) && said.contains("the file system is full"), "{policy}: {said}");
        assert!(!said.contains("objects"), "there are none to be freed: {policy}: {said}");
        assert_eq!(dir.path().read_dir().unwrap().count(), 0, "{policy}: nothing is left");
    }
}

#[test]
fn a_heap_grows_by_itself_up_to_its_cap() {
    for policy in Policy::ALL {
        let dir = memory();
        let heap = Heap::create(dir.path().join("p"), &small(policy).max_bytes(1 << 20)).unwrap();
        let fill = || -> tx::Result<()> {
            loop {
                heap.transact(Isolation::Strict, |tx| tx.alloc_bytes(10_000, 8))?;
            }
        };
        let full = fill();
        assert!(matches!(full, Err(Error::Pool(PoolError::HeapFull { .. }))), "{policy}: {full:?}");
        let used = heap.live_blocks(|_, _| ()).unwrap();
        assert!(used.chunk_bytes <= 1 << 20 && used.live_bytes > 700 << 10, "{policy}: {used:?}");
        heap.grow(64 << 10).unwrap();
        heap.transact(Isolation::Strict, |tx| tx.alloc_bytes(10_000, 8)).unwrap();
        heap.close().unwrap();
    }
}
