//! A copy of a replicated log, and what leaders say to it. After a crash anywhere: what it promised is promised; the records that it acknowledged are whole and in order, unless a
//! later leader, to whom it then promised, has begun to put others in their place; its superline is of a leader only if all of that leader's log is there, and then says which copies
//! there are; a head that it acknowledged stays. A copy that was cut short while it was made is none, or is one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crash::{Ack, Error, History, Rng, Scenario, Sim, Ticket, Violation, Witness};
use log::testing::{Alone, Position, SEGMENT, SEGMENTS, Told, record};
use log::{Options, RECORD_HEADER};
use pmem::Pool;

/// Leaders of the check itself have epochs from here on, and their records numbers.
const PROBE: u32 = 1 << 16;

/// One copy, by itself.
#[derive(Clone)]
pub struct Copied {
    name: &'static str,
    script: Option<Vec<Op>>,
    adjust: fn(Options) -> Options,
}

/// What it is told. What makes no sense just then is left out.
#[derive(Clone, Debug)]
pub enum Op {
    /// It becomes a copy.
    Format,
    /// It promises to the next leader.
    Promise,
    /// That leader's log is all but so many of the last records, with so many others in their place, written by a leader in between.
    Install(usize, usize),
    /// It has other copies from now on.
    Members,
    /// Records of these lengths arrive, each by itself.
    Write(Vec<usize>),
    /// They become persistent.
    Persist,
    /// All but so many records are not needed.
    Head(usize),
    /// Drop everything and open again.
    Restart,
}

/// What was promised.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// It is a copy.
    Formed,
    /// It hears no leader with a lower epoch.
    Promised(u32),
    /// This is the log.
    Installed(Log),
    /// This record is there.
    Record(Rec),
    /// Records before this one are not.
    Head(u64),
}

/// A record, and where it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rec {
    at: Position,
    number: u64,
    len: usize,
    end: u64,
}

/// What a leader says the log is.
#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    epoch: u32,
    /// Which copies it has changes while a leader leads.
    generation: u32,
    head: Position,
    records: Vec<Rec>,
}

/// The copy, and what its leaders know.
pub struct Live {
    sim: Arc<Sim>,
    state: Mutex<State>,
}

struct State {
    copy: Option<(Alone, Pool)>,
    is_formed: bool,
    promised: u32,
    /// As the last leader that installed it has it.
    log: Log,
    /// The leader with the promise may install its log.
    hears: bool,
    /// It has, and may write.
    leads: bool,
    /// Records that arrived and are not acknowledged.
    waits: Vec<(Rec, Ticket)>,
    next_number: u64,
}

fn payload(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend((0..len).map(|i| (number as usize * 41 + i) as u8));
    bytes
}

fn members(epoch: u32, generation: u32) -> (Vec<u64>, u32) {
    let count = 1 + (epoch + generation) % 4;
    ((0..count).map(|n| u64::from(epoch * 10 + n)).collect(), 1 + generation % count)
}

impl Log {
    fn new() -> Self {
        Self { epoch: 0, generation: 0, head: Position { lsn: 1, position: 0, epoch: 0 }, records: Vec::new() }
    }

    fn end(&self) -> Position {
        match self.records.last() {
            Some(last) => Position { lsn: last.at.lsn + 1, position: last.end, epoch: last.at.epoch },
            None => self.head,
        }
    }

    /// A record of a leader behind the last, if there is room.
    fn next(&self, epoch: u32, number: u64, len: usize) -> Option<Rec> {
        let end = self.end();
        let space = (RECORD_HEADER + 8 + len as u64).next_multiple_of(8);
        let fits = end.position % SEGMENT + space <= SEGMENT;
        let position = if fits { end.position } else { end.position.next_multiple_of(SEGMENT) };
        let is_free = position / SEGMENT < self.head.position / SEGMENT + SEGMENTS && space <= SEGMENT;
        let at = Position { lsn: end.lsn, position, epoch };
        is_free.then_some(Rec { at, number, len, end: position + space })
    }

    fn number(&self, lsn: u64) -> Option<u64> {
        self.records.iter().find(|r| r.at.lsn == lsn).map(|r| r.number)
    }

    fn cut(&mut self, head: u64) {
        if let Some(first) = self.records.iter().find(|r| r.at.lsn == head) {
            self.head = first.at;
        }
        self.records.retain(|r| r.at.lsn >= head);
    }
}

impl Copied {
    /// A random workload.
    pub fn new(name: &'static str) -> Self {
        Self { name, script: None, adjust: |options| options }
    }

    /// Exactly these operations.
    pub fn script(ops: Vec<Op>) -> Self {
        Self { script: Some(ops), ..Self::new("log-copy-script") }
    }

