//! Where a commit's barrier is, if it is not its own: it is bounded, of a group, or of a log with copies.

pub(crate) mod bound;
pub(crate) mod group;
#[cfg(feature = "replication")]
pub(crate) mod leading;
#[cfg(not(feature = "replication"))]
#[path = "alone.rs"]
pub(crate) mod leading;
#[cfg(feature = "replication")]
pub(crate) mod logged;
