//! Appends and reservations of a log, what cleans it up, and what reads it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use crash::{Ack, Error, History, Rng, Scenario, Sim, Ticket, Violation, Witness};
use log::{Log, Lsn, Options, Recovered, Reservation};
use pmem::Pool;

use super::{ACTORS, some};
use crate::faults::{gone_unnoticed, is_told};

const SEGMENT: u64 = 256;
/// Records for one watermark.
const WATERMARK: u64 = 2;
/// Records of the check itself have numbers from here on.
const PROBE: u64 = 1 << 32;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident)*) => {
        /// What an actor does next.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "named after the functions")]
        pub enum Kind { $($(#[$doc])* $kind),* }
        const KINDS: &[Kind] = &[$(Kind::$kind),*];
    };
}

kinds! {
    Append
    /// The actor's reservation begins.
    Reserve
    /// It is completed.
    Complete
    /// It is given up.
    GiveUp
    Force ForceNow Post Iter IterFrom Discard TruncateTo TruncateAll Reclaim Grow Idle Stats
}

/// One operation: which, and with what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Act {
    /// Which.
    pub kind: Kind,
    /// A record's length.
    pub len: usize,
    /// One of the records there are, counted from the oldest.
    pub record: usize,
}

/// What happens next.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Reservations side by side: whose turn it is, and what it does. Those open at the end are given up.
    Together(Vec<(usize, Act)>),
    /// The log is closed, or not, and opened again.
    Reopen(bool),
}

/// What was promised.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// This record, by its LSN, is there with this number, until it is discarded. The LSN is 0 as long as it is not known.
    Record(u64, u64),
    /// These LSNs may be gone.
    Cleaned(Vec<u64>),
    /// Nothing through this LSN is there any more.
    Gone(u64),
    /// When this record was reserved, everything through that LSN was known to be durable.
    Reserved(u64, u64),
}

/// Generated workloads of a log that is forced every so many records.
#[derive(Clone)]
pub struct EveryLog {
    name: &'static str,
    frequency: u32,
    script: Option<Vec<Op>>,
    adjust: fn(Options) -> Options,
}

/// The open log, and what is in it.
pub struct Live {
    sim: Arc<Sim>,
    open: Mutex<Option<(Log, Pool)>>,
    model: Mutex<Model>,
}

#[derive(Default)]
struct Model {
    next: u64,
    /// By LSN: its number, and whether it is discarded.
    records: BTreeMap<u64, (u64, bool)>,
    /// Complete, and not known to be durable.
    tickets: BTreeMap<u64, Ticket>,
    /// Reserved, and neither complete nor given up: forces end in front of them.
    reserved: BTreeMap<u64, u64>,
    /// Cleaned up: through this LSN, and one by one; and the last that is reclaimed.
    through: u64,
    cleaned: BTreeSet<u64>,
    gone: u64,
    forced: u64,
    grown: u32,
}

impl Model {
    /// A record is reserved, and so much is durable.
    fn is_reserved(&self, lsn: u64, ack: &Ack<Effect>) {
        let ticket = ack.begin(Effect::Reserved(lsn, self.forced));
        ack.commit(ticket);
    }

    fn kept(&self) -> Vec<(u64, u64)> {
        self.records.iter().filter(|(_, (_, cleaned))| !cleaned).map(|(lsn, (n, _))| (*lsn, *n)).collect()
    }
}

fn payload(n: u64, len: usize) -> Vec<u8> {
    n.to_le_bytes().iter().copied().chain((0..len).map(|at| (n as usize * 37 + at) as u8)).collect()
}

fn number(bytes: &[u8]) -> Result<u64, String> {
    let n = bytes.first_chunk::<8>().map(|b| u64::from_le_bytes(*b)).ok_or("a record without its number")?;
    if bytes == payload(n, bytes.len() - 8) { Ok(n) } else { Err(format!("record {n} has wrong bytes: {bytes:?}")) }
}

fn read(mut records: log::Iter<'_>) -> Result<Vec<(u64, u64)>, Error> {
    let mut all = Vec::new();
    while let Some(record) = records.next()? {
        all.push((record.lsn.get(), number(record.payload)?));
    }
    Ok(all)
}

/// It may be, as long as what is in it is not discarded; then it must not.
fn full(error: &log::Error) -> bool {
    matches!(error, log::Error::Full { .. })
}

fn wrong<T>(what: impl Into<String>) -> Result<T, Error> {
    Err(what.into().into())
}

