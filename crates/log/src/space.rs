//! Where records go: the tail, the segments in use, the head. All of it under one lock, held for a few instructions unless a segment begins.

use std::collections::{BTreeMap, VecDeque};

use pmem::{ChecksumKey, LINE, Pool, Region, TwoSlot};

use crate::at::At;
use crate::circle::Circle;
use crate::error::{Error, Result};
use crate::failpoints::{Failpoints, Step};
use crate::raw::{Claim, bytes, copy_out};
use crate::record::{Header, RECORD_HEADER, space};
use crate::superline::{GROWTHS_MAX, SEGMENTS_MAX, Superline};

/// A segment that records may stand in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    pub(crate) segment: u64,
    /// The record at its start.
    pub(crate) first_lsn: u64,
    pub(crate) epoch: u32,
}

/// Where a log's segments are in the pool.
#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    pub(crate) segment_bytes: u64,
    pub(crate) circle: Circle,
    /// First byte and number of segments of each extent.
    extents: Vec<(u64, u64)>,
}

impl Geometry {
    pub(crate) fn new(segment_bytes: u64, circle: Circle, region: &Region) -> Self {
        let extents = region.areas().iter().map(|a| (a.offset(), a.len() / segment_bytes)).collect();
        Self { segment_bytes, circle, extents }
    }

    /// Segments that have room in the region.
    fn room(&self) -> u64 {
        self.extents.iter().map(|e| e.1).sum()
    }

    /// First byte of a logical segment, from the start of the pool.
    pub(crate) fn offset(&self, segment: u64) -> u64 {
        let mut index = self.circle.physical(segment);
        for &(offset, segments) in &self.extents {
            if index < segments {
                return offset + index * self.segment_bytes;
            }
            index -= segments;
        }
        unreachable!("the superline was validated against the region")
    }

    /// The offset of a position in the pool.
    pub(crate) fn locate(&self, position: u64) -> u64 {
        self.offset(position / self.segment_bytes) + position % self.segment_bytes
    }

    /// Bytes from a position to the end of its segment.
    pub(crate) fn rest(&self, position: u64) -> u64 {
        self.segment_bytes - position % self.segment_bytes
    }

    /// The positions where the record behind `position` can start: there, if a header fits, or in the next segment.
    pub(crate) fn candidates(&self, position: u64) -> impl Iterator<Item = u64> + use<> {
        let here = (self.rest(position) >= RECORD_HEADER).then_some(position);
        let next = (!position.is_multiple_of(self.segment_bytes)).then(|| position + self.rest(position));
        here.into_iter().chain(next)
    }

    /// Longest payload.
    pub(crate) fn payload_max(&self) -> u64 {
        self.segment_bytes - RECORD_HEADER
    }
}

/// What is reserved for a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserved {
    pub(crate) lsn: u64,
    pub(crate) offset: u64,
    /// Everything through here was known to be durable when it was reserved.
    pub(crate) forced: u64,
    /// In front of the barrier that makes the record persistent, the watermark is written.
    pub(crate) marks: bool,
}

/// In place of [`Space::marker`], where there is no watermark: none is ever durable through there.
pub(crate) const NO_MARKER: u64 = u64::MAX >> 1;

/// What every reservation changes, on one line with the lock; the rest behind a pointer.
pub(crate) struct Space {
    pub(crate) next_lsn: u64,
    /// Where the next record goes, or the end of its segment.
    pub(crate) position: u64,
    /// The end of the segment that was opened last.
    limit: u64,
    /// Where `position` stands in the pool is `position + delta`.
    delta: u64,
    /// Everything through here is durable, as far as the threads that reserved knew.
    pub(crate) forced: u64,
    /// The last record that was given the watermark to write.
    pub(crate) marker: u64,
    rest: Box<Rest>,
}

// With the lock.
const _: () = assert!(size_of::<pmem::sync::OwnMutex<Space>>() <= LINE as usize);

