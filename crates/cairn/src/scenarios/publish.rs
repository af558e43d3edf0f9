//! The oldest protocol: write a record, drain, switch one word to it, drain.

use std::sync::Arc;

use crash::{Ack, Error, History, Rng, Scenario, Sim, Violation};
use pmem::{Area, Pool, Result, sync::Mutex};

use super::{POOL_BYTES, create, open, refused};

/// Records of three lines, valid up to the count in the first word.
pub struct Publish;

const RECORD: u64 = 192;
const RECORDS_MAX: u64 = 8;

/// What a record with this seed holds: no two bytes in a row alike, never zero.
fn record(seed: u8) -> [u8; RECORD as usize] {
    std::array::from_fn(|i| (i as u8).wrapping_mul(7).wrapping_add(seed) | 1)
}

fn read(area: &Area) -> Result<Vec<u8>> {
    let count = *area.get::<u64>(0)?;
    (0..count.min(RECORDS_MAX)).map(|i| Ok(area.bytes(64 + i * RECORD, 1)?[0])).collect()
}

impl Scenario for Publish {
    type Op = u8;
    type Effect = u8;
    type State = Vec<u8>;
    type Live = (Pool, Mutex<Area>);

    fn name(&self) -> &str {
        "publish"
    }

    fn capacity(&self) -> u64 {
        POOL_BYTES
    }

    fn setup(&self, sim: &Arc<Sim>) -> Result<(), Error> {
        let pool = create(sim)?;
        drop(pool.add_region("records", 4096)?);
        Ok(pool.close()?)
    }

    fn start(&self, sim: &Arc<Sim>) -> Result<Self::Live, Error> {
        let pool = open(sim)?;
        let area = pool.region("records")?.into_area()?;
        Ok((pool, Mutex::new(area)))
    }

    fn ops(&self, rng: &mut Rng) -> Vec<(usize, u8)> {
        (0..5).map(|_| (0, rng.below(128) as u8 * 2 + 1)).collect()
    }

    fn step(&self, (_, area): &Self::Live, _thread: usize, op: &u8, ack: &Ack<u8>) -> Result<(), Error> {
        let mut area = area.lock();
        let count = *area.get::<u64>(0)?;
        let at = 64 + count * RECORD;
        let ticket = ack.begin(*op);
        area.put(at, &record(*op))?;
        let _persisted = area.persist(at, RECORD)?;
        let _persisted = area.publish(0, count + 1)?;
        ack.commit(ticket);
        Ok(())
    }

    fn finish(&self, (pool, area): Self::Live) -> Result<(), Error> {
        drop(area);
        Ok(pool.close()?)
    }

    fn check(&self, sim: &Arc<Sim>, history: &History<u8>) -> Result<Vec<u8>, Violation> {
        let pool = open(sim).map_err(refused)?;
        let area = pool.region("records").and_then(pmem::Region::into_area).map_err(refused)?;
        let seeds = read(&area).map_err(refused)?;
        for (i, seed) in seeds.iter().enumerate() {
            let bytes = area.bytes(64 + i as u64 * RECORD, RECORD as usize).map_err(refused)?;
            if bytes != record(*seed) {
                return Err(Violation::new(format!("record {i} is valid but torn: {bytes:?}")));
            }
        }
        history.check_prefix(&seeds)?;
        Ok(seeds)
    }
}
