//! An array of two members: what a transaction wrote is there in all its places, or in none, in the order of commits; so is what a nested top action wrote, whatever becomes of
//! its outer transaction; what was rolled back is nowhere. A thread that reads meanwhile sees both halves of a transaction or neither.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, RwLock};

use crash::{Ack, Error, History, Rng, Scenario, Sim, Ticket, Violation, Witness};
use eaw::array::{Array, File, Options, Transaction};
use pmem::Pool;

const STRIPE: u64 = 64;
/// Two stripes on each member.
const BYTES: u64 = 4 * STRIPE;
/// What the check itself writes.
const PROBE: u64 = 2 * STRIPE;
/// Two words that always change together, one on each member.
const PAIR: u64 = STRIPE - 8;
const EDITED: u8 = 0x80;

/// Writes of all kinds, by one thread or two.
#[derive(Clone)]
pub struct Arrayed {
    name: &'static str,
    threads: usize,
    script: Option<Vec<(usize, Op)>>,
    adjust: Vec<fn(Options) -> Options>,
}

/// A range of the file.
pub type Range = (u64, u64);

/// Where, and which bytes.
type Writes = Vec<(u64, Vec<u8>)>;

/// One operation.
#[derive(Clone, Debug)]
pub enum Op {
    /// These are logged and committed.
    Write(Vec<Range>),
    /// The same, and half of each is edited before the commit.
    Edit(Vec<Range>),
    /// The first stays, the second is rolled back.
    Rollback(Vec<Range>, Vec<Range>),
    /// The second is a nested top action of the first, which then commits, or is aborted.
    Nested(Vec<Range>, Vec<Range>, bool),
    /// The first on a place of the thread's own, too, which it reads back.
    Own(Vec<Range>),
    /// All members but one checksum it, then the process ends.
    InPart(Vec<Range>),
    /// A whole stripe, in one piece if the medium takes it so.
    Whole(u64),
    /// Both words of the pair.
    Pair,
    /// Reads the pair: one value.
    Look,
    /// Nothing of it happens.
    Abort(Vec<Range>),
    /// Nothing is left in the logs.
    Checkpoint,
    /// Drop everything and open again.
    Restart,
    /// Close, and open again.
    Close,
}

/// What was promised.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Transaction n wrote these bytes.
    Wrote(u64, Writes),
    /// Its number in the order of commits.
    At(u64, u64),
}

/// The open array.
pub struct Live {
    sim: Arc<Sim>,
    open: RwLock<Option<(Array, File, Pool)>>,
    next: AtomicU64,
}

impl Arrayed {
    /// A random workload.
    pub fn new(name: &'static str, threads: usize) -> Self {
        Self { name, threads, script: None, adjust: Vec::new() }
    }

    /// Exactly these operations, each on its thread.
    pub fn script(ops: Vec<(usize, Op)>) -> Self {
        let threads = ops.iter().map(|(thread, _)| thread + 1).max().unwrap_or(1);
        Self { script: Some(ops), ..Self::new("array-script", threads) }
    }

    /// Changes how the array is opened, in the program and at recovery; beside what was said before.
    #[must_use]
    pub fn adjust(mut self, adjust: fn(Options) -> Options) -> Self {
        self.adjust.push(adjust);
        self
    }

    /// As on files: slots that have room for some of what the transactions write, and what is durable stays in the log.
    pub fn as_on_files(options: Options) -> Options {
        options.late(true).slot_bytes(256)
    }

    fn options(&self) -> Options {
        let options = Options::new().stripe_bytes(STRIPE).log_bytes(4096).log_max(4096).transactions(8).entries(4);
        self.adjust.iter().fold(options, |options, adjust| adjust(options))
    }

    fn open(&self, sim: &Arc<Sim>) -> eaw::Result<(Array, File, Pool)> {
        let pool = pmem::Options::new().open_on(sim.clone())?;
        let array = self.options().open_in(std::slice::from_ref(&pool))?;
        let file = array.file("pages")?;
        Ok((array, file, pool))
    }
}

/// The bytes that transaction `n` writes there.
fn bytes(n: u64, len: u64) -> Vec<u8> {
    vec![n as u8; len as usize]
}

