//! How the open words of an image get their values, at the moment recovery first reads them.
//!
//! One run of recovery is a path in a tree: every read of an open word is a node with as many branches as the word has
//! values. [`Policy::Script`] repeats a prefix of branches and takes the first branch after it; [`Decider::advance`]
//! turns the branches taken into the next prefix, like an odometer, until the tree is exhausted. A word that recovery
//! never reads is no node, so it does not multiply the states.

use std::collections::BTreeMap;

use crate::rng::Rng;

/// The unit that stands for the length of the file.
pub(crate) const LENGTH_UNIT: u32 = u32::MAX;

/// A branch taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) unit: u32,
    pub(crate) group: u32,
    pub(crate) option: u32,
    pub(crate) arity: u32,
    pub(crate) newest: u32,
}

/// Which value an open place takes.
#[derive(Clone, Debug, Default)]
pub(crate) enum Policy {
    /// What the media surely had.
    #[default]
    Old,
    /// Everything arrived.
    New,
    /// Only this group arrived.
    OneNew(u32),
    /// Only this group did not arrive.
    OneOld(u32),
    /// These branches, then the first one everywhere.
    Script(Vec<u32>),
    /// Any; in each image another share of places keeps its old value.
    Random(u64),
    /// By unit; what is not named arrived.
    Fixed(BTreeMap<u32, u32>),
}

#[derive(Debug)]
pub(crate) struct Decider {
    policy: Policy,
    rng: Rng,
    keep_old: u64,
    /// A second recovery runs: what the first did not read keeps its old value, and is no branch.
    frozen: bool,
    pub(crate) taken: Vec<Choice>,
    /// A script did not fit: recovery did not read the same words in the same order.
    pub(crate) diverged: bool,
}

impl Default for Decider {
    fn default() -> Self {
        Self {
            policy: Policy::Old,
            rng: Rng::seeded(0),
            keep_old: 0,
            frozen: false,
            taken: Vec::new(),
            diverged: false,
        }
    }
}

impl Decider {
    pub(crate) fn reset(&mut self, policy: Policy) {
        if let Policy::Random(seed) = policy {
            self.rng = Rng::seeded(seed);
            self.keep_old = [1, 4, 8, 12, 15][self.rng.index(5)];
        }
        self.policy = policy;
        self.taken.clear();
        self.frozen = false;
        self.diverged = false;
    }

    pub(crate) fn freeze(&mut self) {
        self.frozen = true;
    }

    pub(crate) fn decide(&mut self, unit: u32, group: u32, arity: u32, newest: u32) -> u32 {
        if self.frozen {
            return 0;
        }
        let option = match &self.policy {
            Policy::Old => 0,
            Policy::New => newest,
            Policy::OneNew(only) => {
                if *only == group {
                    newest
                } else {
                    0
                }
            }
            Policy::OneOld(only) => {
                if *only == group {
                    0
                } else {
                    newest
                }
            }
            Policy::Script(prefix) => match prefix.get(self.taken.len()) {
                Some(&option) if option < arity => option,
                Some(_) => {
                    self.diverged = true;
                    0
                }
                None => 0,
            },
            Policy::Random(_) => {
                if self.rng.chance(self.keep_old, 16) {
                    0
                } else if arity == 2 || self.rng.chance(1, 2) {
                    newest
                } else {
                    self.rng.below(u64::from(arity)) as u32
                }
            }
            Policy::Fixed(map) => map.get(&unit).copied().unwrap_or(newest).min(arity - 1),
        };
        self.taken.push(Choice { unit, group, option, arity, newest });
        option
    }
}

/// The script of the path after this one; `None` when it was the last.
pub(crate) fn advance(taken: &[Choice]) -> Option<Vec<u32>> {
    let last = taken.iter().rposition(|c| c.option + 1 < c.arity)?;
    let mut next: Vec<u32> = taken[..=last].iter().map(|c| c.option).collect();
    next[last] += 1;
    Some(next)
}

/// Number of images along one path, if every other path were as wide: exact where recovery reads the same words always.
pub(crate) fn width(taken: &[Choice]) -> f64 {
    taken.iter().map(|c| f64::from(c.arity)).product()
}
