//! What a crash left, finished or undone.
//!
//! In place:
//!
//! | an unretired record | action |
//! |---|---|
//! | whole, its data checksum verifies over main, or it needs none | forward: main to media; then main, and what the record carries, to backup; intents carried out |
//! | whole, its data checksum does not verify | nothing: not all of it arrived, or it was settled before its slot wrote on; the backup is right |
//! | not whole | the ring ends before it |
//!
//! Then, in this order, each behind a barrier: all records are retired; in every dirty zone main becomes what the backup is; the marks go. Retired first,
//! so that no second recovery decides anew over bytes that the first has changed. Of a heap that was closed nothing is restored: main and backup are equal there, and a
//! mark that is not clean is damaged. What it tells nothing about, no more than the mark is repaired: the backup may be damaged too.
//!
//! Eaw: [`redo`](crate::redo).
//!
//! Undo: after the last END of a ring the old bytes go back, last first; intents of every END are carried out; then everything is retired. Twice is
//! harmless.

use pmem::{Error as PoolError, Intent, Recovered, RingRecord, Tail};
use tx::{Error, Result};

use crate::core::Core;
use crate::failpoints::Step;
use crate::log::Log;
use crate::options::Policy;
use crate::partial::{self, Left};
use crate::raw::{self, Claim};
use crate::record::{self, Bytes, COMMIT, END, EXTENT, INTENT, RETIRED, SPILLED, UNDO, is_short};
use crate::redo;
use crate::undo::read_extent;
use crate::zones::{Mark, PAGE};

/// What opening a heap had to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Records of transactions found.
    pub records: u64,
    /// Of these, transactions that were durable and finished.
    pub finished: u64,
    /// Transactions whose changes were taken back from kept old bytes.
    pub undone: u64,
    /// Zones compared with the backup.
    pub zones: u64,
    /// Objects, or segments of them, compared with their copies.
    pub copies: u64,
    /// Bytes of main that were replaced.
    pub restored_bytes: u64,
    /// Places of records that are not whole at the end of a slot's log: never acknowledged, or the last acknowledged one, damaged since.
    pub in_doubt: Vec<u64>,
    /// Places of copies that are not whole: they were being made, or they are damaged and their objects could not be taken back.
    pub copies_in_doubt: Vec<u64>,
}

impl Recovery {
    /// True if the heap was as a clean close leaves it.
    pub fn was_clean(&self) -> bool {
        self.records == 0
            && self.zones == 0
            && self.copies == 0
            && self.in_doubt.is_empty()
            && self.copies_in_doubt.is_empty()
    }
}

const LINE: u64 = pmem::LINE;

/// Finishes or undoes what the rings and marks tell of. `backup` says whether the backup follows main, `closed` that nothing is left to be done.
pub(crate) fn run(core: &Core, found: &[Recovered], backup: bool, closed: bool) -> Result<Recovery> {
    let mut recovery = Recovery::default();
    for (slot, recovered) in found.iter().enumerate() {
        recovery.records += unretired(core, slot, recovered)?;
        if let Tail::InDoubt { offset } = recovered.tail {
            recovery.in_doubt.push(offset);
        }
    }
    if core.pool.is_read_only() && recovery.records > 0 {
        return Err(PoolError::NeedsRecovery { path: core.pool.path().to_owned() }.into());
    }
    let left = partial::find(core, &mut recovery)?;
    let mut open = Vec::new();
    match core.policy {
        Policy::None => {}
        Policy::Undo => {
            for (slot, recovered) in found.iter().enumerate() {
                undo(core, &mut core.logs[slot].lock(), recovered, &mut recovery)?;
            }
        }
        Policy::InPlace if backup => forward(core, found, None, &mut recovery, &mut open)?,
        Policy::InPlacePartial => forward(core, found, Some(&left), &mut recovery, &mut open)?,
        Policy::Eaw => redo::forward(core, found, &mut recovery)?,
        Policy::InPlace => {} // the other policy has retired everything
    }
    if !core.failpoints.skips(Step::OpenMarked) && core.policy == Policy::InPlace && backup {
        mark_zones(core, &open)?;
    }
    for log in &core.logs {
        core.pool.flush_set(&mut log.lock().lines)?;
    }
    if recovery.records > 0 {
        core.pool.drain()?;
    }
    if core.failpoints.skips(Step::RetireFirst) && core.policy == Policy::InPlace && backup {
        restore_zones(core, &mut recovery)?;
    }
    for (slot, recovered) in found.iter().enumerate() {
        if unretired(core, slot, recovered)? > 0 {
            core.logs[slot].lock().retire_all(core)?;
        }
    }
    if core.policy == Policy::InPlace && backup {
        match closed && !core.failpoints.skips(Step::KeepClosed) {
            true => mark_again(core, &mut recovery)?,
            false => restore_zones(core, &mut recovery)?,
        }
    }
    left.restore(core, &mut recovery)?;
    Ok(recovery)
}

