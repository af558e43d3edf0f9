//! `dependent`: 80 % look-ups of any key and 20 % inserts of one and the same, either spaced out evenly between the look-ups or in bursts
//! (Kamino-Tx §7.1). An insert has to wait for what the one before left behind; no other operation has.

use std::time::Duration;

use crate::contest::{Contest, share};
use crate::crew::{Crew, Worker};
use crate::engines::{Structure, on_store};
use crate::experiments::client::{Client, loaded, room};
use crate::target::Store;
use crate::workload::{Hashed, Names, Op, Random, Values, Workload, Ycsb};
use crate::{Batch, Result, Row, Side, Watch, clock};

/// The experiment's name in rows and on the command line.
pub const EXPERIMENT: &str = "dependent";

/// How inserts lie between look-ups, for every [`PERIOD`] operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrival {
    Spaced,
    Burst,
}

/// Operations after which the pattern begins again, and the inserts among them.
const PERIOD: u64 = 100;
const INSERTS: u64 = 20;

impl Arrival {
    const ALL: [Self; 2] = [Self::Spaced, Self::Burst];

    fn name(self) -> &'static str {
        match self {
            Self::Spaced => "spaced",
            Self::Burst => "burst",
        }
    }

    /// Whether the `at`-th operation of a thread is an insert, if `inserts` of a period are.
    fn inserts(self, at: u64, inserts: u64) -> bool {
        match self {
            Self::Spaced => at * inserts % PERIOD < inserts,
            Self::Burst => at % PERIOD < inserts,
        }
    }
}

/// Which threads insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writers {
    /// One thread, so that an insert waits for an earlier one of its own.
    One,
    /// All of them.
    All,
}

impl Writers {
    fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::All => "all",
        }
    }

    /// Inserts of a thread in a period, for 20 % of all together; one thread alone can do no more than insert.
    fn share(self, thread: usize, threads: usize) -> u64 {
        match (self, thread) {
            (Self::All, _) => INSERTS,
            (Self::One, 0) => (INSERTS * threads as u64).min(PERIOD),
            (Self::One, _) => 0,
        }
    }
}

/// Which operations are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timed {
    /// All together.
    All,
    /// Inserts only, each alone; reading the clock adds its own time.
    Insert,
    /// Look-ups only, likewise.
    LookUp,
}

impl Timed {
    const ALL: [Self; 3] = [Self::All, Self::Insert, Self::LookUp];

    fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Insert => "insert",
            Self::LookUp => "look-up",
        }
    }
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Dependent {
    /// Structures.
    pub structures: Vec<Structure>,
    /// Keys that are looked up.
    pub keys: u64,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: u32,
}

impl Default for Dependent {
    fn default() -> Self {
        Self { structures: vec![Structure::BTree], keys: 100_000, key_bytes: 24, value_bytes: 1024 }
    }
}

/// What tells one comparison from another.
#[derive(Clone, Copy)]
struct Case {
    arrival: Arrival,
    writers: Writers,
    timed: Timed,
}

impl Dependent {
    /// Measures.
    ///
    /// # Errors
    /// Those of the contestants.
    pub fn measure(&self, contest: &Contest, watch: &dyn Watch) -> Result<Vec<Row>> {
        let writers = |threads| if threads > 1 { vec![Writers::One, Writers::All] } else { vec![Writers::One] };
        let groups = contest.threads.iter().map(|threads| writers(*threads).len()).sum::<usize>();
        let groups = groups * self.structures.len() * Arrival::ALL.len() * Timed::ALL.len();
        watch.begin(EXPERIMENT, (groups * contest.plan.rounds()) as u64);
        let mut rows = Vec::new();
        for structure in &self.structures {
            for threads in &contest.threads {
                for writers in writers(*threads) {
                    rows.extend(self.compare(contest, *threads, *structure, writers, watch)?);
                }
            }
        }
        Ok(rows)
    }

    /// All cases on one set of stores: they do not change what is in them.
    fn compare(
        &self,
        contest: &Contest,
        threads: usize,
        structure: Structure,
        writers: Writers,
        watch: &dyn Watch,
    ) -> Result<Vec<Row>> {
        let row = Row::new(EXPERIMENT, "")
            .structure(structure.name())
            .threads(threads)
            .param("writers", writers.name())
            .param("keys", self.keys)
            .param("key_bytes", self.key_bytes)
            .param("value_bytes", self.value_bytes);
        let names = Hashed::new(self.key_bytes)?;
        let values = Values::new(self.value_bytes as usize, contest.seed);
        let arena = contest.arena(room(self.keys + 1, self.key_bytes, self.value_bytes, threads))?;
        // One more than are looked up: the one that is inserted.
        let all = Ycsb::new(Workload::C, self.keys + 1).value_bytes(self.value_bytes);
        let stores = loaded(&arena, structure, all, &names, &values)?;
        let mut rows = Vec::new();
        for (arrival, timed) in Arrival::ALL.into_iter().flat_map(|a| Timed::ALL.map(|timed| (a, timed))) {
            let case = Case { arrival, writers, timed };
            let row = row.clone().param("arrival", arrival.name()).param("op", timed.name());
            rows.extend(contest.compare(&arena, &row, watch, |at, _, crew, row| {
                Ok(on_store!(&stores[at], store => self.side(row, crew, store, &names, &values, case)))
            })?);
        }
        Ok(rows)
    }

