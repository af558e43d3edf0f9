//! Runs a workload, on as many threads as it names, with the explorer behind its memory.

use std::collections::BTreeMap;
use std::iter;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::clock::now;
use crate::config::{Config, Kind};
use crate::explore::{Explorer, Limits, Tally};
use crate::hash::mix_pair;
use crate::quiet;
use crate::report::Report;
use crate::rng::Rng;
use crate::scenario::{Error, Scenario};
use crate::schedule::{Cooperative, DEADLOCK, HIDDEN};
use crate::shrink::fewest;
use crate::sim::{Sim, as_thread};
use crate::violation::Violation;

/// Workloads tried at most to shrink one, and for how long.
const SHRINK_TRIES_MAX: usize = 400;
const SHRINK_TIME: Duration = Duration::from_secs(20);
/// By which files grow.
const PAGE: u64 = 4096;

/// Explores a scenario.
pub fn run<S: Scenario>(scenario: S, config: &Config) -> Report {
    run_shared(&Arc::new(scenario), config)
}

/// Explores a scenario that others use too.
pub fn run_shared<S: Scenario>(scenario: &Arc<S>, config: &Config) -> Report {
    let began = now();
    let deadline = config.seconds.map(|seconds| began + Duration::from_secs(seconds));
    let mut report = merge(explore_schedules(scenario, config, deadline));
    report.scenario = scenario.name().to_owned();
    report.seed = config.seed;
    report.model = config.model;
    report.fail_drain = config.fail_drain;
    report.time_ms = began.elapsed().as_millis() as u64;
    if let Some(fault) = fault_of(config) {
        report.violations.iter_mut().for_each(|violation| _ = violation.fault.get_or_insert_with(|| fault.clone()));
    }
    if config.shrink
        && let Some(first) = report.violations.first_mut()
    {
        shrink(scenario, config, first, report.recoveries);
    }
    report
}

/// Explores the program once for each of its drains, which fails: at most `most` times, and no further than the first violation if the
/// configuration says so. A failed sync must never be followed by a false success: what is acknowledged behind it is there.
pub fn run_failing_drains<S: Scenario>(scenario: S, config: &Config, most: u64) -> Vec<Report> {
    let scenario = Arc::new(scenario);
    let mut reports = Vec::new();
    for n in 1..=most {
        let report = run_shared(&scenario, &config.clone().fail_drain(n));
        let found = report.violation().is_some();
        // Fewer drains than that: the program ran as if none had failed.
        if !found && report.drains < n {
            break;
        }
        reports.push(report);
        if found && config.stop_at_first {
            break;
        }
    }
    reports
}

/// Explores the program on disks of which each is full a little later: at the length the file has at first, and one, two, four ... pages behind it, up to the
/// scenario's capacity. What is acknowledged is there, whatever was refused.
pub fn run_full_disks<S: Scenario>(scenario: S, config: &Config) -> Vec<Report> {
    let scenario = Arc::new(scenario);
    let sim = Sim::new(scenario.capacity(), config.model);
    if as_thread(0, || attempt(|| scenario.setup(&sim))).is_err() {
        return vec![run_shared(&scenario, config)]; // it says so
    }
    let (first, capacity) = (sim.length(), scenario.capacity());
    let later = (0..).map(|shift| first + (PAGE << shift)).take_while(|&full| full < capacity);
    iter::once(first).chain(later).map(|full| run_shared(&scenario, &config.clone().disk_full(full))).collect()
}

/// The device's fault that the whole exploration has.
fn fault_of(config: &Config) -> Option<Box<str>> {
    match (config.fail_drain, config.disk_full) {
        (Some(n), _) => Some(format!("drain {n} of the program fails").into()),
        (None, Some(bytes)) => Some(format!("the disk is full at {bytes} bytes").into()),
        (None, None) => None,
    }
}

/// What came of one schedule.
struct Explored {
    tally: Tally,
    stopped: bool,
}

