//! Holds what was found against the reference.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crash::Sim;
use pmem::{Error, SlotState, Tail};

use super::checksums::ring_records;
use super::reference::{Reference, Variant, load, memory};
use super::steps::limited;
use super::use_on::use_on;
use super::walk::{Found, RingFound, walk};
use super::word;

/// What is promised for the bytes that are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// An error, a report, a repair, or equal to the reference.
    Detected,
    /// No panic, no endless work, sound structures.
    Sane,
}

/// What became of damaged bytes, the worst of all structures.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Nothing was noticed, and nothing was wrong.
    Equal,
    /// The other copy of something was used.
    Repaired,
    /// The records at the end of a ring are gone without a trace: the one kind of loss nothing tells.
    ErasedTail,
    /// The end of a ring, or the older value of a cell, was reported as in doubt.
    InDoubt,
    /// Something is refused, with this error.
    Refused(String),
    /// Opened under [`Claim::Sane`]; the values are the forger's.
    Opened,
}

/// The promise is broken.
#[derive(Clone, Debug)]
pub struct Failure(pub String);

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

type Verdict = Result<Outcome, Failure>;

/// Judges damaged bytes, one after the other.
pub struct Judge {
    sim: Arc<Sim>,
}

impl Default for Judge {
    fn default() -> Self {
        Self::new()
    }
}

macro_rules! fail {
    ($($text:tt)*) => { return Err(Failure(format!($($text)*))) };
}

impl Judge {
    /// A judge with a memory of its own.
    pub fn new() -> Self {
        Self { sim: memory() }
    }

    /// Opens `bytes` and compares what is found with `reference`.
    ///
    /// # Errors
    /// The claim does not hold.
    pub fn judge(&mut self, reference: &Reference, bytes: &[u8], claim: Claim) -> Verdict {
        if self.sim.length() > reference.bytes().len() as u64 {
            self.sim = memory(); // one that grew stays slow: the model looks at every page it ever had
        }
        load(&self.sim, bytes).map_err(|e| Failure(format!("the simulated memory: {e}")))?;
        let found = self.caught(|sim| walk(sim, &reference.objects))?;
        sane(reference, &found)?;
        match claim {
            Claim::Sane => Ok(first_error(&found).map_or(Outcome::Opened, refused)),
            Claim::Detected => detected(reference, bytes, &found),
        }
    }

    /// Goes on with the pool judged last: writes to every structure, closes, opens and reads. What was equal or repaired must
    /// work without an error; whatever the rest does, it does not panic or lose what it took.
    ///
    /// # Errors
    /// The claim does not hold.
    pub fn go_on(&mut self, outcome: &Outcome) -> Result<(), Failure> {
        let used = self.caught(use_on)?;
        match used {
            Ok(None) => Ok(()),
            Ok(Some(what)) => fail!("after {outcome:?}: {what} does not keep what was written"),
            Err(e) if matches!(outcome, Outcome::Equal | Outcome::Repaired) => fail!("after {outcome:?}: {e:?}"),
            Err(_) => Ok(()),
        }
    }

