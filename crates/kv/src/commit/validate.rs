//! What was read must not have changed.

use std::sync::atomic::Ordering::SeqCst;

use crate::Step;
use crate::core::Core;
use crate::error::{ConflictWith, Error, Key, Result};
use crate::isolation::active::Pin;
use crate::media::record::Record;
use crate::raw::Claim;
use crate::scan::Scanner;
use crate::time::Now;
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
}

impl Core {
    #[inline]
    pub(super) fn validate(&self, pin: &Pin<'_>, work: &Work, own: usize, ts: u64, terms: Terms<'_>) -> Result<()> {
        if !terms.validate || self.versions.skips(Step::Validate) {
            return Ok(());
        }
        for read in &work.reads {
            if !self.is_unchanged(read, own) {
                self.validate_read(pin, work, read, own, ts)?;
            }
        }
        self.validate_scans(pin, work, Some(own), ts, terms.now)
    }

    /// The quick look: the index has what it had, and no writer is about to change the leaf.
    #[inline]
    fn is_unchanged(&self, read: &Read, own: usize) -> bool {
        let leaf = self.versions.index.leaf(read.spot);
        // A version that was old when it was read is not what the index leads to.
        let newest = read.ts != 0 && read.record == read.word.offset();
        newest && leaf.pending.load(SeqCst) & !(1 << own) == 0 && leaf.holds(read.spot.layout, read.slot, read.word)
    }

    #[cold]
    fn validate_read(&self, pin: &Pin<'_>, work: &Work, read: &Read, own: usize, ts: u64) -> Result<()> {
        let key = if read.record == 0 {
            &work.missed[read.missed.start as usize..read.missed.end as usize]
        } else {
            Record::at(Claim::Pinned, pin, self.versions.pool(), read.record)?.key()
        };
        let seen = self.versions.read(pin, key, read.hash, ts, Some(own), None)?;
        let found = seen.record.map_or(0, |record| record.header.ts);
        // A tombstone may have been dropped, or not yet been there to be seen: to be absent is all that counts, if no transaction put something in between.
        let same = found == read.ts || (read.ts == 0 && found <= pin.snapshot);
        if same {
            Ok(())
        } else {
            Err(Error::Conflict { key: Key(key.to_vec()), with: ConflictWith::Committed(found.into()) })
        }
    }

    /// Whether ranges, read again as of `ts`, are what they were.
    pub(crate) fn validate_scans(
        &self,
        pin: &Pin<'_>,
        work: &Work,
        own: Option<usize>,
        ts: u64,
        now: &Now,
    ) -> Result<()> {
        if self.versions.skips(Step::ValidateScans) {
            return Ok(());
        }
        for scan in &work.scans {
            let mut expected = work.scanned[scan.found.start as usize..scan.found.end as usize].iter();
            let mut scanner =
                Scanner::new(&self.versions, &self.maintenance.background, pin, ts, now, own, scan.range.clone());
            loop {
                let found = scanner.next()?;
                let expected = expected.next();
                if found.map(|record| record.header.ts) != expected.copied() {
                    let key = found.map_or_else(Vec::new, |record| record.key().to_vec());
                    let with = found.map_or(ts, |record| record.header.ts);
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
