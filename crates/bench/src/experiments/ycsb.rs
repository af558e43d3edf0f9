//! `ycsb`: the core workloads A to F, or a trace, on a hash map or a B+tree.

use crate::contest::{Contest, share};
use crate::crew::Crew;
use crate::engines::{Contestant, Structure, on_store};
use crate::experiments::client::{Client, loaded, own, room};
use crate::rounds::ROUNDS_BESIDE;
use crate::target::Store;
use crate::workload::{Distribution, Hashed, Names, Op, Stream, Trace, Values, Workload, Ycsb};
use crate::{Batch, Error, Result, Row, Side, Watch};

/// The experiment's name in rows and on the command line.
pub const EXPERIMENT: &str = "ycsb";

/// What to measure.
#[derive(Debug)]
pub struct YcsbRun {
    /// Mixes; not used with a trace.
    pub workloads: Vec<Workload>,
    /// Structures.
    pub structures: Vec<Structure>,
    /// Keys at first; not used with a trace.
    pub keys: u64,
    /// Bytes of a key; not used with a trace.
    pub key_bytes: usize,
    /// Bytes of a value; not used with a trace.
    pub value_bytes: u32,
    /// Instead of each workload's own.
    pub distribution: Option<Distribution>,
    /// Instead of the workloads: its name, and what it says. It begins with an empty store, and runs again and again.
    pub trace: Option<(String, Trace)>,
}

impl Default for YcsbRun {
    fn default() -> Self {
        Self {
            workloads: Workload::ALL.to_vec(),
            structures: Structure::ALL.to_vec(),
            keys: 100_000,
            key_bytes: 24,
            value_bytes: 1024,
            distribution: None,
            trace: None,
        }
    }
}

impl YcsbRun {
    /// Measures.
    ///
    /// # Errors
    /// Those of the contestants; a store that loses a key.
    pub fn measure(&self, contest: &Contest, watch: &dyn Watch) -> Result<Vec<Row>> {
        let workloads = if self.trace.is_some() { 1 } else { self.workloads.len() };
        contest.announce(EXPERIMENT, self.structures.len() * workloads, watch);
        let mut rows = Vec::new();
        for structure in &self.structures {
            if let Some((name, trace)) = &self.trace {
                for threads in &contest.threads {
                    rows.extend(self.replay(contest, *threads, *structure, (name, trace), watch)?);
                }
                continue;
            }
            // Those that leave the keys as they are can have one store after the other.
            let (growing, steady): (Vec<_>, Vec<_>) = self.workloads.iter().partition(|workload| workload.inserts());
            let cases = |workloads: &[&Workload]| -> Vec<(usize, Workload)> {
                let threads = contest.threads.iter();
                threads.flat_map(|threads| workloads.iter().map(|workload| (*threads, **workload))).collect()
            };
            rows.extend(self.compare(contest, *structure, &cases(&steady), watch)?);
            for case in cases(&growing) {
                rows.extend(self.compare(contest, *structure, &[case], watch)?);
            }
        }
        Ok(rows)
    }

    /// On one store for each contestant.
    fn compare(
        &self,
        contest: &Contest,
        structure: Structure,
        cases: &[(usize, Workload)],
        watch: &dyn Watch,
    ) -> Result<Vec<Row>> {
        if structure == Structure::HashMap && cases.iter().any(|(_, workload)| workload.scans()) {
            return Ok(cases
                .iter()
                .flat_map(|(threads, workload)| {
                    (0..contest.plan.rounds()).for_each(|_| watch.step());
                    let row = self.row(structure, *threads, *workload);
                    let missing =
                        move |who: &Contestant| Row { engine: who.name().into(), ..row.clone() }.missing(UNORDERED);
                    contest.who.iter().map(missing).collect::<Vec<_>>()
                })
                .collect());
        }
        let Some(threads_max) = cases.iter().map(|(threads, _)| *threads).max() else { return Ok(vec![]) };
        let names = Hashed::new(self.key_bytes)?;
        let values = Values::new(self.value_bytes as usize, contest.seed);
        let inserts = cases.iter().any(|(_, workload)| workload.inserts());
        let pairs = self.keys + if inserts { inserts_max(contest) } else { 0 };
        let arena = contest.arena(room(pairs, self.key_bytes, self.value_bytes, threads_max))?;
        let stores = loaded(&arena, structure, self.ycsb(Workload::C), &names, &values)?;
        let mut rows = Vec::new();
        for (threads, workload) in cases {
            let row = self.row(structure, *threads, *workload);
            rows.extend(contest.compare(&arena, &row, watch, |at, made, crew, row| {
                let row = Row { memory: made.memory()?, ..row };
                let streams = (contest.seed..).take(*threads).map(|seed| self.ycsb(*workload).stream(seed)).collect();
                let work = on_store!(&stores[at], store => {
                    generated(crew, own(store, *threads), &names, &values, streams)
                });
                Ok(Side::new(row, work))
            })?);
        }
        Ok(rows)
    }

