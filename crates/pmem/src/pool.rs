//! A pool: a mapped file with a header, from open to close. Its regions: `directory`.
//!
//! Opening goes: lock the file, read the header through the file, map, check, write the header with a raised generation and
//! the clean flag taken away. Closing puts the flag back.

use std::collections::HashSet;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::cell::RawCell;
use crate::checksum::{ChecksumKey, Checksums};
use crate::cpu::FlushWith;
use crate::domain::Domain;
use crate::error::{Error, Result};
use crate::flush::{FlushSet, Persisted};
use crate::header::{Entry, FLAG_CLEAN, Header, RegionInfo, text};
use crate::mapping::{Backing, Mapping};
use crate::persist::bytes_of;
use crate::sim::here;
use crate::stats::Stats;

/// What a pool is, for people.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
/// let info = pool.info();
/// assert_eq!((info.size, info.generation, info.was_clean), (1 << 20, 1, false));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct PoolInfo {
    /// Where it is.
    pub path: PathBuf,
    /// Random number that names it.
    pub id: u64,
    /// Version of the format that it was made in.
    pub format_version: u32,
    /// Bytes.
    pub size: u64,
    /// Bytes that no region uses.
    pub free: u64,
    /// Times it was opened for writing.
    pub generation: u64,
    /// Whether it was closed cleanly before this open.
    pub was_clean: bool,
    /// The name its maker gave its contents.
    pub layout: String,
    /// The engine it belongs to, empty for none.
    pub engine: String,
    /// Persistence domain.
    pub domain: Domain,
    /// How lines are written back, if they are.
    pub flush_with: Option<FlushWith>,
    /// Its regions, by extent.
    pub regions: Vec<RegionInfo>,
}

pub(crate) struct Inner {
    pub(crate) mapping: Mapping,
    tag: u16,
    checksums: Checksums,
    id: u64,
    generation: u64,
    was_clean: bool,
    repaired: bool,
    pub(crate) state: crate::sync::Mutex<State>,
    pub(crate) claims: parking_lot::Mutex<HashSet<String>>,
    /// Names of the regions that were claimed since the pool was opened.
    pub(crate) visited: parking_lot::Mutex<HashSet<String>>,
    /// An engine has something in the pool that only its own close, or recovery, makes whole.
    pending: AtomicBool,
    /// It is to be left as a crash leaves it.
    abandoned: AtomicBool,
}

pub(crate) struct State {
    pub(crate) header: Header,
    cell: RawCell,
}

/// A handle of an open pool; clones share it.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
/// let mut area = pool.add_region("numbers", 4096)?.into_area()?;
/// area.put(0, &7u64)?;
/// area.flush(0, 8)?;
/// pool.drain()?; // one barrier: it survives
/// drop(area);
/// pool.close()?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Pool {
    pub(crate) inner: Arc<Inner>,
}

