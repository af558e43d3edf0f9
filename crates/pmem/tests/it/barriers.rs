//! What each operation costs, counted exactly: drains, flushed lines, bytes stored past the cache. Times are never asserted; these are.

use std::path::PathBuf;

use pmem::{
    Action, Allocator, FlushSet, HeapOptions, Intent, Objects, ObjectsOptions, Options, Pool, Ring, Stats, TwoSlot,
};

use crate::support::{emulated, memory};

const MIB: u64 = 1 << 20;
/// Lines of one header copy: 3264 bytes of value, sequence and checksum.
const HEADER: u64 = 52;

/// What `work` cost, as (drains, flushed lines, bytes past the cache, system calls that wait); printed under this name.
fn cost<R>(pool: &Pool, name: &str, work: impl FnOnce() -> pmem::Result<R>) -> ((u64, u64, u64, u64), R) {
    let before = pool.stats();
    let result = work().unwrap();
    let Stats { drains, flushed_lines, nt_bytes, syncs } = pool.stats() - before;
    println!("| {name} | {drains} | {flushed_lines} | {nt_bytes} | {syncs} |");
    ((drains, flushed_lines, nt_bytes, syncs), result)
}

fn total(name: &str, pool: &Pool) -> (u64, u64, u64, u64) {
    let Stats { drains, flushed_lines, nt_bytes, syncs } = pool.stats();
    println!("| {name} | {drains} | {flushed_lines} | {nt_bytes} | {syncs} |");
    (drains, flushed_lines, nt_bytes, syncs)
}

fn pool(size: u64) -> (tempfile::TempDir, PathBuf, Pool) {
    let dir = memory();
    let path = dir.path().join("pool");
    let pool = emulated(size).create(&path).unwrap();
    (dir, path, pool)
}

#[test]
fn cost_of_pools_and_regions() {
    let (_dir, path, pool) = pool(MIB);
    // Zeroed, mirrored; then the generation, mirrored again.
    assert_eq!(total("create a pool", &pool), (4, 128 + 4 * HEADER, 0, 0));
    let (spent, mut region) = cost(&pool, "add_region", || pool.add_region("data", 4096));
    assert_eq!(spent, (2, 2 * HEADER, 0, 0));
    let (spent, ()) = cost(&pool, "grow_region in place, inside the file", || pool.grow_region(&mut region, 4096));
    assert_eq!(spent, (2, 2 * HEADER, 0, 0));
    let (spent, ()) = cost(&pool, "grow_region in place, with the file", || pool.grow_region(&mut region, MIB));
    assert_eq!(spent, (2, 2 * HEADER, 0, 1));
    let (spent, _) = cost(&pool, "add_region, with the file", || pool.add_region("more", MIB));
    assert_eq!(spent, (2, 2 * HEADER, 0, 1));
    let (spent, ()) = cost(&pool, "grow_region by an extent, with the file", || pool.grow_region(&mut region, MIB));
    assert_eq!(spent, (2, 2 * HEADER, 0, 1));
    drop(region);
    let (spent, _) = cost(&pool, "claim a region", || pool.region("data"));
    assert_eq!(spent, (0, 0, 0, 0));
    drop(pool);

    let pool = emulated(0).open(&path).unwrap();
    // The winner may have come from a cache: persisted before its twin is overwritten.
    assert_eq!(total("open after a crash", &pool), (3, 3 * HEADER, 0, 0));
    let again = pool.clone();
    drop(again);
    pool.close().unwrap();
    let pool = emulated(0).open(&path).unwrap();
    assert_eq!(total("open after a clean close", &pool), (3, 3 * HEADER, 0, 0));
    drop(pool);

    let (_dir, _path, pool) = self::pool(4 * MIB);
    pool.add_region("data", 4096).unwrap();
    let (spent, _) = cost(&pool, "shrink_to_fit", || pool.shrink_to_fit());
    assert_eq!(spent, (2, 2 * HEADER, 0, 0));
    let (spent, _) = cost(&pool, "shrink_to_fit, nothing to give", || pool.shrink_to_fit());
    assert_eq!(spent, (0, 0, 0, 0));
}

