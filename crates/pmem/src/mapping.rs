//! The memory of a pool: mapped once at a fixed address, accessed with checks.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Release},
};
use std::sync::{Arc, OnceLock};

use rustix::fs::{Advice as FileAdvice, fadvise};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::cpu::{self, FlushWith};
use crate::device::is_device;
use crate::domain::{Domain, DomainChoice, Latency, is_eadr};
use crate::error::{Error, Result};
use crate::file::{PAGE, is_memory_fs, unlock};
use crate::fork::ForkGuard;
use crate::sim::Medium;
use crate::stats::Counters;
use crate::sync_file::GroupSync;
use crate::whole::Whole;
use crate::written::Written;

/// Bytes of a large page: fsdax maps by one what begins at a multiple of it in file and memory alike.
const HUGE: u64 = 2 << 20;

pub(crate) enum Backing {
    Flushed(FlushWith),
    Fenced,
    Synced,
    Simulated(Arc<dyn Medium>),
}

pub(crate) struct Mapping {
    pub(crate) base: NonNull<u8>,
    pub(crate) reserved: u64,
    /// Bytes that may be accessed; only grows while anything above holds a range (shrinking proves it unused).
    pub(crate) len: AtomicU64,
    pub(crate) backing: Backing,
    pub(crate) domain: Domain,
    pub(crate) latency: Option<Latency>,
    pub(crate) file: Option<File>,
    pub(crate) path: PathBuf,
    read_only: bool,
    pub(crate) counters: Counters,
    pub(crate) group: GroupSync,
    pub(crate) fork: ForkGuard,
    pub(crate) resize: crate::sync::Mutex<()>,
    pub(crate) written: Written,
    /// Found out when it is first asked for.
    pub(crate) whole: OnceLock<Option<Whole>>,
}

