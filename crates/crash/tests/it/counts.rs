//! Complete means complete: the number of states equals the one derived by hand.

use std::sync::Arc;

use crash::{Config, Error, Model, Report, Sim, Violation, run};

use crate::tiny::{found, observing, read, tiny};

/// Runs a program of one step; recovery reads these offsets.
fn images(
    model: Model,
    reads: &'static [u64],
    program: impl Fn(&Arc<Sim>) -> Result<(), Error> + Send + Sync + 'static,
) -> Report {
    let check = move |sim: &Arc<Sim>, _: &_| reads.iter().map(|&offset| read(sim, offset)).collect();
    let report = run(tiny([0], move |sim, _, _| program(sim), check), &observing().model(model));
    report.expect_clean();
    assert!(report.is_complete(), "{report}");
    report
}

#[test]
fn three_words_have_eight_states() {
    let report = images(Model::Words, &[0, 8, 64], |sim| {
        for offset in [0, 8, 64] {
            sim.store(offset, 1)?;
        }
        sim.flush(0, 128);
        Ok(sim.drain()?)
    });
    assert_eq!((report.points, report.complete, report.states), (2, 2, 8), "{report}");
}

#[test]
fn words_that_recovery_never_reads_do_not_multiply_the_states() {
    let report = images(Model::Words, &[8], |sim| {
        (0..512).try_for_each(|word| sim.store(word * 8, 1))?;
        sim.flush(0, 4096);
        Ok(sim.drain()?)
    });
    // Before the drain: old or new. After it: everything new.
    assert_eq!((report.complete, report.states, report.recoveries), (2, 3, 3), "{report}");
}

#[test]
fn words_behind_a_flag_count_only_where_it_is_set() {
    let check = |sim: &Arc<Sim>, _: &_| {
        if read(sim, 0)? == 0 { Ok(vec![]) } else { Ok(vec![read(sim, 8)?, read(sim, 16)?]) }
    };
    let step = |sim: &Arc<Sim>, _: u64, _: &_| {
        [0, 8, 16].into_iter().try_for_each(|offset| sim.store(offset, 1))?;
        sim.flush(0, 64);
        Ok(sim.drain()?)
    };
    let report = run(tiny([0], step, check), &observing());
    // Flag old: one. Flag new: two words, four. After the drain: the last of these again.
    assert_eq!((report.complete, report.states, report.recoveries), (2, 5, 6), "{report}");
}

#[test]
fn a_value_between_two_events_is_seen_only_when_observed() {
    let twice = |observed: bool| {
        images(Model::Words, &[0], move |sim| {
            sim.store(0, 1)?;
            if observed {
                sim.observe();
            }
            sim.store(0, 2)?;
            sim.flush(0, 8);
            Ok(sim.drain()?)
        })
    };
    assert_eq!(twice(false).states, 2);
    assert_eq!(twice(true).states, 3);
}

#[test]
fn lines_keep_the_order_of_their_stores_and_words_do_not() {
    let ordered = |model| {
        images(model, &[0, 8], |sim| {
            sim.store(0, 1)?;
            sim.observe();
            sim.store(8, 1)?;
            sim.flush(0, 64);
            Ok(sim.drain()?)
        })
    };
    assert_eq!(ordered(Model::Words).states, 4);
    assert_eq!(ordered(Model::Lines).states, 3);
    let together = |sim: &Arc<Sim>| {
        sim.store(0, 1)?;
        sim.store(8, 1)?;
        sim.flush(0, 64);
        Ok(sim.drain()?)
    };
    assert_eq!(images(Model::Lines, &[0, 8], together).states, 4);
}

#[test]
fn a_flush_covers_what_was_stored_before_it() {
    let report = images(Model::Words, &[0], |sim| {
        sim.store(0, 1)?;
        sim.flush(0, 8);
        sim.store(0, 2)?;
        sim.drain()?;
        // Old, 1 or 2 before the first drain; 1 or 2 after it; 2 may still be lost at the end.
        Ok(())
    });
    assert_eq!((report.points, report.states), (2, 3), "{report}");
    assert_eq!(report.recoveries, 5, "{report}");
}

