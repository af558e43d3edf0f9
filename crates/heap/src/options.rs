//! How a heap is made and opened.

use pmem::HeapOptions;
use tx::Error;

use crate::lock::SLOTS_MAX;
use crate::sabotage::Sabotage;

/// How an unfinished transaction is rolled back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Not at all: a crash leaves half of it. The upper bound for the others.
    None,
    /// From copies of the old bytes, made before a change: three barriers, more if changes are not declared together.
    Undo,
    /// From a backup that follows the main copy: one barrier, twice the memory (Kamino-Tx §3).
    #[default]
    InPlace,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::None, Self::Undo, Self::InPlace];

    /// Its name, as on the command line and in the pool.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Undo => "undo",
            Self::InPlace => "inplace",
        }
    }

    pub(crate) fn code(self) -> u64 {
        match self {
            Self::None => 1,
            Self::Undo => 2,
            Self::InPlace => 3,
        }
    }

    pub(crate) fn from_code(code: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.code() == code)
    }
}

impl std::str::FromStr for Policy {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|p| p.name() == name);
        found.ok_or_else(|| format!("{name:?} is no policy: none, undo or inplace"))
    }
}

impl std::fmt::Display for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// How a heap is made and opened. Sizes matter at create only; the rest at every open.
///
/// ```
/// use heap::{Options, Policy};
/// let options = Options::new().policy(Policy::Undo).bytes(256 << 20).slots(16);
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) policy: Option<Policy>,
    pub(crate) bytes: u64,
    pub(crate) slots: usize,
    pub(crate) log_bytes: u64,
    pub(crate) zone_bytes: u64,
    pub(crate) blocks: HeapOptions,
    /// By default what the domain reads twice in well under a second.
    pub(crate) recovery_bytes: Option<u64>,
    pub(crate) batch: usize,
    pub(crate) seal_max: u64,
    pub(crate) coordinator: bool,
    pub(crate) pool: pmem::Options,
    pub(crate) sabotage: Sabotage,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// In place, 64 MiB for objects, 64 slots with logs of 64 KiB.
    pub fn new() -> Self {
        Self {
            policy: None,
            bytes: 64 << 20,
            slots: 64,
            log_bytes: 64 << 10,
            zone_bytes: 1 << 20,
            blocks: HeapOptions::default(),
            recovery_bytes: None,
            batch: 16,
            seal_max: 2048,
            coordinator: true,
            pool: pmem::Options::new().layout("heap"),
            sabotage: Sabotage::default(),
        }
    }

    /// How transactions are rolled back. By default in place for a new heap, and as it was for an old one.
    #[must_use]
    pub fn policy(self, policy: Policy) -> Self {
        Self { policy: Some(policy), ..self }
    }

    /// Bytes for objects at first; the heap grows by itself. In place needs as many again.
    #[must_use]
    pub fn bytes(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    /// Most transactions at one time.
    #[must_use]
    pub fn slots(self, slots: usize) -> Self {
        Self { slots, ..self }
    }

    /// Bytes of each slot's log, a multiple of 64. Transactions whose record is longer keep part of it among the objects.
    #[must_use]
    pub fn log_bytes(self, log_bytes: u64) -> Self {
        Self { log_bytes, ..self }
    }

    /// Bytes that share one dirty mark, a power of two from 4 KiB; 1 MiB by default.
    #[must_use]
    pub fn zone_bytes(self, zone_bytes: u64) -> Self {
        Self { zone_bytes, ..self }
    }

    /// How blocks are laid out.
    #[must_use]
    pub fn blocks(self, blocks: HeapOptions) -> Self {
        Self { blocks, ..self }
    }

    /// Bytes that recovery may have to compare with the backup; by default 1 GiB, and 256 MiB in a file: under a second. When more are dirty, quiet zones
    /// are cleaned.
    #[must_use]
    pub fn recovery_budget(self, bytes: u64) -> Self {
        Self { recovery_bytes: Some(bytes), ..self }
    }

    /// Transactions of a slot that are settled together.
    #[must_use]
    pub fn batch(self, transactions: usize) -> Self {
        Self { batch: transactions.max(1), ..self }
    }

    /// Most bytes whose seal is computed to save a barrier; larger transactions pay a second one.
    #[must_use]
    pub fn seal_max(self, bytes: u64) -> Self {
        Self { seal_max: bytes, ..self }
    }

    /// Whether a thread in the background settles slots that have gone idle. Without it, call [`Heap::settle`](crate::Heap::settle).
    #[must_use]
    pub fn coordinator(self, coordinator: bool) -> Self {
        Self { coordinator, ..self }
    }

    /// How the pool's file is opened: its domain, size reserved, latency model.
    #[must_use]
    pub fn pool(self, pool: pmem::Options) -> Self {
        Self { pool: pool.layout("heap"), ..self }
    }

    /// Leaves a step of the protocol out.
    #[cfg(feature = "sabotage")]
    #[doc(hidden)]
    #[must_use]
    pub fn leave_out(self, step: crate::Step) -> Self {
        Self { sabotage: Sabotage(Some(step)), ..self }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let limit = |what, found, max| Err(Error::Limit { what, found, max });
        if self.slots == 0 || self.slots > SLOTS_MAX {
            return limit("slots (1 at least)", self.slots as u64, SLOTS_MAX as u64);
        }
        if !self.zone_bytes.is_power_of_two() || !(4096..=1 << 30).contains(&self.zone_bytes) {
            return limit("bytes per zone (a power of two, 4096 at least)", self.zone_bytes, 1 << 30);
        }
        if self.log_bytes < LOG_MIN || !self.log_bytes.is_multiple_of(64) || self.log_bytes > 1 << 30 {
            return limit("bytes per log (2048 at least, a multiple of 64)", self.log_bytes, 1 << 30);
        }
        Ok(())
    }
}

/// Smallest log: a few records and their mark.
const LOG_MIN: u64 = 2048;
