//! Objects for programs that use this crate alone: allocate, fill, and publish together, with one barrier.
//!
//! A *publication* is a list of [`Action`]s (make these new blocks live, free those, store these words, set the root) that takes
//! effect as a whole or not at all. It is one sealed record in a ring, which also seals the contents of the new blocks, so that
//! blocks and record need no order between them: flush, one drain, done. Then the actions are carried out in place; their lines are
//! flushed with the next publication, and their record is retired after its drain. Published blocks change by [`Action::Set`] alone.
//!
//! All records are in one ring and applied in its order, under one lock. Engines with more ambition bring slots of their own, and use
//! [`Allocator`] and [`Ring`] the same way.

use std::sync::atomic::Ordering::Release;

use crate::Persist;
use crate::alloc::{Allocator, Block, HeapOptions, HeapUsage, Intent};
use crate::area::Area;
use crate::cpu::LINE;
use crate::directory::RegionKind;
use crate::error::{Error, Result};
use crate::flush::FlushSet;
use crate::hash::SealKey;
use crate::mapping::Mapping;
use crate::persist::{bytes_of, from_bytes, view};
use crate::pool::Pool;
use crate::ptr::PPtr;
use crate::ring::{Position, Ring};
use crate::ring_recovery::{RingRecord, Tail};
use crate::sim::here;
use crate::sync::{Mutex, MutexGuard};

const REGION: &str = "objects";
const HEAP: &str = "objects.heap";
/// Most actions in one publication.
pub const ACTIONS_MAX: usize = 1024;

/// One step of a publication.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # use pmem::{Action, Objects, ObjectsOptions, PPtr};
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
/// # let objects = Objects::create(&pool, ObjectsOptions { heap_bytes: 256 << 10, ..ObjectsOptions::default() })?;
/// let node = objects.reserve_value(&[1u64, 2])?;
/// let ptr: PPtr<[u64; 2]> = node.ptr();
/// let mut session = objects.lock();
/// session.publish(&mut [Action::Alloc(node), Action::root(ptr)])?;
/// session.publish(&mut [Action::Set(ptr.cast(), 5)])?; // the first word
/// assert_eq!(session.get(ptr)?, &[5, 2]);
/// session.publish(&mut [Action::Free(ptr.cast()), Action::root(PPtr::<[u64; 2]>::NULL)])?;
/// assert!(session.get(ptr).is_err());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub enum Action<'a> {
    /// The reserved block becomes live, with its present contents.
    Alloc(Reserved<'a>),
    /// The block becomes free.
    Free(PPtr<()>),
    /// The word, inside a published block, gets this value.
    Set(PPtr<u64>, u64),
    /// The root becomes this object, whose type has this layout hash; see [`Action::root`].
    Root(PPtr<()>, u64),
}

impl Action<'_> {
    /// The root becomes the object at `ptr`.
    pub fn root<T: Persist>(ptr: PPtr<T>) -> Self {
        Self::Root(ptr.cast(), const { T::LAYOUT.hash })
    }
}

/// An action as logged.
#[repr(C)]
#[derive(Clone, Copy, Persist)]
struct Logged {
    kind: u64,
    a: u64,
    b: u64,
    c: u64,
}

const ALLOC: u64 = 1;
const FREE: u64 = 2;
const SET: u64 = 3;
const ROOT: u64 = 4;

/// The root as stored: one line, changed by publications only.
#[repr(C)]
#[derive(Clone, Copy, Persist)]
struct Root {
    ptr: u64,
    layout: u64,
    check: u64,
}

impl Root {
    fn sealed(ptr: u64, layout: u64, key: &SealKey) -> Self {
        let mut root = Self { ptr, layout, check: 0 };
        root.check = key.seal(&bytes_of(&root)[..16]);
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
    root_key: SealKey,
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
        // Sealed from the start: a root line of zeros is a lost one. The ring's first barrier covers it.
        let null = Root::sealed(0, 0, &pool.seal_key(root.offset()));
        root.put(0, &null)?;
        root.flush(0, size_of::<Root>() as u64)?;
        let ring = Ring::create(ring)?;
        let heap = Allocator::create(pool, HEAP, options.heap_bytes, options.heap)?;
        Ok(Self::with(pool, heap, ring, root, Tail::Clean))
    }

