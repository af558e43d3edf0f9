//! The pool header: what a pool is, and where its regions are. Normative description: `docs/format.md`.

use std::path::Path;

use crate::Persist;
use crate::cell::RawCell;
use crate::checksum::{ChecksumKey, Checksums};
use crate::error::{Error, Result};
use crate::file::PAGE;
use crate::persist::{from_bytes, zeroed};

pub(crate) const MAGIC: [u8; 8] = *b"CAIRN\r\n\x1a";
/// Newest format version this build reads and writes.
pub const FORMAT_VERSION: u32 = 2;
/// Oldest one: its checksums are another function.
pub(crate) const FORMAT_VERSION_1: u32 = 1;
/// Regions and extents a header can name.
pub const REGIONS_MAX: usize = 48;
/// Longest region name in bytes.
pub const NAME_MAX: usize = 24;
/// Longest layout name in bytes.
pub const LAYOUT_MAX: usize = 64;

pub(crate) const FLAG_CLEAN: u32 = 1;

/// Value of the header cell. Both copies are equal whenever an update has been acknowledged.
#[repr(C)]
#[derive(Clone, Copy, Persist)]
pub(crate) struct Header {
    pub(crate) magic: [u8; 8],
    pub(crate) version: u32,
    pub(crate) flags: u32,
    pub(crate) id: u64,
    pub(crate) key: u64,
    pub(crate) size: u64,
    pub(crate) generation: u64,
    pub(crate) engine: [u8; 16],
    pub(crate) engine_options: [u8; 64],
    pub(crate) layout: [u8; LAYOUT_MAX],
    pub(crate) regions: [Entry; REGIONS_MAX],
}

/// One extent of a region. A region's extents carry its name, and `part` 0, 1, 2, ...
#[repr(C)]
#[derive(Clone, Copy, Persist)]
pub(crate) struct Entry {
    pub(crate) name: [u8; NAME_MAX],
    pub(crate) kind: u32,
    pub(crate) part: u32,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) options: u64,
    /// Eight bytes of the owner for this extent: what it must know to read it.
    pub(crate) detail: u64,
}

const _: () = assert!(size_of::<Entry>() == 64 && size_of::<Header>() == 3264);
/// Where the copies of the header begin: a page each, so that no page takes both with it.
pub(crate) const SLOTS: [u64; 2] = [0, PAGE];
const _: () = assert!(RawCell::stride(size_of::<Header>() as u64) <= PAGE && PAGE == 4096);
/// Where regions begin.
pub(crate) const FIRST_REGION: u64 = 2 * PAGE;

/// The header is checksummed under a key of its own, known to all: the pool's is inside. The function is that of format version 1
/// whatever the header then says.
pub(crate) fn header_cell() -> RawCell {
    let key = ChecksumKey::format_1(u64::from_le_bytes(MAGIC), 0);
    RawCell::new(SLOTS[0], size_of::<Header>() as u64, key).with_stride(SLOTS[1])
}

impl Header {
    pub(crate) fn new(id: u64, key: u64, size: u64) -> Self {
        let mut header: Header = zeroed();
        header.magic = MAGIC;
        header.version = FORMAT_VERSION;
        (header.id, header.key, header.size) = (id, key, size);
        header
    }

    /// What checksums everything but the header.
    pub(crate) fn checksums(&self) -> Checksums {
        if self.version == FORMAT_VERSION_1 {
            Checksums::version_1(self.key)
        } else {
            Checksums::version_2(self.key, self.id)
        }
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.flags & FLAG_CLEAN != 0
    }

    /// 16 bits of the pool's id, never 0: the tag of its pointers.
    pub(crate) fn tag(&self) -> u16 {
        let folded = (self.id ^ self.id >> 16 ^ self.id >> 32 ^ self.id >> 48) as u16;
        folded.max(1)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.regions.iter().filter(|e| e.is_used())
    }

    /// First byte behind all regions.
    pub(crate) fn used_end(&self) -> u64 {
        self.entries().map(|e| e.offset + e.len).max().unwrap_or(FIRST_REGION)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        from_bytes(bytes)
    }

