//! A log on several machines (Arcadia §4.2): every record is on a write quorum of the copies before its force returns, and the log survives the loss of the others.
//!
//! | module | what it is |
//! |---|---|
//! | `members` | which copies there are, how many make a quorum; what a copy has promised |
//! | `message` | what leaders and copies say to each other |
//! | `copy`, `window` | a copy: promises, verifies, persists, acknowledges; what peers write into |
//! | `takeover`, `candidate` | how a new leader finds out what the log is, and repairs the copies; that, over connections |
//! | `group`, `leading` | who has what while a leader leads; that, over connections |
//! | `changing` | a copy leaves, or one more is there, by two installations |
//! | `acks` | who hears the copies: a thread that waits for them anyway |
//! | `joining`, `returning` | how a copy comes back, or a new one is taken in, meanwhile; that it does by itself |
//! | `served`, `replica` | a copy and its sessions; that, as a process |
//! | `open` | how a log is made and opened, over the network |
//! | `look` | what a copy says of itself |
//! | `check` | what stands in a copy that nobody serves |
//! | `cursor` | reading a copy where it is served: what is committed by now |
//! | `simulate`, `stale_leader` | for tests: all of it over a simulated network and memory; a leader that goes on writing |
//! | `testing` | copies and leaders driven by hand: by scenarios of crashes, and by any bytes |

mod acks;
mod candidate;
mod changing;
mod check;
mod copy;
mod cursor;
mod group;
mod joining;
mod leading;
mod look;
mod members;
mod message;
mod open;
mod replica;
mod returning;
mod served;
#[cfg(test)]
mod simulate;
#[cfg(test)]
mod stale_leader;
mod takeover;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod window;

use crate::at;

pub(crate) use acks::AckThread;
pub(crate) use candidate::Link;
pub use check::{CheckedCopy, check_copy};
pub(crate) use copy::Log;
pub use cursor::Cursor;
pub use group::CopyState;
pub(crate) use joining::Joining;
pub use leading::FlushOrder;
pub(crate) use leading::{Lead, Leading};
pub use look::look;
pub use members::COPIES_MAX;
pub(crate) use message::Layout;
pub use open::Replicas;
pub(crate) use open::number;
pub use replica::{Replica, ReplicaStatus};
pub(crate) use returning::Returning;
