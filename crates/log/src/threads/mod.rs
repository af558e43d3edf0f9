//! The threads that a log has of its own, until it is closed or dropped.
//!
//! | module | what its thread does |
//! |---|---|
//! | `background` | forces what waited too long; marks an idle log |
//! | `acks` | hears the other replicas while no thread waits for them |
//! | `returning` | lets replicas that were given up join again |

#[cfg(feature = "replication")]
pub(crate) mod acks;
pub(crate) mod background;
#[cfg(feature = "replication")]
mod returning;

#[cfg(feature = "replication")]
pub(crate) use returning::Returning;
