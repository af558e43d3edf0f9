//! The superline: what a log is, and where it begins (Arcadia §4.1). The end is found by reading.
//!
//! Both copies of its cell are written at each change, one behind the other, and each has a page of its own: damage to one of them loses nothing,
//! and a page that goes back in time is the older copy. Where they stand, and what else comes before the first segment, is in [`front`](crate::front).

use pmem::{Area, LINE, Persist, Pool, Region, TwoSlot};

use crate::at::At;
use crate::circle::{Circle, Growth};
use crate::error::{Error, Result};
use crate::front::{Front, PAGE, REGION_KIND, SLOT};

const MAGIC: u64 = u64::from_le_bytes(*b"cairnlog");
/// A log of its own, in format 1: both copies of the superline are on one page, and there is no watermark.
const VERSION_1: u32 = 1;
/// A replica of a log, in format 1: a process that opens it as a log of its own would make it diverge from the others.
const REPLICA_VERSION_1: u32 = 2;
/// The same of format 2.
const VERSION: u32 = 3;
pub(crate) const REPLICA_VERSION: u32 = 4;
/// Most times a log is grown.
pub(crate) const GROWTHS_MAX: usize = 15;
pub(crate) const SEGMENT_MIN: u64 = 256;
pub(crate) const SEGMENT_MAX: u64 = 1 << 28;
pub(crate) const SEGMENTS_MAX: u64 = 1 << 32;
/// Far from where adding a lap overflows; no log gets there by being written.
const POSITION_MAX: u64 = 1 << 62;

const _: () = assert!(TwoSlot::<Superline>::SIZE / 2 <= SLOT && SLOT.is_multiple_of(LINE));

/// What the cell holds.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Persist)]
pub(crate) struct Superline {
    pub(crate) magic: u64,
    pub(crate) version: u32,
    /// Of the records that this open appends; raised by every open.
    pub(crate) epoch: u32,
    /// Tells this log from any other that had the same offset.
    pub(crate) id: u64,
    pub(crate) segment_bytes: u64,
    /// The oldest record there is, or the one to come.
    pub(crate) head_lsn: u64,
    pub(crate) head_position: u64,
    /// Records from the head on have at least this epoch.
    pub(crate) head_epoch: u32,
    /// 1 if the log was closed: then it ends exactly at the tail.
    pub(crate) closed: u32,
    pub(crate) tail_lsn: u64,
    pub(crate) tail_position: u64,
    pub(crate) growth_count: u64,
    pub(crate) growths: [[u64; 2]; GROWTHS_MAX + 1],
}

impl Superline {
    /// Of a new log of its own.
    pub(crate) fn new(front: Front, id: u64, segment_bytes: u64, segments: u64) -> Self {
        let mut superline = Self {
            magic: MAGIC,
            version: if front == Front::One { VERSION_1 } else { VERSION },
            epoch: 0,
            id,
            segment_bytes,
            head_lsn: 1,
            head_position: 0,
            head_epoch: 0,
            closed: 1,
            tail_lsn: 1,
            tail_position: 0,
            growth_count: 0,
            growths: [[0; 2]; GROWTHS_MAX + 1],
        };
        superline.set_circle(&Circle::new(segments));
        superline
    }

    /// The superline in a region's first extent, if it begins in this form. Changes nothing.
    fn look(front: Front, first: &Area) -> pmem::Result<Self> {
        TwoSlot::<Self>::look_apart(first, Self::stride(front)).map(|found| found.0)
    }

    /// Bytes from one slot to the other.
    const fn stride(front: Front) -> u64 {
        match front {
            Front::One => TwoSlot::<Self>::SIZE / 2,
            Front::Two => PAGE,
        }
    }

    /// Where the second slot stands, and its bytes.
    const fn second_slot(front: Front) -> (u64, u64) {
        (Self::stride(front), TwoSlot::<Self>::SIZE / 2)
    }

    pub(crate) fn circle(&self) -> Circle {
        let growths = self.growths[..=(self.growth_count as usize).min(GROWTHS_MAX)].iter();
        Circle::from_growths(growths.map(|&[from, total]| Growth { from, total }).collect())
    }

    pub(crate) fn set_circle(&mut self, circle: &Circle) {
        self.growth_count = circle.growths().len() as u64 - 1;
        for (to, growth) in self.growths.iter_mut().zip(circle.growths()) {
            *to = [growth.from, growth.total];
        }
    }

    pub(crate) fn head(&self) -> At {
        At { lsn: self.head_lsn, position: self.head_position, epoch: self.head_epoch }
    }

    /// True for a replica of a log.
    pub(crate) fn is_replica(&self) -> bool {
        matches!(self.version, REPLICA_VERSION_1 | REPLICA_VERSION)
    }

