//! A copy joins behind the tail while the chain serves.
//!
//! The joiner asks for its image part by part, and gets all records behind the first one meanwhile. A part is of one number: the tail makes it between two records. So the joiner has parts of different numbers,
//! and records that were carried out before the parts came that they change. A record is values, so that is right in the end, by two rules:
//!
//! * a part is taken only if nothing behind its number is executed at the joiner: it would be gone;
//! * the image is whole when everything through the last part's number is executed: what a later part shows, an earlier one has then, too.
//!
//! Meanwhile the joiner retires what is acknowledged, as a member does, and the tail acknowledges. When the copy is whole, and persistently so, it says what it has. From then on the tail acknowledges nothing, so that
//! the head admits no more than [`IN_FLIGHT_MAX`](crate::IN_FLIGHT_MAX) transactions, and the joiner catches up. When it has all that was acknowledged, or shown to a reader here, the tail proposes the view that has the joiner for its tail,
//! and goes on when it knows the outcome: the new tail may be serving.
//!
//! The tail takes no more records than fit into the joiner's queue. A joiner that does not get on for [`QUIET_MAX`] ticks, from one part or record to the next, is refused, and the chain goes on without it.

use super::{Covers, Join, Replica, Status};
use crate::failpoints::Step;
use crate::{Body, Command, ReplicaId};

