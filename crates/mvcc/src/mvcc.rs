//! The store: made, opened, closed.

use std::path::Path;
use std::sync::Arc;

use pmem::{
    Allocator, Background, Domain, Error as PoolError, FlushSet, Intent, Pool, Recovered, Ring, SlotState, SpaceFor,
    TwoSlot,
};
use tx::{Engine, Error, Handover, Isolation, Procedure, Result};

use crate::assemble::Parts;
use crate::background;
use crate::calls::Registered;
use crate::core::Core;
use crate::options::{LAYOUT, Options};
use crate::pass::{Progress, Upkeep};
use crate::procedures::Names;
use crate::raw::{self, Claim};
use crate::recovery::{self, Recovery};
use crate::snapshot::Snapshot;
use crate::state::{COPIES, LOGS, MAIN, NAMES, PAGE, STATE, State};
use crate::stats::{Sizes, Stats};
use crate::transaction::Tx;

/// A store of objects with several versions each: readers write nothing and are in no writer's way.
///
/// Dropped, it is closed as by [`close`](Self::close), whose error is then a warning and not returned. It is left to be recovered at the next open if its thread
/// panics, in a forked child, after a failed sync, and if a transaction was forgotten.
///
/// ```
/// # fn main() -> tx::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("bank.cairn");
/// use mvcc::{Mvcc, Options};
/// use tx::{Engine, Isolation, Typed};
///
/// let store = Mvcc::create(&path, &Options::new().bytes(1 << 20))?;
/// let account = store.transact(Isolation::Serializable, |tx| {
///     let account = tx.alloc(&100u64)?;
///     tx.set_root(account)?;
///     Ok::<_, tx::Error>(account)
/// })?;
/// store.transact(Isolation::Serializable, |tx| -> tx::Result<()> { *tx.write(account)? -= 30; Ok(()) })?; // one barrier
/// store.close()?;
///
/// let store = Mvcc::open(&path, &Options::new())?;
/// let tx = store.begin(Isolation::Snapshot)?;
/// assert_eq!(*tx.read(tx.root::<u64>()?)?, 70);
/// # Ok(()) }
/// ```
pub struct Mvcc {
    core: Arc<Core>,
    background: Option<Background>,
    /// Those of this program, with which a copy is opened.
    procedures: Vec<Registered>,
    recovery: Recovery,
    /// Behind the others: they have let go of the core by then.
    closing: Closing,
}

/// Closes a store whose handle is dropped.
struct Closing(Option<Arc<Core>>);

impl Drop for Closing {
    fn drop(&mut self) {
        let Some(core) = self.0.take() else { return };
        if !core.pool.is_closed_on_drop() {
            return;
        }
        let path = core.pool.path().to_owned();
        if let Err(error) = close(core) {
            tracing::warn!(%error, store = %path.display(), "a store that was dropped could not be closed; it is recovered when it is opened");
        }
    }
}

impl std::fmt::Debug for Mvcc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mvcc({:?})", self.core.pool)
    }
}

impl Mvcc {
    // ---- make -------------------------------------------------------------------------------------------------------

    /// Makes a pool with an empty store. The file appears under its name when the store is whole.
    ///
    /// # Errors
    /// Those of [`pmem::Options::create`]; [`Error::Limit`].
    pub fn create(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        options.check()?;
        options.pool.clone().size(1 << 20).create_with(path, |pool| {
            Self::create_in(pool, options).map_err(|error| match error {
                Error::Pool(PoolError::NoSpace { path, wanted, what: SpaceFor::Growth }) => {
                    PoolError::NoSpace { path, wanted: pool.size() + wanted, what: SpaceFor::NewPool }.into()
                }
                other => other,
            })
        })
    }

