//! `cairn check`.

use std::fs;
use std::path::Path;

use heap::{Heap, Policy};
use pmem::{Action, Allocator, HeapOptions, Objects, ObjectsOptions, RegionKind, Ring};

use tx::{Engine, Isolation, Transaction, Typed};

use super::{cairn, temp};

fn pool(dir: &Path) -> pmem::Pool {
    let pool = pmem::Options::new().size(1 << 20).create(dir.join("p")).unwrap();
    drop(pool.add_region("counters", 8192).unwrap());
    pool
}

#[test]
fn a_sound_pool() {
    let dir = temp();
    pool(dir.path()).close().unwrap();
    let run = cairn(dir.path(), "check p");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.out.contains("p: sound") && run.out.contains("raw \"counters\": readable"), "{run:?}");
    let json = cairn(dir.path(), "check p --json").json();
    assert_eq!(json["sound"], true);
    assert_eq!(json["pool"]["size"], 1 << 20);
    assert_eq!(json["findings"].as_array().unwrap().len(), 0);
}

#[test]
fn checking_changes_nothing() {
    let dir = temp();
    pool(dir.path()).close().unwrap();
    let before = fs::read(dir.path().join("p")).unwrap();
    cairn(dir.path(), "check p");
    cairn(dir.path(), "info p");
    assert!(before == fs::read(dir.path().join("p")).unwrap());
}

#[test]
fn a_pool_that_was_not_closed_is_recovered_on_demand_only() {
    let dir = temp();
    let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p")).unwrap();
    let objects = Objects::create(&pool, ObjectsOptions::default()).unwrap();
    let node = objects.reserve_value(&7_u64).unwrap();
    let root = Action::root(node.ptr::<u64>());
    objects.lock().publish(&mut [Action::Alloc(node), root]).unwrap();
    drop((objects, pool));

    let run = cairn(dir.path(), "check p");
    assert_eq!(run.code, 2, "{run:?}");
    assert_eq!(run.failure().1, "cairn check --recover p");
    let run = cairn(dir.path(), "check --recover p");
    assert!(run.code == 0 && run.out.contains("1 live blocks"), "{run:?}");
    let run = cairn(dir.path(), "check p");
    assert!(run.code == 0 && run.out.contains("1 live blocks"), "closed cleanly by the recovery: {run:?}");
}

#[test]
fn what_others_must_recover_is_not_called_clean() {
    let dir = temp();
    drop(pool(dir.path()));
    let run = cairn(dir.path(), "check --recover p");
    assert!(run.code == 0 && run.out.contains("note: not closed cleanly: region \"counters\""), "{run:?}");
    assert_eq!(cairn(dir.path(), "check p").code, 2, "still to be recovered by its owner");
}

#[test]
fn rings_and_heaps_are_looked_into() {
    let dir = temp();
    let pool = pool(dir.path());
    let area = pool.add_region_as("journal", 8192, RegionKind::Ring, 0).unwrap().into_area().unwrap();
    let mut ring = Ring::create(area).unwrap();
    ring.append(&[b"one"]).unwrap();
    ring.append(&[b"two"]).unwrap();
    ring.force().unwrap();
    drop(ring);
    let heap = Allocator::create(&pool, "blocks", 1 << 19, HeapOptions::default()).unwrap();
    heap.close().unwrap();
    pool.close().unwrap();

    let run = cairn(dir.path(), "check p");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.out.contains("ring \"journal\": 2 unretired records"), "{run:?}");
    assert!(run.out.contains("heap \"blocks\": 0 live blocks"), "{run:?}");
}

