//! Which replicas are in the chain, and in which order.

use crate::{ReplicaId, ViewId};

/// The members, head first. The next view is installed by compare-and-swap on the id, at a service that is linearizable; a member that is taken out never comes back
/// by its id.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct View {
    /// Each view's is one more than that of the one before.
    pub id: ViewId,
    /// Head first, tail last; never empty.
    pub members: Vec<ReplicaId>,
    /// Failures that are to be tolerated: with fewer than `f + 1` members, others may join.
    pub f: u32,
    /// What is sent along the chain.
    pub mode: Mode,
}

/// What is sent along the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Mode {
    /// What a transaction has written, so that a record can be executed again: `f + 1` members tolerate `f` failures.
    Values,
}

impl View {
    /// The first member: it runs the transactions.
    #[must_use]
    pub fn head(&self) -> Option<ReplicaId> {
        self.members.first().copied()
    }

    /// The last member: what it has executed is acknowledged.
    #[must_use]
    pub fn tail(&self) -> Option<ReplicaId> {
        self.members.last().copied()
    }

    /// True of a member.
    #[must_use]
    pub fn contains(&self, id: ReplicaId) -> bool {
        self.members.contains(&id)
    }

    /// The member before this one.
    #[must_use]
    pub fn predecessor(&self, id: ReplicaId) -> Option<ReplicaId> {
        self.members.windows(2).find(|pair| pair[1] == id).map(|pair| pair[0])
    }

    /// The member behind this one.
    #[must_use]
    pub fn successor(&self, id: ReplicaId) -> Option<ReplicaId> {
        self.members.windows(2).find(|pair| pair[0] == id).map(|pair| pair[1])
    }

    /// The next view, without a member; none if it would have no members.
    #[must_use]
    pub fn without(&self, id: ReplicaId) -> Option<Self> {
        let members: Vec<ReplicaId> = self.members.iter().copied().filter(|&member| member != id).collect();
        (!members.is_empty()).then(|| self.next(members))
    }

    /// The next view, with one more tail.
    #[must_use]
    pub fn with_tail(&self, id: ReplicaId) -> Self {
        let mut members = self.members.clone();
        members.push(id);
        self.next(members)
    }

    /// True if others may join.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.members.len() <= self.f as usize
    }

    fn next(&self, members: Vec<ReplicaId>) -> Self {
        Self { id: ViewId(self.id.0 + 1), members, f: self.f, mode: self.mode }
    }
}
