//! What is known of a log from outside: what was acknowledged, what may be there, what must not.

use std::collections::{BTreeMap, BTreeSet};

use super::operations::{Kind, Met};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Reserved, and not complete: no reader may see it.
    Open,
    /// Appending or completing it has begun and has not returned, or ended in doubt.
    Doubt,
    /// It was acknowledged; whether as durable, `durable` says.
    There,
    /// A crash took it.
    Gone,
    /// It was refused, or given up.
    Never,
}

#[derive(Debug)]
struct Entry {
    payload: Vec<u8>,
    lsn: Option<u64>,
    state: State,
}

#[derive(Debug, Default)]
pub struct Model {
    /// By the number that each payload begins with.
    entries: Vec<Entry>,
    by_lsn: BTreeMap<u64, usize>,
    /// Everything through here is durable for certain.
    pub durable: u64,
    /// Records through here are discarded for certain, and beyond, one by one.
    discarded: u64,
    ahead: BTreeSet<u64>,
    /// The same of calls that have begun; all records while `discarding_all` runs.
    maybe_discarded: u64,
    maybe_ahead: BTreeSet<u64>,
    discarding_all: u32,
    /// The log begins here or further on, on media too.
    pub head: u64,
}

/// Bytes that a payload begins with.
pub const NUMBER: usize = 4;

impl Model {
    // ---- records ----------------------------------------------------------------------------------------------

    /// A new record of so many bytes: its number and its payload.
    pub fn begin(&mut self, len: usize, state: State) -> (usize, Vec<u8>) {
        let number = self.entries.len();
        let pattern = (0..len.max(NUMBER)).map(|at| (number * 31 + at * 7) as u8);
        let mut payload: Vec<u8> = pattern.collect();
        payload[..NUMBER].copy_from_slice(&(number as u32).to_le_bytes());
        self.entries.push(Entry { payload: payload.clone(), lsn: None, state });
        (number, payload)
    }

    pub fn set(&mut self, number: usize, state: State) {
        self.entries[number].state = state;
        if state == State::Never
            && let Some(lsn) = self.entries[number].lsn
        {
            self.by_lsn.remove(&lsn);
        }
    }

    /// The record has this LSN.
    pub fn is_at(&mut self, number: usize, lsn: u64) {
        let known = self.entries[number].lsn.replace(lsn);
        assert!(known.is_none_or(|known| known == lsn), "record {number} at {lsn} and at {known:?}");
        let other = self.by_lsn.insert(lsn, number);
        assert!(other.is_none_or(|other| other == number), "records {number} and {other:?} at {lsn}");
    }

    /// Whether a record may be read that holds this; which it is.
    fn allows(&self, lsn: u64, payload: &[u8], stale: bool) -> usize {
        let number = payload.first_chunk::<NUMBER>().map(|number| u32::from_le_bytes(*number) as usize);
        let found = number.and_then(|number| Some((number, self.entries.get(number)?)));
        let Some((number, entry)) = found else { panic!("record {lsn} was invented: {payload:?}") };
        assert_eq!(entry.payload, payload, "record {lsn} is not what was appended");
        let allowed = matches!(entry.state, State::Doubt | State::There) || stale && matches!(entry.state, State::Gone);
        assert!(allowed, "record {lsn} is read, and is {entry:?}");
        assert!(entry.lsn.is_none_or(|at| at == lsn), "record {lsn} was acknowledged as {:?}", entry.lsn);
        number
    }

    /// A thread reads a record that is durable.
    pub fn reads(&mut self, lsn: u64, payload: &[u8]) {
        let number = self.allows(lsn, payload, false);
        self.is_at(number, lsn);
        self.is_durable(lsn);
    }

    /// A thread reads a record that may not be durable, and may have read it before a crash took it.
    pub fn reads_early(&mut self, lsn: u64, payload: &[u8]) {
        self.allows(lsn, payload, true);
    }

    pub fn is_durable(&mut self, lsn: u64) {
        self.durable = self.durable.max(lsn);
    }

    /// Nothing that is acknowledged lies from `from` to before `to`.
    pub fn nothing_between(&self, from: u64, to: u64, who: &str) {
        if from < to {
            let there = |(_, number): &(&u64, &usize)| self.entries[**number].state == State::There;
            let missed = self.by_lsn.range(from..to).find(there);
            assert!(missed.is_none(), "{who} passed over record {missed:?}, from {from} to {to}");
        }
    }

    pub fn last_there(&self) -> u64 {
        self.by_lsn.last_key_value().map_or(0, |last| *last.0)
    }

    /// One of the records that were acknowledged, in this many.
    pub fn some(&self, draw: u64) -> Option<u64> {
        let there: Vec<u64> =
            self.by_lsn.iter().filter(|(_, n)| self.entries[**n].state == State::There).map(|(lsn, _)| *lsn).collect();
        (!there.is_empty()).then(|| there[(draw % there.len() as u64) as usize])
    }

    // ---- discarding -------------------------------------------------------------------------------------------

