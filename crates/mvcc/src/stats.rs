//! Counts of a store.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::core::{Core, Counters};

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
    /// Bytes of objects that were written back. What was overwritten before that is not among them.
    pub written_back: u64,
    /// Bytes of copies of what calls have changed.
    pub copied: u64,
    /// Objects with a header: changed lately, or seen differently by a snapshot.
    pub headers: u64,
    /// Versions in their chains: committed and not written back, or kept for a snapshot.
    pub versions: u64,
    /// Snapshots that are held.
    pub snapshots: u64,
    /// Bytes for objects.
    pub bytes: u64,
}

impl Stats {
    pub(crate) fn of(core: &Core) -> Self {
        let sum = |of: fn(&Counters) -> &AtomicU64| core.counters.iter().map(|c| of(c).load(Relaxed)).sum();
        let upkeep = core.upkeep.lock(); // nobody gives up a version meanwhile
        Self {
            commits: sum(|c| &c.commits),
            calls: sum(|c| &c.calls),
            copied: upkeep.copied,
            read_only: sum(|c| &c.read_only),
            aborts: sum(|c| &c.aborts),
            conflicts: sum(|c| &c.conflicts),
            written_back: upkeep.written_back,
            headers: core.headers.used(),
            versions: core.headers.versions(),
            snapshots: core.held.lock().len() as u64,
            bytes: core.alloc.spaces().iter().map(|space| space.end - space.start).sum(),
        }
    }
}
