//! From an image that fails to a finding that can be understood: the fewest lost words, the fewest crashes, the location.

use std::collections::BTreeMap;

use super::leaf::Recovered;
use super::{Explorer, Here};
use crate::decide::Policy;
use crate::hash::mix_pair;
use crate::rng::Rng;
use crate::scenario::Scenario;
use crate::violation::{CrashPoint, Violation, branches, lost_words, stack};
use crate::walk::{Effect, Walk};

/// Lost words that are tried one by one to tell a finding with as few as possible.
const MINIMISE_MAX: usize = 256;

impl<S: Scenario> Explorer<S> {
    /// Looks for an image with fewer lost words that shows a violation too, and leaves it in `here.child`.
    pub(super) fn minimise(&self, here: &mut Here<'_, S>, found: Violation) -> Violation {
        let choices = here.child.choices();
        let mut kept: BTreeMap<u32, u32> =
            choices.iter().filter(|c| c.option != c.newest).map(|c| (c.unit, c.option)).collect();
        self.shallowly(|| {
            let mut violation = found.clone();
            for unit in kept.keys().copied().take(MINIMISE_MAX).collect::<Vec<_>>() {
                let mut fewer = kept.clone();
                fewer.remove(&unit);
                here.level.stable.clear();
                if let Err(again) = self.leaf(here, Policy::Fixed(fewer.clone())) {
                    (kept, violation) = (fewer, again);
                }
            }
            here.level.stable.clear();
            if self.leaf(here, Policy::Fixed(kept)).is_ok() {
                here.level.stable.clear();
                violation = self.leaf(here, Policy::Script(choices)).err().unwrap_or(found);
            }
            violation
        })
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
    pub(super) fn report_simplest(&self, here: &mut Here<'_, S>, nested: Violation, budget: u64) {
        let mut walk = Walk::new(budget, mix_pair(self.config.seed, here.number));
        let (mut taken, mut effect) = (Vec::new(), Effect::default());
        let simple = self.shallowly(|| {
            while let Some(policy) = walk.next(&taken, effect) {
                match self.leaf(here, policy) {
                    Err(violation) => return Some(violation),
                    Ok(Recovered { state, trace }) => {
                        taken = here.child.choices();
                        effect = self.known.lock().effect(trace.map(|(trace, _)| trace), state, &taken);
                    }
                }
            }
            None
        });
        match simple {
            Some(violation) => {
                let violation = self.minimise(here, violation);
                self.locate(1, violation);
            }
            None => self.simplest_kill(here, nested),
        }
    }

    /// Images on which everything arrived, or nothing that was not drained, and the medium has a fault where recovery reads. (The second
    /// tells whether what was acknowledged relies on one copy alone.)
    pub(super) fn plant_faults(&self, here: &Here<'_, S>) {
        let (child, history) = (here.child, here.history);
        child.reset(Policy::New);
        child.record_reads();
        let reads = match self.recover(child, history) {
            Ok(_) => std::mem::take(&mut child.state.lock().reads),
            Err(_) => Vec::new(),
        };
        let mut rng = Rng::seeded(mix_pair(self.config.seed ^ 0xFA17, here.number));
        for attempt in 0..if reads.is_empty() { 0 } else { self.config.faults } {
            child.reset(if attempt % 2 == 0 { Policy::New } else { Policy::Old });
            let Some(fault) = crate::fault::plant(child, here.sim, &reads, &self.config.fault_kinds, &mut rng) else {
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
    }
}
