//! The same store on another machine: it serves a copy of the log, and has what is committed there a moment later.
//!
//! A thread reads the copy and repeats commits, in their order. A leader uses space in the log again only when the thread that reads it has
//! [released](log::Replica::release) it, which here is when its commits are durable in the store: so the store, with the log behind it, has everything at any
//! time, and a promotion replays what is left.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::JoinHandle;
use std::time::Duration;

use log::{Cursor, Log, Lsn, Replica, ReplicaStatus};
use parking_lot::{Condvar, Mutex};

use crate::Step;
use crate::copies::refusing;
use crate::error::{Error, Result};
use crate::media::origin;
use crate::options::Options;
use crate::repeat;
use crate::replica::steward;
use crate::store::{Snapshot, Store};

/// Bytes of the log that are repeated before anybody is looked after.
const BATCH: usize = 1 << 20;
/// Address space for the pool of a log.
const LOG_MAX: u64 = 1 << 40;
/// Longest sleep of the thread when there is nothing to repeat: it is woken when something comes, or when it is to end.
const IDLE: Duration = Duration::from_secs(1);

/// A store that follows a replicated one: it serves a copy of the log, is read, and can be promoted.
///
/// What it shows is always what was committed up to some moment, most often the last one or, when nothing more comes, after the leader's silence of 100 ms.
///
/// Of the same size as its leader it finds room for what that has found room for: a leader leaves a thirty-second of its store for that. It may still find
/// none, when its disk is full, it is smaller, a reader keeps a snapshot of it, or values are about as long as segments, which it cannot pack as well. Then it
/// says so ([`FollowerStatus::full`]), waits and tries again; its copy of the log keeps what comes, and its leader waits for it when that is full, as for any
/// copy that does not come along. If the leader gives it up, and its log goes on without what this one has not, the follower fails with [`Error::Behind`]. Its
/// program then brings a seed of the leader's store, and [begins with it](Follower::begin_with): nothing here does so by itself.
///
/// ```
/// # fn main() -> kv::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = |name: &str| dir.path().join(name);
/// use log::fabric::{self, Secret};
/// let secret = Secret::new(b"what all of them know").map_err(log::Error::from)?;
/// let trust = fabric::Options { secret: Some(secret), ..Default::default() };
///
/// // On two backup machines.
/// let one = kv::Follower::serve(path("one"), path("one.log"), "127.0.0.1:0", &trust)?;
/// let two = kv::Follower::serve(path("two"), path("two.log"), "127.0.0.1:0", &trust)?;
///
/// // On the machine that leads.
/// let copies = log::Replicas::new().local(path("here.log")).at(&one.address()).at(&two.address());
/// let copies = copies.write_quorum(2).trust(trust.clone());
/// let log = log::Options::new().bytes(1 << 20);
/// let store = kv::Options::new().replicated(&copies, &log).create(path("here"))?;
/// store.put(b"apples", b"17")?; // in two logs at least when it returns
/// drop(store); // the machine is lost
///
/// // On the first backup machine.
/// let copies = log::Replicas::new().at(&two.address()).trust(trust);
/// let store = one.promote(&copies, &log)?;
/// assert_eq!(store.get(b"apples")?.as_deref(), Some(&b"17"[..]));
/// store.put(b"apples", b"16")?;
/// # Ok(()) }
/// ```
pub struct Follower {
    running: Running,
    shared: Arc<Shared>,
    log: PathBuf,
    options: Options,
    trust: log::fabric::Options,
}

/// A follower that was to lead and does not. Nothing of it is lost: it can follow again, or be dropped, which closes its store.
#[derive(Debug)]
pub struct NotPromoted {
    /// Why.
    pub error: Error,
    store: Option<Store>,
    log: PathBuf,
    address: String,
    options: Options,
    trust: log::fabric::Options,
    holds: bool,
}

