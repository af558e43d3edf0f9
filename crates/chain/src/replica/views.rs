//! Views: which replica is what from now on.

use super::{Covers, Replica, Status};
use crate::failpoints::Step;
use crate::{Command, ReplicaId, View};

impl Replica {
    /// A view that is new here. A replica that is not in it has nothing that counts.
    pub(super) fn seen(&mut self, view: View) {
        if self.view.as_ref().is_some_and(|known| known.id >= view.id) {
            return;
        }
        let member = view.contains(self.id);
        let was_head = self.is_head();
        self.view = Some(view);
        match self.status {
            Status::Starting(_) if member => self.recover(),
            Status::Serving | Status::Joining { .. } if member => self.install(was_head),
            // Installed when it is recovered.
            Status::Recovering if member => {}
            // No view that is based on an earlier one can be installed any more.
            Status::Joining { .. } | Status::Recovering | Status::Serving => self.void(),
            // The tail, if it is the same, has forgotten it.
            Status::Copying { .. } | Status::Restoring { .. } if !member => self.void(),
            // It was removed; or it joins, and a proposal that names it is under way: the tail knows.
            Status::Starting(_) => self.ask_to_join(),
            Status::Voiding | Status::Void | Status::Copying { .. } | Status::Restoring { .. } => {}
        }
    }

    /// From now on it is what the view says.
    pub(super) fn install(&mut self, was_head: bool) {
        let Some(view) = self.view.as_ref() else { return };
        let (id, is_head) = (view.id, view.head() == Some(self.id));
        self.status = Status::Serving;
        self.leases_ended = false;
        self.proposed = None;
        self.join = None;
        self.refused.clear();
        self.read_from = self.queue.last();
        // The replica that is behind now says what it has; what it has not got is sent then.
        self.sent = self.queue.persistent();
        if is_head && !was_head {
            self.rebuild_locks();
        }
        self.out.push(Command::AwaitLeases(id));
        self.say_have();
    }

    /// A member's lease has ended: it is taken out. Any members that are left have all that was acknowledged.
    pub(super) fn lapsed(&mut self, id: ReplicaId) {
        if id == self.id || self.proposed.is_some() {
            return;
        }
        let next = self.serves().filter(|view| view.contains(id)).and_then(|view| view.without(id));
        if let Some(next) = next {
            self.out.push(Command::Propose(next));
        }
    }

    /// The copy is nothing from now on. The note is persistent, under another id, before anything is erased: a half that was taken for a whole copy would count.
    pub(super) fn void(&mut self) {
        let incarnation = self.id.incarnation + u32::from(!self.failpoints.skips(Step::NewIncarnation));
        self.id = ReplicaId { incarnation, ..self.id };
        self.forget_everything();
        self.lease = crate::Moment(0);
        self.status = Status::Voiding;
        self.out.push(Command::Void(self.id));
        if self.failpoints.skips(Step::VoidFirst) {
            self.erase();
        } else {
            self.persist(Covers::VoidNote);
        }
    }

    pub(super) fn erase(&mut self) {
        self.status = Status::Voiding;
        self.out.push(Command::Erase);
        self.persist(Covers::Erased);
    }
}
