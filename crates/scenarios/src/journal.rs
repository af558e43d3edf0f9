//! The ring: what was forced and not retired comes back, in order and whole; what was persistently retired never does; behind that
//! come at most the records that were being appended, in order and without a gap. After recovery the writer goes on at once, so that what a
//! torn record left meets new records at its place.

use std::sync::{Arc, Mutex};

use crash::{Ack, Error, History, Rng, Scenario, Sim, Violation, Witness};
use pmem::{Area, Options, Pool, Position, Region, Ring, SlotState, Tail};

const RING: u64 = 1 << 10;
/// Records appended by the check itself, after it has looked, have numbers from here on.
const PROBE: u64 = 1 << 32;

/// Appends of all sizes, several to a force, with retiring, wrapping around and restarts.
#[derive(Default)]
pub struct Journal {
    script: Option<Vec<Op>>,
}

impl Journal {
    /// Exactly these operations.
    pub fn script(ops: Vec<Op>) -> Self {
        Self { script: Some(ops) }
    }
}

/// One operation.
#[derive(Clone, Debug)]
pub enum Op {
    /// Append records of these lengths, then force once.
    Append(Vec<usize>),
    /// Retire all but the newest record, in DRAM.
    Retire,
    /// Make that persistent.
    Reclaim,
    /// Drop everything and open again.
    Restart,
}

/// The open ring and what is in it.
pub struct Live {
    sim: Arc<Sim>,
    state: Mutex<State>,
}

struct State {
    open: Option<(Pool, Ring)>,
    next: u64,
    unretired: Vec<(u64, Position)>,
}

/// What was promised: a record is there from its force on, or is persistently retired.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// Record n; the force that makes it durable makes all from the second number on durable.
    Record(u64, u64),
    /// All records up to n are retired for good.
    RetiredThrough(u64),
}

fn payload(n: u64, len: usize) -> Vec<u8> {
    let mut bytes = n.to_le_bytes().to_vec();
    bytes.extend((0..len).map(|i| (n as usize * 37 + i) as u8));
    bytes
}

/// Small, so that the ring wraps around often: a region is a page at least.
fn area(region: Region) -> pmem::Result<Area> {
    Ok(region.into_area()?.split_at(RING)?.0)
}

fn open(sim: &Arc<Sim>) -> pmem::Result<(Pool, Ring, pmem::Recovered)> {
    let pool = Options::new().open_on(sim.clone())?;
    let (ring, found) = Ring::open(area(pool.region("ring")?)?)?;
    Ok((pool, ring, found))
}

fn number(ring: &Ring, record: &pmem::RingRecord) -> Result<u64, Violation> {
    let bytes = ring.payload(record).map_err(Violation::detected)?;
    let n = bytes.first_chunk::<8>().map(|b| u64::from_le_bytes(*b));
    let n = n.ok_or_else(|| Violation::new("a record without its number"))?;
    if bytes != payload(n, bytes.len() - 8) {
        return Err(Violation::new(format!("record {n} has wrong bytes: {bytes:?}")));
    }
    Ok(n)
}

impl Scenario for Journal {
    type Op = Op;
    type Effect = Effect;
    type State = Vec<u64>;
    type Live = Live;

    fn name(&self) -> &str {
        "ring"
    }

    fn capacity(&self) -> u64 {
        16 << 10
    }

    fn setup(&self, sim: &Arc<Sim>) -> Result<(), Error> {
        let pool = Options::new().size(16 << 10).create_on(sim.clone())?;
        Ring::create(area(pool.add_region("ring", RING)?)?)?;
        Ok(())
    }

    fn start(&self, sim: &Arc<Sim>) -> Result<Live, Error> {
        let live = Live { sim: sim.clone(), state: Mutex::new(State { open: None, next: 1, unretired: Vec::new() }) };
        restart(&live)?;
        Ok(live)
    }

    fn ops(&self, rng: &mut Rng) -> Vec<(usize, Op)> {
        let op = |rng: &mut Rng| match rng.below(8) {
            0..=4 => Op::Append((0..=rng.below(2)).map(|_| rng.below(100) as usize).collect()),
            5 => Op::Retire,
            6 => Op::Reclaim,
            _ => Op::Restart,
        };
        let random = || (0..14).map(|_| op(rng)).collect();
        self.script.clone().unwrap_or_else(random).into_iter().map(|op| (0, op)).collect()
    }