    fn with(pool: &Pool, heap: Allocator, ring: Ring, root: Area, tail: Tail) -> Self {
        let root_key = pool.seal_key(root.offset());
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
            let actions = decode(&payload, log.ring.place(record))?;
            if !record.known_durable {
                if !self.is_whole(&log, &actions, record)? {
                    tail = Tail::InDoubt { offset: log.ring.place(record) };
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
        self.pool.drain()?;
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
            // SAFETY: `access` checked the bounds; recovery runs before anybody reserves or publishes.
            contents.push(unsafe { std::slice::from_raw_parts(base.as_ptr(), len as usize) });
            mapping.flush(offset, len, here())?;
        }
        Ok(record.outside.is_none_or(|seal| seal == log.ring.outside_seal(contents.iter().copied())))
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
            self.pool.drain()?;
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
                let root = Root::sealed(action.a, action.b, &log.root_key);
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

/// The heap of [`Objects`]. Not the [`Allocator`] itself: whoever could free or publish a block of it behind a session's back could
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
/// assert_eq!(objects.heap().unsettled(), 0);
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

    /// As [`Allocator::unsettled`].
    pub fn unsettled(&self) -> u64 {
        self.0.unsettled()
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

fn decode(payload: &[u8], offset: u64) -> Result<Vec<Logged>> {
    let size = size_of::<Logged>();
    let damaged = Error::Damaged {
        what: "publication length",
        offset,
        found: payload.len() as u64,
        expected: payload.len().next_multiple_of(size) as u64,
    };
    if !payload.len().is_multiple_of(size) {
        return Err(damaged);
    }
    Ok(payload.chunks_exact(size).filter_map(from_bytes::<Logged>).collect())
}

fn logged(kind: u64, intent: &Intent, len: u64) -> Logged {
    let bytes = bytes_of(intent);
    let word = |at: usize| from_bytes::<u64>(&bytes[at..at + 8]).unwrap_or(0);
    Logged { kind, a: word(0), b: word(8), c: len }
}

fn logged_intent(action: &Logged) -> Result<Intent> {
    let intent = from_bytes::<Intent>(&bytes_of(action)[8..24]);
    match intent {
        Some(intent) if intent.is_alloc() == (action.kind == ALLOC) => Ok(intent),
        _ => Err(Error::Damaged { what: "logged intent", offset: action.a, found: action.kind, expected: ALLOC }),
    }
}

/// A block taken from the heap and not yet published: the caller's alone. Dropping it gives it back; forgetting it keeps it from others until
/// the next open, and makes [`Objects::close`] say so.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # use pmem::{Action, Objects, ObjectsOptions, PPtr};
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
/// # let objects = Objects::create(&pool, ObjectsOptions { heap_bytes: 256 << 10, ..ObjectsOptions::default() })?;
/// let mut text = objects.reserve(5, 1)?;
/// text.bytes_mut()?.copy_from_slice(b"hello");
/// let ptr = text.ptr::<u8>();
/// assert!(objects.lock().bytes(ptr, 5).is_err()); // not published
/// drop(text); // given back
/// # Ok(()) }
/// ```
pub struct Reserved<'a> {
    objects: &'a Objects,
    block: Option<Block>,
    len: u64,
}

impl Reserved<'_> {
    fn block(&self) -> Result<&Block> {
        self.block.as_ref().ok_or(Error::BadPointer { ptr: 0, why: "published already" })
    }

    /// The pointer to it, for links from other objects.
    pub fn ptr<T: ?Sized>(&self) -> PPtr<T> {
        self.block.map_or(PPtr::NULL, |b| b.ptr(&self.objects.pool))
    }

    /// Its bytes, to be filled: as many as were asked for.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        let base = self.objects.mapping().access(self.block()?.offset(), self.len, true)?;
        // SAFETY: in bounds. The block is reserved by this value alone, which `&mut self` borrows; a session hands out published
        // blocks only, and this one is not until the reservation is consumed.
        Ok(unsafe { std::slice::from_raw_parts_mut(base.as_ptr(), self.len as usize) })
    }
}

impl std::fmt::Debug for Reserved<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reserved({:?}, {} bytes)", self.ptr::<()>(), self.len)
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            // Cannot fail for a block that is reserved; if it did, the block would stay taken until the next open.
            let _ = self.objects.heap.cancel(block);
        }
    }
}

