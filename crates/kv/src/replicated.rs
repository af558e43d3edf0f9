//! Replicated durability: each commit is a record of a replicated log before anybody sees it, and durable when a write quorum of the log's copies has it.
//!
//! The store itself is what its log says, kept on media at leisure: commits have the dense numbering of [bounded](crate::bounded) ones, so that what a crash leaves of
//! the store is a prefix; the log's records carry the numbers, and opening replays what comes behind the prefix. Numbers and places in the log are drawn together, under
//! one lock, by each commit when all with smaller timestamps have theirs (`order`): so records stand in the order of their numbers and of their timestamps, and what a follower has is what
//! readers of the leader saw at some moment.
//!
//! | step of a commit | |
//! |---|---|
//! | validation | as ever |
//! | number, and a place in the log | under one lock |
//! | force | on a write quorum of the copies when it returns: the only barriers, one on each |
//! | the store's own records | left in the cache |
//! | publish | |
//!
//! What the store has on media the log need not keep: when the log fills up, what waits is flushed and drained, and the log is cleaned up behind it. But for the last commit
//! that is known to be there: so a log with commits always has one, and whoever is further back than the log finds out before it leads.
//!
//! | invariant | who keeps it |
//! |---|---|
//! | nobody sees a commit that is not durable | [`Leading::append`] forces before anything is stored or published |
//! | the log has all commits behind those that are durable in the store, of everybody who follows too | [`Leading::trim`]; [`Follower`](crate::Follower) |
//! | whoever leads has all commits there ever were | [`Core::take_over`]: no gap before the log's first commit, none behind its last |
//! | a store whose log is missing is not opened as if it were whole | `origin`, the log's id on media |

use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

pub(crate) use log::Log;
use log::Lsn;
use parking_lot::Mutex;
use pmem::Domain;

use crate::Step;
use crate::bounded::Bound;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::failpoints::Failpoints;
use crate::media::header::TOMBSTONE;
use crate::media::key::{KEY_MAX, VALUE_MAX};
use crate::media::origin::set_origin;
use crate::options::{Durability, Options};
use crate::space::need::Need;
use crate::store::Store;
use crate::tx::{Mode, Transaction};
use crate::work::Work;

/// The log of a store, and how it is opened.
#[derive(Clone, Debug)]
pub(crate) struct Copies {
    pub(crate) replicas: log::Replicas,
    pub(crate) log: log::Options,
}

impl Copies {
    /// Makes the log.
    pub(crate) fn create(&self) -> Result<Log> {
        Ok(self.log.create_replicated(&self.replicas)?)
    }

    /// Takes it over.
    pub(crate) fn open(&self) -> Result<Log> {
        Ok(self.log.open_replicated(&self.replicas)?.0)
    }
}

/// Whether a log could not be made because there is one.
pub(crate) fn is_there(error: &Error) -> bool {
    matches!(error, Error::Log(error) if matches!(**error, log::Error::QuorumUnavailable { .. }))
}

/// Whether it is not known if a commit is in the log.
pub(crate) fn is_in_doubt(error: &Error) -> bool {
    matches!(error, Error::LogInDoubt { .. })
}

/// Whoever waits for room in the log has a writer's, and room is made by who has all of those in turn: a full log refuses, and is [cleaned up](Core::trim) then.
pub(crate) fn refusing(log: &log::Options) -> log::Options {
    log.clone().when_full(log::WhenFull::Refuse)
}

impl Options {
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
    #[must_use]
    pub fn replicated(self, copies: &log::Replicas, log: &log::Options) -> Self {
        let copies = Copies { replicas: copies.clone(), log: refusing(log) };
        Self { durability: Durability::Replicated, copies: Some(Arc::new(copies)), ..self }
    }

    /// Of a store that follows.
    pub(crate) fn following(&self) -> Self {
        Self { durability: Durability::Replicated, copies: None, ..self.clone() }
    }
}

// ---- records of the log -----------------------------------------------------------------------------------------

/// What stands before the changes of a commit: its number; how many changes; this layout.
const HEAD: usize = 16;
const LAYOUT: u32 = 1;
/// What stands before each change: lengths of key and value; when it expires, 0 for never; with the highest bit of the key's length, it is deleted.
const CHANGE: usize = 16;
const DELETED: u32 = 1 << 31;

