//! The memory of a pool: mapped once at a fixed address, grown behind the old end, flushed and drained as its domain asks.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Release},
};
use std::time::Instant;

use rustix::fs::{
    Advice as FileAdvice, FallocateFlags, FlockOperation, fadvise, fallocate, fdatasync, flock, fsync, ftruncate,
};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::cpu::{self, FlushWith};
use crate::domain::{Domain, DomainChoice, Latency, is_eadr};
use crate::error::{Error, Result};
use crate::fork::ForkGuard;
use crate::sim::{Medium, Site};
use crate::stats::{Counters, THREADS, thread_id};
use crate::sync_file::GroupSync;

/// Files are filled, grown and written back in units of this many bytes.
pub(crate) const PAGE: u64 = 4096;

/// Proof that a drain took place on this thread.
///
/// Made by nothing but a drain; what needs one (the [`Ring`](crate::Ring), an engine's commit) takes it by reference and checks
/// that the drain came after the flush it stands for.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
/// let mut area = pool.add_region("r", 4096)?.into_area()?;
/// area.put(0, &1u64)?;
/// let flushed = area.flush(0, 8)?;
/// let persisted = pool.drain()?;
/// assert!(flushed.is_covered_by(&persisted));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Persisted {
    /// Address of the mapping: what another pool drained proves nothing here.
    pool: usize,
    pub(crate) thread: usize,
    pub(crate) number: u64,
}

/// A moment of one thread between its drains: what it flushed up to here is persistent after its next one.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
/// let area = pool.add_region("r", 4096)?.into_area()?;
/// let before = area.flush(0, 64)?;
/// let persisted = pool.drain()?;
/// let after = area.flush(64, 64)?;
/// assert!(before.is_covered_by(&persisted) && !after.is_covered_by(&persisted));
/// assert!(after.is_after(before));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pool: usize,
    thread: usize,
    drains: u64,
}

impl Moment {
    /// What another process or thread flushed, or did not: covered by no drain of ours.
    pub(crate) const FOREIGN: Self = Self { pool: 0, thread: usize::MAX, drains: 0 };

    /// True if the drain behind `persisted` covers what was flushed at this moment.
    #[inline]
    pub fn is_covered_by(&self, persisted: &Persisted) -> bool {
        (self.pool, self.thread) == (persisted.pool, persisted.thread) && persisted.number > self.drains
    }

    /// True if this moment is of the same thread as `earlier`, with a drain in between.
    #[inline]
    pub fn is_after(&self, earlier: Moment) -> bool {
        // Threads past the last row share a count, which others raise: then nothing is known.
        (self.pool, self.thread) == (earlier.pool, earlier.thread)
            && self.thread < THREADS - 1
            && self.drains > earlier.drains
    }
}

/// Lines that were stored to and are still to be flushed.
///
/// Lines are collected and flushed together, right before the drain that needs them: an atomic read-modify-write behind a flush waits for
/// it as a barrier does (70 to 100 ns here), and a line stored to twice is written back once.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
/// # let heap = pmem::Allocator::create(&pool, "heap", 512 << 10, pmem::HeapOptions::default())?;
/// use pmem::{FlushSet, Intent};
/// let mut lines = FlushSet::default();
/// for _ in 0..8 {
///     heap.apply(&Intent::alloc(&heap.reserve(64, 8)?), &mut lines)?;
/// }
/// let before = pool.stats();
/// pool.flush_set(&mut lines)?;
/// assert_eq!((pool.stats() - before).flushed_lines, 2); // one of the table, one of the bitmap
/// # Ok(()) }
/// ```
#[derive(Debug, Default)]
pub struct FlushSet {
    /// Address of the mapping the lines are of, once there are any.
    pool: usize,
    lines: Vec<u64>,
}

