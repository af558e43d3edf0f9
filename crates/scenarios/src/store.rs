//! The key-value store: acknowledged transactions are there, others whole or not at all; what was deleted stays deleted; a snapshot shows what it showed. After
//! recovery the store goes on at once, so that what a torn transaction left meets new ones at its place.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex};

use crash::{Ack, Error, FaultKind, History, Rng, Scenario, Sim, Ticket, Violation, Witness};
use kv::{Durability, Isolation, Keys, Options, Snapshot, Store};
use pmem::Pool;

use crate::faults::{gone_unnoticed, unnoticed};
use crate::opened::Opened;

const SEGMENT: u64 = 4096;
/// Written by the check itself, from here on.
const PROBE: u64 = 1 << 32;
/// ... under these keys.
const PROBES: [u8; 2] = [200, 201];

/// Transactions of all sizes, checkpoints, readers, restarts.
#[derive(Clone)]
pub struct Stored {
    name: &'static str,
    threads: usize,
    /// Commits that may be at risk; 0: none.
    bound: u32,
    /// Whether transactions go to one log, in groups.
    grouped: bool,
    /// Whether the program makes the store in its pool.
    unmade: bool,
    watermark: u32,
    script: Option<Vec<(usize, Op)>>,
    adjust: fn(Options) -> Options,
}

/// One operation.
#[derive(Clone, Debug)]
pub enum Op {
    /// A transaction: each key gets a value of that length, or goes.
    Write(Vec<(u8, Option<usize>)>),
    /// The same of one key that gets a value, as a call of its own. No other thread writes the key.
    Put(u8, usize),
    /// A checkpoint.
    Checkpoint,
    /// The file grows ahead of the threads that put.
    Ahead,
    /// A snapshot is held while these run; it must show to the end what it showed.
    Hold(Vec<Op>),
    /// A backup, and a store made of it: it has what a snapshot of that moment shows, whatever others do meanwhile.
    Backup,
    /// Drop everything and open again.
    Restart,
    /// Close, and open again.
    Close,
}

/// The open store and what its threads share.
pub struct Live {
    sim: Arc<Sim>,
    open: Opened<Store>,
    next: AtomicU64,
    alone: bool,
    /// Committed, and not yet known to be durable.
    waiting: Mutex<VecDeque<Ticket>>,
    /// Numbers moments.
    moments: AtomicU64,
}

/// What was promised.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Transaction n writes these: length of the value, or none.
    Write(u64, Vec<(u8, Option<usize>)>),
    /// Its place among those that committed.
    At(u64, u64),
    /// Its thread, and so its log.
    By(u64, usize),
    /// It began and returned then, if it may be at risk.
    Returned(u64, u64, u64),
}

type Pair = (Vec<u8>, Vec<u8>);
type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// These two are one to the index, until it looks at their records.
pub const ALIKE: [u8; 2] = [98, 99];

fn key(n: u8) -> Vec<u8> {
    if n == ALIKE[1] {
        static KEY: LazyLock<Vec<u8>> = LazyLock::new(|| {
            let tag = |key: &[u8]| xxhash_rust::xxh3::xxh3_64(key) >> 50;
            let mut all = (0_u32..).map(|n| [b"k", &n.to_be_bytes()[..]].concat());
            all.find(|other| tag(other) == tag(&key(ALIKE[0]))).unwrap_or_default()
        });
        return KEY.clone();
    }
    // Many that have a long beginning in common, and so do the fences between them.
    if (100..PROBES[0]).contains(&n) {
        return [&[b'm'; 150][..], &[n]].concat();
    }
    // Some are the beginning of others.
    if n.is_multiple_of(2) { vec![b'k', n / 2] } else { vec![b'k', n / 2, 0, n] }
}

/// A key of the transaction's own, which tells that it survived.
fn marker(n: u64) -> Vec<u8> {
    [b"marker", &n.to_be_bytes()[..]].concat()
}

