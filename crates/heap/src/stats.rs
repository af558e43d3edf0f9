//! Counts of a heap.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::core::{Core, Counters};

/// What a heap has done since it was opened, and where it stands. Exact when no transaction runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Transactions that committed changes.
    pub commits: u64,
    /// Transactions that committed without any.
    pub read_only: u64,
    /// Transactions that were rolled back.
    pub aborts: u64,
    /// Conflicts they met.
    pub conflicts: u64,
    /// Committed transactions that are applied.
    pub applied: u64,
    /// Committed transactions that are not.
    pub pending: u64,
    /// Zones that recovery would have to compare.
    pub dirty_zones: u64,
    /// Zones cleaned to keep recovery's budget.
    pub cleaned_zones: u64,
    /// Times that a transaction had to make copies first, of a partial backup.
    pub misses: u64,
    /// Copies given up for others.
    pub evictions: u64,
    /// Bytes for objects.
    pub bytes: u64,
    /// Bytes of the backup.
    pub backup_bytes: u64,
}

impl Stats {
    pub(crate) fn of(core: &Core) -> Self {
        let sum = |of: fn(&Counters) -> &AtomicU64| core.counters.iter().map(|c| of(c).load(Relaxed)).sum();
        Self {
            commits: core.commits(),
            read_only: sum(|c| &c.read_only),
            aborts: sum(|c| &c.aborts),
            conflicts: sum(|c| &c.conflicts),
            applied: core.logs.iter().map(|log| log.lock().applied).sum(),
            pending: sum(|c| &c.pending),
            dirty_zones: core.zones.dirty() as u64,
            cleaned_zones: core.cleaned.load(Relaxed),
            misses: sum(|c| &c.misses),
            evictions: core.copies.as_ref().map_or(0, |c| c.arena.lock().given_up),
            bytes: core.main.len(),
            backup_bytes: core.copies.as_ref().map_or(core.backup.len(), |c| c.arena.lock().limit()),
        }
    }
}
