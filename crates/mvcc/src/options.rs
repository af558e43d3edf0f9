//! How a store is made and opened.

use std::path::Path;

use pmem::HeapOptions;
use tx::{Error, Result};

use crate::Mvcc;
use crate::sabotage::Sabotage;

/// How a store is made and opened. Sizes matter at create only; the rest at every open.
///
/// ```
/// use mvcc::Options;
/// let options = Options::new().bytes(256 << 20).slots(16).log_bytes(1 << 20);
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) bytes: u64,
    pub(crate) max_bytes: Option<u64>,
    pub(crate) slots: usize,
    pub(crate) log_bytes: u64,
    pub(crate) blocks: HeapOptions,
    pub(crate) keeper: bool,
    pub(crate) pool: pmem::Options,
    pub(crate) sabotage: Sabotage,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

/// Slots that a store can have.
const SLOTS_MAX: u64 = 1 << 14;
/// Smallest log: a few records and their mark.
const LOG_MIN: u64 = 4096;
const LOG_MAX: u64 = 1 << 30;

impl Options {
    /// 64 MiB for objects, 64 slots with logs of 256 KiB.
    pub fn new() -> Self {
        Self {
            bytes: 64 << 20,
            max_bytes: None,
            slots: 64,
            log_bytes: 256 << 10,
            blocks: HeapOptions::default(),
            keeper: true,
            pool: pmem::Options::new().layout("mvcc"),
            sabotage: Sabotage::default(),
        }
    }

    /// Bytes for objects at first; the store grows by itself, up to [`max_bytes`](Self::max_bytes).
    #[must_use]
    pub fn bytes(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    /// Most bytes for objects to which the store grows by itself; behind that an allocation fails with [`HeapFull`](pmem::Error::HeapFull). By default
    /// 1 GiB, or 16 times what it has when it is made or opened if that is more.
    #[must_use]
    pub fn max_bytes(self, bytes: u64) -> Self {
        Self { max_bytes: Some(bytes), ..self }
    }

    /// Most transactions at one time, looks of [`Snapshot`](crate::Snapshot)s among them.
    #[must_use]
    pub fn slots(self, slots: usize) -> Self {
        Self { slots, ..self }
    }

    /// Bytes of each slot's log, a multiple of 64, 4096 at least. The longer, the more often an object may change before it is written back once. Records too long for it are kept
    /// among the objects.
    #[must_use]
    pub fn log_bytes(self, log_bytes: u64) -> Self {
        Self { log_bytes, ..self }
    }

    /// How blocks are laid out.
    #[must_use]
    pub fn blocks(self, blocks: HeapOptions) -> Self {
        Self { blocks, ..self }
    }

    /// Whether a thread in the background writes objects back, fifty times in a second. Without it committing threads do, when their logs are half full, and [`Mvcc::settle`].
    #[must_use]
    pub fn keeper(self, keeper: bool) -> Self {
        Self { keeper, ..self }
    }

    /// How the pool's file is opened: its domain, size reserved, latency model.
    #[must_use]
    pub fn pool(self, pool: pmem::Options) -> Self {
        Self { pool: pool.layout("mvcc"), ..self }
    }

    /// Makes a store in a new file: [`Mvcc::create`].
    ///
    /// # Errors
    /// As there.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<Mvcc> {
        Mvcc::create(path, self)
    }

    /// Opens the store at `path`, and recovers it if it was not closed: [`Mvcc::open`].
    ///
    /// # Errors
    /// As there.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Mvcc> {
        Mvcc::open(path, self)
    }

    /// Leaves a step of the protocol out.
    #[cfg(feature = "sabotage")]
    #[doc(hidden)]
    #[must_use]
    pub fn without(self, step: crate::Step) -> Self {
        Self { sabotage: Sabotage(Some(step)), ..self }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let limit = |what, found, max| Err(Error::Limit { what, found, max });
        if self.slots == 0 || self.slots as u64 > SLOTS_MAX {
            return limit("slots (1 at least)", self.slots as u64, SLOTS_MAX);
        }
        if !are_log_bytes(self.log_bytes) {
            return limit("bytes per log (4096 at least, a multiple of 64)", self.log_bytes, LOG_MAX);
        }
        Ok(())
    }
}

/// Whether logs can be that long.
pub(crate) fn are_log_bytes(bytes: u64) -> bool {
    (LOG_MIN..=LOG_MAX).contains(&bytes) && bytes.is_multiple_of(pmem::LINE)
}

/// Whether there can be so many slots.
pub(crate) fn are_slots(slots: u64) -> bool {
    (1..=SLOTS_MAX).contains(&slots)
}
