//! A log on two machines, which lose their power at the same moment: leader and copy, each in a region of one pool and with barriers of its own. What was acknowledged comes back, in
//! order and whole, whichever of them leads next; what was reclaimed does not; behind that come at most records that were on their way.

use std::sync::{Arc, Mutex};

use crash::{Ack, Error, History, Rng, Scenario, Sim, Ticket, Violation, Witness, as_thread};
use log::testing::{Alone, Cluster, Home, SEGMENT, SEGMENTS};
use log::{Lsn, Options};
use pmem::Pool;

/// Records of the check itself have numbers from here on, and its leaders.
const PROBE: u64 = 1 << 32;
const HOMES: [&str; 2] = ["one", "other"];

/// Appends, with the head moved and with leaders that follow one another.
#[derive(Clone)]
pub struct Led {
    name: &'static str,
    script: Option<Vec<Op>>,
    adjust: fn(Options) -> Options,
}

/// One operation.
#[derive(Clone, Debug)]
pub enum Op {
    /// Records of these lengths, and one force.
    Append(Vec<usize>),
    /// All but so many are discarded, and that is made persistent.
    Reclaim(usize),
    /// The leader ends, and takes the log over again.
    Again,
    /// The other machine does.
    Other,
}

/// What was promised.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// This record is there.
    Record(u64),
    /// These may be gone.
    Cleaned(Vec<u64>),
    /// They are.
    Reclaimed(Vec<u64>),
}

/// The leader, and what is there.
pub struct Live {
    sim: Arc<Sim>,
    state: Mutex<State>,
}

struct State {
    cluster: Option<(Cluster, Pool)>,
    leader: usize,
    owner: u64,
    next: u64,
    /// LSN and number of what is durable and not discarded.
    there: Vec<(u64, u64)>,
}

fn payload(n: u64, len: usize) -> Vec<u8> {
    let mut bytes = n.to_le_bytes().to_vec();
    bytes.extend((0..len).map(|i| (n as usize * 37 + i) as u8));
    bytes
}

fn is_full(error: &log::Error) -> bool {
    matches!(error, log::Error::Full { .. })
}

/// LSN and number of each record.
fn read(cluster: &Cluster) -> Result<Vec<(u64, u64)>, Violation> {
    let mut records = cluster.log().iter();
    let mut all = Vec::new();
    while let Some(record) = records.next().map_err(Violation::detected)? {
        let n = record.payload.first_chunk::<8>().map(|b| u64::from_le_bytes(*b)).unwrap_or(0);
        if record.payload != payload(n, record.payload.len().saturating_sub(8)) {
            return Err(Violation::new(format!("record {n} has wrong bytes: {:?}", record.payload)));
        }
        all.push((record.lsn.get(), n));
    }
    Ok(all)
}

impl Led {
    /// A random workload.
    pub fn new(name: &'static str) -> Self {
        Self { name, script: None, adjust: |options| options }
    }

    /// Exactly these operations.
    pub fn script(ops: Vec<Op>) -> Self {
        Self { script: Some(ops), ..Self::new("log-led-script") }
    }

    /// Changes how the log is opened, in the program and at recovery.
    #[must_use]
    pub fn adjust(self, adjust: fn(Options) -> Options) -> Self {
        Self { adjust, ..self }
    }

    fn options(&self) -> Options {
        (self.adjust)(Options::new().bytes(SEGMENTS * SEGMENT).segment_bytes(SEGMENT).idle(None))
    }

    fn open(&self, sim: &Arc<Sim>, leader: usize, owner: u64) -> log::Result<(Cluster, Pool)> {
        let pool = pmem::Options::new().open_on(sim.clone())?;
        let homes = [leader, 1 - leader].map(|at| Home { pool: pool.clone(), region: HOMES[at] });
        let (cluster, _) = Cluster::open(&self.options(), &homes, owner, |machine, act| as_thread(machine, act))?;
        Ok((cluster, pool))
    }
}

