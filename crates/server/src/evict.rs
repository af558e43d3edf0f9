//! Eviction: a store without room gives up keys, as `maxmemory-policy` says, instead of refusing writes.
//!
//! ```text
//!   a write finds no room ─> some keys go, in a transaction of their own ─> it is run again       (make_room)
//!   little room is left   ─> some keys go, on a thread that serves nobody                         (run)
//! ```
//!
//! Which: from places of the key space that are drawn, a few keys each, those go that were used longest ago, or least often, or that expire first; one of so many as `maxmemory-samples` says. What was used when is
//! [kept in memory](uses), while the policy asks for it. An eviction is durable like any other change; whether a key may go is decided in the transaction that removes it.

mod uses;

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use parking_lot::Mutex;
use tx::Keys;

use self::uses::{Frequency, Uses};
use crate::commands::keys::draw;
use crate::commands::{Command, flag};
use crate::data::{DATABASES, GARBAGE, Head, all};
use crate::engine::{Error, Result, Tx};
use crate::request::Arguments;
use crate::sabotage::Step;
use crate::shared::{Shared, now};

/// Which keys go when there is no room (`maxmemory-policy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// None: writes are refused.
    #[default]
    Never,
    /// Of all keys.
    All(By),
    /// Of those that expire.
    Volatile(By),
    /// Of those that expire the ones that do so first.
    VolatileTtl,
}

/// By what a key is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// That was used longest ago.
    Lru,
    /// That is used least often.
    Lfu,
    /// Any.
    Random,
}

impl Eviction {
    const NAMES: [(&str, Self); 8] = [
        ("volatile-lru", Self::Volatile(By::Lru)),
        ("volatile-lfu", Self::Volatile(By::Lfu)),
        ("volatile-random", Self::Volatile(By::Random)),
        ("volatile-ttl", Self::VolatileTtl),
        ("allkeys-lru", Self::All(By::Lru)),
        ("allkeys-lfu", Self::All(By::Lfu)),
        ("allkeys-random", Self::All(By::Random)),
        ("noeviction", Self::Never),
    ];

    /// By Redis' name of it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, policy)| *policy)
    }

    /// Redis' name of it.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, policy)| *policy == self).map_or("noeviction", |(name, _)| name)
    }

    /// All names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().map(|(name, _)| *name)
    }

    fn by(self) -> Option<By> {
        match self {
            Self::All(by) | Self::Volatile(by) => Some(by),
            Self::VolatileTtl | Self::Never => None,
        }
    }

    fn is_volatile(self) -> bool {
        matches!(self, Self::Volatile(_) | Self::VolatileTtl)
    }
}

/// Keys that go in one transaction, at most; of each place that is drawn so many are looked at.
const AT_ONCE: usize = 128;
const NEIGHBOURS: usize = 32;
/// Draws for each such place: see [`places`].
const DRAWN: usize = 8;
/// Bytes of values that are looked at for that.
const LOOKED: usize = 4 << 20;
/// Elements of a collection that go with it; the rest is for the reaper.
const ELEMENTS: usize = 64;
/// What goes in one transaction is such a part of the file.
const PART: u64 = 256;
/// For requests of more than such a part of the file nothing goes.
const REQUEST: u64 = 4;
/// Bytes that a record takes beside its key and value, about.
const RECORD: u64 = 48;
/// How long a write waits for room before it is refused, and how long it makes some at a time, in milliseconds.
const PATIENCE: u64 = 5000;
const TURN: u64 = 100;
/// Keys that are passed by in one look for those that expire, if places that are drawn have none; how long that goes on, in milliseconds; and for how many times as long nobody looks
/// again if there were none.
const PASSED: usize = 4096;
const SEARCH: u64 = 1000;
const RESTS: u64 = 9;
/// Between two looks at how much room is left.
const PAUSE: Duration = Duration::from_millis(20);
/// ... if nothing is evicted.
const REST: Duration = Duration::from_millis(200);

/// What a server knows for it.
pub(crate) struct Evictor {
    uses: Uses,
    /// What of uses is noted: nothing, moments, or counts.
    notes: AtomicU32,
    pub(crate) evicted: AtomicU64,
    /// Times that room was made.
    rounds: AtomicU64,
    /// Held by who makes it.
    hand: Mutex<Hand>,
    /// Moments are counted from then on.
    began: u64,
}

/// Milliseconds of a moment: 32 bits of them are 13 years.
const MOMENT: u64 = 100;

/// Where the last look for keys that expire has ended, and until when none is worth it, in milliseconds of Unix time.
#[derive(Default)]
struct Hand {
    last: Vec<u8>,
    rests_until: u64,
}

const NOTHING: u32 = 0;
const MOMENTS: u32 = 1;
const COUNTS: u32 = 2;

