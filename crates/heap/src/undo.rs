//! The old bytes of what a transaction changes: in the slot's ring while they are few, behind it in blocks of the heap.
//!
//! An *extent* is a free block that holds further records of the same transaction, each `| checksum u64 | length u64 | payload |` to a line. The ring names the
//! block and a number that no other extent ever had, which keys the checksums: what stood in the block before cannot pass for a record.

use std::sync::atomic::Ordering::Relaxed;

use pmem::{Block, ChecksumKey, Error as PoolError, LINE};
use tx::{Error, Result};

use crate::ground::Ground;
use crate::log::Log;
use crate::raw::{self, Claim};
use crate::record::{self, Bytes, EXTENT, UNDO, covers};

#[derive(Default)]
pub(crate) struct UndoLog {
    entries: Vec<(Bytes, Old)>,
    /// Old bytes of small ranges.
    dram: Vec<u8>,
    extents: Vec<Extent>,
    /// The entry that was found last, apart from the newest.
    found: usize,
}

/// Entries that are looked at in each place.
const NEAR: usize = 8;

/// Where the old bytes are.
#[derive(Clone, Copy)]
enum Old {
    Dram(usize),
    Pool(u64),
}

struct Extent {
    block: Block,
    key: ChecksumKey,
    used: u64,
}

/// Header of a record in an extent.
const HEADER: u64 = 16;
const EXTENT_MIN: u64 = 64 << 10;
/// Payload of the ring's record of an extent.
const EXTENT_RECORD: u64 = 8 + 16 + 8 + 8;
/// What the ring keeps for the end of a transaction, whatever else it keeps: the record of one that is taken back, or that names the block it was moved to.
const END_ROOM: u64 = 4 * LINE;

