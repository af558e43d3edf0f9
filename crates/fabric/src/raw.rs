//! What is not safe by itself, and what it relies on: memory that a device reaches; a question to the system that rustix does not know.
//!
//! | module | what it is |
//! |---|---|
//! | `address` | [`Address`]: where a window is; the caller that makes one answers for the memory |
//! | `window` | [`Window`]: the memory that a peer reaches |
//! | `memory` | [`Memory`], a simple one |
//! | `socket` | what of a socket's bytes has been acknowledged |
//! | `libfabric` | one endpoint of libfabric (a feature) |

mod address;
#[cfg(feature = "libfabric")]
pub(crate) mod libfabric;
mod memory;
pub(crate) mod socket;
mod window;

pub use address::Address;
pub use memory::Memory;
pub use window::Window;
