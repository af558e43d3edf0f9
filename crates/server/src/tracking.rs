//! `CLIENT TRACKING`: clients are told which of the keys that they have read have changed, so that they may keep values themselves.
//!
//! ```text
//!   a read    notes its keys for its client ─> begins its transaction ─> ... ─> its answer ─> what was told meanwhile
//!   a write   is committed ─> looks who has noted its keys ─> tells them, and forgets these notes
//! ```
//!
//! **A client that has read a value and was told nothing may use it.** Of a read and a write on different threads one takes the table's lock first. If it is the read: the write finds the note. If it is the
//! write: it was committed before, and the read's transaction, which begins behind its note, sees what it wrote. A read whose transaction is run again sees no less, and if its note was taken away meanwhile,
//! what took it has told the client, unless that was its own commit and it is not told of those (`NOLOOP`): that leaves the notes which were made for the same transaction. What is told is written behind the answer ([`Inbox`](crate::client::Inbox)), so it is not taken for news of an older value. A write whose transaction began when no client was told
//! anything, and that finds one behind its commit, does not know its keys any more: it tells all clients to forget all. A key that expires changes in no transaction: when a command reads one, its note
//! says when it is to expire, and the client is told then.

use std::borrow::Cow;
use std::collections::btree_map::Entry as At;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::client::{self, Client, Item, Put, listens};
use crate::clock::now;
use crate::config::SubscriberLimit;
use crate::topic::Name;

/// Keys that are noted, if nothing is said, and at most.
const KEYS: u64 = 1_000_000;
pub(crate) const KEYS_MAX: u64 = 100_000_000;
/// Notes of clients for each of these, at most.
const CLIENTS: u64 = 16;
/// Notes that are forgotten under one lock to make room, besides twice as many as were made.
const STEP: usize = 128;
/// Prefixes of one client: every write compares them.
pub(crate) const PREFIXES: usize = 1000;

/// What a client has asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mode {
    pub(crate) broadcast: bool,
    pub(crate) opt_in: bool,
    pub(crate) opt_out: bool,
    pub(crate) no_loop: bool,
    /// The client that is told instead; 0 for itself.
    pub(crate) redirect: u64,
    pub(crate) prefixes: BTreeSet<Name>,
}

impl Mode {
    /// Whether keys of a read are noted; `said` by `CLIENT CACHING`.
    pub(crate) fn notes(&self, said: bool) -> bool {
        !self.broadcast && if self.opt_in { said } else { !(self.opt_out && said) }
    }
}

/// Of all clients.
pub(crate) struct Trackers {
    count: AtomicUsize,
    /// `tracking-table-max-keys`.
    pub(crate) keys_max: AtomicU64,
    table: Mutex<Table>,
    /// The first has begun.
    begun: Notify,
}

#[derive(Default)]
struct Table {
    clients: BTreeMap<u64, Tracked>,
    keys: BTreeMap<Name, Note>,
    /// Clients in all notes.
    items: u64,
    /// When keys expire, as far as that is known.
    due: BTreeSet<(u64, Name)>,
    prefixes: BTreeMap<Name, BTreeSet<u64>>,
    /// The last key that had to make room.
    hand: Option<Name>,
}

struct Tracked {
    client: Arc<Client>,
    /// Where it goes, if not there.
    redirect: Option<(u64, Weak<Client>)>,
    broadcast: bool,
    no_loop: bool,
}

/// Of a key: who has read it, and when it expires.
#[derive(Default)]
struct Note {
    clients: BTreeSet<u64>,
    due: Option<u64>,
}

/// Whose change it is.
#[derive(Default)]
pub(crate) struct Author<'r> {
    /// 0 if it is no client's.
    pub(crate) client: u64,
    /// Keys that were noted for the same transaction, if it is not told of its own changes.
    pub(crate) read: Cow<'r, BTreeSet<Name>>,
}

/// Clients that have read too little of what they were told: they are to end.
pub(crate) type TooSlow = Vec<Arc<Client>>;

/// Tells clients, with what they may have to read.
struct Teller {
    limit: SubscriberLimit,
    now: u64,
    too_slow: TooSlow,
}

impl Teller {
    fn new(limit: SubscriberLimit) -> Self {
        Self { limit, now: now(), too_slow: Vec::new() }
    }

