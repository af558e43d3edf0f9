//! Interleaved rounds: all sides in turn, again and again, in one run of the process.

use std::time::Duration;

use pmem::{Pool, Stats};

use crate::latency::{EveryOperation, Latency};
use crate::line::line_transfer;
use crate::table::contestant;
use crate::{Result, Row, Spread, Watch, machine};

/// Fewest rounds whose median means anything.
const ROUNDS_MIN: usize = 5;

/// Most operations in a batch: an operation that costs nothing must not run for ever.
const BATCH_MAX: u64 = 1 << 28;

/// Engines whose times are the limit of the others in their rounds: of each round the shortest.
const LIMITS: [&str; 2] = ["bare", "bare-nt"];

/// Rounds in which each operation is timed, behind those whose times are told: a sample knows no longest operation.
const LATENCY_ROUNDS: usize = 3;

/// At most so many rounds' operations are done beside those that are asked for: finding the size of a batch takes as much as a few of them.
pub(crate) const ROUNDS_BESIDE: u64 = 5 + LATENCY_ROUNDS as u64;

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Rounds; at least five are run.
    pub rounds: usize,
    /// How long one side runs in one round, about.
    pub batch_time: Duration,
}

impl Plan {
    /// Numbers to rely on: 15 rounds of 10 ms each.
    #[must_use]
    pub fn full() -> Self {
        Self { rounds: 15, batch_time: Duration::from_millis(10) }
    }

    /// Numbers to get an impression: 5 rounds of 1 ms each.
    #[must_use]
    pub fn quick() -> Self {
        Self { rounds: ROUNDS_MIN, batch_time: Duration::from_millis(1) }
    }

    /// With so many threads: the more of them take turns on a core, the longer a batch must be for each to have its turns.
    #[must_use]
    pub fn by(self, threads: usize) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { batch_time: self.batch_time * threads.div_ceil(cores).max(1) as u32, ..self }
    }

    /// Rounds that are run.
    #[must_use]
    pub fn rounds(&self) -> usize {
        self.rounds.max(ROUNDS_MIN)
    }
}

/// What came out of one side's share of a round.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Time of the operations, without set-up.
    pub time: Duration,
    /// How many they were, if not as many as asked for.
    pub ops: Option<u64>,
    /// Transactions given up and tried again.
    pub aborts: u64,
    /// Nanoseconds of single operations, of those that were sampled.
    pub samples: Vec<u64>,
    /// What they cost, if it is not what the pool counted meanwhile.
    pub counts: Option<Stats>,
    /// How often the process waited for the device, where that is all that is known.
    pub syncs: Option<u64>,
    /// CPU time of the process that was asked, if it is another one.
    pub cpu: Option<Duration>,
}

impl From<Duration> for Batch {
    fn from(time: Duration) -> Self {
        Self { time, ..Self::default() }
    }
}

type Work<'a> = Box<dyn FnMut(u64) -> Result<Batch> + 'a>;

/// One of the things that are compared.
pub struct Side<'a> {
    row: Row,
    op_bytes: Option<u64>,
    pool: Option<Pool>,
    work: Work<'a>,
}

impl<'a> Side<'a> {
    /// `work(batch)` does `batch` operations (of all threads together) and returns their time without set-up, or a [`Batch`].
    pub fn new<B: Into<Batch>>(row: Row, mut work: impl FnMut(u64) -> Result<B> + 'a) -> Self {
        Self { row, op_bytes: None, pool: None, work: Box::new(move |batch| work(batch).map(Into::into)) }
    }

    /// The name of its engine.
    #[must_use]
    pub fn engine(&self) -> &str {
        &self.row.engine
    }

    /// Bytes that one operation changes or reads, for the user.
    #[must_use]
    pub fn op_bytes(mut self, bytes: u64) -> Self {
        self.op_bytes = Some(bytes);
        self
    }

    /// The pool whose counters tell what an operation costs.
    #[must_use]
    pub fn counted(mut self, pool: &Pool) -> Self {
        self.row = self.row.domain(pool.domain());
        self.pool = Some(pool.clone());
        self
    }
}

/// What one side has shown so far.
#[derive(Default)]
struct Measured {
    batch: u64,
    ops: u64,
    ns_per_op: Vec<f64>,
    time: Duration,
    aborts: u64,
    /// Of sampled operations, while times were taken.
    latency: Latency,
    /// Of every operation, in rounds behind them.
    every: Latency,
    counts: Option<Stats>,
    syncs: Option<u64>,
    /// Nanoseconds for each operation, of every round.
    cpu: Vec<f64>,
}

