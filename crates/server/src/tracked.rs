//! Tells clients that [are told](crate::tracking) of keys which of these have expired, and which are noted no longer because there are too many.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::now;
use crate::shared::Shared;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Looks after it as long as the server runs.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut followed = false;
    loop {
        if !shared.tracking.any() {
            shared.tracking.begun().await;
        }
        let limit = shared.settings().subscriber;
        let follows = shared.follows().is_some();
        shared.cut_off(if follows && !followed {
            // What the server that leads now changes is not told here, and nothing is read here any more.
            shared.tracking.all_changed(limit)
        } else {
            shared.tracking.expire(now(), limit)
        });
        followed = follows;
        // `tracking-table-max-keys` may be less than before.
        while let Some(too_slow) = shared.tracking.shrink(limit) {
            shared.cut_off(too_slow);
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}
