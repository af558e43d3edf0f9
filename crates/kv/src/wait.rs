//! Waiting for another thread that is about to be done.

use std::time::Duration;

use pmem::sync::wait_point;

/// Tries that only pause: a barrier takes less time than a system call.
const SPINS: u32 = 200;
/// Tries that let others run, before naps begin: then the other waits for a disk.
const YIELDS: u32 = 2000;
const NAP: Duration = Duration::from_micros(50);
/// About ten seconds.
const PATIENCE: u32 = 200_000;

/// Pauses that become longer.
pub(crate) struct Wait(u32);

impl Wait {
    pub(crate) fn new() -> Self {
        Self(0)
    }

    /// Pauses; false when that has gone on for longer than anybody should have to wait.
    #[cold]
    pub(crate) fn again(&mut self) -> bool {
        self.0 += 1;
        if !wait_point() {
            match self.0 {
                0..SPINS => std::hint::spin_loop(),
                SPINS..YIELDS => std::thread::yield_now(),
                _ => std::thread::sleep(NAP),
            }
        }
        self.0 < PATIENCE
    }
}
