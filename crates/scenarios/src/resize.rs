//! Growth and shrink: the file's length, the directory and the bytes in between agree after any crash.

use std::sync::{Arc, Mutex};

use crash::{Ack, Error, History, Rng, Scenario, Sim, Violation};
use pmem::{Options, Pool, Region};

const START: u64 = 16 << 10;
const MOST: u64 = 96 << 10;

/// A region that grows in place or by extents, words stored in the new part, the rest of the pool given back.
pub struct Resize;

/// One operation.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Grow the region by this many pages and store a word in the last one.
    Grow(u64),
    /// Another region behind it, so that the next growth needs an extent.
    Block,
    /// Give the free end of the pool back.
    Shrink,
    /// Drop everything and open again.
    Restart,
}

/// The open pool and region.
pub struct Live {
    sim: Arc<Sim>,
    state: Mutex<State>,
}

struct State {
    open: Option<(Pool, Region)>,
    stored: u64,
    blocks: u64,
}

fn open(sim: &Arc<Sim>) -> pmem::Result<(Pool, Region)> {
    let pool = Options::new().open_on(sim.clone())?;
    let region = pool.region("data")?;
    Ok((pool, region))
}

impl Scenario for Resize {
    type Op = Op;
    /// Length of the region, and how many words it holds at least.
    type Effect = (u64, u64);
    type State = (u64, Vec<u64>);
    type Live = Live;

    fn name(&self) -> &str {
        "resize"
    }

    fn capacity(&self) -> u64 {
        MOST
    }

    fn setup(&self, sim: &Arc<Sim>) -> Result<(), Error> {
        let pool = Options::new().size(START + (8 << 10)).create_on(sim.clone())?;
        pool.add_region("data", 4096)?;
        Ok(())
    }

    fn start(&self, sim: &Arc<Sim>) -> Result<Live, Error> {
        Ok(Live { sim: sim.clone(), state: Mutex::new(State { open: Some(open(sim)?), stored: 0, blocks: 0 }) })
    }

    fn ops(&self, rng: &mut Rng) -> Vec<(usize, Op)> {
        let op = |rng: &mut Rng| match rng.below(7) {
            0..=2 => Op::Grow(1 + rng.below(2)),
            3 => Op::Block,
            4 | 5 => Op::Shrink,
            _ => Op::Restart,
        };
        (0..8).map(|_| (0, op(rng))).collect()
    }

    fn step(&self, live: &Live, _: usize, op: &Op, ack: &Ack<(u64, u64)>) -> Result<(), Error> {
        let mut state = live.state.lock().map_err(|e| e.to_string())?;
        if let Op::Restart = op {
            state.open = None;
            state.open = Some(open(&live.sim)?);
            return Ok(());
        }
        let State { open: Some((pool, region)), stored, blocks } = &mut *state else { return Err("closed".into()) };
        match op {
            Op::Grow(pages) => {
                let ticket = ack.begin((region.len() + pages * 4096, *stored));
                match pool.grow_region(region, pages * 4096) {
                    Ok(()) => ack.commit(ticket),
                    Err(pmem::Error::Reserve { .. } | pmem::Error::NoSpace { .. }) => {
                        ack.abort(ticket);
                        return Ok(()); // the pool is as before and stays usable
                    }
                    Err(e) => return Err(e.into()),
                }
                *stored += 1;
                let ticket = ack.begin((region.len(), *stored));
                let name = region.name().to_owned();
                let mut areas =
                    std::mem::replace(region, pool.region("spare").or_else(|_| pool.add_region("spare", 1))?)
                        .into_areas();
                if let Some(area) = areas.last_mut() {
                    area.put(area.len() - 8, stored)?;
                    area.persist(area.len() - 8, 8)?;
                }
                drop(areas);
                *region = pool.region(&name)?;
                ack.commit(ticket);
            }
            Op::Block => {
                *blocks += 1;
                match pool.add_region(&format!("block {blocks}"), 4096) {
                    Ok(_) | Err(pmem::Error::Reserve { .. } | pmem::Error::NoSpace { .. }) => {}
                    Err(e) => return Err(e.into()),
                }
            }
            Op::Shrink => {
                pool.shrink_to_fit()?;
            }
            Op::Restart => {}
        }
        Ok(())
    }

    fn finish(&self, live: Live) -> Result<(), Error> {
        let state = live.state.into_inner().map_err(|e| e.to_string())?;
        if let Some((pool, region)) = state.open {
            drop(region);
            pool.close()?;
        }
        Ok(())
    }

    fn check(&self, sim: &Arc<Sim>, history: &History<(u64, u64)>) -> Result<Self::State, Violation> {
        let (_pool, region) = open(sim).map_err(Violation::detected)?;
        let mut words = Vec::new();
        for area in region.areas() {
            let mut at = 4088;
            while at < area.len() {
                let word: u64 = *area.get(at).map_err(Violation::detected)?;
                if word != 0 {
                    // It may stand in a cache only; what is relied on is persisted first.
                    area.persist(at, 8).map_err(Violation::detected)?;
                    words.push(word);
                }
                at += 4096;
            }
        }
        let (len, stored) = history.acknowledged.last().copied().unwrap_or((4096, 0));
        let longest = history.in_doubt.iter().map(|e| e.0).chain([len]).max().unwrap_or(len);
        let most = history.in_doubt.iter().map(|e| e.1).chain([stored]).max().unwrap_or(stored);
        let dense = words.iter().copied().eq(1..=words.len() as u64);
        if region.len() < len
            || region.len() > longest
            || !dense
            || (words.len() as u64) < stored
            || words.len() as u64 > most
        {
            return Err(Violation::new(format!(
                "{} bytes with words {words:?}; acknowledged {len} and {stored}, in doubt {:?}",
                region.len(),
                history.in_doubt
            )));
        }
        Ok((region.len(), words))
    }
}