    /// Changes how the copy is opened, in the program and at recovery.
    #[must_use]
    pub fn adjust(self, adjust: fn(Options) -> Options) -> Self {
        Self { adjust, ..self }
    }

    fn open(&self, sim: &Arc<Sim>) -> log::Result<(Alone, Pool)> {
        let pool = pmem::Options::new().open_on(sim.clone())?;
        Ok((Alone::open(&pool, &(self.adjust)(Options::new()))?, pool))
    }
}

fn must(done: bool, what: &str) -> Result<(), Error> {
    if done { Ok(()) } else { Err(format!("the copy refuses to {what}").into()) }
}

fn write(copy: &mut Alone, rec: &Rec) -> Result<u64, Error> {
    let bytes = record(rec.at, &payload(rec.number, rec.len));
    copy.put(rec.at.position, &bytes)?;
    Ok(bytes.len() as u64)
}

impl State {
    fn run(&mut self, op: &Op, ack: &Ack<Effect>) -> Result<(), Error> {
        let (copy, _) = self.copy.as_mut().ok_or("closed")?;
        match op {
            Op::Format => {
                let ticket = ack.begin(Effect::Formed);
                must(copy.format()?, "become a copy")?;
                ack.commit(ticket);
                self.is_formed = true;
            }
            Op::Promise if self.is_formed => {
                // One that did not get as far as to ask this copy, and one that does.
                self.promised += 2;
                let ticket = ack.begin(Effect::Promised(self.promised));
                must(copy.promise(self.promised)?, "promise")?;
                ack.commit(ticket);
                (self.hears, self.leads) = (true, false);
            }
            Op::Install(drops, adds) if self.hears => self.install(*drops, *adds, ack)?,
            Op::Members if self.leads && self.waits.is_empty() => {
                let log = Log { generation: self.log.generation + 1, ..self.log.clone() };
                self.be(log, 0, ack)?;
            }
            Op::Write(lengths) if self.leads => {
                for &len in lengths {
                    let mut behind = self.log.clone();
                    behind.records.extend(self.waits.iter().map(|w| w.0));
                    let Some(rec) = behind.next(self.promised, self.next_number, len) else { break };
                    self.next_number += 1;
                    let ticket = ack.begin(Effect::Record(rec));
                    let len = write(copy, &rec)?;
                    must(copy.written(len)?, "take a record")?;
                    self.waits.push((rec, ticket));
                }
            }
            Op::Persist if self.leads => {
                let through = copy.persist()?;
                must(through == self.log.end().lsn - 1 + self.waits.len() as u64, "acknowledge all")?;
                for (rec, ticket) in self.waits.drain(..) {
                    ack.commit(ticket);
                    self.log.records.push(rec);
                }
            }
            Op::Head(keep) if self.leads && self.log.records.len() > *keep => {
                let head = self.log.records[self.log.records.len() - 1 - keep].at;
                let ticket = ack.begin(Effect::Head(head.lsn));
                must(copy.move_head(head)?, "move the head")?;
                ack.commit(ticket);
                self.log.cut(head.lsn);
            }
            _ => {}
        }
        Ok(())
    }

    fn install(&mut self, drops: usize, adds: usize, ack: &Ack<Effect>) -> Result<(), Error> {
        let mut log = self.log.clone();
        (log.epoch, log.generation) = (self.promised, 0);
        log.records.truncate(log.records.len().saturating_sub(drops));
        let kept = log.records.len();
        for len in 0..adds {
            let Some(rec) = log.next(self.promised - 1, self.next_number, 7 * len + drops) else { break };
            self.next_number += 1;
            log.records.push(rec);
        }
        let lacks = log.records.len() - kept;
        self.be(log, lacks, ack)
    }

    /// The copy is told that this is the log, of which it has not got the last records.
    fn be(&mut self, log: Log, lacks: usize, ack: &Ack<Effect>) -> Result<(), Error> {
        let ticket = ack.begin(Effect::Installed(log.clone()));
        let (copy, _) = self.copy.as_mut().ok_or("closed")?;
        for rec in &log.records[log.records.len() - lacks..] {
            write(copy, rec)?;
        }
        let (ids, quorum) = members(log.epoch, log.generation);
        must(copy.install(log.head, log.end(), &ids, quorum)?, "be repaired")?;
        // What was on its way is none of this log's.
        self.waits.drain(..).for_each(|(_, ticket)| ack.abort(ticket));
        ack.commit(ticket);
        (self.log, self.hears, self.leads) = (log, false, true);
        Ok(())
    }
}

impl Scenario for Copied {
    type Op = Op;
    type Effect = Effect;
    type State = (Vec<u64>, u64);
    type Live = Live;