/// A byte of the first of two records: acknowledged, as the second one proves, and not whole.
#[test]
fn a_damaged_record_is_found() {
    let dir = temp();
    let pool = pool(dir.path());
    let area = pool.add_region_as("journal", 8192, RegionKind::Ring, 0).unwrap().into_area().unwrap();
    let mut ring = Ring::create(area).unwrap();
    for _ in 0..2 {
        ring.append(&[b"a payload to be found"]).unwrap();
        ring.force().unwrap();
    }
    drop(ring);
    pool.close().unwrap();
    let path = dir.path().join("p");
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(21).position(|window| window == b"a payload to be found").unwrap();
    bytes[at] ^= 1;
    fs::write(&path, bytes).unwrap();

    let run = cairn(dir.path(), "check p");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.out.contains("damaged: ring \"journal\": damaged ring record"), "{run:?}");
}

#[test]
fn a_damaged_header_is_found() {
    let dir = temp();
    pool(dir.path()).close().unwrap();
    let path = dir.path().join("p");
    let mut bytes = fs::read(&path).unwrap();
    // One bit in each of the two copies, behind magic and version.
    for at in [100, bytes_of_slot() + 100] {
        bytes[at] ^= 1;
    }
    fs::write(&path, bytes).unwrap();
    let run = cairn(dir.path(), "check p");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.out.contains("damaged: ") && run.out.contains("next: "), "{run:?}");
    let json = cairn(dir.path(), "check p --json");
    assert_eq!(json.code, 1);
    assert_eq!(json.json()["sound"], false);
    assert_eq!(cairn(dir.path(), "info p").code, 1);
}

/// The second copy of the header begins where the magic bytes stand again.
fn bytes_of_slot() -> usize {
    let dir = temp();
    pool(dir.path()).close().unwrap();
    let bytes = fs::read(dir.path().join("p")).unwrap();
    let magic = &bytes[..8];
    8 + bytes[8..].windows(8).position(|window| window == magic).unwrap()
}

#[test]
fn a_truncated_pool_is_found() {
    let dir = temp();
    pool(dir.path()).close().unwrap();
    let file = fs::OpenOptions::new().write(true).open(dir.path().join("p")).unwrap();
    file.set_len(512 << 10).unwrap();
    let run = cairn(dir.path(), "check p");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.out.contains("truncated: 524288 bytes of 1048576"), "{run:?}");
}

/// A heap with one object of this many words, at the returned offset.
fn heap(dir: &Path, policy: Policy) -> (Heap, u64) {
    let options = heap::Options::new().policy(policy).bytes(1 << 20).slots(2).coordinator(false);
    let heap = Heap::create(dir.join("p"), &options).unwrap();
    let object = heap.transact(Isolation::Strict, |tx| tx.alloc(&[0x0123_4567_89ab_cdef_u64; 64])).unwrap();
    (heap, object.offset())
}

#[test]
fn a_heap_of_transactions_is_opened_as_one() {
    for policy in Policy::ALL {
        let dir = temp();
        heap(dir.path(), policy).0.close().unwrap();
        let run = cairn(dir.path(), "check p");
        assert_eq!(run.code, 0, "{run:?}");
        let says = format!("heap of transactions: {policy}, 2 live blocks");
        assert!(run.out.contains(&says), "{run:?}");
        assert_eq!(run.out.contains("compared with the backup"), policy == Policy::InPlace, "{run:?}");
    }
}

/// A region whose bytes are not those of a heap: what a program would be told when it opens it.
#[test]
fn what_a_heap_would_refuse_is_damage() {
    for region in ["heap.state", "heap.logs"] {
        let dir = temp();
        heap(dir.path(), Policy::InPlace).0.close().unwrap();
        let path = dir.path().join("p");
        let pool = pmem::Options::new().open_read_only(&path).unwrap();
        let at = pool.info().regions.into_iter().find(|r| r.name == region).unwrap();
        drop(pool);
        let mut bytes = fs::read(&path).unwrap();
        bytes[at.offset as usize..][..at.len as usize].fill(0x5a);
        fs::write(&path, bytes).unwrap();
        assert!(Heap::open_in(&pmem::Options::new().open_read_only(&path).unwrap(), &heap::Options::new()).is_err());
        let run = cairn(dir.path(), "check p");
        assert_eq!(run.code, 1, "{region}: {run:?}");
        assert!(run.out.contains("damaged: heap of transactions: "), "{run:?}");
    }
}

