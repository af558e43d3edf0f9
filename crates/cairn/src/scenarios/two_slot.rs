//! The two-slot cell: whatever the moment, the last acknowledged value or a newer one is read, never a mixture.

use std::sync::Arc;

use crash::{Ack, Error, History, Rng, Scenario, Sim, Violation};
use pmem::{Pool, Result, TwoSlot, sync::Mutex};

use super::{POOL_BYTES, create, open, refused};

/// All words alike, so that a torn value shows.
type Value = [u64; 6];

/// A cell whose slots are one line each: few enough words to explore completely.
pub struct TwoSlotUpdates;

/// How the value is replaced.
#[derive(Clone, Copy, Debug)]
pub enum Update {
    /// Into the older slot.
    Plain,
    /// Into both.
    Mirrored,
    /// Flushed only, then drained by the pool.
    Staged,
}

impl Scenario for TwoSlotUpdates {
    type Op = (Update, u64);
    type Effect = u64;
    type State = u64;
    type Live = (Pool, Mutex<TwoSlot<Value>>);

    fn name(&self) -> &str {
        "two-slot"
    }

    fn capacity(&self) -> u64 {
        POOL_BYTES
    }

    fn setup(&self, sim: &Arc<Sim>) -> Result<(), Error> {
        let pool = create(sim)?;
        let area = pool.add_region("cell", TwoSlot::<Value>::SIZE)?.into_area()?;
        drop(TwoSlot::<Value>::create(area, &[0; 6])?);
        Ok(pool.close()?)
    }

    fn start(&self, sim: &Arc<Sim>) -> Result<Self::Live, Error> {
        let pool = open(sim)?;
        let (cell, _) = TwoSlot::open(pool.region("cell")?.into_area()?)?;
        Ok((pool, Mutex::new(cell)))
    }

    fn ops(&self, rng: &mut Rng) -> Vec<(usize, Self::Op)> {
        let kinds = [Update::Plain, Update::Mirrored, Update::Staged];
        (1..=6).map(|value| (0, (kinds[rng.index(3)], value))).collect()
    }

    fn step(&self, (pool, cell): &Self::Live, _thread: usize, op: &Self::Op, ack: &Ack<u64>) -> Result<(), Error> {
        let (update, value) = *op;
        let mut cell = cell.lock();
        let ticket = ack.begin(value);
        match update {
            Update::Plain => cell.update(&[value; 6])?,
            Update::Mirrored => cell.update_mirrored(&[value; 6])?,
            Update::Staged => {
                let _moment = cell.stage(&[value; 6])?;
                let _persisted = pool.drain()?;
            }
        }
        ack.commit(ticket);
        Ok(())
    }

    fn finish(&self, (pool, cell): Self::Live) -> Result<(), Error> {
        drop(cell);
        Ok(pool.close()?)
    }

    fn check(&self, sim: &Arc<Sim>, history: &History<u64>) -> Result<u64, Violation> {
        let pool = open(sim).map_err(refused)?;
        let area = pool.region("cell").and_then(pmem::Region::into_area).map_err(refused)?;
        let (cell, _) = TwoSlot::<Value>::open(area).map_err(refused)?;
        let value = cell.get();
        if value != [value[0]; 6] {
            return Err(Violation::new(format!("torn: {value:?}")));
        }
        let last = history.acknowledged.last().copied().unwrap_or(0);
        if value[0] != last && !history.in_doubt.contains(&value[0]) {
            return Err(Violation::new(format!("{} is read, {last} was acknowledged", value[0])));
        }
        Ok(value[0])
    }
}
