//! What all handles of a store share, and how a key is read.

pub(crate) mod read;

use std::sync::Weak;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use pmem::sync::CachePadded;
use pmem::{ChecksumKey, Domain, Pool};

use crate::Step;
use crate::checkpoint::checkpointer::Checkpointer;
use crate::durable::leading::{Leading, Replicated};
use crate::error::{Error, Result};
use crate::failpoints::Failpoints;
use crate::index::Index;
use crate::isolation::active::Active;
use crate::isolation::locks::{Around, Locks};
use crate::options::Options;
use crate::space::Space;
use crate::writers::writer::Writers;

pub(crate) struct Core {
    /// Itself, as its handles share it.
    pub(crate) this: Weak<Self>,
    /// See [`types`](Self::types).
    pub(crate) types: AtomicU64,
    pub(crate) pool: Pool,
    /// See `commit::lone`.
    pub(crate) puts_alone: bool,
    pub(crate) key: ChecksumKey,
    pub(crate) generation: u16,
    pub(crate) options: Options,
    pub(crate) active: Active,
    pub(crate) locks: Locks,
    pub(crate) index: Index,
    pub(crate) writers: Writers,
    pub(crate) group: crate::durable::group::Group,
    pub(crate) order: crate::isolation::order::Order,
    pub(crate) space: Space,
    pub(crate) checkpointer: pmem::sync::Mutex<Checkpointer>,
    pub(crate) bound: crate::durable::bound::Bound,
    /// Of a replicated store.
    pub(crate) replicated: Option<crate::durable::leading::Replicated>,
    pub(crate) failpoints: Failpoints,
    /// What its opening gave up.
    pub(crate) salvaged: crate::salvaged::Salvaged,
    /// Bytes of records written since the store was opened, but for the last few of each log; and at the last checkpoint.
    pub(crate) written: CachePadded<AtomicU64>,
    pub(crate) checkpointed: AtomicU64,
    /// How many more are enough for the next one.
    pub(crate) checkpoint_at: AtomicU64,
    /// The clock, and the oldest reader's, when nothing was left that could be freed: for those who put in, those who overwrite, and those who take out.
    pub(crate) cramped: pmem::sync::Mutex<[Option<(u64, u64)>; 3]>,
    /// A snapshot that those who overwrite have waited for in vain.
    pub(crate) lasting: AtomicU64,
    /// A thread that was refused room looks for some while it has this, one at a time, without a snapshot; a deletion has everything moved.
    pub(crate) turn: pmem::sync::Mutex<()>,
    /// How often that was done.
    pub(crate) rescues: AtomicU64,
    /// Numbers transactions that wait, oldest first.
    pub(crate) ages: CachePadded<AtomicU64>,
    pub(crate) counters: crate::stats::Counters,
    pub(crate) queue: crate::threads::queue::Queue,
    pub(crate) background: crate::threads::signal::Signal,
    pub(crate) committers: crate::threads::committers::Committers,
    /// The last checkpoint has left something to be freed by the next.
    pub(crate) unfinished: AtomicBool,
    /// Whether some key may expire: see `upkeep::sweep`.
    pub(crate) expiring: AtomicBool,
}

impl Core {
    /// Of all stores that this process has opened, this one's number, from 1; in the low bits how often the record of a table's types was written.
    #[inline]
    pub(crate) fn types(&self) -> u64 {
        self.types.load(std::sync::atomic::Ordering::Acquire)
    }

    /// A key may become the fence of a leaf, whose node must fit in a segment.
    #[inline]
    pub(crate) fn check_key(&self, key: &[u8]) -> Result<()> {
        let max =
            (self.space.segment_bytes - crate::media::node::NODE) / crate::media::node::NODE * crate::media::node::NODE;
        if key.len() as u64 <= max {
            return Ok(());
        }
        Err(Error::Limit { what: "bytes of a key, in segments of this length", found: key.len() as u64, max })
    }

    /// A new key needs room in the index.
    pub(crate) fn check_memory(&self) -> Result<()> {
        let max = self.options.index_memory;
        if max == u64::MAX {
            return Ok(());
        }
        let bytes = self.index.memory_in_use();
        if bytes <= max { Ok(()) } else { Err(Error::IndexMemory { keys: self.index.entries(), bytes, max }) }
    }

    /// There is something that will expire.
    #[inline]
    pub(crate) fn note_expiring(&self) {
        if !self.expiring.load(Relaxed) {
            self.expiring.store(true, Relaxed);
        }
    }

    /// How many leaves there are, for the reserve, which keeps room for their nodes.
    pub(crate) fn note_leaves(&self) {
        self.space.reserve.note_leaves(self.index.leaf_count());
    }

    /// The part that leads, of a replicated store.
    pub(crate) fn leading(&self) -> Result<&Leading> {
        self.replicated.as_ref().and_then(Replicated::leading).ok_or(Error::Follows)
    }

    /// Whether a commit waits for a device, or for the machines that have copies.
    pub(crate) fn waits(&self) -> bool {
        self.replicated.is_some() || self.pool.domain() == Domain::File
    }

    /// Whether it is a replicated store that does not lead.
    pub(crate) fn follows(&self) -> bool {
        self.replicated.as_ref().is_some_and(|replicated| replicated.leading().is_none())
    }

    /// Makes every commit that has returned durable. One barrier.
    pub(crate) fn force(&self) -> Result<()> {
        let leading = || self.replicated.as_ref().and_then(Replicated::leading);
        let check = || leading().map_or(Ok(()), Leading::check);
        self.bound.force(&self.pool, &self.key, &self.writers, &self.space, check)
    }

    /// Makes the store durable as far as it is, and lets the log forget that. The caller holds no log of a writer.
    #[cold]
    pub(crate) fn trim(&self, leading: &Leading, is_urgent: bool) -> Result<()> {
        leading.trim(is_urgent, self.failpoints, || self.force().map(|()| self.bound.forced()))
    }

    /// What a record says of what is durable.
    pub(crate) fn watermark(&self) -> u64 {
        if self.failpoints.skips(Step::HonestWatermark) { self.bound.last() } else { self.bound.forced() }
    }
}

impl Around for Core {
    fn active(&self) -> &Active {
        &self.active
    }

    fn age(&self) -> u64 {
        self.ages.fetch_add(1, Relaxed)
    }

    fn check_usable(&self) -> pmem::Result<()> {
        self.pool.check_usable()
    }
}
