//! Which corner cases of a wide crash point come first: what recovery reads leads.
//!
//! A corner case is an image on which nothing arrived, or everything, but for a few spans. Recovery looks at marks, checksums and
//! proofs before it looks at what they vouch for, so spans are taken in the order of reading; and it tells by what it reads next
//! which of them they are. A span that alone changes what is read *steers*. What is read only because of it makes a pair with it,
//! and so do two spans that steer to different ends. Spans that change nothing alone may be copies of each other: they are tried
//! all at once, then by halves.

use std::collections::{BTreeSet, VecDeque};

use super::Effect;
use crate::decide::{Choice, LENGTH_UNIT, Policy, Span};

/// Spans of one side that are tried one by one at most; where there are more, neighbours are one span.
const SPANS_MAX: usize = 64;
/// The same for the smallest budgets: one span for each so many images, but so many spans at least.
const IMAGES_PER_SPAN: u64 = 4;
const SPANS_LEAST: usize = 8;
/// Groups of one line, where a group is a word: spans are divided into lines first.
const LINE_SHIFT: u32 = 3;
/// Ways to steer recovery that are told apart on one side.
const ENDS_MAX: usize = 8;
/// Spans, newly read because of another one, that make a pair with it.
const LED_MAX: usize = 4;
/// One image in so many is one of a pair, as long as there are pairs.
const PAIR_EVERY: u64 = 3;
/// Of so many images of the budget, one may be a pair's.
const PAIR_PART: u64 = 4;
/// Images on which many spans change that change nothing alone.
const SILENT_MAX: u32 = 12;

pub(super) struct Guide {
    /// Images on which nothing arrived, and on which everything did.
    sides: [Side; 2],
    asked: Option<(usize, Asked)>,
    asked_for: u64,
    pairs_left: u64,
}

#[derive(Default)]
struct Side {
    /// What recovery makes of it without exceptions, and the groups it reads then.
    plain: Effect,
    read: BTreeSet<u32>,
    shift: u32,
    singles: VecDeque<Span>,
    pairs: VecDeque<[Span; 2]>,
    /// One span for each end to which recovery can be steered.
    ends: Vec<(u64, Span)>,
    silent: Vec<Span>,
    silent_asked: u32,
    together: VecDeque<Vec<Span>>,
}

enum Asked {
    Single(Span),
    Pair,
    Together(Vec<Span>),
}

impl Guide {
    pub(super) fn new() -> Self {
        Self { sides: Default::default(), asked: None, asked_for: 0, pairs_left: 0 }
    }

    /// What recovery did where everything arrived (`new`) or nothing; `budget` is that of the crash point.
    pub(super) fn begin(&mut self, new: bool, taken: &[Choice], effect: Effect, budget: u64) {
        self.pairs_left = budget / PAIR_PART;
        let spans_max = usize::try_from(budget / IMAGES_PER_SPAN).unwrap_or(SPANS_MAX);
        let side = &mut self.sides[usize::from(new)];
        side.plain = effect;
        side.read = taken.iter().map(|c| c.group).collect();
        let groups = || taken.iter().map(|c| c.group);
        side.shift = std::iter::once(0)
            .chain(LINE_SHIFT..u32::BITS)
            .find(|&shift| spans(groups(), shift).len() <= spans_max.clamp(SPANS_LEAST, SPANS_MAX))
            .unwrap_or(0);
        side.singles = spans(groups(), side.shift).into();
    }

    /// What became of the image asked for last.
    pub(super) fn note(&mut self, taken: &[Choice], effect: Effect) {
        let Some((side, asked)) = self.asked.take() else { return };
        let side = &mut self.sides[side];
        match asked {
            Asked::Single(span) => side.learn(span, taken, effect),
            Asked::Pair => {}
            Asked::Together(all) => {
                if effect != side.plain && all.len() > 2 {
                    let (first, second) = all.split_at(all.len() / 2);
                    side.together.extend([first.to_vec(), second.to_vec()]);
                }
            }
        }
    }

