//! The thread that writes pages before their frames are needed, and makes checkpoints before the log is full.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use pmem::sync::Ticker;
use pmem::{Domain, Pool};

use super::Core;

const TICK: Duration = Duration::from_millis(2);

pub(super) struct Cleaner {
    stop: Arc<Ticker>,
    thread: Option<JoinHandle<()>>,
    pool: Pool,
}

impl Cleaner {
    /// None where time does not pass.
    #[expect(clippy::disallowed_methods, reason = "ends, and is waited for, when the store is closed or dropped")]
    pub(super) fn start(core: &Arc<Core>) -> Option<Self> {
        if core.pool.domain() == Domain::Simulated {
            return None;
        }
        let stop = Arc::new(Ticker::default());
        let (core, stopped, pool) = (Arc::clone(core), Arc::clone(&stop), core.pool.clone());
        let thread = std::thread::spawn(move || {
            while stopped.tick(TICK) {
                // The next thread that writes there sees an error, too.
                if let Err(error) = once(&core) {
                    tracing::warn!(%error, "the cleaner of a store of records ends");
                    return;
                }
            }
        });
        Some(Self { stop, thread: Some(thread), pool })
    }
}

/// A quarter of the frames may hold changes. A checkpoint for a quarter of the log.
fn once(core: &Core) -> crate::Result<()> {
    let most = core.buffer.frames() / 4;
    if core.buffer.dirty() > most {
        core.buffer.clean(&core.wal, most / 2)?;
    }
    let stats = core.wal.log.stats();
    if stats.live_bytes * 4 > stats.capacity {
        core.tidy(most / 2)?;
    }
    Ok(())
}

impl Drop for Cleaner {
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
