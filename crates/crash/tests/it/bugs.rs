//! One seeded bug of each class, and the correct program beside it.

use std::sync::Arc;

use crash::{Config, Error, FaultKind, Kind, Model, Sim, Violation, run};

use crate::tiny::{Bug, Tiny, config, found, log, read, read_persistent, tiny};

#[test]
fn a_correct_log_passes_completely() {
    for model in [Model::Words, Model::Lines, Model::File { sector: 512 }] {
        let report = run(log(Bug::None), &config().model(model).at_flushes(true));
        report.expect_clean();
        assert!(report.is_complete(), "{report}");
    }
}

#[test]
fn a_missing_flush_is_found_and_named() {
    // By a power failure: a kill in front of the next flush shows it, too.
    let config = config().kills_at_flushes(0);
    let report = run(log(Bug::NoSlotFlush), &config);
    let violation = found(&report, "is torn");
    let lost = &violation.trail[0].lost;
    assert_eq!(lost.len(), 1, "{report}");
    assert!(!lost[0].flushed && lost[0].offset.is_some_and(|o| o == 64 || o == 72), "{report}");
    let barrier = violation.trail[0].barrier.as_ref();
    assert!(barrier.is_some_and(|b| b.kind == Kind::Drain && b.file.ends_with("tiny.rs")), "{report}");
    assert!(violation.trail[0].stack.iter().any(|frame| frame.contains("append")), "{report}");
    found(&run(log(Bug::NoCountFlush), &config), "acknowledged and lost");
}

#[test]
fn a_missing_drain_is_found_and_named() {
    let report = run(log(Bug::NoSlotDrain), &config());
    let violation = found(&report, "is torn");
    assert!(violation.trail[0].lost.iter().all(|lost| lost.flushed), "{report}");
    assert!(report.to_string().contains("flushed but not drained"), "{report}");
    found(&run(log(Bug::NoCountDrain), &config()), "acknowledged and lost");
}

#[test]
fn a_wrong_order_is_found() {
    found(&run(log(Bug::CountFirst), &config()), "torn");
}

/// Two words that are assumed to change as one.
fn pair(model_test: u64) -> Tiny {
    tiny(
        [7],
        move |sim, value, ack| {
            let ticket = ack.begin(value);
            sim.store(0, value)?;
            sim.store(model_test, value)?;
            sim.flush(0, 128);
            sim.drain()?;
            ack.commit(ticket);
            Ok(())
        },
        move |sim, _| {
            let (a, b) = (read(sim, 0)?, read(sim, model_test)?);
            if a == b { Ok(vec![a, b]) } else { Err(Violation::new("torn")) }
        },
    )
}

#[test]
fn torn_words_are_found_in_every_model() {
    for model in [Model::Words, Model::Lines, Model::File { sector: 4096 }] {
        found(&run(pair(8), &config().kills_at_flushes(0).model(model)), "torn");
        found(&run(pair(64), &config().kills_at_flushes(0).model(model)), "torn");
    }
}

/// A counter with a redo record `(valid, amount)`; a broken recovery adds the amount again each time.
fn counter(broken: bool) -> Tiny {
    tiny(
        [5, 6],
        |sim, amount, ack| {
            let ticket = ack.begin(amount);
            let persist = |offset, value| -> Result<(), Error> {
                sim.store(offset, value)?;
                sim.flush(offset, 8);
                Ok(sim.drain()?)
            };
            let sum = sim.load(128)? + amount;
            persist(64, if sim.load(192)? == 1 { sum } else { amount })?;
            persist(0, 1)?;
            ack.commit(ticket);
            persist(128, sum)?;
            persist(0, 0)
        },
        move |sim, history| {
            let io = |e: std::io::Error| Violation::detected(e);
            if read(sim, 0)? == 1 {
                let sum = read(sim, 64)?;
                let sum = if broken { read(sim, 128)? + sum } else { sum };
                sim.store(128, sum).map_err(io)?;
                sim.flush(128, 8);
                sim.drain().map_err(io)?;
                sim.store(0, 0).map_err(io)?;
                sim.flush(0, 8);
                sim.drain().map_err(io)?;
            }
            let sum = read(sim, 128)?;
            let sure: u64 = history.acknowledged.iter().sum();
            if sum == sure || history.in_doubt.iter().any(|d| sure + d == sum) {
                return Ok(vec![sum]);
            }
            Err(Violation::new(format!("the sum is {sum}, acknowledged {sure}")))
        },
    )
}

/// The correct redo record holds the new sum, not the amount: word 192 says so.
fn counter_that_stores_sums() -> Tiny {
    let mut scenario = counter(false);
    let step = scenario.step;
    scenario.step = Box::new(move |sim, op, ack| {
        if sim.load(192)? == 0 {
            sim.store(192, 1)?;
            sim.flush(192, 8);
            sim.drain()?;
        }
        step(sim, op, ack)
    });
    scenario
}

