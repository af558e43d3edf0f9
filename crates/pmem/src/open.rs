//! Creating and opening pools.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, RenameFlags, flock};

use crate::domain::{DomainChoice, Latency};
use crate::error::{Error, Result};
use crate::header::{
    FIRST_REGION, FLAG_CLEAN, FORMAT_VERSION, HEADER_BYTES, Header, MAGIC, header_cell, name_bytes, text,
};
use crate::mapping::{MapOptions, Mapping, PAGE, extend, forget_cached};
use crate::persist::bytes_of;
use crate::pool::Pool;
use crate::sim::{Medium, here};
use crate::two_slot::{RawCell, Twin};

/// How to create or open a pool.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("shop.cairn");
/// let pool = pmem::Options::new().size(16 << 20).layout("shop-1").create(&path)?;
/// pool.close()?;
/// let pool = pmem::Options::new().layout("shop-1").open(&path)?;
/// assert_eq!(pool.generation(), 2);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    size: u64,
    max_size: u64,
    layout: Option<String>,
    engine: Option<String>,
    engine_options: [u8; 64],
    domain: DomainChoice,
    latency: Option<Latency>,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// 64 MiB, grows up to 1 TiB, no names, domain found out.
    pub fn new() -> Self {
        Self {
            size: 64 << 20,
            max_size: 1 << 40,
            layout: None,
            engine: None,
            engine_options: [0; 64],
            domain: DomainChoice::Auto,
            latency: None,
        }
    }

    /// Bytes of a new pool, rounded up to pages. It grows by itself when regions need more.
    pub fn size(mut self, bytes: u64) -> Self {
        self.size = bytes;
        self
    }

    /// Address space to reserve: the pool cannot outgrow it while open. Costs nothing but addresses.
    pub fn max_size(mut self, bytes: u64) -> Self {
        self.max_size = bytes;
        self
    }

    /// Name of what the pool holds, up to 64 bytes; an open with another name is refused.
    pub fn layout(mut self, name: &str) -> Self {
        self.layout = Some(name.to_owned());
        self
    }

    /// Name and options of the engine that owns the pool, 16 and 64 bytes; an open with another name is refused.
    pub fn engine(mut self, name: &str, options: [u8; 64]) -> Self {
        self.engine = Some(name.to_owned());
        self.engine_options = options;
        self
    }

    /// Which persistence domain to use.
    pub fn domain(mut self, choice: DomainChoice) -> Self {
        self.domain = choice;
        self
    }

    /// Imitate slower media; on the emulated domain only.
    pub fn latency(mut self, latency: Latency) -> Self {
        self.latency = Some(latency);
        self
    }

    fn map_options(&self, read_only: bool) -> MapOptions {
        MapOptions { choice: self.domain, latency: self.latency, max_size: self.max_size, read_only }
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
        header.layout = name_bytes(self.layout.as_deref().unwrap_or(""))?;
        header.engine = name_bytes(self.engine.as_deref().unwrap_or(""))?;
        header.engine_options = self.engine_options;
        Ok(header)
    }

    // ---- create -----------------------------------------------------------------------------------------------

    /// Makes a pool at `path`, which must not exist (or be a devdax device without a pool). The file appears under its name
    /// only when it is whole; mode 0600.
    ///
    /// # Errors
    /// [`Error::Io`] (`AlreadyExists` if there is one), [`Error::NoSpace`], [`Error::Limit`], [`Error::BadName`], [`Error::Domain`].
    pub fn create(&self, path: impl AsRef<Path>) -> Result<Pool> {
        let path = path.as_ref();
        let size = self.checked_size()?;
        if fs::metadata(path).is_ok_and(|m| m.file_type().is_char_device()) {
            return self.create_on_device(path);
        }
        if path.symlink_metadata().is_ok() {
            return Err(io_error("create", path)(io::ErrorKind::AlreadyExists.into()));
        }
        let header = self.new_header(size, random()?, random()?)?;
        let temporary = temporary_name(path, header.id);
        let made = self.create_file(path, &temporary, header);
        if made.is_err() {
            let _ = fs::remove_file(&temporary); // the error that matters is the one returned
        }
        made
    }

    fn create_file(&self, path: &Path, temporary: &Path, header: Header) -> Result<Pool> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(temporary)
            .map_err(io_error("create", path))?;
        lock(&file, path, false)?;
        let by_pages = match self.domain {
            DomainChoice::Emulated => false,
            DomainChoice::File => true,
            _ => !is_memory(&file, path)?,
        };
        extend(&file, 0, header.size, by_pages).map_err(|e| match e.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Error::NoSpace { path: path.to_owned(), wanted: header.size }
            }
            _ => io_error("allocate", path)(e),
        })?;
        let mapping = Mapping::file(
            file.try_clone().map_err(io_error("dup", path))?,
            path,
            header.size,
            &self.map_options(false),
        )?;
        let (header, cell) = write_first(&mapping, header)?;
        file.sync_all().map_err(|source| Error::Sync { source })?;
        rustix::fs::renameat_with(rustix::fs::CWD, temporary, rustix::fs::CWD, path, RenameFlags::NOREPLACE)
            .map_err(|e| io_error("rename to its name", path)(e.into()))?;
        // The name is persistent too before anybody relies on what is stored under it.
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent).and_then(|d| d.sync_all()).map_err(io_error("sync the directory of", path))?;
        Pool::start(mapping, header, cell, false)
    }

    fn create_on_device(&self, path: &Path) -> Result<Pool> {
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(io_error("open", path))?;
        lock(&file, path, false)?;
        let size = device_len(&file, path)?;
        let mapping = Mapping::file(file, path, size, &self.map_options(false))?;
        let base = mapping.access(0, 8, false)?;
        // SAFETY: 8 mapped bytes; nobody else has the device, says the lock.
        let first = unsafe { *base.cast::<[u8; 8]>().as_ref() };
        if first == MAGIC {
            return Err(io_error("create (the device holds a pool)", path)(io::ErrorKind::AlreadyExists.into()));
        }
        // A new file is zero; a device holds whatever it held, and free space is promised to be zero.
        let zeros = vec![0u8; 1 << 20];
        for at in (0..size).step_by(zeros.len()) {
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

    // ---- open -------------------------------------------------------------------------------------------------

    /// Opens the pool at `path` for reading and writing.
    ///
    /// # Errors
    /// [`Error::Busy`] and [`Error::AlreadyOpen`] if somebody has it; [`Error::NotAPool`], [`Error::NewerVersion`], [`Error::Truncated`],
    /// [`Error::Damaged`], [`Error::WrongLayout`] for what it is; [`Error::Io`] with the kernel's reason.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Pool> {
        self.open_file(path.as_ref(), false)
    }

    /// Opens a cleanly closed pool for reading; several processes may at once.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`Error::NeedsRecovery`] if it was not closed.
    pub fn open_read_only(&self, path: impl AsRef<Path>) -> Result<Pool> {
        self.open_file(path.as_ref(), true)
    }

    /// Opens the pool, or makes it if there is no file of that name.
    ///
    /// # Errors
    /// As [`open`](Self::open) and [`create`](Self::create).
    pub fn open_or_create(&self, path: impl AsRef<Path>) -> Result<Pool> {
        match self.open(path.as_ref()) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => self.create(path),
            other => other,
        }
    }

    fn open_file(&self, path: &Path, read_only: bool) -> Result<Pool> {
        let file = OpenOptions::new().read(true).write(!read_only).open(path).map_err(io_error("open", path))?;
        lock(&file, path, read_only)?;
        let meta = file.metadata().map_err(io_error("stat", path))?;
        let device = meta.file_type().is_char_device();
        let mut len = if device { device_len(&file, path)? } else { meta.len() };
        if !device && !read_only && !peek_is_clean(&file) {
            forget_cached(&file).map_err(|source| Error::Sync { source })?;
        }
        if !device {
            explain_foreign(&file, len, path).inspect_err(|_| unlock(&file))?;
            // Mapped lengths are whole pages; a file cut inside a page is found truncated below.
            len -= len % PAGE;
        }
        let mapping = Mapping::file(file, path, len, &self.map_options(read_only))?;
        let (header, cell, repaired) = self.read_header(&mapping, len)?;
        let pool = Pool::start(mapping, header, cell, repaired)?;
        if !device && !read_only {
            pool.trim(meta.len())?;
        }
        Ok(pool)
    }

    /// Opens the pool in a simulated medium.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_on(&self, medium: Arc<dyn Medium>) -> Result<Pool> {
        let len = medium.len();
        let mapping = Mapping::simulated(medium);
        if len < FIRST_REGION {
            return Err(Error::Truncated { path: mapping.path().to_owned(), found: len, expected: FIRST_REGION });
        }
        let (header, cell, repaired) = self.read_header(&mapping, len)?;
        let pool = Pool::start(mapping, header, cell, repaired)?;
        pool.trim(len)?;
        Ok(pool)
    }

    fn read_header(&self, mapping: &Mapping, file_len: u64) -> Result<(Header, RawCell, bool)> {
        let path = mapping.path();
        let mut cell = header_cell();
        let (bytes, twin) = cell.load(mapping, "pool header")?;
        let header = Header::decode(&bytes).ok_or(Error::Damaged {
            what: "pool header",
            offset: 0,
            found: bytes.len() as u64,
            expected: size_of::<Header>() as u64,
        })?;
        header.validate(file_len, path)?;
        check_name("layout", &header.layout, self.layout.as_deref())?;
        check_name("engine", &header.engine, self.engine.as_deref())?;
        if mapping.is_read_only() && !header.is_clean() {
            return Err(Error::NeedsRecovery { path: path.to_owned() });
        }
        let repaired = matches!(twin, Twin::Broken | Twin::Unwritten);
        if repaired {
            tracing::warn!(path = %path.display(), "one copy of the pool header was not whole; the other one is used");
        }
        Ok((header, cell, repaired))
    }
}

