//! The view as it stands at etcd.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Failure;
use crate::{Mode, ReplicaId, Sizes, View, ViewId};

/// The view, and which machines are not to join by themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Text {
    id: u64,
    f: u32,
    /// Machine and incarnation.
    members: Vec<(u32, u32)>,
    /// Machines that were taken out. An earlier version forgets them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    out: Vec<u32>,
    /// Bytes of the heap and of the queue of each member: one that takes less than others would stop them. None: an earlier version has made the chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sizes: Option<(u64, u64)>,
}

impl Text {
    /// Of a new chain.
    pub(super) fn first(view: &View, sizes: Sizes) -> Self {
        Self { id: 0, f: 0, members: vec![], out: vec![], sizes: Some((sizes.capacity, sizes.queue)) }.with(view)
    }

    /// The same with another view.
    pub(super) fn with(&self, view: &View) -> Self {
        let members = view.members.iter().map(|id| (id.machine, id.incarnation)).collect();
        Self { id: view.id.0, f: view.f, members, ..self.clone() }
    }

    /// Those of each member, if they are known.
    pub(super) fn sizes(&self) -> Option<Sizes> {
        self.sizes.map(|(capacity, queue)| Sizes { capacity, queue })
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, Failure> {
        serde_json::from_slice::<Self>(bytes)?.check()
    }

    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, Failure> {
        Ok(serde_json::to_vec(self)?)
    }

    /// The same, if it can be.
    pub(super) fn check(self) -> Result<Self, Failure> {
        let machines: BTreeSet<u32> = self.members.iter().map(|(machine, _)| *machine).collect();
        if self.members.is_empty() || machines.len() < self.members.len() {
            return Err(Failure::Chain("a chain's view names no member, or one twice".into()));
        }
        Ok(self)
    }

    pub(super) fn view(&self) -> View {
        let members = self.members.iter().map(|&(machine, incarnation)| ReplicaId { machine, incarnation }).collect();
        View { id: ViewId(self.id), members, f: self.f, mode: Mode::Values }
    }

    /// Machines that do not join by themselves.
    pub(super) fn out(&self) -> &[u32] {
        &self.out
    }

    pub(super) fn is_out(&self, machine: u32) -> bool {
        self.out.contains(&machine)
    }

    /// The next one, in which a machine is no member and does not join by itself; none if there would be no member.
    pub(super) fn without(&self, machine: u32, f: u32) -> Option<Self> {
        let mut next = self.next(f);
        next.members.retain(|(member, _)| *member != machine);
        if !next.is_out(machine) {
            next.out.push(machine);
        }
        (!next.members.is_empty()).then_some(next)
    }

    /// The next one, in which a machine that is no member may join.
    pub(super) fn letting_in(&self, machine: u32) -> Self {
        let mut next = self.next(self.f.max(self.members.len() as u32));
        next.out.retain(|out| *out != machine);
        next
    }

    fn next(&self, f: u32) -> Self {
        Self { id: self.id + 1, f, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> Text {
        Text::first(&view(), Sizes { capacity: 1 << 20, queue: 1 << 21 })
    }

    fn view() -> View {
        let id = |machine| ReplicaId { machine, incarnation: machine << 16 };
        View { id: ViewId(7), members: vec![id(3), id(1)], f: 2, mode: Mode::Values }
    }

    #[test]
    fn a_view_is_read_back_and_nonsense_is_not() {
        let text = text().without(9, 2).unwrap();
        let read = Text::from_bytes(&text.to_bytes().unwrap()).unwrap();
        assert_eq!((read.view(), read.out()), (View { id: ViewId(8), ..view() }, &[9][..]));
        assert_eq!(read.sizes().map(|sizes| (sizes.capacity, sizes.queue)), Some((1 << 20, 1 << 21)));
        let earlier = r#"{"id":1,"f":1,"members":[[1,0]]}"#;
        assert!(Text::from_bytes(earlier.as_bytes()).unwrap().out().is_empty());
        for text in ["", "{}", r#"{"id":1,"f":1,"members":[]}"#, r#"{"id":1,"f":1,"members":[[1,0],[1,1]]}"#] {
            assert!(Text::from_bytes(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn whoever_is_taken_out_stays_out_until_it_is_let_in() {
        let text = text();
        let without = text.without(3, 2).unwrap();
        assert_eq!((without.view().id, without.view().members.len(), without.out()), (ViewId(8), 1, &[3][..]));
        assert!(without.view().has_room());
        assert_eq!(without.without(1, 2), None);
        let again = without.without(3, 2).unwrap();
        assert_eq!(again.out(), [3], "once");
        let back = again.letting_in(3);
        assert_eq!((back.view().id, back.out().len(), back.view().f), (ViewId(10), 0, 2));
    }

    #[test]
    fn a_full_chain_gets_room() {
        let full = text().with(&View { f: 1, ..view() });
        assert!(!full.view().has_room());
        let next = full.letting_in(4).view();
        assert!(next.has_room() && next.members == full.view().members);
    }
}
