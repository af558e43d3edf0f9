//! Checkpoints, and what moves with them.

mod checkpoint;
pub(crate) mod checkpointer;
mod compact;
mod due;
mod neighbours;
pub(crate) mod nodes;

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

use pmem::sync::{Mutex, MutexGuard};

use crate::durable::Persistence;
use crate::options::Options;
use crate::space::Space;
use crate::threads::signal::Signal;
use crate::versions::Versions;
use crate::writers::writer::Dead;
use checkpointer::Checkpointer;
use due::Due;

/// What checkpoints keep from one to the next, and when the next one is due.
pub(crate) struct Maintenance {
    checkpointer: Mutex<Checkpointer>,
    due: Due,
    /// The last checkpoint has left something to be freed by the next.
    unfinished: AtomicBool,
    /// Calls the thread that makes them.
    pub(crate) background: Signal,
    /// Per cent of what is live that may be taken beside it.
    spare: u64,
    /// Counts of [`Stats`](crate::stats::Stats).
    checkpoints: AtomicU64,
    moved: AtomicU64,
}

impl Maintenance {
    pub(crate) fn new(checkpointer: Checkpointer, options: &Options) -> Self {
        Self {
            checkpointer: Mutex::new(checkpointer),
            due: Due::new(options.checkpoint_bytes),
            unfinished: false.into(),
            background: Signal::default(),
            spare: options.spare.into(),
            checkpoints: 0.into(),
            moved: 0.into(),
        }
    }

    /// What the last checkpoint has left to the next. No checkpoint is made while the caller has it.
    pub(crate) fn checkpointer(&self) -> MutexGuard<'_, Checkpointer> {
        self.checkpointer.lock()
    }

    /// A version that the index does not lead to any more: it is freed when no checkpoint does.
    pub(crate) fn retire(&self, dead: Dead) {
        self.checkpointer.lock().unripe.push(dead);
    }

    /// Says how many nodes there are, for the reserve, which keeps room for them.
    pub(crate) fn note_nodes(&self, space: &Space) {
        self.checkpointer.lock().note_nodes(space);
    }

    /// Whether one more checkpoint would free something, even if nothing more is committed.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.unfinished.load(Acquire)
    }

    fn set_unfinished(&self, unfinished: bool) {
        self.unfinished.store(unfinished, Release);
    }

    /// Checkpoints that were made.
    pub(crate) fn checkpoints(&self) -> u64 {
        self.checkpoints.load(Relaxed)
    }

    /// Versions that were moved.
    pub(crate) fn moved(&self) -> u64 {
        self.moved.load(Relaxed)
    }

    /// Bytes written that no checkpoint has.
    #[cfg(test)]
    pub(crate) fn behind(&self) -> u64 {
        self.due.behind()
    }
}

/// What a checkpoint takes of a store.
#[derive(Clone, Copy)]
pub(crate) struct Checkpointing<'c> {
    versions: &'c Versions,
    persistence: &'c Persistence,
    maintenance: &'c Maintenance,
}

impl<'c> Checkpointing<'c> {
    pub(crate) fn new(versions: &'c Versions, persistence: &'c Persistence, maintenance: &'c Maintenance) -> Self {
        Self { versions, persistence, maintenance }
    }
}
