//! The log: what was forced and is not discarded comes back, in the order of its numbers and whole; what was reclaimed never does; behind that
//! come at most records that were on their way, without a gap. After recovery the log goes on at once, so that what torn records left meets new ones
//! at its place.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use crash::{Ack, Error, FaultKind, History, Rng, Scenario, Sim, Ticket, Violation, Witness};
use log::{Log, Lsn, Options, Tail};
use pmem::Pool;

use crate::faults::{gone_unnoticed, is_told};
use crate::opened::Opened;

const SEGMENT: u64 = 256;
/// Records for one watermark.
const WATERMARK: u64 = 2;
/// Records appended by the check itself, after it has looked, have numbers from here on.
const PROBE: u64 = 1 << 32;

/// Appends of all sizes, by one thread or two, with truncation, growth, wrapping around and restarts.
#[derive(Clone)]
pub struct Records {
    name: &'static str,
    threads: usize,
    frequency: u32,
    script: Option<Vec<(usize, Op)>>,
    adjust: fn(Options) -> Options,
}

/// One operation.
#[derive(Clone, Debug)]
pub enum Op {
    /// One append of so many bytes.
    Append(usize),
    /// Reservations of these lengths, completed last first, then one force.
    Batch(Vec<usize>),
    /// A reservation given up.
    Skip(usize),
    /// Everything but the newest durable record is discarded.
    Clean,
    /// That is made persistent.
    Reclaim,
    /// A segment more.
    Grow,
    /// A watermark record.
    Idle,
    /// Drop everything and open again.
    Restart,
    /// Close, and open again.
    Close,
}

/// The open log and what its threads share.
pub struct Live {
    sim: Arc<Sim>,
    open: Opened<Log>,
    next: AtomicU64,
    /// How many records were acknowledged.
    acknowledged: AtomicU64,
    forced: AtomicU64,
    /// Records not known to be durable or discarded: LSN, number, and the ticket while it is not durable.
    state: Mutex<Vec<(u64, u64, Option<Ticket>)>>,
    /// Operations that append and have not noted what: no thread cleans up past records that it does not know.
    appending: AtomicU64,
}

/// What was promised.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Record n is there, until it is discarded; and how many records were acknowledged when it was reserved: it bears witness for them.
    Record(u64, u64),
    /// Its LSN, and through which one everything was known to be durable when it was reserved.
    At(u64, u64, u64),
    /// These may be gone.
    Cleaned(Vec<u64>),
    /// These are.
    Reclaimed(Vec<u64>),
}

fn payload(n: u64, len: usize) -> Vec<u8> {
    let mut bytes = n.to_le_bytes().to_vec();
    bytes.extend((0..len).map(|i| (n as usize * 37 + i) as u8));
    bytes
}

fn number(bytes: &[u8]) -> Result<u64, Violation> {
    let n = bytes.first_chunk::<8>().map(|b| u64::from_le_bytes(*b));
    let n = n.ok_or_else(|| Violation::new("a record without its number"))?;
    if bytes != payload(n, bytes.len() - 8) {
        return Err(Violation::new(format!("record {n} has wrong bytes: {bytes:?}")));
    }
    Ok(n)
}

fn full(error: &log::Error) -> bool {
    use log::Error::{Full, GrownTooOften, Pool};
    use pmem::Error::{NoSpace, Reserve};
    matches!(error, Full { .. } | GrownTooOften { .. } | Pool(NoSpace { .. } | Reserve { .. }))
}

impl Records {
    /// A random workload.
    pub fn new(name: &'static str, threads: usize, frequency: u32) -> Self {
        Self { name, threads, frequency, script: None, adjust: |options| options }
    }

    /// Exactly these operations, each on its thread.
    pub fn script(frequency: u32, ops: Vec<(usize, Op)>) -> Self {
        Self { script: Some(ops), ..Self::new("log-script", 2, frequency) }
    }

    /// Changes how the log is opened, in the program and at recovery.
    #[must_use]
    pub fn adjust(self, adjust: fn(Options) -> Options) -> Self {
        Self { adjust, ..self }
    }

    fn options(&self) -> Options {
        let options = Options::new().bytes(4 * SEGMENT).segment_bytes(SEGMENT).frequency(self.frequency).threads(8);
        (self.adjust)(options.watermark_every(WATERMARK).stream_from(80))
    }

    fn open(&self, sim: &Arc<Sim>) -> log::Result<(Log, Pool, log::Recovered)> {
        let pool = pmem::Options::new().open_on(sim.clone())?;
        let (log, found) = self.options().open_in(&pool, "log")?;
        Ok((log, pool, found))
    }
}

