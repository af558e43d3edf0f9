//! Who is in the chain, at etcd: the view is a register, and each member has a key with a lease.
//!
//! * *A member's lease counts only while the view has it.* The key is looked at first, and the view then: whoever takes a member out later finds the key, and waits until it is gone.
//! * *A member that was taken out gives up its key when its copy is void*, and no sooner; until then it may answer readers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use membership::{Announcement, Held, Member, Members, Register, Swapped};
use serde::{Deserialize, Serialize};

use super::Failure;
use crate::{Event, Mode, Moment, Node, ReplicaId, View, ViewId};

/// A view as it stands at etcd.
#[derive(Debug, Serialize, Deserialize)]
struct Text {
    id: u64,
    f: u32,
    /// Machine and incarnation.
    members: Vec<(u32, u32)>,
}

pub(super) fn to_bytes(view: &View) -> Result<Vec<u8>, Failure> {
    let members = view.members.iter().map(|id| (id.machine, id.incarnation)).collect();
    Ok(serde_json::to_vec(&Text { id: view.id.0, f: view.f, members })?)
}

pub(super) fn from_bytes(bytes: &[u8]) -> Result<View, Failure> {
    let Text { id, f, members } = serde_json::from_slice(bytes)?;
    let members: Vec<ReplicaId> =
        members.into_iter().map(|(machine, incarnation)| ReplicaId { machine, incarnation }).collect();
    let machines: BTreeSet<u32> = members.iter().map(|id| id.machine).collect();
    if members.is_empty() || machines.len() < members.len() {
        return Err(Failure::Chain("the view at etcd names no member, or one twice".into()));
    }
    Ok(View { id: ViewId(id), members, f, mode: Mode::Values })
}

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
    /// What was read last, for who asks what the chain is.
    pub(super) known: Arc<parking_lot::Mutex<Option<View>>>,
}

impl Views {
    fn read(&self) -> Result<(View, Held), Failure> {
        let held = self.register.read()?.ok_or_else(|| Failure::Chain("the chain is gone from etcd".into()))?;
        Ok((from_bytes(&held.value)?, held))
    }

    /// One look at etcd, and what follows from it.
    pub(super) fn look(&mut self, node: &Node) -> Result<(), Failure> {
        // In this order: see the module's description.
        let until = self.held.as_ref().map(|(id, held)| (*id, held.held_until_ns()));
        let (view, held) = self.read()?;
        *self.known.lock() = Some(view.clone());
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
        let is_next = from_bytes(&held.value)?.id.0 + 1 == proposal.id.0;
        if is_next && self.register.swap(held.revision, to_bytes(&proposal)?)? == Swapped::Superseded {
            return Err(Failure::Superseded);
        }
        // Carried out, or based on a view that is none any more.
        let (view, _) = self.read()?;
        if view.id >= proposal.id {
            self.proposal = None;
            node.event(Event::Proposed { proposal: proposal.id, view })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_read_back_and_nonsense_is_not() {
        let id = |machine| ReplicaId { machine, incarnation: machine << 16 };
        let view = View { id: ViewId(7), members: vec![id(3), id(1)], f: 2, mode: Mode::Values };
        assert_eq!(from_bytes(&to_bytes(&view).unwrap()).unwrap(), view);
        for text in ["", "{}", r#"{"id":1,"f":1,"members":[]}"#, r#"{"id":1,"f":1,"members":[[1,0],[1,1]]}"#] {
            assert!(from_bytes(text.as_bytes()).is_err(), "{text}");
        }
    }
}
