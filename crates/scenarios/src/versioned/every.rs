//! Actors of one thread take turns, each in the middle of a transaction of its own, at a level of its own, beside snapshots that are held.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use crash::{Ack, Error, History, Rng, Scenario, Sim, Violation};
use mvcc::{Mvcc, Options, Snapshot, Tx};
use pmem::{ErrorKind, PPtr};
use tx::{Engine, Isolation, Procedure, Savepoint, Savepoints, Transaction, Typed};

use super::SLOTS;
use super::calls::{Args, Fill, Mix, Replace, Spawn, mixed};
use super::check::check;
use crate::contents::{Contents, Effect, Objects, PROBE};
use crate::every::some;
use crate::opened::Opened;

const ACTORS: usize = 3;
/// Most objects at a time.
const OBJECTS_MAX: usize = 6;
/// Of objects. The longest do not fit into a log.
const LENGTHS: [u64; 6] = [16, 64, 64, 200, 900, 5000];

/// Of which a chunk holds so many that they have bits in several places.
const CRUMB: u64 = 32;

/// What an actor does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Reads an object, all of it.
    Read,
    /// Writes some bytes of one.
    Write,
    /// Makes one.
    Alloc,
    /// Makes a small one, of a size that no other one has.
    Crumb,
    /// Frees one.
    Free,
    /// Looks at what was made after its snapshot.
    TooNew,
    /// Sets a savepoint.
    Save,
    /// Goes back to one.
    Back,
    /// Commits.
    Commit,
    /// Takes everything back.
    Abort,
    /// Writes back what can be.
    WriteBack,
    /// A snapshot is held from now on.
    Hold,
    /// An object of one that is held.
    Look,
    /// One is held no longer.
    LetGo,
    /// A procedure that mixes an object into another is called.
    Mix,
    /// One that fills an object.
    Fill,
    /// One that makes an object.
    Spawn,
    /// One that makes one and frees another.
    Replace,
}

const OF_OBJECTS: &[Kind] =
    &[Kind::Read, Kind::Write, Kind::Write, Kind::Alloc, Kind::Free, Kind::TooNew, Kind::Save, Kind::Back];
const WHOLE: &[Kind] = &[Kind::WriteBack, Kind::WriteBack, Kind::Hold, Kind::Hold, Kind::Look, Kind::Look, Kind::LetGo];

const CALLS: &[Kind] = &[Kind::Mix, Kind::Mix, Kind::Mix, Kind::Fill, Kind::Spawn, Kind::Replace];

/// One operation: which, on which object, with what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Act {
    /// Which.
    pub kind: Kind,
    /// On this one; numbers above what there is begin again.
    pub on: usize,
    /// Where a range begins, and how long it is, in the same way.
    pub range: (u64, u64),
    /// What is written; the level at which a transaction begins.
    pub word: u64,
}

/// What happens next.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Transactions side by side: whose turn it is, and what it does. What is open at the end is dropped.
    Together(Vec<(usize, Act)>),
    /// The store is closed, or not, and opened again.
    Reopen(bool),
}

/// Generated workloads.
#[derive(Clone, Debug)]
pub struct EveryVersion {
    name: &'static str,
    script: Option<Vec<Op>>,
    calls: bool,
    adjust: fn(Options) -> Options,
}

impl EveryVersion {
    /// Drawn ones.
    pub fn new(name: &'static str) -> Self {
        Self { name, script: None, calls: false, adjust: |options| options }
    }

    /// Drawn ones with calls of procedures.
    pub fn calling(name: &'static str) -> Self {
        Self { calls: true, ..Self::new(name) }
    }

    /// Exactly these operations.
    #[must_use]
    pub fn script(self, ops: Vec<Op>) -> Self {
        Self { script: Some(ops), ..self }
    }

    /// Changes how the store is opened, in the program and at recovery.
    #[must_use]
    pub fn adjust(self, adjust: fn(Options) -> Options) -> Self {
        Self { adjust, ..self }
    }

    pub(super) fn options(&self) -> Result<Options, Error> {
        Ok((self.adjust)(super::options()?))
    }
}

/// The open store, and what is committed in it.
pub struct Live {
    sim: Arc<Sim>,
    open: Opened<Mvcc>,
    committed: Mutex<Committed>,
}

/// What the oracle knows.
#[derive(Default)]
struct Committed {
    objects: Objects,
    /// By which commit each object, also one that was freed, was changed last.
    changed: BTreeMap<u64, u64>,
    commits: u64,
}

// ---- what is drawn --------------------------------------------------------------------------------------------------

