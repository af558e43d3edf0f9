//! Sleep that outlasts a fork.
//!
//! `parking_lot` keeps sleepers in a table of the process. The child of a fork has the table and not the threads: one of its own that gets the memory of a thread that slept
//! in the parent closes a circle there, and a thread that wakes others goes round in it for ever. So threads that sleep most of their time, whose process may
//! fork at any moment, sleep by these: the standard library's, each a word of its own.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A value, and threads that sleep until it changes. Not poisoned by panics.
///
/// ```
/// use std::time::Duration;
///
/// let jobs = pmem::sync::Watched::new(Vec::new());
/// std::thread::scope(|threads| {
///     threads.spawn(|| {
///         let mut waiting = jobs.lock();
///         while waiting.is_empty() {
///             waiting = jobs.sleep(waiting, Duration::MAX);
///         }
///     });
///     jobs.lock().push("job");
///     jobs.wake_one();
/// });
/// ```
#[derive(Debug, Default)]
pub struct Watched<T> {
    value: Mutex<T>,
    changed: Condvar,
}

impl<T> Watched<T> {
    /// With this value.
    pub const fn new(value: T) -> Self {
        Self { value: Mutex::new(value), changed: Condvar::new() }
    }

    /// Waits until the lock is free and takes it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the lock up, sleeps until another thread wakes it, so long at most, and takes the lock again. It may wake for no reason, too.
    pub fn sleep<'a>(&self, guard: MutexGuard<'a, T>, most: Duration) -> MutexGuard<'a, T> {
        self.changed.wait_timeout(guard, most).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Wakes one that sleeps.
    pub fn wake_one(&self) {
        self.changed.notify_one();
    }

    /// Wakes all that sleep.
    pub fn wake_all(&self) {
        self.changed.notify_all();
    }
}

/// Tells a thread that works from time to time that it is to end.
#[derive(Debug, Default)]
pub struct Ticker(Watched<bool>);

impl Ticker {
    /// Sleeps for a tick; false when it is over.
    pub fn tick(&self, tick: Duration) -> bool {
        let stopped = self.0.lock();
        if *stopped {
            return false;
        }
        !*self.0.sleep(stopped, tick)
    }

    /// It is over.
    pub fn stop(&self) {
        *self.0.lock() = true;
        self.0.wake_all();
    }
}