#[test]
fn copies_that_differ_are_found_and_repaired() {
    let dir = temp();
    let (heap, at) = heap(dir.path(), Policy::InPlace);
    heap.close().unwrap();
    let path = dir.path().join("p");
    let mut bytes = fs::read(&path).unwrap();
    bytes[at as usize] ^= 1;
    fs::write(&path, bytes).unwrap();
    let run = cairn(dir.path(), "check p");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.out.contains("heap of transactions: objects: 512 B differ"), "{run:?}");
    let run = cairn(dir.path(), "scrub p");
    assert!(run.code == 0 && run.out.contains("repaired: 512 B of objects, 0 B of their backup"), "{run:?}");
    assert_eq!(cairn(dir.path(), "check p").code, 0);
}

/// A heap that is closed, with a checksum for each page of its backup; one copy of its object is damaged.
fn damaged_heap(dir: &Path, main: bool) {
    let (heap, at) = heap(dir, Policy::InPlace);
    heap.close().unwrap();
    let path = dir.join("p");
    let pool = pmem::Options::new().open_read_only(&path).unwrap();
    let place = |name: &str| pool.region(name).unwrap().areas()[0].offset();
    let chunks = Allocator::open(&pool, "heap").unwrap().spaces()[0].start;
    let other = at - chunks + place("heap.backup");
    drop(pool);
    let mut bytes = fs::read(&path).unwrap();
    bytes[if main { at } else { other } as usize] ^= 1;
    fs::write(&path, bytes).unwrap();
}

#[test]
fn what_another_copy_tells_is_repaired() {
    for (main, says) in [(true, "objects: 512 B"), (false, "their backup: 512 B")] {
        let dir = temp();
        damaged_heap(dir.path(), main);
        let before = fs::read(dir.path().join("p")).unwrap();
        assert_eq!(cairn(dir.path(), "check p").code, 1);
        let run = cairn(dir.path(), "check p --dry-run");
        let repaired = format!("repaired: heap of transactions: {says}, from the other copy");
        assert!(run.code == 0 && run.out.contains(&format!("would be {repaired}")), "{run:?}");
        assert!(run.out.contains("p: would be sound; nothing was changed"), "{run:?}");
        assert!(before == fs::read(dir.path().join("p")).unwrap());
        let run = cairn(dir.path(), "check p --repair");
        assert!(run.code == 0 && run.out.contains(&repaired) && run.out.contains("p: sound now"), "{run:?}");
        let json = cairn(dir.path(), "check p --repair --json").json();
        assert!(json["sound"] == true && json["repaired"].as_array().unwrap().is_empty(), "{json}");
        assert_eq!(cairn(dir.path(), "check p").code, 0, "closed cleanly, too");
    }
}

#[test]
fn what_nothing_tells_is_not_repaired() {
    let dir = temp();
    let (made, at) = heap(dir.path(), Policy::InPlace);
    made.apply_pending().unwrap();
    made.abandon();
    let path = dir.path().join("p");
    Heap::open(&path, &heap::Options::new()).unwrap().close().unwrap(); // recovered: no checksum was kept since
    let mut bytes = fs::read(&path).unwrap();
    bytes[at as usize] ^= 1;
    fs::write(&path, bytes).unwrap();
    for line in ["check p", "check p --dry-run", "check p --repair", "check p --recover"] {
        let run = cairn(dir.path(), line);
        assert_eq!(run.code, 1, "{line}: {run:?}");
        assert!(
            run.out.contains("neither is as the kept checksum says") && run.out.contains("next: restore"),
            "{run:?}"
        );
    }
    let dir = temp();
    heap(dir.path(), Policy::Undo).0.close().unwrap();
    let run = cairn(dir.path(), "check p --repair");
    assert!(run.code == 0 && run.out.contains("policy undo: objects have no second copy"), "{run:?}");
}

