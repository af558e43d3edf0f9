//! A pool: a mapped file with a header, named regions and an optional allocator.
//!
//! Opening goes: lock the file, read the header through the file, map, check, write the header with a raised generation and
//! the clean flag taken away. Closing puts the flag back. Every change of the directory is one mirrored header update: two barriers.

use std::collections::HashSet;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::area::{Area, Claim, Region};
use crate::cpu::FlushWith;
use crate::domain::Domain;
use crate::error::{Error, Result};
use crate::hash::SealKey;
use crate::header::{Entry, FLAG_CLEAN, Header, NAME_MAX, REGIONS_MAX, name_bytes, text};
use crate::mapping::{FlushSet, Mapping, PAGE, Persisted};
use crate::persist::bytes_of;
use crate::sim::here;
use crate::stats::Stats;
use crate::two_slot::RawCell;

/// What a region holds, as its owner says; `cairn check` looks inside those it knows.
///
/// ```
/// use pmem::RegionKind;
/// assert_eq!(RegionKind::from_code(RegionKind::Ring.code()), RegionKind::Ring);
/// assert_eq!(RegionKind::from_code(99), RegionKind::Other(99));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegionKind {
    /// The program's own bytes.
    Raw,
    /// A [`Ring`](crate::Ring).
    Ring,
    /// Blocks of an [`Allocator`](crate::Allocator).
    Heap,
    /// Root and log of [`Objects`](crate::Objects).
    Objects,
    /// Something newer than this build, or of an engine.
    Other(u32),
}

impl RegionKind {
    /// The number stored.
    pub fn code(self) -> u32 {
        match self {
            Self::Raw => 0,
            Self::Ring => 1,
            Self::Heap => 2,
            Self::Objects => 3,
            Self::Other(code) => code,
        }
    }

    /// The kind stored as `code`.
    pub fn from_code(code: u32) -> Self {
        match code {
            0 => Self::Raw,
            1 => Self::Ring,
            2 => Self::Heap,
            3 => Self::Objects,
            other => Self::Other(other),
        }
    }
}

/// An extent of a region, for people.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
/// pool.add_region("journal", 4096)?;
/// let info = &pool.info().regions[0];
/// assert_eq!((info.name.as_str(), info.part, info.offset, info.len), ("journal", 0, 8192, 4096));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionInfo {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub kind: RegionKind,
    /// Number of the extent within the region.
    pub part: u32,
    /// From the start of the pool.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

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
    pub(crate) tag: u16,
    key: u64,
    id: u64,
    generation: u64,
    was_clean: bool,
    repaired: bool,
    state: crate::sync::Mutex<State>,
    claims: parking_lot::Mutex<HashSet<String>>,
}

struct State {
    header: Header,
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
            key: header.key,
            id: header.id,
            generation: header.generation,
            was_clean,
            repaired,
            mapping,
            state: crate::sync::Mutex::new(State { header, cell }),
            claims: parking_lot::Mutex::new(HashSet::new()),
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
            size: header.size,
            free: header.size - header.used_end(),
            generation: header.generation,
            was_clean: self.inner.was_clean,
            layout: text(&header.layout).unwrap_or_default().to_owned(),
            engine: text(&header.engine).unwrap_or_default().to_owned(),
            domain: self.domain(),
            flush_with: self.inner.mapping.flush_with(),
            regions: header
                .entries()
                .map(|e| RegionInfo {
                    name: e.name_str().unwrap_or_default().to_owned(),
                    kind: RegionKind::from_code(e.kind),
                    part: e.part,
                    offset: e.offset,
                    len: e.len,
                })
                .collect(),
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

