//! Versions that scans read one behind the other are written one behind the other.
//!
//! Each version is where its transaction was written. A scan that finds the short versions of a leaf far from each other notes the leaf, and upkeep moves all of
//! them together, in order of keys, as compaction moves versions. What is not scanned is never moved for it; a leaf that is scanned once is moved in one case
//! of 16.

use std::sync::atomic::Ordering::{Relaxed, Release};

use crate::Step;
use crate::checkpoint::checkpointer::Checkpointer;
use crate::core::Core;
use crate::error::Result;
use crate::index::{Listed, SHORT};
use crate::isolation::active::Pin;
use crate::maintenance::compact::TOGETHER;
use crate::media::record::Record;
use crate::raw::Claim;
use crate::space::need::Need;

/// So many leaves are worth a turn of the background thread.
const WORTHWHILE: u64 = 64;

impl Core {
    /// A scan found the versions of this leaf far from each other.
    #[cold]
    pub(crate) fn note_scattered(&self, leaf: u32) {
        if self.index.leaves.mark_scattered(leaf).is_some_and(|all| all % WORTHWHILE == 0) {
            self.background.wake();
        }
    }

    /// For the background thread, between checkpoints.
    pub(crate) fn look_after_scans(&self) -> Result<()> {
        if self.index.leaves.scattered() < WORTHWHILE {
            return Ok(());
        }
        let mut checkpointer = self.checkpointer.lock();
        self.pool.check_usable()?;
        let pin = self.active.pin_for_upkeep()?;
        self.gather_neighbours(&mut checkpointer, &pin, self.options.checkpoint_bytes)?;
        // What they have left is freed even if nothing more is committed.
        self.unfinished.store(true, Release);
        Ok(())
    }

    /// Moves the versions of leaves that were noted, up to so many bytes of them.
    pub(super) fn gather_neighbours(&self, checkpointer: &mut Checkpointer, pin: &Pin<'_>, most: u64) -> Result<()> {
        // What moves leaves a copy behind until all that read by then are gone: not while readers keep as much already, nor in a full store.
        let held = self.space.held.load(Relaxed);
        if self.index.leaves.scattered() == 0 || self.space.is_short() || held > self.space.usage().live / 4 {
            return Ok(());
        }
        let (mut left, mut listed, mut some) = (most, Listed::new(), Vec::new());
        let mut from = Some(Vec::new());
        while let Some(key) = from.take() {
            if self.index.leaves.scattered() == 0 || left == 0 {
                break;
            }
            let chunk = self.index.chunk(pin, &key);
            for stretch in chunk.stretches() {
                // Of a leaf that stands for other keys by now the next scan sees how it is.
                let noted = left > 0 && self.index.leaves.take_scattered(stretch.spot.leaf);
                if !noted || !self.index.in_order(pin, stretch.spot, &mut listed).unwrap_or(false) {
                    continue;
                }
                for (word, _) in listed.slots.iter().filter(|(word, _)| word.space() <= SHORT) {
                    let Ok(record) = Record::at(Claim::Pinned, pin, &self.pool, word.offset()) else { continue };
                    // What is corrupt stays as it is: elsewhere it would have a checksum that fits.
                    if self.failpoints.skips(Step::VerifyMoved) || self.verify(record).is_ok() {
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