impl std::fmt::Display for NotPromoted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for NotPromoted {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl From<Box<NotPromoted>> for Error {
    fn from(not: Box<NotPromoted>) -> Self {
        not.error
    }
}

impl NotPromoted {
    /// Follows again, where it did, with the store as it is.
    ///
    /// # Errors
    /// What it failed with, if it has no store any more; those of [`Replica::serve`].
    pub fn follow(self) -> Result<Follower> {
        let Some(store) = self.store else { return Err(self.error) };
        Follower::start(store, self.options, self.log, &self.address, self.trust, self.holds)
    }
}

/// The thread, until this is dropped.
struct Running {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    store: Store,
    replica: Replica,
    /// The last commit that readers see: the store draws its number before.
    commits: AtomicU64,
    stop: AtomicBool,
    /// What it failed with. The copy is served on, and holds no leader up unless it is said to.
    failed: Mutex<Option<Error>>,
    has_failed: AtomicBool,
    /// There is no room for the next commit.
    is_full: AtomicBool,
    /// Why not, for people to read.
    why_full: Mutex<String>,
    over: Condvar,
    /// The copy holds the log also when the store does not follow any more.
    holds: bool,
}

/// Of the copy of a log, which is as long as that log is, however long the store may be.
fn of_log(pool: &pmem::Options) -> pmem::Options {
    pool.clone().max_size(LOG_MAX)
}

/// How far a follower is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FollowerStatus {
    /// Its last commit, which its readers see: they are counted from 1.
    pub commits: u64,
    /// Its copy of the log; none before a leader has taken it in.
    pub log: Option<ReplicaStatus>,
    /// It has found no room for its next commit, and tries again every second: see [`Follower`].
    pub full: bool,
}

impl Follower {
    /// Serves the copy of the log in the pool at `log` to its leader, at `address`, and keeps the store at `path` in step; makes both if nothing is there. A store of a
    /// leader that has committed much already begins with a [seed](Store::seed) of it.
    ///
    /// # Errors
    /// Those of [`Options::open`] and [`Replica::serve`].
    pub fn serve(
        path: impl AsRef<Path>,
        log: impl AsRef<Path>,
        address: &str,
        trust: &log::fabric::Options,
    ) -> Result<Self> {
        Self::serve_with(&Options::new(), path, log, address, trust)
    }

    /// The same, with a store of these options. The copy's pool has the options of the store's, but for its longest size.
    ///
    /// # Errors
    /// As [`serve`](Self::serve).
    pub fn serve_with(
        options: &Options,
        path: impl AsRef<Path>,
        log: impl AsRef<Path>,
        address: &str,
        trust: &log::fabric::Options,
    ) -> Result<Self> {
        Self::open(options, path.as_ref(), log.as_ref(), address, trust, false)
    }

    /// The same for a store that can be [brought here anew](Self::fetch_seed): while it is [behind](Error::Behind), its copy of the log keeps what has come since it joined. A leader waits for it then
    /// when the log is full, for its `stall_timeout` or, if the write quorum needs the copy, longer; so whatever a quorum has acknowledged is in the logs and stores of a quorum all the time,
    /// and the seed and the log meet.
    ///
    /// # Errors
    /// As [`serve`](Self::serve).
    pub fn serve_holding(
        options: &Options,
        path: impl AsRef<Path>,
        log: impl AsRef<Path>,
        address: &str,
        trust: &log::fabric::Options,
    ) -> Result<Self> {
        Self::open(options, path.as_ref(), log.as_ref(), address, trust, true)
    }

    fn open(
        options: &Options,
        path: &Path,
        log: &Path,
        address: &str,
        trust: &log::fabric::Options,
        holds: bool,
    ) -> Result<Self> {
        let options = options.following();
        let store = options.open_or_make(path)?;
        Self::start(store, options, log.to_owned(), address, trust.clone(), holds)
    }

    fn start(
        store: Store,
        options: Options,
        log: PathBuf,
        address: &str,
        trust: log::fabric::Options,
        holds: bool,
    ) -> Result<Self> {
        let replica = Replica::serve_read(&of_log(&options.pool), &log, address, trust.clone())?;
        Self::start_on(store, replica, options, log, trust, holds)
    }

    /// With a copy that is served already.
    fn start_on(
        store: Store,
        replica: Replica,
        options: Options,
        log: PathBuf,
        trust: log::fabric::Options,
        holds: bool,
    ) -> Result<Self> {
        let (stop, failed) = (AtomicBool::new(false), Mutex::new(None));
        let (has_failed, is_full) = (AtomicBool::new(false), AtomicBool::new(false));
        let commits = store.core.persistence.last().into();
        let (over, why_full) = (Condvar::new(), Mutex::default());
        let shared =
            Arc::new(Shared { store, replica, commits, stop, failed, has_failed, is_full, why_full, over, holds });
        let here = Arc::clone(&shared);
        let path = shared.store.core.versions.pool().path().to_owned();
        let name = std::thread::Builder::new().name("cairn-kv-follow".into());
        let thread = name
            .spawn(move || here.run())
            .map_err(|source| Error::Pool(pmem::Error::Io { op: "start a thread for", path, source }))?;
        let running = Running { shared: Arc::clone(&shared), thread: Some(thread) };
        Ok(Self { running, shared, log, options, trust })
    }

