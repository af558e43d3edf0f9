//! Who waits for something to come into a list or a sorted set: `BLPOP` and its like.
//!
//! A waiter registers, looks whether there is something, and sleeps only then; who pushes wakes it after its commit. So no push is overlooked: it commits
//! before the waiter looks, or finds the waiter registered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// All of them, by keys as they are in the store.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    by_key: Mutex<BTreeMap<Vec<u8>, Vec<Arc<Notify>>>>,
    /// Registered: nobody who pushes takes the lock while there are none.
    count: AtomicUsize,
}

/// A place among them; dropping it leaves.
pub(crate) struct Waiting<'w> {
    all: &'w Waiters,
    keys: Vec<Vec<u8>>,
    notify: Arc<Notify>,
}

impl Waiters {
    pub(crate) fn register(&self, keys: Vec<Vec<u8>>) -> Waiting<'_> {
        let notify = Arc::new(Notify::new());
        let mut by_key = self.by_key.lock();
        for key in &keys {
            by_key.entry(key.clone()).or_default().push(notify.clone());
        }
        drop(by_key);
        self.count.fetch_add(1, SeqCst);
        Waiting { all: self, keys, notify }
    }

    pub(crate) fn any(&self) -> bool {
        self.count.load(SeqCst) > 0
    }

    pub(crate) fn len(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Something was put there, and committed. Wakes all who wait for it: the first one to look gets it.
    pub(crate) fn wake(&self, key: &[u8]) {
        if let Some(waiting) = self.by_key.lock().get(key) {
            waiting.iter().for_each(|notify| notify.notify_one());
        }
    }
}

impl Waiting<'_> {
    /// Until somebody puts something there; at once if he has since this was made or awaited.
    pub(crate) async fn changed(&self) {
        self.notify.notified().await;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.all.count.fetch_sub(1, SeqCst);
        let mut by_key = self.all.by_key.lock();
        for key in &self.keys {
            if let Some(waiting) = by_key.get_mut(key) {
                waiting.retain(|notify| !Arc::ptr_eq(notify, &self.notify));
                if waiting.is_empty() {
                    by_key.remove(key);
                }
            }
        }
    }
}
