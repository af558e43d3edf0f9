//! Checksums and atomics: no pool involved.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crc_fast::{CrcAlgorithm, checksum};
use xxhash_rust::xxh3::xxh3_64;

use super::row;
use crate::{Result, Side, clock};

/// Bytes covered by one checksum.
const CHECKSUM_BYTES: [usize; 4] = [64, 256, 1024, 4096];

/// All of them.
pub fn sides() -> Vec<Side<'static>> {
    let mut sides = Vec::new();
    for bytes in CHECKSUM_BYTES {
        sides.push(hash("crc32c", bytes, |data| checksum(CrcAlgorithm::Crc32Iscsi, data)));
        sides.push(hash("xxh3", bytes, xxh3_64));
    }
    sides.push(fetch_add(1));
    sides.push(fetch_add(2));
    sides
}

fn hash(name: &str, bytes: usize, function: fn(&[u8]) -> u64) -> Side<'static> {
    let data: Vec<u8> = (0..bytes).map(|i| i as u8).collect();
    let work = move |batch| {
        clock::time(|| {
            for _ in 0..batch {
                black_box(function(black_box(&data)));
            }
            Ok(())
        })
    };
    Side::new(row(name).param("bytes", bytes), work).op_bytes(bytes as u64)
}

/// All threads add to one word.
fn fetch_add(threads: usize) -> Side<'static> {
    let word = AtomicU64::new(0);
    let work = move |batch: u64| {
        let share = batch.div_ceil(threads as u64);
        let add = || {
            for _ in 0..share {
                black_box(&word).fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        in_parallel(vec![add; threads])
    };
    Side::new(row("fetch_add").threads(threads), work)
}

/// The time from when all threads are ready to when the last is done.
pub(super) fn in_parallel<W: FnOnce() -> Result<()> + Send>(work: Vec<W>) -> Result<Duration> {
    if work.len() == 1 {
        return work.into_iter().map(clock::time).sum();
    }
    let ready = Barrier::new(work.len());
    let ready = &ready;
    let times: Vec<Result<Duration>> = thread::scope(|scope| {
        let start = |work: W| {
            scope.spawn(move || {
                ready.wait();
                clock::time(work)
            })
        };
        let threads: Vec<_> = work.into_iter().map(start).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    });
    // They start together, so the longest time is that of all of them.
    times.into_iter().try_fold(Duration::ZERO, |longest, time| Ok(longest.max(time?)))
}

/// Nanoseconds that a line of the cache takes from the thread that wrote it to another that waits for it: what two threads tell each other costs so much, and
/// a virtual machine's host may change it from one moment to the next. `None` if one of both had no core to himself.
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
                // Whoever gave up is not waited for.
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
    fn parallel_work_is_all_done() {
        let sum = AtomicU64::new(0);
        let work = (1..=4).map(|i| {
            let sum = &sum;
            move || {
                sum.fetch_add(i, Ordering::Relaxed);
                Ok(())
            }
        });
        in_parallel(work.collect()).unwrap();
        assert_eq!(sum.into_inner(), 10);
    }

    #[test]
    fn a_line_takes_some_time() {
        // On a machine with other work, one thread may not run while the other waits: then nothing is told.
        assert!(line_transfer().is_none_or(|ns| ns > 0.0));
    }

    /// The algorithm that is timed is the one that records use.
    #[test]
    fn checksum_is_castagnoli() {
        assert_eq!(checksum(CrcAlgorithm::Crc32Iscsi, b"123456789"), 0xe306_9283);
    }
}
