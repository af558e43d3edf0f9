//! What opening a store does after a crash: masters become what the newest durable commit says.
//!
//! | a record | is |
//! |---|---|
//! | at or below W | done with: masters have it |
//! | at or below K | durable; its checksum over new objects is not asked for, since they may have been written back to |
//! | above K, and what it checksums is there | durable |
//! | above K, the last of its slot, and it is not | not committed: its barrier never returned. It is made void by another record |
//! | above K, another one follows, and it is not | damaged |
//! | at or below K, above W, and it is not there | damaged: the cell says how many there are |
//! | of a call, at or below K | done by the copies that the cell names, up to what it allocates and frees |
//! | of a call, above K | the call is run again (`replay`) |
//!
//! 1. The decision becomes persistent before anything else changes, so that a second recovery sees what this one saw: what is checksummed elsewhere is flushed, void records are written, barrier;
//!    K becomes the newest timestamp there is, barrier.
//! 2. What is durable is carried out in the order of commits; barrier. W becomes K; barrier.

use pmem::{Area, Error as PoolError, FlushSet, Recovered, TwoSlot};
use tx::{Error, Result};

use crate::calls::Registered;
use crate::core::Core;
use crate::durable::{Commit, What};
use crate::failpoints::Step;
use crate::pass::Upkeep;
use crate::procedures::Names;
use crate::raw::{self, Claim};
use crate::record::{self, Body, Bytes, Record};
use crate::replay;
use crate::state::State;

/// What opening a store had to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    clean: bool,
    /// Transactions carried out again: durable, and not written back.
    pub replayed: u64,
    /// Transactions whose barrier had not returned.
    pub void: u64,
    /// Bytes written to objects.
    pub restored_bytes: u64,
    /// Cells of which one copy was not whole: the other one was used, and is copied to it, unless the store is open for reading only.
    pub cells: u64,
}

impl Recovery {
    /// The store had been closed: there was nothing to do.
    pub fn was_clean(&self) -> bool {
        self.clean
    }
}

/// What was found in the logs.
#[derive(Default)]
struct Found {
    commits: Vec<Commit>,
    /// What calls at or below K have changed.
    copies: Option<Commit>,
    /// Slots and timestamps.
    void: Vec<(usize, u64)>,
    newest: u64,
}

/// Brings the store up to date. `clean`: it was closed, and nothing may be left. `procedures`: those that calls may be of.
pub(crate) fn run(
    core: &Core,
    recovered: &[Recovered],
    names: &Names,
    procedures: &[Registered],
    clean: bool,
) -> Result<Recovery> {
    let mut upkeep = core.upkeep.lock();
    let cell = &mut upkeep.cell;
    let state = cell.get();
    let mut found = Found { newest: state.durable, ..Found::default() };
    if let Some((copies, logs)) = recovered.split_last() {
        for (slot, recovered) in logs.iter().enumerate() {
            read_log(core, &state, slot, recovered, &mut found)?;
        }
        found.copies = read_copies(core, &state, logs.len(), copies)?;
    }
    let between = found.commits.iter().filter(|commit| commit.stamp <= state.durable).count() as u64;
    if between != state.between && !core.failpoints.skips(Step::SkipBelowW) {
        let (of, newest) = (state.between, state.durable);
        let why = format!("{between} of {of} commits at or below timestamp {newest} are there, which were durable");
        return Err(Error::Damaged { what: "log", offset: core.root, why });
    }
    core.tx_slots.skip(state.durable);
    if clean && let Some(commit) = found.commits.first() {
        let why = format!("the commit of timestamp {} is not written back, though the store was closed", commit.stamp);
        return Err(Error::Damaged { what: "log", offset: core.root, why });
    }
    if clean && state.durable != state.written {
        let why = format!("K is {}, and W is {}, though the store was closed", state.durable, state.written);
        return Err(Error::Damaged { what: "state of a store", offset: core.root, why });
    }
    let (void, replayed) = (found.void.len() as u64, found.commits.len() as u64);
    let mut recovery = Recovery { clean, void, replayed, ..Recovery::default() };
    if found.commits.is_empty() && found.void.is_empty() && state.durable == state.written {
        core.tx_slots.skip(found.newest);
        return Ok(recovery);
    }
    if !core.failpoints.skips(Step::CommitOrder) {
        found.commits.sort_by_key(|commit| commit.stamp);
    }
    let is_above = |commit: &Commit| commit.stamp > state.durable;
    if !found.commits.iter().any(|commit| is_above(commit) && commit.call().is_some()) {
        if !core.failpoints.skips(Step::DecideFirst) {
            decide(core, cell, &found, found.newest)?;
        }
        carry_out(core, &found.commits, found.copies.as_ref(), &mut recovery)?;
        Upkeep::write_state(cell, found.newest, found.newest, 0)?;
        core.tx_slots.skip(found.newest);
        return Ok(recovery);
    }
    let above = found.commits.partition_point(|commit| !is_above(commit));
    replay::check(core, names, procedures, &found.commits[above..])?;
    decide(core, cell, &found, state.durable)?;
    let below = if core.failpoints.skips(Step::CallsBehindK) { 0 } else { above };
    carry_out(core, &found.commits[..below], found.copies.as_ref(), &mut recovery)?;
    Upkeep::write_state(cell, state.durable, state.durable, 0)?;
    drop(upkeep);
    if !core.failpoints.skips(Step::RetireCopies) {
        // They are done with, and the next ones may need the room.
        let mut copies = core.copies().lock();
        let end = copies.ring.head();
        copies.ring.retire(end);
    }
    replay::run(core, names, procedures, &found.commits[above..])?;
    core.tx_slots.skip(found.newest);
    core.upkeep()?;
    recovery.restored_bytes += core.upkeep.lock().written_back;
    Ok(recovery)
}

