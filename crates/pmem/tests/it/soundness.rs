//! What safe code cannot do: each rule is held here or, where the compiler holds it, in `tests/compile_fail`.

use std::collections::{BTreeMap, HashSet};

use pmem::{
    Action, Allocator, Area, DomainChoice, Error, FlushSet, HeapOptions, Intent, OFFSET_MAX, Objects, ObjectsOptions,
    Options, PPtr, Pool, Session,
};
use proptest::prelude::*;

use crate::support::{Ram, Rng, emulated, fails, memory};

fn small() -> ObjectsOptions {
    let heap = HeapOptions::chunk_bytes(4096).unwrap();
    ObjectsOptions { heap_bytes: 256 << 10, log_bytes: 32 << 10, heap }
}

fn publish(objects: &Objects, len: u64, byte: u8) -> PPtr<u8> {
    let mut block = objects.reserve(len, 8).unwrap();
    block.bytes_mut().unwrap().fill(byte);
    let ptr = block.ptr();
    objects.lock().publish(&mut [Action::Alloc(block)]).unwrap();
    ptr
}

fn free(objects: &Objects, ptr: PPtr<u8>) -> pmem::Result<()> {
    objects.lock().publish(&mut [Action::Free(ptr.cast())])
}

#[track_caller]
fn bad(result: pmem::Result<()>, why: &str) {
    let error = fails(result, &["is not a live object of this pool", why]);
    assert!(matches!(error, Error::BadPointer { .. }), "{error:?}");
}

// ---- forged pointers ---------------------------------------------------------------------------------------------

/// A heap with everything in it: objects of all sizes, freed blocks, reserved ones; and the published blocks by offset.
fn populated(objects: &Objects, rng: &mut Rng) -> BTreeMap<u64, u64> {
    let sizes = [16, 24, 64, 100, 500, 3000, 4096, 9000, 20_000];
    let mut made: Vec<PPtr<u8>> = (0..120).map(|n| publish(objects, sizes[n % sizes.len()], n as u8)).collect();
    for _ in 0..50 {
        let gone = made.swap_remove(rng.below(made.len() as u64) as usize);
        free(objects, gone).unwrap();
    }
    let mut blocks = BTreeMap::new();
    let usage = objects.heap().live_blocks(|offset, len| {
        blocks.insert(offset, len);
        Ok(())
    });
    assert_eq!(usage.unwrap().live_blocks, made.len() as u64);
    assert!(made.iter().all(|ptr| blocks.contains_key(&ptr.offset())));
    blocks
}

fn expected(blocks: &BTreeMap<u64, u64>, offset: u64, len: u64) -> bool {
    let around = blocks.range(..=offset).next_back();
    around.is_some_and(|(&start, &size)| offset < start + size && len <= start + size - offset)
}

/// One pointer, made up; resolved in every way there is. It must be refused unless those bytes are in one published block.
fn judge(session: &mut Session<'_>, blocks: &BTreeMap<u64, u64>, tag: u16, raw: u64, len: u64) -> bool {
    let ptr = PPtr::<u8>::from_raw(raw);
    let valid = ptr.tag() == tag && expected(blocks, ptr.offset(), len);
    match session.bytes(ptr, len) {
        Ok(bytes) => assert!(valid && bytes.len() as u64 == len, "{ptr:?} for {len} bytes was resolved"),
        Err(Error::BadPointer { ptr, .. }) => assert!(!valid && ptr == raw, "{ptr:#x} for {len} bytes was refused"),
        Err(other) => panic!("{ptr:?}: {other:?}"),
    }
    let word = ptr.tag() == tag && expected(blocks, ptr.offset(), 8);
    let aligned = ptr.offset().is_multiple_of(8);
    match session.get::<u64>(ptr.cast()) {
        Ok(_) => assert!(word && aligned),
        Err(Error::Unaligned { .. }) => assert!(word && !aligned),
        Err(Error::BadPointer { .. }) => assert!(!word),
        Err(other) => panic!("{ptr:?}: {other:?}"),
    }
    if !word {
        assert!(matches!(session.publish(&mut [Action::Set(ptr.cast(), 1)]), Err(Error::BadPointer { .. })));
    }
    if ptr.tag() != tag || !blocks.contains_key(&ptr.offset()) {
        assert!(matches!(session.publish(&mut [Action::Free(ptr.cast())]), Err(Error::BadPointer { .. })));
    }
    valid
}

