//! Transactions that take out more than a full store has room to say at once: in steps, each of them durable, while no other client looks.
//!
//! A transaction has a record for each key that it deletes. Where these find no room, what is to go is noted as ranges of keys, in some bytes for each run of
//! neighbours. The first step has that note, all that the transaction sets, and as many deletions as make up for both; the last one removes the note. A server
//! that finds it when it starts goes on with it, so that whoever looks sees all of the transaction, or nothing.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use tx::Keys;

use crate::data::{DATABASES, GARBAGE, Head, META};
use crate::engine::{Engine, Error, Result, Tx, Visit};
use crate::shared::Shared;

/// Bytes of the records of deletions that are worth steps, and those of one step; the keys of one.
const WORTH: u64 = 32 << 10;
const STEP: u64 = 48 << 10;
const STEP_KEYS: usize = 768;
/// Bytes of a note.
const NOTE_MAX: usize = 64 << 20;
/// Bytes that a record takes beside its key and value, at least, and at most.
const RECORD: (u64, u64) = (40, 72);

type Put = (Vec<u8>, Option<u64>);

/// What a transaction has set, and deleted.
#[derive(Debug, Default)]
struct Changes(BTreeMap<Vec<u8>, Option<Put>>);

/// A transaction that notes what it changes.
struct Recording<'t> {
    tx: &'t mut dyn Tx,
    changes: Changes,
}

impl Tx for Recording<'_> {
    fn prefetch(&self, keys: &[&[u8]]) {
        self.tx.prefetch(keys);
    }

    fn get(&self, key: &[u8]) -> Result<Option<&[u8]>> {
        self.tx.get(key)
    }

    fn put(&mut self, key: &[u8], value: &[u8], expires: Option<u64>) -> Result<()> {
        self.tx.put(key, value, expires)?;
        self.changes.0.insert(key.to_vec(), Some((value.to_vec(), expires)));
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool> {
        let there = self.tx.delete(key)?;
        self.changes.0.insert(key.to_vec(), None);
        Ok(there)
    }

    fn expires(&self, key: &[u8]) -> Result<Option<u64>> {
        self.tx.expires(key)
    }

    fn version(&self, key: &[u8]) -> Result<Option<u64>> {
        self.tx.version(key)
    }

    fn scan(&self, keys: Keys, visit: Visit<'_>) -> Result<()> {
        self.tx.scan(keys, visit)
    }
}

/// Runs `attempt` and commits nothing.
fn record(engine: &dyn Engine, attempt: &mut dyn FnMut(&mut dyn Tx) -> Result<()>) -> Result<Changes> {
    let mut changes = None;
    let ended = engine.write(&mut |tx| {
        changes = None;
        let mut recording = Recording { tx, changes: Changes::default() };
        attempt(&mut recording)?;
        changes = Some(recording.changes);
        Err(Error::Again)
    });
    match (changes, ended) {
        (Some(changes), _) => Ok(changes),
        (None, Err(error)) => Err(error),
        (None, Ok(())) => Ok(Changes::default()),
    }
}

impl Changes {
    fn deleted(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter(|(_, put)| put.is_none()).map(|(key, _)| &key[..])
    }

    fn is_worth_steps(&self) -> bool {
        self.deleted().map(|key| RECORD.1 + key.len() as u64).sum::<u64>() >= WORTH
    }
}

/// A transaction that was refused room, in steps: true if that is how it was done, false if it is none that takes much out. The caller is not inside the gate.
pub(crate) fn in_steps(shared: &Shared, attempt: &mut dyn FnMut(&mut dyn Tx) -> Result<()>) -> Result<bool> {
    let inside = shared.enter()?;
    let worth = record(&*shared.engine, attempt)?.is_worth_steps();
    drop(inside);
    if !worth {
        return Ok(false);
    }
    let closed = shared.gate.close();
    let changes = record(&*shared.engine, attempt)?;
    match begin(&*shared.engine, changes) {
        Ok(true) => {}
        Ok(false) | Err(Error::Full(_) | Error::Limit(_)) => return Ok(false),
        Err(error) => return Err(error),
    }
    finish(&*shared.engine).inspect_err(|_| closed.leave_unfinished())?;
    Ok(true)
}

/// The first step; false if it would take as much as it gives.
fn begin(engine: &dyn Engine, mut changes: Changes) -> Result<bool> {
    let mut plan = Plan::default();
    engine.read(&mut |tx| {
        plan = Plan::of(tx, &changes)?;
        Ok(())
    })?;
    for id in &plan.garbage {
        changes.0.remove(&[&[GARBAGE], &id.to_be_bytes()[..]].concat());
    }
    let note = encode(&plan.runs);
    if note.len() > NOTE_MAX.min(engine.value_max()) {
        return Ok(false);
    }
    let puts = changes.0.iter().filter_map(|(key, put)| Some((key, put.as_ref()?)));
    let cost: u64 = puts.map(|(key, put)| RECORD.1 + (key.len() + put.0.len()) as u64).sum();
    let cost = cost + RECORD.1 + note.len() as u64;
    let (mut gain, mut first) = (0, Vec::new());
    for (key, bytes) in plan.sizes {
        // Half as much again: the store knows long records by about how long they are.
        if gain > cost + cost / 2 {
            break;
        }
        gain += bytes;
        first.push(key);
    }
    if gain <= cost + cost / 2 {
        return Ok(false);
    }
    engine.write(&mut |tx| {
        for key in &first {
            remove(tx, key, plan.garbage_of.get(key).copied())?;
        }
        for (key, put) in &changes.0 {
            if let Some((value, expires)) = put {
                tx.put(key, value, *expires)?;
            }
        }
        tx.put(&name(), &note, None)
    })?;
    Ok(true)
}

