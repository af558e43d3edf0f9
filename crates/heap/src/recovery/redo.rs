//! Policy `eaw`: what durable records carry goes to main.
//!
//! A slot's last record is held against its checksum, and no other: a slot begins a record when the one before is durable, data and all. So it does not matter that a later
//! record changes bytes that an earlier one has the checksum of.

use pmem::{Intent, Recovered};
use tx::Result;

use crate::core::Core;
use crate::failpoints::Step;
use crate::raw::{self, Claim};
use crate::record::{self, Bytes, REDO};

use super::outcome::Recovery;
use super::records::{carry_out, check_range, damaged, is_retired, whole};

/// What a transaction that was durable has written and changed in the allocator.
struct Durable {
    slot: usize,
    ranges: Vec<Bytes>,
    /// Bytes that its record vouches for, elsewhere than in the ring.
    outside: Vec<Bytes>,
    /// What the ranges held, one behind the other.
    carried: Vec<u8>,
    intents: Vec<Intent>,
}

/// Stores in main what the records say that are whole, in the order of each slot. Of two slots none has a record about the same object.
pub(super) fn forward(core: &Core, found: &[Recovered], recovery: &mut Recovery) -> Result<()> {
    let mut durable = Vec::new();
    for (slot, recovered) in found.iter().enumerate() {
        find_durable(core, slot, recovered, &mut durable)?;
    }
    recovery.finished += durable.len() as u64;
    // What verified may stand in a cache only. It is on media before main changes: else a crash could leave a part of a transaction, and nothing that tells the rest.
    if !core.failpoints.skips(Step::MainFirst) {
        for &(offset, len) in durable.iter().flat_map(|d| &d.outside) {
            core.pool.flush(offset, len)?;
        }
        if durable.iter().any(|d| !d.outside.is_empty()) {
            core.pool.drain()?;
        }
    }
    for Durable { slot, ranges, carried, intents, .. } in &durable {
        let mut carried = &carried[..];
        for &(offset, len) in ranges {
            let (bytes, rest) = carried.split_at(len as usize);
            // nothing else uses the heap during recovery.
            raw::bytes_mut(Claim::Recovery, core, &core.pool, offset, len)?.copy_from_slice(bytes);
            core.pool.flush(offset, len)?;
            recovery.restored_bytes += len;
            carried = rest;
        }
        carry_out(core, &mut core.logs[*slot].lock(), intents)?;
    }
    Ok(())
}

fn find_durable(core: &Core, slot: usize, recovered: &Recovered, durable: &mut Vec<Durable>) -> Result<()> {
    let log = core.logs[slot].lock();
    for (number, found) in recovered.records.iter().enumerate() {
        let is_last = number + 1 == recovered.records.len();
        let position = found.position.get();
        let payload = log.ring.payload(found)?;
        if is_retired(payload) {
            continue;
        }
        let mut outside = Vec::new();
        outside.extend(record::decode(payload).filter(|r| r.kind == record::SPILLED).map_or(Vec::new(), |r| r.ranges));
        let payload = whole(core, payload, position)?;
        let record = record::decode(&payload).filter(|r| r.kind == REDO);
        let record = record.ok_or_else(|| damaged(position, "it is of no heap with policy eaw"))?;
        let (ranges, mut rest) = (record.ranges, record.rest);
        let mut arrived = true;
        if let Some(checksum) = found.outside {
            let (new, behind) = record::split_ranges(rest).ok_or_else(|| damaged(position, "ranges are missing"))?;
            rest = behind;
            let mut data = Vec::with_capacity(new.len());
            for &(offset, len) in &new {
                check_range(core, (offset, len), position)?;
                // nothing else uses the heap during recovery, and nothing is written while this lasts.
                data.push(raw::bytes(Claim::Recovery, core, &core.pool, offset, len)?);
            }
            let holds = || {
                checksum == log.ring.outside_checksum(data.iter().copied())
                    || core.failpoints.skips(Step::VerifyChecksum)
            };
            arrived = !is_last && !core.failpoints.skips(Step::OnlyLast) || holds();
            outside.extend(new);
        }
        let mut bytes: u64 = 0;
        for &range in &ranges {
            check_range(core, range, position)?;
            bytes = bytes.saturating_add(range.1);
        }
        let split = usize::try_from(bytes).ok().and_then(|bytes| rest.split_at_checked(bytes));
        let (carried, intents) = split.ok_or_else(|| damaged(position, "bytes are missing"))?;
        let intents = record::intents(intents).ok_or_else(|| damaged(position, "part of an intent"))?;
        if arrived {
            durable.push(Durable { slot, ranges, outside, carried: carried.to_vec(), intents });
        }
    }
    Ok(())
}