impl Led {
    /// Both must have a record before it counts: so each alone has all of them.
    fn held_by_each(&self, sim: &Arc<Sim>, history: &History<Effect>) -> Result<(), Violation> {
        let pool = pmem::Options::new().open_on(sim.clone()).map_err(Violation::detected)?;
        let has_all = |region| {
            let copy = Alone::open_in(&pool, region, &self.options()).map_err(Violation::detected)?;
            let there = copy.records().map_err(Violation::detected)?;
            let numbers: Vec<u64> =
                there.iter().filter_map(|(_, bytes)| bytes.first_chunk().copied()).map(u64::from_le_bytes).collect();
            all_there(&numbers, history).map_err(|why| Violation::new(format!("machine {region}: {why}")))
        };
        let [one, other] = HOMES.map(has_all);
        // A fault is on one of them.
        if sim.planted().is_some() { one.or(other) } else { one.and(other) }
    }
}

impl State {
    fn run(&mut self, op: &Op, ack: &Ack<Effect>) -> Result<(), Error> {
        let (cluster, _) = self.cluster.as_mut().ok_or("closed")?;
        match op {
            Op::Append(lengths) => {
                let mut begun: Vec<(Lsn, u64, Ticket)> = Vec::new();
                for &len in lengths {
                    let ticket = ack.begin(Effect::Record(self.next));
                    match cluster.complete(&payload(self.next, len)) {
                        Ok(lsn) => begun.push((lsn, self.next, ticket)),
                        Err(error) => {
                            ack.abort(ticket);
                            if !is_full(&error) {
                                return Err(error.into());
                            }
                            // The copy may not know yet that there is room.
                            cluster.catch_up()?;
                            break;
                        }
                    }
                    self.next += 1;
                }
                cluster.force()?;
                for (lsn, n, ticket) in begun {
                    if lsn > cluster.log().forced() {
                        return Err(format!("record {lsn} is not durable behind its force").into());
                    }
                    ack.commit(ticket);
                    self.there.push((lsn.get(), n));
                }
            }
            Op::Reclaim(keep) => {
                let keep = self.there.len().saturating_sub(*keep);
                let Some((last, _)) = self.there[..keep].last().copied() else { return Ok(()) };
                let gone: Vec<u64> = self.there.drain(..keep).map(|r| r.1).collect();
                let cleaned = ack.begin(Effect::Cleaned(gone.clone()));
                cluster.log().truncate_to(Lsn::new(last))?;
                ack.commit(cleaned);
                let ticket = ack.begin(Effect::Reclaimed(gone));
                cluster.log().reclaim()?;
                cluster.catch_up()?;
                ack.commit(ticket);
            }
            Op::Again | Op::Other => {}
        }
        Ok(())
    }
}

impl Scenario for Led {
    type Op = Op;
    type Effect = Effect;
    type State = Vec<u64>;
    type Live = Live;

    fn name(&self) -> &str {
        self.name
    }

    fn capacity(&self) -> u64 {
        64 << 10
    }

    fn setup(&self, sim: &Arc<Sim>) -> Result<(), Error> {
        let pool = pmem::Options::new().size(24 << 10).create_on(sim.clone())?;
        let homes = HOMES.map(|region| Home { pool: pool.clone(), region });
        drop(Cluster::create(&self.options(), &homes, 2, |machine, act| as_thread(machine, act))?);
        drop(homes);
        pool.close()?;
        Ok(())
    }

    fn start(&self, sim: &Arc<Sim>) -> Result<Live, Error> {
        let cluster = Some(self.open(sim, 0, 2)?);
        let state = State { cluster, leader: 0, owner: 2, next: 1, there: Vec::new() };
        Ok(Live { sim: sim.clone(), state: state.into() })
    }

    fn ops(&self, rng: &mut Rng) -> Vec<(usize, Op)> {
        let op = |rng: &mut Rng| match rng.below(8) {
            0..=4 => Op::Append((0..=rng.below(3)).map(|_| rng.below(80) as usize).collect()),
            5 => Op::Reclaim(rng.below(3) as usize),
            6 => Op::Again,
            _ => Op::Other,
        };
        let random = |rng: &mut Rng| (0..10).map(|_| op(rng)).collect::<Vec<_>>();
        self.script.clone().unwrap_or_else(|| random(rng)).into_iter().map(|op| (0, op)).collect()
    }

