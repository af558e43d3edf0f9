//! Wide crash points, of which few images can be recovered: what recovery reads says which ones.

use std::sync::Arc;

use crash::{Error, Model, Report, Sim, Violation, run};

use crate::tiny::{found, observing, read, tiny};

/// Lines of the record that make the crash point wide.
const LINES: u64 = 24;
const RECORD: u64 = 1024;
const CHECKSUM: u64 = RECORD + LINES * 64;
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

fn words() -> impl Iterator<Item = u64> {
    (RECORD..CHECKSUM).step_by(8)
}

fn sum(sim: &Sim) -> Result<u64, Violation> {
    words().try_fold(1u64, |sum, at| Ok(sum.wrapping_mul(31).wrapping_add(read(sim, at)?.wrapping_mul(MIX))))
}

/// A checksummed record in 24 lines, and on lines of their own whatever else a program stores at these offsets, all of it before one drain.
fn program(sim: &Sim, value: u64, others: &[u64]) -> Result<(), Error> {
    for at in words() {
        sim.store(at, value + at)?;
    }
    sim.store(CHECKSUM, sum(sim)?)?;
    for &at in others {
        sim.store(at, value)?;
    }
    sim.flush(0, 4096);
    Ok(sim.drain()?)
}

/// Explores few images of a program that writes the record twice.
fn explored(
    model: Model,
    others: &'static [u64],
    check: impl Fn(&Arc<Sim>) -> Result<Vec<u64>, Violation> + Send + Sync + 'static,
) -> Report {
    let step = move |sim: &Arc<Sim>, value: u64, _: &_| program(sim, value, others);
    let check = move |sim: &Arc<Sim>, _: &_| check(sim);
    let config = observing().model(model).depth(1).point_budget(120).shrink(false);
    run(tiny([1, 2], step, check), &config)
}

const MODELS: [Model; 2] = [Model::Words, Model::Lines];
const COPIES: [u64; 2] = [64, 192];

/// One copy of a mark is enough, but both may be late; only where the whole record arrived does recovery rely on them.
fn both_copies(sim: &Sim, eager: bool) -> Result<Vec<u64>, Violation> {
    let first = read(sim, COPIES[0])?;
    let second = if eager { read(sim, COPIES[1])? } else { 0 };
    if sum(sim)? != read(sim, CHECKSUM)? {
        return Ok(vec![]);
    }
    let value = read(sim, RECORD)? - RECORD;
    let is_marked = first == value || if eager { second } else { read(sim, COPIES[1])? } == value;
    if is_marked { Ok(vec![value]) } else { Err(Violation::new("both copies are late")) }
}

#[test]
fn a_copy_that_is_read_because_the_other_one_is_late_makes_a_pair_with_it() {
    for model in MODELS {
        let check = |sim: &Arc<Sim>| both_copies(sim, false);
        let report = explored(model, &COPIES, check);
        assert_eq!(found(&report, "both copies are late").trail[0].lost.len(), 2, "{report}");
    }
}

#[test]
fn copies_that_are_both_read_anyway_are_tried_together() {
    for model in MODELS {
        let check = |sim: &Arc<Sim>| both_copies(sim, true);
        let report = explored(model, &COPIES, check);
        assert_eq!(found(&report, "both copies are late").trail[0].lost.len(), 2, "{report}");
    }
}

/// Two marks that must not both arrive without the record: a torn one is noticed, the one before is not.
#[test]
fn a_mark_that_is_read_because_of_another_one_makes_a_pair_with_it() {
    const MARKS: [u64; 2] = [128, 256];
    for model in MODELS {
        let report = explored(model, &MARKS, |sim| {
            let torn = sum(sim)? != read(sim, CHECKSUM)?;
            let value = read(sim, RECORD)?.saturating_sub(RECORD);
            let marked = read(sim, MARKS[0])? > value && read(sim, MARKS[1])? > value;
            if marked && !torn { Err(Violation::new("marked without its record")) } else { Ok(vec![value]) }
        });
        found(&report, "marked without its record");
    }
}
