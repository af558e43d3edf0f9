//! Replicated durability: each commit is a record of a replicated log before anybody sees it, and durable when a write quorum of the log's copies has it.
//!
//! The store itself is what its log says, kept on media at leisure: commits have the dense numbering of [bounded](crate::durable::bound) ones, so that what a crash leaves of
//! the store is a prefix; the log's records carry the numbers, and opening replays what comes behind the prefix. Numbers and positions in the log are drawn together, under
//! one lock, by each commit when all with smaller timestamps have theirs (`order`): so records stand in the order of their numbers and of their timestamps, and what a follower has is what
//! readers of the leader saw at some moment.
//!
//! | step of a commit | |
//! |---|---|
//! | validation | as ever |
//! | number, and a position in the log | under one lock |
//! | force | on a write quorum of the copies when it returns: the only barriers, one on each |
//! | the store's own records | left in the cache |
//! | publish | |
//!
//! What the store has on media the log need not keep: when the log fills up, what waits is flushed and drained, and the log is cleaned up behind it. But for the last commit
//! that is known to be there: so a log with commits always has one, and a store that is further back than the log finds out before it leads.
//!
//! | invariant | kept by |
//! |---|---|
//! | no reader sees a commit that is not durable | [`Leading::append`] forces before anything is stored or published |
//! | the log has all commits behind those that are durable in the store, of every follower too | [`Leading::trim`]; [`Follower`](crate::Follower) |
//! | the leader has all commits there ever were | `repeat::take_over`: no gap before the log's first commit, none behind its last |
//! | a store whose log is missing is not opened as if it were whole | `origin`, the log's id on media |

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

use log::Lsn;
use parking_lot::Mutex;

use crate::Step;
use crate::copies::Log;
use crate::durable::bound::Bound;
use crate::durable::logged::{encode, len};
use crate::error::{Error, Result};
use crate::failpoints::Failpoints;
use crate::options::Durability;
use crate::writers::work::{Stage, Work};

/// Whether it is not known if a commit is in the log.
pub(super) fn is_in_doubt(error: &Error) -> bool {
    matches!(error, Error::LogInDoubt { .. })
}

/// What a replicated store does: it follows until it is given the log that it leads.
#[derive(Default)]
pub(super) struct Replicated {
    leading: OnceLock<Leading>,
    /// There is no room for what is to be repeated but that of moves.
    cornered: AtomicBool,
}

impl Replicated {
    /// Of a store with these options, if it is one.
    pub(super) fn of(durability: Durability) -> Option<Self> {
        (durability == Durability::Replicated).then(Self::default)
    }

    pub(super) fn leading(&self) -> Option<&Leading> {
        self.leading.get()
    }

    /// It leads from now on.
    pub(super) fn lead(&self, leading: Leading) {
        let is_first = self.leading.set(leading).is_ok();
        debug_assert!(is_first, "a store begins to lead once");
    }

    pub(super) fn is_cornered(&self) -> bool {
        self.cornered.load(Relaxed)
    }

    /// Returns whether it was.
    pub(super) fn set_cornered(&self, cornered: bool) -> bool {
        self.cornered.swap(cornered, Relaxed)
    }

    pub(super) fn into_log(self) -> Option<Log> {
        self.leading.into_inner().map(|leading| leading.log)
    }
}

/// Of the log's length: how much is between two positions that are remembered.
const STRIDES: u64 = 64;

pub(crate) struct Leading {
    log: Log,
    order: Mutex<Order>,
    /// Bytes of records since the log was cleaned up, about.
    filled: AtomicU64,
    /// So many are enough to clean up.
    enough: u64,
    /// One at a time cleans up.
    trimming: Mutex<()>,
    /// A commit is in doubt: nothing more is committed, nor made durable in the store.
    failed: AtomicBool,
}

/// Numbers and positions are drawn under its lock.
#[derive(Default)]
struct Order {
    /// Now and then: a commit's number, its record, and how many bytes there had been.
    marks: VecDeque<(u64, Lsn, u64)>,
    bytes: u64,
    marked: u64,
}

