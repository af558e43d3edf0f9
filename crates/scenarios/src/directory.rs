//! The pool header: acknowledged regions are there, in their order, the pool opens after any crash, and if it says that it was closed
//! cleanly then everything that was flushed before is there, drained or not.

use std::sync::{Arc, Mutex};

use crash::{Ack, Error, FaultKind, History, Rng, Scenario, Sim, Violation};
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
    /// Store and flush a word, and leave it to the close to drain it.
    Note,
}

/// The open pool.
pub struct Live {
    sim: Arc<Sim>,
    state: Mutex<(Option<Pool>, u64)>,
}

/// What was promised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// Region n is there.
    Region(u64),
    /// If the pool says it was closed cleanly, then after this note.
    Note(u64),
}

fn name(n: u64) -> String {
    format!("region {n}")
}

impl Scenario for Directory {
    type Op = Op;
    type Effect = Effect;
    type State = Vec<String>;
    type Live = Live;

    fn name(&self) -> &str {
        "header"
    }

    fn capacity(&self) -> u64 {
        64 << 10
    }

    fn setup(&self, sim: &Arc<Sim>) -> Result<(), Error> {
        let pool = Options::new().size(64 << 10).layout("test").create_on(sim.clone())?;
        pool.add_region("notes", 4096)?;
        Ok(())
    }

    fn start(&self, sim: &Arc<Sim>) -> Result<Live, Error> {
        let pool = Options::new().open_on(sim.clone())?;
        Ok(Live { sim: sim.clone(), state: Mutex::new((Some(pool), 0)) })
    }

    fn ops(&self, rng: &mut Rng) -> Vec<(usize, Op)> {
        let kinds = [Op::Add, Op::Add, Op::Restart, Op::Close, Op::Note, Op::Note];
        (0..9).map(|_| (0, kinds[rng.index(kinds.len())])).collect()
    }

    fn step(&self, live: &Live, _: usize, op: &Op, ack: &Ack<Effect>) -> Result<(), Error> {
        let mut state = live.state.lock().map_err(|e| e.to_string())?;
        let Some(pool) = state.0.take() else { return Err("closed".into()) };
        let pool = match op {
            Op::Add => {
                state.1 += 1;
                let ticket = ack.begin(Effect::Region(state.1));
                pool.add_region(&name(state.1), 4096)?;
                ack.commit(ticket);
                pool
            }
            Op::Note => {
                state.1 += 1;
                let mut notes = pool.region("notes")?.into_area()?;
                let ticket = ack.begin(Effect::Note(state.1));
                notes.put(0, &[state.1, !state.1])?; // proves itself against flips
                notes.flush(0, 16)?;
                ack.commit(ticket);
                drop(notes);
                pool
            }
            Op::Restart => {
                drop(pool);
                Options::new().open_on(live.sim.clone())?
            }
            Op::Close => {
                // After a restart, too, their owners have been here.
                for region in pool.info().regions {
                    drop(pool.region(&region.name)?);
                }
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

    fn check(&self, sim: &Arc<Sim>, history: &History<Effect>) -> Result<Vec<String>, Violation> {
        let pool = Options::new().layout("test").open_on(sim.clone()).map_err(Violation::detected)?;
        let info = pool.info();
        let found: Vec<String> = info.regions.iter().skip(1).map(|r| r.name.clone()).collect();
        let regions = |effects: &[Effect]| -> Vec<String> {
            effects.iter().filter_map(|e| if let Effect::Region(n) = e { Some(name(*n)) } else { None }).collect()
        };
        let acknowledged = regions(&history.acknowledged);
        let expected = [acknowledged.clone(), regions(&history.in_doubt)].concat();
        let enough = found.len() >= acknowledged.len() && found.len() <= expected.len();
        if !enough || found[..] != expected[..found.len()] {
            return Err(Violation::new(format!("regions {found:?}, expected {expected:?}")));
        }
        if pool.was_clean() {
            let note = |effects: &[Effect]| {
                effects.iter().rev().find_map(|e| if let Effect::Note(n) = e { Some(*n) } else { None })
            };
            let notes = pool.region("notes").and_then(|r| r.into_area()).map_err(Violation::detected)?;
            let [stored, proof]: [u64; 2] = *notes.get(0).map_err(Violation::detected)?;
            if proof != !stored && stored | proof != 0 {
                return Err(Violation::detected(format!("note {stored:#x} with proof {proof:#x}")));
            }
            let is_older = note(&history.acknowledged).is_some_and(|n| n > stored);
            if is_older && matches!(sim.planted(), Some(FaultKind::Stuck | FaultKind::Page)) {
                let was = |e: &Effect| *e == Effect::Note(stored);
                return Err(if stored == 0 || history.acknowledged.iter().any(was) {
                    Violation::detected("a region that only its owner knows went back in time")
                } else {
                    Violation::new(format!("note {stored} was never stored"))
                });
            }
            if is_older {
                return Err(Violation::new(format!("closed cleanly with note {stored}, history {history:?}")));
            }
        }
        if info.generation < 2 {
            return Err(Violation::new(format!("generation {}", info.generation)));
        }
        Ok(found)
    }
}
