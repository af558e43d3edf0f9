//! `log-append`: records appended to a log until they are durable, or as the policy has it.
//!
//! **A full log.** No log fills up while the clock runs: a round is cut into laps that there is room for, and between laps the log is cleaned, untimed
//! (`truncate_all`, `pmemlog_rewind`, a tail set back). All sides have the same room and use all of it before they are cleaned, so that each record
//! goes where nothing was written for a lap. What a log defers to the next append after that is timed, and counted.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pmem::Stats;
use tempfile::TempDir;

use crate::contest::{folder, share};
use crate::crew::{Crew, Worker, with_crew};
use crate::latency::Sampler;
use crate::log_sides::{Appender, LogSide, Policy, Tenants, Writer};
use crate::workload::Values;
use crate::{Batch, Error, Plan, Result, Row, Side, Watch, run_watched};

/// The experiment's name in rows and on the command line.
pub const EXPERIMENT: &str = "log-append";

/// Longest record: many fit into a lap.
pub const RECORD_BYTES_MAX: usize = 64 << 10;
/// More than any side adds to a record, and the rounding of its end.
const OVERHEAD: u64 = 96;
const SEED: u64 = 1;

/// What to measure: all combinations.
#[derive(Clone, Debug)]
pub struct LogAppend {
    /// What takes part, in the order of the rows.
    pub who: Vec<Appender>,
    /// The one that the others are compared with; by default the first peer, else `bare`.
    pub baseline: Option<Appender>,
    /// Bytes of a record.
    pub bytes: Vec<usize>,
    /// Numbers of threads, one after the other.
    pub threads: Vec<usize>,
    /// Each thread has a log of its own.
    pub tenants: bool,
    /// Bytes of records that a log has room for.
    pub room: u64,
    /// Where logs go.
    pub dir: PathBuf,
    /// How much to measure.
    pub plan: Plan,
    /// What rows begin as.
    pub row: Row,
}

impl LogAppend {
    /// Ours, forced each time, every eight and in groups of eight, and the limit.
    #[must_use]
    pub fn here(plan: Plan) -> Self {
        let policies = [Policy::Sync, Policy::Frequency(8), Policy::Group(8)].map(Appender::Log);
        Self {
            who: [Appender::Bare].into_iter().chain(policies).collect(),
            baseline: None,
            bytes: vec![64, 512, 1024, 4096],
            threads: vec![1, 2, 4, 8],
            tenants: false,
            room: 64 << 20,
            dir: crate::contest::memory(),
            plan,
            row: Row::new(EXPERIMENT, ""),
        }
    }

    /// Measures.
    ///
    /// # Errors
    /// Those of the logs.
    pub fn measure(&self, watch: &dyn Watch) -> Result<Vec<Row>> {
        if let Some(bytes) = self.bytes.iter().find(|bytes| !(1..=RECORD_BYTES_MAX).contains(*bytes)) {
            return Err(Error::Parameter(format!("records of {bytes} bytes: from 1 to {RECORD_BYTES_MAX}")));
        }
        let crowd = self.threads.iter().copied().max().unwrap_or(0);
        if let Some(bytes) = self.bytes.iter().find(|bytes| records(self.room, **bytes) < crowd as u64) {
            let room = self.room;
            return Err(Error::Parameter(format!(
                "{room} bytes have no room for records of {bytes} by {crowd} threads"
            )));
        }
        watch.begin(&self.row.experiment, (self.bytes.len() * self.threads.len() * self.plan.rounds()) as u64);
        let mut rows = Vec::new();
        for threads in self.threads.iter().copied() {
            let logs = self.logs(threads)?;
            for bytes in self.bytes.iter().copied() {
                rows.extend(self.compare(&logs, threads, bytes, watch)?);
            }
        }
        Ok(rows)
    }

    fn logs(&self, threads: usize) -> Result<Logs> {
        Logs::make(&self.dir, &self.who, |who, dir| {
            if !self.tenants {
                return who.make(dir, self.room, threads);
            }
            let all = Tenants::make(who, dir, self.room, threads)?;
            Ok(all.map(|all| Box::new(all) as Box<dyn LogSide>))
        })
    }