    fn ycsb(&self, workload: Workload) -> Ycsb {
        let ycsb = Ycsb::new(workload, self.keys).value_bytes(self.value_bytes);
        self.distribution.map_or(ycsb, |distribution| ycsb.distribution(distribution))
    }

    fn row(&self, structure: Structure, threads: usize, workload: Workload) -> Row {
        Row::new(EXPERIMENT, "")
            .structure(structure.name())
            .threads(threads)
            .param("workload", workload.name())
            .param("keys", self.keys)
            .param("key_bytes", self.key_bytes)
            .param("value_bytes", self.value_bytes)
            .param("distribution", self.ycsb(workload).chosen().name())
    }

    fn replay(
        &self,
        contest: &Contest,
        threads: usize,
        structure: Structure,
        (name, trace): (&str, &Trace),
        watch: &dyn Watch,
    ) -> Result<Vec<Row>> {
        let shares: Vec<Vec<Op>> = (0..threads).map(|thread| trace.share(thread, threads)).collect();
        if shares.iter().any(Vec::is_empty) {
            let why = format!("{name}: {} keys are too few for {threads} threads", trace.keys());
            return Err(Error::Parameter(why));
        }
        if trace.scans() && structure == Structure::HashMap {
            return Err(Error::Parameter(format!("{name}: {UNORDERED}; use --structure btree")));
        }
        let row = Row::new(EXPERIMENT, "")
            .structure(structure.name())
            .threads(threads)
            .param("workload", "trace")
            .param("trace", name)
            .param("keys", trace.keys());
        let values = Values::new(trace.longest_value() as usize, contest.seed);
        let arena = contest.arena(room(2 * trace.keys(), trace.longest_key(), trace.longest_value(), threads))?;
        let stores = arena.made().map(|made| made.store(structure, trace.keys(), trace.longest_key()));
        let stores = stores.collect::<Result<Vec<_>>>()?;
        contest.compare(&arena, &row, watch, |at, _, crew, row| {
            let work = on_store!(&stores[at], store => {
                traced(crew, own(store, threads), trace, &values, shares.clone())
            });
            Ok(Side::new(row, work))
        })
    }
}

const UNORDERED: &str = "a hash map has no order to scan in";

/// More than any engine inserts in all rounds, at 5 % of its operations, each of 100 ns.
fn inserts_max(contest: &Contest) -> u64 {
    let rounds = contest.plan.rounds() as u64 + ROUNDS_BESIDE;
    contest.plan.batch_time.as_nanos() as u64 / 100 * rounds / 20 + 1000
}

pub(super) type Work<'c> = Box<dyn FnMut(u64) -> Result<Batch> + 'c>;

/// A store and a stream for each thread. Operations are made up before the clock runs.
pub(super) fn generated<'c, 'env, S: Store + 'env, N: Names>(
    crew: &'c Crew<'env>,
    stores: Vec<S>,
    names: &'env N,
    values: &'env Values,
    mut streams: Vec<Stream>,
) -> Work<'c> {
    let client = |(store, t)| Client::new(store, names, values, true, t);
    let mut clients: Vec<_> = stores.into_iter().zip(0..).map(client).collect();
    let reads_timed = streams.iter().any(|stream| stream.workload() == Workload::ReadBack);
    clients.iter_mut().for_each(|client| client.reads_timed = reads_timed);
    let mut known = streams.first().map_or(0, Stream::next_insert);
    Box::new(move |batch| {
        let share = share(batch, clients.len());
        let mut next = known;
        for (stream, client) in streams.iter_mut().zip(&mut clients) {
            stream.meet(known, next);
            client.ops.clear();
            client.ops.extend(stream.take(share as usize));
            next = stream.next_insert();
        }
        known = next;
        run_clients(crew, &mut clients)
    })
}

