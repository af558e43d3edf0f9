//! A record of a ring: its position, and its bytes on media.

use crate::Persist;
use crate::area::Area;
use crate::cpu::LINE;
use crate::error::{Error, Result};
use crate::flush::Moment;
use crate::persist::from_bytes;

/// A position in the history of a ring: bytes since it was made.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
/// let mut ring = pmem::Ring::create(pool.add_region("ring", 4096)?.into_area()?)?;
/// let appended = ring.append(&[b"debit"])?;
/// assert_eq!((appended.position.get(), appended.end.get()), (0, 64));
/// assert!(ring.durable() < appended.end);
/// ring.force()?;
/// assert_eq!(ring.durable(), appended.end);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub(crate) u64);

impl Position {
    /// The bytes.
    pub fn get(self) -> u64 {
        self.0
    }
}

/// A record just appended: flushed, not yet forced.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
/// let mut ring = pmem::Ring::create(pool.add_region("ring", 4096)?.into_area()?)?;
/// let appended = ring.append(&[b"debit"])?;
/// let persisted = pool.drain()?; // for other things too
/// assert!(appended.moment.is_covered_by(&persisted));
/// ring.forced(&persisted);
/// ring.retire(appended.end);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Appended {
    /// Where it starts.
    pub position: Position,
    /// Where the next one starts: retire this to retire the record.
    pub end: Position,
    /// Persistent after a drain that covers this.
    pub moment: Moment,
}

/// Bytes before a record's payload.
pub const RECORD_HEADER: u64 = 32;
/// Longest payload of a record.
pub const PAYLOAD_MAX: u64 = (1 << 28) - 1 - 8;

#[repr(C)]
#[derive(Clone, Copy, Persist)]
pub(crate) struct RecordHeader {
    pub(crate) checksum: u64,
    pub(crate) position: u64,
    pub(crate) epoch: u32,
    pub(crate) kind_len: u32,
    pub(crate) durable_back: u32,
    pub(crate) retired_back: u32,
}

const _: () = assert!(size_of::<RecordHeader>() as u64 == RECORD_HEADER);

/// Payload only.
pub(crate) const KIND_DATA: u32 = 1;
/// The payload starts with a checksum over ranges outside of the ring.
pub(crate) const KIND_OUTSIDE: u32 = 2;
/// Nothing up to the end of the lap.
pub(crate) const KIND_SKIP: u32 = 3;

impl RecordHeader {
    pub(crate) fn kind(&self) -> u32 {
        self.kind_len >> 28
    }

    /// Payload bytes, the outside checksum included.
    pub(crate) fn len(&self) -> u64 {
        u64::from(self.kind_len & ((1 << 28) - 1))
    }

    /// Bytes the record takes in the ring.
    pub(crate) fn space(&self, capacity: u64) -> u64 {
        match self.kind() {
            KIND_SKIP => capacity - self.position % capacity,
            _ => space(self.len()),
        }
    }

    /// Everything below was persistent when this was written.
    pub(crate) fn durable(&self) -> u64 {
        self.position.saturating_sub(u64::from(self.durable_back) * LINE)
    }

    /// Everything below was retired when this was written.
    pub(crate) fn retired(&self) -> u64 {
        self.position.saturating_sub(u64::from(self.retired_back) * LINE)
    }
}

pub(crate) const fn space(len: u64) -> u64 {
    (RECORD_HEADER + len).next_multiple_of(LINE)
}

/// Reads a header at `at`, whatever it holds.
pub(crate) fn header_at(area: &Area, at: u64) -> Result<RecordHeader> {
    let bytes = area.bytes(at, RECORD_HEADER as usize)?;
    from_bytes(bytes).ok_or(Error::OutOfBounds { at, end: at + RECORD_HEADER, len: area.len() })
}
