//! The two-slot cell: the value is the last acknowledged one or, while an update is under way, that one.

use std::sync::{Arc, Mutex};

use crash::{Ack, Error, History, Rng, Scenario, Sim, Violation, Witness};
use pmem::{Options, Pool, TwoSlot};

/// The number of the update, and a word that proves it. Small, so that every way to tear two updates on top of each other is explored.
type Value = [u64; 2];

/// Updates of one cell, plain, staged or mirrored, with a restart between some.
pub struct Cell;

/// One operation.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// One barrier.
    Update,
    /// Flush now; acknowledged by the drain that follows.
    Stage,
    /// Both copies.
    Mirror,
    /// Drop everything and open again, as after the end of the process.
    Restart,
}

/// The open pool and cell, with the number of the last value.
pub struct Live {
    sim: Arc<Sim>,
    state: Mutex<State>,
}

type State = (Option<(Pool, TwoSlot<Value>)>, u64);

/// Updates made by the check itself, after it has looked, count up in the low byte.
fn value(n: u64, probe: u64) -> Value {
    [n << 8 | probe & 0xff, !n]
}

fn open(sim: &Arc<Sim>) -> pmem::Result<(Pool, TwoSlot<Value>)> {
    let pool = Options::new().open_on(sim.clone())?;
    let (cell, _) = TwoSlot::open(pool.region("cell")?.into_area()?)?;
    Ok((pool, cell))
}

impl Scenario for Cell {
    type Op = Op;
    type Effect = u64;
    type State = u64;
    type Live = Live;

    fn name(&self) -> &str {
        "two-slot"
    }

    fn capacity(&self) -> u64 {
        16 << 10
    }

    fn setup(&self, sim: &Arc<Sim>) -> Result<(), Error> {
        let pool = Options::new().size(16 << 10).create_on(sim.clone())?;
        TwoSlot::create(pool.add_region("cell", TwoSlot::<Value>::SIZE)?.into_area()?, &value(0, 0))?;
        Ok(())
    }

    fn start(&self, sim: &Arc<Sim>) -> Result<Live, Error> {
        Ok(Live { sim: sim.clone(), state: Mutex::new((Some(open(sim)?), 0)) })
    }

    fn ops(&self, rng: &mut Rng) -> Vec<(usize, Op)> {
        let kinds = [Op::Update, Op::Stage, Op::Stage, Op::Mirror, Op::Restart];
        (0..8).map(|_| (0, kinds[rng.index(kinds.len())])).collect()
    }

    fn step(&self, live: &Live, _thread: usize, op: &Op, ack: &Ack<u64>) -> Result<(), Error> {
        let mut state = live.state.lock().map_err(|e| e.to_string())?;
        let n = state.1 + 1;
        if let Op::Restart = op {
            state.0 = None;
            state.0 = Some(open(&live.sim)?);
            return Ok(());
        }
        state.1 = n;
        let Some((pool, cell)) = &mut state.0 else { return Err("closed".into()) };
        let ticket = ack.begin(n);
        match op {
            Op::Update => cell.update(&value(n, 0))?,
            Op::Mirror => cell.update_mirrored(&value(n, 0))?,
            Op::Stage | Op::Restart => {
                // Twice, as an engine does that makes checkpoints faster than it forces: both are covered by the drain behind.
                cell.stage(&value(n, 0))?;
                cell.stage(&value(n, 0))?;
                pool.drain()?;
            }
        }
        ack.commit(ticket);
        Ok(())
    }

    fn finish(&self, live: Live) -> Result<(), Error> {
        let state = live.state.into_inner().map_err(|e| e.to_string())?;
        if let (Some((pool, cell)), _) = state {
            drop(cell);
            pool.close()?;
        }
        Ok(())
    }

    fn check(&self, sim: &Arc<Sim>, history: &History<u64>) -> Result<u64, Violation> {
        let (_pool, mut cell) = open(sim).map_err(Violation::detected)?;
        let found = cell.get();
        let (n, probe) = (found[0] >> 8, found[0] & 0xff);
        if found != value(n, probe) {
            return Err(Violation::new(format!("torn value {found:x?}")));
        }
        let last = history.acknowledged.last().copied().unwrap_or(0);
        if n != last && !history.in_doubt.contains(&n) {
            return Err(Violation::new(format!("value {n}, acknowledged {last}, in doubt {:?}", history.in_doubt)));
        }
        let _witness = Witness::of(n)?;
        cell.update(&value(n, probe + 1)).map_err(Violation::detected)?;
        Ok(n)
    }
}