fn value(n: u64, key: u8, len: usize) -> Vec<u8> {
    let mut bytes = [&n.to_le_bytes()[..], &[key]].concat();
    bytes.extend((0..len).map(|i| (n as usize * 37 + key as usize + i) as u8));
    bytes
}

fn read(store: &Store, reverse: bool) -> Result<State, Violation> {
    let snapshot = store.snapshot().map_err(Violation::detected)?;
    let keys = if reverse { Keys::all().reverse() } else { Keys::all() };
    let mut all = State::new();
    for pair in snapshot.scan(keys) {
        let (key, value) = pair.map_err(Violation::detected)?;
        all.insert(key.to_vec(), value.to_vec());
    }
    for (key, value) in &all {
        if snapshot.get(key).map_err(Violation::detected)? != Some(value) {
            return Err(Violation::new(format!("{key:?} is found by a scan and not by a look-up")));
        }
    }
    Ok(all)
}

fn full(error: &kv::Error) -> bool {
    use pmem::Error::{NoSpace, Reserve};
    matches!(error, kv::Error::Full { .. } | kv::Error::Pool(NoSpace { .. } | Reserve { .. }))
}

/// What is so from now on.
fn note(effect: Effect, ack: &Ack<Effect>) {
    let ticket = ack.begin(effect);
    ack.commit(ticket);
}

impl Live {
    /// What is durable by now.
    fn acknowledge(&self, store: &Store, ack: &Ack<Effect>) -> Result<(), Error> {
        let mut waiting = self.waiting.lock().map_err(|e| e.to_string())?;
        // They wait in the order of their return, which with several threads is not that of their numbers.
        let least = if self.alone {
            store.at_risk()
        } else if store.at_risk() == 0 {
            0
        } else {
            return Ok(());
        };
        while waiting.len() as u64 > least {
            waiting.pop_front().into_iter().for_each(|ticket| ack.commit(ticket));
        }
        Ok(())
    }
}

impl Stored {
    /// A random workload.
    pub fn new(name: &'static str, threads: usize) -> Self {
        Self {
            name,
            threads,
            bound: 0,
            grouped: false,
            unmade: false,
            watermark: 2,
            script: None,
            adjust: |options| options,
        }
    }

    /// Commits return before their barrier: if one survives, so does every one that had returned before it began.
    #[must_use]
    pub fn bounded(self, bound: u32) -> Self {
        Self { bound, ..self }
    }

    /// Those that commit at the same time are written as one.
    #[must_use]
    pub fn grouped(self) -> Self {
        Self { grouped: true, ..self }
    }

    /// The store is made by the program, and by whatever opens it after a crash.
    #[must_use]
    pub fn unmade(self) -> Self {
        Self { unmade: true, ..self }
    }

    /// Exactly these operations, each on its thread.
    pub fn script(ops: Vec<(usize, Op)>) -> Self {
        Self { script: Some(ops), ..Self::new("kv-script", 2) }
    }

    /// Changes how the store is opened, in the program and at recovery.
    #[must_use]
    pub fn adjust(self, adjust: fn(Options) -> Options) -> Self {
        Self { adjust, ..self }
    }

    /// So many commits of a log for one watermark; 2 by default, since workloads are short.
    #[must_use]
    pub fn watermark_every(self, watermark: u32) -> Self {
        Self { watermark, ..self }
    }

    fn options(&self) -> Options {
        let durability = if self.bound == 0 { Durability::Durable } else { Durability::Bounded(self.bound) };
        (self.adjust)(
            Options::new()
                .durability(durability)
                .group_commit(self.grouped)
                .segment_bytes(SEGMENT)
                .checkpoint_bytes(2 * SEGMENT)
                .watermark_every(self.watermark)
                .transactions(8) // each of three threads may hold a snapshot and write
                .background(false),
        )
    }

    fn open(&self, sim: &Arc<Sim>) -> kv::Result<(Store, Pool)> {
        let pool = pmem::Options::new().open_on(sim.clone())?;
        // What is damaged in a value shows if it is looked for.
        Ok((self.options().verify(sim.planted().is_some()).open_in(&pool)?, pool))
    }

