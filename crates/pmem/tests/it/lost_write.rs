//! A page of the allocator that went back in time: the medium acknowledged a write and kept what the page had held before. An allocator that
//! believed it would hand out blocks that are live.

use std::collections::BTreeMap;
use std::fs;

use pmem::{Allocator, Block, Error, FlushSet, HeapOptions, Intent, Options, Pool};

use crate::support::{Rng, emulated, memory};

const PAGE: usize = 4096;
const MIB: u64 = 1 << 20;

/// What is live, by offset.
type Live = BTreeMap<u64, u64>;

fn commit(heap: &Allocator, intent: Intent) {
    let mut lines = FlushSet::default();
    heap.apply(&intent, &mut lines).unwrap();
    heap.pool().flush_set(&mut lines).unwrap();
}

/// Allocates and frees, of one page's size mostly, so that chunks are cut anew for other sizes.
fn work(heap: &Allocator, rng: &mut Rng, held: &mut Vec<Block>) {
    for _ in 0..60 + rng.below(200) {
        if rng.below(5) < 3 || held.is_empty() {
            let bytes = [16, 64, 200, 1000, 3000, 20_000][rng.below(6) as usize];
            let Ok(block) = heap.reserve(bytes, 8) else { continue };
            commit(heap, Intent::alloc(&block));
            held.push(block);
        } else {
            let block = held.swap_remove(rng.below(held.len() as u64) as usize);
            heap.begin_free(&block).unwrap();
            commit(heap, Intent::free(&block));
            heap.release(block).unwrap();
        }
    }
    heap.pool().drain().unwrap();
}

fn open(bytes: &[u8], path: &std::path::Path) -> pmem::Result<(Pool, Allocator)> {
    fs::write(path, bytes).unwrap();
    let pool = emulated(0).open(path)?;
    let heap = Allocator::open(&pool, "heap")?;
    Ok((pool, heap))
}

fn look(heap: &Allocator) -> pmem::Result<Live> {
    let mut live = Live::new();
    heap.live_blocks(|offset, len| {
        live.insert(offset, len);
        Ok(())
    })?;
    Ok(live)
}

/// Every older version of every page of tables and bitmaps, of a pool that was closed and of one that was killed: an error, or the same.
#[test]
fn allocator_page_that_went_back_is_noticed() {
    let seed = 0x105f;
    println!("seed {seed}");
    let dir = memory();
    let mut outcomes = [0; 2];
    for (chunk, closed) in [(4096, true), (4096, false), (16384, true), (16384, false)] {
        let mut rng = Rng(seed + chunk + u64::from(closed));
        let path = dir.path().join(format!("p{chunk}{closed}"));
        let pool = Options::new().size(2 * MIB).domain(pmem::DomainChoice::Emulated).create(&path).unwrap();
        let heap = Allocator::create(&pool, "heap", MIB, HeapOptions::chunk_bytes(chunk).unwrap()).unwrap();
        let tables = pool.info().regions[0].offset as usize..heap.spaces()[0].start as usize;
        let mut held = Vec::new();
        let mut versions = Vec::new();
        for _ in 0..6 {
            work(&heap, &mut rng, &mut held);
            versions.push(fs::read(&path).unwrap());
        }
        let expected: Live = held.iter().map(|b| (b.offset(), b.len())).collect();
        assert_eq!(look(&heap).unwrap(), expected);
        if closed {
            heap.close().unwrap();
            pool.close().unwrap();
        } else {
            drop((heap, pool));
        }
        let now = fs::read(&path).unwrap();
        versions.push(vec![0; now.len()]); // it was never written
        let copy = dir.path().join("copy");
        for page in tables.step_by(PAGE) {
            for version in &versions {
                let mut bytes = now.clone();
                bytes[page..page + PAGE].copy_from_slice(&version[page..page + PAGE]);
                let same = bytes == now;
                let (pool, heap) = open(&bytes, &copy).unwrap();
                match look(&heap) {
                    Ok(live) => assert_eq!(live, expected, "page {page:#x} went back, and nothing was said"),
                    Err(Error::Damaged { .. }) => assert!(!same),
                    Err(e) => panic!("{e}"),
                }
                outcomes[usize::from(look(&heap).is_err())] += 1;
                // And nothing is handed out over what is live.
                while let Ok(block) = heap.reserve(64, 8) {
                    let before = expected.range(..block.offset() + block.len()).next_back();
                    let free = before.is_none_or(|(at, len)| at + len <= block.offset());
                    assert!(free, "page {page:#x} went back: {block:?} overwrites {before:?}");
                }
                drop((heap, pool));
            }
        }
    }
    println!("{} as before, {} errors", outcomes[0], outcomes[1]);
    assert!(outcomes[1] > 50);
}
