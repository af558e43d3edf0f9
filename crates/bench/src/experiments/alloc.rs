//! `tx-alloc`: one transaction allocates a block, fills it and links it into a list; another unlinks it and frees it.

use std::time::Duration;

use pmem::{Pool, Stats};

use crate::contest::{Contest, share};
use crate::crew::{Crew, Worker};
use crate::engines::{Room, on_target};
use crate::latency::Sampler;
use crate::target::{Stack, Target};
use crate::workload::Values;
use crate::{Batch, Error, Result, Row, Side, Watch};

/// The experiment's name in rows and on the command line.
pub const EXPERIMENT: &str = "tx-alloc";

/// Blocks a thread's list grows by before it shrinks again.
const DEPTH: u64 = 256;

/// Which transactions are timed. The others run too, untimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timed {
    AllocLink,
    UnlinkFree,
    /// One of each is one operation.
    Pair,
}

impl Timed {
    const ALL: [Self; 3] = [Self::AllocLink, Self::UnlinkFree, Self::Pair];

    fn name(self) -> &'static str {
        match self {
            Self::AllocLink => "alloc+link",
            Self::UnlinkFree => "unlink+free",
            Self::Pair => "pair",
        }
    }

    fn times(self, pushing: bool) -> bool {
        match self {
            Self::AllocLink => pushing,
            Self::UnlinkFree => !pushing,
            Self::Pair => true,
        }
    }
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Alloc {
    /// Bytes of a block, at least 8: the link.
    pub bytes: Vec<usize>,
}

impl Default for Alloc {
    fn default() -> Self {
        Self { bytes: vec![64, 128, 1024] }
    }
}

impl Alloc {
    /// Measures.
    ///
    /// # Errors
    /// Those of the contestants.
    pub fn measure(&self, contest: &Contest, watch: &dyn Watch) -> Result<Vec<Row>> {
        contest.announce(EXPERIMENT, self.bytes.len() * Timed::ALL.len(), watch);
        let mut rows = Vec::new();
        for threads in &contest.threads {
            for bytes in &self.bytes {
                for timed in Timed::ALL {
                    rows.extend(compare(contest, *threads, *bytes, timed, watch)?);
                }
            }
        }
        Ok(rows)
    }
}

fn compare(contest: &Contest, threads: usize, bytes: usize, timed: Timed, watch: &dyn Watch) -> Result<Vec<Row>> {
    if bytes < 8 {
        return Err(Error::Parameter(format!("blocks of {bytes} bytes: the link takes 8")));
    }
    let row = Row::new(EXPERIMENT, "").param("op", timed.name()).param("bytes", bytes).threads(threads);
    // Freed blocks may wait a while before they are used again.
    let blocks = 8 * DEPTH * threads as u64;
    let arena = contest.arena(Room { bytes: blocks * bytes as u64, stored: blocks * bytes as u64, blocks, threads })?;
    contest.compare(&arena, &row, watch, |_, made, crew, row| {
        let side = on_target!(made, target => {
            let mut workers = Vec::new();
            for seed in (contest.seed..).take(threads) {
                let (stack, values, sampler) = (target.stack()?, Values::new(bytes - 8, seed), Sampler::new(seed));
                workers.push(Stacker { stack, values, sampler, todo: 0, pushing: true, aborts: 0 });
            }
            phases(row, crew, workers, timed, made.pool())
        });
        Ok(side.op_bytes(bytes as u64))
    })
}

/// A side whose threads push together, then pop together, so that what each costs can be told apart.
fn phases<'c, 'env, S: Stack + 'env>(
    row: Row,
    crew: &'c Crew<'env>,
    mut workers: Vec<Stacker<S>>,
    timed: Timed,
    pool: Option<&Pool>,
) -> Side<'c> {
    let pool = pool.cloned();
    let stats = move || pool.as_ref().map_or(Stats::default(), Pool::stats);
    Side::new(row, move |batch| {
        let mut left = share(batch, workers.len());
        let mut result = Batch { ops: Some(left * workers.len() as u64), ..Batch::default() };
        let mut counts = Stats::default();
        while left > 0 {
            let now = left.min(DEPTH);
            for pushing in [true, false] {
                workers.iter_mut().for_each(|worker| (worker.todo, worker.pushing) = (now, pushing));
                let before = stats();
                let time = crew.run(&mut workers)?;
                let samples: Vec<u64> = workers.iter_mut().flat_map(|worker| worker.sampler.take()).collect();
                if timed.times(pushing) {
                    result.time += time;
                    if timed != Timed::Pair {
                        result.samples.extend(samples); // a pair has no latency of its own
                    }
                    counts += stats() - before;
                }
            }
            left -= now;
        }
        result.counts = Some(counts);
        result.aborts = workers.iter_mut().map(|worker| std::mem::take(&mut worker.aborts)).sum();
        result.time = result.time.max(Duration::from_nanos(1));
        Ok(result)
    })
}

/// One thread.
struct Stacker<S> {
    stack: S,
    values: Values,
    sampler: Sampler,
    todo: u64,
    pushing: bool,
    aborts: u64,
}

impl<S: Stack> Worker for Stacker<S> {
    fn work(&mut self) -> Result<()> {
        let bytes = self.values.longest() as u32;
        for number in 0..self.todo {
            self.aborts += if self.pushing {
                let data = self.values.get(number, bytes);
                self.sampler.op(|| self.stack.push(data))?
            } else {
                self.sampler.op(|| self.stack.pop())?
            };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contest::testing::tiny;
    use crate::crew::with_crew;
    use crate::engines::Contestant;
    use crate::{Plan, run};

    /// Counts what is in it.
    struct Counter(u64, u64);

    impl Stack for Counter {
        fn push(&mut self, data: &[u8]) -> Result<u64> {
            assert_eq!(data.len(), 120);
            self.0 += 1;
            self.1 = self.1.max(self.0);
            Ok(0)
        }

        fn pop(&mut self) -> Result<u64> {
            self.0 = self.0.checked_sub(1).ok_or(Error::Worker)?;
            Ok(1)
        }
    }

    #[test]
    fn what_is_pushed_is_popped_and_lists_stay_short() {
        with_crew(2, |crew| {
            let worker = |seed| Stacker {
                stack: Counter(0, 0),
                values: Values::new(120, seed),
                sampler: Sampler::new(seed),
                todo: 0,
                pushing: true,
                aborts: 0,
            };
            let row = Row::new(EXPERIMENT, "test");
            let plan = Plan { batch_time: Duration::from_millis(1), ..Plan::quick() };
            let rows = run(&plan, vec![phases(row, crew, vec![worker(1), worker(2)], Timed::AllocLink, None)]).unwrap();
            assert!(rows[0].ops > 0 && rows[0].aborts == rows[0].ops, "one pop, one abort, for each push");
        });
    }

    #[test]
    fn rows_for_each_half_and_the_pair() {
        let contest = tiny(&[Contestant::Reference], &[1]);
        let rows = Alloc { bytes: vec![128] }.measure(&contest, &()).unwrap();
        let ops: Vec<_> = rows.iter().map(|row| row.params["op"].as_str().unwrap()).collect();
        assert_eq!(ops, ["alloc+link", "unlink+free", "pair"]);
        assert!(Alloc { bytes: vec![7] }.measure(&contest, &()).is_err());
    }
}
