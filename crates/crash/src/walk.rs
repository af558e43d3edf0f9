//! The order in which the images of one crash point are recovered: corner cases first where there are too many to see
//! them all, then every path of the tree in turn, then random ones.

use std::collections::VecDeque;

use crate::decide::{Choice, Policy, advance, width};
use crate::image::mix_pair;

/// Groups that get corner cases of their own at most.
const CORNERS_MAX: usize = 64;

/// Known images one after the other that say to look elsewhere.
const KNOWN_RUN: u64 = 64;
/// For each image of the budget, so many may turn out to be known.
const KNOWN_PER_IMAGE: u64 = 16;

pub(crate) struct Walk {
    budget_max: u64,
    /// What is left of it, as far as the recoveries so far tell what one image costs with all crashes inside its recovery.
    budget: u64,
    used: u64,
    known: u64,
    /// Those at the end, one after the other.
    known_last: u64,
    seed: u64,
    phase: Phase,
    corners: VecDeque<Policy>,
    next_script: Option<Vec<Choice>>,
    /// Every path was taken.
    pub(crate) complete: bool,
    /// Number of images, as far as the first path tells.
    pub(crate) of_about: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Start,
    First,
    Corners,
    Odometer,
    Random,
    /// The odometer again, where it was left.
    Resumed,
}

impl Walk {
    pub(crate) fn new(budget: u64, seed: u64) -> Self {
        Self {
            budget_max: budget,
            budget,
            used: 0,
            known: 0,
            known_last: 0,
            seed,
            phase: Phase::Start,
            corners: VecDeque::new(),
            next_script: None,
            complete: false,
            of_about: 0.0,
        }
    }

    /// Images recovered.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Whether the image of the last policy was known: then it cost nothing.
    pub(crate) fn note(&mut self, known: bool) {
        self.used -= u64::from(known);
        self.known += u64::from(known);
        self.known_last = if known { self.known_last + 1 } else { 0 };
    }

    /// So many recoveries were `spent` here, those of crashes inside recoveries too, and `left` remain.
    pub(crate) fn afford(&mut self, spent: u64, left: u64) {
        let each = spent.checked_div(self.used).unwrap_or(1).max(1);
        self.budget = self.budget_max.min(self.used + left.div_ceil(each));
    }

    /// The next policy to recover with; `taken` is the path of the one before.
    pub(crate) fn next(&mut self, taken: &[Choice]) -> Option<Policy> {
        let worn_out = self.known / KNOWN_PER_IMAGE > self.budget;
        if self.complete
            || (self.used >= self.budget && !matches!(self.phase, Phase::Odometer | Phase::Resumed))
            || worn_out
        {
            return None;
        }
        let policy = match self.phase {
            Phase::Start => {
                self.phase = Phase::First;
                Some(Policy::Script(Vec::new()))
            }
            Phase::First => {
                self.of_about = width(taken);
                self.next_script = advance(taken);
                if self.of_about > self.budget as f64 / 2.0 {
                    self.list_corners(taken);
                }
                self.phase = Phase::Corners;
                self.corner_or_script(None)
            }
            Phase::Corners => self.corner_or_script(None),
            Phase::Odometer => self.corner_or_script(Some(taken)),
            Phase::Random if self.known_last < KNOWN_RUN => Some(self.random()),
            Phase::Random => {
                self.phase = Phase::Resumed;
                self.next_script.take().map(Policy::Script)
            }
            Phase::Resumed => self.corner_or_script(Some(taken)),
        };
        self.used += u64::from(policy.is_some());
        policy
    }

    fn corner_or_script(&mut self, taken: Option<&[Choice]>) -> Option<Policy> {
        if let Some(corner) = self.corners.pop_front() {
            return Some(corner);
        }
        if let Some(taken) = taken {
            self.next_script = advance(taken);
        }
        let by_chance = self.phase != Phase::Resumed;
        if by_chance {
            self.phase = Phase::Odometer;
        }
        match self.next_script.take() {
            None => {
                self.complete = true;
                None
            }
            Some(_) if self.used >= self.budget => None,
            Some(script)
                if by_chance
                    && self.of_about > self.budget as f64
                    && (self.used >= self.budget / 2 || self.known_last >= KNOWN_RUN) =>
            {
                self.phase = Phase::Random;
                self.known_last = 0;
                self.next_script = Some(script);
                Some(self.random())
            }
            Some(script) => Some(Policy::Script(script)),
        }
    }

    fn random(&mut self) -> Policy {
        Policy::Random(mix_pair(self.seed, self.used + self.known))
    }

    fn list_corners(&mut self, taken: &[Choice]) {
        self.corners.push_back(Policy::New);
        let mut groups: Vec<u32> = taken.iter().map(|c| c.group).collect();
        groups.sort_unstable();
        groups.dedup();
        // Spread over all groups where there are too many.
        let step = groups.len().div_ceil(CORNERS_MAX).max(1);
        for &group in groups.iter().step_by(step) {
            self.corners.extend([Policy::OneNew(group), Policy::OneOld(group)]);
        }
    }
}
