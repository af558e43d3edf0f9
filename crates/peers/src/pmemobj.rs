//! libpmemobj, behind safe handles: the holder of one holds what it may touch.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::Result;
use crate::raw::pmemobj::{Handle, List, Map, Objects};

/// Lists in one pool.
pub const LISTS_MAX: usize = 64;
/// Longest key of a [`tree`](Pmemobj::tree).
pub const KEY_MAX: usize = 64;

/// An open pool. Clones share it; the last one closes it.
#[derive(Clone)]
pub struct Pmemobj {
    handle: Arc<Handle>,
    lists: Arc<AtomicUsize>,
}

impl Pmemobj {
    /// A new pool of a fixed size.
    ///
    /// # Errors
    /// The library's: no space, a file that is there.
    pub fn create(path: &Path, bytes: usize) -> Result<Self> {
        Ok(Self::of(Handle::create(path, bytes)?))
    }

    /// An existing pool; the library recovers it.
    ///
    /// # Errors
    /// The library's: no such file, not a pool, in use.
    pub fn open(path: &Path) -> Result<Self> {
        Ok(Self::of(Handle::open(path)?))
    }

    fn of(handle: Arc<Handle>) -> Self {
        Self { handle, lists: Arc::default() }
    }

    /// True if the library flushes cache lines here; else it calls `msync`, see [`FORCE`](crate::FORCE).
    #[must_use]
    pub fn flushes(&self) -> bool {
        self.handle.flushes()
    }

    /// `count` new objects of `bytes` zeros each.
    ///
    /// # Errors
    /// No space.
    pub fn objects(&self, count: usize, bytes: usize) -> Result<Objects> {
        Objects::make(&self.handle, count, bytes)
    }

    /// A list of its own: no other caller gets the same; `None` after [`LISTS_MAX`].
    #[must_use]
    pub fn list(&self) -> Option<List> {
        let index = self.lists.fetch_add(1, Relaxed);
        (index < LISTS_MAX).then(|| List::claimed(&self.handle, index))
    }

    /// The pool's hash map, made with at least that many buckets.
    ///
    /// # Errors
    /// No space; there is one already.
    pub fn hash(&self, buckets: u64) -> Result<Map> {
        Map::make_hash(&self.handle, buckets.next_power_of_two())
    }

    /// The pool's hash map, made before.
    ///
    /// # Errors
    /// There is none.
    pub fn opened_hash(&self) -> Result<Map> {
        Map::opened_hash(&self.handle)
    }

    /// The pool's tree, made before.
    ///
    /// # Errors
    /// There is none.
    pub fn opened_tree(&self) -> Result<Map> {
        Map::opened_tree(&self.handle)
    }

    /// The pool's tree, made for keys of that length, at most [`KEY_MAX`].
    ///
    /// # Errors
    /// No space; there is one already; longer keys.
    pub fn tree(&self, key_bytes: usize) -> Result<Map> {
        Map::make_tree(&self.handle, key_bytes)
    }
}

#[cfg(test)]
mod tests;
