//! A copy of a pool's file, made while the pool is written to.
//!
//! Everything is copied first, then again what was flushed meanwhile, as often as its maker likes; last, while the maker keeps everybody from flushing what matters,
//! the rest. Then the copy is what a crash at that moment could have left: each word in it was current when it was read, and has not been flushed since, so that the
//! medium may hold it. What recovers from a crash opens the copy.
//!
//! | a writer | the copier |
//! |---|---|
//! | stores; sets the granule's bit; flushes | takes the bit; reads the granule |
//!
//! Both change the bit by a read-modify-write: the copier either finds it, and with it the stores before it, or it is set behind it and found by the next pass. Bytes are
//! read through the file, which no writer races with; eight that are aligned are copied in one piece, as the processor does it.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    compiler_fence,
};

use rustix::thread::{MembarrierCommand, membarrier};

use crate::draft::Draft;
use crate::error::{Error, Result};
use crate::length::extend;
use crate::mapping::Mapping;
use crate::open::io_error;
use crate::pool::Pool;

/// Bytes that share a bit, at least.
const GRANULE: u64 = 64 << 10;
/// Bits there are at most: 2 MiB of them.
const BITS_MAX: u64 = 1 << 24;
/// Read and written in one piece.
const PIECE: usize = 1 << 20;

// ---- what was written -----------------------------------------------------------------------------------------------

/// Which parts of a mapping were flushed since a copier looked. Without one it costs every flush a load and a branch.
#[derive(Default)]
pub(crate) struct Written {
    on: AtomicBool,
    /// Made for the first copy, and kept: a writer may be late.
    bits: OnceLock<Box<[AtomicU64]>>,
    granule: OnceLock<u64>,
}

impl Written {
    /// Notes a range that is about to be flushed, or was stored past the cache.
    #[inline]
    pub(crate) fn note(&self, offset: u64, len: u64) {
        // The load stays behind the stores before it in the program; in the processor `begin` sees to that.
        compiler_fence(SeqCst);
        if self.on.load(Relaxed) {
            self.note_cold(offset, len);
        }
    }

    #[cold]
    fn note_cold(&self, offset: u64, len: u64) {
        let (Some(bits), Some(granule)) = (self.bits.get(), self.granule.get()) else { return };
        for at in offset / granule..=(offset + len.max(1) - 1) / granule {
            // Even if it is set: a plain load could pass the stores before it, and be of before the copier took the bit. What streams past the cache
            // is out before a locked instruction is.
            bits[(at / 64) as usize].fetch_or(1 << (at % 64), AcqRel);
        }
    }

    /// From now on everything flushed is noted, unless somebody else has asked for it and is not done.
    fn begin(&self, reserved: u64) -> Result<()> {
        if self.on.swap(true, Acquire) {
            return Err(Error::InUse { what: "the record of what is written, by another backup,".into() });
        }
        let granule = *self.granule.get_or_init(|| GRANULE.max((reserved / BITS_MAX).next_power_of_two()));
        let words = reserved.div_ceil(granule).div_ceil(64);
        let bits = self.bits.get_or_init(|| (0..words).map(|_| AtomicU64::new(0)).collect());
        bits.iter().for_each(|word| word.store(0, Relaxed));
        // A writer that has not seen it has its stores behind it: nothing of what is read from here on is older than they are.
        let everywhere = || {
            membarrier(MembarrierCommand::RegisterPrivateExpedited)
                .and_then(|()| membarrier(MembarrierCommand::PrivateExpedited))
                .or_else(|_| membarrier(MembarrierCommand::Global))
        };
        everywhere().map_err(|e| {
            self.on.store(false, Release);
            Error::Io { op: "membarrier", path: PathBuf::new(), source: e.into() }
        })
    }

    fn end(&self) {
        self.on.store(false, Release);
    }

