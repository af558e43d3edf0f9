//! Latencies of single operations, sampled so that measuring does not show in what is measured.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::workload::Random;
use crate::{Result, clock};

/// Operations that are all timed at first, to learn how long they take.
const FIRST: usize = 64;
/// Largest mean distance between two sampled operations.
const GAP_MAX: u64 = 32;
/// Reading the clock twice costs some 40 ns. Over this long a time that is one in a hundred.
const CLOCK_NS: u64 = 4000;

/// True in rounds of which latencies are wanted and no times: then every operation is timed. A sample knows no longest one.
static EVERY: AtomicBool = AtomicBool::new(false);

/// While it lives, every operation is timed.
#[derive(Debug)]
pub(crate) struct EveryOperation(());

impl EveryOperation {
    pub(crate) fn timed() -> Self {
        EVERY.store(true, Relaxed);
        Self(())
    }
}

impl Drop for EveryOperation {
    fn drop(&mut self) {
        EVERY.store(false, Relaxed);
    }
}

/// Decides which operations are timed alone: as many as cost one part in a hundred, all if they are slow. The gaps are random: engines
/// do some work every so many transactions, and a regular sample would see it always or never.
#[derive(Debug)]
pub struct Sampler {
    left: u64,
    /// Mean of the gaps, once it is known.
    gap: Option<u64>,
    /// Every operation is timed while this says so.
    every: &'static AtomicBool,
    random: Random,
    samples: Vec<u64>,
    first: Vec<u64>,
}

impl Sampler {
    /// The same seed has the same gaps.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { left: 1, gap: None, every: &EVERY, random: Random::new(seed), samples: Vec::new(), first: Vec::new() }
    }

    /// Does the operation; times it if its turn has come.
    ///
    /// # Errors
    /// Those of the operation.
    #[inline]
    pub fn op<R>(&mut self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        self.left -= 1;
        if self.left > 0 { work() } else { self.sample(work) }
    }

    #[cold]
    fn sample<R>(&mut self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        let (result, time) = clock::timed(work);
        self.add(time);
        self.left = match self.gap {
            _ if self.every.load(Relaxed) => 1,
            Some(gap) => 1 + self.random.below(2 * gap - 1),
            None => {
                self.learn(time);
                1
            }
        };
        result
    }

    fn learn(&mut self, time: Duration) {
        self.first.push(nanoseconds(time));
        if self.first.len() == FIRST {
            self.first.sort_unstable();
            self.gap = Some((CLOCK_NS / self.first[FIRST / 2].max(1)).clamp(1, GAP_MAX));
        }
    }

    /// Adds a time that was measured elsewhere.
    pub fn add(&mut self, time: Duration) {
        self.samples.push(nanoseconds(time));
    }

    /// What was sampled since the last call.
    pub fn take(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.samples)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Longest latency that is told from longer ones.
const LONGEST_NS: u64 = 60_000_000_000;

/// Quantiles of many samples, to three digits.
#[derive(Clone, Debug, Default)]
pub struct Latency(Option<Histogram<u64>>);

impl Latency {
    /// Adds samples in nanoseconds.
    pub fn add(&mut self, samples: &[u64]) {
        if self.0.is_none() && !samples.is_empty() {
            self.0 = Histogram::new_with_bounds(1, LONGEST_NS, 3).ok();
        }
        for sample in samples {
            if let Some(histogram) = &mut self.0 {
                histogram.saturating_record(*sample);
            }
        }
    }

    /// True if there are samples.
    #[must_use]
    pub fn any(&self) -> bool {
        self.0.is_some()
    }

    /// The latency that this share of the operations does not exceed; `None` of no samples.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<f64> {
        let histogram = self.0.as_ref().filter(|histogram| !histogram.is_empty())?;
        Some(histogram.value_at_quantile(quantile) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_a_line() {
        let mut latency = Latency::default();
        assert_eq!(latency.quantile(0.5), None);
        latency.add(&(1..=1000).collect::<Vec<_>>());
        assert_eq!(latency.quantile(0.5), Some(500.0));
        assert_eq!(latency.quantile(0.99), Some(990.0));
        latency.add(&[0, u64::MAX]); // out of bounds: kept, at the bound
        assert!(latency.quantile(1.0) >= Some(6e10));
    }

    #[test]
    fn short_operations_are_sampled_at_random_distances() {
        static NO: AtomicBool = AtomicBool::new(false); // other tests run beside this one
        let mut sampler = Sampler { gap: Some(GAP_MAX), every: &NO, ..Sampler::new(7) };
        let mut at = Vec::new();
        for i in 0..320_000 {
            sampler.op(|| Ok(())).unwrap();
            if sampler.samples.len() > at.len() {
                at.push(i);
            }
        }
        assert!((9_500..10_500).contains(&sampler.take().len()));
        assert!(sampler.take().is_empty());
        for period in [2, 16, 32, 60] {
            let phases: std::collections::BTreeSet<i32> = at.iter().map(|i| i % period).collect();
            assert_eq!(phases.len(), period as usize, "all phases of a period of {period} are seen");
        }
    }

    #[test]
    fn the_gap_follows_from_how_long_operations_take() {
        for (nanoseconds, gap) in [(0, 32), (20, 32), (400, 10), (3_000, 1), (1_000_000, 1)] {
            let mut sampler = Sampler::new(1);
            (0..FIRST).for_each(|_| sampler.learn(Duration::from_nanos(nanoseconds)));
            assert_eq!(sampler.gap, Some(gap), "{nanoseconds} ns");
        }
    }

    /// From the next sample on.
    #[test]
    fn all_operations_are_timed_when_the_longest_is_wanted() {
        static YES: AtomicBool = AtomicBool::new(true);
        let mut sampler = Sampler { gap: Some(GAP_MAX), every: &YES, ..Sampler::new(7) };
        (0..1000).for_each(|_| sampler.op(|| Ok(())).unwrap());
        assert_eq!(sampler.take().len(), 1000);
    }

    /// Few operations that take long are all sampled.
    #[test]
    fn the_first_operations_are_all_sampled() {
        let mut sampler = Sampler::new(1);
        (0..20).for_each(|_| sampler.op(|| Ok(())).unwrap());
        assert_eq!(sampler.take().len(), 20);
    }
}
