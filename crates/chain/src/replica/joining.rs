//! A copy joins behind the tail while the chain serves.
//!
//! The tail makes an image of its heap, at one number, and sends it and all records behind it; the joiner's copy becomes whole, and says what it has. From then on the tail acknowledges nothing, so that
//! the head admits no more than [`IN_FLIGHT_MAX`](crate::IN_FLIGHT_MAX) transactions, and the joiner catches up. When it has all that was acknowledged, or shown to a reader here, the tail proposes the view that has the joiner for its tail,
//! and goes on when it knows the outcome: the new tail may be serving.
//!
//! A joiner retires nothing, so the tail takes no more records behind the image than fit into the joiner's queue. A joiner that does not get on for [`QUIET_MAX`] ticks, from its image to a whole copy or from one
//! record to the next, is refused, and the chain goes on without it.

use super::{Covers, Join, Replica, Status};
use crate::sabotage::Step;
use crate::{Body, Command, ReplicaId};

/// Ticks after which the other end is given up.
pub(super) const QUIET_MAX: u32 = 30;

impl Replica {
    // ---- the joiner -------------------------------------------------------------------------------------------

    pub(super) fn ask_to_join(&mut self) {
        let Some(tail) = self.view.as_ref().and_then(crate::View::tail) else { return };
        match self.status {
            Status::Void => self.send(tail, Body::Join),
            Status::Starting(_) => self.send(tail, Body::Restarted),
            _ => {}
        }
    }

    /// A copy that is whole is never voided before it is certain that no view names it: it would count, and be nothing.
    pub(super) fn is_refused(&mut self, from: ReplicaId) {
        let tail = self.view.as_ref().and_then(crate::View::tail);
        if matches!(self.status, Status::Starting(_) | Status::Void | Status::Joining { .. }) && tail == Some(from) {
            self.void();
        }
    }

    pub(super) fn take_snapshot(&mut self, from: ReplicaId, through: u64, image: Vec<u8>) {
        let tail = self.view.as_ref().and_then(crate::View::tail);
        if matches!(self.status, Status::Void) && tail == Some(from) {
            self.status = Status::Restoring(through);
            self.out.push(Command::Restore(image));
            self.persist(Covers::Restored(through));
        }
    }

    pub(super) fn restored(&mut self, through: u64) {
        if matches!(self.status, Status::Restoring(_)) {
            self.out.push(Command::Whole(through));
            self.persist(Covers::Whole);
        }
    }

    /// It is whole, and so may become a member at any moment from now on.
    pub(super) fn is_whole(&mut self) {
        let Status::Restoring(through) = self.status else { return };
        let Some(source) = self.view.as_ref().and_then(crate::View::tail) else { return };
        self.restart_from(through);
        self.status = Status::Joining { source };
        self.say_have();
    }

    // ---- the tail ---------------------------------------------------------------------------------------------

    pub(super) fn heard_join(&mut self, from: ReplicaId) {
        let has_room = self.serves().is_some_and(|view| view.has_room() && !view.contains(from));
        // A joiner says it at each tick until it has its image: another one would be of a later number, and the first one of no use.
        let newer = |join: &Join| join.id.machine == from.machine && join.id.incarnation < from.incarnation;
        if self.refused.get(&from.machine).is_some_and(|&refused| from.incarnation <= refused) {
            self.refuse(from);
        } else if self.is_tail() && has_room && self.proposed.is_none() && self.join.as_ref().is_none_or(newer) {
            self.join = Some(Join { id: from, snapshot: None, have: None, quiet: 0 });
            if self.sabotage.skips(Step::CountWhenComplete) {
                self.propose_joiner();
            }
        }
    }

    /// A head that is the tail, too, lets its transactions end first: what they have changed is no record's yet.
    pub(super) fn is_quiescing(&self) -> bool {
        self.join.as_ref().is_some_and(|join| join.snapshot.is_none())
    }

    pub(super) fn snapshot(&mut self) {
        if !self.is_quiescing() || !self.is_tail() {
            return;
        }
        let half = self.executing.is_some()
            || self.is_head() && (!self.locks.is_quiet() || self.queue.persistent() < self.queue.last());
        if half && !self.sabotage.skips(Step::SnapshotAtOneNumber) {
            return;
        }
        let through = self.queue.executed();
        if through > self.queue.acknowledged {
            return; // A copy takes what its image has for acknowledged, and says so upstream.
        }
        let view = self.view.as_ref().map(|view| view.id);
        if let (Some(join), Some(view)) = (&mut self.join, view) {
            join.snapshot = Some(through);
            self.sent = through;
            self.out.push(Command::ShipSnapshot { to: join.id, view, through });
        }
    }

    pub(super) fn joiner_with_snapshot(&self) -> Option<ReplicaId> {
        self.join.as_ref().filter(|join| join.snapshot.is_some()).map(|join| join.id)
    }

    /// False: nobody joins by this id.
    pub(super) fn joiner_has(&mut self, from: ReplicaId, through: u64) -> bool {
        let Some(join) = self.join.as_mut().filter(|join| join.id == from) else { return false };
        let Some(snapshot) = join.snapshot else { return false };
        if through < snapshot {
            return false; // It has one that this tail sent before it was started again: what is between the two may be gone here.
        }
        // One that never has more, since its medium hangs or nothing gets there, is as good as none.
        if join.have < Some(through) {
            (join.have, join.quiet) = (Some(through), 0);
        }
        true
    }

    pub(super) fn consider_joiner(&mut self) {
        let acknowledged = self.queue.acknowledged;
        // A tail after this one may have acknowledged, and be gone, what is not executed here yet.
        let executed = if self.sabotage.skips(Step::ShownToReaders) { 0 } else { self.queue.executed() };
        let shown = acknowledged.max(executed);
        if self.proposed.is_none() && self.join.as_ref().is_some_and(|join| join.have >= Some(shown)) {
            self.propose_joiner();
        }
    }

    fn propose_joiner(&mut self) {
        let Some(view) = self.serves() else { return };
        let (id, Some(join)) = (view.id, &self.join) else { return };
        let next = view.with_tail(join.id);
        self.proposed = Some(id);
        self.out.push(Command::Propose(next));
    }

    /// A joiner that does not get on is forgotten, and the acknowledgements go on; not while it may be the tail already.
    pub(super) fn watch_joiner(&mut self) {
        if let Some(join) = &mut self.join {
            join.quiet += 1;
            let (id, quiet) = (join.id, join.quiet);
            if quiet > QUIET_MAX {
                self.refuse(id);
            }
        }
    }

    /// It does not join in this view, whatever of it is still under way. Not while a proposal is.
    pub(super) fn refuse(&mut self, id: ReplicaId) {
        let member = self.serves().is_none_or(|view| view.contains(id));
        if member || !self.is_tail() || self.proposed.is_some() {
            return;
        }
        self.join.take_if(|join| join.id == id);
        let refused = self.refused.entry(id.machine).or_default();
        *refused = id.incarnation.max(*refused);
        self.send(id, Body::Refused);
    }
}