/// Logs all of them; returns what is then to be there.
fn log(tx: &mut Transaction<'_>, file: &File, n: u64, ranges: &[Range], edits: bool) -> eaw::Result<Writes> {
    let mut wrote = Vec::new();
    for &(offset, len) in ranges {
        let mut bytes = bytes(n, len);
        let entry = tx.log_write(file, offset, &bytes)?;
        if edits {
            let half = len / 2;
            bytes[half as usize..].fill(n as u8 | EDITED);
            tx.edit(&entry, half, &bytes[half as usize..])?;
        }
        wrote.push((offset, bytes));
    }
    Ok(wrote)
}

/// Where in the order of commits: what has no number of its own is behind the last that has, in the order in which it came.
fn position(sequence: u64, n: u64) -> u64 {
    sequence << 20 | n
}

/// An error if the words of the pair differ.
fn look(array: &Array) -> Result<(), Error> {
    let mut pair = [0; 16];
    array.read(&array.file("pairs")?, PAIR, &mut pair)?;
    if pair.iter().any(|byte| *byte != pair[0]) {
        return Err(format!("half of a transaction: {pair:?}").into());
    }
    Ok(())
}

fn is_full(error: &eaw::Error) -> bool {
    matches!(error, eaw::Error::LogFull { .. } | eaw::Error::TooManyTransactions { .. })
}

impl Live {
    fn run(&self, array: &Array, file: &File, thread: usize, op: &Op, ack: &Ack<Effect>) -> Result<(), Error> {
        let done = |ticket: Ticket, n: u64, committed: eaw::Result<eaw::array::Committed<'_>>| -> Result<(), Error> {
            match committed {
                Ok(committed) => {
                    let at = ack.begin(Effect::At(n, position(committed.sequence(), 0)));
                    ack.commit(at);
                    ack.commit(ticket);
                    Ok(())
                }
                Err(error) if is_full(&error) => {
                    ack.abort(ticket);
                    Ok(())
                }
                Err(error) => Err(error.into()),
            }
        };
        let n = self.next.fetch_add(2, Relaxed);
        let mut tx = array.begin()?;
        match op {
            Op::Write(ranges) | Op::Edit(ranges) => {
                let wrote = log(&mut tx, file, n, ranges, matches!(op, Op::Edit(_)))?;
                let ticket = ack.begin(Effect::Wrote(n, wrote));
                done(ticket, n, tx.commit())?;
            }
            Op::Rollback(first, second) => {
                let wrote = log(&mut tx, file, n, first, false)?;
                let savepoint = tx.savepoint();
                log(&mut tx, file, n + 1, second, false)?;
                tx.rollback_to(savepoint)?;
                let ticket = ack.begin(Effect::Wrote(n, wrote));
                done(ticket, n, tx.commit())?;
            }
            Op::Nested(first, second, commits) => {
                let outer = log(&mut tx, file, n, first, false)?;
                let savepoint = tx.savepoint();
                let inner = log(&mut tx, file, n + 1, second, false)?;
                let ticket = ack.begin(Effect::Wrote(n + 1, inner));
                let sequence = match tx.nested_top(savepoint) {
                    Ok(sequence) => sequence,
                    Err(eaw::Error::OuterWrite { .. }) => {
                        ack.abort(ticket);
                        return Ok(());
                    }
                    Err(error) if is_full(&error) => {
                        ack.abort(ticket);
                        return Ok(());
                    }
                    Err(error) => return Err(error.into()),
                };
                let at = ack.begin(Effect::At(n + 1, position(sequence, 0)));
                ack.commit(at);
                ack.commit(ticket);
                if *commits {
                    let ticket = ack.begin(Effect::Wrote(n, outer));
                    done(ticket, n, tx.commit())?;
                }
            }
            Op::Own(ranges) => {
                let own = (BYTES / 2 + thread as u64 * 8, 8);
                let ranges: Vec<Range> = ranges.iter().copied().chain([own]).collect();
                let wrote = log(&mut tx, file, n, &ranges, false)?;
                let ticket = ack.begin(Effect::Wrote(n, wrote));
                done(ticket, n, tx.commit())?;
                let mut back = vec![0; 8];
                array.read(file, own.0, &mut back)?;
                if back != bytes(n, 8) {
                    return Err(format!("transaction {n} is committed, and {back:?} is there").into());
                }
            }
            Op::Whole(stripe) => {
                let (offset, bytes) = (stripe * STRIPE, bytes(n, STRIPE));
                let ticket = ack.begin(Effect::Wrote(n, vec![(offset, bytes.clone())]));
                array.atomic_write(file, offset, &bytes)?;
                let at = ack.begin(Effect::At(n, position(array.status().last, n)));
                ack.commit(at);
                ack.commit(ticket);
            }
            Op::Pair => {
                let pair = array.file("pairs")?;
                tx.log_write(&pair, PAIR, &bytes(n, 16))?;
                match tx.commit() {
                    Err(error) if !is_full(&error) => return Err(error.into()),
                    _ => {}
                }
            }
            Op::Look => look(array)?,
            Op::InPart(ranges) => {
                log(&mut tx, file, n, ranges, false)?;
                match tx.commit_in_part() {
                    eaw::Error::Stopped => {}
                    // The device was made to fail.
                    error => return Err(error.into()),
                }
            }
            Op::Abort(ranges) => {
                log(&mut tx, file, n, ranges, false)?;
                tx.abort();
            }
            Op::Checkpoint => array.checkpoint()?,
            Op::Restart | Op::Close => {}
        }
        Ok(())
    }
}