    /// The next corner case. `late` leaves out what is tried one by one.
    pub(super) fn next(&mut self, late: bool) -> Option<Policy> {
        self.asked_for += 1;
        let pair_first = self.asked_for.is_multiple_of(PAIR_EVERY);
        // Both sides in turn.
        let turn = self.asked_for / PAIR_EVERY + if pair_first { 0 } else { self.asked_for };
        let first = turn as usize % 2;
        let order = [first, 1 - first];
        let mut found = if pair_first { self.pair(order) } else { None };
        if !late {
            found = found.or_else(|| self.single(order));
        }
        let found = found.or_else(|| self.together(order)).or_else(|| self.pair(order))?;
        let (side, spans, asked) = found;
        self.asked = Some((side, asked));
        Some(Policy::AllBut { new: side == 1, spans })
    }

    fn single(&mut self, order: [usize; 2]) -> Option<(usize, Vec<Span>, Asked)> {
        order.into_iter().find_map(|side| {
            let span = self.sides[side].singles.pop_front()?;
            Some((side, vec![span], Asked::Single(span)))
        })
    }

    fn pair(&mut self, order: [usize; 2]) -> Option<(usize, Vec<Span>, Asked)> {
        self.pairs_left.checked_sub(1)?;
        let found = order.into_iter().find_map(|side| {
            let pair = self.sides[side].pairs.pop_front()?;
            Some((side, pair.to_vec(), Asked::Pair))
        })?;
        self.pairs_left -= 1;
        Some(found)
    }

    fn together(&mut self, order: [usize; 2]) -> Option<(usize, Vec<Span>, Asked)> {
        order.into_iter().find_map(|at| {
            let side = &mut self.sides[at];
            if side.silent_asked == 0 && side.silent.len() > 1 {
                side.together.push_back(side.silent.clone());
            }
            let all = side.together.pop_front().filter(|_| side.silent_asked < SILENT_MAX)?;
            side.silent_asked += 1;
            Some((at, all.clone(), Asked::Together(all)))
        })
    }
}

impl Side {
    /// `span` alone is the other way round, and recovery did this.
    fn learn(&mut self, span: Span, taken: &[Choice], effect: Effect) {
        if effect == self.plain {
            self.silent.push(span);
            return;
        }
        let steers = effect.reads != self.plain.reads;
        let new_end = steers && self.ends.iter().all(|&(reads, _)| reads != effect.reads);
        let parts = self.parts(span);
        if new_end && self.ends.len() < ENDS_MAX {
            let led = spans(taken.iter().map(|c| c.group).filter(|group| !self.read.contains(group)), self.shift);
            for other in led.into_iter().take(LED_MAX).rev() {
                self.pairs.push_front([span, other]);
            }
            self.pairs.extend(self.ends.iter().map(|&(_, other)| [other, span]));
            self.ends.push((effect.reads, span));
            parts.into_iter().rev().for_each(|part| self.singles.push_front(part));
        } else {
            self.singles.extend(parts);
        }
    }

    /// The lines of a span, or the words of a line, that recovery reads; none where that is one only.
    fn parts(&self, (first, last): Span) -> Vec<Span> {
        let shift = if last - first >= 1 << LINE_SHIFT { LINE_SHIFT } else { 0 };
        let parts = if first == last { Vec::new() } else { spans(self.read.range(first..=last).copied(), shift) };
        if parts.len() > 1 { parts } else { Vec::new() }
    }
}

/// The spans of these groups, each once, in this order.
fn spans(groups: impl Iterator<Item = u32>, shift: u32) -> Vec<Span> {
    let mut seen = BTreeSet::new();
    groups
        .map(|group| match group {
            LENGTH_UNIT => (group, group),
            _ => (group >> shift << shift, group | ((1 << shift) - 1)),
        })
        .filter(|span| seen.insert(*span))
        .collect()
}
