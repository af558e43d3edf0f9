//! What the state machine knows of the persistent queue: entries that are not retired, and how far each is.

use std::collections::VecDeque;

use crate::{Entry, Number};

#[derive(Debug)]
struct Slot {
    entry: Entry,
    persistent: bool,
    executed: bool,
}

/// Entries `retired + 1` to `last`, without a gap. Each mark says through which number something is so of all of them, and never goes back.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    retired: u64,
    slots: VecDeque<Slot>,
    persistent: u64,
    executed: u64,
    /// Effects are persistent.
    pub(crate) flushed: u64,
    /// The tail has said so.
    pub(crate) acknowledged: u64,
}

impl Queue {
    /// An empty queue of a heap that has the effects of all records through here, persistently.
    pub(crate) fn new(retired: u64) -> Self {
        let slots = VecDeque::new();
        Self { retired, slots, persistent: retired, executed: retired, flushed: retired, acknowledged: retired }
    }

    pub(crate) fn retired(&self) -> u64 {
        self.retired
    }

    pub(crate) fn last(&self) -> u64 {
        self.retired + self.slots.len() as u64
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn persistent(&self) -> u64 {
        self.persistent
    }

    pub(crate) fn executed(&self) -> u64 {
        self.executed
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.slots.iter().map(|slot| &slot.entry)
    }

    pub(crate) fn entry(&self, n: u64) -> Option<&Entry> {
        self.slot(n).map(|slot| &slot.entry)
    }

    fn slot(&self, n: u64) -> Option<&Slot> {
        let at = n.checked_sub(self.retired + 1)?;
        self.slots.get(at as usize)
    }

    fn slot_mut(&mut self, n: u64) -> Option<&mut Slot> {
        let at = n.checked_sub(self.retired + 1)?;
        self.slots.get_mut(at as usize)
    }

    pub(crate) fn push(&mut self, entry: Entry, executed: bool) {
        assert_eq!(entry.number.n, self.last() + 1, "the queue has no gaps");
        self.slots.push_back(Slot { entry, persistent: false, executed });
        self.advance();
    }

    /// The number was lost: it stands for nothing, and is not persistent yet.
    pub(crate) fn make_skip(&mut self, n: u64) -> Option<Number> {
        let slot = self.slot_mut(n)?;
        slot.entry.objects.clear();
        Some(slot.entry.number)
    }

    pub(crate) fn set_persistent(&mut self, n: u64) {
        if let Some(slot) = self.slot_mut(n) {
            slot.persistent = true;
        }
        self.advance();
    }

    /// All that is there, through this one.
    pub(crate) fn set_persistent_through(&mut self, n: u64) {
        let last = n.min(self.last());
        for n in self.persistent + 1..=last {
            if let Some(slot) = self.slot_mut(n) {
                slot.persistent = true;
            }
        }
        self.advance();
    }

    pub(crate) fn set_executed(&mut self, n: u64) {
        if let Some(slot) = self.slot_mut(n) {
            slot.executed = true;
        }
        self.advance();
    }

    fn advance(&mut self) {
        while self.slot(self.persistent + 1).is_some_and(|slot| slot.persistent) {
            self.persistent += 1;
        }
        while self.slot(self.executed + 1).is_some_and(|slot| slot.executed) {
            self.executed += 1;
        }
    }

    /// They count no more.
    pub(crate) fn retire(&mut self, through: u64) {
        while self.retired < through.min(self.persistent).min(self.executed) {
            self.slots.pop_front();
            self.retired += 1;
        }
        self.acknowledged = self.acknowledged.max(self.retired);
        self.flushed = self.flushed.max(self.retired);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Object, ViewId};

    fn entry(n: u64) -> Entry {
        Entry { number: Number { view: ViewId(1), n }, objects: vec![Object(n)] }
    }

    #[test]
    fn a_mark_stops_at_the_first_that_is_not_so() {
        let mut queue = Queue::new(4);
        (5..=7).for_each(|n| queue.push(entry(n), false));
        queue.set_persistent(6);
        queue.set_executed(5);
        assert_eq!((queue.persistent(), queue.executed(), queue.last()), (4, 5, 7));
        queue.set_persistent(5);
        assert_eq!(queue.persistent(), 6);
        queue.set_persistent_through(99);
        assert_eq!(queue.persistent(), 7);
    }

    #[test]
    fn nothing_is_retired_that_was_not_executed() {
        let mut queue = Queue::new(0);
        (1..=3).for_each(|n| queue.push(entry(n), n < 3));
        queue.set_persistent_through(3);
        queue.retire(3);
        assert_eq!((queue.retired(), queue.last(), queue.acknowledged), (2, 3, 2));
        assert_eq!(queue.entry(2), None);
        assert_eq!(queue.entry(3), Some(&entry(3)));
    }
}