/// A heap that was closed has retired every record, and cleaned every zone. A record that stands there is of an earlier time: a page of the log went back,
/// and what it tells has long been overwritten. A mark that is not clean is damaged; if the heap is open for writing, recovery repairs that.
pub(crate) fn nothing_left(core: &Core, found: &[Recovered], backup: bool) -> Result<()> {
    for (slot, recovered) in found.iter().enumerate() {
        if let Some(first) = recovered.records.first()
            && unretired(core, slot, recovered)? > 0
        {
            return Err(damaged(first.position.get(), format!("slot {slot} has it, though the heap was closed")));
        }
    }
    if core.policy == Policy::InPlace && backup && core.pool.is_read_only() {
        let dirty = dirty_zones(core)?;
        if let Some(&first) = dirty.first() {
            let (found, all) = (dirty.len(), zones(core));
            let why = format!(
                "{found} of {all} zones are not marked clean, though the heap was closed: `cairn check --repair` compares them with their backup"
            );
            return Err(Error::Damaged { what: "mark of a zone", offset: core.zones.at(first)?, why });
        }
    }
    Ok(())
}

/// Records of the slot that stand for something.
fn unretired(core: &Core, slot: usize, recovered: &Recovered) -> Result<u64> {
    let log = core.logs[slot].lock();
    let mut count = 0;
    for found in &recovered.records {
        count += u64::from(!is_retired(log.ring.payload(found)?));
    }
    Ok(count)
}

pub(crate) fn is_retired(payload: &[u8]) -> bool {
    record::decode(payload).is_some_and(|r| r.kind == RETIRED)
}

pub(crate) fn damaged(offset: u64, why: impl Into<String>) -> Error {
    Error::Damaged { what: "transaction record", offset, why: why.into() }
}

// ---- in place -------------------------------------------------------------------------------------------------------

/// What a transaction that was durable has written and changed in the allocator.
struct Durable {
    slot: usize,
    ranges: Vec<Bytes>,
    /// What the short ranges held.
    carried: Vec<u8>,
    intents: Vec<Intent>,
}

/// Carries out what is durable; notes what is open, or goes to the backup alone.
fn forward(
    core: &Core,
    found: &[Recovered],
    left: Option<&Left>,
    recovery: &mut Recovery,
    open: &mut Vec<Bytes>,
) -> Result<()> {
    let mut durable = Vec::new();
    for (slot, recovered) in found.iter().enumerate() {
        find_durable(core, slot, recovered, &mut durable, open)?;
    }
    open.extend(durable.iter().flat_map(|d| &d.ranges).filter(|r| is_short(r)));
    recovery.finished += durable.len() as u64;
    // What verified may stand in a cache only. It is on media before the backup follows: else a crash could leave a part of it in both. So is
    // that copies are sure, before they change.
    for &(offset, len) in durable.iter().flat_map(|d| &d.ranges).filter(|r| !is_short(r)) {
        core.pool.flush(offset, len)?;
    }
    if !durable.is_empty() && !core.failpoints.skips(Step::MainFirst) {
        core.pool.drain()?;
    }
    for Durable { slot, ranges, carried, intents } in &durable {
        let log = &mut core.logs[*slot].lock();
        if let Some(left) = left {
            left.forward(core, ranges, carried)?;
            carry_out(core, log, intents)?;
            continue;
        }
        let mut carried = &carried[..];
        for range in ranges {
            if !is_short(range) {
                core.copy_to_backup(range.0, range.1)?;
                continue;
            }
            // To the backup alone: in main a later record of the slot may have verified over these bytes. Main will follow.
            let (image, rest) = carried.split_at(range.1 as usize);
            if !core.failpoints.skips(Step::RecoverCarried) {
                core.put_in_backup(range.0, image, &mut log.lines)?;
            }
            carried = rest;
        }
        carry_out(core, log, intents)?;
    }
    Ok(())
}

