//! The other crash: the process is killed, all it stored is still in the caches, and only later the power fails.
//!
//! There is one such image at a crash point, and recovering it is easy. What matters comes behind it: recovery may have acted on, or
//! reported, what it read from a cache. Unless it made that persistent, a power failure takes it back.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::leaf::{is_closed, same};
use super::{Explorer, Here, Images};
use crate::config::Kind;
use crate::decide::Policy;
use crate::hash::mix_pair;
use crate::scenario::Scenario;
use crate::sim::{Sim, as_thread};
use crate::violation::Violation;

/// Sets the power failures behind a kill apart from those without one: they are held to more.
const BEHIND_A_KILL: u64 = 0x6B69_6C6C;

impl<S: Scenario> Explorer<S> {
    /// Kills the process here.
    pub(super) fn kill(&self, here: &mut Here<'_, S>) {
        if !self.mount_killed(here) {
            return;
        }
        if let Err(violation) = self.recover_killed(here) {
            // It comes first: one crash is understood more easily than two.
            self.nested_finding.lock().take();
            self.locate(here.depth, violation);
        }
        let nested = if here.depth == 1 { self.nested_finding.lock().take() } else { None };
        if let Some(nested) = nested {
            self.report_simplest_kill(here, nested);
        }
    }

    /// Reports what a kill of the program shows with one power failure right behind its recovery, if anything, else the nested finding.
    pub(super) fn simplest_kill(&self, here: &mut Here<'_, S>, nested: Violation) {
        if self.config.kills && self.mount_killed(here) {
            self.report_simplest_kill(here, nested);
        } else {
            self.fail(nested);
        }
    }

    /// False where a kill leaves nothing that a power failure does not.
    fn mount_killed(&self, here: &Here<'_, S>) -> bool {
        let Some(image) = here.sim.kill_image(here.image, self.config.flushed_outlives) else { return false };
        here.child.mount(Arc::new(image));
        if let Some(frame) = self.frames.lock().last_mut() {
            frame.killed = true;
        }
        true
    }

    fn report_simplest_kill(&self, here: &mut Here<'_, S>, nested: Violation) {
        here.level.stable.clear();
        let result = self.shallowly(|| self.recover_killed(here));
        let simple = self.nested_finding.lock().take();
        match (result, simple) {
            (Err(violation), _) => self.locate(1, violation),
            (Ok(()), simple) => self.fail(simple.unwrap_or(nested)),
        }
    }

    fn recover_killed(&self, here: &mut Here<'_, S>) -> Result<(), Violation> {
        let (child, history) = (here.child, here.history);
        self.pulse.fetch_add(1, Relaxed);
        child.reset(Policy::Old);
        self.count(here.depth);
        self.tally.lock().report.kills += 1;
        let state = self.recover(child, history).map_err(|mut violation| {
            if violation.detected {
                violation.message = format!("recovery fails after the process was killed: {}", violation.message);
            }
            violation
        })?;
        is_closed(child)?;
        let Some((media, memory)) = child.outcome() else { return Ok(()) };
        if self.nested_finding.lock().is_some() {
            return Ok(());
        }
        if media == memory {
            return match self.config.stable {
                true => self.check_stable(here, &state, (media, memory)),
                false => Ok(()),
            };
        }
        let left = self.left_for(here.depth + 1, self.tally.lock().report.recoveries);
        if here.depth < self.config.depth && (left > 0 || self.shallow.load(Relaxed)) {
            self.power_fails(here.depth + 1, child, state);
            return Ok(());
        }
        if self.config.stable {
            // No crash is left to explore, or no budget; but the worst one: nothing pending arrives.
            child.reboot(false);
            let second = self.recover_again(child, history)?;
            same(&state, &second, "a power failure")?;
        }
        Ok(())
    }

    /// The power fails right behind the recovery of a killed process, which has shown `state`.
    fn power_fails(&self, depth: usize, child: &Arc<Sim>, state: S::State) {
        let key = mix_pair(mix_pair(child.crash_key(), self.promises()), BEHIND_A_KILL);
        let admitted = match self.shallow.load(Relaxed) {
            // Once more, for a simpler finding: it was counted the first time.
            true => Some((self.tally.lock().report.nested, self.config.nested_budget)),
            false => self.admit(depth, key, child, Images::All),
        };
        let Some((number, budget)) = admitted else { return };
        let expected = self.config.stable.then_some(state);
        as_thread(0, || self.explore(depth, child, (Kind::End, None, number), (Images::All, budget), expected));
    }
}