    /// The store, to be read: writing is [`Error::Follows`].
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    /// What is committed by now, as far as it is known here.
    ///
    /// # Errors
    /// [`Error::TooMany`].
    pub fn snapshot(&self) -> Result<Snapshot<'_>> {
        self.shared.store.snapshot()
    }

    /// Where the copy of the log is reached.
    #[must_use]
    pub fn address(&self) -> String {
        self.shared.replica.address().map(|address| address.to_string()).unwrap_or_default()
    }

    /// How far it is.
    #[must_use]
    pub fn status(&self) -> FollowerStatus {
        FollowerStatus {
            commits: self.shared.commits.load(Acquire),
            log: self.shared.replica.status(),
            full: self.shared.is_full.load(Acquire),
        }
    }

    /// Why there is no room for the next commit, if there is none ([`FollowerStatus::full`]): the disk is full, or the store may not grow.
    #[must_use]
    pub fn why_full(&self) -> Option<String> {
        self.shared.is_full.load(Acquire).then(|| self.shared.why_full.lock().clone())
    }

    /// Waits until it fails, or for this long; true if it goes on.
    ///
    /// # Errors
    /// What it failed with, once: [`Error::Behind`] if its store needs what the log has no more. Its copy of the log is served on, but not for what that copy failed with.
    pub fn wait(&self, limit: Duration) -> Result<bool> {
        let mut failed = self.shared.failed.lock();
        if failed.is_none() {
            self.shared.over.wait_for(&mut failed, limit);
        }
        match failed.take() {
            Some(error) => Err(error),
            None => Ok(!self.shared.stop.load(Acquire)),
        }
    }

    /// True once it has failed, and repeats nothing any more: what with, [`wait`](Self::wait) says.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.shared.has_failed.load(Acquire)
    }

    /// Makes this the store that leads: the previous leader is fenced, and everything that was acknowledged there is here. `copies` are the others, its own is added.
    ///
    /// # Errors
    /// As [`Options::open`] of a replicated store; with what is needed to [follow again](NotPromoted::follow).
    pub fn promote(self, copies: &log::Replicas, log: &log::Options) -> std::result::Result<Store, Box<NotPromoted>> {
        self.lead(copies, log, |log, copies| Ok(log.open_replicated(copies)?.0))
    }

    /// Makes the log, of its own copy and the others, which are new, and leads it: the first of a group of machines.
    ///
    /// # Errors
    /// As [`Options::create`] of a replicated store; with what is needed to [follow again](NotPromoted::follow).
    pub fn found(self, copies: &log::Replicas, log: &log::Options) -> std::result::Result<Store, Box<NotPromoted>> {
        self.lead(copies, log, |log, copies| Ok(log.create_replicated(copies)?))
    }

    fn lead(
        self,
        copies: &log::Replicas,
        log: &log::Options,
        open: impl FnOnce(&log::Options, &log::Replicas) -> Result<Log>,
    ) -> std::result::Result<Store, Box<NotPromoted>> {
        let copies = copies.clone().local(&self.log);
        let log = refusing(log).pool(of_log(&self.options.pool));
        let (address, at) = (self.address(), self.log.clone());
        let (options, trust, holds) = (self.options.clone(), self.trust.clone(), self.shared.holds);
        let not = |error, store| Box::new(NotPromoted { error, store, log: at, address, options, trust, holds });
        let (store, replica) = match self.end() {
            Ok((store, replica, None)) => (store, replica),
            // It meets that again when it follows, and says so.
            Ok((store, _, Some(error))) => return Err(not(error, Some(store))),
            Err(error) => return Err(not(error, None)),
        };
        let led = replica.stop().map_err(Error::from).and_then(|()| open(&log, &copies));
        match led.and_then(|led| repeat::take_over(&store.core, led)) {
            Ok(()) => Ok(store),
            Err(error) => Err(not(error, Some(store).filter(|store| store.core.persistence.leading().is_err()))),
        }
    }

    /// Brings a [seed](Store::seed) of the store that leads here, beside this one's, whose [`Steward`](crate::Steward) answers at `leader` (host and port): for a follower that is too far
    /// [behind](Error::Behind). The copy of the log is served meanwhile. Ends with an error as soon as `is_over` says so.
    ///
    /// # Errors
    /// [`Error::Follows`] if it knows no log yet; those of the network and of the disk; what the leader answers.
    pub fn fetch_seed(&self, leader: &str, is_over: &dyn Fn() -> bool) -> Result<PathBuf> {
        let Some(status) = self.shared.replica.status() else { return Err(Error::Follows) };
        let to = steward::beside(self.shared.store.core.versions.pool().path(), ".taken");
        // What came of one that did not come whole takes room, and is of no use.
        let fetched = steward::fetch(leader, &self.trust, status.log, &to, is_over);
        fetched.inspect_err(|_| drop(std::fs::remove_file(&to)))?;
        Ok(to)
    }

    /// Follows on with a store that was [brought](Self::fetch_seed) here, in the place of its own; the copy of the log is served on. A crash meanwhile leaves one of them.
    ///
    /// # Errors
    /// Those of the disk; as [`serve`](Self::serve).
    pub fn begin_with(self, seed: &Path) -> Result<Self> {
        let (options, log, trust, holds) =
            (self.options.clone(), self.log.clone(), self.trust.clone(), self.shared.holds);
        let (store, replica, failed) = self.end()?;
        drop(failed); // it is why there is a seed
        let path = store.core.versions.pool().path().to_owned();
        store.close()?;
        let io = |op, source| Error::Pool(pmem::Error::Io { op, path: path.clone(), source });
        std::fs::rename(seed, &path).map_err(|error| io("put a seed at the place of", error))?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::fs::File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(|error| io("sync the folder of", error))?;
        Self::start_on(options.open_or_make(&path)?, replica, options, log, trust, holds)
    }

    /// Stops serving, makes the store durable as far as it is, and closes both, also if one of them has failed.
    ///
    /// # Errors
    /// What it failed with, if no caller was told; those of [`Store::close`], which come before [`Error::Behind`].
    pub fn stop(self) -> Result<()> {
        let (store, replica, failed) = self.end()?;
        let (stopped, closed) = (replica.stop(), store.close());
        let closed = stopped.map_err(Error::from).and(closed);
        match failed {
            None => closed,
            Some(behind @ Error::Behind { .. }) => closed.and(Err(behind)),
            Some(error) => Err(error),
        }
    }

    /// The thread ends. What it failed with, too, if no caller was told.
    fn end(self) -> Result<(Store, Replica, Option<Error>)> {
        drop(self.running);
        let Shared { store, replica, failed, .. } =
            Arc::into_inner(self.shared).ok_or(pmem::Error::InUse { what: "the follower".into() })?;
        Ok((store, replica, failed.into_inner()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.stop.store(true, Release);
        self.shared.replica.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic in it was said
        }
    }
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Follower({:?}, {:?})", self.store(), self.status())
    }
}

