//! Images that need no further recovery: the same bytes were recovered before, and held against the same promises.
//!
//! A recovery follows from the bytes it reads. So what it read, in which order, is kept with the hash of the image it ran on; where a
//! walk comes to the same image again, by whatever open words of whatever crash point, the path it would take there is read off.

use crate::config::Model;
use crate::decide::{Choice, Policy};
use crate::hash::{PlainMap, mix_pair};
use crate::image::Image;
use crate::walk::Effect;

/// Images that are remembered.
const LEAVES_MAX: usize = 1 << 22;
/// Ways to read an image that are remembered.
const TRACES_MAX: usize = 1 << 14;
/// Recovered states that are remembered.
const STATES_MAX: usize = 64;
/// Ways to read that are tried for an image whose open words are not listed in the order of reading.
const GUESSES: usize = 4;
const NO_STATE: u32 = u32::MAX;

/// Ranges of words, both ends included, in the order in which recovery first read of them.
type Trace = [(u32, u32)];

#[derive(Clone, Copy)]
struct Leaf {
    trace: u32,
    state: u32,
}

impl Leaf {
    fn effect(self) -> Effect {
        Effect { reads: self.trace.into(), state: self.state }
    }
}

pub(super) struct Known<T> {
    /// By what is promised, and the hash of the image with what recovery did not read at its old value.
    leaves: PlainMap<Leaf>,
    traces: Vec<Box<Trace>>,
    trace_ids: PlainMap<u32>,
    states: Vec<T>,
    group_bytes: u64,
}

/// In which order the known recoveries come to the open units of one crash point.
#[derive(Default)]
pub(super) struct Orders(Vec<(u32, Vec<u32>)>);

impl<T: PartialEq> Known<T> {
    pub(super) fn new(model: Model) -> Self {
        let (leaves, trace_ids) = (PlainMap::default(), PlainMap::default());
        Self { leaves, traces: Vec::new(), trace_ids, states: Vec::new(), group_bytes: model.group_bytes() }
    }

    pub(super) fn trace_id(&mut self, trace: &Trace) -> Option<u32> {
        let hash =
            trace.iter().fold(1, |hash, &(first, last)| mix_pair(hash, u64::from(first) << 32 | u64::from(last)));
        if let Some(&id) = self.trace_ids.get(&hash) {
            return Some(id);
        }
        if self.traces.len() >= TRACES_MAX {
            return None;
        }
        let id = self.traces.len() as u32;
        self.traces.push(trace.into());
        self.trace_ids.insert(hash, id);
        Some(id)
    }

    /// What came of a recovery that took this path, by which it can be told from others.
    pub(crate) fn effect(&mut self, trace: Option<u32>, state: T, taken: &[Choice]) -> Effect {
        let state = match self.states.iter().rposition(|known| *known == state) {
            Some(at) => at as u32,
            None if self.states.len() >= STATES_MAX => NO_STATE,
            None => {
                self.states.push(state);
                self.states.len() as u32 - 1
            }
        };
        let open = || taken.iter().fold(1 << 32, |hash, choice| mix_pair(hash, u64::from(choice.unit)));
        Effect { reads: trace.map_or_else(open, u64::from), state }
    }

    /// Remembers an image that was recovered and checked, with this effect. `leaf` is its hash.
    pub(super) fn insert(&mut self, context: u64, leaf: u64, trace: u32, effect: Effect) {
        if self.leaves.len() < LEAVES_MAX {
            self.leaves.insert(mix_pair(context, leaf), Leaf { trace, state: effect.state });
        }
    }

    /// What came of the image that this policy makes, if it is known and showed what is `expected`; `path` becomes what recovery would take there.
    pub(super) fn find(
        &self,
        image: &Image,
        policy: &Policy,
        context: u64,
        expected: Option<&T>,
        orders: &mut Orders,
        path: &mut Vec<Choice>,
    ) -> Option<Effect> {
        // A length that is open is decided in ways that a hash does not follow.
        if image.lens.len() != 1 {
            return None;
        }
        let as_expected = |leaf: &Leaf| expected.is_none_or(|e| self.states.get(leaf.state as usize) == Some(e));
        let look_up = |choices: &[Choice]| self.leaves.get(&mix_pair(context, leaf_hash(image, choices))).copied();
        if let Policy::Script(script) = policy {
            let leaf = look_up(script).filter(as_expected)?;
            let order = orders.of(leaf.trace, image, &self.traces);
            path.clear();
            path.extend(order.iter().map(|&unit| image.choice(unit, self.group_bytes)));
            if path.len() < script.len() || path.iter().zip(script).any(|(there, wanted)| there.unit != wanted.unit) {
                // Such a recovery does not follow from the bytes alone.
                return None;
            }
            path[..script.len()].copy_from_slice(script);
            return Some(leaf.effect());
        }
        for (trace, order) in orders.0.iter().rev().take(GUESSES) {
            path.clear();
            path.extend(order.iter().map(|&unit| policy.choose(image.choice(unit, self.group_bytes))));
            if let Some(leaf) = look_up(path).filter(|leaf| leaf.trace == *trace && as_expected(leaf)) {
                return Some(leaf.effect());
            }
        }
        None
    }
}

/// The hash that a recovery of this image ends with which decides just this.
fn leaf_hash(image: &Image, choices: &[Choice]) -> u64 {
    mix_pair(choices.iter().fold(image.hash, |hash, choice| hash ^ image.change(choice)), image.lens[0])
}

impl Orders {
    /// Adds what this recovery read to the orders that are guessed.
    pub(super) fn note<T>(&mut self, known: &Known<T>, trace: u32, image: &Image) {
        self.of(trace, image, &known.traces);
    }

    fn of(&mut self, trace: u32, image: &Image, traces: &[Box<Trace>]) -> &[u32] {
        let at = match self.0.iter().rposition(|(known, _)| *known == trace) {
            Some(at) => at,
            None => {
                self.0.push((trace, units_in_order(&traces[trace as usize], image)));
                self.0.len() - 1
            }
        };
        &self.0[at].1
    }
}

fn units_in_order(trace: &Trace, image: &Image) -> Vec<u32> {
    let mut order: Vec<u32> = Vec::new();
    let mut listed = vec![false; image.units.len()];
    for &(first, last) in trace {
        let from = image.open.partition_point(|&(word, _)| word < first);
        for &(_, unit) in image.open[from..].iter().take_while(|&&(word, _)| word <= last) {
            if !std::mem::replace(&mut listed[unit as usize], true) {
                order.push(unit);
            }
        }
    }
    order
}
