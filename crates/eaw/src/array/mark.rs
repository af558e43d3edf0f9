//! How far a member's log is not needed any more: two slots on two pages, written in turn.

use pmem::{Area, ChecksumKey};

use super::layout::{LINE, Mark, PAGE};
use crate::error::Result;

/// Bytes of both slots.
pub(super) const MARK_BYTES: u64 = 2 * PAGE;

/// The mark of a member.
pub(super) struct MarkCell {
    area: Area,
    key: ChecksumKey,
    /// The slot to be written next: the lower one, or one that is not whole.
    turn: u64,
    retired: u64,
}

impl MarkCell {
    /// Makes a mark in both slots; persistent with the caller's drain.
    pub(super) fn create(area: Area, key: ChecksumKey) -> Result<()> {
        let mut cell = Self { area, key, turn: 0, retired: 0 };
        cell.stage(0)?;
        cell.stage(0)
    }

    /// Reads it; nothing if neither slot is whole.
    pub(super) fn open(area: Area, key: ChecksumKey) -> Result<Option<Self>> {
        let read = |slot: u64| {
            area.probe("mark of an array", slot * PAGE, LINE).ok()?;
            let mark = pmem::from_bytes::<Mark>(area.bytes(slot * PAGE, LINE as usize).ok()?)?;
            (mark.slot == slot && mark.checksum == key.checksum(&pmem::bytes_of(&mark)[8..])).then_some(mark.retired)
        };
        let slots = [read(0), read(1)];
        let Some(retired) = slots.into_iter().flatten().max() else { return Ok(None) };
        let turn = u64::from(slots[1].is_none_or(|slot| slots[0] > Some(slot)));
        Ok(Some(Self { area, key, turn, retired }))
    }

    pub(super) fn retired(&self) -> u64 {
        self.retired
    }

    /// Writes the next slot and flushes it. The one before it is persistent.
    pub(super) fn stage(&mut self, retired: u64) -> Result<()> {
        let mut mark = Mark { checksum: 0, retired, slot: self.turn, reserved: [0; 5] };
        mark.checksum = self.key.checksum(&pmem::bytes_of(&mark)[8..]);
        self.area.put(self.turn * PAGE, &mark)?;
        self.area.flush(self.turn * PAGE, LINE)?;
        (self.turn, self.retired) = (1 - self.turn, retired);
        Ok(())
    }

    /// Flushes what was read.
    pub(super) fn flush(&self) -> Result<()> {
        for slot in 0..2 {
            self.area.flush(slot * PAGE, LINE)?;
        }
        Ok(())
    }
}
