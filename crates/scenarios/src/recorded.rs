//! A record store, in an array or by a write-ahead log: each transaction has all its records or none, what it acknowledged is there, and each record is there once; so is what a nested top action wrote,
//! whatever becomes of its outer transaction.
//!
//! A record says which transaction wrote it, and that one which it found there. So the records form chains: whatever was acknowledged is in the chain of each record that it
//! wrote, and what was on its way is in all of them or in none.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, RwLock};

use crash::{Ack, Error, History, Rng, Scenario, Sim, Violation, Witness};
use eaw::aries::{self, Aries};
use eaw::array::Options;
use eaw::mars::{self, Mars};
use eaw::records::{RecordId, RecordTx, Records, Table};
use pmem::{ErrorKind, Pool};

const KEYS: u64 = 4;
/// Slots of three sizes, and one block for each thread.
const BLOCK: u64 = 256;

/// How it is changed, one after the other.
type Adjust<S> = [fn(<S as Store>::Adjusted) -> <S as Store>::Adjusted];

/// A store that the scenario knows.
pub trait Store: Records + Send + 'static {
    /// What a test can change.
    type Adjusted: 'static;
    /// Makes one in a pool.
    fn make(pool: &Pool) -> eaw::Result<Self>;
    /// Opens it, and recovers it.
    ///
    /// # Errors
    /// Those of the store.
    fn open(pool: &Pool, adjust: &Adjust<Self>) -> eaw::Result<Self>;
    /// What it could not recover, and was told so.
    fn lost(&self) -> Option<String>;
    /// Writes what it would write in its own time.
    fn clean(&self) -> eaw::Result<()>;
}

/// How a store in an array is opened.
pub struct InArray {
    array: Options,
    store: Vec<fn(Mars) -> Mars>,
}

impl InArray {
    /// Changes the options of the array.
    #[must_use]
    pub fn array(self, adjust: fn(Options) -> Options) -> Self {
        Self { array: adjust(self.array), ..self }
    }

    /// Changes the store when it is open.
    #[must_use]
    pub fn store(mut self, adjust: fn(Mars) -> Mars) -> Self {
        self.store.push(adjust);
        self
    }
}

impl Store for Mars {
    type Adjusted = InArray;

    fn make(pool: &Pool) -> eaw::Result<Self> {
        let array = array().create_in(&[pool.clone(), pool.clone()])?;
        mars::Options::new().block_bytes(BLOCK).segment_bytes(3 * BLOCK).create(array)
    }

    fn open(pool: &Pool, adjust: &Adjust<Self>) -> eaw::Result<Self> {
        let options = InArray { array: array(), store: vec![|store| store.place_min(usize::MAX)] };
        let InArray { array, store } = adjust.iter().fold(options, |options, adjust| adjust(options));
        let opened = Self::open(array.open_in(std::slice::from_ref(pool))?)?;
        Ok(store.iter().fold(opened, |store, adjust| adjust(store)))
    }

    fn lost(&self) -> Option<String> {
        let recovered = self.array().recovered();
        let is_lost = !self.damaged().is_empty() || !recovered.lost.is_empty();
        is_lost.then(|| format!("{:?} {recovered:?}", self.damaged()))
    }

    fn clean(&self) -> eaw::Result<()> {
        self.checkpoint()
    }
}

/// As on files: what is durable stays in the log for some commits.
fn array() -> Options {
    let options = Options::new().stripe_bytes(64).log_bytes(4096).log_max(4096).transactions(8).entries(4);
    options.late(true).slot_bytes(256)
}

impl Store for Aries {
    type Adjusted = aries::Options;

    fn make(pool: &Pool) -> eaw::Result<Self> {
        pages().create_in(pool)
    }

    fn open(pool: &Pool, adjust: &Adjust<Self>) -> eaw::Result<Self> {
        adjust.iter().fold(pages(), |options, adjust| adjust(options)).open_in(pool)
    }

    fn lost(&self) -> Option<String> {
        let restart = self.restarted();
        (!restart.damaged.is_empty()).then(|| format!("{restart:?}"))
    }

    fn clean(&self) -> eaw::Result<()> {
        self.tidy(1)
    }
}

/// Four pages in memory, of those that there are; few records of the log wait to be forced.
fn pages() -> aries::Options {
    aries::Options::new().page_bytes(BLOCK).segment_bytes(3 * BLOCK).log_bytes(64 << 10).buffer_pages(4).loose(3)
}

/// Transactions of all kinds, by one thread or two.
pub struct Recorded<S: Store> {
    name: &'static str,
    threads: usize,
    script: Option<Vec<(usize, Op)>>,
    adjust: Vec<fn(S::Adjusted) -> S::Adjusted>,
}

