//! How the open words of an image get their values, at the moment recovery first reads them.
//!
//! One run of recovery is a path in a tree: every read of an open word is a node with as many branches as the word has
//! values. [`Policy::Script`] repeats a prefix of branches and takes the first branch after it; [`advance`]
//! turns the branches taken into the next prefix, like an odometer, until the tree is exhausted. A word that recovery
//! never reads is no node, so it does not multiply the states.

use std::collections::BTreeMap;

use crate::hash::mix_pair;

/// The unit that stands for the length of the file.
pub(crate) const LENGTH_UNIT: u32 = u32::MAX;

/// Groups next to each other: the first one, and the last.
pub(crate) type Span = (u32, u32);

/// A branch taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) unit: u32,
    pub(crate) group: u32,
    pub(crate) option: u32,
    pub(crate) arity: u32,
    pub(crate) newest: u32,
}

/// Which value an open unit takes.
#[derive(Clone, Debug, Default)]
pub(crate) enum Policy {
    /// What the media surely had.
    #[default]
    Old,
    /// Everything arrived.
    New,
    /// Everything arrived (`new`) or nothing, but for these spans, where it is the other way round.
    AllBut { new: bool, spans: Vec<Span> },
    /// These branches, then the first one everywhere.
    Script(Vec<Choice>),
    /// Any; in each image another share of units keeps its old value.
    Random(u64),
    /// By unit; what is not named arrived.
    Fixed(BTreeMap<u32, u32>),
}

impl Policy {
    /// The branch taken where `at` gives the unit; of a script, the first one.
    pub(crate) fn choose(&self, at: Choice) -> Choice {
        let newest_if = |arrived: bool| if arrived { at.newest } else { 0 };
        let option = match self {
            Policy::Old | Policy::Script(_) => 0,
            Policy::New => at.newest,
            Policy::AllBut { new, spans } => {
                newest_if(*new != spans.iter().any(|(first, last)| (first..=last).contains(&&at.group)))
            }
            Policy::Random(seed) => {
                let keep_old = [1, 4, 8, 12, 15][(mix_pair(*seed, 0) % 5) as usize];
                let bits = mix_pair(*seed, u64::from(at.unit) + 1);
                match bits % 16 {
                    low if low < keep_old => 0,
                    _ if at.arity == 2 || bits & 16 == 0 => at.newest,
                    _ => ((bits >> 32) % u64::from(at.arity)) as u32,
                }
            }
            Policy::Fixed(map) => map.get(&at.unit).copied().unwrap_or(at.newest).min(at.arity - 1),
        };
        Choice { option, ..at }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Decider {
    policy: Policy,
    /// A second recovery runs: what the first did not read keeps its old value, and is no branch.
    frozen: bool,
    pub(crate) taken: Vec<Choice>,
    /// A script did not fit: recovery did not read the same words in the same order.
    pub(crate) diverged: bool,
}

impl Decider {
    pub(crate) fn reset(&mut self, policy: Policy) {
        self.policy = policy;
        self.taken.clear();
        self.frozen = false;
        self.diverged = false;
    }

    pub(crate) fn freeze(&mut self) {
        self.frozen = true;
    }

    /// The option for an open unit; `at` says where, and holds the first one.
    pub(crate) fn decide(&mut self, at: Choice) -> u32 {
        if self.frozen {
            return 0;
        }
        let mut choice = self.policy.choose(at);
        if let Policy::Script(prefix) = &self.policy
            && let Some(wanted) = prefix.get(self.taken.len())
        {
            if wanted.unit == at.unit && wanted.option < at.arity {
                choice.option = wanted.option;
            } else {
                self.diverged = true;
            }
        }
        self.taken.push(choice);
        choice.option
    }
}

/// The script of the path after this one; `None` when it was the last.
pub(crate) fn advance(taken: &[Choice]) -> Option<Vec<Choice>> {
    let last = taken.iter().rposition(|c| c.option + 1 < c.arity)?;
    let mut next = taken[..=last].to_vec();
    next[last].option += 1;
    Some(next)
}

/// Number of images along one path, if every other path were as wide: exact where recovery reads the same words always.
pub(crate) fn width(taken: &[Choice]) -> f64 {
    taken.iter().map(|c| f64::from(c.arity)).product()
}
