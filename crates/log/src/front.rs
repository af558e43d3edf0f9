//! What stands before the first segment: the superline, of a replica its promise, and the watermark. What is kept twice is kept on two pages, so that neither
//! the loss of a page nor a page that goes back in time takes both.
//!
//! | page | format 2 | format 1 |
//! |---|---|---|
//! | 0 | superline, slot 0 | superline, both slots; of a replica, at byte 2048, the promise, both slots |
//! | 1 | superline, slot 1; of a replica, at byte 512, the promise's slot 0 | segments |
//! | 2 | watermark; of a replica, at byte 512, the promise's slot 1 | |
//!
//! The *watermark* says through which record everything was durable when it was written: recovery takes the loss of such a record for what it is, also if
//! the page with the last records is lost, and nothing behind them bears witness. It is written every [`EVERY`] records, by the thread that makes the next one
//! durable, in front of the barrier, which makes both persistent: no append waits for it.

use pmem::{Area, ChecksumKey, Pool, Region, RegionKind, SlotState, TwoSlot};

use crate::error::Result;
use crate::raw::{self, Claim};
use crate::record::nearest;

/// Region kind of a log in a pool's directory.
pub const REGION_KIND: RegionKind = RegionKind::Other(16);
/// The region of a log that has a pool of its own, and the pool's engine.
pub const NAME: &str = "log";

pub(crate) const PAGE: u64 = 4096;
/// Bytes of a superline's slot, and more.
pub(crate) const SLOT: u64 = 512;
/// Where the watermark stands.
const WATERMARK_AT: u64 = 2 * PAGE;
/// Its bytes: the same LSN twice, each with its own bits of one checksum.
pub(crate) const WATERMARK_BYTES: usize = 16;
const LSN_BITS: u32 = 48;
/// Bits of the checksum beside an LSN.
const CHECKSUM_BITS: usize = 64 - LSN_BITS as usize;
/// After so many durable records the watermark is written.
pub(crate) const EVERY: u64 = 16;

/// How a log begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Front {
    /// Format 1: one page.
    One,
    /// Format 2: three pages.
    Two,
}

/// The front of a region, taken apart.
pub(crate) struct Parts {
    pub(crate) superline: Area,
    /// Of a replica: its promise.
    pub(crate) promise: Area,
    /// The segments.
    pub(crate) region: Region,
}

impl Front {
    /// Bytes before the first segment: whole pages, so that in a file records and superline never share one.
    pub(crate) const fn bytes(self) -> u64 {
        match self {
            Self::One => PAGE,
            Self::Two => 3 * PAGE,
        }
    }

    /// Where the promise's first slot stands.
    const fn promise_at(self) -> u64 {
        match self {
            Self::One => PAGE / 2,
            Self::Two => PAGE + SLOT,
        }
    }

    /// Where the watermark stands, from the start of the region.
    pub(crate) const fn watermark_at(self) -> Option<u64> {
        match self {
            Self::One => None,
            Self::Two => Some(WATERMARK_AT),
        }
    }

    /// Takes the region of a log apart.
    pub(crate) fn split(self, mut region: Region) -> Result<Parts> {
        let (superline, promise) = region.split_front(self.bytes())?.split_at(self.promise_at())?;
        Ok(Parts { superline, promise, region })
    }

    /// A cell of the front, made.
    pub(crate) fn create<T: pmem::Persist>(self, area: Area, value: &T) -> Result<TwoSlot<T>> {
        let mut cell = match self {
            Self::One => TwoSlot::create(area, value)?,
            Self::Two => TwoSlot::create_apart(area, PAGE, value)?,
        };
        cell.update_mirrored(value)?;
        Ok(cell)
    }

    /// A cell of the front, opened.
    pub(crate) fn open<T: pmem::Persist>(self, area: Area) -> pmem::Result<(TwoSlot<T>, SlotState)> {
        match self {
            Self::One => TwoSlot::open(area),
            Self::Two => TwoSlot::open_apart(area, PAGE),
        }
    }
}

// ---- the watermark ----------------------------------------------------------------------------------------------

/// The bytes that say that everything through `lsn` is durable.
fn encode(key: &ChecksumKey, lsn: u64) -> [u8; WATERMARK_BYTES] {
    let checksum = checksum(key, lsn);
    let mut bytes = [0; WATERMARK_BYTES];
    for (copy, to) in bytes.chunks_exact_mut(8).enumerate() {
        to.copy_from_slice(&word(checksum, lsn, copy).to_le_bytes());
    }
    bytes
}

#[inline]
fn checksum(key: &ChecksumKey, lsn: u64) -> u64 {
    let mut checksummed = *b"watermark of log\0\0\0\0\0\0\0\0";
    checksummed[16..].copy_from_slice(&lsn.to_le_bytes());
    key.checksum(&checksummed)
}

/// One word, so that it is never torn: the LSN's low bits, and above them those of the checksum that are this copy's.
#[inline]
fn word(checksum: u64, lsn: u64, copy: usize) -> u64 {
    checksum >> (CHECKSUM_BITS * copy) << LSN_BITS | lsn & ((1 << LSN_BITS) - 1)
}

/// Through which record everything was durable, by these bytes; 0 if they say nothing. `near` is a record of the log.
pub(crate) fn decode(key: &ChecksumKey, bytes: &[u8; WATERMARK_BYTES], near: u64) -> u64 {
    let read = |(copy, bytes): (usize, &[u8])| {
        let mut found = [0; 8];
        found.copy_from_slice(bytes);
        let found = u64::from_le_bytes(found);
        let lsn = nearest(found & ((1 << LSN_BITS) - 1), near)?;
        (word(checksum(key, lsn), lsn, copy) == found).then_some(lsn)
    };
    bytes.chunks_exact(8).enumerate().filter_map(read).max().unwrap_or(0)
}

/// The watermark of an open log.
pub(crate) struct Watermark {
    /// Where it stands, from the start of the pool.
    offset: u64,
}

impl Watermark {
    pub(crate) fn new(front: Front, region: u64) -> Option<Self> {
        front.watermark_at().map(|at| Self { offset: region + at })
    }

    /// Reads it.
    pub(crate) fn read(&self, pool: &Pool, key: &ChecksumKey, near: u64) -> Result<u64> {
        let mut bytes = [0; WATERMARK_BYTES];
        raw::copy_out(Claim::Opening, pool, self.offset, &mut bytes)?;
        Ok(decode(key, &bytes, near))
    }

    /// Says that everything through `lsn` is durable; persistent with this thread's next drain. The caller was given this to do by [`Space::reserve`](crate::space::Space::reserve), and has the
    /// whole line.
    pub(crate) fn write(&self, pool: &Pool, key: &ChecksumKey, lsn: u64) -> Result<()> {
        raw::store(Claim::Watermark, pool, self.offset, &encode(key, lsn), &[])
    }
}