    fn name(&self) -> &str {
        self.name
    }

    fn capacity(&self) -> u64 {
        64 << 10
    }

    fn setup(&self, sim: &Arc<Sim>) -> Result<(), Error> {
        pmem::Options::new().size(24 << 10).create_on(sim.clone())?.close()?;
        Ok(())
    }

    fn start(&self, sim: &Arc<Sim>) -> Result<Live, Error> {
        let state = State {
            copy: Some(self.open(sim)?),
            is_formed: false,
            promised: 0,
            log: Log::new(),
            hears: false,
            leads: false,
            waits: Vec::new(),
            next_number: 1,
        };
        Ok(Live { sim: sim.clone(), state: state.into() })
    }

    fn ops(&self, rng: &mut Rng) -> Vec<(usize, Op)> {
        let op = |rng: &mut Rng| match rng.below(15) {
            0..=4 => Op::Write((0..=rng.below(2)).map(|_| rng.below(90) as usize).collect()),
            5..=8 => Op::Persist,
            9 => Op::Promise,
            10 | 11 => Op::Install(rng.below(3) as usize, rng.below(3) as usize),
            12 => Op::Head(rng.below(2) as usize),
            13 => Op::Members,
            _ => Op::Restart,
        };
        let random = |rng: &mut Rng| {
            let begun = [Op::Format, Op::Promise, Op::Install(0, 2)];
            begun.into_iter().chain((0..12).map(|_| op(rng))).collect()
        };
        self.script.clone().unwrap_or_else(|| random(rng)).into_iter().map(|op| (0, op)).collect()
    }

    fn step(&self, live: &Live, _: usize, op: &Op, ack: &Ack<Effect>) -> Result<(), Error> {
        let mut state = live.state.lock().map_err(|e| e.to_string())?;
        if matches!(op, Op::Restart) {
            drop(state.copy.take());
            state.copy = Some(self.open(&live.sim)?);
            (state.hears, state.leads) = (false, false);
            return Ok(());
        }
        state.run(op, ack)
    }

    fn finish(&self, live: Live) -> Result<(), Error> {
        let state = live.state.into_inner().map_err(|e| e.to_string())?;
        if let Some((copy, pool)) = state.copy {
            drop(copy);
            pool.close()?;
        }
        Ok(())
    }

    fn check(&self, sim: &Arc<Sim>, history: &History<Effect>) -> Result<(Vec<u64>, u64), Violation> {
        let failed = |error: Error| Violation::detected(error);
        let (mut copy, _pool) = self.open(sim).map_err(Violation::detected)?;
        let promises = Promises::of(history);
        let Some(told) = copy.told() else {
            return if promises.formed {
                Err(Violation::new("it was a copy, and is none"))
            } else {
                copy.format().map_err(Violation::detected)?;
                Ok((Vec::new(), 1))
            };
        };
        promises.hold(&told)?;
        let epoch = PROBE.max(told.promised) + 1;
        must(copy.promise(epoch).map_err(Violation::detected)?, "promise").map_err(failed)?;
        let found =
            copy.walk().map_err(Violation::detected)?.ok_or_else(|| Violation::new("it does not say what it has"))?;
        let mut there = BTreeMap::new();
        for (lsn, bytes) in &found.records {
            let number = bytes.first_chunk::<8>().map(|b| u64::from_le_bytes(*b)).unwrap_or(0);
            if *bytes != payload(number, bytes.len().saturating_sub(8)) {
                return Err(Violation::new(format!("record {lsn} has wrong bytes: {bytes:?}")));
            }
            if number < PROBE.into() {
                there.insert(*lsn, number);
            }
        }
        promises.hold_records(&told, &there, found.doubt)?;
        // The next leader takes it as it is, and goes on.
        let numbers: Vec<u64> = there.into_values().collect();
        let (ids, quorum) = members(epoch, 0);
        must(copy.install(told.head, found.end, &ids, quorum).map_err(Violation::detected)?, "be repaired")
            .map_err(failed)?;
        let seen = numbers.iter().fold(told.head.lsn, |seen: u64, n| seen.wrapping_mul(31).wrapping_add(*n));
        let _witness = Witness::of(seen)?;
        let behind = Rec { at: found.end, number: 0, len: 0, end: found.end.position };
        let before = Position { lsn: found.end.lsn.saturating_sub(1), ..found.end };
        let records = if found.records.is_empty() { Vec::new() } else { vec![Rec { at: before, ..behind }] };
        let log = Log { epoch, generation: 0, head: told.head, records };
        if let Some(rec) = log.next(epoch, u64::from(PROBE) + found.end.lsn, 5) {
            let len = write(&mut copy, &rec).map_err(failed)?;
            must(copy.written(len).map_err(Violation::detected)?, "take a record").map_err(failed)?;
            let through = copy.persist().map_err(Violation::detected)?;
            must(through == found.end.lsn, "acknowledge a record").map_err(failed)?;
        }
        Ok((numbers, told.head.lsn))
    }
}

