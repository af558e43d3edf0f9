//! The engine over a B+tree of objects that are changed in place ([`heap`], [`structures::BTree`]).
//!
//! ```text
//!   root of the heap      magic (8), longest key (4), 0 (4), the tree (8)
//!   value in the tree     expires (8)     milliseconds of Unix time, 0 if it stays
//!                         version (8)     of the transaction that wrote it, another one for each
//!                         bytes           the value
//! ```
//!
//! Numbers are little-endian. Versions are counted in memory, in each run from another number on (`VERSIONS`): nothing has to be kept for them. What has
//! expired is skipped by transactions, each of which looks at the clock once, replaced by one that sets its key, and removed by [`sweep`](Engine::sweep).
//!
//! Transactions lock what they read and write, to their end, and one that meets a lock begins again: readers, too. One that has met conflicts too often waits
//! until it is alone, and then meets none; others go on while its barrier is waited for. So none tries for ever, and threads without one of the heap's
//! slots get theirs.
//!
//! A commit waits for its barrier on its own thread ([`write_once`](Engine::write_once) returns what is done): a transaction of a heap cannot go to another one.
//! In a file the executor makes one transaction, and one sync, of what all connections of a thread have sent while that thread waited for the last one.

mod check;
mod sweep;
#[cfg(test)]
mod tests;
mod transaction;

use std::cell::Cell;
use std::fs::{self, File};
use std::io::ErrorKind::NotFound;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};

use heap::{Heap, Policy};
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use pmem::{Domain, PPtr, Persist};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use structures::{BTree, BTreeOptions, BTreeRoot, KvMap, Map};
use tx::{Backoff, Engine as _, Isolation, Kv, KvTx, RetryPolicy, Typed};

pub use self::check::verify;
use self::sweep::Progress;
use self::transaction::Attempt;
use crate::clock::now;
use crate::engine::{Commit, Counts, Engine, Error, Result, Run};

/// What the pool of a tree says about its engine.
pub const NAME: &str = "heap";
/// Longest key of a new tree: two of them fit into a node of 4 KiB, and larger nodes would have more conflicts.
pub const KEY_MAX: usize = 2000;
/// Longest value.
pub const VALUE_MAX: usize = structures::VALUE_MAX as usize - transaction::HEADER;

/// Bits for the versions of one run, behind how often the pool was opened: a week of a million commits a second has 2^39.
const VERSIONS: u32 = 40;
/// Attempts beside others, before one waits until it is alone.
const TOGETHER: u32 = 16;
/// The same where those in the way wait for a sync: to try again meanwhile is in vain, and to take back what was changed costs a sync of its own.
const TOGETHER_SLOW: u32 = 2;
/// Attempts alone: none is in conflict with another one.
const ALONE: u32 = 4;
/// Of the objects' bytes, the part that is kept for notes of what is to be removed: some bytes for each key that has gone among others that stay. And most of them.
const SPARE: u64 = 16;
const SPARE_MAX: u64 = 4 << 20;
/// `"CairnSrv"`.
const MAGIC: u64 = u64::from_le_bytes(*b"CairnSrv");
/// Behind the name of a tree that is being made.
const MAKING: &str = ".making";

/// How an attempt is to stand to others. One that is to be alone waits for all that have begun, and all that begin wait for it.
#[derive(Clone, Copy)]
enum Gate {
    Alone,
    Beside,
    /// Beside others, unless it would have to wait for one that is alone, or is to be.
    IfOpen,
}

fn one_alone() -> Error {
    Error::Conflict("another transaction is to be alone".to_owned())
}

/// What the heap's root pointer leads to.
#[derive(Clone, Copy, Debug, Persist)]
#[repr(C)]
struct Root {
    magic: u64,
    key_max: u32,
    reserved: u32,
    tree: PPtr<BTreeRoot>,
}

