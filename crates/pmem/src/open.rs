//! How a pool is opened: options, what the file is, the header.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;
use std::sync::Arc;

use crate::cell::{RawCell, SlotState};
use crate::device::{claim, file_len, is_device};
use crate::domain::{DomainChoice, Latency};
use crate::error::{Error, Result};
use crate::file::{PAGE, forget_cached, io_error, unlock};
use crate::header::{
    FIRST_REGION, FLAG_CLEAN, FORMAT_VERSION, FORMAT_VERSION_1, Header, MAGIC, SLOTS, header_cell, text,
};
use crate::mapping::{MapOptions, Mapping};
use crate::persist::from_bytes;
use crate::pool::Pool;
use crate::sim::Medium;

/// How to create or open a pool.
///
/// Every block of a pool's file is allocated when it is made, opened for writing, or grown: no store into the mapping meets a full disk, where it would end the process
/// by SIGBUS. Not so on file systems that write to other blocks each time (btrfs, ZFS), and for copies that share their blocks with the original (`cp --reflink`).
/// A process whose files are limited in length (`ulimit -f`) should ignore SIGXFSZ: otherwise the kernel ends it
/// where a pool would grow beyond that; with the signal ignored that is [`Error::NoSpace`].
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
    pub(crate) size: u64,
    max_size: u64,
    pub(crate) layout: Option<String>,
    pub(crate) engine: Option<String>,
    pub(crate) engine_options: [u8; 64],
    pub(crate) domain: DomainChoice,
    pub(crate) version: u32,
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
            version: FORMAT_VERSION,
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

    /// A new pool is made in format version 1.
    ///
    /// For tests, and for pools that builds before version 2 are to open: its keyed checksums are weaker (`docs/checksums.md`).
    pub fn format_1(mut self) -> Self {
        self.version = FORMAT_VERSION_1;
        self
    }

    pub(crate) fn map_options(&self, read_only: bool) -> MapOptions {
        MapOptions { choice: self.domain, latency: self.latency, max_size: self.max_size, read_only }
    }

    // ---- open -------------------------------------------------------------------------------------------------

    /// Opens the pool at `path` for reading and writing. What of a sparse copy has no blocks gets them, so that no store can meet a full disk.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there is no room for these blocks;
    /// [`Error::Busy`] and [`Error::AlreadyOpen`] if it is open already; [`Error::NotAPool`], [`Error::NewerVersion`], [`Error::Truncated`],
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
        let file = claim(path, read_only)?;
        let meta = file.metadata().map_err(io_error("stat", path))?;
        let (device, is_dax) = (is_device(meta.file_type()), meta.file_type().is_char_device());
        let mut len = file_len(&file, path)?;
        if !is_dax && !read_only && !peek_is_clean(&file) {
            forget_cached(&file).map_err(|source| Error::Sync { source })?;
        }
        if !is_dax {
            explain_foreign(len, path, |start, at| file.read_exact_at(start, at)).inspect_err(|_| unlock(&file))?;
            // Mapped lengths are whole pages; a file cut inside a page is found truncated below.
            len -= len % PAGE;
        }
        let mapping = Mapping::file(file, path, len, &self.map_options(read_only))?;
        let (header, cell, repaired) = self.read_header(&mapping, len)?;
        if !read_only {
            mapping.fill_holes(header.size)?;
        }
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
        let mapping = Mapping::simulated(Arc::clone(&medium));
        if len < FIRST_REGION {
            return Err(Error::Truncated { path: mapping.path().to_owned(), found: len, expected: FIRST_REGION });
        }
        if !looks_clean(&mapping) {
            medium.reopened().map_err(|source| Error::Sync { source })?;
        }
        let (header, cell, repaired) = self.read_header(&mapping, len)?;
        let pool = Pool::start(mapping, header, cell, repaired)?;
        pool.trim(len)?;
        Ok(pool)
    }

    fn read_header(&self, mapping: &Mapping, file_len: u64) -> Result<(Header, RawCell, bool)> {
        let path = mapping.path();
        let mut cell = header_cell();
        let (bytes, other_slot) = cell.load(mapping, "pool header")?;
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
        let repaired = matches!(other_slot, SlotState::Corrupt | SlotState::Unwritten);
        if repaired {
            tracing::warn!(path = %path.display(), "one copy of the pool header was not whole; the other one is used");
        }
        Ok((header, cell, repaired))
    }
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
pub(crate) fn explain_foreign(len: u64, path: &Path, read: impl Fn(&mut [u8], u64) -> io::Result<()>) -> Result<()> {
    let mut starts = [[0; 12]; 2];
    let mut unreadable = None;
    for (start, offset) in starts.iter_mut().zip(SLOTS) {
        let there = len.saturating_sub(offset).min(12);
        if let Err(source) = read(&mut start[..there as usize], offset) {
            unreadable = Some(Error::Unreadable { what: "pool header", offset, len: there, source });
        }
    }
    let [(magic, a), (other_magic, b)] = starts.map(|start| {
        let (magic, version) = start.split_at(8);
        (from_bytes::<[u8; 8]>(magic).unwrap_or_default(), from_bytes::<u32>(version).unwrap_or_default())
    });
    if magic != MAGIC && other_magic != MAGIC {
        let foreign = Error::NotAPool { path: path.to_owned(), found: magic, expected: MAGIC };
        return Err(unreadable.unwrap_or(foreign));
    }
    if len < FIRST_REGION {
        return Err(Error::Truncated { path: path.to_owned(), found: len, expected: FIRST_REGION });
    }
    // Another version checksums as it likes: believe it if both copies say the same newer one.
    if a > FORMAT_VERSION && a == b {
        return Err(Error::NewerVersion { path: path.to_owned(), found: a, supported: FORMAT_VERSION });
    }
    Ok(())
}

/// True if both header copies say, unchecked, that the pool was closed: then the page cache holds nothing the disk does not.
fn peek_is_clean(file: &File) -> bool {
    let mut flags = [0u8; 4];
    SLOTS
        .iter()
        .all(|slot| file.read_exact_at(&mut flags, slot + 12).is_ok() && u32::from_le_bytes(flags) & FLAG_CLEAN != 0)
}

/// The same of a simulated one.
fn looks_clean(mapping: &Mapping) -> bool {
    SLOTS.iter().all(|slot| {
        mapping.access(slot + 12, 4, false).is_ok_and(|at| {
            // SAFETY: four bytes that `access` has checked; nothing stores there before there is a pool.
            let flags = unsafe { at.cast::<[u8; 4]>().read() };
            u32::from_le_bytes(flags) & FLAG_CLEAN != 0
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One page that cannot be read is the other copy's business; two are an error that names the reason.
    #[test]
    fn unreadable_page_hides_no_pool() {
        let explain = |unreadable: &[u64]| {
            explain_foreign(1 << 20, Path::new("p"), |start, at| {
                if unreadable.contains(&at) {
                    return Err(io::Error::other("bad sector"));
                }
                start[..8].copy_from_slice(&MAGIC);
                Ok(())
            })
        };
        for one in [&[][..], &[0], &[4096]] {
            assert!(explain(one).is_ok(), "{one:?}");
        }
        assert!(matches!(explain(&[0, 4096]), Err(Error::Unreadable { what: "pool header", .. })));
    }
}
