//! What a log held when its writer stopped.
//!
//! | found at the head or behind the last whole record, there or at the start of the next segment | action |
//! |---|---|
//! | whole record: its LSN, epoch not below the last, checksum verifies | take it, go on behind it |
//! | none, and the log was closed here | clean end |
//! | none that counts, but a whole one of a later epoch than the superline's, or the watermark is behind the end of a closed log | lost: both copies of the superline have gone back |
//! | none, and the log was closed further on | lost: an error naming the offset |
//! | none, and a whole record behind says it had been durable, or the watermark does | lost |
//! | none, but a record was begun here, or stands behind | torn tail: in doubt |
//! | nothing | clean end |
//!
//! What stands behind is sought in the rest of this segment, in all of the next, and at the start of each further one, where a record
//! always stands: whatever the log's size, that is little, unless records do stand there.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};

use pmem::{ChecksumKey, Pool, Region, SlotState, TwoSlot};

use crate::Lsn;
use crate::error::{Error, Result};
use crate::failpoints::{Failpoints, Step};
use crate::raw::{Claim, bytes, copy_in, copy_out};
use crate::record::{Header, Kind, RECORD_HEADER, follows, names, renamed};
use crate::space::{Geometry, Opened, Space, read_header};
use crate::superline::Superline;
use crate::window::SLOTS;

/// How a log ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Behind the last whole record stands nothing that looks like one.
    Clean,
    /// Behind the last whole record stands one that is not whole: a record that was never forced and may go, or one of the last forced before a
    /// crash, damaged since. Nothing on media tells which. It is gone now, and what stood behind it.
    InDoubt {
        /// The record.
        lsn: Lsn,
        /// Where it stood, from the start of the pool.
        offset: u64,
    },
}

/// What an open found.
///
/// ```
/// # fn main() -> cairn_log::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("l");
/// use cairn_log::{Options, Tail};
/// let log = Options::new().bytes(1 << 20).create(&path)?;
/// log.append(b"debit")?;
/// drop(log); // closes it
/// let (log, found) = Options::new().open(&path)?;
/// assert_eq!((found.records, found.tail, found.was_closed), (1, Tail::Clean, true));
/// # drop(log);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Recovered {
    /// Records of the program that are there, discarded ones not counted unless a crash brought them back.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The oldest record there is, or the one to come.
    pub head: Lsn,
    /// The record to come.
    pub next: Lsn,
    /// How it ended.
    pub tail: Tail,
    /// It had been closed.
    pub was_closed: bool,
    /// The other copy of the superline was not whole, and has been written again.
    pub superline_repaired: bool,
}

/// Reads what stands in a log that no thread writes, or in a replica, to whose leader it is left that none does.
pub(crate) struct Reader<'a> {
    pool: &'a Pool,
    region: &'a Region,
    geometry: &'a Geometry,
    key: &'a ChecksumKey,
    superline: Superline,
    claim: Claim,
    failpoints: Failpoints,
    probed: BTreeSet<u64>,
    /// Through which record the watermark says that all had been durable.
    marked: u64,
    /// Bytes of payloads verified in looking behind.
    checksummed: u64,
}

/// Bytes that looking behind the end verifies at most, or four segments.
const CHECKSUMMED_MAX: u64 = 64 << 20;