    /// Runs `f` within limits; a panic is a failure.
    fn caught<R>(&mut self, f: impl FnOnce(&Arc<Sim>) -> R) -> Result<R, Failure> {
        catch_unwind(AssertUnwindSafe(|| limited(|| f(&self.sim)))).map_err(|panic| {
            self.sim = memory();
            let text = panic.downcast_ref::<String>().map(String::as_str);
            Failure(format!("panic: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("?")))
        })
    }
}

fn refused(error: &Error) -> Outcome {
    let text = format!("{error:?}");
    let variant = text.split([' ', '(']).next().unwrap_or_default();
    match error {
        Error::Damaged { what, .. } => Outcome::Refused(format!("{variant}: {what}")),
        Error::BadPointer { why, .. } => Outcome::Refused(format!("{variant}: {why}")),
        _ => Outcome::Refused(variant.to_owned()),
    }
}

/// All errors, in the order in which a program would meet them.
fn errors(found: &Found) -> impl Iterator<Item = &Error> {
    fn of<T>(r: &Option<pmem::Result<T>>) -> Option<&Error> {
        r.as_ref().and_then(|r| r.as_ref().err())
    }
    of(&found.pool)
        .into_iter()
        .chain(found.cells.iter().filter_map(|c| c.as_ref().err()))
        .chain(found.checksummed.iter().filter_map(|c| c.as_ref().err()))
        .chain(of(&found.ring))
        .chain(of(&found.tail))
        .chain(of(&found.root))
        .chain(found.objects.iter().filter_map(|c| c.as_ref().err()))
        .chain(of(&found.blocks))
}

fn first_error(found: &Found) -> Option<&Error> {
    errors(found).next()
}

/// Errors that say what is wrong with a file; the others would blame the caller or the machine.
fn is_about_the_file(error: &Error) -> bool {
    use Error::{BadPointer, Damaged, NewerVersion, NoRegion, NotAPool, Truncated, WrongLayout};
    matches!(
        error,
        NotAPool { .. }
            | Damaged { .. }
            | Truncated { .. }
            | NewerVersion { .. }
            | WrongLayout { .. }
            | NoRegion { .. }
            | BadPointer { .. }
    )
}

fn overlap(a: (u64, u64), b: (u64, u64)) -> bool {
    a.0 < b.0 + b.1 && b.0 < a.0 + a.1
}

/// What holds for any bytes.
fn sane(reference: &Reference, found: &Found) -> Result<(), Failure> {
    if let Some(error) = errors(found).find(|e| !is_about_the_file(e)) {
        fail!("an error that does not say what is wrong with the file: {error:?}");
    }
    let Some(Ok(_)) = &found.pool else { return Ok(()) };
    if let Some(Ok(blocks)) = &found.blocks {
        if let Some(pair) = blocks.windows(2).find(|p| overlap(p[0], p[1]) || p[0].0 > p[1].0) {
            fail!("live blocks overlap: {pair:x?}");
        }
        let wild = found.reserved.iter().find(|r| blocks.iter().any(|b| overlap(**r, *b)));
        if let Some(wild) = wild {
            fail!("handed out a live block: {wild:x?}");
        }
    }
    for (i, &r) in found.reserved.iter().enumerate() {
        if found.reserved[..i].iter().any(|&o| overlap(o, r)) {
            fail!("handed out twice: {r:x?}");
        }
    }
    for (object, bytes) in reference.objects.iter().zip(&found.objects) {
        if bytes.as_ref().is_ok_and(|b| b.len() as u64 != object.len) {
            fail!("object of another length at {:?}", object.ptr);
        }
    }
    Ok(())
}

/// What holds for bytes that were not made to fit.
fn detected(reference: &Reference, bytes: &[u8], found: &Found) -> Verdict {
    let mut worst = Outcome::Equal;
    let (pool, expected) = match (&found.pool, &reference.found.pool) {
        (Some(Err(e)), _) => return Ok(refused(e)),
        (Some(Ok(pool)), Some(Ok(expected))) => (pool, expected),
        _ => fail!("no pool in the reference"),
    };
    if (&pool.info, pool.generation, pool.was_clean) != (&expected.info, expected.generation, expected.was_clean) {
        fail!("another pool: {pool:?}, expected {expected:?}");
    }
    if pool.repaired {
        worst = Outcome::Repaired;
    }
    for verdict in [
        cells(reference, found)?,
        checksummed(reference, found)?,
        rings(reference, bytes, found)?,
        objects(reference, bytes, found)?,
    ] {
        worst = worst.max(verdict);
    }
    // Errors come first in the report, though doubt about another structure may be worse.
    Ok(first_error(found).map_or(worst, refused))
}

fn cells(reference: &Reference, found: &Found) -> Verdict {
    let mut worst = Outcome::Equal;
    for (i, (cell, expected)) in found.cells.iter().zip(&reference.found.cells).enumerate() {
        let (Ok((value, other_slot)), Ok((good, usual))) = (cell, expected) else { continue };
        let broken = *other_slot == SlotState::Corrupt;
        worst = worst.max(match () {
            () if value == good && other_slot == usual => Outcome::Equal,
            () if value == good && broken => Outcome::Repaired,
            () if i == 0 && *value == reference.older && broken => Outcome::InDoubt,
            () => fail!("cell {i} holds {value:x?} ({other_slot:?}), expected {good:x?} ({usual:?})"),
        });
    }
    Ok(worst)
}

fn checksummed(reference: &Reference, found: &Found) -> Verdict {
    for (i, (payload, expected)) in found.checksummed.iter().zip(&reference.found.checksummed).enumerate() {
        if let (Ok(payload), Ok(good)) = (payload, expected)
            && payload != good
        {
            fail!("checksummed record {i} holds {payload:x?}");
        }
    }
    Ok(Outcome::Equal)
}

fn rings(reference: &Reference, bytes: &[u8], found: &Found) -> Verdict {
    let (Some(Ok(ring)), Some(Ok(good))) = (&found.ring, &reference.found.ring) else { return Ok(Outcome::Equal) };
    let region = reference.region("ring");
    let records = ring_records(&region);
    let offset = |position: u64| records.start + (position % records.len() as u64) as usize;
    // Records that had been retired may come back when the mark is damaged, and that is reported.
    let first = good.records.first().map_or(0, |r| r.0);
    let old = ring.records.iter().take_while(|r| r.0 < first).count();
    let records = &ring.records[old..];
    if !good.records.starts_with(records) {
        fail!("ring holds {:x?}, expected {:x?}", positions(ring), positions(good));
    }
    // The same when a record is in doubt that carried the mark.
    let mark_says = ring.mark == SlotState::Corrupt;
    if old > 0 && !mark_says && records.len() == good.records.len() {
        fail!("retired records came back: {:x?}, expected {:x?}", positions(ring), positions(good));
    }
    let missing = &good.records[records.len()..];
    Ok(match (ring.tail, missing.first()) {
        (Tail::Clean, None) if (ring.end, ring.retired.max(first)) != (good.end, first) => {
            fail!("ring goes on at {:#x}, retired through {:#x}", ring.end, ring.retired)
        }
        (Tail::Clean, None) if mark_says || ring.mark != good.mark => Outcome::Repaired,
        (Tail::Clean, None) => Outcome::Equal,
        (Tail::InDoubt { .. }, _) => Outcome::InDoubt,
        (Tail::Clean, Some(_)) if is_erased(reference, bytes, missing.iter().map(|r| offset(r.0))) => {
            Outcome::ErasedTail
        }
        (Tail::Clean, Some(_)) => fail!("ring lost {:x?} silently", missing.iter().map(|r| r.0).collect::<Vec<_>>()),
    })
}

fn positions(ring: &RingFound) -> Vec<(u64, usize)> {
    ring.records.iter().map(|(at, payload)| (*at, payload.len())).collect()
}

/// True if none of the records at these places has its position any more, and the first has not its epoch either.
fn is_erased(reference: &Reference, bytes: &[u8], mut offsets: impl Iterator<Item = usize> + Clone) -> bool {
    let differs = |at: usize, mask: u64| (word(bytes, at) ^ word(reference.bytes(), at)) & mask != 0;
    offsets.clone().all(|at| differs(at + 8, u64::MAX))
        && offsets.next().is_some_and(|at| differs(at + 16, 0xffff_ffff))
}

fn objects(reference: &Reference, bytes: &[u8], found: &Found) -> Verdict {
    let Some(Ok(tail)) = found.tail else { return Ok(Outcome::Equal) };
    let in_doubt = tail != Tail::Clean;
    // The last publication may be missing: then recovery must say so, unless its record was erased.
    let log = reference.log();
    let newest = ring_records(&log).step_by(64).max_by_key(|&at| word(reference.bytes(), at + 8));
    let erased = newest.is_some_and(|at| word(bytes, at + 8) != word(reference.bytes(), at + 8));
    let excused = in_doubt || erased;
    let mut missing = false;
    match (&found.root, &reference.found.root) {
        (Some(Ok(root)), Some(Ok(good))) if root != good => fail!("root {root:?}, expected {good:?}"),
        _ => {}
    }
    for (i, (object, seen)) in reference.objects.iter().zip(&found.objects).enumerate() {
        let (Ok(seen), Ok(good)) = (seen, &reference.found.objects[i]) else {
            missing |= object.recent;
            continue;
        };
        let checksummed = object.recent && reference.variant() != Variant::Clean;
        let at = object.ptr.offset() as usize;
        let stored = |k: usize| (!checksummed || excused) && bytes.get(at + k) == Some(&seen[k]);
        let wrong = (0..seen.len()).find(|&k| seen[k] != good[k] && !stored(k));
        if let Some(k) = wrong {
            fail!("byte {k} of the object at {:?} is {:#x}, expected {:#x}", object.ptr, seen[k], good[k]);
        }
    }
    let exempt = reference.exempt_chunks(bytes);
    let is_exempt = |block: &&(u64, u64)| exempt.iter().any(|chunks| chunks.contains(&block.0));
    if let (Some(Ok(blocks)), Some(Ok(good))) = (&found.blocks, &reference.found.blocks) {
        let before = if excused { &reference.blocks_before } else { good };
        let lost = good.iter().find(|b| before.contains(b) && !blocks.contains(b) && !is_exempt(b));
        let wild = blocks.iter().find(|b| !before.contains(b) && !good.contains(b) && !is_exempt(b));
        if lost.is_some() || wild.is_some() {
            fail!("live blocks: lost {lost:x?}, not there before {wild:x?}, expected {good:x?}");
        }
    }
    if let Some(Ok(good)) = &reference.found.blocks {
        let mut kept = good.iter().filter(|b| !is_exempt(b) && (!excused || reference.blocks_before.contains(b)));
        if let Some(live) = kept.find(|b| found.reserved.iter().any(|r| overlap(*r, **b))) {
            fail!("handed out {live:x?}, which is live");
        }
    }
    Ok(match () {
        () if in_doubt => Outcome::InDoubt,
        () if missing && erased => Outcome::ErasedTail,
        () => Outcome::Equal,
    })
}
