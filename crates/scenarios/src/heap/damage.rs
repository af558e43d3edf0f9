//! Damaged heaps. A reference heap with records of several slots is built in memory; a change of its bytes must lead to an error, to the same
//! contents, or to contents without the last transaction of a slot whose end recovery names as in doubt (with policy `eaw`: with a part of it). Outside of this are the
//! bytes of objects and of their backup or copies, which carry no checksum while nothing scrubs: there, and where checksums are made to fit, nothing
//! may panic, and a heap that opens must be usable.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crash::{Ack, Error, Model, Rng, Scenario, Sim};
use heap::{Heap, Policy};

use super::check::{Words, look, no_leaks, probe};
use super::{CHUNKS, Cells, Edit, Effect, NODE, Op, SLOTS, root_of};
use crate::damage::checksums::{APART, Checksum, Tables};
use crate::damage::steps::limited;
use crate::damage::{Range, put, reference, word};

const LOG_BYTES: usize = 2048;
/// Bytes of the cell that says what the heap is.
const STATE_VALUE: usize = 48;
/// Of the cell that says what the copies of a partial backup are.
const COPIES_VALUE: usize = 24;

/// A heap of known contents.
pub struct Reference {
    cells: Cells,
    bytes: Vec<u8>,
    checksums: Vec<Checksum>,
    logs: Range,
    /// Checksummed, or guarded otherwise.
    guarded: Vec<Range>,
    /// Objects, and backup or copies.
    contents: Vec<Range>,
    /// What each transaction wrote, and its slot.
    effects: Vec<(usize, Effect)>,
}

/// What is promised for damaged bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// An error, a report, or equal.
    Detected {
        /// A whole line holds something else.
        replaced: bool,
    },
    /// No panic.
    Sane,
}

/// What came of a damaged heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// As the reference.
    Equal,
    /// Without the last transaction of a slot whose record is gone without a trace: a whole line was replaced by what is no record. The one kind
    /// of loss that nothing tells.
    ErasedTail,
    /// Without the last transaction of a slot that was named.
    InDoubt,
    /// With a part of the last transaction of a slot, of a heap with policy `eaw`: main has been changed, and the record that told how is gone. Named as in doubt, or gone
    /// without a trace.
    InPart,
    /// An error.
    Refused,
    /// Opened, with whatever contents.
    Opened,
}

fn difference(before: &Words, after: &Words) -> Vec<(usize, usize, u64)> {
    after.iter().filter(|(at, value)| before.get(at) != Some(value)).map(|(at, value)| (at.0, at.1, *value)).collect()
}

impl Reference {
    /// The heap that these transactions, each in the slot given, leave when their process is killed.
    ///
    /// # Errors
    /// Those of building it.
    pub fn new(cells: Cells, transactions: &[(usize, Vec<Edit>)], close: bool) -> Result<Self, Error> {
        let cells = cells.dirty_zones(64);
        let sim = Sim::new(cells.capacity(), Model::Words);
        cells.setup(&sim)?;
        let live = cells.start(&sim)?;
        let (mut seen, mut effects) = (Words::new(), Vec::new());
        // A thread begins to look for a free slot at its own number.
        let home = pmem::thread_number() % SLOTS;
        for (number, (slot, edits)) in (1..).zip(transactions) {
            let op = Op::commit_in((slot + SLOTS - home) % SLOTS, edits.clone());
            cells.step(&live, 0, &op, &Ack::default())?;
            let heap = live.open.get()?;
            let now = look(&heap, &live.root)?.map_err(|v| v.message)?.words;
            effects.push((*slot, Effect { number, words: difference(&seen, &now), saw: Vec::new() }));
            seen = now;
        }
        if close {
            cells.finish(live)?;
        } else {
            drop(live);
        }
        let bytes = reference::dump(&sim)?;
        let pool = pmem::Options::new().open_on(sim)?;
        let mut all = Self {
            cells,
            bytes,
            checksums: Checksum::header().into(),
            logs: 0..0,
            guarded: std::iter::once(0..8192).collect(),
            contents: Vec::new(),
            effects,
        };
        all.find(&pool);
        Ok(all)
    }

