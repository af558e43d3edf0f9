//! Several threads: real ones, one running at a time, in an order that follows from the seed.

use std::sync::Arc;

use crash::{Ack, Config, Error, History, Rng, Scenario, Sim, Violation, as_thread, run};
use pmem::sync::Mutex;

use crate::tiny::{Bug, append, config, found, log_check, read_persistent, tiny};

#[test]
fn a_drain_covers_only_what_its_own_thread_flushed() {
    let other = |drains: usize| {
        tiny(
            [1],
            move |sim, value, ack| {
                let ticket = ack.begin(value);
                sim.store(0, value)?;
                as_thread(0, || sim.flush(0, 8));
                as_thread(drains, || sim.drain())?;
                ack.commit(ticket);
                Ok(())
            },
            |sim, history| {
                let word = read_persistent(sim, 0)?;
                if word == 0 && !history.acknowledged.is_empty() { Err(Violation::new("lost")) } else { Ok(vec![word]) }
            },
        )
    };
    run(other(0), &config()).expect_clean();
    let report = run(other(1), &config());
    assert!(found(&report, "lost").trail[0].lost[0].flushed, "{report}");
}

/// Two locks, taken in one order or in two.
struct Locks {
    same_order: bool,
}

struct Two {
    sim: Arc<Sim>,
    locks: [Mutex<()>; 2],
}

impl Scenario for Locks {
    type Op = usize;
    type Effect = ();
    type State = ();
    type Live = Two;

    fn name(&self) -> &str {
        "locks"
    }

    fn capacity(&self) -> u64 {
        4096
    }

    fn setup(&self, sim: &Arc<Sim>) -> Result<(), Error> {
        Ok(sim.set_len(4096)?)
    }

    fn start(&self, sim: &Arc<Sim>) -> Result<Two, Error> {
        Ok(Two { sim: Arc::clone(sim), locks: [Mutex::new(()), Mutex::new(())] })
    }

    fn ops(&self, _rng: &mut Rng) -> Vec<(usize, usize)> {
        (0..8).map(|i| (i % 2, if self.same_order { 0 } else { i % 2 })).collect()
    }

    fn step(&self, live: &Two, _thread: usize, first: &usize, _ack: &Ack<()>) -> Result<(), Error> {
        let _one = live.locks[*first].lock();
        live.sim.flush(0, 8);
        let _two = live.locks[1 - *first].lock();
        Ok(live.sim.drain()?)
    }

    fn finish(&self, _live: Two) -> Result<(), Error> {
        Ok(())
    }

    fn check(&self, _sim: &Arc<Sim>, _history: &History<()>) -> Result<(), Violation> {
        Ok(())
    }
}

#[test]
fn a_deadlock_is_found_and_ends() {
    let report = run(Locks { same_order: false }, &Config::seeded(1).schedules(20));
    found(&report, "deadlock");
    run(Locks { same_order: true }, &Config::seeded(1).schedules(20)).expect_clean();
}

/// Two threads append to one log, with a lock around it or (the bug) none.
struct Shared {
    locked: bool,
}

struct Log {
    sim: Arc<Sim>,
    lock: Mutex<()>,
}

impl Scenario for Shared {
    type Op = u64;
    type Effect = u64;
    type State = Vec<u64>;
    type Live = Log;

    fn name(&self) -> &str {
        "shared log"
    }

    fn capacity(&self) -> u64 {
        4096
    }

    fn setup(&self, sim: &Arc<Sim>) -> Result<(), Error> {
        Ok(sim.set_len(4096)?)
    }

    fn start(&self, sim: &Arc<Sim>) -> Result<Log, Error> {
        Ok(Log { sim: Arc::clone(sim), lock: Mutex::new(()) })
    }

    fn ops(&self, rng: &mut Rng) -> Vec<(usize, u64)> {
        (0..6).map(|i| (i % 2, rng.below(1000) + 1)).collect()
    }

    fn step(&self, live: &Log, _thread: usize, value: &u64, ack: &Ack<u64>) -> Result<(), Error> {
        let guard = self.locked.then(|| live.lock.lock());
        let ticket = ack.begin(*value);
        append(&live.sim, *value, Bug::None)?;
        ack.commit(ticket);
        drop(guard);
        Ok(())
    }

    fn finish(&self, _live: Log) -> Result<(), Error> {
        Ok(())
    }

    fn check(&self, sim: &Arc<Sim>, history: &History<u64>) -> Result<Vec<u64>, Violation> {
        log_check(sim, history)
    }
}

#[test]
fn a_race_is_found_and_one_seed_shows_it_again() {
    run(Shared { locked: true }, &Config::seeded(9).schedules(10)).expect_clean();
    let once = |seed| {
        let mut report = run(Shared { locked: false }, &Config::seeded(seed).schedules(10));
        assert!(report.violation().is_some(), "{report}");
        report.time_ms = 0;
        report.to_json().unwrap()
    };
    let [one, other] = [9, 9].map(once);
    assert_eq!(one, other);
}

/// A lock that the scheduler cannot see, held across a drain.
struct Hidden;

impl Scenario for Hidden {
    type Op = ();
    type Effect = ();
    type State = ();
    type Live = (Arc<Sim>, std::sync::Mutex<()>);

    fn name(&self) -> &str {
        "hidden lock"
    }

    fn capacity(&self) -> u64 {
        4096
    }

    fn setup(&self, sim: &Arc<Sim>) -> Result<(), Error> {
        Ok(sim.set_len(4096)?)
    }

    fn start(&self, sim: &Arc<Sim>) -> Result<Self::Live, Error> {
        Ok((Arc::clone(sim), std::sync::Mutex::new(())))
    }

    fn ops(&self, _rng: &mut Rng) -> Vec<(usize, ())> {
        (0..20).map(|i| (i % 2, ())).collect()
    }

    fn step(&self, (sim, lock): &Self::Live, _thread: usize, (): &(), _ack: &Ack<()>) -> Result<(), Error> {
        let _guard = lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Ok(sim.drain()?)
    }

    fn finish(&self, _live: Self::Live) -> Result<(), Error> {
        Ok(())
    }

    fn check(&self, _sim: &Arc<Sim>, _history: &History<()>) -> Result<(), Violation> {
        Ok(())
    }
}

#[test]
fn a_lock_that_the_scheduler_cannot_see_is_named_as_the_cause() {
    let report = run(Hidden, &Config::seeded(1).shrink(false).silence_ms(100));
    found(&report, "something the scheduler cannot see");
}
