//! How many keys each database has. To know it they are counted, so it is known as of a moment ago.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::Watch;
use crate::data::DATABASES;
use crate::engine::Result;
use crate::info::count;
use crate::shared::Shared;

/// Between two counts, at least.
const PAUSE: Duration = Duration::from_secs(10);
/// ... and so many times as long as the last one took: a twentieth of a core at most.
const SHARE: u32 = 20;
/// How long a request waits for a count that it has begun.
const WAIT: Duration = Duration::from_millis(300);

/// Keys of each database.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    keys: Vec<u64>,
    since: Watch,
}

impl Counted {
    /// How long ago it was counted.
    pub(super) fn age(&self) -> Duration {
        Duration::from_nanos(self.since.nanos())
    }

    /// Databases that have keys.
    pub(super) fn used(&self) -> impl Iterator<Item = (usize, u64)> {
        self.keys.iter().copied().enumerate().filter(|(_, keys)| *keys > 0)
    }
}

/// The last count, and the one that is on its way.
#[derive(Default)]
pub(super) struct Keyspace {
    last: RefCell<Option<Counted>>,
    /// When keys were counted last, or could not be, and how long it took.
    tried: Cell<Option<(Watch, Duration)>>,
    counting: Cell<bool>,
    counted: Notify,
}

impl Keyspace {
    /// What was counted last; none if the first count has not come to its end.
    pub(super) async fn get(self: &Rc<Self>, shared: &Arc<Shared>) -> Option<Counted> {
        let pause = |(since, took): (Watch, Duration)| Duration::from_nanos(since.nanos()) < PAUSE.max(took * SHARE);
        if self.tried.get().is_some_and(pause) || self.counting.replace(true) {
            return self.last.borrow().clone();
        }
        let counted = self.counted.notified();
        tokio::task::spawn_local(self.clone().count(shared.clone()));
        drop(tokio::time::timeout(WAIT, counted).await);
        self.last.borrow().clone()
    }

    async fn count(self: Rc<Self>, shared: Arc<Shared>) {
        let began = Watch::start();
        let keys = tokio::task::spawn_blocking(move || {
            (0..DATABASES).map(|db| Ok(count(&shared, db)?.keys)).collect::<Result<Vec<u64>>>()
        })
        .await;
        match keys {
            Ok(Ok(keys)) => *self.last.borrow_mut() = Some(Counted { keys, since: Watch::start() }),
            Ok(Err(error)) => tracing::warn!("keys cannot be counted: {error}"),
            Err(_) => tracing::error!("keys cannot be counted: a panic"),
        }
        self.tried.set(Some((Watch::start(), Duration::from_nanos(began.nanos()))));
        self.counting.set(false);
        self.counted.notify_waiters();
    }
}
