//! A pool of 16 GiB with ten million objects: opening it looks at none of them.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;

use pmem::sim::{Medium, Site};
use pmem::{Allocator, FlushSet, HeapOptions, Intent, Options, Pool};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::support::memory;

const POOL: u64 = 16 << 30;
const OBJECTS: u64 = 10_000_000;
const HEADER: u64 = 8192;
/// What the file may take in memory: all of table and bitmaps, since reading a hole fills it on tmpfs; no contents.
const SPACE: u64 = 300 << 20;
/// Pages that an open may touch in this process, DRAM included.
const FAULTS: i64 = 64;

/// Pages that this thread had to be given so far.
fn faults() -> i64 {
    // SAFETY: all zeros is a value of this struct of numbers, and the call fills it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) }, 0);
    usage.ru_minflt + usage.ru_majflt
}

/// A file as a medium, mapped anew for each open, holes and all: where a pool is opened by its path, every block of its file is allocated.
struct Holes {
    base: NonNull<u8>,
}

// SAFETY: memory of the whole process, which this type does not touch.
unsafe impl Send for Holes {}
// SAFETY: as above.
unsafe impl Sync for Holes {}

impl Holes {
    fn of(path: &Path) -> Arc<Self> {
        let file = File::options().read(true).write(true).open(path).unwrap();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { mmap(std::ptr::null_mut(), POOL as usize, protection, MapFlags::SHARED, &file, 0) };
        Arc::new(Self { base: NonNull::new(base.unwrap().cast()).unwrap() })
    }
}

impl Drop for Holes {
    fn drop(&mut self) {
        // SAFETY: the whole of what `of` mapped; the pool that used it is gone.
        unsafe { munmap(self.base.as_ptr().cast(), POOL as usize) }.unwrap();
    }
}

// SAFETY: `base` never changes and is aligned to a page; as many bytes from there are mapped, and borrowed by the one open pool alone.
unsafe impl Medium for Holes {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn capacity(&self) -> u64 {
        POOL
    }

    fn len(&self) -> u64 {
        POOL
    }

    fn set_len(&self, len: u64, _: Site) -> io::Result<()> {
        if len == POOL { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
    }

    fn access(&self, _: u64, _: u64, _: bool) -> io::Result<()> {
        Ok(())
    }

    fn replace(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn flush(&self, _: u64, _: u64, _: Site) {}

    fn drain(&self, _: Site) -> io::Result<()> {
        Ok(())
    }
}

/// A file of the full size with an empty heap in it, all holes but the header.
fn sparse_pool(path: &Path) {
    File::create_new(path).unwrap().set_len(POOL).unwrap();
    let pool = Options::new().size(POOL).create_on(Holes::of(path)).unwrap();
    Allocator::create(&pool, "heap", POOL - HEADER, HeapOptions::default()).unwrap();
    pool.close().unwrap();
}

fn fill(pool: &Pool, heap: &Allocator, objects: u64) {
    let mut lines = FlushSet::default();
    for n in 0..objects {
        let block = heap.reserve(128, 8).unwrap();
        heap.apply(&Intent::alloc(&block), &mut lines).unwrap();
        if n % 256 == 255 {
            pool.flush_set(&mut lines).unwrap();
        }
    }
    pool.flush_set(&mut lines).unwrap();
    pool.drain().unwrap();
}

#[expect(clippy::disallowed_methods, reason = "the time is printed, not judged")]
fn opened(what: &str, path: &Path) -> (Pool, Allocator) {
    let (before, started) = (faults(), Instant::now());
    let pool = Options::new().open_on(Holes::of(path)).unwrap();
    let heap = Allocator::open(&pool, "heap").unwrap();
    let (time, touched) = (started.elapsed(), faults() - before);
    println!("open after {what}: {time:?}, {touched} page faults");
    assert!(touched <= FAULTS, "{touched} page faults");
    (pool, heap)
}

#[test]
fn large_pool_opens_without_looking_at_its_objects() {
    let dir = memory();
    let path = dir.path().join("pool");
    let space = rustix::fs::statvfs(dir.path()).unwrap();
    if !dir.path().starts_with("/dev/shm") || space.f_bavail * space.f_frsize < SPACE {
        println!("skipped: no /dev/shm with {} MiB free", SPACE >> 20);
        return;
    }
    sparse_pool(&path);
    let (pool, heap) = opened("nothing was done", &path);
    fill(&pool, &heap, OBJECTS);
    heap.close().unwrap();
    pool.close().unwrap();

    let (pool, heap) = opened("a clean close", &path);
    assert!(pool.was_clean());
    fill(&pool, &heap, 1);
    drop((heap, pool)); // the process ends

    let (pool, heap) = opened("a crash", &path);
    assert!(!pool.was_clean());
    assert_eq!(pool.size(), POOL);
    let allocated = path.metadata().unwrap().blocks() * 512;
    println!("{OBJECTS} objects: {} MiB of the file are there", allocated >> 20);
    assert!(allocated <= SPACE, "{allocated} bytes of the file are allocated");
    let usage = heap.live_blocks(|_, _| Ok(())).unwrap();
    assert_eq!((usage.live_blocks, usage.live_bytes), (OBJECTS + 1, (OBJECTS + 1) * 128));
}
