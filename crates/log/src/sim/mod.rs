//! Replicas and leaders without machines: driven by hand, by any bytes, and by schedules of all that goes wrong.
//!
//! | module | what is driven |
//! |---|---|
//! | `alone` | one replica: what leaders say to it is called one by one |
//! | `cluster` | a leader and replicas, over a network without faults: nothing happens but what is called |
//! | `hostile` | a replica, a candidate, a leader, by whatever bytes |
//! | `schedules`, `schedule`, `shape` | for tests of this crate: many machines, one random history from each seed |
//! | `world`, `node` | these machines, the network between them, and what was acknowledged |
//! | `stale_leader` | for tests of this crate: a leader that goes on writing |
//! | `versions` | for tests of this crate: replicas and leaders of two builds |
//! | `wiring` | layouts, ways between leaders and replicas, the leader that is elected: for all of them |

mod alone;
mod cluster;
mod hostile;
#[cfg(test)]
mod node;
#[cfg(test)]
mod schedule;
#[cfg(test)]
mod schedules;
#[cfg(test)]
mod shape;
#[cfg(test)]
mod stale_leader;
#[cfg(test)]
mod versions;
mod wiring;
#[cfg(test)]
mod world;

pub use alone::{Alone, Found, Position, Told, record};
pub use cluster::{Cluster, Home};
pub use hostile::{candidate, leading, replica};
pub use wiring::{SEGMENT, SEGMENTS};