/// Counted by the medium, since a closed pool has no counters.
#[test]
fn cost_of_a_clean_close() {
    use pmem::sim::{Medium, Site};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    #[derive(Clone)]
    struct Counting(Arc<crate::support::Ram>, Arc<[AtomicU64; 2]>);
    // SAFETY: hands everything on to a medium that keeps the promises.
    unsafe impl Medium for Counting {
        fn base(&self) -> std::ptr::NonNull<u8> {
            self.0.base()
        }
        fn capacity(&self) -> u64 {
            self.0.capacity()
        }
        fn len(&self) -> u64 {
            self.0.len()
        }
        fn set_len(&self, len: u64, site: Site) -> std::io::Result<()> {
            self.0.set_len(len, site)
        }
        fn access(&self, offset: u64, len: u64, write: bool) -> std::io::Result<()> {
            self.0.access(offset, len, write)
        }
        fn flush(&self, offset: u64, len: u64, _site: Site) {
            self.1[1].fetch_add(pmem::lines(offset, len), SeqCst);
        }
        fn drain(&self, _site: Site) -> std::io::Result<()> {
            self.1[0].fetch_add(1, SeqCst);
            Ok(())
        }
    }

    let medium = Arc::new(Counting(crate::support::Ram::new(MIB), Arc::default()));
    let taken = || [medium.1[0].swap(0, SeqCst), medium.1[1].swap(0, SeqCst)];
    let pool = Options::new().size(64 << 10).create_on(medium.clone()).unwrap();
    taken();
    pool.close().unwrap();
    assert_eq!(taken(), [3, 2 * HEADER], "what was stored, then the flag in both copies");
    println!("| close | 3 | {} | 0 | 0 |", 2 * HEADER);
    let pool = Options::new().open_on(medium.clone()).unwrap();
    assert_eq!(taken(), [3, 3 * HEADER]);
    drop(pool);
    assert_eq!(taken(), [0, 0], "dropping is no close");
}

#[test]
fn cost_of_areas_and_checksummed_records() {
    let (_dir, _path, pool) = pool(MIB);
    let mut area = pool.add_region("data", 64 << 10).unwrap().into_area().unwrap();
    let (spent, ()) = cost(&pool, "put", || area.put(0, &1u64));
    assert_eq!(spent, (0, 0, 0, 0));
    let (spent, _) = cost(&pool, "persist of 8 bytes", || area.persist(0, 8));
    assert_eq!(spent, (1, 1, 0, 0));
    let (spent, _) = cost(&pool, "persist of 100 bytes at 60", || area.persist(60, 100));
    assert_eq!(spent, (1, 3, 0, 0));
    let (spent, _) = cost(&pool, "publish of a word", || area.publish(128, 7));
    assert_eq!(spent, (1, 1, 0, 0));
    let (spent, _) = cost(&pool, "write_checksummed of 100 bytes", || area.write_checksummed(1024, 1, 1, &[1; 100]));
    assert_eq!(spent, (0, 3, 0, 0));
    let (spent, _) = cost(&pool, "read_checksummed", || area.read_checksummed(1024, 1, 1).map(drop));
    assert_eq!(spent, (0, 0, 0, 0));
    // Past the cache go whole lines, on x86-64; elsewhere all lines are flushed.
    for (at, len, whole) in [(0, 8, 0), (0, 64, 1), (64, 4096, 64), (32, 256, 3)] {
        let lines = pmem::lines(at, len as u64);
        let (spent, _) = cost(&pool, &format!("copy_nt of {len} bytes at {at}"), || area.copy_nt(at, &vec![1; len]));
        let streamed = spent.2 / 64;
        assert_eq!((spent.0, spent.1 + streamed, spent.3), (0, lines, 0));
        assert!(!cfg!(target_arch = "x86_64") || streamed == whole);
    }
    let (spent, _) = cost(&pool, "drain", || area.drain());
    assert_eq!(spent, (1, 0, 0, 0));
}

