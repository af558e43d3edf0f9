//! One image: recovered, checked, and recovered once more.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{Explorer, Here};
use crate::config::Kind;
use crate::decide::Policy;
use crate::oracle::History;
use crate::quiet;
use crate::scenario::Scenario;
use crate::sim::Sim;
use crate::violation::Violation;

/// Recovered states that are remembered, to recognise an image recovered before.
const STABLE_MAX: usize = 4096;
/// Recoveries between two searches for stores that the model could not see.
const STRAY_EVERY: u64 = 256;
/// Holders of a recovery memory between two recoveries: its level, its frame, and the explorer.
const HOLDERS: usize = 3;

/// An image that was recovered, checked, and recovered once more.
pub(super) struct Recovered<T> {
    pub(super) state: T,
    /// By which it can be known again: what recovery read, and the hash of the image.
    pub(super) trace: Option<(u32, u64)>,
}

impl<S: Scenario> Explorer<S> {
    /// Recovers one image, checks it, and recovers the result once more.
    pub(super) fn leaf(&self, here: &mut Here<'_, S>, policy: Policy) -> Result<Recovered<S::State>, Violation> {
        let (child, history) = (here.child, here.history);
        self.pulse.fetch_add(1, Relaxed);
        child.reset(policy);
        self.count(here.depth);
        let state = self.recover(child, history).map_err(after_a_crash)?;
        is_closed(child)?;
        if let Some(shown) = &here.level.expected {
            same(shown, &state, "a power failure")?;
        }
        let outcome = child.outcome();
        let trace = child.trace(|trace, leaf| Some((self.known.lock().trace_id(trace)?, leaf))).flatten();
        if outcome.is_some_and(|(media, memory)| media != memory) {
            self.point(here.depth + 1, child, Kind::End, None);
        }
        let (leaf, diverged) = (child.leaf_hash(), child.state.lock().decider.diverged);
        let mut tally = self.tally.lock();
        tally.report.states += u64::from(tally.images.insert(leaf, ()).is_none());
        tally.report.diverged += u64::from(diverged);
        drop(tally);
        if let Some(outcome) = outcome.filter(|_| self.config.stable) {
            self.check_stable(here, &state, outcome)?;
        }
        here.level.since_stray += 1;
        if here.level.since_stray >= STRAY_EVERY {
            here.level.since_stray = 0;
            if let Some(offset) = child.stray_store() {
                child.remount();
                return Err(Violation::new(format!(
                    "recovery stored at offset {offset} without asking for write access: the explorer cannot see that"
                )));
            }
        }
        Ok(Recovered { state, trace: trace.filter(|_| !diverged) })
    }

    pub(super) fn recover(&self, child: &Arc<Sim>, history: &History<S::Effect>) -> Result<S::State, Violation> {
        quiet::catch(|| self.scenario.check(child, history))
            .unwrap_or_else(|panic| Err(Violation::new(format!("recovery or check panicked: {panic}"))))
    }

    /// Recovering what a recovery left, with or without what it had not drained, must show the same state.
    pub(super) fn check_stable(
        &self,
        here: &mut Here<'_, S>,
        first: &S::State,
        (media, memory): (u64, u64),
    ) -> Result<(), Violation> {
        // Both are images to be seen; where they differ, half of the leaves take the one, half the other.
        let all = media == memory || memory & 1 == 0;
        let key = if all { memory } else { media };
        if let Some(known) = here.level.stable.get(&key) {
            return same(first, known, "another crash");
        }
        here.child.reboot(all);
        let second = self.recover_again(here.child, here.history)?;
        let result = same(first, &second, "another crash");
        if here.level.stable.len() < STABLE_MAX {
            here.level.stable.insert(key, second);
        }
        result
    }

    /// Recovers what a recovery left.
    pub(super) fn recover_again(&self, child: &Arc<Sim>, history: &History<S::Effect>) -> Result<S::State, Violation> {
        self.tally.lock().report.stability += 1;
        self.shallowly(|| self.recover(child, history)).map_err(|mut violation| {
            violation.message = format!("recovering a recovered pool again: {}", violation.message);
            violation
        })
    }
}

fn after_a_crash(mut violation: Violation) -> Violation {
    if violation.detected {
        violation.message = format!("recovery fails after a mere crash: {}", violation.message);
    }
    violation
}

/// A check that keeps the memory of a recovery could still store there.
pub(super) fn is_closed(child: &Arc<Sim>) -> Result<(), Violation> {
    if Arc::strong_count(child) > HOLDERS {
        return Err(Violation::new("the check ended with its memory still open: close or drop the pool in it"));
    }
    Ok(())
}

pub(super) fn same<T: PartialEq + std::fmt::Debug>(first: &T, second: &T, after: &str) -> Result<(), Violation> {
    if first == second {
        return Ok(());
    }
    Err(Violation::new(format!(
        "recovery is not stable: it showed {first:?}, and after {after} right behind it {second:?}"
    )))
}
