//! Transactions that take turns as a script says, each on a thread of its own.
//!
//! Which transaction is refused, and when, is the engine's affair: it may fail a step, fail the commit, or keep a step waiting. Asserted is what
//! came of it, as a [`History`].

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use pmem::PPtr;
use tx::{Engine, Error, Isolation, Result, Transaction, Typed};

use super::support::{begin, ok};
use crate::history::{Event, History, Record};

/// One step of an actor. Numbers name cells.
#[derive(Clone, Copy, Debug)]
pub(super) enum Do {
    Begin,
    Read(usize),
    /// To a value that no other actor writes; the actor reads it back.
    Write(usize),
    Commit,
    Abort,
}

/// Which actor does what, in this order.
pub(super) type Script = [(usize, Do)];

/// How long a step may take before it counts as waiting for another actor, and the script goes on. No verdict depends on it.
pub(super) fn policy(waits: bool) -> Duration {
    if waits { Duration::from_millis(100) } else { Duration::from_secs(60) }
}

/// Runs the script on cells that hold 0, then reads all of them once more.
pub(super) fn play<E: Engine + Sync>(
    engine: &E,
    level: Isolation,
    cells: &[PPtr<u64>],
    script: &Script,
    policy: Duration,
) -> History {
    let actors = script.iter().map(|(actor, _)| actor + 1).max().unwrap_or(0);
    let moments = AtomicU64::new(1);
    let (done, ended) = channel();
    let mut transactions = std::thread::scope(|scope| {
        let mut cues = Vec::new();
        let mut threads = Vec::new();
        for actor in 0..actors {
            let (cue, cued) = channel();
            let stage = Stage { engine, level, cells, moments: &moments };
            let done = done.clone();
            cues.push(cue);
            threads.push(scope.spawn(move || stage.act(actor, &cued, &done)));
        }
        let mut owed = vec![0; actors];
        for &(actor, step) in script {
            // An actor that has panicked is joined below.
            let _ = cues[actor].send(step);
            owed[actor] += 1;
            // An actor that waits has its later steps queued already.
            let limit = if owed[actor] == 1 { policy } else { Duration::ZERO };
            while owed[actor] > 0
                && let Ok(done) = ended.recv_timeout(limit)
            {
                owed[done] -= 1;
            }
        }
        drop(cues);
        threads.into_iter().map(join).collect::<Vec<_>>()
    });
    transactions.push(look(engine, cells, &moments));
    History { transactions }
}

/// Waits for a thread, and goes on with its panic.
pub(super) fn join<R>(thread: std::thread::ScopedJoinHandle<'_, R>) -> R {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Reads all cells.
pub(super) fn look<E: Engine>(engine: &E, cells: &[PPtr<u64>], moments: &AtomicU64) -> Record {
    let start = moments.fetch_add(1, SeqCst);
    let tx = begin(engine);
    let read = |(key, &cell): (usize, &PPtr<u64>)| Event::Read { key: key as u64, value: *ok(tx.read(cell)) };
    let events = cells.iter().enumerate().map(read).collect();
    ok(tx.commit());
    let end = moments.fetch_add(1, SeqCst);
    Record { name: "the last look".into(), begin: start, end, committed: true, events }
}

/// What an actor needs.
struct Stage<'a, E> {
    engine: &'a E,
    level: Isolation,
    cells: &'a [PPtr<u64>],
    moments: &'a AtomicU64,
}

impl<E: Engine> Stage<'_, E> {
    fn act(self, actor: usize, cued: &Receiver<Do>, done: &Sender<usize>) -> Record {
        let mut record =
            Record { name: format!("actor {actor}"), begin: 0, end: 0, committed: false, events: Vec::new() };
        let mut tx: Option<E::Tx<'_>> = None;
        for step in cued {
            let result = match (step, tx.take()) {
                (Do::Begin, _) => {
                    record.begin = self.moments.fetch_add(1, SeqCst);
                    self.engine.begin(self.level).map(Some)
                }
                (Do::Commit, Some(open)) => open.commit().map(|()| {
                    record.committed = true;
                    None
                }),
                (Do::Abort, Some(open)) => open.abort().map(|()| None),
                (Do::Read(_) | Do::Write(_), Some(mut open)) => {
                    self.step(actor, &mut open, step, &mut record.events).map(|()| Some(open))
                }
                (_, None) => Ok(None), // it was refused before
            };
            tx = result.unwrap_or_else(|e| {
                assert!(matches!(e, Error::Conflict { .. }), "{}: {step:?} failed: {e}", record.name);
                None
            });
            if tx.is_none() && record.end == 0 {
                record.end = self.moments.fetch_add(1, SeqCst);
            }
            let _ = done.send(actor);
        }
        record
    }

    fn step(&self, actor: usize, tx: &mut E::Tx<'_>, step: Do, events: &mut Vec<Event>) -> Result<()> {
        match step {
            Do::Read(key) => {
                let value = *tx.read(self.cells[key])?;
                events.push(Event::Read { key: key as u64, value });
            }
            Do::Write(key) => {
                let cell = self.cells[key];
                let new = (actor as u64 + 1) * 1000 + events.len() as u64;
                let old = Some(std::mem::replace(tx.write(cell)?, new));
                events.push(Event::Write { key: key as u64, old, new });
                let value = *tx.read(cell)?;
                events.push(Event::Read { key: key as u64, value });
            }
            Do::Begin | Do::Commit | Do::Abort => {}
        }
        Ok(())
    }
}