#[test]
fn growth_can_be_lost_in_a_file_and_not_in_memory() {
    let grow = |model| {
        let step = |sim: &Arc<Sim>, _: u64, _: &_| {
            sim.set_len(8192)?;
            sim.store(4096, 1)?;
            sim.flush(4096, 8);
            Ok(sim.drain()?)
        };
        let check = |sim: &Arc<Sim>, _: &_| {
            if sim.length() < 8192 { Ok(vec![sim.length()]) } else { Ok(vec![8192, read(sim, 4096)?]) }
        };
        run(tiny([0], step, check), &observing().model(model))
    };
    // The length before; then short, or long with the word old or new.
    let file = grow(Model::File { sector: 4096 });
    assert_eq!((file.points, file.complete, file.states), (3, 3, 3), "{file}");
    let memory = grow(Model::Words);
    assert_eq!((memory.points, memory.states), (3, 3), "{memory}");
    // At the drain: three images of the file, two of the memory.
    assert_eq!((file.recoveries, memory.recoveries), (5, 4), "{file}{memory}");
}

#[test]
fn a_repeated_crash_point_is_explored_once() {
    let report = images(Model::Words, &[0], |sim| {
        sim.drain()?;
        sim.drain()?;
        Ok(sim.drain()?)
    });
    assert_eq!((report.points, report.complete, report.repeats), (4, 1, 3), "{report}");
}

#[test]
fn what_exceeds_the_budget_is_sampled_and_said() {
    let step = |sim: &Arc<Sim>, _: u64, _: &_| {
        (0..64).try_for_each(|word| sim.store(word * 8, 1))?;
        sim.flush(0, 512);
        Ok(sim.drain()?)
    };
    let all = |sim: &Arc<Sim>, _: &_| (0..64).map(|word| read(sim, word * 8)).collect::<Result<Vec<_>, _>>();
    let report = run(tiny([0], step, all), &observing().point_budget(1_000));
    assert!(!report.is_complete());
    assert_eq!(report.incomplete.len(), 1);
    assert!(report.incomplete[0].explored == 1_000 && report.incomplete[0].of_about > 1e18, "{report}");
    assert!(report.to_string().contains("incomplete: drain at"), "{report}");
    // Corner cases come first: a single lost word of 64, and a single one that arrived, are found.
    let wrong = move |bad: fn(u32) -> bool| {
        run(
            tiny([0], step, move |sim, history| {
                let words = all(sim, history)?;
                let new = words.iter().map(|&w| w as u32).sum();
                if bad(new) { Err(Violation::new("corner")) } else { Ok(words) }
            }),
            &observing().point_budget(1_000),
        )
    };
    assert_eq!(found(&wrong(|new| new == 63), "corner").trail[0].lost.len(), 1);
    found(&wrong(|new| new == 1), "corner");
}

#[test]
fn the_same_seed_explores_the_same_states() {
    let once = |seed| {
        let step = |sim: &Arc<Sim>, op: u64, ack: &crash::Ack<u64>| {
            let ticket = ack.begin(op);
            (0..24).try_for_each(|word| sim.store(word * 8, op))?;
            sim.flush(0, 192);
            sim.drain()?;
            ack.commit(ticket);
            Ok(())
        };
        let check = |sim: &Arc<Sim>, _: &_| {
            let words = (0..24).map(|word| read(sim, word * 8)).collect::<Result<Vec<_>, _>>()?;
            // Rare enough that only random images show it.
            let first: Vec<_> = words.iter().map(|&w| w == words[0]).collect();
            let pattern = first[3] && !first[5] && first[9] && !first[13] && first[20];
            if pattern { Err(Violation::new("pattern")) } else { Ok(words) }
        };
        let mut report = run(tiny([1, 2, 3], step, check), &Config::seeded(seed).point_budget(2_000).kills(false));
        report.time_ms = 0;
        report.to_json().unwrap()
    };
    let [one, other] = [5, 5].map(once);
    assert_eq!(one, other);
    let report: Report = serde_json::from_str(&once(5)).unwrap();
    found(&report, "pattern");
    assert_ne!(once(5), once(6));
}
