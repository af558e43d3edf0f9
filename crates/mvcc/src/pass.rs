//! How far the upkeep has come: its pass, and what it will look at later.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use pmem::{FlushSet, Intent, TwoSlot};
use tx::Result;

use crate::header::Header;
use crate::inbox::{Changed, GivenUp};
use crate::state::State;

/// Under its lock, one pass at a time.
pub(crate) struct Upkeep {
    pub(crate) cell: TwoSlot<State>,
    pub(crate) pass: Option<Pass>,
    /// Objects that have changed behind the pass before.
    pub(crate) later: Vec<Changed>,
    /// Objects that are looked at again when the snapshots that are held have changed.
    pub(crate) pinned: Vec<Pinned>,
    /// What was held then.
    pub(crate) pinned_by: Vec<u64>,
    pub(crate) given_up: VecDeque<(u64, GivenUp)>,
    pub(crate) lines: FlushSet,
    /// Bytes that were written back, and objects.
    pub(crate) written_back: u64,
    pub(crate) objects_back: u64,
    /// Bytes of copies of what calls had changed.
    pub(crate) copied: u64,
}

/// An object that snapshots see, and of how many uses of its header that is.
pub(crate) struct Pinned {
    pub(crate) changed: Changed,
    pub(crate) uses: u32,
}

/// A pass that has collected.
pub(crate) struct Pass {
    /// K.
    pub(crate) through: u64,
    /// A transaction at or above it does not see the masters.
    pub(crate) behind: u64,
    pub(crate) changed: Vec<Changed>,
    pub(crate) intents: Vec<(u64, Intent)>,
}

/// How far a pass got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There was nothing to do.
    Idle,
    /// It is through.
    Done,
    /// The transaction in a slot may see what is to be overwritten.
    Blocked,
}

impl Upkeep {
    pub(crate) fn new(cell: TwoSlot<State>) -> Self {
        Self {
            cell,
            pass: None,
            later: Vec::new(),
            pinned: Vec::new(),
            pinned_by: Vec::new(),
            given_up: VecDeque::new(),
            lines: FlushSet::default(),
            written_back: 0,
            objects_back: 0,
            copied: 0,
        }
    }

    /// For recovery, too.
    pub(crate) fn write_state(cell: &mut TwoSlot<State>, durable: u64, written: u64, between: u64) -> Result<()> {
        Self::write_copied(cell, durable, written, between, cell.get().copied)
    }

    /// ... with the timestamp of copies.
    pub(crate) fn write_copied(
        cell: &mut TwoSlot<State>,
        durable: u64,
        written: u64,
        between: u64,
        copied: u64,
    ) -> Result<()> {
        let state = State { durable, written, between, copied, ..cell.get() };
        // Both copies: should the newer be lost, an older K or W would be wrong about records that are gone by then.
        Ok(cell.update_mirrored(&state)?)
    }

    /// Has the object looked at when snapshots have gone. One that has lost its header meanwhile is passed over then.
    pub(crate) fn pin(&mut self, changed: Changed, header: &Header) {
        if !header.is_pinned.swap(true, Relaxed) {
            self.pinned.push(Pinned { changed, uses: header.uses.load(Relaxed) });
        }
    }

    /// Has the object looked at by the next pass.
    pub(crate) fn postpone(&mut self, changed: Changed, header: &Header) {
        if !header.is_listed.swap(true, AcqRel) {
            self.later.push(changed);
        }
    }
}
