//! What a crash left, finished or undone.
//!
//! In place:
//!
//! | an unretired record | action |
//! |---|---|
//! | whole, its data checksum verifies over main, or it needs none | forward: main to media; then main, and what the record carries, to backup; intents carried out |
//! | whole, its data checksum does not verify | nothing: not all of it arrived, or it was applied before its slot wrote on; the backup is right |
//! | not whole | the ring ends before it |
//!
//! Then, in this order, each behind a barrier: all records are retired; in every dirty zone main becomes what the backup is; the marks go. Retired first,
//! so that no second recovery decides anew over bytes that the first has changed. Of a heap that was closed nothing is restored: main and backup are equal there, and a
//! mark that is not clean is damaged. What it tells nothing about, no more than the mark is repaired: the backup may be damaged too.
//!
//! Eaw: [`redo`].
//!
//! Undo: after the last END of a ring the old bytes go back, last first; intents of every END are carried out; then everything is retired. Twice is
//! harmless.

mod copies;
mod in_place;
mod outcome;
mod records;
mod redo;
mod undo;

use pmem::{Error as PoolError, Recovered, Tail};
use tx::{Error, Result};

use crate::core::Core;
use crate::failpoints::Step;
use crate::options::Policy;

use records::{damaged, is_retired};

pub use outcome::Recovery;

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
    let left = copies::find(core, &mut recovery)?;
    let mut open = Vec::new();
    match core.policy {
        Policy::None => {}
        Policy::Undo => {
            for (slot, recovered) in found.iter().enumerate() {
                undo::undo(core, &mut core.logs[slot].lock(), recovered, &mut recovery)?;
            }
        }
        Policy::InPlace if backup => in_place::forward(core, found, None, &mut recovery, &mut open)?,
        Policy::InPlacePartial => in_place::forward(core, found, Some(&left), &mut recovery, &mut open)?,
        Policy::Eaw => redo::forward(core, found, &mut recovery)?,
        Policy::InPlace => {} // the other policy has retired everything
    }
    if !core.failpoints.skips(Step::OpenMarked) && core.policy == Policy::InPlace && backup {
        in_place::mark_zones(core, &open)?;
    }
    for log in &core.logs {
        core.pool.flush_set(&mut log.lock().lines)?;
    }
    if recovery.records > 0 {
        core.pool.drain()?;
    }
    if core.failpoints.skips(Step::RetireFirst) && core.policy == Policy::InPlace && backup {
        in_place::restore_zones(core, &mut recovery)?;
    }
    for (slot, recovered) in found.iter().enumerate() {
        if unretired(core, slot, recovered)? > 0 {
            core.logs[slot].lock().retire_all(core)?;
        }
    }
    if core.policy == Policy::InPlace && backup {
        match closed && !core.failpoints.skips(Step::KeepClosed) {
            true => in_place::mark_again(core, &mut recovery)?,
            false => in_place::restore_zones(core, &mut recovery)?,
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
        let dirty = in_place::dirty_zones(core)?;
        if let Some(&first) = dirty.first() {
            let (found, all) = (dirty.len(), in_place::zones(core));
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
