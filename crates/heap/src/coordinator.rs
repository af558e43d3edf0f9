//! The thread that applies slots which have gone idle, so that nothing stays pending for long when no transaction commits.
//!
//! Committing threads apply their own slots; a thread that did all of it was measured to double the latency on two cores.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use pmem::Background;

use crate::core::Core;

/// How often it looks.
const TICK: Duration = Duration::from_millis(20);

pub(crate) fn start(core: &Arc<Core>) -> Background {
    let (core, pool) = (Arc::clone(core), core.pool.clone());
    let mut before: Vec<u64> = vec![0; core.slots.len()];
    Background::start(&pool, TICK, move || {
        look(&core, &mut before);
        ControlFlow::Continue(())
    })
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
