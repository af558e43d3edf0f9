//! Keyspace notifications: what has become of keys, told to those that subscribe to `__keyspace@N__:key` and `__keyevent@N__:event`.
//!
//! ```text
//!   a command ─> a transaction that notes which keys it changes ─> what that is called ─┐ at the end of the attempt: a number in line
//!                                                    (notice)                  (names)  │
//!   committed ─> told, when all that stand before it in line have been told or given up <┘
//! ```
//!
//! Order: a command whose events are wanted has read each key that it changes. So of two transactions that change a key the one that commits later has read what the other one
//! wrote, began its last attempt behind that commit, and has the greater number: events of a key are told in the order of its commits. When nothing is wanted all this is one look at a number.

mod due;
mod names;
mod notice;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;

pub(crate) use self::due::AT_ONCE;
use self::due::Due;
pub(crate) use self::notice::Noticing;
use crate::config::{Notify, class};
use crate::data::DATABASES;
use crate::databases::DatabaseMap;
use crate::engine::Result;
use crate::form::{Form, flag};
use crate::request::Arguments;

/// Something has become of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Event {
    class: u32,
    pub(crate) name: &'static str,
    /// With the number of its database in front.
    key: Vec<u8>,
}

/// When a key, as it is in the store, expires.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Expiry {
    key: Vec<u8>,
    /// It was there before the change.
    was_there: bool,
    /// None if it does not, or is gone.
    moment: Option<u64>,
}

/// What an attempt of a transaction is to tell when it is committed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    events: Vec<Event>,
    /// What clients call the databases.
    pub(crate) databases: DatabaseMap,
    /// Known while [`class::EXPIRED`] is wanted.
    due: Vec<Expiry>,
    /// Keys, as they are in the store, that a look has not found behind the moment when they were to expire.
    missing: Vec<(Vec<u8>, u64)>,
    /// Keys that it has found there behind that moment, and when they expire now.
    delayed: Vec<(Vec<u8>, u64, Option<u64>)>,
    /// Databases of the store that were emptied, each behind so many of what is `due`.
    emptied: Vec<(usize, u8)>,
}

impl Told {
    /// What a look at keys that were due has found: those that are gone, and those that expire at another moment now.
    pub(crate) fn of_look(
        missing: Vec<(Vec<u8>, u64)>,
        delayed: Vec<(Vec<u8>, u64, Option<u64>)>,
        databases: DatabaseMap,
    ) -> Self {
        Self { missing, delayed, databases, ..Self::default() }
    }

    fn is_empty(&self) -> bool {
        let nothing_looked_at = self.missing.is_empty() && self.delayed.is_empty();
        self.events.is_empty() && self.due.is_empty() && nothing_looked_at && self.emptied.is_empty()
    }
}

/// Publishes events, and has the state that says which.
pub(crate) trait Teller {
    fn events(&self) -> &Events;
    /// What clients call the databases at this moment.
    fn databases(&self) -> DatabaseMap;
    /// Tells all that subscribe to a channel.
    fn publish(&self, channel: &[u8], payload: &[u8]);
}

/// What a server tells, and in which order.
#[derive(Default)]
pub(crate) struct Events {
    classes: AtomicU32,
    /// How often they have become others.
    changes: AtomicU32,
    line: Mutex<Line>,
    /// The classes are others now.
    changed: tokio::sync::Notify,
}

#[derive(Default)]
struct Line {
    next: u64,
    /// By their numbers: what is committed and stands behind one that is not yet.
    waiting: BTreeMap<u64, Option<Told>>,
    due: Due,
}

impl Events {
    /// From now on these are told.
    pub(crate) fn set(&self, notify: Notify) {
        let mut line = self.line.lock();
        let knew = self.wants(class::EXPIRED);
        if self.classes.swap(notify.0, Relaxed) == notify.0 {
            return;
        }
        if !(knew && self.wants(class::EXPIRED)) {
            // From here on every change is learnt; what was there before is looked for.
            line.due = Due::default();
        }
        self.changes.fetch_add(1, Relaxed);
        self.changed.notify_one();
    }

    /// Whether any of these classes is told.
    #[inline]
    pub(crate) fn wants(&self, class: u32) -> bool {
        let classes = self.classes.load(Relaxed);
        classes & class != 0 && classes & (class::KEYSPACE | class::KEYEVENT) != 0
    }

    /// Whether what a command does is to be noticed.
    #[inline]
    pub(crate) fn wants_of(&self, command: &Form) -> bool {
        self.classes.load(Relaxed) != 0 && self.may_tell_of(command)
    }

    #[cold]
    fn may_tell_of(&self, command: &Form) -> bool {
        let writes = command.is(flag::WRITE);
        self.wants(if writes { !class::MISSED } else { class::MISSED })
    }

    /// What a command has done, of whose changes a note was kept; `answer` is its reply.
    pub(crate) fn note(
        &self,
        command: &Form,
        args: &Arguments<'_>,
        db: u8,
        noticed: Noticing<'_>,
        answer: &[u8],
        into: &mut Told,
    ) -> Result<()> {
        if matches!(command.name, "flushall" | "flushdb") {
            let all = if command.name == "flushall" { 0..DATABASES } else { db..db + 1 };
            let behind = into.due.len();
            into.emptied.extend(all.map(|db| (behind, db)));
            return Ok(());
        }
        if self.wants(class::EXPIRED) {
            into.due.extend(noticed.due()?);
        }
        let made = names::events(command, args, db, &noticed, answer)?;
        let map = into.databases;
        let numbered = |event: Event| Event { key: map.numbered(&event.key), ..event };
        into.events.extend(made.into_iter().filter(|event| self.wants(event.class)).map(numbered));
        Ok(())
    }

