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

    /// The algorithm that is timed is the one that records use.
    #[test]
    fn checksum_is_castagnoli() {
        assert_eq!(checksum(CrcAlgorithm::Crc32Iscsi, b"123456789"), 0xe306_9283);
    }
}