impl Evictor {
    pub(crate) fn new(seed: u64, policy: Eviction) -> Self {
        let this = Self {
            uses: Uses::new(seed),
            notes: NOTHING.into(),
            evicted: 0.into(),
            rounds: 0.into(),
            hand: Mutex::default(),
            // No moment is 0.
            began: now() - 1000,
        };
        this.set(policy);
        this
    }

    /// From now on uses are noted as this asks for.
    pub(crate) fn set(&self, policy: Eviction) {
        let notes = match policy.by() {
            Some(By::Lru) => MOMENTS,
            Some(By::Lfu) => COUNTS,
            _ => NOTHING,
        };
        if self.notes.swap(notes, Relaxed) != notes {
            self.uses.clear();
            if notes != NOTHING {
                self.uses.grow(0);
            }
        }
    }

    /// Whether uses are noted.
    #[inline]
    pub(crate) fn notes(&self) -> bool {
        self.notes.load(Relaxed) != NOTHING
    }

    /// Keys that a command has named were used.
    #[cold]
    pub(crate) fn note(&self, shared: &Shared, command: &Command, args: &Arguments<'_>, db: u8, now: u64) {
        // These only tell of a key.
        let tells = ["exists", "object", "ttl", "pttl", "expiretime", "pexpiretime", "type"].contains(&command.name);
        if !tells && command.is(flag::READ | flag::WRITE) {
            command.keys(args).into_iter().for_each(|key| self.note_key(shared, &crate::data::Key::new(db, key), now));
        }
    }

    /// A key, as it is in the store, was used.
    pub(crate) fn note_key(&self, shared: &Shared, key: &[u8], now: u64) {
        match self.notes.load(Relaxed) {
            MOMENTS => self.uses.note_moment(key, self.moment(now)),
            COUNTS => self.uses.note_use(key, minute(now), shared.random(), frequency(shared)),
            _ => {}
        }
    }

    fn moment(&self, now: u64) -> u32 {
        u32::try_from(now.saturating_sub(self.began) / MOMENT).unwrap_or(u32::MAX).max(1)
    }

    /// For how many moments a key was not used; since the server began to note that if it was not.
    fn idle(&self, key: &[u8], now: u64) -> Option<u32> {
        let noted = self.notes.load(Relaxed) == MOMENTS;
        noted.then(|| self.moment(now).saturating_sub(self.uses.moment(key)))
    }

    /// The same in seconds.
    pub(crate) fn idle_seconds(&self, key: &[u8], now: u64) -> Option<u32> {
        Some(self.idle(key, now)? / (1000 / MOMENT) as u32)
    }

    /// How often a key is used.
    pub(crate) fn count(&self, shared: &Shared, key: &[u8], now: u64) -> Option<u32> {
        let noted = self.notes.load(Relaxed) == COUNTS;
        noted.then(|| self.uses.count(key, minute(now), frequency(shared)))
    }

    /// The greater, the sooner it goes.
    fn rank(&self, shared: &Shared, policy: Eviction, key: &[u8], expires: Option<u64>, now: u64) -> u64 {
        match policy.by() {
            Some(By::Lru) => self.idle(key, now).unwrap_or(0).into(),
            Some(By::Lfu) => (255 - self.count(shared, key, now).unwrap_or(0)).into(),
            Some(By::Random) => shared.random(),
            None => u64::MAX - expires.unwrap_or(u64::MAX),
        }
    }
}

fn frequency(shared: &Shared) -> Frequency {
    let settings = shared.settings();
    Frequency { log_factor: settings.lfu_log_factor, decay_minutes: settings.lfu_decay_minutes }
}

fn minute(now: u64) -> u32 {
    (now / 60_000) as u32
}

// ---- when -------------------------------------------------------------------------------------------------------

/// How long one who writes has tried.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    since: Option<u64>,
}

/// Requests of so many bytes have found no room. True: some was made, and they are to be tried again. The caller is not inside the gate.
pub(crate) fn make_room(shared: &Shared, bytes: usize, tries: &mut Tries) -> bool {
    let policy = shared.settings().eviction;
    // One that may never fit is not worth all that others have.
    if policy == Eviction::Never || bytes as u64 > shared.engine.counts().file_bytes / REQUEST {
        return false;
    }
    let since = *tries.since.get_or_insert_with(now);
    if now().saturating_sub(since) > PATIENCE {
        return false;
    }
    // The store has room, and its log none: other machines are slow.
    if shared.engine.position().is_some() && shared.engine.excess().is_none() {
        return false;
    }
    let before = shared.evictor.rounds.load(Relaxed);
    let mut hand = shared.evictor.hand.lock();
    // Somebody has, while this waited.
    shared.evictor.rounds.load(Relaxed) != before || round(shared, policy, &mut hand, TURN).is_ok_and(|gone| gone > 0)
}

