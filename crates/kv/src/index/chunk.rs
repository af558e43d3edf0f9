//! The two levels above the leaves. Immutable.

use std::sync::Arc;

use crate::index::fences::Fences;
use crate::index::{Spot, Stretch};
use crate::raw::Published;

/// Leaves under a chunk: as many as a node of the checkpoint has room for.
pub(crate) const CHUNK_MAX: usize = 128;

pub(crate) struct Root {
    pub(super) fences: Fences,
    pub(crate) chunks: Vec<Arc<Published<Chunk>>>,
}

impl Root {
    pub(crate) fn new<'a>(chunks: Vec<Arc<Published<Chunk>>>, fences: impl Iterator<Item = &'a [u8]>) -> Self {
        Self { fences: Fences::new(fences), chunks }
    }
}

pub(crate) struct Chunk {
    pub(super) fences: Fences,
    pub(super) spots: Box<[Spot]>,
    /// The first key that is not its own.
    pub(crate) end: Option<Box<[u8]>>,
}

impl Chunk {
    pub(crate) fn new<'a>(
        fences: impl Iterator<Item = &'a [u8]>,
        spots: impl Iterator<Item = Spot>,
        end: Option<Box<[u8]>>,
    ) -> Self {
        Self { fences: Fences::new(fences), spots: spots.collect(), end }
    }

    pub(super) fn first(leaf: u32) -> Self {
        Self::new([&[][..]].into_iter(), [Spot { leaf, layout: 0 }].into_iter(), None)
    }

    #[inline]
    pub(super) fn stretch(&self, at: usize) -> Stretch<'_> {
        let to = if at + 1 < self.fences.len() { Some(self.fences.get(at + 1)) } else { self.end.as_deref() };
        Stretch { spot: self.spots[at], from: self.fences.get(at), to, chunk: self, at }
    }

    pub(crate) fn stretches(&self) -> impl Iterator<Item = Stretch<'_>> {
        (0..self.spots.len()).map(|at| self.stretch(at))
    }

    pub(super) fn memory(&self) -> i64 {
        (self.fences.memory() + self.spots.len() * size_of::<Spot>()) as i64
    }
}
