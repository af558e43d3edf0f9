//! `cairn crash`.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use ::crash::{Config, FaultKind, MutationReport, Report};
use scenarios::{ALL, Named};
use serde::Serialize;

use super::{Outcome, open_output};
use crate::args::{Crash, Fault};
use crate::failure::Failure;
use crate::output::{self, say};

/// The square root of the budget has one workload for each so many.
const ROOT_PER_SCHEDULE: u64 = 8;
/// Images that crashes inside recoveries may have, in a hundred.
const NESTED_SHARE: u64 = 30;
/// Faults of the medium at each crash point.
const FAULTS: u32 = 24;
/// Drains that fail, each in an exploration of its own, at most; and how many of them share the budget.
const FAILING_MAX: u64 = 400;
const FAILING: u64 = 50;
/// Lengths at which a disk is full: these share the budget.
const FULL: u64 = 8;

pub fn run(args: &Crash) -> Outcome {
    if args.list {
        for scenario in ALL {
            say!("{:<16} {}{}", scenario.name, scenario.promise, withstands(scenario))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut chosen = choose(&args.scenario)?;
    if !args.faults.is_empty() {
        chosen.retain(|scenario| meets(scenario, &args.faults));
        if chosen.is_empty() {
            let next =
                "see cairn crash --list: behind each scenario stands which faults of a medium its promise covers";
            return Err(Failure::new("the scenario promises nothing of these faults", next));
        }
    }
    let mut json = open_output(args.json.as_deref())?;

    let results = explore_all(&chosen, args);
    let mut violated = 0;
    for result in &results {
        violated += usize::from(result.is_violated());
        match &mut json {
            Some((path, out)) => result.write_json(out).map_err(|error| Failure::file("write", path, &error))?,
            None => output::text(format_args!("{}", result.text()))?,
        }
    }
    if let Some((path, out)) = &mut json {
        out.flush().map_err(|error| Failure::file("write", path, &error))?;
    }
    if args.json.as_deref() != Some(Path::new("-")) {
        say!("{} scenarios, {}", results.len(), if violated > 0 { "VIOLATED" } else { "no violation" })?;
        say!("{} passed, {violated} failed", results.len() - violated)?;
    }
    Ok(ExitCode::from(u8::from(violated > 0)))
}

/// In every other schedule a thread has time for a commit, or a checkpoint, while another one stands still.
const STRETCH: u64 = 24;
/// States that a workload has at least.
const STATES_LEAST: u64 = 10;

/// Many workloads rather than one in depth: a workload that goes nowhere finds nothing, however many of its images are recovered. Shares of the budget, so
/// that a rich crash point does not leave the later ones unexplored, nor crashes inside recoveries those of the program.
fn config(args: &Crash, weight: u64) -> Config {
    let budget = (args.budget / weight).max(1);
    let config = Config::seeded(args.seed).budget(budget).depth(args.depth.into()).model(args.model);
    if args.mutate {
        return config.point_budget((budget / 100).max(64)).nested_budget((budget / 2000).clamp(32, 4096));
    }
    let schedules = args.schedules.unwrap_or((budget.isqrt() / ROOT_PER_SCHEDULE).max(1));
    // Each workload is run before its crash points are known: more than the budget has states for would say nothing, and not end.
    let schedules = schedules.min((budget / STATES_LEAST).max(1));
    let each = budget / schedules;
    config
        .schedules(schedules)
        .stretch(STRETCH)
        .point_budget((each / 25).max(64))
        .nested_budget((each / 200).clamp(16, 4096))
        .nested_share(NESTED_SHARE)
        .stop_at_first(false)
}

/// For the list.
fn withstands(scenario: &Named) -> String {
    let name = |kind: &FaultKind| format!("{kind:?}").to_lowercase();
    let kinds: Vec<_> = scenario.withstands().iter().map(name).collect();
    if kinds.is_empty() { String::new() } else { format!(" [withstands {}]", kinds.join(", ")) }
}

/// The faults of the medium among these that its promise covers.
fn of_medium(scenario: &Named, faults: &[Fault]) -> Vec<FaultKind> {
    faults.iter().filter_map(|fault| fault.of_medium()).filter(|kind| scenario.withstands().contains(kind)).collect()
}

fn meets(scenario: &Named, faults: &[Fault]) -> bool {
    faults.iter().any(|fault| fault.of_medium().is_none()) || !of_medium(scenario, faults).is_empty()
}

/// Each kind of fault by itself, with the whole budget: none hides behind another.
fn with_faults(scenario: &Named, config: &Config, faults: &[Fault]) -> Report {
    let alone = |share: u64| {
        let each = (config.budget / share).max(1);
        config.clone().depth(1).budget(each).schedules(1).point_budget((each / 25).max(8))
    };
    let mut reports = Vec::new();
    let kinds = of_medium(scenario, faults);
    if !kinds.is_empty() {
        // A fault is a recovery, as an image is.
        let config = config.clone().depth(1).point_budget(u64::from(FAULTS)).faults(FAULTS).fault_kinds(kinds);
        reports.push(scenario.run(&config));
    }
    if faults.contains(&Fault::Sync) {
        reports.extend(scenario.run_failing_drains(&alone(FAILING), FAILING_MAX));
    }
    if faults.contains(&Fault::Full) {
        reports.extend(scenario.run_full_disks(&alone(FULL)));
    }
    let mut report = Report::of_all(reports).unwrap_or_default();
    scenario.name.clone_into(&mut report.scenario);
    report
}

fn choose(names: &[String]) -> Result<Vec<&'static Named>, Failure> {
    if names.is_empty() {
        return Ok(ALL.iter().collect());
    }
    let find = |name: &String| {
        let known = || ALL.iter().map(|scenario| scenario.name).collect::<Vec<_>>().join(", ");
        let found = ALL.iter().find(|scenario| scenario.name == name);
        found.ok_or_else(|| Failure::new(format!("no scenario {name:?}"), format!("choose from: {}", known())))
    };
    names.iter().map(find).collect()
}

/// What came out of one scenario.
#[derive(Serialize)]
#[serde(untagged)]
enum Explored {
    Plain(Box<Report>),
    Mutated(Box<MutationReport>),
}

impl Explored {
    fn is_violated(&self) -> bool {
        match self {
            Self::Plain(report) => !report.violations.is_empty(),
            Self::Mutated(report) => !report.baseline.violations.is_empty(),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Plain(report) => format!("{report}\n"),
            Self::Mutated(report) => format!("{report}\n"),
        }
    }

    fn write_json(&self, out: &mut dyn Write) -> std::io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        out.write_all(b"\n")
    }
}

/// Several at once, results in the order of `chosen`.
fn explore_all(chosen: &[&Named], args: &Crash) -> Vec<Explored> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    // A mutation run uses all cores by itself.
    let jobs = args.jobs.map_or(if args.mutate { 1 } else { cores }, usize::from).min(chosen.len());
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<Explored>>> = Mutex::new(chosen.iter().map(|_| None).collect());
    let work = || {
        while let Some((at, scenario)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, chosen.get(at)?)))
        {
            let config = &config(args, scenario.weight());
            let explored = if args.mutate {
                Explored::Mutated(Box::new(scenario.mutate(config)))
            } else if !args.faults.is_empty() {
                Explored::Plain(Box::new(with_faults(scenario, config, &args.faults)))
            } else {
                Explored::Plain(Box::new(scenario.run(config)))
            };
            if let Ok(mut results) = results.lock() {
                results[at] = Some(explored);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(work);
        }
    });
    results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).into_iter().flatten().collect()
}