/// The first header, dirty, in both copies.
fn write_first(mapping: &Mapping, header: Header) -> Result<(Header, RawCell)> {
    let base = mapping.access(0, HEADER_BYTES, true)?;
    // SAFETY: in bounds, and the mapping is still ours alone. A device may hold anything.
    unsafe { base.as_ptr().write_bytes(0, HEADER_BYTES as usize) };
    mapping.flush(0, HEADER_BYTES, here())?;
    let mut cell = header_cell();
    cell.update_mirrored(mapping, bytes_of(&header))?;
    Ok((header, cell))
}

fn check_name(what: &'static str, stored: &[u8], expected: Option<&str>) -> Result<()> {
    let found = text(stored).unwrap_or_default();
    match expected {
        Some(expected) if expected != found => {
            Err(Error::WrongLayout { what, found: found.to_owned(), expected: expected.to_owned() })
        }
        _ => Ok(()),
    }
}

/// Tells what a file that holds no valid header is, before it is mapped: the most frequent mistakes deserve the clearest errors.
fn explain_foreign(file: &File, len: u64, path: &Path) -> Result<()> {
    let mut first = vec![0u8; len.min(HEADER_BYTES) as usize];
    file.read_exact_at(&mut first, 0).map_err(|source| Error::Unreadable {
        what: "pool header",
        offset: 0,
        len: first.len() as u64,
        source,
    })?;
    let slot = (HEADER_BYTES / 2) as usize;
    let magic_at = |at: usize| first.get(at..at + 8) == Some(&MAGIC);
    if !magic_at(0) && !magic_at(slot) {
        let mut found = [0; 8];
        let n = first.len().min(8);
        found[..n].copy_from_slice(&first[..n]);
        return Err(Error::NotAPool { path: path.to_owned(), found, expected: MAGIC });
    }
    if len < FIRST_REGION {
        return Err(Error::Truncated { path: path.to_owned(), found: len, expected: FIRST_REGION });
    }
    // Another version seals as it likes: believe it if both copies say the same newer one.
    let version_at =
        |at: usize| first.get(at + 8..at + 12).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
    let (a, b) = (version_at(0), version_at(slot));
    if a > FORMAT_VERSION && a == b {
        return Err(Error::NewerVersion { path: path.to_owned(), found: a, supported: FORMAT_VERSION });
    }
    Ok(())
}