/// What the copy was told by then.
#[derive(Default)]
struct Promises {
    /// It is a copy.
    formed: bool,
    promised: u32,
    promising: u32,
    log: Option<Log>,
    installing: Option<Log>,
    arriving: Vec<Rec>,
    moving: Option<u64>,
}

impl Promises {
    fn of(history: &History<Effect>) -> Self {
        let mut this = Self::default();
        for effect in &history.acknowledged {
            match effect {
                Effect::Formed => this.formed = true,
                Effect::Promised(epoch) => this.promised = *epoch,
                Effect::Installed(log) => this.log = Some(log.clone()),
                Effect::Record(rec) => this.log.iter_mut().for_each(|log| log.records.push(*rec)),
                Effect::Head(head) => this.log.iter_mut().for_each(|log| log.cut(*head)),
            }
        }
        for effect in &history.in_doubt {
            match effect {
                Effect::Formed => {}
                Effect::Promised(epoch) => this.promising = *epoch,
                Effect::Installed(log) => this.installing = Some(log.clone()),
                Effect::Record(rec) => this.arriving.push(*rec),
                Effect::Head(head) => this.moving = Some(*head),
            }
        }
        this
    }

    /// What it says of itself.
    fn hold(&self, told: &Told) -> Result<(), Violation> {
        let broken = |what: String| Err(Violation::new(format!("{what}: {told:?}")));
        if told.promised < PROBE && told.promised != self.promised && told.promised != self.promising {
            return broken(format!("it had promised {}, and perhaps {}", self.promised, self.promising));
        }
        let epochs = [&self.log, &self.installing].map(|log| log.as_ref().map(|log| log.epoch));
        let present = epochs[0].unwrap_or(0);
        if told.epoch < PROBE && told.epoch != present && Some(told.epoch) != epochs[1] {
            return broken(format!("the log is of epoch {present}, and perhaps {:?}", epochs[1]));
        }
        let of_epoch = |log: &&Log| log.epoch == told.epoch;
        let known = [&self.log, &self.installing].into_iter().flatten().filter(of_epoch);
        let mut may: Vec<_> = known.map(|log| Some(members(told.epoch, log.generation))).collect();
        may.extend((told.epoch == 0).then_some(None));
        may.extend((told.epoch > PROBE).then(|| Some(members(told.epoch, 0))));
        if !may.contains(&told.members) {
            return broken(format!("the copies of its epoch are {may:?}"));
        }
        let heads = [&self.log, &self.installing].map(|log| log.as_ref().map(|log| log.head.lsn));
        let present = heads[0].unwrap_or(1);
        if told.head.lsn != present && Some(told.head.lsn) != heads[1] && Some(told.head.lsn) != self.moving {
            return broken(format!("the log begins with record {present}, or {:?}", self.moving));
        }
        Ok(())
    }

    fn hold_records(&self, told: &Told, there: &BTreeMap<u64, u64>, doubt: bool) -> Result<(), Violation> {
        let none = Log::new();
        let log = self.log.as_ref().unwrap_or(&none);
        // All of the leader's log, if the superline is its; while it may be, what is in both.
        let required: Vec<(u64, u64)> = match &self.installing {
            Some(next) if told.epoch == next.epoch => next.records.iter().map(|r| (r.at.lsn, r.number)).collect(),
            next => {
                let stays = |r: &&Rec| next.as_ref().is_none_or(|n| n.number(r.at.lsn) == Some(r.number));
                log.records.iter().filter(stays).map(|r| (r.at.lsn, r.number)).collect()
            }
        };
        for (lsn, number) in required.into_iter().filter(|r| r.0 >= told.head.lsn) {
            let found = there.get(&lsn);
            if found != Some(&number) {
                let what = format!("record {lsn} was acknowledged as {number}, and is {found:?} of {there:?}");
                return Err(if doubt { Violation::detected(what) } else { Violation::new(what) });
            }
        }
        let arriving = Log { records: self.arriving.clone(), ..none.clone() };
        for (&lsn, &number) in there {
            let known = [Some(log), self.installing.as_ref(), Some(&arriving)];
            if !known.into_iter().flatten().any(|log| log.number(lsn) == Some(number)) {
                return Err(Violation::new(format!("record {lsn} is {number}, which nobody sent: {there:?}")));
            }
        }
        Ok(())
    }
}
