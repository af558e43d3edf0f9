//! The thread that keeps a log's promises about time: no complete record waits longer than the policy allows, and a log that is idle says on media that all is durable.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use pmem::{Background, Domain};

use crate::core::Core;

/// None where there is nothing to keep, or time does not pass.
pub(crate) fn start(core: &Arc<Core>) -> Option<Background> {
    let within = core.options.within.filter(|_| core.options.frequency > 1);
    let tick = within.into_iter().chain(core.options.idle).min()?;
    if core.image.pool.is_read_only() || core.image.pool.domain() == Domain::Simulated {
        return None;
    }
    let (core, pool) = (Arc::clone(core), core.image.pool.clone());
    let mut look = Look { seen: 0, marked: 0, quiet: Duration::ZERO };
    Some(Background::start(&pool, tick, move || {
        look.once(&core, tick, within.is_some());
        ControlFlow::Continue(())
    }))
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
