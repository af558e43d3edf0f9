//! Of commits that returned before their barrier: those up to the first that is missing.

use std::collections::{BTreeMap, BTreeSet};

use pmem::{LINE, WORD};

use crate::Step;
use crate::error::{Error, Result};
use crate::isolation::active::Pin;
use crate::media::checkpoint::Checkpoint;
use crate::media::checksum;
use crate::media::header::FIRST;
use crate::media::mark::Mark;
use crate::open::reading::{Kept, Piece, Reading};
use crate::raw::{self, Claim};
use crate::versions::Versions;

/// Reads all logs for their numbers.
pub(super) fn find(
    versions: &Versions,
    salvages: bool,
    checkpoint: &Checkpoint,
    logs: &[BTreeMap<u32, Piece>],
    pin: &Pin<'_>,
) -> Result<Kept> {
    let mut kept = Kept { last: checkpoint.commit_number, ..Kept::default() };
    let mut there = BTreeSet::new();
    for (writer, pieces) in logs.iter().enumerate() {
        let at = Mark::from_word(checkpoint.marks[writer]);
        let mut reading = Reading { versions, salvages, pin, writer, pieces, at, link: checkpoint.links[writer] };
        while let Some(whole) = reading.next(&mut kept)? {
            if let Some((number, durable)) = whole.records[0].number() {
                there.insert(number);
                kept.durable = kept.durable.max(durable);
            }
            reading.link = checksum::link(whole.records[0].header.checksum);
            reading.at = whole.end;
        }
    }
    while there.contains(&(kept.last + 1)) {
        kept.last += 1;
    }
    if versions.skips(Step::Prefix) {
        kept.last = there.last().copied().unwrap_or(0).max(kept.last);
        kept.all = true;
    }
    if kept.last < kept.durable && !salvages {
        return Err(Error::LostCommits { missing: kept.last + 1, durable: kept.durable });
    }
    Ok(kept)
}

impl Reading<'_> {
    /// Erases the checksums of what is not kept: once its number is drawn again, it must not count.
    pub(super) fn erase(&self, kept: &Kept) -> Result<()> {
        if self.versions.pool().is_read_only() || self.versions.skips(Step::EraseDropped) {
            return Ok(());
        }
        for (sequence, piece) in self.pieces.range(self.at.sequence..) {
            let from = if *sequence == self.at.sequence { self.at.at.next_multiple_of(LINE) } else { 0 };
            for at in (from..piece.limit).step_by(LINE as usize) {
                let mark = Mark { sequence: *sequence, at };
                let Some(record) = self.checksummed(mark)?.filter(|record| record.header.has(FIRST)) else { continue };
                if kept.drops(&record) {
                    raw::copy(Claim::Opening, self.versions.pool(), record.offset, &[0; 8])?;
                    self.versions.pool().flush(record.offset, WORD)?;
                }
            }
        }
        Ok(())
    }
}