    fn side<'c, 'env, S: Store + Clone, N: Names>(
        &self,
        row: Row,
        crew: &'c Crew<'env>,
        store: &'env S,
        names: &'env N,
        values: &'env Values,
        case: Case,
    ) -> Side<'c> {
        let (keys, bytes, threads) = (self.keys, self.value_bytes, crew.size());
        let thread = |thread| Thread {
            client: Client::new(store.clone(), names, values, true, thread as u64),
            random: Random::new(thread as u64),
            inserts: case.writers.share(thread, threads),
            timed: case.timed,
            time: Duration::ZERO,
        };
        let mut workers: Vec<_> = (0..threads).map(thread).collect();
        Side::new(row, move |batch| {
            // Whole periods: the mix is exact, and there is something of each kind.
            let share = share(batch, threads).next_multiple_of(PERIOD);
            for worker in &mut workers {
                let ops = (0..share).map(|at| match case.arrival.inserts(at, worker.inserts) {
                    true => Op::Insert { key: keys, bytes },
                    false => Op::Read { key: worker.random.below(keys) },
                });
                worker.client.ops.clear();
                worker.client.ops.extend(ops);
            }
            let time = crew.run(&mut workers)?;
            let of_kind = |op: &&Op| case.timed == Timed::All || (case.timed == Timed::Insert) == is_insert(op);
            let ops = workers.iter().map(|worker| worker.client.ops.iter().filter(of_kind).count() as u64).sum();
            let samples = workers.iter_mut().flat_map(|worker| worker.client.sampler.take()).collect();
            let aborts = workers.iter_mut().map(|worker| std::mem::take(&mut worker.client.aborts)).sum();
            let alone = workers.iter_mut().map(|worker| std::mem::take(&mut worker.time)).sum();
            let time = if case.timed == Timed::All { time } else { alone };
            Ok(Batch { time, ops: Some(ops), aborts, samples, ..Batch::default() })
        })
    }
}

fn is_insert(op: &Op) -> bool {
    matches!(op, Op::Insert { .. })
}

/// One thread.
struct Thread<'e, S, N> {
    client: Client<'e, S, N>,
    random: Random,
    inserts: u64,
    timed: Timed,
    /// Of the operations that are timed alone.
    time: Duration,
}

impl<S: Store, N: Names> Worker for Thread<'_, S, N> {
    fn work(&mut self) -> Result<()> {
        if self.timed == Timed::All {
            return self.client.work();
        }
        let mut buffer = [b'0'; crate::workload::KEY_BYTES_MAX];
        let ops = std::mem::take(&mut self.client.ops);
        for op in &ops {
            let found = if is_insert(op) == (self.timed == Timed::Insert) {
                let (found, time) = clock::timed(|| self.client.one(*op, &mut buffer));
                self.time += time;
                self.client.sampler.add(time);
                found?
            } else {
                self.client.one(*op, &mut buffer)?
            };
            self.client.aborts += found.aborts;
        }
        self.client.ops = ops;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contest::testing::tiny;
    use crate::engines::Contestant;

    #[test]
    fn both_arrivals_have_as_many_inserts() {
        for inserts in [0, 20, 40, 100] {
            for arrival in Arrival::ALL {
                let count = (0..PERIOD).filter(|at| arrival.inserts(*at, inserts)).count() as u64;
                assert_eq!(count, inserts, "{arrival:?}");
            }
        }
        let spaced: Vec<u64> = (0..PERIOD).filter(|at| Arrival::Spaced.inserts(*at, INSERTS)).collect();
        assert!(spaced.windows(2).all(|pair| pair[1] - pair[0] == 5), "{spaced:?}");
        assert!((0..INSERTS).all(|at| Arrival::Burst.inserts(at, INSERTS)));
    }

    #[test]
    fn a_fifth_of_all_operations_are_inserts() {
        for threads in 1..=5 {
            for writers in [Writers::One, Writers::All] {
                let inserts: u64 = (0..threads).map(|thread| writers.share(thread, threads)).sum();
                assert_eq!(inserts, INSERTS * threads as u64);
            }
        }
    }

    #[test]
    fn rows_for_every_case() {
        let contest = tiny(&[Contestant::Reference], &[1, 2]);
        let what = Dependent { keys: 50, value_bytes: 64, ..Dependent::default() };
        let rows = what.measure(&contest, &()).unwrap();
        assert_eq!(rows.len(), 3 * 2 * 3);
        assert!(rows.iter().all(|row| row.ops > 0 && row.p50_ns.is_some()));
        let ops = |op: &str, arrival: &str| {
            let found = rows.iter().find(|row| row.params["op"] == op && row.params["arrival"] == arrival).unwrap();
            found.ops
        };
        assert!(ops("insert", "burst").is_multiple_of(INSERTS) && ops("look-up", "spaced").is_multiple_of(80));
    }
}
