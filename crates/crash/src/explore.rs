//! Explores one crash point: recovers its images one after the other, inside the very call that was interrupted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use pmem::sim::Site;

use crate::config::{Barrier, Config, Kind};
use crate::decide::Policy;
use crate::image::{PlainMap, mix_pair};
use crate::oracle::{Ack, History};
use crate::quiet;
use crate::report::{Coverage, INCOMPLETE_MAX, Report};
use crate::rng::Rng;
use crate::scenario::Scenario;
use crate::sim::{Hook, Sim, as_thread};
use crate::violation::{CrashPoint, Violation, lost_words, stack};
use crate::walk::Walk;

/// Recovered states that are remembered, to recognise an image recovered before.
const STABLE_MAX: usize = 4096;
/// Lost words that are tried one by one to tell a finding with as few as possible.
const MINIMISE_MAX: usize = 256;
/// Recoveries between two searches for stores that the model could not see.
const STRAY_EVERY: u64 = 256;
/// Who holds a recovery memory between two recoveries: its level, its frame, and who explores.
const HOLDERS: usize = 3;
/// Violations kept at most.
const VIOLATIONS_MAX: usize = 16;

/// What has been counted and seen so far, over all schedules.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) report: Report,
    images: PlainMap<()>,
}

/// Explores the crash points of one workload.
pub(crate) struct Explorer<S: Scenario> {
    me: Weak<Self>,
    scenario: Arc<S>,
    config: Config,
    schedule: u64,
    /// Recoveries after which no further crash point is explored.
    budget: u64,
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
    since_stray: u64,
}