    fn tell(&mut self, tracked: &Tracked, item: Item) {
        let Tracked { client, redirect, .. } = tracked;
        match redirect {
            None => self.put(client, item),
            Some((id, there)) => match there.upgrade().filter(|there| !there.must_end()) {
                Some(there) => self.put(&there, item),
                None => {
                    client.redirection_broken.store(true, Relaxed);
                    self.put(client, Item::Broken(*id));
                }
            },
        }
    }

    fn put(&mut self, client: &Arc<Client>, item: Item) {
        // With version 2 it can be told to a subscriber only, whose arrays are all messages.
        if !client.inbox.is(listens::SUBSCRIBES) && !client.state.lock().three || client.must_end() {
            return;
        }
        client.inbox.open(listens::TRACKS);
        match client.inbox.put(item, self.limit, self.now) {
            Put::First => client.wake(),
            Put::Behind => {}
            Put::TooMuch => self.too_slow.push(client.clone()),
        }
    }
}

impl Table {
    fn forget(&mut self, key: &[u8]) -> Option<(Name, Note)> {
        let (key, note) = self.keys.remove_entry(key)?;
        self.items -= note.clients.len() as u64;
        if let Some(moment) = note.due {
            self.due.remove(&(moment, key.clone()));
        }
        Some((key, note))
    }

    /// Tells those that have read a key. One whose own change that is, and which is not told of it, keeps its note if it has read the key in the same transaction.
    fn tell_of(&mut self, key: &[u8], by: &Author<'_>, teller: &mut Teller) {
        let Some((key, note)) = self.forget(key) else { return };
        let is_quiet = |id: u64| id == by.client && self.clients.get(&id).is_some_and(|one| one.no_loop);
        if by.read.contains(&key) && note.clients.contains(&by.client) && is_quiet(by.client) {
            self.keys.insert(key.clone(), Note { clients: BTreeSet::from([by.client]), due: None });
            self.items += 1;
        }
        let keys: Arc<[Name]> = Arc::new([key]);
        for id in note.clients {
            if let Some(tracked) =
                self.clients.get(&id).filter(|one| !(one.broadcast || one.no_loop && id == by.client))
            {
                teller.tell(tracked, Item::Changed(Some(keys.clone())));
            }
        }
    }

    /// Tells those that are told of every key with a prefix.
    fn broadcast(&self, keys: &[Name], by: u64, teller: &mut Teller) {
        for (prefix, clients) in &self.prefixes {
            let mut fitting: Vec<Name> = keys.iter().filter(|key| key.starts_with(prefix)).cloned().collect();
            if fitting.is_empty() {
                continue;
            }
            fitting.sort_unstable();
            let fitting: Arc<[Name]> = fitting.into();
            for id in clients {
                if let Some(tracked) = self.clients.get(id).filter(|one| !(one.no_loop && *id == by)) {
                    teller.tell(tracked, Item::Changed(Some(fitting.clone())));
                }
            }
        }
    }

    fn is_too_large(&self, keys_max: u64) -> bool {
        self.keys.len() as u64 > keys_max || self.items > keys_max.saturating_mul(CLIENTS)
    }

    /// Forgets notes until there are not too many, or so many are forgotten; those who made them are told.
    fn make_room(&mut self, keys_max: u64, at_most: usize, teller: &mut Teller) {
        for _ in 0..at_most {
            if !self.is_too_large(keys_max) {
                return;
            }
            let from = self.hand.take().map_or(Bound::Unbounded, Bound::Excluded);
            let next = self.keys.range::<Name, _>((from, Bound::Unbounded)).next();
            let Some(next) = next.or_else(|| self.keys.first_key_value()).map(|(key, _)| key.clone()) else { return };
            self.tell_of(&next, &Author::default(), teller);
            self.hand = Some(next);
        }
    }
}

impl Default for Trackers {
    fn default() -> Self {
        Self { count: 0.into(), keys_max: KEYS.into(), table: Mutex::default(), begun: Notify::new() }
    }
}

