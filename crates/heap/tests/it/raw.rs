//! What a test cannot do without unsafe code.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use pmem::sim::{Medium, Site};

/// Runs `in_child` in a child process made by fork; 0 if it returned, else how it ended. Call it where no other thread is at work.
pub fn fork(in_child: impl FnOnce()) -> i32 {
    // SAFETY: no other thread holds a lock that the child could want, says the caller.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(in_child));
        // SAFETY: ends the child without what the parent wants done at its own end.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    status
}

/// Memory in which a pool lies, and whose drains fail from some on.
pub struct Memory {
    base: NonNull<u8>,
    layout: Layout,
    len: AtomicU64,
    /// Drains that do not fail.
    sound: AtomicU64,
}

// SAFETY: the memory is used through the pool that is open on it, as `Medium` asks for; the counts are atomic.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub fn new(capacity: usize) -> Arc<Self> {
        let layout = Layout::from_size_align(capacity, 4096).unwrap();
        // SAFETY: not of zero bytes.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap();
        Arc::new(Self { base, layout, len: 0.into(), sound: u64::MAX.into() })
    }

    /// So many drains more do not fail.
    pub fn fail_after(&self, drains: u64) {
        self.sound.store(drains, SeqCst);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout; the pools are gone, since each has a reference.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

// SAFETY: allocated once, aligned to a page, zeroed, and not touched here.
unsafe impl Medium for Memory {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn capacity(&self) -> u64 {
        self.layout.size() as u64
    }

    fn len(&self) -> u64 {
        self.len.load(SeqCst)
    }

    fn set_len(&self, len: u64, _: Site) -> io::Result<()> {
        if len > self.capacity() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.len.store(len, SeqCst);
        Ok(())
    }

    fn access(&self, _: u64, _: u64, _: bool) -> io::Result<()> {
        Ok(())
    }

    fn flush(&self, _: u64, _: u64, _: Site) {}

    fn drain(&self, _: Site) -> io::Result<()> {
        let left = self.sound.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(u64::from(left < u64::MAX)));
        left.map(drop).map_err(|_| io::Error::other("a drain that is to fail"))
    }
}