#[test]
fn cost_of_a_cell() {
    let (_dir, path, pool) = pool(MIB);
    type Value = [u64; 4]; // a slot of one line
    let area = pool.add_region("cell", 4096).unwrap().into_area().unwrap();
    let (spent, mut cell) = cost(&pool, "TwoSlot::create (32 bytes)", || TwoSlot::create(area, &Value::default()));
    assert_eq!(spent, (1, 3, 0, 0));
    let (spent, ()) = cost(&pool, "TwoSlot::update", || cell.update(&[1; 4]));
    assert_eq!(spent, (1, 1, 0, 0));
    let (spent, ()) = cost(&pool, "TwoSlot::update_mirrored", || cell.update_mirrored(&[2; 4]));
    assert_eq!(spent, (2, 2, 0, 0));
    let (spent, _) = cost(&pool, "TwoSlot::stage", || cell.stage(&[3; 4]));
    assert_eq!(spent, (0, 1, 0, 0));
    let (spent, _) = cost(&pool, "TwoSlot::stage before a drain", || cell.stage(&[4; 4]));
    assert_eq!(spent, (1, 2, 0, 0), "the value staged last becomes persistent first");
    pool.drain().unwrap();
    let (spent, _) = cost(&pool, "TwoSlot::stage after a drain", || cell.stage(&[5; 4]));
    assert_eq!(spent, (0, 1, 0, 0));
    pool.drain().unwrap();
    drop(cell);
    let large = pool.add_region("large", 4096).unwrap().into_area().unwrap();
    let mut large = TwoSlot::create(large, &[0u64; 100]).unwrap();
    let (spent, ()) = cost(&pool, "TwoSlot::update (800 bytes)", || large.update(&[1; 100]));
    assert_eq!(spent, (1, 13, 0, 0));
    drop(large);
    pool.close().unwrap();
    let pool = emulated(0).open(&path).unwrap();
    let area = pool.region("cell").unwrap().into_area().unwrap();
    let (spent, (mut cell, _)) = cost(&pool, "TwoSlot::open after a clean close", || TwoSlot::<Value>::open(area));
    assert_eq!(spent, (0, 0, 0, 0));
    let (spent, ()) = cost(&pool, "first TwoSlot::update after open", || cell.update(&[6; 4]));
    assert_eq!(spent.0, 2, "the winner is persisted before its twin is overwritten");
}

