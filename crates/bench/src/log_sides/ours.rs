//! The crate `log`, and group commit on top of it.

use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use log::Log;
use pmem::Stats;

use super::{LogSide, Policy, Writer};
use crate::Result;

/// The longest frequency there is.
const NEVER: u32 = 1024;
/// Bytes of a segment: few of them in a log, and far more than a record.
const SEGMENT: u64 = 1 << 20;
/// Records that touch all pages of a new log: sixteen to a segment, headers and all.
pub(super) const FILL: usize = (64 << 10) - 64;

/// The log under a policy.
pub struct Ours {
    log: Log,
    policy: Policy,
    /// Records completed, if the policy is group commit. What all threads write has a line of its own.
    completed: Counter,
    /// Those in groups that were forced.
    forced: Counter,
}

#[repr(align(128))]
#[derive(Default)]
struct Counter(AtomicU64);

/// For a log with room for `bytes`, and so many threads.
#[must_use]
pub fn options(bytes: u64, policy: Policy, threads: usize) -> log::Options {
    // One segment more: records do not cross them, so that each may end in a hole.
    let options = log::Options::new().bytes(bytes.next_multiple_of(SEGMENT) + SEGMENT).segment_bytes(SEGMENT);
    match policy {
        Policy::Sync => options,
        Policy::Frequency(every) => options.frequency(every).threads(threads as u32),
        // The same way into the log as under frequency, whose own forces come too late to be any.
        Policy::Group(_) => options.frequency(NEVER).threads(1),
    }
}

impl Ours {
    /// A new log.
    ///
    /// # Errors
    /// Those of the log.
    pub fn create(path: &Path, bytes: u64, policy: Policy, threads: usize) -> Result<Self> {
        let log = options(bytes, policy, threads).create(path)?;
        let made = Self { log, policy, completed: Counter::default(), forced: Counter::default() };
        let fill = vec![0; FILL];
        for _ in 0..bytes / (FILL as u64 + 64) {
            made.unforced(&fill)?;
        }
        made.log.truncate_all()?;
        Ok(made)
    }

    /// The log itself.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Appends as the policy has it.
    ///
    /// # Errors
    /// Those of the log.
    #[inline]
    pub fn append(&self, record: &[u8]) -> Result<()> {
        let lsn = self.log.append(record)?;
        if let Policy::Group(size) = self.policy { self.count(lsn, size) } else { Ok(()) }
    }

    /// Appends without a force.
    #[inline]
    pub(crate) fn unforced(&self, record: &[u8]) -> Result<log::Lsn> {
        let mut reservation = self.log.reserve(record.len())?;
        reservation.copy(0, record);
        let lsn = reservation.lsn();
        reservation.complete()?;
        Ok(lsn)
    }

    /// Forces a record of `unforced` as the policy has it.
    ///
    /// # Errors
    /// Those of the log.
    #[inline]
    pub fn force(&self, lsn: log::Lsn) -> Result<()> {
        match self.policy {
            Policy::Sync | Policy::Frequency(_) => Ok(self.log.force(lsn)?),
            Policy::Group(size) => self.count(lsn, size),
        }
    }

    /// Group commit: the thread that completes the last of a group forces all of it. At most a group may be lost, and what threads are just completing: so
    /// no thread returns from the next group before.
    #[inline]
    fn count(&self, lsn: log::Lsn, size: u32) -> Result<()> {
        let (count, size) = (self.completed.0.fetch_add(1, Relaxed) + 1, u64::from(size));
        if count.is_multiple_of(size) {
            let forced = self.log.force_now(lsn);
            self.forced.0.fetch_max(count, Release); // even if it failed: no thread need wait for that
            return Ok(forced?);
        }
        let mut tries = 0;
        while count > self.forced.0.load(Acquire) + size {
            tries += 1;
            if tries < 100 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        Ok(())
    }
}

impl LogSide for Ours {
    fn writer(&self, _: usize) -> Result<Box<dyn Writer + '_>> {
        Ok(Box::new(OurWriter(self)))
    }

    fn clean(&self) -> Result<()> {
        Ok(self.log.truncate_all()?)
    }

    fn stats(&self) -> Option<Stats> {
        Some(self.log.pool().stats())
    }

    fn domain(&self) -> String {
        self.log.pool().domain().to_string()
    }
}

struct OurWriter<'e>(&'e Ours);

impl Writer for OurWriter<'_> {
    #[inline]
    fn append(&mut self, record: &[u8]) -> Result<()> {
        self.0.append(record)
    }
}
