//! Records downstream, acknowledgements upstream.

use super::{Covers, QUEUE_MAX, Replica, SHIP_MAX, Status};
use crate::failpoints::Step;
use crate::{Body, Command, Record, ReplicaId};

impl Replica {
    /// From the one before: what is next is written into the queue; what is there already was sent again.
    pub(super) fn take(&mut self, from: ReplicaId, records: Vec<Record>) {
        let expected = match &self.status {
            Status::Copying { source, .. } | Status::Joining { source } => Some(*source),
            _ => self.predecessor(),
        };
        let any = self.failpoints.skips(Step::RefuseOldViews) && matches!(self.status, Status::Serving);
        if expected != Some(from) && !any {
            return;
        }
        let before = self.queue.last();
        for mut record in records {
            let next = self.queue.last() + 1;
            let n = record.entry.number.n;
            if self.queue.last() >= self.last_max() {
                break;
            }
            if self.failpoints.skips(Step::TakeInOrder) {
                record.entry.number.n = next;
            } else if n < next {
                continue;
            } else if n > next {
                // Once: each answer may come twice, and be a gap again.
                if self.asked != next {
                    self.asked = next;
                    self.say_have();
                    self.say_copied();
                }
                break;
            }
            self.queue.push(record.entry.clone(), false);
            self.out.push(Command::Append(record));
        }
        if self.queue.last() > before {
            self.persist(Covers::Appended(self.queue.last()));
        }
    }

    /// The last record that there is room for: here, and at a joiner.
    fn last_max(&self) -> u64 {
        let retired = self.queue.retired();
        let there = self.join.as_ref().filter(|join| join.first.is_some()).map(|join| join.retired);
        there.map_or(retired, |there| there.min(retired)) + QUEUE_MAX as u64
    }

    pub(super) fn appended(&mut self, n: u64) {
        self.queue.set_persistent_through(n);
        match self.status {
            Status::Joining { .. } => self.say_have(),
            Status::Copying { .. } => self.say_copied(),
            _ => {}
        }
    }

    /// Before executing, and as soon as it is persistent: a hop costs a barrier, not an execution.
    pub(super) fn forward(&mut self) {
        let early = self.failpoints.skips(Step::PersistBeforeForward) && !self.is_head();
        let ready = if early { self.queue.last() } else { self.queue.persistent() };
        let (to, ready) = match (self.successor(), self.joiner_with_part()) {
            (Some(to), _) => (to, ready),
            (None, Some((to, max))) => (to, ready.min(max)),
            (None, None) => return,
        };
        while self.sent < ready {
            self.ship(to, self.sent + 1, ready);
            self.sent = ready.min(self.sent + SHIP_MAX);
        }
    }

    pub(super) fn ship(&mut self, to: ReplicaId, first: u64, last: u64) {
        if first <= self.queue.retired() {
            return; // What is retired the members behind have: this is an answer to an old message.
        }
        let again = self.failpoints.skips(Step::ForwardAgain) && self.is_head();
        let first = if again { first.max(self.read_from + 1) } else { first };
        let last = last.min(first + SHIP_MAX - 1);
        let Some(view) = self.view.as_ref().map(|view| view.id).filter(|_| first <= last) else { return };
        self.out.push(Command::Ship { to, view, first, last });
    }

    /// The one behind, or a joiner, says what it has: it gets what is missing.
    pub(super) fn heard_have(&mut self, from: ReplicaId, through: u64) {
        if !matches!(self.status, Status::Serving) {
            return;
        }
        let through = through.min(self.queue.last());
        if self.successor() == Some(from) {
            self.ship(from, through + 1, self.queue.persistent());
        } else if self.joiner_has(from, through) {
            self.ship(from, through + 1, self.queue.persistent());
            self.consider_joiner();
        } else {
            self.refuse(from);
        }
    }

    pub(super) fn say_have(&mut self) {
        let to = match self.status {
            Status::Joining { source } => Some(source),
            _ => self.predecessor(),
        };
        if let Some(to) = to {
            self.send(to, Body::Have(self.queue.persistent()));
        }
    }

    /// One record at a time, in their order. Readers of its objects end first, and no new ones begin.
    pub(super) fn execute(&mut self) {
        while self.executing.is_none() && self.queue.executed() < self.queue.persistent() {
            let n = self.queue.executed() + 1;
            let Some(entry) = self.queue.entry(n) else { return };
            if entry.objects.is_empty() {
                self.queue.set_executed(n);
                continue;
            }
            let is_read = self.reads.values().any(|read| read.objects.iter().any(|o| entry.objects.contains(o)));
            if is_read && !self.failpoints.skips(Step::BarReaders) {
                return;
            }
            self.executing = Some(n);
            self.out.push(Command::Execute(n));
        }
    }

