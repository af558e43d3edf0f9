//! What all handles of a store share.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Weak};

use crate::commit::{Committing, Shortage, lone};
use crate::durable::Persistence;
use crate::error::Result;
use crate::maintenance::{Checkpointing, Maintenance};
use crate::media::checkpoint::WRITERS;
use crate::options::Options;
use crate::salvaged::Salvaged;
use crate::stats::Counters;
use crate::threads::committers::Committers;
use crate::threads::queue::Queue;
use crate::versions::Versions;

/// Stores that this process has opened.
static OPENED: AtomicU64 = AtomicU64::new(0);

/// The parts of a store; they are dropped in this order. What takes several of them is a part itself, or has those that it takes: see [`Committing`] and
/// [`Checkpointing`].
pub(crate) struct Core {
    this: Weak<Self>,
    /// See [`types`](Self::types).
    types: AtomicU64,
    /// See [`lone`].
    puts_alone: bool,
    pub(crate) options: Options,
    pub(crate) versions: Versions,
    pub(crate) maintenance: Maintenance,
    pub(crate) persistence: Persistence,
    /// What its opening gave up.
    pub(crate) salvaged: Salvaged,
    shortage: Shortage,
    pub(crate) counters: Counters,
    /// Where transactions queue that met a conflict.
    pub(crate) queue: Queue,
    pub(crate) committers: Committers,
}

impl Core {
    pub(crate) fn new(
        options: &Options,
        versions: Versions,
        maintenance: Maintenance,
        persistence: Persistence,
    ) -> Self {
        Self {
            this: Weak::new(),
            types: ((OPENED.fetch_add(1, Relaxed) + 1) << 32).into(),
            puts_alone: options.puts_alone(versions.pool()),
            options: options.clone(),
            versions,
            maintenance,
            persistence,
            salvaged: Salvaged::default(),
            shortage: Shortage::default(),
            counters: Counters::default(),
            queue: Queue::new(),
            committers: Committers::new(WRITERS),
        }
    }

    /// For handles: from now on it knows itself as they do.
    pub(crate) fn share(self) -> Arc<Self> {
        Arc::new_cyclic(|this| Self { this: this.clone(), ..self })
    }

    /// Itself, as its handles share it; none if they have gone.
    pub(crate) fn shared(&self) -> Option<Arc<Self>> {
        self.this.upgrade()
    }

    /// Of all stores that this process has opened, this one's number, from 1; in the low bits how often the record of a table's types was written.
    #[inline]
    pub(crate) fn types(&self) -> u64 {
        self.types.load(Acquire)
    }

    /// The record of a table's types was written.
    pub(crate) fn note_types(&self) {
        self.types.fetch_add(1, Release);
    }

    /// To commit.
    #[inline]
    pub(crate) fn committing(&self) -> Committing<'_> {
        Committing::new(&self.versions, &self.persistence, &self.maintenance, &self.shortage)
    }

    /// To make checkpoints.
    pub(crate) fn checkpointing(&self) -> Checkpointing<'_> {
        Checkpointing::new(&self.versions, &self.persistence, &self.maintenance)
    }

    /// Makes every commit that has returned durable. One barrier.
    pub(crate) fn force(&self) -> Result<()> {
        self.persistence.force(&self.versions)
    }

    /// Sets the key's value, and says if it had one; none if this is no put to be made by itself, and then nothing has happened.
    #[inline]
    pub(crate) fn put_alone(&self, key: &[u8], value: &[u8]) -> Result<Option<bool>> {
        if !self.puts_alone {
            return Ok(None);
        }
        let Some(done) = lone::put(&self.versions, key, value)? else { return Ok(None) };
        if let Some(bytes) = done.told {
            self.checkpointing().account(bytes);
        }
        Ok(Some(done.had))
    }

    /// Makes a checkpoint, and closes the log with copies and the pool.
    pub(crate) fn close(mut self) -> Result<()> {
        if self.versions.pool().is_read_only() {
            return Ok(());
        }
        // A segment that a transaction began and turned back from: the next open, of a store that was closed, goes on in it, and relies on what the table says.
        for writer in &self.versions.writers.all {
            writer.log.lock().name_segments(&self.versions.space)?;
        }
        self.checkpointing().checkpoint()?;
        let pool = self.versions.pool().clone();
        let log = self.persistence.take_log();
        drop(self);
        if let Some(log) = log {
            log.close()?;
        }
        match pool.close() {
            Ok(()) | Err(pmem::Error::InUse { .. }) => Ok(()), // others have the pool
            Err(error) => Err(error.into()),
        }
    }
}
