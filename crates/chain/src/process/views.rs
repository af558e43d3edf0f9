//! Which replicas are in the chain, at etcd: the view is a register, and each member has a key with a lease.
//!
//! * *A member's lease counts only while the view has it.* The key is looked at first, and the view then: a process that takes a member out later finds the key, and waits until it
//!   is gone.
//! * *A member that was taken out gives up its key when its copy is void*, and no sooner; until then it may answer readers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use membership::{Announcement, Held, Member, Members, Register, Swapped};

use super::{Failure, Known, Text};
use crate::{Event, Moment, Node, ReplicaId, View, ViewId};

fn name(id: ReplicaId) -> String {
    format!("{}.{}", id.machine, id.incarnation)
}

/// What the thread that talks to etcd has.
pub(super) struct Views {
    pub(super) register: Register,
    pub(super) leases: Members,
    pub(super) ttl: Duration,
    pub(super) address: String,
    /// The lease of this copy, while it is a member.
    pub(super) held: Option<(ReplicaId, Announcement)>,
    /// Members whose key has been there.
    pub(super) seen: BTreeSet<ReplicaId>,
    /// Since when those are missing that have never been seen.
    pub(super) missing: BTreeMap<ReplicaId, Moment>,
    /// What was proposed, and not answered.
    pub(super) proposal: Option<View>,
    pub(super) awaited: Option<ViewId>,
    /// What was read last, for clients that ask what the chain is.
    pub(super) known: Arc<parking_lot::Mutex<Known>>,
}

impl Views {
    fn read(&self) -> Result<(Text, Held), Failure> {
        let held = self.register.read()?.ok_or_else(|| Failure::Chain("the chain is gone from etcd".into()))?;
        Ok((Text::from_bytes(&held.value)?, held))
    }

    /// One look at etcd, and what follows from it.
    pub(super) fn look(&mut self, node: &Node) -> Result<(), Failure> {
        // In this order: see the module's description.
        let until = self.held.as_ref().map(|(id, held)| (*id, held.held_until_ns()));
        let (text, held) = self.read()?;
        let view = text.view();
        // Before the replica knows the view: a machine that is out in it does not join in it.
        self.known.lock().text = Some(text);
        if let Some((id, until)) = until.filter(|(id, until)| *until > 0 && view.contains(*id)) {
            node.event(Event::Lease { id, until: Moment(until) })?;
        }
        node.event(Event::View(view.clone()))?;
        self.keep_lease(node, &view)?;
        let keys = self.keys()?;
        self.look_for_lapsed(node, &view, &keys)?;
        // A view that is older than the keys: then those it does not have are of later ones, and are waited for.
        if self.awaited == Some(view.id) && keys.iter().all(|id| view.contains(*id)) {
            self.awaited = None;
            node.event(Event::LeasesEnded(view.id))?;
        }
        self.propose(node, &held)
    }

    /// A key for this copy while it is a member; what it is now is said by the replica itself, which has taken the view.
    fn keep_lease(&mut self, node: &Node, view: &View) -> Result<(), Failure> {
        let id = node.status().id;
        let serves = view.contains(id);
        if self.held.as_ref().is_some_and(|(of, held)| *of != id || held.check().is_err() && !serves) {
            self.held = None;
        }
        if serves && self.held.is_none() {
            let announcement = self.leases.announce(&Member::new(name(id), &*self.address), self.ttl)?;
            self.held = Some((id, announcement));
        }
        Ok(())
    }

    fn keys(&self) -> Result<BTreeSet<ReplicaId>, Failure> {
        let parse = |member: Member| {
            let (machine, incarnation) = member.name.split_once('.')?;
            Some(ReplicaId { machine: machine.parse().ok()?, incarnation: incarnation.parse().ok()? })
        };
        Ok(self.leases.copies()?.into_iter().filter_map(parse).collect())
    }

    /// etcd does not answer: keys may go meanwhile, all at once, and their owners be there. So each has the time of a lease to put its key again before it counts as gone, as at the start.
    pub(super) fn lose_sight(&mut self) {
        self.seen.clear();
        self.missing.clear();
    }

    /// A member whose key is gone has no lease. One that has not had any since this process looks gets the time of a lease to come up.
    fn look_for_lapsed(&mut self, node: &Node, view: &View, keys: &BTreeSet<ReplicaId>) -> Result<(), Failure> {
        let now = crate::clock::now();
        self.seen.extend(keys);
        self.missing.retain(|id, _| !keys.contains(id) && view.contains(*id));
        let own = node.status().id;
        for &id in view.members.iter().filter(|id| **id != own && !keys.contains(id)) {
            let since = self.missing.entry(id).or_insert(now).0;
            if self.seen.contains(&id) || now.0.saturating_sub(since) > 2 * self.ttl.as_nanos() as u64 {
                node.event(Event::Lapsed(id))?;
            }
        }
        Ok(())
    }

    /// Until it is known what became of it.
    fn propose(&mut self, node: &Node, held: &Held) -> Result<(), Failure> {
        let Some(proposal) = self.proposal.clone() else { return Ok(()) };
        let base = Text::from_bytes(&held.value)?;
        let is_next = base.view().id.0 + 1 == proposal.id.0;
        // It was taken out while it asked: what is not proposed is never carried out.
        let is_out = proposal.members.iter().any(|id| base.is_out(id.machine));
        if is_next && !is_out {
            let next = base.with(&proposal).to_bytes()?;
            if self.register.swap(held.revision, next)? == Swapped::Superseded {
                return Err(Failure::Superseded);
            }
        }
        // Carried out, or based on a view that is none any more.
        let view = self.read()?.0.view();
        if view.id >= proposal.id || is_out {
            self.proposal = None;
            node.event(Event::Proposed { proposal: proposal.id, view })?;
        }
        Ok(())
    }
}