/// LSN and number of each record.
fn read(log: &Log) -> Result<Vec<(u64, u64)>, Violation> {
    let mut records = log.iter();
    let mut all = Vec::new();
    while let Some(record) = records.next().map_err(Violation::detected)? {
        all.push((record.lsn.get(), number(record.payload)?));
    }
    Ok(all)
}

/// What is so from now on.
fn note(effect: Effect, ack: &Ack<Effect>) {
    let ticket = ack.begin(effect);
    ack.commit(ticket);
}

impl Live {
    /// Tickets of what is durable by now.
    fn acknowledge(&self, log: &Log, ack: &Ack<Effect>) -> Result<(), Error> {
        let forced = log.forced().get();
        for record in self.state.lock().map_err(|e| e.to_string())?.iter_mut().filter(|r| r.0 <= forced) {
            if let Some(ticket) = record.2.take() {
                self.commit(ticket, ack);
            }
        }
        self.forced.fetch_max(forced, Relaxed);
        Ok(())
    }

    fn commit(&self, ticket: Ticket, ack: &Ack<Effect>) {
        ack.commit(ticket);
        self.acknowledged.fetch_add(1, Relaxed);
    }

    fn run(&self, log: &Log, op: &Op, ack: &Ack<Effect>) -> Result<(), Error> {
        let appends = u64::from(matches!(op, Op::Append(_) | Op::Batch(_)));
        self.appending.fetch_add(appends, Relaxed);
        let done = self.run_one(log, op, ack);
        self.appending.fetch_sub(appends, Relaxed);
        done?;
        self.acknowledge(log, ack)
    }

    fn run_one(&self, log: &Log, op: &Op, ack: &Ack<Effect>) -> Result<(), Error> {
        match op {
            Op::Append(len) => {
                let n = self.next.fetch_add(1, Relaxed);
                let ticket = ack.begin(Effect::Record(n, self.acknowledged.load(Relaxed)));
                let known = self.forced.load(Relaxed);
                match log.append(&payload(n, *len)) {
                    Ok(lsn) => {
                        // Without a frequency it is durable now, whatever the log says of itself.
                        let waits = log.vulnerability_window().bound > 0;
                        let ticket = if waits {
                            Some(ticket)
                        } else {
                            self.commit(ticket, ack);
                            None
                        };
                        note(Effect::At(n, lsn.get(), known), ack);
                        if !waits {
                            self.forced.fetch_max(lsn.get(), Relaxed);
                        }
                        self.state.lock().map_err(|e| e.to_string())?.push((lsn.get(), n, ticket));
                    }
                    Err(error) if full(&error) => ack.abort(ticket),
                    Err(error) => return Err(error.into()),
                }
            }
            Op::Batch(lengths) => {
                let mut reservations = Vec::new();
                for &len in lengths {
                    match log.reserve(len + 8) {
                        Ok(reservation) => {
                            reservations.push((
                                reservation,
                                self.forced.load(Relaxed),
                                self.acknowledged.load(Relaxed),
                            ));
                        }
                        Err(error) if full(&error) => break,
                        Err(error) => return Err(error.into()),
                    }
                }
                let mut last = Lsn::default();
                for (mut reservation, known, before) in reservations.into_iter().rev() {
                    let n = self.next.fetch_add(1, Relaxed);
                    let ticket = ack.begin(Effect::Record(n, before));
                    let bytes = payload(n, reservation.len() - 8);
                    reservation.copy(0, &bytes);
                    let lsn = reservation.complete()?;
                    note(Effect::At(n, lsn.get(), known), ack);
                    self.state.lock().map_err(|e| e.to_string())?.push((lsn.get(), n, Some(ticket)));
                    last = last.max(lsn);
                }
                if last > Lsn::default() {
                    log.force_now(last)?;
                }
            }
            Op::Skip(len) => match log.reserve(*len) {
                Ok(mut reservation) => reservation.fill(0xee),
                Err(error) if full(&error) => {}
                Err(error) => return Err(error.into()),
            },
            Op::Clean => {
                let mut state = self.state.lock().map_err(|e| e.to_string())?;
                let newest = state.iter().filter(|r| r.2.is_none()).map(|r| r.0).max().unwrap_or(0);
                let gone = |r: &(u64, u64, Option<Ticket>)| r.2.is_none() && r.0 < newest;
                let cleaned: Vec<(u64, u64)> = state.iter().filter(|r| gone(r)).map(|r| (r.0, r.1)).collect();
                state.retain(|r| !gone(r));
                drop(state);
                let ticket = ack.begin(Effect::Cleaned(cleaned.iter().map(|r| r.1).collect()));
                for (lsn, _) in cleaned.iter().rev() {
                    log.discard(Lsn::new(*lsn))?;
                }
                // Watermarks and skipped records between them, which have no number.
                if let Some((lsn, _)) = cleaned.iter().max() {
                    let others = self.state.lock().map_err(|e| e.to_string())?.iter().any(|r| r.0 < *lsn);
                    if !others && self.appending.load(Relaxed) == 0 {
                        log.truncate_to(Lsn::new(*lsn))?;
                    }
                }
                ack.commit(ticket);
            }
            Op::Reclaim => log.reclaim()?,
            Op::Grow => {
                if let Err(error) = log.grow(1)
                    && !full(&error)
                {
                    return Err(error.into());
                }
            }
            Op::Idle => {
                if let Err(error) = log.idle()
                    && !full(&error)
                {
                    return Err(error.into());
                }
            }
            Op::Restart | Op::Close => {}
        }
        Ok(())
    }
}