    pub fn discards(&mut self, from: u64, to: u64) {
        discard(&mut self.maybe_discarded, &mut self.maybe_ahead, from, to);
    }

    pub fn discarded(&mut self, from: u64, to: u64) {
        discard(&mut self.discarded, &mut self.ahead, from, to);
    }

    pub fn discards_all(&mut self) {
        self.discarding_all += 1;
    }

    /// It returned: everything before the first was discarded, and nothing from the second on.
    pub fn discarded_all(&mut self, first: u64, second: u64) {
        self.discarding_all -= 1;
        self.discards(1, second - 1);
        self.discarded(1, first - 1);
        self.head = self.head.max(first);
    }

    /// The first record that is not discarded for certain.
    pub fn needed(&self) -> u64 {
        self.discarded + 1
    }

    /// The first record that must be there.
    pub fn surely_needed(&self) -> u64 {
        if self.discarding_all > 0 { u64::MAX } else { self.maybe_discarded + 1 }
    }

    // ---- crashes ----------------------------------------------------------------------------------------------

    /// Holds what a log begins with, has, and ends before against what is known.
    pub fn check_opened(&self, head: u64, next: u64, records: &[(u64, Vec<u8>)], who: &str) {
        assert!(next > self.durable, "{who} ends before record {next}, and {} was durable", self.durable);
        assert!(head <= self.surely_needed(), "{who} begins at {head}, {} is needed", self.surely_needed());
        assert!(head >= self.head, "{who} begins at {head}, its head was {} on media", self.head);
        let (mut from, mut numbers) = (head, BTreeSet::new());
        for (lsn, payload) in records {
            assert!(*lsn >= from && *lsn < next, "{who}: record {lsn} behind {from} and before {next}");
            assert!(numbers.insert(self.allows(*lsn, payload, false)), "{who}: twice at {lsn}");
            self.nothing_between(from, *lsn, who);
            from = lsn + 1;
        }
        self.nothing_between(from, next, who);
    }

    /// The log goes on with this: what is not in it is gone.
    pub fn goes_on(&mut self, head: u64, next: u64, records: &[(u64, Vec<u8>)]) {
        self.check_opened(head, next, records, "the log that was opened again");
        for (lsn, payload) in records {
            let number = self.allows(*lsn, payload, false);
            self.is_at(number, *lsn);
            self.entries[number].state = State::There;
        }
        for entry in &mut self.entries {
            let lost = entry.lsn.is_none_or(|lsn| lsn >= next);
            match entry.state {
                State::Open => entry.state = State::Never,
                State::Doubt | State::There if lost => entry.state = State::Gone,
                _ => {}
            }
        }
        self.by_lsn.retain(|_, number| matches!(self.entries[*number].state, State::There));
        self.is_durable(next - 1);
        (self.head, self.discarded, self.maybe_discarded) = (head, head - 1, head - 1);
        self.ahead.clear();
        self.maybe_ahead.clear();
    }
}

fn discard(through: &mut u64, ahead: &mut BTreeSet<u64>, from: u64, to: u64) {
    if from <= *through + 1 {
        *through = to.max(*through);
    } else {
        ahead.extend(from..=to);
    }
    while ahead.first().is_some_and(|first| *first <= *through + 1) {
        *through = ahead.pop_first().unwrap_or(0).max(*through);
    }
}

/// What the threads of a run share.
pub struct World {
    pub model: Model,
    pub met: Met,
    /// By thread: what it is in the middle of.
    under_way: Vec<u64>,
    /// What was done since the log was opened; and what was done with the log as a whole, at its last two turns.
    lately: u64,
    alone: [u64; 2],
    /// Of killed processes.
    pub files: usize,
}

impl World {
    pub fn new(met: Met, threads: usize) -> Self {
        Self { model: Model::default(), met, under_way: vec![0; threads], lately: 0, alone: [0; 2], files: 0 }
    }

    pub fn begins(&mut self, thread: usize, kind: Kind) {
        for other in (0..self.under_way.len()).filter(|other| *other != thread) {
            self.met.note(kind, self.under_way[other]);
        }
        self.under_way[thread] |= kind.bit();
        if kind.is_alone() {
            self.met.note(kind, self.lately | self.alone[0] | self.alone[1]);
            self.alone[1] |= kind.bit();
        } else if !kind.is_outside() {
            self.met.note(kind, self.alone[1]);
            self.lately |= kind.bit();
        }
    }

    /// The thread has something that it goes on with later.
    pub fn holds(&mut self, thread: usize, kind: Kind) {
        self.under_way[thread] |= kind.bit();
    }

    pub fn ends(&mut self, thread: usize, kind: Kind) {
        self.under_way[thread] &= !kind.bit();
    }

    /// The log is about to be closed and opened again.
    pub fn turns(&mut self) {
        self.alone = [self.alone[1], 0];
    }

    /// The log is open again: what comes now is behind that.
    pub fn turned(&mut self) {
        self.lately = 0;
    }
}