/// Each thread goes round its part of the trace.
fn traced<'c, 'env, S: Store + 'env>(
    crew: &'c Crew<'env>,
    stores: Vec<S>,
    trace: &'env Trace,
    values: &'env Values,
    shares: Vec<Vec<Op>>,
) -> Work<'c> {
    let client = |(store, t)| Client::new(store, trace, values, false, t);
    let mut clients: Vec<_> = stores.into_iter().zip(0..).map(client).collect();
    let mut at = vec![0; shares.len()];
    Box::new(move |batch| {
        let share = share(batch, clients.len()) as usize;
        for ((client, ops), at) in clients.iter_mut().zip(&shares).zip(&mut at) {
            client.ops.clear();
            client.ops.extend(ops.iter().cycle().skip(*at).take(share));
            *at = (*at + share) % ops.len();
        }
        run_clients(crew, &mut clients)
    })
}

/// Lets all clients do what they have.
pub(super) fn run_clients<'env, S: Store + 'env, N: Names>(
    crew: &Crew<'env>,
    clients: &mut Vec<Client<'env, S, N>>,
) -> Result<Batch> {
    let time = crew.run(clients)?;
    let ops = Some(clients.iter().map(|client| client.ops.len() as u64).sum());
    let samples = clients.iter_mut().flat_map(|client| client.sampler.take()).collect();
    let aborts = clients.iter_mut().map(|client| std::mem::take(&mut client.aborts)).sum();
    Ok(Batch { time, ops, aborts, samples, ..Batch::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contest::testing::tiny;
    use crate::crew::with_crew;

    fn small() -> YcsbRun {
        YcsbRun { keys: 200, value_bytes: 64, ..YcsbRun::default() }
    }

    #[test]
    fn all_workloads_on_both_structures() {
        let contest = tiny(&[Contestant::Reference], &[2]);
        let rows = small().measure(&contest, &()).unwrap();
        assert_eq!(rows.len(), 12);
        for row in &rows {
            let no_order = row.structure.as_deref() == Some("hashmap") && row.params["workload"] == "E";
            assert_eq!(row.missing.is_some(), no_order, "{row:?}");
            assert_eq!(row.ops > 0, !no_order, "{row:?}");
        }
        let d = rows.iter().find(|row| row.params["workload"] == "D").unwrap();
        assert_eq!(d.params["distribution"], "latest");
    }

    #[test]
    fn a_trace_runs_round_and_round() {
        let text = "put a 10\nput bb 20\nget a\nscan a 5\ndelete bb\nput ccc 3\nget ccc\nput d 1\n";
        let trace = Trace::parse(text.as_bytes(), "t".as_ref()).unwrap();
        let run = YcsbRun { trace: Some(("t".into(), trace)), structures: vec![Structure::BTree], ..small() };
        let rows = run.measure(&tiny(&[Contestant::Reference], &[1, 2]), &()).unwrap();
        assert_eq!(rows.len(), 2);
        assert!(rows.iter().all(|row| row.ops > 8 && row.params["trace"] == "t"));

        let error = run.measure(&tiny(&[Contestant::Reference], &[5]), &()).unwrap_err();
        assert!(error.to_string().contains("too few"), "{error}");
        let run = YcsbRun { structures: vec![Structure::HashMap], ..run };
        let error = run.measure(&tiny(&[Contestant::Reference], &[1]), &()).unwrap_err();
        assert!(error.to_string().contains("--structure btree"), "{error}");
    }

    /// A store that forgets.
    #[derive(Clone)]
    struct Empty;

    impl Store for Empty {
        fn get(&mut self, _: &[u8], _: &mut [u8]) -> Result<crate::target::Found> {
            Ok(Default::default())
        }
        fn put(&mut self, _: &[u8], _: &[u8]) -> Result<crate::target::Found> {
            Ok(crate::target::Found { pairs: 1, aborts: 0 })
        }
        fn read_modify_write(&mut self, key: &[u8], out: &mut [u8], _: &[u8]) -> Result<crate::target::Found> {
            self.get(key, out)
        }
        fn delete(&mut self, key: &[u8]) -> Result<crate::target::Found> {
            self.get(key, &mut [])
        }
        fn scan(&mut self, key: &[u8], _: usize, out: &mut [u8]) -> Result<crate::target::Found> {
            self.get(key, out)
        }
    }

    /// Fast because it does nothing is not fast.
    #[test]
    fn a_store_that_loses_keys_is_found_out() {
        let (names, values) = (Hashed::new(24).unwrap(), Values::new(10, 1));
        let (names, values) = (&names, &values);
        for workload in Workload::ALL {
            let ycsb = Ycsb::new(workload, 10);
            with_crew(1, |crew| {
                let mut work = generated(crew, vec![Empty], names, values, vec![ycsb.stream(1)]);
                let error = work(100).unwrap_err().to_string();
                assert!(error.contains("found nothing"), "{error}");
            });
        }
    }
}