impl<S: Store> Clone for Recorded<S> {
    fn clone(&self) -> Self {
        Self { name: self.name, threads: self.threads, script: self.script.clone(), adjust: self.adjust.clone() }
    }
}

/// What is done to the record of a key.
#[derive(Clone, Copy, Debug)]
pub enum Write {
    /// It is overwritten by one of so many bytes.
    Update(u64, u64),
    /// It is deleted, and inserted anew.
    Replace(u64, u64),
}

/// One operation.
#[derive(Clone, Debug)]
pub enum Op {
    /// These, and a commit.
    Commit(Vec<Write>),
    /// The first and the third stay, the second are rolled back between.
    Rollback(Vec<Write>, Vec<Write>, Vec<Write>),
    /// The second are a nested top action of the first, which then commit, or are given up.
    Nested(Vec<Write>, Vec<Write>, bool),
    /// Nothing of it happens.
    Abort(Vec<Write>),
    /// Little is left to recover.
    Checkpoint,
    /// Something is written that is written some time.
    Clean,
    /// Drop everything and open again.
    Restart,
    /// Close, and open again.
    Close,
}

/// A transaction: its number, and by key the number of the one before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect(u64, BTreeMap<u64, u64>);

/// The open store.
pub struct Live<S> {
    sim: Arc<Sim>,
    open: RwLock<Option<S>>,
    next: AtomicU64,
}

impl<S: Store> Recorded<S> {
    /// A random workload.
    pub fn new(name: &'static str, threads: usize) -> Self {
        Self { name, threads, script: None, adjust: Vec::new() }
    }

    /// Exactly these operations, each on its thread.
    pub fn script(ops: Vec<(usize, Op)>) -> Self {
        let threads = ops.iter().map(|(thread, _)| thread + 1).max().unwrap_or(1);
        Self { script: Some(ops), ..Self::new("records-script", threads) }
    }

    /// Changes how the store is opened, in the program and at recovery.
    #[must_use]
    pub fn adjust(mut self, adjust: fn(S::Adjusted) -> S::Adjusted) -> Self {
        self.adjust.push(adjust);
        self
    }

    fn open(&self, sim: &Arc<Sim>) -> eaw::Result<S> {
        S::open(&pmem::Options::new().open_on(sim.clone())?, &self.adjust)
    }
}

fn record(key: u64, n: u64, len: u64) -> Vec<u8> {
    let mut bytes = [key.to_le_bytes(), n.to_le_bytes()].concat();
    bytes.resize(16 + len as usize, n as u8);
    bytes
}

/// Key and transaction.
fn parsed(bytes: &[u8]) -> Option<(u64, u64)> {
    let (head, rest) = bytes.split_at_checked(16)?;
    let word = |at: usize| head[at..at + 8].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let (key, n) = (word(0), word(8));
    (record(key, n, rest.len() as u64) == bytes).then_some((key, n))
}

/// Records by key.
fn all<S: Records>(store: &S, tx: &mut S::Tx<'_>) -> eaw::Result<Vec<(RecordId, Vec<u8>)>> {
    let mut found = Vec::new();
    tx.scan(store.table("records")?, &mut |id, bytes| found.push((id, bytes.to_vec())))?;
    Ok(found)
}

/// Room came to its end, or others had the records: nothing has changed.
fn is_over(error: &eaw::Error) -> bool {
    matches!(error.kind(), ErrorKind::Full | ErrorKind::Retry | ErrorKind::InUse)
        || matches!(error, eaw::Error::OuterRecord { .. })
}

/// Writes, as transaction `n`; what it found there.
fn write<S: Records>(tx: &mut S::Tx<'_>, store: &S, n: u64, writes: &[Write]) -> eaw::Result<BTreeMap<u64, u64>> {
    let table = store.table("records")?;
    let mut before = BTreeMap::new();
    for write in writes {
        let (Write::Update(key, len) | Write::Replace(key, len)) = *write;
        let (id, found) = find(tx, table, key)?;
        before.entry(key).or_insert(found);
        let bytes = record(key, n, len);
        match write {
            Write::Update(..) => tx.update(table, id, &bytes)?,
            Write::Replace(..) => {
                tx.delete(table, id)?;
                tx.insert(table, &bytes)?;
            }
        }
    }
    Ok(before)
}

/// The record of a key, and which transaction wrote it.
fn find<T: RecordTx>(tx: &mut T, table: Table, key: u64) -> eaw::Result<(RecordId, u64)> {
    let mut found = None;
    tx.scan(table, &mut |id, bytes| {
        if let Some((_, n)) = parsed(bytes).filter(|(of, _)| *of == key) {
            found = Some((id, n));
        }
    })?;
    // It was replaced while the scan was beyond its new place: another transaction has it.
    found.ok_or(eaw::Error::Deadlock)
}

