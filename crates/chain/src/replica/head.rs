//! What only the head does: admit transactions, number them, apply them.

use super::{Covers, IN_FLIGHT_MAX, Replica};
use crate::failpoints::Step;
use crate::{Command, Entry, Number, Object, Record, Refusal, TransactionId};

impl Replica {
    pub(super) fn lock(&mut self, transaction: TransactionId, slot: u32, reads: &[Object], writes: &[Object]) {
        let refusal = if !self.is_head() || !self.has_lease() {
            Some(Refusal::NotHere)
        } else if self.queue.len() + self.locks.others(transaction) >= IN_FLIGHT_MAX {
            Some(Refusal::Full)
        } else if self.is_quiescing() || !self.locks.lock(transaction, slot, reads, writes) {
            Some(Refusal::Pending)
        } else {
            None
        };
        self.out.push(match refusal {
            Some(refusal) => Command::Refused(transaction, refusal),
            None => Command::Locked(transaction),
        });
    }

    /// The order of numbers is an order in which the transactions could have run one after the other: each is drawn while its transaction has all its locks.
    pub(super) fn commit(&mut self, transaction: TransactionId) {
        let view = self.serves().filter(|_| self.is_head()).map(|view| view.id);
        let n = self.queue.last() + 1;
        // Without a view, or locks: locked by a head that was removed, and the copy is void.
        let Some((view, objects)) = view.and_then(|view| Some((view, self.locks.commit(transaction, n)?))) else {
            self.out.push(Command::Refused(transaction, Refusal::NotHere));
            return;
        };
        let number = Number { view, n };
        let entry = Entry { number, objects };
        self.queue.push(entry.clone(), true);
        self.out.push(Command::Commit(transaction, entry));
    }

    /// The number is drawn, and others may have later ones: it is filled.
    pub(super) fn commit_failed(&mut self, n: u64) {
        if self.failpoints.skips(Step::EmitSkip) {
            return;
        }
        if let Some(number) = self.queue.make_skip(n) {
            self.locks.release(n);
            self.out.push(Command::Append(Record { entry: Entry::skip(number), bytes: Vec::new() }));
            self.persist(Covers::Skip(n));
        }
    }

    /// The backup follows, whether or not the tail has acknowledged; the lock goes when both have.
    pub(super) fn apply(&mut self) {
        let through = self.queue.executed().min(self.queue.persistent());
        if self.is_head() && through > self.applying {
            self.applying = through;
            self.out.push(Command::Apply(through));
            self.persist(Covers::Applied(through));
        }
    }

    /// All that is in the queue is in flight: a member behind may have it or not.
    pub(super) fn rebuild_locks(&mut self) {
        self.applying = self.queue.retired();
        self.applied = self.queue.retired();
        if self.failpoints.skips(Step::RebuildLocks) {
            return;
        }
        let entries: Vec<Entry> = self.queue.entries().cloned().collect();
        entries.iter().for_each(|entry| self.locks.put_in_flight(entry.number.n, &entry.objects, None));
    }
}