impl EveryLog {
    /// Workloads of a log of which at most so many records, less one, are at risk.
    pub fn new(name: &'static str, frequency: u32) -> Self {
        Self { name, frequency, script: None, adjust: |options| options }
    }

    /// Exactly these operations.
    pub fn script(frequency: u32, ops: Vec<Op>) -> Self {
        Self { script: Some(ops), ..Self::new("log-every-script", frequency) }
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

    fn open(&self, sim: &Arc<Sim>) -> log::Result<(Log, Pool, Recovered)> {
        let pool = pmem::Options::new().open_on(sim.clone())?;
        let (log, found) = self.options().open_in(&pool, "log")?;
        Ok((log, pool, found))
    }
}

fn drawn(rng: &mut Rng) -> Vec<Op> {
    let writes = some(rng, &[Kind::Append, Kind::Reserve, Kind::Complete, Kind::GiveUp]);
    let others = some(rng, &KINDS[Kind::Force as usize..]);
    let actors = 1 + rng.index(ACTORS);
    let long = [30, 90][rng.index(2)];
    let mut ops = Vec::new();
    for _ in 0..5 {
        let mut acts = Vec::new();
        for _ in 0..3 + rng.below(9) {
            let kind = match rng.below(5) {
                0 => others[rng.index(others.len())],
                1 => [Kind::Complete, Kind::Append][rng.index(2)],
                2 if rng.chance(1, 2) => [Kind::TruncateTo, Kind::Discard, Kind::Force][rng.index(3)],
                _ => writes[rng.index(writes.len())],
            };
            acts.push((rng.index(actors), Act { kind, len: rng.index(long), record: rng.index(12) }));
        }
        ops.push(Op::Together(acts));
        if rng.chance(1, 2) {
            ops.push(Op::Reopen(rng.chance(1, 2)));
        }
    }
    ops
}

impl Live {
    fn model(&self) -> std::sync::MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Tickets of what is durable by now.
    fn acknowledge(&self, log: &Log, ack: &Ack<Effect>) -> Result<(), Error> {
        let (forced, mut model) = (log.forced().get(), self.model());
        if let Some((lsn, _)) = model.reserved.first_key_value()
            && forced >= *lsn
        {
            return wrong(format!("forced through {forced}, and {lsn} is only reserved"));
        }
        let behind = model.tickets.split_off(&(forced + 1));
        std::mem::replace(&mut model.tickets, behind).into_values().for_each(|ticket| ack.commit(ticket));
        model.forced = model.forced.max(forced);
        Ok(())
    }

