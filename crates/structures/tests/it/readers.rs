//! What a look-up writes that other threads want, too.
//!
//! On media nothing. In DRAM the lock word of each block on its way, twice: a heap's transactions lock what they read to their end, at every level of isolation, so that a reader of one block
//! is seen by a thread that wants to write it. Beside that a transaction writes lines of its own slot alone.

use heap::{Heap, Options, Policy, lock_words_changed};
use pmem::DomainChoice;
use structures::{BTree, BTreeOptions, HashMap, HashMapOptions, Map};
use tx::{Engine, Isolation, Transaction};

const KEYS: u32 = 1500;
/// Taken and given back.
const PER_BLOCK: u64 = 2;

fn key(n: u32) -> [u8; 24] {
    let mut key = *b"user00000000000000000000";
    key[20..].copy_from_slice(&n.wrapping_mul(0x9e37_79b1).to_be_bytes());
    key
}

/// Lock words that looking a key up, as often as it says, changes in a transaction of its own.
fn changed(heap: &Heap, level: Isolation, map: impl Map, key: &[u8], times: usize, there: bool) -> u64 {
    let before = lock_words_changed();
    let tx = heap.begin(level).unwrap();
    for _ in 0..times {
        assert_eq!(map.get(&tx, key).unwrap().is_some(), there);
    }
    tx.commit().unwrap();
    lock_words_changed() - before
}

/// `blocks`: on the way to every key that is there. One that is not is missed in the last but one, or where a hash map has no bucket yet.
fn look_up_all(heap: &Heap, level: Isolation, map: impl Map, blocks: u64) {
    for n in 0..KEYS {
        assert_eq!(changed(heap, level, map, &key(n), 1, true), PER_BLOCK * blocks, "{level}, key {n}");
    }
    for n in KEYS..KEYS + 100 {
        let missed = changed(heap, level, map, &key(n), 1, false);
        assert!((1..blocks).any(|before| missed == PER_BLOCK * before), "{level}, no key {n}: {missed}");
    }
    assert_eq!(
        changed(heap, level, map, &key(7), 9, true),
        PER_BLOCK * blocks,
        "{level}: what is locked is locked once"
    );
    let around = changed(heap, level, map, &key(7), 0, true);
    assert_eq!(around, 0, "{level}: to begin and to end changes none");
}

#[test]
fn a_look_up_changes_the_locks_on_its_way_and_nothing_else() {
    for policy in Policy::ALL {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        let options = Options::new().policy(policy).bytes(4 << 20).coordinator(false);
        let options = options.pool(pmem::Options::new().domain(DomainChoice::Emulated));
        let heap = Heap::create(&path, &options).unwrap();
        let (map, tree) = heap
            .transact(Isolation::Strict, |tx| {
                let map = HashMap::create(tx, &HashMapOptions::new().capacity(4 * u64::from(KEYS)))?;
                Ok::<_, tx::Error>((map, BTree::create(tx, &BTreeOptions::new().key_max(24))?))
            })
            .unwrap();
        for n in 0..KEYS {
            heap.transact(Isolation::Strict, |tx| {
                map.put(tx, &key(n), &[1; 100])?;
                tree.put(tx, &key(n), &[2; 100])
            })
            .unwrap();
        }
        heap.apply_pending().unwrap();

        let depth = |map: &dyn Fn(&mut heap::Tx<'_>) -> tx::Result<structures::Report>| {
            u64::from(heap.transact(Isolation::Strict, map).unwrap().depth)
        };
        let deep = [depth(&|tx| map.verify(tx)), depth(&|tx| tree.verify(tx))];
        assert_eq!(deep, [3, 3], "page, bucket, entry; top, leaf, value");
        let (media, stats) = (std::fs::read(&path).unwrap(), heap.pool().stats());
        for level in Isolation::ALL {
            look_up_all(&heap, level, map, deep[0]);
            look_up_all(&heap, level, tree, deep[1]);
        }
        let done = heap.pool().stats() - stats;
        assert_eq!((done.drains, done.flushed_lines), (0, 0), "{policy}");
        assert!(std::fs::read(&path).unwrap() == media, "{policy}: a look-up changed the media");
    }
}
