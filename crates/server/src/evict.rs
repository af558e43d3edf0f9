//! Eviction: a store without room gives up keys, as `maxmemory-policy` says, instead of refusing writes.
//!
//! ```text
//!   a write finds no room ─> some keys go, in a transaction of their own ─> it is run again       (make_room)
//!   little room is left   ─> some keys go, on a thread that serves nobody                         (run)
//! ```
//!
//! Which: a hand goes through all keys in their order, on and on. Of those that it passes, the keys go that are among the worst: used longest ago, or least often, or expiring first, of one in so many as
//! `maxmemory-samples` says, by what the hand has seen lately. So every key has its turn, however keys are spread, and where all are in use it goes on. What was used when is [kept in memory](crate::evictor), while the policy asks
//! for it. An eviction is durable like any other change; whether a key may go is decided in the transaction that removes it.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tx::Keys;

use crate::clock::{Watch, now};
use crate::config::Eviction;
use crate::data::{DATABASES, GARBAGE, Head};
use crate::engine::{Error, Excess, Result, Tx};
use crate::evictor::Hand;
use crate::failpoints::Step;
use crate::latency::event;
use crate::shared::Shared;
use crate::touching::Touched;
use crate::tracking::Author;

/// Keys that go in one transaction, at most.
const AT_ONCE: usize = 128;
/// Bytes of values that are passed in one look, about; and looks for those that are worth it.
const LOOKED: usize = 4 << 20;
const LOOKS: usize = 8;
/// Elements of a collection that go with it; the rest is for the reaper.
const ELEMENTS: usize = 64;
/// What goes in one transaction is such a part of the file.
const PART: u64 = 256;
/// For requests of more than such a part of the file nothing goes.
const REQUEST: u64 = 4;
/// Bytes that a record takes beside its key and value, about.
const RECORD: u64 = 48;
/// How long a write waits for room before it is refused, and how long it makes some at a time, in milliseconds.
const WAIT_LIMIT: u64 = 5000;
const TURN: u64 = 200;
/// How long those are looked for that may go, in milliseconds, if there is none at first; and for how many times as long none looks again if there was none.
const SEARCH: u64 = 1000;
const RESTS: u64 = 9;
/// Between two looks at how much room is left.
const PAUSE: Duration = Duration::from_millis(20);
/// ... if nothing is evicted.
const REST: Duration = Duration::from_millis(200);

// ---- when -------------------------------------------------------------------------------------------------------

/// What a write has tried: since when, and how many bytes were to go last.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    since: Option<u64>,
    bytes: u64,
}

/// Requests of so many bytes have found no room. True: some was made, and they are to be tried again. The caller is not inside the gate.
pub(crate) fn make_room(shared: &Shared, bytes: usize, tries: &mut Tries) -> bool {
    let policy = shared.settings().eviction;
    if policy == Eviction::Never {
        return false;
    }
    // One that may never fit is not worth all that others have.
    let file = shared.engine.counts().file_bytes;
    let since = *tries.since.get_or_insert_with(now);
    if bytes as u64 > file / REQUEST || now().saturating_sub(since) > WAIT_LIMIT {
        return false;
    }
    // What it takes is not known: more each time.
    tries.bytes = (2 * tries.bytes).max(2 * bytes as u64).max(file / PART).min(file / REQUEST);
    let before = shared.evictor.rounds.load(Relaxed);
    let mut hand = shared.evictor.hand.lock();
    // Another thread has, while this waited.
    shared.evictor.rounds.load(Relaxed) != before
        || round(shared, policy, &mut hand, tries.bytes, 5 * TURN).is_ok_and(|made| made)
}

/// Looks after it as long as the server runs.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        let policy = shared.settings().eviction;
        if policy == Eviction::Never || shared.pauses.held().is_some() {
            tokio::time::sleep(REST).await;
            continue;
        }
        let worker = shared.clone();
        let gone = tokio::task::spawn_blocking(move || {
            // A pause that begins now waits for it.
            let Some(_under_way) = worker.pauses.enter_now() else { return Ok(false) };
            if worker.evictor.notes() {
                worker.evictor.grow(4 * worker.engine.counts().entries);
            }
            if worker.engine.excess().is_none() {
                return Ok(false);
            }
            round(&worker, policy, &mut worker.evictor.hand.lock(), 0, TURN)
        });
        match gone.await {
            Ok(Ok(false)) => tokio::time::sleep(PAUSE).await,
            Ok(Ok(true)) => tokio::task::yield_now().await, // a write may be waiting for its turn
            Ok(Err(error)) => {
                tracing::debug!("no key was evicted: {error}");
                tokio::time::sleep(REST).await;
            }
            Err(_) => return,
        }
    }
}