    fn run(&self, live: &Live, store: &Store, thread: usize, op: &Op, ack: &Ack<Effect>) -> Result<(), Error> {
        match op {
            Op::Write(writes) => {
                let n = live.next.fetch_add(1, Relaxed);
                let began = live.moments.fetch_add(1, Relaxed);
                let mut tx = store.begin(Isolation::Serializable)?;
                let mut all = || {
                    writes.iter().try_for_each(|(at, len)| match len {
                        Some(len) => tx.put(&key(*at), &value(n, *at, *len)).map(|_| ()),
                        None => tx.delete(&key(*at)).map(|_| ()),
                    })
                };
                let mut written = all();
                if self.bound > 0 {
                    written = written.and_then(|()| tx.put(&marker(n), &value(n, 0, 0)).map(|_| ()));
                }
                // In doubt from here on: what is not committed is nowhere.
                note(Effect::By(n, thread), ack);
                let ticket = ack.begin(Effect::Write(n, writes.clone()));
                let committed = written.and_then(|()| tx.commit());
                let at_risk = store.at_risk();
                if at_risk > self.bound.into() {
                    return Err(format!("{at_risk} commits are at risk, and at most {} may be", self.bound).into());
                }
                match committed {
                    Ok(at) if self.bound > 0 => {
                        let returned = live.moments.fetch_add(1, Relaxed);
                        note(Effect::At(n, at.get()), ack);
                        note(Effect::Returned(n, began, returned), ack);
                        live.waiting.lock().map_err(|e| e.to_string())?.push_back(ticket);
                        live.acknowledge(store, ack)?;
                    }
                    Ok(at) => {
                        note(Effect::At(n, at.get()), ack);
                        ack.commit(ticket);
                    }
                    Err(error) if full(&error) || error.is_conflict() => ack.abort(ticket),
                    Err(error) => return Err(error.into()),
                }
            }
            Op::Put(at, len) => {
                let n = live.next.fetch_add(1, Relaxed);
                note(Effect::By(n, thread), ack);
                let ticket = ack.begin(Effect::Write(n, vec![(*at, Some(*len))]));
                match store.put(&key(*at), &value(n, *at, *len)) {
                    Ok(_) => {
                        // Not before its own, and before that of the transaction that writes the key next.
                        note(Effect::At(n, store.stats().now.get()), ack);
                        ack.commit(ticket);
                    }
                    Err(error) if full(&error) => ack.abort(ticket),
                    Err(error) => return Err(error.into()),
                }
            }
            Op::Checkpoint => {
                match store.checkpoint() {
                    Err(error) if !full(&error) => return Err(error.into()),
                    _ => {}
                }
                live.acknowledge(store, ack)?;
            }
            Op::Ahead => store.grow_ahead()?,
            Op::Hold(ops) => {
                let snapshot = store.snapshot()?;
                let before = pairs(&snapshot)?;
                for op in ops {
                    self.run(live, store, thread, op, ack)?;
                }
                if pairs(&snapshot)? != before {
                    return Err("a snapshot has changed".into());
                }
            }
            Op::Backup => {
                let dir = tempfile::tempdir()?;
                let (copy, again) = (dir.path().join("copy"), dir.path().join("again"));
                let snapshot = store.snapshot()?;
                snapshot.backup(&copy, |_| ())?;
                kv::restore(&copy, &again, |_| ())?;
                let restored = Options::new().background(false).open_read_only(&again)?;
                if pairs(&restored.snapshot()?)? != pairs(&snapshot)? {
                    return Err("a backup is something else than its snapshot".into());
                }
            }
            Op::Restart | Op::Close => {}
        }
        Ok(())
    }
}

fn pairs(snapshot: &Snapshot<'_>) -> Result<Vec<Pair>, Error> {
    snapshot.scan(Keys::all()).map(|pair| Ok(pair.map(|(k, v)| (k.to_vec(), v.to_vec()))?)).collect()
}

