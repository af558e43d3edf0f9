//! Sleeping until another thread changes what is waited for.
//!
//! A sleeper goes by the address of what it waits for; addresses share a few rows, so a sleeper may be woken for another's sake, and looks again.

use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::thread::{MembarrierCommand, membarrier};

/// Rows that addresses are spread over.
const ROWS: usize = 64;

struct Row {
    mutex: Mutex<()>,
    woken: Condvar,
}

static SLEEPERS: [Row; ROWS] = [const { Row { mutex: Mutex::new(()), woken: Condvar::new() } }; ROWS];

fn row(address: usize) -> &'static Row {
    &SLEEPERS[(address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 58]
}

/// Sleeps while `condition` holds, `most` at most; false if it still does. A thread that changes it calls [`unpark`] afterwards, and no wake-up is lost. `condition` is asked under a
/// lock, under which no thread may park or unpark.
///
/// Not for threads under a [`Scheduler`](crate::sync::Scheduler).
pub fn park_while(address: usize, most: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let row = row(address);
    let mut guard = row.mutex.lock();
    !row.woken.wait_while_for(&mut guard, |()| condition(), most).timed_out()
}

/// Wakes all that sleep by this address.
#[cold]
pub fn unpark(address: usize) {
    let row = row(address);
    // A thread that asked its condition before the change is asleep once it gives the lock up.
    drop(row.mutex.lock());
    row.woken.notify_all();
}

/// Every thread of the process passes a full memory barrier; false where the system has no such call. A thread that stores, and then looks for sleepers, needs
/// no barrier of its own then.
#[cold]
pub fn barrier_everywhere() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    let register = || !cfg!(miri) && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
    *REGISTERED.get_or_init(register) && membarrier(MembarrierCommand::PrivateExpedited).is_ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    use super::*;

    #[test]
    fn a_sleeper_is_woken_and_one_without_a_waker_gives_up() {
        let (asleep, go) = (AtomicBool::new(false), AtomicBool::new(false));
        let address = &raw const go as usize;
        std::thread::scope(|threads| {
            let sleeper = threads.spawn(|| {
                park_while(address, Duration::from_secs(600), || {
                    asleep.store(true, SeqCst);
                    !go.load(SeqCst)
                })
            });
            while !asleep.load(SeqCst) {
                std::thread::yield_now();
            }
            go.store(true, SeqCst);
            unpark(address);
            assert!(sleeper.join().unwrap());
        });
        assert!(!park_while(address, Duration::from_millis(1), || true));
    }
}
