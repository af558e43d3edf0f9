//! Clients that wait for entries of streams: `XREAD` and `XREADGROUP` with `BLOCK`.
//!
//! What comes may be for all that wait, for one of each group, or for none, and a stream that goes is told to all groups. So a change makes a round: those that wait for the key look
//! one after the other, in the order in which they came, each behind the commit of the one before it. So of one group the one that waits longest is served. What changes while a round
//! is on its way makes another one behind it. As with [pops](crate::waiters), a reader registers, looks, and sleeps only then: no change is overlooked.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU64, AtomicUsize};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::data::streams::Id;

/// All of them, by keys with the number of their database in front.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    by_key: Mutex<BTreeMap<Vec<u8>, Queue>>,
    /// Registered, and those of them that read for a group.
    count: AtomicUsize,
    of_groups: AtomicUsize,
    /// Of these, those that have looked in vain.
    asleep: AtomicUsize,
    numbers: AtomicU64,
}

/// Those that wait for one key.
#[derive(Debug, Default)]
struct Queue {
    row: BTreeMap<u64, One>,
    /// Whose turn it is; none if there is no round.
    turn: Option<u64>,
    /// Another round is to follow.
    again: bool,
}

/// One of a row.
#[derive(Debug)]
struct One {
    notify: Arc<Notify>,
    group: Option<Arc<[u8]>>,
    /// The last id of the stream when it found nothing there.
    seen: Id,
}

impl Queue {
    /// Another round, if one is to follow and none is on its way.
    fn go_on(&mut self) {
        if self.turn.is_none() && std::mem::take(&mut self.again) {
            self.give(None);
        }
    }

    /// The turn goes to the first behind `last`, or to the first of another round.
    fn give(&mut self, last: Option<u64>) {
        let behind = (last.map_or(Unbounded, Excluded), Unbounded);
        let mut next = self.row.range::<u64, _>(behind).next();
        if next.is_none() && std::mem::take(&mut self.again) {
            next = self.row.first_key_value();
        }
        self.turn = next.map(|(number, _)| *number);
        if let Some((_, one)) = next {
            one.notify.notify_one();
        }
    }
}

/// A place among them; dropping it leaves.
pub(crate) struct Reading<'r> {
    all: &'r Readers,
    number: u64,
    keys: Vec<Vec<u8>>,
    notify: Arc<Notify>,
    group: Option<Arc<[u8]>>,
    stands: Cell<bool>,
    asleep: Cell<bool>,
}

impl Readers {
    /// One that reads these, for itself or for a group.
    pub(crate) fn register(&self, mut keys: Vec<Vec<u8>>, group: Option<&[u8]>) -> Reading<'_> {
        keys.sort_unstable();
        keys.dedup();
        let (number, notify) = (self.numbers.fetch_add(1, Relaxed), Arc::default());
        let (group, stands, asleep) = (group.map(Arc::from), false.into(), false.into());
        let reading = Reading { all: self, number, keys, notify, group, stands, asleep };
        reading.stand();
        self.of_groups.fetch_add(usize::from(reading.group.is_some()), SeqCst);
        self.count.fetch_add(1, SeqCst);
        reading
    }

    pub(crate) fn any(&self) -> bool {
        self.count.load(SeqCst) > 0
    }

    /// Whether any reads for a group: a command that takes a stream away tells those.
    pub(crate) fn any_of_group(&self) -> bool {
        self.of_groups.load(SeqCst) > 0
    }

    /// Those asleep.
    pub(crate) fn len(&self) -> usize {
        self.asleep.load(Relaxed)
    }

    /// Whether one of a group may take what it sees in a stream that goes up to `last`: not if another one in front of it has not seen that. Then its turn comes behind that one.
    pub(crate) fn goes_first(&self, key: &[u8], number: u64, group: &[u8], last: Id) -> bool {
        let mut by_key = self.by_key.lock();
        let Some(queue) = by_key.get_mut(key) else { return true };
        let mut before = queue.row.range(..number).map(|(_, one)| one);
        let is_first = !before.any(|one| one.group.as_deref() == Some(group) && one.seen < last);
        queue.again |= !is_first;
        is_first
    }

    /// Something has changed there, and is committed; at all keys if it is empty.
    pub(crate) fn wake(&self, key: &[u8]) {
        let begin = |queue: &mut Queue| match queue.turn {
            Some(_) => queue.again = true,
            None => queue.give(None),
        };
        let mut by_key = self.by_key.lock();
        if key.is_empty() {
            by_key.values_mut().for_each(begin);
        } else if let Some(queue) = by_key.get_mut(key) {
            begin(queue);
        }
    }
}