fn close(store: Store, pool: Pool) -> Result<(), Error> {
    store.close()?;
    pool.close()?;
    Ok(())
}

impl Scenario for Stored {
    type Op = Op;
    type Effect = Effect;
    type State = State;
    type Live = Live;

    fn name(&self) -> &str {
        self.name
    }

    fn capacity(&self) -> u64 {
        512 << 10
    }

    fn setup(&self, sim: &Arc<Sim>) -> Result<(), Error> {
        let pool = pmem::Options::new().size(64 << 10).engine(kv::NAME, [0; 64]).create_on(sim.clone())?;
        if !self.unmade {
            self.options().create_in(&pool)?.close()?;
        }
        pool.close()?;
        Ok(())
    }

    fn start(&self, sim: &Arc<Sim>) -> Result<Live, Error> {
        let (store, pool) = self.open(sim)?;
        let alone = match &self.script {
            Some(script) => script.iter().all(|(thread, _)| *thread == 0),
            None => self.threads == 1,
        };
        Ok(Live {
            sim: sim.clone(),
            open: Opened::new((store, pool)),
            next: 1.into(),
            alone,
            waiting: Mutex::default(),
            moments: 1.into(),
        })
    }

    fn ops(&self, rng: &mut Rng) -> Vec<(usize, Op)> {
        if let Some(script) = &self.script {
            return script.clone();
        }
        let alone = self.threads == 1;
        let write = |rng: &mut Rng| {
            let one = |rng: &mut Rng| {
                let len = [0, 20, 100, 700, 1500, 5000][rng.below(6) as usize];
                (rng.below(6) as u8, (rng.below(4) > 0).then_some(len))
            };
            let mut writes: Vec<(u8, Option<usize>)> = (0..=rng.below(3)).map(|_| one(rng)).collect();
            writes.sort_unstable();
            writes.dedup_by_key(|w| w.0);
            Op::Write(writes)
        };
        let op = |rng: &mut Rng| match rng.below(if alone { 12 } else { 9 }) {
            0..=6 => write(rng),
            7 => Op::Checkpoint,
            8 => Op::Hold(vec![write(rng), Op::Checkpoint, write(rng)]),
            9 => Op::Restart,
            10 => Op::Close,
            _ => Op::Hold(vec![write(rng), write(rng), Op::Checkpoint, Op::Checkpoint, write(rng)]),
        };
        let count = if alone { 12 } else { 6 };
        (0..count).map(|_| (rng.below(self.threads as u64) as usize, op(rng))).collect()
    }

    fn step(&self, live: &Live, thread: usize, op: &Op, ack: &Ack<Effect>) -> Result<(), Error> {
        if matches!(op, Op::Restart | Op::Close) {
            let end = |store, pool| match op {
                Op::Close => close(store, pool),
                _ => {
                    drop((store, pool));
                    Ok(())
                }
            };
            let open = || {
                let (store, pool) = self.open(&live.sim)?;
                // Nothing was lost: the program stopped, and the caches did not.
                live.acknowledge(&store, ack)?;
                Ok((store, pool))
            };
            return live.open.again(end, open);
        }
        let store = live.open.get()?;
        self.run(live, &store, thread, op, ack)
    }

    fn finish(&self, live: Live) -> Result<(), Error> {
        live.open.end(close)
    }

