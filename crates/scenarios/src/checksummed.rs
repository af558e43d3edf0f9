//! Checksummed records: acknowledged ones read back; one being written reads back whole or not at all. After a crash the program persists what it
//! found before it relies on it: a cache may have outlived the writer.

use std::sync::{Arc, Mutex};

use crash::{Ack, Error, History, Rng, Scenario, Sim, Violation};
use pmem::{Area, Options, Pool};

const SLOT: u64 = 512;
const KIND: u32 = 7;

/// Records of many sizes, each at a slot of its own, several under one barrier.
pub struct Checksummed;

/// The open pool and its area.
pub struct Live(Mutex<(Pool, Area)>);

fn payload(n: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (n * 31 + i * 7 + 1) as u8).collect()
}

impl Scenario for Checksummed {
    /// Records to write under one barrier: slot and length.
    type Op = Vec<(usize, usize)>;
    type Effect = (usize, usize);
    type State = Vec<Option<usize>>;
    type Live = Live;

    fn name(&self) -> &str {
        "checksummed"
    }

    fn capacity(&self) -> u64 {
        16 << 10
    }

    fn setup(&self, sim: &Arc<Sim>) -> Result<(), Error> {
        let pool = Options::new().size(16 << 10).create_on(sim.clone())?;
        pool.add_region("records", 8 << 10)?;
        Ok(())
    }

    fn start(&self, sim: &Arc<Sim>) -> Result<Live, Error> {
        let pool = Options::new().open_on(sim.clone())?;
        let area = pool.region("records")?.into_area()?;
        Ok(Live(Mutex::new((pool, area))))
    }

    fn ops(&self, rng: &mut Rng) -> Vec<(usize, Self::Op)> {
        let mut slot = 0;
        let mut batch = |rng: &mut Rng| {
            (0..=rng.below(1))
                .map(|_| {
                    slot += 1;
                    (slot - 1, rng.below(90) as usize)
                })
                .collect()
        };
        (0..6).map(|_| (0, batch(rng))).collect()
    }

    fn step(&self, live: &Live, _: usize, op: &Self::Op, ack: &Ack<Self::Effect>) -> Result<(), Error> {
        let mut live = live.0.lock().map_err(|e| e.to_string())?;
        let mut tickets = Vec::new();
        for &(slot, len) in op {
            tickets.push(ack.begin((slot, len)));
            live.1.write_checksummed(slot as u64 * SLOT, KIND, 1, &payload(slot, len))?;
        }
        live.0.drain()?;
        tickets.into_iter().for_each(|t| ack.commit(t));
        Ok(())
    }

    fn finish(&self, live: Live) -> Result<(), Error> {
        let (pool, area) = live.0.into_inner().map_err(|e| e.to_string())?;
        drop(area);
        Ok(pool.close()?)
    }

    fn check(&self, sim: &Arc<Sim>, history: &History<Self::Effect>) -> Result<Self::State, Violation> {
        let pool = Options::new().open_on(sim.clone()).map_err(Violation::detected)?;
        let area = pool.region("records").and_then(|r| r.into_area()).map_err(Violation::detected)?;
        let read = |slot: usize| area.read_checksummed(slot as u64 * SLOT, KIND, 1);
        let mut state = Vec::new();
        for &(slot, len) in &history.acknowledged {
            match read(slot) {
                Ok(found) if found == payload(slot, len) => state.push(Some(len)),
                Ok(found) => return Err(Violation::new(format!("record {slot} reads {found:?}"))),
                // After a crash alone this is a violation; after a fault of the medium it is the clear error asked for.
                Err(e) => return Err(Violation::detected(e)),
            }
        }
        for &(slot, len) in &history.in_doubt {
            match read(slot) {
                Ok(found) if found == payload(slot, len) => {
                    let bytes = pmem::CHECKSUMMED_HEADER + found.len() as u64;
                    area.persist(slot as u64 * SLOT, bytes).map_err(Violation::detected)?;
                    state.push(Some(len));
                }
                Ok(found) => return Err(Violation::new(format!("record {slot} in doubt reads {found:?}"))),
                Err(_) => state.push(None),
            }
        }
        Ok(state)
    }
}