pub(crate) struct Rest {
    pool: Pool,
    region: Region,
    pub(crate) geometry: Geometry,
    cell: TwoSlot<Superline>,
    /// What the cell holds.
    pub(crate) superline: Superline,
    opened: VecDeque<Opened>,
    /// Segments that readers are in, and how many.
    pins: BTreeMap<u64, usize>,
    /// Everything through here is discarded; further on, by ranges.
    pub(crate) discarded: u64,
    discarded_ahead: BTreeMap<u64, u64>,
    pub(crate) reclaims: u64,
    /// Raised by everything that can make room.
    pub(crate) room: u64,
    /// All replicas know that the log begins here or further on: space before it is used again. None for a log of its own.
    pub(crate) known_head: Option<u64>,
    pub(crate) failpoints: Failpoints,
}

impl std::ops::Deref for Space {
    type Target = Rest;
    fn deref(&self) -> &Rest {
        &self.rest
    }
}

impl std::ops::DerefMut for Space {
    fn deref_mut(&mut self) -> &mut Rest {
        &mut self.rest
    }
}

/// Why nothing can be reserved.
pub(crate) enum NoRoom {
    /// Other replicas of the log have to know first that it begins here.
    Head(At),
    /// Discarding records can change that.
    Full(Error),
    /// It cannot.
    Failed(Error),
}

impl Space {
    #[expect(clippy::too_many_arguments, reason = "the parts of one state, named at the one call")]
    pub(crate) fn new(
        pool: &Pool,
        region: Region,
        geometry: Geometry,
        cell: TwoSlot<Superline>,
        next_lsn: u64,
        position: u64,
        opened: VecDeque<Opened>,
        failpoints: Failpoints,
    ) -> Self {
        let superline = cell.get();
        let limit = opened.back().map_or(position, |o| (o.segment + 1) * geometry.segment_bytes);
        let rest = Rest {
            pool: pool.clone(),
            region,
            geometry,
            cell,
            superline,
            opened,
            pins: BTreeMap::new(),
            discarded: superline.head_lsn - 1,
            discarded_ahead: BTreeMap::new(),
            reclaims: 0,
            room: 0,
            known_head: None,
            failpoints,
        };
        let mut space =
            Self { next_lsn, position, limit, delta: 0, forced: next_lsn - 1, marker: NO_MARKER, rest: Box::new(rest) };
        if let Some(last) = space.opened.back() {
            space.delta = space.geometry.offset(last.segment).wrapping_sub(last.segment * space.geometry.segment_bytes);
        }
        space
    }

    /// Reserves space for the next record; returns it, and how many bytes that is. The record writes the watermark if `every` records, one at least, are durable from the last that did.
    ///
    /// That one is among them, so the thread that wrote the watermark for it has done so; and until this one is durable no other writes it: one thread at a
    /// time does, without a lock.
    #[inline]
    pub(crate) fn reserve(
        &mut self,
        len: u64,
        to_line: bool,
        every: u64,
    ) -> std::result::Result<(Reserved, u64), NoRoom> {
        let mut needed = space(self.position, len, to_line);
        if self.position + needed > self.limit {
            self.open_segment(len)?;
            needed = space(self.position, len, to_line);
        }
        let marks =
            self.forced + 1 >= self.marker + every || self.failpoints.skips(Step::MarkAlone) && self.marker < NO_MARKER;
        if marks {
            self.marker = self.next_lsn;
        }
        let offset = self.position.wrapping_add(self.delta);
        let reserved = Reserved { lsn: self.next_lsn, offset, forced: self.forced, marks };
        self.position += needed;
        self.next_lsn += 1;
        Ok((reserved, needed))
    }