impl FlushSet {
    /// Adds the lines of a range of the pool.
    ///
    /// # Panics
    /// If the set holds lines of another pool: a mistake of the engine that would leave them unflushed.
    #[inline]
    pub(crate) fn add(&mut self, mapping: &Mapping, offset: u64, len: u64) {
        let pool = mapping.base.as_ptr() as usize;
        assert!(self.lines.is_empty() || self.pool == pool, "a FlushSet holds lines of one pool");
        self.pool = pool;
        let mut line = offset / cpu::LINE;
        while line * cpu::LINE < offset + len {
            // Neighbours in time are often neighbours in space: the cheap check finds most repetitions.
            if !self.lines.iter().rev().take(4).any(|&l| l == line) {
                self.lines.push(line);
            }
            line += 1;
        }
    }

    /// True if nothing waits to be flushed.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

enum Backing {
    Flushed(FlushWith),
    Fenced,
    Synced,
    Simulated(Arc<dyn Medium>),
}

pub(crate) struct Mapping {
    base: NonNull<u8>,
    reserved: u64,
    /// Bytes that may be accessed; only grows while anything above holds a range (shrinking proves it unused).
    len: AtomicU64,
    backing: Backing,
    domain: Domain,
    latency: Option<Latency>,
    file: Option<File>,
    path: PathBuf,
    read_only: bool,
    counters: Counters,
    group: GroupSync,
    fork: ForkGuard,
    resize: crate::sync::Mutex<()>,
}

// SAFETY: the mapping is memory of the whole process, not of a thread; `base` never changes. Who may touch which bytes is
// decided above (Area: one owner; engines: their locks), never here.
unsafe impl Send for Mapping {}
// SAFETY: as above; every method that changes the mapping itself is serialised by `resize`.
unsafe impl Sync for Mapping {}

/// How to map a file.
pub(crate) struct MapOptions {
    pub(crate) choice: DomainChoice,
    pub(crate) latency: Option<Latency>,
    pub(crate) max_size: u64,
    pub(crate) read_only: bool,
}

impl Mapping {
    /// Maps `file`, whose present length is `len`, and decides its domain.
    pub(crate) fn file(file: File, path: &Path, len: u64, options: &MapOptions) -> Result<Self> {
        let fail = |op, source: rustix::io::Errno| Error::Io { op, path: path.to_owned(), source: source.into() };
        let reserved = len.max(options.max_size).next_multiple_of(2 << 20);
        // The whole range is reserved once, so that growth never moves what is mapped.
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                reserved as usize,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(|e| fail("mmap (reserving address space)", e))?;
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(|| Error::Io {
            op: "mmap",
            path: path.to_owned(),
            source: io::ErrorKind::OutOfMemory.into(),
        })?;
        let mut mapping = Self {
            base,
            reserved,
            len: AtomicU64::new(0),
            backing: Backing::Synced,
            domain: Domain::File,
            latency: options.latency.filter(|l| *l != Latency::default()),
            file: Some(file),
            path: path.to_owned(),
            read_only: options.read_only,
            counters: Counters::new(),
            group: GroupSync::default(),
            fork: ForkGuard::new(),
            resize: crate::sync::Mutex::new(()),
        };
        // From here on Drop unmaps.
        let synchronous = mapping.map_first(len)?;
        mapping.domain = mapping.decide(synchronous, options.choice)?;
        mapping.backing = match mapping.domain {
            Domain::PmemEadr => Backing::Fenced,
            Domain::File => Backing::Synced,
            _ => Backing::Flushed(cpu::flush_with()),
        };
        if mapping.latency.is_some() && mapping.domain != Domain::Emulated {
            return Err(Error::Domain {
                path: mapping.path.clone(),
                wanted: "latency model",
                why: format!("it imitates slower memory on the emulated domain, and this is {}", mapping.domain),
            });
        }
        if mapping.domain == Domain::File {
            mapping.advise_random(0, len)?;
        }
        Ok(mapping)
    }

    /// A simulated pool.
    pub(crate) fn simulated(medium: Arc<dyn Medium>) -> Self {
        Self {
            base: medium.base(),
            reserved: medium.capacity(),
            len: AtomicU64::new(medium.len()),
            backing: Backing::Simulated(medium),
            domain: Domain::Simulated,
            latency: None,
            file: None,
            path: PathBuf::from("(simulated)"),
            read_only: false,
            counters: Counters::new(),
            group: GroupSync::default(),
            fork: ForkGuard::new(),
            resize: crate::sync::Mutex::new(()),
        }
    }

