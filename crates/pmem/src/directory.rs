//! The directory of a pool: named regions are added, claimed, grown and cut. Every change is one mirrored header update: two barriers.

use std::sync::Arc;

use crate::area::{Area, Claim, Region};
use crate::error::{Error, Result};
use crate::file::PAGE;
use crate::header::{Entry, NAME_MAX, REGIONS_MAX, RegionKind, name_bytes};
use crate::pool::{Inner, Pool, State};
use crate::sim::here;

impl Pool {
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

    /// As [`add_region_as`](Self::add_region_as); `detail` says, from the extent's offset and length, what its owner must know to
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
    /// [`Error::NoRegion`]; [`Error::InUse`] while it is claimed.
    pub fn region(&self, name: &str) -> Result<Region> {
        let state = self.inner.state.lock();
        let entries: Vec<Entry> = state.header.entries().filter(|e| e.name_str() == Some(name)).copied().collect();
        let Some(first) = entries.first() else { return Err(Error::NoRegion { name: name.to_owned() }) };
        if !self.inner.claims.lock().insert(name.to_owned()) {
            return Err(Error::InUse { what: format!("region {name:?}") });
        }
        drop(state); // now no thread gives it another name
        self.inner.visited.lock().insert(name.to_owned());
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
    /// the pool, else by a further extent, which takes one of the 48 entries of the directory: grow in few, large steps, or let the region
    /// that grows be the last.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::DirectoryFull`], [`Error::Reserve`]. The region is then as before.
    pub fn grow_region(&self, region: &mut Region, by: u64) -> Result<()> {
        let by = checked_len(by)?;
        let no_region = || Error::NoRegion { name: region.name.clone() };
        let Some(last) = region.areas.last() else { return Err(no_region()) };
        if !Arc::ptr_eq(last.pool(), &self.inner) {
            return Err(no_region()); // of another pool, where the bytes behind it may belong to another region
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

    /// Whether nothing stands behind a region of this pool: growing it takes no further extent.
    ///
    /// ```
    /// # fn main() -> pmem::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let pool = pmem::Options::new().create(dir.path().join("p"))?;
    /// let (table, data) = (pool.add_region("table", 8192)?, pool.add_region("data", 8192)?);
    /// assert!(!pool.is_last(&table) && pool.is_last(&data));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_last(&self, region: &Region) -> bool {
        let end = self.inner.state.lock().header.used_end();
        region
            .areas
            .last()
            .is_some_and(|last| Arc::ptr_eq(last.pool(), &self.inner) && last.offset() + last.len() == end)
    }

    /// Cuts `by` bytes off the end of a claimed region, and of the file, if its last extent is the last of the pool and longer than that; false, and nothing
    /// done, otherwise. No caller may hold an address behind the new end.
    ///
    /// ```
    /// # fn main() -> pmem::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
    /// let mut region = pool.add_region("journal", 1 << 20)?;
    /// assert!(pool.cut_region(&mut region, 1 << 19)?);
    /// assert_eq!(region.len(), 1 << 19);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoRegion`] for a region of another pool; those of a drain.
    pub fn cut_region(&self, region: &mut Region, by: u64) -> Result<bool> {
        let Some(last) = region.areas.last_mut().filter(|last| Arc::ptr_eq(last.pool(), &self.inner)) else {
            return Err(Error::NoRegion { name: region.name.clone() });
        };
        let Some(rest) = last.len().checked_sub(by).filter(|rest| *rest > 0 && rest.is_multiple_of(PAGE)) else {
            return Ok(false);
        };
        let cut = self.inner.cut_extent(last.offset(), rest)?;
        if cut {
            last.resize(rest);
        }
        Ok(cut)
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
}

impl Inner {
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
