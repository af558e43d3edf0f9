//! One machine: its medium, the process on it, and what that has under way.

use std::collections::BTreeMap;

use super::history::{Reply, Request};
use super::medium::{Cell, Medium};
use crate::{Barrier, Moment, ReadId, Replica, TransactionId, View};

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
            next_id: 1,
        }
    }

    /// The process is gone, or its copy is void: nobody is told anything.
    pub(super) fn forget(&mut self) {
        self.transactions.clear();
        self.committing.clear();
        self.tickets.clear();
        self.reads.clear();
        self.proposal = None;
    }

    pub(super) fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}

pub(super) fn moment(now: u64) -> Moment {
    Moment(now * 1000)
}