/// Bytes of a transaction's record.
fn len(work: &Work) -> usize {
    let change = |write| CHANGE + work.key(write).len() + work.image_of(write).0.value_len as usize;
    HEAD + work.writes.iter().map(change).sum::<usize>()
}

/// Writes it, in just as many bytes.
fn encode(work: &Work, number: u64, mut to: &mut [u8]) {
    let mut put = |bytes: &[u8]| {
        let (here, behind) = std::mem::take(&mut to).split_at_mut(bytes.len());
        here.copy_from_slice(bytes);
        to = behind;
    };
    put(&number.to_le_bytes());
    put(&(work.writes.len() as u32).to_le_bytes());
    put(&LAYOUT.to_le_bytes());
    for write in &work.writes {
        let (header, key, value) = work.image_of(write);
        let deleted = if header.has(TOMBSTONE) { DELETED } else { 0 };
        put(&(key.len() as u32 | deleted).to_le_bytes());
        put(&header.value_len.to_le_bytes());
        put(&work.expires(write).unwrap_or(0).to_le_bytes());
        put(key);
        put(value);
    }
}

/// A commit, as its record in the log says.
pub(crate) struct Commit<'r> {
    pub(crate) number: u64,
    changes: Vec<Change<'r>>,
}

struct Change<'r> {
    key: &'r [u8],
    /// And when it expires; none if the key is deleted.
    value: Option<(&'r [u8], Option<u64>)>,
}