// ---- read -----------------------------------------------------------------------------------------------------------

fn read_log(core: &Core, state: &State, slot: usize, recovered: &Recovered, found: &mut Found) -> Result<()> {
    let log = core.logs[slot].lock();
    let mut records = Vec::with_capacity(recovered.records.len());
    for record in &recovered.records {
        let position = record.position.get();
        let payload = log.ring.payload(record)?;
        let decoded = record::decode(payload).ok_or_else(|| damaged(position, "it is of no such store"))?;
        records.push((position, record.end, record.outside, decoded));
    }
    drop(log);
    for (number, (position, end, checksum, (stamp, record))) in records.iter().enumerate() {
        if *stamp == 0 || *stamp == u64::MAX {
            return Err(damaged(*position, "it has no timestamp"));
        }
        found.newest = found.newest.max(*stamp);
        let is_void =
            records.get(number + 1).is_some_and(|(_, _, _, (next, what))| next == stamp && *what == Record::Void);
        let is_done = *stamp <= state.written && !core.failpoints.skips(Step::SkipBelowW);
        if is_done || is_void || *record == Record::Void {
            continue;
        }
        let (body, outside) = open(core, record, *position)?;
        let holds = match checksum {
            Some(checksum) if *stamp > state.durable && !core.failpoints.skips(Step::VerifyChecksum) => {
                holds(core, slot, &outside, *checksum, *position)?
            }
            _ => true,
        };
        match (holds, body) {
            (true, Some(what)) => {
                if let What::Values(body) = &what {
                    check(core, body, *position)?;
                }
                found.commits.push(Commit { slot, stamp: *stamp, end: *end, what, outside });
            }
            (true, None) => return Err(damaged(*position, "its block holds no record")),
            (false, _) if number + 1 == records.len() => found.void.push((slot, *stamp)),
            (false, _) => return Err(damaged(*position, "what it vouches for is not there, though later commits are")),
        }
    }
    Ok(())
}

/// The copies that count.
fn read_copies(core: &Core, state: &State, slot: usize, recovered: &Recovered) -> Result<Option<Commit>> {
    if state.copied <= state.written && !core.failpoints.skips(Step::CopiesByK) {
        return Ok(None);
    }
    let log = core.logs[slot].lock();
    for record in recovered.records.iter().rev() {
        let position = record.position.get();
        let decoded = record::decode(log.ring.payload(record)?);
        let Some((stamp, Record::Writes(body))) = decoded else { return Err(damaged(position, "it holds no copies")) };
        if stamp == state.copied || core.failpoints.skips(Step::CopiesByK) {
            check(core, &body, position)?;
            let what = What::Values(body);
            return Ok(Some(Commit { slot, stamp, end: record.end, what, outside: Vec::new() }));
        }
    }
    if core.failpoints.skips(Step::CopiesByK) {
        return Ok(None);
    }
    Err(damaged(core.root, "the copies of what calls have changed are not there"))
}

/// What a record says, if it can be read, and where else the bytes are that it vouches for.
fn open(core: &Core, record: &Record, position: u64) -> Result<(Option<What>, Vec<Bytes>)> {
    let mut outside = Vec::new();
    let body = match record {
        Record::Writes(body) => Some(Body {
            ranges: body.ranges.clone(),
            new: body.new.clone(),
            intents: body.intents.clone(),
            data: body.data.clone(),
        }),
        Record::Spilled(block) => {
            check_range(core, *block, position)?;
            outside.push(*block);
            // nothing else uses the store while it is opened.
            record::body(raw::bytes(Claim::Alone, core, &core.pool, block.0, block.1)?)
        }
        Record::Call(call) => return Ok((Some(What::Call(call.clone())), outside)),
        Record::Void => None,
    };
    for &new in body.iter().flat_map(|body| &body.new) {
        if check_range(core, new, position).is_err() && outside.is_empty() {
            return Err(damaged(position, "a new object lies outside of the store"));
        }
        outside.push(new);
    }
    Ok((body.map(What::Values), outside))
}

