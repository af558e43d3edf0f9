//! The memory that a peer reaches.

use std::io;

use super::address::Address;

/// Memory that a peer writes into and reads from, by offset.
///
/// A backend checks bounds before it calls; an implementation checks them again and answers out of bounds with an error. An error ends the
/// connection, and both ends are told.
///
/// Calls come from the thread that polls the [`Receiver`](crate::Receiver), while the connection's [`Access`](crate::Access) is held: do not call
/// [`Access::set`](crate::Access::set) in here. Windows may be shared by several connections.
#[allow(clippy::len_without_is_empty, reason = "a size, not a count of things")]
pub trait Window: Send + Sync {
    /// Bytes of it. Does not change any more once a peer has been given rights.
    fn len(&self) -> u64;

    /// Puts `bytes` at `offset`. A longer write comes in pieces, in ascending order.
    ///
    /// # Errors
    /// Out of bounds, or the memory cannot be written.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Gets what is at `offset`.
    ///
    /// # Errors
    /// Out of bounds, or the memory cannot be read.
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Where it is, for a device that writes there by itself. Without it every backend calls `write` and `read`. Asked for whenever a peer is given rights, and not before.
    fn address(&self) -> Option<Address> {
        None
    }
}
