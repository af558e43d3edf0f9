//! A log on several machines (Arcadia §4.2): every record is on a write quorum of the replicas before its force returns, and the log survives the loss of the others.
//!
//! A module knows those that stand below it, and none above.
//!
//! | module | what it is |
//! |---|---|
//! | `look`, `check` | what a replica says of itself; what stands in a replica that no process serves |
//! | `replica`, `cursor` | a replica as a process; reading it there: what is committed by now |
//! | `joining` | how a replica comes back, or a new one is taken in, meanwhile |
//! | `changing` | a replica leaves, or one more is there, by two installations |
//! | `posting` | records go to the replicas, and a force waits for them |
//! | `leading` | the leader: which replicas are live, and what they say |
//! | `acks` | the thread that hears the replicas: one that waits for them anyway |
//! | `group` | which replica has what, and what is committed by that |
//! | `candidate`, `takeover` | how a new leader finds out what the log is, and repairs the replicas, over connections; what it asks, and what it concludes |
//! | `served` | a replica and its sessions |
//! | `stored`, `window` | a replica: promises, verifies, persists, acknowledges; what peers write into |
//! | `message`, `wire` | what leaders and replicas say to each other; in which versions, and how both ends agree on one |
//! | `members` | which replicas there are, how many make a quorum; what a replica has promised |
//! | `number` | ids |

mod acks;
pub(super) mod candidate;
mod changing;
mod check;
mod cursor;
mod group;
mod joining;
pub(super) mod leading;
mod look;
pub(super) mod members;
pub(super) mod message;
mod number;
mod posting;
mod replica;
pub(super) mod served;
pub(super) mod stored;
pub(super) mod takeover;
mod window;
pub(super) mod wire;

use crate::at;

pub(crate) use candidate::Link;
pub use check::{CheckedReplica, check_replica};
pub use cursor::Cursor;
pub use group::ReplicaHealth;
pub(crate) use joining::Joining;
pub use leading::FlushOrder;
pub(crate) use leading::Leading;
pub use look::look;
pub use members::REPLICAS_MAX;
pub(crate) use number::number;
pub(crate) use replica::open_or_create;
pub use replica::{Replica, ReplicaStatus};
pub use wire::NEWEST as WIRE_VERSION;