    fn check(&self, sim: &Arc<Sim>, history: &History<Effect>) -> Result<State, Violation> {
        let (mut store, mut pool) = self.open(sim).map_err(Violation::detected)?;
        let unnoticed = if pool.was_clean() { 0 } else { unnoticed(sim.planted(), self.watermark as usize) };
        if sim.planted().is_some() {
            is_sound(&store)?;
        }
        let all = read(&store, false)?;
        if self.grouped {
            // What a torn transaction left does not go by closing.
            store.close().map_err(Violation::detected)?;
            pool.close().map_err(Violation::detected)?;
            (store, pool) = self.open(sim).map_err(Violation::detected)?;
        }
        let _pool = pool;
        if read(&store, true)? != all {
            return Err(Violation::new("backwards the store shows something else"));
        }
        // The check's own keys are others than the program's.
        let (probes, shown): (State, State) = all.clone().into_iter().partition(|(_, value)| number(value) >= PROBE);
        let lost = match unnoticed {
            0 if self.bound == 0 => held(&shown, history, Unnoticed::default())?,
            0 => held_back(&shown, history, 0)?,
            // Those since the last barrier but one, too; recovery is none.
            most if self.bound > 0 => held_back(&shown, history, most.max(2 * self.bound as usize))?,
            // Those of one barrier.
            most => {
                let most = if self.grouped { most.max(self.threads) } else { most };
                let one = sim.planted() == Some(FaultKind::Flip);
                held(&shown, history, Unnoticed { most, grouped: self.grouped, one })?
            }
        };
        if probes.keys().any(|probe| !PROBES.iter().any(|at| key(*at) == *probe)) {
            return Err(Violation::new(format!("a key of the program has a value of the check: {probes:?}")));
        }
        let seen = shown
            .iter()
            .flat_map(|(k, v)| k.iter().chain(v))
            .fold(0u64, |h, b| h.wrapping_mul(31).wrapping_add(u64::from(*b)));
        let _witness = Witness::of(seen)?;
        go_on(&store, &all)?;
        gone_unnoticed(lost, "transactions")?;
        Ok(shown)
    }
}

/// A check names what is damaged.
pub(crate) fn is_sound(store: &Store) -> Result<(), Violation> {
    let checked = store.check(|_| ()).map_err(Violation::detected)?;
    if checked.is_sound() { Ok(()) } else { Err(Violation::detected(format!("a check finds {checked:?}"))) }
}

fn number(value: &[u8]) -> u64 {
    value.first_chunk::<8>().map_or(u64::MAX, |b| u64::from_le_bytes(*b))
}

/// The store takes what comes next, and makes a checkpoint.
fn go_on(store: &Store, all: &State) -> Result<(), Violation> {
    let mut right = all.clone();
    let base =
        PROBE + all.values().map(|v| number(v)).filter(|n| *n >= PROBE).map(|n| n - PROBE + 1).max().unwrap_or(0);
    for (n, (at, len)) in (base..).zip([(PROBES[0], Some(700)), (PROBES[1], None), (PROBES[1], Some(20))]) {
        let done = match len {
            Some(len) => store.put(&key(at), &value(n, at, len)),
            None => store.delete(&key(at)),
        };
        match done {
            Err(error) => return Err(Violation::detected(error)), // full, too: there is space for the probes
            Ok(had) => {
                let before = match len {
                    Some(len) => right.insert(key(at), value(n, at, len)),
                    None => right.remove(&key(at)),
                };
                if had != before.is_some() {
                    return Err(Violation::new(format!("key {at} was there: {had}, and should have been: {}", !had)));
                }
            }
        }
    }
    for _ in 0..2 {
        store.checkpoint().map_err(Violation::detected)?;
    }
    if read(store, false)? == right {
        Ok(())
    } else {
        Err(Violation::new("after recovery the store does not keep what it is given"))
    }
}

/// So many of the last transactions of a log may be missing.
#[derive(Clone, Copy, Debug, Default)]
struct Unnoticed {
    most: usize,
    /// They are all in one.
    grouped: bool,
    /// Of one only: a page of the table of segments may take the ends of several.
    one: bool,
}

