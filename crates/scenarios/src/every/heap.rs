//! Transactions of a heap, all operations of them and of the heap. Backups are of files, which the explorer's medium is none of: the tests named `every` of `heap` make them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use crash::{Ack, Error, History, Rng, Scenario, Sim, Violation};
use heap::{Heap, Intents, Options, Policy, Tx};
use pmem::{HeapOptions, PPtr, Persist, Pool};
use tx::{Engine, Isolation, NestedTop, Range, RetryPolicy, Savepoints, Transaction, Typed, field};

use super::heap_check::{SLOTS, check};
use super::{ACTORS, some};
use crate::contents::{Contents, Effect, Objects, PROBE};

const CHUNKS: u64 = 8;
/// Most objects at a time.
const OBJECTS_MAX: usize = 5;
/// Of objects; a partial backup has room for the longest, and not for all.
const LENGTHS: [u64; 5] = [16, 64, 64, 200, 900];
const COPIES: f64 = 3000.0;
/// A long write: its record does not carry it.
const LONG: usize = 48;

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
    Bytes Read Rest Room Intend
    BytesMut PutBytes Write WriteField WriteMany BytesMutMany Nested
    /// A nested call that fails dooms the transaction.
    NestedFails
    /// A savepoint, a change, and back.
    Back
    /// A nested top action.
    Top
    Free FreeBytes Replace SetRoot Alloc AllocBytes AllocSlice
    Commit Abort Drop
    /// A doomed transaction is committed, and that is refused.
    FailedCommit Transact
    /// `ApplyIdle` is the coordinator's turn: its thread cannot be played, its step can.
    Apply ApplyIdle Grow Scrub ScrubAll Compare CompareAll LiveBlocks Stats
}

impl Kind {
    fn is_new(self) -> bool {
        (Kind::Alloc..=Kind::AllocSlice).contains(&self)
    }

    fn is_end(self) -> bool {
        (Kind::Commit..=Kind::FailedCommit).contains(&self)
    }
}

/// One operation: which, on which of the objects there are, and with what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Act {
    /// Which.
    pub kind: Kind,
    /// On these; numbers above what there is begin again.
    pub on: (usize, usize),
    /// Where a range begins, how long it is, in the same way.
    pub range: (u64, u64),
    /// What is written.
    pub word: u64,
}

/// What happens next.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Transactions side by side: whose turn it is, and what it does. Those that are open at the end are dropped.
    Together(Vec<(usize, Act)>),
    /// The heap is closed, or not, and opened again, perhaps under another policy.
    Reopen(bool, Option<Policy>),
}

/// Generated workloads of a heap under a policy.
#[derive(Clone, Debug)]
pub struct EveryHeap {
    name: &'static str,
    policy: Policy,
    script: Option<Vec<Op>>,
    adjust: fn(Options) -> Options,
}

/// The open heap, and what is committed in it.
pub struct Live {
    sim: Arc<Sim>,
    open: Mutex<Option<(Heap, Pool)>>,
    objects: Mutex<Objects>,
    cell: u64,
}

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct Pair {
    first: u64,
    second: u64,
}

impl EveryHeap {
    /// Workloads that begin with this policy; it changes on the way.
    pub fn new(name: &'static str, policy: Policy) -> Self {
        Self { name, policy, script: None, adjust: |options| options }
    }

    /// Exactly these operations.
    pub fn script(policy: Policy, ops: Vec<Op>) -> Self {
        Self { script: Some(ops), ..Self::new("heap-every-script", policy) }
    }

    /// Changes how the heap is opened, in the program and at recovery.
    #[must_use]
    pub fn adjust(self, adjust: fn(Options) -> Options) -> Self {
        Self { adjust, ..self }
    }

