//! A record store by write-ahead logging and pages: ARIES (Mohan and others, TODS 1992), which the paper of [MARS](crate::mars) compares with.
//!
//! A change goes to a page in the buffer pool, and its bytes before and after to the [`log`], which a commit forces. Pages go to the medium when there is time, or their frames
//! are needed. After a crash the log says what is missing (analysis), does it again (redo), and takes back what was not committed (undo), of which it logs each step, so
//! that restarts that are cut short come to an end.
//!
//! | | |
//! |---|---|
//! | steal, no force | `buffer`: pages of what is not committed may be written, those of what is committed need not |
//! | page sequence numbers | `disk`: a page says which record of the log changed it last |
//! | compensation records, nested top actions | `wal`, `transaction`: what was undone is never undone again, what a nested action did is skipped |
//! | fuzzy checkpoints | [`Records::checkpoint`] and the cleaner: changed pages are listed, not written |
//! | analysis, redo, undo | `restart` |
//! | pages that are torn | `disk`: they are written to a buffer first |
//!
//! Tuned as a store of today: records are laid out in the log by the threads that make them, and one barrier is for all threads that wait for it; only bytes
//! that differ are logged; a cleaner writes pages in batches. What a transaction undoes it has in memory; the log is read at a restart only.
//!
//! As in MARS, a record is in a slot of its own, the slots of a page are of one size, and where records are is in memory.
//!
//! What costs: a commit one barrier, a nested action one more; a checkpoint five, with those of the log for its head; a batch of up to 16 pages two; reading and aborting nothing.
//!
//! ```
//! # fn main() -> eaw::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("store");
//! use eaw::aries::Options;
//! use eaw::records::{RecordTx, Records};
//!
//! let store = Options::new().create(&path)?;
//! let accounts = store.create_table("accounts")?;
//! let mut tx = store.begin()?;
//! let anna = tx.insert(accounts, b"Anna: 10")?;
//! tx.commit()?; // one barrier
//! let mut tx = store.begin()?;
//! tx.update(accounts, anna, b"Anna: 0")?;
//! tx.abort()?;
//! store.close()?;
//!
//! let store = Options::new().open(&path)?;
//! let (mut tx, mut record) = (store.begin()?, Vec::new());
//! tx.read(accounts, anna, &mut record)?;
//! assert_eq!(record, b"Anna: 10");
//! # Ok(()) }
//! ```

mod buffer;
mod cleaner;
mod disk;
mod failpoints;
mod restart;
mod room;
mod transaction;
mod wal;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use pmem::sync::Mutex;
use pmem::{Background, LINE, Persist, Pool, TwoSlot};

#[cfg(any(test, feature = "failpoints"))]
pub use failpoints::Step;
pub use restart::Restart;
pub use transaction::AriesTx;

use crate::error::{Error, Result};
use crate::records::locks::Owner;
use crate::records::session::{CATALOG, Keeps, Shared};
use crate::records::space::{Claimed, Space, slot_bytes};
use crate::records::{RecordTx, Records, Table};
use buffer::Buffer;
use disk::{Disk, HEADER, REGION_KIND};
use failpoints::Steps;
use wal::{Entry, LOOSE_MAX, Wal};

const NAME: &str = "aries";
const MASTER: &str = "aries.master";
const LOG: &str = "aries.log";
const VERSION: u32 = 1;
/// Bytes of a table's name at most.
const TABLE_NAME_MAX: usize = 48;

/// How a store is made and opened.
#[derive(Clone, Debug)]
pub struct Options {
    page: u64,
    bytes: u64,
    log: u64,
    frames: usize,
    cleans: bool,
    timeout: Duration,
    loose: u64,
    pool: pmem::Options,
    steps: Steps,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// Pages of 8 KiB; 16 MiB of them at first, and as much again each time they are full; 64 MiB of log; a buffer pool of 4096 pages; with a cleaner.
    pub fn new() -> Self {
        Self {
            page: 8 << 10,
            bytes: 16 << 20,
            log: 64 << 20,
            frames: 4096,
            cleans: true,
            timeout: Duration::from_secs(1),
            loose: LOOSE_MAX,
            pool: pmem::Options::new(),
            steps: Steps::default(),
        }
    }

