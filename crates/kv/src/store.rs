//! The handle: what programs call.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use pmem::{Domain, Pool};
use tx::Isolation;

use crate::Timestamp;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::media::key;
use crate::salvaged::Salvaged;
use crate::scan::Range;
use crate::stats::Stats;
use crate::txn::retry;
use crate::txn::scan::Scan;
use crate::txn::transaction::{Mode, Transaction};
use crate::upkeep::background::Background;
use crate::upkeep::sweep::Sweep;

/// An open store. Any number of threads use it at once, by reference.
///
/// Dropped, it is closed as by [`close`](Self::close), whose error is then a warning in the log and not told to anybody. It is left to be recovered at the next open if its
/// thread panics, in a forked child, after a failed sync, while a commit that was not waited for is under way, and if it is replicated.
///
/// ```
/// # fn main() -> kv::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let store = kv::Store::open(dir.path().join("shop.cairn"))?;
/// store.put("apples", "17")?;
/// assert_eq!(store.get("apples")?.as_deref(), Some(&b"17"[..]));
/// store.close()?;
/// # Ok(()) }
/// ```
pub struct Store {
    pub(crate) core: Arc<Core>,
    background: Option<Background>,
    /// Behind the others: they have let go of the core by then.
    closing: Closing,
}

/// Closes a store whose handle is dropped.
struct Closing(Option<Arc<Core>>);

impl Drop for Closing {
    fn drop(&mut self) {
        let Some(core) = self.0.take() else { return };
        // The commits of a replicated one are in its log, which says itself where it ends.
        if core.persistence.is_replicated() || !core.versions.pool().is_closed_on_drop() {
            return;
        }
        let path = core.versions.pool().path().to_owned();
        // A commit that is under way without its caller has it still.
        let Some(core) = Arc::into_inner(core) else { return };
        if let Err(error) = core.close() {
            tracing::warn!(%error, store = %path.display(), "a store that was dropped could not be closed; it is recovered when it is opened");
        }
    }
}

impl Store {
    pub(crate) fn start(core: Core) -> Result<Self> {
        core.versions.note_leaves();
        core.maintenance.note_nodes(&core.versions.space);
        let core = core.share();
        let background = Background::start(&core);
        let closing = Closing(Some(Arc::clone(&core)));
        Ok(Self { core, background, closing })
    }

    // ---- transactions -----------------------------------------------------------------------------------------

