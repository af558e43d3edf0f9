//! Objects for programs that use this crate alone: allocate, fill, and publish together, with one barrier.
//!
//! A *publication* is a list of [`Action`]s (make these new blocks live, free those, store these words, set the root) that takes
//! effect as a whole or not at all. It is one checksummed record in a ring, which also checksums the contents of the new blocks, so that
//! blocks and record need no order between them: flush, one drain, done. Then the actions are carried out in place; their lines are
//! flushed with the next publication, and their record is retired after its drain. Published blocks change by [`Action::Set`] alone.
//!
//! All records are in one ring and applied in its order, under one lock. Engines with more ambition bring slots of their own, and use
//! [`Allocator`] and [`Ring`] the same way.

mod action;
mod reserved;
mod session;

use std::sync::atomic::Ordering::Release;

use action::{ALLOC, FREE, Logged, ROOT, SET, decode, logged_intent};

use crate::Persist;
use crate::alloc::{Allocator, HeapOptions, HeapUsage};
use crate::area::Area;
use crate::checksum::ChecksumKey;
use crate::cpu::LINE;
use crate::error::{Error, Result};
use crate::flush::FlushSet;
use crate::header::RegionKind;
use crate::mapping::Mapping;
use crate::persist::bytes_of;
use crate::pool::Pool;
use crate::ring::Ring;
use crate::ring_record::Position;
use crate::ring_recovery::{RingRecord, Tail};
use crate::sim::here;
use crate::sync::Mutex;

pub use action::Action;
pub use reserved::Reserved;
pub use session::Session;

const REGION: &str = "objects";
const HEAP: &str = "objects.heap";
/// Most actions in one publication.
pub const ACTIONS_MAX: usize = 1024;

/// The root as stored: one line, changed by publications only.
#[repr(C)]
#[derive(Clone, Copy, Persist)]
struct Root {
    ptr: u64,
    layout: u64,
    check: u64,
}

impl Root {
    fn checksummed(ptr: u64, layout: u64, key: &ChecksumKey) -> Self {
        let mut root = Self { ptr, layout, check: 0 };
        root.check = key.checksum(&bytes_of(&root)[..16]);
        root
    }
}

/// How the objects of a new pool are laid out.
///
/// ```
/// use pmem::{HeapOptions, ObjectsOptions};
/// let tiny = HeapOptions::chunk_bytes(4096)?;
/// let options = ObjectsOptions { heap_bytes: tiny.region_bytes(8), log_bytes: 4096, heap: tiny };
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
/// pmem::Objects::create(&pool, options)?;
/// # Ok::<(), pmem::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ObjectsOptions {
    /// Bytes for blocks at first; the heap grows by itself.
    pub heap_bytes: u64,
    /// Bytes for the ring of publications: bounds the largest one.
    pub log_bytes: u64,
    /// Layout of the heap.
    pub heap: HeapOptions,
}

impl Default for ObjectsOptions {
    fn default() -> Self {
        Self { heap_bytes: 16 << 20, log_bytes: 256 << 10, heap: HeapOptions::default() }
    }
}

/// The objects of a pool.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// use pmem::{Action, Objects, ObjectsOptions, Options, PPtr, Persist};
///
/// #[derive(Clone, Copy, Persist)]
/// #[repr(C)]
/// struct Node { value: u64, next: PPtr<Node> }
///
/// let pool = Options::new().create(dir.path().join("list"))?;
/// let objects = Objects::create(&pool, ObjectsOptions::default())?;
/// let node = objects.reserve_value(&Node { value: 7, next: PPtr::NULL })?;
/// let ptr = node.ptr::<Node>();
/// let mut session = objects.lock();
/// session.publish(&mut [Action::Alloc(node), Action::root(ptr)])?; // one barrier
/// assert_eq!(session.get(session.root::<Node>()?)?.value, 7);
/// # Ok(()) }
/// ```
pub struct Objects {
    pool: Pool,
    heap: Allocator,
    log: Mutex<Log>,
    tail: Tail,
}

struct Log {
    ring: Ring,
    root: Area,
    root_key: ChecksumKey,
    /// End of the newest record: its actions are carried out, and persistent with the next drain.
    applied: Option<Position>,
    /// Lines that carrying it out changed; flushed right before that drain.
    lines: FlushSet,
    scratch: Vec<u8>,
}

impl std::fmt::Debug for Objects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Objects({:?})", self.pool)
    }
}

impl Objects {
    // ---- open -------------------------------------------------------------------------------------------------