    /// Bytes of a page, when the store is made: a multiple of 64. A record takes at most 80 bytes less.
    #[must_use]
    pub fn page_bytes(self, bytes: u64) -> Self {
        Self { page: bytes, ..self }
    }

    /// Bytes for pages when it is made, at least one page.
    #[must_use]
    pub fn segment_bytes(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    /// Bytes of log when it is made, at least 64 pages and 64 KiB: it has room for what open transactions have written, and to undo that.
    #[must_use]
    pub fn log_bytes(self, bytes: u64) -> Self {
        Self { log: bytes, ..self }
    }

    /// Pages in memory, at least four, and four million at most.
    #[must_use]
    pub fn buffer_pages(self, pages: usize) -> Self {
        Self { frames: pages.clamp(4, 4 << 20), ..self }
    }

    /// Whether a thread writes pages and makes checkpoints while others work. Without it that is done by a thread that finds the log half full.
    #[must_use]
    pub fn cleaner(self, is_on: bool) -> Self {
        Self { cleans: is_on, ..self }
    }

    /// A transaction that finds the log full of what others have not committed waits so long for them, before `LogFull`: a second unless told otherwise.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// How the pool is made and opened.
    #[must_use]
    pub fn pool(self, pool: pmem::Options) -> Self {
        Self { pool, ..self }
    }

    /// So many records of the log wait to be forced at most.
    #[cfg(any(test, feature = "failpoints", feature = "testing"))]
    #[must_use]
    pub fn loose(self, records: u64) -> Self {
        Self { loose: records.min(LOOSE_MAX), ..self }
    }

    /// Leaves a step of the protocol out.
    #[cfg(any(test, feature = "failpoints"))]
    #[must_use]
    pub fn without(self, step: Step) -> Self {
        Self { steps: Steps { without: Some(step) }, ..self }
    }

    /// Makes a store in a new pool.
    ///
    /// # Errors
    /// [`Error::Limit`] for sizes; those of [`pmem::Options::create`].
    pub fn create(&self, path: impl AsRef<Path>) -> Result<Aries> {
        self.check()?;
        let pool = self.pool.clone().size(self.bytes + self.log + (4 << 20)).engine(NAME, [0; 64]);
        let pool = pool.create_with(path, |pool| self.make(pool).map(|()| pool.clone()))?;
        self.open_in(&pool)
    }

    /// Opens the store at this path, and restarts it if it was not closed. What was done is [`Aries::restarted`].
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::NewerVersion`]; those of [`pmem::Options::open`] and of the log.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Aries> {
        self.open_in(&self.pool.clone().engine(NAME, [0; 64]).open(path)?)
    }

    /// Makes a store in a pool, among other things. A pool in which a crash cut that short cannot be used for another try.
    ///
    /// # Errors
    /// As [`create`](Self::create); [`pmem::Error::RegionExists`].
    pub fn create_in(&self, pool: &Pool) -> Result<Aries> {
        self.check()?;
        self.make(pool)?;
        self.open_in(pool)
    }

    fn check(&self) -> Result<()> {
        let limit = |what, found, min, max| Err(Error::Limit { what, found, min, max });
        if !(256..=1 << 24).contains(&self.page) || !self.page.is_multiple_of(LINE) {
            return limit("bytes of a page, a multiple of 64", self.page, 256, 1 << 24);
        }
        if !(self.page..=1 << 40).contains(&self.bytes) {
            return limit("bytes for pages", self.bytes, self.page, 1 << 40);
        }
        let log = (64 * self.page).max(64 << 10);
        if !(log..=1 << 40).contains(&self.log) {
            return limit("bytes of log", self.log, log, 1 << 40);
        }
        Ok(())
    }

    /// The master record last: with it the store is there.
    fn make(&self, pool: &Pool) -> Result<()> {
        let pages = self.bytes / self.page;
        self.log().create_in(pool, LOG)?.close()?;
        Disk::create(pool, self.page, pages)?;
        let region = pool.add_region_as(MASTER, TwoSlot::<Master>::SIZE, REGION_KIND, 0)?;
        let master = Master { page: self.page, pages, checkpoint: 0, used: 0, version: VERSION, reserved: 0 };
        TwoSlot::create(region.into_area()?, &master)?.update_mirrored(&master)?;
        Ok(())
    }

    fn log(&self) -> log::Options {
        let segment = (self.log / 16).clamp(4096, (4 * self.page).max(1 << 20)) / 4096 * 4096; // four pages and more
        let options = log::Options::new().bytes(self.log).segment_bytes(segment);
        // A thread of its own says on the medium how far it goes, after a while without changes: damage at its end is noticed then.
        if self.cleans { options } else { options.idle(None) }
    }

    /// Opens the store that is in a pool.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_in(&self, pool: &Pool) -> Result<Aries> {
        let (master, _) = TwoSlot::<Master>::open(pool.region(MASTER)?.into_area()?)?;
        let said = master.get();
        if said.version > VERSION {
            let (path, found) = (pool.path().to_owned(), said.version);
            return Err(Error::NewerVersion { path, found, known: VERSION });
        }
        if !(256..=1 << 24).contains(&said.page)
            || !said.page.is_multiple_of(LINE)
            || !(1..=1 << 40).contains(&said.pages)
        {
            return Err(Error::Damaged { path: pool.path().to_owned(), what: "master record of a store of records" });
        }
        let (log, _) = self.log().open_in(pool, LOG)?;
        let newest = log.stats().next.get() - 1;
        let disk = Disk::open(pool, said.page, said.pages, newest, self.steps)?;
        let buffer = Buffer::new(disk, said.pages, said.page, self.frames);
        let mut core = Core {
            shared: Shared::new(Space::new(said.page), (said.page - LINE) as usize - HEADER),
            pool: pool.clone(),
            page: said.page,
            wal: Wal { log, loose: self.loose, steps: self.steps, stopped: AtomicBool::new(false) },
            buffer,
            master: Mutex::new(master),
            active: Mutex::new(BTreeMap::new()),
            making: Mutex::new(()),
            owed: AtomicU64::new(0),
            cleans: self.cleans && pool.domain() != pmem::Domain::Simulated,
            timeout: self.timeout,
            tidied: AtomicU64::new(0),
            checkpointed: Mutex::new(0),
        };
        let mut restart = core.restart()?;
        core.find_records(&mut restart.damaged)?;
        pool.set_pending(true);
        let core = Arc::new(core);
        let cleaner = if self.cleans { cleaner::start(&core) } else { None };
        Ok(Aries { core: Some(core), cleaner, restart })
    }
}

/// Where a restart begins.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Persist)]
struct Master {
    page: u64,
    /// Of the first region.
    pages: u64,
    /// The log's record of the newest checkpoint; 0: there was none.
    checkpoint: u64,
    /// Pages that were used then, those before all others: zeros are damage there.
    used: u64,
    version: u32,
    reserved: u32,
}

/// What transactions, the cleaner and restart work on.
struct Core {
    shared: Shared,
    pool: Pool,
    page: u64,
    wal: Wal,
    buffer: Buffer,
    master: Mutex<TwoSlot<Master>>,
    /// Transactions that have logged something: a number that none of their records is below.
    active: Mutex<BTreeMap<Owner, u64>>,
    /// A thread that makes slots has it.
    making: Mutex<()>,
    /// Bytes of log that are about to be written, or that it takes to undo all that is not committed.
    owed: AtomicU64,
    /// A cleaner sees to the log, too.
    cleans: bool,
    timeout: Duration,
    /// How long the log was when it was last made shorter.
    tidied: AtomicU64,
    /// The newest checkpoint needs the log from there on.
    checkpointed: Mutex<u64>,
}

/// A store of records: see the [module](self). Shared by reference between threads.
pub struct Aries {
    /// None when it is closed.
    core: Option<Arc<Core>>,
    cleaner: Option<Background>,
    restart: Restart,
}

impl Core {
    fn check_usable(&self) -> Result<()> {
        self.pool.check_usable()?;
        self.wal.check_running()
    }

    fn damaged_page(&self) -> Error {
        Error::Damaged { path: self.pool.path().to_owned(), what: "page of a store of records" }
    }

    /// A free slot for a record of so many bytes. A page is used when the log says so.
    fn take_slot(&self, len: usize) -> Result<u64> {
        let slot = slot_bytes(len + HEADER, self.page);
        let format = |_: &mut (), Claimed { block: page, .. }: Claimed| {
            self.buffer.with(&self.wal, page, |held| {
                let lsn = self.wal.add(0, &Entry::Format { page, slot }, &mut Vec::new())?;
                held.format(slot, lsn);
                Ok(())
            })
        };
        self.shared.take_slot(&self.making, slot, format, || self.buffer.grow())
    }
}

impl Aries {
    fn core(&self) -> Result<&Arc<Core>> {
        self.core.as_ref().ok_or(Error::Stopped)
    }

    /// What was done when it was opened.
    pub fn restarted(&self) -> &Restart {
        &self.restart
    }

    /// What its pool has counted since it was opened.
    pub fn stats(&self) -> pmem::Stats {
        self.core.as_ref().map(|core| core.pool.stats()).unwrap_or_default()
    }

    /// Records, of all tables, those that are not committed yet included, but for tables' names; 0 in the child of a fork.
    pub fn len(&self) -> u64 {
        let Some(core) = self.core.as_ref().filter(|core| core.pool.check_usable().is_ok()) else { return 0 };
        let tables = core.shared.tables.lock().len() as u64;
        core.shared.space.lock().count() - tables
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// As the cleaner does it: writes changed pages until so few are left, and makes a checkpoint that lists those.
    ///
    /// # Errors
    /// Those of a barrier.
    pub fn tidy(&self, left: usize) -> Result<()> {
        self.core()?.tidy(left)
    }

    /// For tests: drops it and leaves the file as a crash would.
    #[doc(hidden)]
    pub fn abandon(mut self) {
        self.cleaner = None;
        if let Some(core) = self.core.take() {
            core.pool.abandon();
        }
    }

    fn finish(&mut self) -> Result<()> {
        self.cleaner = None;
        let Some(core) = self.core.take() else { return Ok(()) };
        core.check_usable()?;
        core.tidy(0)?;
        let pool = core.pool.clone();
        if let Some(core) = Arc::into_inner(core) {
            core.wal.log.close()?;
        }
        pool.set_pending(false);
        match pool.close() {
            // Another owner has something in it, and closes it.
            Err(pmem::Error::InUse { .. }) => Ok(()),
            other => Ok(other?),
        }
    }
}

impl Records for Aries {
    type Tx<'a> = AriesTx<'a>;

    fn begin(&self) -> Result<AriesTx<'_>> {
        let core = self.core()?;
        core.check_usable()?;
        Ok(AriesTx::new(core))
    }

    /// A record of the catalog.
    fn create_table(&self, name: &str) -> Result<Table> {
        if name.is_empty() || name.len() > TABLE_NAME_MAX || name.contains('\0') {
            return Err(Error::BadTableName { name: name.to_owned(), max: TABLE_NAME_MAX });
        }
        let core = self.core()?;
        core.check_usable()?;
        let mut tables = core.shared.tables.lock();
        if tables.iter().any(|other| other == name) {
            return Err(Error::TableExists { name: name.to_owned() });
        }
        let number = tables.len() as u32;
        let mut tx = self.begin()?;
        tx.insert_record(CATALOG, &[&number.to_le_bytes(), name.as_bytes()].concat())?;
        tx.commit()?;
        tables.push(name.to_owned());
        Ok(Table(number))
    }

    fn table(&self, name: &str) -> Result<Table> {
        let core = self.core()?;
        core.check_usable()?;
        core.shared.table(name)
    }

    fn record_max(&self) -> usize {
        self.core.as_ref().map_or(0, |core| core.shared.record_max())
    }

    fn checkpoint(&self) -> Result<()> {
        self.tidy(0)
    }

    fn close(mut self) -> Result<()> {
        self.finish()
    }
}

impl Drop for Aries {
    fn drop(&mut self) {
        let Some(core) = &self.core else { return };
        if core.pool.check_usable().is_err() || !core.pool.is_closed_on_drop() {
            self.cleaner = None;
            return;
        }
        let path = core.pool.path().to_owned();
        if let Err(error) = self.finish() {
            tracing::warn!(%error, store = %path.display(), "a store that was dropped could not be closed; it is restarted when it is opened");
        }
    }
}

impl std::fmt::Debug for Aries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Aries").field("restart", &self.restart).finish_non_exhaustive()
    }
}