// SAFETY: the mapping is memory of the whole process, not of a thread; `base` never changes. Which code may touch which bytes is
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
        let reserved = len.max(options.max_size.min(1 << 47)).next_multiple_of(HUGE);
        let base = reserve(reserved).map_err(|e| fail("mmap (reserving address space)", e))?;
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
            written: Written::default(),
            whole: OnceLock::new(),
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
        mapping.advise(0, len)?;
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
            written: Written::default(),
            whole: OnceLock::new(),
        }
    }

    pub(crate) fn fail(&self, op: &'static str, source: impl Into<io::Error>) -> Error {
        Error::Io { op, path: self.path.clone(), source: source.into() }
    }

    /// Maps the file, with `MAP_SYNC` if the kernel can; says whether it could.
    fn map_first(&mut self, len: u64) -> Result<bool> {
        let synchronous = len > 0 && self.can_sync();
        let flags = if synchronous { MapFlags::SHARED_VALIDATE | MapFlags::SYNC } else { MapFlags::SHARED };
        self.map_at(0, len, flags).map_err(|e| self.fail("mmap", e))?;
        Ok(synchronous)
    }

    /// Whether the kernel maps the file with `MAP_SYNC`. Asked for anywhere but in the range that is reserved: where a file system refuses, the kernel has
    /// already given up what was mapped at a fixed address (Linux 6.18, ext4), and another thread could come to own a part of our range.
    fn can_sync(&self) -> bool {
        let Some(file) = &self.file else { return false };
        let (len, flags) = (HUGE as usize, MapFlags::SHARED_VALIDATE | MapFlags::SYNC);
        // SAFETY: a new mapping at an address of the kernel's choice, which nothing uses.
        let probe = unsafe { mmap(std::ptr::null_mut(), len, ProtFlags::READ, flags, file, 0) };
        // SAFETY: just mapped, and nothing refers to it.
        probe.is_ok_and(|at| unsafe { munmap(at, len) }.is_ok())
    }

    pub(crate) fn map_at(&self, offset: u64, len: u64, flags: MapFlags) -> rustix::io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let protection = if self.read_only { ProtFlags::READ } else { ProtFlags::READ | ProtFlags::WRITE };
        if len > 0 {
            // SAFETY: the target lies inside the range reserved in `file()`, which nothing else maps; the part replaced
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
            // What its node is on says nothing.
            DomainChoice::Auto if meta.file_type().is_block_device() => Ok(Domain::File),
            DomainChoice::Auto => {
                let kind = rustix::fs::fstatfs(file).map_err(|e| self.fail("statfs", e))?.f_type as i64;
                Ok(if is_memory_fs(kind) { Domain::Emulated } else { Domain::File })
            }
        }
    }

    /// Says how a range that was mapped just now will be used.
    pub(crate) fn advise(&self, offset: u64, len: u64) -> Result<()> {
        if self.domain == Domain::File {
            return self.advise_random(offset, len);
        }
        self.advise_huge(offset, len);
        Ok(())
    }

    /// Memory is mapped by large pages where the file system has them (tmpfs mounted with `huge=`, fsdax): a third of a look-up in a map that exceeds the caches
    /// are misses of address translation. Elsewhere nothing happens.
    fn advise_huge(&self, offset: u64, len: u64) {
        if self.file.is_some() && len > 0 {
            // SAFETY: the range was mapped by `map_at`; advice changes no byte.
            let _ =
                unsafe { madvise(self.base.as_ptr().add(offset as usize).cast(), len as usize, Advice::LinuxHugepage) };
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

    /// Has the device begin to read these bytes, which are read page by page otherwise. Where that cannot be, reading takes its time.
    pub(crate) fn will_need(&self, offset: u64, len: u64) {
        let Some(file) = self.file.as_ref().filter(|_| self.domain == Domain::File) else { return };
        let _ = fadvise(file, offset, std::num::NonZeroU64::new(len), FileAdvice::WillNeed);
    }

    /// Has pages mapped for writing, and made if they are new. Where that cannot be, the first store to each does it.
    pub(crate) fn populate(&self, offset: u64, len: u64) {
        if self.file.is_none() || self.domain == Domain::File || self.access(offset, len, true).is_err() {
            return;
        }
        let (start, end) = (offset - offset % PAGE, offset + len);
        // SAFETY: inside the mapping, says `access`; no byte changes. Of what another thread cuts off meanwhile it says that it is not there.
        let _ = unsafe {
            madvise(self.base.as_ptr().add(start as usize).cast(), (end - start) as usize, Advice::LinuxPopulateWrite)
        };
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
        self.file.as_ref().is_some_and(|file| file.metadata().is_ok_and(|meta| is_device(meta.file_type())))
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

    /// Asks for the first lines of a range that will be used soon.
    #[inline]
    pub(crate) fn prefetch(&self, offset: u64, lines: u64) {
        for line in 0..lines {
            cpu::prefetch(self.base.as_ptr().wrapping_add((offset + line * cpu::LINE) as usize));
        }
    }

    /// Reads through the file, not the mapping, so that a damaged medium is an error and not a signal.
    pub(crate) fn probe(&self, what: &'static str, offset: u64, len: u64) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) }; // a model answers at each access
        self.access(offset, len, false)?;
        if self.domain == Domain::Emulated || (self.domain != Domain::File && self.is_dax(file)) {
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

    /// Puts zeros in the place of bytes that cannot be read, through the file: a store into the mapping would be answered by a signal,
    /// while whole pages are written without being read first.
    pub(crate) fn replace(&self, offset: u64, len: u64) -> Result<()> {
        self.check_usable()?;
        let replaced = match (&self.backing, &self.file) {
            (Backing::Simulated(medium), _) => medium.replace(offset, len),
            (_, Some(file)) => file.write_all_at(&vec![0; len as usize], offset),
            _ => Ok(()),
        };
        self.written.note(offset, len);
        replaced.map_err(|source| Error::Unreadable { what: "range", offset, len, source })
    }

    /// A devdax device: memory, and nothing else.
    fn is_dax(&self, file: &File) -> bool {
        file.metadata().is_ok_and(|m| m.file_type().is_char_device())
    }

    /// An error if the mapping must not be used for changes any more.
    pub(crate) fn check_usable(&self) -> Result<()> {
        self.fork.check()?;
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        self.group.check()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.file.is_some() {
            // SAFETY: the whole range was reserved by `file()`; no reference is left, because everything that
            // hands one out keeps this value alive.
            let _ = unsafe { munmap(self.base.as_ptr().cast(), self.reserved as usize) };
        }
        // Closing the file is not enough: a child on its way from fork to exec has it too, and with it the lock. In such a
        // child the lock is the parent's.
        if let Some(file) = self.file.as_ref().filter(|_| self.fork.check().is_ok()) {
            unlock(file);
        }
    }
}

/// Reserves addresses for as much as the pool may grow to, so that growth never moves what is mapped; they begin where a large page can.
fn reserve(len: u64) -> rustix::io::Result<NonNull<u8>> {
    let more = (len + HUGE) as usize;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
    let start = unsafe {
        mmap_anonymous(std::ptr::null_mut(), more, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE)
    }?;
    let start = start.cast::<u8>();
    let head = start.align_offset(HUGE as usize);
    // SAFETY: both ends lie in the mapping just made, which no other code knows; what is kept is between them.
    unsafe {
        let base = start.add(head);
        let tail = base.add(len as usize);
        if head > 0 {
            munmap(start.cast(), head)?;
        }
        if HUGE as usize > head {
            munmap(tail.cast(), HUGE as usize - head)?;
        }
        NonNull::new(base).ok_or(rustix::io::Errno::NOMEM)
    }
}
