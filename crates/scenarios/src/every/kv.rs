//! Transactions, snapshots, a feed and single operations of a store, on a few keys.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex};

use crash::{Ack, Error, History, Rng, Scenario, Sim, Ticket, Violation};
use kv::{Batch, Changes, Durability, Isolation, Keys, Options, Snapshot, Store, Timestamp, Transaction};
use pmem::Pool;

use super::kv_check::check;
use super::kv_values::{
    Effect, KEYS, PAST, Pairs, TYPES, Value, Values, WATERMARK, bytes, is_live, key, of, pairs, table,
};
use super::{ACTORS, some};

const SEGMENT: u64 = 4096;
const LENGTHS: [usize; 5] = [8, 8, 60, 700, 1500];
const FUTURE: u64 = u64::MAX >> 2;

macro_rules! kinds {
    ($($kind:ident)*) => {
        /// What an actor does next, after the functions.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "named after the functions")]
        pub enum Kind { $($kind),* }
        const KINDS: &[Kind] = &[$(Kind::$kind),*];
    };
}

kinds! {
    Get Scan Expires Version Prefetch TableGet TablePrefix
    Put PutUntil Delete DeleteRange TablePut TableDelete
    Commit CommitAsync Abort Drop
    StoreGet StoreView StorePut StorePutUntil StoreDelete CompareAndSet Write Load Loader Transact TransactAt
    Checkpoint GrowAhead Sync Stats Check DropDamaged Sweep ExpireBefore Feed Backup
}

/// One operation: which, on which keys, and with what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Act {
    /// Which.
    pub kind: Kind,
    /// From this key to that.
    pub keys: (u8, u8),
    /// The value's length.
    pub len: usize,
    /// Whatever else there is to choose.
    pub choice: u64,
}

/// What happens next.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Transactions side by side: whose turn it is, and what it does. Those that are open at the end are dropped.
    Together(Vec<(usize, Act)>),
    /// The store is closed, or not, and opened again, perhaps with what is damaged given up.
    Reopen(bool, bool),
}

/// Generated workloads of a store.
#[derive(Clone)]
pub struct EveryKv {
    name: &'static str,
    bound: u32,
    script: Option<Vec<Op>>,
    adjust: fn(Options) -> Options,
}

/// The open store, and what is committed in it.
pub struct Live {
    sim: Arc<Sim>,
    open: Mutex<Option<(Store, Pool)>>,
    model: Mutex<Model>,
}

#[derive(Default)]
struct Model {
    values: Values,
    commits: u64,
    next: u64,
    /// Committed, and not yet known to be durable.
    waiting: VecDeque<Ticket>,
}

fn keys(from: u8, to: u8, reverse: bool) -> kv::Result<Keys> {
    Ok(Keys { from: Bound::Included(key(from)?), to: Bound::Excluded(key(to)?), reverse })
}

impl EveryKv {
    /// Workloads whose commits are durable, or of which so many may be at risk.
    pub fn new(name: &'static str, bound: u32) -> Self {
        Self { name, bound, script: None, adjust: |options| options }
    }

    /// Exactly these operations.
    pub fn script(bound: u32, ops: Vec<Op>) -> Self {
        Self { script: Some(ops), ..Self::new("kv-every-script", bound) }
    }

    /// Changes how the store is opened, in the program and at recovery.
    #[must_use]
    pub fn adjust(self, adjust: fn(Options) -> Options) -> Self {
        Self { adjust, ..self }
    }

    fn options(&self) -> Options {
        let durability = if self.bound == 0 { Durability::Durable } else { Durability::Bounded(self.bound) };
        let options = Options::new().durability(durability).group_commit(false).background(false);
        (self.adjust)(
            options.segment_bytes(SEGMENT).checkpoint_bytes(2 * SEGMENT).transactions(8).watermark_every(WATERMARK),
        )
    }

    fn open(&self, sim: &Arc<Sim>, salvage: bool) -> kv::Result<(Store, Pool)> {
        let pool = pmem::Options::new().open_on(sim.clone())?;
        // What is damaged in a value shows if it is looked for.
        let options = self.options().salvage(salvage).verify(sim.planted().is_some());
        Ok((options.open_in(&pool)?, pool))
    }
}