    /// The key for seals of the place called `place`.
    pub fn seal_key(&self, place: u64) -> SealKey {
        self.inner.seal_key(place)
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

    // ---- regions ----------------------------------------------------------------------------------------------

    /// Adds a region of at least `len` zero bytes for the program's own use, and claims it. Grows the pool if needed.
    ///
    /// ```
    /// # fn main() -> pmem::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
    /// let region = pool.add_region("journal", 5000)?;
    /// assert_eq!((region.name(), region.len()), ("journal", 8192)); // whole pages
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::RegionExists`], [`Error::DirectoryFull`], [`Error::NoSpace`].
    pub fn add_region(&self, name: &str, len: u64) -> Result<Region> {
        self.add_region_as(name, len, RegionKind::Raw, 0)
    }

    /// Adds a region whose kind and options its owner defines.
    ///
    /// # Errors
    /// As [`add_region`](Self::add_region).
    pub fn add_region_as(&self, name: &str, len: u64, kind: RegionKind, options: u64) -> Result<Region> {
        self.add_region_with(name, len, kind, options, |_, _| Ok(0))
    }

    /// As [`add_region_as`](Self::add_region_as); `detail` says, from the extent's place and length, what its owner must know to
    /// read it. It stands in the directory, so that an extent needs no header of its own, which could be torn.
    pub(crate) fn add_region_with(
        &self,
        name: &str,
        len: u64,
        kind: RegionKind,
        options: u64,
        detail: impl FnOnce(u64, u64) -> Result<u64>,
    ) -> Result<Region> {
        self.inner.mapping.check_usable()?;
        if name.is_empty() {
            return Err(Error::BadName { name: name.to_owned(), max: NAME_MAX });
        }
        let len = checked_len(len)?;
        let mut state = self.inner.state.lock();
        if state.header.entries().any(|e| e.name_str() == Some(name)) {
            return Err(Error::RegionExists { name: name.to_owned() });
        }
        let offset = state.header.used_end();
        let name_bytes = name_bytes(name)?;
        let detail = detail(offset, len)?;
        let entry = Entry { name: name_bytes, kind: kind.code(), part: 0, offset, len, options, detail };
        self.inner.add_entry(&mut state, entry)?;
        drop(state);
        self.region(name)
    }

    /// Claims an existing region.
    ///
    /// # Errors
    /// [`Error::NoRegion`]; [`Error::InUse`] while somebody has it.
    pub fn region(&self, name: &str) -> Result<Region> {
        let state = self.inner.state.lock();
        let entries: Vec<Entry> = state.header.entries().filter(|e| e.name_str() == Some(name)).copied().collect();
        drop(state);
        let Some(first) = entries.first() else { return Err(Error::NoRegion { name: name.to_owned() }) };
        if !self.inner.claims.lock().insert(name.to_owned()) {
            return Err(Error::InUse { what: format!("region {name:?}") });
        }
        let claim = Arc::new(Claim { name: name.to_owned(), pool: Arc::downgrade(&self.inner) });
        let area = |e: &Entry| Area::new(Arc::clone(&self.inner), Arc::clone(&claim), e.offset, e.len);
        Ok(Region {
            name: name.to_owned(),
            kind: first.kind,
            options: first.options,
            areas: entries.iter().map(area).collect(),
            details: entries.iter().map(|e| e.detail).collect(),
        })
    }

    /// Grows a claimed region by at least `by` zero bytes, while everything in it stays where it is: in place if it is the last in
    /// the pool, else by a further extent.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::DirectoryFull`], [`Error::Reserve`]. The region is then as before.
    pub fn grow_region(&self, region: &mut Region, by: u64) -> Result<()> {
        let by = checked_len(by)?;
        let no_region = || Error::NoRegion { name: region.name.clone() };
        let Some(last) = region.areas.last() else { return Err(no_region()) };
        if !Arc::ptr_eq(last.pool(), &self.inner) {
            return Err(no_region()); // of another pool, where the bytes behind it may be somebody's
        }
        let claim = Arc::clone(last.claim());
        let Some(last) = region.areas.last_mut() else { return Err(no_region()) };
        if self.inner.extend_extent(last.offset(), last.len(), last.len() + by)? {
            let len = last.len() + by;
            last.resize(len);
            return Ok(());
        }
        let (area, detail) = self.add_extent(&region.name, &claim, by, |_, _| Ok(0))?;
        region.areas.push(area);
        region.details.push(detail);
        Ok(())
    }

    /// A further extent of the region called `name`, under the claim that its other extents are held by.
    pub(crate) fn add_extent(
        &self,
        name: &str,
        claim: &Arc<Claim>,
        len: u64,
        detail: impl FnOnce(u64, u64) -> Result<u64>,
    ) -> Result<(Area, u64)> {
        let len = checked_len(len)?;
        let mut state = self.inner.state.lock();
        let parts: Vec<Entry> = state.header.entries().filter(|e| e.name_str() == Some(name)).copied().collect();
        let Some(first) = parts.first() else { return Err(Error::NoRegion { name: name.to_owned() }) };
        let offset = state.header.used_end();
        let detail = detail(offset, len)?;
        let entry = Entry { detail, ..first.at(parts.len() as u32, offset, len) };
        self.inner.add_entry(&mut state, entry)?;
        Ok((Area::new(Arc::clone(&self.inner), Arc::clone(claim), offset, len), detail))
    }