/// What was promised, against what is there: how many of the last are missing?
fn held(there: &State, history: &History<Effect>, unnoticed: Unnoticed) -> Result<usize, Violation> {
    let (mut places, mut logs) = (BTreeMap::new(), BTreeMap::new());
    for effect in history.acknowledged.iter().chain(&history.in_doubt) {
        match effect {
            Effect::At(n, at) => drop(places.insert(*n, *at)),
            Effect::By(n, thread) => drop(logs.insert(*n, if unnoticed.grouped { 0 } else { *thread })),
            _ => {}
        }
    }
    let (mut done, mut doubt) = (Vec::new(), Vec::new());
    for effect in history.acknowledged.iter().chain(&history.in_doubt) {
        if let Effect::Write(n, writes) = effect {
            match places.get(n) {
                Some(at) => done.push((*at, *n, writes)),
                None => doubt.push((u64::MAX, *n, writes)),
            }
        }
    }
    done.sort_unstable();
    // One that only removes what is not there writes nothing, so that it is none of the last of its log.
    let mut state = BTreeSet::new();
    let mut wrote = BTreeSet::new();
    for (_, n, writes) in &done {
        for (at, len) in *writes {
            let had = if len.is_some() { state.insert(*at) } else { state.remove(at) };
            let changes = len.is_some() || had;
            if changes {
                wrote.insert(*n);
            }
        }
    }
    // What is in doubt came last, each whole or not at all, in some order.
    let mut orders: Vec<Vec<usize>> = vec![vec![]];
    for at in 0..doubt.len() {
        let more: Vec<Vec<usize>> = orders
            .iter()
            .flat_map(|order| {
                (0..=order.len()).map(move |place| {
                    let mut order = order.clone();
                    order.insert(place, at);
                    order
                })
            })
            .collect();
        orders.extend(more);
    }
    let right = |order: &Vec<usize>, gone: &[u64]| {
        let mut state = State::new();
        let there_still = done.iter().filter(|(_, n, _)| !gone.contains(n));
        for (_, n, writes) in there_still.chain(order.iter().map(|at| &doubt[*at])) {
            for (at, len) in *writes {
                match len {
                    Some(len) => state.insert(key(*at), value(*n, *at, *len)),
                    None => state.remove(&key(*at)),
                };
            }
        }
        state == *there
    };
    if orders.iter().any(|order| right(order, &[])) {
        return Ok(0);
    }
    let all: BTreeSet<usize> = logs.values().copied().collect();
    // Of each log so many.
    let mut shortened: Vec<BTreeMap<usize, usize>> = vec![BTreeMap::new()];
    for log in all.iter().filter(|_| unnoticed.most > 0) {
        let with = |before: &BTreeMap<_, _>, lost| before.iter().map(|(l, n)| (*l, *n)).chain([(*log, lost)]).collect();
        let more = (1..=unnoticed.most).flat_map(|lost| shortened.iter().map(move |before| with(before, lost)));
        let more: Vec<BTreeMap<usize, usize>> = more.collect();
        if unnoticed.one {
            shortened.extend(more.into_iter().filter(|lost| lost.len() == 1));
        } else {
            shortened.extend(more);
        }
    }
    for lost in &shortened[1..] {
        let last_of = |(log, lost): (&usize, &usize)| {
            let of_it = |n: &u64| wrote.contains(n) && logs.get(n) == Some(log);
            done.iter().rev().map(|(_, n, _)| *n).filter(of_it).take(*lost).collect::<Vec<_>>()
        };
        let gone: Vec<u64> = lost.iter().flat_map(last_of).collect();
        // Nothing stands in a log behind what is missing; in that of groups another thread's, which has not returned, may stand before it.
        let is_behind =
            |at: &usize| !unnoticed.grouped && logs.get(&doubt[*at].1).is_some_and(|log| lost.contains_key(log));
        if orders.iter().filter(|order| !order.iter().any(is_behind)).any(|order| right(order, &gone)) {
            return Ok(gone.len());
        }
    }
    let show = |state: &State| state.iter().map(|(k, v)| (k.clone(), number(v), v.len())).collect::<Vec<_>>();
    Err(Violation::new(format!("there are {:?}; done {done:?}, in doubt {doubt:?}", show(there))))
}

