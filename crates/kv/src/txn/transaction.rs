//! Transactions.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering::Relaxed;

use tx::Isolation;

use crate::Timestamp;
use crate::commit::validate::{Terms, Validation};
use crate::core::Core;
use crate::error::{ConflictWith, Error, Key, Result};
use crate::isolation::active::Pin;
use crate::isolation::locks::{Stop, Tried};
use crate::media::header::{self, TOMBSTONE};
use crate::media::key::{self, KEY_MAX, RECORDS, VALUE_MAX};
use crate::media::record;
use crate::raw::Claim;
use crate::time::Now;
use crate::versions::{AHEAD, Seen};
use crate::writers::work::{Read, Work};

thread_local! {
    /// The lists of this thread's last transaction, to be used again: no allocation on the way of a small one.
    static SPARE: Cell<Option<Work>> = const { Cell::new(None) };
}

/// How a transaction behaves towards others.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mode {
    /// Locks what it reads, too, and waits for locks.
    pub(crate) locking: bool,
    /// Its number among those that wait; 0: it never gives way, and so must not wait while it has a lock.
    pub(crate) age: u64,
    /// It repeats what a leader has committed: whatever the key is here.
    pub(crate) follows: bool,
    /// It removes what has expired: what a full log refuses is put off, and not tried again with pauses, as the thread that does it makes checkpoints and room, too. A live
    /// replica that holds the log is waited for as by all commits, up to its timeout or many times that: they take turns at the log.
    pub(crate) upkeep: bool,
}

/// The first error, which was not the end of it.
struct Doom {
    message: String,
    /// The key of a conflict, and whether it was waited for as long as anybody waits.
    conflict: Option<(Vec<u8>, bool)>,
}

/// A transaction. Dropping it aborts; an error of a write dooms it.
///
/// ```
/// # fn main() -> kv::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = kv::Options::new().create(dir.path().join("s"))?;
/// use kv::Isolation;
/// let mut tx = store.begin(Isolation::Serializable)?;
/// assert_eq!(tx.get(b"apples")?, None);
/// tx.put(b"apples", b"17")?;
/// tx.commit()?;
/// # Ok(()) }
/// ```
pub struct Transaction<'s> {
    pub(super) core: &'s Core,
    pub(super) pin: Pin<'s>,
    pub(super) level: Isolation,
    mode: Mode,
    pub(super) now: Now,
    /// Its image does not move while it is read from: writes need `&mut self`.
    pub(super) work: RefCell<Work>,
    doom: RefCell<Option<Doom>>,
    /// It writes which types a table has.
    names: bool,
    /// The state that its ranges show, if it locks what it reads.
    pub(super) scanned_at: Cell<Option<u64>>,
}

impl<'s> Transaction<'s> {
    pub(crate) fn begin(core: &'s Core, level: Isolation, mode: Mode) -> Result<Self> {
        Ok(Self::begin_on(core, core.versions.pin()?, level, mode))
    }

    /// On a transaction slot that was taken.
    #[inline]
    pub(crate) fn begin_on(core: &'s Core, pin: Pin<'s>, level: Isolation, mode: Mode) -> Self {
        if mode.age != 0 {
            pin.tx_slot().age.store(mode.age, Relaxed);
        }
        // None in the destructor of another variable of the thread, after this one is gone.
        let work = SPARE.try_with(Cell::take).ok().flatten().unwrap_or_default();
        Self {
            core,
            pin,
            level,
            mode,
            now: Now::default(),
            work: RefCell::new(work),
            doom: RefCell::new(None),
            names: false,
            scanned_at: Cell::new(None),
        }
    }

    /// Locks keys before anything is read, oldest transaction first; what is read then cannot change.
    pub(super) fn lock_first(&mut self, hashes: &[u64]) -> Result<()> {
        for hash in hashes {
            self.lock(*hash, &[])?;
        }
        self.pin.renew();
        Ok(())
    }

    /// The level it runs at.
    #[must_use]
    pub fn isolation(&self) -> Isolation {
        self.level
    }