    fn options(&self) -> Result<Options, Error> {
        let blocks = HeapOptions::chunk_bytes(4096)?;
        let options = Options::new().blocks(blocks).bytes(blocks.region_bytes(CHUNKS)).slots(SLOTS).coordinator(false);
        let options = options.log_bytes(2048).zone_bytes(4096).alpha(COPIES / (CHUNKS * 4096) as f64);
        let options = options.batch(2).checksum_max(256).recovery_budget(3 * 4096);
        let intents = if self.name.contains("intents") { Intents::Objects } else { Intents::Zones };
        Ok((self.adjust)(options.intents(intents)))
    }

    fn open(&self, sim: &Arc<Sim>, policy: Option<Policy>) -> Result<(Heap, Pool), Error> {
        let pool = pmem::Options::new().open_on(sim.clone())?;
        let options = self.options()?;
        let heap = Heap::open_in(&pool, &policy.map_or(options.clone(), |p| options.policy(p)))?;
        Ok((heap, pool))
    }
}

// ---- what is drawn --------------------------------------------------------------------------------------------------

fn act(rng: &mut Rng, kind: Kind, objects: usize) -> Act {
    let on = (rng.index(objects), rng.index(objects));
    Act { kind, on, range: (rng.below(120), rng.below(120)), word: 1 + rng.below(255) }
}

fn drawn(rng: &mut Rng) -> Vec<Op> {
    let objects = [1, 1, 2, 3][rng.index(4)];
    let of_objects = some(rng, &KINDS[..Kind::Commit as usize]);
    let ends = some(rng, &KINDS[Kind::Commit as usize..Kind::Apply as usize]);
    let whole = some(rng, &KINDS[Kind::Apply as usize..]);
    let rarely = 3 + rng.below(6);
    let actors = 1 + rng.index(ACTORS);
    let mut ops = Vec::new();
    for _ in 0..6 {
        let mut acts = Vec::new();
        for _ in 0..2 + rng.below(8) {
            let kind = match rng.below(rarely) {
                0 => whole[rng.index(whole.len())],
                1 => [Kind::Commit, ends[rng.index(ends.len())]][rng.index(2)],
                2 if rng.chance(1, 2) => [Kind::BytesMut, Kind::PutBytes, Kind::AllocSlice, Kind::Free][rng.index(4)],
                _ => of_objects[rng.index(of_objects.len())],
            };
            acts.push((rng.index(actors), act(rng, kind, objects)));
        }
        // Most of them end well, in some order.
        let first = rng.index(actors);
        for at in 0..actors {
            let kind = if rng.chance(3, 4) { Kind::Commit } else { ends[rng.index(ends.len())] };
            acts.push(((first + at) % actors, act(rng, kind, objects)));
        }
        ops.push(Op::Together(acts));
        if rng.chance(1, 3) {
            let policies = [Policy::Undo, Policy::InPlace, Policy::InPlacePartial, Policy::Eaw];
            ops.push(Op::Reopen(rng.chance(1, 2), rng.chance(1, 3).then(|| policies[rng.index(4)])));
        }
    }
    ops
}

// ---- an actor -------------------------------------------------------------------------------------------------------

/// A transaction, what it has seen, and what it has done.
struct Open<'h> {
    tx: Tx<'h>,
    seen: BTreeMap<u64, Contents>,
    changed: BTreeSet<u64>,
    fresh: BTreeSet<u64>,
}

fn wrong(what: String) -> Error {
    what.into()
}

impl<'h> Open<'h> {
    fn new(tx: Tx<'h>) -> Self {
        Self { tx, seen: BTreeMap::new(), changed: BTreeSet::new(), fresh: BTreeSet::new() }
    }

    /// An object as this transaction has it, against what it must hold.
    fn look(tx: &Tx<'_>, seen: &mut BTreeMap<u64, Contents>, ptr: PPtr<u8>, live: &Live) -> Result<usize, Error> {
        let at = ptr.offset();
        let now = if at == live.cell { tx.bytes(ptr, 16)? } else { tx.rest(ptr)? };
        let objects = live.objects.lock().map_err(|e| e.to_string())?;
        let right = match seen.get(&at) {
            Some(own) => own.as_ref(),
            None => objects.get(&at),
        };
        if right.is_none_or(|right| right[..] != *now) {
            return Err(wrong(format!("object {at} holds {now:?}, and should hold {right:?}")));
        }
        let len = now.len();
        let now = now.to_vec();
        drop(objects);
        seen.entry(at).or_insert(Some(now));
        Ok(len)
    }