    /// Adds a heap, a root and a ring for publications to the pool.
    ///
    /// # Errors
    /// Those of [`Pool::add_region`].
    pub fn create(pool: &Pool, options: ObjectsOptions) -> Result<Self> {
        // The ring's region comes first, so that the heap is last in the pool and grows and shrinks in place.
        let area = pool.add_region_as(REGION, LINE + options.log_bytes, RegionKind::Objects, 0)?.into_area()?;
        let (mut root, ring) = area.split_at(LINE)?;
        // Checksummed from the start: a root line of zeros is a lost one. The ring's first barrier covers it.
        let null = Root::checksummed(0, 0, &pool.checksum_key(root.offset()));
        root.put(0, &null)?;
        root.flush(0, size_of::<Root>() as u64)?;
        let ring = Ring::create(ring)?;
        let heap = Allocator::create(pool, HEAP, options.heap_bytes, options.heap)?;
        Ok(Self::with(pool, heap, ring, root, Tail::Clean))
    }

    fn with(pool: &Pool, heap: Allocator, ring: Ring, root: Area, tail: Tail) -> Self {
        let root_key = pool.checksum_key(root.offset());
        let log = Log { ring, root, root_key, applied: None, lines: FlushSet::default(), scratch: Vec::new() };
        Self { pool: pool.clone(), heap, log: Mutex::new(log), tail }
    }

    /// Opens the objects of the pool and finishes what a crash interrupted: publications that were durable are carried out, one that was
    /// not is forgotten. Three or four barriers if there was any, none after a clean close.
    ///
    /// # Errors
    /// [`Error::NoRegion`] if the pool has none; [`Error::Damaged`].
    pub fn open(pool: &Pool) -> Result<Self> {
        let (root, ring) = pool.region(REGION)?.into_area()?.split_at(LINE)?;
        let (ring, found) = Ring::open(ring)?;
        let heap = Allocator::open(pool, HEAP)?;
        let mut objects = Self::with(pool, heap, ring, root, found.tail);
        if !found.records.is_empty() {
            objects.tail = objects.recover(&found.records, found.tail)?;
        }
        Ok(objects)
    }

    /// Carries out the records again, in order. Only the last may be torn outside of the ring: every earlier one was drained before
    /// the next was written.
    fn recover(&self, records: &[RingRecord], mut tail: Tail) -> Result<Tail> {
        if self.pool.is_read_only() {
            return Err(Error::NeedsRecovery { path: self.pool.path().to_owned() });
        }
        let mut log = self.log.lock();
        for record in records {
            let payload = log.ring.payload(record)?.to_vec();
            let actions = decode(&payload, log.ring.offset(record))?;
            if !record.known_durable {
                if !self.is_whole(&log, &actions, record)? {
                    tail = Tail::InDoubt { offset: log.ring.offset(record) };
                    break;
                }
                // The contents may have come from a cache: persistent before anything points to them, or the next recovery could
                // find the pointer, and reject the record.
                self.pool.drain()?;
            }
            for action in &actions {
                self.carry_out(&mut log, action)?;
            }
        }
        self.pool.flush_set(&mut log.lines)?;
        self.pool.drain()?; // the changes, before their records are retired
        // Retired before anything is appended: the next record would vouch for all before it, the torn one too.
        let end = log.ring.head();
        log.ring.retire(end);
        log.ring.reclaim()?;
        Ok(tail)
    }

    /// Whether the contents of the blocks a record makes live had all arrived; flushes them, since a cache may have outlived the writer.
    fn is_whole(&self, log: &Log, actions: &[Logged], record: &RingRecord) -> Result<bool> {
        let mapping = self.mapping();
        let mut contents: Vec<&[u8]> = Vec::new();
        for action in actions.iter().filter(|a| a.kind == ALLOC) {
            let intent = logged_intent(action)?;
            let (offset, len) = (intent.offset(), action.c);
            if !self.heap.contains(offset, len) {
                return Err(Error::Damaged { what: "logged block", offset, found: len, expected: 0 });
            }
            let base = mapping.access(offset, len, false)?;
            // SAFETY: `access` checked the bounds; recovery runs before any session reserves or publishes.
            contents.push(unsafe { std::slice::from_raw_parts(base.as_ptr(), len as usize) });
            mapping.flush(offset, len, here())?;
        }
        Ok(record.outside.is_none_or(|checksum| checksum == log.ring.outside_checksum(contents.iter().copied())))
    }

    /// Whether the last publication before a crash is in doubt: see [`Tail`].
    pub fn tail(&self) -> Tail {
        self.tail
    }

    #[inline]
    fn mapping(&self) -> &Mapping {
        &self.pool.inner.mapping
    }