    /// Gives the free space behind the last region back to the file system; returns how many bytes.
    ///
    /// ```
    /// # fn main() -> pmem::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
    /// pool.add_region("all", 4096)?;
    /// assert_eq!(pool.shrink_to_fit()?, (1 << 20) - 8192 - 4096);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of a drain.
    pub fn shrink_to_fit(&self) -> Result<u64> {
        self.inner.mapping.check_usable()?;
        if self.inner.mapping.is_fixed() {
            return Ok(0); // a device keeps its length
        }
        let mut state = self.inner.state.lock();
        let (old, end) = (state.header.size, state.header.used_end());
        let mut header = state.header;
        header.size = end;
        if end == old {
            return Ok(0);
        }
        // The header stops naming the space before the space goes; a crash between leaves a longer file, which open trims.
        self.inner.write_header(&mut state, header)?;
        self.inner.mapping.shrink(end, here())?;
        Ok(old - end)
    }

    // ---- end --------------------------------------------------------------------------------------------------

    /// Closes the pool cleanly. Without this it is recovered at the next open, which loses nothing and is fast, but a read-only
    /// open is refused until then.
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
        // Whatever this thread or another stored without a drain becomes persistent before the flag says so.
        let header = Header { flags: state.header.flags | FLAG_CLEAN, ..state.header };
        inner.mapping.drain(here())?;
        inner.write_header(&mut state, header)
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({}, {})", self.path().display(), self.domain())
    }
}

impl Inner {
    pub(crate) fn seal_key(&self, place: u64) -> SealKey {
        SealKey::new(self.key, place)
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

    fn write_header(&self, state: &mut State, header: Header) -> Result<()> {
        state.cell.update_mirrored(&self.mapping, bytes_of(&header))?;
        state.header = header;
        Ok(())
    }

    /// Puts an extent at the end of the pool into the directory, growing the file first: the longer length is persistent before the
    /// header relies on it.
    fn add_entry(&self, state: &mut State, entry: Entry) -> Result<()> {
        let mut header = state.header;
        let end = entry.offset + entry.len;
        let Some(free) = header.regions.iter_mut().find(|e| !e.is_used()) else {
            return Err(Error::DirectoryFull { max: REGIONS_MAX });
        };
        *free = entry;
        if end > header.size {
            self.mapping.grow(end, here())?;
            header.size = end;
        }
        self.write_header(state, header)
    }

    /// Changes the length of the extent at `offset` in place, if it is the last in the pool; false if it is not.
    pub(crate) fn extend_extent(&self, offset: u64, old: u64, new: u64) -> Result<bool> {
        self.mapping.check_usable()?;
        let mut state = self.state.lock();
        let mut header = state.header;
        if header.used_end() != offset + old {
            return Ok(false);
        }
        let Some(entry) = header.regions.iter_mut().find(|e| e.is_used() && e.offset == offset) else {
            return Ok(false);
        };
        entry.len = new;
        if offset + new > header.size {
            self.mapping.grow(offset + new, here())?;
            header.size = offset + new;
        }
        self.write_header(&mut state, header)?;
        Ok(true)
    }

    /// Cuts the extent at `offset`, the last in the pool, to `new` bytes and gives the rest of the file back. The caller proves that
    /// nothing refers to what is cut. False if it is not the last.
    pub(crate) fn cut_extent(&self, offset: u64, new: u64) -> Result<bool> {
        self.mapping.check_usable()?;
        if self.mapping.is_fixed() {
            return Ok(false);
        }
        let mut state = self.state.lock();
        let mut header = state.header;
        let end = header.used_end();
        let Some(entry) = header.regions.iter_mut().find(|e| e.is_used() && e.offset == offset) else {
            return Ok(false);
        };
        if entry.offset + entry.len != end || new >= entry.len {
            return Ok(false);
        }
        entry.len = new;
        header.size = offset + new;
        self.write_header(&mut state, header)?;
        self.mapping.shrink(offset + new, here())?;
        Ok(true)
    }
}

fn checked_len(len: u64) -> Result<u64> {
    let max = 1 << 47;
    if len == 0 || len > max {
        return Err(Error::Limit { what: "bytes of a region", found: len, min: 1, max });
    }
    Ok(len.next_multiple_of(PAGE))
}