    /// Goes on in the next segment, reclaiming what is discarded if its physical segment is taken.
    #[cold]
    fn open_segment(&mut self, len: u64) -> std::result::Result<(), NoRoom> {
        let bytes = self.geometry.segment_bytes;
        let max = self.geometry.payload_max();
        if len > max {
            return Err(NoRoom::Failed(Error::TooLong { len, max }));
        }
        let segment = self.limit.div_ceil(bytes);
        if let Some(taken) = self.geometry.circle.previous(segment) {
            if self.pins.keys().next().is_some_and(|&pinned| pinned <= taken) {
                return Err(NoRoom::Full(self.full()));
            }
            if taken >= self.superline.head_position / bytes {
                let head = self.head_by_segment();
                if head.1 / bytes <= taken {
                    return Err(NoRoom::Full(self.full()));
                }
                // Others first: a replica whose reader still needs what is before says so late, and a takeover goes by the furthest head.
                if self.known_head.is_some_and(|known| taken >= known / bytes) {
                    return Err(NoRoom::Head(At { lsn: head.0, position: head.1, epoch: head.2 }));
                }
                if !self.failpoints.skips(Step::HeadFirst) {
                    self.set_head(head).map_err(NoRoom::Failed)?;
                }
            }
            if self.known_head.is_some_and(|known| taken >= known / bytes) {
                return Err(NoRoom::Head(self.superline.head()));
            }
        }
        self.position = segment * bytes;
        self.limit = self.position + bytes;
        self.delta = self.geometry.offset(segment).wrapping_sub(self.position);
        let opened = Opened { segment, first_lsn: self.next_lsn, epoch: self.superline.epoch };
        self.opened.push_back(opened);
        Ok(())
    }

    pub(crate) fn full(&self) -> Error {
        let (head, live) = (self.discarded + 1, self.position - self.superline.head_position);
        let capacity = self.geometry.circle.segments() * self.geometry.segment_bytes;
        Error::Full { head: crate::Lsn(head), live, capacity }
    }

    // ---- the head ---------------------------------------------------------------------------------------------

    /// Notes that records `from` to `to`, all of them durable, are not needed any more.
    pub(crate) fn discard(&mut self, from: u64, to: u64) {
        self.room += 1;
        if from > self.discarded + 1 {
            let (mut from, mut to) = (from, to);
            // One range for what touches.
            while let Some((&start, &end)) = self.discarded_ahead.range(..=to.saturating_add(1)).next_back() {
                if end + 1 < from {
                    break;
                }
                self.discarded_ahead.remove(&start);
                (from, to) = (from.min(start), to.max(end));
            }
            self.discarded_ahead.insert(from, to);
            return;
        }
        let rest = &mut *self.rest;
        rest.discarded = rest.discarded.max(to);
        while let Some(first) = rest.discarded_ahead.first_entry() {
            if *first.key() > rest.discarded + 1 {
                break;
            }
            rest.discarded = rest.discarded.max(first.remove());
        }
    }

    /// The start of the segment with the oldest record that is needed: LSN, position, epoch. Reads nothing.
    fn head_by_segment(&self) -> (u64, u64, u32) {
        let bytes = self.geometry.segment_bytes;
        let needed = self.discarded + 1;
        if needed == self.next_lsn {
            return (self.next_lsn, self.position, self.superline.epoch);
        }
        let last = self.opened.iter().rfind(|o| o.first_lsn <= needed);
        let present = (self.superline.head_lsn, self.superline.head_position, self.superline.head_epoch);
        let start = last.map_or(present, |o| (o.first_lsn, o.segment * bytes, o.epoch));
        if start.1 > present.1 { start } else { present }
    }

    /// The oldest record that is needed: LSN, position, epoch. Reads the records before it in its segment.
    pub(crate) fn head_exact(&self, key: &ChecksumKey) -> Result<(u64, u64, u32)> {
        let start = self.head_by_segment();
        let (mut lsn, mut position, mut epoch) = start;
        while lsn <= self.discarded && position < self.position {
            let mut next = None;
            for at in self.geometry.candidates(position) {
                let found = read_header(&self.pool, Claim::Kept, self.geometry.locate(at))?;
                // A lower epoch: what a writer left behind a torn record, before this one was found to begin elsewhere.
                let header = Header::decode(&found, lsn).filter(|h| h.lsn == lsn && h.epoch >= epoch);
                let Some(header) = header.filter(|h| RECORD_HEADER + u64::from(h.len) <= self.geometry.rest(at)) else {
                    continue;
                };
                let payload = self.geometry.locate(at) + RECORD_HEADER;
                let payload = bytes(Claim::Kept, self, &self.pool, payload, u64::from(header.len))?;
                if header.verifies(key, &found, payload) {
                    next = Some((at + header.space(at), header.epoch));
                    break;
                }
            }
            // Damaged at rest, though it is not needed: it is kept, with all behind it, and the next open will say.
            let Some((behind, found)) = next else { return Ok(start) };
            (lsn, position, epoch) = (lsn + 1, behind, found);
        }
        if lsn == self.next_lsn {
            epoch = self.superline.epoch;
        }
        Ok((lsn, position, epoch))
    }