    /// The heap behind it, to be looked at and resized.
    pub fn heap(&self) -> ObjectHeap<'_> {
        ObjectHeap(&self.heap)
    }

    // ---- reserve ----------------------------------------------------------------------------------------------

    /// Takes a free block for `len` bytes at a multiple of `align`, to be filled and then published. Grows the heap if it is full.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the disk is full too, [`Error::Limit`] for a strange alignment.
    pub fn reserve(&self, len: u64, align: u64) -> Result<Reserved<'_>> {
        let block = match self.heap.reserve(len, align) {
            Err(Error::HeapFull { .. }) => {
                self.make_room(len)?;
                self.heap.reserve(len, align)?
            }
            other => other?,
        };
        Ok(Reserved { objects: self, block: Some(block), len })
    }

    /// Grows the heap for a block of `len` bytes: by half of the pool, or what there is down to what the block needs. An extent is an entry
    /// of the directory, and so there are never many: each makes the pool half as large again or takes half of what can still be had.
    fn make_room(&self, len: u64) -> Result<()> {
        let least = 2 * len;
        let mut more = (self.pool.size() / 2).max(least);
        loop {
            match self.heap.grow(more) {
                Err(Error::NoSpace { .. } | Error::Reserve { .. }) if more > least => more = (more / 2).max(least),
                other => return other,
            }
        }
    }

    /// Takes a block and stores `value` in it.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    pub fn reserve_value<T: Persist>(&self, value: &T) -> Result<Reserved<'_>> {
        const { T::LAYOUT };
        let mut reserved = self.reserve(size_of::<T>() as u64, align_of::<T>() as u64)?;
        reserved.bytes_mut()?.copy_from_slice(bytes_of(value));
        Ok(reserved)
    }

    /// Takes the lock under which objects are read and published.
    pub fn lock(&self) -> Session<'_> {
        Session { objects: self, log: self.log.lock() }
    }

    /// Makes everything published independent of the ring, and gives the claims on the regions up: the pool can then be closed and opened
    /// read-only.
    ///
    /// Without this, or after an error of it, [`Pool::close`] may succeed all the same, and loses nothing: what was acknowledged is in
    /// the ring, durably, and [`open`](Self::open) carries it out again; a reservation is DRAM.
    ///
    /// # Errors
    /// [`Error::InUse`] if a reservation was forgotten (everything else is done); those of a drain.
    pub fn close(mut self) -> Result<()> {
        if !self.pool.is_read_only() {
            let log = self.log.get_mut();
            self.pool.flush_set(&mut log.lines)?;
            self.pool.drain()?; // the changes, before their records are retired
            let end = log.ring.durable();
            log.ring.retire(end);
            log.ring.reclaim()?;
        }
        self.heap.close()
    }

    // ---- carrying out -----------------------------------------------------------------------------------------

    /// Does in place what a durable record says. Twice is harmless.
    fn carry_out(&self, log: &mut Log, action: &Logged) -> Result<()> {
        match action.kind {
            ALLOC | FREE => self.heap.apply(&logged_intent(action)?, &mut log.lines),
            SET => {
                let mapping = self.mapping();
                if !self.heap.contains(action.a, 8) || !action.a.is_multiple_of(8) {
                    return Err(Error::Damaged { what: "logged word", offset: action.a, found: action.b, expected: 0 });
                }
                crate::alloc::word(mapping, action.a, true)?.store(action.b, Release);
                log.lines.add(mapping, action.a, 8);
                Ok(())
            }
            ROOT => {
                let root = Root::checksummed(action.a, action.b, &log.root_key);
                log.root.put(0, &root)?;
                log.lines.add(self.mapping(), log.root.offset(), size_of::<Root>() as u64);
                Ok(())
            }
            kind => {
                Err(Error::Damaged { what: "logged action", offset: log.root.offset(), found: kind, expected: ALLOC })
            }
        }
    }
}

/// The heap of [`Objects`]. Not the [`Allocator`] itself: a caller that could free or publish a block of it behind a session's back could
/// have two references to the same bytes.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # use pmem::{Action, Objects, ObjectsOptions, PPtr};
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
/// # let objects = Objects::create(&pool, ObjectsOptions { heap_bytes: 256 << 10, ..ObjectsOptions::default() })?;
/// objects.heap().grow(1 << 20)?;
/// assert!(objects.heap().trim()? > 0); // what was free at the end
/// assert_eq!(objects.heap().outstanding(), 0);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct ObjectHeap<'a>(&'a Allocator);

impl ObjectHeap<'_> {
    /// As [`Allocator::live_blocks`].
    ///
    /// # Errors
    /// As there.
    pub fn live_blocks(&self, f: impl FnMut(u64, u64) -> Result<()>) -> Result<HeapUsage> {
        self.0.live_blocks(f)
    }

    /// As [`Allocator::outstanding`].
    pub fn outstanding(&self) -> u64 {
        self.0.outstanding()
    }

    /// As [`Allocator::grow`]: in few, large steps, since each may take one of the pool's 48 directory entries. [`Objects::reserve`]
    /// does so by itself.
    ///
    /// # Errors
    /// As there.
    pub fn grow(&self, bytes: u64) -> Result<()> {
        self.0.grow(bytes)
    }

    /// As [`Allocator::trim`].
    ///
    /// # Errors
    /// As there.
    pub fn trim(&self) -> Result<u64> {
        self.0.trim()
    }
}