#[test]
fn forged_pointer_is_refused_and_nothing_else() {
    let pool = Options::new().size(1 << 20).create_on(Ram::new(8 << 20)).unwrap();
    let objects = Objects::create(&pool, small()).unwrap();
    let rng = &mut Rng(42);
    let blocks = populated(&objects, rng);
    let reserved: Vec<_> = (0..20).map(|n| objects.reserve(16 + 40 * n, 8).unwrap()).collect();
    let mut session = objects.lock();
    let (tag, size) = (pool.tag(), pool.size());
    let mut valid = 0;
    let starts: Vec<(u64, u64)> = blocks.iter().map(|(&o, &l)| (o, l)).collect();
    for n in 0..200_000 {
        let (start, block) = starts[rng.below(starts.len() as u64) as usize];
        let own = |offset: u64| PPtr::<u8>::new(tag, offset).raw();
        let raw = match n % 8 {
            0 => rng.word(),                                             // anything
            1 => own(rng.below(size)), // anywhere in the pool: metadata, free blocks, blocks
            2 => own(start + rng.below(block)), // inside a block
            3 => own(start.wrapping_sub(rng.below(32))), // just before one
            4 => own(start + block - 1 + rng.below(16)), // at the end of one
            5 => own(size.wrapping_sub(8) + rng.below(4096)), // at the end of the pool
            6 => own(OFFSET_MAX - rng.below(1 << 20)), // far outside
            _ => PPtr::<u8>::new(tag ^ 1 << rng.below(16), start).raw(), // of another pool
        };
        let len = [0, 1, 8, block, block + 1, rng.below(8192), u64::MAX - rng.below(16)][rng.below(7) as usize];
        valid += u64::from(judge(&mut session, &blocks, tag, raw, len));
    }
    // Every byte of the pool, as a pointer to one word.
    for offset in 0..size {
        valid += u64::from(judge(&mut session, &blocks, tag, PPtr::<u8>::new(tag, offset).raw(), 8));
    }
    assert!(valid > 50_000, "{valid} pointers were good: the judge sees both sides");
    for block in &reserved {
        bad(session.bytes(block.ptr(), 1).map(drop), "not published");
        bad(session.publish(&mut [Action::Free(block.ptr())]), "not published");
        bad(session.publish(&mut [Action::Set(block.ptr(), 0)]), "not published");
    }
    bad(session.bytes(PPtr::NULL, 0).map(drop), "null");
    let after = session.bytes(PPtr::new(tag, starts[0].0), 1).is_ok();
    assert!(after, "refusals leave the objects usable");
}

#[test]
fn pointer_of_another_pool_is_refused() {
    let dir = memory();
    let make = |n: u32| {
        let pool = emulated(1 << 20).create(dir.path().join(n.to_string())).unwrap();
        let objects = Objects::create(&pool, small()).unwrap();
        let ptr = publish(&objects, 64, 1);
        (objects, ptr, pool.tag())
    };
    let (one, ptr, tag) = make(0);
    // Tags are 16 random bits: one in 65536 pairs of pools has the same.
    let (other, other_ptr, _) = (1..).map(make).find(|made| made.2 != tag).unwrap();
    assert_eq!(ptr.offset(), other_ptr.offset(), "same offset, other pool");
    bad(one.lock().bytes(other_ptr, 8).map(drop), "of another pool");
    bad(free(&other, ptr), "of another pool");
    let block = one.reserve(64, 8).unwrap();
    bad(other.lock().publish(&mut [Action::Alloc(block)]), "reserved elsewhere");
}

// ---- blocks ------------------------------------------------------------------------------------------------------

#[test]
fn object_is_freed_once() {
    let pool = Options::new().size(1 << 20).create_on(Ram::new(8 << 20)).unwrap();
    let objects = Objects::create(&pool, small()).unwrap();
    let (ptr, other) = (publish(&objects, 100, 1), publish(&objects, 100, 2));
    let mut session = objects.lock();
    // Twice in one publication: refused as a whole.
    let twice = [Action::Free(ptr.cast()), Action::Free(other.cast()), Action::Free(ptr.cast())];
    bad(session.publish(&mut { twice }), "free block");
    assert_eq!(session.bytes(ptr, 100).unwrap(), [1; 100]);
    assert_eq!(session.bytes(other, 100).unwrap(), [2; 100]);
    // Set and freed: refused as well, before anything happens.
    bad(session.publish(&mut [Action::Free(ptr.cast()), Action::Set(ptr.cast(), 9)]), "free block");
    assert_eq!(session.bytes(ptr, 8).unwrap(), [1; 8]);
    // Not at its start.
    bad(session.publish(&mut [Action::Free(PPtr::new(pool.tag(), ptr.offset() + 8))]), "not the start");

    session.publish(&mut [Action::Free(ptr.cast())]).unwrap();
    bad(session.publish(&mut [Action::Free(ptr.cast())]), "free");
    bad(session.bytes(ptr, 1).map(drop), "free");
    assert_eq!(session.bytes(other, 100).unwrap(), [2; 100]);
    drop(session);
    objects.close().unwrap();
}

