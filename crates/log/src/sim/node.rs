//! One machine: what it is doing, and what is connected to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crash::Module;
use fabric::Receiver;

use crate::Log;
use crate::error::Result;
use crate::failpoints::Failpoints;
use crate::replicate::candidate::Candidate;
use crate::replicate::served::Served;
use crate::replicate::stored::StoredReplica;
use crate::replicate::wire::Versions;

pub(super) const MODULE_BYTES: u64 = 40 << 10;

/// What a machine is doing.
pub(super) enum Role {
    /// It is off, or its replica cannot be opened.
    Down,
    /// It has no replica, and nothing to do.
    Idle,
    Serving(Box<Served>),
    Standing(Box<Candidate>),
    Leading(Box<Leader>),
}

pub(super) struct Leader {
    pub(super) log: Arc<Log>,
    /// Appended and not known to be durable: number by LSN.
    pub(super) pending: BTreeMap<u64, u64>,
    pub(super) forced: u64,
}

/// What is at the other end.
#[derive(Clone, Copy)]
pub(super) enum Of {
    Session(u64),
    /// A replica, by its number in the takeover, then among the leader's replicas.
    Replica(usize),
}

pub(super) struct Node {
    pub(super) net: fabric::sim::Node,
    /// Where its replica is; none for a machine without.
    pub(super) module: Option<Arc<Module>>,
    pub(super) role: Role,
    /// What its program speaks.
    pub(super) speaks: Versions,
    pub(super) ends: Vec<(Of, Box<dyn Receiver>)>,
}

impl Node {
    pub(super) fn served(&mut self) -> Option<&mut Served> {
        if let Role::Serving(served) = &mut self.role { Some(served) } else { None }
    }

    pub(super) fn leader(&mut self) -> Option<&mut Leader> {
        if let Role::Leading(leader) = &mut self.role { Some(leader) } else { None }
    }

    /// Opens its replica.
    pub(super) fn open(module: &Arc<Module>, without: Failpoints) -> Result<StoredReplica> {
        let pool = pmem::Options::new().open_on(module.clone())?;
        StoredReplica::open(&pool, without)
    }

    /// An empty replica on a new module.
    pub(super) fn make(without: Failpoints) -> Result<(Arc<Module>, StoredReplica)> {
        let module = Module::new(MODULE_BYTES);
        let pool = pmem::Options::new().size(16 << 10).create_on(module.clone())?;
        let replica = StoredReplica::open(&pool, without)?;
        Ok((module, replica))
    }
}