impl Reading<'_> {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// What tells it to look.
    pub(crate) fn notify(&self) -> &Notify {
        &self.notify
    }

    /// It is about to look.
    pub(crate) fn again(&self) {
        if !self.stands.get() {
            self.stand();
        }
    }

    /// It has looked, because it was told to or before, and there was nothing in streams that went so far.
    pub(crate) fn found_nothing(&self, told: bool, seen: &[(Vec<u8>, Id)]) {
        let mut by_key = self.all.by_key.lock();
        for (key, last) in seen {
            if let Some(one) = by_key.get_mut(key).and_then(|queue| queue.row.get_mut(&self.number)) {
                one.seen = *last;
            }
        }
        for key in &self.keys {
            let Some(queue) = by_key.get_mut(key) else { continue };
            if told && queue.turn == Some(self.number) {
                queue.give(Some(self.number));
            }
            queue.go_on();
        }
        drop(by_key);
        if !self.asleep.replace(true) {
            self.all.asleep.fetch_add(1, Relaxed);
        }
    }

    /// It cannot look for a while: others go first, until it is [about to look again](Self::again).
    pub(crate) fn step_aside(&self) {
        self.stands.set(false);
        let mut by_key = self.all.by_key.lock();
        for key in &self.keys {
            let Some(queue) = by_key.get_mut(key) else { continue };
            queue.row.remove(&self.number);
            if queue.turn == Some(self.number) {
                queue.give(Some(self.number));
            }
            queue.go_on();
            if queue.row.is_empty() {
                by_key.remove(key);
            }
        }
    }

    fn stand(&self) {
        self.stands.set(true);
        let mut by_key = self.all.by_key.lock();
        for key in &self.keys {
            let one = One { notify: self.notify.clone(), group: self.group.clone(), seen: Id::MIN };
            by_key.entry(key.clone()).or_default().row.insert(self.number, one);
        }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.step_aside();
        self.all.of_groups.fetch_sub(usize::from(self.group.is_some()), SeqCst);
        self.all.count.fetch_sub(1, SeqCst);
        if self.asleep.get() {
            self.all.asleep.fetch_sub(1, Relaxed);
        }
    }
}

/// What a reader waits for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Since {
    /// Its number among those that wait.
    pub(crate) number: Option<u64>,
    /// Of each stream the last id when it began to wait.
    pub(crate) ids: Vec<Id>,
    /// When the first of the streams expires, in milliseconds of Unix time.
    pub(crate) ends: Option<u64>,
    /// How far streams went in which there was nothing for a group: their keys, as they are in the store, and their last ids.
    pub(crate) seen: Vec<(Vec<u8>, Id)>,
}

impl Since {
    pub(crate) fn of(number: u64) -> Self {
        Self { number: Some(number), ..Self::default() }
    }

    /// Before it looks again.
    pub(crate) fn begin(&mut self) {
        self.ends = None;
        self.seen.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(all: &Readers, key: &[u8]) -> Option<u64> {
        all.by_key.lock().get(key).and_then(|queue| queue.turn)
    }

    const KEYS: [&[u8]; 3] = [b"a", b"b", b"a"];

    fn one<'r>(all: &'r Readers, group: Option<&[u8]>) -> Reading<'r> {
        all.register(KEYS.map(<[u8]>::to_vec).to_vec(), group)
    }

    #[test]
    fn a_round_comes_to_all_in_their_order() {
        let all = Readers::default();
        let (first, second, third) = (one(&all, None), one(&all, None), one(&all, None));
        first.found_nothing(false, &[]);
        assert_eq!((turn(&all, b"a"), all.len()), (None, 1), "nobody was told");
        all.wake(b"a");
        assert_eq!((turn(&all, b"a"), turn(&all, b"b")), (Some(0), None));
        // It looks, and finds nothing; what changes meanwhile makes another round.
        all.wake(b"a");
        first.found_nothing(true, &[]);
        assert_eq!(turn(&all, b"a"), Some(1));
        drop(second);
        assert_eq!(turn(&all, b"a"), Some(2));
        // A reader that has no turn gives none away.
        first.found_nothing(true, &[]);
        assert_eq!(turn(&all, b"a"), Some(2));
        third.found_nothing(true, &[]);
        assert_eq!(turn(&all, b"a"), Some(0), "another round");
        first.found_nothing(true, &[]);
        third.found_nothing(true, &[]);
        assert_eq!(turn(&all, b"a"), None);
        drop((first, third));
        assert!(!all.any() && all.len() == 0 && all.by_key.lock().is_empty());
    }

    #[test]
    fn one_that_steps_aside_keeps_its_place_and_holds_nobody_up() {
        let all = Readers::default();
        let (first, second) = (one(&all, Some(b"g")), one(&all, Some(b"g")));
        all.wake(b"");
        first.step_aside();
        assert_eq!(turn(&all, b"a"), Some(1));
        assert!(all.goes_first(b"a", second.number(), b"g", Id::MAX));
        second.found_nothing(true, &[]);
        first.again();
        all.wake(b"a");
        assert_eq!(turn(&all, b"a"), Some(0));
        drop(second);
        assert!(all.any_of_group());
        drop(first);
        assert!(all.by_key.lock().is_empty() && !all.any_of_group());
    }

    #[test]
    fn of_a_group_nobody_takes_what_another_in_front_has_not_seen() {
        let all = Readers::default();
        let [low, high] = [1, 2].map(|ms| Id { ms, seq: 0 });
        let seen = |last: Id| [(b"a".to_vec(), last)];
        let (first, other, last) = (one(&all, Some(b"g")), one(&all, Some(b"h")), one(&all, Some(b"g")));
        for reading in [&first, &other, &last] {
            reading.found_nothing(false, &seen(low));
        }
        assert!(all.goes_first(b"a", last.number(), b"g", low), "all have seen that");
        assert!(all.goes_first(b"a", other.number(), b"h", high), "no other of its group waits");
        // Its turn comes behind that one, though nothing else changes, and whether that one finds something or not.
        assert!(!all.goes_first(b"a", last.number(), b"g", high));
        last.found_nothing(false, &[]);
        assert_eq!(turn(&all, b"a"), Some(0));
        first.found_nothing(true, &seen(high));
        other.found_nothing(true, &[]);
        assert_eq!(turn(&all, b"a"), Some(2));
        assert!(all.goes_first(b"a", last.number(), b"g", high));
        last.found_nothing(true, &[]);
        let next = one(&all, Some(b"g"));
        assert!(!all.goes_first(b"a", next.number(), b"g", Id::MAX));
        drop(first);
        assert_eq!(turn(&all, b"a"), Some(1), "a round begins when one leaves, too");
    }
}