impl Trackers {
    /// Whether any client is told of anything.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.count.load(SeqCst) > 0
    }

    /// Until there may be one.
    pub(crate) async fn begun(&self) {
        self.begun.notified().await;
    }

    /// Keys, as they are in the store, that a transaction has changed which is committed now. Of all databases, as in Redis.
    pub(crate) fn changed(&self, stored: &[Vec<u8>], by: &Author<'_>, limit: SubscriberLimit) -> TooSlow {
        let mut names: Vec<Name> = Vec::with_capacity(stored.len());
        let mut seen = BTreeSet::new();
        for key in stored.iter().filter_map(|key| key.get(1..)) {
            if seen.insert(key) {
                names.push(key.into());
            }
        }
        let (mut teller, mut table) = (Teller::new(limit), self.table.lock());
        names.iter().for_each(|name| table.tell_of(name, by, &mut teller));
        table.broadcast(&names, by.client, &mut teller);
        teller.too_slow
    }

    /// Nothing is as it was.
    pub(crate) fn all_changed(&self, limit: SubscriberLimit) -> TooSlow {
        let (mut teller, mut table) = (Teller::new(limit), self.table.lock());
        let notes = (std::mem::take(&mut table.keys), std::mem::take(&mut table.due));
        table.items = 0;
        table.clients.values().for_each(|tracked| teller.tell(tracked, Item::Changed(None)));
        drop(table);
        // There may be a million of them: not under the lock.
        drop(notes);
        teller.too_slow
    }

    /// One step towards no more notes than there may be; none is left to do if there are none more.
    pub(crate) fn shrink(&self, limit: SubscriberLimit) -> Option<TooSlow> {
        let (most, mut table) = (self.keys_max.load(Relaxed), self.table.lock());
        if !table.is_too_large(most) {
            return None;
        }
        let mut teller = Teller::new(limit);
        table.make_room(most, STEP, &mut teller);
        Some(teller.too_slow)
    }

    /// Tells of keys that have expired by now.
    pub(crate) fn expire(&self, now: u64, limit: SubscriberLimit) -> TooSlow {
        let (mut teller, mut table) = (Teller::new(limit), self.table.lock());
        let mut gone = Vec::new();
        while table.due.first().is_some_and(|(moment, _)| *moment <= now)
            && let Some((_, key)) = table.due.pop_first()
        {
            table.tell_of(&key, &Author::default(), &mut teller);
            gone.push(key);
        }
        table.broadcast(&gone, 0, &mut teller);
        teller.too_slow
    }

    /// Clients, keys, clients in all notes, prefixes.
    pub(crate) fn counts(&self) -> [u64; 4] {
        let table = self.table.lock();
        [table.clients.len() as u64, table.keys.len() as u64, table.items, table.prefixes.len() as u64]
    }
}

/// What a connection is told of. Dropping it ends that.
pub(crate) struct Tracking {
    all: Arc<Trackers>,
    client: Arc<Client>,
    mode: Option<Mode>,
    /// `CLIENT CACHING` was said in front of the next request, or of the transaction.
    pub(crate) said: bool,
    /// Keys that were read in the transaction that runs, and when they expire.
    pub(crate) due: Vec<(Vec<u8>, u64)>,
    /// Keys that were noted for it, if it is not told of its own changes.
    read: BTreeSet<Name>,
}

impl Tracking {
    pub(crate) fn new(all: Arc<Trackers>, client: Arc<Client>) -> Self {
        Self { all, client, mode: None, said: false, due: Vec::new(), read: BTreeSet::new() }
    }

    pub(crate) fn mode(&self) -> Option<&Mode> {
        self.mode.as_ref()
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.mode.is_some()
    }

    /// It is told from now on; of these prefixes besides those it had.
    pub(crate) fn begin(&mut self, mut mode: Mode, there: Option<&Arc<Client>>) {
        let (id, client) = (self.client.id, self.client.clone());
        let redirect = there.map(|there| (mode.redirect, Arc::downgrade(there)));
        let tracked = Tracked { client, redirect, broadcast: mode.broadcast, no_loop: mode.no_loop };
        let mut table = self.all.table.lock();
        for prefix in &mode.prefixes {
            table.prefixes.entry(prefix.clone()).or_default().insert(id);
        }
        if table.clients.insert(id, tracked).is_none() {
            self.all.count.fetch_add(1, SeqCst);
            self.all.begun.notify_one();
        }
        drop(table);
        self.client.redirection_broken.store(false, Relaxed);
        let shown = client::Tracking { broadcast: mode.broadcast, redirect: mode.redirect };
        self.client.state.lock().tracking = Some(shown);
        mode.prefixes.extend(self.mode.take().into_iter().flat_map(|before| before.prefixes));
        self.mode = Some(mode);
    }

