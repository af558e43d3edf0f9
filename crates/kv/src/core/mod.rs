//! What all handles of a store share.

use std::sync::Weak;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use pmem::sync::Mutex;

use crate::durable::Persistence;
use crate::error::Result;
use crate::maintenance::{Checkpointing, Maintenance};
use crate::options::Options;
use crate::salvaged::Salvaged;
use crate::stats::Counters;
use crate::threads::committers::Committers;
use crate::threads::queue::Queue;
use crate::versions::Versions;

/// The parts of a store. They are dropped in this order.
pub(crate) struct Core {
    /// Itself, as its handles share it.
    pub(crate) this: Weak<Self>,
    /// See [`types`](Self::types).
    pub(crate) types: AtomicU64,
    /// See `commit::lone`.
    pub(crate) puts_alone: bool,
    pub(crate) options: Options,
    pub(crate) versions: Versions,
    pub(crate) maintenance: Maintenance,
    pub(crate) persistence: Persistence,
    /// What its opening gave up.
    pub(crate) salvaged: Salvaged,
    /// The clock, and the oldest reader's, when nothing was left that could be freed: for those who put in, those who overwrite, and those who take out.
    pub(crate) cramped: Mutex<[Option<(u64, u64)>; 3]>,
    /// A snapshot that those who overwrite have waited for in vain.
    pub(crate) lasting: AtomicU64,
    /// A thread that was refused room looks for some while it has this, one at a time, without a snapshot; a deletion has everything moved.
    pub(crate) turn: Mutex<()>,
    /// How often that was done.
    pub(crate) rescues: AtomicU64,
    pub(crate) counters: Counters,
    pub(crate) queue: Queue,
    pub(crate) committers: Committers,
}

impl Core {
    /// Of all stores that this process has opened, this one's number, from 1; in the low bits how often the record of a table's types was written.
    #[inline]
    pub(crate) fn types(&self) -> u64 {
        self.types.load(Acquire)
    }

    /// The record of a table's types was written.
    pub(crate) fn note_types(&self) {
        self.types.fetch_add(1, Release);
    }

    /// Makes every commit that has returned durable. One barrier.
    pub(crate) fn force(&self) -> Result<()> {
        self.persistence.force(&self.versions)
    }

    /// To make checkpoints.
    pub(crate) fn checkpointing(&self) -> Checkpointing<'_> {
        Checkpointing::new(&self.versions, &self.persistence, &self.maintenance)
    }
}