fn drawn(rng: &mut Rng, calls: bool) -> Vec<Op> {
    let of_objects = some(rng, OF_OBJECTS);
    let whole = some(rng, WHOLE);
    let (objects, rarely, actors) = (1 + rng.index(4), 3 + rng.below(5), 1 + rng.index(ACTORS));
    let mut ops = Vec::new();
    for _ in 0..4 {
        let mut acts = Vec::new();
        let act = |rng: &mut Rng, kind| Act {
            kind,
            on: rng.index(objects),
            range: (rng.below(120), rng.below(120)),
            word: 1 + rng.below(255),
        };
        for _ in 0..6 + rng.below(14) {
            let kind = match rng.below(rarely) {
                0 => whole[rng.index(whole.len())],
                1 => [Kind::Commit, Kind::Commit, Kind::Abort][rng.index(3)],
                2 | 3 if calls => CALLS[rng.index(CALLS.len())],
                _ => of_objects[rng.index(of_objects.len())],
            };
            acts.push((rng.index(actors), act(rng, kind)));
        }
        // Most of them end well, in some order.
        let first = rng.index(actors);
        for at in 0..actors {
            let kind = if rng.chance(3, 4) { Kind::Commit } else { Kind::Abort };
            acts.push(((first + at) % actors, act(rng, kind)));
        }
        ops.push(Op::Together(acts));
        if rng.chance(1, 3) {
            ops.push(Op::Reopen(rng.chance(1, 2)));
        }
    }
    ops
}

// ---- what is done ---------------------------------------------------------------------------------------------------

/// A transaction, and what it sees.
struct Running<'m> {
    tx: Tx<'m>,
    level: Isolation,
    view: Objects,
    /// The last commit that it sees.
    began: u64,
    read: BTreeSet<u64>,
    changed: BTreeMap<u64, Contents>,
    saved: Vec<Saved>,
    /// What it has made itself.
    made: BTreeSet<u64>,
}

/// A savepoint, and what the transaction saw and had changed.
struct Saved {
    savepoint: Savepoint,
    view: Objects,
    changed: BTreeMap<u64, Contents>,
}

