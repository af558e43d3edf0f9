//! A limit on the work of one judgement.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pmem::sync::{Scheduler, set_scheduler};

/// Every flush, drain, growth and lock is a step. A walk of the reference pool takes some hundreds.
const STEPS_MAX: u64 = 1 << 20;

struct Count(AtomicU64);

impl Scheduler for Count {
    fn switch(&self) {
        assert!(self.0.fetch_add(1, Relaxed) < STEPS_MAX, "endless work: {STEPS_MAX} steps");
    }

    fn blocked(&self) {
        panic!("the only thread waits for a lock that it holds");
    }
}

/// Runs `f`, which panics when it takes too many steps or locks itself out.
pub(crate) fn limited<R>(f: impl FnOnce() -> R) -> R {
    struct Back(Option<Arc<dyn Scheduler>>);
    impl Drop for Back {
        fn drop(&mut self) {
            set_scheduler(self.0.take());
        }
    }
    let _back = Back(set_scheduler(Some(Arc::new(Count(AtomicU64::new(0))))));
    f()
}