    /// Starts a transaction. [`Isolation::Serializable`] is strict here: it agrees with real time.
    ///
    /// # Errors
    /// [`Error::TooMany`].
    #[inline]
    pub fn begin(&self, isolation: Isolation) -> Result<Transaction<'_>> {
        Transaction::begin(&self.core, isolation, Mode::default())
    }

    /// What is committed by now, to read at leisure. It is never in conflict with anybody.
    ///
    /// ```
    /// # fn main() -> kv::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = kv::Store::open(dir.path().join("s"))?;
    /// store.put(b"apples", b"17")?;
    /// let before = store.snapshot()?;
    /// store.put(b"apples", b"16")?;
    /// assert_eq!(before.get(b"apples")?, Some(&b"17"[..]));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::TooMany`].
    #[inline]
    pub fn snapshot(&self) -> Result<Snapshot<'_>> {
        Ok(Snapshot(self.begin(Isolation::Snapshot)?))
    }

    /// Runs `f` in a serializable transaction until it commits. An `Err` of its own rolls back. With an error type of your own: [`transact_at`](Self::transact_at).
    ///
    /// # Errors
    /// What `f` returns; those of [`Transaction::commit`] but conflicts; [`Error::GaveUp`].
    pub fn transact<'s, R>(&'s self, f: impl FnMut(&mut Transaction<'s>) -> Result<R>) -> Result<R> {
        self.transact_at(Isolation::Serializable, f)
    }

    /// As [`transact`](Self::transact), at another level, and with errors of the caller's own type.
    ///
    /// # Errors
    /// As there.
    pub fn transact_at<'s, R, E>(
        &'s self,
        isolation: Isolation,
        f: impl FnMut(&mut Transaction<'s>) -> Result<R, E>,
    ) -> Result<R, E>
    where
        E: From<Error>,
    {
        retry::transact(&self.core, isolation, f)
    }

    // ---- one operation, a transaction of its own --------------------------------------------------------------

    /// The key's value, copied.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::TooMany`].
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.view(key, |value| value.map(<[u8]>::to_vec))
    }

    /// Shows the key's value to `look`, where it is.
    ///
    /// ```
    /// # fn main() -> kv::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = kv::Store::open(dir.path().join("s"))?;
    /// store.put(b"apples", b"17")?;
    /// assert_eq!(store.view(b"apples", |value| value.map(<[u8]>::len))?, Some(2));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`get`](Self::get).
    #[inline]
    pub fn view<R>(&self, key: impl AsRef<[u8]>, look: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        let key = key.as_ref();
        let pin = self.core.versions.pin()?;
        let seen = self.core.versions.read(&pin, key, key::hash(key), pin.snapshot, None, None)?;
        let now = crate::time::Now::default();
        Ok(look(seen.record.filter(|record| record.is_live(&now)).map(|record| record.value())))
    }

    /// Sets the key's value; true if it had one. One barrier. It waits for a transaction that writes the key: in conflict only with a transaction that
    /// holds the key for more than about ten seconds.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Limit`], [`Error::InDoubt`].
    #[inline]
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        self.put_bytes(key.as_ref(), value.as_ref())
    }

    #[inline]
    fn put_bytes(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        if let Some(had) = self.core.put_alone(key, value)? {
            return Ok(had);
        }
        self.alone(|tx| tx.put(key, value))
    }

    /// Sets the key's value, to be gone at a moment given in milliseconds of Unix time; true if it had one.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_until(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, expires: u64) -> Result<bool> {
        self.put_bytes_until(key.as_ref(), value.as_ref(), expires)
    }

    fn put_bytes_until(&self, key: &[u8], value: &[u8], expires: u64) -> Result<bool> {
        self.alone(|tx| tx.put_until(key, value, expires))
    }

    /// Sets the key's value, to be gone after this time; true if it had one.
    ///
    /// ```
    /// # fn main() -> kv::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = kv::Store::open(dir.path().join("s"))?;
    /// store.put_for(b"token", b"Ada", std::time::Duration::from_secs(60))?;
    /// assert!(store.snapshot()?.expires(b"token")?.is_some());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_for(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, time: Duration) -> Result<bool> {
        self.put_until(key, value, crate::time::after(time))
    }

    /// Removes the key; true if it had a value. One barrier, if it had.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    #[inline]
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.delete_bytes(key.as_ref())
    }

    #[inline]
    fn delete_bytes(&self, key: &[u8]) -> Result<bool> {
        self.alone(|tx| tx.delete(key))
    }

    /// Sets the key's value to `new`, or removes it, if it is `expected`; true if it was. One barrier, if it was.
    ///
    /// ```
    /// # fn main() -> kv::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = kv::Store::open(dir.path().join("s"))?;
    /// assert!(store.compare_and_set(b"leader", None, Some(b"a"))?);
    /// assert!(!store.compare_and_set(b"leader", None, Some(b"b"))?);
    /// assert!(store.compare_and_set(b"leader", Some(b"a"), None)?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn compare_and_set(&self, key: impl AsRef<[u8]>, expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<bool> {
        self.compare_and_set_bytes(key.as_ref(), expected, new)
    }

    fn compare_and_set_bytes(&self, key: &[u8], expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<bool> {
        self.alone(|tx| {
            if tx.get(key)? != expected {
                return Ok(false);
            }
            match new {
                Some(value) => tx.put(key, value)?,
                None => tx.delete(key)?,
            };
            Ok(true)
        })
    }

    /// A transaction about one key: it waits for the key's lock, the only one it takes, and then nothing can come in between.
    #[inline]
    fn alone<R>(&self, f: impl Fn(&mut Transaction<'_>) -> Result<R>) -> Result<R> {
        let once = || {
            let mode = Mode { locking: true, ..Mode::default() };
            let mut tx = Transaction::begin(&self.core, Isolation::Serializable, mode)?;
            let result = f(&mut tx)?;
            tx.finish()?;
            Ok(result)
        };
        let mut tried = crate::commit::room::Tried::default();
        loop {
            match once() {
                Err(error @ Error::Full { .. }) => self.core.committing().full_again(&mut tried, error, 0)?,
                other => return other,
            }
        }
    }

    /// Writes all of a batch, as a whole. One barrier.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn write(&self, batch: &Batch) -> Result<()> {
        retry::retry(&self.core, Isolation::Serializable, true, |tx: &mut Transaction<'_>| {
            for (key, value) in &batch.0 {
                match value {
                    Some((value, expires)) => match expires {
                        Some(at) => tx.put_until(key, value, *at)?,
                        None => tx.put(key, value)?,
                    },
                    None => tx.delete(key)?,
                };
            }
            Ok(())
        })
    }

    // ---- the whole --------------------------------------------------------------------------------------------

    /// Makes a checkpoint now: a restart then has nothing to read, and what is not needed any more is freed. Three barriers.
    ///
    /// # Errors
    /// Those of a drain; [`Error::Full`].
    pub fn checkpoint(&self) -> Result<()> {
        self.core.checkpointing().checkpoint()
    }

    /// Removes every key that has expired; returns how many. A store with a [background](crate::Options::background) thread does that by itself, some leaves at a
    /// time, so that an expired key is gone after a second for each half a million keys or so. One barrier for 256 keys.
    ///
    /// ```
    /// # fn main() -> kv::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = kv::Options::new().background(false).create(dir.path().join("s"))?;
    /// store.put_until(b"session", b"alice", 1)?; // the first millisecond of 1970
    /// assert_eq!(store.get(b"session")?, None);
    /// assert_eq!(store.sweep()?, 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`put`](Self::put); but what a full log of a replicated store refuses is not tried again for seconds: the keys are removed another time.
    pub fn sweep(&self) -> Result<u64> {
        let mut sweep = Sweep::default();
        let mut removed = 0;
        loop {
            removed += sweep.step(&self.core)?;
            if sweep.is_through() {
                return Ok(removed);
            }
        }
    }

    /// Tells transactions, snapshots and feeds that see the state of before `oldest` that they are too old: each gets [`Error::Expired`] at its next step, and what was
    /// kept for it is freed when it is dropped. Returns how many were not told before. Whatever `oldest` is, only those are told that are open: never one that begins when this
    /// has returned.
    ///
    /// ```
    /// # fn main() -> kv::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = kv::Store::open(dir.path().join("s"))?;
    /// let old = store.snapshot()?;
    /// store.put(b"apples", b"17")?;
    /// store.expire_before(store.stats().now);
    /// assert!(matches!(old.get(b"apples"), Err(kv::Error::Expired { .. })));
    /// assert!(store.snapshot()?.get(b"apples")?.is_some());
    /// # Ok(()) }
    /// ```
    pub fn expire_before(&self, oldest: Timestamp) -> usize {
        let count = self.core.versions.concurrency.active.expire(oldest.get());
        crate::stats::add(&self.core.counters.expired, count as u64);
        count
    }

    /// Makes every commit that has returned durable, if they are [bounded](crate::Durability). One barrier, if there are any. Those of a replicated store are, in its log;
    /// then it makes them durable in the store, too.
    ///
    /// # Errors
    /// [`Error::InDoubt`] if the barrier fails.
    pub fn sync(&self) -> Result<()> {
        self.core.force()
    }

    /// Commits that a crash would take now.
    #[must_use]
    pub fn at_risk(&self) -> u64 {
        self.core.persistence.at_risk()
    }

    /// Whether a commit waits for a device or for other machines: so long that a caller with more to do goes on meanwhile
    /// ([`commit_async`](crate::Transaction::commit_async)), and makes one transaction of what comes in.
    #[must_use]
    pub fn commits_wait(&self) -> bool {
        self.core.persistence.waits(self.core.versions.pool())
    }

    /// What survives when a commit has returned.
    #[must_use]
    pub fn effective_durability(&self) -> Domain {
        self.core.versions.pool().domain()
    }

    /// Counts.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let core = &self.core;
        let usage = core.versions.space.usage();
        let (active, oldest) = core.versions.concurrency.active.census();
        let commits = core.versions.writers.all.iter().map(|writer| writer.commits()).sum();
        Stats {
            entries: core.versions.index.entries(),
            commits,
            conflicts: core.counters.conflicts.load(Relaxed),
            active,
            oldest_snapshot: oldest.map(Timestamp::from),
            now: core.versions.now().into(),
            index_bytes: core.versions.index.memory(),
            index_bytes_in_use: core.versions.index.memory_in_use(),
            index_bytes_max: core.options.index_memory,
            file_bytes: core.versions.pool().size(),
            max_bytes: core.versions.pool().max_size(),
            live_bytes: usage.live,
            segment_bytes: core.versions.space.segment_bytes,
            segments: usage.segments,
            free_segments: usage.free,
            index_segments: usage.nodes,
            checkpoints: core.maintenance.checkpoints(),
            moved: core.maintenance.moved(),
            expired: core.counters.expired.load(Relaxed),
            swept: core.counters.swept.load(Relaxed),
            pool: core.versions.pool().stats(),
        }
    }

    /// What opening this store has given up: nothing unless it was damaged, and opened by [`Options::salvage`](crate::Options::salvage).
    ///
    /// ```
    /// # fn main() -> kv::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = kv::Options::new().salvage(true).create(dir.path().join("s"))?;
    /// assert!(store.salvaged().is_empty());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn salvaged(&self) -> &Salvaged {
        &self.core.salvaged
    }

    /// The pool it is in.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        self.core.versions.pool()
    }

    /// Makes a checkpoint and closes the pool, if this was its last handle.
    ///
    /// # Errors
    /// Those of a drain. The store is then recovered at the next open.
    pub fn close(mut self) -> Result<()> {
        drop(self.background.take()); // waits for its thread, which has the core
        self.closing.0 = None;
        Arc::into_inner(self.core).ok_or(pmem::Error::InUse { what: "the store".into() })?.close()
    }

    /// For tests: makes room ahead of puts, as the thread in the background does.
    ///
    /// # Errors
    /// Those of growing the pool; not that it is full.
    #[cfg(any(feature = "failpoints", feature = "testing"))]
    #[doc(hidden)]
    pub fn grow_ahead(&self) -> Result<()> {
        self.core.versions.space.grow_ahead(|| true)
    }

    /// For tests: drops it and leaves the file as a crash would.
    #[doc(hidden)]
    pub fn abandon(self) {
        self.core.versions.pool().abandon();
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({}, {} keys)", self.core.versions.pool().path().display(), self.core.versions.index.entries())
    }
}

