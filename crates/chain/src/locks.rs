//! What has which object at the head: transactions that run, records in flight, readers.

use std::collections::BTreeMap;

use crate::failpoints::{Failpoints, Step};
use crate::{Object, TransactionId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    Runs(TransactionId),
    /// Committed, and the tail or the backup has not caught up.
    InFlight {
        n: u64,
        /// Of the transaction, if it ran in this process.
        slot: Option<u32>,
    },
}

#[derive(Debug, Default)]
struct Lock {
    readers: u32,
    writer: Option<Writer>,
}

#[derive(Debug, Default)]
struct Running {
    slot: u32,
    reads: Vec<Object>,
    writes: Vec<Object>,
}

/// One table for all: a lock goes from a transaction to its record without a moment in between.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    objects: BTreeMap<Object, Lock>,
    running: BTreeMap<TransactionId, Running>,
    in_flight: BTreeMap<u64, Vec<Object>>,
    failpoints: Failpoints,
}

impl Locks {
    pub(crate) fn new(failpoints: Failpoints) -> Self {
        Self { failpoints, ..Self::default() }
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.running.is_empty()
    }

    /// Transactions that run, without this one.
    pub(crate) fn others(&self, transaction: TransactionId) -> usize {
        self.running.len() - usize::from(self.running.contains_key(&transaction))
    }

    /// All of them or none.
    pub(crate) fn lock(&mut self, transaction: TransactionId, slot: u32, reads: &[Object], writes: &[Object]) -> bool {
        let upgrades = |object: &Object| {
            let own = self.running.get(&transaction).is_some_and(|running| running.reads.contains(object));
            u32::from(own)
        };
        let can_read = reads.iter().all(|object| self.can_read(*object, Some(transaction), Some(slot)));
        let can_write = writes.iter().all(|object| {
            let readers = self.objects.get(object).map_or(0, |lock| lock.readers);
            readers <= upgrades(object) && self.can_read(*object, Some(transaction), Some(slot))
        });
        if !can_read || !can_write {
            return false;
        }
        let running = self.running.entry(transaction).or_default();
        running.slot = slot;
        for object in reads {
            if !running.reads.contains(object)
                && !running.writes.contains(object)
                && !self.failpoints.skips(Step::DrawUnderLocks)
            {
                running.reads.push(*object);
                self.objects.entry(*object).or_default().readers += 1;
            }
        }
        for object in writes {
            if !running.writes.contains(object) {
                running.writes.push(*object);
            }
            self.objects.entry(*object).or_default().writer = Some(Writer::Runs(transaction));
        }
        true
    }

    fn can_read(&self, object: Object, transaction: Option<TransactionId>, slot: Option<u32>) -> bool {
        match self.objects.get(&object).and_then(|lock| lock.writer) {
            None => true,
            Some(Writer::Runs(other)) => Some(other) == transaction,
            Some(Writer::InFlight { slot: of, .. }) => {
                self.failpoints.skips(Step::RefuseOwnSlot) && of.is_some() && of == slot
            }
        }
    }

    /// Readers hold no number, so they need a way to give back what they have.
    pub(crate) fn read(&mut self, objects: &[Object]) -> bool {
        let clean = objects.iter().all(|object| self.can_read(*object, None, None));
        if !clean && !self.failpoints.skips(Step::CleanReads) {
            return false;
        }
        objects.iter().for_each(|object| self.objects.entry(*object).or_default().readers += 1);
        true
    }

    pub(crate) fn end_read(&mut self, objects: &[Object]) {
        for object in objects {
            if let Some(lock) = self.objects.get_mut(object) {
                lock.readers = lock.readers.saturating_sub(1);
            }
        }
        self.forget(objects);
    }

    pub(crate) fn abort(&mut self, transaction: TransactionId) {
        let Some(Running { reads, writes, .. }) = self.running.remove(&transaction) else { return };
        self.end_read(&reads);
        self.unlock(&writes, Writer::Runs(transaction));
    }

    /// What the transaction has written is in flight from now on, what it has read is free. None: it is not known.
    pub(crate) fn commit(&mut self, transaction: TransactionId, n: u64) -> Option<Vec<Object>> {
        let Running { slot, reads, writes } = self.running.remove(&transaction)?;
        self.end_read(&reads);
        self.put_in_flight(n, &writes, Some(slot));
        Some(writes)
    }

    pub(crate) fn put_in_flight(&mut self, n: u64, objects: &[Object], slot: Option<u32>) {
        for object in objects {
            self.objects.entry(*object).or_default().writer = Some(Writer::InFlight { n, slot });
        }
        self.in_flight.insert(n, objects.to_vec());
    }

    /// Of a record alone.
    pub(crate) fn release(&mut self, n: u64) {
        let Some(objects) = self.in_flight.remove(&n) else { return };
        for object in &objects {
            if let Some(lock) = self.objects.get_mut(object)
                && matches!(lock.writer, Some(Writer::InFlight { n: of, .. }) if of == n)
            {
                lock.writer = None;
            }
        }
        self.forget(&objects);
    }

    pub(crate) fn release_through(&mut self, n: u64) {
        while let Some((&first, _)) = self.in_flight.first_key_value().filter(|(first, _)| **first <= n) {
            self.release(first);
        }
    }

    fn unlock(&mut self, objects: &[Object], writer: Writer) {
        for object in objects {
            if let Some(lock) = self.objects.get_mut(object)
                && lock.writer == Some(writer)
            {
                lock.writer = None;
            }
        }
        self.forget(objects);
    }

    fn forget(&mut self, objects: &[Object]) {
        for object in objects {
            if self.objects.get(object).is_some_and(|lock| lock.readers == 0 && lock.writer.is_none()) {
                self.objects.remove(object);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: TransactionId = TransactionId(1);
    const TWO: TransactionId = TransactionId(2);
    const A: Object = Object(1);
    const B: Object = Object(2);

    #[test]
    fn a_committed_object_is_refused_to_all_until_it_is_released() {
        let mut locks = Locks::default();
        assert!(locks.lock(ONE, 0, &[B], &[A]));
        assert!(!locks.lock(TWO, 1, &[], &[B]), "it is read");
        assert!(locks.lock(TWO, 1, &[B], &[]));
        assert_eq!(locks.commit(ONE, 7), Some(vec![A]));
        assert!(!locks.lock(TWO, 1, &[A], &[]));
        assert!(!locks.lock(TransactionId(3), 0, &[], &[A]), "its own slot");
        assert!(!locks.read(&[A]));
        locks.release_through(7);
        assert!(locks.read(&[A]));
        assert!(!locks.lock(TWO, 1, &[], &[A]), "it is read");
        locks.end_read(&[A]);
        assert!(locks.lock(TWO, 1, &[], &[A, B]), "it is the only reader");
        locks.abort(TWO);
        assert!(locks.objects.is_empty() && locks.is_quiet(), "{locks:?}");
    }

    #[test]
    fn a_lock_is_of_all_objects_or_none() {
        let mut locks = Locks::default();
        assert!(locks.lock(ONE, 0, &[], &[A]));
        assert!(!locks.lock(TWO, 1, &[], &[B, A]));
        assert!(locks.lock(ONE, 0, &[], &[B]));
    }
}