#[test]
fn cost_of_a_ring() {
    let (_dir, path, pool) = pool(MIB);
    let area = pool.add_region("ring", 128 + 4096).unwrap().into_area().unwrap().split_at(128 + 4096).unwrap().0;
    let (spent, mut ring) = cost(&pool, "Ring::create (4 KiB)", || Ring::create(area));
    assert_eq!(spent, (1, 64 + 3, 0, 0));
    let lines = |spent: (u64, u64, u64, u64)| spent.1 + spent.2 / 64;
    for (len, record) in [(0, 1), (32, 1), (33, 2), (96, 2), (500, 9)] {
        let (spent, _) = cost(&pool, &format!("Ring::append of {len} bytes"), || ring.append(&[&vec![1; len]]));
        assert_eq!((spent.0, lines(spent)), (0, record));
        let (spent, ()) = cost(&pool, "Ring::force", || ring.force());
        assert_eq!(spent, (1, 0, 0, 0));
    }
    let (spent, ()) = cost(&pool, "Ring::force, nothing to force", || ring.force());
    assert_eq!(spent, (0, 0, 0, 0));
    let (spent, last) = cost(&pool, "20 appends of 32 bytes, one force", || {
        let last = (0..20).map(|_| ring.append(&[&[1; 32]])).last().unwrap()?;
        ring.force().map(|()| last)
    });
    assert_eq!((spent.0, lines(spent)), (1, 20));
    let (spent, ()) = cost(&pool, "Ring::retire", || {
        ring.retire(last.end);
        Ok(())
    });
    assert_eq!(spent, (0, 0, 0, 0));
    let (spent, ()) = cost(&pool, "Ring::reclaim", || ring.reclaim());
    assert_eq!(spent, (1, 1, 0, 0));
    let (spent, ()) = cost(&pool, "Ring::reclaim, nothing retired", || ring.reclaim());
    assert_eq!(spent, (0, 0, 0, 0));

    // In steady use reclaiming has no barrier of its own: a force each, and every half lap a line more.
    let laps = 10;
    let (spent, ()) = cost(&pool, "640 appends of one line, forced and retired one by one", || {
        (0..64 * laps).try_for_each(|_| {
            let record = ring.append(&[&[1; 32]])?;
            ring.force()?;
            ring.retire(record.end);
            Ok(())
        })
    });
    assert_eq!(spent.0, 64 * laps);
    let marks = lines(spent) - 64 * laps;
    assert!((laps..=2 * laps).contains(&marks), "{marks} marks in {laps} laps");

    ring.reclaim().unwrap();
    drop(ring);
    pool.close().unwrap();
    let pool = emulated(0).open(&path).unwrap();
    let area = pool.region("ring").unwrap().into_area().unwrap().split_at(128 + 4096).unwrap().0;
    let (spent, (ring, _)) = cost(&pool, "Ring::open after a clean close, empty", || Ring::open(area));
    assert_eq!(spent, (0, 0, 0, 0));
    drop(ring);
}

fn small() -> ObjectsOptions {
    ObjectsOptions { heap_bytes: 256 << 10, log_bytes: 16 << 10, heap: HeapOptions::chunk_bytes(4096).unwrap() }
}

#[test]
fn cost_of_the_allocator() {
    let (_dir, _path, pool) = pool(MIB);
    let create = || Allocator::create(&pool, "heap", 256 << 10, HeapOptions::chunk_bytes(4096).unwrap());
    let (spent, heap) = cost(&pool, "Allocator::create", create);
    assert_eq!(spent, (2, 2 * HEADER, 0, 0), "its region, and nothing of its own");
    let (spent, block) = cost(&pool, "Allocator::reserve", || heap.reserve(128, 8));
    assert_eq!(spent, (0, 0, 0, 0));
    let (spent, ()) = cost(&pool, "Allocator::cancel", || heap.cancel(block));
    assert_eq!(spent, (0, 0, 0, 0));
    let block = heap.reserve(128, 8).unwrap();
    let mut lines = FlushSet::default();
    let (spent, ()) =
        cost(&pool, "Allocator::apply of an allocation", || heap.apply(&Intent::alloc(&block), &mut lines));
    assert_eq!(spent, (0, 0, 0, 0));
    let (spent, ()) = cost(&pool, "its flush_set", || pool.flush_set(&mut lines));
    assert_eq!(spent, (0, 4, 0, 0), "the two copies of a word of the chunk table, a bitmap word, and its code");
    let (spent, _) = cost(&pool, "Allocator::resolve", || heap.resolve(block.ptr::<u8>(&pool), 128));
    assert_eq!(spent, (0, 0, 0, 0));
    let (spent, ()) = cost(&pool, "begin_free, apply, release", || {
        heap.begin_free(&block)?;
        heap.apply(&Intent::free(&block), &mut lines)?;
        heap.release(block)
    });
    assert_eq!(spent, (0, 0, 0, 0));
    let (spent, ()) = cost(&pool, "its flush_set", || pool.flush_set(&mut lines));
    assert_eq!(spent, (0, 2, 0, 0));
    let (spent, ()) = cost(&pool, "Allocator::grow, with the file", || heap.grow(2 * MIB));
    assert_eq!(spent, (2, 2 * HEADER, 0, 1));
    let (spent, _) = cost(&pool, "Allocator::trim", || heap.trim());
    assert_eq!(spent, (2, 2 * HEADER, 0, 0));
    let (spent, ()) = cost(&pool, "Allocator::close", || heap.close());
    assert_eq!(spent, (0, 0, 0, 0));
}

