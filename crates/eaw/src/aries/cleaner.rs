//! The thread that writes pages before their frames are needed, and makes checkpoints before the log is full.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use pmem::{Background, Domain};

use super::Core;

const TICK: Duration = Duration::from_millis(2);

/// None where time does not pass.
pub(super) fn start(core: &Arc<Core>) -> Option<Background> {
    let (core, pool) = (Arc::clone(core), core.pool.clone());
    (pool.domain() != Domain::Simulated).then(|| {
        Background::start(&pool, TICK, move || match once(&core) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                // The next thread that writes there sees an error, too.
                tracing::warn!(%error, "the cleaner of a store of records ends");
                ControlFlow::Break(())
            }
        })
    })
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
