//! A single-writer ring of checksummed records: the slot log of engines, and the core of a log.
//!
//! ```text
//! region:  | mark: slot 0 | records, a multiple of 64 bytes, used as a ring | mark: slot 1 |
//! record:  | checksum u64 | position u64 | epoch u32 | kind and length u32 | durable_back u32 | retired_back u32 | payload |
//! ```
//!
//! A record starts on a line and owns its lines. Its *position* counts bytes since the ring was made; its offset is the position modulo
//! the capacity, so a record of an earlier lap never passes for the next one. The invariants, and what they are for:
//!
//! * *epoch* (the pool's generation) is raised at every open and never decreases along the ring: a whole record behind a torn one does
//!   not come back after the torn one's space was written again.
//! * *durable*, through which everything was known to be persistent when the record was written: a record that is not whole below a
//!   later record's durable mark was acknowledged and is *lost*, an error; above it, it is a torn tail.
//! * *retired*, through which records are not needed any more. It travels in every record, and in the mark before
//!   space is reused: a record is only overwritten when the mark says persistently that it is retired.
//!
//! Cost: an append is its lines; a force one barrier for all appended before it; reclaiming adds one line to an append every half
//! lap and no barrier of its own.

use crate::area::Area;
use crate::checksum::ChecksumKey;
use crate::cpu::LINE;
use crate::error::{Error, Result};
use crate::flush::{Moment, Persisted};
use crate::persist::bytes_of;
use crate::ring_mark::{MARK_BYTES, Mark, MarkCell};
use crate::ring_record::{
    Appended, KIND_DATA, KIND_OUTSIDE, KIND_SKIP, PAYLOAD_MAX, Position, RECORD_HEADER, RecordHeader, space,
};
use crate::ring_recovery::{Recovered, Tail, recover};
use crate::sim::here;

/// Smallest ring: room for the mark and a few lines.
pub const RING_MIN: u64 = MARK_BYTES + 4 * LINE;
const RING_MAX: u64 = 1 << 34;
/// A ring open for appending. One writer: `&mut self`.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
/// use pmem::Ring;
/// let mut ring = Ring::create(pool.add_region("journal", 64 << 10)?.into_area()?)?;
/// let first = ring.append(&[b"debit 10", b" credit 10"])?;
/// ring.force()?;          // one barrier: it is durable
/// ring.retire(first.end); // and no longer needed
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Ring {
    area: Area,
    mark: MarkCell,
    key: ChecksumKey,
    /// Of what is checksummed outside of the ring: those checksums stand in records that `key` checksums.
    outside: ChecksumKey,
    epoch: u32,
    /// Where the first record of this open goes.
    opened_at: u64,
    /// Where the next record goes.
    head: u64,
    /// Everything below is known to be persistent.
    durable: u64,
    /// Everything below is not needed any more, says the owner.
    retired: u64,
    /// Everything below is persistently retired: its space may be used again. reclaimed <= retired <= durable <= head.
    reclaimed: u64,
    /// The mark on its way to the media, and when it was flushed.
    mark_in_flight: Option<(u64, Moment)>,
    /// When the last record was flushed.
    appended: Option<Moment>,
    scratch: Vec<u8>,
}

/// The kind of the checksums over bytes outside of the ring.
const OUTSIDE: u32 = 1;

impl Ring {
    fn check_len(area: &Area) -> Result<()> {
        let (min, max) = (RING_MIN, RING_MAX);
        if area.len() < min || area.len() > max {
            return Err(Error::Limit { what: "bytes of a ring", found: area.len(), min, max });
        }
        Ok(())
    }

    fn key(area: &Area) -> ChecksumKey {
        area.pool().checksum_key(area.offset())
    }

    /// Makes an empty ring of `area`, whatever stood there. One barrier.
    ///
    /// # Errors
    /// [`Error::Limit`] if the area is too small or too large.
    pub fn create(area: Area) -> Result<Self> {
        Self::check_len(&area)?;
        let (mark, records) = MarkCell::create(area)?;
        Ok(Self::at(records, mark, 0, 0))
    }

    /// For tests: as earlier builds did, with both slots of the mark in front of the records.
    #[doc(hidden)]
    pub fn create_together(area: Area) -> Result<Self> {
        Self::check_len(&area)?;
        let (mark, records) = MarkCell::create_together(area)?;
        Ok(Self::at(records, mark, 0, 0))
    }

