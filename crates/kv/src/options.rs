//! How a store is made and opened.

use std::sync::Arc;
use std::time::Duration;

use pmem::{Domain, Pool};

use crate::copies::Copies;
use crate::error::{Error, Result};

/// Options of a store.
///
/// ```
/// # fn main() -> kv::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let store = kv::Options::new().create(dir.path().join("shop.cairn"))?;
/// store.put(b"apples", b"17")?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) segment: u64,
    pub(crate) checkpoint_bytes: u64,
    pub(crate) spare: u32,
    pub(crate) transactions: usize,
    pub(crate) index_memory: u64,
    pub(crate) max_snapshot_age: Option<Duration>,
    pub(crate) background: bool,
    pub(crate) durability: Durability,
    pub(crate) copies: Option<Arc<Copies>>,
    /// None: as the domain has it.
    pub(crate) group_commit: Option<bool>,
    pub(crate) salvage: bool,
    pub(crate) verify: bool,
    pub(crate) progress: Progress,
    pub(crate) pool: pmem::Options,
    #[cfg(feature = "failpoints")]
    pub(crate) without: Option<crate::Step>,
    #[cfg(any(feature = "failpoints", feature = "testing"))]
    pub(crate) every: u32,
}

/// What a commit waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Its barrier: durable when it returns, and seen by no reader before.
    Durable,
    /// Nothing, unless more than this many commits would be at risk.
    Bounded(u32),
    /// A write quorum of the copies of the store's log: see `Options::replicated`, of the feature `replication`. Seen by no reader before.
    Replicated,
}

/// How far the opening of a store has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Opening {
    /// What is being read.
    pub part: Part,
    /// How much of it is done.
    pub done: u64,
    /// ... of how much.
    pub of: u64,
}

/// What the opening of a store reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// Keys in the index of the last checkpoint.
    Index,
    /// Segments of the logs behind it.
    Logs,
}

/// Whom to tell.
#[derive(Clone)]
pub(crate) struct Progress(Option<Arc<dyn Fn(Opening) + Send + Sync>>);

impl Progress {
    pub(crate) fn tell(&self, part: Part, done: u64, of: u64) {
        if let Some(tell) = &self.0 {
            tell(Opening { part, done, of });
        }
    }
}

