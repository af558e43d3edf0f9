//! Bounded durability: a commit returns before its barrier, and at most so many commits are at risk.
//!
//! Others see such a commit before it is durable. So all commits have one dense numbering, drawn behind validation, and what survives a crash is a prefix of
//! it: recovery keeps the commits up to the first number that is missing, and erases what is left of later ones before anybody is served. A commit that would
//! put more at risk than allowed first flushes everything that waits, of all writers, and drains once. Each record names what was durable when it was written,
//! so that what was durable and is missing is known for a loss.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::error::{Error, Result};
use crate::medium::Medium;
use crate::options::Durability;
use crate::space::Space;
use crate::writers::writer::Writers;
use pmem::sync::CachePadded;

/// Numbers of commits, if they are bounded.
pub(super) struct Bound {
    /// Commits that may be at risk; 0: none, each has its barrier.
    limit: u64,
    /// Commits that may take a number: not beyond the forced ones by more than the limit.
    admitted: CachePadded<AtomicU64>,
    /// The last number drawn.
    last: CachePadded<AtomicU64>,
    /// Commits through this number are durable.
    forced: AtomicU64,
    one: pmem::sync::Mutex<()>,
}

impl Bound {
    pub(super) fn new(durability: Durability, last: u64) -> Self {
        let limit = match durability {
            Durability::Durable => 0,
            Durability::Bounded(limit) => u64::from(limit),
            Durability::Replicated => u64::MAX, // they are in the log
        };
        let (admitted, numbers) = (CachePadded(last.into()), CachePadded(last.into()));
        Self { limit, admitted, last: numbers, forced: last.into(), one: pmem::sync::Mutex::new(()) }
    }

    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.limit > 0
    }

    pub(super) fn last(&self) -> u64 {
        self.last.load(Acquire)
    }

    pub(super) fn forced(&self) -> u64 {
        self.forced.load(Acquire)
    }

    /// The next number. The caller was admitted, and holds its log.
    pub(super) fn draw(&self) -> u64 {
        self.last.fetch_add(1, Relaxed) + 1
    }

    /// Recovery kept the commits through this one.
    pub(super) fn restart(&self, last: u64) {
        for number in [&*self.admitted, &*self.last, &self.forced] {
            number.store(last, Relaxed);
        }
    }

    /// An admitted commit draws no number.
    pub(super) fn give_up(&self) {
        self.admitted.fetch_sub(1, Relaxed);
    }

    /// Waits until one more commit may be at risk; `force` makes those durable that are. The caller holds no log.
    pub(super) fn admit(&self, force: impl Fn() -> Result<()>) -> Result<()> {
        loop {
            let forced = self.forced();
            let admitted = self.admitted.load(Relaxed);
            if admitted - forced.min(admitted) < self.limit {
                if self.admitted.compare_exchange(admitted, admitted + 1, Relaxed, Relaxed).is_ok() {
                    return Ok(());
                }
                continue;
            }
            force()?;
            if self.forced() == forced && !pmem::sync::wait_point() {
                std::thread::yield_now(); // those admitted have not drawn their numbers yet
            }
        }
    }

    /// Makes every commit that has returned durable. One barrier. `check` says if a log with copies has failed.
    pub(super) fn force(
        &self,
        medium: &Medium,
        writers: &Writers,
        space: &Space,
        check: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        if !self.is_on() {
            return Ok(());
        }
        let _one = self.one.lock();
        let pool = medium.pool();
        // A commit that drew a number up to this one holds its log until its records are in it.
        let last = self.last();
        if self.forced() == last {
            return Ok(());
        }
        for writer in &writers.all {
            let waiting = writer.log.lock().force(pool, medium.key(), self.forced())?;
            for (first, count) in waiting.segments {
                space.flush_words(first, count)?;
            }
            for run in waiting.runs {
                pool.flush(run.offset, run.len as u64)?;
            }
        }
        // A commit that drew a number and has no records, since its log failed, has said so before it gave its own log back.
        check()?;
        pool.drain().map_err(|source| Error::InDoubt { source })?;
        self.forced.store(last, Release);
        Ok(())
    }
}