fn find_durable(
    core: &Core,
    slot: usize,
    recovered: &Recovered,
    durable: &mut Vec<Durable>,
    open: &mut Vec<Bytes>,
) -> Result<()> {
    let log = core.logs[slot].lock();
    let mut intents_of = Vec::new();
    for found in &recovered.records {
        let place = found.position.get();
        let payload = whole(core, log.ring.payload(found)?, place)?;
        if is_retired(&payload) {
            continue;
        }
        if let Some(record) = record::decode(&payload).filter(|r| r.kind == INTENT) {
            record.ranges.iter().try_for_each(|&range| check_range(core, range, place))?;
            intents_of.extend(record.ranges);
            continue;
        }
        let record = record::decode(&payload).filter(|r| r.kind == COMMIT);
        let record = record.ok_or_else(|| damaged(place, "it is of no heap with a backup"))?;
        let ranges = record.ranges;
        for &range in &ranges {
            check_range(core, range, place)?;
        }
        let (carried, intents) =
            record::split_carried(&ranges, record.rest).ok_or_else(|| damaged(place, "bytes are missing"))?;
        let intents = record::intents(intents).ok_or_else(|| damaged(place, "part of an intent"))?;
        if data_arrived(core, &log, found, &ranges)? {
            durable.push(Durable { slot, ranges, carried: carried.to_vec(), intents });
            intents_of.clear();
        }
    }
    open.append(&mut intents_of);
    Ok(())
}

pub(crate) fn carry_out(core: &Core, log: &mut Log, intents: &[Intent]) -> Result<()> {
    if core.failpoints.skips(Step::RecoverIntents) {
        return Ok(());
    }
    for intent in intents {
        core.alloc.apply(intent, &mut log.lines)?;
    }
    Ok(())
}

/// A payload, fetched from the block it was moved to if it was long.
pub(crate) fn whole(core: &Core, payload: &[u8], place: u64) -> Result<Vec<u8>> {
    let outer = record::decode(payload).ok_or_else(|| damaged(place, "it is no transaction's"))?;
    if outer.kind != SPILLED {
        return Ok(payload.to_vec());
    }
    let &[block] = &outer.ranges[..] else { return Err(damaged(place, "the rest of it has no place")) };
    check_range(core, block, place)?;
    // nobody else has the heap during recovery; the bytes are copied before anything is written.
    let spilled = raw::bytes(Claim::Recovery, core, &core.pool, block.0, block.1)?.to_vec();
    if outer.rest != core.pool.checksum_key(block.0).checksum(&spilled).to_le_bytes() {
        return Err(damaged(block.0, "the part of it that is among the objects does not verify"));
    }
    Ok(spilled)
}

/// Whether everything the record stands for is in main. A record without a data checksum was written behind the data's own barrier.
fn data_arrived(core: &Core, log: &Log, found: &RingRecord, ranges: &[Bytes]) -> Result<bool> {
    let Some(checksum) = found.outside.filter(|_| !core.failpoints.skips(Step::VerifyChecksum)) else {
        return Ok(true);
    };
    let mut data = Vec::with_capacity(ranges.len());
    for &(offset, len) in ranges.iter().filter(|r| !is_short(r)) {
        // nobody else has the heap during recovery, and nothing is written while this lasts.
        data.push(raw::bytes(Claim::Recovery, core, &core.pool, offset, len)?);
    }
    Ok(checksum == log.ring.outside_checksum(data.iter().copied()))
}

