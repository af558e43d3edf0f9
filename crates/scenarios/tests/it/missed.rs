//! A step of a protocol, or a barrier, is left out: some workload must notice.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::in_parallel;
use crash::{Barrier, Config, Report, Scenario};

/// A workload, and how it is explored.
pub type Workload<S> = (&'static str, S, Config);

/// A file, a part of a line in it whose barrier no model here misses, and why it stays.
pub type Redundant = (&'static str, &'static str, &'static str);

/// A step, and options without it.
pub type Without<Step, O> = (Step, fn(O) -> O);

/// `STEPS`: each step, with what to leave it out.
macro_rules! steps {
    ($($step:ident,)*) => {
        const STEPS: &[$crate::missed::Without<Step, Options>] =
            &[$((Step::$step, |options| options.without(Step::$step)),)*];
    };
}

pub(crate) use steps;

/// Leaves out each step in turn, as `adjust` does it. A violation that says one of `unreal` does not count.
pub fn each_step<S, Step, O>(
    workloads: &[Workload<S>],
    steps: &[Without<Step, O>],
    adjust: fn(S, fn(O) -> O) -> S,
    unreal: &[&str],
) where
    S: Scenario + Clone,
    Step: Debug + Sync,
{
    let killer = |without, share, (name, subject, config): &Workload<S>| {
        let report = crash::run(adjust(subject.clone(), without), &part(config, share));
        told(name, config, &report).filter(|told| !unreal.iter().any(|word| told.contains(word)))
    };
    each(steps, |(step, without)| {
        let by = |share: &u64| workloads.iter().find_map(|workload| killer(*without, *share, workload));
        (format!("{step:?}"), SHARES.iter().find_map(by))
    });
}

/// The sources whose barriers a test leaves out.
pub struct Sources {
    /// Flushes and drains in paths with this part are left out.
    pub of: &'static str,
    /// Every line of this folder that drains must be reached.
    pub whole: &'static str,
    /// What no workload misses.
    pub redundant: &'static [Redundant],
    /// Drains that no workload comes to, and why. What is reached after all, or is gone, must not stand here.
    pub unreached: &'static [Redundant],
}

/// Leaves out each flush and each drain of `sources` in turn, by source line; with all of them nothing may be missed.
pub fn each_barrier<S: Scenario + Clone>(workloads: &[Workload<S>], sources: &Sources) {
    each_barrier_of(workloads, |subject, config| crash::run(subject.clone(), config), sources);
}

/// The same, explored by `run`.
pub fn each_barrier_of<S: Sync>(
    workloads: &[Workload<S>],
    run: impl Fn(&S, &Config) -> Report + Sync,
    sources: &Sources,
) {
    let reached: Mutex<BTreeMap<Barrier, BTreeSet<usize>>> = Mutex::default();
    in_parallel(workloads.len(), |at| {
        let (name, subject, config) = &workloads[at];
        let report = run(subject, config);
        assert!(report.violation().is_none(), "{name}: {report}");
        assert!(report.points > 0, "{name}");
        for barrier in report.barriers.into_iter().filter(|barrier| barrier.file.contains(sources.of)) {
            reached.lock().expect("no panic").entry(barrier).or_default().insert(at);
        }
    });
    let found = reached.lock().expect("no panic").keys().cloned().collect();
    every_drain_is_reached(sources, &found);
    let mut barriers: Vec<_> = reached.into_inner().expect("no panic").into_iter().collect();
    assert!(barriers.len() >= 5, "{barriers:?}");
    barriers.retain(|(barrier, _)| {
        let line = source_line(barrier);
        !sources.redundant.iter().any(|(file, text, _)| barrier.file.ends_with(file) && line.contains(text))
    });
    each(&barriers, |(barrier, by)| {
        let killer = |share, at: usize| {
            let (name, subject, config) = &workloads[at];
            told(name, config, &run(subject, &part(config, share).mute(barrier.clone())))
        };
        let killer = SHARES.iter().find_map(|&share| by.iter().find_map(|&at| killer(share, at)));
        (format!("{barrier}: {}", source_line(barrier)), killer)
    });
}

/// What drains a pool, in the sources; not what drains for its caller, whose line counts.
const DRAINS: [&str; 3] = ["pool.drain()", "mapping.drain(here())", "mapping().drain(here())"];

fn every_drain_is_reached(sources: &Sources, reached: &BTreeSet<Barrier>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders = vec![root.join(sources.whole)];
    let mut unreached = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("source");
            for (line, code) in (1..).zip(text.lines().map(str::trim)) {
                let is_one = DRAINS.iter().any(|drain| code.contains(drain)) && !code.starts_with("//");
                let at_line =
                    |barrier: &Barrier| path.ends_with(&barrier.file["crates/".len()..]) && barrier.line == line;
                if is_one && !reached.iter().any(at_line) {
                    unreached.push((path.clone(), line, code.to_owned()));
                }
            }
        }
    }
    let is = |(path, _, code): &(PathBuf, u32, String), (file, part, _): &Redundant| {
        path.ends_with(file) && code.contains(part)
    };
    let known = || sources.unreached.iter().chain(sources.redundant);
    let new: Vec<_> = unreached.iter().filter(|drain| !known().any(|known| is(drain, known))).collect();
    assert!(new.is_empty(), "no workload reaches:\n{new:#?}");
    let over: Vec<_> =
        sources.unreached.iter().filter(|known| !unreached.iter().any(|drain| is(drain, known))).collect();
    assert!(over.is_empty(), "reached, or not there, and still listed:\n{over:#?}");
}

/// `f` gives the name of what it leaves out, and which workload missed it.
fn each<T: Sync>(all: &[T], f: impl Fn(&T) -> (String, Option<String>) + Sync) {
    let unnoticed = Mutex::new(Vec::new());
    in_parallel(all.len(), |at| {
        let (name, killer) = f(&all[at]);
        println!("{name}: {}", killer.as_deref().unwrap_or("none"));
        if killer.is_none() {
            unnoticed.lock().expect("no panic").push(name);
        }
    });
    let unnoticed = unnoticed.into_inner().expect("no panic");
    assert!(unnoticed.is_empty(), "left out, and nobody noticed:\n{}", unnoticed.join("\n"));
}

/// All workloads have a part of their budget first, then more, then all of it: what most of what is left out does is met early in one of them, and those that never meet it
/// are not explored to their end before.
const SHARES: [u64; 3] = [32, 4, 1];

fn part(config: &Config, share: u64) -> Config {
    let part = |all: u64, least: u64| (all / share).max(least.min(all));
    let all = config.clone().shrink(false);
    all.budget(part(config.budget, 64)).point_budget(part(config.point_budget, 8)).schedules(part(config.schedules, 4))
}

fn told(name: &str, config: &Config, report: &Report) -> Option<String> {
    Some(format!("{name} (seed {}): {}", config.seed, report.violation()?.message))
}

/// What stands there.
pub(crate) fn source_line(barrier: &Barrier) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(&barrier.file);
    let text = std::fs::read_to_string(path).expect("source");
    text.lines().nth(barrier.line as usize - 1).expect("line").trim().to_owned()
}
