//! What an exploration covered and found.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::config::{Barrier, Model};
use crate::violation::Violation;

/// Violations kept at most.
pub(crate) const VIOLATIONS_MAX: usize = 16;
/// Incomplete crash points listed at most.
pub(crate) const INCOMPLETE_MAX: usize = 20;

/// Coverage and findings of one exploration. Completeness is relative to the events of the model: a value that lived only
/// between two of them (flush, drain, change of length, switch of threads, `observe`) was not seen.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Report {
    /// Name of the scenario.
    pub scenario: String,
    /// Seed of the exploration.
    pub seed: u64,
    /// How memory tears.
    pub model: Model,
    /// Workloads or schedules run.
    pub schedules: u64,
    /// Crash points of the program.
    pub points: u64,
    /// Those of them all of whose images were recovered.
    pub complete: u64,
    /// Crash points that could leave nothing an earlier one could not.
    pub repeats: u64,
    /// Crash points left out because the budget was spent.
    pub unexplored: u64,
    /// Distinct images on which recovery and check ran to completion.
    pub states: u64,
    /// Recoveries run for that, the second ones for stability not counted.
    pub recoveries: u64,
    /// Images that needed none: the same bytes were recovered before, and held against the same promises.
    #[serde(default)]
    pub known: u64,
    /// Second recoveries, run to see that they change nothing.
    pub stability: u64,
    /// Crash points inside recoveries.
    pub nested: u64,
    /// Those of them all of whose images were recovered.
    pub nested_complete: u64,
    /// Crash points inside recoveries that could leave nothing an earlier one could not.
    pub nested_repeats: u64,
    /// Recoveries after the process was killed: everything stored is in the caches, and the power fails later.
    #[serde(default)]
    pub kills: u64,
    /// Points in front of flushes where it was killed, and nothing else happened: no crash points of their own.
    #[serde(default)]
    pub kill_points: u64,
    /// Those of them that could leave nothing an earlier one could not.
    #[serde(default)]
    pub kill_repeats: u64,
    /// Drains of the program, in the workload that had most.
    #[serde(default)]
    pub drains: u64,
    /// The drain that was made to fail.
    #[serde(default)]
    pub fail_drain: Option<u64>,
    /// The time was up before the end.
    #[serde(default)]
    pub timed_out: bool,
    /// Faults of the medium planted.
    pub faults: u64,
    /// Those answered by a clear error; the others did no harm.
    pub faults_detected: u64,
    /// Recoveries that did not read the same words in the same order when repeated: they depend on chance or time.
    pub diverged: u64,
    /// The largest crash points that are not complete.
    pub incomplete: Vec<Coverage>,
    /// Flushes and drains that were reached.
    pub barriers: Vec<Barrier>,
    /// Time spent, in milliseconds.
    pub time_ms: u64,
    /// What was found; one at most unless asked for more, and those that tell of the same locations once.
    pub violations: Vec<Violation>,
}

/// How much of a crash point was seen.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Coverage {
    /// Where; none at the end of the program.
    pub barrier: Option<Barrier>,
    /// Images recovered.
    pub explored: u64,
    /// Images there are, as far as one path tells.
    pub of_about: f64,
}

impl Report {
    /// Adds what another schedule of the same exploration counted and found; not the distinct states.
    pub(crate) fn add(&mut self, other: Report) {
        let sums = [
            (&mut self.schedules, other.schedules),
            (&mut self.points, other.points),
            (&mut self.complete, other.complete),
            (&mut self.repeats, other.repeats),
            (&mut self.unexplored, other.unexplored),
            (&mut self.recoveries, other.recoveries),
            (&mut self.known, other.known),
            (&mut self.stability, other.stability),
            (&mut self.nested, other.nested),
            (&mut self.nested_complete, other.nested_complete),
            (&mut self.nested_repeats, other.nested_repeats),
            (&mut self.kills, other.kills),
            (&mut self.kill_points, other.kill_points),
            (&mut self.kill_repeats, other.kill_repeats),
            (&mut self.faults, other.faults),
            (&mut self.faults_detected, other.faults_detected),
            (&mut self.diverged, other.diverged),
        ];
        sums.into_iter().for_each(|(sum, more)| *sum += more);
        self.drains = self.drains.max(other.drains);
        self.timed_out |= other.timed_out;
        self.incomplete.extend(other.incomplete);
        self.incomplete.sort_by(|a, b| b.of_about.total_cmp(&a.of_about));
        self.incomplete.truncate(INCOMPLETE_MAX);
        self.barriers.extend(other.barriers);
        self.barriers.sort();
        self.barriers.dedup();
        for violation in other.violations {
            if self.violations.len() < VIOLATIONS_MAX && !self.violations.iter().any(|known| known.is_like(&violation))
            {
                self.violations.push(violation);
            }
        }
    }

