//! A network in this process, in virtual time: one seed is one history.
//!
//! Nothing happens but in [`Network::step`], which delivers what is due next and says to which node. Receivers return what was delivered and never wait;
//! senders keep everything until [`Sender::flush`](crate::Sender::flush). No threads, no clocks.
//!
//! | module | what it is |
//! |---|---|
//! | `faults` | how bad the network is |
//! | `network` | what the test's driver holds: nodes, connections, faults on demand, steps |
//! | `state` | nodes, links, frames under way, and what is due when |
//! | `delivery` | what a frame does where it arrives |
//! | `endings` | how links end: closed, lost, reset, crashed |
//! | `torn` | which part of a write arrives when it is cut off |
//! | `ends` | the halves of a connection |
//!
//! What can be relied on, and what not, is what a reliable connection of RDMA gives: frames of a connection keep their order; a cut connection loses a
//! tail of what was handed over, and of the first write of that tail any words may have arrived; the two ends learn of it at different times, so one
//! may be using a new connection while the old one still delivers.

mod delivery;
mod endings;
mod ends;
mod faults;
mod network;
mod state;
#[cfg(test)]
mod tests;
mod torn;

pub use faults::Faults;
pub use network::Network;
pub use state::Node;
