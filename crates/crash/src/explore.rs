//! Explores one crash point: recovers its images one after the other, inside the very call that was interrupted.

mod finding;
mod kill;
mod leaf;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;
use pmem::sim::Site;

use crate::config::{Barrier, Config, Kind};
use crate::image::{PlainMap, mix_pair};
use crate::oracle::{Ack, History};
use crate::report::{Coverage, INCOMPLETE_MAX, Report, VIOLATIONS_MAX};
use crate::run::now;
use crate::scenario::Scenario;
use crate::sim::{Hook, Sim, as_thread};
use crate::violation::Violation;
use crate::walk::Walk;

/// What has been counted and seen so far, over all schedules.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) report: Report,
    pub(crate) images: PlainMap<()>,
}

/// Explores the crash points of one workload.
pub(crate) struct Explorer<S: Scenario> {
    me: Weak<Self>,
    scenario: Arc<S>,
    config: Config,
    schedule: u64,
    /// Recoveries after which no further crash point is explored.
    budget: u64,
    /// The time after which none is.
    deadline: Option<Instant>,
    /// Moves with every recovery.
    pub(crate) pulse: Arc<AtomicU64>,
    pub(crate) ack: Ack<S::Effect>,
    pub(crate) ops: Vec<(usize, S::Op)>,
    /// Indices of the operations begun, in order.
    pub(crate) started: Mutex<Vec<usize>>,
    pub(crate) tally: Arc<Mutex<Tally>>,
    levels: Vec<Mutex<Level<S::State>>>,
    /// The shallowest depth at which a crash point was explored, by its key.
    visited: Mutex<PlainMap<usize>>,
    sites: Mutex<BTreeMap<(Kind, usize), Site>>,
    frames: Mutex<Vec<Frame>>,
    history: Mutex<Arc<History<S::Effect>>>,
    stop: AtomicBool,
    /// Found inside a recovery, and not reported before it is sure that the outer crash alone shows nothing.
    nested_finding: Mutex<Option<Violation>>,
    /// Crash points inside recoveries are passed over for the moment.
    shallow: AtomicBool,
}

/// One recovery memory for each depth, used again and again.
struct Level<T> {
    child: Option<Arc<Sim>>,
    stable: PlainMap<T>,
    /// What a recovery showed after the process was killed: every power failure right behind it must show the same.
    expected: Option<T>,
    since_stray: u64,
}

/// A crash point being explored.
struct Frame {
    kind: Kind,
    site: Option<Site>,
    number: u64,
    killed: bool,
    child: Arc<Sim>,
}

/// Connects a memory to the explorer of its crash points.
struct Port<S: Scenario> {
    explorer: Weak<Explorer<S>>,
    depth: usize,
}

impl<S: Scenario> Hook for Port<S> {
    fn event(&self, sim: &Sim, kind: Kind, site: Site) {
        if let Some(explorer) = self.explorer.upgrade() {
            explorer.point(self.depth, sim, kind, Some(site));
        }
    }
}

