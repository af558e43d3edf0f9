//! What a transaction has at its members.

use smallvec::SmallVec;

use super::Array;
use super::part::{Extent, Part};
use super::tid::Tid;

/// What a transaction has at each member; given back if it does not commit.
pub(super) struct Parts<'a> {
    pub(super) array: &'a Array,
    pub(super) list: SmallVec<[Box<Part>; 2]>,
    /// Members on which it has placed something.
    pub(super) placed: SmallVec<[usize; 2]>,
    /// Behind the parts: it is free when they are.
    pub(super) tid: Tid<'a>,
}

/// Members, and how much there is at each.
pub(super) type Extents = SmallVec<[(usize, Extent); 2]>;

/// What there was at a member: nothing, if it is not there.
pub(super) fn at_member(extents: &Extents, member: usize) -> Extent {
    extents.iter().find(|(of, _)| *of == member).map_or_else(Extent::default, |(_, extent)| *extent)
}

impl<'a> Parts<'a> {
    pub(super) fn new(array: &'a Array, tid: Tid<'a>) -> Self {
        Self { array, list: SmallVec::new(), placed: SmallVec::new(), tid }
    }

    /// That of a member.
    pub(super) fn of(&mut self, member: usize) -> &mut Part {
        let at = self.list.iter().position(|part| part.member == member).unwrap_or_else(|| {
            self.list.push(self.array.members[member].lock().take_part(member, self.tid.number));
            self.list.len() - 1
        });
        &mut self.list[at]
    }

    pub(super) fn extents(&self) -> Extents {
        self.list.iter().map(|part| (part.member, part.extent())).collect()
    }

    /// Gives chunks back that are not filled, but one.
    pub(super) fn trim(&mut self) {
        for part in &mut self.list {
            if part.filled + 1 < part.data.len() {
                let mut state = self.array.members[part.member].lock();
                part.data.drain(part.filled + 1..).for_each(|chunk| state.log.give_back(chunk));
            }
        }
    }

    /// Only those that have pieces, in the order of members.
    pub(super) fn in_order(&mut self) -> SmallVec<[usize; 2]> {
        while let Some(at) = self.list.iter().position(|part| part.pieces.is_empty()) {
            let part = self.list.remove(at);
            self.array.members[part.member].lock().give_back(part, self.tid.number);
        }
        self.list.sort_unstable_by_key(|part| part.member);
        self.list.iter().map(|part| part.member).collect()
    }
}

impl Drop for Parts<'_> {
    fn drop(&mut self) {
        if self.array.check_process().is_err() {
            // They are the parent's.
            std::mem::forget(std::mem::take(&mut self.list));
            self.tid.keep();
        }
        for part in self.list.drain(..) {
            self.array.members[part.member].lock().give_back(part, self.tid.number);
        }
    }
}