fn ranges(rng: &mut Rng) -> Vec<Range> {
    let range = |rng: &mut Rng| {
        let offset = rng.below(BYTES);
        (offset, rng.below((BYTES - offset).min(100)) + 1)
    };
    (0..=rng.below(3)).map(|_| range(rng)).collect()
}

impl Scenario for Arrayed {
    type Op = Op;
    type Effect = Effect;
    type State = Vec<u8>;
    type Live = Live;

    fn name(&self) -> &str {
        self.name
    }

    fn capacity(&self) -> u64 {
        128 << 10
    }

    fn setup(&self, sim: &Arc<Sim>) -> Result<(), Error> {
        let pool = pmem::Options::new().size(64 << 10).create_on(sim.clone())?;
        let array = self.options().create_in(&[pool.clone(), pool.clone()])?;
        array.create_file("pages", BYTES)?;
        array.create_file("probe", PROBE)?;
        array.create_file("pairs", PROBE)?;
        drop(pool);
        array.close()?;
        Ok(())
    }

    fn start(&self, sim: &Arc<Sim>) -> Result<Live, Error> {
        let open = RwLock::new(Some(self.open(sim)?));
        Ok(Live { sim: sim.clone(), open, next: 1.into() })
    }

    fn ops(&self, rng: &mut Rng) -> Vec<(usize, Op)> {
        let (alone, whole) = (self.threads == 1, self.name == "array-whole");
        let op = |rng: &mut Rng| match rng.below(if alone { 15 } else { 13 }) {
            0..=4 if whole => Op::Whole(rng.below(BYTES / STRIPE)),
            11 | 12 if !alone => {
                if rng.below(2) == 0 {
                    Op::Pair
                } else {
                    Op::Look
                }
            }
            0..=3 => Op::Write(ranges(rng)),
            4 | 5 => Op::Edit(ranges(rng)),
            6 => Op::Rollback(ranges(rng), ranges(rng)),
            7 | 8 => Op::Nested(ranges(rng), ranges(rng), rng.below(2) == 0),
            9 => Op::Abort(ranges(rng)),
            10 | 11 => Op::Checkpoint,
            12 => Op::Restart,
            13 => Op::InPart(ranges(rng)),
            _ => Op::Close,
        };
        let random = |rng: &mut Rng| {
            let count = if alone { 12 } else { 7 };
            (0..count).map(|_| (rng.below(self.threads as u64) as usize, op(rng))).collect()
        };
        self.script.clone().unwrap_or_else(|| random(rng))
    }