/// The records from some position on: where they end.
pub(crate) struct Walk {
    pub(crate) lsn: u64,
    pub(crate) position: u64,
    pub(crate) epoch: u32,
    pub(crate) opened: VecDeque<Opened>,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

pub(crate) fn recover(
    pool: &Pool,
    region: Region,
    geometry: Geometry,
    (mut cell, other_slot): (TwoSlot<Superline>, SlotState),
    key: ChecksumKey,
    marked: u64,
    failpoints: Failpoints,
) -> Result<(Space, Recovered)> {
    let superline = cell.get();
    let mut reader = Reader::new(pool, &region, &geometry, &key, superline, failpoints);
    reader.marked = marked;
    let walk = reader.walk()?;
    let tail = reader.tail(&walk)?;
    if !pool.is_read_only() {
        if superline.closed == 0 {
            reader.persist_read(&walk)?;
            if other_slot != SlotState::Equal {
                // The superline's cell has drained already, and will not again before the new epoch shows: what a follower then takes for durable is.
                pool.drain()?;
            }
        }
        raise(&mut cell, &walk, failpoints)?;
    }
    let recovered = Recovered {
        records: walk.records,
        bytes: walk.bytes,
        head: Lsn(superline.head_lsn),
        next: Lsn(walk.lsn),
        tail,
        was_closed: superline.closed == 1,
        superline_repaired: matches!(other_slot, SlotState::Corrupt | SlotState::Unwritten),
    };
    if let Tail::InDoubt { lsn, offset } = tail {
        tracing::warn!(%lsn, offset, "the last record of the log is not whole: it was never forced, or it is damaged");
    }
    let space = Space::new(pool, region, geometry, cell, walk.lsn, walk.position, walk.opened, failpoints);
    Ok((space, recovered))
}

/// From now on records have a higher epoch, and the log is not closed any more. Nothing is appended before this is persistent, and what was flushed before.
fn raise(cell: &mut TwoSlot<Superline>, walk: &Walk, failpoints: Failpoints) -> Result<()> {
    let mut superline = cell.get();
    if !failpoints.skips(Step::RaiseEpoch) {
        superline.epoch += 1;
    }
    if walk.lsn == superline.head_lsn {
        superline.head_epoch = superline.epoch;
    }
    if !failpoints.skips(Step::UncleanFirst) {
        superline.closed = 0;
    }
    cell.update_mirrored(&superline)?;
    Ok(())
}

impl<'a> Reader<'a> {
    pub(crate) fn new(
        pool: &'a Pool,
        region: &'a Region,
        geometry: &'a Geometry,
        key: &'a ChecksumKey,
        superline: Superline,
        failpoints: Failpoints,
    ) -> Self {
        let (claim, probed) = (Claim::Opening, BTreeSet::new());
        Self { pool, region, geometry, key, superline, claim, failpoints, probed, marked: 0, checksummed: 0 }
    }

    /// The same of bytes that a device may write meanwhile.
    pub(crate) fn shared(self) -> Self {
        Self { claim: Claim::Shared, ..self }
    }

    /// All records there are.
    pub(crate) fn walk(&mut self) -> Result<Walk> {
        let head = &self.superline;
        let epoch = if self.failpoints.skips(Step::EpochFloor) { 0 } else { head.head_epoch };
        self.walk_from(head.head_lsn, head.head_position, epoch)
    }

    /// The whole records from here on, none missing.
    fn walk_from(&mut self, lsn: u64, position: u64, epoch: u32) -> Result<Walk> {
        let closed_at = if self.superline.closed == 1 { self.superline.tail_lsn } else { u64::MAX };
        self.walk_until(closed_at, lsn, position, epoch, u64::MAX)
    }

    /// Those before record `until`, and no further than the one with which it is so many bytes.
    pub(crate) fn walk_until(&mut self, until: u64, lsn: u64, position: u64, epoch: u32, most: u64) -> Result<Walk> {
        let superline = self.superline;
        let bytes = superline.segment_bytes;
        let mut walk = Walk { lsn, position, epoch, opened: VecDeque::new(), records: 0, bytes: 0 };
        if !walk.position.is_multiple_of(bytes) {
            let segment = walk.position / bytes;
            walk.opened.push_back(Opened { segment, first_lsn: walk.lsn, epoch: superline.head_epoch });
        }
        while walk.lsn != until && walk.position - position < most {
            let Some((at, header)) = self.next(&walk)? else { break };
            if at.is_multiple_of(bytes) {
                walk.opened.push_back(Opened { segment: at / bytes, first_lsn: walk.lsn, epoch: header.epoch });
            }
            if header.kind == Kind::Data {
                walk.records += 1;
                walk.bytes += u64::from(header.len);
            }
            (walk.lsn, walk.position, walk.epoch) = (walk.lsn + 1, at + header.space(at), header.epoch);
        }
        Ok(walk)
    }

    /// The record behind, wherever it can start.
    fn next(&mut self, walk: &Walk) -> Result<Option<(u64, Header)>> {
        for at in self.geometry.candidates(walk.position) {
            if let Some(header) = self.whole(at, walk.lsn, walk.epoch, |lsn| lsn == walk.lsn)? {
                return Ok(Some((at, header)));
            }
        }
        Ok(None)
    }