/// The schedules in order, the last one perhaps stopped. They share nothing, so that threads do not change the outcome.
fn explore_schedules<S: Scenario>(
    scenario: &Arc<S>,
    config: &Config,
    deadline: Option<Instant>,
) -> impl Iterator<Item = Explored> {
    let schedules = config.schedules.max(1);
    let explored = Mutex::new(BTreeMap::new());
    let (next, end) = (AtomicU64::new(0), AtomicU64::new(schedules));
    let work = || {
        // Later schedules than the first stopped one do not count.
        while let schedule = next.fetch_add(1, Relaxed)
            && schedule < end.load(Relaxed)
        {
            let result = explore_schedule(scenario, config, schedule, deadline);
            if result.stopped {
                end.fetch_min(schedule + 1, Relaxed);
            }
            explored.lock().insert(schedule, result);
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = cores.min(usize::try_from(schedules).unwrap_or(cores));
    if threads == 1 {
        work();
    } else {
        std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    }
    let end = end.into_inner();
    explored.into_inner().into_iter().filter(move |&(schedule, _)| schedule < end).map(|(_, result)| result)
}

fn explore_schedule<S: Scenario>(
    scenario: &Arc<S>,
    config: &Config,
    schedule: u64,
    deadline: Option<Instant>,
) -> Explored {
    let seed = schedule_seed(config, schedule);
    let ops = scenario.ops(&mut Rng::seeded(seed));
    let share = |n: u64| (u128::from(config.budget) * u128::from(n) / u128::from(config.schedules.max(1))) as u64;
    // A first run, which explores nothing, counts the crash points that shall have their share.
    let nothing = Limits { deadline, ..Limits::default() };
    let count = Explorer::new(scenario, config, schedule, nothing, ops.clone(), &Arc::default());
    as_thread(0, || one(scenario, config, &count, seed));
    let limits = Limits { budget: share(schedule + 1) - share(schedule), weights: count.weights(), deadline };
    let tally = Arc::new(Mutex::new(Tally::default()));
    let explorer = Explorer::new(scenario, config, schedule, limits, ops, &tally);
    as_thread(0, || one(scenario, config, &explorer, seed));
    let mut tally = std::mem::take(&mut *tally.lock());
    tally.report.schedules = 1;
    tally.report.barriers = explorer.barriers();
    Explored { tally, stopped: explorer.stopped() }
}

/// One report of all schedules. States that several of them reach count once.
fn merge(explored: impl Iterator<Item = Explored>) -> Report {
    let mut all = Tally::default();
    for Explored { tally, .. } in explored {
        all.images.extend(tally.images);
        all.report.add(tally.report);
    }
    all.report.states = all.images.len() as u64;
    all.report
}

fn schedule_seed(config: &Config, schedule: u64) -> u64 {
    if schedule == 0 { config.seed } else { mix_pair(config.seed, schedule) }
}

/// One workload from an empty file to its end.
fn one<S: Scenario>(scenario: &Arc<S>, config: &Config, explorer: &Arc<Explorer<S>>, seed: u64) {
    let sim = Sim::for_program(scenario.capacity(), config);
    if let Err(error) = attempt(|| scenario.setup(&sim)) {
        explorer.fail(Violation::new(format!("setup fails: {error}")));
        return;
    }
    sim.arm();
    sim.set_hook(Some(explorer.port(1)));
    match attempt(|| scenario.start(&sim)) {
        Err(error) => excuse(config, explorer, "start", &error),
        Ok(live) => {
            let went_well = steps(scenario, config, explorer, &sim, &live, seed);
            if went_well && !explorer.stopped() {
                if let Err(error) = attempt(|| scenario.finish(live)) {
                    excuse(config, explorer, "finish", &error);
                }
            } else if quiet::catch(|| drop(live)).is_err() {
                explorer.fail(Violation::new("dropping the program's state panicked"));
            }
        }
    }
    sim.compare_now();
    explorer.point(1, &sim, Kind::End, None);
    sim.set_hook(None);
    explorer.tally.lock().report.drains = sim.drains();
}

/// All operations; false when one failed.
fn steps<S: Scenario>(
    scenario: &Arc<S>,
    config: &Config,
    explorer: &Arc<Explorer<S>>,
    sim: &Arc<Sim>,
    live: &S::Live,
    seed: u64,
) -> bool {
    let threads = explorer.ops.iter().map(|(thread, _)| thread + 1).max().unwrap_or(0);
    let turns = Arc::new(Cooperative::new(threads, seed, config, Arc::clone(sim), Arc::clone(&explorer.pulse)));
    let failed = Mutex::new(false);
    let work = |me: usize| {
        turns.enter(me);
        pmem::sync::set_scheduler(Some(Arc::clone(&turns) as _));
        for (at, (_, op)) in explorer.ops.iter().enumerate().filter(|(_, (thread, _))| *thread == me) {
            if explorer.stopped() || *failed.lock() {
                break;
            }
            explorer.started.lock().push(at);
            if let Err(error) = attempt(|| scenario.step(live, me, op, &explorer.ack)) {
                *failed.lock() = true;
                excuse(config, explorer, &format!("operation {at}, {op:?},"), &error);
                break;
            }
        }
        pmem::sync::set_scheduler(None);
        turns.leave();
    };
    if threads <= 1 {
        as_thread(0, || (0..threads).for_each(work));
    } else {
        spawn_all(threads, &work);
    }
    !failed.into_inner()
}

/// No thread ends, and gives back what `pmem` keeps for it, while another one still runs: when that happens is not drawn from the seed.
fn spawn_all(threads: usize, work: &(impl Fn(usize) + Sync)) {
    struct Together<'a>(&'a Barrier);
    impl Drop for Together<'_> {
        fn drop(&mut self) {
            self.0.wait();
        }
    }
    let all_done = Barrier::new(threads);
    let run = |me| {
        let _together = Together(&all_done);
        as_thread(me, || work(me));
    };
    std::thread::scope(|scope| {
        let run = &run;
        let handles: Vec<_> = (0..threads).map(|me| scope.spawn(move || run(me))).collect();
        // A scope alone does not wait for the destructors of what is local to its threads.
        handles.into_iter().for_each(|handle| {
            if let Err(panic) = handle.join() {
                std::panic::resume_unwind(panic);
            }
        });
    });
}

