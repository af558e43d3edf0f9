//! Looking on: another process reads a pool while it is written.
//!
//! Everything is read through the file, which agrees with shared mappings, into buffers of the caller: no byte changes under a reference, and what the
//! medium does not return is an error and not a signal. Nothing is locked or mapped, and the writer does not notice. What is read can be torn:
//! only what a checksum covers proves itself whole.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use crate::Persist;
use crate::cell::RawCell;
use crate::checksum::{ChecksumKey, Checksums};
use crate::device::file_len;
use crate::error::{Error, Result};
use crate::file::{io_error, open_at_once};
use crate::header::{Entry, Header, RegionInfo, header_cell, text};
use crate::open::explain_foreign;
use crate::two_slot::TwoSlot;

/// A cell whose bytes change from one look to the next is being written; no writer changes one so often in a row.
const LOOKS: usize = 1000;

/// A pool, looked at while another process may write it.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("p");
/// use pmem::{Observer, Options, TwoSlot};
/// let pool = Options::new().size(1 << 20).create(&path)?;
/// let mut visits = TwoSlot::create(pool.add_region("visits", 4096)?.into_area()?, &41u64)?;
///
/// let observer = Observer::open(&path)?; // most often in another process
/// let at = observer.region("visits")?[0].offset;
/// assert_eq!(observer.cell::<u64>(at)?, Some(41));
/// visits.update(&42)?;
/// assert_eq!(observer.cell::<u64>(at)?, Some(42));
/// # Ok(()) }
/// ```
pub struct Observer {
    file: File,
    path: PathBuf,
    header: Header,
    checksums: Checksums,
}

impl Observer {
    /// Opens the file for reading only, whichever process has it open.
    ///
    /// # Errors
    /// [`Error::NotAPool`], [`Error::NewerVersion`], [`Error::Truncated`], [`Error::Damaged`] for what no pool looks like;
    /// [`Error::Domain`] for a device, which can only be mapped.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = open_at_once(path, false)?;
        let meta = file.metadata().map_err(io_error("stat", path))?;
        if meta.file_type().is_char_device() {
            let why = "a device can only be mapped".to_owned();
            return Err(Error::Domain { path: path.to_owned(), wanted: "looking on", why });
        }
        explain_foreign(file_len(&file, path)?, path, |start, at| file.read_exact_at(start, at))?;
        let header = read_header(&file, path)?;
        Ok(Self { file, path: path.to_owned(), checksums: header.checksums(), header })
    }

    /// Reads the header again: regions may have been added, or have grown.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn refresh(&mut self) -> Result<()> {
        self.header = read_header(&self.file, &self.path)?;
        Ok(())
    }

    // ---- what the header said ---------------------------------------------------------------------------------

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the pool.
    pub fn size(&self) -> u64 {
        self.header.size
    }

    /// Whether it was closed, and was not opened for writing since.
    pub fn is_closed(&self) -> bool {
        self.header.is_clean()
    }

    /// The engine it belongs to, empty for none.
    pub fn engine(&self) -> &str {
        text(&self.header.engine).unwrap_or_default()
    }

    /// Its regions, by extent.
    pub fn regions(&self) -> Vec<RegionInfo> {
        self.header.entries().map(Entry::info).collect()
    }

    /// The extents of a region, in order; at least one.
    ///
    /// # Errors
    /// [`Error::NoRegion`].
    pub fn region(&self, name: &str) -> Result<Vec<RegionInfo>> {
        let extents: Vec<RegionInfo> = self.regions().into_iter().filter(|r| r.name == name).collect();
        if extents.is_empty() { Err(Error::NoRegion { name: name.to_owned() }) } else { Ok(extents) }
    }

    /// As [`Pool::checksum_key`](crate::Pool::checksum_key).
    pub fn checksum_key(&self, place: u64) -> ChecksumKey {
        self.checksums.key(place)
    }

    // ---- bytes ------------------------------------------------------------------------------------------------

    /// Copies the bytes at `offset` from the start of the pool, as they are at this moment, each word by itself.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] beyond the size that the header said, [`Error::Unreadable`].
    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let len = bytes.len() as u64;
        let end = offset.checked_add(len).filter(|&end| end <= self.header.size);
        let end =
            end.ok_or(Error::OutOfBounds { at: offset, end: offset.saturating_add(len), len: self.header.size })?;
        read(&self.file, "pool", offset, &mut bytes[..(end - offset) as usize])
    }

    /// The newest whole value of the [`TwoSlot`] at `offset` from the start of the pool; `None` if there is none of this type.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub fn cell<T: Persist>(&self, offset: u64) -> Result<Option<T>> {
        self.cell_of(offset, None)
    }

    /// As [`cell`](Self::cell), of one with slots [`stride` bytes apart](TwoSlot::create_apart).
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub fn cell_apart<T: Persist>(&self, offset: u64, stride: u64) -> Result<Option<T>> {
        self.cell_of(offset, Some(stride))
    }

    fn cell_of<T: Persist>(&self, offset: u64, stride: Option<u64>) -> Result<Option<T>> {
        let cell = TwoSlot::<T>::untyped(offset, stride, self.checksum_key(offset));
        let found = stable(&cell, |bytes| self.read_at(offset, bytes))?;
        Ok(found.and_then(|bytes| TwoSlot::typed(&bytes)))
    }
}

