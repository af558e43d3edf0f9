//! Images that are left out because they are known: nothing is missed for it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use crash::{Config, Model, Report, Rng, Sim, Violation, Witness, run};

use crate::tiny::{found, read, tiny};

const WORDS: [u64; 5] = [0, 8, 56, 64, 120];

/// A random program, and a recovery that tidies up: it copies each word to the next one, some of them with a drain, some behind a word that
/// says so. Returns the report and what the checks have read.
fn tidying(seed: u64, skip_known: bool) -> (Report, BTreeSet<Vec<u64>>) {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let out = Arc::clone(&seen);
    let step = move |sim: &Arc<Sim>, _: u64, _: &_| {
        let mut rng = Rng::seeded(seed);
        for _ in 0..10 {
            let at = WORDS[rng.index(WORDS.len())];
            match rng.below(4) {
                0..=1 => sim.store(at, rng.below(3))?,
                2 => sim.flush(at, 8),
                _ => sim.drain()?,
            }
        }
        Ok(())
    };
    let check = move |sim: &Arc<Sim>, _: &_| {
        let mut image = vec![read(sim, WORDS[0])?];
        // What is behind a zero is not read: recoveries of one crash point read different words.
        for pair in WORDS.windows(2).take_while(|pair| read(sim, pair[0]).is_ok_and(|word| word != 0)) {
            image.push(read(sim, pair[1])?);
        }
        out.lock().expect("no check panics").insert(image.clone());
        for (at, &value) in image.iter().enumerate().skip(1) {
            sim.store(WORDS[at - 1], value).map_err(Violation::detected)?;
            sim.flush(WORDS[at - 1], 8);
            if !(seed + at as u64).is_multiple_of(3) {
                sim.drain().map_err(Violation::detected)?;
            }
        }
        Ok(vec![])
    };
    let model = [Model::Words, Model::Lines, Model::File { sector: 512 }][seed as usize % 3];
    // Room enough for every path: what is left out must not depend on the budget.
    let config = Config::seeded(seed).budget(1 << 30).point_budget(1 << 20).nested_budget(1 << 20).model(model);
    let report = run(tiny([0], step, check), &config.stable(false).skip_known(skip_known));
    report.expect_clean();
    let seen = seen.lock().expect("no check panics").clone();
    (report, seen)
}

#[test]
fn the_same_images_are_seen_with_and_without_leaving_out() {
    let (mut left_out, mut fewer) = (0, 0);
    for seed in 0..150 {
        let (all, every) = tidying(seed, false);
        let (some, distinct) = tidying(seed, true);
        assert!(all.is_complete() && some.is_complete(), "seed {seed}: {all}{some}");
        assert_eq!(every, distinct, "seed {seed}");
        assert_eq!((all.states, all.nested, all.points), (some.states, some.nested, some.points), "seed {seed}");
        assert_eq!((all.known, all.recoveries), (0, some.recoveries + some.known), "seed {seed}: {all}{some}");
        left_out += some.known;
        fewer += u64::from(some.known > 0);
    }
    assert!(left_out > 400 && fewer > 50, "{left_out} images left out, in {fewer} explorations");
}

/// Recovery reports a word and takes it back. The crash behind that leaves what another recovery, which had nothing to report, left too.
#[test]
fn the_same_image_behind_another_sight_is_not_the_same() {
    let check = |sim: &Arc<Sim>, _: &_| {
        let saw = read(sim, 0)?;
        let _witness = Witness::of(saw)?;
        sim.store(0, 0).map_err(Violation::detected)?;
        sim.store(64, read(sim, 64)? + 1).map_err(Violation::detected)?;
        sim.flush(0, 128);
        sim.drain().map_err(Violation::detected)?;
        Ok(vec![])
    };
    let step = |sim: &Arc<Sim>, _: u64, _: &_| {
        sim.store(0, 1)?;
        sim.flush(0, 8);
        Ok(sim.drain()?)
    };
    let report = run(tiny([0], step, check), &Config::seeded(1).stable(false).kills(false));
    found(&report, "an earlier recovery saw 0x1, this one 0x0");
}

/// A crash point whose images cost much because their recoveries are crashed too does not starve the later ones.
#[test]
fn every_crash_point_gets_its_share_of_the_budget() {
    let step = |sim: &Arc<Sim>, op: u64, _: &_| {
        (0..20).try_for_each(|word| sim.store(word * 8, op))?;
        sim.flush(0, 160);
        Ok(sim.drain()?)
    };
    let check = |sim: &Arc<Sim>, _: &_| {
        let words = (0..20).map(|word| read(sim, word * 8)).collect::<Result<Vec<_>, _>>()?;
        let sum = words.iter().fold(1u64, |sum, word| sum * 3 + word);
        (0..4).try_for_each(|word| sim.store(512 + word * 8, sum + word)).map_err(Violation::detected)?;
        sim.flush(512, 64);
        sim.drain().map_err(Violation::detected)?;
        Ok(words)
    };
    let config = Config::seeded(3).budget(2_000).kills(false).stable(false);
    let report = run(tiny([1, 2, 3, 4, 5, 6, 7, 8], step, check), &config);
    report.expect_clean();
    assert_eq!((report.points, report.unexplored), (9, 0), "{report}");
    let least = report.incomplete.iter().map(|point| point.explored).min();
    assert!(report.incomplete.len() == 8 && least > Some(5), "{report}");
}

/// Sampling takes what it gets; the kill, which comes last at a crash point, still has its power failures explored.
#[test]
fn the_kill_at_the_end_of_a_crash_point_is_not_starved() {
    let step = |sim: &Arc<Sim>, _: u64, _: &_| {
        (0..40).try_for_each(|word| sim.store(word * 8, 1))?;
        Ok(sim.drain()?)
    };
    let check = |sim: &Arc<Sim>, _: &_| {
        let words = (0..40).map(|word| read(sim, word * 8)).collect::<Result<Vec<_>, _>>()?;
        // They were not flushed, before the kill or since.
        sim.drain().map_err(Violation::detected)?;
        Ok(words)
    };
    let report = run(tiny([0], step, check), &Config::seeded(4).budget(200).depth(2));
    assert!(found(&report, "after a power failure right behind it").trail[0].killed, "{report}");
}
