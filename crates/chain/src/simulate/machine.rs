//! One machine: its medium, the process on it, and what that has under way.

use std::collections::BTreeMap;

use super::history::{OBJECTS, Reply, Request};
use super::medium::{BLOCK, Cell, Medium, extent};
use crate::blocks::Blocks;
use crate::failpoints::Failpoints;
use crate::{Barrier, Moment, ReadId, Replica, Stage, TransactionId, View, ViewId};

/// So little room that space is used again soon.
const HEAP: std::ops::Range<u64> = 32..32 * 97;

pub(super) struct Machine {
    pub(super) medium: Medium,
    /// None: it is down.
    pub(super) replica: Option<Replica>,
    /// How often a process was started; what an earlier one had under way is gone.
    pub(super) boot: u64,
    pub(super) paused_until: u64,
    pub(super) transactions: BTreeMap<TransactionId, Running>,
    /// Numbered, and not written.
    pub(super) committing: BTreeMap<TransactionId, crate::Entry>,
    /// Committed, and not acknowledged.
    pub(super) tickets: BTreeMap<u64, (u64, Reply)>,
    pub(super) reads: BTreeMap<ReadId, Reading>,
    /// Asked, and not answered.
    pub(super) proposal: Option<View>,
    pub(super) opened: bool,
    /// Where the blocks of objects are, as a process keeps it.
    pub(super) blocks: Blocks,
    pub(super) allocates_in: Option<ViewId>,
    pub(super) next_id: u64,
}

pub(super) struct Running {
    pub(super) request: Request,
    pub(super) old: Vec<(u64, Cell)>,
    pub(super) reply: Reply,
    pub(super) number: u64,
}

pub(super) struct Reading {
    pub(super) begun: u64,
    pub(super) objects: Vec<u64>,
    pub(super) lists: Vec<(u64, Vec<u64>)>,
}

/// What a process has under way.
#[derive(Clone, Debug)]
pub(super) enum Work {
    Tick,
    Renew,
    Barrier { barrier: Barrier, mark: u64 },
    Note { mark: u64 },
    Execute { n: u64, part: usize },
    Write { transaction: TransactionId, part: usize },
    Record { transaction: TransactionId },
    Commit { transaction: TransactionId },
    Copy { read: ReadId, part: usize },
    Copied { read: ReadId },
    Recovered,
}

impl Machine {
    pub(super) fn new(medium: Medium) -> Self {
        Self {
            medium,
            replica: None,
            boot: 0,
            paused_until: 0,
            transactions: BTreeMap::new(),
            committing: BTreeMap::new(),
            tickets: BTreeMap::new(),
            reads: BTreeMap::new(),
            proposal: None,
            opened: false,
            blocks: Blocks::empty(HEAP),
            allocates_in: None,
            next_id: 1,
        }
    }

    /// The process is gone, or its copy is void: no client is told anything.
    pub(super) fn forget(&mut self) {
        self.transactions.clear();
        self.committing.clear();
        self.tickets.clear();
        self.reads.clear();
        self.proposal = None;
    }

    // ---- blocks -----------------------------------------------------------------------------------------------

    /// Blocks by what objects have; of what a transaction has written, by what they had before.
    fn live(&self) -> Vec<(u64, u64)> {
        let old: BTreeMap<u64, &Cell> =
            self.transactions.values().flat_map(|of| &of.old).map(|(object, cell)| (*object, cell)).collect();
        let cell = |object| old.get(&object).copied().unwrap_or(&self.medium.cached.cells[object as usize]);
        let mut live: Vec<(u64, u64)> = (0..OBJECTS).filter_map(|object| extent(cell(object)[BLOCK])).collect();
        live.sort_unstable();
        live
    }

    /// Makes the blocks anew.
    pub(super) fn scan(&mut self, failpoints: Failpoints) -> Result<(), String> {
        let live = self.live();
        if let Some(two) = live.windows(2).find(|two| two[0].0 + two[0].1 > two[1].0) {
            return Err(format!("blocks of two objects lie in each other: {two:?}"));
        }
        self.blocks = Blocks::empty(HEAP);
        self.blocks.failpoints = failpoints;
        live.into_iter().for_each(|(start, len)| self.blocks.set_live(start, len));
        Ok(())
    }

    /// A record changes the block of an object.
    pub(super) fn learn(&mut self, n: u64, old: u64, new: u64) {
        if old == new {
            return;
        }
        if let Some((start, _)) = extent(old) {
            self.blocks.set_free(n, start);
        }
        if let Some((start, len)) = extent(new) {
            self.blocks.set_live(start, len);
        }
    }

    /// As at a node: a head gives out blocks when it has executed what it had.
    pub(super) fn note_allocates(&mut self) {
        let Some(replica) = &self.replica else { return };
        let progress = replica.progress();
        let head = replica.serves().filter(|view| view.head() == Some(replica.id())).map(|view| view.id);
        if progress.executed == progress.last {
            self.allocates_in = head.or(self.allocates_in);
        }
    }

    /// Space for a block, at a head that gives out blocks.
    pub(super) fn reserve(&mut self, len: u64) -> Option<(u64, u64)> {
        let view = self.replica.as_ref().and_then(Replica::serves).map(|view| view.id);
        self.allocates_in.filter(|_| self.allocates_in == view)?;
        self.blocks.reserve(len, 1)
    }

    pub(super) fn check_blocks(&self) -> Result<(), String> {
        match self.replica.as_ref().map(Replica::stage) {
            Some(Stage::Serving | Stage::Joining) => self.blocks.check(HEAP, &self.live()),
            _ => Ok(()),
        }
    }

    pub(super) fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}

pub(super) fn moment(now: u64) -> Moment {
    Moment(now * 1000)
}