/// Looks after it as long as the server runs.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        let policy = shared.settings().eviction;
        if policy == Eviction::Never {
            tokio::time::sleep(REST).await;
            continue;
        }
        let worker = shared.clone();
        let gone = tokio::task::spawn_blocking(move || {
            if worker.evictor.notes() {
                worker.evictor.uses.grow(worker.engine.counts().entries);
            }
            if worker.engine.excess().is_none() {
                return Ok(0);
            }
            round(&worker, policy, &mut worker.evictor.hand.lock(), TURN)
        });
        match gone.await {
            Ok(Ok(0)) => tokio::time::sleep(PAUSE).await,
            Ok(Ok(_)) => tokio::task::yield_now().await, // who writes may be waiting for its turn
            Ok(Err(error)) => {
                tracing::debug!("no key was evicted: {error}");
                tokio::time::sleep(REST).await;
            }
            Err(_) => return,
        }
    }
}

/// Removes what is to go, or for so many milliseconds; some in any case, if there is any. How many keys went.
fn round(shared: &Shared, policy: Eviction, hand: &mut Hand, most_ms: u64) -> Result<usize> {
    let (excess, began, mut gone) = (shared.engine.excess(), now(), Gone::default());
    loop {
        let some = evict(shared, policy, hand)?;
        (gone.keys, gone.bytes) = (gone.keys + some.keys, gone.bytes + some.bytes);
        let enough = gone.bytes >= excess.bytes && gone.keys as u64 >= excess.keys;
        if some.keys == 0 || enough || now().saturating_sub(began) > most_ms || *shared.stop.borrow() {
            break;
        }
    }
    if gone.keys > 0 {
        shared.engine.reclaim()?;
        shared.evictor.rounds.fetch_add(1, Relaxed);
    }
    Ok(gone.keys)
}

// ---- which ------------------------------------------------------------------------------------------------------

/// A key that may go, as it is in the store.
#[derive(Debug)]
struct Candidate {
    key: Vec<u8>,
    rank: u64,
}

/// What has gone.
#[derive(Clone, Copy, Debug, Default)]
struct Gone {
    keys: usize,
    bytes: u64,
}

/// Removes some keys.
fn evict(shared: &Shared, policy: Eviction, hand: &mut Hand) -> Result<Gone> {
    let mut found = drawn(shared, policy)?;
    if found.is_empty() && policy.is_volatile() {
        found = searched(shared, policy, hand)?;
    }
    // The first of those of one rank are any of them.
    let samples = shared.settings().samples.max(1);
    let most = (found.len() / samples).clamp(1, AT_ONCE);
    found.sort_by_key(|one| std::cmp::Reverse(one.rank));
    found.truncate(most);
    let bytes = shared.engine.counts().file_bytes / PART;
    match remove(shared, policy, &found, bytes) {
        // A full store may have room for one.
        Err(Error::Full(_) | Error::Limit(_)) if found.len() > 1 => remove(shared, policy, &found[..1], bytes),
        removed => removed,
    }
}

/// Those at places that are drawn, in an order that is drawn.
fn drawn(shared: &Shared, policy: Eviction) -> Result<Vec<Candidate>> {
    let wanted = AT_ONCE * shared.settings().samples.max(1);
    let (mut found, now) = (BTreeMap::new(), now());
    shared.look(&mut |tx| {
        found.clear();
        let places = places(shared, tx, wanted.div_ceil(NEIGHBOURS))?;
        let mut bytes = 0;
        for place in places {
            let range = Keys { from: Bound::Included(place), ..Keys::from(&[]).until(&[DATABASES]) };
            look(shared, policy, tx, range, now, NEIGHBOURS, &mut bytes, &mut found)?;
            if bytes > LOOKED {
                break;
            }
        }
        Ok(())
    })?;
    let mut found: Vec<Candidate> = found.into_iter().map(|(key, rank)| Candidate { key, rank }).collect();
    for at in 1..found.len() {
        found.swap(at, (shared.random() % (at as u64 + 1)) as usize);
    }
    Ok(found)
}

