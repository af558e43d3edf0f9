//! `rocksdb-wal`: puts of RocksDB, each durable, with its own write-ahead log or with ours (Arcadia §5.6), on this machine or with a backup, and everything else the same.

use std::path::PathBuf;

use crate::contest::folder;
use crate::{Error, Plan, Result, Row, Watch};

/// The experiment's name in rows and on the command line.
pub const EXPERIMENT: &str = "rocksdb-wal";

/// Whose log, as rows call it; the first two are RocksDB's own, the first is what the others are compared with; the last has a copy in another process, too.
pub const LOGS: [&str; 4] = ["own", "recycled", "cairn", "cairn+backup"];
/// Longest value.
const VALUE_BYTES_MAX: usize = 1 << 20;

/// In which order keys are put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Each thread's keys ascend.
    Sequential,
    /// Any of the keys.
    Random,
}

impl Order {
    /// As rows and the command line have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Random => "random",
        }
    }
}

/// What to measure: all combinations.
#[derive(Clone, Debug)]
pub struct RocksdbWal {
    /// In which order keys are put.
    pub orders: Vec<Order>,
    /// Bytes of a value; keys have 16.
    pub value_bytes: Vec<usize>,
    /// Numbers of threads, one after the other.
    pub threads: Vec<usize>,
    /// Bytes of a Cairn log.
    pub log_bytes: u64,
    /// Three times so many bytes go through each log before anything is measured: a log that uses space again has used it.
    pub warm_bytes: usize,
    /// Databases go into a temporary folder in there.
    pub dir: PathBuf,
    /// How much to measure.
    pub plan: Plan,
    /// What rows begin as.
    pub row: Row,
}

impl RocksdbWal {
    /// Puts of 128 bytes and 1 KiB by one thread and four, in memory.
    #[must_use]
    pub fn here(plan: Plan) -> Self {
        Self {
            orders: vec![Order::Sequential, Order::Random],
            value_bytes: vec![128, 1024],
            threads: vec![1, 4],
            log_bytes: 512 << 20,
            warm_bytes: 64 << 20,
            dir: crate::contest::memory(),
            plan,
            row: Row::new(EXPERIMENT, ""),
        }
    }

    /// Measures.
    ///
    /// # Errors
    /// Those of the databases.
    pub fn measure(&self, watch: &dyn Watch) -> Result<Vec<Row>> {
        if let Some(bytes) = self.value_bytes.iter().find(|bytes| **bytes > VALUE_BYTES_MAX) {
            return Err(Error::Parameter(format!("values of {bytes} bytes: up to {VALUE_BYTES_MAX}")));
        }
        let cases = self.orders.len() * self.value_bytes.len() * self.threads.len();
        watch.begin(&self.row.experiment, (cases * self.plan.rounds()) as u64);
        let folder = folder(&self.dir)?;
        let mut rows = Vec::new();
        for threads in self.threads.iter().copied() {
            for bytes in self.value_bytes.iter().copied() {
                for order in self.orders.iter().copied() {
                    let row = |log: &str| {
                        let row = Row { engine: "rocksdb".into(), threads, ..self.row.clone() };
                        row.param("log", log).param("order", order.name()).param("value_bytes", bytes)
                    };
                    let case = folder.path().join(format!("{threads}-{bytes}-{}", order.name()));
                    rows.extend(self.compare(&case, threads, bytes, order, &row, watch)?);
                }
            }
        }
        Ok(rows)
    }

    #[cfg(not(feature = "peers"))]
    #[expect(clippy::unnecessary_wraps, reason = "as where there is a RocksDB")]
    fn compare(
        &self,
        _: &std::path::Path,
        _: usize,
        _: usize,
        _: Order,
        row: &dyn Fn(&str) -> Row,
        _: &dyn Watch,
    ) -> Result<Vec<Row>> {
        Ok(LOGS.map(|log| row(log).missing(crate::engines::NOT_COMPILED)).into())
    }
}

#[cfg(feature = "peers")]
mod there {
    use std::path::Path;

    use peers::{Wal, WalRoom};
    use pmem::Stats;

    use super::{LOGS, Order, RocksdbWal};
    use crate::contest::share;
    use crate::crew::{Worker, with_crew};
    use crate::latency::Sampler;
    use crate::replicas::{Backups, Reach};
    use crate::workload::Values;
    use crate::{Batch, Result, Row, Side, Watch, run_watched};

    const SEED: u64 = 1;
    /// Keys that random puts choose from.
    const KEYS: u64 = 1 << 20;

    fn failed(path: &Path, source: std::io::Error) -> crate::Error {
        crate::Error::Io { op: "make a directory", path: path.to_owned(), source }
    }

