//! Waiting for another thread: a few pauses, then sleep until it wakes this one.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread::Thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pmem::sync::wait_point;

/// Tries that only pause: a barrier takes less time than a system call.
const SPINS: u32 = 200;
/// Tries that let others run, before the thread sleeps: then the other waits for a disk.
const YIELDS: u32 = 210;
/// Longer than anybody should hold what another waits for.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The same where time is not real.
const TIMEOUT_TRIES: u32 = 200_000;

/// Pauses that become longer, up to a sleep that ends when another thread wakes this one.
pub(crate) struct Wait {
    tries: u32,
    /// The first sleep began.
    since: Option<Instant>,
}

impl Wait {
    pub(crate) fn new() -> Self {
        Self { tries: 0, since: None }
    }

    /// The timeout begins anew: another one is waited for.
    pub(crate) fn renew(&mut self) {
        (self.tries, self.since) = (self.tries.min(YIELDS), None);
    }

    /// Pauses, or sleeps until woken; false when that has gone on for longer than anybody should have to wait. A thread that may be woken has said where before
    /// the look that made it wait.
    #[cold]
    pub(crate) fn again(&mut self) -> bool {
        self.for_as_long_as(TIMEOUT)
    }

    /// The same, with a look at least that often.
    #[cold]
    pub(crate) fn for_as_long_as(&mut self, look: Duration) -> bool {
        self.tries = self.tries.saturating_add(1);
        if wait_point() {
            return self.tries < TIMEOUT_TRIES;
        }
        match self.tries {
            0..SPINS => std::hint::spin_loop(),
            SPINS..YIELDS => std::thread::yield_now(),
            _ => {
                let since = *self.since.get_or_insert_with(now);
                let left = TIMEOUT.saturating_sub(since.elapsed());
                if left.is_zero() {
                    return false;
                }
                std::thread::park_timeout(left.min(look));
            }
        }
        true
    }
}

#[expect(clippy::disallowed_methods, reason = "a timeout is a matter of real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// What one who waits in a row is given.
pub(crate) struct Ticket {
    given: AtomicBool,
    thread: Thread,
}

impl Ticket {
    /// For this thread.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { given: false.into(), thread: std::thread::current() })
    }

    pub(crate) fn is_given(&self) -> bool {
        self.given.load(Acquire)
    }

    pub(crate) fn give(&self) {
        self.given.store(true, Release);
        self.thread.unpark();
    }
}

/// Where threads say that they sleep.
#[derive(Default)]
pub(crate) struct Parked(Mutex<Vec<Thread>>);

impl Parked {
    /// This thread is to be woken, as long as what is returned lives.
    pub(crate) fn here(&self) -> Here<'_> {
        let thread = std::thread::current();
        let id = thread.id();
        self.0.lock().push(thread);
        Here { parked: self, id }
    }

    pub(crate) fn wake(&self) {
        self.0.lock().iter().for_each(Thread::unpark);
    }
}

pub(crate) struct Here<'a> {
    parked: &'a Parked,
    id: std::thread::ThreadId,
}

impl Drop for Here<'_> {
    fn drop(&mut self) {
        let mut threads = self.parked.0.lock();
        if let Some(at) = threads.iter().position(|thread| thread.id() == self.id) {
            threads.swap_remove(at);
        }
    }
}
