//! A thread's own stock of blocks.

use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};

use parking_lot::lock_api;

use crate::alloc::central::ChunkId;
use crate::sync::{switch_point, wait_point};

/// Where a thread takes blocks of one class from: a span that nobody else takes from.
#[derive(Clone, Copy, Default)]
pub(super) struct Bin {
    pub(super) chunk: ChunkId,
    /// Chunks in it; 0: no span.
    pub(super) span: u32,
    /// Where blocks were found last.
    pub(super) word: u32,
    pub(super) blocks: u32,
    /// Offset of the first.
    pub(super) start: u64,
    pub(super) size: u64,
    pub(super) shape: u64,
}

/// A thread's bins. The lock is the thread's own, so never waited for, unless more threads live than there are caches or one of them has to
/// empty all.
#[repr(align(128))]
#[derive(Default)]
pub(super) struct Cache(pub(super) lock_api::Mutex<Flag, Vec<Bin>>);

/// A lock of one atomic read-modify-write where others take two: who waits asks again, so release has nobody to wake.
pub(super) struct Flag(AtomicBool);

// SAFETY: the flag goes from false to true in one step, with `Acquire`, so one thread has the lock; only its holder stores false, with
// `Release`.
unsafe impl lock_api::RawMutex for Flag {
    const INIT: Self = Self(AtomicBool::new(false));
    type Guard = ();

    #[inline]
    fn lock(&self) {
        switch_point();
        if self.0.swap(true, Acquire) {
            self.wait();
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<()> {
        switch_point();
        (!self.0.swap(true, Acquire)).then_some(())
    }

    #[inline]
    unsafe fn unlock(&self, (): ()) {
        self.0.store(false, Release);
    }

    fn is_locked(&self) -> bool {
        self.0.load(Relaxed)
    }
}

impl Flag {
    #[cold]
    fn wait(&self) {
        while self.0.load(Relaxed) || self.0.swap(true, Acquire) {
            if !wait_point() {
                std::thread::yield_now();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time() {
        let cache = Cache::default();
        cache.0.lock().push(Bin::default());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let mut bins = cache.0.lock();
                        let before = bins[0].size;
                        bins[0].shape = before;
                        bins[0].size = std::hint::black_box(before + 1);
                    }
                });
            }
        });
        let guard = cache.0.lock();
        assert_eq!(guard[0].size, 80_000);
        assert!(cache.0.try_lock().is_none());
        drop(guard);
        assert!(cache.0.try_lock().is_some());
    }
}