    fn fail(&self, op: &'static str, source: impl Into<io::Error>) -> Error {
        Error::Io { op, path: self.path.clone(), source: source.into() }
    }

    /// Maps the file, with `MAP_SYNC` if the kernel can; says whether it could.
    fn map_first(&mut self, len: u64) -> Result<bool> {
        if self.map_at(0, len, MapFlags::SHARED_VALIDATE | MapFlags::SYNC).is_ok() {
            return Ok(true);
        }
        self.map_at(0, len, MapFlags::SHARED).map_err(|e| self.fail("mmap", e))?;
        Ok(false)
    }

    fn map_at(&self, offset: u64, len: u64, flags: MapFlags) -> rustix::io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let protection = if self.read_only { ProtFlags::READ } else { ProtFlags::READ | ProtFlags::WRITE };
        if len > 0 {
            // SAFETY: the target lies inside the range reserved in `file()`, which nobody else maps; the part replaced
            // is beyond `len`, so no reference into it exists.
            unsafe {
                let at = self.base.as_ptr().add(offset as usize);
                mmap(at.cast(), len as usize, protection, flags | MapFlags::FIXED, file, offset)?;
            }
        }
        self.len.store(offset + len, Release);
        Ok(())
    }

    fn decide(&self, synchronous: bool, choice: DomainChoice) -> Result<Domain> {
        let Some(file) = &self.file else { return Ok(Domain::Simulated) };
        let meta = file.metadata().map_err(|e| self.fail("stat", e))?;
        let device = meta.file_type().is_char_device();
        let pmem = || {
            let (kind, dev) = if device { ("char", meta.rdev()) } else { ("block", meta.dev()) };
            let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
            if is_eadr(Path::new("/sys"), kind, major, minor) { Domain::PmemEadr } else { Domain::Pmem }
        };
        match choice {
            DomainChoice::Pmem | DomainChoice::Auto if synchronous || device => Ok(pmem()),
            DomainChoice::Pmem => Err(Error::Domain {
                path: self.path.clone(),
                wanted: "persistent memory",
                why: "the kernel refuses MAP_SYNC on this file (not fsdax, or mounted without -o dax)".into(),
            }),
            DomainChoice::File => Ok(Domain::File),
            DomainChoice::Emulated => Ok(Domain::Emulated),
            DomainChoice::Auto => {
                let kind = rustix::fs::fstatfs(file).map_err(|e| self.fail("statfs", e))?.f_type as i64;
                Ok(if is_memory_fs(kind) { Domain::Emulated } else { Domain::File })
            }
        }
    }

