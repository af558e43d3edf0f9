//! What a ring held when its writer stopped.

use crate::area::Area;
use crate::cell::SlotState;
use crate::checksum::ChecksumKey;
use crate::cpu::LINE;
use crate::error::{Error, Result};
use crate::ring_mark::Mark;
use crate::ring_record::{KIND_DATA, KIND_OUTSIDE, KIND_SKIP, Position, RECORD_HEADER, RecordHeader, header_at};

/// A whole record found in a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingRecord {
    /// Where it starts.
    pub position: Position,
    /// Where the next one starts.
    pub end: Position,
    /// Checksum over bytes outside of the ring, if it was appended with one.
    pub outside: Option<u64>,
    /// A later record proves that this one had been forced, and with it everything flushed before: its outside checksum need not be
    /// checked (and must not be: those bytes may have changed since).
    pub known_durable: bool,
    pub(crate) payload_at: u64,
    pub(crate) payload_len: usize,
}

/// How a ring ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Behind the last whole record stands nothing that looks like one.
    Clean,
    /// Behind the last whole record stands one that is not whole: an append that was never acknowledged and may go, or the very last
    /// acknowledged one, damaged since. Nothing on media tells which.
    InDoubt {
        /// Where, from the start of the pool.
        offset: u64,
    },
}

/// What [`Ring::open`](crate::Ring::open) found.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
/// use pmem::Ring;
/// let mut ring = Ring::create(pool.add_region("ring", 4096)?.into_area()?)?;
/// ring.append(&[b"debit"])?;
/// ring.append(&[b"credit"])?;
/// ring.force()?;
/// drop(ring);
///
/// let (ring, found) = Ring::open(pool.region("ring")?.into_area()?)?;
/// assert_eq!(found.records.len(), 2);
/// assert_eq!(ring.payload(&found.records[1])?, b"credit");
/// assert_eq!(found.end, ring.head());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The whole, unretired records in order.
    pub records: Vec<RingRecord>,
    /// How it ended.
    pub tail: Tail,
    /// Where the next record goes.
    pub end: Position,
    /// Everything below was retired.
    pub retired: Position,
    /// How the other copy of the mark looked. If it is [`SlotState::Corrupt`], the mark may be an older one: records that had been retired
    /// persistently can come back.
    pub mark: SlotState,
}

/// Far from where adding a lap overflows; no ring gets there by being written.
const POSITION_MAX: u64 = 1 << 62;

struct Reader<'a> {
    area: &'a Area,
    key: &'a ChecksumKey,
    capacity: u64,
    generation: u64,
}

/// Reads the ring from its mark on.
///
/// | found at the mark or behind the last whole record | action |
/// |---|---|
/// | whole record: right position, epoch not below the last, checksum verifies | take it, go on behind it |
/// | anything else, and a whole record behind it says it had been durable | lost: an error naming the offset |
/// | begun record, not whole, or any record behind | torn tail: in doubt |
/// | anything else | clean end |
///
/// and before that, for the mark: slots equal, or the other one stale: take it; the other one corrupt: the newer mark may have been the damaged one, and
/// records may be overwritten up to it, so the highest mark that any whole record carries counts; the other one unwritten: the same, for
/// a first newer mark may have been erased.
pub(crate) fn recover(area: &Area, key: &ChecksumKey, mark: Mark, other_slot: SlotState) -> Result<Recovered> {
    let generation = area.pool().generation();
    if mark.epoch > generation {
        // What is written from now on would be below it, and not be found again.
        let offset = area.offset();
        return Err(Error::Damaged { what: "ring mark epoch", offset, found: mark.epoch, expected: generation });
    }
    let (mark, epoch_min) = (mark.retired, mark.epoch as u32);
    let reader = Reader { area, key, capacity: area.len(), generation };
    let mut retired = mark;
    if mark > POSITION_MAX || !mark.is_multiple_of(LINE) {
        let offset = area.offset();
        return Err(Error::Damaged {
            what: "ring mark",
            offset,
            found: mark,
            expected: mark.min(POSITION_MAX) / LINE * LINE,
        });
    }
    if matches!(other_slot, SlotState::Corrupt | SlotState::Unwritten) {
        retired = reader.highest_carried_mark(mark)?;
    }
    let mut records: Vec<RingRecord> = Vec::new();
    let (mut at, mut epoch, mut durable) = (retired, epoch_min, retired);
    while let Some(header) = reader.whole(at, epoch)? {
        // One lap at most: behind it would stand the first record again, whose position does not fit.
        let end = at + header.space(reader.capacity);
        if header.kind() != KIND_SKIP {
            let outside = header.kind() == KIND_OUTSIDE;
            let payload_at = at % reader.capacity + RECORD_HEADER + if outside { 8 } else { 0 };
            records.push(RingRecord {
                position: Position(at),
                end: Position(end),
                outside: if outside { Some(*area.get::<u64>(payload_at - 8)?) } else { None },
                known_durable: false,
                payload_at,
                payload_len: header.len() as usize - if outside { 8 } else { 0 },
            });
        }
        (retired, durable) = (retired.max(header.retired()), durable.max(header.durable()));
        (epoch, at) = (header.epoch, end);
    }
    let offset = area.offset() + at % reader.capacity;
    let (proof, stray) = reader.look_behind(at, mark.max(retired), epoch)?;
    if let Some(proof) = proof {
        return Err(Error::Damaged {
            what: "ring record (acknowledged, not whole)",
            offset,
            found: at,
            expected: proof,
        });
    }
    records.retain(|r| r.position.0 >= retired);
    for record in &mut records {
        record.known_durable = record.end.0 <= durable;
    }
    let begun = stray || reader.is_begun(at, epoch)?;
    let tail = if begun { Tail::InDoubt { offset } } else { Tail::Clean };
    Ok(Recovered { records, tail, end: Position(at), retired: Position(retired.min(at)), mark: other_slot })
}