    /// Makes an empty store in a pool that has none.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_in(pool: &Pool, options: &Options) -> Result<Self> {
        options.check()?;
        let cell = pool.add_region(STATE, TwoSlot::<State>::size_apart(PAGE))?;
        let logs = pool.add_region(LOGS, options.slots as u64 * options.log_bytes)?.into_area()?;
        let mut areas = recovery::split(logs, options.slots as u64, options.log_bytes)?;
        areas.push(pool.add_region(COPIES, options.copy_bytes)?.into_area()?);
        let names = pool.add_region(NAMES, TwoSlot::<Names>::size_apart(PAGE))?;
        TwoSlot::create_apart(names.into_area()?, PAGE, &Names::of(&options.known()))?;
        let rings = areas.into_iter().map(Ring::create).collect::<Result<Vec<_>, _>>()?;
        let alloc = Allocator::create(pool, MAIN, options.bytes, options.blocks)?;
        let root = make_root(pool, &alloc)?;
        let (slots, log_bytes) = (options.slots as u64, options.log_bytes);
        let copy_bytes = options.copy_bytes;
        let state = State { slots, log_bytes, root, durable: 0, written: 0, between: 0, copy_bytes, copied: 0 };
        let mut cell = TwoSlot::create_apart(cell.into_area()?, PAGE, &state)?;
        cell.update_mirrored(&state)?;
        let parts = Parts { pool: pool.clone(), alloc, rings, upkeep: Upkeep::new(cell) };
        Ok(Self::start(Core::new(parts, &state, options), options, Recovery::default()))
    }

    // ---- open -------------------------------------------------------------------------------------------------------

    /// Opens the store in the pool at `path`, and finishes what a crash interrupted.
    ///
    /// # Errors
    /// Those of [`pmem::Options::open`]; [`Error::Damaged`]. A store that was closed, and in which nothing was changed yet, stays closed.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let pool = options.pool.clone().open(path)?;
        Self::open_in(&pool, options).inspect_err(|_| {
            // Else it would pass for one that was killed, and be recovered the next time from what was refused here.
            if pool.was_clean()
                && let Err(error) = pool.close()
            {
                tracing::warn!(%error, "a store that could not be opened could not be closed either");
            }
        })
    }

    /// Opens the store at `path`, or makes one if nothing is there.
    ///
    /// # Errors
    /// As [`open`](Self::open) and [`create`](Self::create).
    pub fn open_or_create(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        match Self::open(&path, options) {
            Err(Error::Pool(PoolError::Io { source, .. })) if source.kind() == std::io::ErrorKind::NotFound => {
                Self::create(path, options)
            }
            other => other,
        }
    }

    /// Opens the store in a pool. After an error, close the pool, as [`open`](Self::open) does.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_in(pool: &Pool, options: &Options) -> Result<Self> {
        // A store may have been opened in this pool before, and not closed; but not in one that is only read.
        let clean = pool.was_clean() && (pool.is_read_only() || !pool.is_pending());
        drop(pool.region(MAIN)?); // before anything is opened: another engine may have the objects
        tx::pass_over(pool, "heap");
        let (cell, of_cell) = TwoSlot::<State>::open_apart(pool.region(STATE)?.into_area()?, PAGE)?;
        let state = cell.get();
        if !state.is_sound() {
            let why = format!("no store has {state:?}");
            return Err(Error::Damaged { what: "state of a store", offset: 0, why });
        }
        options.check()?;
        let mut areas = recovery::split(pool.region(LOGS)?.into_area()?, state.slots, state.log_bytes)?;
        areas.push(pool.region(COPIES)?.into_area()?);
        let (mut names, of_names) = TwoSlot::<Names>::open_apart(pool.region(NAMES)?.into_area()?, PAGE)?;
        names.get().check()?;
        let opened = areas.into_iter().map(Ring::open).collect::<Result<Vec<_>, _>>()?;
        let (rings, recovered): (Vec<Ring>, Vec<Recovered>) = opened.into_iter().unzip();
        let alloc = Allocator::open(pool, MAIN)?;
        let parts = Parts { pool: pool.clone(), alloc, rings, upkeep: Upkeep::new(cell) };
        let mut core = Core::new(parts, &state, options);
        if pool.is_read_only() {
            core.named = names.get().all();
        }
        let mut recovery = recovery::run(&core, &recovered, &names.get(), &options.procedures, clean)?;
        recovery.cells =
            [of_cell, of_names].iter().filter(|other_slot| **other_slot == SlotState::Corrupt).count() as u64;
        if !pool.is_read_only() {
            pool.set_pending(true);
            recovery::empty_logs(&core, &recovered)?;
            Names::update(&mut names, &options.known())?;
            if of_cell != SlotState::Equal {
                let mut upkeep = core.upkeep.lock();
                let state = upkeep.cell.get(); // an older copy would be wrong about records that are gone
                upkeep.cell.update_mirrored(&state)?;
            }
            if of_names == SlotState::Corrupt {
                names.update_mirrored(&names.get())?;
            }
        }
        Ok(Self::start(core, options, recovery))
    }

    fn start(core: Core, options: &Options, recovery: Recovery) -> Self {
        let core = Arc::new(core);
        if !core.pool.is_read_only() {
            core.pool.set_pending(true); // a new one, too
        }
        // A simulated pool has no time.
        let wanted = options.background && core.pool.domain() != Domain::Simulated && !core.pool.is_read_only();
        let background = wanted.then(|| background::start(&core));
        let closing = Closing(Some(Arc::clone(&core)));
        Self { core, background, procedures: options.procedures.clone(), recovery, closing }
    }

    // ---- look -------------------------------------------------------------------------------------------------------

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    pub(crate) fn procedures(&self) -> &[Registered] {
        &self.procedures
    }

    /// The pool it is in.
    pub fn pool(&self) -> &Pool {
        &self.core.pool
    }

    /// What opening it had to do.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// What it was made with, and how far it is written back.
    pub fn sizes(&self) -> Sizes {
        Sizes::of(&self.core)
    }

    /// Counts since it was opened.
    pub fn stats(&self) -> Stats {
        Stats::of(&self.core)
    }

    /// The state that is committed now, to be looked at for as long as the handle lives.
    pub fn snapshot(&self) -> Snapshot<'_> {
        Snapshot::new(&self.core)
    }

    /// Calls `f` with the offset and size of every live block, the root's among them. Call it when no transaction runs.
    ///
    /// # Errors
    /// Those of [`Allocator::live_blocks`].
    pub fn live_blocks(&self, mut f: impl FnMut(u64, u64)) -> Result<pmem::HeapUsage> {
        self.write_back()?;
        Ok(self.core.alloc.live_blocks(|offset, len| {
            f(offset, len);
            Ok(())
        })?)
    }

    // ---- change -----------------------------------------------------------------------------------------------------

    /// Writes back all that is committed, and gives up what is no longer needed; false if a transaction that runs is in the way. Five barriers if there is something
    /// to do.
    ///
    /// # Errors
    /// Those of a drain.
    pub fn write_back(&self) -> Result<bool> {
        Ok(self.core.upkeep()? != Progress::Blocked)
    }

    /// Writes everything back and closes the pool.
    ///
    /// # Errors
    /// [`pmem::Error::Poisoned`] after a failed sync, first of all; [`pmem::Error::InUse`] if a transaction was forgotten; what went wrong behind a commit.
    pub fn close(self) -> Result<()> {
        let Self { core, background, mut closing, .. } = self;
        drop(background);
        closing.0 = None;
        close(core)
    }

    /// Writes everything back and gives the objects up: for another engine, in the same pool.
    ///
    /// # Errors
    /// As [`close`](Self::close); [`pmem::Error::ReadOnly`].
    pub fn hand_over(self) -> Result<Handover> {
        let Self { core, background, mut closing, .. } = self;
        drop(background);
        closing.0 = None;
        core.pool.check_usable()?;
        let root = core.root;
        Ok(Handover::new(end(core)?, MAIN, LAYOUT, root))
    }

    /// For tests: a transaction to be logged as this call, if it may be, which the caller runs in it.
    ///
    /// # Errors
    /// As [`begin`](Engine::begin).
    #[doc(hidden)]
    pub fn begin_call<P: Procedure>(&self, args: &P::Args) -> Result<Tx<'_>> {
        let tx = self.begin(P::ISOLATION)?;
        if let Some(calling) = self.core.calling::<P>(args) {
            tx.log_as(&calling);
        }
        Ok(tx)
    }

    /// For tests: drops it and leaves the file as a crash would.
    #[doc(hidden)]
    pub fn abandon(self) {
        self.core.pool.abandon();
    }
}