    fn find(&mut self, pool: &pmem::Pool) {
        for region in pool.info().regions {
            let range = region.offset as usize..(region.offset + region.len) as usize;
            match region.name.as_str() {
                "heap.state" => self.checksums.extend(Checksum::cell_apart(pool, range.start, STATE_VALUE, APART)),
                "heap.logs" => {
                    for slot in 0..SLOTS {
                        let start = range.start + slot * LOG_BYTES;
                        self.checksums.extend(Checksum::ring(pool, start..start + LOG_BYTES, &self.bytes));
                    }
                    self.logs = range.clone();
                }
                "heap" => {
                    // Its first extent: tables, then chunks.
                    let chunks = Tables::new(range.start, CHUNKS as usize).chunks;
                    let chunks = chunks..chunks + 4096 * CHUNKS as usize;
                    self.checksums.extend(Checksum::heap(pool, range.start, CHUNKS as usize));
                    self.guarded.push(range.start..chunks.start);
                    self.contents.push(chunks);
                    continue;
                }
                "heap.copies.state" => {
                    self.checksums.extend(Checksum::cell_apart(pool, range.start, COPIES_VALUE, APART))
                }
                "heap.backup" | "heap.copies" => {
                    self.contents.push(range);
                    continue;
                }
                _ => {}
            }
            self.guarded.push(range);
        }
        // A copy that was never written has no checksum.
        let bytes = &self.bytes;
        self.checksums.retain(|checksum| bytes[checksum.covers()].iter().any(|b| *b != 0));
    }

    /// Which of its bytes differ once every checksum is made anew: none, if the formulas are right.
    pub fn rechecksummed(&self) -> Vec<usize> {
        let mut bytes = self.bytes.clone();
        self.checksums.iter().for_each(|s| s.apply(&mut bytes));
        (0..bytes.len()).filter(|&at| bytes[at] != self.bytes[at]).collect()
    }

    /// Where its regions are.
    pub fn regions(&self) -> &[Range] {
        &self.guarded
    }

    /// One line goes bad in some way; true if all of it was replaced.
    pub fn damage(&self, rng: &mut Rng, bytes: &mut [u8], contents: bool) -> bool {
        let ranges = if contents { &self.contents } else { &self.guarded };
        let range = match rng.below(2) {
            0 if !contents => &self.logs,
            _ => &ranges[rng.index(ranges.len())],
        };
        // Where something stands, mostly.
        let used = |at: usize| bytes[at / 64 * 64..at / 64 * 64 + 64].iter().any(|b| *b != 0);
        let mut at = range.start + rng.index(range.len());
        for _ in 0..20 {
            if used(at) {
                break;
            }
            at = range.start + rng.index(range.len());
        }
        let (line, place) = (at / 64 * 64, at / 8 * 8);
        let kind = rng.below(8);
        match kind {
            0..=2 => bytes[at] ^= 1 << rng.index(8),
            3 => bytes[line..line + 64].fill(0),
            4 => {
                let other = self.logs.start + rng.index(self.logs.len() / 64) * 64;
                bytes.copy_within(other..other + 64, line);
            }
            5 => put(bytes, place, word(bytes, place).wrapping_add([1, 64, 4096, u64::MAX][rng.index(4)])),
            6 => put(bytes, place, word(bytes, self.logs.start + rng.index(self.logs.len() / 8) * 8)),
            _ => put(bytes, place, [0, 1, u64::MAX, 1 << 63][rng.index(4)]),
        }
        matches!(kind, 3 | 4)
    }

    /// Damaged bytes, by number, and what is claimed of them.
    pub fn case(&self, number: u64) -> (Vec<u8>, Claim) {
        let mut rng = Rng::seeded(number);
        let mut bytes = self.bytes.clone();
        let sane = number % 2 == 1;
        let contents = sane && rng.below(3) == 0;
        let mut replaced = false;
        for _ in 0..=if sane { rng.index(4) } else { 0 } {
            replaced |= self.damage(&mut rng, &mut bytes, contents);
        }
        if sane {
            self.checksums.iter().for_each(|s| s.apply(&mut bytes));
            return (bytes, Claim::Sane);
        }
        (bytes, Claim::Detected { replaced })
    }

