//! Creating pools: under their name only when they are whole.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cell::RawCell;
use crate::device::{self, claim, is_device};
use crate::domain::DomainChoice;
use crate::draft::Draft;
use crate::error::{Error, Result, SpaceFor};
use crate::file::{PAGE, io_error, is_memory_fs, lock};
use crate::header::{FIRST_REGION, Header, MAGIC, header_cell, name_bytes};
use crate::length::{extend, is_no_space};
use crate::mapping::Mapping;
use crate::open::Options;
use crate::persist::bytes_of;
use crate::pool::Pool;
use crate::sim::{Medium, here};

impl Options {
    /// Makes a pool at `path`, which must not exist, or be a device that holds nothing: then it gets all of that. A file appears under its name
    /// only when it is whole; mode 0600.
    ///
    /// # Errors
    /// [`Error::Io`] (`AlreadyExists` if there is one), [`Error::NoSpace`], [`Error::Limit`], [`Error::BadName`], [`Error::Domain`].
    pub fn create(&self, path: impl AsRef<Path>) -> Result<Pool> {
        let path = path.as_ref();
        let size = self.checked_size()?;
        if fs::metadata(path).is_ok_and(|m| is_device(m.file_type())) {
            return self.create_on_device(path);
        }
        let draft = Draft::new(path)?;
        let (mapping, header, cell) = self.write_file(&draft, self.new_header(size, random()?, random()?)?)?;
        // The name is persistent too before any caller relies on what is stored under it.
        draft.publish()?;
        Pool::start(mapping, header, cell, false)
    }

    /// As [`create`](Self::create), in a file that gets its name later. It is not synced.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_draft(&self, draft: &Draft) -> Result<Pool> {
        let header = self.new_header(self.checked_size()?, random()?, random()?)?;
        let (mapping, header, cell) = self.write_file(draft, header)?;
        Pool::start(mapping, header, cell, false)
    }

    /// As [`create`](Self::create), but the file appears under its name only when `fill` has made of it what it is to be: a process that is killed meanwhile leaves nothing there.
    ///
    /// ```
    /// # fn main() -> pmem::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("p");
    /// let region = pmem::Options::new().size(1 << 20).create_with(&path, |pool| pool.add_region("mine", 4096))?;
    /// # drop(region);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`create`](Self::create); those of `fill`.
    pub fn create_with<T, E: From<Error>>(
        &self,
        path: impl AsRef<Path>,
        fill: impl FnOnce(&Pool) -> Result<T, E>,
    ) -> Result<T, E> {
        let path = path.as_ref();
        if fs::metadata(path).is_ok_and(|m| is_device(m.file_type())) {
            return fill(&self.create_on_device(path)?);
        }
        let draft = Draft::new(path)?;
        let made = fill(&self.create_draft(&draft)?)?;
        draft.publish()?;
        Ok(made)
    }

    fn write_file(&self, draft: &Draft, header: Header) -> Result<(Mapping, Header, RawCell)> {
        let (path, file) = (draft.path(), draft.file().try_clone());
        let file = file.map_err(io_error("dup", path))?;
        lock(&file, path, false)?;
        let by_pages = match self.domain {
            DomainChoice::Emulated => false,
            DomainChoice::File => true,
            _ => !is_memory(&file, path)?,
        };
        extend(&file, 0, header.size, by_pages).map_err(|e| match is_no_space(&e) {
            true => Error::NoSpace { path: path.to_owned(), wanted: header.size, what: SpaceFor::NewPool },
            false => io_error("allocate", path)(e),
        })?;
        let mapping = Mapping::file(file, path, header.size, &self.map_options(false))?;
        let (header, cell) = write_first(&mapping, header)?;
        Ok((mapping, header, cell))
    }

    fn create_on_device(&self, path: &Path) -> Result<Pool> {
        let file = claim(path, false)?;
        let size = device::len(&file, path)?;
        let is_block = file.metadata().is_ok_and(|meta| meta.file_type().is_block_device());
        if is_block {
            device::clear(&file, path, size)?;
        }
        let mapping = Mapping::file(file, path, size, &self.map_options(false))?;
        let base = mapping.access(0, 8, false)?;
        // SAFETY: 8 mapped bytes; no other process has the device, says the lock.
        let first = unsafe { *base.cast::<[u8; 8]>().as_ref() };
        if first == MAGIC {
            return Err(io_error("create (the device holds a pool)", path)(io::ErrorKind::AlreadyExists.into()));
        }
        // A new file is zero; memory holds whatever it held, and free space is promised to be zero.
        let zeros = vec![0u8; 1 << 20];
        for at in (0..size).step_by(zeros.len()).take_while(|_| !is_block) {
            let len = (size - at).min(zeros.len() as u64) as usize;
            mapping.copy_nt(at, &zeros[..len], here())?;
        }
        let header = self.new_header(size, random()?, random()?)?;
        let (header, cell) = write_first(&mapping, header)?;
        Pool::start(mapping, header, cell, false)
    }

    /// Makes a pool in a simulated medium, growing it to [`size`](Self::size). Its id and key are always the same, so that
    /// one seed reproduces an exploration.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_on(&self, medium: Arc<dyn Medium>) -> Result<Pool> {
        let size = self.checked_size()?;
        let mapping = Mapping::simulated(medium);
        mapping.grow(size, here())?;
        let (header, cell) = write_first(&mapping, self.new_header(size, 0x5eed, 0x5eed)?)?;
        Pool::start(mapping, header, cell, false)
    }

    fn checked_size(&self) -> Result<u64> {
        let (min, max) = (FIRST_REGION, 1 << 47);
        if self.size < min || self.size > max {
            return Err(Error::Limit { what: "pool size in bytes", found: self.size, min, max });
        }
        Ok(self.size.next_multiple_of(PAGE))
    }

    fn new_header(&self, size: u64, id: u64, key: u64) -> Result<Header> {
        let mut header = Header::new(id, key, size);
        header.version = self.version;
        header.layout = name_bytes(self.layout.as_deref().unwrap_or(""))?;
        header.engine = name_bytes(self.engine.as_deref().unwrap_or(""))?;
        header.engine_options = self.engine_options;
        Ok(header)
    }
}

