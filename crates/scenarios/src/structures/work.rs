//! What the workload does, and how it runs against an open heap.

use std::sync::atomic::Ordering::Relaxed;

use crash::{Ack, Error, Rng, Ticket};
use heap::{Heap, Policy, Tx};
use structures::Map;
use tx::{Engine, Isolation, Transaction};

use super::values::{Effect, LENS, value};
use super::{Bug, KEYS, Kind, Live, Pairs, check};
use crate::heap::End;

/// One change of a key, by its index.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Edit {
    /// The key gets a value of this many bytes, eight at least: the transaction's number and a pattern.
    Put(usize, usize),
    /// The key goes.
    Delete(usize),
}

impl Edit {
    fn key(self) -> usize {
        match self {
            Edit::Put(key, _) | Edit::Delete(key) => key,
        }
    }
}

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// A transaction.
    Change(Vec<Edit>, End),
    /// Looks at everything, and holds it against what is committed.
    Scan,
    /// Destroys the structure and makes another one that holds the same, in one transaction.
    Remake,
    /// Applies everything.
    Apply,
    /// Drops everything and opens again; with one thread only.
    Restart,
}

pub(super) fn fill_up<K: Kind>(tx: &mut Tx<'_>, pairs: &Pairs<K>, some: &[(usize, (u64, usize))]) -> tx::Result<()> {
    let map = pairs.kind.open(tx)?;
    some.iter().try_for_each(|&(key, (number, len))| map.put(tx, &pairs.keys[key], &value(number, len)).map(drop))
}

pub(super) fn random(rng: &mut Rng, policy: Policy, threads: usize, keys: usize) -> Vec<(usize, Op)> {
    let aborts = policy != Policy::None;
    // All of many keys is more than a log of old bytes takes.
    let remakes = aborts && keys <= KEYS;
    // It grows, or it shrinks.
    let deletes = [1, 1, 5][rng.index(3)];
    let edits = |rng: &mut Rng, most: usize| {
        let mut edits: Vec<Edit> = Vec::new();
        for _ in 0..=rng.index(most) {
            let delete = rng.below(6) < deletes;
            let key = if delete { rng.index(keys) } else { keys - 1 - rng.index(keys).min(rng.index(keys)) };
            if edits.iter().all(|e| e.key() != key) {
                edits.push(if delete { Edit::Delete(key) } else { Edit::Put(key, LENS[rng.index(LENS.len())]) });
            }
        }
        edits
    };
    let op = |rng: &mut Rng, at: usize| {
        let end = if aborts && rng.below(6) == 0 { End::Abort } else { End::Commit };
        match rng.below(16) {
            0..=10 => Op::Change(edits(rng, 3), end),
            11 | 12 => Op::Change(edits(rng, 8), end),
            13 => Op::Scan,
            14 if threads == 1 => Op::Restart,
            // Half of them: it has more images than all the rest.
            15 if remakes && at.is_multiple_of(2) => Op::Remake,
            _ => Op::Apply,
        }
    };
    (0..14).map(|at| (rng.index(threads), op(rng, at))).collect()
}

pub(super) fn run<K: Kind>(
    pairs: &Pairs<K>,
    live: &Live,
    heap: &Heap,
    op: &Op,
    ack: &Ack<Effect>,
) -> Result<(), Error> {
    let again = |attempt: &dyn Fn() -> Result<(), Error>| {
        for _ in 0..6 {
            match attempt() {
                Err(e) if e.downcast_ref::<tx::Error>().is_some_and(conflict) => pmem::sync::switch_point(),
                Err(e) if e.downcast_ref::<tx::Error>().is_some_and(too_large) => return Ok(()),
                other => return other,
            }
        }
        Ok(()) // it did not come to it
    };
    match op {
        Op::Change(edits, end) => again(&|| change(pairs, live, heap, (edits, *end), ack)),
        Op::Scan => again(&|| scan(pairs, live, heap)),
        Op::Remake => again(&|| remake(pairs, live, heap)),
        Op::Apply => Ok(heap.apply_pending()?),
        Op::Restart => Ok(()),
    }
}

fn conflict(error: &tx::Error) -> bool {
    matches!(error, tx::Error::Conflict { .. } | tx::Error::NoSlot { .. })
}

/// For the few copies that a partial backup has here.
pub(crate) fn too_large(error: &tx::Error) -> bool {
    matches!(error, tx::Error::BackupFull { .. })
}

