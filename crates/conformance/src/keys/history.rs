//! What many transactions did, in eight bytes for each read.
//!
//! Every written value names itself: which transaction wrote it, as its how-manyeth write. That is its [`Version`]; a read names the
//! version it found, and so its writer. A delete leaves no value, yet is a version too: a reader that finds nothing and cannot say which
//! delete, says nothing.

use tx::Isolation;

use crate::history::{Anomaly, Phenomenon};

/// Writes of one transaction, at most.
pub const WRITES_MAX: usize = 256;

/// What one write left: a value, or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u64);

impl Version {
    /// As a number, below 2⁴⁸.
    pub fn raw(self) -> u64 {
        self.0
    }

    /// Made from one. It need not be one that was ever written.
    pub fn from_raw(raw: u64) -> Self {
        Self(raw & ((1 << 48) - 1))
    }

    /// The write after this one in its transaction.
    #[must_use]
    pub fn next(self) -> Self {
        Self::from_raw(self.0 + 1)
    }

    /// The write before.
    #[must_use]
    pub fn previous(self) -> Self {
        Self::from_raw(self.0.wrapping_sub(1))
    }

    pub(super) fn thread(self) -> usize {
        (self.0 >> 40) as usize
    }

    pub(super) fn number(self) -> usize {
        (self.0 >> 8 & u64::from(u32::MAX)) as usize
    }

    pub(super) fn write(self) -> usize {
        (self.0 & 0xff) as usize
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "t{}.{}/{}", self.thread(), self.number(), self.write())
    }
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It said so.
    Committed,
    /// It was taken back.
    Aborted,
    /// Its commit failed for another reason than a conflict: it may have happened, then or later.
    Unknown,
}

/// A key and the version found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read(u64);

impl Read {
    pub(super) fn key(self) -> u16 {
        (self.0 >> 48) as u16
    }

    pub(super) fn version(self) -> Version {
        Version::from_raw(self.0)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    pub(super) key: u16,
    /// What it overwrote, if the writer knew. It may be one of the writer's own.
    pub(super) over: Option<Version>,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) level: Isolation,
    pub(super) outcome: Outcome,
    pub(super) begin: u64,
    pub(super) end: u64,
    /// Place in the order of commits, if the store told.
    pub(super) place: Option<u64>,
    /// First ones; the next entry's are the ends.
    pub(super) reads: usize,
    pub(super) writes: usize,
}

/// What the transactions of one thread did, one after the other.
#[derive(Debug)]
pub struct Log {
    pub(super) thread: u8,
    pub(super) entries: Vec<Entry>,
    pub(super) reads: Vec<Read>,
    pub(super) writes: Vec<Write>,
    pub(super) complaints: Vec<(usize, Anomaly)>,
}

impl Log {
    /// Nothing yet, by this thread.
    pub fn new(thread: u8) -> Self {
        Self { thread, entries: Vec::new(), reads: Vec::new(), writes: Vec::new(), complaints: Vec::new() }
    }

    /// A transaction begins; `moment` is before it did.
    pub fn begin(&mut self, level: Isolation, moment: u64) {
        let (reads, writes) = (self.reads.len(), self.writes.len());
        let outcome = Outcome::Unknown;
        self.entries.push(Entry { level, outcome, begin: moment, end: u64::MAX, place: None, reads, writes });
    }

    /// It found this version. What it wrote itself is not noted.
    pub fn read(&mut self, key: u16, version: Version) {
        self.reads.push(Read(u64::from(key) << 48 | version.0));
    }

    /// It writes, or deletes; `over` is what it knows to have stood there.
    ///
    /// # Panics
    /// After [`WRITES_MAX`] of them.
    pub fn write(&mut self, key: u16, over: Option<Version>) -> Version {
        let version = self.upcoming();
        self.writes.push(Write { key, over });
        version
    }

    /// The version that the next write will have.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    pub fn upcoming(&self) -> Version {
        let first = self.entries.last().map_or(0, |entry| entry.writes);
        let write = self.writes.len() - first;
        assert!(write < WRITES_MAX, "too many writes in one transaction");
        Version(u64::from(self.thread) << 40 | (self.entries.len() as u64).saturating_sub(1) << 8 | write as u64)
    }

    /// It found by itself that something is wrong. Counts if it commits.
    pub fn complain(&mut self, phenomenon: Phenomenon, what: String) {
        let what = format!("t{}.{}: {what}", self.thread, self.entries.len().saturating_sub(1));
        self.complaints.push((self.entries.len().saturating_sub(1), Anomaly { phenomenon, what }));
    }

    /// It has ended; `moment` is after that, and no other transaction's.
    pub fn end(&mut self, outcome: Outcome, moment: u64, place: Option<u64>) {
        if let Some(entry) = self.entries.last_mut() {
            (entry.outcome, entry.end, entry.place) = (outcome, moment, place);
        }
    }
}

/// The logs of all threads. Their numbers are 0, 1, ... in order.
#[derive(Debug, Default)]
pub struct History {
    pub(super) logs: Vec<Log>,
    /// Whether a transaction that begins after a commit must see it, at every level.
    pub(super) real_time: bool,
}

impl History {
    /// Of these threads. `real_time`: a transaction that begins after a commit must see it, at every level; otherwise strict transactions must.
    ///
    /// # Panics
    /// If the logs are not in order of their threads.
    pub fn new(logs: Vec<Log>, real_time: bool) -> Self {
        assert!(logs.iter().enumerate().all(|(n, log)| n == usize::from(log.thread)), "logs are in order");
        Self { logs, real_time }
    }

    /// Transactions that committed.
    pub fn committed(&self) -> usize {
        self.logs.iter().flat_map(|log| &log.entries).filter(|entry| entry.outcome == Outcome::Committed).count()
    }
}