/// Removes what is to go, at least so many bytes, for so many milliseconds or so; some in any case, if there is any. Whether room was made.
fn round(shared: &Shared, policy: Eviction, hand: &mut Hand, least: u64, most_ms: u64) -> Result<bool> {
    let watch = Watch::start();
    let made = make(shared, policy, hand, least, most_ms);
    shared.latency.note(event::EVICTION_CYCLE, watch.nanos());
    made
}

fn make(shared: &Shared, policy: Eviction, hand: &mut Hand, least: u64, most_ms: u64) -> Result<bool> {
    let began = now();
    let is_over = || now().saturating_sub(began) > most_ms || *shared.stop.borrow();
    // What went before gives its room first: elements of long collections.
    let mut made = false;
    while !is_over() && matches!(crate::reaper::step(shared, now()), Ok(true)) {
        made = true;
    }
    if !made {
        let Excess { bytes, keys } = shared.engine.excess();
        let mut gone = Gone::default();
        loop {
            let some = evict(shared, policy, hand)?;
            (gone.keys, gone.bytes) = (gone.keys + some.keys, gone.bytes + some.bytes);
            let enough = gone.bytes >= bytes.max(least) && gone.keys as u64 >= keys;
            if some.keys == 0 || enough || is_over() {
                break;
            }
        }
        made = gone.keys > 0;
    }
    if made {
        shared.engine.reclaim()?;
        shared.evictor.rounds.fetch_add(1, Relaxed);
    }
    Ok(made)
}

// ---- which ------------------------------------------------------------------------------------------------------

/// A key that may go, as it is in the store.
#[derive(Debug)]
struct Candidate {
    key: Vec<u8>,
    worth: u64,
}

/// What has gone.
#[derive(Clone, Copy, Debug, Default)]
struct Gone {
    keys: usize,
    bytes: u64,
}

/// Removes some keys.
fn evict(shared: &Shared, policy: Eviction, hand: &mut Hand) -> Result<Gone> {
    let mut found = passed(shared, policy, hand)?;
    let most = most_of(shared, found.len());
    // Of those of one worth any may go.
    for at in 1..found.len() {
        found.swap(at, (shared.random() % (at as u64 + 1)) as usize);
    }
    found.sort_by_key(|one| one.worth);
    for stays in found.drain(most.min(found.len())..) {
        hand.see(stays.worth, shared.random());
    }
    let bytes = shared.engine.counts().file_bytes / PART;
    let (mut gone, mut rest) = (Gone::default(), &found[..]);
    while !rest.is_empty() {
        let removed = match remove(shared, policy, rest, bytes) {
            // A full store may have room for one.
            Err(Error::Full(_) | Error::LogFull(_) | Error::Limit(_)) if rest.len() > 1 => {
                remove(shared, policy, &rest[..1], bytes)
            }
            removed => removed,
        };
        let (some, passed) = match removed {
            Err(_) if gone.keys > 0 => break,
            removed => removed?,
        };
        (gone.keys, gone.bytes) = (gone.keys + some.keys, gone.bytes + some.bytes);
        rest = &rest[passed..];
    }
    Ok(gone)
}

/// How many go of so many.
fn most_of(shared: &Shared, found: usize) -> usize {
    (found / shared.settings().samples.max(1)).clamp(1, AT_ONCE)
}

/// Keys that the hand passes and that may go, some of them twice, until enough of them are among the worst; once around at most.
fn passed(shared: &Shared, policy: Eviction, hand: &mut Hand) -> Result<Vec<Candidate>> {
    if hand.policy != policy {
        *hand = Hand { last: std::mem::take(&mut hand.last), policy, ..Hand::default() };
    }
    let (mut all, began, start) = (Vec::new(), now(), hand.last.clone());
    if began < hand.rests_until {
        return Ok(all);
    }
    let (mut around, mut looks) = (false, 0);
    while looks < LOOKS || all.is_empty() && now().saturating_sub(began) < SEARCH {
        let (mut found, mut last) = (Vec::new(), None);
        shared.look(&mut |tx| {
            found.clear();
            last = look(shared, policy, tx, &hand.last, began, &mut found)?;
            Ok(())
        })?;
        all.append(&mut found);
        looks += 1;
        hand.last = last.unwrap_or_default();
        let ended = hand.last.is_empty();
        let once = if ended { around || start.is_empty() } else { around && hand.last >= start };
        around |= ended;
        let low = hand.low(shared.settings().samples.max(1));
        let enough = !all.is_empty() && all.iter().filter(|one| one.worth <= low).count() >= most_of(shared, all.len());
        if enough || once {
            break;
        }
    }
    if all.is_empty() {
        hand.rests_until = now() + RESTS * now().saturating_sub(began).max(1);
    }
    Ok(all)
}