    /// True if this segment's physical one does not hold an earlier one that is live.
    fn is_free(&self, segment: u64) -> bool {
        let head = self.superline.head_position / self.superline.segment_bytes;
        segment >= head && self.geometry.circle.previous(segment).is_none_or(|p| p < head)
    }

    /// The whole record at a position whose LSN is `wanted`. Reads no more than the decision needs.
    fn whole(&mut self, at: u64, near: u64, epoch_min: u32, wanted: impl Fn(u64) -> bool) -> Result<Option<Header>> {
        if !self.is_free(at / self.geometry.segment_bytes) {
            return Ok(None);
        }
        self.probe(at / self.geometry.segment_bytes)?;
        let offset = self.geometry.locate(at);
        let bytes_there = read_header(self.pool, self.claim, offset)?;
        let Some(header) = Header::decode(&bytes_there, near).filter(|h| wanted(h.lsn)) else { return Ok(None) };
        if !(epoch_min..=self.superline.epoch).contains(&header.epoch) {
            return Ok(None);
        }
        let Some(payload) = self.payload(at, &header)? else { return Ok(None) };
        self.checksummed += u64::from(header.len);
        let verifies = self.failpoints.skips(Step::VerifyChecksum) || header.verifies(self.key, &bytes_there, &payload);
        Ok(verifies.then_some(header))
    }

    /// The payload of a record, if it fits into its segment.
    fn payload(&self, at: u64, header: &Header) -> Result<Option<Cow<'a, [u8]>>> {
        let len = u64::from(header.len);
        if RECORD_HEADER + len > self.geometry.rest(at) {
            return Ok(None);
        }
        let offset = self.geometry.locate(at) + RECORD_HEADER;
        Ok(Some(match self.claim {
            Claim::Shared => {
                let mut payload = vec![0; len as usize];
                copy_out(self.claim, self.pool, offset, &mut payload)?;
                Cow::Owned(payload)
            }
            claim => Cow::Borrowed(bytes(claim, self.pool, self.pool, offset, len)?),
        }))
    }

    /// Reads a segment through the file once, so that a bad page is an error and not a signal.
    fn probe(&mut self, segment: u64) -> Result<()> {
        if !self.probed.insert(segment) {
            return Ok(());
        }
        self.probe_range(self.geometry.offset(segment), self.geometry.segment_bytes)
    }

    fn probe_range(&self, offset: u64, len: u64) -> Result<()> {
        self.pool.will_need(offset, len);
        let area = self.region.areas().iter().find(|a| (a.offset()..a.offset() + a.len()).contains(&offset));
        if let Some(area) = area {
            area.probe("segment of a log", offset - area.offset(), len)?;
        }
        Ok(())
    }

    /// How the log ended, behind the last whole record.
    fn tail(&mut self, walk: &Walk) -> Result<Tail> {
        let offset = self.geometry.candidates(walk.position).next().map_or(0, |at| self.geometry.locate(at));
        let lost = |through| Err(Error::Lost { lsn: Lsn(walk.lsn), offset, through: Lsn(through) });
        if self.is_outrun(walk)? {
            return lost(walk.lsn.max(self.marked));
        }
        if self.superline.closed == 1 {
            let through = self.marked.max(self.superline.tail_lsn - 1);
            return if walk.lsn > through { Ok(Tail::Clean) } else { lost(through) };
        }
        let (through, begun) = self.behind(walk)?;
        let through = through.max(self.marked);
        if through >= walk.lsn && !self.failpoints.skips(Step::Watermark) {
            return lost(through);
        }
        Ok(if begun { Tail::InDoubt { lsn: Lsn(walk.lsn), offset } } else { Tail::Clean })
    }

