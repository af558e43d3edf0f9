//! The order in which the images of one crash point are recovered: corner cases first where there are too many to see
//! them all, then every path of the tree in turn, then random ones.

mod guide;

use guide::Guide;

use crate::decide::{Choice, Policy, advance, width};
use crate::hash::mix_pair;

/// Single spans are tried until all but a quarter of the budget is used, or half of it and so many.
const BEYOND_HALF: u64 = 64;

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
    guide: Guide,
    /// The corner cases were seen, or there is no need of them.
    cornered: bool,
    next_script: Option<Vec<Choice>>,
    /// Every path was taken.
    pub(crate) complete: bool,
    /// Number of images, as far as the first path tells.
    pub(crate) of_about: f64,
}

/// What a recovery made of its image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effect {
    /// Equal where it read the same, in the same order.
    pub(crate) reads: u64,
    /// Equal where it showed the same, as far as states are told apart.
    pub(crate) state: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Start,
    /// Nothing arrived.
    First,
    /// Everything did.
    Newest,
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
            guide: Guide::new(),
            cornered: false,
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

    /// The next policy to recover with; `taken` is the path of the one before, and `effect` what came of it.
    pub(crate) fn next(&mut self, taken: &[Choice], effect: Effect) -> Option<Policy> {
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
                self.guide.begin(false, taken, effect, self.budget);
                self.next_script = advance(taken);
                self.corners_or_script()
            }
            Phase::Newest => {
                self.of_about = self.of_about.max(width(taken));
                self.guide.begin(true, taken, effect, self.budget);
                self.phase = Phase::Corners;
                self.corner()
            }
            Phase::Corners => {
                self.guide.note(taken, effect);
                self.corner()
            }
            Phase::Odometer => {
                self.next_script = advance(taken);
                self.corners_or_script()
            }
            Phase::Random if self.known_last < KNOWN_RUN => Some(self.random()),
            Phase::Random => {
                self.phase = Phase::Resumed;
                self.next_script.take().map(Policy::Script)
            }
            Phase::Resumed => {
                self.next_script = advance(taken);
                self.script()
            }
        };
        self.used += u64::from(policy.is_some());
        policy
    }

    /// Corner cases come first where the first path is too wide for the budget, and else as soon as half of it was not enough.
    fn corners_or_script(&mut self) -> Option<Policy> {
        let half = self.of_about > self.budget as f64 / 2.0 || self.used >= self.budget / 2;
        if self.cornered || self.next_script.is_none() || self.used >= self.budget || !half {
            return self.script();
        }
        self.cornered = true;
        self.phase = Phase::Newest;
        Some(Policy::New)
    }

    fn corner(&mut self) -> Option<Policy> {
        let singles = (self.budget - self.budget / 4).min(self.budget / 2 + BEYOND_HALF);
        match self.guide.next(self.used >= singles) {
            None => self.script(),
            corner => corner,
        }
    }

    fn script(&mut self) -> Option<Policy> {
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
}
