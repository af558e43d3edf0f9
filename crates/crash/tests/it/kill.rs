//! Processes that are killed: what recovery finds in the caches must not be lost once it has acted on it or reported it.

use std::sync::Arc;

use crash::{Ack, Config, Error, Model, Sim, Violation, run, run_failing_drains};

use crate::tiny::{Tiny, config, found, read, read_persistent, tiny};

const MODELS: [Model; 3] = [Model::Words, Model::Lines, Model::File { sector: 512 }];

const COMMIT: u64 = 0;
const RECORD: u64 = 64;
const HOMES: [u64; 2] = [128, 192];

fn persist(sim: &Sim, offset: u64, value: u64) -> Result<(), Error> {
    sim.store(offset, value)?;
    sim.flush(offset, 8);
    Ok(sim.drain()?)
}

fn commits(sim: &Arc<Sim>, value: u64, ack: &Ack<u64>) -> Result<(), Error> {
    let ticket = ack.begin(value);
    persist(sim, RECORD, value)?;
    persist(sim, COMMIT, 1)?;
    ack.commit(ticket);
    Ok(())
}

/// A redo record with a commit word; recovery alone applies it, at two offsets.
fn redo(commit: fn(&Sim, u64) -> Result<u64, Violation>) -> Tiny {
    tiny([7], commits, move |sim, history| {
        if commit(sim, COMMIT)? == 1 {
            let value = read(sim, RECORD)?;
            for home in HOMES {
                persist(sim, home, value).map_err(Violation::detected)?;
            }
        }
        let homes = [read(sim, HOMES[0])?, read(sim, HOMES[1])?];
        match homes {
            [0, 0] if !history.acknowledged.is_empty() => Err(Violation::new("lost")),
            [0, 0] | [7, 7] => Ok(homes.to_vec()),
            _ => Err(Violation::new(format!("half applied: {homes:?}"))),
        }
    })
}

#[test]
fn a_recovery_that_acts_on_a_cached_commit_word_is_found_by_a_kill_alone() {
    for model in MODELS {
        // Nothing but a kill shows it: not the power failures, not those inside recovery.
        let config = config().model(model).at_flushes(true);
        run(redo(read), &config.clone().depth(3).kills(false)).expect_clean();
        let report = run(redo(read_persistent), &config.clone().depth(3));
        report.expect_clean();
        assert!(report.is_complete() && report.kills > 0, "{report}");
        let report = run(redo(read), &config);
        let violation = found(&report, "half applied");
        assert!(violation.trail.len() == 2 && violation.trail[0].killed && !violation.trail[1].killed, "{report}");
        assert_eq!(violation.trail[1].lost[0].offset, Some(COMMIT), "{report}");
        let text = report.to_string();
        assert!(text.contains("process killed at crash point"), "{text}");
        assert!(text.contains("then, in recovery, power failed at crash point"), "{text}");
        assert!(text.contains("not flushed since the process was killed"), "{text}");
        assert!(!text.contains("never flushed"), "{text}");
    }
}

/// The commit word is reported, and nothing else is done.
fn reader(make_sure: impl Fn(&Sim) -> Result<(), Error> + Send + Sync + 'static) -> Tiny {
    tiny([7], commits, move |sim, history| {
        let committed = read(sim, COMMIT)?;
        make_sure(sim).map_err(Violation::detected)?;
        if committed == 0 && !history.acknowledged.is_empty() {
            Err(Violation::new("lost"))
        } else {
            Ok(vec![committed])
        }
    })
}

#[test]
fn a_recovery_that_reports_what_only_a_cache_has_is_found() {
    for model in MODELS {
        for depth in [1, 2] {
            let config = config().model(model).depth(depth);
            run(reader(|_| Ok(())), &config.clone().kills(false)).expect_clean();
            let report = run(reader(|_| Ok(())), &config);
            assert!(
                found(&report, "showed [1], and after a power failure right behind it [0]").trail[0].killed,
                "{report}"
            );
        }
    }
}

#[test]
fn what_was_not_flushed_before_a_kill_needs_a_flush_of_its_own_except_in_a_file() {
    for model in MODELS {
        let config = config().model(model);
        let report = run(reader(|sim| Ok(sim.drain()?)), &config);
        match model {
            Model::File { .. } => report.expect_clean(),
            _ => assert!(found(&report, "not stable").trail[0].killed, "{report}"),
        }
        let flushes = |sim: &Sim| {
            sim.flush(COMMIT, 8);
            Ok(sim.drain()?)
        };
        run(reader(flushes), &config).expect_clean();
    }
}

