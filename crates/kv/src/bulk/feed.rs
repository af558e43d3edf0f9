//! Changes as they are committed, in the order of their timestamps: the writers' logs, merged.
//!
//! A feed is pinned like a reader that began where it has come to. So whatever was committed since is still in its log: a version is freed only when no active
//! reader began before it was superseded.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};

use crate::Timestamp;
use crate::error::{Error, Result};
use crate::isolation::active::Pin;
use crate::media::checkpoint::WRITERS;
use crate::media::header::{HEADER, MOVED, TOMBSTONE};
use crate::media::mark::Mark;
use crate::media::record::Record;
use crate::media::uses::Use;
use crate::raw::Claim;
use crate::store::Store;
use crate::versions::Versions;

/// A committed change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changed {
    /// When its transaction committed: those of one transaction have one timestamp, and follow each other.
    pub at: Timestamp,
    /// The key.
    pub key: Vec<u8>,
    /// Its value, or none if it was deleted.
    pub value: Option<Vec<u8>>,
    /// When it expires, in milliseconds of Unix time.
    pub expires: Option<u64>,
}

/// Changes since the feed was opened: see [`Store::changes`].
pub struct Changes<'s> {
    versions: &'s Versions,
    pin: Pin<'s>,
    /// For each writer, where its log is read up to.
    logs: Vec<Cursor<'s>>,
    /// Where the segments of logs were at the last look.
    segments: BTreeMap<(usize, u32), (u64, u64)>,
    /// What is newer waits for the next look: another log, looked at already, may get something older.
    until: u64,
}

/// How far a log is read.
struct Cursor<'s> {
    at: Mark,
    /// All that was in it at the last look is before this.
    end: Mark,
    /// The change at `at`, if there is one.
    next: Option<Record<'s>>,
}

impl Store {
    /// Follows what is committed from now on. What was not yet asked for is kept, and takes space: a feed that is not read for long is
    /// told so like any reader that is too old, see [`Options::max_snapshot_age`](crate::Options::max_snapshot_age).
    ///
    /// ```
    /// # fn main() -> kv::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = kv::Store::open(dir.path().join("s"))?;
    /// let mut changes = store.changes()?;
    /// store.put(b"apples", b"17")?;
    /// store.delete(b"apples")?;
    /// let first = changes.next()?.expect("a change");
    /// assert_eq!((&first.key[..], first.value.as_deref()), (&b"apples"[..], Some(&b"17"[..])));
    /// assert_eq!(changes.next()?.expect("another").value, None);
    /// assert_eq!(changes.next()?, None); // for now
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::TooMany`].
    pub fn changes(&self) -> Result<Changes<'_>> {
        let versions = &self.core.versions;
        let pin = versions.pin()?;
        // Whatever is in a log by now is committed; it may have a later timestamp than the pin's snapshot, which is no harm: it is before the feed.
        let logs = ends(versions).map(|at| Cursor { at, end: at, next: None }).collect();
        Ok(Changes { versions, pin, logs, segments: BTreeMap::new(), until: 0 })
    }
}

impl Changes<'_> {
    /// The next change, or none if there is none by now.
    ///
    /// # Errors
    /// [`Error::Expired`]; [`Error::Damaged`].
    #[expect(clippy::should_implement_trait, reason = "it does not end, and it can fail")]
    pub fn next(&mut self) -> Result<Option<Changed>> {
        if self.pin.is_expired() {
            return Err(Error::Expired { snapshot: self.pin.snapshot.into() });
        }
        let Some(writer) = self.oldest().or_else(|| self.look()) else { return Ok(None) };
        let log = &mut self.logs[writer];
        let Some(record) = log.next.take() else { return Ok(None) };
        let header = record.header;
        let changed = Changed {
            at: header.ts.into(),
            key: record.key().to_vec(),
            value: (!header.has(TOMBSTONE)).then(|| record.value().to_vec()),
            expires: record.expires(),
        };
        log.pass(record);
        if header.rest == 0 {
            // All of it is copied, and everything older; the feed stands there now.
            self.pin.renew_at(header.ts);
        }
        self.advance(writer);
        Ok(Some(changed))
    }

    /// The log with the oldest change that was not told.
    fn oldest(&self) -> Option<usize> {
        let ready = (0..).zip(&self.logs).filter_map(|(writer, log)| Some((log.next?.header.ts, writer)));
        ready.min().map(|(_, writer)| writer)
    }

    /// Looks for what was committed since. With each log locked in turn, all that commits through it by then is in it.
    #[cold]
    fn look(&mut self) -> Option<usize> {
        let now = self.versions.now();
        if now == self.until {
            return None; // no commit since
        }
        self.pin.renew_at(self.until.max(self.pin.snapshot));
        self.until = now;
        for (log, end) in self.logs.iter_mut().zip(ends(self.versions)) {
            log.end = end;
        }
        // Whatever is before these ends is in a segment that the table has by now.
        self.segments = segments(self.versions);
        (0..WRITERS).for_each(|writer| self.advance(writer));
        self.oldest()
    }

    /// Finds a log's next change.
    fn advance(&mut self, writer: usize) {
        let (versions, log) = (self.versions, &mut self.logs[writer]);
        while log.at < log.end {
            let here = self.segments.get(&(writer, log.at.sequence)).filter(|(_, len)| log.at.at + HEADER <= *len);
            let whole = |(base, len): &(u64, u64)| {
                versions.whole(Claim::Pinned, base + log.at.at, len - log.at.at, writer, log.at.sequence)
            };
            let Some(record) = here.and_then(whole) else {
                // The rest of the segment was skipped.
                let later = (Excluded((writer, log.at.sequence)), Included((writer, log.end.sequence)));
                let next = self.segments.range(later).next();
                log.at = next.map_or(log.end, |((_, sequence), _)| Mark { sequence: *sequence, at: 0 });
                continue;
            };
            if record.header.has(MOVED) {
                log.pass(record);
                continue;
            }
            if record.header.ts <= self.until {
                log.next = Some(record);
            }
            return;
        }
    }
}

impl Cursor<'_> {
    fn pass(&mut self, record: Record<'_>) {
        let behind = self.at.at + record.space();
        self.at.at = if record.header.rest == 0 { behind.next_multiple_of(pmem::LINE) } else { behind };
    }
}

/// Every commit that had a timestamp by now is before them. The log of groups comes last: those who wait for their group hold their own.
fn ends(versions: &Versions) -> impl Iterator<Item = Mark> {
    let end = |writer| versions.writers.get(writer).log.lock().mark();
    if versions.skips(crate::Step::FeedGroupsLast) {
        return (0..WRITERS).map(end).collect::<Vec<_>>().into_iter();
    }
    let mut ends: Vec<Mark> = (0..WRITERS).rev().map(end).collect();
    ends.reverse();
    ends.into_iter()
}

/// Where the segments of all logs are, and how long.
fn segments(versions: &Versions) -> BTreeMap<(usize, u32), (u64, u64)> {
    let bytes = versions.space.segment_bytes;
    let mut logs = BTreeMap::new();
    let mut last = None;
    for number in 0..versions.space.count() {
        match versions.space.used(number) {
            Use::Log { writer, sequence, .. } => {
                logs.insert((writer, sequence), (versions.space.offset(number), bytes));
                last = Some((writer, sequence));
            }
            Use::More => {
                if let Some(log) = last.and_then(|last| logs.get_mut(&last)) {
                    log.1 += bytes;
                }
            }
            _ => last = None,
        }
    }
    logs
}

impl std::fmt::Debug for Changes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Changes(since {})", self.pin.snapshot)
    }
}