/// Exclusive access to the published objects.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # use pmem::{Action, Objects, ObjectsOptions, PPtr};
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
/// # let objects = Objects::create(&pool, ObjectsOptions { heap_bytes: 256 << 10, ..ObjectsOptions::default() })?;
/// let text = objects.reserve_value(b"hello")?;
/// let ptr = text.ptr::<[u8; 5]>();
/// let mut session = objects.lock();
/// session.publish(&mut [Action::Alloc(text), Action::root(ptr)])?;
/// assert_eq!(session.bytes(ptr.cast(), 5)?, b"hello");
/// assert_eq!(session.root::<[u8; 5]>()?, ptr);
/// assert!(session.root::<u64>().is_err()); // of another type
/// # Ok(()) }
/// ```
pub struct Session<'a> {
    objects: &'a Objects,
    log: MutexGuard<'a, Log>,
}

impl Session<'_> {
    /// The published block in which `len` bytes at `ptr` lie.
    #[inline]
    fn published<T: ?Sized>(&self, ptr: PPtr<T>, len: u64) -> Result<Block> {
        let block = self.objects.heap.resolve(ptr, len)?;
        if !self.objects.heap.is_published(&block)? {
            return Err(Error::BadPointer { ptr: ptr.raw(), why: "reserved, not published" });
        }
        Ok(block)
    }

    /// `len` bytes at `ptr`, inside one published block.
    ///
    /// # Errors
    /// [`Error::BadPointer`] for anything else.
    #[inline]
    pub fn bytes(&self, ptr: PPtr<u8>, len: u64) -> Result<&[u8]> {
        self.published(ptr, len)?;
        let base = self.objects.mapping().access(ptr.offset(), len, false)?;
        // SAFETY: in bounds of one published block. Those change by `publish` only, which needs `&mut` of the one session there is.
        Ok(unsafe { std::slice::from_raw_parts(base.as_ptr(), len as usize) })
    }

    /// The object at `ptr`.
    ///
    /// # Errors
    /// [`Error::BadPointer`] unless a whole `T` lies there in one published block; [`Error::Unaligned`].
    #[inline]
    pub fn get<T: Persist>(&self, ptr: PPtr<T>) -> Result<&T> {
        const { T::LAYOUT };
        let bytes = self.bytes(ptr.cast(), size_of::<T>() as u64)?;
        view(bytes).ok_or_else(|| Error::Unaligned { offset: ptr.offset(), align: align_of::<T>() as u64 })
    }

    /// The root object, null if none was set.
    ///
    /// # Errors
    /// [`Error::WrongLayout`] if it is of another type; [`Error::Damaged`].
    pub fn root<T: Persist>(&self) -> Result<PPtr<T>> {
        let root: Root = *self.log.root.get(0)?;
        let check = self.log.root_key.seal(&bytes_of(&root)[..16]);
        if root.check != check {
            let offset = self.log.root.offset();
            return Err(Error::Damaged { what: "root pointer", offset, found: root.check, expected: check });
        }
        if root.ptr == 0 && root.layout == 0 {
            return Ok(PPtr::NULL);
        }
        if root.layout != const { T::LAYOUT.hash } {
            return Err(Error::WrongLayout {
                what: "root type",
                found: format!("{:016x}", root.layout),
                expected: format!("{} ({:016x})", std::any::type_name::<T>(), T::LAYOUT.hash),
            });
        }
        Ok(PPtr::from_raw(root.ptr))
    }

    /// Carries these actions out as a whole, durably: one barrier. After an error nothing has changed, except after a failed
    /// sync, when only the next open tells.
    ///
    /// # Errors
    /// [`Error::BadPointer`], [`Error::DoubleFree`]; [`Error::Limit`] for too many actions; those of a drain.
    pub fn publish(&mut self, actions: &mut [Action<'_>]) -> Result<()> {
        if actions.len() > ACTIONS_MAX {
            let (found, max) = (actions.len() as u64, ACTIONS_MAX as u64);
            return Err(Error::Limit { what: "actions in a publication", found, min: 0, max });
        }
        let mut freed = Vec::new();
        let prepared = self.prepare(actions, &mut freed).and_then(|()| self.append(actions));
        let end = match prepared {
            Ok(end) => end,
            Err(e) => {
                for block in &freed {
                    self.objects.heap.cancel_free(block)?;
                }
                return Err(e);
            }
        };
        self.objects.pool.flush_set(&mut self.log.lines)?;
        let persisted = self.objects.pool.drain()?; // the one barrier
        self.log.ring.forced(&persisted);
        if let Some(applied) = self.log.applied.replace(end) {
            self.log.ring.retire(applied); // flushed before this drain
        }
        let encoded = std::mem::take(&mut self.log.scratch);
        for action in encoded.chunks_exact(size_of::<Logged>()).filter_map(from_bytes::<Logged>) {
            self.objects.carry_out(&mut self.log, &action)?;
        }
        self.log.scratch = encoded;
        for action in actions {
            if let Action::Alloc(reserved) = action {
                reserved.block = None; // published: dropping it gives nothing back
            }
        }
        // In this ring's order a later record may reuse the block at once.
        freed.into_iter().try_for_each(|block| self.objects.heap.release(block))
    }

    /// Checks every action and encodes it; takes freed blocks out of use.
    fn prepare(&mut self, actions: &[Action<'_>], freed: &mut Vec<Block>) -> Result<()> {
        let mut encoded = std::mem::take(&mut self.log.scratch);
        encoded.clear();
        for action in actions {
            let logged = match action {
                Action::Alloc(reserved) => {
                    if !std::ptr::eq(reserved.objects, self.objects) {
                        return Err(Error::BadPointer { ptr: reserved.ptr::<()>().raw(), why: "reserved elsewhere" });
                    }
                    logged(ALLOC, &Intent::alloc(reserved.block()?), reserved.len)
                }
                Action::Free(ptr) => {
                    let block = self.published(*ptr, 0)?;
                    if block.offset() != ptr.offset() {
                        return Err(Error::BadPointer { ptr: ptr.raw(), why: "not the start of its block" });
                    }
                    self.objects.heap.begin_free(&block)?;
                    freed.push(block);
                    logged(FREE, &Intent::free(&block), 0)
                }
                Action::Set(ptr, value) => {
                    self.published(*ptr, 8)?;
                    if ptr.offset() % 8 != 0 {
                        return Err(Error::Unaligned { offset: ptr.offset(), align: 8 });
                    }
                    Logged { kind: SET, a: ptr.offset(), b: *value, c: 0 }
                }
                Action::Root(ptr, layout) => Logged { kind: ROOT, a: ptr.raw(), b: *layout, c: 0 },
            };
            encoded.extend_from_slice(bytes_of(&logged));
        }
        self.log.scratch = encoded;
        Ok(())
    }

    /// Flushes new blocks and the record; makes room in the ring if it must.
    fn append(&mut self, actions: &[Action<'_>]) -> Result<Position> {
        let (objects, log) = (self.objects, &mut *self.log);
        let mut contents: Vec<&[u8]> = Vec::new();
        for action in actions {
            if let Action::Alloc(reserved) = action {
                let (offset, len) = (reserved.block()?.offset(), reserved.len);
                let base = objects.mapping().access(offset, len, false)?;
                // SAFETY: in bounds; the reservation, borrowed here, is its only user.
                contents.push(unsafe { std::slice::from_raw_parts(base.as_ptr(), len as usize) });
                objects.mapping().flush(offset, len, here())?;
            }
        }
        let append = |ring: &mut Ring| ring.append_sealing(&[&log.scratch], contents.iter().copied());
        let appended = match append(&mut log.ring) {
            Err(Error::RingFull { .. }) => {
                objects.pool.flush_set(&mut log.lines)?;
                let persisted = objects.pool.drain()?;
                log.ring.forced(&persisted);
                if let Some(applied) = log.applied.take() {
                    log.ring.retire(applied);
                }
                append(&mut log.ring)?
            }
            other => other?,
        };
        Ok(appended.end)
    }
}
