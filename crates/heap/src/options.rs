//! How a heap is made and opened.

use pmem::HeapOptions;
use tx::Error;

use crate::failpoints::Failpoints;
use crate::lock::SLOTS_MAX;

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
    /// From copies of the objects that were written lately, a share of the heap: one barrier, two for an object without a copy (Kamino-Tx §4).
    InPlacePartial,
    /// Nothing of it is in the objects before it is durable in the log: one barrier, and no memory but the log (MARS, editable atomic writes).
    Eaw,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::None, Self::Undo, Self::InPlace, Self::InPlacePartial, Self::Eaw];

    /// Its name, as on the command line and in the pool.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Undo => "undo",
            Self::InPlace => "inplace",
            Self::InPlacePartial => "inplace-partial",
            Self::Eaw => "eaw",
        }
    }

    pub(crate) fn code(self) -> u64 {
        match self {
            Self::None => 1,
            Self::Undo => 2,
            Self::InPlace => 3,
            Self::InPlacePartial => 4,
            Self::Eaw => 5,
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
        found.ok_or_else(|| format!("{name:?} is no policy: none, undo, inplace, inplace-partial or eaw"))
    }
}

impl std::fmt::Display for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What recovery of a heap with a full backup goes by: what was open when the program ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Intents {
    /// Zones are marked when they are written to after a time without writes: no barrier where that is often. Recovery compares them whole.
    #[default]
    Zones,
    /// Each transaction says in its log which ranges it is about to change (Kamino-Tx §3): a barrier more, one for ranges that are declared together. Recovery
    /// compares the zones of what was open alone.
    Objects,
}

/// What pools are called that have a heap and nothing else.
pub(crate) const LAYOUT: &str = "heap";

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
    pub(crate) max_bytes: Option<u64>,
    pub(crate) slots: usize,
    pub(crate) log_bytes: u64,
    pub(crate) zone_bytes: u64,
    pub(crate) alpha: Option<f64>,
    pub(crate) intents: Intents,
    pub(crate) blocks: HeapOptions,
    /// By default what the domain reads twice in well under a second.
    pub(crate) recovery_bytes: Option<u64>,
    pub(crate) batch: usize,
    pub(crate) checksum_max: u64,
    pub(crate) coordinator: bool,
    pub(crate) pool: pmem::Options,
    pub(crate) failpoints: Failpoints,
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
            max_bytes: None,
            slots: 64,
            log_bytes: 64 << 10,
            zone_bytes: 1 << 20,
            alpha: None,
            intents: Intents::default(),
            blocks: HeapOptions::default(),
            recovery_bytes: None,
            batch: 16,
            checksum_max: 2048,
            coordinator: true,
            pool: pmem::Options::new().layout(LAYOUT),
            failpoints: Failpoints::default(),
        }
    }

    /// How transactions are rolled back. By default in place for a new heap, and as it was for an old one.
    #[must_use]
    pub fn policy(self, policy: Policy) -> Self {
        Self { policy: Some(policy), ..self }
    }

    /// Bytes for objects at first; the heap grows by itself, up to [`max_bytes`](Self::max_bytes). In place needs as many again, or a part of it.
    #[must_use]
    pub fn bytes(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    /// Most bytes for objects to which the heap grows by itself; behind that an allocation fails with [`HeapFull`](pmem::Error::HeapFull). By default
    /// 1 GiB, or 16 times what it has when it is made or opened if that is more. [`Heap::grow`](crate::Heap::grow) goes beyond.
    #[must_use]
    pub fn max_bytes(self, bytes: u64) -> Self {
        Self { max_bytes: Some(bytes), ..self }
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

    /// Size of a partial backup (the paper's α) as a share of the bytes for objects: over 0, at most 1. By default a half for a new heap, and as it
    /// was for an old one; at open it may be changed. No transaction can change more existing objects than fit.
    #[must_use]
    pub fn alpha(self, alpha: f64) -> Self {
        Self { alpha: Some(alpha), ..self }
    }

    /// How recovery knows what was open, in place with a full backup. For this opening: either finds what the other has left.
    #[must_use]
    pub fn intents(self, intents: Intents) -> Self {
        Self { intents, ..self }
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

    /// Transactions of a slot that are applied together; fewer if they have written 16 KiB.
    #[must_use]
    pub fn batch(self, transactions: usize) -> Self {
        Self { batch: transactions.max(1), ..self }
    }

    /// Most bytes whose checksum is computed to save a barrier; larger transactions pay a second one. What [`put_bytes`](tx::Transaction::put_bytes) keeps beside until the
    /// commit, up to 16 KiB of a transaction, does not count.
    #[must_use]
    pub fn checksum_max(self, bytes: u64) -> Self {
        Self { checksum_max: bytes, ..self }
    }

    /// Whether a thread in the background applies slots that have gone idle. Without it, call [`Heap::apply_pending`](crate::Heap::apply_pending).
    #[must_use]
    pub fn coordinator(self, coordinator: bool) -> Self {
        Self { coordinator, ..self }
    }

    /// How the pool's file is opened: its domain, size reserved, latency model.
    #[must_use]
    pub fn pool(self, pool: pmem::Options) -> Self {
        Self { pool: pool.layout(LAYOUT), ..self }
    }

    /// Leaves a step of the protocol out.
    #[cfg(feature = "failpoints")]
    #[doc(hidden)]
    #[must_use]
    pub fn leave_out(self, step: crate::Step) -> Self {
        Self { failpoints: Failpoints(Some(step)), ..self }
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
        if let Some(alpha) = self.alpha
            && !(alpha > 0.0 && alpha <= 1.0)
        {
            return limit("millionths of the heap for copies (1 at least)", (alpha * 1e6) as u64, MILLION);
        }
        Ok(())
    }

    /// The share of a partial backup in millionths, if it is told.
    pub(crate) fn share(&self) -> Option<u64> {
        self.alpha.map(|alpha| ((alpha * MILLION as f64).round() as u64).clamp(1, MILLION))
    }
}

/// A share of all.
pub(crate) const MILLION: u64 = 1_000_000;

/// Smallest log: a few records and their mark.
const LOG_MIN: u64 = 2048;
