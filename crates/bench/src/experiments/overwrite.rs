//! `tx-overwrite`: a transaction overwrites some objects, chosen at random from a working set that is the thread's own.

use std::fmt;
use std::str::FromStr;

use crate::contest::{Contest, share};
use crate::crew::{Crew, Worker};
use crate::engines::{Made, Room, on_target};
use crate::latency::Sampler;
use crate::target::{Objects, Target};
use crate::workload::{Random, Values};
use crate::{Batch, Error, Result, Row, Side, Watch};

/// The experiment's name in rows and on the command line.
pub const EXPERIMENT: &str = "tx-overwrite";

/// How much memory the objects take, compared with the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// 128 KiB for each thread: in the cache of its core.
    Hot,
    /// 128 MiB together: in no cache.
    Cold,
}

impl Set {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Hot, Self::Cold];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Cold => "cold",
        }
    }

    fn bytes_per_thread(self, threads: usize) -> usize {
        match self {
            Self::Hot => 128 << 10,
            Self::Cold => (128 << 20) / threads,
        }
    }
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Set {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|set| set.name() == name).ok_or_else(|| format!("{name:?} is no set: hot or cold"))
    }
}

/// What to measure: all combinations.
#[derive(Clone, Debug)]
pub struct Overwrite {
    /// Objects in a transaction.
    pub objects: Vec<usize>,
    /// Bytes of an object.
    pub bytes: Vec<usize>,
    /// Sizes of the working set.
    pub sets: Vec<Set>,
}

impl Default for Overwrite {
    fn default() -> Self {
        Self { objects: vec![1, 4], bytes: vec![64, 256, 1024, 4096], sets: Set::ALL.to_vec() }
    }
}

impl Overwrite {
    /// Measures.
    ///
    /// # Errors
    /// Those of the contestants.
    pub fn measure(&self, contest: &Contest, watch: &dyn Watch) -> Result<Vec<Row>> {
        contest.announce(EXPERIMENT, self.objects.len() * self.bytes.len() * self.sets.len(), watch);
        let mut rows = Vec::new();
        for threads in &contest.threads {
            for set in &self.sets {
                for bytes in &self.bytes {
                    for objects in &self.objects {
                        rows.extend(compare(contest, *threads, *set, *bytes, *objects, watch)?);
                    }
                }
            }
        }
        Ok(rows)
    }
}

fn compare(
    contest: &Contest,
    threads: usize,
    set: Set,
    bytes: usize,
    objects: usize,
    watch: &dyn Watch,
) -> Result<Vec<Row>> {
    let count = set.bytes_per_thread(threads) / bytes.max(1);
    if bytes == 0 || objects == 0 || count < objects {
        return Err(Error::Parameter(format!("{objects} objects of {bytes} bytes: a set of {set} has {count}")));
    }
    let row = Row::new(EXPERIMENT, "").param("objects", objects).param("bytes", bytes).param("set", set.name());
    let blocks = (count * threads) as u64;
    let arena = contest.arena(Room { bytes: blocks * bytes as u64, stored: blocks * bytes as u64, blocks, threads })?;
    contest.compare(&arena, &row.threads(threads), watch, |_, made, crew, row| {
        let side = overwriters(made, crew, row, [count, objects, bytes], false, contest.seed)?;
        Ok(side.op_bytes((objects * bytes) as u64))
    })
}

/// A side whose threads each overwrite `objects` of their `count` objects of `bytes`; if `shared`, all threads have the same ones.
pub(super) fn overwriters<'c, 'env>(
    made: &'env Made,
    crew: &'c Crew<'env>,
    row: Row,
    [count, objects, bytes]: [usize; 3],
    shared: bool,
    seed: u64,
) -> Result<Side<'c>> {
    let values = Values::new(bytes, seed);
    Ok(on_target!(made, target => {
        let all = target.objects(crew.size(), count, bytes, shared)?;
        let workers = all.into_iter().zip(seed..).map(|(own, seed)| Overwriter {
            own,
            count,
            which: vec![0; objects],
            values: values.clone(),
            random: Random::new(seed),
            sampler: Sampler::new(seed),
            todo: 0,
            aborts: 0,
        });
        overwriting(row, crew, workers.collect())
    }))
}

fn overwriting<'c, 'env, O: Objects + 'env>(
    row: Row,
    crew: &'c Crew<'env>,
    mut workers: Vec<Overwriter<O>>,
) -> Side<'c> {
    Side::new(row, move |batch| {
        let share = share(batch, workers.len());
        workers.iter_mut().for_each(|worker| worker.todo = share);
        let time = crew.run(&mut workers)?;
        let samples = workers.iter_mut().flat_map(|worker| worker.sampler.take()).collect();
        let aborts = workers.iter_mut().map(|worker| std::mem::take(&mut worker.aborts)).sum();
        Ok(Batch { time, ops: Some(share * workers.len() as u64), aborts, samples, ..Batch::default() })
    })
}