/// A transaction that only reads.
#[derive(Debug)]
pub struct Snapshot<'s>(pub(crate) Transaction<'s>);

impl Snapshot<'_> {
    /// The key's value.
    ///
    /// # Errors
    /// [`Error::Expired`]; [`Error::Damaged`].
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<&[u8]>> {
        self.0.get(key)
    }

    /// Pairs of a range of keys, in order.
    pub fn scan(&self, range: Range) -> Scan<'_> {
        self.0.scan(range)
    }

    /// When the key expires, in milliseconds of Unix time; `None` if it has no value, or one that stays.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn expires(&self, key: impl AsRef<[u8]>) -> Result<Option<u64>> {
        self.0.expires(key)
    }

    /// Everything committed up to here is seen.
    #[must_use]
    pub fn timestamp(&self) -> Timestamp {
        self.0.snapshot()
    }
}

/// Changes to be made together: see [`Store::write`].
///
/// ```
/// # fn main() -> kv::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = kv::Store::open(dir.path().join("s"))?;
/// let mut batch = kv::Batch::new();
/// batch.put(b"apples", b"17").put(b"pears", b"3").delete(b"plums");
/// store.write(&batch)?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Batch(Vec<Change>);

/// A key, and its value with its end, or none.
type Change = (Vec<u8>, Option<(Vec<u8>, Option<u64>)>);

impl Batch {
    /// Of nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a key's value.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.0.push((key.as_ref().to_vec(), Some((value.as_ref().to_vec(), None))));
        self
    }

    /// Sets a key's value, to be gone at a moment given in milliseconds of Unix time.
    pub fn put_until(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, expires: u64) -> &mut Self {
        self.0.push((key.as_ref().to_vec(), Some((value.as_ref().to_vec(), Some(expires)))));
        self
    }

    /// Sets a key's value, to be gone after this time, counted from now.
    pub fn put_for(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, time: Duration) -> &mut Self {
        self.put_until(key, value, crate::time::after(time))
    }

    /// Removes a key.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.0.push((key.as_ref().to_vec(), None));
        self
    }

    /// How many changes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
