//! A heap: made, opened, closed.

use std::path::Path;
use std::sync::Arc;

use pmem::sync::Mutex;
use pmem::{Allocator, Background, Domain, Error as PoolError, Pool, Ring, SlotState, SpaceFor, TwoSlot};
use tx::{Engine, Error, Handover, Isolation, Result};

use crate::assemble::{Parts, State, add_backup, assemble, make_root, rebuild, switch};
use crate::cell;
use crate::coordinator;
use crate::core::Core;
use crate::follower::Follower;
use crate::locking::Tx;
use crate::options::{Intents, LAYOUT, Options, Policy};
use crate::partial;
use crate::recovery::{self, Recovery};
use crate::regions::{BACKUP, COPIES, COPIES_STATE, LOGS, MAIN, MARKS, STATE, ZONES};
use crate::stats::Stats;

/// A heap of objects, changed by transactions that are atomic and durable, as far as its [`Policy`] goes.
///
/// Dropped, it is closed as by [`close`](Self::close), whose error is then a warning and not returned. It is left to be recovered at the next open if its thread
/// panics, in a forked child, after a failed sync, and if a transaction was forgotten.
///
/// ```
/// # fn main() -> tx::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("bank.cairn");
/// use heap::{Heap, Options};
/// use pmem::{PPtr, Persist};
/// use tx::{Engine, Isolation, Typed};
///
/// #[derive(Clone, Copy, Persist)]
/// #[repr(C)]
/// struct Account { balance: i64, next: PPtr<Account> }
///
/// let heap = Heap::create(&path, &Options::new().bytes(1 << 20))?;
/// heap.transact(Isolation::Serializable, |tx| -> tx::Result<_> {
///     let second = tx.alloc(&Account { balance: 0, next: PPtr::NULL })?;
///     let first = tx.alloc(&Account { balance: 100, next: second })?;
///     tx.set_root(first)
/// })?;
/// heap.close()?;
///
/// let heap = Heap::open(&path, &Options::new())?; // after a crash too
/// heap.transact(Isolation::Serializable, |tx| -> tx::Result<_> {
///     let first = tx.root::<Account>()?;
///     let second = tx.read(first)?.next;
///     tx.write(first)?.balance -= 10;
///     tx.write(second)?.balance += 10;
///     Ok(())
/// })?;
/// # Ok(()) }
/// ```
pub struct Heap {
    core: Arc<Core>,
    cell: Mutex<TwoSlot<State>>,
    coordinator: Option<Background>,
    recovery: Recovery,
    /// Behind the others: they have let go of the core by then.
    closing: Closing,
}

/// Closes a heap whose handle is dropped.
struct Closing(Option<Arc<Core>>);

impl Drop for Closing {
    fn drop(&mut self) {
        let Some(core) = self.0.take() else { return };
        if !core.pool.is_closed_on_drop() {
            return;
        }
        let path = core.pool.path().to_owned();
        if let Err(error) = close(core) {
            tracing::warn!(%error, heap = %path.display(), "a heap that was dropped could not be closed; it is recovered when it is opened");
        }
    }
}

impl std::fmt::Debug for Heap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Heap({}, {:?})", self.core.policy, self.core.pool)
    }
}

impl Heap {
    // ---- make -------------------------------------------------------------------------------------------------------

    /// Makes a pool with an empty heap. The file appears under its name when the heap is whole.
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

