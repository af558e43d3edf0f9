//! The thread that does the upkeep when no transaction comes by.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use pmem::Background;

use crate::core::Core;

/// How often it looks.
const TICK: Duration = Duration::from_millis(20);

pub(crate) fn start(core: &Arc<Core>) -> Background {
    let (core, pool) = (Arc::clone(core), core.pool.clone());
    Background::start(&pool, TICK, move || {
        let outcome = core.upkeep();
        if outcome.is_ok() {
            return ControlFlow::Continue(());
        }
        core.note(outcome.map(drop));
        ControlFlow::Break(()) // a later try would not know what this one has left
    })
}