impl<'r> Commit<'r> {
    /// Reads a record. None if it is no commit of a store.
    pub(crate) fn decode(record: &'r [u8]) -> Option<Self> {
        let (head, mut rest) = record.split_at_checked(HEAD)?;
        let (number, count) = (word(head, 0)?, half(head, 8)?);
        if half(head, 12)? != LAYOUT || count == 0 || number == 0 {
            return None;
        }
        // No more room than there are bytes for.
        let mut changes = Vec::with_capacity((count as usize).min(rest.len() / CHANGE));
        for _ in 0..count {
            let (change, behind) = rest.split_at_checked(CHANGE)?;
            let (key_len, value_len, expires) = (half(change, 0)?, half(change, 4)? as usize, word(change, 8)?);
            let deleted = key_len & DELETED != 0;
            let (key, behind) = behind.split_at_checked((key_len & !DELETED) as usize)?;
            let (value, behind) = behind.split_at_checked(value_len)?;
            if key.len() > KEY_MAX || value.len() > VALUE_MAX || deleted && value_len > 0 {
                return None;
            }
            changes.push(Change { key, value: (!deleted).then_some((value, (expires > 0).then_some(expires))) });
            rest = behind;
        }
        rest.is_empty().then_some(Self { number, changes })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

// ---- roles ------------------------------------------------------------------------------------------------------

/// What a replicated store does: it follows until it is given the log that it leads.
#[derive(Default)]
pub(crate) struct Replicated {
    leading: OnceLock<Leading>,
    /// There is no room for what is to be repeated but that of moves.
    cornered: AtomicBool,
}

impl Replicated {
    /// Of a store with these options, if it is one.
    pub(crate) fn of(durability: Durability) -> Option<Self> {
        (durability == Durability::Replicated).then(Self::default)
    }

    pub(crate) fn leading(&self) -> Option<&Leading> {
        self.leading.get()
    }

    pub(crate) fn is_cornered(&self) -> bool {
        self.cornered.load(Relaxed)
    }

    pub(crate) fn into_log(self) -> Option<Log> {
        self.leading.into_inner().map(|leading| leading.log)
    }
}

/// How often a commit is repeated in a full store before it is said to be full, by a leader that replays its log too: others may lead meanwhile.
const TRIES: u32 = 16;

/// Of the log's length: how much is between two places that are remembered.
const STRIDES: u64 = 64;

pub(crate) struct Leading {
    log: Log,
    order: Mutex<Order>,
    /// Bytes of records since the log was cleaned up, about.
    filled: AtomicU64,
    /// So many are enough to clean up.
    enough: u64,
    /// One at a time cleans up.
    trimming: Mutex<()>,
    /// A commit is in doubt: nothing more is committed, nor made durable in the store.
    failed: AtomicBool,
}

/// Numbers and places are drawn under its lock.
#[derive(Default)]
struct Order {
    /// Now and then: a commit's number, its record, and how many bytes there had been.
    marks: VecDeque<(u64, Lsn, u64)>,
    bytes: u64,
    marked: u64,
}

impl Leading {
    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    fn new(log: Log) -> Self {
        let enough = log.stats().capacity / 2;
        let (filled, failed) = (0.into(), false.into());
        Self { log, order: Mutex::default(), filled, enough, trimming: Mutex::new(()), failed }
    }

    /// Draws a number, says so, and makes the commit durable under it. With [`Error::LogFull`] it has none, and nothing was written.
    pub(crate) fn append(
        &self,
        bound: &Bound,
        work: &Work,
        failpoints: Failpoints,
        drawn: impl FnOnce(),
    ) -> Result<u64> {
        let len = len(work);
        let (number, mut record) = {
            let mut order = self.order.lock();
            let record = self.log.reserve(len).map_err(refused)?;
            let number = bound.draw();
            order.bytes += len as u64;
            if order.bytes >= order.marked + self.enough / STRIDES {
                order.marked = order.bytes;
                let mark = (number, record.lsn(), order.bytes);
                order.marks.push_back(mark);
            }
            (number, record)
        };
        drawn();
        encode(work, number, &mut record);
        self.filled.fetch_add(len as u64, Relaxed);
        let force = |lsn| if failpoints.skips(Step::LogFirst) { self.log.post() } else { self.log.force_now(lsn) };
        let forced = record.complete().and_then(force);
        if let Err(source) = forced {
            self.failed.store(true, Release);
            return Err(Error::LogInDoubt { source: source.into() });
        }
        Ok(number)
    }

    /// Cleans the log up before this commit, which stays: it says how far whoever leads must be.
    fn forget_before(&self, lsn: Lsn, failpoints: Failpoints) -> log::Result<()> {
        let keeps = u64::from(!failpoints.skips(Step::KeepLastCommit));
        self.log.truncate_to(Lsn::new(lsn.get() - keeps))
    }

    /// An error once nothing more can be committed.
    pub(crate) fn check(&self) -> Result<()> {
        if self.failed.load(Acquire) {
            self.log.check_leading()?;
            return Err(Error::LogInDoubt { source: Box::new(pmem::Error::Poisoned.into()) });
        }
        Ok(())
    }

    /// Whether the log should be cleaned up.
    pub(crate) fn is_filled(&self) -> bool {
        self.filled.load(Relaxed) >= self.enough
    }
}

fn refused(error: log::Error) -> Error {
    match error {
        log::Error::Full { live, capacity, .. } => Error::LogFull { live, capacity },
        log::Error::TooLong { len, max } => {
            Error::Limit { what: "bytes of a transaction, in its log", found: len, max }
        }
        other => other.into(),
    }
}

impl Store {
    /// The other copies of the log of a store that leads, in no order: id, how it is doing, through which record it has all. None of any other store.
    #[must_use]
    pub fn copies(&self) -> Vec<(u64, log::CopyState, Lsn)> {
        self.core.leading().map(|leading| leading.log.copies()).unwrap_or_default()
    }

    /// Takes a copy of the log in, one that was given up or a new one, while the store is used: see [`Log::join`]. With a new follower there, give it a [seed](Self::seed) first.
    ///
    /// # Errors
    /// Those of [`Log::join`]; [`Error::Follows`].
    pub fn join(&self, address: &str, trust: &log::fabric::Options) -> Result<()> {
        Ok(self.core.leading()?.log.join(address, trust)?)
    }

    /// A copy of the log may be back at this address: see [`Log::expect_at`]. Nothing for a store that does not lead.
    pub fn expect_copy_at(&self, address: &str) {
        if let Ok(leading) = self.core.leading() {
            leading.log.expect_at(address);
        }
    }

    /// A copy of the log, by its [id](Self::copies), is lost for good: see [`Log::remove`].
    ///
    /// # Errors
    /// [`Error::NoSuchCopy`]; those of [`Log::remove`]; [`Error::Follows`].
    pub fn remove_copy(&self, id: u64) -> Result<()> {
        let log = &self.core.leading()?.log;
        let copies = log.members().0;
        if !copies.contains(&id) {
            return Err(Error::NoSuchCopy { id, copies });
        }
        Ok(log.remove(id)?)
    }

    /// Bytes of the longest transaction of a store that leads, which is one record of its log: its keys and values, and 16 for each of them. A segment of the log
    /// ([`log::Options`]) holds it; more are [`Error::Limit`]. None of any other store.
    #[must_use]
    pub fn transaction_max(&self) -> Option<usize> {
        self.core.leading().map(|leading| leading.log.payload_max() as usize - HEAD).ok()
    }

    /// Nobody else can be elected for so long from now: see [`Log::lead_for`]. Nothing for a store that follows, or is its own.
    pub fn lead_for(&self, left: std::time::Duration) {
        if let Ok(leading) = self.core.leading() {
            leading.log.lead_for(left);
        }
    }

    /// Another one leads, or may: nothing more is committed by this store, and whoever waits for a commit hears that it is in doubt. See [`Log::fence`]. Nothing for a store that does not lead.
    pub fn fence(&self) {
        if let Ok(leading) = self.core.leading() {
            leading.log.fence();
        }
    }

    /// An error once this store cannot commit any more: too few copies of its log are left, or another one leads. It shows at the next commit by itself; a store that
    /// only reads asks.
    ///
    /// # Errors
    /// Those of [`Log::check_leading`]; [`Error::Follows`]; [`Error::LogInDoubt`] behind a commit that was.
    pub fn check_leading(&self) -> Result<()> {
        if self.core.replicated.is_none() {
            return Ok(()); // it is its own
        }
        let leading = self.core.leading()?;
        leading.log.check_leading()?;
        leading.check()
    }
}

impl Core {
    /// Who leads, of a replicated store.
    pub(crate) fn leading(&self) -> Result<&Leading> {
        self.replicated.as_ref().and_then(Replicated::leading).ok_or(Error::Follows)
    }

    /// Whether a commit waits for a device, or for the machines that have copies.
    pub(crate) fn waits(&self) -> bool {
        self.replicated.is_some() || self.pool.domain() == Domain::File
    }

    /// Whether it is a replicated store that does not lead.
    pub(crate) fn follows(&self) -> bool {
        self.replicated.as_ref().is_some_and(|replicated| replicated.leading().is_none())
    }

    /// Makes the store durable as far as it is, and lets the log forget that. One barrier, and two of the log. The caller holds no log of a writer. Unless it is urgent, one does it for all.
    #[cold]
    pub(crate) fn trim(&self, leading: &Leading, is_urgent: bool) -> Result<()> {
        let one = if is_urgent { Some(leading.trimming.lock()) } else { leading.trimming.try_lock() };
        let Some(_one) = one else { return Ok(()) };
        self.force()?;
        let durable = self.bound.forced();
        let last = {
            let mut order = leading.order.lock();
            let mut last = None;
            while let Some(mark) = order.marks.pop_front_if(|mark| mark.0 <= durable) {
                last = Some(mark);
            }
            leading.filled.store(order.bytes - last.map_or(0, |mark| mark.2), Relaxed);
            last
        };
        match last {
            // Those who follow have time to make theirs durable, too, before the space is needed.
            Some((_, lsn, _)) => {
                Ok(leading.forget_before(lsn, self.failpoints).and_then(|()| leading.log.reclaim_later())?)
            }
            None => Ok(()),
        }
    }

    /// Everything through this commit is published: the last one, unless somebody waits for room in the log meanwhile, who may wait for whoever asks.
    pub(crate) fn published(&self) -> u64 {
        let (last, mut naps) = (self.bound.last(), 100);
        for writer in &self.writers.all {
            // Whoever drew a number up to this one holds its log until it has published.
            while writer.log.try_lock().is_none() {
                if naps == 0 {
                    // When these were forced, every log was looked at; and the log has all behind them.
                    return self.bound.forced();
                }
                naps -= 1;
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        last
    }

    /// Makes what the log's record says part of the store, if it is not; in a full one it is tried [so often](TRIES). The caller is the only one who changes the store.
    /// Returns its number.
    pub(crate) fn apply(&self, record: &[u8], at: Lsn) -> Result<u64> {
        let Some(commit) = Commit::decode(record) else { return Err(Error::NotACommit { at }) };
        let has = self.bound.last();
        if commit.number <= has {
            return Ok(commit.number);
        }
        if commit.number != has + 1 {
            return Err(Error::Behind { has, first: commit.number });
        }
        let Some(Replicated { cornered, .. }) = &self.replicated else { return Err(Error::NotReplicated) };
        let (mut tries, mut most) = (crate::commit::Tried::default(), TRIES);
        loop {
            match self.apply_once(&commit) {
                Err(error @ Error::Full { .. }) if most > 0 => {
                    most -= 1;
                    if let Err(error) = self.full_again(&mut tries, error, 0)
                        && cornered.swap(true, Relaxed)
                    {
                        return Err(error);
                    }
                }
                other => {
                    if cornered.load(Relaxed) {
                        cornered.store(!self.space.is_whole(Need::Repeat), Relaxed);
                    }
                    return other.map(|()| commit.number);
                }
            }
        }
    }

    fn apply_once(&self, commit: &Commit<'_>) -> Result<()> {
        let mode = Mode { locking: true, age: 0, follows: true };
        let mut tx = Transaction::begin(self, tx::Isolation::Snapshot, mode)?;
        for change in &commit.changes {
            match change.value {
                Some((value, Some(expires))) => tx.put_until(change.key, value, expires)?,
                Some((value, None)) => tx.put(change.key, value)?,
                None => tx.delete(change.key)?,
            };
        }
        tx.finish().map(drop)
    }

    /// Replays what the log has and the store has not, and leads from now on.
    pub(crate) fn take_over(&self, log: Log) -> Result<()> {
        let Some(replicated) = &self.replicated else { return Err(Error::NotReplicated) };
        set_origin(&self.pool, log.id())?;
        let (mut records, mut last) = (log.iter(), None);
        while let Some(record) = records.next()? {
            last = Some((self.apply(record.payload, record.lsn)?, record.lsn));
        }
        drop(records);
        let (has, through) = (self.bound.last(), last.map_or(0, |last| last.0));
        if through < has {
            return Err(Error::LostCommits { missing: through + 1, durable: has });
        }
        // All of it is in the store, so the log need not keep it here; followers see to themselves.
        self.force()?;
        let leading = Leading::new(log);
        if let Some((_, lsn)) = last {
            leading.forget_before(lsn, self.failpoints)?;
        }
        let is_first = replicated.leading.set(leading).is_ok();
        debug_assert!(is_first, "a store begins to lead once");
        Ok(())
    }
}

#[cfg(test)]
impl Core {
    /// The numbers of the commits that the log has, of who leads.
    pub(crate) fn in_log(&self) -> Vec<u64> {
        let mut records = self.leading().unwrap().log.iter();
        let commit = || records.next().unwrap().map(|record| Commit::decode(record.payload).unwrap().number);
        std::iter::from_fn(commit).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::later::Commit as Awaited;
    use crate::options::Options;

    /// Barriers of a store, and of this machine's copy of its log.
    fn barriers(store: &Store) -> (u64, u64) {
        let log = store.core.leading().unwrap().log.pool();
        (store.core.pool.stats().drains, log.stats().drains)
    }

    #[test]
    fn a_commit_has_one_barrier_in_the_log_and_none_in_the_store() {
        let dir = tempfile::tempdir().unwrap();
        let copies = log::Replicas::new().local(dir.path().join("log"));
        let log = log::Options::new().bytes(1 << 20).idle(None);
        let options = Options::new().background(false).replicated(&copies, &log);
        let store = options.create(dir.path().join("store")).unwrap();
        store.put(b"first", b"").unwrap();
        let before = barriers(&store);
        for n in 0..100_u32 {
            store.put(&n.to_be_bytes(), b"value").unwrap();
        }
        assert_eq!(barriers(&store), (before.0, before.1 + 100));
        let batch = (0..50_u32).fold(crate::Batch::new(), |mut batch, n| {
            batch.put(&n.to_be_bytes(), b"other");
            batch
        });
        store.write(&batch).unwrap();
        assert_eq!(barriers(&store), (before.0, before.1 + 101), "however many keys");
        store.sync().unwrap();
        assert_eq!(barriers(&store), (before.0 + 1, before.1 + 101), "all that waits");
    }

    /// The numbers of the commits that a log has when it was cleaned up as far as it can be, and whether a store without any of them leads then.
    fn cleaned_up(without: Option<Step>) -> (Vec<u64>, bool) {
        let dir = tempfile::tempdir().unwrap();
        let copies = log::Replicas::new().local(dir.path().join("log"));
        let options = Options { without, ..Options::new() };
        let options = options.replicated(&copies, &log::Options::new().bytes(64 << 10).idle(None));
        let store = options.create(dir.path().join("store")).unwrap();
        for n in 0..10_u8 {
            store.put(&[n], &[n; 2000]).unwrap();
        }
        let core = &store.core;
        core.trim(core.leading().unwrap(), true).unwrap();
        core.leading().unwrap().log.reclaim().unwrap(); // now, and not when the space is needed
        let numbers = core.in_log();
        store.close().unwrap();
        let leads = match options.open_or_create(dir.path().join("other")) {
            Err(Error::Behind { has: 0, first: 10 }) => false,
            other => other.map(|_| true).unwrap(),
        };
        (numbers, leads)
    }

    #[test]
    fn a_log_that_is_cleaned_up_keeps_its_last_commit() {
        assert_eq!(cleaned_up(None), (vec![10], false));
        assert_eq!(cleaned_up(Some(Step::KeepLastCommit)), (vec![], true), "ten commits are lost, and nobody was told");
    }

    #[test]
    fn whoever_awaits_a_commit_does_not_wait_for_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let copies = log::Replicas::new().local(dir.path().join("log"));
        let options = Options::new().replicated(&copies, &log::Options::new().bytes(1 << 20));
        let store = options.create(dir.path().join("store")).unwrap();
        let commit = |key: &[u8], len: usize| {
            let mut tx = store.begin(tx::Isolation::Serializable).unwrap();
            tx.put(key, &vec![7; len]).unwrap();
            tx.commit_async()
        };
        let order = store.core.leading().unwrap().order.lock();
        let commits = [b"one", b"two"].map(|key| commit(key, 5));
        assert!(commits.iter().all(Awaited::is_running), "no commit gets a number meanwhile");
        drop(order);
        assert!(commits.into_iter().all(|commit| commit.wait().is_ok()));
        assert_eq!(store.get(b"two").unwrap().as_deref(), Some(&[7; 5][..]));
        // As long as can be, and one byte more.
        let most = store.transaction_max().unwrap() - CHANGE - 3;
        commit(b"key", most).wait().unwrap();
        assert!(matches!(commit(b"key", most + 1).wait(), Err(Error::Limit { .. })));
    }

    #[test]
    fn what_is_no_commit_is_refused() {
        let mut record = Vec::new();
        record.extend_from_slice(&7_u64.to_le_bytes());
        record.extend_from_slice(&1_u32.to_le_bytes());
        record.extend_from_slice(&LAYOUT.to_le_bytes());
        record.extend_from_slice(&3_u32.to_le_bytes());
        record.extend_from_slice(&5_u32.to_le_bytes());
        record.extend_from_slice(&9_u64.to_le_bytes());
        record.extend_from_slice(b"keyvalue");
        let commit = Commit::decode(&record).unwrap();
        assert_eq!((commit.number, commit.changes.len()), (7, 1));
        assert_eq!((commit.changes[0].key, commit.changes[0].value), (&b"key"[..], Some((&b"value"[..], Some(9)))));
        for len in 0..record.len() {
            assert!(Commit::decode(&record[..len]).is_none(), "cut off at {len}");
        }
        for bit in 0..record.len() * 8 {
            let mut other = record.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            let _ = Commit::decode(&other); // whatever it is, it is decided without a panic
        }
        for (at, value) in [(8, 0_u32), (8, u32::MAX), (12, 2), (16, u32::MAX), (20, u32::MAX)] {
            let mut other = record.clone();
            other[at..at + 4].copy_from_slice(&value.to_le_bytes());
            assert!(Commit::decode(&other).is_none(), "{value} at {at}");
        }
    }
}