impl Pool {
    /// Puts a handle around a mapping whose header was checked; takes the clean flag away and raises the generation.
    pub(crate) fn start(mapping: Mapping, mut header: Header, mut cell: RawCell, repaired: bool) -> Result<Self> {
        let was_clean = header.is_clean();
        if !mapping.is_read_only() {
            header.generation += 1;
            header.flags &= !FLAG_CLEAN;
            cell.update_mirrored(&mapping, bytes_of(&header))?;
        }
        if mapping.domain() == Domain::Emulated {
            tracing::warn!(path = %mapping.path().display(), "emulated persistence: survives {}", Domain::Emulated.survives());
        }
        let inner = Inner {
            tag: header.tag(),
            checksums: header.checksums(),
            id: header.id,
            generation: header.generation,
            was_clean,
            repaired,
            mapping,
            abandoned: AtomicBool::new(false),
            state: crate::sync::Mutex::new(State { header, cell }),
            claims: parking_lot::Mutex::new(HashSet::new()),
            visited: parking_lot::Mutex::new(HashSet::new()),
            pending: AtomicBool::new(false),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Cuts what an interrupted growth or shrink left behind the end: the header never named these bytes, or does no longer. Only when that
    /// header is persistent; it may have been read from a cache, and an older one may need them.
    pub(crate) fn trim(&self, file_len: u64) -> Result<()> {
        let size = self.inner.state.lock().header.size;
        if size < file_len {
            self.inner.mapping.shrink(size, here())?;
            self.inner.mapping.cut_file()?;
        }
        Ok(())
    }

    // ---- what it is -------------------------------------------------------------------------------------------

    /// Everything `cairn info` prints.
    pub fn info(&self) -> PoolInfo {
        let header = self.inner.state.lock().header;
        PoolInfo {
            path: self.path().to_owned(),
            id: header.id,
            format_version: header.version,
            size: header.size,
            free: header.size - header.used_end(),
            generation: header.generation,
            was_clean: self.inner.was_clean,
            layout: text(&header.layout).unwrap_or_default().to_owned(),
            engine: text(&header.engine).unwrap_or_default().to_owned(),
            domain: self.domain(),
            flush_with: self.inner.mapping.flush_with(),
            regions: header.entries().map(Entry::info).collect(),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.inner.mapping.path()
    }

    /// Persistence domain.
    pub fn domain(&self) -> Domain {
        self.inner.mapping.domain()
    }

    /// Tag of the pointers into it.
    pub fn tag(&self) -> u16 {
        self.inner.tag
    }

    /// Random number that names it.
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// Bytes to which it may grow while it is open ([`Options::max_size`](crate::Options::max_size)).
    pub fn max_size(&self) -> u64 {
        self.inner.mapping.reserved
    }

    /// Times it was opened for writing, this one included: the epoch of everything written since.
    pub fn generation(&self) -> u64 {
        self.inner.generation
    }

    /// Whether it was closed cleanly before this open.
    pub fn was_clean(&self) -> bool {
        self.inner.was_clean
    }

    /// Whether one copy of the header had to be repaired from the other.
    pub fn was_repaired(&self) -> bool {
        self.inner.repaired
    }

    /// Whether it is open for reading only.
    pub fn is_read_only(&self) -> bool {
        self.inner.mapping.is_read_only()
    }

    /// Bytes in the file.
    pub fn size(&self) -> u64 {
        self.inner.mapping.len()
    }

    /// Counted costs since it was opened, all threads together.
    pub fn stats(&self) -> Stats {
        self.inner.mapping.counters().sum()
    }

    /// The 64 bytes an engine keeps in the header.
    pub fn engine_options(&self) -> [u8; 64] {
        self.inner.state.lock().header.engine_options
    }

    /// The key for checksums of the place called `place`.
    pub fn checksum_key(&self, place: u64) -> ChecksumKey {
        self.inner.checksum_key(place)
    }

    /// Until an engine has closed what it has here, closing the pool leaves it to be recovered.
    #[doc(hidden)]
    pub fn set_pending(&self, pending: bool) {
        self.inner.pending.store(pending, SeqCst);
    }

    /// What was said last.
    #[doc(hidden)]
    pub fn is_pending(&self) -> bool {
        self.inner.pending.load(SeqCst)
    }

    // ---- persistence ------------------------------------------------------------------------------------------

    /// Waits until everything this thread flushed is persistent. One barrier.
    ///
    /// # Errors
    /// [`Error::Sync`] when the device fails, [`Error::Poisoned`] ever after.
    #[inline]
    #[track_caller]
    pub fn drain(&self) -> Result<Persisted> {
        self.inner.mapping.drain(Location::caller())
    }

    /// Drains several pools. Files are synced at the same time, each by a thread of its own: on several devices that takes as long as the slowest, and on one device a file system
    /// writes its journal for all of them.
    ///
    /// ```
    /// # fn main() -> pmem::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let pool = |name: &str| pmem::Options::new().size(1 << 20).create(dir.path().join(name));
    /// let (one, other) = (pool("one")?, pool("other")?);
    /// pmem::Pool::drain_all(&[&one, &other])?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// That of the first one that failed. The others are drained all the same.
    #[track_caller]
    pub fn drain_all(pools: &[&Self]) -> Result<()> {
        let site = Location::caller();
        let drain = |pool: &Self| pool.inner.mapping.drain(site).map(drop);
        if let [only] = pools {
            return drain(only);
        }
        let syncs = |pool: &&Self| matches!(pool.inner.mapping.backing, Backing::Synced);
        let mut results = Vec::with_capacity(pools.len());
        match pools.split_first() {
            Some((first, others)) if !others.is_empty() && pools.iter().all(syncs) => std::thread::scope(|scope| {
                let mut threads = Vec::with_capacity(others.len());
                for pool in others {
                    let thread = std::thread::Builder::new().name("cairn sync".into());
                    match thread.spawn_scoped(scope, move || drain(pool)) {
                        Ok(thread) => threads.push(thread),
                        Err(_) => results.push(drain(pool)), // there are too many threads
                    }
                }
                results.push(drain(first));
                results.extend(threads.into_iter().map(|thread| thread.join().unwrap_or(Err(Error::Poisoned))));
            }),
            _ => results.extend(pools.iter().map(|pool| drain(pool))),
        }
        results.into_iter().collect()
    }

    /// An error if nothing may be changed any more. A thread that writes for others, whose drain may have failed, asks first: what did not become
    /// persistent must not be built upon.
    ///
    /// # Errors
    /// [`Error::Poisoned`] once a drain has failed, [`Error::Forked`], [`Error::ReadOnly`].
    pub fn check_usable(&self) -> Result<()> {
        self.inner.mapping.check_usable()
    }

    /// Flushes the lines of the set, once each, and empties it. Best right before a drain.
    ///
    /// # Errors
    /// [`Error::Forked`].
    ///
    /// # Panics
    /// If the set holds lines of another pool.
    #[inline]
    #[track_caller]
    pub fn flush_set(&self, set: &mut FlushSet) -> Result<()> {
        self.inner.mapping.flush_set(set, Location::caller())
    }

    /// Tells a disk that these bytes will be read soon: it reads up to a few MiB ahead at its full speed, where each page on its own would wait
    /// for the device. Other media need no such hint.
    ///
    /// ```
    /// # fn main() -> pmem::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
    /// pool.will_need(0, pool.size());
    /// # Ok(()) }
    /// ```
    pub fn will_need(&self, offset: u64, len: u64) {
        self.inner.mapping.will_need(offset, len);
    }

    /// Has the pages of a range of memory ready to be written: mapped, and zeroed by the kernel if they are new, which the first store to each page waits for
    /// otherwise. For a thread that has time. Takes about as long as to write the range. Disks need no such thing, and nothing happens there.
    ///
    /// ```
    /// # fn main() -> pmem::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
    /// pool.populate(0, pool.size());
    /// # Ok(()) }
    /// ```
    pub fn populate(&self, offset: u64, len: u64) {
        self.inner.mapping.populate(offset, len);
    }

    // ---- end --------------------------------------------------------------------------------------------------

    /// Closes the pool cleanly. Without this it is recovered at the next open, which loses nothing and is fast, but a read-only
    /// open is refused until then.
    ///
    /// A pool that a crash left, and of which a region was not claimed since, stays one that needs recovery: its owner has not been here, and would
    /// take for persistent what is not.
    ///
    /// # Errors
    /// [`Error::InUse`] while a region, an object reservation or another handle is alive; those of a drain.
    pub fn close(self) -> Result<()> {
        if let Some(name) = self.inner.claims.lock().iter().next() {
            return Err(Error::InUse { what: format!("region {name:?}") });
        }
        let inner =
            Arc::try_unwrap(self.inner).map_err(|_| Error::InUse { what: "another handle of the pool".into() })?;
        if inner.mapping.is_read_only() {
            return Ok(());
        }
        inner.mapping.check_usable()?;
        let mut state = inner.state.lock();
        if inner.pending.load(SeqCst) {
            return inner.mapping.drain(here()).map(|_| ());
        }
        if !inner.was_clean {
            let visited = inner.visited.lock();
            let left = state.header.entries().filter_map(|e| e.name_str()).find(|name| !visited.contains(*name));
            if let Some(name) = left {
                tracing::info!(region = name, "closed as it was found: its owner has yet to recover it");
                return inner.mapping.drain(here()).map(|_| ());
            }
        }
        // Whatever this thread or another stored without a drain becomes persistent before the flag says so.
        let header = Header { flags: state.header.flags | FLAG_CLEAN, ..state.header };
        inner.mapping.drain(here())?;
        inner.write_header(&mut state, header)
    }
}

impl Pool {
    /// For tests: engines in it that are dropped from now on leave it as a crash would.
    #[doc(hidden)]
    pub fn abandon(&self) {
        self.inner.abandoned.store(true, Relaxed);
    }

    /// Whether an engine in it closes itself when its handle is dropped. Not while its thread panics: what the engine promises may have been broken by what panicked. Not
    /// in a forked child, not after a failed sync, and not in simulated memory, whose programs crash by ending.
    #[doc(hidden)]
    pub fn is_closed_on_drop(&self) -> bool {
        let mapping = &self.inner.mapping;
        !mapping.is_read_only()
            && mapping.domain() != Domain::Simulated
            && !self.inner.abandoned.load(Relaxed)
            && !std::thread::panicking()
            && mapping.check_usable().is_ok()
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({}, {})", self.path().display(), self.domain())
    }
}

impl Inner {
    pub(crate) fn checksum_key(&self, place: u64) -> ChecksumKey {
        self.checksums.key(place)
    }

    pub(crate) fn was_clean(&self) -> bool {
        self.was_clean
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn unclaim(&self, name: &str) {
        self.claims.lock().remove(name);
    }

    pub(crate) fn write_header(&self, state: &mut State, header: Header) -> Result<()> {
        state.cell.update_mirrored(&self.mapping, bytes_of(&header))?;
        state.header = header;
        Ok(())
    }
}