impl Measured {
    fn add(&mut self, batch: Batch, counted: Option<Stats>) {
        let ops = batch.ops.unwrap_or(self.batch);
        if ops == 0 {
            return; // none of the kind that is timed came up: nothing was measured
        }
        if let Some(counts) = batch.counts.or(counted) {
            *self.counts.get_or_insert_default() += counts;
        }
        if let Some(syncs) = batch.syncs {
            *self.syncs.get_or_insert_default() += syncs;
        }
        self.cpu.extend(batch.cpu.map(|cpu| cpu.as_nanos() as f64 / ops as f64));
        self.ns_per_op.push(batch.time.as_nanos() as f64 / ops as f64);
        self.ops += ops;
        self.time += batch.time;
        self.aborts += batch.aborts;
        self.latency.add(&batch.samples);
    }
}

/// Measures all sides, interleaved, and returns their rows in the same order.
///
/// # Errors
/// The first error of any side.
pub fn run(plan: &Plan, sides: Vec<Side<'_>>) -> Result<Vec<Row>> {
    run_watched(plan, sides, None, &())
}

/// As [`run`]; tells `watch` of every round, and holds each side against the one at `baseline`, round by round.
///
/// # Errors
/// As there.
pub fn run_watched(
    plan: &Plan,
    mut sides: Vec<Side<'_>>,
    baseline: Option<usize>,
    watch: &dyn Watch,
) -> Result<Vec<Row>> {
    let rounds = plan.rounds();
    let mut measured = Vec::with_capacity(sides.len());
    for side in &mut sides {
        measured.push(Measured { batch: calibrate(plan.batch_time, &mut side.work)?, ..Measured::default() });
    }
    let several = sides.iter().any(|side| side.row.threads > 1);
    let mut lines = Vec::new();
    for _ in 0..rounds {
        if several {
            lines.extend(line_transfer());
        }
        for (side, so_far) in sides.iter_mut().zip(&mut measured) {
            let before = side.pool.as_ref().map(Pool::stats);
            let batch = (side.work)(so_far.batch)?;
            let counted = side.pool.as_ref().zip(before).map(|(pool, before)| pool.stats() - before);
            so_far.add(batch, counted);
        }
        watch.step();
    }
    measure_latencies(&mut sides, &mut measured)?;
    let machine = machine::describe();
    let base = baseline.and_then(|at| Some((contestant(&sides.get(at)?.row), measured[at].ns_per_op.clone())));
    let base_cpu = baseline.and_then(|at| measured.get(at)).map(|base| base.cpu.clone()).unwrap_or_default();
    let limits = sides.iter().zip(&measured).filter(|(side, _)| LIMITS.contains(&side.row.engine.as_str()));
    let limit = limits
        .map(|(_, limit)| limit.ns_per_op.clone())
        .reduce(|one, other| one.iter().zip(&other).map(|(one, other)| one.min(*other)).collect());
    let lines = Spread::of(&lines);
    let finished = sides.into_iter().zip(measured).map(|(side, measured)| {
        let mut row = finish(side, &measured, &machine);
        let own = &measured.ns_per_op;
        if let Some((name, base)) = &base {
            row.ratio = divided(base, own);
            row.cpu_ratio = divided(&measured.cpu, &base_cpu);
            row.baseline = Some(name.clone());
        }
        row.line_ns = lines.filter(|_| row.threads > 1);
        row.of_limit = limit.as_ref().and_then(|limit| divided(own, limit));
        row
    });
    Ok(finished.collect())
}