fn drawn(rng: &mut Rng) -> Vec<Op> {
    let most = 1 + rng.below(KEYS.into()) as u8;
    let steps = some(rng, &KINDS[..Kind::Commit as usize]);
    let ends = some(rng, &KINDS[Kind::Commit as usize..Kind::StoreGet as usize]);
    let single = some(rng, &KINDS[Kind::StoreGet as usize..Kind::Checkpoint as usize]);
    let whole = some(rng, &KINDS[Kind::Checkpoint as usize..]);
    let rarely = 4 + rng.below(5);
    let actors = 1 + rng.index(ACTORS);
    let act = |rng: &mut Rng, kind| {
        let (a, b) = (rng.below(most.into()) as u8, rng.below(most.into()) as u8);
        let len = LENGTHS[rng.index(LENGTHS.len())];
        Act { kind, keys: (a.min(b), a.max(b)), len, choice: rng.bits() >> 32 }
    };
    let mut ops = Vec::new();
    for _ in 0..5 {
        let mut acts = Vec::new();
        for _ in 0..2 + rng.below(9) {
            let kind = match rng.below(rarely) {
                0 => whole[rng.index(whole.len())],
                1 => single[rng.index(single.len())],
                2 => [Kind::Commit, ends[rng.index(ends.len())]][rng.index(2)],
                3 => [Kind::Put, Kind::Delete][rng.index(2)],
                _ => steps[rng.index(steps.len())],
            };
            // A file is made, read, and removed.
            let kind = if kind == Kind::Backup && rng.chance(3, 4) { Kind::Checkpoint } else { kind };
            acts.push((rng.index(actors), act(rng, kind)));
        }
        let first = rng.index(actors);
        for at in 0..actors {
            let kind = if rng.chance(3, 4) { Kind::Commit } else { ends[rng.index(ends.len())] };
            acts.push(((first + at) % actors, act(rng, kind)));
        }
        ops.push(Op::Together(acts));
        if rng.chance(1, 3) {
            ops.push(Op::Reopen(rng.chance(1, 2), rng.chance(1, 4)));
        }
    }
    ops
}

// ---- an actor -------------------------------------------------------------------------------------------------------

/// A transaction, or a snapshot, and what it must see.
struct Open<'s> {
    tx: Reads<'s>,
    values: Values,
    since: u64,
    began: Timestamp,
    own: BTreeMap<u8, Option<Value>>,
    /// It has expired.
    too_old: bool,
}

