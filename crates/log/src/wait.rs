//! Waiting for another thread: on memory it will be done in less time than a system call takes, on a disk it is better to sleep.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pmem::sync::wait_point;

/// Tries that only pause: about a barrier's worth.
const SPINS: u32 = 40;
/// Tries that give the processor away, which on too few processors the awaited thread needs.
const YIELDS: u32 = 2000;
/// Longest sleep: a wake-up that came between a look and its sleep is missed for so long.
const NAP: Duration = Duration::from_micros(500);
/// In a scheduled run, where time does not pass.
const TRIES_MAX: u32 = 20_000;

/// Who waits for forces of a log.
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

    /// Something has become durable.
    #[inline]
    pub(crate) fn wake(&self) {
        if self.slow && self.sleepers.load(SeqCst) > 0 {
            drop(self.mutex.lock());
            self.woken.notify_all();
        }
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

    /// Waits a little; `Err` with the time waited once that is more than `limit`.
    #[expect(clippy::disallowed_methods, reason = "patience is measured in real time; scheduled runs count tries")]
    pub(crate) fn once(&mut self, limit: Duration) -> Result<(), Duration> {
        self.tries += 1;
        if wait_point() {
            return if self.tries < TRIES_MAX { Ok(()) } else { Err(limit) };
        }
        if self.tries <= SPINS {
            std::hint::spin_loop();
            return Ok(());
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        if self.tries.is_multiple_of(64) || self.tries > SPINS + YIELDS || self.waiting.slow {
            let waited = since.elapsed();
            if waited > limit {
                return Err(waited);
            }
        }
        if self.waiting.slow && self.tries > SPINS + 4 {
            self.waiting.sleepers.fetch_add(1, SeqCst);
            let mut guard = self.waiting.mutex.lock();
            self.waiting.woken.wait_for(&mut guard, NAP);
            drop(guard);
            self.waiting.sleepers.fetch_sub(1, Relaxed);
        } else if self.tries <= SPINS + YIELDS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(NAP / 10);
        }
        Ok(())
    }
}
