//! Reads without a round trip, at the head and at the tail, under a lease.
//!
//! The head reads what is not in flight; that is what the last acknowledged transaction has left. The tail reads what it has executed, perhaps before the head knows that it is
//! acknowledged: then the head refuses the object, so that no later read is of an earlier state.

use super::{Reading, Replica};
use crate::failpoints::Step;
use crate::{Command, Moment, Object, ReadId, Refusal};

impl Replica {
    /// True if it would answer readers at this moment: the head, or a tail that nothing earlier can contradict, under a lease.
    #[must_use]
    pub fn answers_reads(&self, now: Moment) -> bool {
        self.holds_lease(now) && (self.is_head() || self.is_tail() && self.can_read_at_tail())
    }

    pub(super) fn read(&mut self, read: ReadId, objects: Vec<Object>) {
        let refusal = self.refuses_read(&objects);
        let Some(view) = self.serves().map(|view| view.id) else {
            self.out.push(Command::RefusedRead(read, Refusal::NotHere));
            return;
        };
        if let Some(refusal) = refusal {
            self.out.push(Command::RefusedRead(read, refusal));
            return;
        }
        self.reads.insert(read, Reading { view, at_head: self.is_head(), objects });
        self.out.push(Command::Read(read));
    }

    /// At the head this takes locks, if it does not refuse.
    fn refuses_read(&mut self, objects: &[Object]) -> Option<Refusal> {
        if !self.has_lease() {
            return Some(Refusal::NotHere);
        }
        if self.is_head() {
            return (!self.locks.read(objects)).then_some(Refusal::Pending);
        }
        if !self.is_tail() || !self.can_read_at_tail() {
            return Some(Refusal::NotHere);
        }
        // The record that waits for readers gets no new ones.
        let next = self.queue.entry(self.queue.executed() + 1);
        let barred = next.is_some_and(|entry| entry.objects.iter().any(|object| objects.contains(object)));
        (barred && !self.failpoints.skips(Step::BarReaders)).then_some(Refusal::Pending)
    }

    /// An earlier tail may have shown, or acknowledged, all that was in the queue when this one took over; and one that follows may acknowledge what is not here.
    fn can_read_at_tail(&self) -> bool {
        let executed = self.queue.executed() >= self.read_from || self.failpoints.skips(Step::ExecuteBeforeReading);
        let leases = self.leases_ended || self.failpoints.skips(Step::AwaitLeases);
        let alone = self.proposed.is_none() || self.failpoints.skips(Step::NoReadsDuringProposal);
        executed && leases && alone
    }

    /// What was read is of a moment before now, and was true then if the lease still holds.
    pub(super) fn has_read(&mut self, read: ReadId) {
        let Some(Reading { view, at_head, objects }) = self.reads.remove(&read) else { return };
        if at_head {
            self.locks.end_read(&objects);
        }
        let lease = self.has_lease() || self.failpoints.skips(Step::LeaseAfterReading);
        let same = self.serves().is_some_and(|now| now.id == view);
        let alone = at_head || self.proposed.is_none() || self.failpoints.skips(Step::NoReadsDuringProposal);
        self.out.push(if lease && same && alone {
            Command::Answer(read)
        } else {
            Command::RefusedRead(read, Refusal::NotHere)
        });
    }
}