/// All that goes on beside each other.
struct Stage<'m> {
    store: &'m Mvcc,
    committed: &'m mut Committed,
    running: [Option<Running<'m>>; ACTORS],
    held: Vec<(Snapshot<'m>, Objects)>,
}

fn wrong<T>(what: impl Into<String>) -> Result<T, Error> {
    Err(Error::from(what.into()))
}

/// What a transaction may meet at any time, and that is over then.
fn is_full(error: &tx::Error) -> bool {
    matches!(error, tx::Error::Conflict { offset: 0 }) || error.kind() == ErrorKind::Full
}

impl<'m> Stage<'m> {
    fn act(&mut self, actor: usize, act: &Act, ack: &Ack<Effect>) -> Result<(), Error> {
        match act.kind {
            Kind::WriteBack => {
                self.store.write_back()?;
                self.all_stays()?;
            }
            Kind::Hold => {
                if self.held.len() < 3 {
                    self.held.push((self.store.snapshot(), self.committed.objects.clone()));
                }
            }
            Kind::Look => {
                if let Some((snapshot, view)) = self.held.get(act.on % self.held.len().max(1)) {
                    self.look(snapshot, view)?;
                }
            }
            Kind::LetGo => {
                if !self.held.is_empty() {
                    self.held.swap_remove(act.on % self.held.len());
                    self.store.write_back()?;
                }
            }
            Kind::Mix => self.call::<Mix>(act, ack)?,
            Kind::Fill => self.call::<Fill>(act, ack)?,
            Kind::Spawn => self.call::<Spawn>(act, ack)?,
            Kind::Replace => self.call::<Replace>(act, ack)?,
            Kind::Commit => self.commit(actor, ack)?,
            Kind::Abort => {
                if let Some(running) = self.running[actor].take() {
                    running.tx.abort()?;
                }
            }
            _ => self.change(actor, act)?,
        }
        Ok(())
    }

    fn ptr(&self, at: u64) -> PPtr<u8> {
        PPtr::new(self.store.pool().tag(), at)
    }

    /// A snapshot shows what it showed, and nothing that was made later.
    fn look(&self, snapshot: &Snapshot<'_>, view: &Objects) -> Result<(), Error> {
        for (&at, bytes) in view {
            if snapshot.with(self.ptr(at), bytes.len() as u64, |found| found != bytes.as_slice())? {
                return wrong(format!("a snapshot shows another object at {at} than it did"));
            }
        }
        let newer = self.committed.objects.keys().find(|at| !view.contains_key(at));
        if let Some(&at) = newer
            && snapshot.with(self.ptr(at), 1, |_| ()).is_ok()
        {
            return wrong(format!("a snapshot shows the object at {at}, which was made later"));
        }
        Ok(())
    }

    /// What snapshots and transactions see does not change.
    fn all_stays(&self) -> Result<(), Error> {
        self.held.iter().try_for_each(|(snapshot, view)| self.look(snapshot, view))?;
        // Others would have read all of it when they commit.
        let unvalidated = |running: &&Running<'_>| running.level == Isolation::Snapshot;
        for running in self.running.iter().flatten().filter(unvalidated) {
            for (&at, bytes) in &running.view {
                if running.tx.bytes(self.ptr(at), bytes.len() as u64)? != bytes.as_slice() {
                    return wrong(format!("the object at {at} changes under a transaction that runs"));
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, actor: usize, word: u64) -> Result<(), Error> {
        if self.running[actor].is_none() {
            let level = Isolation::ALL[word as usize % 3];
            let tx = self.store.begin(level)?;
            tx.bytes(tx.root_cell().cast(), 16)?; // from now on it keeps its snapshot, whatever it meets
            let (view, began) = (self.committed.objects.clone(), self.committed.commits);
            let (read, changed) = (BTreeSet::new(), BTreeMap::new());
            self.running[actor] =
                Some(Running { tx, level, view, began, read, changed, saved: Vec::new(), made: BTreeSet::new() });
        }
        Ok(())
    }

    fn change(&mut self, actor: usize, act: &Act) -> Result<(), Error> {
        self.begin(actor, act.word)?;
        let objects: Vec<u64> = match &self.running[actor] {
            Some(running) => running.view.keys().copied().collect(),
            None => return Ok(()),
        };
        let at = objects.get(act.on % objects.len().max(1)).copied();
        let survives = match (act.kind, at) {
            (Kind::Alloc | Kind::Crumb, _) if objects.len() < OBJECTS_MAX => self.alloc(actor, act)?,
            (Kind::TooNew, _) => self.too_new(actor)?,
            (Kind::Save | Kind::Back, _) => self.go_back(actor, act)?,
            (Kind::Read, Some(at)) => self.read(actor, at)?,
            (Kind::Write | Kind::Free, Some(at)) => self.write(actor, at, act)?,
            _ => true,
        };
        if !survives && let Some(running) = self.running[actor].take() {
            running.tx.abort()?;
        }
        Ok(())
    }

    fn alloc(&mut self, actor: usize, act: &Act) -> Result<bool, Error> {
        let Some(running) = &mut self.running[actor] else { return Ok(true) };
        let len = if act.kind == Kind::Crumb { CRUMB } else { LENGTHS[act.range.0 as usize % LENGTHS.len()] };
        let made = running.tx.alloc_bytes(len, 8);
        let made = made.and_then(|ptr| Ok((ptr, running.tx.room(ptr)?)));
        match made {
            Ok((ptr, len)) => {
                let mut bytes = vec![0; len as usize];
                bytes[8] = act.word as u8;
                running.tx.bytes_mut(ptr, 9)?[8] = act.word as u8;
                running.view.insert(ptr.offset(), bytes.clone());
                running.changed.insert(ptr.offset(), Some(bytes));
                running.made.insert(ptr.offset());
                Ok(true)
            }
            Err(e) if is_full(&e) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// What was committed behind its snapshot is not there: a conflict.
    fn too_new(&mut self, actor: usize) -> Result<bool, Error> {
        let tag = self.store.pool().tag();
        let Some(running) = &mut self.running[actor] else { return Ok(true) };
        let known = |at: &&u64| !running.view.contains_key(at) && !running.changed.contains_key(at);
        let Some(&at) = self.committed.objects.keys().find(known) else { return Ok(true) };
        match running.tx.bytes(PPtr::new(tag, at), 1) {
            Err(tx::Error::Conflict { .. }) => Ok(false),
            other => wrong(format!("it reads the object at {at}, which was made later: {other:?}")),
        }
    }

    fn read(&mut self, actor: usize, at: u64) -> Result<bool, Error> {
        let ptr = self.ptr(at);
        let Some(running) = &mut self.running[actor] else { return Ok(true) };
        let Some(wanted) = running.view.get(&at) else { return Ok(true) };
        if running.tx.bytes(ptr, wanted.len() as u64)? != wanted.as_slice() {
            return wrong(format!("it does not read what the object at {at} held when it began"));
        }
        if !running.changed.contains_key(&at) {
            running.read.insert(at);
        }
        Ok(true)
    }

    /// Writes, or frees; false if it met the conflict that it had to meet.
    fn write(&mut self, actor: usize, at: u64, act: &Act) -> Result<bool, Error> {
        let is_locked = (0..ACTORS).any(|other| {
            other != actor && self.running[other].as_ref().is_some_and(|running| running.changed.contains_key(&at))
        });
        let ptr = self.ptr(at);
        let changed = self.committed.changed.get(&at).copied().unwrap_or(0);
        let Some(running) = &mut self.running[actor] else { return Ok(true) };
        let is_own = running.changed.contains_key(&at);
        let Some(bytes) = running.view.get_mut(&at) else { return Ok(true) };
        let (from, len) = (act.range.0 % bytes.len() as u64, bytes.len() as u64);
        // All of a long object has a record that no log holds.
        let count = if act.word.is_multiple_of(4) { len - from } else { 1 + act.range.1 % (len - from) };
        let outcome = match act.kind {
            Kind::Free => running.tx.free_bytes(ptr),
            _ => running.tx.bytes_mut(PPtr::new(ptr.tag(), at + from), count).map(|b| b.fill(act.word as u8)),
        };
        match outcome {
            Ok(()) if is_own || !is_locked && changed <= running.began => {}
            Err(tx::Error::OwnConflict { .. }) if !is_own && is_locked => return Ok(false),
            Err(tx::Error::Conflict { .. }) if !is_own && changed > running.began => return Ok(false),
            Ok(()) => return wrong(format!("two transactions change the object at {at}")),
            Err(e) => return wrong(format!("nobody was in the way of the object at {at}: {e}")),
        }
        match act.kind {
            Kind::Free => {
                running.view.remove(&at);
                running.changed.insert(at, None);
            }
            _ => {
                bytes[from as usize..(from + count) as usize].fill(act.word as u8);
                running.changed.insert(at, Some(bytes.clone()));
            }
        }
        Ok(true)
    }

    /// Sets a savepoint, or goes back to one: what was changed since is as it was, and no longer locked.
    fn go_back(&mut self, actor: usize, act: &Act) -> Result<bool, Error> {
        let Some(running) = &mut self.running[actor] else { return Ok(true) };
        if act.kind == Kind::Save {
            let savepoint = running.tx.savepoint()?;
            let (view, changed) = (running.view.clone(), running.changed.clone());
            running.saved.push(Saved { savepoint, view, changed });
        } else if !running.saved.is_empty() {
            running.saved.truncate(1 + act.on % running.saved.len());
            let Saved { savepoint, view, changed } = &running.saved[running.saved.len() - 1];
            running.tx.rollback_to(*savepoint)?;
            // What it has locked, and locks no more, it has seen.
            let old = running.changed.keys().filter(|at| !changed.contains_key(at) && !running.made.contains(at));
            running.read.extend(old);
            running.view.clone_from(view);
            running.changed.clone_from(changed);
        }
        Ok(true)
    }

    fn commit(&mut self, actor: usize, ack: &Ack<Effect>) -> Result<(), Error> {
        match self.running[actor].take() {
            Some(running) => self.end(running, ack),
            None => Ok(()),
        }
    }

    /// A whole transaction, which is logged as the call of a procedure.
    fn call<P: Procedure<Args = Args, Output = Option<u64>>>(
        &mut self,
        act: &Act,
        ack: &Ack<Effect>,
    ) -> Result<(), Error> {
        let view = self.committed.objects.clone();
        let objects: Vec<u64> = view.keys().copied().collect();
        if objects.is_empty() || act.kind == Kind::Spawn && objects.len() >= OBJECTS_MAX {
            return Ok(());
        }
        let on = |n: usize| objects[n % objects.len()];
        let args = Args { from: on(act.on), to: on(act.on + act.range.0 as usize), word: act.word as u8 };
        let changes = [(Kind::Mix, args.to), (Kind::Fill, args.to), (Kind::Replace, args.from)]
            .into_iter()
            .find(|c| c.0 == act.kind);
        let is_locked =
            self.running.iter().flatten().any(|r| changes.is_some_and(|(_, at)| r.changed.contains_key(&at)));
        let mut tx = self.store.begin_call::<P>(&args)?;
        let made = match P::run(&mut tx, &args) {
            Ok(_) if is_locked => return wrong("a call changes an object that somebody else has locked"),
            Ok(made) => made,
            Err(tx::Error::OwnConflict { .. }) if is_locked => return Ok(tx.abort()?),
            Err(e) if is_full(&e) => return Ok(tx.abort()?),
            Err(e) => return wrong(format!("a call fails: {e}")),
        };
        let mut changed = BTreeMap::new();
        if act.kind == Kind::Mix {
            let mut bytes = view[&args.to].clone();
            mixed(&mut bytes, &view[&args.from], args.word);
            changed.insert(args.to, Some(bytes));
        }
        if act.kind == Kind::Fill {
            changed.insert(args.to, Some(vec![args.word; view[&args.to].len()]));
        }
        if let Some(made) = made {
            let mut bytes = vec![0; view[&args.from].len()];
            mixed(&mut bytes, &view[&args.from], args.word);
            changed.insert(made, Some(bytes));
        }
        if act.kind == Kind::Replace {
            changed.insert(args.from, None);
        }
        let (began, read) = (self.committed.commits, BTreeSet::from([args.from]));
        self.end(
            Running { tx, level: P::ISOLATION, view, began, read, changed, saved: Vec::new(), made: BTreeSet::new() },
            ack,
        )
    }

    fn end(&mut self, running: Running<'m>, ack: &Ack<Effect>) -> Result<(), Error> {
        let Running { tx, level, began, read, changed, .. } = running;
        let is_stale = |at: &u64| self.committed.changed.get(at).is_some_and(|&changed| changed > began);
        let fails = level != Isolation::Snapshot && !changed.is_empty() && read.iter().any(is_stale);
        let ticket = ack.begin(Effect(changed.clone()));
        match tx.commit() {
            Ok(()) if fails => wrong("it committed, though what it had read was changed meanwhile"),
            Ok(()) => {
                ack.commit(ticket);
                if !changed.is_empty() {
                    self.committed.commits += 1;
                    let commit = self.committed.commits;
                    self.committed.changed.extend(changed.keys().map(|&at| (at, commit)));
                    Effect(changed).apply(&mut self.committed.objects);
                }
                Ok(())
            }
            Err(e) if is_full(&e) || fails && matches!(e, tx::Error::Conflict { .. }) => {
                ack.abort(ticket);
                Ok(())
            }
            Err(e) => Err(e.into()),
        }
    }
}

// ---- the scenario ---------------------------------------------------------------------------------------------------

impl Scenario for EveryVersion {
    type Op = Op;
    type Effect = Effect;
    type State = Objects;
    type Live = Live;

    fn name(&self) -> &str {
        self.name
    }

    fn capacity(&self) -> u64 {
        512 << 10
    }

    fn setup(&self, sim: &Arc<Sim>) -> Result<(), Error> {
        let pool = pmem::Options::new().size(16 << 10).create_on(sim.clone())?;
        let store = Mvcc::create_in(&pool, &self.options()?)?;
        drop(pool);
        store.transact(Isolation::Strict, |tx| -> tx::Result<()> {
            let mut probe = [0; 1 + SLOTS];
            probe[0] = PROBE;
            tx.alloc(&probe).map(drop)
        })?;
        store.close()?;
        Ok(())
    }

    fn start(&self, sim: &Arc<Sim>) -> Result<Live, Error> {
        let open = Opened::new(super::open(sim, &self.options()?)?);
        Ok(Live { sim: sim.clone(), open, committed: Mutex::default() })
    }

    fn ops(&self, rng: &mut Rng) -> Vec<(usize, Op)> {
        let ops = self.script.clone().unwrap_or_else(|| drawn(rng, self.calls));
        ops.into_iter().map(|op| (0, op)).collect()
    }

    fn step(&self, live: &Live, _: usize, op: &Op, ack: &Ack<Effect>) -> Result<(), Error> {
        match op {
            Op::Together(acts) => {
                let store = live.open.get()?;
                let mut committed = live.committed.lock().map_err(|e| e.to_string())?;
                let running = [const { None }; ACTORS];
                let mut stage = Stage { store: &store, committed: &mut committed, running, held: Vec::new() };
                acts.iter().try_for_each(|(actor, act)| stage.act(*actor, act, ack))?;
                stage.all_stays()
            }
            Op::Reopen(clean) => {
                let end = |store: Mvcc, pool| {
                    drop(pool);
                    if *clean {
                        store.close()?
                    } else {
                        store.abandon()
                    }
                    Ok(())
                };
                live.open.again(end, || super::open(&live.sim, &self.options()?))
            }
        }
    }

    fn finish(&self, live: Live) -> Result<(), Error> {
        live.open.close(Mvcc::close)
    }

    fn check(&self, sim: &Arc<Sim>, history: &History<Effect>) -> Result<Objects, Violation> {
        check(&self.options().map_err(|e| Violation::detected(e.to_string()))?, sim, history)
    }
}
