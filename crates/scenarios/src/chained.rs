//! A replica of a chain, one that others lead: records come in batches, and go when others have them. After a crash anywhere: it has every record that it has forwarded or acknowledged; its
//! queue over its image makes the heap that exactly the records through the last one leave, to the byte; and a copy that was voided is none, until it is whole again, under another id.

use std::sync::{Arc, Mutex};

use chain::{
    Body, Command, Driven, Entry, Event, Found, Medium, Message, Mode, Moment, Number, Object, Omission, Record,
    ReplicaId, Sizes, View, ViewId,
};
use crash::{Ack, Error, History, Rng, Scenario, Sim, Violation, Witness};
use pmem::Options;

const SIZES: Sizes = Sizes { capacity: 20 << 10, queue: 4 << 10 };
const LEN: u64 = 128 << 10;
/// Records that are not cleaned up fit into the queue.
const BEHIND_MAX: u64 = 6;

/// One replica, by itself: the middle one of three.
pub type Chained = OnMedium<Op>;

/// What works on the medium of one replica.
#[derive(Clone)]
pub struct OnMedium<O> {
    pub(crate) name: &'static str,
    pub(crate) script: Option<Vec<O>>,
    omission: Option<Omission>,
}

impl<O> OnMedium<O> {
    /// By that name.
    pub fn new(name: &'static str) -> Self {
        Self { name, script: None, omission: None }
    }

    /// Exactly these operations.
    pub fn script(ops: Vec<O>) -> Self {
        Self { script: Some(ops), ..Self::new("chain-script") }
    }

    /// Without a step.
    pub fn without(self, omission: Omission) -> Self {
        Self { omission: Some(omission), ..self }
    }

    pub(crate) fn medium(&self, sim: &Arc<Sim>) -> Result<(Medium, Found), Error> {
        Ok(Medium::open_without(Options::new().open_on(sim.clone())?, self.omission)?)
    }
}

/// What happens to it. What makes no sense just then is left out.
#[derive(Clone, Debug)]
pub enum Op {
    /// So many records come, in one message.
    Records(u64),
    /// All but so many are on every member.
    CleanUp(u64),
    /// Time passes.
    Tick,
    /// It is taken out of the chain, and comes back behind the tail with a copy of the heap.
    Rejoin,
    /// The same, and its last record is on no other member: it is none.
    RejoinWithout,
    /// Drop everything and open again.
    Restart,
}

/// What was promised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// Records through here are there.
    Have(u64),
    /// The copy of that incarnation is nothing.
    Voided(u32),
    /// That of this one is whole, with the records through here.
    Whole(u32, u64),
}

/// The process, and what the others know.
pub struct Live {
    sim: Arc<Sim>,
    state: Mutex<State>,
}

struct State {
    driven: Option<Driven>,
    last: u64,
    cleaned: u64,
    incarnation: u32,
}

impl Chained {
    fn open(&self, sim: &Arc<Sim>) -> Result<Driven, Error> {
        let (medium, found) = self.medium(sim)?;
        let incarnation = found.id.incarnation;
        let mut driven = Driven::start(medium, found)?.0;
        let view = view(incarnation, true);
        driven.event(Moment(1), Event::View(view.clone()))?;
        driven.event(Moment(1), Event::LeasesEnded(view.id))?;
        Ok(driven)
    }
}

fn other(machine: u32) -> ReplicaId {
    ReplicaId { machine, incarnation: 0 }
}

/// With the copy, or after it was taken out. First it is in the middle, later the tail.
fn view(incarnation: u32, with: bool) -> View {
    let own = ReplicaId { machine: 2, incarnation };
    let (id, members) = match (incarnation, with) {
        (0, true) => (1, vec![other(1), own, other(3)]),
        (n, true) => (2 * u64::from(n) + 1, vec![other(1), other(3), own]),
        (n, false) => (2 * u64::from(n) + 2, vec![other(1), other(3)]),
    };
    View { id: ViewId(id), members, f: 2, mode: Mode::Values }
}

/// Each changes the same words and the same two lines, one of sixteen others, and a page that is zero behind every second.
fn ranges(n: u64) -> [(u64, Vec<u8>); 4] {
    let spread: Vec<u8> = (0..72).map(|at| (n as u8).wrapping_mul(31).wrapping_add(at)).collect();
    [
        (64, [n, !n].map(u64::to_le_bytes).concat()),
        (8192 + 40, spread),
        (12_288 + n % 16 * 64, n.to_le_bytes().to_vec()),
        (16_384, (n % 2 * n).to_le_bytes().to_vec()),
    ]
}