    fn see(&mut self, ptr: PPtr<u8>, live: &Live) -> Result<usize, Error> {
        Self::look(&self.tx, &mut self.seen, ptr, live)
    }

    fn wrote(&mut self, at: u64, from: u64, bytes: &[u8]) {
        if let Some(Some(contents)) = self.seen.get_mut(&at) {
            contents[from as usize..from as usize + bytes.len()].copy_from_slice(bytes);
            self.changed.insert(at);
        }
    }

    fn freed(&mut self, at: u64) {
        self.seen.insert(at, None);
        self.changed.insert(at);
    }

    /// A new object: where nothing is, and zero behind what was put there.
    fn made(&mut self, ptr: PPtr<u8>, starts: &[u8], live: &Live) -> Result<(), Error> {
        let (at, contents) = (ptr.offset(), self.tx.rest(ptr)?.to_vec());
        let mut right = vec![0; contents.len()];
        right[..starts.len()].copy_from_slice(starts);
        if contents != right {
            return Err(wrong(format!("the new object at {at} holds {contents:?}")));
        }
        let end = at + contents.len() as u64;
        let objects = live.objects.lock().map_err(|e| e.to_string())?;
        if let Some((other, _)) = objects.iter().find(|(other, b)| **other < end && at < **other + b.len() as u64) {
            return Err(wrong(format!("the new object at {at} is where that at {other} is")));
        }
        self.seen.insert(at, Some(contents));
        self.fresh.insert(at);
        self.changed.insert(at);
        Ok(())
    }

    fn alloc(&mut self, act: &Act, live: &Live) -> Result<(), Error> {
        let (len, fill) = (LENGTHS[act.range.0 as usize % LENGTHS.len()], act.word as u8);
        let (ptr, starts) = match act.kind {
            Kind::Alloc => (self.tx.alloc(&[u64::from(fill); 2])?.cast(), u64::from(fill).to_le_bytes().repeat(2)),
            Kind::AllocSlice => (self.tx.alloc_slice(&vec![fill; len as usize])?, vec![fill; len as usize]),
            _ => (self.tx.alloc_bytes(len, 8 << (act.range.1 % 4))?, Vec::new()),
        };
        self.made(ptr, &starts, live)
    }

