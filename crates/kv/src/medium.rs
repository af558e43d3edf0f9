//! The pool of a store, and what is fixed about it while it is open.

use pmem::{ChecksumKey, Pool};

use crate::Step;
use crate::failpoints::Failpoints;

pub(crate) struct Medium {
    pool: Pool,
    /// Of the checksums of records and nodes.
    key: ChecksumKey,
    /// The lower half of the pool's.
    generation: u16,
    failpoints: Failpoints,
}

impl Medium {
    pub(crate) fn new(pool: &Pool, key: ChecksumKey, failpoints: Failpoints) -> Self {
        Self { pool: pool.clone(), key, generation: pool.generation() as u16, failpoints }
    }

    #[inline]
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    #[inline]
    pub(crate) fn key(&self) -> &ChecksumKey {
        &self.key
    }

    #[inline]
    pub(crate) fn generation(&self) -> u16 {
        self.generation
    }

    pub(crate) fn failpoints(&self) -> Failpoints {
        self.failpoints
    }

    /// Whether a test leaves this step out.
    #[inline]
    pub(crate) fn skips(&self, step: Step) -> bool {
        self.failpoints.skips(step)
    }
}