    fn act<'l>(
        &self,
        log: &'l Log,
        held: &mut Option<Reservation<'l>>,
        act: &Act,
        ack: &Ack<Effect>,
    ) -> Result<(), Error> {
        let records: Vec<u64> = self.model().records.keys().copied().filter(|lsn| *lsn <= log.forced().get()).collect();
        let one = records.get(act.record % records.len().max(1)).copied();
        match act.kind {
            // Behind a reservation of the same thread it would wait for it.
            Kind::Append if !self.model().reserved.is_empty() => {}
            Kind::Append => {
                let mut model = self.model();
                model.next += 1;
                let n = model.next;
                drop(model);
                let ticket = ack.begin(Effect::Record(0, n));
                match log.append(&payload(n, act.len)) {
                    Ok(lsn) => {
                        self.model().is_reserved(lsn.get(), ack);
                        ack.abort(ticket);
                        let ticket = ack.begin(Effect::Record(lsn.get(), n));
                        // Without a frequency it is durable now, whatever the log says of itself.
                        if log.vulnerability_window().bound == 0 {
                            ack.commit(ticket);
                            let mut model = self.model();
                            model.forced = model.forced.max(lsn.get());
                        } else {
                            self.model().tickets.insert(lsn.get(), ticket);
                        }
                        self.model().records.insert(lsn.get(), (n, false));
                    }
                    Err(e) => {
                        self.is_full(log, e)?; // otherwise it stays in doubt
                        ack.abort(ticket);
                    }
                }
            }
            Kind::Reserve if held.is_none() => match log.reserve(8 + act.len) {
                Ok(reservation) => {
                    let mut model = self.model();
                    model.next += 1;
                    let n = model.next;
                    model.reserved.insert(reservation.lsn().get(), n);
                    model.is_reserved(reservation.lsn().get(), ack);
                    drop(model);
                    *held = Some(reservation);
                }
                Err(e) => self.is_full(log, e)?,
            },
            Kind::Complete => {
                if let Some(mut reservation) = held.take() {
                    let lsn = reservation.lsn();
                    let n = self.model().reserved.remove(&lsn.get()).ok_or("not reserved")?;
                    let bytes = payload(n, reservation.len() - 8);
                    reservation.copy(0, &bytes);
                    // No crash shows it before.
                    self.sim.observe();
                    let ticket = ack.begin(Effect::Record(lsn.get(), n));
                    self.model().tickets.insert(lsn.get(), ticket);
                    if reservation.complete()? != lsn {
                        return wrong(format!("record {n} was to be at {lsn:?}"));
                    }
                    self.model().records.insert(lsn.get(), (n, false));
                }
            }
            Kind::GiveUp => {
                if let Some(mut reservation) = held.take() {
                    reservation.fill(0xEE);
                    self.model().reserved.remove(&reservation.lsn().get());
                }
            }
            Kind::Force | Kind::ForceNow => {
                // As far as no reservation of this thread is still to be completed.
                let end = self.model().reserved.first_key_value().map_or(u64::MAX, |(lsn, _)| *lsn - 1);
                let last = self.model().records.keys().copied().rfind(|lsn| *lsn <= end);
                if let Some(last) = last {
                    let lsn = Lsn::new(last);
                    if act.kind == Kind::Force {
                        log.force(lsn)?
                    } else {
                        log.force_now(lsn)?
                    }
                    if act.kind == Kind::ForceNow && log.forced() < lsn {
                        return wrong(format!("forced through {lsn:?} now, and only {:?} is", log.forced()));
                    }
                }
            }
            Kind::Post => log.post()?,
            Kind::Iter | Kind::IterFrom => {
                let from = if act.kind == Kind::Iter { 0 } else { one.unwrap_or(0) };
                let records = if from == 0 { log.iter() } else { log.iter_from(Lsn::new(from)) };
                let found = read(records)?;
                let forced = log.forced().get();
                let right: Vec<_> = self.model().kept().into_iter().filter(|r| r.0 >= from && r.0 <= forced).collect();
                // What is discarded out of turn may still be shown.
                let missing = right.iter().find(|record| !found.contains(record));
                let unknown = found.iter().find(|r| self.model().records.get(&r.0).is_none_or(|known| known.0 != r.1));
                if missing.is_some() || unknown.is_some() || !found.is_sorted() {
                    return wrong(format!("from {from} on there are {found:?}, and should be {right:?}"));
                }
            }
            Kind::Discard | Kind::TruncateTo => {
                let Some(lsn) = one else { return Ok(()) };
                let of = if act.kind == Kind::Discard { lsn..=lsn } else { 0..=lsn };
                let gone: Vec<u64> = self.model().records.range(of).map(|(lsn, _)| *lsn).collect();
                let ticket = ack.begin(Effect::Cleaned(gone.clone()));
                if act.kind == Kind::Discard {
                    log.discard(Lsn::new(lsn))?
                } else {
                    log.truncate_to(Lsn::new(lsn))?
                }
                ack.commit(ticket);
                let mut model = self.model();
                model.records.iter_mut().filter(|(lsn, _)| gone.contains(lsn)).for_each(|(_, r)| r.1 = true);
                if act.kind == Kind::Discard {
                    model.cleaned.insert(lsn);
                } else {
                    model.through = model.through.max(lsn);
                }
            }
            Kind::TruncateAll if self.model().reserved.is_empty() => {
                self.acknowledge_all(log, ack)?;
                let last = log.stats().next.get() - 1;
                let all: Vec<u64> = self.model().records.keys().copied().collect();
                let cleaned = ack.begin(Effect::Cleaned(all));
                log.truncate_all()?;
                ack.commit(cleaned);
                self.gone(last, ack);
            }
            Kind::Reclaim => {
                log.reclaim()?;
                // Through the first that is not discarded: also one that was given up, or a watermark.
                let model = self.model();
                let last = (model.through + 1..).take_while(|lsn| model.cleaned.contains(lsn)).last();
                let last = last.unwrap_or(model.through);
                drop(model);
                self.gone(last, ack);
            }
            Kind::Grow if self.model().grown < 3 => {
                self.model().grown += 1;
                log.grow(1)?;
            }
            Kind::Idle if self.model().reserved.is_empty() => {
                if let Err(e) = log.idle() {
                    self.is_full(log, e)?;
                }
            }
            _ => drop(log.stats()),
        }
        self.acknowledge(log, ack)
    }