    fn compare(&self, logs: &Logs, threads: usize, bytes: usize, watch: &dyn Watch) -> Result<Vec<Row>> {
        let values = Values::new(bytes, SEED);
        let row = |who: Appender| appended(&self.row, who, threads).param("bytes", bytes);
        let mut rows = with_crew(threads, |crew| {
            let mut sides = Vec::new();
            for (who, log) in &logs.made {
                let laps = Laps::new(records(self.room, bytes), threads);
                let side = appending(&**log, crew, Row { domain: Some(log.domain()), ..row(*who) }, &values, laps)?;
                sides.push(side.op_bytes(bytes as u64));
            }
            run_watched(&self.plan.by(threads), sides, logs.baseline(self.baseline), watch)
        })?;
        rows.extend(logs.missing.iter().map(|(who, why)| row(*who).missing(why)));
        Ok(rows)
    }
}

/// As many records of so many bytes as make a lap of a log with that room. A quarter is left for what does not fit at the ends of segments, and
/// for the last records of the lap before.
pub(crate) fn records(room: u64, bytes: usize) -> u64 {
    room / 4 * 3 / (bytes as u64 + OVERHEAD)
}

/// A row of that appender.
pub(crate) fn appended(row: &Row, who: Appender, threads: usize) -> Row {
    let row = Row { engine: who.name().into(), threads, ..row.clone() };
    row.param("policy", who.policy().to_string()).param("window", who.policy().window(threads))
}

/// Logs set up for some comparisons. Their files go with them.
pub(crate) struct Logs {
    /// Declared before the folder, so that pools are closed before their files go.
    made: Vec<(Appender, Box<dyn LogSide>)>,
    missing: Vec<(Appender, String)>,
    _folder: TempDir,
}

impl Logs {
    fn make(
        dir: &Path,
        who: &[Appender],
        make: impl Fn(Appender, &Path) -> Result<Result<Box<dyn LogSide>, String>>,
    ) -> Result<Self> {
        let folder = folder(dir)?;
        let (mut made, mut missing) = (Vec::new(), Vec::new());
        for who in who.iter().copied() {
            match make(who, folder.path())? {
                Ok(log) => made.push((who, log)),
                Err(why) => missing.push((who, why)),
            }
        }
        Ok(Self { made, missing, _folder: folder })
    }

    fn baseline(&self, wanted: Option<Appender>) -> Option<usize> {
        let index_of = |like: &dyn Fn(Appender) -> bool| self.made.iter().position(|(who, _)| like(*who));
        match wanted {
            Some(wanted) => index_of(&|who| who == wanted),
            None => index_of(&|who| Appender::OTHERS.contains(&who)).or_else(|| index_of(&|who| who == Appender::Bare)),
        }
    }
}

/// Cuts batches into pieces that a log has room for.
#[derive(Clone, Debug)]
pub(crate) struct Laps {
    /// Records that each thread appends in a lap.
    per_lap: u64,
    used: u64,
}

impl Laps {
    /// There is room for `records` in all.
    pub(crate) fn new(records: u64, threads: usize) -> Self {
        Self { per_lap: (records / threads as u64).max(1), used: 0 }
    }

    /// Does `each` records by each thread; `run` is told how many at a time, and `clean` called when there is no room for more.
    pub(crate) fn cut(
        &mut self,
        each: u64,
        mut clean: impl FnMut() -> Result<()>,
        mut run: impl FnMut(u64) -> Result<Duration>,
    ) -> Result<Duration> {
        let (mut left, mut time) = (each, Duration::ZERO);
        while left > 0 {
            if self.used == self.per_lap {
                clean()?;
                self.used = 0;
            }
            let now = left.min(self.per_lap - self.used);
            time += run(now)?;
            self.used += now;
            left -= now;
        }
        Ok(time)
    }
}

/// A side whose threads append to `log`.
pub(crate) fn appending<'c, 'env>(
    log: &'env dyn LogSide,
    crew: &'c Crew<'env>,
    row: Row,
    values: &'env Values,
    mut laps: Laps,
) -> Result<Side<'c>> {
    let worker = |thread| {
        let sampler = Sampler::new(SEED + thread as u64);
        Ok(Appending { writer: log.writer(thread)?, values, sampler, number: thread as u64, todo: 0 })
    };
    let mut workers = (0..crew.size()).map(worker).collect::<Result<Vec<_>>>()?;
    // Others may have filled it.
    log.clean()?;
    Ok(Side::new(row, move |batch| {
        let share = share(batch, workers.len());
        let mut counts: Option<Stats> = None;
        let time = laps.cut(
            share,
            || log.clean(),
            |now| {
                workers.iter_mut().for_each(|worker| worker.todo = now);
                let before = log.stats();
                let time = crew.run(&mut workers)?;
                if let Some((after, before)) = log.stats().zip(before) {
                    *counts.get_or_insert_default() += after - before;
                }
                Ok(time)
            },
        )?;
        let samples = workers.iter_mut().flat_map(|worker| worker.sampler.take()).collect();
        Ok(Batch { time, ops: Some(share * workers.len() as u64), samples, counts, ..Batch::default() })
    }))
}

