//! Heaps that an earlier build left without closing them, with a transaction under way, in pools of format version 1, are used as they are.

use heap::{Heap, Options, Policy};
use pmem::PPtr;
use tx::{Engine, Isolation, Typed};

use crate::left::left;
use crate::support::memory;

/// The first word is the offset of the next node. The others held the node's number when it was made.
type Node = [u64; 8];

/// The last word of each node, from the root on; the words between hold its number.
fn lasts(heap: &Heap) -> Vec<u64> {
    let tx = heap.begin(Isolation::Strict).unwrap();
    let (mut at, mut lasts) = (tx.root::<Node>().unwrap(), Vec::new());
    while !at.is_null() {
        let node = *tx.read(at).unwrap();
        assert!(node[1..7].iter().all(|word| *word == 7 - lasts.len() as u64), "{node:?}");
        lasts.push(node[7]);
        at = match node[0] {
            0 => PPtr::NULL,
            next => PPtr::new(heap.pool().tag(), next),
        };
    }
    lasts
}

#[test]
fn heaps_of_an_earlier_build_are_recovered_read_and_written() {
    for (policy, text) in [
        (Policy::InPlace, include_str!("format_1/inplace.txt")),
        (Policy::InPlacePartial, include_str!("format_1/inplace-partial.txt")),
        (Policy::Undo, include_str!("format_1/undo.txt")),
    ] {
        let dir = memory();
        let path = left(dir.path(), text);
        let mut expected = vec![100, 6, 5, 4, 3, 2, 1, 0];
        for round in 0..4 {
            let heap = Heap::open(&path, &Options::new().coordinator(false)).unwrap();
            assert_eq!((heap.policy(), heap.pool().info().format_version), (policy, 1), "it stays what it is");
            assert_eq!(lasts(&heap), expected, "{policy}, round {round}");
            // The root's block, and the nodes: nothing of what had not ended.
            assert_eq!(heap.live_blocks(|_, _| ()).unwrap().live_blocks, 9 + round, "{policy}, round {round}");
            let (_, unclear) = heap.compare_all().unwrap();
            assert!(unclear.is_empty(), "{policy}, round {round}: {unclear:?}");
            heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
                let first = tx.root::<Node>()?;
                tx.write(first)?[7] += 1;
                tx.alloc(&[round; 8]).map(drop)
            })
            .unwrap();
            expected[0] += 1;
            if round % 2 == 1 { heap.close().unwrap() } else { heap.abandon() }
        }
    }
}