fn read(file: &File, what: &'static str, offset: u64, bytes: &mut [u8]) -> Result<()> {
    let len = bytes.len() as u64;
    file.read_exact_at(bytes, offset).map_err(|source| Error::Unreadable { what, offset, len, source })
}

/// The newest whole value of a cell. While one slot is written the other one is whole; but two slots are not read at one moment, so another look
/// is taken as long as the bytes change.
fn stable(cell: &RawCell, mut look: impl FnMut(&mut [u8]) -> Result<()>) -> Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; cell.len() as usize];
    let mut before = Vec::new();
    for _ in 0..LOOKS {
        look(&mut bytes)?;
        let newest = cell.newest(&bytes);
        if newest.is_some() || bytes == before {
            return Ok(newest);
        }
        before.clone_from(&bytes);
        std::thread::yield_now();
    }
    Ok(None)
}

fn read_header(file: &File, path: &Path) -> Result<Header> {
    let cell = header_cell();
    let mut last = None;
    for _ in 0..LOOKS {
        let found = stable(&cell, |bytes| read(file, "pool header", 0, bytes))?;
        let header = found.and_then(|bytes| Header::decode(&bytes));
        let damaged = Error::Damaged { what: "pool header", offset: 0, found: 0, expected: 1 };
        let header = header.ok_or(damaged)?;
        let len = file_len(file, path)?;
        match header.validate(len, path) {
            Ok(()) => return Ok(header),
            // Being cut: the header first, then the file; a process that reads the old header may see the new length.
            Err(error @ Error::Truncated { .. }) if last.replace(header.size) != Some(header.size) => drop(error),
            Err(error) => return Err(error),
        }
    }
    Err(Error::Io {
        op: "reading a header that keeps changing",
        path: path.to_owned(),
        source: io::ErrorKind::Other.into(),
    })
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Observer({}, {} bytes)", self.path.display(), self.size())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use super::*;
    use crate::Options;

    #[derive(Clone, Copy, Persist)]
    #[repr(C)]
    struct Pair {
        a: u64,
        b: [u64; 200],
    }

    fn pair(n: u64) -> Pair {
        Pair { a: n, b: [n; 200] }
    }

    #[test]
    fn a_pool_is_looked_at_while_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        let pool = Options::new().size(1 << 20).create(&path).unwrap();
        let mut cell = TwoSlot::create(pool.add_region("pair", 8192).unwrap().into_area().unwrap(), &pair(1)).unwrap();
        let mut observer = Observer::open(&path).unwrap();
        assert!(!observer.is_closed());
        let at = observer.region("pair").unwrap()[0].offset;
        assert_eq!(observer.cell::<u64>(at).unwrap(), None, "another type");
        assert_eq!(observer.cell::<Pair>(at + 64).unwrap().map(|p| p.a), None, "elsewhere");
        let stop = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let mut n = 1;
                while !stop.load(Relaxed) {
                    n += 1;
                    cell.update_mirrored(&pair(n)).unwrap();
                }
            });
            let mut last = 0;
            for _ in 0..3000 {
                let found = observer.cell::<Pair>(at).unwrap().expect("one slot is whole at any time");
                assert!(found.a >= last && found.b.iter().all(|&b| b == found.a), "{} behind {last}", found.a);
                last = found.a;
            }
            stop.store(true, Relaxed);
        });
        drop(cell);
        let other = pool.add_region("other", 4096).unwrap();
        assert!(matches!(observer.region("other"), Err(Error::NoRegion { .. })));
        observer.refresh().unwrap();
        assert_eq!(observer.region("other").unwrap()[0].len, other.len());
        drop(other);
        pool.close().unwrap();
        observer.refresh().unwrap();
        assert!(observer.is_closed());
    }

    #[test]
    fn growth_is_seen_and_reads_stay_inside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        let pool = Options::new().size(64 << 10).create(&path).unwrap();
        let mut region = pool.add_region("r", 4096).unwrap();
        let mut observer = Observer::open(&path).unwrap();
        let size = observer.size();
        pool.grow_region(&mut region, 1 << 20).unwrap();
        let mut bytes = [1; 16];
        assert!(matches!(observer.read_at(size, &mut bytes), Err(Error::OutOfBounds { .. })));
        assert!(matches!(observer.read_at(u64::MAX, &mut bytes), Err(Error::OutOfBounds { .. })));
        observer.refresh().unwrap();
        observer.read_at(size, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 16]);
        assert_eq!(observer.region("r").unwrap().iter().map(|e| e.len).sum::<u64>(), (1 << 20) + 4096);
    }

    #[test]
    fn what_is_no_pool_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        std::fs::write(&path, vec![7; 9000]).unwrap();
        assert!(matches!(Observer::open(&path), Err(Error::NotAPool { .. })));
        assert!(matches!(Observer::open(dir.path().join("none")), Err(Error::Io { op: "open", .. })));
        std::fs::remove_file(&path).unwrap();
        let pool = Options::new().size(64 << 10).create(&path).unwrap();
        pool.close().unwrap();
        let whole = std::fs::read(&path).unwrap();
        let mut damaged = whole.clone();
        damaged[100] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        assert!(Observer::open(&path).unwrap().is_closed(), "the other copy");
        damaged[4096 + 100] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        assert!(matches!(Observer::open(&path), Err(Error::Damaged { what: "pool header", .. })));
        std::fs::write(&path, &whole[..32 << 10]).unwrap();
        assert!(matches!(Observer::open(&path), Err(Error::Truncated { .. })));
    }
}
