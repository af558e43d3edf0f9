//! What was read must not have changed.

use std::sync::atomic::Ordering::SeqCst;

use crate::Step;
use crate::error::{ConflictWith, Error, Key, Result};
use crate::isolation::active::Pin;
use crate::media::record::Record;
use crate::raw::Claim;
use crate::scan::Scanner;
use crate::threads::signal::Signal;
use crate::time::Now;
use crate::versions::Versions;
use crate::writers::work::{Read, Work};

/// How a transaction commits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms<'n> {
    /// What was read must not have changed.
    pub(crate) validate: bool,
    /// Its time, for what expires.
    pub(crate) now: &'n Now,
    /// It is committed already, by the leader.
    pub(crate) follows: bool,
    /// See [`Mode`](crate::txn::transaction::Mode).
    pub(crate) upkeep: bool,
}

/// What was read is read again as of a timestamp.
pub(crate) struct Validation<'v> {
    versions: &'v Versions,
    /// See [`Scanner`].
    background: &'v Signal,
    pin: &'v Pin<'v>,
    ts: u64,
    /// The time of the transaction.
    now: &'v Now,
    /// The writer that commits for it, if one does by now.
    own: Option<usize>,
}

impl<'v> Validation<'v> {
    #[inline]
    pub(crate) fn new(
        versions: &'v Versions,
        background: &'v Signal,
        pin: &'v Pin<'v>,
        ts: u64,
        now: &'v Now,
        own: Option<usize>,
    ) -> Self {
        Self { versions, background, pin, ts, now, own }
    }

    #[inline]
    pub(super) fn check(&self, work: &Work) -> Result<()> {
        if self.versions.skips(Step::Validate) {
            return Ok(());
        }
        for read in &work.reads {
            if !self.is_unchanged(read) {
                self.check_read(work, read)?;
            }
        }
        self.check_scans(work)
    }

    /// The quick look: the index has what it had, and no writer is about to change the leaf.
    #[inline]
    fn is_unchanged(&self, read: &Read) -> bool {
        let leaf = self.versions.index.leaf(read.spot);
        // A version that was old when it was read is not what the index leads to.
        let newest = read.ts != 0 && read.record == read.word.offset();
        let own = self.own.map_or(0, |own| 1 << own);
        newest && leaf.pending.load(SeqCst) & !own == 0 && leaf.holds(read.spot.layout, read.slot, read.word)
    }

    #[cold]
    fn check_read(&self, work: &Work, read: &Read) -> Result<()> {
        let key = if read.record == 0 {
            &work.missed[read.missed.start as usize..read.missed.end as usize]
        } else {
            Record::at(Claim::Pinned, self.pin, self.versions.pool(), read.record)?.key()
        };
        let seen = self.versions.read(self.pin, key, read.hash, self.ts, self.own, None)?;
        let found = seen.record.map_or(0, |record| record.header.ts);
        // A tombstone may have been dropped, or not yet been there to be seen: to be absent is all that counts, if no transaction put something in between.
        let same = found == read.ts || (read.ts == 0 && found <= self.pin.snapshot);
        if same {
            Ok(())
        } else {
            Err(Error::Conflict { key: Key(key.to_vec()), with: ConflictWith::Committed(found.into()) })
        }
    }

    /// Whether ranges are what they were.
    pub(crate) fn check_scans(&self, work: &Work) -> Result<()> {
        if self.versions.skips(Step::ValidateScans) {
            return Ok(());
        }
        for scan in &work.scans {
            let mut expected = work.scanned[scan.found.start as usize..scan.found.end as usize].iter();
            let (own, range) = (self.own, scan.range.clone());
            let mut scanner = Scanner::new(self.versions, self.background, self.pin, self.ts, self.now, own, range);
            loop {
                let found = scanner.next()?;
                let expected = expected.next();
                if found.map(|record| record.header.ts) != expected.copied() {
                    let key = found.map_or_else(Vec::new, |record| record.key().to_vec());
                    let with = found.map_or(self.ts, |record| record.header.ts);
                    return Err(Error::Conflict { key: Key(key), with: ConflictWith::Committed(with.into()) });
                }
                if expected.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }
}
