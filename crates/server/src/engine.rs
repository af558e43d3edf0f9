//! What the server needs of a store: serializable transactions on ordered keys, whose values expire and have versions.
//!
//! Commands see [`Tx`] only, so the same ones run on [`kv`] and on a tree in a [`heap`](crate::tree).

use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;

pub use kv::Stage;
use pmem::ErrorKind;
pub use tx::Keys;

/// Why a transaction failed. The texts are the engine's own, and say what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another transaction came first: to be run again.
    #[error("{0}")]
    Conflict(String),
    /// To be run again, as it is.
    #[error("it is to be run again")]
    Again,
    /// All keys of these databases are to be removed in steps; for the server alone.
    #[error("it is to be done in steps")]
    Flush(Vec<u8>),
    /// It is to be run while no other transaction of a client is; for the server alone.
    #[error("it is to be run alone; send it alone, and not in a script that runs long")]
    Alone,
    /// It takes longer than it may on a thread that serves others; for the server alone.
    #[error("it takes too long for a thread that serves others")]
    TooLong,
    /// No room on the medium.
    #[error("{0}")]
    Full(String),
    /// No memory for more keys.
    #[error("{0}")]
    Memory(String),
    /// No room in the log that other machines have, too: one of them does not come along.
    #[error("{0}")]
    LogFull(String),
    /// A key or value longer than the store takes.
    #[error("{0}")]
    Limit(String),
    /// It may be durable or not: the barrier behind it failed.
    #[error("{0}")]
    InDoubt(String),
    /// Nothing of it is written: a barrier has failed before, and nothing is taken since.
    #[error("{0}")]
    Stopped(String),
    /// Another machine leads by now, or may. Nothing of it is written.
    #[error("{0}")]
    Elsewhere(String),
    /// Bytes on the medium are corrupt.
    #[error("{0}")]
    Damaged(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl Error {
    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Conflict(_) | Self::Again => ErrorKind::Retry,
            Self::Full(_) | Self::Memory(_) | Self::LogFull(_) => ErrorKind::Full,
            Self::Flush(_) | Self::Alone | Self::TooLong | Self::Limit(_) => ErrorKind::Misuse,
            Self::InDoubt(_) | Self::Stopped(_) | Self::Elsewhere(_) => ErrorKind::Reopen,
            Self::Damaged(_) => ErrorKind::Damaged,
            Self::Other(_) => ErrorKind::System,
        }
    }

    /// What to do next: [`ErrorKind::advice`] of its kind.
    pub fn advice(&self) -> &'static str {
        self.kind().advice()
    }
}

/// `Result` with an engine's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Called with each pair of a scan; says whether to go on.
pub type Visit<'v> = &'v mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>;

/// What runs in a transaction; more than once if it meets a conflict.
pub type Run<'r> = &'r mut dyn FnMut(&mut dyn Tx) -> Result<()>;

/// A commit on its way; it comes to its end whether or not this is awaited.
pub type Commit = Pin<Box<dyn Future<Output = Result<()>>>>;

/// Hears how far a commit has come, on any thread.
pub type Tell = Box<dyn Fn(Stage) + Send + Sync>;

/// A transaction. After an error it can only end.
pub trait Tx {
    /// Has what these keys need fetched from memory: they are about to be used.
    fn prefetch(&self, keys: &[&[u8]]) {
        let _ = keys;
    }

    /// The value of a key that has not expired.
    ///
    /// # Errors
    /// [`Error::Conflict`], [`Error::Damaged`].
    fn get(&self, key: &[u8]) -> Result<Option<&[u8]>>;

    /// Sets a value, which is gone at a moment in milliseconds of Unix time, or stays.
    ///
    /// # Errors
    /// [`Error::Conflict`], [`Error::Limit`], [`Error::Full`], [`Error::Memory`], [`Error::LogFull`].
    fn put(&mut self, key: &[u8], value: &[u8], expires: Option<u64>) -> Result<()>;

    /// Removes a key; true if it was there.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    fn delete(&mut self, key: &[u8]) -> Result<bool>;