    /// One operation on an object.
    fn act(&mut self, act: &Act, heap: &Heap, live: &Live, ack: &Ack<Effect>) -> Result<(), Error> {
        let shared: Vec<u64> = {
            let objects = live.objects.lock().map_err(|e| e.to_string())?;
            objects.keys().copied().filter(|at| *at != live.cell).collect()
        };
        let full = shared.len() + self.fresh.len() >= OBJECTS_MAX;
        if shared.is_empty() || act.kind.is_new() && !full {
            return self.alloc(act, live);
        }
        let ptr = |at| PPtr::<u8>::new(heap.pool().tag(), at);
        let at = shared[act.on.0 % shared.len()];
        let (object, word) = (ptr(at), act.word.to_le_bytes());
        match act.kind {
            Kind::Bytes => drop(self.tx.bytes(object, 8)?),
            Kind::Read => drop(*self.tx.read::<u64>(object.cast())?),
            Kind::Rest => drop(self.tx.rest(object)?),
            Kind::Room => drop(self.tx.room(object)?),
            Kind::Intend => self.tx.intend(&[Range::new(object, 16)])?,
            Kind::Back | Kind::Top if heap.policy() != Policy::Eaw => drop(self.tx.bytes(object, 8)?),
            Kind::Back => {
                let savepoint = self.tx.savepoint()?;
                match act.range.0 % 3 {
                    0 => self.tx.bytes_mut(object, 8)?.fill(0xEE),
                    1 => self.tx.free(object)?,
                    _ => {
                        let new = self.tx.alloc_slice(&[0xEE; 80])?;
                        self.tx.bytes_mut(new, 80)?.fill(0xEF);
                    }
                }
                live.sim.observe();
                self.tx.rollback_to(savepoint)?;
            }
            Kind::Top => match self.alone(object, &word, live, ack) {
                Err(tx::Error::OuterWrites { .. }) => return Ok(()), // it has written, or declared it itself
                other => other?,
            },
            Kind::NestedFails => {
                let failed = self.tx.nested(|tx| -> tx::Result<()> {
                    tx.bytes_mut(object, 8)?.fill(0xEE);
                    Err(tx::Error::Aborted { reason: "on purpose".into() })
                });
                return Err(failed.err().map_or("a nested call has not failed".into(), Error::from));
            }
            Kind::BytesMut | Kind::PutBytes | Kind::Nested | Kind::Write => {
                self.tx.bytes_mut(object, 8)?; // locked as a write locks it
                let words = self.see(object, live)? as u64 / 8;
                let from = act.range.0 % words;
                let count = 1 + act.range.1 % (words - from);
                let (from, bytes) = (8 * from, word.repeat(count as usize));
                let part = PPtr::<u8>::new(object.tag(), at + from);
                match act.kind {
                    Kind::BytesMut => self.tx.bytes_mut(part, 8 * count)?.copy_from_slice(&bytes),
                    Kind::PutBytes => {
                        self.tx.put_bytes(part, &bytes)?;
                        self.wrote(at, from, &bytes);
                        // Looked at now, or by whatever comes next.
                        return if act.word.is_multiple_of(4) { self.see(object, live).map(drop) } else { Ok(()) };
                    }
                    Kind::Nested => {
                        self.tx.nested(|tx| tx.bytes_mut(part, 8 * count).map(|b| b.copy_from_slice(&bytes)))?;
                    }
                    _ if 8 * words < LONG as u64 => {
                        *self.tx.write(object.cast())? = word;
                        self.wrote(at, 0, &word);
                        return self.see(object, live).map(drop);
                    }
                    _ => {
                        *self.tx.write(object.cast())? = [word; LONG / 8];
                        self.wrote(at, 0, &word.repeat(LONG / 8));
                        return self.see(object, live).map(drop);
                    }
                }
                self.wrote(at, from, &bytes);
            }
            Kind::WriteField => {
                *self.tx.write_field(object.cast(), field!(Pair, second))? = act.word;
                // It is locked now; what it held before is what others left.
                self.saw_but(object, live, 8..16)?;
                self.wrote(at, 8, &word);
            }
            Kind::WriteMany | Kind::BytesMutMany => {
                let other = shared[act.on.1 % shared.len()];
                let both = if other == at { vec![at] } else { vec![at, other] };
                match (act.kind, &both[..]) {
                    (Kind::WriteMany, &[a, b]) => {
                        let [a, b] = self.tx.write_many::<[u8; 8], 2>([ptr(a).cast(), ptr(b).cast()])?;
                        (*a, *b) = (word, word);
                    }
                    (Kind::WriteMany, _) => *self.tx.write_many::<[u8; 8], 1>([object.cast()])?[0] = word,
                    _ => {
                        let ranges: Vec<Range> = both.iter().map(|&one| Range::new(ptr(one), 8)).collect();
                        self.tx.bytes_mut_many(&ranges)?.into_iter().for_each(|b| b.copy_from_slice(&word));
                    }
                }
                for one in both {
                    self.saw_but(ptr(one), live, 0..8)?;
                    self.wrote(one, 0, &word);
                }
            }
            Kind::Replace => {
                let new = self.tx.replace(object.cast::<u64>(), |&old| [old, old, 7])?;
                let starts = self.tx.bytes(new.cast(), 24)?.to_vec();
                self.made(new.cast(), &starts, live)?;
                self.freed(at);
                return Ok(());
            }
            Kind::SetRoot => {
                self.tx.set_root::<u64>(object.cast())?;
                let cell = ptr(live.cell);
                let now = self.tx.bytes(cell, 16)?.to_vec();
                self.seen.insert(live.cell, Some(now));
                self.changed.insert(live.cell);
                return Ok(());
            }
            // Also where there are enough of them.
            Kind::FreeBytes => {
                self.tx.free_bytes(object)?;
                self.freed(at);
                return Ok(());
            }
            _ => {
                self.tx.free(object)?;
                self.freed(at);
                return Ok(());
            }
        }
        self.see(object, live).map(drop)
    }

