//! Room in the log, and checkpoints, which make it.
//!
//! Invariant: what is free is enough to undo all that is open, to end it, and for a checkpoint; so no thread is left with a transaction that can neither go on
//! nor back, and a restart ends. A change is logged when there is room for it and for undoing it.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::failpoints::Step;
use super::wal::Entry;
use super::{Core, Master};
use crate::error::{Error, Result};
use crate::records::locks::Owner;

/// A transaction that waits for others looks again so often.
const PAUSE: Duration = Duration::from_millis(5);

/// What a record takes besides bytes of pages: its header, the log's, and alignment.
const HEADERS: u64 = 128;

/// What it takes to end a transaction.
pub(super) const ENDING: u64 = HEADERS;
/// What it takes to say that a page begins anew.
pub(super) const FORMATTING: u64 = HEADERS;

/// What it takes to undo a change of so many bytes: a segment's end, where a record does not fit, is a quarter of it at most.
pub(super) fn undoing(bytes: usize) -> u64 {
    (bytes as u64 + HEADERS) * 4 / 3
}

/// What it takes to log a change from so many bytes to so many, and to undo it.
pub(super) fn changing(before: usize, after: usize) -> u64 {
    // Twice: in the worst case as much is left free before it.
    2 * ((before + after) as u64 + HEADERS) + undoing(before)
}

/// Room that is kept free for its owner. Dropped, it is given back.
pub(super) struct Room<'a> {
    core: &'a Core,
    bytes: u64,
}

impl Room<'_> {
    /// So much of it is needed until it is [returned](Core::owe_less).
    pub(super) fn keep(&mut self, bytes: u64) {
        self.bytes -= bytes;
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.core.owe_less(self.bytes);
    }
}

impl Core {
    pub(super) fn owe_less(&self, bytes: u64) {
        self.owed.fetch_sub(bytes, Relaxed);
    }

    /// Before so many bytes are logged, or owed.
    pub(super) fn make_room(&self, owner: Owner, bytes: u64) -> Result<Room<'_>> {
        self.owed.fetch_add(bytes, Relaxed);
        let room = Room { core: self, bytes };
        let tries_max = self.timeout.div_duration_f64(PAUSE) as u32;
        let mut tries = 0;
        loop {
            let log::Stats { live_bytes, capacity, segment_bytes, .. } = self.wal.log.stats();
            // Of the segments in which the log begins and ends, and for a checkpoint.
            let taken = live_bytes + self.owed.load(Relaxed) + 2 * segment_bytes;
            // The oldest, which keeps the log for all others, has a quarter of it for itself.
            if taken <= capacity / 4 * 3 || taken <= capacity && tries > 0 && self.is_oldest(owner) {
                let is_long =
                    !self.cleans && live_bytes > (capacity / 2).max(self.tidied.load(Relaxed) + capacity / 16);
                if is_long && tries == 0 {
                    self.tidy(0)?;
                }
                return Ok(room);
            }
            if tries > 0 {
                if tries > tries_max || pmem::sync::is_scheduled() || self.is_oldest(owner) {
                    return Err(Error::LogFull { bytes: capacity, max: capacity });
                }
                std::thread::sleep(PAUSE);
            }
            self.tidy(0)?;
            tries += 1;
        }
    }

    fn is_oldest(&self, owner: Owner) -> bool {
        let active = self.active.lock();
        active.iter().min_by_key(|(_, first)| **first).is_none_or(|(oldest, _)| *oldest == owner)
    }

    /// Writes changed pages until so few are left, the oldest changes first, and makes a checkpoint.
    pub(super) fn tidy(&self, left: usize) -> Result<()> {
        self.check_usable()?;
        self.buffer.clean(&self.wal, left)?;
        self.checkpoint()?;
        self.tidied.store(self.wal.log.stats().live_bytes, Relaxed);
        Ok(())
    }

    /// A checkpoint: what is listed was so at some moment, while others went on.
    ///
    /// None if the log would not be shorter for it: then a restart would read as much, and checkpoints beside a long transaction would fill the log. What is freed is as long as
    /// the record of one that lists no pages, which is for a log that is half full.
    fn checkpoint(&self) -> Result<()> {
        let begin = self.wal.next_at_least();
        // What it counts is in the log already, if not on the medium; it may count less than there is.
        let used = self.shared.space.lock().used();
        let kept = self.buffer.with_dirty(&self.wal, |dirty| {
            let active = self.active.lock().values().copied().min();
            let has = |step| self.wal.steps.has(step);
            let since = dirty.iter().map(|(_, since)| *since).filter(|_| has(Step::KeepDirty));
            let from = since.chain(active.filter(|_| has(Step::KeepActive))).fold(begin, u64::min);
            let mut newest = self.checkpointed.lock();
            if from < *newest + 2 {
                return Ok(None);
            }
            let log::Stats { live_bytes, capacity, segment_bytes, .. } = self.wal.log.stats();
            let is_long = live_bytes > capacity / 2 || dirty.len() as u64 * 16 > segment_bytes / 4;
            let entry = if is_long {
                Entry::Checkpoint { from, begin: from, dirty: Vec::new() }
            } else {
                Entry::Checkpoint { from, begin, dirty }
            };
            let lsn = self.wal.add(0, &entry, &mut Vec::new())?;
            // With it what ended the transactions that are not active any more.
            if has(Step::CheckpointFirst) {
                self.wal.force(lsn)?;
            }
            let mut master = self.master.lock();
            let said = master.get();
            master.update_mirrored(&Master { checkpoint: lsn, used: used.max(said.used), ..said })?;
            *newest = from;
            Ok(Some(from.min(lsn)))
        })?;
        let Some(kept) = kept else { return Ok(()) };
        self.wal.log.truncate_to(log::Lsn::new(kept - 1))?;
        Ok(self.wal.log.reclaim()?)
    }
}
