//! A copy of a pool's file, made while the pool is written to.
//!
//! Everything is copied first, then again what was flushed meanwhile, as often as its maker likes; last, while the maker keeps others from flushing what matters,
//! the rest. Then the copy is what a crash at that moment could have left: each word in it was current when it was read, and has not been flushed since, so that the
//! medium may hold it. What recovers from a crash opens the copy.
//!
//! What tells of that is in [`written`](crate::written). Bytes are read through the file, which no writer races with; eight that are aligned are copied in one piece, as
//! the processor does it.
//!
//! Writers may change the pool faster than it is copied. [`Image::hold_back`] makes them wait for the copier, a little at a time, until no more than so much is left;
//! [`Image::allow`] says how much more it may become before the cut.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use crate::draft::Draft;
use crate::error::{Error, Result, SpaceFor};
use crate::file::io_error;
use crate::length::{extend, is_no_space};
use crate::mapping::Mapping;
use crate::pool::Pool;
use crate::written::{GRANULE, HEADER_GRANULES};

/// Read and written in one piece.
const PIECE: usize = 1 << 20;

/// Copied at a time while writers are held back.
const STEP: usize = 64 << 10;

/// Where each begins and ends.
type Ranges = Vec<(u64, u64)>;

/// What the length of the copy has to go through, as that of the pool did.
struct Fit {
    before: u64,
    /// The shortest that it was meanwhile: what is behind that came as zeros.
    kept: u64,
    len: u64,
}

/// A copy of a pool's file on its way to a name of its own ([`Pool::image`]). Dropped before it is published it leaves nothing.
pub struct Image<'p> {
    pool: &'p Pool,
    draft: Draft,
    /// Bytes that were copied at least once, or are zeros as they were when the pool grew.
    len: u64,
    /// Of the cut, and not in the copy yet: its length first.
    unfitted: Option<Fit>,
    unwritten: Vec<(u64, Vec<u8>)>,
    /// The mapping notes for it what is written.
    noting: Noting<'p>,
}

impl std::fmt::Debug for Image<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Image({}, {} bytes)", self.draft.path().display(), self.len)
    }
}

