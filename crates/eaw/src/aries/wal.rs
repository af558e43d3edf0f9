//! What stands in the log, one record of it for each change.
//!
//! ```text
//! kind | transaction, 8 bytes | the rest by kind, little-endian
//! ```

use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};

use super::failpoints::Steps;
use crate::error::{Error, Result};

/// A record of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry<'a> {
    /// Bytes of a page: as they were, as they are. Each may be longer than the other; both fit the slot.
    Change { page: u64, at: u32, before: &'a [u8], after: &'a [u8] },
    /// A change is undone: never undone itself. What is left to be undone was logged before `next`.
    Compensation { page: u64, at: u32, after: &'a [u8], next: u64 },
    /// A page is empty, and has slots of this size. Redone only.
    Format { page: u64, slot: u32 },
    /// A nested top action is over: what is left to be undone was logged before `next`.
    Nested { next: u64 },
    /// The transaction is committed.
    Commit,
    /// The transaction is undone.
    End,
    /// The log is needed from `from` on. Pages that were changed and not written, each with the first change that it lacks, as it was at some moment behind `begin`.
    Checkpoint { from: u64, begin: u64, dirty: Vec<(u64, u64)> },
}

const CHANGE: u8 = 1;
const COMPENSATION: u8 = 2;
const FORMAT: u8 = 3;
const NESTED: u8 = 4;
const COMMIT: u8 = 5;
const END: u8 = 6;
const CHECKPOINT: u8 = 7;

impl<'a> Entry<'a> {
    pub(super) fn encode(&self, transaction: u64, into: &mut Vec<u8>) {
        into.clear();
        let mut put = |kind: u8, words: &[u64], runs: &[&[u8]]| {
            into.push(kind);
            into.extend_from_slice(&transaction.to_le_bytes());
            words.iter().for_each(|word| into.extend_from_slice(&word.to_le_bytes()));
            runs.iter().for_each(|run| into.extend_from_slice(run));
        };
        match *self {
            Self::Change { page, at, before, after } => {
                put(CHANGE, &[page, u64::from(at), before.len() as u64], &[before, after]);
            }
            Self::Compensation { page, at, after, next } => put(COMPENSATION, &[page, u64::from(at), next], &[after]),
            Self::Format { page, slot } => put(FORMAT, &[page, u64::from(slot)], &[]),
            Self::Nested { next } => put(NESTED, &[next], &[]),
            Self::Commit => put(COMMIT, &[], &[]),
            Self::End => put(END, &[], &[]),
            Self::Checkpoint { from, begin, ref dirty } => {
                put(CHECKPOINT, &[from, begin], &[]);
                for (page, lsn) in dirty {
                    into.extend_from_slice(&page.to_le_bytes());
                    into.extend_from_slice(&lsn.to_le_bytes());
                }
            }
        }
    }

    /// Whose it is, and what; `None` of bytes that are no record.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<(u64, Self)> {
        let (kind, rest) = bytes.split_first()?;
        let mut rest = rest;
        let mut word = || {
            let (word, behind) = rest.split_first_chunk::<8>()?;
            rest = behind;
            Some(u64::from_le_bytes(*word))
        };
        let transaction = word()?;
        let entry = match *kind {
            CHANGE => {
                let (page, at, len) = (word()?, word()?, word()?);
                let (before, after) = rest.split_at_checked(usize::try_from(len).ok()?)?;
                Self::Change { page, at: u32::try_from(at).ok()?, before, after }
            }
            COMPENSATION => {
                let (page, at, next) = (word()?, word()?, word()?);
                Self::Compensation { page, at: u32::try_from(at).ok()?, after: rest, next }
            }
            FORMAT => Self::Format { page: word()?, slot: u32::try_from(word()?).ok()? },
            NESTED => Self::Nested { next: word()? },
            COMMIT => Self::Commit,
            END => Self::End,
            CHECKPOINT => {
                let (from, begin, mut dirty) = (word()?, word()?, Vec::new());
                while let Some(page) = word() {
                    dirty.push((page, word()?));
                }
                Self::Checkpoint { from, begin, dirty }
            }
            _ => return None,
        };
        Some((transaction, entry))
    }
}

