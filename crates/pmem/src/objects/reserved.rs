//! A block between its allocation and its publication.

use super::Objects;
use crate::alloc::Block;
use crate::error::{Error, Result};
use crate::ptr::PPtr;

/// A block taken from the heap and not yet published: the caller's alone. Dropping it gives it back; forgetting it keeps it from others until
/// the next open, and makes [`Objects::close`] say so.
///
/// ```
/// # fn main() -> pmem::Result<()> {
/// # use pmem::{Action, Objects, ObjectsOptions, PPtr};
/// # let dir = tempfile::tempdir().unwrap();
/// # let pool = pmem::Options::new().size(1 << 20).create(dir.path().join("p"))?;
/// # let objects = Objects::create(&pool, ObjectsOptions { heap_bytes: 256 << 10, ..ObjectsOptions::default() })?;
/// let mut text = objects.reserve(5, 1)?;
/// text.bytes_mut()?.copy_from_slice(b"hello");
/// let ptr = text.ptr::<u8>();
/// assert!(objects.lock().bytes(ptr, 5).is_err()); // not published
/// drop(text); // given back
/// # Ok(()) }
/// ```
pub struct Reserved<'a> {
    pub(super) objects: &'a Objects,
    /// None once it is published.
    pub(super) block: Option<Block>,
    pub(super) len: u64,
}

impl Reserved<'_> {
    pub(super) fn block(&self) -> Result<&Block> {
        self.block.as_ref().ok_or(Error::BadPointer { ptr: 0, why: "published already" })
    }

    /// The pointer to it, for links from other objects.
    pub fn ptr<T: ?Sized>(&self) -> PPtr<T> {
        self.block.map_or(PPtr::NULL, |b| b.ptr(&self.objects.pool))
    }

    /// Its bytes, to be filled: as many as were asked for.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        let base = self.objects.mapping().access(self.block()?.offset(), self.len, true)?;
        // SAFETY: in bounds. The block is reserved by this value alone, which `&mut self` borrows; a session hands out published
        // blocks only, and this one is not until the reservation is consumed.
        Ok(unsafe { std::slice::from_raw_parts_mut(base.as_ptr(), self.len as usize) })
    }
}

impl std::fmt::Debug for Reserved<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reserved({:?}, {} bytes)", self.ptr::<()>(), self.len)
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            // Cannot fail for a block that is reserved; if it did, the block would stay taken until the next open.
            let _ = self.objects.heap.cancel(block);
        }
    }
}