#[test]
fn a_copy_of_the_header_is_repaired() {
    let dir = temp();
    heap(dir.path(), Policy::InPlace).0.close().unwrap();
    let path = dir.path().join("p");
    let mut bytes = fs::read(&path).unwrap();
    bytes[100] ^= 1;
    fs::write(&path, bytes).unwrap();
    let run = cairn(dir.path(), "check p --dry-run");
    assert!(run.code == 0 && run.out.contains("would be repaired: header: "), "{run:?}");
    let run = cairn(dir.path(), "check p");
    assert!(run.code == 0 && run.out.contains("note: one copy of the header"), "{run:?}");
    let run = cairn(dir.path(), "check p --repair");
    assert!(run.code == 0 && run.out.contains("repaired: header: "), "{run:?}");
    assert!(!cairn(dir.path(), "check p").out.contains("header was not whole"));
}

#[test]
fn a_repair_recovers_first() {
    let dir = temp();
    let (heap, _) = heap(dir.path(), Policy::InPlace);
    let mut tx = heap.begin(Isolation::Strict).unwrap();
    tx.alloc(&[7_u64; 8]).unwrap();
    std::mem::forget(tx);
    heap.abandon();
    assert_eq!(cairn(dir.path(), "check p --dry-run").code, 2, "its recovery writes");
    let run = cairn(dir.path(), "check p --repair");
    assert!(run.code == 0 && run.out.contains("note: recovered: ") && run.out.contains("p: sound\n"), "{run:?}");
    assert_eq!(cairn(dir.path(), "check p").code, 0);
}

#[test]
fn stores_have_a_repair_of_their_own() {
    let dir = temp();
    kv::Options::new().background(false).create(dir.path().join("p")).unwrap().close().unwrap();
    let run = cairn(dir.path(), "check p --repair");
    assert!(run.code == 2 && run.failure().1 == "cairn kv check --repair p", "{run:?}");
    let run = cairn(dir.path(), "check p --dry-run");
    assert!(run.code == 2 && run.failure().1 == "cairn kv check --dry-run p", "{run:?}");
}

#[test]
fn a_heap_that_was_not_closed_is_recovered_on_demand_only() {
    for policy in [Policy::Undo, Policy::InPlace] {
        let dir = temp();
        let (heap, _) = heap(dir.path(), policy);
        let mut tx = heap.begin(Isolation::Strict).unwrap();
        let object = tx.alloc(&[7_u64; 8]).unwrap();
        tx.set_root(object).unwrap();
        tx.commit().unwrap();
        let mut tx = heap.begin(Isolation::Strict).unwrap();
        tx.write(object).unwrap()[0] = 8;
        std::mem::forget(tx);
        heap.abandon();
        assert_eq!(cairn(dir.path(), "check p").code, 2);
        let run = cairn(dir.path(), "check --recover p");
        assert!(run.code == 0 && run.out.contains("note: recovered: "), "{run:?}");
        let run = cairn(dir.path(), "check p");
        assert!(run.code == 0 && run.out.contains("3 live blocks"), "closed cleanly by the recovery: {run:?}");
        let heap = Heap::open(dir.path().join("p"), &heap::Options::new()).unwrap();
        assert!(heap.recovery().was_clean());
        let tx = heap.begin(Isolation::Strict).unwrap();
        assert_eq!(*tx.read(object).unwrap(), [7; 8]);
    }
}

#[test]
fn a_heap_without_a_backup_is_not_scrubbed() {
    let dir = temp();
    heap(dir.path(), Policy::Undo).0.close().unwrap();
    let run = cairn(dir.path(), "scrub p");
    assert!(run.code == 2 && run.failure().0.contains("no second copy"), "{run:?}");
    assert_eq!(cairn(dir.path(), "scrub nothing").code, 2);
}