    /// One report of several explorations of a scenario, each with another fault; none of none. Distinct states and time are their sums, and each violation names its fault.
    #[must_use]
    pub fn of_all(reports: impl IntoIterator<Item = Self>) -> Option<Self> {
        reports.into_iter().reduce(|mut all, report| {
            all.states += report.states;
            all.time_ms += report.time_ms;
            all.fail_drain = None;
            all.add(report);
            all
        })
    }

    /// The first violation.
    #[must_use]
    pub fn violation(&self) -> Option<&Violation> {
        self.violations.first()
    }

    /// Every crash point, those inside recoveries too, was explored completely.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.unexplored == 0
            && !self.timed_out
            && self.complete + self.repeats == self.points
            && self.nested_complete + self.nested_repeats == self.nested
    }

    /// Distinct states a minute.
    #[must_use]
    pub fn states_per_minute(&self) -> u64 {
        self.states * 60_000 / self.time_ms.max(1)
    }

    /// For machines.
    ///
    /// # Errors
    /// None that a report can cause.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    /// Ends a test: prints the report and panics if there is a violation.
    ///
    /// # Panics
    /// When a violation was found.
    #[track_caller]
    pub fn expect_clean(&self) {
        assert!(self.violations.is_empty(), "{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: seed {}, {:?}, {} schedule(s)", self.scenario, self.seed, self.model, self.schedules)?;
        writeln!(
            f,
            "  crash points {}: complete {}, repeats {}, unexplored {}",
            self.points, self.complete, self.repeats, self.unexplored
        )?;
        writeln!(
            f,
            "  inside recoveries {}: complete {}, repeats {}",
            self.nested, self.nested_complete, self.nested_repeats
        )?;
        writeln!(
            f,
            "  distinct states {}, recoveries {} ({} known before) and {} for stability, {} ms, {} states a minute",
            self.states,
            self.recoveries,
            self.known,
            self.stability,
            self.time_ms,
            self.states_per_minute()
        )?;
        if let Some(n) = self.fail_drain {
            writeln!(f, "  drain {n} of the program fails")?;
        }
        if self.kills > 0 {
            let (points, repeats) = (self.kill_points, self.kill_repeats);
            writeln!(
                f,
                "  the process killed {} times, {points} points in front of flushes, repeats {repeats}",
                self.kills
            )?;
        }
        if self.timed_out {
            writeln!(f, "  the time was up: later crash points were not explored")?;
        }
        if self.faults > 0 {
            writeln!(f, "  faults of the medium {}, {} answered by an error", self.faults, self.faults_detected)?;
        }
        if self.diverged > 0 {
            writeln!(f, "  {} recoveries were not repeatable", self.diverged)?;
        }
        if self.is_complete() {
            writeln!(f, "  complete, as far as events tell: a value overwritten between two of them was not seen")?;
        }
        for point in &self.incomplete {
            let barrier = point.barrier.as_ref().map_or_else(|| "the end".to_owned(), ToString::to_string);
            writeln!(f, "  incomplete: {barrier}: {} of about {:.0} images", point.explored, point.of_about)?;
        }
        if self.violations.is_empty() {
            return write!(f, "  no violation");
        }
        for (at, violation) in self.violations.iter().enumerate() {
            write!(f, "{}{violation}", if at == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}