    fn acknowledge_all(&self, log: &Log, ack: &Ack<Effect>) -> Result<(), Error> {
        if let Some((lsn, _)) = self.model().tickets.last_key_value() {
            log.force_now(Lsn::new(*lsn))?;
        }
        self.acknowledge(log, ack)
    }

    /// Nothing through here comes back.
    fn gone(&self, last: u64, ack: &Ack<Effect>) {
        let ticket = ack.begin(Effect::Gone(last));
        ack.commit(ticket);
        let mut model = self.model();
        model.records.retain(|lsn, _| *lsn > last);
        (model.through, model.gone) = (model.through.max(last), model.gone.max(last));
    }

    /// A log is full where something in it is needed, or a reservation is about to be written.
    fn is_full(&self, log: &Log, error: log::Error) -> Result<(), Error> {
        let model = self.model();
        let needed = !model.kept().is_empty() || !model.reserved.is_empty();
        if full(&error) && needed { Ok(()) } else { wrong(format!("{error}: {:?}", log.stats())) }
    }
}

impl Scenario for EveryLog {
    type Op = Op;
    type Effect = Effect;
    type State = Vec<(u64, u64)>;
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
        Ok(Live { sim: sim.clone(), open: Mutex::new(Some((log, pool))), model: Mutex::default() })
    }

    fn ops(&self, rng: &mut Rng) -> Vec<(usize, Op)> {
        self.script.clone().unwrap_or_else(|| drawn(rng)).into_iter().map(|op| (0, op)).collect()
    }

    fn step(&self, live: &Live, _: usize, op: &Op, ack: &Ack<Effect>) -> Result<(), Error> {
        let mut open = live.open.lock().map_err(|e| e.to_string())?;
        let clean = match op {
            Op::Together(acts) => {
                let log = &open.as_ref().ok_or("closed")?.0;
                let mut held: [Option<Reservation<'_>>; ACTORS] = [const { None }; ACTORS];
                let done = acts.iter().try_for_each(|(who, act)| live.act(log, &mut held[*who], act, ack));
                drop(held);
                live.model().reserved.clear();
                return done;
            }
            Op::Reopen(clean) => *clean,
        };
        let (log, pool) = open.take().ok_or("closed")?;
        let forced = log.forced().get();
        drop(pool);
        if clean {
            log.close()?;
            std::mem::take(&mut live.model().tickets).into_values().for_each(|ticket| ack.commit(ticket));
        } else {
            log.abandon();
        }
        let (log, pool, _) = self.open(&live.sim)?;
        let there = read(log.iter())?;
        let mut model = live.model();
        let kept = model.kept();
        let lost = kept.iter().find(|record| (clean || record.0 <= forced) && !there.contains(record));
        if let Some(lost) = lost {
            return wrong(format!("{lost:?} was forced, and there are {there:?}"));
        }
        // What was not durable came back or did not; what was discarded may have come back.
        for (lsn, ticket) in std::mem::take(&mut model.tickets) {
            if there.iter().any(|record| record.0 == lsn) { ack.commit(ticket) } else { ack.abort(ticket) }
        }
        for &(lsn, n) in there.iter().filter(|(lsn, _)| model.records.get(lsn).is_some_and(|record| record.1)) {
            let ticket = ack.begin(Effect::Record(lsn, n)); // it came back, and stays
            ack.commit(ticket);
        }
        model.forced = model.forced.max(there.last().map_or(0, |record| record.0));
        model.records = there.into_iter().map(|(lsn, n)| (lsn, (n, false))).collect();
        model.cleaned.clear();
        model.through = model.gone;
        drop(model);
        *open = Some((log, pool));
        Ok(())
    }

    fn finish(&self, live: Live) -> Result<(), Error> {
        if let Some((log, pool)) = live.open.into_inner().map_err(|e| e.to_string())? {
            drop(pool);
            log.close()?;
        }
        Ok(())
    }

    fn check(&self, sim: &Arc<Sim>, history: &History<Effect>) -> Result<Vec<(u64, u64)>, Violation> {
        let (log, _pool, open) = self.open(sim).map_err(Violation::detected)?;
        let all = read(log.iter()).map_err(|e| Violation::detected(e.to_string()))?;
        let found: Vec<(u64, u64)> = all.iter().copied().filter(|record| record.1 < PROBE).collect();
        let is_short = !open.was_closed && sim.planted().is_some();
        let lost = held(&found, history, is_short)?;
        let seen = found.iter().fold(7, |seen: u64, (lsn, n)| (seen.wrapping_mul(31) ^ lsn).wrapping_mul(31) ^ n);
        let _witness = Witness::of(seen)?;
        for len in [0, 41] {
            let n = PROBE + log.stats().next.get();
            match log.append(&payload(n, len)) {
                // Only the program's records may fill it.
                Err(error) if full(&error) && !found.is_empty() => break,
                Err(error) => return Err(Violation::detected(error)),
                Ok(lsn) => {
                    log.force_now(lsn).map_err(Violation::detected)?;
                    if found.is_empty() && len == 0 {
                        log.truncate_to(lsn).map_err(Violation::detected)?;
                        log.reclaim().map_err(Violation::detected)?;
                    }
                }
            }
        }
        gone_unnoticed(lost, "records")?;
        Ok(found)
    }
}