    pub(crate) fn end(&mut self) {
        let Some(mode) = self.mode.take() else { return };
        let mut table = self.all.table.lock();
        for prefix in &mode.prefixes {
            if let At::Occupied(mut clients) = table.prefixes.entry(prefix.clone()) {
                clients.get_mut().remove(&self.client.id);
                if clients.get().is_empty() {
                    clients.remove();
                }
            }
        }
        // Its notes stay until these keys change, or have to make room.
        if table.clients.remove(&self.client.id).is_some() {
            self.all.count.fetch_sub(1, SeqCst);
        }
        let notes = table.clients.is_empty().then(|| {
            table.items = 0;
            (std::mem::take(&mut table.keys), std::mem::take(&mut table.due))
        });
        drop(table);
        // Not under the lock.
        drop(notes);
        self.said = false;
        self.due = Vec::new();
        self.read = BTreeSet::new();
        self.client.state.lock().tracking = None;
        // What is yet to be told is told.
    }

    /// It is about to read these: before its transaction begins.
    pub(crate) fn note(&mut self, keys: &[&[u8]], limit: impl FnOnce() -> SubscriberLimit) -> TooSlow {
        self.read.clear();
        if keys.is_empty() {
            return Vec::new();
        }
        if self.mode.as_ref().is_some_and(|mode| mode.no_loop) {
            self.read.extend(keys.iter().map(|key| Name::from(*key)));
        }
        let mut table = self.all.table.lock();
        for key in keys {
            let key = *key;
            let is_new = match table.keys.get_mut(key) {
                Some(note) => note.clients.insert(self.client.id),
                None => {
                    let note = Note { clients: BTreeSet::from([self.client.id]), due: None };
                    table.keys.insert(key.into(), note).is_none()
                }
            };
            table.items += u64::from(is_new);
        }
        self.made_room(&mut table, keys.len(), limit)
    }

    /// As the author of what its transaction has changed.
    pub(crate) fn author(&self) -> Author<'_> {
        Author { client: self.client.id, read: Cow::Borrowed(&self.read) }
    }

    /// What it has read was committed, and what it has changed was told: when its keys expire. Another client may have noted another moment since: the earlier one
    /// tells nobody too late.
    pub(crate) fn note_due(&mut self, limit: impl FnOnce() -> SubscriberLimit) -> TooSlow {
        let broadcast = self.mode.as_ref().is_some_and(|mode| mode.broadcast);
        let (mut table, due) = (self.all.table.lock(), std::mem::take(&mut self.due));
        let count = due.len();
        for (key, moment) in due {
            // A note of its own that is gone was taken by a change, of which the client was told; what another client has noted since is newer.
            let is_noted = table.keys.get(&key[..]).is_some_and(|note| note.clients.contains(&self.client.id));
            if !broadcast && !is_noted {
                continue;
            }
            let key = Name::from(key);
            let note = table.keys.entry(key.clone()).or_default();
            let before = note.due;
            if before.is_some_and(|before| before <= moment) {
                continue;
            }
            note.due = Some(moment);
            if let Some(before) = before {
                table.due.remove(&(before, key.clone()));
            }
            table.due.insert((moment, key));
        }
        self.made_room(&mut table, count, limit)
    }

    /// Makes room for more than was added. What is left, if there may be fewer notes than before, goes in [steps](Trackers::shrink).
    fn made_room(&self, table: &mut Table, added: usize, limit: impl FnOnce() -> SubscriberLimit) -> TooSlow {
        let most = self.all.keys_max.load(Relaxed);
        if !table.is_too_large(most) {
            return Vec::new();
        }
        let mut teller = Teller::new(limit());
        table.make_room(most, STEP.saturating_add(2 * added), &mut teller);
        teller.too_slow
    }

    /// It is to forget all that it has read.
    pub(crate) fn forget_all(&self, limit: SubscriberLimit) -> TooSlow {
        let (mut teller, table) = (Teller::new(limit), self.all.table.lock());
        if let Some(tracked) = table.clients.get(&self.client.id) {
            teller.tell(tracked, Item::Changed(None));
        }
        teller.too_slow
    }
}

impl Drop for Tracking {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: SubscriberLimit = SubscriberLimit { hard_bytes: 10_000, soft_bytes: 0, soft_seconds: 0 };