impl std::fmt::Debug for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "told" } else { "not told" })
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// Segments of 1 MiB, a checkpoint every 32 MiB, up to 1024 transactions at once, no limit to the index.
    #[must_use]
    pub fn new() -> Self {
        Self {
            segment: 1 << 20,
            checkpoint_bytes: 32 << 20,
            spare: 100,
            transactions: 1024,
            index_memory: u64::MAX,
            max_snapshot_age: None,
            background: true,
            durability: Durability::Durable,
            copies: None,
            group_commit: None,
            salvage: false,
            verify: false,
            progress: Progress(None),
            pool: pmem::Options::new(),
            #[cfg(feature = "failpoints")]
            without: None,
            #[cfg(any(feature = "failpoints", feature = "testing"))]
            every: crate::media::watermark::EVERY,
        }
    }

    /// Bytes of a segment in a new store: space is taken and freed by segments. A multiple of 4096, from 4 KiB to 256 MiB.
    #[must_use]
    pub fn segment_bytes(self, bytes: u64) -> Self {
        Self { segment: bytes, ..self }
    }

    /// After how many bytes of new records a checkpoint is made, at most: small stores have checkpoints more often. More makes fewer writes and longer restarts.
    #[must_use]
    pub fn checkpoint_bytes(self, bytes: u64) -> Self {
        Self { checkpoint_bytes: bytes, ..self }
    }

    /// How much room versions that are no longer needed may take, beside what was written since the last checkpoint, before what stands between them is moved,
    /// in percent of what is needed: 100 by default, from 10 to 400. Less makes a smaller file and more writes: of a store whose keys were all overwritten at
    /// random, again and again, half a version was moved for each one put with 25, and none in thirty with 200. The file is smaller still with fewer bytes
    /// between [checkpoints](Self::checkpoint_bytes).
    ///
    /// ```
    /// # fn main() -> kv::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = kv::Options::new().spare_percent(25).checkpoint_bytes(8 << 20).create(dir.path().join("s"))?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn spare_percent(self, percent: u32) -> Self {
        Self { spare: percent.clamp(10, 400), ..self }
    }

    /// How many transactions can run at once; of 64 and more, each thread has one besides. The store's own work is none of them.
    #[must_use]
    pub fn transactions(self, most: usize) -> Self {
        Self { transactions: most, ..self }
    }

    /// Bytes of memory that the index may take: new keys are refused beyond.
    #[must_use]
    pub fn index_memory(self, bytes: u64) -> Self {
        Self { index_memory: bytes, ..self }
    }

    /// How old a transaction may become before it is told to end, for the sake of the versions that are kept for it: its next step is
    /// [`Error::Expired`]; what it has read stays until it is dropped. Needs the [background](Self::background) thread, which looks five times a second.
    #[must_use]
    pub fn max_snapshot_age(self, age: Option<Duration>) -> Self {
        Self { max_snapshot_age: age, ..self }
    }

    /// Whether a thread of the store makes the checkpoints; without, a thread that commits does.
    #[must_use]
    pub fn background(self, yes: bool) -> Self {
        Self { background: yes, ..self }
    }

    /// What a commit waits for.
    ///
    /// ```
    /// # fn main() -> kv::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use kv::{Durability, Options};
    /// let store = Options::new().durability(Durability::Bounded(100)).create(dir.path().join("s"))?;
    /// store.put(b"visits", b"1")?; // seen by all, and durable soon: a crash takes at most the last 100 commits
    /// store.sync()?; // now it takes none
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn durability(self, durability: Durability) -> Self {
        Self { durability, ..self }
    }

    /// Commits go through a log with these copies, and are durable when a write quorum of them has it: the store survives the loss of the others, and of this machine. On
    /// another one a [`Follower`](crate::Follower) has the same store, a moment later, and can be promoted. What is not about the log's size can be different at
    /// every open, and [`when_full`](log::Options::when_full) is the store's to decide; a transaction's record has to fit in one of its [segments](log::Options::segment_bytes).
    ///
    /// Making one makes the log, too. Opening takes the log over, and the previous leader is fenced; [`open_or_create`](Self::open_or_create) makes the store
    /// anew of the log if only the store is missing.
    ///
    /// ```no_run
    /// # fn main() -> kv::Result<()> {
    /// # let trust = log::fabric::Options::default();
    /// let copies = log::Replicas::new()
    ///     .local("/mnt/pmem/shop.log")
    ///     .at("backup-1:7400")
    ///     .at("backup-2:7400")
    ///     .write_quorum(2)
    ///     .trust(trust);
    /// let log = log::Options::new().bytes(256 << 20);
    /// let store = kv::Options::new().replicated(&copies, &log).open_or_create("/mnt/pmem/shop.cairn")?;
    /// store.put(b"apples", b"17")?; // on two machines when it returns
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "replication")]
    #[must_use]
    pub fn replicated(self, copies: &log::Replicas, log: &log::Options) -> Self {
        let copies = Copies { replicas: copies.clone(), log: crate::copies::refusing(log) };
        Self { durability: Durability::Replicated, copies: Some(Arc::new(copies)), ..self }
    }

    /// Of a store that follows.
    #[cfg(feature = "replication")]
    pub(crate) fn following(&self) -> Self {
        Self { durability: Durability::Replicated, copies: None, ..self.clone() }
    }

    /// Whether transactions that commit at the same time are written as one, to one log, with one barrier between them. Without, each thread has a log and barriers of its
    /// own. By default they are on a file, where a barrier is a sync, and not in persistent memory, where it takes less time than waiting for others; for
    /// [bounded](Durability::Bounded) commits, which wait for no barrier, never. Commits are made in order then: those behind a serializable transaction that has read a long
    /// range wait until that is validated.
    #[must_use]
    pub fn group_commit(self, yes: bool) -> Self {
        Self { group_commit: Some(yes), ..self }
    }

    /// Whether commits become visible in the order of their timestamps: where a commit waits for a device or other machines, so that readers need not; and where commits
    /// are numbered, so that a prefix by numbers is one by timestamps.
    pub(crate) fn orders(&self, domain: Domain) -> bool {
        self.groups(domain) || self.durability != Durability::Durable || domain == Domain::File
    }

    pub(crate) fn groups(&self, domain: Domain) -> bool {
        self.durability == Durability::Durable && self.group_commit.unwrap_or(domain == Domain::File)
    }

    /// Opens a store though something of it is lost, with what is left: on a copy, after everything else. Of a damaged log the part before the damage counts; a
    /// damaged index is made anew of all records that are whole, and then keys may come back that were deleted.
    #[must_use]
    pub fn salvage(self, yes: bool) -> Self {
        Self { salvage: yes, ..self }
    }

    /// Whether each read holds what it returns against its checksum: bytes that are corrupt are [`Error::Damaged`](crate::Error::Damaged) then, and never
    /// returned. It costs about as much as copying the value. Without, [`Store::check`](crate::Store::check) and [`Store::backup`](crate::Store::backup) find
    /// them.
    ///
    /// ```
    /// # fn main() -> kv::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = kv::Options::new().verify(true).open_or_create(dir.path().join("ledger"))?;
    /// store.put(b"balance", b"100")?;
    /// assert_eq!(store.get(b"balance")?.as_deref(), Some(&b"100"[..]));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn verify(self, yes: bool) -> Self {
        Self { verify: yes, ..self }
    }

    /// Told how far the opening of a store has come: now and then, and once at the end of each part.
    ///
    /// ```
    /// # fn main() -> kv::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let options = kv::Options::new().progress(|opening| eprintln!("{:?}: {} of {}", opening.part, opening.done, opening.of));
    /// let store = options.open_or_create(dir.path().join("shop.cairn"))?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn progress(self, tell: impl Fn(Opening) + Send + Sync + 'static) -> Self {
        Self { progress: Progress(Some(Arc::new(tell))), ..self }
    }

    /// How the pool is made and opened: domain, latency, address space.
    #[must_use]
    pub fn pool(self, pool: pmem::Options) -> Self {
        Self { pool, ..self }
    }

    /// Leaves a step of the protocol out.
    #[cfg(feature = "failpoints")]
    #[must_use]
    pub fn without(self, step: crate::Step) -> Self {
        Self { without: Some(step), ..self }
    }

    /// Commits of a log that its watermark may not have: few, so that short workloads write it.
    #[cfg(any(feature = "failpoints", feature = "testing"))]
    #[must_use]
    pub fn watermark_every(self, every: u32) -> Self {
        Self { every, ..self }
    }

    pub(crate) fn unmarked_max(&self) -> u32 {
        #[cfg(any(feature = "failpoints", feature = "testing"))]
        return self.every;
        #[cfg(not(any(feature = "failpoints", feature = "testing")))]
        crate::media::watermark::EVERY
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.durability == Durability::Replicated && self.copies.is_none() {
            let wanted = "at least 1: see `Options::replicated`, of the feature `replication`";
            return Err(Error::Option { what: "the number of copies of a replicated store's log", found: 0, wanted });
        }
        self.check_values()
    }

    pub(crate) fn check_values(&self) -> Result<()> {
        if !(4096..=256 << 20).contains(&self.segment) || !self.segment.is_multiple_of(4096) {
            let wanted = "a multiple of 4096 from 4 KiB to 256 MiB";
            return Err(Error::Option { what: "the length of a segment", found: self.segment, wanted });
        }
        if !(1..=1 << 16).contains(&self.transactions) {
            let found = self.transactions as u64;
            return Err(Error::Option { what: "the number of transactions", found, wanted: "from 1 to 65536" });
        }
        if self.durability == Durability::Bounded(0) {
            return Err(Error::Option { what: "the bound of durability", found: 0, wanted: "at least 1" });
        }
        Ok(())
    }

    /// Whether commits are of the kind that a put can make by itself: each with its barrier, in a log of its own, and seen when it is published.
    pub(crate) fn puts_alone(&self, pool: &Pool) -> bool {
        !self.orders(pool.domain()) && self.index_memory == u64::MAX && !pool.is_read_only()
    }
}
