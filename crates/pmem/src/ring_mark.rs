//! Where a ring keeps its mark, and with that, where its records are.
//!
//! ```text
//! | mark: slot 0 | records, in whole lines | mark: slot 1 |
//! ```
//!
//! So a ring that is longer than a page has the slots on two pages, and the loss of one leaves a mark. Rings of earlier builds have both in front of the records, and keep
//! them there: the type that the mark tells says which it is.

use crate::Persist;
use crate::area::Area;
use crate::cell::SlotState;
use crate::cpu::LINE;
use crate::error::Result;
use crate::flush::Moment;
use crate::two_slot::{Split, TwoSlot};

/// Bytes of both slots.
pub(crate) const MARK_BYTES: u64 = TwoSlot::<Mark>::SIZE;

/// What the mark cell holds.
#[repr(C)]
#[derive(Clone, Copy, Debug, Persist)]
pub(crate) struct Mark {
    pub(crate) retired: u64,
    /// Records from there on have at least this epoch. Without it a whole record behind a torn one would come back once the torn one's
    /// space was written again *and retired*: nothing before it would then tell that it does not belong there.
    pub(crate) epoch: u64,
}

/// A mark with a slot at each end of the ring: another type, so that it is not taken for one with both in front.
#[repr(C)]
#[derive(Clone, Copy, Debug, Persist)]
pub(crate) struct MarkApart {
    mark: Mark,
}

const _: () = assert!(TwoSlot::<MarkApart>::HALF == LINE && MARK_BYTES == 2 * LINE);

#[derive(Debug)]
pub(crate) enum MarkCell {
    /// Both slots in front of the records.
    Together(TwoSlot<Mark>),
    Apart(Split<MarkApart>),
}

/// The parts of a ring: a slot, the records, a slot.
fn ends(area: Area) -> Result<(Area, Area, Area)> {
    let lines = area.len() / LINE;
    let (first, rest) = area.split_at(LINE)?;
    let (records, second) = rest.split_at((lines - 2) * LINE)?;
    Ok((first, records, second))
}

/// As [`ends`], of an earlier build: both slots, the records.
fn front(area: Area) -> Result<(Area, Area)> {
    let (mark, records) = area.split_at(MARK_BYTES)?;
    let whole_lines = records.len() / LINE * LINE;
    Ok((mark, records.split_at(whole_lines)?.0))
}

impl MarkCell {
    /// Makes a ring's mark, and clears the space of its records, which is returned. One barrier.
    pub(crate) fn create(area: Area) -> Result<(Self, Area)> {
        // Records of a ring that was here before, on a page that goes back to them, are of an earlier epoch.
        let epoch = area.pool().generation();
        let (first, mut records, second) = ends(area)?;
        records.clear()?;
        let mark = Split::create(first, second, &MarkApart { mark: Mark { retired: 0, epoch } })?;
        Ok((Self::Apart(mark), records))
    }

    /// As [`create`](Self::create), as earlier builds did.
    pub(crate) fn create_together(area: Area) -> Result<(Self, Area)> {
        let (mark, mut records) = front(area)?;
        records.clear()?;
        Ok((Self::Together(TwoSlot::create(mark, &Mark { retired: 0, epoch: 0 })?), records))
    }

    /// Reads a ring's mark. It may not be persistent before the caller's drain behind [`persist_read`](Self::persist_read).
    pub(crate) fn open(area: Area) -> Result<(Self, Area, SlotState)> {
        let (first, records, second) = ends(area)?;
        match Split::<MarkApart>::look(&first, &second) {
            Ok((cell, mark, other_slot)) => {
                Ok((Self::Apart(Split::opened(first, second, (cell, mark))), records, other_slot))
            }
            // No slot at either end is whole: one of an earlier build, or lost.
            Err(_) => {
                let (mark, records) = front(first.join(records).join(second))?;
                let (mark, other_slot) = TwoSlot::open_unpersisted(mark)?;
                Ok((Self::Together(mark), records, other_slot))
            }
        }
    }

    pub(crate) fn get(&self) -> Mark {
        match self {
            Self::Together(cell) => cell.get(),
            Self::Apart(cell) => cell.get().mark,
        }
    }

    /// As [`TwoSlot::stage`].
    pub(crate) fn stage(&mut self, mark: &Mark) -> Result<Moment> {
        match self {
            Self::Together(cell) => cell.stage(mark),
            Self::Apart(cell) => cell.stage(&MarkApart { mark: *mark }),
        }
    }

    pub(crate) fn persist_read(&mut self) -> Result<()> {
        match self {
            Self::Together(cell) => cell.persist_read(),
            Self::Apart(cell) => cell.persist_read(),
        }
    }
}