impl Reader<'_> {
    /// The record at this position, if it is whole. Reads no more than the decision needs.
    fn whole(&self, position: u64, epoch_min: u32) -> Result<Option<RecordHeader>> {
        let at = position % self.capacity;
        let word: u64 = *self.area.get(at + 8)?;
        if word != position {
            return Ok(None);
        }
        let header = header_at(self.area, at)?;
        if !self.fits(&header, at) || header.epoch < epoch_min || u64::from(header.epoch) > self.generation {
            return Ok(None);
        }
        let checksummed = self.area.bytes(at + 8, (RECORD_HEADER - 8 + header.len()) as usize)?;
        Ok((self.key.checksum(checksummed) == header.checksum).then_some(header))
    }

    /// Where a later whole record ends the durable part, if that is behind `end`, where the first record that is not whole stands; and
    /// whether any record behind it, whole or only begun, does not.
    fn look_behind(&self, end: u64, mark: u64, epoch: u32) -> Result<(Option<u64>, bool)> {
        let mut stray = false;
        let mut position = end + LINE;
        while position < mark + self.capacity {
            if let Some(header) = self.whole(position, epoch)? {
                if header.durable() > end {
                    return Ok((Some(header.durable()), stray));
                }
                stray = true;
            } else if *self.area.get::<u64>(position % self.capacity + 8)? == position {
                stray = true;
            }
            position += LINE;
        }
        Ok((None, stray))
    }

    /// The highest retired mark carried by a whole record at or behind `mark`, on whatever lap.
    fn highest_carried_mark(&self, mark: u64) -> Result<u64> {
        let mut highest = mark;
        for at in (0..self.capacity).step_by(LINE as usize) {
            let position: u64 = *self.area.get(at + 8)?;
            if position % self.capacity == at
                && (mark..=POSITION_MAX).contains(&position)
                && let Some(header) = self.whole(position, 0)?
            {
                highest = highest.max(header.retired());
            }
        }
        Ok(highest)
    }

    /// True if a record may have been begun here since the ring was last opened: position or epoch fit, though the rest does not. Of damage to both nothing else
    /// tells; and bytes of an old payload that look like the epoch by chance put a clean end in doubt, which costs nothing but the word.
    fn is_begun(&self, position: u64, epoch: u32) -> Result<bool> {
        let at = position % self.capacity;
        let word: u64 = *self.area.get(at + 8)?;
        if word < position && word % self.capacity == at && self.whole(word, 0)?.is_some() {
            return Ok(false); // a record of an earlier lap, untouched
        }
        let found: u32 = *self.area.get(at + 16)?;
        let previous = self.generation.saturating_sub(1) as u32;
        // A line never used holds the position 0, too.
        let positioned = word == position && (position != 0 || found != 0 || *self.area.get::<u64>(at)? != 0);
        Ok(positioned
            || (found != 0 && (found == previous || found == epoch))
            || self.is_whole_but_for_its_position(position)?)
    }

    /// True if the record here would be whole with the position that belongs here: only that word was lost, or damaged.
    fn is_whole_but_for_its_position(&self, position: u64) -> Result<bool> {
        let at = position % self.capacity;
        let header = header_at(self.area, at)?;
        if !self.fits(&header, at) {
            return Ok(false);
        }
        let rest = self.area.bytes(at + 16, (RECORD_HEADER - 16 + header.len()) as usize)?;
        Ok(self.key.checksum_parts([&position.to_le_bytes()[..], rest].into_iter()) == header.checksum)
    }

    /// True if a record of this kind and length has room at `at`.
    fn fits(&self, header: &RecordHeader, at: u64) -> bool {
        let rest = self.capacity - at;
        match header.kind() {
            KIND_DATA => RECORD_HEADER + header.len() <= rest,
            KIND_OUTSIDE => header.len() >= 8 && RECORD_HEADER + header.len() <= rest,
            KIND_SKIP => header.len() == 0,
            _ => false,
        }
    }
}