    fn step(&self, live: &Live, thread: usize, op: &Op, ack: &Ack<Effect>) -> Result<(), Error> {
        if matches!(op, Op::Restart | Op::Close) {
            let mut open = live.open.write().map_err(|e| e.to_string())?;
            let (array, _, pool) = open.take().ok_or("closed")?;
            drop(pool);
            if matches!(op, Op::Close) {
                array.close()?
            } else {
                drop(array)
            }
            *open = Some(self.open(&live.sim)?);
            return Ok(());
        }
        let open = live.open.read().map_err(|e| e.to_string())?;
        let (array, file, _) = open.as_ref().ok_or("closed")?;
        live.run(array, file, thread, op, ack)?;
        drop(open);
        if let Op::InPart(_) = op { self.step(live, thread, &Op::Restart, ack) } else { Ok(()) }
    }

    fn finish(&self, live: Live) -> Result<(), Error> {
        if let Some((array, _, pool)) = live.open.into_inner().map_err(|e| e.to_string())? {
            drop(pool);
            array.close()?;
        }
        Ok(())
    }

    fn check(&self, sim: &Arc<Sim>, history: &History<Effect>) -> Result<Vec<u8>, Violation> {
        let (array, file, _pool) = self.open(sim).map_err(Violation::detected)?;
        let found = array.recovered().clone();
        let mut there = vec![0; BYTES as usize];
        array.read(&file, 0, &mut there).map_err(Violation::detected)?;
        if let Err(violation) = held(&there, history) {
            // A part that the medium damaged is told, and nothing of its transaction is there.
            return Err(match sim.planted() {
                Some(_) if !found.lost.is_empty() || found.in_doubt > 0 => Violation::detected(format!("{found:?}")),
                _ => violation,
            });
        }
        if sim.planted().is_none() && !found.lost.is_empty() {
            return Err(Violation::new(format!("nothing is lost, and is told to be: {found:?}")));
        }
        look(&array).map_err(|error| Violation::new(error.to_string()))?;
        // A check that sees this state has what was acknowledged before.
        let _witness =
            Witness::of(there.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(257).wrapping_add((*byte).into())))?;
        let probe = array.file("probe").map_err(Violation::detected)?;
        for n in 1..4_u8 {
            array.atomic_write(&probe, 8, &[n; 100]).map_err(Violation::detected)?;
            let mut back = [0; 100];
            array.read(&probe, 8, &mut back).map_err(Violation::detected)?;
            if back != [n; 100] {
                return Err(Violation::new(format!("what was just written is not there: {back:?}")));
            }
        }
        Ok(there)
    }
}

/// All that was acknowledged, in the order of commits, and each that was on its way whole or not at all, wherever in that order.
fn held(there: &[u8], history: &History<Effect>) -> Result<(), Violation> {
    let mut numbers = Vec::new();
    let mut wrote = Vec::new();
    for effect in &history.acknowledged {
        match effect {
            Effect::At(n, sequence) => numbers.push((*n, *sequence)),
            Effect::Wrote(n, writes) => wrote.push((*n, writes)),
        }
    }
    let sequence = |n: u64| numbers.iter().find(|(of, _)| *of == n).map(|(_, sequence)| *sequence);
    let mut order: Vec<(u64, &Writes)> =
        wrote.into_iter().filter_map(|(n, writes)| Some((sequence(n)?, writes))).collect();
    order.sort_by_key(|(sequence, _)| *sequence);
    if order.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return Err(Violation::new(format!("two commits have one number: {numbers:?}")));
    }
    let order: Vec<_> = order.into_iter().map(|(_, writes)| writes).collect();
    let in_doubt = history.in_doubt.iter().filter_map(|effect| match effect {
        Effect::Wrote(_, writes) => Some(writes),
        Effect::At(..) => None,
    });
    let mut orders = vec![order];
    for writes in in_doubt {
        let with = |order: &Vec<_>| {
            (0..=order.len())
                .map(|at| {
                    let mut order = order.clone();
                    order.insert(at, writes);
                    order
                })
                .collect::<Vec<_>>()
        };
        let more: Vec<_> = orders.iter().flat_map(with).collect();
        orders.extend(more);
    }
    let state = |order: &Vec<&Writes>| {
        let mut bytes = vec![0; there.len()];
        for (offset, new) in order.iter().flat_map(|writes| writes.iter()) {
            bytes[*offset as usize..][..new.len()].copy_from_slice(new);
        }
        bytes
    };
    if orders.iter().any(|order| state(order) == there) {
        return Ok(());
    }
    Err(Violation::new(format!("no order of commits leaves {there:?}: {history:?}")))
}