    fn one(all: &Arc<Trackers>, id: u64, mode: Mode) -> Tracking {
        let client = Client::new(id, String::new(), String::new(), 0);
        client.state.lock().three = true;
        let mut tracking = Tracking::new(all.clone(), client);
        tracking.begin(mode, None);
        tracking
    }

    fn note(tracking: &mut Tracking, keys: &[&str]) {
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        assert!(tracking.note(&keys, || LIMIT).is_empty());
    }

    fn stored(keys: &[&str]) -> Vec<Vec<u8>> {
        keys.iter().map(|key| format!("\0{key}").into_bytes()).collect()
    }

    fn changed(all: &Trackers, keys: &[&str], by: u64) {
        assert!(all.changed(&stored(keys), &Author { client: by, ..Author::default() }, LIMIT).is_empty());
    }

    fn told(tracking: &Tracking) -> Vec<String> {
        let mut told = Vec::new();
        while let Some(item) = tracking.client.inbox.take(false) {
            told.push(match item {
                Item::Changed(Some(keys)) => {
                    keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect::<Vec<_>>().join(" ")
                }
                Item::Changed(None) => "all".to_owned(),
                _ => "other".to_owned(),
            });
        }
        told
    }

    #[test]
    fn readers_are_told_once_and_broadcasts_always() {
        let all = Arc::new(Trackers::default());
        let mut reader = one(&all, 1, Mode::default());
        let mut own = one(&all, 2, Mode { no_loop: true, ..Mode::default() });
        let prefixes = [Name::from(&b"a"[..]), Name::from(&b"b"[..])].into();
        let wide = one(&all, 3, Mode { broadcast: true, prefixes, ..Mode::default() });
        note(&mut reader, &["a1", "a2", "a1"]);
        note(&mut own, &["a1"]);
        assert_eq!(all.counts(), [3, 2, 3, 2]);
        changed(&all, &["a1", "a2", "b", "c", "a1"], 2);
        changed(&all, &["a1"], 0);
        assert_eq!(told(&reader), ["a1", "a2"]);
        assert!(told(&own).is_empty(), "it has changed that itself, and its note is gone");
        assert_eq!(told(&wide), ["a1 a2", "b", "a1"]);
        note(&mut reader, &["x"]);
        all.all_changed(LIMIT);
        assert_eq!([told(&reader), told(&own), told(&wide)], [["all"], ["all"], ["all"]]);
        drop((reader, own, wide));
        assert!(!all.any() && all.counts() == [0; 4]);
    }

    #[test]
    fn keys_that_expire_are_told_when_they_do() {
        let all = Arc::new(Trackers::default());
        let mut reader = one(&all, 1, Mode::default());
        let mut wide =
            one(&all, 2, Mode { broadcast: true, prefixes: [Name::from(&b""[..])].into(), ..Mode::default() });
        note(&mut reader, &["a", "b", "c"]);
        changed(&all, &["c"], 0);
        reader.due = [("a", 5), ("b", 9), ("c", 5)].map(|(key, moment)| (key.as_bytes().to_vec(), moment)).to_vec();
        wide.due = vec![(b"d".to_vec(), 5)];
        reader.note_due(|| LIMIT);
        wide.note_due(|| LIMIT);
        all.expire(4, LIMIT);
        assert_eq!((told(&reader), told(&wide)), (vec!["c".to_owned()], vec!["c".to_owned()]));
        all.expire(5, LIMIT);
        assert_eq!((told(&reader), told(&wide)), (vec!["a".to_owned()], vec!["a d".to_owned()]));
        // One that changes before does not expire.
        changed(&all, &["b"], 0);
        all.expire(99, LIMIT);
        assert_eq!(told(&reader), ["b"]);
        assert_eq!(all.counts(), [2, 0, 0, 1]);
    }