/// The handle's other parts are gone.
fn close(core: Arc<Core>) -> Result<()> {
    Ok(end(core)?.close()?)
}

/// Everything is written back; what is left is the pool.
fn end(core: Arc<Core>) -> Result<Pool> {
    if !core.pool.is_read_only() {
        core.pool.check_usable()?; // before all that a failed sync leaves behind
        if let Some(slot) = (0..core.tx_slots.len()).find(|slot| core.tx_slots.holder(*slot).is_some()) {
            return Err(PoolError::InUse { what: format!("the transaction in slot {slot}") }.into());
        }
        core.held.lock().clear(); // they borrow the store: those that are left were forgotten
        core.upkeep()?;
    }
    if let Some(trouble) = core.trouble.lock().take() {
        return Err(trouble);
    }
    let core = Arc::into_inner(core).ok_or(PoolError::InUse { what: "the store".into() })?;
    let (pool, alloc) = core.into_last();
    alloc.close()?;
    if !pool.is_read_only() {
        pool.set_pending(false);
    }
    Ok(pool)
}

/// The block for the root's pointer.
fn make_root(pool: &Pool, alloc: &Allocator) -> Result<u64> {
    let block = alloc.reserve(size_of::<[u64; 2]>() as u64, 16)?;
    // reserved just now, and named nowhere.
    raw::bytes_mut(Claim::Alone, pool, pool, block.offset(), block.len())?.fill(0);
    pool.flush(block.offset(), block.len())?;
    let mut lines = FlushSet::default();
    alloc.apply(&Intent::alloc(&block), &mut lines)?;
    pool.flush_set(&mut lines)?;
    pool.drain()?;
    Ok(block.offset())
}

impl Options {
    /// Makes a store in a new file: [`Mvcc::create`].
    ///
    /// # Errors
    /// As there.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<Mvcc> {
        Mvcc::create(path, self)
    }

    /// Opens the store at `path`, and recovers it if it was not closed: [`Mvcc::open`].
    ///
    /// # Errors
    /// As there.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Mvcc> {
        Mvcc::open(path, self)
    }
}

impl Engine for Mvcc {
    type Tx<'a> = Tx<'a>;

    fn name(&self) -> &'static str {
        "mvcc"
    }

    fn strongest(&self) -> Isolation {
        Isolation::Strict
    }

    #[inline]
    fn begin(&self, isolation: Isolation) -> Result<Tx<'_>> {
        Tx::begin(&self.core, isolation)
    }

    fn call<P: Procedure>(&self, args: &P::Args) -> Result<P::Output> {
        let calling = self.core.calling::<P>(args);
        self.transact(P::ISOLATION, |tx| {
            if let Some(calling) = &calling {
                tx.log_as(calling);
            }
            P::run(tx, args)
        })
    }
}