/// True if both header copies say, unchecked, that the pool was closed: then the page cache holds nothing the disk does not.
fn peek_is_clean(file: &File) -> bool {
    let mut flags = [0u8; 4];
    [0, HEADER_BYTES / 2]
        .iter()
        .all(|slot| file.read_exact_at(&mut flags, slot + 12).is_ok() && u32::from_le_bytes(flags) & FLAG_CLEAN != 0)
}

/// One process at a time writes; several may read a closed pool. The lock is of the open file: it goes with the process.
fn lock(file: &File, path: &Path, read_only: bool) -> Result<()> {
    let how = if read_only { FlockOperation::NonBlockingLockShared } else { FlockOperation::NonBlockingLockExclusive };
    match flock(file, how) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let pid = holder(file).unwrap_or(0);
            if pid == std::process::id() {
                return Err(Error::AlreadyOpen { path: path.to_owned() });
            }
            Err(Error::Busy { path: path.to_owned(), pid })
        }
        Err(e) => Err(io_error("lock", path)(e.into())),
    }
}

/// See `Drop` of the mapping, which does this once there is one.
fn unlock(file: &File) {
    let _ = flock(file, FlockOperation::Unlock);
}

/// Who holds a lock on this file, says the kernel: `7: FLOCK ADVISORY WRITE 1234 fe:00:5678 0 EOF`.
fn holder(file: &File) -> Option<u32> {
    let meta = file.metadata().ok()?;
    let (major, minor) = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
    let inode = format!("{major:02x}:{minor:02x}:{}", meta.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let place = words.clone().position(|w| w == inode)?;
        words.nth(place - 1)?.parse().ok()
    })
}