/// Errors of the program are findings, unless the device was made to fail.
fn excuse<S: Scenario>(config: &Config, explorer: &Explorer<S>, what: &str, error: &Error) {
    let message = error.to_string();
    let device_fails = config.fail_drain.is_some() || config.disk_full.is_some();
    let panicked = error.is::<Panicked>();
    if let Some(deadlock) = [DEADLOCK, HIDDEN].into_iter().find(|text| message.contains(text)) {
        explorer.fail(Violation::new(deadlock));
    } else if panicked || !device_fails {
        explorer.fail(Violation::new(format!("{what} fails: {message}")));
    }
}

#[derive(Debug, thiserror::Error)]
#[error("panicked: {0}")]
struct Panicked(String);

fn attempt<R>(f: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
    quiet::catch(f).unwrap_or_else(|message| Err(Box::new(Panicked(message))))
}

/// Replaces a finding by that of the shortest workload that still has one.
fn shrink<S: Scenario>(scenario: &Arc<S>, config: &Config, found: &mut Violation, recoveries: u64) {
    let deadline = now() + SHRINK_TIME;
    let seed = schedule_seed(config, found.schedule);
    let ops = scenario.ops(&mut Rng::seeded(seed));
    let before = ops.len();
    // Fewer operations should not need many more images than the whole workload did.
    let budget = recoveries.saturating_mul(2).saturating_add(2_000);
    let mut tries = 0;
    let mut best = found.clone();
    fewest(ops, |fewer| {
        tries += 1;
        if tries > SHRINK_TRIES_MAX || now() > deadline {
            return false;
        }
        let tally = Arc::new(Mutex::new(Tally::default()));
        let config = config.clone().stop_at_first(true);
        let limits = Limits { budget, weights: Vec::new(), deadline: Some(deadline) };
        let explorer = Explorer::new(scenario, &config, found.schedule, limits, fewer.to_vec(), &tally);
        as_thread(0, || one(scenario, &config, &explorer, seed));
        let again = tally.lock().report.violations.pop();
        let same_kind = |v: &Violation| v.trail.is_empty() == found.trail.is_empty();
        match again.filter(same_kind) {
            Some(violation) => {
                best = violation;
                true
            }
            None => false,
        }
    });
    best.shrunk_from = Some(before as u32);
    best.fault = best.fault.or_else(|| fault_of(config));
    *found = best;
}