impl Scenario for Records {
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
        self.options().create_in(&pool, "log")?.close()?;
        Ok(())
    }

    fn start(&self, sim: &Arc<Sim>) -> Result<Live, Error> {
        let (log, pool, _) = self.open(sim)?;
        let open = Opened::new((log, pool));
        Ok(Live {
            sim: sim.clone(),
            open,
            next: 1.into(),
            acknowledged: 0.into(),
            forced: 0.into(),
            state: Mutex::default(),
            appending: 0.into(),
        })
    }

    fn ops(&self, rng: &mut Rng) -> Vec<(usize, Op)> {
        let alone = self.threads == 1;
        let op = |rng: &mut Rng| match rng.below(if alone { 16 } else { 13 }) {
            0..=4 => Op::Append(rng.below(100) as usize),
            5..=7 => Op::Batch((0..=rng.below(3)).map(|_| rng.below(60) as usize).collect()),
            8 => Op::Skip(rng.below(60) as usize),
            9 | 10 => Op::Clean,
            11 => Op::Grow,
            12 => Op::Idle,
            13 => Op::Reclaim,
            14 => Op::Restart,
            _ => Op::Close,
        };
        let random = |rng: &mut Rng| {
            let count = if alone { 14 } else { 8 };
            (0..count).map(|_| (rng.below(self.threads as u64) as usize, op(rng))).collect()
        };
        self.script.clone().unwrap_or_else(|| random(rng))
    }

    fn step(&self, live: &Live, _: usize, op: &Op, ack: &Ack<Effect>) -> Result<(), Error> {
        if matches!(op, Op::Restart | Op::Close) {
            let end = |log: Log, pool| {
                drop(pool);
                if matches!(op, Op::Close) {
                    log.close()?;
                    live.state
                        .lock()
                        .map_err(|e| e.to_string())?
                        .iter_mut()
                        .filter_map(|r| r.2.take())
                        .for_each(|t| live.commit(t, ack));
                } else {
                    drop(log);
                }
                Ok(())
            };
            let open = || {
                let (log, pool, _) = self.open(&live.sim)?;
                // What was not durable came back or did not; what was discarded may have come back.
                let there = read(&log).map_err(|v| v.message)?;
                let mut state = live.state.lock().map_err(|e| e.to_string())?;
                for (_, n, ticket) in state.drain(..) {
                    if let Some(ticket) = ticket {
                        if there.iter().any(|r| r.1 == n) { live.commit(ticket, ack) } else { ack.abort(ticket) }
                    }
                }
                live.forced.fetch_max(there.last().map_or(0, |record| record.0), Relaxed);
                state.extend(there.into_iter().map(|(lsn, n)| (lsn, n, None)));
                Ok((log, pool))
            };
            return live.open.again(end, open);
        }
        let log = live.open.get()?;
        if let Op::Reclaim = op {
            // All that was discarded, by the one thread there is.
            live.run(&log, &Op::Clean, ack)?;
            let kept: Vec<u64> = live.state.lock().map_err(|e| e.to_string())?.iter().map(|r| r.1).collect();
            let gone = (1..live.next.load(Relaxed)).filter(|n| !kept.contains(n)).collect();
            let ticket = ack.begin(Effect::Reclaimed(gone));
            live.run(&log, op, ack)?;
            ack.commit(ticket);
            return Ok(());
        }
        live.run(&log, op, ack)
    }

    fn finish(&self, live: Live) -> Result<(), Error> {
        live.open.close(Log::close)
    }

    fn check(&self, sim: &Arc<Sim>, history: &History<Effect>) -> Result<Vec<u64>, Violation> {
        let (log, _pool, found) = self.open(sim).map_err(Violation::detected)?;
        let all = read(&log)?;
        let there: Vec<(u64, u64)> = all.iter().copied().filter(|r| r.1 < PROBE).collect();
        let survived: Vec<u64> = there.iter().map(|r| r.1).collect();
        let planted = sim.planted().filter(|_| !found.was_closed);
        let lost = held(&there, found.tail, history, planted, self.threads)?;
        let _witness = Witness::of(survived.iter().fold(0, |seen: u64, n| seen.wrapping_mul(31).wrapping_add(*n)))?;
        for len in [0, 41] {
            let before = log.stats().next.get();
            match log.append(&payload(PROBE + before, len)) {
                Err(error) if full(&error) => break,
                Err(error) => return Err(Violation::detected(error)),
                Ok(lsn) => {
                    log.force_now(lsn).map_err(Violation::detected)?;
                    if all.is_empty() && len == 0 {
                        // Nothing of the program's is there, so the head may go on, to where a torn record's follower may stand.
                        log.truncate_to(lsn).map_err(Violation::detected)?;
                        log.reclaim().map_err(Violation::detected)?;
                    }
                }
            }
        }
        gone_unnoticed(lost, "records")?;
        Ok(survived)
    }
}