    /// Changes a word of an object in a nested top action.
    fn alone(&mut self, object: PPtr<u8>, word: &[u8], live: &Live, ack: &Ack<Effect>) -> tx::Result<()> {
        let (at, mut ticket) = (object.offset(), None);
        let right = live.objects.lock().ok().and_then(|objects| objects.get(&at).cloned());
        let done = self.tx.nested_top(|tx| -> tx::Result<()> {
            tx.bytes_mut(object, 8)?.copy_from_slice(word);
            let mut right = right.clone().ok_or(tx::Error::Freed { offset: at })?;
            right[..8].copy_from_slice(word);
            if tx.rest(object)? != right {
                let why = format!("a nested top action should see {right:?}");
                return Err(tx::Error::Damaged { what: "object", offset: at, why });
            }
            live.sim.observe();
            let effect = Effect([(at, Some(right))].into());
            ticket = Some((ack.begin(effect.clone()), effect));
            Ok(())
        });
        match (ticket, &done) {
            (Some((ticket, effect)), Ok(())) => {
                ack.commit(ticket);
                if let Ok(mut objects) = live.objects.lock() {
                    effect.apply(&mut objects);
                }
                if let (Some(seen), Some(now)) = (self.seen.get_mut(&at), effect.0.get(&at)) {
                    seen.clone_from(now);
                }
            }
            (Some((ticket, _)), Err(e)) if is_undone(e) => ack.abort(ticket),
            _ => {}
        }
        done
    }

    /// The object is as it should be outside of what was just written.
    fn saw_but(&mut self, ptr: PPtr<u8>, live: &Live, written: std::ops::Range<usize>) -> Result<(), Error> {
        let (at, now) = (ptr.offset(), self.tx.rest(ptr)?.to_vec());
        let mut right = match self.seen.get(&at) {
            Some(own) => own.clone(),
            None => live.objects.lock().map_err(|e| e.to_string())?.get(&at).cloned(),
        };
        if let Some(right) = &mut right {
            right[written.clone()].copy_from_slice(&now[written]);
        }
        if right.as_ref() != Some(&now) {
            return Err(wrong(format!("object {at} holds {now:?}, and should hold {right:?}")));
        }
        self.seen.insert(at, right);
        Ok(())
    }

    fn effect(&self) -> Option<Effect> {
        let shows = |at: &&u64| !(self.fresh.contains(at) && self.seen[at].is_none());
        let changes: BTreeMap<u64, Contents> =
            self.changed.iter().filter(shows).map(|at| (*at, self.seen[at].clone())).collect();
        (!changes.is_empty()).then_some(Effect(changes))
    }
}

// ---- what is between them -------------------------------------------------------------------------------------------

/// Errors that the others explain are none; alone, a transaction meets no other one and has room.
fn explain(error: Error, others: bool) -> Result<(), Error> {
    use tx::Error::{Aborted, BackupFull, Conflict, Doomed, Freed, OwnConflict};
    match error.downcast_ref::<tx::Error>() {
        Some(Conflict { .. } | OwnConflict { .. } | BackupFull { .. }) if others => Ok(()),
        Some(Freed { .. } | Aborted { .. } | Doomed { .. }) => Ok(()),
        _ => Err(error),
    }
}

/// Nothing of it is left.
fn is_undone(error: &tx::Error) -> bool {
    use tx::Error::{Aborted, BackupFull, Conflict, Doomed, GaveUp, OwnConflict};
    matches!(
        error,
        Conflict { .. } | OwnConflict { .. } | BackupFull { .. } | GaveUp { .. } | Aborted { .. } | Doomed { .. }
    )
}

