//! Exact counts of what persistence costs, kept per thread and summed on demand.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::threads::{PLAYED, thread_id};

/// Threads with counters of their own; further ones share the last, with atomic additions.
pub(crate) const THREADS: usize = 64;

/// Counted costs of one pool since it was opened, all threads together.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
/// let mut area = pool.add_region("r", 4096)?.into_area()?;
/// let before = pool.stats();
/// area.bytes_mut(0, 200)?.fill(1);
/// area.persist(0, 200)?;
/// let cost = pool.stats() - before;
/// assert_eq!((cost.drains, cost.flushed_lines, cost.media_bytes()), (1, 4, 256));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Lines flushed, each [`LINE`](crate::LINE) bytes.
    pub flushed_lines: u64,
    /// Drains: barriers. Our first cost measure.
    pub drains: u64,
    /// Bytes stored past the cache.
    pub nt_bytes: u64,
    /// System calls that waited for the device. In the file domain several drains may share one.
    pub syncs: u64,
}

impl Stats {
    /// Bytes on their way to the media: whole lines, and what was stored past the cache.
    pub fn media_bytes(&self) -> u64 {
        self.flushed_lines * crate::LINE + self.nt_bytes
    }
}

impl Stats {
    fn with(self, other: Stats, f: impl Fn(u64, u64) -> u64) -> Stats {
        Stats {
            flushed_lines: f(self.flushed_lines, other.flushed_lines),
            drains: f(self.drains, other.drains),
            nt_bytes: f(self.nt_bytes, other.nt_bytes),
            syncs: f(self.syncs, other.syncs),
        }
    }
}

impl std::ops::AddAssign for Stats {
    fn add_assign(&mut self, other: Stats) {
        *self = self.with(other, |a, b| a + b);
    }
}

impl std::ops::Sub for Stats {
    type Output = Stats;
    fn sub(self, earlier: Stats) -> Stats {
        self.with(earlier, |a, b| a - b)
    }
}

/// Whether this is a played thread whose number has a row to itself.
#[inline]
pub(crate) fn is_played_apart(thread: usize) -> bool {
    thread.checked_sub(PLAYED).is_some_and(|played| played < THREADS - 1)
}

/// One thread's counters, alone on their lines: no count is shared on the hot path.
#[repr(align(128))]
#[derive(Default)]
struct Row {
    flushed_lines: AtomicU64,
    drains: AtomicU64,
    nt_bytes: AtomicU64,
}

pub(crate) struct Counters {
    rows: Box<[Row]>,
    syncs: AtomicU64,
}

impl Counters {
    pub(crate) fn new() -> Self {
        Self { rows: (0..2 * THREADS).map(|_| Row::default()).collect(), syncs: AtomicU64::new(0) }
    }

    /// Where a thread counts that has no row to itself, or may not be the only one of its number.
    #[inline]
    fn shared(&self, thread: usize) -> &Row {
        match thread.checked_sub(PLAYED) {
            Some(played) => &self.rows[THREADS + played.min(THREADS - 1)],
            None => &self.rows[THREADS - 1],
        }
    }

    #[inline]
    fn add(&self, cell: impl Fn(&Row) -> &AtomicU64, n: u64) -> u64 {
        let thread = thread_id();
        if thread < THREADS - 1 {
            // Only the thread that owns this id writes here, so load and store lose nothing.
            let cell = cell(&self.rows[thread]);
            let sum = cell.load(Relaxed) + n;
            cell.store(sum, Relaxed);
            sum
        } else {
            cell(self.shared(thread)).fetch_add(n, Relaxed) + n
        }
    }

    #[inline]
    pub(crate) fn flushed(&self, lines: u64) {
        self.add(|r| &r.flushed_lines, lines);
    }

    /// Counts a drain and returns its number in this thread's row.
    #[inline]
    pub(crate) fn drained(&self) -> u64 {
        self.add(|r| &r.drains, 1)
    }

    /// Drains of this thread so far.
    #[inline]
    pub(crate) fn drains_here(&self) -> u64 {
        let thread = thread_id();
        let row = if thread < THREADS - 1 { &self.rows[thread] } else { self.shared(thread) };
        row.drains.load(Relaxed)
    }

    #[inline]
    pub(crate) fn streamed(&self, bytes: u64) {
        self.add(|r| &r.nt_bytes, bytes);
    }

    pub(crate) fn synced(&self) {
        self.syncs.fetch_add(1, Relaxed); // beside a system call that waits for a device
    }

    pub(crate) fn sum(&self) -> Stats {
        let mut stats = Stats { syncs: self.syncs.load(Relaxed), ..Stats::default() };
        for row in &self.rows {
            stats.flushed_lines += row.flushed_lines.load(Relaxed);
            stats.drains += row.drains.load(Relaxed);
            stats.nt_bytes += row.nt_bytes.load(Relaxed);
        }
        stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::as_thread_number;

    #[test]
    fn counts_of_many_threads_are_exact() {
        let counters = Counters::new();
        for _ in 0..3 {
            std::thread::scope(|scope| {
                for _ in 0..100 {
                    scope.spawn(|| {
                        for _ in 0..1000 {
                            counters.flushed(2);
                            counters.drained();
                        }
                    });
                }
            });
        }
        let sum = counters.sum();
        assert_eq!((sum.flushed_lines, sum.drains), (600_000, 300_000));
    }

    /// Two threads that play one: what both count is counted.
    #[test]
    fn counts_of_threads_that_play_the_same_one_are_exact() {
        let counters = Counters::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for number in [5, 200] {
                        as_thread_number(number, || (0..50_000).for_each(|_| _ = counters.drained()));
                    }
                });
            }
        });
        assert_eq!(counters.sum().drains, 400_000);
        assert_eq!(as_thread_number(5, || counters.drains_here()), 200_000);
    }
}