pub(crate) fn check_range(core: &Core, (offset, len): Bytes, place: u64) -> Result<()> {
    let last = offset.checked_add(len.max(1) - 1);
    let inside = |at| core.main.linear(at);
    match (inside(offset), last.and_then(inside)) {
        (Some(first), Some(last)) if last - first == len.max(1) - 1 => Ok(()),
        _ => Err(damaged(place, format!("bytes {offset}..+{len} are not the heap's"))),
    }
}

/// Marks the zones of ranges that intents tell of, or that records carry, for when these records are gone: persistent after the next drain.
fn mark_zones(core: &Core, ranges: &[Bytes]) -> Result<()> {
    for &(offset, len) in ranges {
        let start = core.linear(offset)?;
        for zone in start / core.zones.bytes()..=(start + len.max(1) - 1) / core.zones.bytes() {
            core.zones.set_mark(zone as u32, Mark::Dirty)?; // one that is so already may be so in a cache only
        }
    }
    Ok(())
}

fn zones(core: &Core) -> u32 {
    core.main.len().div_ceil(core.zones.bytes()) as u32
}

/// Zones that may differ from the backup.
fn dirty_zones(core: &Core) -> Result<Vec<u32>> {
    let mut dirty = Vec::new();
    for zone in 0..zones(core) {
        if core.zones.mark(zone)? == Mark::Dirty {
            dirty.push(zone);
        }
    }
    Ok(dirty)
}

/// Marks every zone clean again: persistent after the next drain. With checksums if only the second mark of it is damaged; else scrubbing keeps them anew, where both copies
/// are equal.
fn mark_again(core: &Core, recovery: &mut Recovery) -> Result<()> {
    let dirty = dirty_zones(core)?;
    if core.pool.is_read_only() && !dirty.is_empty() {
        return Err(PoolError::NeedsRecovery { path: core.pool.path().to_owned() }.into());
    }
    for zone in dirty {
        recovery.zones += 1;
        let mark = if core.zones.has_sums(zone)? { Mark::Summed } else { Mark::Clean };
        core.zones.set_mark(zone, mark)?;
    }
    Ok(())
}

/// Makes main what the backup is, wherever they may differ. One barrier, none if no zone is dirty.
fn restore_zones(core: &Core, recovery: &mut Recovery) -> Result<()> {
    let dirty = dirty_zones(core)?;
    if dirty.is_empty() {
        return Ok(());
    }
    if core.pool.is_read_only() {
        return Err(PoolError::NeedsRecovery { path: core.pool.path().to_owned() }.into());
    }
    dirty.iter().take(AHEAD).for_each(|&zone| will_need(core, zone));
    for (n, &zone) in dirty.iter().enumerate() {
        if let Some(&later) = dirty.get(n + AHEAD) {
            will_need(core, later);
        }
        let start = u64::from(zone) * core.zones.bytes();
        let end = (start + core.zones.bytes()).min(core.main.len());
        recovery.restored_bytes += restore(core, start, end)?;
        recovery.zones += 1;
    }
    core.pool.drain()?;
    for &zone in &dirty {
        core.zones.set_mark(zone, Mark::Clean)?; // with the next barrier: until then it costs time at most
    }
    Ok(())
}

/// Zones that a disk reads ahead.
const AHEAD: usize = 4;

fn will_need(core: &Core, zone: u32) {
    let mut at = u64::from(zone) * core.zones.bytes();
    let end = (at + core.zones.bytes()).min(core.main.len());
    while at < end {
        let Some((main, rest)) = core.main.place(at) else { break };
        let n = rest.min(end - at);
        core.pool.will_need(main, n);
        // It is an error when the zone itself is restored.
        let _ = core.pieces(main, n, |_, backup, n| {
            core.pool.will_need(backup, n);
            Ok(())
        });
        at += n;
    }
}