    /// Persistently moves the head: two barriers.
    pub(crate) fn set_head(&mut self, (lsn, position, epoch): (u64, u64, u32)) -> Result<()> {
        let head = Superline { head_lsn: lsn, head_position: position, head_epoch: epoch, ..self.superline };
        self.write(head)?;
        self.reclaims += 1;
        let first = position / self.geometry.segment_bytes;
        while self.opened.front().is_some_and(|o| o.segment < first) {
            self.opened.pop_front();
        }
        Ok(())
    }

    /// Writes both copies of the superline.
    pub(crate) fn write(&mut self, superline: Superline) -> Result<()> {
        if self.failpoints.skips(Step::HeadTwice) {
            self.cell.update(&superline)?;
        } else {
            self.cell.update_mirrored(&superline)?;
        }
        self.superline = superline;
        Ok(())
    }

    /// Makes room for `by` more bytes, rounded up to segments: the pool's directory first, then the superline. Returns the new capacity.
    pub(crate) fn grow(&mut self, by: u64) -> Result<u64> {
        let bytes = self.geometry.segment_bytes;
        let old = self.geometry.circle.segments();
        let total = old.saturating_add(by.div_ceil(bytes).max(1));
        if total > SEGMENTS_MAX {
            let (what, max) = ("bytes to grow by", (SEGMENTS_MAX - old) * bytes);
            return Err(Error::Limit { what, found: by, min: 0, max });
        }
        // Behind what is in use, and behind any earlier growth: a crash may have taken the segments that were opened in between.
        let last = self.geometry.circle.growths().last().map_or(0, |g| g.from);
        let from = self.limit.div_ceil(bytes).max(last);
        let is_same_position = last == from;
        if self.superline.growth_count as usize >= GROWTHS_MAX && !is_same_position {
            return Err(Error::GrownTooOften { max: GROWTHS_MAX });
        }
        let room = self.geometry.room();
        if total > room {
            let pool = self.pool.clone();
            pool.grow_region(&mut self.region, ((total - room) * bytes).next_multiple_of(4096))?;
        }
        let mut circle = self.geometry.circle.clone();
        circle.grow(from, total);
        let mut superline = self.superline;
        superline.set_circle(&circle);
        if !self.failpoints.skips(Step::GrowFirst) {
            self.write(superline)?;
        }
        self.geometry = Geometry::new(bytes, circle, &self.region);
        self.room += 1;
        Ok(total * bytes)
    }

    // ---- readers ----------------------------------------------------------------------------------------------

    /// The segment stays until it is unpinned as often.
    pub(crate) fn pin(&mut self, segment: u64) {
        *self.pins.entry(segment).or_default() += 1;
    }

    pub(crate) fn unpin(&mut self, segment: u64) {
        self.room += 1;
        if let Some(count) = self.pins.get_mut(&segment) {
            *count -= 1;
            if *count == 0 {
                self.pins.remove(&segment);
            }
        }
    }

    /// Where to start reading for a record, the start of its segment or the head: LSN, position, epoch.
    pub(crate) fn start_for(&self, lsn: u64) -> (u64, u64, u32) {
        let head = (self.superline.head_lsn, self.superline.head_position, self.superline.head_epoch);
        let opened = self.opened.iter().rfind(|o| o.first_lsn <= lsn);
        let start = opened.map_or(head, |o| (o.first_lsn, o.segment * self.geometry.segment_bytes, o.epoch));
        if start.1 > head.1 { start } else { head }
    }
}

/// The bytes of a header, whatever they are.
pub(crate) fn read_header(pool: &Pool, claim: Claim, offset: u64) -> Result<[u8; RECORD_HEADER as usize]> {
    let mut header = [0; RECORD_HEADER as usize];
    copy_out(claim, pool, offset, &mut header)?;
    Ok(header)
}