/// What became of a commit that is to be repeated.
enum Applied {
    Yes,
    /// The thread is to end before there is room for it.
    Ends,
    /// The log does not reach back to it any more.
    Overtaken,
}

impl Shared {
    /// Repeats what is committed, until it is told to stop.
    fn run(&self) {
        let mut cursor = Cursor::default();
        loop {
            // Before all that it may change.
            let seen = self.replica.news();
            if self.stop.load(Acquire) {
                break;
            }
            match self.repeat(&mut cursor) {
                Ok(true) => {}
                Ok(false) => self.replica.await_news(seen, IDLE),
                Err(error) => {
                    self.fail(error);
                    break;
                }
            }
        }
    }

    /// True if there was something to do.
    fn repeat(&self, cursor: &mut Cursor) -> Result<bool> {
        let core = &*self.store.core;
        self.replica.wait(Duration::ZERO)?;
        let records = match self.replica.read(cursor, BATCH) {
            // The first commit that there is says what is missing.
            Err(log::Error::Overtaken { .. }) => {
                *cursor = Cursor::default();
                self.replica.read(cursor, BATCH)?
            }
            read => read?,
        };
        if !records.is_empty()
            && let Some(log) = self.replica.status()
        {
            origin::set_origin(core.versions.pool(), log.log)?;
        }
        for (lsn, record) in &records {
            match self.apply(record, *lsn)? {
                Applied::Yes => {}
                Applied::Ends => return Ok(false),
                Applied::Overtaken => {
                    // What the log begins with says what is missing.
                    *cursor = Cursor::default();
                    return Ok(true);
                }
            }
        }
        // Behind an overtaken commit nothing may have come yet: there is no more room for that.
        if !records.is_empty() {
            self.is_full.store(false, Release);
        }
        self.release_before(cursor.position())?;
        Ok(!records.is_empty())
    }

