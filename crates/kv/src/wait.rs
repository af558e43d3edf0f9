//! Waiting for another thread that is about to be done.

use std::time::{Duration, Instant};

use pmem::sync::wait_point;

/// Tries that only pause: a barrier takes less time than a system call.
const SPINS: u32 = 200;
/// Tries that let others run, before naps begin: then the other waits for a disk.
const YIELDS: u32 = 2000;
const NAP: Duration = Duration::from_micros(50);
/// Longer than anybody should hold what another waits for.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same where time is not real.
const PATIENCE_TRIES: u32 = 200_000;

/// Pauses that become longer.
pub(crate) struct Wait {
    tries: u32,
    /// The first nap began.
    since: Option<Instant>,
}

impl Wait {
    pub(crate) fn new() -> Self {
        Self { tries: 0, since: None }
    }

    /// Pauses; false when that has gone on for longer than anybody should have to wait.
    #[cold]
    pub(crate) fn again(&mut self) -> bool {
        self.tries = self.tries.saturating_add(1);
        if wait_point() {
            return self.tries < PATIENCE_TRIES;
        }
        match self.tries {
            0..SPINS => std::hint::spin_loop(),
            SPINS..YIELDS => std::thread::yield_now(),
            _ => {
                let since = *self.since.get_or_insert_with(now);
                std::thread::sleep(NAP);
                return since.elapsed() < PATIENCE;
            }
        }
        true
    }
}

#[expect(clippy::disallowed_methods, reason = "patience is a matter of real time")]
fn now() -> Instant {
    Instant::now()
}
