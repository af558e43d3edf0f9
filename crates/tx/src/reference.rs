//! An engine in DRAM that is obviously right: what the others are compared with, and what tests of structures run on.
//!
//! One lock guards everything. An object is a list of versions, each with the timestamp of the commit that made it. A transaction
//! sees the versions that were newest when it began, works on copies of its own, and puts them behind the others when it
//! commits, unless another transaction was faster:
//!
//! * what it changed must still be the newest version (the first committer wins);
//! * above snapshot isolation, what it only read must be too, if it changed anything. Then it might as well have run at the
//!   moment of its commit. One that changed nothing might as well have run at the moment it began.
//!
//! Both moments lie between begin and commit, so serializable is strict here.

mod buffer;
mod transaction;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use pmem::sync::Mutex;
use pmem::{PPtr, thread_number};

pub use crate::reference::buffer::Buffer;
use crate::reference::transaction::Begin;
pub use crate::reference::transaction::ReferenceTx;
use crate::{Clock, CounterClock, Engine, Error, Isolation, Result, Timestamp};

/// The root cell; before it lies what would be the pool's metadata.
const ROOT: u64 = 4096;
const ROOT_LEN: u64 = 16;
const HEAP: u64 = 8192;
/// Unit of sizes, and the gap between objects.
const UNIT: u64 = 16;
const ALIGN_MAX: u64 = 4096;
const CAPACITY: u64 = 4 << 30;

/// A volatile engine: see the module's description.
///
/// ```
/// use tx::{Engine, Isolation, Reference, Typed};
/// let engine = Reference::new();
/// let number = engine.transact(Isolation::Strict, |tx| tx.alloc(&7u64))?;
/// engine.transact(Isolation::Strict, |tx| -> tx::Result<()> {
///     *tx.write(number)? += 1;
///     Ok(())
/// })?;
/// assert_eq!(engine.transact(Isolation::Strict, |tx| tx.read(number).copied())?, 8);
/// # Ok::<(), tx::Error>(())
/// ```
#[derive(Debug)]
pub struct Reference {
    state: Mutex<State>,
    clock: CounterClock,
    tag: u16,
    capacity: u64,
    bug: Option<Bug>,
}

/// Ways to be wrong, for the test that the conformance suite notices.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Changes are visible to all transactions before the commit, and stay after an abort.
    DirtyWrite,
    /// Each object is read as it is when it is first read.
    ReadCommitted,
    /// The last committer wins.
    LostUpdate,
    /// Others run between two parts of a commit.
    TornCommit,
    /// The transaction that begins first after a commit of another thread does not see it.
    Stale,
    /// What was only read may have changed.
    Unvalidated,
    /// Nothing is undone on the way to a savepoint.
    NoWayBack,
    /// One that is gone passes for one that was set last.
    AnySavepoint,
    /// An error that was rolled back from dooms all the same.
    StaysDoomed,
    /// What was seen of an object whose change is rolled back is not looked at again at commit.
    SeenGoes,
    /// A nested top action is a part of the outer transaction.
    NoAction,
    /// The outer transaction does not see what it did.
    Unseen,
}

#[derive(Debug)]
struct State {
    /// By first byte. Addresses are never used again.
    objects: BTreeMap<u64, Object>,
    /// First byte never used.
    next: u64,
    /// Bytes in objects.
    used: u64,
    /// Transactions that run, by number: what they see.
    active: BTreeMap<u64, Timestamp>,
    started: u64,
    /// Objects that got a new version, in order: older ones go when no transaction sees them.
    outdated: VecDeque<(Timestamp, u64)>,
    last_commit: Commit,
}

#[derive(Clone, Copy, Debug)]
struct Commit {
    /// Just before it.
    before: Timestamp,
    by: usize,
}

#[derive(Debug)]
struct Object {
    room: u64,
    /// The thread that allocated it.
    maker: usize,
    /// Oldest first; none until the allocation is committed.
    versions: Vec<Version>,
}

#[derive(Clone, Debug)]
struct Version {
    at: Timestamp,
    by: usize,
    /// `None`: freed.
    data: Option<Arc<Buffer>>,
}

impl Default for Reference {
    fn default() -> Self {
        Self::new()
    }
}

impl Reference {
    /// Without objects; the root is null.
    pub fn new() -> Self {
        Self::with_capacity(CAPACITY)
    }