    /// Repeats one, as soon as there is room for it: in the file, on the disk, or behind a reader.
    fn apply(&self, record: &[u8], lsn: Lsn) -> Result<Applied> {
        let core = &*self.store.core;
        loop {
            let error = match repeat::apply(core, record, lsn) {
                Ok(number) => {
                    self.commits.fetch_max(number, Release);
                    return Ok(Applied::Yes);
                }
                Err(error @ Error::Full { .. }) => error,
                Err(error) => return Err(error),
            };
            // Before it shows: a caller that sees that it is full finds the reason.
            *self.why_full.lock() = self.why(&error);
            if !self.is_full.swap(true, AcqRel) {
                tracing::error!(%error, store = %core.versions.pool().path().display(), "the store has no room for what its leader has committed; it is tried again every second");
            }
            let seen = self.replica.news();
            if self.stop.load(Acquire) {
                return Ok(Applied::Ends);
            }
            // The leader has given this one up, and gone on: what it has taken out since makes no room here, but in a seed of its store.
            if self.replica.status().is_some_and(|log| log.head > lsn) {
                return Ok(Applied::Overtaken);
            }
            // What was repeated before holds no writer up.
            self.release_before(lsn)?;
            self.replica.await_news(seen, IDLE);
            self.replica.wait(Duration::ZERO)?;
            if let Err(error) = core.checkpointing().rescue() {
                tracing::debug!(%error, "a checkpoint failed while a follower has no room");
            }
        }
    }

    /// What is to be made larger, or emptied.
    fn why(&self, error: &Error) -> String {
        let pool = self.store.core.versions.pool();
        let path = pool.path();
        match error {
            Error::Full { wanted, size, .. } if size.saturating_add(*wanted) <= pool.max_size() => {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
                format!("no space left on {}", folder.display())
            }
            Error::Full { .. } => {
                format!("{} may not grow beyond {} bytes", path.display(), pool.max_size())
            }
            other => other.to_string(),
        }
    }

    /// The log may forget what comes before, once it is durable here.
    fn release_before(&self, lsn: Lsn) -> Result<()> {
        if self.replica.is_awaited() {
            let core = &*self.store.core;
            if !core.versions.skips(Step::ForceBeforeRelease) {
                core.force()?;
            }
            self.replica.release(Lsn::new(lsn.get() - 1))?;
        }
        Ok(())
    }

    /// Nothing is repeated any more; the copy goes on.
    fn fail(&self, error: Error) {
        tracing::error!(%error, store = %self.store.core.versions.pool().path().display(), "the store does not follow any more");
        if !self.holds
            && let Err(error) = self.replica.release(Lsn::new(u64::MAX))
        {
            tracing::error!(%error, "its copy of the log has failed, too");
        }
        let mut failed = self.failed.lock();
        *failed = Some(error);
        self.has_failed.store(true, Release);
        // It waits for room no more. Behind the above: a caller that saw that it is full, and does not any more, sees that it has failed.
        self.is_full.store(false, Release);
        self.over.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use log::fabric::Secret;

    use super::*;
    use crate::durable::logged::Commit;

    /// The first commit that the leader's log still has, and through which one a follower's store is durable, when much more was written than the log holds.
    fn forgotten_and_durable(without: Option<Step>) -> (u64, u64) {
        let dir = tempfile::tempdir().unwrap();
        let secret = Some(Secret::new(b"what all of them know").unwrap());
        let trust = log::fabric::Options { secret, ..Default::default() };
        let options = Options { without, ..Options::new().background(false) };
        let (at, copy) = (dir.path().join("follower"), dir.path().join("copy"));
        let follower = Follower::serve_with(&options, at, copy, "127.0.0.1:0", &trust).unwrap();
        let copies = log::Replicas::new().local(dir.path().join("log")).trust(trust).at(&follower.address());
        let timeout = Duration::from_secs(60);
        let log = log::Options::new().bytes(64 << 10);
        let options = Options::new().replicated(&copies.timeout(timeout), &log);
        let store = options.create(dir.path().join("store")).unwrap();
        for n in 0..200_u8 {
            store.put(&[n], &[n; 2000]).unwrap();
        }
        let mut records = store.core.persistence.leading().unwrap().log().iter();
        let first = records.next().unwrap().map(|record| Commit::decode(record.payload).unwrap().number).unwrap();
        // Asked behind it: what is durable only grows.
        (first, follower.store().core.persistence.forced())
    }

    #[test]
    fn the_log_forgets_what_is_durable_at_followers() {
        let (first, durable) = forgotten_and_durable(None);
        assert!(first > 1 && durable + 1 >= first, "{first} {durable}");
        let (first, durable) = forgotten_and_durable(Some(Step::ForceBeforeRelease));
        assert!(durable + 1 < first, "nobody has {durable} to {first} on media, and nobody was told");
    }
}