#[test]
fn a_recovery_that_is_not_idempotent_needs_a_crash_inside_it() {
    let report = run(counter(true), &config().depth(2));
    let violation = found(&report, "the sum is");
    assert!(report.recoveries > 0);
    // The sum is applied before the record is cleared: either the program or the recovery is interrupted there.
    assert!(!violation.trail.is_empty(), "{report}");
    run(counter_that_stores_sums(), &config().depth(3)).expect_clean();
}

/// As `counter`, but the program itself never applies: only recovery does, so only depth 2 sees it fail twice.
#[test]
fn depth_one_misses_what_depth_two_finds() {
    let scenario = || {
        let mut scenario = counter(true);
        scenario.ops = vec![5];
        scenario.step = Box::new(|sim, amount, ack| {
            let ticket = ack.begin(amount);
            for (offset, value) in [(64, amount), (0, 1)] {
                sim.store(offset, value)?;
                sim.flush(offset, 8);
                sim.drain()?;
            }
            ack.commit(ticket);
            Ok(())
        });
        scenario
    };
    run(scenario(), &config().depth(1)).expect_clean();
    let report = run(scenario(), &config().depth(2));
    let violation = found(&report, "the sum is 10");
    assert_eq!(violation.trail.len(), 2, "{report}");
}

#[test]
fn an_unstable_recovery_is_found() {
    let report = run(
        tiny(
            [1],
            |sim, _, _| {
                sim.flush(0, 8);
                Ok(sim.drain()?)
            },
            |sim, _| {
                let opened = read(sim, 0)? + 1;
                sim.store(0, opened).map_err(Violation::detected)?;
                sim.flush(0, 8);
                sim.drain().map_err(Violation::detected)?;
                Ok(vec![opened])
            },
        ),
        &config().depth(1),
    );
    found(&report, "not stable");
}

/// A stack of nodes with an allocation bitmap.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HeapBug {
    None,
    /// Recovery does not give unreachable blocks back.
    Leak,
    /// A popped block is free before it is surely unlinked.
    UnpersistedFree,
}

const HEAD: u64 = 64;
const BITMAP: u64 = 0;
const POP: u64 = 0;

fn node(at: u64) -> u64 {
    64 + at * 64
}

fn heap_step(sim: &Arc<Sim>, op: u64, bug: HeapBug) -> Result<(), Error> {
    let persist = |offset: u64, value: u64| -> Result<(), Error> {
        sim.store(offset, value)?;
        sim.flush(offset, 8);
        Ok(sim.drain()?)
    };
    let bitmap = sim.load(BITMAP)?;
    let head = sim.load(HEAD)?;
    if op != POP {
        let at = u64::from((!bitmap >> 1).trailing_zeros()) + 1;
        persist(BITMAP, bitmap | 1 << at)?;
        sim.store(node(at), op)?;
        sim.store(node(at) + 8, head)?;
        sim.flush(node(at), 16);
        sim.drain()?;
        return persist(HEAD, at);
    }
    if head == 0 {
        return Ok(());
    }
    let next = sim.load(node(head) + 8)?;
    if bug == HeapBug::UnpersistedFree {
        sim.store(HEAD, next)?;
    } else {
        persist(HEAD, next)?;
    }
    persist(BITMAP, bitmap & !(1 << head))
}

fn heap_check(sim: &Arc<Sim>, bug: HeapBug) -> Result<Vec<u64>, Violation> {
    let bitmap = read(sim, BITMAP)?;
    let mut reachable = 0;
    let mut values = Vec::new();
    let mut at = read_persistent(sim, HEAD)?;
    while at != 0 {
        if at >= 64 || reachable & (1 << at) != 0 {
            return Err(Violation::new("the list is broken"));
        }
        reachable |= 1 << at;
        values.push(read(sim, node(at))?);
        at = read(sim, node(at) + 8)?;
    }
    if reachable & !bitmap != 0 {
        return Err(Violation::new("a block in use is free"));
    }
    if reachable != bitmap {
        if bug == HeapBug::Leak {
            return Err(Violation::new("a block leaks"));
        }
        sim.store(BITMAP, reachable).map_err(Violation::detected)?;
        sim.flush(BITMAP, 8);
        sim.drain().map_err(Violation::detected)?;
    }
    Ok(values)
}

fn heap(bug: HeapBug) -> Tiny {
    tiny([3, 4, POP, 5, POP], move |sim, op, _| heap_step(sim, op, bug), move |sim, _| heap_check(sim, bug))
}

#[test]
fn a_leak_and_an_unpersisted_free_are_found() {
    let report = run(heap(HeapBug::None), &config());
    report.expect_clean();
    assert!(report.is_complete(), "{report}");
    found(&run(heap(HeapBug::Leak), &config()), "leaks");
    found(&run(heap(HeapBug::UnpersistedFree), &config()), "in use is free");
}