    /// What it reads in the transaction that changes it is kept by the client, which is not told of that change, and so is to be told of the next.
    #[test]
    fn a_client_that_is_not_told_of_its_changes_keeps_what_it_reads_with_them() {
        let all = Arc::new(Trackers::default());
        let mut own = one(&all, 1, Mode { no_loop: true, ..Mode::default() });
        let mut other = one(&all, 2, Mode::default());
        note(&mut own, &["a", "b"]);
        note(&mut other, &["a"]);
        all.changed(&stored(&["a", "c"]), &own.author(), LIMIT);
        assert_eq!((told(&own), told(&other)), (vec![], vec!["a".to_owned()]));
        own.due = vec![(b"a".to_vec(), 5)];
        own.note_due(|| LIMIT);
        assert_eq!(all.counts(), [2, 2, 2, 0]);
        changed(&all, &["a"], 2);
        assert_eq!(told(&own), ["a"]);
        // Of a transaction that has read nothing of it the note goes: it knows what it has written.
        note(&mut own, &[]);
        all.changed(&stored(&["b"]), &own.author(), LIMIT);
        changed(&all, &["b"], 2);
        assert!(told(&own).is_empty() && all.counts() == [2, 0, 0, 0]);
        note(&mut own, &["d"]);
        all.changed(&stored(&["d"]), &own.author(), LIMIT);
        own.due = vec![(b"d".to_vec(), 5)];
        own.note_due(|| LIMIT);
        all.expire(5, LIMIT);
        assert_eq!(told(&own), ["d"]);
    }

    /// One client has read a key before its expiry was changed, and says so behind another one that has read it since.
    #[test]
    fn an_older_moment_is_not_put_over_a_newer_one() {
        let all = Arc::new(Trackers::default());
        let [mut early, mut late] = [1, 2].map(|id| one(&all, id, Mode::default()));
        let mut wide = one(&all, 3, Mode { broadcast: true, ..Mode::default() });
        let due = |tracking: &mut Tracking, moment| {
            tracking.due = vec![(b"a".to_vec(), moment)];
            tracking.note_due(|| LIMIT);
        };
        note(&mut early, &["a"]);
        changed(&all, &["a"], 9);
        assert_eq!(told(&early), ["a"]);
        note(&mut late, &["a"]);
        due(&mut late, 5);
        due(&mut early, 50);
        due(&mut wide, 60);
        all.expire(5, LIMIT);
        assert_eq!((told(&late), told(&early)), (vec!["a".to_owned()], vec![]));
        assert_eq!(all.counts()[1], 0);
    }

    /// A table that is too large by far is made smaller in steps, whatever one client reads meanwhile.
    #[test]
    fn room_is_made_in_steps() {
        let all = Arc::new(Trackers::default());
        let mut reader = one(&all, 1, Mode::default());
        let limit = SubscriberLimit { hard_bytes: 0, ..LIMIT };
        let names: Vec<Vec<u8>> = (0..1000).map(|n: u32| n.to_be_bytes().to_vec()).collect();
        let keys: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        assert!(reader.note(&keys, || limit).is_empty());
        all.keys_max.store(10, Relaxed);
        assert!(reader.note(&keys[..1], || limit).is_empty());
        assert_eq!(all.counts()[1], 1000 - STEP as u64 - 2);
        let steps = (0..100).take_while(|_| all.shrink(limit).is_some_and(|slow| slow.is_empty())).count();
        assert_eq!((all.counts()[1], steps), (10, (990 - STEP - 2).div_ceil(STEP)));
    }

    #[test]
    fn the_table_has_a_most() {
        let all = Arc::new(Trackers::default());
        all.keys_max.store(3, Relaxed);
        let mut reader = one(&all, 1, Mode::default());
        for key in ["a", "b", "c", "d", "e"] {
            note(&mut reader, &[key]);
        }
        assert_eq!((told(&reader), all.counts()[1]), (vec!["a".to_owned(), "b".to_owned()], 3));
    }

    #[test]
    fn a_client_that_is_told_elsewhere_hears_when_that_is_gone() {
        let all = Arc::new(Trackers::default());
        let there = Client::new(9, String::new(), String::new(), 0);
        there.inbox.open(listens::SUBSCRIBES);
        let mut reader = one(&all, 1, Mode::default());
        reader.begin(Mode { redirect: 9, ..Mode::default() }, Some(&there));
        note(&mut reader, &["a"]);
        changed(&all, &["a"], 0);
        assert!(told(&reader).is_empty() && matches!(there.inbox.take(false), Some(Item::Changed(Some(_)))));
        drop(there);
        note(&mut reader, &["a"]);
        changed(&all, &["a"], 0);
        assert_eq!(told(&reader), ["other"]);
        assert!(reader.client.redirection_broken.load(Relaxed));
    }
}
