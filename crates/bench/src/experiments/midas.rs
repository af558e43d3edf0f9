//! `midas`: transactions of several reads and updates of random keys, in four scenarios (Midas, chapter 6.3): a small or a large store, short or long
//! transactions. A transaction that meets a conflict is tried again until it is committed (the thesis gives up after three tries, which
//! makes a store that fails often look fast).

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use tx::Isolation;

use crate::contest::share;
use crate::crew::{Crew, Worker};
use crate::kv_sides::{Field, KvRoom, KvSide, Session, Step, StoreKind};
use crate::latency::Sampler;
use crate::workload::{Random, Values};
use crate::{Batch, Error, Plan, Result, Row, Watch};

/// The experiment's name in rows and on the command line.
pub const EXPERIMENT: &str = "midas";

/// How large a store, how long its transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// Small, short: contention.
    S1,
    /// Small, long: much of it.
    S2,
    /// Large, short: hardly any.
    S3,
    /// Large, long: some.
    S4,
}

impl Scenario {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::S1, Self::S2, Self::S3, Self::S4];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::S1 => "S1",
            Self::S2 => "S2",
            Self::S3 => "S3",
            Self::S4 => "S4",
        }
    }

    /// Pairs in the store.
    #[must_use]
    pub fn pairs(self) -> u64 {
        if matches!(self, Self::S1 | Self::S2) { 1_000 } else { 100_000 }
    }

    /// Operations of a transaction.
    #[must_use]
    pub fn operations(self) -> RangeInclusive<u64> {
        if matches!(self, Self::S1 | Self::S3) { 2..=32 } else { 64..=256 }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Scenario {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|scenario| scenario.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| format!("{name:?} is no scenario: S1, S2, S3 or S4"))
    }
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Midas {
    /// Scenarios.
    pub scenarios: Vec<Scenario>,
    /// Levels; a store that does not have one does not take part at it.
    pub isolations: Vec<Isolation>,
    /// Bytes of a value.
    pub value_bytes: u32,
    /// What rows begin as.
    pub row: Row,
}

impl Default for Midas {
    fn default() -> Self {
        Self {
            scenarios: Scenario::ALL.to_vec(),
            isolations: vec![Isolation::Serializable, Isolation::Snapshot],
            value_bytes: 1024,
            row: Row::new(EXPERIMENT, ""),
        }
    }
}

/// Bytes of a key.
const KEY_BYTES: usize = 128;
/// Of 100 operations so many are reads.
const READS: u64 = 84;
/// Operations that each thread has in store, in transactions; they come round again.
const STEPS: usize = 32_768;

/// As long as rounds of other experiments.
const LONGER: u32 = 5;

impl Midas {
    /// Measures. Rounds are five times as long as `field` says.
    ///
    /// # Errors
    /// Those of the stores; one that loses a key.
    pub fn measure(&self, field: &Field, watch: &dyn Watch) -> Result<Vec<Row>> {
        // Transactions of milliseconds only meet if there are many of them in a round.
        let plan = Plan { batch_time: field.plan.batch_time * LONGER, ..field.plan };
        let field = &Field { plan, ..field.clone() };
        let groups = self.scenarios.len() * field.threads.len();
        watch.begin(&self.row.experiment, (groups * field.plan.rounds()) as u64);
        let mut rows = Vec::new();
        for scenario in self.scenarios.iter().copied() {
            rows.extend(self.scenario(scenario, field, watch)?);
        }
        Ok(rows)
    }

    fn scenario(&self, scenario: Scenario, field: &Field, watch: &dyn Watch) -> Result<Vec<Row>> {
        let Some(threads_max) = field.threads.iter().copied().max() else { return Ok(vec![]) };
        let data = Data::new(scenario, self.value_bytes, field.seed);
        let room = KvRoom {
            pairs: scenario.pairs(),
            key_bytes: KEY_BYTES,
            value_bytes: self.value_bytes,
            sessions: threads_max * self.isolations.len() + 1,
        };
        let levels = |who: StoreKind| -> Result<Vec<Option<Isolation>>, String> {
            let levels = who.levels().into_iter().filter(|level| self.isolations.contains(level));
            let levels: Vec<_> = levels.map(Some).collect();
            if levels.is_empty() { Err("no such transactions of several operations".into()) } else { Ok(levels) }
        };
        let stand = field.stand(room, |who| levels(who).map(|_| ()))?;
        stand.fill(|| data.keys.iter().zip(0..).map(|(key, at)| (&key[..], data.values.get(at, self.value_bytes))))?;
        let workloads: Vec<_> = (0..threads_max).map(|thread| data.workload(scenario, thread)).collect();
        let mut rows = Vec::new();
        for threads in field.threads.iter().copied() {
            let row = self.row.clone().threads(threads).param("scenario", scenario.name());
            rows.extend(field.compare(&stand, &row, watch, levels, |side, crew, level| {
                let level = level.unwrap_or(Isolation::Serializable);
                transacting(side, crew, level, &workloads, self.value_bytes)
            })?);
        }
        Ok(rows)
    }
}

/// Keys and values, made before anything is measured.
struct Data {
    keys: Vec<[u8; KEY_BYTES]>,
    values: Values,
    value_bytes: u32,
    seed: u64,
}