    /// Everything a checksum does not prove: the numbers fit the file and each other.
    pub(crate) fn validate(&self, file_len: u64, path: &Path) -> Result<()> {
        let damaged = |what, offset: u64, found, expected| Err(Error::Damaged { what, offset, found, expected });
        if self.magic != MAGIC {
            return Err(Error::NotAPool { path: path.to_owned(), found: self.magic, expected: MAGIC });
        }
        if self.version > FORMAT_VERSION {
            return Err(Error::NewerVersion { path: path.to_owned(), found: self.version, supported: FORMAT_VERSION });
        }
        if self.version < FORMAT_VERSION_1 {
            return damaged("format version", 8, self.version.into(), FORMAT_VERSION.into());
        }
        if self.flags & !FLAG_CLEAN != 0 {
            return damaged("header flags", 12, self.flags.into(), FLAG_CLEAN.into());
        }
        if !self.size.is_multiple_of(PAGE) || self.size < FIRST_REGION {
            return damaged("pool size", 32, self.size, self.size.next_multiple_of(PAGE).max(FIRST_REGION));
        }
        if self.generation >= u64::from(u32::MAX) {
            return damaged("generation", 40, self.generation, 0);
        }
        if self.size > file_len {
            return Err(Error::Truncated { path: path.to_owned(), found: file_len, expected: self.size });
        }
        if text(&self.layout).is_none() || text(&self.engine).is_none() {
            return damaged("layout or engine name", 48, 0, 0);
        }
        self.validate_regions()
    }

    fn validate_regions(&self) -> Result<()> {
        let at = |i: usize| (size_of::<Header>() - (REGIONS_MAX - i) * size_of::<Entry>()) as u64;
        let damaged = |i, what, found, expected| Err(Error::Damaged { what, offset: at(i), found, expected });
        let mut used: Vec<(u64, u64, usize)> = Vec::new();
        for (i, e) in self.regions.iter().enumerate().filter(|(_, e)| e.is_used()) {
            if e.name_str().is_none_or(str::is_empty) {
                return damaged(i, "region name", e.name[0].into(), 0);
            }
            let end = e.offset.checked_add(e.len);
            if e.offset % PAGE != 0 || e.len % PAGE != 0 || e.len == 0 || e.offset < FIRST_REGION {
                return damaged(i, "region bounds", e.offset, FIRST_REGION);
            }
            let Some(end) = end.filter(|&end| end <= self.size) else {
                return damaged(i, "region end", e.offset.saturating_add(e.len), self.size);
            };
            used.push((e.offset, end, i));
            let before = self.regions[..i].iter().filter(|o| o.name == e.name).count() as u32;
            let same_kind = self.regions[..i].iter().all(|o| o.name != e.name || o.kind == e.kind);
            if e.part != before || !same_kind {
                return damaged(i, "region extent number", e.part.into(), before.into());
            }
        }
        used.sort_unstable();
        for pair in used.windows(2) {
            if pair[0].1 > pair[1].0 {
                return damaged(pair[1].2, "region overlap", pair[1].0, pair[0].1);
            }
        }
        Ok(())
    }
}

impl Entry {
    /// The extent `part` of a region like this one's, at `offset`.
    pub(crate) fn at(self, part: u32, offset: u64, len: u64) -> Self {
        Self { part, offset, len, ..self }
    }

    pub(crate) fn is_used(&self) -> bool {
        self.offset != 0 || self.len != 0
    }

    pub(crate) fn name_str(&self) -> Option<&str> {
        text(&self.name)
    }

    /// The same for people.
    pub(crate) fn info(&self) -> RegionInfo {
        RegionInfo {
            name: self.name_str().unwrap_or_default().to_owned(),
            kind: RegionKind::from_code(self.kind),
            part: self.part,
            offset: self.offset,
            len: self.len,
        }
    }
}

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

/// UTF-8 up to the first NUL, with nothing but NULs behind it.
pub(crate) fn text(bytes: &[u8]) -> Option<&str> {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    if bytes[end..].iter().any(|&b| b != 0) {
        return None;
    }
    std::str::from_utf8(&bytes[..end]).ok()
}

/// A name as stored: padded with NULs.
pub(crate) fn name_bytes<const N: usize>(name: &str) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    if name.len() > N || name.contains('\0') {
        return Err(Error::BadName { name: name.to_owned(), max: N });
    }
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    Ok(bytes)
}
