//! The thread that applies slots which have gone idle, so that nothing stays pending for long when no transaction commits.
//!
//! Committing threads apply their own slots; a thread that did all of it was measured to double the latency on two cores.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;

use pmem::sync::Ticker;
use pmem::{Error as PoolError, Pool};

use crate::core::Core;

/// How often it looks.
const TICK: Duration = Duration::from_millis(20);

pub(crate) struct Coordinator {
    stop: Arc<Ticker>,
    thread: Option<JoinHandle<()>>,
    pool: Pool,
}

impl Coordinator {
    #[expect(clippy::disallowed_methods, reason = "ends, and is waited for, when the heap is dropped")]
    pub(crate) fn start(core: &Arc<Core>) -> Self {
        let (stop, pool) = (Arc::new(Ticker::default()), core.pool.clone());
        let (core, stopped) = (Arc::clone(core), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let mut before: Vec<u64> = vec![0; core.slots.len()];
            while stopped.tick(TICK) {
                look(&core, &mut before);
            }
        });
        Self { stop, thread: Some(thread), pool }
    }
}

/// Applies every slot with something pending that has not committed since the last look.
pub(crate) fn look(core: &Core, before: &mut [u64]) {
    for (slot, seen) in before.iter_mut().enumerate() {
        let counters = &core.counters[slot];
        let commits = counters.commits.load(Relaxed);
        if commits == *seen && counters.pending.load(Relaxed) > 0 {
            let applied = core.apply_slot(slot, &mut |_| {});
            core.after_durable(applied);
        }
        *seen = commits;
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        if matches!(self.pool.check_usable(), Err(PoolError::Forked)) {
            // The thread is the parent's: it cannot be waited for, and may have had the lock.
            std::mem::forget(self.thread.take());
            return;
        }
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // it has nothing to say
        }
    }
}