    /// With room for `bytes` bytes of objects.
    pub fn with_capacity(bytes: u64) -> Self {
        static TAGS: AtomicU16 = AtomicU16::new(1);
        let root =
            Version { at: Timestamp::ZERO, by: usize::MAX, data: Some(Arc::new(Buffer::zeroed(ROOT, ROOT_LEN, UNIT))) };
        let root = Object { room: ROOT_LEN, maker: usize::MAX, versions: vec![root] };
        let state = State {
            objects: BTreeMap::from([(ROOT, root)]),
            next: HEAP,
            used: 0,
            active: BTreeMap::new(),
            started: 0,
            outdated: VecDeque::new(),
            last_commit: Commit { before: Timestamp::ZERO, by: usize::MAX },
        };
        let tag = TAGS.fetch_add(1, Relaxed).max(1); // 0 is null's
        Self { state: Mutex::new(state), clock: CounterClock::default(), tag, capacity: bytes, bug: None }
    }

    /// Wrong on purpose.
    #[doc(hidden)]
    pub fn with_bug(bug: Bug) -> Self {
        Self { bug: Some(bug), ..Self::new() }
    }

    /// Transactions that were begun and not ended: those that run, and those that were forgotten.
    pub fn active(&self) -> usize {
        self.state.lock().active.len()
    }

    /// Bytes in objects, uncommitted ones included, and those that were freed but are still seen by a transaction.
    pub fn used(&self) -> u64 {
        self.state.lock().used
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }
}

impl Engine for Reference {
    type Tx<'a> = ReferenceTx<'a>;

    fn name(&self) -> &'static str {
        "reference"
    }

    fn strongest(&self) -> Isolation {
        Isolation::Strict
    }

    fn begin(&self, isolation: Isolation) -> Result<ReferenceTx<'_>> {
        let mut state = self.state.lock();
        let (mut begin, thread) = (self.clock.now(), thread_number());
        if self.has(Bug::Stale) && state.last_commit.by != thread {
            begin = state.last_commit.before;
            state.last_commit.by = thread;
        }
        state.started += 1;
        let number = state.started;
        state.active.insert(number, begin);
        Ok(ReferenceTx::new(self, Begin { number, moment: begin, thread, isolation }))
    }
}

impl State {
    /// The object in which `len` bytes at `offset` lie, by its first byte.
    fn locate(&self, tag: u16, ptr: PPtr<u8>, len: u64) -> Result<(u64, &Object)> {
        let bad = |why| Error::Pool(pmem::Error::BadPointer { ptr: ptr.raw(), why });
        if ptr.tag() != tag {
            return Err(bad(if ptr.is_null() { "null" } else { "of another pool" }));
        }
        let (&start, object) =
            self.objects.range(..=ptr.offset()).next_back().ok_or_else(|| bad("outside of the heap"))?;
        match object.room.checked_sub(ptr.offset() - start) {
            None | Some(0) => Err(bad("into no object")),
            Some(room) if len > room => Err(bad("over the end of its object")),
            Some(_) => Ok((start, object)),
        }
    }

    /// Space that was never used: its offset and length.
    fn reserve(&mut self, len: u64, align: u64, capacity: u64) -> Result<(u64, u64)> {
        if !align.is_power_of_two() || align > ALIGN_MAX {
            let limit = pmem::Error::Limit { what: "alignment of an object", found: align, min: 1, max: ALIGN_MAX };
            return Err(limit.into());
        }
        let full = pmem::Error::HeapFull { bytes: len };
        let Some(room) = len.max(1).checked_next_multiple_of(UNIT) else { return Err(full.into()) };
        let start = self.next.next_multiple_of(align.max(UNIT));
        if room > capacity.saturating_sub(self.used) || start + room + UNIT > pmem::OFFSET_MAX {
            return Err(full.into());
        }
        self.next = start + room + UNIT;
        self.used += room;
        self.objects.insert(start, Object { room, maker: thread_number(), versions: Vec::new() });
        Ok((start, room))
    }

    /// Takes back what [`reserve`](Self::reserve) gave.
    fn unreserve(&mut self, start: u64) {
        if let Some(object) = self.objects.remove(&start) {
            self.used -= object.room;
        }
    }

    /// Adds a version.
    fn install(&mut self, start: u64, version: Version) {
        if let Some(object) = self.objects.get_mut(&start) {
            self.outdated.push_back((version.at, start));
            object.versions.push(version);
        }
    }

    /// Drops the versions that no transaction sees.
    fn prune(&mut self) {
        let oldest = self.active.values().min().copied();
        while let Some(&(at, start)) = self.outdated.front() {
            if oldest.is_some_and(|oldest| at > oldest) {
                return;
            }
            self.outdated.pop_front();
            let Some(object) = self.objects.get_mut(&start) else { continue };
            // A transaction that runs, or begins later, sees this version or a newer one.
            object.versions.retain(|version| version.at >= at);
            if let [Version { data: None, .. }] = object.versions[..] {
                self.unreserve(start);
            }
        }
    }
}

impl Object {
    fn newest(&self) -> Option<&Version> {
        self.versions.last()
    }

    fn seen_at(&self, moment: Timestamp) -> Option<&Version> {
        self.versions.iter().rev().find(|version| version.at <= moment)
    }
}