/// How a [`Tree`] is made and opened.
#[derive(Clone, Debug)]
pub struct Options {
    pool: pmem::Options,
    bytes: u64,
    slots: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// 64 MiB for objects at first, and as much for their backup; it grows by itself. 64 transactions at one time; others wait.
    #[must_use]
    pub fn new() -> Self {
        Self { pool: pmem::Options::new(), bytes: 64 << 20, slots: 64 }
    }

    /// How the pool is made and opened: domain, address space.
    #[must_use]
    pub fn pool(self, pool: pmem::Options) -> Self {
        Self { pool, ..self }
    }

    /// Bytes for objects in a new tree; the file has twice as many, and those of the logs.
    #[must_use]
    pub fn bytes(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    /// Transactions of a new tree at one time; each has 64 KiB of log.
    #[must_use]
    pub fn slots(self, slots: usize) -> Self {
        Self { slots, ..self }
    }

    fn heap(&self) -> heap::Options {
        let pool = self.pool.clone().engine(NAME, [0; 64]);
        heap::Options::new().policy(Policy::InPlace).bytes(self.bytes).slots(self.slots).pool(pool)
    }
}

/// The engine that the pool at `path` says it belongs to, empty if it belongs to none; `None` if there is no file. It opens nothing, and changes nothing.
///
/// # Errors
/// Those of [`pmem::Options::open_read_only`]: it is no pool, it is damaged, it is in use.
pub fn engine_of(path: impl AsRef<Path>, pool: &pmem::Options) -> Result<Option<String>, pmem::Error> {
    // No engine has this name, so the pool is refused, and the refusal tells its name: whether it was closed is asked later.
    match pool.clone().engine("\u{1}", [0; 64]).open_read_only(path) {
        Err(pmem::Error::WrongLayout { found, .. }) => Ok(Some(found)),
        Err(pmem::Error::Io { source, .. }) if source.kind() == NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(pool) => Ok(Some(pool.info().engine)),
    }
}

/// A store: keys in order, values that expire and have versions.
///
/// ```
/// # fn main() -> server::engine::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// use server::engine::Engine;
/// use server::tree::{Options, Tree};
///
/// let tree = Tree::open_or_create(dir.path().join("data.cairn"), &Options::new().bytes(1 << 20))?;
/// tree.write(&mut |tx| tx.put(b"apples", b"17", None))?;
/// tree.read(&mut |tx| {
///     assert_eq!(tx.get(b"apples")?, Some(&b"17"[..]));
///     Ok(())
/// })?;
/// Box::new(tree).close()
/// # }
/// ```
pub struct Tree {
    heap: Heap,
    tree: BTree,
    key_max: usize,
    /// Held by each transaction with others, or by one that must be alone until it has its locks.
    gate: RwLock<()>,
    /// The last one that was given.
    versions: AtomicU64,
    /// Pairs, those that have expired among them.
    entries: AtomicI64,
    /// Something in the tree may expire.
    expiring: AtomicBool,
    sweep: Mutex<Progress>,
    clock: fn() -> u64,
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tree({:?})", self.heap)
    }
}

impl Tree {
    // ---- open -------------------------------------------------------------------------------------------------------

    /// Opens the tree at `path`, and recovers it if it was not closed; makes one if there is no file.
    ///
    /// # Errors
    /// [`Error::Other`] if the file holds something else, [`Error::Damaged`]; those of [`pmem::Options::open`] and [`create`](pmem::Options::create).
    pub fn open_or_create(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let path = path.as_ref();
        match Heap::open(path, &options.heap()) {
            Err(tx::Error::Pool(pmem::Error::Io { source, .. })) if source.kind() == NotFound => {
                make(path, options)?;
                Self::start(Heap::open(path, &options.heap())?)
            }
            Err(tx::Error::Pool(pmem::Error::WrongLayout { what, found, .. })) => {
                let other = engine_of(path, &options.pool).ok().flatten().filter(|name| !name.is_empty());
                let holds =
                    other.map_or_else(|| format!("{what} {found:?}"), |name| format!("a store of engine {name}"));
                Err(Error::Other(format!(
                    "the file holds {holds}, and no tree of engine {NAME}; open it with what made it, or name another file"
                )))
            }
            Ok(heap) => Self::start(heap),
            Err(error) => Err(error.into()),
        }
    }