    /// Makes an empty heap in a pool that has none.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_in(pool: &Pool, options: &Options) -> Result<Self> {
        options.check()?;
        let policy = options.policy.unwrap_or_default();
        let apart = !options.blocks.is_earlier_layout();
        let cell = pool.add_region(STATE, cell::region_bytes::<State>(apart))?;
        let mut rings = Vec::with_capacity(options.slots);
        let mut rest = pool.add_region(LOGS, options.slots as u64 * options.log_bytes)?.into_area()?;
        for _ in 0..options.slots {
            let (area, after) = rest.split_at(options.log_bytes)?;
            rings.push(if apart { Ring::create(area)? } else { Ring::create_together(area)? });
            rest = after;
        }
        let alloc = Allocator::create(pool, MAIN, options.bytes, options.blocks)?;
        let root = make_root(pool, &alloc)?;
        let mut state = State {
            policy: policy.code(),
            backup: 0,
            slots: options.slots as u64,
            log_bytes: options.log_bytes,
            zone_bytes: options.zone_bytes,
            root,
        };
        let backup = match policy {
            Policy::InPlace => add_backup(pool, &alloc, &state)?,
            Policy::InPlacePartial => {
                let (region, cell) = partial::regions(pool, options.share().unwrap_or(partial::SHARE))?;
                Follower::Copies(region, cell)
            }
            Policy::None | Policy::Undo | Policy::Eaw => Follower::Nothing,
        };
        state.backup = (policy == Policy::InPlace).into();
        let mut cell = cell::create(cell, &state)?;
        cell.update_mirrored(&state)?;
        let mut core = assemble(pool, options, policy, &state, Parts { alloc, rings, backup });
        core.ground.begin_copies(options.share())?;
        if policy == Policy::InPlace {
            core.zones.clean_new(0)?;
        }
        Ok(Self::start(core, cell, options, Recovery::default()))
    }

    // ---- open -------------------------------------------------------------------------------------------------------

    /// Opens the heap in the pool at `path`, and finishes what a crash interrupted. A policy other than the heap's is taken over once it
    /// has recovered: in place then begins with a copy of everything.
    ///
    /// # Errors
    /// Those of [`pmem::Options::open`]; [`Error::Damaged`]. A heap that was closed, and in which nothing was changed yet, stays closed.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let pool = options.pool.clone().open(path)?;
        Self::open_in(&pool, options).inspect_err(|_| {
            // Else it would pass for one that was killed: what was refused here, records of an earlier time say, would be recovered the next time.
            if pool.was_clean()
                && let Err(error) = pool.close()
            {
                tracing::warn!(%error, "a heap that could not be opened could not be closed either");
            }
        })
    }

    /// Opens the heap at `path`, or makes one if nothing is there.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("list.cairn");
    /// use heap::{Heap, Options};
    /// let options = Options::new().bytes(1 << 20);
    /// drop(Heap::open_or_create(&path, &options)?); // closes it
    /// assert!(Heap::open_or_create(&path, &options)?.recovery().was_clean());
    /// # Ok::<(), tx::Error>(())
    /// ```
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

    /// Opens the heap in a pool. After an error, close the pool, as [`open`](Self::open) does: a heap in it that was closed stays so, if nothing was changed.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_in(pool: &Pool, options: &Options) -> Result<Self> {
        // A heap may have been opened in this pool before, and not closed; but not in one that is only read.
        let closed = pool.was_clean() && (pool.is_read_only() || !pool.is_pending());
        drop(pool.region(MAIN)?); // before anything is opened: another engine may have the objects
        tx::pass_over(pool, "mvcc");
        let (mut cell, other_slot) = cell::open::<State>(pool.region(STATE)?)?;
        let mut state = cell.get();
        let stored = Policy::from_code(state.policy).filter(|_| state.is_sound());
        let stored = stored.ok_or_else(|| Error::Damaged {
            what: "heap state",
            offset: 0,
            why: format!("no heap has {state:?}"),
        })?;
        if other_slot != SlotState::Equal && !pool.is_read_only() {
            cell.update_mirrored(&state)?; // an older copy would tell of another policy, or of no backup
        }
        let mut rest = pool.region(LOGS)?.into_area()?;
        let (mut rings, mut found) = (Vec::new(), Vec::new());
        for _ in 0..state.slots {
            let (area, after) = rest.split_at(state.log_bytes)?;
            let (ring, recovered) = Ring::open(area)?;
            rings.push(ring);
            found.push(recovered);
            rest = after;
        }
        let alloc = Allocator::open(pool, MAIN)?;
        for other in [BACKUP, ZONES, MARKS, COPIES, COPIES_STATE] {
            drop(pool.region(other)); // of another policy's time, perhaps: of no meaning, so there is nothing to recover
        }
        let backup = match stored {
            Policy::InPlace => {
                let marks = match pool.region(MARKS) {
                    Err(PoolError::NoRegion { .. }) => None,
                    found => Some(found?),
                };
                Follower::Backup(pool.region(BACKUP)?, pool.region(ZONES)?, marks)
            }
            Policy::InPlacePartial => {
                let cell = partial::open_state(pool.region(COPIES_STATE)?)?;
                Follower::Copies(pool.region(COPIES)?, cell)
            }
            Policy::None | Policy::Undo | Policy::Eaw => Follower::Nothing,
        };
        let mut core = assemble(pool, options, stored, &state, Parts { alloc, rings, backup });
        if closed {
            recovery::nothing_left(&core, &found, state.backup != 0)?;
        }
        pool.set_pending(true);
        let recovery = recovery::run(&core, &found, state.backup != 0, closed)?;
        if stored == Policy::InPlace && state.backup == 0 {
            // Opened under another policy since, or the copying was interrupted.
            core.grow_backup()?;
            rebuild(&core)?;
            state.backup = 1;
            cell.update_mirrored(&state)?;
        }
        let wanted = options.policy.unwrap_or(stored);
        let core = match wanted == stored {
            true if pool.is_read_only() => core,
            true => {
                core.ground.begin_copies(options.share())?;
                core
            }
            false => {
                // The second copy of a heap in place is left behind.
                let whole = if stored == Policy::InPlace { crate::scrub::run(&core, true).map(drop) } else { Ok(()) };
                let switched = whole.and_then(|()| switch(core, &mut cell, &mut state, wanted, options));
                if switched.is_err() {
                    pool.set_pending(!closed); // the old policy is in force, and has no record left: what was closed can be closed again
                }
                switched?
            }
        };
        Ok(Self::start(core, cell, options, recovery))
    }

    fn start(core: Core, cell: TwoSlot<State>, options: &Options, recovery: Recovery) -> Self {
        let core = Arc::new(core);
        core.pool.set_pending(true); // a new one, too
        // A simulated pool has no time, and `none` nothing to apply.
        let wanted = options.coordinator && core.policy != Policy::None && core.pool.domain() != Domain::Simulated;
        let coordinator = wanted.then(|| coordinator::start(&core));
        let closing = Closing(Some(Arc::clone(&core)));
        Self { core, cell: Mutex::new(cell), coordinator, recovery, closing }
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    // ---- look -------------------------------------------------------------------------------------------------------

    /// The pool it is in.
    pub fn pool(&self) -> &Pool {
        &self.core.pool
    }

    /// How its transactions are rolled back.
    pub fn policy(&self) -> Policy {
        self.core.policy
    }

    /// What opening it had to do.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Slots for transactions.
    pub fn slots(&self) -> u64 {
        self.core.logs.len() as u64
    }

    /// Bytes of each slot's log.
    pub fn log_bytes(&self) -> u64 {
        self.cell.lock().get().log_bytes
    }

    /// Counts since it was opened.
    pub fn stats(&self) -> Stats {
        Stats::of(&self.core)
    }

    /// Calls `f` with the offset and size of every live block, the root's among them. Call it when no transaction runs.
    ///
    /// # Errors
    /// Those of [`Allocator::live_blocks`].
    pub fn live_blocks(&self, mut f: impl FnMut(u64, u64)) -> Result<pmem::HeapUsage> {
        self.apply_pending()?;
        Ok(self.core.alloc.live_blocks(|offset, len| {
            f(offset, len);
            Ok(())
        })?)
    }

    // ---- change -----------------------------------------------------------------------------------------------------

    /// Applies everything that is pending: at most two barriers per slot that has something.
    ///
    /// # Errors
    /// Those of a drain.
    pub fn apply_pending(&self) -> Result<()> {
        self.core.apply_all(&mut |_| {})
    }

    /// For tests: what the thread that applies idle slots does when no transaction commits between two of its looks.
    #[doc(hidden)]
    pub fn apply_idle(&self) {
        let mut before = vec![0; self.core.slots.len()];
        (0..2).for_each(|_| crate::coordinator::look(&self.core, &mut before));
    }

    /// Makes the heap at least `bytes` bytes larger while it is in use; more, where growing by so little would use up the pool's directory before the pool is as large as it may
    /// become ([`pmem::Options::max_size`]). It does so by itself
    /// when it is full, up to [`Options::max_bytes`].
    ///
    /// # Errors
    /// [`pmem::Error::NoSpace`] and its like; [`pmem::Error::Limit`] for more bytes than a pool can have.
    pub fn grow(&self, bytes: u64) -> Result<()> {
        self.core.grow(bytes)
    }

    /// Compares main with the backup, zone by zone, and repairs the copy that is wrong. Beside running transactions it leaves alone, and counts,
    /// what they are in; an object that is just looked at is in conflict with its writers. Nothing is looked at without a backup.
    ///
    /// # Errors
    /// [`Error::Damaged`] where the two differ and nothing tells which is right, when everything else was looked at.
    pub fn scrub(&self) -> Result<crate::Scrubbed> {
        crate::scrub::run(&self.core, true)
    }

    /// As [`scrub`](Self::scrub), and what could not be repaired, which is an error for each page, the first 64: for a caller that wants to know of both.
    ///
    /// # Errors
    /// Those of a drain.
    pub fn scrub_all(&self) -> Result<(crate::Scrubbed, Vec<Error>)> {
        crate::scrub::look(&self.core, true)
    }

    /// What [`scrub_all`](Self::scrub_all) would repair, and what not.
    ///
    /// # Errors
    /// As there.
    pub fn compare_all(&self) -> Result<(crate::Scrubbed, Vec<Error>)> {
        crate::scrub::look(&self.core, false)
    }

    /// What [`scrub`](Self::scrub) would repair. For a heap that is open for reading, too.
    ///
    /// # Errors
    /// As [`scrub`](Self::scrub).
    pub fn compare(&self) -> Result<crate::Scrubbed> {
        crate::scrub::run(&self.core, false)
    }

    /// Applies everything, cleans all zones and closes the pool.
    ///
    /// # Errors
    /// [`pmem::Error::Poisoned`] after a failed sync, first of all; [`pmem::Error::InUse`] if a transaction was forgotten; what went wrong behind a commit.
    pub fn close(self) -> Result<()> {
        let Self { core, cell, coordinator, mut closing, .. } = self;
        drop((coordinator, cell));
        closing.0 = None;
        close(core)
    }

    /// Applies everything and gives the objects up: for another engine, in the same pool. Where the two copies of a heap in place differ, the right one is what the objects have from now on, as
    /// after [`scrub`](Self::scrub): no other engine could tell.
    ///
    /// # Errors
    /// As [`close`](Self::close); [`pmem::Error::ReadOnly`]; [`Error::Damaged`] where nothing tells which copy is right: the heap is closed then.
    pub fn hand_over(self) -> Result<Handover> {
        let Self { core, cell, coordinator, mut closing, .. } = self;
        drop((coordinator, cell));
        closing.0 = None;
        core.pool.check_usable()?;
        let root = core.root;
        core.clean_all()?;
        let whole = crate::scrub::run(&core, true);
        let pool = end(core)?;
        match whole {
            Ok(_) => Ok(Handover::new(pool, MAIN, LAYOUT, root)),
            Err(error) => {
                pool.close()?;
                Err(error)
            }
        }
    }

    /// For tests: drops it and leaves the file as a crash would.
    #[doc(hidden)]
    pub fn abandon(self) {
        self.core.pool.abandon();
    }

    /// The cell that says what the heap is, for tests that damage it.
    #[doc(hidden)]
    pub fn cell_is_current(&self) -> bool {
        self.cell.lock().get().policy == self.core.policy.code()
    }
}

