//! Undo: the old bytes of a transaction that has not ended go back.

use pmem::Recovered;
use tx::Result;

use crate::core::Core;
use crate::log::Log;
use crate::raw::{self, Claim};
use crate::record::{self, Bytes, END, EXTENT, RETIRED, UNDO};
use crate::undo::read_extent;

use super::outcome::Recovery;
use super::records::{carry_out, check_range, damaged, whole};

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

/// Puts the old bytes back of a transaction that has not ended.
pub(super) fn undo(core: &Core, log: &mut Log, recovered: &Recovered, recovery: &mut Recovery) -> Result<()> {
    // Old bytes of the transaction that has not ended, as they were kept.
    let mut open: Vec<(Bytes, Vec<u8>)> = Vec::new();
    // Behind those, as all of them were.
    let mut extents: Vec<Extent> = Vec::new();
    for found in &recovered.records {
        let position = found.position.get();
        let payload = whole(core, log.ring.payload(found)?, position)?;
        let record = record::decode(&payload).ok_or_else(|| damaged(position, "it is no transaction's"))?;
        match record.kind {
            UNDO => {
                let mut rest = record.rest;
                for range in record.ranges {
                    check_range(core, range, position)?;
                    let (old, after) = rest
                        .split_at_checked(range.1 as usize)
                        .ok_or_else(|| damaged(position, "old bytes are missing"))?;
                    open.push((range, old.to_vec()));
                    rest = after;
                }
            }
            EXTENT => {
                let (&[block], Some((number, before))) = (&record.ranges[..], two_words(record.rest)) else {
                    return Err(damaged(position, "an extent without a place"));
                };
                check_range(core, block, position)?;
                if let Some(last) = extents.last_mut() {
                    last.durable = before;
                }
                extents.push(Extent { block, number, durable: 0 });
            }
            END => {
                recovery.finished += 1;
                open.clear();
                extents.clear();
                let intents = record::intents(record.rest).ok_or_else(|| damaged(position, "part of an intent"))?;
                carry_out(core, log, &intents)?;
            }
            RETIRED => {}
            kind => return Err(damaged(position, format!("kind {kind} in a heap with undo"))),
        }
    }
    for Extent { block, number, durable } in extents {
        for (range, from) in read_extent(core, block, number, durable)? {
            check_range(core, range, block.0)?;
            // nothing else uses the heap during recovery; copied before anything is written.
            open.push((range, raw::bytes(Claim::Recovery, core, &core.pool, from, range.1)?.to_vec()));
        }
    }
    recovery.undone += u64::from(!open.is_empty());
    for ((offset, len), old) in open.iter().rev() {
        // nothing else uses the heap during recovery.
        raw::bytes_mut(Claim::Recovery, core, &core.pool, *offset, *len)?.copy_from_slice(old);
        core.pool.flush(*offset, *len)?;
        recovery.restored_bytes += len;
    }
    Ok(())
}