fn commit(
    live: &Live,
    effect: Option<Effect>,
    ack: &Ack<Effect>,
    f: impl FnOnce() -> tx::Result<()>,
) -> tx::Result<()> {
    live.sim.observe();
    // In doubt from here on: what is not committed is nowhere.
    let ticket = effect.clone().map(|effect| ack.begin(effect));
    let result = f();
    match (ticket, &result) {
        (Some(ticket), Ok(())) => {
            ack.commit(ticket);
            if let (Some(effect), Ok(mut objects)) = (effect, live.objects.lock()) {
                effect.apply(&mut objects);
            }
        }
        (Some(ticket), Err(e)) if is_undone(e) => ack.abort(ticket),
        (None, _) | (Some(_), Err(_)) => {} // a device has failed: it stays in doubt
    }
    result
}

fn end(open: Open<'_>, kind: Kind, others: bool, live: &Live, ack: &Ack<Effect>) -> Result<(), Error> {
    let effect = open.effect();
    let tx = open.tx;
    live.sim.observe(); // what is taken back right away may have reached the media
    match kind {
        Kind::Commit => commit(live, effect, ack, || tx.commit()).or_else(|e| explain(e.into(), others)),
        Kind::Abort => Ok(tx.abort()?),
        Kind::Drop => {
            drop(tx);
            Ok(())
        }
        _ => {
            tx.set_doom(tx::Doom::from(&tx::Error::Aborted { reason: "on purpose".into() }));
            match tx.commit() {
                Err(tx::Error::Doomed { .. }) => Ok(()),
                other => Err(wrong(format!("a doomed transaction ends with {other:?}"))),
            }
        }
    }
}

fn transact(act: &Act, heap: &Heap, others: bool, live: &Live, ack: &Ack<Effect>) -> Result<(), Error> {
    let at = {
        let objects = live.objects.lock().map_err(|e| e.to_string())?;
        let shared: Vec<u64> = objects.keys().copied().filter(|at| *at != live.cell).collect();
        if shared.is_empty() {
            return Ok(());
        }
        shared[act.on.0 % shared.len()]
    };
    let mut ticket = None;
    let ptr = PPtr::<u8>::new(heap.pool().tag(), at);
    let done = heap.transact_with(Isolation::Strict, RetryPolicy::default().attempts(1), |tx| -> tx::Result<()> {
        tx.bytes_mut(ptr, 8)?.copy_from_slice(&act.word.to_le_bytes());
        let effect = Effect([(at, Some(tx.rest(ptr)?.to_vec()))].into());
        live.sim.observe();
        ticket = Some((ack.begin(effect.clone()), effect));
        Ok(())
    });
    match (ticket, done) {
        (Some((ticket, effect)), Ok(())) => {
            ack.commit(ticket);
            effect.apply(&mut *live.objects.lock().map_err(|e| e.to_string())?);
            Ok(())
        }
        (ticket, Err(e)) => {
            ticket.into_iter().filter(|_| is_undone(&e)).for_each(|(ticket, _)| ack.abort(ticket));
            if matches!(e, tx::Error::GaveUp { .. }) && others { Ok(()) } else { explain(e.into(), others) }
        }
        (None, Ok(())) => Err(wrong("a transaction that did nothing".into())),
    }
}

/// Something with all of the heap.
fn whole(kind: Kind, heap: &Heap) -> Result<(), Error> {
    let sound = |scrubbed: heap::Scrubbed, errors: Vec<tx::Error>| {
        let repaired = scrubbed.main_repaired + scrubbed.backup_repaired;
        if repaired > 0 || !errors.is_empty() {
            return Err(wrong(format!("{kind:?} of a sound heap repaired {repaired}, and found {errors:?}")));
        }
        Ok(())
    };
    match kind {
        Kind::Apply => heap.apply_pending()?,
        Kind::ApplyIdle => heap.apply_idle(),
        Kind::Grow if heap.stats().bytes < 3 * CHUNKS / 2 * 4096 => heap.grow(4096)?,
        Kind::Scrub => sound(heap.scrub()?, Vec::new())?,
        Kind::Compare => sound(heap.compare()?, Vec::new())?,
        Kind::ScrubAll => heap.scrub_all().map_err(Error::from).and_then(|(scrubbed, found)| sound(scrubbed, found))?,
        Kind::CompareAll => {
            heap.compare_all().map_err(Error::from).and_then(|(scrubbed, found)| sound(scrubbed, found))?;
        }
        Kind::LiveBlocks => drop(heap.live_blocks(|_, _| ())?),
        _ => drop(heap.stats()),
    }
    Ok(())
}

