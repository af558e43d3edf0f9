//! Removals in steps, each of them durable, while no other client looks: `FLUSHALL` of many keys, and transactions that take out more than a full store has room to
//! say at once.
//!
//! A transaction has a record for each key that it deletes. Where these find no room, what is to go is noted as ranges of keys, in some bytes for each run of
//! neighbours, or as a [sieve], in one bit or two for each key that is there, if that is shorter: then a note takes a hundredth of the store at most, whatever goes. The first step has that note and all that the transaction sets, with as many deletions as make up for both if they take room; the last one removes the note.
//!
//! ```text
//!   the first step is refused     nothing is done, and nothing is left to do
//!   a later one is                it is halved, down to one key; of a collection that key's elements go first, which takes no note of them
//!   that one, too                 what has yet to go is hidden, others read and delete what they like, and it goes on when there is room
//!   the server starts again       it goes on, or hides what has yet to go
//! ```
//!
//! So any reader sees all of the transaction, or nothing.

mod gate;
mod hidden;
mod note;
mod plan;
mod record;
mod run;
mod sieve;
#[cfg(test)]
pub(crate) mod tests;

use std::ops::{Bound, ControlFlow};

use tx::Keys;

pub(crate) use self::gate::{Closed, Gate, Inside};
pub(crate) use self::hidden::{Hidden, Hiding};
pub(crate) use self::note::keep_spare;
pub(crate) use self::record::Brief;

use self::note::Kind;
use self::plan::Plan;
use self::record::{Changes, record};
use self::run::Run;
use crate::clock::now;
use crate::data::{DATABASES, GARBAGE, Head};
use crate::engine::{Engine, Error, Result, Tx};
use crate::random::RandomSeed;

/// Bytes of the records of deletions that are worth steps.
const WORTH: u64 = 2 << 10;
/// Keys of a step, and bytes of its records for each of them.
const STEP: usize = 768;
const STEP_BYTES: u64 = 64;
/// Steps without trouble before they are made larger again.
const GOOD: u32 = 8;
/// Elements of a collection that go at once before their head does.
const ELEMENTS: usize = 256;
/// Keys that stay, and that a step passes by, at most.
const PASSED: usize = 16 << 10;
/// Bytes of a note.
const NOTE_MAX: usize = 64 << 20;
/// Bytes that a record takes beside its key and value, at least, and at most.
const RECORD: (u64, u64) = (40, 72);
/// What the first step gives, in halves of what it takes: the store knows long records by about how long they are.
const GAINS: [u64; 2] = [3, 8];

/// Whether it would do with less.
fn is_no_room(error: &Error) -> bool {
    matches!(error, Error::Full(_) | Error::Memory(_) | Error::LogFull(_) | Error::Limit(_))
}

/// Whether it will do later.
fn is_for_later(error: &Error) -> bool {
    is_no_room(error) || matches!(error, Error::Conflict(_) | Error::Again)
}

/// All keys of these databases.
fn runs_of(databases: &[u8]) -> Vec<Run> {
    databases.iter().map(|database| Run::new(vec![*database], None, true)).collect()
}

/// Where something is removed in steps.
pub(crate) struct Site<'s> {
    pub(crate) engine: &'s dyn Engine,
    /// What all others pass.
    pub(crate) gate: &'s Gate,
    /// Asks those inside that take long to leave.
    pub(crate) ask: &'s dyn Fn(),
}

impl Site<'_> {
    /// No transaction is inside any more.
    fn close(&self) -> Closed<'_> {
        self.gate.close(self.ask)
    }
}

// ---- begin ------------------------------------------------------------------------------------------------------

/// A transaction that was refused room, or has so much to remove that it would be, in steps: true if that is how it was done, false if it takes nothing much out, or the
/// store has no room to note it. The caller is not inside the gate; it may know that the steps are worth it.
pub(crate) fn in_steps(
    site: &Site<'_>,
    is_worth_it: bool,
    attempt: &mut dyn FnMut(&mut dyn Tx) -> Result<()>,
) -> Result<bool> {
    let inside = site.gate.enter();
    let waits = inside.hidden().is_some();
    if waits || !is_worth_it && !record(site.engine, now(), attempt)?.is_worth_steps(WORTH) {
        return Ok(false);
    }
    drop(inside);
    let closed = site.close();
    if closed.hidden().is_some() {
        return Ok(false);
    }
    let changes = record(site.engine, now(), attempt)?;
    let runs = match begin(site.engine, changes) {
        Ok(Some(runs)) => runs,
        Ok(None) => return Ok(false),
        Err(error) if is_no_room(&error) => return Ok(false),
        Err(error) => return Err(error),
    };
    go_on(site.engine, &closed, runs)?;
    Ok(true)
}

