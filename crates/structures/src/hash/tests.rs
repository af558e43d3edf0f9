//! The ends of the hash, reached with hashes that keys choose themselves.

use std::collections::BTreeMap;

use pmem::PPtr;
use tx::{Engine, Error, Isolation, Reference, Result, Typed};

use super::{CHOSEN, HashMap, HashMapOptions};
use crate::media::Link;
use crate::{Map, Report};

fn with<R>(engine: &Reference, f: impl FnMut(&mut <Reference as Engine>::Tx<'_>) -> Result<R>) -> R {
    engine.transact(Isolation::Strict, f).unwrap()
}

/// Puts keys whose hashes are these (as often as they come), looks all up, deletes every other, puts them again.
fn survive(hashes: &[u64], options: HashMapOptions) -> Report {
    let engine = Reference::new();
    let map = with(&engine, |tx| HashMap::create(tx, &options.seed(CHOSEN)));
    let key = |n: usize| [&hashes[n].to_be_bytes()[..], &n.to_be_bytes()].concat();
    let mut model = BTreeMap::new();
    let mut put = |range: &[usize]| {
        for &n in range {
            with(&engine, |tx| map.put(tx, &key(n), &n.to_le_bytes()));
            model.insert(key(n), n);
            if n.is_multiple_of(50) {
                with(&engine, |tx| map.verify(tx));
            }
        }
        with(&engine, |tx| {
            for (key, n) in &model {
                assert_eq!(map.get(tx, key)?, Some(&n.to_le_bytes()[..]), "{n}");
            }
            Ok(())
        });
        with(&engine, |tx| map.verify(tx))
    };
    let all: Vec<usize> = (0..hashes.len()).collect();
    let report = put(&all);
    assert_eq!(report.entries, all.len() as u64);
    let half: Vec<usize> = all.iter().copied().filter(|n| n % 2 == 0).collect();
    with(&engine, |tx| half.iter().try_for_each(|&n| map.delete(tx, &key(n)).map(|was| assert!(was))));
    assert_eq!(with(&engine, |tx| map.len(tx)), (all.len() - half.len()) as u64);
    let again = put(&half);
    assert_eq!((again.entries, again.blocks), (report.entries, report.blocks), "space is used again");
    with(&engine, |tx| map.destroy(tx));
    report
}

#[test]
fn equal_hashes_end_in_a_chain() {
    for hash in [0, u64::MAX, 0x0123_4567_89ab_cdef] {
        for capacity in [1, 10_000, 1 << 40] {
            // Capacities reach from 3 to 32 bits of the first pages; the largest pages are not made here.
            let options = HashMapOptions::new().capacity(capacity.min(100_000));
            let report = survive(&[hash; 100], options);
            assert!(report.depth > 8, "{report:?}");
        }
    }
}

/// Hashes that differ only from bit `from` on.
fn late(from: u32, count: u64) -> Vec<u64> {
    (0..count)
        .map(|n| 0x5a5a_5a5a_5a5a_5a5a & !(u64::MAX >> from) | n << 32 >> from.saturating_sub(32) & u64::MAX >> from)
        .collect()
}

#[test]
fn hashes_that_differ_late_go_deep() {
    for from in [3, 8, 11, 19, 24, 40, 47, 48, 49, 52, 55, 56] {
        for capacity in [1, 200, 20_000] {
            survive(&late(from, 200), HashMapOptions::new().capacity(capacity));
        }
    }
}

/// A bucket that is reached by another way than its own is refused, so that no caller is told that a key is missing.
#[test]
fn exchanged_directory_words_are_an_error() {
    let engine = Reference::new();
    let map = with(&engine, |tx| HashMap::create(tx, &HashMapOptions::new().capacity(1)));
    with(&engine, |tx| (0..60u8).try_for_each(|n| map.put(tx, &[n], b"value").map(drop)));
    let page: PPtr<[u64; 8]> = PPtr::new(map.tag(), map.pages[0]);
    with(&engine, |tx| {
        tx.write(page)?.swap(2, 5);
        Ok(())
    });
    let (mut found, mut damaged) = (0, 0);
    for n in 0..60u8 {
        let tx = engine.begin(Isolation::Strict).unwrap();
        match map.get(&tx, &[n]) {
            Ok(value) => found += usize::from(value == Some(b"value")),
            Err(Error::Damaged { .. }) => damaged += 1,
            Err(e) => panic!("{e}"),
        }
    }
    assert!(damaged > 0 && found + damaged == 60, "{found} found, {damaged} damaged");
}

/// Every word of a node set to every other, every depth in a bucket: found by `verify`, and nothing else goes wrong.
#[test]
fn directories_that_contradict_themselves_are_errors() {
    let engine = Reference::new();
    let map = with(&engine, |tx| HashMap::create(tx, &HashMapOptions::new().capacity(1)));
    with(&engine, |tx| (0..400u64).try_for_each(|n| map.put(tx, &n.to_be_bytes(), b"value").map(drop)));
    let node = Link(with(&engine, |tx| tx.read(PPtr::<u64>::new(map.tag(), map.pages[0])).copied()));
    assert!(node.bits() >= 3, "{node:?}");
    let cell = |index: u64| PPtr::<u64>::new(map.tag(), node.ptr::<u64>(0).offset() + 8 * index);
    let words: Vec<u64> =
        (0..1 << node.bits()).map(|index| with(&engine, |tx| tx.read(cell(index)).copied())).collect();

    let mut wrong = vec![(cell(0), 0), (cell(0), node.0)];
    for (index, &word) in words.iter().enumerate() {
        let others = words.iter().filter(|&&other| other != word);
        wrong.extend(others.map(|&other| (cell(index as u64), other)));
        let head = with(&engine, |tx| tx.read(Link(word).ptr::<u64>(map.tag())).copied());
        let depths = (0..=255u64).map(|depth| head & !(0xff << 48) | depth << 48).filter(|&other| other != head);
        wrong.extend(depths.map(|other| (Link(word).ptr(map.tag()), other)));
    }
    for (at, other) in wrong {
        let before = with(&engine, |tx| Ok(std::mem::replace(tx.write(at)?, other)));
        let verified = map.verify(&engine.begin(Isolation::Strict).unwrap());
        assert!(matches!(verified, Err(Error::Damaged { .. })), "{at:?} {other:x}: {verified:?}");
        for n in (0..400u64).step_by(40) {
            let mut tx = engine.begin(Isolation::Strict).unwrap();
            let found = map.get(&tx, &n.to_be_bytes());
            assert!(matches!(found, Ok(Some(b"value")) | Err(Error::Damaged { .. })), "{at:?} {other:x}: {found:?}");
            let _ = map.put(&mut tx, &[&n.to_be_bytes()[..], b"new"].concat(), b"value");
        }
        with(&engine, |tx| Ok(std::mem::replace(tx.write(at)?, before)));
    }
}

/// Every level at once: each hash shares a few more bits with the last.
#[test]
fn all_depths_at_once() {
    let hashes: Vec<u64> =
        (0..64u32).flat_map(|bit| (0..8u64).map(move |n| (u64::MAX.checked_shr(bit).unwrap_or(0)) ^ n)).collect();
    survive(&hashes, HashMapOptions::new().capacity(1));
    survive(&hashes, HashMapOptions::new().capacity(1).fixed());
}

fn heap(dir: &tempfile::TempDir, name: &str) -> heap::Heap {
    let options = heap::Options::new().policy(heap::Policy::Undo).bytes(8 << 20).slots(2).coordinator(false);
    heap::Heap::create(dir.path().join(name), &options).unwrap()
}

/// Directory words whose bucket is where the hint says, and all of them.
fn guessed(heap: &heap::Heap, map: &HashMap) -> (usize, usize) {
    let slots = 1u64 << map.slot_bits;
    let words = (0..1u64 << map.page_end()).map(|index| {
        let page = PPtr::<u8>::new(map.tag(), map.pages[(index / slots) as usize]);
        PPtr::<u64>::new(map.tag(), page.offset() + 8 * (index % slots))
    });
    let tx = heap.begin(Isolation::Strict).unwrap();
    let is_there = |(index, word): (u64, PPtr<u64>)| {
        Link(*tx.read(word).unwrap()).ptr::<u8>(0).offset() == super::ahead::expected(map.first_bucket, index)
    };
    let all: Vec<bool> = (0..).zip(words).map(is_there).collect();
    (all.iter().filter(|there| **there).count(), all.len())
}

#[test]
fn buckets_made_with_the_map_lie_side_by_side() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    for capacity in [1000, 4608, 9_000, 20_000, 100_000] {
        let heap = heap(&dir, &capacity.to_string());
        let options = HashMapOptions::new().capacity(capacity);
        let map = heap.transact(Isolation::Strict, |tx| HashMap::create(tx, &options)).unwrap();
        assert_eq!(map.first_bucket > 0, capacity > 4608, "{capacity}");
        let (there, all) = guessed(&heap, &map);
        assert!(map.first_bucket == 0 || there == all, "{capacity}: {there} of {all}");
        heap.transact(Isolation::Strict, |tx| -> Result<()> {
            (0..300u32).try_for_each(|n| map.put(tx, &n.to_le_bytes(), b"value").map(drop))?;
            tx.set_root(map.root())
        })
        .unwrap();
        let tx = heap.begin(Isolation::Strict).unwrap();
        let again = HashMap::open(&tx, tx.root().unwrap()).unwrap();
        assert_eq!(again.first_bucket, map.first_bucket);
        assert_eq!(again.verify(&tx).unwrap().entries, 300);
        drop(tx);
        heap.transact(Isolation::Strict, |tx| map.destroy(tx)).unwrap();
    }
}

