use std::sync::Arc;

use super::*;
use crate::pool::Pool;
use crate::{Allocator, DomainChoice, HeapOptions, Intent, Options};

fn pool(dir: &tempfile::TempDir) -> Pool {
    let options = Options::new().size(1 << 20).domain(DomainChoice::Emulated);
    options.create(dir.path().join("p")).expect("a new pool")
}

fn geometry(heap: &Allocator) -> Geometry {
    heap.extents().next().expect("an extent").1.geometry
}

/// The pool again, after whatever is in the file.
fn again(pool: Pool, heap: Allocator) -> (Pool, Allocator) {
    let path = pool.path().to_owned();
    drop((heap, pool));
    let pool = Options::new().domain(DomainChoice::Emulated).open(path).expect("opens");
    let heap = Allocator::open(&pool, "heap").expect("opens");
    (pool, heap)
}

fn two_blocks(dir: &tempfile::TempDir) -> (Pool, Allocator, [Intent; 2]) {
    let pool = pool(dir);
    let heap = Allocator::create(&pool, "heap", 256 << 10, HeapOptions::default()).expect("fits");
    let intents = [(); 2].map(|()| Intent::alloc(&heap.reserve(100, 8).expect("fits")));
    for intent in &intents {
        heap.apply(intent, &mut FlushSet::default()).expect("is ours");
    }
    (pool, heap, intents)
}

fn live(heap: &Allocator) -> Result<u64> {
    heap.live_blocks(|_, _| Ok(())).map(|usage| usage.live_blocks)
}

#[test]
fn words_of_a_pair_changed_alike_are_damage() {
    type Change = fn(u64, u64) -> (u64, u64);
    let changes: [(&str, Change); 6] = [
        ("a bit of both", |a, b| (a ^ 4, b ^ 4)),
        ("the highest bit of both", |a, b| (a ^ 1 << 63, b ^ 1 << 63)),
        ("zeros", |_, _| (0, 0)),
        ("ones", |_, _| (u64::MAX, u64::MAX)),
        ("one word twice", |a, _| (a, a)),
        ("words exchanged", |a, b| (b, a)),
    ];
    for (what, change) in changes {
        let dir = tempfile::tempdir().expect("a directory");
        let (pool, heap, intents) = two_blocks(&dir);
        assert_eq!(live(&heap).expect("whole"), 2);
        let g = geometry(&heap);
        let [bits, code] = g.pair(&pool.inner.mapping, 0, 0, true).expect("is there");
        let (a, b) = change(bits.load(Acquire), code.load(Acquire));
        bits.store(a, Release);
        code.store(b, Release);
        let (pool, heap) = again(pool, heap);
        assert!(matches!(live(&heap), Err(Error::Damaged { what: "allocation bitmap", .. })), "{what}");
        let block = crate::PPtr::<u8>::new(pool.tag(), intents[0].offset());
        assert!(matches!(heap.resolve(block, 1), Err(Error::Damaged { .. })), "{what}");
        // Nothing is handed out over what may be live.
        while let Ok(block) = heap.reserve(100, 8) {
            assert_ne!(block.offset() >> 16, intents[0].offset() >> 16, "{what}");
        }
    }
    // A pair that is right at its index is not at another.
    let dir = tempfile::tempdir().expect("a directory");
    let (pool, heap, _) = two_blocks(&dir);
    let (g, mapping) = (geometry(&heap), &pool.inner.mapping);
    let words = g.pair(mapping, 0, 0, false).expect("is there");
    for (to, word) in g.pair(mapping, 0, 64, true).expect("is there").iter().zip(words) {
        to.store(word.load(Acquire), Release);
    }
    assert!(live(&heap).is_err());
}

/// Each word of a pair, and of the table, may be on media or not when a crash comes; the record carries all out again.
#[test]
fn torn_pair_becomes_right_and_a_damaged_one_does_not() {
    for lost in 0..16 {
        for flip in [None, Some(0), Some(1)] {
            let dir = tempfile::tempdir().expect("a directory");
            let (pool, heap, intents) = two_blocks(&dir);
            let (g, mapping) = (geometry(&heap), &pool.inner.mapping);
            let [bits, code] = g.pair(mapping, 0, 0, true).expect("is there");
            let [_, other] = g.pair(mapping, 0, 64, true).expect("is there");
            let table = atomic(mapping, g.table_offset(0), true).expect("is there");
            for (n, word) in [bits, code, other, table].into_iter().enumerate().filter(|(n, _)| lost & 1 << n != 0) {
                // The first pair had the first of the two blocks alone, or nothing.
                let one = lost & 8 == 0 && n < 2;
                word.store(if one { [1, g.code(g.bits_at(0, 0), 1)][n] } else { 0 }, Release);
            }
            if let Some(n) = flip {
                [bits, code][n].fetch_xor(1 << 40, AcqRel);
            }
            let (pool, heap) = again(pool, heap);
            for _ in 0..2 {
                for intent in &intents {
                    heap.apply(intent, &mut FlushSet::default()).expect("is ours");
                }
            }
            match (live(&heap), flip) {
                (Ok(2), None) | (Err(Error::Damaged { .. }), Some(_)) => {}
                (found, _) => panic!("lost {lost:b}, {flip:?}: {found:?}"),
            }
            drop((heap, pool));
        }
    }
}

#[test]
fn threads_change_bits_of_one_pair() {
    let dir = tempfile::tempdir().expect("a directory");
    let pool = pool(&dir);
    let heap = Allocator::create(&pool, "heap", 256 << 10, HeapOptions::default()).expect("fits");
    let heap = Arc::new(heap);
    let blocks: Vec<_> = (0..64).map(|_| heap.reserve(1000, 8).expect("fits")).collect();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (heap, blocks) = (&heap, &blocks);
            scope.spawn(move || {
                let mut lines = FlushSet::default();
                for round in 0..400 {
                    for block in blocks.iter().skip(thread).step_by(4) {
                        heap.apply(&Intent::alloc(block), &mut lines).expect("is ours");
                        assert!(heap.is_published(block).expect("readable"));
                        if round < 399 {
                            heap.apply(&Intent::free(block), &mut lines).expect("is ours");
                        }
                    }
                }
            });
        }
    });
    assert_eq!(live(&heap).expect("whole"), 64);
}

#[test]
fn code_is_one_to_one() {
    let g = Geometry::with(8192, 4, Layout::Apart, 16, 0x1234_5678_9abc_def0);
    for bits in [0, 1, u64::MAX, 1 << 63, 0x5555_5555_5555_5555] {
        assert_eq!(g.decode(9216, g.code(9216, bits)), bits);
    }
}