/// Removes all keys of these databases. The caller is not inside the gate.
pub(crate) fn flush_in_steps(site: &Site<'_>, databases: &[u8]) -> Result<()> {
    let closed = site.close();
    if closed.hidden().is_some() {
        return Err(Error::Full("another removal waits for room; delete something".to_owned()));
    }
    let (engine, runs) = (site.engine, runs_of(databases));
    let mut most = STEP;
    loop {
        let mut is_end = false;
        let begun = engine.write(&mut |tx| {
            is_end = step(tx, &runs, Position::default(), most)?.is_end(&runs);
            if is_end { Ok(()) } else { note::put(tx, Kind::Flush, databases) }
        });
        match begun {
            Ok(()) if is_end => return Ok(()),
            Ok(()) => return go_on(site.engine, &closed, runs),
            // The note alone, in the end: see `begin`.
            Err(error) if is_no_room(&error) && most > 0 => most /= 2,
            Err(error) => return Err(error),
        }
    }
}

/// The first step of what has these changes: what is to go from then on. None if it would take as much as it gives.
fn begin(engine: &dyn Engine, changes: Changes) -> Result<Option<Vec<Run>>> {
    let again = (!changes.abandons().is_empty()).then(|| changes.clone());
    match (begin_with(engine, changes, false), again) {
        (Ok(None), Some(changes)) => begin_with(engine, changes, true),
        (Err(error), Some(changes)) if is_no_room(&error) => begin_with(engine, changes, true),
        (begun, _) => begun,
    }
}

/// The same, with or without the elements of collections that are deleted.
fn begin_with(engine: &dyn Engine, mut changes: Changes, elements: bool) -> Result<Option<Vec<Run>>> {
    let (mut plan, mut note, mut in_place) = (Plan::default(), Vec::new(), false);
    let seed = RandomSeed::draw().0;
    engine.read(&mut |tx| {
        changes.take_in_elements(tx, elements)?;
        plan = Plan::of(tx, &changes, seed)?;
        note = run::encode(&plan.runs);
        in_place = note::is_in_place(tx, &note)?;
        Ok(())
    })?;
    for id in &plan.garbage {
        changes.0.remove(&garbage(*id));
    }
    if note.len() > NOTE_MAX {
        return Ok(None);
    }
    let write = |first: &[(Vec<u8>, u64)]| {
        engine.write(&mut |tx| {
            for (key, _) in first {
                remove(tx, key, plan.garbage_of.get(key).copied())?;
            }
            for (key, put) in &changes.0 {
                if let Some((value, expires)) = put {
                    tx.put(key, value, *expires)?;
                }
            }
            note::put(tx, Kind::Remove, &note)
        })
    };
    if in_place {
        return write(&[]).map(|()| Some(plan.runs));
    }
    let puts = changes.0.iter().filter_map(|(key, put)| Some((key, put.as_ref()?)));
    let cost: u64 = puts.map(|(key, put)| RECORD.1 + (key.len() + put.0.len()) as u64).sum();
    let cost = cost + note::cost(&note);
    let mut refused = false;
    for halves in GAINS {
        let (mut gain, mut count) = (0, 0);
        for (_, bytes) in &plan.sizes {
            if gain > cost * halves / 2 {
                break;
            }
            gain += bytes;
            count += 1;
        }
        if gain <= cost * halves / 2 {
            break;
        }
        match write(&plan.sizes[..count]) {
            Err(error) if is_no_room(&error) => refused = true,
            ended => return ended.map(|()| Some(plan.runs)),
        }
    }
    // What there is room for without deletions leaves what the store keeps for these.
    if refused { write(&[]).map(|()| Some(plan.runs)) } else { Ok(None) }
}

/// How far a removal has come: a run, and the last key of it that has gone. What has gone is not looked through again.
#[derive(Clone, Debug, Default)]
struct Position {
    run: usize,
    last: Option<Vec<u8>>,
}

impl Position {
    fn is_end(&self, runs: &[Run]) -> bool {
        self.run >= runs.len()
    }

    /// What is left of the run.
    fn keys(&self, runs: &[Run]) -> Option<Keys> {
        let keys = runs.get(self.run)?.keys();
        Some(match &self.last {
            Some(last) => Keys { from: Bound::Excluded(last.clone()), ..keys },
            None => keys,
        })
    }

    fn next(&mut self) {
        *self = Self { run: self.run + 1, last: None };
    }
}

// ---- go on ------------------------------------------------------------------------------------------------------

/// The steps behind the first. Whatever becomes of them, what they would remove is gone for all readers; only what the store itself may have lost is an error.
fn go_on(engine: &dyn Engine, closed: &Closed<'_>, runs: Vec<Run>) -> Result<()> {
    match finish(engine, &runs) {
        Ok(()) => keep_spare(engine),
        Err(error) => {
            closed.hide(Some(waiting(runs, &error)));
            if !is_for_later(&error) {
                return Err(error);
            }
        }
    }
    Ok(())
}

fn waiting(runs: Vec<Run>, error: &Error) -> Hidden {
    tracing::error!(
        "a removal in steps waits for room: what it has yet to remove is hidden, and until it has come to its end nothing is written but what takes something out; delete something, or give the store more room: {error}"
    );
    Hidden { runs }
}

