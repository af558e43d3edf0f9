//! Clients that wait for something to come into a list or a sorted set: `BLPOP` and its like.
//!
//! A waiter registers, looks whether there is something, and sleeps only then; a client that pushes wakes it after its commit. So no push is overlooked: it
//! commits before the waiter looks, or finds the waiter registered.
//!
//! A push wakes the one that waits longest. One that was woken is out of the rows until it is about to look again. One that leaves after it was woken, with
//! something or without having looked, wakes the next: there may be more. So each element costs two looks, however many wait.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Those that wait for one key, in the order in which they came.
type Row = BTreeMap<u64, Arc<One>>;

/// All of them, by keys with the number of their database in front.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    by_key: Mutex<BTreeMap<Vec<u8>, Row>>,
    /// Registered: no push takes the lock while there are none.
    count: AtomicUsize,
    /// Of these, those that have looked in vain: what `blocked_clients` tells.
    asleep: AtomicUsize,
    numbers: AtomicU64,
}

#[derive(Debug, Default)]
struct One {
    notify: Notify,
    /// It was woken since it last was about to look: it may not stand in all its rows.
    woken: AtomicBool,
}

/// A place among them; dropping it leaves.
pub(crate) struct Waiting<'w> {
    all: &'w Waiters,
    number: u64,
    keys: Vec<Vec<u8>>,
    one: Arc<One>,
    /// It was woken, and has not found since that there is nothing.
    owes: Cell<bool>,
    asleep: Cell<bool>,
}

impl Waiters {
    pub(crate) fn register(&self, keys: Vec<Vec<u8>>) -> Waiting<'_> {
        let waiting = Waiting {
            all: self,
            number: self.numbers.fetch_add(1, Relaxed),
            keys,
            one: Arc::default(),
            owes: false.into(),
            asleep: false.into(),
        };
        waiting.stand();
        self.count.fetch_add(1, SeqCst);
        waiting
    }

    pub(crate) fn any(&self) -> bool {
        self.count.load(SeqCst) > 0
    }

    pub(crate) fn len(&self) -> usize {
        self.asleep.load(Relaxed)
    }

    /// Something was put there, and committed, or at all keys if this one is empty. Wakes the first that waits for it.
    pub(crate) fn wake(&self, key: &[u8]) {
        let mut by_key = self.by_key.lock();
        if key.is_empty() {
            let all: Vec<Vec<u8>> = by_key.keys().cloned().collect();
            drop(by_key);
            return all.iter().for_each(|key| self.wake(key));
        }
        let Some(row) = by_key.get_mut(key) else { return };
        if let Some((_, one)) = row.pop_first() {
            one.woken.store(true, SeqCst);
            one.notify.notify_one();
        }
        if row.is_empty() {
            by_key.remove(key);
        }
    }
}

impl Waiting<'_> {
    /// Told when a client puts something there; at once if one has since this was made or awaited. The caller [looks again](Self::again).
    pub(crate) fn notify(&self) -> &Notify {
        &self.one.notify
    }

    /// It is about to look: a client that puts something there from now on wakes it again.
    pub(crate) fn again(&self) {
        if self.one.woken.load(SeqCst) {
            self.owes.set(true);
            self.stand();
        }
    }

    /// What woke it may be for one that waits behind it for another type. Those in front have been woken and have passed it on.
    pub(crate) fn pass_on(&self) {
        let mut by_key = self.all.by_key.lock();
        for key in &self.keys {
            let Some(row) = by_key.get_mut(key) else { continue };
            let next = row.range(self.number + 1..).next().map(|(number, _)| *number);
            if let Some(one) = next.and_then(|number| row.remove(&number)) {
                one.woken.store(true, SeqCst);
                one.notify.notify_one();
            }
        }
    }

    /// It cannot look for a while: others go first, until it is [about to look again](Self::again).
    pub(crate) fn step_aside(&self) {
        let mut by_key = self.all.by_key.lock();
        self.leave(&mut by_key);
        // As one that was woken, which is in no row.
        let was_woken = self.one.woken.swap(true, SeqCst);
        drop(by_key);
        if self.owes.replace(false) || was_woken {
            self.keys.iter().for_each(|key| self.all.wake(key));
        }
    }

    /// It has looked, and there was nothing.
    pub(crate) fn found_nothing(&self) {
        self.owes.set(false);
        if !self.asleep.replace(true) {
            self.all.asleep.fetch_add(1, Relaxed);
        }
    }

    fn leave(&self, by_key: &mut BTreeMap<Vec<u8>, Row>) {
        for key in &self.keys {
            if let Some(row) = by_key.get_mut(key) {
                row.remove(&self.number);
                if row.is_empty() {
                    by_key.remove(key);
                }
            }
        }
    }

    fn stand(&self) {
        let mut by_key = self.all.by_key.lock();
        self.one.woken.store(false, SeqCst);
        for key in &self.keys {
            by_key.entry(key.clone()).or_default().insert(self.number, self.one.clone());
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut by_key = self.all.by_key.lock();
        self.leave(&mut by_key);
        drop(by_key);
        self.all.count.fetch_sub(1, SeqCst);
        if self.asleep.get() {
            self.all.asleep.fetch_sub(1, Relaxed);
        }
        if self.owes.get() || self.one.woken.load(SeqCst) {
            self.keys.iter().for_each(|key| self.all.wake(key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn woken(waiting: &Waiting<'_>) -> bool {
        waiting.one.woken.load(SeqCst)
    }

    #[test]
    fn a_push_wakes_the_first_and_who_leaves_wakes_the_next() {
        let all = Waiters::default();
        let keys = || vec![b"a".to_vec(), b"b".to_vec()];
        let (first, second, third) = (all.register(keys()), all.register(keys()), all.register(keys()));
        all.wake(b"a");
        assert_eq!([woken(&first), woken(&second), woken(&third)], [true, false, false]);
        all.wake(b"a");
        assert_eq!([woken(&first), woken(&second), woken(&third)], [true, true, false]);
        // It looks, and finds something.
        first.again();
        drop(first);
        assert!(woken(&third), "there may be more");
        // It looks, and finds nothing: it stands before others again.
        second.again();
        second.found_nothing();
        assert_eq!(all.len(), 1, "one has looked in vain");
        third.again();
        third.found_nothing();
        all.wake(b"b");
        assert_eq!([woken(&second), woken(&third)], [true, false]);
        // It leaves without having looked.
        drop(second);
        assert!(woken(&third));
        drop(third);
        assert!(!all.any() && all.len() == 0 && all.by_key.lock().is_empty());
    }

    #[test]
    fn one_that_steps_aside_lets_others_go_first() {
        let all = Waiters::default();
        let (first, second) = (all.register(vec![b"a".to_vec()]), all.register(vec![b"a".to_vec()]));
        first.found_nothing();
        first.step_aside();
        all.wake(b"a");
        assert!(woken(&second), "the first does not look");
        second.again();
        // What woke it while it had not stepped aside goes on.
        first.again();
        all.wake(b"a");
        assert!(woken(&first) && !woken(&second));
        first.step_aside();
        assert!(woken(&second));
        second.again();
        // It stands in front again.
        first.again();
        first.found_nothing();
        all.wake(b"a");
        assert!(woken(&first) && !woken(&second));
        drop((first, second));
        assert!(!all.any() && all.by_key.lock().is_empty());
    }
}