/// A line that is on its way arrives, whichever process dies: the kernel that ends a process orders what its processors had in flight.
#[test]
fn what_was_flushed_before_a_kill_stays() {
    for model in [Model::Words, Model::Lines] {
        for depth in [1, 2] {
            let report = run(reader(|_| Ok(())), &config().model(model).depth(depth).kills_at_flushes(0));
            report.expect_clean();
            assert_eq!(report.kills, 0, "{report}");
        }
    }
}

/// Kills in front of flushes are points of their own: between a drain and the next nothing else looks at what was stored and not flushed.
#[test]
fn only_a_kill_in_front_of_a_flush_shows_what_a_drain_would_have_covered() {
    let found_at = |at_flushes: usize| {
        let config = config().kills_at_flushes(at_flushes);
        let report = run(redo(read), &config);
        assert!(report.is_complete() || report.violation().is_some(), "{report}");
        report.violation().map(|violation| (violation.trail[0].killed, violation.trail.len()))
    };
    assert_eq!((found_at(0), found_at(1)), (None, Some((true, 2))));
}

/// All that is wrong is told, once each.
#[test]
fn findings_at_several_locations_are_told_once_each() {
    let broken = || {
        let wrong = |sim: &Arc<Sim>, _: &_| match read(sim, RECORD)? {
            0 => Ok(vec![]),
            value => Err(Violation::new(format!("the record is {value}"))),
        };
        let step = |sim: &Arc<Sim>, value: u64, _: &Ack<u64>| {
            persist(sim, RECORD, value)?;
            sim.store(HOMES[0], value)?;
            sim.drain()?;
            sim.store(HOMES[1], value)?;
            Ok(sim.drain()?)
        };
        tiny([1, 2, 3], step, wrong)
    };
    assert_eq!(run(broken(), &config()).violations.len(), 1);
    let config = config().kills_at_flushes(0).stop_at_first(false);
    let all = run(broken(), &config);
    // At the end everything is as behind the last drain, where it was told.
    assert_eq!(all.violations.len(), 3, "{all}");
    let again = run(broken(), &config.schedules(3));
    assert_eq!(again.violations.len(), 3, "{again}");
}

/// What crashes inside recoveries leave has its share, and no more, so that the program's own crash points are seen.
#[test]
fn crashes_inside_recoveries_have_their_share() {
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
    let states = |share: u64| {
        let config = Config::seeded(3).budget(2_000).kills(false).stable(false).nested_share(share);
        let report = run(tiny([1, 2, 3, 4], step, check), &config);
        report.expect_clean();
        assert!(report.recoveries <= 2_000 && !report.is_complete(), "{report}");
        report.incomplete.iter().map(|point| point.explored).sum::<u64>()
    };
    let (all, some) = (states(100), states(30));
    assert!(some > 1_300 && some > all * 2, "{all} and {some} images of the program's own crash points");
}

#[test]
fn words_that_are_not_read_are_free_to_be_lost() {
    let report = run(
        tiny(
            [1],
            |sim, value, _| {
                (1..512).try_for_each(|word| sim.store(word * 8, value))?;
                persist(sim, 0, value)
            },
            |sim, _| Ok(vec![read_persistent(sim, 0)?]),
        ),
        &config(),
    );
    report.expect_clean();
    assert!(report.is_complete() && report.kills > 0 && report.recoveries < 40, "{report}");
}

#[test]
fn where_everything_is_persistent_a_kill_is_no_point_of_its_own() {
    let report = run(tiny([1], |sim, _, _| Ok(sim.drain()?), |sim, _| Ok(vec![read(sim, 0)?])), &config());
    assert_eq!((report.kills, report.recoveries), (0, 1), "{report}");
}

#[test]
fn a_length_that_was_never_synced_is_there_after_a_kill_and_may_go() {
    let grower = |synced: bool| {
        tiny(
            [1],
            |sim, _, _| {
                sim.set_len(8192)?;
                sim.store(4096, 1)?;
                Ok(sim.drain()?)
            },
            move |sim, _| {
                let len = sim.length();
                if synced {
                    sim.drain().map_err(Violation::detected)?;
                }
                Ok(vec![len])
            },
        )
    };
    let file = config().model(Model::File { sector: 512 });
    run(grower(true), &file).expect_clean();
    found(&run(grower(false), &file), "showed [8192], and after a power failure right behind it [4096]");
    run(grower(false), &config()).expect_clean();
}