impl Pool {
    /// Begins a copy of the pool's file that will be at `path`, where nothing may be. From now on the pool notes in memory, a bit for 4 KiB, what is flushed.
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
    /// assert_eq!(image.cut()?, 4096); // nobody writes now
    /// image.publish()?;
    ///
    /// let copy = pmem::Options::new().open(dir.path().join("copy"))?; // as after a crash
    /// assert_eq!(*copy.region("r")?.into_area()?.get::<u64>(0)?, 7);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`]: `AlreadyExists` if something is at `path`, `Unsupported` for a pool without a file: simulated, or a device. [`Error::BackupRunning`] if another copy is
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
        mapping.written.begin(mapping.reserved, self.path())?;
        Ok(Image { pool: self, draft, len: 0, unfitted: None, unwritten: Vec::new(), noting: Noting(Some(mapping)) })
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
        self.unwritten.clear();
        self.unfitted = None;
        // Should this pass fail, what was noted is gone: the next one copies everything.
        let before = std::mem::take(&mut self.len);
        let (ranges, len) = self.take(before)?;
        let all: u64 = ranges.iter().map(|(from, to)| to - from).sum();
        let mut copied = 0;
        self.copy_all(&ranges, PIECE, |_, n| {
            copied += n;
            progress(copied, all);
        })?;
        self.len = len;
        Ok(all)
    }

    /// Copies what is flushed until no more than `bytes` are left, and sees to it that no more ever are ([`allow`](Self::allow)): flushes beyond that wait for the
    /// copier, at first for a part of what it has to copy, then for all of it. Returns how many bytes were copied. The caller holds nothing for which a thread that
    /// flushes could wait.
    ///
    /// # Errors
    /// As [`pass`](Self::pass).
    pub fn hold_back(&mut self, bytes: u64) -> Result<u64> {
        let mut all = if self.len == 0 { self.pass(|_, _| ())? } else { 0 };
        let least = granules(bytes);
        let mut limit = self.mapping().written.noted().max(least);
        self.mapping().written.set_limit(limit);
        while self.mapping().written.noted() > least {
            let before = std::mem::take(&mut self.len);
            let (ranges, len, mut taken) = self.take_counted(before)?;
            self.copy_all(&ranges, STEP, |image, n| {
                all += n;
                // Of two granules that are copied, one may be written anew.
                let copied = n.div_ceil(GRANULE);
                limit = limit.saturating_sub(copied.div_ceil(2)).max(least);
                image.mapping().written.set_limit(limit);
                image.mapping().written.give_back(copied.min(taken));
                taken -= copied.min(taken);
            })?;
            self.mapping().written.give_back(taken); // of what was cut off meanwhile
            self.len = len;
        }
        self.mapping().written.set_limit(least);
        Ok(all)
    }

    /// Behind [`hold_back`](Self::hold_back): no more than `bytes`, and the pool's header, are left to be copied at any moment. Flushes beyond that wait.
    pub fn allow(&self, bytes: u64) {
        self.mapping().written.set_limit(granules(bytes));
    }

    /// Waits until a thread is held back, or for this time; true if one is. Until the next [`hold_back`](Self::hold_back) that thread goes on holding what it holds.
    pub fn holds_up(&self, timeout: Duration) -> bool {
        self.mapping().written.holds_up(timeout)
    }

    /// The last [`pass`](Self::pass), and the end of the record. The caller keeps others from flushing what the copy must agree about, and this keeps the pool's header and
    /// length as they are. What else is flushed meanwhile is in the copy, or not.
    ///
    /// # Errors
    /// As [`pass`](Self::pass).
    pub fn cut(&mut self) -> Result<u64> {
        let copied = self.cut_into_memory()?;
        self.write_out()?;
        Ok(copied)
    }

    /// As [`cut`](Self::cut), but what is left is read into memory alone: no thread waits for the copy's medium.
    /// [`write_out`](Self::write_out) puts it into the copy.
    ///
    /// # Errors
    /// As [`pass`](Self::pass).
    pub fn cut_into_memory(&mut self) -> Result<u64> {
        if self.len == 0 {
            self.pass(|_, _| ())?;
        }
        let pool = self.pool;
        let _header = pool.inner.state.lock();
        let before = std::mem::take(&mut self.len);
        let (ranges, fit, taken) = self.taken(before);
        self.mapping().written.give_back(taken);
        let mut copied = 0;
        for (from, to) in ranges {
            let mut bytes = vec![0; (to - from) as usize];
            self.read(from, &mut bytes)?;
            self.unwritten.push((from, bytes));
            copied += to - from;
        }
        self.len = fit.len;
        self.unfitted = Some(fit);
        self.end_noting();
        Ok(copied)
    }

    /// Puts into the copy what the cut has read.
    ///
    /// # Errors
    /// [`Error::NoSpace`] at the copy's place; [`Error::Io`].
    pub fn write_out(&mut self) -> Result<()> {
        if let Some(fit) = self.unfitted.take() {
            self.fit(&fit)?;
            self.draft.file().set_len(fit.len).map_err(|e| self.failed("set the length of", e, 0))?;
        }
        for (at, bytes) in std::mem::take(&mut self.unwritten) {
            self.write(at, &bytes)?;
        }
        Ok(())
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
        self.write_out()?;
        self.draft.file().sync_all().map_err(|e| self.failed("sync", e, self.len))?;
        let Self { draft, .. } = self;
        draft.publish()
    }

    fn end_noting(&mut self) {
        self.noting = Noting(None);
    }

    /// What is to be copied, and the length of the pool, which the copy gets too. `before` bytes of it were copied before.
    fn take(&self, before: u64) -> Result<(Ranges, u64)> {
        let (ranges, len, taken) = self.take_counted(before)?;
        self.mapping().written.give_back(taken);
        Ok((ranges, len))
    }

    /// As [`take`](Self::take); so many granules count until they are given back.
    fn take_counted(&self, before: u64) -> Result<(Ranges, u64, u64)> {
        let (ranges, fit, taken) = self.taken(before);
        self.fit(&fit)?;
        Ok((ranges, fit.len, taken))
    }

    /// The copy gets the pool's length, and zeros where that has got them.
    fn fit(&self, &Fit { before, kept, len }: &Fit) -> Result<()> {
        if kept < before {
            self.draft.file().set_len(kept).map_err(|e| self.failed("set the length of", e, 0))?;
        }
        if len > kept {
            // All blocks now: a process that opens the copy stores into a mapping of it. Zeros, as the pool was when it grew.
            extend(self.draft.file(), kept, len, false).map_err(|e| self.failed("allocate", e, len - kept))?;
        }
        Ok(())
    }

    /// What is to be copied, and does not touch the copy yet.
    fn taken(&self, before: u64) -> (Ranges, Fit, u64) {
        let written = &self.mapping().written;
        // In this order: a bit behind the length that follows is of bytes that were cut off; and bytes that were cut off and came back as zeros
        // before the bits were taken are zeros in the copy before it is written to.
        let (mut ranges, taken) = written.take();
        let len = self.mapping().len();
        let kept = written.take_shortest().min(before);
        ranges.retain_mut(|range| {
            range.1 = range.1.min(len);
            range.0 < range.1
        });
        if before == 0 {
            ranges = vec![(0, len)];
        }
        (ranges, Fit { before, kept, len }, taken)
    }

    /// Copies ranges in pieces of up to `most` bytes, and tells of each.
    fn copy_all(&self, ranges: &[(u64, u64)], most: usize, mut told: impl FnMut(&Self, u64)) -> Result<()> {
        let mut buffer = vec![0; most];
        for &(from, to) in ranges {
            for at in (from..to).step_by(most) {
                let piece = &mut buffer[..(to - at).min(most as u64) as usize];
                self.read(at, piece)?;
                self.write(at, piece)?;
                told(self, piece.len() as u64);
            }
        }
        Ok(())
    }

    fn read(&self, at: u64, piece: &mut [u8]) -> Result<()> {
        let Some(source) = &self.mapping().file else { return Ok(()) };
        let len = piece.len() as u64;
        source.read_exact_at(piece, at).map_err(|source| Error::Unreadable {
            what: "part of the pool",
            offset: at,
            len,
            source,
        })
    }

    fn write(&self, at: u64, piece: &[u8]) -> Result<()> {
        let len = piece.len() as u64;
        self.draft.file().write_all_at(piece, at).map_err(|e| self.failed("write", e, len))
    }

    fn failed(&self, op: &'static str, source: io::Error, wanted: u64) -> Error {
        match is_no_space(&source) {
            true => Error::NoSpace { path: self.draft.path().to_owned(), wanted, what: SpaceFor::CopyOfPool },
            false => io_error(op, self.draft.path())(source),
        }
    }
}

/// Granules that are no more than so many bytes together with those of the header, which do not wait.
fn granules(bytes: u64) -> u64 {
    (bytes / GRANULE).saturating_sub(HEADER_GRANULES).max(1)
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