/// The handle's other parts are gone.
fn close(core: Arc<Core>) -> Result<()> {
    Ok(end(core)?.close()?)
}

/// Everything is applied; what is left is the pool.
fn end(core: Arc<Core>) -> Result<Pool> {
    if !core.pool.is_read_only() {
        core.pool.check_usable()?; // before all that a failed sync leaves behind
    }
    if let Some(slot) = (0..core.slots.len()).find(|slot| core.slots.holder(*slot).is_some()) {
        return Err(pmem::Error::InUse { what: format!("the transaction in slot {slot}") }.into());
    }
    core.clean_all()?;
    if core.intents == Intents::Objects && !core.pool.is_read_only() {
        core.pool.check_usable()?;
        for log in &core.logs {
            let mut log = log.lock();
            if log.ring.reclaimed() < log.ring.head() {
                log.retire_all(&core)?; // intents of transactions that wrote nothing
            }
        }
    }
    core.end_copies()?;
    if let Some(trouble) = core.trouble.lock().take() {
        return Err(trouble);
    }
    let core = Arc::into_inner(core).ok_or(pmem::Error::InUse { what: "the heap".into() })?;
    let (pool, alloc) = core.into_last();
    alloc.close()?;
    pool.set_pending(false);
    Ok(pool)
}

impl Options {
    /// Makes a heap in a new file: [`Heap::create`].
    ///
    /// # Errors
    /// As there.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<Heap> {
        Heap::create(path, self)
    }

    /// Opens the heap at `path`, and recovers it if it was not closed: [`Heap::open`].
    ///
    /// # Errors
    /// As there.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Heap> {
        Heap::open(path, self)
    }

    /// Opens the heap at `path`, or makes one if nothing is there: [`Heap::open_or_create`].
    ///
    /// # Errors
    /// As there.
    pub fn open_or_create(&self, path: impl AsRef<Path>) -> Result<Heap> {
        Heap::open_or_create(path, self)
    }
}

impl Engine for Heap {
    type Tx<'a> = Tx<'a>;

    fn name(&self) -> &'static str {
        self.core.policy.name()
    }

    fn strongest(&self) -> Isolation {
        Isolation::Strict
    }

    #[inline]
    fn begin(&self, isolation: Isolation) -> Result<Tx<'_>> {
        Tx::begin(&self.core, isolation)
    }

    fn queue(&self) -> Option<&dyn tx::Queue> {
        Some(&*self.core)
    }
}
