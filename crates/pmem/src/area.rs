//! Exclusive ranges of a pool: the safe way to its bytes.
//!
//! A [`Region`] is a named range; its bytes belong to the caller that claimed it, as [`Area`]s that may be split but never overlap.
//! Rust's borrow rules do the rest: bytes are read through `&Area`, changed through `&mut Area`.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::checksum::ChecksumKey;
use crate::error::{Error, Result};
use crate::flush::{Moment, Persisted};
use crate::mapping::Mapping;
use crate::persist::Persist;
use crate::pool::Inner;

/// A contiguous range of a pool with exactly one owner.
///
/// Stores are ordinary: they reach the media when their lines are flushed and drained, or earlier, when the cache evicts them,
/// in any order, torn at any word.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
/// let mut area = pool.add_region("counters", 4096)?.into_area()?;
/// area.put(0, &7u64)?;
/// area.persist(0, 8)?;
/// assert_eq!(*area.get::<u64>(0)?, 7);
/// # Ok(()) }
/// ```
pub struct Area {
    pool: Arc<Inner>,
    claim: Arc<Claim>,
    offset: u64,
    len: u64,
}

impl Area {
    pub(crate) fn new(pool: Arc<Inner>, claim: Arc<Claim>, offset: u64, len: u64) -> Self {
        Self { pool, claim, offset, len }
    }

    /// Bytes in the range.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// First byte, from the start of the pool.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The claim on its region.
    pub(crate) fn claim(&self) -> &Arc<Claim> {
        &self.claim
    }

    /// The pool it is part of.
    pub(crate) fn pool(&self) -> &Arc<Inner> {
        &self.pool
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.pool.mapping
    }

    /// Two ranges, the first of `at` bytes.
    ///
    /// ```
    /// # fn main() -> pmem::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
    /// let (head, tail) = pool.add_region("r", 4096)?.into_area()?.split_at(64)?;
    /// assert_eq!((head.len(), tail.len()), (64, 4032));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if there are fewer.
    pub fn split_at(self, at: u64) -> Result<(Self, Self)> {
        self.locate(at, 0)?;
        let second = Self {
            pool: Arc::clone(&self.pool),
            claim: Arc::clone(&self.claim),
            offset: self.offset + at,
            len: self.len - at,
        };
        Ok((Self { len: at, ..self }, second))
    }

    /// This area and the one behind it, which [`split_at`](Self::split_at) has made.
    pub(crate) fn join(self, next: Self) -> Self {
        assert!(self.offset + self.len == next.offset && Arc::ptr_eq(&self.pool, &next.pool), "not neighbours");
        Self { len: self.len + next.len, ..self }
    }

    /// Bounds check; returns the offset in the pool.
    #[inline]
    fn locate(&self, at: u64, len: u64) -> Result<u64> {
        if at > self.len || len > self.len - at {
            return Err(Error::OutOfBounds { at, end: at.saturating_add(len), len: self.len });
        }
        Ok(self.offset + at)
    }

    /// As [`locate`](Self::locate), of a range that goes on to the end of its last line.
    #[inline]
    fn locate_lines(&self, at: u64, len: u64) -> Result<u64> {
        let behind = (self.offset.wrapping_add(at).wrapping_add(len)).wrapping_neg() % crate::LINE;
        self.locate(at, len.saturating_add(behind))
    }

    /// `len` bytes at `at`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]; [`Error::Forked`]; [`Error::Unreadable`] if the medium does not return them.
    #[inline]
    pub fn bytes(&self, at: u64, len: usize) -> Result<&[u8]> {
        let base = self.mapping().access(self.locate(at, len as u64)?, len as u64, false)?;
        // SAFETY: `access` checked the range; this Area is the only owner of it, and `&self` keeps it from being changed.
        Ok(unsafe { std::slice::from_raw_parts(base.as_ptr(), len) })
    }

    /// `len` bytes at `at`, to be changed.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes); [`Error::ReadOnly`].
    #[inline]
    pub fn bytes_mut(&mut self, at: u64, len: usize) -> Result<&mut [u8]> {
        let base = self.mapping().access(self.locate(at, len as u64)?, len as u64, true)?;
        // SAFETY: `access` checked the range; this Area is its only owner, and `&mut self` excludes every other use.
        Ok(unsafe { std::slice::from_raw_parts_mut(base.as_ptr(), len) })
    }

    /// The `T` at `at`.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes); [`Error::Unaligned`].
    #[inline]
    pub fn get<T: Persist>(&self, at: u64) -> Result<&T> {
        const { T::LAYOUT };
        let bytes = self.bytes(at, size_of::<T>())?;
        crate::persist::view(bytes)
            .ok_or_else(|| Error::Unaligned { offset: self.offset + at, align: align_of::<T>() as u64 })
    }