    /// Everything committed up to here is seen.
    #[must_use]
    pub fn snapshot(&self) -> Timestamp {
        self.pin.snapshot.into()
    }

    // ---- read -------------------------------------------------------------------------------------------------

    /// The key's value.
    ///
    /// # Errors
    /// [`Error::Conflict`] if this transaction must give way; [`Error::Expired`]; [`Error::Damaged`].
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<&[u8]>> {
        let key = key.as_ref();
        self.check()?;
        self.try_get(key).map_err(|error| self.fail(error))
    }

    #[inline]
    fn try_get(&self, key: &[u8]) -> Result<Option<&[u8]>> {
        let hash = key::hash(key);
        {
            let work = self.work.borrow();
            if !work.writes.is_empty()
                && let Some(at) = work.find(hash, key)
            {
                return Ok(self.own_value(&work, at));
            }
        }
        if self.locks_reads() {
            self.lock(hash, key)?;
            let seen = self.newest_sound(key, hash)?;
            self.agrees(key, seen.record)?;
            return Ok(seen.record.filter(|record| record.is_live(&self.now)).map(|record| record.value()));
        }
        let seen = self.core.versions.read(&self.pin, key, hash, self.pin.snapshot, None, self.likely(hash))?;
        let live = seen.record.filter(|record| record.is_live(&self.now));
        if self.level > Isolation::Snapshot {
            let mut work = self.work.borrow_mut();
            let missed = if seen.record.is_none() { work.miss(key) } else { 0..0 };
            let mut ts = seen.record.map_or(0, |record| record.header.ts);
            if seen.record.is_some_and(|record| record.header.has(TOMBSTONE)) {
                ts = 0;
            }
            let record = seen.record.map_or(0, |record| record.offset);
            work.reads.push(Read { hash, spot: seen.spot, slot: seen.slot, word: seen.word, ts, record, missed });
        }
        Ok(live.map(|record| record.value()))
    }

