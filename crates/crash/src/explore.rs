//! Explores one crash point: recovers its images one after the other, inside the very call that was interrupted.

mod finding;
mod kill;
mod known;
mod leaf;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;
use pmem::sim::Site;

use crate::clock::now;
use crate::config::{Barrier, Config, Kind};
use crate::hash::{PlainMap, mix_pair};
use crate::image::Image;
use crate::oracle::{Ack, History};
use crate::report::{Coverage, INCOMPLETE_MAX, Report, VIOLATIONS_MAX};
use crate::scenario::Scenario;
use crate::sim::{Hook, Sim, as_thread};
use crate::violation::Violation;
use crate::walk::{Effect, Walk};
use crate::witness::Witness;

use known::{Known, Orders};
use leaf::Recovered;

/// What has been counted and seen so far, over all schedules.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) report: Report,
    pub(crate) images: PlainMap<()>,
}

/// What a crash point weighs that leaves one image: recovery is crashed on that one too.
const WEIGHT_LEAST: f64 = 4.0;
/// What a kill in front of a flush weighs.
const WEIGHT_KILL: f64 = 1.0;
/// One part in so many of a crash point's share is kept for the kill there.
const KILL_PART: u64 = 4;
/// Violations after which nothing more is explored, those that show what another one has shown counted too.
const FOUND_MAX: u64 = 64;
/// Sets the crash points where the process is only killed apart.
const ONLY_KILLED: u64 = 0x6F6E_6C79;

/// How much of one workload is explored.
#[derive(Clone, Default)]
pub(crate) struct Limits {
    /// Recoveries after which no further crash point is explored.
    pub(crate) budget: u64,
    /// The crash points that share it, each by how much it may leave: what one of them does not need is left to those behind it.
    pub(crate) weights: Vec<f64>,
    /// The time after which no further one is explored.
    pub(crate) deadline: Option<Instant>,
}

/// Explores the crash points of one workload.
pub(crate) struct Explorer<S: Scenario> {
    me: Weak<Self>,
    scenario: Arc<S>,
    config: Config,
    schedule: u64,
    limits: Limits,
    /// The crash points of the program that were explored; with no budget, those that would have been, by how much they may leave.
    admitted: Mutex<Vec<f64>>,
    /// Recoveries after which the present crash point of the program is left.
    allowance: AtomicU64,
    /// Those kept back for the kill at its end.
    reserve: AtomicU64,
    /// Recoveries that crashes inside recoveries may still have there.
    nested_left: AtomicU64,
    /// Violations so far, those that were known too.
    found: AtomicU64,
    known: Mutex<Known<S::State>>,
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

/// A crash point while it is explored: what its images are made of, and what they are held against.
struct Here<'a, S: Scenario> {
    depth: usize,
    number: u64,
    /// The memory that is interrupted.
    sim: &'a Sim,
    /// What a power failure leaves of it.
    image: &'a Image,
    /// Where that is recovered.
    child: &'a Arc<Sim>,
    level: &'a mut Level<S::State>,
    history: &'a History<S::Effect>,
}