    /// The `T` at `at`, to be changed.
    ///
    /// # Errors
    /// As [`bytes_mut`](Self::bytes_mut); [`Error::Unaligned`].
    #[inline]
    pub fn get_mut<T: Persist>(&mut self, at: u64) -> Result<&mut T> {
        const { T::LAYOUT };
        let offset = self.offset + at;
        let bytes = self.bytes_mut(at, size_of::<T>())?;
        crate::persist::view_mut(bytes).ok_or(Error::Unaligned { offset, align: align_of::<T>() as u64 })
    }

    /// Stores `value` at `at`; nothing is flushed.
    ///
    /// # Errors
    /// As [`bytes_mut`](Self::bytes_mut).
    #[inline]
    pub fn put<T: Persist>(&mut self, at: u64, value: &T) -> Result<()> {
        self.bytes_mut(at, size_of::<T>())?.copy_from_slice(crate::persist::bytes_of(value));
        Ok(())
    }

    /// Stores `data` at `at` past the cache where that is faster, and flushes what went through it: persistent after this
    /// thread's next drain.
    ///
    /// ```
    /// # fn main() -> pmem::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
    /// let mut area = pool.add_region("r", 1 << 16)?.into_area()?;
    /// let page = [7u8; 4096];
    /// let moment = area.copy_nt(0, &page)?;
    /// assert!(moment.is_covered_by(&area.drain()?));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`bytes_mut`](Self::bytes_mut).
    #[inline]
    #[track_caller]
    pub fn copy_nt(&mut self, at: u64, data: &[u8]) -> Result<Moment> {
        let offset = self.locate(at, data.len() as u64)?;
        self.mapping().copy_nt(offset, data, Location::caller())?;
        Ok(self.mapping().moment())
    }

    /// Stores `data` at `at`, and zeros up to the end of its last line, past the cache where that is faster: persistent after this thread's next drain.
    ///
    /// # Errors
    /// As [`bytes_mut`](Self::bytes_mut), up to the end of that line.
    #[inline]
    #[track_caller]
    pub fn put_lines(&mut self, at: u64, data: &[u8]) -> Result<Moment> {
        let offset = self.locate_lines(at, data.len() as u64)?;
        self.mapping().join_nt(offset, &[], data, Location::caller())?;
        Ok(self.mapping().moment())
    }

    /// As [`put_lines`](Self::put_lines); returns the [checksum](ChecksumKey::checksum) of `data`, taken while it is stored where that can be done in one pass.
    ///
    /// # Errors
    /// As [`put_lines`](Self::put_lines).
    #[inline]
    #[track_caller]
    pub fn put_checksumming(&mut self, at: u64, key: &ChecksumKey, data: &[u8]) -> Result<u64> {
        let offset = self.locate_lines(at, data.len() as u64)?;
        self.mapping().store_checksumming(offset, key, &[], data, Location::caller())
    }

    /// Writes `data` at `at` in one piece, if the file takes it so: durable when this returns true, and after any crash all of it is there or nothing. False, and nothing was
    /// written, if the file does not: then it is to be logged, and stored. Files on Linux 6.11 or later whose file system says so do (`statx`, `RWF_ATOMIC`), for lengths that
    /// are a power of two, at multiples of them in the pool; memory never does. A sync's work.
    ///
    /// # Errors
    /// As [`bytes_mut`](Self::bytes_mut); [`Error::Sync`] when the device fails, [`Error::Poisoned`] ever after.
    #[track_caller]
    pub fn write_whole(&mut self, at: u64, data: &[u8]) -> Result<bool> {
        self.mapping().write_whole(self.locate(at, data.len() as u64)?, data, Location::caller())
    }

    /// Starts the write-back of `len` bytes at `at`: persistent after this thread's next drain.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    #[inline]
    #[track_caller]
    pub fn flush(&self, at: u64, len: u64) -> Result<Moment> {
        self.mapping().flush(self.locate(at, len)?, len, Location::caller())?;
        Ok(self.mapping().moment())
    }

    /// Waits until everything this thread flushed is persistent.
    ///
    /// # Errors
    /// [`Error::Sync`] when the device fails, [`Error::Poisoned`] ever after.
    #[inline]
    #[track_caller]
    pub fn drain(&self) -> Result<Persisted> {
        self.mapping().drain(Location::caller())
    }

    /// Flush and drain: one barrier.
    ///
    /// # Errors
    /// As [`flush`](Self::flush) and [`drain`](Self::drain).
    #[inline]
    #[track_caller]
    pub fn persist(&self, at: u64, len: u64) -> Result<Persisted> {
        self.flush(at, len)?;
        self.drain()
    }

