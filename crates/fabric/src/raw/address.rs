//! Where a window is.

use std::ptr::NonNull;

/// The address of a [`Window`](crate::Window) in memory, for registering with a device.
#[derive(Clone, Copy, Debug)]
pub struct Address(NonNull<u8>);

// SAFETY: an address; what may be done there, and by whom, is what `new` asks for.
unsafe impl Send for Address {}
// SAFETY: likewise.
unsafe impl Sync for Address {}

impl Address {
    /// The window whose first byte is at `first`.
    ///
    /// # Safety
    /// As long as the window exists, [`Window::len`](crate::Window::len) bytes from `first` are mapped, and may be read and written by a device at any time, as
    /// by another process: no reference to them is alive but for instants in which no connection gives access.
    #[must_use]
    pub const unsafe fn new(first: NonNull<u8>) -> Self {
        Self(first)
    }

    /// The first byte.
    #[must_use]
    pub const fn first(self) -> NonNull<u8> {
        self.0
    }
}