/// Which images of a crash point are recovered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Images {
    /// Those of a power failure, and that of a kill.
    All,
    /// That of a kill.
    Killed,
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
        limits: Limits,
        ops: Vec<(usize, S::Op)>,
        tally: &Arc<Mutex<Tally>>,
    ) -> Arc<Self> {
        let level = |_| Mutex::new(Level { child: None, stable: PlainMap::default(), expected: None, since_stray: 0 });
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            scenario: Arc::clone(scenario),
            config: config.clone(),
            schedule,
            limits,
            admitted: Mutex::default(),
            allowance: AtomicU64::new(0),
            reserve: AtomicU64::new(0),
            nested_left: AtomicU64::new(u64::MAX),
            found: AtomicU64::new(0),
            known: Mutex::new(Known::new(config.model)),
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
        let found = self.found.fetch_add(1, Relaxed) + 1;
        if !violations.iter().any(|other| other.is_like(&violation)) {
            violations.push(violation);
        }
        if self.config.stop_at_first || violations.len() >= VIOLATIONS_MAX || found >= FOUND_MAX {
            self.stop.store(true, Relaxed);
        }
    }

    /// By how much each crash point explored, or passed over for want of budget, may leave.
    pub(crate) fn weights(&self) -> Vec<f64> {
        self.admitted.lock().clone()
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
        if let Some(site) = site.filter(|_| matches!(kind, Kind::Flush | Kind::Drain | Kind::Whole)) {
            self.sites.lock().entry((kind, std::ptr::from_ref(site) as usize)).or_insert(site);
        }
        let kill_only = kind == Kind::Flush && !self.config.at_flushes;
        let passed_over = kill_only && !(depth <= self.config.kills_at_flushes && self.config.kills);
        if passed_over || depth > self.config.depth || (depth > 1 && self.shallow.load(Relaxed)) {
            return;
        }
        if depth > 1 && self.nested_left.load(Relaxed) == 0 {
            self.tally.lock().report.nested += 1; // not even looked at
            return;
        }
        if depth == 1 && self.limits.deadline.is_some_and(|deadline| now() >= deadline) {
            self.tally.lock().report.timed_out = true;
            self.stop.store(true, Relaxed);
            return;
        }
        let key = mix_pair(sim.crash_key(), self.promises());
        let images = if kill_only { Images::Killed } else { Images::All };
        let key = if kill_only { mix_pair(key, ONLY_KILLED) } else { key };
        let Some((number, budget)) = self.admit(depth, key, sim, images) else { return };
        let scheduler = pmem::sync::set_scheduler(None);
        as_thread(0, || self.explore(depth, sim, (kind, site, number), (images, budget), None));
        pmem::sync::set_scheduler(scheduler);
    }

    /// Runs `f`, in which crash points inside recoveries are passed over.
    fn shallowly<R>(&self, f: impl FnOnce() -> R) -> R {
        let was = self.shallow.swap(true, Relaxed);
        let result = f();
        self.shallow.store(was, Relaxed);
        result
    }

    /// Equal for checks that hold what they find against the same.
    fn promises(&self) -> u64 {
        mix_pair(self.ack.version(), Witness::key())
    }

    /// Counts a crash point; its number and budget, unless it can show nothing new or the budget is spent.
    fn admit(&self, depth: usize, key: u64, sim: &Sim, images: Images) -> Option<(u64, u64)> {
        let mut visited = self.visited.lock();
        // Seen deeper down, it was explored with a smaller budget and fewer crashes of its recoveries.
        let repeat = visited.get(&key).is_some_and(|&seen| seen <= depth);
        if !repeat {
            visited.insert(key, depth);
        }
        drop(visited);
        let report = &mut self.tally.lock().report;
        let left = match depth {
            1 => self.limits.budget.saturating_sub(report.recoveries),
            _ => self.left_for(depth, report.recoveries),
        };
        let (points, repeats, unexplored, budget) = match depth {
            _ if images == Images::Killed => {
                (&mut report.kill_points, &mut report.kill_repeats, None, self.config.nested_budget)
            }
            1 => (&mut report.points, &mut report.repeats, Some(&mut report.unexplored), self.config.point_budget),
            _ => (&mut report.nested, &mut report.nested_repeats, None, self.config.nested_budget),
        };
        *points += 1;
        if repeat {
            *repeats += 1;
            return None;
        }
        if depth == 1 {
            // The root: what can be seen completely shall be, and large points are sampled in any case.
            self.admitted.lock().push(match images {
                Images::All => sim.crash_width().min(self.config.point_budget as f64).sqrt() + WEIGHT_LEAST,
                Images::Killed => WEIGHT_KILL,
            });
        }
        if left == 0 {
            unexplored.into_iter().for_each(|u| *u += 1);
            return None;
        }
        if depth == 1 {
            let at = self.admitted.lock().len() - 1;
            let rest: f64 = self.limits.weights.iter().skip(at).sum();
            let share = match self.limits.weights.get(at) {
                Some(weight) => ((left as f64 * weight / rest).ceil() as u64).min(left),
                None => left,
            };
            let nested = (u128::from(share) * u128::from(self.config.nested_share.min(100)) / 100) as u64;
            let reserve = match (images, self.config.kills) {
                (Images::Killed, _) => share,
                (Images::All, true) => nested / KILL_PART,
                (Images::All, false) => 0,
            };
            self.allowance.store(report.recoveries + share - reserve, Relaxed);
            self.reserve.store(reserve, Relaxed);
            self.nested_left.store(nested.saturating_sub(reserve), Relaxed);
        }
        Some((*points, budget.min(left)))
    }

    /// Recoveries that are left at the present crash point of the program.
    fn left_for(&self, depth: usize, recoveries: u64) -> u64 {
        let left = self.allowance.load(Relaxed).saturating_sub(recoveries);
        if depth > 1 { left.min(self.nested_left.load(Relaxed)) } else { left }
    }

    /// Counts a recovery.
    fn count(&self, depth: usize) {
        if depth > 1 {
            let _ = self.nested_left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        }
        self.tally.lock().report.recoveries += 1;
    }

    fn explore(
        &self,
        depth: usize,
        sim: &Sim,
        (kind, site, number): (Kind, Option<Site>, u64),
        (images, budget): (Images, u64),
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

        let (image, history) = (&*image, &*history);
        let mut here = Here { depth, number, sim, image, child: &child, level: &mut level, history };
        let mut walk = Walk::new(budget, mix_pair(self.config.seed, number));
        let clean = images == Images::Killed || self.walk(&mut here, &mut walk);
        let nested = if depth == 1 { self.nested_finding.lock().take() } else { None };
        if let Some(nested) = nested {
            self.report_simplest(&mut here, nested, budget);
        }
        if clean && depth == 1 && images == Images::All && self.config.faults > 0 {
            self.shallowly(|| self.plant_faults(&here));
        }
        here.level.expected = None;
        // A second kill right behind the first finds what the first one found.
        if clean && self.config.kills && !killed_before && !self.stopped() {
            if depth == 1 {
                let reserve = self.reserve.load(Relaxed);
                self.allowance.fetch_add(reserve, Relaxed);
                let _ = self.nested_left.fetch_update(Relaxed, Relaxed, |left| Some(left.saturating_add(reserve)));
            }
            self.kill(&mut here);
        }
        self.frames.lock().pop();
        // A program that kept its memory open after its check could still store there: such a memory is not used again.
        level.child = (Arc::strong_count(&child) == 2).then_some(child);
        if images == Images::All {
            self.count_coverage(depth, &walk, kind, site);
        }
    }

    /// Recovers the images of a crash point one by one; false when one shows a violation.
    fn walk(&self, here: &mut Here<'_, S>, walk: &mut Walk) -> bool {
        // Where recovery is crashed too, an image is more than its bytes: what it leaves open is open to the crashes behind it.
        let position = if here.depth == self.config.depth { 0 } else { mix_pair(here.depth as u64, here.number) };
        let context = mix_pair(self.promises(), position);
        let mut orders = Orders::default();
        let (mut taken, mut effect) = (Vec::new(), Effect::default());
        let before = self.tally.lock().report.recoveries;
        loop {
            let now = self.tally.lock().report.recoveries;
            walk.afford(now - before, self.left_for(here.depth, now));
            let Some(policy) = walk.next(&taken, effect) else { return true };
            let expected = here.level.expected.as_ref();
            let known = if self.config.skip_known {
                self.known.lock().find(here.image, &policy, context, expected, &mut orders, &mut taken)
            } else {
                None
            };
            walk.note(known.is_some());
            if let Some(known) = known {
                effect = known;
                self.tally.lock().report.known += 1;
                continue;
            }
            match self.leaf(here, policy) {
                Err(violation) => {
                    let violation = self.minimise(here, violation);
                    self.locate(here.depth, violation);
                    return false;
                }
                Ok(_) if self.nested_finding.lock().is_some() => return false,
                Ok(Recovered { state, trace }) => {
                    taken.clear();
                    taken.extend_from_slice(&here.child.state.lock().decider.taken);
                    let mut known = self.known.lock();
                    effect = known.effect(trace.map(|(trace, _)| trace), state, &taken);
                    if let Some((trace, leaf)) = trace {
                        known.insert(context, leaf, trace, effect);
                        orders.note(&known, trace, here.image);
                    }
                }
            }
        }
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