    /// Stores the word `value` at `at` in one piece and makes it persistent: the one-word switch. One barrier; a crash shows the
    /// old word or the new one.
    ///
    /// ```
    /// # fn main() -> pmem::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
    /// let mut area = pool.add_region("r", 4096)?.into_area()?;
    /// area.bytes_mut(64, 5)?.copy_from_slice(b"hello");
    /// area.persist(64, 5)?;
    /// area.publish(0, 1)?; // valid: only now, and in one piece
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Unaligned`] unless `at` is a multiple of 8; as [`persist`](Self::persist).
    #[inline]
    #[track_caller]
    pub fn publish(&mut self, at: u64, value: u64) -> Result<Persisted> {
        let offset = self.locate(at, 8)?;
        if offset % 8 != 0 {
            return Err(Error::Unaligned { offset, align: 8 });
        }
        let word = self.mapping().access(offset, 8, true)?.cast::<AtomicU64>();
        // SAFETY: in bounds, aligned, and exclusively ours.
        unsafe { word.as_ref() }.store(value.to_le(), Ordering::Release);
        self.persist(at, 8)
    }

    /// Fills the range with zeros and flushes it.
    ///
    /// # Errors
    /// As [`bytes_mut`](Self::bytes_mut).
    #[track_caller]
    pub fn clear(&mut self) -> Result<Moment> {
        let len = self.len as usize;
        self.bytes_mut(0, len)?.fill(0);
        self.flush(0, self.len)
    }

    /// Reads `len` bytes at `at` through the file instead of the mapping, so that a damaged medium gives an error instead of
    /// a signal. Recovery does this before it relies on them.
    ///
    /// # Errors
    /// [`Error::Unreadable`] naming `what` and where.
    pub fn probe(&self, what: &'static str, at: u64, len: u64) -> Result<()> {
        self.mapping().probe(what, self.locate(at, len)?, len)
    }

    /// Tells a crash explorer that the present values of these bytes may be seen by a crash. Does nothing elsewhere.
    #[track_caller]
    pub fn observe(&self, at: u64, len: u64) {
        if let Ok(offset) = self.locate(at, len) {
            self.mapping().observe(offset, len, Location::caller());
        }
    }

    pub(crate) fn resize(&mut self, len: u64) {
        self.len = len;
    }
}

impl std::fmt::Debug for Area {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Area({:?}, {:#x}..{:#x})", self.claim.name, self.offset, self.offset + self.len)
    }
}

/// Held by every Area of a claimed region; the last one gives the claim back.
pub(crate) struct Claim {
    pub(crate) name: String,
    pub(crate) pool: std::sync::Weak<Inner>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.unclaim(&self.name);
        }
    }
}

/// A named range of a pool, claimed: no other caller can have it until this and all its areas are gone.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
/// let mut region = pool.add_region("journal", 4096)?;
/// pool.grow_region(&mut region, 8192)?; // nothing in it moves
/// assert_eq!((region.len(), region.areas().len()), (12288, 1));
/// assert!(pool.region("journal").is_err()); // claimed
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Region {
    pub(crate) name: String,
    pub(crate) kind: u32,
    pub(crate) options: u64,
    pub(crate) areas: Vec<Area>,
    /// What the directory keeps for each extent.
    pub(crate) details: Vec<u64>,
}

impl Region {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What its owner said it holds, see [`RegionKind`](crate::RegionKind).
    pub fn kind(&self) -> u32 {
        self.kind
    }

    /// Eight bytes its owner keeps in the directory.
    pub fn options(&self) -> u64 {
        self.options
    }

    /// Bytes in all its extents.
    pub fn len(&self) -> u64 {
        self.areas.iter().map(Area::len).sum()
    }

    /// True if it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its extents in order; a region that never grew has one.
    pub fn areas(&self) -> &[Area] {
        &self.areas
    }

    /// Its extents in order, to be changed.
    pub fn areas_mut(&mut self) -> &mut [Area] {
        &mut self.areas
    }

    /// Takes the first `at` bytes of its first extent out of it: for a header that has an owner of its own while the rest can still grow.
    ///
    /// ```
    /// # fn main() -> pmem::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
    /// let mut region = pool.add_region("journal", 8192)?;
    /// let header = region.split_front(4096)?;
    /// assert_eq!((header.len(), region.len()), (4096, 4096));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if that extent is shorter.
    pub fn split_front(&mut self, at: u64) -> Result<Area> {
        let Some(first) = self.areas.first_mut() else {
            return Err(Error::OutOfBounds { at: 0, end: at, len: 0 });
        };
        first.locate(0, at)?;
        let front =
            Area { pool: Arc::clone(&first.pool), claim: Arc::clone(&first.claim), offset: first.offset, len: at };
        first.offset += at;
        first.len -= at;
        Ok(front)
    }

    /// Its extents, to be owned one by one.
    pub fn into_areas(self) -> Vec<Area> {
        self.areas
    }

    /// Its only extent.
    ///
    /// # Errors
    /// [`Error::Limit`] if growth has made it several.
    pub fn into_area(mut self) -> Result<Area> {
        match (self.areas.len(), self.areas.pop()) {
            (1, Some(area)) => Ok(area),
            (n, _) => Err(Error::Limit { what: "extents of the region", found: n as u64, min: 1, max: 1 }),
        }
    }
}
