//! Barrier mutation: leaves out each flush and each drain in turn, and demands that the explorer notices.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::config::{Barrier, Config};
use crate::report::Report;
use crate::run::run_shared;
use crate::scenario::Scenario;

/// Which barriers the explorer misses when they are gone.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MutationReport {
    /// The exploration with all barriers in place: must have no violation.
    pub baseline: Report,
    /// Found: barrier, and what was wrong without it.
    pub killed: Vec<(Barrier, String)>,
    /// Not found: redundant, or outside what was explored.
    pub survivors: Vec<Barrier>,
}

impl MutationReport {
    /// The program is correct, and every barrier is needed.
    #[must_use]
    pub fn is_minimal(&self) -> bool {
        self.baseline.violations.is_empty() && self.survivors.is_empty()
    }
}

impl fmt::Display for MutationReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.baseline)?;
        for (barrier, why) in &self.killed {
            writeln!(f, "  needed:   {barrier}: {why}")?;
        }
        for barrier in &self.survivors {
            writeln!(f, "  SURVIVES: {barrier}")?;
        }
        write!(f, "  {} barriers needed, {} survive", self.killed.len(), self.survivors.len())
    }
}

/// Explores the scenario once as it is, and once without each barrier that it reached.
pub fn mutate<S: Scenario>(scenario: S, config: &Config) -> MutationReport {
    let scenario = Arc::new(scenario);
    let baseline = run_shared(&scenario, config);
    let barriers = baseline.barriers.clone();
    let verdicts: Vec<Mutex<Option<String>>> = barriers.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let at = next.fetch_add(1, Relaxed)
            && let Some(barrier) = barriers.get(at)
        {
            let config = config.clone().stop_at_first(true).shrink(false).mute(barrier.clone());
            *verdicts[at].lock() = run_shared(&scenario, &config).violation().map(|v| v.message.clone());
        }
    };
    in_parallel(&work);
    let mut report = MutationReport { baseline, ..MutationReport::default() };
    for (barrier, verdict) in barriers.into_iter().zip(verdicts) {
        match verdict.into_inner() {
            Some(why) => report.killed.push((barrier, why)),
            None => report.survivors.push(barrier),
        }
    }
    report
}

fn in_parallel(work: &(impl Fn() + Sync)) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
}