impl UndoLog {
    /// True if the old bytes of this range are kept. Looks at the last few entries, and at a few around the one that was found last: many changes that were
    /// declared together come in about that order. An entry too many only costs time.
    #[inline]
    pub(crate) fn has(&mut self, offset: u64, len: u64) -> bool {
        let covers = |(range, _): &(Bytes, Old)| covers(*range, offset, len);
        if self.entries.iter().rev().take(NEAR).any(covers) {
            return true;
        }
        let from = self.found.saturating_sub(NEAR / 2);
        let around = self.entries.get(from..).unwrap_or_default();
        match around.iter().take(NEAR + NEAR / 2).position(covers) {
            Some(at) => {
                self.found = from + at;
                true
            }
            None => false,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Keeps the old bytes of these ranges, persistently: one barrier. The caller is their writer.
    #[track_caller]
    pub(crate) fn keep(&mut self, ground: &Ground, slot: usize, log: &mut Log, ranges: &[Bytes]) -> Result<()> {
        let bytes: u64 = ranges.iter().map(|r| r.1).sum();
        let needed = 8 + 16 * ranges.len() as u64 + bytes;
        if self.extents.is_empty() {
            // The other half is for the records of extents, and for the end.
            let fits = |log: &Log| log.ring.unretired() + log.ring.takes(needed) <= log.ring.capacity() / 2;
            if !fits(log) {
                log.apply(ground)?; // earlier transactions' records make room
            }
            if fits(log) {
                return self.keep_in_ring(ground, log, ranges);
            }
        }
        self.keep_in_extent(ground, slot, log, ranges, needed)
    }

    fn keep_in_ring(&mut self, ground: &Ground, log: &mut Log, ranges: &[Bytes]) -> Result<()> {
        let mut payload = std::mem::take(&mut log.scratch);
        record::begin(&mut payload, UNDO, ranges);
        for &(offset, len) in ranges {
            // the caller is the writer of these bytes, and changes nothing while this runs.
            payload.extend_from_slice(raw::bytes(Claim::Writer, ground, &ground.pool, offset, len)?);
        }
        log.before_append();
        let appended = match log.ring.append(&[&payload]) {
            Err(PoolError::RingFull { .. }) => log.apply(ground).and_then(|()| Ok(log.ring.append(&[&payload])?)),
            other => other.map_err(Error::from),
        };
        let old = 8 + 16 * ranges.len();
        if appended.is_ok() {
            let mut at = self.dram.len();
            self.dram.extend_from_slice(&payload[old..]);
            for &range in ranges {
                self.entries.push((range, Old::Dram(at)));
                at += range.1 as usize;
            }
        }
        log.scratch = payload;
        appended?;
        log.drain(ground)?; // the old bytes, before any of the new ones can reach the media
        log.after_append(ground);
        Ok(())
    }

    #[cold]
    fn keep_in_extent(
        &mut self,
        ground: &Ground,
        slot: usize,
        log: &mut Log,
        ranges: &[Bytes],
        needed: u64,
    ) -> Result<()> {
        let space = (HEADER + needed).next_multiple_of(64);
        let room = self.extents.last().map_or(0, |e| e.block.len() - e.used);
        if room < space {
            self.add_extent(ground, slot, log, space)?;
        }
        let Some(extent) = self.extents.last_mut() else { return Ok(()) }; // just made
        let at = extent.block.offset() + extent.used;
        // the block is reserved, and locked, by this transaction alone.
        let out = raw::bytes_mut(Claim::Reserved, ground, &ground.pool, at, HEADER + needed)?;
        let (header, payload) = out.split_at_mut(HEADER as usize);
        let mut list = Vec::new();
        record::begin(&mut list, UNDO, ranges);
        payload[..list.len()].copy_from_slice(&list);
        let mut to = list.len();
        for &(offset, len) in ranges {
            // as in `keep_in_ring`; the extent's block is another one.
            let old = raw::bytes(Claim::Writer, ground, &ground.pool, offset, len)?;
            payload[to..to + old.len()].copy_from_slice(old);
            self.entries.push(((offset, len), Old::Pool(at + HEADER + to as u64)));
            to += old.len();
        }
        header[..8].copy_from_slice(&extent.key.checksum(payload).to_le_bytes());
        header[8..].copy_from_slice(&needed.to_le_bytes());
        extent.used += space;
        ground.pool.flush(at, HEADER + needed)?;
        log.drain(ground)?; // the ring's record of a new extent, too
        log.after_append(ground);
        Ok(())
    }

    fn add_extent(&mut self, ground: &Ground, slot: usize, log: &mut Log, space: u64) -> Result<()> {
        let room = |log: &Log| log.ring.unretired() + log.ring.takes(EXTENT_RECORD) + END_ROOM <= log.ring.capacity();
        if !room(log) {
            log.apply(ground)?;
        }
        if !room(log) {
            let (unretired, capacity) = (log.ring.unretired(), log.ring.capacity());
            return Err(PoolError::RingFull { unretired, capacity, wanted: EXTENT_RECORD }.into());
        }
        let last = self.extents.last().map_or(EXTENT_MIN / 2, |e| e.block.len());
        let block = ground.reserve_own(slot, (2 * last).max(space))?;
        let number = ground.pool.generation() << 40 | ground.extents.fetch_add(1, Relaxed);
        let mut payload = Vec::new();
        record::begin(&mut payload, EXTENT, &[(block.offset(), block.len())]);
        payload.extend_from_slice(&number.to_le_bytes());
        // All of the one before is durable: its last record is, before this transaction goes on.
        payload.extend_from_slice(&self.extents.last().map_or(0, |e| e.used).to_le_bytes());
        self.extents.push(Extent { block, key: ground.pool.checksum_key(number), used: 0 });
        log.before_append();
        match log.ring.append(&[&payload]) {
            Err(PoolError::RingFull { .. }) => {
                log.apply(ground)?;
                log.ring.append(&[&payload])?;
            }
            other => drop(other?),
        }
        Ok(())
    }

    /// Puts the old bytes back, the last kept first, and flushes them. The caller is their writer.
    #[track_caller]
    pub(crate) fn restore(&self, ground: &Ground) -> Result<()> {
        for &((offset, len), old) in self.entries.iter().rev() {
            match old {
                Old::Dram(at) => {
                    // the caller is the writer of these bytes.
                    let main = raw::bytes_mut(Claim::Writer, ground, &ground.pool, offset, len)?;
                    main.copy_from_slice(&self.dram[at..at + len as usize]);
                    ground.pool.flush(offset, len)?;
                }
                // the extent is ours; the caller is the writer of the range.
                Old::Pool(at) => raw::copy(Claim::Writer, &ground.pool, at, offset, len)?,
            }
        }
        Ok(())
    }

    /// Forgets everything; leaves the blocks in `freed`, to be handed out again when the records that name them are retired.
    pub(crate) fn reset(&mut self, ground: &Ground, freed: &mut Vec<Block>) {
        self.entries.clear();
        self.found = 0;
        self.dram.clear();
        for extent in self.extents.drain(..) {
            ground.after_durable(ground.retire_own(&extent.block));
            freed.push(extent.block);
        }
    }
}

/// The ranges and old bytes that an extent found at recovery holds, as places in the pool, in the order they were kept. `durable`: so many of its
/// bytes are records that were durable.
pub(crate) fn read_extent(
    ground: &Ground,
    (offset, len): Bytes,
    number: u64,
    durable: u64,
) -> Result<Vec<(Bytes, u64)>> {
    let key = ground.pool.checksum_key(number);
    let (mut found, mut at, end) = (Vec::new(), offset, offset + len);
    while let Some((bytes, ranges)) = read_record(ground, &key, at, end)? {
        found.extend(ranges);
        at += (HEADER + bytes).next_multiple_of(pmem::LINE);
    }
    let damaged = |why: String| Err(Error::Damaged { what: "old bytes of a transaction", offset: at, why });
    if at - offset < durable {
        return damaged(format!("they do not verify, and had been durable: a later extent says {durable} bytes"));
    }
    // The last of all may be torn: then nothing that it was kept for was written. One with another behind it was whole once.
    let mut behind = at;
    while behind + HEADER <= end {
        if read_record(ground, &key, behind, end)?.is_some() {
            return damaged(format!("they do not verify, but those kept later, at {behind}, do"));
        }
        behind += pmem::LINE;
    }
    Ok(found)
}

/// A record found in an extent: its payload's length; ranges, and where their old bytes are.
type Kept = (u64, Vec<(Bytes, u64)>);

/// The record at a place in an extent that ends at `end`.
fn read_record(ground: &Ground, key: &ChecksumKey, at: u64, end: u64) -> Result<Option<Kept>> {
    if at + HEADER > end {
        return Ok(None);
    }
    // nothing else uses the heap during recovery.
    let header = raw::bytes(Claim::Recovery, ground, &ground.pool, at, HEADER)?;
    let word = |from: usize| header[from..from + 8].try_into().map_or(0, u64::from_le_bytes);
    let (checksum, bytes) = (word(0), word(8));
    if bytes > end - at - HEADER {
        return Ok(None);
    }
    // as above.
    let payload = raw::bytes(Claim::Recovery, ground, &ground.pool, at + HEADER, bytes)?;
    let Some(undo) = record::decode(payload).filter(|p| p.kind == UNDO && key.checksum(payload) == checksum) else {
        return Ok(None);
    };
    let mut from = at + HEADER + bytes - undo.rest.len() as u64;
    let ranges = undo.ranges.into_iter().map(|range| {
        from += range.1;
        (range, from - range.1)
    });
    Ok(Some((bytes, ranges.collect())))
}
