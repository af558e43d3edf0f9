//! The pool header: acknowledged regions are there, in their order, and the pool opens after any crash.

use std::sync::{Arc, Mutex};

use crash::{Ack, Error, History, Rng, Scenario, Sim, Violation};
use pmem::{Options, Pool};

/// Adds regions and restarts, cleanly or not.
pub struct Directory;

/// One operation.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// A region more.
    Add,
    /// Drop the pool, open it again.
    Restart,
    /// Close the pool, open it again.
    Close,
}

/// The open pool.
pub struct Live {
    sim: Arc<Sim>,
    state: Mutex<(Option<Pool>, u64)>,
}

fn name(n: u64) -> String {
    format!("region {n}")
}

impl Scenario for Directory {
    type Op = Op;
    type Effect = u64;
    type State = Vec<String>;
    type Live = Live;

    fn name(&self) -> &str {
        "header"
    }

    fn capacity(&self) -> u64 {
        64 << 10
    }

    fn setup(&self, sim: &Arc<Sim>) -> Result<(), Error> {
        Options::new().size(64 << 10).layout("test").create_on(sim.clone())?;
        Ok(())
    }

    fn start(&self, sim: &Arc<Sim>) -> Result<Live, Error> {
        let pool = Options::new().open_on(sim.clone())?;
        Ok(Live { sim: sim.clone(), state: Mutex::new((Some(pool), 0)) })
    }

    fn ops(&self, rng: &mut Rng) -> Vec<(usize, Op)> {
        let kinds = [Op::Add, Op::Add, Op::Restart, Op::Close];
        (0..7).map(|_| (0, kinds[rng.index(kinds.len())])).collect()
    }

    fn step(&self, live: &Live, _: usize, op: &Op, ack: &Ack<u64>) -> Result<(), Error> {
        let mut state = live.state.lock().map_err(|e| e.to_string())?;
        let Some(pool) = state.0.take() else { return Err("closed".into()) };
        let pool = match op {
            Op::Add => {
                state.1 += 1;
                let ticket = ack.begin(state.1);
                pool.add_region(&name(state.1), 4096)?;
                ack.commit(ticket);
                pool
            }
            Op::Restart => {
                drop(pool);
                Options::new().open_on(live.sim.clone())?
            }
            Op::Close => {
                pool.close()?;
                let pool = Options::new().open_on(live.sim.clone())?;
                if !pool.was_clean() {
                    return Err("closed, but not clean".into());
                }
                pool
            }
        };
        state.0 = Some(pool);
        Ok(())
    }

    fn finish(&self, live: Live) -> Result<(), Error> {
        match live.state.into_inner().map_err(|e| e.to_string())?.0 {
            Some(pool) => Ok(pool.close()?),
            None => Ok(()),
        }
    }

    fn check(&self, sim: &Arc<Sim>, history: &History<u64>) -> Result<Vec<String>, Violation> {
        let pool = Options::new().layout("test").open_on(sim.clone()).map_err(Violation::detected)?;
        let info = pool.info();
        let found: Vec<String> = info.regions.iter().map(|r| r.name.clone()).collect();
        let numbers = history.acknowledged.iter().chain(&history.in_doubt);
        let expected: Vec<String> = numbers.map(|n| name(*n)).collect();
        let enough = found.len() >= history.acknowledged.len() && found.len() <= expected.len();
        if !enough || found[..] != expected[..found.len()] {
            return Err(Violation::new(format!("regions {found:?}, expected {expected:?}")));
        }
        if info.generation < 2 {
            return Err(Violation::new(format!("generation {}", info.generation)));
        }
        Ok(found)
    }
}