    /// What stands before the first segment.
    pub(crate) fn front(&self) -> Front {
        if self.version <= REPLICA_VERSION_1 { Front::One } else { Front::Two }
    }

    /// Checks what a checksum cannot prove; it was found in this front, and `space` bytes for segments are there.
    pub(crate) fn validate(&self, front: Front, offset: u64, region: &str, space: u64) -> Result<()> {
        if self.magic != MAGIC {
            return Err(Error::NotALog { region: region.to_owned(), offset, why: "its superline has another magic" });
        }
        if self.version > REPLICA_VERSION {
            return Err(Error::NewerVersion { found: self.version, supported: REPLICA_VERSION });
        }
        let must =
            |good: bool, what, found| if good { Ok(()) } else { Err(Error::BadSuperline { offset, what, found }) };
        must(self.front() == front, "version", self.version.into())?;
        let bytes = self.segment_bytes;
        must((SEGMENT_MIN..=SEGMENT_MAX).contains(&bytes) && bytes.is_multiple_of(LINE), "segment bytes", bytes)?;
        must(self.growth_count <= GROWTHS_MAX as u64, "growths", self.growth_count)?;
        let growths = &self.growths[..=self.growth_count as usize];
        must(growths[0][0] == 0, "first segment", growths[0][0])?;
        for pair in growths.windows(2) {
            must(pair[0][0] < pair[1][0] && pair[1][0] < POSITION_MAX / bytes, "growth", pair[1][0])?;
            must(pair[0][1] < pair[1][1], "segments", pair[1][1])?;
        }
        let segments = growths[growths.len() - 1][1];
        must(growths[0][1] >= 2 && segments <= SEGMENTS_MAX && segments <= space / bytes, "segments", segments)?;
        must(
            self.head_position < POSITION_MAX && self.head_position.is_multiple_of(8),
            "head position",
            self.head_position,
        )?;
        must((1..POSITION_MAX).contains(&self.head_lsn), "head LSN", self.head_lsn)?;
        must(self.head_epoch <= self.epoch, "head epoch", self.head_epoch.into())?;
        must(self.closed <= 1, "closed", self.closed.into())?;
        if self.closed == 1 {
            let live = self.tail_position.wrapping_sub(self.head_position);
            must(
                self.tail_position.is_multiple_of(8) && live <= segments * bytes,
                "tail position",
                self.tail_position,
            )?;
            must(self.tail_lsn >= self.head_lsn && self.tail_lsn < POSITION_MAX, "tail LSN", self.tail_lsn)?;
        }
        must(self.epoch < u32::MAX, "epoch", self.epoch.into())
    }
}

/// In which form this region begins; format 2 if nothing tells. Changes nothing.
pub(crate) fn front_of(region: &Region) -> Front {
    let Some(first) = region.areas().first() else { return Front::Two };
    match (Superline::look(Front::Two, first), Superline::look(Front::One, first)) {
        // The newer slot of format 1 may be the second one, whatever the first says.
        (Ok(line), _) if line.version >= VERSION => Front::Two,
        (_, Ok(_)) => Front::One,
        _ => Front::Two,
    }
}

/// Finds the superline through the file.
pub(crate) fn observed(observer: &pmem::Observer, offset: u64) -> Result<Option<(Front, Superline)>> {
    let apart = observer.cell_apart::<Superline>(offset, PAGE);
    if let Ok(Some(line)) = apart
        && line.version >= VERSION
    {
        return Ok(Some((Front::Two, line)));
    }
    if let Some(line) = observer.cell::<Superline>(offset)? {
        return Ok(Some((Front::One, line)));
    }
    apart.map(|_| None).map_err(Into::into)
}

/// True if this is the region of a log that was never made to the end: no superline verifies, and there never was a first record.
pub(crate) fn is_unfinished(pool: &Pool, name: &str, len: u64) -> Result<bool> {
    let region = pool.region(name)?;
    Ok(region.kind() == REGION_KIND.code() && region.len() >= len && looks_unfinished(&region)?)
}

/// The superline's second slot is written when the first one is whole, and the first record when both are: so a page that is lost does not look like this.
pub(crate) fn looks_unfinished(region: &Region) -> Result<bool> {
    let (first, front) = (&region.areas()[0], front_of(region));
    if first.len() < front.bytes() + LINE || Superline::look(front, first).is_ok() {
        return Ok(false);
    }
    let (second, slot) = Superline::second_slot(front);
    let record = front.bytes();
    for (at, len) in [(second, slot), (record, LINE)] {
        first.probe("front of a log", at, len)?;
        if first.bytes(at, len as usize)?.iter().any(|&b| b != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}