    /// One dirty line in a large page-cache folio writes the whole folio at the next sync: pages are read and faulted one by one.
    fn advise_random(&self, offset: u64, len: u64) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        fadvise(file, 0, None, FileAdvice::Random).map_err(|e| self.fail("fadvise", e))?;
        if len > 0 {
            // SAFETY: the range was mapped by `map_at`; advice changes no byte.
            unsafe { madvise(self.base.as_ptr().add(offset as usize).cast(), len as usize, Advice::Random) }
                .map_err(|e| self.fail("madvise", e))?;
        }
        Ok(())
    }

    pub(crate) fn domain(&self) -> Domain {
        self.domain
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only
    }

    pub(crate) fn len(&self) -> u64 {
        self.len.load(Acquire)
    }

    /// True for a device: its length is what it is.
    pub(crate) fn is_fixed(&self) -> bool {
        self.file.as_ref().is_some_and(|file| self.is_device(file))
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn flush_with(&self) -> Option<FlushWith> {
        match self.backing {
            Backing::Flushed(with) => Some(with),
            _ => None,
        }
    }

    // ---- checked access: the only way to the media ------------------------------------------------------------

    /// The address of `len` bytes at `offset`, inside the mapping, readable by the model.
    #[inline]
    pub(crate) fn access(&self, offset: u64, len: u64, write: bool) -> Result<NonNull<u8>> {
        let limit = self.len.load(Acquire);
        if offset > limit || len > limit - offset {
            return Err(Error::OutOfBounds { at: offset, end: offset.saturating_add(len), len: limit });
        }
        self.fork.check()?;
        if write && self.read_only {
            return Err(Error::ReadOnly);
        }
        if let Backing::Simulated(medium) = &self.backing {
            medium.access(offset, len, write).map_err(|source| Error::Unreadable {
                what: "range",
                offset,
                len,
                source,
            })?;
        }
        // SAFETY: offset <= limit <= reserved bytes behind base.
        Ok(unsafe { self.base.add(offset as usize) })
    }

    /// Reads through the file, not the mapping, so that a damaged medium is an error and not a signal.
    pub(crate) fn probe(&self, what: &'static str, offset: u64, len: u64) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) }; // a model answers at each access
        self.access(offset, len, false)?;
        if self.domain == Domain::Emulated || (self.domain != Domain::File && self.is_device(file)) {
            return Ok(()); // memory of this machine; a device has no read()
        }
        let mut buffer = [0u8; PAGE as usize];
        let mut at = offset;
        while at < offset + len {
            let want = (offset + len - at).min(PAGE - at % PAGE) as usize;
            file.read_exact_at(&mut buffer[..want], at).map_err(|source| Error::Unreadable {
                what,
                offset: at,
                len: want as u64,
                source,
            })?;
            at += want as u64;
        }
        Ok(())
    }

    fn is_device(&self, file: &File) -> bool {
        file.metadata().is_ok_and(|m| m.file_type().is_char_device())
    }

    // ---- persistence ------------------------------------------------------------------------------------------

    /// Where this thread stands between its drains.
    #[inline]
    pub(crate) fn moment(&self) -> Moment {
        Moment { pool: self.base.as_ptr() as usize, thread: thread_id(), drains: self.counters.drains_here() }
    }

    /// Starts the write-back of the lines of a range that was accessed before.
    #[inline]
    pub(crate) fn flush(&self, offset: u64, len: u64, site: Site) -> Result<()> {
        self.fork.check()?;
        let limit = self.len.load(Acquire);
        if offset > limit || len > limit - offset {
            return Err(Error::OutOfBounds { at: offset, end: offset.saturating_add(len), len: limit });
        }
        let lines = cpu::lines(offset, len);
        self.counters.flushed(lines);
        match &self.backing {
            Backing::Flushed(with) => {
                // SAFETY: the range is mapped, as just checked.
                unsafe { cpu::flush(*with, self.base.as_ptr().add(offset as usize), len) };
                self.imitate_lines(lines);
            }
            Backing::Fenced | Backing::Synced => {} // the fence or the sync covers every store before it
            Backing::Simulated(medium) => medium.flush(offset, len, site),
        }
        Ok(())
    }

    /// Flushes and empties the set.
    #[inline]
    pub(crate) fn flush_set(&self, set: &mut FlushSet, site: Site) -> Result<()> {
        assert!(set.is_empty() || set.pool == self.base.as_ptr() as usize, "a FlushSet holds lines of one pool");
        for line in set.lines.drain(..) {
            self.flush(line * cpu::LINE, cpu::LINE, site)?;
        }
        Ok(())
    }

    /// Waits until what this thread flushed is persistent.
    #[inline]
    pub(crate) fn drain(&self, site: Site) -> Result<Persisted> {
        self.fork.check()?;
        match &self.backing {
            Backing::Flushed(_) | Backing::Fenced => {
                cpu::drain();
                if let Some(latency) = &self.latency {
                    spin(latency.drain_ns);
                }
            }
            Backing::Synced => self.sync()?,
            Backing::Simulated(medium) => {
                self.group.check()?;
                if let Err(source) = medium.drain(site) {
                    self.group.poison();
                    return Err(Error::Sync { source });
                }
            }
        }
        Ok(Persisted { pool: self.base.as_ptr() as usize, thread: thread_id(), number: self.counters.drained() })
    }

    /// Stores `data` at `offset` past the cache where that helps, and flushes the rest.
    #[inline]
    pub(crate) fn copy_nt(&self, offset: u64, data: &[u8], site: Site) -> Result<()> {
        let len = data.len() as u64;
        let to = self.access(offset, len, true)?.as_ptr();
        match &self.backing {
            Backing::Flushed(with) => {
                // SAFETY: `access` checked the range; that nobody else uses it is the promise of our callers, who hold it
                // exclusively (`Area`) or say so in an unsafe block of their own; `data` is no part of it for the same reason.
                let streamed = unsafe { cpu::copy_nt(*with, to, data.as_ptr(), data.len()) } as u64;
                let lines = cpu::lines(offset, len);
                self.counters.streamed(streamed);
                self.counters.flushed(lines - streamed / cpu::LINE);
                self.imitate_lines(lines);
                Ok(())
            }
            _ => {
                // SAFETY: as above.
                unsafe { to.copy_from_nonoverlapping(data.as_ptr(), data.len()) };
                self.flush(offset, len, site)
            }
        }
    }

    #[inline]
    fn imitate_lines(&self, lines: u64) {
        if let Some(latency) = &self.latency {
            spin(latency.lines_ns(lines));
        }
    }

    fn sync(&self) -> Result<()> {
        self.group.check()?;
        let Some(file) = &self.file else { return Ok(()) };
        if crate::sabotage::drains_ignored() {
            return Ok(());
        }
        self.group.wait(|| {
            self.counters.synced();
            fdatasync(file).map_err(io::Error::from)
        })
    }

    /// An error if the mapping must not be used for changes any more.
    pub(crate) fn check_usable(&self) -> Result<()> {
        self.fork.check()?;
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        self.group.check()
    }

    pub(crate) fn observe(&self, offset: u64, len: u64, site: Site) {
        if let Backing::Simulated(medium) = &self.backing {
            medium.observe(offset, len, site);
        }
    }

    // ---- length -----------------------------------------------------------------------------------------------

    /// Grows to `len` bytes, zero-filled, with the new length persistent before this returns. On a full disk the old length is
    /// restored and nothing else has changed.
    pub(crate) fn grow(&self, len: u64, site: Site) -> Result<()> {
        self.check_usable()?;
        let _one = self.resize.lock();
        let old = self.len();
        if len > self.reserved {
            return Err(Error::Reserve { wanted: len, reserved: self.reserved });
        }
        if len <= old {
            return Ok(());
        }
        if self.is_fixed() {
            return Err(Error::NoSpace { path: self.path.clone(), wanted: len - old });
        }
        match &self.backing {
            Backing::Simulated(medium) => {
                medium.set_len(len, site).map_err(|e| self.space(e, len - old))?;
                self.len.store(len, Release);
            }
            backing => {
                let Some(file) = &self.file else { return Ok(()) };
                let by_pages = matches!(backing, Backing::Synced);
                if let Err(e) = extend(file, old, len, by_pages) {
                    let _ = ftruncate(file, old); // best effort: a longer file is trimmed at the next open
                    return Err(self.space(e, len - old));
                }
                let flags = match self.domain {
                    Domain::Pmem | Domain::PmemEadr => MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
                    _ => MapFlags::SHARED,
                };
                self.map_at(old, len - old, flags).map_err(|e| self.fail("mmap", e))?;
                if by_pages {
                    self.advise_random(old, len - old)?;
                }
            }
        }
        self.persist_len(site)
    }

    /// The present length is persistent when this returns.
    fn persist_len(&self, site: Site) -> Result<()> {
        match (&self.backing, &self.file) {
            (Backing::Flushed(_) | Backing::Fenced, Some(file)) => {
                self.counters.synced();
                fsync(file).map_err(|e| {
                    self.group.poison();
                    Error::Sync { source: e.into() }
                })
            }
            _ => self.drain(site).map(|_| ()),
        }
    }

    /// Cuts the file to `len`. The caller proves that nothing above refers to what is cut, on media (the header no
    /// longer names it, persistently) and in memory.
    pub(crate) fn shrink(&self, len: u64, site: Site) -> Result<()> {
        self.check_usable()?;
        let _one = self.resize.lock();
        let old = self.len();
        if len >= old {
            return Ok(());
        }
        self.len.store(len, Release);
        match (&self.backing, &self.file) {
            (Backing::Simulated(medium), _) => medium.set_len(len, site).map_err(|e| self.fail("set_len", e)),
            (_, Some(file)) => {
                // SAFETY: the replaced part is inside our reservation and beyond `len`: no reference into it exists,
                // says the caller.
                unsafe {
                    let at = self.base.as_ptr().add(len as usize);
                    mmap_anonymous(
                        at.cast(),
                        (old - len) as usize,
                        ProtFlags::empty(),
                        MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED,
                    )
                    .map_err(|e| self.fail("mmap", e))?;
                }
                ftruncate(file, len).map_err(|e| self.fail("ftruncate", e))
            }
            _ => Ok(()),
        }
    }

    /// Cuts what of the file lies behind the mapping: less than a page.
    pub(crate) fn cut_file(&self) -> Result<()> {
        match &self.file {
            Some(file) => ftruncate(file, self.len()).map_err(|e| self.fail("ftruncate", e)),
            None => Ok(()),
        }
    }

    fn space(&self, source: io::Error, wanted: u64) -> Error {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Error::NoSpace { path: self.path.clone(), wanted }
            }
            _ => self.fail("growing the file", source),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.file.is_some() {
            // SAFETY: the whole range was reserved by `file()`; nobody holds a reference any more, because everything that
            // hands one out keeps this value alive.
            let _ = unsafe { munmap(self.base.as_ptr().cast(), self.reserved as usize) };
        }
        // Closing the file is not enough: a child on its way from fork to exec has it too, and with it the lock. In such a
        // child the lock is the parent's.
        if let Some(file) = self.file.as_ref().filter(|_| self.fork.check().is_ok()) {
            let _ = flock(file, FlockOperation::Unlock);
        }
    }
}

