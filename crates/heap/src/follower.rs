//! What grows with main, and the share of main that a partial backup has.

use pmem::{Persist, Region, TwoSlot};

use crate::options::MILLION;

/// The regions that grow with main.
pub(crate) enum Follower {
    Nothing,
    /// Backup, zone table, and second marks.
    Backup(Region, Region, Option<Region>),
    /// Copies, and the cell that tells of them.
    Copies(Region, TwoSlot<CopiesState>),
}

/// What a partial backup says about itself, in a cell of its own.
#[repr(C)]
#[derive(Clone, Copy, Debug, Persist)]
pub(crate) struct CopiesState {
    /// Of the checksums: another one for each opening.
    pub(crate) epoch: u64,
    /// Its share of the bytes for objects, in millionths.
    pub(crate) share: u64,
    /// 1 from opening to closing: main may differ from copies.
    pub(crate) open: u64,
}

impl CopiesState {
    pub(crate) fn is_sound(&self) -> bool {
        (1..=MILLION).contains(&self.share) && self.open <= 1 && self.epoch < 1 << 48
    }

    pub(crate) fn bytes(&self, main: u64) -> u64 {
        (u128::from(main) * u128::from(self.share) / u128::from(MILLION)) as u64
    }
}