/// What of a record's old and new bytes differs: where it begins, and both.
pub(super) fn differing<'a>(before: &'a [u8], after: &'a [u8]) -> (usize, &'a [u8], &'a [u8]) {
    let start = before.iter().zip(after).take_while(|(one, other)| one == other).count();
    let (before, after) = (&before[start..], &after[start..]);
    if before.len() != after.len() {
        return (start, before, after);
    }
    let same = before.iter().rev().zip(after.iter().rev()).take_while(|(one, other)| one == other).count();
    let len = before.len() - same;
    (start, &before[..len], &after[..len])
}

/// The log of a store.
pub(super) struct Wal {
    pub(super) log: log::Log,
    /// So many records wait to be forced at most.
    pub(super) loose: u64,
    pub(super) steps: Steps,
    /// Whether something was logged is not known, or something could not be undone: only a restart can.
    pub(super) stopped: AtomicBool,
}

/// The log keeps count of a thousand records that wait to be forced.
pub(super) const LOOSE_MAX: u64 = 512;

impl Wal {
    pub(super) fn check_running(&self) -> Result<()> {
        if self.stopped.load(Acquire) { Err(Error::Stopped) } else { Ok(()) }
    }

    /// The store is not to be used before it is opened again.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Release);
    }

    /// Logs; it is durable when something behind it is forced. Returns its number. Nothing is logged if there is no room; after any other error nothing more will be.
    pub(super) fn add(&self, transaction: u64, entry: &Entry<'_>, scratch: &mut Vec<u8>) -> Result<u64> {
        entry.encode(transaction, scratch);
        let mut reservation = self.log.reserve(scratch.len())?;
        reservation.copy(0, scratch);
        let lsn = reservation.complete().inspect_err(|_| self.stop())?.get();
        if lsn - self.log.forced().get().min(lsn) > self.loose {
            self.force(lsn)?;
        }
        Ok(lsn)
    }

    /// Durable through there.
    pub(super) fn force(&self, lsn: u64) -> Result<()> {
        if lsn > self.log.forced().get() {
            self.log.force_now(log::Lsn::new(lsn)).inspect_err(|_| self.stop())?;
        }
        Ok(())
    }

    /// What is logged from now on has at least this number.
    pub(super) fn next_at_least(&self) -> u64 {
        self.log.forced().get() + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        let entries = [
            Entry::Change { page: 7, at: 64, before: b"before", after: b"after it" },
            Entry::Change { page: 7, at: 64, before: b"", after: b"" },
            Entry::Compensation { page: 1, at: 5, after: b"before", next: 9 },
            Entry::Format { page: 3, slot: 128 },
            Entry::Nested { next: 12 },
            Entry::Commit,
            Entry::End,
            Entry::Checkpoint { from: 4, begin: 6, dirty: vec![(1, 2), (3, 4)] },
        ];
        for entry in entries {
            let mut bytes = Vec::new();
            entry.encode(77, &mut bytes);
            assert_eq!(Entry::decode(&bytes), Some((77, entry)));
            for cut in 0..bytes.len() {
                let _ = Entry::decode(&bytes[..cut]); // no panic
            }
        }
        assert_eq!(Entry::decode(&[99, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    }

    #[test]
    fn only_what_differs_is_logged() {
        assert_eq!(differing(b"one two three", b"one six three"), (4, &b"two"[..], &b"six"[..]));
        assert_eq!(differing(b"same", b"same"), (4, &b""[..], &b""[..]));
        assert_eq!(differing(b"short", b"shorter"), (5, &b""[..], &b"er"[..]));
        assert_eq!(differing(b"", b"new"), (0, &b""[..], &b"new"[..]));
    }
}