/// What was acknowledged and is not discarded is there, what is gone is not, and behind the last that was acknowledged are only such as were on their way. But of a log that
/// may be short of its end the last ones may be missing, with all behind them, of which no watermark tells: how many are?
fn held(found: &[(u64, u64)], history: &History<Effect>, is_short: bool) -> Result<usize, Violation> {
    let mut known = BTreeMap::new();
    let (mut there, mut doubt, mut cleaned, mut gone) = (BTreeMap::new(), Vec::new(), BTreeSet::<u64>::new(), 0);
    for (sure, effect) in
        history.acknowledged.iter().map(|e| (true, e)).chain(history.in_doubt.iter().map(|e| (false, e)))
    {
        match effect {
            Effect::Record(lsn, n) if sure => {
                there.insert(*lsn, *n);
                cleaned.remove(lsn);
            }
            Effect::Record(lsn, n) => doubt.push((*lsn, *n)),
            Effect::Cleaned(lsns) => cleaned.extend(lsns),
            Effect::Gone(lsn) => gone = gone.max(*lsn),
            Effect::Reserved(lsn, forced) => drop(known.insert(*lsn, *forced)),
        }
    }
    for (lsn, n) in found {
        if *lsn <= gone {
            return Err(Violation::new(format!("record {n} at {lsn} came back after it was reclaimed")));
        }
        if there.get(lsn) != Some(n) && !doubt.contains(&(*lsn, *n)) && !doubt.contains(&(0, *n)) {
            return Err(Violation::new(format!("record {n} at {lsn} was never appended, or was given up: {found:?}")));
        }
    }
    if found.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
        return Err(Violation::new(format!("records are not in order: {found:?}")));
    }
    let kept = |(lsn, n): (&u64, &u64)| *lsn <= gone || cleaned.contains(lsn) || found.contains(&(*lsn, *n));
    let lost: Vec<(&u64, &u64)> = there.iter().filter(|record| !kept(*record)).collect();
    let Some((lsn, n)) = lost.first() else { return Ok(0) };
    known.retain(|lsn, _| there.contains_key(lsn));
    if !is_short || is_told(**lsn, &known, WATERMARK) || found.iter().any(|record| record.0 >= **lsn) {
        return Err(Violation::new(format!("record {n} at {lsn} was durable, {known:?}; there are {found:?}")));
    }
    Ok(lost.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log of five records, appended one by one, of which these are found.
    fn lost(found: &[u64], is_short: bool) -> Result<usize, Violation> {
        let of = |lsn| [Effect::Reserved(lsn, lsn - 1), Effect::Record(lsn, lsn + 10)];
        let history = History { acknowledged: (1..=5).flat_map(of).collect(), in_doubt: Vec::new() };
        held(&found.iter().map(|lsn| (*lsn, lsn + 10)).collect::<Vec<_>>(), &history, is_short)
    }

    #[test]
    fn an_end_may_be_gone_and_no_more() {
        assert_eq!(lost(&[1, 2, 3, 4, 5], false), Ok(0));
        assert!(lost(&[1, 2, 3, 4], false).is_err(), "of a log that was closed, or had no fault");
        assert_eq!(lost(&[1, 2, 3, 4], true), Ok(1));
        assert_eq!(lost(&[1, 2, 3], true), Ok(2));
        assert!(lost(&[1, 2], true).is_err(), "more than the watermark leaves out");
        assert!(lost(&[1, 2, 3, 5], true).is_err(), "a hole");
    }
}
