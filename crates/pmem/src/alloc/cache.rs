//! A thread's own stock of blocks.

use crate::alloc::central::ChunkId;
use crate::sync::OwnMutex;

/// Where a thread takes blocks of one class from: a span that no other thread takes from.
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
pub(super) struct Cache(pub(super) OwnMutex<Vec<Bin>>);

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