    pub(super) fn executed(&mut self, n: u64) {
        if self.executing == Some(n) {
            self.executing = None;
            self.queue.set_executed(n);
        }
    }

    /// The tail's: what is executed here is persistent on every member.
    pub(super) fn acknowledge(&mut self) {
        if !self.is_tail() || !self.can_acknowledge() {
            return;
        }
        let executed = self.queue.executed().min(self.queue.persistent());
        let through = if self.failpoints.skips(Step::AcknowledgeExecuted) { self.queue.persistent() } else { executed };
        if through > self.queue.acknowledged {
            self.learn_acknowledged(through);
            self.tell_acknowledged();
        }
    }

    fn can_acknowledge(&self) -> bool {
        let leases = self.leases_ended || self.failpoints.skips(Step::AwaitLeases);
        let alone = self.proposed.is_none() || self.failpoints.skips(Step::HoldDuringProposal);
        let held =
            self.join.as_ref().is_some_and(|join| join.whole) && !self.failpoints.skips(Step::HoldDuringProposal);
        leases && alone && !held
    }

    fn tell_acknowledged(&mut self) {
        let through = self.queue.acknowledged;
        let head = self.serves().and_then(crate::View::head).filter(|&head| head != self.id);
        if let Some(head) = head {
            self.send(head, Body::Acknowledged(through));
        }
        if let Some((joiner, _)) = self.joiner_with_part() {
            self.send(joiner, Body::Acknowledged(through));
        }
        self.clean_up();
    }

    fn clean_up(&mut self) {
        if let Some(to) = self.predecessor() {
            self.send(to, Body::CleanUp(self.queue.acknowledged));
        }
    }

    pub(super) fn heard_acknowledged(&mut self, from: ReplicaId, through: u64) {
        let heads = self.is_head() && self.serves().and_then(crate::View::tail) == Some(from);
        if heads || matches!(self.status, Status::Copying { source, .. } if source == from) {
            self.learn_acknowledged(through);
        }
    }

    pub(super) fn heard_clean_up(&mut self, from: ReplicaId, through: u64) {
        if self.successor() == Some(from) && through > self.queue.acknowledged {
            self.learn_acknowledged(through);
            self.clean_up();
        }
    }

    fn learn_acknowledged(&mut self, through: u64) {
        // No replica can have more than was sent from here.
        let through = through.min(self.queue.persistent());
        if through <= self.queue.acknowledged {
            return;
        }
        self.queue.acknowledged = through;
        if self.is_head() {
            self.out.push(Command::Acknowledged(through));
        }
    }

    /// What may have been lost.
    pub(super) fn say_again(&mut self) {
        self.say_have();
        if !self.is_tail() {
            self.clean_up();
        } else if self.can_acknowledge() {
            self.tell_acknowledged();
        }
        if !self.leases_ended
            && let Some(view) = self.view.as_ref().map(|view| view.id)
        {
            self.out.push(Command::AwaitLeases(view));
        }
        // Idle: nothing later takes the effects along.
        let asked = self.barriers.back().map_or(0, |&(_, _, executed)| executed);
        if self.queue.executed() > self.queue.flushed.max(asked) {
            self.persist(Covers::Effects);
        }
    }

    /// An entry goes when its effects are persistent, and the tail has acknowledged it: until then the one behind may need it.
    pub(super) fn retire(&mut self) {
        let head = self.is_head();
        let persistent = if head { self.applied } else { self.queue.flushed };
        let mut through = self.queue.executed();
        if !self.failpoints.skips(if head { Step::LockUntilApplied } else { Step::RetirePersistent }) {
            through = through.min(persistent);
        }
        let unacknowledged = if head { Step::LockUntilAcknowledged } else { Step::RetireAcknowledged };
        if !self.failpoints.skips(unacknowledged) {
            through = through.min(self.queue.acknowledged);
        }
        if let Some(join) = self.join.as_ref().filter(|_| !self.failpoints.skips(Step::KeepForJoiner)) {
            through = through.min(join.first.map_or(0, |_| join.records));
        }
        if through <= self.retiring {
            return;
        }
        self.retiring = through;
        self.out.push(Command::Retire(through));
        if head {
            // A lock goes when recovery no longer looks at the record: the next transaction changes what its checksum is over.
            self.persist(Covers::Retired(through));
        } else {
            self.queue.retire(through);
        }
    }

    pub(super) fn retired(&mut self, through: u64) {
        self.queue.retire(through);
        self.locks.release_through(through);
    }
}