/// True for the file systems that keep files in memory: tmpfs and hugetlbfs.
pub(crate) fn is_memory_fs(kind: i64) -> bool {
    matches!(kind, 0x0102_1994 | 0x9584_58f6)
}

/// Makes `file` `len` bytes long with every block allocated, so that no store into the mapping can meet a full disk.
///
/// `by_pages` fills it in writes of one page: the page cache then holds small folios, and one dirty line costs one page at the
/// next sync (larger writes were measured to cost up to a MiB).
pub(crate) fn extend(file: &File, old: u64, len: u64, by_pages: bool) -> io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), old, len - old) {
        Ok(()) => {}
        Err(rustix::io::Errno::OPNOTSUPP) => return fill(file, old, len), // the writes allocate
        Err(e) => return Err(e.into()),
    }
    if by_pages { fill(file, old, len) } else { Ok(()) }
}

fn fill(file: &File, old: u64, len: u64) -> io::Result<()> {
    let zeros = [0u8; PAGE as usize];
    let mut at = old;
    while at < len {
        let n = (PAGE - at % PAGE).min(len - at) as usize;
        file.write_all_at(&zeros[..n], at)?;
        at += n as u64;
    }
    Ok(())
}

/// What a sync could not write is not on the disk but may still be in the page cache, marked clean: after an unclean shutdown
/// the cache is written out, then dropped, so that what is read is what the disk holds.
pub(crate) fn forget_cached(file: &File) -> io::Result<()> {
    fsync(file)?;
    fadvise(file, 0, None, FileAdvice::DontNeed)?;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "imitates a slower medium in real time")]
fn spin(ns: u64) {
    if ns > 0 {
        let start = Instant::now();
        while (start.elapsed().as_nanos() as u64) < ns {
            std::hint::spin_loop();
        }
    }
}