/// What was promised of commits that return before their barrier, against what is there.
/// How many of the last that were durable are missing?
fn held_back(there: &State, history: &History<Effect>, unnoticed: usize) -> Result<usize, Violation> {
    let (mut all, mut places, mut moments) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let known = history.acknowledged.iter().map(|effect| (true, effect));
    for (durable, effect) in known.chain(history.in_doubt.iter().map(|effect| (false, effect))) {
        match effect {
            Effect::Write(n, writes) => drop(all.insert(*n, (durable, writes))),
            Effect::At(n, at) => drop(places.insert(*n, *at)),
            Effect::Returned(n, began, returned) => drop(moments.insert(*n, (*began, *returned))),
            Effect::By(..) => {}
        }
    }
    let survived = |n: &u64| there.contains_key(&marker(*n));
    let mut durable: Vec<u64> = all.iter().filter(|(_, (durable, _))| *durable).map(|(n, _)| *n).collect();
    durable.sort_by_key(|n| places.get(n).copied().unwrap_or(u64::MAX));
    let kept = durable.len() - durable.len().min(unnoticed);
    if let Some(n) = durable[..kept].iter().find(|n| !survived(n)) {
        return Err(Violation::new(format!("transaction {n} was durable")));
    }
    let lost = durable.iter().filter(|n| !survived(n)).count();
    for (n, (began, _)) in moments.iter().filter(|(n, _)| survived(n)) {
        if let Some((gone, _)) = moments.iter().find(|(other, (_, returned))| returned < began && !survived(other)) {
            return Err(Violation::new(format!(
                "transaction {n} is there, and {gone}, which had returned before it began, is not"
            )));
        }
    }
    let mut order: Vec<(u64, u64)> =
        all.keys().filter(|n| survived(n)).map(|n| (places.get(n).copied().unwrap_or(u64::MAX), *n)).collect();
    order.sort_unstable();
    let mut right = State::new();
    for (_, n) in &order {
        for (at, len) in all[n].1 {
            match len {
                Some(len) => right.insert(key(*at), value(*n, *at, *len)),
                None => right.remove(&key(*at)),
            };
        }
        right.insert(marker(*n), value(*n, 0, 0));
    }
    if right == *there {
        Ok(lost)
    } else {
        let show: Vec<_> = there.iter().map(|(k, v)| (k.escape_ascii().to_string(), number(v), v.len())).collect();
        Err(Violation::new(format!("of transactions {order:?} not all is there: {show:?}; of {all:?} at {places:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of five transactions by two threads, in turns, these are found.
    fn lost(found: &[u64], most: usize, one: bool) -> Result<usize, Violation> {
        let of =
            |n: u64| [Effect::By(n, n as usize % 2), Effect::Write(n, vec![(n as u8, Some(20))]), Effect::At(n, n)];
        let history = History { acknowledged: (1..=5).flat_map(of).collect(), in_doubt: Vec::new() };
        let there = found.iter().map(|n| (key(*n as u8), value(*n, *n as u8, 20))).collect();
        held(&there, &history, Unnoticed { most, grouped: false, one })
    }

    #[test]
    fn the_ends_of_logs_may_be_gone_and_no_more() {
        assert_eq!(lost(&[1, 2, 3, 4, 5], 0, true), Ok(0));
        assert!(lost(&[1, 2, 3, 4], 0, true).is_err(), "of a store that was closed, or had no fault");
        assert_eq!(lost(&[1, 2, 3, 4], 1, true), Ok(1));
        assert_eq!(lost(&[1, 2, 4], 2, true), Ok(2), "both of one thread");
        assert!(lost(&[2, 4], 2, true).is_err(), "more than the watermark leaves out");
        assert!(lost(&[1, 2, 4, 5], 2, true).is_err(), "a hole");
        assert!(lost(&[1, 2, 3], 2, true).is_err(), "of two logs");
        assert_eq!(lost(&[1, 2, 3], 2, false), Ok(2), "of two logs");
        assert!(lost(&[2, 3, 4], 2, false).is_err(), "a hole");
    }
}
