//! How long a line of the cache takes from one thread to another.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::clock;

/// Nanoseconds that a line of the cache takes from the thread that wrote it to another that waits for it: what two threads tell each other costs so much, and
/// a virtual machine's host may change it from one moment to the next. `None` if one of both had no core to itself.
pub(crate) fn line_transfer() -> Option<f64> {
    const WAYS: u64 = 128;
    const TRIES: u64 = 5;
    if thread::available_parallelism().map_or(1, usize::from) < 2 {
        return None;
    }
    let line = OnLine(AtomicU64::new(0));
    // Each waits for its numbers, the even or the odd ones, and writes the next. A try that an interruption fell into takes longer: the shortest tells what the
    // machine does.
    let send = |first: u64| {
        let line = &line.0;
        move || -> Option<Duration> {
            let mut watch = clock::Stopwatch::start();
            let mut shortest = None;
            for number in 0..TRIES * WAYS / 2 {
                let own = number * 2 + first;
                if !comes(line, own) {
                    line.store(GIVEN_UP, Ordering::Release);
                    break;
                }
                // A thread that gave up is not waited for.
                let _ = line.compare_exchange(own, own + 1, Ordering::Release, Ordering::Relaxed);
                if (number + 1).is_multiple_of(WAYS / 2) {
                    let lap = watch.lap();
                    shortest = Some(shortest.map_or(lap, |before: Duration| before.min(lap)));
                }
            }
            shortest
        }
    };
    let (own, other) = thread::scope(|scope| {
        let other = scope.spawn(send(1));
        (send(0)(), other.join().ok().flatten())
    });
    Some(own?.min(other?).as_nanos() as f64 / WAYS as f64)
}

/// A line for itself, and the one that is fetched with it.
#[repr(align(128))]
struct OnLine(AtomicU64);

/// What stands in the line when one of both had to wait for too long.
const GIVEN_UP: u64 = u64::MAX;

/// Waits for the number; false if it does not come for a millisecond or so: the other one does not run.
fn comes(line: &AtomicU64, number: u64) -> bool {
    const SPINS: u32 = 100_000;
    for _ in 0..SPINS {
        match line.load(Ordering::Acquire) {
            found if found == number => return true,
            GIVEN_UP => return false,
            _ => std::hint::spin_loop(),
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_takes_some_time() {
        // On a machine with other work, one thread may not run while the other waits: then nothing is told.
        assert!(line_transfer().is_none_or(|ns| ns > 0.0));
    }
}