    /// Takes the bits of granules that begin below `end`, as ranges up to `end`.
    fn take(&self, end: u64) -> Vec<(u64, u64)> {
        let (Some(bits), Some(&granule)) = (self.bits.get(), self.granule.get()) else { return Vec::new() };
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (index, word) in bits.iter().enumerate().take(end.div_ceil(granule).div_ceil(64) as usize) {
            let mut set = if word.load(Relaxed) == 0 { 0 } else { word.swap(0, AcqRel) };
            while set != 0 {
                let from = (index as u64 * 64 + u64::from(set.trailing_zeros())) * granule;
                set &= set - 1;
                let to = (from + granule).min(end);
                match ranges.last_mut() {
                    Some(last) if last.1 == from => last.1 = to.max(from),
                    _ if from < to => ranges.push((from, to)),
                    _ => {}
                }
            }
        }
        ranges
    }
}

// ---- the copy -------------------------------------------------------------------------------------------------------

/// A copy of a pool's file on its way to a name of its own ([`Pool::image`]). Dropped before it is published it leaves nothing.
pub struct Image<'p> {
    pool: &'p Pool,
    draft: Draft,
    /// Bytes that were copied at least once.
    len: u64,
    /// The mapping notes for it what is written.
    noting: Noting<'p>,
}

impl std::fmt::Debug for Image<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Image({}, {} bytes)", self.draft.path().display(), self.len)
    }
}

impl Pool {
    /// Begins a copy of the pool's file that will be at `path`, where nothing may be. From now on the pool notes in memory, a bit for 64 KiB, what is flushed.
    ///
    /// ```
    /// # fn main() -> pmem::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
    /// let mut area = pool.add_region("r", 4096)?.into_area()?;
    /// let mut image = pool.image(dir.path().join("copy"))?;
    /// assert_eq!(image.pass(|_, _| ())?, 1 << 20);
    /// area.put(0, &7u64)?;
    /// area.persist(0, 8)?;
    /// assert_eq!(image.cut()?, 64 << 10); // nobody writes now
    /// image.publish()?;
    ///
    /// let copy = pmem::Options::new().open(dir.path().join("copy"))?; // as after a crash
    /// assert_eq!(*copy.region("r")?.into_area()?.get::<u64>(0)?, 7);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`]: `AlreadyExists` if something is at `path`, `Unsupported` for a pool without a file: simulated, or a device. [`Error::InUse`] if another copy is
    /// being made. [`Error::Poisoned`]: what the file holds is not known.
    pub fn image(&self, path: impl AsRef<Path>) -> Result<Image<'_>> {
        let (path, mapping) = (path.as_ref(), &self.inner.mapping);
        mapping.fork.check()?;
        if !self.is_read_only() {
            mapping.check_usable()?;
        }
        if mapping.file.is_none() || mapping.is_fixed() {
            return Err(io_error("copy the file of", self.path())(io::ErrorKind::Unsupported.into()));
        }
        let draft = Draft::new(path)?;
        mapping.written.begin(mapping.reserved)?;
        Ok(Image { pool: self, draft, len: 0, noting: Noting(Some(mapping)) })
    }
}

