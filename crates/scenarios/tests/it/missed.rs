//! A step of a protocol, or a barrier, is left out: some workload must notice.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::path::Path;
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
    let killer = |without, (name, subject, config): &Workload<S>| {
        let report = crash::run(adjust(subject.clone(), without), config);
        told(name, config, &report).filter(|told| !unreal.iter().any(|word| told.contains(word)))
    };
    each(steps, |(step, without)| {
        let killer = workloads.iter().find_map(|workload| killer(*without, workload));
        (format!("{step:?}"), killer)
    });
}

/// Sources of which every line that drains must be reached. Not those of `heap`: `assemble.rs` drains once when a heap is made, which is no crash point; `commit.rs` once for
/// a transaction of the policy `none` that allocates, of which nothing is promised; and `log.rs` for its callers, by whose lines it is counted. Not those of `pmem`: `session.rs`
/// drains once where the ring of its objects is full, which no workload comes to, and others drain when a pool is made. `log` has two tests for the parts of its sources; `structures` and
/// `server` have no drains of their own.
const WHOLE: &[&str] = &["kv/src"];

/// Leaves out each flush and each drain of `source` in turn, by source line; with all of them nothing may be missed.
pub fn each_barrier<S: Scenario + Clone>(workloads: &[Workload<S>], source: &str, redundant: &[Redundant]) {
    each_barrier_of(workloads, |subject, config| crash::run(subject.clone(), config), source, redundant);
}

/// The same, explored by `run`.
pub fn each_barrier_of<S: Sync>(
    workloads: &[Workload<S>],
    run: impl Fn(&S, &Config) -> Report + Sync,
    source: &str,
    redundant: &[Redundant],
) {
    let reached: Mutex<BTreeMap<Barrier, BTreeSet<usize>>> = Mutex::default();
    in_parallel(workloads.len(), |at| {
        let (name, subject, config) = &workloads[at];
        let report = run(subject, config);
        assert!(report.violation().is_none(), "{name}: {report}");
        assert!(report.points > 0, "{name}");
        for barrier in report.barriers.into_iter().filter(|barrier| barrier.file.contains(source)) {
            reached.lock().expect("no panic").entry(barrier).or_default().insert(at);
        }
    });
    let found = reached.lock().expect("no panic").keys().cloned().collect();
    let unreached = if WHOLE.contains(&source) { drains(source, &found, redundant) } else { Vec::new() };
    assert!(unreached.is_empty(), "no workload reaches:\n{}", unreached.join("\n"));
    let mut barriers: Vec<_> = reached.into_inner().expect("no panic").into_iter().collect();
    assert!(barriers.len() >= 5, "{barriers:?}");
    barriers.retain(|(barrier, _)| {
        let line = source_line(barrier);
        !redundant.iter().any(|(file, text, _)| barrier.file.ends_with(file) && line.contains(text))
    });
    each(&barriers, |(barrier, by)| {
        let killer = by.iter().find_map(|&at| {
            let (name, subject, config) = &workloads[at];
            told(name, config, &run(subject, &config.clone().mute(barrier.clone())))
        });
        (format!("{barrier}: {}", source_line(barrier)), killer)
    });
}

/// Lines of `source` that drain a pool, and are neither reached nor redundant.
fn drains(source: &str, reached: &BTreeSet<Barrier>, redundant: &[Redundant]) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders = vec![root.join(source)];
    let mut unreached = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("source");
            for (line, code) in (1..).zip(text.lines()) {
                let is_one = code.contains("pool.drain()") && !code.trim_start().starts_with("//");
                let known = reached.iter().any(|barrier| path.ends_with(&barrier.file[7..]) && barrier.line == line)
                    || redundant.iter().any(|(file, part, _)| path.ends_with(file) && code.contains(part));
                if is_one && !known {
                    unreached.push(format!("{}:{line}: {}", path.display(), code.trim()));
                }
            }
        }
    }
    unreached
}

/// `f` gives the name of what it leaves out, and who missed it.
fn each<T: Sync>(all: &[T], f: impl Fn(&T) -> (String, Option<String>) + Sync) {
    let unnoticed = Mutex::new(Vec::new());
    in_parallel(all.len(), |at| {
        let (name, killer) = f(&all[at]);
        println!("{name}: {}", killer.as_deref().unwrap_or("NOBODY"));
        if killer.is_none() {
            unnoticed.lock().expect("no panic").push(name);
        }
    });
    let unnoticed = unnoticed.into_inner().expect("no panic");
    assert!(unnoticed.is_empty(), "left out, and nobody noticed:\n{}", unnoticed.join("\n"));
}

fn told(name: &str, config: &Config, report: &Report) -> Option<String> {
    Some(format!("{name} (seed {}): {}", config.seed, report.violation()?.message))
}

fn source_line(barrier: &Barrier) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(&barrier.file);
    let text = std::fs::read_to_string(path).expect("source");
    text.lines().nth(barrier.line as usize - 1).expect("line").trim().to_owned()
}
