//! The thread that keeps a log's promises about time: no complete record waits longer than the policy allows, and a log that is idle says on media that all is durable.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use pmem::{Domain, Pool};

use crate::core::Core;

pub(crate) struct Keeper {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
    pool: Pool,
}

/// Tells a thread that it is to end.
///
/// With the standard library's lock, which is a word of its own: `parking_lot` keeps who sleeps in a table of the process, where the child of a fork finds threads that it has not; one
/// of its own that gets the memory of such a thread closes a circle, and whoever rings goes round in it.
#[derive(Default)]
pub(crate) struct Stop {
    stopped: Mutex<bool>,
    wake: Condvar,
}

impl Stop {
    /// Waits for a tick; false when it is over.
    pub(crate) fn tick(&self, tick: Duration) -> bool {
        let mut stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        if !*stopped {
            stopped = self.wake.wait_timeout(stopped, tick).unwrap_or_else(PoisonError::into_inner).0;
        }
        !*stopped
    }

    pub(crate) fn stop(&self) {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.wake.notify_all();
    }
}

impl Keeper {
    /// None where there is nothing to keep, or time does not pass.
    #[expect(clippy::disallowed_methods, reason = "ends, and is waited for, when the log is closed or dropped")]
    pub(crate) fn start(core: &Arc<Core>) -> Option<Self> {
        let within = core.options.within.filter(|_| core.options.frequency > 1);
        let tick = within.into_iter().chain(core.options.idle).min()?;
        if core.pool.is_read_only() || core.pool.domain() == Domain::Simulated {
            return None;
        }
        let stop = Arc::new(Stop::default());
        let (core, stopped, pool) = (Arc::clone(core), Arc::clone(&stop), core.pool.clone());
        let thread = std::thread::spawn(move || {
            let mut look = Look { seen: 0, marked: 0, quiet: Duration::ZERO };
            while stopped.tick(tick) {
                look.once(&core, tick, within.is_some());
            }
        });
        Some(Self { stop, thread: Some(thread), pool })
    }
}

struct Look {
    /// The last record at the last look.
    seen: u64,
    /// The last watermark record.
    marked: u64,
    quiet: Duration,
}

impl Look {
    fn once(&mut self, core: &Core, tick: Duration, forces: bool) {
        let last = core.last();
        if forces && core.window.forced() < last {
            // What is not complete is waited for by who forces it; an error is theirs to see, too.
            let _ = core.force_within(last, Duration::ZERO);
        }
        self.quiet = if last == self.seen { self.quiet + tick } else { Duration::ZERO };
        self.seen = last;
        if core.options.idle.is_some_and(|idle| self.quiet >= idle)
            && last != self.marked
            && core.window.forced() == last
        {
            match core.mark(Duration::ZERO) {
                Ok(Some(marked)) => (self.marked, self.seen) = (marked, marked),
                Ok(None) => {}                // somebody came in between, or nothing is there
                Err(_) => self.marked = last, // full, or failed: appending will tell
            }
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if matches!(self.pool.check_usable(), Err(pmem::Error::Forked)) {
            std::mem::forget(self.thread.take()); // it is the parent's
            return;
        }
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // it has nothing to say
        }
    }
}
