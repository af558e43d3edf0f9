//! Versions that scans read one behind the other are written one behind the other.
//!
//! Each version is where its transaction was written. A scan that finds the short versions of a leaf far from each other notes the leaf, and upkeep moves all of
//! them together, in order of keys, as compaction moves versions. What is not scanned is never moved for it; a leaf that is scanned once is moved in one case
//! of 16.

use crate::Step;
use crate::error::Result;
use crate::index::{Listed, SHORT};
use crate::isolation::active::Pin;
use crate::maintenance::Checkpointing;
use crate::maintenance::checkpointer::Checkpointer;
use crate::maintenance::compact::TOGETHER;
use crate::media::record::Record;
use crate::raw::Claim;
use crate::scan::WORTHWHILE;
use crate::space::need::Need;

impl Checkpointing<'_> {
    /// For the background thread, between checkpoints.
    pub(crate) fn look_after_scans(&self) -> Result<()> {
        if self.versions.index.leaves.scattered() < WORTHWHILE {
            return Ok(());
        }
        let mut checkpointer = self.maintenance.checkpointer();
        self.versions.pool().check_usable()?;
        let pin = self.versions.concurrency.active.pin_for_upkeep()?;
        self.gather_neighbours(&mut checkpointer, &pin, self.maintenance.due.most())?;
        // What they have left is freed even if nothing more is committed.
        self.maintenance.set_unfinished(true);
        Ok(())
    }

    /// Moves the versions of leaves that were noted, up to so many bytes of them.
    pub(super) fn gather_neighbours(&self, checkpointer: &mut Checkpointer, pin: &Pin<'_>, most: u64) -> Result<()> {
        // What moves leaves a copy behind until all that read by then are gone: not while readers keep as much already, nor in a full store.
        let held = self.versions.space.held();
        if self.versions.index.leaves.scattered() == 0
            || self.versions.space.is_short()
            || held > self.versions.space.usage().live / 4
        {
            return Ok(());
        }
        let (mut left, mut listed, mut some) = (most, Listed::new(), Vec::new());
        let mut from = Some(Vec::new());
        while let Some(key) = from.take() {
            if self.versions.index.leaves.scattered() == 0 || left == 0 {
                break;
            }
            let chunk = self.versions.index.chunk(pin, &key);
            for stretch in chunk.stretches() {
                // Of a leaf that stands for other keys by now the next scan sees how it is.
                let noted = left > 0 && self.versions.index.leaves.take_scattered(stretch.spot.leaf);
                if !noted || !self.versions.index.in_order(pin, stretch.spot, &mut listed).unwrap_or(false) {
                    continue;
                }
                for (word, _) in listed.slots.iter().filter(|(word, _)| word.space() <= SHORT) {
                    let Ok(record) = Record::at(Claim::Pinned, pin, self.versions.pool(), word.offset()) else {
                        continue;
                    };
                    // What is corrupt stays as it is: elsewhere it would have a checksum that fits.
                    if self.versions.skips(Step::VerifyMoved) || self.versions.verify(record).is_ok() {
                        left = left.saturating_sub(word.space());
                        some.push(record);
                    }
                }
                while some.len() >= TOGETHER {
                    self.move_together(checkpointer, pin, &some[..TOGETHER], &[], Need::Move)?;
                    some.drain(..TOGETHER);
                }
            }
            from = chunk.end.as_deref().map(<[u8]>::to_vec);
        }
        if some.is_empty() { Ok(()) } else { self.move_together(checkpointer, pin, &some, &[], Need::Move) }
    }
}
