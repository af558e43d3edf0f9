//! A simple window.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ptr::NonNull;

use parking_lot::RwLock;

use super::address::Address;
use super::window::Window;

/// A window of ordinary memory, zeroed, at the start of a page.
#[derive(Debug)]
pub struct Memory {
    first: NonNull<u8>,
    layout: Layout,
    /// Orders what software does here; a device does not ask.
    lock: RwLock<()>,
}

// SAFETY: the bytes are reached under `lock` alone, or by a device.
unsafe impl Send for Memory {}
// SAFETY: likewise.
unsafe impl Sync for Memory {}

impl Memory {
    /// Of that many bytes.
    ///
    /// # Panics
    /// Of more bytes than an address space has.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        #[expect(clippy::expect_used, reason = "documented; as Vec::with_capacity does")]
        let layout = Layout::from_size_align(bytes.max(1), 4096).expect("a size that fits into memory");
        // SAFETY: the size is not zero.
        let Some(first) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
        Self { first, layout, lock: RwLock::new(()) }
    }

    /// Where `len` bytes at `offset` are.
    fn pointer(&self, offset: u64, len: usize) -> io::Result<*mut u8> {
        let end = offset.checked_add(len as u64).filter(|&end| end <= self.layout.size() as u64);
        if end.is_none() {
            let text = format!("{len} bytes at {offset} are not in a window of {} bytes", self.layout.size());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        // SAFETY: inside the allocation, checked above.
        Ok(unsafe { self.first.as_ptr().add(offset as usize) })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: from `alloc_zeroed` with this layout.
        unsafe { dealloc(self.first.as_ptr(), self.layout) }
    }
}

impl Window for Memory {
    fn len(&self) -> u64 {
        self.layout.size() as u64
    }

    #[expect(clippy::disallowed_methods, reason = "a device may write here: there can be no slice to copy into")]
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let to = self.pointer(offset, bytes.len())?;
        let _alone = self.lock.write();
        // SAFETY: `pointer` checked the bounds; no other thread writes, and `bytes` is not in here, since no reference to what is in here is given out.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
        Ok(())
    }

    #[expect(clippy::disallowed_methods, reason = "a device may write here: there can be no slice to copy from")]
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let from = self.pointer(offset, into.len())?;
        let _shared = self.lock.read();
        // SAFETY: as for `write`.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) }
        Ok(())
    }

    fn address(&self) -> Option<Address> {
        // SAFETY: the allocation lives as long as `self`, and no reference into it is ever made.
        Some(unsafe { Address::new(self.first) })
    }
}