fn together(live: &Live, heap: &Heap, acts: &[(usize, Act)], ack: &Ack<Effect>) -> Result<(), Error> {
    let mut actors: [Option<Open<'_>>; ACTORS] = [const { None }; ACTORS];
    for (who, act) in acts {
        live.sim.observe();
        let others = actors.iter().enumerate().any(|(other, open)| other != *who && open.is_some());
        match act.kind {
            Kind::Transact => transact(act, heap, others || actors[*who].is_some(), live, ack)?,
            kind if kind.is_end() => {
                if let Some(open) = actors[*who].take() {
                    end(open, kind, others, live, ack)?;
                }
            }
            kind if kind >= Kind::Apply => whole(kind, heap)?,
            _ => {
                let mut open = match actors[*who].take() {
                    Some(open) => open,
                    None => Open::new(heap.begin(Isolation::ALL[act.on.1 % 3])?),
                };
                match open.act(act, heap, live, ack) {
                    Ok(()) => actors[*who] = Some(open),
                    Err(e) => {
                        live.sim.observe();
                        open.tx.abort()?;
                        explain(e, others)?;
                    }
                }
            }
        }
    }
    live.sim.observe();
    Ok(())
}

impl Scenario for EveryHeap {
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
        let heap = Heap::create_in(&pool, &self.options()?.policy(self.policy))?;
        drop(pool);
        heap.transact(Isolation::Strict, |tx| -> tx::Result<()> {
            let mut counters = [0; 1 + SLOTS];
            counters[0] = PROBE;
            tx.alloc(&counters).map(drop)
        })?;
        heap.close()?;
        Ok(())
    }

    fn start(&self, sim: &Arc<Sim>) -> Result<Live, Error> {
        let (heap, pool) = self.open(sim, None)?;
        let cell = heap.transact(Isolation::Strict, |tx| -> tx::Result<u64> { Ok(tx.root_cell().offset()) })?;
        let objects = Objects::from([(cell, vec![0; 16])]);
        Ok(Live { sim: sim.clone(), open: Mutex::new(Some((heap, pool))), objects: objects.into(), cell })
    }

    fn ops(&self, rng: &mut Rng) -> Vec<(usize, Op)> {
        self.script.clone().unwrap_or_else(|| drawn(rng)).into_iter().map(|op| (0, op)).collect()
    }

    fn step(&self, live: &Live, _: usize, op: &Op, ack: &Ack<Effect>) -> Result<(), Error> {
        let mut open = live.open.lock().map_err(|e| e.to_string())?;
        match op {
            Op::Together(acts) => together(live, &open.as_ref().ok_or("closed")?.0, acts, ack),
            Op::Reopen(clean, policy) => {
                let (heap, pool) = open.take().ok_or("closed")?;
                drop(pool);
                if *clean {
                    heap.close()?;
                } else {
                    heap.abandon();
                }
                *open = Some(self.open(&live.sim, *policy)?);
                Ok(())
            }
        }
    }

    fn finish(&self, live: Live) -> Result<(), Error> {
        if let Some((heap, pool)) = live.open.into_inner().map_err(|e| e.to_string())? {
            drop(pool);
            heap.close()?;
        }
        Ok(())
    }

    fn check(&self, sim: &Arc<Sim>, history: &History<Effect>) -> Result<Objects, Violation> {
        check(|| self.open(sim, None), history)
    }
}
