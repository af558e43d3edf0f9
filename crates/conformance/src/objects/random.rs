//! Many threads, few objects: whatever they did must be a history of their level.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use pmem::PPtr;
use tx::{Engine, Error, Isolation, Result, Transaction, Typed};

use super::stage::{join, look};
use super::subject::Subject;
use super::support::numbers;
use crate::check::Check;
use crate::history::{Event, History, Record};
use crate::rng::Rng;

pub(super) fn checks<S: Subject>(group: &'static str) -> Vec<Check<S>> {
    let check = |name, level| {
        let run = move |s: &S| {
            if s.levels().contains(&level) {
                histories(s, level);
            }
        };
        Check::new(group, name, Box::new(run)).rolls_back()
    };
    vec![
        check("snapshot", Isolation::Snapshot),
        check("serializable", Isolation::Serializable),
        check("strict", Isolation::Strict),
    ]
}

const THREADS: u64 = 4;
const TRANSACTIONS: u64 = 60;

fn histories<S: Subject>(s: &S, level: Isolation) {
    let engine = s.fresh();
    for seed in 0..6 {
        let cells = numbers(&engine, 3 + seed as usize);
        let moments = AtomicU64::new(1);
        let mut transactions: Vec<Record> = std::thread::scope(|scope| {
            let threads = (0..THREADS).map(|thread| {
                let worker = Worker {
                    engine: &engine,
                    level,
                    cells: &cells,
                    moments: &moments,
                    thread,
                    rng: Rng::seeded(seed * THREADS + thread),
                    written: 0,
                };
                scope.spawn(move || worker.work())
            });
            threads.collect::<Vec<_>>().into_iter().flat_map(join).collect()
        });
        transactions.push(look(&engine, &cells, &moments));
        let history = History { transactions };
        if let Err(anomaly) = history.check(s.kept(level)) {
            panic!("at {level}, operations drawn from seed {seed}: {anomaly}\n{history:?}");
        }
        let committed = history.transactions.iter().filter(|t| t.committed).count() as u64;
        assert!(committed > THREADS * TRANSACTIONS / 10, "at {level}: only {committed} committed");
    }
}

struct Worker<'a, E> {
    engine: &'a E,
    level: Isolation,
    cells: &'a [PPtr<u64>],
    moments: &'a AtomicU64,
    thread: u64,
    rng: Rng,
    written: u64,
}

impl<E: Engine> Worker<'_, E> {
    fn work(mut self) -> Vec<Record> {
        (0..TRANSACTIONS).map(|number| self.transaction(number)).collect()
    }

    /// Committed or not: a conflict is not run again.
    fn transaction(&mut self, number: u64) -> Record {
        let begin = self.moments.fetch_add(1, SeqCst);
        let mut events = Vec::new();
        let result = self.engine.begin(self.level).and_then(|mut tx| {
            self.steps(&mut tx, &mut events)?;
            tx.commit()
        });
        if let Err(e) = &result {
            assert!(matches!(e, Error::Conflict { .. } | Error::NoSlot { .. }), "not a conflict: {e}");
        }
        let name = format!("{}.{number}", self.thread);
        Record { name, begin, end: self.moments.fetch_add(1, SeqCst), committed: result.is_ok(), events }
    }

    fn steps(&mut self, tx: &mut E::Tx<'_>, events: &mut Vec<Event>) -> Result<()> {
        let reads_only = self.rng.below(3) == 0;
        for _ in 0..1 + self.rng.below(4) {
            let key = self.rng.below(self.cells.len() as u64);
            let cell = self.cells[key as usize];
            if reads_only || self.rng.below(2) == 0 {
                events.push(Event::Read { key, value: *tx.read(cell)? });
            } else {
                self.written += 1;
                let new = (self.thread + 1) << 32 | self.written;
                let old = Some(std::mem::replace(tx.write(cell)?, new));
                events.push(Event::Write { key, old, new });
            }
            if self.rng.below(2) == 0 {
                std::thread::yield_now();
            }
        }
        Ok(())
    }
}