/// Whether the bytes are there that a record vouches for.
fn holds(core: &Core, slot: usize, outside: &[Bytes], checksum: u64, position: u64) -> Result<bool> {
    let mut bytes = Vec::with_capacity(outside.len());
    for &range in outside {
        if check_range(core, range, position).is_err() {
            return Ok(false); // read from a block that did not arrive
        }
        // nothing else uses the store while it is opened, and nothing is written while this lasts.
        bytes.push(raw::bytes(Claim::Alone, core, &core.pool, range.0, range.1)?);
    }
    Ok(core.logs[slot].lock().ring.outside_checksum(bytes.into_iter()) == checksum)
}

fn check(core: &Core, body: &Body, position: u64) -> Result<()> {
    body.ranges.iter().chain(&body.new).try_for_each(|range| check_range(core, *range, position))
}

/// An error unless the range lies in the space for blocks.
fn check_range(core: &Core, (offset, len): Bytes, position: u64) -> Result<()> {
    let is_inside = |space: &std::ops::Range<u64>| {
        space.start <= offset && offset.checked_add(len).is_some_and(|end| end <= space.end)
    };
    if core.alloc.spaces().iter().any(is_inside) {
        return Ok(());
    }
    Err(damaged(position, "a range lies outside of the store"))
}

#[cold]
fn damaged(position: u64, why: &str) -> Error {
    Error::Damaged { what: "record of a log", offset: position, why: why.to_owned() }
}

// ---- change ---------------------------------------------------------------------------------------------------------

/// Makes persistent what was found, and that all through `durable` is.
fn decide(core: &Core, cell: &mut TwoSlot<State>, found: &Found, durable: u64) -> Result<()> {
    for &(offset, len) in found.commits.iter().flat_map(|commit| &commit.outside) {
        core.pool.flush(offset, len)?; // it may stand in a cache only
    }
    if !core.failpoints.skips(Step::VoidFirst) {
        for &(slot, stamp) in &found.void {
            core.logs[slot].lock().ring.append(&[&record::void(stamp)])?;
        }
    }
    let persisted = core.pool.drain()?; // the decision, before K says that it was made
    core.logs.iter().for_each(|log| log.lock().ring.forced(&persisted));
    let between = found.commits.iter().filter(|commit| commit.stamp <= durable).count() as u64;
    Upkeep::write_state(cell, durable, cell.get().written, between)
}

fn carry_out(core: &Core, commits: &[Commit], copies: Option<&Commit>, recovery: &mut Recovery) -> Result<()> {
    let mut lines = FlushSet::default();
    // What was committed behind the copies changes the same objects again.
    let is_before =
        |commit: &Commit| copies.is_none_or(|c| commit.stamp <= c.stamp) || core.failpoints.skips(Step::CopiesInOrder);
    let (before, behind) = commits.split_at(commits.partition_point(is_before));
    for commit in before.iter().chain(copies).chain(behind) {
        commit.intents().iter().try_for_each(|intent| core.alloc.apply(intent, &mut lines))?;
        let What::Values(body) = &commit.what else { continue }; // the copies have it
        let mut data = &body.data[..];
        for &(offset, len) in &body.ranges {
            let (bytes, rest) = data.split_at(len as usize);
            // nothing else uses the store while it is opened.
            raw::bytes_mut(Claim::Alone, core, &core.pool, offset, len)?.copy_from_slice(bytes);
            core.pool.flush(offset, len)?;
            recovery.restored_bytes += len;
            data = rest;
        }
    }
    core.pool.flush_set(&mut lines)?;
    core.pool.drain()?;
    Ok(())
}

/// The records are done with: the logs begin anew.
pub(crate) fn empty_logs(core: &Core, recovered: &[Recovered]) -> Result<()> {
    for (log, recovered) in core.logs.iter().zip(recovered) {
        let mut log = log.lock();
        if recovered.records.is_empty() {
            continue;
        }
        log.ring.force()?;
        let end = log.ring.head();
        log.ring.retire(end);
    }
    Ok(())
}

/// The area of the logs, cut into those of the slots.
pub(crate) fn split(mut rest: Area, slots: u64, log_bytes: u64) -> Result<Vec<Area>, PoolError> {
    let mut areas = Vec::new();
    for _ in 0..slots {
        let (area, behind) = rest.split_at(log_bytes)?;
        areas.push(area);
        rest = behind;
    }
    Ok(areas)
}