/// The first header, dirty, in both copies.
fn write_first(mapping: &Mapping, header: Header) -> Result<(Header, RawCell)> {
    let base = mapping.access(0, FIRST_REGION, true)?;
    // SAFETY: in bounds, and the mapping is still ours alone. A device may hold anything.
    unsafe { base.as_ptr().write_bytes(0, FIRST_REGION as usize) };
    mapping.flush(0, FIRST_REGION, here())?;
    let mut cell = header_cell();
    cell.update_mirrored(mapping, bytes_of(&header))?;
    Ok((header, cell))
}

fn is_memory(file: &File, path: &Path) -> Result<bool> {
    let kind = rustix::fs::fstatfs(file).map_err(|e| io_error("statfs", path)(e.into()))?.f_type as i64;
    Ok(is_memory_fs(kind))
}

fn random() -> Result<u64> {
    let mut bytes = [0; 8];
    #[expect(clippy::disallowed_methods, reason = "the seam for identities and keys of new pools")]
    let filled = rustix::io::retry_on_intr(|| {
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) // eight bytes or none
    });
    filled.map_err(|e| Error::Io { op: "getrandom", path: PathBuf::new(), source: e.into() })?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_name_when_it_is_filled() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        let count = || fs::read_dir(dir.path()).unwrap().filter(|e| e.as_ref().unwrap().path() == path).count();
        let options = Options::new().size(1 << 20);
        let refused = options.create_with(&path, |pool| {
            pool.add_region("a", 4096)?;
            assert_eq!(count(), 0);
            Err::<(), _>(Error::ReadOnly)
        });
        assert!(matches!(refused, Err(Error::ReadOnly)));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let pool = options.create_with(&path, |pool| pool.add_region("a", 4096).map(|_| pool.clone())).unwrap();
        assert_eq!(count(), 1);
        pool.close().unwrap();
        let pool = options.open(&path).unwrap();
        assert!(pool.region("a").is_ok());
        assert!(options.create_with(&path, |_| Ok::<_, Error>(())).is_err());
    }
}
