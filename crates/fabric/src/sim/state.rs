//! Nodes, links, frames under way, and what is due when.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::time::Duration;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

use super::faults::Faults;
use crate::target::Target;
use crate::{Event, Reason, Violation};

/// A machine or process on a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(pub(super) usize);

/// Everything there is, under one lock.
pub(super) struct State {
    pub(super) faults: Faults,
    pub(super) random: Xoshiro256PlusPlus,
    pub(super) now: Duration,
    pub(super) up: Vec<bool>,
    pub(super) links: Vec<Link>,
    /// Nothing gets from the first to the second.
    pub(super) cut: BTreeSet<(Node, Node)>,
    due: BinaryHeap<Reverse<(Duration, u64, Due)>>,
    sequence: u64,
}

/// A connection; the index of each end in `ends` is its side, 0 or 1.
pub(super) struct Link {
    pub(super) ends: [End; 2],
}

pub(super) struct End {
    pub(super) node: Node,
    pub(super) target: Target,
    /// Why it is over, for this end.
    pub(super) closed: Option<Reason>,
    /// Where it came to an end without a word to its halves: its node crashed.
    pub(super) silent: bool,
    /// Handed over at this end and not flushed.
    pub(super) gathered: Vec<Frame>,
    pub(super) gathered_bytes: usize,
    /// On the way to this end, in order, with the time before which each does not arrive.
    pub(super) incoming: VecDeque<(Duration, Frame)>,
    /// The first of them has its entry in `due`.
    pub(super) scheduled: bool,
    /// ... or has waited since then for a partition to heal.
    pub(super) stalled: Option<Duration>,
    /// Arrived and not polled.
    pub(super) inbox: VecDeque<Event>,
    /// The end of it was polled.
    pub(super) told: bool,
    /// Reads of this end that are not answered.
    pub(super) reads: usize,
}

/// What travels.
pub(super) enum Frame {
    Write {
        offset: u64,
        bytes: Vec<u8>,
        imm: Option<u32>,
    },
    /// The part of a write that arrives though its sender is gone.
    Torn {
        offset: u64,
        bytes: Vec<u8>,
    },
    Read {
        offset: u64,
        len: u32,
        tag: u32,
    },
    Answer {
        tag: u32,
        bytes: Vec<u8>,
    },
    Message(Vec<u8>),
    /// The other end closed.
    Bye,
    /// The other end closed since this one did what it may not, or its window failed.
    Refused(Refusal),
    /// The other end is gone.
    Reset(&'static str),
}

pub(super) enum Refusal {
    Violation(Violation),
    Window(String),
}

/// What is to happen at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// The first frame on the way to that side arrives.
    Frame { link: usize, side: usize },
    /// That side gives the link up if frames still cannot get through.
    GiveUp { link: usize, side: usize },
}

impl State {
    pub(super) fn new(seed: u64, faults: Faults) -> Self {
        Self {
            faults,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            now: Duration::ZERO,
            up: Vec::new(),
            links: Vec::new(),
            cut: BTreeSet::new(),
            due: BinaryHeap::new(),
            sequence: 0,
        }
    }

    pub(super) fn end(&mut self, link: usize, side: usize) -> &mut End {
        &mut self.links[link].ends[side]
    }

    /// A number below `bound`; 0 if that is 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.random.next_u64() % bound }
    }

    pub(super) fn chance(&mut self, per_mille: u32) -> bool {
        // A fault that is off draws nothing, but that is not relied on.
        per_mille > 0 && self.below(1000) < u64::from(per_mille)
    }

    fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let span = most.saturating_sub(least).as_nanos() as u64;
        least + Duration::from_nanos(self.below(span.saturating_add(1)))
    }

    pub(super) fn delay(&mut self) -> Duration {
        let Faults { delay_min, delay_max, slow_per_mille, slow_max, .. } = self.faults;
        if self.chance(slow_per_mille) { self.between(delay_min, slow_max) } else { self.between(delay_min, delay_max) }
    }

    pub(super) fn long_delay(&mut self) -> Duration {
        self.between(self.faults.delay_min, self.faults.slow_max)
    }

    pub(super) fn give_up_after(&mut self) -> Duration {
        let middle = self.faults.give_up;
        self.between(middle / 2, middle + middle / 2)
    }

    /// When the first of what is due is, if anything is.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.due.peek().map(|Reverse((at, ..))| *at)
    }

    pub(super) fn take_due(&mut self) -> Option<Due> {
        let Reverse((at, _, due)) = self.due.pop()?;
        self.now = self.now.max(at);
        Some(due)
    }

    pub(super) fn schedule(&mut self, at: Duration, due: Due) {
        self.sequence += 1;
        self.due.push(Reverse((at, self.sequence, due)));
    }

    /// Puts a frame on the way to `side`, `after` from now at the earliest. An end that is over gets nothing any more.
    pub(super) fn send_after(&mut self, after: Duration, link: usize, side: usize, frame: Frame) {
        let at = self.now + after;
        let end = self.end(link, side);
        if end.closed.is_some() {
            return;
        }
        end.incoming.push_back((at, frame));
        self.schedule_first(link, side);
    }

    pub(super) fn send(&mut self, link: usize, side: usize, frame: Frame) {
        let after = self.delay();
        self.send_after(after, link, side, frame);
    }

    /// The first frame on the way to that side gets its entry among what is due.
    pub(super) fn schedule_first(&mut self, link: usize, side: usize) {
        let now = self.now;
        let end = self.end(link, side);
        if end.scheduled || end.stalled.is_some() {
            return;
        }
        let Some((at, _)) = end.incoming.front() else { return };
        let at = now.max(*at);
        end.scheduled = true;
        self.schedule(at, Due::Frame { link, side });
    }

    /// Whether what goes to that side does not get through.
    pub(super) fn is_cut(&self, link: usize, side: usize) -> bool {
        let ends = &self.links[link].ends;
        !self.cut.is_empty() && self.cut.contains(&(ends[1 - side].node, ends[side].node))
    }
}
