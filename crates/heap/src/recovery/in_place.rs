//! In place: durable records go forward; then main becomes what its second copy is, where they may differ.

use pmem::{Error as PoolError, Intent, LINE, Recovered, RingRecord};
use tx::Result;

use crate::core::Core;
use crate::failpoints::Step;
use crate::log::Log;
use crate::raw::{self, Claim};
use crate::record::{self, Bytes, COMMIT, INTENT, is_short};
use crate::regions::PAGE;
use crate::zones::Mark;

use super::copies::Left;
use super::outcome::Recovery;
use super::records::{carry_out, check_range, damaged, is_retired, whole};

/// What a transaction that was durable has written and changed in the allocator.
struct Durable {
    slot: usize,
    ranges: Vec<Bytes>,
    /// What the short ranges held.
    carried: Vec<u8>,
    intents: Vec<Intent>,
}

/// Carries out what is durable; notes what is open, or goes to the backup alone.
pub(super) fn forward(
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
        let position = found.position.get();
        let payload = whole(core, log.ring.payload(found)?, position)?;
        if is_retired(&payload) {
            continue;
        }
        if let Some(record) = record::decode(&payload).filter(|r| r.kind == INTENT) {
            record.ranges.iter().try_for_each(|&range| check_range(core, range, position))?;
            intents_of.extend(record.ranges);
            continue;
        }
        let record = record::decode(&payload).filter(|r| r.kind == COMMIT);
        let record = record.ok_or_else(|| damaged(position, "it is of no heap with a backup"))?;
        let ranges = record.ranges;
        for &range in &ranges {
            check_range(core, range, position)?;
        }
        let (carried, intents) =
            record::split_carried(&ranges, record.rest).ok_or_else(|| damaged(position, "bytes are missing"))?;
        let intents = record::intents(intents).ok_or_else(|| damaged(position, "part of an intent"))?;
        if data_arrived(core, &log, found, &ranges)? {
            durable.push(Durable { slot, ranges, carried: carried.to_vec(), intents });
            intents_of.clear();
        }
    }
    open.append(&mut intents_of);
    Ok(())
}

/// Whether everything the record stands for is in main. A record without a data checksum was written behind the data's own barrier.
fn data_arrived(core: &Core, log: &Log, found: &RingRecord, ranges: &[Bytes]) -> Result<bool> {
    let Some(checksum) = found.outside.filter(|_| !core.failpoints.skips(Step::VerifyChecksum)) else {
        return Ok(true);
    };
    let mut data = Vec::with_capacity(ranges.len());
    for &(offset, len) in ranges.iter().filter(|r| !is_short(r)) {
        // nothing else uses the heap during recovery, and nothing is written while this lasts.
        data.push(raw::bytes(Claim::Recovery, core, &core.pool, offset, len)?);
    }
    Ok(checksum == log.ring.outside_checksum(data.iter().copied()))
}

/// Marks the zones of ranges that intents tell of, or that records carry, for when these records are gone: persistent after the next drain.
pub(super) fn mark_zones(core: &Core, ranges: &[Bytes]) -> Result<()> {
    for &(offset, len) in ranges {
        let start = core.linear(offset)?;
        for zone in start / core.zones.bytes()..=(start + len.max(1) - 1) / core.zones.bytes() {
            core.zones.set_mark(zone as u32, Mark::Dirty)?; // one that is so already may be so in a cache only
        }
    }
    Ok(())
}

pub(super) fn zones(core: &Core) -> u32 {
    core.main.len().div_ceil(core.zones.bytes()) as u32
}

/// Zones that may differ from the backup.
pub(super) fn dirty_zones(core: &Core) -> Result<Vec<u32>> {
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
pub(super) fn mark_again(core: &Core, recovery: &mut Recovery) -> Result<()> {
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
pub(super) fn restore_zones(core: &Core, recovery: &mut Recovery) -> Result<()> {
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
        let Some((main, rest)) = core.main.offset(at) else { break };
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
        let Some((main, rest)) = core.main.offset(at) else { break };
        let n = rest.min(end - at).min(PAGE - at % PAGE);
        core.pieces(main, n, |main, backup, n| {
            // What is equal may be so in a cache only, left there by a process that was killed while it took a transaction back.
            if !core.failpoints.skips(Step::FlushEqual) {
                core.pool.flush(main, n)?;
            }
            // nothing else uses the heap during recovery; the slices end before anything is written.
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