#[test]
fn panics_and_errors_of_recovery_are_violations() {
    let half = |check: fn(u64) -> Result<Vec<u64>, Violation>| {
        tiny(
            [1],
            |sim, _, _| {
                sim.store(0, 1)?;
                sim.flush(0, 8);
                Ok(sim.drain()?)
            },
            move |sim, _| check(read(sim, 0)?),
        )
    };
    let report = run(half(|word| if word == 0 { panic!("half-baked") } else { Ok(vec![]) }), &config());
    found(&report, "half-baked (crates/crash/tests/it/bugs.rs");
    found(&run(half(|_| Err(Violation::detected("bad header"))), &config()), "after a mere crash: bad header");
}

#[test]
fn shrinking_leaves_the_operations_that_matter() {
    let scenario = tiny(
        (1..=40).map(|i| (i * 7) % 41),
        |sim, op, ack| {
            let ticket = ack.begin(op);
            sim.store(op * 64, op)?;
            // 17 prepares the failure, 5 suffers it.
            let broken = op == 5 && sim.load(17 * 64)? != 0;
            if !broken {
                sim.flush(op * 64, 8);
            }
            sim.drain()?;
            ack.commit(ticket);
            Ok(())
        },
        |sim, history| {
            for &op in &history.acknowledged {
                if read(sim, op * 64)? != op {
                    return Err(Violation::new(format!("{op} is lost")));
                }
            }
            Ok(history.acknowledged.clone())
        },
    );
    let report = run(scenario, &config());
    let violation = found(&report, "5 is lost");
    assert_eq!(violation.shrunk_from, Some(40));
    assert_eq!(violation.ops, ["0: thread 0: 17", "1: thread 0: 5"], "{report}");
}

const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

/// Two checksummed copies of a value, written one after the other; the checksum is looked at, or (the bug) not.
fn record(verified: bool) -> Tiny {
    tiny(
        [9, 10],
        |sim, value, _| {
            for copy in [0, 64] {
                sim.store(copy, value)?;
                sim.store(copy + 8, value.wrapping_mul(MIX))?;
                sim.flush(copy, 16);
                sim.drain()?;
            }
            Ok(())
        },
        move |sim, _| {
            let good = |at| -> Result<Option<u64>, Violation> {
                let (value, sum) = (read(sim, at)?, read(sim, at + 8)?);
                Ok((!verified || sum == value.wrapping_mul(MIX)).then_some(value))
            };
            match good(0)?.or(good(64)?) {
                None => Err(Violation::detected("both copies are damaged")),
                Some(0 | 9 | 10) => Ok(vec![]),
                Some(other) => Err(Violation::new(format!("{other} was never written"))),
            }
        },
    )
}

#[test]
fn faults_of_the_medium_are_planted_and_must_be_noticed() {
    let only = |kind| Config::seeded(3).faults(60).fault_kinds(vec![kind]);
    let report = run(record(false), &only(FaultKind::Flip));
    let violation = found(&report, "was never written");
    assert!(violation.fault.as_ref().is_some_and(|f| f.contains("flipped")), "{report}");
    for kind in [FaultKind::Flip, FaultKind::Poison, FaultKind::Stuck] {
        let report = run(record(true), &only(kind));
        report.expect_clean();
        assert!(report.faults > 0, "{report}");
        assert_eq!(report.faults_detected > 0, kind == FaultKind::Poison, "{report}");
    }
}

#[test]
fn a_fault_that_makes_recovery_panic_is_a_violation() {
    let mut scenario = record(true);
    scenario.check = Box::new(|sim, _| Ok(vec![sim.load(0).expect("memory does not fail")]));
    let report = run(scenario, &Config::seeded(3).faults(60).fault_kinds(vec![FaultKind::Poison]));
    found(&report, "memory does not fail");
}

#[test]
fn a_check_that_keeps_its_memory_open_is_told_so() {
    let kept = std::sync::Mutex::new(None);
    let mut scenario = record(true);
    scenario.check = Box::new(move |sim, _| {
        *kept.lock().unwrap() = Some(Arc::clone(sim));
        Ok(vec![])
    });
    found(&run(scenario, &config()), "memory still open");
}

#[test]
#[allow(unsafe_code)]
fn a_store_behind_the_back_of_the_model_is_noticed() {
    use pmem::sim::Medium;
    let mut scenario = tiny(
        [1],
        |sim, value, _| {
            (0..10).try_for_each(|word| sim.store(word * 8, value))?;
            sim.flush(0, 128);
            Ok(sim.drain()?)
        },
        |sim, _| {
            let words = (0..10).map(|word| read(sim, word * 8)).collect();
            // SAFETY: in bounds and aligned; nothing else uses this memory during the check.
            unsafe { sim.base().cast::<u64>().add(1024).write_volatile(1) };
            words
        },
    );
    scenario.len = 16 * 1024;
    found(&run(scenario, &config().kills_at_flushes(0)), "stored at offset 8192 without asking");
}
