//! Waiting for another thread. On memory it is done in less time than a system call takes, so a thread looks again some times before it sleeps; on a disk it sleeps
//! soon. A thread that sleeps is woken by the thread that changes what it waits for: makes records durable, completes the first that is not, makes room.
//!
//! A thread that changes something stores it, and then looks for sleepers, without a barrier between the two: that would be a locked instruction behind a
//! drain, which waits for all that was stored past the cache. A thread that is about to sleep counts itself, then has every thread pass a barrier, then looks
//! once more: either it sees the change, or it is counted by the time the other looks.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicUsize, compiler_fence};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pmem::sync::{barrier_everywhere, wait_point};

/// Tries that only pause: about a barrier's worth.
const SPINS: u32 = 40;
/// Tries that give the processor away, which on too few processors the awaited thread needs.
const YIELDS: u32 = 2000;
/// A sleep where the system has no barrier for all threads, so that a wake-up may be missed.
const SHORT: Duration = Duration::from_micros(100);
/// Every other sleep, at most: no thread wakes the sleepers for a pool that another of its users has poisoned.
const LONG: Duration = Duration::from_millis(10);
/// In a scheduled run, where time does not pass.
const TRIES_MAX: u32 = 20_000;

/// The threads that wait for records of a log, or for room in it.
pub(crate) struct Waiting {
    /// Forces take as long as a disk does.
    slow: bool,
    sleepers: AtomicUsize,
    mutex: Mutex<()>,
    woken: Condvar,
}

impl Waiting {
    pub(crate) fn new(slow: bool) -> Self {
        Self { slow, sleepers: AtomicUsize::new(0), mutex: Mutex::new(()), woken: Condvar::new() }
    }

    /// Something has changed that others may wait for.
    #[inline]
    pub(crate) fn wake(&self) {
        if self.any() {
            self.wake_all();
        }
    }

    /// True if a thread sleeps that does not see what was stored before this.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        compiler_fence(SeqCst); // the processor's is the sleeper's to make
        self.sleepers.load(Relaxed) > 0
    }

    /// A sleeper looks with the lock held: it has seen the change, or sleeps by the time this has the lock.
    #[cold]
    fn wake_all(&self) {
        drop(self.mutex.lock());
        self.woken.notify_all();
    }

    fn sleep(&self, limit: Duration, is_there: impl FnOnce() -> bool) {
        self.sleepers.fetch_add(1, SeqCst);
        let most = if barrier_everywhere() { LONG } else { SHORT };
        let mut guard = self.mutex.lock();
        if !is_there() {
            self.woken.wait_for(&mut guard, most.min(limit));
        }
        drop(guard);
        self.sleepers.fetch_sub(1, Relaxed);
    }
}

/// One thread's waiting.
pub(crate) struct Wait<'a> {
    waiting: &'a Waiting,
    tries: u32,
    since: Option<Instant>,
}

impl<'a> Wait<'a> {
    #[inline]
    pub(crate) fn new(waiting: &'a Waiting) -> Self {
        Self { waiting, tries: 0, since: None }
    }

    /// Waits a little, at most until it is there; `Err` with the time waited once that is more than `limit`.
    #[expect(clippy::disallowed_methods, reason = "a timeout is measured in real time; scheduled runs count tries")]
    pub(crate) fn once(&mut self, limit: Duration, is_there: impl FnOnce() -> bool) -> Result<(), Duration> {
        self.tries = self.tries.saturating_add(1);
        if wait_point() {
            return if self.tries < TRIES_MAX { Ok(()) } else { Err(limit) };
        }
        if self.tries <= SPINS {
            std::hint::spin_loop();
            return Ok(());
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        let sleeps = self.tries > if self.waiting.slow { SPINS + 4 } else { SPINS + YIELDS };
        if !sleeps && !self.waiting.slow && !self.tries.is_multiple_of(64) {
            std::thread::yield_now();
            return Ok(());
        }
        let waited = since.elapsed();
        let Some(left) = limit.checked_sub(waited).filter(|left| !left.is_zero()) else { return Err(waited) };
        if sleeps {
            self.waiting.sleep(left, is_there);
        } else {
            std::thread::yield_now();
        }
        Ok(())
    }
}