/// Looks at keys behind `last`; the last of them if there may be more.
fn look(
    shared: &Shared,
    policy: Eviction,
    tx: &dyn Tx,
    last: &[u8],
    now: u64,
    found: &mut Vec<Candidate>,
) -> Result<Option<Vec<u8>>> {
    let spares = spares_lasting(shared, policy);
    // More than give what may go at once would stay longer than others.
    let most = AT_ONCE.saturating_mul(shared.settings().samples.max(1));
    let range = Keys { from: Bound::Excluded(last.to_vec()), ..Keys::from(&[]).until(&[DATABASES]) };
    let (mut seen, mut bytes, mut end, mut failed) = (0, 0, None, None);
    tx.scan(range, &mut |key, value| {
        (seen, bytes) = (seen + 1, bytes + value.len());
        match if policy.is_volatile() { tx.expires(key) } else { Ok(None) } {
            Ok(None) if spares => {}
            Ok(expires) => {
                let worth = shared.evictor.worth(&shared.random, policy, key, expires, now);
                found.push(Candidate { key: key.to_vec(), worth });
            }
            Err(error) => failed = Some(error),
        }
        if seen < most && bytes < LOOKED && failed.is_none() {
            return ControlFlow::Continue(());
        }
        end = Some(key.to_vec());
        ControlFlow::Break(())
    })?;
    failed.map_or(Ok(end), Err)
}

fn spares_lasting(shared: &Shared, policy: Eviction) -> bool {
    policy.is_volatile() && !shared.failpoints.skips(Step::LastingStays)
}

// ---- removal ----------------------------------------------------------------------------------------------------

/// Removes these in a transaction, as long as they have fewer bytes; and says how many it has looked at.
fn remove(shared: &Shared, policy: Eviction, found: &[Candidate], most: u64) -> Result<(Gone, usize)> {
    let Some(itself) = shared.itself.upgrade() else { return Ok((Gone::default(), found.len())) };
    let inside = shared.enter();
    // A removal that waits for room is to be ended first.
    if inside.hidden().is_some() {
        return Ok((Gone::default(), found.len()));
    }
    let (mut gone, mut bytes, mut passed, mut ticket) = (Vec::new(), 0, 0, None);
    shared.engine.write(&mut |tx| {
        (gone, bytes, passed, ticket) = (Vec::new(), 0, 0, None);
        for Candidate { key, .. } in found {
            passed += 1;
            let Some(taken) = remove_one(tx, spares_lasting(shared, policy), key)? else { continue };
            gone.push(key.clone());
            bytes += taken;
            if bytes >= most {
                break;
            }
        }
        ticket = crate::events::evicted(&itself, &gone);
        Ok(())
    })?;
    drop(inside);
    if let Some(ticket) = ticket {
        ticket.tell();
    }
    shared.tell_touched(Touched::Keys(gone.clone()), &Author::default());
    if shared.readers.any_of_group() {
        gone.iter().for_each(|key| shared.readers.wake(&shared.databases.now().numbered(key)));
    }
    gone.iter().for_each(|key| shared.evictor.forget(key));
    shared.evictor.evicted.fetch_add(gone.len() as u64, Relaxed);
    Ok((Gone { keys: gone.len(), bytes }, passed))
}

/// Removes a key that may go; about how many bytes that gives.
fn remove_one(tx: &mut dyn Tx, spares_lasting: bool, key: &[u8]) -> Result<Option<u64>> {
    let Some(value) = tx.get(key)? else { return Ok(None) };
    let (mut bytes, head) = (RECORD + (key.len() + value.len()) as u64, Head::read(value));
    if spares_lasting && tx.expires(key)?.is_none() {
        return Ok(None);
    }
    if let Some(head) = head {
        let mut elements = Vec::new();
        tx.scan(head.elements(&[]), &mut |key, value| {
            elements.push((key.to_vec(), value.len()));
            if elements.len() <= ELEMENTS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if elements.len() > ELEMENTS {
            tx.put(&[&[GARBAGE], &head.id.to_be_bytes()[..]].concat(), &[], None)?;
        }
        // A full store has room for what takes out more than it puts in.
        for (element, len) in elements.iter().take(ELEMENTS) {
            tx.delete(element)?;
            bytes += RECORD + (element.len() + len) as u64;
        }
        bytes = bytes.max(head.count.saturating_mul(bytes / (elements.len() as u64 + 1)));
    }
    tx.delete(key)?;
    Ok(Some(bytes))
}
