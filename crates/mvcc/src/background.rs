//! The thread that does the upkeep when no transaction comes by.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use pmem::sync::Ticker;
use pmem::{Error as PoolError, Pool};

use crate::core::Core;

/// How often it looks.
const TICK: Duration = Duration::from_millis(20);

pub(crate) struct Background {
    stop: Arc<Ticker>,
    thread: Option<JoinHandle<()>>,
    pool: Pool,
}

impl Background {
    #[expect(clippy::disallowed_methods, reason = "ends, and is waited for, when the store is dropped")]
    pub(crate) fn start(core: &Arc<Core>) -> Self {
        let (stop, pool) = (Arc::new(Ticker::default()), core.pool.clone());
        let (core, stopped) = (Arc::clone(core), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            while stopped.tick(TICK) {
                let outcome = core.upkeep();
                if outcome.is_err() {
                    core.note(outcome.map(drop));
                    return; // a later try would not know what this one has left
                }
            }
        });
        Self { stop, thread: Some(thread), pool }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if matches!(self.pool.check_usable(), Err(PoolError::Forked)) {
            // The thread is the parent's: it cannot be waited for, and may have had a lock.
            std::mem::forget(self.thread.take());
            return;
        }
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // it has nothing to say
        }
    }
}
