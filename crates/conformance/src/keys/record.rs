//! Random transactions of several threads, and the [`History`] of what they did.
//!
//! A value holds its own [`Version`], which names its writer, and bytes that follow from it. Each key has a *marker*, a key that every delete of it
//! writes as well: the marker's version tells which delete a reader of both saw. Inserts only read the marker, and most
//! readers leave it alone, so that it does not stand between a store and its phantoms.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use tx::{Error, Isolation, Kv, KvTx, Result};

use super::Subject;
use super::history::{History, Log, Outcome};
use super::script::is_conflict;
use super::trial::{Trial, encode, name};
use crate::rng::Rng;
use crate::shuttle::together;

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many threads, at most 255.
    pub threads: u8,
    /// Transactions that shall commit, of all threads together.
    pub transactions: usize,
    /// Keys, without their markers.
    pub keys: u16,
    /// Levels to draw from: asked for, and kept.
    pub levels: Vec<(Isolation, Isolation)>,
    /// A transaction that begins after a commit must see it, at every level.
    pub real_time: bool,
    /// Runs under a scheduler.
    pub scheduled: bool,
    /// The same seed gives each thread the same wishes.
    pub seed: u64,
}

/// How it went.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Transactions that were begun.
    pub attempts: usize,
    /// That committed.
    pub committed: usize,
    /// That met a conflict.
    pub conflicts: usize,
}

/// Runs the plan on an empty store.
///
/// # Panics
/// If the store returns an error that is no conflict, before a commit.
pub fn record<S: Subject>(store: &S::Store, plan: &Plan) -> (History, Tally) {
    let moments = &AtomicU64::new(1);
    let worker = |thread: u8| Worker::<S> {
        store,
        plan,
        moments,
        log: Log::new(thread),
        rng: Rng::seeded(plan.seed << 8 | u64::from(thread)),
        tally: Tally::default(),
    };
    let mut first = worker(0);
    first.set_up();
    let run = |thread: u8| move || worker(thread).run();
    let results: Vec<(Log, Tally)> = if plan.scheduled {
        together((1..=plan.threads).map(|thread| Box::new(run(thread)) as Box<dyn FnOnce() -> _ + Send>).collect())
    } else {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (1..=plan.threads).map(|thread| scope.spawn(run(thread))).collect();
            threads.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        })
    };
    let (mut logs, mut total) = (vec![first.log], Tally::default());
    for (log, tally) in results {
        logs.push(log);
        total.attempts += tally.attempts;
        total.committed += tally.committed;
        total.conflicts += tally.conflicts;
    }
    (History::new(logs, plan.real_time), total)
}

/// Lets another thread go on inside of a transaction: few processors make no conflicts otherwise.
fn pause() {
    if !pmem::sync::wait_point() {
        std::thread::yield_now();
    }
}

/// Lets others go on for a while.
fn linger() {
    if !pmem::sync::wait_point() {
        std::thread::sleep(std::time::Duration::from_micros(20));
    }
}

struct Worker<'a, S: Subject> {
    store: &'a S::Store,
    plan: &'a Plan,
    moments: &'a AtomicU64,
    log: Log,
    rng: Rng,
    tally: Tally,
}