    impl RocksdbWal {
        /// On databases of their own, which end with this.
        pub(super) fn compare(
            &self,
            dir: &Path,
            threads: usize,
            bytes: usize,
            order: Order,
            row: &dyn Fn(&str) -> Row,
            watch: &dyn Watch,
        ) -> Result<Vec<Row>> {
            let values = Values::new(bytes, SEED);
            let room = WalRoom { log_bytes: self.log_bytes, warm_bytes: self.warm_bytes };
            let logs = [Some(Wal::Own), Some(Wal::Recycled), Some(Wal::Cairn), None];
            std::fs::create_dir_all(dir).map_err(|source| failed(dir, source))?;
            let backups = Backups::start(dir, "wal", 1, Reach::default())?;
            let open = |(wal, name): (Option<Wal>, &str)| {
                let dir = dir.join(name);
                std::fs::create_dir_all(&dir).map_err(|source| failed(&dir, source))?;
                let (addresses, secret) = backups.named();
                Ok(match wal {
                    Some(wal) => peers::RocksdbWal::open(&dir, wal, room)?,
                    None => peers::RocksdbWal::with_copies(&dir, &addresses, secret, room)?,
                })
            };
            let databases = logs.into_iter().zip(LOGS).map(open).collect::<Result<Vec<_>>>()?;
            with_crew(threads, |crew| {
                let mut sides = Vec::new();
                for (database, name) in databases.iter().zip(LOGS) {
                    let worker = |thread: usize| Putting {
                        database,
                        values: &values,
                        sampler: Sampler::new(SEED + thread as u64),
                        order,
                        thread: thread as u64,
                        number: 0,
                        todo: 0,
                    };
                    let mut workers: Vec<_> = (0..threads).map(worker).collect();
                    let side = Side::new(row(name), move |batch| {
                        let share = share(batch, workers.len());
                        workers.iter_mut().for_each(|worker| worker.todo = share);
                        let before = (database.costs(), peers::syncs());
                        let time = crew.run(&mut workers)?;
                        let (counts, syncs) = match (before.0, database.costs()) {
                            (Some(before), Some(after)) => {
                                let (drains, syncs) = (after.barriers - before.barriers, after.syncs - before.syncs);
                                (Some(Stats { drains, syncs, ..Stats::default() }), Some(syncs))
                            }
                            _ => (None, peers::syncs().zip(before.1).map(|(after, before)| after - before)),
                        };
                        let samples = workers.iter_mut().flat_map(|worker| worker.sampler.take()).collect();
                        let ops = Some(share * workers.len() as u64);
                        Ok(Batch { time, ops, samples, counts, syncs, ..Batch::default() })
                    });
                    sides.push(side.op_bytes(bytes as u64));
                }
                run_watched(&self.plan.by(threads), sides, Some(0), watch)
            })
        }
    }

    /// One thread.
    struct Putting<'e> {
        database: &'e peers::RocksdbWal,
        values: &'e Values,
        sampler: Sampler,
        order: Order,
        thread: u64,
        number: u64,
        todo: u64,
    }

    impl Worker for Putting<'_> {
        fn work(&mut self) -> Result<()> {
            let Self { database, values, sampler, order, thread, number, todo } = self;
            let bytes = values.longest() as u32;
            for _ in 0..*todo {
                let mut key = [0; 16];
                let position = match order {
                    Order::Sequential => *number,
                    // Odd, so that all keys come, in an order that looks like none.
                    Order::Random => number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(20) % KEYS,
                };
                key[..8].copy_from_slice(&thread.to_be_bytes());
                key[8..].copy_from_slice(&position.to_be_bytes());
                let value = values.get(*number, bytes);
                sampler.op(|| Ok(database.put(&key, value)?))?;
                *number += 1;
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_row_for_each_log_in_every_case() {
        let plan = Plan { batch_time: Duration::from_micros(200), ..Plan::quick() };
        let what = RocksdbWal {
            value_bytes: vec![100],
            threads: vec![1, 2],
            log_bytes: 16 << 20,
            warm_bytes: 1 << 20,
            ..RocksdbWal::here(plan)
        };
        let rows = what.measure(&()).unwrap();
        assert_eq!(rows.len(), 2 * 2 * LOGS.len());
        let there = cfg!(feature = "peers");
        for row in &rows {
            assert_eq!((row.missing.is_none(), row.ops > 0, row.p50_ns.is_some()), (there, there, there), "{row:?}");
            if there && row.threads == 1 {
                let durable = if row.params["log"].as_str().is_some_and(|log| log.starts_with("cairn")) {
                    row.barriers_per_op
                } else {
                    row.syncs_per_op
                };
                assert!(durable >= Some(1.0), "{row:?}");
            }
        }
    }
}
