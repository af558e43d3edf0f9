//! The allocator against a model: nothing is handed out twice, all of it can be, and what stands on media is exactly what was committed.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};

use pmem::{Allocator, Block, Error, FlushSet, HeapOptions, HeapUsage, Intent, Options, Pool};
use proptest::prelude::*;

use crate::support::{Ram, Rng, emulated, fails, memory};

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;

fn heap(pool: &Pool, bytes: u64, chunk: u64) -> Allocator {
    Allocator::create(pool, "heap", bytes, HeapOptions::chunk_bytes(chunk).unwrap()).unwrap()
}

fn on_ram(bytes: u64, chunk: u64) -> (std::sync::Arc<Ram>, Pool, Allocator) {
    let ram = Ram::new(bytes + 4 * MIB);
    let pool = Options::new().size(64 << 10).create_on(ram.clone()).unwrap();
    let heap = heap(&pool, bytes, chunk);
    (ram, pool, heap)
}

fn commit(heap: &Allocator, intent: Intent) {
    let mut lines = FlushSet::default();
    heap.apply(&intent, &mut lines).unwrap();
    heap.pool().flush_set(&mut lines).unwrap();
}

fn free(heap: &Allocator, block: Block) {
    heap.begin_free(&block).unwrap();
    commit(heap, Intent::free(&block));
    heap.release(block).unwrap();
}

fn live(heap: &Allocator) -> (BTreeMap<u64, u64>, HeapUsage) {
    let mut blocks = BTreeMap::new();
    let usage = heap.live_blocks(|offset, len| {
        assert!(blocks.insert(offset, len).is_none(), "reported twice");
        Ok(())
    });
    (blocks, usage.unwrap())
}

/// Blocks by offset; refuses what overlaps.
#[derive(Default)]
struct Model {
    blocks: BTreeMap<u64, (Block, bool)>,
}

impl Model {
    #[track_caller]
    fn add(&mut self, block: Block, bytes: u64, align: u64) {
        assert!(block.len() >= bytes && block.offset().is_multiple_of(align), "{block:?} for {bytes} at {align}");
        let before = self.blocks.range(..block.offset() + block.len()).next_back();
        assert!(before.is_none_or(|(at, (b, _))| at + b.len() <= block.offset()), "{block:?} overlaps {before:?}");
        self.blocks.insert(block.offset(), (block, false));
    }

    fn pick(&self, which: prop::sample::Index) -> Option<u64> {
        (!self.blocks.is_empty()).then(|| *self.blocks.keys().nth(which.index(self.blocks.len())).unwrap())
    }

    /// The longest run of whole chunks that belong to no span with a block in it.
    fn free_chunks(&self, first: u64, chunks: u64) -> u64 {
        let (mut longest, mut at) = (0, first);
        let ends = self.blocks.values().map(|(block, _)| {
            // place u64, class u16, chunks before the block's own u16, chunks of its span u32
            let intent = Intent::free(block);
            let bytes = pmem::bytes_of(&intent);
            let number = |at: usize| u64::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
            let head = block.offset() / PAGE - number(10);
            (head * PAGE, (head + number(12)) * PAGE)
        });
        for (start, end) in ends.chain([(first + chunks * PAGE, 0)]) {
            longest = longest.max((start / PAGE).saturating_sub(at.div_ceil(PAGE)));
            at = at.max(end);
        }
        longest
    }
}