#[test]
fn block_of_the_allocator_is_freed_once() {
    let pool = Options::new().size(1 << 20).create_on(Ram::new(8 << 20)).unwrap();
    let heap = Allocator::create(&pool, "heap", 128 << 10, HeapOptions::chunk_bytes(4096).unwrap()).unwrap();
    let block = heap.reserve(100, 8).unwrap();
    heap.cancel(block).unwrap();
    let error = fails(heap.cancel(block), &["freed twice"]);
    assert!(matches!(error, Error::DoubleFree { .. }));
    assert!(!heap.is_current(&block));
    // Even when the chunk has another use meanwhile.
    let all: Vec<_> = std::iter::from_fn(|| heap.reserve(3000, 8).ok()).collect();
    assert!(matches!(heap.begin_free(&block), Err(Error::DoubleFree { .. })));
    assert!(matches!(heap.resolve(block.ptr::<u8>(&pool), 100).map(|b| b == block), Err(_) | Ok(false)));
    all.into_iter().for_each(|b| heap.cancel(b).unwrap());
    heap.close().unwrap();
}

#[test]
fn reservation_is_published_once() {
    let pool = Options::new().size(1 << 20).create_on(Ram::new(8 << 20)).unwrap();
    let objects = Objects::create(&pool, small()).unwrap();
    let mut block = objects.reserve(64, 8).unwrap();
    block.bytes_mut().unwrap().fill(1);
    let ptr = block.ptr::<u8>();
    let mut actions = [Action::Alloc(block)];
    objects.lock().publish(&mut actions).unwrap();
    bad(objects.lock().publish(&mut actions), "published already");
    let [Action::Alloc(block)] = &mut actions else { unreachable!() };
    assert!(block.ptr::<u8>().is_null());
    bad(block.bytes_mut().map(drop), "published already"); // else it would change under a session's references
    drop(actions);
    assert_eq!(objects.lock().bytes(ptr, 64).unwrap(), [1; 64], "dropping it gives nothing back");
}

#[test]
fn refused_publication_gives_its_blocks_back() {
    let pool = Options::new().size(1 << 20).create_on(Ram::new(8 << 20)).unwrap();
    let objects = Objects::create(&pool, small()).unwrap();
    let kept = publish(&objects, 64, 1);
    for _ in 0..2000 {
        let block = objects.reserve(4000, 8).unwrap();
        let mut actions = [Action::Free(kept.cast()), Action::Alloc(block), Action::Free(PPtr::NULL)];
        bad(objects.lock().publish(&mut actions), "null");
    }
    assert_eq!(objects.lock().bytes(kept, 1).unwrap(), [1]);
    assert!(pool.size() <= 1 << 20, "2000 refusals grew the pool to {}", pool.size());
    objects.close().unwrap();
}

#[test]
fn forgotten_reservation_blocks_a_clean_close() {
    let ram = Ram::new(8 << 20);
    let pool = Options::new().size(1 << 20).create_on(ram.clone()).unwrap();
    let objects = Objects::create(&pool, small()).unwrap();
    drop(objects.reserve(64, 8).unwrap());
    std::mem::forget(objects.reserve(64, 8).unwrap());
    assert_eq!(objects.heap().outstanding(), 1);
    let error = fails(objects.close(), &["1 reserved blocks of heap \"objects.heap\"", "try again"]);
    assert!(matches!(error, Error::InUse { .. }));
    drop(pool);
    // It was never published: after the next open it is free.
    let pool = Options::new().open_on(ram).unwrap();
    assert!(!pool.was_clean());
    let objects = Objects::open(&pool).unwrap();
    assert_eq!(objects.heap().live_blocks(|_, _| Ok(())).unwrap().live_blocks, 0);
    objects.close().unwrap();
    pool.close().unwrap();
}

#[test]
fn open_objects_block_a_clean_close() {
    let pool = Options::new().size(1 << 20).create_on(Ram::new(8 << 20)).unwrap();
    let objects = Objects::create(&pool, small()).unwrap();
    let reserved = objects.reserve(64, 8).unwrap();
    let error = fails(pool.clone().close(), &["still in use"]);
    assert!(matches!(error, Error::InUse { .. }));
    let error = fails(Objects::open(&pool).map(drop), &["still in use"]);
    assert!(matches!(error, Error::InUse { .. }), "nor are they opened twice");
    assert!(matches!(Allocator::open(&pool, "objects.heap").map(drop), Err(Error::InUse { .. })), "nor piecewise");
    drop(reserved);
}