/// One thread.
struct Overwriter<O> {
    own: O,
    /// Objects to choose from.
    count: usize,
    /// As many as are chosen.
    which: Vec<usize>,
    values: Values,
    random: Random,
    sampler: Sampler,
    todo: u64,
    aborts: u64,
}

impl<O: Objects> Worker for Overwriter<O> {
    fn work(&mut self) -> Result<()> {
        let bytes = self.values.longest() as u32;
        // Far apart, and distinct: there are at least as many objects as are chosen.
        let stride = self.count / self.which.len();
        for number in 0..self.todo {
            let mut at = self.random.below(self.count as u64) as usize;
            for which in &mut self.which {
                *which = at;
                at += stride;
                if at >= self.count {
                    at -= self.count;
                }
            }
            let data = self.values.get(number, bytes);
            self.aborts += self.sampler.op(|| self.own.overwrite(&self.which, data))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::contest::testing::tiny;
    use crate::engines::Contestant;

    #[derive(Default)]
    struct Recorder(Vec<Vec<usize>>);

    impl Objects for Recorder {
        fn overwrite(&mut self, which: &[usize], data: &[u8]) -> Result<u64> {
            assert_eq!(data.len(), 8);
            self.0.push(which.to_vec());
            Ok(1)
        }
    }

    #[test]
    fn chosen_objects_are_distinct_and_all_come_up() {
        for (count, objects) in [(4, 4), (7, 3), (100, 1), (5, 4)] {
            let mut worker = Overwriter {
                own: Recorder::default(),
                count,
                which: vec![0; objects],
                values: Values::new(8, 1),
                random: Random::new(1),
                sampler: Sampler::new(1),
                todo: 2000,
                aborts: 0,
            };
            worker.work().unwrap();
            assert_eq!(worker.aborts, 2000);
            let chosen = &worker.own.0;
            assert!(chosen.iter().all(|which| which.iter().collect::<BTreeSet<_>>().len() == objects));
            assert_eq!(chosen.iter().flatten().collect::<BTreeSet<_>>().len(), count);
            assert!(chosen.iter().flatten().all(|at| *at < count));
        }
    }

    #[test]
    fn rows_of_engines_and_of_who_is_missing() {
        let contest = tiny(&[Contestant::Reference, Contestant::Pmemobj], &[1, 2]);
        let what = Overwrite { objects: vec![1, 4], bytes: vec![64], sets: vec![Set::Hot] };
        let rows = what.measure(&contest, &()).unwrap();
        assert_eq!(rows.len(), 8);
        for row in rows.iter().filter(|row| row.engine == "reference") {
            assert!(row.ops > 0 && row.ops_per_s > 0.0 && row.missing.is_none(), "{row:?}");
            assert_eq!(row.params["bytes"], 64);
        }
        let missing = rows.iter().filter(|row| row.engine == "pmemobj" && row.missing.is_some()).count();
        assert_eq!(missing, if cfg!(feature = "peers") { 0 } else { 4 });
    }

    #[test]
    fn the_limit_is_one_barrier_and_the_lines_written() {
        let contest = tiny(&[Contestant::Bare, Contestant::BareNt], &[1, 2]);
        let what = Overwrite { objects: vec![1, 4], bytes: vec![64, 1000], sets: vec![Set::Hot] };
        let rows = what.measure(&contest, &()).unwrap();
        assert_eq!(rows.len(), 16);
        for row in rows {
            assert!(row.of_limit.is_some_and(|times| times.min >= 1.0), "the faster of both is the limit: {row:?}");
            let [objects, bytes] = ["objects", "bytes"].map(|name| row.params[name].as_u64().unwrap());
            // Past the cache, the one line that is not stored whole is flushed.
            let lines = objects * if row.engine == "bare" { bytes.div_ceil(64) } else { (bytes % 64).min(1) };
            assert_eq!((row.barriers_per_op, row.lines_per_op), (Some(1.0), Some(lines as f64)), "{row:?}");
        }
    }

    #[test]
    fn impossible_parameters_are_refused() {
        let contest = tiny(&[Contestant::Reference], &[1]);
        for (objects, bytes) in [(1, 0), (0, 64), (3000, 64)] {
            let what = Overwrite { objects: vec![objects], bytes: vec![bytes], sets: vec![Set::Hot] };
            assert!(matches!(what.measure(&contest, &()), Err(Error::Parameter(_))));
        }
    }
}