/// Ticks after which the other end is given up.
pub(super) const QUIET_MAX: u32 = 30;
/// Ticks after which a part is taken for lost.
const AGAIN: u32 = 8;

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
        if matches!(self.status, Status::Starting(_) | Status::Void | Status::Copying { .. } | Status::Joining { .. })
            && tail == Some(from)
        {
            self.void();
        }
    }

    pub(super) fn take_part(&mut self, from: ReplicaId, (part, last): (u32, bool), through: u64, image: Vec<u8>) {
        let tail = self.view.as_ref().and_then(crate::View::tail);
        match self.status {
            Status::Void if tail == Some(from) && part == 0 => {
                self.restart_from(through);
                self.status = Status::Copying { source: from, parts: 0, all: false, needed: through };
            }
            Status::Copying { source, parts, all: false, .. } if source == from && parts == part => {}
            _ => return,
        }
        let executed = self.executing.unwrap_or(self.queue.executed());
        if executed > through && !self.failpoints.skips(Step::PartBeforeRecords) {
            return self.say_copied(); // It was late: there is a newer one.
        }
        let Status::Copying { parts, all, needed, .. } = &mut self.status else { return };
        (*parts, *all, *needed) = (*parts + 1, last, through.max(*needed));
        // The tail sends what is acknowledged alone.
        self.queue.acknowledged = self.queue.acknowledged.max(through);
        self.out.push(Command::Restore(image));
        self.say_copied();
    }

    pub(super) fn say_copied(&mut self) {
        if let Status::Copying { source, parts, all, .. } = self.status {
            let part = (!all).then_some(parts);
            let (through, retired) = (self.queue.persistent(), self.queue.retired());
            self.send(source, Body::Copied { part, through, retired });
        }
    }

    pub(super) fn advance_copy(&mut self) {
        self.execute();
        self.retire();
        let Status::Copying { source, all: true, needed, .. } = self.status else { return };
        let there = self.executing.is_none() && self.queue.executed() >= needed;
        if there || self.failpoints.skips(Step::WholeBehindParts) {
            self.status = Status::Restoring { source };
            self.persist(Covers::Restored);
        }
    }

    pub(super) fn restored(&mut self) {
        if matches!(self.status, Status::Restoring { .. }) {
            self.out.push(Command::Whole(self.queue.retired()));
            self.persist(Covers::Whole);
        }
    }

    /// It is whole, and so may become a member at any moment from now on.
    pub(super) fn is_whole(&mut self) {
        let Status::Restoring { source } = self.status else { return };
        self.status = Status::Joining { source };
        self.say_have();
    }

    // ---- the tail ---------------------------------------------------------------------------------------------

    pub(super) fn heard_join(&mut self, from: ReplicaId) {
        let has_room = self.serves().is_some_and(|view| view.has_room() && !view.contains(from));
        // A joiner says it at each tick until it has a part: another one would be of a later number, and the first one of no use.
        let newer = |join: &Join| join.id.machine == from.machine && join.id.incarnation < from.incarnation;
        if self.refused.get(&from.machine).is_some_and(|&refused| from.incarnation <= refused) {
            self.refuse(from);
        } else if self.is_tail() && has_room && self.proposed.is_none() && self.join.as_ref().is_none_or(newer) {
            self.join = Some(Join {
                id: from,
                first: None,
                whole: false,
                records: 0,
                retired: 0,
                wanted: Some(0),
                parts: 0,
                sent: (0, 0),
                quiet: 0,
            });
            if self.failpoints.skips(Step::CountWhenComplete) {
                self.propose_joiner();
            }
        }
    }

    /// A head that is the tail, too, lets its transactions end first: what they have changed is no record's yet.
    pub(super) fn is_quiescing(&self) -> bool {
        self.join.as_ref().is_some_and(|join| join.wanted.is_some())
    }

    pub(super) fn ship_part(&mut self) {
        if !self.is_quiescing() || !self.is_tail() {
            return;
        }
        let half = self.executing.is_some()
            || self.is_head() && (!self.locks.is_quiet() || self.queue.persistent() < self.queue.last());
        if half && !self.failpoints.skips(Step::PartAtOneNumber) {
            return;
        }
        let through = self.queue.executed();
        if through > self.queue.acknowledged {
            return; // A copy takes what its image has for acknowledged, and says so upstream.
        }
        let view = self.view.as_ref().map(|view| view.id);
        let (Some(join), Some(view)) = (&mut self.join, view) else { return };
        let Some(part) = join.wanted.take() else { return };
        if join.first.is_none() {
            (join.first, join.records, join.retired) = (Some(through), through, through);
            self.sent = through;
        }
        join.sent = (part, 0);
        self.out.push(Command::ShipPart { to: join.id, view, part, through });
    }

    /// The replica that joins and gets records, and the last of them: while it gets parts, none that may be behind the next part's number.
    pub(super) fn joiner_with_part(&self) -> Option<(ReplicaId, u64)> {
        let join = self.join.as_ref().filter(|join| join.first.is_some())?;
        Some((join.id, if join.whole { u64::MAX } else { self.queue.executed() }))
    }

    pub(super) fn heard_copied(&mut self, from: ReplicaId, part: Option<u32>, through: u64, retired: u64) {
        if !matches!(self.status, Status::Serving) {
            return;
        }
        let through = through.min(self.queue.last());
        let Some(join) = self.join.as_mut().filter(|join| join.id == from) else { return self.refuse(from) };
        let Some(first) = join.first.filter(|_| !join.whole) else { return };
        if through < first {
            return self.refuse(from); // It began with another one, that this tail sent before it was started again.
        }
        let parts = part.unwrap_or(u32::MAX);
        let says_again = through == join.records;
        if through > join.records || parts > join.parts {
            join.quiet = 0;
        }
        (join.records, join.parts) = (through.max(join.records), parts.max(join.parts));
        join.retired = retired.min(through).max(join.retired);
        let (sent, ago) = join.sent;
        if part.is_some_and(|part| part > sent || part == sent && ago > AGAIN) {
            join.wanted = part;
        }
        if says_again {
            self.ship(from, through + 1, self.queue.executed().min(self.queue.persistent()));
        }
    }

    /// False: no replica joins by this id.
    pub(super) fn joiner_has(&mut self, from: ReplicaId, through: u64) -> bool {
        let Some(join) = self.join.as_mut().filter(|join| join.id == from) else { return false };
        let Some(first) = join.first else { return false };
        if through < first {
            return false; // As above: what is between the two may be gone here.
        }
        // One that never has more, since its medium hangs or nothing gets there, is as good as none.
        if !join.whole || join.records < through {
            join.quiet = 0;
        }
        (join.whole, join.wanted, join.records) = (true, None, through.max(join.records));
        true
    }

    pub(super) fn consider_joiner(&mut self) {
        let acknowledged = self.queue.acknowledged;
        // A tail after this one may have acknowledged, and be gone, what is not executed here yet.
        let executed = if self.failpoints.skips(Step::ShownToReaders) { 0 } else { self.queue.executed() };
        let shown = acknowledged.max(executed);
        if self.proposed.is_none() && self.join.as_ref().is_some_and(|join| join.whole && join.records >= shown) {
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
            join.sent.1 += 1;
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
