//! The thread that hears the replicas of a log now and then, if no other thread does.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use pmem::Background;

use crate::core::Core;

/// How often they are heard.
const TICK: Duration = Duration::from_millis(20);

pub(crate) fn start(core: &Arc<Core>) -> Background {
    let (core, pool) = (Arc::clone(core), core.image.pool.clone());
    Background::start(&pool, TICK, move || match &core.leading {
        Some(leading) => {
            leading.listen(&core.image, Duration::ZERO);
            ControlFlow::Continue(())
        }
        None => ControlFlow::Break(()),
    })
}