enum Reads<'s> {
    Transaction(Transaction<'s>),
    Snapshot(Snapshot<'s>),
}

fn wrong<T>(what: impl Into<String>) -> Result<T, Error> {
    Err(what.into().into())
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, right: T) -> Result<(), Error> {
    if found == right { Ok(()) } else { wrong(format!("{what} shows {found:?}, and should show {right:?}")) }
}

fn live_pairs(values: &Values, from: u8, to: u8) -> kv::Result<Pairs> {
    let live = values.range(from..to).filter(|(_, value)| is_live(value));
    live.map(|(n, value)| Ok((key(*n)?, bytes(*value)))).collect()
}

impl Open<'_> {
    fn view(&self) -> Values {
        let mut values = self.values.clone();
        Effect(self.own.clone()).apply(&mut values);
        values
    }

    fn act(&mut self, act: &Act, n: u64) -> Result<(), Error> {
        let (from, to) = (act.keys.0, act.keys.1 + 1);
        let (name, view) = (key(from)?, self.view());
        let seen = view.get(&from).filter(|value| is_live(value)).copied();
        let table = table()?;
        let tx = match &mut self.tx {
            Reads::Snapshot(snapshot) => {
                match act.kind {
                    Kind::Scan | Kind::DeleteRange => {
                        let all = pairs(snapshot.scan(keys(from, to, false)?))?;
                        same("a snapshot", all, live_pairs(&view, from, to)?)?;
                    }
                    Kind::Expires => same("a snapshot", snapshot.expires(&name)?, seen.and_then(|seen| seen.2))?,
                    Kind::TableGet => {
                        same("a table", table.get(snapshot, &of(from))?.map(<[u8]>::to_vec), seen.map(bytes))?;
                    }
                    _ => same("a snapshot", snapshot.get(&name)?.map(<[u8]>::to_vec), seen.map(bytes))?,
                }
                return Ok(());
            }
            Reads::Transaction(tx) => tx,
        };
        let expires = match act.kind {
            Kind::PutUntil => Some([PAST, FUTURE][act.choice as usize % 2]),
            _ => None,
        };
        let value: Value = (n, act.len, expires);
        match act.kind {
            Kind::Get => same("a transaction", tx.get(&name)?.map(<[u8]>::to_vec), seen.map(bytes))?,
            Kind::TableGet => same("a table", table.get(tx, &of(from))?.map(<[u8]>::to_vec), seen.map(bytes))?,
            Kind::Expires => same("a transaction", tx.expires(&name)?, seen.and_then(|seen| seen.2))?,
            Kind::Version => {
                let committed = seen.is_some() && !self.own.contains_key(&from);
                same("a version", tx.version(&name)?.is_some(), committed)?;
            }
            Kind::Prefetch => tx.prefetch(&[&name]),
            Kind::Scan => {
                let reverse = act.choice.is_multiple_of(2);
                let mut right = live_pairs(&view, from, to)?;
                if reverse {
                    right.reverse();
                }
                same("a scan", pairs(tx.scan(keys(from, to, reverse)?))?, right)?;
            }
            Kind::TablePrefix => {
                let entries = table.prefix(tx, &(of(from).0,));
                let found: kv::Result<Pairs> =
                    entries.map(|entry| entry.map(|(n, value)| (table.raw_key(&n), value.to_vec()))).collect();
                same("a prefix", found?, live_pairs(&view, from / 2 * 2, from / 2 * 2 + 2)?)?;
            }
            Kind::DeleteRange => {
                let gone: Vec<u8> = view.range(from..to).filter(|(_, v)| is_live(v)).map(|(n, _)| *n).collect();
                same("a range", tx.delete_range(keys(from, to, false)?)?, gone.len() as u64)?;
                self.own.extend(gone.into_iter().map(|n| (n, None)));
            }
            Kind::Delete | Kind::TableDelete => {
                let had = if act.kind == Kind::Delete { tx.delete(&name)? } else { table.delete(tx, &of(from))? };
                same("a deletion", had, seen.is_some())?;
                self.own.insert(from, None);
            }
            _ => {
                let had = match act.kind {
                    Kind::PutUntil => tx.put_until(&name, &bytes(value), expires.unwrap_or(FUTURE))?,
                    Kind::TablePut => table.put(tx, &of(from), &bytes(value))?,
                    _ => tx.put(&name, &bytes(value))?,
                };
                same("a write", had, seen.is_some())?;
                self.own.insert(from, Some(value));
            }
        }
        Ok(())
    }
}

// ---- what is between them -------------------------------------------------------------------------------------------

impl Live {
    fn model(&self) -> std::sync::MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn next(&self) -> u64 {
        let mut model = self.model();
        model.next += 1;
        model.next
    }

    /// Runs what commits this; returns what it returns.
    fn commit<R>(
        &self,
        own: BTreeMap<u8, Option<Value>>,
        ack: &Ack<Effect>,
        store: &Store,
        f: impl FnOnce() -> kv::Result<R>,
    ) -> kv::Result<R> {
        if own.is_empty() {
            return f();
        }
        // In doubt from here on: what is not committed is nowhere.
        let effect = Effect(own);
        let ticket = ack.begin(effect.clone());
        let before = store.stats().commits;
        match f() {
            // It deleted what was not there: that is no commit.
            Ok(done) if store.stats().commits == before => {
                ack.abort(ticket);
                Ok(done)
            }
            Ok(done) => {
                let mut model = self.model();
                effect.apply(&mut model.values);
                model.commits += 1;
                model.waiting.push_back(ticket);
                drop(model);
                self.acknowledge(store, ack);
                Ok(done)
            }
            Err(e) => {
                // Otherwise a device has failed: it stays in doubt.
                if e.is_conflict() || matches!(e, kv::Error::Expired { .. } | kv::Error::GaveUp { .. }) {
                    ack.abort(ticket);
                }
                Err(e)
            }
        }
    }

    /// What is durable by now.
    fn acknowledge(&self, store: &Store, ack: &Ack<Effect>) {
        let mut model = self.model();
        while model.waiting.len() as u64 > store.at_risk() {
            model.waiting.pop_front().into_iter().for_each(|ticket| ack.commit(ticket));
        }
    }
}