/// So many keys, each of all there are with the same likelihood; some of them the same.
fn places(shared: &Shared, tx: &dyn Tx, count: usize) -> Result<Vec<Vec<u8>>> {
    let mut firsts = Vec::new();
    for db in 0..DATABASES {
        firsts.extend(first(tx, all(db, &[]))?.map(|key| (db, key)));
    }
    // Those that a draw finds are not equally likely. It tells how likely each was; so of more than are needed some are taken with weights that make up for it.
    let (mut drawn, mut sum) = (Vec::new(), 0.0);
    for (db, low) in &firsts {
        for _ in 0..(count * DRAWN).div_ceil(firsts.len()) {
            let (key, weight) = draw(tx, &|| shared.random(), *db, low[1..].to_vec())?;
            sum += weight;
            drawn.push((sum, crate::data::stored(*db, &key)));
        }
    }
    let take = |_| {
        let at = (shared.random() >> 11) as f64 / (1_u64 << 53) as f64 * sum;
        drawn.get(drawn.partition_point(|(until, _)| *until <= at)).or(drawn.last()).map(|(_, key)| key.clone())
    };
    Ok((0..count).filter_map(take).collect())
}

/// Some that expire, where few do: from where the last search ended, on once around at most.
fn searched(shared: &Shared, policy: Eviction, hand: &mut Hand) -> Result<Vec<Candidate>> {
    let (mut found, began, start) = (BTreeMap::new(), now(), hand.last.clone());
    if began < hand.rests_until {
        return Ok(Vec::new());
    }
    let mut around = false;
    while found.is_empty() && now().saturating_sub(began) < SEARCH && !(around && hand.last >= start) {
        let mut last = None;
        shared.look(&mut |tx| {
            found.clear();
            let range = Keys { from: Bound::Excluded(hand.last.clone()), ..Keys::from(&[]).until(&[DATABASES]) };
            last = look(shared, policy, tx, range, began, PASSED, &mut 0, &mut found)?;
            Ok(())
        })?;
        hand.last = last.unwrap_or_default();
        around |= hand.last.is_empty();
    }
    if found.is_empty() {
        hand.rests_until = now() + RESTS * now().saturating_sub(began).max(1);
    }
    Ok(found.into_iter().map(|(key, rank)| Candidate { key, rank }).collect())
}

/// Looks at so many keys of a range, or until values have had too many bytes; the last of them if there may be more.
#[expect(clippy::too_many_arguments, reason = "what is looked for, where, and what has come of it")]
fn look(
    shared: &Shared,
    policy: Eviction,
    tx: &dyn Tx,
    range: Keys,
    now: u64,
    most: usize,
    bytes: &mut usize,
    found: &mut BTreeMap<Vec<u8>, u64>,
) -> Result<Option<Vec<u8>>> {
    let (mut seen, mut last, mut failed) = (0, None, None);
    tx.scan(range, &mut |key, value| {
        seen += 1;
        *bytes += value.len();
        match if spares_lasting(shared, policy) { tx.expires(key) } else { Ok(None) } {
            Ok(None) if spares_lasting(shared, policy) => {}
            Ok(expires) => {
                found.insert(key.to_vec(), shared.evictor.rank(shared, policy, key, expires, now));
            }
            Err(error) => failed = Some(error),
        }
        if seen < most && *bytes < LOOKED && failed.is_none() {
            return ControlFlow::Continue(());
        }
        last = Some(key.to_vec());
        ControlFlow::Break(())
    })?;
    failed.map_or(Ok(last), Err)
}

fn spares_lasting(shared: &Shared, policy: Eviction) -> bool {
    policy.is_volatile() && !shared.sabotage.skips(Step::LastingStays)
}

fn first(tx: &dyn Tx, range: Keys) -> Result<Option<Vec<u8>>> {
    let mut first = None;
    tx.scan(range, &mut |key, _| {
        first = Some(key.to_vec());
        ControlFlow::Break(())
    })?;
    Ok(first)
}

// ---- removal ----------------------------------------------------------------------------------------------------

/// Removes these in a transaction, as long as they have fewer bytes.
fn remove(shared: &Shared, policy: Eviction, found: &[Candidate], most: u64) -> Result<Gone> {
    let Some(itself) = shared.itself.upgrade() else { return Ok(Gone::default()) };
    let inside = shared.enter();
    // A removal that waits for room is to be ended first.
    if inside.hidden().is_some() {
        return Ok(Gone::default());
    }
    let (mut gone, mut bytes, mut ticket) = (Vec::new(), 0, None);
    shared.engine.write(&mut |tx| {
        (gone, bytes, ticket) = (Vec::new(), 0, None);
        for Candidate { key, .. } in found {
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
    if shared.readers.any_of_group() {
        gone.iter().for_each(|key| shared.readers.wake(key));
    }
    shared.evictor.evicted.fetch_add(gone.len() as u64, Relaxed);
    Ok(Gone { keys: gone.len(), bytes })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_have_redis_names() {
        for name in Eviction::names() {
            assert_eq!(Eviction::named(&name.to_uppercase()).map(Eviction::name), Some(name));
        }
        assert!(Eviction::named("allkeys").is_none());
        assert_eq!(Eviction::default().name(), "noeviction");
    }
}