/// Rounds of which nothing but latencies is kept. Sides that tell none are left alone.
fn measure_latencies(sides: &mut [Side<'_>], measured: &mut [Measured]) -> Result<()> {
    let _every = EveryOperation::timed();
    for _ in 0..LATENCY_ROUNDS {
        for (side, so_far) in sides.iter_mut().zip(&mut *measured).filter(|(_, so_far)| so_far.latency.any()) {
            let batch = (side.work)(so_far.batch)?;
            so_far.every.add(&batch.samples);
        }
    }
    Ok(())
}

/// Round by round.
fn divided(times: &[f64], by: &[f64]) -> Option<Spread> {
    Spread::of(&times.iter().zip(by).map(|(time, by)| time / by.max(1e-3)).collect::<Vec<_>>())
}

/// The batch that takes about `target`: doubled until it takes a quarter of it (which warms up too), then scaled. Taken is the shorter
/// time of two: one that was interrupted would make the batch too small for all rounds.
fn calibrate(target: Duration, work: &mut Work<'_>) -> Result<u64> {
    let mut batch = 1;
    loop {
        let mut time = work(batch)?.time;
        if time * 4 >= target {
            time = time.min(work(batch)?.time);
        }
        if time * 4 >= target || batch >= BATCH_MAX {
            let scaled = batch as f64 * target.as_secs_f64() / time.as_secs_f64().max(1e-9);
            return Ok((scaled as u64).clamp(1, BATCH_MAX));
        }
        batch *= 2;
    }
}

fn finish(side: Side<'_>, measured: &Measured, machine: &str) -> Row {
    let mut row = side.row;
    row.rounds = measured.ns_per_op.len();
    row.ops = measured.ops;
    row.seconds = measured.time.as_secs_f64();
    row.machine = machine.to_owned();
    row.aborts = measured.aborts;
    row.abort_rate = (row.ops > 0).then(|| row.aborts as f64 / (row.aborts + row.ops) as f64);
    row.ns_per_op = Spread::of(&measured.ns_per_op);
    row.cpu_ns_per_op = Spread::of(&measured.cpu);
    row.ops_per_s = row.ns_per_op.map_or(0.0, |ns| 1e9 / ns.median.max(1e-3));
    row.bytes_per_s = side.op_bytes.map(|bytes| bytes as f64 * row.ops_per_s);
    let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|quantile| measured.latency.quantile(quantile));
    (row.p50_ns, row.p99_ns, row.p999_ns) = (p50, p99, p999);
    row.max_ns = [&measured.latency, &measured.every].into_iter().filter_map(|all| all.quantile(1.0)).reduce(f64::max);
    row.syncs_per_op = measured.syncs.filter(|_| row.ops > 0).map(|syncs| syncs as f64 / row.ops as f64);
    if let Some(counts) = measured.counts.filter(|_| row.ops > 0) {
        let per_op = |count: u64| Some(count as f64 / row.ops as f64);
        row.barriers_per_op = per_op(counts.drains);
        row.lines_per_op = per_op(counts.flushed_lines);
        row.media_bytes_per_op = per_op(counts.media_bytes());
        row.syncs_per_op = per_op(counts.syncs);
        row.write_amplification = side
            .op_bytes
            .filter(|bytes| *bytes > 0)
            .map(|bytes| counts.media_bytes() as f64 / (row.ops * bytes) as f64);
    }
    row
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// A side that takes `ns` per operation by its own account and writes its name down.
    fn made_up<'a>(name: &'static str, ns: u64, log: &'a RefCell<Vec<&'static str>>) -> Side<'a> {
        Side::new(Row::new("test", name), move |batch| {
            log.borrow_mut().push(name);
            Ok(Duration::from_nanos(ns * batch))
        })
        .op_bytes(10)
    }

    #[test]
    fn sides_are_interleaved_at_least_five_times() {
        let log = RefCell::new(Vec::new());
        let plan = Plan { rounds: 1, batch_time: Duration::from_micros(1) };
        let rows = run(&plan, vec![made_up("a", 100, &log), made_up("b", 50, &log)]).unwrap();
        let log = log.into_inner();
        assert!(log.ends_with(&["a", "b", "a", "b", "a", "b", "a", "b", "a", "b"]), "{log:?}");

        assert_eq!(rows[0].rounds, 5);
        assert_eq!(rows[0].ns_per_op, Some(Spread { median: 100.0, min: 100.0, max: 100.0 }));
        assert_eq!((rows[0].ops, rows[1].ops), (50, 100), "batches are as long in time, not in operations");
        assert_eq!(rows[1].ops_per_s, 2e7);
        assert_eq!(rows[1].bytes_per_s, Some(2e8));
        assert_eq!(rows[0].barriers_per_op, None, "nothing was counted");
    }

    /// Each round's times are divided by each other: what slows a whole round down does not show.
    #[test]
    fn ratios_are_of_the_same_rounds() {
        let log = RefCell::new(0_u64);
        let side = |name, factor: u64| {
            let log = &log;
            Side::new(Row::new("test", name), move |batch| {
                *log.borrow_mut() += 1;
                // Every round is slower than the one before, for both alike.
                let round = (*log.borrow()).div_ceil(2);
                Ok(Batch {
                    time: Duration::from_nanos(batch * factor * round),
                    aborts: 2,
                    samples: vec![factor],
                    ..Batch::default()
                })
            })
        };
        let plan = Plan { rounds: 7, batch_time: Duration::from_nanos(1) };
        let rows = run_watched(&plan, vec![side("slow", 300), side("fast", 100)], Some(0), &()).unwrap();
        assert_eq!(rows[1].baseline.as_deref(), Some("slow"));
        assert_eq!(rows[0].ratio, Some(Spread { median: 1.0, min: 1.0, max: 1.0 }));
        assert_eq!(rows[1].ratio.map(|ratio| ratio.median.round()), Some(3.0));
        assert_eq!(rows[1].of_limit, None);
        assert_eq!((rows[1].aborts, rows[1].p50_ns, rows[1].p999_ns), (14, Some(100.0), Some(100.0)));
        assert_eq!(rows[1].max_ns, Some(100.0));
    }

    /// The longest operation may be one that no sample met: it counts, and its round's time does not.
    #[test]
    fn the_longest_operation_is_of_rounds_of_their_own() {
        let mut round = 0;
        let side = Side::new(Row::new("test", "some"), |batch| {
            round += 1;
            let slow = round > 2 + ROUNDS_MIN; // finding the batch takes two
            let ns = if slow { 900 } else { 10 };
            Ok(Batch { time: Duration::from_nanos(ns * batch), samples: vec![ns], ..Batch::default() })
        });
        let rows = run(&Plan { rounds: 5, batch_time: Duration::from_nanos(10) }, vec![side]).unwrap();
        assert_eq!((rows[0].ns_per_op.unwrap().max, rows[0].p999_ns, rows[0].max_ns), (10.0, Some(10.0), Some(900.0)));
    }

    #[test]
    fn several_threads_are_told_what_a_line_takes() {
        let side =
            |threads| Side::new(Row::new("test", "some").threads(threads), |batch| Ok(Duration::from_nanos(batch)));
        let rows = run(&Plan::quick(), vec![side(1), side(2)]).unwrap();
        assert_eq!(rows[0].line_ns, None);
        assert!(rows[1].line_ns.is_none_or(|ns| ns.min > 0.0), "{rows:?}");
    }

    /// A side that takes part with it is held against the bare work.
    #[test]
    fn times_are_told_as_multiples_of_the_limit() {
        let log = RefCell::new(Vec::new());
        let plan = Plan { rounds: 5, batch_time: Duration::from_micros(1) };
        let rows = run(&plan, vec![made_up("log", 150, &log), made_up("bare", 100, &log)]).unwrap();
        assert_eq!(rows[0].of_limit, Some(Spread { median: 1.5, min: 1.5, max: 1.5 }));
        assert_eq!((rows[1].of_limit.map(|one| one.median), rows[0].ratio), (Some(1.0), None));
    }

    /// A side may time only some of its operations, and tell what those cost.
    #[test]
    fn a_side_that_counts_by_itself() {
        let side = Side::new(Row::new("test", "some"), |batch| {
            let counts = Some(Stats { drains: batch, ..Stats::default() });
            Ok(Batch { time: Duration::from_nanos(batch), ops: Some(batch * 2), counts, ..Batch::default() })
        });
        let dir = tempfile::tempdir().unwrap();
        let options = pmem::Options::new().size(1 << 20).domain(pmem::DomainChoice::Emulated);
        let pool = options.create(dir.path().join("pool")).unwrap();
        let rows = run(&Plan { rounds: 5, batch_time: Duration::from_nanos(100) }, vec![side.counted(&pool)]).unwrap();
        assert_eq!((rows[0].ns_per_op.unwrap().median, rows[0].barriers_per_op), (0.5, Some(0.5)));
    }

    /// The first try of every size takes a millisecond longer: another process had the processor.
    #[test]
    fn an_interruption_does_not_make_batches_small() {
        let mut last = 0;
        let mut work: Work<'_> = Box::new(move |batch| {
            let late = if batch == last { 0 } else { 1_000_000 };
            last = batch;
            Ok(Duration::from_nanos(100 * batch + late).into())
        });
        let batch = calibrate(Duration::from_millis(1), &mut work).unwrap();
        assert_eq!(batch, 10_000);
    }

    #[test]
    fn an_operation_that_costs_nothing_ends() {
        let rows = run(&Plan::quick(), vec![Side::new(Row::new("test", "free"), |_| Ok(Duration::ZERO))]).unwrap();
        assert_eq!(rows[0].rounds, 5);
    }

    #[test]
    fn costs_are_counted_exactly() {
        let dir = tempfile::tempdir().unwrap();
        let options = pmem::Options::new().size(1 << 20).domain(pmem::DomainChoice::Emulated);
        let pool = options.create(dir.path().join("pool")).unwrap();
        let mut area = pool.add_region("test", 1 << 16).unwrap().into_area().unwrap();
        let side = Side::new(Row::new("test", "none"), |batch| {
            for i in 0..batch {
                area.put(0, &[i; 16])?;
                let _persisted = area.persist(0, 128)?;
            }
            Ok(Duration::from_nanos(batch))
        });
        let rows = run(&Plan::quick(), vec![side.counted(&pool).op_bytes(128)]).unwrap();
        assert_eq!(rows[0].barriers_per_op, Some(1.0));
        assert_eq!(rows[0].lines_per_op, Some(2.0));
        assert_eq!(rows[0].media_bytes_per_op, Some(128.0));
        assert_eq!(rows[0].write_amplification, Some(1.0));
        assert_eq!(rows[0].domain.as_deref(), Some("emulated"));
    }

    #[test]
    fn an_error_of_a_side_ends_the_run() {
        let failing = Side::new(Row::new("test", "bad"), |_| Err::<Batch, _>(pmem::Error::ReadOnly.into()));
        assert!(run(&Plan::quick(), vec![failing]).is_err());
    }
}
