//! Counts of a store.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::core::{Core, Counters};
use crate::state::State;

/// What a store has done since it was opened, and where it stands. Exact when no transaction runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Transactions that committed changes.
    pub commits: u64,
    /// ... of which were logged as calls.
    pub calls: u64,
    /// Transactions that committed without any.
    pub read_only: u64,
    /// Transactions that were rolled back.
    pub aborts: u64,
    /// Conflicts they met.
    pub conflicts: u64,
    /// Bytes of records in the slots' logs, with their headers.
    pub logged: u64,
    /// Versions of existing objects that were committed.
    pub published: u64,
    /// Objects whose newest version was written back: one for all that were `published` of it since the pass before. The quotient is what is saved by writing back late.
    pub objects_back: u64,
    /// Bytes of objects that were written back. What was overwritten before that is not among them.
    pub written_back: u64,
    /// Bytes of copies of what calls have changed.
    pub copied: u64,
    /// Objects with a header: changed lately, or seen differently by a snapshot.
    pub headers: u64,
    /// Versions in their chains: committed and not written back, or kept for a snapshot.
    pub versions: u64,
    /// ... in the longest.
    pub longest_chain: u64,
    /// Snapshots that are held.
    pub snapshots: u64,
    /// Bytes for objects.
    pub bytes: u64,
}

impl Stats {
    pub(crate) fn of(core: &Core) -> Self {
        let sum = |of: fn(&Counters) -> &AtomicU64| core.counters.iter().map(|c| of(c).load(Relaxed)).sum();
        let upkeep = core.upkeep.lock(); // no thread gives up a version meanwhile
        let (versions, longest_chain) = core.headers.versions();
        let (mut logged, mut published) = (0, 0);
        // The last one is that of copies.
        for log in core.logs.iter().rev().skip(1) {
            let log = log.lock();
            logged += log.ring.head().get() - log.begun.get();
            published += log.published;
        }
        Self {
            logged,
            published,
            objects_back: upkeep.objects_back,
            commits: sum(|c| &c.commits),
            calls: sum(|c| &c.calls),
            copied: upkeep.copied,
            read_only: sum(|c| &c.read_only),
            aborts: sum(|c| &c.aborts),
            conflicts: sum(|c| &c.conflicts),
            written_back: upkeep.written_back,
            headers: core.headers.used(),
            versions,
            longest_chain,
            snapshots: core.held.lock().len() as u64,
            bytes: core.alloc.spaces().iter().map(|space| space.end - space.start).sum(),
        }
    }
}

/// What a store was made with, and how far it is written back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sizes {
    /// Slots for transactions.
    pub slots: u64,
    /// Bytes of each slot's log.
    pub log_bytes: u64,
    /// Bytes of the log of copies.
    pub copy_bytes: u64,
    /// W: all commits through this timestamp are in their masters.
    pub written: u64,
    /// Procedures that the pool names, with their versions: those of the program that opened it last for writing.
    pub procedures: Vec<(String, u32)>,
}

impl Sizes {
    pub(crate) fn of(core: &Core) -> Self {
        let State { slots, log_bytes, copy_bytes, written, .. } = core.upkeep.lock().cell.get();
        Self { slots, log_bytes, copy_bytes, written, procedures: core.named.clone() }
    }
}