impl Image<'_> {
    fn mapping(&self) -> &Mapping {
        &self.pool.inner.mapping
    }

    /// Copies what was not copied yet, or was flushed since; returns how many bytes that was. `progress` is told after each piece how many of how many of them are copied.
    ///
    /// # Errors
    /// [`Error::NoSpace`] at the copy's place; [`Error::Unreadable`]; [`Error::Io`].
    pub fn pass(&mut self, mut progress: impl FnMut(u64, u64)) -> Result<u64> {
        let len = self.mapping().len();
        // Should this pass fail, what was noted is gone: the next one copies everything.
        let before = std::mem::take(&mut self.len);
        let mut ranges = self.mapping().written.take(before.min(len));
        if len > before {
            // All blocks now: whoever opens the copy stores into a mapping of it.
            extend(self.draft.file(), before, len, false).map_err(|e| self.failed("allocate", e, len - before))?;
            ranges.push((before, len));
        }
        let all: u64 = ranges.iter().map(|(from, to)| to - from).sum();
        let (mut buffer, mut copied) = (vec![0; PIECE], 0);
        for (from, to) in ranges {
            for at in (from..to).step_by(PIECE) {
                let piece = &mut buffer[..(to - at).min(PIECE as u64) as usize];
                self.copy(at, piece)?;
                copied += piece.len() as u64;
                progress(copied, all);
            }
        }
        self.len = len.max(before);
        Ok(all)
    }

    /// The last [`pass`](Self::pass), and the end of the record. The caller keeps everybody from flushing what the copy must agree about, and this keeps the pool's header and
    /// length as they are. What else is flushed meanwhile is in the copy, or not.
    ///
    /// # Errors
    /// As [`pass`](Self::pass).
    pub fn cut(&mut self) -> Result<u64> {
        let pool = self.pool;
        let _header = pool.inner.state.lock();
        let copied = self.pass(|_, _| ())?;
        let len = self.mapping().len();
        self.draft.file().set_len(len).map_err(|e| self.failed("set the length of", e, 0))?;
        self.end_noting();
        Ok(copied)
    }

    /// Where the copy is until it is published: to be opened, and looked at.
    pub fn temporary(&self) -> &Path {
        self.draft.at()
    }

    /// Gives the copy its name, unless something has it, when all of it is durable.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::NoSpace`].
    pub fn publish(mut self) -> Result<()> {
        self.end_noting();
        self.draft.file().sync_all().map_err(|e| self.failed("sync", e, self.len))?;
        let Self { draft, .. } = self;
        draft.publish()
    }

    fn end_noting(&mut self) {
        self.noting = Noting(None);
    }

    fn copy(&self, at: u64, piece: &mut [u8]) -> Result<()> {
        let Some(source) = &self.mapping().file else { return Ok(()) };
        let len = piece.len() as u64;
        source.read_exact_at(piece, at).map_err(|source| Error::Unreadable {
            what: "part of the pool",
            offset: at,
            len,
            source,
        })?;
        self.draft.file().write_all_at(piece, at).map_err(|e| self.failed("write", e, len))
    }

    fn failed(&self, op: &'static str, source: io::Error, wanted: u64) -> Error {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Error::NoSpace { path: self.draft.path().to_owned(), wanted }
            }
            _ => io_error(op, self.draft.path())(source),
        }
    }
}

/// Ends the record of what is written.
struct Noting<'p>(Option<&'p Mapping>);

impl Drop for Noting<'_> {
    fn drop(&mut self) {
        if let Some(mapping) = self.0 {
            mapping.written.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    #[test]
    fn a_pass_behind_one_that_failed_copies_everything() {
        let dir = tempfile::tempdir().unwrap();
        let (path, copy) = (dir.path().join("pool"), dir.path().join("copy"));
        let pool = crate::Options::new().size(1 << 20).create(&path).unwrap();
        let mut area = pool.add_region("r", 512 << 10).unwrap().into_area().unwrap();
        let mut image = pool.image(&copy).unwrap();
        image.pass(|_, _| ()).unwrap();
        for grows in [false, true] {
            area.put(256 << 10, &(7 + u64::from(grows))).unwrap();
            area.persist(256 << 10, 8).unwrap();
            if grows {
                drop(pool.add_region("more", 1 << 20).unwrap());
            }
            let read_only = File::open(image.temporary()).unwrap();
            let writable = std::mem::replace(&mut image.draft.file, read_only);
            image.pass(|_, _| ()).unwrap_err();
            image.draft.file = writable;
            assert_eq!(image.pass(|_, _| ()).unwrap(), pool.size());
            assert!(fs::read(&path).unwrap() == fs::read(image.temporary()).unwrap());
        }
        image.cut().unwrap();
        image.publish().unwrap();
        assert!(fs::read(&path).unwrap() == fs::read(&copy).unwrap());
    }
}
