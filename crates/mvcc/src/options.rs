//! How a store is made and opened.

use pmem::HeapOptions;
use tx::{Error, Procedure, Result};

use crate::calls::Registered;
use crate::failpoints::Failpoints;
use crate::procedures::{self, Known};
use crate::state::{LOG_MAX, SLOTS_MAX, are_log_bytes};

/// What pools are called that have a store and nothing else.
pub(crate) const LAYOUT: &str = "mvcc";

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
    pub(crate) copy_bytes: u64,
    pub(crate) procedures: Vec<Registered>,
    pub(crate) blocks: HeapOptions,
    pub(crate) background: bool,
    pub(crate) pool: pmem::Options,
    pub(crate) failpoints: Failpoints,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// 64 MiB for objects, 64 slots with logs of 256 KiB, 4 MiB for copies.
    pub fn new() -> Self {
        Self {
            bytes: 64 << 20,
            max_bytes: None,
            slots: 64,
            log_bytes: 256 << 10,
            copy_bytes: 4 << 20,
            procedures: Vec::new(),
            blocks: HeapOptions::default(),
            background: true,
            pool: pmem::Options::new().layout(LAYOUT),
            failpoints: Failpoints::default(),
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

    /// Bytes of the log of copies, a multiple of 64, 4096 at least: what calls have changed is copied there before their records are given up. The longer, the more often an object may be
    /// changed by calls before it is copied once. Calls that find no room log what they change.
    #[must_use]
    pub fn copy_bytes(self, copy_bytes: u64) -> Self {
        Self { copy_bytes, ..self }
    }

    /// Has calls of `P` logged as such, where that writes fewer lines: its name and arguments in place of what it changes. Only procedures that [`encode`](Procedure::encode) their
    /// arguments, and are not of level [`Snapshot`](tx::Isolation::Snapshot). A store whose logs hold calls opens with the same procedures only.
    ///
    /// ```
    /// # fn main() -> tx::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use mvcc::{Mvcc, Options};
    /// use pmem::{PPtr, bytes_of, from_bytes};
    /// use tx::{Engine, Error, Isolation, Procedure, Result, Transaction, Typed};
    ///
    /// /// Adds to all of them.
    /// struct Raise;
    ///
    /// impl Procedure for Raise {
    ///     const NAME: &'static str = "raise";
    ///     type Args = (PPtr<[u64; 100]>, u64);
    ///     type Output = ();
    ///
    ///     fn run<X: Transaction>(tx: &mut X, &(sums, by): &Self::Args) -> Result<()> {
    ///         tx.write(sums)?.iter_mut().for_each(|sum| *sum += by);
    ///         Ok(())
    ///     }
    ///
    ///     fn encode(&(sums, by): &Self::Args, out: &mut Vec<u8>) -> bool {
    ///         out.extend_from_slice(bytes_of(&sums));
    ///         out.extend_from_slice(bytes_of(&by));
    ///         true
    ///     }
    ///
    ///     fn replay<X: Transaction>(tx: &mut X, args: &[u8]) -> Result<()> {
    ///         let args = args.split_at_checked(8).and_then(|(at, by)| Some((from_bytes(at)?, from_bytes(by)?)));
    ///         Self::run(tx, &args.ok_or(Error::Aborted { reason: "no arguments".into() })?)
    ///     }
    /// }
    ///
    /// let options = Options::new().bytes(1 << 20).procedure::<Raise>();
    /// let store = Mvcc::create(dir.path().join("sums"), &options)?;
    /// let sums = store.transact(Isolation::Serializable, |tx| tx.alloc(&[1u64; 100]))?;
    /// store.call::<Raise>(&(sums, 2))?; // a record of 64 bytes, in place of 800
    /// assert_eq!(store.stats().calls, 1);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn procedure<P: Procedure>(mut self) -> Self {
        self.procedures.push(Registered::of::<P>());
        self
    }

    /// How blocks are laid out.
    #[must_use]
    pub fn blocks(self, blocks: HeapOptions) -> Self {
        Self { blocks, ..self }
    }

    /// Whether a thread in the background writes objects back, fifty times in a second. Without it committing threads do, when their logs are half full, and [`Mvcc::write_back`](crate::Mvcc::write_back).
    #[must_use]
    pub fn background(self, background: bool) -> Self {
        Self { background, ..self }
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
    pub fn without(self, step: crate::Step) -> Self {
        Self { failpoints: Failpoints(Some(step)), ..self }
    }

    /// What its procedures are known by.
    pub(crate) fn known(&self) -> Vec<Known> {
        self.procedures.iter().map(|procedure| procedure.known).collect()
    }

    pub(crate) fn check(&self) -> Result<()> {
        let limit = |what, found, max| Err(Error::Limit { what, found, max });
        if self.slots == 0 || self.slots as u64 > SLOTS_MAX {
            return limit("slots (1 at least)", self.slots as u64, SLOTS_MAX);
        }
        if !are_log_bytes(self.log_bytes) {
            return limit("bytes per log (4096 at least, a multiple of 64)", self.log_bytes, LOG_MAX);
        }
        if !are_log_bytes(self.copy_bytes) {
            return limit("bytes for copies (4096 at least, a multiple of 64)", self.copy_bytes, LOG_MAX);
        }
        procedures::check(&self.known())
    }
}
