//! Copies and leaders driven by hand, for the crates that explore crashes and feed any bytes. Feature `testing`; no part of the interface that programs use.
//!
//! | module | what is driven |
//! |---|---|
//! | `alone` | one copy: what leaders say to it is called one by one |
//! | `cluster` | a leader and copies, over a network without faults: nothing happens but what is called |
//! | `hostile` | a copy, a candidate, a leader, by whatever bytes |

mod alone;
mod cluster;
mod hostile;

pub use alone::{Alone, Found, Place, Told, record};
pub use cluster::{Cluster, Home};
pub use hostile::{candidate, copy, leading};

/// Bytes of a segment of the logs that are made here.
pub const SEGMENT: u64 = 256;
/// How many segments.
pub const SEGMENTS: u64 = 4;