impl Data {
    fn new(scenario: Scenario, value_bytes: u32, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let keys = (0..scenario.pairs()).map(|_| std::array::from_fn(|_| random.any() as u8)).collect();
        Self { keys, values: Values::new(value_bytes as usize, seed), value_bytes, seed }
    }

    fn workload(&self, scenario: Scenario, thread: usize) -> Vec<Vec<Step<'_>>> {
        let mut random = Random::new(self.seed ^ ((thread as u64 + 1) << 32));
        let (mut all, mut steps) = (Vec::new(), 0);
        while steps < STEPS {
            let (fewest, most) = scenario.operations().into_inner();
            let operations = fewest + random.below(most - fewest + 1);
            let step = |_| Step {
                key: &self.keys[random.below(self.keys.len() as u64) as usize],
                put: (random.below(100) >= READS).then(|| self.values.get(random.any(), self.value_bytes)),
            };
            all.push((0..operations).map(step).collect());
            steps += operations as usize;
        }
        all
    }
}

fn transacting<'c, 'env>(
    side: &'env dyn KvSide,
    crew: &'c Crew<'env>,
    isolation: Isolation,
    workloads: &'env [Vec<Vec<Step<'env>>>],
    value_bytes: u32,
) -> Result<Box<dyn FnMut(u64) -> Result<Batch> + 'c>> {
    let worker = |(thread, workload): (u64, &'env Vec<Vec<Step<'env>>>)| {
        Ok(Transacting {
            session: side.session()?,
            isolation,
            workload,
            out: vec![0; value_bytes as usize],
            sampler: Sampler::new(thread),
            at: 0,
            todo: 0,
            aborts: 0,
        })
    };
    let mut workers = (0..).zip(&workloads[..crew.size()]).map(worker).collect::<Result<Vec<_>>>()?;
    Ok(Box::new(move |batch| {
        let share = share(batch, workers.len());
        workers.iter_mut().for_each(|worker| worker.todo = share);
        let time = crew.run(&mut workers)?;
        let samples = workers.iter_mut().flat_map(|worker| worker.sampler.take()).collect();
        let aborts = workers.iter_mut().map(|worker| std::mem::take(&mut worker.aborts)).sum();
        Ok(Batch { time, ops: Some(share * workers.len() as u64), aborts, samples, ..Batch::default() })
    }))
}

/// One thread.
struct Transacting<'e> {
    session: Box<dyn Session + 'e>,
    isolation: Isolation,
    workload: &'e [Vec<Step<'e>>],
    out: Vec<u8>,
    sampler: Sampler,
    at: usize,
    todo: u64,
    aborts: u64,
}

impl Worker for Transacting<'_> {
    fn work(&mut self) -> Result<()> {
        let Self { session, isolation, workload, out, sampler, .. } = self;
        for _ in 0..self.todo {
            let steps = &workload[self.at];
            self.at = (self.at + 1) % workload.len();
            let found = sampler.op(|| session.transaction(*isolation, steps, out))?;
            self.aborts += found.aborts;
            if found.pairs != steps.iter().filter(|step| step.put.is_none()).count() as u64 {
                return Err(Error::Wrong { who: "the store".into(), what: "a get found nothing".into() });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_are_those_of_the_thesis() {
        for scenario in Scenario::ALL {
            let data = Data::new(scenario, 100, 7);
            assert_eq!(data.keys.len() as u64, scenario.pairs());
            let workload = data.workload(scenario, 0);
            let lengths = || workload.iter().map(Vec::len);
            let (fewest, most) = scenario.operations().into_inner();
            assert!(lengths().all(|steps| (fewest..=most).contains(&(steps as u64))));
            let mean = lengths().sum::<usize>() as f64 / workload.len() as f64;
            assert!((mean / (fewest + most) as f64 * 2.0 - 1.0).abs() < 0.15, "{scenario}: {mean}");
            let reads = workload.iter().flatten().filter(|step| step.put.is_none()).count();
            let reads = reads as f64 / lengths().sum::<usize>() as f64;
            assert!((reads - 0.84).abs() < 0.01, "{scenario}: {reads}");
        }
    }

    #[test]
    fn rows_for_every_level() {
        let plan = Plan { batch_time: std::time::Duration::from_micros(200), ..Plan::quick() };
        let who: Vec<_> = StoreKind::OURS.into_iter().chain(StoreKind::peers()).collect();
        let field = Field { who: who.clone(), ..Field::here(plan) };
        let run = Midas { scenarios: vec![Scenario::S1, Scenario::S2], ..Midas::default() };
        let rows = run.measure(&field, &()).unwrap();
        for who in who {
            let of: Vec<_> = rows.iter().filter(|row| row.engine == who.name()).collect();
            let there = !who.levels().is_empty() && (!who.is_peer() || cfg!(feature = "peers"));
            assert_eq!(of.len(), if there { who.levels().len() * 4 } else { 4 }, "{who}");
            assert!(of.iter().all(|row| row.missing.is_none() == there && (row.ops > 0) == there), "{of:?}");
            assert!(of.iter().all(|row| !there || row.abort_rate < Some(1.0)), "{of:?}");
        }
    }
}
