//! The order in which the images of one crash point are recovered: corner cases first where there are too many to see
//! them all, then every path of the tree in turn, then random ones.

use std::collections::VecDeque;

use crate::decide::{Choice, Policy, advance, width};
use crate::image::mix_pair;

/// Groups that get corner cases of their own at most.
const CORNERS_MAX: usize = 64;

pub(crate) struct Walk {
    budget: u64,
    used: u64,
    seed: u64,
    phase: Phase,
    corners: VecDeque<Policy>,
    next_script: Option<Vec<u32>>,
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
}

impl Walk {
    pub(crate) fn new(budget: u64, seed: u64) -> Self {
        Self {
            budget,
            used: 0,
            seed,
            phase: Phase::Start,
            corners: VecDeque::new(),
            next_script: None,
            complete: false,
            of_about: 0.0,
        }
    }

    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// The next policy to recover with; `taken` is the path of the one before.
    pub(crate) fn next(&mut self, taken: &[Choice]) -> Option<Policy> {
        if self.complete || self.used >= self.budget {
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
            Phase::Random => Some(self.random()),
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
        self.phase = Phase::Odometer;
        match self.next_script.take() {
            None => {
                self.complete = true;
                None
            }
            Some(_) if self.of_about > self.budget as f64 && self.used >= self.budget / 2 => {
                self.phase = Phase::Random;
                Some(self.random())
            }
            Some(script) => Some(Policy::Script(script)),
        }
    }

    fn random(&mut self) -> Policy {
        Policy::Random(mix_pair(self.seed, self.used))
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