#[derive(Clone, Debug)]
enum Op {
    Reserve(u64, u64),
    Commit(prop::sample::Index),
    Free(prop::sample::Index),
    CancelFree(prop::sample::Index),
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let align = prop_oneof![3 => Just(8u64), 1 => (3u32..13).prop_map(|n| 1 << n)];
    let bytes = prop_oneof![4 => 1u64..300, 3 => 300u64..5000, 1 => 5000u64..60_000];
    prop_oneof![
        6 => (bytes, align).prop_map(|(bytes, align)| Op::Reserve(bytes, align)),
        4 => any::<prop::sample::Index>().prop_map(Op::Commit),
        4 => any::<prop::sample::Index>().prop_map(Op::Free),
        1 => any::<prop::sample::Index>().prop_map(Op::CancelFree),
        1 => Just(Op::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn blocks_are_handed_out_once_and_all_of_them(ops in proptest::collection::vec(op(), 1..250)) {
        let (ram, mut pool, mut heap) = on_ram(200 << 10, PAGE);
        let first = heap.reserve(64, 8).unwrap();
        heap.cancel(first).unwrap();
        let (first, chunks) = (first.offset(), live(&heap).1.chunk_bytes / PAGE); // the lowest chunk comes first
        let mut model = Model::default();
        for op in ops {
            match op {
                Op::Reserve(bytes, align) => match heap.reserve(bytes, align) {
                    Ok(block) => {
                        prop_assert!(heap.is_current(&block) && !heap.is_published(&block).unwrap());
                        prop_assert!(bytes <= 16 || bytes > 4 * PAGE || align > 8 || block.len() * 3 <= bytes * 4 + 21, "{block:?} for {bytes}");
                        model.add(block, bytes, align);
                    }
                    Err(Error::HeapFull { .. }) => {
                        let free = model.free_chunks(first, chunks);
                        // Spans of the small sizes are one chunk, of the large ones as many as it takes.
                        if bytes <= 1024 && align == 8 {
                            prop_assert_eq!(free, 0, "{} bytes, and a chunk is free", bytes);
                        } else if bytes > 4 * PAGE {
                            prop_assert!(free < bytes.div_ceil(PAGE), "{} bytes, and {} chunks are free", bytes, free);
                        }
                    }
                    Err(other) => return Err(TestCaseError::fail(other.to_string())),
                },
                Op::Commit(which) => {
                    let Some(at) = model.pick(which) else { continue };
                    let (block, committed) = model.blocks.get_mut(&at).unwrap();
                    commit(&heap, Intent::alloc(block)); // for some the second time: harmless
                    *committed = true;
                    prop_assert!(heap.is_published(block).unwrap());
                }
                Op::Free(which) => {
                    let Some(at) = model.pick(which) else { continue };
                    let (block, committed) = model.blocks.remove(&at).unwrap();
                    if committed { free(&heap, block) } else { heap.cancel(block).unwrap() }
                    prop_assert!(!heap.is_current(&block));
                    prop_assert!(heap.resolve(block.ptr::<u8>(&pool), 1).is_err());
                }
                Op::CancelFree(which) => {
                    let Some(at) = model.pick(which) else { continue };
                    let (block, _) = model.blocks[&at];
                    heap.begin_free(&block).unwrap();
                    prop_assert!(heap.begin_free(&block).is_err());
                    prop_assert!(heap.resolve(block.ptr::<u8>(&pool), 1).is_err());
                    heap.cancel_free(&block).unwrap();
                }
                Op::Reopen => {
                    drop((heap, pool));
                    pool = Options::new().open_on(ram.clone()).unwrap();
                    heap = Allocator::open(&pool, "heap").unwrap();
                    model.blocks.retain(|_, (_, committed)| *committed); // reservations were DRAM alone
                    let (found, usage) = live(&heap);
                    prop_assert!(found.into_iter().eq(model.blocks.iter().map(|(at, (b, _))| (*at, b.len()))));
                    prop_assert_eq!(usage.live_bytes, model.blocks.values().map(|(b, _)| b.len()).sum::<u64>());
                    // Blocks are known by pointer now, not by the values of before.
                    for (block, _) in model.blocks.values_mut() {
                        let again = heap.resolve(block.ptr::<u8>(&pool), block.len()).unwrap();
                        prop_assert_eq!((again.offset(), again.len()), (block.offset(), block.len()));
                        *block = again;
                    }
                }
            }
            for (block, _) in model.blocks.values().take(5) {
                let inside = heap.resolve(pmem::PPtr::<u8>::new(pool.tag(), block.offset() + block.len() - 1), 1).unwrap();
                prop_assert_eq!(&inside, block);
            }
        }
        let reserved = model.blocks.values().filter(|(_, committed)| !committed).count() as u64;
        prop_assert_eq!(heap.outstanding(), reserved);
        let closed = heap.close();
        let expected = if reserved == 0 { closed.is_ok() } else { matches!(closed, Err(Error::InUse { .. })) };
        prop_assert!(expected);
    }
}

#[test]
fn all_memory_can_be_used_for_every_size_in_turn() {
    let (_ram, pool, heap) = on_ram(MIB, PAGE);
    let sizes = [16, 48, 200, 1000, 3000, 7000, 16 << 10, 40_000, MIB / 2, 16, 5000];
    for (n, bytes) in sizes.into_iter().enumerate() {
        let mut blocks: Vec<Block> = std::iter::from_fn(|| heap.reserve(bytes, 8).ok()).collect();
        let (sum, waste) = (blocks.iter().map(Block::len).sum::<u64>(), bytes.max(16 * PAGE));
        assert!(sum + sum / 7 + waste >= MIB - 32 * PAGE, "{bytes} bytes: {sum} of 1 MiB handed out");
        let full = fails(heap.reserve(bytes, 8), &["no free block", "grow the pool"]);
        assert!(matches!(full, Error::HeapFull { .. }));
        // Each freed one is handed out again, and no more than that.
        let gone = blocks.swap_remove(blocks.len() / 2);
        heap.cancel(gone).unwrap();
        blocks.push(heap.reserve(bytes, 8).unwrap());
        assert!(heap.reserve(bytes, 8).is_err());
        // In some other order than they came.
        let mut rng = Rng(n as u64);
        while !blocks.is_empty() {
            let block = blocks.swap_remove(rng.below(blocks.len() as u64) as usize);
            heap.cancel(block).unwrap();
        }
        assert_eq!(heap.outstanding(), 0);
    }
    assert!(matches!(heap.reserve(8, 8192), Err(Error::Limit { what: "alignment of a block", .. })));
    assert!(matches!(heap.reserve(u64::MAX, 8), Err(Error::HeapFull { .. })));
    heap.close().unwrap();
    pool.close().unwrap();
}

/// Four threads reserve, commit and free, each also what others reserved. A byte map, claimed atomically, sees any overlap.
#[test]
fn threads_share_a_heap_without_sharing_blocks() {
    const GRAIN: u64 = 8;
    let (ram, pool, heap) = on_ram(4 * MIB, 16 << 10);
    let size = ram.image().len() as u64;
    let owners: Vec<AtomicU32> = (0..size / GRAIN).map(|_| AtomicU32::new(0)).collect();
    let own = |block: &Block, from: u32, to: u32| {
        for grain in block.offset() / GRAIN..(block.offset() + block.len()) / GRAIN {
            let was = owners[grain as usize].swap(to, SeqCst);
            assert_eq!(was, from, "{block:?}: grain {grain} was {was}'s, not {from}'s");
        }
    };
    let shared: Mutex<Vec<(Block, u32, bool)>> = Mutex::new(Vec::new());
    let full = AtomicUsize::new(0);
    let work = |me: u32| {
        let mut rng = Rng(me.into());
        for _ in 0..20_000 {
            let bytes = match rng.below(20) {
                0 => 20_000 + rng.below(100_000),
                1..4 => rng.below(8000),
                _ => 1 + rng.below(200),
            };
            match heap.reserve(bytes, 8) {
                Ok(block) => {
                    own(&block, 0, me);
                    let committed = rng.below(2) == 0;
                    if committed {
                        commit(&heap, Intent::alloc(&block));
                    }
                    shared.lock().unwrap().push((block, me, committed));
                }
                Err(Error::HeapFull { .. }) => drop(full.fetch_add(1, SeqCst)),
                Err(other) => panic!("{other:?}"),
            }
            let mut blocks = shared.lock().unwrap();
            let many = blocks.len() as u64;
            if many > 400 || (many > 0 && rng.below(2) == 0) {
                let (block, owner, committed) = blocks.swap_remove(rng.below(many) as usize);
                drop(blocks);
                own(&block, owner, 0);
                if committed { free(&heap, block) } else { heap.cancel(block).unwrap() }
            }
        }
    };
    std::thread::scope(|scope| (1..=4).for_each(|me| drop(scope.spawn(move || work(me)))));
    let left = shared.into_inner().unwrap();
    println!("{} blocks left, the heap was full {} times", left.len(), full.into_inner());
    let mut expected: Vec<(u64, u64)> = left.iter().filter(|b| b.2).map(|b| (b.0.offset(), b.0.len())).collect();
    expected.sort_unstable();
    assert!(live(&heap).0.into_iter().eq(expected.iter().copied()));
    drop((heap, pool));

    // What was committed is there, once; all the rest is free again.
    let pool = Options::new().open_on(ram).unwrap();
    let heap = Allocator::open(&pool, "heap").unwrap();
    assert!(live(&heap).0.into_iter().eq(expected.iter().copied()));
    for (offset, len) in expected {
        let block = heap.resolve(pmem::PPtr::<u8>::new(pool.tag(), offset), len).unwrap();
        free(&heap, block);
    }
    let all = heap.reserve(3 * MIB, 8).unwrap();
    heap.cancel(all).unwrap();
    heap.close().unwrap();
}

#[test]
fn heap_grows_and_is_trimmed_while_in_use() {
    let dir = memory();
    let path = dir.path().join("pool");
    let pool = emulated(64 << 10).create(&path).unwrap();
    let heap = heap(&pool, 256 << 10, PAGE);
    let keep = heap.reserve(1000, 8).unwrap();
    commit(&heap, Intent::alloc(&keep));
    let before = fs::metadata(&path).unwrap().len();

    assert!(heap.reserve(MIB, 8).is_err());
    heap.grow(2 * MIB).unwrap();
    let large = heap.reserve(2 * MIB, 8).unwrap();
    commit(&heap, Intent::alloc(&large));
    let grown = fs::metadata(&path).unwrap().len();
    assert!(grown >= before + 2 * MIB);
    // Behind another region the heap goes on in a further extent.
    pool.add_region("behind", 4096).unwrap();
    heap.grow(MIB).unwrap();
    let second = heap.reserve(MIB, 8).unwrap();
    commit(&heap, Intent::alloc(&second));
    for block in [&keep, &large, &second] {
        assert_eq!(heap.resolve(block.ptr::<u8>(&pool), block.len()).unwrap(), *block);
    }
    assert_eq!(heap.trim().unwrap(), 0, "the last chunks are in use");
    free(&heap, second);
    let given = heap.trim().unwrap();
    assert!(given >= MIB - PAGE, "{given} bytes given back");
    assert_eq!(fs::metadata(&path).unwrap().len(), pool.size());
    assert!(heap.resolve(second.ptr::<u8>(&pool), 1).is_err(), "outside of the heap now");
    heap.grow(MIB).unwrap();
    let again = heap.reserve(MIB, 8).unwrap();
    heap.cancel(again).unwrap();
    drop((heap, pool));

    let pool = emulated(0).open(&path).unwrap();
    let heap = Allocator::open(&pool, "heap").unwrap();
    let (blocks, _) = live(&heap);
    assert_eq!(blocks, BTreeMap::from([(keep.offset(), keep.len()), (large.offset(), large.len())]));
    heap.resolve(keep.ptr::<u8>(&pool), 1000).unwrap();
}

#[test]
fn allocator_opens_heaps_alone() {
    let (_ram, pool, heap) = on_ram(64 << 10, PAGE);
    heap.close().unwrap();
    pool.add_region("data", PAGE).unwrap();
    let error = fails(Allocator::open(&pool, "data"), &["region kind", "Raw", "Heap"]);
    assert!(matches!(error, Error::WrongLayout { .. }));
    assert!(matches!(Allocator::open(&pool, "none"), Err(Error::NoRegion { .. })));
    for bytes in [0, 4095, 2048, 3 << 12, 2 << 20] {
        assert!(matches!(HeapOptions::chunk_bytes(bytes), Err(Error::Limit { .. })), "{bytes}");
    }
    Allocator::open(&pool, "heap").unwrap();
}

/// Each step of a heap that something follows may be an extent, and extents are entries of the directory: steps end, the heap does not.
#[test]
fn growing_by_small_steps_ends_with_the_directory() {
    let (_ram, pool, heap) = on_ram(64 << 10, 4096);
    pool.add_region("behind", 4096).unwrap();
    let before = live(&heap).1.chunk_bytes;
    let (mut steps, mut ended) = (0, Ok(()));
    while steps < 10_000 && ended.is_ok() {
        ended = heap.grow(4096);
        steps += u64::from(ended.is_ok());
    }
    assert_eq!(live(&heap).1.chunk_bytes, before + steps * 4096);
    if let Err(error) = ended {
        let error = fails::<()>(Err(error), &["48 regions and extents", "grow them in larger steps"]);
        assert!(matches!(error, Error::DirectoryFull { .. }));
        assert!(steps >= 46, "the heap and the other region have an entry each: {steps}");
    }
    // What there is can be used to the last block.
    let mut blocks = 0;
    while let Ok(block) = heap.reserve(4096, 8) {
        commit(&heap, Intent::alloc(&block));
        blocks += 1;
    }
    assert_eq!(blocks, before / 4096 + steps);
}

/// Opening looks at nothing of the heap, however large it is; each first use looks at what it needs.
#[test]
#[expect(clippy::disallowed_methods, reason = "the time is printed, not judged")]
fn large_heap_is_opened_without_reading_it() {
    const HEAP: u64 = 16 << 30;
    const OBJECTS: usize = 1_000_000;
    let ram = Ram::sparse(HEAP + 64 * MIB);
    let pool = Options::new().size(64 << 10).create_on(ram.clone()).unwrap();
    let heap = heap(&pool, HEAP, 64 << 10);
    let mut lines = FlushSet::default();
    let mut last = None;
    for n in 0..OBJECTS {
        let block = heap.reserve(128, 8).unwrap();
        heap.apply(&Intent::alloc(&block), &mut lines).unwrap();
        if n % 256 == 0 {
            pool.flush_set(&mut lines).unwrap();
        }
        last = Some(block);
    }
    pool.flush_set(&mut lines).unwrap();
    heap.close().unwrap();
    pool.close().unwrap();

    let read = |what: &str, since: u64, started: std::time::Instant| {
        println!("{what}: {} bytes accessed, {:?}", ram.accessed() - since, started.elapsed());
        ram.accessed() - since
    };
    let (since, started) = (ram.accessed(), std::time::Instant::now());
    let pool = Options::new().open_on(ram.clone()).unwrap();
    let heap = Allocator::open(&pool, "heap").unwrap();
    assert!(read("open 16 GiB with 1 M objects", since, started) <= 32 << 10);
    let (since, started) = (ram.accessed(), std::time::Instant::now());
    heap.resolve(last.unwrap().ptr::<u8>(&pool), 128).unwrap();
    assert!(read("first resolve", since, started) <= 4 << 10);
    let (since, started) = (ram.accessed(), std::time::Instant::now());
    let block = heap.reserve(5000, 8).unwrap();
    // Of a size that is new here: every chunk is looked at up to the first free one, behind all objects.
    assert!(read("first reserve", since, started) <= 1 << 20);
    heap.cancel(block).unwrap();
    let (since, started) = (ram.accessed(), std::time::Instant::now());
    assert_eq!(live(&heap).1.live_blocks, OBJECTS as u64);
    read("walk of everything", since, started);
}

// ---- fragmentation -----------------------------------------------------------------------------------------------

/// Allocations and frees of random sizes around a steady number of live bytes; prints and returns heap bytes in use per live byte.
fn steady(name: &str, live_target: u64, mut size: impl FnMut(&mut Rng) -> u64) -> f64 {
    let ram = Ram::sparse(1 << 30);
    let pool = Options::new().size(64 << 10).create_on(ram).unwrap();
    let heap = heap(&pool, MIB, 64 << 10);
    let rng = &mut Rng(1);
    let (mut blocks, mut asked) = (Vec::new(), 0);
    for _ in 0..300_000 {
        let bytes = size(rng);
        let block = match heap.reserve(bytes, 8) {
            Err(Error::HeapFull { .. }) => {
                // By shares, as extents are limited.
                heap.grow((pool.size() / 8).max(MIB).max(2 * bytes)).unwrap();
                heap.reserve(bytes, 8).unwrap()
            }
            other => other.unwrap(),
        };
        commit(&heap, Intent::alloc(&block));
        blocks.push((block, bytes));
        asked += bytes;
        while asked > live_target {
            let (block, bytes) = blocks.swap_remove(rng.below(blocks.len() as u64) as usize);
            free(&heap, block);
            asked -= bytes;
        }
    }
    let (_, usage) = live(&heap);
    let in_use = usage.chunk_bytes - usage.free_chunk_bytes;
    let per_live = in_use as f64 / asked as f64;
    println!(
        "{name:<34} live {:>6} KiB, in blocks {:>6} KiB, in chunks {:>6} KiB, heap {:>6} KiB: {per_live:.2} per live byte",
        asked >> 10,
        usage.live_bytes >> 10,
        in_use >> 10,
        usage.chunk_bytes >> 10
    );
    per_live
}

#[test]
fn fragmentation_of_mixed_sizes_is_bounded() {
    let target = 16 * MIB;
    let logarithmic = |rng: &mut Rng, low: u32, high: u32| {
        let lg = low + rng.below((high - low).into()) as u32;
        (1 << lg) + rng.below(1 << lg)
    };
    let mixes = [
        (steady("128 bytes", target, |_| 128), 1.1),
        (steady("16 to 256 bytes", target, |rng| 16 + rng.below(241)), 1.35),
        (steady("64 bytes to 8 KiB, by magnitude", target, |rng| logarithmic(rng, 6, 13)), 1.6),
        (
            steady("9 of 10 small, 1 up to 64 KiB", target, |rng| match rng.below(10) {
                0 => 8192 + rng.below(56 << 10),
                _ => 16 + rng.below(200),
            }),
            1.8,
        ),
        (steady("16 bytes to 512 KiB, by magnitude", 2 * target, |rng| logarithmic(rng, 4, 19)), 2.0),
    ];
    let mut n = 0;
    let drifting = steady("sizes that grow with time", target, |rng| {
        n += 1;
        16 + n / 100 + rng.below(64)
    });
    for (per_live, bound) in mixes.into_iter().chain([(drifting, 2.5)]) {
        assert!(per_live >= 1.0 && per_live <= bound, "{per_live:.2} heap bytes per live byte, bound {bound}");
    }
}