/// One thread.
struct Appending<'e> {
    writer: Box<dyn Writer + 'e>,
    values: &'e Values,
    sampler: Sampler,
    number: u64,
    todo: u64,
}

impl Worker for Appending<'_> {
    fn work(&mut self) -> Result<()> {
        let Self { writer, values, sampler, number, todo } = self;
        let bytes = values.longest() as u32;
        for _ in 0..*todo {
            let record = values.get(*number, bytes);
            sampler.op(|| writer.append(record))?;
            *number += 1;
        }
        writer.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny(who: &[Appender]) -> LogAppend {
        let plan = Plan { batch_time: Duration::from_micros(200), ..Plan::quick() };
        LogAppend {
            who: who.to_vec(),
            bytes: vec![64, 1000],
            threads: vec![1, 2],
            room: 1 << 20,
            ..LogAppend::here(plan)
        }
    }

    const OURS: [Appender; 3] =
        [Appender::Log(Policy::Sync), Appender::Log(Policy::Frequency(8)), Appender::Log(Policy::Group(8))];

    #[test]
    fn a_row_for_everybody_in_every_case() {
        let who: Vec<_> = [Appender::Bare].into_iter().chain(OURS).chain(Appender::OTHERS).collect();
        let rows = tiny(&who).measure(&()).unwrap();
        assert_eq!(rows.len(), 4 * who.len());
        for row in &rows {
            assert!(["bytes", "policy", "window"].iter().all(|name| row.params.contains_key(*name)), "{row:?}");
            let there = row.engine != "pmemlog" || cfg!(feature = "peers");
            assert_eq!((row.missing.is_none(), row.ops > 0, row.p50_ns.is_some()), (there, there, there), "{row:?}");
            assert_eq!(row.of_limit.is_some(), there, "{row:?}");
        }
        let windows: Vec<_> = rows.iter().filter(|row| row.engine == "log").map(|row| &row.params["window"]).collect();
        assert_eq!(windows[..3], [0, 8, 8]);
        assert_eq!(windows[6..9], [0, 16, 8]);
    }

    #[test]
    fn barriers_are_counted() {
        let rows =
            tiny(&[Appender::Bare, Appender::Flex, Appender::Log(Policy::Sync), Appender::Log(Policy::Frequency(8))])
                .measure(&())
                .unwrap();
        for row in rows.iter().filter(|row| row.threads == 1) {
            let barriers = row.barriers_per_op.unwrap();
            let (least, most) = match (row.engine.as_str(), row.params["policy"].as_str()) {
                ("bare", _) => (1.0, 1.0),
                ("flex", _) => (3.0, 3.0),
                (_, Some("sync")) => (1.0, 1.05), // and what makes room, once in a lap
                _ => (0.1, 0.2),
            };
            assert!((least..=most).contains(&barriers), "{row:?}");
        }
    }

    #[test]
    fn tenants_have_logs_of_their_own() {
        let rows =
            LogAppend { tenants: true, threads: vec![3], ..tiny(&[OURS[0], Appender::Flex]) }.measure(&()).unwrap();
        assert_eq!(rows.len(), 4);
        assert!(rows.iter().all(|row| row.ops > 0 && row.barriers_per_op >= Some(1.0)), "{rows:?}");
    }

    #[test]
    fn laps_fit_and_add_up() {
        let mut laps = Laps::new(10, 3);
        let (mut cleaned, mut parts) = (0, Vec::new());
        for each in [2, 2, 7] {
            laps.cut(
                each,
                || {
                    cleaned += 1;
                    Ok(())
                },
                |now| {
                    parts.push(now);
                    Ok(Duration::ZERO)
                },
            )
            .unwrap();
        }
        assert_eq!((parts, cleaned), (vec![2, 1, 1, 2, 3, 2], 3));
    }

    #[test]
    fn impossible_parameters_are_refused() {
        for bytes in [0, RECORD_BYTES_MAX + 1] {
            let what = LogAppend { bytes: vec![bytes], ..tiny(&[Appender::Bare]) };
            assert!(matches!(what.measure(&()), Err(Error::Parameter(_))));
        }
        let crowded = LogAppend { bytes: vec![RECORD_BYTES_MAX], threads: vec![1, 12], ..tiny(&[Appender::Bare]) };
        let error = crowded.measure(&()).unwrap_err().to_string();
        assert!(error.contains("by 12 threads"), "{error}");
    }
}