impl<S: Store> Live<S> {
    fn run(&self, store: &S, op: &Op, ack: &Ack<Effect>) -> Result<(), Error> {
        let n = self.next.fetch_add(2, Relaxed);
        match self.attempt(store, n, op, ack) {
            Err(error) if error.downcast_ref().is_some_and(is_over) => Ok(()),
            other => other,
        }
    }

    fn attempt(&self, store: &S, n: u64, op: &Op, ack: &Ack<Effect>) -> Result<(), Error> {
        let commit = |tx: S::Tx<'_>, before| -> Result<(), Error> {
            let ticket = ack.begin(Effect(n, before));
            match tx.commit() {
                Ok(()) => ack.commit(ticket),
                Err(error) if is_over(&error) => ack.abort(ticket),
                Err(error) => return Err(error.into()),
            }
            Ok(())
        };
        let mut tx = store.begin()?;
        match op {
            Op::Commit(writes) => {
                let before = write(&mut tx, store, n, writes)?;
                commit(tx, before)?;
            }
            Op::Rollback(first, second, third) => {
                let mut before = write(&mut tx, store, n, first)?;
                let savepoint = tx.savepoint();
                let _ = write(&mut tx, store, n + 1, second);
                tx.rollback_to(savepoint)?;
                for (key, found) in write(&mut tx, store, n, third)? {
                    before.entry(key).or_insert(found);
                }
                commit(tx, before)?;
            }
            Op::Nested(first, second, commits) => {
                let outer = write(&mut tx, store, n, first)?;
                let mut ticket = None;
                let done = tx.nested_top(|tx| {
                    let inner = write(tx, store, n + 1, second)?;
                    ticket = Some(ack.begin(Effect(n + 1, inner)));
                    Ok(())
                });
                match (done, ticket) {
                    (Ok(()), Some(ticket)) => ack.commit(ticket),
                    (Err(error), ticket) if is_over(&error) => ticket.into_iter().for_each(|ticket| ack.abort(ticket)),
                    (done, _) => done?,
                }
                if *commits {
                    commit(tx, outer)?;
                }
            }
            Op::Abort(writes) => {
                write(&mut tx, store, n, writes)?;
                tx.abort()?;
            }
            Op::Checkpoint => store.checkpoint()?,
            Op::Clean => store.clean()?,
            Op::Restart | Op::Close => {}
        }
        Ok(())
    }
}

fn writes(rng: &mut Rng) -> Vec<Write> {
    let write = |rng: &mut Rng| {
        let (key, len) = (rng.below(KEYS), rng.below(100));
        if rng.below(3) == 0 { Write::Replace(key, len) } else { Write::Update(key, len) }
    };
    (0..=rng.below(2)).map(|_| write(rng)).collect()
}

impl<S: Store> Scenario for Recorded<S> {
    type Op = Op;
    type Effect = Effect;
    type State = Vec<(u64, u64)>;
    type Live = Live<S>;

    fn name(&self) -> &str {
        self.name
    }

    fn capacity(&self) -> u64 {
        192 << 10
    }

    fn setup(&self, sim: &Arc<Sim>) -> Result<(), Error> {
        let pool = pmem::Options::new().size(128 << 10).create_on(sim.clone())?;
        let store = S::make(&pool)?;
        drop(pool);
        let table = store.create_table("records")?;
        let probes = store.create_table("probes")?;
        let mut tx = store.begin()?;
        for key in 0..KEYS {
            tx.insert(table, &record(key, 0, key * 20))?;
        }
        tx.insert(probes, &[])?;
        tx.commit()?;
        store.close()?;
        Ok(())
    }

    fn start(&self, sim: &Arc<Sim>) -> Result<Live<S>, Error> {
        let open = RwLock::new(Some(self.open(sim)?));
        Ok(Live { sim: sim.clone(), open, next: 1.into() })
    }

    fn ops(&self, rng: &mut Rng) -> Vec<(usize, Op)> {
        let alone = self.threads == 1;
        let op = |rng: &mut Rng| match rng.below(if alone { 14 } else { 11 }) {
            0..=4 => Op::Commit(writes(rng)),
            5 => Op::Rollback(writes(rng), writes(rng), writes(rng)),
            6 | 7 => Op::Nested(writes(rng), writes(rng), rng.below(2) == 0),
            8 => Op::Abort(writes(rng)),
            9 => Op::Checkpoint,
            10 => Op::Clean,
            11 | 12 => Op::Restart,
            _ => Op::Close,
        };
        let random = |rng: &mut Rng| {
            let count = if alone { 8 } else { 5 };
            (0..count).map(|_| (rng.below(self.threads as u64) as usize, op(rng))).collect()
        };
        self.script.clone().unwrap_or_else(|| random(rng))
    }