impl Leading {
    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    pub(crate) fn new(log: Log) -> Self {
        let enough = log.stats().capacity / 2;
        let (filled, failed) = (0.into(), false.into());
        Self { log, order: Mutex::default(), filled, enough, trimming: Mutex::new(()), failed }
    }

    /// Draws a number, says so, and makes the commit durable under it. With [`Error::LogFull`] it has none, and nothing was written.
    pub(super) fn append(
        &self,
        bound: &Bound,
        work: &Work,
        failpoints: Failpoints,
        drawn: impl FnOnce(),
    ) -> Result<u64> {
        let len = len(work);
        let (number, mut record) = {
            let mut order = self.order.lock();
            let record = self.log.reserve(len).map_err(refused)?;
            let number = bound.draw();
            order.bytes += len as u64;
            if order.bytes >= order.marked + self.enough / STRIDES {
                order.marked = order.bytes;
                let mark = (number, record.lsn(), order.bytes);
                order.marks.push_back(mark);
            }
            (number, record)
        };
        drawn();
        encode(work, number, &mut record);
        self.filled.fetch_add(len as u64, Relaxed);
        let force = |lsn| if failpoints.skips(Step::LogFirst) { self.log.post() } else { self.log.force_now(lsn) };
        let forced = record.complete().and_then(|lsn| self.tell(work, lsn)).and_then(force);
        if let Err(source) = forced {
            self.failed.store(true, Release);
            return Err(Error::LogInDoubt { source: source.into() });
        }
        Ok(number)
    }

    /// Says how far a commit has come, if it is to be told, before the write quorum has it. It is no further barrier.
    fn tell(&self, work: &Work, lsn: Lsn) -> log::Result<Lsn> {
        if work.told.is_some() {
            work.tell(Stage::Ordered);
            if self.log.force_own(lsn)? {
                work.tell(Stage::Here);
            }
        }
        Ok(lsn)
    }

    /// Lets the log forget what `force` has made durable in the store, which it returns. One barrier there, and two of the log. Unless it is urgent, one does it for all.
    #[cold]
    pub(super) fn trim(
        &self,
        is_urgent: bool,
        failpoints: Failpoints,
        force: impl FnOnce() -> Result<u64>,
    ) -> Result<()> {
        let one = if is_urgent { Some(self.trimming.lock()) } else { self.trimming.try_lock() };
        let Some(_one) = one else { return Ok(()) };
        let durable = force()?;
        let last = {
            let mut order = self.order.lock();
            let mut last = None;
            while let Some(mark) = order.marks.pop_front_if(|mark| mark.0 <= durable) {
                last = Some(mark);
            }
            self.filled.store(order.bytes - last.map_or(0, |mark| mark.2), Relaxed);
            last
        };
        match last {
            // Those who follow have time to make theirs durable, too, before the space is needed.
            Some((_, lsn, _)) => Ok(self.forget_before(lsn, failpoints).and_then(|()| self.log.reclaim_later())?),
            None => Ok(()),
        }
    }

    /// No commit draws a number while this lives.
    #[cfg(test)]
    pub(crate) fn hold_order(&self) -> impl Sized + '_ {
        self.order.lock()
    }

    /// Cleans the log up before this commit, which stays: it says how far a leader must be.
    pub(crate) fn forget_before(&self, lsn: Lsn, failpoints: Failpoints) -> log::Result<()> {
        let keeps = u64::from(!failpoints.skips(Step::KeepLastCommit));
        self.log.truncate_to(Lsn::new(lsn.get() - keeps))
    }

    /// An error once nothing more can be committed.
    pub(crate) fn check(&self) -> Result<()> {
        if self.failed.load(Acquire) {
            self.log.check_leading()?;
            return Err(Error::LogInDoubt { source: Box::new(pmem::Error::Poisoned.into()) });
        }
        Ok(())
    }

    /// Whether the log should be cleaned up.
    pub(crate) fn is_filled(&self) -> bool {
        self.filled.load(Relaxed) >= self.enough
    }
}

fn refused(error: log::Error) -> Error {
    match error {
        log::Error::Full { live, capacity, .. } => Error::LogFull { live, capacity },
        log::Error::TooLong { len, max } => Error::TransactionTooLong { found: len, max },
        other => other.into(),
    }
}
