//! Schedules of a replicated log with everything that goes wrong on machines and between them: the code of the processes, over a simulated network and
//! simulated memory, all from one seed.
//!
//! What a schedule checks: no record that was acknowledged is lost, changed or out of order; no leader acknowledges what another has at the same position; when all
//! is repaired, a leader can be elected.

use std::collections::BTreeMap;

use super::schedule::run;
use super::shape::{Coverage, Shape};
use crate::failpoints::Step;

/// How many schedules: few in a debugger's hands, ten thousand in the gate, millions by `make sim-long`.
fn schedules() -> u64 {
    std::env::var("CAIRN_SCHEDULES").ok().and_then(|n| n.parse().ok()).unwrap_or(10_000)
}

fn first_seed() -> u64 {
    std::env::var("CAIRN_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// Runs schedules on all processors; the first violation by seed, if any.
fn run_all(
    seeds: std::ops::Range<u64>,
    shape: impl Fn(u64) -> Shape + Sync,
    without: Option<Step>,
) -> (Coverage, BTreeMap<u64, String>) {
    let workers = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let next = std::sync::atomic::AtomicU64::new(seeds.start);
    let all = parking_lot::Mutex::new((Coverage::default(), BTreeMap::new()));
    std::thread::scope(|threads| {
        for _ in 0..workers {
            threads.spawn(|| {
                let mut mine = Coverage::default();
                loop {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let found = !all.lock().1.is_empty();
                    if seed >= seeds.end || found {
                        break;
                    }
                    match run(seed, &shape(seed), without) {
                        Ok(coverage) => mine.add(&coverage),
                        Err(violation) => {
                            all.lock().1.insert(seed, violation);
                        }
                    }
                }
                all.lock().0.add(&mine);
            });
        }
    });
    all.into_inner()
}

#[test]
fn schedules_lose_nothing() {
    let first = first_seed();
    let (coverage, violations) = run_all(first..first + schedules(), Shape::random, None);
    assert!(violations.is_empty(), "{violations:?}\nagain: CAIRN_SEED=<seed> CAIRN_SCHEDULES=1");
    println!("{coverage:#?}");
    if schedules() >= 10_000 {
        coverage.check();
    }
}

/// The same, where replicas join and leave all the time.
#[test]
fn a_log_that_grows_and_shrinks_loses_nothing() {
    let first = first_seed();
    let (coverage, violations) = run_all(first..first + schedules() / 20, Shape::growing, None);
    assert!(violations.is_empty(), "{violations:?}\nagain: CAIRN_SEED=<seed> CAIRN_SCHEDULES=20");
    println!("{coverage:#?}");
    assert!(schedules() < 10_000 || coverage.growths > 0 && coverage.removals > 0, "{coverage:#?}");
}

/// Each step that is left out is found. Two candidates that stand at once find most: they always do here.
#[test]
fn a_protocol_without_a_step_is_found() {
    for step in [
        Step::RaisePromise,
        Step::PromiseOnce,
        Step::TwoEpochs,
        Step::PersistFirst,
        Step::NewestLog,
        Step::Fence,
        Step::WriteQuorum,
        Step::OwnInOrder,
    ] {
        let first = first_seed();
        let rivals = |seed| Shape { rivals: true, ..Shape::random(seed) };
        let (_, violations) = run_all(first..first + 20_000, rivals, Some(step));
        let Some((seed, violation)) = violations.first_key_value() else {
            panic!("no schedule finds a protocol without {step:?}")
        };
        println!("{step:?}: seed {seed}: {violation}");
    }
}

/// A leader that asks in its own version, and a replica that answers in its own: found by machines of two builds, which then cannot lead each other.
#[test]
fn machines_that_do_not_keep_to_a_version_that_both_speak_are_found() {
    let first = first_seed();
    let mixed = |seed| Shape { mixed: true, ..Shape::random(seed) };
    let (_, violations) = run_all(first..first + 20_000, mixed, Some(Step::CommonVersion));
    let Some((seed, violation)) = violations.first_key_value() else { panic!("no schedule finds it") };
    println!("seed {seed}: {violation}");
    let alike = |seed| Shape { mixed: false, ..Shape::random(seed) };
    let (_, violations) = run_all(first..first + 100, alike, Some(Step::CommonVersion));
    assert!(violations.is_empty(), "machines of one build have one version: {violations:?}");
}

/// So is each step of a change of replicas; that of a takeover, `InstallJoint`, by a test of `takeover`.
#[test]
fn a_change_of_replicas_without_a_step_is_found() {
    for step in [
        Step::BurnGeneration,
        Step::BothQuorums,
        Step::JointFirst,
        Step::CanChange,
        Step::Withdraw,
        Step::CanWriteFirst,
        Step::KeepHead,
    ] {
        let first = first_seed();
        // Of two that may be missing, a log of three finds most.
        let three = |seed| Shape { replicas: 3, quorum: 2, spares: 1, rivals: true, ..Shape::growing(seed) };
        let shape = |seed| if step == Step::CanWriteFirst { three(seed) } else { Shape::growing(seed) };
        let (_, violations) = run_all(first..first + 20_000, shape, Some(step));
        let Some((seed, violation)) = violations.first_key_value() else { panic!("no schedule finds {step:?}") };
        println!("{step:?}: seed {seed}: {violation}");
    }
}