    fn step(&self, live: &Live<S>, _: usize, op: &Op, ack: &Ack<Effect>) -> Result<(), Error> {
        if matches!(op, Op::Restart | Op::Close) {
            let mut open = live.open.write().map_err(|e| e.to_string())?;
            let store = open.take().ok_or("closed")?;
            if matches!(op, Op::Close) {
                store.close()?
            } else {
                drop(store)
            }
            *open = Some(self.open(&live.sim)?);
            return Ok(());
        }
        let open = live.open.read().map_err(|e| e.to_string())?;
        live.run(open.as_ref().ok_or("closed")?, op, ack)
    }

    fn finish(&self, live: Live<S>) -> Result<(), Error> {
        if let Some(store) = live.open.into_inner().map_err(|e| e.to_string())? {
            store.close()?;
        }
        Ok(())
    }

    fn check(&self, sim: &Arc<Sim>, history: &History<Effect>) -> Result<Vec<(u64, u64)>, Violation> {
        let store = self.open(sim).map_err(Violation::detected)?;
        let lost = store.lost();
        if let Some(lost) = lost.clone().filter(|_| sim.planted().is_none()) {
            return Err(Violation::detected(lost));
        }
        let mut tx = store.begin().map_err(Violation::detected)?;
        let found = all(&store, &mut tx).map_err(Violation::detected)?;
        drop(tx);
        let mut there: Vec<(u64, u64)> = Vec::new();
        for (id, bytes) in &found {
            there.push(parsed(bytes).ok_or_else(|| Violation::new(format!("record {id:?} is {bytes:?}")))?);
        }
        there.sort_unstable();
        if !there.iter().map(|(key, _)| *key).eq(0..KEYS) {
            return Err(Violation::new(format!("each key is there once, and here are {there:?}")));
        }
        held(&there, history).map_err(|why| match sim.planted() {
            Some(_) if lost.is_some() => Violation::detected(why),
            _ => Violation::new(format!("{why}: {there:?}, {history:?}")),
        })?;
        let _witness = Witness::of(there.iter().fold(0_u64, |sum, (_, n)| sum.wrapping_mul(257).wrapping_add(*n)))?;
        let probe = || -> eaw::Result<bool> {
            let probes = store.table("probes")?;
            for n in 1..4_u8 {
                let (mut tx, mut ids) = (store.begin()?, Vec::new());
                tx.scan(probes, &mut |id, _| ids.push(id))?;
                ids.into_iter().try_for_each(|id| tx.delete(probes, id))?;
                let id = tx.insert(probes, &[n; 100])?;
                tx.commit()?;
                let mut back = Vec::new();
                store.begin()?.read(probes, id, &mut back)?;
                if back != [n; 100] {
                    return Ok(false);
                }
            }
            Ok(all(&store, &mut store.begin()?)? == found)
        };
        match probe() {
            Ok(true) => Ok(there),
            Ok(false) => Err(Violation::new("what was just written is not there, or something else is not any more")),
            Err(error) => Err(Violation::detected(error)),
        }
    }
}

/// That every chain has what was acknowledged, and all chains, or none, what was on its way.
fn held(there: &[(u64, u64)], history: &History<Effect>) -> Result<(), String> {
    let known: BTreeMap<u64, &BTreeMap<u64, u64>> =
        history.acknowledged.iter().chain(&history.in_doubt).map(|Effect(n, before)| (*n, before)).collect();
    let mut chains = BTreeMap::new();
    for (key, n) in there {
        let mut chain = vec![*n];
        while let Some(n) = chain.last().copied().filter(|n| *n > 0) {
            let before = known.get(&n).and_then(|before| before.get(key));
            chain.push(*before.ok_or_else(|| format!("transaction {n} never wrote key {key}, or was rolled back"))?);
        }
        chains.insert(*key, chain);
    }
    let has = |n: u64, key: &u64| chains.get(key).is_some_and(|chain| chain.contains(&n));
    for Effect(n, before) in &history.acknowledged {
        if let Some(key) = before.keys().find(|key| !has(*n, key)) {
            return Err(format!("transaction {n} was acknowledged, and key {key} does not know it"));
        }
    }
    for Effect(n, before) in &history.in_doubt {
        let knowing = before.keys().filter(|key| has(*n, key)).count();
        if knowing > 0 && knowing < before.len() {
            return Err(format!("transaction {n} is there in half"));
        }
    }
    Ok(())
}