    fn step(&self, live: &Live, _: usize, op: &Op, ack: &Ack<Effect>) -> Result<(), Error> {
        let mut state = live.state.lock().map_err(|e| e.to_string())?;
        if matches!(op, Op::Again | Op::Other) {
            drop(state.cluster.take());
            state.owner += 1;
            if matches!(op, Op::Other) {
                state.leader = 1 - state.leader;
            }
            state.cluster = Some(self.open(&live.sim, state.leader, state.owner)?);
            return Ok(());
        }
        state.run(op, ack)
    }

    fn finish(&self, live: Live) -> Result<(), Error> {
        let state = live.state.into_inner().map_err(|e| e.to_string())?;
        if let Some((cluster, pool)) = state.cluster {
            drop(cluster);
            pool.close()?;
        }
        Ok(())
    }

    fn check(&self, sim: &Arc<Sim>, history: &History<Effect>) -> Result<Vec<u64>, Violation> {
        // Either of them may lead next, whichever did before: by what was acknowledged.
        let leader = history.acknowledged.len() % 2;
        self.held_by_each(sim, history)?;
        let (mut cluster, _pool) = self.open(sim, leader, PROBE).map_err(Violation::detected)?;
        let survived: Vec<u64> = read(&cluster)?.into_iter().map(|r| r.1).filter(|n| *n < PROBE).collect();
        held(&survived, history)?;
        let _witness = Witness::of(survived.iter().fold(0, |seen: u64, n| seen.wrapping_mul(31).wrapping_add(*n)))?;
        match cluster.complete(&payload(PROBE, 20)) {
            Err(error) if is_full(&error) => {}
            Err(error) => return Err(Violation::detected(error)),
            Ok(lsn) => {
                cluster.force().map_err(Violation::detected)?;
                if cluster.log().forced() < lsn {
                    return Err(Violation::new(format!("record {lsn} does not become durable")));
                }
            }
        }
        Ok(survived)
    }
}

/// What was promised, against what is there.
fn held(survived: &[u64], history: &History<Effect>) -> Result<(), Violation> {
    let (mut begun, mut back) = (Vec::new(), Vec::new());
    for effect in &history.acknowledged {
        match effect {
            Effect::Record(n) => begun.push(*n),
            Effect::Cleaned(_) => {}
            Effect::Reclaimed(numbers) => back.extend(numbers),
        }
    }
    let in_doubt = |effect: &Effect| if let Effect::Record(n) = effect { Some(*n) } else { None };
    begun.extend(history.in_doubt.iter().filter_map(in_doubt));
    if let Some(n) = survived.iter().find(|n| back.contains(n)) {
        return Err(Violation::new(format!("record {n} came back after it was reclaimed: {survived:?}")));
    }
    if let Some(n) = survived.iter().find(|n| !begun.contains(n)) {
        return Err(Violation::new(format!("record {n} was never appended: {survived:?}")));
    }
    if !survived.is_sorted() {
        return Err(Violation::new(format!("not in order: {survived:?}")));
    }
    all_there(survived, history).map_err(Violation::new)
}

/// What was acknowledged, and never discarded.
fn all_there(survived: &[u64], history: &History<Effect>) -> Result<(), String> {
    let effects = || history.acknowledged.iter().chain(&history.in_doubt);
    let is_gone = |n| {
        let by = |effect: &Effect| matches!(effect, Effect::Cleaned(all) | Effect::Reclaimed(all) if all.contains(&n));
        effects().any(by)
    };
    let durable =
        history.acknowledged.iter().filter_map(|effect| if let Effect::Record(n) = effect { Some(*n) } else { None });
    let lost: Vec<u64> = durable.filter(|n| !survived.contains(n) && !is_gone(*n)).collect();
    if lost.is_empty() { Ok(()) } else { Err(format!("records {lost:?} were durable; there are {survived:?}")) }
}
