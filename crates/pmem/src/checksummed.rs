//! The integrity primitive: a header and a payload, each with a checksum (Arcadia §3, Listing 1).
//!
//! ```text
//! | kind u32 | version u32 | place u64 | length u64 | payload crc u32 | header crc u32 | payload |
//! ```
//!
//! Header and payload are written with no order between them and made persistent by one barrier; a read returns the payload only
//! if first the header, then the payload verifies. `place` is the offset in the pool mixed with the pool's id: a copy elsewhere is refused.
//! Overwriting a checksummed record in place is not atomic; for that there is [`TwoSlot`](crate::TwoSlot).

use crate::area::Area;
use crate::error::{Error, Result};
use crate::flush::Moment;
use crate::hash::crc32c;
use crate::persist::{Persist, bytes_of, from_bytes};

/// Bytes before the payload.
pub const CHECKSUMMED_HEADER: u64 = 32;

#[repr(C)]
#[derive(Clone, Copy, crate::Persist)]
struct ChecksummedHeader {
    kind: u32,
    version: u32,
    place: u64,
    len: u64,
    payload_crc: u32,
    header_crc: u32,
}

const _: () = assert!(ChecksummedHeader::LAYOUT.size as u64 == CHECKSUMMED_HEADER);

impl Area {
    fn checksummed_place(&self, at: u64) -> u64 {
        self.pool().id().rotate_left(17) ^ (self.offset() + at)
    }

    /// Writes a checksummed record at `at` and flushes it: persistent after this thread's next drain. Takes
    /// [`CHECKSUMMED_HEADER`] bytes more than the payload.
    ///
    /// ```
    /// # fn main() -> pmem::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
    /// let mut area = pool.add_region("r", 4096)?.into_area()?;
    /// area.write_checksummed(0, 1, 1, b"hello")?; // kind 1, version 1
    /// area.drain()?;
    /// assert_eq!(area.read_checksummed(0, 1, 1)?, b"hello");
    /// assert!(area.read_checksummed(0, 2, 1).is_err()); // of another kind
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::Unaligned`] unless `at` is a multiple of 8.
    pub fn write_checksummed(&mut self, at: u64, kind: u32, version: u32, payload: &[u8]) -> Result<Moment> {
        let mut header = ChecksummedHeader {
            kind,
            version,
            place: self.checksummed_place(at),
            len: payload.len() as u64,
            payload_crc: crc32c(&[payload]),
            header_crc: 0,
        };
        header.header_crc = crc32c(&[&bytes_of(&header)[..28]]);
        self.get_mut::<ChecksummedHeader>(at)?; // in bounds and aligned
        self.bytes_mut(at + CHECKSUMMED_HEADER, payload.len())?.copy_from_slice(payload);
        self.put(at, &header)?;
        self.flush(at, CHECKSUMMED_HEADER + payload.len() as u64)
    }

    /// The payload of the checksummed record at `at`, if it is whole. After a crash it may stand in a cache only: persist it before anything
    /// is built on it.
    ///
    /// # Errors
    /// [`Error::Damaged`] if header or payload do not verify, or it is of another kind, version or place.
    pub fn read_checksummed(&self, at: u64, kind: u32, version: u32) -> Result<&[u8]> {
        let offset = self.offset() + at;
        let damaged = |what, found, expected| Err(Error::Damaged { what, offset, found, expected });
        let Some(header) = from_bytes::<ChecksummedHeader>(self.bytes(at, CHECKSUMMED_HEADER as usize)?) else {
            return damaged("checksummed header", 0, 0);
        };
        let crc = crc32c(&[&bytes_of(&header)[..28]]);
        if crc != header.header_crc {
            return damaged("checksummed header checksum", header.header_crc.into(), crc.into());
        }
        if header.kind != kind {
            return damaged("checksummed record kind", header.kind.into(), kind.into());
        }
        if header.version != version {
            return damaged("checksummed record version", header.version.into(), version.into());
        }
        if header.place != self.checksummed_place(at) {
            return damaged("checksummed record place", header.place, self.checksummed_place(at));
        }
        let room = self.len().saturating_sub(at + CHECKSUMMED_HEADER);
        if header.len > room {
            return damaged("checksummed record length", header.len, room);
        }
        let payload = self.bytes(at + CHECKSUMMED_HEADER, header.len as usize)?;
        let crc = crc32c(&[payload]);
        if crc != header.payload_crc {
            return damaged("checksummed payload checksum", header.payload_crc.into(), crc.into());
        }
        Ok(payload)
    }
}