impl<S: Subject> Worker<'_, S> {
    fn moment(&self) -> u64 {
        self.moments.fetch_add(1, SeqCst)
    }

    /// Every key is deleted once, every other one is there.
    fn set_up(&mut self) {
        let keys = self.plan.keys;
        for key in 0..keys {
            let level = Isolation::Strict;
            self.log.begin(level, self.moment());
            let mut tx = self.store.begin(level).expect("a transaction");
            let tombstone = self.log.write(key, None);
            let marker = self.log.write(keys + key, None);
            tx.put(&name(keys + key, keys), &encode(marker)).expect("a put");
            if key % 2 == 0 {
                let version = self.log.write(key, Some(tombstone));
                tx.put(&name(key, keys), &encode(version)).expect("a put");
            }
            let place = S::commit(tx).expect("a commit");
            self.log.end(Outcome::Committed, self.moment(), place);
        }
    }

    fn run(mut self) -> (Log, Tally) {
        let wanted = self.plan.transactions.div_ceil(usize::from(self.plan.threads));
        while self.tally.committed < wanted && self.tally.attempts < 100 * wanted + 1000 {
            let level = self.plan.levels[self.rng.below(self.plan.levels.len() as u64) as usize];
            if self.rng.below(8) == 0 && !<S as Subject>::TELLS_ORDER {
                self.transact(level);
            } else {
                self.attempt(level);
            }
            pause();
        }
        (self.log, self.tally)
    }

    fn end(&mut self, outcome: Outcome, place: Option<u64>) {
        let moment = self.moment();
        self.log.end(outcome, moment, place);
        self.tally.committed += usize::from(outcome == Outcome::Committed);
    }

    /// Once, by hand.
    fn attempt(&mut self, (level, kept): (Isolation, Isolation)) {
        let begin = self.moment();
        self.log.begin(kept, begin);
        self.tally.attempts += 1;
        let mut tx = match self.store.begin(level) {
            Ok(tx) => tx,
            Err(e) => return self.failed(&e, false),
        };
        if let Err(e) = self.steps(&mut tx) {
            drop(tx);
            return self.failed(&e, false);
        }
        match self.rng.below(40) {
            0 => tx.abort().expect("an abort"),
            1 => drop(tx),
            _ => {
                return match S::commit(tx) {
                    Ok(place) => self.end(Outcome::Committed, place),
                    Err(e) => self.failed(&e, true),
                };
            }
        }
        self.end(Outcome::Aborted, None);
    }

    /// Until it commits, by the store.
    fn transact(&mut self, (level, kept): (Isolation, Isolation)) {
        let (begin, mut tries, store) = (self.moment(), 0, self.store);
        let result = store.transact(level, |tx| {
            if tries > 0 {
                self.tally.conflicts += 1;
                self.end(Outcome::Aborted, None);
            }
            tries += 1;
            self.tally.attempts += 1;
            self.log.begin(kept, begin);
            self.steps(tx)
        });
        match result {
            Ok(()) => self.end(Outcome::Committed, None),
            Err(Error::GaveUp { .. }) => self.end(Outcome::Aborted, None),
            Err(e) => self.failed(&e, true),
        }
    }

    fn failed(&mut self, e: &Error, at_commit: bool) {
        let conflict = is_conflict(e);
        assert!(conflict || at_commit, "not a conflict: {e}");
        self.tally.conflicts += usize::from(conflict);
        self.end(if conflict { Outcome::Aborted } else { Outcome::Unknown }, None);
    }

    fn steps<X: KvTx>(&mut self, tx: &mut X) -> Result<()> {
        let mut trial = Trial::new(&mut self.log, self.plan.keys);
        let rng = &mut self.rng;
        let only_reads = rng.below(10) < 3;
        for _ in 0..1 + rng.below(4) {
            let key = pick(rng, self.plan.keys);
            match rng.below(10) {
                0 | 1 => trial.look(tx, key, rng.below(2) == 0)?,
                2 | 3 => trial.scan_some(tx, key, rng)?,
                _ if only_reads => trial.look(tx, key, false)?,
                4..7 => {
                    trial.look(tx, key, rng.below(4) > 0)?;
                    trial.put(tx, key)?;
                }
                7 if rng.below(2) == 0 => trial.put(tx, key)?,
                7 => trial.delete(tx, key)?,
                _ => trial.toggle(tx, key)?,
            }
            if rng.below(16) == 0 {
                linger();
            } else if rng.below(4) > 0 {
                pause();
            }
        }
        trial.finish();
        Ok(())
    }
}

/// Half of the wishes are for few keys.
fn pick(rng: &mut Rng, keys: u16) -> u16 {
    if rng.below(2) == 0 {
        rng.below(u64::from(keys.min(5))) as u16 * 7 % keys
    } else {
        rng.below(u64::from(keys)) as u16
    }
}