/// In a heap full of holes there is no hint, or one that is nearly always right.
#[test]
fn scattered_buckets_have_no_hint() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    for keep in [2, 3, 100_000] {
        let heap = heap(&dir, &keep.to_string());
        let blocks: Vec<_> = heap
            .transact(Isolation::Strict, |tx| {
                (0..4000).map(|_| tx::Transaction::alloc_bytes(tx, 128, 64)).collect::<Result<_>>()
            })
            .unwrap();
        let freed = blocks.iter().enumerate().filter(|(n, _)| n % keep != 0).map(|(_, at)| *at);
        heap.transact(Isolation::Strict, |tx| freed.clone().try_for_each(|at| tx::Transaction::free_bytes(tx, at)))
            .unwrap();
        heap.apply_pending().unwrap();
        let options = HashMapOptions::new().capacity(9000);
        let map = heap.transact(Isolation::Strict, |tx| HashMap::create(tx, &options)).unwrap();
        let (there, all) = guessed(&heap, &map);
        assert!(map.first_bucket == 0 || there * 8 >= all * 7, "{keep}: {there} of {all}");
        let tx = heap.begin(Isolation::Strict).unwrap();
        map.verify(&tx).unwrap();
    }
}

/// Whatever stands there, in a map of an earlier build or a damaged one, a map does the same.
#[test]
fn a_hint_is_only_a_hint() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let heap = heap(&dir, "p");
    let options = HashMapOptions::new().capacity(9000);
    let map = heap.transact(Isolation::Strict, |tx| HashMap::create(tx, &options)).unwrap();
    let right = heap.transact(Isolation::Strict, |tx| -> Result<_> { Ok(tx.read(map.root())?.first_bucket) }).unwrap();
    for (hint, n) in [[0; 5], [0xff; 5], [1, 0, 0, 0, 0], [0, 0, 0, 0, 0x80], right].into_iter().zip(0u32..) {
        let entries = heap
            .transact(Isolation::Strict, |tx| -> Result<u64> {
                tx.write(map.root())?.first_bucket = hint;
                let map = HashMap::open(tx, map.root())?;
                for k in 0..200u32 {
                    let key = [k, n / 2].map(u32::to_le_bytes).concat();
                    assert_eq!(map.put(tx, &key, &n.to_le_bytes())?, n % 2 == 1);
                    assert_eq!(map.get(tx, &key)?, Some(&n.to_le_bytes()[..]));
                    assert!(!map.delete(tx, &[9])?);
                }
                Ok(map.verify(tx)?.entries)
            })
            .unwrap();
        assert_eq!(entries, u64::from(n / 2 + 1) * 200, "{hint:?}");
    }
}