struct Together<'s> {
    live: &'s Live,
    store: &'s Store,
    bound: u32,
    actors: [Option<Open<'s>>; ACTORS],
    /// What it told so far, folded.
    feed: Option<(Changes<'s>, Values)>,
}

impl<'s> Together<'s> {
    fn begin(&self, act: &Act) -> Result<Open<'s>, Error> {
        let tx = if act.choice.is_multiple_of(5) {
            Reads::Snapshot(self.store.snapshot()?)
        } else {
            Reads::Transaction(self.store.begin(Isolation::ALL[(act.choice % 3) as usize])?)
        };
        let began = match &tx {
            Reads::Transaction(tx) => tx.snapshot(),
            Reads::Snapshot(snapshot) => snapshot.timestamp(),
        };
        let model = self.live.model();
        let (values, since) = (model.values.clone(), model.commits);
        Ok(Open { tx, values, since, began, own: BTreeMap::new(), too_old: false })
    }

    /// An error that the others explain is none.
    fn explain(&self, error: Error, others: bool, open: Option<&Open<'_>>) -> Result<(), Error> {
        let since = open.map_or(u64::MAX, |open| open.since);
        match error.downcast_ref::<kv::Error>() {
            Some(e) if e.is_conflict() && (others || self.live.model().commits > since) => Ok(()),
            Some(kv::Error::GaveUp { .. }) if others => Ok(()),
            Some(kv::Error::Expired { .. }) if open.is_some_and(|open| open.too_old) => Ok(()),
            _ => Err(error),
        }
    }

    fn turn(&mut self, who: usize, act: &Act, ack: &Ack<Effect>) -> Result<(), Error> {
        let others = self.actors.iter().enumerate().any(|(other, open)| other != who && open.is_some());
        match act.kind {
            Kind::Commit | Kind::CommitAsync | Kind::Abort | Kind::Drop => {
                let Some(mut open) = self.actors[who].take() else { return Ok(()) };
                let own = std::mem::take(&mut open.own);
                let (since, began, too_old) = (open.since, open.began, open.too_old);
                let done = match (open.tx, act.kind) {
                    (Reads::Transaction(tx), Kind::Abort) => {
                        tx.abort();
                        Ok(())
                    }
                    (Reads::Transaction(tx), Kind::Commit) => {
                        self.live.commit(own, ack, self.store, || tx.commit()).map(drop)
                    }
                    // Threads commit where a device has to be waited for: what they do is not drawn from the seed.
                    (Reads::Transaction(tx), Kind::CommitAsync) if self.store.commits_wait() => {
                        self.live.commit(own, ack, self.store, || tx.commit()).map(drop)
                    }
                    (Reads::Transaction(tx), Kind::CommitAsync) => {
                        self.live.commit(own, ack, self.store, || tx.commit_async().wait()).map(drop)
                    }
                    (reads, _) => {
                        drop(reads);
                        Ok(())
                    }
                };
                let at_risk = self.store.at_risk();
                if at_risk > self.bound.into() {
                    return wrong(format!("{at_risk} commits are at risk, and at most {} may be", self.bound));
                }
                let Err(e) = done else { return Ok(()) };
                let conflict = e.is_conflict() && (others || self.live.model().commits > since);
                let old = too_old && matches!(e, kv::Error::Expired { .. });
                if conflict || old { Ok(()) } else { wrong(format!("a commit of what began at {began:?} fails: {e}")) }
            }
            kind if kind >= Kind::Checkpoint => self.whole(act, ack),
            kind if kind >= Kind::StoreGet => {
                let others = others || self.actors[who].is_some();
                self.single(act, ack).or_else(|e| self.explain(e, others, None))
            }
            _ => {
                let mut open = match self.actors[who].take() {
                    Some(open) => open,
                    None => self.begin(act)?,
                };
                match open.act(act, self.live.next()) {
                    Ok(()) => self.actors[who] = Some(open),
                    Err(e) => self.explain(e, others, Some(&open))?,
                }
                Ok(())
            }
        }
    }

    /// An operation that is a transaction by itself.
    fn single(&mut self, act: &Act, ack: &Ack<Effect>) -> Result<(), Error> {
        let (store, live, at) = (self.store, self.live, act.keys.0);
        let name = key(at)?;
        let had = live.model().values.get(&at).filter(|value| is_live(value)).copied();
        let held: BTreeSet<u8> = self.actors.iter().flatten().flat_map(|open| open.own.keys().copied()).collect();
        if act.kind > Kind::StoreView && held.contains(&at) {
            return Ok(()); // it would wait for a transaction of its own thread
        }
        let until = [PAST, FUTURE][act.choice as usize % 2];
        let value = (live.next(), act.len, None);
        let put = |value: Value| BTreeMap::from([(at, Some(value))]);
        let what = "an operation";
        match act.kind {
            Kind::StoreGet => same(what, store.get(&name)?, had.map(bytes)),
            Kind::StoreView => same(what, store.view(&name, |v| v.map(<[u8]>::to_vec))?, had.map(bytes)),
            Kind::StorePut => {
                same(what, live.commit(put(value), ack, store, || store.put(&name, &bytes(value)))?, had.is_some())
            }
            Kind::StorePutUntil => {
                let value = (value.0, value.1, Some(until));
                let done = live.commit(put(value), ack, store, || store.put_until(&name, &bytes(value), until))?;
                same(what, done, had.is_some())
            }
            Kind::StoreDelete => {
                let own = BTreeMap::from([(at, None)]);
                same(what, live.commit(own, ack, store, || store.delete(&name))?, had.is_some())
            }
            Kind::CompareAndSet => {
                let expected = if act.choice.is_multiple_of(4) { Some(b"another".to_vec()) } else { had.map(bytes) };
                let new = (!act.choice.is_multiple_of(3)).then_some(value);
                let fits = expected == had.map(bytes);
                let own = if fits { BTreeMap::from([(at, new)]) } else { BTreeMap::new() };
                let new = new.map(bytes);
                let cas = || store.compare_and_set(&name, expected.as_deref(), new.as_deref());
                same(what, live.commit(own, ack, store, cas)?, fits)
            }
            Kind::Write => {
                let value = (value.0, value.1, Some(until));
                let mut batch = Batch::new();
                batch.put(&name, b"first").put_until(&name, &bytes(value), until);
                Ok(live.commit(put(value), ack, store, || store.write(&batch))?)
            }
            Kind::Load => {
                let load = || store.load([(&name, bytes(value))]);
                same(what, live.commit(put(value), ack, store, load)?.pairs, 1)
            }
            Kind::Loader => {
                let load = || {
                    let mut loader = store.loader();
                    loader.put(&name, &bytes(value), None)?;
                    loader.finish()
                };
                same(what, live.commit(put(value), ack, store, load)?.pairs, 1)
            }
            kind => {
                let body = |tx: &mut Transaction<'_>| {
                    let found = tx.get(&name)?.map(<[u8]>::to_vec);
                    tx.put(&name, &bytes(value))?;
                    Ok(found)
                };
                let isolation = Isolation::ALL[(act.choice % 3) as usize];
                let run = || match kind {
                    Kind::Transact => store.transact(body),
                    _ => store.transact_at(isolation, body),
                };
                same(what, live.commit(put(value), ack, store, run)?, had.map(bytes))
            }
        }
    }

    /// An operation with all of the store.
    fn whole(&mut self, act: &Act, ack: &Ack<Effect>) -> Result<(), Error> {
        let (store, live) = (self.store, self.live);
        match act.kind {
            Kind::Checkpoint => store.checkpoint()?,
            // With a checkpoint and a sweep: all that the thread in the background does.
            Kind::GrowAhead => store.grow_ahead()?,
            Kind::Sync => {
                store.sync()?;
                same("what is at risk behind a sync", store.at_risk(), 0)?;
            }
            Kind::Check => {
                let checked = store.check(|_| ())?;
                if !checked.is_sound() {
                    return wrong(format!("a store that nothing has happened to: {checked:?}"));
                }
            }
            Kind::DropDamaged => same("what is damaged", store.drop_damaged()?.len(), 0)?,
            // It commits by itself; nothing that can be seen changes.
            Kind::Sweep => {
                let swept = store.sweep()?;
                live.model().commits += swept;
            }
            Kind::ExpireBefore => {
                let limit = self.actors.iter().flatten().map(|open| open.began).max();
                if let Some(limit) = limit {
                    store.expire_before(limit);
                    self.actors.iter_mut().flatten().filter(|open| open.began < limit).for_each(|o| o.too_old = true);
                    self.feed = None;
                }
            }
            Kind::Feed => match &mut self.feed {
                None => {
                    let values = live.model().values.clone();
                    self.feed = Some((store.changes()?, values));
                }
                Some((feed, values)) => {
                    let mut told = live_pairs(values, 0, KEYS)?.into_iter().collect::<BTreeMap<_, _>>();
                    while let Some(changed) = feed.next()? {
                        match changed.value.filter(|_| changed.expires != Some(PAST)) {
                            Some(value) => drop(told.insert(changed.key, value)),
                            None => drop(told.remove(&changed.key)),
                        }
                    }
                    let now = live.model().values.clone();
                    same("the feed", told, live_pairs(&now, 0, KEYS)?.into_iter().collect())?;
                    *values = now;
                }
            },
            Kind::Backup => {
                let dir = tempfile::tempdir()?;
                let copy = dir.path().join("copy");
                let right = live_pairs(&live.model().values, 0, KEYS)?;
                store.backup(&copy)?;
                let copy = Options::new().background(false).open_read_only(&copy)?;
                same("a backup", pairs(copy.snapshot()?.scan(Keys::all()))?, right)?;
            }
            _ => {
                let open = self.actors.iter().flatten().count() + usize::from(self.feed.is_some());
                same("how many are active", store.stats().active, open)?;
            }
        }
        live.acknowledge(store, ack);
        Ok(())
    }
}