    fn at(area: Area, mark: MarkCell, head: u64, retired: u64) -> Self {
        let reclaimed = mark.get().retired;
        let key = Self::key(&area);
        let epoch = area.pool().generation() as u32;
        let (durable, mark_in_flight, appended, scratch) = (head, None, None, Vec::new());
        Self {
            area,
            mark,
            outside: key.of_kind(OUTSIDE),
            key,
            epoch,
            opened_at: head,
            head,
            durable,
            retired,
            reclaimed,
            mark_in_flight,
            appended,
            scratch,
        }
    }

    /// Reads the ring in `area`: the unretired records in order, and how its end looked. They are persistent when this returns, even
    /// if a cache had outlived their writer: one barrier after a crash.
    ///
    /// # Errors
    /// [`Error::Damaged`] if a record that had been acknowledged cannot be read back.
    pub fn open(area: Area) -> Result<(Self, Recovered)> {
        Self::check_len(&area)?;
        let (mark, records, other_slot) = MarkCell::open(area)?;
        records.probe("ring", 0, records.len())?;
        let key = Self::key(&records);
        let recovered = recover(&records, &key, mark.get(), other_slot)?;
        let mut ring = Self::at(records, mark, recovered.end.0, recovered.retired.0);
        let pool = ring.area.pool();
        // Unless nothing is pending: a program that never opened the ring may have closed the pool.
        if (!pool.was_clean() || recovered.tail != Tail::Clean) && !ring.area.mapping().is_read_only() {
            ring.persist_end(&recovered)?;
        }
        Ok((ring, recovered))
    }

    /// Makes what recovery saw the truth: the mark and the records found are persistent, and a torn record behind them never becomes whole.
    /// Without the latter, a later append at its offset, torn too, could supply just the words it lacks.
    fn persist_end(&mut self, recovered: &Recovered) -> Result<()> {
        self.mark.persist_read()?;
        // All of it in at most two pieces, with the record that only fills the ring's end: what stands behind that is reached by it alone.
        let (capacity, mut from) = (self.capacity(), recovered.retired.0);
        while from < self.head {
            let (at, len) = (from % capacity, (self.head - from).min(capacity - from % capacity));
            self.area.mapping().flush(self.area.offset() + at, len, here())?;
            from += len;
        }
        if recovered.tail != Tail::Clean {
            let at = self.head % self.capacity();
            // No checksum; the position tells, until the space is written again, that a record was begun.
            self.area.put(at, &[0, self.head])?;
            self.area.mapping().flush(self.area.offset() + at, 16, here())?;
        }
        self.area.mapping().drain(here())?;
        Ok(())
    }

    /// Bytes for records, headers included.
    pub fn capacity(&self) -> u64 {
        self.area.len()
    }

    /// Bytes in records that are not retired.
    pub fn unretired(&self) -> u64 {
        self.head - self.retired
    }

    /// Where the next record goes.
    pub fn head(&self) -> Position {
        Position(self.head)
    }

    /// Everything below is known to be persistent.
    pub fn durable(&self) -> Position {
        Position(self.durable)
    }

    /// Everything below is *persistently* retired: neither a crash nor recovery will bring it up again.
    pub fn reclaimed(&self) -> Position {
        Position(self.reclaimed)
    }

    /// Appends a record of these parts, one behind the other, and flushes it. It is durable after [`force`](Self::force), or after
    /// [`forced`](Self::forced) with a drain made by the caller for other things too.
    ///
    /// # Errors
    /// [`Error::RingFull`] if unretired records leave no room; [`Error::Limit`] for a payload over [`PAYLOAD_MAX`].
    #[inline]
    pub fn append(&mut self, parts: &[&[u8]]) -> Result<Appended> {
        let position = self.append_kind(KIND_DATA, parts, None)?;
        Ok(self.appended_at(position))
    }

