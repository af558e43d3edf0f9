//! What a publication does, and how its record says it.

use super::reserved::Reserved;
use crate::Persist;
use crate::alloc::Intent;
use crate::error::{Error, Result};
use crate::persist::{bytes_of, from_bytes};
use crate::ptr::PPtr;

/// One step of a publication.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # use pmem::{Action, Objects, ObjectsOptions, PPtr};
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
/// # let objects = Objects::create(&pool, ObjectsOptions { heap_bytes: 256 << 10, ..ObjectsOptions::default() })?;
/// let node = objects.reserve_value(&[1u64, 2])?;
/// let ptr: PPtr<[u64; 2]> = node.ptr();
/// let mut session = objects.lock();
/// session.publish(&mut [Action::Alloc(node), Action::root(ptr)])?;
/// session.publish(&mut [Action::Set(ptr.cast(), 5)])?; // the first word
/// assert_eq!(session.get(ptr)?, &[5, 2]);
/// session.publish(&mut [Action::Free(ptr.cast()), Action::root(PPtr::<[u64; 2]>::NULL)])?;
/// assert!(session.get(ptr).is_err());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub enum Action<'a> {
    /// The reserved block becomes live, with its present contents.
    Alloc(Reserved<'a>),
    /// The block becomes free.
    Free(PPtr<()>),
    /// The word, inside a published block, gets this value.
    Set(PPtr<u64>, u64),
    /// The root becomes this object, whose type has this layout hash; see [`Action::root`].
    Root(PPtr<()>, u64),
}

impl Action<'_> {
    /// The root becomes the object at `ptr`.
    pub fn root<T: Persist>(ptr: PPtr<T>) -> Self {
        Self::Root(ptr.cast(), const { T::LAYOUT.hash })
    }
}

/// An action as logged.
#[repr(C)]
#[derive(Clone, Copy, Persist)]
pub(super) struct Logged {
    pub(super) kind: u64,
    pub(super) a: u64,
    pub(super) b: u64,
    pub(super) c: u64,
}

pub(super) const ALLOC: u64 = 1;
pub(super) const FREE: u64 = 2;
pub(super) const SET: u64 = 3;
pub(super) const ROOT: u64 = 4;

pub(super) fn decode(payload: &[u8], offset: u64) -> Result<Vec<Logged>> {
    let size = size_of::<Logged>();
    let damaged = Error::Damaged {
        what: "publication length",
        offset,
        found: payload.len() as u64,
        expected: payload.len().next_multiple_of(size) as u64,
    };
    if !payload.len().is_multiple_of(size) {
        return Err(damaged);
    }
    Ok(payload.chunks_exact(size).filter_map(from_bytes::<Logged>).collect())
}

pub(super) fn logged(kind: u64, intent: &Intent, len: u64) -> Logged {
    let bytes = bytes_of(intent);
    let word = |at: usize| from_bytes::<u64>(&bytes[at..at + 8]).unwrap_or(0);
    Logged { kind, a: word(0), b: word(8), c: len }
}

pub(super) fn logged_intent(action: &Logged) -> Result<Intent> {
    let intent = from_bytes::<Intent>(&bytes_of(action)[8..24]);
    match intent {
        Some(intent) if intent.is_alloc() == (action.kind == ALLOC) => Ok(intent),
        _ => Err(Error::Damaged { what: "logged intent", offset: action.a, found: action.kind, expected: ALLOC }),
    }
}