impl Scenario for EveryKv {
    type Op = Op;
    type Effect = Effect;
    type State = Pairs;
    type Live = Live;

    fn name(&self) -> &str {
        self.name
    }

    fn capacity(&self) -> u64 {
        512 << 10
    }

    fn setup(&self, sim: &Arc<Sim>) -> Result<(), Error> {
        let pool = pmem::Options::new().size(64 << 10).engine(kv::NAME, [0; 64]).create_on(sim.clone())?;
        let store = self.options().create_in(&pool)?;
        store.put([TYPES, b"t"].concat(), "(u32, u32) -> bytes")?;
        store.close()?;
        pool.close()?;
        Ok(())
    }

    fn start(&self, sim: &Arc<Sim>) -> Result<Live, Error> {
        let open = self.open(sim, false)?;
        Ok(Live { sim: sim.clone(), open: Mutex::new(Some(open)), model: Mutex::default() })
    }

    fn ops(&self, rng: &mut Rng) -> Vec<(usize, Op)> {
        self.script.clone().unwrap_or_else(|| drawn(rng)).into_iter().map(|op| (0, op)).collect()
    }

    fn step(&self, live: &Live, _: usize, op: &Op, ack: &Ack<Effect>) -> Result<(), Error> {
        let mut open = live.open.lock().map_err(|e| e.to_string())?;
        match op {
            Op::Together(acts) => {
                let store = &open.as_ref().ok_or("closed")?.0;
                let actors = [const { None }; ACTORS];
                let mut all = Together { live, store, bound: self.bound, actors, feed: None };
                acts.iter().try_for_each(|(who, act)| all.turn(*who, act, ack))
            }
            Op::Reopen(clean, salvage) => {
                let (store, pool) = open.take().ok_or("closed")?;
                if *clean {
                    store.close()?;
                    pool.close()?;
                } else {
                    store.abandon();
                    drop(pool);
                }
                let (store, pool) = self.open(&live.sim, *salvage)?;
                // Nothing was lost: the program stopped, and the caches did not.
                live.acknowledge(&store, ack);
                let right = live_pairs(&live.model().values, 0, KEYS)?;
                same("a store opened again", pairs(store.snapshot()?.scan(Keys::all()))?, right)?;
                *open = Some((store, pool));
                Ok(())
            }
        }
    }

    fn finish(&self, live: Live) -> Result<(), Error> {
        if let Some((store, pool)) = live.open.into_inner().map_err(|e| e.to_string())? {
            store.close()?;
            pool.close()?;
        }
        Ok(())
    }

    fn check(&self, sim: &Arc<Sim>, history: &History<Effect>) -> Result<Pairs, Violation> {
        check(|| self.open(sim, false), self.bound, sim, history)
    }
}
