//! Records that are found in a slot's ring, whatever the policy.

use pmem::Intent;
use tx::{Error, Result};

use crate::core::Core;
use crate::failpoints::Step;
use crate::log::Log;
use crate::raw::{self, Claim};
use crate::record::{self, Bytes, RETIRED, SPILLED};

pub(super) fn is_retired(payload: &[u8]) -> bool {
    record::decode(payload).is_some_and(|r| r.kind == RETIRED)
}

pub(super) fn damaged(offset: u64, why: impl Into<String>) -> Error {
    Error::Damaged { what: "transaction record", offset, why: why.into() }
}

pub(super) fn carry_out(core: &Core, log: &mut Log, intents: &[Intent]) -> Result<()> {
    if core.failpoints.skips(Step::RecoverIntents) {
        return Ok(());
    }
    for intent in intents {
        core.alloc.apply(intent, &mut log.lines)?;
    }
    Ok(())
}

/// A payload, fetched from the block it was moved to if it was long.
pub(super) fn whole(core: &Core, payload: &[u8], position: u64) -> Result<Vec<u8>> {
    let outer = record::decode(payload).ok_or_else(|| damaged(position, "it is no transaction's"))?;
    if outer.kind != SPILLED {
        return Ok(payload.to_vec());
    }
    let &[block] = &outer.ranges[..] else { return Err(damaged(position, "the rest of it has no place")) };
    check_range(core, block, position)?;
    // nothing else uses the heap during recovery; the bytes are copied before anything is written.
    let spilled = raw::bytes(Claim::Recovery, core, &core.pool, block.0, block.1)?.to_vec();
    if outer.rest != core.pool.checksum_key(block.0).checksum(&spilled).to_le_bytes() {
        return Err(damaged(block.0, "the part of it that is among the objects does not verify"));
    }
    Ok(spilled)
}

pub(super) fn check_range(core: &Core, (offset, len): Bytes, position: u64) -> Result<()> {
    let last = offset.checked_add(len.max(1) - 1);
    let inside = |at| core.main.linear(at);
    match (inside(offset), last.and_then(inside)) {
        (Some(first), Some(last)) if last - first == len.max(1) - 1 => Ok(()),
        _ => Err(damaged(position, format!("bytes {offset}..+{len} are not the heap's"))),
    }
}