fn record(n: u64) -> Record {
    let mut bytes = Vec::new();
    for (at, data) in ranges(n) {
        bytes.extend_from_slice(&at.to_le_bytes());
        bytes.extend_from_slice(&(data.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&data);
    }
    Record { entry: Entry { number: Number { view: ViewId(1), n }, objects: vec![Object(64)] }, bytes }
}

fn model(through: u64) -> Vec<u8> {
    let mut heap = vec![0; SIZES.capacity as usize];
    for (at, data) in (1..=through).flat_map(ranges) {
        heap[at as usize..][..data.len()].copy_from_slice(&data);
    }
    heap
}

/// The first page that is not of the first part of an image.
const PART: u64 = 8192;

/// As [`Medium::part`] has it, but smaller.
fn part(through: u64, part: u32) -> Body {
    let mut bytes = SIZES.capacity.to_le_bytes().to_vec();
    bytes.extend_from_slice(&[0; 8]);
    let is_wanted = |at: u64, page: &[u8]| (at < PART) == (part == 0) && page.iter().any(|b| *b != 0);
    for (at, page) in (0u64..).step_by(4096).zip(model(through).chunks(4096)).filter(|(at, page)| is_wanted(*at, page))
    {
        bytes.extend_from_slice(&at.to_le_bytes());
        bytes.extend_from_slice(&(page.len() as u64).to_le_bytes());
        bytes.extend_from_slice(page);
    }
    Body::Part { through, part, last: part == 1, image: bytes }
}

fn says(driven: &mut Driven, from: u32, view: ViewId, body: Body) -> chain::Result<Vec<Command>> {
    let to = driven.replica().id();
    driven.event(Moment(2), Event::Message(Message { view, from: other(from), to, body }))
}

/// Records come, from the member in front; through which number they are promised.
fn arrive(driven: &mut Driven, numbers: std::ops::RangeInclusive<u64>) -> chain::Result<u64> {
    let incarnation = driven.replica().id().incarnation;
    let from = if incarnation == 0 { 1 } else { 3 };
    let records = numbers.map(record).collect();
    let said = says(driven, from, view(incarnation, true).id, Body::Records(records))?;
    let promised = said.iter().filter_map(|command| match command {
        Command::Ship { last, .. } => Some(*last),
        Command::Send(Message { body: Body::Acknowledged(n) | Body::Have(n), .. }) => Some(*n),
        _ => None,
    });
    Ok(promised.max().unwrap_or(0))
}

impl State {
    fn records(&mut self, count: u64, ack: &Ack<Effect>) -> Result<(), Error> {
        let Some(driven) = &mut self.driven else { return Err("closed".into()) };
        let last = (self.last + count).min(self.cleaned + BEHIND_MAX);
        if last > self.last {
            let ticket = ack.begin(Effect::Have(last));
            let promised = arrive(driven, self.last + 1..=last)?;
            if promised != last {
                return Err(format!("promised through {promised}, of {last}").into());
            }
            ack.commit(ticket);
            self.last = last;
        }
        Ok(())
    }

    fn clean_up(&mut self, but: u64) -> Result<(), Error> {
        let Some(driven) = &mut self.driven else { return Err("closed".into()) };
        let through = self.last.saturating_sub(but);
        // A tail knows by itself.
        if self.incarnation == 0 && through > self.cleaned {
            says(driven, 3, ViewId(1), Body::CleanUp(through))?;
        }
        self.cleaned = self.cleaned.max(through);
        Ok(())
    }

    fn rejoin(&mut self, without: bool, ack: &Ack<Effect>) -> Result<(), Error> {
        let Some(driven) = &mut self.driven else { return Err("closed".into()) };
        let voided = ack.begin(Effect::Voided(self.incarnation));
        let out = view(self.incarnation, false);
        driven.event(Moment(3), Event::View(out.clone()))?;
        ack.commit(voided);
        self.incarnation += 1;
        // The others have gone on, or never had it.
        if without && self.last > self.cleaned {
            self.last -= 1
        } else {
            self.last += 1
        }
        // Once with records: one between the two parts of the image, and behind them one that the second part shows.
        let first = self.last;
        self.last += if without { 0 } else { 2 };
        let whole = ack.begin(Effect::Whole(self.incarnation, self.last));
        let mut said = says(driven, 3, out.id, part(first, 0))?;
        if !without {
            says(driven, 3, out.id, Body::Records(vec![record(first + 1)]))?;
        }
        said.extend(says(driven, 3, out.id, part(self.last, 1))?);
        if !without {
            said = says(driven, 3, out.id, Body::Records(vec![record(self.last)]))?;
        }
        let has = |command: &Command| matches!(command, Command::Send(Message { body: Body::Have(n), .. }) if *n == self.last);
        if !said.iter().any(has) {
            return Err(format!("it is not whole: {said:?}").into());
        }
        ack.commit(whole);
        let view = view(self.incarnation, true);
        driven.event(Moment(3), Event::View(view.clone()))?;
        driven.event(Moment(3), Event::LeasesEnded(view.id))?;
        self.cleaned = self.last;
        Ok(())
    }
}

impl Scenario for Chained {
    type Op = Op;
    type Effect = Effect;
    type State = Vec<u8>;
    type Live = Live;

    fn name(&self) -> &str {
        self.name
    }

    fn capacity(&self) -> u64 {
        LEN
    }

    fn setup(&self, sim: &Arc<Sim>) -> Result<(), Error> {
        let pool = Options::new().size(Medium::file_len(SIZES)).create_on(sim.clone())?;
        Medium::format(&pool, ReplicaId { machine: 2, incarnation: 0 }, true, SIZES)?;
        Ok(pool.close()?)
    }

    fn start(&self, sim: &Arc<Sim>) -> Result<Live, Error> {
        let driven = Some(self.open(sim)?);
        let state = State { driven, last: 0, cleaned: 0, incarnation: 0 };
        Ok(Live { sim: sim.clone(), state: Mutex::new(state) })
    }

    fn ops(&self, rng: &mut Rng) -> Vec<(usize, Op)> {
        let op = |rng: &mut Rng| match rng.below(12) {
            0..=5 => Op::Records(1 + rng.below(3)),
            6..=7 => Op::CleanUp(rng.below(2)),
            8 => Op::Tick,
            9 if rng.chance(1, 2) => Op::Rejoin,
            9 => Op::RejoinWithout,
            _ => Op::Restart,
        };
        let random = || (0..12).map(|_| op(rng)).collect();
        self.script.clone().unwrap_or_else(random).into_iter().map(|op| (0, op)).collect()
    }

    fn step(&self, live: &Live, _: usize, op: &Op, ack: &Ack<Effect>) -> Result<(), Error> {
        let mut state = live.state.lock().map_err(|e| e.to_string())?;
        match op {
            Op::Records(count) => state.records(*count, ack)?,
            Op::CleanUp(but) => state.clean_up(*but)?,
            Op::Tick => {
                let Some(driven) = &mut state.driven else { return Err("closed".into()) };
                driven.event(Moment(4), Event::Tick)?;
            }
            Op::Rejoin => state.rejoin(false, ack)?,
            Op::RejoinWithout => state.rejoin(true, ack)?,
            Op::Restart => {
                state.driven = None;
                state.driven = Some(self.open(&live.sim)?);
            }
        }
        Ok(())
    }

    fn finish(&self, live: Live) -> Result<(), Error> {
        let state = live.state.into_inner().map_err(|e| e.to_string())?;
        if let Some(driven) = state.driven {
            driven.into_medium().close()?;
        }
        Ok(())
    }

    fn check(&self, sim: &Arc<Sim>, history: &History<Effect>) -> Result<Vec<u8>, Violation> {
        let driven = self.open(sim).map_err(Violation::detected)?;
        let (id, whole) = (driven.replica().id(), driven.replica().serves().is_some());
        let heap = |driven: &Driven| driven.medium().heap().map_err(Violation::detected);
        let Known { incarnation, voiding, whole: was_whole, have, may_have } = Known::of(history);
        let _witness = Witness::of(u64::from(id.incarnation) << 32 | driven.replica().progress().last)?;
        if id.incarnation != incarnation && !(voiding && id.incarnation == incarnation + 1) {
            return Err(Violation::new(format!("it is {id:?}, and was {incarnation}")));
        }
        if !whole {
            let is_empty = heap(&driven)?.iter().all(|byte| *byte == 0);
            return match was_whole && id.incarnation == incarnation {
                true => Err(Violation::new("a whole copy is gone")),
                false if !is_empty => Err(Violation::new("a copy that is nothing is not empty")),
                false => Ok(Vec::new()),
            };
        }
        let last = driven.replica().progress().last;
        if last < have || last > may_have {
            return Err(Violation::new(format!("it has records through {last}, of {have} to {may_have}")));
        }
        if heap(&driven)? != model(last) {
            return Err(Violation::new(format!("the heap is not what records through {last} leave")));
        }
        Ok(model(last))
    }
}

/// What the history says that there must be.
struct Known {
    incarnation: u32,
    voiding: bool,
    whole: bool,
    have: u64,
    may_have: u64,
}

impl Known {
    fn of(history: &History<Effect>) -> Self {
        let mut known = Self { incarnation: 0, voiding: false, whole: true, have: 0, may_have: 0 };
        for effect in &history.acknowledged {
            match *effect {
                Effect::Have(n) => known.have = n,
                Effect::Voided(incarnation) => (known.incarnation, known.whole) = (incarnation + 1, false),
                Effect::Whole(_, through) => (known.whole, known.have) = (true, through),
            }
        }
        known.may_have = known.have;
        for effect in &history.in_doubt {
            match *effect {
                Effect::Have(n) => known.may_have = n,
                // Nothing counts of a copy that is none, or half of one, which the next start gives up.
                Effect::Whole(_, n) => (known.have, known.may_have, known.voiding) = (n, n, true),
                Effect::Voided(_) => known.voiding = true,
            }
        }
        known
    }
}