#[test]
fn cost_of_objects() {
    let (_dir, path, pool) = pool(MIB);
    let (spent, objects) = cost(&pool, "Objects::create (16 KiB of log)", || Objects::create(&pool, small()));
    assert_eq!(spent.0, 5, "two regions, and a ring");
    let (spent, first) = cost(&pool, "Objects::reserve", || objects.reserve(128, 8));
    assert_eq!(spent, (0, 0, 0, 0));
    let ptr = first.ptr::<u64>();
    let publish = |name: &str, actions: &mut [Action<'_>]| {
        let (spent, ()) = cost(&pool, name, || objects.lock().publish(actions));
        assert_eq!(spent.0, 1, "{name}: one drain, always");
        spent.1 + spent.2 / 64
    };
    // A record: 32 bytes of header, 8 of checksum, 32 an action.
    let lines = publish("publish: alloc 128 B + root (the first)", &mut [Action::Alloc(first), Action::root(ptr)]);
    assert_eq!(lines, 2 + 2, "contents and record");
    let lines = publish("publish: set", &mut [Action::Set(ptr, 1)]);
    assert_eq!(lines, 2 + 5, "record; table, bitmap, both twice, and root of the publication before");
    let second = objects.reserve(128, 8).unwrap();
    let lines = publish("publish: alloc 128 B, after a set", &mut [Action::Alloc(second)]);
    assert_eq!(lines, 2 + 2 + 1);
    let lines = publish("publish: nothing, after an alloc", &mut []);
    assert_eq!(lines, 1 + 4);
    let lines = publish("publish: free", &mut [Action::Free(ptr.cast())]);
    assert_eq!(lines, 2);
    let lines = publish("publish: nothing, after a free", &mut []);
    assert_eq!(lines, 1 + 2);
    let (spent, ()) = cost(&pool, "drop a reservation", || objects.reserve(128, 8).map(drop));
    assert_eq!(spent, (0, 0, 0, 0));
    let some = objects.reserve_value(&7u64).unwrap();
    let ptr = some.ptr::<u64>();
    publish("publish: alloc 8 B", &mut [Action::Alloc(some)]);
    let (spent, _) = cost(&pool, "Session::get", || objects.lock().get(ptr).copied());
    assert_eq!(spent, (0, 0, 0, 0));

    // In steady use: one barrier a publication, whatever the ring does.
    let mut old = None;
    let (spent, ()) = cost(&pool, "1000 publications: alloc 128 B, free the one before", || {
        (0..1000).try_for_each(|_| {
            let new = objects.reserve(128, 8)?;
            let ptr = new.ptr();
            let mut actions = vec![Action::Alloc(new)];
            actions.extend(old.replace(ptr).map(Action::Free));
            objects.lock().publish(&mut actions)
        })
    });
    assert_eq!(spent.0, 1000);
    let (spent, ()) = cost(&pool, "Objects::close", || objects.close());
    assert_eq!(spent.0, 2, "the last publication in place, then the ring reclaimed");
    pool.close().unwrap();
    let pool = emulated(0).open(&path).unwrap();
    let (spent, objects) = cost(&pool, "Objects::open after a clean close", || Objects::open(&pool));
    assert_eq!(spent, (0, 0, 0, 0));
    let new = objects.reserve(8, 8).unwrap();
    objects.lock().publish(&mut [Action::Alloc(new)]).unwrap();
    drop((objects, pool));
    let pool = emulated(0).open(&path).unwrap();
    let (spent, _objects) = cost(&pool, "Objects::open after a crash, one publication", || Objects::open(&pool));
    assert_eq!(spent.0, 4, "the ring as found, blocks and bitmaps, and the mark behind them");
}