/// Goes on with what is noted; what it has yet to remove if there is no room for that.
pub(crate) fn resume(engine: &dyn Engine) -> Result<Option<Hidden>> {
    let Some(runs) = note::read(engine)? else { return Ok(None) };
    tracing::info!("a removal in steps was cut short: it is brought to its end before anybody is served");
    match finish(engine, &runs) {
        Ok(()) => Ok(None),
        Err(error) if is_for_later(&error) => Ok(Some(waiting(runs, &error))),
        Err(error) => Err(error),
    }
}

/// The same for what is hidden.
pub(crate) fn finish_hidden(engine: &dyn Engine, hidden: &Hidden) -> Result<()> {
    finish(engine, &hidden.runs)?;
    tracing::info!("the removal that waited for room has come to its end");
    keep_spare(engine);
    Ok(())
}

fn finish(engine: &dyn Engine, runs: &[Run]) -> Result<()> {
    let (mut most, mut good, mut position) = (STEP, 0, Position::default());
    while !position.is_end(runs) {
        let mut next = Position::default();
        let stepped = engine.write(&mut |tx| {
            next = step(tx, runs, position.clone(), most)?;
            Ok(())
        });
        match stepped {
            Ok(()) => {
                position = next;
                good += 1;
                if good == GOOD {
                    (most, good) = ((2 * most).min(STEP), 0);
                }
            }
            Err(error) if is_no_room(&error) => {
                if most == 1 {
                    with_elements(engine, runs, position.clone(), &error)?;
                }
                (most, good) = ((most / 2).max(1), 0);
            }
            Err(error) => return Err(error),
        }
    }
    engine.write(&mut |tx| note::clear(tx))
}

/// Removes some keys of runs, from a place on; returns that behind them.
fn step(tx: &mut dyn Tx, runs: &[Run], mut position: Position, most: usize) -> Result<Position> {
    let (mut keys, mut bytes, mut passed) = (Vec::new(), 0, 0);
    while let Some(range) = position.keys(runs) {
        let run = &runs[position.run];
        let mut more = false;
        tx.scan(range, &mut |key, value| {
            if keys.len() == most || bytes > STEP_BYTES * most as u64 || passed == PASSED {
                more = true;
                return ControlFlow::Break(());
            }
            let Some(abandons) = run.goes(key) else {
                passed += 1;
                position.last = Some(key.to_vec());
                return ControlFlow::Continue(());
            };
            bytes += RECORD.1 + key.len() as u64;
            let head = if abandons { head(key, value) } else { None };
            keys.push((key.to_vec(), head.map(|head| head.id)));
            position.last = Some(key.to_vec());
            ControlFlow::Continue(())
        })?;
        if more {
            break;
        }
        position.next();
        // Each run is a look at the index.
        bytes += RECORD.0;
    }
    for (key, garbage) in keys {
        remove(tx, &key, garbage)?;
    }
    Ok(position)
}

/// Removes the first key of runs, from a place on, and before it all elements that would have no owner. There was no room to note these, which is `error`.
fn with_elements(engine: &dyn Engine, runs: &[Run], position: Position, error: &Error) -> Result<()> {
    let mut first = None;
    engine.read(&mut |tx| {
        first = None;
        let mut position = position.clone();
        while let Some(range) = position.keys(runs) {
            let run = &runs[position.run];
            tx.scan(range, &mut |key, value| {
                let Some(abandons) = run.goes(key) else { return ControlFlow::Continue(()) };
                first = Some((key.to_vec(), head(key, value).filter(|_| abandons)));
                ControlFlow::Break(())
            })?;
            if first.is_some() {
                break;
            }
            position.next();
        }
        Ok(())
    })?;
    let Some((key, Some(head))) = first else { return Err(error.clone()) };
    let (mut most, mut more) = (ELEMENTS, true);
    while more {
        let removed = engine.write(&mut |tx| {
            let mut elements = Vec::new();
            tx.scan(head.elements(&[]), &mut |key, _| {
                elements.push(key.to_vec());
                if elements.len() <= most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            more = elements.len() > most;
            elements.iter().take(most).try_for_each(|key| tx.delete(key).map(drop))
        });
        match removed {
            Err(error) if is_no_room(&error) && most > 1 => (most, more) = (most / 2, true),
            other => other?,
        }
    }
    engine.write(&mut |tx| tx.delete(&key).map(drop))
}

fn remove(tx: &mut dyn Tx, key: &[u8], garbage_of: Option<u64>) -> Result<()> {
    if let Some(id) = garbage_of {
        tx.put(&garbage(id), &[], None)?;
    }
    tx.delete(key).map(drop)
}

fn garbage(id: u64) -> Vec<u8> {
    [&[GARBAGE], &id.to_be_bytes()[..]].concat()
}

/// The head that a key of a client leads to.
fn head(key: &[u8], value: &[u8]) -> Option<Head> {
    if *key.first()? < DATABASES { Head::read(value) } else { None }
}