    /// Opens the bytes.
    ///
    /// # Errors
    /// What must not be.
    pub fn judge(&self, bytes: &[u8], claim: Claim) -> Result<Outcome, String> {
        let sim = Sim::new(self.cells.capacity(), Model::Words);
        reference::load(&sim, bytes).map_err(|e| e.to_string())?;
        let opened = || limited(|| self.open_and_use(&sim, claim));
        catch_unwind(AssertUnwindSafe(opened)).map_err(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            format!("panic: {}", text.unwrap_or("?"))
        })?
    }

    fn open_and_use(&self, sim: &Arc<Sim>, claim: Claim) -> Result<Outcome, String> {
        let detected = claim != Claim::Sane;
        let Ok((heap, pool)) = self.cells.open(sim, None) else { return Ok(Outcome::Refused) };
        let Ok(root) = root_of(&heap) else { return Ok(Outcome::Refused) };
        let Ok(Ok(seen)) = look(&heap, &root) else { return Ok(Outcome::Refused) };
        let doubt: BTreeSet<usize> = heap.recovery().in_doubt.iter().map(|&at| self.slot_at(at)).collect();
        let outcome = match claim {
            Claim::Sane => Outcome::Opened,
            Claim::Detected { replaced } => self.compare(&seen.words, &doubt, replaced)?,
        };
        if detected {
            match no_leaks(&heap, seen.reachable.clone()) {
                Err(v) if v.detected => return Ok(Outcome::Refused),
                Err(_) if self.lacks_a_record(&doubt, claim) && self.lacks_a_free(&heap, &seen.reachable) => {
                    return Ok(Outcome::InPart);
                }
                Err(v) => return Err(format!("{} (in doubt {doubt:?})", v.message)),
                Ok(()) => {}
            }
        }
        match probe(&heap, &root) {
            Ok(_) => {}
            Err(e) if outcome == Outcome::Equal => return Err(format!("equal, and not usable: {e}")),
            Err(_) => return Ok(Outcome::Refused),
        }
        drop((heap, pool));
        let Ok((heap, pool)) = self.cells.open(sim, None) else {
            return Err("opened once, and not again".into());
        };
        let again = look(&heap, &root).map_err(|e| format!("readable once, and not again: {e}"))?;
        let kept = again.is_ok_and(|again| again.words == seen.words);
        drop((heap, pool));
        if kept || !detected { Ok(outcome) } else { Err("what was seen is not there any more".into()) }
    }

    /// Whether a part of a transaction may be there, and nothing that tells the rest.
    fn lacks_a_record(&self, doubt: &BTreeSet<usize>, claim: Claim) -> bool {
        self.cells.policy == Policy::Eaw && (!doubt.is_empty() || claim == Claim::Detected { replaced: true })
    }

    /// Whether what is wrong with the blocks is that some are live which the last transactions have freed: no more of them, and none is missing.
    fn lacks_a_free(&self, heap: &Heap, reachable: &[(u64, u64)]) -> bool {
        let mut live = BTreeSet::new();
        let read = heap.live_blocks(|offset, _| _ = live.insert(offset)).is_ok();
        let missing = reachable.iter().any(|(offset, _)| !live.remove(offset));
        let last = (0..SLOTS).filter_map(|slot| self.effects.iter().rev().find(|(of, _)| *of == slot));
        let freed = last.flat_map(|(_, effect)| &effect.words).filter(|(_, word, _)| *word == NODE).count();
        read && !missing && live.len() <= freed
    }

    fn slot_at(&self, offset: u64) -> usize {
        (offset as usize).saturating_sub(self.logs.start) / LOG_BYTES
    }

    fn compare(&self, seen: &Words, doubt: &BTreeSet<usize>, replaced: bool) -> Result<Outcome, String> {
        let without = |gone: &[usize]| {
            let mut words = Words::new();
            for (_, (_, effect)) in self.effects.iter().enumerate().filter(|(at, _)| !gone.contains(at)) {
                words.extend(effect.words.iter().map(|&(cell, word, value)| ((cell, word), value)));
            }
            words
        };
        if *seen == without(&[]) {
            return Ok(Outcome::Equal);
        }
        let last = |slot: &usize| self.effects.iter().rposition(|(s, _)| s == slot);
        if replaced && doubt.is_empty() && (0..SLOTS).filter_map(|s| last(&s)).any(|at| *seen == without(&[at])) {
            return Ok(Outcome::ErasedTail);
        }
        let gone: Vec<usize> = doubt.iter().filter_map(last).collect();
        let mut wrong = difference(&without(&gone), seen);
        let is_part = |doubt| self.lacks_a_record(doubt, Claim::Detected { replaced });
        if is_part(doubt) {
            let ends: Vec<usize> = (0..SLOTS).filter_map(|s| last(&s)).collect();
            let gone = if gone.is_empty() { &ends } else { &gone };
            wrong = difference(&without(gone), seen);
            let whole = without(&[]);
            wrong.retain(|&(cell, word, value)| whole.get(&(cell, word)) != Some(&value));
            if wrong.is_empty() {
                return Ok(Outcome::InPart);
            }
        }
        if gone.is_empty() || !wrong.is_empty() {
            return Err(format!("in doubt {doubt:?}; differs in {:?}", &wrong[..wrong.len().min(4)]));
        }
        Ok(Outcome::InDoubt)
    }
}
