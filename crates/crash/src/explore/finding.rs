//! From an image that fails to a finding that can be understood: the fewest lost words, the fewest crashes, the place.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{Explorer, Level};
use crate::decide::Policy;
use crate::image::{Image, mix_pair};
use crate::oracle::History;
use crate::rng::Rng;
use crate::scenario::Scenario;
use crate::sim::Sim;
use crate::violation::{CrashPoint, Violation, branches, lost_words, stack};
use crate::walk::Walk;

/// Lost words that are tried one by one to tell a finding with as few as possible.
const MINIMISE_MAX: usize = 256;

impl<S: Scenario> Explorer<S> {
    /// Looks for an image with fewer lost words that shows a violation too, and leaves it in `child`.
    pub(super) fn minimise(
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
    pub(super) fn locate(&self, depth: usize, mut violation: Violation) {
        for frame in self.frames.lock().iter() {
            let mut point = CrashPoint::new(frame.kind, frame.site, frame.number, frame.killed);
            point.lost = lost_words(&frame.child);
            point.choices = branches(&frame.child);
            violation.trail.push(point);
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
    #[expect(clippy::too_many_arguments, reason = "what a crash point has, handed on once")]
    pub(super) fn report_simplest(
        &self,
        sim: &Sim,
        crash: &Image,
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
            None => self.simplest_kill(sim, crash, child, level, nested, history),
        }
    }

    /// Images on which everything arrived, or nothing that was not drained, and the medium has a fault where recovery reads. (The second
    /// tells whether what was acknowledged relies on one copy alone.)
    pub(super) fn plant_faults(&self, child: &Arc<Sim>, program: &Sim, number: u64, history: &History<S::Effect>) {
        let was = self.shallow.swap(true, Relaxed);
        child.reset(Policy::New);
        child.record_reads();
        let reads = match self.recover(child, history) {
            Ok(_) => std::mem::take(&mut child.state.lock().reads),
            Err(_) => Vec::new(),
        };
        let mut rng = Rng::seeded(mix_pair(self.config.seed ^ 0xFA17, number));
        for attempt in 0..if reads.is_empty() { 0 } else { self.config.faults } {
            child.reset(if attempt % 2 == 0 { Policy::New } else { Policy::Old });
            let Some(fault) = crate::fault::plant(child, program, &reads, &self.config.fault_kinds, &mut rng) else {
                continue;
            };
            let result = self.recover(child, history);
            self.tally.lock().report.faults += 1;
            match result {
                Ok(_) => {}
                Err(violation) if violation.detected => self.tally.lock().report.faults_detected += 1,
                Err(mut violation) => {
                    violation.fault = Some(fault.into());
                    self.locate(1, violation);
                    break;
                }
            }
        }
        self.shallow.store(was, Relaxed);
    }
}
