//! The thread that keeps a log's promises about time: no complete record waits longer than the policy allows, and a log that is idle says on media that all is durable.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use pmem::sync::Ticker;
use pmem::{Domain, Pool};

use crate::core::Core;

pub(crate) struct Background {
    stop: Arc<Ticker>,
    thread: Option<JoinHandle<()>>,
    pool: Pool,
}

impl Background {
    /// None where there is nothing to keep, or time does not pass.
    #[expect(clippy::disallowed_methods, reason = "ends, and is waited for, when the log is closed or dropped")]
    pub(crate) fn start(core: &Arc<Core>) -> Option<Self> {
        let within = core.options.within.filter(|_| core.options.frequency > 1);
        let tick = within.into_iter().chain(core.options.idle).min()?;
        if core.image.pool.is_read_only() || core.image.pool.domain() == Domain::Simulated {
            return None;
        }
        let stop = Arc::new(Ticker::default());
        let (core, stopped, pool) = (Arc::clone(core), Arc::clone(&stop), core.image.pool.clone());
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
        let last = core.image.last();
        if forces && core.image.window.forced() < last {
            // A thread that forces what is not complete waits for it; an error is for that thread to see, too.
            let _ = core.force_within(last, Duration::ZERO);
        }
        self.quiet = if last == self.seen { self.quiet + tick } else { Duration::ZERO };
        self.seen = last;
        if core.options.idle.is_some_and(|idle| self.quiet >= idle)
            && last != self.marked
            && core.image.window.forced() == last
        {
            match core.mark(Duration::ZERO) {
                Ok(Some(marked)) => (self.marked, self.seen) = (marked, marked),
                Ok(None) => {}                // another thread came in between, or nothing is there
                Err(_) => self.marked = last, // full, or failed: appending will tell
            }
        }
    }
}

impl Drop for Background {
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