/// A crash point being explored.
struct Frame {
    kind: Kind,
    site: Option<Site>,
    number: u64,
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
        ops: Vec<(usize, S::Op)>,
        tally: &Arc<Mutex<Tally>>,
    ) -> Arc<Self> {
        let level = |_| Mutex::new(Level { child: None, stable: PlainMap::default(), since_stray: 0 });
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            scenario: Arc::clone(scenario),
            config: config.clone(),
            schedule,
            budget,
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
        let Some((number, budget)) = self.admit(depth, sim) else { return };
        let scheduler = pmem::sync::set_scheduler(None);
        as_thread(0, || self.explore(depth, sim, kind, site, number, budget));
        pmem::sync::set_scheduler(scheduler);
    }

    /// Counts a crash point; its number and budget, unless it can show nothing new or the budget is spent.
    fn admit(&self, depth: usize, sim: &Sim) -> Option<(u64, u64)> {
        let key = mix_pair(sim.crash_key(), self.ack.version());
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

    fn explore(&self, depth: usize, sim: &Sim, kind: Kind, site: Option<Site>, number: u64, budget: u64) {
        let mut level = self.levels[depth - 1].lock();
        level.stable.clear();
        if depth == 1 {
            *self.history.lock() = Arc::new(self.ack.history());
        }
        let history = Arc::clone(&self.history.lock());
        let image = Arc::new(sim.crash_image());
        let child = level.child.take().unwrap_or_else(|| self.new_child(depth));
        child.mount(image);
        self.frames.lock().push(Frame { kind, site, number, child: Arc::clone(&child) });
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
            self.report_simplest(&child, &mut level, nested, budget, number, &history);
        }
        if clean && depth == 1 && self.config.faults > 0 {
            self.plant_faults(&child, sim, number, &history);
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

    /// Recovers one image, checks it, and recovers the result once more.
    fn leaf(
        &self,
        depth: usize,
        child: &Arc<Sim>,
        level: &mut Level<S::State>,
        policy: Policy,
        history: &History<S::Effect>,
    ) -> Result<(), Violation> {
        child.reset(policy);
        self.tally.lock().report.recoveries += 1;
        let state = self.recover(child, history).map_err(after_a_crash)?;
        if Arc::strong_count(child) > HOLDERS {
            return Err(Violation::new("the check ended with its memory still open: close or drop the pool in it"));
        }
        let outcome = child.outcome();
        if outcome.is_some_and(|(media, memory)| media != memory) {
            self.point(depth + 1, child, Kind::End, None);
        }
        let (leaf, diverged) = (child.leaf_hash(), child.state.lock().decider.diverged);
        let mut tally = self.tally.lock();
        tally.report.states += u64::from(tally.images.insert(leaf, ()).is_none());
        tally.report.diverged += u64::from(diverged);
        drop(tally);
        if let Some(outcome) = outcome.filter(|_| self.config.stable) {
            self.check_stable(child, level, state, outcome, history)?;
        }
        level.since_stray += 1;
        if level.since_stray >= STRAY_EVERY {
            level.since_stray = 0;
            if let Some(offset) = child.stray_store() {
                child.remount();
                return Err(Violation::new(format!(
                    "recovery stored at offset {offset} without asking for write access: the explorer cannot see that"
                )));
            }
        }
        Ok(())
    }

    fn recover(&self, child: &Arc<Sim>, history: &History<S::Effect>) -> Result<S::State, Violation> {
        quiet::catch(|| self.scenario.check(child, history))
            .unwrap_or_else(|panic| Err(Violation::new(format!("recovery or check panicked: {panic}"))))
    }

    /// Recovering what a recovery left, with or without what it had not drained, must show the same state.
    fn check_stable(
        &self,
        child: &Arc<Sim>,
        level: &mut Level<S::State>,
        first: S::State,
        (media, memory): (u64, u64),
        history: &History<S::Effect>,
    ) -> Result<(), Violation> {
        // Both are images to be seen; where they differ, half of the leaves take the one, half the other.
        let all = media == memory || memory & 1 == 0;
        let key = if all { memory } else { media };
        if let Some(known) = level.stable.get(&key) {
            return same(&first, known);
        }
        child.reboot(all);
        self.tally.lock().report.stability += 1;
        let was = self.shallow.swap(true, Relaxed);
        let second = self.recover(child, history);
        self.shallow.store(was, Relaxed);
        let second = second.map_err(|mut violation| {
            violation.message = format!("recovering a recovered pool again: {}", violation.message);
            violation
        })?;
        let result = same(&first, &second);
        if level.stable.len() < STABLE_MAX {
            level.stable.insert(key, second);
        }
        result
    }

    /// Looks for an image with fewer lost words that shows a violation too, and leaves it in `child`.
    fn minimise(
        &self,
        depth: usize,
        child: &Arc<Sim>,
        level: &mut Level<S::State>,
        found: Violation,
        history: &History<S::Effect>,
    ) -> Violation {
        let choices = child.choices();
        let mut kept: BTreeMap<u32, u32> =
            choices.iter().filter(|c| c.option != c.newest).map(|c| (c.unit, c.option)).collect();
        let was = self.shallow.swap(true, Relaxed);
        let mut violation = found.clone();
        for unit in kept.keys().copied().take(MINIMISE_MAX).collect::<Vec<_>>() {
            let mut fewer = kept.clone();
            fewer.remove(&unit);
            level.stable.clear();
            if let Err(again) = self.leaf(depth, child, level, Policy::Fixed(fewer.clone()), history) {
                (kept, violation) = (fewer, again);
            }
        }
        level.stable.clear();
        if self.leaf(depth, child, level, Policy::Fixed(kept), history).is_ok() {
            let script = choices.iter().map(|c| c.option).collect();
            level.stable.clear();
            violation = self.leaf(depth, child, level, Policy::Script(script), history).err().unwrap_or(found);
        }
        self.shallow.store(was, Relaxed);
        violation
    }

    /// Adds where the power failed, and takes the finding down.
    fn locate(&self, depth: usize, mut violation: Violation) {
        for frame in self.frames.lock().iter() {
            let mut point = CrashPoint::new(frame.kind, frame.site, frame.number);
            point.lost = lost_words(&frame.child);
            violation.trail.push(point);
        }
        if let Some(frame) = self.frames.lock().last() {
            let image = frame.child.image();
            let place = |unit: u32| {
                image.units.get(unit as usize).and_then(|u| u.words().next()).map_or(u64::MAX, |w| w as u64 * 8)
            };
            violation.choices = frame.child.choices().iter().map(|c| (place(c.unit), c.option)).collect();
        }
        if let Some(last) = violation.trail.last_mut() {
            last.stack = stack();
        }
        if depth == 1 {
            self.fail(violation);
        } else {
            *self.nested_finding.lock() = Some(violation);
        }
    }

    /// One crash is understood more easily than two: reports one of this crash point alone, if there is any, else the nested one.
    fn report_simplest(
        &self,
        child: &Arc<Sim>,
        level: &mut Level<S::State>,
        nested: Violation,
        budget: u64,
        number: u64,
        history: &History<S::Effect>,
    ) {
        let was = self.shallow.swap(true, Relaxed);
        let mut walk = Walk::new(budget, mix_pair(self.config.seed, number));
        let mut taken = Vec::new();
        let mut simple = None;
        while let Some(policy) = walk.next(&taken)
            && simple.is_none()
        {
            simple = self.leaf(1, child, level, policy, history).err();
            taken = child.choices();
        }
        self.shallow.store(was, Relaxed);
        match simple {
            Some(violation) => {
                let violation = self.minimise(1, child, level, violation, history);
                self.locate(1, violation);
            }
            None => self.fail(nested),
        }
    }

    /// Images on which everything arrived, but the medium has a fault where recovery reads.
    fn plant_faults(&self, child: &Arc<Sim>, program: &Sim, number: u64, history: &History<S::Effect>) {
        let was = self.shallow.swap(true, Relaxed);
        child.reset(Policy::New);
        child.record_reads();
        let reads = match self.recover(child, history) {
            Ok(_) => std::mem::take(&mut child.state.lock().reads),
            Err(_) => Vec::new(),
        };
        let mut rng = Rng::seeded(mix_pair(self.config.seed ^ 0xFA17, number));
        for _ in 0..if reads.is_empty() { 0 } else { self.config.faults } {
            child.reset(Policy::New);
            let Some(fault) = crate::fault::plant(child, program, &reads, &self.config.fault_kinds, &mut rng) else {
                continue;
            };
            let result = self.recover(child, history);
            self.tally.lock().report.faults += 1;
            match result {
                Ok(_) => {}
                Err(violation) if violation.detected => self.tally.lock().report.faults_detected += 1,
                Err(mut violation) => {
                    violation.fault = Some(fault);
                    self.locate(1, violation);
                    break;
                }
            }
        }
        self.shallow.store(was, Relaxed);
    }
}

fn after_a_crash(mut violation: Violation) -> Violation {
    if violation.detected {
        violation.message = format!("recovery fails after a mere crash: {}", violation.message);
    }
    violation
}

fn same<T: PartialEq + std::fmt::Debug>(first: &T, second: &T) -> Result<(), Violation> {
    if first == second {
        return Ok(());
    }
    Err(Violation::new(format!(
        "recovery is not stable: it showed {first:?}, and after another crash right behind it {second:?}"
    )))
}