fn remove(tx: &mut dyn Tx, key: &[u8], garbage: Option<u64>) -> Result<()> {
    if let Some(id) = garbage {
        tx.put(&[&[GARBAGE], &id.to_be_bytes()[..]].concat(), &[], None)?;
    }
    tx.delete(key).map(drop)
}

fn name() -> Vec<u8> {
    [&[META], &b"remove"[..]].concat()
}

/// Goes on with what is noted, to its end.
pub(crate) fn finish(engine: &dyn Engine) -> Result<()> {
    let mut noted = None;
    engine.read(&mut |tx| {
        noted = tx.get(&name())?.map(<[u8]>::to_vec);
        Ok(())
    })?;
    let Some(noted) = noted else { return Ok(()) };
    let runs =
        decode(&noted).ok_or_else(|| Error::Damaged("the note of what is to be removed is not sound".to_owned()))?;
    let mut next = 0;
    while next < runs.len() {
        let from = next;
        engine.write(&mut |tx| {
            next = step(tx, &runs, from)?;
            Ok(())
        })?;
    }
    engine.write(&mut |tx| tx.delete(&name()).map(drop))
}

/// Removes some keys of runs, from `at` on; returns the first run that may have more.
fn step(tx: &mut dyn Tx, runs: &[Run], mut at: usize) -> Result<usize> {
    let (mut keys, mut bytes) = (Vec::new(), 0);
    while let Some(run) = runs.get(at) {
        let mut more = false;
        tx.scan(run.keys(), &mut |key, value| {
            if keys.len() == STEP_KEYS || bytes > STEP {
                more = true;
                return ControlFlow::Break(());
            }
            bytes += RECORD.1 + key.len() as u64;
            let head = if run.abandons { head(key, value) } else { None };
            keys.push((key.to_vec(), head.map(|head| head.id)));
            ControlFlow::Continue(())
        })?;
        if more {
            break;
        }
        at += 1;
        // Each run is a look at the index.
        bytes += RECORD.0;
    }
    for (key, garbage) in keys {
        remove(tx, &key, garbage)?;
    }
    Ok(at)
}

/// The head that a key of a client leads to.
fn head(key: &[u8], value: &[u8]) -> Option<Head> {
    if *key.first()? < DATABASES { Head::read(value) } else { None }
}

// ---- runs -----------------------------------------------------------------------------------------------------

/// Keys that go, with nothing between them that stays.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    from: Vec<u8>,
    /// The first that does not go; none for the first that does not begin as `from`.
    to: Option<Vec<u8>>,
    /// The elements of collections among them are nobody's from then on.
    abandons: bool,
}

impl Run {
    fn keys(&self) -> Keys {
        match &self.to {
            Some(to) => Keys::from(&self.from).until(to),
            None => Keys::prefix(&self.from),
        }
    }
}

#[derive(Debug, Default)]
struct Plan {
    runs: Vec<Run>,
    /// What goes, and bytes it takes at least.
    sizes: Vec<(Vec<u8>, u64)>,
    /// Collections whose elements are nobody's from then on, by their heads' keys; and all of them.
    garbage_of: BTreeMap<Vec<u8>, u64>,
    garbage: Vec<u64>,
}

/// A run that has not yet come to its end.
struct Open {
    from: Vec<u8>,
    last: Vec<u8>,
    one: bool,
    abandons: Option<bool>,
}

fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The shortest key above `a`, and not above `b`.
fn between<'b>(a: &[u8], b: &'b [u8]) -> &'b [u8] {
    &b[..b.len().min(common(a, b) + 1)]
}

impl Plan {
    fn of(tx: &dyn Tx, changes: &Changes) -> Result<Self> {
        let mut plan = Self::default();
        let gone: Vec<&[u8]> = changes.deleted().collect();
        for area in gone.chunk_by(|a, b| a.first() == b.first()) {
            plan.look_at(tx, changes, area)?;
        }
        plan.garbage = plan.garbage_of.values().copied().collect();
        Ok(plan)
    }