/// What was promised, against what is there: of a log that was not closed, with a fault planted, the last records may be missing, with all behind them; how many are?
fn held(
    found: &[(u64, u64)],
    tail: Tail,
    history: &History<Effect>,
    planted: Option<FaultKind>,
    threads: usize,
) -> Result<usize, Violation> {
    let survived: Vec<u64> = found.iter().map(|r| r.1).collect();
    let (mut positions, mut known) = (BTreeMap::new(), BTreeMap::new());
    let (mut there, mut gone, mut back, mut witnessed) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for effect in &history.acknowledged {
        match effect {
            Effect::Record(n, before) => {
                there.push(*n);
                witnessed = witnessed.max(*before);
            }
            Effect::At(n, lsn, forced) => drop(positions.insert(*n, (*lsn, *forced))),
            Effect::Cleaned(numbers) => gone.extend(numbers.iter().copied()),
            Effect::Reclaimed(numbers) => back.extend(numbers.iter().copied()),
        }
    }
    let mut doubt = Vec::new();
    for effect in &history.in_doubt {
        match effect {
            Effect::Record(n, _) => doubt.push(*n),
            Effect::At(..) => {}
            Effect::Cleaned(numbers) | Effect::Reclaimed(numbers) => gone.extend(numbers.iter().copied()),
        }
    }
    if let Some(n) = survived.iter().find(|n| back.contains(n)) {
        return Err(Violation::new(format!("record {n} came back after it was reclaimed: {survived:?}")));
    }
    if let Some(n) = survived.iter().find(|n| !there.contains(n) && !doubt.contains(n)) {
        return Err(Violation::new(format!("record {n} was never appended, or was given up: {survived:?}")));
    }
    let twice = survived.iter().enumerate().find(|(i, n)| survived[i + 1..].contains(n));
    if let Some((_, n)) = twice {
        return Err(Violation::new(format!("record {n} is there twice: {survived:?}")));
    }
    let kept = |n: &u64| survived.contains(n) || gone.contains(n) || back.contains(n);
    for (lsn, forced) in there.iter().filter_map(|n| positions.get(n)) {
        known.insert(*lsn, *forced);
    }
    let lost: Vec<(usize, u64)> = there.into_iter().enumerate().filter(|(_, n)| !kept(n)).collect();
    let Some((first, _)) = lost.first() else { return Ok(0) };
    let end = found.last().map_or(0, |r| r.0);
    let every = WATERMARK * threads as u64;
    let at_end =
        lost.iter().all(|(_, n)| positions.get(n).is_some_and(|(lsn, _)| *lsn > end && !is_told(*lsn, &known, every)));
    // A bit of what was forced last looks like a torn record; recovery must say so. Unless a later record tells: then it is an error.
    let is_said =
        planted != Some(FaultKind::Flip) || matches!(tail, Tail::InDoubt { .. }) && *first as u64 >= witnessed;
    if planted.is_none() || !at_end || !is_said {
        return Err(Violation::new(format!("records {lost:?} were durable, {known:?}; there are {found:?}, {tail:?}")));
    }
    Ok(lost.len())
}