/// One attempt. Every key is read before the number is drawn: from then on no other transaction changes what it depends on.
fn change<K: Kind>(
    pairs: &Pairs<K>,
    live: &Live,
    heap: &Heap,
    (edits, end): (&[Edit], End),
    ack: &Ack<Effect>,
) -> Result<(), Error> {
    let mut tx = heap.begin(Isolation::Strict)?;
    let map = pairs.kind.open(&tx)?;
    let mut had = Vec::new();
    for edit in edits {
        had.push(map.contains(&tx, &pairs.keys[edit.key()])?);
    }
    let number = live.next.fetch_add(1, Relaxed);
    // To find nothing to delete is to read: a transaction that puts the key meanwhile comes behind, whatever the numbers are.
    let finds = |at: usize, key: usize| had[at] || edits[..at].iter().any(|earlier| earlier.key() == key);
    let keys = edits.iter().enumerate().filter_map(|(at, edit)| match *edit {
        Edit::Put(key, len) => Some((key, Some(len))),
        Edit::Delete(key) => finds(at, key).then_some((key, None)),
    });
    let effect = Effect { number, keys: keys.collect() };
    let begin = || -> Result<Ticket, Error> {
        live.book.lock().map_err(|e| e.to_string())?.in_doubt.push(effect.clone());
        Ok(ack.begin(effect.clone()))
    };
    // In doubt from the commit on; but where nothing is rolled back, or pieces are committed, from the first store on.
    let early = pairs.bug.is_some() || heap.policy() == Policy::None;
    let early = if early { Some(begin()?) } else { None };
    if let (Some(Bug::EarlyAck), Some(ticket)) = (pairs.bug, early) {
        ack.commit(ticket);
    }
    for (edit, had) in edits.iter().zip(had) {
        if let Some(bug) = pairs.bug {
            tx = break_apart(tx, heap, map, &pairs.keys[edit.key()], bug, had)?;
        }
        if let Err(e) = apply(&mut tx, pairs, map, *edit, number, had) {
            live.sim.observe(); // what is taken back right away may have reached the media
            tx.abort()?;
            return early.map_or(Ok(()), |ticket| over(live, ack, ticket, number, End::Abort)).and(Err(e));
        }
    }
    live.sim.observe();
    if end == End::Abort {
        tx.abort()?;
        return early.map_or(Ok(()), |ticket| over(live, ack, ticket, number, end));
    }
    let ticket = early.map_or_else(begin, Ok)?;
    match tx.commit() {
        Ok(()) => over(live, ack, ticket, number, end),
        Err(e) if conflict(&e) => over(live, ack, ticket, number, End::Abort).and(Err(e.into())),
        Err(e) => Err(e.into()),
    }
}

fn over(live: &Live, ack: &Ack<Effect>, ticket: Ticket, number: u64, end: End) -> Result<(), Error> {
    let mut book = live.book.lock().map_err(|e| e.to_string())?;
    let at = book.in_doubt.iter().position(|e| e.number == number).ok_or("nobody began it")?;
    let effect = book.in_doubt.remove(at);
    match end {
        End::Commit => {
            book.acknowledged.push(effect);
            ack.commit(ticket);
        }
        End::Abort => ack.abort(ticket),
    }
    Ok(())
}

fn apply<K: Kind>(
    tx: &mut Tx<'_>,
    pairs: &Pairs<K>,
    map: K::Map,
    edit: Edit,
    number: u64,
    had: bool,
) -> Result<(), Error> {
    let key = &pairs.keys[edit.key()];
    let had_now = match edit {
        Edit::Put(_, len) => map.put(tx, key, &value(number, len))?,
        Edit::Delete(_) => map.delete(tx, key)?,
    };
    let right = had_now == had || pairs.bug.is_some();
    if right { Ok(()) } else { Err(format!("{edit:?} says {had_now} where get said {had}").into()) }
}

/// One attempt. Nothing is promised of it: what there is stays as it is.
fn remake<K: Kind>(pairs: &Pairs<K>, live: &Live, heap: &Heap) -> Result<(), Error> {
    let mut tx = heap.begin(Isolation::Strict)?;
    let remade = pairs.kind.remake(&mut tx);
    live.sim.observe();
    match remade {
        Ok(()) => Ok(tx.commit()?),
        Err(e) => {
            tx.abort()?;
            Err(e.into())
        }
    }
}

/// Does what the bug does, before the next change.
fn break_apart<'h>(
    mut tx: Tx<'h>,
    heap: &'h Heap,
    map: impl Map,
    key: &[u8],
    bug: Bug,
    had: bool,
) -> Result<Tx<'h>, Error> {
    match bug {
        Bug::EarlyAck => {}
        Bug::Leak if had => drop(tx.alloc_bytes(64, 8)?),
        Bug::Leak => {}
        Bug::DeleteThenPut if !had => {}
        Bug::Piecewise | Bug::DeleteThenPut => {
            if bug == Bug::DeleteThenPut {
                map.delete(&mut tx, key)?;
            }
            tx.commit()?;
            tx = heap.begin(Isolation::Strict)?;
        }
    }
    Ok(tx)
}

/// A scan sees whole transactions: all that were committed, and of those that others have open what is committed already.
fn scan<K: Kind>(pairs: &Pairs<K>, live: &Live, heap: &Heap) -> Result<(), Error> {
    let tx = heap.begin(Isolation::Strict)?;
    let (seen, _) = check::look(pairs, &tx)?.map_err(|violation| violation.message)?;
    let history = live.book.lock().map_err(|e| e.to_string())?.clone();
    check::as_promised(&seen, pairs.start, &history).map_err(|violation| format!("a scan: {}", violation.message))?;
    tx.commit()?;
    Ok(())
}