impl<S: Scenario> Explorer<S> {
    pub(crate) fn new(
        scenario: &Arc<S>,
        config: &Config,
        schedule: u64,
        budget: u64,
        deadline: Option<Instant>,
        ops: Vec<(usize, S::Op)>,
        tally: &Arc<Mutex<Tally>>,
    ) -> Arc<Self> {
        let level = |_| Mutex::new(Level { child: None, stable: PlainMap::default(), expected: None, since_stray: 0 });
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            scenario: Arc::clone(scenario),
            config: config.clone(),
            schedule,
            budget,
            deadline,
            pulse: Arc::default(),
            ack: Ack::default(),
            ops,
            started: Mutex::default(),
            tally: Arc::clone(tally),
            levels: (0..config.depth).map(level).collect(),
            visited: Mutex::default(),
            sites: Mutex::default(),
            frames: Mutex::default(),
            history: Mutex::new(Arc::new(History { acknowledged: Vec::new(), in_doubt: Vec::new() })),
            stop: AtomicBool::new(false),
            nested_finding: Mutex::default(),
            shallow: AtomicBool::new(false),
        })
    }

    /// The hook for the memory whose crash points are of this depth.
    pub(crate) fn port(&self, depth: usize) -> Arc<dyn Hook> {
        Arc::new(Port { explorer: self.me.clone(), depth })
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Takes a finding down.
    pub(crate) fn fail(&self, mut violation: Violation) {
        if self.stopped() {
            return;
        }
        violation.seed = self.config.seed;
        violation.schedule = self.schedule;
        let started = self.started.lock();
        violation.ops = started
            .iter()
            .map(|&at| (&self.ops[at], at))
            .map(|((thread, op), at)| format!("{at}: thread {thread}: {op:?}"))
            .collect();
        let violations = &mut self.tally.lock().report.violations;
        violations.push(violation);
        if self.config.stop_at_first || violations.len() >= VIOLATIONS_MAX {
            self.stop.store(true, Relaxed);
        }
    }

    /// The barriers reached so far.
    pub(crate) fn barriers(&self) -> Vec<Barrier> {
        self.sites.lock().iter().map(|((kind, _), site)| Barrier::new(*kind, site)).collect()
    }

    /// The power fails here, in all ways the model knows; afterwards nothing has happened.
    pub(crate) fn point(&self, depth: usize, sim: &Sim, kind: Kind, site: Option<Site>) {
        if self.stopped() || (depth > 1 && self.nested_finding.lock().is_some()) {
            return;
        }
        if let Some(site) = site.filter(|_| matches!(kind, Kind::Flush | Kind::Drain)) {
            self.sites.lock().entry((kind, std::ptr::from_ref(site) as usize)).or_insert(site);
        }
        let passed_over = kind == Kind::Flush && !self.config.at_flushes;
        if passed_over || depth > self.config.depth || (depth > 1 && self.shallow.load(Relaxed)) {
            return;
        }
        if depth == 1 && self.deadline.is_some_and(|deadline| now() >= deadline) {
            self.tally.lock().report.timed_out = true;
            self.stop.store(true, Relaxed);
            return;
        }
        let key = mix_pair(sim.crash_key(), self.ack.version());
        let Some((number, budget)) = self.admit(depth, key) else { return };
        let scheduler = pmem::sync::set_scheduler(None);
        as_thread(0, || self.explore(depth, sim, (kind, site, number), budget, None));
        pmem::sync::set_scheduler(scheduler);
    }

    /// Counts a crash point; its number and budget, unless it can show nothing new or the budget is spent.
    fn admit(&self, depth: usize, key: u64) -> Option<(u64, u64)> {
        let mut visited = self.visited.lock();
        // Seen deeper down, it was explored with a smaller budget and fewer crashes of its recoveries.
        let repeat = visited.get(&key).is_some_and(|&seen| seen <= depth);
        if !repeat {
            visited.insert(key, depth);
        }
        drop(visited);
        let report = &mut self.tally.lock().report;
        let left = self.budget.saturating_sub(report.recoveries);
        let (points, repeats, unexplored, budget) = match depth {
            1 => (&mut report.points, &mut report.repeats, Some(&mut report.unexplored), self.config.point_budget),
            _ => (&mut report.nested, &mut report.nested_repeats, None, self.config.nested_budget),
        };
        *points += 1;
        if repeat {
            *repeats += 1;
            return None;
        }
        if left == 0 {
            unexplored.into_iter().for_each(|u| *u += 1);
            return None;
        }
        Some((*points, budget.min(left)))
    }

    fn explore(
        &self,
        depth: usize,
        sim: &Sim,
        (kind, site, number): (Kind, Option<Site>, u64),
        budget: u64,
        expected: Option<S::State>,
    ) {
        let mut level = self.levels[depth - 1].lock();
        level.stable.clear();
        let killed_before = expected.is_some();
        level.expected = expected;
        if depth == 1 {
            *self.history.lock() = Arc::new(self.ack.history());
        }
        let history = Arc::clone(&self.history.lock());
        let image = Arc::new(sim.crash_image());
        let child = level.child.take().unwrap_or_else(|| self.new_child(depth));
        child.mount(Arc::clone(&image));
        self.frames.lock().push(Frame { kind, site, number, killed: false, child: Arc::clone(&child) });
        level.child = Some(Arc::clone(&child));

        let mut walk = Walk::new(budget, mix_pair(self.config.seed, number));
        let mut taken = Vec::new();
        let mut clean = true;
        while let Some(policy) = walk.next(&taken) {
            if let Err(violation) = self.leaf(depth, &child, &mut level, policy, &history) {
                let violation = self.minimise(depth, &child, &mut level, violation, &history);
                self.locate(depth, violation);
                clean = false;
                break;
            }
            if self.nested_finding.lock().is_some() {
                clean = false;
                break;
            }
            taken.clear();
            taken.extend_from_slice(&child.state.lock().decider.taken);
        }
        let nested = if depth == 1 { self.nested_finding.lock().take() } else { None };
        if let Some(nested) = nested {
            self.report_simplest(sim, &image, &child, &mut level, nested, budget, number, &history);
        }
        if clean && depth == 1 && self.config.faults > 0 {
            self.plant_faults(&child, sim, number, &history);
        }
        level.expected = None;
        // A second kill right behind the first finds what the first one found.
        if clean && self.config.kills && !killed_before && !self.stopped() {
            self.kill(depth, sim, &image, &child, &mut level, &history);
        }
        self.frames.lock().pop();
        // A program that kept its memory open after its check could still store there: such a memory is not used again.
        level.child = (Arc::strong_count(&child) == 2).then_some(child);
        self.count_coverage(depth, &walk, kind, site);
    }

    fn new_child(&self, depth: usize) -> Arc<Sim> {
        let child = Sim::for_recovery(self.scenario.capacity(), &self.config);
        child.set_hook(Some(self.port(depth + 1)));
        child
    }

    fn count_coverage(&self, depth: usize, walk: &Walk, kind: Kind, site: Option<Site>) {
        let report = &mut self.tally.lock().report;
        let complete = if depth == 1 { &mut report.complete } else { &mut report.nested_complete };
        if walk.complete {
            *complete += 1;
        } else if depth == 1 && report.violations.is_empty() {
            let barrier = site.map(|site| Barrier::new(kind, site));
            report.incomplete.push(Coverage { barrier, explored: walk.used(), of_about: walk.of_about });
            report.incomplete.sort_by(|a, b| b.of_about.total_cmp(&a.of_about));
            report.incomplete.truncate(INCOMPLETE_MAX);
        }
    }
}