    /// Goes through what is there from the first key that goes to the one behind the last.
    fn look_at(&mut self, tx: &dyn Tx, changes: &Changes, area: &[&[u8]]) -> Result<()> {
        let (Some(first), Some(last)) = (area.first(), area.last()) else { return Ok(()) };
        // What belongs to somebody else begins with another byte.
        let end = [first.first().map_or(0, |byte| byte + 1)];
        let range = (Bound::Included(first.to_vec()), Bound::Excluded(end.to_vec()));
        let mut set =
            changes.0.range::<Vec<u8>, _>(range).filter(|(_, put)| put.is_some()).map(|(key, _)| key).peekable();
        let mut before: Option<Vec<u8>> = None;
        let mut open: Option<Open> = None;
        tx.scan(Keys::from(first).until(&end), &mut |key, value| {
            while let Some(stays) = set.next_if(|set| set[..] < *key) {
                self.close(&mut open, before.as_deref(), stays);
                before = Some(stays.clone());
            }
            if !matches!(changes.0.get(key), Some(None)) {
                self.close(&mut open, before.as_deref(), key);
                before = Some(key.to_vec());
                return if key > *last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
            }
            self.sizes.push((key.to_vec(), RECORD.0 + (key.len() + value.len()) as u64));
            let head = head(key, value);
            let abandons = head.map(|head| {
                let note = [&[GARBAGE], &head.id.to_be_bytes()[..]].concat();
                matches!(changes.0.get(&note), Some(Some(_)))
            });
            if let Some(head) = head.filter(|_| abandons == Some(true)) {
                self.garbage_of.insert(key.to_vec(), head.id);
            }
            // What becomes of elements is the same for all of a run.
            if let Some(run) = &open
                && let (Some(this), Some(other)) = (run.abandons, abandons)
                && this != other
            {
                let last = run.last.clone();
                self.close(&mut open, before.as_deref(), key);
                before = Some(last);
            }
            match &mut open {
                Some(run) => {
                    (run.last, run.one) = (key.to_vec(), false);
                    run.abandons = run.abandons.or(abandons);
                }
                None => {
                    let from = before.as_deref().map_or(key, |before| between(before, key)).to_vec();
                    open = Some(Open { from, last: key.to_vec(), one: true, abandons });
                }
            }
            ControlFlow::Continue(())
        })?;
        let stays = set.next().map_or(&end[..], |stays| &stays[..]);
        self.close(&mut open, before.as_deref(), stays);
        Ok(())
    }

    /// Ends a run before a key that is not of it.
    fn close(&mut self, open: &mut Option<Open>, before: Option<&[u8]>, next: &[u8]) {
        let Some(Open { from, last, one, abandons }) = open.take() else { return };
        let abandons = abandons.unwrap_or(false);
        // One key alone: by as much of it as no other has.
        let own = before.map_or(0, |before| common(before, &last)).max(common(&last, next)) + 1;
        let run = match last.get(..own).filter(|_| one && before.is_some()) {
            Some(prefix) => Run { from: prefix.to_vec(), to: None, abandons },
            None => Run { from, to: Some(between(&last, next).to_vec()), abandons },
        };
        self.runs.push(run);
    }
}

// ---- the note -------------------------------------------------------------------------------------------------
//
// For each run: a number whose lower two bits say whether it abandons and whether it has an end, and whose other bits are how many bytes its beginning has in common with
// the one before; how many more it has, and these; the same of its end, against its beginning.

fn number(bytes: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take_number(bytes: &mut &[u8]) -> Option<usize> {
    let mut number = 0;
    for shift in (0..28).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn take_key(bytes: &mut &[u8], before: &[u8], common: usize) -> Option<Vec<u8>> {
    let len = take_number(bytes)?;
    let (rest, left) = bytes.split_at_checked(len)?;
    *bytes = left;
    Some([before.get(..common)?, rest].concat())
}

fn encode(runs: &[Run]) -> Vec<u8> {
    let (mut bytes, mut before) = (Vec::new(), &[][..]);
    for run in runs {
        let shared = common(before, &run.from);
        number(&mut bytes, shared << 2 | usize::from(run.to.is_some()) << 1 | usize::from(run.abandons));
        number(&mut bytes, run.from.len() - shared);
        bytes.extend_from_slice(&run.from[shared..]);
        if let Some(to) = &run.to {
            let shared = common(&run.from, to);
            number(&mut bytes, shared);
            number(&mut bytes, to.len() - shared);
            bytes.extend_from_slice(&to[shared..]);
        }
        before = &run.from;
    }
    bytes
}

fn decode(mut bytes: &[u8]) -> Option<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    while !bytes.is_empty() {
        let first = take_number(&mut bytes)?;
        let before = runs.last().map_or(&[][..], |run| &run.from);
        let from = take_key(&mut bytes, before, first >> 2)?;
        let mut to = None;
        if first & 2 != 0 {
            let shared = take_number(&mut bytes)?;
            to = Some(take_key(&mut bytes, &from, shared)?);
        }
        // No range of everything: a key of a client begins with its database.
        if from.is_empty() || to.as_ref().is_some_and(|to| *to <= from) {
            return None;
        }
        runs.push(Run { from, to, abandons: first & 1 != 0 });
    }
    Some(runs)
}

#[cfg(test)]
mod tests;