fn is_memory(file: &File, path: &Path) -> Result<bool> {
    let kind = rustix::fs::fstatfs(file).map_err(|e| io_error("statfs", path)(e.into()))?.f_type as i64;
    Ok(crate::mapping::is_memory_fs(kind))
}

fn device_len(file: &File, path: &Path) -> Result<u64> {
    let rdev = file.metadata().map_err(io_error("stat", path))?.rdev();
    let size = format!("/sys/dev/char/{}:{}/size", rustix::fs::major(rdev), rustix::fs::minor(rdev));
    let text = fs::read_to_string(&size).map_err(io_error("read the size of", path))?;
    text.trim().parse().map_err(|_| io_error("parse the size of", path)(io::ErrorKind::InvalidData.into()))
}

/// Nobody else's: two threads may create one path at once.
fn temporary_name(path: &Path, id: u64) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".creating-{id:016x}"));
    path.with_file_name(name)
}

fn io_error(op: &'static str, path: &Path) -> impl Fn(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { op, path: path.clone(), source }
}

fn random() -> Result<u64> {
    let mut bytes = [0; 8];
    #[expect(clippy::disallowed_methods, reason = "the seam for identities and keys of new pools")]
    getrandom::fill(&mut bytes).map_err(|e| Error::Io {
        op: "getrandom",
        path: PathBuf::new(),
        source: io::Error::other(e.to_string()),
    })?;
    Ok(u64::from_le_bytes(bytes))
}