    fn start(heap: Heap) -> Result<Self> {
        let (tree, root, entries) = heap.transact(Isolation::Serializable, |tx| {
            let ptr = tx.root::<Root>()?;
            if ptr.is_null() {
                return Err(tx.refuse("the heap has no tree; it was made by another program"));
            }
            let (root, tree) = check::root(tx, ptr)?;
            Ok((tree, root, tree.len(tx)?))
        })?;
        let generation = heap.pool().generation();
        Ok(Self {
            heap,
            tree,
            key_max: root.key_max as usize,
            gate: RwLock::new(()),
            versions: AtomicU64::new(generation << VERSIONS),
            entries: AtomicI64::new(i64::try_from(entries).unwrap_or(i64::MAX)),
            expiring: AtomicBool::new(true),
            sweep: Mutex::default(),
            clock: now,
        })
    }

    /// The heap it is in.
    #[must_use]
    pub fn heap(&self) -> &Heap {
        &self.heap
    }

    // ---- run --------------------------------------------------------------------------------------------------------

    /// Runs `run` until it commits, or fails with what is no conflict.
    fn transact(&self, writes: bool, run: &mut dyn FnMut(&mut Attempt<'_>) -> Result<()>) -> Result<()> {
        let together = if self.is_slow() { TOGETHER_SLOW } else { TOGETHER };
        let mut backoff = Backoff::new(RetryPolicy::default().attempts(together + ALONE));
        loop {
            let gate = if backoff.attempts() >= together { Gate::Alone } else { Gate::Beside };
            match self.attempt(gate, writes, run) {
                Err(Error::Conflict(_)) if backoff.wait() => {}
                ended => return ended,
            }
        }
    }

    /// One attempt. Whatever `run` makes of an error of the transaction, it is what is returned.
    fn attempt(&self, gate: Gate, writes: bool, run: &mut dyn FnMut(&mut Attempt<'_>) -> Result<()>) -> Result<()> {
        let _inside = Inside::enter()?;
        let (mut alone, mut together) = match gate {
            Gate::Alone => (Some(self.gate.write()), None),
            Gate::Beside => (None, Some(self.gate.read())),
            Gate::IfOpen => (None, Some(self.gate.try_read().ok_or_else(one_alone)?)),
        };
        let pairs = KvMap::new(&self.heap, self.tree);
        let mut attempt = Attempt::new(self, pairs.begin(Isolation::Serializable)?, (self.clock)(), writes);
        let result = run(&mut attempt);
        let (objects, added, failed) = attempt.end();
        if let Some(error) = failed.or(result.err()) {
            objects.abort()?;
            return Err(error);
        }
        if let Some(gate) = alone.take() {
            // It has all its locks.
            together = Some(RwLockWriteGuard::downgrade(gate));
        }
        if let (true, Err(error)) = (writes, self.heap.pool().check_usable()) {
            objects.abort()?; // before it has written anything that lasts
            return Err(error.into());
        }
        objects.commit().map_err(|error| match error.into() {
            Error::Stopped(why) if writes => Error::InDoubt(why),
            other => other,
        })?;
        drop(together);
        if added != 0 {
            self.entries.fetch_add(added, Relaxed);
        }
        Ok(())
    }
}

impl Engine for Tree {
    fn read(&self, run: Run<'_>) -> Result<()> {
        self.transact(false, &mut |tx| run(tx))
    }

    fn write(&self, run: Run<'_>) -> Result<()> {
        self.transact(true, &mut |tx| run(tx))
    }

    fn try_read(&self, run: Run<'_>) -> Result<()> {
        self.attempt(Gate::IfOpen, false, &mut |tx| run(tx))
    }

    fn try_write(&self, run: Run<'_>) -> Result<()> {
        self.attempt(Gate::IfOpen, true, &mut |tx| run(tx))
    }

    fn write_once(&self, run: Run<'_>, _: bool) -> Result<Commit> {
        self.try_write(run)?;
        Ok(Box::pin(std::future::ready(Ok(()))))
    }

    fn sweep(&self, now: u64) -> Result<bool> {
        sweep::some(self, now)
    }

    fn waits(&self) -> bool {
        true
    }

    fn is_slow(&self) -> bool {
        self.heap.pool().domain() == Domain::File
    }

    fn spare_bytes(&self) -> usize {
        (self.heap.stats().bytes / SPARE).min(SPARE_MAX) as usize
    }

    fn record_bytes(&self, key: usize, value: usize, _: bool) -> u64 {
        // A slot of a leaf, the value's length, and what stands before it; that leaves are not full is not counted.
        (8 + 4 + transaction::HEADER + key + value) as u64
    }

    fn key_max(&self) -> usize {
        self.key_max
    }

    fn value_max(&self) -> usize {
        VALUE_MAX
    }

    fn healthy(&self) -> Result<()> {
        Ok(self.heap.pool().check_usable()?)
    }

    fn counts(&self) -> Counts {
        let (pool, stats, flushed) = (self.heap.pool(), self.heap.stats(), self.heap.pool().stats());
        Counts {
            engine: NAME,
            survives: pool.domain().survives(),
            entries: u64::try_from(self.entries.load(Relaxed)).unwrap_or(0),
            commits: stats.commits,
            conflicts: stats.conflicts,
            // There is none in memory.
            index_bytes: 0,
            file_bytes: pool.size(),
            // Those for records: the heap does not count which of them are in use.
            live_bytes: stats.bytes,
            barriers: flushed.drains,
            flushed_bytes: flushed.flushed_lines * 64,
            checkpoints: 0,
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.heap.close()?)
    }
}

// ---- make -------------------------------------------------------------------------------------------------------

/// Makes an empty tree. It has its name when it is whole: a crash leaves one of another name, which the next attempt removes.
fn make(path: &Path, options: &Options) -> Result<()> {
    let making = PathBuf::from([path.as_os_str(), MAKING.as_ref()].join("".as_ref()));
    if engine_of(&making, &options.pool)?.as_deref() == Some(NAME) {
        fs::remove_file(&making).map_err(|error| failed("remove", &making, &error))?;
    }
    let heap = Heap::create(&making, &options.heap())?;
    heap.transact(Isolation::Serializable, |tx| {
        let key_max = KEY_MAX as u32;
        let tree = BTree::create(tx, &BTreeOptions::new().key_max(key_max))?.root();
        let root = tx.alloc(&Root { magic: MAGIC, key_max, reserved: 0, tree })?;
        tx.set_root(root)
    })?;
    heap.close()?;
    renameat_with(CWD, &making, CWD, path, RenameFlags::NOREPLACE)
        .map_err(|error| failed("rename to its name", path, &error.into()))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent).and_then(|dir| dir.sync_all()).map_err(|error| failed("sync the directory of", path, &error))
}

fn failed(what: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::Other(format!("{}: {what} failed: {error}; check the path and its permissions", path.display()))
}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// A thread has one transaction at a time: a second one would wait at the gate, or for objects, that the first has.
struct Inside;

impl Inside {
    fn enter() -> Result<Self> {
        if INSIDE.replace(true) {
            return Err(Error::Other("this thread is in a transaction already; end that one first".to_owned()));
        }
        Ok(Self)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

impl From<tx::Error> for Error {
    fn from(error: tx::Error) -> Self {
        use tx::Error as E;
        let text = error.to_string();
        match error {
            E::Conflict { .. } | E::NoSlot { .. } | E::GaveUp { .. } => Self::Conflict(text),
            E::Limit { .. } => Self::Limit(text),
            E::Damaged { .. } => Self::Damaged(text),
            E::Pool(error) => error.into(),
            _ => Self::Other(text),
        }
    }
}
