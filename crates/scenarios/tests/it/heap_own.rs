//! What transactions keep among the objects: old bytes that do not fit their log.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test, in helpers too")]

use heap::{Heap, Options, Policy, Step};
use pmem::{DomainChoice, Error, PPtr};
use tx::{Engine, Isolation, Transaction, Typed};

const BYTES: u64 = 160_000;
/// As much is changed at once: it does not fit the log, and three times it fits an extent.
const PART: u64 = BYTES / 4;

fn pool() -> pmem::Options {
    pmem::Options::new().domain(DomainChoice::Emulated)
}

/// A heap with one object whose words are all different.
fn with_object(path: &std::path::Path, adjust: fn(Options) -> Options) -> (Heap, PPtr<u8>) {
    let options = Options::new().policy(Policy::Undo).bytes(4 << 20).slots(4).log_bytes(8192).coordinator(false);
    let heap = Heap::create(path, &adjust(options.pool(pool()))).unwrap();
    let object = heap
        .transact(Isolation::Strict, |tx| -> tx::Result<PPtr<u8>> {
            let object = tx.alloc_bytes(BYTES, 64)?;
            for (word, at) in tx.bytes_mut(object, BYTES)?.chunks_exact_mut(8).zip(0..) {
                word.copy_from_slice(&content(at).to_le_bytes());
            }
            tx.set_root(object.cast::<[u64; 16]>())?;
            Ok(object)
        })
        .unwrap();
    (heap, object)
}

fn content(word: u64) -> u64 {
    0xa5a5_5a5a_0000_0000 | word
}

fn part(object: PPtr<u8>, at: u64) -> PPtr<u8> {
    PPtr::new(object.tag(), object.offset() + at * PART)
}

/// Opens a transaction that changes all of the object, and counts the lines behind it that another one can lock.
fn lines_within_reach(adjust: fn(Options) -> Options) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let (heap, object) = with_object(&dir.path().join("p"), adjust);
    let mut live = Vec::new();
    heap.live_blocks(|at, len| live.push(at..at + len)).unwrap();
    let mut tx = heap.begin(Isolation::Strict).unwrap();
    for at in 0..4 {
        tx.bytes_mut(part(object, at), PART).unwrap().fill(2);
    }
    let reached = (0..4 << 20).step_by(64).filter(|&at| {
        let other = heap.begin(Isolation::Strict).unwrap();
        !live.iter().any(|block| block.contains(&at)) && other.bytes(PPtr::new(object.tag(), at), 64).is_ok()
    });
    let reached = reached.count();
    tx.abort().unwrap();
    let tx = heap.begin(Isolation::Strict).unwrap();
    let words = tx.bytes(object, BYTES).unwrap().chunks_exact(8).zip(0..);
    assert!(words.into_iter().all(|(word, at)| word == content(at).to_le_bytes()));
    reached
}

/// A pointer left from an object that was there before leads into an extent.
#[test]
fn nobody_reaches_the_old_bytes_of_another() {
    assert_eq!(lines_within_reach(|o| o), 0);
    assert!(lines_within_reach(|o| o.leave_out(Step::OwnLocked)) > 1000);
}

/// Opens a heap whose transaction was open when its process ended, with `damage` done to the old bytes of one of its parts.
fn reopen(damaged: Option<u64>) -> tx::Result<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let (heap, object) = with_object(&path, |o| o);
    let mut tx = heap.begin(Isolation::Strict).unwrap();
    for at in 0..4 {
        tx.bytes_mut(part(object, at), PART).unwrap().fill(2);
    }
    std::mem::forget(tx);
    drop(heap);
    if let Some(damaged) = damaged {
        let mut file = std::fs::read(&path).unwrap();
        let word = content(damaged * PART / 8 + 10).to_le_bytes();
        let at = file.windows(8).position(|w| w == word).unwrap();
        file[at] ^= 1;
        std::fs::write(&path, file).unwrap();
    }
    let heap = Heap::open(&path, &Options::new().pool(pool()))?;
    let tx = heap.begin(Isolation::Strict)?;
    Ok(tx.bytes(tx.root::<[u64; 16]>()?.cast(), BYTES)?.to_vec())
}

#[test]
fn old_bytes_that_do_not_verify_are_an_error_unless_they_are_the_last() {
    let whole: Vec<u8> = (0..BYTES / 8).flat_map(|at| content(at).to_le_bytes()).collect();
    assert_eq!(reopen(None).unwrap(), whole);
    // The first part has an extent of its own, and the next extent knows of it. Of the very last record, it cannot be told whether it was kept at all.
    for damaged in [0, 1, 2] {
        let error = reopen(Some(damaged)).unwrap_err();
        assert!(matches!(error, tx::Error::Damaged { what: "old bytes of a transaction", .. }), "{error}");
    }
}

/// Power fails, or the disk is full, when a heap that is to change its policy has got one of the regions it needs.
#[test]
fn a_change_of_policy_that_did_not_come_to_its_end_is_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    with_object(&path, |o| o).0.close().unwrap();
    let half = pool().open(&path).unwrap();
    half.add_region("heap.backup", 1 << 20).unwrap();
    half.close().unwrap();
    for _ in 0..2 {
        let heap = Heap::open(&path, &Options::new().policy(Policy::InPlace).pool(pool())).unwrap();
        assert_eq!((heap.policy(), heap.scrub().is_ok()), (Policy::InPlace, true));
        heap.close().unwrap();
    }
    assert!(matches!(pool().open(&path).unwrap().add_region("heap.backup", 4096), Err(Error::RegionExists { .. })));
}