/// Intents come from media, or from any caller: none reaches outside the heap, or changes what it does not name.
#[test]
fn forged_intent_changes_bitmaps_alone() {
    let ram = Ram::new(2 << 20);
    let pool = Options::new().size(1 << 20).create_on(ram.clone()).unwrap();
    let guard = pool.add_region("guard", 4096).unwrap().into_area().unwrap();
    let heap = Allocator::create(&pool, "heap", 128 << 10, HeapOptions::chunk_bytes(4096).unwrap()).unwrap();
    let behind = pool.add_region("behind", 4096).unwrap().into_area().unwrap();
    let block = heap.reserve(64, 8).unwrap();
    let good = pmem::bytes_of(&Intent::alloc(&block)).to_vec();
    let rng = &mut Rng(7);
    let (mut applied, mut refused) = (0, 0);
    for _ in 0..200_000 {
        let mut bytes = good.clone();
        for _ in 0..=rng.below(3) {
            let at = rng.below(16) as usize;
            bytes[at] = [rng.word() as u8, 0, 1, 255, bytes[at].wrapping_add(8)][rng.below(5) as usize];
        }
        let intent = pmem::from_bytes::<Intent>(&bytes).unwrap();
        match heap.apply(&intent, &mut FlushSet::default()) {
            Ok(()) => applied += 1,
            Err(Error::Damaged { what: "allocation intent", .. }) => refused += 1,
            Err(other) => panic!("{intent:?}: {other:?}"),
        }
    }
    println!("{applied} forged intents fit the heap, {refused} did not");
    assert!(applied > 1000 && refused > 1000);
    for area in [&guard, &behind] {
        assert!(area.bytes(0, 4096).unwrap().iter().all(|&b| b == 0), "outside of the heap");
    }
    // What fitted may contradict each other now: that is damage, and found.
    match heap.live_blocks(|offset, len| {
        assert!(offset >= guard.offset() + 4096 && offset + len <= behind.offset());
        Ok(())
    }) {
        Ok(_) | Err(Error::Damaged { .. }) => {}
        Err(other) => panic!("{other:?}"),
    }
}

// ---- areas -------------------------------------------------------------------------------------------------------

fn claimed(pool: &Pool) -> Area {
    pool.region("data").unwrap().into_area().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// However an area is cut, the parts cover it and no byte twice; each keeps to its own.
    #[test]
    fn parts_of_an_area_never_overlap(cuts in proptest::collection::vec((any::<prop::sample::Index>(), 0u64..5000), 1..20)) {
        let pool = Options::new().size(64 << 10).create_on(Ram::new(64 << 10)).unwrap();
        pool.add_region("data", 16 << 10).unwrap();
        let whole = claimed(&pool);
        let (start, len) = (whole.offset(), whole.len());
        let mut parts = vec![whole];
        for (which, at) in cuts {
            let at_part = which.index(parts.len());
            let part = parts.swap_remove(at_part);
            let part_len = part.len();
            match part.split_at(at) {
                Ok((a, b)) => {
                    prop_assert_eq!((a.len(), b.offset(), b.len()), (at, a.offset() + at, part_len - at));
                    parts.extend([a, b]);
                }
                Err(Error::OutOfBounds { .. }) => {
                    prop_assert!(at > part_len);
                    if parts.is_empty() {
                        parts.push(claimed(&pool)); // the last part, and the claim with it, went with the refusal
                    }
                }
                Err(other) => return Err(TestCaseError::fail(other.to_string())),
            }
        }
        let mut seen = HashSet::new();
        for (n, part) in parts.iter_mut().enumerate() {
            let part_len = part.len();
            prop_assert!((part.offset()..part.offset() + part_len).all(|byte| seen.insert(byte)));
            prop_assert!(part.offset() >= start && part.offset() + part_len <= start + len);
            part.bytes_mut(0, part_len as usize).unwrap().fill(n as u8);
            for (at, len) in [(0, part_len as usize + 1), (part_len, 1), (part_len + 1, 0), (u64::MAX, 1), (1, usize::MAX)] {
                assert!(matches!(part.bytes(at, len), Err(Error::OutOfBounds { .. })));
                assert!(matches!(part.bytes_mut(at, len), Err(Error::OutOfBounds { .. })));
                assert!(matches!(part.flush(at, len as u64), Err(Error::OutOfBounds { .. })));
            }
        }
        for (n, part) in parts.iter().enumerate() {
            prop_assert!(part.bytes(0, part.len() as usize).unwrap().iter().all(|&b| b == n as u8));
        }
    }
}

