//! `LATENCY`: when something took long, by what it was.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::Mutex;

use crate::clock::now;

/// Samples that are kept of an event: Redis' own number. There is one for a second at most.
const SAMPLES: usize = 160;

/// Names of events, as Redis has them.
pub(crate) mod event {
    pub(crate) const COMMAND: &str = "command";
    pub(crate) const FAST_COMMAND: &str = "fast-command";
    pub(crate) const EXPIRE_CYCLE: &str = "expire-cycle";
    pub(crate) const EVICTION_CYCLE: &str = "eviction-cycle";
    /// Of the store's file, with the transaction that it makes durable.
    pub(crate) const SYNC: &str = "aof-fsync-always";
}

/// What took long, of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Series {
    /// Seconds of Unix time, and the most milliseconds of anything in that second; the oldest one first.
    pub(crate) samples: VecDeque<(u64, u64)>,
    pub(crate) max: u64,
}

#[derive(Debug)]
pub(crate) struct Latency {
    /// Milliseconds from which on something takes long; 0 if nothing does (`latency-monitor-threshold`).
    pub(crate) threshold: AtomicU64,
    /// Whether times of commands are counted (`latency-tracking`).
    pub(crate) counts: AtomicBool,
    all: Mutex<BTreeMap<&'static str, Series>>,
}

impl Default for Latency {
    fn default() -> Self {
        Self { threshold: 0.into(), counts: true.into(), all: Mutex::default() }
    }
}

impl Latency {
    /// Something took so many nanoseconds.
    #[inline]
    pub(crate) fn note(&self, event: &'static str, nanos: u64) {
        if self.is_long(nanos) {
            self.add(event, nanos / 1_000_000, now() / 1000);
        }
    }

    #[inline]
    pub(crate) fn is_long(&self, nanos: u64) -> bool {
        let threshold = self.threshold.load(Relaxed);
        threshold != 0 && nanos / 1_000_000 >= threshold
    }

    fn add(&self, event: &'static str, ms: u64, second: u64) {
        let mut all = self.all.lock();
        let series = all.entry(event).or_default();
        series.max = series.max.max(ms);
        match series.samples.back_mut() {
            Some((at, most)) if *at == second => *most = ms.max(*most),
            _ => series.samples.push_back((second, ms)),
        }
        if series.samples.len() > SAMPLES {
            series.samples.pop_front();
        }
    }

    /// All events that there were, in order of their names.
    pub(crate) fn all(&self) -> Vec<(&'static str, Series)> {
        self.all.lock().iter().map(|(event, series)| (*event, series.clone())).collect()
    }

    /// Forgets events; how many there were.
    pub(crate) fn reset(&self, of: impl Fn(&str) -> bool) -> usize {
        let mut all = self.all.lock();
        let before = all.len();
        all.retain(|event, _| !of(event));
        before - all.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_of_a_second_is_kept() {
        let latency = Latency::default();
        assert!(!latency.is_long(u64::MAX));
        latency.threshold.store(5, Relaxed);
        assert!(!latency.is_long(4_999_999) && latency.is_long(5_000_000));
        for (ms, second) in [(9, 1), (7, 1), (8, 2)] {
            latency.add(event::COMMAND, ms, second);
        }
        let all = latency.all();
        assert_eq!(all, [("command", Series { samples: [(1, 9), (2, 8)].into(), max: 9 })]);
        (0..500).for_each(|second| latency.add(event::SYNC, 6, second));
        assert_eq!(latency.all()[0].1.samples.len(), SAMPLES);
        assert_eq!((latency.reset(|event| event == "command"), latency.all().len()), (1, 1));
    }
}