    /// Whether the next record is there, of a later epoch than the superline knows. That was persistent before the first record of its epoch: what is read is an old superline.
    fn is_outrun(&mut self, walk: &Walk) -> Result<bool> {
        for at in self.geometry.candidates(walk.position) {
            if !self.is_free(at / self.geometry.segment_bytes) {
                continue;
            }
            let found = read_header(self.pool, self.claim, self.geometry.locate(at))?;
            let header = Header::decode(&found, walk.lsn);
            let Some(header) = header.filter(|h| h.lsn == walk.lsn && h.epoch > self.superline.epoch) else { continue };
            if self.payload(at, &header)?.is_some_and(|payload| header.verifies(self.key, &found, &payload)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Through which record all had been durable, by what stands behind the last whole one; and whether anything does, or the next one was begun.
    pub(crate) fn behind(&mut self, walk: &Walk) -> Result<(u64, bool)> {
        self.checksummed = 0;
        let (through, stray) = self.look_behind(walk)?;
        Ok((through, stray || self.is_begun(walk)?))
    }

    /// Through where some later record says that everything had been durable; and whether any stands behind that the last writer left.
    fn look_behind(&mut self, walk: &Walk) -> Result<(u64, bool)> {
        let bytes = self.geometry.segment_bytes;
        let here = walk.position / bytes;
        let (mut through, mut stray) = (0, false);
        // No more records than these are on their way at once.
        for segment in here..=here + self.geometry.circle.segments().min(SLOTS) {
            if !self.is_free(segment) {
                continue;
            }
            if segment <= here + 1 {
                self.probe(segment)?;
            } else {
                match self.probe_range(self.geometry.offset(segment), bytes.min(4096)) {
                    Err(Error::Pool(pmem::Error::Unreadable { .. })) => continue, // nothing that was there is needed
                    other => other?,
                }
            }
            let start = walk.position.max(segment * bytes);
            // All of this segment and the next: what was lost can have stood at either's beginning. Of others all that have a record at theirs.
            let mut whole_segment = segment <= here + 1;
            let offset = self.geometry.offset(segment);
            for at in (start..=(segment + 1) * bytes - RECORD_HEADER).step_by(8) {
                if !self.may_follow(offset + at % bytes, walk.lsn)? {
                    if whole_segment { continue } else { break }
                }
                if let Some(header) = self.whole(at, walk.lsn, walk.epoch, |lsn| lsn > walk.lsn)? {
                    through = through.max(header.forced());
                    stray |= header.epoch == self.superline.epoch;
                    whole_segment = true;
                }
                if !whole_segment || through >= walk.lsn {
                    break;
                }
                if self.checksummed > CHECKSUMMED_MAX.max(4 * bytes) {
                    return Ok((through, true)); // payloads that look like headers, one behind the other: a doubt, but not for ever
                }
            }
        }
        Ok((through, stray))
    }

    /// False if the one word that has the LSN says that no record behind this one stands here: most offsets need no more.
    #[inline]
    fn may_follow(&self, offset: u64, lsn: u64) -> Result<bool> {
        let mut word = [0; 8];
        copy_out(self.claim, self.pool, offset + 8, &mut word)?;
        Ok(follows(u64::from_le_bytes(word), lsn))
    }

    /// True if a writer began the record that should come next, though it is not whole.
    fn is_begun(&mut self, walk: &Walk) -> Result<bool> {
        for at in self.geometry.candidates(walk.position) {
            if !self.is_free(at / self.geometry.segment_bytes) {
                continue;
            }
            let found = read_header(self.pool, self.claim, self.geometry.locate(at))?;
            if names(&found, walk.lsn) {
                return Ok(true);
            }
            // Its number may be what was damaged: would it make what stands there whole?
            let found = renamed(found, walk.lsn);
            let Some(header) = Header::decode(&found, walk.lsn) else { continue };
            let Some(payload) = self.payload(at, &header)? else { continue };
            if header.verifies(self.key, &found, &payload) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes what was read the truth, by the first barrier of [`raise`]: the records found are persistent, and a torn one behind them never becomes whole. Without
    /// the latter, a later record at its offset, torn too, could supply just the words it lacks.
    pub(crate) fn persist_read(&self, walk: &Walk) -> Result<()> {
        let bytes = self.geometry.segment_bytes;
        let mut position = self.superline.head_position;
        while position < walk.position {
            let len = self.geometry.rest(position).min(walk.position - position);
            self.pool.flush(self.geometry.locate(position), len)?;
            position += len;
        }
        for at in self.geometry.candidates(walk.position) {
            if self.is_free(at / bytes) && !self.failpoints.skips(Step::EraseTorn) {
                let offset = self.geometry.locate(at);
                copy_in(self.claim, self.pool, offset, &[0; 8])?;
                self.pool.flush(offset, 8)?;
            }
        }
        Ok(())
    }
}