/// Restores these bytes of the line; returns how many differed, in whole lines.
fn restore(core: &Core, start: u64, end: u64) -> Result<u64> {
    let mut restored = 0;
    let mut at = start;
    while at < end {
        let Some((main, rest)) = core.main.place(at) else { break };
        let n = rest.min(end - at).min(PAGE - at % PAGE);
        core.pieces(main, n, |main, backup, n| {
            // What is equal may be so in a cache only, left there by a process that was killed while it took a transaction back.
            if !core.failpoints.skips(Step::FlushEqual) {
                core.pool.flush(main, n)?;
            }
            // nobody else has the heap during recovery; the slices end before anything is written.
            let same = raw::bytes(Claim::Recovery, core, &core.pool, main, n)?
                == raw::bytes(Claim::Recovery, core, &core.pool, backup, n)?;
            if same {
                return Ok(());
            }
            for from in (0..n).step_by(LINE as usize) {
                let len = LINE.min(n - from);
                // as above.
                {
                    if raw::bytes(Claim::Recovery, core, &core.pool, main + from, len)?
                        != raw::bytes(Claim::Recovery, core, &core.pool, backup + from, len)?
                    {
                        raw::copy(Claim::Recovery, &core.pool, backup + from, main + from, len)?;
                        restored += len;
                    }
                }
            }
            Ok(())
        })?;
        at += n;
    }
    Ok(restored)
}

// ---- undo -----------------------------------------------------------------------------------------------------------

/// A block with more old bytes, and how many of its bytes the extent behind it knows to be durable.
struct Extent {
    block: Bytes,
    number: u64,
    durable: u64,
}

fn two_words(bytes: &[u8]) -> Option<(u64, u64)> {
    let (first, second) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*first), u64::from_le_bytes(second.try_into().ok()?)))
}

fn undo(core: &Core, log: &mut Log, recovered: &Recovered, recovery: &mut Recovery) -> Result<()> {
    // Old bytes of the transaction that has not ended, as they were kept.
    let mut open: Vec<(Bytes, Vec<u8>)> = Vec::new();
    // Behind those, as all of them were.
    let mut extents: Vec<Extent> = Vec::new();
    for found in &recovered.records {
        let place = found.position.get();
        let payload = whole(core, log.ring.payload(found)?, place)?;
        let record = record::decode(&payload).ok_or_else(|| damaged(place, "it is no transaction's"))?;
        match record.kind {
            UNDO => {
                let mut rest = record.rest;
                for range in record.ranges {
                    check_range(core, range, place)?;
                    let (old, after) = rest
                        .split_at_checked(range.1 as usize)
                        .ok_or_else(|| damaged(place, "old bytes are missing"))?;
                    open.push((range, old.to_vec()));
                    rest = after;
                }
            }
            EXTENT => {
                let (&[block], Some((number, before))) = (&record.ranges[..], two_words(record.rest)) else {
                    return Err(damaged(place, "an extent without a place"));
                };
                check_range(core, block, place)?;
                if let Some(last) = extents.last_mut() {
                    last.durable = before;
                }
                extents.push(Extent { block, number, durable: 0 });
            }
            END => {
                recovery.finished += 1;
                open.clear();
                extents.clear();
                let intents = record::intents(record.rest).ok_or_else(|| damaged(place, "part of an intent"))?;
                carry_out(core, log, &intents)?;
            }
            RETIRED => {}
            kind => return Err(damaged(place, format!("kind {kind} in a heap with undo"))),
        }
    }
    for Extent { block, number, durable } in extents {
        for (range, from) in read_extent(core, block, number, durable)? {
            check_range(core, range, block.0)?;
            // nobody else has the heap during recovery; copied before anything is written.
            open.push((range, raw::bytes(Claim::Recovery, core, &core.pool, from, range.1)?.to_vec()));
        }
    }
    recovery.undone += u64::from(!open.is_empty());
    for ((offset, len), old) in open.iter().rev() {
        // nobody else has the heap during recovery.
        raw::bytes_mut(Claim::Recovery, core, &core.pool, *offset, *len)?.copy_from_slice(old);
        core.pool.flush(*offset, *len)?;
        recovery.restored_bytes += len;
    }
    Ok(())
}
