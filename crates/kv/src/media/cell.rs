//! The cell of the checkpoint, in either format.

use pmem::{Area, Region, TwoSlot};

use crate::media::checkpoint::{Checkpoint, FORMAT, FORMAT_1, format_1};

pub(crate) const PAGE: u64 = 4096;
/// Bytes from one slot to the other in format 1.
const TOGETHER: u64 = TwoSlot::<format_1::Checkpoint>::SIZE / 2;
const _: () = assert!(TwoSlot::<format_1::Checkpoint>::SIZE <= PAGE && TwoSlot::<Checkpoint>::SIZE <= PAGE);

/// The checkpoint on media, twice.
pub(crate) enum Cell {
    /// Both copies on one page.
    One(TwoSlot<format_1::Checkpoint>),
    /// On a page each.
    Two(TwoSlot<Checkpoint>),
}

impl Cell {
    /// A new one, with the checkpoint in both copies.
    pub(crate) fn create(area: Area, checkpoint: &Checkpoint) -> pmem::Result<Self> {
        let mut cell = if checkpoint.format == FORMAT_1 {
            Self::One(TwoSlot::create_apart(area, TOGETHER, &checkpoint.as_format_1())?)
        } else {
            Self::Two(TwoSlot::create_apart(area, PAGE, checkpoint)?)
        };
        cell.update(checkpoint)?;
        Ok(cell)
    }

    /// Opens that of a store of this format.
    pub(crate) fn open(area: Area, format: u32) -> pmem::Result<Self> {
        Ok(if format == FORMAT_1 {
            Self::One(TwoSlot::open_apart(area, TOGETHER)?.0)
        } else {
            Self::Two(TwoSlot::open_apart(area, PAGE)?.0)
        })
    }

    pub(crate) fn get(&self) -> Checkpoint {
        match self {
            Self::One(cell) => cell.get().into(),
            Self::Two(cell) => cell.get(),
        }
    }

    /// Replaces the checkpoint in both copies: one that goes bad must not bring the last one back, unnoticed. Two barriers.
    pub(crate) fn update(&mut self, checkpoint: &Checkpoint) -> pmem::Result<()> {
        match self {
            Self::One(cell) => cell.update_mirrored(&checkpoint.as_format_1()),
            Self::Two(cell) => cell.update_mirrored(checkpoint),
        }
    }
}

/// The format of the store whose table this is, by its newest whole checkpoint; this build's if there is none. Changes nothing.
pub(crate) fn format(table: &Region) -> u32 {
    let Some(first) = table.areas().first() else { return FORMAT };
    let apart = TwoSlot::<Checkpoint>::look_apart(first, PAGE).map(|(checkpoint, _)| checkpoint.format);
    let together = TwoSlot::<format_1::Checkpoint>::look_apart(first, TOGETHER);
    match (apart, together) {
        (Ok(format), _) => format,
        (_, Ok((checkpoint, _))) => checkpoint.format,
        _ => FORMAT,
    }
}

/// True if no checkpoint was ever whole here, and nothing came behind one: the making was cut short. The second copy is written when the first is whole, and the
/// table when both are; so a page that is lost does not look like this.
pub(crate) fn is_unmade(table: &Region) -> bool {
    let Some(first) = table.areas().first() else { return false };
    let zero = |at: u64, len: u64| {
        let len = len.min(first.len().saturating_sub(at));
        first.bytes(at, len as usize).is_ok_and(|bytes| bytes.iter().all(|byte| *byte == 0))
    };
    let whole = TwoSlot::<Checkpoint>::look_apart(first, PAGE).is_ok()
        || TwoSlot::<format_1::Checkpoint>::look_apart(first, TOGETHER).is_ok();
    !whole && zero(TOGETHER, first.len())
}