#[test]
fn alignment_is_checked() {
    let pool = Options::new().size(64 << 10).create_on(Ram::new(64 << 10)).unwrap();
    let mut area = pool.add_region("data", 4096).unwrap().into_area().unwrap();
    for at in 1..8 {
        assert!(matches!(area.get::<u64>(at), Err(Error::Unaligned { align: 8, .. })));
        assert!(matches!(area.get_mut::<u64>(at), Err(Error::Unaligned { .. })));
        assert!(matches!(area.publish(at, 0), Err(Error::Unaligned { .. })));
        area.put(at, &1u64).unwrap(); // a copy may go anywhere
    }
    let (_, odd) = area.split_at(8).unwrap();
    assert!(matches!(pmem::TwoSlot::create(odd, &0u64), Err(Error::Unaligned { align: 64, .. })));
}

/// A session keeps the lock that its thread took.
#[test]
fn session_stays_on_its_thread() {
    trait AmbiguousIfSend<A> {
        const ONLY: () = ();
    }
    impl<T: ?Sized> AmbiguousIfSend<()> for T {}
    struct Sendable;
    impl<T: ?Sized + Send> AmbiguousIfSend<Sendable> for T {}
    // Does not compile if a session can be sent: both impls would apply.
    <Session<'static> as AmbiguousIfSend<_>>::ONLY
}

/// Nothing of a pool's range may belong to any thread while it is opened: what another thread had mapped there would be replaced,
/// or take the pool's pages along when it goes.
#[test]
fn opening_pools_takes_no_memory_from_other_threads() {
    const SIZE: u64 = 16 << 20;
    let (disk, memory) = (crate::support::disk(), memory());
    let path = disk.path().join("pool");
    drop(crate::support::synced(SIZE).create(&path).unwrap());
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        for n in 0..2 {
            let path = memory.path().join(n.to_string());
            drop(emulated(1 << 20).max_size(1 << 20).create(&path).unwrap());
            let stop = &stop;
            threads.spawn(move || {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    Options::new().max_size(1 << 20).open(&path).unwrap();
                }
            });
        }
        let opened = (0..1000).try_for_each(|_| Options::new().open(&path).map(drop));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        opened.unwrap();
    });
}

/// What fills its last line with zeros does not reach into the area behind, wherever areas are cut.
#[test]
fn whole_lines_stay_in_their_area() {
    let dir = tempfile::tempdir().unwrap();
    let pool = Options::new().size(1 << 20).domain(DomainChoice::Emulated).create(dir.path().join("p")).unwrap();
    let key = pool.checksum_key(0);
    for (index, cut) in [8, 64, 72, 120, 200].into_iter().enumerate() {
        let whole = pool.add_region(&format!("r{index}"), 4096).unwrap().into_area().unwrap();
        let (mut before, rest) = whole.split_at(cut).unwrap();
        let (mut area, mut behind) = rest.split_at(200).unwrap();
        let data: Vec<u8> = (1..=255).collect();
        for (at, len) in (0..=200).step_by(7).flat_map(|at| (0..=208).map(move |len| (at, len))) {
            for other in [&mut before, &mut behind] {
                let all = other.len() as usize;
                other.bytes_mut(0, all).unwrap().fill(0xee);
            }
            area.bytes_mut(0, 200).unwrap().fill(0xee);
            let end = (area.offset() + at + len).next_multiple_of(64) - area.offset();
            let stored = area.put_lines(at, &data[..len as usize]);
            assert_eq!(stored.is_ok(), end <= 200, "{cut} {at} {len}");
            let mut expected = [0xee; 200];
            if end <= 200 {
                expected[at as usize..end as usize].fill(0);
                expected[at as usize..][..len as usize].copy_from_slice(&data[..len as usize]);
                let checksum = area.put_checksumming(at, &key, &data[..len as usize]).unwrap();
                assert_eq!(checksum, key.checksum(&data[..len as usize]));
            }
            assert_eq!(area.bytes(0, 200).unwrap(), expected, "{cut} {at} {len}");
            for other in [&before, &behind] {
                assert!(other.bytes(0, other.len() as usize).unwrap().iter().all(|byte| *byte == 0xee));
            }
        }
        assert!(area.put_lines(u64::MAX - 3, &data).is_err());
    }
    pool.drain().unwrap();
}