    /// What is newest, to be read: a writer may supersede what is corrupt.
    fn newest_sound(&self, key: &[u8], hash: u64) -> Result<Seen<'_>> {
        loop {
            let seen = self.core.versions.newest(&self.pin, key, hash, self.likely(hash))?;
            match seen.record {
                _ if !self.core.versions.verifies() => return Ok(seen),
                Some(record) => return self.core.versions.verify(record).map(|()| seen),
                None if self.core.versions.verify_alike(&self.pin, seen.spot, hash)? => return Ok(seen),
                None => {}
            }
        }
    }

    /// Has what these keys need fetched from memory, for all at the same time: reads and writes of them wait less afterwards. For a caller that knows several
    /// keys beforehand; it sees nothing, and is in conflict with no transaction.
    ///
    /// ```
    /// # fn main() -> kv::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = kv::Options::new().create(dir.path().join("s"))?;
    /// let keys = [&b"apples"[..], b"pears"];
    /// let tx = store.begin(kv::Isolation::Snapshot)?;
    /// tx.prefetch(&keys);
    /// let found = keys.iter().filter_map(|key| tx.get(key).transpose()).collect::<kv::Result<Vec<_>>>()?;
    /// # assert!(found.is_empty());
    /// # Ok(()) }
    /// ```
    pub fn prefetch(&self, keys: &[&[u8]]) {
        // So many that what was fetched first is still there when the last is asked for.
        let mut work = self.work.borrow_mut();
        for some in keys.chunks(AHEAD) {
            self.core.versions.prefetch(&self.pin, some, |hash, spot| work.note_spot(hash, spot));
        }
    }

    /// Where a key with this hash was when it was fetched.
    #[inline]
    fn likely(&self, hash: u64) -> Option<crate::index::Spot> {
        self.work.borrow().likely(hash)
    }

    /// Whether it reads what is newest, under locks, instead of a snapshot.
    pub(super) fn locks_reads(&self) -> bool {
        self.mode.locking && self.level > Isolation::Snapshot
    }

    /// What is locked stays as it is; a range does not. So whatever is locked after one was read must be older than that.
    fn agrees(&self, key: &[u8], newest: Option<crate::media::record::Record<'_>>) -> Result<()> {
        match (self.scanned_at.get(), newest) {
            (Some(at), Some(record)) if record.header.ts > at => {
                Err(Error::Conflict { key: Key(key.to_vec()), with: ConflictWith::Committed(record.header.ts.into()) })
            }
            _ => Ok(()),
        }
    }

    /// A value of this transaction's own; it stays where it is as long as `self` is borrowed.
    pub(super) fn own_value(&self, work: &Work, at: usize) -> Option<&[u8]> {
        let value = work.value(&work.writes[at], &self.now)?;
        Some(crate::raw::kept(Claim::Own, self, value))
    }

    pub(crate) fn core(&self) -> &'s Core {
        self.core
    }

    /// Whether it has itself written this key.
    pub(crate) fn has_written(&self, key: &[u8]) -> bool {
        self.work.borrow().find(key::hash(key), key).is_some()
    }

    // ---- write ------------------------------------------------------------------------------------------------

    /// Sets the key's value; true if it had one.
    ///
    /// # Errors
    /// [`Error::Conflict`]; [`Error::Limit`].
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        self.write(key.as_ref(), Some((value.as_ref(), None)))
    }

    /// Sets the key's value, to be gone at a moment given in milliseconds of Unix time; true if it had one.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_until(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, expires: u64) -> Result<bool> {
        self.write(key.as_ref(), Some((value.as_ref(), Some(expires))))
    }

    /// Sets the key's value, to be gone after this time, counted from now; true if it had one.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_for(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        time: std::time::Duration,
    ) -> Result<bool> {
        self.put_until(key, value, crate::time::after(time))
    }

    /// Removes the key; true if it had a value.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.write(key.as_ref(), None)
    }

    /// When the key expires, in milliseconds of Unix time; `None` if it has no value, or one that stays.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn expires(&self, key: impl AsRef<[u8]>) -> Result<Option<u64>> {
        let key = key.as_ref();
        if self.get(key)?.is_none() {
            return Ok(None);
        }
        let work = self.work.borrow();
        if let Some(at) = work.find(key::hash(key), key) {
            return Ok(work.expires(&work.writes[at]));
        }
        Ok(self.committed(key)?.and_then(|record| record.expires()))
    }

    /// When the key's value was committed; `None` if it has none, or one of this transaction's own. If it is the same in a later transaction, no other has
    /// set the key in between, to the same value neither.
    ///
    /// ```
    /// # fn main() -> kv::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = kv::Options::new().create(dir.path().join("store"))?;
    /// store.put(b"stock", b"7")?;
    /// let seen = store.begin(kv::Isolation::Snapshot)?.version(b"stock")?;
    /// store.put(b"stock", b"7")?;
    /// assert!(store.begin(kv::Isolation::Snapshot)?.version(b"stock")? > seen);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn version(&self, key: impl AsRef<[u8]>) -> Result<Option<Timestamp>> {
        let key = key.as_ref();
        if self.get(key)?.is_none() || self.work.borrow().find(key::hash(key), key).is_some() {
            return Ok(None);
        }
        Ok(self.committed(key)?.map(|record| record.header.ts.into()))
    }

    /// What `get` finds if it is not this transaction's own.
    fn committed(&self, key: &[u8]) -> Result<Option<crate::media::record::Record<'_>>> {
        let limit = if self.locks_reads() { u64::MAX } else { self.pin.snapshot };
        Ok(self.core.versions.read(&self.pin, key, key::hash(key), limit, None, None)?.record)
    }

    fn write(&mut self, key: &[u8], value: Option<(&[u8], Option<u64>)>) -> Result<bool> {
        self.check()?;
        self.try_write(key, value).map_err(|error| self.fail(error))
    }

    /// An error dooms the transaction: ignoring it must not lead to half of what was meant.
    #[cold]
    pub(super) fn fail(&self, error: Error) -> Error {
        let conflict = match &error {
            Error::Conflict { key, with } => Some((key.0.clone(), *with == ConflictWith::Holder)),
            _ => None,
        };
        self.doom.borrow_mut().get_or_insert_with(|| Doom { message: error.to_string(), conflict });
        error
    }

    fn try_write(&mut self, key: &[u8], value: Option<(&[u8], Option<u64>)>) -> Result<bool> {
        check_len(key, value.map(|(value, _)| value))?;
        self.core.versions.space.check_key(key)?;
        let hash = key::hash(key);
        let numbered = self.core.persistence.is_numbered();
        let encode = |image: &mut Vec<u8>, first: bool| {
            // The first record has the commit's number.
            let flags = if numbered && first { header::NUMBERED } else { 0 };
            match value {
                Some((value, expires)) => record::encode(image, key, value, flags, expires),
                None => record::encode(image, key, &[], flags | TOMBSTONE, None),
            }
        };
        self.names |= key.starts_with(RECORDS);
        let work = self.work.get_mut();
        if let Some(at) = work.find(hash, key) {
            let had = work.value(&work.writes[at], &self.now).is_some();
            work.rewrite(at, |image| encode(image, at == 0));
            return Ok(had);
        }
        self.lock(hash, key)?;
        let seen = self.core.versions.newest(&self.pin, key, hash, self.likely(hash))?;
        if self.locks_reads() {
            self.agrees(key, seen.record)?;
        }
        let strict = !self.locks_reads();
        if let Some(record) = seen.record.filter(|record| strict && record.header.ts > self.pin.snapshot) {
            let with = ConflictWith::Committed(record.header.ts.into());
            return Err(Error::Conflict { key: Key(key.to_vec()), with });
        }
        let had = seen.record.is_some_and(|record| record.is_live(&self.now));
        let (word, spot) = (seen.word, seen.spot);
        let absent = seen.record.is_none_or(|record| record.header.has(TOMBSTONE));
        if value.is_none() && absent && !self.mode.follows {
            if self.core.versions.verifies() && seen.record.is_none() {
                self.newest_sound(key, hash)?;
            }
            // Nothing to delete; that there is nothing must still be so when this commits.
            if self.level > Isolation::Snapshot && !self.mode.locking {
                self.note_missed(hash, key, spot);
            }
            return Ok(false);
        }
        // The answer is something that was read; no other transaction can change it while we hold the lock.
        let work = self.work.get_mut();
        let first = work.writes.is_empty();
        work.push(hash, word, spot, |image| encode(image, first));
        Ok(had)
    }

    fn note_missed(&mut self, hash: u64, key: &[u8], spot: crate::index::Spot) {
        let work = self.work.get_mut();
        let missed = work.miss(key);
        work.reads.push(Read { hash, spot, slot: 0, word: crate::media::word::Word::NONE, ts: 0, record: 0, missed });
    }

    // ---- locks ------------------------------------------------------------------------------------------------

    fn lock(&self, hash: u64, key: &[u8]) -> Result<()> {
        let (concurrency, pool) = (&self.core.versions.concurrency, self.core.versions.pool());
        let wait = || concurrency.lock(hash, &self.pin, || pool.check_usable());
        let is_upkeep = |tx_slot| concurrency.active.tx_slot(tx_slot).is_upkeep();
        let tried = || match concurrency.try_lock(hash, &self.pin) {
            // Upkeep moves versions or takes tombstones out: nothing that anybody reads changes, so it is waited for.
            Tried::Busy if concurrency.owner(hash).is_some_and(is_upkeep) => wait(),
            tried => Ok(tried),
        };
        let got = if self.mode.locking { wait() } else { tried() };
        let conflict = |with| Err(Error::Conflict { key: Key(key.to_vec()), with });
        match got {
            Ok(Tried::Taken) => {
                self.work.borrow_mut().locks.push(hash);
                Ok(())
            }
            Ok(Tried::Own) => Ok(()),
            Ok(Tried::Busy) => conflict(ConflictWith::Running),
            Err(Stop::Wounded) => conflict(ConflictWith::Older),
            Err(Stop::TimedOut) => conflict(ConflictWith::Holder),
            Err(Stop::Unusable(error)) => Err(error.into()),
        }
    }

    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        let tx_slot = self.pin.tx_slot();
        if self.pin.is_expired() {
            return Err(Error::Expired { snapshot: self.pin.snapshot.into() });
        }
        if self.mode.age != 0 && tx_slot.wounded.load(Relaxed) {
            return Err(self.fail(Error::Conflict { key: Key(Vec::new()), with: ConflictWith::Older }));
        }
        match &*self.doom.borrow() {
            None => Ok(()),
            Some(doom) => Err(Error::Doomed { first: doom.message.clone() }),
        }
    }

    /// What dooms it, if anything does.
    pub(crate) fn doom(&self) -> Option<tx::Doom> {
        let doom = self.doom.borrow();
        doom.as_ref().map(|doom| tx::Doom { first: doom.message.clone(), conflict: doom.conflict.as_ref().map(|_| 0) })
    }

    /// The key of a conflict that it had, empty if it was not about one.
    pub(super) fn conflict(&self) -> Option<(Vec<u8>, bool)> {
        let wounded = self.mode.age != 0 && self.pin.tx_slot().wounded.load(Relaxed);
        self.doom
            .borrow()
            .as_ref()
            .and_then(|doom| doom.conflict.clone())
            .or_else(|| wounded.then_some((Vec::new(), false)))
    }

    /// Bytes of its records.
    pub(super) fn bytes(&self) -> u64 {
        self.work.borrow().image.len() as u64
    }

    /// How many keys it writes.
    pub(crate) fn writes(&self) -> usize {
        self.work.borrow().writes.len()
    }

    // ---- end --------------------------------------------------------------------------------------------------

    /// Makes all changes durable and visible, as a whole; returns when they were. One barrier; none if nothing was written.
    ///
    /// # Errors
    /// [`Error::Conflict`]; [`Error::Full`]; [`Error::InDoubt`] if the barrier fails.
    pub fn commit(mut self) -> Result<Timestamp> {
        self.finish()
    }

    pub(crate) fn finish(&mut self) -> Result<Timestamp> {
        self.check()?;
        let locks_reads = self.locks_reads();
        let work = self.work.get_mut();
        if work.writes.is_empty() {
            if !locks_reads || work.scans.is_empty() {
                // It saw one state, of its snapshot or of now: that is when it happened.
                return Ok(self.pin.snapshot.into());
            }
            let at = self.core.versions.concurrency.active.stable();
            let (versions, background) = (&self.core.versions, &self.core.maintenance.background);
            Validation::new(versions, background, &self.pin, at, &self.now, None).check_scans(work)?;
            return Ok(at.into());
        }
        // A transaction that makes up for new keys by removing others needs no more memory.
        if self.core.options.index_memory < u64::MAX && !self.mode.follows && work.grows() {
            self.core.versions.index.check_memory(self.core.options.index_memory)?;
        }
        let Mode { follows, upkeep, .. } = self.mode;
        let terms = Terms { validate: self.level > Isolation::Snapshot, now: &self.now, follows, upkeep };
        let ts = self.core.committing().commit(&self.pin, work, terms)?;
        if self.names {
            self.core.note_types();
        }
        Ok(ts.into())
    }

    /// Gives everything up.
    pub fn abort(self) {}
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        let mut work = std::mem::take(self.work.get_mut());
        for hash in work.locks.drain(..) {
            self.core.versions.concurrency.unlock(hash, &self.pin);
        }
        work.clear();
        // What a huge one has taken is not kept.
        if work.capacity() <= 1 << 20 {
            let _ = SPARE.try_with(|spare| spare.set(Some(work)));
        }
    }
}

pub(crate) fn check_len(key: &[u8], value: Option<&[u8]>) -> Result<()> {
    let limit = |what, found: usize, max: usize| {
        if found <= max { Ok(()) } else { Err(Error::Limit { what, found: found as u64, max: max as u64 }) }
    };
    limit("bytes of a key", key.len(), KEY_MAX)?;
    limit("bytes of a value", value.map_or(0, <[u8]>::len), VALUE_MAX)
}

impl std::fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Transaction({}, began at {}, {} writes)",
            self.level,
            self.pin.snapshot,
            self.work.borrow().writes.len()
        )
    }
}