    /// A place in line for what an attempt tells, if it is committed.
    pub(crate) fn ticket<T: Teller>(&self, teller: &Arc<T>, told: Told) -> Option<Ticket<T>> {
        if told.is_empty() {
            return None;
        }
        let mut line = self.line.lock();
        let number = line.next;
        line.next += 1;
        line.waiting.insert(number, None);
        Some(Ticket { number, told, teller: teller.clone() })
    }

    /// A look at all keys begins: what changes from now on is newer than what it finds.
    pub(crate) fn begin_look(&self) {
        self.line.lock().due.touched = Some(Default::default());
    }

    /// What the look has found: keys, and when they expire.
    pub(crate) fn found(&self, all: Vec<(Vec<u8>, u64)>) {
        self.line.lock().due.found(all);
    }

    /// Some keys that are due, and when they were.
    pub(crate) fn due(&self, now: u64) -> Vec<(Vec<u8>, u64)> {
        self.line.lock().due.some(now)
    }

    /// How often the classes have become others.
    pub(crate) fn changes(&self) -> u32 {
        self.changes.load(Relaxed)
    }

    /// Until they do, or at once if they have since this was awaited.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Tells what may be told: no transaction in front of it is under way.
    fn advance(&self, teller: &impl Teller, line: &mut Line) {
        while let Some(first) = line.waiting.first_entry() {
            if first.get().is_none() {
                break;
            }
            let Some(told) = first.remove() else { break };
            told.delayed.iter().for_each(|(key, was, moment)| line.due.delay(key, *was, *moment));
            // A change that has not found a key of which it is known that it was to expire comes behind that.
            let expired = line.due.learn(&told.due, &told.missing, &told.emptied);
            let numbered = |key: Vec<u8>| told.databases.numbered(&key);
            let expired = expired.into_iter().map(numbered);
            let expired = expired.map(|key| Event { class: class::EXPIRED, name: "expired", key });
            expired.for_each(|event| self.tell(teller, &event));
            told.events.iter().for_each(|event| self.tell(teller, event));
        }
    }

    fn tell(&self, teller: &impl Teller, event: &Event) {
        let classes = self.classes.load(Relaxed);
        let Some((db, key)) = event.key.split_first() else { return };
        if classes & event.class == 0 {
            return;
        }
        let channel = |what: &str, rest: &[u8]| [format!("__key{what}@{db}__:").as_bytes(), rest].concat();
        if classes & class::KEYSPACE != 0 {
            teller.publish(&channel("space", key), event.name.as_bytes());
        }
        if classes & class::KEYEVENT != 0 {
            teller.publish(&channel("event", event.name.as_bytes()), key);
        }
    }
}

/// A place in line. Dropping it gives it up: its transaction was not committed.
pub(crate) struct Ticket<T: Teller> {
    number: u64,
    told: Told,
    teller: Arc<T>,
}

impl<T: Teller> Ticket<T> {
    /// Its transaction is committed.
    pub(crate) fn tell(mut self) {
        let told = std::mem::take(&mut self.told);
        let mut line = self.teller.events().line.lock();
        line.waiting.insert(self.number, Some(told));
        // The rest is as when it is given up.
    }
}

impl<T: Teller> Drop for Ticket<T> {
    fn drop(&mut self) {
        let events = self.teller.events();
        let mut line = events.line.lock();
        if line.waiting.get(&self.number).is_some_and(Option::is_none) {
            line.waiting.remove(&self.number);
        }
        events.advance(&*self.teller, &mut line);
    }
}

/// What is told when a transaction is committed that evicts these keys, as they are in the store.
pub(crate) fn evicted<T: Teller>(teller: &Arc<T>, keys: &[Vec<u8>]) -> Option<Ticket<T>> {
    let wants = |class| teller.events().wants(class);
    let (evicted, expired) = (wants(class::EVICTED), wants(class::EXPIRED));
    let databases = teller.databases();
    let event = |key: &Vec<u8>| Event { class: class::EVICTED, name: "evicted", key: databases.numbered(key) };
    let events = keys.iter().filter(|_| evicted).map(event).collect();
    let gone = |key: &Vec<u8>| Expiry { key: key.clone(), was_there: true, moment: None };
    let due = keys.iter().filter(|_| expired).map(gone).collect();
    teller.events().ticket(teller, Told { events, due, databases, ..Told::default() })
}

/// Databases of the store that a transaction of several steps has emptied.
pub(crate) fn emptied<T: Teller>(teller: &Arc<T>, databases: &[u8]) {
    let events = teller.events();
    if events.wants(class::EXPIRED) {
        let told = Told { emptied: databases.iter().map(|db| (0, *db)).collect(), ..Told::default() };
        if let Some(ticket) = events.ticket(teller, told) {
            ticket.tell();
        }
    }
}