/// One value at a time, synced; recovery reports it after `sure` has made sure of it.
fn synced(sure: fn(&Sim) -> Result<(), Error>, retries: bool) -> Tiny {
    tiny(
        [1, 2, 3],
        move |sim, value, ack| {
            let ticket = ack.begin(value);
            sim.store(0, value)?;
            match sim.drain() {
                Err(_) if retries => sim.drain()?,
                other => other?,
            }
            ack.commit(ticket);
            Ok(())
        },
        move |sim, history| {
            let value = read(sim, 0)?;
            sure(sim).map_err(Violation::detected)?;
            match history.acknowledged.last() {
                Some(&last) if value < last => Err(Violation::new(format!("{last} is lost"))),
                _ => Ok(vec![value]),
            }
        },
    )
}

#[test]
fn after_a_failed_sync_and_a_kill_only_storing_again_makes_sure() {
    let file = config().model(Model::File { sector: 512 });
    let again = |sim: &Sim| Ok(sim.load(0).and_then(|value| sim.store(0, value))?).and_then(|()| Ok(sim.drain()?));
    let clean = |reports: Vec<crash::Report>| reports.iter().for_each(crash::Report::expect_clean);
    clean(run_failing_drains(synced(again, false), &file, 10));
    clean(run_failing_drains(synced(|sim| Ok(sim.drain()?), false), &file.clone().kills(false), 10));
    let reports = run_failing_drains(synced(|sim| Ok(sim.drain()?), false), &file, 10);
    assert!(found(&reports[0], "not stable").trail[0].killed, "{}", reports[0]);
    // Memory has no pages that count as clean: what a failed drain had in flight can be flushed again.
    let mut memory = synced(|sim| Ok(read_persistent(sim, 0).map(drop)?), false);
    let step = memory.step;
    memory.step = Box::new(move |sim, value, ack| {
        sim.store(0, value)?;
        sim.flush(0, 8);
        step(sim, value, ack)
    });
    clean(run_failing_drains(memory, &config(), 10));
}

#[test]
fn after_a_failed_drain_memory_is_flushed_again() {
    let retried = |flushes: bool| {
        tiny(
            [1, 2, 3],
            move |sim, value, ack| {
                let ticket = ack.begin(value);
                sim.store(0, value)?;
                sim.flush(0, 8);
                if sim.drain().is_err() {
                    if flushes {
                        sim.flush(0, 8);
                    }
                    sim.drain()?;
                }
                ack.commit(ticket);
                Ok(())
            },
            move |sim, history| match (read(sim, 0)?, history.acknowledged.last()) {
                (value, Some(&last)) if value < last => Err(Violation::new(format!("{last} is lost"))),
                (value, _) => Ok(vec![value]),
            },
        )
    };
    for model in [Model::Words, Model::Lines] {
        let config = config().model(model).kills(false);
        run_failing_drains(retried(true), &config, 10).iter().for_each(crash::Report::expect_clean);
        found(&run_failing_drains(retried(false), &config, 10)[0], "is lost");
    }
}

#[test]
fn each_drain_fails_once() {
    let file = config().model(Model::File { sector: 512 }).kills(false);
    let nothing = |_: &Sim| Ok(());
    let reports = run_failing_drains(synced(nothing, false), &file, 10);
    assert_eq!(reports.iter().map(|r| r.fail_drain).collect::<Vec<_>>(), [Some(1), Some(2), Some(3)]);
    reports.iter().for_each(crash::Report::expect_clean);
    assert_eq!(run_failing_drains(synced(nothing, false), &file, 2).len(), 2);
    // A program that syncs again, and believes that: a false success behind every failure.
    let all = run_failing_drains(synced(nothing, true), &file.clone().stop_at_first(false), 10);
    assert_eq!(all.len(), 3);
    for report in &all {
        found(report, "is lost");
    }
    assert_eq!(run_failing_drains(synced(nothing, true), &file, 10).len(), 1);
}

#[test]
fn the_time_ends_an_exploration_at_a_crash_point() {
    let report = run(redo(read_persistent), &Config::seeded(1).seconds(0));
    assert!(report.timed_out && !report.is_complete() && report.recoveries == 0, "{report}");
    assert!(report.to_string().contains("the time was up"), "{report}");
    run(redo(read_persistent), &Config::seeded(1).seconds(600)).expect_clean();
}