    /// Appends a record that also checksums `outside`, run by run: bytes elsewhere that are flushed under the same barrier. Recovery gives the checksum
    /// back, and the owner decides by it whether those bytes had all arrived.
    ///
    /// ```
    /// # fn main() -> pmem::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
    /// # use pmem::Ring;
    /// let (ring, mut data) = pool.add_region("r", 8192)?.into_area()?.split_at(4096)?;
    /// let mut ring = Ring::create(ring)?;
    /// data.bytes_mut(0, 5)?.copy_from_slice(b"hello");
    /// data.flush(0, 5)?; // no order between the data and the record
    /// ring.append_checksumming(&[b"stored: 5 bytes"], [data.bytes(0, 5)?].into_iter())?;
    /// ring.force()?; // one barrier for both
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`append`](Self::append).
    #[inline]
    pub fn append_checksumming<'a>(
        &mut self,
        parts: &[&[u8]],
        outside: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Appended> {
        let checksum = self.outside_checksum(outside);
        self.append_checksummed(parts, Some(checksum))
    }

    /// The same, of bytes whose checksum is known: made by [`outside`](Self::outside), as [`ChecksumKey::checksum_each`] does. Without one, as [`append`](Self::append).
    ///
    /// # Errors
    /// As [`append`](Self::append).
    #[inline]
    pub fn append_checksummed(&mut self, parts: &[&[u8]], checksum: Option<u64>) -> Result<Appended> {
        let position = self.append_kind(if checksum.is_some() { KIND_OUTSIDE } else { KIND_DATA }, parts, checksum)?;
        Ok(self.appended_at(position))
    }

    /// Of the record just appended. Made of its parts here, where it is inlined: what is read in larger pieces than it was stored in waits for every store before it.
    #[inline(always)]
    fn appended_at(&self, position: Position) -> Appended {
        Appended { position, end: Position(self.head), moment: self.area.mapping().moment() }
    }

    /// The key of checksums of bytes outside of the ring.
    #[inline]
    pub fn outside(&self) -> &ChecksumKey {
        &self.outside
    }

    /// Checksum of bytes outside of the ring, to compare with what recovery found in a record.
    pub fn outside_checksum<'a>(&self, outside: impl Iterator<Item = &'a [u8]>) -> u64 {
        self.outside.checksum_each(outside)
    }

    /// Bytes of the ring that appending a payload of `len` bytes takes just now: its record, and the ring's end if that is skipped.
    #[inline]
    pub fn takes(&self, len: u64) -> u64 {
        let (needed, rest) = (space(len), self.capacity() - self.head % self.capacity());
        if needed > rest { rest + needed } else { needed }
    }

    fn append_kind(&mut self, kind: u32, parts: &[&[u8]], outside: Option<u64>) -> Result<Position> {
        let mut len = parts.iter().map(|p| p.len() as u64).sum::<u64>();
        if len > PAYLOAD_MAX {
            return Err(Error::Limit { what: "bytes of a record", found: len, min: 0, max: PAYLOAD_MAX });
        }
        len += outside.map_or(0, |_| 8);
        let needed = space(len);
        let rest = self.capacity() - self.head % self.capacity();
        let mut skip = if needed > rest { rest } else { 0 };
        if skip + needed > self.capacity() && needed <= self.capacity() && self.retired == self.head {
            // Both never fit, and waiting for retirement would not help. The skip is retired as soon as it is written: the mark
            // that makes room for the record is persistent before the record is begun.
            self.make_room(skip)?;
            self.write(KIND_SKIP, 0, &[], None)?;
            self.appended = Some(self.area.mapping().moment());
            self.retired = self.head;
            skip = 0;
        }
        self.make_room(skip + needed)?;
        if skip > 0 {
            self.write(KIND_SKIP, 0, &[], None)?;
        }
        let position = Position(self.head);
        self.write(kind, len, parts, outside)?;
        self.stage_mark()?;
        self.appended = Some(self.area.mapping().moment());
        Ok(position)
    }

    /// Puts one record at the head and flushes it. The room is there.
    fn write(&mut self, kind: u32, len: u64, parts: &[&[u8]], outside: Option<u64>) -> Result<()> {
        let back = |from: u64| ((self.head - from) / LINE) as u32; // capacity <= 2^34, so the distance fits
        let mut header = RecordHeader {
            checksum: 0,
            position: self.head,
            epoch: self.epoch,
            kind_len: kind << 28 | len as u32,
            durable_back: back(self.durable),
            retired_back: back(self.retired),
        };
        // Assembled in DRAM, so that whole lines leave past the cache.
        let used = (RECORD_HEADER + len) as usize;
        self.scratch.clear();
        self.scratch.extend_from_slice(bytes_of(&header));
        if let Some(checksum) = outside {
            self.scratch.extend_from_slice(&checksum.to_le_bytes());
        }
        for part in parts {
            self.scratch.extend_from_slice(part);
        }
        header.checksum = self.key.checksum(&self.scratch[8..used]);
        self.scratch[..8].copy_from_slice(&header.checksum.to_le_bytes());
        self.scratch.resize(space(len) as usize, 0);
        let at = self.head % self.capacity();
        self.area.mapping().copy_nt(self.area.offset() + at, &self.scratch, here())?;
        self.head += header.space(self.capacity());
        Ok(())
    }

    /// Makes sure that `needed` bytes at the head are free, reclaiming retired ones if that helps.
    #[inline]
    fn make_room(&mut self, needed: u64) -> Result<()> {
        if self.head + needed - self.reclaimed <= self.capacity() {
            return Ok(());
        }
        self.reclaim_now(needed)
    }

    #[cold]
    fn reclaim_now(&mut self, needed: u64) -> Result<()> {
        if self.head + needed - self.retired > self.capacity() {
            let (unretired, capacity) = (self.head - self.retired, self.capacity());
            return Err(Error::RingFull { unretired, capacity, wanted: needed });
        }
        self.persist_mark()
    }

    fn mark_for(&self, retired: u64) -> Mark {
        // Everything behind the end that recovery found was written since this open.
        let epoch = if retired >= self.opened_at { self.epoch.into() } else { self.mark.get().epoch };
        Mark { retired, epoch }
    }

    fn persist_mark(&mut self) -> Result<()> {
        if self.reclaimed < self.retired {
            let retired = self.retired;
            let moment = self.mark.stage(&self.mark_for(retired))?;
            self.mark_in_flight = Some((retired, moment));
            self.force()?;
        }
        Ok(())
    }

    /// Every half lap the mark goes along with the next barrier, so that reclaiming needs none of its own.
    #[inline]
    fn stage_mark(&mut self) -> Result<()> {
        if self.head - self.reclaimed > self.capacity() / 2
            && self.mark_in_flight.is_none()
            && self.retired > self.reclaimed + self.capacity() / 4
        {
            let retired = self.retired;
            let moment = self.mark.stage(&self.mark_for(retired))?;
            self.mark_in_flight = Some((retired, moment));
        }
        Ok(())
    }

    /// Makes everything appended durable: one barrier, none if it is already.
    ///
    /// # Errors
    /// Those of a drain.
    #[inline]
    pub fn force(&mut self) -> Result<()> {
        if self.durable == self.head && self.mark_in_flight.is_none() {
            return Ok(());
        }
        let persisted = self.area.mapping().drain(here())?;
        self.forced(&persisted);
        Ok(())
    }

    /// Takes note of a drain that the caller made: if it came after the last append, on the same thread, everything appended is durable.
    #[inline]
    pub fn forced(&mut self, persisted: &Persisted) {
        if self.appended.is_some_and(|m| m.is_covered_by(persisted)) {
            self.durable = self.head;
            self.appended = None;
        }
        if let Some((retired, moment)) = self.mark_in_flight
            && moment.is_covered_by(persisted)
        {
            self.reclaimed = retired;
            self.mark_in_flight = None;
        }
    }

    /// The records below `end` are not needed any more: whatever they stood for is persistent elsewhere. Takes effect on media with one
    /// of the next barriers; [`reclaimed`](Self::reclaimed) tells.
    ///
    /// # Panics
    /// If `end` is not durable: retiring what was not forced is a mistake of the engine.
    #[inline]
    pub fn retire(&mut self, end: Position) {
        assert!(end.0 <= self.durable, "retired through {} of {} durable", end.0, self.durable);
        self.retired = self.retired.max(end.0);
    }

    /// Makes the retired mark persistent now: one barrier.
    ///
    /// # Errors
    /// Those of a drain.
    pub fn reclaim(&mut self) -> Result<()> {
        self.persist_mark()
    }

    /// Where a record stands, from the start of the pool.
    pub(crate) fn offset(&self, record: &crate::RingRecord) -> u64 {
        self.area.offset() + record.position.0 % self.capacity()
    }

    /// The payload of a record found by [`open`](Self::open), until it is retired and overwritten.
    ///
    /// # Errors
    /// [`Error::Unreadable`].
    pub fn payload(&self, record: &crate::RingRecord) -> Result<&[u8]> {
        self.area.bytes(record.payload_at, record.payload_len)
    }
}