    /// When the key expires; none if it is not there, or stays.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn expires(&self, key: &[u8]) -> Result<Option<u64>>;

    /// What is another one after each commit that set the key; none if it is not there, or was set by this transaction.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn version(&self, key: &[u8]) -> Result<Option<u64>>;

    /// Pairs in order of keys.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn scan(&self, keys: Keys, visit: Visit<'_>) -> Result<()>;
}

/// Counts of a store, for `INFO` and metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Its name.
    pub engine: &'static str,
    /// What survives when a reply was sent.
    pub survives: &'static str,
    /// Pairs in the store; a collection has one for each element.
    pub entries: u64,
    /// Commits since it was opened.
    pub commits: u64,
    /// Attempts that met conflicts.
    pub conflicts: u64,
    /// Bytes of memory the index takes.
    pub index_bytes: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of live records.
    pub live_bytes: u64,
    /// Barriers.
    pub barriers: u64,
    /// Bytes flushed to the medium.
    pub flushed_bytes: u64,
    /// Checkpoints.
    pub checkpoints: u64,
}

/// What is to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excess {
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Keys, whatever they hold.
    pub keys: u64,
}

impl Excess {
    /// Whether nothing is to go.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// A store.
pub trait Engine: Send + Sync + 'static {
    /// Runs `run` on a state that was committed; it cannot meet conflicts, and must not write.
    ///
    /// # Errors
    /// What `run` returns.
    fn read(&self, run: Run<'_>) -> Result<()>;

    /// Runs `run` until it commits; durable when it returns.
    ///
    /// # Errors
    /// What `run` returns; those of the commit.
    fn write(&self, run: Run<'_>) -> Result<()>;

    /// As [`read`](Self::read), once, and without waiting for another transaction that may take long. An engine whose reads wait for none has no other way.
    ///
    /// # Errors
    /// [`Error::Conflict`] where it would have to be tried again, or to wait; as `read`.
    fn try_read(&self, run: Run<'_>) -> Result<()> {
        self.read(run)
    }

    /// As [`write`](Self::write), once, and without waiting for another transaction that may take long. An engine that has no such way keeps a serving thread waiting.
    ///
    /// # Errors
    /// [`Error::Conflict`] where it would have to be tried again, or to wait; as `write`.
    fn try_write(&self, run: Run<'_>) -> Result<()> {
        self.write(run)
    }

    /// Runs `run` once, and commits: `here`, waiting for the barrier, or without keeping this thread waiting.
    ///
    /// # Errors
    /// What `run` returns, [`Error::Conflict`] among it; those of the commit are awaited.
    fn write_once(&self, run: Run<'_>, here: bool) -> Result<Commit>;

    /// As [`write_once`](Self::write_once), without keeping this thread waiting; `tell` hears how far the commit has come, if it does before it is over. Once it has heard something the commit
    /// meets no conflict any more. An engine whose commits have no stages tells nothing.
    ///
    /// # Errors
    /// As `write_once`.
    fn write_told(&self, run: Run<'_>, tell: Tell) -> Result<Commit> {
        drop(tell);
        self.write_once(run, false)
    }

    /// Removes some of what expired before a moment in milliseconds of Unix time; true if there may be more. A store that does so by itself has nothing to do.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn sweep(&self, now: u64) -> Result<bool> {
        let _ = now;
        Ok(false)
    }

    /// Whether a transaction waits for others at once, one that reads as well: for locks.
    fn waits(&self) -> bool {
        false
    }

    /// Whether a commit waits longer than it takes to hand work to another thread: for a sync, or for other machines.
    fn is_slow(&self) -> bool;

    /// Bytes of requests that one transaction can always hold.
    fn together_max(&self) -> usize {
        usize::MAX
    }

    /// Bytes of a value that is kept so as to be overwritten with what is to be removed, in a store that changes values in place: a full one has room for no other. None
    /// if it is no such store.
    fn spare_bytes(&self) -> usize {
        0
    }

    /// Bytes that a pair takes on the medium, with what stands before it, of a key and a value so long, which expires or stays.
    fn record_bytes(&self, key: usize, value: usize, expires: bool) -> u64 {
        let _ = expires;
        (key + value) as u64
    }

    /// Bytes of a key.
    fn key_max(&self) -> usize;

    /// Bytes of a value.
    fn value_max(&self) -> usize;

    /// An error if it takes no writes any more, whatever they are: until it is opened again.
    ///
    /// # Errors
    /// [`Error::Stopped`] once a barrier has failed.
    fn healthy(&self) -> Result<()>;

    /// Behind all that was acknowledged, for [`others_with`](Self::others_with); none of a store that is on this machine alone.
    fn position(&self) -> Option<u64> {
        None
    }

    /// How many other machines have all that is in front of a position where it survives a loss of power. What was acknowledged is on as many as the write quorum asks for.
    fn others_with(&self, position: u64) -> usize {
        let _ = position;
        0
    }

    /// How much is to go, so that there is room for what comes.
    fn excess(&self) -> Excess {
        Excess::default()
    }

    /// Makes room of what was removed.
    ///
    /// # Errors
    /// Those of a barrier.
    fn reclaim(&self) -> Result<()> {
        Ok(())
    }

    /// How it is doing.
    fn counts(&self) -> Counts;

    /// Makes everything durable that is not, and closes it.
    ///
    /// # Errors
    /// Those of a barrier.
    fn close(self: Box<Self>) -> Result<()>;
}

// ---- kv ---------------------------------------------------------------------------------------------------------

impl From<kv::Error> for Error {
    fn from(error: kv::Error) -> Self {
        use kv::Error as E;
        let text = error.to_string();
        match error {
            E::Conflict { .. } | E::TooMany { .. } | E::GaveUp { .. } => Self::Conflict(text),
            E::Full { .. } => Self::Full(text),
            E::IndexMemory { .. } => Self::Memory(text),
            E::Limit { .. } | E::TransactionTooLong { .. } => Self::Limit(text),
            E::LogFull { .. } => Self::LogFull(text),
            // The server that leads now has it, or none has a quorum.
            E::InDoubt { .. } | E::LogInDoubt { .. } | E::Log(_) => Self::InDoubt(text),
            E::Damaged { .. } | E::Lost { .. } | E::LostCommits { .. } => Self::Damaged(text),
            E::Pool(error) => error.into(),
            _ => Self::Other(text),
        }
    }
}

impl From<pmem::Error> for Error {
    fn from(error: pmem::Error) -> Self {
        use pmem::Error as E;
        let text = error.to_string();
        match error {
            E::NoSpace { .. } | E::HeapFull { .. } | E::Reserve { .. } | E::DirectoryFull { .. } => Self::Full(text),
            // Not at a commit: whose commit it was knows that it is in doubt.
            E::Poisoned | E::Sync { .. } => Self::Stopped(text),
            E::Damaged { .. } | E::Truncated { .. } | E::Unreadable { .. } => Self::Damaged(text),
            _ => Self::Other(text),
        }
    }
}

impl Tx for kv::Transaction<'_> {
    fn prefetch(&self, keys: &[&[u8]]) {
        kv::Transaction::prefetch(self, keys);
    }

    #[inline]
    fn get(&self, key: &[u8]) -> Result<Option<&[u8]>> {
        Ok(kv::Transaction::get(self, key)?)
    }

    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8], expires: Option<u64>) -> Result<()> {
        match expires {
            Some(at) => self.put_until(key, value, at)?,
            None => kv::Transaction::put(self, key, value)?,
        };
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool> {
        Ok(kv::Transaction::delete(self, key)?)
    }

    fn expires(&self, key: &[u8]) -> Result<Option<u64>> {
        Ok(kv::Transaction::expires(self, key)?)
    }

    fn version(&self, key: &[u8]) -> Result<Option<u64>> {
        Ok(kv::Transaction::version(self, key)?.map(kv::Timestamp::get))
    }

    fn scan(&self, keys: Keys, visit: Visit<'_>) -> Result<()> {
        for pair in kv::Transaction::scan(self, keys) {
            let (key, value) = pair?;
            if visit(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// What live records may have of the file, and the index of its memory, before some is to go; and how much more goes then, so that it does so rarely.
const FILE_PERCENT: u64 = 80;
const MEMORY_PERCENT: u64 = 97;
const MORE_PERCENT: u64 = 2;

/// What is to go of what is used, if that is more than so many hundredths of the most.
fn over(used: u64, most: u64, percent: u64) -> u64 {
    let hundredth = most / 100;
    if used > hundredth * percent { used - hundredth * (percent - MORE_PERCENT) } else { 0 }
}

/// Whether no other server can have been elected yet.
type Held = Arc<dyn Fn() -> bool + Send + Sync>;

/// A [`kv::Store`].
pub struct Kv {
    store: Arc<kv::Store>,
    slow: bool,
    held: Option<Held>,
}

impl std::fmt::Debug for Kv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kv").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Kv {
    /// The store, opened.
    #[must_use]
    pub fn new(store: kv::Store) -> Self {
        let slow = store.commits_wait();
        Self { store: Arc::new(store), slow, held: None }
    }

    /// A store that leads for as long as `held` says so. All others that have the store let go of it before it is closed.
    ///
    /// A read is answered only if `held` is true behind it: then no successor had been elected when it looked, so nothing that a successor has acknowledged can be missing in it. The same
    /// goes for what a transaction has read that wrote nothing. A commit is on a write quorum of copies none of which had promised to a successor; all the same it is said to be in doubt if
    /// `held` is false behind it, as what it tells beside that may be old.
    #[must_use]
    pub fn elected(store: Arc<kv::Store>, held: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        let slow = store.commits_wait();
        Self { store, slow, held: Some(Arc::new(held)) }
    }

    fn is_held(&self) -> bool {
        is_held(self.held.as_ref())
    }

    fn awaited(&self, commit: kv::Commit) -> Commit {
        let held = self.held.clone();
        Box::pin(async move {
            commit.await?;
            Self::committed(held.as_ref())
        })
    }

    /// A commit has returned.
    fn committed(held: Option<&Held>) -> Result<()> {
        if is_held(held) { Ok(()) } else { Err(Error::InDoubt(Self::lost())) }
    }

    fn lost() -> String {
        "this server does not lead any more; ask again in a moment".to_owned()
    }
}

fn is_held(held: Option<&Held>) -> bool {
    held.is_none_or(|held| held())
}

impl Engine for Kv {
    fn read(&self, run: Run<'_>) -> Result<()> {
        run(&mut self.store.begin(kv::Isolation::Snapshot)?)?;
        if self.is_held() { Ok(()) } else { Err(Error::Elsewhere(Self::lost())) }
    }

    fn write(&self, run: Run<'_>) -> Result<()> {
        self.store.transact_at(kv::Isolation::Serializable, |tx| run(tx))?;
        Self::committed(self.held.as_ref())
    }

    fn try_write(&self, run: Run<'_>) -> Result<()> {
        let mut tx = self.store.begin(kv::Isolation::Serializable)?;
        run(&mut tx)?;
        tx.commit()?;
        Self::committed(self.held.as_ref())
    }

    fn write_once(&self, run: Run<'_>, here: bool) -> Result<Commit> {
        if here {
            self.try_write(run)?;
            return Ok(Box::pin(std::future::ready(Ok(()))));
        }
        let mut tx = self.store.begin(kv::Isolation::Serializable)?;
        run(&mut tx)?;
        Ok(self.awaited(tx.commit_async()))
    }

    fn write_told(&self, run: Run<'_>, tell: Tell) -> Result<Commit> {
        let mut tx = self.store.begin(kv::Isolation::Serializable)?;
        run(&mut tx)?;
        Ok(self.awaited(tx.commit_async_told(tell)))
    }

    fn is_slow(&self) -> bool {
        self.slow
    }

    fn together_max(&self) -> usize {
        // What stands before each key and value takes room, too.
        self.store.transaction_max().map_or(usize::MAX, |max| max / 2)
    }

    fn record_bytes(&self, key: usize, value: usize, expires: bool) -> u64 {
        // A header, the moment, key and value: docs/format.md. Records begin at multiples of 16.
        (40 + 8 * u64::from(expires) + (key + value) as u64).next_multiple_of(16)
    }

    fn key_max(&self) -> usize {
        kv::KEY_MAX
    }

    fn value_max(&self) -> usize {
        kv::VALUE_MAX
    }

    fn healthy(&self) -> Result<()> {
        self.store.pool().check_usable()?;
        match self.store.check_leading() {
            Err(error) if self.held.is_some() => Err(Error::Elsewhere(error.to_string())),
            Ok(()) if !self.is_held() => Err(Error::Elsewhere(Self::lost())),
            other => Ok(other?),
        }
    }

    fn position(&self) -> Option<u64> {
        Some(self.store.leader_status().ok()?.next)
    }

    fn others_with(&self, position: u64) -> usize {
        let Ok(status) = self.store.leader_status() else { return 0 };
        status.copies.iter().filter(|copy| copy.live && copy.through.saturating_add(1) >= position).count()
    }

    fn excess(&self) -> Excess {
        let stats = self.store.stats();
        // Of a file that is nearly full of live records each freed segment costs the copy of many.
        let live = stats.live_bytes + stats.index_segments * stats.segment_bytes;
        let index = over(stats.index_bytes_in_use, stats.index_bytes_max, MEMORY_PERCENT);
        let each = stats.index_bytes_in_use / stats.entries.max(1);
        Excess { bytes: over(live, stats.max_bytes, FILE_PERCENT), keys: index.div_ceil(each.max(1)) }
    }

    /// Until a checkpoint what was removed counts as if it were there.
    fn reclaim(&self) -> Result<()> {
        Ok(self.store.checkpoint()?)
    }

    fn counts(&self) -> Counts {
        counts(&self.store)
    }

    fn close(self: Box<Self>) -> Result<()> {
        let shared = || Error::Other("the store is used elsewhere in this process, and cannot be closed".to_owned());
        Ok(Arc::into_inner(self.store).ok_or_else(shared)?.close()?)
    }
}

fn counts(store: &kv::Store) -> Counts {
    let stats = store.stats();
    Counts {
        engine: "kv",
        survives: store.effective_durability().survives(),
        entries: stats.entries,
        commits: stats.commits,
        conflicts: stats.conflicts,
        index_bytes: stats.index_bytes,
        file_bytes: stats.file_bytes,
        live_bytes: stats.live_bytes,
        barriers: stats.pool.drains,
        flushed_bytes: stats.pool.media_bytes(),
        checkpoints: stats.checkpoints,
    }
}

/// A store that follows: for the users in it. It takes no writes.
#[derive(Debug)]
pub struct Following(Arc<kv::Follower>);

impl Following {
    /// The follower goes on when this is closed.
    #[must_use]
    pub fn new(follower: Arc<kv::Follower>) -> Self {
        Self(follower)
    }

    fn refused() -> Error {
        Error::Elsewhere("this server follows, and takes no writes".to_owned())
    }
}

impl Engine for Following {
    fn read(&self, run: Run<'_>) -> Result<()> {
        run(&mut self.0.store().begin(kv::Isolation::Snapshot)?)
    }

    fn write(&self, _: Run<'_>) -> Result<()> {
        Err(Self::refused())
    }

    fn write_once(&self, _: Run<'_>, _: bool) -> Result<Commit> {
        Err(Self::refused())
    }

    fn is_slow(&self) -> bool {
        true
    }

    fn key_max(&self) -> usize {
        kv::KEY_MAX
    }

    fn value_max(&self) -> usize {
        kv::VALUE_MAX
    }

    fn healthy(&self) -> Result<()> {
        Ok(self.0.store().pool().check_usable()?)
    }

    fn counts(&self) -> Counts {
        counts(self.0.store())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