    fn step(&self, live: &Live, _: usize, op: &Op, ack: &Ack<Effect>) -> Result<(), Error> {
        if let Op::Restart = op {
            return restart(live);
        }
        let mut state = live.state.lock().map_err(|e| e.to_string())?;
        let State { open, next, unretired } = &mut *state;
        let Some((_, ring)) = open else { return Err("closed".into()) };
        match op {
            Op::Append(lengths) => {
                let mut tickets = Vec::new();
                let first = *next;
                for &len in lengths {
                    let bytes = payload(*next, len);
                    let ticket = ack.begin(Effect::Record(*next, first));
                    match ring.append(&[&bytes[..5], &bytes[5..]]) {
                        Ok(appended) => {
                            unretired.push((*next, appended.end));
                            tickets.push(ticket);
                            *next += 1;
                        }
                        Err(pmem::Error::RingFull { .. }) => {
                            ack.abort(ticket);
                            break;
                        }
                        Err(e) => return Err(e.into()),
                    }
                }
                ring.force()?;
                tickets.into_iter().for_each(|t| ack.commit(t));
            }
            Op::Retire => {
                let keep = unretired.len().saturating_sub(1);
                for (_, end) in unretired.drain(..keep) {
                    ring.retire(end);
                }
            }
            Op::Reclaim => {
                let last = unretired.first().map_or(*next, |(n, _)| *n) - 1;
                let ticket = ack.begin(Effect::RetiredThrough(last));
                ring.reclaim()?;
                ack.commit(ticket);
            }
            Op::Restart => {}
        }
        Ok(())
    }

    fn finish(&self, live: Live) -> Result<(), Error> {
        let state = live.state.into_inner().map_err(|e| e.to_string())?;
        if let Some((pool, ring)) = state.open {
            drop(ring);
            pool.close()?;
        }
        Ok(())
    }

    fn check(&self, sim: &Arc<Sim>, history: &History<Effect>) -> Result<Vec<u64>, Violation> {
        let (_pool, mut ring, found) = open(sim).map_err(Violation::detected)?;
        let mut survived: Vec<u64> = found.records.iter().map(|r| number(&ring, r)).collect::<Result<_, _>>()?;
        let probes = survived.iter().filter(|n| **n >= PROBE).count();
        survived.truncate(survived.len() - probes);
        let (mut last, mut first_of_last, mut retired) = (0, 0, 0);
        for effect in &history.acknowledged {
            match *effect {
                Effect::Record(n, first) => (last, first_of_last) = (n, first),
                Effect::RetiredThrough(n) => retired = n,
            }
        }
        let in_doubt = |n: u64| history.in_doubt.iter().any(|e| matches!(e, Effect::Record(m, _) if *m == n));
        if survived.windows(2).any(|w| w[0] + 1 != w[1]) {
            return Err(Violation::new(format!("a gap in {survived:?}")));
        }
        if let Some(&first) = survived.first()
            && first <= retired
        {
            // Of a mark that is damaged in one copy the other may be an older one, which recovery says.
            if sim.planted().is_some() && found.mark == SlotState::Corrupt {
                return Err(Violation::detected("a copy of the mark is damaged, so that it may be an older one"));
            }
            return Err(Violation::new(format!("record {first} came back, retired through {retired}")));
        }
        let end = survived.last().copied().unwrap_or(0);
        if end > last && !in_doubt(end) {
            return Err(Violation::new(format!("record {end} was never appended")));
        }
        // Nothing is retired that the program did not retire, and the newest acknowledged record never is.
        if end < last {
            let lost = Violation::new(format!("acknowledged through {last}, survived {survived:?}"));
            // What the very last force made durable and a torn append look alike; recovery must then say so.
            return Err(match found.tail {
                // If nothing is left before them, all that was had been retired.
                Tail::InDoubt { .. } if (survived.is_empty() || end + 1 >= first_of_last) && probes == 0 => {
                    Violation::detected("the records of the last force are in doubt")
                }
                _ => lost,
            });
        }
        let _witness = Witness::of(end)?;
        for len in [8, 60] {
            let bytes = payload(PROBE + len as u64, len);
            match ring.append(&[&bytes]) {
                Err(pmem::Error::RingFull { .. }) => break,
                Err(e) => return Err(Violation::detected(e)),
                Ok(appended) => {
                    ring.force().map_err(Violation::detected)?;
                    if end == 0 {
                        // Nothing of the program's is in the ring, so the probe may be retired, with what stood at its place.
                        ring.retire(appended.end);
                        ring.reclaim().map_err(Violation::detected)?;
                    }
                }
            }
        }
        Ok(survived)
    }
}

fn restart(live: &Live) -> Result<(), Error> {
    let mut state = live.state.lock().map_err(|e| e.to_string())?;
    state.open = None;
    let (pool, ring, found) = open(&live.sim)?;
    let mut unretired = Vec::new();
    for record in &found.records {
        unretired.push((number(&ring, record).map_err(|v| v.message)?, record.end));
    }
    state.unretired = unretired;
    state.open = Some((pool, ring));
    Ok(())
}
